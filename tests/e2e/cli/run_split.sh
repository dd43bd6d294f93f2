# SPDX-License-Identifier: Apache-2.0
a=$($SLUICE run -m $TINY/qwen3_split-00001-of-00002.gguf --ids 5,6,7 -n 12 --acts f32 \
    --ignore-eos --json | python3 -c "import json,sys; print(json.load(sys.stdin)[\"run_hash\"])")
b=$($SLUICE run -m $TINY/qwen3_split-00002-of-00002.gguf --ids 5,6,7 -n 12 --acts f32 \
    --ignore-eos --json | python3 -c "import json,sys; print(json.load(sys.stdin)[\"run_hash\"])")
c=$($SLUICE run -m $TINY/qwen3.gguf --ids 5,6,7 -n 12 --acts f32 --ignore-eos --json | python3 -c "
import json, sys
print(json.load(sys.stdin)[\"run_hash\"])")
[ "$a" = "$b" ] && [ "$b" = "$c" ] && [ ${#a} = 16 ] && echo same
