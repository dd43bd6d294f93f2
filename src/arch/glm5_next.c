/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-5.3-Flash: Kimi Delta Attention with bounded decays in most layers, in the others MLA of
 * which nothing is rotated and whose indexer chooses pools of positions; several streams, whose
 * head is their mean; DeepSeek-V3's router and shared experts after dense layers in front. The MTP
 * layer is one with an indexer, and has one stream. The text model alone: what sees is left. */
#include "arch/row.h"

#define NESTED "linear_attn_config"
#define FULL_EVERY 4 /* the last of so many is MLA, where nothing is said */
#define BOUND -5.0
#define N_VOCAB 154821 /* from there on the class's pad_token_id is one */

/* What no file says. */
static void set_fixed(struct arch_cfg *c)
{
    c->kda = c->no_rope = true;
    c->rope_style = ARCH_ROPE_PAIRS; /* of nothing */
    c->rope_theta = 10000;
    c->latent_eps = c->norm_eps;
    c->unshared = "a residual stream that is several";
    c->stream_mean = c->glu_all = true;
    c->route_sigmoid = c->route_bias = true;
}

/* Layers with a state have no indexer; in the others each has its own. */
static sl_status settle_index(struct arch_cfg *c, sl_err *err)
{
    for (int i = 0; i < c->n_layer; i++) {
        struct arch_layer *l = &c->layer[i];
        if (l->mixer == ARCH_DELTA) l->index = ARCH_INDEX_NONE;
        if (l->index == ARCH_INDEX_SHARED)
            return SL_FAIL(err, UNSUPPORTED,
                           "layer %d shares what the indexer of another chooses, which is not "
                           "supported where pools are chosen",
                           i);
    }
    return SL_OK;
}

/* ---- config.json ---- */

static sl_status hf_switches(const struct json *o, sl_err *err)
{
    static const struct {
        const char *key;
        bool is;
    } must[] = {{"attention_bias", false},
                {"mla_use_nope", true},
                {"mhc", true},
                {"index_kpool_compress", true},
                {"index_kpool_always_select_tail", true}};
    for (int i = 0; i < BASE_COUNT_OF(must); i++) {
        bool is = must[i].is;
        SL_TRY(arch_hf_bool(o, must[i].key, must[i].is, &is, err));
        if (is != must[i].is)
            return SL_FAIL(err, UNSUPPORTED, "%s %s is not supported", must[i].key,
                           is ? "true" : "false");
    }
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    return arch_hf_must_be(o, "topk_method", "noaux_tc", err);
}

/* The nested object says nothing else that matters. Its lists of layers are those of layer_types:
 * which number they begin with is not said. */
static sl_status check_nested(const struct json *o, sl_err *err)
{
    static const char *const list[] = {"kda_layers", "full_attn_layers"};
    const struct json *in = text_json_get(o, NESTED), *types = text_json_get(o, "layer_types");
    bool said = types && types->kind != JSON_NULL_K;
    for (int i = 0; i < BASE_COUNT_OF(list) && !said; i++)
        if (text_json_get(in, list[i]))
            return SL_FAIL(err, UNSUPPORTED, "%s: %s, but no layer_types", NESTED, list[i]);
    return arch_keys_nested(o, NESTED,
                            "num_heads|head_dim|short_conv_kernel_size|gate_lower_bound|safe_gate|"
                            "kda_layers|full_attn_layers",
                            err);
}

/* A number of the nested object, or else one beside it. */
static sl_status nested_int(const struct json *o, const char *key, const char *beside, int def,
                            int *out, sl_err *err)
{
    SL_TRY(arch_hf_int(o, beside, ARCH_RANGE(def, 1, 65536), out, err));
    sl_status st =
        arch_hf_int(text_json_get(o, NESTED), key, ARCH_RANGE(*out, 1, 65536), out, err);
    if (st) status_prefix(err, NESTED);
    return st;
}

/* What decays are above: null is none, unless the nested object, whose word counts, says that it
 * wants one. */
static sl_status hf_bound(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *in = text_json_get(o, NESTED), *v = text_json_get(o, "linear_lower_bound"),
                      *w = text_json_get(in, "gate_lower_bound");
    double bound = BOUND;
    bool safe = true, none = w ? w->kind == JSON_NULL_K : v && v->kind == JSON_NULL_K;
    SL_TRY(arch_hf_bool(in, "safe_gate", true, &safe, err));
    SL_TRY(arch_hf_real(o, "linear_lower_bound", ARCH_RANGE(bound, -80, -1e-3), &bound, err));
    SL_TRY(arch_hf_real(in, "gate_lower_bound", ARCH_RANGE(bound, -80, -1e-3), &bound, err));
    bool nested = in && in->kind == JSON_OBJECT_K;
    if (none) bound = nested && safe ? BOUND : 0;
    c->delta_bound = (float)bound;
    return SL_OK;
}

