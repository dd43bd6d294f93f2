/* SPDX-License-Identifier: Apache-2.0 */
/* What steps cost, from the times of those that were run, and how many prompt tokens a step may
 * take beside sequences that decode. Pure. */
#ifndef SCHED_COST_H
#define SCHED_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* Beside sequences that decode, prompts may make a step longer by SCHED_SHARE times one that only
 * decodes; by SCHED_CROWD times that for each further prompt that waits per sequence that decodes,
 * where that is more: one that waits has nothing yet, one that decodes loses speed only. */
#define SCHED_SHARE 1.0
#define SCHED_CROWD 4.0
#define SCHED_LIGHT 12.0   /* the same for a prompt of an owner that uses less than its share */
#define SCHED_LEAST 0.4    /* of that is for the tokens themselves, however much any piece costs */
#define SCHED_SPARE 0.25   /* of what any piece costs is for them, where that is more */
#define SCHED_MIX_FIRST 4  /* prompt tokens to begin with, before their cost is known */
#define SCHED_MIX_LIGHT 64 /* the same for an owner that uses less than its share */
#define SCHED_FRESH 64     /* after so many steps the time of a decoding step is measured again */
#define SCHED_ALONE 16     /* steps of at most so many tokens are known each for itself */

struct sched_cost_row {
    double ns;     /* of a step with so many decoding tokens and nothing else; 0 = never seen */
    double mid;    /* the same, of which steps that were held up change little: to compare */
    uint64_t step; /* when it was seen last */
    int n_seen;
};

/* Times of steps that decode at .. to tokens: a line through those that were seen thereabouts. */
struct sched_cost_line {
    int at, to;    /* 0 = none */
    uint64_t step; /* when it was made */
    double ns, more; /* of a step of at tokens; of each further one */
};

/* What n prompt tokens at depth d add to a step: f0 + f1 d + n (t0 + t1 d) + s n / (n + 16), the
 * last for a mixture's experts, of which the first tokens load most; learnt by a Kalman filter. */
enum { SCHED_F0, SCHED_F1, SCHED_S0, SCHED_T0, SCHED_T1, SCHED_N_PARAM };

struct sched_cost {
    struct sched_cost_row *row; /* [n_row_max + 1] by tokens of sequences that decode */
    int n_row_max;
    struct sched_cost_line line;
    uint64_t n_step;
    double par[SCHED_N_PARAM];                /* ns; d in units of 1024 tokens */
    double var[SCHED_N_PARAM][SCHED_N_PARAM]; /* their covariance */
    double aim;                               /* what the piece planned last may add; ns */
    double most;                              /* pieces grow to this at most, after the last one */
    int n_mixed;
};

/* A step's prompt tokens. */
struct sched_cost_want {
    int n_wait;     /* prompts that are there */
    int depth, end; /* of the first one: where it is; where the longest ends */
    int n_max;      /* tokens at most */
    int n_draft;    /* drafts that the step may take */
    bool light;     /* one is of an owner that uses less than its share */
};

/* n_tok_max: decoding tokens of one step. Errors: NOMEM. */
sl_status sched_cost_init(struct sched_cost *c, int n_tok_max, sl_err *err) BASE_MUST_USE;
void sched_cost_fini(struct sched_cost *c);
/* A step of n_decode tokens of sequences that decode and n_prompt prompt tokens, in the mean at
 * depth, took ns. */
void sched_cost_observe(struct sched_cost *c, int n_decode, int n_prompt, int depth, int64_t ns);
/* What a step of n_decode such tokens took lately; 0 = not known. */
double sched_cost_decode(const struct sched_cost *c, int n_decode);
/* What a step of n_decode such tokens is expected to take beside steps of some more or fewer, to be
 * compared with them: up to SCHED_ALONE tokens what those of as many took, or between the nearest
 * known ones, beyond by a line through all of about the size. Asked in rising order. 0 = not known.
 */
double sched_cost_compare(struct sched_cost *c, int n_decode);
/* Prompt tokens for a step beside n_decode > 0 sequences that decode. 0: a step that only decodes
 * is wanted, to measure it. */
int sched_cost_budget(struct sched_cost *c, int n_decode, const struct sched_cost_want *w);

#endif
