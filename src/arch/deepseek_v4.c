/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V4: several streams that every block reads and writes (hyper-connections); one head of
 * keys that are values too, of a window, and in most layers compressed entries of what is before
 * it, which in some of these an indexer chooses; an output by groups of heads; experts in every
 * layer, in the first ones chosen by the token's id. Folders have its makers' names and words, or
 * those of transformers. */
#include <math.h>
#include <string.h>

#include "arch/row.h"

#define FINE 4    /* tokens of an entry that an indexer chooses, where files say no kind */
#define HASHED 3  /* layers whose experts are chosen by the id, where a folder says nothing */
#define ROOT 4    /* expert_gating_func of sqrt(softplus) */
#define FINE_WORD "compressed_sparse_attention"
#define COARSE_WORD "heavily_compressed_attention"
#define WINDOW_WORD "sliding_attention"
#define LAYER_MAX (1024 + 16)
#define ENTRY_MOST 128 /* tokens of an entry; where they overlap half of them */

static void leave_mtp(struct arch_cfg *c)
{
    c->n_mtp_left += c->n_mtp;
    c->n_mtp = 0;
}

/* What no file says. */
static void set_fixed(struct arch_cfg *c)
{
    c->per_head = ARCH_BIT(SINKS);
    c->rope_style = ARCH_ROPE_PAIRS;
    c->index_rope = ARCH_ROPE_PAIRS;
    c->route_root = c->route_norm = c->route_bias = true;
    c->group_max = c->glu_all = true;
    c->unshared = "a residual stream that is several";
    for (int i = 0; i < c->n_layer + c->n_mtp; i++) {
        c->layer[i].mixer = ARCH_CKV;
        c->layer[i].ffn = ARCH_MOE;
        if (i >= c->n_layer) c->layer[i].n_window = c->n_window; /* and nothing but that */
    }
}

static sl_status check(const struct arch_cfg *c, sl_err *err)
{
    if (c->n_head_kv != 1)
        return SL_FAIL(err, UNSUPPORTED, "%d key heads: one is supported", c->n_head_kv);
    if (c->n_head % c->o_groups)
        return SL_FAIL(err, FORMAT, "%d groups of %d heads", c->o_groups, c->n_head);
    for (int i = 0; i < c->n_layer; i++) {
        const struct arch_layer *l = &c->layer[i], *k = l;
        int most = l->index == ARCH_INDEX_OWN ? ENTRY_MOST / 2 : ENTRY_MOST;
        if (l->ratio > most || (l->ratio && ENTRY_MOST % l->ratio))
            return SL_FAIL(err, UNSUPPORTED,
                           "layer %d has entries of %d tokens: powers of two up to %d are "
                           "supported",
                           i, l->ratio, most);
        while (k > c->layer && (!k->ratio || k->index != l->index || k == l))
            k--;
        if (l->ratio && k->ratio && k->index == l->index && k->ratio != l->ratio)
            return SL_FAIL(err, UNSUPPORTED,
                           "layers %d and %d have entries of %d and %d tokens: there are one of "
                           "each kind",
                           (int)(k - c->layer), i, k->ratio, l->ratio);
    }
    if (c->n_index && (c->d_index < c->n_rot || c->d_index % 8))
        return SL_FAIL(err, UNSUPPORTED,
                       "indexer heads of %d, of which %d are rotated: multiples of 8 that hold "
                       "these are supported",
                       c->d_index, c->n_rot);
    return SL_OK;
}

/* The indexer's numbers stay where some layer has one. */
static void settle_index(struct arch_cfg *c)
{
    int n = 0;
    for (int i = 0; i < c->n_layer; i++)
        n += c->layer[i].index == ARCH_INDEX_OWN;
    if (!n) c->n_index = c->d_index = c->index_top = 0;
}

static void set_layer(struct arch_cfg *c, int i, int ratio, bool fine)
{
    c->layer[i].ratio = ratio;
    c->layer[i].index = fine ? ARCH_INDEX_OWN : ARCH_INDEX_NONE;
}

/* ---- config.json ---- */

/* The list of that name; NULL = there is none. At least n entries: those of MTP layers may follow.
 */
