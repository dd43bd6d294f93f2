#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything from nothing: packages, text, tokenizer, conversations, training, export, figures.
#   models/demo/train/run.sh --until 23:50    the schedule ends at that time (UTC)
#   models/demo/train/run.sh --steps 2200     or after that many steps
#   models/demo/train/run.sh --steps 500 --init models/demo/demo.gguf
#                                               goes on from an exported model
# Needs Debian or Ubuntu (apt-get download, dpkg), Python 3.10 or newer with venv. What it makes
# lies in models/demo/train/work, and the results in models/demo. Started again, it continues from
# the last checkpoint.
set -eu
cd "$(dirname "$0")"
work=$PWD/work
out=$(cd .. && pwd)
mkdir -p "$work"
py=${DEMO_PYTHON:-}
if [ -z "$py" ]; then
    [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
    py=$work/venv/bin/python
    "$py" -m pip install -q --disable-pip-version-check -r requirements.txt
fi
[ -s "$work/corpus.json" ] || "$py" corpus.py "$work"
cp "$work/heldout.txt" "$out/heldout.txt"
"$py" tokenizer.py "$work" "$out"
[ -s "$work/chat.jsonl" ] || "$py" chat.py "$work" 120000
"$py" check_template.py "$work"
[ -s "$work/chat.bin" ] || "$py" tokens.py "$work" "$out"
"$py" train.py "$work" "$@"
"$py" gguf_io.py "$work/checkpoint.pt" "$out" "$out/demo.gguf"
"$py" reference.py "$out/demo.gguf" "$out"
"$py" plot.py "$work/log.jsonl" "$out/loss.svg"
"$py" evaluate.py "$out/demo.gguf" "$out" --heldout --exam "$work/exam.jsonl" \
    --mtp "$work/exam.jsonl"
