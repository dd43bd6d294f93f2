/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts: tokens that somebody guesses will follow the known ones. They ride along in the row of a
 * request that decodes, when everything else of the step has its place: of what is left. */
#include "sched/sched_internal.h"

void sched_draft(struct sched *s, int slot, int n)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state == SCHED_RUNNING && n >= 0);
    bool may = sched_decodes(r) && r->n_known > r->n_prompt;
    n = BASE_MIN(BASE_MIN(n, SCHED_DRAFT_MAX), s->opts.n_ctx - r->n_known);
    r->n_offer = may ? n : 0;
}

int sched_draft_offers(const struct sched *s)
{
    int n = 0;
    for (int i = 0; i < s->n_active; i++)
        if (sched_is_mine(s, &s->req[s->active[i]])) n += s->req[s->active[i]].n_offer;
    return n;
}

/* Lengthen the row of slot. */
static void add_drafts(struct sched *s, int slot, int n)
{
    struct sched_req *r = &s->req[slot];
    struct sched_item *it = &s->plan.item[r->item];
    int32_t src, dst;
    sl_status st = kv_seq_grow(s->pool, &s->seat[r->seat].seq, n, &src, &dst, NULL);
    ASSERT(st == SL_OK && src < 0); /* there is room, and the row has copied a shared tail */
    r->n_draft = it->n_draft = n;
    r->n_done += n;
    if (s->opts.n_lane > 1) r->n_flight += n;
    it->n_tok += n;
    s->row_left -= n;
    s->plan.n_tok += n;
    s->plan.n_decode += n;
    s->plan.n_draft += n;
}

void sched_draft_plan(struct sched *s)
{
    struct sched_plan *p = &s->plan;
    for (int i = 0; i < s->n_active; i++) {
        struct sched_req *r = &s->req[s->active[i]];
        int n = r->n_offer, left = s->opts.n_chunk + s->opts.n_run_max - p->n_tok;
        if (!sched_is_mine(s, r)) continue;
        r->n_offer = 0;
        if (!n || r->item < 0 || !p->item[r->item].answer || p->n_preempt) continue;
        int64_t room = kv_seq_room(s->pool, &s->seat[r->seat].seq);
        if (s->pool->has_state) /* a snapshot is of the end of a row */
            n = BASE_MIN(n, sched_state_cut(s, r, r->n_done - 1) - r->n_done);
        n = (int)BASE_MIN((int64_t)BASE_MIN(n, BASE_MIN(left, s->row_left)), room);
        if (n > 0) add_drafts(s, s->active[i], n);
    }
}

void sched_accept(struct sched *s, int slot, int n_right)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state == SCHED_RUNNING && r->n_done == r->n_known + r->n_draft);
    ASSERT(n_right >= 0 && n_right <= r->n_draft && r->n_known + n_right < s->opts.n_ctx);
    kv_seq_trim(s->pool, &s->seat[r->seat].seq, r->n_known + n_right);
    s->owner[r->owner].served += (uint64_t)n_right;
    r->n_done = r->n_known + n_right;
    r->n_known = r->n_done + 1;
    r->n_draft = 0;
}
