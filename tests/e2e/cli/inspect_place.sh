# SPDX-License-Identifier: Apache-2.0
t='import json,sys
for l in sys.stdin:
    p = json.loads(l)["place"]
    print(*[d["device"] + ": " + d["parts"] for d in p], sep=" | ", end=" ")
    print(sum(d["bytes"] for d in p), all(d["available"] > 0 for d in p))'
for place in "experts=check" "experts@2=check;head=check" "re:shexp=check" "head=check:mem=4096"; do
    $SLUICE inspect $TINY/deepseek_v3 --device cpu --place "$place" --json
done | python3 -c "$t"
$SLUICE inspect $TINY/deepseek_v3 --device cpu --experts-device check --json | python3 -c "$t"
for moe in --cpu-moe "--n-cpu-moe 2"; do
    $SLUICE inspect $TINY/deepseek_v3 --device check $moe --json
done | python3 -c "$t"
plain() { sed 's/([^)]*) *//; s/  */ /g'; }
$SLUICE inspect $TINY/deepseek_v3 --device cpu --place "experts@1=check" | plain
where="doctor -m $TINY/deepseek_v3 --device cpu --place experts=check"
$SLUICE $where | sed -n '/^placement/,/^check/p' | plain
$SLUICE $where --json | python3 -c "$t"
for way in "--device check,cpu --split 2,1" "-ngl 0 --place head=check" \
    "--device cpu,check,sim" "--device check -ot exps=CPU" \
    "--device check -ot gate_exps=check,exps=CPU" "--device cpu --place blocks@0=check"; do
    $SLUICE inspect $TINY/deepseek_v3 $way --json 2>&1 | python3 -c "$t" 2>/dev/null || echo "$way?"
done
export SL_DEVICE=cpu
SL_PLACE="experts=check" $SLUICE inspect $TINY/deepseek_v3 --json | python3 -c "$t"
SL_PLACE="experts=check" $SLUICE inspect $TINY/deepseek_v3 --device cpu --place "" | plain
export SL_PLACE="experts@1=check"
$SLUICE doctor -m $TINY/deepseek_v3 --json | python3 -c "$t"
$SLUICE inspect $TINY/deepseek_v3 | grep -c "^architecture"
$SLUICE inspect $TINY/deepseek_v3 | tail -n 2 | plain
$SLUICE inspect --kernels | grep -c "^mm_q4_0 "
