# SPDX-License-Identifier: Apache-2.0
# a number where a text is due is that text
echo '{"draft": 5}' > c.json
$SLUICE run -m $TINY/qwen3 --ids 5 -n 1 --config c.json
