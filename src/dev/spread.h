/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that have tokens of their own give each other for experts that are spread over all of
 * them (struct dev_spread), in memory of the host. Room-internal. */
#ifndef DEV_SPREAD_H
#define DEV_SPREAD_H

#include "dev/terms.h"

struct dev_spreading {
    dev *d;
    const struct dev_moe *p; /* whose id, weight and add are those of own tokens: of the device */
    const struct dev_spread *s;
    const float *x;    /* own tokens' rows, and what was chosen for them: the host's */
    const int32_t *id;
    struct dev_terms l; /* room for the terms of the tokens of all ranks */
    int me, n_rank, n_etp, D, K;
    struct dev_moe own;     /* p is this one */
    bool parts;             /* what is sent is only begun */
    int n_tok, tok0, n_all; /* this rank's; of all the first of them; how many there are */
    int ld;                 /* of rows that came: their values are the first D */
    int n_row;              /* that came */
    int n_word;             /* of a row on its way back */
    int n_send;
    /* Row row_of[i], of this rank's slots the i-th, of y [rows, D] is what its expert gives;
     * NULL = row i. Of a group that shares experts they are those from y_begin on. */
    const float *y;
    const int32_t *row_of;
    int y_begin;
};
/* Of an operator p on a step of n_tok tokens: own ones. In parts (dev_moe_phase) what is sent is
 * only begun. */
void dev_spread_begin(struct dev_spreading *a, const struct dev_moe *p, int n_tok);
/* s->id are those of all tokens of all ranks; without swap their rows are in s->in. */
void dev_spread_there(struct dev_spreading *a);
/* Terms are sorted: with swap, rows to the ranks that have experts for them, each once. Then this
 * rank's slots name the n_row rows in s->in. */
void dev_spread_rows(struct dev_spreading *a);
/* The same in parts: each first is begun, and then is over, of another dev_spread_begin. */
void dev_spread_ask(struct dev_spreading *a);
void dev_spread_heard(struct dev_spreading *a);
void dev_spread_give(struct dev_spreading *a);
void dev_spread_given(struct dev_spreading *a);
/* What experts have given, y, goes to the ranks that have the tokens. Then row s->list[i] of
 * s->back, in the form of p->combine, is own term i's. */
void dev_spread_back(struct dev_spreading *a);
void dev_spread_came(struct dev_spreading *a); /* in parts: then it is over */

#endif
