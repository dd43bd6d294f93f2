/* SPDX-License-Identifier: Apache-2.0 */
/* Expert load, that of ranks, and idle stages for the metrics: the engine's thread copies its
 * counts once a second, any thread reads the copy. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "base/clock.h"

#define EVERY_NS 1000000000
#define PARTS 1e6    /* of one, in which ratios are counted */
#define HEAT_ROWS 24 /* of the heat map at most: so many groups of layers, and of experts */
#define HEAT_COLS 32

static sl_status array(api *a, size_t n, size_t size, void *out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_array(&a->arena, n + 1, size, &p, err));
    memset(p, 0, (n + 1) * size);
    memcpy(out, &p, sizeof p);
    return SL_OK;
}

static void deal_slots(api *a)
{
    struct api_spread *s = &a->routing.spread;
    sl_rank_stat rank[API_RANK_MAX];
    int n = BASE_MIN(sl_ranks(a->o.engine, rank, API_RANK_MAX), API_RANK_MAX);
    int n_etp = n / (rank[0].stage + 1) / s->n_rank; /* of a group that shares experts */
    for (int k = 0; k < s->n_rank; k++)
        s->begin[k + 1] = s->begin[k] + (k * n_etp < n ? rank[k * n_etp].n_slot : 0);
}

static sl_status open_spread(api *a, sl_err *err)
{
    struct api_routing *r = &a->routing;
    struct api_spread *s = &r->spread;
    for (int l = 0; l < r->n_layer; l++)
        s->cap = BASE_MAX(s->cap, sl_slots(a->o.engine, l, NULL, 0, &s->n_rank));
    if (!s->cap || s->n_rank > API_RANK_MAX) return SL_OK;
    size_t n = (size_t)s->cap, L = (size_t)r->n_layer, E = (size_t)r->n_expert;
    SL_TRY(array(a, L * n, sizeof *s->slot, &s->slot, err));
    memset(s->slot, 0xff, L * n * sizeof *s->slot); /* none is known */
    SL_TRY(array(a, n, sizeof *s->now, &s->now, err));
    SL_TRY(array(a, L * E, sizeof *s->base, &s->base, err));
    SL_TRY(array(a, E, sizeof *s->n_copy, &s->n_copy, err));
    deal_slots(a);
    SL_TRY(array(a, API_RANK_MAX, sizeof *s->rank, &s->rank, err));
    return array(a, API_RANK_MAX, sizeof *s->sum, &s->sum, err);
}

sl_status api_routing_open(api *a, sl_err *err)
{
    struct api_routing *r = &a->routing;
    size_t n = (size_t)a->mi.n_expert;
    if (a->mi.n_expert < 1) return SL_OK;
    r->n_row = BASE_MIN(a->mi.n_layer, HEAT_ROWS);
    r->n_col = BASE_MIN(a->mi.n_expert, HEAT_COLS);
    size_t n_cell = (size_t)r->n_row * (size_t)r->n_col;
    SL_TRY(array(a, n, sizeof *r->one, &r->one, err));
    SL_TRY(array(a, n, sizeof *r->all, &r->all, err));
    SL_TRY(array(a, n_cell, sizeof *r->cell_sum, &r->cell_sum, err));
    SL_TRY(array(a, n, sizeof *r->expert, &r->expert, err));
    SL_TRY(array(a, n_cell, sizeof *r->cell, &r->cell, err));
    SL_TRY(array(a, (size_t)a->mi.n_layer, sizeof *r->layer, &r->layer, err));
    r->n_expert = a->mi.n_expert;
    r->n_layer = a->mi.n_layer;
    return open_spread(a, err);
}

static void set(struct net_count *c, uint64_t v)
{
    atomic_store_explicit(&c->v, v, memory_order_relaxed);
}

