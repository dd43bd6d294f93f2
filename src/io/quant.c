/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of quantised folders share: the tensors beside a matrix, their shapes, and
 * weights of codes with scales. */
#include <stdio.h>
#include <string.h>

#include "base/fp.h"
#include "base/str.h"
#include "io/io_internal.h"

bool io_ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}

static const char *file_of(const struct io_want *q, const struct tensor *t)
{
    return io_short(q->m->file[t->file].path);
}

const struct tensor *io_part_of(const struct io_want *q, const char *part)
{
    return io_findf(q->m, "%.*s.%s", q->n_module, q->name, part);
}

sl_status io_need(const struct io_want *q, const char *part, const struct tensor **out, sl_err *err)
{
    *out = io_part_of(q, part);
    if (*out) return SL_OK;
    char name[512];
    int k = snprintf(name, sizeof name, "%.*s.%s", q->n_module, q->name, part);
    int file = k > 0 ? io_index_find(&q->m->promised, name, (uint64_t)k) : -1;
    if (file >= 0)
        return SL_FAIL(
            err, FORMAT,
            "%s: tensor %.100s is missing: the index names %.60s, which does not have it",
            io_short(q->m->path), name, str_base(q->m->file[file].path));
    return SL_FAIL(err, FORMAT, "%s: %.80s is quantised (%s), but its %s is missing",
                   io_short(q->m->path), q->name, q->m->quant_method, part);
}

sl_status io_want_type(const struct io_want *q, const struct tensor *t, enum tensor_dtype type,
                       sl_err *err)
{
    if (t->type == type) return SL_OK;
    return SL_FAIL(err, FORMAT, "%s: tensor %.90s is %s, expected %s", file_of(q, t), t->name,
                   tensor_dtype(t->type)->text, tensor_dtype(type)->text);
}

static void shape_text(const struct tensor *t, char *buf, size_t cap)
{
    size_t n = 0;
    buf[0] = 0;
    for (int i = 0; i < t->n_dim && n < cap; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
}

sl_status io_want_shape(const struct io_want *q, const struct tensor *t, int64_t d0, int64_t d1,
                        sl_err *err)
{
    char have[60];
    if (d1 < 0 ? t->n_dim == 1 && t->shape[0] == d0
               : t->n_dim == 2 && t->shape[0] == d0 && t->shape[1] == d1)
        return SL_OK;
    shape_text(t, have, sizeof have);
    if (d1 < 0)
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s is [%s], expected [%lld]", file_of(q, t),
                       t->name, have, (long long)d0);
    return SL_FAIL(err, FORMAT, "%s: tensor %.80s is [%s], expected [%lld, %lld]", file_of(q, t),
                   t->name, have, (long long)d0, (long long)d1);
}

sl_status io_group_init(const struct io_want *q, const struct tensor *t, enum weight_codes codes,
                        const int64_t shape[3], struct weight *w, sl_err *err)
{
    int64_t rows = shape[0], cols = shape[1], size = shape[2];
    if (rows < 1 || cols < 1 || rows > INT32_MAX || cols > INT32_MAX)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s: %lld x %lld is no matrix", file_of(q, t),
                       t->name, (long long)rows, (long long)cols);
    if (size <= 0 || size > cols) size = cols;
    if (cols % size)
        return SL_FAIL(err, FORMAT,
                       "%s: tensor %.90s: groups of %lld do not divide its %lld columns",
                       file_of(q, t), t->name, (long long)size, (long long)cols);
    memset(w, 0, sizeof *w);
    w->name = t->name;
    w->scheme = TENSOR_SCHEME_GROUP;
    w->type = t->type;
    w->rows = rows;
    w->cols = cols;
    w->data = t->data;
    w->row_bytes = t->n_bytes / (uint64_t)rows;
    w->tensor_scale = 1.0f;
    w->group.codes = codes;
    w->group.size = (int)size;
    w->group.n_group = cols / size;
    w->group.n_row = rows;
    return SL_OK;
}

sl_status io_group_scale(const struct io_want *q, const struct tensor *t, const struct weight *w,
                         struct weight_scale *out, sl_err *err)
{
    const struct weight_group *g = &w->group;
    if (t->type != TENSOR_F32 && t->type != TENSOR_F16 && t->type != TENSOR_BF16)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s is %s, scales are F32, F16 or BF16",
                       file_of(q, t), t->name, tensor_dtype(t->type)->text);
    *out = (struct weight_scale){t->data, t->type, g->n_group, 1};
    if (g->n_group == 1 && tensor_count(t) == 1 && t->n_dim < 2) {
        out->ld_row = 0;
        return SL_OK;
    }
    if (g->n_group == 1 && t->n_dim == 1) return io_want_shape(q, t, g->n_row, -1, err);
    return io_want_shape(q, t, g->n_row, g->n_group, err);
}

