/* SPDX-License-Identifier: Apache-2.0 */
/* From named tensors to packed layers: every shape is checked here, by name, before anything is
 * packed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fp.h"
#include "base/size.h"
#include "model/model_internal.h"

#define MAX_NAME 128

static sl_status want_shape(const struct weight *w, int64_t rows, int64_t cols, sl_err *err)
{
    if (w->rows == rows && w->cols == cols) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: shape [%lld, %lld], expected [%lld, %lld]", w->name,
                   (long long)w->rows, (long long)w->cols, (long long)rows, (long long)cols);
}

/* A matrix with its scales, which are numbers. */
static sl_status get_biased(const io_model *io, const char *name, struct weight *w, sl_err *err)
{
    SL_TRY(io_weight(io, name, w, err));
    sl_status st = weight_check(w, err);
    if (st) status_prefix(err, "%s", io_path(io));
    return st;
}

/* Is there a bias of that matrix with anything in it? Old GPTQ files have some full of zeros. */
static bool has_bias(const io_model *io, const char *name)
{
    size_t n = strlen(name), k = strlen(".weight");
    if (n <= k || strcmp(name + n - k, ".weight") != 0) return false;
    const struct tensor *t = io_findf(io, "%.*s.bias", (int)(n - k), name);
    return t && !tensor_is_zero(t);
}

/* The same for a layer that has no place for a bias, be it a tensor or among the scales. */
static sl_status get_weight(const io_model *io, const char *name, struct weight *w, sl_err *err)
{
    void *p = NULL;
    bool any = false;
    SL_TRY(get_biased(io, name, w, err));
    if (has_bias(io, name))
        return SL_FAIL(err, UNSUPPORTED, "%s: %.100s has a bias, which this layer has no place for",
                       io_path(io), name);
    if (w->scheme != TENSOR_SCHEME_GROUP) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)w->rows, sizeof(float), &p, err));
    sl_status st = io_weight_bias(io, name, w, p, &any, err);
    mem_free(p);
    if (st || !any) return st;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: %.100s: its quant_bias holds a bias, which this layer has no place for",
                   io_path(io), name);
}

/* A source weight was packed: its pages go, progress is told. */
static void dropped(void *user, const struct weight *w)
{
    struct model *m = user;
    m->done_bytes += (int64_t)weight_bytes(w);
    io_reading_done(&m->reading, w);
    if (m->opts.progress &&
        m->opts.progress(m->opts.user, "packing weights", m->done_bytes, m->total_bytes))
        m->cancelled = true;
}

/* ---- a matrix: from the weights of the source, into a packed file, or out of one ---- */

static sl_status out_begin(void *user, const struct dev_image *im, sl_err *err)
{
    struct model *m = user;
    if (im->is_rounded) m->rounded = true;
    struct io_pack_mat p = {.name = m->out_name,
                            .fmt = {im->fmt[0], im->fmt[1]},
                            .n = im->n,
                            .is_pair = im->is_pair,
                            .rows = im->rows,
                            .cols = im->cols,
                            .unit_bytes = {im->unit_bytes[0], im->unit_bytes[1]},
                            .n_unit = (uint64_t)im->n * (((uint64_t)im->rows + 15) / 16),
                            .scale = im->scale};
    return io_pack_out_mat(m->out, &p, err);
}

static void out_bytes(void *user, int worker, uint64_t at, const void *p, uint64_t n)
{
    struct model *m = user;
    io_pack_out_bytes(m->out, worker, at, p, n);
}

/* name: what packed files know the matrix by: that of its (first) tensor. */
static sl_status pack(struct model *m, const char *name, const struct weight *a,
                      const struct weight *b, int n, enum dev_use use, dev_mat **out, sl_err *err)
{
    struct dev_image_sink sink = {out_begin, out_bytes, m};
    m->out_name = name;
    if (m->out) {
        SL_TRY(dev_mat_pack(m->d, a, b, n, &sink, dropped, m, err));
        SL_TRY(io_pack_out_failed(m->out, err));
    } else {
        SL_TRY(dev_mat_load(m->d, a, b, n, use, dropped, m, out, err));
        m->weight_bytes += dev_mat_bytes(*out);
    }
    return m->cancelled ? SL_FAIL(err, CANCELLED, "cancelled while packing %s", a->name) : SL_OK;
}

