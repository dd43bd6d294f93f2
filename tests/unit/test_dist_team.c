/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one process: what joins give, and how failures end. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "dist_ranks.h"

#define ROUNDS 400
#define WIDE 97
#define ROWS 6
#define DEADLINE_MS 1000
#define SLOW_MS 100

struct job {
    struct ranks all; /* first: the job of a struct ranks is around it */
    int rounds;
    int skip_rank, skip_at; /* that rank leaves before that round; -1 = none */
    bool only_one;          /* it goes on after it */
    int odd_at, odd_rank;   /* that rank brings a row more in that round; -1 = none */
    atomic_int n_bad;
};

static float value(int round, int row, int col)
{
    return (float)(round * 31 + row * 7 + col);
}

/* Columns of each rank in a round, some of them none. */
static void parts(int round, int n, int32_t *part)
{
    uint64_t rng = (uint64_t)round + 1;
    int left = WIDE;
    for (int r = 0; r < n; r++) {
        part[r] = r == n - 1 ? left : (int32_t)(rng_next(&rng) % (uint64_t)(left + 1));
        left -= part[r];
    }
}

/* Every rank has some whole rows, and gets its columns of all. */
static void turn_round(struct job *j, int rank, int round, const int32_t *part)
{
    static _Thread_local float x[2][ROWS * WIDE], y[RANKS_MAX * ROWS * WIDE];
    int32_t n_of[RANKS_MAX], n_row = 0, before = 0;
    int at = (int)dist_part_begin(part, rank);
    float *mine = x[round & 1]; /* the join before may still be read */
    for (int r = 0; r < j->all.n; r++) {
        n_of[r] = (round + r) % ROWS;
        if (r < rank) before += n_of[r];
        n_row += n_of[r];
    }
    for (int i = 0; i < n_of[rank]; i++)
        for (int k = 0; k < WIDE; k++)
            mine[i * WIDE + k] = value(round, before + i, k);
    memset(y, 0, sizeof y);
    uint64_t bytes = dist_counts(j->all.end[rank], rank).bytes;
    dist_turn(j->all.end[rank],
              &(struct dist_turn){.x = mine, .y = y, .n = WIDE, .n_of = n_of, .part = part});
    if (dist_status(j->all.end[rank], NULL)) return;
    bytes = dist_counts(j->all.end[rank], rank).bytes - bytes;
    if (bytes != (uint64_t)(n_row - n_of[rank]) * (uint64_t)part[rank] * sizeof *y)
        atomic_fetch_add(&j->n_bad, 1);
    for (int i = 0; i < n_row; i++)
        for (int k = 0; k < part[rank]; k++)
            if (y[i * part[rank] + k] != value(round, i, at + k)) atomic_fetch_add(&j->n_bad, 1);
}

static void one_round(struct job *j, int rank, int round)
{
    static _Thread_local float x[2][(ROWS + 1) * WIDE], y[(ROWS + 1) * WIDE];
    static _Thread_local unsigned n_join;
    int32_t part[RANKS_MAX], of[ROWS + 1] = {0};
    int n_row = 1 + round % ROWS, at = 0;
    parts(round, j->all.n, part);
    if (round % 4 == 3) {
        turn_round(j, rank, round, part);
        return;
    }
    /* the join before may still be read, also of a rank that has left out a round */
    float *mine = x[n_join++ & 1];
    for (int r = 0; r < rank; r++)
        at += part[r];
    bool pick = round % 3 == 2;
    for (int i = 0; i < n_row; i++) {
        of[i] = (round + i) % j->all.n;
        for (int k = 0; k < (pick ? WIDE : part[rank]); k++)
            mine[i * (pick ? WIDE : part[rank]) + k] =
                pick ? value(round, i, k) + (of[i] == rank ? 0 : 1e6f) : value(round, i, at + k);
    }
    memset(y, 0, sizeof y);
    if (rank == j->odd_rank && round == j->odd_at) n_row++;
    if (pick)
        dist_pick(j->all.end[rank], &(struct dist_pick){mine, y, n_row, WIDE, of});
    else
        dist_cols(j->all.end[rank],
                  &(struct dist_cols){.x = mine, .y = y, .n_row = n_row, .n = WIDE, .part = part});
    if (dist_status(j->all.end[rank], NULL)) return;
    for (int i = 0; i < n_row; i++)
        for (int k = 0; k < WIDE; k++)
            if (y[i * WIDE + k] != value(round, i, k)) atomic_fetch_add(&j->n_bad, 1);
}

