/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that change what a model computes: obeyed, at the value that changes nothing, or refused by
 * name. One list for config.json, one for its rope objects, one for GGUF. What is harmless has rows
 * too (dropout, initialisers, token ids, names): whatever no row names is refused, for a list of
 * what could change numbers is never whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch_internal.h"
#include "text/keys.h"

/* What the architecture's row says that it obeys is obeyed; of the others the first row whose names
 * fit decides. names: "|"-separated, * stands for any bytes. by: "*" = all obey it, "" = nothing
 * else does (in a rope object: the types of rope that do). neutral: values that change nothing, in
 * addition to null, false, 0, [], {} and empty strings where the row has "-" among them; @head,
 * @layers, ... stand for a number that was read under its usual name. moe: of interest only where
 * there are experts. */
struct rule {
    const char *names, *by, *neutral;
    bool moe;
};

static const struct rule hf_rules[] = {
    /* read by all, or held against what is computed */
    {"rope_theta|rope_scaling|rope_parameters|original_max_position_embeddings|hidden_act|mlp_bias|"
     "attention_bias|rms_norm_eps",
     "*", "", false},
    {"head_dim|tie_word_embeddings|layer_types|max_window_layers", "*", "", false},
    {"rope_interleave", "", "-", false},
    {"norm_eps|layer_norm_eps*|layernorm_eps*|norm_epsilon|rms_norm_epsilon", "", "@eps|-", false},
    {"n_layer|n_layers|num_layers", "", "@layers|-", false},
    {"n_head|n_heads|num_heads", "", "@heads|-", false},
    {"n_kv_heads|n_head_kv|num_kv_heads|num_key_value_heads_per_layer", "", "@kv|-", false},
    {"n_embd|n_embed|d_model|dim|model_dim|embedding_size|embed_dim|embedding_dim", "", "@model|-",
     false},
    {"ffn_hidden_size|d_ff|ffn_dim|n_inner|hidden_dim", "", "@ff|-", false},
    {"qk_rope_head_dim|qk_nope_head_dim|q_lora_rank|kv_lora_rank", "", "-", false},
    {"v_head_dim|value_head_dim|v_channels", "", "-|@head", false},
    {"qk_head_dim|kv_channels|attention_head_dim|attention_head_size|head_size|d_head|d_kv", "",
     "-|@head", false},
    /* positions */
    {"partial_rotary_factor|rotary_pct|rotary_percent|rope_pct|rope_percentage", "", "1|-", false},
    {"use_rope|rope|use_rotary|use_rotary_embedding*|use_rotary_pos_emb|rotary|apply_rope", "",
     "true|null", false},
    {"rotary_dim|rope_dim|rotary_emb_dim|rotary_ndims", "", "-|@head", false},
    {"rope_type|rope_scaling_type|position_embedding_type|pos_emb*|pe_type|rope_style", "",
     "default|rope|rotary|rope_full|none|-", false},
    {"*rope*|*rotary*|*ntk*", "", "1|-", false},
    {"position_embedding|position_enc*|pos_enc*|positional_emb*|positional_enc*", "",
     "rope|rotary|-", false},
    {"*alibi*|*logn_attn*|*position_interpolation*", "", "1|-", false},
    /* which keys a query sees */
    {"*is_causal*|causal|*use_causal*", "", "true|null", false},
    {"*bidirectional*|*prefix_lm*", "", "-", false},
    {"*window*|*swa*|*attention_chunk*|*chunked_attention*|*local_attention*|*sink*|index_*|*"
     "sparse_attention*|*sparse_attn*|*nsa*config",
     "", "-", false},
    {"*layer_type*|*layers_block_type*|*block_types|*block_type|attention_type*|attn_layer_*|full_"
     "attn_*|full_attention_*|global_attn_*|nope_*",
     "", "full_attention|full|attention|-", false},
    {"*kv_shared*|*cross_layer*|*cla_share*|add_cross_attention|is_encoder_decoder|pruned_heads|*"
     "kv_sharing*",
     "", "-", false},
    /* factors, limits, norms, biases */
    {"routed_scaling_factor", "", "1|-", true},
    {"scale_fmt|*_scale_init*|*init_scale*|loss_scale*", "*", "", false},
    {"scale_attn_weights|scale_attention_weights", "", "true|null", false},
    {"*multiplier*|*logit_scale*|*logits_scal*|*_scale|scale_*|*scaling*|*_scale_factor|*mup*|*"
     "query_pre_attn_scalar*|dim_model_base",
     "", "1|-", false},
    {"*temperature_tuning*|*attn_temperature*|*attention_temperature*|*softcap*|*soft_cap*|*logit_"
     "cap*|*clip*|*clamp*|*swiglu_limit*",
     "", "-", false},
    {"hidden_activation|activation|activation_function|activation_type|mlp_activation|*_hidden_act|"
     "ffn_act*|act_fn|mlp_hidden_act",
     "", "silu|swish|swiglu|-", false},
    {"*qkv_bias*", "", "-", false},
    {"bias|use_bias|*_proj_bias|*linear_bias|lm_head_bias|*head_bias|o_bias|attn_bias|attention_"
     "out*_bias|use_*_bias|add_bias*",
     "", "-", false},
    {"*qk_norm*|*qk_layernorm*|*qk_layer_norm*|*qknorm*|query_norm|key_norm", "", "-", false},
    {"norm_type|normalization|normalization_type|norm_class|layer_norm_type|norm_layer|"
     "normalization_function",
     "", "rms|rmsnorm|rms_norm|-", false},
    {"*post_norm*|*pre_norm*|*sandwich_norm*|use_post_*|norm_after*|*norm_reorder*|*unit_offset*|*"
     "parallel_residual|parallel_attn*|parallel_block*",
     "", "-", false},
    {"layernorm_1p|*zero_centered*|apply_residual_connection_post_*", "", "-", false},
    {"layernorm_*_alpha|layernorm_*_beta", "", "1|-", false},
    {"use_gated_mlp|gated_mlp|use_glu|use_swiglu", "", "true|null", false},
    {"*gated_att*|*attn_output_gate*|*attention_gate*|use_output_gate|*mamba*|*ssm_*|linear_attn*|"
     "linear_num_*|linear_key_*|linear_value_*|*conv_l_cache",
     "", "-", false},
    {"*per_layer_input*|*altup*|*laurel*|*hyper_connection*|hc_mult|*ple_dim*", "", "-", false},
    /* experts */
    {"num_experts|num_local_experts|n_routed_experts", "", "1|-", false},
    {"moe_num_experts|n_experts|moe_num_expert|num_moe_experts|moe_*_num_experts", "", "1|-",
     false},
    {"num_experts_per_tok|moe_intermediate_size|norm_topk_prob", "", "", true},
    {"n_shared_experts", "", "-", true},
    {"n_group|topk_group", "", "1|-", true},
    {"topk_method", "", "greedy|-", true},
    {"scoring_func", "", "softmax|-", true},
    {"first_k_dense_replace", "", "-", true},
    {"moe_layer_freq", "", "1|-", true},
    {"decoder_sparse_step", "", "1|-", true},
    {"mlp_only_layers", "", "-", true},
    {"*aux_loss*|*z_loss*|*router_logits*|*jitter*|*router_dtype*|*capacity*|ep_size|expert_"
     "parallel*|*experts_implementation*|expert_model*",
     "*", "", true},
    {"moe_*|*expert*|*router*|*topk*|*top_k_group*|*gating*|*scoring*", "", "1|-", true},
    /* what changes nothing: sizes, which are read; */
    {"num_hidden_layers|hidden_size|intermediate_size|num_attention_heads|num_key_value_heads|"
     "vocab_size|max_position_embeddings|num_nextn_predict_layers|*mtp*|*padded_vocab*|original_"
     "vocab_size|max_sequence_length|max_seq_len*|max_model_len|*max_length|seq_len|seq_length|"
     "initial_context_length|context_length|n_ctx|n_positions|original_max_position*",
     "*", "", false},
    /* tokens, classes, names and places; */
    {"*token_id|*token_ids|*_token_index|bos_token|eos_token|pad_token|unk_token|sep_token|"
     "cls_token|mask_token|*_start_token|*_end_token|model_type|architectures|auto_map|id2label|"
     "label2id|num_labels|classifier_*|problem_type|task_specific_params|finetuning_task|"
     "custom_pipelines|prefix|tokenizer_*|*chat_template*|special_tokens*|generation_config|"
     "text_config|is_*_config|is_decoder|tie_encoder_decoder|language|languages",
     "*", "", false},
    {"_*|transformers_version|torch_version|unsloth_version|model_version|config_version|version|"
     "*dtype*|*name_or_path*|name|model_name|tokenizer_name|dataset_name|run_name|project_name|"
     "*class_name|*_path|*commit_hash|url|*_url|date|*_date|*license*|*author*|*description*|"
     "comment*|tags|base_model*|model_id|repo_id|dataset*|*processor*",
     "*", "", false},
    /* training; */
    {"*dropout*|*pdrop*|*_drop|*drop_path*|*initializer*|*init_std|*_init_value|init_*|*gradient*|*"
     "checkpoint*|neftune*|peft_*|lora_config|*training*|train_*|*finetune*|*optimizer*|learning_"
     "rate*|*batch_size*|*loss*|seq_aux|seed|wandb*|*_noise",
     "*", "", false},
    /* how other programs compute and store it; */
    {"use_cache*|cache_implementation|*_cache_dtype|chunk_size_feed_forward|use_bfloat16|*fused*|"
     "fuse_*|*flash*|attn_implementation|use_*_kernel*|*tensor_parallel*|*sequence_parallel*|*"
     "tp_plan|*_tp|torchscript|tf_*|onnx*|transformers.js_config|quantiz*|compression_config|"
     "*gguf*|*unsloth*|*mergekit*|*megatron*|*deepspeed*|*vllm*|*sglang*|*sagemaker*|eagle_*|*"
     "speculat*|save_*|*_backend",
     "*", "", false},
    {"return_dict*|output_attentions|output_hidden_states|output_scores|output_past|"
     "use_return_dict",
     "*", "", false},
    /* and sampling, as configurations had it once */
    {"do_sample|temperature|top_k|top_p|typical_p|repetition_penalty|length_penalty|diversity_"
     "penalty|*no_repeat_ngram_size|num_beams|num_beam_groups|early_stopping|num_return_sequences|"
     "min_length|bad_words_ids|remove_invalid_values|exponential_decay_length_penalty|*suppress_"
     "tokens|forced_*",
     "*", "", false},
    {"*", "", "-", false},
};

