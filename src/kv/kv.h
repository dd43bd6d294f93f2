/* SPDX-License-Identifier: Apache-2.0 */
/* Paged-KV bookkeeping: which block holds which tokens of which sequence. Integers only; no
 * tensors. See kv/README.md for the invariants. */
#ifndef KV_KV_H
#define KV_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* A pool of n_blk blocks of blk_tok tokens. free + referenced == n_blk at all times. Engine thread.
 */
struct kv_pool {
    /* fixed after init */
    int n_blk, blk_tok;
    /* engine thread */
    int n_free;
    int32_t *free_blk; /* stack of free blocks, [0, n_free) */
    int32_t *ref;      /* [n_blk] references; 0 = free */
};

sl_status kv_pool_init(struct kv_pool *p, int n_blk, int blk_tok, sl_err *err) BASE_MUST_USE;
void kv_pool_fini(struct kv_pool *p);
/* Order in which the free blocks are handed out: shuffled by seed (tests: scattered blocks); 0
 * restores rising order. Only when all are free. */
void kv_pool_shuffle(struct kv_pool *p, uint64_t seed);
int32_t kv_block_alloc(struct kv_pool *p); /* -1 = none free; reference count 1 */
void kv_block_ref(struct kv_pool *p, int32_t blk);
void kv_block_unref(struct kv_pool *p, int32_t blk); /* to 0: free again */

/* The blocks of one sequence, in order of position. Caller's memory. */
struct kv_seq {
    int32_t *blk; /* [cap] */
    int n_blk, cap;
    int n_tok; /* positions stored */
};
/* cap: the most blocks it can ever have. */
sl_status kv_seq_init(struct kv_seq *s, int cap, sl_err *err) BASE_MUST_USE;
void kv_seq_fini(struct kv_seq *s); /* must be empty */
/* Blocks that n_new more tokens need beyond those held. A shared last block that must be copied
 * before writing counts as one. */
int kv_seq_need(const struct kv_pool *p, const struct kv_seq *s, int n_new);
/* Make room for n_new more positions and count them as stored. BUSY, and nothing changed, when
 * blocks run out; LIMIT over cap. *copy_src/-dst: -1, or a shared last block that the caller must
 * copy (dev_kv_copy) before the step. */
sl_status kv_seq_grow(struct kv_pool *p, struct kv_seq *s, int n_new, int32_t *copy_src,
                      int32_t *copy_dst, sl_err *err) BASE_MUST_USE;
/* Forget positions from n_tok on (speculation, failed steps). */
void kv_seq_trim(struct kv_pool *p, struct kv_seq *s, int n_tok);
/* dst (empty) shares all blocks of src. */
sl_status kv_seq_fork(struct kv_pool *p, const struct kv_seq *src, struct kv_seq *dst,
                      sl_err *err) BASE_MUST_USE;
void kv_seq_clear(struct kv_pool *p, struct kv_seq *s);
/* The accounting identity over all sequences given: every block's references equal the tables that
 * name it, free blocks are in none. For tests and debug builds: returns 0, or the first block that
 * breaks it plus 1. */
int kv_pool_check(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq);

#endif
