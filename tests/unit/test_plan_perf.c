/* SPDX-License-Identifier: Apache-2.0 */
/* The performance model: monotone where physics is, never NaN, and its parts. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "plan/calib.h"
#include "plan/csv.h"
#include "plan/search.h"
#include "plan_load.h"

static struct plan_query query(const char *m, const char *d, int cards)
{
    load();
    struct plan_query q = {
        .model = plan_find_model(&tables, m), .dev = plan_find_device(&tables, d), .cards = cards};
    assert_non_null(q.model);
    assert_non_null(q.dev);
    assert_true(plan_format_find("awq", &q.fmt[0]));
    q.n_fmt = 1, q.kv_bits = 16, q.redundant = -1, q.mtp = 0, q.hot = -1, q.engine = "", q.gen = 1;
    q.load = (struct plan_load){.n = 8, .in = 4096, .out = 512};
    return q;
}

static struct plan_case tp8(struct plan_query *q)
{
    struct plan_case c = {.model = q->model, .dev = q->dev, .fmt = q->fmt[0], .kv_bits = 16};
    c.lay = (struct plan_layout){.cards = 8, .ranks = 8, .tp = 8, .pp = 1, .dp = 1, .ep = 1};
    plan_query_consts(&book, q, PLAN_MODE_TP, &c.fmt, &c.lay, &c.k);
    return c;
}

TEST(plan_step_grows_with_batch_and_context)
{
    struct plan_query q = query("deepseek-r1", "910b1", 8);
    struct plan_case c = tp8(&q);
    struct plan_time a, b;
    for (double n = 1; n < 256; n *= 2) {
        plan_step(&c, n, 1024, &a);
        plan_step(&c, 2 * n, 1024, &b);
        assert_true(b.total >= a.total && b.total <= 2.2 * a.total);
        plan_step(&c, n, 16384, &b);
        assert_true(b.total > a.total && b.weights == a.weights);
    }
}

TEST(plan_every_layout_of_every_model_gives_numbers)
{
    load();
    static const char *const devs[] = {"910b1",  "cloudmatrix", "h20",  "rtx 4090",
                                       "mi300x", "m3 ultra",    "950dt"};
    sl_err err;
    for (int i = 0; i < tables.n_model; i++) {
        for (int d = 0; d < BASE_COUNT_OF(devs); d++) {
            struct plan_query q = query(tables.model[i].name, devs[d], 16);
            struct plan_found f;
            q.host = plan_find_host(&tables, "epyc 9654");
            q.mtp = -1;
            ASSERT_OK(plan_search(&book, &q, &arena, 4, &f, &err));
            for (int k = 0; k < f.n_option; k++) {
                const struct plan_result *r = &f.option[k].r;
                assert_true(isfinite(r->ttft) && r->ttft > 0 && isfinite(r->tpot) && r->tpot > 0);
                assert_true(isfinite(r->out_tps) && r->out_tps > 0 &&
                            isfinite(f.option[k].card_tps));
                assert_true(f.option[k].r.mem.weights > 0 && f.option[k].r.mem.free_seq >= 1);
            }
            assert_true(f.n_option > 0 || f.n_reject > 0);
        }
    }
    mem_arena_fini(&arena);
    memset(&tables, 0, sizeof tables);
}

TEST(plan_burst_explains_why_a_long_prompt_slows_decode)
{
    struct plan_query q = query("deepseek-r1", "910b1", 8);
    struct plan_case c = tp8(&q);
    struct plan_result a, b;
    plan_eval(&c, &(struct plan_load){.n = 16, .in = 128, .out = 512}, &a);
    plan_eval(&c, &(struct plan_load){.n = 16, .in = 4096, .out = 512}, &b);
    assert_true(b.tpot > a.tpot * 1.1); /* published: 60.4 and 74.6 ms */
    assert_true(fabs(a.tpot - 60.4e-3) < 0.12 * 60.4e-3);
    assert_true(fabs(b.tpot - 74.6e-3) < 0.12 * 74.6e-3);
}

