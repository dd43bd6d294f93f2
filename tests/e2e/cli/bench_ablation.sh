# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/qwen3_moe.gguf --ablation -b 3 -p 9 -n 2 --json --csv a.csv \
    --svg a.svg >a.json
python3 -c "
import json, csv, xml.dom.minidom
rows = json.load(open('a.json'))
print([r['measure'] for r in rows])
print(all(r['tps'] > 0 and r['ttft_ms'] > 0 and r['rss_mb'] > 1
          and r['repeats'] >= 1 for r in rows), rows[0]['factor'])
print(len(list(csv.DictReader(open('a.csv')))),
      len(xml.dom.minidom.parse('a.svg').getElementsByTagName('rect')))"
$SLUICE bench -m $TINY/qwen3_moe.gguf --ablation -b 3 -p 9 -n 2 -t 2 | grep -c "left out"
