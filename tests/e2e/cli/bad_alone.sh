# SPDX-License-Identifier: Apache-2.0
alone() {
    code=0
    timeout 20 $SLUICE "$@" || code=$?
    test $code = 2 || echo "exit $code" >&2
}
echo '{"prefill_from": 9}' > c.json
alone serve -m $TINY/qwen3 --port 0 --prefill-from 9
alone serve -m $TINY/qwen3 --port 0 --config c.json
alone serve -m $TINY/qwen3 --port 0 --place-mbps 9
alone run -m $TINY/qwen3 --ids 5 -n 1 --expert-half-life 9
alone bench -m $TINY/qwen3 --dist-deadline-ms 900
alone load --url http://localhost:1 -m demo --parallel 1 --sla-percentile 50
alone inspect $TINY/qwen3 --threads 2
alone plan -m $TINY/qwen3 --hot 2
alone plan -m $TINY/qwen3 --goal tps
alone run -m $TINY/qwen3 -p a -n 1 --chat-template c.json
# the environment is for all commands; an option that says nothing is none
SLUICE_EXPERT_HALF_LIFE=9 SLUICE_PLACE_MBPS=9 $SLUICE run -m $TINY/qwen3 --ids 5 -n 1 -q >/dev/null
$SLUICE run -m $TINY/qwen3 --ids 5 -n 1 -q --expert-half-life 0 >/dev/null
