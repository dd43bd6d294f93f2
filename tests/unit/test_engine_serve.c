/* SPDX-License-Identifier: Apache-2.0 */
/* What servers need of the engine: threads, samples, the prefix tree, deadlines, embeddings, echo,
 * statistics, warm-up. On tiny checkpoints. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine_internal.h"
#include "engine_tiny.h"

static sl_err err;

struct rig {
    sl_model *m;
    sl_engine *e;
    sl_model_info mi;
};

static void rig_open(struct rig *r, const char *name, sl_engine_opts o)
{
    if (!o.n_thread) o.n_thread = 1;
    if (!o.n_ctx) o.n_ctx = 256;
    ASSERT_OK(sl_model_open(tiny(name), NULL, &r->m, &err));
    ASSERT_OK(sl_engine_open(r->m, &o, &r->e, &err));
    sl_model_info_get(r->m, &r->mi);
}

static void rig_close(struct rig *r)
{
    assert_int_equal(sched_check(&r->e->sched), 0);
    assert_int_equal(kv_pool_avail(&r->e->pool), r->e->pool.n_blk);
    sl_engine_close(r->e);
    sl_model_close(r->m);
}

#define N_IDS 150
static int32_t ids[N_IDS];

static void make_ids(const struct rig *r, int salt)
{
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 17 + salt) % r->mi.n_vocab;
}

struct got {
    int32_t tok[8][64];
    float lp[8][64];
    int n[8], n_finish, n_cached, n_echo, n_progress, n_emb, last_done;
    float echo_lp[N_IDS], emb[512];
    sl_finish finish;
    sl_status status;
    int64_t ttft_ns, queue_ns, prefill_ns, done_ns;
};

static void on_event(void *user, const sl_event *ev)
{
    struct got *g = user;
    if (ev->prompt_pos >= 0) {
        assert_int_equal(ev->prompt_pos, g->n_echo);
        assert_int_equal(ev->token, ids[ev->prompt_pos]);
        g->echo_lp[g->n_echo++] = ev->logprob;
        return;
    }
    assert_int_equal(ev->prompt_pos, -1);
    if (ev->token >= 0) {
        int i = ev->index, n = g->n[i]++;
        assert_true(i >= 0 && i < 8 && n < 64);
        g->tok[i][n] = ev->token;
        g->lp[i][n] = ev->logprob;
    } else if (ev->finish == SL_FINISH_NONE) {
        assert_true(ev->n_done > g->last_done);
        g->last_done = ev->n_done;
        g->n_progress++;
    }
    if (ev->embedding) {
        g->n_emb = ev->n_embedding;
        assert_true(g->n_emb <= 512);
        memcpy(g->emb, ev->embedding, (size_t)g->n_emb * sizeof *g->emb);
    }
    g->n_cached = ev->n_cached;
    if (ev->finish == SL_FINISH_NONE) return;
    g->n_finish++;
    g->finish = ev->finish;
    g->status = ev->status;
    g->ttft_ns = ev->ttft_ns;
    g->queue_ns = ev->queue_ns;
    g->prefill_ns = ev->prefill_ns;
    g->done_ns = ev->done_ns;
}

static sl_request base(struct got *g, int n_ids)
{
    memset(g, 0, sizeof *g);
    return (sl_request){.ids = ids,
                        .n_ids = n_ids,
                        .max_tokens = 10,
                        .ignore_eos = 1,
                        .sampling = {.temperature = 1, .seed = 9},
                        .on_event = on_event,
                        .user = g};
}

static void drain(sl_engine *e)
{
    for (int n = 0; sl_pending(e); n++) {
        ASSERT_OK(sl_step(e, &err));
        assert_true(n < 20000);
    }
}

static void ask(sl_engine *e, const sl_request *q)
{
    ASSERT_OK(sl_submit(e, q, NULL, &err));
    drain(e);
}

TEST(engine_samples_share_a_prompt_and_equal_those_of_company_or_none)
{
    struct rig r;
    static struct got a, b, one;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 8});
    make_ids(&r, 3);
    sl_request q = base(&a, 75);
    q.n = 5;
    q.want_logprob = 1;
    ask(r.e, &q);
    assert_int_equal(a.n_finish, 5);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_prompt_tok, 75); /* once for all */
    assert_int_equal(s.n_decode_tok, 5 * 9);
    assert_int_equal(s.n_finish[SL_FINISH_LENGTH], 5);
    assert_memory_not_equal(a.tok[0], a.tok[1], sizeof a.tok[0]);
    q = base(&one, 75);
    q.want_logprob = 1;
    ask(r.e, &q);
    assert_int_equal(one.n_cached, 64);
    assert_memory_equal(one.tok[0], a.tok[0], sizeof a.tok[0]);
    assert_memory_equal(one.lp[0], a.lp[0], sizeof a.lp[0]);
    rig_close(&r);
    /* fewer sequences than samples, few blocks: some begin later, some are preempted */
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 2, .n_ctx = 96, .kv_tokens = 128});
    q = base(&b, 75);
    q.n = 5;
    q.want_logprob = 1;
    ask(r.e, &q);
    assert_int_equal(b.n_finish, 5);
    assert_memory_equal(a.tok, b.tok, sizeof a.tok);
    assert_memory_equal(a.lp, b.lp, sizeof a.lp);
    rig_close(&r);
}

