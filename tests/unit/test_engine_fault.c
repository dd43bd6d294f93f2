/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that fail: in the k-th launch or the k-th wait of a run, for every k, as a failure of that
 * step alone and as the loss of the device. Blocks are filled with NaN when they are free, so that
 * one that a failed step left in the prefix tree would spoil a later answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_GOT 6
#define N_NEW 6

static sl_err err;

struct got {
    int n_end[3], n_tok, n_bad;
    int32_t tok[N_NEW];
    sl_status status;
    char text[sizeof err.text];
};

struct rig {
    sl_model *m;
    sl_engine *e;
    struct got got[N_GOT];
    int left; /* calls of fault until it fails; 0 = never */
    sl_status with;
};

static sl_status fault(void *user, bool wait, sl_err *why)
{
    struct rig *r = user;
    if (r->left == 0 || --r->left > 0) return SL_OK;
    (void)SL_FAIL(why, INTERNAL, "%s was made to fail", wait ? "the end" : "the launch");
    why->code = r->with;
    return r->with;
}

static void poison(void *user, int32_t blk)
{
    sl_engine *e = user;
    dev_kv_poison(e->d, e->kv, DEV_KV_PAGED, blk);
}

static void poison_window(void *user, int32_t win)
{
    sl_engine *e = user;
    dev_kv_poison(e->d, e->kv, DEV_KV_WINDOW, win);
}

static void rig_open(struct rig *r)
{
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 256, .n_seq_max = 4, .n_chunk = 24};
    memset(r, 0, sizeof *r);
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &r->m, &err));
    ASSERT_OK(sl_engine_open(r->m, &o, &r->e, &err));
    r->e->pool.on_free = poison;
    r->e->pool.on_win_free = poison_window;
    r->e->pool.user = r->e;
    r->e->fault = fault;
    r->e->fault_user = r;
    log_set_level(LOG_ERROR); /* a line for each failed step is right, but not here */
}

static void rig_close(struct rig *r)
{
    log_set_level(LOG_WARN);
    assert_int_equal(sched_check(&r->e->sched), 0);
    assert_int_equal(kv_pool_avail(&r->e->pool), r->e->pool.n_blk);
    assert_int_equal(sl_pending(r->e), 0);
    sl_engine_close(r->e);
    sl_model_close(r->m);
}

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->token >= 0 && ev->index == 0 && g->n_tok < N_NEW) g->tok[g->n_tok++] = ev->token;
    if (ev->finish == SL_FINISH_NONE) return;
    g->n_end[ev->index]++;
    if (ev->finish != SL_FINISH_ERROR) return;
    g->n_bad++;
    g->status = ev->status;
    snprintf(g->text, sizeof g->text, "%s", ev->error);
}

/* A prompt, three samples of one, an embedding, an echo, and two that begin like the first. */
static void submit(struct rig *r, int i)
{
    static int32_t ids[70];
    struct got *g = &r->got[i];
    memset(g, 0, sizeof *g);
    for (int k = 0; k < 70; k++)
        ids[k] = (k * 5 + (i == 1 || i == 3 ? i : 0)) % 200;
    sl_request q = {.ids = ids,
                    .n_ids = i >= 4 ? 70 : 40 + i,
                    .max_tokens = i == 2 ? 0 : N_NEW,
                    .embed = i == 2,
                    .n = i == 1 ? 3 : 1,
                    .echo_logprob = i == 3,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = g};
    ASSERT_OK(sl_submit(r->e, &q, NULL, &err));
}

static void check_ends(const struct rig *r)
{
    for (int i = 0; i < N_GOT; i++)
        for (int k = 0; k < (i == 1 ? 3 : 1); k++)
            assert_int_equal(r->got[i].n_end[k], 1);
}

/* All requests, two of them from the second step on. Returns the status of the last step. */
static sl_status run(struct rig *r)
{
    sl_status st = SL_OK;
    for (int i = 0; i < 4; i++)
        submit(r, i);
    for (int n = 0; sl_pending(r->e) && !st; n++) {
        st = sl_step(r->e, &err);
        for (int i = 4; i < N_GOT && n == 0 && !st; i++)
            submit(r, i);
        assert_true(n < 1000);
    }
    return st;
}

