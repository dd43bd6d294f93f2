/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --this-box: the ranks that a process of this machine may be parts of, as `doctor
 * --ranks` measures processes. */
#include <string.h>

#include "cmd_plan.h"
#include "os/os.h"
#include "par/par.h"
#include "rank_probe.h"

/* A rank: its thread, or the caller's. */
struct part {
    dist *end;
    struct dev_opts opts;
    struct rank_turn turn;
    struct rank_speed speed;
    struct rank_ways way;
    sl_status st;
    sl_err err;
};

/* A rank that fails tells the others, which wait for it. */
static void measure(void *arg)
{
    struct part *p = arg;
    dev *d = NULL;
    p->st = dev_open("cpu", &p->opts, &d, &p->err);
    if (p->st && p->end) dist_fail(p->end, &p->err);
    if (!p->st) p->st = rank_speed_get(p->end, d, &p->turn, &p->speed, &p->err);
    dev_close(d);
    if (!p->st && p->end) p->st = rank_ways_get(p->end, dist_size(p->end), &p->way, &p->err);
}

static sl_status run_parts(struct part *p, int n, sl_err *err)
{
    par_side *side[DIST_RANK_MAX] = {0};
    sl_status st = SL_OK;
    for (int i = 1; i < n && !st; i++)
        st = par_side_open(measure, &p[i], &side[i], err);
    if (st)
        dist_fail(p[0].end, err);
    else
        measure(&p[0]);
    for (int i = 1; i < n; i++)
        par_side_close(side[i]);
    for (int i = 0; i < n && !st; i++) {
        st = p[i].st;
        if (st && err) *err = p[i].err;
    }
    return st;
}

static void put(const struct part *p, double mem, struct plan_cpu *out)
{
    *out = (struct plan_cpu){.host = "here",
                             .gbps = p->speed.all.gbps,
                             .gops = p->speed.all.gops,
                             .alone_gbps = p->speed.alone.gbps,
                             .alone_gops = p->speed.alone.gops,
                             .mem = mem,
                             .op_us = p->speed.op_us,
                             .n_node = 1};
}

static struct plan_link link_of(const struct rank_way *w)
{
    return (struct plan_link){w->us * 1e-6, w->gbps * 1e9};
}

sl_status plan_box(struct plan_run *r, sl_err *err)
{
    static struct part part[DIST_RANK_MAX];
    struct plan_cluster *c = &r->cluster;
    struct os_topology top;
    dist *end[DIST_RANK_MAX];
    void *mem;
    SL_TRY(os_topology_get(&top, err));
    int threads = r->o->common.threads;
    if (!threads) threads = os_within_quota(&top, top.n_core);
    int n = r->o->box_ranks ? r->o->box_ranks : BASE_MAX(top.n_numa, 1);
    if (n > threads)
        return SL_FAIL(err, REQUEST, "--ranks %d: a thread each is needed, there are %d", n,
                       threads);
    SL_TRY(mem_arena_array(r->a, (size_t)n, sizeof *c->rank, &mem, err));
    c->rank = mem;
    struct dist_opts team = {.n_join = 1, .crowded = threads / n * n > top.n_pu};
    if (n > 1) SL_TRY(dist_team_open(n, &team, end, err));
    for (int i = 0; i < n; i++)
        part[i] = (struct part){.end = n > 1 ? end[i] : NULL,
                                .opts = {.n_thread = threads / n, .rank = i, .n_rank = n},
                                .turn = {i, n}};
    sl_status st = run_parts(part, n, err);
    if (n > 1) dist_close(end[0]);
    SL_TRY(st);
    for (int i = 0; i < n; i++)
        put(&part[i], (double)top.mem_available, &c->rank[c->n++]);
    c->n_host = 1;
    c->n_node = top.n_numa;
    c->n_thread = threads / n;
    c->op = part[0].speed.op_us * 1e-6;
    c->all = c->hosts = link_of(&part[0].way.all);
    c->hop = link_of(&part[0].way.hop);
    c->step = part[0].way.step_us * 1e-6;
    return SL_OK;
}
