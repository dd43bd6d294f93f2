/* SPDX-License-Identifier: Apache-2.0 */
/* Between the policy (sched.c) and its shares (owner.c). */
#ifndef SCHED_INTERNAL_H
#define SCHED_INTERNAL_H

#include "sched/sched.h"

/* away.c: a request was admitted: held where others compute its first positions. */
void sched_hold(struct sched *s, int slot);
/* sched_decodes before the step that is under way. */
bool sched_answers(const struct sched_req *r);
/* lane.c: is a running request of the lane whose step is planned? Requests of a lane; the lane with
 * the fewest; may the lane have one more of those that wait? Those that it has too many go to that
 * with the fewest. */
static inline bool sched_is_mine(const struct sched *s, const struct sched_req *r)
{
    return r->lane == s->lane;
}
int sched_lane_count(const struct sched *s, int lane);
int sched_lane_least(const struct sched *s);
bool sched_lane_room(const struct sched *s);
void sched_lane_even(struct sched *s);
/* draft.c: how many drafts are offered for the next step; and what of them the step takes. */
int sched_draft_offers(const struct sched *s);
void sched_draft_plan(struct sched *s);

/* The place of an owner: its own, a free one, one that nobody uses now, or else a shared one. */
int sched_owner_of(struct sched *s, uint64_t id);
void sched_owner_begin(struct sched *s, int at, int64_t now_ns); /* a request came */
void sched_owner_end(struct sched *s, int at);                   /* and is over */
/* Is a to be served before b? */
bool sched_owner_before(const struct sched *s, int a, int b);
/* A prompt of n tokens to compute was admitted. */
void sched_owner_piece(struct sched *s, int at, int n);
/* Does it use less than its share, while others use more? */
bool sched_owner_light(const struct sched *s, int at);
/* A step begins; light: with a prompt of an owner that uses less than its share. */
void sched_owner_step(struct sched *s, bool light);
/* Prompt tokens that this owner may still take in this step: the fairness cap. */
int sched_owner_limit(const struct sched *s, int at);
/* Sequences, and blocks, that each owner that has requests may have for certain. */
int sched_share_run(const struct sched *s);
int sched_share_blk(const struct sched *s);
int sched_owner_blk(const struct sched *s, int at); /* blocks of its sequences now */
/* state.c: models with a recurrent state; nothing of it does anything for others. */
/* Copy a state after all that was decided before, before the next step's rows. */
void sched_state_copy(struct sched *s, int src, int dst);
/* The first position after pos at which a row of r has to end, for a snapshot. */
int sched_state_cut(const struct sched *s, const struct sched_req *r, int pos);
/* Others share the path of r up to position at. */
void sched_state_branch(struct sched_req *r, int at);
void sched_state_begin(struct sched *s, struct sched_req *r); /* it was admitted */
void sched_state_plan(struct sched *s);                       /* the step's copies */
bool sched_state_ok(const struct sched *s);                   /* invariant 8 */
/* The step that was planned last took so long. */
void sched_owner_used(struct sched *s, int64_t ns, double decode_ns);

#endif
