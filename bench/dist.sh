#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What only machines with several memory nodes, or several machines, can show: one command.
#   bench/dist.sh MODEL [OUT.jsonl]     in a build with Open MPI; RANKS="2 4" are tried (default: 2,
#                                       4, 8, as far as there are cores), MPIRUN="mpirun ..." starts
#                                       them (default: on this machine, bound to memory nodes)
# For each number of ranks, of threads and of processes: the hash of an answer, which must be that
# of one rank, and the speed of prompts and answers, waits and bytes between ranks. JSON lines, with
# the machine first. Exit 1 where an answer differs.
set -eu
model=${1:?the model}
out=${2:-dist.jsonl}
sluice=${SLUICE:-$(dirname "$0")/../build/sluice}
cores=$(lscpu -p=Core,Socket | grep -v '^#' | sort -u | wc -l)
nodes=$(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l)
if [ "$nodes" -gt 1 ]; then bind="--map-by numa --bind-to numa"; else bind="--bind-to none"; fi
[ "$(id -u)" != 0 ] || bind="$bind --allow-run-as-root"
[ "$cores" -ge 8 ] || bind="$bind --oversubscribe"
mpirun=${MPIRUN:-mpirun $bind}
tries=${RANKS:-$(for n in 2 4 8; do [ $n -gt "$cores" ] || echo $n; done)}

# NAME, then the command that gives an answer as JSON: a line with what counts
measure() {
    name=$1
    shift
    "$@" run -m "$model" -p "$(seq 1 400 | tr '\n' ' ')" -n 64 --ignore-eos --json $layout |
        python3 -c '
import json, sys
x = json.loads(sys.stdin.read().strip().split("\n")[-1])
keep = ("run_hash", "ranks", "prefill_tps", "decode_tps", "wait_pct", "wire_bytes_per_token",
        "weight_bytes_per_rank", "bandwidth_gbps", "threads")
print(json.dumps({"name": sys.argv[1], **{k: x[k] for k in keep if k in x}}))' "$name"
}

{
    "$sluice" doctor --json
    layout=
    measure "1 rank" "$sluice"
    for n in $tries; do
        layout="--layout tp=$n"
        measure "$n threads" "$sluice" || echo "{\"name\":\"$n threads\",\"refused\":true}"
        command -v mpirun >/dev/null || continue
        measure "$n processes" $mpirun -n "$n" "$sluice" ||
            echo "{\"name\":\"$n processes\",\"refused\":true}"
    done
} | tee "$out" | python3 -c '
import json, sys
hashes = [x["run_hash"] for x in map(json.loads, sys.stdin) if "run_hash" in x]
sys.exit(f"{len(set(hashes))} different answers" if len(set(hashes)) != 1 else 0)'
