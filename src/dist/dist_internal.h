/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: a rank's end, and what a transport is. */
#ifndef DIST_INTERNAL_H
#define DIST_INTERNAL_H

#include <stdatomic.h>

#include "base/size.h"
#include "dist/dist.h"
#include "os/word.h"

#define DIST_DEADLINE_MS 30000
#define DIST_SPIN_NS 50000 /* ranks that keep step arrive together */
#define DIST_PAGE 4096
#define DIST_SLICE_MS 20   /* a sleeper looks for failures so often */

/* Ranks that join rows with each other, and what they have joined so far. */
struct dist_circle {
    int first, n;
    uint64_t history;   /* hash of all joins */
    unsigned n_piece;   /* pieces */
    unsigned last_home; /* the last of them that was for the first rank alone */
    const char *op;     /* what the last of them is of; NULL = there was none */
};
/* A piece of a join: the same rows on every rank, or n_of[r] of rank r. */
struct dist_piece {
    struct dist_circle *c; /* whose */
    const float *x; /* this rank's */
    int n_row, n;   /* n: columns of the whole rows */
    int64_t ldx;    /* of columns: from row to row of x */
    /* columns: floats in each rank's rows; or whole rows, of which rank of[i] has row i: NULL */
    const int32_t *part;
    const int32_t *of;
    /* or whole rows, n_of[r] of rank r and n_row of all, of which part[r] columns go to rank r; or,
     * without part, all columns to all; or, with count, to one rank each, as of dist_swap: these
     * are rows row0 to row0 + n_of[r] of those that rank r has */
    const int32_t *n_of;
    const int32_t *count;
    int row0;
    /* of columns: NULL, or rows go to one rank each: to[r] rows from x's row at[r] on to rank r */
    const int32_t *to, *at;
    /* of whole rows that go to all, in place of x: what each has in n_strip places */
    const struct dist_strip *strip;
    int n_strip;
    bool home; /* for the first rank alone */
};
static inline int64_t dist_strip_ld(const struct dist_strip *s)
{
    return s->ld ? s->ld : s->n;
}
/* A piece of the rows that go from a stage to the next. */
struct dist_rows {
    float *x;
    int n_row, n;
};
struct dist_size {
    int n_row, n;
};

struct dist_ops {
    void (*tell)(dist *d, const void *msg, size_t n, const struct dist_some *s);
    const void *(*hear)(dist *d, size_t *n);
    void (*done)(dist *d);
    sl_status (*all_done)(dist *d, sl_err *err); /* with message number d->n_done */
    /* Give p's x to the others. Where true is returned, and the piece is not for the first rank
     * alone on another one, theirs are at d->from[rank] until the next piece; whole rows are there
     * one after another (d->packed), or at their place; of n_of's and to's what is for this rank
     * alone (d->cut), or all. Strips are one after another at d->from (d->packed), or each at
     * d->strip. */
    bool (*exchange)(dist *d, const struct dist_piece *p);
    /* The same in parts, number i of those on their way; NULL: only whole. look: all of them. */
    void (*begin)(dist *d, const struct dist_piece *p, int i);
    bool (*end)(dist *d, const struct dist_piece *p, int i);
    void (*look)(dist *d);
    /* p's x to the rank of the next stage; what that of the stage before gives, into p's x. False:
     * the ranks have failed. */
    bool (*give)(dist *d, const struct dist_rows *p);
    bool (*take)(dist *d, const struct dist_rows *p);
    /* All that was given has been read, where that is from memory of the caller's. */
    bool (*given)(dist *d);
    void (*fail)(dist *d, const sl_err *why);
    sl_status (*status)(const dist *d, sl_err *err);
    struct dist_count (*counts)(const dist *d, int rank);
};

/* An exchange that was begun. */
struct dist_away {
    bool is_swap;
    struct dist_gather gather;
    struct dist_swap swap;
    int per; /* rows of a piece; 0: the ranks have failed */
};

struct dist {
    const struct dist_ops *ops;
    void (*close)(dist *d);
    int rank, n;
    int n_join; /* ranks of a stage */
    /* who joins what with this one: of the kind k circle[at[k]]; kinds of the same ranks have one,
     * and those of which there is no other rank that of the stage */
    struct dist_circle circle[DIST_N_KIND];
    int n_circle, at[DIST_N_KIND];
    int64_t deadline_ns, spin_ns;
    int (*waiting)(void *arg); /* or NULL */
    void *waiting_arg;
    int64_t t_heard, longest_ns; /* of the step under way; of all that count, 0: there was none */
    bool uncounted;              /* the step under way does not */
    int64_t waited_ns;           /* count.wait_ns when the step under way began */
    const struct dist_circle *last; /* of the last join; NULL = there was none */
    unsigned n_given, n_taken;   /* pieces from stage to stage so far */
    int n_ahead;                 /* messages that may be under way */
    /* by their numbers; where pieces can be begun at most n_away are on their way */
    struct dist_away away[DIST_AWAY_MAX];
    unsigned n_begun, n_ended;
    int64_t looked_ns; /* when it was looked at last */
    int n_away;
    unsigned n_told, n_done;     /* home: messages so far; of them those that all are done with */
    size_t half;                 /* bytes of a piece at most; 0: any */
    bool packed, cut;
    const float *from[DIST_RANK_MAX];
    const float *strip[DIST_RANK_MAX][DIST_STRIPS];
    struct dist_count count;
    void *room; /* of dist_measure; NULL = none */
    /* board.c */
    struct board *board;
    unsigned heard;
    uint8_t *slot; /* of all ranks, or NULL: they read each other's memory where it lies */
    uint8_t *msg;  /* with slots: where messages are, n_msg_max bytes each */
    size_t n_msg_max;
    /* mpi.c: what is known of the processes; NULL in a team */
    struct dist_group *group;
};

