# SPDX-License-Identifier: Apache-2.0
# Right and wrong answers replayed: what is computed and accepted is known; costs and gains are
# positive. Then prompts of a file.
cat >look.py <<'E2'
import json, sys
rate = float(sys.argv[1])
for t in json.load(sys.stdin):
    k, d = t["drafts"], t["draft"]
    at = k if k is not None else 7
    ok = all(x == rate for x in d["accepted_by_position"]) and d["accepted"] == rate * d["drafted"]
    ok = ok and (k is None or (d["drafted"] > 0) == (k > 0))
    ok = ok and 1 <= d["tokens_per_step"] <= 1 + rate * at
    ok = ok and min(t["tps"], t["ms_per_step"], t["gain"], t["predicted_gain"], t["cost"]) > 0
    ok = ok and (t["read"] is None if k is None else 1 <= t["read"] < 1.2)
    ok = ok and (t["batch"] < 16 or k is None or d["tokens_per_step"] == 1 + k)
    print(t["test"], t["batch"], t["depth"], k, d["source"], ok, k is None or t["cost"] > 0,
          k != 0 or t["cost"] == t["gain"] == 1)
E2
$SLUICE bench -m $TINY/llama3 --draft replay:1 --draft-max 2 -n 20 -r 2 -b 1,3 -d 40 --json |
    python3 look.py 1
$SLUICE bench -m $TINY/llama3 --draft replay:0 --draft-max 1 -n 20 -r 1 --json | python3 look.py 0
# a context of 11 tokens, and 16 drafts in a step
$SLUICE bench -m $TINY/llama3 --draft replay:1 --draft-max 1 -n 9 -r 1 -b 16 --json |
    python3 look.py 1
echo '{"ids":[5,6,7,8,5,6,7]}' >p.jsonl
$SLUICE bench -m $TINY/llama3 --draft ngram --draft-max 1 --prompts p.jsonl -n 30 -r 1 | cut -c1-30
