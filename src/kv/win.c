/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: layers that see the last n_window positions only store them in blocks of another pool.
 * A block of tokens has at most one place there, for the same tokens; it loses it when no sequence
 * sees it any more. Places of nodes of the tree are kept until one is needed: the least
 * recently used goes first, and the node stays, with nothing for these layers. */
#include <string.h>

#include "kv/kv_internal.h"

int kv_win_most(int n_window, int blk_tok, int n_seq, int n_tok)
{
    int64_t seq = (int64_t)(n_window / blk_tok + 4) * (n_seq + 1);
    return (int)BASE_MIN(seq + 2 * ((int64_t)n_tok / blk_tok + 1), INT32_MAX / 2);
}

sl_status kv_win_init(struct kv_pool *p, int n_window, int n_win, sl_err *err)
{
    void *v = NULL;
    ASSERT(n_window >= 1 && n_win >= 1 && !p->n_win);
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n_win, sizeof *p->win_free, &v, err));
    p->win_free = v;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n_win, sizeof *p->win, &v, err));
    p->win = v;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)p->n_blk, sizeof *p->win_of, &v, err));
    p->win_of = v;
    memset(p->win_of, 0xff, (size_t)p->n_blk * sizeof *p->win_of);
    p->n_window = n_window;
    p->n_win = p->n_win_free = n_win;
    p->win_old = p->win_new = -1;
    for (int i = 0; i < n_win; i++) {
        p->win_free[i] = n_win - 1 - i; /* a stack: place 0 on top */
        p->win[i] = (struct kv_win){-1, 0, -1, -1};
    }
    return SL_OK;
}

int32_t kv_win_of(const struct kv_pool *p, int32_t blk)
{
    return p->n_win ? p->win_of[blk] : -1;
}

int kv_win_avail(const struct kv_pool *p)
{
    return p->n_win_free + p->n_win_kept;
}

/* ---- order of use ---- */

static void unlink_win(struct kv_pool *p, int32_t k)
{
    struct kv_win *n = &p->win[k];
    if (n->prev >= 0)
        p->win[n->prev].next = n->next;
    else
        p->win_old = n->next;
    if (n->next >= 0)
        p->win[n->next].prev = n->prev;
    else
        p->win_new = n->prev;
    n->prev = n->next = -1;
    p->n_win_kept--;
}

static void link_newest(struct kv_pool *p, int32_t k)
{
    p->win[k].prev = p->win_new;
    p->win[k].next = -1;
    if (p->win_new >= 0)
        p->win[p->win_new].next = k;
    else
        p->win_old = k;
    p->win_new = k;
    p->n_win_kept++;
}

/* ---- places ---- */

static void release(struct kv_pool *p, int32_t k)
{
    p->win_of[p->win[k].blk] = -1;
    p->win[k].blk = -1;
    p->win_free[p->n_win_free++] = k;
    if (p->on_win_free) p->on_win_free(p->user, k);
}

void kv_win_take(struct kv_pool *p, int32_t blk)
{
    ASSERT(kv_win_avail(p) > 0 && p->win_of[blk] < 0);
    if (p->n_win_free == 0) {
        int32_t old = p->win_old;
        unlink_win(p, old);
        release(p, old);
        p->n_win_evict++;
    }
    int32_t k = p->win_free[--p->n_win_free];
    p->win[k].blk = blk;
    p->win[k].n_use = 1;
    p->win_of[blk] = k;
}

/* One more sequence sees the block. */
static void hold(struct kv_pool *p, int32_t blk)
{
    int32_t k = p->win_of[blk];
    ASSERT(k >= 0);
    if (p->win[k].n_use++ == 0) unlink_win(p, k);
}

void kv_win_give(struct kv_pool *p, int32_t blk)
{
    int32_t k = p->win_of[blk];
    ASSERT(k >= 0 && p->win[k].n_use > 0);
    if (--p->win[k].n_use) return;
    if (kv_in_tree(p, blk))
        link_newest(p, k);
    else
        release(p, k);
}

