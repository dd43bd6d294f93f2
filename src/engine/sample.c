/* SPDX-License-Identifier: Apache-2.0 */
/* What can be drawn: bias, penalties, temperature and filters; race.c draws. Every sum runs in the
 * order of the ids or of the sorted candidates, so a draw depends on the logits, the history and
 * (seed, sample, index) only. */
#include <math.h>
#include <string.h>

#include "base/argmax.h"
#include "base/fp_math.h"
#include "engine/engine_internal.h"
#include "kern/kern.h"

sl_status engine_sampler_init(struct engine_sampler *s, int n_vocab, sl_err *err)
{
    memset(s, 0, sizeof *s);
    s->n_vocab = n_vocab;
    SL_TRY(engine_array((size_t)n_vocab, sizeof *s->work, &s->work, err));
    SL_TRY(engine_array((size_t)n_vocab, sizeof *s->cand, &s->cand, err));
    return engine_array((size_t)n_vocab, sizeof *s->count, &s->count, err);
}

void engine_sampler_fini(struct engine_sampler *s)
{
    mem_free(s->work);
    mem_free(s->cand);
    mem_free(s->count);
    mem_free(s->all);
    memset(s, 0, sizeof *s);
}

static bool listed(const struct engine_draw *d, int32_t id)
{
    if (d->mask && !(d->mask[id / 32] >> (id % 32) & 1)) return true;
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < d->n_forbid[l]; i++)
            if (d->forbid[l][i] == id) return true;
    return false;
}

/* Work without the ids that can not be chosen. */
static void forbid(struct engine_sampler *s, const struct engine_draw *d)
{
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < d->n_forbid[l]; i++)
            s->work[d->forbid[l][i]] = -INFINITY;
    for (int i = 0; d->mask && i < s->n_vocab; i += 32) {
        uint32_t no = ~d->mask[i / 32];
        int n = BASE_MIN(32, s->n_vocab - i);
        for (int k = 0; no && k < n; k++)
            if (no >> k & 1) s->work[i + k] = -INFINITY;
    }
}

/* Bias, penalties and forbidden ids on the copy in work. */
static void adjust(struct engine_sampler *s, const struct engine_draw *d)
{
    const sl_sampling *p = d->p;
    float rep = p->repeat_penalty > 0 ? p->repeat_penalty : 1.0f;
    memcpy(s->work, d->logit, (size_t)s->n_vocab * sizeof *s->work);
    if (rep != 1.0f) {
        for (int i = 0; i < d->n_known; i++) {
            float *l = &s->work[d->known[i]];
            if (s->count[d->known[i]]++ == 0) *l = *l > 0 ? *l / rep : *l * rep;
        }
        for (int i = 0; i < d->n_known; i++)
            s->count[d->known[i]] = 0;
    }
    if (p->presence_penalty != 0 || p->frequency_penalty != 0) {
        for (int i = d->n_prompt; i < d->n_known; i++)
            s->count[d->known[i]]++;
        for (int i = d->n_prompt; i < d->n_known; i++) {
            int32_t id = d->known[i];
            if (!s->count[id]) continue;
            s->work[id] -= p->presence_penalty + p->frequency_penalty * (float)s->count[id];
            s->count[id] = 0;
        }
    }
    for (int i = 0; i < p->n_bias; i++)
        s->work[p->bias[i].token] =
            p->bias[i].bias <= -100.0f ? -INFINITY : s->work[p->bias[i].token] + p->bias[i].bias;
    forbid(s, d);
}

static bool before(const struct engine_cand *a, const struct engine_cand *b)
{
    return a->v > b->v || (a->v == b->v && a->id < b->id);
}

/* Move cand[i] down a heap of n: the best at the top, or (worst) the worst. */
static void sink(struct engine_cand *c, int i, int n, bool worst)
{
    for (;;) {
        int k = 2 * i + 1;
        if (k >= n) return;
        if (k + 1 < n && before(&c[k + 1], &c[k]) != worst) k++;
        if (before(&c[k], &c[i]) == worst) return;
        struct engine_cand t = c[i];
        c[i] = c[k];
        c[k] = t;
        i = k;
    }
}

static void heap(struct engine_cand *c, int n, bool worst)
{
    for (int i = n / 2 - 1; i >= 0; i--)
        sink(c, i, n, worst);
}

/* Take the top off a heap of *n: it goes to the place that becomes free. */
static void pop(struct engine_cand *c, int *n, bool worst)
{
    struct engine_cand top = c[0];
    c[0] = c[--*n];
    c[*n] = top;
    sink(c, 0, *n, worst);
}

/* The best want of n candidates (in order of ids) to the front, best first. A heap of the best so
 * far turns most away with one comparison. */
static void best_first(struct engine_cand *c, int n, int want)
{
    int left = want;
    heap(c, want, true);
    for (int i = want; i < n; i++) {
        if (!(c[i].v > c[0].v)) continue; /* of equals the lower id, which came before */
        c[0] = c[i];
        sink(c, 0, want, true);
    }
    while (left > 1)
        pop(c, &left, true); /* the worst to the end */
}

/* The candidates from least on, in the order of ids. */
static int collect(struct engine_sampler *s, float least)
{
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (s->work[i] > -INFINITY && s->work[i] >= least)
            s->cand[n++] = (struct engine_cand){s->work[i], i};
    return n;
}

