# SPDX-License-Identifier: Apache-2.0
echo "{\"n\": 3}" > c.json; for e in "" SLUICE_N=4; do
    env $e $SLUICE run --config c.json -m $TINY/qwen3 --ids 5,6 --ignore-eos --json
    env $e $SLUICE run --config c.json -m $TINY/qwen3 --ids 5,6 -n 5 --ignore-eos --json
done | python3 -c "import json,sys; print([len(json.loads(l)[\"tokens\"]) for l in sys.stdin])"
