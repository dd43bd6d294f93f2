/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of step times by number of decoding and prompt tokens; sched/cost.h has the model. */
#include "sched/cost.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define DEPTH_UNIT 1024.0
#define NOISE 0.05         /* of a step's time */
#define HALF 16.0          /* tokens that load half of a mixture's experts */
#define DRIFT 0.003        /* of what a piece adds, from one mixed step to the next */
#define DOUBT 0.3          /* of a token's cost, standard deviation */
#define DRIFT_DEPTH 0.0003 /* the same of what grows with depth */
#define AGE 128.0          /* a step that long ago counts half */
#define GAIN 0.2           /* what a step changes of what is compared, after the first few, */
#define HELD_UP 1.1        /* as if it had taken so much of that at most */
#define SEEN_MOST 8        /* a number of tokens counts as so many steps at most */
#define GROWS 0.7          /* of a step's time that grows with its tokens, until more is known */
#define HOPE 0.1           /* so much of a step in which a further token */
#define HOPED 0.05         /* costs so much of it */

sl_status sched_cost_init(struct sched_cost *c, int n_tok_max, sl_err *err)
{
    void *p = NULL;
    memset(c, 0, sizeof *c);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n_tok_max + 1, sizeof *c->row, &p, err));
    c->row = p;
    c->n_row_max = n_tok_max;
    return SL_OK;
}

void sched_cost_fini(struct sched_cost *c)
{
    mem_free(c->row);
    memset(c, 0, sizeof *c);
}

static bool fresh(const struct sched_cost *c, int i, uint64_t n_fresh)
{
    return c->row[i].ns > 0 && c->n_step - c->row[i].step <= n_fresh;
}

/* The time of a step that decodes n tokens: of a number within an eighth, the one seen last, else
 * between the next smaller and larger ones. 0 = not known, or too long ago. */
static double decode_ns(const struct sched_cost *c, int n, uint64_t n_fresh)
{
    const struct sched_cost_row *best = NULL;
    int lo = n - n / 8, hi = BASE_MIN(n + n / 8, c->n_row_max);
    for (int i = lo; i <= hi; i++)
        if (c->row[i].ns > 0 && (!best || c->row[i].step > best->step)) best = &c->row[i];
    if (best) return c->n_step - best->step <= n_fresh ? best->ns : 0;
    while (lo > 0 && !fresh(c, lo, n_fresh))
        lo--;
    while (hi <= c->n_row_max && !fresh(c, hi, n_fresh))
        hi++;
    if (lo <= 0 || hi > c->n_row_max) return 0;
    double at = (double)(n - lo) / (hi - lo);
    return c->row[lo].ns + at * (c->row[hi].ns - c->row[lo].ns);
}

/* How many steps a row still counts as. */
static double weight(const struct sched_cost *c, const struct sched_cost_row *r)
{
    return BASE_MIN(r->n_seen, SEEN_MOST) * exp2(-(double)(c->n_step - r->step) / AGE);
}

/* The time of steps of i tokens, where those of at < i take ns. One that was held up when it was
 * tried would not be tried again, so what was seen long ago is doubted. */
static double doubted(const struct sched_cost *c, int i, int at, double ns)
{
    const struct sched_cost_row *r = &c->row[i];
    double w = weight(c, r);
    if (at == 0) return r->mid;
    return (w * r->mid + HOPE * ns * (1 + HOPED * (i - at))) / (w + HOPE);
}

/* The time of a step that decodes n tokens, or between the next smaller and larger ones; 0 = not
 * known. */
static double between(const struct sched_cost *c, int n)
{
    int at = 0, hi = n + 1;
    double ns = 0;
    for (int i = 1; i <= n; i++)
        if (c->row[i].ns > 0) {
            ns = doubted(c, i, at, ns);
            at = i;
        }
    if (at == n) return ns;
    while (hi <= c->n_row_max && c->row[hi].ns <= 0)
        hi++;
    if (at == 0 || hi > c->n_row_max) return 0;
    return ns + (double)(n - at) / (hi - at) * (doubted(c, hi, at, ns) - ns);
}

/* Each of so many numbers of tokens is seen seldom, and on a busy machine one that was fast once
 * would be taken for the best: so all speak for the slope, and before they do it is that of steps
 * most of whose time grows with their tokens. */
