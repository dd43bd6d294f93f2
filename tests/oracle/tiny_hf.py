# SPDX-License-Identifier: Apache-2.0
"""Random weights of a spec by checkpoint name, and Hugging Face folders of them."""
import json
import os
import types
import zlib

import numpy as np
import torch
from safetensors.torch import save_file

import tiny_gemma
import tiny_v4

TORCH = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def text_config(c):
    """Where the language model's numbers are: in a member of its own where there is more."""
    return c.get("text_config", c)


def is_ling(c):
    return c["model_type"] == "bailing_hybrid"


def is_glm5(c):
    return c["model_type"] == "glm5_next_text"


def usual(c):
    """Kimi-Linear's, Ling's and GLM-5.3's configurations in the words of others."""
    if is_glm5(c):
        c, part = dict(c), c.get("linear_attn_config", {})
        for own, name in (("num_heads", "linear_num_heads"), ("head_dim", "linear_head_dim"),
                          ("short_conv_kernel_size", "linear_conv_kernel_dim"),
                          ("gate_lower_bound", "linear_lower_bound")):
            if own in part:
                c[name] = part[own]
        c["layer_types"] = [t if t == "linear_attention" else "full_attention"
                            for t in c["layer_types"]]
        return c
    if is_ling(c):
        c = dict(c)
        c.setdefault("linear_num_heads", c["num_attention_heads"])
        c.setdefault("linear_head_dim", c["head_dim"])
        c.setdefault("linear_conv_kernel_dim", c.get("short_conv_kernel_size"))
        every = c.get("layer_group_size")
        c.setdefault("layer_types", ["full_attention" if (i + 1) % every == 0
                                     else "linear_attention"
                                     for i in range(c["num_hidden_layers"])] if every else None)
        c.setdefault("n_shared_experts", c.get("num_shared_experts"))
        c.setdefault("n_routed_experts", n_expert(c))
        return c
    if c["model_type"] != "kimi_linear":
        return c
    c, part = dict(c), c.get("linear_attn_config", {})
    for own, name in (("num_experts_per_token", "num_experts_per_tok"),
                      ("num_shared_experts", "n_shared_experts"), ("num_expert_group", "n_group"),
                      ("moe_renormalize", "norm_topk_prob"),
                      ("model_max_length", "max_position_embeddings")):
        if own in c:
            c[name] = c[own]
    for own, name in (("num_heads", "linear_num_heads"), ("head_dim", "linear_head_dim"),
                      ("short_conv_kernel_size", "linear_conv_kernel_dim")):
        if own in part:
            c[name] = part[own]
    if part:
        c["layer_types"] = ["linear_attention" if i + 1 in part["kda_layers"] else "full_attention"
                            for i in range(c["num_hidden_layers"])]
    return c


def is_kda(c, i):
    return ("linear_num_heads" in c and i < len(c["layer_types"])
            and c["layer_types"][i] == "linear_attention")


def n_expert(c):
    return c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts") or 0


def is_moe(c, i):
    if c["model_type"] == "qwen3_moe":
        return i not in c["mlp_only_layers"] and (i + 1) % c["decoder_sparse_step"] == 0
    if isinstance(c.get("moe_layer_freq"), list):
        return c["moe_layer_freq"][i] == 1
    if "first_k_dense_replace" in c:
        return i >= c["first_k_dense_replace"]
    if "mlp_layer_types" in c:
        return i >= len(c["mlp_layer_types"]) or c["mlp_layer_types"][i] == "sparse"
    return c["model_type"] in ("minimax_m2", "gpt_oss", "qwen3_next", "qwen3_5_moe_text")


def has_delta(c):
    return "linear_num_value_heads" in c


def is_delta(c, i):
    if not has_delta(c) or i >= c["num_hidden_layers"]:
        return False
    types = c.get("layer_types")
    if types:
        return types[i] == "linear_attention"
    return (i + 1) % c["full_attention_interval"] != 0


