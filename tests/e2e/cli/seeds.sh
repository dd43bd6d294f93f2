# SPDX-License-Identifier: Apache-2.0
for s in 1 1 2; do
    $SLUICE run -m $TINY/qwen3 --ids 5,6,7 -n 24 --temp 1.5 --seed $s --ignore-eos --json
done | python3 -c "
import json, sys
t = [json.loads(l)[\"tokens\"] for l in sys.stdin]
print(t[0] == t[1], t[0] != t[2])"
