/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-4.7-Flash: DeepSeek-V3's layers with one group of experts. Its GGUF files say deepseek2, so
 * that only folders come here. */
#include "arch/row.h"

static bool match_gguf(const io_model *m)
{
    (void)m;
    return false;
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {64, 4, 1, 1536, 1, 1, 1.8};
    SL_TRY(arch_hf_mla(o, c, err));
    SL_TRY(arch_hf_moe_v3(o, &def, c, err));
    return arch_hf_mlp_types(o, c, err);
}

const struct arch arch_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .gguf = "deepseek2",
    .hf_type = "glm4_moe_lite",
    .hf_class = "Glm4MoeLiteForCausalLM",
    .tool_family = "glm",
    .hf_keys = "scoring_func|mlp_layer_types|" ARCH_HF_KEYS_MLA "|" ARCH_HF_KEYS_MOE,
    .gguf_keys = ARCH_GGUF_KEYS_MLA,
    .ffn_scale_unused = true,
    .unsaid = {.eps = 1e-5},
    .match_gguf = match_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe_shared,
};
