# SPDX-License-Identifier: Apache-2.0
for f in $TINY/qwen3_split-0000*.gguf; do
    $SLUICE inspect $f --json
done | python3 -c "
import json, sys
print(set((j[\"arch\"], len(j[\"tensors\"])) for j in map(json.loads, sys.stdin)))"
