/* SPDX-License-Identifier: Apache-2.0 */
/* Tries every layout: those that fit in memory are timed and kept if they are on the front. */
#include "plan/search.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/plan_internal.h"

#define MAX_FRONT 4096
#define MAX_REJECT 512
#define MAX_TRIED 200000

/* A candidate on the front, small enough to keep thousands. */
struct cand {
    struct plan_layout l;
    int fmt;
    enum plan_mode mode;
    double ttft, tpot, card_tps, user_tps;
    bool within;
};

struct finder {
    const struct plan_book *b;
    const struct plan_query *q;
    struct plan_consts k[PLAN_MAX_FORMATS][PLAN_MODE_COUNT];
    struct cand *front;
    int n_front;
    struct plan_reject *reject;
    int n_reject;
    int n_tried, n_fit;
};

/* "weight=3:2:1" at p: where it ends; NULL: it is not understood. */
static const char *weights_at(const char *p, struct plan_query *q)
{
    p += strlen("weight=") - 1;
    q->n_weight = 0;
    do {
        char *end = NULL;
        long v = p[1] >= '0' && p[1] <= '9' ? strtol(p + 1, &end, 10) : 0;
        if (v < 1 || v > 1000 || q->n_weight == PLAN_RANK_MAX) return NULL;
        q->weight[q->n_weight++] = (uint16_t)v;
        p = end;
    } while (*p == ':');
    return p;
}

static const char *after(const char *p)
{
    while (*p == 'x' || *p == '-' || *p == '+' || *p == ',' || *p == ' ')
        p++;
    return p;
}

bool plan_layout_parse(const char *text, struct plan_query *q, char *why, size_t size)
{
    const char *p = text;
    while (*p) {
        int *slot = NULL;
        if (!strncasecmp(p, "weight=", 7)) {
            if (!(p = weights_at(p, q))) {
                snprintf(why, size, "layout \"%.40s\": weights are numbers from 1 to 1000, with "
                                    "':' between", text);
                return false;
            }
            p = after(p);
            continue;
        }
        if (!strncasecmp(p, "tp", 2))
            slot = &q->tp;
        else if (!strncasecmp(p, "pp", 2))
            slot = &q->pp;
        else if (!strncasecmp(p, "dp", 2))
            slot = &q->dp;
        else if (!strncasecmp(p, "ep", 2))
            slot = &q->ep;
        char *end = NULL;
        const char *digits = p + 2 + (slot && p[2] == '=');
        long v = slot ? strtol(digits, &end, 10) : 0;
        if (!slot || end == digits || v < 1 || v > 65536) {
            snprintf(why, size,
                     "layout \"%.40s\": parts are tpN ppN dpN epN, like tp8, tp4pp2, dp32ep32",
                     text);
            return false;
        }
        *slot = (int)v;
        p = after(end);
    }
    return true;
}

bool plan_layout_weights(const struct plan_layout *l, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (int i = 0; i < l->n_weight; i++) {
        n += (size_t)snprintf(out + n, size - n, "%s%u", i ? ":" : "", l->weight[i]);
        if (n >= size) return false;
    }
    return true;
}

static void layout_name(const struct cand *c, const struct plan_query *q, char *out, size_t size)
{
    const struct plan_layout *l = &c->l;
    int n = snprintf(out, size, "%s ", q->fmt[c->fmt].name);
    if (c->mode == PLAN_MODE_CPU) n += snprintf(out + n, size - (size_t)n, "cpu");
    bool several = c->mode == PLAN_MODE_CPU && l->tp * l->pp * l->dp > 1;
    if (several) n += snprintf(out + n, size - (size_t)n, " ");
    if (several && l->tp > 1) n += snprintf(out + n, size - (size_t)n, "tp%d", l->tp);
    if (l->n_p > 0) n += snprintf(out + n, size - (size_t)n, "%dP:%dD ", l->n_p, l->n_d);
    if (c->mode != PLAN_MODE_CPU && (l->tp > 1 || (l->dp == 1 && l->pp == 1))) {
        n += snprintf(out + n, size - (size_t)n, "tp%d", l->tp);
    }
    if (l->pp > 1) n += snprintf(out + n, size - (size_t)n, "pp%d", l->pp);
    if (l->dp > 1) n += snprintf(out + n, size - (size_t)n, "dp%d", l->dp);
    if (l->ep > 1) n += snprintf(out + n, size - (size_t)n, "ep%d", l->ep);
    if (l->redundant > 0) n += snprintf(out + n, size - (size_t)n, "+r%d", l->redundant);
    if (l->mtp > 0) n += snprintf(out + n, size - (size_t)n, " mtp%d", l->mtp);
    char weights[24];
    if (l->n_weight > 0)
        snprintf(out + n, size - (size_t)n, " weight %s",
                 plan_layout_weights(l, weights, sizeof weights) ? weights : "...");
    if (l->cpu_experts)
        snprintf(out + n, size - (size_t)n, " cpu-experts %.0f%% hot", 100 * l->hot);
}

