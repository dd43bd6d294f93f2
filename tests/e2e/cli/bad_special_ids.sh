# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/qwen3 --ids 5 -n 1 --special
