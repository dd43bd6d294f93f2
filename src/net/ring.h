/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of bytes from one producer thread to one consumer thread, without locks: records are whole
 * or not there. */
#ifndef NET_RING_H
#define NET_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

struct net_ring {
    uint8_t *p;
    size_t cap;                       /* power of two */
    _Alignas(64) _Atomic size_t head; /* bytes put; producer writes (release; pairs with get) */
    _Alignas(64) _Atomic size_t tail; /* bytes taken; consumer writes (release; pairs with put) */
};

/* cap in bytes is rounded up to a power of two. Errors: NOMEM. Caller: net_ring_fini. */
sl_status net_ring_init(struct net_ring *r, size_t cap, sl_err *err) BASE_MUST_USE;
void net_ring_fini(struct net_ring *r);
/* Append the n pieces as one; false, and nothing appended, when they do not fit. Producer. */
struct net_piece {
    const void *p;
    size_t n;
};
bool net_ring_put(struct net_ring *r, const struct net_piece *piece, int n);
size_t net_ring_used(const struct net_ring *r); /* any thread, a moment's truth */
/* Copy out n bytes that net_ring_used said are there. Consumer. */
void net_ring_get(struct net_ring *r, void *out, size_t n);

#endif
