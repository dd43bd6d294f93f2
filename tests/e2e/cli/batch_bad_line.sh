# SPDX-License-Identifier: Apache-2.0
printf "{\"ids\": [5], \"n\": 2}\n{nope\n" > b.jsonl
$SLUICE run -m $TINY/qwen3 --batch-file b.jsonl
