/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rows of a target's matrix come from: order of heads, stacks and their members, both
 * spellings of kv_b, folded scales. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant_internal.h"

const char *quant_scheme_text(const struct weight *w)
{
    return tensor_dtype(w->type)->text;
}

/* A matrix whose numbers can be used: io_weight looks at types and shapes alone. */
sl_status quant_weight(const io_model *m, const char *name, struct weight *w, sl_err *err)
{
    SL_TRY(io_weight(m, name, w, err));
    sl_status st = weight_check(w, err);
    if (st) status_prefix(err, "%s", io_path(m));
    return st;
}

/* ---- dense sources ---- */

static sl_status find_pair(const struct quant_plan *p, const struct quant_item *it,
                           struct weight *kb, struct weight *vb, sl_err *err)
{
    char name[QUANT_MAX_NAME];
    const struct arch_cfg *c = &p->cfg;
    arch_tensor_name(&p->naming[IO_GGUF], ROLE_V_B, it->id.layer, "weight", name, sizeof name);
    SL_TRY(quant_weight(p->src, it->src, kb, err));
    SL_TRY(quant_weight(p->src, name, vb, err));
    if (kb->rows != (int64_t)c->n_head * c->kv_lora || kb->cols != c->d_nope ||
        vb->rows != (int64_t)c->n_head * c->d_v || vb->cols != c->kv_lora)
        return SL_FAIL(err, FORMAT, "%s: %.80s and %.80s are not [%d x %d, %d] and [%d x %d, %d]",
                       io_path(p->src), it->src, name, c->n_head, c->kv_lora, c->d_nope, c->n_head,
                       c->d_v, c->kv_lora);
    return SL_OK;
}

/* kv_b [H * (nope + v), r] out of k_b [H, r, nope] and v_b [H, v, r]. */
static void join_kv_b(const struct arch_cfg *c, const struct weight *kb, const struct weight *vb,
                      float *line, float *out)
{
    int64_t r = c->kv_lora, nope = c->d_nope, v = c->d_v;
    for (int64_t h = 0; h < c->n_head; h++, out += (nope + v) * r) {
        for (int64_t j = 0; j < r; j++) {
            weight_dequant(kb, h * r + j, 0, nope, line);
            for (int64_t i = 0; i < nope; i++)
                out[i * r + j] = line[i];
        }
        for (int64_t i = 0; i < v; i++)
            weight_dequant(vb, h * v + i, 0, r, out + (nope + i) * r);
    }
}

static void split_kv_b(const struct arch_cfg *c, const struct weight *w, bool keys, float *line,
                       float *out)
{
    int64_t r = c->kv_lora, nope = c->d_nope, v = c->d_v;
    for (int64_t h = 0; h < c->n_head; h++) {
        for (int64_t i = 0; i < (keys ? nope : v); i++) {
            weight_dequant(w, h * (nope + v) + (keys ? i : nope + i), 0, r, line);
            for (int64_t j = 0; j < r; j++)
                out[keys ? (h * r + j) * nope + i : (h * v + i) * r + j] = line[j];
        }
    }
}

static double llama3_factor(const struct arch_cfg *c, int i)
{
    double f = 1.0 / pow(c->rope_theta, 2.0 * i / c->n_rot), wave = 6.283185307179586 / f;
    if (wave < c->rope_orig_ctx / c->rope_high_freq) return 1.0;
    if (wave > c->rope_orig_ctx / c->rope_low_freq) return c->rope_factor;
    double s =
        (c->rope_orig_ctx / wave - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return 1.0 / ((1 - s) / c->rope_factor + s);
}

/* Of pairs that are rotated as they are, and of those that are not. */
static float turn_factor(const struct arch_cfg *c, int i)
{
    return c->n_turn && i >= c->n_turn ? 1e30f : 1.0f;
}

/* What io_weight_bias says of the matrix, as the one row of a vector. */
static sl_status open_bias(struct quant_rows *r, sl_err *err)
{
    const struct quant_item *it = r->it;
    struct weight w;
    void *q = NULL;
    bool any = false;
    SL_TRY(quant_weight(r->p->src, it->src, &w, err));
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)it->cols, sizeof(float), &q, err));
    float *b = q;
    sl_status st = io_weight_bias(r->p->src, it->src, &w, b, &any, err);
    for (int64_t i = 0; i < it->cols && !st; i++)
        r->dense[i] = b[quant_permuted(i, it->cols, it->perm)];
    mem_free(q);
    return st;
}

