/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan --this-cluster: the CPU ranks that `sluice doctor --ranks --json` measured, as the
 * hardware of a query, and how the layout that was found is started on them. */
#include <math.h>
#include <string.h>

#include "cmd_plan.h"
#include "dev/figures.h"

#define OP_US 2.0 /* where the file does not say */

/* A number above zero of an object; where: what the object is, for messages. */
static sl_status positive(const struct json *o, const char *where, const char *key, double *v,
                          sl_err *err)
{
    sl_status st = text_json_real(o, key, 0, v, err);
    if (st) status_prefix(err, "%.200s", where);
    if (st || *v > 0) return st;
    return SL_FAIL(err, FORMAT, "%.200s: %s must be above zero", where, key);
}

/* The same of one that files of earlier versions do not have. */
static sl_status maybe(const struct json *o, const char *where, const char *key, double def,
                       double *v, sl_err *err)
{
    *v = def;
    return text_json_get(o, key) ? positive(o, where, key, v, err) : SL_OK;
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
    SL_TRY(maybe(o, where, "alone_gbps", out->gbps, &out->alone_gbps, err));
    SL_TRY(maybe(o, where, "alone_gops", out->gops, &out->alone_gops, err));
    SL_TRY(maybe(o, where, "op_us", OP_US, &out->op_us, err));
    SL_TRY(maybe(o, where, "numa_nodes", 1, &out->n_node, err));
    return positive(o, where, "mem_available", &out->mem, err);
}

/* A link of the file: PRE_us and PRE_gbps; like: where it has none. */
static sl_status read_link(const struct json *root, const char *name, const char *pre,
                           const struct plan_link *like, struct plan_link *out, sl_err *err)
{
    char key[32];
    double us, gbps;
    snprintf(key, sizeof key, "%s_us", pre);
    SL_TRY(like ? maybe(root, name, key, like->lat * 1e6, &us, err)
                : positive(root, name, key, &us, err));
    snprintf(key, sizeof key, "%s_gbps", pre);
    SL_TRY(like ? maybe(root, name, key, like->bw * 1e-9, &gbps, err)
                : positive(root, name, key, &gbps, err));
    *out = (struct plan_link){us * 1e-6, gbps * 1e9};
    return SL_OK;
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
    if (list->n > PLAN_RANK_MAX)
        return SL_FAIL(err, FORMAT, "%.200s: %zu ranks: at most %d share a model", b.name, list->n,
                       PLAN_RANK_MAX);
    for (const struct json *o = list->child; o; o = o->next) {
        snprintf(where, sizeof where, "%.180s: rank %d", b.name, c->n);
        SL_TRY(read_rank(o, where, &c->rank[c->n], err));
        c->op = fmax(c->op, c->rank[c->n].op_us * 1e-6);
        c->n++;
        c->n_host += on_host(c, c->n - 1, c->n) == 1;
    }
    if (c->n == 1) return SL_OK;
    SL_TRY(read_link(root, b.name, "join", NULL, &c->all, err));
    SL_TRY(read_link(root, b.name, "host_join", &c->all, &c->hosts, err));
    SL_TRY(read_link(root, b.name, "hop", &c->all, &c->hop, err));
    double us;
    SL_TRY(maybe(root, b.name, "step_us", 2e6 * c->all.lat, &us, err));
    c->step = us * 1e-6;
    return SL_OK;
}

/* Ranks of each host where all have as many, one after another; else 1. */
static int per_host(const struct plan_cluster *c)
{
    int n = on_host(c, 0, c->n);
    for (int i = 0; i < c->n; i++)
        if (c->n % n || strcmp(c->rank[i].host, c->rank[i / n * n].host) != 0) return 1;
    return n;
}

