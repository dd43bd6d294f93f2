/* SPDX-License-Identifier: Apache-2.0 */
/* A request's life outside of steps: submitted on any thread, taken in and ended on the engine
 * thread. */
#include <string.h>

#include "base/clock.h"
#include "engine/apart.h"

/* ---- submit ---- */

/* How a request's text becomes ids: TOK_ flags. */
static int text_flags(const tok *t, const sl_request *q)
{
    bool own = q->bos == 0, bos = q->bos > 0 || (own && tok_add_bos(t));
    return (q->special ? TOK_SPECIAL : 0) | (bos ? TOK_BOS : 0) |
           (own && tok_add_eos(t) ? TOK_EOS : 0);
}

static sl_status count_too_long(const sl_model *m, const sl_request *q, int n_ctx, sl_err *err)
{
    struct tok_ids t = {.max = engine_count_max(n_ctx)};
    sl_status st = tok_encode(m->tok, q->text, strlen(q->text), text_flags(m->tok, q), &t, NULL);
    mem_free(t.id);
    return engine_too_long(n_ctx, st ? t.max : t.n, st != SL_OK, err);
}

/* The prompt's ids. t: its max is the context; the caller frees its ids. */
static sl_status prompt_ids(const sl_engine *e, const sl_request *q, struct tok_ids *t,
                            const int32_t **ids, int *n, sl_err *err)
{
    int n_ctx = (int)t->max;
    *ids = q->ids;
    *n = q->n_ids;
    if (!q->ids) {
        const tok *tk = e->m->tok;
        SL_TRY(engine_need_tok(e->m, err));
        sl_status st = tok_encode(tk, q->text, strlen(q->text), text_flags(tk, q), t, err);
        if (st == SL_LIMIT) return count_too_long(e->m, q, n_ctx, err);
        SL_TRY(st);
        *ids = t->id;
        *n = t->n;
    }
    if (*n < 1) return SL_FAIL(err, REQUEST, "prompt: empty");
    if (*n > n_ctx) return engine_too_long(n_ctx, *n, false, err);
    return engine_check_ids(e, "prompt", *ids, *n, err);
}

static sl_status copy(struct arena *a, const void *src, size_t n, const void *out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_alloc(a, n, &p, err));
    if (n) memcpy(p, src, n);
    memcpy((void *)(uintptr_t)out, &p, sizeof p);
    return SL_OK;
}

/* Everything that a step would have to grow is made here. */
static sl_status open_sample(sl_engine *e, struct group *g, int i, const sl_request *q,
                             const int32_t *ids, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof *g->r[i], &p, err));
    struct request *r = g->r[i] = p;
    *r = (struct request){.g = g, .index = i, .slot = -1, .n_prompt = g->n_prompt};
    str_init(&r->stop.held, MEM_REQUEST, 0);
    r->n_ids = g->n_prompt;
    r->cap = g->n_prompt + g->max_new + (g->on_kv != NULL); /* the token after it, which is known */
    SL_TRY(mem_alloc_array(MEM_REQUEST, (size_t)r->cap, sizeof *r->ids, &p, err));
    r->ids = p;
    memcpy(r->ids, ids, (size_t)(g->n_prompt + (g->on_kv != NULL)) * sizeof *ids);
    if (g->embed) {
        SL_TRY(mem_alloc_array(MEM_REQUEST, (size_t)e->m->cfg.d_model, sizeof *r->pool, &p, err));
        r->pool = p;
    }
    size_t held = 64 + 4 * (size_t)e->m->max_piece, /* two marks are in the 64 */
        most = held;                                /* invalid bytes grow to three each */
    for (int k = 0; k < q->n_stop; k++) {
        char *s = NULL;
        size_t len = strlen(q->stop[k]);
        if (i == 0) SL_TRY(mem_arena_str(&g->arena, q->stop[k], len, &s, err));
        r->stop.s[k] = i == 0 ? s : g->r[0]->stop.s[k];
        r->stop.len[k] = (int)len;
        most = BASE_MAX(most, held + len);
    }
    r->stop.n = q->n_stop;
    SL_TRY(mem_alloc(MEM_REQUEST, most, &p, err));
    r->stop.held.p = p;
    r->stop.held.p[0] = 0;
    r->stop.held.cap = most;
    SL_TRY(engine_spec_begin(e, r, err));
    SL_TRY(engine_grammar_open(g->grammar, &r->grammar, err));
    return engine_answer_given(e, r, q->given, err);
}

