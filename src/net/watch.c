/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher thread. libmicrohttpd does not look at a suspended connection, so it would not see
 * that its peer is gone: every socket is also in an epoll set of ours, for hang-ups only. The same
 * thread passes wakes on to the net threads, closes what is over its deadline, and runs what
 * signals ask for. */
#include <errno.h>
#include <string.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net_internal.h"

#define TAG_WAKE UINT64_MAX
#define TAG_TICK (UINT64_MAX - 1)
#define MS 1000000
#define TICK_MS 500
#define LATE_MS 2000 /* a busy machine alone does not make this thread so late */

void net_watch_add(net_server *s, struct net_conn *c)
{
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET};
    ev.data.u64 = (uint64_t)c->gen << 32 | (uint32_t)(c - s->conn);
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev);
}

void net_watch_writable(net_server *s, struct net_conn *c, bool on)
{
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET | (on ? (unsigned)EPOLLOUT : 0)};
    ev.data.u64 = (uint64_t)c->gen << 32 | (uint32_t)(c - s->conn);
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
}

/* A socket's peer is gone or sends no more, or it can be written again. */
static void hung_up(net_server *s, uint64_t tag, uint32_t events)
{
    uint32_t i = (uint32_t)tag, gen = (uint32_t)(tag >> 32);
    struct net_req *r = NULL;
    int peer = events & (EPOLLHUP | EPOLLERR) ? NET_PEER_GONE
               : events & EPOLLRDHUP          ? NET_PEER_HALF
                                              : NET_PEER_THERE;
    if (i >= (uint32_t)s->n_conn_max) return;
    pthread_mutex_lock(&s->lock);
    struct net_conn *c = &s->conn[i];
    if (c->phase != NET_FREE && c->gen == gen) {
        c->peer = BASE_MAX(c->peer, peer); /* told once: a request that begins now must know it */
        r = c->req;
        if (r) net_req_ref(r);
    }
    pthread_mutex_unlock(&s->lock);
    if (!r) return;
    if (atomic_load(&r->peer) < peer) atomic_store(&r->peer, peer);
    if (net_own(r)->blocked) /* it is awake, and waits for this event */
        net_push(net_own(r));
    else if (peer != NET_PEER_THERE)
        net_wake(r);
    net_req_unref(r);
}

/* Answers were given to the system in whole, and the reader still does not take them. */
static bool not_taken(const struct net_conn *c, int64_t age)
{
    int n = 0;
    return age > NET_STALL_MS && ioctl(c->fd, SIOCOUTQ, &n) == 0 && n > 0;
}

static bool overdue(const struct net_conn *c, int64_t now)
{
    int64_t age = (now - c->since_ns) / MS;
    switch (c->phase) {
    case NET_HEAD:
        return age > NET_HEAD_MS;
    case NET_IDLE:
        return age > NET_IDLE_MS || not_taken(c, age);
    case NET_BODY:
        return age > NET_BODY_MS + (int64_t)(c->n_body * 1000 / NET_BODY_RATE);
    case NET_BUSY: {
        const struct net_req_own *o = c->req ? net_own(c->req) : NULL;
        return o && atomic_load(&o->answered) && atomic_load(&o->state) != NET_SLEEPING &&
               (now - atomic_load(&o->moved_ns)) / MS > NET_STALL_MS;
    }
    case NET_FREE:
        break;
    }
    return false;
}

/* The net thread sees its end and cleans up. What a reader does not take goes with it. */
static void close_soon(const struct net_conn *c)
{
    struct linger hard = {.l_onoff = 1};
    if (c->phase == NET_BUSY || c->phase == NET_IDLE)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    shutdown(c->fd, SHUT_RDWR);
}

static void ping(struct net_req *r, int64_t now)
{
    struct net_req_own *o = net_own(r);
    if (!atomic_load(&o->answered) || atomic_load(&o->state) != NET_SLEEPING) return;
    if ((now - atomic_load(&o->moved_ns)) / MS < NET_PING_MS) return;
    atomic_store(&o->ping, true);
    net_wake(r);
}

/* late: this thread was kept from running so long, and with it, likely, the whole machine or the
 * process: time that no peer could use. */
