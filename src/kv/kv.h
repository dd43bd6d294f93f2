/* SPDX-License-Identifier: Apache-2.0 */
/* Paged-KV bookkeeping: which block holds which tokens of which sequence, and which blocks stay for
 * later sequences that begin alike. Integers only; no tensors. See kv/README.md for the invariants.
 */
#ifndef KV_KV_H
#define KV_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* A block's place in the prefix tree; the node of block b is node[b]. A node stands for blk_tok
 * tokens that follow those of its parents. */
struct kv_node {
    bool in_tree;
    int32_t parent;             /* block, -1 = the root */
    int32_t n_child;            /* nodes whose parent this is */
    int32_t chain;              /* next of the same hash bucket, -1 = none */
    int32_t lru_prev, lru_next; /* while in the tree with no reference; -1 = end */
    uint32_t mark;              /* which of the positions are marked, see kv_path */
    int32_t next;               /* the token after it, where paths look ahead; else -1 */
    int32_t owner;              /* whose sequence let it go last */
    int32_t snap;               /* snapshot of the state after its last token; -1 = none */
    uint64_t stamp;             /* when: later is larger */
    uint64_t salt, hash;
};

#define KV_OWNER_MAX 1024

/* Whose blocks are kept. Of each owner's, reserve many are only for itself: others take what is
 * over that. */
struct kv_owner {
    int32_t lru_old, lru_new; /* kept blocks by the time they were let go; -1 = none */
    int n_kept, reserve;
};

/* A snapshot of a recurrent state: the place for one, on the device. */
struct kv_snap {
    int32_t blk;        /* whose node owns it; -1 = free */
    int32_t prev, next; /* in the order of use, while owned; -1 = end */
};

/* A block's place in the pool of windows: for layers that see the last positions only. */
struct kv_win {
    int32_t blk;        /* whose it is; -1 = free */
    int32_t n_use;      /* sequences that see the block */
    int32_t prev, next; /* in the order of use, while kept; -1 = end */
};

/* A pool of n_blk blocks of blk_tok tokens. free + referenced + kept == n_blk at all times, where
 * kept blocks are in the tree and in no sequence. Engine thread. */
struct kv_pool {
    /* fixed after init */
    int n_blk, blk_tok;
    uint64_t hash_mask; /* of the bits of hashes that are used: tests make it small */
    void (*on_free)(void *user, int32_t blk); /* a block lost its contents; NULL */
    void *user;
    /* engine thread */
    int n_free, n_kept;
    int32_t *free_blk; /* stack of free blocks, [0, n_free) */
    int32_t *ref;      /* [n_blk] sequences that name it */
    uint64_t n_evict;  /* kept blocks given up since init */
    uint32_t epoch;    /* times the tree was dropped */
    /* the prefix tree; NULL without kv_cache_init */
    struct kv_node *node;   /* [n_blk] */
    int32_t *tok;           /* [n_blk, blk_tok] tokens of nodes */
    int32_t *bucket;        /* [n_bucket] first node, -1 = none */
    int n_bucket;           /* a power of two */
    struct kv_owner *owner; /* [KV_OWNER_MAX] */
    int n_owner;            /* places of it that were ever used */
    int n_reserved;         /* kept blocks that are within their owners' reserves */
    uint64_t n_stamp;
    /* snapshots, see kv_snap_init */
    bool has_state;
    int n_snap, n_snap_free;
    int32_t *snap_free;         /* stack of free ones */
    struct kv_snap *snap;       /* [n_snap] */
    int32_t snap_old, snap_new; /* least and most recently used */
    uint64_t n_snap_evict;      /* taken from a node for another, since init */
    /* windows, see kv_win_init */
    int n_window, n_win, n_win_free, n_win_kept;
    int32_t *win_free;        /* stack of free places */
    struct kv_win *win;       /* [n_win] */
    int32_t *win_of;          /* [n_blk] a block's place, -1 = none */
    int32_t win_old, win_new; /* least and most recently used of the kept ones */
    uint64_t n_win_evict;     /* taken from a node for another, since init */
    void (*on_win_free)(void *user, int32_t win); /* a place lost its contents; NULL */
    int32_t *seen;                                /* [n_blk] scratch of kv_pool_check */
};