/* One that a packed file must have. */
static sl_status map(struct model *m, const char *name, int n, bool pair, int64_t rows,
                     int64_t cols, enum dev_use use, dev_mat **out, sl_err *err)
{
    const char *path = io_pack_path(m->opts.pack);
    const struct io_pack_mat *p = io_pack_find(m->opts.pack, name);
    if (!p) return SL_FAIL(err, FORMAT, "%.100s: matrix %.80s is missing", path, name);
    if (p->n != n || p->is_pair != pair || p->rows != rows || p->cols != cols)
        return SL_FAIL(
            err, FORMAT, "%.60s: matrix %.60s: %d x [%lld, %lld]%s, expected %d x [%lld, %lld]%s",
            path, name, p->n, (long long)p->rows, (long long)p->cols, p->is_pair ? " in pairs" : "",
            n, (long long)rows, (long long)cols, pair ? " in pairs" : "");
    struct dev_image im = {.fmt = {p->fmt[0], p->fmt[1]},
                           .n = n,
                           .is_pair = pair,
                           .rows = rows,
                           .cols = cols,
                           .unit_bytes = {p->unit_bytes[0], p->unit_bytes[1]},
                           .scale = p->scale,
                           .data = p->data};
    sl_status st = dev_mat_map(m->d, name, &im, use, out, err);
    if (st) {
        status_prefix(err, "%.100s", path);
        return st;
    }
    m->weight_bytes += dev_mat_bytes(*out);
    m->done_bytes += dev_mat_bytes(*out);
    if (m->opts.progress &&
        m->opts.progress(m->opts.user, "mapping weights", m->done_bytes, m->total_bytes))
        return SL_FAIL(err, CANCELLED, "cancelled while mapping %s", path);
    return SL_OK;
}

/* A whole tensor. */
static sl_status named_matrix(struct model *m, const io_model *io, const char *name, int64_t rows,
                              int64_t cols, enum dev_use use, dev_mat **out, sl_err *err)
{
    struct weight w;
    if (m->opts.pack) return map(m, name, 1, false, rows, cols, use, out, err);
    SL_TRY(get_weight(io, name, &w, err));
    SL_TRY(want_shape(&w, rows, cols, err));
    return pack(m, name, &w, NULL, 1, use, out, err);
}

/* One with a place for a bias. */
static sl_status biased_matrix(struct model *m, const io_model *io, const char *name, int64_t rows,
                               int64_t cols, enum dev_use use, dev_mat **out, sl_err *err)
{
    struct weight w;
    if (m->opts.pack) return map(m, name, 1, false, rows, cols, use, out, err);
    SL_TRY(get_biased(io, name, &w, err));
    SL_TRY(want_shape(&w, rows, cols, err));
    return pack(m, name, &w, NULL, 1, use, out, err);
}

static sl_status matrix(struct model *m, const io_model *io, int il, enum arch_role role,
                        int64_t rows, int64_t cols, enum dev_use use, dev_mat **out, sl_err *err)
{
    char name[MAX_NAME];
    arch_tensor_name(&m->cfg.naming, role, il, 0, "weight", name, sizeof name);
    if (role == ROLE_ROUTER && m->cfg.moe_bias)
        return biased_matrix(m, io, name, rows, cols, use, out, err);
    if (!m->cfg.kv_lora && (role == ROLE_Q || role == ROLE_K || role == ROLE_V || role == ROLE_O))
        return biased_matrix(m, io, name, rows, cols, use, out, err);
    return named_matrix(m, io, name, rows, cols, use, out, err);
}

/* A vector as f32, into p[n]. */
static sl_status read_vector(const io_model *io, const char *name, int64_t n, float *p, sl_err *err)
{
    const struct tensor *t = io_find(io, name);
    if (!t) return io_missing(io, name, err);
    if (!tensor_dtype_is_weight(t->type) || t->n_dim != 1 || t->shape[0] != n ||
        n % tensor_dtype(t->type)->block)
        return SL_FAIL(
            err, FORMAT, "%s: %lld values in %d dimensions of type %s, expected a vector of %lld",
            name, (long long)tensor_count(t), t->n_dim, tensor_dtype(t->type)->text, (long long)n);
    for (int64_t i = 0, step = (int64_t)t->col_bytes; step && i < n; i++)
        tensor_dequant(t->type, (const uint8_t *)t->data + i * step, 1, p + i);
    if (!t->col_bytes) tensor_dequant(t->type, t->data, n, p);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(p[i]))
            return SL_FAIL(err, FORMAT, "%s[%lld] is not finite", name, (long long)i);
    return SL_OK;
}

