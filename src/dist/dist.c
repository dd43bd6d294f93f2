/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same whatever carries it: joins in pieces, deadlines, the history of all joins. */
#include "dist/dist.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "dist/dist_internal.h"

#define STEPS 20               /* so many times the longest step a rank may be silent */
#define FIRST_NS ((int64_t)600 * 1000000000) /* for another stage until a step was counted */
#define APART_NS ((int64_t)250 * 1000000)    /* between the deadlines of stages, at least */

void dist_init(dist *d, int rank, int n, const struct dist_opts *o)
{
    d->rank = rank;
    d->n = n;
    d->n_join = o->n_join ? o->n_join : n;
    d->n_ahead = BASE_MAX(o->n_ahead, 1);
    d->n_away = o->n_away;
    ASSERT(d->n_ahead <= DIST_AHEAD_MAX && d->n_away <= DIST_AWAY_MAX);
    int n_tp = o->n_tp ? o->n_tp : d->n_join, n_etp = o->n_etp ? o->n_etp : n_tp;
    const int size[DIST_N_KIND] = {[DIST_TP] = n_tp > 1 ? n_tp : d->n_join,
                                   [DIST_STAGE] = d->n_join,
                                   [DIST_ETP] = n_etp > 1 ? n_etp : d->n_join};
    for (int k = 0; k < DIST_N_KIND; k++) {
        int i = 0;
        while (i < d->n_circle && d->circle[i].n != size[k])
            i++;
        d->at[k] = i;
        if (i < d->n_circle) continue;
        d->circle[d->n_circle++] =
            (struct dist_circle){.first = rank / size[k] * size[k], .n = size[k]};
    }
    d->deadline_ns = (int64_t)(o->deadline_ms ? o->deadline_ms : DIST_DEADLINE_MS) * 1000000;
    dist_set_crowded(d, o->crowded);
}

struct dist_circle *dist_circle_of(dist *d, enum dist_kind k)
{
    return &d->circle[d->at[k]];
}

void dist_set_crowded(dist *d, bool crowded)
{
    d->spin_ns = crowded ? 0 : DIST_SPIN_NS;
}

void dist_set_waiting(dist *d, int (*fn)(void *arg), void *arg)
{
    d->waiting = fn;
    d->waiting_arg = arg;
}

void dist_set_join(dist *d, int n)
{
    ASSERT(d->n_circle == 1);
    d->n_join = n;
    d->circle[0].first = d->rank / n * n;
    d->circle[0].n = n;
}

void dist_close(dist *d)
{
    if (d) d->close(d);
}

int dist_rank(const dist *d)
{
    return d->rank;
}

int dist_size(const dist *d)
{
    return d->n;
}

int64_t dist_deadline(const dist *d)
{
    return BASE_MAX(d->deadline_ns, STEPS * d->longest_ns);
}

int dist_giver(const dist *d)
{
    return d->rank + d->n_join < d->n ? d->rank + d->n_join : -1;
}

int dist_taker(const dist *d)
{
    return d->rank - d->n_join;
}

int64_t dist_stage_deadline(const dist *d, bool given)
{
    int after = d->rank / d->n_join, before = d->n / d->n_join - 1 - after;
    int64_t ns = d->longest_ns ? dist_deadline(d) : BASE_MAX(FIRST_NS, dist_deadline(d));
    return ns + (given ? after : before) * BASE_MAX(APART_NS, 2 * d->longest_ns);
}

int64_t dist_stopped_long(const dist *d, int rank, struct dist_stop *s)
{
    uint64_t turns = 0;
    int64_t now = clock_now_ns();
    if (!dist_stopped(d, rank, &turns))
        *s = (struct dist_stop){0};
    else if (!s->since || s->rank != rank || s->turns != turns)
        *s = (struct dist_stop){rank, now, turns};
    return s->since && now - s->since > d->deadline_ns ? now - s->since : 0;
}

/* ---- steps ---- */

static void step_begins(dist *d)
{
    d->t_heard = clock_now_ns();
    d->waited_ns = d->count.wait_ns;
}

static void step_over(dist *d)
{
    int64_t ns = clock_now_ns() - d->t_heard;
    if (!d->uncounted) d->longest_ns = BASE_MAX(d->longest_ns, ns);
    d->uncounted = false;
    d->count.busy_ns += ns - (d->count.wait_ns - d->waited_ns);
}

void dist_uncounted(dist *d)
{
    d->uncounted = true;
}

void dist_tell_some(dist *d, const void *msg, size_t n, const struct dist_some *s)
{
    if (!d->ops) return; /* nobody can hear it yet */
    if (d->n_told == d->n_done) step_begins(d);
    d->n_told++;
    d->ops->tell(d, n ? msg : NULL, n, s);
}