/* By which a rank's counts are compared with others': 1 where it has the mean of the slots. */
static double share_of(const struct api_spread *s, int k)
{
    double n = s->begin[k + 1] - s->begin[k];
    return n > 0 ? s->begin[s->n_rank] / n / s->n_rank : 0;
}

/* Adds what each rank has of layer l, by the counts in r->one since its slots are as they are. */
static void sample_ranks(api *a, int l)
{
    struct api_routing *r = &a->routing;
    struct api_spread *s = &r->spread;
    int32_t *slot = s->slot + (int64_t)l * s->cap;
    uint64_t *base = s->base + (int64_t)l * r->n_expert;
    double sum = 0, most = 0;
    int n = sl_slots(a->o.engine, l, s->now, s->cap, &s->n_rank);
    if (n < 1 || n > s->cap) return;
    if (memcmp(slot, s->now, sizeof *slot * (size_t)n) != 0) {
        bool first = slot[0] < 0;
        memcpy(slot, s->now, sizeof *slot * (size_t)n);
        if (!first) memcpy(base, r->one, sizeof *base * (size_t)r->n_expert);
    }
    memset(s->n_copy, 0, sizeof *s->n_copy * (size_t)r->n_expert);
    for (int i = 0; i < n; i++)
        s->n_copy[slot[i]]++;
    for (int k = 0; k < s->n_rank; k++) {
        s->rank[k] = 0;
        for (int i = s->begin[k]; i < s->begin[k + 1]; i++)
            s->rank[k] += (double)(r->one[slot[i]] - base[slot[i]]) / s->n_copy[slot[i]];
        s->sum[k] += s->rank[k];
        sum += s->rank[k];
        most = BASE_MAX(most, s->rank[k] * share_of(s, k));
    }
    set(&r->layer[l].ranks, sum > 0 ? (uint64_t)(most * s->n_rank / sum * PARTS) : 0);
}

static void set_ranks(struct api_routing *r)
{
    const struct api_spread *s = &r->spread;
    double sum = 0;
    for (int k = 0; k < s->n_rank; k++)
        sum += s->sum[k];
    for (int k = 0; k < s->n_rank && sum > 0; k++)
        set(&r->rank[k], (uint64_t)(s->sum[k] * share_of(s, k) * s->n_rank / sum * PARTS));
    set(&r->n_rank, sum > 0 ? (uint64_t)s->n_rank : 0);
}

static void sample_experts(api *a)
{
    struct api_routing *r = &a->routing;
    memset(r->all, 0, sizeof *r->all * (size_t)r->n_expert);
    memset(r->cell_sum, 0, sizeof *r->cell_sum * (size_t)(r->n_row * r->n_col));
    if (r->spread.slot) memset(r->spread.sum, 0, sizeof *r->spread.sum * API_RANK_MAX);
    for (int l = 0; l < r->n_layer; l++) {
        uint64_t peak = 0, sum = 0, *cell = r->cell_sum + l * r->n_row / r->n_layer * r->n_col;
        int n = BASE_MIN(sl_routed(a->o.engine, l, r->one, r->n_expert), r->n_expert);
        if (n < 0) return; /* what was known stays */
        for (int i = 0; i < n; i++) {
            peak = BASE_MAX(peak, r->one[i]);
            sum += r->one[i];
            r->all[i] += r->one[i];
            cell[(int64_t)i * r->n_col / r->n_expert] += r->one[i];
        }
        set(&r->layer[l].peak, peak);
        set(&r->layer[l].sum, sum);
        if (n && r->spread.slot) sample_ranks(a, l);
    }
    for (int i = 0; i < r->n_expert; i++)
        set(&r->expert[i], r->all[i]);
    for (int i = 0; i < r->n_row * r->n_col; i++)
        set(&r->cell[i], r->cell_sum[i]);
    if (r->spread.slot) set_ranks(r);
}

