/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix tree: hits, keys, eviction, twins, dropping. */
#include <string.h>

#include "kv/kv.h"
#include "test.h"

static sl_err err;

struct rig {
    struct kv_pool p;
    struct kv_seq a, b;
};

static void rig_open(struct rig *r, int n_blk)
{
    ASSERT_OK(kv_pool_init(&r->p, n_blk, 4, &err));
    ASSERT_OK(kv_cache_init(&r->p, &err));
    ASSERT_OK(kv_seq_init(&r->a, 16, &err));
    ASSERT_OK(kv_seq_init(&r->b, 16, &err));
}

static void check(const struct rig *r)
{
    const struct kv_seq *all[] = {&r->a, &r->b};
    assert_int_equal(kv_pool_check(&r->p, all, 2), 0);
}

static void rig_close(struct rig *r)
{
    kv_seq_clear(&r->p, &r->a);
    kv_seq_clear(&r->p, &r->b);
    check(r);
    kv_cache_drop(&r->p);
    assert_int_equal(r->p.n_free, r->p.n_blk);
    kv_seq_fini(&r->a);
    kv_seq_fini(&r->b);
    kv_pool_fini(&r->p);
}

static void fill(struct rig *r, struct kv_seq *s, const struct kv_path *path, int n)
{
    int32_t src, dst;
    ASSERT_OK(kv_seq_grow(&r->p, s, n - s->n_tok, &src, &dst, &err));
    kv_cache_put(&r->p, path, s);
    check(r);
}

static const int32_t tok[32] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

static struct kv_path plain(const int32_t *ids, int n)
{
    return (struct kv_path){.ids = ids, .n = n, .mark0 = 1000, .mark1 = n};
}

TEST(kv_tree_gives_back_what_was_put_in_whole_blocks)
{
    struct rig r;
    rig_open(&r, 16);
    struct kv_path p = plain(tok, 14);
    fill(&r, &r.a, &p, 14);
    int32_t first = r.a.blk[0], third = r.a.blk[2];
    kv_seq_clear(&r.p, &r.a);
    assert_int_equal(r.p.n_kept, 3); /* the partial block is free */
    assert_int_equal(r.p.n_free, 13);
    assert_int_equal(kv_cache_match(&r.p, &p, 13, &r.b), 12);
    assert_int_equal(r.b.blk[0], first);
    assert_int_equal(r.b.blk[2], third);
    assert_int_equal(r.p.n_kept, 0);
    check(&r);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &p, 11, &r.b), 8); /* one token stays to be computed */
    rig_close(&r);
}

TEST(kv_tree_compares_tokens_salt_and_marks_when_every_hash_collides)
{
    struct rig r;
    int32_t other[32];
    rig_open(&r, 32);
    r.p.hash_mask = 0;
    struct kv_path p = plain(tok, 16);
    fill(&r, &r.a, &p, 16);
    memcpy(other, tok, sizeof other);
    other[7] = 99;
    struct kv_path q = plain(other, 16);
    assert_int_equal(kv_cache_match(&r.p, &q, 16, &r.b), 4);
    fill(&r, &r.b, &q, 16);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &q, 16, &r.b), 16);
    kv_seq_clear(&r.p, &r.b);
    q = p;
    q.salt = 1;
    assert_int_equal(kv_cache_match(&r.p, &q, 16, &r.b), 0);
    q = p;
    q.mark0 = 8; /* positions 8 to 15 in another form */
    assert_int_equal(kv_cache_match(&r.p, &q, 16, &r.b), 8);
    kv_seq_clear(&r.p, &r.b);
    q.mark1 = 10;
    fill(&r, &r.b, &q, 16);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &q, 16, &r.b), 16);
    rig_close(&r);
}

TEST(kv_tree_replaces_a_twin_by_the_block_that_it_has)
{
    struct rig r;
    rig_open(&r, 16);
    struct kv_path p = plain(tok, 12);
    int32_t src, dst;
    ASSERT_OK(kv_seq_grow(&r.p, &r.a, 12, &src, &dst, &err));
    ASSERT_OK(kv_seq_grow(&r.p, &r.b, 12, &src, &dst, &err));
    assert_int_equal(r.p.n_free, 10);
    kv_cache_put(&r.p, &p, &r.a);
    kv_cache_put(&r.p, &p, &r.b);
    assert_int_equal(r.p.n_free, 13);
    assert_memory_equal(r.a.blk, r.b.blk, 3 * sizeof *r.a.blk);
    check(&r);
    rig_close(&r);
}

