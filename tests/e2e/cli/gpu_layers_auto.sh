# SPDX-License-Identifier: Apache-2.0
$SLUICE run -q -m $TINY/deepseek_v3 --ids 5 -n 1 -ngl auto --device check > /dev/null
