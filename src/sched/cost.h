/* SPDX-License-Identifier: Apache-2.0 */
/* What steps cost, from the times of those that were run, and how many prompt tokens a step may
 * take beside sequences that decode. Pure. */
#ifndef SCHED_COST_H
#define SCHED_COST_H

#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* Beside sequences that decode, prompts may make a step longer by SCHED_SHARE times one that only
 * decodes; by SCHED_CROWD times that for each further prompt that waits per sequence that decodes,
 * where that is more: who waits has nothing yet, who decodes loses speed only. */
#define SCHED_SHARE 1.0
#define SCHED_CROWD 4.0
#define SCHED_LEAST 0.4   /* of that is for the tokens themselves, however much any piece costs */
#define SCHED_MIX_FIRST 4 /* prompt tokens to begin with, before their cost is known */
#define SCHED_FRESH 64    /* after so many steps the time of a decoding step is measured again */

struct sched_cost_row {
    double ns;     /* of a step with so many decoding sequences and nothing else; 0 = never seen */
    uint64_t step; /* when it was seen last */
};

struct sched_cost {
    struct sched_cost_row *row; /* [n_row_max + 1] by sequences that decode */
    int n_row_max;
    uint64_t n_step;
    /* What n prompt tokens added to steps that decode, lately: sums of 1, n, ns, n n, n ns. */
    double w, sn, sy, snn, sny;
    double most; /* pieces grow to this at most, after the last one */
    int n_mixed;
};

sl_status sched_cost_init(struct sched_cost *c, int n_run_max, sl_err *err) BASE_MUST_USE;
void sched_cost_fini(struct sched_cost *c);
/* A step of n_decode sequences that decode and n_prompt prompt tokens took ns. */
void sched_cost_observe(struct sched_cost *c, int n_decode, int n_prompt, int64_t ns);
/* Prompt tokens for a step beside n_decode > 0 sequences that decode, when n_wait prompts are
 * there; at most n_max. 0: a step that only decodes is wanted, to measure it. */
int sched_cost_budget(const struct sched_cost *c, int n_decode, int n_wait, int n_max);

#endif
