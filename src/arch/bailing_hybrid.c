/* SPDX-License-Identifier: Apache-2.0 */
/* Ling-3.0: Kimi Delta Attention with bounded decays in most layers, MLA with a gate for each head
 * in the others and in the MTP layer; DeepSeek-V3's router and shared experts after dense layers in
 * front, whose units have limits in some layers. */
#include "arch/row.h"

#define LAYER_MAX 1024 /* as the readers of configurations allow */
#define N_VOCAB 156893 /* from there on the class's pad_token_id is one */

/* What no file says. */
static void set_fixed(struct arch_cfg *c)
{
    c->kda = c->kda_whole = c->head_gate = true;
    c->rope_style = ARCH_ROPE_PAIRS;
    c->unshared = "Kimi Delta Attention";
    c->route_sigmoid = c->route_bias = true;
}

static sl_status check_rope(const struct arch_cfg *c, sl_err *err)
{
    if (c->rope_kind == ARCH_ROPE_PLAIN) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "rope scaling is not supported in %s", c->arch);
}

/* ---- config.json ---- */

/* Switches that published files name, at the value that the class in transformers has. */
static sl_status hf_switches(const struct json *o, sl_err *err)
{
    static const struct {
        const char *key;
        bool is;
    } must[] = {{"attention_bias", false},    {"no_kda_lora", true},
                {"use_kda_lora", false},      {"use_mla_nope", false},
                {"mtp_use_kda", false},       {"moe_router_enable_expert_bias", true},
                {"rope_interleave", true}};
    for (int i = 0; i < BASE_COUNT_OF(must); i++) {
        bool is = must[i].is;
        SL_TRY(arch_hf_bool(o, must[i].key, must[i].is, &is, err));
        if (is != must[i].is)
            return SL_FAIL(err, UNSUPPORTED, "%s %s is not supported", must[i].key,
                           is ? "true" : "false");
    }
    SL_TRY(arch_hf_must_be(o, "gated_attention_proj_granularity_type", "head_wise", err));
    SL_TRY(arch_hf_must_be(o, "score_function", "sigmoid", err));
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    return arch_hf_must_be(o, "topk_method", "noaux_tc", err);
}

/* As the list says; else the last of so many is MLA. Programs differ in what a rest is. */
static sl_status hf_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *v = NULL;
    int every = 0;
    SL_TRY(arch_hf_int(o, "layer_group_size", ARCH_RANGE(6, 1, LAYER_MAX), &every, err));
    SL_TRY(arch_hf_types(o, "linear_attention", c, &v, err));
    if (!v && c->n_layer % every)
        return SL_FAIL(err, UNSUPPORTED,
                       "%d layers are no multiple of layer_group_size %d: layer_types has to say "
                       "what they are",
                       c->n_layer, every);
    for (int i = 0; i < c->n_layer; i++, v = v ? v->next : NULL) {
        bool delta = v ? text_json_is(v, "linear_attention") : (i + 1) % every != 0;
        c->layer[i].mixer = delta ? ARCH_DELTA : ARCH_MLA;
    }
    return SL_OK;
}

/* head_dim is the width of a head of these layers, unless transformers wrote the file: then it says
 * what is rotated in the others, and linear_head_dim is there. */
static sl_status hf_delta(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    bool safe = true;
    double bound = 0;
    SL_TRY(arch_hf_int(o, "linear_head_dim|head_dim", ARCH_RANGE(128, 1, 65536), &c->d_delta_k,
                       err));
    SL_TRY(arch_hf_int(o, "linear_num_heads|num_attention_heads", ARCH_RANGE(32, 1, 4096),
                       &c->n_delta_k, err));
    SL_TRY(arch_hf_alias(o, "short_conv_kernel_size|linear_conv_kernel_dim",
                         ARCH_RANGE(4, 1, 1024), &c->n_conv, err));
    c->n_delta_v = c->n_delta_k;
    c->d_delta_v = c->d_delta_k;
    SL_TRY(arch_hf_bool(o, "kda_safe_gate", true, &safe, err));
    SL_TRY(arch_hf_real(o, "kda_lower_bound", ARCH_RANGE(-5, -80, -1e-3), &bound, err));
    if (safe) c->delta_bound = (float)bound;
    return hf_layers(o, c, err);
}

