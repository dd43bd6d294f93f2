# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/qwen3_moe.gguf --ablation -b 0
