/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks, and moving rows between them. Nothing here adds floating-point numbers: columns and rows
 * that ranks have computed are put side by side.
 *
 * Ranks are threads of one process (a team), or processes that a launcher started, one rank each.
 * Rank 0 is the home rank: it tells the others of every step (dist_tell), they hear of it
 * (dist_hear) and say when they are through (dist_done). In a step all ranks call the joins in the
 * same order. A rank of a team may write its columns of a join again once the next one but those
 * that are for home alone is over. Where ranks are in several stages, joins are among those of a
 * stage, and rows go from each stage to the next (dist_give, dist_take).
 * Failures: a rank gave no sign in time or is gone, joins did not fit together, or a rank said that
 * it failed (dist_fail). From then on no join waits or copies, on no rank, and dist_status says
 * why.
 * Threads: each rank's own; dist_fail any. */
#ifndef DIST_DIST_H
#define DIST_DIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DIST_RANK_MAX 64
#define DIST_AHEAD_MAX 16
#define DIST_AWAY_MAX 2

/* How a model is laid out over ranks. pp: its layers are dealt out to so many stages, one after the
 * other; dp: a stage has so many groups of ranks that each have all but the experts that are
 * chosen, and sequences of their own; tp: every matrix of a group is shared among so many ranks.
 * Rank r is number r % tp of group r / tp % dp of stage pp - 1 - r / (tp dp): rank 0 is in the last
 * stage. ep: so many groups of a stage's ranks, which follow each other, have some of the experts
 * each, and share these by rows (tp dp / ep = 1: they are whole); it divides tp dp. weight: how
 * much each of a stage's n_weight ranks holds of what it shares with others, the same in every
 * stage; n_weight 0: they are alike. */
#define DIST_WEIGHT_MAX 1000 /* sums of all ranks' are 16 bits, too */
struct dist_layout {
    int tp, dp, ep, pp;
    int n_weight; /* 0, or tp dp */
    uint16_t weight[DIST_RANK_MAX];
};
/* "tp=2,ep=2,pp=2,weight=3:2"; "" = one rank. Errors: REQUEST names the word that is not
 * understood, UNSUPPORTED the one that is not there yet. */
sl_status dist_layout_parse(const char *text, struct dist_layout *out, sl_err *err) BASE_MUST_USE;
int dist_layout_ranks(const struct dist_layout *l);
/* Are experts that are chosen dealt to groups of ranks (of all, where ep is 1)? Else they are
 * shared as everything is. */
bool dist_layout_spread(const struct dist_layout *l);

/* What one of n ranks gets of `total` in whole units, of which the last may be less; *begin: after
 * what those before it get. By weight [n], each from 1 to DIST_WEIGHT_MAX: what is left of whole
 * units goes to the largest remainders, of equal ones to the lower rank; where there are as many
 * units as ranks each has one at least. weight NULL: as many to each, or one more. */
struct dist_among {
    int rank, n; /* n at most DIST_RANK_MAX */
    const uint16_t *weight;
};
int64_t dist_share(int64_t total, int64_t unit, const struct dist_among *a, int64_t *begin);

/* What the environment says of a launcher (mpirun, srun): how many processes it has started, which
 * of them this one is, and the same of those on this machine. n 1: none.
 * bound: it has given each its CPUs. */
struct dist_launch {
    int n, rank, n_here, rank_here;
    bool bound;
};
struct dist_launch dist_launched(void);

/* same: ranks that may run on the same n_cpu CPUs. REQUEST where the launcher has bound more ranks
 * to them than there are: mpirun gives each of two ranks a core, and two of its daemons on a
 * machine may give the same one. */
sl_status dist_check_bound(const bool *same, int n, int n_cpu, sl_err *err) BASE_MUST_USE;

typedef struct dist dist; /* a rank's end */

/* Of a process that can not take part: the others fail with its failure when they open. */
struct dist_refusal {
    sl_status st;
    sl_err err;
    bool told; /* they have heard of it; else they were not met */
};

struct dist_opts {
    int deadline_ms; /* of a wait within a step: 0 = 30 000, and always 20 times the longest step
                        that counts */
    int n_join;      /* ranks of a stage, which join rows with each other; 0 = all */
    int n_tp;        /* of those, so many after each other share matrices; 0 = all */
    int n_etp;       /* and so many after each other share experts; 0 = n_tp */
    int n_ahead;     /* messages that home may tell before the first of them is done; 0 = 1 */
    int n_away;      /* exchanges that are begun before the first of them is ended; 0 = none */
    bool crowded; /* there are more threads of all ranks than CPUs: one that waits sleeps at once */
    struct dist_refusal *refuses; /* NULL, or opening fails on all ranks */
};
/* n ranks (2 .. DIST_RANK_MAX) that are threads of this process: out[i] is rank i's end. Errors:
 * REQUEST, NOMEM. */
