/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters from config.json, in both spellings: rope_theta and rope_scaling at top level, or
 * rope_parameters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch_internal.h"

/* The first of names that is present and not null; *name its spelling for messages. */
static const struct json *find(const struct json *o, const char *names, char *name, size_t n_name)
{
    const struct json *v = NULL;
    for (const char *p = names; *p && !v;) {
        size_t len = strcspn(p, "|");
        snprintf(name, n_name, "%.*s", (int)len, p);
        v = text_json_get(o, name);
        if (v && v->kind == JSON_NULL_K) v = NULL;
        p += len + (p[len] == '|');
    }
    if (!v) snprintf(name, n_name, "%.*s", (int)strcspn(names, "|"), names);
    return v;
}

static bool same_value(const struct json *a, const struct json *b)
{
    bool num_a = a->kind == JSON_INT_K || a->kind == JSON_REAL_K,
         num_b = b && (b->kind == JSON_INT_K || b->kind == JSON_REAL_K);
    if (!b) return a->kind == JSON_NULL_K;
    if (num_a && num_b) return a->f == b->f;
    if (a->kind != b->kind) return false;
    if (a->kind == JSON_BOOL_K) return a->b == b->b;
    return a->kind != JSON_STR_K || strcmp(a->s, b->s) == 0;
}

sl_status arch_hf_int(const struct json *o, const char *names, struct arch_range in, int *out,
                      sl_err *err)
{
    char name[64];
    const struct json *v = find(o, names, name, sizeof name);
    if (!v && in.def >= in.lo) {
        *out = (int)in.def;
        return SL_OK;
    }
    if (!v) return SL_FAIL(err, FORMAT, "%s is missing", name);
    int64_t i = v->i;
    if (v->kind == JSON_REAL_K && v->f == floor(v->f) && fabs(v->f) < 1e15)
        i = (int64_t)v->f;
    else if (v->kind != JSON_INT_K)
        return SL_FAIL(err, FORMAT, "%s is not an integer", name);
    if ((double)i < in.lo || (double)i > in.hi)
        return SL_FAIL(err, FORMAT, "%s is %lld, not in %lld .. %lld", name, (long long)i,
                       (long long)in.lo, (long long)in.hi);
    *out = (int)i;
    return SL_OK;
}

sl_status arch_hf_alias(const struct json *o, const char *names, struct arch_range in, int *out,
                        sl_err *err)
{
    char name[64];
    const struct json *v = find(o, names, name, sizeof name);
    for (const char *p = names; v && *p;) {
        size_t len = strcspn(p, "|");
        snprintf(name, sizeof name, "%.*s", (int)len, p);
        const struct json *w = text_json_get(o, name);
        if (w && w->kind != JSON_NULL_K && !same_value(v, w))
            return SL_FAIL(err, FORMAT, "%s and %s differ, which mean the same", v->key, name);
        p += len + (p[len] == '|');
    }
    return arch_hf_int(o, names, in, out, err);
}

sl_status arch_hf_real(const struct json *o, const char *names, struct arch_range in, double *out,
                       sl_err *err)
{
    char name[64];
    const struct json *v = find(o, names, name, sizeof name);
    if (!v && in.def >= in.lo) {
        *out = in.def;
        return SL_OK;
    }
    if (!v) return SL_FAIL(err, FORMAT, "%s is missing", name);
    if (v->kind != JSON_REAL_K && v->kind != JSON_INT_K)
        return SL_FAIL(err, FORMAT, "%s is not a number", name);
    if (!(v->f >= in.lo && v->f <= in.hi))
        return SL_FAIL(err, FORMAT, "%s is %g, not in %g .. %g", name, v->f, in.lo, in.hi);
    *out = v->f;
    return SL_OK;
}

static bool is_null(const struct json *o, const char *key)
{
    const struct json *v = text_json_get(o, key);
    return v && v->kind == JSON_NULL_K;
}