static sl_status put_vector(struct model *m, const float *host, int64_t n, float **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(dev_alloc(m->d, MEM_WEIGHTS, n * 4, &p, err));
    SL_TRY(dev_put(m->d, p, host, n * 4, err));
    m->weight_bytes += n * 4;
    *out = p;
    return SL_OK;
}

static sl_status named_vector(struct model *m, const io_model *io, const char *name, int64_t n,
                              float **out, sl_err *err)
{
    void *host = NULL;
    SL_TRY(mem_alloc_array(MEM_WEIGHTS, (size_t)n, sizeof(float), &host, err));
    sl_status st = SL_OK;
    SL_TRY_OUT(read_vector(io, name, n, host, err));
    SL_TRY_OUT(put_vector(m, host, n, out, err));
out:
    mem_free(host);
    return st;
}

static sl_status vector(struct model *m, const io_model *io, int il, enum arch_role role, int64_t n,
                        float **out, sl_err *err)
{
    char name[MAX_NAME];
    arch_tensor_name(&m->cfg.naming, role, il, 0, "weight", name, sizeof name);
    return named_vector(m, io, name, n, out, err);
}

/* A bias that is stored among the scales of a matrix: it stands for the layer's own. */
static sl_status stored_bias(struct model *m, const io_model *io, int il, enum arch_role role,
                             int64_t n, float **out, sl_err *err)
{
    char name[MAX_NAME], own[MAX_NAME];
    struct weight w;
    void *host = NULL;
    bool any = false;
    if (io_model_pack(io)) return SL_OK; /* it has become the layer's own there */
    arch_tensor_name(&m->cfg.naming, role, il, 0, "weight", name, sizeof name);
    arch_tensor_name(&m->cfg.naming, role, il, 0, "bias", own, sizeof own);
    SL_TRY(io_weight(io, name, &w, err));
    if (w.scheme != TENSOR_SCHEME_GROUP || w.rows != n) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(float), &host, err));
    sl_status st = io_weight_bias(io, name, &w, host, &any, err);
    if (!st && any) st = put_vector(m, host, n, out, err);
    if (!st && any && m->out) st = io_pack_out_vector(m->out, own, host, n, err);
    mem_free(host);
    return st;
}

/* A bias: required when must is set, NULL when the file has none. */
static sl_status bias(struct model *m, const io_model *io, int il, enum arch_role role, int64_t n,
                      bool must, float **out, sl_err *err)
{
    char name[MAX_NAME];
    SL_TRY(stored_bias(m, io, il, role, n, out, err));
    if (*out || !arch_reads_bias(io, &m->cfg, role)) return SL_OK;
    arch_tensor_name(&m->cfg.naming, role, il, 0, "bias", name, sizeof name);
    if (!must && !io_find(io, name)) return SL_OK;
    return named_vector(m, io, name, n, out, err);
}

static sl_status load_gqa(struct model *m, const io_model *io, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t D = c->d_model, nq = (int64_t)c->n_head * c->d_head,
            nk = (int64_t)c->n_head_kv * c->d_head;
    SL_TRY(matrix(m, io, il, ROLE_Q, nq, D, DEV_USE_MATMUL, &l->q, err));
    SL_TRY(matrix(m, io, il, ROLE_K, nk, D, DEV_USE_MATMUL, &l->k, err));
    SL_TRY(matrix(m, io, il, ROLE_V, nk, D, DEV_USE_MATMUL, &l->v, err));
    SL_TRY(matrix(m, io, il, ROLE_O, D, nq, DEV_USE_PLAIN, &l->o, err));
    SL_TRY(bias(m, io, il, ROLE_Q, nq, c->attn_bias, &l->q_bias, err));
    SL_TRY(bias(m, io, il, ROLE_K, nk, c->attn_bias, &l->k_bias, err));
    SL_TRY(bias(m, io, il, ROLE_V, nk, c->attn_bias, &l->v_bias, err));
    SL_TRY(bias(m, io, il, ROLE_O, D, false, &l->o_bias, err));
    if (c->sinks) SL_TRY(vector(m, io, il, ROLE_SINKS, c->n_head, &l->sink, err));
    if (c->qk_norm) {
        SL_TRY(vector(m, io, il, ROLE_Q_NORM, c->qk_norm_whole ? nq : c->d_head, &l->q_norm, err));
        SL_TRY(vector(m, io, il, ROLE_K_NORM, c->qk_norm_whole ? nk : c->d_head, &l->k_norm, err));
    }
    return SL_OK;
}