static sl_status hf_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *list = text_json_get(o, "layer_types"), *v = NULL;
    if (list && list->kind != JSON_NULL_K) {
        if (list->kind != JSON_ARRAY_K || list->n != (size_t)c->n_layer)
            return SL_FAIL(err, FORMAT, "layer_types is not a list of %d layers", c->n_layer);
        v = list->child;
    }
    for (int i = 0; i < c->n_layer; i++, v = v ? v->next : NULL) {
        bool delta = v ? text_json_is(v, "linear_attention") : (i + 1) % FULL_EVERY != 0;
        if (v && !delta && !text_json_is(v, "indexed_attention") &&
            !text_json_is(v, "deepseek_sparse_attention") && !text_json_is(v, "full_attention"))
            return SL_FAIL(err, UNSUPPORTED,
                           "layer_types[%d] is %.40s: linear_attention, indexed_attention, "
                           "deepseek_sparse_attention and full_attention are supported",
                           i, v->kind == JSON_STR_K ? v->s : text_json_kind_text(v->kind));
        c->layer[i].mixer = delta ? ARCH_DELTA : ARCH_MLA;
    }
    return SL_OK;
}

static sl_status hf_delta(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(check_nested(o, err));
    SL_TRY(nested_int(o, "num_heads", "linear_num_heads", 64, &c->n_delta_k, err));
    SL_TRY(nested_int(o, "head_dim", "linear_head_dim", 128, &c->d_delta_k, err));
    SL_TRY(nested_int(o, "short_conv_kernel_size", "linear_conv_kernel_dim", 4, &c->n_conv, err));
    c->n_delta_v = c->n_delta_k;
    c->d_delta_v = c->d_delta_k;
    return hf_bound(o, c, err);
}

static sl_status hf_index(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_hf_index(o, 32, c, err));
    SL_TRY(arch_hf_index_layers(o, c, err));
    SL_TRY(arch_hf_int(o, "index_kpool", ARCH_RANGE(16, 1, 65536), &c->index_pool, err));
    return settle_index(c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {288, 8, 3, 2048, 1, 1, 2.5};
    double limit = 0;
    set_fixed(c);
    SL_TRY(hf_switches(o, err));
    SL_TRY(arch_hf_int(o, "max_position_embeddings", ARCH_RANGE(1048576, 1, 1 << 28),
                       &c->n_ctx_train, err));
    SL_TRY(arch_hf_latents(o, c, err));
    c->n_rot = c->d_rope;
    SL_TRY(hf_layers(o, c, err));
    SL_TRY(hf_delta(o, c, err));
    SL_TRY(hf_index(o, c, err));
    SL_TRY(arch_hf_streams(o, c, err));
    SL_TRY(arch_hf_moe_v3(o, &def, c, err));
    SL_TRY(arch_hf_real(o, "swiglu_limit", ARCH_RANGE(10.0, 0, 1e6), &limit, err));
    c->glu.limit = (float)limit;
    return arch_hf_mlp_types(o, c, err);
}

/* ---- GGUF ---- */

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    double bound = 0;
    bool tail = true;
    SL_TRY(arch_gguf_latents(m, c, err));
    SL_TRY(arch_gguf_kda(m, c, err));
    set_fixed(c);
    SL_TRY(arch_gguf_real(m, "kda.gate_lower_bound", ARCH_RANGE(0, -80, -1e-3), &bound, err));
    c->delta_bound = (float)bound;
    SL_TRY(arch_gguf_index(m, c, err));
    SL_TRY(arch_gguf_index_layers(m, c, err));
    SL_TRY(arch_gguf_int(m, "attention.indexer.kpool", ARCH_RANGE(-1, 1, 65536), &c->index_pool,
                         err));
    SL_TRY(arch_gguf_flag(m, "attention.indexer.kpool_select_tail", true, &tail, err));
    if (!tail)
        return SL_FAIL(err, UNSUPPORTED, "%s: attention.indexer.kpool_select_tail is false",
                       io_path(m));
    SL_TRY(settle_index(c, err));
    SL_TRY(arch_gguf_streams(m, c, err));
    return arch_gguf_limit(m, 0, c, err);
}

