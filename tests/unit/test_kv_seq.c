/* SPDX-License-Identifier: Apache-2.0 */
/* Block tables of sequences: growing, sharing, trimming, forking. */
#include <string.h>

#include "base/rng.h"
#include "kv/kv.h"
#include "test.h"

static sl_err err;

static void pool_open(struct kv_pool *p, int n_blk, int blk_tok)
{
    ASSERT_OK(kv_pool_init(p, n_blk, blk_tok, &err));
}

TEST(kv_pool_hands_out_every_block_once)
{
    struct kv_pool p;
    uint8_t seen[10] = {0};
    pool_open(&p, 10, 4);
    for (int i = 0; i < 10; i++) {
        int32_t b = kv_block_alloc(&p, (struct kv_who){0});
        assert_in_range(b, 0, 9);
        assert_int_equal(seen[b]++, 0);
    }
    assert_int_equal(kv_block_alloc(&p, (struct kv_who){0}), -1);
    for (int b = 0; b < 10; b++)
        kv_block_unref(&p, b, 0);
    assert_int_equal(p.n_free, 10);
    kv_pool_fini(&p);
}

TEST(kv_pool_shuffle_scatters_and_restores)
{
    struct kv_pool p;
    pool_open(&p, 64, 4);
    assert_int_equal(kv_block_alloc(&p, (struct kv_who){0}), 0);
    kv_block_unref(&p, 0, 0);
    kv_pool_shuffle(&p, 7);
    int moved = 0;
    for (int i = 0; i < 64; i++)
        moved += kv_block_alloc(&p, (struct kv_who){0}) != i;
    assert_true(moved > 32);
    for (int b = 0; b < 64; b++)
        kv_block_unref(&p, b, 0);
    kv_pool_shuffle(&p, 0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(kv_block_alloc(&p, (struct kv_who){0}), i);
    kv_pool_fini(&p);
}

TEST(kv_seq_grow_takes_blocks_at_the_edges_only)
{
    static const struct {
        int have, more, need;
    } t[] = {{0, 1, 1}, {0, 4, 1}, {0, 5, 2}, {3, 1, 0},
             {4, 1, 1}, {3, 2, 1}, {5, 0, 0}, {1, 11, 2}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct kv_pool p;
        struct kv_seq s;
        int32_t src, dst;
        pool_open(&p, 8, 4);
        ASSERT_OK(kv_seq_init(&s, 8, &err));
        ASSERT_OK(kv_seq_grow(&p, &s, t[i].have, &src, &dst, &err));
        assert_int_equal(kv_seq_need(&p, &s, t[i].more), t[i].need);
        int free0 = p.n_free;
        ASSERT_OK(kv_seq_grow(&p, &s, t[i].more, &src, &dst, &err));
        assert_int_equal(free0 - p.n_free, t[i].need);
        assert_int_equal(src, -1);
        kv_seq_clear(&p, &s);
        assert_int_equal(p.n_free, 8);
        kv_seq_fini(&s);
        kv_pool_fini(&p);
    }
}

TEST(kv_seq_grow_changes_nothing_when_blocks_run_out)
{
    struct kv_pool p;
    struct kv_seq s;
    int32_t src, dst;
    pool_open(&p, 3, 4);
    ASSERT_OK(kv_seq_init(&s, 8, &err));
    ASSERT_OK(kv_seq_grow(&p, &s, 6, &src, &dst, &err));
    ASSERT_STATUS(kv_seq_grow(&p, &s, 7, &src, &dst, &err), SL_BUSY);
    assert_int_equal(s.n_tok, 6);
    assert_int_equal(s.n_blk, 2);
    assert_int_equal(p.n_free, 1);
    ASSERT_STATUS(kv_seq_grow(&p, &s, 100, &src, &dst, &err), SL_LIMIT);
    kv_seq_clear(&p, &s);
    kv_seq_fini(&s);
    kv_pool_fini(&p);
}

TEST(kv_fork_shares_blocks_and_copies_the_tail_on_write)
{
    struct kv_pool p;
    struct kv_seq a, b;
    int32_t src, dst;
    pool_open(&p, 8, 4);
    ASSERT_OK(kv_seq_init(&a, 8, &err));
    ASSERT_OK(kv_seq_init(&b, 8, &err));
    ASSERT_OK(kv_seq_grow(&p, &a, 6, &src, &dst, &err));
    ASSERT_OK(kv_seq_fork(&p, &a, &b, &err));
    assert_int_equal(p.n_free, 6);
    const struct kv_seq *both[] = {&a, &b};
    assert_int_equal(kv_pool_check(&p, both, 2), 0);
    int32_t tail = a.blk[1];
    assert_int_equal(kv_seq_need(&p, &b, 1), 1);
    ASSERT_OK(kv_seq_grow(&p, &b, 1, &src, &dst, &err));
    assert_int_equal(src, tail);
    assert_int_equal(dst, b.blk[1]);
    assert_int_not_equal(b.blk[1], a.blk[1]);
    assert_int_equal(b.blk[0], a.blk[0]);
    ASSERT_OK(kv_seq_grow(&p, &a, 1, &src, &dst, &err));
    assert_int_equal(src, -1); /* a owns its tail alone now */
    assert_int_equal(kv_pool_check(&p, both, 2), 0);
    kv_seq_trim(&p, &a, 4);
    assert_int_equal(a.n_blk, 1);
    kv_seq_clear(&p, &a);
    kv_seq_clear(&p, &b);
    assert_int_equal(p.n_free, 8);
    kv_seq_fini(&a);
    kv_seq_fini(&b);
    kv_pool_fini(&p);
}

TEST(kv_fork_at_a_block_edge_needs_no_copy)
{
    struct kv_pool p;
    struct kv_seq a, b;
    int32_t src, dst;
    pool_open(&p, 8, 4);
    ASSERT_OK(kv_seq_init(&a, 8, &err));
    ASSERT_OK(kv_seq_init(&b, 8, &err));
    ASSERT_OK(kv_seq_grow(&p, &a, 8, &src, &dst, &err));
    ASSERT_OK(kv_seq_fork(&p, &a, &b, &err));
    ASSERT_OK(kv_seq_grow(&p, &b, 1, &src, &dst, &err));
    assert_int_equal(src, -1);
    assert_int_equal(p.ref[a.blk[0]], 2);
    kv_seq_clear(&p, &a);
    kv_seq_clear(&p, &b);
    kv_seq_fini(&a);
    kv_seq_fini(&b);
    kv_pool_fini(&p);
}

TEST(kv_check_finds_planted_faults)
{
    struct kv_pool p;
    struct kv_seq a;
    int32_t src, dst;
    pool_open(&p, 8, 4);
    ASSERT_OK(kv_seq_init(&a, 8, &err));
    ASSERT_OK(kv_seq_grow(&p, &a, 6, &src, &dst, &err));
    const struct kv_seq *all[] = {&a};
    assert_int_equal(kv_pool_check(&p, all, 1), 0);
    p.ref[a.blk[0]]++; /* leaked reference */
    assert_int_equal(kv_pool_check(&p, all, 1), 2);
    p.ref[a.blk[0]]--;
    p.n_free--; /* lost block */
    assert_int_not_equal(kv_pool_check(&p, all, 1), 0);
    p.n_free++;
    a.n_tok = 3; /* table longer than the tokens */
    assert_int_not_equal(kv_pool_check(&p, all, 1), 0);
    a.n_tok = 6;
    kv_seq_clear(&p, &a);
    kv_seq_fini(&a);
    kv_pool_fini(&p);
}

TEST(kv_init_fails_cleanly_without_memory)
{
    int64_t before = mem_used(MEM_KV);
    int n_fail = 0;
    for (int k = 1; k < 10; k++) {
        struct kv_pool p;
        struct kv_seq s;
        mem_fail_at((uint64_t)k, 0);
        sl_status st = kv_pool_init(&p, 8, 4, &err);
        if (!st) {
            st = kv_seq_init(&s, 8, &err);
            if (!st) kv_seq_fini(&s);
            kv_pool_fini(&p);
        }
        mem_fail_at(0, 0);
        assert_int_equal(mem_used(MEM_KV), before);
        if (!st) break;
        assert_int_equal(st, SL_NOMEM);
        n_fail++;
    }
    assert_int_equal(n_fail, 4);
}
