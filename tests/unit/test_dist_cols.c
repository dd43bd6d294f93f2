/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of rows that lie apart from each other, as those of prepared values do: any words, copied
 * from elsewhere or in place, for all, for rank 0, or each row for one rank, taken row by row, too,
 * alone or by several workers; of threads, and in pieces through slots. */
#include <stdatomic.h>
#include <string.h>

#include "base/rng.h"
#include "dist_ranks.h"

#define ROUNDS 240
#define WIDE 640 /* columns at most; with ROWS of them several workers copy */
#define GAP 5    /* words between two rows at most */
#define ROWS 40
#define UNTOUCHED 0xa5a5a5a5u

struct job {
    struct ranks all; /* first: the job of a struct ranks is around it */
    atomic_int n_bad, n_run;
    float room[RANKS_MAX][ROWS * (WIDE + GAP)];
};
struct shape {
    int n_row, n, at;
    int32_t part[RANKS_MAX];
    int64_t ldx, ldy; /* 0 as in struct dist_cols */
    bool in_place, home;
};

/* Words of any kind: signalling NaNs, which a move through a register may change, among them. */
static uint32_t word(int round, int row, int col)
{
    uint32_t w = (uint32_t)round * 2654435761u + (uint32_t)row * 40503u + (uint32_t)col * 69069u;
    return col % 7 == 3 ? 0x7f800000u | (w & 0x3fffff) | 1 : w;
}

/* The same on all ranks but for `at`. */
static struct shape shape_of(int round, int n_rank, int rank)
{
    uint64_t rng = (uint64_t)round * 977 + 3;
    struct shape s = {.n_row = 1 + (int)(rng_next(&rng) % ROWS), .home = round % 3 == 1};
    int most = 0, room = round % 8 == 0 ? WIDE / n_rank : 1 + (int)(rng_next(&rng) % 24);
    if (round % 8 == 0) s.n_row = ROWS;
    for (int r = 0; r < n_rank; r++) {
        s.part[r] = round % 8 == 0 ? room : (int32_t)(rng_next(&rng) % (uint64_t)(room + 1));
        s.n += s.part[r];
        if (s.part[r] > most) most = s.part[r];
        if (r < rank) s.at += s.part[r];
    }
    if (!s.n) s.n = s.part[n_rank - 1] = most = 1;
    int kind = (int)(rng_next(&rng) % 4), gap = (int)(rng_next(&rng) % (GAP + 1));
    s.in_place = kind < 2;
    if (s.in_place)
        s.ldx = s.ldy = s.n + gap;
    else if (kind == 2)
        s.ldx = most + gap; /* y's rows without gaps */
    else
        s.ldy = s.n + gap; /* x's */
    return s;
}

static void by_three(void *user, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    struct job *j = user;
    atomic_fetch_add(&j->n_run, 1);
    for (int w = 2; w >= 0; w--)
        fn(arg, w, 3);
}

static void put(float *to, uint32_t w)
{
    memcpy(to, &w, sizeof w);
}

static int differs(const float *got, uint32_t w)
{
    return memcmp(got, &w, sizeof w) != 0;
}

/* Rows that go to one rank each. */
struct each {
    const struct shape *s;
    const float *x;
    float *y;
    int round;
};
struct taken {
    const struct each *e;
    int row0, n_rank; /* of all rows the first that comes here */
    atomic_int n, n_bad;
};

static void take_row(void *arg, int row, int worker, const float *const *cols)
{
    struct taken *t = arg;
    const struct shape *s = t->e->s;
    int at = 0, n_bad = worker < 0 || worker > 2;
    for (int r = 0; r < t->n_rank; at += s->part[r++])
        for (int k = 0; k < s->part[r]; k++)
            n_bad += differs(cols[r] + k, word(t->e->round, t->row0 + row, at + k));
    atomic_fetch_add(&t->n, 1);
    if (n_bad) atomic_fetch_add(&t->n_bad, 1);
}

static void each_round(struct job *j, int rank, const struct each *e)
{
    const struct shape *s = e->s;
    dist *end = j->all.end[rank];
    uint64_t bytes = dist_counts(end, rank).bytes;
    int32_t n_of[RANKS_MAX];
    int left = s->n_row, row0 = 0, n_bad = 0;
    bool takes = e->round % 2 == 0;
    for (int r = 0; r < j->all.n; left -= n_of[r++]) {
        n_of[r] = r == j->all.n - 1 ? left : BASE_MIN(left, (e->round + 7 * r) % 11);
        row0 += r < rank ? n_of[r] : 0;
    }
    struct taken t = {.e = e, .row0 = row0, .n_rank = j->all.n};
    /* in place rows of all may not be written where others may still read them */
    float *y = s->in_place ? j->room[rank] : e->y;
    int64_t ldy = s->ldy ? s->ldy : s->n;
    dist_cols(end, &(struct dist_cols){.x = e->x,
                                       .y = takes ? NULL : y,
                                       .ldx = s->ldx,
                                       .ldy = s->ldy,
                                       .n_row = s->n_row,
                                       .n = s->n,
                                       .part = s->part,
                                       .n_of = n_of,
                                       .run = by_three,
                                       .user = j,
                                       .take = takes ? take_row : NULL,
                                       .arg = &t});
    if (dist_status(end, NULL)) return;
    bytes = dist_counts(end, rank).bytes - bytes;
    n_bad += bytes != (uint64_t)n_of[rank] * (uint64_t)(s->n - s->part[rank]) * sizeof *y;
    if (takes) n_bad += atomic_load(&t.n) != n_of[rank] || atomic_load(&t.n_bad);
    for (int i = 0; i < n_of[rank] && !takes; i++)
        for (int k = 0; k < s->n; k++)
            n_bad += differs(y + i * ldy + k, word(e->round, row0 + i, k));
    if (n_bad) atomic_fetch_add(&j->n_bad, 1);
}

