# SPDX-License-Identifier: Apache-2.0
echo "{" > m.json; $SLUICE template -m $TINY/qwen3 --messages m.json
