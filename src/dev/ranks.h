/* SPDX-License-Identifier: Apache-2.0 */
/* What a device asks of the ranks that it shares matrices with; part of dev.h. */
#ifndef DEV_RANKS_H
#define DEV_RANKS_H

#include <stdbool.h>
#include <stdint.h>

struct dev;

/* Where the rows of matrices are shared among ranks, a rank computes some columns of each output:
 * part[0] of them rank 0, then part[1] rank 1 and so on. join makes rows whole: y [n_row, n] from
 * every rank's x [n_row, its part], on the thread that runs the device's operators. */
struct dev_joined {
    struct dev *d;
    const float *x;
    float *y;
    int64_t ldx, ldy; /* of columns: from row to row; 0 = as many as there are columns */
    int n_row, n;
    const int32_t *part;
    const int32_t *of; /* NULL, or [n_row]: row t is that of rank of[t], whose x has n columns */
    /* NULL, or [n_rank]: x are n_of[rank] whole rows, y [n_row, part[rank]] this rank's columns of
     * those of rank 0, then of rank 1 and so on; without part all of their columns */
    const int32_t *n_of;
    /* NULL, or [n_rank, n_rank]: x are rows for rank 0, then for rank 1 and so on, y those for this
     * rank, of rank 0, then of rank 1 and so on; from which to which how many go */
    const int32_t *count;
    bool home; /* of use to rank 0 alone: elsewhere y is not used */
};
#define DEV_RANK_MAX 64
struct dev_ranks {
    void (*join)(void *user, const struct dev_joined *j);
    void *user;
    int rank, n_rank;
};

#endif
