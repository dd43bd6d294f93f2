/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between folders and GGUF files in models with gated delta layers: the order of value
 * heads, projections in one matrix or in two, decays and weights of norms as other numbers. */
#include <math.h>
#include <string.h>

#include "quant/quant_internal.h"

#define MAX_HEAD 4096 /* as the readers of configurations allow */
#define MAX_WIDTH 256

static bool is_packed(int role)
{
    return role == ROLE_DELTA_QKVZ || role == ROLE_DELTA_BA;
}

static bool is_apart(int role)
{
    return role == ROLE_DELTA_QKV || role == ROLE_DELTA_Z || role == ROLE_DELTA_B ||
           role == ROLE_DELTA_A;
}

sl_status quant_delta_check(const struct quant_plan *p, const char *name,
                            const struct arch_name *id, sl_err *err)
{
    bool packs = arch_packs_delta(&p->cfg), hf = io_model_kind(p->src) == IO_HF;
    if ((packs ? !is_apart(id->role) : !is_packed(id->role)) ||
        (packs && !hf && (id->role == ROLE_DELTA_QKV || id->role == ROLE_DELTA_Z)))
        return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.100s: %s of %s are not converted from there",
                   io_path(p->src), name,
                   packs ? "projections in matrices of their own" : "projections in one matrix",
                   p->cfg.arch);
}

/* Rows of q and k, of a key head's values, and of all of a key head. */
static int64_t n_qk(const struct arch_cfg *c)
{
    return 2 * (int64_t)c->n_delta_k * c->d_delta_k;
}
static int64_t n_values(const struct arch_cfg *c)
{
    return (int64_t)(c->n_delta_v / c->n_delta_k) * c->d_delta_v;
}
static int64_t n_block(const struct arch_cfg *c)
{
    return 2 * (c->d_delta_k + n_values(c));
}

int64_t quant_delta_rows(const struct arch_cfg *c, int role)
{
    int64_t v = (int64_t)c->n_delta_v * c->d_delta_v;
    return role == ROLE_DELTA_Z ? v : role == ROLE_DELTA_QKV ? n_qk(c) + v : n_qk(c) + 2 * v;
}

/* How value heads of the role move where files have them in another order. */
static void set_heads(const struct arch_cfg *c, struct quant_item *it)
{
    it->move = QUANT_HEADS;
    it->d_move = c->d_delta_v;
    switch (it->id.role) {
    case ROLE_DELTA_QKV:
    case ROLE_DELTA_CONV:
        it->lead = n_qk(c);
        break;
    case ROLE_DELTA_Z:
        break;
    case ROLE_DELTA_B:
    case ROLE_DELTA_A:
        it->d_move = 1;
        break;
    case ROLE_DELTA_DT:
    case ROLE_DELTA_DECAY:
        it->move = QUANT_COLS;
        it->d_move = 1;
        break;
    case ROLE_DELTA_O:
        it->move = QUANT_COLS;
        break;
    default:
        it->move = QUANT_STAY;
    }
}

/* Is the item as large as the configuration says? */
static sl_status check_size(const struct quant_plan *p, const struct quant_item *it, sl_err *err)
{
    int64_t heads = (int64_t)p->cfg.n_delta_v * it->d_move + it->lead,
            n = it->move == QUANT_COLS ? it->cols : it->rows;
    if (it->move == QUANT_STAY || n == heads) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: tensor %.100s has %lld rows or values, %lld are expected",
                   io_path(p->src), it->src, (long long)n, (long long)heads);
}

bool quant_delta_is_flat(const struct tensor *t)
{
    int n = 0;
    for (int i = 0; i < t->n_dim; i++)
        n += t->shape[i] > 1;
    return n <= 2;
}

static void set_shape(struct quant_item *it, int n_dim, const int64_t *shape)
{
    it->n_dim = n_dim;
    for (int i = 0; i < TENSOR_MAX_DIM; i++)
        it->shape[i] = i < n_dim ? shape[i] : 1;
}

/* Of Kimi Delta Attention: shapes as its makers and llama.cpp want them. */
static sl_status kda_item(const struct quant_plan *p, struct quant_item *it, sl_err *err)
{
    int64_t n = p->cfg.n_delta_v, taps = p->cfg.n_conv;
    bool to_hf = p->to == IO_HF, decay = it->id.role == ROLE_DELTA_DECAY;
    bool conv = it->id.role >= ROLE_KDA_CONV_Q && it->id.role <= ROLE_KDA_CONV_V;
    if ((decay && it->rows * it->cols != n) || (conv && it->cols != taps))
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s: [%lld, %lld] values, %lld are expected",
                       io_path(p->src), it->src, (long long)it->rows, (long long)it->cols,
                       decay ? (long long)n : (long long)taps);
    if (decay) it->decay = to_hf ? -1 : 1;
    if (decay && to_hf && arch_decay_plain(&p->cfg)) set_shape(it, 1, &n);
    if (decay && to_hf && !arch_decay_plain(&p->cfg))
        set_shape(it, 4, (const int64_t[]){1, 1, n, 1});
    if (decay && !to_hf) set_shape(it, 2, (const int64_t[]){n, 1});
    if (conv) set_shape(it, 3, (const int64_t[]){it->rows, 1, it->cols});
    if ((decay || conv) && !to_hf) it->store = TENSOR_F32;
    return SL_OK;
}

