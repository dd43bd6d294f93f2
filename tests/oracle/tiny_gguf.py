# SPDX-License-Identifier: Apache-2.0
"""GGUF files of the tiny checkpoints, by llama.cpp's conventions, plain or quantised.

Values are set tensor by tensor: plan() names every GGUF tensor, makes it from the checkpoint's and
says how its values go back, so that a quantised file has a reference: the same checkpoint with the
dequantised values.
"""
import numpy as np
import gguf
from gguf import GGMLQuantizationType as Q

from tiny_hf import (blocks_of, d_expert, has_delta, has_router_bias, head_dim, is_glm5, is_ling,
                     is_m3, is_moe, layer_name, less_one, moe_names, n_expert, router_name,
                     text_config, usual)
import tiny_gemma
import tiny_v4
from tiny_specs import GGUF_ARCH, PERMUTED

DENSE = (("gate_proj", "ffn_gate"), ("up_proj", "ffn_up"), ("down_proj", "ffn_down"))
NORMS = {"q_a_layernorm": "attn_q_a_norm", "kv_a_layernorm": "attn_kv_a_norm",
         "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
ATTN = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
        "q_a_proj": "attn_q_a", "q_b_proj": "attn_q_b", "kv_a_proj_with_mqa": "attn_kv_a_mqa"}
# of an MTP layer, which folders of these have apart
APART = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm",
         "norm": "shared_head_norm"}

INDEX = {"wq_b": "attn_q_b", "wk": "attn_k", "weights_proj": "proj"}
# of one that chooses blocks
BLOCKS = {"q_proj": "attn_q", "k_proj": "attn_k", "q_norm": "q_norm", "k_norm": "k_norm"}


