/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of experts: the published example, ties, and what holds for any counts. */
#include "dist/place.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/size.h"
#include "test.h"

#define SLOTS 320

TEST(dist_place_gives_the_published_example)
{
    static const uint64_t load[2][12] = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
                                         {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    static const int32_t want[2][16] = {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                                        {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
    const struct dist_experts p = {
        .n_expert = 12, .n_slot = 16, .n_rank = 8, .n_group = 4, .n_node = 2};
    sl_err err = {0};
    for (int i = 0; i < 2; i++) {
        int32_t got[16];
        ASSERT_OK(dist_place(&p, load[i], got, &err));
        assert_memory_equal(got, want[i], sizeof got);
    }
}

TEST(dist_place_settles_ties_by_number)
{
    static const uint64_t even[8] = {3, 3, 3, 3, 3, 3, 3, 3}, none[8] = {0};
    const struct dist_experts p = {
        .n_expert = 8, .n_slot = 10, .n_rank = 2, .n_group = 1, .n_node = 1};
    sl_err err = {0};
    int32_t a[10], b[10];
    ASSERT_OK(dist_place(&p, even, a, &err));
    ASSERT_OK(dist_place(&p, none, b, &err));
    assert_memory_equal(a, b, sizeof a);
    /* the six whole ones in turn, then the halves of 0 and 1, each on both ranks */
    static const int32_t expect[10] = {2, 4, 6, 0, 1, 3, 5, 7, 1, 0};
    assert_memory_equal(a, expect, sizeof a);
}

TEST(dist_place_without_load_is_in_order)
{
    const struct dist_experts p = {
        .n_expert = 6, .n_slot = 6, .n_rank = 3, .n_group = 1, .n_node = 1};
    static const int32_t want[6] = {0, 1, 2, 3, 4, 5};
    sl_err err = {0};
    int32_t got[6];
    ASSERT_OK(dist_place(&p, NULL, got, &err));
    assert_memory_equal(got, want, sizeof got);
}

TEST(dist_place_refuses_numbers_that_do_not_divide)
{
    static const struct {
        int n_expert, n_slot, n_rank;
        const char *say;
    } bad[] = {
        {8, 8, 9, "9 ranks: there are 8 experts"},
        {8, 8, 3,
         "8 experts and 0 copies are not dealt evenly to 3 ranks: they are with --redundant 1"},
        {8, 10, 3,
         "8 experts and 2 copies are not dealt evenly to 3 ranks: they are with --redundant 4"},
        {8, 7, 1, "7 slots: 8 experts"},
        {8, 12, 4, "4 copies: of which experts needs counts"}};
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        struct dist_experts p = {.n_expert = bad[i].n_expert,
                                 .n_slot = bad[i].n_slot,
                                 .n_rank = bad[i].n_rank,
                                 .n_group = 1,
                                 .n_node = 1};
        sl_err err = {0};
        int32_t got[16];
        ASSERT_STATUS(dist_place(&p, NULL, got, &err), SL_REQUEST);
        assert_string_equal(err.text, bad[i].say);
    }
}

/* Skewed as experts' loads are: about e^-3 from the least to the most, some of none. */
static void draw_load(uint64_t *rng, uint64_t *load, int n)
{
    for (int e = 0; e < n; e++) {
        uint64_t x = rng_next(rng) % 1000, y = rng_next(rng) % 1000;
        load[e] = rng_next(rng) % 20 ? 1 + x * y * y / 100000 : 0;
    }
}

static int copies(const int32_t *expert, int n, int32_t e)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        k += expert[i] == e;
    return k;
}

TEST(dist_place_keeps_its_promises_for_any_load)
{
    static const struct {
        int E, group, copy, rank, node;
    } of[] = {{256, 8, 0, 8, 1}, {256, 8, 32, 32, 4}, {64, 1, 16, 8, 1},
              {60, 1, 0, 4, 1},  {160, 8, 32, 16, 2}, {16, 1, 16, 8, 1}};
    uint64_t rng = 7, load[256];
    int n_better = 0, n_all = 0;
    for (int trial = 0; trial < 600; trial++) {
        int i = trial % BASE_COUNT_OF(of);
        struct dist_experts p = {.n_expert = of[i].E,
                                 .n_slot = of[i].E + of[i].copy,
                                 .n_rank = of[i].rank,
                                 .n_group = of[i].group,
                                 .n_node = of[i].node};
        int32_t got[SLOTS], again[SLOTS], order[256];
        sl_err err = {0};
        int per = p.n_slot / p.n_rank;
        draw_load(&rng, load, p.n_expert);
        ASSERT_OK(dist_place(&p, load, got, &err));
        ASSERT_OK(dist_place(&p, load, again, &err));
        assert_memory_equal(got, again, sizeof *got * (size_t)p.n_slot);
        for (int e = 0; e < p.n_expert; e++) {
            int n = copies(got, p.n_slot, e), node = -1;
            assert_true(n >= 1);
            for (int r = 0; r < p.n_rank; r++) { /* a rank has it once, of one node alone */
                int here = copies(got + r * per, per, e), at = r * p.n_node / p.n_rank;
                if (n <= p.n_rank / p.n_node) assert_true(here <= 1);
                if (here && node >= 0) assert_int_equal(node, at);
                if (here) node = at;
            }
        }
        for (int e = 0; e < p.n_expert; e++)
            order[e] = e;
        struct dist_experts plain = p;
        plain.n_slot = p.n_expert;
        double placed = dist_place_ratio(&p, load, got);
        assert_true(placed >= 1 - 1e-9);
        n_better += placed <= dist_place_ratio(&plain, load, order);
        n_all++;
    }
    assert_int_equal(n_better, n_all);
}

TEST(dist_place_ratio_is_that_of_the_fullest_rank)
{
    static const uint64_t load[4] = {6, 2, 2, 2};
    static const int32_t order[4] = {0, 1, 2, 3}, copied[6] = {0, 1, 2, 0, 3, 1};
    const struct dist_experts plain = {4, 4, 2, 1, 1, NULL}, more = {4, 6, 2, 1, 1, NULL};
    assert_true(dist_place_ratio(&plain, load, order) == 8.0 / 6);
    assert_true(dist_place_ratio(&more, load, copied) == 6.0 / 6);
    static const uint64_t none[4] = {0};
    assert_true(dist_place_ratio(&plain, none, order) == 1);
}

/* ---- improving ---- */

#define LOADS 64 /* of a layer at most */

/* As measured models have it: e^3 between the least and the most chosen, in any order. */
static void draw_smooth(uint64_t *rng, uint64_t *load, int n)
{
    for (int e = 0; e < n; e++)
        load[e] = (uint64_t)(1e6 * exp(-3.0 * e / n));
    for (int e = n - 1; e > 0; e--) {
        int o = (int)(rng_next(rng) % (uint64_t)(e + 1));
        uint64_t x = load[e];
        load[e] = load[o];
        load[o] = x;
    }
}

/* A fifth of the experts exchange their loads. */
static void change_fifth(uint64_t *rng, uint64_t *load, int n)
{
    for (int i = 0; i < n / 10; i++) {
        int a = (int)(rng_next(rng) % (uint64_t)n), b = (int)(rng_next(rng) % (uint64_t)n);
        uint64_t x = load[a];
        load[a] = load[b];
        load[b] = x;
    }
}

/* Each step leaves a placement: every expert has a slot, and no rank two of one. */
static void check_steps(const struct dist_experts *p, int32_t *expert,
                        const struct dist_exchange *x, int n)
{
    int per = p->n_slot / p->n_rank;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < x[i].n; k++)
            expert[x[i].slot[k]] = x[i].expert[k];
        for (int e = 0; e < p->n_expert; e++)
            assert_true(copies(expert, p->n_slot, e) >= 1);
        for (int s = 0; s < p->n_slot; s++)
            assert_int_equal(copies(expert + s / per * per, per, expert[s]), 1);
    }
}

