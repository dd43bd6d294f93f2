# SPDX-License-Identifier: Apache-2.0
echo "{\"threads\": 1, \"n\": 3}" > c.json
$SLUICE run --config c.json -m $TINY/qwen3 --ids 5,6 --ignore-eos --json | python3 -c "
import json, sys
j = json.load(sys.stdin)
print(j[\"threads\"], len(j[\"tokens\"]))"
