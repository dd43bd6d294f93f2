# SPDX-License-Identifier: Apache-2.0
# what comes late goes from stage to stage
same='import json,sys; h = [json.loads(l) for l in sys.stdin]
print(len({x["run_hash"] for x in h}), len(h))'
run() {
    model=$1
    shift
    $SLUICE run -m $TINY/$model --ids 5,6,7,8,5,6,7,8,5,6,7 -n 24 --ignore-eos --json "$@"
}
for m in qwen3_moe q_gpt_oss.gguf; do
    {
        run $m --device cpu --defer 1
        run $m --device cpu --defer 1 --layout pp=2 -t 2
        run $m --device check --defer 1 --layout pp=2 -t 2
        run $m --device check,sim --cpu-moe --defer 1 --layout pp=2 -t 2
        run $m --device cpu
    } | python3 -c "$same"
done
