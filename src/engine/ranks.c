/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that share a model within this process. The engine's own device, model and cache are
 * those of rank 0, the home rank; each other rank has a thread, a device, a model and a cache of
 * its own, and runs the steps that home tells it. */
#include "base/clock.h"
#include "engine/engine_internal.h"
#include "os/os.h"
#include "os/word.h"
#include "par/par.h"

/* What the others are told. */
struct message {
    const struct dev_step *step; /* NULL: write zeros to blocks of a group of the cache */
    const int32_t *blk;
    int group, n_blk;
};

struct rank {
    struct engine_ranks *all;
    dist *end;
    par_side *side;
    dev *d;
    model *net;
    dev_kv *kv;
    struct model_opts opts;
    struct dev_kv_shape shape;
    sl_status st; /* of opening, and why; published by is_open */
    sl_err err;
    struct os_word is_open;
};

struct engine_ranks {
    struct dev_opts dopts;
    sl_model *m;
    const char *device;
    int n;
    struct message msg; /* the last one */
    int64_t step_ns;    /* of all steps */
    struct rank rank[DIST_RANK_MAX];
};

/* ---- the other ranks' threads ---- */

static sl_status open_rank(struct rank *r, sl_err *err)
{
    struct dev_opts o = r->all->dopts;
    o.rank = r->opts.rank;
    SL_TRY(dev_open(r->all->device, &o, &r->d, err));
    SL_TRY(model_open(r->all->m->io, r->d, &r->opts, &r->net, err));
    return dev_kv_open(r->d, &r->shape, &r->kv, err);
}

static void obey(struct rank *r, const struct message *msg)
{
    struct model_rows rows;
    sl_err err = {0};
    if (!msg->step) {
        dev_kv_touch(r->d, r->kv, msg->group, msg->blk, msg->n_blk);
        return;
    }
    struct dev_step s = *msg->step;
    sl_status st = model_launch(r->net, r->kv, &s, &err);
    s.want = 0; /* results are home's */
    if (!st) st = model_wait(r->net, &rows, &err);
    if (st) dist_fail(r->end, &err);
}

static void rank_main(void *arg)
{
    struct rank *r = arg;
    r->st = open_rank(r, &r->err);
    os_word_raise(&r->is_open);
    for (const struct message *msg; (msg = dist_hear(r->end));) {
        obey(r, msg);
        dist_done(r->end);
    }
}

/* ---- home ---- */

sl_status engine_ranks_parse(sl_engine *e, struct dev_opts *o, sl_err *err)
{
    struct dist_layout l;
    struct os_topology top;
    dist *end[DIST_RANK_MAX];
    void *p = NULL;
    if (!e->opts.layout) return SL_OK;
    SL_TRY(dist_layout_parse(e->opts.layout, &l, err));
    if (l.tp == 1) return SL_OK;
    if (o->n_thread && o->n_thread < l.tp)
        return SL_FAIL(err, REQUEST, "layout: %d ranks need a thread each, there are %d threads",
                       l.tp, o->n_thread);
    SL_TRY(os_topology_get(&top, err));
    int n_thread = o->n_thread ? o->n_thread : os_within_quota(&top, top.n_core);
    o->n_thread = BASE_MAX(n_thread / l.tp, 1);
    o->n_rank = l.tp;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct engine_ranks), &p, err));
    struct dist_opts team = {.crowded = o->n_thread * l.tp > top.n_pu};
    sl_status st = dist_team_open(l.tp, &team, end, err);
    if (st) {
        mem_free(p);
        return st;
    }
    struct engine_ranks *k = e->ranks = p;
    k->dopts = *o;
    k->m = e->m;
    k->device = e->opts.device;
    k->n = l.tp;
    for (int i = 0; i < l.tp; i++) {
        k->rank[i].all = k;
        k->rank[i].end = end[i];
    }
    return SL_OK;
}

int engine_n_rank(const sl_engine *e)
{
    return e->ranks ? e->ranks->n : 1;
}

