/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters from GGUF metadata: "<architecture>.<key>". Every number is held against a range
 * before it is used. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch_internal.h"

static void full_key(const io_model *m, const char *key, char *buf, size_t n)
{
    const char *arch = "";
    uint64_t len = 0;
    if (io_meta_str(m, "general.architecture", &arch, &len, NULL) != SL_OK) len = 0;
    snprintf(buf, n, "%.*s.%s", (int)BASE_MIN(len, 40), arch, key);
}

sl_status arch_gguf_int(const io_model *m, const char *key, struct arch_range in, int *out,
                        sl_err *err)
{
    char full[128];
    uint64_t v = 0;
    full_key(m, key, full, sizeof full);
    sl_status st = io_meta_u64(m, full, &v, err);
    if (st == SL_NOTFOUND && in.def >= in.lo) {
        *out = (int)in.def;
        return SL_OK;
    }
    SL_TRY(st);
    if ((double)v < in.lo || (double)v > in.hi)
        return SL_FAIL(err, FORMAT, "%s: %s is %llu, not in %lld .. %lld", io_path(m), full,
                       (unsigned long long)v, (long long)in.lo, (long long)in.hi);
    *out = (int)v;
    return SL_OK;
}

sl_status arch_gguf_real(const io_model *m, const char *key, struct arch_range in, double *out,
                         sl_err *err)
{
    char full[128];
    full_key(m, key, full, sizeof full);
    double v = 0;
    sl_status st = io_meta_f64(m, full, &v, err);
    if (st == SL_NOTFOUND && in.def >= in.lo) {
        *out = in.def;
        return SL_OK;
    }
    SL_TRY(st);
    if (!(v >= in.lo && v <= in.hi))
        return SL_FAIL(err, FORMAT, "%s: %s is %g, not in %g .. %g", io_path(m), full, v, in.lo,
                       in.hi);
    *out = v;
    return SL_OK;
}

sl_status arch_gguf_flag(const io_model *m, const char *key, bool def, bool *out, sl_err *err)
{
    char full[128];
    full_key(m, key, full, sizeof full);
    sl_status st = io_meta_bool(m, full, out, err);
    if (st == SL_NOTFOUND) {
        *out = def;
        return SL_OK;
    }
    return st;
}

bool arch_gguf_array(const io_model *m, const char *key, struct io_array *out)
{
    char full[128];
    full_key(m, key, full, sizeof full);
    return io_meta_array(m, full, out, NULL) == SL_OK;
}

/* Some numbers may be one or one per layer; only equal ones are supported, but for layers that have
 * none of what is counted (some0). */
static sl_status layers_int(const io_model *m, const char *key, struct arch_range in, bool some0,
                            int *out, sl_err *err)
{
    char full[128];
    struct io_array arr;
    full_key(m, key, full, sizeof full);
    if (io_meta_array(m, full, &arr, NULL) != SL_OK) return arch_gguf_int(m, key, in, out, err);
    int64_t first = 0, v = 0;
    bool any = false;
    for (uint64_t i = 0; i < arr.n; i++) {
        if (some0 && io_array_i64(&arr, i, &v) && v == 0) continue;
        if (!io_array_i64(&arr, i, &v) || (double)v < in.lo || (double)v > in.hi)
            return SL_FAIL(err, FORMAT, "%s: %s[%llu] is not in %lld .. %lld", io_path(m), full,
                           (unsigned long long)i, (long long)in.lo, (long long)in.hi);
        if (!any) first = v;
        any = true;
        if (v != first)
            return SL_FAIL(err, UNSUPPORTED, "%s: %s differs between layers", io_path(m), full);
    }
    if (!any) return SL_FAIL(err, FORMAT, "%s: %s is empty", io_path(m), full);
    *out = (int)first;
    return SL_OK;
}

/* The factor, by the name of 2023 too; 0 says nothing. */
static sl_status rope_factor(const io_model *m, double *factor, bool *given, sl_err *err)
{
    double f = 0, old = 0;
    SL_TRY(arch_gguf_real(m, "rope.scale_linear", ARCH_RANGE(0, 0, 1e6), &old, err));
    SL_TRY(arch_gguf_real(m, "rope.scaling.factor", ARCH_RANGE(old, 0, 1e6), &f, err));
    *given = f > 0;
    *factor = f > 0 ? f : 1;
    return SL_OK;
}

