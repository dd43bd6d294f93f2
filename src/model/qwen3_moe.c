/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-MoE: Qwen3's attention; softmax over all experts, the best K, renormalised when norm_topk_prob; no shared expert. */
#include "model/model_internal.h"

static sl_status read_gguf(const io_model *m, struct model_cfg *c, sl_err *err)
{
    c->qk_norm = true;
    SL_TRY(model_gguf_moe(m, c, err));
    c->group_max = true;
    if (!c->n_expert) return SL_OK;
    double scale = 0;
    int gating = 0;
    SL_TRY(model_gguf_real(m, "expert_weights_scale", 1.0, 0, 1e6, &scale, err));
    c->route_scale = scale == 0 ? 1.0f : (float)scale;
    SL_TRY(model_gguf_int(m, "expert_gating_func", 1, 0, 2, &gating, err));
    c->route_sigmoid = gating == 2;
    return model_gguf_flag(m, "expert_weights_norm", true, &c->route_norm, err);
}

static sl_status read_layers(const struct json *o, struct model_cfg *c, sl_err *err)
{
    int step = 1;
    SL_TRY(model_hf_int(o, "decoder_sparse_step", 1, 1, 1024, &step, err));
    for (int i = 0; i < c->n_layer; i++) c->moe_layer[i] = c->n_expert > 0 && (i + 1) % step == 0;
    const struct json *only = text_json_get(o, "mlp_only_layers");
    if (!only || only->kind == JSON_NULL_K) return SL_OK;
    if (only->kind != JSON_ARRAY_K) return SL_FAIL(err, FORMAT, "mlp_only_layers is not an array");
    for (const struct json *v = only->child; v; v = v->next) {
        if (v->kind != JSON_INT_K || v->i < 0) return SL_FAIL(err, FORMAT, "mlp_only_layers: not a layer number");
        if (v->i < c->n_layer) c->moe_layer[v->i] = 0;
    }
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct model_cfg *c, sl_err *err)
{
    SL_TRY(model_hf_qwen3(
        o, false, c,
        err)); /* transformers gives the window to all layers, whatever max_window_layers says */
    SL_TRY(model_hf_int(o, "num_experts|num_local_experts", -1, 0, 4096, &c->n_expert, err));
    c->group_max = true;
    if (c->n_expert) {
        SL_TRY(model_hf_int(o, "num_experts_per_tok", -1, 1, 64, &c->n_expert_used, err));
        SL_TRY(model_hf_int(o, "moe_intermediate_size", -1, 1, 1 << 22, &c->d_ff_expert, err));
        SL_TRY(text_json_bool(o, "norm_topk_prob", false, &c->route_norm, err));
    }
    return read_layers(o, c, err);
}

const struct model_arch model_arch_qwen3_moe = {
    .name = "qwen3_moe", .gguf = "qwen3moe", .hf_type = "qwen3_moe", .read_gguf = read_gguf, .read_hf = read_hf};