/* One part of kv_b as plain matrices of our own: transposed to [r, nope] per head, or [v, r]. BF16
 * where the source is BF16 (exact), else f32 in the reference mode and for exact sources, BF16
 * otherwise. */
static sl_status split_kv_b(struct model *m, const struct weight *kv_b, bool keys, void **owned,
                            struct weight *out, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t H = c->n_head, r = c->kv_lora, nope = c->d_nope, v = c->d_v, stride = nope + v;
    int64_t rows = keys ? r : v, cols = keys ? nope : r;
    struct dev_info info;
    dev_info_get(m->d, &info);
    bool half =
        kv_b->type == TENSOR_BF16 || (info.acts != DEV_ACTS_F32 && kv_b->type != TENSOR_F32);
    if (half && kv_b->type != TENSOR_BF16) m->rounded = true;
    size_t item = half ? 2 : 4;
    void *line_p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)r, sizeof(float), &line_p, err));
    sl_status st = mem_alloc_array(MEM_SCRATCH, (size_t)(H * rows * cols), item, owned, err);
    float *line = line_p;
    for (int64_t h = 0; h < H && !st; h++) {
        for (int64_t i = 0; i < (keys ? nope : v); i++) {
            weight_dequant(kv_b, h * stride + (keys ? i : nope + i), 0, r, line);
            for (int64_t j = 0; j < r; j++) {
                size_t at = (size_t)(h * rows * cols + (keys ? j * cols + i : i * cols + j));
                if (half)
                    ((uint16_t *)*owned)[at] = fp_f32_to_bf16(line[j]);
                else
                    ((float *)*owned)[at] = line[j];
            }
        }
    }
    mem_free(line_p);
    *out = (struct weight){.name = kv_b->name,
                           .type = half ? TENSOR_BF16 : TENSOR_F32,
                           .rows = H * rows,
                           .cols = cols,
                           .data = *owned,
                           .row_bytes = (uint64_t)cols * item,
                           .tensor_scale = 1.0f};
    return st;
}

/* A stack of n matrices from one weight of n * rows rows. */
static sl_status pack_stack(struct model *m, const char *name, const struct weight *a, int n,
                            enum dev_use use, dev_mat **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(struct weight), &p, err));
    struct weight *w = p;
    for (int i = 0; i < n; i++)
        w[i] = weight_rows(a, a->rows / n * i, a->rows / n);
    sl_status st = pack(m, name, w, NULL, n, use, out, err);
    mem_free(p);
    return st;
}