void plan_query_consts(const struct plan_book *b, const struct plan_query *q, enum plan_mode mode,
                       const struct plan_format *fmt, const struct plan_layout *l,
                       struct plan_consts *k)
{
    struct plan_setup s = {.gen = q->gen};
    s.dev = *q->dev;
    s.c.model = q->model, s.c.dev = &s.dev, s.c.host = q->host;
    s.c.k.mode = mode;
    if (l) s.c.lay = *l;
    s.c.fmt = *fmt;
    snprintf(s.engine, sizeof s.engine, "%s", q->engine);
    snprintf(s.device, sizeof s.device, "%s", q->dev->name);
    if (!*q->engine) { /* the best engine that was measured here */
        double least = 1e30;
        for (int i = 0; i < b->n_set; i++) {
            const struct plan_consts *c = &b->set[i].k;
            if (c->mode != mode || strcasecmp(c->device, s.device) != 0) continue;
            if (c->v[PLAN_T_LAYER] >= least || *c->model) continue;
            least = c->v[PLAN_T_LAYER];
            snprintf(s.engine, sizeof s.engine, "%s", c->engine);
        }
    }
    plan_consts_for(b, &s, k);
}

static void make_case(const struct finder *f, const struct cand *c, struct plan_case *out)
{
    const struct plan_query *q = f->q;
    *out = (struct plan_case){
        .model = q->model, .dev = q->dev, .host = q->host, .kv_bits = q->kv_bits};
    out->fmt = q->fmt[c->fmt];
    out->lay = c->l;
    out->k = f->k[c->fmt][c->mode];
    out->k.mode = c->mode;
    if (!q->team) return;
    out->dev = &q->team[c->l.ranks - 1];
    out->team = &q->links;
    out->k = q->here;
    out->k.v[PLAN_CPU_GBPS] *= out->dev->bw * 1e-9;
    out->k.v[PLAN_CPU_TOPS] *= out->dev->peak[PLAN_NUM_INT8] * 1e-12;
}

static void put_reject(struct finder *f, const struct cand *c, const struct plan_memory *m)
{
    struct cand plain = *c;
    char name[64];
    plain.l.redundant = 0, plain.l.mtp = 0, plain.l.hot = 0;
    layout_name(&plain, f->q, name, sizeof name);
    double seq = m->seq > 0 ? m->seq : 0;
    double need = m->weights + m->mtp + m->acts + m->comm + m->graph + seq;
    double over = need - m->limit;
    bool host = over <= 0;
    if (host && f->q->host) over = m->host - f->q->host->mem * 0.94;
    for (int i = 0; i < f->n_reject; i++) {
        if (strcmp(f->reject[i].name, name) == 0) return;
    }
    if (f->n_reject == MAX_REJECT) return;
    struct plan_reject *r = &f->reject[f->n_reject++];
    snprintf(r->name, sizeof r->name, "%s", name);
    r->over = over;
    if (host) {
        snprintf(r->why, sizeof r->why, "experts need %.1f GiB of host memory, %.1f GiB too many",
                 m->host / PLAN_GIB, over / PLAN_GIB);
    } else {
        snprintf(r->why, sizeof r->why,
                 "needs %.1f GiB per %s (weights %.1f, one sequence %.2f, rest %.1f) of %.1f "
                 "usable: %.1f GiB too many",
                 need / PLAN_GIB,
                 f->q->team               ? "rank"
                 : c->mode == PLAN_MODE_CPU ? "host"
                 : f->q->dev->dies > 1    ? "die"
                                          : "card",
                 m->weights / PLAN_GIB, seq / PLAN_GIB, (need - m->weights - seq) / PLAN_GIB,
                 m->limit / PLAN_GIB, over / PLAN_GIB);
    }
}