void dist_tell(dist *d, const void *msg, size_t n)
{
    dist_tell_some(d, msg, n, &(struct dist_some){~(uint64_t)0, n});
}

const void *dist_hear(dist *d, size_t *n)
{
    const void *msg = d->ops->hear(d, n);
    step_begins(d);
    return *n ? msg : NULL;
}

void dist_done(dist *d)
{
    step_over(d);
    d->ops->done(d);
}

sl_status dist_all_done(dist *d, sl_err *err)
{
    int64_t t0 = clock_now_ns();
    d->n_done++;
    sl_status st = d->ops->all_done(d, err);
    d->count.wait_ns += clock_now_ns() - t0;
    step_over(d);
    step_begins(d); /* where more is under way */
    return st;
}

/* ---- joins ---- */

void dist_count_piece(dist *d, const struct dist_piece *p)
{
    int kind = p->of ? 1 : p->to ? 5 : !p->n_of ? 0 : p->count ? 4 : p->part ? 2 : 3;
    const int32_t v[] = {p->n_row, p->n, kind};
    static const char *const ops[] = {"columns",       "picked rows",    "turned rows",
                                      "gathered rows", "exchanged rows", "rows of columns"};
    struct dist_circle *c = p->c;
    size_t n = (size_t)c->n;
    c->n_piece++;
    c->op = ops[kind];
    d->last = c;
    c->history = hash_bytes(v, sizeof v, c->history);
    if (p->n_of) c->history = hash_bytes(p->n_of, n * sizeof *p->n_of, c->history);
    if (p->to) c->history = hash_bytes(p->to, n * sizeof *p->to, c->history);
    if (p->count) c->history = hash_bytes(p->count, n * n * sizeof *p->count, c->history);
    if (p->home) c->last_home = c->n_piece;
}

int64_t dist_part_begin(const int32_t *part, int rank)
{
    int64_t at = 0;
    for (int r = 0; r < rank; r++)
        at += part[r];
    return at;
}

/* Columns for a rank of the rows that this one has. */
static void pack_turned(const dist *d, const struct dist_piece *p, int for_rank, float *to)
{
    int64_t n = for_rank < 0 ? p->n : p->part[for_rank],
            at = for_rank < 0 ? 0 : dist_part_begin(p->part, for_rank);
    for (int i = 0; i < p->n_of[d->rank - p->c->first]; i++)
        memcpy(to + i * n, p->x + (int64_t)i * p->n + at, (size_t)n * sizeof *to);
}

/* Rows for a rank of those that this one has. */
static void pack_rows(const dist *d, const struct dist_piece *p, int for_rank, float *to)
{
    int me = d->rank - p->c->first;
    struct dist_range of = {0, p->n_of[me]};
    if (p->count && for_rank >= 0) of = dist_range_for(p, me, for_rank);
    if (!p->n_strip) {
        memcpy(to, p->x + (int64_t)of.begin * p->n, (size_t)of.n * (size_t)p->n * sizeof *to);
        return;
    }
    for (int k = 0; k < p->n_strip; k++) {
        const struct dist_strip *s = &p->strip[k];
        for (int i = 0; i < of.n; i++, to += s->n)
            memcpy(to, (const float *)s->x + i * dist_strip_ld(s), (size_t)s->n * sizeof *to);
    }
}

/* This rank's columns, n of them, of n_row rows. */
static void pack_cols(const struct dist_piece *p, const float *x, int n_row, int64_t n, float *to)
{
    if (p->ldx == n) {
        memcpy(to, x, (size_t)n_row * (size_t)n * sizeof *to);
        return;
    }
    for (int i = 0; i < n_row; i++)
        memcpy(to + i * n, x + i * p->ldx, (size_t)n * sizeof *to);
}

/* The same of the rows of one rank, or of all, one after another. */
static void pack_cols_to(const dist *d, const struct dist_piece *p, int for_rank, float *to)
{
    int64_t n = p->part[d->rank - p->c->first];
    int begin = for_rank < 0 ? 0 : for_rank, end = for_rank < 0 ? p->c->n : for_rank + 1;
    for (int r = begin; r < end; r++, to += p->to[r - 1] * n)
        pack_cols(p, p->x + p->at[r] * p->ldx, p->to[r], n, to);
}

void dist_pack_piece(const dist *d, const struct dist_piece *p, int for_rank, float *to)
{
    if (p->n_of && !p->part) {
        pack_rows(d, p, for_rank, to);
        return;
    }
    if (p->n_of) {
        pack_turned(d, p, for_rank, to);
        return;
    }
    if (p->to) {
        pack_cols_to(d, p, for_rank, to);
        return;
    }
    if (!p->of) {
        pack_cols(p, p->x, p->n_row, p->part[d->rank - p->c->first], to);
        return;
    }
    for (int i = 0; i < p->n_row; i++) {
        if (p->of[i] != d->rank - p->c->first) continue;
        memcpy(to, p->x + (int64_t)i * p->n, (size_t)p->n * sizeof *to);
        to += p->n;
    }
}

