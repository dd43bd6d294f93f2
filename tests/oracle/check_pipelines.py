#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers drawn at random against the `tokenizers` package: ids, and back to text.

  check_pipelines.py [BUILD] [--number 2000] [--seed 1]

Vocabulary and merges, normalizers, pre_tokenizers, decoders, added tokens and their flags, of code
points (SentencePiece's kind) or of bytes, in what docs/formats.md says is read; 60 texts for each.
What is refused is counted by reason. What fails is said with its number, which draws it again:
--seed S --only K. Needs tokenizers.
"""
import argparse
import collections
import json
import os
import random
import sys

from tokenizers import Tokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import e2e  # noqa: E402

MARK = "▁"
LETTERS = list("abcxé12 \n▁<")
SCHEMES = ["first", "always", "never"]
SPECIAL = ["<unk>", "<s>", "</s>"]
RULES = [r"\p{N}{1,3}", r"\s+(?!\S)|\s+", r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+", r"\r?\n",
         "[ab]c"]


def byte_chars():
    """GPT-2's letters for bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(other)}}


BYTE = byte_chars()


def replace(a, b):
    return {"type": "Replace", "pattern": {"String": a}, "content": b}


def metaspace(r):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": r.choice(SCHEMES),
            "split": r.random() < .5}


def words(r, of_bytes, byte_fallback):
    known, merges = list(BYTE.values()) if of_bytes else list(dict.fromkeys(LETTERS)), []
    often = [BYTE[b] for s in LETTERS for b in s.encode()] if of_bytes else known
    for _ in range(60):
        a, b = (r.choice(often + known[len(BYTE):] if of_bytes else known) for _ in "ab")
        if len(a + b) <= 6 and a + b not in known:
            known.append(a + b)
            merges.append([a, b])
    more = [f"<0x{i:02X}>" for i in range(256)] if byte_fallback else []
    return {w: i for i, w in enumerate(SPECIAL + more + known)}, merges


def normalizer(r):
    kinds = [
        lambda: {"type": "Prepend", "prepend": r.choice([MARK, " ", "x", MARK * 2, "  ", "a "])},
        lambda: replace(" ", MARK),
        lambda: replace(*r.choice([("a", "b"), ("  ", " "), (MARK, " "), ("ab", MARK),
                                   ("\n", " "), ("b", ""), ("x", "12")])),
        lambda: {"type": "NFC"}]
    steps = [r.choice(kinds)() for _ in range(r.randint(0, 3))]
    if not steps:
        return None
    one = len(steps) == 1 and r.random() < .7
    return steps[0] if one else {"type": "Sequence", "normalizers": steps}


def byte_level(r):
    return {"type": "ByteLevel", "add_prefix_space": r.random() < .4, "trim_offsets": True,
            "use_regex": r.random() < .6}


def pre_tokenizer(r, of_bytes):
    pattern = [{"String": " "}, {"String": MARK}, {"Regex": "[0-9]"}, {"Regex": "a+"},
               {"String": "\n"}]
    behavior = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    pattern += [{"Regex": s} for s in RULES]
    kinds = [lambda: metaspace(r)] * (0 if of_bytes else 2) + [
             lambda: {"type": "Digits", "individual_digits": r.random() < .5},
             lambda: {"type": "Split", "pattern": r.choice(pattern),
                      "behavior": r.choice(behavior), "invert": r.random() < .2}]
    steps = [r.choice(kinds)() for _ in range(r.choice([0, 1, 1, 1, 2, 3]))]
    if of_bytes:
        steps.append(byte_level(r))
    if not steps:
        return None
    one = len(steps) == 1 and r.random() < .8
    return steps[0] if one else {"type": "Sequence", "pretokenizers": steps}


