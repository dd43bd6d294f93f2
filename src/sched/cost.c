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
    double *at = n_decode && n_prompt <= SCHED_PIECE ? &c->tok_ns : &c->big_tok_ns;
    if (n_decode == 0 && n_prompt <= SCHED_PIECE && c->big_tok_ns > 0)
        return; /* a short prompt alone says little */
    *at = blend(*at, tok > 0 ? tok : 0.25 * *at);
    if (at == &c->tok_ns) c->last = n_prompt;
}

static int clamp(double n, int lo, int hi)
{
    return n < lo ? lo : n < hi ? (int)n : hi;
}

struct sched_budget sched_cost_budget(const struct sched_cost *c, int n_decode, int n_wait,
                                      int n_max)
{
    double base = decode_ns(c, BASE_MIN(n_decode, c->n_row_max));
    if (c->n_step == 0) return (struct sched_budget){n_max, n_max}; /* nobody measures */
    if (base <= 0) return (struct sched_budget){0, 0};
    double crowd = n_wait > n_decode ? (double)n_wait / n_decode : 1;
    double n = c->tok_ns > 0 ? SCHED_SHARE * crowd * base / c->tok_ns : SCHED_MIX_FIRST;
    /* A larger piece costs less per token than the last one did: grow towards it, by half each
     * time. */
    if (c->tok_ns > 0) n = BASE_MIN(n, BASE_MAX(1.5 * c->last, c->last + 2.0));
    int paced = clamp(n, 1, n_max);
    double big = c->big_tok_ns > 0 ? c->big_tok_ns : c->tok_ns;
    int all = big > 0 ? clamp(SCHED_STALL_NS * crowd / big, paced, n_max) : paced;
    return (struct sched_budget){all, paced};
}
