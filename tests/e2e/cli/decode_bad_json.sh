# SPDX-License-Identifier: Apache-2.0
echo "[1, 2" | $SLUICE tokenize -m $TINY/qwen3 --decode
