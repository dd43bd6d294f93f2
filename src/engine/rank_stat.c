/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks hold, and what they did. */
#include "base/clock.h"
#include "engine/ranks.h"

static int64_t sum(const int64_t *v, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += v[i];
    return s;
}

int64_t engine_ranks_weight_bytes(const sl_engine *e)
{
    return e->ranks ? sum(e->ranks->weight_bytes, e->ranks->n) : model_weight_bytes(e->net);
}

int64_t engine_ranks_bytes_per_token(const sl_engine *e)
{
    return e->ranks ? sum(e->ranks->bytes_per_token, e->ranks->n) : model_bytes_per_token(e->net);
}

/* ---- what they count beside their devices ---- */

#define ASK_NS 2000000000 /* between two questions while there is work */

uint64_t engine_count_of(const model *net, enum engine_count what)
{
    struct model_hits h = model_hot_hits(net);
    struct model_streaming s;
    model_stream_get(net, &s);
    const uint64_t v[] = {[ENGINE_HOT_HIT] = h.n_hit,
                          [ENGINE_HOT_MISS] = h.n_miss,
                          [ENGINE_HOT_SAVED] = h.saved_bytes,
                          [ENGINE_STREAM_STEP] = s.n_step,
                          [ENGINE_STREAM_TOK] = s.n_tok,
                          [ENGINE_STREAM_BYTES] = s.n_bytes,
                          [ENGINE_STREAM_FROM] = s.n_layer ? 1 + (uint64_t)s.from : 0,
                          [ENGINE_STREAM_LAYERS] = (uint64_t)s.n_layer,
                          [ENGINE_STREAM_PASS] = (uint64_t)s.pass_bytes,
                          [ENGINE_STREAM_ROOM] = (uint64_t)s.room_bytes};
    return (unsigned)what < BASE_COUNT_OF(v) ? v[what] : 0;
}

static bool has_counts(const sl_engine *e)
{
    return e->net && (e->hot.any || e->opts.stream_from);
}

bool engine_counts_due(const sl_engine *e)
{
    const struct engine_counts *c = &e->counts;
    bool idle = e->stats.n_running + e->stats.n_waiting == 0;
    if (!e->ranks || engine_rank_here(e) || !has_counts(e)) return false;
    if (e->stats.n_step == c->n_step || atomic_load(&e->lost)) return false;
    return idle || clock_now_ns() - c->ns > ASK_NS;
}

/* A step that all stages have streamed is one. */
static sl_status take(sl_engine *e, enum engine_count what, sl_err *err)
{
    uint64_t of[DIST_RANK_MAX], *v = &e->counts.v[what];
    bool most = what == ENGINE_STREAM_STEP || what == ENGINE_STREAM_TOK;
    SL_TRY(engine_ranks_ask(e, SAY_COUNT, what, of, err));
    *v = 0;
    for (int r = 0; r < engine_n_rank(e); r++)
        *v = most ? BASE_MAX(*v, of[r]) : *v + of[r];
    return SL_OK;
}

void engine_counts_take(sl_engine *e)
{
    struct engine_counts *c = &e->counts;
    sl_status st = SL_OK;
    if (!e->ranks && has_counts(e))
        for (int i = 0; i < ENGINE_N_COUNT; i++)
            c->v[i] = engine_count_of(e->net, (enum engine_count)i);
    if (!engine_counts_due(e) || engine_ranks_busy(e)) return;
    c->n_step = e->stats.n_step;
    c->ns = clock_now_ns();
    for (int i = 0; i < ENGINE_N_COUNT && !st; i++)
        st = take(e, (enum engine_count)i, NULL); /* the next step says why */
}

int sl_ranks(const sl_engine *e, sl_rank_stat *out, int n)
{
    const struct engine_ranks *k = e->ranks;
    if (!k) return 1;
    for (int i = 0; i < n && i < k->n; i++) {
        struct dist_count c = dist_counts(k->end, i);
        struct model_dims d = engine_rank_dims(e, i);
        out[i] = (sl_rank_stat){
            .weight_bytes = k->weight_bytes[i],
            .n_join = c.n_join,
            .join_bytes = c.bytes,
            .stage = d.stage,
            .n_slot = model_slots_of(&d, k->n_slot),
            .wait_ms = (double)BASE_MAX(k->step_ns - c.busy_ns, 0) * 1e-6,
            .step_ms = (double)k->step_ns * 1e-6,
        };
        out[i].net_bytes = c.net;
        out[i].near_pages = k->near[i] ? (double)(k->near[i] - 1) * 1e-6 : -1;
        engine_home_stat(e, i, &out[i]);
    }
    if (n > 0) {
        out[0].link_us = k->link.us;
        out[0].link_gbps = k->link.gbps;
    }
    return k->n;
}
