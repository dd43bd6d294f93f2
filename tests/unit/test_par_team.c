/* SPDX-License-Identifier: Apache-2.0 */
/* The worker team: every worker runs once, barriers hold, work is split completely. */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "par/par.h"

#define N_MAX 16

static par_team *open_team(int n)
{
    sl_err err;
    par_team *t = NULL;
    ASSERT_OK(par_open(&(struct par_opts){.n_worker = n, .no_solo = 1}, &t, &err));
    assert_int_equal(par_size(t), n);
    return t;
}

struct sums {
    par_team *team;
    int round;
    int64_t part[N_MAX]; /* plain memory: visible through the region's and the barrier's ordering */
    int64_t total[N_MAX];
};

static void add_up(void *arg, int w, int n)
{
    struct sums *s = arg;
    int64_t b, e;
    par_split(1000, w, n, &b, &e);
    s->part[w] = 0;
    for (int64_t i = b; i < e; i++)
        s->part[w] += i + s->round;
    par_barrier(s->team);
    s->total[w] = 0;
    for (int i = 0; i < n; i++)
        s->total[w] += s->part[i];
    par_barrier(s->team);
    s->part[w] = -1; /* nobody reads any more */
}

TEST(par_regions_and_barriers_order_plain_memory)
{
    for (int n = 1; n <= 9; n += n < 4 ? 1 : 5) {
        par_team *t = open_team(n);
        struct sums s = {.team = t};
        for (int round = 0; round < 500; round++) {
            s.round = round;
            par_run(t, add_up, &s);
            for (int i = 0; i < n; i++) {
                assert_int_equal(s.total[i], 999 * 1000 / 2 + 1000 * round);
                assert_int_equal(s.part[i], -1);
            }
        }
        par_close(t);
    }
}

TEST(par_workers_that_slept_wake_up)
{
    par_team *t;
    sl_err err;
    ASSERT_OK(par_open(&(struct par_opts){.n_worker = 3, .spin_ns = 1000, .no_solo = 1}, &t, &err));
    struct sums s = {.team = t};
    for (int round = 0; round < 200; round++) {
        s.round = round;
        par_run(t, add_up, &s);
        assert_int_equal(s.total[0], 999 * 1000 / 2 + 1000 * round);
        int64_t until =
            clock_now_ns() + (round % 4) * 100000; /* past the spin: workers are on the futex */
        while (clock_now_ns() < until) {
        }
    }
    par_close(t);
}

struct takes {
    struct par_counter counter;
    struct par_range range[N_MAX];
    int n, step, by_range;
    unsigned char seen[1000];
};

static void take_all(void *arg, int w, int n)
{
    struct takes *k = arg;
    int b, e;
    while (k->by_range
               ? par_range_take(k->range, w, n, (struct par_piece){k->step, 3 * k->step}, &b, &e)
               : par_take(&k->counter, k->n, k->step, &b, &e))
        for (int i = b; i < e; i++)
            k->seen[i]++; /* each item belongs to one taker */
}

TEST(par_counters_and_ranges_hand_out_each_item_once)
{
    static const int sizes[] = {0, 1, 7, 64, 1000};
    for (int n = 1; n <= 4; n++) {
        par_team *t = open_team(n);
        for (int c = 0; c < 5 * 3 * 2; c++) {
            struct takes k = {.n = sizes[c % 5], .step = 1 + 3 * (c / 5 % 3), .by_range = c / 15};
            atomic_store(&k.counter.next, 0);
            for (int w = 0; w < n; w++) {
                int64_t b, e;
                par_split(k.n, w, n, &b, &e);
                par_range_set(&k.range[w], (int)b, (int)e);
            }
            par_run(t, take_all, &k);
            for (int i = 0; i < 1000; i++)
                assert_int_equal(k.seen[i], i < k.n);
        }
        par_close(t);
    }
}

TEST(par_split_covers_without_overlap)
{
    for (int n_w = 1; n_w < 20; n_w++)
        for (int64_t n = 0; n < 100; n++) {
            int64_t at = 0, b, e;
            for (int w = 0; w < n_w; w++) {
                par_split(n, w, n_w, &b, &e);
                assert_int_equal(b, at);
                assert_true(e - b == n / n_w || e - b == n / n_w + 1);
                at = e;
            }
            assert_int_equal(at, n);
        }
}

TEST(par_open_reports_no_memory_and_bad_counts)
{
    sl_err err;
    par_team *t = NULL;
    int64_t before = mem_used(MEM_MISC);
    int failed = 0;
    for (unsigned k = 1;; k++) {
        uint64_t n_alloc = mem_n_alloc();
        mem_fail_at(k, 0);
        sl_status st = par_open(&(struct par_opts){.n_worker = 2}, &t, &err);
        mem_fail_at(0, 0);
        if (mem_n_alloc() - n_alloc < k) break; /* there is no k-th */
        if (st == SL_OK) {                      /* without a list of CPUs the team is not pinned */
            par_close(t);
            continue;
        }
        failed++;
        ASSERT_STATUS(st, SL_NOMEM);
        assert_int_equal(mem_used(MEM_MISC), before);
    }
    assert_true(failed >= 2);
    par_close(t);
    assert_int_equal(mem_used(MEM_MISC), before);
    ASSERT_STATUS(par_open(&(struct par_opts){.n_worker = 100000}, &t, &err), SL_LIMIT);
    par_close(NULL);
}

static void nothing(void *arg, int w, int n)
{
    (void)arg;
    (void)w;
    (void)n;
}

/* More workers than CPUs: a bound that a spinning team misses by far (each region would cost time
 * slices). */
TEST(par_crowded_team_is_not_starved)
{
    int n = 4 * (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (n > N_MAX) n = N_MAX;
    par_team *t = open_team(n);
    int64_t t0 = clock_now_ns();
    for (int i = 0; i < 200; i++)
        par_run(t, nothing, NULL);
    double us = (double)(clock_now_ns() - t0) / 200e3;
    print_message("          empty region, %d workers: %.2f us\n", n, us);
    assert_true(us < 20000);
    par_close(t);
    t = open_team(2);
    double best = 1e30;
    for (int r = 0; r < 50; r++) {
        t0 = clock_now_ns();
        for (int i = 0; i < 200; i++)
            par_run(t, nothing, NULL);
        double us2 = (double)(clock_now_ns() - t0) / 200e3;
        if (us2 < best) best = us2;
    }
    print_message("          empty region, 2 workers: %.2f us at best\n", best);
    assert_true(best < 2000);
    par_close(t);
}

static void count_workers(void *arg, int w, int n)
{
    int *count = arg;
    int64_t until = clock_now_ns() + 100000;
    while (clock_now_ns() < until) {
    }
    count[w] = n;
}

/* Whether a region runs on all workers or on the caller alone, it is told so and is run whole. */
TEST(par_adaptive_regions_are_whole)
{
    sl_err err;
    par_team *t;
    ASSERT_OK(par_open(&(struct par_opts){.n_worker = 4}, &t, &err));
    struct sums s = {.team = t};
    int n_alone = 0;
    for (int round = 0; round < 3000; round++) {
        int count[4] = {0};
        par_run(t, count_workers, count);
        n_alone += count[0] == 1;
        for (int w = 0; w < 4; w++)
            assert_int_equal(count[w], w < count[0] ? count[0] : 0);
        s.round = round;
        par_run(t, add_up, &s);
        assert_int_equal(s.total[0], 999 * 1000 / 2 + 1000 * round);
    }
    print_message("          %d of 3000 regions alone\n", n_alone);
    par_close(t);
}
