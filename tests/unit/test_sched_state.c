/* SPDX-License-Identifier: Apache-2.0 */
/* Models with a recurrent state: where rows end for snapshots, and the copies of a step. */
#include "sched/sched.h"
#include "test.h"

#define BT 4
#define N_RUN 4

static sl_err err;

struct rig {
    struct kv_pool pool;
    struct sched s;
    int32_t tok[8][64]; /* by slot */
    int n[8];
};

static struct kv_path path_of(const struct rig *r, int slot)
{
    return (struct kv_path){.ids = r->tok[slot], .n = r->n[slot], .mark0 = 64, .mark1 = 64};
}

static void match(void *user, int slot, struct kv_seq *seq, struct sched_match *m)
{
    struct rig *r = user;
    struct kv_path p = path_of(r, slot);
    (void)m;
    (void)kv_cache_match(&r->pool, &p, r->n[slot] - 1, seq);
}

static void rig_open(struct rig *r, int n_snap)
{
    struct sched_opts o = {.n_req_max = 6,
                           .n_run_max = N_RUN,
                           .n_chunk = 64,
                           .n_ctx = 64,
                           .n_row_max = 8,
                           .n_snap_tok = 16,
                           .match = match,
                           .user = r};
    ASSERT_OK(kv_pool_init(&r->pool, 64, BT, &err));
    ASSERT_OK(kv_cache_init(&r->pool, &err));
    ASSERT_OK(kv_snap_init(&r->pool, n_snap, &err));
    ASSERT_OK(sched_init(&r->s, &o, &r->pool, &err));
}

static void rig_close(struct rig *r)
{
    sched_fini(&r->s);
    kv_pool_fini(&r->pool);
}

/* A prompt of n tokens, the first n_like of them as all others' first. */
static int submit(struct rig *r, int n, int n_like, int fork_of)
{
    int slot = 0;
    while (r->s.req[slot].state != SCHED_FREE)
        slot++;
    for (int i = 0; i < n; i++)
        r->tok[slot][i] = fork_of >= 0 ? r->tok[fork_of][i] : i < n_like ? i : 100 * (slot + 1) + i;
    r->n[slot] = n;
    sched_submit(&r->s, slot, &(struct sched_new){.n_prompt = n, .fork_of = fork_of});
    return slot;
}

/* The next step; where its only row ends. Its tokens are the tree's afterwards. */
static int step(struct rig *r)
{
    const struct sched_plan *p = sched_step(&r->s);
    assert_int_equal(sched_check(&r->s), 0);
    assert_int_equal(p->n_item, 1);
    struct kv_path path = path_of(r, p->item[0].req);
    sched_put(&r->s, p->item[0].req, &path);
    return p->item[0].pos0 + p->item[0].n_tok;
}

static void assert_copy(const struct rig *r, int i, int src, int dst)
{
    assert_true(i < r->s.plan.n_copy);
    assert_int_equal(r->s.plan.copy[i].src, src);
    assert_int_equal(r->s.plan.copy[i].dst, dst);
}

TEST(sched_state_rows_end_where_snapshots_are_taken)
{
    struct rig r = {0};
    rig_open(&r, 4);
    int a = submit(&r, 42, 0, -1);
    static const int end[] = {16, 32, 40, 42}; /* every 16 tokens, the last whole block */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(step(&r), end[i]);
        assert_int_equal(r.s.plan.n_copy, i > 0); /* what the step before left */
        if (i) assert_copy(&r, 0, r.s.req[a].seat, SCHED_SNAP(&r.s, i - 1));
    }
    assert_int_equal(r.pool.n_snap_free, 1);
    rig_close(&r);
}

TEST(sched_state_a_common_beginning_gets_a_snapshot_where_it_ends)
{
    struct rig r = {0};
    rig_open(&r, 8);
    int a = submit(&r, 14, 8, -1);
    assert_int_equal(step(&r), 12);
    assert_int_equal(step(&r), 14);
    sched_finish(&r.s, a);
    int b = submit(&r, 14, 8, -1); /* shares two blocks, of which there is no snapshot */
    r.tok[b][8] = -1;
    assert_int_equal(step(&r), 8);
    assert_int_equal(r.s.req[b].n_reused, 0);
    assert_int_equal(step(&r), 12);
    assert_copy(&r, 0, r.s.req[b].seat, SCHED_SNAP(&r.s, 1));
    assert_int_equal(step(&r), 14);
    sched_finish(&r.s, b);
    int c = submit(&r, 14, 8, -1);
    r.tok[c][8] = -2;
    assert_int_equal(step(&r), 12);
    assert_int_equal(r.s.req[c].n_reused, 8);
    assert_int_equal(r.s.plan.n_copy, 1);
    assert_copy(&r, 0, SCHED_SNAP(&r.s, 1), r.s.req[c].seat);
    rig_close(&r);
}

TEST(sched_state_goes_with_a_fork_and_back_to_a_snapshot)
{
    struct rig r = {0};
    rig_open(&r, 4);
    int a = submit(&r, 9, 0, -1), b = submit(&r, 9, 0, a);
    assert_int_equal(step(&r), 8);
    assert_int_equal(step(&r), 9);
    assert_true(sched_fork(&r.s, a, b));
    r.n[a] = r.n[b] = 10;
    sched_accept(&r.s, a, 0);
    sched_accept(&r.s, b, 0);
    assert_int_equal(sched_step(&r.s)->n_item, 2);
    assert_copy(&r, 0, r.s.req[a].seat, r.s.req[b].seat);
    assert_int_equal(sched_rewind(&r.s, b, 7), -1); /* nothing before 8 */
    assert_int_equal(r.s.req[b].n_done, 10);
    assert_int_equal(sched_rewind(&r.s, b, 9), 8);
    assert_int_equal(sched_check(&r.s), 0);
    assert_int_equal(sched_step(&r.s)->n_item, 1);
    assert_int_equal(r.s.plan.item[0].pos0, 8);
    assert_int_equal(r.s.plan.item[0].n_tok, 2);
    assert_copy(&r, 0, SCHED_SNAP(&r.s, 0), r.s.req[b].seat);
    rig_close(&r);
}
