/* SPDX-License-Identifier: Apache-2.0 */
/* What gated delta layers have: matrices in one of four spellings, and a few vectors. */
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

/* A matrix of so many rows under the name that layers of other kinds have for theirs. */
static sl_status shared_name(struct model *m, int il, enum arch_role name, int64_t rows,
                             dev_mat **out, sl_err *err)
{
    struct want w = model_want(m, il, name, rows, m->cfg.d_model, DEV_USE_MATMUL);
    w.role = ROLE_DELTA_QKV;
    return model_load_matrix(m, &w, out, err);
}

/* Kimi Delta Attention: errors of what decays are made of are in all that is remembered, where all
 * of them come from a few values. */
static sl_status kda_inputs(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t dk = c->d_delta_k, dv = c->d_delta_v, n = c->n_delta_v, D = c->d_model;
    bool low = !c->kda_whole;
    const struct {
        enum arch_role role;
        int64_t rows, cols;
        enum dev_use use;
        dev_mat **out;
    } rest[] = {{ROLE_DELTA_B, n, D, DEV_USE_EXACT, &l->in[3]},
                {ROLE_KDA_F_A, low ? dk : n * dk, D, low ? DEV_USE_EXACT : DEV_USE_MATMUL,
                 &l->in[4]},
                {ROLE_KDA_G_A, low ? dv : n * dv, D, DEV_USE_MATMUL, &l->in[5]},
                {ROLE_KDA_F_B, n * dk, dk, DEV_USE_EXACT, &l->a_of},
                {ROLE_KDA_G_B, n * dv, dv, DEV_USE_MATMUL, &l->z_of}};
    SL_TRY(shared_name(m, il, ROLE_Q, c->n_delta_k * dk, &l->in[0], err));
    SL_TRY(shared_name(m, il, ROLE_K, c->n_delta_k * dk, &l->in[1], err));
    SL_TRY(shared_name(m, il, ROLE_V, n * dv, &l->in[2], err));
    for (int i = 0; i < (low ? 5 : 3); i++) {
        struct want w =
            model_want(m, il, rest[i].role, rest[i].rows, rest[i].cols, rest[i].use);
        SL_TRY(model_load_matrix(m, &w, rest[i].out, err));
    }
    return SL_OK;
}

/* n channels of a convolution, into ours, which has all channels: the taps of a channel lie side by
 * side in the file, those of all channels there. */
static sl_status read_conv(const struct model *m, int il, enum arch_role role, int64_t n,
                           float *ours, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct want w = model_want(m, il, role, n, c->n_conv, DEV_USE_EXACT);
    const struct tensor *t = io_find(m->io, w.name);
    int64_t all = arch_delta_channels(c), n_tap = n * c->n_conv;
    int first = 0;
    void *p = NULL;
    if (!t) return io_missing(m->io, w.name, err);
    while (first < t->n_dim - 1 && t->shape[first] == 1) /* llama.cpp's converter adds one */
        first++;
    if (!t->data || !tensor_dtype_is_weight(t->type) || tensor_dtype(t->type)->block > 1 ||
        tensor_count(t) != n_tap || t->shape[first] != n || t->shape[t->n_dim - 1] != c->n_conv ||
        t->col_bytes)
        return SL_FAIL(err, FORMAT, "%s: %lld values of type %s, expected [%lld, %d] numbers",
                       w.name, (long long)tensor_count(t), tensor_dtype(t->type)->text,
                       (long long)n, c->n_conv);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n_tap, sizeof(float), &p, err));
    float *file = p;
    tensor_dequant(t->type, t->data, n_tap, file);
    sl_status st = SL_OK;
    for (int64_t i = 0; i < n_tap && !st; i++) {
        if (!isfinite(file[i]))
            st = SL_FAIL(err, FORMAT, "%s[%lld] is not finite", w.name, (long long)i);
        ours[i % c->n_conv * all + i / c->n_conv] = file[i];
    }
    mem_free(p);
    return st;
}

static sl_status load_conv(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t ch = arch_delta_channels(c), k = (int64_t)c->n_delta_k * c->d_delta_k;
    void *p = NULL;
    sl_status st = SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(ch * c->n_conv), sizeof(float), &p, err));
    float *ours = p;
    if (c->kda) {
        SL_TRY_OUT(read_conv(m, il, ROLE_KDA_CONV_Q, k, ours, err));
        SL_TRY_OUT(read_conv(m, il, ROLE_KDA_CONV_K, k, ours + k, err));
        SL_TRY_OUT(read_conv(m, il, ROLE_KDA_CONV_V, ch - 2 * k, ours + 2 * k, err));
    } else {
        SL_TRY_OUT(read_conv(m, il, ROLE_DELTA_CONV, ch, ours, err));
    }
    st = model_load_put(m, ROLE_DELTA_CONV, ours, ch * c->n_conv, &l->conv, err);
out:
    mem_free(p);
    return st;
}

/* -exp(A_log), which GGUF files have as it is, or without the sign. */
static sl_status load_decay(struct model *m, int il, struct layer *l, sl_err *err)
{
    struct want w = model_want(m, il, ROLE_DELTA_DECAY, 1, 1, DEV_USE_EXACT);
    int64_t n = m->cfg.n_delta_v;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(float), &p, err));
    float *x = p;
    sl_status st = model_load_read_line(m->io, w.name, n, x, err);
    for (int64_t i = 0; i < n && !st; i++)
        if (m->kind != IO_GGUF)
            x[i] = (float)-exp((double)x[i]);
        else if (arch_decay_plain(&m->cfg))
            x[i] = -x[i];
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
    enum arch_role name = c->kda ? ROLE_O : ROLE_DELTA_O;
    struct want o = model_want(m, il, name, c->d_model, V, DEV_USE_MATMUL);
    int64_t n_dt = (int64_t)c->n_delta_v * arch_delta_decays(c);
    o.role = ROLE_DELTA_O;
    SL_TRY((c->kda ? kda_inputs : inputs)(m, il, l, err));
    SL_TRY(load_conv(m, il, l, err));
    SL_TRY(load_decay(m, il, l, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_DELTA_DT, n_dt, &l->dt, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_DELTA_NORM, c->d_delta_v, &l->out_norm, err));
    return model_load_matrix(m, &o, &l->o, err);
}