TEST(engine_failed_step_ends_its_requests_and_no_others)
{
    static struct rig r;
    int n_call = 0, n_bad_all = 0;
    rig_open(&r);
    r.left = 1 << 20;
    ASSERT_OK(run(&r));
    n_call = (1 << 20) - r.left;
    assert_true(n_call > 20 && n_call % 2 == 0);
    struct got good = r.got[4];
    sl_stats before, after;
    sl_stats_get(r.e, &before);
    for (int k = 1; k <= n_call; k++) {
        int n_bad = 0;
        r.left = k;
        r.with = SL_INTERNAL;
        sl_drop_cache(r.e);
        ASSERT_OK(run(&r));
        check_ends(&r);
        for (int i = 0; i < N_GOT; i++) {
            const struct got *g = &r.got[i];
            n_bad += g->n_bad;
            if (!g->n_bad) continue;
            assert_int_equal(g->status, SL_INTERNAL);
            assert_non_null(strstr(g->text, "was made to fail"));
        }
        assert_true(n_bad > 0 || r.left > 0); /* another order may have fewer steps */
        n_bad_all += n_bad;
        assert_int_equal(sched_check(&r.e->sched), 0);
        r.left = 0;
        submit(&r, 4); /* from what the run left in the prefix tree */
        while (sl_pending(r.e))
            ASSERT_OK(sl_step(r.e, &err));
        assert_int_equal(r.got[4].n_tok, good.n_tok);
        assert_memory_equal(r.got[4].tok, good.tok, sizeof good.tok);
    }
    sl_stats_get(r.e, &after);
    assert_true(after.n_step_failed - before.n_step_failed > (uint64_t)n_call / 2);
    assert_true(n_bad_all > n_call);
    rig_close(&r);
}

TEST(engine_lost_device_ends_every_request)
{
    static struct rig r;
    float logits[512];
    int n_call = 0;
    rig_open(&r);
    r.left = 1 << 20;
    ASSERT_OK(run(&r));
    n_call = (1 << 20) - r.left;
    rig_close(&r);
    for (int k = 1; k <= n_call; k++) {
        int32_t one = 1;
        rig_open(&r);
        r.left = k;
        r.with = SL_DEVICE;
        sl_status st = run(&r);
        if (r.left == 0) {
            assert_int_equal(st, SL_DEVICE);
            assert_non_null(strstr(err.text, "was made to fail"));
            sl_request q = {.ids = &one, .n_ids = 1, .max_tokens = 1};
            assert_int_equal(sl_submit(r.e, &q, NULL, &err), SL_DEVICE);
            assert_non_null(strstr(err.text, "was made to fail"));
            assert_int_equal(sl_step(r.e, &err), SL_DEVICE);
            assert_int_equal(sl_warm(r.e, &err), SL_DEVICE);
            assert_int_equal(sl_logits(r.e, &one, 1, 0, logits, &err), SL_DEVICE);
            for (int i = 0; i < N_GOT; i++)
                if (r.got[i].n_bad) assert_int_equal(r.got[i].status, SL_DEVICE);
        }
        for (int i = 4; i < N_GOT; i++) /* lost in the first step, before they came */
            if (k <= 2) r.got[i].n_end[0] = 1;
        check_ends(&r);
        rig_close(&r);
    }
}

TEST(engine_score_and_warm_pass_a_failed_step_on)
{
    static struct rig r;
    int32_t ids[60];
    for (int i = 0; i < 60; i++)
        ids[i] = i;
    rig_open(&r);
    r.with = SL_IO;
    for (int k = 1; k <= 6; k++) { /* 24 tokens a step: three of them */
        r.left = k;
        assert_int_equal(sl_score(r.e, ids, 60, 59, no_rows, NULL, &err), SL_IO);
        assert_int_equal(kv_pool_avail(&r.e->pool), r.e->pool.n_blk);
    }
    r.left = 7;
    ASSERT_OK(sl_score(r.e, ids, 60, 59, no_rows, NULL, &err));
    assert_int_equal(sl_warm(r.e, &err), SL_IO);
    ASSERT_OK(sl_warm(r.e, &err));
    rig_close(&r);
}
