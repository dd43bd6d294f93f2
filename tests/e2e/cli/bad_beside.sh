# SPDX-License-Identifier: Apache-2.0
empty() {
    code=0
    timeout 20 $SLUICE "$@" || code=$?
    test $code = 2 || echo "exit $code" >&2
}
echo '{"record": ""}' > c.json
empty run -m $TINY/qwen3 --ids 5 -n 1 --record ""
empty run -m $TINY/qwen3 --ids 5 -n 1 --config c.json
empty run -m $TINY/qwen3 --ids 5 -n 1 --config ""
empty run -m $TINY/qwen3 -p a -n 1 --ids ""
empty serve -m $TINY/qwen3 --port 0 --api-key-file=
(export SLUICE_API_KEY_FILE=; empty serve -m $TINY/qwen3 --port 0)
empty inspect $TINY/qwen3 --memory " "
empty template -m $TINY/qwen3 --messages ""
# what they name is there already, or can not be
empty inspect $TINY/qwen3 --model $TINY/qwen2
empty doctor --split 1,2
empty doctor --gpu-layers 3
empty inspect $TINY/qwen3_moe --hot-from c.json
empty load --url http://localhost:1 -m demo --parallel 1 --trace c.json
empty bench -m $TINY/qwen3 --replay c.json --json-schema c.json
empty bench -m $TINY/qwen3 --kernels q4_0 --temp 1
$SLUICE run -m $TINY/qwen3_moe --ids 5 -n 1 -q --expert-stats none/load.json || echo "exit $?" >&2
$SLUICE plan -m deepseek-r1 --hardware 910b4 --cards 8 --constants c.json || echo "exit $?" >&2
