# SPDX-License-Identifier: Apache-2.0
same='import json,sys; a, b = [json.loads(l) for l in sys.stdin];
print(a["tokens"] == b["tokens"], "draft" in a, b["draft"]["drafted"] > 0)'
for d in off ngram; do
    $SLUICE run -m $TINY/llama3 --ids 5,6,7,8,5,6,7,8,5,6,7 -n 40 --temp 0.1 --ignore-eos \
        --draft $d --json
done | python3 -c "$same"