/* What ranks waited for each other, and took from each other. */
static void sample_parts(api *a)
{
    struct api_routing *r = &a->routing;
    sl_rank_stat rank[API_RANK_MAX];
    int n = BASE_MIN(sl_ranks(a->o.engine, rank, API_RANK_MAX), API_RANK_MAX);
    for (int i = 0; i < n && n > 1; i++) {
        struct api_part *p = &r->part[i];
        set(&p->step_us, (uint64_t)(rank[i].step_ms * 1e3));
        set(&p->wait_us, (uint64_t)(rank[i].wait_ms * 1e3));
        set(&p->bytes, rank[i].join_bytes - rank[i].net_bytes);
        set(&p->net, rank[i].net_bytes);
        set(&p->near, rank[i].near_pages >= 0 ? 1 + (uint64_t)(rank[i].near_pages * PARTS) : 0);
        set(&p->joins, rank[i].n_join);
    }
    set(&r->n_part, n > 1 ? (uint64_t)n : 0);
    if (n > 1) {
        set(&r->link_ns, (uint64_t)(rank[0].link_us * 1e3));
        set(&r->link_kbps, (uint64_t)(rank[0].link_gbps * 1e6));
    }
}

/* How much of the steps' time each stage waits for others: the mean of its ranks. */
static void sample_stages(api *a)
{
    struct api_routing *r = &a->routing;
    sl_rank_stat rank[API_RANK_MAX];
    int n = BASE_MIN(sl_ranks(a->o.engine, rank, API_RANK_MAX), API_RANK_MAX);
    double idle[API_RANK_MAX] = {0};
    if (n == 1 || rank[0].stage == 0) return; /* the last stage is the only one */
    int n_stage = rank[0].stage + 1, per = n / n_stage;
    for (int i = 0; i < n; i++)
        if (rank[i].step_ms > 0) idle[rank[i].stage] += rank[i].wait_ms / rank[i].step_ms / per;
    for (int s = 0; s < n_stage; s++)
        set(&r->idle[s], (uint64_t)(idle[s] * PARTS));
    set(&r->n_stage, (uint64_t)n_stage);
}

/* What each group of ranks has that has sequences of its own. */
static void sample_groups(api *a)
{
    struct api_routing *r = &a->routing;
    sl_rank_stat rank[API_RANK_MAX];
    int n = BASE_MIN(sl_ranks(a->o.engine, rank, API_RANK_MAX), API_RANK_MAX), n_group = 0;
    for (int i = 0; i < n && n > 1; i++) {
        struct api_group *g = &r->group[n_group];
        if (!rank[i].kv_total_tok) continue;
        n_group++;
        set(&g->rank, (uint64_t)i);
        set(&g->running, (uint64_t)rank[i].n_running);
        set(&g->waiting, (uint64_t)rank[i].n_waiting);
        set(&g->used, (uint64_t)rank[i].kv_used_tok);
        set(&g->total, (uint64_t)rank[i].kv_total_tok);
    }
    set(&r->n_group, n_group > 1 ? (uint64_t)n_group : 0);
}

void api_sample(api *a)
{
    struct api_routing *r = &a->routing;
    int64_t now = clock_now_ns();
    if (now - r->when_ns < EVERY_NS) return;
    r->when_ns = now;
    if (r->n_expert) sample_experts(a);
    sample_parts(a);
    sample_stages(a);
    sample_groups(a);
}

struct group_metric {
    const char *name, *help;
    const struct net_count *first; /* of the first group or rank */
    double unit;
};

/* One of n things: rank [n], where they are not ranks in order; bytes from one to the next. */
struct listed {
    int n;
    size_t size;
    const struct net_count *rank;
};

static const struct net_count *nth(const struct net_count *first, size_t size, int i)
{
    return (const struct net_count *)((const char *)first + (size_t)i * size);
}

