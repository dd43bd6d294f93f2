# SPDX-License-Identifier: Apache-2.0
# Attention's products are counted: 2 layers, 4 heads of 40 + 40 (qwen3), 24 + 16 materialised, 40 +
# 32 on latents (deepseek_v2), each token times the positions it sees; of a prompt's last layer the
# last token's alone. The limit is at least each of its parts and at most their sum.
cat >look.py <<'E2'
import json, sys
for t in json.load(sys.stdin):
    read, ops = 1e9 if t["pct_bandwidth"] is None else t["pct_bandwidth"], t["pct_int8_peak"]
    attn = 1e5 * t["attn_gflop_per_step"] / t["attn_gops_peak"] / t["ms_per_step"]
    print(t["test"], t["depth"], round(t["attn_gflop_per_step"] * 1e9), max(ops, attn) <= 1.001 *
        t["pct_limit"] <= 1.002 * (read + ops + attn))
E2
$SLUICE bench -m $TINY/qwen3.gguf -p 40 -n 8 -d 0,64 -r 1 --json | python3 look.py
$SLUICE bench -m $TINY/deepseek_v2.gguf -p 40 -n 8 -d 0,64 -r 1 --kv f16 --json | python3 look.py
