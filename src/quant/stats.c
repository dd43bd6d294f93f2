/* SPDX-License-Identifier: Apache-2.0 */
/* What a calibration text showed of the inputs of matrices: per channel, sums of squares and of
 * magnitudes. */
#include <math.h>
#include <string.h>

#include "quant/quant_internal.h"

struct quant_stats {
    struct arena arena;
    int n_layer, n_expert;
    struct quant_stat **at; /* [n_layer][QUANT_N_INPUT + n_expert]; HEAD in layer 0 */
};

sl_status quant_stats_open(int n_layer, int n_expert, quant_stats **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(quant_stats), &p, err));
    quant_stats *s = p;
    mem_arena_init(&s->arena, MEM_MISC, 0);
    s->n_layer = n_layer;
    s->n_expert = n_expert;
    sl_status st = mem_arena_array(&s->arena, (size_t)n_layer * (size_t)(QUANT_N_INPUT + n_expert),
                                   sizeof *s->at, &p, err);
    if (st) {
        quant_stats_close(s);
        return st;
    }
    s->at = p;
    *out = s;
    return SL_OK;
}

void quant_stats_close(quant_stats *s)
{
    if (!s) return;
    mem_arena_fini(&s->arena);
    mem_free(s);
}

static struct quant_stat **slot(const quant_stats *s, enum quant_input in, int layer, int expert)
{
    if (in == QUANT_IN_HEAD) layer = 0;
    if (layer < 0 || layer >= s->n_layer || expert >= s->n_expert) return NULL;
    int i = in == QUANT_IN_DOWN_EXPS ? QUANT_N_INPUT + expert : (int)in;
    return in == QUANT_IN_DOWN_EXPS && expert < 0
               ? NULL
               : &s->at[(int64_t)layer * (QUANT_N_INPUT + s->n_expert) + i];
}

sl_status quant_stats_add(quant_stats *s, const struct quant_seen *rows, sl_err *err)
{
    struct quant_stat **at = slot(s, rows->in, rows->layer, rows->expert);
    const float *x = rows->x;
    int n_col = rows->n_col;
    void *p = NULL;
    if (!at || rows->n_row < 1) return SL_OK;
    if (!*at) {
        SL_TRY(mem_arena_array(&s->arena, 1, sizeof **at, &p, err));
        struct quant_stat *t = p;
        SL_TRY(mem_arena_array(&s->arena, 2 * (size_t)n_col, sizeof(double), &p, err));
        t->sq = p;
        t->abs = t->sq + n_col;
        t->n_col = n_col;
        *at = t;
    }
    struct quant_stat *t = *at;
    if (t->n_col != n_col)
        return SL_FAIL(err, INTERNAL, "calibration: %d columns after %d", n_col, t->n_col);
    for (int r = 0; r < rows->n_row; r++, x += rows->ldx)
        for (int j = 0; j < n_col; j++) {
            t->sq[j] += (double)x[j] * (double)x[j];
            t->abs[j] += fabs((double)x[j]);
        }
    t->n_row += rows->n_row;
    return SL_OK;
}

const struct quant_stat *quant_stats_get(const quant_stats *s, enum quant_input in, int layer,
                                         int expert)
{
    struct quant_stat **at = slot(s, in, layer, expert);
    return at ? *at : NULL;
}