static void run_rank(struct ranks *all, int rank)
{
    struct job *j = (struct job *)(void *)all;
    for (int round = 0; round < j->rounds && !dist_status(j->all.end[rank], NULL); round++) {
        if (rank == j->skip_rank && round == j->skip_at) {
            if (j->only_one) continue;
            return;
        }
        one_round(j, rank, round);
    }
}

static sl_status run_all(struct job *j, int deadline_ms, sl_err *err)
{
    sl_status st = SL_OK;
    ranks_open(&j->all, &(struct dist_opts){.deadline_ms = deadline_ms, .crowded = true});
    for (int times = 0; times < 2 && !st; times++) /* two messages */
        st = ranks_run(&j->all, err);
    struct dist_count c = dist_counts(j->all.end[0], 0);
    if (!st) assert_int_equal(c.n_join, 2 * j->rounds);
    ranks_close(&j->all);
    return st;
}

TEST(dist_joins_give_whole_rows)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        sl_err err = {0};
        struct job j = {
            .all = {.n = n, .run = run_rank}, .rounds = ROUNDS, .skip_rank = -1, .odd_at = -1};
        assert_int_equal(run_all(&j, 0, &err), SL_OK);
        assert_int_equal(atomic_load(&j.n_bad), 0);
    }
}

TEST(dist_joins_go_in_pieces_through_slots)
{
    static const size_t halves[] = {WIDE * 4, 1024, 4096};
    for (int i = 0; i < BASE_COUNT_OF(halves); i++) {
        sl_err err = {0};
        struct job j = {.all = {.n = 2 + i, .half = halves[i], .run = run_rank},
                        .rounds = ROUNDS,
                        .skip_rank = -1,
                        .odd_at = -1};
        assert_int_equal(run_all(&j, 0, &err), SL_OK);
        assert_int_equal(atomic_load(&j.n_bad), 0);
    }
}

TEST(dist_refuses_rows_that_fit_no_slot)
{
    sl_err err = {0};
    struct job j = {.all = {.n = 2, .half = 100, .run = run_rank},
                    .rounds = ROUNDS,
                    .skip_rank = -1,
                    .odd_at = -1};
    assert_int_equal(run_all(&j, 0, &err), SL_INTERNAL);
    assert_non_null(strstr(err.text, "do not fit into 100 bytes"));
}

TEST(dist_names_a_rank_that_gives_no_sign)
{
    sl_err err = {0};
    struct job j = {
        .all = {.n = 3, .run = run_rank}, .rounds = 20, .skip_rank = 2, .skip_at = 7, .odd_at = -1};
    assert_int_equal(run_all(&j, 150, &err), SL_TIMEOUT);
    assert_non_null(strstr(err.text, "rank 2 gave no sign"));
    assert_non_null(strstr(err.text, "in a step, join 8 of "));
}

TEST(dist_names_joins_that_do_not_fit)
{
    sl_err err = {0};
    struct job j = {.all = {.n = 2, .run = run_rank},
                    .rounds = 20,
                    .skip_rank = -1,
                    .odd_at = 4,
                    .odd_rank = 1};
    assert_int_equal(run_all(&j, 2000, &err), SL_INTERNAL);
    assert_non_null(strstr(err.text, "join 5 of columns: "));
}

/* How a rank leaves the order: it leaves out one join, or brings a row more to one. */
static void break_once(uint64_t *rng, int k)
{
    sl_err err = {0};
    char text[32];
    struct job j = {.all = {.n = 2 + (int)(rng_next(rng) % (RANKS_MAX - 1)), .run = run_rank},
                    .rounds = 24,
                    .skip_rank = -1,
                    .odd_at = -1};
    int rank = (int)(rng_next(rng) % (uint64_t)j.all.n), at = (int)(rng_next(rng) % 20);
    if (k % 4 == 1) j.all.half = (ROWS + 1) * WIDE * sizeof(float);
    if (k & 2) {
        j.skip_rank = rank;
        j.skip_at = at;
        j.only_one = true;
    } else { /* every fourth round has none */
        j.odd_rank = rank;
        j.odd_at = at - (at % 4 == 3);
    }
    int64_t t0 = clock_now_ns();
    sl_status st = run_all(&j, DEADLINE_MS, &err);
    int64_t ms = (clock_now_ns() - t0) / 1000000;
    snprintf(text, sizeof text, "rank %d ", rank);
    assert_true(st == SL_TIMEOUT || st == SL_INTERNAL);
    if (!strstr(err.text, text) || !strstr(err.text, "join ") || !strstr(err.text, " of "))
        fail_msg("rank %d of %d left at %d: %s", rank, j.all.n, at, err.text);
    assert_true(ms <= DEADLINE_MS + 1000);
}

