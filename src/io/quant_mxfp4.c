/* SPDX-License-Identifier: Apache-2.0 */
/* quant_method "mxfp4", as gpt-oss is published: MODULE.weight_blocks u8 [rows, cols / 2], the code
 * of an even column in the low nibble, and MODULE.weight_scales u8 [rows, cols / 32], the exponent
 * of a power of two with 127 added. Which modules are quantised is said by the tensors;
 * modules_to_not_convert says it again. fused.c makes these tensors of those of all experts. */
#include "io/io_internal.h"

#define GROUP 32

sl_status io_mxfp4_prepare(io_model *m, sl_err *err)
{
    (void)m;
    (void)err;
    return SL_OK;
}

/* Rows lie apart where they are every second one of a tensor. */
static uint64_t row_step(const struct tensor *t)
{
    return t->row_bytes ? t->row_bytes : (uint64_t)t->shape[1];
}

sl_status io_mxfp4_read(const struct io_want *q, struct weight *w, bool *done, sl_err *err)
{
    const struct tensor *t = io_part_of(q, "weight_blocks"), *s = NULL;
    if (!t || !io_ends_with(q->name, ".weight")) return SL_OK;
    *done = true;
    SL_TRY(io_need(q, "weight_scales", &s, err));
    SL_TRY(io_want_type(q, t, TENSOR_U8, err));
    SL_TRY(io_want_type(q, s, TENSOR_U8, err));
    if (t->n_dim != 2 || t->shape[1] % (GROUP / 2))
        return SL_FAIL(err, FORMAT, "%s: tensor %.80s: rows of blocks of %d bytes are expected",
                       io_short(q->m->path), t->name, GROUP / 2);
    int64_t shape[3] = {t->shape[0], t->shape[1] * 2, GROUP};
    SL_TRY(io_group_init(q, t, WEIGHT_E2M1, shape, w, err));
    SL_TRY(io_want_shape(q, s, w->rows, w->group.n_group, err));
    w->row_bytes = row_step(t);
    w->group.scale = (struct weight_scale){s->data, TENSOR_F8_E8M0, (int64_t)row_step(s), 1};
    return SL_OK;
}
