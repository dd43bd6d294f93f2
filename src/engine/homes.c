/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks that have sequences of their own. Rank 0 plans for all: each has a scheduler and
 * a prefix tree here. A request goes to one when it comes, and stays; what is planned for all is
 * one step. */
#include <string.h>

#include "engine/apart.h"

#define SEQ_TOK 32 /* a sequence that is there weighs as much as so many tokens of a prompt */
#define ALIKE 0.02 /* loads that differ by no more are equal */

static int up(int n, int by)
{
    return (n + by - 1) / by;
}

void engine_homes_size(sl_engine *e)
{
    int n = e->n_home = engine_n_home(e);
    e->n_seat = up(e->n_seq_max, n);
    e->n_seq_max = n * e->n_seat;
    e->n_chunk = up(e->opts.n_chunk, n);
    e->opts.n_chunk = n * e->n_chunk;
}

sl_status engine_homes_alloc(sl_engine *e, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)e->n_home, sizeof *e->home, &p, err));
    e->home = p;
    for (int h = 0; h < e->n_home; h++) {
        e->home[h].pool = h ? &e->home[h].own_pool : &e->pool;
        e->home[h].sched = h ? &e->home[h].own_sched : &e->sched;
    }
    return SL_OK;
}

sl_status engine_homes_open(sl_engine *e, sl_err *err)
{
    struct sched_opts so = {.n_req_max = e->n_req_max,
                            .n_run_max = e->n_seat,
                            .n_chunk = e->n_chunk,
                            .n_ctx = e->n_ctx,
                            .n_row_max = e->n_row,
                            .n_sched = e->n_home,
                            .n_lane = e->n_lane,
                            .match = engine_match,
                            .away = engine_away_for,
                            .user = e};
    for (int h = 0; h < e->n_home; h++)
        SL_TRY(sched_init(e->home[h].sched, &so, e->home[h].pool, err));
    return SL_OK;
}

void engine_homes_close(sl_engine *e)
{
    for (int h = 0; e->home && h < e->n_home; h++)
        sched_fini(e->home[h].sched);
    if (e->score.blk) {
        kv_seq_clear(&e->pool, &e->score);
        kv_seq_fini(&e->score);
    }
    for (int h = 0; e->home && h < e->n_home; h++)
        kv_pool_fini(e->home[h].pool);
    mem_free(e->home);
}

/* ---- a request's home ---- */

/* Tokens at the beginning of a prompt that a request of that home has, too. */
static int shared(const sl_engine *e, const struct group *g, int home)
{
    const struct request *r = g->r[0];
    int most = 0;
    for (int i = 0; i < e->n_req_max; i++) {
        const struct request *o = e->req[i];
        if (!o || o->home != home || o->g->no_cache || o->g->salt != g->salt) continue;
        int n = 0, end = BASE_MIN(o->n_prompt, r->n_prompt - 1);
        while (n < end && o->ids[n] == r->ids[n])
            n++;
        most = BASE_MAX(most, n / ENGINE_BLK_TOK * ENGINE_BLK_TOK);
    }
    return most;
}

static int hit_of(const sl_engine *e, const struct group *g, int home)
{
    const struct request *r = g->r[0];
    if (g->no_cache || g->embed || g->echo) return 0;
    struct kv_path path = engine_path(e, r);
    int n = kv_cache_probe(e->home[home].pool, &path, r->n_ids - 1);
    return BASE_MAX(n, shared(e, g, home));
}

int engine_home_for(const sl_engine *e, const struct group *g)
{
    int best = 0, best_hit = 0;
    double least = 0;
    for (int h = 0; h < e->n_home && e->n_home > 1; h++) {
        struct sched_load l = sched_load_get(e->home[h].sched, -1);
        struct sched_totals t = sched_totals_get(e->home[h].sched);
        int hit = hit_of(e, g, h);
        double load = (double)(l.n_left + g->n_prompt - hit) + SEQ_TOK * (t.n_run + t.n_wait + 1.0);
        double margin = ALIKE * BASE_MAX(least, load);
        if (h && load >= least - margin && (load > least + margin || hit <= best_hit)) continue;
        best = h;
        best_hit = hit;
        least = load;
    }
    return best;
}

/* ---- steps ---- */

/* What the others have, for each. */
static void tell_beside(sl_engine *e, int lane)
{
    struct sched_beside all = {0};
    struct sched_load load[DIST_RANK_MAX];
    for (int h = 0; h < e->n_home; h++) {
        load[h] = sched_load_get(e->home[h].sched, lane);
        all.n_decode += load[h].n_decode;
        all.n_wait += load[h].n_prompt;
        all.n_with += load[h].n_prompt > 0;
    }
    for (int h = 0; h < e->n_home; h++) {
        struct sched_beside b = all;
        b.n_decode -= load[h].n_decode;
        b.n_wait -= load[h].n_prompt;
        b.n_with -= load[h].n_prompt > 0;
        sched_beside(e->home[h].sched, &b);
    }
}