static sl_status load_kv_b(struct model *m, const io_model *io, int il, struct layer *l,
                           sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t H = c->n_head, r = c->kv_lora, nope = c->d_nope, v = c->d_v;
    char name[MAX_NAME], key_k[MAX_NAME], key_v[MAX_NAME];
    struct weight kb, vb, both;
    static const struct arch_naming gguf = {IO_GGUF, NULL};
    arch_tensor_name(&gguf, ROLE_K_B, il, 0, "weight", key_k,
                     sizeof key_k); /* whatever the source's spelling */
    arch_tensor_name(&gguf, ROLE_V_B, il, 0, "weight", key_v, sizeof key_v);
    if (m->opts.pack) {
        SL_TRY(map(m, key_k, (int)H, false, r, nope, DEV_USE_EXACT, &l->k_b, err));
        return map(m, key_v, (int)H, false, v, r, DEV_USE_EXACT, &l->v_b, err);
    }
    arch_tensor_name(&m->cfg.naming, ROLE_K_B, il, 0, "weight", name, sizeof name);
    if (m->kind == IO_GGUF && io_find(io, name)) { /* the split spelling */
        SL_TRY(get_weight(io, name, &kb, err));
        arch_tensor_name(&m->cfg.naming, ROLE_V_B, il, 0, "weight", name, sizeof name);
        SL_TRY(get_weight(io, name, &vb, err));
        if (kb.rows == nope && kb.cols == H * r &&
            nope != H * r) /* ik's [H * r, nope] seen as 2-D the other way round */
            return SL_FAIL(err, UNSUPPORTED, "%s: attn_k_b as [%lld, %lld] is not supported",
                           kb.name, (long long)kb.rows, (long long)kb.cols);
        SL_TRY(want_shape(&kb, H * r, nope, err));
        SL_TRY(want_shape(&vb, H * v, r, err));
        SL_TRY(pack_stack(m, key_k, &kb, (int)H, DEV_USE_EXACT, &l->k_b, err));
        return pack_stack(m, key_v, &vb, (int)H, DEV_USE_EXACT, &l->v_b, err);
    }
    arch_tensor_name(&m->cfg.naming, ROLE_KV_B, il, 0, "weight", name, sizeof name);
    SL_TRY(get_weight(io, name, &both, err));
    SL_TRY(want_shape(&both, H * (nope + v), r, err));
    void *own_k = NULL, *own_v = NULL;
    sl_status st = SL_OK;
    SL_TRY_OUT(split_kv_b(m, &both, true, &own_k, &kb, err));
    SL_TRY_OUT(split_kv_b(m, &both, false, &own_v, &vb, err));
    SL_TRY_OUT(pack_stack(m, key_k, &kb, (int)H, DEV_USE_EXACT, &l->k_b, err));
    SL_TRY_OUT(pack_stack(m, key_v, &vb, (int)H, DEV_USE_EXACT, &l->v_b, err));
out:
    mem_free(own_k);
    mem_free(own_v);
    return st;
}

static sl_status load_mla(struct model *m, const io_model *io, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t D = c->d_model, nq = (int64_t)c->n_head * c->d_head;
    if (c->q_lora) {
        SL_TRY(matrix(m, io, il, ROLE_Q_A, c->q_lora, D, DEV_USE_LATENT, &l->q_a, err));
        SL_TRY(vector(m, io, il, ROLE_Q_A_NORM, c->q_lora, &l->q_a_norm, err));
        SL_TRY(matrix(m, io, il, ROLE_Q_B, nq, c->q_lora, DEV_USE_LATENT, &l->q_b,
                      err)); /* a latent's error is in all heads */
    } else {
        SL_TRY(matrix(m, io, il, ROLE_Q, nq, D, DEV_USE_MATMUL, &l->q, err));
    }
    SL_TRY(matrix(m, io, il, ROLE_KV_A, c->kv_lora + c->d_rope, D, DEV_USE_LATENT, &l->kv_a, err));
    SL_TRY(vector(m, io, il, ROLE_KV_A_NORM, c->kv_lora, &l->kv_a_norm, err));
    SL_TRY(load_kv_b(m, io, il, l, err));
    return matrix(m, io, il, ROLE_O, D, (int64_t)c->n_head * c->d_v, DEV_USE_MATMUL, &l->o, err);
}

/* gate and up as one pair matrix, and down; roles of the dense or the shared form. */
static sl_status load_ffn(struct model *m, const io_model *io, int il, bool shared, int64_t F,
                          struct layer *l, sl_err *err)
{
    char name[MAX_NAME], name_up[MAX_NAME];
    struct weight gate, up;
    int64_t D = m->cfg.d_model;
    arch_tensor_name(&m->cfg.naming, shared ? ROLE_GATE_SHEXP : ROLE_GATE, il, 0, "weight", name,
                     sizeof name);
    enum dev_use use =
        shared ? DEV_USE_PLAIN : DEV_USE_MATMUL; /* a shared expert is as precise as the others */
    if (m->opts.pack) {
        SL_TRY(map(m, name, 1, true, F, D, use, &l->gate_up, err));
    } else {
        SL_TRY(get_weight(io, name, &gate, err));
        SL_TRY(want_shape(&gate, F, D, err));
        arch_tensor_name(&m->cfg.naming, shared ? ROLE_UP_SHEXP : ROLE_UP, il, 0, "weight", name_up,
                         sizeof name_up);
        SL_TRY(get_weight(io, name_up, &up, err));
        SL_TRY(want_shape(&up, F, D, err));
        SL_TRY(pack(m, name, &gate, &up, 1, use, &l->gate_up, err));
    }
    return matrix(m, io, il, shared ? ROLE_DOWN_SHEXP : ROLE_DOWN, D, F, use, &l->down, err);
}