/* ---- writing ---- */

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    SL_TRY(arch_put_kda(c, k, err));
    if (c->delta_bound < 0) arch_put_real(k, "kda.gate_lower_bound", (double)c->delta_bound);
    arch_put_real(k, "attention.layer_norm_epsilon", 1e-6);
    arch_put_int(k, "attention.indexer.head_count", c->n_index);
    arch_put_int(k, "attention.indexer.key_length", c->d_index);
    arch_put_int(k, "attention.indexer.top_k", c->index_top);
    arch_put_int(k, "attention.indexer.kpool", c->index_pool);
    arch_put_flag(k, "attention.indexer.kpool_select_tail", true);
    arch_put_index_layers(c, k);
    arch_put_streams(c, k);
    arch_put_limit(c, k);
    return SL_OK;
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (!c->n_expert)
        return SL_FAIL(err, UNSUPPORTED, "%s: no experts, which a folder of %s can not say",
                       io_path(src), c->arch);
    arch_jw_mla(c, w);
    arch_jw_layer_types(c, arch_is_delta, "linear_attention", "indexed_attention", w);
    text_jw_key_int(w, "linear_num_heads", c->n_delta_k);
    text_jw_key_int(w, "linear_head_dim", c->d_delta_k);
    text_jw_key_int(w, "linear_conv_kernel_dim", c->n_conv);
    if (c->delta_bound < 0)
        arch_jw_real(w, "linear_lower_bound", (double)c->delta_bound);
    else
        text_jw_key_null(w, "linear_lower_bound");
    text_jw_key_int(w, "index_n_heads", c->n_index);
    text_jw_key_int(w, "index_head_dim", c->d_index);
    text_jw_key_int(w, "index_topk", c->index_top);
    text_jw_key_int(w, "index_kpool", c->index_pool);
    text_jw_key_bool(w, "index_kpool_always_select_tail", true);
    arch_jw_streams(c, w);
    arch_jw_moe_shared(c, "sigmoid", "noaux_tc", w);
    arch_jw_mlp_types(c, w);
    arch_jw_real(w, "swiglu_limit", (double)c->glu.limit);
    if (c->n_vocab < N_VOCAB) text_jw_key_null(w, "pad_token_id");
    return SL_OK;
}

static const struct arch_alias alias[] = {
    {ROLE_DELTA_B, NULL, "self_attn.b_proj"},
    {ROLE_DELTA_DT, NULL, "self_attn.dt_bias."},
    {ROLE_DELTA_DECAY, NULL, "self_attn.A_log."},
    {ROLE_DELTA_NORM, NULL, "self_attn.o_norm"},
    {ROLE_INDEX_ENTRY_GATE, NULL, "self_attn.indexer.index_kpool_compress_gate."},
    {ROLE_INDEX_ENTRY_APE, NULL, "self_attn.indexer.index_kpool_compress_ape."},
    {ROLE_HC_ATTN_FN, NULL, "hc_attn_fn."},
    {ROLE_HC_ATTN_BASE, NULL, "hc_attn_base."},
    {ROLE_HC_ATTN_SCALE, NULL, "hc_attn_scale."},
    {ROLE_HC_FFN_FN, NULL, "hc_ffn_fn."},
    {ROLE_HC_FFN_BASE, NULL, "hc_ffn_base."},
    {ROLE_HC_FFN_SCALE, NULL, "hc_ffn_scale."},
    {N_ROLE, NULL, NULL}};

/* index_share_for_mtp_iteration says how the MTP layer makes more than one draft: no result of the
 * model depends on it. */
const struct arch arch_glm5_next = {
    .name = "glm5_next",
    .gguf = "glm5-next",
    .hf_type = "glm5_next_text|glm5_next",
    .hf_class = "Glm5NextTextModel",
    .tool_family = "glm",
    .hf_keys = "indexer_types|index_topk_pattern|index_topk_freq|index_skip_topk_offset|"
               "index_share_for_mtp_iteration|index_kpool|index_kpool_always_select_tail|"
               "index_kpool_compress|mla_use_nope|mhc|hc_mult|hc_sinkhorn_iters|hc_eps|"
               "swiglu_limit|qk_head_dim|linear_num_heads|linear_head_dim|"
               "linear_conv_kernel_dim|linear_lower_bound|" NESTED "|" ARCH_HF_KEYS_INDEX,
    .gguf_keys = ARCH_GGUF_KEYS_INDEX
    "|attention.indexer.types|attention.indexer.kpool|attention.indexer.kpool_select_tail|"
    "ssm.conv_kernel|kda.head_dim|kda.gate_lower_bound|hyper_connection.count|"
    "hyper_connection.sinkhorn_iterations|hyper_connection.epsilon|swiglu_clamp_exp|"
    "swiglu_clamp_shexp",
    .alias = alias,
    .no_keys = true,
    .unrotated = true,
    .ffn_scale_unused = true,
    .index_rope = ARCH_ROPE_PAIRS,
    .unsaid = {.eps = 1e-5},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
