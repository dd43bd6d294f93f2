/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler puts into a step: answers first, chunks, preemption, fairness. */
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
    assert_int_equal(kv_pool_avail(&r->pool), r->pool.n_blk);
    kv_pool_fini(&r->pool);
}

static int submit_as(struct rig *r, struct sched_new q)
{
    int slot = 0;
    while (r->s.req[slot].state != SCHED_FREE)
        slot++;
    sched_submit(&r->s, slot, &q);
    return slot;
}

static int submit(struct rig *r, int n_prompt)
{
    return submit_as(r, (struct sched_new){.n_prompt = n_prompt, .fork_of = -1});
}

/* Push a token to every row that samples. */
static void answer(struct rig *r, const struct sched_plan *p)
{
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].sample) sched_accept(&r->s, p->item[i].req, 0);
    assert_int_equal(sched_check(&r->s), 0);
}

static const struct sched_opts small = {
    .n_req_max = 6, .n_run_max = 4, .n_chunk = 8, .n_ctx = 32, .n_row_max = 8};

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

TEST(sched_lets_a_short_prompt_pass_a_long_one_that_keeps_half_of_the_chunk)
{
    struct rig r;
    struct sched_opts o = small;
    o.n_chunk = 32;
    o.n_ctx = 256;
    rig_open(&r, o, 128, 4);
    int big = submit(&r, 200);
    answer(&r, sched_step(&r.s));
    int brief = submit(&r, 10);
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->n_item, 2);
    assert_int_equal(p->item[0].req, big);
    assert_int_equal(p->item[0].n_tok, 22); /* half, and what the other leaves */
    assert_int_equal(p->item[1].req, brief);
    assert_true(p->item[1].sample);
    rig_close(&r);
}

TEST(sched_serves_owners_in_turn)
{
    struct rig r;
    struct sched_opts o = {
        .n_req_max = 40, .n_run_max = 1, .n_chunk = 8, .n_ctx = 32, .n_row_max = 4};
    int n_mine = 0, pos = -1;
    rig_open(&r, o, 16, 4);
    for (int i = 0; i < 30; i++)
        submit_as(&r, (struct sched_new){.n_prompt = 8, .owner = 1, .fork_of = -1});
    for (int i = 0; i < 3; i++)
        submit_as(&r, (struct sched_new){.n_prompt = 8, .owner = 2, .fork_of = -1});
    for (int i = 0; i < 33; i++) {
        const struct sched_plan *p = sched_step(&r.s);
        assert_int_equal(p->n_item, 1);
        int slot = p->item[0].req;
        n_mine += slot >= 30;
        if (n_mine == 3 && pos < 0) pos = i;
        sched_finish(&r.s, slot);
    }
    assert_int_equal(n_mine, 3);
    assert_true(pos <= 6); /* they came last and are done among the first */
    rig_close(&r);
}

TEST(sched_takes_higher_priorities_first_and_lets_nobody_starve)
{
    struct rig r;
    struct sched_opts o = {
        .n_req_max = 6, .n_run_max = 1, .n_chunk = 8, .n_ctx = 32, .n_row_max = 4};
    rig_open(&r, o, 8, 4);
    int64_t now = 0;
    int low = submit_as(&r, (struct sched_new){.n_prompt = 8, .priority = -1, .fork_of = -1});
    answer(&r, sched_step(&r.s));
    assert_int_equal(r.s.req[low].state, SCHED_RUNNING);
    int high = submit_as(&r, (struct sched_new){.n_prompt = 8, .priority = 1, .fork_of = -1});
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->item[0].req, high); /* displaces it at once */
    assert_int_equal(r.s.req[low].n_preempt, 1);
    bool low_ran = false;
    for (int i = 0; i < 40 && !low_ran; i++) { /* newcomers of the higher one never end */
        sched_finish(&r.s, r.s.active[0]);
        now += SCHED_AGE_NS / 4;
        submit_as(&r,
                  (struct sched_new){.n_prompt = 8, .priority = 1, .now_ns = now, .fork_of = -1});
        p = sched_step(&r.s);
        low_ran = p->item[0].req == low;
        assert_int_equal(sched_check(&r.s), 0);
    }
    assert_true(low_ran);
    rig_close(&r);
}

