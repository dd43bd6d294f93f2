# SPDX-License-Identifier: Apache-2.0
"""Wide tiny checkpoints: few layers, but as many columns as real models have, so that they run the
kernels that real models run (quantised models of at most 512 columns take f32 by themselves).

  wide.py OUT SLUICE [NAME[.TYPE]...]   writes OUT/NAME (a folder) and OUT/NAME.TYPE

Weights come from a seeded generator of this file, the same bytes on every machine. Quantised forms
are made from the folders by `sluice quantize`. Python's own library is all that this needs."""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys

V = 320  # tokens; those of the tiny checkpoints
BASE = dict(vocab_size=V, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=2048,
            bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16", tie_word_embeddings=False)
YARN = dict(type="yarn", factor=4.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0,
            original_max_position_embeddings=64)
MLA = dict(qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, kv_lora_rank=256,
           first_k_dense_replace=1, moe_layer_freq=1, rope_theta=10000, attention_bias=False)


def config(arch, kind, **kw):
    return dict(BASE, architectures=[arch], model_type=kind, **kw)


# What each adds: heads that share keys 5 : 1 and do not; biases; norms of heads; windows; routed
# experts with and without groups, shared ones, a dense layer first; both forms of q in MLA; an MTP
# layer; 17 heads, which fill no vector; sinks, biases of experts and clamped units; `long`, whose
# inner width of 8448 columns is over two spans of groups in the choice of second planes; a part of
# a head rotated, with an MTP layer of GQA; norms over all heads at once; values wider than keys'
# plain part; a nested configuration with the experts in integers of 4 bits; gated delta layers,
# their projections in two matrices and two value heads for a key head, beside attention with a gate
# and a shared expert with one; the same with projections apart, three value heads for a key head,
# whose widths differ, and no experts; indexers with the two forms of rope, the MTP layer's among
# them, and layers that share what one below them has chosen; blocks that key heads choose, clamped
# units in dense layers and a shared expert too; Kimi Delta Attention, a decay for each key channel,
# beside latents of which nothing is rotated; the same with bounded decays and all of their matrices
# whole, beside latents with a gate for each head, limits of some units after silu, an MTP layer;
# streams, decays bounded but of low rank, an indexer of pools beside latents that have no rotated
# part, and an MTP layer without streams; heads of two widths, keys that are values, norms after
# sub-layers, a dense block beside experts.
CONFIGS = {
    "llama": config("LlamaForCausalLM", "llama", hidden_size=768, intermediate_size=768,
                    num_hidden_layers=2, num_attention_heads=10, num_key_value_heads=2,
                    head_dim=64, rope_theta=10000.0, attention_bias=False, mlp_bias=False),
    "window": config("MistralForCausalLM", "mistral", hidden_size=768, intermediate_size=512,
                     num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=6,
                     head_dim=64, rope_theta=10000.0, sliding_window=50),
    "qwen2": config("Qwen2ForCausalLM", "qwen2", hidden_size=640, intermediate_size=672,
                    num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=1,
                    head_dim=80, rope_theta=1000000.0, use_sliding_window=False),
    "qwen3": config("Qwen3ForCausalLM", "qwen3", hidden_size=768, intermediate_size=512,
                    num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
                    head_dim=128, rope_theta=1000000.0, attention_bias=False),
    "qwen3_moe": config("Qwen3MoeForCausalLM", "qwen3_moe", hidden_size=768,
                        intermediate_size=512, num_hidden_layers=2, num_attention_heads=8,
                        num_key_value_heads=2, head_dim=64, rope_theta=1000000.0,
                        attention_bias=False, decoder_sparse_step=1, moe_intermediate_size=256,
                        num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
                        mlp_only_layers=[]),
    "deepseek_v2": config("DeepseekV2ForCausalLM", "deepseek_v2", hidden_size=768,
                          intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=4, q_lora_rank=None, n_routed_experts=4,
                          num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=256,
                          routed_scaling_factor=1.0, scoring_func="softmax", n_group=1,
                          topk_group=1, topk_method="greedy", norm_topk_prob=False,
                          rope_scaling=None, **MLA),
    "deepseek_v3": config("DeepseekV3ForCausalLM", "deepseek_v3", hidden_size=768,
                          intermediate_size=512, num_hidden_layers=2, num_attention_heads=17,
                          num_key_value_heads=17, q_lora_rank=256, n_routed_experts=8,
                          num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=256,
                          routed_scaling_factor=2.5, scoring_func="sigmoid", n_group=4,
                          topk_group=2, topk_method="noaux_tc", norm_topk_prob=True,
                          num_nextn_predict_layers=1, rope_scaling=YARN, **MLA),
    "long": config("LlamaForCausalLM", "llama", hidden_size=640, intermediate_size=8448,
                   num_hidden_layers=1, num_attention_heads=5, num_key_value_heads=1,
                   head_dim=64, rope_theta=10000.0, attention_bias=False, mlp_bias=False),
    "gpt_oss": config("GptOssForCausalLM", "gpt_oss", hidden_size=768, intermediate_size=256,
                      num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=2,
                      head_dim=64, rope_theta=150000, attention_bias=True, num_local_experts=6,
                      num_experts_per_tok=3, sliding_window=50, swiglu_limit=7.0,
                      rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32, beta_slow=1,
                                        truncate=False, original_max_position_embeddings=64)),
    "glm4_moe": config("Glm4MoeForCausalLM", "glm4_moe", hidden_size=768, intermediate_size=512,
                       num_hidden_layers=2, num_attention_heads=12, num_key_value_heads=2,
                       head_dim=64, partial_rotary_factor=0.5, rope_theta=1000000,
                       attention_bias=True, use_qk_norm=True, n_routed_experts=8,
                       num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=256,
                       routed_scaling_factor=2.5, n_group=1, topk_group=1, norm_topk_prob=True,
                       first_k_dense_replace=1, num_nextn_predict_layers=1),
    "minimax_m2": config("MiniMaxM2ForCausalLM", "minimax_m2", hidden_size=768,
                         intermediate_size=256, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=2, head_dim=128, rotary_dim=64, rope_theta=5000000,
                         num_local_experts=8, num_experts_per_tok=3, scoring_func="sigmoid",
                         use_routing_bias=True, use_qk_norm=True, qk_norm_type="per_layer"),
    "glm4_moe_lite": config("Glm4MoeLiteForCausalLM", "glm4_moe_lite", hidden_size=640,
                            intermediate_size=512, num_hidden_layers=2, num_attention_heads=5,
                            num_key_value_heads=5, q_lora_rank=256, kv_lora_rank=256,
                            qk_nope_head_dim=96, qk_rope_head_dim=32, v_head_dim=128,
                            rope_theta=1000000, attention_bias=False, n_routed_experts=8,
                            num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=256,
                            routed_scaling_factor=1.8, n_group=1, topk_group=1,
                            norm_topk_prob=True, topk_method="noaux_tc",
                            mlp_layer_types=["dense", "sparse"]),
    "kimi_k25": dict(
        BASE, architectures=["KimiK25ForConditionalGeneration"], model_type="kimi_k25",
        vision_config=dict(hidden_size=8), text_config=config(
            "DeepseekV3ForCausalLM", "kimi_k2", hidden_size=768, intermediate_size=512,
            num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8, q_lora_rank=256,
            n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1,
            moe_intermediate_size=256, routed_scaling_factor=2.827, scoring_func="sigmoid",
            n_group=1, topk_group=1, topk_method="noaux_tc", norm_topk_prob=True,
            rope_scaling=YARN, **MLA)),
    "qwen3_next": config("Qwen3NextForCausalLM", "qwen3_next", hidden_size=768,
                         intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=1, head_dim=256, partial_rotary_factor=0.25,
                         rope_theta=10000000, attention_bias=False, full_attention_interval=2,
                         linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=128,
                         linear_value_head_dim=128, linear_conv_kernel_dim=4, num_experts=6,
                         num_experts_per_tok=2, moe_intermediate_size=256,
                         shared_expert_intermediate_size=256, norm_topk_prob=True,
                         decoder_sparse_step=1, mlp_only_layers=[]),
    "qwen3_5": config("Qwen3_5ForCausalLM", "qwen3_5_text", hidden_size=768,
                      intermediate_size=512, num_hidden_layers=4, num_attention_heads=6,
                      num_key_value_heads=2, head_dim=128, attention_bias=False,
                      layer_types=["linear_attention"] * 3 + ["full_attention"],
                      linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=64,
                      linear_value_head_dim=128, linear_conv_kernel_dim=4,
                      rope_parameters=dict(rope_type="default", rope_theta=10000000,
                                           partial_rotary_factor=0.25)),
    "deepseek_v32": config("DeepseekV32ForCausalLM", "deepseek_v32", hidden_size=768,
                           intermediate_size=512, num_hidden_layers=2, num_attention_heads=9,
                           num_key_value_heads=9, q_lora_rank=256, index_n_heads=16,
                           index_head_dim=64, index_topk=20, n_routed_experts=8,
                           num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=256,
                           routed_scaling_factor=2.5, scoring_func="sigmoid", n_group=4,
                           topk_group=2, topk_method="noaux_tc", norm_topk_prob=True,
                           num_nextn_predict_layers=1, rope_scaling=YARN, **MLA),
    "glm_moe_dsa": config("GlmMoeDsaForCausalLM", "glm_moe_dsa", hidden_size=768,
                          intermediate_size=512, num_hidden_layers=3, num_attention_heads=8,
                          num_key_value_heads=8, q_lora_rank=512, index_n_heads=6,
                          index_head_dim=128, index_topk=33,
                          indexer_types=["full", "shared", "full"], n_routed_experts=6,
                          num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=256,
                          routed_scaling_factor=2.5, scoring_func="sigmoid", n_group=1,
                          topk_group=1, topk_method="noaux_tc", norm_topk_prob=True,
                          num_nextn_predict_layers=0, rope_scaling=None,
                          **dict(MLA, v_head_dim=96)),
    "minimax_m3": config("MiniMaxM3VLForCausalLM", "minimax_m3_vl_text", hidden_size=768,
                         dense_intermediate_size=512, intermediate_size=256,
                         shared_intermediate_size=512, num_hidden_layers=2,
                         num_attention_heads=8, num_key_value_heads=2, head_dim=128,
                         rotary_dim=64, rope_theta=5000000, use_qk_norm=True,
                         num_local_experts=6, num_experts_per_tok=2,
                         mlp_layer_types=["dense", "sparse"], routed_scaling_factor=2.0,
                         layer_types=["minimax_m3_sparse"] * 2, index_n_heads=2,
                         index_head_dim=128, index_block_size=16, index_topk_blocks=2,
                         index_local_blocks=1),
    "kimi_linear": config("KimiLinearForCausalLM", "kimi_linear", hidden_size=768,
                          intermediate_size=512, num_hidden_layers=3, num_attention_heads=5,
                          num_key_value_heads=5, q_lora_rank=None, mla_use_nope=True,
                          linear_attn_config=dict(kda_layers=[1, 3], full_attn_layers=[2],
                                                  head_dim=128, num_heads=5,
                                                  short_conv_kernel_size=4),
                          num_experts=8, num_experts_per_token=3, num_shared_experts=1,
                          moe_intermediate_size=256, routed_scaling_factor=2.446,
                          moe_router_activation_func="sigmoid", num_expert_group=1, topk_group=1,
                          topk_method="noaux_tc", moe_renormalize=True, rope_scaling=None, **MLA),
    "bailing_hybrid": config("BailingMoeV3ForCausalLM", "bailing_hybrid", hidden_size=768,
                             intermediate_size=512, num_hidden_layers=3, num_attention_heads=5,
                             num_key_value_heads=5, head_dim=128, q_lora_rank=None,
                             layer_group_size=3, short_conv_kernel_size=4, kda_lower_bound=-5,
                             no_kda_lora=True, num_experts=8, num_experts_per_tok=3,
                             num_shared_experts=1, moe_intermediate_size=256, n_group=2,
                             topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                             num_nextn_predict_layers=1, expert_swiglu_limit_list=[0, 0.5, 0],
                             share_expert_swiglu_limit_list=[0, 0, 0.5],
                             **{k: v for k, v in MLA.items() if k != "moe_layer_freq"}),
    "deepseek_v4": config("DeepseekV4ForCausalLM", "deepseek_v4", hidden_size=768,
                          num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=1,
                          head_dim=128, qk_rope_head_dim=64, q_lora_rank=512, o_groups=2,
                          o_lora_rank=256, moe_intermediate_size=256, n_routed_experts=6,
                          num_experts_per_tok=2, n_shared_experts=1, num_hash_layers=1,
                          routed_scaling_factor=1.5, swiglu_limit=1.5, hc_mult=4,
                          hc_sinkhorn_iters=20, sliding_window=32, index_n_heads=6,
                          index_head_dim=128, index_topk=9, compress_ratios=[0, 32, 4],
                          compress_rate_hca=32, num_nextn_predict_layers=0,
                          rope_scaling=dict(type="yarn", factor=4.0, beta_fast=32, beta_slow=1,
                                            original_max_position_embeddings=64)),
    "glm5_next": config("Glm5NextTextModel", "glm5_next_text", hidden_size=768,
                        intermediate_size=512, num_hidden_layers=3, num_attention_heads=5,
                        num_key_value_heads=5, kv_lora_rank=256, q_lora_rank=512,
                        qk_nope_head_dim=96, qk_rope_head_dim=0, v_head_dim=128,
                        mla_use_nope=True, mhc=True, hc_mult=4, hc_eps=1e-6, hc_sinkhorn_iters=20,
                        layer_types=["linear_attention", "deepseek_sparse_attention",
                                     "linear_attention"],
                        mlp_layer_types=["dense", "sparse", "sparse"], index_n_heads=6,
                        index_head_dim=128, index_topk=32, index_kpool=4,
                        index_kpool_always_select_tail=True, index_kpool_compress=True,
                        linear_attn_config=dict(num_heads=5, head_dim=128, gate_lower_bound=-5.0,
                                                short_conv_kernel_size=4, kda_layers=[0, 2],
                                                full_attn_layers=[1]),
                        n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
                        moe_intermediate_size=256, routed_scaling_factor=2.5, n_group=1,
                        topk_group=1, topk_method="noaux_tc", scoring_func="sigmoid",
                        norm_topk_prob=True, swiglu_limit=1.5, num_nextn_predict_layers=1),
    "gemma4": config("Gemma4ForCausalLM", "gemma4_text", vocab_size=512, hidden_size=768,
                     intermediate_size=512, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=128, global_head_dim=256,
                     num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=32,
                     layer_types=["sliding_attention"] * 2 + ["full_attention"],
                     hidden_activation="gelu_pytorch_tanh", enable_moe_block=True, num_experts=6,
                     top_k_experts=2, moe_intermediate_size=256, final_logit_softcapping=30.0,
                     hidden_size_per_layer_input=0, num_kv_shared_layers=0),
}
# its MTP layer, which takes all streams
CONFIGS["deepseek_v4_mtp"] = dict(CONFIGS["deepseek_v4"], num_hidden_layers=2, hc_mult=3,
                                  compress_ratios=[32, 4, 0], num_nextn_predict_layers=1)
