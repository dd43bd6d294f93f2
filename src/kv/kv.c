/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of blocks: allocation, reference counts, and eviction when none is free. */
#include "kv/kv.h"

#include <string.h>

#include "base/rng.h"
#include "kv/kv_internal.h"

sl_status kv_pool_init(struct kv_pool *p, int n_blk, int blk_tok, sl_err *err)
{
    void *a = NULL, *b = NULL, *c = NULL;
    memset(p, 0, sizeof *p);
    if (n_blk < 1 || blk_tok < 1)
        return SL_FAIL(err, REQUEST, "kv pool: %d blocks of %d tokens", n_blk, blk_tok);
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n_blk, sizeof(int32_t), &a, err));
    if (mem_alloc_array(MEM_KV, (size_t)n_blk, sizeof(int32_t), &b, err) ||
        mem_alloc_array(MEM_KV, (size_t)n_blk, sizeof(int32_t), &c, err)) {
        mem_free(a);
        mem_free(b);
        return SL_NOMEM;
    }
    p->free_blk = a;
    p->ref = b;
    p->seen = c;
    p->hash_mask = UINT64_MAX;
    p->n_blk = n_blk;
    p->blk_tok = blk_tok;
    p->n_free = n_blk;
    kv_pool_shuffle(p, 0);
    return SL_OK;
}

void kv_pool_fini(struct kv_pool *p)
{
    mem_free(p->free_blk);
    mem_free(p->ref);
    mem_free(p->seen);
    mem_free(p->node);
    mem_free(p->tok);
    mem_free(p->bucket);
    mem_free(p->owner);
    mem_free(p->snap_free);
    mem_free(p->snap);
    mem_free(p->win_free);
    mem_free(p->win);
    mem_free(p->win_of);
    memset(p, 0, sizeof *p);
}

void kv_pool_shuffle(struct kv_pool *p, uint64_t seed)
{
    ASSERT(p->n_free == p->n_blk);
    for (int i = 0; i < p->n_blk; i++)
        p->free_blk[i] = p->n_blk - 1 - i; /* a stack: block 0 on top */
    if (!seed) return;
    for (int i = p->n_blk - 1; i > 0; i--) {
        int j = (int)(rng_next(&seed) % (uint64_t)(i + 1));
        int32_t t = p->free_blk[i];
        p->free_blk[i] = p->free_blk[j];
        p->free_blk[j] = t;
    }
}

int kv_pool_avail(const struct kv_pool *p)
{
    return p->n_free + p->n_kept;
}

int kv_pool_avail_to(const struct kv_pool *p, struct kv_who who)
{
    int n = kv_pool_avail(p);
    if (!p->node || who.all) return n;
    const struct kv_owner *o = &p->owner[who.owner];
    return n - (p->n_reserved - BASE_MIN(o->n_kept, o->reserve));
}

void kv_block_release(struct kv_pool *p, int32_t blk)
{
    p->free_blk[p->n_free++] = blk;
    if (p->on_free) p->on_free(p->user, blk);
}

int32_t kv_block_alloc(struct kv_pool *p, struct kv_who who)
{
    if (p->n_free == 0 && kv_pool_avail_to(p, who) > 0) kv_tree_evict(p, who);
    if (p->n_free == 0) return -1;
    int32_t blk = p->free_blk[--p->n_free];
    ASSERT(p->ref[blk] == 0 && !kv_in_tree(p, blk));
    p->ref[blk] = 1;
    return blk;
}

void kv_block_ref(struct kv_pool *p, int32_t blk)
{
    ASSERT(blk >= 0 && blk < p->n_blk && (p->ref[blk] > 0 || kv_in_tree(p, blk)));
    if (p->ref[blk]++ == 0) kv_tree_use(p, blk);
}

void kv_block_unref(struct kv_pool *p, int32_t blk, int owner)
{
    ASSERT(blk >= 0 && blk < p->n_blk && p->ref[blk] > 0);
    if (--p->ref[blk]) return;
    if (kv_in_tree(p, blk))
        kv_tree_keep(p, blk, owner);
    else
        kv_block_release(p, blk);
}

sl_status kv_seq_init(struct kv_seq *s, int cap, sl_err *err)
{
    void *p = NULL;
    memset(s, 0, sizeof *s);
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)cap, sizeof(int32_t), &p, err));
    s->blk = p;
    s->cap = cap;
    s->snap = s->win_src = s->win_dst = -1;
    return SL_OK;
}

void kv_seq_fini(struct kv_seq *s)
{
    ASSERT(s->n_blk == 0);
    mem_free(s->blk);
    memset(s, 0, sizeof *s);
}

/* The last block is partly filled and others name it too, or it is in the tree (a trimmed
 * sequence): it must be copied before the next token is stored. */
static bool shared_tail(const struct kv_pool *p, const struct kv_seq *s)
{
    if (s->n_tok % p->blk_tok == 0) return false;
    int32_t last = s->blk[s->n_blk - 1];
    return p->ref[last] > 1 || kv_in_tree(p, last);
}

static int blocks_for(const struct kv_pool *p, int n_tok)
{
    return n_tok / p->blk_tok + (n_tok % p->blk_tok != 0);
}

int kv_seq_need(const struct kv_pool *p, const struct kv_seq *s, int n_new)
{
    if (n_new <= 0) return 0;
    return blocks_for(p, s->n_tok + n_new) - s->n_blk + shared_tail(p, s);
}

