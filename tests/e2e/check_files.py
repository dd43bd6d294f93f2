#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Model files as people have them: keys that change numbers, tensors that nothing reads, other
layouts of the same weights; and what lies where a model should be. Right values are those of
tinymodel.py.

  check_files.py [BUILD [NAME...]]
"""
import array
import math
import os
import struct
import sys

import badgguf
import e2e
import tinymodel as tiny

S = e2e.sluice()
BAR = 1e-4
IDS = tiny.ids(40)


def logits(model, out, ids=None):
    """([floats], stderr) or (None, stderr)"""
    rc, _, err = e2e.run([S, "eval", "-q", "-m", model, "--ids", ",".join(map(str, ids or IDS)),
                          "--dump-logits", out, "--acts", "f32", "--kv", "f32", "-t", "1"])
    return (array.array("f", open(out, "rb").read()) if rc == 0 else None), err.strip()


class Check:
    def __init__(self, tally, tmp):
        self.t, self.tmp, self.n = tally, tmp, 0
        os.makedirs(tmp)

    def path(self, tail=""):
        self.n += 1
        return os.path.join(self.tmp, f"m{self.n}{tail}")

    def right(self, name, model, want, ids=None):
        got, err = logits(model, self.path(".f32"), ids)
        d = tiny.distance(got, want) if got is not None else 0
        self.t.check(name, err or "no logits" if got is None
                     else f"{d:.1e} of the deviation" if d > BAR else None)

    def refused(self, name, model, *words, args=()):
        """One line, exit 1, with all words and the file's name."""
        rc, _, err = e2e.run([S, "run", "-m", model,
                              "--ids", "5,6,7", "-n", "1", "-t", "1", "--ignore-eos", *args])
        bad = e2e.one_line_failure(rc, err)
        words = [*words, os.path.basename(model.rstrip("/")).split("-0000")[0]]
        missing = [w for w in words if w.lower() not in err.lower()]
        self.t.check(name, bad or (f"does not say {missing}: {err.strip()}" if missing else None))

    def runs(self, name, model, says=None, env=None, args=()):
        """It runs; says: what stderr has to hold, None: nothing."""
        rc, _, err = e2e.run([S, "run", "-m", model, "--ids",
                              "5,6,7", "-n", "1", "-t", "1", "--ignore-eos", *args], env=env)
        wrong = f"exit {rc}: {err.strip()}" if rc else None
        if not wrong and (says not in err if says else "tensor" in err):
            wrong = f"stderr: {err.strip()}"
        self.t.check(name, wrong)


# ---- keys ----

def yarn_freq(c, factor, original, truncate):
    d, b = c["head_dim"], c["rope_theta"]
    lo, hi = (d * math.log(original / (n * 2 * math.pi)) / (2 * math.log(b)) for n in (32, 1))
    if truncate:
        lo, hi = math.floor(lo), math.ceil(hi)
    lo, hi = max(lo, 0), min(hi, d - 1)
    out = []
    for i in range(d // 2):
        f, r = b**(-2 * i / d), min(max((i - lo) / (hi - lo), 0), 1)
        out.append(f / factor * r + f * (1 - r))
    return out


def architectures(k):
    """Every one, as folder and as GGUF; MLA with another epsilon than its latents have."""
    for arch in ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3"):
        for eps in (1e-6, 1e-5) if arch.startswith("deepseek") else (1e-6,):
            c = tiny.config(arch, rms_norm_eps=eps)
            w = tiny.weights(c)
            want = tiny.Net(c, w).forward(IDS)
            k.right(f"{arch} {eps}", tiny.folder(k.path(), c, w), want)
            k.right(f"{arch} {eps} gguf", tiny.gguf(k.path(".gguf"), c, w), want)


def ropes(k):
    c = tiny.config("llama", rope_theta=10000.0)
    w = tiny.weights(c)
    ids = tiny.ids(60)
    plain = tiny.Net(c, w).freq
    for truncate in (True, False):
        s = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                 truncate=truncate)
        want = tiny.Net(c, w, yarn_freq(c, 4, 64, truncate), .1 * math.log(4) + 1).forward(ids)
        k.right(f"yarn truncate {truncate}", tiny.folder(k.path(), dict(c, rope_scaling=s), w),
                want, ids)
    g = badgguf
    linear = tiny.Net(c, w, [f / 4 for f in plain]).forward(ids)
    for name, keys in (("type linear", [("rope.scaling.type", g.STR, "linear"),
                                        ("rope.scaling.factor", g.F32, 4.0)]),
                       ("factor without type", [("rope.scaling.factor", g.F32, 4.0)]),
                       ("scale_linear", [("rope.scale_linear", g.F32, 4.0)])):
        k.right(name, tiny.gguf(k.path(".gguf"), c, w, keys), linear, ids)
    k.right("type none", tiny.gguf(k.path(".gguf"), c, w, [("rope.scaling.type", g.STR, "none"),
                                                           ("rope.scaling.factor", g.F32, 4.0)]),
            tiny.Net(c, w).forward(ids), ids)
    k.right("attention.scale", tiny.gguf(k.path(".gguf"), c, w, [("attention.scale", g.F32, .125)]),
            tiny.Net(c, w, scale=.125).forward(ids), ids)
    f = yarn_freq(c, 4, 64, True)
    k.right("attn_factor", tiny.gguf(k.path(".gguf"), c, w, [
        ("rope.scaling.type", g.STR, "yarn"), ("rope.scaling.factor", g.F32, 4.0),
        ("rope.scaling.original_context_length", g.U32, 64),
        ("rope.scaling.attn_factor", g.F32, .75)]),
            tiny.Net(c, w, f, .75 * (.1 * math.log(4) + 1)).forward(ids), ids)
    for kind in ("su", "mrope", "longrope", "dynamic"):
        k.refused(f"rope type {kind}", tiny.folder(
            k.path(), dict(c, rope_scaling={"type": kind, "short_factor": [1.0]}), w),
            f"rope_type '{kind}'")


