# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/smollm --ids 5 -n 1 --defer 2
