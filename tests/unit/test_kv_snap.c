/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of recurrent states: where a hit ends, and which place goes for another. */
#include "kv/kv.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool p;
    struct kv_seq a, b;
};

static const int32_t tok[32] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
static const struct kv_path path = {.ids = tok, .n = 32, .mark0 = 1000, .mark1 = 32};

static void check(const struct rig *r)
{
    const struct kv_seq *all[] = {&r->a, &r->b};
    assert_int_equal(kv_pool_check(&r->p, all, 2), 0);
}

/* Sequence a holds n tokens in blocks of 4, all in the tree. */
static void rig_open(struct rig *r, int n_snap, int n)
{
    int32_t src, dst;
    ASSERT_OK(kv_pool_init(&r->p, 16, 4, &err));
    ASSERT_OK(kv_cache_init(&r->p, &err));
    ASSERT_OK(kv_snap_init(&r->p, n_snap, &err));
    ASSERT_OK(kv_seq_init(&r->a, 16, &err));
    ASSERT_OK(kv_seq_init(&r->b, 16, &err));
    ASSERT_OK(kv_seq_grow(&r->p, &r->a, n, &src, &dst, &err));
    kv_cache_put(&r->p, &path, &r->a);
    check(r);
}

static void rig_close(struct rig *r)
{
    kv_seq_clear(&r->p, &r->a);
    kv_seq_clear(&r->p, &r->b);
    check(r);
    kv_cache_drop(&r->p);
    check(r);
    assert_int_equal(r->p.n_snap_free, r->p.n_snap);
    kv_seq_fini(&r->a);
    kv_seq_fini(&r->b);
    kv_pool_fini(&r->p);
}

static int match(struct rig *r)
{
    kv_seq_clear(&r->p, &r->b);
    int n = kv_cache_match(&r->p, &path, 31, &r->b);
    check(r);
    return n;
}

TEST(kv_snap_a_hit_ends_at_the_deepest_snapshot)
{
    struct rig r;
    rig_open(&r, 4, 18);
    assert_int_equal(match(&r), 0); /* blocks alone are of no use */
    assert_int_equal(r.b.n_path, 16);
    int32_t one = kv_snap_take(&r.p, r.a.blk[0]), three = kv_snap_take(&r.p, r.a.blk[2]);
    assert_true(one >= 0 && three >= 0 && one != three);
    assert_int_equal(kv_snap_take(&r.p, r.a.blk[2]), -1); /* it has one */
    assert_int_equal(match(&r), 12);
    assert_int_equal(r.b.snap, three);
    assert_int_equal(r.b.n_path, 16);
    assert_int_equal(r.b.n_blk, 3);
    int32_t snap;
    assert_int_equal(kv_snap_before(&r.p, &r.a, 11, &snap), 4);
    assert_int_equal(snap, one);
    assert_int_equal(kv_snap_before(&r.p, &r.a, 3, &snap), 0);
    assert_int_equal(snap, -1);
    rig_close(&r);
}

TEST(kv_snap_the_least_recently_used_goes_for_another)
{
    struct rig r;
    rig_open(&r, 2, 16);
    int32_t deep = kv_snap_take(&r.p, r.a.blk[3]), flat = kv_snap_take(&r.p, r.a.blk[0]);
    assert_int_equal(match(&r), 16); /* used: now the other is the oldest */
    assert_int_equal(kv_snap_take(&r.p, r.a.blk[1]), flat);
    assert_int_equal(kv_snap_of(&r.p, r.a.blk[0]), -1);
    assert_int_equal(kv_snap_of(&r.p, r.a.blk[3]), deep);
    assert_int_equal(r.p.n_snap_evict, 1);
    check(&r);
    rig_close(&r);
}

TEST(kv_snap_is_freed_with_its_block)
{
    struct rig r;
    int32_t src, dst;
    rig_open(&r, 4, 16);
    for (int i = 0; i < 4; i++)
        assert_true(kv_snap_take(&r.p, r.a.blk[i]) >= 0);
    kv_seq_clear(&r.p, &r.a);
    ASSERT_OK(kv_seq_grow(&r.p, &r.b, 14 * 4, &src, &dst, &err)); /* 12 are free, 2 evicted */
    check(&r);
    assert_int_equal(r.p.n_snap_free, 2);
    rig_close(&r);
}

TEST(kv_snap_without_places_there_are_no_hits)
{
    struct rig r;
    rig_open(&r, 0, 16);
    assert_int_equal(kv_snap_take(&r.p, r.a.blk[3]), -1);
    assert_int_equal(match(&r), 0);
    rig_close(&r);
}
