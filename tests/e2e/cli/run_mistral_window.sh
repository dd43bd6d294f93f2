# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/mistral_window --ids 7,44,190,3,251,77,18,205,120 -n 16 --acts f32 \
    --ignore-eos --json | python3 -c '
import json, sys
j = json.load(sys.stdin)
print(j["prompt_tokens"], j["tokens"], j["finish_reason"])'
