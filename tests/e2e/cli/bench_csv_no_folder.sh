# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/none -p 8 -n 0 --csv out/b.csv
