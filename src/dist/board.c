/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have memory in common. Each has a line of its own there, with a word that rises with
 * every piece of a join: it posts where its columns lie, raises the word, waits until the words of
 * the others are as high, and reads theirs. It raises its word again only after it has read; so one
 * that sees the next piece complete knows that the columns of this one have been read. Threads of
 * one process read each other's columns where they lie. Processes copy theirs into a slot of two
 * halves, used in turn. */
#include <string.h>

#include "base/clock.h"
#include "dist/dist_internal.h"

/* A piece as a rank sees it: what must be the same everywhere, and where its part lies. */
struct post {
    const float *x; /* threads only */
    int n_row, n;
    uint64_t history;
    const float *strip[DIST_STRIPS]; /* the same, in place of x */
};

#define N_COUNT ((int)(sizeof(struct dist_count) / sizeof(int64_t)))
_Static_assert(N_COUNT * sizeof(int64_t) == sizeof(struct dist_count), "numbers of 8 bytes");

#define LOOK 5 /* slices of a sleep between looks whether the other is stopped */

struct board_line {
    struct os_word phase[DIST_N_KIND]; /* by circle, pieces that this rank has come to */
    struct os_word done;               /* messages that it is through with */
    struct post post[DIST_N_KIND][2];  /* of the last two, by the last bit of their number */
    /* pieces that it has given to the next stage, and taken from the one before */
    struct os_word given, taken;
    struct post gift[2]; /* as post */
    /* struct dist_count, number by number: home may ask while this rank is at another message, or
     * when all have failed */
    _Atomic int64_t count[N_COUNT];
};

struct board {
    struct os_word told; /* messages so far */
    struct {
        const void *p; /* threads only */
        size_t n;
    } msg[DIST_AHEAD_MAX]; /* by their number; published by told */
    /* The number of the message that there will be no more; 0: there will. It has no place: after a
     * failure a rank may still read what was told before. relaxed: published by told */
    atomic_uint end;
    atomic_int failed; /* 0, 1 while why is written, 2 */
    sl_err why;
    struct board_line line[];
};

size_t dist_board_bytes(int n)
{
    return size_round(sizeof(struct board) + (size_t)n * sizeof(struct board_line), DIST_PAGE);
}

size_t dist_board_slot(const dist *d, size_t half)
{
    return (size_t)(2 * d->n_circle + (d->n_join < d->n ? 2 : 0)) * half;
}

size_t dist_board_room(const dist *d, size_t half, size_t msg_bytes)
{
    return (size_t)d->n * dist_board_slot(d, half) +
           (size_t)d->n_ahead * size_round(msg_bytes, DIST_PAGE);
}

void dist_board_init(struct board *b, int n, bool shared)
{
    b->told.shared = shared;
    for (int r = 0; r < n; r++) {
        struct board_line *l = &b->line[r];
        l->done.shared = l->given.shared = l->taken.shared = shared;
        for (int k = 0; k < DIST_N_KIND; k++)
            l->phase[k].shared = shared;
    }
}

void dist_board_attach(dist *d, struct board *b, size_t half, size_t msg_bytes)
{
    d->ops = &dist_board_ops;
    d->board = b;
    d->half = half;
    d->packed = half > 0;
    d->slot = half ? (uint8_t *)b + dist_board_bytes(d->n) : NULL;
    d->msg = half ? d->slot + (size_t)d->n * dist_board_slot(d, half) : NULL;
    d->n_msg_max = size_round(msg_bytes, DIST_PAGE);
}

static int kind_of(const dist *d, const struct dist_circle *c)
{
    return (int)(c - d->circle);
}

static float *slot_of(const dist *d, const struct dist_circle *c, int rank)
{
    size_t half = 2 * (size_t)kind_of(d, c) + (c->n_piece & 1);
    return (float *)(d->slot + (size_t)rank * dist_board_slot(d, d->half) + half * d->half);
}

/* Of rank's piece number n_given to the next stage. */
static float *gift_of(const dist *d, int rank, unsigned n_given)
{
    size_t half = 2 * (size_t)d->n_circle + (n_given & 1);
    return (float *)(d->slot + (size_t)rank * dist_board_slot(d, d->half) + half * d->half);
}

/* ---- failures ---- */

static bool has_failed(const dist *d)
{
    return atomic_load_explicit(&d->board->failed, memory_order_acquire) != 0;
}

static void board_fail(dist *d, const sl_err *why)
{
    struct board *b = d->board;
    int none = 0;
    if (!atomic_compare_exchange_strong(&b->failed, &none, 1)) return;
    b->why = *why;
    b->why.file = ""; /* an address of this process */
    atomic_store_explicit(&b->failed, 2, memory_order_release);
}

