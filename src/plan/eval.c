/* SPDX-License-Identifier: Apache-2.0 */
/* From steps to what a user sees: the burst of requests, Poisson arrivals, split pools. */
#include <math.h>

#include "plan/plan_internal.h"

static const char *bound_of(const struct plan_case *c, const struct plan_time *t)
{
    struct {
        const char *name;
        double v;
    } s[] = {{"weights", t->weights},   {"experts", t->experts},    {"KV", t->attn},
             {"compute", t->compute},   {"communication", t->comm}, {"fixed cost", t->fixed},
             {"vector work", t->token}, {"experts on CPU", t->cpu}, {"drafts", t->draft}};
    int best = 0;
    for (int i = 1; i < (int)(sizeof s / sizeof s[0]); i++) {
        if (s[i].v > s[best].v) best = i;
    }
    (void)c;
    return s[best].name;
}

/* Two published rows of one engine: 1622 prefill tokens/s per card apart, 576 mixed with decode. */
#define MIXED_DP (1622.0 / 576.0)

static double chunk_of(const struct plan_case *c)
{
    double chunk = c->lay.chunk > 0 ? c->lay.chunk : c->k.v[PLAN_CHUNK];
    return fmax(chunk, 1) * fmax(c->lay.dp, 1);
}

/* One decode step per produced token of a user. */
static double tpot_of(const struct plan_case *c, double batch, double ctx, struct plan_time *t)
{
    plan_step(c, batch, ctx, t);
    return t->total / (1 + c->lay.accept);
}

/* Time that a batch adds when others came before it: the host launches it while the device is still
 * busy with them, so the longer of the two counts. */
static double follow_time(const struct plan_case *c, const struct plan_time *t)
{
    double t0 = c->k.v[PLAN_T0];
    return fmax(t->device, t0) + t->fixed - t0;
}

/* A burst of n requests on one pool, prefill first. */
static void burst(const struct plan_case *c, const struct plan_load *w, double n,
                  struct plan_result *r)
{
    double per = fmax(1, fmin(n, floor(chunk_of(c) / fmax(1, w->in))));
    double full = floor(n / per), left = n - full * per;
    struct plan_time t;
    plan_prefill(c, per, w->in, 0, &r->pre);
    double one = follow_time(c, &r->pre), lead = r->pre.total - one;
    double now = full * one, sum = per * one * full * (full + 1) / 2;
    if (left > 0) {
        plan_prefill(c, left, w->in, 0, &t);
        now += follow_time(c, &t);
        sum += left * now;
    }
    now += lead, sum += n * lead;
    r->ttft = sum / n;
    double steps = fmax(w->out - 1, 0);
    double tok = tpot_of(c, n, w->in + w->out / 2, &r->step);
    double end = now + steps * tok;
    r->e2e = end;
    r->tpot = steps > 0 ? (end - r->ttft) / steps : tok;
    r->out_tps = n * w->out / end;
    r->prefill_tps = n * w->in / now;
    r->util = now / end;
    r->steady_tps = n * w->out / (now + w->out * tok);
}

/* Our own scheduler: each step carries every decode token and at most one chunk of prompt. */
static void burst_chunked(const struct plan_case *c, const struct plan_load *w, double n,
                          struct plan_result *r)
{
    double chunk = chunk_of(c), now = 0, sum = 0, sum_end = 0, out_left = fmax(w->out - 1, 0);
    struct plan_time p, d;
    double per = fmax(1, floor(chunk / fmax(1, w->in))), run = 0, done = 0, work = 0;
    chunk = fmax(chunk, w->in / 256); /* the rounds below stay under 20000 */
    double pieces = fmax(1, ceil(w->in / chunk));
    per = fmax(per, ceil(n * pieces / 20000));
    plan_prefill(c, fmin(per, n), fmin(w->in, chunk), 0, &p);
    r->pre = p;
    while (done < n) {
        double take = fmin(per, n - done);
        for (double i = 0; i < pieces; i++) {
            double len = fmin(chunk, w->in - i * chunk);
            plan_prefill(c, take, len, i * chunk, &p);
            now += p.total;
            if (run > 0) {
                plan_step(c, run, w->in, &d);
                now += fmax(0, d.total - d.fixed); /* decode rides in the same step */
                work += run * (1 + c->lay.accept);
            }
        }
        sum += take * now;
        done += take;
        run = done;
    }
    double tok = tpot_of(c, n, w->in + w->out / 2, &r->step);
    double rest = fmax(0, out_left - work / n);
    sum_end = now + rest * tok;
    r->ttft = sum / n;
    r->e2e = sum_end;
    r->tpot = out_left > 0 ? (sum_end - r->ttft) / out_left : tok;
    r->out_tps = n * w->out / sum_end;
    r->prefill_tps = n * w->in / now;
    r->util = now / sum_end;
    r->steady_tps = n * w->out / (now + w->out * tok);
}

