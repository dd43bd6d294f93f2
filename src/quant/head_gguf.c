/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF's metadata: the source's own, or what a folder's configuration says in GGUF's keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "quant/quant_internal.h"

static const char *gguf_arch(const char *arch)
{
    static const char *const name[][2] = {{"llama", "llama"},          {"qwen2", "qwen2"},           {"qwen3", "qwen3"},
                                          {"qwen3_moe", "qwen3moe"},   {"deepseek_v2", "deepseek2"}, {"deepseek_v3", "deepseek2"}};
    for (int i = 0; i < BASE_COUNT_OF(name); i++)
        if (strcmp(name[i][0], arch) == 0) return name[i][1];
    return NULL;
}

struct keys {
    io_out *out;
    const char *arch;
};

static const char *full(const struct keys *k, const char *key, char *buf, size_t n)
{
    snprintf(buf, n, "%s.%s", k->arch, key);
    return buf;
}

static void put_int(const struct keys *k, const char *key, int64_t v)
{
    char buf[128];
    io_out_u32(k->out, full(k, key, buf, sizeof buf), (uint32_t)v);
}

static void put_real(const struct keys *k, const char *key, double v)
{
    char buf[128];
    io_out_f32(k->out, full(k, key, buf, sizeof buf), (float)v);
}

static sl_status put_rope(const struct quant_plan *p, const struct keys *k, sl_err *err)
{
    const struct model_cfg *c = &p->cfg;
    const struct json *o = io_config(p->src), *s = text_json_get(o, "rope_parameters");
    char buf[128];
    double all = 0, one = 0;
    put_real(k, "rope.freq_base", c->rope_theta);
    put_int(k, "rope.dimension_count", c->n_rot);
    if (c->rope_kind == MODEL_ROPE_PLAIN || c->rope_kind == MODEL_ROPE_LLAMA3) return SL_OK;
    const char *type = c->rope_kind == MODEL_ROPE_YARN ? "yarn" : "linear";
    io_out_str(k->out, full(k, "rope.scaling.type", buf, sizeof buf), type, strlen(type));
    put_real(k, "rope.scaling.factor", c->rope_factor);
    if (c->rope_kind != MODEL_ROPE_YARN) return SL_OK;
    put_int(k, "rope.scaling.original_context_length", (int64_t)c->rope_orig_ctx);
    put_real(k, "rope.scaling.yarn_beta_fast", c->yarn_beta_fast);
    put_real(k, "rope.scaling.yarn_beta_slow", c->yarn_beta_slow);
    if (c->yarn_real)
        return SL_FAIL(err, UNSUPPORTED, "%s: config.json: truncate false, which GGUF can not say",
                       io_path(p->src));
    if (!s || s->kind != JSON_OBJECT_K) s = text_json_get(o, "rope_scaling");
    SL_TRY(text_json_real(s, "mscale_all_dim", 0, &all, err));
    SL_TRY(text_json_real(s, "mscale", all, &one, err));
    double usual = 0.1 * log(c->rope_factor) + 1, want = c->kv_lora && all > 0 ? 1 : usual;
    if (fabs(c->yarn_mscale / want - 1) > 1e-9)
        put_real(k, "rope.scaling.attn_factor", c->yarn_mscale / want);
    if (!c->kv_lora) return SL_OK;
    if (one != all)
        return SL_FAIL(err, UNSUPPORTED, "%s: config.json: mscale %g and mscale_all_dim %g differ, which GGUF can not say",
                       io_path(p->src), one, all);
    if (all > 0) put_real(k, "rope.scaling.yarn_log_multiplier", 0.1 * all);
    return SL_OK;
}

static void put_experts(const struct model_cfg *c, const struct keys *k)
{
    char buf[128];
    bool ds = strcmp(k->arch, "deepseek2") == 0;
    int dense = 0;
    put_int(k, "expert_count", c->n_expert);
    put_int(k, "expert_used_count", c->n_expert_used);
    put_int(k, "expert_feed_forward_length", c->d_ff_expert);
    io_out_bool(k->out, full(k, "expert_weights_norm", buf, sizeof buf), c->route_norm);
    if (!ds) return;
    while (dense < c->n_layer && !c->moe_layer[dense]) dense++;
    put_int(k, "leading_dense_block_count", dense);
    put_int(k, "expert_shared_count", c->n_shared);
    put_real(k, "expert_weights_scale", (double)c->route_scale);
    put_int(k, "expert_gating_func", c->route_sigmoid ? 2 : 1);
    if (c->n_group > 1) {
        put_int(k, "expert_group_count", c->n_group);
        put_int(k, "expert_group_used_count", c->n_group_used);
    }
}

