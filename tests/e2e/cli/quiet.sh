# SPDX-License-Identifier: Apache-2.0
unset SLUICE_QUIET
$SLUICE run -q -m $TINY/qwen3 --ids 5,6,7 -n 4 2> e > o; [ -s e ] || echo silent
