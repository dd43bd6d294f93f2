/* SPDX-License-Identifier: Apache-2.0 */
/* What the families with gated delta layers share (Qwen3-Next, Qwen3.5): which layers those are,
 * their sizes, the gate of attention in the others, a shared expert with a gate of its own, and an
 * MTP layer with attention, whatever the others have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch_internal.h"
#include "tensor/delta_state.h"

#define FULL_EVERY 4 /* where nothing is said */

/* What no file says. */
static void set_fixed(struct arch_cfg *c)
{
    c->qk_norm = c->attn_gate = true;
    c->unshared = "gated delta layers";
}

/* Several MTP layers, which would share what they have beside a layer's, were never published: they
 * are left; so is one with a table of tokens of its own. */
static void set_mtp(struct arch_cfg *c, bool own)
{
    if (c->n_mtp <= 1 && !own) return;
    c->n_mtp_left = c->n_mtp;
    c->n_mtp = 0;
}

/* Layers, of which every n-th is attention. */
static void set_every(struct arch_cfg *c, int every)
{
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].mixer = (i + 1) % every ? ARCH_DELTA : ARCH_GQA;
}

int64_t arch_delta_channels(const struct arch_cfg *c)
{
    return 2ll * c->n_delta_k * c->d_delta_k + (int64_t)c->n_delta_v * c->d_delta_v;
}

int arch_delta_decays(const struct arch_cfg *c)
{
    return c->kda ? c->d_delta_k : 1;
}

int64_t arch_delta_state(int n_k, int n_v, int d_k, int d_v, int n_conv, bool each)
{
    return tensor_delta_state(n_k, n_v, d_k, d_v, n_conv, each);
}

int64_t arch_d_shared(const struct arch_cfg *c)
{
    return c->d_ff_shared ? c->d_ff_shared : (int64_t)c->n_shared * c->d_ff_expert;
}

/* One shared expert of that width: as so many of the others' where that is a multiple. */
static void set_shared(struct arch_cfg *c, int width)
{
    c->shared_gate = width > 0;
    c->n_shared = width ? 1 : 0;
    if (width % c->d_ff_expert)
        c->d_ff_shared = width;
    else
        c->n_shared = width / c->d_ff_expert;
}

/* ---- config.json ---- */

static sl_status hf_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *v = NULL;
    int every = 0;
    SL_TRY(arch_hf_int(o, "full_attention_interval", ARCH_RANGE(FULL_EVERY, 1, 1024), &every, err));
    set_every(c, every);
    SL_TRY(arch_hf_types(o, "linear_attention", c, &v, err));
    for (int i = 0; v; v = v->next, i++)
        c->layer[i].mixer = text_json_is(v, "linear_attention") ? ARCH_DELTA : ARCH_GQA;
    return SL_OK;
}

sl_status arch_hf_delta(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    int n_rot = 0;
    bool bias = false, gate = true, own = false;
    set_fixed(c);
    SL_TRY(arch_hf_bool(o, "mtp_use_dedicated_embeddings", false, &own, err));
    set_mtp(c, own);
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &bias, err));
    if (bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias is not supported");
    SL_TRY(arch_hf_bool(o, "attn_output_gate", true, &gate, err));
    if (!gate) return SL_FAIL(err, UNSUPPORTED, "attn_output_gate false is not supported");
    SL_TRY(arch_hf_int(o, "linear_num_key_heads", ARCH_RANGE(16, 1, 4096), &c->n_delta_k, err));
    SL_TRY(arch_hf_int(o, "linear_num_value_heads", ARCH_RANGE(32, 1, 4096), &c->n_delta_v, err));
    SL_TRY(arch_hf_int(o, "linear_key_head_dim", ARCH_RANGE(128, 1, 65536), &c->d_delta_k, err));
    SL_TRY(arch_hf_int(o, "linear_value_head_dim", ARCH_RANGE(128, 1, 65536), &c->d_delta_v, err));
    SL_TRY(arch_hf_int(o, "linear_conv_kernel_dim", ARCH_RANGE(4, 1, 1024), &c->n_conv, err));
    SL_TRY(hf_layers(o, c, err));
    SL_TRY(arch_hf_n_rot(o, 0.25, c, &n_rot, err));
    return arch_hf_rope(o, n_rot, c, err);
}

sl_status arch_hf_delta_moe(const struct json *o, const struct arch_delta_moe *def,
                            struct arch_cfg *c, sl_err *err)
{
    int shared = 0;
    SL_TRY(arch_hf_alias(o, "num_experts|num_local_experts", ARCH_RANGE(def->n_expert, 0, 4096),
                         &c->n_expert, err));
    c->group_max = true;
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_hf_int(o, "num_experts_per_tok", ARCH_RANGE(def->n_used, 1, 64), &c->n_expert_used,
                       err));
    SL_TRY(
        arch_hf_int(o, "moe_intermediate_size", ARCH_RANGE(512, 1, 1 << 22), &c->d_ff_expert, err));
    SL_TRY(arch_hf_int(o, "shared_expert_intermediate_size", ARCH_RANGE(512, 0, 1 << 22), &shared,
                       err));
    SL_TRY(arch_hf_bool(o, "norm_topk_prob", true, &c->route_norm, err));
    set_shared(c, shared);
    return arch_hf_sparse_layers(o, c, err);
}

