# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints made from a seed, as folders and GGUF files, and what they compute, in float64
and python3's own library: for checks of what a configuration means. tests/oracle/check_tinymodel.py
holds forward() against transformers.
"""
import array
import json
import math
import os
import random
import struct

import badgguf
import badhf

V, D, F, E = 64, 32, 24, 6


def config(arch, **kw):
    """llama, mistral, qwen2, qwen3, qwen3_moe, deepseek_v2 or deepseek_v3."""
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2",
            "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "deepseek_v2": "DeepseekV2",
            "deepseek_v3": "DeepseekV3"}[arch]
    c = dict(architectures=[name + "ForCausalLM"], model_type=arch,
             hidden_size=D, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, hidden_act="silu",
             rms_norm_eps=1e-6, rope_theta=100.0, max_position_embeddings=256, vocab_size=V,
             bos_token_id=0, eos_token_id=1, tie_word_embeddings=False, attention_bias=False)
    if arch == "mistral":
        c["sliding_window"] = None
    if arch == "qwen3_moe":
        c.update(num_experts=E, num_experts_per_tok=2, moe_intermediate_size=F,
                 norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    if arch.startswith("deepseek"):
        v3 = arch == "deepseek_v3"
        del c["head_dim"]
        c.update(num_key_value_heads=2, kv_lora_rank=16, q_lora_rank=24,
                 qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=E,
                 n_shared_experts=1, num_experts_per_tok=2, moe_intermediate_size=F,
                 first_k_dense_replace=1, norm_topk_prob=v3, moe_layer_freq=1,
                 routed_scaling_factor=2.5 if v3 else 1.0,
                 n_group=2 if v3 else 1, topk_group=1, scoring_func="sigmoid" if v3 else "softmax",
                 topk_method="noaux_tc" if v3 else "greedy")
    c.update(kw)
    return {k: v for k, v in c.items() if v != "DROP"}


def f32(values):
    return list(array.array("f", values))


def is_moe(c, i):
    if "kv_lora_rank" in c:
        return i >= c["first_k_dense_replace"]
    return c["model_type"] == "qwen3_moe" and i not in c["mlp_only_layers"]


def weights(c, seed=1, gain=1.3):
    """name -> (shape, values)"""
    r, w = random.Random(seed), {}
    heads, d = c["num_attention_heads"], c.get("head_dim", 0)

    def mat(n, rows, cols, g=gain):
        w[n] = ((rows, cols), f32(r.gauss(0, g / cols**.5) for _ in range(rows * cols)))

    def vec(n, size, mean=1.0, std=.2):
        w[n] = ((size,), f32(r.gauss(mean, std) for _ in range(size)))

    def mlp(p, wide):
        mat(p + "gate_proj.weight", wide, D)
        mat(p + "up_proj.weight", wide, D)
        mat(p + "down_proj.weight", D, wide)
    mat("model.embed_tokens.weight", V, D, D**.5)
    vec("model.norm.weight", D)
    if not c["tie_word_embeddings"]:
        mat("lm_head.weight", V, D)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        vec(p + "input_layernorm.weight", D)
        vec(p + "post_attention_layernorm.weight", D)
        if "kv_lora_rank" in c:
            q, kv, nope, rope, v = (c[k] for k in ("q_lora_rank", "kv_lora_rank",
                                                   "qk_nope_head_dim",
                                                   "qk_rope_head_dim", "v_head_dim"))
            # latents so small that their norm's epsilon counts
            mat(a + "q_a_proj.weight", q, D, .01)
            vec(a + "q_a_layernorm.weight", q)
            mat(a + "q_b_proj.weight", heads * (nope + rope), q)
            mat(a + "kv_a_proj_with_mqa.weight", kv + rope, D, .01)
            vec(a + "kv_a_layernorm.weight", kv)
            mat(a + "kv_b_proj.weight", heads * (nope + v), kv)
            mat(a + "o_proj.weight", D, heads * v)
        else:
            for n, h in (("q", heads), ("k", c["num_key_value_heads"]),
                         ("v", c["num_key_value_heads"])):
                mat(a + n + "_proj.weight", h * d, D)
                if c["model_type"] == "qwen2":
                    vec(a + n + "_proj.bias", h * d, 0, .3)
            mat(a + "o_proj.weight", D, heads * d)
            if c["model_type"].startswith("qwen3"):
                vec(a + "q_norm.weight", d)
                vec(a + "k_norm.weight", d)
        if not is_moe(c, i):
            mlp(p + "mlp.", c["intermediate_size"])
            continue
        mat(p + "mlp.gate.weight", E, D, 2.0)
        for e in range(E):
            mlp(f"{p}mlp.experts.{e}.", F)
        if "kv_lora_rank" in c:
            mlp(p + "mlp.shared_experts.", F * c["n_shared_experts"])
            if c["model_type"] == "deepseek_v3":
                vec(p + "mlp.gate.e_score_correction_bias", E, 1, .2)
    return w


# ---- what it computes ----

def dot(a, b):
    return sum(map(float.__mul__, a, b))


class Net:
    def __init__(self, c, w, inv_freq=None, mscale=1.0, windows=None, scale=None):
        self.c, self.windows, self.mscale, self.w = c, windows, mscale, {}
        for n, (shape, x) in w.items():
            self.w[n] = [x[i * shape[1]:(i + 1) * shape[1]]
                         for i in range(shape[0])] if len(shape) == 2 else x
        mla = "kv_lora_rank" in c
        self.n_rot = c["qk_rope_head_dim"] if mla else c["head_dim"]
        self.freq = inv_freq or [c["rope_theta"]**(-2 * i / self.n_rot)
                                 for i in range(self.n_rot // 2)]
        self.scale = scale or ((c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
                               if mla else c["head_dim"])**-.5

    def lin(self, n, x):
        b = self.w.get(n + ".bias")
        y = [dot(row, x) for row in self.w[n + ".weight"]]
        return [u + v for u, v in zip(y, b)] if b else y

    def norm(self, n, x, eps=None):
        s = (dot(x, x) / len(x) + (self.c["rms_norm_eps"] if eps is None else eps))**-.5
        return [v * s * g for v, g in zip(x, self.w[n + ".weight"])]

    def turn(self, x, pos, pairs):
        """Of the head x: halves, or neighbours."""
        n, y = self.n_rot // 2, list(x)
        for i, f in enumerate(self.freq):
            a, b = (2 * i, 2 * i + 1) if pairs else (i, i + n)
            cos, sin = math.cos(pos * f) * self.mscale, math.sin(pos * f) * self.mscale
            y[a], y[b] = x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin
        return y

    def heads(self, p, x, pos):
        """(q, k, v) of one token, each a list of heads."""
        c, h = self.c, self.c["num_attention_heads"]
        if "kv_lora_rank" in c:
            nope, rope, v, r = c["qk_nope_head_dim"], c[
                "qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
            q = self.lin(p + "q_b_proj",
                         self.norm(p + "q_a_layernorm", self.lin(p + "q_a_proj", x), 1e-6))
            kv = self.lin(p + "kv_a_proj_with_mqa", x)
            b = self.lin(p + "kv_b_proj", self.norm(p + "kv_a_layernorm", kv[:r], 1e-6))
            key = self.turn(kv[r:], pos, True)
            q = [q[i * (nope + rope):(i + 1) * (nope + rope)] for i in range(h)]
            b = [b[i * (nope + v):(i + 1) * (nope + v)] for i in range(h)]
            return [t[:nope] + self.turn(t[nope:], pos, True)
                    for t in q], [t[:nope] + key for t in b], [t[nope:] for t in b]
        d, out = c["head_dim"], []
        for n in "qkv":
            y = self.lin(f"{p}{n}_proj", x)
            y = [y[i:i + d] for i in range(0, len(y), d)]
            if n != "v" and f"{p}{n}_norm.weight" in self.w:
                y = [self.norm(f"{p}{n}_norm", t) for t in y]
            out.append(y if n == "v" else [self.turn(t, pos, False) for t in y])
        return out

    def attention(self, i, xs):
        p, h, out = f"model.layers.{i}.self_attn.", self.c["num_attention_heads"], []
        qkv = [self.heads(p, x, t) for t, x in enumerate(xs)]
        window = self.windows[i] if self.windows else 0
        for t in range(len(xs)):
            y = []
            for k in range(h):
                g = k * len(qkv[0][1]) // h
                first = max(0, t - window + 1) if window else 0
                s = [dot(qkv[t][0][k], qkv[j][1][g]) * self.scale for j in range(first, t + 1)]
                top = max(s)
                s = [math.exp(v - top) for v in s]
                y += [sum(s[j - first] * qkv[j][2][g][n] for j in range(first, t + 1)) / sum(s)
                      for n in range(len(qkv[0][2][0]))]
            out.append(self.lin(p + "o_proj", y))
        return out

    def mlp(self, p, x):
        g, u = self.lin(p + "gate_proj", x), self.lin(p + "up_proj", x)
        return self.lin(p + "down_proj", [a / (1 + math.exp(-a)) * b for a, b in zip(g, u)])

    def route(self, p, x):
        """[(expert, weight)]"""
        c, z = self.c, self.lin(p + "gate", x)
        if c["model_type"] == "deepseek_v3":
            s = [1 / (1 + math.exp(-v)) for v in z]
            b = [v + g for v, g in zip(s, self.w[p + "gate.e_score_correction_bias"])]
            n = E // c["n_group"]
            best = sorted(range(c["n_group"]),
                          key=lambda g: -sum(sorted(b[g * n:g * n + n])[-2:]))[:c["topk_group"]]
            pick = sorted((e for e in range(E) if e // n in best), key=lambda e: -b[e])
        else:
            top = max(z)
            s = [math.exp(v - top) for v in z]
            s = [v / sum(s) for v in s]
            pick = sorted(range(E), key=lambda e: -s[e])
        pick = pick[:c["num_experts_per_tok"]]
        total = sum(s[e] for e in pick) if c["norm_topk_prob"] and c[
            "model_type"] != "deepseek_v2" else 1
        return [(e, s[e] / total * c.get("routed_scaling_factor", 1)) for e in pick]

    def ffn(self, i, x):
        p = f"model.layers.{i}.mlp."
        if not is_moe(self.c, i):
            return self.mlp(p, x)
        y = self.mlp(p + "shared_experts.",
                     x) if p + "shared_experts.up_proj.weight" in self.w else [0.0] * D
        for e, g in self.route(p, x):
            y = [a + g * b for a, b in zip(y, self.mlp(f"{p}experts.{e}.", x))]
        return y

    def forward(self, ids):
        xs = [list(self.w["model.embed_tokens.weight"][t]) for t in ids]
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            ys = self.attention(i, [self.norm(p + "input_layernorm", x) for x in xs])
            xs = [[a + b for a, b in zip(x, y)] for x, y in zip(xs, ys)]
            ys = [self.ffn(i, self.norm(p + "post_attention_layernorm", x)) for x in xs]
            xs = [[a + b for a, b in zip(x, y)] for x, y in zip(xs, ys)]
        head = self.w.get("lm_head.weight") or self.w["model.embed_tokens.weight"]
        return [[dot(row, x) for row in head] for x in (self.norm("model.norm", x) for x in xs)]


def ids(n, seed=3):
    r = random.Random(seed)
    return [r.randrange(2, V) for _ in range(n)]


def distance(got, want):
    """Largest difference over the deviation of what is right."""
    flat = [v for row in want for v in row]
    mean = sum(flat) / len(flat)
    std = (sum((v - mean)**2 for v in flat) / len(flat))**.5
    return max(abs(a - b) for a, b in zip(got, flat)) / std if len(got) == len(flat) else math.inf


# ---- files ----

def safetensors(w):
    return badhf.pack(*badhf.entries({n: [list(shape), struct.pack(f"<{len(x)}f", *x)] for n,
                                      (shape, x) in w.items()}))


def write(path, files):
    os.makedirs(path, exist_ok=True)
    for n, b in files.items():
        with open(os.path.join(path, n), "wb") as f:
            f.write(b if isinstance(b, bytes) else json.dumps(b).encode())
    return path


def folder(path, c, w, **more):
    return write(path, {"config.json": c, "model.safetensors": safetensors(w), **more})


HF_TO_GGUF = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
              "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
              "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
              "self_attn.q_b_proj": "attn_q_b",
              "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
              "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
              "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
              "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
              "mlp.shared_experts.up_proj": "ffn_up_shexp",
              "mlp.shared_experts.down_proj": "ffn_down_shexp"}


def gguf_tensors(c, w):
    """name -> (shape, values), experts stacked, llama's rows in GGUF's order."""
    out = {}

    def pairs(x, shape, heads):
        rows, cols = shape[0], len(x) // shape[0]
        d = rows // heads
        order = [h * d + i % 2 * (d // 2) + i // 2 for h in range(heads) for i in range(d)]
        return [v for r in order for v in x[r * cols:(r + 1) * cols]]
    for n, (shape, x) in w.items():
        if not n.startswith("model.layers."):
            out[{"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight":
                     "output_norm.weight", "lm_head.weight": "output.weight"}[n]] = (shape, x)
            continue
        _, _, layer, rest = n.split(".", 3)
        if rest == "mlp.gate.e_score_correction_bias":
            out[f"blk.{layer}.exp_probs_b.bias"] = (shape, x)
            continue
        base, tail = rest.rsplit(".", 1)
        if base.startswith("mlp.experts."):
            kind = base.rsplit(".", 1)[1].removesuffix("_proj")
            name = f"blk.{layer}.ffn_{kind}_exps.weight"
            old = out.get(name, ((0, *shape), []))
            out[name] = ((old[0][0] + 1, *shape), old[1] + x)
            continue
        if c["model_type"] in ("llama",
                               "mistral") and base in ("self_attn.q_proj", "self_attn.k_proj"):
            x = pairs(x, shape,
                      c["num_attention_heads" if "q_proj" in base else "num_key_value_heads"])
        out[f"blk.{layer}.{HF_TO_GGUF[base]}.{tail}"] = (shape, x)
    return out


def gguf_keys(c):
    """[(key without its architecture, type, value)]"""
    g = badgguf
    k = [("block_count", g.U32, c["num_hidden_layers"]),
         ("context_length", g.U32, c["max_position_embeddings"]), ("embedding_length", g.U32, D),
         ("feed_forward_length", g.U32, c["intermediate_size"]),
         ("attention.head_count", g.U32, c["num_attention_heads"]),
         ("attention.layer_norm_rms_epsilon", g.F32, c["rms_norm_eps"]),
         ("rope.freq_base", g.F32, c["rope_theta"]), ("vocab_size", g.U32, V)]
    if "kv_lora_rank" in c:
        r, rope, nope, v = c["kv_lora_rank"], c["qk_rope_head_dim"], c[
            "qk_nope_head_dim"], c["v_head_dim"]
        v3 = c["model_type"] == "deepseek_v3"
        k += [("attention.head_count_kv", g.U32, c["num_attention_heads"]),
              ("attention.key_length", g.U32, nope + rope), ("attention.value_length", g.U32, v),
              ("attention.kv_lora_rank", g.U32, r), ("attention.q_lora_rank", g.U32, c[
                  "q_lora_rank"]), ("rope.dimension_count", g.U32, rope),
              ("leading_dense_block_count", g.U32, c["first_k_dense_replace"]),
              ("expert_shared_count", g.U32, c["n_shared_experts"]),
              ("expert_weights_scale", g.F32, c["routed_scaling_factor"]),
              ("expert_weights_norm", g.BOOL, v3), ("expert_gating_func", g.U32, 2 if v3 else 1),
              ("expert_group_count", g.U32, c["n_group"]),
              ("expert_group_used_count", g.U32, c["topk_group"])]
    else:
        k += [("attention.head_count_kv", g.U32, c["num_key_value_heads"]),
              ("attention.key_length", g.U32, c["head_dim"]),
              ("attention.value_length", g.U32, c["head_dim"]),
              ("rope.dimension_count", g.U32, c["head_dim"])]
    if "num_experts_per_tok" in c:
        k += [("expert_count", g.U32, E), ("expert_used_count", g.U32, c["num_experts_per_tok"]),
              ("expert_feed_forward_length", g.U32, F)]
    return k


def gguf(path, c, w, keys=(), drop=(), tensors=None):
    """keys: more of them, as gguf_keys; drop: keys to leave out; tensors: instead of
    gguf_tensors(c, w), values or (type, bytes)."""
    g = badgguf.Gguf()
    arch = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2",
            "qwen3": "qwen3", "qwen3_moe": "qwen3moe"}.get(c["model_type"], "deepseek2")
    g.keys = [["general.architecture", badgguf.STR, arch]]
    g.keys += [[n if n.startswith("general.") else f"{arch}.{n}", t, v] for n,
               t, v in [*gguf_keys(c), *keys] if n not in drop]
    g.tensors = []
    for n, (shape, x) in (tensors or gguf_tensors(c, w)).items():
        kind, data = x if isinstance(x, tuple) else (0, struct.pack(f"<{len(x)}f", *x))
        g.tensors.append([n, list(reversed(shape)), kind, data])
    with open(path, "wb") as f:
        f.write(g.bytes())
    return path
