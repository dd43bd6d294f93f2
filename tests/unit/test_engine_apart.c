/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that another engine computes (sl_prefill_by): the same tokens, bit for bit, whatever the
 * layouts on both sides, and whatever is lost on the way; no block is lost, whenever a request is
 * cancelled. */
#include <string.h>

#include "apart.h"
#include "base/rng.h"
#include "engine_tiny.h"

static sl_err err;

#define N_SAMPLE 3
#define N_TOK 20
#define N_PROMPT 170
#define N_ASK 5

struct answer {
    int32_t tok[N_TOK];
    float lp[N_TOK];
    int n, n_finish, n_cached;
    sl_finish finish;
};
struct run {
    struct answer of[N_ASK][N_SAMPLE];
};
struct asked {
    struct run *run;
    int i;
};

static void on_event(void *user, const sl_event *ev)
{
    const struct asked *q = user;
    struct answer *a = &q->run->of[q->i][ev->index];
    if (ev->token >= 0) {
        assert_in_range(a->n, 0, N_TOK - 1);
        a->lp[a->n] = ev->logprob;
        a->tok[a->n++] = ev->token;
    }
    a->n_cached = ev->n_cached;
    if (ev->finish == SL_FINISH_NONE) return;
    a->n_finish++;
    a->finish = ev->finish;
}