/* Limits of layers: null and 0 are none, as are those that the list is too short for. */
static sl_status hf_limits(const struct json *o, const char *key, bool shared, struct arch_cfg *c,
                           sl_err *err)
{
    const struct json *list = text_json_get(o, key);
    int i = 0;
    if (!list || list->kind == JSON_NULL_K) return SL_OK;
    if (list->kind != JSON_ARRAY_K) return SL_FAIL(err, FORMAT, "%s is not an array", key);
    for (const struct json *v = list->child; v && i < c->n_layer + c->n_mtp; v = v->next, i++) {
        bool none = v->kind == JSON_NULL_K;
        if (!none && !((v->kind == JSON_INT_K || v->kind == JSON_REAL_K) && v->f >= 0 &&
                       v->f <= 1e6))
            return SL_FAIL(err, FORMAT, "%s[%d] is not a number from 0 to 1e6", key, i);
        float *to = shared ? &c->layer[i].limit_shared : &c->layer[i].limit;
        *to = none ? 0 : (float)v->f;
    }
    return SL_OK;
}

static sl_status hf_experts(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {512, 8, 2, 768, 8, 4, 2.5};
    int shared = 0;
    SL_TRY(arch_hf_moe_v3(o, &def, c, err));
    SL_TRY(arch_hf_int(o, "moe_shared_expert_intermediate_size",
                       ARCH_RANGE(c->d_ff_expert, 1, 1 << 22), &shared, err));
    if (shared != c->d_ff_expert) c->d_ff_shared = shared * c->n_shared;
    SL_TRY(hf_limits(o, "expert_swiglu_limit_list", false, c, err));
    SL_TRY(hf_limits(o, "share_expert_swiglu_limit_list", true, c, err));
    return arch_hf_mlp_types(o, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    set_fixed(c);
    SL_TRY(hf_switches(o, err));
    SL_TRY(arch_hf_alias(o, "max_position_embeddings|model_max_length",
                         ARCH_RANGE(262144, 1, 1 << 28), &c->n_ctx_train, err));
    SL_TRY(arch_hf_latents(o, c, err));
    SL_TRY(arch_hf_rope(o, c->d_rope, c, err));
    SL_TRY(check_rope(c, err));
    SL_TRY(hf_delta(o, c, err));
    return hf_experts(o, c, err);
}

/* ---- GGUF ---- */

static sl_status gguf_limits(const io_model *m, const char *key, bool shared, struct arch_cfg *c,
                             sl_err *err)
{
    struct io_array arr;
    if (!arch_gguf_array(m, key, &arr)) return SL_OK;
    for (int i = 0; i < c->n_layer + c->n_mtp && (uint64_t)i < arr.n; i++) {
        double v = 0;
        if (!io_array_f64(&arr, (uint64_t)i, &v) || !(v >= 0 && v <= 1e6))
            return SL_FAIL(err, FORMAT, "%s: %s[%d] is not a number from 0 to 1e6", io_path(m), key,
                           i);
        float *to = shared ? &c->layer[i].limit_shared : &c->layer[i].limit;
        *to = v > 1e-6 ? (float)v : 0; /* as llama.cpp */
    }
    return SL_OK;
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    bool safe = true;
    double bound = 0;
    int shared = 0;
    SL_TRY(arch_gguf_latents(m, c, err));
    SL_TRY(check_rope(c, err));
    SL_TRY(arch_gguf_kda(m, c, err));
    SL_TRY(arch_gguf_flag(m, "kda.safe_gate", true, &safe, err));
    if (!safe) return SL_FAIL(err, UNSUPPORTED, "%s: kda.safe_gate is false", io_path(m));
    SL_TRY(arch_gguf_real(m, "kda.gate_lower_bound", ARCH_RANGE(-1e9, -80, -1e-3), &bound, err));
    c->delta_bound = (float)bound;
    SL_TRY(arch_gguf_int(m, "expert_shared_feed_forward_length",
                         ARCH_RANGE(c->d_ff_expert, 0, 1 << 22), &shared, err));
    if (c->n_shared && shared != c->d_ff_expert * c->n_shared) c->d_ff_shared = shared;
    SL_TRY(gguf_limits(m, "swiglu_clamp_exp", false, c, err));
    SL_TRY(gguf_limits(m, "swiglu_clamp_shexp", true, c, err));
    set_fixed(c);
    return SL_OK;
}

/* ---- writing ---- */

/* Limits of n layers; false: none has one. */
static bool limits_of(const struct arch_cfg *c, bool shared, int n, float *out)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        out[i] = shared ? c->layer[i].limit_shared : c->layer[i].limit;
        any = any || out[i] > 0;
    }
    return any;
}

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    float limit[LAYER_MAX + 16];
    int n = c->n_layer + k->n_mtp;
    if (!(c->delta_bound < 0))
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: kda_safe_gate false, which no reader of GGUF computes",
                       k->path);
    SL_TRY(arch_put_kda(c, k, err));
    arch_put_flag(k, "kda.safe_gate", true);
    arch_put_real(k, "kda.gate_lower_bound", (double)c->delta_bound);
    if (c->n_shared) arch_put_int(k, "expert_shared_feed_forward_length", arch_d_shared(c));
    if (limits_of(c, false, n, limit)) arch_put_reals(k, "swiglu_clamp_exp", limit, n);
    if (limits_of(c, true, n, limit)) arch_put_reals(k, "swiglu_clamp_shexp", limit, n);
    return SL_OK;
}