static sl_status open_dense(struct quant_rows *r, sl_err *err)
{
    const struct quant_plan *p = r->p;
    const struct quant_item *it = r->it;
    struct weight kb, vb;
    void *q = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(it->rows * it->cols), sizeof(float), &q, err));
    r->dense = q;
    if (it->from == QUANT_BIAS) return open_bias(r, err);
    if (it->from == QUANT_FREQS) {
        for (int i = 0; i < it->cols; i++)
            r->dense[i] = p->cfg.d_head_win ? turn_factor(&p->cfg, i)
                                            : (float)llama3_factor(&p->cfg, i);
        return SL_OK;
    }
    void *line = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)BASE_MAX(p->cfg.kv_lora, p->cfg.d_nope),
                           sizeof(float), &line, err));
    sl_status st = it->from == QUANT_KV_B ? find_pair(p, it, &kb, &vb, err)
                                          : quant_weight(p->src, it->src, &kb, err);
    if (!st && it->from != QUANT_KV_B &&
        (kb.rows != (int64_t)p->cfg.n_head * (p->cfg.d_nope + p->cfg.d_v) ||
         kb.cols != p->cfg.kv_lora))
        st = SL_FAIL(err, FORMAT, "%s: tensor %.100s is not [%d x %d, %d]", io_path(p->src),
                     it->src, p->cfg.n_head, p->cfg.d_nope + p->cfg.d_v, p->cfg.kv_lora);
    if (!st && it->from == QUANT_KV_B)
        join_kv_b(&p->cfg, &kb, &vb, line, r->dense);
    else if (!st)
        split_kv_b(&p->cfg, &kb, it->from == QUANT_K_B, line, r->dense);
    mem_free(line);
    return st;
}

/* ---- weights ---- */

static sl_status open_weights(struct quant_rows *r, sl_err *err)
{
    const struct quant_plan *p = r->p;
    const struct quant_item *it = r->it;
    const struct arch_naming *by = &p->naming[io_model_kind(p->src)];
    struct arch_name id;
    void *q = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)it->n_src, sizeof *r->w, &q, err));
    r->w = q;
    r->n = it->n_src;
    arch_name_parse(by, it->src, &id);
    for (int e = 0; e < it->n_src; e++) {
        char name[QUANT_MAX_NAME];
        snprintf(name, sizeof name, "%s", it->src);
        if (it->move == QUANT_JOIN)
            id.role = e ? ROLE_DELTA_Z : ROLE_DELTA_QKV;
        else
            id.expert = e;
        if (it->n_src > 1) quant_name_in(by, &id, name, sizeof name);
        SL_TRY(quant_weight(p->src, name, &r->w[e], err));
        int64_t rows = it->rows / it->n_src * (it->sub >= 0 ? it->n_sub : 1);
        if (it->move >= QUANT_TAKE_QKV) rows = quant_delta_rows(&p->cfg, id.role);
        if (r->w[e].rows != rows || r->w[e].cols != it->cols)
            return SL_FAIL(err, FORMAT,
                           "%s: tensor %.100s is [%lld, %lld], [%lld, %lld] is expected",
                           io_path(p->src), name, (long long)r->w[e].rows, (long long)r->w[e].cols,
                           (long long)rows, (long long)it->cols);
        if (it->sub >= 0) r->w[e] = weight_rows(&r->w[e], it->rows * it->sub, it->rows);
    }
    return it->decay ? quant_delta_check_decay(r, err) : SL_OK;
}

/* ---- folded scales and importance, one of each for every expert of a stack ---- */