static void add_plan(const sl_engine *e, struct engine_lane *l, int home,
                     const struct sched_plan *p)
{
    struct sched_plan *to = &l->plan;
    for (int i = 0; i < p->n_item; i++) {
        struct sched_item *it = &to->item[to->n_item++];
        *it = p->item[i];
        it->seat += home * e->n_seat;
    }
    to->n_tok += p->n_tok;
    to->n_decode += p->n_decode;
    to->n_draft += p->n_draft;
    to->n_preempt += p->n_preempt;
    to->n_spent += p->n_spent;
    int32_t blk0 = engine_blk0(e, home, DEV_KV_STATE);
    for (int i = 0; i < p->n_copy; i++)
        to->copy[to->n_copy++] = (struct sched_copy){blk0 + p->copy[i].src, blk0 + p->copy[i].dst};
    struct sched_planned n = sched_planned(e->home[home].sched);
    l->planned.n_decode += n.n_decode;
    l->planned.n_prompt += n.n_prompt;
    l->planned.depth += n.depth;
}

void engine_plan(sl_engine *e, struct engine_lane *l)
{
    int lane = (int)(l - e->lane);
    l->plan = (struct sched_plan){.item = l->item, .copy = l->copy};
    l->planned = (struct sched_planned){0};
    if (e->n_home > 1) tell_beside(e, lane);
    for (int h = 0; h < e->n_home; h++)
        add_plan(e, l, h, sched_step_lane(e->home[h].sched, lane));
}

void engine_homes_observe(sl_engine *e, const struct engine_lane *l, int64_t ns)
{
    for (int h = 0; h < e->n_home; h++)
        sched_observe_all(e->home[h].sched, &l->planned, ns);
}

void engine_homes_learn(sl_engine *e, int n_decode, int n_prompt, int64_t ns)
{
    for (int h = 0; h < e->n_home; h++)
        sched_learn(e->home[h].sched, n_decode, n_prompt, ns);
}

int engine_running(const sl_engine *e, int i)
{
    for (int h = 0; h < e->n_home; h++) {
        int n = sched_totals_get(e->home[h].sched).n_run;
        if (i < n) return sched_running(e->home[h].sched, i);
        i -= n;
    }
    return -1;
}

/* ---- what they are told, and hold ---- */

int64_t engine_ranks_source_bytes(const sl_engine *e)
{
    const io_model *io = e->m->io;
    int64_t n = 0;
    if (engine_n_home(e) == 1) return e->m->bytes;
    for (int r = 0; r < engine_n_rank(e); r++) {
        struct model_dims d = engine_rank_dims(e, r);
        d.n_slot = model_slots_of(&d, e->m->cfg.n_expert + e->opts.redundant);
        for (int i = 0; engine_rank_is_here(e, r) && i < io_n_tensor(io); i++) {
            const struct tensor *t = io_tensor(io, i);
            n += model_slice_bytes(&e->m->cfg, &d, t->name, (int64_t)t->n_bytes);
        }
    }
    return n;
}

static sl_status check_micro(const sl_engine *e, int n_dp, sl_err *err)
{
    int n = e->opts.micro;
    if (n < 0 || n > 2) return SL_FAIL(err, REQUEST, "micro: %d: 1 or 2", n);
    if (n < 2 || n_dp > 1) return SL_OK;
    return SL_FAIL(err, REQUEST, "micro: 2: goes with a layout with dp");
}

sl_status engine_dispatch_check(const sl_engine *e, int n_dp, sl_err *err)
{
    const char *text = e->opts.dispatch;
    SL_TRY(check_micro(e, n_dp, err));
    if (!text || strcmp(text, "auto") == 0) return SL_OK;
    if (strcmp(text, "gather") != 0 && strcmp(text, "swap") != 0)
        return SL_FAIL(err, REQUEST, "dispatch: \"%.40s\": auto, gather or swap", text);
    if (n_dp > 1) return SL_OK;
    return SL_FAIL(err, REQUEST, "dispatch: %s: goes with a layout with dp", text);
}

void engine_home_stat(const sl_engine *e, int i, sl_rank_stat *s)
{
    struct model_dims d = engine_rank_dims(e, i);
    if (!model_is_last(&d) || d.rank) return;
    const struct kv_pool *p = e->home[d.dp].pool;
    struct sched_totals t = sched_totals_get(e->home[d.dp].sched);
    s->n_running = t.n_run;
    s->n_waiting = t.n_wait;
    s->kv_used_tok = (int64_t)(p->n_blk - kv_pool_avail(p)) * p->blk_tok;
    s->kv_total_tok = (int64_t)p->n_blk * p->blk_tok;
}
