/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a device with experts beside it on the CPU, operator by operator as the engine lists
 * them: a launch takes lat and the longer of its bytes and its operations. */
#include "plan/place.h"

#include <math.h>
#include <stdlib.h>

#include "plan/plan_internal.h"

#define HOT_SHARE 0.9 /* of what is left, as --hot-experts auto takes */
/* What the engine takes for experts that it streams: a buffer's bytes, as long as a layer fills so
 * many of them; two buffers. */
#define SLAB_BYTES 268435456.0
#define SLABS_LEAST 4
#define SLABS_MOST 16
#define SLAB_BUFS 2

struct at {
    const struct plan_model *m;
    const struct plan_format *f;
    const struct plan_card *card;
    const struct plan_placing *p;
    double tok, rows; /* of the step; whose logits are wanted */
    double seq, ctx;  /* that decode */
    double attn_flop; /* of a prompt, a layer's attention */
    bool streams;     /* experts on the CPU come to the device */
    double kv_bits;
};

static double longer(double bytes, double bw, double flop, double ops)
{
    return fmax(bw > 0 ? bytes / bw : 0, ops > 0 ? flop / ops : 0);
}

/* A product of the device with so many parameters. */
static double product(const struct at *a, double params, double bits, double tok)
{
    return longer(params * bits / 8, a->card->bw, 2 * tok * params, a->card->ops);
}

/* ---- operators of a layer on the device ---- */

static double attention(const struct at *a)
{
    const struct plan_model *m = a->m;
    double L = m->layers, lat = a->card->lat, t = 0;
    bool mla = m->attn == PLAN_ATTN_MLA;
    int launches = mla ? (m->q_lora > 0 ? 12 : 10) : m->qk_norm ? 11 : 9;
    t = launches * lat + product(a, m->p_attn + m->p_repl, a->f->attn, a->tok);
    double keys = a->seq * plan_kv_bytes(m, a->ctx, a->kv_bits, 1) / L;
    double flop = a->attn_flop > 0 ? a->attn_flop : a->tok * plan_attn_flop(m, a->ctx) / L;
    return t + longer(keys, a->card->bw, flop, a->card->ops);
}

static double router(const struct at *a)
{
    return 2 * a->card->lat + product(a, a->m->p_router, 16, a->tok);
}

static double shared(const struct at *a)
{
    double p = a->m->p_shared;
    return p > 0 ? a->card->lat + product(a, p, a->f->dense, a->tok) : 0;
}

static double move(const struct at *a, double values)
{
    return a->card->lat + 4 * values * a->tok / a->card->bus;
}

/* ---- experts ---- */

/* Distinct experts of a step, and the share of tokens' experts that are hot. */
static double hot_share(const struct at *a)
{
    const struct plan_model *m = a->m;
    double even = (double)a->p->n_hot / fmax(1, m->experts);
    if (!a->p->n_hot) return 0;
    return m->counts ? plan_counts_top(m->counts, a->p->n_hot) : even;
}

static double experts_on_device(const struct at *a, double n_expert, double terms)
{
    const struct plan_model *m = a->m;
    return a->card->lat + longer(n_expert * m->p_expert * a->f->expert / 8, a->card->bw,
                                 2 * terms * m->p_expert, a->card->ops);
}

static double experts_on_host(const struct at *a, double n_expert, double terms)
{
    const struct plan_model *m = a->m;
    return longer(n_expert * m->p_expert * a->f->expert / 8, a->card->host_bw,
                  2 * terms * m->p_expert, a->card->host_ops);
}

static double routed_on_device(const struct at *a)
{
    return experts_on_device(a, plan_experts_read(a->m, a->tok), a->tok * a->m->topk);
}

/* A layer whose experts lie on the CPU, from one router to the next: the device does g, then the
 * host its experts while the device does the shared and the hot ones; then rows of the latter come
 * to the host, which asks for them when it is through. late: the part of the experts that the host
 * computes while the device does g. */
