/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices beside the CPU, with some of the layers on each: in turn, as one rank has them,
 * or as stages at the same time, of which each is a rank with an even part of the CPU. */
#include <math.h>
#include <string.h>

#include "arch/arch.h"
#include "plan/place.h"
#include "plan/plan_internal.h"

#define LAYERS 1000 /* as the model's shape may have */
#define PIECES 4    /* of a prompt's step, while a stage waits for the first one; as the engine's */
#define MIN_PIECE 32
#define MIN_EACH 8

struct cards {
    const struct plan_model *m;
    const struct plan_format *f;
    const struct plan_cards *c;
    int32_t first[PLAN_CARDS_MAX + 1]; /* layers of the devices, in the order of the layers */
};

static double layer_bytes(const struct cards *x, bool is_moe)
{
    const struct plan_model *m = x->m;
    const struct plan_format *f = x->f;
    double attn = (m->p_attn + m->p_repl) * f->attn;
    if (!is_moe) return (attn + m->p_dense * f->dense) / 8;
    return (attn + (m->p_shared + m->p_router) * f->dense + m->p_expert * m->experts * f->expert) /
           8;
}

/* Stages have about the same bytes, the head counted to the last; else all have as many layers. */
static void cut(struct cards *x)
{
    const struct plan_model *m = x->m;
    int64_t layer[LAYERS];
    int n = x->c->n;
    for (int i = 0; i < m->layers; i++)
        layer[i] = (int64_t)layer_bytes(x, i >= m->dense_layers);
    if (x->c->stages)
        arch_cut_layers(layer, m->layers, (int64_t)(m->p_embed * x->f->head / 8), n, x->first);
    for (int i = 0; i <= n && !x->c->stages; i++)
        x->first[i] = (int32_t)round((double)m->layers * i / n);
}

/* Which device has part i of the layers: rank 0, which has the first one, is the last stage. */
static int card_of(const struct cards *x, int i)
{
    return x->c->stages ? x->c->n - 1 - i : i;
}

/* Part i of the layers as a model, the head with it or not. */
static struct plan_model part_of(const struct cards *x, int i, bool head)
{
    const struct plan_model *m = x->m;
    struct plan_model s = *m;
    int a = x->first[i], b = x->first[i + 1], lead = m->dense_layers;
    s.layers = b - a;
    s.dense_layers = (b < lead ? b : lead) - (a < lead ? a : lead);
    s.moe_layers = m->moe_layers ? s.layers - s.dense_layers : 0;
    s.n_window = (int)round((double)m->n_window * s.layers / m->layers);
    s.p_head = 0;
    if (!head) s.p_embed = 0;
    return s;
}

/* Bytes of tables that part i has beside the head's: the look-up. */
static double tables(const struct cards *x, int i, bool head)
{
    const struct plan_model *m = x->m;
    bool again = head && m->p_head <= 0; /* the head is the same table */
    return i == 0 && !again ? m->p_embed * x->f->head / 8 : 0;
}

static double pieces(const struct cards *x, double tok)
{
    const struct plan_model *m = x->m;
    double least = m->experts > 0 ? fmax(MIN_PIECE, (double)MIN_EACH * m->experts / m->topk)
                                  : MIN_PIECE;
    return fmax(1, fmin(PIECES * (x->c->n - 1.0), floor(tok / least)));
}

/* Part i, alone on its device. */
struct part {
    struct plan_model m;
    struct plan_card card;
    struct plan_placing p;
    double tables;
};

static struct part part_at(const struct cards *x, int i, const struct plan_placing *all)
{
    const struct plan_cards *c = x->c;
    bool head = i == (c->stages ? c->n - 1 : 0);
    struct part t = {.m = part_of(x, i, head),
                     .card = c->card[card_of(x, i)],
                     .p = *all,
                     .tables = tables(x, i, head)};
    t.p.n_cpu = all->n_cpu > 0 ? t.m.moe_layers : 0;
    t.card.mem -= t.tables;
    if (c->stages) t.card.host_bw /= c->n, t.card.host_ops /= c->n;
    t.card.host_mem = 0; /* of all parts together */
    return t;
}