TEST(plan_poisson_is_unstable_past_its_capacity)
{
    struct plan_query q = query("deepseek-r1", "910b1", 8);
    struct plan_case c = tp8(&q);
    struct plan_result a, b;
    plan_eval(&c, &(struct plan_load){.n = 1, .in = 2048, .out = 256, .rate = 0.2}, &a);
    plan_eval(&c, &(struct plan_load){.n = 1, .in = 2048, .out = 256, .rate = 50}, &b);
    assert_true(a.stable && !b.stable && isfinite(b.ttft) && isfinite(b.tpot));
    assert_true(fabs(a.out_tps - 0.2 * 256) < 1e-6);
}

TEST(plan_split_frees_decode_from_prefill)
{
    struct plan_query q = query("deepseek-r1", "cloudmatrix", 160);
    struct plan_case c = {.model = q.model, .dev = q.dev, .kv_bits = 16};
    struct plan_result mixed, split;
    assert_true(plan_format_find("int8", &c.fmt));
    c.lay =
        (struct plan_layout){.cards = 160, .ranks = 320, .tp = 1, .pp = 1, .dp = 320, .ep = 320};
    plan_query_consts(&book, &q, PLAN_MODE_EP, &c.fmt, &c.lay, &c.k);
    struct plan_load w = {.in = 4096, .out = 1024, .rate = 80};
    plan_eval(&c, &w, &mixed);
    c.lay.n_p = 11, c.lay.n_d = 9;
    plan_eval(&c, &w, &split);
    assert_true(split.stable && split.tpot < mixed.tpot);
}

TEST(plan_chunked_prefill_gives_first_tokens_in_order)
{
    struct plan_query q = query("qwen3-32b", "h20", 8);
    struct plan_case c = tp8(&q);
    struct plan_result a, b;
    c.lay.chunk = 512;
    plan_eval(&c, &(struct plan_load){.n = 8, .in = 2048, .out = 64, .chunked = true}, &a);
    plan_eval(&c, &(struct plan_load){.n = 16, .in = 2048, .out = 64, .chunked = true}, &b);
    assert_true(a.ttft > 0 && b.ttft > a.ttft && b.e2e > a.e2e && a.e2e > a.ttft);
}

TEST(plan_mtp_verification_costs_what_was_published)
{
    static const double want[] = {1,     1.076, 1.146,
                                  1.237, 1.355, 1.398}; /* batch 1, B200, k = 0..5 */
    struct plan_query q = query("deepseek-r1", "b200", 8);
    q.gen = 2;
    struct plan_case c = tp8(&q);
    struct plan_time t0, t;
    assert_true(plan_format_find("nvfp4", &c.fmt));
    plan_step(&c, 1, 2048, &t0);
    for (int k = 1; k <= 5; k++) {
        c.lay.mtp = k;
        plan_step(&c, 1, 2048, &t);
        assert_true(fabs(t.total / t0.total / want[k] - 1) < 0.25);
    }
}

/* Sparse attention: every query gathers a top k of its own and is scored against the whole context;
 * the score costs by the keys, is not split by TP, and costs more the larger k is. */
TEST(plan_sparse_attention_pays_for_its_index)
{
    struct plan_query q = query("deepseek-v3.2", "cloudmatrix", 64);
    struct plan_query dense = query("deepseek-v3", "cloudmatrix", 64);
    struct plan_case c = {.model = q.model, .dev = q.dev, .kv_bits = 8};
    struct plan_time a, b, d;
    assert_true(plan_format_find("int8", &c.fmt));
    c.lay = (struct plan_layout){.cards = 64, .ranks = 128, .tp = 1, .pp = 1, .dp = 128, .ep = 128};
    c.lay.mtp = 3;
    plan_query_consts(&book, &q, PLAN_MODE_EP, &c.fmt, &c.lay, &c.k);
    plan_step(&c, 512, 65536, &a);
    plan_step(&c, 512, 131072, &b);
    double slope = (b.attn - a.attn) / 65536; /* 61 layers, 16 queries, 64 heads of 128 */
    assert_true(fabs(slope / (61 * 16 * 2 * 64 * 128.0 / (0.2 * 752e12)) - 1) < 1e-6);
    c.model = dense.model;
    plan_step(&c, 512, 131072, &d);
    assert_true(b.attn < 0.35 * d.attn); /* and is still far cheaper than all of the context */
    c.model = q.model, c.lay.tp = 4, c.lay.dp = 32;
    plan_step(&c, 128, 131072, &d);
    assert_true(d.attn > slope * 131072); /* the index is on every rank of a TP group */
    struct plan_model half = *q.model;
    half.index_topk = 1024, c.model = &half;
    plan_step(&c, 128, 131072, &b);
    assert_true(b.attn < 0.6 * d.attn);
}

