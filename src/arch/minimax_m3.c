/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M3, the part of it that writes text: GQA with norms of heads, of which a part is rotated;
 * weights of norms stored less 1; in most layers an indexer, by which every KV head sees some
 * blocks of positions only; clamped gated units in dense layers, in experts, chosen by sigmoid and
 * bias, and in a shared expert without a gate. */
#include <stdio.h>

#include "arch/row.h"
#include "text/keys.h"

/* What GGUF files, which can not say it, mean. */
static const struct glu unsaid = {.limit = 7.0f, .alpha = 1.702f, .plus = 1.0f};

/* What no file says. */
static void set_fixed(struct arch_cfg *c)
{
    c->qk_norm = true;
    c->glu_all = true;
}

/* One shared expert of that width; 0 = none. */
static void set_shared(struct arch_cfg *c, int width)
{
    c->n_shared = width ? 1 : 0;
    c->d_ff_shared = width == c->d_ff_expert ? 0 : width;
}

/* ---- config.json ---- */

/* A switch that all published models have on. */
static sl_status must(const struct json *o, const char *key, sl_err *err)
{
    bool on = true;
    SL_TRY(arch_hf_bool(o, key, true, &on, err));
    return on ? SL_OK : SL_FAIL(err, UNSUPPORTED, "%s false is not supported", key);
}

