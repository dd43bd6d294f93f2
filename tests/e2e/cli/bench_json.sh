# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/qwen3 -p 32 -n 4 -b 1,2 -r 1 --json | python3 -c "
import json, sys
print(sorted((x[\"test\"], x[\"batch\"]) for x in json.load(sys.stdin)))"
