# SPDX-License-Identifier: Apache-2.0
# A prompt after a context that is no whole number of steps has a speed too.
$SLUICE bench -m $TINY/qwen3_moe.gguf -p 16 -n 0 -d 0,100,700 -r 1 --json | python3 -c '
import json, sys
for t in json.load(sys.stdin):
    print(t["test"], t["depth"], t["tps"] > 0, t["gops"] > 0, t["ms_per_step"] is not None)'
