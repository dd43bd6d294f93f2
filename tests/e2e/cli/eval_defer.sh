# SPDX-License-Identifier: Apache-2.0
demo=$DATA/../../models/demo/demo.gguf
judge() {
    $SLUICE eval -m $demo -f $DATA/english.txt --ctx 256 --chunks 4 --json "$@"
}
judge --save-base base >/dev/null
for n in 0 1 2; do
    judge --base base --defer $n
done | python3 -c "
import json, sys
none, one, two = (json.loads(l) for l in sys.stdin)
print(none['kl_mean'] < 1e-6, none['top1_pct'] == 100)
print(0.003 < one['kl_mean'] < 0.04, 85 < one['top1_pct'] < 99)
print(1.5 * one['kl_mean'] < two['kl_mean'] < 0.3, two['top1_pct'] < one['top1_pct'])"