sl_status quant_delta_item(const struct quant_plan *p, struct quant_item *it, sl_err *err)
{
    const struct arch_cfg *c = &p->cfg;
    bool to_hf = p->to == IO_HF, vector = it->n_dim == 1;
    if (c->kda) return kda_item(p, it, err);
    if (it->id.role == ROLE_DELTA_DECAY) it->decay = to_hf ? -1 : 1;
    if (arch_tiles_delta(c)) set_heads(c, it);
    if (vector && it->move == QUANT_HEADS)
        return SL_FAIL(err, FORMAT, "%s: tensor %.100s is no matrix", io_path(p->src), it->src);
    if (it->id.role == ROLE_DELTA_CONV) { /* [channels, 1, taps] in folders */
        it->n_dim = to_hf ? 3 : 2;
        it->shape[0] = it->rows;
        it->shape[1] = to_hf ? 1 : it->cols;
        it->shape[2] = to_hf ? it->cols : 1;
    }
    if (it->id.role == ROLE_SHEXP_GATE) { /* some GGUF files have a vector */
        it->n_dim = 2;
        it->shape[0] = 1;
        it->shape[1] = it->cols;
    }
    bool exact = it->id.role == ROLE_DELTA_CONV || it->id.role == ROLE_SHEXP_GATE;
    if (exact && !to_hf) it->store = TENSOR_F32;
    return check_size(p, it, err);
}

/* The head of the source that is head h of the target. */
static int64_t head_of(const struct quant_rows *r, int64_t h)
{
    const struct arch_cfg *c = &r->p->cfg;
    int64_t k = c->n_delta_k, per = c->n_delta_v / k;
    return r->p->to == IO_GGUF ? h % k * per + h / k : h % per * k + h / per;
}

/* The row of q, k and v that is row o of key head j, in the order of DELTA_QKV. */
static int64_t row_of(const struct arch_cfg *c, int64_t j, int64_t o)
{
    int64_t d = c->d_delta_k;
    if (o < d) return j * d + o;
    if (o < 2 * d) return (c->n_delta_k + j) * d + o - d;
    return n_qk(c) + j * n_values(c) + o - 2 * d;
}

int64_t quant_delta_row(const struct quant_rows *r, int64_t i, int *w)
{
    const struct quant_item *it = r->it;
    const struct arch_cfg *c = &r->p->cfg;
    int64_t d = c->d_delta_k, v = n_values(c), all = n_block(c), j = i / all, o = i % all;
    *w = 0;
    switch (it->move) {
    case QUANT_HEADS:
        if (i < it->lead) return i;
        return it->lead + head_of(r, (i - it->lead) / it->d_move) * it->d_move +
               (i - it->lead) % it->d_move;
    case QUANT_TAKE_QKV:
        if (i >= n_qk(c)) return (i - n_qk(c)) / v * all + 2 * d + (i - n_qk(c)) % v;
        if (i >= c->n_delta_k * d) return (i / d - c->n_delta_k) * all + d + i % d;
        return i / d * all + i % d;
    case QUANT_TAKE_Z:
        return i / v * all + 2 * d + v + i % v;
    case QUANT_JOIN:
        *w = o >= 2 * d + v;
        return *w ? j * v + o - 2 * d - v : row_of(c, j, o);
    default:
        return i;
    }
}

/* Cycle by cycle: a head's columns wait aside while the others of the cycle move up. */
static void move_cols(const struct quant_rows *r, float *x)
{
    int64_t n = r->p->cfg.n_delta_v;
    size_t d = (size_t)r->it->d_move;
    uint8_t done[MAX_HEAD] = {0};
    float aside[MAX_WIDTH];
    for (int64_t first = 0; first < n; first++) {
        if (done[first]) continue;
        memcpy(aside, x + (size_t)first * d, d * sizeof *x);
        for (int64_t h = first, from; !done[h]; h = from) {
            from = head_of(r, h);
            done[h] = 1;
            memcpy(x + (size_t)h * d, from == first ? aside : x + (size_t)from * d, d * sizeof *x);
        }
    }
}

/* Of exp(A_log) in GGUF files. */
static double sign_of(const struct quant_rows *r)
{
    return arch_decay_plain(&r->p->cfg) ? 1 : -1;
}

void quant_delta_values(const struct quant_rows *r, float *x)
{
    const struct quant_item *it = r->it;
    if (it->move == QUANT_COLS) move_cols(r, x);
    double sign = sign_of(r);
    for (int64_t j = 0; it->decay && j < it->cols; j++)
        x[j] = (float)(it->decay > 0 ? sign * exp((double)x[j]) : log(sign * (double)x[j]));
    for (int64_t j = 0; it->add != 0.0f && j < it->cols; j++)
        x[j] += it->add;
}

sl_status quant_delta_check_decay(const struct quant_rows *r, sl_err *err)
{
    const struct quant_item *it = r->it;
    float x[MAX_HEAD];
    if (it->cols > MAX_HEAD || it->decay >= 0) return SL_OK;
    for (int64_t i = 0; i < it->rows; i++) {
        weight_dequant(&r->w[0], i, 0, it->cols, x);
        for (int64_t j = 0; j < it->cols; j++)
            if (!(sign_of(r) * (double)x[j] > 0))
                return SL_FAIL(err, FORMAT, "%s: tensor %.100s: value %lld is %g, not %s 0",
                               io_path(r->p->src), it->src, (long long)(i + j), (double)x[j],
                               sign_of(r) < 0 ? "below" : "above");
    }
    return SL_OK;
}
