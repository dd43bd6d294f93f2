/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.5 and 3.6 with experts, alone or nested in a model that sees: Qwen3-Next with the delta
 * layers' projections apart; GGUF files have the value heads in another order. */
#include "arch/row.h"

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_delta_moe def = {256, 8};
    SL_TRY(arch_hf_delta(o, c, err));
    SL_TRY(arch_hf_delta_moe(o, &def, c, err));
    if (c->n_expert && !c->route_norm) /* the class does, whatever is said */
        return SL_FAIL(err, UNSUPPORTED, "norm_topk_prob false is not supported");
    return SL_OK;
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    for (int i = 0; i < c->n_layer; i++)
        if (!c->route_norm || c->layer[i].ffn != ARCH_MOE)
            return SL_FAIL(
                err, UNSUPPORTED,
                "%s: weights of experts that are not normalised, or a dense layer, which "
                "a folder of %s can not say",
                io_path(src), c->arch);
    return arch_jw_delta(c, src, w, err);
}

static const struct arch_alias alias[] = {ARCH_DELTA_ALIAS, {N_ROLE, NULL, NULL}};

const struct arch arch_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .gguf = "qwen35moe",
    .hf_type = "qwen3_5_moe_text|qwen3_5_moe",
    .hf_class = "Qwen3_5MoeForCausalLM",
    .tool_family = "qwen",
    .hf_keys = ARCH_HF_KEYS_DELTA "|" ARCH_HF_KEYS_DELTA_MOE,
    .gguf_keys = ARCH_GGUF_KEYS_DELTA "|" ARCH_GGUF_KEYS_DELTA_MOE,
    .alias = alias,
    .mtp_apart = true,
    .norm_one = true,
    .no_keys = true,
    .delta_tiled = true,
    .unsaid = {.d_head = 256},
    .read_gguf = arch_gguf_delta_moe,
    .read_hf = read_hf,
    .write_gguf = arch_put_delta,
    .write_hf = write_hf,
};
