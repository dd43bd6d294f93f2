# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/qwen3 --memory 0
