#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SentencePiece text against the `sentencepiece` and `tokenizers` packages.

  check_sentencepiece.py BUILD [--n 100000] [--seed 1] [--golden OUT]

Three vocabularies are trained from random text, all with byte fallback: Llama's kind (nothing is
normalised), one with nmt_nfkc, squeezed spaces and user-defined symbols, and one without dummy
prefix whose words run across spaces. Each is read as tokenizer.model (ids and text back as
sentencepiece gives them), as GGUF of type llama, and as tokenizer.json in the forms that Llama 2,
Mistral, Phi-3, TinyLlama and Gemma have (as tokenizers does). n strings for every vocabulary and
form, of many scripts, spaces, controls and special tokens.
--golden writes some of it for tests/e2e/check_token_files.py.
Needs sentencepiece, tokenizers, gguf, numpy.
"""
import argparse
import json
import os
import random
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_tokenizers as ct  # noqa: E402
import token_golden  # noqa: E402

e2e = ct.e2e
MARK = "▁"
SYMBOLS = ["[IM]", "[INST]", MARK * 2, "foo"]
VOCAB = {
    "plain": dict(normalization_rule_name="identity", remove_extra_whitespaces=False,
                  add_dummy_prefix=True, vocab_size=1500),
    "nfkc": dict(normalization_rule_name="nmt_nfkc", remove_extra_whitespaces=True,
                 add_dummy_prefix=True, vocab_size=1200, user_defined_symbols=SYMBOLS,
                 control_symbols=["<pad>", "[CTL]"]),
    "across": dict(normalization_rule_name="nfkc", remove_extra_whitespaces=False,
                   add_dummy_prefix=False, vocab_size=1300, split_by_whitespace=False,
                   split_digits=True, allow_whitespace_only_pieces=True),
}
MANY = ["<s>", "</s>", "[IM]", "[INST]", "[NEW]", "<0x0A>", MARK]


def texts(n, seed):
    return [s.replace("\0", "") for s in ct.strings(n, MANY, seed)]


def train(name, tmp, seed):
    """The model file's path."""
    r = random.Random(seed)
    lines = [s.replace("\n", " ").replace("\0", "")[:300] for s in texts(2000, seed)]
    lines += [" ".join(r.choice(ct.WORDS) for _ in range(r.randint(3, 20))) for _ in range(4000)]
    with open(tmp + "/text", "w", encoding="utf-8") as f:
        f.write("\n".join(x for x in lines if x.strip()))
    sentencepiece.SentencePieceTrainer.train(
        input=tmp + "/text", model_prefix=f"{tmp}/{name}", model_type="bpe", byte_fallback=True,
        character_coverage=0.98, minloglevel=2, max_sentence_length=100000,
        hard_vocab_limit=False, **VOCAB[name])
    return f"{tmp}/{name}.model"


def pieces(sp):
    """Text, score and GGUF type of every piece."""
    for i in range(len(sp)):
        kind = (2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i)
                else 5 if sp.is_unused(i) else 4 if sp.id_to_piece(i) in SYMBOLS else 1)
        yield sp.id_to_piece(i), sp.get_score(i), kind


def merges_of(sp):
    """As converters write them: every cut of a piece into two, better pieces first."""
    all_ = list(pieces(sp))
    words = {p for p, _, k in all_ if k in (1, 4)}
    out = []
    for p, score, kind in all_:
        if kind == 1:
            out += [(-score, p[:i], p[i:]) for i in range(1, len(p))
                    if p[:i] in words and p[i:] in words]
    out.sort(key=lambda m: m[0])
    return [[a, b] for _, a, b in out]


def flag(i, text, **kw):
    d = dict(id=i, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False,
             special=True)
    return dict(d, **kw)


def replace(a, b):
    return dict(type="Replace", pattern=dict(String=a), content=b)


def meta(scheme, split):
    return dict(type="Metaspace", replacement=MARK, prepend_scheme=scheme, split=split)


def seq(key, kind, *steps):
    return {"type": "Sequence", key: list(steps)} if kind else steps[0]


