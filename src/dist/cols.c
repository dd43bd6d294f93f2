/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of rows, of which each rank has some: whole rows on all ranks, or each on one of them. */
#include <string.h>

#include "dist/dist_internal.h"

struct job {
    const dist *d;
    const struct dist_circle *who;
    const struct dist_cols *c;
    const int32_t *to, *at; /* of the piece; NULL: rows go to all */
    int row0, n_row;        /* rows that come here */
};

/* A rank's columns of the first row that comes here, and from one to the next. */
struct cols {
    const float *p;
    int64_t ld;
};

static struct cols cols_of(const struct job *j, int r)
{
    const dist *d = j->d;
    struct cols x = {d->from[j->who->first + r], j->c->part[r]};
    int me = d->rank - j->who->first;
    if (!d->packed) x.ld = j->c->ldx ? j->c->ldx : x.ld;
    if (!j->to || d->cut) return x;
    x.p += (d->packed ? dist_part_begin(j->to, me) : j->at[me]) * x.ld;
    return x;
}

static void take_rows(const struct job *j, int worker, int begin, int end)
{
    const float *cols[DIST_RANK_MAX];
    for (int i = begin; i < end; i++) {
        for (int r = 0; r < j->who->n; r++) {
            struct cols x = cols_of(j, r);
            cols[r] = x.p + i * x.ld;
        }
        j->c->take(j->c->arg, j->row0 + i, worker, cols);
    }
}

static void copy_rows(void *arg, int worker, int n_worker)
{
    const struct job *j = arg;
    const struct dist_cols *c = j->c;
    int64_t begin = (int64_t)j->n_row * worker / n_worker,
            end = (int64_t)j->n_row * (worker + 1) / n_worker, at = 0;
    int64_t ldy = c->ldy ? c->ldy : c->n;
    if (c->take) {
        take_rows(j, worker, (int)begin, (int)end);
        return;
    }
    for (int r = 0; r < j->who->n; r++) {
        struct cols x = cols_of(j, r);
        float *y = c->y + j->row0 * ldy + at;
        int64_t n = c->part[r];
        at += n;
        if (x.p == y) continue; /* they are where they go */
        for (int64_t i = begin; i < end; i++)
            memcpy(y + i * ldy, x.p + i * x.ld, (size_t)n * sizeof *y);
    }
}

/* Rows come in: of a piece the n_row from row0 on of those that come to this rank at all. */
static void run_copies(dist *d, struct job *j)
{
    const struct dist_cols *c = j->c;
    uint64_t bytes = (uint64_t)j->n_row * (uint64_t)c->n * sizeof(float);
    if (c->run && bytes > DIST_ALONE_BYTES)
        c->run(c->user, copy_rows, j);
    else
        copy_rows(j, 0, 1);
    for (int r = 0; r < j->who->n; r++)
        dist_took(d, j->who->first + r, (uint64_t)j->n_row * (uint64_t)c->part[r] * sizeof(float));
}

static bool all_piece(dist *d, const struct dist_cols *c, int row0, int n_row)
{
    struct dist_circle *who = dist_circle_of(d, c->of);
    int64_t ldx = c->ldx ? c->ldx : c->part[d->rank - who->first];
    const struct dist_piece p = {.c = who,
                                 .x = c->x + row0 * ldx,
                                 .n_row = n_row,
                                 .n = c->n,
                                 .ldx = ldx,
                                 .part = c->part,
                                 .home = c->home};
    if (!d->ops->exchange(d, &p)) return false;
    struct job j = {.d = d, .who = who, .c = c, .row0 = row0, .n_row = n_row};
    if (!dist_not_mine(d, &p)) run_copies(d, &j);
    return true;
}

/* Rows [row0, row0 + per) of those of every rank that has so many. */
static bool each_piece(dist *d, const struct dist_cols *c, int row0, int per)
{
    struct dist_circle *who = dist_circle_of(d, c->of);
    int32_t to[DIST_RANK_MAX], at[DIST_RANK_MAX], begin = row0;
    int me = d->rank - who->first;
    struct dist_piece p = {.c = who,
                           .x = c->x,
                           .n = c->n,
                           .ldx = c->ldx ? c->ldx : c->part[me],
                           .part = c->part,
                           .to = to,
                           .at = at};
    for (int r = 0; r < who->n; r++) {
        to[r] = BASE_MIN(BASE_MAX(c->n_of[r] - row0, 0), per);
        at[r] = begin;
        begin += c->n_of[r];
        p.n_row += to[r];
    }
    if (!d->ops->exchange(d, &p)) return false;
    struct job j = {.d = d, .who = who, .c = c, .to = to, .at = at, .row0 = row0, .n_row = to[me]};
    run_copies(d, &j);
    return true;
}

static void to_each(dist *d, const struct dist_cols *c)
{
    const struct dist_circle *who = dist_circle_of(d, c->of);
    int most = dist_most_of(c->n_of, who->n);
    int64_t widest = (int64_t)who->n * dist_most_of(c->part, who->n); /* a row for each */
    int per = dist_join_begin(d, who, most, widest);
    for (int row0 = 0; per && row0 < most; row0 += per)
        if (!each_piece(d, c, row0, per)) return;
}

void dist_cols(dist *d, const struct dist_cols *c)
{
    const struct dist_circle *who = dist_circle_of(d, c->of);
    ASSERT(!c->home || (!c->take && !c->n_of));
    if (c->n_of) {
        to_each(d, c);
        return;
    }
    int per = dist_join_begin(d, who, c->n_row, dist_most_of(c->part, who->n));
    for (int row0 = 0; per && row0 < c->n_row; row0 += per)
        if (!all_piece(d, c, row0, BASE_MIN(per, c->n_row - row0))) return;
}
