# SPDX-License-Identifier: Apache-2.0
$SLUICE eval -m $TINY/none --ids 1,2 --dump-logits out --base none
