/* SPDX-License-Identifier: Apache-2.0 */
/* Which expert lies on which rank, of a layer whose experts are spread over ranks whole. */
#ifndef DIST_PLACE_H
#define DIST_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Slots are rank 0's, then rank 1's and so on, as many each, or as dist_share deals them by weight;
 * what of them is over n_expert holds copies. What there is to do is dealt by weight, too: what a
 * rank has is compared over its weight. Where n_node divides n_group and ranks are alike, groups of
 * experts that follow each other (the router's) stay together on nodes, of n_rank / n_node ranks
 * each; else nodes and groups do not matter. */
struct dist_experts {
    int n_expert, n_slot, n_rank;
    int n_group, n_node;    /* 1, 1: none */
    const uint16_t *weight; /* [n_rank]; NULL: ranks are alike */
};
/* Where rank's slots begin; rank n_rank: n_slot. */
int dist_place_begin(const struct dist_experts *p, int rank);
/* The rank that has a slot, where rank r's slots are from slot0[r] on up to slot0[r + 1]. */
static inline int dist_place_rank(const int32_t *slot0, int slot)
{
    int r = 0;
    while (slot >= slot0[r + 1])
        r++;
    return r;
}

/* The expert of each slot, into expert [n_slot], so that ranks have about equally much to do
 * (by weight: as long).
 * load [n_expert]: how often each was chosen (never any: as if all equally often). NULL: expert e
 * is in slot e. Equal arguments give equal slots on every machine. Errors: REQUEST: numbers that do
 * not divide, copies without load, more ranks than experts; NOMEM. */
sl_status dist_place(const struct dist_experts *p, const uint64_t *load, int32_t *expert,
                     sl_err *err) BASE_MUST_USE;
/* What the fullest rank has to do over the mean of all, or over its share by weight; copies of an
 * expert share its load. 1: nothing was chosen. */
double dist_place_ratio(const struct dist_experts *p, const uint64_t *load, const int32_t *expert);

/* What each rank has to do, out [n_rank]: the counts of its experts, shared with their copies. */
void dist_place_loads(const struct dist_experts *p, const uint64_t *load, const int32_t *expert,
                      double *out);

/* ---- improving one while it is in use ---- */

/* Two slots exchange their experts, or one takes a copy: slot[i] gets expert[i]. */
struct dist_exchange {
    int n; /* 1 or 2 */
    int32_t slot[2], expert[2];
};
#define DIST_GOAL_RATIO 1.05
#define DIST_GOAL_LOADS 64
struct dist_goal {
    double ratio; /* enough: the fullest rank's over the mean */
    int n_load;   /* experts that may be loaded */
};
struct dist_steps {
    struct dist_exchange *v; /* room for [goal.n_load] */
    int n;
    void *room; /* dist_improve_room bytes, aligned to 8, to work with */
};
size_t dist_improve_room(const struct dist_experts *p);
/* Steps from expert [n_slot], which every expert is in, to one that is more even for load
 * [n_expert]: expert becomes that, the steps are in out, in their order. Every expert keeps a slot,
 * and no rank gets the same one twice. Nothing is allocated. */
void dist_improve(const struct dist_experts *p, const uint64_t *load, const struct dist_goal *goal,
                  int32_t *expert, struct dist_steps *out);

#endif