/* What failures call a rank: "rank 2", and of a process its host and number. */
struct dist_name {
    char text[96];
};
struct dist_name dist_name_of(const dist *d, int rank);
/* Has that rank's process ended? */
bool dist_gone(const dist *d, int rank);
/* Is it stopped? Known of this machine. turns as of os_process_stopped. */
bool dist_stopped(const dist *d, int rank, uint64_t *turns);
/* Since when a rank was seen stopped; all 0 at first. */
struct dist_stop {
    int rank;
    int64_t since;
    uint64_t turns;
};
/* For a wait, asked now and then: how long that rank, of this machine, has been stopped and not run
 * in between, where that is longer than the deadline that was asked for; else 0. However long steps
 * take, it is not a slow one. */
int64_t dist_stopped_long(const dist *d, int rank, struct dist_stop *s);
/* How long a wait in a step may be: longer than was asked for where steps take long. */
int64_t dist_deadline(const dist *d);
/* The same of a wait for another stage: longer the more stages may be waiting for the same rank
 * before this one does (given: the next one is waited for), so that its neighbour names it. Until a
 * step was counted it may be reading its weights from disk. */
int64_t dist_stage_deadline(const dist *d, bool given);
/* The rank of the stage before that gives rows to this one; -1 = this is the first stage. And the
 * one that takes this one's; -1 = this is the last. */
int dist_giver(const dist *d);
int dist_taker(const dist *d);
/* INTERNAL: what a stage gives is not what the next one takes. */
sl_status dist_misgiven(const dist *d, int giver, struct dist_size theirs, struct dist_size mine,
                        sl_err *err);
struct dist_circle *dist_circle_of(dist *d, enum dist_kind k);
/* Is the piece of use to another rank alone? */
static inline bool dist_not_mine(const dist *d, const struct dist_piece *p)
{
    return p->home && d->rank != p->c->first;
}
/* Begin the next piece: its number, and the history that all ranks must have. */
void dist_count_piece(dist *d, const struct dist_piece *p);
/* This rank's part of it for another rank, or for_rank -1: for all; the rows that are its own one
 * after another. */
void dist_pack_piece(const dist *d, const struct dist_piece *p, int for_rank, float *to);
/* Where rank's columns begin. */
int64_t dist_part_begin(const int32_t *part, int rank);
/* Of the rows of a piece with count that a rank has those for another, both counted from the first
 * of the circle. */
struct dist_range {
    int begin, n;
};
struct dist_range dist_range_for(const struct dist_piece *p, int rank, int to);
/* A join of c's ranks begins, of n_row rows at most from each, the widest part of a row of so many
 * columns: rows of a piece. 0: the ranks have failed, or do now since no row fits. */
int dist_join_begin(dist *d, const struct dist_circle *c, int n_row, int64_t widest);
int dist_most_of(const int32_t *v, int n); /* the largest of n numbers, none below 0 */
void dist_took(dist *d, int rank, uint64_t bytes); /* copied from that rank */
#define DIST_ALONE_BYTES (64 << 10) /* copied by the rank's own thread */
#define DIST_IN_STEP "in a step"
/* A rank was waited for in vain so long, where: DIST_IN_STEP or another place. DEVICE: it is gone;
 * else TIMEOUT, with the join. */
sl_status dist_silent(const dist *d, int rank, int64_t ns, const char *where, sl_err *err);
/* INTERNAL: this rank and that one, which has rows of that size, have come to different joins. */
sl_status dist_misfit(const dist *d, int rank, const struct dist_piece *mine,
                      struct dist_size theirs, sl_err *err);

/* board.c: n ends that share memory: a board, and slots for rows and messages of other processes.
 */
size_t dist_board_bytes(int n);
/* Bytes of a rank's slot there: two halves for joins of each circle, and where there are several
 * stages two for rows that it gives. */
size_t dist_board_slot(const dist *d, size_t half);
/* Bytes after the board: slots of all ranks, and room for messages. */
size_t dist_board_room(const dist *d, size_t half, size_t msg_bytes);
void dist_board_init(struct board *b, int n, bool shared);
/* d reads and writes b from now on; half 0: there is nothing after it. */
void dist_board_attach(dist *d, struct board *b, size_t half, size_t msg_bytes);
extern const struct dist_ops dist_board_ops;
void dist_init(dist *d, int rank, int n, const struct dist_opts *o);

#endif