/* What is stored at a block's end depends on the token after it. */
TEST(kv_tree_of_paths_that_look_ahead_tells_the_tokens_after_blocks_apart)
{
    struct rig r;
    int32_t other[32];
    rig_open(&r, 32);
    struct kv_path p = plain(tok, 8);
    p.ahead = true;
    fill(&r, &r.a, &p, 8); /* what comes after the second block is not known yet */
    assert_int_equal(r.a.n_put, 1);
    p.n = 9;
    fill(&r, &r.a, &p, 8);
    assert_int_equal(r.a.n_put, 2);
    assert_int_equal(kv_cache_match(&r.p, &p, 8, &r.b), 8);
    kv_seq_clear(&r.p, &r.b);
    p.n = 8;
    assert_int_equal(kv_cache_match(&r.p, &p, 8, &r.b), 4);
    kv_seq_clear(&r.p, &r.b);
    memcpy(other, tok, sizeof other);
    other[8] = 99;
    struct kv_path q = plain(other, 16);
    q.ahead = true;
    assert_int_equal(kv_cache_match(&r.p, &q, 16, &r.b), 4);
    fill(&r, &r.b, &q, 12);
    assert_int_equal(r.b.blk[0], r.a.blk[0]);
    assert_int_not_equal(r.b.blk[1], r.a.blk[1]);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &q, 15, &r.b), 12);
    p.n = 9;
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &p, 8, &r.b), 8);
    assert_int_equal(r.b.blk[1], r.a.blk[1]);
    rig_close(&r);
}

/* Two samples of a prompt that ends with a block share it, and each has a token of its own next. */
TEST(kv_tree_has_a_forks_last_block_once)
{
    struct rig r;
    int32_t other[32];
    rig_open(&r, 32);
    memcpy(other, tok, sizeof other);
    other[8] = 99;
    struct kv_path p = plain(tok, 8), q = plain(other, 9);
    p.ahead = q.ahead = true;
    fill(&r, &r.a, &p, 8);
    ASSERT_OK(kv_seq_fork(&r.p, &r.a, &r.b, NULL));
    p.n = 9;
    fill(&r, &r.a, &p, 8);
    fill(&r, &r.b, &q, 8);
    assert_int_equal(r.a.n_put, 2);
    assert_int_equal(r.b.n_put, 1);
    check(&r);
    kv_seq_clear(&r.p, &r.a);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &p, 8, &r.a), 8);
    assert_int_equal(kv_cache_match(&r.p, &q, 8, &r.b), 4);
    check(&r);
    rig_close(&r);
}

TEST(kv_tree_evicts_leaves_in_order_of_use)
{
    struct rig r;
    int32_t other[8] = {1, 2, 3, 4, 50, 51, 52, 53};
    rig_open(&r, 4);
    struct kv_path p = plain(tok, 8), q = plain(other, 8);
    fill(&r, &r.a, &p, 8);
    kv_seq_clear(&r.p, &r.a);
    assert_int_equal(kv_cache_match(&r.p, &q, 8, &r.b), 4);
    fill(&r, &r.b, &q, 8);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(r.p.n_kept, 3);
    int32_t src, dst;
    ASSERT_OK(kv_seq_grow(&r.p, &r.a, 8, &src, &dst, &err)); /* two blocks: one free, one evicted */
    check(&r);
    assert_int_equal(r.p.n_evict, 1);
    assert_int_equal(kv_cache_match(&r.p, &p, 8, &r.b), 4); /* the older leaf is gone */
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &q, 8, &r.b), 8);
    ASSERT_STATUS(kv_seq_grow(&r.p, &r.a, 1, &src, &dst, &err), SL_BUSY); /* all in use */
    rig_close(&r);
}

