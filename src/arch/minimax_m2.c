/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M2: GQA with one RMSNorm over all query heads and one over all key heads, of which a part
 * of each head is rotated; experts in every layer, chosen by sigmoid and bias, no shared one. */
#include "arch/row.h"

static void norms(struct arch_cfg *c)
{
    c->qk_norm = true;
    c->d_q_norm = c->n_head * c->d_head;
    c->d_k_norm = c->n_head_kv * c->d_head;
    c->unshared = "a norm over all heads at once";
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    norms(c);
    SL_TRY(arch_gguf_moe(m, c, err));
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_gguf_router(m, true, true, c, err));
    c->route_bias = c->route_sigmoid;
    c->group_max = !c->route_sigmoid;
    return SL_OK;
}

/* attn_type_list: 1 is full attention; the others are of models before this one. */
static sl_status check_layers(const struct json *o, sl_err *err)
{
    const struct json *list = text_json_get(o, "attn_type_list");
    int i = 0;
    for (const struct json *v = list && list->kind == JSON_ARRAY_K ? list->child : NULL; v;
         v = v->next, i++)
        if (v->kind != JSON_INT_K || v->i != 1)
            return SL_FAIL(err, UNSUPPORTED, "attn_type_list[%d] is not 1 (full attention)", i);
    return SL_OK;
}

/* A switch that all published models have on. */
static sl_status must(const struct json *o, const char *key, sl_err *err)
{
    bool on = true;
    SL_TRY(arch_hf_bool(o, key, true, &on, err));
    return on ? SL_OK : SL_FAIL(err, UNSUPPORTED, "%s false is not supported", key);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    int n_rot = 0;
    norms(c);
    SL_TRY(must(o, "use_qk_norm", err));
    SL_TRY(must(o, "use_routing_bias", err));
    SL_TRY(arch_hf_must_be(o, "qk_norm_type", "per_layer", err));
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    SL_TRY(check_layers(o, err));
    SL_TRY(arch_hf_layer_types(o, false, c, err));
    SL_TRY(arch_hf_n_rot(o, 1.0, c, &n_rot, err));
    SL_TRY(arch_hf_int(o, "rotary_dim", ARCH_RANGE(n_rot, 2, 65536), &n_rot, err));
    SL_TRY(arch_hf_rope(o, n_rot, c, err));
    SL_TRY(arch_hf_alias(o, "num_local_experts|num_experts", ARCH_RANGE(-1, 1, 4096), &c->n_expert,
                         err));
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].ffn = ARCH_MOE;
    SL_TRY(arch_hf_int(o, "num_experts_per_tok", ARCH_RANGE(-1, 1, 64), &c->n_expert_used, err));
    c->d_ff_expert = c->d_ff;
    c->route_norm = c->route_sigmoid = c->route_bias = true;
    return SL_OK;
}

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    SL_TRY(arch_put_moe(c, k, err));
    arch_put_int(k, "expert_gating_func", 2);
    return SL_OK;
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (!c->route_sigmoid || !c->route_norm || c->route_scale != 1.0f || c->d_ff != c->d_ff_expert)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: keys of experts, which a folder of minimax_m2 can not say",
                       io_path(src));
    text_jw_key_int(w, "head_dim", c->d_head);
    text_jw_key_int(w, "rotary_dim", c->n_rot);
    text_jw_key_int(w, "num_local_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    text_jw_key_strz(w, "scoring_func", "sigmoid");
    text_jw_key_strz(w, "qk_norm_type", "per_layer");
    text_jw_key_bool(w, "use_qk_norm", true);
    text_jw_key_bool(w, "use_routing_bias", true);
    return SL_OK;
}

static const struct arch_alias alias[] = {{ROLE_ROUTER, NULL, "block_sparse_moe.gate"},
                                          {ROLE_ROUTER_BIAS, NULL, "block_sparse_moe"},
                                          {ROLE_GATE_EXPS, NULL, "block_sparse_moe.experts.%d.w1"},
                                          {ROLE_UP_EXPS, NULL, "block_sparse_moe.experts.%d.w3"},
                                          {ROLE_DOWN_EXPS, NULL, "block_sparse_moe.experts.%d.w2"},
                                          {N_ROLE, NULL, NULL}};

const struct arch arch_minimax_m2 = {
    .name = "minimax_m2",
    .gguf = "minimax-m2",
    .hf_type = "minimax_m2",
    .hf_class = "MiniMaxM2ForCausalLM",
    .tool_family = "minimax",
    .hf_keys = "partial_rotary_factor|rotary_dim|use_qk_norm|qk_norm_type|use_routing_bias|"
               "attn_type_list|mlp_intermediate_size|shared_moe_mode|" /* of layers it has not */
               "scoring_func|num_experts|num_local_experts|num_experts_per_tok",
    .gguf_keys = ARCH_GGUF_KEYS_MOE,
    .ffn_scale_unused = true,
    .alias = alias,
    .unsaid = {.theta = 5e6, .d_head = 128},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