def windows(k):
    """Of Qwen2, Qwen3, Qwen3-MoE and Mistral, by layer; and that a conversion keeps them."""
    slide = ["full_attention", "sliding_attention"]
    for arch, extra, win in (("qwen2", dict(max_window_layers=1), [0, 8]),
                             ("qwen2", dict(max_window_layers=0, layer_types=slide[::-1]), [8, 0]),
                             ("qwen3", dict(max_window_layers=2, layer_types=slide), [0, 8]),
                             ("qwen3", dict(max_window_layers=0, layer_types=[slide[0]] * 2),
                              [0, 0]), ("qwen3_moe", dict(max_window_layers=28), [8, 8]),
                             ("mistral", {}, [8, 8])):
        c = tiny.config(arch, sliding_window=8, **extra)
        if arch != "mistral":
            c["use_sliding_window"] = True
        w = tiny.weights(c)
        want = tiny.Net(c, w, windows=win).forward(IDS)
        name = f"{arch} {extra}"
        src = tiny.folder(k.path(), c, w)
        k.right(name, src, want)
        for dst in (k.path(".gguf"), k.path()):
            rc, _, err = e2e.run([S, "quantize", src, dst, "--weights", "f32", "-q"])
            if rc:
                k.t.check(f"{name}: quantize", err.strip())
                break
            k.right(f"{name}: {'folder' if dst[-4:] != 'gguf' else 'gguf'} of it", dst, want)
            src = dst


