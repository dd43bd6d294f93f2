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
    run --place "blocks=check; blocks@1=cpu"
    run --device check,cpu
    run --device check,cpu,sim --split 1,3,2 --place "head=cpu"
    run --device cpu,sim:lat=8us,bw=900 -ts 0,1
    run -ngl 0
    run -ngl 99 --device check --mem-fraction 0.5
    SL_DEVICE=check run -ot exps=CPU
    SL_DEVICE=check run --override-tensor 'ffn_.*_exps=CPU,shexp=cpu,exps=check' \
        -ot "ffn_gate_inp=CPU"
} | python3 -c "$same"