static sl_status rope(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    char full[128];
    const char *type = "linear"; /* what llama.cpp takes it for where no type is named */
    uint64_t n = 6;
    bool given = false;
    double attn = 1, yarn_attn = 1;
    SL_TRY(
        arch_gguf_real(m, "rope.freq_base", ARCH_RANGE(10000.0, 1.0, 1e12), &c->rope_theta, err));
    SL_TRY(arch_gguf_real(m, "rope.scaling.original_context_length",
                          ARCH_RANGE(c->n_ctx_train, 1, 1e9), &c->rope_orig_ctx, err));
    SL_TRY(arch_gguf_real(m, "rope.scaling.attn_factor", ARCH_RANGE(1.0, 0, 1e3), &attn, err));
    SL_TRY(arch_gguf_real(m, "rope.scaling.yarn_attn_factor", ARCH_RANGE(1.0, 0, 1e3), &yarn_attn,
                          err));
    SL_TRY(rope_factor(m, &c->rope_factor, &given, err));
    c->yarn_mscale = attn * yarn_attn;
    full_key(m, "rope.scaling.type", full, sizeof full);
    sl_status st = io_meta_str(m, full, &type, &n, err);
    if (st == SL_NOTFOUND && !given) return SL_OK;
    if (st != SL_NOTFOUND) SL_TRY(st);
    if (n == 4 && memcmp(type, "none", 4) == 0) {
        c->rope_factor = 1;
        return SL_OK;
    }
    if (n == 6 && memcmp(type, "linear", 6) == 0) {
        c->rope_kind = ARCH_ROPE_LINEAR;
        return SL_OK;
    }
    if (n != 4 || memcmp(type, "yarn", 4) != 0)
        return SL_FAIL(err, UNSUPPORTED, "%s: %s '%.*s' is not supported (none, linear, yarn)",
                       io_path(m), full, (int)BASE_MIN(n, 40), type);
    c->rope_kind = ARCH_ROPE_YARN;
    SL_TRY(arch_gguf_real(m, "rope.scaling.yarn_beta_fast", ARCH_RANGE(32.0, 0, 1e6),
                          &c->yarn_beta_fast, err));
    SL_TRY(arch_gguf_real(m, "rope.scaling.yarn_beta_slow", ARCH_RANGE(1.0, 0, 1e6),
                          &c->yarn_beta_slow, err));
    c->yarn_mscale *= 0.1 * log(c->rope_factor) + 1.0;
    return SL_OK;
}

/* The last layers that nextn_predict_layers counts are none of its, though their tensors are there:
 * block_count counts the others alone (of DeepSeek-V4's first files). */
static bool counts_none(const io_model *m, const struct arch_cfg *c)
{
    char own[96], mtp[96];
    arch_tensor_name(&c->naming, ROLE_ATTN_NORM, c->n_layer - 1, "weight", own, sizeof own);
    arch_tensor_name(&c->naming, ROLE_MTP_ENORM, c->n_layer - 1, "weight", mtp, sizeof mtp);
    return c->row->mtp_uncounted && io_find(m, own) && !io_find(m, mtp);
}

