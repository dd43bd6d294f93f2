# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/llama3 --draft replay:2 -n 4 -r 1