static void put_list(const struct group_metric *m, const char *type, const struct listed *l,
                     struct str *out, const char *label)
{
    char more[400];
    net_metric_head(out, m->name, type, m->help);
    for (int i = 0; i < l->n; i++) {
        int rank = l->rank ? (int)net_count_get(nth(l->rank, l->size, i)) : i;
        snprintf(more, sizeof more, "%s,rank=\"%d\"", label, rank);
        net_metric_value(out, m->name, more,
                         (double)net_count_get(nth(m->first, l->size, i)) * m->unit);
    }
}

static void put_groups(const struct api_routing *r, struct str *out, const char *label)
{
    const struct api_group *g = r->group;
    const struct group_metric all[] = {
        {"sluice:rank_requests_running", "Requests that ranks of their own have", &g->running, 1},
        {"sluice:rank_requests_waiting", "Requests that wait for them", &g->waiting, 1},
        {"sluice:rank_kv_used_tokens", "Tokens in their cache", &g->used, 1},
        {"sluice:rank_kv_tokens", "Tokens that fit into it", &g->total, 1}};
    struct listed l = {(int)net_count_get(&r->n_group), sizeof *g, &g->rank};
    for (int k = 0; k < BASE_COUNT_OF(all) && l.n; k++)
        put_list(&all[k], "gauge", &l, out, label);
}

/* Bytes that ranks took from each other, by the way that they came. */
static void put_bytes(const struct api_routing *r, int n, struct str *out, const char *label)
{
    static const char name[] = "sluice:dist_bytes_total";
    char more[400];
    net_metric_head(out, name, "counter", "Bytes that a rank took from others");
    for (int i = 0; i < 2 * n; i++) {
        const struct api_part *p = &r->part[i / 2];
        snprintf(more, sizeof more, "%s,rank=\"%d\",path=\"%s\"", label, i / 2,
                 i % 2 ? "net" : "node");
        net_metric_value(out, name, more, (double)net_count_get(i % 2 ? &p->net : &p->bytes));
    }
}

static void put_near(const struct api_routing *r, int n, struct str *out, const char *label)
{
    static const char name[] = "sluice:local_page_ratio";
    char more[400];
    if (!net_count_get(&r->part[0].near)) return;
    net_metric_head(out, name, "gauge", "Share of a rank's weights on its own memory node");
    for (int i = 0; i < n; i++) {
        uint64_t v = net_count_get(&r->part[i].near);
        snprintf(more, sizeof more, "%s,rank=\"%d\"", label, i);
        if (v) net_metric_value(out, name, more, (double)(v - 1) / PARTS);
    }
}

static void put_link(const struct api_routing *r, struct str *out, const char *label)
{
    double us = (double)net_count_get(&r->link_ns) * 1e-3;
    if (us <= 0) return;
    net_metric_head(out, "sluice:link_latency_us", "gauge",
                    "A join of few values, measured when the engine opened");
    net_metric_value(out, "sluice:link_latency_us", label, us);
    net_metric_head(out, "sluice:link_gbps", "gauge", "1e9 bytes a second of one of many");
    net_metric_value(out, "sluice:link_gbps", label,
                     (double)net_count_get(&r->link_kbps) * 1e-6);
}

static void put_parts(const struct api_routing *r, struct str *out, const char *label)
{
    const struct api_part *p = r->part;
    const struct group_metric all[] = {
        {"sluice:rank_step_seconds_total", "Time of a rank's steps", &p->step_us, 1e-6},
        {"sluice:dist_wait_seconds_total", "Of these: it waited for others", &p->wait_us, 1e-6},
        {"sluice:dist_ops_total", "Times that it joined rows with others", &p->joins, 1}};
    struct listed l = {(int)net_count_get(&r->n_part), sizeof *p, NULL};
    for (int k = 0; k < BASE_COUNT_OF(all) && l.n; k++)
        put_list(&all[k], "counter", &l, out, label);
    if (l.n) put_bytes(r, l.n, out, label);
    put_near(r, l.n, out, label);
    put_link(r, out, label);
}

