/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of recurrent states. A block's keys and values do not say what the state was after its
 * last token, so a node of the tree may own a copy of it; only places are counted here. Snapshots
 * are much dearer than blocks, so there are few and they have an order of use of their own. */
#include <string.h>

#include "kv/kv_internal.h"

sl_status kv_snap_init(struct kv_pool *p, int n_snap, sl_err *err)
{
    void *v = NULL;
    ASSERT(n_snap >= 0 && !p->has_state);
    p->has_state = true;
    p->snap_old = p->snap_new = -1;
    if (!p->node || n_snap == 0) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n_snap, sizeof *p->snap_free, &v, err));
    p->snap_free = v;
    SL_TRY(mem_alloc_array(MEM_KV, (size_t)n_snap, sizeof *p->snap, &v, err));
    p->snap = v;
    p->n_snap = p->n_snap_free = n_snap;
    for (int i = 0; i < n_snap; i++) {
        p->snap_free[i] = n_snap - 1 - i; /* a stack: place 0 on top */
        p->snap[i] = (struct kv_snap){-1, -1, -1};
    }
    return SL_OK;
}

/* ---- order of use ---- */

static void unlink_snap(struct kv_pool *p, int32_t k)
{
    struct kv_snap *n = &p->snap[k];
    if (n->prev >= 0)
        p->snap[n->prev].next = n->next;
    else
        p->snap_old = n->next;
    if (n->next >= 0)
        p->snap[n->next].prev = n->prev;
    else
        p->snap_new = n->prev;
    n->prev = n->next = -1;
}

static void link_newest(struct kv_pool *p, int32_t k)
{
    p->snap[k].prev = p->snap_new;
    p->snap[k].next = -1;
    if (p->snap_new >= 0)
        p->snap[p->snap_new].next = k;
    else
        p->snap_old = k;
    p->snap_new = k;
}

void kv_snap_use(struct kv_pool *p, int32_t snap)
{
    unlink_snap(p, snap);
    link_newest(p, snap);
}

/* ---- owners ---- */

int32_t kv_snap_of(const struct kv_pool *p, int32_t blk)
{
    return p->n_snap && kv_in_tree(p, blk) ? p->node[blk].snap : -1;
}

void kv_snap_drop(struct kv_pool *p, int32_t blk)
{
    int32_t k = p->node[blk].snap;
    if (!p->n_snap || k < 0) return;
    unlink_snap(p, k);
    p->snap[k].blk = p->node[blk].snap = -1;
    p->snap_free[p->n_snap_free++] = k;
}

int32_t kv_snap_take(struct kv_pool *p, int32_t blk)
{
    ASSERT(kv_in_tree(p, blk));
    int32_t had = kv_snap_of(p, blk);
    if (had >= 0) kv_snap_use(p, had);
    if (had >= 0 || p->n_snap == 0) return -1;
    if (p->n_snap_free == 0) {
        kv_snap_drop(p, p->snap[p->snap_old].blk);
        p->n_snap_evict++;
    }
    int32_t k = p->snap_free[--p->n_snap_free];
    p->snap[k].blk = blk;
    p->node[blk].snap = k;
    link_newest(p, k);
    return k;
}

int kv_snap_before(const struct kv_pool *p, const struct kv_seq *s, int n_tok, int32_t *snap)
{
    int i = n_tok / p->blk_tok;
    *snap = -1;
    while (i > 0 && (*snap = kv_snap_of(p, s->blk[i - 1])) < 0)
        i--;
    return i * p->blk_tok;
}

/* ---- checking ---- */

int kv_snap_check(const struct kv_pool *p)
{
    int n_owned = 0, n_node = 0;
    int32_t prev = -1;
    if (!p->n_snap) return 0;
    for (int32_t k = p->snap_old; k >= 0; k = p->snap[k].next) {
        int32_t b = p->snap[k].blk;
        if (b < 0 || kv_snap_of(p, b) != k || p->snap[k].prev != prev || ++n_owned > p->n_snap)
            return 10;
        prev = k;
    }
    for (int32_t b = 0; b < p->n_blk; b++)
        n_node += kv_snap_of(p, b) >= 0;
    for (int i = 0; i < p->n_snap_free; i++)
        if (p->snap[p->snap_free[i]].blk >= 0) return 10;
    return prev == p->snap_new && n_node == n_owned && n_owned + p->n_snap_free == p->n_snap ? 0
                                                                                             : 10;
}
