/* SPDX-License-Identifier: Apache-2.0 */
/* The policy in one place. Lists are short arrays in order of rank; every operation is linear in
 * the requests, and nothing allocates after init. */
#include "sched/sched.h"

#include <string.h>

#include "sched/sched_internal.h"

/* With windows: for all that sequences can see at a time. */
static bool has_places(const struct sched_opts *o, const struct kv_pool *p)
{
    int most = p->n_win ? kv_win_most(p->n_window, p->blk_tok, o->n_run_max, sched_tok_max(o)) : 0;
    return p->n_win >= BASE_MIN(most, p->n_blk);
}

sl_status sched_init(struct sched *s, const struct sched_opts *opts, struct kv_pool *pool,
                     sl_err *err)
{
    sl_status st = SL_OK;
    void *p = NULL;
    memset(s, 0, sizeof *s);
    ASSERT(opts->n_run_max >= 1 && opts->n_req_max >= opts->n_run_max && opts->n_chunk >= 1);
    ASSERT(opts->n_ctx >= 1 && (int64_t)opts->n_ctx <= (int64_t)pool->n_blk * pool->blk_tok);
    ASSERT(opts->n_row_max > opts->n_run_max);
    ASSERT(has_places(opts, pool));
    s->opts = *opts;
    s->pool = pool;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_req_max, sizeof *s->req, &p, err));
    s->req = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_run_max, sizeof *s->seat, &p, err));
    s->seat = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_req_max, sizeof *s->wait, &p, err));
    s->wait = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_run_max, sizeof *s->active, &p, err));
    s->active = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_run_max, sizeof *s->plan.item, &p, err));
    s->plan.item = p;
    size_t n_copy = (size_t)opts->n_run_max;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, 3 * n_copy, sizeof *s->plan.copy, &p, err));
    s->plan.copy = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, 2 * n_copy, sizeof *s->later, &p, err));
    s->later = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, SCHED_OWNER_MAX, sizeof *s->owner, &p, err));
    s->owner = p;
    int64_t n_tok =
        BASE_MIN((int64_t)opts->n_run_max * (1 + SCHED_DRAFT_MAX), (int64_t)sched_tok_max(opts));
    n_tok *= BASE_MAX(opts->n_sched, 1);
    SL_TRY_OUT(sched_cost_init(&s->cost, (int)n_tok, err));
    int cap = (opts->n_ctx + pool->blk_tok - 1) / pool->blk_tok;
    for (int i = 0; i < opts->n_run_max; i++) {
        s->seat[i].req = s->seat[i].restore = -1;
        SL_TRY_OUT(kv_seq_init(&s->seat[i].seq, cap, err));
    }
out:
    if (st) sched_fini(s);
    return st;
}

void sched_fini(struct sched *s)
{
    for (int i = 0; s->seat && i < s->opts.n_run_max; i++) {
        if (s->seat[i].seq.blk) kv_seq_clear(s->pool, &s->seat[i].seq);
        kv_seq_fini(&s->seat[i].seq);
    }
    mem_free(s->req);
    mem_free(s->seat);
    mem_free(s->wait);
    mem_free(s->active);
    mem_free(s->plan.item);
    mem_free(s->plan.copy);
    mem_free(s->later);
    mem_free(s->owner);
    sched_cost_fini(&s->cost);
    memset(s, 0, sizeof *s);
}

/* ---- lists ---- */

static bool ranks_before(const struct sched_req *a, const struct sched_req *b)
{
    return a->rank_ns < b->rank_ns || (a->rank_ns == b->rank_ns && a->order < b->order);
}

static void list_remove(int *list, int *n, int slot)
{
    int i = 0;
    while (i < *n && list[i] != slot)
        i++;
    ASSERT(i < *n);
    memmove(list + i, list + i + 1, (size_t)(*n - i - 1) * sizeof *list);
    --*n;
}

static void list_insert(const struct sched *s, int *list, int *n, int slot)
{
    int i = *n;
    while (i > 0 && ranks_before(&s->req[slot], &s->req[list[i - 1]]))
        i--;
    memmove(list + i + 1, list + i, (size_t)(*n - i) * sizeof *list);
    list[i] = slot;
    ++*n;
}

