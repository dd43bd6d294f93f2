/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, and moving rows between them. Nothing here adds floating-point numbers: columns that ranks
 * have computed are put side by side.
 *
 * Rank 0 is the home rank: it tells the others of every step (dist_tell), they hear of it
 * (dist_hear) and say when they are through (dist_done). In a step all ranks call the joins in the
 * same order. A rank may write its columns of a join again once the next one but those that are for
 * home alone is over.
 * Failures: a rank gave no sign in time, joins did not fit together, or a rank said that it failed
 * (dist_fail). From then on no join waits or copies, on no rank, and dist_status says why.
 * Threads: each rank's own; dist_fail any. */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define DIST_RANK_MAX 64

/* How a model is laid out over ranks. tp: every matrix is shared among so many. */
struct dist_layout {
    int tp;
};
/* "tp=2"; "" = one rank. Errors: REQUEST names the word that is not understood, UNSUPPORTED the one
 * that is not there yet. */
sl_status dist_layout_parse(const char *text, struct dist_layout *out, sl_err *err) BASE_MUST_USE;

typedef struct dist dist; /* a rank's end */

struct dist_opts {
    int deadline_ms; /* of a wait within a step; 0 = 30 000 */
    bool crowded;    /* there are more threads of all ranks than CPUs: who waits sleeps at once */
};
/* n ranks (2 .. DIST_RANK_MAX) that are threads of this process: out[i] is rank i's end. Errors:
 * REQUEST, NOMEM. */
sl_status dist_team_open(int n, const struct dist_opts *o, dist **out, sl_err *err) BASE_MUST_USE;
void dist_team_close(dist *any); /* of all ranks; NULL is legal */
int dist_rank(const dist *d);
int dist_size(const dist *d);

/* ---- steps ---- */
/* Home: the others hear msg, which stays until dist_all_done. NULL = there is nothing more. */
void dist_tell(dist *d, const void *msg);
/* The others: wait for what home tells, without a deadline. */
const void *dist_hear(dist *d);
void dist_done(dist *d);
/* Home: wait until all others are done with the last message. Errors: as dist_status. */
sl_status dist_all_done(dist *d, sl_err *err) BASE_MUST_USE;

/* ---- joins ---- */
/* y [n_row, n]: columns part[0] of rank 0, then part[1] of rank 1 and so on, which each has in its
 * x [n_row, part[rank]]. y may be NULL on a rank that has no use for it: then it does not wait, and
 * the join is for home alone. run: NULL, or what copies with many workers. */
struct dist_cols {
    const float *x;
    float *y;
    int n_row, n;
    const int32_t *part; /* [ranks] */
    void (*run)(void *user, void (*fn)(void *arg, int worker, int n_worker), void *arg);
    void *user;
};
void dist_cols(dist *d, const struct dist_cols *c);
/* y [n_row, n]: row t is that of the rank of[t], which has it in its x [n_row, n]. */
struct dist_pick {
    const float *x;
    float *y;
    int n_row, n;
    const int32_t *of; /* [n_row] the same on all ranks */
};
void dist_pick(dist *d, const struct dist_pick *p);

/* ---- failures ---- */
/* The first failure counts. */
void dist_fail(dist *d, const sl_err *why);
/* OK, or why the ranks have failed: TIMEOUT names the rank that gave no sign, INTERNAL the joins
 * that do not fit together, else what dist_fail was given. */
sl_status dist_status(const dist *d, sl_err *err) BASE_MUST_USE;

/* What a rank has done since it was opened. */
struct dist_count {
    uint64_t n_join, bytes; /* bytes: copied from other ranks */
    int64_t wait_ns;        /* for other ranks, in joins */
};
struct dist_count dist_counts(const dist *d);

#endif