static bool beats(const struct cand *a, const struct cand *b)
{
    return a->within >= b->within && a->ttft <= b->ttft && a->tpot <= b->tpot &&
           a->card_tps >= b->card_tps && a->user_tps >= b->user_tps;
}

/* Of a team all layouts are told: they are few, and what a rank more gains is the question. */
static void put_front(struct finder *f, const struct cand *c)
{
    bool all = f->q->team != NULL;
    for (int i = 0; i < f->n_front && !all; i++) {
        if (beats(&f->front[i], c)) return;
    }
    int k = 0;
    for (int i = 0; i < f->n_front; i++) {
        if (all || !beats(c, &f->front[i])) f->front[k++] = f->front[i];
    }
    f->n_front = k;
    if (f->n_front < MAX_FRONT) f->front[f->n_front++] = *c;
}

/* Both pools must hold the model by themselves. */
static bool pools_fit(const struct plan_case *c, double ctx, struct plan_memory *bad)
{
    const struct plan_layout *l = &c->lay;
    for (int i = 0; i < 2; i++) {
        struct plan_case p = *c;
        int nodes = i ? l->n_d : l->n_p;
        p.lay.ranks = l->ranks / (l->n_p + l->n_d) * nodes;
        p.lay.pp = 1;
        p.lay.dp = p.lay.ranks / p.lay.tp;
        p.lay.ep = l->ep > 1 ? p.lay.ranks : 1;
        if (i == 0) p.lay.redundant = 0, p.lay.mtp = 0;
        plan_memory(&p, p.lay.dp, ctx, bad);
        if (!bad->fits) return false;
    }
    return true;
}

struct plan_load plan_query_load(const struct plan_query *q, const struct plan_case *c)
{
    struct plan_load w = q->load;
    if (w.n <= 0 && w.rate <= 0) w.n = plan_most_users(c, &w, &q->limit);
    w.n = fmax(1, w.n);
    return w;
}

static void try_one(struct finder *f, const struct cand *proto)
{
    struct cand c = *proto;
    struct plan_case pc;
    struct plan_memory m;
    const struct plan_query *q = f->q;
    f->n_tried++;
    make_case(f, &c, &pc);
    double ctx = q->load.in + q->load.out;
    plan_memory(&pc, 1, ctx, &m);
    if (c.l.n_p > 0 ? !pools_fit(&pc, ctx, &m) : !m.fits) {
        put_reject(f, &c, &m);
        return;
    }
    f->n_fit++;
    struct plan_result r;
    struct plan_load w = plan_query_load(q, &pc);
    plan_eval(&pc, &w, &r);
    c.ttft = r.ttft, c.tpot = r.tpot, c.user_tps = r.user_tps;
    c.card_tps = r.out_tps / fmax(1, q->cards);
    if (!isfinite(c.ttft) || !isfinite(c.tpot) || !isfinite(c.card_tps)) return;
    c.within = r.stable && (q->limit.ttft <= 0 || c.ttft <= q->limit.ttft) &&
               (q->limit.tpot <= 0 || c.tpot <= q->limit.tpot);
    put_front(f, &c);
}

static const double usual_accept[] = {0, 0.7, 1.1, 1.44, 1.65, 1.8};

