/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that share matrices compute for each other. Room-internal. */
#ifndef DEV_CPU_RANKS_H
#define DEV_CPU_RANKS_H

#include "dev/cpu/mat.h"

struct cpu;

/* Rows that this rank computes of n_row of what every rank has whole: all of them where r is NULL
 * or they are too few. */
static inline struct dev_share dev_cpu_share(const struct dev_ranks *r, int n_row)
{
    return dev_share_of(r, r ? r->rank : 0, n_row);
}
/* Rows of n words of 4 bytes: those of the share, which lie in y or elsewhere, and all. */
struct cpu_shared {
    const void *x;
    void *y;
    int n;
};
/* After they were computed: y [n_row, n] gets the rows of the others. */
void dev_cpu_share_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                        const struct cpu_shared *s);
/* Columns of n_row rows, which are the others' too, come in, of a shared step those of this rank's
 * share: j's x, n, part, and y or take and arg, are said. */
void dev_cpu_cols_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                       const struct dev_joined *j);
/* What becomes whole where each rank has made its share: of act the forms that the matrices all
 * [DEV_ALL_MAX] take, or those of forms; rows y [n_row, n] of words of 4 bytes. */
struct cpu_whole_rows {
    void *y;
    int n;
};
struct cpu_whole {
    dev_act *act; /* or NULL */
    const dev_mat *const *all;
    struct mm_act_buf *buf; /* in place of act and all: one of forms, or NULL */
    unsigned forms;
    struct cpu_whole_rows rows[2];
    int n_rows;
};
void dev_cpu_whole_join(struct cpu *c, const struct dev_ranks *r, int n_row,
                        const struct cpu_whole *w);

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
