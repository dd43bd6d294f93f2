# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/deepseek_v3 --memory 64 --place head=check
