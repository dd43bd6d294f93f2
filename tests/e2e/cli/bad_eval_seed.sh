# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/qwen3 -f $TINY/none --seed 7
