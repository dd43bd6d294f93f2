# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/qwen3_moe.gguf --ids 1,2,3 -n 5 -q --expert-stats s.json >/dev/null
python3 -c "import json; d = json.load(open('s.json')); print(d['experts'], d['used'], [(l['layer'], l['tokens'], len(l['counts']), sum(l['counts'])) for l in d['layers']])"
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats s.json | cut -d: -f1
$SLUICE eval -m $TINY/qwen3_moe.gguf --ids 1,2,3,4 --dump-logits l --expert-stats e.json -q >/dev/null
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats e.json | cut -d: -f1
$SLUICE run -m $TINY/qwen3.gguf --ids 1,2,3 -n 5 -q --expert-stats d.json >/dev/null 2>&1 || echo dense $?
echo '{"used":2,"layers":[{"layer":0,"tokens":1,"counts":[1,-1]}]}' >bad.json
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats bad.json 2>&1 || echo bad $?
