/* SPDX-License-Identifier: Apache-2.0 */
/* Whole rows between ranks that have as many as they like: all rows to all, or each to one. */
#include <string.h>

#include "base/clock.h"
#include "dist/dist_internal.h"

#define LOOK_NS 20000 /* between two looks at what is on its way */

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

/* What a piece of a gather needs until it is over. */
struct gather_room {
    int32_t n_of[DIST_RANK_MAX];
    struct dist_strip strip[DIST_STRIPS];
};

/* Rows that each rank gives, into n_all; the most of one. */
static int rows_given(const struct dist_swap *s, int n, int32_t *n_all)
{
    for (int r = 0; r < n; r++) {
        n_all[r] = 0;
        for (int q = 0; q < n; q++)
            n_all[r] += s->count[r * n + q];
    }
    return dist_most_of(n_all, n);
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

/* A piece of a gather: rows [row0, row0 + per) of every rank that has so many. */
static struct dist_piece piece_of_gather(dist *d, const struct dist_gather *g, int row0, int per,
                                         struct gather_room *room)
{
    struct dist_circle *c = dist_circle_of(d, g->of);
    struct dist_piece p = {.c = c, .n = words_of(g), .n_of = room->n_of, .home = g->home};
    strips_at(g, row0, room->strip);
    p.strip = room->strip;
    p.n_strip = g->n_strip;
    if (!g->n_strip) p.x = g->x + (int64_t)row0 * g->n;
    p.n_row = rows_at(c, g->n_of, row0, per, room->n_of);
    return p;
}

/* What has come of a piece that begins with row0. */
static void take_gathered(dist *d, const struct dist_gather *g, const struct dist_piece *p,
                          int row0)
{
    const struct dist_circle *c = p->c;
    struct rows_job j = {.n_rank = c->n, .n = g->n};
    struct strips_job s = {.d = d, .c = c, .g = g, .n_of = p->n_of, .row0 = row0};
    int64_t at = row0;
    if (dist_not_mine(d, p)) return;
    for (int r = 0; r < c->n; r++, at += g->n_of[r - 1]) {
        s.at[r] = at;
        if (g->n_strip) continue;
        j.to[r] = g->y + at * g->n;
        j.from[r] = d->from[c->first + r];
        j.n_of[r] = p->n_of[r];
    }
    if (g->n_strip)
        run_strips(d, &s, p->n_row);
    else
        run_copies(d, &j, c->first, &(struct dist_swap){.run = g->run, .user = g->user});
}

static int gather_begins(dist *d, const struct dist_gather *g, int *most)
{
    const struct dist_circle *c = dist_circle_of(d, g->of);
    ASSERT(g->n_strip <= DIST_STRIPS);
    *most = dist_most_of(g->n_of, c->n);
    return dist_join_begin(d, c, *most, words_of(g));
}

/* Pieces from row0 on. */
static void gather_from(dist *d, const struct dist_gather *g, int row0, int per, int most)
{
    for (; per && row0 < most; row0 += per) {
        struct gather_room room;
        struct dist_piece p = piece_of_gather(d, g, row0, per, &room);
        if (!d->ops->exchange(d, &p)) return;
        take_gathered(d, g, &p, row0);
    }
}

void dist_gather(dist *d, const struct dist_gather *g)
{
    int most, per = gather_begins(d, g, &most);
    gather_from(d, g, 0, per, most);
}

/* A piece of a swap: n_of: room. */
static struct dist_piece piece_of_swap(dist *d, const struct dist_swap *s, int row0, int per,
                                       int32_t *n_of)
{
    struct dist_circle *c = dist_circle_of(d, s->of);
    int32_t n_all[DIST_RANK_MAX];
    struct dist_piece p = {.c = c,
                           .x = s->x + (int64_t)row0 * s->n,
                           .n = s->n,
                           .n_of = n_of,
                           .count = s->count,
                           .row0 = row0};
    (void)rows_given(s, c->n, n_all);
    p.n_row = rows_at(c, n_all, row0, per, n_of);
    return p;
}

static void take_swapped(dist *d, const struct dist_swap *s, const struct dist_piece *p)
{
    int me = d->rank - p->c->first, n = p->c->n;
    struct rows_job j = {.n_rank = n, .n = s->n};
    int64_t at = 0;
    for (int r = 0; r < n; r++) {
        struct dist_range of = dist_range_for(p, r, me);
        int64_t before = 0; /* rows of rank r that go to ranks before this one */
        for (int q = 0; q < me; q++)
            before += s->count[r * n + q];
        j.n_of[r] = of.n;
        j.to[r] = s->y + (at + BASE_MAX(p->row0 - before, 0)) * s->n;
        j.from[r] = d->from[p->c->first + r] + (d->cut ? 0 : (int64_t)of.begin * s->n);
        at += s->count[r * n + me];
    }
    run_copies(d, &j, p->c->first, s);
}

static int swap_begins(dist *d, const struct dist_swap *s, int *most)
{
    int32_t n_all[DIST_RANK_MAX];
    const struct dist_circle *c = dist_circle_of(d, s->of);
    *most = rows_given(s, c->n, n_all);
    return dist_join_begin(d, c, *most, s->n);
}

static void swap_from(dist *d, const struct dist_swap *s, int row0, int per, int most)
{
    int32_t n_of[DIST_RANK_MAX];
    for (; per && row0 < most; row0 += per) {
        struct dist_piece p = piece_of_swap(d, s, row0, per, n_of);
        if (!d->ops->exchange(d, &p)) return;
        take_swapped(d, s, &p);
    }
}

void dist_swap(dist *d, const struct dist_swap *s)
{
    int most, per = swap_begins(d, s, &most);
    swap_from(d, s, 0, per, most);
}

/* ---- in parts ---- */

static struct dist_away *away_of(dist *d, unsigned n)
{
    return &d->away[n % DIST_AWAY_MAX];
}

/* May one more be begun? */
static void check_away(const dist *d)
{
    int n = (int)(d->n_begun - d->n_ended);
    ASSERT(n < (d->ops->begin ? d->n_away : DIST_AWAY_MAX));
}

/* Where pieces can be begun the first one is. */
static void begin(dist *d, const struct dist_away *a, int most, const struct dist_piece *p)
{
    unsigned n = d->n_begun++;
    if (d->ops->begin && a->per && most) d->ops->begin(d, p, (int)(n % (unsigned)d->n_away));
}

void dist_gather_begin(dist *d, const struct dist_gather *g)
{
    struct dist_away *a = away_of(d, d->n_begun);
    struct gather_room room;
    int most;
    ASSERT(!g->home && !g->n_strip);
    check_away(d);
    *a = (struct dist_away){.gather = *g, .per = gather_begins(d, g, &most)};
    struct dist_piece p = piece_of_gather(d, g, 0, a->per, &room);
    begin(d, a, most, &p);
}

void dist_swap_begin(dist *d, const struct dist_swap *s)
{
    struct dist_away *a = away_of(d, d->n_begun);
    int32_t n_of[DIST_RANK_MAX];
    int most;
    check_away(d);
    *a = (struct dist_away){.is_swap = true, .swap = *s, .per = swap_begins(d, s, &most)};
    struct dist_piece p = piece_of_swap(d, s, 0, a->per, n_of);
    begin(d, a, most, &p);
}

/* The first piece of what was begun comes; false: the ranks have failed. */
static bool first_piece(dist *d, const struct dist_piece *p)
{
    if (!d->ops->end) return d->ops->exchange(d, p);
    return d->ops->end(d, p, (int)(d->n_ended % (unsigned)d->n_away));
}

static void end_gather(dist *d, const struct dist_gather *g, int per)
{
    struct gather_room room;
    int most = dist_most_of(g->n_of, dist_circle_of(d, g->of)->n);
    struct dist_piece p = piece_of_gather(d, g, 0, per, &room);
    if (!most || !first_piece(d, &p)) return;
    take_gathered(d, g, &p, 0);
    gather_from(d, g, per, per, most);
}

static void end_swap(dist *d, const struct dist_swap *s, int per)
{
    int32_t n_of[DIST_RANK_MAX], n_all[DIST_RANK_MAX];
    int most = rows_given(s, dist_circle_of(d, s->of)->n, n_all);
    struct dist_piece p = piece_of_swap(d, s, 0, per, n_of);
    if (!most || !first_piece(d, &p)) return;
    take_swapped(d, s, &p);
    swap_from(d, s, per, per, most);
}

void dist_end(dist *d)
{
    const struct dist_away *a = away_of(d, d->n_ended);
    ASSERT(d->n_ended != d->n_begun);
    if (a->per && a->is_swap)
        end_swap(d, &a->swap, a->per);
    else if (a->per)
        end_gather(d, &a->gather, a->per);
    d->n_ended++;
}

void dist_look(dist *d)
{
    if (d->n_ended == d->n_begun || !d->ops->look) return;
    int64_t now = clock_now_ns();
    if (now - d->looked_ns < LOOK_NS) return;
    d->looked_ns = now;
    d->ops->look(d);
}
