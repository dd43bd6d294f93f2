/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process: they read each other's columns where they lie. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dist/dist.h"
#include "os/word.h"

#define DEADLINE_MS 30000
#define SPIN_NS 50000          /* ranks that keep step arrive together */
#define SLICE_MS 20            /* a sleeper looks for failures so often */
#define ALONE_BYTES (64 << 10) /* copied by the rank's own thread */

/* A join as a rank sees it: what must be the same everywhere, and where its part lies. */
struct post {
    const float *x;
    int n_row, n;
};

struct line {
    struct os_word phase;  /* joins that this rank has come to */
    struct os_word done;   /* messages that it is through with */
    struct post post[2]; /* of the last two joins, by the last bit of their number */
};

struct team {
    int n;
    int64_t deadline_ns, spin_ns;
    struct os_word told; /* messages so far */
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

static bool has_failed(struct team *t)
{
    return atomic_load_explicit(&t->failed, memory_order_acquire) != 0;
}

/* For a while without sleeping: is it there? */
static bool spin(const struct team *t, struct os_word *w, unsigned goal)
{
    int64_t now;
    return os_word_poll(w, goal, 64) || os_word_spin(w, goal, t->spin_ns, clock_now_ns(), &now);
}

/* Wait until the word has risen to goal: true; false where the ranks have failed, or the deadline
 * is over. */
static bool wait_for(struct team *t, struct os_word *w, unsigned goal)
{
    int64_t t0 = clock_now_ns();
    bool there = spin(t, w, goal);
    while (!there && !has_failed(t) && clock_now_ns() - t0 < t->deadline_ns)
        there = os_word_sleep(w, goal, SLICE_MS);
    return there;
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
        ; /* it is being written */
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
    os_word_raise(&d->t->told);
}

const void *dist_hear(dist *d)
{
    struct os_word *told = &d->t->told;
    d->heard++;
    if (!spin(d->t, told, d->heard)) (void)os_word_sleep(told, d->heard, -1);
    return d->t->msg;
}

void dist_done(dist *d)
{
    os_word_raise(&d->t->line[d->rank].done);
}

sl_status dist_all_done(dist *d, sl_err *err)
{
    struct team *t = d->t;
    unsigned goal = atomic_load_explicit(&t->told.n, memory_order_relaxed);
    for (int r = 1; r < t->n; r++) {
        if (wait_for(t, &t->line[r].done, goal)) continue;
        if (!has_failed(t)) late(d, r, "after a step");
        return dist_status(d, err); /* it may be in the step for good */
    }
    return dist_status(d, err);
}

/* ---- joins ---- */

static void post(dist *d, const float *x, int n_row, int n)
{
    struct line *l = &d->t->line[d->rank];
    l->post[++d->phase & 1] = (struct post){x, n_row, n};
    d->count.n_join++;
    os_word_raise(&l->phase);
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
        if (!wait_for(t, &t->line[r].phase, d->phase)) {
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
