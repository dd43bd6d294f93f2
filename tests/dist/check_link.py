#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the kernel counts on a link between two machines, against what `run` says that each token
moves: two namespaces with a link between them. The difference of a long and a short prompt, so that
what finding each other costs falls away; and what that costs.

  check_link.py [BUILD]
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import mpi  # noqa: E402
import nodes  # noqa: E402

BUILD = e2e.build_dir()
T = e2e.Tally("link")
DEMO = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
SHORT, LONG, ANSWER = 32, 832, 2


def run(machines, layout, n):
    """(bytes that are told, bytes that the link carried)"""
    args = [e2e.sluice(BUILD), "run", "-m", DEMO, "--ids",
            ",".join(str(100 + i * 7 % 900) for i in range(n)), "-n", str(ANSWER), "--ignore-eos",
            "-c", "2048", "--layout", layout, "--json"]
    before = machines.carried()
    p = subprocess.run(machines.command((2, args)), capture_output=True, text=True, timeout=240)
    if p.returncode:
        T.check(f"{layout}, {n} tokens", f"exit {p.returncode}: {p.stderr[-600:]}")
        return None
    told = json.loads(p.stdout.strip().split("\n")[-1])["wire_bytes_per_token"] * (n + ANSWER)
    return told, machines.carried() - before


def main():
    why = mpi.missing(BUILD) or nodes.missing()
    if why:
        print(f"skipped: {why}")
        sys.exit(0 if mpi.missing(BUILD) is None else 77)
    with nodes.Nodes() as machines:
        for layout in ("tp=2", "pp=2", "dp=2,ep=2", "tp=2,ep=2"):
            short, long = run(machines, layout, SHORT), run(machines, layout, LONG)
            if not short or not long:
                continue
            told, carried = long[0] - short[0], long[1] - short[1]
            print(f"{layout}: {told / 1e6:.2f} MB told, {carried / 1e6:.2f} MB carried, "
                  f"{carried / told:.3f} of it; {(short[1] - short[0]) / 1e3:.0f} kB beside the "
                  "short one", flush=True)
            T.check(f"{layout}: the link carries what is told, and heads",
                    not 1 <= carried / told <= 1.08 and f"{carried} of {told}")
            T.check(f"{layout}: finding each other is little",
                    short[1] - short[0] > 1 << 20 and f"{short[1] - short[0]} bytes")
    T.exit()


if __name__ == "__main__":
    main()
