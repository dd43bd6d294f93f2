/* SPDX-License-Identifier: Apache-2.0 */
/* Rows between ranks that have as many as they like: all to all, for rank 0 alone, and each to one
 * rank, or what each has in several places; at once, or begun and ended; of threads, and in pieces
 * through slots. */
#include <stdatomic.h>
#include <string.h>

#include "base/rng.h"
#include "dist_ranks.h"

#define ROUNDS 300
#define WIDE 29
#define ROWS 7

struct job {
    struct ranks all; /* first: the job of a struct ranks is around it */
    int odd_at;       /* rank 1 says in that round that a row more comes to it; -1 = none */
    atomic_int n_bad;
};

static void check(struct job *j, bool good)
{
    if (!good) atomic_fetch_add(&j->n_bad, 1);
}

static float value(int round, int from, int to, int row, int col)
{
    return (float)(round * 131 + from * 1000 + to * 100 + row * 10) + (float)col / 64;
}

static void gather_round(struct job *j, int rank, int round, float *x, bool home)
{
    static _Thread_local float y[RANKS_MAX * ROWS * WIDE];
    int32_t n_of[RANKS_MAX];
    int n = 0;
    for (int r = 0; r < j->all.n; r++)
        n_of[r] = (round * 3 + r * r) % ROWS;
    for (int i = 0; i < n_of[rank] * WIDE; i++)
        x[i] = value(round, rank, 0, i / WIDE, i % WIDE);
    memset(y, 0, sizeof y);
    uint64_t bytes = dist_counts(j->all.end[rank], rank).bytes;
    const struct dist_strip strip[] = {
        {x, y, 9, WIDE, 0}, {x + 20, y + 20, 9, WIDE, 0}, {x + 9, y + 9, 11, WIDE, 0}};
    bool apart = round % 4 == 1;
    dist_gather(j->all.end[rank], &(struct dist_gather){.x = apart ? NULL : x,
                                                        .y = apart ? NULL : y,
                                                        .n = apart ? 0 : WIDE,
                                                        .n_of = n_of,
                                                        .home = home,
                                                        .strip = strip,
                                                        .n_strip = apart ? 3 : 0});
    if (dist_status(j->all.end[rank], NULL) || (home && rank)) return;
    for (int r = 0; r < j->all.n; r++)
        for (int i = 0; i < n_of[r]; i++, n++)
            for (int k = 0; k < WIDE; k++)
                check(j, y[n * WIDE + k] == value(round, r, 0, i, k));
    bytes = dist_counts(j->all.end[rank], rank).bytes - bytes;
    check(j, bytes == (uint64_t)(n - n_of[rank]) * WIDE * sizeof *y);
}

#define GROUP 6
#define LIST (WIDE - 4 * GROUP)

/* Rows that begin with a list of which of their four groups matter. */
static void listed_round(struct job *j, int rank, int round, float *x)
{
    static _Thread_local float y[RANKS_MAX * ROWS * WIDE];
    int32_t n_of[RANKS_MAX], list[LIST] = {0};
    int n = 0;
    for (int r = 0; r < j->all.n; r++)
        n_of[r] = (round + r) % ROWS;
    for (int i = 0; i < n_of[rank]; i++) {
        list[0] = (i + rank) % 4;
        for (int g = 0; g < list[0]; g++)
            list[1 + g] = (g + i) % 4;
        memcpy(x + i * WIDE, list, sizeof list);
        for (int k = LIST; k < WIDE; k++)
            x[i * WIDE + k] = value(round, rank, 1, i, k);
    }
    memset(y, 0, sizeof y);
    const struct dist_strip strip[] = {{x, y, LIST, WIDE, 0},
                                       {x + LIST, y + LIST, 4 * GROUP, WIDE, GROUP}};
    dist_gather(j->all.end[rank],
                &(struct dist_gather){.n_of = n_of, .strip = strip, .n_strip = 2});
    if (dist_status(j->all.end[rank], NULL)) return;
    for (int r = 0; r < j->all.n; r++)
        for (int i = 0; i < n_of[r]; i++, n++)
            for (int k = LIST; k < WIDE; k++) {
                int at = ((k - LIST) / GROUP - i % 4 + 4) % 4;
                float want = value(round, r, 1, i, k), got = y[n * WIDE + k];
                check(j, got == (at < (i + r) % 4 || j->all.half ? want : 0));
            }
}

/* Two are on their way at the same time, and a third comes between: a swap is begun, then a gather;
 * rows of all are gathered at once; then the swap is over, and the gather. */