/* 100 of them: SLUICE_BROKEN=100, in make check-all. */
TEST(dist_names_who_left_the_order)
{
    const char *n = getenv("SLUICE_BROKEN");
    uint64_t rng = 11;
    for (int k = 0; k < (n ? atoi(n) : 12); k++)
        break_once(&rng, k);
}

struct slow {
    struct ranks all; /* first: as struct job */
    bool counts;
};

static void run_slow(struct ranks *all, int rank)
{
    const struct slow *s = (struct slow *)(void *)all;
    struct os_word never = {0};
    if (!s->counts) dist_uncounted(all->end[rank]);
    (void)os_word_sleep(&never, 1, SLOW_MS);
}

TEST(dist_deadlines_go_by_steps_that_count)
{
    sl_err err = {0};
    const int64_t ms = 1000000, least = 15 * SLOW_MS * ms, first = 600000 * ms;
    struct slow s = {.all = {.n = 3, .run = run_slow}};
    struct dist_opts o = {.deadline_ms = 15 * SLOW_MS, .n_join = 1, .crowded = true};
    ranks_open(&s.all, &o);
    for (int times = 0; times < 2; times++) {
        assert_int_equal(ranks_run(&s.all, &err), SL_OK);
        for (int r = 0; r < s.all.n; r++) { /* they may still be reading weights */
            assert_int_equal(dist_deadline(s.all.end[r]), least);
            assert_true(dist_stage_deadline(s.all.end[r], true) >= first);
        }
    }
    s.counts = true;
    assert_int_equal(ranks_run(&s.all, &err), SL_OK);
    for (int r = 0; r < s.all.n; r++) {
        assert_true(dist_deadline(s.all.end[r]) >= 20 * SLOW_MS * ms);
        assert_true(dist_stage_deadline(s.all.end[r], true) < first);
    }
    ranks_close(&s.all);
}

TEST(dist_fail_ends_waits_with_the_first_reason)
{
    sl_err a = {0}, b = {0}, got = {0};
    dist *end[2];
    assert_int_equal(SL_FAIL(&a, IO, "first"), SL_IO);
    assert_int_equal(SL_FAIL(&b, NOMEM, "second"), SL_NOMEM);
    assert_int_equal(dist_team_open(2, &(struct dist_opts){.deadline_ms = 60000}, end, NULL), 0);
    assert_int_equal(dist_status(end[0], NULL), SL_OK);
    dist_fail(end[1], &a);
    dist_fail(end[0], &b);
    float x = 1, y = 0;
    dist_cols(end[0],
              &(struct dist_cols){.x = &x, .y = &y, .n_row = 1, .n = 1, .part = (int32_t[]){1, 0}});
    assert_int_equal(dist_status(end[0], &got), SL_IO);
    assert_string_equal(got.text, "first");
    assert_true(y == 0);
    dist_tell(end[0], &x, sizeof x);
    assert_int_equal(dist_all_done(end[0], &got), SL_IO);
    dist_close(end[0]);
}