sl_status arch_gguf_common(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_int(m, "block_count", ARCH_RANGE(-1, 1, 1024), &c->n_layer, err));
    SL_TRY(arch_gguf_int(m, "nextn_predict_layers", ARCH_RANGE(0, 0, 16), &c->n_mtp, err));
    if (c->n_mtp && counts_none(m, c)) c->n_mtp = 0;
    if (c->n_mtp >= c->n_layer)
        return SL_FAIL(err, FORMAT, "%s: %d layers, %d of them MTP", io_path(m), c->n_layer,
                       c->n_mtp);
    c->n_layer -= c->n_mtp;
    SL_TRY(arch_gguf_int(m, "embedding_length", ARCH_RANGE(-1, 8, 1 << 20), &c->d_model, err));
    SL_TRY(layers_int(m, "feed_forward_length", ARCH_RANGE(0, 0, 1 << 22), false, &c->d_ff,
                      err));
    SL_TRY(arch_gguf_int(m, "context_length", ARCH_RANGE(-1, 1, 1 << 28), &c->n_ctx_train, err));
    SL_TRY(
        layers_int(m, "attention.head_count", ARCH_RANGE(-1, 1, 4096), false, &c->n_head, err));
    if (!c->row->kv_by_layer)
        SL_TRY(layers_int(m, "attention.head_count_kv", ARCH_RANGE(c->n_head, 1, 4096),
                          c->row->no_keys, &c->n_head_kv, err));
    double eps = 0;
    SL_TRY(arch_gguf_real(m, "attention.layer_norm_rms_epsilon", ARCH_RANGE(-1, 0, 1), &eps, err));
    c->norm_eps = (float)eps;
    SL_TRY(arch_gguf_int(m, "attention.key_length", ARCH_RANGE(c->d_model / c->n_head, 1, 65536),
                         &c->d_head, err));
    SL_TRY(
        arch_gguf_int(m, "rope.dimension_count",
                      ARCH_RANGE(c->d_head, c->row->unrotated ? 0 : 2, 65536), &c->n_rot, err));
    SL_TRY(
        arch_gguf_int(m, "attention.sliding_window", ARCH_RANGE(0, 0, 1 << 28), &c->n_window, err));
    SL_TRY(rope(m, c, err));
    double scale = 0;
    SL_TRY(arch_gguf_real(m, "attention.scale", ARCH_RANGE(0, 0, 1e6), &scale, err));
    c->attn_scale = scale > 0 ? scale : 1.0 / sqrt((double)c->d_head);
    const struct tensor *emb = io_find(m, arch_global_name(&c->naming, GLOBAL_EMBED));
    SL_TRY(arch_gguf_int(m, "vocab_size", ARCH_RANGE(0, 0, 1 << 28), &c->n_vocab, err));
    if (emb && emb->n_dim == 2) c->n_vocab = (int)BASE_MIN(emb->shape[0], 1 << 28);
    c->tied_head = !io_find(m, arch_global_name(&c->naming, GLOBAL_HEAD));
    return SL_OK;
}

/* attention.sliding_window_pattern: which layers have the window, or, as one number n, all but
 * every n-th (0: all). */
static sl_status window_layers(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    char full[128];
    struct io_array arr;
    int every = 0;
    int64_t v = 0;
    full_key(m, "attention.sliding_window_pattern", full, sizeof full);
    if (io_meta_array(m, full, &arr, NULL) != SL_OK) {
        SL_TRY(arch_gguf_int(m, "attention.sliding_window_pattern",
                             ARCH_RANGE(c->row->window_every, 0, 1024), &every, err));
        for (int i = 0; i < c->n_layer; i++)
            c->layer[i].n_window = every == 0 || i % every < every - 1 ? c->n_window : 0;
        return SL_OK;
    }
    if (arr.n != (uint64_t)c->n_layer && arr.n != (uint64_t)(c->n_layer + c->n_mtp))
        return SL_FAIL(err, FORMAT, "%s: %s has %llu entries for %d layers", io_path(m), full,
                       (unsigned long long)arr.n, c->n_layer);
    for (int i = 0; i < c->n_layer; i++) {
        if (!io_array_i64(&arr, (uint64_t)i, &v) || v < 0 || v > 1)
            return SL_FAIL(err, FORMAT, "%s: %s[%d] is neither 0 nor 1", io_path(m), full, i);
        c->layer[i].n_window = v == 1 ? c->n_window : 0;
    }
    return SL_OK;
}

sl_status arch_gguf_layers(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int d_v = 0;
    if (c->n_window) SL_TRY(window_layers(m, c, err));
    if (c->kv_lora) return SL_OK;
    SL_TRY(arch_gguf_int(m, "attention.value_length", ARCH_RANGE(c->d_head, 1, 65536), &d_v, err));
    if (d_v == c->d_head) return SL_OK;
    return SL_FAIL(
        err, UNSUPPORTED,
        "%s: attention.value_length is %d, the keys' is %d: only equal ones are supported",
        io_path(m), d_v, c->d_head);
}

