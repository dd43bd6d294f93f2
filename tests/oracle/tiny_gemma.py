# SPDX-License-Identifier: Apache-2.0
"""Gemma 4's tensors: random weights by the names of transformers, with a matrix for each expert,
and those of GGUF."""
import numpy as np

# GGUF's names of what a layer has
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
         "post_feedforward_layernorm_1": "post_ffw_norm_1",
         "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
         "post_feedforward_layernorm_2": "post_ffw_norm_2", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "router.proj": "ffn_gate_inp"}
# with their suffixes
WHOLE = {"layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale",
         "router.per_expert_scale": "ffn_down_exps.scale"}
WINDOW = "sliding_attention"


def is_gemma(c):
    return c["model_type"] == "gemma4_text"


def heads(c, i):
    """(width of a head, key heads, are these values too?) of layer i"""
    if c["layer_types"][i] == WINDOW:
        return c["head_dim"], c["num_key_value_heads"], False
    same = c.get("attention_k_eq_v", False)
    own = c.get("per_layer_config", {}).get(str(i), {})
    kv = c.get("num_global_key_value_heads") if same else None
    return (own.get("head_dim", c.get("global_head_dim")),
            own.get("num_key_value_heads", kv or c["num_key_value_heads"]), same)




def weights(c, mat, vec):
    """By mat(name, rows, cols, gain) and vec(name, size, mean, std)."""
    D, H = c["hidden_size"], c["num_attention_heads"]
    E = c["num_experts"] if c.get("enable_moe_block") else 0

    def mlp(p, rows):
        mat(p + "gate_proj.weight", rows, D, 1.5)
        mat(p + "up_proj.weight", rows, D, 1.5)
        mat(p + "down_proj.weight", D, rows, 1.5)

    mat("model.embed_tokens.weight", c["vocab_size"], D, 1.5)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        d, kv, same = heads(c, i)
        more = ("_1", "_2") if E else ()
        for n in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                  "post_feedforward_layernorm", *("post_feedforward_layernorm" + x for x in more)):
            vec(f"{p}{n}.weight", D, 0.9, 0.2)
        mat(p + "self_attn.q_proj.weight", H * d, D, 2.0)
        mat(p + "self_attn.k_proj.weight", kv * d, D, 1.5)
        if not same:
            mat(p + "self_attn.v_proj.weight", kv * d, D)
        mat(p + "self_attn.o_proj.weight", D, H * d)
        vec(p + "self_attn.q_norm.weight", d, 0.7, 0.1)
        vec(p + "self_attn.k_norm.weight", d, 0.6, 0.1)
        mlp(p + "mlp.", c["intermediate_size"])
        vec(p + "layer_scalar", 1, 0.8, 0.15)
        if not E:
            continue
        vec(p + "pre_feedforward_layernorm_2.weight", D, 0.9, 0.2)
        vec(p + "router.scale", D, 1.0, 0.3)
        vec(p + "router.per_expert_scale", E, 1.0, 0.3)
        mat(p + "router.proj.weight", E, D, 1.5 * D**0.5)
        for e in range(E):
            mlp(f"{p}experts.{e}.", c["moe_intermediate_size"])
    vec("model.norm.weight", D, 1.0, 0.2)
    if not c.get("tie_word_embeddings", True):
        mat("lm_head.weight", c["vocab_size"], D, 2.0)


def plan(c, w, out):
    """As that of tiny_gguf."""
    def same(gname, name):
        if name in w:
            out.append((gname, w[name], lambda a, n=name: {n: a}))

    same("token_embd.weight", "model.embed_tokens.weight")
    same("output_norm.weight", "model.norm.weight")
    same("output.weight", "lm_head.weight")
    full = c["layer_types"].index("full_attention")
    d = heads(c, full)[0]
    n = int(d * c["rope_parameters"]["full_attention"].get("partial_rotary_factor", 1.0) // 2)
    out.append(("rope_freqs.weight", np.array([1.0] * n + [1e30] * (d // 2 - n), np.float32),
                lambda a: {}))
    E = c["num_experts"] if c.get("enable_moe_block") else 0
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, gname in LAYER.items():
            same(f"blk.{i}.{gname}.weight", f"{p}{name}.weight")
        for name, gname in WHOLE.items():
            same(f"blk.{i}.{gname}", p + name)
        if not E:
            continue
        half = [[f"{p}experts.{e}.{x}_proj.weight" for e in range(E)] for x in ("gate", "up")]
        names = [n for pair in zip(*half) for n in pair]
        both = np.stack([w[n] for n in names])
        out.append((f"blk.{i}.ffn_gate_up_exps.weight", both.reshape(E, -1, both.shape[-1]),
                    lambda a, names=names, s=both.shape: dict(zip(names, a.reshape(s)))))
        down = [f"{p}experts.{e}.down_proj.weight" for e in range(E)]
        out.append((f"blk.{i}.ffn_down_exps.weight", np.stack([w[n] for n in down]),
                    lambda a, names=down: dict(zip(names, a))))


def keys(wr, c):
    """What GGUF's keys say of it beside those of all."""
    n, p = c["num_hidden_layers"], "gemma4."
    full = c["layer_types"].index("full_attention")
    win = [t == WINDOW for t in c["layer_types"]]
    rope = c["rope_parameters"]
    kv = [heads(c, i)[1] for i in range(n)]
    d = heads(c, full)[0]
    wr.add_rope_freq_base(float(rope["full_attention"]["rope_theta"]))
    wr.add_float32(p + "rope.freq_base_swa", float(rope[WINDOW]["rope_theta"]))
    wr.add_head_count_kv(kv if len(set(kv)) > 1 else kv[0])
    wr.add_key_length(d)
    wr.add_value_length(d)
    wr.add_uint32(p + "attention.key_length_swa", c["head_dim"])
    wr.add_uint32(p + "attention.value_length_swa", c["head_dim"])
    wr.add_rope_dimension_count(d)
    wr.add_uint32(p + "rope.dimension_count_swa", c["head_dim"])
    wr.add_sliding_window(c["sliding_window"])
    wr.add_array(p + "attention.sliding_window_pattern", win)
    wr.add_uint32(p + "attention.shared_kv_layers", 0)
    wr.add_uint32(p + "embedding_length_per_layer_input", 0)
    if c.get("final_logit_softcapping"):
        wr.add_float32(p + "final_logit_softcapping", c["final_logit_softcapping"])
    if c.get("enable_moe_block"):
        wr.add_expert_count(c["num_experts"])
        wr.add_expert_used_count(c["top_k_experts"])
        wr.add_expert_feed_forward_length(c["moe_intermediate_size"])
