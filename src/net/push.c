/* SPDX-License-Identifier: Apache-2.0 */
/* Streams without the server library. Once a stream sleeps for the first time, its connection stays
 * suspended, and the watcher (or net_server_flush, see gather.c) writes each piece to the socket
 * itself, as a chunk of the chunked coding: one send per wake, instead of a resume, two wake-ups
 * and a suspend. Where the coding is another one (HTTP/1.0) or the bytes are not ours to write
 * (TLS) the library does it. The end of a stream, and whatever goes wrong, is the library's: the
 * connection is resumed, and net_req_read goes on from there. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "net/net_internal.h"

#define HEAD 10 /* room for the length of a chunk in front of it: 8 hex digits, CR LF */

/* Back to the library, for good. */
static void hand_over(struct net_req_own *o)
{
    o->direct = false;
    if (o->blocked) net_watch_writable(o->r.server, o->conn, false);
    o->blocked = false;
    atomic_store(&o->state, NET_AWAKE);
    net_req_resume(o);
}

static void break_off(struct net_req_own *o)
{
    o->broken = true; /* part of a chunk may be out: nothing can follow it */
    hand_over(o);
}

/* Put the length in front of what was appended after HEAD, and CR LF after it. */
static void frame(struct net_req_own *o)
{
    char *p = o->out.p + HEAD;
    size_t n = o->out.n - HEAD;
    *--p = '\n';
    *--p = '\r';
    for (size_t left = n; left; left >>= 4)
        *--p = "0123456789abcdef"[left & 15];
    o->out_at = (size_t)(p - o->out.p);
    o->r.n_sent += n;
    str_put(&o->out, "\r\n", 2);
}

/* Send what is framed: false when the socket takes no more now, or is broken. */
static bool flush(struct net_req_own *o)
{
    while (o->out_at < o->out.n) {
        ssize_t n = send(o->conn->fd, o->out.p + o->out_at, o->out.n - o->out_at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!o->blocked) net_watch_writable(o->r.server, o->conn, true);
            o->blocked = true;
            return false;
        }
        if (n < 0) {
            break_off(o);
            return false;
        }
        o->out_at += (size_t)n;
        atomic_store_explicit(&o->moved_ns, clock_now_ns(), memory_order_relaxed);
    }
    str_clear(&o->out);
    o->out_at = 0;
    if (o->blocked) net_watch_writable(o->r.server, o->conn, false);
    o->blocked = false;
    return true;
}

void net_push(struct net_req_own *o)
{
    struct net_req *r = &o->r;
    static const char room[HEAD] = {0};
    for (;;) {
        int awake = NET_AWAKE;
        if (atomic_load(&r->server->closing) || atomic_load(&r->peer) == NET_PEER_GONE) {
            break_off(o);
            return;
        }
        if (!flush(o)) return;
        atomic_store(&o->state, NET_AWAKE);
        str_put(&o->out, room, HEAD);
        enum net_next next = r->ops->pull(r, &o->out);
        if (next == NET_ABORT || o->out.failed) {
            break_off(o);
            return;
        }
        if (next == NET_END) {
            o->ended = true;
            o->out_at = HEAD; /* as content: the library frames it, and the end after it */
            hand_over(o);
            return;
        }
        if (o->out.n == HEAD) net_req_filler(o);
        if (o->out.n > HEAD)
            frame(o);
        else
            str_clear(&o->out);
        if (o->out.failed) {
            break_off(o);
            return;
        }
        if (!flush(o)) return;
        if (next == NET_MORE) continue;
        if (atomic_compare_exchange_strong(&o->state, &awake, NET_SLEEPING)) return;
    }
}