static void try_extras(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    static const int chunks[] = {2048, 8192, 16384};
    int k0 = q->mtp >= 0 ? q->mtp : 0, k1 = q->mtp >= 0 ? q->mtp : q->model->mtp_layers > 0 ? 3 : 0;
    int reds[2] = {0, 0}, n_red = 1;
    if (q->redundant >= 0)
        reds[0] = c->l.ep > 1 ? q->redundant : 0;
    else if (c->l.ep >= 16 && !q->team) /* there they need a file of loads */
        reds[n_red++] = c->l.ep >= 64 ? c->l.ep / 8 * 4 : c->l.ep;
    for (int k = k0; k <= k1 && f->n_tried < MAX_TRIED; k++) {
        for (int r = 0; r < n_red; r++) {
            for (int h = 0; h < (q->chunk > 0 ? 1 : 3); h++) {
                c->l.mtp = k;
                c->l.accept = q->drafts ? plan_drafts_right(q->drafts, k)
                              : q->accept > 0
                                  ? (1 - pow(q->accept, k + 1)) / (1 - fmin(q->accept, 0.999)) - 1
                                  : usual_accept[k > 5 ? 5 : k];
                c->l.redundant = reds[r];
                c->l.chunk = q->chunk > 0 ? q->chunk : chunks[h];
                try_one(f, c);
            }
        }
    }
    c->l.redundant = 0, c->l.mtp = 0;
}

static void try_pools(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    int nodes = q->cards / q->dev->cards_per_node;
    if (q->pools != 2) try_extras(f, c);
    if (q->pools == 1 || nodes < 2 || c->l.pp > 1 || c->l.cpu_experts) return;
    int p0 = q->pools == 2 ? q->n_p : 1, p1 = q->pools == 2 ? q->n_p : nodes - 1;
    int stride =
        nodes > 64 && q->pools != 2 ? nodes / 64 : 1; /* 64 ratios of the pools are enough */
    for (int p = p0; p <= p1; p += stride) {
        struct cand s = *c;
        s.l.n_p = p, s.l.n_d = q->pools == 2 ? q->n_d : nodes - p;
        int small = s.l.n_p < s.l.n_d ? s.l.n_p : s.l.n_d;
        if (s.l.n_p + s.l.n_d > nodes || c->l.tp > c->l.ranks / nodes * small) continue;
        try_extras(f, &s);
    }
}

/* As many experts on the card as fit beside the rest and a quarter of the memory for KV. */
static double hot_share(const struct finder *f, const struct cand *c)
{
    struct plan_case pc;
    struct plan_memory m;
    make_case(f, c, &pc);
    plan_memory(&pc, fmax(1, f->q->load.n), f->q->load.in + f->q->load.out, &m);
    double all = (double)f->q->model->moe_layers * f->q->model->experts * f->q->model->p_expert *
                 pc.fmt.attn / 8 / pc.lay.tp;
    double room = (m.limit - m.total) * 0.75;
    return all > 0 ? fmin(fmax(room / all, 0), 1) : 0;
}

static void try_hybrid(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    if (!q->host || q->experts_on == 2 || q->model->experts == 0 || q->cpu_only) return;
    int ranks = q->cards * q->dev->dies;
    if (ranks > 8) return;
    c->mode = PLAN_MODE_HYBRID;
    c->l = (struct plan_layout){
        .cards = q->cards, .ranks = ranks, .tp = ranks, .pp = 1, .dp = 1, .ep = 1};
    c->l.cpu_experts = true;
    c->l.chunk = q->chunk;
    c->l.hot = q->hot >= 0 ? q->hot : hot_share(f, c);
    try_pools(f, c);
}

static void try_card(struct finder *f, struct cand *c, int tp, int pp, int dp, int ep)
{
    const struct plan_query *q = f->q;
    int ranks = q->cards * q->dev->dies;
    if ((q->tp && tp != q->tp) || (q->pp && pp != q->pp) || (q->dp && dp != q->dp)) return;
    if (q->ep && ep != q->ep) return;
    c->mode = ep > 1 ? PLAN_MODE_EP : PLAN_MODE_TP;
    c->l = (struct plan_layout){
        .cards = q->cards, .ranks = ranks, .tp = tp, .pp = pp, .dp = dp, .ep = ep};
    try_pools(f, c);
}