void kv_win_drop(struct kv_pool *p, int32_t blk)
{
    int32_t k = kv_win_of(p, blk);
    if (k < 0 || p->win[k].n_use) return;
    unlink_win(p, k);
    release(p, k);
}

/* ---- of sequences ---- */

/* The first block that the position after n_tok sees. */
static int first_of(const struct kv_pool *p, int n_tok)
{
    int at = n_tok - p->n_window + 1;
    return at > 0 ? at / p->blk_tok : 0;
}

void kv_seq_slide(struct kv_pool *p, struct kv_seq *s)
{
    if (!p->n_win) return;
    int to = BASE_MIN(first_of(p, s->n_tok), s->n_blk);
    for (; s->win0 < to; s->win0++)
        kv_win_give(p, s->blk[s->win0]);
}

int kv_win_before(const struct kv_pool *p, const struct kv_seq *s, int n_tok)
{
    for (int n = n_tok; p->n_win && n > 0;) {
        int first = first_of(p, n), i = (n + p->blk_tok - 1) / p->blk_tok;
        while (i > first && p->win_of[s->blk[i - 1]] >= 0)
            i--;
        if (i <= first) return n;
        n = (i - 1) * p->blk_tok;
    }
    return p->n_win ? 0 : n_tok;
}

void kv_win_hold(struct kv_pool *p, struct kv_seq *s)
{
    if (!p->n_win) return;
    int first = first_of(p, s->n_tok);
    for (; s->win0 > first; s->win0--)
        hold(p, s->blk[s->win0 - 1]);
}

void kv_win_fork(struct kv_pool *p, struct kv_seq *s)
{
    for (int i = s->win0; p->n_win && i < s->n_blk; i++)
        hold(p, s->blk[i]);
}

bool kv_win_swap(struct kv_pool *p, const struct kv_seq *s, int i, int32_t had)
{
    int32_t blk = s->blk[i];
    if (!p->n_win || i < s->win0) return true;
    if (p->win_of[had] >= 0) {
        hold(p, had);
        kv_win_give(p, blk);
        return true;
    }
    if (p->ref[blk] > 1) return false; /* others see it too */
    int32_t k = p->win_of[blk];
    p->win_of[blk] = -1;
    p->win_of[had] = k;
    p->win[k].blk = had;
    return true;
}

/* ---- checking ---- */

static int check_seqs(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq)
{
    memset(p->seen, 0, (size_t)p->n_blk * sizeof *p->seen);
    for (int i = 0; i < n_seq; i++) {
        const struct kv_seq *s = seqs[i];
        if (s->win0 > first_of(p, s->n_tok) || s->win0 < 0) return 11;
        for (int k = s->win0; k < s->n_blk; k++)
            p->seen[s->blk[k]]++;
    }
    for (int32_t b = 0; b < p->n_blk; b++) {
        int32_t k = p->win_of[b];
        if (k < 0 ? p->seen[b] != 0 : p->win[k].blk != b || p->win[k].n_use != p->seen[b])
            return 11;
    }
    return 0;
}

int kv_win_check(const struct kv_pool *p, const struct kv_seq *const *seqs, int n_seq)
{
    int n_kept = 0, n_used = 0;
    int32_t prev = -1;
    if (!p->n_win) return 0;
    int broken = check_seqs(p, seqs, n_seq);
    if (broken) return broken;
    for (int32_t k = p->win_old; k >= 0; k = p->win[k].next) {
        int32_t b = p->win[k].blk;
        if (b < 0 || !kv_in_tree(p, b) || p->win_of[b] != k || p->win[k].n_use ||
            p->win[k].prev != prev || ++n_kept > p->n_win)
            return 11;
        prev = k;
    }
    for (int k = 0; k < p->n_win; k++)
        n_used += p->win[k].blk >= 0 && p->win[k].n_use > 0;
    for (int i = 0; i < p->n_win_free; i++)
        if (p->win[p->win_free[i]].blk >= 0) return 11;
    bool whole = p->n_win_free + n_used + n_kept == p->n_win;
    return whole && n_kept == p->n_win_kept && prev == p->win_new ? 0 : 11;
}
