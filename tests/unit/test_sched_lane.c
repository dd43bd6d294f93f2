/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: whose step is planned while others' are under way. */
#include <string.h>

#include "sched/sched.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool pool;
    struct sched s;
    struct sched_item item[2][4]; /* the lanes' steps */
    int n_item[2];
};

static void rig_open(struct rig *r, int n_blk)
{
    struct sched_opts o = {
        .n_req_max = 8, .n_run_max = 4, .n_chunk = 16, .n_ctx = 32, .n_row_max = 8, .n_lane = 2};
    memset(r, 0, sizeof *r);
    ASSERT_OK(kv_pool_init(&r->pool, n_blk, 4, &err));
    ASSERT_OK(sched_init(&r->s, &o, &r->pool, &err));
}

static void rig_close(struct rig *r)
{
    for (int i = 0; i < 8; i++)
        if (r->s.req[i].state != SCHED_FREE) sched_finish(&r->s, i);
    sched_fini(&r->s);
    assert_int_equal(kv_pool_avail(&r->pool), r->pool.n_blk);
    kv_pool_fini(&r->pool);
}

static int submit(struct rig *r, int n_prompt)
{
    int slot = 0;
    while (r->s.req[slot].state != SCHED_FREE)
        slot++;
    sched_submit(&r->s, slot, &(struct sched_new){.n_prompt = n_prompt, .fork_of = -1});
    return slot;
}

static void plan(struct rig *r, int lane)
{
    const struct sched_plan *p = sched_step_lane(&r->s, lane);
    memcpy(r->item[lane], p->item, (size_t)p->n_item * sizeof *p->item);
    r->n_item[lane] = p->n_item;
    assert_int_equal(sched_check(&r->s), 0);
}

/* The lane's step was computed: a token more for those that are still there; how many those are. */
static int land(struct rig *r, int lane)
{
    int n = 0;
    sched_landed(&r->s, lane);
    for (int i = 0; i < r->n_item[lane]; i++) {
        const struct sched_item *it = &r->item[lane][i];
        if (!sched_is_live(&r->s, it)) continue;
        n++;
        if (it->sample) sched_accept(&r->s, it->req, 0);
    }
    r->n_item[lane] = 0;
    assert_int_equal(sched_check(&r->s), 0);
    return n;
}

TEST(sched_lanes_share_requests_and_plan_their_own)
{
    struct rig r;
    rig_open(&r, 32);
    int a = submit(&r, 5), b = submit(&r, 6);
    plan(&r, 0);
    plan(&r, 1);
    assert_int_equal(r.n_item[0], 1);
    assert_int_equal(r.item[0][0].req, a);
    assert_int_equal(r.n_item[1], 1);
    assert_int_equal(r.item[1][0].req, b);
    int c = submit(&r, 4);
    for (int i = 0; i < 4; i++) /* c is where there is room; what is under way is not planned */
        for (int lane = 0; lane < 2; lane++) {
            assert_int_equal(land(&r, lane), 1 + (i > 0 && r.s.req[c].lane == lane));
            plan(&r, lane);
            for (int k = 0; k < r.n_item[lane]; k++)
                assert_int_equal(r.s.req[r.item[lane][k].req].lane, lane);
        }
    /* those of a lane that has two more than another change to it */
    int other = r.s.req[c].lane ? a : b, lane = r.s.req[c].lane;
    sched_finish(&r.s, other);
    assert_int_equal(land(&r, 1 - lane), 0); /* its row is dropped */
    assert_int_equal(land(&r, lane), 2);
    plan(&r, lane);
    assert_int_equal(r.n_item[lane], 1);
    plan(&r, 1 - lane);
    assert_int_equal(r.n_item[1 - lane], 1);
    rig_close(&r);
}

TEST(sched_lanes_take_blocks_from_steps_under_way)
{
    struct rig r;
    rig_open(&r, 8); /* one context */
    int a = submit(&r, 15), b = submit(&r, 5);
    plan(&r, 0);
    plan(&r, 1);
    assert_int_equal(r.n_item[1], 1);
    for (int i = 0; i < 32 && r.s.req[b].state == SCHED_RUNNING; i++) {
        (void)land(&r, 0);
        plan(&r, 0);
        if (r.s.req[b].state != SCHED_RUNNING) break;
        (void)land(&r, 1);
        plan(&r, 1);
    }
    assert_int_equal(r.s.req[b].state, SCHED_WAITING); /* a is the first in rank */
    assert_int_equal(r.n_item[1], 1);
    assert_false(sched_is_live(&r.s, &r.item[1][0]));
    sched_finish(&r.s, a); /* with b's old step still under way it runs anew */
    r.n_item[0] = 0;
    plan(&r, 0);
    assert_int_equal(r.s.req[b].state, SCHED_RUNNING);
    assert_false(sched_is_live(&r.s, &r.item[1][0]));
    assert_true(sched_is_live(&r.s, &r.item[0][0]));
    assert_int_equal(land(&r, 1), 0);
    assert_int_equal(land(&r, 0), 1);
    rig_close(&r);
}

TEST(sched_lanes_wait_for_a_prompt_until_it_is_computed)
{
    struct rig r;
    rig_open(&r, 32);
    int a = submit(&r, 8);
    sched_submit(&r.s, 5, &(struct sched_new){.n_prompt = 8, .fork_of = a});
    plan(&r, 0);
    assert_true(r.item[0][0].sample);
    plan(&r, 1);
    assert_int_equal(r.n_item[1], 0); /* the other sample's prompt is under way */
    assert_true(sched_may_fork(&r.s, a, 5));
    sched_landed(&r.s, 0);
    assert_true(sched_fork(&r.s, a, 5));
    assert_int_equal(r.s.req[5].lane, 1); /* where there is nobody */
    sched_accept(&r.s, a, 0);
    sched_accept(&r.s, 5, 0);
    plan(&r, 1);
    assert_int_equal(r.n_item[1], 1);
    rig_close(&r);
}
