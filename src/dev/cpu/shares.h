/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on rows of which each of several ranks has some columns, and of a shared step
 * (dev_is_shared) a share of the rows. Room-internal. */
#ifndef DEV_CPU_SHARES_H
#define DEV_CPU_SHARES_H

#include "dev/cpu/mat.h"

struct cpu;

/* The operators where their ranks are not NULL. */
void dev_cpu_norm_share(struct cpu *c, const struct dev_norm *p, int n_tok);
void dev_cpu_prep_share(struct cpu *c, const struct dev_prep *p, int n_row);
void dev_cpu_add_share(struct cpu *c, const struct dev_add *p, int n_row);
/* Rows of this rank's share are prepared in act, from the columns that each rank has in its x
 * [n_row, part[rank]]. */
struct cpu_prep_cols {
    const struct dev_ranks *ranks;
    const int32_t *part;
    const float *x;
    struct mm_act_buf *act;
};
void dev_cpu_prep_cols(struct cpu *c, const struct cpu_prep_cols *p, int n_row);

#endif
