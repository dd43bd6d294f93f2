# SPDX-License-Identifier: Apache-2.0
SL_PLACE=head=check $SLUICE inspect $TINY/deepseek_v3 --memory 64 || true
$SLUICE inspect $TINY/deepseek_v3 --memory 64 --place head=check
