/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that another engine computes. When a request's turn comes it gets its sequence and all
 * blocks of its prompt (sched holds it), and the other engine is asked for what the prefix tree
 * does not have. Pages come on that engine's thread, are kept, and go into the cache here, between
 * steps: so none writes into blocks that were given to another in the meantime. When the
 * last one has come the request goes on as if its prompt had been found in the tree; where pages
 * are missing, damaged, or do not come in time, from the last block before them. Nothing is
 * remembered of a failure. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/apart.h"
#include "os/word.h"

#define FROM_TOK 64
#define SILENT_MS 30000 /* without --dist-deadline-ms */
#define IDLE_MS 2
#define HELD_MAX ((int64_t)64 << 20) /* bytes of pages that wait; more are offered again */
#define PAGES_MAX 4096
#define ENOUGH ((int64_t)8 << 20) /* bytes of pages for which lanes are stopped */
#define STOP_NS ((int64_t)250 * 1000000)
#define NONE INT32_MAX

/* What another thread tells. */
struct note {
    struct away_call *c;
    sl_kv_page page;
    bool over; /* the last event: */
    sl_finish finish;
    sl_status status;
    int64_t computed_ns;
    char why[120];
};

/* What was asked for. It is free again when its last event was read. */
struct away_call {
    struct engine_away *a;
    struct request *r; /* NULL: nobody waits for it */
    uint64_t id;       /* by the other engine */
    int n_tok, blk0, blk1;
    int bad;         /* the first block with a page that was not as it should be; NONE */
    int n_preempt;   /* of the request when it was asked for */
    bool used;
    int64_t t0_ns, first_ns, heard_ns;
    uint16_t *n_layer; /* [blocks of a sequence] pages that came of each */
};

struct engine_away {
    /* fixed after open */
    sl_engine *e, *by;
    int from_tok, n_call, n_main; /* n_main: layers of the model */
    int64_t silent_ns;
    struct away_call *call; /* [n_call] */
    uint16_t *n_layer;
    /* any thread */
    struct ring notes;
    atomic_int n_in;           /* threads that are in a callback */
    atomic_int n_page, n_over; /* in notes */
    _Atomic int64_t n_held;    /* bytes of pages in notes */
    /* engine thread */
    int n_used;
    int64_t taken_ns; /* when lanes were stopped for them */
};

/* ---- the other engine's thread ---- */

static bool push(struct engine_away *a, const struct note *n, size_t bytes)
{
    void *p = NULL;
    if (mem_alloc(MEM_REQUEST, sizeof *n + bytes, &p, NULL)) return false;
    struct note *own = p;
    *own = *n;
    if (bytes) memcpy(own + 1, n->page.bytes, bytes);
    own->page.bytes = own + 1;
    ASSERT(ring_push(&a->notes, (uint64_t)(uintptr_t)own)); /* has room for all there can be */
    sl_wake(a->e);
    return true;
}

static bool push_page(struct engine_away *a, struct away_call *c, const sl_kv_page *page)
{
    if (atomic_load(&a->n_held) > HELD_MAX) return false;
    if (atomic_fetch_add(&a->n_page, 1) < PAGES_MAX) {
        atomic_fetch_add(&a->n_held, (int64_t)page->n_bytes);
        if (push(a, &(struct note){.c = c, .page = *page}, page->n_bytes)) return true;
        atomic_fetch_sub(&a->n_held, (int64_t)page->n_bytes);
    }
    atomic_fetch_sub(&a->n_page, 1);
    return false;
}

static int on_kv(void *user, const sl_kv_page *page)
{
    struct away_call *c = user;
    struct engine_away *a = c->a;
    atomic_fetch_add(&a->n_in, 1);
    bool took = push_page(a, c, page);
    atomic_fetch_sub(&a->n_in, 1);
    return took;
}

static void on_event(void *user, const sl_event *ev)
{
    struct away_call *c = user;
    struct engine_away *a = c->a;
    struct note n = {.c = c,
                     .over = true,
                     .finish = ev->finish,
                     .status = ev->status,
                     .computed_ns = ev->ttft_ns};
    if (ev->finish == SL_FINISH_NONE) return;
    snprintf(n.why, sizeof n.why, "%s", ev->error ? ev->error : "");
    atomic_fetch_add(&a->n_in, 1);
    atomic_fetch_add(&a->n_over, 1);
    struct os_word never = {0};
    while (!push(a, &n, 0)) /* it must come */
        (void)os_word_sleep(&never, 1, 1);
    atomic_fetch_sub(&a->n_in, 1); /* from here on the engine may be closed */
}

/* ---- the end of a call ---- */

static void free_call(struct engine_away *a, struct away_call *c)
{
    c->used = false;
    a->n_used--;
}

