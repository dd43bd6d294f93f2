/* SPDX-License-Identifier: Apache-2.0 */
/* The terms of a step's experts, in lists of the host: which place computes each, and how they lie
 * there. Room-internal. */
#ifndef DEV_TERMS_H
#define DEV_TERMS_H

#include "dev/dev_internal.h"

/* Slots are terms sorted by place, within one by token. Term i is token i / k's. */
struct dev_terms {
    int32_t *slot_row; /* [n] token of each slot */
    int32_t *slot_of;  /* [n] slot of each term; -1 = none */
    int32_t *slot0;    /* [n_place + 1] */
};

static inline int dev_terms_n_place(const struct dev_moe *p)
{
    return p->slots ? p->slots->n : p->n_expert;
}

/* Ranks that share each expert (dev_etp), 1 = it is whole. And of n rows that experts of such ranks
 * give: where those begin that number i of these ranks has (i may be their number); which of them
 * has row `row`. */
int dev_terms_n_etp(const struct dev_moe *p);
int dev_terms_share(const struct dev_moe *p, int n, int i);
int dev_terms_sharer(const struct dev_moe *p, int n, int row);
/* Columns of what experts give, of all ranks that share one. */
int dev_terms_cols(const struct dev_moe *p);

/* Which of all places computes expert e for token t; -1 = none. Of several copies the one on the
 * rank that has the token, or in its group, where there is one. */
int dev_terms_place(const struct dev_moe *p, int e, int t);
/* Of n terms; slot_of has their places. */
void dev_terms_sort(const struct dev_terms *l, int n, int k, int n_place);
/* How many each rank gives of what is sorted, where the slots are spread over them. */
void dev_terms_count(const struct dev_terms *l, const struct dev_moe *p, int n_rank, int32_t *n_of);

#endif
