/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3 (dense): GQA, RMSNorm of every query and key head before RoPE. */
#include "model/model_internal.h"

static sl_status read_gguf(const io_model *m, struct model_cfg *c, sl_err *err)
{
    (void)m;
    (void)err;
    c->qk_norm = true;
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct model_cfg *c, sl_err *err)
{
    bool sliding = false;
    c->qk_norm = true;
    SL_TRY(model_hf_int(o, "head_dim", 128, 1, 65536, &c->d_head, err));
    c->attn_scale = 1.0 / __builtin_sqrt((double)c->d_head);
    SL_TRY(text_json_bool(o, "attention_bias", false, &c->attn_bias, err));
    SL_TRY(text_json_bool(o, "use_sliding_window", false, &sliding, err));
    if (sliding) {
        SL_TRY(model_hf_int(o, "sliding_window", 0, 0, 1 << 28, &c->n_window, err));
        SL_TRY(model_hf_int(o, "max_window_layers", 28, 0, 1024, &c->window_from, err));
    }
    return model_hf_rope(o, c->d_head, c, err);
}

const struct model_arch model_arch_qwen3 = {
    .name = "qwen3", .gguf = "qwen3", .hf_type = "qwen3", .read_gguf = read_gguf, .read_hf = read_hf};
