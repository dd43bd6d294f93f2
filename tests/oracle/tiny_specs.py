# SPDX-License-Identifier: Apache-2.0
"""The tiny checkpoints: one entry per architecture and per spelling that a real file may have.

Each has `config` (what goes into config.json, in that spelling), `dtype` (of the matrices), `tok`
(pre-tokenizer family), and optionally `shards`, `fp8` (128x128 blocks), `mxfp8` (1x32), `mtp`,
`long` (a long sequence too), `mid` (one of so many positions), `ids` (added to the seed of all
sequences: where rounding would decide), `gguf` (conversions: "plain", "legacy" kv_b or ssm_in,
"split" into files), `as_type` (where transformers does not know the model_type: the one that
computes the same there), `inner` (what names in the folder have in place of "model."), `renamed`
(words of names in the folder, and what stands there), `f32` (words of names that are F32 there).
Sizes are small and odd on purpose: head widths that are odd multiples of 8, row counts that are no
multiple of 16, columns that are no multiple of 32.
"""

# general.architecture of each model_type, and those whose rows of q and k GGUF has in the order of
# rotated pairs (permutes_qk of src/arch)
GGUF_ARCH = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "minimax_m2": "minimax-m2",
    "gpt_oss": "gpt-oss",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "deepseek_v32": "deepseek32",
    "glm_moe_dsa": "glm-dsa",
    "minimax_m3_vl_text": "minimax-m3",
    "kimi_linear": "kimi-linear",
    "bailing_hybrid": "bailingmoe3",
    "deepseek_v4": "deepseek4",
    "glm5_next_text": "glm5-next",
    "gemma4_text": "gemma4"
}
PERMUTED = ("llama", "mistral")

V = 320
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(factor=4.0, beta_fast=32, beta_slow=1, original_max_position_embeddings=64)


def base(arch, model_type, **kw):
    c = dict(architectures=[arch], model_type=model_type, vocab_size=V, hidden_act="silu",
             rms_norm_eps=1e-6, max_position_embeddings=1024, initializer_range=0.02,
             tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, use_cache=True)
    c.update(kw)
    return c


def llama(**kw):
    return base("LlamaForCausalLM", "llama", attention_bias=False, mlp_bias=False, **kw)


def deepseek(n, **kw):
    return base(f"DeepseekV{n}ForCausalLM", f"deepseek_v{n}", attention_bias=False, **kw)


def deepseek4(**kw):
    """Clamps that bite, limits of positions that sequences pass."""
    c = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=1, head_dim=32,
             qk_rope_head_dim=16, q_lora_rank=40, o_groups=2, o_lora_rank=24,
             moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2,
             n_shared_experts=1, norm_topk_prob=True, scoring_func="sqrtsoftplus",
             topk_method="noaux_tc", routed_scaling_factor=1.5, swiglu_limit=1.5, hc_mult=4,
             hc_sinkhorn_iters=20, hc_eps=1e-6, sliding_window=16, index_n_heads=2,
             index_head_dim=32, index_topk=6, num_nextn_predict_layers=1, rope_theta=10000.0,
             compress_rope_theta=160000.0, rope_scaling=dict(type="yarn", **YARN))
    return deepseek(4, **dict(c, **kw))


def gemma4(pattern, **kw):
    """pattern: a letter for each layer, w with a window, f without."""
    c = dict(model_type="gemma4_text", vocab_size=512, hidden_activation="gelu_pytorch_tanh",
             rms_norm_eps=1e-6, max_position_embeddings=1024, initializer_range=0.02,
             tie_word_embeddings=True, bos_token_id=2, eos_token_id=[1, 16, 9], pad_token_id=0,
             num_hidden_layers=len(pattern), num_attention_heads=4, num_key_value_heads=2,
             sliding_window=16, attention_bias=False, hidden_size_per_layer_input=0,
             num_kv_shared_layers=0, use_double_wide_mlp=False,
             layer_types=[{"w": "sliding_attention", "f": "full_attention"}[x] for x in pattern],
             rope_parameters=dict(
                 sliding_attention=dict(rope_type="default", rope_theta=10000.0),
                 full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25,
                                     rope_theta=1000000.0)))
    return dict(c, **kw)


def glm(**kw):
    return base("Glm4MoeForCausalLM", "glm4_moe", attention_bias=True, n_shared_experts=1,
                n_group=1, topk_group=1, norm_topk_prob=True, num_nextn_predict_layers=1,
                eos_token_id=[1, 2], **kw)


def glm_lite(**kw):
    return base("Glm4MoeLiteForCausalLM", "glm4_moe_lite", attention_bias=False,
                n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
                topk_method="noaux_tc", num_nextn_predict_layers=0, rms_norm_eps=1e-5, **kw)


def glm5(**kw):
    """Sequences go on after as many pools as a token sees; limits that bite."""
    c = dict(hidden_size=64, intermediate_size=72, num_attention_heads=4, num_key_value_heads=4,
             kv_lora_rank=40, q_lora_rank=48, qk_nope_head_dim=32, qk_rope_head_dim=0,
             v_head_dim=24, moe_intermediate_size=16, n_routed_experts=10, num_experts_per_tok=3,
             n_shared_experts=1, routed_scaling_factor=2.5, scoring_func="sigmoid",
             topk_method="noaux_tc", norm_topk_prob=True, n_group=1, topk_group=1,
             swiglu_limit=1.5, index_n_heads=4, index_head_dim=24, index_topk=24, index_kpool=4,
             index_kpool_always_select_tail=True, hc_mult=4, hc_eps=1e-6, hc_sinkhorn_iters=20,
             pad_token_id=2, rms_norm_eps=1e-5, dtype="bfloat16")
    return base("Glm5NextTextModel", "glm5_next_text", **dict(c, **kw))


def minimax(**kw):
    return base("MiniMaxM2ForCausalLM", "minimax_m2", use_routing_bias=True, use_qk_norm=True,
                scoring_func="sigmoid", qk_norm_type="per_layer", num_mtp_modules=3,
                use_mtp=True, mtp_transformer_layers=1, attn_type_list=[1, 1], **kw)