TEST(engine_cancel_ends_all_samples)
{
    struct rig r;
    static struct got a;
    uint64_t id;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 3});
    make_ids(&r, 3);
    sl_request q = base(&a, 40);
    q.n = 5;
    q.max_tokens = 60;
    ASSERT_OK(sl_submit(r.e, &q, &id, &err));
    for (int i = 0; i < 3; i++)
        ASSERT_OK(sl_step(r.e, &err));
    sl_cancel(r.e, id);
    ASSERT_OK(sl_step(r.e, &err));
    assert_int_equal(sl_pending(r.e), 0);
    assert_int_equal(a.n_finish, 5);
    assert_int_equal(a.finish, SL_FINISH_CANCELLED);
    rig_close(&r);
}

TEST(engine_prefix_hits_are_salted_counted_and_can_be_refused)
{
    struct rig r;
    static struct got a, b;
    rig_open(&r, "qwen3.gguf", (sl_engine_opts){.n_seq_max = 2});
    make_ids(&r, 5);
    sl_request q = base(&a, 100);
    ask(r.e, &q);
    assert_int_equal(a.n_cached, 0);
    q = base(&b, 100);
    ask(r.e, &q);
    assert_int_equal(b.n_cached, 96);
    assert_memory_equal(a.tok, b.tok, sizeof a.tok);
    q = base(&b, 100);
    q.cache_salt = 7; /* docs/reliability.md K7 */
    ask(r.e, &q);
    assert_int_equal(b.n_cached, 0);
    assert_memory_equal(a.tok, b.tok, sizeof a.tok);
    ask(r.e, &q);
    assert_int_equal(b.n_cached, 96);
    q = base(&b, 100);
    q.no_cache = 1;
    ask(r.e, &q);
    assert_int_equal(b.n_cached, 0);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.cache_query_tok, 500);
    assert_int_equal(s.cache_hit_tok, 192);
    assert_true(s.kv_cached_tok > 0);
    assert_int_equal(s.kv_used_tok, 0);
    sl_drop_cache(r.e);
    q = base(&b, 100);
    ask(r.e, &q);
    assert_int_equal(b.n_cached, 0);
    assert_memory_equal(a.tok, b.tok, sizeof a.tok);
    rig_close(&r);
}

TEST(engine_computes_a_prefix_once_for_requests_that_come_together)
{
    struct rig r;
    static struct got g[6];
    rig_open(&r, "deepseek_v2.gguf", (sl_engine_opts){.n_seq_max = 8, .n_chunk = 40});
    make_ids(&r, 5);
    for (int i = 0; i < 6; i++) {
        sl_request q = base(&g[i], 140);
        ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    }
    drain(r.e);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_prompt_tok, 140 + 5 * 12);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(g[i].n_cached, 128);
        assert_memory_equal(g[0].tok, g[i].tok, sizeof g[0].tok);
    }
    rig_close(&r);
}

TEST(engine_ends_a_request_at_its_deadline) /* docs/reliability.md K4 */
{
    struct rig r;
    static struct got a, b;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 1});
    make_ids(&r, 5);
    sl_request q = base(&a, 20);
    q.max_tokens = 0; /* until the context is full */
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    q = base(&b, 20);
    q.timeout_ms = 1;
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err)); /* waits for the first */
    struct timespec t = {.tv_nsec = 2000000};
    nanosleep(&t, NULL);
    ASSERT_OK(sl_step(r.e, &err));
    assert_int_equal(b.finish, SL_FINISH_ERROR);
    assert_int_equal(b.status, SL_TIMEOUT);
    assert_int_equal(sl_status_http(SL_TIMEOUT), 504);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_timeout, 1);
    sl_cancel(r.e, 0);
    for (int i = 0; i < 5; i++)
        ASSERT_OK(sl_step(r.e, &err));
    assert_int_equal(a.n_finish, 0);
    sl_engine_close(r.e);
    assert_int_equal(a.finish, SL_FINISH_CANCELLED);
    sl_model_close(r.m);
}