/* ---- requests ---- */

void sched_submit(struct sched *s, int slot, const struct sched_new *q)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(q->n_prompt >= 1 && q->n_given >= 0 && q->n_prompt + q->n_given <= s->opts.n_ctx);
    ASSERT(slot >= 0 && slot < s->opts.n_req_max && r->state == SCHED_FREE);
    *r = (struct sched_req){.state = SCHED_WAITING,
                            .all_rows = q->all_rows,
                            .order = s->n_order++,
                            .rank_ns = q->now_ns - q->priority * SCHED_AGE_NS,
                            .deadline_ns = q->deadline_ns,
                            .priority = q->priority,
                            .owner = sched_owner_of(s, q->owner),
                            .n_prompt = q->n_prompt,
                            .n_known = q->n_prompt + q->n_given,
                            .seat = -1,
                            .item = -1,
                            .after = -1};
    sched_owner_begin(s, r->owner, q->now_ns);
    if (q->fork_of >= 0) {
        r->fork = true;
        r->after = q->fork_of;
        r->after_tok = q->n_prompt;
        r->after_order = s->req[q->fork_of].order;
    }
    list_insert(s, s->wait, &s->n_wait, slot);
}

static void leave_run(struct sched *s, struct sched_req *r)
{
    kv_seq_clear(s->pool, &s->seat[r->seat].seq);
    s->seat[r->seat].req = s->seat[r->seat].restore = -1;
    s->owner[r->owner].n_run--;
    r->seat = -1;
}

static void preempt(struct sched *s, int slot)
{
    struct sched_req *r = &s->req[slot];
    leave_run(s, r);
    list_remove(s->active, &s->n_active, slot);
    r->state = SCHED_WAITING;
    r->n_done = r->n_offer = r->n_draft = r->n_flight = 0;
    r->held = false;
    r->n_preempt++;
    list_insert(s, s->wait, &s->n_wait, slot);
    s->plan.n_preempt++;
    s->n_preempt++;
}

void sched_finish(struct sched *s, int slot)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state != SCHED_FREE);
    if (r->state == SCHED_WAITING) {
        list_remove(s->wait, &s->n_wait, slot);
    } else {
        list_remove(s->active, &s->n_active, slot);
        leave_run(s, r);
    }
    sched_owner_end(s, r->owner);
    r->state = SCHED_FREE;
}

static int free_seat(const struct sched *s)
{
    for (int i = 0; i < s->opts.n_run_max; i++)
        if (s->seat[i].req < 0) return i;
    return -1;
}

static void start(struct sched *s, int slot, int seat)
{
    struct sched_req *r = &s->req[slot];
    r->state = SCHED_RUNNING;
    r->seat = seat;
    r->n_done = r->n_reused = s->seat[seat].seq.n_tok;
    r->after = -1;
    r->lane = s->lane;
    r->start = ++s->n_start;
    s->seat[seat].req = slot;
    s->owner[r->owner].n_run++;
    list_remove(s->wait, &s->n_wait, slot);
    list_insert(s, s->active, &s->n_active, slot);
}

bool sched_fork(struct sched *s, int from, int slot)
{
    const struct sched_req *f = &s->req[from];
    const struct sched_req *r = &s->req[slot];
    ASSERT(f->state == SCHED_RUNNING && r->state == SCHED_WAITING);
    ASSERT(f->n_done == r->n_prompt && r->n_known == r->n_prompt);
    int seat = free_seat(s);
    if (seat < 0) return false;
    s->seat[seat].seq.who = (struct kv_who){.owner = r->owner};
    sl_status st = kv_seq_fork(s->pool, &s->seat[f->seat].seq, &s->seat[seat].seq, NULL);
    ASSERT(st == SL_OK); /* all sequences are of one capacity */
    if (s->pool->has_state) sched_state_copy(s, f->seat, seat);
    int lane = sched_lane_least(s);
    start(s, slot, seat);
    s->req[slot].lane = lane;
    return true;
}