TEST(sched_finds_what_is_over_its_time)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    int a = submit_as(&r, (struct sched_new){.n_prompt = 4, .deadline_ns = 100, .fork_of = -1});
    answer(&r, sched_step(&r.s));
    int b = submit_as(&r, (struct sched_new){.n_prompt = 4, .deadline_ns = 50, .fork_of = -1});
    assert_int_equal(sched_expired(&r.s, 49), -1);
    assert_int_equal(sched_expired(&r.s, 50), b);
    sched_finish(&r.s, b);
    assert_int_equal(sched_expired(&r.s, 99), -1);
    assert_int_equal(sched_expired(&r.s, 100), a);
    rig_close(&r);
}

TEST(sched_forks_samples_from_one_prompt)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    int a = submit(&r, 6);
    int b = submit_as(&r, (struct sched_new){.n_prompt = 6, .fork_of = a});
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->n_item, 1); /* b waits for the prompt */
    assert_true(p->item[0].sample);
    assert_true(sched_fork(&r.s, a, b));
    assert_int_equal(r.pool.n_free, 14);
    sched_accept(&r.s, a, 0);
    sched_accept(&r.s, b, 0);
    p = sched_step(&r.s);
    assert_int_equal(p->n_item, 2);
    assert_int_equal(p->item[0].copy_src >= 0, 1); /* the first to write copies the tail */
    assert_int_equal(p->item[1].copy_src, -1);
    assert_int_equal(r.pool.n_free, 13);
    answer(&r, p);
    sched_finish(&r.s, a);
    answer(&r, sched_step(&r.s));
    rig_close(&r);
}

TEST(sched_samples_wait_no_longer_when_the_first_is_gone)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    int a = submit(&r, 20);
    int b = submit_as(&r, (struct sched_new){.n_prompt = 20, .fork_of = a});
    sched_step(&r.s);
    assert_int_equal(r.s.req[b].state, SCHED_WAITING);
    sched_finish(&r.s, a);
    const struct sched_plan *p = sched_step(&r.s);
    assert_int_equal(p->item[0].req, b);
    assert_int_equal(p->item[0].pos0, 0);
    rig_close(&r);
}

TEST(sched_keeps_the_pace_of_answers_beside_a_long_prompt)
{
    struct rig r;
    struct sched_opts o = {
        .n_req_max = 8, .n_run_max = 8, .n_chunk = 512, .n_ctx = 8192, .n_row_max = 16};
    int slow = 0, n = 0, most = 0;
    rig_open(&r, o, 1024, 32);
    for (int i = 0; i < 4; i++)
        submit(&r, 16);
    for (int i = 0; i < 10; i++) {
        answer(&r, sched_step(&r.s));
        sched_observe(&r.s, 1000000);
    }
    int big = submit(&r, 8000);
    for (; n < 2000 && r.s.req[big].n_done < 8000; n++) {
        const struct sched_plan *p = sched_step(&r.s);
        /* a token of a prompt costs a fiftieth of a step that decodes, a tenth in small pieces */
        double ns = 1e6 + 2e4 * p->n_spent + (p->n_spent ? 2e5 : 0);
        slow += ns > 2.0e6;
        most = BASE_MAX(most, p->n_spent);
        for (int i = 0; i < p->n_item; i++) /* all four answers go on */
            assert_true(p->item[i].req == big || p->item[i].n_tok == 1);
        assert_true(p->n_decode == 4);
        answer(&r, p);
        sched_observe(&r.s, (int64_t)ns);
    }
    assert_int_equal(r.s.req[big].n_done, 8000);
    assert_int_equal(slow, 0);
    assert_true(most >= 20); /* it finds that a larger piece is worth it */
    assert_true(n < 500);
    rig_close(&r);
}

