/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of stages that are under way at the same time: which request is in which lane, and what
 * finishes them. (That answers have the bits of one rank is tests/sim/trials.c's.) */
#include <string.h>

#include "dist/dist_internal.h"
#include "engine/ranks.h"
#include "engine_tiny.h"

static sl_err err;

struct heard {
    int n_tok, n_end, n_error;
};

static void on_event(void *user, const sl_event *ev)
{
    struct heard *h = user;
    h->n_tok += ev->token >= 0;
    h->n_end += ev->finish != SL_FINISH_NONE;
    h->n_error += ev->finish == SL_FINISH_ERROR;
}

static sl_engine *open_engine(sl_model *m, const char *layout)
{
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 4,
                        .n_ctx = 128,
                        .n_seq_max = 6,
                        .n_chunk = 32,
                        .device = "cpu",
                        .layout = layout};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    return e;
}

static uint64_t submit(sl_engine *e, int first, int n_new, struct heard *h)
{
    int32_t ids[20];
    uint64_t id;
    for (int i = 0; i < BASE_COUNT_OF(ids); i++)
        ids[i] = (first * 31 + i * 7 + 3) % 200;
    sl_request q = {.ids = ids,
                    .n_ids = BASE_COUNT_OF(ids),
                    .max_tokens = n_new,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = h};
    ASSERT_OK(sl_submit(e, &q, &id, &err));
    return id;
}

static int under_way(const sl_engine *e)
{
    int n = 0;
    for (int i = 0; i < e->n_lane; i++)
        n += e->lane[i].under_way;
    return n;
}

static void steps(sl_engine *e, int n)
{
    for (int i = 0; i < n; i++)
        ASSERT_OK(sl_step(e, &err));
}

TEST(engine_lanes_are_under_way_together)
{
    sl_model *m = NULL;
    struct heard h = {0};
    ASSERT_OK(sl_model_open(tiny("q_gpt_oss.gguf"), NULL, &m, &err));
    sl_engine *e = open_engine(m, "pp=2");
    assert_int_equal(e->n_lane, 2);
    steps(e, 2);
    assert_int_equal(under_way(e), 0); /* nothing to do */
    for (int i = 0; i < 4; i++)
        submit(e, i, 60, &h);
    steps(e, 40);
    assert_int_equal(under_way(e), 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(e->lane[i].plan.n_item, 2);
    sl_stats a, b;
    sl_stats_get(e, &a);
    steps(e, 2); /* one of each lane */
    sl_stats_get(e, &b);
    assert_int_equal(b.n_step - a.n_step, 2);
    assert_int_equal(b.n_decode_tok - a.n_decode_tok, 4);
    uint64_t count[64];
    (void)sl_routed(e, 0, count, BASE_COUNT_OF(count)); /* other ranks are asked: between steps */
    assert_int_equal(under_way(e), 0);
    steps(e, 2);
    assert_int_equal(under_way(e), 2);
    int32_t text[3] = {1, 2, 3};
    ASSERT_OK(sl_score(e, text, 3, 2, no_rows, NULL, &err)); /* and so is this */
    while (sl_pending(e))
        steps(e, 1);
    assert_int_equal(under_way(e), 0);
    assert_int_equal(h.n_tok, 4 * 60);
    assert_int_equal(h.n_end, 4);
    assert_int_equal(h.n_error, 0);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_lanes_drop_what_was_cancelled_under_way)
{
    sl_model *m = NULL;
    struct heard h = {0}, gone = {0};
    ASSERT_OK(sl_model_open(tiny("llama2.gguf"), NULL, &m, &err));
    sl_engine *e = open_engine(m, "pp=2");
    uint64_t id = submit(e, 1, 100, &gone);
    submit(e, 2, 30, &h);
    steps(e, 7);
    assert_int_equal(under_way(e), 2);
    sl_cancel(e, id);
    steps(e, 1);
    int n = gone.n_tok;
    assert_int_equal(gone.n_end, 1);
    submit(e, 3, 30, &h); /* its slot and blocks are used again */
    while (sl_pending(e))
        steps(e, 1);
    assert_int_equal(gone.n_tok, n);
    assert_int_equal(h.n_tok, 60);
    assert_int_equal(under_way(e), 0);
    id = submit(e, 4, 100, &gone); /* nobody is left: what is under way is finished at once */
    steps(e, 4);
    sl_cancel(e, id);
    steps(e, 1);
    assert_int_equal(sl_pending(e), 0);
    assert_int_equal(under_way(e), 0);
    submit(e, 5, 100, &gone); /* and when the engine closes */
    steps(e, 5);
    sl_engine_close(e);
    assert_int_equal(gone.n_end, 3);
    sl_model_close(m);
}

/* Ends of ranks, and what their deadlines went by when the step under way began. */
struct deadlines {
    const sl_engine *e;
    const dist *end[2];
    int64_t longest[2];
    int n_cold, n_counted;
};

/* sl_engine.fault: sees every step begin and end. */
static sl_status on_run(void *user, bool wait, sl_err *why)
{
    struct deadlines *d = user;
    (void)why;
    for (int r = 0; r < 2; r++) {
        bool first = !d->n_counted && (d->e->cold || !wait);
        if (first) assert_int_equal(d->end[r]->longest_ns, 0);
        if (wait && d->e->cold) assert_int_equal(d->end[r]->longest_ns, d->longest[r]);
        if (wait && !d->e->cold) assert_true(d->end[r]->longest_ns > 0);
        d->longest[r] = d->end[r]->longest_ns;
    }
    d->n_cold += wait && d->e->cold;
    d->n_counted += wait && !d->e->cold;
    return SL_OK;
}

/* Blocks that are touched, and each shape's first step, move no deadline. */
TEST(engine_ranks_do_not_count_what_warms_up)
{
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny("llama2.gguf"), NULL, &m, &err));
    sl_engine *e = open_engine(m, "pp=2");
    struct deadlines d = {.e = e, .end = {e->ranks->end, e->ranks->rank[1].f.end}};
    e->fault = on_run;
    e->fault_user = &d;
    ASSERT_OK(sl_warm(e, &err));
    assert_true(d.n_cold > 0);
    assert_int_equal(d.n_counted, d.n_cold);
    assert_false(e->cold);
    e->fault = NULL;
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_lanes_are_one_where_passes_come_between)
{
    sl_model *m = NULL;
    ASSERT_OK(sl_model_open(tiny("llama2.gguf"), NULL, &m, &err));
    sl_engine *e = open_engine(m, NULL);
    assert_int_equal(e->n_lane, 1);
    sl_engine_close(e);
    assert_int_equal(setenv("SL_LANES", "1", 1), 0);
    e = open_engine(m, "pp=2");
    assert_int_equal(e->n_lane, 1);
    sl_engine_close(e);
    assert_int_equal(unsetenv("SL_LANES"), 0);
    sl_model_close(m);
}