CONFIGS["gemma4"]["tie_word_embeddings"] = True
del CONFIGS["gemma4"]["hidden_act"]
INT4 = dict(quant_method="compressed-tensors", format="pack-quantized",
            ignore=["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*lm_head",
                    "re:.*mlp[.](gate|up|down)_proj"],
            config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(
                num_bits=4, type="int", strategy="group", symmetric=True, dynamic=False,
                group_size=32))))
CONFIGS["kimi_k25"]["text_config"]["quantization_config"] = INT4
TYPES = ["bf16", "q4_0", "q4_k", "q6_k", "q8_0", "int8", "awq", "nvfp4", "mxfp4"]
FOLDERS = {"int8", "awq", "nvfp4"}  # written as folders
# Of these what is their own does not depend on the type of weights: some types each. `own`: the
# folder as it is.
SOME = {"long": ("q4_0", "int8"),  # which is slow
        "gpt_oss": ("bf16", "q4_k", "int8", "mxfp4"),
        "glm4_moe": ("bf16", "q4_k", "nvfp4", "mxfp4"),
        "minimax_m2": ("bf16", "q4_0", "q6_k", "awq"),
        "glm4_moe_lite": ("bf16", "q8_0", "int8", "awq"),
        "kimi_k25": ("own", "q4_0", "q4_k", "int8"),
        "qwen3_next": ("bf16", "q4_0", "q6_k", "int8"),
        "qwen3_5": ("q4_k", "awq"),
        "deepseek_v32": ("q4_k", "int8"),
        "glm_moe_dsa": ("q6_k",),
        "minimax_m3": ("q4_k", "int8"), "kimi_linear": ("q4_k", "int8"),
        "bailing_hybrid": ("q4_k", "int8"), "deepseek_v4": ("q4_k", "int8"),
        "deepseek_v4_mtp": ("q4_k",), "glm5_next": ("q4_k", "int8"), "gemma4": ("q4_k", "int8")}
