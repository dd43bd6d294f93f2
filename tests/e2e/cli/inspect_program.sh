# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/smollm.gguf --program
$SLUICE inspect $TINY/deepseek_v3 --program | sed -n '/^layer 1/,/^head/p; /^MTP/,/^layer/p'
$SLUICE inspect $TINY/deepseek_v3 --program --json | python3 -c "
import json, sys
p = json.load(sys.stdin)['program']
print(len(p), p[0], sorted({o['layer'] for o in p}), sorted({o['pass'] for o in p}))"
