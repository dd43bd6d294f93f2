/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that share matrices compute for each other. Room-internal. */
#ifndef DEV_CPU_RANKS_H
#define DEV_CPU_RANKS_H

#include "dev/cpu/mat.h"

struct cpu;

#define CPU_SHARE_ROWS 16 /* for each rank: fewer are computed by all */
/* Rows that this rank computes of n_row of what every rank has whole: begin and how many; all of
 * them where r is NULL or they are too few. */
struct cpu_share {
    int begin, n;
};
struct cpu_share dev_cpu_share(const struct dev_ranks *r, int n_row);
/* Rows of n words of 4 bytes: those of the share, which lie in y or elsewhere, and all. */
struct cpu_shared {
    const void *x;
    void *y;
    int n;
};
/* After they were computed: y [n_row, n] gets the rows of the others. */
void dev_cpu_share_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                        const struct cpu_shared *s);

/* May hidden values, of which each rank has part[rank] columns, be prepared by the rank that
 * computes them? */
bool dev_cpu_parts_shared(const struct dev_ranks *r, const int32_t *part);
/* This rank's first group of 32. */
int dev_cpu_parts_begin(const struct dev_ranks *r, const int32_t *part);
/* The groups that other ranks have prepared come into act, of n_row tokens; kern_mm_prep_end comes
 * after it. */
void dev_cpu_parts_join(struct cpu *c, const struct dev_ranks *r, const int32_t *part,
                        struct mm_act_buf *act, int n_row);

#endif
