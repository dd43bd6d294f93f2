#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised folders that nobody has seen: shapes, groups, patterns and codes from a seed, in every
format, as one would make them who does not trust tests/data/quants.json. The reference is numpy's
dequantisation of the files (make_quants.py) in transformers, and mtp_ref.py for the MTP layer.

  check_fresh.py BUILD [--seed N] [--rounds K] [--only FORMAT,...] [--keep FOLDER]

--acts f32: largest difference <= 1e-4 of the deviation of the logits; default activations: mean KL
divergence from that over 256 tokens <= 0.003.
"""
import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import zlib

import numpy as np
import torch

import make_quants
import mtp_ref
import runs
import tiny_hf
from make_quants import quants

BAR, BAR_KL, T, T_KL = 1e-4, 0.003, 16, 256
q = quants


# ---- shapes ----
def shapes(r, arch, step):
    """A configuration whose widths are multiples of step, and mostly not of twice that."""
    def width(lo, hi, by=step):
        return by * r.randrange((lo + by - 1) // by, hi // by + 1)
    c = q.ARCH[arch]()
    experts = r.choice([3, 4, 6, 8, 16])
    top = min(r.choice([1, 2, 4, experts]), experts)
    c.update(hidden_size=width(96, 384, max(step, 8)),
             intermediate_size=width(100, 400), vocab_size=r.choice([96, 128, 200]))
    f = width(64, 260)
    if arch == "qwen3_moe":
        d, h = r.choice([(32, 4), (64, 4), (64, 2), (128, 2)])
        while h * d % step:
            h *= 2
        c.update(head_dim=d, num_attention_heads=h,
                 num_key_value_heads=r.choice([1, 2]), num_experts=experts,
                 num_experts_per_tok=top, moe_intermediate_size=f,
                 num_hidden_layers=2, mlp_only_layers=[1])
    else:
        h, v = 4, r.choice([16, 24, 32, 48])
        while h * v % step:
            h *= 2
        c.update(num_attention_heads=h, num_key_value_heads=h,
                 v_head_dim=v, qk_nope_head_dim=r.choice([16, 32, 48]),
                 qk_rope_head_dim=r.choice([8, 16, 32]),
                 kv_lora_rank=width(64, 256, max(step, 8)), q_lora_rank=width(64, 256),
                 moe_intermediate_size=f, n_routed_experts=experts,
                 num_experts_per_tok=top, n_group=1, topk_group=1,
                 n_shared_experts=r.choice([1, 2]))
    return c


# ---- formats: (widths' step, quantization_config or None, writer, further files, edits) ----
def kv_scheme(r):
    return r.choice([None, dict(num_bits=8, type="float",
                                strategy="tensor", dynamic=False, symmetric=True)])


def ct(r, *args, **kw):
    """Patterns and names, in any order, in `ignore`; a cache scheme."""
    c = q.ct_config(*args, **kw)
    c["ignore"] = r.sample(["lm_head", "re:.*mlp\\.gate$", "re:.*eh_proj.*",
                            "re:model\\.layers\\.\\d+\\.mlp\\.gate$"], 4) + ["model.embed_tokens"]
    c["kv_cache_scheme"] = kv_scheme(r)
    return c


def some_plain(r, writer):
    """The modules of one pattern stay bf16, and a single one: (pattern, module, writer)."""
    pattern = r.choice(["re:.*experts\\.2\\..*", "re:.*o_proj$",
                        "re:.*shared_experts.*", "re:.*layers\\.1\\..*", "re:.*self_attn.*"])
    one = r.choice(["model.layers.0.self_attn.o_proj", "model.layers.0.mlp.experts.1.down_proj",
                    "model.layers.1.mlp.experts.0.up_proj"])
    word = {"re:.*experts\\.2\\..*": "experts.2.", "re:.*o_proj$": "o_proj",
            "re:.*shared_experts.*": "shared_experts", "re:.*layers\\.1\\..*": "layers.1.",
            "re:.*self_attn.*": "self_attn"}[pattern]
    return pattern, one, q.only(lambda n: word in n or n == one, writer)


def awq(r):
    size = r.choice([32, 64, 128])
    quant, w = q.awq_config(size), q.f(q.awq, size=size)
    if r.random() < .5:
        _, one, w = some_plain(r, w)
        quant["modules_to_not_convert"] = [one, "mlp.gate", "lm_head"]
    return size, quant, w, {}


def gptq(r):
    size, bits, sym, order, v2 = r.choice([32, 64, 128]), r.choice(
        [4, 8]), r.random() < .5, r.random() < .5, r.random() < .5
    quant = q.gptq_config(bits, size, sym, order, "gptq_v2" if v2 else "gptq")
    if bits == 8:
        sym = True  # the writer's zero points of 8 bits
    w = q.f(q.gptq, size=size, bits=bits, sym=sym, order=order, v2=v2)
    return (size, quant, w, {}) if r.random() < .7 else (size,
                                                         None, w, {"quantize_config.json": quant})


def ct_pack(r):
    bits, sym, size = r.choice([4, 8]), r.random() < .5, r.choice([-1, 32, 64, 128])
    order = size > 0 and r.random() < .4
    dtype = r.choice(["BF16", "F16", "F32"]) if sym else "BF16"
    quant = ct(r, "pack-quantized", bits, "group" if size > 0 else "channel",
               size if size > 0 else None, sym,
               actorder=r.choice(["group", "weight"]) if order else None)
    w = q.f(q.ct_pack, bits=bits, size=size, sym=sym, dtype=dtype, order=order)
    if r.random() < .5:
        pattern, one, w = some_plain(r, w)
        quant["ignore"] += [pattern, one]
    return (size if size > 0 else 4), quant, w, {}


def ct_int(r):
    sym = r.random() < .5
    quant = ct(r, "int-quantized", 8, "channel", None, sym)
    quant["config_groups"]["group_0"]["input_activations"] = dict(
        num_bits=8, type="int", strategy="token", dynamic=True, symmetric=True)
    return 4, quant, q.f(q.ct_int8, sym=sym, dtype=r.choice(["BF16", "F32"])), {}


def ct_fp8(r):
    how = r.choice(["channel", "tensor", "block"])
    quant = ct(r, r.choice(["float-quantized", "naive-quantized"]),
               8, how, None, True, "float", block_structure=[128, 128] if how == "block" else None)
    w = {"channel": q.fp8_chan, "tensor": q.fp8_tensor,
         "block": q.f(q.fp8_block, dtype=r.choice(["BF16", "F32"]), tail="_scale")}[how]
    return 8, quant, w, {}


def ct_nvfp4(r):
    def w(m, name, rows, cols, gain):
        q.nvfp4(m, name, rows, cols, gain, modelopt=False)
        m.put(name + ".input_global_scale", "F32", [1], q.f32(m.around(1, 30)))
    return 16, ct(r, "nvfp4-pack-quantized", 4, "tensor_group", 16, True, "float"), w, {}


def ct_mxfp4(r):
    return 32, ct(r, "mxfp4-pack-quantized", 4, "group",
                  32, True, "float", scale_dtype="torch.uint8"), q.mxfp4, {}


def ct_mixed(r):
    """Three groups: by expression, by name, and the rest."""
    size = r.choice([32, 64])
    by_name = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(3) for p in ("o", "v", "kv_a")]
    a = ct(r, "int-quantized", 8, "channel", targets=by_name)
    b = q.ct_config("nvfp4-pack-quantized", 4, "tensor_group",
                    16, True, "float", targets=["re:.*experts.*"])["config_groups"]["group_0"]
    c = q.ct_config("pack-quantized", 4, "group", size,
                    False, targets=["Linear"])["config_groups"]["group_0"]
    a["format"] = "mixed-precision"
    a["config_groups"].update(group_1=b, group_2=c)

    def w(m, name, *rest):
        if name in by_name:
            q.ct_int8(m, name, *rest)
        elif "experts" in name:
            q.nvfp4(m, name, *rest, modelopt=False)
        else:
            q.ct_pack(m, name, *rest, size=size, sym=False)
    return 64, a, w, {}


def fp8(r):
    kind = r.choice(["F32", "F32 ue8m0", "F8_E8M0", "BF16"])
    return 8, q.fp8_config(**({"scale_fmt": "ue8m0"} if "8" in kind else {})), q.f(
        q.fp8_block, dtype=kind), {}


def modelopt(r):
    ex = copy(q.MODELOPT)
    pattern, _, w = some_plain(r, q.f(q.nvfp4, modelopt=True))
    ex["quantization"]["exclude_modules"] = ["lm_head", pattern]
    if r.random() < .5:
        return 16, None, w, {"hf_quant_config.json": ex}
    return 16, dict(quant_method="modelopt", quant_algo="NVFP4", group_size=16, ignore=["lm_head"],
                    config_groups=dict(group_0=dict(weights=dict(
                        num_bits=4, type="float", group_size=16), targets=["Linear"]))), w, {}


def modelopt_fp8(r):
    return 8, dict(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"]), q.fp8_tensor, {}


def ascend(r):
    experts = r.choice([q.ms_w8, q.f(q.ms_w4, packed=True),
                        q.f(q.ms_w4, packed=False), q.f(q.ms_w4, packed=False, size=32)])
    attn = r.choice([q.ms_static, q.f(q.ms_static, bits64=True), q.ms_mix])
    return 32, None, q.f(q.ms_recipe, experts=experts,
                         attn=attn), r.choice(["w8a8", "w4a8_dynamic"])


FORMATS = dict(awq=awq, gptq=gptq, ct_pack=ct_pack, ct_int=ct_int,
               ct_fp8=ct_fp8, ct_nvfp4=ct_nvfp4, ct_mxfp4=ct_mxfp4, ct_mixed=ct_mixed,
               fp8=fp8, modelopt=modelopt, modelopt_fp8=modelopt_fp8, ascend=ascend)


# ---- folders ----
def copy(x):
    return json.loads(json.dumps(x))


def shard(files, n, r):
    """The one file of tensors as n of them and an index, codes and scales where they fall."""
    name = next(f for f in files if f.endswith(".safetensors"))
    b = files.pop(name)
    k = int.from_bytes(b[:8], "little")
    head, body = json.loads(b[8:8 + k]), b[8 + k:]
    makers, where = [q.Maker("shard") for _ in range(n)], {}
    for t, h in head.items():
        i = r.randrange(n)
        makers[i].put(t, h["dtype"], h["shape"], body[slice(*h["data_offsets"])])
        where[t] = f"model-{i + 1:05d}-of-{n:05d}.safetensors"
    for i, m in enumerate(makers):
        files[f"model-{i + 1:05d}-of-{n:05d}.safetensors"] = m.file()
    files["model.safetensors.index.json"] = json.dumps(
        dict(metadata=dict(total_size=len(body)), weight_map=where)).encode()


def folder(fmt, arch, seed):
    """(what it is in words, files with one of tensors, files as they are written)"""
    r = random.Random(f"{fmt} {arch} {seed}")
    step, quant, writer, more = FORMATS[fmt](r)
    c = shapes(r, arch, step)
    if quant:
        c["quantization_config"] = quant
    files = q.build_of(f"{fmt} {seed}", c, writer, more)
    written = dict(files)
    if r.random() < .4 and not isinstance(more, str):
        shard(written, r.choice([2, 3, 5]), r)
    words = {k: v for k, v in (quant or {}).items() if k in (
        "bits", "group_size", "sym", "desc_act", "checkpoint_format", "format", "scale_fmt")}
    for g in (quant or {}).get("config_groups", {}).values():
        words.update({k: v for k, v in g["weights"].items() if k in (
            "num_bits", "strategy", "group_size", "symmetric", "actorder") and v is not None})
    return f"D {c['hidden_size']} F {c['moe_intermediate_size']} {words}", files, written


# ---- runs ----
def logits(build, d, ids, acts):
    return runs.logits(f"{build}/sluice", d, ids, "--acts", acts, "-t", "2")


def mtp_logits(build, d, ids):
    exe = f"{build}/mtp_dump"
    if not os.path.exists(exe):
        return None
    with open(d + ".ids", "w") as f:
        f.write(",".join(map(str, ids)))
    runs.sluice(exe, d, d + ".ids", d + ".mtp")
    return np.fromfile(d + ".mtp", np.float32).reshape(len(ids) - 1, -1)


def log_softmax(z):
    z = z.astype(np.float64) - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def one(build, fmt, arch, seed, tmp):
    words, files, written = folder(fmt, arch, seed)
    d = f"{tmp}/m"
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    for f, b in written.items():
        open(f"{d}/{f}", "wb").write(b)
    c, v = make_quants.values(fmt, files)
    value = {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in v.items()}
    ids = np.random.default_rng(zlib.crc32(f"{fmt}{arch}{seed}".encode())).integers(
        3, c["vocab_size"], T_KL).tolist()
    exact, hidden, _ = tiny_hf.reference(dict(config=c),
                                         value, tmp + "/f64", [ids[:T]], torch.float64)
    z = exact[0]
    std = z.std()
    diff = np.abs(logits(build, d, ids[:T], "f32") - z).max() / std
    mtp = None
    if c.get("num_nextn_predict_layers"):
        got = mtp_logits(build, d, ids[:T])
        if got is not None:
            want = mtp_ref.forward(c, value, c["num_hidden_layers"], ids[:T], hidden[0])
            mtp = np.abs(got - want).max() / std
    p, s = (log_softmax(logits(build, d, ids, a)) for a in ("f32", "auto"))
    kl = float((np.exp(p) * (p - s)).sum(-1).mean())
    ok = diff <= BAR and (mtp is None or mtp <= BAR) and kl <= BAR_KL and std > .3
    print(("ok   " if ok else "BAD  ") + f"{fmt}.{arch} {seed}: f32 {diff:.1e}"
          + ("" if mtp is None else f", MTP {mtp:.1e}") +
          f", KL {kl:.1e}, {len(written)} files, {words}", flush=True)
    return ok


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--only", default="")
    ap.add_argument("--keep")
    a = ap.parse_args()
    bad = n = 0
    with tempfile.TemporaryDirectory() as tmp:
        for seed in range(a.seed, a.seed + a.rounds):
            for fmt in FORMATS:
                for arch in q.ARCH:
                    if a.only and fmt not in a.only.split(","):
                        continue
                    n += 1
                    try:
                        good = one(os.path.abspath(a.build), fmt, arch, seed, tmp)
                    except RuntimeError as e:
                        print(f"BAD  {fmt}.{arch} {seed}: {e} ({folder(fmt, arch, seed)[0]})",
                              flush=True)
                        good = False
                    bad += not good
                    if not good and a.keep:
                        shutil.copytree(tmp + "/m",
                                        f"{a.keep}/{fmt}.{arch}.{seed}", dirs_exist_ok=True)
    print(f"fresh: {n - bad} good, {bad} bad")
    sys.exit(bad > 0 or n == 0)


if __name__ == "__main__":
    main()
