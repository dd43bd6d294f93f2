/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-MoE: Qwen3's attention; softmax over all experts, the best K, renormalised when
 * norm_topk_prob; no shared expert. */
#include "arch/row.h"

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    c->qk_norm = true;
    SL_TRY(arch_gguf_moe(m, c, err));
    c->group_max = true;
    if (!c->n_expert) return SL_OK;
    return arch_gguf_router(m, true, false, c, err);
}

sl_status arch_hf_sparse_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    int step = 1;
    SL_TRY(arch_hf_int(o, "decoder_sparse_step", ARCH_RANGE(1, 1, 1024), &step, err));
    for (int i = 0; i < c->n_layer && c->n_expert; i++)
        if ((i + 1) % step == 0) c->layer[i].ffn = ARCH_MOE;
    const struct json *only = text_json_get(o, "mlp_only_layers");
    if (!only || only->kind == JSON_NULL_K) return SL_OK;
    if (only->kind != JSON_ARRAY_K) return SL_FAIL(err, FORMAT, "mlp_only_layers is not an array");
    for (const struct json *v = only->child; v; v = v->next) {
        if (v->kind != JSON_INT_K || v->i < 0)
            return SL_FAIL(err, FORMAT, "mlp_only_layers: not a layer number");
        if (v->i < c->n_layer) c->layer[v->i].ffn = ARCH_DENSE;
    }
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_hf_qwen3(
        o, false, c,
        err)); /* transformers gives the window to all layers, whatever max_window_layers says */
    SL_TRY(arch_hf_alias(o, "num_experts|num_local_experts", ARCH_RANGE(-1, 0, 4096), &c->n_expert,
                         err));
    c->group_max = true;
    if (c->n_expert) {
        SL_TRY(
            arch_hf_int(o, "num_experts_per_tok", ARCH_RANGE(-1, 1, 64), &c->n_expert_used, err));
        SL_TRY(arch_hf_int(o, "moe_intermediate_size", ARCH_RANGE(-1, 1, 1 << 22), &c->d_ff_expert,
                           err));
        SL_TRY(arch_hf_bool(o, "norm_topk_prob", false, &c->route_norm, err));
    }
    return arch_hf_sparse_layers(o, c, err);
}

void arch_jw_sparse_layers(const struct arch_cfg *c, struct json_w *w)
{
    text_jw_key_int(w, "decoder_sparse_step", 1);
    text_jw_key(w, "mlp_only_layers");
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer; i++)
        if (c->layer[i].ffn != ARCH_MOE) text_jw_int(w, i);
    text_jw_arr_end(w);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (c->route_sigmoid || c->route_scale != 1.0f)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: expert_gating_func or expert_weights_scale, which a folder of %s can not say",
            io_path(src), c->arch);
    SL_TRY(arch_jw_window(c, src, true, false, w, err));
    SL_TRY(arch_jw_heads(c, src, w, err));
    if (!c->n_expert) return SL_OK;
    text_jw_key_int(w, "num_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    text_jw_key_bool(w, "norm_topk_prob", c->route_norm);
    arch_jw_sparse_layers(c, w);
    return SL_OK;
}

const struct arch arch_qwen3_moe = {
    .name = "qwen3_moe",
    .place = 4,
    .gguf = "qwen3moe",
    .hf_type = "qwen3_moe",
    .hf_class = "Qwen3MoeForCausalLM",
    .tool_family = "hermes",
    .hf_keys = "sliding_window|use_sliding_window|*qkv_bias*|dual_chunk_attention_config|"
               ARCH_HF_KEYS_QK_NORM "|num_experts|num_local_experts|n_routed_experts|"
               "num_experts_per_tok|moe_intermediate_size|norm_topk_prob|decoder_sparse_step|"
               "mlp_only_layers",
    .gguf_keys = ARCH_GGUF_KEYS_WINDOW "|attention.scale|" ARCH_GGUF_KEYS_MOE,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe,
    .write_hf = write_hf,
};