static double apart(const struct at *a, double g, double late, struct plan_placed *out)
{
    const struct plan_model *m = a->m;
    const struct plan_card *card = a->card;
    double hit = hot_share(a), read = plan_experts_read(m, a->tok), terms = a->tok * m->topk;
    /* an expert that some tokens want in time and others late is read twice */
    double rest = 1 - hit, early = plan_experts_read(m, a->tok * (1 - late)) * rest;
    double now = experts_on_host(a, early, terms * (1 - late) * rest);
    double then = late > 0 ? experts_on_host(a, plan_experts_read(m, a->tok * late) * rest,
                                             terms * late * rest)
                           : 0;
    double out_moves = move(a, m->hidden) + 2 * move(a, m->topk), back = move(a, m->hidden);
    double wait = card->hand, beside = shared(a), hot = 0;
    if (a->p->n_hot) {
        beside += experts_on_device(a, read * hit, terms * hit);
        hot = move(a, (double)m->topk * m->hidden);
    }
    double host = wait + now, ends = fmax(host, beside);
    if (hot > 0) ends = fmax(host + wait, beside) + hot + wait;
    double to = g + out_moves, from = wait + back;
    /* the late ones begin when the host is through with those in time */
    double on = from + to + wait, t = to + ends + from;
    if (late > 0) t = now + fmax(on, then) + (ends - host);
    out->dev += g + beside + hot + out_moves + back;
    out->host += now + then;
    out->ways += out_moves + back + hot + 2 * wait;
    out->late_wait += late > 0 ? fmax(0, then - on) : 0;
    return t;
}

/* ---- experts that come to the device ---- */

static double slab_experts(const struct at *a)
{
    double E = a->m->experts, bytes = a->m->p_expert * a->f->expert / 8;
    double fit = floor(SLAB_BYTES / fmax(bytes, 1));
    return fmax(fmin(fit, ceil(E / SLABS_LEAST)), ceil(E / SLABS_MOST));
}

/* A layer whose experts come slab by slab: the first one while the device does g, each of the
 * others while it computes with the one before. */
static double streamed(const struct at *a, double g, struct plan_placed *out)
{
    const struct plan_model *m = a->m;
    const struct plan_card *card = a->card;
    double n = ceil(m->experts / slab_experts(a)), cold = 1 - a->p->n_hot / fmax(1, m->experts);
    double bytes = cold * m->experts * m->p_expert * a->f->expert / 8 / n;
    double hit = hot_share(a), terms = a->tok * m->topk, read = plan_experts_read(m, a->tok);
    double way = card->lat + bytes / card->bus;
    if (card->host_bw > 0) way = fmax(way, 2 * bytes / card->host_bw); /* read and written once */
    double one = experts_on_device(a, read * (1 - hit) / n, terms * (1 - hit) / n);
    double sum = card->lat + longer(4 * terms * m->hidden, card->bw, 0, 0);
    double on = g + shared(a);
    if (a->p->n_hot) on += experts_on_device(a, read * hit, terms * hit);
    double t = fmax(on, way) + (n - 1) * fmax(way, one) + one + sum;
    out->dev += on + n * one + sum;
    out->ways += t - (on + n * one + sum);
    return t;
}

static double step_time(const struct at *a, struct plan_placed *out)
{
    const struct plan_model *m = a->m;
    double lat = a->card->lat, attn = attention(a), t = 0;
    out->dev = out->host = out->ways = out->late_wait = 0;
    int dense = m->layers - m->moe_layers, n_cpu = a->p->n_cpu, here = m->moe_layers - n_cpu;
    double all = dense * (attn + lat + product(a, m->p_dense, a->f->dense, a->tok));
    if (here > 0) all += here * (attn + router(a) + shared(a) + routed_on_device(a));
    all += 4 * lat + product(a, m->p_embed, a->f->head, a->rows);
    out->dev = all;
    double late = a->attn_flop > 0 ? 0 : fmin(1, (double)a->p->n_late / fmax(1, m->topk));
    for (int i = 0; i < n_cpu; i++) { /* in the last layer none come late */
        bool last = i == m->moe_layers - 1;
        t += a->streams ? streamed(a, attn + router(a), out)
                        : apart(a, attn + router(a), last ? 0 : late, out);
    }
    return all + t;
}

/* A chunk of a prompt, its experts streamed or not. */
static double chunk_time(struct at *a, struct plan_placed *out)
{
    int from = a->p->stream_from;
    bool may = a->p->n_cpu > 0 && (from < 0 || (from > 0 && a->tok >= from));
    a->streams = may;
    double t = step_time(a, out);
    if (may && from < 0) {
        a->streams = false;
        double plain = step_time(a, out);
        may = t < plain;
        t = fmin(t, plain);
    }
    a->streams = false;
    if (may && (!out->stream_from || a->tok < out->stream_from)) out->stream_from = (int)a->tok;
    return t;
}

