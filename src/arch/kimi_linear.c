/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi-Linear: Kimi Delta Attention in most layers, MLA of which nothing is rotated in the others;
 * DeepSeek-V3's router and shared experts after dense layers in front. Folders say both in words of
 * their own, or in those that transformers knows them by. */
#include "arch/row.h"

#define LAYER_MAX 1024 /* as the readers of configurations allow */
#define NESTED "linear_attn_config"

/* What no file says. MTP layers of it were never published: they are left. */
static void set_fixed(struct arch_cfg *c)
{
    c->kda = c->no_rope = true;
    c->rope_style = ARCH_ROPE_PAIRS; /* of nothing */
    c->unshared = "Kimi Delta Attention";
    c->route_sigmoid = c->route_bias = true;
    c->n_mtp_left = c->n_mtp;
    c->n_mtp = 0;
}

static sl_status check_rope(const struct arch_cfg *c, sl_err *err)
{
    if (c->rope_kind == ARCH_ROPE_PLAIN) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "rope scaling, of layers in which nothing is rotated");
}

/* ---- config.json ---- */

/* A number that stands in the nested object, or under another name beside it. */
static sl_status nested_int(const struct json *o, const char *key, const char *beside, int def,
                            int *out, sl_err *err)
{
    const struct json *in = text_json_get(o, NESTED);
    int a = 0, b = 0;
    sl_status st = arch_hf_int(in, key, ARCH_RANGE(0, 0, 65536), &a, err);
    if (st) status_prefix(err, NESTED);
    SL_TRY(st);
    SL_TRY(arch_hf_int(o, beside, ARCH_RANGE(0, 0, 65536), &b, err));
    if (a && b && a != b)
        return SL_FAIL(err, FORMAT, "%s and %s in %s differ, which mean the same", beside, key,
                       NESTED);
    *out = a ? a : b ? b : def;
    return SL_OK;
}

/* Layers by their numbers from 1 on: what they are. Each is in one list. */
static sl_status mark(const struct json *list, enum arch_mixer mixer, bool seen[LAYER_MAX],
                      struct arch_cfg *c, sl_err *err)
{
    int i = 0;
    if (list->kind != JSON_ARRAY_K)
        return SL_FAIL(err, FORMAT, "%s: %s is not an array", NESTED, list->key);
    for (const struct json *v = list->child; v; v = v->next, i++) {
        if (v->kind != JSON_INT_K || v->i < 1 || v->i > c->n_layer)
            return SL_FAIL(err, FORMAT, "%s: %s[%d] is not a layer of 1 .. %d", NESTED, list->key,
                           i, c->n_layer);
        if (seen[v->i - 1])
            return SL_FAIL(err, FORMAT, "%s: layer %d is listed twice", NESTED, (int)v->i);
        seen[v->i - 1] = true;
        c->layer[v->i - 1].mixer = mixer;
    }
    return SL_OK;
}

/* *said: both lists are there. */
static sl_status nested_layers(const struct json *o, struct arch_cfg *c, bool *said, sl_err *err)
{
    const struct json *in = text_json_get(o, NESTED), *full = text_json_get(in, "full_attn_layers"),
                      *kda = text_json_get(in, "kda_layers");
    bool seen[LAYER_MAX] = {0};
    *said = full && kda;
    if (!full && !kda) return SL_OK;
    if (!*said)
        return SL_FAIL(err, FORMAT, "%s: %s is missing", NESTED,
                       full ? "kda_layers" : "full_attn_layers");
    SL_TRY(mark(full, ARCH_MLA, seen, c, err));
    SL_TRY(mark(kda, ARCH_DELTA, seen, c, err));
    for (int i = 0; i < c->n_layer; i++)
        if (!seen[i]) return SL_FAIL(err, FORMAT, "%s: layer %d is not listed", NESTED, i + 1);
    return SL_OK;
}

