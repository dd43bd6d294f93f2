/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process: they read each other's columns where they lie. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/dist.h"
#include "os/os.h"

#define DEADLINE_MS 30000
#define SPIN_NS 50000          /* ranks that keep step arrive together */
#define SLICE_MS 20            /* a sleeper looks for failures so often */
#define ALONE_BYTES (64 << 10) /* copied by the rank's own thread */

/* A word that only rises, to wait on. */
struct event {
    _Alignas(64) atomic_uint word; /* release by who raises it; pairs with acquire in is_there */
    atomic_int n_sleep;             /* seq_cst, as in par: raiser and sleeper see each other */
};

/* A join as a rank sees it: what must be the same everywhere, and where its part lies. */
struct post {
    const float *x;
    int n_row, n;
};

struct line {
    struct event phase;  /* joins that this rank has come to */
    struct event done;   /* messages that it is through with */
    struct post post[2]; /* of the last two joins, by the last bit of their number */
};

struct team {
    int n;
    int64_t deadline_ns, spin_ns;
    struct event told; /* messages so far */
    const void *msg;   /* published by told */
    atomic_int failed; /* 0, 1 while why is written, 2 */
    sl_err why;
    struct line *line; /* [n] */
    struct dist *end;  /* [n] */
};

struct dist {
    struct team *t;
    int rank;
    unsigned phase, heard;
    struct dist_count count;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool is_there(struct event *e, unsigned goal)
{
    return (int)(atomic_load_explicit(&e->word, memory_order_acquire) - goal) >= 0;
}

static void event_raise(struct event *e)
{
    atomic_fetch_add_explicit(&e->word, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&e->n_sleep, memory_order_seq_cst) > 0) os_word_wake(&e->word);
}

static bool has_failed(struct team *t)
{
    return atomic_load_explicit(&t->failed, memory_order_acquire) != 0;
}

/* Wait until the word has risen to goal: true; false where the ranks have failed, or the time is
 * over (limit 0: there is none). */
static bool event_wait(struct team *t, struct event *e, unsigned goal, int64_t limit)
{
    for (int i = 0; i < 64; i++) {
        if (is_there(e, goal)) return true;
        relax();
    }
    int64_t t0 = clock_now_ns(), now = t0;
    while (now - t0 < t->spin_ns) {
        for (int i = 0; i < 32; i++) {
            if (is_there(e, goal)) return true;
            relax();
        }
        now = clock_now_ns();
    }
    atomic_fetch_add_explicit(&e->n_sleep, 1, memory_order_seq_cst);
    bool there = false;
    while (!there && !has_failed(t) && (limit == 0 || clock_now_ns() - t0 < limit)) {
        unsigned seen = atomic_load_explicit(&e->word, memory_order_seq_cst);
        there = (int)(seen - goal) >= 0;
        if (!there) os_word_wait(&e->word, seen, SLICE_MS);
    }
    atomic_fetch_sub_explicit(&e->n_sleep, 1, memory_order_relaxed);
    return there || is_there(e, goal);
}

/* ---- opening ---- */

sl_status dist_team_open(int n, const struct dist_opts *o, dist **out, sl_err *err)
{
    void *p = NULL, *line = NULL, *end = NULL;
    if (n < 2 || n > DIST_RANK_MAX)
        return SL_FAIL(err, REQUEST, "%d ranks: there may be 2 to %d", n, DIST_RANK_MAX);
    sl_status st = mem_alloc_array(MEM_MISC, 1, sizeof(struct team), &p, err);
    if (!st) st = mem_alloc_array(MEM_MISC, (size_t)n, sizeof(struct line), &line, err);
    if (!st) st = mem_alloc_array(MEM_MISC, (size_t)n, sizeof(struct dist), &end, err);
    if (st) {
        mem_free(line);
        mem_free(p);
        return st;
    }
    struct team *t = p;
    t->n = n;
    t->deadline_ns = (int64_t)(o->deadline_ms ? o->deadline_ms : DEADLINE_MS) * 1000000;
    t->spin_ns = o->crowded ? 0 : SPIN_NS;
    t->line = line;
    t->end = end;
    for (int i = 0; i < n; i++) {
        t->end[i].t = t;
        t->end[i].rank = i;
        out[i] = &t->end[i];
    }
    return SL_OK;
}

void dist_team_close(dist *any)
{
    if (!any) return;
    struct team *t = any->t;
    mem_free(t->line);
    mem_free(t->end);
    mem_free(t);
}

int dist_rank(const dist *d)
{
    return d->rank;
}

int dist_size(const dist *d)
{
    return d->t->n;
}

/* ---- failures ---- */

void dist_fail(dist *d, const sl_err *why)
{
    struct team *t = d->t;
    int none = 0;
    if (!atomic_compare_exchange_strong(&t->failed, &none, 1)) return;
    t->why = *why;
    atomic_store_explicit(&t->failed, 2, memory_order_release);
}

