# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/q_all.gguf --json | python3 -c "
import json, sys
j = json.load(sys.stdin)
print(j[\"arch\"], j[\"layers\"], j[\"vocab\"], sorted(x.lower() for x in j[\"types\"]),
      [(t[\"type\"].lower(), t[\"shape\"]) for t in j[\"tensors\"]
       if t[\"name\"] == \"blk.1.ffn_gate.weight\"])"