/* A list of 0 and 1, one for each layer, where it is there: the first. */
static sl_status hf_bits(const struct json *o, const char *key, const struct arch_cfg *c,
                         const struct json **first, sl_err *err)
{
    const struct json *list = text_json_get(o, key);
    int i = 0;
    *first = NULL;
    if (!list || list->kind == JSON_NULL_K) return SL_OK;
    if (list->kind != JSON_ARRAY_K || list->n != (size_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "%s is not a list of %d layers", key, c->n_layer);
    for (const struct json *v = list->child; v; v = v->next, i++)
        if (v->kind != JSON_INT_K || v->i < 0 || v->i > 1)
            return SL_FAIL(err, FORMAT, "%s[%d] is neither 0 nor 1", key, i);
    *first = list->child;
    return SL_OK;
}

/* Beside what is read there: that the indexer is on, that scores of a block are the best of its
 * positions', that it gives no values. */
static sl_status check_sparse(const struct json *s, sl_err *err)
{
    static const struct text_key row[] = {
        {"sparse_num_index_heads|sparse_index_dim|sparse_block_size|sparse_topk_blocks|"
         "sparse_local_block|sparse_attention_freq",
         "*"},
        {"use_sparse_attention|enabled", "true"},
        {"sparse_score_type", "max|-"},
        {"*disable_index_value*", "true|1|[...]"},
    };
    static const struct text_keys keys = {row, BASE_COUNT_OF(row), "what a token sees"};
    return text_keys_check(&keys, "sparse_attention_config", s, err);
}

/* Which layers have an indexer: layer_types, or else a list of numbers. */
static sl_status hf_index_layers(const struct json *o, const struct json *sparse,
                                 struct arch_cfg *c, sl_err *err)
{
    const struct json *type = NULL, *bit = NULL;
    SL_TRY(arch_hf_types(o, "minimax_m3_sparse", c, &type, err));
    SL_TRY(hf_bits(sparse, "sparse_attention_freq", c, &bit, err));
    for (int i = 0; i < c->n_layer; i++) {
        bool by_type = type && text_json_is(type, "minimax_m3_sparse"), by_bit = bit && bit->i;
        if (type && bit && by_type != by_bit)
            return SL_FAIL(err, UNSUPPORTED,
                           "layer_types and sparse_attention_freq differ in layer %d: which of "
                           "them holds is not said",
                           i);
        if (by_type || by_bit) c->layer[i].index = ARCH_INDEX_OWN;
        type = type ? type->next : NULL;
        bit = bit ? bit->next : NULL;
    }
    return SL_OK;
}

/* A number of the indexer, which sparse_attention_config has under another name. */
static sl_status hf_index_int(const struct json *const in[2], const char *flat, const char *name,
                              int def, int *out, sl_err *err)
{
    struct arch_range r = ARCH_RANGE(def, 1, 1 << 20);
    SL_TRY(arch_hf_int(in[0], flat, r, out, err));
    r.def = *out;
    return arch_hf_int(in[1], name, r, out, err);
}

static sl_status hf_index(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *sparse = text_json_get(o, "sparse_attention_config");
    int n_blk = 0, n = 0;
    if (sparse && sparse->kind == JSON_NULL_K) sparse = NULL;
    if (sparse && sparse->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "sparse_attention_config is not an object");
    SL_TRY(check_sparse(sparse, err));
    SL_TRY(hf_index_layers(o, sparse, c, err));
    for (int i = 0; i < c->n_layer; i++)
        n += c->layer[i].index == ARCH_INDEX_OWN;
    if (!n) return SL_OK;
    const struct json *const in[2] = {o, sparse};
    SL_TRY(hf_index_int(in, "index_n_heads", "sparse_num_index_heads", 4, &c->n_index, err));
    SL_TRY(hf_index_int(in, "index_head_dim", "sparse_index_dim", 128, &c->d_index, err));
    SL_TRY(hf_index_int(in, "index_block_size", "sparse_block_size", 128, &c->index_blk, err));
    SL_TRY(hf_index_int(in, "index_topk_blocks", "sparse_topk_blocks", 16, &n_blk, err));
    SL_TRY(arch_hf_int(o, "index_local_blocks", ARCH_RANGE(1, 0, 1 << 20), &c->index_local, err));
    SL_TRY(arch_hf_int(sparse, "sparse_local_block", ARCH_RANGE(c->index_local, 0, 1 << 20),
                       &c->index_local, err));
    if ((int64_t)n_blk * c->index_blk > 1 << 28)
        return SL_FAIL(err, FORMAT, "an indexer of %d blocks of %d positions", n_blk, c->index_blk);
    c->index_top = n_blk * c->index_blk;
    return SL_OK;
}

/* Both spellings of what of a head is rotated must say the same. */
static sl_status hf_rope(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const char part[] = "partial_rotary_factor";
    int n_rot = 0, dim = 0;
    bool said = text_json_get(o, part) || text_json_get(text_json_get(o, "rope_parameters"), part);
    SL_TRY(arch_hf_n_rot(o, 1.0, c, &n_rot, err));
    SL_TRY(arch_hf_int(o, "rotary_dim", ARCH_RANGE(n_rot, 2, 65536), &dim, err));
    if (said && dim != n_rot)
        return SL_FAIL(err, UNSUPPORTED,
                       "rotary_dim is %d, but %s makes it %d: which of them holds is not said", dim,
                       part, n_rot);
    return arch_hf_rope(o, dim, c, err);
}

static sl_status hf_moe(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *bit = NULL;
    double scale = 0;
    int shared = 0, n_shared = 0;
    SL_TRY(arch_hf_alias(o, "num_local_experts|num_experts", ARCH_RANGE(128, 1, 4096), &c->n_expert,
                         err));
    SL_TRY(arch_hf_int(o, "num_experts_per_tok", ARCH_RANGE(4, 1, 64), &c->n_expert_used, err));
    SL_TRY(arch_hf_int(o, "intermediate_size", ARCH_RANGE(3072, 1, 1 << 22), &c->d_ff_expert, err));
    SL_TRY(arch_hf_int(o, "dense_intermediate_size", ARCH_RANGE(12288, 1, 1 << 22), &c->d_ff, err));
    SL_TRY(arch_hf_int(o, "shared_intermediate_size", ARCH_RANGE(3072, 1, 1 << 22), &shared, err));
    SL_TRY(arch_hf_int(o, "n_shared_experts", ARCH_RANGE(1, 0, 64), &n_shared, err));
    if (n_shared != 1) return SL_FAIL(err, UNSUPPORTED, "n_shared_experts is %d, not 1", n_shared);
    SL_TRY(arch_hf_real(o, "routed_scaling_factor", ARCH_RANGE(2.0, 0, 1e6), &scale, err));
    SL_TRY(hf_bits(o, "moe_layer_freq", c, &bit, err));
    for (int i = 0; i < c->n_layer; i++, bit = bit ? bit->next : NULL)
        c->layer[i].ffn = !bit || bit->i ? ARCH_MOE : ARCH_DENSE;
    c->route_scale = (float)scale;
    c->route_norm = c->route_sigmoid = c->route_bias = true;
    set_shared(c, shared);
    return arch_hf_mlp_types(o, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    double limit = 0, alpha = 0;
    bool bias = false;
    set_fixed(c);
    SL_TRY(must(o, "use_qk_norm", err));
    SL_TRY(must(o, "use_gemma_norm", err));
    SL_TRY(must(o, "use_routing_bias", err));
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &bias, err));
    if (bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias is not supported");
    SL_TRY(arch_hf_real(o, "swiglu_limit", ARCH_RANGE(7.0, 1e-3, 1e6), &limit, err));
    SL_TRY(arch_hf_real(o, "swiglu_alpha", ARCH_RANGE(1.702, 1e-3, 1e3), &alpha, err));
    c->glu = (struct glu){.limit = (float)limit, .alpha = (float)alpha, .plus = 1.0f};
    SL_TRY(hf_rope(o, c, err));
    SL_TRY(hf_moe(o, c, err));
    return hf_index(o, c, err);
}

static bool is_leading(const struct arch_cfg *c)
{
    bool moe = false;
    for (int i = 0; i < c->n_layer; i++) {
        if (moe && c->layer[i].ffn != ARCH_MOE) return false;
        moe = c->layer[i].ffn == ARCH_MOE;
    }
    return true;
}

static void put_words(const struct arch_cfg *c, struct json_w *w)
{
    arch_jw_mlp_types(c, w);
    arch_jw_layer_types(c, arch_has_index, "minimax_m3_sparse", "full_attention", w);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (!c->route_sigmoid || !c->route_norm || !c->n_shared)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: keys of experts, which a folder of minimax_m3 can not say",
                       io_path(src));
    text_jw_key_int(w, "head_dim", c->d_head);
    text_jw_key_int(w, "rotary_dim", c->n_rot);
    arch_jw_real(w, "partial_rotary_factor", (double)c->n_rot / c->d_head);
    text_jw_key_int(w, "dense_intermediate_size", c->d_ff);
    text_jw_key_int(w, "shared_intermediate_size", arch_d_shared(c));
    text_jw_key_int(w, "num_local_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    arch_jw_real(w, "routed_scaling_factor", (double)c->route_scale);
    arch_jw_real(w, "swiglu_limit", (double)c->glu.limit);
    arch_jw_real(w, "swiglu_alpha", (double)c->glu.alpha);
    put_words(c, w);
    if (!c->n_index) return SL_OK;
    text_jw_key_int(w, "index_n_heads", c->n_index);
    text_jw_key_int(w, "index_head_dim", c->d_index);
    text_jw_key_int(w, "index_block_size", c->index_blk);
    text_jw_key_int(w, "index_topk_blocks", c->index_top / c->index_blk);
    text_jw_key_int(w, "index_local_blocks", c->index_local);
    return SL_OK;
}

/* ---- GGUF ---- */

/* Files of other programs have no indexer: there attention is to all positions. */
static sl_status gguf_index(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    char name[128];
    int n_blk = 0;
    for (int i = 0; i < c->n_layer; i++) {
        arch_tensor_name(&c->naming, ROLE_INDEX_K, i, "weight", name, sizeof name);
        if (io_has_weight(m, name)) c->layer[i].index = ARCH_INDEX_OWN, n_blk = 1;
    }
    if (!n_blk) return SL_OK;
    struct {
        const char *key;
        int lo, *out;
    } of[] = {{"attention.indexer.head_count", 1, &c->n_index},
              {"attention.indexer.key_length", 1, &c->d_index},
              {"attention.indexer.block_size", 1, &c->index_blk},
              {"attention.indexer.block_count", 1, &n_blk},
              {"attention.indexer.block_local_count", 0, &c->index_local}};
    for (int i = 0; i < BASE_COUNT_OF(of); i++)
        SL_TRY(arch_gguf_int(m, of[i].key, ARCH_RANGE(-1, of[i].lo, 1 << 20), of[i].out, err));
    if ((int64_t)n_blk * c->index_blk > 1 << 28)
        return SL_FAIL(err, FORMAT, "%s: an indexer of %d blocks of %d positions", io_path(m),
                       n_blk, c->index_blk);
    c->index_top = n_blk * c->index_blk;
    return SL_OK;
}

/* The rows of the first shared expert's gate; 0 = there is none. */
static int shared_width(const io_model *m, const struct arch_cfg *c)
{
    char name[128];
    for (int i = 0; i < c->n_layer; i++) {
        arch_tensor_name(&c->naming, ROLE_GATE_SHEXP, i, "weight", name, sizeof name);
        const struct tensor *t = io_find(m, name);
        if (t && t->n_dim == 2 && t->shape[0] < 1 << 22) return (int)t->shape[0];
    }
    return 0;
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    set_fixed(c);
    c->glu = unsaid;
    SL_TRY(arch_gguf_moe(m, c, err));
    if (!c->n_expert)
        return SL_FAIL(err, FORMAT, "%s: minimax-m3.expert_count is missing", io_path(m));
    SL_TRY(arch_gguf_router(m, true, true, c, err));
    if (!c->route_sigmoid)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_gating_func is not 2 (sigmoid)", io_path(m));
    if (c->n_shared > 1)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_shared_count is %d, not 1", io_path(m),
                       c->n_shared);
    c->route_bias = true;
    set_shared(c, shared_width(m, c));
    return gguf_index(m, c, err);
}

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    if (!glu_same(&c->glu, &unsaid))
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: swiglu_limit %g and swiglu_alpha %g, which GGUF can not "
                       "say",
                       k->path, (double)c->glu.limit, (double)c->glu.alpha);
    if (!is_leading(c))
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: a dense layer after one with experts, which GGUF can not "
                       "say",
                       k->path);
    SL_TRY(arch_put_moe_shared(c, k, err));
    arch_put_int(k, "expert_shared_feed_forward_length", arch_d_shared(c));
    if (!c->n_index) return SL_OK;
    arch_put_int(k, "attention.indexer.head_count", c->n_index);
    arch_put_int(k, "attention.indexer.key_length", c->d_index);
    arch_put_int(k, "attention.indexer.block_size", c->index_blk);
    arch_put_int(k, "attention.indexer.block_count", c->index_top / c->index_blk);
    arch_put_int(k, "attention.indexer.block_local_count", c->index_local);
    return SL_OK;
}