static void try_cards(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    int ranks = q->cards * q->dev->dies, node = q->dev->cards_per_node * q->dev->dies;
    if (q->experts_on == 1 || q->cpu_only) return;
    for (int tp = 1; tp <= ranks; tp++) {
        bool asked = q->tp == tp, power = (tp & (tp - 1)) == 0;
        if (ranks % tp || (!asked && (!power || (tp > node && !q->dev->consumer) || tp > 64)))
            continue;
        if (!asked && q->model->heads % tp) continue;
        for (int pp = 1; pp <= ranks / tp; pp++) {
            if ((ranks / tp) % pp || pp > q->model->layers) continue;
            if (q->pp != pp && pp > 1 && tp < node && tp < ranks && ranks > node &&
                !q->dev->consumer)
                continue;
            try_card(f, c, tp, pp, ranks / tp / pp, 1);
        }
        bool ep = q->model->experts > 0 && ranks > 1 && tp <= 8;
        if (ep && (ranks <= q->model->experts * 2 || q->ep))
            try_card(f, c, tp, 1, ranks / tp, ranks);
    }
}

/* Rows to experts by the way that takes less for a step of decode. */
static void try_shares(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    struct plan_layout *l = &c->l;
    struct plan_layout asked = *l;
    asked.redundant = l->ep > 1 && q->redundant > 0 ? q->redundant : 0;
    if (!plan_team_can(q->model, &asked)) return;
    l->combine_bits = l->dp > 1 ? q->combine_bits : 32;
    if (l->dp > 1) {
        struct plan_case pc;
        struct plan_time t[2];
        double n = fmax(1, q->load.n > 0 ? q->load.n : 4.0 * l->dp);
        for (int i = 0; i < 2; i++) {
            l->swap = i == 1;
            make_case(f, c, &pc);
            plan_step(&pc, n, q->load.in, &t[i]);
        }
        l->swap = t[1].comm < t[0].comm;
        make_case(f, c, &pc);
        l->halves = l->ep > 1 && plan_team_micro(&pc, n, q->load.in);
    }
    try_extras(f, c);
}

/* Even shares, and where ranks are not alike such by weight. */
static void try_ranks(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    struct plan_layout *l = &c->l;
    if ((q->tp && l->tp != q->tp) || (q->pp && l->pp != q->pp) || (q->dp && l->dp != q->dp) ||
        (q->ep && l->ep != q->ep))
        return;
    struct cand even = *c;
    if (q->n_weight) { /* those that are asked for */
        l->n_weight = q->n_weight;
        memcpy(l->weight, q->weight, sizeof l->weight);
        if (q->n_weight == l->tp * l->dp) try_shares(f, c);
        return;
    }
    try_shares(f, &even);
    if (plan_team_weigh(&q->links, l)) try_shares(f, c);
}

/* All layouts of the first n ranks. */
static void try_team(struct finder *f, struct cand *c, int n)
{
    const struct plan_query *q = f->q;
    const struct plan_layout one = {.cards = 1, .ranks = n, .chunk = q->chunk};
    for (int tp = 1; tp <= n; tp++) {
        for (int dp = 1; dp <= n / tp; dp++) {
            if (n % (tp * dp)) continue;
            for (int ep = 1; ep <= tp * dp; ep++) {
                if (tp * dp % ep || (ep > 1 && q->model->experts == 0)) continue;
                c->l = one;
                c->l.tp = tp, c->l.dp = dp, c->l.pp = n / (tp * dp), c->l.ep = ep;
                try_ranks(f, c);
            }
        }
    }
}

static void try_hosts(struct finder *f, struct cand *c)
{
    const struct plan_query *q = f->q;
    c->mode = PLAN_MODE_CPU;
    for (int n = 1; q->team && n <= q->links.n; n++)
        try_team(f, c, n);
    if (q->team) return;
    c->l = (struct plan_layout){
        .cards = 1, .ranks = 1, .tp = 1, .pp = 1, .dp = 1, .ep = 1, .chunk = q->chunk};
    try_extras(f, c);
}

static int by_rate(const void *a, const void *b)
{
    const struct cand *x = a, *y = b;
    if (x->within != y->within) return x->within ? -1 : 1;
    return (x->card_tps < y->card_tps) - (x->card_tps > y->card_tps);
}

