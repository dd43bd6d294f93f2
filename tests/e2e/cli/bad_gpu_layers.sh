# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/deepseek_v3 --ids 5 -n 1 --device check -ngl 2x