static void place_part(const struct cards *x, int i, const struct plan_placing *all,
                       const struct plan_asked *asked, struct plan_placed *out)
{
    struct part t = part_at(x, i, all);
    plan_place(&t.m, x->f, &t.card, &t.p, asked, out);
    out->dev_weights += t.tables;
}

static void add(struct plan_placed *sum, const struct plan_placed *one)
{
    sum->dev_weights += one->dev_weights, sum->dev_hot += one->dev_hot;
    sum->dev_kv += one->dev_kv, sum->dev_acts += one->dev_acts;
    sum->host_weights += one->host_weights, sum->seq += one->seq;
    sum->step += one->step, sum->prompt += one->prompt;
    sum->dev += one->dev, sum->host += one->host, sum->ways += one->ways;
}

/* Rows of the residual stream, and of what is to be added to it, from one device to the next. */
static double crossing(const struct cards *x, int i, double tok)
{
    const struct plan_card *a = &x->c->card[card_of(x, i)], *b = &x->c->card[card_of(x, i + 1)];
    double rows = x->c->stages ? 1 : 2, bytes = rows * tok * 4 * x->m->hidden;
    return rows * (a->lat + b->lat) + bytes / a->bus + bytes / b->bus + a->hand + b->hand;
}

void plan_cards(const struct plan_model *m, const struct plan_format *f, const struct plan_cards *c,
                const struct plan_placing *p, const struct plan_asked *q, struct plan_carded *out)
{
    struct cards x = {.m = m, .f = f, .c = c};
    struct plan_asked asked = *q;
    struct plan_placed *all = &out->all;
    double batch = fmax(1, q->batch), lanes = c->stages ? fmin(batch, c->n) : 1;
    double cuts = c->stages ? pieces(&x, fmin(q->chunk, fmax(q->prompt, 1))) : 1;
    double slowest = 0, slow_prompt = 0, hops = 0, host_mem = c->card[0].host_mem;
    *out = (struct plan_carded){.lanes = lanes};
    cut(&x);
    memcpy(out->first, x.first, sizeof out->first);
    asked.batch = ceil(batch / lanes);
    asked.chunk = ceil(q->chunk / cuts);
    for (int i = 0; i < c->n; i++) {
        struct plan_placed *one = &out->of[card_of(&x, i)];
        place_part(&x, i, p, &asked, one);
        one->dev_kv = batch * one->seq;
        slowest = fmax(slowest, one->step);
        slow_prompt = fmax(slow_prompt, one->prompt);
        if (i + 1 < c->n) hops += crossing(&x, i, asked.batch);
        add(all, one);
        if (i == 0 || one->free_seq < all->free_seq) all->free_seq = one->free_seq;
        if (i == 0 || one->over > all->over) all->over = one->over, out->fullest = card_of(&x, i);
    }
    all->ways += hops;
    all->step = fmax(all->step + hops, lanes * slowest);
    /* pieces of a step go through the stages one behind the other */
    if (c->stages) all->prompt = slow_prompt + (all->prompt - slow_prompt) / cuts;
    all->host_over = all->over <= 0 && host_mem > 0;
    if (all->host_over) all->over = all->host_weights - host_mem;
}

int plan_cards_hot(const struct plan_model *m, const struct plan_format *f,
                   const struct plan_cards *c, const struct plan_placing *p,
                   const struct plan_asked *q)
{
    struct cards x = {.m = m, .f = f, .c = c};
    int n = m->experts;
    cut(&x);
    for (int i = 0; i < c->n; i++) {
        struct part t = part_at(&x, i, p);
        int fits = t.p.n_cpu ? plan_place_hot(&t.m, f, &t.card, &t.p, q) : n;
        n = fits < n ? fits : n;
    }
    return n;
}
