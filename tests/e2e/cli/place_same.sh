# SPDX-License-Identifier: Apache-2.0
same='import json,sys; h = [json.loads(l)["run_hash"] for l in sys.stdin]
print(len(h), len(set(h)))'
run() {
    $SLUICE run -m $TINY/deepseek_v3 --ids 5,6,7,8,5,6,7,8,5,6,7 -n 24 --ignore-eos --json "$@"
}
{
    run
    run --place "attn=check"
    run --place "experts@2=check; head=check; embed=check"
    run --experts-device check --place "shared=check;dense=check"
    run --experts-device check --place "router=check" --draft mtp
    run --experts-device nowhere --place "experts=cpu"
    SL_PLACE="re:exps=check" run
    SLUICE_PLACE="dense=check" run
    SL_DEVICE=check run --place "experts=cpu"
    SL_DEVICE=check run --cpu-moe
    SL_DEVICE=check run --n-cpu-moe 2 --place "head=cpu"
} | python3 -c "$same"