CT_FP8 = dict(quant_method="compressed-tensors", format="float-quantized",
              ignore=["lm_head", "re:.*mlp[.]gate$", "re:.*shared_head.*", "re:.*eh_proj$"],
              quantization_status="compressed", kv_cache_scheme=None,
              config_groups=dict(group_0=dict(
                  targets=["Linear"], output_activations=None, format="float-quantized",
                  weights=dict(num_bits=8, type="float", strategy="channel", symmetric=True,
                               dynamic=False, group_size=None, block_structure=None,
                               actorder=None, observer="minmax", observer_kwargs={}),
                  input_activations=dict(num_bits=8, type="float", strategy="token",
                                         symmetric=True, dynamic=True, group_size=None,
                                         block_structure=None, actorder=None, observer=None,
                                         observer_kwargs={}))))
CT_INT4 = dict(quant_method="compressed-tensors", format="pack-quantized",
               ignore=["language_model.lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                       r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "re:vision_tower.*",
                       "re:mm_projector.*"],
               quantization_status="compressed", kv_cache_scheme=None,
               global_compression_ratio=None,
               config_groups=dict(group_0=dict(
                   targets=["Linear"], output_activations=None, input_activations=None,
                   weights=dict(num_bits=4, type="int", strategy="group", symmetric=True,
                                dynamic=False, group_size=32, block_structure=None,
                                actorder=None, observer="minmax", observer_kwargs={}))))

def gpt_oss(**kw):
    return base("GptOssForCausalLM", "gpt_oss", attention_bias=True, router_aux_loss_coef=0.9, **kw)


def next_delta(**kw):
    return dict(linear_conv_kernel_dim=4, linear_num_key_heads=2, full_attention_interval=4,
                attention_bias=False, **kw)


def minimax3(**kw):
    return base("MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl_text", use_qk_norm=True,
                use_gemma_norm=True, use_routing_bias=True, scoring_func="sigmoid",
                **dict(dict(hidden_act="swigluoai", torch_dtype="bfloat16"), **kw))


# Names of Ling's folders. Of attention's outputs only those of latents are called so.
LING = {"embed_tokens": "word_embeddings", ".self_attn.": ".attention.",
        "e_score_correction_bias": "expert_bias", "shared_head.norm": "final_layernorm"}


def ling_names(*full):
    return dict({f"layers.{i}.self_attn.o_proj": f"layers.{i}.attention.dense" for i in full},
                **LING)


TOWER = {"vision_tower.vision_model.embeddings.patch_embedding.weight": (8, 3, 2, 2, 2),
         "vision_tower.vision_model.encoder.layers.0.layer_norm1.weight": (8,),
         "multi_modal_projector.linear_1.weight": (8, 8), "patch_merge_mlp.linear_1.weight": (8, 8)}

VISUAL = {"model.visual.patch_embed.proj.weight": (8, 3, 2, 2, 2),
          "model.visual.patch_embed.proj.bias": (8,), "model.visual.pos_embed.weight": (16, 8),
          "model.visual.blocks.0.attn.qkv.weight": (24, 8),
          "model.visual.merger.norm.weight": (8,)}


