/* SPDX-License-Identifier: Apache-2.0 */
/* What a folder's configuration says, in GGUF's keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch/row.h"

static const char *full(const struct arch_keys *k, const char *key, char *buf, size_t n)
{
    snprintf(buf, n, "%s.%s", k->arch, key);
    return buf;
}

void arch_put_int(const struct arch_keys *k, const char *key, int64_t v)
{
    char buf[128];
    io_out_u32(k->out, full(k, key, buf, sizeof buf), (uint32_t)v);
}

void arch_put_real(const struct arch_keys *k, const char *key, double v)
{
    char buf[128];
    io_out_f32(k->out, full(k, key, buf, sizeof buf), (float)v);
}

void arch_put_ints(const struct arch_keys *k, const char *key, const int32_t *v, int n)
{
    char buf[128];
    io_out_array(k->out, full(k, key, buf, sizeof buf), IO_I32, (uint64_t)n);
    for (int i = 0; i < n; i++)
        io_out_elem_i32(k->out, v[i]);
}

void arch_put_reals(const struct arch_keys *k, const char *key, const float *v, int n)
{
    char buf[128];
    io_out_array(k->out, full(k, key, buf, sizeof buf), IO_F32, (uint64_t)n);
    for (int i = 0; i < n; i++)
        io_out_elem_f32(k->out, v[i]);
}

static sl_status put_rope(const struct arch_cfg *c, const io_model *src, const struct arch_keys *k,
                          sl_err *err)
{
    const struct json *o = io_text_config(io_config(src)), *s = text_json_get(o, "rope_parameters");
    char buf[128];
    double all = 0, one = 0;
    arch_put_real(k, "rope.freq_base", c->rope_theta);
    arch_put_int(k, "rope.dimension_count", c->n_rot);
    if (c->rope_kind == ARCH_ROPE_PLAIN || c->rope_kind == ARCH_ROPE_LLAMA3) return SL_OK;
    const char *type = c->rope_kind == ARCH_ROPE_YARN ? "yarn" : "linear";
    io_out_str(k->out, full(k, "rope.scaling.type", buf, sizeof buf), type, strlen(type));
    arch_put_real(k, "rope.scaling.factor", c->rope_factor);
    if (c->rope_kind != ARCH_ROPE_YARN) return SL_OK;
    arch_put_int(k, "rope.scaling.original_context_length", (int64_t)c->rope_orig_ctx);
    arch_put_real(k, "rope.scaling.yarn_beta_fast", c->yarn_beta_fast);
    arch_put_real(k, "rope.scaling.yarn_beta_slow", c->yarn_beta_slow);
    if (c->yarn_real != c->row->yarn_real)
        return SL_FAIL(err, UNSUPPORTED, "%s: config.json: truncate %s, which GGUF can not say",
                       io_path(src), c->yarn_real ? "false" : "true");
    if (!s || s->kind != JSON_OBJECT_K) s = text_json_get(o, "rope_scaling");
    SL_TRY(text_json_real(s, "mscale_all_dim", 0, &all, err));
    SL_TRY(text_json_real(s, "mscale", all, &one, err));
    double usual = c->entry_theta > 0 ? 1 : 0.1 * log(c->rope_factor) + 1;
    double want = c->kv_lora && all > 0 ? 1 : usual;
    if (fabs(c->yarn_mscale / want - 1) > 1e-9)
        arch_put_real(k, "rope.scaling.attn_factor", c->yarn_mscale / want);
    if (!c->kv_lora) return SL_OK;
    if (one != all)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: config.json: mscale %g and mscale_all_dim %g differ, which GGUF can not say",
            io_path(src), one, all);
    if (all > 0) arch_put_real(k, "rope.scaling.yarn_log_multiplier", 0.1 * all);
    return SL_OK;
}

void arch_put_flag(const struct arch_keys *k, const char *key, bool v)
{
    char buf[128];
    io_out_bool(k->out, full(k, key, buf, sizeof buf), v);
}

sl_status arch_put_moe(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    (void)err;
    if (!c->n_expert) return SL_OK;
    arch_put_int(k, "expert_count", c->n_expert);
    arch_put_int(k, "expert_used_count", c->n_expert_used);
    arch_put_int(k, "expert_feed_forward_length", c->d_ff_expert);
    arch_put_flag(k, "expert_weights_norm", c->route_norm);
    return SL_OK;
}

sl_status arch_put_moe_shared(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    int dense = 0;
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_put_moe(c, k, err));
    while (dense < c->n_layer && c->layer[dense].ffn != ARCH_MOE)
        dense++;
    arch_put_int(k, "leading_dense_block_count", dense);
    arch_put_int(k, "expert_shared_count", c->n_shared);
    arch_put_real(k, "expert_weights_scale", (double)c->route_scale);
    arch_put_int(k, "expert_gating_func", c->route_sigmoid ? 2 : 1);
    if (c->n_group > 1) {
        arch_put_int(k, "expert_group_count", c->n_group);
        arch_put_int(k, "expert_group_used_count", c->n_group_used);
    }
    return SL_OK;
}

/* The window, and, unless all layers have it, which do. */
static void put_window(const struct arch_cfg *c, const struct arch_keys *k)
{
    char buf[128];
    int n = 0;
    for (int i = 0; i < c->n_layer; i++)
        n += c->layer[i].n_window > 0;
    if (!c->n_window || !n) return;
    arch_put_int(k, "attention.sliding_window", c->n_window);
    if (n == c->n_layer) return;
    io_out_array(k->out, full(k, "attention.sliding_window_pattern", buf, sizeof buf), IO_I32,
                 (uint64_t)c->n_layer);
    for (int i = 0; i < c->n_layer; i++)
        io_out_elem_i32(k->out, c->layer[i].n_window > 0);
}

