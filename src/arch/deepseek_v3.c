/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V3, R1, V3.1, Kimi-K2 and, nested in a model that sees, K2.5: MLA, sigmoid gate with a
 * bias that chooses but does not weigh, groups scored by their two best, MTP layers. */
#include <string.h>

#include "arch/row.h"

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
    const char *func = NULL, *method = NULL;
    SL_TRY(arch_hf_mla(o, c, err));
    SL_TRY(text_json_str(o, "scoring_func", "sigmoid", &func, err));
    if (strcmp(func, "sigmoid") != 0)
        return SL_FAIL(err, UNSUPPORTED, "scoring_func '%.40s' is not supported (sigmoid)", func);
    SL_TRY(text_json_str(o, "topk_method", "noaux_tc", &method, err));
    if (strcmp(method, "noaux_tc") != 0)
        return SL_FAIL(err, UNSUPPORTED, "topk_method '%.40s' is not supported (noaux_tc)", method);
    return arch_hf_moe_v3(o, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, false, false, w, err));
    arch_jw_mla(c, w);
    if (c->n_expert) arch_jw_moe_shared(c, "sigmoid", "noaux_tc", w);
    return SL_OK;
}

const struct arch arch_deepseek_v3 = {
    .name = "deepseek_v3",
    .gguf = "deepseek2",
    .hf_type = "deepseek_v3|kimi_k2|kimi_k25",
    .hf_class = "DeepseekV3ForCausalLM",
    .hf_keys = "rope_interleave|qk_rope_head_dim|qk_nope_head_dim|q_lora_rank|kv_lora_rank|"
               "v_head_dim|routed_scaling_factor|num_experts|num_local_experts|n_routed_experts|"
               "num_experts_per_tok|moe_intermediate_size|norm_topk_prob|n_shared_experts|n_group|"
               "topk_group|topk_method|first_k_dense_replace|moe_layer_freq|scoring_func",
    .gguf_keys = ARCH_GGUF_KEYS_MLA,
    .match_gguf = match_gguf,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe_shared,
    .write_hf = write_hf};