SPECS = {
    "llama2": dict(
        dtype="BF16", tok="gpt-2", gguf=["plain"],
        config=llama(hidden_size=64, intermediate_size=172, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=4, rope_theta=10000.0,
                     rope_scaling=None, torch_dtype="bfloat16", rms_norm_eps=1e-5)),
    "llama3": dict(
        dtype="F16", tok="llama-bpe", shards=2, gguf=["plain"],
        config=llama(hidden_size=96, intermediate_size=104, num_hidden_layers=2, head_dim=24,
                     num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
                     rope_parameters=dict(rope_theta=10000.0, rope_type="llama3", **LLAMA3),
                     dtype="float16")),
    "llama3_old": dict(
        dtype="BF16", tok="llama-bpe", gguf=[],
        config=llama(hidden_size=48, intermediate_size=56, num_hidden_layers=1,
                     num_attention_heads=6, num_key_value_heads=2, rope_theta=500.0,
                     rope_scaling=dict(rope_type="llama3", **LLAMA3), torch_dtype="bfloat16")),
    "smollm": dict(
        dtype="F32", tok="smollm", gguf=["plain"],
        config=llama(hidden_size=72, intermediate_size=60, num_hidden_layers=2,
                     num_attention_heads=3, num_key_value_heads=1, rope_theta=100000,
                     tie_word_embeddings=True, torch_dtype="float32", rms_norm_eps=1e-5)),
    "mistral": dict(
        dtype="BF16", tok="llama-bpe", gguf=["plain"],
        config=base("MistralForCausalLM", "mistral", hidden_size=80, intermediate_size=90,
                    num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
                    head_dim=40, rope_theta=1000000.0, sliding_window=None,
                    torch_dtype="bfloat16")),
    "mistral_window": dict(
        dtype="BF16", tok="llama-bpe", gguf=[],
        config=base("MistralForCausalLM", "mistral", hidden_size=48, intermediate_size=64,
                    num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                    head_dim=24, rope_theta=10000.0, sliding_window=16,
                    torch_dtype="bfloat16")),
    "qwen2": dict(
        dtype="BF16", tok="qwen2", gguf=["plain"],
        config=base("Qwen2ForCausalLM", "qwen2", hidden_size=56, intermediate_size=120,
                    num_hidden_layers=2, num_attention_heads=7, num_key_value_heads=1,
                    rope_theta=1000000.0, sliding_window=32, use_sliding_window=False,
                    max_window_layers=1, tie_word_embeddings=True, torch_dtype="bfloat16")),
    "qwen3": dict(
        dtype="BF16", tok="qwen2", long=True, gguf=["plain", "split"], shards=3,
        config=base("Qwen3ForCausalLM", "qwen3", hidden_size=64, intermediate_size=100,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    head_dim=40, attention_bias=False, rope_scaling=None, rope_theta=1000000,
                    sliding_window=None, use_sliding_window=False, max_window_layers=2,
                    torch_dtype="bfloat16")),
    "qwen3_moe": dict(
        dtype="BF16", tok="qwen2", gguf=["plain"], shards=2,
        config=base("Qwen3MoeForCausalLM", "qwen3_moe", hidden_size=64, intermediate_size=96,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    head_dim=24, attention_bias=False, rope_theta=1000000.0, rope_scaling=None,
                    decoder_sparse_step=1, moe_intermediate_size=40, num_experts_per_tok=3,
                    num_experts=7, norm_topk_prob=True, mlp_only_layers=[],
                    sliding_window=None, use_sliding_window=False, torch_dtype="bfloat16")),
    "qwen3_moe_mixed": dict(
        dtype="F16", tok="qwen2", gguf=["plain"],
        config=base("Qwen3MoeForCausalLM", "qwen3_moe", hidden_size=48, intermediate_size=72,
                    num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
                    head_dim=32, attention_bias=False,
                    rope_parameters=dict(rope_theta=10000.0, rope_type="default"),
                    decoder_sparse_step=2, moe_intermediate_size=24, num_experts_per_tok=2,
                    num_local_experts=4, norm_topk_prob=False, mlp_only_layers=[1],
                    dtype="float16")),
    "deepseek_v2_lite": dict(
        dtype="BF16", tok="deepseek-llm", gguf=["plain", "legacy"],
        config=deepseek(2, hidden_size=64, intermediate_size=88, moe_intermediate_size=24,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                        n_shared_experts=2, n_routed_experts=8, num_experts_per_tok=3,
                        routed_scaling_factor=1.0, kv_lora_rank=40, q_lora_rank=None,
                        qk_rope_head_dim=16, v_head_dim=24, qk_nope_head_dim=24,
                        topk_method="greedy", n_group=1, topk_group=1, scoring_func="softmax",
                        first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=False,
                        rope_theta=10000, torch_dtype="bfloat16",
                        rope_scaling=dict(type="yarn", mscale=0.707, mscale_all_dim=0.707,
                                          **YARN))),
    "deepseek_v2": dict(
        dtype="BF16", tok="deepseek-llm", gguf=["plain"],
        config=deepseek(2, hidden_size=64, intermediate_size=80, moe_intermediate_size=24,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                        n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=3,
                        routed_scaling_factor=4.0, kv_lora_rank=32, q_lora_rank=24,
                        qk_rope_head_dim=8, v_head_dim=16, qk_nope_head_dim=16,
                        topk_method="group_limited_greedy", n_group=4, topk_group=2,
                        scoring_func="softmax", first_k_dense_replace=1, moe_layer_freq=1,
                        norm_topk_prob=False, rope_theta=10000, rope_scaling=None,
                        torch_dtype="bfloat16")),
    "deepseek_v3": dict(
        dtype="BF16", tok="deepseek-v3", mtp=1, long=True, shards=2,
        gguf=["plain", "split"],
        config=deepseek(3, hidden_size=64, intermediate_size=88, moe_intermediate_size=16,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                        n_shared_experts=1, n_routed_experts=12, num_experts_per_tok=4,
                        routed_scaling_factor=2.5, kv_lora_rank=40, q_lora_rank=48,
                        qk_rope_head_dim=16, v_head_dim=24, qk_nope_head_dim=32,
                        topk_method="noaux_tc", n_group=4, topk_group=2, scoring_func="sigmoid",
                        first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=True,
                        num_nextn_predict_layers=1, rope_theta=10000, ep_size=1,
                        torch_dtype="bfloat16",
                        rope_scaling=dict(type="yarn", mscale=1.0, mscale_all_dim=1.0,
                                          **YARN))),
    "kimi_k2": dict(
        dtype="F16", tok="deepseek-v3", gguf=["plain"],
        config=deepseek(3, hidden_size=56, intermediate_size=72, moe_intermediate_size=16,
                        num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8,
                        n_shared_experts=1, n_routed_experts=20, num_experts_per_tok=5,
                        routed_scaling_factor=2.827, kv_lora_rank=24, q_lora_rank=40,
                        qk_rope_head_dim=8, v_head_dim=8, qk_nope_head_dim=8,
                        topk_method="noaux_tc", n_group=1, topk_group=1, scoring_func="sigmoid",
                        first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=True,
                        num_nextn_predict_layers=0, dtype="float16",
                        rope_parameters=dict(rope_type="yarn", rope_theta=50000.0, factor=32.0,
                                             beta_fast=1.0, beta_slow=1.0, mscale=1.0,
                                             mscale_all_dim=1.0,
                                             original_max_position_embeddings=32))),
    "deepseek_v3_mscale": dict(
        dtype="BF16", tok="deepseek-v3", gguf=[],
        config=deepseek(3, hidden_size=48, intermediate_size=56, moe_intermediate_size=16,
                        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                        n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=2,
                        routed_scaling_factor=1.0, kv_lora_rank=16, q_lora_rank=None,
                        qk_rope_head_dim=8, v_head_dim=8, qk_nope_head_dim=16,
                        topk_method="noaux_tc", n_group=2, topk_group=1, scoring_func="sigmoid",
                        first_k_dense_replace=0, moe_layer_freq=1, norm_topk_prob=False,
                        num_nextn_predict_layers=0, rope_theta=10000, torch_dtype="bfloat16",
                        rope_scaling=dict(type="yarn", mscale=1.0, mscale_all_dim=0.5,
                                          **YARN))),
    "deepseek_v3_fp8": dict(
        dtype="BF16", tok="deepseek-v3", fp8=True, gguf=[],
        config=deepseek(3, hidden_size=136, intermediate_size=200, moe_intermediate_size=40,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                        n_shared_experts=1, n_routed_experts=4, num_experts_per_tok=2,
                        routed_scaling_factor=2.5, kv_lora_rank=40, q_lora_rank=144,
                        qk_rope_head_dim=8, v_head_dim=24, qk_nope_head_dim=32,
                        topk_method="noaux_tc", n_group=2, topk_group=1, scoring_func="sigmoid",
                        first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=True,
                        num_nextn_predict_layers=0, rope_theta=10000, torch_dtype="bfloat16",
                        quantization_config=dict(quant_method="fp8", fmt="e4m3",
                                                 activation_scheme="dynamic",
                                                 weight_block_size=[128, 128]),
                        rope_scaling=dict(type="yarn", mscale=1.0, mscale_all_dim=1.0,
                                          **YARN))),
    # gpt-oss: clamps that bite, a window shorter than the sequences, both spellings; the second as
    # it is published
    "gpt_oss": dict(
        dtype="BF16", tok="llama-bpe", gguf=[],
        config=gpt_oss(hidden_size=56, intermediate_size=40, num_hidden_layers=3,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=24,
                       num_local_experts=5, num_experts_per_tok=2, sliding_window=16,
                       swiglu_limit=1.5, dtype="bfloat16",
                       rope_parameters=dict(rope_theta=150000.0, rope_type="yarn", truncate=False,
                                            **YARN))),
    "gpt_oss_mxfp4": dict(
        dtype="BF16", tok="llama-bpe", mxfp4=True, shards=2, gguf=[],
        config=gpt_oss(hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                       num_local_experts=5, experts_per_token=2, num_experts_per_tok=2,
                       sliding_window=16, swiglu_limit=1.5, torch_dtype="bfloat16",
                       layer_types=["sliding_attention", "full_attention"],
                       rope_theta=150000, initial_context_length=64,
                       rope_scaling=dict(rope_type="yarn", truncate=False, **YARN),
                       quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
                           "model.layers.*.self_attn", "model.layers.*.mlp.router",
                           "model.embed_tokens", "lm_head"]))),
    # GLM-4.5 and later: half of each head rotated, norms of heads, an MTP layer
    "glm4_moe": dict(
        dtype="BF16", tok="llama-bpe", mtp=1, shards=2, gguf=["plain"],
        config=glm(hidden_size=56, intermediate_size=72, moe_intermediate_size=24,
                   num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=24,
                   n_routed_experts=10, num_experts_per_tok=3, routed_scaling_factor=2.5,
                   first_k_dense_replace=2, use_qk_norm=True, partial_rotary_factor=0.5,
                   rope_theta=10000, rope_scaling=None, torch_dtype="bfloat16",
                   rms_norm_eps=1e-5)),
    # Air: no norms of heads; transformers 5's spelling, which leaves out the factor; no MTP tensors
    "glm4_moe_air": dict(
        dtype="BF16", tok="llama-bpe", gguf=["plain"],
        config=glm(hidden_size=48, intermediate_size=56, moe_intermediate_size=16,
                   num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=32,
                   n_routed_experts=8, num_experts_per_tok=2, routed_scaling_factor=1.0,
                   first_k_dense_replace=1, use_qk_norm=False, dtype="bfloat16",
                   rope_parameters=dict(rope_theta=10000.0, rope_type="default"))),
    "glm4_moe_fp8": dict(
        dtype="BF16", tok="llama-bpe", fp8_channel=True, gguf=[],
        config=glm(hidden_size=64, intermediate_size=72, moe_intermediate_size=24,
                   num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=24,
                   n_routed_experts=6, num_experts_per_tok=2, routed_scaling_factor=1.5,
                   first_k_dense_replace=1, use_qk_norm=True, torch_dtype="bfloat16",
                   rope_parameters=dict(rope_theta=10000.0, rope_type="default",
                                        partial_rotary_factor=0.5),
                   quantization_config=CT_FP8)),
    "glm4_moe_lite": dict(
        dtype="BF16", tok="llama-bpe", gguf=["plain"],
        config=glm_lite(hidden_size=56, intermediate_size=72, moe_intermediate_size=24,
                        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
                        n_routed_experts=10, num_experts_per_tok=3, routed_scaling_factor=1.8,
                        kv_lora_rank=32, q_lora_rank=40, qk_rope_head_dim=8, v_head_dim=40,
                        qk_nope_head_dim=24, first_k_dense_replace=1, rope_scaling=None,
                        rope_theta=10000, partial_rotary_factor=1.0, torch_dtype="bfloat16")),
    "glm4_moe_lite5": dict(
        dtype="BF16", tok="llama-bpe", gguf=[],
        config=glm_lite(hidden_size=48, intermediate_size=56, moe_intermediate_size=16,
                        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                        n_routed_experts=6, num_experts_per_tok=2, routed_scaling_factor=1.8,
                        kv_lora_rank=24, q_lora_rank=32, qk_rope_head_dim=8, v_head_dim=24,
                        qk_nope_head_dim=16, mlp_layer_types=["dense", "sparse"],
                        rope_interleave=True, dtype="bfloat16",
                        rope_parameters=dict(rope_theta=10000.0, rope_type="default"))),
    # norms over all heads at once, a part of each head rotated, names of its own
    "minimax_m2": dict(
        dtype="BF16", tok="qwen2", shards=2, gguf=["plain"],
        config=minimax(hidden_size=64, intermediate_size=24, num_hidden_layers=2, head_dim=32,
                       num_attention_heads=6, num_key_value_heads=2, rotary_dim=16,
                       num_local_experts=12, num_experts_per_tok=3, rope_theta=10000,
                       torch_dtype="bfloat16")),
    "minimax_m2_fp8": dict(
        dtype="BF16", tok="qwen2", fp8=True, gguf=[],
        config=minimax(hidden_size=136, intermediate_size=40, num_hidden_layers=2, head_dim=24,
                       num_attention_heads=6, num_key_value_heads=2,
                       num_local_experts=5, num_experts_per_tok=2, dtype="bfloat16",
                       rope_parameters=dict(rope_theta=10000.0, rope_type="default",
                                            partial_rotary_factor=0.5),
                       quantization_config=dict(quant_method="fp8", fmt="float8_e4m3fn",
                                                activation_scheme="dynamic",
                                                weight_block_size=[128, 128],
                                                modules_to_not_convert=[
                                                    "gate", "e_score_correction_bias",
                                                    "lm_head"]))),
    # a language model within one that sees: nested configuration, prefixed names, INT4 experts
    "kimi_k25": dict(
        dtype="BF16", tok="kimi-k2", gguf=[], prefix="language_model.", int4=True,
        as_type="deepseek_v3",
        beside={"vision_tower.patch_embed.proj.weight": (4, 8),
                "vision_tower.encoder.blocks.0.norm0.weight": (8,),
                "mm_projector.proj.0.weight": (8, 8)},
        config=dict(
            architectures=["KimiK25ForConditionalGeneration"], model_type="kimi_k25",
            media_placeholder_token_id=330, pad_token_id=330, bos_token_id=320, eos_token_id=322,
            tie_word_embeddings=False, use_unified_vision_chunk=True, ignore_index=-100,
            dtype="bfloat16", vision_config=dict(hidden_size=8, num_hidden_layers=1, patch_size=2),
            text_config=base(
                "DeepseekV3ForCausalLM", "kimi_k2", attention_bias=False, hidden_size=64,
                intermediate_size=72, moe_intermediate_size=32, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1,
                n_routed_experts=6, num_experts_per_tok=2, routed_scaling_factor=2.827,
                kv_lora_rank=24, q_lora_rank=40, qk_rope_head_dim=8, v_head_dim=16,
                qk_nope_head_dim=16, topk_method="noaux_tc", n_group=1, topk_group=1,
                scoring_func="sigmoid", first_k_dense_replace=1, moe_layer_freq=1, ep_size=1,
                norm_topk_prob=True, num_nextn_predict_layers=0, rope_theta=50000.0,
                rms_norm_eps=1e-5, quantization_config=CT_INT4, dtype="bfloat16",
                vocab_size=580, bos_token_id=320, eos_token_id=322,
                rope_scaling=dict(type="yarn", factor=64.0, beta_fast=32.0, beta_slow=1.0,
                                  mscale=1.0, mscale_all_dim=1.0,
                                  original_max_position_embeddings=32)))),
    # gated delta layers: projections by key head, single experts; a sequence longer than chunks; an
    # MTP layer that only the tensors tell of
    "qwen3_next": dict(
        dtype="BF16", tok="qwen2", shards=2, gguf=["plain", "legacy"], mid=150, ids=9, mtp=1,
        config=base("Qwen3NextForCausalLM", "qwen3_next", hidden_size=56, intermediate_size=72,
                    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=40,
                    linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=24,
                    moe_intermediate_size=24, shared_expert_intermediate_size=24, num_experts=9,
                    num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=1,
                    mlp_only_layers=[], partial_rotary_factor=0.25, rope_theta=10000,
                    rope_scaling=None, use_sliding_window=False, output_router_logits=False,
                    router_aux_loss_coef=0.001, torch_dtype="bfloat16", **next_delta())),
    # nested, projections apart, fused experts, beside a part that sees and MTP
    "qwen3_5_moe": dict(
        dtype="BF16", tok="qwen2", shards=2, gguf=["plain"], mid=150, mtp=1,
        inner="model.language_model.", f32=("A_log", "linear_attn.norm"), beside=VISUAL,
        config=dict(
            architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe",
            image_token_id=310, video_token_id=311, vision_start_token_id=312,
            vision_end_token_id=313, tie_word_embeddings=False,
            vision_config=dict(model_type="qwen3_5_moe", hidden_size=8, depth=1, patch_size=2),
            text_config=base(
                "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", hidden_size=64, num_hidden_layers=4,
                num_attention_heads=2, num_key_value_heads=1, head_dim=32, attn_output_gate=True,
                linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
                layer_types=["linear_attention"] * 3 + ["full_attention"], mlp_only_layers=[],
                moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=7,
                num_experts_per_tok=2, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
                mtp_use_dedicated_embeddings=False, output_router_logits=False,
                router_aux_loss_coef=0.001, dtype="bfloat16",
                rope_parameters=dict(rope_theta=10000.0, rope_type="default",
                                     partial_rotary_factor=0.25, mrope_interleaved=True,
                                     mrope_section=[2, 1, 1]), **next_delta()))),
    # without experts, three value heads for a key head, the head is the embedding
    "qwen3_5": dict(
        dtype="BF16", tok="qwen2", gguf=["plain"], mid=150, mtp=1,
        inner="model.language_model.", f32=("A_log", "linear_attn.norm"), beside=VISUAL,
        config=dict(
            architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5",
            image_token_id=310, video_token_id=311, vision_start_token_id=312,
            vision_end_token_id=313, tie_word_embeddings=True,
            vision_config=dict(model_type="qwen3_5", hidden_size=8, depth=1, patch_size=2),
            text_config=base(
                "Qwen3_5ForCausalLM", "qwen3_5_text", hidden_size=72, intermediate_size=104,
                num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2, head_dim=24,
                attn_output_gate=True, linear_num_value_heads=6, linear_key_head_dim=16,
                linear_value_head_dim=24, layer_types=["linear_attention", "full_attention"] * 2,
                mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
                mtp_use_dedicated_embeddings=False, dtype="bfloat16",
                rope_parameters=dict(rope_theta=10000.0, rope_type="default",
                                     partial_rotary_factor=0.5, mrope_interleaved=True,
                                     mrope_section=[2, 2, 2]),
                **dict(next_delta(), full_attention_interval=2)))),
    # a lightning indexer that chooses among more positions than it keeps, in the MTP layer too
    "deepseek_v32": dict(
        dtype="BF16", tok="deepseek-v3", mtp=1, mid=150, shards=2, gguf=["plain"],
        f32=("weights_proj", "indexer.k_norm"),
        config=base("DeepseekV32ForCausalLM", "deepseek_v32", attention_bias=False,
                    hidden_size=64, intermediate_size=88, moe_intermediate_size=16,
                    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
                    n_shared_experts=1, n_routed_experts=12, num_experts_per_tok=4,
                    routed_scaling_factor=2.5, kv_lora_rank=40, q_lora_rank=64,
                    qk_rope_head_dim=16, v_head_dim=24, qk_nope_head_dim=32, index_n_heads=4,
                    index_head_dim=32, index_topk=12, topk_method="noaux_tc", n_group=4,
                    topk_group=2, scoring_func="sigmoid", first_k_dense_replace=1,
                    moe_layer_freq=1, norm_topk_prob=True, num_nextn_predict_layers=1,
                    rope_theta=10000, ep_size=1, torch_dtype="bfloat16",
                    rope_scaling=dict(type="yarn", mscale=1.0, mscale_all_dim=1.0, **YARN))),
    # layers that share what one below them has chosen; transformers 5's spelling
    "glm_moe_dsa": dict(
        dtype="BF16", tok="llama-bpe", mid=150, gguf=["plain"],
        config=base("GlmMoeDsaForCausalLM", "glm_moe_dsa", attention_bias=False, hidden_size=64,
                    intermediate_size=72, moe_intermediate_size=24, num_hidden_layers=5,
                    num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1,
                    n_routed_experts=10, num_experts_per_tok=3, routed_scaling_factor=2.5,
                    kv_lora_rank=32, q_lora_rank=40, qk_rope_head_dim=16, v_head_dim=40,
                    qk_nope_head_dim=24, index_n_heads=6, index_head_dim=24, index_topk=24,
                    indexer_types=["full", "shared", "full", "shared", "shared"],
                    indexer_rope_interleave=True, layer_types=["indexed_attention"] * 5,
                    mlp_layer_types=["dense"] + ["sparse"] * 4, first_k_dense_replace=1,
                    topk_method="noaux_tc", n_group=1, topk_group=1, scoring_func="sigmoid",
                    norm_topk_prob=True, num_nextn_predict_layers=0, rms_norm_eps=1e-5,
                    rope_interleave=True, qk_head_dim=40, head_dim=16, ep_size=1,
                    dtype="bfloat16", rope_parameters=dict(rope_theta=10000.0,
                                                           rope_type="default"))),
    # blocks of positions that every key head chooses, as it is published: nested, beside a tower
    "minimax_m3": dict(
        dtype="BF16", tok="llama-bpe", mid=150, shards=2, gguf=["plain"], prefix="language_model.",
        beside=TOWER,
        config=dict(
            architectures=["MiniMaxM3SparseForConditionalGeneration"], model_type="minimax_m3_vl",
            image_token_index=310, video_token_index=311, projector_hidden_size=8,
            tie_word_embeddings=False,
            vision_config=dict(model_type="minimax_m3_vl_vision", hidden_size=8, patch_size=2),
            text_config=minimax3(
                hidden_size=56, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
                head_dim=40, rotary_dim=16, partial_rotary_factor=0.4, rope_theta=10000,
                intermediate_size=24, dense_intermediate_size=72, shared_intermediate_size=40,
                num_local_experts=7, num_experts_per_tok=2, moe_layer_freq=[0, 1, 1, 1],
                routed_scaling_factor=2.0, swiglu_alpha=1.702, swiglu_limit=7.0,
                num_mtp_modules=1,
                sparse_attention_config=dict(
                    use_sparse_attention=True, sparse_num_index_heads=2, sparse_index_dim=32,
                    sparse_block_size=16, sparse_topk_blocks=3, sparse_local_block=1,
                    sparse_attention_freq=[0, 1, 1, 1])))),
    # clamps that bite, blocks as long as published ones, weights as MXFP8; transformers' spelling
    "minimax_m3_mxfp8": dict(
        dtype="BF16", tok="llama-bpe", mxfp8=True, long=True, gguf=[],
        config=minimax3(
            hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            head_dim=32, rotary_dim=16, intermediate_size=32, dense_intermediate_size=96,
            shared_intermediate_size=32, num_local_experts=6, num_experts_per_tok=3,
            mlp_layer_types=["dense", "sparse", "sparse"], routed_scaling_factor=1.5,
            swiglu_alpha=1.5, swiglu_limit=1.5, index_n_heads=2, index_head_dim=48,
            index_block_size=128, index_topk_blocks=3, index_local_blocks=2,
            layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
            rope_parameters=dict(rope_theta=10000.0, rope_type="default",
                                 partial_rotary_factor=0.5),
            quantization_config=dict(quant_method="mxfp8", scale_fmt="ue8m0", fmt="e4m3",
                                     activation_scheme="dynamic", weight_block_size=[1, 32],
                                     modules_to_not_convert=["lm_head"]))),
    # Kimi Delta Attention beside latents of which nothing is rotated, in its makers' words; a
    # sequence longer than chunks
    "kimi_linear": dict(
        dtype="BF16", tok="deepseek-v3", shards=2, gguf=["plain"], mid=150, ids=5,
        f32=("A_log", "dt_bias"),
        config=dict(base("KimiLinearForCausalLM", "kimi_linear", hidden_size=64, head_dim=16,
                         intermediate_size=88, num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=4, kv_lora_rank=40, q_lora_rank=None,
                         pad_token_id=2, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24,
                         mla_use_nope=True, model_max_length=1024, moe_intermediate_size=16,
                         first_k_dense_replace=1, moe_layer_freq=1, moe_renormalize=True,
                         moe_router_activation_func="sigmoid", num_expert_group=1, topk_group=1,
                         num_experts=12, num_experts_per_token=4, num_shared_experts=1,
                         num_nextn_predict_layers=0, rope_scaling=None, rope_theta=10000.0,
                         routed_scaling_factor=2.446, topk_method="noaux_tc",
                         use_grouped_topk=True, dtype="bfloat16", rms_norm_eps=1e-5,
                         linear_attn_config=dict(full_attn_layers=[3, 4], kda_layers=[1, 2],
                                                 head_dim=24, num_heads=4,
                                                 short_conv_kernel_size=4)))),
    # the same in transformers' words, which has a name for dense layers too: other heads, queries
    # by way of latents, groups of experts, a delta layer at the end; its makers' tokenizer
    "kimi_linear5": dict(
        dtype="F16", tok="kimi-k2", gguf=[], renamed={".mlp.": ".block_sparse_moe."},
        config=base("KimiLinearForCausalLM", "kimi_linear", hidden_size=56, vocab_size=580,
                    bos_token_id=320, eos_token_id=322, pad_token_id=321, intermediate_size=72,
                    num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2,
                    kv_lora_rank=24, q_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8,
                    v_head_dim=16, moe_intermediate_size=24, moe_renormalize=False,
                    layer_types=["linear_attention", "full_attention", "linear_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse"], linear_head_dim=16,
                    linear_num_heads=3, linear_conv_kernel_dim=3, n_group=2, topk_group=1,
                    num_local_experts=8, num_experts_per_tok=2, n_shared_experts=2,
                    routed_scaling_factor=1.5, dtype="float16")),
    # bounded decays beside latents with gates, limits of some layers' units, an MTP layer
    "bailing_hybrid": dict(
        dtype="BF16", tok="qwen2", shards=2, gguf=["plain"], mid=150, mtp=1,
        renamed=ling_names(1, 3, 4), f32=("A_log", "dt_bias"),
        config=base("BailingMoeV3ForCausalLM", "bailing_hybrid", hidden_size=64, head_dim=24,
                    intermediate_size=88, num_hidden_layers=4, num_attention_heads=4,
                    num_key_value_heads=4, kv_lora_rank=40, q_lora_rank=48, pad_token_id=2,
                    qk_head_dim=48, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24,
                    rope_theta=6000000, rotary_dim=16, partial_rotary_factor=0.5,
                    rope_interleave=True, rope_scaling=None, layer_group_size=2,
                    short_conv_kernel_size=4, kda_safe_gate=True, kda_lower_bound=-5,
                    no_kda_lora=True, use_kda_lora=False, linear_silu=True, use_qk_norm=True,
                    gated_attention_proj_granularity_type="head_wise", group_norm_size=1,
                    moe_intermediate_size=16, moe_shared_expert_intermediate_size=16,
                    first_k_dense_replace=1, n_group=4, topk_group=2, num_experts=12,
                    num_experts_per_tok=4, num_shared_experts=1, norm_topk_prob=True,
                    num_nextn_predict_layers=1, routed_scaling_factor=2.5,
                    score_function="sigmoid", topk_method="noaux_tc",
                    moe_router_enable_expert_bias=True, router_dtype="fp32",
                    expert_swiglu_limit_list=[0, 0, 0.5, 0.25],
                    share_expert_swiglu_limit_list=[0, 0.25, 0, 0.5], torch_dtype="bfloat16")),
    # decays without a bound, plain queries, a delta layer at the end; as transformers writes it
    "bailing_hybrid5": dict(
        dtype="F16", tok="llama-bpe", gguf=[], renamed=ling_names(1),
        config=base("BailingHybridForCausalLM", "bailing_hybrid", hidden_size=56, head_dim=8,
                    intermediate_size=72, num_hidden_layers=3, num_attention_heads=3,
                    num_key_value_heads=3, kv_lora_rank=24, q_lora_rank=None, pad_token_id=2,
                    qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
                    layer_types=["linear_attention", "full_attention", "linear_attention"],
                    mlp_layer_types=["dense", "sparse", "sparse"], layer_group_size=6,
                    linear_head_dim=16, linear_num_heads=3, linear_conv_kernel_dim=3,
                    short_conv_kernel_size=3, kda_safe_gate=False, kda_lower_bound=-5.0,
                    rope_parameters=dict(rope_theta=10000.0, rope_type="default"),
                    moe_intermediate_size=24, n_group=2, topk_group=1, num_experts=8,
                    num_experts_per_tok=2, n_shared_experts=2, norm_topk_prob=False,
                    first_k_dense_replace=1, num_nextn_predict_layers=0,
                    routed_scaling_factor=1.5, dtype="float16")),
    # DeepSeek-V4's windows alone, in transformers' words and its own: streams, experts by the id
    "deepseek_v4_window": dict(
        dtype="BF16", tok="deepseek-v3", gguf=["plain"], v4_words=True,
        config=deepseek4(num_hidden_layers=3, hc_mult=2, hc_sinkhorn_iters=7, hc_eps=1e-5,
                         layer_types=["sliding_attention"] * 3,
                         mlp_layer_types=["hash_moe", "moe", "moe"])),
    # as its makers store it: FP8 with powers of two, experts in MXFP4
    "deepseek_v4_fp4": dict(
        dtype="BF16", tok="deepseek-v3", gguf=[], v4_forms=True,
        config=deepseek4(num_hidden_layers=2, compress_ratios=[0, 0, 0], num_hash_layers=2,
                         n_routed_experts=8, num_experts_per_tok=3, expert_dtype="fp4",
                         quantization_config=dict(
                             quant_method="fp8", fmt="e4m3", scale_fmt="ue8m0",
                             activation_scheme="dynamic", weight_block_size=[128, 128]))),
    # all kinds of layers, in its makers' words
    "deepseek_v4": dict(
        dtype="BF16", tok="deepseek-v3", shards=2, gguf=["plain"], mid=280,
        config=deepseek4(num_hidden_layers=5, compress_ratios=[0, 4, 128, 0, 4, 0],
                         num_hash_layers=2)),
    # its MTP layer, of three streams, in the same forms
    "deepseek_v4_mtp": dict(
        dtype="BF16", tok="deepseek-v3", gguf=["plain"], mid=150, v4_forms=True, mtp=1, ids=1,
        config=deepseek4(num_hidden_layers=3, hc_mult=3, hc_sinkhorn_iters=9,
                         compress_ratios=[4, 128, 0, 0], num_hash_layers=1, expert_dtype="fp4",
                         quantization_config=dict(
                             quant_method="fp8", fmt="e4m3", scale_fmt="ue8m0",
                             activation_scheme="dynamic", weight_block_size=[128, 128]))),
    # pools that an indexer chooses beside bounded decays, several streams, an MTP layer with one,
    # as it is published: nested, beside a tower
    "glm5_next": dict(
        dtype="BF16", tok="llama-bpe", shards=2, gguf=["plain"], mid=150, mtp=1, ids=1,
        beside=VISUAL, inner="model.language_model.",
        f32=("A_log", "dt_bias", "_base", "_scale"),
        config=dict(
            architectures=["Glm5NextForConditionalGeneration"], model_type="glm5_next",
            image_token_id=310, video_token_id=311, tie_word_embeddings=False,
            vision_config=dict(model_type="glm5_next_vision", hidden_size=8, depth=1),
            text_config=glm5(
                num_hidden_layers=4, head_dim=0, attention_bias=False, mla_use_nope=True, mhc=True,
                first_k_dense_replace=1,
                index_kpool_compress=True, indexer_rope_interleave=True, qk_head_dim=32,
                index_share_for_mtp_iteration=True, moe_router_dtype="float32",
                layer_types=["linear_attention", "deepseek_sparse_attention"] * 2,
                mlp_layer_types=["dense"] + ["sparse"] * 3, indexer_types=["full"] * 4,
                num_nextn_predict_layers=1,
                linear_attn_config=dict(num_heads=4, head_dim=24, short_conv_kernel_size=4,
                                        gate_lower_bound=-5.0, kda_layers=[0, 2],
                                        full_attn_layers=[1, 3])))),
    # the same in transformers' words: decays without a bound, more heads of them, other pools, a
    # layer with a state at the end, weights as FP8
    "glm5_next_fp8": dict(
        dtype="BF16", tok="llama-bpe", fp8=True, gguf=[], mid=150,
        f32=("A_log", "dt_bias", "_base", "_scale"),
        config=glm5(
            num_hidden_layers=3, hidden_size=136, linear_num_heads=6, linear_head_dim=16,
            linear_conv_kernel_dim=3, linear_lower_bound=None, index_topk=32, index_kpool=16,
            layer_types=["indexed_attention", "indexed_attention", "linear_attention"],
            mlp_layer_types=["sparse", "dense", "sparse"], hc_mult=2, n_shared_experts=2,
            moe_intermediate_size=40, rms_norm_eps=1e-3,
            quantization_config=dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128],
                                     activation_scheme="dynamic"))),
    # Gemma 4 with experts beside dense blocks, keys that are values, within a model that sees
    "gemma4": dict(
        dtype="BF16", tok="gemma4", shards=2, gguf=["plain"], mid=150,
        inner="model.language_model.",
        beside={"model.vision_tower.patch_embedder.input_proj.weight": (8, 12),
                "model.embed_vision.embedding_projection.weight": (8, 8)},
        config=dict(architectures=["Gemma4ForConditionalGeneration"], model_type="gemma4",
                    tie_word_embeddings=True, image_token_id=5, boi_token_id=6, eoi_token_id=7,
                    vision_config=dict(model_type="gemma4_vision", hidden_size=8),
                    text_config=gemma4("wwfwf", hidden_size=64, intermediate_size=88, head_dim=24,
                                       global_head_dim=40, num_global_key_value_heads=1,
                                       attention_k_eq_v=True, enable_moe_block=True,
                                       num_experts=6, top_k_experts=2, moe_intermediate_size=32,
                                       use_bidirectional_attention="vision",
                                       final_logit_softcapping=3.0, torch_dtype="bfloat16"))),
    # dense, as transformers 5.24 writes it: values of their own everywhere, no cap
    "gemma4_dense": dict(
        dtype="F16", tok="gemma4", gguf=["plain"],
        config=gemma4("wfwf", architectures=["Gemma4ForCausalLM"], hidden_size=56,
                      intermediate_size=72, head_dim=16, sliding_window=24,
                      per_layer_config={"1": dict(head_dim=32), "3": dict(head_dim=32)},
                      final_logit_softcapping=None, enable_moe_block=False, num_experts=None,
                      top_k_experts=None, moe_intermediate_size=None,
                      rope_parameters=dict(
                          sliding_attention=dict(rope_type="default", rope_theta=5000.0),
                          full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5,
                                              rope_theta=100000.0)), dtype="float16")),
}

