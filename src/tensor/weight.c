/* SPDX-License-Identifier: Apache-2.0 */
/* Weights: rows and columns of a stored matrix with its scales applied. */
#include "tensor/tensor.h"

#include <string.h>

#include "tensor/tensor_internal.h"

/* dst *= the scales of columns [col0, col0 + n) of row r. */
static void apply_f8_block(const struct weight *w, int64_t r, int64_t col0, int64_t n, float *dst)
{
    int64_t ld = (w->cols + w->block_cols - 1) / w->block_cols;
    const float *scale = w->scale + (w->block_row0 + r) / w->block_rows * ld;
    for (int64_t c = col0; c < col0 + n;) {
        int64_t end = BASE_MIN(col0 + n, (c / w->block_cols + 1) * w->block_cols);
        float s = scale[c / w->block_cols];
        for (; c < end; c++)
            dst[c - col0] *= s;
    }
}

static float part_scale(const struct weight *w, int64_t r)
{
    float s;
    memcpy(&s, w->part_scale + 4 * (r / (w->rows / w->n_part)), 4);
    return s;
}

void weight_dequant(const struct weight *w, int64_t r, int64_t col0, int64_t n, float *dst)
{
    const struct tensor_dtype_info *d = tensor_dtype(w->type);
    if (w->scheme == TENSOR_SCHEME_GROUP) {
        tensor_dequant_group(w, r, col0, n, dst);
        return;
    }
    DEBUG_ASSERT(r >= 0 && r < w->rows && col0 >= 0 && n >= 0 && col0 + n <= w->cols);
    DEBUG_ASSERT(col0 % d->block == 0 && n % d->block == 0);
    const uint8_t *row = w->data + (uint64_t)r * w->row_bytes;
    if (w->col_bytes)
        for (int64_t i = 0; i < n; i++)
            tensor_dequant(w->type, row + (uint64_t)(col0 + i) * w->col_bytes, 1, dst + i);
    else
        tensor_dequant(w->type, row + (uint64_t)(col0 / d->block) * (uint64_t)d->bytes, n, dst);
    if (w->scheme == TENSOR_SCHEME_F8_BLOCK) apply_f8_block(w, r, col0, n, dst);
    float s = w->part_scale ? part_scale(w, r) : w->tensor_scale;
    if (s != 1.0f)
        for (int64_t i = 0; i < n; i++)
            dst[i] *= s;
}

bool weight_fits_bf16(const struct weight *w)
{
    bool plain = w->scheme == TENSOR_SCHEME_PLAIN && !w->col_bytes && !w->part_scale;
    if (w->type != TENSOR_F32 || !plain || w->tensor_scale != 1.0f) return false;
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t c = 0; c < w->cols; c++) {
            uint16_t low; /* little-endian, as everything in files */
            memcpy(&low, w->data + (uint64_t)r * w->row_bytes + 4 * (uint64_t)c, 2);
            if (low) return false;
        }
    return true;
}

uint64_t weight_bytes(const struct weight *w)
{
    uint64_t n = 0;
    if (w->scheme == TENSOR_SCHEME_GROUP && w->group.codes != WEIGHT_E2M1)
        return w->row_bytes * (uint64_t)w->rows;
    if (w->scheme == TENSOR_SCHEME_GROUP) return (uint64_t)w->cols / 2 * (uint64_t)w->rows;
    return tensor_bytes(w->type, (uint64_t)w->cols, &n) ? n * (uint64_t)w->rows : 0;
}

uint64_t weight_span(const struct weight *w)
{
    uint64_t n = w->row_bytes * (uint64_t)w->rows;
    return w->col_bytes ? n + (uint64_t)(w->cols - 1) * w->col_bytes : n;
}

struct weight weight_rows(const struct weight *w, int64_t row0, int64_t n_rows)
{
    struct weight out = *w;
    ASSERT(row0 >= 0 && n_rows >= 0 && row0 + n_rows <= w->rows);
    if (w->scheme == TENSOR_SCHEME_F8_BLOCK) {
        int64_t at = w->block_row0 + row0;
        out.scale += at / w->block_rows * ((w->cols + w->block_cols - 1) / w->block_cols);
        out.block_row0 = (int)(at % w->block_rows);
    }
    if (w->part_scale) {
        int64_t part = w->rows / w->n_part;
        ASSERT(n_rows > 0 &&
               row0 / part == (row0 + n_rows - 1) / part); /* all of it, or some rows of one */
        out.tensor_scale = part_scale(w, row0);
        out.part_scale = NULL;
    }
    out.group.of_rows = 0;
    if (w->scheme == TENSOR_SCHEME_GROUP)
        out.group.row0 += row0;
    else
        out.data += (uint64_t)row0 * w->row_bytes;
    out.rows = n_rows;
    return out;
}

struct weight weight_slice(const struct weight *w, int64_t row0, int64_t n_rows)
{
    const struct weight_group *g = &w->group;
    struct weight out = weight_rows(w, row0, n_rows);
    out.group.of_row0 = g->of_rows ? g->of_row0 : g->row0;
    out.group.of_rows = g->of_rows ? g->of_rows : w->rows;
    return out;
}