def decoder(r, of_bytes):
    if of_bytes:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                "use_regex": True}
    if r.random() < .3:
        return metaspace(r)
    steps = [replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if r.random() < .5:
        steps.append({"type": "Strip", "content": " ", "start": r.choice([0, 1, 1, 2]), "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def added(r, vocab):
    texts = ["[N]", "ab", " x", MARK + "c", "c 1", "[ M]", "1", "a b"]
    out = [{"id": i, "content": s, "normalized": False, "special": True} for i, s in
           enumerate(SPECIAL)]
    for s in r.sample(texts, r.randint(0, 3)):
        if s in vocab:
            continue
        # special and normalized together is what docs/formats.md says is not followed
        normalized = r.random() < .5
        out.append({"id": len(vocab) + len(out) - 3, "content": s, "normalized": normalized,
                    "special": not normalized and r.random() < .5, "single_word": r.random() < .2,
                    "lstrip": r.random() < .3, "rstrip": r.random() < .3})
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return [{**flags, **a} for a in out]


def draw(r):
    of_bytes = r.random() < .4
    byte_fallback = not of_bytes and r.random() < .6
    vocab, merges = words(r, of_bytes, byte_fallback)
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": r.random() < .7,
             "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "byte_fallback": byte_fallback, "ignore_merges": r.random() < .2,
             "vocab": vocab, "merges": merges}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(r, vocab),
            "normalizer": normalizer(r), "pre_tokenizer": pre_tokenizer(r, of_bytes),
            "post_processor": None, "decoder": decoder(r, of_bytes), "model": model}


def lines(exe, folder, flags, items):
    text = "".join(json.dumps(x) + "\n" for x in items)
    code, out, err = e2e.run([exe, "tokenize", "-q", "-m", folder, "--lines"] + flags,
                             text.encode())
    if code != 0:
        return None, err.strip()
    return [json.loads(x) for x in out.decode().split("\n") if x], None


def first(items, got, want):
    bad = [(len(str(x)), x, g, w) for x, g, w in zip(items, got, want) if g != w]
    if not bad:
        return None
    _, x, g, w = min(bad, key=lambda b: b[0])
    return f"{len(bad)} differ; {x!r}: got {g!r}, expected {w!r}"


def check(exe, folder, r):
    """(what is wrong or None, why it was refused or None)"""
    j = draw(r)
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(j, f)
    t = Tokenizer.from_str(json.dumps(j))
    parts = LETTERS + [a["content"] for a in j["added_tokens"]] + [" ", "  ", "e\u0301", "ß",
                                                                   MARK * 2]
    s = ["".join(r.choice(parts) for _ in range(r.randint(1, 9))) for _ in range(60)]
    got, err = lines(exe, folder, ["--special"], s)
    if err:
        return None, err.split(": ", 2)[-1][:80]
    want = [e.ids for e in t.encode_batch(s, add_special_tokens=False)]
    faults = [first(s, got, want)]
    # of bytes and normalized: not followed either
    same = j["decoder"]["type"] != "ByteLevel" or not any(a["normalized"] for a in
                                                          j["added_tokens"])
    for flags, skip in ((["--special"], False), ([], True)) if same else ():
        got, err = lines(exe, folder, ["--decode"] + flags, want)
        back = [t.decode(x, skip_special_tokens=skip) for x in want]
        faults.append(err or first(want, got, back))
    wrong = "; ".join(x for x in faults if x)
    parts = {k: j[k] for k in ("normalizer", "pre_tokenizer", "decoder")}
    return wrong and f"{wrong}\n  {json.dumps(parts)}\n  {j['added_tokens'][3:]}", None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?", default="build")
    p.add_argument("--number", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int)
    a = p.parse_args()
    exe, tally = e2e.sluice(a.build), e2e.Tally("pipelines")
    refused = collections.Counter()
    with e2e.scratch() as folder:
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama"}, f)
        for k in range(a.number) if a.only is None else [a.only]:
            wrong, why = check(exe, folder, random.Random(a.seed * 1000003 + k))
            if why:
                refused[why] += 1
            else:
                tally.check(f"--seed {a.seed} --only {k}", wrong or None)
    for why, n in refused.most_common():
        print(f"{n} refused: {why}")
    tally.exit()


if __name__ == "__main__":
    main()
