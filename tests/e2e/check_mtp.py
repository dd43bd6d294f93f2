#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MTP layers that are there in part, announced only, or of a kind that is not read: of Qwen3.5 and
DeepSeek-V4, whose folders name them apart.

  check_mtp.py [BUILD]
"""
import json
import os
import shutil
import struct

import e2e
import ggufkeys
from badgguf import string

S, TINY = e2e.sluice(), e2e.tiny()
IDS = "5,6,7,8,9,20,30,40,50,60"
U32 = 4
ANSWER = ["-n", "6", "--temp", "0", "--ignore-eos", "--ids", IDS, "-t", "1", "--json"]


def load(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as f:
        head, data = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
    head.pop("__metadata__", None)
    return {n: (h["dtype"], h["shape"], data[slice(*h["data_offsets"])]) for n, h in head.items()}


def folder(src, dst, edit=None, **config):
    """A copy with other tensors (edit), and with that in its text_config."""
    shutil.rmtree(dst, ignore_errors=True)
    shutil.copytree(src, dst)
    path, out, at = os.path.join(dst, "model.safetensors"), {}, 0
    parts = load(path)
    if edit:
        edit(parts)
    for n, (dtype, shape, b) in parts.items():
        out[n] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(b)])
        at += len(b)
    raw = json.dumps(out).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw + b"".join(x[2] for x in parts.values()))
    path = os.path.join(dst, "config.json")
    c = json.load(open(path))
    c.get("text_config", c).update(config)
    json.dump({k: v for k, v in c.items()}, open(path, "w"))
    return dst


def answer(model, *more):
    rc, out, err = e2e.run([S, "run", "-m", model, *ANSWER, *more])
    return (e2e.last_json(out)["text"], None) if rc == 0 else (None, f"exit {rc}: {err.strip()}")


def refused(t, what, model, *words):
    rc, _, err = e2e.run([S, "run", "-m", model, *ANSWER, "--draft", "mtp"])
    bad = e2e.one_line_failure(rc, err)
    if rc not in (1, 2):
        bad = f"exit {rc}: {err}"
    missing = [w for w in words if w not in err]
    t.check(what, bad or (f"no '{missing[0]}' in: {err}" if missing else None))


def in_part(t, tmp, src, want):
    """Every tensor of the layer, where it is missing: named where drafts are wanted, and of no
    account where they are not."""
    names = [n for n in load(f"{src}/model.safetensors") if n.startswith("mtp.")]
    t.check("tensors of the layer", None if len(names) == 15 else f"{names}")
    for n in names:
        m = folder(src, f"{tmp}/less", lambda p: p.pop(n))
        refused(t, f"without {n}", m, *(("has no MTP layer",) if n == "mtp.fc.weight" else
                                        (n, "is missing")))
        t.check(f"without {n}, no drafts", None if answer(m) == (want, None) else f"{answer(m)}")
    for n in ("mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.self_attn.q_proj.weight"):
        def halve(p):
            dtype, shape, b = p[n]
            p[n] = (dtype, [shape[0] // 2] + shape[1:], b[:len(b) // 2])
        refused(t, f"half of {n}", folder(src, f"{tmp}/less", halve), n, "expected")


def without(p):
    for n in [n for n in p if n.startswith("mtp.")]:
        del p[n]


def to_gguf(t, what, src, dst, left, n_mtp):
    """left: what the report says is left out; None = nothing."""
    rc, out, err = e2e.run([S, "quantize", src, dst, "-w", "f32", "--force", "--json"])
    if rc:
        return t.check(what, err)
    keys = ggufkeys.read(dst)
    n = keys["qwen35.block_count"][1], keys.get("qwen35.nextn_predict_layers", (0, 0))[1]
    said = f"{out}{err}"
    told = f"{left} left out" in said if left else "left out" not in said
    t.check(what, None if n == (4 + n_mtp, n_mtp) and told else f"{n}, said: {said}")


def announced(t, tmp, src, want):
    """Announced without tensors: refused where it has to be there, else nothing."""
    m = folder(src, f"{tmp}/none", without)
    refused(t, "announced alone", m, "has no MTP layer")
    for draft in ("auto", "off"):
        t.check(f"announced alone, {draft}", None if answer(m, "--draft", draft) == (want, None)
                else f"{answer(m, '--draft', draft)}")
    to_gguf(t, "announced alone to GGUF", m, f"{tmp}/none.gguf", None, 0)
    for what, config in (("two layers", dict(mtp_num_hidden_layers=2)),
                         ("a table of its own", dict(mtp_use_dedicated_embeddings=True)),
                         ("announced as none", dict(mtp_num_hidden_layers=0))):
        m = folder(src, f"{tmp}/left", None, **config)
        refused(t, what, m, "has no MTP layer")
        t.check(f"{what}, no drafts", None if answer(m) == (want, None) else f"{answer(m)}")
        to_gguf(t, f"{what} to GGUF", m, f"{tmp}/left.gguf",
                "MTP layers of qwen3_5 are", 0)
    m = folder(src, f"{tmp}/more", lambda p: p.update({"mtp.embed_tokens.weight": p[
        "model.language_model.embed_tokens.weight"]}))
    t.check("a table that is not announced", answer(m, "--draft", "mtp")[1])
    to_gguf(t, "a table that is not announced to GGUF", m, f"{tmp}/more.gguf",
            "mtp.embed_tokens.weight is", 1)
    c = json.load(open(f"{src}/config.json"))["text_config"]
    t.check("the configuration announces it", None if c["mtp_num_hidden_layers"] == 1 else f"{c}")
    m = folder(src, f"{tmp}/silent")
    path = f"{m}/config.json"
    c = json.load(open(path))
    del c["text_config"]["mtp_num_hidden_layers"]
    json.dump(c, open(path, "w"))
    t.check("tensors alone tell of it", answer(m, "--draft", "mtp")[1])
    to_gguf(t, "tensors alone to GGUF", m, f"{tmp}/silent.gguf", None, 1)


def planned(t, tmp):
    """The planner counts the layer, whether the configuration or its tensors tell of it."""
    for name, there in (("qwen3_next", True), ("qwen3_5", True), ("qwen3_5.gguf", True),
                        ("qwen3_next_legacy.gguf", False)):
        rc, _, err = e2e.run([S, "plan", "--model", f"{TINY}/{name}", "--hardware", "H200 SXM",
                              "--mtp", "1", "--input", "64"])
        ok = rc == 0 if there else rc == 2 and "no MTP module" in err
        t.check(f"plan of {name}", None if ok else f"exit {rc}: {err}")


def words_before(t, tmp, src):
    """Names with words before them that a tool left there: the layer's too."""
    plain = answer(src, "--draft", "mtp")

    def before(p):
        for n in list(p):
            p["language_model." + n.replace("model.language_model.", "model.")] = p.pop(n)
    m = folder(src, f"{tmp}/words", before)
    t.check("language_model. before all names", None if plain[0] and
            answer(m, "--draft", "mtp") == plain else f"{answer(m, '--draft', 'mtp')}")