static const struct rule rope_rules[] = {
    {"rope_type|type|rope_theta", "*", "", false},
    {"factor", "linear|llama3|yarn", "1|-", false},
    {"low_freq_factor|high_freq_factor", "llama3", "-", false},
    {"beta_fast|beta_slow|mscale|mscale_all_dim|attention_factor|truncate", "yarn", "1|-", false},
    {"original_max_position_embeddings|max_position_embeddings|finetuned", "*", "",
     false}, /* a factor says what they would */
    {"attn_factor|extrapolation_factor|partial_rotary_factor", "", "1|-", false},
    {"*", "", "-", false},
};

static const struct rule gguf_rules[] = {
    {"rope.freq_base|rope.dimension_count|rope.scale_linear|rope.scaling.type|rope.scaling.factor|"
     "rope.scaling.original_context_length",
     "*", "", false},
    {"rope.scaling.attn_factor|rope.scaling.yarn_attn_factor|rope.scaling.yarn_beta_fast|rope."
     "scaling.yarn_beta_slow|rope.scaling.finetuned",
     "*", "", false},
    {"rope.scaling.yarn_log_multiplier", "", "-", false},
    {"rope.scaling.yarn_ext_factor", "", "1|-1|-", false},
    {"rope.scaling.*|rope.freq_scale*|rope.scale*|rope.freq_base_*|rope.dimension_count_*|rope.*",
     "", "1|-", false},
    {"attention.layer_norm_rms_epsilon|attention.head_count|attention.head_count_kv|attention.key_"
     "length|attention.value_length",
     "*", "", false},
    {"attention.scale", "", "-", false},
    {"attention.causal", "", "true", false},
    {"attention.layer_norm_epsilon", "", "@eps|-", false},
    {"attention.group_norm_*|attention.dropout*", "*", "", false},
    {"attention.*scale*", "", "1|-", false},
    {"attention.*", "", "-", false},
    {"*logit_scale*|*embedding_scale*|*residual_scale*|*router_scale*|embedding_length_*", "",
     "1|-", false},
    {"*softcap*|*clamp*|*swiglu_limit*|use_parallel_residual|*parallel_residual*|*window*|*causal*|"
     "*alibi*|full_attention_interval",
     "", "-", false},
    {"*activation|hidden_act*", "", "silu|swish|swiglu|-", false},
    {"ssm.*|wkv*|token_shift*|shortconv.*|*altup*|*hyper_connection*|*n_deepstack*|*per_layer*|"
     "interleave_moe_*|decoder_*|*swin_norm*",
     "", "-", false},
    {"expert_count", "", "-", false},
    {"expert_used_count|expert_feed_forward_length|expert_weights_norm|expert_gating_func|expert_"
     "weights_scale",
     "", "", true},
    {"expert_group_count|expert_group_used_count", "", "1|-", true},
    {"expert_shared_count|leading_dense_block_count", "", "-", true},
    {"moe_every_n_layers", "", "1|-", true},
    {"expert*|moe_*", "", "1|-", true},
    {"nextn_predict_layers", "", "-", false},
    {"block_count|context_length|embedding_length|feed_forward_length|vocab_size|tensor_data_"
     "layout|pooling_type|training.*",
     "*", "", false},
    {"*", "", "-", false},
};

