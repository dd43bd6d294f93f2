/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of 64-bit values between threads, without locks: any thread may push and any may
 * pop. Also a snapshot of counters that one thread writes and any may read.
 *
 * Queue: D. Vyukov's bounded queue: every cell carries a turn number, which says whether it waits
 * for a value or holds one. A thread that stopped between taking a place and filling it delays only
 * the threads that come to that cell. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

struct ring_cell {
    _Atomic uint64_t turn;
    uint64_t value;
};

struct ring {
    /* fixed after init */
    struct ring_cell *cell; /* [mask + 1] */
    uint64_t mask;
    /* any thread */
    _Alignas(64) _Atomic uint64_t head; /* next push */
    _Alignas(64) _Atomic uint64_t tail; /* next pop */
};

/* Room for at least n values. Errors: NOMEM. */
sl_status ring_init(struct ring *r, int n, sl_err *err) BASE_MUST_USE;
void ring_fini(struct ring *r); /* a zeroed ring is legal */
/* False when the ring is full (empty). What was written before a push is seen after the pop of its
 * value. */
bool ring_push(struct ring *r, uint64_t value);
bool ring_pop(struct ring *r, uint64_t *value);
bool ring_empty(struct ring *r); /* a moment's answer */

/* n words that one thread publishes together. */
struct ring_snap {
    _Atomic uint64_t seq; /* odd while the words change */
    int n;
    _Atomic uint64_t *word;
};
/* Errors: NOMEM. */
sl_status ring_snap_init(struct ring_snap *s, int n, sl_err *err) BASE_MUST_USE;
void ring_snap_fini(struct ring_snap *s);
void ring_snap_put(struct ring_snap *s, const uint64_t *word); /* one thread */
void ring_snap_get(struct ring_snap *s,
                   uint64_t *word); /* any thread; never waits long: writers are rare */

#endif
