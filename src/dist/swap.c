/* SPDX-License-Identifier: Apache-2.0 */
/* Whole rows between ranks that have as many as they like: all rows to all, or each to one. */
#include <string.h>

#include "dist/dist_internal.h"

struct dist_range dist_range_for(const struct dist_piece *p, int rank, int to)
{
    const int32_t *count = p->count + (int64_t)rank * p->c->n;
    int begin = 0, n_here = p->n_of[rank];
    for (int r = 0; r < to; r++)
        begin += count[r];
    int end = begin + count[to] - p->row0;
    begin = BASE_MIN(BASE_MAX(begin - p->row0, 0), n_here);
    end = BASE_MIN(BASE_MAX(end, 0), n_here);
    return (struct dist_range){begin, end - begin};
}

struct rows_job {
    float *to[DIST_RANK_MAX]; /* where each rank's go */
    const float *from[DIST_RANK_MAX];
    int n_of[DIST_RANK_MAX];
    int n_rank, n;
};

static void copy_rows(void *arg, int worker, int n_worker)
{
    const struct rows_job *j = arg;
    for (int r = 0; r < j->n_rank; r++) {
        int64_t begin = (int64_t)j->n_of[r] * worker / n_worker,
                end = (int64_t)j->n_of[r] * (worker + 1) / n_worker, n = j->n;
        if (end > begin && j->to[r] != j->from[r])
            memcpy(j->to[r] + begin * n, j->from[r] + begin * n,
                   (size_t)(end - begin) * (size_t)n * sizeof(float));
    }
}

/* first: the rank whose rows are the first */
static void run_copies(dist *d, const struct rows_job *j, int first, const struct dist_swap *s)
{
    int64_t n_row = 0;
    for (int r = 0; r < j->n_rank; r++)
        n_row += j->n_of[r];
    uint64_t row = (uint64_t)j->n * sizeof(float);
    if (s->run && (uint64_t)n_row * row > DIST_ALONE_BYTES)
        s->run(s->user, copy_rows, (void *)(uintptr_t)j);
    else
        copy_rows((void *)(uintptr_t)j, 0, 1);
    for (int r = 0; r < j->n_rank; r++)
        dist_took(d, first + r, (uint64_t)j->n_of[r] * row);
}

/* Rows [row0, row0 + per) of every rank, as far as it has them: how many, into n_of; the sum. */
static int rows_at(const struct dist_circle *c, const int32_t *n_all, int row0, int per,
                   int32_t *n_of)
{
    int n_row = 0;
    for (int r = 0; r < c->n; r++) {
        n_of[r] = BASE_MIN(BASE_MAX(n_all[r] - row0, 0), per);
        n_row += n_of[r];
    }
    return n_row;
}

/* Row 0 of the strips of a piece, and where this rank's go. */
static void strips_at(const struct dist_gather *g, int row0, struct dist_strip *to)
{
    for (int k = 0; k < g->n_strip; k++) {
        to[k] = g->strip[k];
        to[k].x = (const float *)to[k].x + row0 * dist_strip_ld(&to[k]);
    }
}

static int words_of(const struct dist_gather *g)
{
    int n = g->n_strip ? 0 : g->n;
    for (int k = 0; k < g->n_strip; k++)
        n += g->strip[k].n;
    return n;
}

struct strips_job {
    const dist *d;
    const struct dist_circle *c;
    const struct dist_gather *g;
    const int32_t *n_of; /* of the piece */
    int row0;
    int64_t at[DIST_RANK_MAX]; /* rows of y where each rank's go */
};

/* A rank's rows of strip k, which lies behind `before` words of the others where it is packed. */
static const float *strip_of(const struct strips_job *j, int r, int k, int64_t before)
{
    const dist *d = j->d;
    const struct dist_strip *s = &j->g->strip[k];
    int rank = j->c->first + r;
    if (rank == d->rank) return (const float *)s->x + j->row0 * dist_strip_ld(s);
    return d->packed ? d->from[rank] + before : d->strip[rank][k];
}

/* Of rows that lie where their rank has them the groups that the strip before lists. */
static void copy_listed(const struct strips_job *j, int r, int k, int begin, int end)
{
    const struct dist_strip *s = &j->g->strip[k], *lists = s - 1;
    const float *x = strip_of(j, r, k, 0), *list = strip_of(j, r, k - 1, 0);
    float *y = (float *)s->y + j->at[r] * dist_strip_ld(s);
    for (int64_t i = begin; i < end; i++) {
        const int32_t *l = (const int32_t *)(const void *)(list + i * dist_strip_ld(lists));
        for (int g = 1; g <= *l; g++) {
            int64_t at = i * dist_strip_ld(s) + (int64_t)l[g] * s->group;
            memcpy(y + at, x + at, (size_t)s->group * sizeof *y);
        }
    }
}

