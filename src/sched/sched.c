/* SPDX-License-Identifier: Apache-2.0 */
/* The policy in one place. Lists are short arrays in order of age; every operation is linear in the
 * requests, and nothing allocates after init. */
#include "sched/sched.h"

#include <string.h>

sl_status sched_init(struct sched *s, const struct sched_opts *opts, struct kv_pool *pool,
                     sl_err *err)
{
    sl_status st = SL_OK;
    void *p = NULL;
    memset(s, 0, sizeof *s);
    ASSERT(opts->n_run_max >= 1 && opts->n_req_max >= opts->n_run_max && opts->n_chunk >= 1);
    ASSERT(opts->n_ctx >= 1 && (int64_t)opts->n_ctx <= (int64_t)pool->n_blk * pool->blk_tok);
    s->opts = *opts;
    s->pool = pool;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_req_max, sizeof *s->req, &p, err));
    s->req = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_run_max, sizeof *s->run, &p, err));
    s->run = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_req_max, sizeof *s->wait, &p, err));
    s->wait = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_run_max, sizeof *s->active, &p, err));
    s->active = p;
    SL_TRY_OUT(mem_alloc_array(MEM_MISC, (size_t)opts->n_run_max, sizeof *s->plan.item, &p, err));
    s->plan.item = p;
    int cap = (opts->n_ctx + pool->blk_tok - 1) / pool->blk_tok;
    for (int i = 0; i < opts->n_run_max; i++) {
        s->run[i].req = -1;
        SL_TRY_OUT(kv_seq_init(&s->run[i].seq, cap, err));
    }
out:
    if (st) sched_fini(s);
    return st;
}

void sched_fini(struct sched *s)
{
    for (int i = 0; s->run && i < s->opts.n_run_max; i++) {
        if (s->run[i].seq.blk) kv_seq_clear(s->pool, &s->run[i].seq);
        kv_seq_fini(&s->run[i].seq);
    }
    mem_free(s->req);
    mem_free(s->run);
    mem_free(s->wait);
    mem_free(s->active);
    mem_free(s->plan.item);
    memset(s, 0, sizeof *s);
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
    while (i > 0 && s->req[list[i - 1]].order > s->req[slot].order)
        i--;
    memmove(list + i + 1, list + i, (size_t)(*n - i) * sizeof *list);
    list[i] = slot;
    ++*n;
}

sl_status sched_submit(struct sched *s, int n_prompt, int *slot, sl_err *err)
{
    ASSERT(n_prompt >= 1 && n_prompt <= s->opts.n_ctx);
    int i = 0;
    while (i < s->opts.n_req_max && s->req[i].state != SCHED_FREE)
        i++;
    if (i == s->opts.n_req_max)
        return SL_FAIL(err, BUSY, "the queue is full: %d requests", s->opts.n_req_max);
    s->req[i] = (struct sched_req){.state = SCHED_WAITING,
                                   .order = s->n_order++,
                                   .n_prompt = n_prompt,
                                   .n_known = n_prompt,
                                   .run = -1,
                                   .reuse_run = -1};
    list_insert(s, s->wait, &s->n_wait, i);
    *slot = i;
    return SL_OK;
}

int sched_next_waiting(const struct sched *s)
{
    return s->n_wait ? s->wait[0] : -1;
}

void sched_offer(struct sched *s, int slot, int run, int n_tok)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state == SCHED_WAITING && n_tok < r->n_known);
    r->reuse_run = n_tok > 0 ? run : -1;
    r->reuse_tok = n_tok;
}

static void unpark(struct sched *s, int run)
{
    kv_seq_clear(s->pool, &s->run[run].seq);
    s->run[run].parked = false;
}

void sched_unpark_all(struct sched *s)
{
    for (int i = 0; i < s->opts.n_run_max; i++)
        if (s->run[i].parked) unpark(s, i);
}

/* The parked sequence that was parked first, but not keep; -1 = none. */
static int oldest_parked(const struct sched *s, int keep)
{
    int best = -1;
    for (int i = 0; i < s->opts.n_run_max; i++)
        if (s->run[i].parked && i != keep &&
            (best < 0 || s->run[i].parked_at < s->run[best].parked_at))
            best = i;
    return best;
}