/* Each rank, and which of the hosts it is on. */
static sl_status put_ranks(struct plan_run *r, sl_err *err)
{
    const struct plan_cluster *c = &r->cluster;
    struct plan_rank *to;
    void *mem;
    SL_TRY(mem_arena_array(r->a, (size_t)c->n, sizeof *to, &mem, err));
    r->q.links.rank = to = mem;
    for (int i = 0; i < c->n; i++) {
        int host = 0;
        while (strcmp(c->rank[host].host, c->rank[i].host) != 0)
            host++;
        const struct plan_cpu *a = &c->rank[i];
        to[i] = (struct plan_rank){.bw = a->gbps * 1e9,
                                   .ops = a->gops * 1e9,
                                   .mem = a->mem,
                                   .host = host,
                                   .n_here = on_host(c, i, c->n),
                                   .bw_alone = a->alone_gbps * 1e9,
                                   .ops_alone = a->alone_gops * 1e9};
    }
    return SL_OK;
}

/* Of even shares: the slowest of the ranks decides, and what a host has is divided by its ranks. */
static void slowest(const struct plan_cluster *c, int n, struct plan_device *d)
{
    *d = (struct plan_device){.vendor = PLAN_CPU,
                              .dies = 1,
                              .cards_per_node = 1};
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
    if (other)
        return SL_FAIL(err, REQUEST, "contradiction: %s beside --this-%s", other,
                       o->this_box ? "box" : "cluster");
    if (o->this_box && o->this_cluster)
        return SL_FAIL(err, REQUEST, "contradiction: --this-box beside --this-cluster");
    SL_TRY(o->this_box ? plan_box(r, err) : read_cluster(r, err));
    int n = r->cluster.n;
    SL_TRY(mem_arena_array(r->a, (size_t)n, sizeof *q->team, &mem, err));
    struct plan_device *team = mem;
    for (int i = 0; i < n; i++)
        slowest(&r->cluster, i + 1, &team[i]);
    const struct plan_cpu *one = &r->cluster.rank[0];
    q->links = (struct plan_team){n,
                                  per_host(&r->cluster),
                                  r->cluster.hosts,
                                  r->cluster.all,
                                  r->cluster.hop,
                                  r->cluster.op,
                                  r->cluster.step,
                                  dev_figures_fused(q->model->hidden),
                                  NULL};
    SL_TRY(put_ranks(r, err));
    q->team = team;
    struct plan_speed base = {one->alone_gbps, one->alone_gops}; /* of one rank, as of --bench */
    SL_TRY(plan_here(r, &base, &q->here, err));
    q->here.v[PLAN_CPU_GBPS] /= base.gbps;
    q->here.v[PLAN_CPU_TOPS] /= base.gops * 1e-3;
    q->here.trust = o->bench ? PLAN_CALIBRATED : PLAN_UNCALIBRATED;
    snprintf(q->here.engine, sizeof q->here.engine, "%s",
             o->bench ? o->bench : "what doctor measured");
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

int plan_nodes_default(const struct plan_run *r)
{
    const struct plan_cluster *c = &r->cluster;
    struct plan_layout l = {.tp = c->n_node, .pp = 1, .dp = 1, .ep = 1};
    if (!r->o->this_box || c->n_node < 2) return 0;
    return plan_team_can(r->q.model, &l) ? c->n_node : 1;
}

void plan_start_layout(const struct plan_run *r, const struct plan_layout *l,
                       char out[PLAN_LAYOUT_TEXT])
{
    const struct plan_cluster *c = &r->cluster;
    bool nodes = r->q.team && (plan_nodes_default(r) > 1 || c->rank[0].n_node > 1);
    plan_layout_text(l, out);
    if (!*out && nodes) snprintf(out, PLAN_LAYOUT_TEXT, "tp=1");
}

int plan_start_threads(const struct plan_run *r, const struct plan_layout *l)
{
    const struct plan_cluster *c = &r->cluster;
    return r->o->this_box && l->ranks < c->n ? l->ranks * c->n_thread : 0;
}

void plan_print_start(const struct plan_run *r, const struct plan_option *o, const char *config)
{
    const struct plan_cluster *c = &r->cluster;
    int n = o->c.lay.ranks, n_host = 0;
    for (int i = 0; i < n; i++)
        n_host += on_host(c, i, i + 1) == 1;
    printf("start: ");
    bool threads = r->o->this_box; /* ranks are parts of the process */
    if (threads) n_host = n;
    if (n > 1 && !threads) printf("mpirun -n %d ", n);
    if (n_host > 1 && !threads) {
        printf("--host ");
        print_hosts(c, n);
        printf(" --mca btl_tcp_if_include NETWORK ");
    }
    if (n > n_host) printf("--map-by numa ");
    if (n > 1 && !threads) printf("%s ", n > n_host ? "--bind-to numa" : "--bind-to none");
    printf("sluice serve ");
    if (config)
        printf("--config %s\n", config);
    else {
        char layout[PLAN_LAYOUT_TEXT];
        int n_thread = plan_start_threads(r, &o->c.lay);
        plan_start_layout(r, &o->c.lay, layout);
        printf("-m %s", r->has_real ? r->o->common.model : "MODEL");
        printf(*layout ? " --layout %s" : "%s", layout);
        if (n_thread) printf(" -t %d", n_thread);
        printf("%s%s\n", o->c.lay.swap ? " --dispatch swap" : "",
               o->c.lay.halves ? " --micro 2" : "");
    }
    int def = plan_nodes_default(r);
    if (def > 1)
        printf("without --layout it is tp=%d: a rank on each memory node\n", def);
    else if (def)
        printf("without --layout it is one rank: the model can not be shared by all nodes\n");
}

#define MANY 256.0 /* requests at a time, where nothing else is said */

/* The best layout for one user's time a token, and for the rate of as many as it holds. */
static sl_status goal(struct plan_run *r, bool many, struct plan_option *out, bool *any,
                      sl_err *err)
{
    struct plan_query q = r->q;
    struct plan_found f;
    int bit = many ? PLAN_GOAL_RATE : PLAN_GOAL_TPOT;
    q.load.rate = 0;
    q.load.n = many ? 0 : 1;
    q.limit.batch = q.limit.batch > 0 ? q.limit.batch : MANY;
    SL_TRY(plan_search(&r->book, &q, r->a, 3, &f, err));
    *any = false;
    for (int i = 0; i < f.n_option && !*any; i++) {
        if (!(f.option[i].goals & bit)) continue;
        *out = f.option[i];
        *any = true;
    }
    return SL_OK;
}

sl_status plan_goals(struct plan_run *r, struct json_w *w, sl_err *err)
{
    static const char *const key[] = {"one_user", "many_users"};
    for (int i = 0; i < 2; i++) {
        struct plan_option o;
        bool any = false;
        char layout[PLAN_LAYOUT_TEXT];
        SL_TRY(goal(r, i == 1, &o, &any, err));
        if (!any) continue;
        plan_layout_text(&o.c.lay, layout);
        if (w) {
            text_jw_key(w, key[i]);
            text_jw_obj(w);
            text_jw_key(w, "name");
            text_jw_strz(w, o.name);
            text_jw_key(w, "layout");
            text_jw_strz(w, layout);
            text_jw_key(w, "concurrency");
            text_jw_real(w, o.load.n, 8);
            text_jw_key(w, "tpot_ms");
            text_jw_real(w, o.r.tpot * 1e3, 8);
            text_jw_key(w, "tps");
            text_jw_real(w, o.card_tps, 8);
            text_jw_obj_end(w);
        } else if (i == 0) {
            printf("one user:   %s, %.2f ms a token\n", o.name, o.r.tpot * 1e3);
        } else {
            printf("many users: %s, %.0f at a time, %.1f tok/s in all\n", o.name, o.load.n,
                   o.card_tps);
        }
    }
    return SL_OK;
}