def tensors(k):
    """Some that nothing reads."""
    c = tiny.config("llama")
    w = tiny.weights(c)
    t = tiny.gguf_tensors(c, w)
    x = ((16,), [2.0] * 16)
    for n in ("blk.0.attn_q_norm.weight", "blk.1.attn_sub_norm.weight",
              "blk.0.ffn_gate_inp.weight", "blk.2.attn_q.weight", "rope_factors_long.weight",
              "token_embd_norm.weight"):
        k.refused(f"gguf {n}", tiny.gguf(k.path(".gguf"), c, w, tensors={**t, n: x}), n, "1 tensor")
    k.refused("gguf of five", tiny.gguf(k.path(".gguf"), c, w, tensors={
        **t, **{f"blk.0.x{i}.weight": x for i in range(5)}}), "5 tensors", "x0", "2 more")
    k.runs("gguf zero bias", tiny.gguf(k.path(".gguf"), c, w,
                                       tensors={**t, "blk.0.attn_norm.bias": ((32,), [0.0] * 32)}))
    k.runs("gguf rotary table",
           tiny.gguf(k.path(".gguf"), c, w, tensors={**t, "blk.0.attn_rot_embd": x}))
    for n in ("model.layers.0.self_attn.q_norm.weight",
              "model.layers.1.mlp.experts.0.up_proj.weight",
              "score.weight", "visual.patch_embed.proj.weight"):
        k.runs(f"folder {n}", tiny.folder(k.path(), c, {**w, n: x}), n)
    for n in ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.k_scale",
              "model.layers.2.embed_tokens.weight", "mtp.fc.weight"):
        k.runs(f"folder {n}", tiny.folder(k.path(), c, {**w, n: x}))
    tied = dict(c, tie_word_embeddings=True)
    src = tiny.folder(k.path(), tied, w)
    k.right("tied, and another head", src, tiny.Net(c, w).forward(IDS))
    k.runs("tied, and another head", src, "lm_head.weight is used")
    same = {**w, "lm_head.weight": w["model.embed_tokens.weight"]}
    src = tiny.folder(k.path(), tied, same)
    k.right("tied, and the same head", src, tiny.Net(c, same).forward(IDS))
    k.runs("tied, and the same head", src)
    # biases that the configuration does not know are no part of the model, in transformers and here
    odd = {**w, "model.layers.0.self_attn.q_proj.bias": ((32,), [.5] * 32),
           "model.layers.1.self_attn.o_proj.bias": ((32,), [.5] * 32)}
    src = tiny.folder(k.path(), c, odd)
    k.runs("folder biases", src, "2 tensors")
    want = tiny.Net(c, w).forward(IDS)
    k.right("folder biases", src, want)
    dst = k.path(".gguf")
    rc, _, err = e2e.run([S, "quantize", src, dst, "--weights", "f32", "-q"])
    k.right("folder biases to gguf", dst,
            want) if rc == 0 else k.t.check("folder biases to gguf", err)
    bias = {f"blk.{i}.attn_q.bias": ((32,), [.5] * 32) for i in range(2)}
    k.runs("gguf bias", tiny.gguf(k.path(".gguf"), c, w, tensors={**t, **bias}))
    bias["blk.1.attn_q.bias"] = ((32,), [0.0] * 32)
    k.runs("gguf bias of zeros", tiny.gguf(k.path(".gguf"), c, w, tensors={**t, **bias}))
    del bias["blk.1.attn_q.bias"]
    k.refused("gguf bias of one layer", tiny.gguf(k.path(".gguf"), c, w, tensors={**t, **bias}),
              "blk.1.attn_q.bias is missing", "blk.0.attn_q.bias")
    for n, size in (("ffn_gate", 40), ("ffn_down", 32), ("attn_norm", 32)):
        k.refused(f"gguf {n}.bias", tiny.gguf(k.path(".gguf"), c, w, tensors={
            **t, f"blk.0.{n}.bias": ((size,), [.5] * size)}), f"blk.0.{n}.bias")
    k.refused("nextn_predict_layers of a llama", tiny.gguf(
        k.path(".gguf"), c, w, [("nextn_predict_layers", badgguf.U32, 1)]),
        "llama.nextn_predict_layers is 1")
    c = tiny.config("deepseek_v3")
    w = tiny.weights(c)
    t = tiny.gguf_tensors(c, w)
    want = tiny.Net(c, w).forward(IDS)
    for tail in ("", ".weight"):
        other = {n.replace("exp_probs_b.bias", "exp_probs_b" + tail): v for n, v in t.items()}
        k.right(f"exp_probs_b{tail}", tiny.gguf(k.path(".gguf"), c, w, tensors=other), want)
    less = {n: v for n, v in t.items() if n != "blk.1.exp_probs_b.bias"}
    k.refused("no exp_probs_b", tiny.gguf(k.path(".gguf"), c, w, tensors=less),
              "blk.1.exp_probs_b.bias is missing")
    k.refused("nextn_predict_layers of a layer that is none", tiny.gguf(
        k.path(".gguf"), c, w, [("nextn_predict_layers", badgguf.U32, 1)]),
        "layer 1", "blk.1.nextn.eh_proj.weight is missing")
    k.refused("nextn of a layer before the last", tiny.gguf(k.path(".gguf"), c, w, tensors={
        **t, "blk.1.nextn.enorm.weight": ((32,), [1.0] * 32)}), "blk.1.nextn.enorm.weight")
    for n, size in (("attn_output", 32), ("attn_q_a", 24), ("ffn_up_shexp", 24)):
        k.refused(f"deepseek2 {n}.bias", tiny.gguf(k.path(".gguf"), c, w, tensors={
            **t, f"blk.1.{n}.bias": ((size,), [.5] * size)}), f"blk.1.{n}.bias")
    both = {**t, "blk.1.ffn_gate_up_exps.weight": ((6, 48, 32), [.5] * (6 * 48 * 32))}
    k.refused("two forms of experts", tiny.gguf(k.path(".gguf"), c, w, tensors=both),
              "ffn_gate_up_exps", "ffn_gate_exps")
    k.right("expert_shared_count absent",
            tiny.gguf(k.path(".gguf"), c, w, drop=["expert_shared_count"]), want)


