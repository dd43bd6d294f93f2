/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of operators share (ops.c, experts.c, latents.c). Room-internal. */
#ifndef DEV_GPU_OPS_H
#define DEV_GPU_OPS_H

#include "dev/gpu/gpu.h"

static inline uint64_t at(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static inline uint32_t groups(int64_t n, int size)
{
    return (uint32_t)((n + size - 1) / size);
}

static inline struct gpu_step *step_of(struct gpu *c, const struct dev_step *b)
{
    return &c->step[b->pass];
}

#define GRID(x, y, z) ((const uint32_t[3]){(uint32_t)(x), (uint32_t)(y), (uint32_t)(z)})
#define LAUNCH(c, id, grid, k) dev_gpu_launch(c, id, grid, &(k), sizeof(k))

struct gpu_rows {
    uint64_t x, from; /* from: 0, or whose row each is */
    int n, n_row;
    int64_t ldx;
};
/* Rows as one form of an input. is_parts: of hidden values, whose unit is 1 as on the CPU. */
void dev_gpu_prep_form(struct gpu *c, const struct gpu_act *a, enum mm_act form,
                       const struct gpu_rows *r, bool is_parts);
struct gpu_product {
    const struct gpu_act *act;
    int n_row;
    uint64_t y;
    int64_t ldy;
    uint64_t ids; /* 0: the first matrix for all; else [n_row] whose each row is, of token / per */
    int per;
};
/* Both halves of a pair go side by side: gates, then ups. */
void dev_gpu_product(struct gpu *c, const dev_mat *w, const struct gpu_product *p);

/* A gated block: up.y, rows of n gates and n ups, are of gate_up; h.x [h.n_row, n] is what its
 * epilogue makes of them; q, whose act these become, of down. */
struct gpu_block {
    const dev_mat *gate_up, *down;
    struct gpu_product up, q;
    struct gpu_rows h;
};
void dev_gpu_block(struct gpu *c, const struct gpu_block *b);

/* How a step's attention goes through its spans (attn.c). */
struct gpu_spans {
    int n_row, n_head, n_window; /* n_row: heads of tokens */
    int n;                       /* spans that a token sees at most, as a power of two */
    int n_part;                  /* at a time by workgroups of their own; 0: by one, all of a row */
};
struct gpu_folded {
    uint64_t y;
    int d;                    /* of values */
    const struct dev_attn *p; /* whose rows they are; NULL: of latents */
};
struct gpu_spans dev_gpu_spans(const struct dev_step *b, int n_head, int n_window);
/* Where partial results of s->n_part spans go; 0: there are none. */
uint64_t dev_gpu_parts(const struct gpu *c, const struct gpu_spans *s);
/* Fold those from span0 on; the last ones of the row end it. */
void dev_gpu_fold(struct gpu *c, const struct dev_step *b, const struct gpu_spans *s, int span0,
                  const struct gpu_folded *to);

#endif