static sl_status list_of(const struct json *o, const char *key, int n, const struct json **first,
                         sl_err *err)
{
    const struct json *list = text_json_get(o, key);
    *first = NULL;
    if (!list || list->kind == JSON_NULL_K) return SL_OK;
    if (list->kind != JSON_ARRAY_K || list->n < (size_t)n)
        return SL_FAIL(err, FORMAT, "%s is not a list of %d layers", key, n);
    *first = list->child;
    return SL_OK;
}

/* Tokens of an entry of either kind: compress_rates, or keys of their own before. */
static sl_status hf_rates(const struct json *o, int rate[2], sl_err *err)
{
    static const char *const word[2] = {FINE_WORD, COARSE_WORD},
                             *const old[2] = {"compress_rate_csa", "compress_rate_hca"};
    static const int usual[2] = {FINE, 128};
    const struct json *in = text_json_get(o, "compress_rates");
    if (in && in->kind != JSON_NULL_K && in->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "compress_rates is not an object");
    for (const struct json *k = in ? in->child : NULL; k; k = k->next)
        if (strcmp(k->key, word[0]) != 0 && strcmp(k->key, word[1]) != 0)
            return SL_FAIL(err, UNSUPPORTED, "compress_rates: %.60s is not known", k->key);
    for (int i = 0; i < 2; i++) {
        SL_TRY(arch_hf_int(in, word[i], ARCH_RANGE(usual[i], 1, 1 << 20), &rate[i], err));
        SL_TRY(arch_hf_int(o, old[i], ARCH_RANGE(rate[i], 1, 1 << 20), &rate[i], err));
    }
    return SL_OK;
}

/* By the words of transformers. */
static sl_status hf_words(const struct json *v, const int rate[2], struct arch_cfg *c, sl_err *err)
{
    for (int i = 0; i < c->n_layer; i++, v = v->next) {
        bool fine = text_json_is(v, FINE_WORD), coarse = text_json_is(v, COARSE_WORD);
        if (!fine && !coarse && !text_json_is(v, WINDOW_WORD))
            return SL_FAIL(err, UNSUPPORTED,
                           "layer_types[%d] is %.40s: " WINDOW_WORD ", " FINE_WORD
                           " and " COARSE_WORD " are supported",
                           i, v->kind == JSON_STR_K ? v->s : text_json_kind_text(v->kind));
        set_layer(c, i, fine ? rate[0] : coarse ? rate[1] : 0, fine);
    }
    return SL_OK;
}

/* By the numbers of its makers: which kind a layer is follows from its number. said: layers are
 * known. */
static sl_status hf_ratios(const struct json *v, const int rate[2], bool said, struct arch_cfg *c,
                           sl_err *err)
{
    for (int i = 0; i < c->n_layer; i++, v = v->next) {
        if (v->kind != JSON_INT_K || (v->i != 0 && v->i != rate[0] && v->i != rate[1]))
            return SL_FAIL(err, UNSUPPORTED, "compress_ratios[%d] is none of 0, %d and %d", i,
                           rate[0], rate[1]);
        if (said && v->i != c->layer[i].ratio)
            return SL_FAIL(err, FORMAT, "compress_ratios[%d] is %d, which layer_types says not", i,
                           (int)v->i);
        if (!said) set_layer(c, i, (int)v->i, v->i == rate[0]);
    }
    for (; v; v = v->next) /* of MTP layers, which have windows alone */
        if (v->kind != JSON_INT_K || v->i) leave_mtp(c);
    return SL_OK;
}

