# SPDX-License-Identifier: Apache-2.0
unset SLUICE_QUIET
$SLUICE run -m $TINY/qwen3_moe.gguf --ids 1,2,3 -n 5 -q --expert-stats s.json >/dev/null
python3 -c "
import json
d = json.load(open('s.json'))
print(d['experts'], d['used'],
      [(l['layer'], l['tokens'], len(l['counts']), sum(l['counts'])) for l in d['layers']])"
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats s.json | cut -d: -f1
$SLUICE eval -m $TINY/qwen3_moe.gguf --ids 1,2,3,4 --dump-logits l --expert-stats e.json \
    -q >/dev/null
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats e.json | cut -d: -f1
$SLUICE run -m $TINY/qwen3.gguf --ids 1,2,3 -n 5 -q --expert-stats d.json >/dev/null 2>&1 ||
    echo dense $?
echo '{"experts":2,"used":2,"layers":[{"layer":0,"tokens":1,"counts":[1,-1]}]}' >bad.json
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats bad.json 2>&1 || echo bad $?
# another model's: by its numbers, and by its layers
$SLUICE inspect $TINY/q_moe.gguf --experts --expert-stats s.json 2>&1 >/dev/null
sed 's/"layer":1/"layer":2/' s.json >bad.json
$SLUICE inspect $TINY/qwen3_moe.gguf --experts --expert-stats bad.json 2>&1 >/dev/null
# as many tokens again: what was there counts half
cp s.json t.json
$SLUICE run -m $TINY/qwen3_moe.gguf --ids 1,2,3 -n 5 -q --expert-stats t.json \
    --expert-half-life 7 >/dev/null
python3 -c "
import json
a, b = (json.load(open(f)) for f in ('s.json', 't.json'))
print([y == x + (x + 1) // 2 for p, q in zip(a['layers'], b['layers'])
       for x, y in zip(p['counts'], q['counts'])].count(False))"
echo '{"experts":2,"used":2,"layers":[]}' >bad.json
$SLUICE run -m $TINY/qwen3_moe.gguf --ids 1 -n 1 -q --expert-stats bad.json \
    --expert-half-life 7 2>&1 >/dev/null || echo other $?
$SLUICE plan -m $TINY/qwen3_moe --hardware "910b4" --input 64 --output 64 --expert-stats s.json \
    --top 1 >/dev/null && echo planned
$SLUICE plan -m $TINY/qwen3 --hardware "910b4" --input 64 --output 64 \
    --expert-stats s.json 2>&1 >/dev/null | sed 's/.*contradiction/contradiction/'