TEST(sched_gives_prompts_the_whole_chunk_when_nobody_decodes)
{
    struct rig r;
    struct sched_opts o = small;
    o.n_chunk = 16;
    rig_open(&r, o, 16, 4);
    submit(&r, 30);
    for (int i = 0; i < 1; i++) {
        const struct sched_plan *p = sched_step(&r.s);
        assert_int_equal(p->n_tok, 16);
        sched_observe(&r.s, 5000000);
    }
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
        if (r.s.req[a].n_known == 24) sched_finish(&r.s, a);
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

struct found {
    int n_tok, after;
    struct kv_pool *pool;
};

static void match(void *user, int slot, struct kv_seq *seq, struct sched_match *m)
{
    struct found *f = user;
    int32_t src, dst;
    sl_err e;
    (void)slot;
    m->after = f->after;
    m->after_tok = 64;
    if (f->n_tok) assert_int_equal(kv_seq_grow(f->pool, seq, f->n_tok, &src, &dst, &e), SL_OK);
}

TEST(sched_starts_behind_what_was_found_and_waits_for_what_is_under_way)
{
    struct rig r;
    struct sched_opts o = small;
    struct found f = {.after = -1, .pool = &r.pool};
    o.n_chunk = 32;
    o.n_ctx = 128;
    o.match = match;
    o.user = &f;
    rig_open(&r, o, 64, 4);
    int a = submit(&r, 100);
    answer(&r, sched_step(&r.s));
    f.after = a;
    f.n_tok = 4;
    int b = submit(&r, 110);
    answer(&r, sched_step(&r.s));
    assert_int_equal(r.s.req[b].state, SCHED_WAITING); /* until a has 64 tokens */
    assert_int_equal(r.s.req[b].after, a);
    assert_int_equal(r.s.req[a].n_done, 64);
    f.after = -1;
    f.n_tok = 64;
    answer(&r, sched_step(&r.s));
    assert_int_equal(r.s.req[b].n_reused, 64);
    assert_true(r.s.req[b].n_done > 64);
    assert_int_equal(r.s.n_hit_tok, 64);
    rig_close(&r);
}

TEST(sched_cancels_waiting_and_running_requests)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    int a = submit(&r, 8);
    int b = submit(&r, 20);
    sched_step(&r.s);
    sched_finish(&r.s, a);
    sched_finish(&r.s, b);
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
    assert_int_equal(n_fail, 9 + small.n_run_max);
    kv_pool_fini(&pool);
}

TEST(sched_gives_prompts_less_beside_others_that_decode)
{
    struct rig r;
    rig_open(&r, small, 16, 4);
    submit(&r, 30);
    sched_learn(&r.s, 1, 0, 1000000);
    sched_beside(&r.s, &(struct sched_beside){.n_decode = 1});
    assert_int_equal(sched_step(&r.s)->n_tok, SCHED_MIX_FIRST);
    struct sched_planned p = sched_planned(&r.s);
    assert_int_equal(p.n_prompt, SCHED_MIX_FIRST);
    assert_int_equal(p.n_decode, 0);
    struct sched_load l = sched_load_get(&r.s, -1);
    assert_int_equal(l.n_prompt, 1);
    assert_int_equal(l.n_left, 30 - SCHED_MIX_FIRST);
    sched_beside(&r.s, &(struct sched_beside){0});
    assert_int_equal(sched_step(&r.s)->n_tok, 8);
    while (sched_step(&r.s)->n_item && !r.s.plan.item[0].sample)
        continue;
    answer(&r, &r.s.plan);
    l = sched_load_get(&r.s, -1);
    assert_int_equal(l.n_decode, 1);
    assert_int_equal(l.n_left, 0);
    sched_finish(&r.s, 0);
    rig_close(&r);
}
