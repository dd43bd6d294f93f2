/* SPDX-License-Identifier: Apache-2.0 */
/* Logits of given tokens, outside of requests. */
#include <string.h>

#include "engine/engine_internal.h"

/* Some tokens of a text, of which the logits are wanted from the row first_row on. */
struct chunk {
    const int32_t *ids; /* [n] the whole text */
    int n, first_row;
    int pos0, n_chunk;   /* the tokens of this step */
    const float *logits; /* [n_row, V] of its last n_row tokens, until the next step */
    int n_row;
};

static sl_status score_chunk(sl_engine *e, struct chunk *c, sl_err *err)
{
    struct step_room *room = e->room;
    int32_t src, dst;
    kv_seq_slide(&e->pool, &e->score);
    SL_TRY(kv_seq_grow(&e->pool, &e->score, c->n_chunk, &src, &dst, err));
    engine_cache_table(e, 0, 0, &e->score);
    int rows = 0;
    struct model_rows out;
    for (int i = 0; i < c->n_chunk; i++) {
        room->pos[i] = c->pos0 + i;
        if (c->pos0 + i >= c->first_row) room->row_tok[rows++] = i;
    }
    room->seq_tok0[0] = 0;
    room->seq_tok0[1] = c->n_chunk;
    room->n_prompt[0] = e->opts.n_defer ? 0 : c->n; /* prompts would not show what it does */
    room->seat[0] = e->n_seq_max;                   /* after those of requests */
    struct dev_step s = engine_step(e, c->n_chunk, 1, rows);
    s.ids = c->ids + c->pos0;
    ASSERT(src < 0); /* none shares its blocks */
    SL_TRY(engine_run(e, &s, &out, err));
    c->logits = out.logits;
    c->n_row = rows;
    return SL_OK;
}

sl_status sl_score(sl_engine *e, const int32_t *ids, int n, int first_row,
                   int (*on_rows)(void *user, int row0, int n_row, const float *logits), void *user,
                   sl_err *err)
{
    sl_status st = engine_need_here(e, "sl_score", err);
    if (!st) st = engine_lost(e, err);
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
    engine_lanes_drain(e);
    struct chunk c = {.ids = ids, .n = n, .first_row = first_row};
    for (; c.pos0 < n && !st; c.pos0 += c.n_chunk) {
        c.n_chunk = BASE_MIN(n - c.pos0, e->n_chunk);
        if (c.pos0 + c.n_chunk > first_row)
            c.n_chunk = BASE_MIN(c.n_chunk, BASE_MAX(first_row - c.pos0, 0) + e->n_row);
        st = score_chunk(e, &c, err);
        if (!st && c.n_row && on_rows(user, c.pos0 + c.n_chunk - c.n_row, c.n_row, c.logits))
            st = SL_FAIL(err, CANCELLED, "cancelled");
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
