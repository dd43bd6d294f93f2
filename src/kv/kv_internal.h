/* SPDX-License-Identifier: Apache-2.0 */
/* Between the pool (kv.c) and the prefix tree (tree.c). */
#ifndef KV_INTERNAL_H
#define KV_INTERNAL_H

#include "kv/kv.h"

static inline bool kv_in_tree(const struct kv_pool *p, int32_t blk)
{
    return p->node && p->node[blk].in_tree;
}

void kv_block_release(struct kv_pool *p, int32_t blk);        /* to the free stack */
void kv_tree_keep(struct kv_pool *p, int32_t blk, int owner); /* the last sequence let it go */
void kv_tree_use(struct kv_pool *p, int32_t blk);         /* a kept block is in a sequence again */
void kv_tree_evict(struct kv_pool *p, struct kv_who who); /* a kept block is free */
int kv_tree_check(const struct kv_pool *p);
void kv_snap_drop(struct kv_pool *p, int32_t blk); /* the block leaves the tree */
void kv_snap_use(struct kv_pool *p, int32_t snap); /* used most recently of all from now on */
int kv_snap_check(const struct kv_pool *p);
/* win.c; nothing of it does anything in a pool without windows. */
void kv_win_drop(struct kv_pool *p, int32_t blk); /* the block leaves the tree */
/* s sees all blocks from the first that its next position sees; their places are there. */
void kv_win_hold(struct kv_pool *p, struct kv_seq *s);
void kv_win_fork(struct kv_pool *p, struct kv_seq *s); /* it sees what the other one sees */
/* Block i of s is about to give way to had, of the same tokens: s sees that one's place, or had
 * gets the place. False: neither can be. */
bool kv_win_swap(struct kv_pool *p, const struct kv_seq *s, int i, int32_t had);
int kv_win_check(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq);

#endif
