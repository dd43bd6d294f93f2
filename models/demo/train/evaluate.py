#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure a model, a checkpoint or a GGUF file, in float32 on its rounded weights.

  evaluate.py MODEL FOLDER --heldout      bits per byte on FOLDER/heldout.txt (window 1024, stride
                                          512), beside xz -9e
  evaluate.py MODEL FOLDER --exam FILE    right answers per kind of question of chat.py's exam.jsonl
  evaluate.py MODEL FOLDER --mtp          how often the MTP layer's draft is the main model's next
                                          token
  evaluate.py MODEL FOLDER --ask TEXT [--think]
FOLDER holds tokenizer.json.
"""
import argparse
import collections
import json
import lzma
import math
import os

import torch
from tokenizers import Tokenizer

from gguf_io import load

BOS, EOS = 0, 1


@torch.no_grad()
def bits(model, ids, ctx=1024, stride=512):
    """Bits that the ids after the first take, each scored once with between ctx - stride and ctx -
    1 tokens before it (fewer at the beginning)."""
    total, done = 0.0, 1
    for start in range(0, len(ids), stride):
        w = torch.tensor([ids[start:start + ctx]])
        if start + w.shape[1] <= done:
            break
        lp = torch.log_softmax(model.logits(model(w[:, :-1])[0]), -1)
        first = done - start
        total -= lp[first - 1:].gather(1, w[0, first:, None]).sum().item()
        done = start + w.shape[1]
    assert done == len(ids)
    return total / math.log(2)


def heldout(model, tok, folder):
    raw = open(os.path.join(folder, 'heldout.txt'), 'rb').read()
    ids = [BOS] + tok.encode(raw.decode()).ids
    packed = lzma.compress(raw, format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
    return dict(bytes=len(raw),
                tokens=len(ids) - 1,
                model_bits_per_byte=round(bits(model, ids) / len(raw), 4),
                xz_bits_per_byte=round(8 * len(packed) / len(raw), 4))


def exam(model, tok, path, limit):
    right, n, wrong = collections.Counter(), collections.Counter(), []
    rows = [json.loads(x) for x in open(path, encoding='utf-8')]
    step = max(1, len(rows) // limit)
    for r in rows[::step]:
        out = model.generate(tok.encode(r['prompt']).ids, 140, EOS)
        got = tok.decode(out[:-1] if out[-1] == EOS else out, skip_special_tokens=False)
        got = got.split('</think>')[-1]
        kind = r['kind']
        n[kind] += 1
        if got == r['answer']:
            right[kind] += 1
        else:
            wrong.append((kind, r['prompt'].split('<｜User｜>')[-1], got, r['answer']))
    return right, n, wrong


@torch.no_grad()
def mtp_rate(model, tok, path):
    """Share of positions in the assistant's text of exam answers where the draft equals the main
    model's choice."""
    hit = n = 0
    for r in [json.loads(x) for x in open(path, encoding='utf-8')][::7]:
        head = tok.encode(r['prompt']).ids
        ids = torch.tensor([head + tok.encode(r['answer']).ids + [EOS]])
        h = model(ids)
        main = model.logits(h[0]).argmax(-1)
        draft = model.logits(model.draft(h[:, :-1], ids[:, 1:])[0]).argmax(-1)
        lo = len(head) - 1
        hit += (draft[lo:-1] == main[lo + 1:-1]).sum().item()
        n += len(draft[lo:-1])
    return hit / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('model')
    ap.add_argument('folder')
    ap.add_argument('--heldout', action='store_true')
    ap.add_argument('--exam')
    ap.add_argument('--limit', type=int, default=10**9)
    ap.add_argument('--mtp')
    ap.add_argument('--ask')
    ap.add_argument('--think', action='store_true')
    ap.add_argument('--threads', type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    model = load(a.model)
    tok = Tokenizer.from_file(os.path.join(a.folder, 'tokenizer.json'))
    if a.heldout:
        print(json.dumps(heldout(model, tok, a.folder)))
    if a.exam:
        right, n, wrong = exam(model, tok, a.exam, a.limit)
        for w in wrong:
            print(*w, sep=' | ')
        for k in sorted(n, key=lambda k: right[k] / n[k]):
            print(f'{right[k]}/{n[k]} {k}')
        print('total', sum(right.values()), 'of', sum(n.values()))
    if a.mtp:
        print('mtp', round(mtp_rate(model, tok, a.mtp), 4))
    if a.ask:
        p = f'<｜begin▁of▁sentence｜><｜User｜>{a.ask}<｜Assistant｜>' + ('<think>'
                                                                    if a.think else '</think>')
        print(tok.decode(model.generate(tok.encode(p).ids, 200, EOS), skip_special_tokens=False))


if __name__ == '__main__':
    main()