static const struct rules {
    const struct rule *v;
    int n;
} of_hf = {hf_rules, BASE_COUNT_OF(hf_rules)}, of_rope = {rope_rules, BASE_COUNT_OF(rope_rules)},
  of_gguf = {gguf_rules, BASE_COUNT_OF(gguf_rules)};

/* Is it the number that word, "@layers", stands for? */
static bool is_read(const struct text_key_value *v, const char *word, size_t n,
                    const struct arch_cfg *c)
{
    const struct {
        const char *word;
        double is;
    } row[] = {{"@head", c->d_head},  {"@layers", c->n_layer}, {"@heads", c->n_head},
               {"@kv", c->n_head_kv}, {"@model", c->d_model},  {"@ff", c->d_ff}};
    if (n == 4 && memcmp(word, "@eps", 4) == 0) return (float)v->f == c->norm_eps;
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (n == strlen(row[i].word) && memcmp(word, row[i].word, n) == 0) return v->f == row[i].is;
    return false;
}

static bool is_neutral(const struct text_key_value *v, const char *list, const struct arch_cfg *c)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, "|");
        if (*p == '@' && is_read(v, p, n, c)) return true;
        p += n + (p[n] == '|');
    }
    return text_key_neutral(v, list);
}

/* Is key something that would be passed over, though it matters? own: what the architecture obeys;
 * rope: the type of its position embedding. */
