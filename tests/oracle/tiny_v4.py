# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V4's tensors: random weights by its makers' names, the same names in transformers'
words, and those of GGUF."""
import re

import torch

FINE, COARSE = "compressed_sparse_attention", "heavily_compressed_attention"
# what names become in transformers' words, in this order
WORDS = ((r"^embed\.", "model.embed_tokens."), (r"^head\.", "lm_head."),
         (r"^norm\.", "model.norm."), (r"^hc_head_", "model.hc_head.hc_"),
         (r"^layers\.", "model.layers."), (r"\.hc_(attn|ffn)_(fn|base|scale)$", r".\1_hc.\2"),
         (r"\.attn_norm\.", ".input_layernorm."), (r"\.ffn_norm\.", ".post_attention_layernorm."),
         (r"\.attn\.", ".self_attn."), (r"\.ffn\.", ".mlp."), (r"\.attn_sink$", ".sinks"),
         (r"\.indexer\.compressor\.", ".compressor.indexer."),
         (r"\.indexer\.weights_proj\.", ".compressor.indexer.scorer.weights_proj."),
         (r"\.indexer\.wq_b\.", ".compressor.indexer.q_b_proj."),
         (r"\.(compressor|indexer)\.norm\.", r".\1.kv_norm."), (r"\.ape$", ".position_bias"),
         (r"\.q_norm\.", ".q_a_norm."), (r"\.wq_a\.", ".q_a_proj."), (r"\.wq_b\.", ".q_b_proj."),
         (r"\.wkv\.", ".kv_proj."), (r"\.wgate\.", ".gate_proj."), (r"\.wo_a\.", ".o_a_proj."),
         (r"\.wo_b\.", ".o_b_proj."), (r"\.gate\.bias$", ".gate.e_score_correction_bias"),
         (r"\.w1\.", ".gate_proj."), (r"\.w2\.", ".down_proj."), (r"\.w3\.", ".up_proj."))
# and GGUF's within a layer
GGUF = {"attn_norm.weight": "attn_norm", "ffn_norm.weight": "ffn_norm",
        "hc_attn_fn": "hc_attn_fn", "hc_attn_base": "hc_attn_base",
        "hc_attn_scale": "hc_attn_scale", "hc_ffn_fn": "hc_ffn_fn", "hc_ffn_base": "hc_ffn_base",
        "hc_ffn_scale": "hc_ffn_scale", "attn.wq_a.weight": "attn_q_a",
        "attn.q_norm.weight": "attn_q_a_norm", "attn.wq_b.weight": "attn_q_b",
        "attn.wkv.weight": "attn_kv", "attn.kv_norm.weight": "attn_kv_a_norm",
        "attn.wo_a.weight": "attn_output_a", "attn.wo_b.weight": "attn_output_b",
        "attn.attn_sink": "attn_sinks", "attn.compressor.wkv.weight": "attn_compressor_kv",
        "attn.compressor.wgate.weight": "attn_compressor_gate",
        "attn.compressor.ape": "attn_compressor_ape",
        "attn.compressor.norm.weight": "attn_compressor_norm",
        "attn.indexer.wq_b.weight": "indexer.attn_q_b",
        "attn.indexer.weights_proj.weight": "indexer.proj",
        "attn.indexer.compressor.wkv.weight": "indexer_compressor_kv",
        "attn.indexer.compressor.wgate.weight": "indexer_compressor_gate",
        "attn.indexer.compressor.ape": "indexer_compressor_ape",
        "attn.indexer.compressor.norm.weight": "indexer_compressor_norm",
        "ffn.gate.weight": "ffn_gate_inp", "ffn.gate.tid2eid": "ffn_gate_tid2eid",
        "ffn.shared_experts.w1.weight": "ffn_gate_shexp",
        "ffn.shared_experts.w2.weight": "ffn_down_shexp",
        "ffn.shared_experts.w3.weight": "ffn_up_shexp", "e_proj.weight": "nextn.e_proj",
        "h_proj.weight": "nextn.h_proj", "enorm.weight": "nextn.enorm",
        "hnorm.weight": "nextn.hnorm", "norm.weight": "nextn.shared_head_norm",
        "hc_head_fn": "nextn.hc_head_fn", "hc_head_base": "nextn.hc_head_base",
        "hc_head_scale": "nextn.hc_head_scale"}
OUTSIDE = {"embed.weight": "token_embd", "head.weight": "output", "norm.weight": "output_norm",
           "hc_head_fn": "output_hc_fn", "hc_head_base": "output_hc_base",
           "hc_head_scale": "output_hc_scale"}


def is_v4(c):
    return c["model_type"] == "deepseek_v4"


def ratios(c):
    """[(tokens of an entry, does an indexer choose them?)] of the layers."""
    n = c["num_hidden_layers"]
    if "layer_types" not in c:
        return [(r, r == 4) for r in c["compress_ratios"][:n]]
    rate = dict({FINE: 4, COARSE: 128}, **c.get("compress_rates", {}))
    return [(rate.get(t, 0), t == FINE) for t in c["layer_types"]]


def hashed(c):
    if "mlp_layer_types" in c:
        return [t == "hash_moe" for t in c["mlp_layer_types"]]
    return [i < c["num_hash_layers"] for i in range(c["num_hidden_layers"])]


def is_f32(n):
    return any(k in n for k in ("hc_", "attn_sink", ".ape", "gate.bias", "norm"))


def form_of(n):
    """How its makers store that matrix."""
    if ".experts." in n:
        return "fp4"
    both = (".wq_a.", ".wq_b.", ".attn.wkv.", ".wo_a.", ".wo_b.", ".shared_experts.", ".e_proj.",
            ".h_proj.")
    return "fp8" if any(k in n for k in both) else None


def in_words(n):
    """The name in transformers' words."""
    for one, other in WORDS:
        n = re.sub(one, other, n)
    return n