#define MOE "block_sparse_moe"
static const struct arch_alias alias[] = {
    {ROLE_INDEX_Q, "indexer.attn_q", "self_attn.index_q_proj"},
    {ROLE_INDEX_Q_NORM, NULL, "self_attn.index_q_norm"},
    {ROLE_INDEX_K, NULL, "self_attn.index_k_proj"},
    {ROLE_INDEX_K_NORM, NULL, "self_attn.index_k_norm"},
    {ROLE_ROUTER, NULL, MOE ".gate"},
    {ROLE_ROUTER_BIAS, NULL, MOE},
    {ROLE_GATE_EXPS, NULL, MOE ".experts.%d.w1"},
    {ROLE_UP_EXPS, NULL, MOE ".experts.%d.w3"},
    {ROLE_DOWN_EXPS, NULL, MOE ".experts.%d.w2"},
    {ROLE_GATE_SHEXP, NULL, MOE ".shared_experts.gate_proj"},
    {ROLE_UP_SHEXP, NULL, MOE ".shared_experts.up_proj"},
    {ROLE_DOWN_SHEXP, NULL, MOE ".shared_experts.down_proj"},
    {N_ROLE, NULL, NULL}};

/* qk_norm_type: how much of q and k is normed at once is what its weights are as long as. */
const struct arch arch_minimax_m3 = {
    .name = "minimax_m3",
    .gguf = "minimax-m3",
    .hf_type = "minimax_m3_vl_text|minimax_m3_vl",
    .hf_class = "MiniMaxM3VLForCausalLM",
    .tool_family = "minimax_m3",
    .act = "swigluoai",
    .hf_keys = "partial_rotary_factor|rotary_dim|use_qk_norm|qk_norm_type|use_gemma_norm|"
               "use_routing_bias|scoring_func|num_experts|num_local_experts|num_experts_per_tok|"
               "n_shared_experts|dense_intermediate_size|shared_intermediate_size|moe_layer_freq|"
               "mlp_layer_types|routed_scaling_factor|swiglu_limit|swiglu_alpha|"
               "sparse_attention_config|index_n_heads|index_head_dim|index_block_size|"
               "index_topk_blocks|index_local_blocks",
    .gguf_keys = ARCH_GGUF_KEYS_MOE_SHARED
    "|expert_shared_feed_forward_length|attention.indexer.head_count|"
    "attention.indexer.key_length|attention.indexer.block_size|attention.indexer.block_count|"
    "attention.indexer.block_local_count",
    .ffn_scale_unused = true,
    .ff_of_experts = true,
    .norm_one = true,
    .alias = alias,
    .unsaid = {.theta = 5e6, .d_head = 128},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