def add_tensor(src, dst, name, like, spoil):
    """The GGUF file with a copy of a tensor; spoil: another one in its first bytes."""
    data = open(src, "rb").read()
    _, n_tensor, begin, end = ggufkeys._split(data)
    at, found, last = begin, None, 0
    for _ in range(n_tensor):
        n = struct.unpack_from("<Q", data, at)[0]
        text, at = data[at + 8:at + 8 + n].decode(), at + 8 + n
        n_dim = struct.unpack_from("<I", data, at)[0]
        shape, off = data[at:at + 4 + 8 * n_dim + 4], struct.unpack_from("<Q", data, at + 8 +
                                                                         8 * n_dim)[0]
        at, last = at + 16 + 8 * n_dim, max(last, off)
        if text == like:
            found = shape, off, n_dim
    base = (end + 31) // 32 * 32
    body = data[base:] + bytes(-len(data[base:]) % 32)
    n = 1
    for d in struct.unpack_from(f"<{found[2]}Q", found[0], 4):
        n *= d
    one = bytearray(body[found[1]:found[1] + 2 * n])  # BF16
    if spoil:
        one[:4] = b"\x80\x3f\x00\x3f"
    head = data[:8] + struct.pack("<Q", n_tensor + 1) + data[16:end]
    head += string(name) + found[0] + struct.pack("<Q", len(body))
    with open(dst, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + body + one)
    return dst


