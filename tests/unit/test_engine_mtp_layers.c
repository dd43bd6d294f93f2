/* SPDX-License-Identifier: Apache-2.0 */
/* Several MTP layers: layer j makes guess j, and those after the last are fed back. */
#include "engine_drafts.h"
#include "model/model_internal.h"
#include "test.h"

#define MODEL "mock=f32:" TEST_DATA "/mtp2"
#define N 20 /* tokens of the prompt */

static void fill(int32_t ids[N])
{
    for (int i = 0; i < N; i++)
        ids[i] = 5 + i * 37 % 300;
}

/* One pass of the prompt's N places; the likeliest token of the last. */
static int32_t pass(model *net, dev_kv *kv, int number, const int32_t *ids)
{
    int32_t pos[N], blk[N / ENGINE_BLK_TOK + 1], tok0[2] = {0, N}, n_prompt = N, last = N - 1;
    struct model_rows rows;
    for (int i = 0; i < N; i++)
        pos[i] = i;
    for (int i = 0; i < BASE_COUNT_OF(blk); i++)
        blk[i] = i;
    struct dev_step s = {.n_tok = N,
                         .n_seq = 1,
                         .n_row = 1,
                         .ids = ids,
                         .pos = pos,
                         .seq_tok0 = tok0,
                         .blk = {blk, blk},
                         .ld_blk = BASE_COUNT_OF(blk),
                         .n_prompt = &n_prompt,
                         .row_tok = &last,
                         .want = DEV_WANT_BEST,
                         .pass = number};
    ASSERT_OK(model_launch(net, kv, &s, &err));
    ASSERT_OK(model_wait(net, &rows, &err));
    return rows.best[0];
}

/* What the model's layers make of the prompt, one after another: the next token and two guesses. */
static void by_hand(sl_engine *e, int32_t want[3])
{
    int32_t ids[N + 2];
    fill(ids);
    for (int j = 0; j < 3; j++) {
        want[j] = pass(e->net, e->kv, j, ids + j);
        if (j < 2) ids[N + j] = want[j];
    }
}

TEST(engine_layer_j_makes_guess_j)
{
    sl_model *m;
    sl_engine *e;
    int32_t ids[N], want[3];
    struct answer a = {0};
    fill(ids);
    ASSERT_OK(open_most(MODEL, "mtp", 3, &m, &e));
    assert_true(e->net->mtp[0].head != e->net->head && e->net->mtp[1].head == e->net->mtp[0].head);
    assert_int_equal(model_n_mtp(e->net), 2);
    by_hand(e, want);
    sl_request q = {.ids = ids,
                    .n_ids = N,
                    .max_tokens = 40,
                    .ignore_eos = true,
                    .n_logprob = -1,
                    .on_event = on_event,
                    .user = &a};
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    ASSERT_OK(sl_step(e, &err));
    assert_int_equal(a.n, 1);
    assert_int_equal(a.id[0], want[0]);
    const struct request *r = e->req[engine_running(e, 0)];
    assert_int_equal(r->spec.n_offer, 3); /* the third is fed back */
    assert_int_equal(r->spec.offer[0], want[1]);
    assert_int_equal(r->spec.offer[1], want[2]);
    assert_int_not_equal(want[1], want[2]);
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    assert_int_equal(a.n, 40);
    assert_true(e->stats.n_draft[0] > 0);
    assert_true(e->stats.n_draft[2] >= e->stats.n_draft[0] - 3); /* but at the answer's end */
    sl_engine_close(e);
    sl_model_close(m);
}

TEST(engine_runs_no_layer_that_makes_no_draft)
{
    sl_model *m;
    sl_engine *e;
    int32_t ids[N];
    struct answer a = {0};
    fill(ids);
    ASSERT_OK(open_most(MODEL, "mtp", 1, &m, &e));
    sl_request q = {.ids = ids, .n_ids = N, .max_tokens = 40, .n_logprob = -1};
    q.on_event = on_event;
    q.user = &a;
    q.ignore_eos = true;
    ASSERT_OK(sl_submit(e, &q, NULL, &err));
    ASSERT_OK(sl_step(e, &err));
    assert_int_equal(e->req[engine_running(e, 0)]->spec.n_offer, 1);
    while (sl_pending(e))
        ASSERT_OK(sl_step(e, &err));
    sl_engine_close(e);
    sl_model_close(m);
}