static void one_round(struct job *j, int rank, int round)
{
    /* by turns, of which one is for home alone: a join may be read until the next one that is for
     * all is over */
    static _Thread_local float xs[3][ROWS * (WIDE + GAP)], ys[3][ROWS * (WIDE + GAP)];
    const struct shape s = shape_of(round, j->all.n, rank);
    int mine = s.part[rank], n_bad = 0;
    int64_t ldx = s.ldx ? s.ldx : mine, ldy = s.ldy ? s.ldy : s.n;
    float *y = ys[round % 3], *x = s.in_place ? y + s.at : xs[round % 3];
    for (int i = 0; i < ROWS * (WIDE + GAP); i++) {
        put(ys[round % 3] + i, UNTOUCHED);
        put(xs[round % 3] + i, UNTOUCHED);
    }
    for (int i = 0; i < s.n_row; i++)
        for (int k = 0; k < mine; k++)
            put(x + i * ldx + k, word(round, i, s.at + k));
    dist *end = j->all.end[rank];
    uint64_t bytes = dist_counts(end, rank).bytes;
    size_t one = (size_t)(s.n + RANKS_MAX * 24) * sizeof *x; /* a row for each rank, at most */
    if (round % 3 == 2 && (!j->all.half || one <= j->all.half)) {
        each_round(j, rank, &(struct each){&s, x, y, round});
        return;
    }
    dist_cols(end, &(struct dist_cols){.x = x,
                                       .y = y,
                                       .ldx = s.ldx,
                                       .ldy = s.ldy,
                                       .n_row = s.n_row,
                                       .n = s.n,
                                       .part = s.part,
                                       .home = s.home,
                                       .run = by_three,
                                       .user = j});
    if (dist_status(end, NULL)) return;
    bytes = dist_counts(end, rank).bytes - bytes;
    if (s.home && rank) return;
    n_bad += bytes != (uint64_t)s.n_row * (uint64_t)(s.n - mine) * sizeof *y;
    for (int64_t i = 0; i < ROWS * (WIDE + GAP); i++) {
        int row = (int)(i / ldy), col = (int)(i % ldy);
        bool inside = row < s.n_row && col < s.n;
        n_bad += differs(y + i, inside ? word(round, row, col) : UNTOUCHED);
    }
    if (n_bad) atomic_fetch_add(&j->n_bad, 1);
}

static void run_rank(struct ranks *all, int rank)
{
    for (int round = 0; round < ROUNDS && !dist_status(all->end[rank], NULL); round++)
        one_round((struct job *)(void *)all, rank, round);
}

static void check(int n, size_t half)
{
    sl_err err = {0};
    static struct job j;
    j.all = (struct ranks){.n = n, .half = half, .run = run_rank};
    atomic_store(&j.n_bad, 0);
    ranks_open(&j.all, &(struct dist_opts){.crowded = true});
    ASSERT_OK(ranks_run(&j.all, &err));
    ranks_close(&j.all);
    assert_int_equal(atomic_load(&j.n_bad), 0);
    if (!half) assert_true(atomic_load(&j.n_run) > 0);
}

TEST(dist_columns_lie_apart)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        check(n, 0);
}

/* A slot holds a row of a rank's columns, a few, and all of them. */
TEST(dist_columns_lie_apart_in_slots)
{
    check(2, WIDE / 2 * sizeof(float));
    check(3, 2048);
    check(6, 4096);
    check(4, ROWS * WIDE * sizeof(float));
}

/* A measurement counts for nothing, and what comes after it is right. */
static void measure_rank(struct ranks *all, int rank)
{
    struct job *j = (struct job *)(void *)all;
    dist *d = all->end[rank];
    struct dist_link link = {0};
    sl_err err;
    one_round(j, rank, 0);
    struct dist_count was = dist_counts(d, rank);
    for (int i = 0; i < 2; i++)
        if (dist_measure(d, &link, &err) || !(link.us > 0) || !(link.gbps > 0))
            atomic_fetch_add(&j->n_bad, 1);
    struct dist_count is = dist_counts(d, rank);
    if (was.n_join != is.n_join || was.bytes != is.bytes || is.net) atomic_fetch_add(&j->n_bad, 1);
    one_round(j, rank, 3);
}

TEST(dist_links_are_measured)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        sl_err err = {0};
        struct job j = {.all = {.n = n, .half = n % 2 ? 1 << 14 : 0, .run = measure_rank}};
        ranks_open(&j.all, &(struct dist_opts){.crowded = true});
        ASSERT_OK(ranks_run(&j.all, &err));
        ranks_close(&j.all);
        assert_int_equal(atomic_load(&j.n_bad), 0);
    }
}