/* Slots of the stacks, and the expert in slot i. */
static int n_slot(const struct model *m)
{
    return m->slots.n ? m->slots.n : m->cfg.n_expert;
}

static int expert_in(const struct model *m, int i)
{
    return m->slots.n ? m->slots.expert[i] : i;
}

/* Both matrices of all experts in one stack, of each expert gate's rows first. */
static sl_status fused_weights(struct model *m, const io_model *io, const char *name, bool up,
                               int64_t rows, int64_t cols, struct weight *w, sl_err *err)
{
    struct weight all;
    SL_TRY(get_weight(io, name, &all, err));
    SL_TRY(want_shape(&all, 2 * m->cfg.n_expert * rows, cols, err));
    for (int i = 0; i < n_slot(m); i++)
        w[i] = weight_rows(&all, (2 * expert_in(m, i) + up) * rows, rows);
    return SL_OK;
}

/* The matrices of one role, one a slot: a stack in GGUF, one tensor each in HF. */
static sl_status expert_weights(struct model *m, const io_model *io, int il, enum arch_role role,
                                int64_t rows, int64_t cols, struct weight *w, sl_err *err)
{
    char name[MAX_NAME];
    struct weight all;
    if (m->kind == IO_GGUF) {
        arch_tensor_name(&m->cfg.naming, ROLE_GATE_UP_EXPS, il, 0, "weight", name, sizeof name);
        if (role != ROLE_DOWN_EXPS && io_find(io, name))
            return fused_weights(m, io, name, role == ROLE_UP_EXPS, rows, cols, w, err);
        arch_tensor_name(&m->cfg.naming, role, il, 0, "weight", name, sizeof name);
        SL_TRY((m->cfg.moe_bias ? get_biased : get_weight)(io, name, &all, err));
        SL_TRY(want_shape(&all, m->cfg.n_expert * rows, cols, err));
        for (int i = 0; i < n_slot(m); i++)
            w[i] = weight_rows(&all, expert_in(m, i) * rows, rows);
        return SL_OK;
    }
    for (int i = 0; i < n_slot(m); i++) {
        arch_tensor_name(&m->cfg.naming, role, il, expert_in(m, i), "weight", name, sizeof name);
        SL_TRY((m->cfg.moe_bias ? get_biased : get_weight)(io, name, &w[i], err));
        SL_TRY(want_shape(&w[i], rows, cols, err));
    }
    return SL_OK;
}

/* gate and up, and down, of all experts of a layer that have slots. */
static sl_status load_experts(struct model *m, const io_model *io, int il, struct layer *l,
                              sl_err *err)
{
    int n = n_slot(m);
    int64_t D = m->cfg.d_model, F = m->cfg.d_ff_expert;
    char name[MAX_NAME], name_down[MAX_NAME];
    void *p = NULL;
    sl_status st = SL_OK;
    arch_tensor_name(&m->cfg.naming, ROLE_GATE_EXPS, il, 0, "weight", name, sizeof name);
    arch_tensor_name(&m->cfg.naming, ROLE_DOWN_EXPS, il, 0, "weight", name_down, sizeof name_down);
    if (m->opts.pack) {
        SL_TRY(map(m, name, n, true, F, D, DEV_USE_EXPERTS, &l->gate_up_exps, err));
        return map(m, name_down, n, false, D, F, DEV_USE_EXPERTS, &l->down_exps, err);
    }
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 2 * (size_t)n, sizeof(struct weight), &p, err));
    struct weight *a = p, *b = a + n;
    SL_TRY_OUT(expert_weights(m, io, il, ROLE_GATE_EXPS, F, D, a, err));
    SL_TRY_OUT(expert_weights(m, io, il, ROLE_UP_EXPS, F, D, b, err));
    SL_TRY_OUT(pack(m, name, a, b, n, DEV_USE_EXPERTS, &l->gate_up_exps, err));
    SL_TRY_OUT(expert_weights(m, io, il, ROLE_DOWN_EXPS, D, F, a, err));
    SL_TRY_OUT(pack(m, name_down, a, NULL, n, DEV_USE_EXPERTS, &l->down_exps, err));