/* The window, and, unless all layers have it, which do. */
static void put_window(const struct model_cfg *c, const struct keys *k)
{
    char buf[128];
    int n = 0;
    for (int i = 0; i < c->n_layer; i++)
        n += c->window_layer[i];
    if (!c->n_window || !n) return;
    put_int(k, "attention.sliding_window", c->n_window);
    if (n == c->n_layer) return;
    io_out_array(k->out, full(k, "attention.sliding_window_pattern", buf, sizeof buf), IO_I32,
                 (uint64_t)c->n_layer);
    for (int i = 0; i < c->n_layer; i++)
        io_out_elem_i32(k->out, c->window_layer[i]);
}

static void put_attention(const struct model_cfg *c, const struct keys *k)
{
    put_int(k, "attention.head_count", c->n_head);
    put_real(k, "attention.layer_norm_rms_epsilon", (double)c->norm_eps);
    put_window(c, k);
    if (!c->kv_lora) {
        put_int(k, "attention.head_count_kv", c->n_head_kv);
        put_int(k, "attention.key_length", c->d_head);
        put_int(k, "attention.value_length", c->d_head);
        return;
    }
    put_int(k, "attention.head_count_kv", 1);
    put_int(k, "attention.key_length", c->kv_lora + c->d_rope);
    put_int(k, "attention.value_length", c->kv_lora);
    put_int(k, "attention.key_length_mla", c->d_head);
    put_int(k, "attention.value_length_mla", c->d_v);
    put_int(k, "attention.kv_lora_rank", c->kv_lora);
    if (c->q_lora) put_int(k, "attention.q_lora_rank", c->q_lora);
}

/* MTP layers are written where their tensors are there. */
static int n_mtp(const struct quant_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].id.role == ROLE_MTP_EH) n++;
    return n;
}

static sl_status from_hf(const struct quant_plan *p, io_out *out, sl_err *err)
{
    const struct model_cfg *c = &p->cfg;
    struct keys k = {out, gguf_arch(c->arch)};
    if (!k.arch)
        return SL_FAIL(err, UNSUPPORTED, "%s: architecture '%s' can not be written as GGUF",
                       io_path(p->src), c->arch);
    if (c->kv_lora && c->rope_style != MODEL_ROPE_PAIRS)
        return SL_FAIL(err, UNSUPPORTED, "%s: config.json: rope_interleave false, which GGUF can not say", io_path(p->src));
    const char *path = io_path(p->src), *base = path + strlen(path);
    int mtp = n_mtp(p);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    for (base = path + n; base > path && base[-1] != '/'; base--) {}
    io_out_str(out, "general.architecture", k.arch, strlen(k.arch));
    io_out_str(out, "general.name", base, (uint64_t)(path + n - base));
    put_int(&k, "block_count", c->n_layer + mtp);
    if (mtp) put_int(&k, "nextn_predict_layers", mtp);
    put_int(&k, "context_length", c->n_ctx_train);
    put_int(&k, "embedding_length", c->d_model);
    put_int(&k, "feed_forward_length", c->d_ff);
    put_int(&k, "vocab_size", c->n_vocab);
    put_attention(c, &k);
    if (c->n_expert) put_experts(c, &k);
    SL_TRY(put_rope(p, &k, err));
    quant_put_sampling(p, out);
    return quant_tok_to_gguf(p, out, err);
}

/* llama.cpp's number for a file whose matrices are mostly of that type; -1 = it has none. */
static int file_type(const struct quant_plan *p)
{
    static const int of[QUANT_N_TYPE + 1] = {[QUANT_F16] = 1,   [QUANT_Q4_0] = 2,  [QUANT_Q4_1] = 3,  [QUANT_Q8_0] = 7,   [QUANT_Q5_0] = 8,
                                             [QUANT_Q5_1] = 9,  [QUANT_Q4_K] = 15, [QUANT_Q5_K] = 17, [QUANT_Q6_K] = 18, [QUANT_BF16] = 32,
                                             [QUANT_MXFP4] = 38};
    enum quant_type t = p->o->type[QUANT_CLASS_FFN];
    return t == QUANT_F32 || of[t] ? of[t] : -1;
}

sl_status quant_head_gguf(const struct quant_plan *p, io_out *out, sl_err *err)
{
    int type = file_type(p);
    if (io_model_kind(p->src) == IO_HF) SL_TRY(from_hf(p, out, err));
    for (int i = 0; i < io_n_meta(p->src); i++) {
        const char *key = io_meta_key(p->src, i);
        if (strcmp(key, "general.quantization_version") != 0 && (strcmp(key, "general.file_type") != 0 ||
            p->o->type[QUANT_CLASS_FFN] == QUANT_AS_IS))
            io_out_copy(out, p->src, i);
    }
    if (type >= 0 && p->o->type[QUANT_CLASS_FFN] != QUANT_AS_IS) io_out_u32(out, "general.file_type", (uint32_t)type);
    io_out_u32(out, "general.quantization_version", 2);
    return SL_OK;
}