static void fit_line(struct sched_cost *c, int n)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    c->line = (struct sched_cost_line){0};
    for (int i = n / 2; i <= BASE_MIN(4 * n, c->n_row_max); i++) {
        const struct sched_cost_row *r = &c->row[i];
        if (r->ns <= 0) continue;
        double v = BASE_MAX(weight(c, r), 1e-9);
        w += v;
        x += v * i;
        y += v * r->mid;
        xx += v * i * i;
        xy += v * i * r->mid;
    }
    if (w <= 0) return;
    x /= w;
    y /= w;
    double one = n / 4.0 * (n / 4.0); /* what is assumed counts as a step so far away */
    double more = (xy - w * x * y + one * GROWS * y / x) / (BASE_MAX(xx - w * x * x, 0) + one);
    more = BASE_MAX(more, 0);
    c->line = (struct sched_cost_line){n, 4 * n, c->n_step, y + more * (n - x), more};
}

double sched_cost_compare(struct sched_cost *c, int n_decode)
{
    const struct sched_cost_line *l = &c->line;
    int n = BASE_MIN(n_decode, c->n_row_max);
    if (n <= SCHED_ALONE) return n ? between(c, n) : 0;
    if (l->step != c->n_step || n < l->at || n > l->to) fit_line(c, n);
    return l->at ? BASE_MAX(l->ns + l->more * (n - l->at), 1) : 0;
}

double sched_cost_decode(const struct sched_cost *c, int n_decode)
{
    return n_decode ? decode_ns(c, BASE_MIN(n_decode, c->n_row_max), UINT64_MAX) : 0;
}

/* One step that was held up by something else says little: up slowly, down fast. */
static double blend(double old, double new)
{
    if (old <= 0) return new;
    return new < old ? 0.5 * (old + new) : old + 0.25 * (BASE_MIN(new, 2 * old) - old);
}

/* A step that took much longer says that something else ran, not how long such steps take. */
static void see(struct sched_cost_row *r, double ns)
{
    double gain = BASE_MAX(1.0 / r->n_seen, GAIN), most = r->n_seen > 1 ? HELD_UP * r->mid : ns;
    r->mid += gain * (BASE_MIN(ns, most) - r->mid);
}

static void regressors(double n, int depth, double *x)
{
    double d = depth / DEPTH_UNIT;
    x[SCHED_F0] = 1;
    x[SCHED_F1] = d;
    x[SCHED_S0] = n / (n + HALF);
    x[SCHED_T0] = n;
    x[SCHED_T1] = n * d;
}

/* From the first step: three quarters are the tokens', and nothing is known well. */
static void learn_first(struct sched_cost *c, double n, double more)
{
    memset(c->var, 0, sizeof c->var);
    c->par[SCHED_F0] = 0.25 * more;
    c->par[SCHED_T0] = 0.75 * more / n;
    c->par[SCHED_F1] = c->par[SCHED_S0] = c->par[SCHED_T1] = 0;
    for (int i = 0; i < SCHED_N_PARAM; i++) {
        double s = i < SCHED_T0 ? 0.5 * more : 0.5 * more / n;
        c->var[i][i] = s * s;
    }
}

/* gain = var x; what the parameters' doubts make of the guess. */
static double gains(const struct sched_cost *c, const double *x, double *gain)
{
    double spread = 0;
    for (int i = 0; i < SCHED_N_PARAM; i++) {
        gain[i] = 0;
        for (int k = 0; k < SCHED_N_PARAM; k++)
            gain[i] += c->var[i][k] * x[k];
        spread += gain[i] * x[i];
    }
    return spread;
}

/* One step of the filter; base: scale of the noise. No parameter is negative: one that is zero and
 * would become less is left out, so that the others account for the step. */
static void learn(struct sched_cost *c, double n, int depth, double more, double base)
{
    double x[SCHED_N_PARAM], gain[SCHED_N_PARAM], guess = 0, all = 1, off = 0;
    regressors(n, depth, x);
    for (int i = 0; i < SCHED_N_PARAM; i++)
        guess += c->par[i] * x[i];
    for (int i = 0; i < SCHED_N_PARAM; i++) {
        /* what a parameter contributes drifts by so much of the whole in a step */
        double share = i == SCHED_F1 || i == SCHED_T1 ? DRIFT_DEPTH : DRIFT;
        double drift = share * (guess + 0.1 * base) / BASE_MAX(x[i], i < SCHED_T0 ? 1 : n);
        c->var[i][i] += drift * drift;
    }
    double noise = NOISE * (guess + base);
    for (bool again = true; again;) {
        again = false;
        all = gains(c, x, gain) + noise * noise;
        /* One step that was held up by something else says little. */
        off = BASE_MAX(BASE_MIN(more - guess, 2 * sqrt(all)), -2 * sqrt(all));
        for (int i = 0; i < SCHED_N_PARAM; i++)
            if (x[i] > 0 && c->par[i] <= 0 && gain[i] * off < 0) {
                x[i] = 0;
                again = true;
            }
    }
    for (int i = 0; i < SCHED_N_PARAM; i++)
        c->par[i] = BASE_MAX(c->par[i] + gain[i] / all * off, 0);
    for (int i = 0; i < SCHED_N_PARAM; i++)
        for (int k = 0; k < SCHED_N_PARAM; k++)
            c->var[i][k] -= gain[i] * gain[k] / all;
}

