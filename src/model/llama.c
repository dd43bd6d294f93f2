/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3, SmolLM, Mistral: GQA, gated SiLU. In GGUF the rows of q and k are permuted so that RoPE works on pairs (FORMATS 4.9); a llama3
 * scaling is the tensor rope_freqs.weight. */
#include "model/model_internal.h"

static sl_status read_gguf(const io_model *m, struct model_cfg *c, sl_err *err)
{
    int n_expert = 0;
    SL_TRY(model_gguf_int(m, "expert_count", 0, 0, 4096, &n_expert, err));
    if (n_expert)
        return SL_FAIL(err, UNSUPPORTED, "%s: architecture 'llama' with %d experts (Mixtral) is not supported",
                       io_path(m), n_expert);
    c->rope_style = MODEL_ROPE_PAIRS;
    return SL_OK;
}

static sl_status read_hf(const struct json *o, struct model_cfg *c, sl_err *err)
{
    if (text_json_is(text_json_get(o, "model_type"), "mistral")) {
        SL_TRY(model_hf_window(o, 4096, false, c, err));
    } else {
        int window = 0; /* of an architecture that has none: harmless only where it holds all of the
                           context */
        SL_TRY(model_hf_int(o, "sliding_window", 0, 0, 1 << 28, &window, err));
        if (window && window < c->n_ctx_train)
            return SL_FAIL(
                err, UNSUPPORTED,
                "sliding_window is %d, which model_type llama does not have (mistral does)",
                window);
        SL_TRY(model_hf_layer_types(o, false, c, err));
    }
    SL_TRY(text_json_bool(o, "attention_bias", false, &c->attn_bias, err));
    return model_hf_rope(o, c->d_head, c, err);
}

const struct model_arch model_arch_llama = {
    .name = "llama", .gguf = "llama|mistral", .hf_type = "llama|mistral", .read_gguf = read_gguf, .read_hf = read_hf};
