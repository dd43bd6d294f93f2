/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose first positions somebody else computes: they have their sequence and their blocks
 * from the beginning, so that what comes has its place, and no rows until it is there. */
#include "sched/sched_internal.h"

/* With windows block by block, each of which sees what is before it no longer than one that is
 * computed: so no more places are asked for than there are. False, and nothing changed: no room. */
static bool grow(struct sched *s, struct kv_seq *seq, int n)
{
    int32_t src, dst;
    int end = seq->n_tok + n, piece = s->pool->n_win ? s->pool->blk_tok : n;
    if (kv_seq_need(s->pool, seq, n) > kv_pool_avail_to(s->pool, seq->who)) return false;
    while (seq->n_tok < end) {
        if (kv_seq_grow(s->pool, seq, BASE_MIN(piece, end - seq->n_tok), &src, &dst, NULL)) break;
        ASSERT(src < 0); /* it holds whole blocks of the tree */
        kv_seq_slide(s->pool, seq);
    }
    ASSERT(seq->n_tok == end);
    return true;
}

void sched_hold(struct sched *s, int slot)
{
    struct sched_req *r = &s->req[slot];
    int n = s->opts.away ? s->opts.away(s->opts.user, slot) : 0;
    if (n <= r->n_done) return;
    ASSERT(n < r->n_known && !s->pool->has_state);
    if (!grow(s, &s->seat[r->seat].seq, n - r->n_done)) return; /* then piecewise */
    r->n_done = n;
    r->held = true;
}

int sched_release(struct sched *s, int slot, int n)
{
    struct sched_req *r = &s->req[slot];
    struct kv_seq *seq = &s->seat[r->seat].seq;
    ASSERT(r->state == SCHED_RUNNING && r->held && n >= r->n_reused && n <= r->n_done);
    if (n < r->n_done) n = kv_win_before(s->pool, seq, n);
    kv_seq_trim(s->pool, seq, n);
    r->n_done = n;
    r->n_reused = BASE_MIN(r->n_reused, n);
    r->held = false;
    return n;
}
