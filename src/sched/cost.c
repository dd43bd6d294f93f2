/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/cost.h"

#include <string.h>

#define SCHED_MEMORY 0.95 /* of what was seen, from one mixed step to the next */

sl_status sched_cost_init(struct sched_cost *c, int n_run_max, sl_err *err)
{
    void *p = NULL;
    memset(c, 0, sizeof *c);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n_run_max + 1, sizeof *c->row, &p, err));
    c->row = p;
    c->n_row_max = n_run_max;
    return SL_OK;
}

void sched_cost_fini(struct sched_cost *c)
{
    mem_free(c->row);
    memset(c, 0, sizeof *c);
}

/* The time of a step that decodes n sequences: of a number within an eighth, the one seen last. 0 =
 * not known, or too long ago. */
static double decode_ns(const struct sched_cost *c, int n)
{
    const struct sched_cost_row *best = NULL;
    int hi = BASE_MIN(n + n / 8, c->n_row_max);
    for (int i = n - n / 8; i <= hi; i++)
        if (c->row[i].ns > 0 && (!best || c->row[i].step > best->step)) best = &c->row[i];
    return best && c->n_step - best->step <= SCHED_FRESH ? best->ns : 0;
}

/* One step that was held up by something else says little: up slowly, down fast. */
static double blend(double old, double new)
{
    if (old <= 0) return new;
    return new < old ? 0.5 * (old + new) : old + 0.25 * (BASE_MIN(new, 2 * old) - old);
}

/* Straight line through what was seen: fixed + tok * n. Of one size only, half is taken as fixed.
 */
static void fit(const struct sched_cost *c, double *fixed, double *tok)
{
    double mean = c->sn / c->w, avg = c->sy / c->sn, var = c->snn / c->w - mean * mean;
    double slope = 0.5 * avg;
    if (var > 0.01 * mean * mean) slope = (c->sny / c->w - mean * c->sy / c->w) / var;
    *tok = BASE_MAX(BASE_MIN(slope, avg), 0.1 * avg + 1);
    *fixed = BASE_MAX(c->sy / c->w - *tok * mean, 0);
}

void sched_cost_observe(struct sched_cost *c, int n_decode, int n_prompt, int64_t ns)
{
    if (ns <= 0) return;
    c->n_step++;
    n_decode = BASE_MIN(n_decode, c->n_row_max);
    if (n_prompt == 0) {
        struct sched_cost_row *r = &c->row[n_decode];
        r->ns = blend(r->ns, (double)ns);
        r->step = c->n_step;
        return;
    }
    double base = n_decode ? decode_ns(c, n_decode) : 0, fixed, tok, x = n_prompt;
    if (base <= 0) return;
    double more = BASE_MAX((double)ns - base, 0);
    if (c->w > 2) {
        fit(c, &fixed, &tok);
        more = BASE_MIN(more, 3 * (fixed + tok * x) + 0.5 * base);
    }
    c->w = SCHED_MEMORY * c->w + 1;
    c->sn = SCHED_MEMORY * c->sn + x;
    c->sy = SCHED_MEMORY * c->sy + more;
    c->snn = SCHED_MEMORY * c->snn + x * x;
    c->sny = SCHED_MEMORY * c->sny + x * more;
    /* A step that came out too long makes the next piece smaller at once. */
    c->most = more > 1.25 * SCHED_SHARE * base ? 0.7 * x : BASE_MAX(1.5 * x, x + 2);
    c->n_mixed++;
}

int sched_cost_budget(const struct sched_cost *c, int n_decode, int n_wait, int n_max)
{
    double base = decode_ns(c, BASE_MIN(n_decode, c->n_row_max)), fixed, tok;
    if (c->n_step == 0) return n_max; /* nobody measures */
    if (base <= 0) return 0;
    if (c->w <= 0) return BASE_MIN(SCHED_MIX_FIRST, n_max);
    fit(c, &fixed, &tok);
    double crowd = BASE_MAX(1, SCHED_CROWD * (n_wait - 1) / n_decode);
    double share = SCHED_SHARE * crowd * base;
    double least = SCHED_LEAST * share / tok;
    double n = BASE_MIN(BASE_MAX((share - fixed) / tok, least), BASE_MAX(c->most * crowd, least));
    /* Sometimes another size, to tell what a token costs from what any piece costs: a smaller one
     * where there is one, since a step too long is felt. */
    if (n >= 2)
        n = c->n_mixed % 4 == 3 ? 0.5 * n : n;
    else
        n = c->n_mixed % 128 == 127 ? 2 : 1;
    return n < n_max ? (int)n : n_max;
}
