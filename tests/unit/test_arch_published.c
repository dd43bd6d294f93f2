/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations as they are published, every key of them: none may be refused. */
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "test.h"

/* What the library of these models writes into every configuration, and what tools leave there. */
#define LEFT                                                                                       \
    ",\"transformers_version\":\"4.51.0\",\"torch_dtype\":\"bfloat16\",\"use_cache\":true,"        \
    "\"initializer_range\":0.02,\"attention_dropout\":0.0"
#define TOOLS                                                                                      \
    ",\"_name_or_path\":\"x/y\",\"_attn_implementation_autoset\":true,\"dtype\":\"float16\","      \
    "\"unsloth_fixed\":true,\"unsloth_version\":\"2025.1\",\"neftune_noise_alpha\":5,"             \
    "\"transformers.js_config\":{\"dtype\":\"q4\"},\"id2label\":{\"0\":\"a\"},\"max_length\":20,"  \
    "\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4},\"task_specific_params\":null," \
    "\"temperature\":0.7,\"do_sample\":true,\"chunk_size_feed_forward\":0,\"return_dict\":true,"   \
    "\"output_attentions\":false,\"tokenizer_class\":\"LlamaTokenizerFast\",\"bos_token_id\":"     \
    "1,\"eos_token_id\":[2,3],\"pad_token_id\":0,\"image_token_id\":7,\"gradient_checkpointing\":" \
    "true,\"pretraining_tp\":1,\"_flash_attn_2_enabled\":true,\"use_flash_attn\":true,"            \
    "\"max_sequence_length\":4096,\"model_max_length\":4096,\"torchscript\":true,"                 \
    "\"base_model_tp_plan\":{\"a\":\"colwise\"},\"vocab_size_padded_to\":null,"                    \
    "\"num_return_sequences\":1,\"auto_map\":{\"AutoConfig\":\"a\"}"
#define SIZES(layers, d, ff, heads, kv, vocab, ctx)                                                \
    "\"num_hidden_layers\":" #layers ",\"hidden_size\":" #d ",\"intermediate_size\":" #ff          \
    ",\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #kv ",\"vocab_size\":" #vocab   \
    ",\"max_position_embeddings\":" #ctx ",\"hidden_act\":\"silu\""
#define DEEPSEEK                                                                                   \
    ",\"aux_loss_alpha\":0.001,\"seq_aux\":true,\"ep_size\":1,\"moe_layer_freq\":1,"               \
    "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"    \
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"attention_bias\":false,\"tie_word_embeddings\":" \
    "false,\"pretraining_tp\":1"
#define YARN(f)                                                                                    \
    ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":" #f ",\"beta_fast\":32,\"beta_slow\":1,"     \
    "\"mscale\":1.0,\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096}"
#define ONES10 "1,1,1,1,1,1,1,1,1,1,"
#define GLM53_4                                                                                    \
    "\"linear_attention\",\"linear_attention\",\"linear_attention\","                              \
    "\"deepseek_sparse_attention\","
#define GLM53_20 GLM53_4 GLM53_4 GLM53_4 GLM53_4 GLM53_4

#define GLM5                                                                                       \
    ",\"attention_bias\":false,\"head_dim\":64,\"index_head_dim\":128,\"index_n_heads\":32,"      \
    "\"index_topk\":2048,\"indexer_rope_interleave\":true,\"kv_lora_rank\":512,"                  \
    "\"moe_intermediate_size\":2048,\"moe_layer_freq\":1,\"n_group\":1,\"topk_group\":1,"         \
    "\"n_routed_experts\":256,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"                  \
    "\"norm_topk_prob\":true,\"num_nextn_predict_layers\":1,\"q_lora_rank\":2048,"                \
    "\"qk_head_dim\":256,\"qk_nope_head_dim\":192,\"qk_rope_head_dim\":64,"                       \
    "\"rms_norm_eps\":1e-5,\"rope_interleave\":true,\"rope_parameters\":{\"rope_theta\":1000000," \
    "\"rope_type\":\"default\"},\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\","      \
    "\"topk_method\":\"noaux_tc\",\"v_head_dim\":256,\"ep_size\":1,\"first_k_dense_replace\":3"

