/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that change what a model computes: obeyed, at the value that changes nothing, or refused by
 * name. One list for config.json, one for its rope objects, one for GGUF. Whatever no row names is
 * taken to change nothing (dropout, initialisers, token ids, names). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arch/arch_internal.h"

/* What the architecture's row says that it obeys is obeyed; of the others the first row whose names
 * fit decides. names: "|"-separated, * stands for any bytes. by: "*" = all obey it, "" = nothing
 * else does (in a rope object: the types of rope that do). neutral: values that change nothing, in
 * addition to null, false, 0, [], {} and empty strings where the row has "-" among them; @head
 * stands for the width of a head. moe: of interest only where there are experts. */
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
    {"qk_rope_head_dim|qk_nope_head_dim|q_lora_rank|kv_lora_rank", "", "-", false},
    {"v_head_dim", "", "-|@head", false},
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
    {"attention.layer_norm_epsilon|attention.group_norm_*|attention.dropout*", "*", "", false},
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
};

static const struct rules {
    const struct rule *v;
    int n;
} of_hf = {hf_rules, BASE_COUNT_OF(hf_rules)}, of_rope = {rope_rules, BASE_COUNT_OF(rope_rules)},
  of_gguf = {gguf_rules, BASE_COUNT_OF(gguf_rules)};

/* Does name fit one of patterns? */
static bool fits_one(const char *p, size_t n_p, const char *name)
{
    const char *end = p + n_p, *star = NULL, *back = NULL;
    while (*name) {
        if (p < end && *p == '*') {
            star = ++p;
            back = name;
        } else if (p < end && *p == *name) {
            p++;
            name++;
        } else if (star) {
            p = star;
            name = ++back;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

static bool fits(const char *patterns, const char *name)
{
    for (const char *p = patterns ? patterns : ""; *p;) {
        size_t n = strcspn(p, "|");
        if (fits_one(p, n, name)) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

/* A value as the lists spell it. */
struct value {
    char text[64];
    bool empty; /* null, false, 0, nothing in it */
};

static bool is_neutral(const struct value *v, const char *list, int d_head)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, "|");
        char head[16];
        snprintf(head, sizeof head, "%d", d_head);
        if (n == 1 && *p == '-' && v->empty) return true;
        if (n == 5 && strncmp(p, "@head", 5) == 0 && strcmp(v->text, head) == 0) return true;
        if (strlen(v->text) == n && strncasecmp(v->text, p, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

/* Is key something that would be passed over, though it matters? own: what the architecture obeys;
 * rope: the type of its position embedding. */
static bool matters(const struct rules *all, const char *key, const char *rope,
                    const struct value *v, const struct arch_cfg *c, const char *own)
{
    if (fits(own, key)) return false;
    for (int i = 0; i < all->n; i++) {
        const struct rule *r = &all->v[i];
        if (!fits(r->names, key) || (r->moe && !c->n_expert)) continue;
        return !(strcmp(r->by, "*") == 0 || fits(r->by, rope)) &&
               !is_neutral(v, r->neutral, c->d_head);
    }
    return false;
}

static struct value of_json(const struct json *v)
{
    struct value o = {.text = "null", .empty = true};
    switch (v->kind) {
    case JSON_NULL_K:
        break;
    case JSON_BOOL_K:
        snprintf(o.text, sizeof o.text, "%s", v->b ? "true" : "false");
        o.empty = !v->b;
        break;
    case JSON_INT_K:
    case JSON_REAL_K:
        snprintf(o.text, sizeof o.text, "%.9g", v->f);
        o.empty = v->f == 0;
        break;
    case JSON_STR_K:
        snprintf(o.text, sizeof o.text, "%.60s", v->s);
        o.empty = v->n == 0;
        break;
    default:
        snprintf(o.text, sizeof o.text,
                 v->kind == JSON_ARRAY_K ? v->n ? "[...]" : "[]"
                 : v->n                  ? "{...}"
                                         : "{}");
        o.empty = v->n == 0;
    }
    return o;
}

sl_status arch_keys_hf(const struct json *config, const struct arch_cfg *c, sl_err *err)
{
    for (const struct json *k = config->child; k; k = k->next) {
        struct value v = of_json(k);
        if (matters(&of_hf, k->key, "", &v, c, c->row->hf_keys))
            return SL_FAIL(err, UNSUPPORTED,
                           "%.60s is %s, which changes what %s computes and is not supported",
                           k->key, v.text, c->arch);
    }
    return SL_OK;
}

sl_status arch_keys_rope(const struct json *rope, const char *name, const char *type,
                         const struct arch_cfg *c, sl_err *err)
{
    for (const struct json *k = rope ? rope->child : NULL; k; k = k->next) {
        struct value v = of_json(k);
        if (matters(&of_rope, k->key, type, &v, c, c->row->hf_keys))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: %.60s is %s, which is not supported with rope_type '%.20s'", name,
                           k->key, v.text, type);
    }
    return SL_OK;
}

/* Arrays of numbers are empty where all of them are 0, as the sections of a rope that has none. */
static struct value of_meta(const io_model *m, const char *key)
{
    struct value o = {.text = "[...]"};
    struct io_array a;
    const char *s = NULL;
    uint64_t n = 0;
    double f = 0;
    bool b = false;
    if (io_meta_bool(m, key, &b, NULL) == SL_OK) {
        snprintf(o.text, sizeof o.text, "%s", b ? "true" : "false");
        o.empty = !b;
    } else if (io_meta_f64(m, key, &f, NULL) == SL_OK) {
        snprintf(o.text, sizeof o.text, "%.7g", f);
        o.empty = f == 0;
    } else if (io_meta_str(m, key, &s, &n, NULL) == SL_OK) {
        snprintf(o.text, sizeof o.text, "%.*s", (int)BASE_MIN(n, 60), s);
        o.empty = n == 0;
    } else if (io_meta_array(m, key, &a, NULL) == SL_OK) {
        o.empty = a.type != IO_STR || a.n == 0;
        for (uint64_t i = 0; i < a.n && o.empty; i++) {
            int64_t v = 0;
            o.empty = (io_array_f64(&a, i, &f) && f == 0) || (io_array_i64(&a, i, &v) && v == 0);
        }
    }
    return o;
}

sl_status arch_keys_gguf(const io_model *m, const struct arch_cfg *c, sl_err *err)
{
    const char *arch = NULL;
    uint64_t n = 0;
    SL_TRY(io_meta_str(m, "general.architecture", &arch, &n, err));
    for (int i = 0; i < io_n_meta(m); i++) {
        const char *key = io_meta_key(m, i);
        if (strncmp(key, arch, n) != 0 || key[n] != '.') continue;
        struct value v = of_meta(m, key);
        if (matters(&of_gguf, key + n + 1, "", &v, c, c->row->gguf_keys))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: %.80s is %s, which changes what %s computes and is not supported",
                           io_path(m), key, v.text, c->arch);
    }
    return SL_OK;
}