/* Poisson arrivals at rate w->rate: concurrency by fixed point, prefill as a queue with constant
 * service. */
static void poisson(const struct plan_case *c, const struct plan_load *w, double most,
                    struct plan_result *r)
{
    struct plan_time t;
    plan_prefill(c, 1, w->in, 0, &t);
    r->pre = t;
    double per = fmax(1, floor(chunk_of(c) / fmax(1, w->in)));
    struct plan_time tb;
    plan_prefill(c, per, w->in, 0, &tb);
    double service = fmin(t.total, tb.total / per); /* batches form when a queue stands */
    if (w->out > 1 && c->lay.dp > 1 && (c->lay.ep > 1 || c->team)) {
        service *= MIXED_DP; /* while one rank prefills, all ranks take a prefill step */
    }
    double rho = w->rate * service;
    r->util = rho;
    r->stable = rho < 0.98;
    double free = fmax(1 - rho, 0.02), n = 1;
    r->ttft = t.total + rho * fmax(service, t.total) / (2 * free);
    for (int i = 0; i < 60; i++) {
        double tok = tpot_of(c, fmax(n, 1), w->in + w->out / 2, &r->step) / free;
        r->tpot = tok;
        r->e2e = r->ttft + fmax(w->out - 1, 0) * tok;
        double next = w->rate * r->e2e;
        if (next > most) {
            r->stable = false;
            next = most;
        }
        if (fabs(next - n) < 1e-3 * n) break;
        n = 0.5 * (n + next);
    }
    r->out_tps = r->stable ? w->rate * w->out : fmax(n, 1) / r->tpot;
    r->prefill_tps = fmin(w->rate, 0.98 / service) * w->in;
    r->steady_tps = fmax(n, 1) / r->tpot;
}

/* Prefill on n_p nodes, decode on n_d nodes, KV sent between them. */
static void split(const struct plan_case *c, const struct plan_load *w, struct plan_result *r)
{
    struct plan_case pc = *c, dc = *c;
    double per_node = (double)c->lay.ranks / (c->lay.n_p + c->lay.n_d);
    pc.lay.ranks = (int)(per_node * c->lay.n_p);
    dc.lay.ranks = (int)(per_node * c->lay.n_d);
    for (int i = 0; i < 2; i++) {
        struct plan_layout *l = i ? &dc.lay : &pc.lay;
        l->n_p = l->n_d = 0;
        l->pp = 1;
        l->tp = c->lay.tp < l->ranks ? c->lay.tp : l->ranks;
        l->dp = l->ranks / l->tp;
        l->ep = c->lay.ep > 1 ? l->ranks : 1;
    }
    pc.lay.mtp = 0, pc.lay.accept = 0, pc.lay.redundant = 0;
    struct plan_load pw = *w, dw = *w;
    pw.out = 1;
    struct plan_result p = {0};
    if (w->rate > 0)
        poisson(&pc, &pw, 1e9, &p);
    else
        burst(&pc, &pw, w->n, &p);
    double kv = plan_kv_bytes(c->model, w->in, c->kv_bits, 1);
    double bw = fmax(c->dev->net > 0 ? c->dev->net : c->dev->link, 1e9);
    r->pre = p.pre;
    r->ttft = p.ttft + kv / bw;
    plan_memory(&dc, w->n, w->in + w->out, &r->mem);
    double n = w->n;
    if (w->rate > 0) {
        for (int i = 0; i < 40; i++) {
            double tok = tpot_of(&dc, fmax(n, 1), w->in + w->out / 2, &r->step);
            double next = fmin(w->rate * w->out * tok, fmax(r->mem.free_seq, 1));
            n = 0.5 * (n + next);
        }
        r->stable =
            p.stable && w->rate * w->out * r->step.total / (1 + dc.lay.accept) < r->mem.free_seq;
    }
    double hold = fmax(1, r->mem.free_seq), waves = ceil(fmax(1, n) / hold);
    dw.n = ceil(fmax(1, n) / waves);
    r->tpot = tpot_of(&dc, dw.n, w->in + w->out / 2, &r->step);
    double one = fmax(w->out - 1, 0) * r->tpot;
    r->ttft += one * (waves - 1) / 2; /* the decode pool holds fewer at a time */
    r->e2e = r->ttft + one;
    plan_memory(&dc, dw.n, w->in + w->out, &r->mem);
    double decode = dw.n / r->tpot, feed = p.prefill_tps / fmax(w->in, 1) * w->out;
    r->out_tps = w->rate > 0 && r->stable ? w->rate * w->out : fmin(decode, fmax(feed, 1e-9));
    r->steady_tps = fmin(decode, fmax(feed, 1e-9));
    r->prefill_tps = p.prefill_tps;
    r->util = fmin(1, decode / fmax(feed, 1e-9));
}