TEST(dist_layouts_are_read)
{
    static const struct {
        const char *text;
        int n;
        sl_status st;
        const char *says;
    } all[] = {
        {"", 1, SL_OK, ""},
        {"tp=1", 1, SL_OK, ""},
        {"tp=64", 64, SL_OK, ""},
        {"tp=65", 0, SL_REQUEST, "at most 64 ranks"},
        {"tp=0", 0, SL_REQUEST, "a number from 1 on"},
        {"tp=-2", 0, SL_REQUEST, "a number from 1 on"},
        {"tp=2x", 0, SL_REQUEST, "a number from 1 on"},
        {"tp=", 0, SL_REQUEST, "a number from 1 on"},
        {"tp", 0, SL_REQUEST, "expected tp=N, dp=N, ep=N, pp=N or weight=N:N"},
        {"t=2", 0, SL_REQUEST, "expected tp=N, dp=N, ep=N, pp=N or weight=N:N"},
        {"tp=2,", 0, SL_REQUEST, "nothing comes after ','"},
        {"tp=2,tp=2", 0, SL_REQUEST, "tp is said already"},
        {"pp=2", 2, SL_OK, ""},
        {"pp=2,tp=3", 6, SL_OK, ""},
        {"pp=0", 0, SL_REQUEST, "'pp=0': a number from 1 on"},
        {"pp=2,tp=2,pp=2", 0, SL_REQUEST, "'pp=2': pp is said already"},
        {"tp=8,pp=9", 0, SL_REQUEST, "'tp=8,pp=9': at most 64 ranks"},
        {"etp=2", 0, SL_REQUEST, "'etp=2': it follows from the others, tp dp / ep"},
        {"dp=2,ep=2", 2, SL_OK, ""},
        {"ep=3,dp=3", 3, SL_OK, ""},
        {"dp=2", 2, SL_OK, ""},
        {"dp=2,ep=4", 0, SL_REQUEST, "over groups of a stage's 2 ranks: ep=2, or no ep"},
        {"dp=2,tp=2,ep=4", 4, SL_OK, ""},
        {"dp=2,tp=2,ep=2", 4, SL_OK, ""},
        {"dp=2,tp=2,ep=3", 0, SL_REQUEST, "stage's 4 ranks: ep=2, ep=4, or no ep"},
        {"tp=4,ep=2,pp=2", 8, SL_OK, ""},
        {"dp=2,pp=2,ep=2", 4, SL_OK, ""},
        {"dp=2,pp=2,ep=4,tp=2", 8, SL_OK, ""},
        {"dp=4,pp=4,ep=16,tp=8", 0, SL_REQUEST, "at most 64 ranks"},
        {"dp=4,pp=4,ep=32,tp=8", 0, SL_REQUEST, "at most 64 ranks"},
        {"tp=4,ep=4", 4, SL_OK, ""},
        {"ep=2,pp=3,tp=2", 6, SL_OK, ""},
        {"tp=2,ep=4", 0, SL_REQUEST, "stage's 2 ranks: ep=2, or no ep"},
        {"ep=2", 0, SL_REQUEST, "it has one: tp=2,ep=2, or dp=2,ep=2"},
        {"tp=3,weight=3:2:1", 3, SL_OK, ""},
        {"weight=1000:1,tp=2,pp=2", 4, SL_OK, ""},
        {"tp=2,dp=2,ep=4,weight=4:3:2:1", 4, SL_OK, ""},
        {"tp=1,weight=7", 1, SL_OK, ""},
        {"tp=2,weight=3:2:1", 0, SL_REQUEST, "3 weights, a stage has 2 ranks"},
        {"tp=3,pp=2,weight=3", 0, SL_REQUEST, "1 weight, a stage has 3 ranks"},
        {"weight=3:2", 0, SL_REQUEST, "2 weights, a stage has 1 rank"},
        {"tp=2,weight=3:0", 0, SL_REQUEST, "'weight=3:0': weights are numbers from 1 to 1000"},
        {"tp=2,weight=1001:1", 0, SL_REQUEST, "weights are numbers from 1 to 1000"},
        {"tp=2,weight=3:2:", 0, SL_REQUEST, "weights are numbers from 1 to 1000"},
        {"tp=2,weight=:3:2", 0, SL_REQUEST, "weights are numbers from 1 to 1000"},
        {"tp=2,weight=3;2", 0, SL_REQUEST, "weights are numbers from 1 to 1000"},
        {"tp=2,weight=-3:2", 0, SL_REQUEST, "weights are numbers from 1 to 1000"},
        {"tp=2,weight=", 0, SL_REQUEST, "weights are numbers from 1 to 1000"},
        {"tp=2,weight", 0, SL_REQUEST, "expected tp=N, dp=N, ep=N, pp=N or weight=N:N"},
        {"weight=1:2,tp=2,weight=2:1", 0, SL_REQUEST, "weight is said already"},
    };
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        struct dist_layout l;
        sl_err err = {0};
        assert_int_equal(dist_layout_parse(all[i].text, &l, &err), all[i].st);
        if (all[i].st)
            assert_non_null(strstr(err.text, all[i].says));
        else
            assert_int_equal(dist_layout_ranks(&l), all[i].n);
    }
    dist *end[1];
    assert_int_equal(dist_team_open(1, &(struct dist_opts){0}, end, NULL), SL_REQUEST);
}