static void check_deadlines(net_server *s, int64_t now, int64_t late)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0, left = s->n_used; left > 0 && i < s->n_conn_max; i++) {
        struct net_conn *c = &s->conn[i];
        left -= c->phase != NET_FREE;
        if (late > LATE_MS * (int64_t)MS) {
            c->since_ns += late;
            if (c->req) atomic_fetch_add(&net_own(c->req)->moved_ns, late);
        }
        if (c->phase != NET_FREE && overdue(c, now)) close_soon(c);
        if (c->phase == NET_BUSY && c->req) ping(c->req, now);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Wake all that sleep, so that they end (the server library cannot stop while one is suspended).
 */
static void wake_all(net_server *s)
{
    for (int i = 0; i < s->n_conn_max; i++) {
        pthread_mutex_lock(&s->lock);
        struct net_req *r = s->conn[i].phase != NET_FREE ? s->conn[i].req : NULL;
        if (r) net_req_ref(r);
        pthread_mutex_unlock(&s->lock);
        if (r && net_own(r)->blocked)
            net_push(net_own(r));
        else if (r)
            net_wake(r);
        net_req_unref(r);
    }
}

static void take_signals(net_server *s)
{
    if (!atomic_load_explicit(&s->signals, memory_order_relaxed)) return;
    uint64_t set = atomic_exchange(&s->signals, 0);
    for (int sig = 1; set >> sig; sig++)
        if (set >> sig & 1 && s->opts.hooks.signal) s->opts.hooks.signal(s->opts.hooks.user, sig);
}

static void *watch(void *arg)
{
    net_server *s = arg;
    struct epoll_event ev[64];
    pthread_setname_np(pthread_self(), "net-watch");
    int64_t last = clock_now_ns();
    while (atomic_load(&s->closing) < 2 || atomic_load(&s->n_sleeping) > 0) {
        int n = epoll_wait(s->epoll_fd, ev, BASE_COUNT_OF(ev), atomic_load(&s->closing) ? 5 : -1);
        bool tick = false, closing = atomic_load(&s->closing);
        pthread_mutex_lock(&s->push_lock);
        for (int i = 0; i < n; i++) {
            tick |= ev[i].data.u64 == TAG_TICK;
            if (ev[i].data.u64 < TAG_TICK) hung_up(s, ev[i].data.u64, ev[i].events);
        }
        net_gather(s);
        if (closing) wake_all(s);
        pthread_mutex_unlock(&s->push_lock);
        take_signals(s);
        if (closing) continue;
        uint64_t ticks; /* reading it starts the next */
        if (!tick || read(s->tick_fd, &ticks, sizeof ticks) != sizeof ticks) continue;
        int64_t now = clock_now_ns();
        check_deadlines(s, now, now - last - TICK_MS * (int64_t)MS);
        if (s->opts.hooks.tick) s->opts.hooks.tick(s->opts.hooks.user);
        last = now;
    }
    return NULL;
}

static bool add_fd(int ep, int fd, uint64_t tag)
{
    /* edges: every ring is told once, and nobody has to read the counter down */
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = tag};
    return fd >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0;
}

sl_status net_watch_open(net_server *s, sl_err *err)
{
    /* A timer of its own: a limit for each epoll_wait would be set and taken back at every wake. */
    const struct itimerspec tick = {{0, TICK_MS * (long)MS}, {0, TICK_MS * (long)MS}};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (s->epoll_fd < 0 || !add_fd(s->epoll_fd, s->wake_fd, TAG_WAKE) ||
        !add_fd(s->epoll_fd, s->tick_fd, TAG_TICK) ||
        timerfd_settime(s->tick_fd, 0, &tick, NULL) != 0)
        return SL_FAIL(err, IO, "can not watch sockets: %s", strerror(errno));
    if (pthread_create(&s->watcher, NULL, watch, s) != 0)
        return SL_FAIL(err, NOMEM, "can not start a thread");
    s->has_watcher = true;
    return SL_OK;
}

void net_watch_close(net_server *s)
{
    if (s->has_watcher) pthread_join(s->watcher, NULL);
    s->has_watcher = false;
    if (s->epoll_fd >= 0) close(s->epoll_fd);
    if (s->wake_fd >= 0) close(s->wake_fd);
    if (s->tick_fd >= 0) close(s->tick_fd);
}