/* A number that transformers has no value for either where a file says null. */
static sl_status not_null(const struct json *o, const char *key, sl_err *err)
{
    return is_null(o, key) ? SL_FAIL(err, FORMAT, "%s is null", key) : SL_OK;
}

sl_status arch_hf_bool(const struct json *o, const char *key, bool def, bool *out, sl_err *err)
{
    return text_json_bool(o, key, is_null(o, key) ? false : def, out, err);
}

/* Another name of it is refused where the usual one is missing; beside it, it is a leftover. */
static sl_status norm_eps(const struct json *o, double def, double *eps, sl_err *err)
{
    static const char other[] = "norm_eps|layer_norm_eps|layer_norm_epsilon|layernorm_epsilon|norm_"
                                "epsilon|rms_norm_epsilon";
    char name[64];
    SL_TRY(not_null(o, "rms_norm_eps", err));
    if (!find(o, "rms_norm_eps", name, sizeof name) && find(o, other, name, sizeof name))
        return SL_FAIL(err, UNSUPPORTED, "%s is there, rms_norm_eps is not", name);
    return arch_hf_real(o, "rms_norm_eps", ARCH_RANGE(def, 0, 1), eps, err);
}

sl_status arch_hf_common(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    double eps = c->row->unsaid.eps;
    int d_head = c->row->unsaid.d_head;
    const char *act = NULL;
    bool mlp_bias = false;
    SL_TRY(arch_hf_int(o, "num_hidden_layers", ARCH_RANGE(-1, 1, 1024), &c->n_layer, err));
    SL_TRY(arch_hf_int(o, "hidden_size", ARCH_RANGE(-1, 8, 1 << 20), &c->d_model, err));
    SL_TRY(arch_hf_int(o, "intermediate_size", ARCH_RANGE(0, 0, 1 << 22), &c->d_ff, err));
    SL_TRY(arch_hf_int(o, "num_attention_heads", ARCH_RANGE(-1, 1, 4096), &c->n_head, err));
    SL_TRY(
        arch_hf_int(o, "num_key_value_heads", ARCH_RANGE(c->n_head, 1, 4096), &c->n_head_kv, err));
    SL_TRY(arch_hf_int(o, "max_position_embeddings", ARCH_RANGE(2048, 1, 1 << 28), &c->n_ctx_train,
                       err));
    SL_TRY(arch_hf_int(o, "vocab_size", ARCH_RANGE(-1, 1, 1 << 28), &c->n_vocab, err));
    SL_TRY(arch_hf_int(o,
                       c->row->mtp_apart ? "mtp_num_hidden_layers|num_nextn_predict_layers"
                                         : "num_nextn_predict_layers",
                       ARCH_RANGE(c->n_mtp, 0, 16), &c->n_mtp, err));
    SL_TRY(norm_eps(o, eps > 0 ? eps : 1e-6, &eps, err));
    c->norm_eps = (float)eps;
    if (!d_head) d_head = c->d_model / c->n_head;
    SL_TRY(arch_hf_int(o, c->row->unrotated ? "" : "head_dim", ARCH_RANGE(d_head, 1, 65536),
                       &c->d_head, err));
    SL_TRY(arch_hf_bool(o, "tie_word_embeddings", c->row->unsaid.tied, &c->tied_head, err));
    SL_TRY(arch_hf_bool(o, "mlp_bias", false, &mlp_bias, err));
    SL_TRY(text_json_str(o, "hidden_act", "silu", &act, err));
    bool other = c->row->act && strcmp(act, c->row->act) == 0;
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0 && !other)
        return SL_FAIL(err, UNSUPPORTED, "hidden_act '%.40s' is not supported (silu)", act);
    if (mlp_bias) return SL_FAIL(err, UNSUPPORTED, "mlp_bias is not supported");
    c->attn_scale = 1.0 / sqrt((double)c->d_head);
    c->n_rot = c->d_head;
    c->rope_factor = 1.0;
    return SL_OK;
}

