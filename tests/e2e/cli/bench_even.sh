# SPDX-License-Identifier: Apache-2.0
# Of an even number of repeats tokens a second and time a step are those of one run: 40 tokens in
# one step, 1 in each of 8.
cat >look.py <<'E2'
import json, sys
for t in json.load(sys.stdin):
    print(t["test"], abs(t["tps"] * t["ms_per_step"] / 1e3 / (40 if t["test"] == "pp40" else 1)
        - 1) < 1e-3, t["tps_min"] <= t["tps"] <= t["tps_max"])
E2
for r in 2 4; do
    $SLUICE bench -m $TINY/qwen3.gguf -p 40 -n 8 -r $r --json | python3 look.py
done
