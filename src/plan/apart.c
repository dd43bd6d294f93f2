/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts on an engine of their own: two engines alike, once with requests of both kinds on each,
 * once with one that computes prompts and one that continues them. */
#include "plan/apart.h"

#include <math.h>

#include "plan/plan_internal.h"

#define LINK_MOST 0.9 /* of the link, where prompts come when they like */

static struct plan_way mixed(const struct plan_case *c, const struct plan_load *w)
{
    struct plan_result r;
    plan_eval(c, w, &r);
    return (struct plan_way){r.ttft, r.tpot, r.e2e, r.util, r.stable};
}

/* Answers alone at w's rate, each of w->out tokens: s a token. */
static double answers(const struct plan_case *c, const struct plan_load *w, bool *stable)
{
    struct plan_memory mem;
    struct plan_time t;
    double n = 1, tok = 0, ctx = w->in + w->out / 2;
    plan_memory(c, 1, w->in + w->out, &mem);
    double most = fmax(1, mem.free_seq), want = 0;
    for (int i = 0; i < 60; i++) {
        plan_step(c, fmax(1, n), ctx, &t);
        tok = t.total / (1 + c->lay.accept);
        want = w->rate * w->out * tok;
        n = 0.5 * (n + fmin(want, most));
    }
    *stable = *stable && want <= most;
    return tok;
}

void plan_apart(const struct plan_case *c, const struct plan_load *w, double bw,
                struct plan_apart *out)
{
    struct plan_load half = *w, prompts = *w;
    *out = (struct plan_apart){0};
    half.rate = w->rate / 2;
    prompts.out = 1;
    out->one = mixed(c, w);
    out->two = mixed(c, &half);
    out->apart = mixed(c, &prompts);
    out->kv = plan_kv_bytes(c->model, w->in, c->kv_bits, 1);
    out->wire = out->kv / bw;
    out->load = w->rate * out->wire;
    /* layers go while later ones are computed; the last one's rows of the last piece do not */
    struct plan_time t;
    plan_prefill(c, 1, w->in, 0, &t);
    double L = fmax(1, c->model->layers);
    out->shown = fmax(out->wire / L, out->wire - t.total * (1 - 1 / L));
    struct plan_way *a = &out->apart;
    a->stable = a->stable && out->load < LINK_MOST;
    a->tpot = answers(c, w, &a->stable);
    a->ttft += out->shown + a->tpot; /* its last token is computed where it goes on */
    a->e2e = a->ttft + fmax(0, w->out - 1) * a->tpot;
    out->harm = (out->two.tpot - a->tpot) * fmax(0, w->out - 1);
    out->cost = a->ttft - out->two.ttft;
    out->pays = a->stable && (!out->two.stable || out->harm > out->cost);
}