DECODE = [replace(MARK, " "), dict(type="ByteFallback"), dict(type="Fuse")]
STRIP = dict(type="Strip", content=" ", start=1, stop=0)
PREPEND = dict(type="Prepend", prepend=MARK)
FORMS = {
    # name: normalizer, pre_tokenizer, decoders, more added tokens, merges may be left out
    "llama2": (seq("normalizers", 1, PREPEND, replace(" ", MARK)), None, DECODE + [STRIP], {}, {}),
    "mistral": (None, meta("first", False), DECODE + [STRIP], {}, {}),
    "always": (None, meta("always", True), [dict(meta("always", True))], {}, {}),
    "never": (None, meta("never", False), DECODE, {}, {}),
    "gemma": (replace(" ", MARK), dict(type="Split", pattern=dict(String=" "),
                                       behavior="MergedWithPrevious", invert=False),
              DECODE, {}, {}),
    "phi3": (seq("normalizers", 1, PREPEND, replace(" ", MARK)), None, DECODE + [STRIP],
             dict(rstrip=True), {}),
    "old": (seq("normalizers", 1, PREPEND, replace(" ", MARK)), None, DECODE + [STRIP],
            dict(normalized=True, special=False), {}),
    "unknown": (seq("normalizers", 1, PREPEND, replace(" ", MARK)), None, DECODE + [STRIP], {},
                dict(byte_fallback=False, fuse_unk=True)),
    "unfused": (seq("normalizers", 1, dict(type="NFC"), replace(" ", MARK)),
                dict(type="Digits", individual_digits=True), DECODE, dict(lstrip=True),
                dict(byte_fallback=False, fuse_unk=False, ignore_merges=True)),
}


def tokenizer_json(sp, form):
    norm, pre, dec, new, over = FORMS[form]
    vocab = {p: i for i, (p, _, _) in enumerate(pieces(sp))}
    model = dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None,
                 end_of_word_suffix=None, fuse_unk=True, byte_fallback=True, ignore_merges=False,
                 vocab=vocab, merges=merges_of(sp))
    return dict(version="1.0", truncation=dict(direction="Right", max_length=3, stride=0,
                                               strategy="LongestFirst"), padding=None,
                added_tokens=[flag(0, "<unk>"), flag(1, "<s>"), flag(2, "</s>"),
                              flag(len(vocab), "[NEW]", **new)],
                normalizer=norm, pre_tokenizer=pre, post_processor=None,
                decoder=seq("decoders", 1, *dec) if len(dec) > 1 else dec[0],
                model=dict(model, **over))


def write_folder(path, files):
    os.makedirs(path, exist_ok=True)
    for name, data in files.items():
        with open(f"{path}/{name}", "wb") as f:
            f.write(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def write_gguf(path, sp, prefix):
    import gguf
    w = gguf.GGUFWriter(path, "llama")
    p = list(pieces(sp))
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([x[0].encode() for x in p])
    w.add_token_scores([x[1] for x in p])
    w.add_token_types([x[2] for x in p])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_space_prefix(prefix)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def compare(tally, exe, name, model, flags, s, want, back):
    got, err = ct.lines(exe, model, flags, s)
    tally.check(name, err or ct.first_difference(s, got, want))
    got, err = ct.lines(exe, model, ["--decode"], want)
    tally.check(name + " --decode", err or ct.first_difference(want, got, back))


def no_truncation(j):
    return dict(j, truncation=None)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--n", type=int, default=100000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--golden")
    a = ap.parse_args()
    exe, tally, gold = e2e.sluice(a.build), e2e.Tally("sentencepiece"), token_golden.Golden()
    with tempfile.TemporaryDirectory() as tmp:
        s = texts(a.n, a.seed + 1)
        for name in VOCAB:
            path = train(name, tmp, a.seed)
            sp = sentencepiece.SentencePieceProcessor(model_file=path)
            data = open(path, "rb").read()
            files = {"tokenizer.model": data,
                     "tokenizer_config.json": dict(tokenizer_class="LlamaTokenizer"),
                     "config.json": dict(model_type="llama")}
            plain = [x for x in s if not any(y in x for y in ("<s>", "</s>"))]
            folder = write_folder(f"{tmp}/{name}", files)
            ids = sp.encode(plain)
            compare(tally, exe, name, folder, [], plain, ids, sp.decode(ids))
            gold.add(name, files, [], plain, ids, sp.decode(ids))
            if name == "plain": # llama.cpp's rule for GGUF is this vocabulary's
                g = write_gguf(f"{tmp}/{name}.gguf", sp, True)
                compare(tally, exe, name + ".gguf", g, [], plain, ids, sp.decode(ids))
                gold.add(name + ".gguf", open(g, "rb").read(), [], plain, ids, sp.decode(ids))
            for form in FORMS if name == "plain" else ("llama2", "mistral", "gemma"):
                j = tokenizer_json(sp, form)
                t = Tokenizer.from_str(json.dumps(no_truncation(j)))
                files = {"tokenizer.json": j, "config.json": dict(model_type="llama")}
                folder = write_folder(f"{tmp}/{name}_{form}", files)
                ids = [e.ids for e in t.encode_batch(s, add_special_tokens=False)]
                back = [t.decode(x) for x in ids]
                compare(tally, exe, f"{name} {form}", folder, ["--special"], s, ids, back)
                if name == "plain":
                    gold.add(f"{name} {form}", files, ["--special"], s, ids, back)
            ct.linear(exe, f"{tmp}/{name}", tally, name)
    if a.golden:
        gold.save(a.golden)
    tally.exit()


if __name__ == "__main__":
    sys.exit(main())
