/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3, R1, V3.1, Kimi-K2 and, nested in a model that sees, K2.5: MLA, sigmoid gate with a
 * bias that chooses but does not weigh, groups scored by their two best, MTP layers. */
#include "arch/row.h"

extern const struct arch arch_deepseek_v2;

static bool match_gguf(const io_model *m)
{
    uint64_t gating = 0;
    return io_meta_u64(m, "deepseek2.expert_gating_func", &gating, NULL) == SL_OK && gating == 2;
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    return arch_deepseek_v2.read_gguf(m, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {-1, 8, 3, 2048, 8, 4, 2.5};
    SL_TRY(arch_hf_mla(o, c, err));
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    SL_TRY(arch_hf_must_be(o, "topk_method", "noaux_tc", err));
    return arch_hf_moe_v3(o, &def, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, false, false, w, err));
    arch_jw_mla(c, w);
    if (c->n_expert) arch_jw_moe_shared(c, "sigmoid", "noaux_tc", w);
    return SL_OK;
}

static const struct arch_groups known[] = {
    {256, 61, 8, 4} /* DeepSeek-V3, R1 */, {384, 61, 1, 1} /* Kimi-K2 */, {0}};

const struct arch arch_deepseek_v3 = {
    .name = "deepseek_v3",
    .place = 6,
    .gguf = "deepseek2",
    .hf_type = "deepseek_v3|kimi_k2|kimi_k25",
    .hf_class = "DeepseekV3ForCausalLM",
    .hf_keys = "scoring_func|moe_layer_freq|" ARCH_HF_KEYS_MLA "|" ARCH_HF_KEYS_MOE,
    .gguf_keys = ARCH_GGUF_KEYS_MLA,
    .ffn_scale_unused = true,
    .groups = known,
    .match_gguf = match_gguf,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe_shared,
    .write_hf = write_hf,
};
