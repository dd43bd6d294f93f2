# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/qwen3 --memory 100,3 --json | python3 -c "
import json, sys
m = json.load(sys.stdin)[\"memory\"]
print(sorted(m), m[\"ctx\"], m[\"batch\"],
      m[\"total\"] == m[\"weights\"] + m[\"kv\"] + m[\"activations\"] + m[\"scratch\"],
      m[\"fits\"])"
$SLUICE inspect $TINY/qwen3 --memory 100,3 | tail -1
