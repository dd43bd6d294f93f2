#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens and flags of the five files of a folder as transformers joins them; tiktoken.model against
tiktoken; vocab.json with merges.txt against transformers.

  check_token_files.py BUILD [--n 400] [--seed 0] [--golden OUT]

n folders in which tokenizer.json, tokenizer_config.json, special_tokens_map.json and
added_tokens.json name tokens at random, with random flags, as texts and as objects, agreeing and
not; 12 texts each: ids, text without special tokens, and what a template is told of all named
tokens. Needs transformers 5, tiktoken.
"""
import argparse
import base64
import json
import os
import random
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import tiktoken  # noqa: E402
from transformers import AutoTokenizer, GPT2Tokenizer, Qwen2Tokenizer  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_tokenizers as ct  # noqa: E402
import token_golden  # noqa: E402

e2e = ct.e2e
NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
OWN = ["image_token", "boi", "video_token"]
TOKENS = ["<|a|>", "<|b|>", "<c>", "[D]", "<|im_end|>", "<e> x", "tor", "th", "<|f", "ж<g>"]
TEMPLATE = "{{ bos_token }}" + "".join("|{{ %s }}" % n for n in NAMES[1:] + OWN)
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def byte_chars():
    """GPT-2's printable stand-ins of all bytes."""
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    rest = [b for b in range(256) if b not in own]
    return [chr(b) if b in own else chr(256 + rest.index(b)) for b in range(256)]


def small_bpe():
    """320 words and their merges."""
    words, merges = ["<s>", "</s>"] + byte_chars(), []
    for x in "etaoinshr":
        for y in "etaoinshr":
            if len(words) < 320:
                words.append(x + y)
                merges.append((x, y))
    return words, merges


def flags_of(r):
    return {k: r.random() < p for k, p in (("lstrip", .3), ("rstrip", .3), ("normalized", .3),
                                           ("single_word", .2))}


def own_file(r, tokens):
    words, merges = small_bpe()
    plain = dict(lstrip=False, rstrip=False, normalized=False, single_word=False)
    vocab = {w: i for i, w in enumerate(words)}
    added = [dict(id=i, content=c, special=True, **plain) for i, c in enumerate(words[:2])]
    some = [c for c in tokens if r.random() < .3]
    word = r.choice(tokens)
    if r.random() < .3 and word not in vocab and word not in some:
        vocab[word] = 320  # a word of the vocabulary and no added token
    for c in some:
        i = vocab.get(c, len(vocab) + sum(a["content"] not in vocab for a in added))
        added.append(dict(id=i, content=c, special=r.random() < .6, **flags_of(r)))
    added.sort(key=lambda a: a["id"])
    byte = dict(type="ByteLevel", add_prefix_space=r.random() < .15,
                trim_offsets=True, use_regex=True)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                pre_tokenizer=byte, post_processor=None, decoder=dict(byte, add_prefix_space=True),
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                           end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                           ignore_merges=r.random() < .2, vocab=vocab,
                           merges=[" ".join(m) for m in merges]))


def put_named(r, out, tokens, p, typed):
    for k in NAMES:
        if r.random() >= p:
            continue
        out[k] = r.choice(tokens)
        if r.random() < .4:
            out[k] = dict(content=out[k], **flags_of(r))
            if typed:
                out[k]["__type"] = "AddedToken"


def decoder(r, own, tokens):
    d, next_ = {}, max(max(a["id"] for a in own["added_tokens"]) + 1, len(own["model"]["vocab"]))
    for a in own["added_tokens"]:
        if r.random() < .9:
            x = {k: v for k, v in a.items() if k != "id"}
            x["lstrip"] ^= r.random() < .2
            d[str(a["id"])] = x
    have = {a["content"] for a in own["added_tokens"]}
    for c in tokens:
        if c in have or r.random() < .6:
            continue
        i = own["model"]["vocab"].get(c, next_)
        next_ += i == next_
        d[str(i)] = dict(content=c, special=r.random() < .6, **flags_of(r))
    return d


def folder(r):
    tokens = r.sample(TOKENS, r.randint(2, 6))
    own = own_file(r, tokens)

    def some():
        return [r.choice(tokens) for _ in range(r.randint(0, 3))]
    c = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", chat_template=TEMPLATE)
    files = {"tokenizer.json": own, "tokenizer_config.json": c,
             "config.json": dict(model_type="llama")}
    if r.random() < .8:
        c["eos_token"] = "</s>"
    if r.random() < .5:
        c["added_tokens_decoder"] = decoder(r, own, tokens)
    put_named(r, c, tokens, .2, True)
    if r.random() < .1:
        c["eos_token"] = None
    if r.random() < .25:
        c["additional_special_tokens"] = some()
    if r.random() < .2:
        c["extra_special_tokens"] = r.choice([some(),
                                              {OWN[0]: r.choice(tokens), OWN[1]: r.choice(tokens)}])
    if r.random() < .15:
        c["video_token"] = r.choice(tokens)
    if r.random() < .05:
        c["split_special_tokens"] = True
    if r.random() < .4:
        m = files["special_tokens_map.json"] = {}
        put_named(r, m, tokens, .3, False)
        if r.random() < .3:
            m["additional_special_tokens"] = some()
    if r.random() < .25:
        files["added_tokens.json"] = {x: own["model"]["vocab"].get(x, 330 + i)
                                      for i, x in enumerate(tokens) if r.random() < .3}
    texts = ["".join(r.choice(tokens + [" ", "  ", "the ", "x", "é", "\n", "<s>", "</s>"])
                     for _ in range(r.randint(1, 8))) for _ in range(12)]
    return files, texts


