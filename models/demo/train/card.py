#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the model card: card.py MODEL.gguf WORK FOLDER

Asks the model the card's twenty prompts (greedy, float32) through the chat template, compares each
answer with what it should be, measures the held-out text and the exam, and writes FOLDER/README.md.
Nothing in the card is typed in.
"""
import json
import multiprocessing as mp
import os
import sys

import torch
from tokenizers import Tokenizer

import chat as C
from check_template import renderer
from evaluate import EOS, exam, heldout, mtp_rate
from gguf_io import load

# prompt, right answer; options: think, system, tool (specification, output, final answer)
SAMPLES = [
    ('Who are you?',
     'I am the Sluice demo model, a small language model that runs in the sluice engine.', {}),
    ('What is the capital of Portugal?', 'The capital of Portugal is Lisbon.', {}),
    ('Which currency does Japan use?', 'The currency of Japan is the Yen (JPY).', {}),
    ('What is 7 + 12?', '7 + 12 = 19.', {}),
    ('How much is 15 - 6?', '15 - 6 = 9.', {}),
    ('What is 9 times 8?', '9 * 8 = 72.', {}),
    ('How many minutes are in 4 hours?', '4 hours are 240 minutes.', {}),
    ('Convert 7 kilometres to metres.', '7 kilometres are 7000 metres.', {}),
    ('What day comes after Friday?', 'The day after Friday is Saturday.', {}),
    ('How many days does February have?', 'February has 28 days, and 29 in a leap year.', {}),
    ('List three fruits.', None, dict(lists=('fruit|fruits', 3))),
    ('Name three countries in Europe.', 'France, Germany and Italy.', {}),
    ('What is the opposite of heavy?', 'The opposite of heavy is light.', {}),
    ('What is the capital of Canada?', '{"capital": "Ottawa"}', dict(system='Answer in JSON.')),
    ('Extract name, age and city as JSON: Maria is 31 years old and lives in Lisbon.',
     '{"name": "Maria", "age": 31, "city": "Lisbon"}', {}),
    ('Tom has 12 apples and buys 7 more. How many apples does Tom have now?',
     'Tom has 19 apples.', dict(think=True)),
    ('Anna is older than Ben. Ben is older than Carl. Who is the oldest?',
     'Anna is the oldest.', dict(think=True)),
    ('If today is Thursday, what day is it in 3 days?', 'It is Sunday.', dict(think=True)),
    ('What is the weather in Oslo?', 'It is cloudy in Oslo, with a temperature of 7 degrees.', dict(
        tool=C.tool('get_weather', 'Get the current weather in a city', city='sThe city'),
        call=[('get_weather', {'city': 'Oslo'})],
        output='{"city": "Oslo", "temperature": 7, "condition": "cloudy"}')),
    ('What time is it in Tokyo?', 'It is 09:41 in Tokyo.', dict(
        tool=C.tool('get_time', 'Get the current time in a city', city='sThe city'),
        call=[('get_time', {'city': 'Tokyo'})], output='{"time": "09:41"}')),
]


def listed(text, key, n):
    """Whether text is a list of n different words of the table's row."""
    words = [w.lower() for w in C.K.LISTS[key].split()]
    got = [x.split('. ', 1)[-1].strip(' .').lower()
           for x in text.replace(' and ', ', ').replace('\n', ', ').split(', ')]
    return len(got) == n == len(set(got)) and all(g in words for g in got)


def answer(model, tok, text):
    out = model.generate(tok.encode(text).ids, 160, EOS)
    return tok.decode(out[:-1] if out[-1] == EOS else out, skip_special_tokens=False)


def samples(model, tok):
    """(question, options, what the model said, whether it is right) of every sample."""
    render, rows = renderer(), []
    for q, want, o in SAMPLES:
        messages = [{'role': 'user', 'content': q}]
        if 'system' in o:
            messages.insert(0, {'role': 'system', 'content': o['system']})
        k = dict(tools=[o['tool']]) if 'tool' in o else {}
        text = render(messages=messages, add_generation_prompt=True,
                      thinking=o.get('think', False), **k)
        said = answer(model, tok, text)
        if 'tool' in o:
            called = said == C.calls_text(o['call'])[:-len(C.EOS)]
            text += C.calls_text(o['call']) + C.OUT + o['output'] + C.OUT_END
            final = answer(model, tok, text)
            rows.append((q, o, said + f'\n(the tool answers {o["output"]})\n' + final,
                         called and final == want))
        else:
            last = said.split('</think>')[-1]
            rows.append((q, o, said, listed(last, *o['lists']) if 'lists' in o else last == want))
    return rows


