#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenisation against the `tokenizers` package: ids, with and without special tokens, and back.

  check_tokenizers.py BUILD [--n 100000] [--dir FOLDER]... [--gguf FILE]... [--no-tiny] [--golden
  OUT]

--dir   a folder with tokenizer.json (or .json.xz) and tokenizer_config.json; --gguf a file of gpt2
        type.
        SLUICE_TOKENIZERS names a folder of such folders. The tiny checkpoints' are checked too.
--golden writes some strings with the oracle's ids (tests/data/tokenizers.json) instead of checking;
it is replayed
        by tests/e2e/check_golden_tokens.py without this environment.
Strings are of 24 kinds; every one is encoded with --special and without, decoded, and 1 MiB of one
word, of spaces, digits, newlines and of one ideograph must take time in proportion to their length.
"""
import argparse
import json
import lzma
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import unicodedata

from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers import pre_tokenizers as pre

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import e2e  # noqa: E402

WORDS = """the of and to in is that for it as with was on be by at this which from or an are
have not but Hello world model token don't I'll we've you're it's THEY'D naïve café Straße Größe
Ελληνικά Москва привет
שלום مرحبا नमस्ते สวัสดี 안녕하세요 こんにちは 世界 北京 毕老师 東京 𝔘𝔫𝔦 ﬁne ½ Ⅷ ٣٤ ۱۲ ७८ ʼn İstanbul ǅ""".split()
CODE = """def f(x, *a, **k):\n    return {k: v for k, v in x.items() if v != None}  # c
for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n\n\n<div class="a b">&nbsp;</div>\r\n
SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%';\nhttps://example.org/a?b=c&d=%20#e\n$$\\frac{a}{b}$$
{"a": [1, 2.5e-3, null], "b": "\\u00e9"}
#include <stdio.h>\n/* comment */ x->y = &z; a&&b||!c;""".split("\n")
EMOJI = "😀 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ ⚠️ ☃ ✈︎ 🏳️‍🌈 ©️ 1️⃣ ‼️".split(" ")
SPACE = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000",
         "\u2003", "\u200b", "\u2028", "\x0b", "\x0c",
         "\x85", "\u180e", "\u202f", "\ufeff", "\r"]


def by_category():
    cat = {}
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        k = unicodedata.category(chr(c))
        cat.setdefault(k, []).append(c)
    return cat


CAT = by_category()
ASSIGNED = [k for k in CAT if k not in ("Cn", "Co", "Cs")]


def strings(n, special, seed):
    r = random.Random(seed)
    comb = CAT["Mn"] + CAT["Mc"]

    def letters(k):
        return "".join(chr(r.choice(CAT[r.choice(("Lu", "Ll", "Lo", "Lt", "Lm"))]))
                       for _ in range(k))

    def cat_mix(k):
        return "".join(chr(r.choice(CAT[r.choice(ASSIGNED)])) for _ in range(k))

    def pick(seq, k, sep=""):
        return sep.join(r.choice(seq) for _ in range(k))
    ascii_all = [chr(c) for c in range(1, 128)]
    punct = "".join(chr(c) for c in range(33, 127) if not chr(c).isalnum())
    kinds = [
        lambda: pick(WORDS, r.randint(1, 14), " "),
        lambda: pick(WORDS, r.randint(1, 8), pick(SPACE, 1)),
        lambda: "".join(r.choice(WORDS) + pick(SPACE, r.randint(0, 4)) for _ in range(6)),
        lambda: pick(SPACE, r.randint(1, 30)),
        lambda: pick(" \n", r.randint(1, 40)) + r.choice(WORDS),
        lambda: "".join(r.choice("0123456789") for _ in range(r.randint(1, 40))),
        lambda: pick([chr(c) for c in CAT["Nd"] + CAT["Nl"] + CAT["No"]], r.randint(1, 12)),
        lambda: pick(["1", "22", "333", "4444", ",", ".", " ", "-", "e", "%", "$"], 12),
        lambda: pick(CODE, r.randint(1, 5), "\n"),
        lambda: pick(EMOJI, r.randint(1, 8), r.choice(["", " ", "\n"])),
        lambda: "".join(chr(r.randint(0x4E00, 0x9FFF)) for _ in range(r.randint(1, 20))),
        lambda: "".join(chr(r.randint(0x3040, 0x30FF)) for _ in range(10)) + pick(WORDS, 2, " "),
        lambda: "".join(chr(r.randint(0xAC00, 0xD7A3)) for _ in range(8)) + "다. " + pick(WORDS, 1),
        lambda: "".join(chr(r.randint(0x1100, 0x11FF)) for _ in range(8)),
        lambda: letters(r.randint(1, 24)),
        lambda: cat_mix(r.randint(1, 24)),
        lambda: "".join(r.choice("aeiouAEIOU ") + chr(r.choice(comb)) * r.randint(0, 3)
                        for _ in range(10)),
        lambda: chr(r.choice(comb)) + pick(WORDS, 2, " "),
        lambda: unicodedata.normalize("NFD", pick(WORDS, 6, " ")) + letters(4),
        lambda: pick(list(punct), r.randint(1, 20)) + pick(["\n", "\r\n", "", " "], 3),
        lambda: pick(ascii_all, r.randint(1, 40)),
        lambda: "".join(chr(c) for c in (r.choice(CAT["Cn"]), r.choice(CAT["Co"]), 0x41, 0x301)),
        lambda: pick(special, r.randint(1, 4), r.choice(["", " ", "a", "\n", "<"])),
        lambda: pick(WORDS, 2, " ") + r.choice(special)[:r.randint(1, 9)] + r.choice(special)
        + pick(SPACE, 1) + r.choice(WORDS),
    ]
    for i in range(n):
        s = kinds[i % len(kinds)]()
        yield s.encode("utf-8", "replace").decode("utf-8")


