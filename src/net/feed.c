/* SPDX-License-Identifier: Apache-2.0 */
/* Carries events from the engine's thread to the net thread: a byte ring and one wake-up. */
#include "net/feed.h"

sl_status net_feed_init(struct net_feed *f, struct net_req *r, size_t bytes, bool lazy, sl_err *err)
{
    f->r = r;
    f->lazy = lazy;
    atomic_store(&f->broken, false);
    atomic_store(&f->dead, false);
    return net_ring_init(&f->ring, bytes, err);
}

void net_feed_fini(struct net_feed *f)
{
    net_ring_fini(&f->ring);
}

enum net_feed_rc net_feed_put(struct net_feed *f, const struct net_piece *piece, int n, bool urgent)
{
    if (atomic_load_explicit(&f->dead, memory_order_relaxed)) return NET_FEED_DEAD;
    if (atomic_load_explicit(&f->broken, memory_order_relaxed)) return NET_FEED_FULL;
    size_t used = net_ring_used(&f->ring);
    if (!net_ring_put(&f->ring, piece, n)) {
        atomic_store(&f->broken, true);
        net_wake(f->r);
        return NET_FEED_FULL;
    }
    if (urgent || (used <= f->ring.cap / 2 && net_ring_used(&f->ring) > f->ring.cap / 2))
        net_wake(f->r);
    else if (!f->lazy)
        net_wake_later(f->r);
    return NET_FEED_OK;
}

void net_feed_kill(struct net_feed *f)
{
    atomic_store(&f->dead, true);
}
