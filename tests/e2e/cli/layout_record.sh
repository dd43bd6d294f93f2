# SPDX-License-Identifier: Apache-2.0
# what ranks have recorded one computes again; and passes of the MTP layer, the first of which is
# within the first 596 bytes, are what they are on one
export SL_DEVICE=cpu
record() {
    file=$1
    model=$2
    shift 2
    $SLUICE run -m $TINY/$model --ids 5,6,7,8,5,6,7,8,5,6,7 -n 12 --ignore-eos -q --record $file \
        "$@" >/dev/null
}
record tp.steps deepseek_v3_fp8 --layout tp=2 -t 2
record pp.steps deepseek_v3_fp8 --layout pp=2 -t 2
for x in tp pp; do
    $SLUICE bench --replay $x.steps -m $TINY/deepseek_v3_fp8 --json | grep -o '"rows":12,"differ":0'
done
$SLUICE bench --replay pp.steps -m $TINY/deepseek_v3_fp8 --layout tp=2,pp=2 -t 4 --json |
    grep -o '"rows":12,"differ":0'
# of groups with sequences of their own the first has all of a recording; recorded by groups: too
record one.steps deepseek_v3_fp8
record dp.steps deepseek_v3_fp8 --layout dp=2,ep=2 -t 2
for x in one dp; do
    $SLUICE bench --replay $x.steps -m $TINY/deepseek_v3_fp8 --layout dp=2,ep=2 -t 2 --json |
        grep -o '"rows":12,"differ":0'
done
$SLUICE bench --replay dp.steps -m $TINY/deepseek_v3_fp8 --json | grep -o '"rows":12,"differ":0'
record one.mtp glm4_moe --draft mtp
record pp.mtp glm4_moe --draft mtp --layout pp=3 -t 3
cmp -n 596 one.mtp pp.mtp && echo same
