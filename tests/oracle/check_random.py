#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits of checkpoints drawn at random, every architecture, against transformers' (fp32, eager).

  check_random.py [BUILD] [--number 60] [--seed 1] [--arch NAME] [-v]

Widths, heads, ranks, experts, layers, rope scaling, both spellings of config.json, dtypes, shards,
tied heads and biases are drawn; every one is run as a folder and as a GGUF file (plain, split, or
with the old kv_b). Bar: that of check_logits.py. The command that makes one again is printed with
what fails. Run it with the Python of tests/oracle/venv.sh.
"""
import argparse
import json
import os
import random
import sys
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

import numpy as np
import torch
import transformers

import e2e
import runs
import tiny_gguf
import tiny_hf
import tiny_tok
from tiny_specs import base

# of the deviation; a reference less certain than NOISE (a route on the edge) is drawn again
BAR, NOISE = 1e-4, 5e-5


def rope(r, c, kinds):
    """Rope of a random kind, spelled in one of the two ways."""
    theta, kind = r.choice([10000.0, 500000.0, 1000000]), r.choice(kinds)
    old = r.choice([32, 64, 128])
    more = {}
    if kind == "llama3":
        more = dict(factor=r.choice([2.0, 8.0, 32.0]),
                    low_freq_factor=1.0, high_freq_factor=r.choice([2.0, 4.0]),
                    original_max_position_embeddings=old)
    elif kind == "linear":
        more = dict(factor=r.choice([2.0, 4.0]))
    elif kind == "yarn":
        more = dict(factor=r.choice([2.0, 4.0, 40.0]),
                    beta_fast=r.choice([32, 16]), beta_slow=1, original_max_position_embeddings=old)
        if "kv_lora_rank" in c:
            more.update(r.choice([dict(mscale=1.0, mscale_all_dim=1.0),
                                  dict(mscale=0.707, mscale_all_dim=0.707)]))
    if r.random() < 0.5:
        c["rope_parameters"] = dict(rope_type=kind, rope_theta=theta, **more)
    else:
        c["rope_theta"] = theta
        c["rope_scaling"] = dict({r.choice(["type", "rope_type"]): kind}, **more) if more else None


def gqa(r, arch, kind, even=False, **kw):
    kv = r.choice([1, 2, 3, 4])
    heads = kv * r.choice([1, 2, 3, 4, 7])
    d = 8 * r.randint(2, 9)
    c = base(arch, kind, num_attention_heads=heads, num_key_value_heads=kv,
             head_dim=d, hidden_size=heads * r.randint(32 // heads + 1, 160 // heads + 1),
             intermediate_size=2 * r.randint(20, 130),
             num_hidden_layers=r.randint(1, 3), rms_norm_eps=r.choice([1e-5, 1e-6]),
             tie_word_embeddings=r.random() < 0.4, vocab_size=r.choice([320, 333, 352]), **kw)
    if even:  # Qwen2's config has no head_dim
        del c["head_dim"]
        c["hidden_size"] = heads * d
    return c


def llama(r):
    c = gqa(r, "LlamaForCausalLM", "llama", attention_bias=r.random() < 0.3, mlp_bias=False)
    rope(r, c, ["default", "llama3", "linear"])
    return c, "llama-bpe"


def mistral(r):
    c = gqa(r, "MistralForCausalLM", "mistral", sliding_window=None)
    rope(r, c, ["default"])
    return c, "llama-bpe"


def qwen2(r):
    c = gqa(r, "Qwen2ForCausalLM", "qwen2", even=True,
            use_sliding_window=False, sliding_window=None, max_window_layers=2)
    rope(r, c, ["default", "yarn"])
    return c, "qwen2"


def qwen3(r):
    c = gqa(r, "Qwen3ForCausalLM", "qwen3", attention_bias=r.random() < 0.3,
            use_sliding_window=False, sliding_window=None, max_window_layers=2)
    rope(r, c, ["default", "yarn"])
    return c, "qwen2"


def qwen3_moe(r):
    n = r.randint(2, 24)
    c = gqa(r, "Qwen3MoeForCausalLM", "qwen3_moe",
            attention_bias=r.random() < 0.3, use_sliding_window=False, sliding_window=None,
            decoder_sparse_step=1, mlp_only_layers=[],
            moe_intermediate_size=4 * r.randint(4, 20), num_experts_per_tok=r.randint(1, min(n, 9)),
            norm_topk_prob=r.random() < 0.7)
    c[r.choice(["num_experts", "num_local_experts"])] = n
    if r.random() < 0.3:
        c.update(num_hidden_layers=3, mlp_only_layers=[r.randint(0, 2)])
    rope(r, c, ["default", "yarn"])
    return c, "qwen2"


def deepseek(r, v):
    groups, per = r.choice([1, 1, 2, 4]), r.randint(2, 6)
    used = r.randint(1, groups)
    heads = r.choice([1, 2, 3, 4, 8, 16])
    c = base(f"DeepseekV{v}ForCausalLM", f"deepseek_v{v}",
             attention_bias=False, hidden_size=heads * r.randint(32 // heads + 1, 160 // heads + 1),
             intermediate_size=2 * r.randint(20, 130),
             moe_intermediate_size=4 * r.randint(3, 16), num_hidden_layers=r.randint(1, 3),
             num_attention_heads=heads, num_key_value_heads=heads,
             n_shared_experts=r.randint(1, 2), n_routed_experts=groups * per,
             num_experts_per_tok=r.randint(1, used * per),
             routed_scaling_factor=r.choice([1.0, 2.5, 16.0]), kv_lora_rank=8 * r.randint(2, 10),
             q_lora_rank=r.choice([None, 8 * r.randint(2, 9)]),
             qk_rope_head_dim=8 * r.randint(1, 4), v_head_dim=8 * r.randint(1, 6),
             qk_nope_head_dim=8 * r.randint(1, 6),
             n_group=groups, topk_group=used, moe_layer_freq=1, norm_topk_prob=r.random() < 0.5,
             vocab_size=r.choice([320, 333]))
    c["first_k_dense_replace"] = r.randint(0, c["num_hidden_layers"])
    if v == 3:
        c.update(topk_method="noaux_tc", scoring_func="sigmoid", num_nextn_predict_layers=0)
    else:
        c.update(topk_method="greedy" if groups == 1 else "group_limited_greedy",
                 scoring_func="softmax", norm_topk_prob=False)
    rope(r, c, ["default", "yarn"])
    return c, "deepseek-v3" if v == 3 else "deepseek-llm"


ARCHS = {"llama": llama, "mistral": mistral, "qwen2": qwen2, "qwen3": qwen3, "qwen3_moe": qwen3_moe,
         "deepseek_v2": lambda r: deepseek(r, 2), "deepseek_v3": lambda r: deepseek(r, 3)}


def dtype_key(r, c, dtype):
    c[r.choice(["torch_dtype", "dtype"])] = {"F32": "float32",
                                             "BF16": "bfloat16", "F16": "float16"}[dtype]


def fits_gguf(c):
    """Whether tiny_gguf.py writes this one: yarn of models without MLA, linear scaling and biases
    of Qwen3 are left to folders."""
    rp = dict(c.get("rope_scaling") or {}, **(c.get("rope_parameters") or {}))
    kind = rp.get("rope_type", rp.get("type"))
    if kind == "yarn":
        return "mscale_all_dim" in rp
    if c["model_type"].startswith("qwen3") and c["attention_bias"]:
        return False
    return kind != "linear" and not c.get("mlp_only_layers")


def judge(z, want, std):
    if z.shape != want.shape:
        return f"shape {z.shape}, not {want.shape}"
    d = float(np.abs(z - want).max()) / std
    top = np.sort(want, -1)
    clear = top[:, -1] - top[:, -2] > 2e-4 * std
    wrong = int((z.argmax(-1) != want.argmax(-1))[clear].sum())
    return (None if d <= BAR and not wrong
            else f"differs by {d:.2e} of the deviation, argmax at {wrong} positions")


def one(exe, tmp, arch, seed, tally, verbose):
    r = random.Random(f"{arch} {seed}")
    c, tok = ARCHS[arch](r)
    spec = dict(config=c, dtype=r.choice(["F32", "BF16", "F16"]),
                tok=tok, shards=r.choice([1, 1, 2, 3]))
    dtype_key(r, c, spec["dtype"])
    name, folder = f"{arch}-{seed}", tmp + "/m"
    value = tiny_hf.write_folder(folder, spec, tiny_hf.weights(name, spec))
    tiny_tok.write_folder(folder, tok)
    ids = np.random.default_rng(zlib.crc32(name.encode())).integers(
        3, c["vocab_size"], r.choice([5, 40, 150])).tolist()
    z, _, _ = tiny_hf.reference(spec, value, tmp + "/f32", [ids])
    exact, _, _ = tiny_hf.reference(spec, value, tmp + "/f64", [ids], torch.float64)
    std = float(z[0].std())
    if not np.isfinite(std) or float(np.abs(z[0] - exact[0]).max()) / std > NOISE:
        return False
    models = [("folder", folder)]
    if fits_gguf(c):
        kind = r.choice(["plain", "split"] + (["legacy"] if "kv_lora_rank" in c else []))
        tiny_gguf.write(tmp + "/g.gguf", name, spec, {n: t.numpy() for n, t in value.items()},
                        tiny_tok.gguf_keys(tok, c["vocab_size"]),
                        legacy=kind == "legacy", split=9 if kind == "split" else 0)
        path = tmp + "/g.gguf" if kind != "split" else next(
            os.path.join(tmp, f) for f in sorted(os.listdir(tmp)) if f.startswith("g-00001"))
        models.append(("gguf " + kind, path))
    for what, path in models:
        try:
            bad = judge(runs.logits(exe, path, ids, "--acts", "f32", "-t", "2"), z[0], std)
        except RuntimeError as e:
            bad = str(e)
        tally.check(f"{name} {what}", f"{bad}\n  again: check_random.py --arch {arch} --seed "
                                      f"{seed} --number 1\n  {json.dumps(c)}" if bad else None)
        if verbose:
            print(f"{name:18s} {what:14s} {'BAD' if bad else 'good'}", flush=True)
    return True


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build", nargs="?", default="build")
    ap.add_argument("--number", type=int, default=60)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--arch", choices=ARCHS)
    ap.add_argument("-v", action="store_true")
    a = ap.parse_args()
    sys.argv[1:] = [a.build]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    exe, tally, drawn = e2e.sluice(), e2e.Tally("random checkpoints"), 0
    archs = [a.arch] if a.arch else list(ARCHS)
    for k in range(a.number):
        with tempfile.TemporaryDirectory() as tmp:
            drawn += not one(exe, tmp, archs[k % len(archs)], a.seed + k // len(archs), tally, a.v)
    print(f"{drawn} of {a.number} left out: the reference itself is not certain")
    tally.exit()


if __name__ == "__main__":
    main()