int sched_expired(const struct sched *s, int64_t now_ns)
{
    for (int i = 0; i < s->n_active + s->n_wait; i++) {
        int slot = i < s->n_active ? s->active[i] : s->wait[i - s->n_active];
        if (s->req[slot].deadline_ns && s->req[slot].deadline_ns <= now_ns) return slot;
    }
    return -1;
}

/* ---- rows ---- */

/* The last in rank after slot of the owners that hold more than their share of the blocks; -1 =
 * none. */
static int over_share(const struct sched *s, int slot)
{
    int share = sched_share_blk(s);
    if (s->n_owner_live < 2) return -1;
    for (int i = s->n_active - 1; i >= 0 && s->active[i] != slot; i--)
        if (sched_owner_blk(s, s->req[s->active[i]].owner) > share) return s->active[i];
    return -1;
}

/* Blocks for n_tok more tokens of slot, from running requests that rank after it: of owners over
 * their share first. False when there are not enough even so, or when slot itself is over its
 * share. The first in rank gets all that there is. */
static bool make_room(struct sched *s, int slot, int n_tok)
{
    const struct sched_req *r = &s->req[slot];
    struct kv_seq *seq = &s->seat[r->seat].seq;
    bool first = slot == s->active[0];
    while (kv_seq_need(s->pool, seq, n_tok) > kv_pool_avail_to(s->pool, seq->who)) {
        int victim = over_share(s, slot);
        if (victim < 0 && first && !seq->who.all) {
            seq->who.all = true;
            continue;
        }
        if (victim < 0 && !first && s->n_owner_live > 1 &&
            sched_owner_blk(s, r->owner) > sched_share_blk(s))
            return false;
        if (victim < 0) victim = s->active[s->n_active - 1];
        if (victim == slot) return false;
        preempt(s, victim);
    }
    return true;
}

/* The most of n tokens for which there are blocks. */
static int fit(const struct sched *s, const struct kv_seq *seq, int n)
{
    return (int)BASE_MIN((int64_t)n, kv_seq_room(s->pool, seq));
}

/* With n_done positions: is the last token all that is left to compute? */
static bool lacks_one(const struct sched_req *r, int n_done)
{
    return !r->held && r->n_known - n_done == 1 && n_done > 0;
}

bool sched_decodes(const struct sched_req *r)
{
    return lacks_one(r, r->n_done);
}

bool sched_answers(const struct sched_req *r)
{
    return lacks_one(r, r->n_done - r->n_flight);
}

/* Append a row, or lengthen the one that the request has in this step. */
static void add_row(struct sched *s, int slot, int n_tok)
{
    struct sched_req *r = &s->req[slot];
    int32_t src, dst;
    if (n_tok <= 0) return;
    struct kv_seq *seq = &s->seat[r->seat].seq;
    sl_status st = kv_seq_grow(s->pool, seq, n_tok, &src, &dst, NULL);
    ASSERT(st == SL_OK); /* make_room or fit was asked first */
    if (r->item < 0) {
        r->item = s->plan.n_item++;
        s->plan.item[r->item] =
            (struct sched_item){.req = slot,
                                .seat = r->seat,
                                .start = r->start,
                                .pos0 = r->n_done,
                                .copy_src = src,
                                .copy_dst = dst,
                                .win_src = seq->win_src,
                                .win_dst = seq->win_dst,
                                .answer = sched_decodes(r),
                                .all_rows = r->all_rows && r->n_done < r->n_prompt};
        if (r->n_done >= r->n_prompt) s->plan.n_decode += n_tok;
    } else {
        ASSERT(src < 0);
    }
    struct sched_item *it = &s->plan.item[r->item];
    it->n_tok += n_tok;
    r->n_done += n_tok;
    if (s->opts.n_lane > 1) r->n_flight += n_tok;
    it->sample = r->n_done == r->n_known;
    if (it->all_rows) s->row_left -= n_tok;
    s->plan.n_tok += n_tok;
    if (!it->answer) s->plan.n_spent += n_tok;
    if (!it->answer && !sched_owner_light(s, r->owner)) s->n_heavy += n_tok;
    s->owner[r->owner].served += (uint64_t)n_tok;
}

