/* SPDX-License-Identifier: Apache-2.0 */
/* What gated delta layers have: matrices in one of three spellings, and a few vectors. */
#include <math.h>

#include "model/load.h"

/* Is there a matrix of that role, in the packed file if it is one? */
static bool has(const struct model *m, int il, enum arch_role role)
{
    struct want w = model_want(m, il, role, 1, 1, DEV_USE_MATMUL);
    return m->opts.pack ? io_pack_find(m->opts.pack, w.name) != NULL
                        : io_has_weight(m->io, w.name);
}

static sl_status matrix(struct model *m, int il, enum arch_role role, int64_t rows, dev_mat **out,
                        sl_err *err)
{
    bool small = role == ROLE_DELTA_A || role == ROLE_DELTA_B || role == ROLE_DELTA_BA;
    struct want w = model_want(m, il, role, rows, m->cfg.d_model,
                               small ? DEV_USE_EXACT : DEV_USE_MATMUL);
    return model_load_matrix(m, &w, out, err);
}

/* Queries, keys, values and z, b and a: apart, or of key heads together. */
static sl_status inputs(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t V = (int64_t)c->n_delta_v * c->d_delta_v, n = c->n_delta_v;
    int64_t ch = arch_delta_channels(c);
    if (has(m, il, ROLE_DELTA_QKVZ)) {
        SL_TRY(matrix(m, il, ROLE_DELTA_QKVZ, ch + V, &l->in[0], err));
    } else {
        SL_TRY(matrix(m, il, ROLE_DELTA_QKV, ch, &l->in[0], err));
        SL_TRY(matrix(m, il, ROLE_DELTA_Z, V, &l->in[1], err));
    }
    if (has(m, il, ROLE_DELTA_BA)) return matrix(m, il, ROLE_DELTA_BA, 2 * n, &l->in[2], err);
    SL_TRY(matrix(m, il, ROLE_DELTA_B, n, &l->in[2], err));
    return matrix(m, il, ROLE_DELTA_A, n, &l->in[3], err);
}

/* The taps of a channel lie side by side in the file, those of all channels here. */
static sl_status load_conv(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t ch = arch_delta_channels(c);
    struct want w = model_want(m, il, ROLE_DELTA_CONV, ch, c->n_conv, DEV_USE_EXACT);
    const struct tensor *t = io_find(m->io, w.name);
    int64_t n = ch * c->n_conv;
    void *p = NULL;
    if (!t) return io_missing(m->io, w.name, err);
    if (!t->data || !tensor_dtype_is_weight(t->type) || tensor_dtype(t->type)->block > 1 ||
        tensor_count(t) != n || t->shape[0] != ch || t->shape[t->n_dim - 1] != c->n_conv ||
        t->col_bytes)
        return SL_FAIL(err, FORMAT, "%s: %lld values of type %s, expected [%lld, %d] numbers",
                       w.name, (long long)tensor_count(t), tensor_dtype(t->type)->text,
                       (long long)ch, c->n_conv);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 2 * (size_t)n, sizeof(float), &p, err));
    float *file = p, *ours = file + n;
    tensor_dequant(t->type, t->data, n, file);
    sl_status st = SL_OK;
    for (int64_t i = 0; i < n && !st; i++) {
        if (!isfinite(file[i]))
            st = SL_FAIL(err, FORMAT, "%s[%lld] is not finite", w.name, (long long)i);
        ours[i % c->n_conv * ch + i / c->n_conv] = file[i];
    }
    if (!st) st = model_load_put(m, ROLE_DELTA_CONV, ours, n, &l->conv, err);
    mem_free(p);
    return st;
}

/* -exp(A_log), which GGUF files have as it is. */
static sl_status load_decay(struct model *m, int il, struct layer *l, sl_err *err)
{
    struct want w = model_want(m, il, ROLE_DELTA_DECAY, 1, 1, DEV_USE_EXACT);
    int64_t n = m->cfg.n_delta_v;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(float), &p, err));
    float *x = p;
    sl_status st = model_load_read(m->io, w.name, n, x, err);
    for (int64_t i = 0; i < n && !st && m->kind != IO_GGUF; i++)
        x[i] = (float)-exp((double)x[i]);
    for (int64_t i = 0; i < n && !st; i++)
        if (!(x[i] <= 0 && isfinite(x[i])))
            st = SL_FAIL(err, FORMAT, "%s[%lld]: a state that grows by %g", w.name, (long long)i,
                         (double)x[i]);
    if (!st) st = model_load_put(m, ROLE_DELTA_DECAY, x, n, &l->decay, err);
    mem_free(p);
    return st;
}

sl_status model_load_delta(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t V = (int64_t)c->n_delta_v * c->d_delta_v;
    struct want o = model_want(m, il, ROLE_DELTA_O, c->d_model, V, DEV_USE_MATMUL);
    SL_TRY(inputs(m, il, l, err));
    SL_TRY(load_conv(m, il, l, err));
    SL_TRY(load_decay(m, il, l, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_DELTA_DT, c->n_delta_v, &l->dt, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_DELTA_NORM, c->d_delta_v, &l->out_norm, err));
    return model_load_matrix(m, &o, &l->o, err);
}
