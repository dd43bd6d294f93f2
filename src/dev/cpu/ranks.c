/* SPDX-License-Identifier: Apache-2.0 */
/* Columns and rows that other ranks have computed. */
#include "dev/cpu/cpu.h"

void dev_cpu_join(dev *d, const struct dev_step *b, const struct dev_join *p)
{
    struct dev_joined j = {
        .d = d, .x = p->x, .y = p->y, .n = p->n, .part = p->part, .n_of = p->n_of, .home = p->home};
    j.n_row = dev_n_row(b, p->n_row);
    if (j.n_row) p->ranks->join(p->ranks->user, &j);
}

void dev_cpu_pick(dev *d, const struct dev_step *b, const struct dev_pick *p)
{
    struct dev_joined j = {.d = d, .x = p->x, .y = p->y, .n = p->n, .of = p->of};
    j.n_row = b->n_tok;
    for (int t = 0; t < b->n_tok; t++) {
        int r = 0;
        while (r + 1 < p->ranks->n_rank && b->ids[t] >= p->row0[r + 1])
            r++;
        p->of[t] = r;
    }
    if (j.n_row) p->ranks->join(p->ranks->user, &j);
}