sl_status dist_team_open(int n, const struct dist_opts *o, dist **out, sl_err *err) BASE_MUST_USE;
/* This process's end, of those that dist_launched tells of; all of them call it. A module beside
 * the program speaks MPI: NOTFOUND says what is missing. Other errors: IO (MPI's), UNSUPPORTED
 * (they are on several machines). */
sl_status dist_mpi_open(const struct dist_opts *o, dist **out, sl_err *err) BASE_MUST_USE;
/* In place of opening, of a process that was started for this layout (NULL: none) and fails with st
 * and err: these become what all ranks fail with, the failure of the lowest that has one. False:
 * the others were not met, or there are none, and nothing has changed. */
bool dist_mpi_refuse(const char *layout, sl_status *st, sl_err *err);
/* Where the module lies; false: nowhere. */
bool dist_mpi_module(char *path, size_t n);
void dist_close(dist *d); /* of a team any end closes all; NULL is legal */
int dist_rank(const dist *d);
int dist_size(const dist *d);
bool dist_here(const dist *d, int rank); /* is it on this machine? */
/* Set after opening, where it is known only then. */
void dist_set_crowded(dist *d, bool crowded);
/* While this rank waits for others, and does not sleep yet, it does something useful: fn is called
 * until it returns 0. */
void dist_set_waiting(dist *d, int (*fn)(void *arg), void *arg);

/* ---- while opening, of processes: all ranks call these at the same point ---- */
/* What every rank says, `bytes` each: into all [n_rank, bytes]. Errors: TIMEOUT, IO. */
sl_status dist_all(dist *d, const void *mine, void *all, size_t bytes, sl_err *err) BASE_MUST_USE;
/* OK where st is on every rank. Else all ranks get the failure of the lowest that has one, which
 * *err (a rank's own, where st is not OK) then is, with that rank's name. */
sl_status dist_gate(dist *d, sl_status st, sl_err *err) BASE_MUST_USE;
/* Memory that joins and messages go through: rows of a rank's columns are row_bytes at most, of
 * a message msg_bytes. Before the first join or message. Errors: NOMEM, IO: on all ranks. */
sl_status dist_room(dist *d, int64_t row_bytes, int64_t msg_bytes, sl_err *err) BASE_MUST_USE;

/* From now on n ranks that follow each other are a stage (n divides their number). All ranks call
 * it between two joins, which were opened with n_join 1. */
void dist_set_join(dist *d, int n);

/* ---- steps ---- */
/* Home: the others hear the n bytes of msg, which stay until its dist_all_done. n 0 = there is
 * nothing more. At most n_ahead messages are under way; all ranks obey them in order. */
void dist_tell(dist *d, const void *msg, size_t n);
/* The same where ranks that are not in the bits `whole` need the first n_least bytes only, and may
 * hear no more. */
struct dist_some {
    uint64_t whole;
    size_t n_least;
};
void dist_tell_some(dist *d, const void *msg, size_t n, const struct dist_some *s);
/* The others: wait for what home tells, without a deadline; it stays until dist_done. NULL = there
 * is nothing more, or home is gone: dist_status says so. */
const void *dist_hear(dist *d, size_t *n);
void dist_done(dist *d);
/* While a message is under way, which is the only one: it pays for what is done only once, and how
 * long it takes moves no deadline of this rank. */
void dist_uncounted(dist *d);
/* Home: wait until all others are done with the first message that they were not waited for.
 * Errors: as dist_status. */
sl_status dist_all_done(dist *d, sl_err *err) BASE_MUST_USE;

/* ---- joins: of the ranks that share matrices, of all of a stage, or of those that share experts,
 * numbered from the first of them on ---- */
enum dist_kind { DIST_TP, DIST_STAGE, DIST_ETP, DIST_N_KIND };
/* y [n_row, n]: columns part[0] of rank 0, then part[1] of rank 1 and so on, which each has in its
 * x [n_row, part[rank]]. home: for the first rank alone; the others do not wait, and their y is not
 * used. x may be where its columns go in y. run: NULL, or what copies with many workers.
 * n_of: NULL, or rows go to one rank each: the first n_of[0] of n_row to rank 0, then n_of[1] to
 * rank 1 and so on; y [n_of[rank], n] are those that come to this one.
 * take: NULL, or in place of y called for every row that comes, by many workers (worker: its
 * number), row 0 the first of them: cols[r] are rank r's columns of it, borrowed. Not with home. */
struct dist_cols {
    enum dist_kind of;
    const float *x;
    float *y;
    int64_t ldx, ldy; /* from row to row, on all ranks alike; 0 = as many as there are columns */
    int n_row, n;
    const int32_t *part; /* [ranks] */
    const int32_t *n_of; /* [ranks] the same on all ranks */
    bool home;
    void (*run)(void *user, void (*fn)(void *arg, int worker, int n_worker), void *arg);
    void *user;
    void (*take)(void *arg, int row, int worker, const float *const *cols);
    void *arg;
};
void dist_cols(dist *d, const struct dist_cols *c);
/* Of ranks that share matrices: y [n_row, n]: row t is that of the rank of[t], which has it in its
 * x [n_row, n]. */
