/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-5, 5.1 and 5.2: DeepSeek-V3.2's layers with one group of experts and another rope in the
 * indexer; layers of the later ones share the positions that one below them has chosen. */
#include "arch/row.h"

extern const struct arch arch_deepseek_v2;

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_deepseek_v2.read_gguf(m, c, err));
    SL_TRY(arch_gguf_index(m, c, err));
    return arch_gguf_index_layers(m, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {256, 8, 3, 2048, 1, 1, 2.5};
    SL_TRY(arch_hf_index(o, 32, c, err));
    SL_TRY(arch_hf_mla(o, c, err));
    c->rope_style = ARCH_ROPE_PAIRS; /* whatever rope_interleave says */
    SL_TRY(arch_hf_must_be(o, "scoring_func", "sigmoid", err));
    SL_TRY(arch_hf_must_be(o, "topk_method", "noaux_tc", err));
    SL_TRY(arch_hf_moe_v3(o, &def, c, err));
    SL_TRY(arch_hf_index_layers(o, c, err));
    return arch_hf_mlp_types(o, c, err);
}

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    arch_put_index_layers(c, k);
    return arch_put_index(c, k, err);
}

static const struct arch_groups known[] = {{256, 78, 1, 1}, {0}};

/* index_share_for_mtp_iteration says how an MTP layer makes more than one draft: no result of the
 * model depends on it. The frequency and the offset of a GGUF file say what its tensors do. */
const struct arch arch_glm_moe_dsa = {
    .name = "glm_moe_dsa",
    .gguf = "glm-dsa",
    .hf_type = "glm_moe_dsa",
    .hf_class = "GlmMoeDsaForCausalLM",
    .tool_family = "glm",
    .hf_keys = "indexer_types|index_topk_pattern|index_topk_freq|index_skip_topk_offset|"
               "index_share_for_mtp_iteration|" ARCH_HF_KEYS_INDEX,
    .gguf_keys = "attention.indexer.types|attention.indexer.top_k_frequency|"
                 "attention.indexer.skip_top_k_offset|" ARCH_GGUF_KEYS_INDEX,
    .ffn_scale_unused = true,
    .unsaid = {.eps = 1e-5},
    .index_rope = ARCH_ROPE_PAIRS,
    .groups = known,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = arch_jw_index,
};
