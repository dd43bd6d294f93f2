/* SPDX-License-Identifier: Apache-2.0 */
/* A model of which every other layer has a recurrent state (model/scan.c): its states lie on the
 * device, and samples, prefix hits, preemption, going back and failed steps copy them. Every answer
 * is the one that a request has alone. */
#include <string.h>

#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_NEW 24
#define N_PROMPT 150

static sl_err err;
static int32_t ids[N_PROMPT];

struct got {
    int n_tok[3], n_cached, n_error;
    int32_t tok[3][N_NEW];
};

static void with_state(struct arch_cfg *c)
{
    for (int i = 1; i < c->n_layer; i += 2)
        c->layer[i].mixer = ARCH_SCAN;
}

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    int i = ev->index;
    if (ev->token >= 0 && g->n_tok[i] < N_NEW) g->tok[i][g->n_tok[i]++] = ev->token;
    if (ev->finish != SL_FINISH_NONE) g->n_cached = ev->n_cached;
    g->n_error += ev->finish == SL_FINISH_ERROR;
}

static sl_model *open_model(void)
{
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &m, &err));
    assert_true(m->cfg.n_layer >= 2);
    with_state(&m->cfg);
    m->edit = with_state;
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = (i * i * 3 + i * 11 + 5) % m->cfg.n_vocab;
    return m;
}

static sl_engine *open_engine(sl_model *m, int n_seq, int64_t kv_tokens)
{
    sl_engine *e = NULL;
    sl_engine_opts o = {
        .n_thread = 2, .n_ctx = 256, .n_seq_max = n_seq, .n_chunk = 40, .kv_tokens = kv_tokens};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    assert_true(e->pool.has_state && e->pool.n_snap > 0);
    return e;
}

static void submit(sl_engine *e, int from, int n, int n_sample, struct got *g)
{
    sl_request q = {.ids = ids + from,
                    .n_ids = n,
                    .n = n_sample,
                    .max_tokens = N_NEW,
                    .ignore_eos = 1,
                    .sampling = {.temperature = 1, .seed = 7},
                    .on_event = on_event,
                    .user = g};
    memset(g, 0, sizeof *g);
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
}

static void run(sl_engine *e)
{
    while (sl_pending(e)) {
        ASSERT_OK(sl_step(e, &err));
        assert_int_equal(sched_check(&e->sched), 0);
    }
}

static void check_same(const struct got *a, const struct got *b, int n_sample)
{
    for (int i = 0; i < n_sample; i++) {
        assert_int_equal(a->n_tok[i], N_NEW);
        assert_memory_equal(a->tok[i], b->tok[i], sizeof a->tok[i]);
    }
}

/* What each of four prompts leads to, alone and without a prefix tree to find anything in. */
static void alone(sl_model *m, struct got g[4])
{
    for (int i = 0; i < 4; i++) {
        sl_engine *e = open_engine(m, 3, 0);
        submit(e, i % 2 ? 0 : 30, 60 + 30 * i, 3, &g[i]);
        run(e);
        assert_int_equal(g[i].n_cached, 0);
        sl_engine_close(e);
    }
}

TEST(engine_state_of_samples_hits_and_preempted_requests_is_that_of_one_alone)
{
    struct got one[4], g[4], again;
    sl_model *m = open_model();
    alone(m, one);
    assert_memory_not_equal(one[0].tok[0], one[0].tok[1], sizeof one[0].tok[0]);
    sl_engine *e = open_engine(m, 6, 0);
    for (int i = 0; i < 4; i++)
        submit(e, i % 2 ? 0 : 30, 60 + 30 * i, 3, &g[i]);
    run(e);
    for (int i = 0; i < 4; i++)
        check_same(&one[i], &g[i], 3);
    submit(e, 0, 150, 3, &again); /* from the snapshot at the end of the prompt's last block */
    run(e);
    check_same(&one[3], &again, 3);
    assert_int_equal(again.n_cached, 149 / ENGINE_BLK_TOK * ENGINE_BLK_TOK);
    sl_engine_close(e);
    e = open_engine(m, 6, 256); /* one context: they take each other's blocks */
    for (int i = 0; i < 4; i++)
        submit(e, i % 2 ? 0 : 30, 60 + 30 * i, 3, &g[i]);
    run(e);
    sl_stats s;
    sl_stats_get(e, &s);
    assert_true(s.n_preempt > 0);
    for (int i = 0; i < 4; i++)
        check_same(&one[i], &g[i], 3);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_state_goes_back_to_a_snapshot)
{
    struct got one[4], g;
    int n_back = 0, n_refused = 0;
    sl_model *m = open_model();
    alone(m, one);
    sl_engine *e = open_engine(m, 3, 0);
    submit(e, 0, 150, 3, &g);
    for (int k = 0; sl_pending(e); k++) {
        ASSERT_OK(sl_step(e, &err));
        int slot = sched_running(&e->sched, 0);
        if (slot < 0 || k % 5 != 4) continue;
        int had = sched_request(&e->sched, slot)->n_done;
        int at = sched_rewind(&e->sched, slot, k == 4 ? 10 : had - 3); /* 10: no snapshot yet */
        n_refused += at < 0;
        n_back += at >= 0;
        if (at >= 0) assert_true(at % ENGINE_BLK_TOK == 0 && at < had);
    }
    assert_true(n_back > 2 && n_refused == 1);
    check_same(&one[3], &g, 3);
    sl_engine_close(e);
    sl_model_close(m);
}

