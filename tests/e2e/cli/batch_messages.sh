# SPDX-License-Identifier: Apache-2.0
printf '{"messages":[{"role":"user","content":"What is 1+14?"}],"n":12}\n' > b.jsonl
$SLUICE run --batch-file b.jsonl | grep -o '"text":"[^"]*"'