sl_status dist_silent(const dist *d, int rank, int64_t ns, const char *where, sl_err *err)
{
    struct dist_name name = dist_name_of(d, rank);
    if (dist_gone(d, rank)) return SL_FAIL(err, DEVICE, "%s is gone", name.text);
    if (strcmp(where, DIST_IN_STEP) != 0 || !d->last)
        return SL_FAIL(err, TIMEOUT, "%s gave no sign for %.1f s %s", name.text, (double)ns * 1e-9,
                       where);
    return SL_FAIL(err, TIMEOUT, "%s gave no sign for %.1f s %s, join %u of %s", name.text,
                   (double)ns * 1e-9, where, d->last->n_piece, d->last->op);
}

sl_status dist_misfit(const dist *d, int rank, const struct dist_piece *mine,
                      struct dist_size theirs, sl_err *err)
{
    unsigned n = mine->c->n_piece;
    struct dist_name a = dist_name_of(d, d->rank), b = dist_name_of(d, rank);
    if (mine->n_row == theirs.n_row && mine->n == theirs.n)
        return SL_FAIL(err, INTERNAL, "join %u of %s: %s and %s have made other joins before it",
                       n, mine->c->op, a.text, b.text);
    return SL_FAIL(err, INTERNAL, "join %u of %s: %s has %d rows of %d, %s has %d of %d", n,
                   mine->c->op, a.text, mine->n_row, mine->n, b.text, theirs.n_row, theirs.n);
}

/* Rows of a piece of n_row, of which the widest part fits. */
static int piece_rows(const dist *d, int n_row, int64_t widest)
{
    if (!d->half || widest == 0) return n_row;
    int64_t n = (int64_t)(d->half / sizeof(float)) / widest;
    return (int)BASE_MIN(n, n_row);
}

/* The ranks fail: no row of n columns fits. true. */
static bool too_wide(dist *d, unsigned n_piece, int64_t n)
{
    sl_err why = {0};
    if (dist_status(d, NULL)) return true;
    (void)SL_FAIL(&why, INTERNAL, "join %u: rows of %lld columns do not fit into %zu bytes",
                  n_piece + 1, (long long)n, d->half);
    dist_fail(d, &why);
    return true;
}

int dist_join_begin(dist *d, const struct dist_circle *c, int n_row, int64_t widest)
{
    int per = piece_rows(d, n_row, widest);
    if (dist_status(d, NULL) || (n_row && per < 1 && too_wide(d, c->n_piece, widest))) return 0;
    d->count.n_join++;
    return BASE_MAX(per, 1);
}

int dist_most_of(const int32_t *v, int n)
{
    int most = 0;
    for (int r = 0; r < n; r++)
        most = BASE_MAX(most, v[r]);
    return most;
}

void dist_took(dist *d, int rank, uint64_t bytes)
{
    if (rank == d->rank) return;
    d->count.bytes += bytes;
    if (!dist_here(d, rank)) d->count.net += bytes;
}

static bool pick_piece(dist *d, const struct dist_pick *k, int row0, int n_row)
{
    size_t row = (size_t)k->n * sizeof(float);
    int seen[DIST_RANK_MAX] = {0};
    const struct dist_piece p = {.c = dist_circle_of(d, DIST_TP),
                                 .x = k->x + (int64_t)row0 * k->n,
                                 .n_row = n_row,
                                 .n = k->n,
                                 .of = k->of + row0};
    if (!d->ops->exchange(d, &p)) return false;
    for (int i = 0; i < n_row; i++) {
        int r = p.c->first + p.of[i], at = d->packed ? seen[r]++ : i;
        memcpy(k->y + (int64_t)(row0 + i) * k->n, d->from[r] + (int64_t)at * k->n, row);
        dist_took(d, r, row);
    }
    return true;
}

void dist_pick(dist *d, const struct dist_pick *k)
{
    int per = dist_join_begin(d, dist_circle_of(d, DIST_TP), k->n_row, k->n);
    for (int row0 = 0; per && row0 < k->n_row; row0 += per)
        if (!pick_piece(d, k, row0, BASE_MIN(per, k->n_row - row0))) return;
}

struct turn_job {
    const dist *d;
    const struct dist_circle *c;
    const struct dist_turn *t;
    const int32_t *n_of;       /* of the piece */
    int64_t to[DIST_RANK_MAX]; /* rows of y where each rank's go */
};