def no_special(t):
    """The same tokenizer without its special and control tokens: what a user's text must give."""
    j = json.loads(t.to_str())
    j["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(j))


def from_gguf(path):
    """The rules of docs/formats.md (Tokenizers) for tokenizer.ggml.pre, from the file's
    vocabulary."""
    import gguf
    from tiny_tok import FAMILY
    from tokenizers import normalizers
    f = gguf.GGUFReader(path).fields
    toks = f["tokenizer.ggml.tokens"].contents()
    types = f["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in f["tokenizer.ggml.merges"].contents()]
    name = f["tokenizer.ggml.pre"].contents()
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(toks) if types[i] != 5}, merges))
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = FAMILY[name]()
    t.decoder = decoders.ByteLevel()
    for s, k in zip(toks, types):
        if k in (3, 4):
            a = AddedToken(s, special=k == 3, normalized=False)
            (t.add_special_tokens if k == 3 else t.add_tokens)([a])
    return t


def lines(exe, model, flags, items):
    text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in items)
    code, out, err = e2e.run([exe, "tokenize", "-m", model, "--lines"] + flags, text.encode(),
                             timeout=1200)
    if code != 0:
        return None, f"exit {code}: {err.strip()[:300]}"
    got = [json.loads(x) for x in out.decode().split("\n") if x]
    if len(got) != len(items):
        return None, f"{len(got)} answers for {len(items)} lines"
    return got, None


def first_difference(items, got, want):
    n = sum(a != b for a, b in zip(got, want))
    if not n:
        return None
    i = next(i for i in range(len(got)) if got[i] != want[i])
    return f"{n} differ; first {items[i]!r}: got {got[i]}, expected {want[i]}"


def check(exe, model, t, n, tally, name):
    special = [a.content for a in t.get_added_tokens_decoder().values()] or ["<s>"]
    s = list(strings(n, special, 1))
    got, err = lines(exe, model, ["--special"], s)
    want = [e.ids for e in t.encode_batch(s, add_special_tokens=False)]
    tally.check(name + " --special", err or first_difference(s, got, want))
    # an id list back to text
    got, err = lines(exe, model, ["--decode", "--special"], want)
    back = [t.decode(x, skip_special_tokens=False) for x in want]
    tally.check(name + " --decode", err or first_difference(want, got, back))
    # without --special a spelled control token is text
    plain = no_special(t)
    soft = [a.content for a in t.get_added_tokens_decoder().values() if not a.special]
    s = [x for x in s if not any(y in x for y in soft)]
    got, err = lines(exe, model, [], s)
    want = [e.ids for e in plain.encode_batch(s, add_special_tokens=False)]
    tally.check(name + " plain", err or first_difference(s, got, want))


