# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/none --draft ngram -p 64
