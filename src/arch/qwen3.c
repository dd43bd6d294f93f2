/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3 (dense): GQA, RMSNorm of every query and key head before RoPE. */
#include "arch/row.h"

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    (void)m;
    (void)err;
    c->qk_norm = true;
    return SL_OK;
}

sl_status arch_hf_qwen3(const struct json *o, bool by_layer, struct arch_cfg *c, sl_err *err)
{
    c->qk_norm = true;
    SL_TRY(arch_hf_attn_bias(o, true, c, err));
    SL_TRY(arch_hf_switched_window(o, by_layer, c, err));
    SL_TRY(arch_hf_rope(o, c->d_head, c, err));
    return arch_hf_dual_chunk(o, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    return arch_hf_qwen3(o, true, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, true, true, w, err));
    return arch_jw_heads(c, src, w, err);
}

const struct arch arch_qwen3 = {
    .name = "qwen3",
    .place = 3,
    .gguf = "qwen3",
    .hf_type = "qwen3",
    .hf_class = "Qwen3ForCausalLM",
    .tool_family = "hermes",
    .hf_keys = "sliding_window|use_sliding_window|*qkv_bias*|dual_chunk_attention_config|"
               ARCH_HF_KEYS_QK_NORM,
    .gguf_keys = ARCH_GGUF_KEYS_WINDOW "|attention.scale",
    .unsaid = {.d_head = 128},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_hf = write_hf,
};