TEST(kv_tree_never_lets_a_block_of_it_be_written)
{
    struct rig r;
    int32_t src, dst;
    rig_open(&r, 8);
    struct kv_path p = plain(tok, 8);
    fill(&r, &r.a, &p, 8);
    kv_seq_trim(&r.p, &r.a, 6);
    int32_t last = r.a.blk[1];
    assert_int_equal(kv_seq_need(&r.p, &r.a, 1), 1);
    ASSERT_OK(kv_seq_grow(&r.p, &r.a, 1, &src, &dst, &err));
    assert_int_equal(src, last);
    assert_int_not_equal(dst, last);
    check(&r);
    rig_close(&r);
}

TEST(kv_tree_dropped_while_in_use_keeps_its_invariants)
{
    struct rig r;
    rig_open(&r, 16);
    struct kv_path p = plain(tok, 32);
    fill(&r, &r.a, &p, 8);
    assert_int_equal(kv_cache_match(&r.p, &p, 8, &r.b), 8);
    kv_cache_drop(&r.p);
    check(&r);
    fill(&r, &r.a, &p, 16); /* began before: puts nothing */
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &p, 16, &r.b), 0);
    fill(&r, &r.b, &p, 16);
    kv_seq_clear(&r.p, &r.a);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &p, 16, &r.a), 16);
    rig_close(&r);
}

/* Of 8 blocks 3 are kept for owner 1; owner 2 may keep and use the other 5, unless it may take all.
 */
TEST(kv_tree_keeps_an_owners_reserve_from_others)
{
    static const int32_t other[32] = {50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60};
    struct rig r;
    rig_open(&r, 8);
    struct kv_path mine = plain(tok, 12), theirs = plain(other, 32);
    kv_owner_reserve(&r.p, 1, 3);
    r.a.who.owner = 1;
    r.b.who.owner = 2;
    fill(&r, &r.a, &mine, 12);
    kv_seq_clear(&r.p, &r.a);
    check(&r);
    assert_int_equal(kv_pool_avail(&r.p), 8);
    assert_int_equal(kv_pool_avail_to(&r.p, r.b.who), 5);
    fill(&r, &r.b, &theirs, 20);
    int32_t src, dst;
    assert_int_equal(kv_seq_grow(&r.p, &r.b, 1, &src, &dst, &err), SL_BUSY);
    kv_seq_clear(&r.p, &r.b);
    assert_int_equal(kv_cache_match(&r.p, &mine, 12, &r.a), 12);
    kv_seq_clear(&r.p, &r.a);
    r.b.who.all = true;
    fill(&r, &r.b, &theirs, 32);
    assert_int_equal(kv_cache_match(&r.p, &mine, 12, &r.a), 0);
    rig_close(&r);
}

TEST(kv_tree_init_fails_cleanly_without_memory)
{
    struct kv_pool p;
    for (int k = 1; k < 10; k++) {
        ASSERT_OK(kv_pool_init(&p, 8, 4, &err));
        mem_fail_at((uint64_t)k, 0);
        sl_status st = kv_cache_init(&p, &err);
        mem_fail_at(0, 0);
        kv_pool_fini(&p);
        if (!st) {
            assert_int_equal(k, 5);
            return;
        }
        assert_int_equal(st, SL_NOMEM);
    }
    fail();
}

TEST(kv_tree_says_what_it_has_and_changes_nothing)
{
    struct rig r;
    rig_open(&r, 8);
    struct kv_path p = plain(tok, 20);
    fill(&r, &r.a, &p, 18);
    assert_int_equal(kv_cache_probe(&r.p, &p, 20), 16);
    assert_int_equal(kv_cache_probe(&r.p, &p, 15), 12);
    struct kv_path q = plain(tok + 4, 16);
    assert_int_equal(kv_cache_probe(&r.p, &q, 16), 0);
    kv_seq_clear(&r.p, &r.a);
    check(&r);
    int n_free = r.p.n_free, n_kept = r.p.n_kept;
    assert_int_equal(kv_cache_probe(&r.p, &p, 20), 16);
    assert_int_equal(r.p.n_free, n_free);
    assert_int_equal(r.p.n_kept, n_kept);
    assert_int_equal(kv_cache_match(&r.p, &p, 20, &r.b), 16);
    rig_close(&r);
}
