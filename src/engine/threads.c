/* SPDX-License-Identifier: Apache-2.0 */
/* What other threads may do to an engine: ask, cancel, wake it, read its counters. */
#include <string.h>

#include "engine/engine_internal.h"

#define MOVING_MS 4 /* between steps without work while experts move */
#define STAT_WORDS ((int)(sizeof(sl_stats) / sizeof(uint64_t)))
_Static_assert(sizeof(sl_stats) % sizeof(uint64_t) == 0, "stats are published as words");

sl_status engine_threads_init(sl_engine *e, sl_err *err)
{
    void *p = NULL;
    SL_TRY(ring_init(&e->free_slot, e->n_req_max, err));
    for (int i = 0; i < e->n_req_max; i++)
        ASSERT(ring_push(&e->free_slot, (uint64_t)i));
    SL_TRY(ring_init(&e->inbox, e->n_req_max, err));
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)e->n_req_max, sizeof *e->cancel, &p, err));
    e->cancel = p;
    SL_TRY(ring_snap_init(&e->snap, STAT_WORDS, err));
    return os_event_open(&e->event, err);
}

void engine_threads_fini(sl_engine *e)
{
    ring_fini(&e->free_slot);
    ring_fini(&e->inbox);
    mem_free((void *)e->cancel);
    ring_snap_fini(&e->snap);
    os_event_close(&e->event);
}

static void add_home(sl_stats *s, const struct engine_home *h)
{
    const struct kv_pool *p = h->pool;
    struct sched_totals t = sched_totals_get(h->sched);
    s->n_running += t.n_run;
    s->n_waiting += t.n_wait;
    s->kv_used_tok += (int64_t)(p->n_blk - kv_pool_avail(p)) * p->blk_tok;
    s->kv_cached_tok += (int64_t)p->n_kept * p->blk_tok;
    s->window_total_tok += (int64_t)p->n_win * p->blk_tok;
    s->window_used_tok += (int64_t)(p->n_win - kv_win_avail(p)) * p->blk_tok;
    s->n_preempt += t.n_preempt;
    s->cache_query_tok += t.n_query_tok;
    s->cache_hit_tok += t.n_hit_tok;
    s->n_evict += p->n_evict;
}

void engine_publish(sl_engine *e)
{
    uint64_t word[STAT_WORDS];
    sl_stats *s = &e->stats;
    s->n_running = s->n_waiting = 0;
    s->kv_used_tok = s->kv_cached_tok = s->window_total_tok = s->window_used_tok = 0;
    s->n_preempt = s->cache_query_tok = s->cache_hit_tok = s->n_evict = 0;
    for (int h = 0; h < e->n_home; h++)
        add_home(s, &e->home[h]);
    engine_counts_take(e);
    engine_hot_stats(e);
    engine_stream_stats(e);
    memcpy(word, s, sizeof word);
    ring_snap_put(&e->snap, word);
}

void sl_stats_get(const sl_engine *e_, sl_stats *out)
{
    sl_engine *e = (sl_engine *)(uintptr_t)e_; /* the snapshot's words are read atomically */
    uint64_t word[STAT_WORDS];
    if (e->remote) {
        e->remote->stats(e->remote->user, out);
        return;
    }
    ring_snap_get(&e->snap, word);
    memcpy(out, word, sizeof *out);
    out->n_submit = atomic_load_explicit(&e->n_submit, memory_order_relaxed);
    out->n_busy = atomic_load_explicit(&e->n_busy, memory_order_relaxed);
}

void engine_lose(sl_engine *e, const sl_err *why)
{
    e->lost_err = *why;
    atomic_store(&e->lost, 1);
}

sl_status engine_lost(const sl_engine *e, sl_err *err)
{
    if (!atomic_load(&e->lost)) return SL_OK;
    return SL_FAIL(err, DEVICE, "%s", e->lost_err.text);
}

void sl_wake(sl_engine *e)
{
    if (e->remote) {
        e->remote->wake(e->remote->user);
        return;
    }
    if (!atomic_exchange(&e->signalled, 1)) os_event_set(&e->event);
}

void sl_wait(sl_engine *e, int timeout_ms)
{
    if (e->remote) {
        e->remote->wait(e->remote->user, timeout_ms);
        return;
    }
    if (sl_pending(e)) return;
    bool moving = engine_rebalance_busy(e);
    if (moving && (timeout_ms < 0 || timeout_ms > MOVING_MS)) timeout_ms = MOVING_MS;
    os_event_wait(&e->event, timeout_ms);
    /* Acquires what was pushed before any sl_wake that saw the flag set and so left the event
     * alone: the step after this finds it. */
    atomic_exchange(&e->signalled, 0);
}

void sl_cancel(sl_engine *e, uint64_t id)
{
    if (e->remote) {
        e->remote->cancel(e->remote->user, id);
        return;
    }
    uint64_t slot = id & (((uint64_t)1 << ENGINE_SLOT_BITS) - 1);
    if (slot >= (uint64_t)e->n_req_max) return;
    atomic_store_explicit(&e->cancel[slot], id, memory_order_relaxed);
    atomic_store(&e->any_cancel, 1); /* release; pairs with the exchange in engine_intake */
    sl_wake(e);
}

void sl_drop_cache(sl_engine *e)
{
    if (e->remote) return;
    atomic_store(&e->drop_cache, 1);
    sl_wake(e);
}

int sl_pending(const sl_engine *e)
{
    return e->remote ? e->remote->pending(e->remote->user) : atomic_load(&e->n_pending);
}
