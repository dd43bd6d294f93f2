/* SPDX-License-Identifier: Apache-2.0 */
/* Logits of given tokens, outside of requests. */
#include <string.h>

#include "engine/engine_internal.h"

static sl_status score_chunk(sl_engine *e, const int32_t *ids, int n, int pos0, int n_chunk,
                             int first_row, const float **logits, int *n_row, sl_err *err)
{
    int32_t src, dst;
    kv_seq_slide(&e->pool, &e->score);
    SL_TRY(kv_seq_grow(&e->pool, &e->score, n_chunk, &src, &dst, err));
    engine_cache_table(e, 0, &e->score);
    int rows = 0;
    struct model_rows out;
    for (int i = 0; i < n_chunk; i++) {
        e->pos[i] = pos0 + i;
        if (pos0 + i >= first_row) e->row_tok[rows++] = i;
    }
    e->seq_tok0[0] = 0;
    e->seq_tok0[1] = n_chunk;
    e->n_prompt[0] = n;
    e->seat[0] = e->n_seq_max; /* behind those of requests */
    struct dev_step s = engine_step(e, n_chunk, 1, rows);
    s.ids = ids + pos0;
    ASSERT(src < 0); /* nobody shares its blocks */
    SL_TRY(engine_run(e, &s, &out, err));
    *logits = out.logits;
    *n_row = rows;
    return SL_OK;
}

sl_status sl_score(sl_engine *e, const int32_t *ids, int n, int first_row,
                   int (*on_rows)(void *user, int row0, int n_row, const float *logits), void *user,
                   sl_err *err)
{
    sl_status st = engine_lost(e, err);
    if (st) return st;
    if (n < 1 || n > e->n_ctx)
        return SL_FAIL(err, REQUEST, "ids: %d tokens: from 1 to the context of %d", n, e->n_ctx);
    if (first_row < 0 || first_row >= n)
        return SL_FAIL(err, REQUEST, "first_row: %d: from 0 to %d", first_row, n - 1);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= e->n_vocab)
            return SL_FAIL(err, REQUEST,
                           "ids: token %d at place %d: the vocabulary has ids 0 to %d", ids[i], i,
                           e->n_vocab - 1);
    for (int pos = 0; pos < n && !st;) {
        const float *logits = NULL;
        int n_row = 0, n_chunk = BASE_MIN(n - pos, e->opts.n_chunk);
        if (pos + n_chunk > first_row)
            n_chunk = BASE_MIN(n_chunk, BASE_MAX(first_row - pos, 0) + e->n_logit_max);
        st = score_chunk(e, ids, n, pos, n_chunk, first_row, &logits, &n_row, err);
        if (!st && n_row && on_rows(user, pos + n_chunk - n_row, n_row, logits))
            st = SL_FAIL(err, CANCELLED, "cancelled");
        pos += n_chunk;
    }
    kv_seq_clear(&e->pool, &e->score);
    return st;
}

struct copy_rows {
    float *out;
    int first_row, n_vocab;
};

static int copy_rows(void *user, int row0, int n_row, const float *logits)
{
    struct copy_rows *c = user;
    memcpy(c->out + (int64_t)(row0 - c->first_row) * c->n_vocab, logits,
           (size_t)n_row * (size_t)c->n_vocab * sizeof *logits);
    return 0;
}

sl_status sl_logits(sl_engine *e, const int32_t *ids, int n, int first_row, float *out, sl_err *err)
{
    struct copy_rows c = {out, first_row, e->n_vocab};
    return sl_score(e, ids, n, first_row, copy_rows, &c, err);
}