/* All blocks are free. Errors: REQUEST (n_blk or blk_tok below 1), NOMEM. End with kv_pool_fini. */
sl_status kv_pool_init(struct kv_pool *p, int n_blk, int blk_tok, sl_err *err) BASE_MUST_USE;
void kv_pool_fini(struct kv_pool *p);
/* Order in which the free blocks are handed out: shuffled by seed (tests: scattered blocks); 0
 * restores rising order. Only when all are free. */
void kv_pool_shuffle(struct kv_pool *p, uint64_t seed);
/* Who asks for blocks: an owner, who leaves the others' reserves alone unless it may take all. */
struct kv_who {
    int owner; /* in [0, KV_OWNER_MAX) */
    bool all;
};

/* Blocks that are in no sequence now: the free ones and those that are only kept. */
int kv_pool_avail(const struct kv_pool *p);
/* Those that kv_block_alloc can give to who. */
int kv_pool_avail_to(const struct kv_pool *p, struct kv_who who);
/* Kept blocks that only the owner itself may take; 0 for none. */
void kv_owner_reserve(struct kv_pool *p, int owner, int n_blk);
/* -1 = none; reference count 1. When none is free the kept block goes that was used least recently
 * of all that are over their owner's reserve; else of who's own; else, when who may take all, of
 * any. */
int32_t kv_block_alloc(struct kv_pool *p, struct kv_who who);
void kv_block_ref(struct kv_pool *p, int32_t blk); /* also of a kept block */
/* To 0: kept, as owner's, when in the tree, else free. */
void kv_block_unref(struct kv_pool *p, int32_t blk, int owner);

/* The blocks of one sequence, in order of position. Caller's memory. */
struct kv_seq {
    int32_t *blk; /* [cap] */
    int n_blk, cap;
    int n_tok;                /* positions stored */
    int n_put;                /* leading blocks that are in the tree */
    int win0;                 /* with windows: the first block whose place it sees */
    int32_t win_src, win_dst; /* the same of kv_seq_grow's copy; -1 = none */
    int n_path;     /* kv_cache_match: tokens of the path that the tree had; >= what it gave */
    int32_t snap;   /* kv_cache_match: the snapshot of the state after its tokens; -1 = none */
    uint32_t epoch; /* of the tree when it began: an older one puts nothing */
    struct kv_who who;
};
/* Empty. cap: the most blocks it can ever have. Errors: NOMEM. */
sl_status kv_seq_init(struct kv_seq *s, int cap, sl_err *err) BASE_MUST_USE;
void kv_seq_fini(struct kv_seq *s); /* must be empty */
/* Blocks that n_new more tokens need beyond those held. A shared last block that must be copied
 * before writing counts as one. */
int kv_seq_need(const struct kv_pool *p, const struct kv_seq *s, int n_new);
/* Tokens that s could grow by with all blocks that kv_block_alloc can give to it. */
int64_t kv_seq_room(const struct kv_pool *p, const struct kv_seq *s);
/* Make room for n_new more positions and count them as stored. BUSY, and nothing changed, when
 * blocks run out; LIMIT over cap. *copy_src/-dst: -1, or a shared last block that the caller must
 * copy (dev_step.copy) before the step. */
sl_status kv_seq_grow(struct kv_pool *p, struct kv_seq *s, int n_new, int32_t *copy_src,
                      int32_t *copy_dst, sl_err *err) BASE_MUST_USE;
/* Forget positions from n_tok on (speculation, failed steps). A recurrent state goes back by
 * a step's drafts alone (dev_step.n_draft): see kv_snap_before; with windows: to where
 * kv_win_before allows. */
void kv_seq_trim(struct kv_pool *p, struct kv_seq *s, int n_tok);
/* dst (empty) shares all blocks of src. Errors: LIMIT: they are more than dst may have; nothing
 * changed. */
sl_status kv_seq_fork(struct kv_pool *p, const struct kv_seq *src, struct kv_seq *dst,
                      sl_err *err) BASE_MUST_USE;
void kv_seq_clear(struct kv_pool *p, struct kv_seq *s);

/* ---- the prefix tree ---- */

/* What a sequence is about. Positions in [mark0, mark1) are marked: their values were computed in
 * another form, and a block is only the same as one that is marked alike (all of its parents too).
 * ahead: what is stored at a position depends on the token after it too, so a block is only the
 * same where that of its last position is, and is put when it is known. All paths of a pool are
 * alike in it. */