/* Nobody waits for it any more. */
static void leave(struct engine_away *a, struct away_call *c)
{
    c->r->away = NULL;
    c->r = NULL;
    sl_cancel(a->by, c->id);
}

void engine_away_leave(sl_engine *e, struct request *r)
{
    if (r->away) leave(e->away, r->away);
}

/* The layer of block j whose page comes next; n_main or more: all that must come have come. */
static int next_layer(const sl_engine *e, const struct away_call *c, int j)
{
    int n = c->n_layer[j - c->blk0];
    while (n < c->a->n_main && !engine_page_needed(e, n, j, c->n_tok))
        n++;
    return n;
}

/* Blocks from the first on that came whole. */
static int whole_blocks(const sl_engine *e, const struct away_call *c)
{
    int n = c->blk0;
    while (n < c->blk1 && n < c->bad && next_layer(e, c, n) >= c->a->n_main)
        n++;
    return n;
}

/* Entries of the MTP layer and of a small model go with the blocks that hold them. */
static void set_entries(sl_engine *e, const struct away_call *c, int n_tok)
{
    struct request *r = c->r;
    const struct kv_seq *seq = engine_req_seq(e, r);
    int n = engine_blocks(n_tok);
    int32_t home0 = engine_blk0(e, r->home, DEV_KV_PAGED);
    bool all = e->mtp.on;
    for (int b = c->blk0; b < n; b++) {
        bool has = c->n_layer[b - c->blk0] > c->a->n_main;
        if (e->mtp.on) e->mtp.from[home0 + seq->blk[b]] = has ? 0 : -1;
        if (e->small.on) e->small.full[seq->blk[b]] = false;
        all = all && has;
    }
    for (int b = 0; b < c->blk0 && all; b++)
        all = e->mtp.from[home0 + seq->blk[b]] == 0;
    r->mtp_from = 0;
    r->mtp_done = all ? n_tok : -1;
}

/* The request goes on from what has come; whole: all was computed that was told. What a step has
 * told that failed is of no use. */
static void go_on(sl_engine *e, struct away_call *c, bool whole, const char *why)
{
    struct request *r = c->r;
    struct sched *s = engine_sched(e, r);
    int n_blk = whole ? whole_blocks(e, c) : c->blk0;
    int n_tok = n_blk == c->blk1 ? c->n_tok : n_blk * ENGINE_BLK_TOK;
    n_tok = sched_release(s, r->slot, n_tok);
    set_entries(e, c, n_tok);
    struct kv_path path = engine_path(e, r);
    if (!r->g->no_cache && n_tok > c->blk0 * ENGINE_BLK_TOK) sched_put(s, r->slot, &path);
    if (n_tok == c->n_tok) {
        e->stats.n_prefill_by++;
    } else {
        e->stats.n_prefill_lost++;
        r->stays = true;
        log_msg(LOG_WARN, "a prompt of %d tokens is computed here from token %d on: %s",
                r->n_prompt, n_tok, why);
    }
    r->away = NULL;
    c->r = NULL;
    sl_event ev = {.token = -1, .text = "", .prompt_pos = -1};
    if (r->g->progress) engine_event(e, r, &ev);
}

/* ---- what came ---- */

static void take_page(sl_engine *e, struct away_call *c, const sl_kv_page *p)
{
    struct engine_away *a = e->away;
    struct request *r = c->r;
    if (!r) return;
    int64_t now = clock_now_ns();
    if (!c->first_ns) c->first_ns = now;
    c->heard_ns = now;
    e->stats.kv_in_bytes += p->n_bytes;
    if (p->block < c->blk0 || p->block >= c->blk1 || p->block >= c->bad) return;
    if (p->layer >= engine_pages_layers(e) && p->layer >= a->n_main) return; /* of no use here */
    uint16_t *n = &c->n_layer[p->block - c->blk0];
    *n = (uint16_t)next_layer(e, c, p->block);
    if (p->layer != *n || p->n_bytes != engine_page_bytes(e, p->layer) ||
        p->sum != engine_page_sum(p)) {
        if (*n < a->n_main) c->bad = p->block; /* else an entry of the MTP layer, without which */
        return;                                /* drafts begin later */
    }
    const struct kv_seq *seq = engine_req_seq(e, r);
    struct engine_page_at at = {.home = r->home, .layer = p->layer};
    at.blk = engine_page_blk(e, r->home, p->layer, seq->blk[p->block]);
    if (engine_is_far(e))
        engine_far_put(e, &at, p->bytes);
    else
        engine_page_set(e, &at, p->bytes);
    ++*n;
}

static const char *said(const struct note *n)
{
    if (n->why[0]) return n->why;
    return n->finish == SL_FINISH_LENGTH ? "pages are missing or damaged"
                                         : "it was cancelled there";
}