/* As both spellings say; where none does, as in the class. */
static sl_status hf_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *v = NULL;
    bool said = false;
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].mixer = i && i % 4 == 0 ? ARCH_MLA : ARCH_DELTA;
    SL_TRY(nested_layers(o, c, &said, err));
    SL_TRY(arch_hf_types(o, "linear_attention", c, &v, err));
    for (int i = 0; v; v = v->next, i++) {
        enum arch_mixer m = text_json_is(v, "linear_attention") ? ARCH_DELTA : ARCH_MLA;
        if (said && c->layer[i].mixer != m)
            return SL_FAIL(err, FORMAT, "layer_types[%d] is %.20s, but not in %s", i, v->s,
                           NESTED);
        c->layer[i].mixer = m;
    }
    return SL_OK;
}

static sl_status hf_delta(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_keys_nested(
        o, NESTED, "num_heads|head_dim|short_conv_kernel_size|kda_layers|full_attn_layers", err));
    SL_TRY(nested_int(o, "num_heads", "linear_num_heads", 32, &c->n_delta_k, err));
    SL_TRY(nested_int(o, "head_dim", "linear_head_dim", 128, &c->d_delta_k, err));
    SL_TRY(nested_int(o, "short_conv_kernel_size", "linear_conv_kernel_dim", 4, &c->n_conv, err));
    c->n_delta_v = c->n_delta_k;
    c->d_delta_v = c->d_delta_k;
    return hf_layers(o, c, err);
}

static sl_status hf_experts(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {256, 8, 1, 1024, 1, 1, 2.446};
    int freq = 1;
    bool grouped = true;
    SL_TRY(arch_hf_must_be(o, "moe_router_activation_func", "sigmoid", err));
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    SL_TRY(arch_hf_must_be(o, "topk_method", "noaux_tc", err));
    SL_TRY(arch_hf_int(o, "moe_layer_freq", ARCH_RANGE(1, 1, 1), &freq, err));
    SL_TRY(arch_hf_moe_v3(o, &def, c, err));
    SL_TRY(arch_hf_bool(o, "use_grouped_topk", true, &grouped, err));
    if (!grouped && c->n_group > 1)
        return SL_FAIL(err, UNSUPPORTED, "use_grouped_topk false, but %d groups of experts",
                       c->n_group);
    return arch_hf_mlp_types(o, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    bool bias = false, nope = true;
    set_fixed(c);
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &bias, err));
    if (bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias is not supported in MLA");
    SL_TRY(arch_hf_bool(o, "mla_use_nope", true, &nope, err));
    if (!nope) return SL_FAIL(err, UNSUPPORTED, "mla_use_nope false is not supported");
    SL_TRY(arch_hf_alias(o, "model_max_length|max_position_embeddings",
                         ARCH_RANGE(1048576, 1, 1 << 28), &c->n_ctx_train, err));
    SL_TRY(arch_hf_latents(o, c, err));
    SL_TRY(arch_hf_rope(o, c->d_rope, c, err));
    SL_TRY(check_rope(c, err));
    SL_TRY(hf_delta(o, c, err));
    return hf_experts(o, c, err);
}

/* ---- GGUF ---- */

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_latents(m, c, err));
    SL_TRY(check_rope(c, err));
    SL_TRY(arch_gguf_kda(m, c, err));
    set_fixed(c);
    return SL_OK;
}

/* ---- writing ---- */

static void put_list(struct json_w *w, const char *key, const struct arch_cfg *c,
                     enum arch_mixer mixer)
{
    text_jw_key(w, key);
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer; i++)
        if (c->layer[i].mixer == mixer) text_jw_int(w, i + 1);
    text_jw_arr_end(w);
}