class Delta:
    """What llama.cpp's converter does to the tensors of gated delta layers, and the reverse."""

    def __init__(self, c):
        self.nk, self.nv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.dk, self.dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        self.tiled = c["model_type"] != "qwen3_next"

    def heads(self, x, d, back=False):
        """Rows of value heads d wide: head (key head j, i) becomes (i, j)."""
        if not self.tiled:
            return x
        n = (self.nv // self.nk, self.nk) if back else (self.nk, self.nv // self.nk)
        return x.reshape(n + (d,) + x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    def tail(self, x, back=False):
        """The same of the value heads that come after queries and keys."""
        at = 2 * self.nk * self.dk
        return np.concatenate([x[:at], self.heads(x[at:], self.dv, back)])

    def split(self, x):
        """Rows of in_proj_qkvz, by key head -> those of q, k and v, and those of z."""
        r = self.nv // self.nk * self.dv
        q, k, v, z = np.split(x.reshape(self.nk, -1, x.shape[-1]),
                              [self.dk, 2 * self.dk, 2 * self.dk + r], 1)
        q, k, v, z = (a.reshape(-1, x.shape[-1]) for a in (q, k, v, z))
        return np.concatenate([q, k, v]), z

    def join(self, qkv, z):
        at, cols = self.nk * self.dk, qkv.shape[-1]
        part = (qkv[:at], qkv[at:2 * at], qkv[2 * at:], z)
        return np.concatenate([a.reshape(self.nk, -1, cols) for a in part], 1).reshape(-1, cols)


def plan_delta(c, w, legacy, p, hf, out):
    """Adds what a delta layer has. Its names: p of GGUF, hf of the folder."""
    d, hf = Delta(c), hf + "linear_attn."
    half = {}

    def put(gname, name, fwd, back):
        if hf + name in w:
            out.append((p + gname, np.ascontiguousarray(fwd(w[hf + name])),
                        lambda a: {hf + name: np.ascontiguousarray(back(a))}))

    def both(key, a):
        half[key] = a
        return {hf + "in_proj_qkvz.weight": d.join(half["qkv"], half["z"])} if len(half) > 1 else {}

    def same(a):
        return a

    if legacy:
        put("ssm_in.weight", "in_proj_qkvz.weight", same, same)
    elif hf + "in_proj_qkvz.weight" in w:
        qkv, z = d.split(w[hf + "in_proj_qkvz.weight"])
        out.append((p + "attn_qkv.weight", qkv, lambda a: both("qkv", a)))
        out.append((p + "attn_gate.weight", z, lambda a: both("z", a)))
    put("ssm_ba.weight", "in_proj_ba.weight", same, same)
    put("attn_qkv.weight", "in_proj_qkv.weight", d.tail, lambda a: d.tail(a, True))
    put("attn_gate.weight", "in_proj_z.weight", lambda a: d.heads(a, d.dv),
        lambda a: d.heads(a, d.dv, True))
    for g, n in (("ssm_beta.weight", "in_proj_b.weight"), ("ssm_alpha.weight", "in_proj_a.weight"),
                 ("ssm_dt.bias", "dt_bias")):
        put(g, n, lambda a: d.heads(a, 1), lambda a: d.heads(a, 1, True))
    put("ssm_a", "A_log", lambda a: d.heads(-np.exp(a), 1),
        lambda a: np.log(-d.heads(a, 1, True)))
    put("ssm_conv1d.weight", "conv1d.weight", lambda a: d.tail(a[:, 0]),
        lambda a: d.tail(a, True)[:, None])
    put("ssm_norm.weight", "norm.weight", same, same)
    put("ssm_out.weight", "out_proj.weight", lambda a: d.heads(a.T, d.dv).T,
        lambda a: d.heads(a.T, d.dv, True).T)


def plan_kda(c, w, p, hf, out):
    """The same of Kimi Delta Attention, whose matrices have the names of attention's."""
    for g, n in (("ssm_beta.weight", "b_proj.weight"), ("ssm_f_a.weight", "f_a_proj.weight"),
                 ("ssm_f_a.weight", "f_proj.weight"),
                 ("ssm_f_b.weight", "f_b_proj.weight"), ("ssm_g_a.weight", "g_a_proj.weight"),
                 ("ssm_g_b.weight", "g_b_proj.weight"), ("ssm_dt.bias", "dt_bias"),
                 ("ssm_norm.weight", "o_norm.weight")):
        if hf + n in w:
            out.append((p + g, w[hf + n], lambda a, n=n: {hf + n: a}))
    for x in "qkv":
        n = f"{hf}{x}_conv1d.weight"
        if n in w:
            taps = w[n].shape[-1]
            out.append((f"{p}ssm_conv1d_{x}.weight", w[n].reshape(1, -1, 1, taps),
                        lambda a, n=n, taps=taps: {n: a.reshape(-1, 1, taps)}))
    g = hf + "g_proj.weight"
    if g in w:
        kda = hf + "A_log" in w
        out.append((p + ("ssm_g_a.weight" if kda else "attn_gate.weight"), w[g], lambda a: {g: a}))
    if hf + "A_log" in w and is_ling(c):
        out.append((p + "ssm_a", np.exp(w[hf + "A_log"])[:, None],
                    lambda a: {hf + "A_log": np.log(a[:, 0])}))
    elif hf + "A_log" in w:
        out.append((p + "ssm_a", -np.exp(w[hf + "A_log"]), lambda a: {hf + "A_log": np.log(-a)}))


def plan(c, w, legacy, n_layer):
    """[(GGUF name, array, back)]: back(array) gives {checkpoint name: array}."""
    out = []
    less = np.float32(1 if less_one(c) else 0)  # what weights of norms are short of in folders

    def same(gname, name):
        if name in w and "norm" in gname:
            out.append((gname, w[name] + less, lambda a, n=name: {n: a - less}))
        elif name in w:
            out.append((gname, w[name], lambda a, n=name: {n: a}))

    def rope_rows(gname, name, heads):
        x = w[name]
        shape = (heads, 2, x.shape[0] // heads // 2) + x.shape[1:]
        fwd = x.reshape(shape).swapaxes(1, 2).reshape(x.shape)
        inv = (heads, x.shape[0] // heads // 2, 2) + x.shape[1:]
        out.append((gname, fwd,
                    lambda a: {name: a.reshape(inv).swapaxes(1, 2).reshape(x.shape)}))

    def kv_b(p, name):
        h, r, v = c["num_attention_heads"], c["kv_lora_rank"], c["v_head_dim"]
        nope = c["qk_nope_head_dim"]
        x = w[name].reshape(h, nope + v, r)
        half = {}

        def back(key, a):
            half[key] = a
            if len(half) < 2:
                return {}
            k, vv = half["k"].reshape(h, r, nope).transpose(0, 2, 1), half["v"].reshape(h, v, r)
            return {name: np.concatenate([k, vv], 1).reshape(h * (nope + v), r)}
        out.append((p + "attn_k_b.weight", np.ascontiguousarray(x[:, :nope].transpose(0, 2, 1)),
                    lambda a: back("k", a)))
        out.append((p + "attn_v_b.weight", np.ascontiguousarray(x[:, nope:]),
                    lambda a: back("v", a)))

    def experts(p, hf):
        moe, _, parts = moe_names(c)
        for a, (_, b) in zip(parts, DENSE):
            names = [f"{hf}{moe}experts.{e}.{a}.weight" for e in range(n_expert(c))]
            out.append((f"{p}{b}_exps.weight", np.stack([w[n] for n in names]),
                        lambda x, names=names: dict(zip(names, x))))
            names = [n.replace(".weight", ".bias") for n in names]
            if names[0] in w:
                out.append((f"{p}{b}_exps.bias", np.stack([w[n] for n in names]),
                            lambda x, names=names: dict(zip(names, x))))

    if tiny_v4.is_v4(c):
        tiny_v4.plan(c, w, out)
        return out
    if tiny_gemma.is_gemma(c):
        tiny_gemma.plan(c, w, out)
        return out
    same("token_embd.weight", "model.embed_tokens.weight")
    same("output_norm.weight", "model.norm.weight")
    same("output.weight", "lm_head.weight")
    rp = c.get("rope_parameters") or c.get("rope_scaling") or {}
    if rp.get("rope_type", rp.get("type")) == "llama3":
        out.append(("rope_freqs.weight", llama3_factors(c, rp), lambda a: {}))
    for i in range(n_layer):
        p, hf = f"blk.{i}.", layer_name(c, i)
        same(p + "attn_norm.weight", hf + "input_layernorm.weight")
        ffn_norm = ("post_attention_norm" if c["model_type"] in ("glm4_moe", "gpt_oss")
                    or has_delta(c) else "ffn_norm")
        same(f"{p}{ffn_norm}.weight", hf + "post_attention_layernorm.weight")
        for a, b in ATTN.items():
            for part in ("weight", "bias"):
                name = f"{hf}self_attn.{a}.{part}"
                permuted = c["model_type"] in PERMUTED and a in ("q_proj", "k_proj")
                if permuted and name in w:
                    heads = c["num_attention_heads" if a[0] == "q" else "num_key_value_heads"]
                    rope_rows(f"{p}{b}.{part}", name, heads)
                else:
                    same(f"{p}{b}.{part}", name)
        for a, b in INDEX.items():
            same(f"{p}indexer.{b}.weight", f"{hf}self_attn.indexer.{a}.weight")
        for part in ("weight", "bias"):
            same(f"{p}indexer.k_norm.{part}", f"{hf}self_attn.indexer.k_norm.{part}")
        for a in ("gate", "ape"):
            same(f"{p}indexer_compressor_{a}.weight",
                 f"{hf}self_attn.indexer.index_kpool_compress_{a}")
        for a in ("attn", "ffn"):
            for b in ("fn", "base", "scale"):
                same(f"{p}hc_{a}_{b}.weight", f"{hf}hc_{a}_{b}")
        for a, b in BLOCKS.items():
            same(f"{p}indexer.{b}.weight", f"{hf}self_attn.index_{a}.weight")
        same(p + "attn_sinks.weight", hf + "self_attn.sinks")
        for a, b in NORMS.items():
            same(f"{p}{b}.weight", f"{hf}self_attn.{a}.weight")
        if has_delta(c):
            plan_delta(c, w, legacy, p, hf, out)
        plan_kda(c, w, p, hf + "self_attn.", out)
        if hf + "self_attn.kv_b_proj.weight" in w:
            if legacy:
                same(p + "attn_kv_b.weight", hf + "self_attn.kv_b_proj.weight")
            else:
                kv_b(p, hf + "self_attn.kv_b_proj.weight")
        if is_moe(c, i):
            moe, bias, _ = moe_names(c)
            for part in ("weight", "bias"):
                same(f"{p}ffn_gate_inp.{part}", f"{hf}{moe}{router_name(c)}.{part}")
            same(p + "exp_probs_b.bias", hf + moe + bias)
            experts(p, hf)
        for a, b in DENSE:
            same(f"{p}{b}.weight", f"{hf}mlp.{a}.weight")
            for shared in ("mlp.shared_experts", "mlp.shared_expert",
                           "block_sparse_moe.shared_experts"):
                same(f"{p}{b}_shexp.weight", f"{hf}{shared}.{a}.weight")
        same(p + "ffn_gate_inp_shexp.weight", hf + "mlp.shared_expert_gate.weight")
        for a in ("enorm", "hnorm", "eh_proj", "embed_tokens"):
            same(f"{p}nextn.{a}.weight", f"{hf}{a}.weight")
        end = "layer_output_norm" if is_ling(c) else "nextn.shared_head_norm"
        same(f"{p}{end}.weight", hf + "shared_head.norm.weight")
        same(p + "nextn.shared_head_head.weight", hf + "shared_head.head.weight")
        if has_delta(c) and i >= c["num_hidden_layers"]:
            for a, b in APART.items():
                same(f"{p}nextn.{b}.weight", f"mtp.{a}.weight")
    return out


def llama3_factors(c, rp):
    """What llama.cpp's converter writes: the number that divides each frequency."""
    d = head_dim(c)
    theta = rp.get("rope_theta", c.get("rope_theta"))
    freqs = 1.0 / theta ** (np.arange(0, d, 2, dtype=np.float32) / d)
    old = rp["original_max_position_embeddings"]
    low, high = old / rp["low_freq_factor"], old / rp["high_freq_factor"]
    out = []
    for f in freqs:
        wl = 2 * np.pi / f
        if wl < high:
            out.append(1.0)
        elif wl > low:
            out.append(rp["factor"])
        else:
            smooth = (old / wl - rp["low_freq_factor"]) / (
                rp["high_freq_factor"] - rp["low_freq_factor"])
            out.append(1 / ((1 - smooth) / rp["factor"] + smooth))
    return np.array(out, np.float32)


def n_rot(c, rp):
    """Rotated values of each head, of which GLM-4.5 rotates the half where nothing is said."""
    factor = rp.get("partial_rotary_factor", c.get("partial_rotary_factor"))
    if factor is None:
        factor = 0.5 if c["model_type"] == "glm4_moe" else 1.0
    return c.get("rotary_dim") or int(head_dim(c) * factor)


def index_keys(wr, c):
    p = GGUF_ARCH[c["model_type"]] + ".attention.indexer."
    wr.add_uint32(p + "head_count", c["index_n_heads"])
    wr.add_uint32(p + "key_length", c["index_head_dim"])
    wr.add_uint32(p + "top_k", c["index_topk"])
    if "indexer_types" in c:
        wr.add_array(p + "types", [t == "full" for t in c["indexer_types"]])


def m3_keys(wr, c):
    p = GGUF_ARCH[c["model_type"]] + ".attention.indexer."
    for key, v in zip(("head_count", "key_length", "block_size", "block_count",
                       "block_local_count"), blocks_of(c)):
        wr.add_uint32(p + key, v)
    wr.add_leading_dense_block_count(c["moe_layer_freq"].index(1))
    wr.add_expert_shared_count(1)
    wr.add_expert_shared_feed_forward_length(c["shared_intermediate_size"])
    wr.add_expert_weights_scale(c["routed_scaling_factor"])


def ling_keys(wr, c, n_layer):
    p = GGUF_ARCH[c["model_type"]] + "."
    wr.add_bool(p + "kda.safe_gate", True)
    wr.add_float32(p + "kda.gate_lower_bound", c["kda_lower_bound"])
    wr.add_expert_shared_feed_forward_length(c["moe_shared_expert_intermediate_size"])
    for key, name in (("expert_swiglu_limit_list", "exp"),
                      ("share_expert_swiglu_limit_list", "shexp")):
        v = [float(x or 0) for x in c[key]]
        wr.add_array(f"{p}swiglu_clamp_{name}", v + [0.0] * (n_layer - len(v)))


def glm5_keys(wr, c, n_layer):
    p = GGUF_ARCH[c["model_type"]] + "."
    wr.add_layer_norm_eps(1e-6)
    if c["linear_lower_bound"] is not None:
        wr.add_float32(p + "kda.gate_lower_bound", c["linear_lower_bound"])
    wr.add_uint32(p + "attention.indexer.kpool", c["index_kpool"])
    wr.add_bool(p + "attention.indexer.kpool_select_tail", True)
    wr.add_uint32(p + "hyper_connection.count", c["hc_mult"])
    wr.add_uint32(p + "hyper_connection.sinkhorn_iterations", c["hc_sinkhorn_iters"])
    wr.add_float32(p + "hyper_connection.epsilon", c["hc_eps"])
    for name in ("exp", "shexp"):
        wr.add_array(f"{p}swiglu_clamp_{name}", [float(c["swiglu_limit"])] * n_layer)


def keys(wr, c, name, legacy, n_layer, n_mtp):
    wr.add_name(name)
    wr.add_block_count(n_layer)
    wr.add_context_length(c["max_position_embeddings"])
    wr.add_embedding_length(c["hidden_size"])
    if "intermediate_size" in c:
        wr.add_feed_forward_length(c.get("dense_intermediate_size") or c["intermediate_size"])
    wr.add_head_count(c["num_attention_heads"])
    wr.add_layer_norm_rms_eps(c["rms_norm_eps"])
    wr.add_vocab_size(c["vocab_size"])
    if tiny_gemma.is_gemma(c):
        tiny_gemma.keys(wr, c)
        return
    rp = dict(c.get("rope_scaling") or {}, **(c.get("rope_parameters") or {}))
    if tiny_v4.is_v4(c):
        rp = tiny_v4.rope(c)
    wr.add_rope_freq_base(float(rp.get("rope_theta", c.get("rope_theta", 10000.0))))
    kind = rp.get("rope_type", rp.get("type"))
    if kind == "yarn":
        wr.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        wr.add_rope_scaling_factor(rp["factor"])
        wr.add_rope_scaling_orig_ctx_len(rp["original_max_position_embeddings"])
        if "mscale_all_dim" in rp:
            wr.add_rope_scaling_yarn_log_mul(0.1 * rp["mscale_all_dim"])
        if (rp["beta_fast"], rp["beta_slow"]) != (32, 1):
            wr.add_rope_scaling_yarn_beta_fast(rp["beta_fast"])
            wr.add_rope_scaling_yarn_beta_slow(rp["beta_slow"])
    if tiny_v4.is_v4(c):
        tiny_v4.keys(wr, c, n_mtp)
        return
    if "kv_lora_rank" not in c:
        wr.add_head_count_kv(c["num_key_value_heads"])
        wr.add_key_length(head_dim(c))
        wr.add_value_length(head_dim(c))
        wr.add_rope_dimension_count(n_rot(c, rp))
    else:
        r, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
        qk = c["qk_nope_head_dim"] + rope
        kv = c["num_attention_heads"] if legacy else 1
        if "linear_num_heads" in c:
            kv = [int(t == "full_attention") for t in c["layer_types"]] + [1] * n_mtp
            wr.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
            wr.add_kda_head_dim(c["linear_head_dim"])
        wr.add_head_count_kv(kv)
        wr.add_key_length(qk if legacy else r + rope)
        wr.add_value_length(c["v_head_dim"] if legacy else r)
        if not legacy:
            wr.add_key_length_mla(qk)
            wr.add_value_length_mla(c["v_head_dim"])
        wr.add_rope_dimension_count(rope)
        wr.add_kv_lora_rank(r)
        if c["q_lora_rank"]:
            wr.add_q_lora_rank(c["q_lora_rank"])
        if "index_topk" in c:
            index_keys(wr, c)
    if has_delta(c):
        wr.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        wr.add_ssm_state_size(c["linear_key_head_dim"])
        wr.add_ssm_group_count(c["linear_num_key_heads"])
        wr.add_ssm_time_step_rank(c["linear_num_value_heads"])
        wr.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
        if c["full_attention_interval"] != 4:  # which old files do not say
            wr.add_full_attention_interval(c["full_attention_interval"])
        if c.get("shared_expert_intermediate_size"):
            wr.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
        if "mrope_section" in rp:
            wr.add_rope_dimension_sections(rp["mrope_section"] + [0])
    if c["model_type"] == "gpt_oss":
        wr.add_sliding_window(c["sliding_window"])
    if is_m3(c):
        m3_keys(wr, c)
    if is_ling(c):
        ling_keys(wr, c, n_layer)
    if is_glm5(c):
        glm5_keys(wr, c, n_layer)
    if n_expert(c):
        wr.add_expert_count(n_expert(c))
        wr.add_expert_used_count(c["num_experts_per_tok"])
        wr.add_expert_feed_forward_length(d_expert(c))
        sigmoid = has_router_bias(c) or c.get("scoring_func") == "sigmoid"
        if "first_k_dense_replace" in c:
            wr.add_leading_dense_block_count(c["first_k_dense_replace"])
            wr.add_expert_shared_count(c["n_shared_experts"])
            wr.add_expert_weights_scale(c["routed_scaling_factor"])
        if sigmoid or "first_k_dense_replace" in c:
            wr.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid
                                      else gguf.ExpertGatingFuncType.SOFTMAX)
        if c.get("n_group") and c["n_group"] > 1:
            wr.add_expert_group_count(c["n_group"])
            wr.add_expert_group_used_count(c["topk_group"])
        # qwen3moe's and kimi-linear's files say nothing and mean "normalised"
        if c["model_type"] == "kimi_linear":
            pass
        elif "first_k_dense_replace" in c or not c.get("norm_topk_prob", True):
            wr.add_expert_weights_norm(c["norm_topk_prob"])
    if n_mtp:
        wr.add_nextn_predict_layers(n_mtp)


SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82],
          Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0],
          Q.IQ4_XS: [0]}