sl_status dist_status(const dist *d, sl_err *err)
{
    struct team *t = d->t;
    if (!has_failed(t)) return SL_OK;
    while (atomic_load_explicit(&t->failed, memory_order_acquire) != 2)
        relax();
    if (err) *err = t->why;
    return t->why.code;
}

static void late(dist *d, int rank, const char *what)
{
    sl_err why = {0};
    (void)SL_FAIL(&why, TIMEOUT, "rank %d gave no sign for %.1f s %s", rank,
                  (double)d->t->deadline_ns * 1e-9, what);
    dist_fail(d, &why);
}

/* ---- steps ---- */

void dist_tell(dist *d, const void *msg)
{
    d->t->msg = msg;
    event_raise(&d->t->told);
}

const void *dist_hear(dist *d)
{
    d->heard++;
    while (!event_wait(d->t, &d->t->told, d->heard, 0))
        if (has_failed(d->t)) os_word_wait(&d->t->told.word, d->heard - 1, SLICE_MS);
    return d->t->msg;
}

void dist_done(dist *d)
{
    event_raise(&d->t->line[d->rank].done);
}

sl_status dist_all_done(dist *d, sl_err *err)
{
    struct team *t = d->t;
    unsigned goal = atomic_load_explicit(&t->told.word, memory_order_relaxed);
    for (int r = 1; r < t->n; r++) {
        struct event *e = &t->line[r].done;
        while (!event_wait(t, e, goal, t->deadline_ns)) {
            if (!has_failed(t)) late(d, r, "after a step");
            if (is_there(e, goal)) break;
            return dist_status(d, err); /* it may be in the step for good */
        }
    }
    return dist_status(d, err);
}

/* ---- joins ---- */

static void post(dist *d, const float *x, int n_row, int n)
{
    struct line *l = &d->t->line[d->rank];
    l->post[++d->phase & 1] = (struct post){x, n_row, n};
    d->count.n_join++;
    event_raise(&l->phase);
}

static void misfit(dist *d, int r, const struct post *mine, const struct post *of)
{
    sl_err why = {0};
    (void)SL_FAIL(&why, INTERNAL, "join %u: rank %d has %d rows of %d, rank %d has %d of %d",
                  d->phase, d->rank, mine->n_row, mine->n, r, of->n_row, of->n);
    dist_fail(d, &why);
}

/* Wait for all at this join; false where the ranks have failed. */
static bool meet(dist *d)
{
    struct team *t = d->t;
    const struct post *mine = &t->line[d->rank].post[d->phase & 1];
    int64_t t0 = clock_now_ns();
    for (int r = 0; r < t->n; r++) {
        if (has_failed(t)) return false;
        if (!event_wait(t, &t->line[r].phase, d->phase, t->deadline_ns)) {
            if (!has_failed(t)) late(d, r, "in a step");
            return false;
        }
        const struct post *of = &t->line[r].post[d->phase & 1];
        if (of->n_row == mine->n_row && of->n == mine->n) continue;
        misfit(d, r, mine, of);
        return false;
    }
    d->count.wait_ns += clock_now_ns() - t0;
    return true;
}

struct copy_job {
    const dist *d;
    const struct dist_cols *c;
};

static void copy_rows(void *arg, int worker, int n_worker)
{
    const struct copy_job *j = arg;
    const struct dist_cols *c = j->c;
    const struct team *t = j->d->t;
    int64_t begin = (int64_t)c->n_row * worker / n_worker,
            end = (int64_t)c->n_row * (worker + 1) / n_worker, at = 0;
    for (int r = 0; r < t->n; r++) {
        const float *x = t->line[r].post[j->d->phase & 1].x;
        int64_t n = c->part[r];
        for (int64_t i = begin; i < end; i++)
            memcpy(c->y + i * c->n + at, x + i * n, (size_t)n * sizeof *x);
        at += n;
    }
}

void dist_cols(dist *d, const struct dist_cols *c)
{
    if (has_failed(d->t)) return;
    post(d, c->x, c->n_row, c->n);
    if (!c->y || !meet(d)) return;
    struct copy_job j = {d, c};
    uint64_t bytes = (uint64_t)c->n_row * (uint64_t)c->n * sizeof(float);
    if (c->run && bytes > ALONE_BYTES)
        c->run(c->user, copy_rows, &j);
    else
        copy_rows(&j, 0, 1);
    d->count.bytes += (uint64_t)c->n_row * (uint64_t)(c->n - c->part[d->rank]) * sizeof(float);
}

void dist_pick(dist *d, const struct dist_pick *p)
{
    struct team *t = d->t;
    if (has_failed(t)) return;
    post(d, p->x, p->n_row, p->n);
    if (!meet(d)) return;
    for (int i = 0; i < p->n_row; i++) {
        int64_t at = (int64_t)i * p->n;
        memcpy(p->y + at, t->line[p->of[i]].post[d->phase & 1].x + at,
               (size_t)p->n * sizeof(float));
        if (p->of[i] != d->rank) d->count.bytes += (uint64_t)p->n * sizeof(float);
    }
}

struct dist_count dist_counts(const dist *d)
{
    return d->count;
}