static const char *const published[] = {
    /* Llama 3.1, 3.2, 2; SmolLM2, Yi, Mistral, Mistral-Nemo */
    "\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
    SIZES(32, 4096, 14336, 32, 8, 128256, 131072)
    ",\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"mlp_bias\":false,\"attention_bias\":false,"
    "\"tie_word_embeddings\":false,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,"
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}",
    "\"model_type\":\"llama\"," SIZES(16, 2048, 8192, 32, 8, 128256, 131072)
    ",\"head_dim\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0,\"tie_word_embeddings\":true",
    "\"model_type\":\"llama\"," SIZES(32, 4096, 11008, 32, 32, 32000, 4096)
    ",\"rms_norm_eps\":1e-5,\"rope_scaling\":null,\"pad_token_id\":0,\"ffn_hidden_size\":11008,"
    "\"layer_norm_eps\":1e-5,\"n_layers\":32",
    "\"model_type\":\"llama\"," SIZES(30, 576, 1536, 9, 3, 49152, 8192)
    ",\"is_llama_config\":true,\"rope_interleaved\":false,\"rms_norm_eps\":1e-5,\"rope_theta\":"
    "100000,\"tie_word_embeddings\":true",
    "\"model_type\":\"llama\"," SIZES(60, 7168, 20480, 56, 8, 64000, 4096)
    ",\"rms_norm_eps\":1e-5,\"rope_theta\":5000000.0",
    "\"model_type\":\"mistral\"," SIZES(32, 4096, 14336, 32, 8, 32768, 32768)
    ",\"rms_norm_eps\":1e-5,\"rope_theta\":1000000.0,\"sliding_window\":null",
    "\"model_type\":\"mistral\"," SIZES(40, 5120, 14336, 32, 8, 131072, 131072)
    ",\"head_dim\":128,\"rms_norm_eps\":1e-5,\"rope_theta\":1000000.0,\"sliding_window\":null",
    /* Qwen2.5, its 1M, Qwen3, Qwen3-30B-A3B, Qwen3-Coder-480B-A35B */
    "\"model_type\":\"qwen2\"," SIZES(28, 3584, 18944, 28, 4, 152064, 32768)
    ",\"max_window_layers\":28,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,\"sliding_window\":"
    "131072,\"use_sliding_window\":false,\"use_mrope\":false,\"bos_token_id\":151643",
    "\"model_type\":\"qwen2\"," SIZES(28, 3584, 18944, 28, 4, 152064, 1010000)
    ",\"max_window_layers\":28,\"rms_norm_eps\":1e-5,\"rope_theta\":10000000.0,\"sliding_window\":"
    "32768,\"use_sliding_window\":false,\"dual_chunk_attention_config\":{\"chunk_size\":262144,"
    "\"local_size\":8192,\"original_max_position_embeddings\":262144}",
    "\"model_type\":\"qwen3\"," SIZES(28, 1024, 3072, 16, 8, 151936, 40960)
    ",\"head_dim\":128,\"max_window_layers\":28,\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,"
    "\"rope_scaling\":null,\"sliding_window\":null,\"use_sliding_window\":false,\"attention_bias\":"
    "false,\"tie_word_embeddings\":true",
    "\"model_type\":\"qwen3_moe\"," SIZES(48, 2048, 6144, 32, 4, 151936, 40960)
    ",\"decoder_sparse_step\":1,\"head_dim\":128,\"max_window_layers\":48,\"mlp_only_layers\":[],"
    "\"moe_intermediate_size\":768,\"norm_topk_prob\":true,\"num_experts\":128,"
    "\"num_experts_per_tok\":8,\"output_router_logits\":false,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":1000000.0,\"router_aux_loss_coef\":0.001,\"sliding_window\":null,"
    "\"use_sliding_window\":false,\"attention_bias\":false",
    "\"model_type\":\"qwen3_moe\"," SIZES(62, 6144, 8192, 96, 8, 151936, 262144)
    ",\"decoder_sparse_step\":1,\"head_dim\":128,\"max_window_layers\":62,\"mlp_only_layers\":[],"
    "\"moe_intermediate_size\":2560,\"norm_topk_prob\":true,\"num_experts\":160,"
    "\"num_experts_per_tok\":8,\"output_router_logits\":false,\"qkv_bias\":false,"
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000000,\"router_aux_loss_coef\":0.0,"
    "\"shared_expert_intermediate_size\":0,\"use_qk_norm\":true,\"use_sliding_window\":false",
    /* DeepSeek-V2-Lite, V2, V3; Kimi-K2 */
    "\"model_type\":\"deepseek_v2\"," SIZES(27, 2048, 10944, 16, 16, 102400, 163840) DEEPSEEK
    ",\"q_lora_rank\":null,\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"n_shared_experts\":"
    "2,\"moe_intermediate_size\":1408,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1,"
    "\"topk_method\":\"greedy\",\"norm_topk_prob\":false,\"routed_scaling_factor\":1.0,"
    "\"scoring_func\":\"softmax\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":"
    "32,\"beta_slow\":1,\"mscale\":0.707,\"mscale_all_dim\":0.707,"
    "\"original_max_position_embeddings\":4096}",
    "\"model_type\":\"deepseek_v2\"," SIZES(60, 5120, 12288, 128, 128, 102400, 163840) DEEPSEEK
    YARN(40) ",\"q_lora_rank\":1536,\"n_routed_experts\":160,\"num_experts_per_tok\":6,"
    "\"n_shared_experts\":2,\"moe_intermediate_size\":1536,\"first_k_dense_replace\":1,"
    "\"n_group\":8,\"topk_group\":3,\"topk_method\":\"group_limited_greedy\",\"norm_topk_prob\":"
    "false,\"routed_scaling_factor\":16.0,\"scoring_func\":\"softmax\"",
    "\"model_type\":\"deepseek_v3\"," SIZES(61, 7168, 18432, 128, 128, 129280, 163840) DEEPSEEK
    YARN(40) ",\"q_lora_rank\":1536,\"n_routed_experts\":256,\"num_experts_per_tok\":8,"
    "\"n_shared_experts\":1,\"moe_intermediate_size\":2048,\"first_k_dense_replace\":3,"
    "\"n_group\":8,\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,"
    "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"num_nextn_predict_layers\":1,"
    "\"scale_fmt\":\"ue8m0\"",
    "\"model_type\":\"kimi_k2\"," SIZES(61, 7168, 18432, 64, 64, 163840, 131072) DEEPSEEK
    YARN(32) ",\"q_lora_rank\":1536,\"n_routed_experts\":384,\"num_experts_per_tok\":8,"
    "\"n_shared_experts\":1,\"moe_intermediate_size\":2048,\"first_k_dense_replace\":1,"
    "\"n_group\":1,\"topk_group\":1,\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,"
    "\"routed_scaling_factor\":2.827,\"scoring_func\":\"sigmoid\",\"num_nextn_predict_layers\":0",
    /* GLM-4.5, GLM-4.7-Flash */
    "\"model_type\":\"glm4_moe\"," SIZES(92, 5120, 12288, 96, 8, 151552, 131072)
    ",\"head_dim\":128,\"attention_bias\":true,\"partial_rotary_factor\":0.5,\"rope_theta\":"
    "1000000,\"rope_scaling\":null,\"rms_norm_eps\":1e-5,\"use_qk_norm\":true,"
    "\"n_routed_experts\":160,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"
    "\"moe_intermediate_size\":1536,\"first_k_dense_replace\":3,\"n_group\":1,\"topk_group\":1,"
    "\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,\"num_nextn_predict_layers\":1,"
    "\"tie_word_embeddings\":false",
    "\"model_type\":\"glm4_moe_lite\"," SIZES(47, 2048, 10240, 20, 20, 154880, 202752)
    ",\"attention_bias\":false,\"q_lora_rank\":768,\"kv_lora_rank\":512,\"qk_nope_head_dim\":192,"
    "\"qk_rope_head_dim\":64,\"v_head_dim\":256,\"rope_theta\":1000000,\"rope_scaling\":null,"
    "\"partial_rotary_factor\":1.0,\"rms_norm_eps\":1e-5,\"n_routed_experts\":64,"
    "\"n_shared_experts\":1,\"num_experts_per_tok\":4,\"moe_intermediate_size\":1536,"
    "\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1,\"topk_method\":\"noaux_tc\","
    "\"norm_topk_prob\":true,\"routed_scaling_factor\":1.8,\"num_nextn_predict_layers\":1",
    /* DeepSeek-V3.2, GLM-5, GLM-5.2 in transformers' spelling */
    "\"model_type\":\"deepseek_v32\"," SIZES(61, 7168, 18432, 128, 128, 129280, 163840) DEEPSEEK
    YARN(40) ",\"q_lora_rank\":1536,\"n_routed_experts\":256,\"num_experts_per_tok\":8,"
    "\"n_shared_experts\":1,\"moe_intermediate_size\":2048,\"first_k_dense_replace\":3,"
    "\"n_group\":8,\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,"
    "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"num_nextn_predict_layers\":1,"
    "\"index_head_dim\":128,\"index_n_heads\":64,\"index_topk\":2048",
    "\"model_type\":\"glm_moe_dsa\"," SIZES(78, 6144, 12288, 64, 64, 154880, 202752) GLM5,
    "\"model_type\":\"glm_moe_dsa\"," SIZES(78, 6144, 12288, 64, 64, 154880, 1048576) GLM5
    ",\"index_topk_freq\":4,\"index_skip_topk_offset\":3,\"index_share_for_mtp_iteration\":true",
    /* Qwen3-Next-80B-A3B, Qwen3.5-35B-A3B, Qwen3.5-27B */
    "\"model_type\":\"qwen3_next\"," SIZES(
        48, 2048, 5120, 16, 2, 151936,
        262144) ",\"attention_bias\":false,\"decoder_sparse_step\":1,\"full_attention_interval\":4,"
                "\"head_dim\":"
                "256,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_num_key_"
                "heads\":16,"
                "\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,\"mlp_only_layers\":[]"
                ","
                "\"moe_intermediate_size\":512,\"norm_topk_prob\":true,\"num_experts\":512,"
                "\"num_experts_per_tok\":10,\"output_router_logits\":false,\"partial_rotary_"
                "factor\":0.25,"
                "\"rms_norm_eps\":1e-6,\"rope_scaling\":null,\"rope_theta\":10000000,"
                "\"router_aux_loss_coef\":0.001,\"shared_expert_intermediate_size\":512,"
                "\"tie_word_embeddings\":false,\"use_sliding_window\":false",
    "\"model_type\":\"qwen3_5_moe\",\"image_token_id\":248056,\"vision_config\":{\"depth\":27},"
    "\"tie_word_embeddings\":false,\"text_config\":{\"model_type\":\"qwen3_5_moe_text\","
    "\"attention_bias\":false,\"attention_dropout\":0.0,\"attn_output_gate\":true,\"dtype\":"
    "\"bfloat16\",\"eos_token_id\":248044,\"full_attention_interval\":4,\"head_dim\":256,"
    "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,"
    "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_num_key_heads\":16,"
    "\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,\"mamba_ssm_dtype\":\"float32\","
    "\"max_position_embeddings\":262144,\"mlp_only_layers\":[],\"moe_intermediate_size\":512,"
    "\"mtp_num_hidden_layers\":1,\"mtp_use_dedicated_embeddings\":false,"
    "\"num_attention_heads\":16,\"num_experts\":256,\"num_experts_per_tok\":8,"
    "\"num_hidden_layers\":40,\"num_key_value_heads\":2,\"output_router_logits\":false,"
    "\"rms_norm_eps\":1e-6,\"router_aux_loss_coef\":0.001,\"shared_expert_intermediate_size\":512,"
    "\"use_cache\":true,\"vocab_size\":248320,\"rope_parameters\":{\"mrope_interleaved\":true,"
    "\"mrope_section\":[11,11,10],\"partial_rotary_factor\":0.25,\"rope_theta\":10000000,"
    "\"rope_type\":\"default\"}}",
    "\"model_type\":\"qwen3_5_text\"," SIZES(
        64, 5120, 17408, 24, 4, 248320,
        262144) ",\"attn_output_gate\":true,\"full_attention_interval\":4,\"head_dim\":256,"
                "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":128,\"linear_num_key_heads\":"
                "16,"
                "\"linear_num_value_heads\":48,\"linear_value_head_dim\":128,\"mamba_ssm_dtype\":"
                "\"float32\","
                "\"mtp_num_hidden_layers\":1,\"mtp_use_dedicated_embeddings\":false,\"rms_norm_"
                "eps\":1e-6,"
                "\"partial_rotary_factor\":0.25,\"rope_parameters\":{\"mrope_interleaved\":true,"
                "\"mrope_section\":[11,11,10],\"partial_rotary_factor\":0.25,\"rope_theta\":"
                "10000000,"
                "\"rope_type\":\"default\"}",
    /* gpt-oss */
    "\"model_type\":\"gpt_oss\"," SIZES(24, 2880, 2880, 64, 8, 201088, 131072)
    ",\"head_dim\":64,\"attention_bias\":true,\"experts_per_token\":4,\"num_experts_per_tok\":4,"
    "\"num_local_experts\":32,\"initial_context_length\":4096,\"output_router_logits\":false,"
    "\"router_aux_loss_coef\":0.9,\"rms_norm_eps\":1e-5,\"rope_theta\":150000,\"sliding_window\":"
    "128,\"swiglu_limit\":7.0,\"tie_word_embeddings\":false,\"rope_scaling\":{\"beta_fast\":32.0,"
    "\"beta_slow\":1.0,\"factor\":32.0,\"original_max_position_embeddings\":4096,\"rope_type\":"
    "\"yarn\",\"truncate\":false}",
    /* MiniMax-M2 */
    "\"model_type\":\"minimax_m2\"," SIZES(62, 3072, 1536, 48, 8, 200064, 196608)
    ",\"attn_type_list\":[" ONES10 ONES10 ONES10 ONES10 ONES10 ONES10 "1,1],"
    "\"head_dim\":128,\"layernorm_full_attention_beta\":1.0,\"layernorm_linear_attention_beta\":"
    "1.0,\"layernorm_mlp_beta\":1.0,\"max_model_len\":40960,\"mlp_intermediate_size\":8192,"
    "\"mtp_transformer_layers\":1,\"num_experts_per_tok\":8,\"num_local_experts\":256,"
    "\"num_mtp_modules\":3,\"output_router_logits\":false,\"qk_norm_type\":\"per_layer\","
    "\"rms_norm_eps\":1e-6,\"rope_theta\":5000000,\"rotary_dim\":64,\"router_aux_loss_coef\":0.001,"
    "\"router_jitter_noise\":0.0,\"scoring_func\":\"sigmoid\",\"shared_intermediate_size\":0,"
    "\"shared_moe_mode\":\"sigmoid\",\"sliding_window\":null,\"tie_word_embeddings\":false,"
    "\"use_mtp\":true,\"use_qk_norm\":true,\"use_routing_bias\":true",
    /* Kimi-Linear-48B-A3B */
    "\"model_type\":\"kimi_linear\",\"architectures\":[\"KimiLinearForCausalLM\"],\"auto_map\":{"
    "\"AutoConfig\":\"configuration_kimi.KimiLinearConfig\"},\"bos_token_id\":163584,"
    "\"eos_token_id\":163586,\"pad_token_id\":163839,\"first_k_dense_replace\":1,\"head_dim\":72,"
    "\"hidden_act\":\"silu\",\"hidden_size\":2304,\"intermediate_size\":9216,\"kv_lora_rank\":512,"
    "\"linear_attn_config\":{\"full_attn_layers\":[4,8,12,16,20,24,27],\"head_dim\":128,"
    "\"kda_layers\":[1,2,3,5,6,7,9,10,11,13,14,15,17,18,19,21,22,23,25,26],\"num_heads\":32,"
    "\"short_conv_kernel_size\":4},\"mla_use_nope\":true,\"model_max_length\":1048576,"
    "\"moe_intermediate_size\":1024,\"moe_layer_freq\":1,\"moe_renormalize\":true,"
    "\"moe_router_activation_func\":\"sigmoid\",\"num_attention_heads\":32,"
    "\"num_expert_group\":1,\"num_experts\":256,\"num_experts_per_token\":8,"
    "\"num_hidden_layers\":27,\"num_key_value_heads\":32,\"num_nextn_predict_layers\":0,"
    "\"num_shared_experts\":1,\"q_lora_rank\":null,\"qk_nope_head_dim\":128,"
    "\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":10000.0,"
    "\"routed_scaling_factor\":2.446,\"tie_word_embeddings\":false,\"topk_group\":1,"
    "\"topk_method\":\"noaux_tc\",\"use_grouped_topk\":true,\"v_head_dim\":128,"
    "\"vocab_size\":163840",
    /* Ling-3.0-flash */
    "\"model_type\":\"bailing_hybrid\",\"architectures\":[\"BailingMoeV3ForCausalLM\"],"
    "\"embedding_dropout\":0.0,\"eos_token_id\":156895,\"pad_token_id\":156892,"
    "\"expert_swiglu_limit_list\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
    "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4,4,4,4,4,4,4],\"first_k_dense_replace\":2,"
    "\"gated_attention_proj_granularity_type\":\"head_wise\",\"group_norm_size\":1,"
    "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":2560,"
    "\"intermediate_size\":6144,\"kda_lower_bound\":-5,\"kda_safe_gate\":true,"
    "\"kv_lora_rank\":512,\"layer_group_size\":6,\"linear_silu\":true,"
    "\"max_position_embeddings\":262144,\"max_window_layers\":20,\"moe_intermediate_size\":768,"
    "\"moe_router_enable_expert_bias\":true,\"moe_shared_expert_intermediate_size\":768,"
    "\"mtp_loss_scaling_factor\":0,\"mtp_use_kda\":false,\"n_group\":8,\"no_kda_lora\":true,"
    "\"norm_topk_prob\":true,\"num_attention_heads\":32,\"num_experts\":512,"
    "\"num_experts_per_tok\":8,\"num_hidden_layers\":42,\"num_key_value_heads\":32,"
    "\"num_kv_heads_for_linear_attn\":0,\"num_nextn_predict_layers\":1,"
    "\"num_shared_experts\":1,\"output_dropout\":0.0,\"output_router_logits\":false,"
    "\"partial_rotary_factor\":0.5,\"q_lora_rank\":null,\"qk_head_dim\":192,"
    "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-06,"
    "\"rope_interleave\":true,\"rope_scaling\":null,\"rope_theta\":6000000,\"rotary_dim\":64,"
    "\"routed_scaling_factor\":2.5,\"router_dtype\":\"fp32\",\"scale_router_input\":false,"
    "\"score_function\":\"sigmoid\",\"scoring_func\":\"sigmoid\",\"seq_aux\":true,"
    "\"share_expert_swiglu_limit_list\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
    "0,0,0,0,0,0,5,5,5,5,5,5,7,7],\"short_conv_kernel_size\":4,\"tie_word_embeddings\":false,"
    "\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"up_proj_norm\":false,\"use_bias\":false,"
    "\"use_kda_lora\":false,\"use_mla_nope\":false,\"use_nGPT\":false,"
    "\"use_qk_norm\":true,\"use_qkv_bias\":false,\"v_head_dim\":128,\"value_norm\":false,"
    "\"vocab_size\":157184",
    /* GLM-5.3-Flash, its text model */
    "\"model_type\":\"glm5_next_text\"," SIZES(45, 4096, 12288, 64, 64, 154880, 1048576)
    ",\"attention_bias\":false,\"first_k_dense_replace\":3,\"head_dim\":0,\"hc_eps\":1e-06,"
    "\"hc_mult\":4,\"hc_sinkhorn_iters\":20,\"index_head_dim\":128,\"index_kpool\":4,"
    "\"index_kpool_always_select_tail\":true,\"index_kpool_compress\":true,"
    "\"index_n_heads\":32,\"index_share_for_mtp_iteration\":true,\"index_topk\":2048,"
    "\"indexer_rope_interleave\":true,\"kv_lora_rank\":512,\"layer_types\":["
        GLM53_20 GLM53_20 GLM53_4
    "\"linear_attention\"],\"linear_attn_config\":{\"full_attn_layers\":[3,7,11,15,19,23,27,31,"
    "35,39,43],\"gate_lower_bound\":-5.0,\"head_dim\":128,\"kda_layers\":[0,1,2,4,5,6,8,9,10,12,13,"
    "14,16,17,18,20,21,22,24,25,26,28,29,30,32,33,34,36,37,38,40,41,42,44],\"num_heads\":64,"
    "\"short_conv_kernel_size\":4},\"mhc\":true,\"mla_use_nope\":true,"
    "\"moe_intermediate_size\":2048,\"moe_router_dtype\":\"float32\",\"n_group\":1,"
    "\"n_routed_experts\":288,\"n_shared_experts\":1,\"norm_topk_prob\":true,"
    "\"num_experts_per_tok\":8,\"num_nextn_predict_layers\":1,\"q_lora_rank\":1536,"
    "\"qk_head_dim\":256,\"qk_nope_head_dim\":256,\"qk_rope_head_dim\":0,"
    "\"rms_norm_eps\":1e-05,\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\","
    "\"swiglu_limit\":10.0,\"tie_word_embeddings\":false,\"topk_group\":1,"
    "\"topk_method\":\"noaux_tc\",\"v_head_dim\":256",
};

static void check(const char *keys, const char *more, int i)
{
    struct arena a;
    struct str s;
    struct arch_cfg c;
    const struct json *config = NULL;
    sl_err err = {0};
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    str_printf(&s, "{%s%s}", keys, more);
    ASSERT_OK(text_json_parse(&a, "config", str_c(&s), s.n, &config, &err));
    if (arch_cfg_read_json(config, &a, &c, &err) != SL_OK)
        fail_msg("%.40s (%d): %s", keys, i, err.text);
    str_fini(&s);
    mem_arena_fini(&a);
}

TEST(arch_takes_configurations_as_they_are_published)
{
    for (int i = 0; i < BASE_COUNT_OF(published); i++) {
        check(published[i], "", i);
        check(published[i], LEFT, i);
    }
}

TEST(arch_takes_what_tools_leave_in_configurations)
{
    for (int i = 0; i < BASE_COUNT_OF(published); i++)
        if (!strstr(published[i], "pretraining_tp") && !strstr(published[i], "_token_id"))
            check(published[i], TOOLS, i);
}
