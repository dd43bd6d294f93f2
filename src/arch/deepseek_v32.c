/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3.2: DeepSeek-V3's layers, in which a lightning indexer chooses the positions that a
 * token sees. Its older GGUF files, without the indexer, say deepseek2 and are DeepSeek-V3's. */
#include "arch/row.h"

extern const struct arch arch_deepseek_v2, arch_deepseek_v3;

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_deepseek_v2.read_gguf(m, c, err));
    return arch_gguf_index(m, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_hf_index(o, 64, c, err));
    SL_TRY(arch_deepseek_v3.read_hf(o, c, err));
    c->rope_style = ARCH_ROPE_PAIRS; /* whatever rope_interleave says */
    return arch_hf_mlp_types(o, c, err);
}

static const struct arch_groups known[] = {{256, 61, 8, 4}, {0}};

const struct arch arch_deepseek_v32 = {
    .name = "deepseek_v32",
    .gguf = "deepseek32",
    .hf_type = "deepseek_v32",
    .hf_class = "DeepseekV32ForCausalLM",
    .tool_family = "dsml",
    .hf_keys = ARCH_HF_KEYS_INDEX,
    .gguf_keys = ARCH_GGUF_KEYS_INDEX,
    .ffn_scale_unused = true,
    .index_rope = ARCH_ROPE_HALF,
    .groups = known,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_index,
    .write_hf = arch_jw_index,
};