sl_status arch_gguf_latents(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    int key_mla = 0, v_mla = 0;
    SL_TRY(arch_gguf_int(m, "attention.kv_lora_rank", ARCH_RANGE(-1, 1, 65536), &c->kv_lora, err));
    SL_TRY(arch_gguf_int(m, "attention.q_lora_rank", ARCH_RANGE(0, 0, 65536), &c->q_lora, err));
    SL_TRY(arch_gguf_int(m, "attention.key_length_mla", ARCH_RANGE(c->d_head, 1, 65536), &key_mla,
                         err));
    SL_TRY(arch_gguf_int(m, "attention.value_length", ARCH_RANGE(0, 0, 65536), &v_mla, err));
    SL_TRY(
        arch_gguf_int(m, "attention.value_length_mla", ARCH_RANGE(v_mla, 1, 65536), &c->d_v, err));
    SL_TRY(arch_gguf_int(m, "rope.dimension_count",
                         ARCH_RANGE(-1, c->row->unrotated ? 0 : 2, 65536), &c->d_rope, err));
    c->d_nope = key_mla - c->d_rope;
    if (c->d_nope < 1)
        return SL_FAIL(err, FORMAT,
                       "%s: attention.key_length %d is not above rope.dimension_count %d",
                       io_path(m), key_mla, c->d_rope);
    c->d_head = key_mla;
    c->n_rot = c->d_rope;
    c->n_head_kv = c->n_head;
    c->rope_style = ARCH_ROPE_PAIRS;
    c->attn_scale = 1.0 / sqrt((double)c->d_head);
    return SL_OK;
}

sl_status arch_gguf_moe(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_gguf_int(m, "expert_count", ARCH_RANGE(0, 0, 4096), &c->n_expert, err));
    if (!c->n_expert) return SL_OK;
    SL_TRY(arch_gguf_int(m, "expert_used_count", ARCH_RANGE(-1, 1, 64), &c->n_expert_used, err));
    SL_TRY(arch_gguf_int(m, "expert_feed_forward_length", ARCH_RANGE(c->d_ff, 1, 1 << 22),
                         &c->d_ff_expert, err));
    SL_TRY(arch_gguf_int(m, "expert_shared_count", ARCH_RANGE(0, 0, 64), &c->n_shared, err));
    SL_TRY(arch_gguf_int(m, "leading_dense_block_count", ARCH_RANGE(0, 0, c->n_layer),
                         &c->n_dense_lead, err));
    /* Some files list every layer as MoE and leave dense ones plain: the tensors decide where they
     * are there. */
    for (int i = 0; i < c->n_layer; i++) {
        char router[96], gate[96];
        arch_tensor_name(&c->naming, ROLE_ROUTER, i, "weight", router, sizeof router);
        arch_tensor_name(&c->naming, ROLE_GATE, i, "weight", gate, sizeof gate);
        bool has_router = io_find(m, router), has_dense = io_find(m, gate);
        if (has_router || (!has_dense && i >= c->n_dense_lead)) c->layer[i].ffn = ARCH_MOE;
    }
    return SL_OK;
}

sl_status arch_gguf_router(const io_model *m, bool norm, bool sigmoid, struct arch_cfg *c,
                           sl_err *err)
{
    double scale = 0;
    int gating = 0;
    SL_TRY(arch_gguf_real(m, "expert_weights_scale", ARCH_RANGE(1.0, 0, 1e6), &scale, err));
    c->route_scale = scale == 0 ? 1.0f : (float)scale; /* 0 means not set in old files */
    SL_TRY(arch_gguf_int(m, "expert_gating_func", ARCH_RANGE(sigmoid ? 2 : 1, 0, 2), &gating, err));
    c->route_sigmoid = gating == 2;
    return arch_gguf_flag(m, "expert_weights_norm", norm, &c->route_norm, err);
}

bool arch_gguf_has(const io_model *m, const struct arch_cfg *c, enum arch_role role)
{
    char name[128];
    arch_tensor_name(&c->naming, role, 0, "weight", name, sizeof name);
    return io_find(m, name) != NULL;
}