static void finish(sl_engine *e)
{
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

/* A few prompts that begin alike or not, short ones too, each with another way to draw. */
static void ask_all(sl_engine *e, sl_grammar *g, struct run *r)
{
    static const int n_prompt[N_ASK] = {N_PROMPT, 131, 161, 20, 97};
    static int32_t ids[N_ASK][N_PROMPT];
    static struct asked q[N_ASK];
    memset(r, 0, sizeof *r);
    for (int i = 0; i < N_ASK; i++) {
        for (int k = 0; k < n_prompt[i]; k++)
            ids[i][k] = (k * 17 + 5 + (k > 70) * i * 3 + (i == 4) * 7) % e->n_vocab;
        sl_request s = {.ids = ids[i],
                        .n_ids = n_prompt[i],
                        .n = i == 1 ? N_SAMPLE : 1,
                        .max_tokens = N_TOK,
                        .want_logprob = 1,
                        .grammar = i == 2 ? g : NULL,
                        .ignore_eos = 1,
                        .on_event = on_event,
                        .user = &q[i]};
        if (i) s.sampling = (sl_sampling){.temperature = 0.9f, .seed = 7, .repeat_penalty = 1.1f};
        q[i] = (struct asked){r, i};
        ASSERT_OK(sl_submit(e, &s, NULL, &err));
        if (i == 1) ASSERT_OK(sl_step(e, &err));
    }
    finish(e);
}

static void same(const struct run *a, const struct run *b)
{
    for (int i = 0; i < N_ASK; i++)
        for (int k = 0; k < (i == 1 ? N_SAMPLE : 1); k++) {
            const struct answer *x = &a->of[i][k], *y = &b->of[i][k];
            assert_int_equal(x->n_finish, 1);
            assert_int_equal(x->n, y->n);
            assert_memory_equal(x->tok, y->tok, sizeof x->tok);
            assert_memory_equal(x->lp, y->lp, sizeof x->lp);
            assert_int_equal(x->finish, y->finish);
        }
}

/* The one that asks, the one that computes, and what a single engine answers. */
struct pair {
    sl_model *m;
    sl_engine *e;
    struct apart apart;
    sl_grammar *g;
    struct run want;
};
struct shape {
    const char *model, *decode, *prefill, *draft;
    sl_acts acts;
    sl_kv kv;
    bool mixed_draft; /* the one that computes has no drafter */
    int deadline_ms;
};

static sl_engine_opts opts_of(const struct shape *s)
{
    return (sl_engine_opts){.n_thread = 4,
                            .n_ctx = 256,
                            .n_seq_max = 6,
                            .n_chunk = 48,
                            .kv_tokens = 2048,
                            .acts = s->acts,
                            .kv = s->kv,
                            .draft = s->draft,
                            .dist_deadline_ms = s->deadline_ms};
}

static void open_pair(struct pair *p, const struct shape *s)
{
    memset(p, 0, sizeof *p);
    ASSERT_OK(sl_model_open(tiny(s->model), NULL, &p->m, &err));
    sl_engine_opts o = opts_of(s);
    ASSERT_OK(sl_engine_open(p->m, &o, &p->e, &err));
    if (!p->e->info.kv_hash) skip(); /* another device was asked for */
    if (sl_grammar_compile(p->m, SL_GRAMMAR_REGEX, "([a-z]{2}[0-9])+", 16, &p->g, NULL))
        p->g = NULL;
    ask_all(p->e, p->g, &p->want);
    sl_engine_close(p->e);
    o.layout = s->prefill;
    if (s->mixed_draft) o.draft = NULL;
    ASSERT_OK(sl_engine_open(p->m, &o, &p->apart.by, &err));
    o.draft = s->draft;
    o.layout = s->decode;
    ASSERT_OK(sl_engine_open(p->m, &o, &p->e, &err));
    ASSERT_OK(apart_open(&p->apart, p->m, &err));
    ASSERT_OK(sl_prefill_by(p->e, p->apart.link, 32, &err));
}

static sl_stats stats_of(const sl_engine *e)
{
    sl_stats s;
    sl_stats_get(e, &s);
    return s;
}

/* Everything is given back on both sides. */
static void nothing_lost(struct pair *p)
{
    for (int i = 0; sl_pending(p->apart.by) && i < 5000; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(sl_pending(p->apart.by), 0);
    assert_int_equal(apart_lost(p->e), 0);
    assert_int_equal(apart_lost(p->apart.by), 0);
}

static void close_pair(struct pair *p)
{
    sl_engine_close(p->e);
    apart_fini(&p->apart);
    sl_grammar_unref(p->g);
    sl_model_close(p->m);
}

static void one_shape(const struct shape *s)
{
    static struct pair p;
    static struct run got;
    open_pair(&p, s);
    ask_all(p.e, p.g, &got);
    same(&got, &p.want);
    assert_true(stats_of(p.e).n_prefill_by >= 3);
    assert_int_equal(stats_of(p.e).n_prefill_lost, 0);
    assert_true(stats_of(p.e).kv_in_bytes > 0);
    uint64_t n = stats_of(p.e).n_prefill_by;
    ask_all(p.e, p.g, &got); /* now from its own tree */
    same(&got, &p.want);
    assert_true(got.of[0][0].n_cached >= 128);
    assert_true(stats_of(p.e).n_prefill_by <= n + 1);
    sl_drop_cache(p.e); /* from that of the other side */
    ask_all(p.e, p.g, &got);
    same(&got, &p.want);
    assert_true(stats_of(p.e).n_prefill_by >= n + 3);
    nothing_lost(&p);
    assert_int_equal(stats_of(p.apart.by).n_kv_out, stats_of(p.e).n_prefill_by);
    close_pair(&p);
}

TEST(engine_apart_gives_the_same_answers)
{
    static const struct shape shape[] = {
        {.model = "llama3.gguf"},
        {.model = "llama3.gguf", .draft = "ngram", .kv = SL_KV_Q8, .acts = SL_ACTS_INT8},
        {.model = "deepseek_v3", .kv = SL_KV_BF16, .acts = SL_ACTS_BF16},
        {.model = "qwen3_moe.gguf", .kv = SL_KV_F16, .acts = SL_ACTS_INT8},
        {.model = "q_mla.gguf", .kv = SL_KV_F32, .acts = SL_ACTS_INT8},
        {.model = "glm_moe_dsa.gguf", .kv = SL_KV_Q8, .acts = SL_ACTS_F32},
    };
    for (int i = 0; i < BASE_COUNT_OF(shape); i++)
        one_shape(&shape[i]);
}

TEST(engine_apart_takes_the_entries_of_the_mtp_layer)
{
    static const struct shape shape[] = {
        {.model = "deepseek_v3", .draft = "mtp"},
        {.model = "glm4_moe.gguf", .draft = "auto", .kv = SL_KV_Q8},
        {.model = "deepseek_v3", .draft = "mtp", .mixed_draft = true},
        {.model = "deepseek_v32.gguf", .draft = "mtp"},
    };
    for (int i = 0; i < BASE_COUNT_OF(shape); i++)
        one_shape(&shape[i]);
}

TEST(engine_apart_takes_every_layout)
{
    static const struct shape shape[] = {
        {.model = "qwen3_moe_mixed.gguf", .prefill = "tp=2", .decode = "dp=2,ep=2"},
        {.model = "deepseek_v2_lite.gguf", .prefill = "tp=2", .decode = "dp=2,ep=2"},
        {.model = "deepseek_v3", .decode = "dp=2,ep=2", .draft = "mtp"},
        {.model = "glm4_moe.gguf", .prefill = "pp=2", .draft = "mtp"},
        {.model = "qwen3_moe_mixed.gguf", .decode = "dp=2,ep=2", .kv = SL_KV_Q8},
        {.model = "qwen3_moe_mixed.gguf", .prefill = "pp=2", .decode = "tp=2"},
        {.model = "qwen3_moe_mixed.gguf", .prefill = "dp=2,ep=2", .decode = "tp=2,ep=2"},
        {.model = "deepseek_v2_lite.gguf", .prefill = "tp=2,pp=2", .decode = "pp=2"},
    };
    for (int i = 0; i < BASE_COUNT_OF(shape); i++)
        one_shape(&shape[i]);
}

/* Of layers with a window what the next token sees comes, and no more. */
TEST(engine_apart_takes_windows)
{
    static const struct shape shape[] = {
        {.model = "q_gpt_oss.gguf"},
        {.model = "mistral_window", .kv = SL_KV_Q8, .acts = SL_ACTS_INT8},
        {.model = "gpt_oss", .kv = SL_KV_BF16, .prefill = "pp=2", .acts = SL_ACTS_BF16},
        {.model = "q_gpt_oss.gguf", .prefill = "tp=2", .decode = "dp=2,ep=2"},
        {.model = "q_gpt_oss.gguf", .prefill = "dp=2,ep=2", .decode = "pp=2", .draft = "ngram"},
    };
    for (int i = 0; i < BASE_COUNT_OF(shape); i++)
        one_shape(&shape[i]);
}

/* The answers are the same, and the next ones come as always. */
static void with_fault(struct pair *p, enum apart_fault fault, int at)
{
    static struct run got;
    uint64_t lost = stats_of(p->e).n_prefill_lost, by = stats_of(p->e).n_prefill_by;
    atomic_store(&p->apart.at, at);
    atomic_store(&p->apart.fault, (int)fault);
    sl_drop_cache(p->e);
    ask_all(p->e, p->g, &got);
    same(&got, &p->want);
    if (fault == APART_LATER)
        assert_true(stats_of(p->e).n_prefill_by >= by + 3);
    else if (fault != APART_GONE)
        assert_true(stats_of(p->e).n_prefill_lost > lost);
    atomic_store(&p->apart.fault, APART_NONE);
    sl_drop_cache(p->e);
    by = stats_of(p->e).n_prefill_by;
    lost = stats_of(p->e).n_prefill_lost;
    ask_all(p->e, p->g, &got);
    same(&got, &p->want);
    assert_true(stats_of(p->e).n_prefill_by >= by + 3);
    assert_int_equal(stats_of(p->e).n_prefill_lost, lost);
    nothing_lost(p);
}

TEST(engine_apart_computes_what_is_damaged_or_lost)
{
    static struct pair p;
    const struct shape s = {.model = "glm4_moe.gguf", .draft = "mtp"};
    open_pair(&p, &s);
    for (int at = 0; at < 12; at += 3) {
        with_fault(&p, APART_FLIP, at);
        with_fault(&p, APART_MISS, at + 1);
        with_fault(&p, APART_FAIL, at);
    }
    with_fault(&p, APART_STOP, 0);
    with_fault(&p, APART_STOP, 7);
    with_fault(&p, APART_LATER, 0);
    with_fault(&p, APART_BUSY, 0);
    with_fault(&p, APART_GONE, 0);
    close_pair(&p);
}

/* Cancelled after a random page of the first most, or step, of a random prompt. */
static void cancel_many(struct pair *p, int n, int most)
{
    static int32_t ids[N_PROMPT];
    static struct run r;
    uint64_t rng = 11, id;
    int n_cancel = 0;
    for (int i = 0; i < n; i++) {
        int n_ids = 70 + (int)(rng_next(&rng) % 100), at = (int)(rng_next(&rng) % (uint64_t)most);
        struct asked q[3];
        memset(&r, 0, sizeof r);
        for (int k = 0; k < n_ids; k++)
            ids[k] = (int)(rng_next(&rng) % (uint64_t)p->e->n_vocab);
        atomic_store(&p->apart.to, p->e);
        atomic_store(&p->apart.at, at);
        atomic_store(&p->apart.cancel, 0);
        atomic_store(&p->apart.fault, i % 3 ? APART_CANCEL : APART_NONE);
        for (int k = 0; k < 3; k++) {
            sl_request s = {.ids = ids,
                            .n_ids = n_ids - 9 * k,
                            .n = k == 1 ? 2 : 1,
                            .max_tokens = 3,
                            .on_event = on_event,
                            .user = &q[k]};
            q[k] = (struct asked){&r, k};
            ASSERT_OK(sl_submit(p->e, &s, &id, &err));
            if (k == i % 2) atomic_store(&p->apart.cancel, id);
        }
        for (int k = at; k > 0 && i % 3 == 0 && sl_pending(p->e); k--)
            ASSERT_OK(sl_step(p->e, &err));
        if (i % 3 == 0) sl_cancel(p->e, atomic_load(&p->apart.cancel));
        finish(p->e);
        for (int k = 0; k < 3; k++) {
            n_cancel += r.of[k][0].finish == SL_FINISH_CANCELLED;
            assert_int_equal(r.of[k][0].n_finish, 1);
        }
        atomic_store(&p->apart.fault, APART_NONE);
        nothing_lost(p);
    }
    assert_true(n_cancel * 3 > n);
    print_message("cancelled at %d of %d points, 0 blocks lost\n", n_cancel, n);
}

TEST(engine_apart_computes_what_windows_lack)
{
    static struct pair p;
    const struct shape s = {.model = "q_gpt_oss.gguf"};
    open_pair(&p, &s);
    for (int at = 0; at < 6; at += 2) {
        with_fault(&p, APART_FLIP, at);
        with_fault(&p, APART_MISS, at + 1);
        with_fault(&p, APART_FAIL, at);
    }
    with_fault(&p, APART_STOP, 3);
    cancel_many(&p, 12, 6);
    close_pair(&p);
}

TEST(engine_apart_waits_for_nobody_for_ever)
{
    static struct pair p;
    const struct shape s = {.model = "llama3.gguf", .deadline_ms = 300};
    static struct run got;
    open_pair(&p, &s);
    atomic_store(&p.apart.fault, APART_STOP);
    atomic_store(&p.apart.at, 0);
    p.apart.mbps = 1e-6; /* the first page comes, no other */
    ask_all(p.e, p.g, &got);
    same(&got, &p.want);
    assert_true(stats_of(p.e).n_prefill_lost >= 3);
    nothing_lost(&p);
    close_pair(&p);
}

static void cancels(int n)
{
    static struct pair p;
    const struct shape s = {.model = "qwen3_moe_mixed.gguf", .decode = "dp=2,ep=2"};
    open_pair(&p, &s);
    cancel_many(&p, n, 24);
    close_pair(&p);
}

TEST(engine_apart_loses_no_block_when_cancelled)
{
    const char *n = getenv("SLUICE_CANCELS");
    cancels(n ? atoi(n) : 20);
}

TEST(engine_apart_preempts)
{
    static struct pair p;
    static struct run got;
    struct shape s = {.model = "llama3.gguf"};
    open_pair(&p, &s);
    sl_engine_close(p.e);
    sl_engine_opts o = opts_of(&s);
    o.kv_tokens = 320; /* of one context and a bit */
    ASSERT_OK(sl_engine_open(p.m, &o, &p.e, &err));
    ASSERT_OK(sl_prefill_by(p.e, p.apart.link, 32, &err));
    for (int i = 0; i < 6; i++) {
        sl_drop_cache(p.e);
        ask_all(p.e, p.g, &got);
        same(&got, &p.want);
    }
    assert_true(stats_of(p.e).n_preempt > 0);
    nothing_lost(&p);
    close_pair(&p);
}

static void with_state(struct arch_cfg *c)
{
    for (int i = 1; i < c->n_layer; i += 2)
        c->layer[i].mixer = ARCH_SCAN;
}

TEST(engine_apart_refuses_by_name)
{
    sl_model *m, *other;
    sl_engine *e, *by, *q8;
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .acts = SL_ACTS_F32};
    const int32_t ids[] = {1, 2, 3};
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &m, &err));
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    if (!e->info.kv_hash) { /* another device was asked for */
        sl_engine_close(e);
        sl_model_close(m);
        skip();
    }
    ASSERT_OK(sl_engine_open(m, &o, &by, &err));
    o.kv = SL_KV_Q8;
    ASSERT_OK(sl_engine_open(m, &o, &q8, &err));
    ASSERT_STATUS(sl_prefill_by(e, q8, 0, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "--kv differ"));
    ASSERT_STATUS(sl_prefill_by(e, by, -1, &err), SL_REQUEST);
    ASSERT_OK(sl_prefill_by(e, by, 0, &err));
    ASSERT_STATUS(sl_prefill_by(e, by, 0, &err), SL_REQUEST);
    sl_request q = {.ids = ids, .n_ids = 3, .kv_from = 32};
    ASSERT_STATUS(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "kv_from: goes with on_kv"));
    q.on_kv = apart_page;
    q.kv_from = 5;
    ASSERT_STATUS(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "a multiple of 32"));
    q.kv_from = 0;
    q.n_ids = 1;
    ASSERT_STATUS(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    q.n_ids = 3;
    q.n = 2;
    ASSERT_STATUS(sl_submit(e, &q, NULL, &err), SL_REQUEST);
    sl_engine_close(q8);
    sl_engine_close(e);
    sl_engine_close(by);
    sl_model_close(m);
    ASSERT_OK(sl_model_open(tiny("llama3.gguf"), NULL, &other, &err));
    with_state(&other->cfg);
    other->edit = with_state;
    o.kv = SL_KV_AUTO;
    ASSERT_OK(sl_engine_open(other, &o, &e, &err));
    ASSERT_STATUS(sl_prefill_by(e, e, 0, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "layers with a state"));
    sl_engine_close(e);
    sl_model_close(other);
}