def cpu(args, text):
    """CPU seconds of one run, the best of three."""
    best = 1e9
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        p = subprocess.run(args, input=text.encode(), capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if p.returncode:
            return None, p.stderr.decode().strip()[:200]
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best, None


def linear(exe, model, tally, name):
    """1 MiB of one thing: at most 2.3 times as long for each doubling from 256 KiB, and under a
    second."""
    load = cpu([exe, "tokenize", "-m", model], "a")[0] or 0
    for what, unit in (("word", "a"), ("word2", "ab"), ("spaces", " "), ("digits", "7"),
                       ("newlines", "\n"), ("ideograph", "北"), ("marks", "\u0301"),
                       ("punctuation", "!")):
        t = []
        for size in (1 << 18, 1 << 20):
            sec, err = cpu([exe, "tokenize", "-m", model], unit * (size // len(unit.encode())))
            if err:
                tally.check(f"{name} 1 MiB {what}", err)
                break
            t.append(max(sec - load, 0.01))
        else:
            bad = t[1] > 1.0 or (t[1] > 0.5 and t[1] / t[0] > 2.3**2)
            tally.check(f"{name} 1 MiB {what}",
                        f"256 KiB {t[0]:.3f} s, 1 MiB {t[1]:.3f} s" if bad else None)


def unpack(folder, tmp):
    """A folder with a plain tokenizer.json."""
    if os.path.exists(folder + "/tokenizer.json"):
        return folder
    out = os.path.join(tmp, os.path.basename(folder.rstrip("/")))
    os.makedirs(out, exist_ok=True)
    with open(out + "/tokenizer.json", "wb") as f:
        f.write(lzma.open(folder + "/tokenizer.json.xz").read())
    with open(out + "/tokenizer_config.json", "wb") as f:
        f.write(open(folder + "/tokenizer_config.json", "rb").read())
    return out


def golden(models_, out, n):
    g = []
    for name, _, t in models_:
        special = [a.content for a in t.get_added_tokens_decoder().values()] or ["<s>"]
        s = list(strings(n, special, 2))
        g.append(dict(model=name, special=True, strings=s,
                      ids=[e.ids for e in t.encode_batch(s, add_special_tokens=False)]))
    with open(out, "w", encoding="utf-8") as f:
        json.dump(g, f, ensure_ascii=True, separators=(",", ":"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--n", type=int, default=100000)
    ap.add_argument("--dir", action="append", default=[])
    ap.add_argument("--gguf", action="append", default=[])
    ap.add_argument("--no-tiny", action="store_true")
    ap.add_argument("--golden")
    a = ap.parse_args()
    env = os.environ.get("SLUICE_TOKENIZERS")
    if env:
        a.dir += [f"{env}/{x}" for x in sorted(os.listdir(env)) if os.path.isdir(f"{env}/{x}")]
    tiny = e2e.tiny(a.build)
    tally = e2e.Tally("tokenizers")
    with tempfile.TemporaryDirectory() as tmp:
        todo = []
        small = ("llama2", "llama3", "smollm", "qwen3", "deepseek_v3", "deepseek_v2")
        for d in () if a.no_tiny else small:
            t = Tokenizer.from_file(f"{tiny}/{d}/tokenizer.json")
            todo.append((d, f"{tiny}/{d}", t))
            if not a.golden:
                todo.append((d + ".gguf", f"{tiny}/{d}.gguf", t))
        for d in a.dir:
            d = unpack(d, tmp)
            todo.append(("real/" + os.path.basename(d), d,
                         Tokenizer.from_file(d + "/tokenizer.json")))
        for f in a.gguf:
            todo.append((os.path.basename(f), f, from_gguf(f)))
        if a.golden:
            golden(todo, a.golden, 192)
            return 0
        exe = e2e.sluice(a.build)
        for name, model, t in todo:
            n = min(a.n, 20000) if model.startswith(tiny) else a.n
            t0 = time.monotonic()
            check(exe, model, t, n, tally, name)
            linear(exe, model, tally, name)
            print(f"{name}: {n} strings, {time.monotonic() - t0:.0f} s", flush=True)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
