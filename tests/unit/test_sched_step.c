/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "sched/sched.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool pool;
    struct sched s;
};

static void rig_open(struct rig *r, struct sched_opts o, int n_blk, int blk_tok)
{
    ASSERT_OK(kv_pool_init(&r->pool, n_blk, blk_tok, &err));
    ASSERT_OK(sched_init(&r->s, &o, &r->pool, &err));
}

static void rig_close(struct rig *r)
{
    sched_fini(&r->s);
    assert_int_equal(r->pool.n_free, r->pool.n_blk);
    kv_pool_fini(&r->pool);
}

static int submit(struct rig *r, int n_prompt)
{
    int slot = -1;
    ASSERT_OK(sched_submit(&r->s, n_prompt, &slot, &err));
    return slot;
}

/* Push a token to every row that samples. */
static void answer(struct rig *r, const struct sched_plan *p)
{
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].sample) sched_push(&r->s, p->item[i].req);
    assert_int_equal(sched_check(&r->s), 0);
}

static const struct sched_opts small = {.n_req_max = 6, .n_run_max = 4, .n_chunk = 8, .n_ctx = 32};

TEST(sched_splits_a_prompt_into_chunks_and_samples_at_its_end)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    int a = submit(&r, 19);
    static const int len[] = {8, 8, 3, 1, 1};
    for (int i = 0, pos = 0; i < 5; i++) {
        const struct sched_plan *p = sched_step(&r.s);
        assert_int_equal(p->n_item, 1);
        assert_int_equal(p->item[0].req, a);
        assert_int_equal(p->item[0].pos0, pos);
        assert_int_equal(p->item[0].n_tok, len[i]);
        assert_int_equal(p->item[0].sample, i >= 2);
        pos += len[i];
        answer(&r, p);
    }
    rig_close(&r);
}

TEST(sched_mixes_decode_rows_with_prompt_chunks)
{
    struct rig r;
    rig_open(&r, small, 32, 4);
    int a = submit(&r, 5);
    answer(&r, sched_step(&r.s));
    int b = submit(&r, 20);
    for (int i = 0; i < 2; i++) {
        const struct sched_plan *p = sched_step(&r.s);
        assert_int_equal(p->n_item, 2);
        assert_int_equal(p->item[0].req, a);
        assert_int_equal(p->item[0].n_tok, 1);
        assert_int_equal(p->item[1].req, b);
        assert_int_equal(p->item[1].n_tok, 8); /* the budget counts prompt tokens only */
        assert_int_equal(p->n_decode, 1);
        answer(&r, p);
    }
    rig_close(&r);
}

TEST(sched_fills_the_chunk_with_several_prompts)
{
    struct rig r;
    rig_open(&r, small, 32, 4);
    submit(&r, 3);
    submit(&r, 3);
    submit(&r, 9);
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->n_item, 3);
    assert_int_equal(p->item[2].n_tok, 2);
    assert_int_equal(p->n_tok, 8);
    assert_false(p->item[2].sample);
    rig_close(&r);
}

TEST(sched_refuses_when_the_queue_is_full)
{
    struct rig r;
    int slot;
    rig_open(&r, small, 16, 4);
    for (int i = 0; i < 6; i++)
        submit(&r, 4);
    ASSERT_STATUS(sched_submit(&r.s, 4, &slot, &err), SL_BUSY);
    sched_finish(&r.s, 3, 0);
    ASSERT_OK(sched_submit(&r.s, 4, &slot, &err));
    assert_int_equal(slot, 3);
    rig_close(&r);
}

