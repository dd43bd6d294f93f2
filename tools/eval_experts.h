/* SPDX-License-Identifier: Apache-2.0 */
/* Distinct experts of tokens that follow each other, for sluice eval --experts. */
#ifndef TOOLS_EVAL_EXPERTS_H
#define TOOLS_EVAL_EXPERTS_H

#include "compute.h"

#define EVAL_EXPERTS_MOST 5 /* tokens in a row */

struct eval_experts {
    sl_engine *e;
    int n_layer, n_expert, n_used;
    int64_t n_tok;   /* of the window, seen before the one under way; -1 = it only gives counts */
    uint64_t *count; /* [n_layer + 1, n_expert] after the token before; scratch */
    int64_t *at;     /* [n_layer, n_expert] the token of the window that chose it last */
    double sum[EVAL_EXPERTS_MOST], n[EVAL_EXPERTS_MOST]; /* distinct ones; layers times tokens */
};

/* Errors: REQUEST: the model has no routed experts; NOMEM. */
sl_status eval_experts_open(struct eval_experts *x, const struct compute *c,
                            sl_err *err) BASE_MUST_USE;
void eval_experts_close(struct eval_experts *x); /* of zeros is legal */
/* A window begins: its first token is not counted, those after it follow each other. */
void eval_experts_begin(struct eval_experts *x);
/* One more token of the window was computed, alone. Errors: DEVICE. */
sl_status eval_experts_token(struct eval_experts *x, sl_err *err) BASE_MUST_USE;
/* Mean over layers with experts and places of how many different ones q tokens in a row chose,
 * 1 <= q <= EVAL_EXPERTS_MOST; NaN: no text was as long. */
double eval_experts_mean(const struct eval_experts *x, int q);
/* The same, expected if every expert were as likely and no token knew of the others. */
double eval_experts_even(const struct eval_experts *x, int q);
void eval_experts_print(const struct eval_experts *x);
void eval_experts_json(const struct eval_experts *x); /* further members of an object */

#endif
