# SPDX-License-Identifier: Apache-2.0
same='import json,sys; h = [json.loads(l)["run_hash"] for l in sys.stdin]
print(len(h), len(set(h)))'
run() {
    $SLUICE run -m $TINY/glm4_moe_lite.gguf --ids 5,6,7,8,5,6,7,8,5,6,7 -n 24 --ignore-eos \
        --json "$@"
}
{
    SL_DEVICE= run --defer 1
    run --device sim --defer 1
    run --device sim --cpu-moe --defer 1
    run --device sim:clock=real,lat=20us,hand=10us --cpu-moe --defer 1
    run --device check --place "experts@1=cpu" --defer 1
    SLUICE_DEFER=1 run --device cpu --place "attn=check" --draft ngram
} | python3 -c "$same"