def is_m3(c):
    return c["model_type"] == "minimax_m3_vl_text"


def has_blocks(c, i):
    """Has the layer an indexer that chooses blocks?"""
    if not is_m3(c):
        return False
    if "layer_types" in c:
        return c["layer_types"][i] == "minimax_m3_sparse"
    return c["sparse_attention_config"]["sparse_attention_freq"][i] == 1


def blocks_of(c):
    """(heads, width, positions of a block, blocks that are chosen, the last ones among them)"""
    s = c.get("sparse_attention_config", {})
    keys = (("num_index_heads", "n_heads"), ("index_dim", "head_dim"),
            ("block_size", "block_size"), ("topk_blocks", "topk_blocks"),
            ("local_block", "local_blocks"))
    return tuple(s.get("sparse_" + a) or c["index_" + b] for a, b in keys)


def less_one(c):
    """Are weights of norms stored less 1?"""
    return has_delta(c) or is_m3(c)


def has_index(c, i):
    """Has the layer a lightning indexer of its own?"""
    types = c.get("indexer_types") or []
    return "index_topk" in c and not is_kda(c, i) and (i >= len(types) or types[i] == "full")


def layer_name(c, i):
    """What names of the layer begin with; MTP layers come after the others."""
    n = c["num_hidden_layers"]
    return f"mtp.layers.{i - n}." if has_delta(c) and i >= n else f"model.layers.{i}."


def is_f32(spec, n):
    """Is it stored in F32, whatever the matrices are?"""
    if tiny_v4.is_v4(text_config(spec["config"])):
        return tiny_v4.is_f32(n)
    return "e_score_correction_bias" in n or any(k in n for k in spec.get("f32", ()))


def d_expert(c):
    return c.get("moe_intermediate_size") or c["intermediate_size"]


def moe_names(c):
    """(module of the experts and the router, name of the router's bias, gate, up, down)"""
    if c["model_type"] == "minimax_m2" or is_m3(c):
        return "block_sparse_moe.", "e_score_correction_bias", ("w1", "w3", "w2")
    if c["model_type"] == "kimi_linear":
        return "block_sparse_moe.", "gate.e_score_correction_bias", ("w1", "w3", "w2")
    return "mlp.", "gate.e_score_correction_bias", ("gate_proj", "up_proj", "down_proj")


def router_name(c):
    return "router" if c["model_type"] == "gpt_oss" else "gate"


def has_router_bias(c):
    return c.get("topk_method") == "noaux_tc" or c["model_type"] in ("glm4_moe", "glm4_moe_lite",
                                                                     "minimax_m2",
                                                                     "minimax_m3_vl_text",
                                                                     "kimi_linear",
                                                                     "bailing_hybrid")


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