/* ---- memory ---- */

/* Copies of a sequence's states: the engine has two for each sequence and 9 more, so that prompts
 * find them again. */
#define STATE_COPIES 9

static void memory(const struct at *a, const struct plan_asked *q, struct plan_placed *out)
{
    const struct plan_model *m = a->m;
    const struct plan_format *f = a->f;
    double expert = m->p_expert * f->expert / 8;
    double rest = (m->layers * (m->p_attn + m->p_repl) * f->attn +
                   (m->layers - m->moe_layers) * m->p_dense * f->dense +
                   m->moe_layers * (m->p_shared * f->dense + m->p_router * 16) +
                   (m->p_embed + m->p_head) * f->head) / 8;
    out->dev_weights = rest + (m->moe_layers - a->p->n_cpu) * m->experts * expert;
    out->host_weights = a->p->n_cpu * (double)m->experts * expert;
    out->dev_hot = (double)a->p->n_cpu * a->p->n_hot * expert;
    out->seq = plan_kv_bytes(m, q->ctx, q->kv_bits, 1) + 2 * plan_state_bytes(m);
    double width = fmax(m->hidden * 8.0, m->topk * 2.0 * (m->hidden + m->moe_inter));
    out->dev_acts = q->chunk * width * 4 + fmin(q->chunk, 64) * (double)m->vocab * 4 +
                    STATE_COPIES * plan_state_bytes(m);
    out->stream_buf = 0;
    if (a->p->stream_from && a->p->n_cpu)
        out->stream_buf = SLAB_BUFS * slab_experts(a) * expert +
                          q->chunk * m->topk * (12.0 * m->moe_inter + 8.0 * m->hidden);
    out->dev_acts += out->stream_buf;
    out->dev_kv = fmax(1, q->batch) * out->seq;
    double fixed = out->dev_weights + out->dev_hot + out->dev_acts;
    out->free_seq = fmax(0, floor((a->card->mem - fixed) / out->seq));
    out->over = fixed + out->seq - a->card->mem;
    out->host_over = out->over <= 0 && a->card->host_mem > 0;
    if (out->host_over) out->over = out->host_weights - a->card->host_mem;
}

void plan_place(const struct plan_model *m, const struct plan_format *f,
                const struct plan_card *card, const struct plan_placing *p,
                const struct plan_asked *q, struct plan_placed *out)
{
    struct at a = {.m = m, .f = f, .card = card, .p = p, .kv_bits = q->kv_bits};
    *out = (struct plan_placed){0};
    memory(&a, q, out);
    for (double done = 0; done < q->prompt;) {
        double n = fmin(q->chunk, q->prompt - done);
        a.tok = n, a.rows = 1;
        a.attn_flop = plan_prompt_flop(m, n, done) / m->layers;
        out->prompt += chunk_time(&a, out);
        done += n;
    }
    a.tok = a.rows = a.seq = fmax(1, q->batch);
    a.ctx = q->ctx, a.attn_flop = 0;
    out->step = step_time(&a, out);
}

int plan_place_hot(const struct plan_model *m, const struct plan_format *f,
                   const struct plan_card *card, const struct plan_placing *p,
                   const struct plan_asked *q)
{
    struct plan_placed one;
    struct plan_placing none = *p;
    none.n_hot = 0;
    struct at a = {.m = m, .f = f, .card = card, .p = &none, .kv_bits = q->kv_bits};
    memory(&a, q, &one);
    double left = card->mem - one.dev_weights - one.dev_acts - one.dev_kv;
    double each = p->n_cpu * m->p_expert * f->expert / 8;
    double n = each > 0 ? floor(HOT_SHARE * left / each) : 0;
    return (int)fmax(0, fmin(n, m->experts));
}

int plan_place_least(const struct plan_model *m, const struct plan_format *f,
                     const struct plan_card *card, const struct plan_asked *q)
{
    for (int n = 0; n <= m->moe_layers; n++) {
        struct plan_placed one;
        struct plan_placing p = {.n_cpu = n};
        struct at a = {.m = m, .f = f, .card = card, .p = &p, .kv_bits = q->kv_bits};
        memory(&a, q, &one);
        if (one.over <= 0) return n;
    }
    return -1;
}
