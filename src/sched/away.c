/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose first positions somebody else computes: they have their sequence and their blocks
 * from the beginning, so that what comes has its place, and no rows until it is there. */
#include "sched/sched_internal.h"

void sched_hold(struct sched *s, int slot)
{
    struct sched_req *r = &s->req[slot];
    int n = s->opts.away ? s->opts.away(s->opts.user, slot) : 0;
    int32_t src, dst;
    if (n <= r->n_done) return;
    ASSERT(n < r->n_known && !s->pool->has_state && !s->pool->n_win);
    struct kv_seq *seq = &s->seat[r->seat].seq;
    if (kv_seq_grow(s->pool, seq, n - r->n_done, &src, &dst, NULL)) return; /* no room: piecewise */
    ASSERT(src < 0); /* it holds whole blocks of the tree */
    r->n_done = n;
    r->held = true;
}

void sched_release(struct sched *s, int slot, int n)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state == SCHED_RUNNING && r->held && n >= r->n_reused && n <= r->n_done);
    kv_seq_trim(s->pool, &s->seat[r->seat].seq, n);
    r->n_done = n;
    r->held = false;
}