static sl_status fill(sl_engine *e, struct group *g, const sl_request *q, const int32_t *ids, int n,
                      sl_err *err)
{
    void *p = NULL;
    int room = e->n_ctx - n;
    if (q->on_kv && n < 2) return SL_FAIL(err, REQUEST, "on_kv: of two tokens at least");
    g->on_kv = q->on_kv;
    g->kv_from = q->kv_from;
    g->n_prompt = n - (q->on_kv != NULL);
    /* the context holds n_ctx tokens; a prompt that fills it still gets one token, which is never
     * stored */
    g->max_new = q->max_tokens < 0 || q->embed || q->on_kv
                     ? 0
                     : BASE_MAX(1, q->max_tokens ? BASE_MIN(q->max_tokens, room) : room);
    if (q->n_given && q->n_given >= g->max_new)
        return SL_FAIL(err, REQUEST, "given: %d tokens of an answer of %d at most", q->n_given,
                       g->max_new);
    g->first = q->first;
    g->n_given = q->n_given;
    g->min_new = q->min_tokens;
    g->ignore_eos = q->ignore_eos;
    g->keep_special = q->keep_special;
    g->no_cache = q->no_cache || e->opts.no_reuse;
    g->echo = q->echo_logprob && !q->n_given;
    g->embed = q->embed;
    g->progress = q->want_progress;
    g->n_top = q->want_logprob ? BASE_MAX(q->n_logprob, 0) : q->n_logprob > 0 ? q->n_logprob : -1;
    g->n_top = BASE_MIN(g->n_top, e->n_vocab);
    g->priority = q->priority;
    g->owner = q->owner;
    g->salt = q->cache_salt;
    g->sampling = q->sampling;
    g->on_event = q->on_event;
    g->user = q->user;
    g->grammar = sl_grammar_ref(q->grammar);
    SL_TRY(copy(&g->arena, q->sampling.bias, (size_t)q->sampling.n_bias * sizeof(sl_bias),
                &g->sampling.bias, err));
    SL_TRY(copy(&g->arena, q->stop_ids, (size_t)q->n_stop_ids * sizeof *q->stop_ids, &g->stop_id,
                err));
    g->n_stop_id = q->n_stop_ids;
    SL_TRY(copy(&g->arena, q->draft_ids, (size_t)q->n_draft_ids * sizeof *q->draft_ids,
                &g->draft_id, err));
    g->n_draft_id = q->n_draft_ids;
    g->n_draft = q->n_draft;
    SL_TRY(mem_arena_array(&g->arena, (size_t)g->n, sizeof(struct request *), &p, err));
    g->r = p;
    for (int i = 0; i < g->n; i++)
        SL_TRY(open_sample(e, g, i, q, ids, err));
    return SL_OK;
}

static void request_free(struct request *r)
{
    if (!r) return;
    engine_grammar_close(r->grammar);
    spec_seq_fini(&r->spec);
    mem_free(r->ids);
    mem_free(r->pool);
    str_fini(&r->stop.held);
    mem_free(r);
}

void engine_group_free(struct group *g)
{
    if (!g) return;
    for (int i = 0; g->r && i < g->n; i++)
        request_free(g->r[i]);
    sl_grammar_unref(g->grammar);
    mem_arena_fini(&g->arena);
    mem_free(g);
}

/* ---- submit: any thread ---- */

static atomic_int *taken_by(sl_engine *e, uint64_t owner)
{
    return &e->taken_by[owner % ENGINE_OWNER_PLACES];
}

