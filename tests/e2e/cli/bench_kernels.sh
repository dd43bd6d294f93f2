# SPDX-License-Identifier: Apache-2.0
$SLUICE bench --kernels q4_0 --json --csv k.csv --svg k.svg >k.json
python3 -c "
import json, csv, xml.dom.minidom
rows = json.load(open('k.json'))
print(sorted({(r['type'], r['use']) for r in rows}),
      [r['columns'] for r in rows if r['use'] == 'dense'])
print(all(r['gbps'] > 0 and r['gops'] > 0 and r['probe_gbps'] > 0
          and r['probe_gops'] > 0 for r in rows))
print(len(list(csv.DictReader(open('k.csv')))),
      len(xml.dom.minidom.parse('k.svg').getElementsByTagName('rect')))"
$SLUICE bench --kernels q4_9 || echo $?
