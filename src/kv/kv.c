/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/kv.h"

#include <string.h>

#include "base/rng.h"

sl_status kv_pool_init(struct kv_pool *p, int n_blk, int blk_tok, sl_err *err)
{
    void *a = NULL, *b = NULL;
    memset(p, 0, sizeof *p);
    if (n_blk < 1 || blk_tok < 1)
        return SL_FAIL(err, REQUEST, "kv pool: %d blocks of %d tokens", n_blk, blk_tok);
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n_blk, sizeof(int32_t), &a, err));
    if (mem_alloc_array(MEM_KV, (size_t)n_blk, sizeof(int32_t), &b, err)) {
        mem_free(a);
        return SL_NOMEM;
    }
    p->free_blk = a;
    p->ref = b;
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

int32_t kv_block_alloc(struct kv_pool *p)
{
    if (p->n_free == 0) return -1;
    int32_t blk = p->free_blk[--p->n_free];
    ASSERT(p->ref[blk] == 0);
    p->ref[blk] = 1;
    return blk;
}

void kv_block_ref(struct kv_pool *p, int32_t blk)
{
    ASSERT(blk >= 0 && blk < p->n_blk && p->ref[blk] > 0);
    p->ref[blk]++;
}

void kv_block_unref(struct kv_pool *p, int32_t blk)
{
    ASSERT(blk >= 0 && blk < p->n_blk && p->ref[blk] > 0);
    if (--p->ref[blk] == 0) p->free_blk[p->n_free++] = blk;
}

sl_status kv_seq_init(struct kv_seq *s, int cap, sl_err *err)
{
    void *p = NULL;
    memset(s, 0, sizeof *s);
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)cap, sizeof(int32_t), &p, err));
    s->blk = p;
    s->cap = cap;
    return SL_OK;
}

void kv_seq_fini(struct kv_seq *s)
{
    ASSERT(s->n_blk == 0);
    mem_free(s->blk);
    memset(s, 0, sizeof *s);
}

/* The last block is partly filled and others name it too: it must be copied before the next token
 * is stored. */
static bool shared_tail(const struct kv_pool *p, const struct kv_seq *s)
{
    return s->n_tok % p->blk_tok != 0 && p->ref[s->blk[s->n_blk - 1]] > 1;
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

sl_status kv_seq_grow(struct kv_pool *p, struct kv_seq *s, int n_new, int32_t *copy_src,
                      int32_t *copy_dst, sl_err *err)
{
    *copy_src = *copy_dst = -1;
    if (n_new <= 0) return SL_OK;
    int total = blocks_for(p, s->n_tok + n_new), need = kv_seq_need(p, s, n_new);
    if (total > s->cap)
        return SL_FAIL(err, LIMIT, "sequence of %d tokens: more than %d blocks of %d",
                       s->n_tok + n_new, s->cap, p->blk_tok);
    if (need > p->n_free)
        return SL_FAIL(err, BUSY, "kv cache is full: %d blocks needed, %d free", need, p->n_free);
    if (shared_tail(p, s)) {
        int32_t *last = &s->blk[s->n_blk - 1];
        *copy_src = *last;
        *copy_dst = kv_block_alloc(p);
        kv_block_unref(p, *last);
        *last = *copy_dst;
    }
    while (s->n_blk < total)
        s->blk[s->n_blk++] = kv_block_alloc(p);
    s->n_tok += n_new;
    return SL_OK;
}

void kv_seq_trim(struct kv_pool *p, struct kv_seq *s, int n_tok)
{
    ASSERT(n_tok >= 0 && n_tok <= s->n_tok);
    int keep = blocks_for(p, n_tok);
    while (s->n_blk > keep)
        kv_block_unref(p, s->blk[--s->n_blk]);
    s->n_tok = n_tok;
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
    return SL_OK;
}

void kv_seq_clear(struct kv_pool *p, struct kv_seq *s)
{
    kv_seq_trim(p, s, 0);
}

static int count_in_tables(const struct kv_seq *const *seqs, int n_seq, int32_t blk)
{
    int n = 0;
    for (int i = 0; i < n_seq; i++)
        for (int j = 0; j < seqs[i]->n_blk; j++)
            n += seqs[i]->blk[j] == blk;
    return n;
}

int kv_pool_check(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq)
{
    int n_free = 0;
    for (int b = 0; b < p->n_blk; b++) {
        if (count_in_tables(seqs, n_seq, b) != p->ref[b]) return b + 1;
        n_free += p->ref[b] == 0;
    }
    if (n_free != p->n_free) return p->n_blk;
    for (int i = 0; i < p->n_free; i++)
        if (p->ref[p->free_blk[i]] != 0) return p->free_blk[i] + 1;
    for (int i = 0; i < n_seq; i++)
        if (seqs[i]->n_blk != blocks_for(p, seqs[i]->n_tok)) return seqs[i]->blk[0] + 1;
    return 0;
}