TEST(dist_improve_evens_out_what_has_changed)
{
    static const struct {
        int rank, copy;
        double at_most; /* the mean of what is left */
    } of[] = {{8, 0, 1.05}, {16, 32, 1.10}, {32, 32, 1.15}};
    uint64_t rng = 11, load[256];
    for (int i = 0; i < BASE_COUNT_OF(of); i++) {
        double before = 0, after = 0;
        for (int trial = 0; trial < 10; trial++) {
            struct dist_experts p = {.n_expert = 256,
                                     .n_slot = 256 + of[i].copy,
                                     .n_rank = of[i].rank,
                                     .n_group = 1,
                                     .n_node = 1};
            struct dist_goal goal = {1.05, LOADS};
            struct dist_exchange step[LOADS], again[LOADS];
            double room[3 * 32 + 320];
            struct dist_steps out = {step, 0, room}, out2 = {again, 0, room};
            int32_t expert[SLOTS], same[SLOTS], was[SLOTS];
            int n_load = 0;
            sl_err err = {0};
            draw_smooth(&rng, load, 256);
            ASSERT_OK(dist_place(&p, load, expert, &err));
            change_fifth(&rng, load, 256);
            memcpy(was, expert, sizeof was);
            memcpy(same, expert, sizeof same);
            before += dist_place_ratio(&p, load, expert) / 10;
            assert_true(dist_improve_room(&p) <= sizeof room);
            dist_improve(&p, load, &goal, expert, &out);
            dist_improve(&p, load, &goal, same, &out2);
            after += dist_place_ratio(&p, load, expert) / 10;
            for (int k = 0; k < out.n; k++)
                n_load += step[k].n;
            assert_true(n_load <= LOADS);
            assert_int_equal(out.n, out2.n);
            assert_memory_equal(expert, same, sizeof *expert * (size_t)p.n_slot);
            check_steps(&p, was, step, out.n);
            assert_memory_equal(expert, was, sizeof *expert * (size_t)p.n_slot);
        }
        print_message("%d ranks: %.3f, improved %.3f\n", of[i].rank, before, after);
        assert_true(after <= of[i].at_most && after < before);
    }
}