static void put_delta(const struct arch_cfg *c, struct json_w *w)
{
    text_jw_key(w, NESTED);
    text_jw_obj(w);
    put_list(w, "full_attn_layers", c, ARCH_MLA);
    put_list(w, "kda_layers", c, ARCH_DELTA);
    text_jw_key_int(w, "head_dim", c->d_delta_k);
    text_jw_key_int(w, "num_heads", c->n_delta_k);
    text_jw_key_int(w, "short_conv_kernel_size", c->n_conv);
    text_jw_obj_end(w);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (!c->n_expert)
        return SL_FAIL(err, UNSUPPORTED, "%s: no experts, which a folder of %s can not say",
                       io_path(src), c->arch);
    arch_jw_mla(c, w);
    text_jw_key_bool(w, "mla_use_nope", true);
    text_jw_key_int(w, "model_max_length", c->n_ctx_train);
    put_delta(c, w);
    text_jw_key_int(w, "num_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_token", c->n_expert_used);
    text_jw_key_int(w, "num_shared_experts", c->n_shared);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    text_jw_key_int(w, "num_expert_group", c->n_group);
    text_jw_key_int(w, "topk_group", c->n_group_used);
    text_jw_key_bool(w, "use_grouped_topk", true);
    text_jw_key_bool(w, "moe_renormalize", c->route_norm);
    text_jw_key_strz(w, "moe_router_activation_func", "sigmoid");
    text_jw_key_strz(w, "topk_method", "noaux_tc");
    text_jw_key_int(w, "moe_layer_freq", 1);
    arch_jw_real(w, "routed_scaling_factor", (double)c->route_scale);
    arch_jw_dense_lead(c, w);
    if (c->n_vocab < 163840) text_jw_key_null(w, "pad_token_id"); /* else the class has one */
    return SL_OK;
}

#define NAMES                                                                                      \
    {ROLE_DELTA_B, NULL, "self_attn.b_proj"}, {ROLE_DELTA_DT, NULL, "self_attn.dt_bias."},         \
        {ROLE_DELTA_DECAY, NULL, "self_attn.A_log."},                                              \
        {ROLE_DELTA_NORM, NULL, "self_attn.o_norm"},                                               \
        {ROLE_ROUTER, NULL, "block_sparse_moe.gate"},                                              \
        {ROLE_ROUTER_BIAS, NULL, "block_sparse_moe.gate"},                                         \
        {ROLE_GATE_EXPS, NULL, "block_sparse_moe.experts.%d.w1"},                                  \
        {ROLE_UP_EXPS, NULL, "block_sparse_moe.experts.%d.w3"},                                    \
        {ROLE_DOWN_EXPS, NULL, "block_sparse_moe.experts.%d.w2"},                                  \
        {ROLE_GATE_SHEXP, NULL, "block_sparse_moe.shared_experts.gate_proj"},                      \
        {ROLE_UP_SHEXP, NULL, "block_sparse_moe.shared_experts.up_proj"},                          \
        {ROLE_DOWN_SHEXP, NULL, "block_sparse_moe.shared_experts.down_proj"},                      \
    {                                                                                              \
        N_ROLE, NULL, NULL                                                                         \
    }
/* Folders that transformers writes call dense layers as it calls the others. */
static const struct arch_alias alias[] = {NAMES},
                               renamed[] = {{ROLE_GATE, NULL, "block_sparse_moe.gate_proj"},
                                            {ROLE_UP, NULL, "block_sparse_moe.up_proj"},
                                            {ROLE_DOWN, NULL, "block_sparse_moe.down_proj"},
                                            NAMES};

const struct arch arch_kimi_linear = {
    .name = "kimi_linear",
    .gguf = "kimi-linear",
    .hf_type = "kimi_linear",
    .hf_class = "KimiLinearForCausalLM",
    .tool_family = "kimi",
    .hf_keys = "qk_rope_head_dim|qk_nope_head_dim|q_lora_rank|kv_lora_rank|v_head_dim|"
               "mla_use_nope|" NESTED "|linear_num_heads|linear_head_dim|linear_conv_kernel_dim|"
               "mlp_layer_types|num_experts|num_local_experts|num_experts_per_token|"
               "num_experts_per_tok|num_shared_experts|n_shared_experts|num_expert_group|n_group|"
               "topk_group|use_grouped_topk|moe_renormalize|norm_topk_prob|moe_intermediate_size|"
               "routed_scaling_factor|first_k_dense_replace|moe_router_activation_func|"
               "scoring_func|topk_method|moe_layer_freq",
    .gguf_keys = ARCH_GGUF_KEYS_MLA "|ssm.conv_kernel|kda.head_dim",
    .alias = alias,
    .renamed = renamed,
    .no_keys = true,
    .ffn_scale_unused = true,
    .unsaid = {.eps = 1e-5},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_kda,
    .write_hf = write_hf,
};
