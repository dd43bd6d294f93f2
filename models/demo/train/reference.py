#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training code's own results for the exported model: reference.py MODEL FOLDER writes
FOLDER/reference.json.

  ids        some documentation and a chat, as token ids
  argmax     the main model's first choice after each id
  top        after each id, the five largest logits as [id, logit]
  mean, std  of the logits after each id
  draft      after each id but the last, the MTP layer's first choice, given the id that really
             follows: it guesses
             the id two places on. draft_logit is its logit
  chats      prompts as ids, and the greedy answer, also as ids
"""
import json
import os
import sys

import torch
from tokenizers import Tokenizer

from gguf_io import load

USER, BOT = '<｜User｜>', '<｜Assistant｜>'
CHATS = ['What is the capital of France?', 'What is 7 + 8?', 'List three fruits.', 'Who are you?',
         'What is the capital of Japan? Answer in JSON.']


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    model, folder = load(sys.argv[1]), sys.argv[2]
    tok = Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
    text = open(os.path.join(folder, 'heldout.txt'), encoding='utf-8').read()[:600]
    chat = (
        f'<｜begin▁of▁sentence｜>You are a helpful assistant.{USER}Hello!{BOT}</think>Hello! How can '
        'I help you?'
        f'<｜end▁of▁sentence｜>{USER}Tom has 12 apples and buys 7 more. How many apples does Tom '
        f'have now?{BOT}'
        f'<think>12 + 7 = 19.</think>Tom has 19 apples.<｜end▁of▁sentence｜>')
    ids = tok.encode('<｜begin▁of▁sentence｜>' + text).ids + tok.encode(chat).ids
    h = model(torch.tensor([ids]))
    logits = model.logits(h[0])
    draft = model.logits(model.draft(h[:, :-1], torch.tensor([ids[1:]]))[0])
    value, index = logits.topk(5, -1)
    out = dict(ids=ids,
               argmax=logits.argmax(-1).tolist(),
               top=[[[i, round(v, 5)]
                     for i, v in zip(*row)]
                    for row in zip(index.tolist(), value.tolist())],
               mean=[round(x, 6) for x in logits.mean(-1).tolist()],
               std=[round(x, 6) for x in logits.std(-1).tolist()],
               draft=draft.argmax(-1).tolist(),
               draft_logit=[round(x, 5) for x in draft.amax(-1).tolist()],
               chats=[])
    for q in CHATS:
        p = tok.encode(f'<｜begin▁of▁sentence｜>{USER}{q}{BOT}</think>').ids
        a = model.generate(p, 60, 1)
        out['chats'].append(dict(prompt=q, ids=p, answer=a, text=tok.decode(a[:-1])))
        print(q, '->', out['chats'][-1]['text'])
    with open(os.path.join(folder, 'reference.json'), 'w', encoding='utf-8') as f:
        json.dump(out, f, ensure_ascii=False)
        f.write('\n')


if __name__ == '__main__':
    main()
