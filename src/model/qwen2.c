/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5: GQA with biases on q, k and v. */
#include "model/model_internal.h"

static sl_status read_gguf(const io_model *m, struct model_cfg *c, sl_err *err)
{
    (void)m;
    (void)err;
    c->attn_bias = true;
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct model_cfg *c, sl_err *err)
{
    bool sliding = false;
    c->attn_bias = true;
    SL_TRY(text_json_bool(o, "use_sliding_window", false, &sliding, err));
    if (sliding)
        SL_TRY(model_hf_window(o, 4096, true, c, err));
    else
        SL_TRY(model_hf_layer_types(o, true, c, err));
    return model_hf_rope(o, c->d_head, c, err);
}

const struct model_arch model_arch_qwen2 = {
    .name = "qwen2", .gguf = "qwen2", .hf_type = "qwen2", .read_gguf = read_gguf, .read_hf = read_hf};