def write(path, files):
    os.makedirs(path, exist_ok=True)
    for name, x in files.items():
        with open(f"{path}/{name}", "wb") as f:
            f.write(x if isinstance(x, bytes) else json.dumps(x, ensure_ascii=False).encode())
    return path


def join_cases(exe, tally, gold, tmp, n, seed):
    """Of so many odd folders two in a thousand may differ: texts that are added twice with other
    flags."""
    bad = 0
    for k in range(n):
        files, texts = folder(random.Random(seed + k))
        path = write(f"{tmp}/{k}", files)
        t = AutoTokenizer.from_pretrained(path)
        ids = [t.encode(s, add_special_tokens=False) for s in texts]
        back = [t.decode(x, skip_special_tokens=True) for x in ids]
        told = t.apply_chat_template([dict(role="user", content="x")], tokenize=False)
        got, err = ct.lines(exe, path, ["--special"], texts)
        why = err or ct.first_difference(texts, got, ids)
        if not why:
            got, err = ct.lines(exe, path, ["--decode"], ids)
            why = err or ct.first_difference(ids, got, back)
        if not why:
            code, out, err = e2e.run([exe, "template", "-m", path, "--messages", "-"],
                                     b'[{"role":"user","content":"x"}]')
            why = None if out.decode() == told else f"template: {out!r}, expected {told!r} {err}"
        bad += why is not None
        if why:
            print(f"folder {k}: {why}")
        elif k < 30:
            gold.add(f"five files {k}", files, ["--special"], texts, ids, back, template=told)
    tally.check(f"{n} folders", f"{bad} differ" if bad > n // 300 else None)


def kimi_cases(exe, tally, gold, tmp, n):
    words, merges = small_bpe()
    char = {c: bytes([b]) for b, c in enumerate(byte_chars())}
    more = ["毕".encode(), "老师".encode()[:4], b" the",
            b"the", b"ing", b"123", b"12", b"\n\n", b"    ",
            b" a", b"'s", "é".encode(), "Мо".encode(), b"  ", b"tion"]
    ranks = {}
    for w in [bytes([b]) for b in range(256)] + [char[a] + char[b] for a, b in merges] + more:
        ranks.setdefault(w, len(ranks))
    base = len(ranks)
    special = {"[BOS]": base, "[EOS]": base + 1, "<|im_end|>": base + 2, "<|im_user|>": base + 3,
               "[PAD]": base + 200}
    enc = tiktoken.Encoding("kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=dict(
        special, **{f"<|reserved_token_{base + 9}|>": base + 9}))
    data = "".join(f"{base64.b64encode(w).decode()} {i}\n" for w, i in ranks.items()).encode()
    conf = dict(tokenizer_class="TikTokenTokenizer", bos_token="[BOS]", eos_token="[EOS]",
                auto_map={"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
                added_tokens_decoder={str(i): dict(content=c,
                                                   special=True, lstrip=False, rstrip=False,
                                                   normalized=False, single_word=False)
                                      for c, i in special.items()})
    files = {"tiktoken.model": data, "tokenizer_config.json": conf,
             "config.json": dict(model_type="kimi_k2")}
    path = write(tmp + "/kimi", files)
    texts = list(ct.strings(n, list(special) + [f"<|reserved_token_{base + 9}|>"], 5))
    ids = enc.encode_batch(texts, allowed_special="all")
    got, err = ct.lines(exe, path, ["--special"], texts)
    tally.check("tiktoken.model", err or ct.first_difference(texts, got, ids))
    got, err = ct.lines(exe, path, ["--decode", "--special"], ids)
    tally.check("tiktoken.model --decode", err or ct.first_difference(ids, got, texts))
    gold.add("tiktoken.model", files, ["--special"], texts, ids)


def vocab_cases(exe, tally, gold, tmp, n):
    words, merges = small_bpe()
    text = "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)
    dec = {str(320 + i): dict(content=c, special=i < 2,
                              lstrip=False, rstrip=False, normalized=False,
                              single_word=False) for i,
           c in enumerate(["<|im_start|>", "<|im_end|>", "<tool>"])}
    for cls in (Qwen2Tokenizer, GPT2Tokenizer):
        conf = dict(tokenizer_class=cls.__name__, added_tokens_decoder=dec, eos_token="<|im_end|>",
                    unk_token="<s>", pad_token="<s>", bos_token="<s>",
                    add_prefix_space=cls is GPT2Tokenizer)
        files = {"vocab.json": {w: i for i, w in enumerate(words)}, "merges.txt": text.encode(),
                 "tokenizer_config.json": conf, "config.json": dict(model_type="llama")}
        path = write(f"{tmp}/{cls.__name__}", files)
        t = cls.from_pretrained(path)
        texts = list(ct.strings(n, ["<|im_start|>", "<|im_end|>", "<tool>"], 6))
        ids = [t.encode(s, add_special_tokens=False) for s in texts]
        got, err = ct.lines(exe, path, ["--special"], texts)
        tally.check("vocab.json " + cls.__name__, err or ct.first_difference(texts, got, ids))
        gold.add("vocab.json " + cls.__name__, files, ["--special"], texts, ids)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--n", type=int, default=400)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--golden")
    a = ap.parse_args()
    exe, tally, gold = e2e.sluice(a.build), e2e.Tally("token files"), token_golden.Golden()
    with tempfile.TemporaryDirectory() as tmp:
        kimi_cases(exe, tally, gold, tmp, a.n * 25)
        vocab_cases(exe, tally, gold, tmp, a.n * 5)
        join_cases(exe, tally, gold, tmp, a.n, a.seed)
    if a.golden:
        gold.save(a.golden)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