sl_status io_group_order(const struct io_want *q, const struct tensor *t, struct weight *w,
                         sl_err *err)
{
    struct weight_group *g = &w->group;
    const uint8_t *p = t->data;
    bool plain = true;
    SL_TRY(io_want_type(q, t, TENSOR_I32, err));
    SL_TRY(io_want_shape(q, t, w->cols, -1, err));
    for (int64_t k = 0; k < w->cols; k++) {
        int32_t v;
        memcpy(&v, p + 4 * k, 4);
        plain = plain && v == k / g->size;
        if (v < 0 || v >= g->n_group)
            return SL_FAIL(err, FORMAT, "%s: tensor %.80s: column %lld is in group %d of %lld",
                           file_of(q, t), t->name, (long long)k, v, (long long)g->n_group);
    }
    if (!plain) g->col_group = p;
    return SL_OK;
}

sl_status io_f8_scales(io_model *m, const char *suffix, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, (size_t)m->n_tensor, sizeof *m->scale, &p, err));
    m->scale = p;
    for (int i = 0; i < m->n_tensor; i++) {
        const struct tensor *t = &m->tensor[i];
        if (!io_ends_with(t->name, suffix)) continue;
        const struct tensor *w =
            io_findf(m, "%.*s", (int)(strlen(t->name) - strlen(suffix)), t->name);
        if (!w || w->type != TENSOR_F8_E4M3) continue;
        if (t->type != TENSOR_F32 && t->type != TENSOR_BF16 && t->type != TENSOR_F16 &&
            t->type != TENSOR_F8_E8M0 && t->type != TENSOR_U8)
            return SL_FAIL(err, FORMAT,
                           "%s: tensor %.100s is %s, scales are F32, F16, BF16 or F8_E8M0 (U8)",
                           io_short(m->file[t->file].path), t->name, tensor_dtype(t->type)->text);
        if (io_f8_has_groups(m)) continue;
        if (t->type == TENSOR_F32 && (uintptr_t)t->data % 4 == 0) {
            m->scale[i] = t->data;
            continue;
        }
        int64_t n = tensor_count(t); /* in a file, so no more than its bytes */
        SL_TRY(mem_arena_array(&m->arena, (size_t)n, 4, &p, err));
        m->scale[i] = p;
        if (t->type != TENSOR_F8_E8M0 && t->type != TENSOR_U8) {
            tensor_dequant(t->type, t->data, n, p);
            continue;
        }
        for (int64_t k = 0; k < n; k++)
            ((float *)p)[k] = fp_e8m0_to_f32(((const uint8_t *)t->data)[k]);
    }
    return SL_OK;
}

sl_status io_f8_weight(const struct io_want *q, const struct tensor *s, int rows, int cols,
                       struct weight *w, sl_err *err)
{
    int64_t n = tensor_count(s);
    if (w->rows < 1 || w->cols < 1 || w->rows > INT32_MAX || w->cols > INT32_MAX)
        return SL_FAIL(err, FORMAT, "%s: tensor %.90s: %lld x %lld is no matrix", file_of(q, q->t),
                       w->name, (long long)w->rows, (long long)w->cols);
    w->scheme = TENSOR_SCHEME_F8_BLOCK;
    w->scale = q->m->scale[s - q->m->tensor];
    w->block_rows = rows;
    w->block_cols = cols;
    if (rows < 1) { /* a scale for each row, or one */
        w->block_rows = n == 1 && s->n_dim < 2 ? (int)w->rows : 1;
        w->block_cols = (int)w->cols;
        if (n == 1 && s->n_dim < 2) return SL_OK;
        return s->n_dim == 1 ? io_want_shape(q, s, w->rows, -1, err)
                             : io_want_shape(q, s, w->rows, 1, err);
    }
    int64_t r = (w->rows + rows - 1) / rows, c = (w->cols + cols - 1) / cols;
    if (s->n_dim == 2 && s->shape[0] == r && s->shape[1] == c) return SL_OK;
    return SL_FAIL(err, FORMAT,
                   "%s: tensor %.70s is not [%lld, %lld] as %lld x %lld in blocks of %d x %d needs",
                   file_of(q, s), s->name, (long long)r, (long long)c, (long long)w->rows,
                   (long long)w->cols, rows, cols);
}

sl_status io_quant_int(const io_model *m, const struct json *o, const char *key, int64_t def,
                       int64_t *out, sl_err *err)
{
    sl_status st = text_json_int(o, key, def, out, err);
    if (st) status_prefix(err, "%s: %s", io_short(m->path), m->quant_file);
    return st;
}
