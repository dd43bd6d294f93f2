# SPDX-License-Identifier: Apache-2.0
printf '{"prompt":"a\\u0000b","n":1}\n' > b.jsonl; $SLUICE run --batch-file b.jsonl