static void copy_strips(void *arg, int worker, int n_worker)
{
    const struct strips_job *j = arg;
    const dist *d = j->d;
    for (int r = 0; r < j->c->n; r++) {
        int64_t n_row = j->n_of[r], begin = n_row * worker / n_worker,
                end = n_row * (worker + 1) / n_worker, before = 0;
        for (int k = 0; k < j->g->n_strip; k++) {
            const struct dist_strip *s = &j->g->strip[k];
            int64_t ld = dist_strip_ld(s), ldx = ld;
            const float *x = strip_of(j, r, k, before);
            float *y = (float *)s->y + j->at[r] * ld;
            if (d->packed && j->c->first + r != d->rank) ldx = s->n;
            before += n_row * s->n;
            if (x == y) continue; /* they are where they go */
            if (s->group && !d->packed) {
                copy_listed(j, r, k, (int)begin, (int)end);
                continue;
            }
            for (int64_t i = begin; i < end; i++)
                memcpy(y + i * ld, x + i * ldx, (size_t)s->n * sizeof *y);
        }
    }
}

static void run_strips(dist *d, struct strips_job *j, int64_t n_row)
{
    uint64_t row = (uint64_t)words_of(j->g) * sizeof(float);
    if (j->g->run && (uint64_t)n_row * row > DIST_ALONE_BYTES)
        j->g->run(j->g->user, copy_strips, j);
    else
        copy_strips(j, 0, 1);
    for (int r = 0; r < j->c->n; r++)
        dist_took(d, j->c->first + r, (uint64_t)j->n_of[r] * row);
}

static bool gather_piece(dist *d, const struct dist_gather *g, int row0, int per)
{
    struct dist_circle *c = dist_circle_of(d, g->of);
    int32_t n_of[DIST_RANK_MAX];
    struct dist_strip strip[DIST_STRIPS];
    struct rows_job j = {.n_rank = c->n, .n = g->n};
    struct strips_job s = {.d = d, .c = c, .g = g, .n_of = n_of, .row0 = row0};
    struct dist_piece p = {.c = c, .n = words_of(g), .n_of = n_of, .home = g->home};
    int64_t at = row0;
    strips_at(g, row0, strip);
    p.strip = strip;
    p.n_strip = g->n_strip;
    if (!g->n_strip) p.x = g->x + (int64_t)row0 * g->n;
    p.n_row = rows_at(c, g->n_of, row0, per, n_of);
    if (!d->ops->exchange(d, &p)) return false;
    if (dist_not_mine(d, &p)) return true;
    for (int r = 0; r < c->n; r++, at += g->n_of[r - 1]) {
        s.at[r] = at;
        if (g->n_strip) continue;
        j.to[r] = g->y + at * g->n;
        j.from[r] = d->from[c->first + r];
        j.n_of[r] = n_of[r];
    }
    if (g->n_strip)
        run_strips(d, &s, p.n_row);
    else
        run_copies(d, &j, c->first, &(struct dist_swap){.run = g->run, .user = g->user});
    return true;
}

void dist_gather(dist *d, const struct dist_gather *g)
{
    const struct dist_circle *c = dist_circle_of(d, g->of);
    ASSERT(g->n_strip <= DIST_STRIPS);
    int most = dist_most_of(g->n_of, c->n), per = dist_join_begin(d, c, most, words_of(g));
    for (int row0 = 0; per && row0 < most; row0 += per)
        if (!gather_piece(d, g, row0, per)) return;
}

static bool swap_piece(dist *d, const struct dist_swap *s, const int32_t *n_all, int row0, int per)
{
    struct dist_circle *c = dist_circle_of(d, s->of);
    int32_t n_of[DIST_RANK_MAX];
    int me = d->rank - c->first, n = c->n;
    struct rows_job j = {.n_rank = n, .n = s->n};
    struct dist_piece p = {.c = c,
                           .x = s->x + (int64_t)row0 * s->n,
                           .n = s->n,
                           .n_of = n_of,
                           .count = s->count,
                           .row0 = row0};
    int64_t at = 0;
    p.n_row = rows_at(c, n_all, row0, per, n_of);
    if (!d->ops->exchange(d, &p)) return false;
    for (int r = 0; r < n; r++) {
        struct dist_range of = dist_range_for(&p, r, me);
        int64_t before = 0; /* rows of rank r that go to ranks before this one */
        for (int q = 0; q < me; q++)
            before += s->count[r * n + q];
        j.n_of[r] = of.n;
        j.to[r] = s->y + (at + BASE_MAX(row0 - before, 0)) * s->n;
        j.from[r] = d->from[c->first + r] + (d->cut ? 0 : (int64_t)of.begin * s->n);
        at += s->count[r * n + me];
    }
    run_copies(d, &j, c->first, s);
    return true;
}

void dist_swap(dist *d, const struct dist_swap *s)
{
    int32_t n_all[DIST_RANK_MAX];
    const struct dist_circle *c = dist_circle_of(d, s->of);
    int n = c->n;
    for (int r = 0; r < n; r++) {
        n_all[r] = 0;
        for (int q = 0; q < n; q++)
            n_all[r] += s->count[r * n + q];
    }
    int most = dist_most_of(n_all, n), per = dist_join_begin(d, c, most, s->n);
    for (int row0 = 0; per && row0 < most; row0 += per)
        if (!swap_piece(d, s, n_all, row0, per)) return;
}