static sl_status fails(void *user, bool wait, sl_err *e)
{
    int *left = user;
    if (wait || --*left) return SL_OK;
    return SL_FAIL(e, INTERNAL, "as the test says");
}

/* A failed step may have made no copies: all that run end, and nothing of the tree is used. */
TEST(engine_state_is_not_used_after_a_failed_step)
{
    struct got one[4], g[2];
    sl_model *m = open_model();
    alone(m, one);
    for (int at = 1; at < 12; at++) {
        int left = at;
        sl_engine *e = open_engine(m, 6, 0);
        e->fault = fails;
        e->fault_user = &left;
        submit(e, 0, 150, 3, &g[0]);
        submit(e, 30, 60, 3, &g[1]);
        log_set_level(LOG_ERROR);
        run(e);
        log_set_level(LOG_WARN);
        assert_true(g[0].n_error > 0);
        submit(e, 0, 150, 3, &g[0]);
        submit(e, 30, 60, 3, &g[1]);
        run(e);
        check_same(&one[3], &g[0], 3);
        check_same(&one[0], &g[1], 3);
        sl_engine_close(e);
    }
    sl_model_close(m);
}

/* What a request leads to. Of n guesses at it one in eight is wrong. */
struct guesser {
    const struct got *of;
    uint32_t n;
    int n_most; /* in a row, at most */
};

static int guess(void *user, const struct request *r, int n_max, int32_t *out)
{
    struct guesser *g = user;
    int at = r->n_ids - r->n_prompt, n = BASE_MIN(n_max, N_NEW - at);
    for (int k = 0; k < n; k++) {
        int32_t right = g->of->tok[r->index][at + k];
        out[k] = ++g->n * 2654435761u >> 16 & 7 ? right : right ^ 1;
    }
    g->n_most = BASE_MAX(g->n_most, n);
    return n;
}

/* Guesses, right ones and wrong, change no answer: a state goes back by as many as were wrong. */
TEST(engine_state_goes_back_by_wrong_drafts)
{
    struct got one[4], g[2], again;
    sl_model *m = open_model();
    alone(m, one);
    for (int most = 1; most <= SL_DRAFT_MAX; most++) {
        sl_engine *e = NULL;
        struct guesser by = {.of = &one[3], .n = (uint32_t)most};
        sl_engine_opts o = {.n_thread = 2,
                            .n_ctx = 256,
                            .n_seq_max = 6,
                            .n_chunk = 40,
                            .draft = "ngram",
                            .draft_max = most,
                            .draft_always = 1};
        ASSERT_OK(sl_engine_open(m, &o, &e, &err));
        e->guess = guess;
        e->guess_user = &by;
        submit(e, 0, 150, 3, &g[0]);
        submit(e, 30, 60, 3, &g[1]); /* the guesses are another's: most are wrong */
        run(e);
        check_same(&one[3], &g[0], 3);
        check_same(&one[0], &g[1], 3);
        submit(e, 0, 150, 3, &again);
        run(e);
        check_same(&one[3], &again, 3);
        assert_true(again.n_cached > 0);
        sl_stats s;
        sl_stats_get(e, &s);
        assert_int_equal(by.n_most, most);
        assert_true(s.n_draft[most - 1] > 0 && s.n_right[most - 1] > 0);
        assert_true(s.n_right[0] < s.n_judged[0]);
        sl_engine_close(e);
    }
    sl_model_close(m);
}
