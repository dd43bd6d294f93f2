# SPDX-License-Identifier: Apache-2.0
printf "ab\\377cd" | $SLUICE tokenize -m $TINY/qwen3
