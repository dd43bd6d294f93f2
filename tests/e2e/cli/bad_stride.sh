# SPDX-License-Identifier: Apache-2.0
echo "a text that is longer than one window" >text
$SLUICE eval -m $TINY/qwen3 -f text -c 16 --stride 17