/* Tokens that a prompt may compute of budget. */
static int wish(const struct sched *s, const struct sched_req *r, int budget)
{
    int n = r->held ? 0 : BASE_MIN(r->n_known - r->n_done, budget);
    n = BASE_MIN(n, sched_owner_limit(s, r->owner));
    n = BASE_MIN(n, sched_state_cut(s, r, r->item >= 0 ? s->plan.item[r->item].pos0 : r->n_done) -
                        r->n_done);
    bool rows =
        r->item >= 0 ? s->plan.item[r->item].all_rows : r->all_rows && r->n_done < r->n_prompt;
    return rows ? BASE_MIN(n, s->row_left) : n;
}

/* ---- admission ---- */

/* Wait no longer for a request that has what was waited for, or will not have it soon. */
static void release_followers(struct sched *s)
{
    for (int i = 0; i < s->n_wait; i++) {
        struct sched_req *r = &s->req[s->wait[i]];
        if (r->after < 0) continue;
        const struct sched_req *a = &s->req[r->after];
        bool gone = a->state == SCHED_FREE || a->order != r->after_order ||
                    (!r->fork && a->state != SCHED_RUNNING);
        if (gone || (!a->held && a->n_done - a->n_flight >= r->after_tok)) r->after = -1;
    }
}

/* Who is admitted next, -1 = nobody: of the priority whose longest waiting request ranks first, and
 * of the owner there that was served least, one that was preempted, else the first. */
static int next_waiting(const struct sched *s)
{
    int best = -1;
    for (int i = 0; i < s->n_wait; i++) {
        const struct sched_req *r = &s->req[s->wait[i]], *b = best < 0 ? NULL : &s->req[best];
        if (r->after >= 0 || (b && r->priority != b->priority)) continue;
        if (!b || (r->owner == b->owner ? r->n_preempt && !b->n_preempt
                                        : sched_owner_before(s, r->owner, b->owner)))
            best = s->wait[i];
    }
    return best;
}

/* May the owner of a newcomer that needs n_blk blocks have one more sequence by right? */
static bool has_claim(const struct sched *s, const struct sched_req *r, int n_blk)
{
    return s->n_owner_live > 1 && s->owner[r->owner].n_run < sched_share_run(s) &&
           sched_owner_blk(s, r->owner) + n_blk <= sched_share_blk(s);
}

/* Does a running request yield to a newcomer that lacks a sequence (n_blk 0) or blocks? One of a
 * lower priority does; so does one of an owner over its share, where the newcomer's is below. */
static bool yields(const struct sched *s, const struct sched_req *v, const struct sched_req *r,
                   int n_blk)
{
    if (v->priority != r->priority) return v->priority < r->priority;
    if (s->due < 0 || r != &s->req[s->due] || v->owner == r->owner || !has_claim(s, r, n_blk))
        return false;
    return n_blk ? sched_owner_blk(s, v->owner) > sched_share_blk(s)
                 : s->owner[v->owner].n_run > sched_share_run(s);
}

/* Take a sequence and blocks from whoever has the lowest priority of those that yield to the
 * newcomer: the last in rank of them. */
static bool displace(struct sched *s, int slot, int n_blk)
{
    const struct sched_req *r = &s->req[slot];
    int victim = -1;
    for (int i = 0; i < s->n_active; i++) {
        const struct sched_req *v = &s->req[s->active[i]];
        bool first = i == 0 && ranks_before(v, r); /* always finishes */
        if (yields(s, v, r, n_blk) && !first &&
            (victim < 0 || v->priority <= s->req[victim].priority))
            victim = s->active[i];
    }
    if (victim < 0) return false;
    preempt(s, victim);
    return true;
}

/* Can the request begin? Room for all that it knows must be there, and one more block for everyone
 * who runs, so that admission does not cause preemption at once. take: from lower priorities. */
