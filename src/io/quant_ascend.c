/* SPDX-License-Identifier: Apache-2.0 */
/* Ascend's ModelSlim: quant_model_description*.json gives the type of every tensor by its name.
 * Activations are this program's own business: a static W8A8 matrix is read as the weights that it
 * stands for, q * deq_scale / input_scale, and what quant_bias holds besides the correction for the
 * activations' zero point. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_internal.h"

enum ascend_type { A_FLOAT, A_W8A8, A_W8A8_DYNAMIC, A_W8A8_MIX, A_W4A8_DYNAMIC, A_N_TYPE };
static const char *const type_name[A_N_TYPE] = {"FLOAT", "W8A8", "W8A8_DYNAMIC", "W8A8_MIX",
                                                "W4A8_DYNAMIC"};

struct ascend {
    struct io_index by_name; /* -> type; A_N_TYPE and more: the index of a name that is not read,
                                less A_N_TYPE */
    const char **other;
};

/* RMSNorm with a bias comes from outlier suppression; no architecture here has a place for it. */
static sl_status refuse_norm_bias(const io_model *m, sl_err *err)
{
    for (int i = 0; i < m->n_tensor; i++) {
        const struct tensor *t = &m->tensor[i];
        uint8_t any = 0;
        if (!io_ends_with(t->name, "norm.bias")) continue;
        for (uint64_t k = 0; k < t->n_bytes; k++)
            any |= ((const uint8_t *)t->data)[k];
        if (any)
            return SL_FAIL(err, UNSUPPORTED, "%s: tensor %.90s: norms with a bias are not run",
                           io_short(m->path), t->name);
    }
    return SL_OK;
}

sl_status io_ascend_prepare(io_model *m, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, 1, sizeof(struct ascend), &p, err));
    struct ascend *a = p;
    m->quant_own = a;
    SL_TRY(mem_arena_array(&m->arena, m->quant->n ? m->quant->n : 1, sizeof *a->other, &p, err));
    a->other = p;
    SL_TRY(io_index_init(&a->by_name, &m->arena, m->quant->n, err));
    int n_other = 0;
    for (const struct json *o = m->quant->n ? m->quant->child : NULL; o; o = o->next) {
        if (o->kind != JSON_STR_K) continue; /* group_size and the like */
        int type = 0;
        while (type < A_N_TYPE && strcmp(o->s, type_name[type]) != 0)
            type++;
        if (type == A_N_TYPE) {
            a->other[n_other] = o->s;
            type += n_other++;
        }
        io_index_put(&a->by_name, o->key, o->n_key, type);
    }
    return refuse_norm_bias(m, err);
}

/* Offsets of symmetric weights are there, and zero. */
static sl_status want_zeros(const struct io_want *q, const char *part, sl_err *err)
{
    const struct tensor *t = io_part_of(q, part);
    uint8_t any = 0;
    for (uint64_t i = 0; t && i < t->n_bytes; i++)
        any |= ((const uint8_t *)t->data)[i];
    if (!any) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "%s: tensor %.90s is not zero: asymmetric weights of ModelSlim are not read",
                   io_short(q->m->path), t->name);
}

/* [rows] or [rows, 1] of floats. */
static sl_status row_scale(const struct io_want *q, const char *part, int64_t rows,
                           struct weight_scale *out, sl_err *err)
{
    const struct tensor *s = NULL;
    SL_TRY(io_need(q, part, &s, err));
    if (s->type != TENSOR_BF16 && s->type != TENSOR_F16)
        SL_TRY(io_want_type(q, s, TENSOR_F32, err));
    SL_TRY(s->n_dim == 1 ? io_want_shape(q, s, rows, -1, err) : io_want_shape(q, s, rows, 1, err));
    *out = (struct weight_scale){s->data, s->type, 1, 0};
    return SL_OK;
}

static sl_status read_w8(const struct io_want *q, struct weight *w, sl_err *err)
{
    int64_t shape[3] = {q->t->shape[0], q->t->shape[1], 0};
    const struct tensor *second = io_part_of(q, "weight_scale_second");
    if (second)
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s is of W4A8_DYNAMIC, but %s says otherwise",
                       io_short(q->m->path), second->name, q->m->quant_file);
    SL_TRY(io_group_init(q, q->t, WEIGHT_I8, shape, w, err));
    SL_TRY(row_scale(q, "weight_scale", w->rows, &w->group.scale, err));
    return want_zeros(q, "weight_offset", err);
}

/* int4: one a byte, or two rows in one; a second scale for groups of columns where there is one. */
static sl_status read_w4(const struct io_want *q, struct weight *w, sl_err *err)
{
    const struct tensor *s = NULL, *s2 = io_part_of(q, "weight_scale_second");
    int64_t cols = q->t->shape[1], groups = s2 && s2->n_dim == 2 ? s2->shape[1] : 1;
    SL_TRY(io_need(q, "weight_scale", &s, err));
    int64_t rows = s->n_dim ? s->shape[0] : 0;
    if (groups < 1 || cols % groups)
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s: %lld groups do not divide %lld columns",
                       io_short(q->m->path), s2->name, (long long)groups, (long long)cols);
    if (rows != q->t->shape[0] && rows != 2 * q->t->shape[0])
        return SL_FAIL(
            err, FORMAT,
            "%s: tensor %.80s has %lld rows, its scales %lld: neither the same nor twice",
            io_short(q->m->path), q->t->name, (long long)q->t->shape[0], (long long)rows);
    int64_t shape[3] = {rows, cols, cols / groups};
    SL_TRY(
        io_group_init(q, q->t, rows == q->t->shape[0] ? WEIGHT_I4 : WEIGHT_ROWS2, shape, w, err));
    SL_TRY(row_scale(q, "weight_scale", rows, &w->group.scale, err));
    SL_TRY(want_zeros(q, "weight_offset", err));
    SL_TRY(want_zeros(q, "weight_offset_second", err));
    return s2 ? io_group_scale(q, s2, w, &w->group.scale2, err) : SL_OK;
}

