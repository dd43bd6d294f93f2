/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-4.5, 4.6 and 4.7, and Air: GQA with biases on q, k and v, of which half of each head is
 * rotated; RMSNorm of query and key heads in the larger ones; DeepSeek-V3's router and shared
 * expert; an MTP layer. */
#include "arch/row.h"

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    c->qk_norm = arch_gguf_has(m, c, ROLE_Q_NORM);
    SL_TRY(arch_gguf_moe(m, c, err));
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_gguf_router(m, true, true, c, err));
    c->route_bias = c->route_sigmoid;
    c->group_max = !c->route_sigmoid;
    SL_TRY(arch_gguf_int(m, "expert_group_count", ARCH_RANGE(1, 1, 4096), &c->n_group, err));
    return arch_gguf_int(m, "expert_group_used_count", ARCH_RANGE(1, 1, 4096), &c->n_group_used,
                         err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    static const struct arch_moe_v3 def = {128, 8, 1, 1408, 1, 1, 1.0};
    int n_rot = 0;
    SL_TRY(arch_hf_attn_bias(o, false, c, err));
    SL_TRY(arch_hf_bool(o, "use_qk_norm", false, &c->qk_norm, err));
    SL_TRY(arch_hf_layer_types(o, false, c, err));
    SL_TRY(arch_hf_n_rot(o, 0.5, c, &n_rot, err));
    SL_TRY(arch_hf_rope(o, n_rot, c, err));
    return arch_hf_moe_v3(o, &def, c, err);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (!c->route_sigmoid)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: expert_gating_func 1, which a folder of glm4_moe can not say",
                       io_path(src));
    text_jw_key_int(w, "head_dim", c->d_head);
    text_jw_key_bool(w, "use_qk_norm", c->qk_norm);
    arch_jw_real(w, "partial_rotary_factor", (double)c->n_rot / c->d_head);
    text_jw_key_int(w, "num_nextn_predict_layers", c->n_mtp);
    if (c->n_expert) arch_jw_moe_shared(c, "sigmoid", "noaux_tc", w);
    return SL_OK;
}

static const struct arch_alias alias[] = {{ROLE_FFN_NORM, "post_attention_norm", NULL},
                                          {N_ROLE, NULL, NULL}};

const struct arch arch_glm4_moe = {
    .name = "glm4_moe",
    .gguf = "glm4moe",
    .hf_type = "glm4_moe",
    .hf_class = "Glm4MoeForCausalLM",
    .tool_family = "glm",
    .hf_keys = "partial_rotary_factor|use_qk_norm|scoring_func|moe_layer_freq|" ARCH_HF_KEYS_MOE,
    .gguf_keys = ARCH_GGUF_KEYS_MOE_SHARED ARCH_GGUF_KEYS_MTP,
    .ffn_scale_unused = true,
    .alias = alias,
    .unsaid = {.eps = 1e-5},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe_shared,
    .write_hf = write_hf,
};