static sl_status yarn(const struct json *s, struct arch_cfg *c, sl_err *err)
{
    double mscale = 0, all = 0, attn = -1;
    c->rope_kind = ARCH_ROPE_YARN;
    bool truncate = true;
    SL_TRY(arch_hf_real(s, "beta_fast", ARCH_RANGE(32.0, 0, 1e6), &c->yarn_beta_fast, err));
    SL_TRY(arch_hf_real(s, "beta_slow", ARCH_RANGE(1.0, 0, 1e6), &c->yarn_beta_slow, err));
    if (c->yarn_beta_fast == 0) c->yarn_beta_fast = 32; /* as transformers reads it */
    if (c->yarn_beta_slow == 0) c->yarn_beta_slow = 1;
    SL_TRY(arch_hf_bool(s, "truncate", true, &truncate, err));
    c->yarn_real = !truncate;
    SL_TRY(arch_hf_real(s, "mscale", ARCH_RANGE(0, 0, 1e3), &mscale, err));
    SL_TRY(arch_hf_real(s, "mscale_all_dim", ARCH_RANGE(0, 0, 1e3), &all, err));
    SL_TRY(arch_hf_real(s, "attention_factor", ARCH_RANGE(-1, -1, 1e3), &attn, err));
    double lf = c->rope_factor > 1 ? log(c->rope_factor) : 0;
    if (attn >= 0)
        c->yarn_mscale = attn;
    else if (mscale > 0 && all > 0)
        c->yarn_mscale = (0.1 * mscale * lf + 1) / (0.1 * all * lf + 1);
    else
        c->yarn_mscale = 0.1 * lf + 1;
    if (c->kv_lora && all > 0) { /* DeepSeek: the softmax scale too */
        double f = 0.1 * all * lf + 1;
        c->attn_scale *= f * f;
    }
    return SL_OK;
}

/* The member that is an object with something in it; NULL = none. */
static sl_status object_in(const struct json *o, const char *name, const struct json **out,
                             sl_err *err)
{
    const struct json *s = text_json_get(o, name);
    *out = NULL;
    if (!s || s->kind == JSON_NULL_K) return SL_OK;
    if (s->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s is not an object", name);
    if (s->n) *out = s;
    return SL_OK;
}

/* Both spellings at once, by a tool that changed one of them: only where they say the same. */
static sl_status one_rope(const struct json *old, const struct json *new, sl_err *err)
{
    for (const struct json *k = old ? old->child : NULL; k && new; k = k->next) {
        const struct json *v = text_json_get(new, k->key);
        if (!v && strcmp(k->key, "type") == 0) v = text_json_get(new, "rope_type");
        if (!same_value(k, v))
            return SL_FAIL(
                err, UNSUPPORTED,
                "rope_scaling and rope_parameters differ in %.40s: which of them holds is not said",
                k->key);
    }
    return SL_OK;
}

sl_status arch_hf_rope(const struct json *o, int n_rot, struct arch_cfg *c, sl_err *err)
{
    const struct json *s = NULL, *old = NULL;
    SL_TRY(object_in(o, "rope_parameters", &s, err));
    SL_TRY(object_in(o, "rope_scaling", &old, err));
    SL_TRY(one_rope(old, s, err));
    return arch_hf_rope_of(o, s ? s : old, s ? "rope_parameters" : "rope_scaling", n_rot, c, err);
}

sl_status arch_hf_rope_of(const struct json *o, const struct json *s, const char *name, int n_rot,
                          struct arch_cfg *c, sl_err *err)
{
    const char *type = NULL;
    SL_TRY(not_null(o, "rope_theta", err));
    SL_TRY(not_null(s, "rope_theta", err));
    double top = c->row->unsaid.theta > 0 ? c->row->unsaid.theta : 10000.0;
    SL_TRY(arch_hf_real(o, "rope_theta", ARCH_RANGE(top, 1.0, 1e12), &top, err));
    SL_TRY(arch_hf_real(s, "rope_theta", ARCH_RANGE(top, 1.0, 1e12), &c->rope_theta, err));
    c->n_rot = n_rot;
    SL_TRY(text_json_str(s, "rope_type", NULL, &type, err));
    if (!type) SL_TRY(text_json_str(s, "type", "default", &type, err));
    if (strcmp(type, "default") == 0) return arch_keys_rope(s, name, type, c, err);
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0 && strcmp(type, "yarn") != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "rope_type '%.40s' is not supported (default, linear, llama3, yarn)", type);
    double orig_top = 0;
    SL_TRY(arch_hf_real(s, "factor", ARCH_RANGE(-1, 1e-3, 1e6), &c->rope_factor, err));
    SL_TRY(arch_hf_real(o, "original_max_position_embeddings", ARCH_RANGE(c->n_ctx_train, 1, 1e9),
                        &orig_top, err));
    SL_TRY(arch_hf_real(s, "original_max_position_embeddings", ARCH_RANGE(orig_top, 1, 1e9),
                        &c->rope_orig_ctx, err));
    if (strcmp(type, "linear") != 0 && orig_top != c->rope_orig_ctx &&
        text_json_get(o, "original_max_position_embeddings"))
        return SL_FAIL(err, UNSUPPORTED,
                       "original_max_position_embeddings is %g, and %g in %s: which of them holds "
                       "is not said",
                       orig_top, c->rope_orig_ctx, name);
    if (strcmp(type, "linear") == 0) {
        c->rope_kind = ARCH_ROPE_LINEAR;
    } else if (strcmp(type, "llama3") == 0) {
        c->rope_kind = ARCH_ROPE_LLAMA3;
        SL_TRY(
            arch_hf_real(s, "low_freq_factor", ARCH_RANGE(-1, 1e-3, 1e6), &c->rope_low_freq, err));
        SL_TRY(arch_hf_real(s, "high_freq_factor", ARCH_RANGE(-1, 1e-3, 1e6), &c->rope_high_freq,
                            err));
    } else {
        SL_TRY(yarn(s, c, err));
    }
    return arch_keys_rope(s, name, type, c, err);
}

