/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded queue and the snapshot of counters; ring.h says how they stay correct. */
#include "base/ring.h"

#include <string.h>

sl_status ring_init(struct ring *r, int n, sl_err *err)
{
    void *p = NULL;
    uint64_t size = 2;
    memset(r, 0, sizeof *r);
    ASSERT(n >= 1);
    while (size < (uint64_t)n)
        size *= 2;
    SL_TRY(mem_alloc_array(MEM_MISC, size, sizeof *r->cell, &p, err));
    r->cell = p;
    r->mask = size - 1;
    for (uint64_t i = 0; i < size; i++)
        atomic_init(&r->cell[i].turn, i);
    return SL_OK;
}

void ring_fini(struct ring *r)
{
    mem_free(r->cell);
    memset(r, 0, sizeof *r);
}

bool ring_push(struct ring *r, uint64_t value)
{
    uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed);
    for (;;) {
        struct ring_cell *c = &r->cell[at & r->mask];
        /* acquire: pairs with the release in ring_pop, so that the cell is not written before it
         * was read */
        int64_t ahead = (int64_t)(atomic_load_explicit(&c->turn, memory_order_acquire) - at);
        if (ahead < 0) return false;
        if (ahead > 0) {
            at = atomic_load_explicit(&r->head, memory_order_relaxed);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&r->head, &at, at + 1, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        c->value = value;
        atomic_store_explicit(&c->turn, at + 1,
                              memory_order_release); /* pairs with the acquire in ring_pop */
        return true;
    }
}

bool ring_pop(struct ring *r, uint64_t *value)
{
    uint64_t at = atomic_load_explicit(&r->tail, memory_order_relaxed);
    for (;;) {
        struct ring_cell *c = &r->cell[at & r->mask];
        int64_t ahead = (int64_t)(atomic_load_explicit(&c->turn, memory_order_acquire) - (at + 1));
        if (ahead < 0) return false;
        if (ahead > 0) {
            at = atomic_load_explicit(&r->tail, memory_order_relaxed);
            continue;
        }
        if (!atomic_compare_exchange_weak_explicit(&r->tail, &at, at + 1, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        *value = c->value;
        atomic_store_explicit(&c->turn, at + r->mask + 1, memory_order_release);
        return true;
    }
}

bool ring_empty(struct ring *r)
{
    uint64_t at = atomic_load(
        &r->tail); /* sequentially consistent: ring_push, then a flag; a flag, then this */
    return (int64_t)(atomic_load(&r->cell[at & r->mask].turn) - (at + 1)) < 0;
}

sl_status ring_snap_init(struct ring_snap *s, int n, sl_err *err)
{
    void *p = NULL;
    memset(s, 0, sizeof *s);
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)n, sizeof *s->word, &p, err));
    s->word = p;
    s->n = n;
    return SL_OK;
}

void ring_snap_fini(struct ring_snap *s)
{
    mem_free((void *)s->word);
    memset(s, 0, sizeof *s);
}

/* The words are release and acquire themselves instead of fences, which the thread sanitizer does
 * not know: a reader that sees a new word sees the odd number that was written before it, and so
 * finds the second number changed. */
void ring_snap_put(struct ring_snap *s, const uint64_t *word)
{
    uint64_t seq = atomic_load_explicit(&s->seq, memory_order_relaxed);
    atomic_store_explicit(&s->seq, seq + 1, memory_order_relaxed);
    for (int i = 0; i < s->n; i++)
        atomic_store_explicit(&s->word[i], word[i], memory_order_release);
    atomic_store_explicit(&s->seq, seq + 2, memory_order_release);
}

void ring_snap_get(struct ring_snap *s, uint64_t *word)
{
    for (;;) {
        uint64_t seq = atomic_load_explicit(&s->seq, memory_order_acquire);
        for (int i = 0; i < s->n; i++)
            word[i] = atomic_load_explicit(&s->word[i], memory_order_acquire);
        if (seq % 2 == 0 && atomic_load_explicit(&s->seq, memory_order_relaxed) == seq) return;
    }
}
