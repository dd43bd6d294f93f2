/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss: GQA with biases and sinks, a window in every other layer from the first on, YaRN whose
 * range is not rounded; experts in every layer, chosen by logits with a bias and weighed by the
 * softmax of those that are chosen, with biases and a clamped gated unit. */
#include <math.h>

#include "arch/row.h"

#define WINDOW_EVERY 2 /* GGUF files do not say it */

/* What GGUF files, which can not say it, mean. */
static const struct glu unsaid = {.limit = 7.0f, .alpha = 1.702f};

/* What no file says, and what is the same in both kinds. */
static void set_fixed(struct arch_cfg *c)
{
    c->per_head = ARCH_BIT(SINKS);
    c->biased = ARCH_BIT(Q) | ARCH_BIT(K) | ARCH_BIT(V) | ARCH_BIT(O) | ARCH_BIT(ROUTER) |
                ARCH_BIT(GATE_EXPS) | ARCH_BIT(UP_EXPS) | ARCH_BIT(DOWN_EXPS);
    c->attn_bias = c->o_bias = true;
    c->group_max = c->route_norm = true;
    c->glu.plus = 1.0f;
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].ffn = ARCH_MOE;
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int gating = 0;
    SL_TRY(arch_gguf_moe(m, c, err));
    if (!c->n_expert)
        return SL_FAIL(err, FORMAT, "%s: gpt-oss.expert_count is missing", io_path(m));
    SL_TRY(arch_gguf_int(m, "expert_gating_func", ARCH_RANGE(3, 0, 3), &gating, err));
    if (!c->n_window)
        return SL_FAIL(err, FORMAT, "%s: gpt-oss.attention.sliding_window is missing or 0",
                       io_path(m));
    if (gating != 3)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_gating_func is %d, not 3", io_path(m), gating);
    c->yarn_real = true;
    c->glu = unsaid;
    set_fixed(c);
    return SL_OK;
}

/* What the class in transformers has where a configuration says nothing of rope, or null. */
static void yarn_unsaid(const struct json *o, struct arch_cfg *c)
{
    const struct json *new = text_json_get(o, "rope_parameters"),
                      *old = text_json_get(o, "rope_scaling");
    if ((new &&new->kind != JSON_NULL_K) || (old && old->kind != JSON_NULL_K && old->n)) return;
    c->rope_kind = ARCH_ROPE_YARN;
    c->rope_factor = 32;
    c->rope_orig_ctx = 4096;
    c->yarn_beta_fast = 32;
    c->yarn_beta_slow = 1;
    c->yarn_mscale = 0.1 * log(32) + 1;
    c->yarn_real = true;
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    double limit = 0, alpha = 0;
    bool bias = true;
    SL_TRY(arch_hf_bool(o, "attention_bias", true, &bias, err));
    if (!bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias false is not supported");
    SL_TRY(arch_hf_alias(o, "num_local_experts|num_experts", ARCH_RANGE(-1, 1, 4096), &c->n_expert,
                         err));
    SL_TRY(arch_hf_alias(o, "num_experts_per_tok|experts_per_token", ARCH_RANGE(-1, 1, 64),
                         &c->n_expert_used, err));
    SL_TRY(arch_hf_real(o, "swiglu_limit", ARCH_RANGE(7.0, 1e-3, 1e6), &limit, err));
    SL_TRY(arch_hf_real(o, "swiglu_alpha", ARCH_RANGE(1.702, 1e-3, 1e3), &alpha, err));
    c->d_ff_expert = c->d_ff;
    c->glu.limit = (float)limit;
    c->glu.alpha = (float)alpha;
    SL_TRY(arch_hf_int(o, "sliding_window", ARCH_RANGE(128, 1, 1 << 28), &c->n_window, err));
    for (int i = 0; i < c->n_layer; i++) /* where layer_types says nothing */
        c->layer[i].n_window = i % WINDOW_EVERY == 0 ? c->n_window : 0;
    SL_TRY(arch_hf_layer_types(o, true, c, err));
    set_fixed(c);
    SL_TRY(arch_hf_rope(o, c->d_head, c, err));
    yarn_unsaid(o, c);
    return SL_OK;
}

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    if (c->glu.limit != unsaid.limit || c->glu.alpha != unsaid.alpha)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: swiglu_limit %g and swiglu_alpha %g, which GGUF can not "
                       "say",
                       k->path, (double)c->glu.limit, (double)c->glu.alpha);
    arch_put_int(k, "expert_count", c->n_expert);
    arch_put_int(k, "expert_used_count", c->n_expert_used);
    arch_put_int(k, "expert_feed_forward_length", c->d_ff_expert);
    return SL_OK;
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    SL_TRY(arch_jw_window(c, src, false, true, w, err));
    SL_TRY(arch_jw_heads(c, src, w, err));
    text_jw_key_int(w, "num_local_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    arch_jw_real(w, "swiglu_limit", (double)c->glu.limit);
    arch_jw_real(w, "swiglu_alpha", (double)c->glu.alpha);
    return SL_OK;
}

static const struct arch_alias alias[] = {{ROLE_FFN_NORM, "post_attention_norm", NULL},
                                          {ROLE_ROUTER, NULL, "mlp.router"},
                                          {N_ROLE, NULL, NULL}};

const struct arch arch_gpt_oss = {
    .name = "gpt_oss",
    .place = 7,
    .gguf = "gpt-oss",
    .hf_type = "gpt_oss",
    .hf_class = "GptOssForCausalLM",
    .tool_family = "harmony",
    .hf_keys = "sliding_window|num_local_experts|num_experts|num_experts_per_tok|experts_per_token|"
               "swiglu_limit|swiglu_alpha",
    .gguf_keys = ARCH_GGUF_KEYS_WINDOW
    "|expert_count|expert_used_count|expert_feed_forward_length|expert_gating_func",
    .ffn_scale_unused = true,
    .alias = alias,
    .window_every = WINDOW_EVERY,
    .yarn_real = true,
    .unsaid = {.eps = 1e-5, .theta = 150000, .d_head = 64},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
