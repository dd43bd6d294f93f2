/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting products over the workers, and what a worker that waits fetches. Room-internal. */
#ifndef DEV_CPU_WORK_H
#define DEV_CPU_WORK_H

#include "dev/cpu/mat.h"
#include "par/par.h"

struct cpu;

/* A set of products that share the worker team, as one row of units (a tile, or the two tiles of a
 * pair): worker w begins at its own range of about equal bytes and helps the others at the end. */
struct cpu_seg {
    struct mm_mat m, m2;
    const float *bias; /* of its rows, of a pair those of both halves; or NULL */
    int unit;       /* stream tiles of m in a unit */
    int begin, end; /* units */
    int n_tok;      /* its columns */
    int user;       /* which product */
};
/* Where a worker began to read in a set of products. */
struct cpu_stream {
    const uint8_t *p;
    size_t n;
    int again; /* as in the step before */
};
/* What a worker that waits fetches into its own cache: the beginning of what it will read next. */
struct cpu_ahead {
    _Alignas(64) const uint8_t *p;
    const uint8_t *end;
};
#define CPU_ORDER_MAX 1024 /* sets of products of a pass that are remembered */
/* Where workers began in the sets of products of one pass. */
struct cpu_order {
    struct cpu_stream *set; /* [CPU_ORDER_MAX][n_worker] of this step and, further on, the last */
    int n, last;            /* sets so far; in the step before */
};
#define CPU_AHEAD_MAX 64 /* workers that fetch ahead */

struct cpu_work {
    struct cpu_seg *seg;
    int n_seg, n_seg_max, n_tok; /* n_tok: the most of a product */
    int step_min, step_max;      /* units of a piece */
    const struct cpu_stream
        *next;               /* [n_worker] where workers will begin after this; NULL = unknown */
    struct par_range *range; /* [n_worker] */
};
/* What a worker has taken. */
struct cpu_piece {
    const struct cpu_seg *seg;
    int tile0, n_tile;   /* stream tiles of seg->m */
    int at, end;         /* units taken and not yet handed out; start with 0, 0 */
    const uint8_t *then; /* what the worker reads after it; NULL: not known */
    bool again;          /* not the first: inputs are as they were (kern_mm) */
};

void dev_cpu_work_clear(struct cpu_work *w);
/* Matrix i of that stack; n_tok: columns; rows: of a matrix in a unit, 16 or (then they must divide
 * n_row) 32. */
struct cpu_seg *dev_cpu_work_add(struct cpu_work *w, const struct cpu_mat *of, int i, int n_tok,
                                 int rows);
/* After the last add. */
void dev_cpu_work_split(struct cpu *c, struct cpu_work *w);
/* The parts of split, for sets of products that stay: ranges; where workers begin, into start
 * [n_worker], and what they fetch ahead follows; what the products read and compute. */
void dev_cpu_work_divide(struct cpu *c, struct cpu_work *w);
void dev_cpu_work_starts(const struct cpu *c, const struct cpu_work *w, struct cpu_stream *start);
void dev_cpu_work_remember(struct cpu *c, struct cpu_work *w);
void dev_cpu_work_count(struct cpu *c, const struct cpu_work *w);
/* A pass of a step begins: its sets of products come in the order of the same pass before. */
void dev_cpu_work_begin(struct cpu *c, int pass);
/* For par_opts.on_wait. */
int dev_cpu_work_ahead(void *cpu, int worker);
/* The next piece for a worker; false when there is none. */
int dev_cpu_work_take(struct cpu *c, struct cpu_work *w, int worker, struct cpu_piece *p);

#endif
