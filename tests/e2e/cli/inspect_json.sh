# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/deepseek_v3 --json | python3 -c "
import json, sys
j = json.load(sys.stdin)
print(j[\"arch\"], j[\"layers\"], j[\"vocab\"], j[\"ctx\"],
      sum(t[\"bytes\"] for t in j[\"tensors\"]) == j[\"bytes\"],
      [t for t in j[\"tensors\"] if t[\"name\"]
       == \"model.layers.1.mlp.gate.weight\"][0][\"shape\"])"