void plan_eval(const struct plan_case *c, const struct plan_load *w, struct plan_result *r)
{
    *r = (struct plan_result){0};
    r->stable = true;
    double n = fmax(w->n, 1);
    bool pools = c->lay.n_p > 0 && c->lay.n_d > 0;
    if (pools) {
        split(c, w, r);
    } else {
        plan_memory(c, n, w->in + w->out, &r->mem);
        double most = r->mem.free_seq >= 1 ? r->mem.free_seq : n;
        double waves = w->rate > 0 ? 1 : ceil(n / most), now = ceil(n / waves);
        if (w->rate > 0)
            poisson(c, w, most, r);
        else if (w->chunked)
            burst_chunked(c, w, now, r);
        else
            burst(c, w, now, r);
        if (waves > 1) { /* the memory holds fewer at a time: the rest waits */
            double one = r->e2e;
            r->ttft += one * (waves - 1) / 2;
            r->e2e = one * (waves + 1) / 2;
            r->out_tps = n * w->out / (one * waves);
        }
    }
    r->user_tps = r->tpot > 0 ? 1 / r->tpot : 0;
    r->bound = bound_of(c, &r->step);
    if (r->util > 0.6 && !pools) r->bound = "queue";
    double s = c->k.sigma_decode > 0 ? c->k.sigma_decode : 0.5;
    r->lo = exp(-1.2816 * s);
    r->hi = exp(1.2816 * s);
    s = c->k.sigma_prefill > 0 ? c->k.sigma_prefill : 0.5;
    r->lo_ttft = exp(-1.2816 * s);
    r->hi_ttft = exp(1.2816 * s);
}

/* ---- as many users as the limits allow ----------------------------------------------------------
 */

double plan_most(bool (*holds)(void *user, double n), void *user, double most)
{
    double lo = 0, hi = 0;
    most = floor(fmax(most, 1));
    for (double n = 1;; n = fmin(2 * n, most)) {
        if (holds(user, n))
            lo = n, hi = n;
        else if (hi == lo)
            hi = n; /* the first failure above the largest that holds */
        if (n >= most) break;
    }
    if (lo == 0) return 0;
    while (hi - lo > 1) {
        double mid = floor(0.5 * (lo + hi));
        if (holds(user, mid))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

struct promise {
    const struct plan_case *c;
    struct plan_load w;
    const struct plan_limits *lim;
};

static bool kept(void *user, double n)
{
    struct promise *p = user;
    struct plan_result r;
    p->w.n = n;
    plan_eval(p->c, &p->w, &r);
    return r.stable && (p->lim->ttft <= 0 || r.ttft <= p->lim->ttft) &&
           (p->lim->tpot <= 0 || r.tpot <= p->lim->tpot);
}

double plan_most_users(const struct plan_case *c, const struct plan_load *w,
                       const struct plan_limits *lim)
{
    struct promise p = {.c = c, .w = *w, .lim = lim};
    struct plan_result one;
    p.w.n = 1, p.w.rate = 0;
    plan_eval(c, &p.w, &one);
    double most = lim->batch > 0 ? lim->batch : PLAN_DIE_BATCH * c->lay.ranks;
    if (one.mem.free_seq >= 1) most = fmin(most, one.mem.free_seq);
    return plan_most(kept, &p, most);
}
