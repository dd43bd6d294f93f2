/* SPDX-License-Identifier: Apache-2.0 */
/* Warm-up: every shape of step once, on blocks that nobody has. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine_internal.h"

#define TOUCH_BYTES ((int64_t)256 << 20) /* of the KV cache; the rest as it is needed */

struct warm {
    sl_engine *e;
    int32_t *blk; /* [n_blk] taken from the pool */
    int n_blk;
    int32_t *win; /* [n_win] with windows: their places, of the first n_win */
    int n_win;
};

/* Block number i of sequence seq: the k-th of those taken. */
static void set_block(const struct warm *w, int seq, int i, int k)
{
    int64_t at = (int64_t)seq * w->e->ld_blk + i;
    w->e->blk[DEV_KV_PAGED][at] = w->blk[k];
    if (w->e->pool.n_win) w->e->blk[DEV_KV_WINDOW][at] = w->win[k];
}

/* One step: n_decode sequences of one token at position 0, and a prompt of n_prompt tokens, as far
 * as there are blocks. */
static sl_status run(const struct warm *w, int n_decode, int n_prompt, sl_err *err)
{
    sl_engine *e = w->e;
    struct model_rows rows;
    int n_tok = 0, n_seq = 0, used = 0, n_blk = e->pool.n_win ? w->n_win : w->n_blk;
    for (; n_seq < n_decode && used < n_blk; n_seq++) {
        e->seq_tok0[n_seq] = n_tok;
        e->n_prompt[n_seq] = 0;
        set_block(w, n_seq, 0, used++);
        e->seat[n_seq] = n_seq;
        e->row_tok[n_seq] = n_tok;
        e->ids[n_tok] = 0;
        e->pos[n_tok++] = 0;
    }
    n_decode = n_seq;
    n_prompt = BASE_MIN(n_prompt, (n_blk - used) * ENGINE_BLK_TOK);
    if (n_prompt > 0) {
        e->seq_tok0[n_seq] = n_tok;
        e->n_prompt[n_seq] = n_prompt;
        for (int i = 0; i < n_prompt; i++) {
            if (i % ENGINE_BLK_TOK == 0) set_block(w, n_seq, i / ENGINE_BLK_TOK, used++);
            e->ids[n_tok] = i % e->n_vocab;
            e->pos[n_tok++] = i;
        }
        e->seat[n_seq] = n_seq;
        e->row_tok[n_seq++] = n_tok - 1;
    }
    if (n_tok == 0) return SL_OK;
    e->seq_tok0[n_seq] = n_tok;
    struct dev_step s = engine_step(e, n_tok, n_seq, n_seq);
    for (int pass = 0; pass < 2; pass++) { /* the first one pays for first touches */
        int64_t t0 = clock_now_ns();
        SL_TRY(engine_run(e, &s, &rows, err));
        if (pass) sched_learn(&e->sched, n_decode, n_prompt, clock_now_ns() - t0);
    }
    return SL_OK;
}

static sl_status run_all(const struct warm *w, int n_prompt, int n_seq, sl_err *err)
{
    for (int n = n_prompt; n > 0; n /= 2) /* the largest first: it touches everything */
        SL_TRY(run(w, 0, n, err));
    for (int n = 1; n < n_seq; n *= 2)
        SL_TRY(run(w, n, 0, err));
    SL_TRY(run(w, n_seq, 0, err));
    for (int n = SCHED_MIX_FIRST; n_seq > 1 && n <= 4 * SCHED_MIX_FIRST;
         n *= 4) /* two sizes: a line */
        SL_TRY(run(w, 1, BASE_MIN(n, n_prompt), err));
    return SL_OK;
}

static void take(struct warm *w, int want)
{
    struct kv_pool *p = &w->e->pool;
    while (w->n_blk < want && (w->blk[w->n_blk] = kv_block_alloc(p, (struct kv_who){0})) >= 0)
        w->n_blk++;
    for (; w->n_win < w->n_blk && p->n_win && kv_win_avail(p) > 0; w->n_win++) {
        kv_win_take(p, w->blk[w->n_win]);
        w->win[w->n_win] = kv_win_of(p, w->blk[w->n_win]);
    }
}

static void give(struct warm *w)
{
    while (w->n_win > 0)
        kv_win_give(&w->e->pool, w->blk[--w->n_win]);
    while (w->n_blk > 0)
        kv_block_unref(&w->e->pool, w->blk[--w->n_blk], 0);
}

sl_status sl_warm(sl_engine *e, sl_err *err)
{
    if (e->remote) return SL_OK; /* who opened it has done so */
    struct warm w = {.e = e};
    void *p = NULL;
    int n_prompt = BASE_MIN(e->opts.n_chunk, e->n_ctx), n_seq = e->n_seq_max;
    if (sl_pending(e)) return SL_FAIL(err, BUSY, "warm-up: requests are pending");
    int want = BASE_MAX(n_seq, (n_prompt + ENGINE_BLK_TOK - 1) / ENGINE_BLK_TOK + 1);
    int64_t touch = TOUCH_BYTES / (e->info.kv_bytes / e->pool.n_blk + 1);
    want = BASE_MIN(BASE_MAX(want, (int)touch), e->pool.n_blk);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 2 * (size_t)want, sizeof *w.blk, &p, err));
    w.blk = p;
    w.win = w.blk + want;
    take(&w, want);
    engine_kv_touch(e, DEV_KV_PAGED, w.blk, w.n_blk);
    if (w.n_win) engine_kv_touch(e, DEV_KV_WINDOW, w.win, w.n_win);
    sl_status st = run_all(&w, n_prompt, n_seq, err);
    give(&w);
    mem_free(w.blk);
    return st;
}