sl_status arch_hf_n_rot(const struct json *o, double def, const struct arch_cfg *c, int *n_rot,
                        sl_err *err)
{
    double part = is_null(o, "partial_rotary_factor") ? 1 : def; /* as in transformers */
    SL_TRY(arch_hf_real(o, "partial_rotary_factor", ARCH_RANGE(part, 1e-6, 1), &part, err));
    SL_TRY(arch_hf_real(text_json_get(o, "rope_parameters"), "partial_rotary_factor",
                        ARCH_RANGE(part, 1e-6, 1), &part, err));
    *n_rot = (int)(c->d_head * part);
    return SL_OK;
}

sl_status arch_hf_attn_bias(const struct json *o, bool o_bias, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &c->attn_bias, err));
    c->o_bias = o_bias && c->attn_bias;
    return SL_OK;
}

sl_status arch_hf_types(const struct json *o, const char *other, const struct arch_cfg *c,
                        const struct json **first, sl_err *err)
{
    const struct json *list = text_json_get(o, "layer_types");
    int i = 0;
    *first = NULL;
    if (!list || list->kind == JSON_NULL_K) return SL_OK;
    if (list->kind != JSON_ARRAY_K) return SL_FAIL(err, FORMAT, "layer_types is not an array");
    if (list->n != (size_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "layer_types has %lld entries for %d layers",
                       (long long)list->n, c->n_layer);
    for (const struct json *v = list->child; v; v = v->next, i++)
        if (!text_json_is(v, other) && !text_json_is(v, "full_attention"))
            return SL_FAIL(err, UNSUPPORTED,
                           "layer_types[%d] is %.40s: full_attention and %s are supported", i,
                           v->kind == JSON_STR_K ? v->s : text_json_kind_text(v->kind), other);
    *first = list->child;
    return SL_OK;
}

sl_status arch_hf_layer_types(const struct json *o, bool by_layer, struct arch_cfg *c, sl_err *err)
{
    const struct json *v = NULL;
    SL_TRY(arch_hf_types(o, "sliding_attention", c, &v, err));
    for (int i = 0; v; v = v->next, i++) {
        bool slides = text_json_is(v, "sliding_attention");
        if (slides && !c->n_window)
            return SL_FAIL(err, UNSUPPORTED,
                           "layer_types[%d] is sliding_attention, but there is no sliding window",
                           i);
        if (by_layer)
            c->layer[i].n_window = slides ? c->n_window : 0;
        else if (c->n_window && !slides)
            return SL_FAIL(err, UNSUPPORTED,
                           "layer_types[%d] is full_attention, but all layers of this architecture "
                           "have the window",
                           i);
    }
    return SL_OK;
}

sl_status arch_hf_window(const struct json *o, int def, bool by_layer, struct arch_cfg *c,
                         sl_err *err)
{
    const struct json *v = text_json_get(o, "sliding_window");
    int from = 0;
    SL_TRY(arch_hf_int(o, "sliding_window",
                       ARCH_RANGE(v && v->kind == JSON_NULL_K ? 0 : def, 0, 1 << 28), &c->n_window,
                       err));
    if (by_layer) SL_TRY(arch_hf_int(o, "max_window_layers", ARCH_RANGE(28, 0, 1024), &from, err));
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        c->layer[i].n_window = i >= from ? c->n_window : 0;
    return arch_hf_layer_types(o, by_layer, c, err);
}

sl_status arch_hf_dual_chunk(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *d = NULL;
    int chunk = 0, local = 0, train = 0;
    SL_TRY(object_in(o, "dual_chunk_attention_config", &d, err));
    if (!d) return SL_OK;
    SL_TRY(arch_hf_int(d, "chunk_size", ARCH_RANGE(8192, 2, 1 << 28), &chunk, err));
    SL_TRY(arch_hf_int(d, "local_size", ARCH_RANGE(1024, 0, chunk - 1), &local, err));
    SL_TRY(arch_hf_int(d, "original_max_position_embeddings", ARCH_RANGE(0, 0, 1 << 28), &train,
                       err));
    c->n_ctx_train = BASE_MIN(c->n_ctx_train, chunk - local);
    if (train) c->n_ctx_train = BASE_MIN(c->n_ctx_train, train);
    return SL_OK;
}

sl_status arch_hf_latents(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_hf_int(o, "kv_lora_rank", ARCH_RANGE(-1, 1, 65536), &c->kv_lora, err));
    SL_TRY(arch_hf_int(o, "q_lora_rank", ARCH_RANGE(0, 0, 65536), &c->q_lora, err));
    SL_TRY(arch_hf_int(o, "qk_nope_head_dim", ARCH_RANGE(-1, 1, 65536), &c->d_nope, err));
    SL_TRY(arch_hf_int(o, "qk_rope_head_dim", ARCH_RANGE(-1, c->row->unrotated ? 0 : 2, 65536),
                       &c->d_rope, err));
    SL_TRY(arch_hf_int(o, "v_head_dim", ARCH_RANGE(-1, 1, 65536), &c->d_v, err));
    c->d_head = c->d_nope + c->d_rope;
    c->n_head_kv = c->n_head;
    c->attn_scale = 1.0 / sqrt((double)c->d_head);
    return SL_OK;
}