def gguf(t, tmp, want):
    """Tables that a GGUF file has for the layer alone, and numbers of layers that are wrong."""
    src, dst = f"{TINY}/qwen3_5.gguf", f"{tmp}/x.gguf"
    for name in ("nextn.embed_tokens", "nextn.shared_head_head"):
        for spoil in (False, True):
            m = add_tensor(src, dst, f"blk.4.{name}.weight", "token_embd.weight", spoil)
            t.check(f"{name} drafts", answer(m, "--draft", "mtp")[1])
            rc, out, err = e2e.run([S, "quantize", m, f"{tmp}/x", "-w", "bf16", "--force",
                                    "--json"])
            told = f"blk.4.{name}.weight is left out" in f"{out}{err}"
            t.check(f"{name} to a folder, {spoil}",
                    None if rc == 0 and told == spoil else f"exit {rc}, told {told}: {err}")
            t.check(f"{name} from the folder", answer(f"{tmp}/x", "--draft", "mtp")[1])
    for n, word in ((2, "layer 3 is none of these"), (0, "blk.4")):
        ggufkeys.write(src, dst, {"qwen35.nextn_predict_layers": (U32, n)})
        rc, _, err = e2e.run([S, "run", "-m", dst, *ANSWER])
        t.check(f"nextn_predict_layers {n}",
                None if rc == 1 and word in err else f"exit {rc}: {err}")
    ggufkeys.write(src, dst, {"qwen35.full_attention_interval": (U32, 2)})
    t.check("the interval says nothing of it", answer(dst, "--draft", "mtp")[1])


def streams(t, tmp):
    """DeepSeek-V4's, which is mtp.0 as a whole: without a tensor, or with others in its place."""
    src = f"{TINY}/deepseek_v4_mtp"
    want, bad = answer(src)
    t.check("an answer of streams", bad)
    names = [n for n in load(f"{src}/model.safetensors") if n.startswith("mtp.0.")
             and not n.endswith(".scale") and ".experts." not in n]
    t.check("tensors of streams", None if len(names) == 29 else f"{len(names)}: {names}")
    for n in names[::3] + ["mtp.0.e_proj.weight", "mtp.0.ffn.experts.5.w2.weight"]:
        m = folder(src, f"{tmp}/less", lambda p: p.pop(n))
        refused(t, f"without {n}", m, *(("has no MTP layer",) if n == "mtp.0.e_proj.weight" else
                                        (n, "is missing")))
        t.check(f"without {n}, no drafts", None if answer(m) == (want, None) else f"{answer(m)}")

    def other(p):  # a drafter of another kind
        p["mtp.0.main_proj.weight"] = p.pop("mtp.0.e_proj.weight")
        p["mtp.1.attn_norm.weight"] = p["mtp.0.attn_norm.weight"]
    for what, m in (("of another kind", folder(src, f"{tmp}/other", other)),
                    ("with entries", folder(src, f"{tmp}/more", None,
                                            compress_ratios=[4, 128, 0, 4]))):
        refused(t, f"layers {what}", m, "has no MTP layer")
        t.check(f"layers {what}, no drafts", None if answer(m) == (want, None) else f"{answer(m)}")
        rc, out, err = e2e.run([S, "quantize", m, f"{tmp}/x.gguf", "-w", "f32", "--force",
                                "--json"])
        keys = ggufkeys.read(f"{tmp}/x.gguf") if rc == 0 else {}
        n = keys.get("deepseek4.block_count", (0, 0))[1]
        told = "MTP layers of deepseek_v4 are left out" in f"{out}{err}"
        t.check(f"layers {what} to GGUF", None if n == 3 and told else f"{n}, {out}{err}")
        t.check(f"layers {what} from GGUF", answer(f"{tmp}/x.gguf")[1])
    # files that count a layer which is not there
    ggufkeys.write(f"{tmp}/x.gguf", f"{tmp}/y.gguf", {"deepseek4.nextn_predict_layers": (U32, 1)})
    t.check("a layer that is only counted", None if answer(f"{tmp}/y.gguf") ==
            answer(f"{tmp}/x.gguf") else f"{answer(f'{tmp}/y.gguf')}")


def main():
    t = e2e.Tally("MTP layers")
    with e2e.scratch() as tmp:
        src = f"{TINY}/qwen3_5"
        want, bad = answer(src)
        t.check("an answer", bad)
        drafted = answer(src, "--draft", "mtp")
        t.check("an answer with drafts", None if drafted == (want, None) else f"{drafted}")
        in_part(t, tmp, src, want)
        announced(t, tmp, src, want)
        words_before(t, tmp, src)
        planned(t, tmp)
        gguf(t, tmp, want)
        streams(t, tmp)
    t.exit()


if __name__ == "__main__":
    main()