/* A prompt's products cost whole tiles once an expert gets more rows than the smallest one has:
 * from 512 tokens on, R1's 256 experts compute as long as for 4096. Launching goes on beside it. */
TEST(plan_prompts_cost_whole_tiles_and_hide_launches)
{
    struct plan_query q = query("deepseek-r1", "910b1", 8);
    struct plan_case c = tp8(&q);
    struct plan_time a, b, e;
    plan_prefill(&c, 1, 512, 0, &a);
    plan_prefill(&c, 1, 640, 0, &b);
    assert_true(b.compute > 2 * a.compute);
    plan_prefill(&c, 1, 2048, 0, &e);
    assert_true(e.compute < 1.5 * b.compute);
    plan_prefill(&c, 1, 16384, 0, &a);
    plan_prefill(&c, 1, 32768, 0, &b);
    assert_true(b.compute > 1.99 * a.compute);
    c.k.v[PLAN_T0] = 0;
    plan_prefill(&c, 1, 16384, 0, &b);
    c.k.v[PLAN_T0] = 0.2; /* hidden: far less than it takes alone */
    plan_prefill(&c, 1, 16384, 0, &a);
    assert_true(a.total > b.total && a.total < b.total + 0.02);
}

/* Four A2 nodes: a token goes once to each of its nodes, then to its ranks, where that is less than
 * all ranks gathering all tokens; prompts are gathered. */
TEST(plan_tokens_cross_a2_nodes_once)
{
    struct plan_query q = query("deepseek-r1", "910b2", 32);
    struct plan_case c = {.model = q.model, .dev = q.dev, .kv_bits = 16};
    struct plan_time t;
    assert_true(plan_format_find("int8", &c.fmt));
    c.lay = (struct plan_layout){.cards = 32, .ranks = 32, .tp = 1, .pp = 1, .dp = 32, .ep = 32};
    c.lay.balanced = true;
    plan_query_consts(&book, &q, PLAN_MODE_EP, &c.fmt, &c.lay, &c.k);
    plan_step(&c, 2560, 2048, &t);
    double near = 0.875 / 196e9, far = 1 / 25e9;
    double gather = 2560 * (0.125 * 0.75 * far + near), once = 80 * 3 * far + 2560 * 0.25 * near;
    assert_true(once < gather);
    assert_true(fabs(t.comm / (58 * (120e-6 + 3 * 7168 * once)) - 1) < 1e-3);
}

TEST(plan_one_batch_passes_all_stages_where_an_engine_fills_them_late)
{
    struct plan_query q = query("deepseek-r1", "h20", 16);
    struct plan_case c = tp8(&q);
    struct plan_time a, b;
    c.lay.pp = 2, c.lay.ranks = 16, c.lay.cards = 16;
    plan_step(&c, 64, 1024, &a);
    c.lay.pp_batch = 128;
    plan_step(&c, 64, 1024, &b);
    assert_true(b.total > a.total); /* 64 rows in one pass, not 32 in two */
    plan_step(&c, 256, 1024, &a);
    plan_step(&c, 128, 1024, &b);
    assert_true(a.total < 1.05 * b.total); /* the second half is a second micro-batch */
}

TEST(plan_search_is_fast_and_explains_every_exclusion)
{
    struct plan_query q = query("deepseek-r1", "910b1", 8);
    struct plan_found f;
    sl_err err;
    assert_true(plan_format_find("int8", &q.fmt[0]));
    ASSERT_OK(plan_search(&book, &q, &arena, 5, &f, &err));
    assert_int_equal(f.n_option, 0);
    assert_true(f.n_reject > 0 && strlen(f.cure) > 10);
    for (int i = 0; i < f.n_reject; i++)
        assert_true(f.reject[i].over > 0 && strstr(f.reject[i].why, "too many"));
}