/* The input that rows of this matrix make: what it is divided by. */
static bool makes(const struct arch_name *id, enum quant_input *in)
{
    switch (id->role) {
    case ROLE_V:
    case ROLE_V_B:
    case ROLE_KV_B:
        *in = QUANT_IN_O;
        return true;
    case ROLE_UP:
        *in = QUANT_IN_DOWN;
        return true;
    case ROLE_UP_SHEXP:
        *in = QUANT_IN_DOWN_SHEXP;
        return true;
    case ROLE_UP_EXPS:
        *in = QUANT_IN_DOWN_EXPS;
        return true;
    case ROLE_ATTN_NORM:
        *in = QUANT_IN_ATTN;
        return true;
    case ROLE_FFN_NORM:
        *in = QUANT_IN_FFN;
        return true;
    case ROLE_Q_A_NORM:
        *in = QUANT_IN_Q_B;
        return true;
    default:
        return false;
    }
}

static sl_status open_importance(struct quant_rows *r, int part, const struct quant_stat *s,
                                 sl_err *err)
{
    void *q = NULL;
    double mean = 0;
    int n = s->n_col;
    if (n != r->it->cols || s->n_row < 16) return SL_OK; /* too little to go by */
    for (int j = 0; j < n; j++)
        mean += s->sq[j] / n;
    if (!(mean > 0)) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(float), &q, err));
    r->weight[part] = q;
    const struct quant_fold *f = r->col[part];
    for (int j = 0; j < n; j++) {
        double w = s->sq[j] / mean + 0.01, k = f ? (double)f->s[j] : 1.0;
        r->weight[part][j] = (float)(w / (k * k));
    }
    return SL_OK;
}

static sl_status open_parts(struct quant_rows *r, sl_err *err)
{
    const struct quant_plan *p = r->p;
    const struct quant_item *it = r->it;
    enum quant_input in;
    void *q = NULL;
    bool stack = it->cls == QUANT_CLASS_EXPERTS && it->n_dim == 3 && it->from != QUANT_FUSED;
    r->n_part = stack ? (int)it->shape[0] : 1;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 3 * (size_t)r->n_part, sizeof(void *), &q, err));
    r->col = q;
    r->row = r->col + r->n_part;
    r->weight = (float **)(void *)(r->row + r->n_part);
    for (int e = 0; e < r->n_part && it->from != QUANT_FUSED; e++) {
        int expert = stack ? e : it->id.expert;
        if (quant_input_of(&p->cfg, &it->id, &in)) {
            int of = in == QUANT_IN_DOWN_EXPS ? expert : -1;
            r->col[e] = quant_fold_get(p->folds, in, it->id.layer, of);
            const struct quant_stat *s =
                p->o->stats ? quant_stats_get(p->o->stats, in, it->id.layer, of) : NULL;
            if (s) SL_TRY(open_importance(r, e, s, err));
        }
        if (makes(&it->id, &in))
            r->row[e] =
                quant_fold_get(p->folds, in, it->id.layer, in == QUANT_IN_DOWN_EXPS ? expert : -1);
    }
    return SL_OK;
}

sl_status quant_rows_open(const struct quant_plan *p, const struct quant_item *it,
                          struct quant_rows *out, sl_err *err)
{
    *out = (struct quant_rows){.p = p, .it = it};
    sl_status st = it->from == QUANT_FUSED  ? quant_fused_open(out, err)
                   : it->from == QUANT_ROWS ? open_weights(out, err)
                                            : open_dense(out, err);
    if (!st) st = open_parts(out, err);
    if (st) quant_rows_close(out);
    return st;
}

void quant_rows_close(struct quant_rows *r)
{
    for (int e = 0; r->col && e < r->n_part; e++)
        mem_free(r->weight[e]);
    quant_fused_close(r);
    mem_free((void *)r->col);
    mem_free(r->w);
    mem_free(r->dense);
    memset(r, 0, sizeof *r);
}