static bool admit(struct sched *s, int slot, bool take)
{
    struct sched_req *r = &s->req[slot];
    struct sched_match m = {.after = -1};
    int seat = free_seat(s);
    while (seat < 0) {
        if (!take || !displace(s, slot, 0)) return false;
        seat = free_seat(s);
    }
    struct kv_seq *seq = &s->seat[seat].seq;
    seq->who = (struct kv_who){.owner = r->owner};
    if (s->opts.match) s->opts.match(s->opts.user, slot, seq, &m);
    ASSERT(seq->n_tok < r->n_known);
    if (m.after >= 0) {
        kv_seq_clear(s->pool, seq);
        r->after = m.after;
        r->after_tok = m.after_tok;
        r->after_order = s->req[m.after].order;
        r->fork = false;
        sched_state_branch(&s->req[m.after], m.after_tok);
        return true;
    }
    int need = kv_seq_need(s->pool, seq, r->n_known - seq->n_tok);
    while (need + s->n_active > kv_pool_avail_to(s->pool, seq->who)) {
        if (s->n_active == 0) break; /* alone: the pool holds n_ctx tokens */
        if (take && displace(s, slot, BASE_MAX(need, 1))) continue;
        kv_seq_clear(s->pool, seq);
        return false;
    }
    if (!r->n_preempt) sched_owner_piece(s, r->owner, r->n_known - seq->n_tok);
    s->n_query_tok += (uint64_t)r->n_known;
    s->n_hit_tok += (uint64_t)seq->n_tok;
    start(s, slot, seat);
    sched_state_begin(s, r);
    sched_hold(s, slot);
    return true;
}

/* Is the owner's next prompt due, for it has none under way and less than its share? */
static bool is_due(const struct sched *s, int slot)
{
    const struct sched_req *r = &s->req[slot];
    if (!has_claim(s, r, 0)) return false;
    for (int i = 0; i < s->n_active; i++) {
        const struct sched_req *o = &s->req[s->active[i]];
        if (o->owner == r->owner && !sched_answers(o)) return false;
    }
    return true;
}

/* Before any row is planned: newcomers of a higher priority than one that runs, or of owners
 * below their share. */
static void admit_urgent(struct sched *s)
{
    int slot;
    s->due = -1;
    while ((slot = next_waiting(s)) >= 0) {
        bool over = s->due < 0 && is_due(s, slot);
        if (over) s->due = slot; /* one in a step: what yields to it does not come back at once */
        for (int i = 0; i < s->n_active && !over; i++)
            over = s->req[s->active[i]].priority < s->req[slot].priority;
        if (!over || !admit(s, slot, true)) return; /* whatever lane's turn it is */
    }
}

/* ---- the step ---- */

/* Prompts there are to share a step's budget: running ones, and those for whom a sequence is free.
 * Returns how many sequences decode. */
static int count_prompts(const struct sched *s, struct sched_cost_want *w)
{
    int wait = 0, n_decode = 0;
    *w = (struct sched_cost_want){.n_max = s->opts.n_chunk};
    for (int i = 0; i < s->n_active; i++) {
        const struct sched_req *r = &s->req[s->active[i]];
        if (!sched_is_mine(s, r)) continue;
        if (sched_decodes(r)) {
            n_decode++;
            continue;
        }
        if (r->held || r->n_done == r->n_known) continue; /* nothing to compute now */
        w->light |= sched_owner_light(s, r->owner);
        if (w->n_wait++ == 0) w->depth = r->n_done;
        w->end = BASE_MAX(w->end, r->n_known);
    }
    bool room = sched_lane_room(s);
    for (int i = 0; i < s->n_wait && room && wait < s->opts.n_run_max - s->n_active; i++) {
        const struct sched_req *r = &s->req[s->wait[i]];
        if (r->after >= 0) continue;
        wait++;
        w->end = BASE_MAX(w->end, r->n_known);
    }
    w->n_wait += wait;
    return n_decode;
}

/* The first in rank: it takes blocks from all others if it must. A prompt leaves half of the budget
 * to others. */
static void plan_first(struct sched *s, int budget, bool others)
{
    int slot = s->active[0];
    const struct sched_req *r = &s->req[slot];
    for (int i = 1; i < s->n_active; i++)
        s->seat[s->req[s->active[i]].seat].seq.who.all = false;
    int share = others ? (budget + 1) / 2 : budget;
    int want = sched_decodes(r) ? 1 : wish(s, r, share);
    if (want <= 0) return; /* a step to measure */
    bool room = make_room(s, slot, BASE_MIN(want, s->pool->blk_tok)) || make_room(s, slot, 1);
    ASSERT(room); /* alone it has the whole pool; less a copy of the tail that it went back to */
    add_row(s, slot, fit(s, &s->seat[r->seat].seq, want));
}