/* Another prompt after a fault, with none of the kept blocks: both run to their ends. */
static void run_beside_fault(struct rig *r, struct got *b, const int32_t *other)
{
    sl_drop_cache(r->e); /* block 0 was put before the fault */
    sl_request q = base(b, 40);
    q.ids = other;
    ASSERT_OK(sl_submit(r->e, &q, NULL, &err));
    drain(r->e);
}

TEST(engine_output_that_is_not_a_number_ends_one_request_and_is_not_kept) /* docs/reliability.md K15
                                                                           */
{
    struct rig r;
    static struct got a, b, c;
    rig_open(&r, "qwen3_moe.gguf", (sl_engine_opts){.n_seq_max = 2, .n_chunk = 32});
    make_ids(&r, 11);
    sl_request q = base(&a, 120);
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    ASSERT_OK(sl_step(r.e, &err));
    const struct kv_seq *seq = &r.e->sched.seat[r.e->sched.req[r.e->sched.active[0]].seat].seq;
    dev_kv_poison(r.e->d, r.e->kv, 0, seq->blk[0]); /* a fault in the middle of the prompt */
    int32_t other[40];
    for (int i = 0; i < 40; i++)
        other[i] = (i * 5 + 1) % r.mi.n_vocab;
    run_beside_fault(&r, &b, other);
    assert_int_equal(a.finish, SL_FINISH_ERROR);
    assert_int_equal(a.status, SL_INTERNAL);
    assert_int_equal(b.finish, SL_FINISH_LENGTH);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_nan, 1);
    q = base(&c, 120);
    ask(r.e, &q);
    assert_int_equal(c.n_cached, 0); /* nothing of it was left */
    assert_int_equal(c.finish, SL_FINISH_LENGTH);
    rig_close(&r);
}

TEST(engine_leaves_a_cancelled_request_within_two_steps) /* docs/reliability.md H8 */
{
    struct rig r;
    static struct got a;
    uint64_t rng = 8, id;
    sl_stats s;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 3, .n_chunk = 16});
    make_ids(&r, 5);
    for (int k = 0; k < 200; k++) {
        int n_step = (int)(rng_next(&rng) % 30), n = 0;
        sl_request q = base(&a, 1 + (int)(rng_next(&rng) % 140));
        q.n = 1 + k % 3;
        q.max_tokens = 60;
        q.sampling.temperature = 1;
        ASSERT_OK(sl_submit(r.e, &q, &id, &err));
        for (int i = 0; i < n_step; i++)
            ASSERT_OK(sl_step(r.e, &err));
        sl_cancel(r.e, id);
        for (sl_stats_get(r.e, &s); s.kv_used_tok > 0; sl_stats_get(r.e, &s), n++)
            ASSERT_OK(sl_step(r.e, &err));
        assert_in_range(n, 0, 2);
        drain(r.e);
    }
    rig_close(&r);
}

/* The same at any block and any step of the prompt: nobody else's tokens change. */
TEST(engine_faults_at_any_place_hurt_one_request) /* docs/reliability.md K15 */
{
    struct rig r;
    static struct got a, b, want, c;
    uint64_t rng = 15;
    int32_t other[40];
    rig_open(&r, "qwen3_moe.gguf", (sl_engine_opts){.n_seq_max = 2, .n_chunk = 32});
    make_ids(&r, 11);
    for (int i = 0; i < 40; i++)
        other[i] = (i * 5 + 1) % r.mi.n_vocab;
    sl_request q = base(&want, 40);
    q.ids = other;
    ask(r.e, &q);
    for (int k = 0; k < 100; k++) {
        int n_step = 1 + (int)(rng_next(&rng) % 3);
        sl_drop_cache(r.e);
        q = base(&a, 120);
        ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
        for (int i = 0; i < n_step; i++)
            ASSERT_OK(sl_step(r.e, &err));
        const struct sched_req *at = &r.e->sched.req[r.e->sched.active[0]];
        int blk = (int)(rng_next(&rng) % (uint64_t)(at->n_done / ENGINE_BLK_TOK));
        dev_kv_poison(r.e->d, r.e->kv, 0, r.e->sched.seat[at->seat].seq.blk[blk]);
        run_beside_fault(&r, &b, other);
        assert_int_equal(a.status, SL_INTERNAL);
        assert_int_equal(b.finish, SL_FINISH_LENGTH);
        assert_memory_equal(b.tok, want.tok, sizeof want.tok);
        q = base(&c, 120);
        ask(r.e, &q);
        assert_int_equal(c.finish, SL_FINISH_LENGTH);
        assert_in_range(c.n_cached, 0, 0);
    }
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_nan, 100);
    rig_close(&r);
}