sl_status arch_hf_mla(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    bool interleave = true, bias = false;
    const struct json *types = NULL;
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &bias, err));
    if (bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias is not supported in MLA");
    if (c->n_index)
        SL_TRY(arch_hf_types(o, "indexed_attention", c, &types, err));
    else
        SL_TRY(arch_hf_layer_types(o, false, c, err));
    SL_TRY(arch_hf_latents(o, c, err));
    SL_TRY(arch_hf_bool(o, "rope_interleave", true, &interleave, err));
    c->rope_style = interleave ? ARCH_ROPE_PAIRS : ARCH_ROPE_HALF;
    return arch_hf_rope(o, c->d_rope, c, err);
}

/* A switch by either of its names; true where neither is there. */
static sl_status either(const struct json *o, const char *key, const char *other, bool *out,
                        sl_err *err)
{
    bool a = true, b = true, has = text_json_get(o, key), has_other = text_json_get(o, other);
    SL_TRY(arch_hf_bool(o, key, true, &a, err));
    SL_TRY(arch_hf_bool(o, other, true, &b, err));
    if (has && has_other && a != b)
        return SL_FAIL(err, FORMAT, "%s and %s differ, which mean the same", key, other);
    *out = has ? a : b;
    return SL_OK;
}

sl_status arch_hf_moe_v3(const struct json *o, const struct arch_moe_v3 *def, struct arch_cfg *c,
                         sl_err *err)
{
    double scale = 1;
    SL_TRY(arch_hf_alias(o, "n_routed_experts|num_experts|num_local_experts",
                         ARCH_RANGE(def->n_expert, 1, 4096), &c->n_expert, err));
    SL_TRY(arch_hf_int(o, "first_k_dense_replace", ARCH_RANGE(def->n_dense_lead, 0, 1024),
                       &c->n_dense_lead, err));
    for (int i = c->n_dense_lead; i < c->n_layer; i++)
        c->layer[i].ffn = ARCH_MOE;
    SL_TRY(arch_hf_alias(o, "num_experts_per_token|num_experts_per_tok",
                         ARCH_RANGE(def->n_used, 1, 64), &c->n_expert_used, err));
    SL_TRY(arch_hf_int(o, "moe_intermediate_size", ARCH_RANGE(def->d_ff_expert, 1, 1 << 22),
                       &c->d_ff_expert, err));
    SL_TRY(arch_hf_alias(o, "num_shared_experts|n_shared_experts", ARCH_RANGE(1, 0, 64),
                         &c->n_shared, err));
    SL_TRY(arch_hf_alias(o, "num_expert_group|n_group", ARCH_RANGE(def->n_group, 1, 4096),
                         &c->n_group, err));
    SL_TRY(arch_hf_int(o, "topk_group", ARCH_RANGE(def->n_group_used, 1, 4096), &c->n_group_used,
                       err));
    SL_TRY(arch_hf_real(o, "routed_scaling_factor", ARCH_RANGE(def->scale, 0, 1e6), &scale, err));
    c->route_scale = (float)scale;
    c->route_sigmoid = c->route_bias = true;
    return either(o, "moe_renormalize", "norm_topk_prob", &c->route_norm, err);
}