static void take_end(sl_engine *e, struct away_call *c, const struct note *n)
{
    int64_t now = clock_now_ns();
    engine_far_flush(e);
    if (c->r) {
        bool all = n->finish == SL_FINISH_LENGTH;
        if (all && c->first_ns) e->stats.kv_in_ns += (uint64_t)(now - c->first_ns);
        if (all) e->stats.kv_wait_ns += (uint64_t)BASE_MAX(now - c->t0_ns - n->computed_ns, 0);
        go_on(e, c, all, said(n));
    }
    free_call(e->away, c);
}

static void take_notes(sl_engine *e)
{
    struct engine_away *a = e->away;
    uint64_t v;
    while (ring_pop(&a->notes, &v)) {
        struct note *n = (struct note *)(uintptr_t)v;
        if (n->over) {
            take_end(e, n->c, n);
            atomic_fetch_sub(&a->n_over, 1);
        } else {
            take_page(e, n->c, &n->page);
            atomic_fetch_sub(&a->n_held, (int64_t)n->page.n_bytes);
            atomic_fetch_sub(&a->n_page, 1);
        }
        mem_free(n);
    }
    engine_far_flush(e);
}

/* Lanes stop for pages that go to other processes: not for each of them. */
static bool takes_now(sl_engine *e)
{
    struct engine_away *a = e->away;
    if (e->n_lane == 1 || !engine_is_far(e)) return true;
    bool over = atomic_load(&a->n_over) > 0;
    int64_t n = atomic_load(&a->n_held), now = clock_now_ns();
    if (!over && (n == 0 || (n < ENOUGH && now - a->taken_ns < STOP_NS))) return false;
    a->taken_ns = now;
    engine_lanes_drain(e);
    return true;
}

/* Requests that lost their blocks, and those whose pages do not come. */
static void drop_calls(sl_engine *e)
{
    struct engine_away *a = e->away;
    int64_t now = clock_now_ns();
    for (int i = 0; i < a->n_call && a->n_used; i++) {
        struct away_call *c = &a->call[i];
        if (!c->used || !c->r) continue;
        const struct sched_req *q = engine_sched_req(e, c->r);
        if (q->state != SCHED_RUNNING || !q->held || q->n_preempt != c->n_preempt) {
            leave(a, c);
        } else if (now - c->heard_ns > a->silent_ns) {
            sl_cancel(a->by, c->id);
            go_on(e, c, false, "nothing came for too long");
        }
    }
}

/* With lanes, steps that are under way may still write into blocks that were another's when
 * they were planned: those come to their end first. */
static bool asks_late(sl_engine *e)
{
    int slot;
    for (int i = 0; e->n_lane > 1 && (slot = engine_running(e, i)) >= 0; i++)
        if (engine_sched_req(e, e->req[slot])->held && !e->req[slot]->away) return true;
    return false;
}

void engine_away_step(sl_engine *e)
{
    if (!e->away) return;
    if (e->away->n_used) {
        bool now = takes_now(e);
        drop_calls(e);
        if (now) take_notes(e);
    }
    if (!asks_late(e)) return;
    engine_lanes_drain(e);
    engine_away_ask(e);
}

/* ---- asking ---- */

static struct away_call *free_one(struct engine_away *a)
{
    for (int i = 0; i < a->n_call; i++)
        if (!a->call[i].used) return &a->call[i];
    return NULL;
}

int engine_away_for(void *user, int slot)
{
    sl_engine *e = user;
    const struct engine_away *a = e->away;
    const struct request *r = e->req[slot];
    if (!a || r->stays || r->pool || r->g->on_kv || (r->g->echo && r->index == 0)) return 0;
    int n = BASE_MIN(r->n_ids - 1, r->n_prompt);
    if (n - engine_sched_req(e, r)->n_reused < a->from_tok) return 0;
    return a->n_used < a->n_call && sl_ready(a->by) ? n : 0;
}

