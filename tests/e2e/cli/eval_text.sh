# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/qwen3 -f $DATA/english.txt --ctx 128 --chunks 2 --acts f32 --json |
    python3 -c '
import json, math, sys
j = json.load(sys.stdin)
print(j["tokens"] > 200, abs(j["ppl"] - math.exp(j["nll"] / j["tokens"])) < 1e-4 * j["ppl"],
      0 < j["bits_per_byte"] < 20)'