# Quantised GGUF files: a spec like those above (not written as a folder) and the type of each
# tensor.
QUANT = {
    # experts as published in GGUF; gpt-oss's files say no clamp, so theirs is 7
    "q_gpt_oss": dict(
        dtype="F32", tok="llama-bpe",
        config=gpt_oss(hidden_size=64, intermediate_size=64, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                       num_local_experts=6, num_experts_per_tok=2, sliding_window=16,
                       rope_parameters=dict(rope_theta=150000.0, rope_type="yarn", truncate=False,
                                            **YARN)),
        types={"token_embd": "Q8_0", "output": "Q8_0", "ffn_gate_exps": "MXFP4",
               "ffn_up_exps": "MXFP4", "ffn_down_exps": "MXFP4", "*": "Q8_0"}),
    # every type of docs/formats.md ("Blocks of GGUF types") in one dense model
    "q_all": dict(
        dtype="F32", tok="llama-bpe",
        config=llama(hidden_size=256, intermediate_size=256, num_hidden_layers=2, head_dim=40,
                     num_attention_heads=4, num_key_value_heads=2, rope_theta=10000.0),
        types={"token_embd": "Q6_K", "output": "Q8_0",
               "blk.0.attn_q": "Q4_K", "blk.0.attn_k": "Q5_K", "blk.0.attn_v": "Q3_K",
               "blk.0.attn_output": "Q4_0", "blk.0.ffn_gate": "Q2_K", "blk.0.ffn_up": "IQ4_XS",
               "blk.0.ffn_down": "IQ4_NL",
               "blk.1.attn_q": "Q4_1", "blk.1.attn_k": "Q5_0", "blk.1.attn_v": "Q5_1",
               "blk.1.attn_output": "MXFP4", "blk.1.ffn_gate": "NVFP4", "blk.1.ffn_up": "BF16",
               "blk.1.ffn_down": "F16"}),
    # experts in the 32- and 64-wide types; down has 40 columns, so it stays F16
    "q_moe": dict(
        dtype="F32", tok="qwen2",
        config=base("Qwen3MoeForCausalLM", "qwen3_moe", hidden_size=64, intermediate_size=96,
                    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                    head_dim=24, attention_bias=False, rope_theta=10000.0, rope_scaling=None,
                    decoder_sparse_step=1, moe_intermediate_size=64, num_experts_per_tok=2,
                    num_experts=5, norm_topk_prob=True, mlp_only_layers=[]),
        types={"token_embd": "Q8_0", "output": "Q4_0", "attn_q": "Q8_0", "attn_k": "Q4_1",
               "attn_v": "Q5_0", "attn_output": "Q4_0",
               "blk.0.ffn_gate_exps": "Q4_0", "blk.0.ffn_up_exps": "Q4_1",
               "blk.0.ffn_down_exps": "Q8_0",
               "blk.1.ffn_gate_exps": "MXFP4", "blk.1.ffn_up_exps": "MXFP4",
               "blk.1.ffn_down_exps": "IQ4_NL",
               "blk.2.ffn_gate_exps": "NVFP4", "blk.2.ffn_up_exps": "NVFP4",
               "blk.2.ffn_down_exps": "Q5_1"}),
    # MLA with quantised latents: attn_k_b in a type of its own, experts in K types
    "q_mla": dict(
        dtype="F32", tok="deepseek-v3",
        config=deepseek(3, hidden_size=256, intermediate_size=256, moe_intermediate_size=256,
                        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                        n_shared_experts=1, n_routed_experts=2, num_experts_per_tok=1,
                        routed_scaling_factor=1.5, kv_lora_rank=64, q_lora_rank=64,
                        qk_rope_head_dim=8, v_head_dim=16, qk_nope_head_dim=32,
                        topk_method="noaux_tc", n_group=1, topk_group=1, scoring_func="sigmoid",
                        first_k_dense_replace=1, moe_layer_freq=1, norm_topk_prob=True,
                        num_nextn_predict_layers=0, rope_theta=10000, rope_scaling=None),
        types={"token_embd": "Q4_K", "output": "Q6_K", "attn_q_a": "Q4_K", "attn_q_b": "Q8_0",
               "attn_kv_a_mqa": "Q5_K", "attn_k_b": "Q4_0", "attn_v_b": "Q5_1",
               "attn_output": "Q8_0",
               "blk.0.ffn_gate": "Q3_K", "blk.0.ffn_up": "Q2_K", "blk.0.ffn_down": "IQ4_XS",
               "blk.1.ffn_gate_exps": "Q4_K", "blk.1.ffn_up_exps": "IQ4_XS",
               "blk.1.ffn_down_exps": "Q6_K", "blk.1.ffn_gate_shexp": "Q5_K",
               "blk.1.ffn_up_shexp": "Q3_K", "blk.1.ffn_down_shexp": "Q2_K"}),
}
TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
         "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"]
