# SPDX-License-Identifier: Apache-2.0
export SL_DEVICE=cpu
$SLUICE run -m $TINY/deepseek_v2 --ids 5 -n 1 --layout tp=2,pp=20
