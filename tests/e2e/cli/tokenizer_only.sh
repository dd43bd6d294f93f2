# SPDX-License-Identifier: Apache-2.0
mkdir d; cp $TINY/qwen3/tokenizer.json $TINY/qwen3/tokenizer_config.json d/
printf "the answer" | $SLUICE tokenize -m d | python3 -c "
import json, sys
print(len(json.load(sys.stdin)) > 1)"
echo "[{\"role\": \"user\", \"content\": \"hi\"}]" > m.json
$SLUICE template -m d --messages m.json
