# SPDX-License-Identifier: Apache-2.0
$SLUICE run -m $TINY/qwen3 --ids 5,6,7 -n 24 --acts f32 --ignore-eos --json > a
python3 - > stop <<EOF
import json
t = json.load(open("a"))["text"]
i = next(i for i in range(3, len(t)) if 0x20 < ord(t[i]) < 0x7f)
print(t[i], end="")
EOF
$SLUICE run -m $TINY/qwen3 --ids 5,6,7 -n 24 --acts f32 --ignore-eos --json --stop "$(cat stop)" > b
python3 -c "
import json
a, b, s = json.load(open(\"a\")), json.load(open(\"b\")), open(\"stop\").read()
print(b[\"finish_reason\"], b[\"text\"] == a[\"text\"].split(s)[0])"
