/* SPDX-License-Identifier: Apache-2.0 */
/* As many users as the limits allow: of a layout, of a search, of a row that states a limit. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/calib.h"
#include "plan/plan_internal.h"
#include "plan/search.h"
#include "plan_load.h"

static struct plan_case awq_tp8(struct plan_query *q)
{
    load();
    *q = (struct plan_query){.model = plan_find_model(&tables, "deepseek-r1"),
                             .dev = plan_find_device(&tables, "910b1"),
                             .cards = 8};
    q->kv_bits = 16, q->redundant = -1, q->hot = -1, q->engine = "", q->gen = 1, q->n_fmt = 1;
    assert_true(plan_format_find("awq", &q->fmt[0]));
    struct plan_case c = {.model = q->model, .dev = q->dev, .fmt = q->fmt[0], .kv_bits = 16};
    c.lay = (struct plan_layout){.cards = 8, .ranks = 8, .tp = 8, .pp = 1, .dp = 1, .ep = 1};
    plan_query_consts(&book, q, PLAN_MODE_TP, &c.fmt, &c.lay, &c.k);
    return c;
}

static bool below(void *user, double n)
{
    return n <= *(const double *)user;
}

static bool odd_hole(void *user, double n)
{
    (void)user;
    return n <= 100 && !(n > 3 && n < 6); /* 4 fails, 8, 16, 32, 64 hold */
}

TEST(plan_most_finds_the_last_that_holds)
{
    for (double want = 1; want < 70; want++)
        assert_true(plan_most(below, &want, 1e6) == want);
    double none = 0, all = 1e9;
    assert_true(plan_most(below, &none, 1e6) == 0);
    assert_true(plan_most(below, &all, 777) == 777);
    assert_true(plan_most(odd_hole, NULL, 1e6) == 100);
}

TEST(plan_users_grow_with_the_limit_and_hold_it)
{
    struct plan_query q;
    struct plan_case c = awq_tp8(&q);
    struct plan_result r;
    struct plan_load w = {.in = 1024, .out = 512};
    double last = 0;
    for (double ms = 22; ms < 140; ms *= 1.07) {
        struct plan_limits lim = {.tpot = ms * 1e-3};
        double n = plan_most_users(&c, &w, &lim);
        assert_true(n >= last);
        last = n;
        if (n < 1) continue;
        w.n = n;
        plan_eval(&c, &w, &r);
        assert_true(r.tpot <= lim.tpot && n <= r.mem.free_seq);
        bool full = n + 1 > r.mem.free_seq;
        w.n = n + 1;
        plan_eval(&c, &w, &r);
        assert_true(full || r.tpot > lim.tpot);
    }
    assert_true(last > 32);
}

TEST(plan_users_obey_every_limit)
{
    struct plan_query q;
    struct plan_case c = awq_tp8(&q);
    struct plan_load w = {.in = 4096, .out = 512};
    struct plan_result r;
    double n = plan_most_users(&c, &w, &(struct plan_limits){.tpot = 0.08});
    double both = plan_most_users(&c, &w, &(struct plan_limits){.ttft = 2, .tpot = 0.08});
    w.n = both;
    plan_eval(&c, &w, &r);
    assert_true(both >= 1 && both < n && r.ttft <= 2);
    assert_true(plan_most_users(&c, &w, &(struct plan_limits){.tpot = 0.08, .batch = 3}) == 3);
    assert_true(plan_most_users(&c, &w, &(struct plan_limits){.tpot = 1e-6}) == 0);
    double all = plan_most_users(&c, &w, &(struct plan_limits){.tpot = 1e6});
    plan_eval(&c, &w, &r);
    assert_true(all == r.mem.free_seq);
}

TEST(plan_search_without_users_fills_each_layout)
{
    struct plan_query q;
    struct plan_found f;
    sl_err err;
    awq_tp8(&q);
    q.load = (struct plan_load){.in = 1024, .out = 512};
    q.limit.tpot = 0.06;
    ASSERT_OK(plan_search(&book, &q, &arena, 5, &f, &err));
    assert_true(f.n_option > 0 && f.option[0].within && f.option[0].load.n > 8);
    for (int i = 0; i < f.n_option; i++)
        assert_true(!f.option[i].within || f.option[i].r.tpot <= 0.06);
    q.limit.tpot = 1e-6; /* nothing holds it: answered for one user, and said so */
    ASSERT_OK(plan_search(&book, &q, &arena, 5, &f, &err));
    assert_true(f.n_option > 0 && !f.option[0].within && f.option[0].load.n == 1);
}

static double rate_of(const char *layout, double cards, const char *metric, const char *note)
{
    struct plan_row r = {.cards = cards, .conc = NAN, .in = 2048, .out = 512, .value = 1};
    struct plan_setup s;
    load();
    snprintf(r.system, sizeof r.system, "vLLM");
    snprintf(r.model, sizeof r.model, "%s", cards > 1 ? "DeepSeek-R1" : "Qwen3-30B-A3B");
    snprintf(r.hardware, sizeof r.hardware, "%s", cards > 1 ? "Atlas 800I A2" : "H20 96GB");
    snprintf(r.layout, sizeof r.layout, "%s", layout);
    snprintf(r.metric, sizeof r.metric, "%s", metric);
    snprintf(r.note, sizeof r.note, "%s", note);
    if (plan_row_setup(&tables, &r, &s)) return NAN;
    plan_setup_fix(&s);
    plan_consts_for(&book, &s, &s.c.k);
    return plan_row_predict(&s);
}

TEST(plan_rows_with_a_limit_are_answered_for_the_most_users)
{
    static const char *const note[] = {"TPOT<=50 ms",         "TPOT \xe2\x89\xa4 50ms",
                                       "TPOT limit of 50 ms", "under 50 ms TPOT",
                                       "TPOT SLO 0.05 s",     "TPOT 50 ms"};
    double one = rate_of("TP1", 1, "output_throughput", "no limit");
    double want = rate_of("TP1", 1, "output_throughput", note[0]);
    assert_true(want > 3 * one);
    for (int i = 1; i < BASE_COUNT_OF(note); i++)
        assert_true(rate_of("TP1", 1, "output_throughput", note[i]) == want);
    assert_true(rate_of("TP1", 1, "output_throughput", "TPOT 50 ms; TTFT 300 ms") < want);
    assert_true(rate_of("TP1", 1, "output_throughput", "TPOT -36%, TTFT -38%") == one);
    double tpot = rate_of("TP1", 1, "TPOT", note[0]);
    assert_true(tpot > 40 && tpot <= 50);
    /* many cards: per card, whatever way the pool is written */
    double card =
        rate_of("Decode on 4 nodes, EP32", 32, "decode_throughput_per_card", "under 0.1 s TPOT");
    assert_true(card > 100);
    assert_true(rate_of("D: 1 instance, EP32", 32, "decode_throughput_per_card",
                        "under 0.1 s TPOT") == card);
    assert_true(isnan(rate_of("EP32", 32, "decode_throughput_per_card", "no limit")));
}
