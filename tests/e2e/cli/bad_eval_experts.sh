# SPDX-License-Identifier: Apache-2.0
echo one two three > t.txt
$SLUICE eval -m $TINY/qwen3_moe.gguf --experts --ids 5 --dump-logits l.bin || true
$SLUICE eval -m $TINY/llama3.gguf --experts -f t.txt