TOKENIZER = {"qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3_moe",
             "deepseek_v2": "deepseek_v2", "deepseek_v3": "deepseek_v3", "gemma4": "gemma4"}


def names():
    """All that are checked. 640 columns are no multiple of the 256 that K types need."""
    return [f"{n}.{t}" for n in CONFIGS for t in SOME.get(n, TYPES)
            if not (t in ("q4_k", "q6_k") and text_of(n)["hidden_size"] % 256)]


def text_of(name):
    """The configuration of the model of text."""
    return CONFIGS[name].get("text_config", CONFIGS[name])


def has_delta(c):
    return "linear_num_value_heads" in c


def is_m3(c):
    return c["model_type"] == "minimax_m3_vl_text"


def is_delta(c, i):
    if "full_attention_interval" in c:
        return (i + 1) % c["full_attention_interval"] != 0
    return has_delta(c) and c["layer_types"][i] == "linear_attention"


def is_ling(c):
    return c["model_type"] == "bailing_hybrid"


def is_glm5(c):
    return c["model_type"] == "glm5_next_text"


def is_kda(c, i):
    if is_glm5(c):
        return i in c["linear_attn_config"]["kda_layers"]
    if is_ling(c):
        return i < c["num_hidden_layers"] and (i + 1) % c["layer_group_size"] != 0
    return i + 1 in c.get("linear_attn_config", {}).get("kda_layers", [])


