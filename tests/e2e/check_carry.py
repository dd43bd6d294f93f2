#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quantize carries besides tensors: end tokens, templates, sampling values, files; what it can
not carry is named; verify sees the rest.

  check_carry.py [BUILD]
"""
import filecmp
import json
import os
import shutil

import e2e
import ggufkeys

S, TINY = e2e.sluice(), e2e.tiny()
TOOL = "T{{tools|length}}"


def folder(dst, ends=(), more=(), templates=None, gen=None, config=None):
    """tiny/qwen3 with changes: ids that end, added tokens (with flags), templates,
    generation_config.json, tokenizer_config.json"""
    shutil.copytree(TINY + "/qwen3", dst)
    tok = json.load(open(dst + "/tokenizer.json"))
    for t in more:
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        tok["added_tokens"].append(dict(flags, **t))
    json.dump(tok, open(dst + "/tokenizer.json", "w"), ensure_ascii=False)
    cfg = json.load(open(dst + "/tokenizer_config.json"))
    if templates is not None:
        cfg["chat_template"] = templates
    cfg.update(config or {})
    json.dump(cfg, open(dst + "/tokenizer_config.json", "w"), ensure_ascii=False)
    if ends or gen:
        json.dump(dict(gen or {}, eos_token_id=list(ends)) if ends else gen,
                  open(dst + "/generation_config.json", "w"))
    return dst


def next_id():
    tok = json.load(open(TINY + "/qwen3/tokenizer.json"))
    return 1 + max([*tok["model"]["vocab"].values(), *(a["id"] for a in tok["added_tokens"])])


def quantize(src, dst, *more):
    """(JSON, stderr)"""
    code, out, err = e2e.run([S, "quantize", src, dst,
                              "--weights", "f32", "--json", "--force", *more])
    return (e2e.last_json(out) if code == 0 else {"exit": code, "notes": [err]}), err


def verify(a, b):
    """(exit code, notes, texts with other ids)"""
    code, out, err = e2e.run([S, "verify", a, b, "--json"])
    r = e2e.last_json(out) if out else {"notes": [err], "probes_differ": -1}
    return code, r["notes"], r["probes_differ"]


def to_gguf(t, tmp):
    v = next_id()
    more = [dict(id=v + i, content=f"<|end{i}|>") for i in range(4)]
    names = [dict(name="default", template="D"), dict(name="tool_use", template=TOOL),
             dict(name="rag", template="R")]
    gen = dict(temperature=0.6, top_k=20, top_p=0.95, min_p=0.05,
               repetition_penalty=1.1, do_sample=True, max_length=99, suppress_tokens=[3])
    src = folder(tmp + "/a", [m["id"] for m in more], more, names, gen)
    r, _ = quantize(src, tmp + "/a.gguf")
    k = ggufkeys.read(tmp + "/a.gguf")
    got = {n: v[1] for n, v in k.items()}
    ends = {got.get(f"tokenizer.ggml.{n}_token_id") for n in ("eos", "eot", "eom")} | set(
        got.get("tokenizer.ggml.eog_token_ids", (0, []))[1])
    t.check("end tokens", not {m["id"] for m in more} <= ends and f"{ends}")
    t.check("end tokens are said",
            not any("eog_token_ids" in n for n in r["notes"]) and f"{r['notes']}")
    want = {"tokenizer.chat_template": "D", "tokenizer.chat_template.tool_use": TOOL,
            "tokenizer.chat_template.rag": "R", "general.sampling.top_k": 20}
    t.check("templates and sampling",
            {n: got.get(n) for n in want} != want and f"{ {n: got.get(n) for n in want} }")
    reals = {n: round(got.get("general.sampling." + n, 0), 4)
             for n in ("temp", "top_p", "min_p", "penalty_repeat")}
    t.check("sampling", reals != dict(temp=0.6, top_p=0.95, min_p=0.05, penalty_repeat=1.1)
            and f"{reals}")
    t.check("what is lost is named",
            not any(n.endswith(": max_length: no key in GGUF") for n in r["notes"])
            and f"{r['notes']}")
    t.check("the same ids", (r["probes"], r["probes_differ"]) != (1000, 0) and f"{r}")
    t.check("verify", verify(src, tmp + "/a.gguf") != (0, [], 0)
            and f"{verify(src, tmp + '/a.gguf')}")
    r, _ = quantize(tmp + "/a.gguf", tmp + "/b")
    gen = json.load(open(tmp + "/b/generation_config.json"))
    cfg = json.load(open(tmp + "/b/tokenizer_config.json"))
    t.check("back to a folder: ends",
            not {m["id"] for m in more} <= set(gen["eos_token_id"]) and f"{gen}")
    t.check("back to a folder: sampling",
            [gen.get(n) for n in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")]
            != [0.6, 20, 0.95, 0.05, 1.1] and f"{gen}")
    t.check("back to a folder: tokens never drawn",
            gen.get("suppress_tokens") != [3] and f"{gen}")
    t.check("back to a folder: templates", {x["name"]: x["template"] for x in cfg["chat_template"]}
            != {x["name"]: x["template"] for x in names} and f"{cfg}")
    t.check("back to a folder: verify",
            verify(src, tmp + "/b") != (0, [], 0) and f"{verify(src, tmp + '/b')}")


def rules(t, tmp):
    """Flags of added tokens that GGUF can not say: named, and the texts that show it counted."""
    v = next_id()
    src = folder(tmp + "/rules", more=[dict(id=v, content="<mask>", lstrip=True), dict(
        id=v + 1, content="<w>", single_word=True, rstrip=True)],
                 config=dict(pad_token="<mask>", image_token="<w>"))
    r, err = quantize(src, tmp + "/rules.gguf")
    for word in ("lstrip of 1 added token (<mask>)", "rstrip", "single_word", "image_token"):
        t.check(word, not any(word in n for n in r["notes"]) and f"{r['notes']}")
    t.check("other ids are counted", not 0 < r["probes_differ"] < 1000 and f"{r}")
    t.check("with an example", "probe texts get other ids" not in err and err)
    t.check("pad", ggufkeys.read(tmp + "/rules.gguf").get("tokenizer.ggml.padding_token_id",
                                                          (0, 0))[1] != v and "no key")
    code, _, n = verify(src, tmp + "/rules.gguf")
    t.check("verify counts them", (code, n) != (1, r["probes_differ"]) and f"{code} {n}")


def around(t, tmp):
    """BOS and EOS around raw text, both ways."""
    src = TINY + "/llama3"
    for add in (True, False):
        g = ggufkeys.write(TINY + "/qwen3.gguf", f"{tmp}/around{add}.gguf", {
            "tokenizer.ggml.bos_token_id": (4, 0), "tokenizer.ggml.add_bos_token": (7, int(add)),
            "tokenizer.ggml.add_eos_token": (7, int(add))})
        quantize(g, f"{tmp}/around{add}")
        quantize(f"{tmp}/around{add}", f"{tmp}/again{add}.gguf")
        ids = [e2e.run([S, "tokenize", "-m", m, "--bos"], stdin=b"hi")[1]
               for m in (g, f"{tmp}/around{add}", f"{tmp}/again{add}.gguf")]
        keys = {n: ggufkeys.read(f"{tmp}/again{add}.gguf").get("tokenizer.ggml." + n, (0, None))[1]
                for n in ("add_bos_token", "add_eos_token")}
        t.check(f"around {add}", (len(set(ids)) != 1 and f"{ids}")
                or (keys != dict(add_bos_token=int(add), add_eos_token=int(add)) and f"{keys}"))
        t.check(f"around {add}: verify", verify(g, f"{tmp}/again{add}.gguf") != (0, [], 0)
                and f"{verify(g, f'{tmp}/again{add}.gguf')}")
    quantize(src, tmp + "/l3.gguf")
    t.check("llama3", verify(src, tmp + "/l3.gguf") != (0, [], 0)
            and f"{verify(src, tmp + '/l3.gguf')}")


def copies(t, tmp):
    """A folder as target holds every file of text."""
    src = folder(tmp + "/files", gen=dict(temperature=0.7))
    os.mkdir(src + "/additional_chat_templates")
    texts = {"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": TOOL,
             "additional_chat_templates/rag.jinja": "R",
             "special_tokens_map.json": "{}", "added_tokens.json": "{}",
             "merges.txt": "a b\n", "vocab.json": "{}"}
    for f, text in texts.items():
        open(f"{src}/{f}", "w").write(text)
    for i in range(2):  # the second time one is replaced
        r, _ = quantize(src, tmp + "/copy")
        other = [f for f in (*texts, "tokenizer.json", "tokenizer_config.json")
                 if not filecmp.cmp(f"{src}/{f}", f"{tmp}/copy/{f}", shallow=False)]
        t.check(f"copies {i}", other or (r["notes"] and f"{r}") or (r["probes_differ"] and f"{r}"))
        left = [f for f in os.listdir(tmp) if f.startswith("copy.")]
        t.check(f"nothing is left behind {i}", left)
    t.check("copies: verify", verify(src, tmp + "/copy") != (0, [], 0)
            and f"{verify(src, tmp + '/copy')}")


def ordinary(t, tmp):
    """A word that merges make is no end token, whatever its text: Qwen3's "</s>". One that they do
    not make is."""
    k = ggufkeys.read(TINY + "/qwen3.gguf")
    for made in (True, False):
        tokens, types, merges = (list(k["tokenizer.ggml." + n][1][1])
                                 for n in ("tokens", "token_type", "merges"))
        v = next_id()
        for i, text in enumerate(("</", "</s", "</s>")):
            tokens[v + i], types[v + i] = text, 1
        merges += ["< /", "</ s"] + ["</s >"] * made
        keys = {"tokenizer.ggml." + n: (9, (e, x)) for n,
                e, x in (("tokens", 8, tokens), ("token_type", 5, types), ("merges", 8, merges))}
        g = ggufkeys.write(TINY + "/qwen3.gguf", f"{tmp}/word{made}.gguf", keys)
        code, out, err = e2e.run([S, "tokenize", "-m", g, "--special"], stdin=b"a</s>")
        r, _ = quantize(g, f"{tmp}/word{made}")
        gen = json.load(open(f"{tmp}/word{made}/generation_config.json"))[
            "eos_token_id"] if code == 0 else []
        t.check(f"</s> made by merges: {made}",
                code and err or ((json.loads(out)[-1] == v + 2) == made and f"{out}") or
                ((v + 2 in gen) == made and f"{gen}") or (r["probes_differ"] and f"{r}"))


def named(t, tmp):
    """What the other kind of file has no key for is named, however many there are."""
    keys = {"general.author": (8, "x"), "general.license": (8, "x"), "other.key": (4, 1),
            "general.sampling.xtc_probability": (6, 0.5), "tokenizer.ggml.fim_pre_token_id": (4, 9),
            "tokenizer.ggml.padding_token_id": (4, 9), "general.quantized_by": (8, "x")}
    r, _ = quantize(ggufkeys.write(TINY + "/qwen3.gguf", tmp + "/n.gguf", keys), tmp + "/n")
    text = "\n".join(r["notes"])
    for word in ("fim_pre_token_id", "xtc_probability", "other.key",
                 "pad_token is the ordinary word"):
        t.check("GGUF key " + word, word not in text and text)
    general = [n for n in r["notes"] if "general keys" in n]
    t.check("general keys", len(general) != 1 and text)
    t.check("an ordinary word stays one", r["probes_differ"] and f"{r}")
    gen = {f"a_very_long_name_of_a_key_{i}": 1 for i in range(40)}
    r, _ = quantize(folder(tmp + "/long", gen=gen, config={"split_special_tokens": True}),
                    tmp + "/long.gguf")
    text = "\n".join(r["notes"])
    t.check("every key of generation_config.json",
            [k for k in gen if k + "," not in text and k + ":" not in text])
    t.check("split_special_tokens", "split_special_tokens" not in text and text)
    r, _ = quantize(folder(tmp + "/many", config={f"x{i}_token": f"<x{i}>" for i in range(40)}),
                    tmp + "/many.gguf")
    t.check("more than there is room for", (len(r["notes"]), r["notes"][-1]) != (
        24, "and 17 more") and f"{r['notes'][-2:]}")


def scored(t, tmp):
    """A SentencePiece vocabulary: merges become scores."""
    mark, flags = "\u2581", dict(single_word=False,
                                 lstrip=False, rstrip=False, normalized=False, special=True)
    toks = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + list(
        mark + "theors") + ["th", "er", mark + "o", "the", mark + "the", "ther", mark + "other"]
    merges = ["t h", "e r", mark + " o", "th e", mark + " the", "th er", mark + "o ther"]
    src = shutil.copytree(TINY + "/llama2", tmp + "/spm")
    json.dump({"added_tokens": [dict(flags, id=i, content=toks[i]) for i in range(3)],
               "normalizer": {"type": "Sequence",
                              "normalizers": [{"type": "Prepend", "prepend": mark}, {
                                  "type": "Replace", "pattern": {"String": " "}, "content": mark}]},
               "pre_tokenizer": None, "post_processor": None,
               "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {
                   "String": mark}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                            {"type": "Strip", "content": " ",
                                                             "start": 1, "stop": 0}]},
               "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback":
                             True, "vocab": {x: i for i, x in enumerate(toks)}, "merges": merges}},
              open(src + "/tokenizer.json", "w"))
    json.dump({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
               "unk_token": "<unk>"}, open(src + "/tokenizer_config.json", "w"))
    r, _ = quantize(src, tmp + "/spm.gguf")
    k = ggufkeys.read(tmp + "/spm.gguf")
    score = dict(zip(k["tokenizer.ggml.tokens"][1][1],
                     k.get("tokenizer.ggml.scores", (9, (6, [])))[1][1]))
    order = sorted(toks[-7:], key=lambda x: -score.get(x, 0))
    t.check("SentencePiece",
            (k["tokenizer.ggml.model"][1], order, r.get("probes"), r.get("probes_differ")) !=
            ("llama", [m.replace(" ", "") for m in merges], 1000, 0) and f"{order} {r}")
    types = k["tokenizer.ggml.token_type"][1][1]
    t.check("SentencePiece: types",
            types[:4] + types[258:261] != [2, 3, 3, 6, 6, 1, 1] and f"{types[:4]} {types[258:261]}")
    t.check("SentencePiece: verify",
            verify(src, tmp + "/spm.gguf") != (0, [], 0) and f"{verify(src, tmp + '/spm.gguf')}")
    code, _, err = e2e.run([S, "quantize", tmp + "/spm.gguf", tmp + "/spm2", "--weights", "f32"])
    t.check("SentencePiece to a folder",
            e2e.one_line_failure(code, err) or ("SentencePiece" not in err and err))


def differences(t, tmp):
    src = TINY + "/qwen3.gguf"
    for name, keys, word in (("template", {"tokenizer.chat_template": (8, "other")},
                              "chat template default"),
                             ("one more template", {"tokenizer.chat_template.x": (8, "other")},
                              "chat template x: only in B"),
                             ("end", {"tokenizer.ggml.eot_token_id": (4, 9)},
                              "end token 9: only in B"),
                             ("BOS", {"tokenizer.ggml.bos_token_id": (4, 9)}, "BOS"),
                             ("rule", {"tokenizer.ggml.pre": (8, "gpt-2")}, "")):
        code, notes, n = verify(src, ggufkeys.write(src, f"{tmp}/d.gguf", keys))
        t.check("verify: " + name, code != 1 and f"exit {code}"
                or (not any(word in x for x in notes) and not n and f"{notes} {n}"))
    t.check("verify: the same", verify(src, src) != (0, [], 0) and f"{verify(src, src)}")


def main():
    t = e2e.Tally("what conversion carries")
    with e2e.scratch() as tmp:
        for check in (to_gguf, rules, around, copies, ordinary, named, scored, differences):
            check(t, tmp)
    t.exit()


if __name__ == "__main__":
    main()