void api_stages_put(const api *a, struct str *out, const char *label)
{
    const struct api_routing *r = &a->routing;
    static const char name[] = "sluice:pipeline_idle_ratio";
    char more[400];
    uint64_t n = net_count_get(&r->n_stage);
    put_parts(r, out, label);
    put_groups(r, out, label);
    if (n == 0) return;
    net_metric_head(out, name, "gauge", "Share of the steps' time that a stage waits for others");
    for (uint64_t s = 0; s < n; s++) {
        snprintf(more, sizeof more, "%s,stage=\"%d\"", label, (int)s);
        net_metric_value(out, name, more, (double)net_count_get(&r->idle[s]) / PARTS);
    }
}

/* The first of group i of n things in n_group groups. */
static int first_of(int i, int n, int n_group)
{
    return (int)(((int64_t)i * n + n_group - 1) / n_group);
}

static void put_heat(const struct api_routing *r, struct str *out, const char *label)
{
    static const char name[] = "sluice:expert_heat_tokens_total";
    char more[400];
    net_metric_head(out, name, "counter", "Tokens routed to neighbouring experts, by layers");
    for (int y = 0; y < r->n_row; y++)
        for (int x = 0; x < r->n_col; x++) {
            snprintf(more, sizeof more, "%s,layers=\"%d-%d\",experts=\"%d-%d\"", label,
                     first_of(y, r->n_layer, r->n_row), first_of(y + 1, r->n_layer, r->n_row) - 1,
                     first_of(x, r->n_expert, r->n_col),
                     first_of(x + 1, r->n_expert, r->n_col) - 1);
            net_metric_value(out, name, more, (double)net_count_get(&r->cell[y * r->n_col + x]));
        }
}

static void put_ranks(const struct api_routing *r, struct str *out, const char *label)
{
    static const char layer[] = "sluice:rank_load_ratio", rank[] = "sluice:rank_load_share";
    char more[400];
    uint64_t n = net_count_get(&r->n_rank);
    if (n == 0) return;
    net_metric_head(out, layer, "gauge", "Experts' tokens of a layer's fullest rank over the mean");
    for (int l = 0; l < r->n_layer; l++) {
        uint64_t v = net_count_get(&r->layer[l].ranks);
        if (!v) continue;
        snprintf(more, sizeof more, "%s,layer=\"%d\"", label, l);
        net_metric_value(out, layer, more, (double)v / PARTS);
    }
    net_metric_head(out, rank, "gauge", "Experts' tokens of a rank over the mean, all layers");
    for (uint64_t k = 0; k < n; k++) {
        snprintf(more, sizeof more, "%s,rank=\"%d\"", label, (int)k);
        net_metric_value(out, rank, more, (double)net_count_get(&r->rank[k]) / PARTS);
    }
}

void api_routing_put(const api *a, struct str *out, const char *label)
{
    const struct api_routing *r = &a->routing;
    static const char expert[] = "sluice:expert_tokens_total", ratio[] = "sluice:expert_load_ratio";
    char more[400];
    if (!r->n_expert) return;
    net_metric_head(out, expert, "counter", "Tokens routed to an expert, all layers together");
    for (int i = 0; i < r->n_expert; i++) {
        snprintf(more, sizeof more, "%s,expert=\"%d\"", label, i);
        net_metric_value(out, expert, more, (double)net_count_get(&r->expert[i]));
    }
    net_metric_head(out, ratio, "gauge", "Tokens of a layer's busiest expert over the mean of all");
    for (int l = 0; l < r->n_layer; l++) {
        uint64_t sum = net_count_get(&r->layer[l].sum), peak = net_count_get(&r->layer[l].peak);
        if (!sum) continue;
        snprintf(more, sizeof more, "%s,layer=\"%d\"", label, l);
        net_metric_value(out, ratio, more, (double)peak * r->n_expert / (double)sum);
    }
    put_heat(r, out, label);
    put_ranks(r, out, label);
}
