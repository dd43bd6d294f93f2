# SPDX-License-Identifier: Apache-2.0
same='import json,sys; h = [json.loads(l)["run_hash"] for l in sys.stdin]
print(len(h), len(set(h)))'
run() {
    $SLUICE run -m $TINY/deepseek_v3 --ids 5,6,7,8,5,6,7,8,5,6,7 -n 24 --ignore-eos --json "$@"
}
{
    SL_DEVICE= run
    run --device sim
    run --device sim:clock=real,lat=0ns
    run --device sim --cpu-moe
    run --device sim:clock=real,lat=20us,hand=10us --cpu-moe
    run --device cpu --place "re:exps=sim:clock=real,lat=1us; head=sim:clock=real,lat=1us"
} | python3 -c "$same"
