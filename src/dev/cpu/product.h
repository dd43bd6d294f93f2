/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a piece of work (work.c), and the operators of them (product.c). Room-internal. */
#ifndef DEV_CPU_PRODUCT_H
#define DEV_CPU_PRODUCT_H

#include "dev/cpu/work.h"
#include "kern/vec.h"

struct cpu;

#define CPU_SET 64 /* tokens whose gate and up products wait for silu together */

/* What a piece is multiplied with: tokens idx (NULL: 0 ..) of x, which has them in that form. */
struct cpu_cols {
    const struct mm_act_buf *x;
    enum mm_act form;
    const int32_t *idx; /* [n_tok] */
    int n_tok;
};
/* One piece times them into y, with its bias: token j at y + j * ldy, its column 0 is row 0 of the
 * matrix; rows beyond n_row are not written. */
void dev_cpu_product(struct cpu *c, int worker, const struct cpu_piece *p,
                     const struct cpu_cols *in, float *y, int64_t ldy);
/* What a worker takes of w, the matrices of p times n_row rows of x, into p->y. */
void dev_cpu_matmul_take(struct cpu *c, int worker, struct cpu_work *w, const struct mm_act_buf *x,
                         const struct dev_matmul *p, int n_row);
/* Where what pairs make of tokens goes: rows h + j * ldh, or straight into prepared activations
 * act, token j to row0 + j, from group0 on (dev_cpu_takes_parts). */
struct cpu_hidden {
    float *h;
    int64_t ldh;
    struct mm_act_buf *act;
    int row0, group0;
};
/* Groups of 32 outputs can be prepared by themselves: one int8 plane, or bf16, and they divide the
 * width. */
static inline int dev_cpu_takes_parts(const struct cpu_mat *down)
{
    bool apart = down->form == MM_ACT_INT8 || down->form == MM_ACT_BF16;
    return apart && down->m.n_col % 32 == 0;
}
/* A piece of the pairs w, and its epilogue. The form is w's, not in's. */
void dev_cpu_product_pairs(struct cpu *c, int worker, const struct cpu_piece *p,
                           const struct cpu_cols *in, const struct cpu_mat *w,
                           const struct cpu_hidden *out);
/* Memory of products by head. */
struct cpu_heads {
    void *mem;
    int64_t n_row;
    int n_col;
};
/* y[i, h, :] = W_h x[rows[i], h, :]; see dev_matmul_heads. */
void dev_cpu_heads(struct cpu *c, const struct dev_matmul_heads *p, const int32_t *rows);

#endif