class Weights:
    """Random bf16 matrices: a mantissa of 7 bits, the exponent's last bit and the rest of the
    exponent from a table whose frequencies are about a bell's, so that no floats are made here."""

    def __init__(self, name):
        self.rng = random.Random("sluice wide " + name)
        c = text_of(name)
        self.less = 1.0 if has_delta(c) or is_m3(c) else 0.0  # norms' weights are stored less 1
        self.out = []

    def mat(self, name, rows, cols, gain=1.0):
        e = round(math.log2(gain / cols**0.5)) + 127
        high = [max((e - d) >> 1, 1) for d in (0, 0, 0, 0, 2, 2, 2, 4, 4, 6)]
        table = bytes(high[i % 128 % 10] | (i & 128) for i in range(256))
        raw = bytearray(self.rng.randbytes(2 * rows * cols))
        raw[1::2] = raw[1::2].translate(table)
        self.out.append((name, [rows, cols], "BF16", bytes(raw)))

    def vec(self, name, n, mean=1.0, std=0.1, outliers=0, less=0.0, dtype="BF16"):
        x = [self.rng.gauss(mean, std) for _ in range(n)]
        for i in range(outliers):  # columns that stand out, as those of real models do
            x[(i * 97 + 13) % n] *= 24
        raw = struct.pack(f"<{n}f", *(v - less for v in x))
        if dtype == "BF16":
            raw = b"".join(raw[4 * i + 2:4 * i + 4] for i in range(n))
        self.out.append((name, [n], dtype, raw))

    def norm(self, name, n, mean=1.0, outliers=0):
        self.vec(name, n, mean, outliers=outliers, less=self.less)

    def int4(self, name, rows, cols, gain=1.0):
        """Codes of 4 bits, their scales of 32 columns, as compressed-tensors has them."""
        scale = round(math.log2(gain / cols**0.5 / 4.6)) + 127  # 4.6: the deviation of the codes
        raw = self.rng.randbytes(rows * cols // 2)
        high = bytes(scale - d >> 1 for d in (0, 0, 1, 1)) * 64
        scales = bytearray(self.rng.randbytes(rows * cols // 16))
        scales[1::2] = scales[1::2].translate(high)
        shape = struct.pack("<2q", rows, cols)
        self.out.append((name + "_packed", [rows, cols // 8], "I32", raw))
        self.out.append((name + "_scale", [rows, cols // 32], "BF16", bytes(scales)))
        self.out.append((name + "_shape", [2], "I64", shape))

    def write(self, path, prefix):
        head, at = {}, 0
        for name, shape, dtype, raw in self.out:
            head[prefix + name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(raw)])
            at += len(raw)
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for _, _, _, raw in self.out:
                f.write(raw)


def attention(w, c, p):
    D, h = c["hidden_size"], c["num_attention_heads"]
    if "kv_lora_rank" in c:
        r, rope, v = c["kv_lora_rank"], c["qk_rope_head_dim"], c["v_head_dim"]
        nope, q = c["qk_nope_head_dim"], c["q_lora_rank"]
        if q:
            w.mat(p + "q_a_proj.weight", q, D)
            w.vec(p + "q_a_layernorm.weight", q)
            w.mat(p + "q_b_proj.weight", h * (nope + rope), q, 2.0)
        else:
            w.mat(p + "q_proj.weight", h * (nope + rope), D, 2.0)
        w.mat(p + "kv_a_proj_with_mqa.weight", r + rope, D)
        w.vec(p + "kv_a_layernorm.weight", r)
        w.mat(p + "kv_b_proj.weight", h * (nope + v), r, 2.0)
        if is_ling(c):
            w.mat(p + "g_proj.weight", h, D, 2.0)
        w.mat(p + ("dense" if is_ling(c) else "o_proj") + ".weight", D, h * v)
        return
    kv, d = c["num_key_value_heads"], c["head_dim"]
    w.mat(p + "q_proj.weight", (2 if has_delta(c) else 1) * h * d, D, 2.0)
    w.mat(p + "k_proj.weight", kv * d, D, 2.0)
    w.mat(p + "v_proj.weight", kv * d, D)
    w.mat(p + "o_proj.weight", D, h * d)
    if c["model_type"] == "gpt_oss":
        w.vec(p + "sinks", h, 0.0, 1.0)
        w.vec(p + "o_proj.bias", D, 0.0, 0.5)
    if c["model_type"] in ("qwen2", "gpt_oss", "glm4_moe"):
        for n, rows in (("q", h), ("k", kv), ("v", kv)):
            w.vec(f"{p}{n}_proj.bias", rows * d, 0.0, 0.5)
    if c["model_type"].startswith("qwen3") or c.get("use_qk_norm"):
        whole = c["model_type"] == "minimax_m2"
        w.norm(p + "q_norm.weight", h * d if whole else d, 1.5)
        w.norm(p + "k_norm.weight", kv * d if whole else d, 1.2)


def block_indexer(w, c, p):
    n, d = c["index_n_heads"], c["index_head_dim"]
    w.mat(p + "index_q_proj.weight", n * d, c["hidden_size"], 2.0)
    w.mat(p + "index_k_proj.weight", d, c["hidden_size"], 2.0)
    w.norm(p + "index_q_norm.weight", d, 1.5)
    w.norm(p + "index_k_norm.weight", d, 1.2)


def indexer(w, c, p):
    n, d = c["index_n_heads"], c["index_head_dim"]
    w.mat(p + "wq_b.weight", n * d, c["q_lora_rank"])
    w.mat(p + "wk.weight", d, c["hidden_size"])
    w.vec(p + "k_norm.weight", d, dtype="F32")
    w.vec(p + "k_norm.bias", d, 0.0, 0.2, dtype="F32")
    w.mat(p + "weights_proj.weight", n, c["hidden_size"])
    if is_glm5(c):
        w.mat(p + "index_kpool_compress_gate", d, c["hidden_size"])
        w.mat(p + "index_kpool_compress_ape", c["index_kpool"], d, d**0.5)


def delta(w, c, p):
    D, nk, nv = c["hidden_size"], c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv, taps = (c[f"linear_{n}"] for n in ("key_head_dim", "value_head_dim", "conv_kernel_dim"))
    v, qkv = nv * dv, 2 * nk * dk + nv * dv
    if c["model_type"] == "qwen3_next":
        w.mat(p + "in_proj_qkvz.weight", qkv + v, D, 2.0)
        w.mat(p + "in_proj_ba.weight", 2 * nv, D)
    else:
        for n, rows, gain in (("qkv", qkv, 2.0), ("z", v, 2.0), ("b", nv, 1.0), ("a", nv, 1.0)):
            w.mat(f"{p}in_proj_{n}.weight", rows, D, gain)
    w.mat(p + "conv1d.weight", qkv, taps, 2.0)
    w.out[-1][1].insert(1, 1)
    w.vec(p + "dt_bias", nv, 0.0, 1.0)
    w.vec(p + "A_log", nv, -1.5, 1.0)
    w.vec(p + "norm.weight", dv)
    w.mat(p + "out_proj.weight", D, v)


def kda(w, c, p):
    of = c.get("linear_attn_config", dict(num_heads=c["num_attention_heads"],
                                          head_dim=c.get("head_dim")))
    D, n, d = c["hidden_size"], of["num_heads"], of["head_dim"]
    for x in "qkv":
        w.mat(f"{p}{x}_proj.weight", n * d, D, 2.0)
        w.mat(f"{p}{x}_conv1d.weight", n * d, 4, 2.0)
        w.out[-1][1].insert(1, 1)
    w.mat(p + "b_proj.weight", n, D)
    for x in "fg":
        if is_ling(c):
            w.mat(f"{p}{x}_proj.weight", n * d, D, 2.0)
            continue
        w.mat(f"{p}{x}_a_proj.weight", d, D)
        w.mat(f"{p}{x}_b_proj.weight", n * d, d, 2.0)
    w.vec(p + "dt_bias", n * d, 0.0, 1.0, dtype="F32")
    w.vec(p + "A_log", n, -1.5, 1.0, dtype="F32")
    if c["model_type"] == "kimi_linear":
        w.out[-1][1][:] = [1, 1, n, 1]
    w.vec(p + "o_norm.weight", d)
    w.mat(p + "o_proj.weight", D, n * d)


def mlp(w, c, p, width, names=("gate_proj", "up_proj", "down_proj"), put=Weights.mat):
    put(w, f"{p}{names[0]}.weight", width, c["hidden_size"], 2.0)
    put(w, f"{p}{names[1]}.weight", width, c["hidden_size"], 2.0)
    put(w, f"{p}{names[2]}.weight", c["hidden_size"], width, 2.0)


def gpt_oss_experts(w, c, p, n):
    D, F = c["hidden_size"], c["intermediate_size"]
    w.mat(p + "mlp.router.weight", n, D, 2.0)
    w.vec(p + "mlp.router.bias", n, 0.0, 0.5)
    for e in range(n):
        mlp(w, c, f"{p}mlp.experts.{e}.", F)
        for part, rows in (("gate", F), ("up", F), ("down", D)):
            w.vec(f"{p}mlp.experts.{e}.{part}_proj.bias", rows, 0.0, 0.5)


def minimax_experts(w, c, p, n):
    p += "block_sparse_moe."
    w.mat(p + "gate.weight", n, c["hidden_size"], 2.0)
    w.vec(p + "e_score_correction_bias", n, 0.0, 0.1, dtype="F32")
    for e in range(n):
        mlp(w, c, f"{p}experts.{e}.", c["intermediate_size"], ("w1", "w3", "w2"))
    if is_m3(c):
        mlp(w, c, p + "shared_experts.", c["shared_intermediate_size"])


def kimi_experts(w, c, p, n):
    p += "block_sparse_moe."
    w.mat(p + "gate.weight", n, c["hidden_size"], 2.0)
    w.vec(p + "gate.e_score_correction_bias", n, 0.0, 0.1, dtype="F32")
    for e in range(n):
        mlp(w, c, f"{p}experts.{e}.", c["moe_intermediate_size"], ("w1", "w3", "w2"))
    mlp(w, c, p + "shared_experts.", c["num_shared_experts"] * c["moe_intermediate_size"])


def streams(w, c, p, rows, n):
    w.mat(p + "fn", rows, c["hc_mult"] * c["hidden_size"], 2.0)
    w.vec(p + "base", rows, 0.0, 0.7, dtype="F32")
    w.vec(p + "scale", n, 0.7, 0.3, dtype="F32")


def v4_entries(w, c, p, d, ratio):
    n = 2 * d if ratio == 4 else d
    w.mat(p + "kv_proj.weight", n, c["hidden_size"])
    w.mat(p + "gate_proj.weight", n, c["hidden_size"])
    w.mat(p + "position_bias", ratio, n, n**0.5)
    w.vec(p + "kv_norm.weight", d)


def v4_layer(w, c, i):
    """In the words of transformers."""
    p, D, N = f"model.layers.{i}.", c["hidden_size"], c["hc_mult"]
    a, h, d, q = p + "self_attn.", c["num_attention_heads"], c["head_dim"], c["q_lora_rank"]
    ratio, n = c["compress_ratios"][i], c["n_routed_experts"]
    w.vec(p + "input_layernorm.weight", D, outliers=8)
    w.vec(p + "post_attention_layernorm.weight", D, outliers=8)
    for x in ("attn_hc.", "ffn_hc."):
        streams(w, c, p + x, (2 + N) * N, 3)
    w.mat(a + "q_a_proj.weight", q, D)
    w.vec(a + "q_a_norm.weight", q)
    w.mat(a + "q_b_proj.weight", h * d, q)
    w.mat(a + "kv_proj.weight", d, D)
    w.vec(a + "kv_norm.weight", d)
    w.mat(a + "o_a_proj.weight", c["o_groups"] * c["o_lora_rank"], h * d // c["o_groups"])
    w.mat(a + "o_b_proj.weight", D, c["o_groups"] * c["o_lora_rank"])
    w.vec(a + "sinks", h, 0.0, 1.0, dtype="F32")
    if ratio:
        v4_entries(w, c, a + "compressor.", d, ratio)
    if ratio == 4:
        x = a + "compressor.indexer."
        w.mat(x + "q_b_proj.weight", c["index_n_heads"] * c["index_head_dim"], q)
        w.mat(x + "scorer.weights_proj.weight", c["index_n_heads"], D)
        v4_entries(w, c, x, c["index_head_dim"], ratio)
    w.mat(p + "mlp.gate.weight", n, D, 2.0)
    if i < c["num_hash_layers"]:
        ids = [w.rng.sample(range(n), c["num_experts_per_tok"]) for _ in range(V)]
        raw = struct.pack(f"<{V * len(ids[0])}q", *(e for row in ids for e in row))
        w.out.append((p + "mlp.gate.tid2eid", [V, len(ids[0])], "I64", raw))
    else:
        w.vec(p + "mlp.gate.e_score_correction_bias", n, 0.0, 0.1, dtype="F32")
    for e in range(n):
        mlp(w, c, f"{p}mlp.experts.{e}.", c["moe_intermediate_size"])
    mlp(w, c, p + "mlp.shared_experts.", c["moe_intermediate_size"])


def gemma4_layer(w, c, i):
    p, D, n = f"model.layers.{i}.", c["hidden_size"], c["num_experts"]
    F = c["moe_intermediate_size"]
    a, h, wide = p + "self_attn.", c["num_attention_heads"], c["layer_types"][i] == "full_attention"
    d = c["global_head_dim" if wide else "head_dim"]
    kv = c["num_global_key_value_heads" if wide else "num_key_value_heads"]
    for x in ("input_", "pre_feedforward_"):
        w.vec(p + x + "layernorm.weight", D, outliers=8)
    for x in ("attention_layernorm", "feedforward_layernorm", "feedforward_layernorm_1",
              "feedforward_layernorm_2"):
        w.vec(f"{p}post_{x}.weight", D)
    w.vec(p + "pre_feedforward_layernorm_2.weight", D, outliers=8)
    w.vec(p + "layer_scalar", 1, 0.8)
    w.mat(a + "q_proj.weight", h * d, D, 2.0)
    w.mat(a + "k_proj.weight", kv * d, D, 2.0)
    if not wide:
        w.mat(a + "v_proj.weight", kv * d, D)
    w.mat(a + "o_proj.weight", D, h * d)
    w.vec(a + "q_norm.weight", d, 1.5)
    w.vec(a + "k_norm.weight", d, 0.1, 0.02)
    mlp(w, c, p + "mlp.", c["intermediate_size"])
    w.mat(p + "router.proj.weight", n, D, 2.0)
    w.vec(p + "router.scale", D)
    w.vec(p + "router.per_expert_scale", n, 1.0, 0.3)
    for x, rows, cols in (("gate_up", 2 * F, D), ("down", D, F)):
        w.mat(f"{p}experts.{x}_proj", n * rows, cols, 2.0)
        w.out[-1][1][:] = [n, rows, cols]


def is_dense(c, i):
    kinds = c.get("mlp_layer_types")
    return kinds[i:i + 1] == ["dense"] if kinds else i < c.get("first_k_dense_replace", 0)


def layer(w, c, i):
    if c["model_type"] == "deepseek_v4":
        v4_layer(w, c, i)
        return
    if "global_head_dim" in c:
        gemma4_layer(w, c, i)
        return
    p, D = f"model.layers.{i}.", c["hidden_size"]
    if is_glm5(c) and i < c["num_hidden_layers"]:
        for x in ("attn", "ffn"):
            streams(w, c, f"{p}hc_{x}_", (2 + c["hc_mult"]) * c["hc_mult"], 3)
    n = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts")
    w.norm(p + "input_layernorm.weight", D, outliers=8)
    w.norm(p + "post_attention_layernorm.weight", D, outliers=8)
    at = p + ("attention." if is_ling(c) else "self_attn.")
    if is_delta(c, i):
        delta(w, c, p + "linear_attn.")
    elif is_kda(c, i):
        kda(w, c, at)
    else:
        attention(w, c, at)
    types = c.get("indexer_types", [])
    if "index_topk" in c and (i >= len(types) or types[i] == "full") and not is_kda(c, i):
        indexer(w, c, p + "self_attn.indexer.")
    if is_m3(c):
        block_indexer(w, c, p + "self_attn.")
    if not n or is_dense(c, i):
        mlp(w, c, p + "mlp.", c.get("dense_intermediate_size") or c["intermediate_size"])
        return
    if c["model_type"] == "gpt_oss":
        gpt_oss_experts(w, c, p, n)
        return
    if c["model_type"] == "minimax_m2" or is_m3(c):
        minimax_experts(w, c, p, n)
        return
    if c["model_type"] == "kimi_linear":
        kimi_experts(w, c, p, n)
        return
    w.mat(p + "mlp.gate.weight", n, D, 2.0)
    if c.get("topk_method") == "noaux_tc" or c["model_type"] == "glm4_moe":
        w.vec(p + "mlp.gate.e_score_correction_bias", n, 0.0, 0.1, dtype="F32")
    if is_ling(c):
        w.vec(p + "mlp.gate.expert_bias", n, 0.0, 0.1, dtype="F32")
    put = Weights.int4 if "quantization_config" in c else Weights.mat
    for e in range(n):
        mlp(w, c, f"{p}mlp.experts.{e}.", c["moe_intermediate_size"], put=put)
    shared = c.get("n_shared_experts") or (is_ling(c) and c["num_shared_experts"])
    if shared:
        mlp(w, c, p + "mlp.shared_experts.", shared * c["moe_intermediate_size"])
    if c.get("shared_expert_intermediate_size"):
        mlp(w, c, p + "mlp.shared_expert.", c["shared_expert_intermediate_size"])
        w.mat(p + "mlp.shared_expert_gate.weight", 1, D, 2.0)


def write_folder(path, name):
    c, w = text_of(name), Weights(name)
    D, L = c["hidden_size"], c["num_hidden_layers"]
    w.mat(f"model.{'word_embeddings' if is_ling(c) else 'embed_tokens'}.weight", c["vocab_size"],
          D, D**0.5)
    for i in range(L + c.get("num_nextn_predict_layers", 0)):
        layer(w, c, i)
    if c["model_type"] == "deepseek_v4":
        streams(w, c, "model.hc_head.hc_", c["hc_mult"], 1)
    w.norm("model.norm.weight", D)
    if not c["tie_word_embeddings"]:
        w.mat("lm_head.weight", V, D, 2.0)
    for i in range(L, L + c.get("num_nextn_predict_layers", 0)):
        p = f"model.layers.{i}."
        w.vec(p + "enorm.weight", D)
        w.vec(p + "hnorm.weight", D)
        if c["model_type"] == "deepseek_v4":
            w.mat(p + "e_proj.weight", D, D)
            w.mat(p + "h_proj.weight", D, D)
            w.vec(p + "shared_head.norm.weight", D)
            streams(w, c, p + "hc_head_", c["hc_mult"], 1)
            continue
        w.mat(p + "eh_proj.weight", D, 2 * D)
        if is_ling(c):
            w.vec(p + "final_layernorm.weight", D)
            continue
        w.vec(p + "shared_head.norm.weight", D)
        if is_glm5(c):
            continue
        w.mat(p + "embed_tokens.weight", V, D, D**0.5)
        w.mat(p + "shared_head.head.weight", V, D, 2.0)
    os.makedirs(path, exist_ok=True)
    with open(path + "/config.json", "w") as f:
        json.dump(CONFIGS[name], f, indent=1)
    w.write(path + "/model.safetensors", "" if c is CONFIGS[name] else "language_model.")


def make(out, sluice, name, tiny=None):
    """The path of NAME.TYPE, made where it is not there yet."""
    base, kind = name.split(".")
    folder = f"{out}/{base}"
    if not os.path.exists(folder):
        part = f"{folder}.{os.getpid()}.part"
        write_folder(part, base)
        for f in ("tokenizer.json", "tokenizer_config.json"):
            if tiny:
                shutil.copy(f"{tiny}/{TOKENIZER.get(base, 'llama3')}/{f}", part)
        os.rename(part, folder)
    if kind == "own":
        return folder
    path = f"{out}/{name}" + ("" if kind in FOLDERS else ".gguf")
    if not os.path.exists(path):
        part = f"{out}/part.{os.getpid()}.{name}" + ("" if kind in FOLDERS else ".gguf")
        p = subprocess.run([sluice, "quantize", folder, part, "--weights", kind, "--plain", "-q"],
                           capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(f"{name}: {p.stderr.strip()}")
        os.rename(part, path)
    return path


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    tiny_dir = os.path.join(os.path.dirname(sys.argv[2]), "tests", "tiny")
    for each in sys.argv[3:] or names():
        print(make(sys.argv[1], sys.argv[2], each, tiny_dir))