static void turn_rows(void *arg, int worker, int n_worker)
{
    const struct turn_job *j = arg;
    const struct dist_turn *t = j->t;
    const dist *d = j->d;
    int me = d->rank - j->c->first;
    int64_t n = t->part[me], ld = d->cut ? n : t->n, at = d->cut ? 0 : dist_part_begin(t->part, me);
    for (int r = 0; r < j->c->n; r++) {
        const float *x = d->from[j->c->first + r] + at;
        int64_t begin = (int64_t)j->n_of[r] * worker / n_worker,
                end = (int64_t)j->n_of[r] * (worker + 1) / n_worker;
        for (int64_t i = begin; i < end; i++)
            memcpy(t->y + (j->to[r] + i) * n, x + i * ld, (size_t)n * sizeof *x);
    }
}

/* Rows [row0, row0 + per) of every rank that has so many. */
static bool turn_piece(dist *d, const struct dist_turn *t, int row0, int per)
{
    int32_t n_of[DIST_RANK_MAX], n_row = 0;
    struct dist_circle *c = dist_circle_of(d, DIST_TP);
    struct turn_job j = {.d = d, .c = c, .t = t, .n_of = n_of};
    int64_t at = 0;
    for (int r = 0; r < c->n; r++) {
        n_of[r] = BASE_MIN(BASE_MAX(t->n_of[r] - row0, 0), per);
        n_row += n_of[r];
        j.to[r] = at + row0;
        at += t->n_of[r];
    }
    const struct dist_piece p = {.c = c,
                                 .x = t->x + (int64_t)row0 * t->n,
                                 .n_row = n_row,
                                 .n = t->n,
                                 .n_of = n_of,
                                 .part = t->part};
    if (!d->ops->exchange(d, &p)) return false;
    uint64_t row = (uint64_t)t->part[d->rank - c->first] * sizeof(float);
    if (t->run && (uint64_t)n_row * row > DIST_ALONE_BYTES)
        t->run(t->user, turn_rows, &j);
    else
        turn_rows(&j, 0, 1);
    for (int r = 0; r < c->n; r++)
        dist_took(d, c->first + r, (uint64_t)n_of[r] * row);
    return true;
}

void dist_turn(dist *d, const struct dist_turn *t)
{
    const struct dist_circle *c = dist_circle_of(d, DIST_TP);
    int most = dist_most_of(t->n_of, c->n), per = dist_join_begin(d, c, most, t->n);
    for (int row0 = 0; per && row0 < most; row0 += per)
        if (!turn_piece(d, t, row0, per)) return;
}

/* ---- from stage to stage ---- */

sl_status dist_misgiven(const dist *d, int giver, struct dist_size theirs, struct dist_size mine,
                        sl_err *err)
{
    struct dist_name a = dist_name_of(d, giver), b = dist_name_of(d, d->rank);
    return SL_FAIL(err, INTERNAL, "%s gives %d rows of %d, %s takes %d of %d", a.text, theirs.n_row,
                   theirs.n, b.text, mine.n_row, mine.n);
}

/* Rows by pieces; false: the ranks have failed. */
static bool pass(dist *d, bool (*piece)(dist *d, const struct dist_rows *p), float *x, int n_row,
                 int n)
{
    int per = piece_rows(d, n_row, n);
    if (dist_status(d, NULL) || (n_row && per < 1 && too_wide(d, d->n_given, n))) return false;
    for (int row0 = 0; row0 < n_row; row0 += per)
        if (!piece(d, &(struct dist_rows){x + (int64_t)row0 * n, BASE_MIN(per, n_row - row0), n}))
            return false;
    return true;
}

void dist_give(dist *d, const float *x, int n_row, int n)
{
    ASSERT(dist_taker(d) >= 0);
    float *own = (float *)(uintptr_t)x; /* it is only read */
    if (pass(d, d->ops->give, own, n_row, n)) (void)d->ops->given(d);
}

void dist_take(dist *d, float *y, int n_row, int n)
{
    ASSERT(dist_giver(d) >= 0);
    if (pass(d, d->ops->take, y, n_row, n))
        dist_took(d, dist_giver(d), (uint64_t)n_row * (uint64_t)n * sizeof(float));
}

void dist_note(dist *d, uint64_t v)
{
    d->count.note = v;
}

struct dist_count dist_counts(const dist *d, int rank)
{
    return d->ops->counts(d, rank);
}

/* ---- failures ---- */

void dist_fail(dist *d, const sl_err *why)
{
    d->ops->fail(d, why);
}

sl_status dist_status(const dist *d, sl_err *err)
{
    return d->ops ? d->ops->status(d, err) : SL_OK;
}
