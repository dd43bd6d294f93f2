/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V2 and V2-Lite: MLA with or without q_lora, softmax gate, greedy or group-limited top-k
 * (a group's score is its best expert's). Weights are scaled by routed_scaling_factor and not
 * normalised (transformers ignores norm_topk_prob here, and so do we in HF folders). */
#include <math.h>
#include <string.h>

#include "arch/row.h"

/* Files of before the middle of 2025 do not say in how many groups the experts are. Of the
 * published models it is known (groups of their row). */
static sl_status groups(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_int(m, "expert_group_count", ARCH_RANGE(0, 0, 4096), &c->n_group, err));
    SL_TRY(arch_gguf_int(m, "expert_group_used_count", ARCH_RANGE(c->n_group ? 1 : 0, 0, 4096),
                         &c->n_group_used, err));
    if (c->n_group) return SL_OK;
    c->n_group = c->n_group_used = 1;
    for (const struct arch_groups *g = c->row->groups; g && g->n_expert; g++)
        if (c->n_expert == g->n_expert && c->n_layer == g->n_layer) {
            c->n_group = g->n;
            c->n_group_used = g->used;
            return SL_OK;
        }
    c->group_unsaid = c->n_expert >= 160;
    return SL_OK;
}

/* Shared experts that the file holds and does not count. */
static sl_status shared_count(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    char name[96];
    int n = 0;
    if (!c->n_expert || c->n_shared) return SL_OK;
    SL_TRY(arch_gguf_int(m, "expert_shared_count", ARCH_RANGE(-1, -1, 64), &n, err));
    if (n >= 0) return SL_OK;
    for (int i = 0; i < c->n_layer; i++) {
        arch_tensor_name(&c->naming, ROLE_UP_SHEXP, i, "weight", name, sizeof name);
        const struct tensor *t = io_find(m, name);
        if (!t || t->n_dim != 2) continue;
        if (t->shape[0] % c->d_ff_expert || t->shape[0] / c->d_ff_expert > 64)
            return SL_FAIL(
                err, FORMAT,
                "%s: expert_shared_count is missing, and %s has %lld rows, no multiple of %d",
                io_path(m), name, (long long)t->shape[0], c->d_ff_expert);
        c->n_shared = (int)(t->shape[0] / c->d_ff_expert);
        return SL_OK;
    }
    return SL_OK;
}

/* What V2 and V3 share in GGUF ("deepseek2"). */
static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int gating = 0;
    double log_mul = 0, scale = 0;
    SL_TRY(arch_gguf_latents(m, c, err));
    SL_TRY(
        arch_gguf_real(m, "rope.scaling.yarn_log_multiplier", ARCH_RANGE(0, 0, 10), &log_mul, err));
    if (c->rope_kind ==
        ARCH_ROPE_YARN) { /* 0.1 * mscale_all_dim; mscale equals it in every published file */
        double f = 1 + log_mul * log(c->rope_factor);
        c->attn_scale *= f * f;
        if (log_mul > 0) c->yarn_mscale /= 0.1 * log(c->rope_factor) + 1;
    }
    SL_TRY(arch_gguf_moe(m, c, err));
    SL_TRY(arch_gguf_real(m, "expert_weights_scale", ARCH_RANGE(1.0, 0, 1e6), &scale, err));
    c->route_scale = scale == 0 ? 1.0f : (float)scale; /* 0 means not set in old files */
    SL_TRY(arch_gguf_flag(m, "expert_weights_norm", false, &c->route_norm, err));
    SL_TRY(arch_gguf_int(m, "expert_gating_func", ARCH_RANGE(1, 1, 2), &gating, err));
    c->route_sigmoid = gating == 2;
    c->group_max = !c->route_sigmoid;
    c->route_bias = c->route_sigmoid;
    SL_TRY(shared_count(m, c, err));
    return groups(m, c, err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const char *method = NULL;
    double scale = 1;
    SL_TRY(arch_hf_mla(o, c, err));
    c->rope_style = ARCH_ROPE_PAIRS; /* whatever rope_interleave says */
    SL_TRY(arch_hf_alias(o, "n_routed_experts|num_experts|num_local_experts",
                         ARCH_RANGE(0, 0, 4096), &c->n_expert, err));
    SL_TRY(arch_hf_int(o, "first_k_dense_replace", ARCH_RANGE(0, 0, 1024), &c->n_dense_lead, err));
    int freq = 1;
    SL_TRY(arch_hf_int(o, "moe_layer_freq", ARCH_RANGE(1, 1, 1), &freq, err));
    for (int i = c->n_dense_lead; i < c->n_layer && c->n_expert; i++)
        c->layer[i].ffn = ARCH_MOE;
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_hf_int(o, "num_experts_per_tok", ARCH_RANGE(-1, 1, 64), &c->n_expert_used, err));
    SL_TRY(
        arch_hf_int(o, "moe_intermediate_size", ARCH_RANGE(-1, 1, 1 << 22), &c->d_ff_expert, err));
    SL_TRY(arch_hf_int(o, "n_shared_experts", ARCH_RANGE(2, 0, 64), &c->n_shared, err));
    SL_TRY(arch_hf_real(o, "routed_scaling_factor", ARCH_RANGE(1.0, 0, 1e6), &scale, err));
    c->route_scale = (float)scale;
    c->group_max = true;
    SL_TRY(text_json_str(o, "topk_method", "greedy", &method, err));
    if (strcmp(method, "group_limited_greedy") == 0) {
        SL_TRY(arch_hf_int(o, "n_group", ARCH_RANGE(1, 1, 4096), &c->n_group, err));
        SL_TRY(arch_hf_int(o, "topk_group", ARCH_RANGE(1, 1, 4096), &c->n_group_used, err));
    } else if (strcmp(method, "greedy") != 0) {
        return SL_FAIL(err, UNSUPPORTED,
                       "topk_method '%.40s' is not supported (greedy, group_limited_greedy)",
                       method);
    }
    return SL_OK;
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, false, false, w, err));
    arch_jw_mla(c, w);
    if (c->n_expert)
        arch_jw_moe_shared(c, "softmax", c->n_group > 1 ? "group_limited_greedy" : "greedy", w);
    return SL_OK;
}

static const struct arch_groups known[] = {{160, 60, 8, 3} /* DeepSeek-V2, Coder-V2 */, {0}};

const struct arch arch_deepseek_v2 = {
    .name = "deepseek_v2",
    .place = 5,
    .gguf = "deepseek2",
    .hf_type = "deepseek_v2",
    .hf_class = "DeepseekV2ForCausalLM",
    .tool_family = "deepseek",
    .hf_keys = "moe_layer_freq|" ARCH_HF_KEYS_MLA "|" ARCH_HF_KEYS_MOE,
    .gguf_keys = ARCH_GGUF_KEYS_MLA,
    .ffn_scale_unused = true,
    .groups = known,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = arch_put_moe_shared,
    .write_hf = write_hf,
};