/* The one number of MODULE.part. */
static sl_status one_number(const struct io_want *q, const char *part, float *out, sl_err *err)
{
    const struct tensor *t = NULL;
    SL_TRY(io_need(q, part, &t, err));
    if (tensor_count(t) != 1) SL_TRY(io_want_shape(q, t, 1, -1, err));
    if (t->type == TENSOR_I8) {
        *out = *(const int8_t *)t->data;
        return SL_OK;
    }
    if (t->type != TENSOR_BF16 && t->type != TENSOR_F16)
        SL_TRY(io_want_type(q, t, TENSOR_F32, err));
    tensor_dequant(t->type, t->data, 1, out);
    if (isfinite(*out)) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: tensor %.90s is not finite", io_short(q->m->path), t->name);
}

static sl_status read_static(const struct io_want *q, struct weight *w, sl_err *err)
{
    const struct tensor *s = NULL;
    int64_t shape[3] = {q->t->shape[0], q->t->shape[1], 0};
    float in = 0;
    SL_TRY(io_group_init(q, q->t, WEIGHT_I8, shape, w, err));
    SL_TRY(io_need(q, "deq_scale", &s, err));
    if (s->type != TENSOR_I64) SL_TRY(io_want_type(q, s, TENSOR_F32, err));
    SL_TRY(io_want_shape(q, s, w->rows, -1, err));
    w->group.scale = (struct weight_scale){s->data, s->type, 1, 0};
    SL_TRY(one_number(q, "input_scale", &in, err));
    if (!(in > 0))
        return SL_FAIL(err, FORMAT, "%s: %.90s: its input_scale is %g", io_short(q->m->path),
                       q->name, (double)in);
    w->tensor_scale = 1.0f / in;
    return SL_OK;
}

sl_status io_ascend_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct ascend *a = q->m->quant_own;
    if (!q->t || !io_ends_with(q->name, ".weight")) return SL_OK;
    int type = io_index_find(&a->by_name, q->name, strlen(q->name));
    if (q->t->type != TENSOR_I8 && (type <= A_FLOAT || tensor_dtype_is_weight(q->t->type)) &&
        type < A_N_TYPE) {
        if (type <= A_FLOAT) return SL_OK;
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s is %s, but %s says %s", io_short(q->m->path),
                       q->name, tensor_dtype(q->t->type)->text, q->m->quant_file, type_name[type]);
    }
    *done = true;
    if (type >= A_N_TYPE)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %.80s: ModelSlim's %.30s is not read (FLOAT, W8A8, W8A8_DYNAMIC, "
                       "W8A8_MIX, W4A8_DYNAMIC are)",
                       io_short(q->m->path), q->name, a->other[type - A_N_TYPE]);
    if (type <= A_FLOAT || q->t->n_dim != 2)
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s is %s in %d dimensions, but %s says %s",
                       io_short(q->m->path), q->name, tensor_dtype(q->t->type)->text, q->t->n_dim,
                       q->m->quant_file, type < 0 ? "nothing of it" : type_name[type]);
    SL_TRY(io_want_type(q, q->t, TENSOR_I8, err));
    if (type == A_W8A8) return read_static(q, w, err);
    return type == A_W4A8_DYNAMIC ? read_w4(q, w, err) : read_w8(q, w, err);
}

/* y = (sum of x_q w_q + quant_bias) * deq_scale with x_q = x / input_scale + offset: what
 * quant_bias has besides -offset * sum of w_q. */
sl_status io_ascend_bias(const struct io_want *q, const struct weight *w, float *out, bool *any,
                         sl_err *err)
{
    const struct ascend *a = q->m->quant_own;
    const struct tensor *b = NULL;
    float off = 0;
    if (io_index_find(&a->by_name, q->name, strlen(q->name)) != A_W8A8) return SL_OK;
    SL_TRY(io_need(q, "quant_bias", &b, err));
    SL_TRY(io_want_type(q, b, TENSOR_I32, err));
    SL_TRY(io_want_shape(q, b, w->rows, -1, err));
    SL_TRY(one_number(q, "input_offset", &off, err));
    if (off != nearbyintf(off) || fabsf(off) > 65536)
        return SL_FAIL(err, FORMAT, "%s: %.90s: its input_offset is %g, no integer",
                       io_short(q->m->path), q->name, (double)off);
    for (int64_t r = 0; r < w->rows; r++) {
        const int8_t *row = (const int8_t *)w->data + r * w->cols;
        int64_t sum = 0;
        for (int64_t c = 0; off != 0 && c < w->cols; c++)
            sum += row[c];
        int32_t bias;
        memcpy(&bias, (const uint8_t *)b->data + 4 * r, 4);
        int64_t rest = bias + (int64_t)off * sum;
        out[r] = (float)rest * weight_scale_at(w, r, 0);
        /* files are made in f32: what is within its rounding of the correction is no bias */
        *any = *any || (double)llabs(rest) > 2 + fabs((double)off * (double)sum) * 0x1p-22;
    }
    return SL_OK;
}