static void preempt(struct sched *s, int slot)
{
    struct sched_req *r = &s->req[slot];
    kv_seq_clear(s->pool, &s->run[r->run].seq);
    s->run[r->run].req = -1;
    list_remove(s->active, &s->n_active, slot);
    r->state = SCHED_WAITING;
    r->run = -1;
    r->n_done = 0;
    r->reuse_run = -1;
    r->n_preempt++;
    list_insert(s, s->wait, &s->n_wait, slot);
    s->plan.n_preempt++;
}

/* Blocks for n_tok more tokens of slot, from parked sequences and then from running requests that
 * are younger. False when there are not enough even so; then nobody younger than slot runs. */
static bool make_room(struct sched *s, int slot, int n_tok)
{
    const struct sched_req *r = &s->req[slot];
    while (kv_seq_need(s->pool, &s->run[r->run].seq, n_tok) > s->pool->n_free) {
        int parked = oldest_parked(s, -1);
        if (parked >= 0) {
            unpark(s, parked);
            continue;
        }
        int last = s->active[s->n_active - 1];
        if (last == slot) return false;
        preempt(s, last);
    }
    return true;
}

static void add_row(struct sched *s, int slot, int n_tok)
{
    struct sched_req *r = &s->req[slot];
    struct sched_item *it = &s->plan.item[s->plan.n_item++];
    *it = (struct sched_item){.req = slot, .run = r->run, .pos0 = r->n_done, .n_tok = n_tok};
    sl_status st =
        kv_seq_grow(s->pool, &s->run[r->run].seq, n_tok, &it->copy_src, &it->copy_dst, NULL);
    ASSERT(st == SL_OK); /* make_room was asked first */
    r->n_done += n_tok;
    it->sample = r->n_done == r->n_known;
    s->plan.n_tok += n_tok;
    if (it->pos0 >= r->n_prompt) s->plan.n_decode += n_tok;
}

/* Only one token is missing and it is not the first: the next row continues an answer (or ends a
 * prompt). */
static bool decodes(const struct sched_req *r)
{
    return r->n_known - r->n_done == 1 && r->n_done > 0;
}

/* The most of n tokens of a prompt for which blocks are free, parked ones counted as free. */
static int fit(struct sched *s, const struct kv_seq *seq, int n)
{
    while (n > 0 && kv_seq_need(s->pool, seq, n) > s->pool->n_free) {
        int parked = oldest_parked(s, -1);
        if (parked >= 0)
            unpark(s, parked);
        else
            n--;
    }
    return n;
}

/* The oldest request's row, whatever it is: it takes blocks from all others if it must. Returns the
 * prompt tokens spent. */
static int plan_oldest(struct sched *s, int budget)
{
    int slot = s->active[0];
    const struct sched_req *r = &s->req[slot];
    int want = BASE_MIN(r->n_known - r->n_done, budget);
    bool answer = decodes(r);
    bool room = make_room(s, slot, BASE_MIN(want, s->pool->blk_tok));
    ASSERT(room); /* alone it has the whole pool */
    int n = fit(s, &s->run[r->run].seq, want);
    add_row(s, slot, n);
    return answer ? 0 : n;
}

/* Can the oldest waiting request begin? Room for what it will compute first must be there without
 * taking blocks from anybody that runs; one block per running request stays free, so that admission
 * does not cause preemption at once. */
static int admit(struct sched *s)
{
    int slot = s->wait[0], run = -1;
    struct sched_req *r = &s->req[slot];
    bool reuse = r->reuse_run >= 0 && s->run[r->reuse_run].parked &&
                 s->run[r->reuse_run].seq.n_tok >= r->reuse_tok;
    if (reuse) {
        run = r->reuse_run;
        s->run[run].parked = false; /* taken over */
        kv_seq_trim(s->pool, &s->run[run].seq, r->reuse_tok);
    }
    for (int i = 0; i < s->opts.n_run_max && run < 0; i++)
        if (s->run[i].req < 0 && !s->run[i].parked) run = i;
    if (run < 0) {
        run = oldest_parked(s, -1);
        if (run < 0) return -1;
        unpark(s, run);
    }
    struct kv_seq *seq = &s->run[run].seq;
    while (kv_seq_need(s->pool, seq, r->n_known - seq->n_tok) + s->n_active > s->pool->n_free) {
        int parked = oldest_parked(s, run);
        if (parked >= 0) {
            unpark(s, parked);
            continue;
        }
        if (s->n_active == 0) break; /* alone: the pool holds n_ctx tokens */
        if (reuse) {                 /* stays parked, and offered */
            s->run[run].parked = true;
            s->run[run].parked_at = s->n_step;
        }
        return -1;
    }
    r->n_done = r->n_reused = seq->n_tok;
    r->state = SCHED_RUNNING;
    r->run = run;
    s->run[run].req = slot;
    memmove(s->wait, s->wait + 1, (size_t)--s->n_wait * sizeof *s->wait);
    list_insert(s, s->active, &s->n_active, slot);
    return slot;
}