TEST(sched_preempts_the_youngest_and_computes_it_again)
{
    struct rig r;
    rig_open(&r, small, 8, 4); /* 32 tokens for all */
    int a = submit(&r, 8), b = submit(&r, 8);
    bool again = false;
    for (int i = 0; i < 60 && r.s.req[a].state != SCHED_FREE; i++) {
        const struct sched_plan *p = sched_step(&r.s);
        for (int k = 0; k < p->n_item; k++) {
            if (p->item[k].req == b && p->item[k].pos0 == 0 && r.s.req[b].n_preempt) {
                again = true;
                assert_true(r.s.req[b].n_known > 8);
            }
        }
        assert_int_equal(r.s.req[a].n_preempt, 0);
        answer(&r, p);
        if (r.s.req[a].n_known == 24) sched_finish(&r.s, a, 0);
    }
    assert_int_equal(r.s.req[a].state, SCHED_FREE);
    assert_true(r.s.req[b].n_preempt >= 1);
    for (int i = 0; i < 10 && !again; i++) {
        const struct sched_plan *p = sched_step(&r.s);
        again = p->n_item == 1 && p->item[0].req == b && p->item[0].pos0 == 0;
        answer(&r, p);
    }
    assert_true(again);
    rig_close(&r);
}

TEST(sched_admits_strictly_in_order)
{
    struct rig r;
    rig_open(&r, small, 8, 4);
    submit(&r, 8);
    answer(&r, sched_step(&r.s));
    int big = submit(&r, 30), tiny = submit(&r, 1);
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->n_item,
                     1); /* big does not fit beside the first, tiny must not overtake it */
    assert_int_equal(r.s.req[big].state, SCHED_WAITING);
    assert_int_equal(r.s.req[tiny].state, SCHED_WAITING);
    rig_close(&r);
}

TEST(sched_reuses_a_parked_sequence_and_evicts_it_when_blocks_are_needed)
{
    struct rig r;
    rig_open(&r, small, 8, 4);
    int a = submit(&r, 8);
    answer(&r, sched_step(&r.s));
    int run = r.s.req[a].run;
    sched_finish(&r.s, a, 100);
    assert_true(r.s.run[run].parked);
    assert_int_equal(r.pool.n_free, 6);
    int b = submit(&r, 12);
    sched_offer(&r.s, b, run, 6);
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->item[0].run, run);
    assert_int_equal(p->item[0].pos0, 6);
    assert_int_equal(p->item[0].n_tok, 6);
    assert_int_equal(r.s.req[b].n_reused, 6);
    answer(&r, p);
    sched_finish(&r.s, b, 100);
    int c = submit(&r, 32);
    p = sched_step(&r.s);
    assert_int_equal(p->item[0].req, c);
    assert_int_equal(r.s.run[run].parked && r.s.run[run].req < 0, false);
    assert_int_equal(sched_check(&r.s), 0);
    rig_close(&r);
}

TEST(sched_cancels_waiting_and_running_requests)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    int a = submit(&r, 8);
    int b = submit(&r, 20);
    sched_step(&r.s);
    sched_finish(&r.s, a, 0);
    sched_finish(&r.s, b, 0);
    assert_int_equal(r.pool.n_free, 16);
    assert_int_equal(sched_step(&r.s)->n_item, 0);
    assert_int_equal(sched_check(&r.s), 0);
    rig_close(&r);
}

TEST(sched_init_fails_cleanly_without_memory)
{
    struct kv_pool pool;
    int n_fail = 0;
    ASSERT_OK(kv_pool_init(&pool, 16, 4, &err));
    int64_t before = mem_used(MEM_MISC) + mem_used(MEM_KV);
    for (int k = 1; k < 50; k++) {
        struct sched s;
        mem_fail_at((uint64_t)k, 0);
        sl_status st = sched_init(&s, &small, &pool, &err);
        mem_fail_at(0, 0);
        if (!st) {
            sched_fini(&s);
            break;
        }
        n_fail++;
        assert_int_equal(st, SL_NOMEM);
        assert_int_equal(mem_used(MEM_MISC) + mem_used(MEM_KV), before);
    }
    assert_int_equal(n_fail, 5 + small.n_run_max);
    kv_pool_fini(&pool);
}
