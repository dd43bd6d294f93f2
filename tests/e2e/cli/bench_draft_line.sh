# SPDX-License-Identifier: Apache-2.0
echo '{"text":"x"}' >p.jsonl
$SLUICE bench -m $TINY/llama3 --draft ngram --prompts p.jsonl -n 4 -r 1