static sl_status hf_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *type = NULL, *ratio = NULL;
    int rate[2] = {0};
    SL_TRY(hf_rates(o, rate, err));
    SL_TRY(list_of(o, "layer_types", c->n_layer, &type, err));
    SL_TRY(list_of(o, "compress_ratios", c->n_layer, &ratio, err));
    for (int i = 0; i < c->n_layer; i++) { /* where none says it */
        bool fine = i > 1 && i % 2;
        set_layer(c, i, rate[!fine], fine);
    }
    if (type) SL_TRY(hf_words(type, rate, c, err));
    if (ratio) SL_TRY(hf_ratios(ratio, rate, type != NULL, c, err));
    SL_TRY(arch_hf_int(o, "sliding_window", ARCH_RANGE(128, 1, 1 << 20), &c->n_window, err));
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        c->layer[i].n_window = c->n_window;
    SL_TRY(arch_hf_int(o, "index_n_heads", ARCH_RANGE(64, 1, 4096), &c->n_index, err));
    SL_TRY(arch_hf_int(o, "index_head_dim", ARCH_RANGE(128, 1, 65536), &c->d_index, err));
    SL_TRY(arch_hf_int(o, "index_topk", ARCH_RANGE(512, 1, 1 << 28), &c->index_top, err));
    settle_index(c);
    return SL_OK;
}

/* Which layers choose experts by the token's id. */
static sl_status hf_hash(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *v = NULL;
    int n = 0;
    bool said = text_json_get(o, "num_hash_layers");
    SL_TRY(arch_hf_int(o, "num_hash_layers", ARCH_RANGE(HASHED, 0, 1024), &n, err));
    SL_TRY(list_of(o, "mlp_layer_types", c->n_layer, &v, err));
    for (int i = 0; i < c->n_layer; i++, v = v ? v->next : NULL) {
        bool hash = v ? text_json_is(v, "hash_moe") : i < n;
        if (v && !hash && !text_json_is(v, "moe"))
            return SL_FAIL(err, UNSUPPORTED, "mlp_layer_types[%d] is neither moe nor hash_moe", i);
        if (v && said && hash != (i < n))
            return SL_FAIL(err, FORMAT, "mlp_layer_types[%d] is not what num_hash_layers says", i);
        c->layer[i].hash = hash;
    }
    return SL_OK;
}

static sl_status hf_experts(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    double scale = 1, limit = 0;
    bool norm = true;
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sqrtsoftplus", err));
    SL_TRY(arch_hf_must_be(o, "topk_method", "noaux_tc", err));
    SL_TRY(arch_hf_bool(o, "norm_topk_prob", true, &norm, err));
    if (!norm) return SL_FAIL(err, UNSUPPORTED, "norm_topk_prob false is not supported");
    SL_TRY(arch_hf_alias(o, "n_routed_experts|num_local_experts|num_experts",
                         ARCH_RANGE(256, 1, 4096), &c->n_expert, err));
    SL_TRY(arch_hf_int(o, "num_experts_per_tok", ARCH_RANGE(6, 1, 64), &c->n_expert_used, err));
    SL_TRY(arch_hf_int(o, "n_shared_experts", ARCH_RANGE(1, 1, 1), &c->n_shared, err));
    SL_TRY(arch_hf_alias(o, "moe_intermediate_size|intermediate_size", ARCH_RANGE(2048, 1, 1 << 22),
                         &c->d_ff_expert, err));
    SL_TRY(arch_hf_real(o, "routed_scaling_factor", ARCH_RANGE(1.5, 0, 1e6), &scale, err));
    SL_TRY(arch_hf_real(o, "swiglu_limit", ARCH_RANGE(10.0, 0, 1e6), &limit, err));
    c->route_scale = (float)scale;
    c->glu.limit = (float)limit;
    return hf_hash(o, c, err);
}

/* The part of a head that is rotated, as either spelling says it. */
static sl_status hf_n_rot(const struct json *o, const struct json *const in[2],
                          const struct arch_cfg *c, int *out, sl_err *err)
{
    int n = 0;
    double part = 64.0 / 512, own = 0;
    SL_TRY(arch_hf_int(o, "qk_rope_head_dim", ARCH_RANGE(0, 0, 65536), &n, err));
    if (n) part = (double)n / c->d_head;
    SL_TRY(arch_hf_real(o, "partial_rotary_factor", ARCH_RANGE(part, 1e-6, 1), &part, err));
    for (int i = 0; i < 2; i++) {
        SL_TRY(arch_hf_real(in[i], "partial_rotary_factor", ARCH_RANGE(part, 1e-6, 1), &own, err));
        if (i == 0) part = own;
        if (own != part)
            return SL_FAIL(err, UNSUPPORTED, "two ropes that rotate %g and %g of a head", part,
                           own);
    }
    *out = (int)(c->d_head * part);
    return SL_OK;
}

