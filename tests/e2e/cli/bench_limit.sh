# SPDX-License-Identifier: Apache-2.0
# Attention's products are counted: 2 layers, 4 heads of 40 + 40 (qwen3), 24 + 16 materialised, 40 +
# 32 on latents (deepseek_v2), each token times the positions it sees; on the CPU of a prompt's last
# layer the last token's alone. The limit is at least each of its parts and at most their sum.
cat >look.py <<'E2'
import json, os, sys
each = int(sys.argv[1])  # operations of a token, a layer and a position in a prompt
for t in json.load(sys.stdin):
    read, ops = 1e9 if t["pct_bandwidth"] is None else t["pct_bandwidth"], t["pct_int8_peak"]
    attn = 1e5 * t["attn_gflop_per_step"] / t["attn_gops_peak"] / t["ms_per_step"]
    n = round(t["attn_gflop_per_step"] * 1e9)
    if t["test"].startswith("pp") and not os.environ.get("SL_DEVICE"):
        n = 2 * (n - each * (t["depth"] + 40))  # of both layers, as if they were alike
    print(t["test"], t["depth"], n, max(ops, attn) <= 1.001 * t["pct_limit"] <= 1.002 * (
        read + ops + attn))
E2
$SLUICE bench -m $TINY/qwen3.gguf -p 40 -n 8 -d 0,64 -r 1 --json | python3 look.py 640
$SLUICE bench -m $TINY/deepseek_v2.gguf -p 40 -n 8 -d 0,64 -r 1 --kv f16 --json |
    python3 look.py 320
