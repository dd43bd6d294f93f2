/* SPDX-License-Identifier: Apache-2.0 */
/* The way of events from the engine's thread to the net thread of one request: a ring and a wake.
 */
#ifndef NET_FEED_H
#define NET_FEED_H

#include "net/net.h"
#include "net/ring.h"

enum net_feed_rc { NET_FEED_OK, NET_FEED_FULL /* and from now on broken */, NET_FEED_DEAD };

struct net_feed {
    struct net_ring ring;
    struct net_req *r;
    bool lazy;           /* wake only when half full or urgent: nobody reads along */
    _Atomic bool broken; /* the ring was full: records are missing */
    _Atomic bool dead;   /* nobody reads any more */
};

/* bytes: of its ring. Errors: NOMEM. */
sl_status net_feed_init(struct net_feed *f, struct net_req *r, size_t bytes, bool lazy,
                        sl_err *err) BASE_MUST_USE;
void net_feed_fini(struct net_feed *f);
/* Never blocks. For the producer thread, which calls net_server_flush after its last piece. */
enum net_feed_rc net_feed_put(struct net_feed *f, const struct net_piece *piece, int n,
                              bool urgent);
void net_feed_kill(struct net_feed *f); /* consumer */

#endif