def random_blocks(q, rows, cols, std, rng):
    """[rows, bytes] of valid blocks of type q whose values have about the given deviation."""
    size, nbytes = gguf.GGML_QUANT_SIZES[q]
    n = rows * cols // size
    b = rng.integers(0, 256, (n, nbytes), dtype=np.uint8)
    if q in SCALES:
        one = np.array([[1.0]], np.float16).view(np.uint8)
        d, m = SCALES[q][0], SCALES[q][1:]
        b[:, d:d + 2] = one
        for o in m:
            b[:, o:o + 2] = 0
        val = gguf.dequantize(b, q).reshape(n, -1)
        sign = np.where(rng.random((n, 1)) < 0.2, -1.0, 1.0) if not m else np.ones((n, 1))
        jitter = rng.uniform(0.6, 1.4, (n, 1)) * sign
        scale = jitter * std / val.std()
        b[:, d:d + 2] = scale.astype(np.float16).view(np.uint8)
        for o in m:  # the minimum centres each block
            b[:, o:o + 2] = np.array([[1.0]], np.float16).view(np.uint8)
            unit = gguf.dequantize(b, q).reshape(n, -1) - val * scale.astype(np.float16)
            mn = -(val * scale).mean(1, keepdims=True) / unit.mean(1, keepdims=True)
            mn = np.nan_to_num(mn, posinf=0, neginf=0)
            b[:, o:o + 2] = np.clip(mn, -60000, 60000).astype(np.float16).view(np.uint8)
    elif q == Q.MXFP4:
        b[:, 0] = 127 + int(np.floor(np.log2(std / 2.8))) + rng.integers(0, 2, n)
    elif q == Q.NVFP4:
        b[:, :4] = 0x30 + rng.integers(0, 16, (n, 4))
    return b.reshape(rows, -1)


