# SPDX-License-Identifier: Apache-2.0
echo '{"prompt": "a"}' > d.jsonl
$SLUICE load --url http://localhost:1 -m demo --parallel 1 --dataset d.jsonl --prefix-length 9