/* What was recorded of the demo model's four mixtures (sluice run --batch-file
 * bench/prompts/demo.jsonl -n 96 --expert-stats FILE; sluice eval -f models/demo/heldout.txt
 * --expert-stats FILE): placed for questions, then prose comes. */
TEST(dist_improve_follows_recorded_loads)
{
    static const uint64_t questions[4][16] = {
        {288, 293, 283, 361, 207, 216, 247, 390, 169, 236, 302, 295, 342, 134, 349, 438},
        {458, 335, 265, 241, 217, 274, 408, 253, 159, 589, 311, 309, 207, 250, 145, 129},
        {330, 380, 224, 322, 431, 252, 338, 353, 259, 343, 154, 366, 201, 280, 157, 160},
        {228, 297, 374, 222, 452, 399, 347, 202, 236, 169, 105, 246, 328, 315, 360, 270},
    };
    static const uint64_t prose[4][16] = {
        {7304, 16327, 5834, 3919, 1135, 5106, 2414, 967, 6477, 9694, 3226, 6941, 2824, 306, 2308,
         2164},
        {2333, 2795, 14100, 9425, 3020, 1330, 3856, 4344, 2136, 327, 544, 6955, 19538, 4037, 532,
         1674},
        {5401, 185, 4974, 461, 4767, 17376, 1987, 13327, 2277, 856, 5254, 229, 5503, 11132, 785,
         2432},
        {12126, 2283, 870, 4606, 2761, 20746, 626, 9252, 26, 3901, 311, 8282, 2067, 525, 6389,
         2175},
    };
    static const struct {
        int rank, copy;
        double at_most; /* the mean of the layers */
    } of[] = {{2, 0, 1.05}, {4, 4, 1.05}, {8, 32, 1.05}, {16, 48, 1.10}};
    sl_err err = {0};
    for (int i = 0; i < BASE_COUNT_OF(of); i++) {
        double before = 0, after = 0;
        struct dist_experts p = {.n_expert = 16,
                                 .n_slot = 16 + of[i].copy,
                                 .n_rank = of[i].rank,
                                 .n_group = 1,
                                 .n_node = 1};
        for (int k = 0; k < 4; k++) {
            struct dist_goal goal = {1.05, LOADS};
            struct dist_exchange step[LOADS];
            double room[3 * 16 + 64];
            struct dist_steps out = {step, 0, room};
            int32_t expert[64], was[64];
            ASSERT_OK(dist_place(&p, questions[k], expert, &err));
            memcpy(was, expert, sizeof was);
            before += dist_place_ratio(&p, prose[k], expert) / 4;
            assert_true(dist_improve_room(&p) <= sizeof room);
            dist_improve(&p, prose[k], &goal, expert, &out);
            after += dist_place_ratio(&p, prose[k], expert) / 4;
            check_steps(&p, was, step, out.n);
            assert_memory_equal(expert, was, sizeof *expert * (size_t)p.n_slot);
        }
        print_message("%d ranks: %.3f, improved %.3f\n", of[i].rank, before, after);
        assert_true(after <= of[i].at_most && after < before);
    }
}