static bool matters(const struct rules *all, const char *key, const char *rope,
                    const struct text_key_value *v, const struct arch_cfg *c, const char *own)
{
    if (text_key_fits(own, key)) return false;
    for (int i = 0; i < all->n; i++) {
        const struct rule *r = &all->v[i];
        if (!text_key_fits(r->names, key)) continue;
        if (r->moe && !c->n_expert) return false;
        return !(strcmp(r->by, "*") == 0 || text_key_fits(r->by, rope)) &&
               !is_neutral(v, r->neutral, c);
    }
    return false;
}

/* Does a row name key, other than the last, which names all? */
static bool is_named(const struct rules *all, const char *key)
{
    for (int i = 0; i + 1 < all->n; i++)
        if (text_key_fits(all->v[i].names, key)) return true;
    return false;
}

sl_status arch_keys_hf(const struct json *config, const struct arch_cfg *c, sl_err *err)
{
    for (const struct json *k = config->child; k; k = k->next) {
        struct text_key_value v = text_key_value(k);
        if (!matters(&of_hf, k->key, "", &v, c, c->row->hf_keys)) continue;
        if (!is_named(&of_hf, k->key))
            return SL_FAIL(err, UNSUPPORTED,
                           "%.60s is %s: this key is not known and could change what %s computes: "
                           "take it out if it does not",
                           k->key, v.text, c->arch);
        return SL_FAIL(err, UNSUPPORTED,
                       "%.60s is %s, which changes what %s computes and is not supported", k->key,
                       v.text, c->arch);
    }
    return SL_OK;
}

sl_status arch_keys_rope(const struct json *rope, const char *name, const char *type,
                         const struct arch_cfg *c, sl_err *err)
{
    for (const struct json *k = rope ? rope->child : NULL; k; k = k->next) {
        struct text_key_value v = text_key_value(k);
        if (matters(&of_rope, k->key, type, &v, c, c->row->hf_keys))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: %.60s is %s, which is not supported with rope_type '%.20s'", name,
                           k->key, v.text, type);
    }
    return SL_OK;
}

sl_status arch_keys_nested(const struct json *o, const char *name, const char *names, sl_err *err)
{
    const struct json *in = text_json_get(o, name);
    if (!in || in->kind == JSON_NULL_K) return SL_OK;
    if (in->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s is not an object", name);
    for (const struct json *k = in->child; k; k = k->next) {
        struct text_key_value v = text_key_value(k);
        if (!text_key_fits(names, k->key) && !text_key_neutral(&v, "-"))
            return SL_FAIL(err, UNSUPPORTED, "%s: %.60s is %s, which is not supported", name,
                           k->key, v.text);
    }
    return SL_OK;
}

sl_status arch_keys_gguf(const io_model *m, const struct arch_cfg *c, sl_err *err)
{
    const char *arch = NULL;
    uint64_t n = 0;
    SL_TRY(io_meta_str(m, "general.architecture", &arch, &n, err));
    for (int i = 0; i < io_n_meta(m); i++) {
        const char *key = io_meta_key(m, i);
        if (strncmp(key, arch, n) != 0 || key[n] != '.') continue;
        struct text_key_value v = io_meta_value(m, key);
        if (matters(&of_gguf, key + n + 1, "", &v, c, c->row->gguf_keys))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: %.80s is %s, which changes what %s computes and is not supported",
                           io_path(m), key, v.text, c->arch);
    }
    return SL_OK;
}
