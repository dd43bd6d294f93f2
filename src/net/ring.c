/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of bytes between one producer and one consumer. */
#include "net/ring.h"

#include <string.h>

sl_status net_ring_init(struct net_ring *r, size_t cap, sl_err *err)
{
    size_t n = 4096;
    void *p = NULL;
    while (n < cap)
        n *= 2;
    memset(r, 0, sizeof *r);
    SL_TRY(mem_alloc(MEM_REQUEST, n, &p, err));
    r->p = p;
    r->cap = n;
    return SL_OK;
}

void net_ring_fini(struct net_ring *r)
{
    mem_free(r->p);
    r->p = NULL;
}

static void copy_in(struct net_ring *r, size_t at, const void *p, size_t n)
{
    size_t i = at & (r->cap - 1), first = BASE_MIN(n, r->cap - i);
    if (first) memcpy(r->p + i, p, first);
    if (n > first) memcpy(r->p, (const uint8_t *)p + first, n - first);
}

bool net_ring_put(struct net_ring *r, const struct net_piece *piece, int n)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed), sum = 0;
    size_t tail = atomic_load_explicit(&r->tail, memory_order_acquire); /* pairs with get */
    for (int i = 0; i < n; i++)
        sum += piece[i].n;
    if (sum > r->cap - (head - tail)) return false;
    for (int i = 0; i < n; i++) {
        copy_in(r, head, piece[i].p, piece[i].n);
        head += piece[i].n;
    }
    atomic_store_explicit(&r->head, head, memory_order_release); /* pairs with used */
    return true;
}

size_t net_ring_used(const struct net_ring *r)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    return atomic_load_explicit(&r->head, memory_order_acquire) - tail; /* pairs with put */
}

void net_ring_get(struct net_ring *r, void *out, size_t n)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    size_t i = tail & (r->cap - 1), first = BASE_MIN(n, r->cap - i);
    if (first) memcpy(out, r->p + i, first);
    if (n > first) memcpy((uint8_t *)out + first, r->p, n - first);
    atomic_store_explicit(&r->tail, tail + n, memory_order_release); /* pairs with put */
}