def encode(q, x, rng, stacked=False):
    """(raw bytes [.., row bytes], values they stand for, scale tensor or None)"""
    flat = x.reshape(-1, x.shape[-1])
    scale = None
    if q in (Q.F32, Q.F16, Q.BF16):
        raw = {Q.F32: lambda: flat.astype(np.float32), Q.F16: lambda: flat.astype(np.float16),
               Q.BF16: lambda: gguf.quantize(flat, Q.BF16)}[q]()
        val = gguf.dequantize(raw, q) if q == Q.BF16 else raw.astype(np.float32)
    elif q in (Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0):
        raw = gguf.quantize(np.ascontiguousarray(flat), q)
        val = gguf.dequantize(raw, q)
    else:
        raw = random_blocks(q, *flat.shape, float(flat.std()), rng)
        val = gguf.dequantize(raw, q).reshape(flat.shape)
        if q == Q.NVFP4:  # the factor that stands outside the blocks: one, or one per expert
            n = x.shape[0] if stacked else 1
            scale = (x.std() / val.std() * rng.uniform(0.8, 1.2, n)).astype(np.float32)
            val = (val.reshape(n, -1) * scale[:, None]).reshape(flat.shape)
    return raw, val.reshape(x.shape), scale


def q_of(gname, x, spec):
    base = gname.rsplit(".", 1)[0]
    short = base.split(".", 2)[-1] if base.startswith("blk.") else base
    exact = ("ffn_gate_inp", "exp_probs_b", "ssm_conv1d", "ffn_gate_inp_shexp", "ssm_a",
             "ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v", "indexer.proj")
    if short.startswith(("hc_", "output_hc_", "nextn.hc_")) or short.endswith("_ape"):
        return Q.F32
    if x.ndim == 1 or gname.endswith((".bias", ".ssm_a")) or short in exact or "norm" in short:
        return Q.F32
    t = spec.get("types")
    if t is None:
        return Q[spec["dtype"]]
    q = Q[t.get(base, t.get(short, t.get("*", "F16")))]
    if x.shape[-1] % gguf.GGML_QUANT_SIZES[q][0]:
        q = Q.F16
    return q


