/* SPDX-License-Identifier: Apache-2.0 */
/* Warm-up: every shape of step once, on blocks that are in no sequence. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine_internal.h"

#define TOUCH_BYTES ((int64_t)256 << 20) /* of the KV cache; the rest as it is needed */

/* What a home has for it. */
struct warm_home {
    int32_t *blk; /* [n_blk] taken from the pool */
    int n_blk;
    int32_t *win; /* [n_win] with windows: their places, of the first n_win */
    int n_win;
};
struct warm {
    sl_engine *e;
    struct warm_home *home; /* [n_home] */
};
/* A step under way. */
struct warm_step {
    int n_tok, n_seq, n_decode, n_prompt;
};

/* Block number i of sequence seq: the k-th of those taken. */
static void set_block(const struct warm *w, int home, int seq, int i, int k)
{
    const sl_engine *e = w->e;
    const struct warm_home *h = &w->home[home];
    engine_table(e, DEV_KV_PAGED, seq)[i] = engine_blk0(e, home, DEV_KV_PAGED) + h->blk[k];
    if (e->pool.n_win)
        engine_table(e, DEV_KV_WINDOW, seq)[i] = engine_blk0(e, home, DEV_KV_WINDOW) + h->win[k];
}

/* Of a home n_decode sequences of one token at position 0, and a prompt of n_prompt tokens, as far
 * as there are blocks. */
static void add_home(const struct warm *w, int home, int n_decode, int n_prompt,
                     struct warm_step *s)
{
    sl_engine *e = w->e;
    struct step_room *room = e->room;
    const struct warm_home *h = &w->home[home];
    int used = 0, n_blk = e->pool.n_win ? h->n_win : h->n_blk, seat = home * e->n_seat;
    for (int i = 0; i < n_decode && used < n_blk; i++) {
        room->seq_tok0[s->n_seq] = s->n_tok;
        room->n_prompt[s->n_seq] = 0;
        set_block(w, home, s->n_seq, 0, used++);
        room->seat[s->n_seq] = seat++;
        room->row_tok[s->n_seq++] = s->n_tok;
        room->ids[s->n_tok] = 0;
        room->pos[s->n_tok++] = 0;
        s->n_decode++;
    }
    n_prompt = BASE_MIN(n_prompt, (n_blk - used) * ENGINE_BLK_TOK);
    if (n_prompt <= 0 || seat >= (home + 1) * e->n_seat) return;
    room->seq_tok0[s->n_seq] = s->n_tok;
    room->n_prompt[s->n_seq] = n_prompt;
    for (int i = 0; i < n_prompt; i++) {
        if (i % ENGINE_BLK_TOK == 0) set_block(w, home, s->n_seq, i / ENGINE_BLK_TOK, used++);
        room->ids[s->n_tok] = i % e->n_vocab;
        room->pos[s->n_tok++] = i;
    }
    room->seat[s->n_seq] = seat;
    room->row_tok[s->n_seq++] = s->n_tok - 1;
    s->n_prompt += n_prompt;
}

/* One step, whose sequences and tokens are dealt out to the homes. */
static sl_status run(const struct warm *w, int n_decode, int n_prompt, sl_err *err)
{
    sl_engine *e = w->e;
    struct model_rows rows;
    struct warm_step n = {0};
    int N = e->n_home;
    for (int h = 0; h < N; h++)
        add_home(w, h, n_decode / N + (h < n_decode % N), (n_prompt + N - 1 - h) / N, &n);
    if (n.n_tok == 0) return SL_OK;
    e->room->seq_tok0[n.n_seq] = n.n_tok;
    struct dev_step s = engine_step(e, n.n_tok, n.n_seq, n.n_seq);
    for (int pass = 0; pass < 2; pass++) { /* the first one pays for first touches */
        int64_t t0 = clock_now_ns();
        e->cold = pass == 0;
        sl_status st = engine_run(e, &s, &rows, err);
        e->cold = false;
        SL_TRY(st);
        if (pass) engine_homes_learn(e, n.n_decode, n.n_prompt, clock_now_ns() - t0);
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

static void take(struct warm_home *h, struct kv_pool *p, int want)
{
    while (h->n_blk < want && (h->blk[h->n_blk] = kv_block_alloc(p, (struct kv_who){0})) >= 0)
        h->n_blk++;
    for (; h->n_win < h->n_blk && p->n_win && kv_win_avail(p) > 0; h->n_win++) {
        kv_win_take(p, h->blk[h->n_win]);
        h->win[h->n_win] = kv_win_of(p, h->blk[h->n_win]);
    }
}

static void give(struct warm_home *h, struct kv_pool *p)
{
    while (h->n_win > 0)
        kv_win_give(p, h->blk[--h->n_win]);
    while (h->n_blk > 0)
        kv_block_unref(p, h->blk[--h->n_blk], 0);
}

/* The memory of all blocks that were taken is there from now on. */
static void touch(const struct warm *w)
{
    for (int i = 0; i < w->e->n_home; i++) {
        const struct warm_home *h = &w->home[i];
        engine_kv_touch(w->e, i, DEV_KV_PAGED, h->blk, h->n_blk);
        if (h->n_win) engine_kv_touch(w->e, i, DEV_KV_WINDOW, h->win, h->n_win);
    }
}

sl_status sl_warm(sl_engine *e, sl_err *err)
{
    if (e->remote) return SL_OK; /* the engine at the other end has done so */
    struct warm_home home[DIST_RANK_MAX] = {0};
    struct warm w = {.e = e, .home = home};
    void *p = NULL;
    int n_prompt = BASE_MIN(e->n_chunk, e->n_ctx), n_seq = e->n_seq_max;
    if (sl_pending(e)) return SL_FAIL(err, BUSY, "warm-up: requests are pending");
    int want = BASE_MAX(e->n_seat, engine_blocks(n_prompt) + 1);
    int n_blk = e->n_home * e->pool.n_blk;
    int64_t some = TOUCH_BYTES / (e->info.kv_bytes / n_blk + 1) / e->n_home;
    want = BASE_MIN(BASE_MAX(want, (int)some), e->pool.n_blk);
    size_t n = 2 * (size_t)want * (size_t)e->n_home;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n, sizeof *home->blk, &p, err));
    for (int i = 0; i < e->n_home; i++) {
        home[i].blk = (int32_t *)p + 2 * (size_t)want * (size_t)i;
        home[i].win = home[i].blk + want;
        take(&home[i], e->home[i].pool, want);
    }
    touch(&w);
    sl_status st = run_all(&w, n_prompt * e->n_home, n_seq, err);
    for (int i = 0; i < e->n_home; i++)
        give(&home[i], e->home[i].pool);
    mem_free(p);
    return st;
}
