/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts in parts, so that a fused region runs them as the operators do (route.c, moe.c).
 * Room-internal. */
#ifndef DEV_CPU_MOE_H
#define DEV_CPU_MOE_H

#include "dev/cpu/mat.h"
#include "dev/terms.h"

struct cpu;

#define CPU_EXPERT_MAX 4096
#define CPU_SUM_COLS 512 /* of a token's results: what a worker adds up at a time */

/* Memory of experts: slots are tokens' experts, sorted by expert. */
struct cpu_experts {
    int32_t *slot_row;     /* [T * K] token of each slot */
    int32_t *slot_of;      /* [T, K] slot of token t's k-th expert */
    int32_t *expert_slot0; /* [E + 1] */
    float *h;              /* [T * K, F] */
    float *y;              /* [T * K, D] */
    void *mem;             /* of act */
    struct mm_act_buf act;
};

/* Row t of the router's logits: its experts and weights; ids: of the step. The counts of n_tok rows
 * come after. */
void dev_cpu_route_row(struct cpu *c, const struct dev_route *p, const int32_t *ids, int t);
void dev_cpu_route_count(const struct dev_route *p, int n_tok);

/* The experts of one operator on the tokens of a step. */
struct cpu_moe {
    struct cpu *c;
    const struct dev_moe *p;
    const struct cpu_mat *gate_up, *down;
    int n_tok, n_slot;
    int parts; /* the hidden values are prepared as they come */
    int D;     /* columns of what experts give */
    /* where ranks share hidden values: who, their columns, and room for all; else NULL */
    const struct dev_ranks *h_ranks;
    const int32_t *h_part;
    float *h_all;
    const float *y; /* rows of outputs that are here, number y_begin of this rank's experts first */
    int y_begin;
    /* NULL, or what experts of all ranks have given, in the form of p->combine; and [T, K] in which
     * row a token's k-th is */
    const float *back;
    const int32_t *back_of;
};
/* On one thread: tokens are grouped by expert, and the products of all experts in use added to
 * c->work[0] (gate and up) and c->work[1] (down), which the caller divides. */
void dev_cpu_moe_begin(struct cpu_moe *m, struct cpu *c, const struct dev_moe *p, int n_tok);
/* The first of that alone: tokens are grouped. */
void dev_cpu_moe_group(struct cpu *c, const struct dev_moe *p, int n_tok);
/* The lists of what was grouped last. */
struct dev_terms dev_cpu_terms(const struct cpu *c);
/* By all workers, a barrier between each and the next; x: the prepared input; prep: only without
 * parts, or where ranks share the hidden values. */
void dev_cpu_moe_up(const struct cpu_moe *m, int worker, const struct mm_act_buf *x);
void dev_cpu_moe_prep(const struct cpu_moe *m, int worker, int n_w);
void dev_cpu_moe_down(const struct cpu_moe *m, int worker);

/* What the experts that are here give, or this rank's share of it: m->y. */
void dev_cpu_moe_here(struct cpu_moe *m);
/* Each token's sum of them: the same. */
void dev_cpu_moe_sum(void *arg, int worker, int n_w);
/* Tell the tap of their hidden values. */
void dev_cpu_moe_tell(const struct cpu_moe *m);
/* Tokens of experts, at most. */
static inline int dev_cpu_n_tok_experts(const struct dev_shapes *p)
{
    return BASE_MAX(p->max.n_tok, p->max.n_tok_all);
}
/* moe.c: slots that each rank holds, where they are spread; else all. */
int dev_cpu_moe_n_here(const struct dev_moe *p);
/* spread.c: the operator where every rank has tokens of its own. n_tok: of this one's step. */
void dev_cpu_moe_spread(struct cpu *c, const struct dev_moe *p, int n_tok);

/* combine.c: an expert's row x [n] into words of that form. */
void dev_cpu_combine_pack(enum dev_combine form, const float *x, int n, float *words);
/* Values [at, at + n_y) of such a row, of n; at is a multiple of 32. */
void dev_cpu_combine_unpack(enum dev_combine form, const float *words, int n, int at, int n_y,
                            float *y);
/* y = x as another rank would get it; x begins at a multiple of 32 of its row. */
void dev_cpu_combine_round(enum dev_combine form, const float *x, int n, float *y);

#endif