static int by_over(const void *a, const void *b)
{
    const struct plan_reject *x = a, *y = b;
    return (x->over > y->over) - (x->over < y->over);
}

/* What would make room: fewer bits, or more cards. */
static void cure_of(const struct finder *f, char *out, size_t size)
{
    const struct plan_query *q = f->q;
    struct plan_format w4;
    plan_format_find("w4a8", &w4);
    double small = plan_weight_bytes(q->model, &w4, false), mem = q->dev->mem * q->dev->dies * 0.94;
    double now = 0;
    for (int i = 0; i < q->n_fmt; i++) {
        double b = plan_weight_bytes(q->model, &q->fmt[i], false);
        if (now == 0 || b < now) now = b;
    }
    int cards = (int)ceil(now * 1.12 / mem), cards4 = (int)ceil(small * 1.12 / mem);
    if (q->team) {
        snprintf(out, size, "would fit: %d ranks of so much memory (%d with 4-bit weights)", cards,
                 cards4);
        return;
    }
    if (now > small * 1.05 && cards4 <= q->cards) {
        snprintf(out, size,
                 "would fit: 4-bit weights (awq, nvfp4 or w4a8: %.0f GB in all), or %d cards in "
                 "these bits",
                 small * 1e-9, cards);
    } else {
        snprintf(out, size, "would fit: %d cards (%d with 4-bit weights)%s", cards, cards4,
                 q->model->experts > 0 && !q->host ? ", or experts on a CPU with --host" : "");
    }
}

static void fill_option(const struct finder *f, const struct cand *c, struct plan_option *o)
{
    *o = (struct plan_option){.within = c->within, .card_tps = c->card_tps};
    make_case(f, c, &o->c);
    o->load = plan_query_load(f->q, &o->c);
    plan_eval(&o->c, &o->load, &o->r);
    layout_name(c, f->q, o->name, sizeof o->name);
}

/* Layouts that differ in nothing but the prefill batch tell it: "tp8dp2/2048". */
static void tell_apart(struct plan_found *out)
{
    for (int i = 0; i < out->n_option; i++) {
        struct plan_option *o = &out->option[i];
        size_t n = strlen(o->name);
        bool twin = false;
        for (int j = 0; j < out->n_option; j++) {
            const char *b = out->option[j].name;
            twin |= j != i && strcspn(b, "/") == n && memcmp(o->name, b, n) == 0;
        }
        if (twin) snprintf(o->name + n, sizeof o->name - n, "/%d", o->c.lay.chunk);
    }
}

/* Goal winners first, each once; then the rest of the front by rate. */
static void choose(struct finder *f, int top, struct plan_found *out)
{
    int best[3] = {-1, -1, -1};
    qsort(f->front, (size_t)f->n_front, sizeof *f->front, by_rate);
    for (int i = 0; i < f->n_front; i++) {
        const struct cand *c = &f->front[i];
        if (f->front[0].within && !c->within) continue;
        if (best[0] < 0) best[0] = i;
        if (best[1] < 0 || c->tpot < f->front[best[1]].tpot) best[1] = i;
        if (best[2] < 0 || c->ttft < f->front[best[2]].ttft) best[2] = i;
    }
    static const int goal[3] = {PLAN_GOAL_RATE, PLAN_GOAL_TPOT, PLAN_GOAL_TTFT};
    for (int g = 0; g < 3; g++) {
        int at = -1;
        if (best[g] < 0) continue;
        for (int h = 0; h < g; h++) {
            if (best[h] == best[g]) at = h;
        }
        if (at >= 0) {
            for (int i = 0; i < out->n_option; i++) {
                if (out->option[i].goals & goal[at]) out->option[i].goals |= goal[g];
            }
            continue;
        }
        if (out->n_option >= top) continue;
        fill_option(f, &f->front[best[g]], &out->option[out->n_option]);
        out->option[out->n_option++].goals = goal[g];
    }
    for (int i = 0; i < f->n_front && out->n_option < top; i++) {
        if (i == best[0] || i == best[1] || i == best[2]) continue;
        fill_option(f, &f->front[i], &out->option[out->n_option++]);
    }
    tell_apart(out);
}

