# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/deepseek_v3 --experts
$SLUICE inspect $TINY/qwen3 --experts
