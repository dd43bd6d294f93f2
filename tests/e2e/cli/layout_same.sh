# SPDX-License-Identifier: Apache-2.0
export SL_DEVICE=cpu
same='import json,sys; h = [json.loads(l) for l in sys.stdin]
print(len({x["run_hash"] for x in h}), [x.get("layout") for x in h], [x.get("ranks") for x in h])
print([x["wire_bytes_per_token"] > 0 and len(x["weight_bytes_per_rank"]) for x in h[1:]])'
run() {
    model=$1
    shift
    $SLUICE run -m $TINY/$model --ids 5,6,7,8,5,6,7,8,5,6,7 -n 24 --ignore-eos --json "$@"
}
{
    run deepseek_v3_fp8
    run deepseek_v3_fp8 --layout tp=2 -t 2
    run deepseek_v3_fp8 --layout tp=2 -t 3 --temp 0 --draft ngram
    run deepseek_v3_fp8 --layout tp=2,pp=2 -t 4
} | python3 -c "$same"
{
    run glm4_moe
    run glm4_moe --layout pp=2 -t 2
    run glm4_moe --layout pp=3 -t 3 --draft mtp
} | python3 -c "$same"