def q8_0(shape, seed):
    import random
    r = random.Random(seed)
    n = math.prod(shape) // 32
    return shape, (8, b"".join(struct.pack("<e", r.uniform(.001, .003))
                               + bytes(r.randrange(256) for _ in range(32)) for _ in range(n)))


def integer_biases(k):
    """Of the experts of a tiny gpt-oss: a type that holds no weights."""
    path = os.path.join(e2e.tiny(), "q_gpt_oss.gguf")
    data = bytearray(open(path, "rb").read())
    name = b"blk.1.ffn_up_exps.bias"
    at = data.index(name) + len(name)
    at += 4 + 8 * int.from_bytes(data[at:at + 4], "little")
    assert data[at:at + 4] == bytes(4)  # F32
    data[at:at + 4] = (26).to_bytes(4, "little")  # I32
    f = os.path.join(tiny.write(k.path(), {"m.gguf": bytes(data)}), "m.gguf")
    k.refused("biases of experts as integers", f, "blk.1.ffn_up_exps.bias", "plain type")


def fused(k):
    """gate and up of all experts in one stack, in f32 and q8_0."""
    for arch in ("qwen3_moe", "deepseek_v3", "deepseek_v2"):
        c = tiny.config(arch)
        w = tiny.weights(c)
        for kind in ("f32", "q8_0"):
            t = tiny.gguf_tensors(c, w)
            if kind == "q8_0":
                t.update({n: q8_0(shape, n) for n, (shape, _) in t.items()
                          if n.endswith("_exps.weight") and "down" not in n})
            a = tiny.gguf(k.path(".gguf"), c, w, tensors=t)
            for n in [n for n in t if n.endswith("ffn_gate_exps.weight")]:
                (e, rows, cols), gate = t.pop(n)
                up = t.pop(n.replace("gate", "up"))[1]
                raw = [x[1] if isinstance(x, tuple) else struct.pack(f"<{len(x)}f", *x)
                       for x in (gate, up)]
                size = len(raw[0]) // e
                both = b"".join(x[i * size:(i + 1) * size] for i in range(e) for x in raw)
                t[n.replace("gate", "gate_up")] = ((e, 2 * rows, cols),
                                                   (8 if kind == "q8_0" else 0, both))
            b = tiny.gguf(k.path(".gguf"), c, w, tensors=t)
            z = [logits(m, k.path(".f32")) for m in (a, b)]
            same = z[0][0] is not None and z[0][0] == z[1][0]
            k.t.check(f"fused {arch} {kind}",
                      None if same else z[0][1] or z[1][1] or "logits differ")
            for dst in (k.path(".gguf"), k.path()):
                rc, _, err = e2e.run([S, "quantize", b, dst, "--weights", "f32", "-q"])
                got, err2 = (None, err) if rc else logits(dst, k.path(".f32"))
                d = tiny.distance(got, [z[0][0]]) if got is not None else 0
                k.t.check(f"fused {arch} {kind}: quantize to "
                          f"{'gguf' if dst.endswith('gguf') else 'folder'}",
                          err2.strip() if got is None
                          else None if d < BAR else f"{d:.1e} of the deviation")


# ---- what lies where a model should be ----

LFS = (b"version https://git-lfs.github.com/spec/v1\noid "
       b"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n")
