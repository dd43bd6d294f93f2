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
/* All matrices of a stack as floats, whose kernel DEV_USE_EXACT brings: y [n, rows, cols]. */
void dev_gpu_unpack(struct gpu *c, const dev_mat *mat, uint64_t y);
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
/* Rows x [n_row, n] of what experts give, in the form that p asks for; ids: 0, or [n_row], of which
 * -1 leaves its row. */
struct gpu_gave {
    uint64_t x, ids;
    int n_row, n;
};
void dev_gpu_combine(struct gpu *c, const struct dev_moe *p, const struct gpu_gave *g);
/* Its parts: as far as h, and from there on. */
void dev_gpu_block_up(struct gpu *c, const struct gpu_block *b);
void dev_gpu_block_down(struct gpu *c, const struct gpu_block *b);
/* The same where ranks share it: its gates and ups are some columns, in h_all are those of all. */
struct gpu_shared {
    const struct dev_ranks *ranks;
    const int32_t *part;
    uint64_t h_all;
};
void dev_gpu_block_shared(struct gpu *c, const struct gpu_block *b, const struct gpu_shared *s);
/* Every form of an input. */
void dev_gpu_prep_all(struct gpu *c, const dev_act *act, const struct gpu_rows *r);
/* Where n bytes of rows that go to or come from the host lie in c->bounce; everything that lies
 * there is waited for where it is full. */
int64_t dev_gpu_bounce(struct gpu *c, int64_t n);

/* Each token's sum of x [n_tok, K, n], its experts' outputs, by the operator's weights. */
struct gpu_wsum {
    uint64_t x;
    int n_tok, n;
};
void dev_gpu_wsum(struct gpu *c, const struct dev_moe *p, const struct gpu_wsum *s);
/* Experts that are whole, each on one of the ranks that share the rest, or on one of those that
 * have tokens of their own (ranks.c); lists of the host for them. Errors: NOMEM. */
sl_status dev_gpu_terms_reserve(struct gpu *c, const struct dev_moe *p, sl_err *err);
void dev_gpu_moe_turned(struct gpu *c, const struct dev_moe *p, int n_tok);
void dev_gpu_moe_spread(struct gpu *c, const struct dev_moe *p, int n_tok);

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