/* One key head, that all query heads share; none in layers of another kind. */
static void put_latent_heads(const struct arch_cfg *c, const struct arch_keys *k)
{
    char buf[128];
    int n = c->n_layer + k->n_mtp;
    if (!c->n_delta_k) {
        arch_put_int(k, "attention.head_count_kv", 1);
        return;
    }
    io_out_array(k->out, full(k, "attention.head_count_kv", buf, sizeof buf), IO_I32,
                 (uint64_t)n);
    for (int i = 0; i < n; i++)
        io_out_elem_i32(k->out, c->layer[i].mixer == ARCH_MLA);
}

/* Key heads, of each layer where not all have as many. */
static void put_key_heads(const struct arch_cfg *c, const struct arch_keys *k)
{
    char buf[128];
    if (!c->d_head_win || c->n_head_kv_win == c->n_head_kv) {
        arch_put_int(k, "attention.head_count_kv", c->n_head_kv);
        return;
    }
    io_out_array(k->out, full(k, "attention.head_count_kv", buf, sizeof buf), IO_I32,
                 (uint64_t)c->n_layer);
    for (int i = 0; i < c->n_layer; i++)
        io_out_elem_i32(k->out, arch_n_head_kv(c, i));
}

static void put_attention(const struct arch_cfg *c, const struct arch_keys *k)
{
    arch_put_int(k, "attention.head_count", c->n_head);
    arch_put_real(k, "attention.layer_norm_rms_epsilon", (double)c->norm_eps);
    put_window(c, k);
    if (!c->kv_lora) {
        put_key_heads(c, k);
        arch_put_int(k, "attention.key_length", c->d_head);
        arch_put_int(k, "attention.value_length", c->d_head);
        return;
    }
    put_latent_heads(c, k);
    arch_put_int(k, "attention.key_length", c->kv_lora + c->d_rope);
    arch_put_int(k, "attention.value_length", c->kv_lora);
    arch_put_int(k, "attention.key_length_mla", c->d_head);
    arch_put_int(k, "attention.value_length_mla", c->d_v);
    arch_put_int(k, "attention.kv_lora_rank", c->kv_lora);
    if (c->q_lora) arch_put_int(k, "attention.q_lora_rank", c->q_lora);
}

sl_status arch_write_gguf(const struct arch_cfg *c, const io_model *src, int n_mtp, io_out *out,
                          sl_err *err)
{
    char arch[32];
    struct arch_keys k = {out, arch, io_path(src), n_mtp};
    if (c->kv_lora && c->rope_style != ARCH_ROPE_PAIRS)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: config.json: rope_interleave false, which GGUF can not say",
                       io_path(src));
    snprintf(arch, sizeof arch, "%.*s", (int)strcspn(c->row->gguf, "|"), c->row->gguf);
    const char *path = io_path(src), *base = path + strlen(path);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (base = path + n; base > path && base[-1] != '/'; base--) {
    }
    io_out_str(out, "general.architecture", arch, strlen(arch));
    io_out_str(out, "general.name", base, (uint64_t)(path + n - base));
    arch_put_int(&k, "block_count", c->n_layer + n_mtp);
    if (n_mtp) arch_put_int(&k, "nextn_predict_layers", n_mtp);
    arch_put_int(&k, "context_length", c->n_ctx_train);
    arch_put_int(&k, "embedding_length", c->d_model);
    arch_put_int(&k, "feed_forward_length", c->d_ff);
    arch_put_int(&k, "vocab_size", c->n_vocab);
    put_attention(c, &k);
    if (c->row->write_gguf) SL_TRY(c->row->write_gguf(c, &k, err));
    return put_rope(c, src, &k, err);
}