TEST(dist_improve_does_nothing_where_nothing_is_to_be_done)
{
    struct dist_experts p = {.n_expert = 8, .n_slot = 8, .n_rank = 2, .n_group = 1, .n_node = 1};
    static const uint64_t even[8] = {3, 3, 3, 3, 3, 3, 3, 3}, none[8] = {0},
                          one[8] = {9, 0, 0, 0, 0, 0, 0, 0};
    const uint64_t *load[] = {even, none, one};
    struct dist_goal goal = {1.05, LOADS}, no = {1.0, 0};
    struct dist_exchange step[LOADS];
    double room[16];
    struct dist_steps out = {step, 0, room};
    int32_t expert[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint64_t skewed[8] = {9, 9, 9, 9, 1, 1, 1, 1};
    for (int i = 0; i < BASE_COUNT_OF(load); i++) {
        dist_improve(&p, load[i], &goal, expert, &out);
        assert_int_equal(out.n, 0);
    }
    dist_improve(&p, skewed, &no, expert, &out);
    assert_int_equal(out.n, 0);
    dist_improve(&p, skewed, &goal, expert, &out);
    assert_int_equal(out.n, 2);
    assert_true(dist_place_ratio(&p, skewed, expert) <= 1.0);
}

/* ---- ranks that are not alike ---- */

/* Every expert has a slot, and no rank two of one. */
static void check_dealt(const struct dist_experts *p, const int32_t *expert)
{
    for (int e = 0; e < p->n_expert; e++)
        assert_true(copies(expert, p->n_slot, e) >= 1);
    for (int r = 0; r < p->n_rank; r++) {
        int at = dist_place_begin(p, r), n = dist_place_begin(p, r + 1) - at;
        assert_true(n >= 1);
        for (int i = 0; i < n; i++)
            assert_int_equal(copies(expert + at, n, expert[at + i]), 1);
    }
}

TEST(dist_place_deals_by_weight)
{
    static const uint16_t three[] = {3, 2, 1};
    struct dist_experts p = {
        .n_expert = 8, .n_slot = 8, .n_rank = 3, .n_group = 1, .n_node = 1, .weight = three};
    static const int32_t in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint64_t load[8] = {6, 6, 6, 6, 6, 6, 6, 6};
    int32_t got[8];
    double sum[3];
    sl_err err = {0};
    ASSERT_OK(dist_place(&p, NULL, got, &err)); /* what divides by nothing */
    assert_memory_equal(got, in_order, sizeof got);
    assert_true(dist_place_begin(&p, 0) == 0 && dist_place_begin(&p, 1) == 4 &&
                dist_place_begin(&p, 2) == 7 && dist_place_begin(&p, 3) == 8);
    ASSERT_OK(dist_place(&p, load, got, &err));
    check_dealt(&p, got);
    dist_place_loads(&p, load, got, sum);
    assert_true(sum[0] == 24 && sum[1] == 18 && sum[2] == 6);
    /* the second has 18 of 48, and its share is 16 */
    assert_true(fabs(dist_place_ratio(&p, load, got) - 18.0 / 16) < 1e-12);
}

TEST(dist_place_by_weight_is_even_and_stays_so)
{
    static const uint16_t weight[] = {5, 3, 3, 2, 2, 1, 1, 1};
    uint64_t rng = 17, load[256];
    double placed = 0, before = 0, after = 0;
    for (int trial = 0; trial < 10; trial++) {
        struct dist_experts p = {.n_expert = 256,
                                 .n_slot = 270,
                                 .n_rank = 8,
                                 .n_group = 1,
                                 .n_node = 1,
                                 .weight = weight};
        struct dist_goal goal = {1.05, LOADS};
        struct dist_exchange step[LOADS];
        double room[3 * 8 + 320];
        struct dist_steps out = {step, 0, room};
        int32_t expert[SLOTS], was[SLOTS];
        sl_err err = {0};
        draw_smooth(&rng, load, 256);
        ASSERT_OK(dist_place(&p, load, expert, &err));
        check_dealt(&p, expert);
        placed += dist_place_ratio(&p, load, expert) / 10;
        change_fifth(&rng, load, 256);
        before += dist_place_ratio(&p, load, expert) / 10;
        memcpy(was, expert, sizeof was);
        assert_true(dist_improve_room(&p) <= sizeof room);
        dist_improve(&p, load, &goal, expert, &out);
        after += dist_place_ratio(&p, load, expert) / 10;
        for (int i = 0; i < out.n; i++) {
            for (int k = 0; k < step[i].n; k++)
                was[step[i].slot[k]] = step[i].expert[k];
            check_dealt(&p, was);
        }
        assert_memory_equal(expert, was, sizeof *expert * (size_t)p.n_slot);
    }
    print_message("by weight: %.3f, changed %.3f, improved %.3f\n", placed, before, after);
    assert_true(placed <= 1.05 && after <= 1.10 && after < before);
}