TAR = b"model.gguf".ljust(257, b"\0") + b"ustar\x0000" + bytes(300)
FOREIGN = {"lfs": (LFS, "git-lfs"), "page": (b"<!DOCTYPE html>\n<html><body>401</body></html>",
                                             "HTML"),
           "page after space": (b"\n <html lang=en>", "HTML"),
           "gzip": (b"\x1f\x8b\x08\0" + bytes(40), "gzip"),
           "zip": (b"PK\x03\x04" + bytes(99), "zip"), "xz": (b"\xfd7zXZ\0" + bytes(40), "xz"),
           "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(40), "7z"),
           "bzip2": (b"BZh91AY&SY" + bytes(40), "bzip2"), "tar": (TAR, "tar"),
           "zstd": (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd"),
           "utf-16": ('\ufeff{"a": 1}'.encode("utf-16-le"), "UTF-16"),
           "utf-16 be": ('\ufeff{"a": 1}'.encode("utf-16-be"), "UTF-16")}


def foreign(k):
    c = tiny.config("llama")
    w = tiny.weights(c)
    st = tiny.safetensors(w)
    for name, (data, word) in FOREIGN.items():
        for f in ("m.gguf", "m.safetensors"):
            k.refused(f"{name} {f}", os.path.join(tiny.write(k.path(), {f: data}), f), word, f)
        for f in ("model.safetensors", "config.json",
                  "tokenizer.json", "model.safetensors.index.json", "generation_config.json"):
            files = {"config.json": c, "model.safetensors": st, "tokenizer.json": data, f: data}
            if f != "tokenizer.json":
                del files["tokenizer.json"]
            if "index" in f:
                del files["model.safetensors"]
            k.refused(f"{name} {f}", tiny.write(k.path(), files), word, f)
    g = badgguf.Gguf().add("split.no", badgguf.U16, 0).add("split.count", badgguf.U16, 2).bytes()
    split = tiny.write(k.path(), {"m-00001-of-00002.gguf": g, "m-00002-of-00002.gguf": LFS})
    k.refused("second part a pointer", os.path.join(split, "m-00001-of-00002.gguf"),
              "git-lfs", "m-00002-of-00002.gguf")
    for data, word in ((b"Entry not found", "Entry not found"),
                       (b'{"error":"Repository not found"}', "Repository"), (bytes(4096), "zeros"),
                       (b"lmgg" + bytes(40), "before GGUF")):
        k.refused(f"gguf {data[:9]}",
                  os.path.join(tiny.write(k.path(), {"m.gguf": data}), "m.gguf"), word)
    bom = b"\xef\xbb\xbf"
    import json
    index = json.dumps(dict(weight_map=dict.fromkeys(w, "a.safetensors"))).encode()
    k.runs("byte order marks", tiny.write(k.path(), {"config.json": bom + json.dumps(c).encode(),
                                                     "generation_config.json": bom + b"{}",
                                                     "model.safetensors.index.json": bom + index,
                                                     "a.safetensors": st}))


def kinds(k):
    """Folders and GGUF files that are something else than a model."""
    c = tiny.config("llama")
    w = tiny.weights(c)
    st = tiny.safetensors(w)
    adapter = dict(base_model_name_or_path="org/base-7b", peft_type="LORA")
    for name, files in (("bare", {}), ("with weights", {"adapter_model.safetensors": st}),
                        ("with config", {"config.json": c, "adapter_model.safetensors": st}),
                        ("in torch's", {"adapter_model.bin": b"PK\x03\x04"})):
        k.refused(f"adapter {name}", tiny.write(
            k.path(), {"adapter_config.json": adapter, **files}), "adapter", "org/base-7b")
    k.refused("no config", tiny.write(k.path(), {"model.safetensors": st}), "no config.json")
    k.refused("no config, Meta's", tiny.write(
        k.path(), {"model.safetensors": st, "params.json": {}}), "no config.json", "params.json")
    k.refused("weights alone", os.path.join(tiny.write(k.path(), {"model.safetensors": st}),
                                            "model.safetensors"), "config.json", "folder")
    for kind, word in (("adapter", "adapter"), ("mmproj", "mmproj"),
                       ("imatrix", "importance"), ("vocab", "vocabulary"), ("dance", "dance")):
        k.refused(f"general.type {kind}", tiny.gguf(
            k.path(".gguf"), c, w, [("general.type", badgguf.STR, kind)]), word, "general.type")
    k.runs("general.type model",
           tiny.gguf(k.path(".gguf"), c, w, [("general.type", badgguf.STR, "model")]))


def zeros(k):
    """The end of a file was never written."""
    c = tiny.config("llama")
    w = tiny.weights(c)
    good = open(tiny.gguf(k.path(".gguf"), c, w), "rb").read()
    st = tiny.safetensors(w)
    for part in (2, 8):
        n = len(good) - len(good) // part
        f = tiny.write(k.path(), {"m.gguf": good[:n] + bytes(len(good) - n)})
        k.refused(f"gguf, 1/{part} lost", os.path.join(f, "m.gguf"), "zeros", "download")
        n = len(st) - len(st) // part
        k.refused(f"safetensors, 1/{part} lost",
                  tiny.write(k.path(), {"config.json": c, "model.safetensors": st[:n]
                                        + bytes(len(st) - n)}), "zeros", "download")
    c = tiny.config("qwen2")
    w = tiny.weights(c)
    w["model.layers.1.self_attn.v_proj.bias"] = ((16,), [0.0] * 16)
    last = w.pop("model.layers.1.self_attn.v_proj.bias")
    k.runs("an order of columns at the end",
           tiny.folder(k.path(), c, {**w, "model.layers.1.self_attn.v_proj.bias": last,
                                     "z.g_idx": ((64,), [0.0] * 64)}), "z.g_idx")
    k.runs("a bias of zeros at the end",
           tiny.folder(k.path(), c, {**w, "model.layers.1.self_attn.v_proj.bias": last}))


def names(k):
    """Words before all names, or none."""
    c = tiny.config("llama")
    w = tiny.weights(c)
    want = tiny.Net(c, w).forward(IDS)

    def named(fn):
        return {fn(n): x for n, x in w.items()}
    for p in ("_orig_mod.", "module.", "language_model.", "module._orig_mod."):
        k.right(p, tiny.folder(k.path(), c, named(lambda n: p + n)), want)
    k.right("model.language_model.", tiny.folder(k.path(), c, named(
        lambda n: n.replace("model.", "model.language_model.", 1) if n[0] == "m" else n)), want)
    k.right("no model.", tiny.folder(k.path(), c, named(lambda n: n.removeprefix("model."))), want)
    k.refused("unknown words", tiny.folder(k.path(), c, named(lambda n: "thinker." + n)),
              "model.embed_tokens.weight is missing", "thinker.model.embed_tokens.weight")
    t = dict(w)
    t["model.layers.0.mlp.up_proj.qweight"] = t.pop("model.layers.0.mlp.up_proj.weight")
    k.refused("qweight without a configuration", tiny.folder(k.path(), c, t),
              "mlp.up_proj.qweight", "quantization_config")


def lenient(k):
    """What everybody else reads."""
    import json
    c = tiny.config("llama")
    w = tiny.weights(c)
    want = tiny.Net(c, w).forward(IDS)
    st = tiny.safetensors(w)
    m = dict.fromkeys(w, "a.safetensors")
    index = lambda more: dict(weight_map={**m, **more})
    k.right("index names an absent tensor", tiny.write(
        k.path(), {"config.json": c, "a.safetensors": st, "model.safetensors.index.json": index(
        {"mtp.fc.weight": "a.safetensors"})}), want)
    less = {n: x for n, x in w.items() if "up_proj" not in n}
    k.refused("index names a needed one",
              tiny.write(k.path(), {"config.json": c, "a.safetensors": tiny.safetensors(less),
              "model.safetensors.index.json": index({})}),
              "up_proj.weight is missing", "a.safetensors")
    n = int.from_bytes(st[:8], "little")
    head, data = json.loads(st[8:8 + n]), st[8 + n:]
    for dtype, shape, size in (("F4", [4], 2), ("F6_E2M3", [4], 3),
                               ("C64", [2], 16), ("F8_E4M3FNUZ", [8], 8), ("F8_E5M2FNUZ", [8], 8),
                               ("F32", [1, 1, 1, 1, 1, 1, 2], 8)):
        h = {**head, "x.odd": dict(dtype=dtype, shape=shape,
                                   data_offsets=[len(data), len(data) + size])}
        k.runs(f"{dtype} {shape}",
               tiny.write(k.path(), {"config.json": c, "model.safetensors":
                                         tiny.badhf.pack(h, data + b"\1" * size)}), "x.odd")
    h = {**head, "model.norm.weight": {**head["model.norm.weight"], "dtype": "F8_E4M3FNUZ"}}
    k.refused("a needed one of an odd type",
              tiny.write(k.path(), {"config.json": c, "model.safetensors":
                                        tiny.badhf.pack(h, data)}), "model.norm.weight", "FNUZ")
    h = {**head, "__metadata__": dict(format="pt", n=3, o=dict(a=[1]))}
    k.right("metadata of other kinds", tiny.write(
        k.path(), {"config.json": c, "model.safetensors": tiny.badhf.pack(h, data)}), want)
    for text in (b"", b" \r\n\t", b'{"x": NaN, "temperature": Infinity}'):
        k.right(f"generation_config {text}", tiny.write(k.path(), {
            "config.json": c, "model.safetensors": st, "generation_config.json": text}), want)


def gguf_lines(k):
    """What is wrong in a GGUF file is said with the file and the key or tensor."""
    import ggufkeys
    src, ggml = e2e.tiny() + "/qwen3.gguf", "tokenizer.ggml."
    keys = ggufkeys.read(src)
    words = keys[ggml + "tokens"][1]
    for name, change in (("no merges", {ggml + "merges": (9, (5, [1, 2]))}),
                         ("no words", {ggml + "tokens": (9, (8, []))}),
                         ("a type", {ggml + "token_type": (9, (5, [0] * len(words[1])))}),
                         ("types", {ggml + "token_type": (9, (5, [1]))}),
                         ("suppressed", {ggml + "suppress_tokens": (9, (8, ["x"]))})):
        k.refused(name, ggufkeys.write(src, k.path(".gguf"), change), *change)
    k.refused("a width", ggufkeys.write(src, k.path(".gguf"), {
        "qwen3.feed_forward_length": (4, 99)}), "blk.0.ffn_", "expected [99, 64]")


# ---- finding a model ----

def hub(k):
    c = tiny.config("llama")
    w = tiny.weights(c)
    st = tiny.safetensors(w)
    other = tiny.gguf(k.path(".gguf"), c, tiny.weights(c, 9))
    home = k.path()
    env = dict(HF_HOME=home, HF_HUB_CACHE="", HUGGINGFACE_HUB_CACHE="")

    def repo(name, snapshots, main="abc"):  # a file that is None: a link to nothing
        root = os.path.join(home, "hub", "models--" + name.replace("/", "--"))
        for s, files in snapshots.items():
            for i, (f, data) in enumerate(files.items()):
                os.makedirs(os.path.join(root, "blobs"), exist_ok=True)
                os.makedirs(os.path.join(root, "snapshots", s, os.path.dirname(f)), exist_ok=True)
                if data is not None:
                    tiny.write(os.path.join(root, "blobs"), {f"{s}{i:08x}": data})
                up = "../" * (2 + f.count("/"))
                os.symlink(f"{up}blobs/{s}{i:08x}", os.path.join(root, "snapshots", s, f))
        if main:
            tiny.write(os.path.join(root, "refs"), {"main": main.encode()})
        return root
    good, bad = {"config.json": c,
                 "model.safetensors": st}, {"config.json": {}, "model.safetensors": b"x"}
    gguf = open(other, "rb").read()
    root = repo("org/name", {"abc": good, "zzz": bad})
    k.runs("root", root, env=env)
    k.runs("root with a slash", root + "/", env=env)
    k.runs("name", "org/name", env=env)
    k.runs("name by HF_HUB_CACHE", "org/name",
           env=dict(env, HF_HOME="/nowhere", HF_HUB_CACHE=os.path.join(home, "hub")))
    os.makedirs(os.path.join(home, ".cache", "huggingface"))
    os.symlink(os.path.join(home, "hub"), os.path.join(home, ".cache", "huggingface", "hub"))
    k.runs("name by HOME", "org/name", env=dict(env, HF_HOME="", HOME=home, XDG_CACHE_HOME=""))
    k.runs("no refs", repo("org/noref", {"abc": good}, main=None), env=env)
    k.runs("refs of a snapshot that is gone", repo("org/gone", {"abc": good}, main="def"), env=env)
    os.makedirs(os.path.join(home, "hub", "models--org--empty", "snapshots"))
    k.refused("no snapshots", os.path.join(home, "hub", "models--org--empty"), "snapshots")
    k.refused("unknown name", "org/other", "org/other", "hub's cache")
    repo("org/one-GGUF", {"abc": {"README.md": b"x", "config.json": {},
                                  "name-Q8_0.gguf": gguf, "mmproj-F16.gguf": gguf}})
    k.runs("gguf, one", "org/one-GGUF", env=env)
    repo("org/many-GGUF", {"abc": {"name-Q8_0.gguf": gguf, "name-Q4_0.gguf": gguf}})
    rc, _, err = e2e.run([S, "run", "-m", "org/many-GGUF", "--ids", "5", "-n", "1"], env=env)
    k.t.check("gguf, many", e2e.one_line_failure(rc, err)
              or (None if "name-Q8_0.gguf" in err and "name-Q4_0.gguf" in err else err))
    k.runs("gguf, by file", "org/many-GGUF/name-Q4_0.gguf", env=env)
    k.runs("gguf, by tag", "org/many-GGUF:q4_0", env=env)
    rc, _, err = e2e.run([S, "run", "-m", "org/many-GGUF:Q6_K", "--ids", "5", "-n", "1"], env=env)
    k.t.check("gguf, no such tag",
              e2e.one_line_failure(rc, err) or (None if "Q6_K" in err else err))
    def fails(name, model, *words, args=("--ids", "5")):
        rc, _, err = e2e.run([S, "run", "-q", "-m", model, *args, "-n", "1"], env=env)
        k.t.check(name, e2e.one_line_failure(rc, err) or
                  ([w for w in words if w not in err] and err))

    repo("org/exact-GGUF", {"abc": {"name-F16.gguf": gguf, "name-BF16.gguf": b"GGUF",
                                    "name-Q4_K_M.gguf": gguf, "name-Q4_K_S.gguf": gguf}})
    k.runs("gguf, a tag that is the end of another", "org/exact-GGUF:f16", env=env)
    k.runs("gguf, a whole tag", "org/exact-GGUF:q4_k_m", env=env)
    fails("gguf, the beginning of two tags", "org/exact-GGUF:Q4_K", "2 models", "Q4_K_S.gguf")
    fails("gguf, the end of a tag", "org/exact-GGUF:K_M", "no .gguf file of K_M")
    repo("org/beside-GGUF", {"abc": {"n.gguf": gguf, "n-mmproj-f16.gguf": b"x",
                                     "n-imatrix.gguf": b"x"}})
    k.runs("gguf and what accompanies it", "org/beside-GGUF", env=env)
    repo("org/revs", {"abc": bad, "d" * 40: good})
    tiny.write(os.path.join(home, "hub", "models--org--revs", "refs"), {"v1.0": b"d" * 40})
    for rev in ("v1.0", "d" * 40):
        k.runs(f"revision {rev[:4]}", f"org/revs@{rev}", env=env)
    fails("no such revision", "org/revs@v2", "no revision v2")
    fails("a revision as a tag", "org/revs:v1.0", "no .gguf file of v1.0", "ORG/NAME@REVISION")
    k.runs("the folder of snapshots", root + "/snapshots/", env=env)
    for f, args in (("config.json", ("--ids", "5")), ("tokenizer.json", ("-p", "a")),
                    ("model.safetensors", ("--ids", "5"))):
        repo("org/lost-" + f, {"abc": {**good, f: None}})
        fails(f"a link to nothing: {f}", "org/lost-" + f, f, "a link to a file that is not there",
              args=args)
    k.runs("HF_HOME with a variable", "org/name",
           env=dict(env, HF_HOME="${ELSEWHERE}/" + os.path.basename(home),
                    ELSEWHERE=os.path.dirname(home)))
    k.refused("a URL", "https://huggingface.co/org/name", "fetched")
    repo("org/sub-GGUF", {"abc": {"Q8_0/name-Q8_0.gguf": gguf}})
    k.runs("gguf in a folder", "org/sub-GGUF", env=env)
    rc, out, err = e2e.run([S, "inspect", "org/name"], env=env)
    k.t.check("inspect", None if rc == 0 else err.strip())
    k.runs("gguf beside config.json",
           tiny.write(k.path(), {"config.json": {"model_type": "frob"}, "m.gguf": gguf}))
    k.runs("weights and gguf", tiny.write(k.path(), {**good, "m.gguf": b"x"}))
    k.runs("weights and two gguf", tiny.write(k.path(), {**good, "m.gguf": b"x", "n.gguf": b"x"}))
    k.runs("gguf and what is none", tiny.write(k.path(), {
        "m.gguf": gguf, "mmproj-m.gguf": b"x", "imatrix-m.gguf": b"x"}))
    k.refused("two gguf", tiny.write(k.path(), {"m-Q4_0.gguf": gguf, "m-Q8_0.gguf": gguf}),
              "2 models", "m-Q4_0.gguf m-Q8_0.gguf")
    k.runs("HF_HOME with ~", "org/name",
           env=dict(env, HOME=os.path.dirname(home), HF_HOME="~/" + os.path.basename(home)))


GROUPS = dict(foreign=foreign, kinds=kinds, zeros=zeros, names=names, gguf_lines=gguf_lines,
              lenient=lenient, hub=hub, architectures=architectures, ropes=ropes,
              windows=windows, tensors=tensors, fused=fused, integer_biases=integer_biases)


def main():
    t = e2e.Tally("files")
    with e2e.scratch() as tmp:
        for name, group in GROUPS.items():
            if not sys.argv[2:] or name in sys.argv[2:]:
                group(Check(t, os.path.join(tmp, name)))
    t.exit()


if __name__ == "__main__":
    main()