struct kv_path {
    const int32_t *ids; /* [n] tokens by position */
    int n;
    uint64_t salt; /* paths of different salts have nothing in common */
    int mark0, mark1;
    bool ahead;
};
/* Tokens of the path's first n that can be in blocks of the tree. */
static inline int kv_path_whole(const struct kv_path *path, int n, int blk_tok)
{
    return BASE_MIN(n, path->n - path->ahead) / blk_tok * blk_tok;
}
/* Have a prefix tree from now on. Errors: NOMEM. */
sl_status kv_cache_init(struct kv_pool *p, sl_err *err) BASE_MUST_USE;
/* Give the empty sequence s the blocks of the longest beginning of the path that the tree has,
 * whole blocks, at most max_tok tokens. Tokens are compared, hashes only find them. Returns the
 * tokens. Cost: linear in them. For models with a recurrent state: the longest beginning whose last
 * block owns a snapshot, s->snap, to be copied to the sequence's state before its next step; and
 * s->n_path says how far the tree had blocks: where the path left another one. */
int kv_cache_match(struct kv_pool *p, const struct kv_path *path, int max_tok, struct kv_seq *s);
/* How many tokens kv_cache_match would find, at most: nothing changes. (With windows or states it
 * may give fewer.) */
int kv_cache_probe(const struct kv_pool *p, const struct kv_path *path, int max_tok);
/* Put the full blocks of s into the tree: path says what they hold. A block that the tree has
 * already (another sequence computed the same) replaces the one of s. Their contents must be final.
 * A sequence that began before the tree was dropped puts nothing. */
void kv_cache_put(struct kv_pool *p, const struct kv_path *path, struct kv_seq *s);
/* The model has a recurrent state: a hit is only of use where there is a snapshot of it. n_snap
 * places for them, each owned by a node of the tree from kv_snap_take until its block leaves the
 * tree or the place is needed for another: the least recently used goes first. n_snap 0, or a pool
 * without a tree: no hits. After kv_cache_init, once. Errors: NOMEM. */
sl_status kv_snap_init(struct kv_pool *p, int n_snap, sl_err *err) BASE_MUST_USE;
/* A place for the state after the last token of blk, which is in the tree: the caller copies the
 * state there before the sequence's next step. -1: the node has one already, or n_snap is 0. */
int32_t kv_snap_take(struct kv_pool *p, int32_t blk);
/* The snapshot of a block; -1 = none. */
int32_t kv_snap_of(const struct kv_pool *p, int32_t blk);
/* The deepest position of s, at most n_tok, of which there is a snapshot: *snap. 0 = none. */
int kv_snap_before(const struct kv_pool *p, const struct kv_seq *s, int n_tok, int32_t *snap);
/* The model has layers that see the last n_window positions only, itself included: their cache is
 * another pool, of n_win places for blk_tok tokens each. A block that a sequence sees has a place;
 * nodes of the tree keep theirs until they are needed. A match goes no deeper than where all blocks
 * that the next position sees have places. n_win: at least the lesser of n_blk and kv_win_most, so
 * that places never run out before blocks do. After kv_cache_init, once. Errors: NOMEM. */
sl_status kv_win_init(struct kv_pool *p, int n_window, int n_win, sl_err *err) BASE_MUST_USE;
/* The most places that n_seq sequences see together, when kv_seq_slide is called for all of them
 * before every step of n_tok tokens, and one more beside them. */
int kv_win_most(int n_window, int blk_tok, int n_seq, int n_tok);
/* The place of a block; -1 = none. */
int32_t kv_win_of(const struct kv_pool *p, int32_t blk);
int kv_win_avail(const struct kv_pool *p); /* places that no sequence sees */
/* A place for a block that has none, seen by the caller until kv_win_give. */
void kv_win_take(struct kv_pool *p, int32_t blk);
void kv_win_give(struct kv_pool *p, int32_t blk);
/* s sees no more what its next position does not see; before it grows. */
void kv_seq_slide(struct kv_pool *p, struct kv_seq *s);
/* The largest n <= n_tok to which s can be trimmed: what position n sees has places. */
int kv_win_before(const struct kv_pool *p, const struct kv_seq *s, int n_tok);
/* Empty the tree: kept blocks become free, those in use when their sequences end. */
void kv_cache_drop(struct kv_pool *p);

/* The accounting identity over all sequences given: every block's references equal the tables that
 * name it, free blocks are in none and in no tree, kept ones in the tree only; the tree's parents,
 * counts, buckets and order agree. For tests and debug builds: returns 0, or the number of the
 * invariant of kv/README.md that is broken. Cost: linear. */
int kv_pool_check(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq);

#endif