TEST(engine_embeds_the_mean_and_the_last_state)
{
    struct rig r;
    static struct got a, b, c;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 4, .n_chunk = 64});
    make_ids(&r, 11);
    sl_request q = base(&a, 60);
    q.embed = 1;
    ask(r.e, &q);
    assert_int_equal(a.n_finish, 1);
    assert_int_equal(a.finish, SL_FINISH_STOP);
    assert_int_equal(a.n[0], 0);
    assert_int_equal(a.n_emb, r.e->m->cfg.d_model);
    q = base(&c, 60);
    q.embed = 2;
    ask(r.e, &q);
    assert_memory_not_equal(a.emb, c.emb, (size_t)a.n_emb * sizeof(float));
    /* of one token, mean and last are the same */
    static struct got x, y;
    q = base(&x, 1);
    q.embed = 1;
    ask(r.e, &q);
    q = base(&y, 1);
    q.embed = 2;
    ask(r.e, &q);
    assert_memory_equal(x.emb, y.emb, (size_t)x.n_emb * sizeof(float));
    double norm = 0;
    for (int i = 0; i < a.n_emb; i++)
        norm += (double)a.emb[i] * (double)a.emb[i];
    assert_true(isfinite(norm) && norm > 0);
    rig_close(&r);
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 4, .n_chunk = 7}); /* other pieces */
    q = base(&b, 60);
    q.embed = 1;
    ask(r.e, &q);
    assert_memory_equal(a.emb, b.emb, sizeof a.emb);
    q.n = 2;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
    rig_close(&r);
}

TEST(engine_echoes_the_log_probabilities_of_prompts)
{
    struct rig r;
    static struct got a, b;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 4, .n_chunk = 64});
    make_ids(&r, 23);
    sl_request q = base(&a, 90);
    ask(r.e, &q); /* so that a prefix is there, which must not be used */
    q = base(&a, 90);
    q.echo_logprob = 1;
    q.want_logprob = 1;
    q.n = 2;
    ask(r.e, &q);
    assert_int_equal(a.n_echo, 90);
    assert_int_equal(a.n[0], 10);
    assert_int_equal(a.n[1], 10);
    float *rows = malloc(90 * (size_t)r.mi.n_vocab * sizeof *rows);
    assert_non_null(rows);
    ASSERT_OK(sl_logits(r.e, ids, 90, 0, rows, &err));
    for (int i = 1; i < 90; i++) {
        float lp;
        engine_logprobs(rows + (int64_t)(i - 1) * r.mi.n_vocab, r.mi.n_vocab, ids[i], 0, &lp, NULL);
        assert_memory_equal(&lp, &a.echo_lp[i], sizeof lp);
    }
    free(rows);
    q = base(&b, 90);
    q.echo_logprob = 1;
    q.want_logprob = 1;
    q.max_tokens = -1; /* only that */
    ask(r.e, &q);
    assert_int_equal(b.n_echo, 90);
    assert_int_equal(b.n[0], 0);
    assert_int_equal(b.finish, SL_FINISH_LENGTH);
    assert_memory_equal(a.echo_lp, b.echo_lp, sizeof a.echo_lp);
    assert_true(b.prefill_ns > 0 && b.queue_ns + b.prefill_ns == b.ttft_ns &&
                b.done_ns >= b.ttft_ns);
    q.echo_logprob = 0;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
    rig_close(&r);
}

TEST(engine_tells_progress_and_times)
{
    struct rig r;
    static struct got a;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_chunk = 40});
    make_ids(&r, 23);
    sl_request q = base(&a, 150);
    q.want_progress = 1;
    ask(r.e, &q);
    assert_int_equal(a.n_progress, 3);
    assert_int_equal(a.last_done, 120);
    assert_int_equal(a.n[0], 10);
    assert_true(a.queue_ns >= 0 && a.prefill_ns > 0);
    assert_int_equal(a.queue_ns + a.prefill_ns, a.ttft_ns);
    assert_true(a.done_ns >= a.ttft_ns);
    rig_close(&r);
}

static void on_step(void *user, const sl_step_record *s)
{
    sl_step_record *sum = user;
    assert_int_equal(s->n, sum->n + 1);
    sum->n = s->n;
    sum->n_prompt += s->n_prompt;
    sum->n_decode += s->n_decode;
    assert_true(s->compute_ns > 0 && s->plan_ns >= 0 && s->sample_ns >= 0);
}