def weights(c, g, mat, vec, out, n_mtp):
    """Fills out by mat(name, rows, cols, gain, dtype) and vec(name, size, mean, std, dtype)."""
    D, N, H, d = c["hidden_size"], c["hc_mult"], c["num_attention_heads"], c["head_dim"]
    f32 = torch.float32

    def streams(p, rows, scales):
        mat(p + "_fn", rows, N * D, 2.0, f32)
        vec(p + "_base", rows, 0.0, 0.7, f32)
        vec(p + "_scale", scales, 0.7, 0.3, f32)

    def entries(p, width, ratio, two):
        n = 2 * width if two else width
        mat(p + "wkv.weight", n, D, 1.5)
        mat(p + "wgate.weight", n, D, 1.5)
        mat(p + "ape", ratio, n, ratio**0.5, f32)
        vec(p + "norm.weight", width, 1.2, 0.2, f32)

    def attention(p, ratio, fine):
        mat(p + "wq_a.weight", c["q_lora_rank"], D)
        vec(p + "q_norm.weight", c["q_lora_rank"], 1.0, 0.2, f32)
        mat(p + "wq_b.weight", H * d, c["q_lora_rank"])
        mat(p + "wkv.weight", d, D)
        vec(p + "kv_norm.weight", d, 1.5, 0.2, f32)
        mat(p + "wo_a.weight", c["o_groups"] * c["o_lora_rank"], H * d // c["o_groups"], 1.5)
        mat(p + "wo_b.weight", D, c["o_groups"] * c["o_lora_rank"], 1.5)
        vec(p + "attn_sink", H, 0.0, 1.0, f32)
        if ratio:
            entries(p + "compressor.", d, ratio, fine)
        if fine:
            p, n, w = p + "indexer.", c["index_n_heads"], c["index_head_dim"]
            mat(p + "wq_b.weight", n * w, c["q_lora_rank"])
            # of two opposite heads one always scores: else some scores are all 0
            out[p + "wq_b.weight"][w:2 * w] = -out[p + "wq_b.weight"][:w]
            mat(p + "weights_proj.weight", n, D)
            entries(p + "compressor.", w, ratio, True)

    def mlp(p):
        for k, (rows, cols) in (("w1", (c["moe_intermediate_size"], D)),
                                ("w2", (D, c["moe_intermediate_size"])),
                                ("w3", (c["moe_intermediate_size"], D))):
            mat(f"{p}{k}.weight", rows, cols, 1.5)

    E, K = c["n_routed_experts"], c["num_experts_per_tok"]
    mat("embed.weight", c["vocab_size"], D, D**0.5)

    def layer(p, ratio, fine, by_id):
        vec(p + "attn_norm.weight", D, 1.0, 0.1, f32)
        vec(p + "ffn_norm.weight", D, 1.0, 0.1, f32)
        streams(p + "hc_attn", (2 + N) * N, 3)
        streams(p + "hc_ffn", (2 + N) * N, 3)
        attention(p + "attn.", ratio, fine)
        mat(p + "ffn.gate.weight", E, D, 1.5)
        if by_id:
            table = out[p + "ffn.gate.tid2eid"] = torch.stack(
                [torch.randperm(E, generator=g)[:K] for _ in range(c["vocab_size"])])
            table[::5, 1] = table[::5, 0]  # twice the same, as in files of fewer experts
        else:
            vec(p + "ffn.gate.bias", E, 0.0, 0.1, f32)
        for e in range(E):
            mlp(f"{p}ffn.experts.{e}.")
        mlp(p + "ffn.shared_experts.")

    for i, ((ratio, fine), by_id) in enumerate(zip(ratios(c), hashed(c))):
        layer(f"layers.{i}.", ratio, fine, by_id)
    streams("hc_head", N, 1)
    vec("norm.weight", D, 1.0, 0.1, f32)
    mat("head.weight", c["vocab_size"], D, 2.0)
    for i in range(n_mtp):
        p = f"mtp.{i}."
        layer(p, 0, False, False)
        for n in ("enorm", "hnorm", "norm"):
            vec(f"{p}{n}.weight", D, 1.0, 0.1, f32)
        mat(p + "e_proj.weight", D, D)
        mat(p + "h_proj.weight", D, D)
        streams(p + "hc_head", N, 1)


def plan(c, w, out):
    """As that of tiny_gguf."""
    def same(gname, name):
        if name in w:
            out.append((gname + ".weight", w[name], lambda a, n=name: {n: a}))

    for name, gname in OUTSIDE.items():
        same(gname, name)
    n = c["num_hidden_layers"]
    for i in range(n + sum(k.endswith(".e_proj.weight") for k in w)):
        p = f"layers.{i}." if i < n else f"mtp.{i - n}."
        for name, gname in GGUF.items():
            same(f"blk.{i}.{gname}", p + name)
        if p + "ffn.gate.bias" in w:
            out.append((f"blk.{i}.exp_probs_b.bias", w[p + "ffn.gate.bias"],
                        lambda a, n=p + "ffn.gate.bias": {n: a}))
        for x, gname in (("w1", "gate"), ("w2", "down"), ("w3", "up")):
            names = [f"{p}ffn.experts.{e}.{x}.weight" for e in range(c["n_routed_experts"])]
            out.append((f"blk.{i}.ffn_{gname}_exps.weight",
                        torch.stack([torch.as_tensor(w[n]) for n in names]).numpy(),
                        lambda a, names=names: dict(zip(names, a))))


def rope(c):
    """Its rope in the words of others: the base of windows, the scaling of entries."""
    both = c.get("rope_parameters") or {}
    one = dict(both.get("compress") or c.get("rope_scaling") or {})
    one["rope_theta"] = both.get("main", c)["rope_theta"]
    return one


def keys(wr, c, n_mtp):
    """What GGUF's keys say of it beside those of all."""
    p = "deepseek4."
    n, rate = c["num_hidden_layers"] + n_mtp, [r for r, _ in ratios(c)] + [0] * n_mtp
    rp = c.get("rope_parameters", {}).get("compress") or {}
    wr.add_key_length(c["head_dim"])
    wr.add_value_length(c["head_dim"])
    wr.add_head_count_kv(1)
    wr.add_rope_dimension_count(c["qk_rope_head_dim"])
    wr.add_q_lora_rank(c["q_lora_rank"])
    wr.add_sliding_window(c["sliding_window"])
    wr.add_uint32(p + "attention.output_group_count", c["o_groups"])
    wr.add_uint32(p + "attention.output_lora_rank", c["o_lora_rank"])
    wr.add_array(p + "attention.compress_ratios", rate)
    wr.add_float32(p + "attention.compress_rope_freq_base",
                   float(rp.get("rope_theta", c.get("compress_rope_theta", 160000.0))))
    wr.add_uint32(p + "attention.indexer.head_count", c["index_n_heads"])
    wr.add_uint32(p + "attention.indexer.key_length", c["index_head_dim"])
    wr.add_uint32(p + "attention.indexer.top_k", c["index_topk"])
    wr.add_uint32(p + "hyper_connection.count", c["hc_mult"])
    wr.add_uint32(p + "hyper_connection.sinkhorn_iterations", c["hc_sinkhorn_iters"])
    wr.add_float32(p + "hyper_connection.epsilon", c["hc_eps"])
    wr.add_uint32(p + "hash_layer_count", sum(hashed(c)))
    wr.add_expert_count(c["n_routed_experts"])
    wr.add_expert_used_count(c["num_experts_per_tok"])
    wr.add_expert_shared_count(c["n_shared_experts"])
    wr.add_expert_feed_forward_length(c["moe_intermediate_size"])
    wr.add_expert_weights_scale(c["routed_scaling_factor"])
    wr.add_expert_weights_norm(True)
    wr.add_uint32(p + "expert_gating_func", 4)
    wr.add_array(p + "swiglu_clamp_exp", [float(c["swiglu_limit"])] * n)
    wr.add_array(p + "swiglu_clamp_shexp", [float(c["swiglu_limit"])] * n)
    if n_mtp:
        wr.add_nextn_predict_layers(n_mtp)