static sl_status ask(sl_engine *e, struct request *r, sl_err *err)
{
    struct engine_away *a = e->away;
    struct away_call *c = free_one(a);
    const struct sched_req *q = engine_sched_req(e, r);
    if (!c) return SL_FAIL(err, BUSY, "too many are asked for");
    int64_t now = clock_now_ns();
    uint16_t *room = c->n_layer;
    *c = (struct away_call){.a = a,
                            .r = r,
                            .n_tok = q->n_done,
                            .blk0 = q->n_reused / ENGINE_BLK_TOK,
                            .blk1 = engine_blocks(q->n_done),
                            .bad = NONE,
                            .n_preempt = q->n_preempt,
                            .t0_ns = now,
                            .heard_ns = now,
                            .n_layer = room};
    memset(room, 0, (size_t)(c->blk1 - c->blk0) * sizeof *room);
    sl_request ask = {.ids = r->ids,
                      .n_ids = q->n_done + 1,
                      .priority = r->g->priority,
                      .owner = r->g->owner,
                      .cache_salt = r->g->salt,
                      .no_cache = r->g->no_cache,
                      .on_event = on_event,
                      .on_kv = on_kv,
                      .kv_from = c->blk0 * ENGINE_BLK_TOK,
                      .user = c};
    if (!r->t_admit_ns) {
        r->t_admit_ns = now;
        r->n_cached = q->n_reused;
    }
    c->used = true;
    a->n_used++;
    r->away = c;
    sl_status st = sl_submit(a->by, &ask, &c->id, err);
    if (!st) return SL_OK;
    r->away = NULL;
    free_call(a, c);
    return st;
}

void engine_away_ask(sl_engine *e)
{
    sl_err err = {0};
    int slot;
    if (!e->away) return;
    for (int i = 0; (slot = engine_running(e, i)) >= 0; i++) {
        struct request *r = e->req[slot];
        const struct sched_req *q = engine_sched_req(e, r);
        if (!q->held || (r->away && r->away->n_preempt == q->n_preempt)) continue;
        if (r->away) leave(e->away, r->away);
        if (!ask(e, r, &err)) continue;
        log_msg(LOG_DEBUG, "a prompt is computed here: %s", err.text);
        e->stats.n_prefill_lost++;
        r->stays = true;
        (void)sched_release(engine_sched(e, r), slot, q->n_reused);
    }
}

void engine_apart_idle(sl_engine *e)
{
    bool waits = (e->away && e->away->n_used) || e->giving.n;
    if (!waits) return;
    os_event_wait(&e->event, IDLE_MS);
    atomic_exchange(&e->signalled, 0); /* as sl_wait */
}

/* ---- opening and closing ---- */

static sl_status check(const sl_engine *e, sl_engine *by, int from_tok, sl_err *err)
{
    sl_engine_info theirs;
    if (e->remote) return SL_FAIL(err, UNSUPPORTED, "prefill: the engine is in another process");
    if (from_tok < 0) return SL_FAIL(err, REQUEST, "prefill-from: %d: from 1 on", from_tok);
    if (e->away) return SL_FAIL(err, REQUEST, "prefill: somebody computes prompts already");
    if (e->record)
        return SL_FAIL(err, UNSUPPORTED, "prefill: a recording needs every step: without --record");
    SL_TRY(engine_pages_check(e, err));
    sl_engine_info_get(by, &theirs);
    if (!theirs.n_ctx) return SL_OK; /* it is not there yet */
    if (!by->remote) SL_TRY(engine_pages_check(by, err));
    if (theirs.kv_hash == e->info.kv_hash) return SL_OK;
    return SL_FAIL(err, REQUEST, "prefill: what computes prompts is of another model or program, "
                   "or its CPU, --acts or --kv differ");
}

sl_status sl_prefill_by(sl_engine *e, sl_engine *by, int from_tok, sl_err *err)
{
    void *p = NULL;
    SL_TRY(check(e, by, from_tok, err));
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof *e->away, &p, err));
    struct engine_away *a = e->away = p;
    a->e = e;
    a->by = by;
    a->from_tok = from_tok ? from_tok : FROM_TOK;
    a->n_main = e->m->cfg.n_layer;
    a->n_call = 2 * e->n_seq_max; /* some are cancelled, and not over yet */
    int ms = e->opts.dist_deadline_ms ? e->opts.dist_deadline_ms : SILENT_MS;
    a->silent_ns = (int64_t)ms * 1000000;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)a->n_call, sizeof *a->call, &p, err));
    a->call = p;
    size_t ld = (size_t)e->ld_blk;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)a->n_call * ld, sizeof *a->n_layer, &p, err));
    a->n_layer = p;
    for (int i = 0; i < a->n_call; i++)
        a->call[i].n_layer = a->n_layer + (size_t)i * ld;
    return ring_init(&a->notes, 2 * PAGES_MAX + a->n_call, err);
}

void engine_away_close(sl_engine *e)
{
    struct engine_away *a = e->away;
    if (!a) return;
    /* the other engine knows them until their last event, and wakes this one after it */
    while (a->n_used || atomic_load(&a->n_in)) {
        take_notes(e);
        if (a->n_used) os_event_wait(&e->event, IDLE_MS);
        atomic_exchange(&e->signalled, 0);
    }
    ring_fini(&a->notes);
    mem_free(a->call);
    mem_free(a->n_layer);
    mem_free(a);
    e->away = NULL;
}
