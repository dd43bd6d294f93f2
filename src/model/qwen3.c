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

sl_status model_hf_qwen3(const struct json *o, bool by_layer, struct model_cfg *c, sl_err *err)
{
    bool sliding = false;
    c->qk_norm = true;
    SL_TRY(text_json_bool(o, "attention_bias", false, &c->attn_bias, err));
    SL_TRY(text_json_bool(o, "use_sliding_window", false, &sliding, err));
    if (sliding)
        SL_TRY(model_hf_window(o, 4096, by_layer, c, err));
    else
        SL_TRY(model_hf_layer_types(o, by_layer, c, err));
    return model_hf_rope(o, c->d_head, c, err);
}

static sl_status read_hf(const struct json *o, struct model_cfg *c, sl_err *err)
{
    SL_TRY(model_hf_int(o, "head_dim", 128, 1, 65536, &c->d_head, err));
    c->attn_scale = 1.0 / __builtin_sqrt((double)c->d_head);
    return model_hf_qwen3(o, true, c, err);
}

const struct model_arch model_arch_qwen3 = {
    .name = "qwen3", .gguf = "qwen3", .hf_type = "qwen3", .read_gguf = read_gguf, .read_hf = read_hf};