const struct sched_plan *sched_step(struct sched *s)
{
    struct sched_plan *p = &s->plan;
    int budget = s->opts.n_chunk;
    s->n_step++;
    p->n_item = p->n_tok = p->n_decode = p->n_preempt = 0;
    if (s->n_active) budget -= plan_oldest(s, budget);
    /* Answers first: they wait for nobody. A preemption shortens the list behind i only, so planned
     * rows stay. */
    for (int i = 1; i < s->n_active; i++) {
        int slot = s->active[i];
        if (!decodes(&s->req[slot])) continue;
        if (make_room(s, slot, 1))
            add_row(s, slot, 1);
        else
            preempt(s, slot); /* it is the youngest */
    }
    /* Then prompts, and answers that are computed again, with blocks that are free: whoever is
     * older has been served. */
    for (int i = 1; i < s->n_active && budget > 0; i++) {
        int slot = s->active[i];
        const struct sched_req *r = &s->req[slot];
        int n = fit(s, &s->run[r->run].seq, BASE_MIN(r->n_known - r->n_done, budget));
        if (n == 0) continue; /* its row is planned, or it waits for blocks */
        add_row(s, slot, n);
        budget -= n;
    }
    while (s->n_wait && budget > 0 && p->n_preempt == 0) {
        int slot = admit(s);
        if (slot < 0) break;
        int n = BASE_MIN(s->req[slot].n_known - s->req[slot].n_done, budget);
        add_row(s, slot, n);
        budget -= n;
    }
    for (int i = 0; i < s->n_wait; i++)
        s->req[s->wait[i]].reuse_run = -1; /* offers are for one step */
    return p;
}

void sched_push(struct sched *s, int slot)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state == SCHED_RUNNING && r->n_done == r->n_known && r->n_known < s->opts.n_ctx);
    r->n_known++;
}

void sched_finish(struct sched *s, int slot, int n_park)
{
    struct sched_req *r = &s->req[slot];
    ASSERT(r->state != SCHED_FREE);
    if (r->state == SCHED_WAITING)
        list_remove(s->wait, &s->n_wait, slot);
    else {
        struct sched_run *run = &s->run[r->run];
        list_remove(s->active, &s->n_active, slot);
        run->req = -1;
        if (n_park > run->seq.n_tok) n_park = run->seq.n_tok;
        kv_seq_trim(s->pool, &run->seq, n_park);
        run->parked = n_park > 0;
        run->parked_at = s->n_step;
    }
    r->state = SCHED_FREE;
    r->run = -1;
}

int sched_check(const struct sched *s)
{
    int n_run = 0, n_wait = 0;
    for (int i = 0; i < s->opts.n_req_max; i++) {
        const struct sched_req *r = &s->req[i];
        if (r->state == SCHED_FREE) continue;
        if (r->state == SCHED_WAITING) {
            n_wait++;
            if (r->run != -1 || r->n_done != 0) return 1;
            continue;
        }
        n_run++;
        if (r->run < 0 || s->run[r->run].req != i || s->run[r->run].parked) return 2;
        if (s->run[r->run].seq.n_tok != r->n_done || r->n_done > r->n_known) return 3;
    }
    if (n_run != s->n_active || n_wait != s->n_wait) return 4;
    for (int i = 1; i < s->n_active; i++)
        if (s->req[s->active[i - 1]].order >= s->req[s->active[i]].order) return 5;
    for (int i = 1; i < s->n_wait; i++)
        if (s->req[s->wait[i - 1]].order >= s->req[s->wait[i]].order) return 5;
    for (int i = 0; i < s->opts.n_run_max; i++)
        if (s->run[i].req < 0 && !s->run[i].parked && s->run[i].seq.n_blk != 0) return 6;
    return 0;
}