TEST(plan_layouts_are_read)
{
    struct plan_query q = {0};
    char why[160];
    assert_true(plan_layout_parse("tp4dp8ep32", &q, why, sizeof why));
    assert_true(q.tp == 4 && q.dp == 8 && q.ep == 32 && q.pp == 0);
    assert_false(plan_layout_parse("tp", &q, why, sizeof why));
    assert_false(plan_layout_parse("tp99999999999", &q, why, sizeof why));
    assert_false(plan_layout_parse("quux", &q, why, sizeof why));
    assert_true(plan_layout_parse("tp=2,weight=3:1,pp=2", &q, why, sizeof why));
    assert_true(q.tp == 2 && q.pp == 2 && q.n_weight == 2 && q.weight[0] == 3 && q.weight[1] == 1);
    static const char *const bad[] = {"weight=", "weight=3:", "weight=0:1", "weight=1001"};
    for (int i = 0; i < BASE_COUNT_OF(bad); i++) {
        assert_false(plan_layout_parse(bad[i], &q, why, sizeof why));
        assert_non_null(strstr(why, "weights are numbers from 1 to 1000"));
    }
}

static double bowl(void *user, const double *x)
{
    int *calls = user;
    ++*calls;
    return (x[0] - 3) * (x[0] - 3) + 10 * (x[1] + 1) * (x[1] + 1) + x[0] * x[1];
}

TEST(plan_minimise_finds_the_bottom)
{
    int calls = 0;
    double x[2] = {0, 0}, step[2] = {0.5, 0.5};
    plan_minimise(bowl, &calls, x, step, 2, 600);
    /* gradient zero: 2x - 6 + y = 0, 20y + 20 + x = 0 */
    assert_true(fabs(2 * x[0] - 6 + x[1]) < 1e-4 && fabs(20 * x[1] + 20 + x[0]) < 1e-4);
    assert_true(calls <= 610);
}

TEST(plan_csv_numbers_of_data_sheets)
{
    static const char text[] = "a,b,c,d,e\n378 estimate (FP16 400),~4000,180-192,none (no "
                               "units),80 / 40\n\"x\"\"y\",1e400,,,\n";
    struct plan_csv c;
    sl_err err;
    bool more;
    double v;
    static const double want[] = {378, 4000, 186, -1, 80};
    ASSERT_OK(plan_csv_open(&c, (struct plan_bytes){"t", text, sizeof text - 1}, &err));
    ASSERT_OK(plan_csv_next(&c, &more, &err));
    for (int i = 0; i < 5; i++) {
        char col[2] = {(char)('a' + i), 0};
        ASSERT_OK(plan_csv_num(&c, col, PLAN_NUM(-1, -10, 1e6), &v, &err));
        assert_true(v == want[i]);
    }
    ASSERT_OK(plan_csv_next(&c, &more, &err));
    assert_string_equal(plan_csv_text(&c, "a"), "x\"y");
    ASSERT_STATUS(plan_csv_num(&c, "a", PLAN_NUM(0, 0, 1), &v, &err), SL_FORMAT);
    ASSERT_STATUS(plan_csv_num(&c, "b", PLAN_NUM(0, 0, 1), &v, &err), SL_FORMAT);
    ASSERT_OK(plan_csv_next(&c, &more, &err));
    assert_false(more);
}

TEST(plan_constants_survive_writing_and_reading)
{
    struct str s;
    sl_err err;
    struct plan_book again;
    load();
    str_init(&s, MEM_MISC, 0);
    plan_book_write(&book, &s);
    ASSERT_OK(str_status(&s, &err));
    ASSERT_OK(plan_book_read(&again, &arena, (struct plan_bytes){"c", s.p, s.n}, &err));
    assert_int_equal(again.n_set, book.n_set);
    for (int i = 0; i < book.n_set; i++) {
        for (int k = 0; k < PLAN_KEYS; k++) {
            double a = book.set[i].k.v[k], b = again.set[i].k.v[k];
            assert_true(fabs(a - b) <= 1e-8 * fabs(a));
        }
        assert_true(again.set[i].k.fitted == book.set[i].k.fitted);
    }
    str_fini(&s);
}