def weights(name, spec):
    """name -> f32 tensor whose values the spec's dtype holds exactly. FP8 comes later."""
    c = usual(text_config(spec["config"]))
    g = torch.Generator().manual_seed(zlib.crc32(name.encode()) & 0x7fffffff)
    dt = TORCH[spec["dtype"]]
    out = {}
    D = c["hidden_size"]
    less = 1.0 if less_one(c) else 0.0  # weights of norms are stored less 1

    def mat(n, rows, cols, gain=1.0, dtype=dt):
        w = torch.randn(rows, cols, generator=g) * (gain / cols**0.5)
        out[n] = w.to(dtype).float()

    def vec(n, size, mean=1.0, std=0.1, dtype=dt):
        out[n] = (mean + std * torch.randn(size, generator=g)).to(dtype).float()

    def mlp(p, rows, names=("gate_proj", "up_proj", "down_proj")):
        mat(f"{p}{names[0]}.weight", rows, D, 1.5)
        mat(f"{p}{names[1]}.weight", rows, D, 1.5)
        mat(f"{p}{names[2]}.weight", D, rows, 1.5)

    def attn_gqa(p):
        h, kv, d = c["num_attention_heads"], c["num_key_value_heads"], head_dim(c)
        mat(p + "q_proj.weight", (2 if has_delta(c) else 1) * h * d, D, 2.0)
        mat(p + "k_proj.weight", kv * d, D, 1.5)
        mat(p + "v_proj.weight", kv * d, D)
        mat(p + "o_proj.weight", D, h * d)
        if c["model_type"] == "qwen2" or c.get("attention_bias"):
            for n, r in (("q", h), ("k", kv), ("v", kv)):
                vec(p + n + "_proj.bias", r * d, 0.0, 0.5)
        if c.get("attention_bias") and c["model_type"] != "glm4_moe":
            vec(p + "o_proj.bias", D, 0.0, 0.5)
        if c["model_type"] == "gpt_oss":
            vec(p + "sinks", h, 0.0, 1.0)
        if c["model_type"] == "minimax_m2":
            vec(p + "q_norm.weight", h * d, 1.5)
            vec(p + "k_norm.weight", kv * d, 1.2)
        elif c["model_type"].startswith("qwen3") or c.get("use_qk_norm"):
            vec(p + "q_norm.weight", d, 1.5 - less)
            vec(p + "k_norm.weight", d, 1.2 - less)

    def attn_delta(p):
        nk, nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        v, qkv = nv * dv, 2 * nk * dk + nv * dv
        if c["model_type"] == "qwen3_next":
            mat(p + "in_proj_qkvz.weight", qkv + v, D, 1.5)
            mat(p + "in_proj_ba.weight", 2 * nv, D)
        else:
            mat(p + "in_proj_qkv.weight", qkv, D, 1.5)
            mat(p + "in_proj_z.weight", v, D, 1.5)
            mat(p + "in_proj_b.weight", nv, D)
            mat(p + "in_proj_a.weight", nv, D)
        mat(p + "conv1d.weight", qkv, c["linear_conv_kernel_dim"], 1.5)
        out[p + "conv1d.weight"] = out[p + "conv1d.weight"].unsqueeze(1)
        vec(p + "dt_bias", nv, 0.0, 1.0)
        f32 = torch.float32 if is_f32(spec, "A_log") else dt
        out[p + "A_log"] = (5 * torch.rand(nv, generator=g) - 4).to(f32).float()
        vec(p + "norm.weight", dv, dtype=torch.float32 if is_f32(spec, p + "norm") else dt)
        mat(p + "out_proj.weight", D, v, 1.5)

    def attn_kda(p):
        n, d = c["linear_num_heads"], c["linear_head_dim"]
        for x in "qkv":
            mat(f"{p}{x}_proj.weight", n * d, D, 1.5)
            mat(f"{p}{x}_conv1d.weight", n * d, c["linear_conv_kernel_dim"], 1.5)
            out[f"{p}{x}_conv1d.weight"] = out[f"{p}{x}_conv1d.weight"].unsqueeze(1)
        mat(p + "b_proj.weight", n, D)
        for x in "fg":
            if is_ling(c):
                mat(f"{p}{x}_proj.weight", n * d, D, 1.5)
                continue
            mat(f"{p}{x}_a_proj.weight", d, D)
            mat(f"{p}{x}_b_proj.weight", n * d, d, 1.5)
        f32 = torch.float32 if is_f32(spec, "A_log") else dt
        vec(p + "dt_bias", n * d, 0.0, 1.0, f32)
        out[p + "A_log"] = (5 * torch.rand(1, 1, n, 1, generator=g) - 4).to(f32).float()
        if is_ling(c) or is_glm5(c):
            out[p + "A_log"] = out[p + "A_log"].flatten()
        vec(p + "o_norm.weight", d)
        mat(p + "o_proj.weight", D, n * d, 1.5)

    def attn_mla(p):
        h, r = c["num_attention_heads"], c["kv_lora_rank"]
        qk = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
        if c["q_lora_rank"]:
            mat(p + "q_a_proj.weight", c["q_lora_rank"], D)
            vec(p + "q_a_layernorm.weight", c["q_lora_rank"])
            mat(p + "q_b_proj.weight", h * qk, c["q_lora_rank"], 2.0)
        else:
            mat(p + "q_proj.weight", h * qk, D, 2.0)
        mat(p + "kv_a_proj_with_mqa.weight", r + c["qk_rope_head_dim"], D, 1.5)
        vec(p + "kv_a_layernorm.weight", r)
        mat(p + "kv_b_proj.weight", h * (c["qk_nope_head_dim"] + c["v_head_dim"]), r, 1.5)
        if is_ling(c):
            mat(p + "g_proj.weight", h, D, 2.0)
        mat(p + "o_proj.weight", D, h * c["v_head_dim"])

    def indexer(p):
        """Two heads are opposite, so that one of them always scores: else some scores are all 0."""
        n, d = c["index_n_heads"], c["index_head_dim"]
        mat(p + "wq_b.weight", n * d, c["q_lora_rank"])
        out[p + "wq_b.weight"][d:2 * d] = -out[p + "wq_b.weight"][:d]
        mat(p + "wk.weight", d, D)
        vec(p + "k_norm.weight", d)
        vec(p + "k_norm.bias", d, 0.0, 0.2)
        mat(p + "weights_proj.weight", n, D)
        if "index_kpool" in c:
            mat(p + "index_kpool_compress_gate", d, D, 1.5)
            mat(p + "index_kpool_compress_ape", c["index_kpool"], d, c["index_kpool"]**0.5)

    def streams(p):
        n = (2 + c["hc_mult"]) * c["hc_mult"]
        mat(p + "_fn", n, c["hc_mult"] * D, 2.0)
        vec(p + "_base", n, 0.0, 0.7, torch.float32)
        vec(p + "_scale", 3, 0.7, 0.3, torch.float32)

    def block_indexer(p):
        n, d = blocks_of(c)[:2]
        mat(p + "index_q_proj.weight", n * d, D, 2.0)
        mat(p + "index_k_proj.weight", d, D, 1.5)
        vec(p + "index_q_norm.weight", d, 1.5 - less)
        vec(p + "index_k_norm.weight", d, 1.2 - less)

    def layer(i):
        p = layer_name(c, i)
        vec(p + "input_layernorm.weight", D, 1.0 - less)
        vec(p + "post_attention_layernorm.weight", D, 1.0 - less)
        if is_glm5(c) and i < c["num_hidden_layers"]:
            streams(p + "hc_attn")
            streams(p + "hc_ffn")
        if is_delta(c, i):
            attn_delta(p + "linear_attn.")
        elif is_kda(c, i):
            attn_kda(p + "self_attn.")
        else:
            (attn_mla if "kv_lora_rank" in c else attn_gqa)(p + "self_attn.")
        if has_index(c, i):
            indexer(p + "self_attn.indexer.")
        if has_blocks(c, i):
            block_indexer(p + "self_attn.")
        if not is_moe(c, i):
            mlp(p + "mlp.", c.get("dense_intermediate_size") or c["intermediate_size"])
            return
        moe, bias, names = moe_names(c)
        mat(f"{p}{moe}{router_name(c)}.weight", n_expert(c), D, 1.5)
        if c["model_type"] == "gpt_oss":
            vec(p + "mlp.router.bias", n_expert(c), 0.0, 0.5)
            for e in range(n_expert(c)):
                for n, k in zip(names, (d_expert(c), d_expert(c), D)):
                    vec(f"{p}mlp.experts.{e}.{n}.bias", k, 0.0, 0.5)
        if has_router_bias(c):
            vec(p + moe + bias, n_expert(c), 0.0, 0.1, torch.float32)
        for e in range(n_expert(c)):
            mlp(f"{p}{moe}experts.{e}.", d_expert(c), names)
        if c.get("n_shared_experts"):
            at = moe if c["model_type"] == "kimi_linear" else "mlp."
            mlp(f"{p}{at}shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
        if is_m3(c):
            mlp(p + moe + "shared_experts.", c["shared_intermediate_size"])
        if c.get("shared_expert_intermediate_size"):
            mlp(p + "mlp.shared_expert.", c["shared_expert_intermediate_size"])
            mat(p + "mlp.shared_expert_gate.weight", 1, D, 1.5)

    if tiny_v4.is_v4(c):
        tiny_v4.weights(c, g, mat, vec, out, spec.get("mtp", 0))
        return out
    if tiny_gemma.is_gemma(c):
        tiny_gemma.weights(c, mat, vec)
        return out
    mat("model.embed_tokens.weight", c["vocab_size"], D, D**0.5)
    for i in range(c["num_hidden_layers"]):
        layer(i)
    vec("model.norm.weight", D, 1.0 - less)
    if not spec["config"]["tie_word_embeddings"]:
        mat("lm_head.weight", c["vocab_size"], D, 2.0)
    for k in range(spec.get("mtp", 0)):
        i = c["num_hidden_layers"] + k
        p = layer_name(c, i)
        layer(i)
        if has_delta(c):
            mat("mtp.fc.weight", D, 2 * D)
            for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
                vec(f"mtp.{n}.weight", D, 0.0)
            continue
        vec(p + "enorm.weight", D)
        vec(p + "hnorm.weight", D)
        mat(p + "eh_proj.weight", D, 2 * D)
        vec(p + "shared_head.norm.weight", D)
        if is_ling(c) or is_glm5(c):  # which have the model's embedding and head
            continue
        out[p + "embed_tokens.weight"] = out["model.embed_tokens.weight"]
        out[p + "shared_head.head.weight"] = out["lm_head.weight"]
    return out


def is_fp8(n):
    keep = ("norm", "mlp.gate.", "moe.gate.", "embed_tokens", "lm_head", "eh_proj", "shared_head",
            "conv1d")
    return n.endswith(".weight") and not any(k in n for k in keep)


def fp8_pack(w, power=False):
    """[N, K] f32 -> (e4m3 tensor, scale_inv [ceil(N/128), ceil(K/128)], values they stand for).
    power: scales are powers of two."""
    rows, cols = w.shape
    s = torch.empty((rows + 127) // 128, (cols + 127) // 128)
    q = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
    deq = torch.empty_like(w)
    for i in range(s.shape[0]):
        for j in range(s.shape[1]):
            at = (slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128))
            s[i, j] = w[at].abs().max() / 448.0
            if power:
                s[i, j] = 2.0 ** torch.ceil(torch.log2(s[i, j]))
            q[at] = (w[at] / s[i, j]).to(torch.float8_e4m3fn)
            deq[at] = q[at].float() * s[i, j]
    return q, s, deq


def fp8_channel(w):
    """(e4m3 tensor, scale [N, 1], values): compressed-tensors, one scale for each row."""
    s = (w.abs().amax(1, keepdim=True) / 448.0).to(torch.bfloat16)
    q = (w / s.float()).to(torch.float8_e4m3fn)
    return q, s, q.float() * s.float()


def int4_pack(w):
    """(words of eight values, scale, values): compressed-tensors pack-quantized, groups of 32."""
    rows, cols = w.shape
    g = w.reshape(rows, cols // 32, 32)
    s = (g.abs().amax(2, keepdim=True) / 7.0).to(torch.bfloat16)
    q = (g / s.float()).round().clamp(-8, 7).to(torch.int64)
    nib = (q + 8).reshape(rows, cols // 8, 8)
    word = (nib << (4 * torch.arange(8))).sum(2)
    word = torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)
    return word, s[..., 0], (q.float() * s.float()).reshape(rows, cols)


def mxfp8_pack(w):
    """(e4m3 tensor, exponents + 127 [N, K/32], values): a power of two for 32 columns of a row."""
    g = w.reshape(w.shape[0], -1, 32)
    e = torch.floor(torch.log2(g.abs().amax(2))) - 8
    q = (g / 2.0 ** e[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    val = q.float() * 2.0 ** e[..., None]
    return q.reshape(w.shape), (e + 127).to(torch.uint8), val.reshape(w.shape)


def mxfp4_pack(w):
    """(blocks [N, K/32, 16], scales [N, K/32], values): even columns in the low nibbles."""
    level = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    g = w.reshape(w.shape[0], -1, 32)
    e = torch.floor(torch.log2(g.abs().amax(2))) - 2
    x = g / 2.0 ** e[..., None]
    code = (x.abs()[..., None] - level).abs().argmin(-1)
    val = level[code] * torch.sign(x) * 2.0 ** e[..., None]
    code = (code + 8 * (x < 0)).to(torch.uint8)
    return code[..., ::2] | code[..., 1::2] << 4, (e + 127).to(torch.uint8), val.reshape(w.shape)


def fuse_gpt_oss(stored, value, mxfp4):
    """All experts of a layer in one tensor: gate and up in turn; plain ones input by input."""
    heads = sorted({n.split(".experts.")[0] for n in stored if ".experts." in n})
    for h in heads:
        p = h + ".experts."
        n = 1 + max(int(k.removeprefix(p).split(".")[0]) for k in stored if k.startswith(p))

        def take(part):
            return torch.stack([stored.pop(f"{p}{e}.{part}") for e in range(n)])

        for out, parts in (("gate_up_proj", ("gate_proj", "up_proj")), ("down_proj",
                                                                        ("down_proj", ))):
            b = torch.stack([take(x + ".bias") for x in parts], 2)
            stored[f"{p}{out}_bias"] = b.reshape(n, -1).contiguous()
            w = torch.stack([take(x + ".weight") for x in parts], 2)
            w = w.reshape(n, -1, w.shape[-1])
            if not mxfp4:
                stored[p + out] = w.transpose(1, 2).contiguous()
                continue
            blocks, scales, val = zip(*(mxfp4_pack(x.float()) for x in w))
            stored[f"{p}{out}_blocks"] = torch.stack(blocks).contiguous()
            stored[f"{p}{out}_scales"] = torch.stack(scales).contiguous()
            for e in range(n):
                for i, x in enumerate(parts):
                    value[f"{p}{e}.{x}.weight"] = val[e][i::len(parts)].contiguous()


def fuse_halves(stored):
    """All experts of a layer in one tensor: rows of gate before those of up."""
    for h in sorted({n.split(".experts.")[0] for n in stored if ".experts." in n}):
        p = h + ".experts."
        n = 1 + max(int(k.removeprefix(p).split(".")[0]) for k in stored if k.startswith(p))
        gate, up, down = (torch.stack([stored.pop(f"{p}{e}.{x}_proj.weight") for e in range(n)])
                          for x in ("gate", "up", "down"))
        stored[p + "gate_up_proj"] = torch.cat([gate, up], 1).contiguous()
        stored[p + "down_proj"] = down


def store(spec, n, t):
    """({name: tensor as it is stored}, values that it stands for)"""
    base = n.removesuffix(".weight")
    if not t.is_floating_point():
        return {n: t}, t
    form = tiny_v4.form_of(n) if spec.get("v4_forms") else None
    if form == "fp4":
        q, s, v = mxfp4_pack(t)
        return {n: q.reshape(len(t), -1).view(torch.int8),
                base + ".scale": s.view(torch.float8_e8m0fnu)}, v
    if form == "fp8":
        q, s, v = fp8_pack(t, power=True)
        return {n: q, base + ".scale": s.to(torch.float8_e8m0fnu)}, v
    if spec.get("fp8") and is_fp8(n):
        q, s, v = fp8_pack(t)
        return {n: q, n + "_scale_inv": s}, v
    if spec.get("mxfp8") and is_fp8(n):
        q, s, v = mxfp8_pack(t)
        return {n: q, n + "_scale_inv": s}, v
    if spec.get("fp8_channel") and is_fp8(n):
        q, s, v = fp8_channel(t)
        return {n: q, n + "_scale": s}, v
    if spec.get("int4") and ".experts." in n:
        q, s, v = int4_pack(t)
        return {base + ".weight_packed": q, base + ".weight_scale": s,
                base + ".weight_shape": torch.tensor(t.shape, dtype=torch.int32)}, v
    dt = torch.float32 if is_f32(spec, n) else TORCH[spec["dtype"]]
    return {n: t.to(dt).contiguous().clone()}, t


def name_in_file(spec, n):
    if spec.get("v4_words"):
        return tiny_v4.in_words(n)
    for one, other in spec.get("renamed", {}).items():
        n = n.replace(one, other)
    if "inner" in spec and n.startswith("model."):
        return spec["inner"] + n.removeprefix("model.")
    return spec.get("prefix", "") + n


def write_folder(path, spec, w):
    """Write the checkpoint; return the values it stands for. prefix: of the names in the file,
    which then holds something that sees too (beside: its tensors, that no language model reads)."""
    os.makedirs(path, exist_ok=True)
    stored, value = {}, {}
    for n, t in w.items():
        got, value[n] = store(spec, n, t)
        stored.update({name_in_file(spec, k): x for k, x in got.items()})
    if text_config(spec["config"])["model_type"] == "gpt_oss":
        fuse_gpt_oss(stored, value, spec.get("mxfp4"))
    whole = ("qwen3_5_moe_text", "gemma4_text")
    if text_config(spec["config"])["model_type"] in whole or spec.get("v4_words"):
        fuse_halves(stored)
    for n, shape in spec.get("beside", {}).items():
        stored[n] = torch.full(shape, 0.5, dtype=TORCH[spec["dtype"]])
    shards = spec.get("shards", 1)
    meta = {"format": "pt"}
    if shards == 1:
        save_file(stored, path + "/model.safetensors", metadata=meta)
    else:
        names = sorted(stored)
        where = {n: f"model-{i * shards // len(names) + 1:05d}-of-{shards:05d}.safetensors"
                 for i, n in enumerate(names)}
        for f in sorted(set(where.values())):
            save_file({n: stored[n] for n in names if where[n] == f}, f"{path}/{f}", metadata=meta)
        total = sum(t.numel() * t.element_size() for t in stored.values())
        with open(path + "/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": where}, f, indent=0)
    with open(path + "/config.json", "w") as f:
        json.dump(spec["config"], f, indent=1)
    return value


def m3_modules(w):
    """Names and shapes of transformers' modules, which it makes of published ones only within the
    model that sees too."""
    out = {}
    for n, t in w.items():
        p, _, tail = n.rpartition(".self_attn.index_")
        if p:
            out[f"{p}.self_attn.indexer.{tail}"] = t
            continue
        n = n.replace(".block_sparse_moe.e_score", ".mlp.gate.e_score")
        out[n.replace(".block_sparse_moe.", ".mlp.")] = t
    for n in [n for n in out if n.endswith(".gate_proj.weight")]:
        p = n.removesuffix("gate_proj.weight")
        out[p + "gate_up_proj.weight"] = torch.cat([out.pop(n), out.pop(p + "up_proj.weight")])
    for h in sorted({n.split(".experts.")[0] for n in out if ".experts." in n}):
        p = h + ".experts."
        n = 1 + max(int(k.removeprefix(p).split(".")[0]) for k in out if k.startswith(p))
        w1, w3, w2 = (torch.stack([out.pop(f"{p}{e}.{x}.weight") for e in range(n)])
                      for x in ("w1", "w3", "w2"))
        out[p + "gate_up_proj"] = torch.cat([w1, w3], 1)
        out[p + "down_proj"] = w2
    return out


def put_limits(model, c):
    """Limits of layers' units, which other programs obey: min(silu(g), limit) clamp(u)."""
    def unit(g, u, limit):
        return torch.nn.functional.silu(g).clamp(max=limit) * u.clamp(-limit, limit)

    def routed(m, limit):
        def forward(x, idx, w):
            out = torch.zeros_like(x)
            for e in idx.unique():
                t, k = torch.where(idx == e)
                g, u = (x[t] @ m.gate_up_proj[e].T).chunk(2, -1)
                y = unit(g, u, limit) @ m.down_proj[e].T
                out.index_add_(0, t, y * w[t, k, None].to(y.dtype))
            return out
        return forward

    def shared(m, limit):
        return lambda x: m.down_proj(unit(m.gate_proj(x), m.up_proj(x), limit))
    for i, layer in enumerate(model.model.layers):
        for key, name, make in (("expert_swiglu_limit_list", "experts", routed),
                                ("share_expert_swiglu_limit_list", "shared_experts", shared)):
            if (c.get(key) or [0] * (i + 1))[i]:
                m = getattr(layer.mlp, name)
                m.forward = make(m, c[key][i])


class Headed(torch.nn.Module):
    """A text model of which transformers has no class with a head."""

    def __init__(self, body, head):
        super().__init__()
        self.model, self.lm_head = body, torch.nn.Linear(*head.T.shape, bias=False)
        self.lm_head.weight.data = head.to(next(body.parameters()).dtype)

    def forward(self, ids, **_):
        return types.SimpleNamespace(logits=self.lm_head(self.model(ids).last_hidden_state))


def reference(spec, value, work, seqs, dtype=torch.float32, watch=None):
    """Logits [T, V] of each sequence, from transformers: eager attention, weights as given.
    watch(model): called before it runs."""
    from transformers import AutoModel, AutoModelForCausalLM
    plain = dict(text_config(spec["config"]))
    plain["model_type"] = spec.get("as_type", plain["model_type"])
    plain.pop("quantization_config", None)
    plain["torch_dtype"] = "float32"
    plain["tie_word_embeddings"] = spec["config"]["tie_word_embeddings"]
    plain.pop("dtype", None)
    if "kda_lower_bound" in plain:  # files have a whole number, which the class refuses
        plain["kda_lower_bound"] = float(plain["kda_lower_bound"])
    # transformers reads MTP layers only on request
    last = plain["num_hidden_layers"]
    keep = {n: t for n, t in value.items()
            if not n.startswith("mtp.")
            and (not n.startswith("model.layers.") or int(n.split(".")[2]) < last)}
    head = keep.pop("lm_head.weight") if is_glm5(plain) else None
    write_folder(work, dict(config=plain, dtype="F32"), m3_modules(keep) if is_m3(plain) else keep)
    model, info = (AutoModelForCausalLM if head is None else AutoModel).from_pretrained(
        work, dtype=dtype, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True)
    if head is not None:
        model = Headed(model, head)
    model.eval()
    bad = {k: v for k, v in info.items() if v}
    assert not bad, bad
    sd = model.state_dict()
    embed = keep["embed.weight" if tiny_v4.is_v4(plain) else "model.embed_tokens.weight"]
    assert torch.equal(sd["model.embed_tokens.weight"].float(), embed), "weights were not loaded"
    put_limits(model, plain)
    if watch:
        watch(model)
    out, hidden, streams = [], [], []
    if tiny_v4.is_v4(plain):  # whose MTP layer takes all streams
        model.model.hc_head.register_forward_pre_hook(lambda _, x: streams.append(x[0][0]))
    with torch.no_grad():
        for ids in seqs:
            r = model(torch.tensor([ids]), output_hidden_states=False)
            out.append(r.logits[0].numpy())
            last = model.model(torch.tensor([ids])).last_hidden_state[0]
            hidden.append(streams[-1] if streams else last)
    return out, hidden, model