int64_t kv_seq_room(const struct kv_pool *p, const struct kv_seq *s)
{
    int64_t own = (int64_t)s->n_blk * p->blk_tok - s->n_tok, avail = kv_pool_avail_to(p, s->who);
    if (!shared_tail(p, s)) return own + avail * p->blk_tok;
    return avail ? own + (avail - 1) * p->blk_tok : 0;
}

static int32_t new_block(struct kv_pool *p, const struct kv_seq *s)
{
    int32_t blk = kv_block_alloc(p, s->who);
    if (p->n_win) kv_win_take(p, blk);
    return blk;
}

sl_status kv_seq_grow(struct kv_pool *p, struct kv_seq *s, int n_new, int32_t *copy_src,
                      int32_t *copy_dst, sl_err *err)
{
    *copy_src = *copy_dst = -1;
    if (n_new <= 0) return SL_OK;
    int total = blocks_for(p, s->n_tok + n_new), need = kv_seq_need(p, s, n_new);
    if (total > s->cap)
        return SL_FAIL(err, LIMIT, "sequence of %d tokens: more than %d blocks of %d",
                       s->n_tok + n_new, s->cap, p->blk_tok);
    if (need > kv_pool_avail_to(p, s->who))
        return SL_FAIL(err, BUSY, "kv cache is full: %d blocks needed, %d free", need,
                       kv_pool_avail_to(p, s->who));
    if (p->n_win && need > kv_win_avail(p))
        return SL_FAIL(err, BUSY, "kv cache is full: %d places of windows needed, %d free", need,
                       kv_win_avail(p));
    s->win_src = s->win_dst = -1;
    if (s->n_tok == 0) s->epoch = p->epoch;
    if (shared_tail(p, s)) {
        int32_t *last = &s->blk[s->n_blk - 1];
        *copy_src = *last;
        *copy_dst = new_block(p, s);
        s->win_src = kv_win_of(p, *copy_src);
        s->win_dst = kv_win_of(p, *copy_dst);
        if (p->n_win) kv_win_give(p, *last);
        kv_block_unref(p, *last, s->who.owner);
        *last = *copy_dst;
        s->n_put = BASE_MIN(s->n_put, s->n_blk - 1);
    }
    while (s->n_blk < total)
        s->blk[s->n_blk++] = new_block(p, s);
    s->n_tok += n_new;
    return SL_OK;
}

void kv_seq_trim(struct kv_pool *p, struct kv_seq *s, int n_tok)
{
    ASSERT(n_tok >= 0 && n_tok <= s->n_tok);
    int keep = blocks_for(p, n_tok);
    while (s->n_blk > keep) {
        int32_t blk = s->blk[--s->n_blk];
        if (p->n_win && s->n_blk >= s->win0) kv_win_give(p, blk);
        kv_block_unref(p, blk, s->who.owner);
    }
    s->n_tok = n_tok;
    s->win0 = BASE_MIN(s->win0, s->n_blk);
    kv_win_hold(p, s);
    s->n_put = BASE_MIN(s->n_put, n_tok / p->blk_tok);
}

sl_status kv_seq_fork(struct kv_pool *p, const struct kv_seq *src, struct kv_seq *dst, sl_err *err)
{
    ASSERT(dst->n_blk == 0 && dst->n_tok == 0);
    if (src->n_blk > dst->cap)
        return SL_FAIL(err, LIMIT, "fork of %d blocks into a sequence of at most %d", src->n_blk,
                       dst->cap);
    for (int i = 0; i < src->n_blk; i++) {
        kv_block_ref(p, src->blk[i]);
        dst->blk[i] = src->blk[i];
    }
    dst->n_blk = src->n_blk;
    dst->n_tok = src->n_tok;
    dst->n_put = src->n_put;
    dst->win0 = src->win0;
    kv_win_fork(p, dst);
    dst->epoch = src->epoch;
    return SL_OK;
}

void kv_seq_clear(struct kv_pool *p, struct kv_seq *s)
{
    kv_seq_trim(p, s, 0);
}

static int check_tables(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq)
{
    memset(p->seen, 0, (size_t)p->n_blk * sizeof *p->seen);
    for (int i = 0; i < n_seq; i++) {
        if (seqs[i]->n_blk != blocks_for(p, seqs[i]->n_tok)) return 3;
        for (int k = 0; k < seqs[i]->n_blk; k++) {
            int32_t b = seqs[i]->blk[k];
            if (b < 0 || b >= p->n_blk) return 2;
            p->seen[b]++;
        }
    }
    for (int b = 0; b < p->n_blk; b++)
        if (p->seen[b] != p->ref[b]) return 2;
    return 0;
}

int kv_pool_check(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq)
{
    int n_used = 0, n_kept = 0, broken = check_tables(p, seqs, n_seq);
    if (broken) return broken;
    for (int b = 0; b < p->n_blk; b++) {
        n_used += p->ref[b] > 0;
        n_kept += p->ref[b] == 0 && kv_in_tree(p, b);
    }
    if (n_kept != p->n_kept || p->n_free + n_used + n_kept != p->n_blk) return 1;
    memset(p->seen, 0, (size_t)p->n_blk * sizeof *p->seen);
    for (int i = 0; i < p->n_free; i++) {
        int32_t b = p->free_blk[i];
        if (p->ref[b] || kv_in_tree(p, b) || p->seen[b]++) return 2;
    }
    broken = p->node ? kv_tree_check(p) : 0;
    if (!broken) broken = kv_snap_check(p);
    return broken ? broken : kv_win_check(p, seqs, n_seq);
}