static void put_limits(const struct arch_cfg *c, const char *key, bool shared, struct json_w *w)
{
    float limit[LAYER_MAX + 16];
    int n = c->n_layer + c->n_mtp;
    if (!limits_of(c, shared, n, limit)) return;
    text_jw_key(w, key);
    text_jw_arr(w);
    for (int i = 0; i < n; i++)
        text_jw_real(w, (double)limit[i], 9);
    text_jw_arr_end(w);
}

static void put_layers(const struct arch_cfg *c, struct json_w *w)
{
    int every = 1;
    bool even = true;
    while (every < c->n_layer && c->layer[every - 1].mixer == ARCH_DELTA)
        every++;
    for (int i = 0; i < c->n_layer; i++)
        even = even && (c->layer[i].mixer == ARCH_DELTA) == ((i + 1) % every != 0);
    if (even && c->n_layer % every == 0) {
        text_jw_key_int(w, "layer_group_size", every);
        return;
    }
    arch_jw_layer_types(c, arch_is_delta, "linear_attention", "full_attention", w);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (!c->n_expert)
        return SL_FAIL(err, UNSUPPORTED, "%s: no experts, which a folder of %s can not say",
                       io_path(src), c->arch);
    arch_jw_mla(c, w);
    put_layers(c, w);
    text_jw_key_int(w, "head_dim", c->d_delta_k);
    text_jw_key_int(w, "short_conv_kernel_size", c->n_conv);
    text_jw_key_bool(w, "no_kda_lora", true);
    text_jw_key_bool(w, "kda_safe_gate", c->delta_bound < 0);
    if (c->delta_bound < 0) arch_jw_real(w, "kda_lower_bound", (double)c->delta_bound);
    text_jw_key_strz(w, "gated_attention_proj_granularity_type", "head_wise");
    text_jw_key_bool(w, "rope_interleave", true);
    text_jw_key_int(w, "num_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    text_jw_key_int(w, "num_shared_experts", c->n_shared);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    if (c->n_shared)
        text_jw_key_int(w, "moe_shared_expert_intermediate_size", arch_d_shared(c) / c->n_shared);
    text_jw_key_int(w, "n_group", c->n_group);
    text_jw_key_int(w, "topk_group", c->n_group_used);
    text_jw_key_bool(w, "norm_topk_prob", c->route_norm);
    text_jw_key_strz(w, "score_function", "sigmoid");
    text_jw_key_strz(w, "topk_method", "noaux_tc");
    text_jw_key_bool(w, "moe_router_enable_expert_bias", true);
    arch_jw_real(w, "routed_scaling_factor", (double)c->route_scale);
    put_limits(c, "expert_swiglu_limit_list", false, w);
    put_limits(c, "share_expert_swiglu_limit_list", true, w);
    arch_jw_dense_lead(c, w);
    if (c->n_vocab < N_VOCAB) text_jw_key_null(w, "pad_token_id");
    return SL_OK;
}

#define ATTENTION(role, name)                                                                      \
    {                                                                                              \
        ROLE_##role, NULL, "attention." name                                                       \
    }
static const struct arch_alias alias[] = {ATTENTION(Q, "q_proj"),
                                          ATTENTION(K, "k_proj"),
                                          ATTENTION(V, "v_proj"),
                                          ATTENTION(O, "dense"),
                                          ATTENTION(Q_A, "q_a_proj"),
                                          ATTENTION(Q_A_NORM, "q_a_layernorm"),
                                          ATTENTION(Q_B, "q_b_proj"),
                                          ATTENTION(KV_A, "kv_a_proj_with_mqa"),
                                          ATTENTION(KV_A_NORM, "kv_a_layernorm"),
                                          ATTENTION(KV_B, "kv_b_proj"),
                                          {ROLE_HEAD_GATE, "attn_gate", "attention.g_proj"},
                                          ATTENTION(DELTA_B, "b_proj"),
                                          ATTENTION(DELTA_DT, "dt_bias."),
                                          ATTENTION(DELTA_DECAY, "A_log."),
                                          ATTENTION(DELTA_NORM, "o_norm"),
                                          ATTENTION(KDA_CONV_Q, "q_conv1d"),
                                          ATTENTION(KDA_CONV_K, "k_conv1d"),
                                          ATTENTION(KDA_CONV_V, "v_conv1d"),
                                          ATTENTION(KDA_F_A, "f_proj"),
                                          {ROLE_KDA_G_A, NULL, ""},
                                          {ROLE_MTP_HEAD_NORM, "layer_output_norm",
                                           "final_layernorm"},
                                          {N_ROLE, NULL, NULL}},
                               in_delta[] = {ATTENTION(O, "o_proj"),
                                             ATTENTION(KDA_G_A, "g_proj"),
                                             {ROLE_HEAD_GATE, "", ""},
                                             {N_ROLE, NULL, NULL}};

static const struct arch_groups known[] = {
    {512, 42, 8, 4} /* Ling-3.0-flash */, {128, 24, 8, 4} /* -tiny */, {0}};

const struct arch arch_bailing_hybrid = {
    .name = "bailing_hybrid",
    .gguf = "bailingmoe3",
    .hf_type = "bailing_hybrid",
    .hf_class = "BailingMoeV3ForCausalLM",
    .tool_family = "glm",
    .hf_keys = ARCH_HF_KEYS_MLA
    "|" ARCH_HF_KEYS_MOE
    "|partial_rotary_factor|rotary_dim|qk_head_dim|layer_group_size|short_conv_kernel_size|"
    "linear_num_heads|linear_head_dim|linear_conv_kernel_dim|kda_safe_gate|kda_lower_bound|"
    "no_kda_lora|use_kda_lora|use_mla_nope|linear_silu|use_qk_norm|group_norm_size|"
    "gated_attention_proj_granularity_type|mlp_layer_types|num_experts_per_token|"
    "num_shared_experts|num_expert_group|moe_renormalize|moe_shared_expert_intermediate_size|"
    "moe_router_enable_expert_bias|score_function|scoring_func|expert_swiglu_limit_list|"
    "share_expert_swiglu_limit_list",
    .gguf_keys = ARCH_GGUF_KEYS_MLA
    "|ssm.conv_kernel|kda.head_dim|kda.safe_gate|kda.gate_lower_bound|"
    "expert_shared_feed_forward_length|swiglu_clamp_exp|swiglu_clamp_shexp",
    .alias = alias,
    .in_delta = in_delta,
    .embed = "model.word_embeddings.weight",
    .selects = "expert_bias",
    .no_keys = true,
    .ffn_scale_unused = true,
    .decay_plain = true,
    .groups = known,
    .unsaid = {.theta = 6e6},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
