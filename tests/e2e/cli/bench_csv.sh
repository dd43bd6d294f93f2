# SPDX-License-Identifier: Apache-2.0
$SLUICE bench -m $TINY/qwen3 -p 8 -n 2 -r 1 --csv a.csv --json -q >a.json
python3 -c "
import csv, json
rows, same = list(csv.DictReader(open('a.csv'))), json.load(open('a.json'))
print([(r['test'], r['gbps'] == '') for r in rows], list(rows[0]) == list(same[0]))
print(all(a[k] == ('' if v is None else str(v)) or float(a[k]) == float(v)
          for a, b in zip(rows, same) for k, v in b.items()))"
