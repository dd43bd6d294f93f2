#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the byte-level BPE: tokenizer.py WORK OUT_FOLDER writes OUT_FOLDER/tokenizer.json and
tokenizer_config.json.

4096 entries: 3 control tokens, 4080 byte-level pieces, 13 tokens of the chat form. The
pre-tokenizer is that of Qwen2 (GGUF name `qwen2`: every digit is a piece of its own, which makes
arithmetic learnable), with NFC before it.
"""
import glob
import json
import os
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, trainers)

VOCAB = 4096
CONTROL = ['<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>', '<｜▁pad▁｜>']
CHAT = [
    '<｜User｜>', '<｜Assistant｜>', '<think>', '</think>', '<｜tool▁calls▁begin｜>',
    '<｜tool▁calls▁end｜>', '<｜tool▁call▁begin｜>', '<｜tool▁call▁end｜>', '<｜tool▁sep｜>',
    '<｜tool▁outputs▁begin｜>', '<｜tool▁outputs▁end｜>', '<｜tool▁output▁begin｜>', '<｜tool▁output▁end｜>'
]
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| "
    r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+")


def texts(work):
    for f in sorted(glob.glob(os.path.join(work, 'text', '*.jsonl'))):
        for line in open(f, encoding='utf-8'):
            yield json.loads(line)['text']
    f = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bpe_sample.txt')
    sample = open(f, encoding='utf-8').read()
    for _ in range(200):
        yield sample


def main():
    work, out = sys.argv[1], sys.argv[2]
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB - len(CHAT),
        special_tokens=[AddedToken(x, special=True, normalized=False) for x in CONTROL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False)
    t.train_from_iterator(texts(work), trainer)
    t.add_tokens([AddedToken(x, special=False, normalized=False) for x in CHAT])
    assert t.get_vocab_size() == VOCAB, t.get_vocab_size()
    t.save(os.path.join(out, 'tokenizer.json'))
    here = os.path.dirname(os.path.abspath(__file__))
    config = {
        'add_bos_token': False,
        'add_eos_token': False,
        'bos_token': CONTROL[0],
        'eos_token': CONTROL[1],
        'pad_token': CONTROL[2],
        'unk_token': None,
        'clean_up_tokenization_spaces': False,
        'model_max_length': 2048,
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'chat_template': open(os.path.join(here, 'template.jinja'), encoding='utf-8').read()
    }
    with open(os.path.join(out, 'tokenizer_config.json'), 'w', encoding='utf-8') as f:
        json.dump(config, f, ensure_ascii=False, indent=2)
        f.write('\n')


if __name__ == '__main__':
    main()