int64_t quant_permuted(int64_t i, int64_t n, int perm)
{
    if (perm == 0) return i;
    int64_t d = n / abs(perm), h = i / d, k = i % d;
    return h * d + (perm > 0 ? k % 2 * (d / 2) + k / 2 : k % (d / 2) * 2 + k / (d / 2));
}

/* What row i makes as an element of the folded input. */
static float row_divisor(const struct quant_rows *r, const struct quant_fold *f, int64_t i)
{
    const struct quant_item *it = r->it;
    const struct arch_cfg *c = &r->p->cfg;
    if (it->id.role == ROLE_KV_B) {
        int64_t stride = c->d_nope + c->d_v, k = i % stride;
        return k < c->d_nope ? 1.0f : f->s[i / stride * c->d_v + k - c->d_nope];
    }
    if (it->id.role == ROLE_V &&
        it->v_heads > 1) { /* the first query head of the group: all have the same scales */
        int64_t h = i / c->d_head;
        return f->s[h * it->v_heads * c->d_head + i % c->d_head];
    }
    return f->s[i];
}

static void source_row(const struct quant_rows *r, int64_t i, float *x)
{
    const struct quant_item *it = r->it;
    int64_t n = it->cols;
    if (it->move) {
        int w = 0;
        int64_t k = quant_delta_row(r, i, &w);
        weight_dequant(&r->w[w], k, 0, n, x);
    } else if (r->dense) {
        memcpy(x, r->dense + i * n, (size_t)n * sizeof *x);
    } else if (it->n_dim == 1 && it->perm) { /* a bias: columns are the rows */
        const struct weight *w = &r->w[0];
        for (int64_t j = 0; j < n; j++)
            weight_dequant(w, 0, quant_permuted(j, n, it->perm), 1, x + j);
    } else {
        int64_t per = it->rows / r->n, k = quant_permuted(i % per, per, it->perm);
        weight_dequant(&r->w[i / per], k, 0, n, x);
    }
}

void quant_rows_get(const struct quant_rows *r, int64_t i, float *x)
{
    const struct quant_item *it = r->it;
    int64_t n = it->cols;
    int part = (int)(i / (it->rows / r->n_part));
    if (r->n_fused) {
        int64_t per = it->rows / r->n_fused;
        quant_rows_get(&r->sub[i / per], i % per, x);
        return;
    }
    source_row(r, i, x);
    quant_delta_values(r, x);
    const struct quant_fold *f = r->col[part];
    for (int64_t j = 0; f && j < n; j++)
        x[j] *= f->s[j];
    f = r->row[part];
    if (!f) return;
    if (it->n_dim == 1) { /* a norm, or a bias of what makes an input */
        float one = it->less ? 1.0f : 0.0f;
        for (int64_t j = 0; j < n; j++)
            x[j] = (x[j] + one) / row_divisor(r, f, j) - one;
        return;
    }
    float d = row_divisor(r, f, i % (it->rows / r->n_part));
    for (int64_t j = 0; j < n; j++)
        x[j] /= d;
}

const float *quant_rows_weight(const struct quant_rows *r, int64_t i)
{
    return r->weight[i / (r->it->rows / r->n_part)];
}

void quant_rows_drop(const struct quant_rows *r, int64_t a, int64_t b)
{
    int64_t per = r->n ? r->it->rows / r->n : r->n_fused ? r->it->rows / r->n_fused : 0;
    for (int e = 0; e < r->n_fused; e++) {
        int64_t lo = BASE_MAX(a - e * per, 0), hi = BASE_MIN(b - e * per, per);
        if (lo < hi) quant_rows_drop(&r->sub[e], lo, hi);
    }
    for (int e = 0; e < r->n; e++) {
        int64_t lo = BASE_MAX(a, e * per), hi = BASE_MIN(b, (e + 1) * per);
        if (lo < hi && !r->it->perm && !r->it->move)
            io_drop(r->p->src, r->w[e].data + (uint64_t)(lo - e * per) * r->w[e].row_bytes,
                    (uint64_t)(hi - lo) * r->w[e].row_bytes);
    }
}
