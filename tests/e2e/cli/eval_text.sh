# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/qwen3 -f $DATA/english.txt --ctx 128 --chunks 2 --acts f32 --json | python3 -c "import json,sys; j = json.load(sys.stdin); print(j[\"tokens\"] > 200, abs(j[\"ppl\"] - 2.718281828459045 ** (j[\"nll\"])) < 1e-2 * j[\"ppl\"])"