struct model_dims engine_rank_dims(const sl_engine *e, int rank)
{
    return model_dims_of(&e->m->cfg, rank, engine_n_rank(e));
}

void engine_ranks_model(sl_engine *e, struct model_opts *o)
{
    struct engine_ranks *k = e->ranks;
    if (!k) return;
    o->n_rank = k->n;
    o->keep_bytes /= k->n;
    for (int i = k->n - 1; i >= 0; i--) {
        struct rank *r = &k->rank[i];
        r->opts = *o;
        r->opts.rank = i;
        r->opts.dist = r->end;
        r->opts.progress = NULL; /* home's tells how far it is */
        r->opts.place = NULL;    /* home is on one device, or has refused */
    }
    o->dist = k->rank[0].end;
}

sl_status engine_ranks_open(sl_engine *e, const struct dev_kv_shape *kv, sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    for (int i = 1; k && i < k->n; i++) {
        struct rank *r = &k->rank[i];
        r->shape = kv[i];
        SL_TRY(par_side_open(rank_main, r, &r->side, err));
        /* one after another: pages that one gives up are not being read by the next */
        (void)os_word_sleep(&r->is_open, 1, -1);
        if (!r->st) continue;
        if (err) *err = r->err;
        return r->st;
    }
    return SL_OK;
}

void engine_ranks_close(sl_engine *e)
{
    struct engine_ranks *k = e->ranks;
    if (!k) return;
    dist_tell(k->rank[0].end, NULL);
    for (int i = 1; i < k->n; i++) {
        par_side_close(k->rank[i].side);
        model_close(k->rank[i].net);
        dev_close(k->rank[i].d);
    }
    dist_team_close(k->rank[0].end);
    mem_free(k);
    e->ranks = NULL;
}

static sl_status run_here(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                          sl_err *err)
{
    SL_TRY(model_launch(e->net, e->kv, s, err));
    return model_wait(e->net, out, err);
}

sl_status engine_ranks_run(sl_engine *e, const struct dev_step *s, struct model_rows *out,
                           sl_err *err)
{
    struct engine_ranks *k = e->ranks;
    if (!k) return run_here(e, s, out, err);
    dist *home = k->rank[0].end;
    sl_err why = {0};
    int64_t t0 = clock_now_ns();
    k->msg = (struct message){.step = s};
    dist_tell(home, &k->msg);
    if (run_here(e, s, out, &why)) dist_fail(home, &why);
    sl_status st = dist_all_done(home, &why);
    k->step_ns += clock_now_ns() - t0;
    return st ? SL_FAIL(err, DEVICE, "layout: %.200s", why.text) : SL_OK; /* no rank goes on */
}

void engine_kv_touch(sl_engine *e, int group, const int32_t *blk, int n)
{
    struct engine_ranks *k = e->ranks;
    sl_err why;
    dev_kv_touch(e->d, e->kv, group, blk, n);
    if (!k) return;
    k->msg = (struct message){.blk = blk, .group = group, .n_blk = n};
    dist_tell(k->rank[0].end, &k->msg);
    if (dist_all_done(k->rank[0].end, &why)) return; /* the next step says it again */
}

int64_t engine_ranks_bytes(const sl_engine *e, int64_t (*of)(const model *m))
{
    int64_t n = of(e->net);
    for (int i = 1; i < engine_n_rank(e); i++)
        n += of(e->ranks->rank[i].net);
    return n;
}

int sl_ranks(const sl_engine *e, sl_rank_stat *out, int n)
{
    const struct engine_ranks *k = e->ranks;
    if (!k) return 1;
    for (int i = 0; i < n && i < k->n; i++) {
        const struct rank *r = &k->rank[i];
        struct dist_count c = dist_counts(r->end);
        out[i] = (sl_rank_stat){
            .weight_bytes = model_weight_bytes(i ? r->net : e->net),
            .n_join = c.n_join,
            .join_bytes = c.bytes,
            .wait_ms = (double)c.wait_ns * 1e-6,
            .step_ms = (double)k->step_ns * 1e-6,
        };
    }
    return k->n;
}
