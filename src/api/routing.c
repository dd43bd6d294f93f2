/* SPDX-License-Identifier: Apache-2.0 */
/* Expert load and idle stages for the metrics: the engine's thread copies its counts once a second,
 * any thread reads the copy. */
#include <stdio.h>

#include "api/api_internal.h"
#include "base/clock.h"

#define EVERY_NS 1000000000
#define PARTS 1e6 /* of one, in which ratios are counted */

sl_status api_routing_open(api *a, sl_err *err)
{
    struct api_routing *r = &a->routing;
    void *p = NULL;
    int n = a->mi.n_expert;
    if (n < 1) return SL_OK;
    SL_TRY(mem_arena_array(&a->arena, (size_t)n, sizeof *r->one, &p, err));
    r->one = p;
    SL_TRY(mem_arena_array(&a->arena, (size_t)n, sizeof *r->all, &p, err));
    r->all = p;
    SL_TRY(mem_arena_array(&a->arena, (size_t)n, sizeof *r->expert, &p, err));
    r->expert = p;
    SL_TRY(mem_arena_array(&a->arena, (size_t)a->mi.n_layer, sizeof *r->layer, &p, err));
    r->layer = p;
    for (int i = 0; i < n; i++)
        atomic_init(&r->expert[i].v, 0);
    for (int l = 0; l < a->mi.n_layer; l++) {
        atomic_init(&r->layer[l].peak.v, 0);
        atomic_init(&r->layer[l].sum.v, 0);
    }
    r->n_expert = n;
    r->n_layer = a->mi.n_layer;
    return SL_OK;
}

static void set(struct net_count *c, uint64_t v)
{
    atomic_store_explicit(&c->v, v, memory_order_relaxed);
}

static void sample_experts(api *a)
{
    struct api_routing *r = &a->routing;
    for (int i = 0; i < r->n_expert; i++)
        r->all[i] = 0;
    for (int l = 0; l < r->n_layer; l++) {
        uint64_t peak = 0, sum = 0;
        int n = BASE_MIN(sl_routed(a->o.engine, l, r->one, r->n_expert), r->n_expert);
        if (n < 0) return; /* what was known stays */
        for (int i = 0; i < n; i++) {
            peak = BASE_MAX(peak, r->one[i]);
            sum += r->one[i];
            r->all[i] += r->one[i];
        }
        set(&r->layer[l].peak, peak);
        set(&r->layer[l].sum, sum);
    }
    for (int i = 0; i < r->n_expert; i++)
        set(&r->expert[i], r->all[i]);
}

/* How much of the steps' time each stage waits for others: the mean of its ranks. */
static void sample_stages(api *a)
{
    struct api_routing *r = &a->routing;
    sl_rank_stat rank[API_STAGE_MAX];
    int n = BASE_MIN(sl_ranks(a->o.engine, rank, API_STAGE_MAX), API_STAGE_MAX);
    double idle[API_STAGE_MAX] = {0};
    if (n == 1 || rank[0].stage == 0) return; /* the last stage is the only one */
    int n_stage = rank[0].stage + 1, per = n / n_stage;
    for (int i = 0; i < n; i++)
        if (rank[i].step_ms > 0) idle[rank[i].stage] += rank[i].wait_ms / rank[i].step_ms / per;
    for (int s = 0; s < n_stage; s++)
        set(&r->idle[s], (uint64_t)(idle[s] * PARTS));
    set(&r->n_stage, (uint64_t)n_stage);
}

void api_sample(api *a)
{
    struct api_routing *r = &a->routing;
    int64_t now = clock_now_ns();
    if (now - r->when_ns < EVERY_NS) return;
    r->when_ns = now;
    if (r->n_expert) sample_experts(a);
    sample_stages(a);
}

void api_stages_put(const api *a, struct str *out, const char *label)
{
    const struct api_routing *r = &a->routing;
    static const char name[] = "sluice:pipeline_idle_ratio";
    char more[400];
    uint64_t n = net_count_get(&r->n_stage);
    if (n == 0) return;
    net_metric_head(out, name, "gauge", "Share of the steps' time that a stage waits for others");
    for (uint64_t s = 0; s < n; s++) {
        snprintf(more, sizeof more, "%s,stage=\"%d\"", label, (int)s);
        net_metric_value(out, name, more, (double)net_count_get(&r->idle[s]) / PARTS);
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
}