out:
    mem_free(p);
    return st;
}

/* Biases of one role's matrices, those of expert e to out + e * ld. */
static sl_status expert_bias(struct model *m, const io_model *io, int il, enum arch_role role,
                             int64_t n, float *out, int64_t ld, sl_err *err)
{
    int E = m->cfg.n_expert;
    char name[MAX_NAME];
    for (int e = 0; e < E; e++) {
        arch_tensor_name(&m->cfg.naming, role, il, e, "bias", name, sizeof name);
        if (m->kind == IO_HF) {
            SL_TRY(read_vector(io, name, n, out + e * ld, err));
            continue;
        }
        const struct tensor *t = io_find(io, name); /* of all experts */
        if (!t) return io_missing(io, name, err);
        if (t->n_dim != 2 || t->shape[0] != E || t->shape[1] != n ||
            tensor_dtype(t->type)->block != 1 || !t->data)
            return SL_FAIL(err, FORMAT,
                           "%s: tensor %.100s: %d x %lld values of a plain type are expected",
                           io_path(io), name, E, (long long)n);
        uint64_t row = t->n_bytes / (uint64_t)E;
        tensor_dequant(t->type, (const uint8_t *)t->data + (uint64_t)e * row, n, out + e * ld);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(out[e * ld + i]))
                return SL_FAIL(err, FORMAT, "%s[%d][%lld] is not finite", name, e, (long long)i);
    }
    return SL_OK;
}

/* What moe_bias says there is: the router's, gates and ups of each expert side by side, downs. */
static sl_status load_moe_biases(struct model *m, const io_model *io, int il, struct layer *l,
                                 sl_err *err)
{
    int64_t E = m->cfg.n_expert, D = m->cfg.d_model, F = m->cfg.d_ff_expert;
    char name[MAX_NAME];
    void *p = NULL;
    arch_tensor_name(&m->cfg.naming, ROLE_ROUTER, il, 0, "bias", name, sizeof name);
    SL_TRY(named_vector(m, io, name, E, &l->router_add, err));
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(E * BASE_MAX(2 * F, D)), sizeof(float), &p, err));
    float *host = p;
    sl_status st = SL_OK;
    SL_TRY_OUT(expert_bias(m, io, il, ROLE_GATE_EXPS, F, host, 2 * F, err));
    SL_TRY_OUT(expert_bias(m, io, il, ROLE_UP_EXPS, F, host + F, 2 * F, err));
    SL_TRY_OUT(put_vector(m, host, E * 2 * F, &l->gate_up_bias, err));
    SL_TRY_OUT(expert_bias(m, io, il, ROLE_DOWN_EXPS, D, host, D, err));
    SL_TRY_OUT(put_vector(m, host, E * D, &l->down_bias, err));
out:
    mem_free(p);
    return st;
}

/* blk.N.exp_probs_b.bias; some files leave the end out. */
static void router_bias_name(const struct model *m, const io_model *io, int il, char *name, int n)
{
    static const char *const tail[] = {"", ".weight"};
    arch_tensor_name(&m->cfg.naming, ROLE_ROUTER_BIAS, il, 0, "", name, n);
    for (int i = 0; i < 2 && m->kind == IO_GGUF && !io_find(io, name); i++) {
        char other[MAX_NAME];
        snprintf(other, sizeof other, "blk.%d.exp_probs_b%s", il, tail[i]);
        if (io_find(io, other)) snprintf(name, (size_t)n, "%s", other);
    }
}

static sl_status load_moe(struct model *m, const io_model *io, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    char name[MAX_NAME];
    SL_TRY(matrix(m, io, il, ROLE_ROUTER, c->n_expert, c->d_model, DEV_USE_EXACT, &l->router, err));
    router_bias_name(m, io, il, name, sizeof name);
    if (c->route_bias && (m->kind == IO_HF || io_find(io, name))) {
        void *host = NULL;
        SL_TRY(mem_arena_array(&m->arena, (size_t)c->n_expert, sizeof(float), &host, err));
        SL_TRY(read_vector(io, name, c->n_expert, host, err));
        l->router_bias = host;
    }
    SL_TRY(load_experts(m, io, il, l, err));
    if (c->moe_bias) SL_TRY(load_moe_biases(m, io, il, l, err));
    return c->n_shared ? load_ffn(m, io, il, true, (int64_t)c->d_ff_expert * c->n_shared, l, err)
                       : SL_OK;
}