TEST(engine_warms_up_and_records_steps)
{
    struct rig r;
    static struct got a;
    sl_step_record sum = {0};
    rig_open(&r, "kimi_k2.gguf",
             (sl_engine_opts){.n_seq_max = 4, .on_step = on_step, .step_user = &sum});
    make_ids(&r, 23);
    int n_free = r.e->pool.n_free;
    ASSERT_OK(sl_warm(r.e, &err));
    assert_int_equal(r.e->pool.n_free, n_free);
    assert_true(r.e->sched.cost.row[1].ns > 0);
    assert_int_equal(r.e->sched.cost.n_mixed, 2);
    sl_request q = base(&a, 100);
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    ASSERT_STATUS(sl_warm(r.e, &err), SL_BUSY);
    drain(r.e);
    assert_int_equal(sum.n_prompt, 100);
    assert_int_equal(sum.n_decode, 9);
    rig_close(&r);
}

TEST(engine_queue_counts_samples_and_refuses_all_or_nothing)
{
    struct rig r;
    static struct got a;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 2, .n_queue_max = 4});
    make_ids(&r, 1);
    sl_request q = base(&a, 10);
    q.n = 4;
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_BUSY);
    q.n = 2;
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    q.n = 1;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_BUSY);
    q.n = 129;
    ASSERT_STATUS(sl_submit(r.e, &q, NULL, &err), SL_REQUEST);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_busy, 2);
    assert_int_equal(s.n_submit, 6);
    drain(r.e);
    assert_int_equal(a.n_finish, 6);
    rig_close(&r);
}

/* ---- threads ---- */

struct crowd {
    sl_engine *e;
    atomic_int n_done, n_finish, n_ok, n_busy, stop;
    uint64_t seed;
};

static void on_crowd(void *user, const sl_event *ev)
{
    struct crowd *c = user;
    if (ev->finish != SL_FINISH_NONE) atomic_fetch_add(&c->n_finish, 1);
}

static void *one_client(void *user)
{
    struct crowd *c = user;
    uint64_t rng = 7;
    for (int i = 0; i < 60; i++) {
        uint64_t id;
        sl_stats s;
        sl_request q = {.ids = ids,
                        .n_ids = 1 + i % 90,
                        .max_tokens = 1 + i % 7,
                        .n = 1 + i % 3,
                        .on_event = on_crowd,
                        .user = c};
        sl_status st = sl_submit(c->e, &q, &id, NULL);
        if (st == SL_OK)
            atomic_fetch_add(&c->n_ok, q.n);
        else
            atomic_fetch_add(&c->n_busy, st == SL_BUSY);
        rng = rng * 6364136223846793005ull + 1;
        if (st == SL_OK && rng >> 62 == 0) sl_cancel(c->e, id);
        if (i % 10 == 0) sl_drop_cache(c->e);
        sl_stats_get(c->e, &s);
        if (sl_pending(c->e) < 0) abort();
    }
    atomic_fetch_add(&c->n_done, 1);
    sl_wake(c->e);
    return NULL;
}

TEST(engine_takes_requests_and_cancels_from_many_threads)
{
    struct rig r;
    pthread_t t[4];
    rig_open(&r, "llama3.gguf", (sl_engine_opts){.n_seq_max = 4, .n_queue_max = 12});
    make_ids(&r, 1);
    static struct crowd c;
    memset(&c, 0, sizeof c);
    c.e = r.e;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, one_client, &c), 0);
    while (atomic_load(&c.n_done) < 4 || sl_pending(r.e)) {
        sl_wait(r.e, 1000);
        ASSERT_OK(sl_step(r.e, &err));
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&c.n_finish), atomic_load(&c.n_ok));
    assert_true(atomic_load(&c.n_ok) > 0);
    sl_stats s;
    sl_stats_get(r.e, &s);
    assert_int_equal(s.n_submit, atomic_load(&c.n_ok));
    assert_int_equal(s.n_busy, atomic_load(&c.n_busy));
    rig_close(&r);
}

TEST(engine_wait_returns_for_a_wake_and_for_work)
{
    struct rig r;
    static struct got a;
    rig_open(&r, "llama3.gguf", (sl_engine_opts){0});
    make_ids(&r, 1);
    sl_wake(r.e);
    sl_wait(r.e, -1); /* would sleep for ever */
    sl_wait(r.e, 0);
    sl_request q = base(&a, 5);
    ASSERT_OK(sl_submit(r.e, &q, NULL, &err));
    sl_wait(r.e, -1);
    drain(r.e);
    sl_wait(r.e, 1);
    rig_close(&r);
}
