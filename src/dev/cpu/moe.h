/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts in parts, so that a fused region runs them as the operators do (route.c, moe.c).
 * Room-internal. */
#ifndef DEV_CPU_MOE_H
#define DEV_CPU_MOE_H

#include "dev/cpu/mat.h"

struct cpu;

#define CPU_EXPERT_MAX 4096

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

/* Row t of the router's logits: its experts and weights. The counts of n_tok rows come after. */
void dev_cpu_route_row(struct cpu *c, const struct dev_route *p, int t);
void dev_cpu_route_count(const struct dev_route *p, int n_tok);

/* The experts of one operator on the tokens of a step. */
struct cpu_moe {
    struct cpu *c;
    const struct dev_moe *p;
    const struct cpu_mat *gate_up, *down;
    int n_tok, n_slot;
    int parts; /* the hidden values are prepared as they come */
};
/* On one thread: tokens are grouped by expert, and the products of all experts in use added to
 * c->work[0] (gate and up) and c->work[1] (down), which the caller divides. */
void dev_cpu_moe_begin(struct cpu_moe *m, struct cpu *c, const struct dev_moe *p, int n_tok);
/* By all workers, a barrier between each and the next; x: the prepared input; prep: only without
 * parts. */
void dev_cpu_moe_up(const struct cpu_moe *m, int worker, const struct mm_act_buf *x);
void dev_cpu_moe_prep(const struct cpu_moe *m, int worker, int n_w);
void dev_cpu_moe_down(const struct cpu_moe *m, int worker);
void dev_cpu_moe_sum(const struct cpu_moe *m, int worker, int n_w);

#endif