TEST(dist_layout_weights_are_read)
{
    struct dist_layout l;
    char text[600] = "tp=64,weight=1000";
    sl_err err = {0};
    for (int i = 1; i < 64; i++)
        strcat(text, ":1000");
    ASSERT_OK(dist_layout_parse(text, &l, &err)); /* alike */
    assert_int_equal(l.n_weight, 0);
    strcpy(strrchr(text, ':'), ":999");
    ASSERT_OK(dist_layout_parse(text, &l, &err));
    assert_int_equal(l.n_weight, 64);
    assert_true(l.weight[0] == 1000 && l.weight[62] == 1000 && l.weight[63] == 999);
    strcat(text, ":1");
    ASSERT_STATUS(dist_layout_parse(text, &l, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "at most 64 ranks"));
}

static void check_share(int64_t total, int64_t unit, const struct dist_among *of,
                        const int64_t *want)
{
    struct dist_among a = *of;
    int64_t at = 0, begin;
    for (a.rank = 0; a.rank < a.n; a.rank++) {
        assert_int_equal(dist_share(total, unit, &a, &begin), want[a.rank]);
        assert_int_equal(begin, at);
        at += want[a.rank];
    }
    assert_int_equal(at, total);
}

TEST(dist_shares_follow_weights)
{
    static const uint16_t three[] = {3, 2, 1}, much[] = {1000, 1}, alike[] = {5, 5, 5},
                          four[] = {1, 1, 1, 97};
    static const struct {
        int64_t total, unit;
        struct dist_among of;
        int64_t want[4];
    } all[] = {
        {128, 1, {0, 3, NULL}, {42, 43, 43}},
        {128, 1, {0, 3, alike}, {43, 43, 42}},
        {96, 16, {0, 3, three}, {48, 32, 16}},
        {8, 1, {0, 3, three}, {4, 3, 1}}, /* 4, 2.67, 1.33 */
        {3, 1, {0, 3, three}, {1, 1, 1}}, /* 1.5, 1, 0.5: none is left out */
        {4, 1, {0, 3, three}, {2, 1, 1}}, /* 2, 1.33, 0.67 */
        {2, 1, {0, 3, three}, {1, 1, 0}}, /* fewer than ranks: 1, 0.67, 0.33 */
        {2, 1, {0, 2, much}, {1, 1}},
        {5000, 1, {0, 2, much}, {4995, 5}},
        {301, 16, {0, 3, three}, {160, 96, 45}}, /* 19 units: 9.5, 6.33, 3.17; the last has 13 */
        {40, 16, {0, 3, three}, {16, 16, 8}},
        {5, 1, {0, 4, four}, {1, 1, 1, 2}}, /* 0.05, 0.05, 0.05, 4.85 */
        {0, 16, {0, 3, three}, {0, 0, 0}},
        {7, 1, {0, 1, much}, {7}},
    };
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        check_share(all[i].total, all[i].unit, &all[i].of, all[i].want);
    uint64_t rng = 5; /* of any numbers */
    for (int trial = 0; trial < 2000; trial++) {
        uint16_t w[DIST_RANK_MAX];
        struct dist_among a = {0, 1 + (int)(rng_next(&rng) % DIST_RANK_MAX), w};
        int64_t total = (int64_t)(rng_next(&rng) % 3000), sum = 0, begin, n[DIST_RANK_MAX];
        bool whole = true; /* every share is a unit at least */
        for (int r = 0; r < a.n; r++)
            sum += w[r] = (uint16_t)(1 + rng_next(&rng) % (trial % 2 ? 9 : DIST_WEIGHT_MAX));
        for (int r = 0; r < a.n; r++) {
            whole = whole && total * w[r] >= sum;
            a.rank = r;
            n[r] = dist_share(total, 1, &a, &begin);
        }
        check_share(total, 1, &a, n);
        for (int r = 0; r < a.n; r++) {
            double exact = (double)total * w[r] / (double)sum;
            if (whole) assert_true(fabs((double)n[r] - exact) < 1);
            assert_true(n[r] >= (total >= a.n) && (double)n[r] < exact + 1);
            for (int q = 0; q < a.n; q++)
                if (w[q] > w[r] || (w[q] == w[r] && q < r)) assert_true(n[q] >= n[r]);
        }
    }
}