/* ---- GGUF ---- */

/* One number for all layers, or one of each: 0 where it has no keys. */
static sl_status gguf_layers(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    struct io_array arr;
    int every = 0;
    int64_t v = 0;
    bool any = false;
    SL_TRY(
        arch_gguf_int(m, "full_attention_interval", ARCH_RANGE(FULL_EVERY, 1, 1024), &every, err));
    set_every(c, every);
    if (!arch_gguf_array(m, "attention.head_count_kv", &arr) || arr.n < (uint64_t)c->n_layer)
        return SL_OK;
    for (int i = 0; i < c->n_layer && !any; i++)
        any = io_array_i64(&arr, (uint64_t)i, &v) && v == 0;
    for (int i = 0; i < c->n_layer && any; i++) {
        bool keys = io_array_i64(&arr, (uint64_t)i, &v) && v > 0;
        c->layer[i].mixer = keys ? ARCH_GQA : ARCH_DELTA;
    }
    return SL_OK;
}

sl_status arch_gguf_delta(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int inner = 0;
    bool tiled = c->row->delta_tiled, reordered = tiled;
    set_fixed(c);
    set_mtp(c, false);
    c->delta_tiled = tiled;
    SL_TRY(arch_gguf_flag(m, "ssm.v_head_reordered", tiled, &reordered, err));
    if (reordered != tiled)
        return SL_FAIL(err, UNSUPPORTED, "%s: ssm.v_head_reordered is %s, which is not supported",
                       io_path(m), reordered ? "true" : "false");
    SL_TRY(arch_gguf_int(m, "ssm.group_count", ARCH_RANGE(-1, 1, 4096), &c->n_delta_k, err));
    SL_TRY(arch_gguf_int(m, "ssm.time_step_rank", ARCH_RANGE(-1, 1, 4096), &c->n_delta_v, err));
    SL_TRY(arch_gguf_int(m, "ssm.state_size", ARCH_RANGE(-1, 1, 65536), &c->d_delta_k, err));
    SL_TRY(arch_gguf_int(m, "ssm.inner_size", ARCH_RANGE(-1, 1, 1 << 28), &inner, err));
    SL_TRY(arch_gguf_int(m, "ssm.conv_kernel", ARCH_RANGE(-1, 1, 1024), &c->n_conv, err));
    if (inner % c->n_delta_v)
        return SL_FAIL(err, FORMAT, "%s: ssm.inner_size %d is not a multiple of time_step_rank %d",
                       io_path(m), inner, c->n_delta_v);
    c->d_delta_v = inner / c->n_delta_v;
    return gguf_layers(m, c, err);
}

sl_status arch_gguf_delta_moe(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int shared = 0;
    SL_TRY(arch_gguf_delta(m, c, err));
    SL_TRY(arch_gguf_moe(m, c, err));
    c->group_max = true;
    if (!c->n_expert) return SL_OK;
    if (c->n_shared > 1)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_shared_count is %d, not 1", io_path(m),
                       c->n_shared);
    SL_TRY(arch_gguf_int(
        m, "expert_shared_feed_forward_length",
        ARCH_RANGE(arch_gguf_has(m, c, ROLE_GATE_SHEXP) ? c->d_ff_expert : 0, 0, 1 << 22), &shared,
        err));
    set_shared(c, shared);
    return arch_gguf_router(m, true, false, c, err);
}

/* ---- what all must be ---- */

static bool is_width(int d)
{
    return d >= 4 && d <= 256 && d % 4 == 0;
}

sl_status arch_check_delta(const struct arch_cfg *c, sl_err *err)
{
    if (c->n_delta_v % c->n_delta_k)
        return SL_FAIL(err, FORMAT,
                       "gated delta layers: %d value heads are not a multiple of %d key heads",
                       c->n_delta_v, c->n_delta_k);
    if (!is_width(c->d_delta_k) || !is_width(c->d_delta_v))
        return SL_FAIL(err, UNSUPPORTED,
                       "gated delta layers: heads of %d keys and %d values: multiples of 4 to 256 "
                       "are supported",
                       c->d_delta_k, c->d_delta_v);
    if (c->n_conv < 2 || c->n_conv > 8)
        return SL_FAIL(err, UNSUPPORTED,
                       "gated delta layers: a convolution of %d: 2 to 8 are "
                       "supported",
                       c->n_conv);
    return SL_OK;
}

/* ---- writing ---- */

