/* SPDX-License-Identifier: Apache-2.0 */
/* A short run on the device `check` whose k-th call fails, for every k: opening says why in one
 * line, or the requests of the failed step do; nothing leaks, nothing hangs. The same where the
 * device is lost at its k-th call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_NEW 3
#define CALLS_MAX 3000

static sl_err err;

struct got {
    int n_tok, n_end;
    int32_t tok[N_NEW];
    sl_status status;
    char text[sizeof err.text];
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->token >= 0 && g->n_tok < N_NEW) g->tok[g->n_tok++] = ev->token;
    if (ev->finish == SL_FINISH_NONE) return;
    g->n_end++;
    g->status = ev->finish == SL_FINISH_ERROR ? ev->status : SL_OK;
    snprintf(g->text, sizeof g->text, "%s", ev->finish == SL_FINISH_ERROR ? ev->error : "");
}

static sl_status ask(sl_engine *e, struct got *g)
{
    static const int32_t ids[20] = {5, 9, 3, 7, 1, 2, 8, 4, 6, 10, 11};
    sl_request q = {.ids = ids,
                    .n_ids = 20,
                    .max_tokens = N_NEW,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = g};
    memset(g, 0, sizeof *g);
    SL_TRY(sl_submit(e, &q, NULL, &err));
    for (int n = 0; sl_pending(e); n++) {
        assert_true(n < 100);
        SL_TRY(sl_step(e, &err));
    }
    return SL_OK;
}

/* Open an engine on that device and ask twice. What the first that fails says, in err. */
static sl_status run(sl_model *m, const char *device, struct got g[2])
{
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .n_seq_max = 2, .n_chunk = 16};
    o.device = device;
    memset(g, 0, 2 * sizeof *g);
    SL_TRY(sl_engine_open(m, &o, &e, &err));
    sl_status st = SL_OK;
    for (int i = 0; i < 2 && !st; i++) {
        st = ask(e, &g[i]);
        assert_true(st || g[i].n_end == 1);
    }
    assert_int_equal(sl_pending(e), 0);
    assert_int_equal(sched_check(&e->sched), 0);
    sl_engine_close(e);
    return st;
}

static int64_t held(void)
{
    int64_t n = 0;
    for (int i = 0; i < MEM_N_TAG; i++)
        n += mem_used((enum mem_tag)i);
    return n;
}

static bool same_answer(const struct got *a, const struct got *b)
{
    return a->n_tok == b->n_tok && memcmp(a->tok, b->tok, sizeof a->tok) == 0;
}

/* One line that names the device and the call. */
static void check_text(const char *text, const char *what)
{
    assert_non_null(strstr(text, "device 'check'"));
    assert_non_null(strstr(text, what));
    assert_null(strchr(text, '\n'));
}

/* The k-th call fails; false when there is no such call. */
static bool failed_call(sl_model *m, int k, const struct got *good, int *n_step)
{
    struct got g[2];
    char device[40], what[40];
    int n_bad = 0;
    snprintf(device, sizeof device, "check:fail=%d", k);
    snprintf(what, sizeof what, "call %d ", k);
    sl_status st = run(m, device, g);
    if (st) {
        check_text(err.text, what);
        return true;
    }
    for (int i = 0; i < 2; i++) {
        if (!g[i].status) {
            assert_true(same_answer(&g[i], good));
            continue;
        }
        check_text(g[i].text, what);
        n_bad++;
    }
    assert_true(n_bad <= 1); /* the engine goes on */
    *n_step += n_bad;
    return n_bad > 0;
}

/* The device is lost at the k-th call. */
static bool lost_call(sl_model *m, int k)
{
    struct got g[2];
    char device[40], what[40];
    snprintf(device, sizeof device, "check:lost=%d", k);
    snprintf(what, sizeof what, "lost at call %d,", k);
    sl_status st = run(m, device, g);
    if (!st) return false;
    assert_int_equal(st, SL_DEVICE);
    check_text(err.text, what);
    for (int i = 0; i < 2; i++)
        if (g[i].n_end && g[i].status) check_text(g[i].text, what);
    return true;
}

static void every_call(const char *name)
{
    sl_model *m = NULL;
    struct got good[2], same[2];
    int k = 1, n_step = 0;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &m, &err));
    ASSERT_OK(run(m, "cpu", good));
    ASSERT_OK(run(m, "check", same));
    assert_true(good[0].n_tok == N_NEW && same_answer(&good[0], &good[1]));
    assert_true(same_answer(&good[0], &same[0]) && same_answer(&good[0], &same[1]));
    int64_t before = held();
    log_set_level(LOG_ERROR); /* a line for each failed step is right, but not here */
    for (; failed_call(m, k, &good[0], &n_step); k++) {
        assert_true(lost_call(m, k));
        assert_int_equal(held(), before);
        assert_true(k < CALLS_MAX);
    }
    assert_false(lost_call(m, k));
    log_set_level(LOG_WARN);
    assert_true(n_step > 50 && k > n_step + 20); /* in steps, and while it opens */
    sl_model_close(m);
}

TEST(engine_device_fails_at_every_call)
{
    every_call("llama3.gguf");
}

TEST(engine_device_fails_at_every_call_of_experts_and_latents)
{
    every_call("deepseek_v3.gguf");
}