static void pair_round(struct job *j, int rank, int round, float *x)
{
    static _Thread_local float y[3][RANKS_MAX * ROWS * WIDE];
    dist *d = j->all.end[rank];
    int32_t count[RANKS_MAX * RANKS_MAX], n_of[RANKS_MAX];
    int n = 0, N = j->all.n;
    for (int i = 0; i < N * N; i++)
        count[i] = (round + i * i) % 3; /* 2 N rows of x at most, and then its own */
    for (int r = 0; r < N; r++)
        n_of[r] = (round + r) % 4;
    for (int q = 0; q < N; q++)
        for (int i = 0; i < count[rank * N + q]; i++, n++)
            for (int k = 0; k < WIDE; k++)
                x[n * WIDE + k] = value(round, rank, q, i, k);
    float *own = x + (int64_t)2 * N * WIDE;
    for (int i = 0; i < n_of[rank] * WIDE; i++)
        own[i] = value(round, rank, 0, i / WIDE, i % WIDE);
    const struct dist_swap s = {.x = x, .y = y[0], .n = WIDE, .count = count};
    struct dist_gather g = {.x = own, .y = y[1], .n = WIDE, .n_of = n_of};
    memset(y, 0, sizeof y);
    dist_swap_begin(d, &s);
    dist_gather_begin(d, &g);
    g.y = y[2];
    dist_look(d);
    dist_gather(d, &g);
    dist_end(d);
    dist_end(d);
    if (dist_status(d, NULL)) return;
    n = 0;
    for (int r = 0; r < N; r++)
        for (int i = 0; i < count[r * N + rank]; i++, n++)
            for (int k = 0; k < WIDE; k++)
                check(j, y[0][n * WIDE + k] == value(round, r, rank, i, k));
    n = 0;
    for (int r = 0; r < N; r++)
        for (int i = 0; i < n_of[r]; i++, n++)
            for (int k = 0; k < WIDE; k++)
                check(j, y[1][n * WIDE + k] == value(round, r, 0, i, k) &&
                             y[2][n * WIDE + k] == y[1][n * WIDE + k]);
}

static void swap_round(struct job *j, int rank, int round, float *x)
{
    static _Thread_local float y[RANKS_MAX * ROWS * WIDE];
    int32_t count[RANKS_MAX * RANKS_MAX];
    uint64_t rng = (uint64_t)round + 7;
    int n = 0, N = j->all.n;
    for (int i = 0; i < N * N; i++)
        count[i] = rng_next(&rng) % 3 ? (int32_t)(rng_next(&rng) % ROWS) : 0;
    if (round % 5 == 0) /* all to one rank */
        for (int i = 0; i < N * N; i++)
            count[i] = i % N == round / 5 % N ? ROWS - 1 : 0;
    for (int q = 0; q < N; q++)
        for (int i = 0; i < count[rank * N + q]; i++, n++)
            for (int k = 0; k < WIDE; k++)
                x[n * WIDE + k] = value(round, rank, q, i, k);
    if (rank == 1 && round == j->odd_at) count[1]++;
    memset(y, 0, sizeof y);
    uint64_t bytes = dist_counts(j->all.end[rank], rank).bytes;
    dist_swap(j->all.end[rank], &(struct dist_swap){.x = x, .y = y, .n = WIDE, .count = count});
    if (dist_status(j->all.end[rank], NULL)) return;
    n = 0;
    for (int r = 0; r < N; r++)
        for (int i = 0; i < count[r * N + rank]; i++, n++)
            for (int k = 0; k < WIDE; k++)
                check(j, y[n * WIDE + k] == value(round, r, rank, i, k));
    bytes = dist_counts(j->all.end[rank], rank).bytes - bytes;
    check(j, bytes == (uint64_t)(n - count[rank * N + rank]) * WIDE * sizeof *y);
}

static void run_rank(struct ranks *all, int rank)
{
    struct job *j = (struct job *)(void *)all;
    static _Thread_local float x[4][RANKS_MAX * ROWS * WIDE]; /* those before may still be read */
    for (int round = 0; round < ROUNDS && !dist_status(j->all.end[rank], NULL); round++) {
        if (round % 11 == 10)
            pair_round(j, rank, round, x[round & 3]);
        else if (round % 8 == 5)
            listed_round(j, rank, round, x[round & 3]);
        else if (round % 3 == 0)
            swap_round(j, rank, round, x[round & 3]);
        else
            gather_round(j, rank, round, x[round & 3], round % 7 < 3);
    }
}

static sl_status run_all(struct job *j, sl_err *err)
{
    ranks_open(&j->all, &(struct dist_opts){.deadline_ms = 20000, .crowded = true});
    sl_status st = ranks_run(&j->all, err);
    ranks_close(&j->all);
    return st;
}

TEST(dist_swaps_and_gathers_bring_every_row)
{
    static const size_t halves[] = {0, WIDE * 4, 3 * WIDE * 4 + 8, 4096};
    for (int i = 0; i < 4 * BASE_COUNT_OF(halves); i++) {
        sl_err err = {0};
        struct job j = {.all = {.n = 2 + i % 4, .half = halves[i / 4], .run = run_rank},
                        .odd_at = -1};
        assert_int_equal(run_all(&j, &err), SL_OK);
        assert_int_equal(atomic_load(&j.n_bad), 0);
    }
}

TEST(dist_swap_names_ranks_that_count_otherwise)
{
    for (int i = 0; i < 2; i++) {
        sl_err err = {0};
        struct job j = {.all = {.n = 3, .half = i ? 4096 : 0, .run = run_rank}, .odd_at = 30};
        assert_int_equal(run_all(&j, &err), SL_INTERNAL);
        assert_non_null(strstr(err.text, "join "));
        assert_non_null(strstr(err.text, "rank 1"));
    }
}