/* rope_parameters {main, compress}, or rope_theta and compress_rope_theta with the scaling of the
 * latter alone. cos and sin have a factor only where a configuration says it. */
static sl_status hf_rope(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *all = text_json_get(o, "rope_parameters"),
                      *in[2] = {text_json_get(all, "main"), text_json_get(all, "compress")}, *s;
    bool nested = in[0] && in[1];
    double theta = 10000, attn = 1;
    int n_rot = 0;
    const char *type = NULL;
    if (!nested) in[0] = in[1] = NULL;
    SL_TRY(hf_n_rot(o, in, c, &n_rot, err));
    SL_TRY(arch_hf_real(o, "rope_theta", ARCH_RANGE(theta, 1.0, 1e12), &theta, err));
    SL_TRY(arch_hf_real(o, "compress_rope_theta", ARCH_RANGE(160000, 1.0, 1e12), &c->entry_theta,
                        err));
    if (nested) {
        SL_TRY(arch_hf_rope_of(o, in[0], "rope_parameters.main", n_rot, c, err));
        SL_TRY(text_json_str(in[0], "rope_type", "default", &type, err));
        if (strcmp(type, "default") != 0)
            return SL_FAIL(err, UNSUPPORTED, "rope_parameters.main: rope_type '%.40s'", type);
        theta = c->rope_theta;
        SL_TRY(arch_hf_real(in[1], "rope_theta", ARCH_RANGE(c->entry_theta, 1.0, 1e12),
                            &c->entry_theta, err));
        SL_TRY(arch_hf_rope_of(o, in[1], "rope_parameters.compress", n_rot, c, err));
        s = in[1];
    } else {
        SL_TRY(arch_hf_rope(o, n_rot, c, err));
        s = all && all->kind == JSON_OBJECT_K ? all : text_json_get(o, "rope_scaling");
    }
    SL_TRY(arch_hf_real(s, "attention_factor", ARCH_RANGE(1, 0, 1e3), &attn, err));
    c->rope_theta = theta;
    c->yarn_mscale = attn;
    if (c->rope_kind == ARCH_ROPE_PLAIN || c->rope_kind == ARCH_ROPE_YARN) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "a rope of compressed entries that is neither plain nor YaRN");
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    bool bias = false;
    set_fixed(c);
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &bias, err));
    if (bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias is not supported");
    SL_TRY(arch_hf_int(o, "num_key_value_heads", ARCH_RANGE(1, 1, 4096), &c->n_head_kv, err));
    SL_TRY(arch_hf_int(o, "q_lora_rank", ARCH_RANGE(1024, 1, 65536), &c->q_lora, err));
    SL_TRY(arch_hf_int(o, "o_groups", ARCH_RANGE(8, 1, 4096), &c->o_groups, err));
    SL_TRY(arch_hf_int(o, "o_lora_rank", ARCH_RANGE(1024, 1, 65536), &c->o_lora, err));
    SL_TRY(hf_layers(o, c, err));
    SL_TRY(hf_rope(o, c, err));
    SL_TRY(hf_experts(o, c, err));
    SL_TRY(arch_hf_streams(o, c, err));
    return check(c, err);
}

/* ---- GGUF ---- */