void sched_cost_observe(struct sched_cost *c, int n_decode, int n_prompt, int depth, int64_t ns)
{
    if (ns <= 0) return;
    c->n_step++;
    n_decode = BASE_MIN(n_decode, c->n_row_max);
    if (n_prompt == 0) {
        struct sched_cost_row *r = &c->row[n_decode];
        r->ns = blend(r->ns, (double)ns);
        r->step = c->n_step;
        r->n_seen += r->n_seen < SEEN_MOST;
        see(r, (double)ns);
        return;
    }
    double base = n_decode ? decode_ns(c, n_decode, SCHED_FRESH) : 0;
    if (base <= 0) return;
    double more = BASE_MAX((double)ns - base, 0.01 * base);
    if (c->n_mixed++ == 0)
        learn_first(c, n_prompt, more);
    else
        learn(c, n_prompt, depth, more, base);
    /* A step that came out too long makes the next piece smaller at once. */
    c->most = more > 1.25 * BASE_MAX(c->aim, SCHED_SHARE * base)
                  ? 0.7 * n_prompt
                  : BASE_MAX(1.5 * n_prompt, n_prompt + 2);
}

/* Standard deviation of parameter i + d times parameter i + k. */
static double doubt_of(const struct sched_cost *c, int i, int k, double d)
{
    double x = c->var[i][i] + 2 * d * c->var[i][k] + d * d * c->var[k][k];
    return sqrt(BASE_MAX(x, 0));
}

/* What a piece may add to a step: the share; more where the prompt's last pieces, by what any piece
 * costs there, will certainly add more whatever their size: then its first ones may as well. */
static double aim(const struct sched_cost *c, double share, double end)
{
    double last = c->par[SCHED_F0] + end * c->par[SCHED_F1];
    last -= 2 * doubt_of(c, SCHED_F0, SCHED_F1, end);
    return BASE_MAX(share, last + BASE_MAX(SCHED_LEAST * share, SCHED_SPARE * last));
}

int sched_cost_budget(struct sched_cost *c, int n_decode, const struct sched_cost_want *w)
{
    /* an owner that uses less than its share does not wait for a measurement */
    uint64_t n_fresh = w->light ? UINT64_MAX : SCHED_FRESH;
    double base = 0, d = w->depth / DEPTH_UNIT;
    if (w->n_draft) base = decode_ns(c, BASE_MIN(n_decode + w->n_draft, c->n_row_max), n_fresh);
    if (base <= 0) base = decode_ns(c, BASE_MIN(n_decode, c->n_row_max), n_fresh);
    if (c->n_step == 0) return w->n_max; /* nobody measures */
    if (base <= 0) return w->light ? BASE_MIN(SCHED_MIX_LIGHT, w->n_max) : 0;
    if (c->n_mixed == 0) return BASE_MIN(SCHED_MIX_FIRST, w->n_max);
    double fixed = c->par[SCHED_F0] + c->par[SCHED_F1] * d;
    double tok = c->par[SCHED_T0] + c->par[SCHED_T1] * d + 1;
    double crowd = BASE_MAX(1, SCHED_CROWD * (w->n_wait - 1) / n_decode);
    if (w->light) crowd = BASE_MAX(crowd, SCHED_LIGHT);
    double share = SCHED_SHARE * crowd * base;
    c->aim = aim(c, share, w->end / DEPTH_UNIT);
    double doubt = doubt_of(c, SCHED_T0, SCHED_T1, d), load = c->par[SCHED_S0],
           left = c->aim - fixed;
    double dear = tok + load / HALF + doubt;
    double b = HALF * tok + load - left; /* tok n + load n / (n + HALF) = left */
    double n = (sqrt(b * b + 4 * tok * HALF * left) - b) / (2 * tok);
    n = BASE_MIN(n, c->most * crowd);
    n = BASE_MAX(n, SCHED_LEAST * share / (dear + doubt)); /* however busy the machine */
    /* Sometimes another size, to tell what a token costs from what any piece costs: a smaller one,
     * since a step too long is felt; a larger one where that leaves doubts. */
    if (w->light)
        ; /* it is in a hurry */
    else if (c->n_mixed % 8 == 3)
        n = 0.5 * n;
    else if (c->n_mixed % 8 == 7)
        n = doubt > DOUBT * tok ? BASE_MAX(n, 1) + 1 + SCHED_SPARE * c->aim / dear : 0.5 * n;
    n = BASE_MAX(n, 1);
    return n < w->n_max ? (int)n : w->n_max;
}
