/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/cost.h"

#include <string.h>

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

static double blend(double old, double new)
{
    return old > 0 ? 0.5 * (old + new) : new;
}

void sched_cost_observe(struct sched_cost *c, int n_decode, int n_prompt, int64_t ns)
{
    if (ns <= 0) return;
    c->n_step++;
    if (n_prompt == 0) {
        struct sched_cost_row *r = &c->row[BASE_MIN(n_decode, c->n_row_max)];
        r->ns = blend(r->ns, (double)ns);
        r->step = c->n_step;
        return;
    }
    double base = n_decode ? decode_ns(c, BASE_MIN(n_decode, c->n_row_max)) : 0;
    if (n_decode && base <= 0) return;
    double tok = ((double)ns - base) / n_prompt;
    /* a step of prompts alone says least about a small piece: only where nothing better is known */
    if (n_decode == 0 && c->tok_ns > 0) return;
    c->tok_ns = blend(c->tok_ns, tok > 0 ? tok : 0.25 * c->tok_ns);
    c->last = n_decode ? n_prompt : BASE_MIN(n_prompt, SCHED_MIX_FIRST);
}

int sched_cost_budget(const struct sched_cost *c, int n_decode, int n_wait, int n_max)
{
    double base = decode_ns(c, BASE_MIN(n_decode, c->n_row_max));
    if (c->n_step == 0) return n_max; /* nobody measures */
    if (base <= 0) return 0;
    if (c->tok_ns <= 0) return BASE_MIN(SCHED_MIX_FIRST, n_max);
    double share = SCHED_SHARE * (n_wait > n_decode ? (double)n_wait / n_decode : 1);
    double n = share * base / c->tok_ns;
    /* A larger piece costs less per token than the last one did: grow towards it, by half each time. */
    double most = BASE_MAX(1.5 * c->last, c->last + 2.0);
    if (n > most) n = most;
    return BASE_MAX(n < n_max ? (int)n : n_max, 1);
}