static void give_slots(sl_engine *e, uint64_t owner, const int *slot, int n)
{
    atomic_fetch_sub_explicit(taken_by(e, owner), n, memory_order_relaxed);
    atomic_fetch_sub_explicit(&e->n_taken, n, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        ASSERT(ring_push(&e->free_slot, (uint64_t)slot[i]));
}

/* Where there are several owners the last quarter of the slots is for those that have few. */
static bool takes_too_many(sl_engine *e, uint64_t owner, int n)
{
    int live = atomic_load_explicit(&e->n_owner_live, memory_order_relaxed);
    if (atomic_load_explicit(&e->n_owner, memory_order_relaxed) < 2) return false;
    return atomic_load_explicit(&e->n_taken, memory_order_relaxed) + n >
               e->n_req_max - e->n_req_max / 4 &&
           atomic_load_explicit(taken_by(e, owner), memory_order_relaxed) + n >
               e->n_req_max / (BASE_MAX(live, 1) + 1);
}

static sl_status take_slots(sl_engine *e, uint64_t owner, int *slot, int n, sl_err *err)
{
    uint64_t v;
    bool refused = takes_too_many(e, owner, n);
    atomic_fetch_add_explicit(taken_by(e, owner), n, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->n_taken, n, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        if (!refused && ring_pop(&e->free_slot, &v)) {
            slot[i] = (int)v;
            continue;
        }
        give_slots(e, owner, slot, i);
        atomic_fetch_sub_explicit(taken_by(e, owner), n - i, memory_order_relaxed);
        atomic_fetch_sub_explicit(&e->n_taken, n - i, memory_order_relaxed);
        atomic_fetch_add_explicit(&e->n_busy, 1, memory_order_relaxed);
        return refused ? SL_FAIL(err, BUSY, "the queue has no more places for this owner")
                       : SL_FAIL(err, BUSY, "the queue is full: %d requests", e->n_req_max);
    }
    return SL_OK;
}

static sl_status make_group(sl_engine *e, const sl_request *q, int n, struct group **out,
                            sl_err *err)
{
    struct tok_ids t = {.max = e->n_ctx};
    const int32_t *ids = NULL;
    struct group *g = NULL;
    void *p = NULL;
    int n_ids = 0;
    sl_status st = SL_OK;
    SL_TRY_OUT(prompt_ids(e, q, &t, &ids, &n_ids, err));
    SL_TRY_OUT(mem_alloc_array(MEM_REQUEST, 1, sizeof *g, &p, err));
    g = p;
    g->n = g->n_left = n;
    mem_arena_init(&g->arena, MEM_REQUEST, 0);
    SL_TRY_OUT(fill(e, g, q, ids, n_ids, err));
    *out = g;
    g = NULL;
out:
    mem_free(t.id);
    engine_group_free(g);
    return st;
}

/* The prompt as ids, and then it is the other side's. */
static sl_status submit_remote(sl_engine *e, const sl_request *q, uint64_t *id, sl_err *err)
{
    sl_engine_info info;
    sl_request as_ids = *q;
    sl_engine_info_get(e, &info);
    struct tok_ids t = {.max = info.n_ctx};
    sl_status st = prompt_ids(e, q, &t, &as_ids.ids, &as_ids.n_ids, err);
    if (!st) st = e->remote->submit(e->remote->user, &as_ids, id, err);
    mem_free(t.id);
    return st;
}

sl_status sl_submit(sl_engine *e, const sl_request *q, uint64_t *id, sl_err *err)
{
    int slot[ENGINE_SAMPLE_MAX], n = q->n ? q->n : 1;
    struct group *g = NULL;
    int64_t now = clock_now_ns();
    SL_TRY(engine_check_request(e, q, err));
    if (e->remote) return submit_remote(e, q, id, err);
    if (atomic_load(&e->closing)) return SL_FAIL(err, CANCELLED, "the engine is being closed");
    SL_TRY(engine_lost(e, err));
    SL_TRY(take_slots(e, q->owner, slot, n, err)); /* before any text is tokenised */
    sl_status st = make_group(e, q, n, &g, err);
    if (st) {
        give_slots(e, q->owner, slot, n);
        return st;
    }
    for (int i = 0; i < n; i++)
        g->r[i]->slot = slot[i];
    uint64_t serial = 1 + atomic_fetch_add_explicit(&e->n_id, 1, memory_order_relaxed);
    g->id = serial << ENGINE_SLOT_BITS | (uint64_t)slot[0];
    g->t_submit_ns = now;
    g->deadline_ns = q->timeout_ms ? now + q->timeout_ms * 1000000 : 0;
    if (id) *id = g->id;
    atomic_fetch_add(&e->n_pending, 1);
    atomic_fetch_add_explicit(&e->n_submit, (uint64_t)n, memory_order_relaxed);
    ASSERT(ring_push(&e->inbox, (uint64_t)(uintptr_t)g)); /* as large as there are slots */
    sl_wake(e);
    return SL_OK;
}

/* ---- the engine thread ---- */

static void take_in(sl_engine *e, struct group *g)
{
    int home = engine_home_for(e, g);
    for (int i = 0; i < g->n; i++) {
        struct request *r = g->r[i];
        struct sched_new q = {.n_prompt = g->n_prompt,
                              .n_given = g->n_given,
                              .priority = g->priority,
                              .owner = g->owner,
                              .now_ns = g->t_submit_ns,
                              .deadline_ns = g->deadline_ns,
                              .fork_of = i ? g->r[0]->slot : -1,
                              .all_rows = g->echo && i == 0};
        r->home = home;
        if (g->on_kv) engine_give_begin(e, r);
        sched_submit(engine_sched(e, r), r->slot, &q);
        e->req[r->slot] = r;
    }
}

static void end_cancelled(sl_engine *e)
{
    const uint64_t low = ((uint64_t)1 << ENGINE_SLOT_BITS) - 1;
    for (int i = 0; i < e->n_req_max; i++) {
        struct request *r = e->req[i];
        if (!r) continue;
        if (atomic_load_explicit(&e->cancel[r->g->id & low], memory_order_relaxed) == r->g->id)
            engine_request_end(e, r, -1, SL_FINISH_CANCELLED, NULL);
    }
}

/* Those of several homes may be the same. */
static void count_owners(sl_engine *e)
{
    int n = 0, n_live = 0;
    for (int h = 0; h < e->n_home; h++) {
        struct sched_totals t = sched_totals_get(e->home[h].sched);
        n = BASE_MAX(n, t.n_owner);
        n_live = BASE_MAX(n_live, t.n_owner_live);
    }
    atomic_store_explicit(&e->n_owner, n, memory_order_relaxed);
    atomic_store_explicit(&e->n_owner_live, n_live, memory_order_relaxed);
}

void engine_intake(sl_engine *e)
{
    uint64_t v;
    int slot;
    /* the flag first: what was submitted before a cancel is in the ring by now */
    bool cancels = atomic_exchange(&e->any_cancel, 0);
    while (ring_pop(&e->inbox, &v))
        take_in(e, (struct group *)(uintptr_t)v);
    count_owners(e);
    if (cancels) end_cancelled(e);
    int64_t now = clock_now_ns();
    for (int h = 0; h < e->n_home; h++)
        while ((slot = sched_expired(e->home[h].sched, now)) >= 0) {
            sl_err why;
            (void)SL_FAIL(&why, TIMEOUT, "the request's time is over");
            engine_request_end(e, e->req[slot], -1, SL_FINISH_ERROR, &why);
        }
    bool drops = atomic_exchange(&e->drop_cache, 0);
    for (int h = 0; h < e->n_home && drops; h++)
        kv_cache_drop(e->home[h].pool);
}

void engine_event(sl_engine *e, struct request *r, sl_event *ev)
{
    const struct group *g = r->g;
    if (!g->on_event) return;
    ev->id = g->id;
    ev->index = g->first + r->index;
    ev->n_prompt = r->n_prompt;
    ev->n_token = r->n_ids - r->n_prompt;
    ev->n_cached = r->n_cached;
    ev->n_draft = r->n_draft;
    ev->n_right = r->n_right;
    ev->n_text_draft = r->n_text_draft;
    ev->n_text_right = r->n_text_right;
    ev->ttft_ns = r->t_first_ns ? r->t_first_ns - g->t_submit_ns : 0;
    ev->queue_ns = r->t_admit_ns ? r->t_admit_ns - g->t_submit_ns : 0;
    ev->prefill_ns = r->t_first_ns ? r->t_first_ns - r->t_admit_ns : 0;
    const struct sched_req *sr = engine_sched_req(e, r);
    ev->n_done = r->n_ids > r->n_prompt ? r->n_prompt : BASE_MIN(sr->n_done, r->n_prompt);
    if (ev->finish == SL_FINISH_NONE) ev->n_preempt = sr->n_preempt;
    if (ev->finish != SL_FINISH_NONE) ev->done_ns = clock_now_ns() - g->t_submit_ns;
    g->on_event(g->user, ev);
}

static void count_end(sl_engine *e, const sl_event *ev)
{
    e->stats.n_finish[ev->finish]++;
    e->stats.n_timeout += ev->finish == SL_FINISH_ERROR && ev->status == SL_TIMEOUT;
}

void engine_request_done(sl_engine *e, struct request *r, sl_event *ev)
{
    struct group *g = r->g;
    if (g->on_kv) engine_give_end(e);
    engine_away_leave(e, r);
    ev->n_preempt = engine_sched_req(e, r)->n_preempt;
    sched_finish(engine_sched(e, r), r->slot);
    e->req[r->slot] = NULL;
    count_end(e, ev);
    bool last = --g->n_left == 0;
    engine_event(e, r, ev);
    give_slots(e, g->owner, &r->slot, 1);
    g->r[r->index] = NULL;
    request_free(r);
    if (!last) return;
    atomic_fetch_sub(&e->n_pending, 1);
    engine_group_free(g);
}

void engine_request_end(sl_engine *e, struct request *r, int32_t token, sl_finish finish,
                        const sl_err *why)
{
    sl_event ev = {.token = token, .text = "", .finish = finish, .prompt_pos = -1};
    if (why) {
        ev.status = why->code;
        ev.error = why->text;
    }
    engine_request_done(e, r, &ev);
}
