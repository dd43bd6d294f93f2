# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/llama3 -p 8 -n 1 -r 1 --place experts=check