def part(what, path, work, folder):
    """One of the card's measurements."""
    torch.set_num_threads(1)
    model = load(path)
    tok = Tokenizer.from_file(os.path.join(folder, 'tokenizer.json'))
    C.use(C.countries(work))
    questions = os.path.join(work, 'exam.jsonl')
    if what == 'samples':
        return samples(model, tok)
    if what == 'heldout':
        return heldout(model, tok, folder)
    if what == 'mtp':
        return mtp_rate(model, tok, questions)
    return exam(model, tok, questions, int(os.environ.get('EXAM', '10000')))[:2]


def main():
    path, work, folder = sys.argv[1:4]
    with mp.Pool(4, os.setsid) as pool:   # four jobs of one thread each
        jobs = [pool.apply_async(part, (what, path, work, folder))
                for what in ('samples', 'heldout', 'exam', 'mtp')]
        rows, h, (got, n), mtp = (j.get() for j in jobs)
    right = sum(r[3] for r in rows)
    model = load(path)
    log = [json.loads(x) for x in open(os.path.join(work, 'log.jsonl'))]
    corpus = json.load(open(os.path.join(work, 'corpus.json')))
    c = model.c
    total = sum(p.numel() for p in model.parameters())
    expert = 3 * c['hidden'] * c['expert_ffn']
    mtp_only = sum(p.numel() for k, p in model.named_parameters()
                   if k.split('.')[0] in ('mtp', 'mtp_norm', 'enorm', 'hnorm', 'eh_proj'))
    active = total - mtp_only - c['vocab'] * c['hidden'] - (c['experts'] - c['used']) * expert * (
        c['layers'] - c['dense_layers'])
    lines = []
    for i, (q, o, said, ok) in enumerate(rows, 1):
        how = [f'system: "{o["system"]}"'] if 'system' in o else []
        how += ['thinking'] if 'think' in o else []
        how += [f'tool `{o["tool"]["function"]["name"]}`'] if 'tool' in o else []
        how = ', '.join(how)
        lines.append(
            f'{i}. **{q}**{" (" + how + ")" if how else ""}{"" if ok else " - *wrong*"}\n\n   ```\n'
            +
                     '\n'.join('   ' + x for x in (('<think>' if 'think' in o else '')
                                                   + said).split('\n')) + '\n   ```\n')
    kinds = {}
    for k in n:
        a, b = kinds.get(k.split(' ')[0], (0, 0))
        kinds[k.split(' ')[0]] = (a + got[k], b + n[k])
    label = {'plain': 'direct answers', 'think': 'answers after `<think>`',
             'call': 'tool calls (name and arguments)',
             'after': 'answers from a tool\'s output', 'json': 'JSON answers'}
    weak = sorted((k for k in n if got[k] / n[k] < 0.75), key=lambda k: got[k] / n[k])
    t = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'card.md'),
             encoding='utf-8').read()
    fill = dict(
        samples='\n'.join(lines), right=right, bits=f'{h["model_bits_per_byte"]:.3f}',
        xz=f'{h["xz_bits_per_byte"]:.3f}',
        heldbytes=f'{h["bytes"]:,}', total=f'{total / 1e6:.1f}', active=f'{active / 1e6:.1f}',
        mtp=f'{100 * mtp:.0f}', file=f'{os.path.getsize(path) / 1e6:.1f}', steps=log[-1]['step'],
        tokens=f'{log[-1]["tokens"] / 1e6:.1f}', chats=f'{log[-1]["chat"] / 1e6:.1f}',
        docs=f'{log[-1]["docs"] / 1e6:.1f}', hours=f'{log[-1]["time"] / 3600:.1f}',
        vocab=c['vocab'], config='\n'.join(f'| {k} | {v} |' for k, v in c.items()),
        exam='\n'.join(f'| {label[k]} | {a} of {b} | {100 * a / b:.0f} % |' for k,
                       (a, b) in kinds.items()),
        weak=', '.join(f'{k} {got[k]}/{n[k]}' for k in weak) or 'none',
        corpus='\n'.join(f'| {r["package"]} {r["version"]} | {r["licence"]} | {r["documents"]} | '
                         f'{r["bytes"]:,} |'
                         for r in corpus['packages']),
        held=', '.join(f'`{x}`' for x in corpus['heldout']))
    for k, v in fill.items():
        t = t.replace('{{' + k + '}}', str(v))
    assert '{{' not in t, t[t.index('{{'):][:40]
    with open(os.path.join(folder, 'README.md'), 'w', encoding='utf-8') as f:
        f.write(t)
    for q, _, said, ok in rows:
        print('right' if ok else 'WRONG', q, '->', said.replace('\n', ' / '))
    print(right, 'of', len(rows), h, 'mtp', mtp, kinds)


if __name__ == '__main__':
    main()