struct dist_pick {
    const float *x;
    float *y;
    int n_row, n;
    const int32_t *of; /* [n_row] the same on all ranks */
};
void dist_pick(dist *d, const struct dist_pick *p);
/* The same ranks: x [n_of[rank], n]: whole rows that this rank has computed. y [all of them,
 * part[rank]]: this rank's columns (part[0] are rank 0's, then part[1] rank 1's and so on) of the
 * rows of rank 0, then of rank 1 and so on. run: as of dist_cols. */
struct dist_turn {
    const float *x;
    float *y;
    int n;
    const int32_t *n_of, *part; /* [ranks] the same on all ranks */
    void (*run)(void *user, void (*fn)(void *arg, int worker, int n_worker), void *arg);
    void *user;
};
void dist_turn(dist *d, const struct dist_turn *t);

/* Of rows that lie in several places what is in one of them: n words of 4 bytes from each, ld from
 * one row to the next (0: n). group: 0, or what matters of a row are the groups of so many words
 * that it lists in the strip before this one, an int32 how many and as many numbers: the others may
 * be left as they were. */
#define DIST_STRIPS 12
struct dist_strip {
    const void *x;
    void *y;
    int n;
    int64_t ld;
    int group;
};
/* x [n_of[rank], n]: whole rows that this rank has. y: those of rank 0, then of rank 1 and so on.
 * home, run: as of dist_cols. x may be where its rows go in y. strip: NULL, or n_strip of them in
 * place of x, y and n. */
struct dist_gather {
    enum dist_kind of;
    const float *x;
    float *y;
    int n;
    const int32_t *n_of; /* [ranks] the same on all ranks */
    bool home;
    void (*run)(void *user, void (*fn)(void *arg, int worker, int n_worker), void *arg);
    void *user;
    const struct dist_strip *strip;
    int n_strip; /* at most DIST_STRIPS */
};
void dist_gather(dist *d, const struct dist_gather *g);
/* x: rows of n for rank 0, then for rank 1 and so on, this one too; y: rows for this rank, those of
 * rank 0, then of rank 1 and so on. run: as of dist_cols. */
struct dist_swap {
    enum dist_kind of;
    const float *x;
    float *y;
    int n;
    const int32_t *count; /* [ranks, ranks] how many go from which to which, the same on all */
    void (*run)(void *user, void (*fn)(void *arg, int worker, int n_worker), void *arg);
    void *user;
};
void dist_swap(dist *d, const struct dist_swap *s);
/* The same two in parts: what is begun is on its way while this rank does something else. Exchanges
 * are ended in the order in which they were begun, at most n_away of them at a time; other joins
 * may come between. All that g and s name stays as it is until the end. Where messages carry joins
 * the first piece is sent at once; else all is done at the end, and nothing is gained. */
void dist_gather_begin(dist *d, const struct dist_gather *g); /* not with home or strips */
void dist_swap_begin(dist *d, const struct dist_swap *s);
void dist_end(dist *d);
/* Moves on what is on its way: now and then, between a begin and its end. */
void dist_look(dist *d);

/* ---- from stage to stage: between ranks of the same number there ---- */
/* Rows x [n_row, n] to the next stage, which takes them; x may be written again afterwards. */
void dist_give(dist *d, const float *x, int n_row, int n);
/* The rows that the stage before gives, into y [n_row, n]. */
void dist_take(dist *d, float *y, int n_row, int n);

/* ---- failures ---- */
/* The first failure counts. */
void dist_fail(dist *d, const sl_err *why);
/* OK, or why the ranks have failed: TIMEOUT names the rank that gave no sign, UNAVAILABLE the one
 * that is gone, INTERNAL the joins that do not fit together, else what dist_fail was given. */
sl_status dist_status(const dist *d, sl_err *err) BASE_MUST_USE;

/* How fast joins of a stage's ranks are: microseconds of one of few columns, 1e9 bytes a second
 * that this rank takes in one of many. All ranks call it between two messages' joins; it counts for
 * nothing. us 0: the stage has one rank. Errors: NOMEM. */
struct dist_link {
    double us, gbps;
};
sl_status dist_measure(dist *d, struct dist_link *out, sl_err *err) BASE_MUST_USE;

/* What a rank has done since it was opened. */
struct dist_count {
    uint64_t n_join, bytes; /* bytes: copied from other ranks; net: of these from other machines */
    uint64_t net;
    uint64_t note; /* dist_note */
    int64_t wait_ns;        /* for other ranks, in what home told; busy: the rest of it */
    int64_t busy_ns;
};
/* A number that this rank tells of itself, from its next dist_done on. */
void dist_note(dist *d, uint64_t v);
/* Of any rank, while no step is under way. */
struct dist_count dist_counts(const dist *d, int rank);

#endif
