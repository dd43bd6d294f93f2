# SPDX-License-Identifier: Apache-2.0
mkdir d; cp $TINY/llama2/config.json $TINY/llama2/model.safetensors d/
$SLUICE run -m d --ids 7,44,190,3,251,77,18,205,120 -n 16 --acts f32 --ignore-eos --json |
    python3 -c '
import json, sys
print(json.load(sys.stdin)["tokens"])'
