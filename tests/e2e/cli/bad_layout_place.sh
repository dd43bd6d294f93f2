# SPDX-License-Identifier: Apache-2.0
export SL_DEVICE=cpu
$SLUICE run -m $TINY/q_gpt_oss.gguf --ids 5 -n 1 --layout dp=2,ep=2 -t 2 --place experts@1=check