/* Answers: they wait for nobody. A preemption shortens the list after i only, so planned rows
 * stay.
 */
static void plan_answers(struct sched *s)
{
    for (int i = 1; i < s->n_active; i++) {
        int slot = s->active[i];
        if (!sched_is_mine(s, &s->req[slot]) || !sched_decodes(&s->req[slot])) continue;
        if (make_room(s, slot, 1))
            add_row(s, slot, 1);
        else
            preempt(s, s->active[i--]);
    }
}

/* The running prompt without a row that has least to do, of those that may have n more and of the
 * owner that was served least; -1 = none. */
static int shortest_prompt(const struct sched *s, int n)
{
    int best = -1, least = 0;
    for (int i = 1; i < s->n_active; i++) {
        const struct sched_req *r = &s->req[s->active[i]];
        int left = r->n_known - r->n_done;
        if (!sched_is_mine(s, r) || r->item >= 0 || wish(s, r, n) <= 0) continue;
        if (best >= 0 &&
            (r->owner == s->req[best].owner ? left >= least
                                            : !sched_owner_before(s, r->owner, s->req[best].owner)))
            continue;
        best = s->active[i];
        least = left;
    }
    return best;
}

/* Prompts, and answers that are computed again, with blocks that are there: the first was served.
 */
static void plan_prompts(struct sched *s, int budget)
{
    int slot;
    while (s->plan.n_spent < budget && (slot = shortest_prompt(s, budget - s->plan.n_spent)) >= 0) {
        const struct sched_req *r = &s->req[slot];
        int n = fit(s, &s->seat[r->seat].seq, wish(s, r, budget - s->plan.n_spent));
        if (n == 0) break;
        add_row(s, slot, n);
    }
    while (s->n_wait && s->plan.n_spent < budget && s->plan.n_preempt == 0 && sched_lane_room(s)) {
        slot = next_waiting(s);
        if (slot < 0 || wish(s, &s->req[slot], budget - s->plan.n_spent) <= 0) break;
        if (!admit(s, slot, false)) break;
        const struct sched_req *r = &s->req[slot];
        if (r->state != SCHED_RUNNING) continue; /* it waits for a prompt like its own */
        add_row(s, slot, fit(s, &s->seat[r->seat].seq, wish(s, r, budget - s->plan.n_spent)));
    }
    if (s->n_active &&
        s->plan.n_spent < budget) { /* what is left is the first's, if it is a prompt */
        slot = s->active[0];
        const struct sched_req *r = &s->req[slot];
        if (sched_is_mine(s, r) && r->item >= 0 && r->n_done < r->n_known)
            add_row(s, slot, fit(s, &s->seat[r->seat].seq, wish(s, r, budget - s->plan.n_spent)));
    }
}

void sched_beside(struct sched *s, const struct sched_beside *b)
{
    s->beside = *b;
}

/* Tokens for this one's prompts beside n_decode sequences of its own that decode, and those of
 * others. */
static int budget_of(struct sched *s, int n_decode, const struct sched_cost_want *own)
{
    const struct sched_beside *b = &s->beside;
    struct sched_cost_want w = *own;
    if (!own->n_wait || n_decode + b->n_decode == 0) return own->n_max;
    w.n_wait += b->n_wait;
    w.n_max *= 1 + b->n_with;
    int n = sched_cost_budget(&s->cost, n_decode + b->n_decode, &w);
    int64_t ours = ((int64_t)n * own->n_wait + w.n_wait - 1) / w.n_wait;
    return (int)BASE_MIN(ours, own->n_max);
}

const struct sched_plan *sched_step(struct sched *s)
{
    return sched_step_lane(s, 0);
}