sl_status arch_put_delta(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    int every = 0;
    while (every < c->n_layer && c->layer[every].mixer == ARCH_DELTA)
        every++;
    every = every < c->n_layer ? every + 1 : c->n_layer + 1;
    for (int i = 0; i < c->n_layer; i++)
        if ((c->layer[i].mixer == ARCH_DELTA) != ((i + 1) % every != 0))
            return SL_FAIL(
                err, UNSUPPORTED,
                "%s: config.json: layer_types has attention in layers that are not every "
                "%d-th, which GGUF can not say",
                k->path, every);
    arch_put_int(k, "full_attention_interval", every);
    arch_put_int(k, "ssm.conv_kernel", c->n_conv);
    arch_put_int(k, "ssm.state_size", c->d_delta_k);
    arch_put_int(k, "ssm.group_count", c->n_delta_k);
    arch_put_int(k, "ssm.time_step_rank", c->n_delta_v);
    arch_put_int(k, "ssm.inner_size", (int64_t)c->n_delta_v * c->d_delta_v);
    if (c->row->delta_tiled) { /* llama.cpp wants them; positions of text are all the same */
        int n = c->n_rot / 2, a = (n + 2) / 3, b = (n - a + 1) / 2;
        const int32_t part[] = {a, b, n - a - b, 0};
        arch_put_ints(k, "rope.dimension_sections", part, 4);
    }
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_put_moe(c, k, err));
    if (c->n_shared) arch_put_int(k, "expert_shared_feed_forward_length", arch_d_shared(c));
    return SL_OK;
}

sl_status arch_jw_delta(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err)
{
    if (fabs(c->attn_scale * sqrt((double)c->d_head) - 1) > 1e-6)
        return SL_FAIL(err, UNSUPPORTED, "%s: attention.scale %g, which a folder of %s can not say",
                       io_path(src), c->attn_scale, c->arch);
    if (c->route_sigmoid || c->route_scale != 1.0f)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: expert_gating_func or expert_weights_scale, which a folder of %s can not say",
            io_path(src), c->arch);
    text_jw_key_int(w, "head_dim", c->d_head);
    arch_jw_real(w, "partial_rotary_factor", (double)c->n_rot / c->d_head);
    arch_jw_layer_types(c, arch_is_delta, "linear_attention", "full_attention", w);
    text_jw_key_int(w, "linear_conv_kernel_dim", c->n_conv);
    text_jw_key_int(w, "linear_key_head_dim", c->d_delta_k);
    text_jw_key_int(w, "linear_value_head_dim", c->d_delta_v);
    text_jw_key_int(w, "linear_num_key_heads", c->n_delta_k);
    text_jw_key_int(w, "linear_num_value_heads", c->n_delta_v);
    if (c->n_mtp) text_jw_key_int(w, "mtp_num_hidden_layers", c->n_mtp);
    if (!c->n_expert) return SL_OK;
    text_jw_key_int(w, "num_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    text_jw_key_int(w, "shared_expert_intermediate_size", arch_d_shared(c));
    return SL_OK;
}

/* ---- Kimi Delta Attention (Kimi-Linear, Ling) ---- */

/* Layers without keys are delta layers. */
static sl_status kda_layers(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    struct io_array arr;
    int64_t v = 0;
    if (!arch_gguf_array(m, "attention.head_count_kv", &arr)) return SL_OK;
    if (arr.n < (uint64_t)c->n_layer)
        return SL_FAIL(err, FORMAT, "%s: attention.head_count_kv has %llu entries for %d layers",
                       io_path(m), (unsigned long long)arr.n, c->n_layer);
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].mixer = io_array_i64(&arr, (uint64_t)i, &v) && v > 0 ? ARCH_MLA : ARCH_DELTA;
    return SL_OK;
}

sl_status arch_gguf_kda(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_int(m, "ssm.conv_kernel", ARCH_RANGE(-1, 1, 1024), &c->n_conv, err));
    SL_TRY(arch_gguf_int(m, "kda.head_dim", ARCH_RANGE(-1, 1, 65536), &c->d_delta_k, err));
    c->n_delta_k = c->n_delta_v = c->n_head;
    c->d_delta_v = c->d_delta_k;
    SL_TRY(kda_layers(m, c, err));
    SL_TRY(arch_gguf_moe(m, c, err));
    SL_TRY(arch_gguf_router(m, true, true, c, err));
    if (c->n_expert && !c->route_sigmoid)
        return SL_FAIL(err, UNSUPPORTED, "%s: expert_gating_func is not 2 (sigmoid)", io_path(m));
    SL_TRY(arch_gguf_int(m, "expert_group_count", ARCH_RANGE(1, 1, 4096), &c->n_group, err));
    return arch_gguf_int(m, "expert_group_used_count", ARCH_RANGE(1, 1, 4096), &c->n_group_used,
                         err);
}

sl_status arch_put_kda(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    if (c->n_delta_k != c->n_head)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: %d heads of delta attention, %d of the other, which GGUF "
                       "can not say",
                       k->path, c->n_delta_k, c->n_head);
    arch_put_int(k, "ssm.conv_kernel", c->n_conv);
    arch_put_int(k, "kda.head_dim", c->d_delta_k);
    return arch_put_moe_shared(c, k, err);
}
