# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/qwen3 -f $DATA/english.txt --ctx 128 --chunks 2 --acts f32 \
    --save-base base >/dev/null
$SLUICE eval -m $TINY/qwen3 -f $DATA/english.txt --ctx 128 --chunks 2 --acts f32 --base base \
    --json | python3 -c "
import json, sys
j = json.load(sys.stdin)
print(abs(j[\"kl_mean\"]) < 1e-6, float(j[\"top1_pct\"]))"
