# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/none --temp 1