sl_status plan_search(const struct plan_book *b, const struct plan_query *q, struct arena *a,
                      int top, struct plan_found *out, sl_err *err)
{
    struct finder f = {.b = b, .q = q};
    void *p;
    *out = (struct plan_found){0};
    SL_TRY(mem_arena_array(a, MAX_FRONT, sizeof *f.front, &p, err));
    f.front = p;
    SL_TRY(mem_arena_array(a, MAX_REJECT, sizeof *f.reject, &p, err));
    f.reject = p;
    SL_TRY(mem_arena_array(a, (size_t)top, sizeof *out->option, &p, err));
    out->option = p;
    struct plan_layout one = {.tp = q->cards * q->dev->dies > 1 ? 8 : 1, .pp = 1, .dp = 1, .ep = 1};
    for (int i = 0; i < q->n_fmt * PLAN_MODE_COUNT; i++) {
        int fmt = i / PLAN_MODE_COUNT, m = i % PLAN_MODE_COUNT;
        plan_query_consts(b, q, (enum plan_mode)m, &q->fmt[fmt], &one, &f.k[fmt][m]);
    }
    for (int i = 0; i < q->n_fmt; i++) {
        struct cand c = {.fmt = i};
        try_cards(&f, &c);
        try_hybrid(&f, &c);
        if (q->cpu_only) try_hosts(&f, &c);
    }
    choose(&f, top, out);
    qsort(f.reject, (size_t)f.n_reject, sizeof *f.reject, by_over);
    out->reject = f.reject, out->n_reject = f.n_reject;
    out->n_tried = f.n_tried, out->n_fit = f.n_fit;
    if (f.n_fit == 0) cure_of(&f, out->cure, sizeof out->cure);
    return SL_OK;
}

void plan_explain(const struct plan_option *o, char *out, size_t size)
{
    const struct plan_time *t = &o->r.step;
    struct {
        const char *name;
        double v;
    } s[] = {{"reading weights", t->weights},
             {"reading experts", t->experts},
             {"matrix products", t->compute},
             {"attention and KV", t->attn},
             {"communication", t->comm},
             {"fixed cost per layer", t->fixed},
             {"vector work per token", t->token},
             {"experts on the CPU", t->cpu},
             {"drafts", t->draft}};
    int a = 0, b = 1, n = (int)(sizeof s / sizeof s[0]);
    for (int i = 0; i < n; i++) {
        if (s[i].v > s[a].v) a = i;
    }
    b = a == 0 ? 1 : 0;
    for (int i = 0; i < n; i++) {
        if (i != a && s[i].v > s[b].v) b = i;
    }
    double all = t->total > 0 ? t->total : 1;
    snprintf(out, size,
             "A decode step takes %.2f ms and gives %.2f token(s) per user; most of it is %s (%.2f "
             "ms, %.0f %%), then "
             "%s (%.2f ms, %.0f %%). Constants: %s%s%s.",
             t->total * 1e3, 1 + o->c.lay.accept, s[a].name, s[a].v * 1e3, 100 * s[a].v / all,
             s[b].name, s[b].v * 1e3, 100 * s[b].v / all,
             o->c.k.trust == PLAN_CALIBRATED      ? "fitted on "
             : o->c.k.trust == PLAN_SAME_PLATFORM ? "prior of this platform"
                                                  : "uncalibrated prior",
             o->c.k.trust == PLAN_CALIBRATED ? o->c.k.engine : "",
             o->c.k.trust == PLAN_CALIBRATED ? " on this device" : "");
}

const char *plan_claim(const struct plan_model *m, double bits, double bytes_in_all, char *out,
                       size_t size)
{
    double least = m->total * (bits > 0 ? bits : 4) / 8;
    if (bytes_in_all <= 0 || bytes_in_all >= least) return NULL;
    snprintf(out, size,
             "impossible: %s has %.1f B parameters, %.3g bits of each are %.0f GB; %.0f GB cannot "
             "hold them",
             m->name, m->total * 1e-9, bits > 0 ? bits : 4, least * 1e-9, bytes_in_all * 1e-9);
    return out;
}
