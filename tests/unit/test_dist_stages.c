/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in several stages: rows go from stage to stage whole and in order, joins are a stage's own,
 * and one that gives no sign is named by its neighbour. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "dist_ranks.h"

#define WIDE 24
#define ROWS 9
#define ROUNDS 200

struct job {
    struct ranks all; /* first: the job of a struct ranks is around it */
    int n_join;
    int skip_rank, skip_at; /* that rank leaves before that round; -1 = none */
    int odd_rank, odd_at;   /* that rank takes a row less in that round; -1 = none */
    atomic_int n_bad, n_round;
};

static float value(int round, int row, int col, int k)
{
    return (float)(round * 1000 + row * 31 + col + k);
}

static void join(struct job *j, int rank, float *x, int n_row)
{
    static _Thread_local float part[2][ROWS * WIDE];
    static _Thread_local int turn;
    int32_t cols[RANKS_MAX];
    int at = rank % j->n_join, n = WIDE / j->n_join;
    float *mine = part[turn ^= 1]; /* the join before may still be read */
    for (int r = 0; r < j->n_join; r++)
        cols[r] = n;
    for (int i = 0; i < n_row; i++)
        for (int k = 0; k < n; k++)
            mine[i * n + k] = x[i * WIDE + at * n + k];
    memset(x, 0, sizeof *x * (size_t)n_row * WIDE);
    dist_cols(j->all.end[rank],
              &(struct dist_cols){.x = mine, .y = x, .n_row = n_row, .n = WIDE, .part = cols});
}

static void one_round(struct job *j, int rank, int round)
{
    static _Thread_local float x[ROWS * WIDE];
    int n_stage = j->all.n / j->n_join, stage = n_stage - 1 - rank / j->n_join;
    int n_row = 1 + round % ROWS;
    dist *d = j->all.end[rank];
    bool odd = rank == j->odd_rank && round == j->odd_at;
    if (stage)
        dist_take(d, x, odd ? n_row - 1 : n_row, WIDE);
    else
        for (int i = 0; i < n_row * WIDE; i++)
            x[i] = value(round, i / WIDE, i % WIDE, 0);
    if (j->n_join > 1) join(j, rank, x, n_row);
    if (dist_status(d, NULL)) return;
    for (int i = 0; i < n_row * WIDE; i++) {
        if (x[i] != value(round, i / WIDE, i % WIDE, stage)) atomic_fetch_add(&j->n_bad, 1);
        x[i]++;
    }
    if (stage < n_stage - 1) dist_give(d, x, n_row, WIDE);
}

static void run_rank(struct ranks *all, int rank)
{
    struct job *j = (struct job *)(void *)all;
    for (int round = 0; round < ROUNDS && !dist_status(j->all.end[rank], NULL); round++) {
        if (rank == j->skip_rank && round == j->skip_at) return;
        one_round(j, rank, round);
        if (rank == 0) atomic_fetch_add(&j->n_round, 1);
    }
}

static sl_err err;

static sl_status run_all(struct job *j, int deadline_ms)
{
    struct ranks *a = &j->all;
    ranks_open(
        a, &(struct dist_opts){.deadline_ms = deadline_ms, .crowded = true, .n_join = j->n_join});
    for (int r = 0; r < a->n; r++) /* a first step was there: its limit is not the first one's */
        a->end[r]->longest_ns = 1;
    sl_status st = ranks_run(a, &err);
    uint64_t rows = 0, all = 0;
    for (int round = 0; round < ROUNDS; round++)
        rows += (uint64_t)(1 + round % ROWS);
    for (int r = 0; r < a->n; r++) {
        struct dist_count c = dist_counts(a->end[0], r);
        all += c.bytes;
        if (!st) assert_true(c.busy_ns > 0);
    }
    int n_stage = a->n / j->n_join;
    uint64_t passed = (uint64_t)((n_stage - 1) * j->n_join), joined = (uint64_t)(j->n_join - 1);
    if (!st) assert_int_equal(all, rows * WIDE * 4 * (passed + joined * (uint64_t)n_stage));
    ranks_close(a);
    return st;
}

static const struct {
    int n, n_join;
} layouts[] = {{2, 1}, {3, 1}, {4, 2}, {6, 2}, {6, 3}};

TEST(dist_rows_go_from_stage_to_stage)
{
    static const size_t halves[] = {0, WIDE * 4, 4096};
    for (int i = 0; i < BASE_COUNT_OF(layouts); i++)
        for (int k = 0; k < BASE_COUNT_OF(halves); k++) {
            struct job j = {.all = {.n = layouts[i].n, .half = halves[k], .run = run_rank},
                            .n_join = layouts[i].n_join,
                            .skip_rank = -1,
                            .odd_rank = -1};
            assert_int_equal(run_all(&j, 0), SL_OK);
            assert_int_equal(atomic_load(&j.n_bad), 0);
            assert_int_equal(atomic_load(&j.n_round), ROUNDS);
        }
}

TEST(dist_names_the_stage_that_gives_no_sign)
{
    for (int rank = 1; rank <= 2; rank++) /* the middle of three, and the first */
        for (int slots = 0; slots < 2; slots++) {
            char what[40];
            struct job j = {.all = {.n = 3, .half = slots ? 4096 : 0, .run = run_rank},
                            .n_join = 1,
                            .skip_rank = rank,
                            .skip_at = 7,
                            .odd_rank = -1};
            assert_int_equal(run_all(&j, 200), SL_TIMEOUT);
            snprintf(what, sizeof what, "rank %d gave no sign", rank);
            if (!strstr(err.text, what)) fail_msg("%s, not of rank %d", err.text, rank);
        }
}

TEST(dist_names_rows_that_are_not_those_given)
{
    for (int slots = 0; slots < 2; slots++) {
        struct job j = {.all = {.n = 2, .half = slots ? 4096 : 0, .run = run_rank},
                        .n_join = 1,
                        .skip_rank = -1,
                        .odd_rank = 0,
                        .odd_at = 4};
        assert_int_equal(run_all(&j, 2000), SL_INTERNAL);
        assert_non_null(strstr(err.text, "rank 1 gives 5 rows of 24, rank 0 takes 4 of 24"));
    }
}
