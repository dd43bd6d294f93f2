/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with sequences of their own: where requests go, what users are told of sizes, and what each
 * rank has. (That answers have the bits of one rank is tests/sim/trials.c's and check_layout.py's.)
 */
#include <string.h>

#include "engine/engine_internal.h"
#include "engine_tiny.h"

#define N_PROMPT 100

static sl_err err;

static void on_event(void *user, const sl_event *ev)
{
    int *n = user;
    if (ev->finish == SL_FINISH_ERROR) fail_msg("%s", ev->error);
    *n += ev->token >= 0;
}

static sl_engine *open_engine(sl_model *m, const char *layout)
{
    sl_engine *e = NULL;
    sl_engine_opts o = {.n_thread = 2,
                        .n_ctx = 256,
                        .n_seq_max = 5,
                        .n_chunk = 33,
                        .kv_tokens = 1000,
                        .device = "cpu",
                        .layout = layout};
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    return e;
}

/* A prompt of that beginning; its slot's request is live afterwards. */
static const struct request *submit(sl_engine *e, int first, int n, int n_new, int *n_tok)
{
    int32_t ids[N_PROMPT];
    uint64_t id;
    for (int i = 0; i < n; i++)
        ids[i] = (first * 31 + i * 7 + 3) % 200;
    sl_request q = {.ids = ids,
                    .n_ids = n,
                    .max_tokens = n_new,
                    .ignore_eos = 1,
                    .on_event = on_event,
                    .user = n_tok};
    ASSERT_OK(sl_submit(e, &q, &id, &err));
    engine_intake(e);
    return e->req[id & (((uint64_t)1 << ENGINE_SLOT_BITS) - 1)];
}

static void finish(sl_engine *e)
{
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
}

TEST(engine_homes_share_work_and_keep_prefixes)
{
    sl_model *m = NULL;
    int n_tok = 0;
    ASSERT_OK(sl_model_open(tiny("deepseek_v2_lite"), NULL, &m, &err));
    sl_engine *e = open_engine(m, "dp=2,ep=2");
    int a = submit(e, 1, N_PROMPT, 4, &n_tok)->home, b = submit(e, 2, 90, 4, &n_tok)->home;
    assert_int_equal(a, 0);                                 /* equal: the lower */
    assert_int_equal(b, 1);                                 /* where nothing is */
    assert_int_equal(submit(e, 2, 95, 4, &n_tok)->home, 1); /* begins like one that is there */
    finish(e);
    assert_int_equal(n_tok, 12);
    assert_int_equal(submit(e, 1, 98, 4, &n_tok)->home, 0); /* in the trees */
    assert_int_equal(submit(e, 2, 98, 4, &n_tok)->home, 1);
    finish(e);
    sl_stats st;
    sl_stats_get(e, &st);
    assert_true(st.cache_hit_tok >= 3 * 64);
    /* no prefix weighs more than a long queue */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(submit(e, 1, 98, 40, &n_tok)->home, 0);
        ASSERT_OK(sl_step(e, &err));
    }
    bool other = false;
    for (int i = 0; i < 12; i++)
        other = submit(e, 1, 98, 2, &n_tok)->home == 1 || other;
    assert_true(other);
    finish(e);
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_homes_add_up)
{
    sl_model *m = NULL;
    int n_tok = 0;
    ASSERT_OK(sl_model_open(tiny("deepseek_v2_lite"), NULL, &m, &err));
    sl_engine *one = open_engine(m, NULL), *two = open_engine(m, "dp=2,ep=2");
    sl_engine_info a, b;
    sl_rank_stat r[2];
    sl_engine_info_get(one, &a);
    sl_engine_info_get(two, &b);
    assert_int_equal(a.kv_tokens, 1024);
    assert_int_equal(b.kv_tokens, 2 * 512); /* of 500 each, in blocks of 32 */
    assert_int_equal(b.n_seq_max, 6);
    assert_int_equal(b.n_ctx, 256);
    assert_int_equal(b.kv_bytes, a.kv_bytes);
    assert_int_equal(two->opts.n_chunk, 34);
    assert_true(b.bytes_per_token <= a.bytes_per_token + 2);
    submit(two, 1, 90, 4, &n_tok);
    submit(two, 2, 90, 4, &n_tok);
    submit(two, 3, 30, 4, &n_tok);
    for (int i = 0; i < 4; i++)
        ASSERT_OK(sl_step(two, &err));
    assert_int_equal(sl_ranks(two, r, 2), 2);
    sl_stats st;
    sl_stats_get(two, &st);
    assert_int_equal(r[0].n_running + r[1].n_running, st.n_running);
    assert_true(r[0].n_running > 0 && r[1].n_running > 0);
    assert_int_equal(r[0].kv_total_tok + r[1].kv_total_tok, b.kv_tokens);
    assert_int_equal(r[0].kv_used_tok + r[1].kv_used_tok, st.kv_used_tok);
    assert_int_equal(st.kv_total_tok, b.kv_tokens);
    finish(two);
    uint64_t n[2][64];
    for (int il = 0; il < 2; il++) { /* every token is counted once */
        int n_expert = sl_routed(two, il, n[0], 64);
        uint64_t sum = 0;
        for (int i = 0; i < n_expert; i++)
            sum += n[0][i];
        if (n_expert)
            assert_int_equal(sum, (90 + 90 + 30 + 3 * 3) * (uint64_t)m->cfg.n_expert_used);
    }
    sl_engine_close(one);
    sl_engine_close(two);
    sl_model_close(m);
}

TEST(engine_combine_is_checked)
{
    sl_model *m = NULL;
    sl_engine *e = NULL;
    ASSERT_OK(sl_model_open(tiny("smollm"), NULL, &m, &err));
    sl_engine_opts o = {.n_thread = 1, .n_ctx = 64, .combine = "q8"};
    assert_int_equal(sl_engine_open(m, &o, &e, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "has no experts that are chosen"));
    o.combine = "fp8";
    assert_int_equal(sl_engine_open(m, &o, &e, &err), SL_REQUEST);
    assert_non_null(strstr(err.text, "f32, bf16 or q8"));
    o.combine = "f32";
    ASSERT_OK(sl_engine_open(m, &o, &e, &err));
    sl_engine_close(e);
    sl_model_close(m);
}
