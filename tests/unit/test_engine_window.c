/* SPDX-License-Identifier: Apache-2.0 */
/* A model with sliding windows: the engine's logits, whose places before the window are given back
 * and filled with NaN, are bit for bit those of a cache that keeps every position; and so are
 * answers that begin in the prefix tree. */
#include <string.h>

#include "base/hash.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N 700
#define BLK 32
#define N_BLK (1024 / BLK)
#define CHUNK 48

static sl_err err;
static int32_t ids[N];

static void poison_window(void *user, int32_t win)
{
    sl_engine *e = user;
    dev_kv_poison(e->d, e->kv, DEV_KV_WINDOW, win);
}

static sl_engine *open_engine(sl_model *m)
{
    sl_engine *e = NULL;
    sl_engine_opts o = {
        .n_thread = 2, .n_ctx = 1024, .n_seq_max = 1, .n_chunk = CHUNK, .kv_tokens = 1024};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    e->pool.on_win_free = poison_window;
    assert_true(e->pool.n_win > 0 && e->pool.n_win < e->pool.n_blk);
    struct dev_kv_shape all = e->kv_shape;
    all.group[DEV_KV_WINDOW].n_blk = all.group[DEV_KV_PAGED].n_blk;
    assert_true(e->info.kv_bytes < dev_kv_bytes(e->d, &all));
    return e;
}

/* Logits of the last tokens of each chunk by the model itself, with a block for every position. */
static void plain(const sl_engine *e, sl_model *m, uint64_t *row)
{
    dev *d = NULL;
    model *net = NULL;
    dev_kv *kv = NULL;
    struct dev_info di;
    int32_t pos[CHUNK], blk[N_BLK], seq_tok0[2] = {0}, n_prompt = N, seat = 0, last;
    dev_info_get(e->d, &di);
    struct model_opts o = {.n_tok_max = CHUNK,
                           .n_seq_max = 1,
                           .n_ctx = 1024,
                           .blk_tok = BLK,
                           .n_logit_max = 1,
                           .kv = e->kv_shape.type,
                           .no_mtp = true};
    ASSERT_OK(dev_open(NULL, &(struct dev_opts){.n_thread = 1, .acts = di.acts}, &d, &err));
    ASSERT_OK(model_open(m->io, d, &o, &net, &err));
    struct dev_kv_shape s = model_kv_shape(&m->cfg, NULL, e->kv_shape.type, N_BLK, BLK);
    ASSERT_OK(dev_kv_open(d, &s, &kv, &err));
    for (int i = 0; i < N_BLK; i++)
        blk[i] = N_BLK - 1 - i;
    for (int at = 0, i = 0; at < N; at += CHUNK, i++) {
        struct model_rows rows;
        int k = BASE_MIN(CHUNK, N - at);
        for (int t = 0; t < k; t++)
            pos[t] = at + t;
        seq_tok0[1] = k;
        last = k - 1;
        struct dev_step b = {.n_tok = k,
                             .n_seq = 1,
                             .ids = ids + at,
                             .pos = pos,
                             .seq_tok0 = seq_tok0,
                             .blk = {blk, blk},
                             .ld_blk = N_BLK,
                             .seat = &seat,
                             .n_prompt = &n_prompt,
                             .n_row = 1,
                             .row_tok = &last,
                             .want = DEV_WANT_LOGITS};
        ASSERT_OK(model_launch(net, kv, &b, &err));
        ASSERT_OK(model_wait(net, &rows, &err));
        row[i] = hash_bytes(rows.logits, (size_t)m->cfg.n_vocab * sizeof(float), 0);
    }
    model_close(net);
    dev_close(d);
}

static int rows(void *user, int row0, int n_row, const float *logits)
{
    uint64_t *row = user;
    for (int i = row0; i < row0 + n_row; i++, logits += 320)
        if ((i + 1) % CHUNK == 0 || i + 1 == N)
            row[i / CHUNK] = hash_bytes(logits, 320 * sizeof *logits, 0);
    return 0;
}

struct got {
    int n_tok, n_cached;
    int32_t tok[64];
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->token >= 0 && g->n_tok < 64) g->tok[g->n_tok++] = ev->token;
    if (ev->finish != SL_FINISH_NONE) g->n_cached = ev->n_cached;
    if (ev->finish == SL_FINISH_ERROR) fail_msg("%s", ev->error);
}

static void ask(sl_engine *e, int n, int n_new, struct got *g)
{
    sl_request q = {.ids = ids,
                    .n_ids = n,
                    .max_tokens = n_new,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = g};
    memset(g, 0, sizeof *g);
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

static void windows(const char *name)
{
    uint64_t want[N / CHUNK + 1], got[N / CHUNK + 1];
    struct got first, again, less;
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    assert_int_equal(m->cfg.n_vocab, 320);
    for (int i = 0; i < N; i++)
        ids[i] = (i * i * 7 + i * 13 + 3) % 320;
    sl_engine *e = open_engine(m);
    plain(e, m, want);
    ASSERT_OK(sl_warm(e, &err));
    ASSERT_OK(sl_score(e, ids, N, 0, rows, got, &err));
    assert_memory_equal(want, got, sizeof want);
    ask(e, N, 60, &first);
    assert_true(e->pool.n_win_evict > 0);
    ask(e, N, 60, &again); /* from the end of the prompt */
    assert_int_equal(first.n_cached, 0);
    assert_true(again.n_cached > N - 2 * BLK);
    assert_memory_equal(first.tok, again.tok, sizeof first.tok);
    ask(e, 100, 20, &less); /* that window is lost: it is computed again */
    ASSERT_OK(sl_score(e, ids, N, 0, rows, got, &err));
    assert_memory_equal(want, got, sizeof want);
    assert_int_equal(kv_win_avail(&e->pool), e->pool.n_win);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_window_has_the_bits_of_a_whole_cache)
{
    windows("gpt_oss");        /* every other layer */
    windows("mistral_window"); /* all layers */
}
