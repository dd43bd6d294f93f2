/* SPDX-License-Identifier: Apache-2.0 */
/* The worker team: the only threads of computation. Fork-join regions; the caller is worker 0.
 *
 * Workers are pinned to the CPUs they are given, spin for a while after a region and then sleep on
 * a futex. A team of 1 has no threads.
 */
#ifndef PAR_PAR_H
#define PAR_PAR_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct par_team par_team;

struct par_opts {
    int n_worker;    /* 0 = physical cores in the process's CPU set, cut to the cgroup's quota */
    int64_t spin_ns; /* how long an idle worker spins; 0 = default; less when workers exceed CPUs */
    /* What a worker does first when it waits: a little at a time (well below a microsecond); 0 when
     * there is nothing left. NULL: it waits. */
    int (*on_wait)(void *arg, int worker);
    void *on_wait_arg;
    int rank, n_rank; /* this team is one of n_rank of the same size that share the CPUs, and takes
                         the rank-th part of them; its caller is pinned too unless rank is 0.
                         n_rank 0 = the only one */
    int no_pin;
    int no_solo; /* always use every worker (tests); else regions may run on the caller alone, see
                    par_run */
};

/* Errors: NOMEM, IO (a thread cannot be made). Close with par_close (NULL is legal). */
sl_status par_open(const struct par_opts *opts, par_team **out, sl_err *err) BASE_MUST_USE;
void par_close(par_team *t);
int par_size(const par_team *t);

/* Run fn(arg, worker, n_worker) once on every worker and wait for all. What workers wrote is
 * visible to the caller afterwards. Not reentrant. While other programs hold our CPUs a region may
 * run as fn(arg, 0, 1) on the caller alone: split by the n_worker that fn is given.
 * Threads: the thread that opened the team (or, one at a time, another). */
void par_run(par_team *t, void (*fn)(void *arg, int worker, int n_worker), void *arg);

/* Inside a region: all workers wait for each other (a barrier; what was written before is visible
 * after). */
void par_barrier(par_team *t);

/* A thread that runs fn(arg), and may open and call a team of its own. Errors: NOMEM, IO. Close
 * waits until fn has returned; NULL is legal. */
typedef struct par_side par_side;
sl_status par_side_open(void (*fn)(void *arg), void *arg, par_side **out,
                        sl_err *err) BASE_MUST_USE;
void par_side_close(par_side *s);

/* A shared counter inside a region: hands out [*begin, *end) in pieces of step until n is reached;
 * false when nothing is left. Reset it with atomic_store before the region. Results must not depend
 * on which worker takes which piece. */
struct par_counter {
    _Alignas(64) atomic_int next;
};
static inline int par_take(struct par_counter *c, int n, int step, int *begin, int *end)
{
    int b = atomic_fetch_add_explicit(&c->next, step, memory_order_relaxed);
    if (b >= n) return 0;
    *begin = b;
    *end = b + step < n ? b + step : n;
    return 1;
}

/* Static ranges with a steal tail: worker w works through its own range from the front and then
 * helps the others. Pieces are large at first (three quarters of what is left, half for helpers),
 * within [min, max], so that the cost of starting one is paid few times. Set before the region, one
 * struct par_range per worker. As above, results must not depend on which worker takes a piece. */
struct par_range {
    _Alignas(64) atomic_int next;
    int end;
};
static inline void par_range_set(struct par_range *r, int begin, int end)
{
    atomic_store_explicit(&r->next, begin, memory_order_relaxed); /* published by par_run */
    r->end = end;
}
/* The least and the most items of a piece. */
struct par_piece {
    int min, max;
};
static inline int par_range_take(struct par_range *r, int worker, int n_worker, struct par_piece of,
                                 int *begin, int *end)
{
    for (int i = 0; i < n_worker; i++) {
        struct par_range *v = &r[worker + i < n_worker ? worker + i : worker + i - n_worker];
        int left = v->end - atomic_load_explicit(&v->next, memory_order_relaxed);
        if (left <= 0) continue;
        int step = i == 0 ? left - left / 4 : left / 2;
        step = step < of.min ? of.min : step > of.max ? of.max : step;
        int b = atomic_fetch_add_explicit(&v->next, step, memory_order_relaxed);
        if (b >= v->end) continue;
        *begin = b;
        *end = step < v->end - b ? b + step : v->end;
        return 1;
    }
    return 0;
}

/* The static part of a split: item range of worker w of n_w over n items. */
static inline void par_split(int64_t n, int w, int n_w, int64_t *begin, int64_t *end)
{
    *begin = n * w / n_w;
    *end = n * (w + 1) / n_w;
}

#endif
