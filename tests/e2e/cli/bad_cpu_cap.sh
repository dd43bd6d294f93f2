# SPDX-License-Identifier: Apache-2.0
SL_CPU=AVX2 $SLUICE run -m $TINY/qwen3 --ids 5 -n 1