sl_status arch_hf_mlp_types(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *list = text_json_get(o, "mlp_layer_types");
    int i = 0;
    if (!list || list->kind == JSON_NULL_K) return SL_OK;
    if (list->kind != JSON_ARRAY_K || list->n != (size_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "mlp_layer_types is not a list of %d layers", c->n_layer);
    for (const struct json *v = list->child; v; v = v->next, i++) {
        bool moe = text_json_is(v, "sparse");
        if (!moe && !text_json_is(v, "dense"))
            return SL_FAIL(err, UNSUPPORTED, "mlp_layer_types[%d] is neither dense nor sparse", i);
        c->layer[i].ffn = moe ? ARCH_MOE : ARCH_DENSE;
    }
    return SL_OK;
}

sl_status arch_hf_must_be(const struct json *o, const char *key, const char *word, sl_err *err)
{
    const char *is = NULL;
    SL_TRY(text_json_str(o, key, word, &is, err));
    if (strcmp(is, word) == 0) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "%s '%.40s' is not supported (%s)", key, is, word);
}

sl_status arch_hf_switched_window(const struct json *o, bool by_layer, struct arch_cfg *c,
                                  sl_err *err)
{
    bool slides = false;
    SL_TRY(arch_hf_bool(o, "use_sliding_window", false, &slides, err));
    return slides ? arch_hf_window(o, 4096, by_layer, c, err)
                  : arch_hf_layer_types(o, by_layer, c, err);
}