static sl_status gguf_layers(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    struct io_array arr;
    int64_t v = 0;
    int n_hash = 0;
    if (!arch_gguf_array(m, "attention.compress_ratios", &arr) || arr.n < (uint64_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "%s: attention.compress_ratios has no number for each layer",
                       io_path(m));
    for (int i = 0; i < c->n_layer; i++) {
        if (!io_array_i64(&arr, (uint64_t)i, &v) || v < 0 || v > 1 << 20)
            return SL_FAIL(err, FORMAT, "%s: attention.compress_ratios[%d] is not in 0 .. %d",
                           io_path(m), i, 1 << 20);
        set_layer(c, i, (int)v, v == FINE);
    }
    for (uint64_t i = (uint64_t)c->n_layer; i < arr.n; i++)
        if (!io_array_i64(&arr, i, &v) || v) leave_mtp(c);
    SL_TRY(arch_gguf_int(m, "hash_layer_count", ARCH_RANGE(0, 0, c->n_layer), &n_hash, err));
    for (int i = 0; i < n_hash; i++)
        c->layer[i].hash = true;
    if (!c->n_window)
        return SL_FAIL(err, FORMAT, "%s: attention.sliding_window is missing or 0", io_path(m));
    SL_TRY(arch_gguf_int(m, "attention.indexer.head_count", ARCH_RANGE(64, 1, 4096), &c->n_index,
                         err));
    SL_TRY(arch_gguf_int(m, "attention.indexer.key_length", ARCH_RANGE(128, 1, 65536), &c->d_index,
                         err));
    SL_TRY(arch_gguf_int(m, "attention.indexer.top_k", ARCH_RANGE(512, 1, 1 << 28), &c->index_top,
                         err));
    settle_index(c);
    return SL_OK;
}

static sl_status gguf_experts(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    double scale = 0;
    int gating = 0;
    SL_TRY(arch_gguf_moe(m, c, err));
    if (!c->n_expert) return SL_FAIL(err, FORMAT, "%s: expert_count is missing", io_path(m));
    if (c->n_shared != 1)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_shared_count is %d, not 1", io_path(m),
                       c->n_shared);
    SL_TRY(arch_gguf_int(m, "expert_gating_func", ARCH_RANGE(ROOT, 0, 100), &gating, err));
    if (gating != ROOT)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_gating_func is %d, not %d (sqrt softplus)",
                       io_path(m), gating, ROOT);
    SL_TRY(arch_gguf_real(m, "expert_weights_scale", ARCH_RANGE(1.5, 0, 1e6), &scale, err));
    c->route_scale = (float)scale;
    return arch_gguf_limit(m, 10, c, err);
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_int(m, "attention.q_lora_rank", ARCH_RANGE(-1, 1, 65536), &c->q_lora, err));
    SL_TRY(arch_gguf_int(m, "attention.output_group_count", ARCH_RANGE(-1, 1, 4096), &c->o_groups,
                         err));
    SL_TRY(arch_gguf_int(m, "attention.output_lora_rank", ARCH_RANGE(-1, 1, 65536), &c->o_lora,
                         err));
    SL_TRY(arch_gguf_real(m, "attention.compress_rope_freq_base", ARCH_RANGE(160000, 1.0, 1e12),
                          &c->entry_theta, err));
    SL_TRY(arch_gguf_streams(m, c, err));
    c->yarn_mscale = 1;
    SL_TRY(gguf_layers(m, c, err));
    SL_TRY(gguf_experts(m, c, err));
    set_fixed(c);
    return check(c, err);
}

/* ---- writing ---- */

static int hashed(const struct arch_cfg *c)
{
    int n = 0;
    while (n < c->n_layer && c->layer[n].hash)
        n++;
    return n;
}