static sl_status board_status(const dist *d, sl_err *err)
{
    const struct board *b = d->board;
    if (!has_failed(d)) return SL_OK;
    int64_t t0 = clock_now_ns();
    while (atomic_load_explicit(&b->failed, memory_order_acquire) != 2) /* it is being written */
        if (clock_now_ns() - t0 > 1000000000)
            return SL_FAIL(err, DEVICE, "a rank ended while it was failing");
    if (err) *err = b->why;
    return b->why.code;
}

static void late(dist *d, int rank, int64_t ns, const char *what)
{
    sl_err why = {0};
    if (has_failed(d)) return;
    (void)dist_silent(d, rank, ns, what, &why);
    board_fail(d, &why);
}

/* For a while without sleeping: is it there? */
static bool spin(const dist *d, struct os_word *w, unsigned goal)
{
    int64_t now;
    while (!os_word_there(w, goal) && d->waiting && d->waiting(d->waiting_arg)) {
    }
    return os_word_poll(w, goal, 64) || os_word_spin(w, goal, d->spin_ns, clock_now_ns(), &now);
}

/* Wait until rank's word has risen to goal, for most at most: true. Else the ranks have failed. */
static bool wait_within(dist *d, int rank, struct os_word *w, unsigned goal, const char *what,
                        int64_t most)
{
    int64_t t0 = clock_now_ns();
    struct dist_stop stop = {0};
    bool there = spin(d, w, goal);
    for (int i = 1; !there && !has_failed(d) && !dist_gone(d, rank); i++) {
        if (clock_now_ns() - t0 >= most || (i % LOOK == 0 && dist_stopped_long(d, rank, &stop)))
            break;
        there = os_word_sleep(w, goal, DIST_SLICE_MS);
    }
    if (!there) late(d, rank, clock_now_ns() - t0, what);
    return there;
}

static bool wait_for(dist *d, int rank, struct os_word *w, unsigned goal, const char *what)
{
    return wait_within(d, rank, w, goal, what, dist_deadline(d));
}

/* ---- steps ---- */

static void board_tell(dist *d, const void *msg, size_t n, const struct dist_some *s)
{
    (void)s; /* all read it where it lies */
    struct board *b = d->board;
    unsigned at = d->n_told % (unsigned)d->n_ahead;
    if (d->slot && n) {
        ASSERT(n <= d->n_msg_max);
        memcpy(d->msg + at * d->n_msg_max, msg, n);
    }
    if (n) {
        b->msg[at].p = msg;
        b->msg[at].n = n;
    } else {
        atomic_store_explicit(&b->end, d->n_told, memory_order_relaxed);
    }
    os_word_raise(&b->told);
}

/* What home alone reads of this rank's memory, it may still be reading. */
static void wait_for_home(const dist *d)
{
    struct os_word *done = &d->board->line[0].done;
    bool with_home = d->circle[d->at[DIST_STAGE]].first == 0;
    if (d->slot || d->n_ahead == 1 || !with_home || spin(d, done, d->heard - 1)) return;
    while (!os_word_sleep(done, d->heard - 1, DIST_SLICE_MS) && !has_failed(d)) {
    }
}

static const void *board_hear(dist *d, size_t *n)
{
    struct board *b = d->board;
    struct dist_stop stop = {0};
    d->heard++;
    *n = 0;
    if (!spin(d, &b->told, d->heard))
        for (int i = 1; !os_word_sleep(&b->told, d->heard, d->group ? DIST_SLICE_MS : -1); i++) {
            int64_t ns = i % LOOK ? 0 : dist_stopped_long(d, 0, &stop);
            if (ns || dist_gone(d, 0)) late(d, 0, ns, "between steps");
            if (d->group && has_failed(d)) return NULL;
        }
    if (d->heard == atomic_load_explicit(&b->end, memory_order_relaxed)) return NULL;
    unsigned at = d->heard % (unsigned)d->n_ahead;
    *n = b->msg[at].n;
    if (*n) wait_for_home(d);
    return d->slot ? d->msg + at * d->n_msg_max : b->msg[at].p;
}

static void board_done(dist *d)
{
    struct board_line *l = &d->board->line[d->rank];
    int64_t v[N_COUNT];
    memcpy(v, &d->count, sizeof v);
    for (int i = 0; i < N_COUNT; i++)
        atomic_store_explicit(&l->count[i], v[i], memory_order_relaxed);
    os_word_raise(&l->done);
}

static sl_status board_all_done(dist *d, sl_err *err)
{
    struct board *b = d->board;
    for (int r = 1; r < d->n; r++) /* one that is silent may be in the step for good */
        if (!wait_for(d, r, &b->line[r].done, d->n_done, "after a step")) break;
    os_word_raise(&b->line[0].done);
    return board_status(d, err);
}

/* ---- joins ---- */

