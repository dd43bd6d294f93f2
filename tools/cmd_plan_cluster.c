/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --this-cluster: the CPU ranks that `sluice doctor --ranks --json` measured, as the
 * hardware of a query, and how the layout that was found is started on them. */
#include <string.h>

#include "cmd_plan.h"

/* A number above zero of an object; where: what the object is, for messages. */
static sl_status positive(const struct json *o, const char *where, const char *key, double *v,
                          sl_err *err)
{
    sl_status st = text_json_real(o, key, 0, v, err);
    if (st) status_prefix(err, "%.200s", where);
    if (st || *v > 0) return st;
    return SL_FAIL(err, FORMAT, "%.200s: %s must be above zero", where, key);
}

static sl_status read_rank(const struct json *o, const char *where, struct plan_cpu *out,
                           sl_err *err)
{
    if (o->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%.200s: no object", where);
    sl_status st = text_json_str(o, "host", "", &out->host, err);
    if (st) status_prefix(err, "%.200s", where);
    if (st) return st;
    if (!*out->host) return SL_FAIL(err, FORMAT, "%.200s: host is missing", where);
    SL_TRY(positive(o, where, "read_gbps", &out->gbps, err));
    SL_TRY(positive(o, where, "int8_gops", &out->gops, err));
    return positive(o, where, "mem_available", &out->mem, err);
}

/* Ranks of the first n on the host of rank i. */
static int on_host(const struct plan_cluster *c, int i, int n)
{
    int same = 0;
    for (int k = 0; k < n; k++)
        same += strcmp(c->rank[k].host, c->rank[i].host) == 0;
    return same;
}

static sl_status read_cluster(struct plan_run *r, sl_err *err)
{
    struct plan_cluster *c = &r->cluster;
    struct plan_bytes b;
    const struct json *root;
    void *mem;
    char where[256];
    SL_TRY(plan_slurp(r, r->o->this_cluster, &b, err));
    SL_TRY(text_json_parse(r->a, b.name, b.p, b.n, &root, err));
    const struct json *list = root->kind == JSON_OBJECT_K ? text_json_get(root, "ranks") : NULL;
    if (!list || list->kind != JSON_ARRAY_K || list->n == 0)
        return SL_FAIL(err, FORMAT,
                       "%.200s: no list of ranks: mpirun -n 2 sluice doctor --ranks --json writes "
                       "one",
                       b.name);
    SL_TRY(mem_arena_array(r->a, list->n, sizeof *c->rank, &mem, err));
    c->rank = mem;
    for (const struct json *o = list->child; o; o = o->next) {
        snprintf(where, sizeof where, "%.180s: rank %d", b.name, c->n);
        SL_TRY(read_rank(o, where, &c->rank[c->n], err));
        c->n++;
        c->n_host += on_host(c, c->n - 1, c->n) == 1;
    }
    if (c->n == 1) return SL_OK;
    SL_TRY(positive(root, b.name, "join_us", &c->join_us, err));
    return positive(root, b.name, "join_gbps", &c->join_gbps, err);
}

/* Shares are even, so the slowest of the ranks decides, and what a host has is divided by its
 * ranks. */
static void slowest(const struct plan_cluster *c, int n, struct plan_device *d)
{
    *d = (struct plan_device){.vendor = PLAN_CPU,
                              .dies = 1,
                              .cards_per_node = 1,
                              .alpha_link = c->join_us * 1e-6,
                              .link = c->join_gbps * 1e9};
    snprintf(d->name, sizeof d->name, "%d CPU rank%s of %d host%s", c->n, c->n == 1 ? "" : "s",
             c->n_host, c->n_host == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        const struct plan_cpu *a = &c->rank[i];
        double mem = a->mem / on_host(c, i, n), ops = a->gops * 1e9;
        if (i == 0 || a->gbps * 1e9 < d->bw) d->bw = a->gbps * 1e9;
        if (i == 0 || mem < d->mem) d->mem = mem;
        if (i == 0 || ops < d->peak[PLAN_NUM_INT8]) d->peak[PLAN_NUM_INT8] = ops;
    }
    d->peak[PLAN_NUM_BF16] = d->peak[PLAN_NUM_INT8] / 2;
}

sl_status plan_query_cluster(struct plan_run *r, sl_err *err)
{
    const struct plan_opts *o = r->o;
    struct plan_query *q = &r->q;
    void *mem;
    const char *other = o->hardware ? "--hardware" : o->host ? "--host" : NULL;
    if (other) return SL_FAIL(err, REQUEST, "contradiction: %s beside --this-cluster", other);
    SL_TRY(read_cluster(r, err));
    int n = r->cluster.n;
    SL_TRY(mem_arena_array(r->a, (size_t)n, sizeof *q->team, &mem, err));
    struct plan_device *team = mem;
    for (int i = 0; i < n; i++)
        slowest(&r->cluster, i + 1, &team[i]);
    const struct plan_cpu *one = &r->cluster.rank[0];
    SL_TRY(plan_here(r, one->gbps, one->gops, &q->here, err));
    q->here.v[PLAN_CPU_GBPS] /= one->gbps;
    q->here.v[PLAN_CPU_TOPS] /= one->gops * 1e-3;
    q->here.trust = o->bench ? PLAN_CALIBRATED : PLAN_UNCALIBRATED;
    snprintf(q->here.engine, sizeof q->here.engine, "%s",
             o->bench ? o->bench : "what doctor measured");
    q->team = team;
    q->n_team = n;
    q->cpu_only = true;
    q->dev = &team[n - 1];
    r->dev = team[n - 1];
    return SL_OK;
}

/* The hosts of the first n ranks, each once. */
static void print_hosts(const struct plan_cluster *c, int n)
{
    for (int i = 0, first = 1; i < n; i++) {
        if (on_host(c, i, i + 1) > 1) continue;
        printf("%s%s:%d", first ? "" : ",", c->rank[i].host, on_host(c, i, n));
        first = 0;
    }
}

void plan_print_start(const struct plan_run *r, const struct plan_option *o, const char *config)
{
    const struct plan_cluster *c = &r->cluster;
    int n = o->c.lay.tp, n_host = 0;
    for (int i = 0; i < n; i++)
        n_host += on_host(c, i, i + 1) == 1;
    printf("start: ");
    if (n > 1) printf("mpirun -n %d ", n);
    if (n_host > 1) {
        printf("--host ");
        print_hosts(c, n);
        printf(" --mca btl_tcp_if_include NETWORK ");
    }
    if (n > n_host) printf("--map-by numa ");
    if (n > 1) printf("%s ", n > n_host ? "--bind-to numa" : "--bind-to none");
    printf("sluice serve ");
    if (config)
        printf("--config %s\n", config);
    else {
        printf("-m %s", r->has_real ? r->o->common.model : "MODEL");
        printf(n > 1 ? " --layout tp=%d\n" : "\n", n);
    }
}