/* What both kinds of files say by numbers alone. */
static sl_status check_layers(const struct arch_cfg *c, const char *path, sl_err *err)
{
    for (int i = 0; i < c->n_layer; i++) {
        if ((c->layer[i].ratio == FINE) != (c->layer[i].index == ARCH_INDEX_OWN))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: layer %d has entries of %d tokens, which by their number alone are "
                           "of the other kind",
                           path, i, c->layer[i].ratio);
        if (c->layer[i].hash != (i < hashed(c)))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: a layer that chooses experts by ids after one that does not", path);
    }
    return SL_OK;
}

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    int32_t ratio[LAYER_MAX] = {0};
    int n = c->n_layer + k->n_mtp;
    SL_TRY(check_layers(c, k->path, err));
    if (c->yarn_mscale != 1)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: attention_factor %g, which GGUF can not say", k->path,
                       c->yarn_mscale);
    for (int i = 0; i < c->n_layer; i++)
        ratio[i] = c->layer[i].ratio;
    arch_put_int(k, "attention.q_lora_rank", c->q_lora);
    arch_put_int(k, "attention.output_group_count", c->o_groups);
    arch_put_int(k, "attention.output_lora_rank", c->o_lora);
    arch_put_ints(k, "attention.compress_ratios", ratio, n);
    arch_put_real(k, "attention.compress_rope_freq_base", c->entry_theta);
    if (c->n_index) {
        arch_put_int(k, "attention.indexer.head_count", c->n_index);
        arch_put_int(k, "attention.indexer.key_length", c->d_index);
        arch_put_int(k, "attention.indexer.top_k", c->index_top);
    }
    arch_put_streams(c, k);
    arch_put_int(k, "hash_layer_count", hashed(c));
    SL_TRY(arch_put_moe(c, k, err));
    arch_put_int(k, "expert_shared_count", c->n_shared);
    arch_put_real(k, "expert_weights_scale", (double)c->route_scale);
    arch_put_int(k, "expert_gating_func", ROOT);
    arch_put_limit(c, k);
    return SL_OK;
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(check_layers(c, io_path(src), err));
    text_jw_key_int(w, "head_dim", c->d_head);
    text_jw_key_int(w, "qk_rope_head_dim", c->n_rot);
    text_jw_key_int(w, "q_lora_rank", c->q_lora);
    text_jw_key_int(w, "o_groups", c->o_groups);
    text_jw_key_int(w, "o_lora_rank", c->o_lora);
    text_jw_key_int(w, "sliding_window", c->n_window);
    text_jw_key(w, "compress_ratios");
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        text_jw_int(w, c->layer[i].ratio);
    text_jw_arr_end(w);
    arch_jw_real(w, "compress_rope_theta", c->entry_theta);
    if (c->n_index) {
        text_jw_key_int(w, "index_n_heads", c->n_index);
        text_jw_key_int(w, "index_head_dim", c->d_index);
        text_jw_key_int(w, "index_topk", c->index_top);
    }
    arch_jw_streams(c, w);
    text_jw_key_int(w, "num_hash_layers", hashed(c));
    text_jw_key_int(w, "n_routed_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    text_jw_key_int(w, "n_shared_experts", c->n_shared);
    text_jw_key_bool(w, "norm_topk_prob", true);
    arch_jw_real(w, "routed_scaling_factor", (double)c->route_scale);
    text_jw_key_strz(w, "scoring_func", "sqrtsoftplus");
    text_jw_key_strz(w, "topk_method", "noaux_tc");
    arch_jw_real(w, "swiglu_limit", (double)c->glu.limit);
    text_jw_key_int(w, "num_nextn_predict_layers", c->n_mtp);
    return SL_OK;
}

#define GGUF_NAMES(hf_kv, hf_kv_norm, hf_o, hf_q, hf_w)                                            \
    {ROLE_KV_A, "attn_kv", hf_kv}, {ROLE_KV_A_NORM, NULL, hf_kv_norm},                             \
        {ROLE_O, "attn_output_b", hf_o}, {ROLE_INDEX_Q, NULL, hf_q}, {ROLE_INDEX_W, NULL, hf_w}
