/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's experts of the tokens of all ranks (dev/spread.h). */
#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/moe.h"
#include "dev/cpu/work.h"
#include "dev/spread.h"

static void prep_row(struct cpu *c, void *arg, int i, int worker)
{
    const struct dev_spreading *a = arg;
    (void)c;
    (void)worker;
    kern_mm_prep(&((struct cpu_act *)a->s->act)->b, i, a->s->in + (int64_t)i * a->ld);
}

/* The terms of all ranks' tokens are grouped by expert. */
static struct dev_moe of_all(const struct dev_moe *p)
{
    struct dev_moe all = *p;
    all.id = p->spread->id;
    all.act = p->spread->act;
    return all;
}

static void give_rows(struct cpu *c, struct dev_spreading *a, const struct dev_moe *p)
{
    struct dev_moe all = of_all(p);
    if (!p->spread->swap) return;
    dev_spread_heard(a);
    dev_cpu_moe_group(c, &all, a->n_all);
    dev_spread_give(a);
}

/* What this rank's experts give goes back. */
static void terms(struct cpu *c, struct dev_spreading *a, const struct dev_moe *p)
{
    struct dev_moe all = of_all(p);
    struct cpu_moe m;
    bool heard = p->phase == DEV_MOE_TERMS && p->spread->swap; /* when rows were given */
    if (!heard) dev_spread_heard(a);
    dev_cpu_moe_begin(&m, c, &all, a->n_all);
    dev_cpu_work_split(c, &c->work[0]);
    dev_cpu_work_split(c, &c->work[1]);
    if (!heard) dev_spread_give(a);
    dev_spread_given(a);
    dev_cpu_for_rows(c, a->n_row, a->D * 0.3, prep_row, a);
    dev_cpu_moe_here(&m);
    if (p->tap.fn) dev_cpu_moe_tell(&m);
    a->y = m.y;
    a->y_begin = m.y_begin;
    dev_spread_back(a);
}

static void sum(struct cpu *c, struct dev_spreading *a)
{
    struct cpu_moe m = {
        .c = c, .p = a->p, .n_tok = a->n_tok, .D = a->D, .back = a->s->back, .back_of = a->s->list};
    if (a->n_tok) par_run(c->team, dev_cpu_moe_sum, &m);
}

void dev_cpu_moe_spread(struct cpu *c, const struct dev_moe *p, int n_tok)
{
    struct dev_spreading a = {.d = &c->head, .l = dev_cpu_terms(c)};
    dev_spread_begin(&a, p, n_tok);
    switch (p->phase) {
    case DEV_MOE_ASK:
        dev_spread_ask(&a);
        break;
    case DEV_MOE_GIVE:
        give_rows(c, &a, p);
        break;
    case DEV_MOE_TERMS:
        terms(c, &a, p);
        break;
    case DEV_MOE_SUM:
        dev_spread_came(&a);
        sum(c, &a);
        break;
    case DEV_MOE_WHOLE:
        dev_spread_ask(&a);
        terms(c, &a, p);
        sum(c, &a);
        break;
    }
}