/* All have come to piece number n_piece, or further. */
static bool wait_all(dist *d, const struct dist_circle *c, unsigned n_piece)
{
    int64_t t0 = clock_now_ns();
    for (int r = c->first; r < c->first + c->n; r++) {
        struct os_word *phase = &d->board->line[r].phase[kind_of(d, c)];
        if (has_failed(d) || !wait_for(d, r, phase, n_piece, DIST_IN_STEP)) return false;
    }
    d->count.wait_ns += clock_now_ns() - t0;
    return true;
}

static bool board_exchange(dist *d, const struct dist_piece *p)
{
    struct board *b = d->board;
    struct board_line *l = &b->line[d->rank];
    const struct dist_circle *c = p->c;
    int k = kind_of(d, c);
    unsigned before = c->n_piece;
    bool passed = c->last_home != before; /* all were waited for at the piece before */
    dist_count_piece(d, p);
    /* a rank that is at the piece before has read the one before that, whose half and post these
     * are */
    if ((d->slot || !passed) && !wait_all(d, c, before)) return false;
    if (d->slot) dist_pack_piece(d, p, -1, slot_of(d, c, d->rank));
    struct post *mine = &l->post[k][c->n_piece & 1];
    *mine = (struct post){d->slot ? NULL : p->x, p->n_row, p->n, c->history, {NULL}};
    for (int i = 0; i < p->n_strip && !d->slot; i++)
        mine->strip[i] = p->strip[i].x;
    os_word_raise(&l->phase[k]);
    if (dist_not_mine(d, p)) return true;
    if (!wait_all(d, c, c->n_piece)) return false;
    for (int r = c->first; r < c->first + c->n; r++) {
        const struct post *of = &b->line[r].post[k][c->n_piece & 1];
        if (of->history != mine->history) {
            sl_err why = {0};
            (void)dist_misfit(d, r, p, (struct dist_size){of->n_row, of->n}, &why);
            board_fail(d, &why);
            return false;
        }
        d->from[r] = d->slot ? slot_of(d, c, r) : of->x;
        memcpy(d->strip[r], of->strip, sizeof of->strip);
    }
    return true;
}

/* ---- from stage to stage ---- */

/* Wait for the neighbour's word in another stage. */
static bool wait_stage(dist *d, int rank, struct os_word *w, unsigned goal)
{
    int64_t t0 = clock_now_ns();
    bool giver = rank == dist_giver(d);
    if (has_failed(d) ||
        !wait_within(d, rank, w, goal, DIST_IN_STEP, dist_stage_deadline(d, !giver)))
        return false;
    d->count.wait_ns += clock_now_ns() - t0;
    return true;
}

static bool board_give(dist *d, const struct dist_rows *p)
{
    struct board_line *l = &d->board->line[d->rank];
    int to = dist_taker(d);
    d->n_given++;
    if (d->slot) {
        /* the piece before the last one was in this half */
        if (!wait_stage(d, to, &d->board->line[to].taken, d->n_given - 2)) return false;
        memcpy(gift_of(d, d->rank, d->n_given), p->x,
               (size_t)p->n_row * (size_t)p->n * sizeof *p->x);
    }
    l->gift[d->n_given & 1] = (struct post){d->slot ? NULL : p->x, p->n_row, p->n, 0, {NULL}};
    os_word_raise(&l->given);
    return true;
}

static bool board_take(dist *d, const struct dist_rows *p)
{
    int from = dist_giver(d);
    struct board_line *theirs = &d->board->line[from];
    d->n_taken++;
    if (!wait_stage(d, from, &theirs->given, d->n_taken)) return false;
    const struct post *of = &theirs->gift[d->n_taken & 1];
    if (of->n_row != p->n_row || of->n != p->n) {
        sl_err why = {0};
        (void)dist_misgiven(d, from, (struct dist_size){of->n_row, of->n},
                            (struct dist_size){p->n_row, p->n}, &why);
        board_fail(d, &why);
        return false;
    }
    memcpy(p->x, d->slot ? gift_of(d, from, d->n_taken) : of->x,
           (size_t)p->n_row * (size_t)p->n * sizeof *p->x);
    os_word_raise(&d->board->line[d->rank].taken);
    return true;
}

static bool board_given(dist *d)
{
    int to = dist_taker(d);
    return d->slot || wait_stage(d, to, &d->board->line[to].taken, d->n_given);
}

static struct dist_count board_counts(const dist *d, int rank)
{
    const struct board_line *l = &d->board->line[rank];
    struct dist_count c = d->count;
    int64_t v[N_COUNT];
    if (rank == d->rank) return c;
    for (int i = 0; i < N_COUNT; i++)
        v[i] = atomic_load_explicit(&l->count[i], memory_order_relaxed);
    memcpy(&c, v, sizeof c);
    return c;
}

const struct dist_ops dist_board_ops = {
    .tell = board_tell,
    .hear = board_hear,
    .done = board_done,
    .all_done = board_all_done,
    .exchange = board_exchange,
    .give = board_give,
    .take = board_take,
    .given = board_given,
    .fail = board_fail,
    .status = board_status,
    .counts = board_counts,
};