/* Its makers' names; and those of transformers, where they are not the usual ones. */
static const struct arch_alias alias[] = {GGUF_NAMES("attn.wkv", "attn.kv_norm", "attn.wo_b",
                                                     "attn.indexer.wq_b",
                                                     "attn.indexer.weights_proj"),
                                          {ROLE_ATTN_NORM, NULL, "attn_norm"},
                                          {ROLE_FFN_NORM, NULL, "ffn_norm"},
                                          {ROLE_HC_ATTN_FN, NULL, "hc_attn_fn."},
                                          {ROLE_HC_ATTN_BASE, NULL, "hc_attn_base."},
                                          {ROLE_HC_ATTN_SCALE, NULL, "hc_attn_scale."},
                                          {ROLE_HC_FFN_FN, NULL, "hc_ffn_fn."},
                                          {ROLE_HC_FFN_BASE, NULL, "hc_ffn_base."},
                                          {ROLE_HC_FFN_SCALE, NULL, "hc_ffn_scale."},
                                          {ROLE_Q_A, NULL, "attn.wq_a"},
                                          {ROLE_Q_A_NORM, NULL, "attn.q_norm"},
                                          {ROLE_Q_B, NULL, "attn.wq_b"},
                                          {ROLE_O_A, NULL, "attn.wo_a"},
                                          {ROLE_SINKS, NULL, "attn.attn_sink."},
                                          {ROLE_ENTRY_KV, NULL, "attn.compressor.wkv"},
                                          {ROLE_ENTRY_GATE, NULL, "attn.compressor.wgate"},
                                          {ROLE_ENTRY_APE, NULL, "attn.compressor.ape."},
                                          {ROLE_ENTRY_NORM, NULL, "attn.compressor.norm"},
                                          {ROLE_INDEX_ENTRY_KV, NULL,
                                           "attn.indexer.compressor.wkv"},
                                          {ROLE_INDEX_ENTRY_GATE, NULL,
                                           "attn.indexer.compressor.wgate"},
                                          {ROLE_INDEX_ENTRY_APE, NULL,
                                           "attn.indexer.compressor.ape."},
                                          {ROLE_INDEX_ENTRY_NORM, NULL,
                                           "attn.indexer.compressor.norm"},
                                          {ROLE_ROUTER, NULL, "ffn.gate"},
                                          {ROLE_ROUTER_BIAS, NULL, "ffn.gate.bias."},
                                          {ROLE_EXPERT_OF, NULL, "ffn.gate.tid2eid."},
                                          {ROLE_GATE_EXPS, NULL, "ffn.experts.%d.w1"},
                                          {ROLE_UP_EXPS, NULL, "ffn.experts.%d.w3"},
                                          {ROLE_DOWN_EXPS, NULL, "ffn.experts.%d.w2"},
                                          {ROLE_GATE_SHEXP, NULL, "ffn.shared_experts.w1"},
                                          {ROLE_UP_SHEXP, NULL, "ffn.shared_experts.w3"},
                                          {ROLE_DOWN_SHEXP, NULL, "ffn.shared_experts.w2"},
                                          {ROLE_MTP_HEAD_NORM, NULL, "norm"},
                                          {N_ROLE, NULL, NULL}},
                               renamed[] = {GGUF_NAMES("self_attn.kv_proj", "self_attn.kv_norm",
                                                       "self_attn.o_b_proj",
                                                       "self_attn.compressor.indexer.q_b_proj",
                                                       "self_attn.compressor.indexer.scorer."
                                                       "weights_proj"),
                                            {ROLE_Q_A_NORM, NULL, "self_attn.q_a_norm"},
                                            {N_ROLE, NULL, NULL}};

const struct arch arch_deepseek_v4 = {
    .name = "deepseek_v4",
    .gguf = "deepseek4",
    .hf_type = "deepseek_v4",
    .hf_class = "DeepseekV4ForCausalLM",
    .tool_family = "dsml4",
    .hf_keys = "compress_ratios|compress_rates|compress_rate_csa|compress_rate_hca|"
               "compress_rope_theta|mlp_layer_types|num_hash_layers|sliding_window|hc_mult|"
               "hc_sinkhorn_iters|hc_eps|o_groups|o_lora_rank|q_lora_rank|qk_rope_head_dim|"
               "partial_rotary_factor|index_n_heads|index_head_dim|index_topk|scoring_func|"
               "topk_method|norm_topk_prob|routed_scaling_factor|num_experts|num_local_experts|"
               "n_routed_experts|num_experts_per_tok|moe_intermediate_size|n_shared_experts|"
               "swiglu_limit|expert_dtype",
    .gguf_keys = ARCH_GGUF_KEYS_MOE ARCH_GGUF_KEYS_MTP
    "|" ARCH_GGUF_KEYS_WINDOW
    "|expert_shared_count|leading_dense_block_count|attention.compress_ratios|"
    "attention.compress_rope_freq_base|attention.output_group_count|attention.output_lora_rank|"
    "attention.q_lora_rank|attention.indexer.head_count|attention.indexer.key_length|"
    "attention.indexer.top_k|hyper_connection.count|hyper_connection.sinkhorn_iterations|"
    "hyper_connection.epsilon|hash_layer_count|swiglu_clamp_exp|swiglu_clamp_shexp",
    .ffn_scale_unused = true,
    .ff_of_experts = true,
    .bare = true,
    .mtp_uncounted = true,
    .alias = alias,
    .renamed = renamed,
    .unsaid = {.theta = 10000, .d_head = 512},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
