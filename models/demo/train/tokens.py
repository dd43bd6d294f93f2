#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Texts to token files: tokens.py WORK TOKENIZER_FOLDER

Writes WORK/docs.bin (uint16; each document is BOS text EOS) and, when chat.py's WORK/chat.jsonl is
there, WORK/chat.bin with WORK/chat.mask (1 where the assistant speaks, and so where the loss counts
in full).
"""
import glob
import json
import os
import random
import sys

import numpy as np
from tokenizers import Tokenizer


def main():
    work, folder = sys.argv[1], sys.argv[2]
    tok = Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
    if '--chat-only' not in sys.argv:
        docs = []
        for f in sorted(glob.glob(os.path.join(work, 'text', '*.jsonl'))):
            docs += [json.loads(x)['text'] for x in open(f, encoding='utf-8')]
        random.Random(1).shuffle(docs)
        out = []
        for d in docs:
            out += [np.array([0] + tok.encode(d).ids + [1], np.uint16)]
        out = np.concatenate(out)
        out.tofile(os.path.join(work, 'docs.bin'))
        print('docs', len(out))
    path = os.path.join(work, 'chat.jsonl')
    if os.path.exists(path):
        parts, masks = [], []
        lines = open(path, encoding='utf-8').read().split('\n')
        for i in range(0, len(lines), 20000):
            rows = [json.loads(x) for x in lines[i:i + 20000] if x]
            flat = [(text, on) for r in rows for text, on in r]
            for e, (_, on) in zip(tok.encode_batch([t for t, _ in flat]), flat):
                parts.append(np.array(e.ids, np.uint16))
                masks.append(np.full(len(e.ids), on, np.uint8))
        np.concatenate(parts).tofile(os.path.join(work, 'chat.bin.new'))
        np.concatenate(masks).tofile(os.path.join(work, 'chat.mask'))
        os.replace(os.path.join(work, 'chat.bin.new'), os.path.join(work, 'chat.bin'))
        print('chat', sum(map(len, parts)))


if __name__ == '__main__':
    main()