/* Draw among the top_k of n candidates, or the first of them that reach top_p. */
static int32_t draw_top(struct engine_cand *c, int n, const struct engine_draw *d, bool nucleus)
{
    int k = d->p->top_k, take = 0;
    double z = 0, kept = 0;
    best_first(c, n, k);
    for (int i = 0; i < k; i++)
        z += fp_exp((double)c[i].v);
    double goal = nucleus ? (double)d->p->top_p * z : INFINITY;
    while (take < k && kept < goal)
        kept += fp_exp((double)c[take++].v);
    return engine_race(c, take, d);
}

/* Draw among the likeliest of the candidates from least on that reach top_p. Those are left out
 * that are so small that all of them together can not reach into the nucleus: the others add up to
 * more than half way from top_p to 1. */
static int32_t draw_nucleus(struct engine_sampler *s, const struct engine_draw *d, float least)
{
    struct engine_cand *c = s->cand;
    double top_p = (double)d->p->top_p, kept = 0;
    struct draw_mass m = kern_get()->draw_mass(s->work, s->n_vocab, least);
    if (1 - top_p >= 1e-6) {
        float far = (float)fp_log((1 - top_p) * m.sum / (2.0 * m.n));
        least = far > least ? far : least;
    }
    int n = collect(s, least), left = n;
    heap(c, n, false);
    while (left > 0 && kept < top_p * m.sum) {
        pop(c, &left, false); /* sorted from the end */
        kept += fp_exp((double)c[left].v);
    }
    return engine_race(c + left, n - left, d);
}

/* Draw among filtered candidates: work holds (logit - max) / temperature. */
static int32_t draw_filtered(struct engine_sampler *s, const struct engine_draw *d)
{
    const sl_sampling *p = d->p;
    float least = p->min_p > 0 ? (float)fp_log((double)p->min_p) : -INFINITY;
    bool nucleus = p->top_p > 0 && p->top_p < 1;
    if (nucleus && p->top_k <= 0) return draw_nucleus(s, d, least);
    int n = collect(s, least);
    if (p->top_k > 0 && p->top_k < n) return draw_top(s->cand, n, d, nucleus);
    return nucleus ? draw_nucleus(s, d, least) : engine_race(s->cand, n, d);
}

static bool needs_copy(const struct engine_draw *d)
{
    const sl_sampling *p = d->p;
    return p->n_bias || p->presence_penalty != 0 || p->frequency_penalty != 0 ||
           (p->repeat_penalty > 0 && p->repeat_penalty != 1.0f);
}

/* As dev_best says. */
static int best_of(const struct engine_draw *d, int n)
{
    if (d->best) return *d->best;
    int best = argmax_f32(d->logit, n);
    return best >= 0 && d->logit[best] == -INFINITY ? DEV_BEST_NONE : best;
}

sl_status engine_sample(struct engine_sampler *s, const struct engine_draw *d, int32_t *token,
                        sl_err *err)
{
    const sl_sampling *p = d->p;
    int best = best_of(d, s->n_vocab);
    if (best == DEV_BEST_NONE)
        return SL_FAIL(err, INTERNAL, "no token can be chosen: all are impossible");
    if (best < 0) return SL_FAIL(err, INTERNAL, "the model's output is not a number");
    bool greedy = !(p->temperature > 0), as_is = !needs_copy(d) && !listed(d, best);
    if (greedy && as_is) {
        *token = best;
        return SL_OK;
    }
    ASSERT(d->logit);
    const float *from = d->logit;
    if (!as_is) {
        adjust(s, d);
        from = s->work;
        best = argmax_f32(from, s->n_vocab);
        if (best < 0) return SL_FAIL(err, INTERNAL, "the model's output is not a number");
    }
    float top = from[best];
    if (top == -INFINITY)
        return SL_FAIL(err, REQUEST,
                       "no token can be chosen: the request forbids all that are possible");
    *token = best;
    if (d->likely) *d->likely = 1;
    if (greedy || top == INFINITY || p->top_k == 1) return SL_OK;
    for (int i = 0; i < s->n_vocab; i++)
        s->work[i] = (from[i] - top) / p->temperature;
    if (as_is) forbid(s, d);
    if (d->likely) *d->likely = 1 / kern_get()->draw_mass(s->work, s->n_vocab, -INFINITY).sum;
    bool filter = p->top_k > 0 || p->min_p > 0 || (p->top_p > 0 && p->top_p < 1);
    *token = filter ? draw_filtered(s, d) : engine_race_all(s->work, s->n_vocab, best, d);
    return SL_OK;
}

#define IMPOSSIBLE (-9999.0f)

void engine_logprobs(const float *logit, int n_vocab, int32_t token, int n_top, float *logprob,
                     sl_logprob *top)
{
    float max = logit[0];
    double z = 0;
    int n = 0;
    for (int i = 1; i < n_vocab; i++)
        if (logit[i] > max) max = logit[i];
    for (int i = 0; i < n_vocab; i++) {
        z += max == INFINITY ? (double)(logit[i] == INFINITY) : exp((double)logit[i] - (double)max);
        if (n_top == 0 || (n == n_top && !(logit[i] > top[n - 1].logprob))) continue;
        int at = n < n_top ? n++ : n - 1;
        while (at > 0 && top[at - 1].logprob < logit[i]) {
            top[at] = top[at - 1];
            at--;
        }
        top[at] = (sl_logprob){.token = i, .logprob = logit[i]};
    }
    double log_z = log(z);
    for (int i = -1; i < n; i++) {
        float *v = i < 0 ? logprob : &top[i].logprob;
        float l = i < 0 ? logit[token] : top[i].logprob;
        double lp = l == max ? -log_z : (double)l - (double)max - log_z;
        *v = lp > (double)IMPOSSIBLE ? (float)fmin(lp, 0.0) : IMPOSSIBLE;
    }
}
