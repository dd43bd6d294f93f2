/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5: GQA with biases on q, k and v. */
#include "arch/row.h"

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    (void)m;
    (void)err;
    c->attn_bias = true;
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    c->attn_bias = true;
    SL_TRY(arch_hf_switched_window(o, true, c, err));
    SL_TRY(arch_hf_rope(o, c->d_head, c, err));
    return arch_hf_dual_chunk(o, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, true, true, w, err));
    return arch_jw_heads(c, src, w, err);
}

const struct arch arch_qwen2 = {
    .name = "qwen2",
    .place = 2,
    .gguf = "qwen2",
    .hf_type = "qwen2",
    .hf_class = "Qwen2ForCausalLM",
    .tool_family = "hermes",
    .hf_keys = "sliding_window|use_sliding_window|*qkv_bias*|dual_chunk_attention_config",
    .gguf_keys = ARCH_GGUF_KEYS_WINDOW "|attention.scale",
    .ffn_scale_unused = true,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_hf = write_hf,
};
