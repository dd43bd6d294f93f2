/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: places before the window are given back, kept for the tree, and a hit ends where all
 * that the next position sees is there. Blocks of 4 tokens, a window of 6. */
#include "kv/kv.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool p;
    struct kv_seq a, b;
    int n_freed;
};

static const int32_t tok[32] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
static const struct kv_path path = {.ids = tok, .n = 32, .mark0 = 1000, .mark1 = 32};

static void check(const struct rig *r)
{
    const struct kv_seq *all[] = {&r->a, &r->b};
    assert_int_equal(kv_pool_check(&r->p, all, 2), 0);
}

static void freed(void *user, int32_t win)
{
    struct rig *r = user;
    (void)win;
    r->n_freed++;
}

static void rig_open(struct rig *r, int n_win, bool tree)
{
    *r = (struct rig){0};
    ASSERT_OK(kv_pool_init(&r->p, 16, 4, &err));
    if (tree) ASSERT_OK(kv_cache_init(&r->p, &err));
    ASSERT_OK(kv_win_init(&r->p, 6, n_win, &err));
    r->p.on_win_free = freed;
    r->p.user = r;
    ASSERT_OK(kv_seq_init(&r->a, 16, &err));
    ASSERT_OK(kv_seq_init(&r->b, 16, &err));
}

static void rig_close(struct rig *r)
{
    kv_seq_clear(&r->p, &r->a);
    kv_seq_clear(&r->p, &r->b);
    check(r);
    kv_cache_drop(&r->p);
    check(r);
    assert_int_equal(r->p.n_win_free, r->p.n_win);
    kv_seq_fini(&r->a);
    kv_seq_fini(&r->b);
    kv_pool_fini(&r->p);
}

static void grow(struct rig *r, struct kv_seq *s, int n)
{
    int32_t src, dst;
    kv_seq_slide(&r->p, s);
    ASSERT_OK(kv_seq_grow(&r->p, s, n, &src, &dst, &err));
    check(r);
}

TEST(kv_window_gives_back_what_no_position_sees)
{
    struct rig r;
    rig_open(&r, 4, false);
    for (int n = 1; n <= 32; n++) { /* never more than 3 places, though 8 blocks */
        grow(&r, &r.a, 1);
        kv_seq_slide(&r.p, &r.a);
        int from = n - 5 > 0 ? (n - 5) / 4 : 0;
        assert_int_equal(r.a.win0, from);
        assert_int_equal(r.p.n_win - kv_win_avail(&r.p), r.a.n_blk - from);
        assert_true(kv_win_of(&r.p, r.a.blk[r.a.n_blk - 1]) >= 0);
        if (from) assert_int_equal(kv_win_of(&r.p, r.a.blk[from - 1]), -1);
    }
    assert_int_equal(r.n_freed, 6);
    rig_close(&r);
}

TEST(kv_window_says_busy_and_changes_nothing_without_places)
{
    struct rig r;
    int32_t src, dst;
    rig_open(&r, 3, false);
    grow(&r, &r.a, 12);
    ASSERT_STATUS(kv_seq_grow(&r.p, &r.a, 1, &src, &dst, &err), SL_BUSY);
    assert_int_equal(r.a.n_tok, 12);
    check(&r);
    rig_close(&r);
}

/* A match goes to where the window is whole: 24 tokens see 19 to 23, so blocks 4 and 5. */
TEST(kv_window_a_hit_needs_the_last_window)
{
    struct rig r;
    rig_open(&r, 8, true);
    grow(&r, &r.a, 24);
    kv_cache_put(&r.p, &path, &r.a);
    int32_t first = r.a.blk[0];
    kv_seq_clear(&r.p, &r.a);
    check(&r);
    assert_int_equal(kv_cache_match(&r.p, &path, 31, &r.b), 24);
    assert_int_equal(r.b.win0, 4);
    check(&r);
    kv_seq_clear(&r.p, &r.b);
    grow(&r, &r.a, 4 * 7); /* others take all places but one: the one let go last */
    assert_int_equal((int)r.p.n_win_evict, 5);
    assert_int_equal((int)r.p.n_evict, 0);
    kv_seq_clear(&r.p, &r.a);
    bool kept = kv_win_of(&r.p, first) >= 0;
    assert_int_equal(kv_cache_match(&r.p, &path, 31, &r.b), kept ? 4 : 0);
    assert_int_equal(r.b.n_path, 24); /* the tree has all of it */
    rig_close(&r);
}

TEST(kv_window_forks_and_copies_see_the_same)
{
    struct rig r;
    int32_t src, dst;
    rig_open(&r, 8, true);
    grow(&r, &r.a, 18);
    kv_seq_slide(&r.p, &r.a);
    ASSERT_OK(kv_seq_fork(&r.p, &r.a, &r.b, &err));
    check(&r);
    int32_t had = kv_win_of(&r.p, r.a.blk[4]);
    ASSERT_OK(kv_seq_grow(&r.p, &r.b, 1, &src, &dst, &err)); /* the tail is shared */
    assert_int_equal(src, r.a.blk[4]);
    assert_int_equal(r.b.win_src, had);
    assert_int_equal(r.b.win_dst, kv_win_of(&r.p, dst));
    assert_int_equal(kv_win_of(&r.p, r.a.blk[4]), had);
    check(&r);
    rig_close(&r);
}

/* Two sequences computed the same: the tree's block takes the other's place when it has none. */
TEST(kv_window_a_twin_gets_the_place)
{
    struct rig r;
    rig_open(&r, 8, true);
    grow(&r, &r.a, 16);
    kv_cache_put(&r.p, &path, &r.a);
    kv_seq_slide(&r.p, &r.a); /* sees from 11 on: block 2 and 3 */
    assert_int_equal(r.a.win0, 2);
    grow(&r, &r.b, 4 * 6); /* takes what is free, and the places of blocks 0 and 1 */
    assert_int_equal(kv_win_of(&r.p, r.a.blk[0]), -1);
    kv_seq_trim(&r.p, &r.b, 4);
    kv_cache_put(&r.p, &path, &r.b);
    check(&r);
    assert_int_equal(r.b.blk[0], r.a.blk[0]);
    assert_true(kv_win_of(&r.p, r.a.blk[0]) >= 0);
    rig_close(&r);
}

/* Back to a position whose window is there yet, and not to one whose window is lost. */
TEST(kv_window_goes_back_as_far_as_it_sees)
{
    struct rig r;
    rig_open(&r, 16, false);
    grow(&r, &r.a, 24);
    assert_int_equal(kv_win_before(&r.p, &r.a, 13), 13);
    kv_seq_slide(&r.p, &r.a);                            /* 19 .. 23: from block 4 */
    assert_int_equal(kv_win_before(&r.p, &r.a, 22), 22); /* sees 17 */
    assert_int_equal(kv_win_before(&r.p, &r.a, 20), 0);  /* would see 15 */
    kv_seq_trim(&r.p, &r.a, 22);
    check(&r);
    rig_close(&r);
}