def write(path, name, spec, w, tok, legacy=False, split=0, seed=7):
    """Write the GGUF file; return {checkpoint name: values it stands for}."""
    c = usual(text_config(spec["config"]))
    rng = np.random.default_rng(seed)
    n_mtp = spec.get("mtp", 0)
    n_layer = c["num_hidden_layers"] + n_mtp
    wr = gguf.GGUFWriter(path, GGUF_ARCH[c["model_type"]], split_max_tensors=split)
    keys(wr, c, name, legacy, n_layer, n_mtp)
    tok(wr)
    values = {}
    for gname, x, back in plan(c, w, legacy, n_layer):
        if x.dtype.kind == "i":
            wr.add_tensor(gname, x.astype(np.int32))
            values.update(back(x))
            continue
        q = q_of(gname, x, spec)
        raw, val, scale = encode(q, x, rng, "_exps" in gname)
        if q in (Q.F32, Q.F16):
            wr.add_tensor(gname, raw.reshape(x.shape))
        else:
            wr.add_tensor(gname, raw.reshape(x.shape[:-1] + (-1,)), raw_dtype=q)
        if scale is not None:
            wr.add_tensor(gname.replace(".weight", ".scale"), scale)
        values.update(back(val))
    wr.write_header_to_file()
    wr.write_kv_data_to_file()
    wr.write_tensors_to_file()
    wr.close()
    return values
