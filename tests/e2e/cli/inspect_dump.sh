# SPDX-License-Identifier: Apache-2.0
$SLUICE inspect $TINY/llama2.gguf --dump output_norm.weight out.f32
$SLUICE inspect $TINY/llama2.gguf --json | python3 -c "
import json, os, sys
t = [x for x in json.load(sys.stdin)['tensors'] if x['name'] == 'output_norm.weight'][0]
with open(os.environ['TINY'] + '/llama2.gguf', 'rb') as f:
    f.seek(t['offset'])
    print(t['type'], f.read(t['bytes']) == open('out.f32', 'rb').read())"
ls
