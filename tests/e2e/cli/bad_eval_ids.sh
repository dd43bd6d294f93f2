# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/qwen3 --ids 5,6
