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

void dev_cpu_moe_spread(struct cpu *c, const struct dev_moe *p, int n_tok)
{
    struct dev_moe all = *p;
    struct dev_spreading a = {.d = &c->head, .l = dev_cpu_terms(c)};
    struct cpu_moe m;
    dev_spread_begin(&a, p, n_tok);
    dev_spread_there(&a);
    all.id = p->spread->id;
    all.act = p->spread->act;
    dev_cpu_moe_begin(&m, c, &all, a.n_all);
    dev_cpu_work_split(c, &c->work[0]);
    dev_cpu_work_split(c, &c->work[1]);
    dev_spread_rows(&a);
    dev_cpu_for_rows(c, a.n_row, a.D * 0.3, prep_row, &a);
    dev_cpu_moe_here(&m);
    if (p->tap.fn) dev_cpu_moe_tell(&m);
    a.y = m.y;
    a.y_begin = m.y_begin;
    dev_spread_back(&a);
    m.p = a.p;
    m.n_tok = a.n_tok;
    m.back = p->spread->back;
    m.back_of = p->spread->list;
    if (a.n_tok) par_run(c->team, dev_cpu_moe_sum, &m);
}
