/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3, SmolLM, Mistral: GQA, gated SiLU. In GGUF the rows of q and k are permuted so that
 * RoPE works on pairs; a llama3 scaling is the tensor rope_freqs.weight. */
#include "arch/row.h"

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int n_expert = 0;
    SL_TRY(arch_gguf_int(m, "expert_count", ARCH_RANGE(0, 0, 4096), &n_expert, err));
    if (n_expert)
        return SL_FAIL(err, UNSUPPORTED, "%s: %s with %d experts is not supported", io_path(m),
                       c->arch, n_expert);
    c->rope_style = ARCH_ROPE_PAIRS;
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    if (text_json_is(text_json_get(o, "model_type"), "mistral")) {
        SL_TRY(arch_hf_window(o, 4096, false, c, err));
    } else {
        int window = 0; /* of an architecture that has none: harmless only where it holds all of the
                           context */
        SL_TRY(arch_hf_int(o, "sliding_window", ARCH_RANGE(0, 0, 1 << 28), &window, err));
        if (window && window < c->n_ctx_train)
            return SL_FAIL(err, UNSUPPORTED, "sliding_window is %d, but %s has none", window,
                           c->arch);
        SL_TRY(arch_hf_layer_types(o, false, c, err));
    }
    SL_TRY(arch_hf_attn_bias(o, true, c, err));
    return arch_hf_rope(o, c->d_head, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (c->n_window) SL_TRY(arch_jw_window(c, src, false, false, w, err));
    return arch_jw_heads(c, src, w, err);
}

const struct arch arch_llama = {
    .name = "llama",
    .place = 1,
    .gguf = "llama|mistral",
    .hf_type = "llama|mistral",
    .hf_class = "LlamaForCausalLM",
    .window_type = "mistral",
    .window_class = "MistralForCausalLM",
    .hf_keys = "sliding_window|*qkv_bias*",
    .gguf_keys = ARCH_GGUF_KEYS_WINDOW "|attention.scale",
    .permutes_qk = true,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_hf = write_hf,
};
