/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next: gated delta layers, every fourth layer gated attention of which a quarter of each
 * head is rotated; Qwen3-MoE's router in every layer, and a shared expert with a gate. Folders have
 * the delta layers' projections in two matrices, rows by key head. */
#include "arch/row.h"

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_delta_moe def = {512, 10};
    SL_TRY(arch_hf_delta(o, c, err));
    return arch_hf_delta_moe(o, &def, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_delta(c, src, w, err));
    text_jw_key_bool(w, "norm_topk_prob", c->route_norm);
    if (c->n_mtp) text_jw_key_int(w, "num_nextn_predict_layers", c->n_mtp); /* as servers ask it */
    arch_jw_sparse_layers(c, w);
    return SL_OK;
}

static const struct arch_alias alias[] = {ARCH_DELTA_ALIAS, {N_ROLE, NULL, NULL}};

const struct arch arch_qwen3_next = {
    .name = "qwen3_next",
    .gguf = "qwen3next",
    .hf_type = "qwen3_next",
    .hf_class = "Qwen3NextForCausalLM",
    .tool_family = "hermes",
    .hf_keys = ARCH_HF_KEYS_DELTA "|" ARCH_HF_KEYS_DELTA_MOE "|decoder_sparse_step|mlp_only_layers",
    .gguf_keys = ARCH_GGUF_KEYS_DELTA "|" ARCH_GGUF_KEYS_DELTA_MOE,
    .alias = alias,
    .mtp_apart = true,
    .norm_one = true,
    .no_keys = true,
    .delta_packed = true,
    .unsaid = {.d_head = 256},
    .read_gguf = arch_gguf_delta_moe,
    .read_hf = read_hf,
    .write_gguf = arch_put_delta,
    .write_hf = write_hf,
};
