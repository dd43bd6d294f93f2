/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent states: which snapshots are taken, and the copies between the states of sequences and
 * the snapshots. Copies that follow from a step's rows (snapshots, forks, rewinds) are decided
 * before those that follow from the next plan (admissions), so the next step makes them in that
 * order, and a snapshot's place may be given away as soon as somebody decided to copy it. */
#include <limits.h>

#include "sched/sched_internal.h"

void sched_state_copy(struct sched *s, int src, int dst)
{
    int n = 0;
    for (int i = 0; i < s->n_later; i++) /* what nobody will read need not be copied */
        if (dst >= s->opts.n_run_max || s->later[i].dst != dst) s->later[n++] = s->later[i];
    ASSERT(n < 2 * s->opts.n_run_max);
    s->later[n++] = (struct sched_copy){src, dst};
    s->n_later = n;
}

int sched_state_cut(const struct sched *s, const struct sched_req *r, int pos)
{
    const struct kv_pool *p = s->pool;
    if (!p->n_snap) return INT_MAX;
    int blk = p->blk_tok, step = s->opts.n_snap_tok ? s->opts.n_snap_tok : SCHED_SNAP_TOK;
    step = BASE_MAX(step / blk, 1) * blk;
    int at = (pos / step + 1) * step;
    int end = (r->n_prompt - 1) / blk * blk; /* of use to the same prompt and to what goes on */
    if (end > pos) at = BASE_MIN(at, end);
    if (r->branch > pos) at = BASE_MIN(at, r->branch);
    return at;
}

void sched_state_branch(struct sched_req *r, int at)
{
    if (at > r->n_done && (r->branch <= r->n_done || at < r->branch)) r->branch = at;
}

void sched_state_begin(struct sched *s, struct sched_req *r)
{
    struct sched_seat *seat = &s->seat[r->seat];
    if (!s->pool->has_state) return;
    seat->restore = seat->seq.n_tok ? seat->seq.snap : -1;
    r->branch = seat->seq.n_path > seat->seq.n_tok ? seat->seq.n_path : 0;
}

void sched_state_plan(struct sched *s)
{
    struct sched_plan *p = &s->plan;
    for (int i = 0; i < s->n_later; i++)
        p->copy[p->n_copy++] = s->later[i];
    s->n_later = 0;
    for (int i = 0; i < s->opts.n_run_max; i++) {
        struct sched_seat *seat = &s->seat[i];
        if (seat->restore >= 0)
            p->copy[p->n_copy++] = (struct sched_copy){SCHED_SNAP(s, seat->restore), i};
        seat->restore = -1;
    }
}

void sched_put(struct sched *s, int slot, const struct kv_path *path)
{
    struct sched_req *r = &s->req[slot];
    struct kv_seq *seq = &s->seat[r->seat].seq;
    int at = r->n_done;
    kv_cache_put(s->pool, path, seq);
    if (at == 0 || sched_state_cut(s, r, at - 1) != at) return;
    if (seq->n_put * s->pool->blk_tok != at) return; /* the tree was dropped */
    int32_t snap = kv_snap_take(s->pool, seq->blk[seq->n_put - 1]);
    if (snap >= 0) sched_state_copy(s, r->seat, SCHED_SNAP(s, snap));
}

int sched_rewind(struct sched *s, int slot, int n)
{
    struct sched_req *r = &s->req[slot];
    struct sched_seat *seat = &s->seat[r->seat];
    ASSERT(r->state == SCHED_RUNNING && n >= 0 && n <= r->n_done);
    if (n == r->n_done) return n;
    int32_t snap = -1;
    for (int to = -1; n > 0 && to != n;) { /* to where both can go on */
        to = n;
        n = kv_win_before(s->pool, &seat->seq, n);
        if (!s->pool->has_state) continue;
        n = kv_snap_before(s->pool, &seat->seq, n, &snap);
        if (n == 0) return -1;
    }
    if (snap >= 0) sched_state_copy(s, SCHED_SNAP(s, snap), r->seat);
    seat->restore = -1;
    kv_seq_trim(s->pool, &seat->seq, n);
    r->n_done = n;
    return n;
}

bool sched_state_ok(const struct sched *s)
{
    for (int i = 0; i < s->opts.n_run_max; i++) {
        const struct sched_seat *seat = &s->seat[i];
        if (seat->restore >= 0 &&
            (seat->req < 0 || seat->restore >= s->pool->n_snap || seat->seq.n_tok == 0))
            return false;
    }
    return s->n_later <= 2 * s->opts.n_run_max && s->plan.n_copy <= 3 * s->opts.n_run_max;
}
