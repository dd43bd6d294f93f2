/* SPDX-License-Identifier: Apache-2.0 */
/* What is computed of a prompt for another engine goes there layer by layer, while the layers that
 * follow are computed: pages of the blocks that a step fills, or that were filled before. What is
 * not taken now is offered again; the request keeps its blocks until all of it has gone. */
#include <string.h>

#include "engine/apart.h"

sl_status engine_give_check(const sl_engine *e, const sl_request *q, sl_err *err)
{
    if (!q->on_kv)
        return q->kv_from ? SL_FAIL(err, REQUEST, "kv_from: goes with on_kv") : SL_OK;
    if (q->n > 1 || q->embed || q->grammar || q->n_given || q->echo_logprob)
        return SL_FAIL(err, REQUEST,
                       "on_kv: not together with n, embed, grammar, given or echo_logprob");
    if (q->kv_from < 0 || q->kv_from % ENGINE_BLK_TOK)
        return SL_FAIL(err, REQUEST, "kv_from: %d: a multiple of %d", q->kv_from, ENGINE_BLK_TOK);
    return e->remote ? SL_OK : engine_pages_check(e, err);
}

sl_status engine_give_open(sl_engine *e, sl_err *err)
{
    void *p = NULL;
    if (engine_pages_check(e, NULL)) return SL_OK;
    SL_TRY(mem_alloc(MEM_SCRATCH, engine_page_most(e), &p, err));
    e->giving.page = p;
    return SL_OK;
}

void engine_give_close(sl_engine *e)
{
    mem_free(e->giving.page);
}

void engine_give_begin(sl_engine *e, struct request *r)
{
    e->giving.n++;
    r->give.blk0 = r->give.blk1 = r->give.blk = r->g->kv_from / ENGINE_BLK_TOK;
}

void engine_give_end(sl_engine *e)
{
    e->giving.n--;
    engine_far_forget(e);
}

/* What is there: positions [0, done) in all layers, and [done, end) in the first n_layer. */
struct there {
    int done, end, n_layer;
};

/* Blocks that positions before end fill; the prompt's last one need not be full. */
static int filled(const struct request *r, int end)
{
    return end >= r->n_prompt ? engine_blocks(r->n_prompt) : end / ENGINE_BLK_TOK;
}

/* The blocks that go next, in all layers one after another. False: there are none yet. */
static bool next_blocks(struct request *r, const struct there *t)
{
    struct engine_given *g = &r->give;
    int done = filled(r, t->done), to = done > g->blk1 ? done : filled(r, t->end);
    if (to <= g->blk1) return false;
    *g = (struct engine_given){.blk0 = g->blk1, .blk1 = to, .blk = g->blk1};
    return true;
}

/* Has the MTP layer stored all entries of block j, as of a text that begins at 0? */
static bool has_entries(const sl_engine *e, const struct request *r, int j, int32_t blk)
{
    bool whole = (j + 1) * ENGINE_BLK_TOK <= r->n_prompt;
    if (!whole) return r->mtp_from == 0 && r->mtp_done >= r->n_prompt;
    return e->mtp.from[engine_blk0(e, r->home, DEV_KV_PAGED) + blk] == 0;
}

/* False: not now. */
static bool give_page(sl_engine *e, struct request *r)
{
    const struct engine_given *g = &r->give;
    const struct kv_seq *seq = engine_req_seq(e, r);
    if (g->layer >= e->m->cfg.n_layer && !has_entries(e, r, g->blk, seq->blk[g->blk])) return true;
    if (!engine_page_needed(e, g->layer, g->blk, r->n_prompt)) return true;
    struct engine_page_at at = {.home = r->home, .layer = g->layer};
    at.blk = engine_page_blk(e, r->home, g->layer, seq->blk[g->blk]);
    sl_kv_page p = {.block = g->blk,
                    .layer = g->layer,
                    .bytes = e->giving.page,
                    .n_bytes = engine_page_bytes(e, g->layer)};
    if (!engine_is_far(e)) {
        engine_page_get(e, &at, e->giving.page);
    } else {
        struct engine_far_of of = {.r = r, .j = g->blk};
        for (int j = g->blk; j < g->blk1 && of.n < ENGINE_FAR_PAGES; j++)
            of.blk[of.n++] = engine_page_blk(e, r->home, g->layer, seq->blk[j]);
        if (!engine_far_get(e, &at, &of, e->giving.page)) return false;
    }
    p.sum = engine_page_sum(&p);
    if (!r->g->on_kv(r->g->user, &p)) return false;
    e->stats.kv_out_bytes += p.n_bytes;
    return true;
}

/* All that is there and is taken. True: all that was asked for has gone. */
static bool give(sl_engine *e, struct request *r, const struct there *t)
{
    struct engine_given *g = &r->give;
    int n_layer = engine_pages_layers(e);
    for (;;) {
        if (g->blk0 == g->blk1 || g->layer == n_layer) {
            if (next_blocks(r, t)) continue;
            return t->done >= r->n_prompt;
        }
        int last = BASE_MIN(g->blk1 * ENGINE_BLK_TOK, r->n_prompt);
        bool is_there = last <= t->done || (last <= t->end && g->layer < t->n_layer);
        if (!is_there || !give_page(e, r)) return false;
        if (++g->blk < g->blk1) continue;
        g->blk = g->blk0;
        g->layer++;
    }
}

/* Pages of other processes are asked for while no lane's step is under way. */
static void make_way(sl_engine *e)
{
    for (int i = 0; e->n_lane > 1 && engine_is_far(e) && i < e->n_req_max && e->giving.n; i++) {
        struct request *r = e->req[i];
        if (!r || !r->g->on_kv) continue;
        const struct sched_req *q = engine_sched_req(e, r);
        const struct engine_given *g = &r->give;
        int done = q->state == SCHED_RUNNING ? q->n_done - q->n_flight : 0;
        bool rest = g->blk0 < g->blk1 && g->layer < engine_pages_layers(e);
        if (done < r->n_prompt && !rest && done / ENGINE_BLK_TOK <= g->blk1) continue;
        engine_lanes_drain(e);
        return;
    }
}

void engine_give_step(sl_engine *e)
{
    make_way(e);
    for (int i = 0; i < e->n_req_max && e->giving.n; i++) {
        struct request *r = e->req[i];
        if (!r || !r->g->on_kv) continue;
        const struct sched_req *q = engine_sched_req(e, r);
        if (q->state != SCHED_RUNNING) continue;
        int done = q->n_done - q->n_flight;
        struct there t = {.done = done, .end = done};
        if (!give(e, r, &t)) continue;
        e->stats.n_kv_out++;
        engine_request_end(e, r, -1, SL_FINISH_LENGTH, NULL);
    }
}

/* The step has come through a layer. */
static void on_layer(void *user, int layer)
{
    sl_engine *e = user;
    const struct sched_plan *p = e->giving.plan;
    for (int i = 0; p && i < p->n_item; i++) {
        const struct sched_item *it = &p->item[i];
        struct request *r = engine_item_req(e, it);
        if (!r) continue;
        struct there t = {.done = it->pos0, .end = it->pos0 + it->n_tok, .n_layer = layer + 1};
        if (r->g->on_kv && layer < e->m->cfg.n_layer) (void)give(e, r, &t);
    }
}

void engine_give_watch(sl_engine *e, const struct sched_plan *p)
{
    bool on = p && e->giving.n && !engine_is_far(e);
    if (!on && !e->giving.plan) return;
    e->giving.plan = on ? p : NULL;
    model_watch(e->net, on ? on_layer : NULL, e);
}