const struct sched_plan *sched_step_lane(struct sched *s, int lane)
{
    struct sched_plan *p = &s->plan;
    struct sched_cost_want want;
    s->n_step++;
    s->lane = lane;
    sched_lane_even(s);
    s->row_left = s->opts.n_row_max - s->opts.n_run_max;
    p->n_item = p->n_copy = p->n_tok = p->n_decode = p->n_preempt = p->n_spent = p->n_draft = 0;
    release_followers(s);
    for (int i = 0; i < s->n_active; i++) {
        struct sched_req *r = &s->req[s->active[i]];
        r->item = -1;
        if (sched_is_mine(s, r)) kv_seq_slide(s->pool, &s->seat[r->seat].seq);
    }
    for (int i = 0; i < s->n_wait; i++)
        s->req[s->wait[i]].item = -1;
    admit_urgent(s);
    int n_decode = count_prompts(s, &want);
    want.n_draft = sched_draft_offers(s);
    sched_owner_step(s, want.light);
    int budget = budget_of(s, n_decode, &want);
    if (budget == 0 && s->measured) /* never twice: the first in rank advances */
        budget = BASE_MIN(SCHED_MIX_FIRST, s->opts.n_chunk);
    s->measured = budget == 0;
    if (s->n_active && sched_is_mine(s, &s->req[s->active[0]]))
        plan_first(s, budget, want.n_wait > 1);
    plan_answers(s);
    plan_prompts(s, budget);
    sched_draft_plan(s);
    if (p->n_item) sched_state_plan(s);
    return p;
}

struct sched_planned sched_planned(const struct sched *s)
{
    const struct sched_plan *p = &s->plan;
    struct sched_planned n = {0};
    for (int i = 0; i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        if (it->answer) n.n_decode += it->n_tok;
        if (!it->answer) n.depth += (int64_t)it->n_tok * it->pos0;
    }
    n.n_prompt = p->n_tok - n.n_decode;
    return n;
}

void sched_observe_all(struct sched *s, const struct sched_planned *all, int64_t ns)
{
    int n = all->n_prompt;
    sched_owner_used(s, ns, sched_cost_decode(&s->cost, all->n_decode));
    if (n || all->n_decode)
        sched_cost_observe(&s->cost, all->n_decode, n, n ? (int)(all->depth / n) : 0, ns);
}

void sched_observe(struct sched *s, int64_t ns)
{
    struct sched_planned all = sched_planned(s);
    sched_observe_all(s, &all, ns);
}

/* ---- checking ---- */

static int check_req(const struct sched *s, int i)
{
    const struct sched_req *r = &s->req[i];
    if (r->state == SCHED_WAITING) return r->seat != -1 || r->n_done != 0 ? 1 : 0;
    if (r->seat < 0 || s->seat[r->seat].req != i || r->after >= 0) return 2;
    return s->seat[r->seat].seq.n_tok != r->n_done || r->n_done > r->n_known + r->n_draft ? 3 : 0;
}

int sched_check(const struct sched *s)
{
    int n_run = 0, n_wait = 0, n_live = 0, n_seq = 0;
    for (int i = 0; i < s->opts.n_req_max; i++) {
        if (s->req[i].state == SCHED_FREE) continue;
        int broken = check_req(s, i);
        if (broken) return broken;
        n_wait += s->req[i].state == SCHED_WAITING;
        n_run += s->req[i].state == SCHED_RUNNING;
    }
    if (n_run != s->n_active || n_wait != s->n_wait) return 4;
    for (int i = 1; i < s->n_active; i++)
        if (!ranks_before(&s->req[s->active[i - 1]], &s->req[s->active[i]])) return 5;
    for (int i = 1; i < s->n_wait; i++)
        if (!ranks_before(&s->req[s->wait[i - 1]], &s->req[s->wait[i]])) return 5;
    for (int i = 0; i < s->opts.n_run_max; i++)
        if (s->seat[i].req < 0 && s->seat[i].seq.n_blk != 0) return 6;
    if (!sched_state_ok(s)) return 8;
    for (int i = 0; i < s->n_owner; i++)
        n_live += s->owner[i].n_live, n_seq += s->owner[i].n_run;
    return n_live == n_run + n_wait && n_seq == n_run ? 0 : 7;
}