sl_status model_load_layer(struct model *m, const io_model *io, int il, struct layer *l,
                           sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    l->is_moe = c->layer[il].ffn == ARCH_MOE;
    l->n_window = c->layer[il].n_window;
    SL_TRY(vector(m, io, il, ROLE_ATTN_NORM, c->d_model, &l->attn_norm, err));
    SL_TRY(vector(m, io, il, ROLE_FFN_NORM, c->d_model, &l->ffn_norm, err));
    if (c->layer[il].mixer == ARCH_MLA)
        SL_TRY(load_mla(m, io, il, l, err));
    else
        SL_TRY(load_gqa(m, io, il, l, err));
    if (l->is_moe) return load_moe(m, io, il, l, err);
    if (c->d_ff < 1)
        return SL_FAIL(err, FORMAT, "%s: the feed-forward width is missing", io_path(io));
    return load_ffn(m, io, il, false, c->d_ff, l, err);
}

sl_status model_load_globals(struct model *m, const io_model *io, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    SL_TRY(named_matrix(m, io, arch_global_name(m->kind, GLOBAL_EMBED), c->n_vocab, c->d_model,
                        DEV_USE_EMBED, &m->embed, err));
    SL_TRY(named_vector(m, io, arch_global_name(m->kind, GLOBAL_NORM), c->d_model, &m->norm, err));
    m->head = m->embed;
    if (c->tied_head) return SL_OK;
    return named_matrix(m, io, arch_global_name(m->kind, GLOBAL_HEAD), c->n_vocab, c->d_model,
                        DEV_USE_MATMUL, &m->head, err);
}

/* Is there a tensor of that name with other bytes than the main one's? Published files hold the
 * embedding and the head a second time. */
static bool differs(const struct model *m, const io_model *io, const char *name, const char *other)
{
    if (m->opts.pack) return io_pack_find(m->opts.pack, name) != NULL;
    const struct tensor *a = io_find(io, name), *b = io_find(io, other);
    if (!a) return io_has_weight(io, name);
    return !(b && a->type == b->type && a->n_bytes == b->n_bytes &&
             memcmp(a->data, b->data, a->n_bytes) == 0);
}

sl_status model_load_mtp(struct model *m, const io_model *io, int i, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct mtp *t = &m->mtp[i];
    int il = c->n_layer + i;
    int64_t D = c->d_model;
    char name[MAX_NAME];
    SL_TRY(vector(m, io, il, ROLE_MTP_ENORM, D, &t->enorm, err));
    SL_TRY(vector(m, io, il, ROLE_MTP_HNORM, D, &t->hnorm, err));
    SL_TRY(matrix(m, io, il, ROLE_MTP_EH, D, 2 * D, DEV_USE_MATMUL, &t->eh, err));
    arch_tensor_name(&m->cfg.naming, ROLE_MTP_HEAD_NORM, il, 0, "weight", name, sizeof name);
    if (io_find(io, name))
        SL_TRY(named_vector(m, io, name, D, &t->head_norm, err));
    else
        t->head_norm = m->norm;
    t->embed = m->embed;
    t->head = m->head;
    arch_tensor_name(&m->cfg.naming, ROLE_MTP_EMBED, il, 0, "weight", name, sizeof name);
    if (differs(m, io, name, arch_global_name(m->kind, GLOBAL_EMBED)))
        SL_TRY(matrix(m, io, il, ROLE_MTP_EMBED, c->n_vocab, D, DEV_USE_EMBED, &t->embed, err));
    arch_tensor_name(&m->cfg.naming, ROLE_MTP_HEAD, il, 0, "weight", name, sizeof name);
    const char *head = arch_global_name(m->kind, c->tied_head ? GLOBAL_EMBED : GLOBAL_HEAD);
    if (differs(m, io, name, head))
        SL_TRY(matrix(m, io, il, ROLE_MTP_HEAD, c->n_vocab, D, DEV_USE_MATMUL, &t->head, err));
    return model_load_layer(m, io, il, &t->layer, err);
}
