/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose first positions somebody else computes: held with their blocks, and no rows. */
#include <string.h>

#include "sched/sched.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool pool;
    struct sched s;
    int n_away; /* of every request's positions */
};

static int away(void *user, int slot)
{
    const struct rig *r = user;
    return BASE_MIN(r->n_away, sched_request(&r->s, slot)->n_known - 1);
}

static void rig_open(struct rig *r, int n_blk, int n_away)
{
    struct sched_opts o = {.n_req_max = 6,
                           .n_run_max = 4,
                           .n_chunk = 8,
                           .n_ctx = 32,
                           .n_row_max = 8,
                           .away = away,
                           .user = r};
    r->n_away = n_away;
    ASSERT_OK(kv_pool_init(&r->pool, n_blk, 4, &err));
    ASSERT_OK(sched_init(&r->s, &o, &r->pool, &err));
}

static void rig_close(struct rig *r)
{
    sched_fini(&r->s);
    assert_int_equal(kv_pool_avail(&r->pool), r->pool.n_blk);
    kv_pool_fini(&r->pool);
}

static void submit(struct rig *r, int slot, int n_prompt, int priority)
{
    sched_submit(&r->s, slot,
                 &(struct sched_new){.n_prompt = n_prompt, .fork_of = -1, .priority = priority});
}

static const struct sched_plan *step(struct rig *r)
{
    const struct sched_plan *p = sched_step(&r->s);
    assert_int_equal(sched_check(&r->s), 0);
    return p;
}

static void answer(struct rig *r, const struct sched_plan *p)
{
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].sample) sched_accept(&r->s, p->item[i].req, 0);
    assert_int_equal(sched_check(&r->s), 0);
}

TEST(sched_holds_who_waits_for_others_and_goes_on_from_what_came)
{
    struct rig r;
    rig_open(&r, 32, 100);
    submit(&r, 0, 19, 0);
    submit(&r, 1, 13, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(&r)->n_item, 0);
    assert_true(sched_request(&r.s, 0)->held && sched_request(&r.s, 1)->held);
    assert_int_equal(r.pool.n_blk - kv_pool_avail(&r.pool), 5 + 3); /* 18 and 12 positions */
    (void)sched_release(&r.s, 0, 18); /* all came: the last token is a row like an answer's */
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->n_item, 1);
    assert_int_equal(p->item[0].pos0, 18);
    assert_int_equal(p->item[0].n_tok, 1);
    assert_true(p->item[0].sample && p->item[0].answer);
    answer(&r, p);
    (void)sched_release(&r.s, 1, 4); /* a part: the rest is computed beside the other's answer */
    p = step(&r);
    assert_int_equal(p->n_item, 2);
    assert_int_equal(p->item[1].pos0, 4);
    answer(&r, p);
    rig_close(&r);
}

TEST(sched_computes_what_nobody_else_does)
{
    struct rig r;
    rig_open(&r, 32, 0);
    submit(&r, 0, 8, 0);
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->item[0].n_tok, 8);
    answer(&r, p);
    r.n_away = 100;
    submit(&r, 1, 9, 0);
    p = step(&r);
    assert_int_equal(p->n_item, 1); /* beside one that is held answers go on */
    answer(&r, p);
    (void)sched_release(&r.s, 1, 0); /* nothing came */
    p = step(&r);
    assert_int_equal(p->n_item, 2);
    assert_int_equal(p->item[1].pos0, 0);
    answer(&r, p);
    rig_close(&r);
}

TEST(sched_takes_the_blocks_of_who_is_held)
{
    struct rig r;
    rig_open(&r, 8, 100);
    submit(&r, 0, 28, 0);
    assert_int_equal(step(&r)->n_item, 0);
    submit(&r, 1, 20, 5); /* of a higher priority: room for both there is not */
    r.n_away = 0;
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->n_preempt, 1);
    assert_int_equal(p->item[0].req, 1);
    assert_false(sched_request(&r.s, 0)->held);
    assert_int_equal(sched_request(&r.s, 0)->n_done, 0);
    sched_finish(&r.s, 0);
    sched_finish(&r.s, 1);
    rig_close(&r);
}

/* Of a long prompt only what the next position sees has places; where less of it came it goes back
 * to the beginning, or to where places are left. */
TEST(sched_holds_with_windows_what_the_next_position_sees)
{
    struct rig r;
    struct sched_opts o = {.n_req_max = 6,
                           .n_run_max = 2,
                           .n_chunk = 8,
                           .n_ctx = 64,
                           .n_row_max = 8,
                           .away = away,
                           .user = &r};
    r.n_away = 100;
    ASSERT_OK(kv_pool_init(&r.pool, 40, 4, &err));
    int most = kv_win_most(6, 4, 2, 10);
    assert_true(most < 40); /* a place for every block would show nothing */
    ASSERT_OK(kv_win_init(&r.pool, 6, most, &err));
    ASSERT_OK(sched_init(&r.s, &o, &r.pool, &err));
    submit(&r, 0, 60, 0);
    submit(&r, 1, 58, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(step(&r)->n_item, 0);
    assert_int_equal(sched_request(&r.s, 0)->n_done, 59);
    assert_int_equal(sched_request(&r.s, 1)->n_done, 57);
    assert_int_equal(r.pool.n_win - kv_win_avail(&r.pool), 2 + 2); /* 54 to 58 and 52 to 56 */
    assert_int_equal(sched_release(&r.s, 0, 59), 59);
    const struct sched_plan *p = step(&r);
    assert_int_equal(p->n_item, 1);
    assert_int_equal(p->item[0].pos0, 59);
    answer(&r, p);
    assert_int_equal(sched_release(&r.s, 1, 56), 0); /* what 56 sees begins at 51: no place */
    p = step(&r);
    assert_int_equal(p->n_item, 2);
    assert_int_equal(sched_check(&r.s), 0);
    sched_finish(&r.s, 0);
    sched_finish(&r.s, 1);
    rig_close(&r);
}
