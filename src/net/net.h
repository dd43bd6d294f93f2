/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: connections, deadlines, request bodies, replies and streams, over libmicrohttpd
 * (which keeps TLS and the parsing of HTTP). What a request means is the business of the hooks that
 * the caller gives (room api).
 *
 * Threads. Two net threads own the sockets. A request whose body is there is suspended and handed
 * to a worker thread, which runs hooks.handle; a long JSON text or prompt so delays nobody's
 * stream. Whoever has news for a request calls net_wake from any thread; the net thread then runs
 * the request's poll or pull. A watcher thread passes wakes on, writes to streams that run (see
 * push.c), sees peers that went away while their request is suspended (the server library does
 * not), and closes what is over its deadline. With push_here net_server_flush writes to streams,
 * and the watcher only what that may not.
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

#define NET_HEAD_BYTES 16384 /* request line and headers; longer is refused while it is read */
#define NET_HEAD_MS 14000    /* for a new connection's request head */
#define NET_KEEP_ALIVE "timeout=75" /* NET_IDLE_MS, for clients */
#define NET_IDLE_MS 75000           /* between requests of one connection, the next head included */
#define NET_BODY_MS 10000           /* for a body, plus its bytes at NET_BODY_RATE */
#define NET_BODY_RATE (16 * 1024)   /* bytes per second */
#define NET_STALL_MS 14000          /* a reader that takes nothing of what is there */
#define NET_PING_MS 10000           /* a silent stream gets a comment, so that no proxy cuts it */
#define NET_ID_BYTES 72
#define NET_REPLY_HEADERS 12

typedef struct net_server net_server;
struct net_req;

enum net_next {
    NET_WAIT, /* nothing (more) now: net_wake comes when there is */
    NET_MORE, /* pull: what was appended is a part, call again */
    NET_END,  /* poll: a reply was set; pull: what was appended is the last */
    NET_ABORT /* close the connection at once */
};

/* How a deferred request goes on. On a net thread, the watcher's or the one that calls
 * net_server_flush, one at a time for one request; must not block.
 */
struct net_ops {
    enum net_next (*poll)(struct net_req *r); /* no reply yet */
    /* Stream: append what there is, or a part. */
    enum net_next (*pull)(struct net_req *r, struct str *out);
    /* once, when the reply is out or the peer is gone; on the worker thread when that came first */
    void (*closed)(struct net_req *r);
    void (*release)(struct net_req *r); /* once, before it is freed; any thread */
};

enum net_peer { NET_PEER_THERE, NET_PEER_HALF /* sends no more */, NET_PEER_GONE };

struct net_req {
    /* fixed when hooks.begin is called */
    net_server *server;
    char id[NET_ID_BYTES]; /* x-request-id: the client's own when it is harmless, else made here */
    const char *method, *path;
    const char
        *host; /* of the target where that names one (RFC 9112 3.2.2), else the field; NULL */
    int64_t t0_ns;
    /* set by hooks.begin */
    size_t body_max;
    bool here; /* handle runs on the net thread: only for what takes microseconds */
    const void *route;
    int key; /* whose it is, -1 = nobody's; it and the next three are the caller's */
    int retry_s;
    bool counted;
    uint64_t claimed;
    /* the body, NUL after */
    struct str body;
    struct arena arena; /* until the request is freed; net and worker threads, never at once */
    /* set by hooks.handle for what goes on after it */
    const struct net_ops *ops;
    void *user;
    bool apart;       /* pull may take longer: never on the thread of net_server_flush */
    _Atomic int peer; /* enum net_peer */
    /* of the reply, for the log */
    int status;
    uint64_t n_sent;
    struct net_req_own *own; /* of this room */
};

struct net_hooks {
    void *user;
    /* The head is there. Sets body_max; or replies, and then the body is never read. Net thread. */
    void (*begin)(void *user, struct net_req *r);
    /* n more bytes of the body come. May reply: then the rest is not kept. Net thread. May be
     * NULL. */
    void (*body)(void *user, struct net_req *r, size_t n);
    /* Method, path and body are there: reply, or set ops and user. Worker thread. */
    void (*handle)(void *user, struct net_req *r);
    /* Reply to what net itself refuses. code: a short word such as "body_too_large". */
    void (*refuse)(void *user, struct net_req *r, int status, const char *code, const char *text);
    /* The request is over (reply sent or peer gone). Net thread; when the peer left while handle
     * ran, the worker thread. */
    void (*done)(void *user, struct net_req *r);
    /* About twice a second. Watcher thread: short. May be NULL. */
    void (*tick)(void *user);
    /* net_server_signal was called. Watcher thread. May be NULL. */
    void (*signal)(void *user, int sig);
};

struct net_opts {
    const char *host;               /* address or name to listen on */
    int port;                       /* 0 = a free one */
    bool share_port; /* other processes of this user may listen on it, too: the kernel deals out */
    int n_conn_max;                 /* 0 = 1024 */
    int n_thread;                   /* 0 = 2 net threads */
    int n_work;                     /* 0 = 2 worker threads */
    const char *tls_cert, *tls_key; /* PEM texts, or NULL */
    bool push_here; /* net_server_flush writes to streams: no CPU is free for another thread */
    int gather_ms;  /* see net_wake_later */
    struct net_hooks hooks;
};

/* Bind and begin to answer. Errors: REQUEST (host or port: names it), IO, NOMEM. */
sl_status net_server_open(const struct net_opts *o, net_server **out, sl_err *err) BASE_MUST_USE;
int net_server_port(const net_server *s);
/* Requests that are not over. Threads: any. */
int net_server_active(const net_server *s);
int net_server_conns(const net_server *s);
/* Seconds that net_server_flush spent in writing to streams. Threads: any. */
double net_server_push_s(const net_server *s);
/* Have hooks.signal run soon. May be called by a signal handler. */
void net_server_signal(net_server *s, int sig);
/* Abort what is not over, join every thread, free. NULL is legal. */
void net_server_close(net_server *s);

/* ---- one request ---- */

/* First value of a header or NULL. Until the reply was set. */
const char *net_req_header(const struct net_req *r, const char *name);
/* Values of that name in the head. */
int net_req_n_header(const struct net_req *r, const char *name);
/* An argument of the query string or NULL. */
const char *net_req_arg(const struct net_req *r, const char *name);

/* One more header of the reply, before net_reply; of one name the last counts. name: static; value:
 * copied. Over NET_REPLY_HEADERS they are dropped. */
void net_reply_header(struct net_req *r, const char *name, const char *value);
/* The value that was given to it, or NULL. */
const char *net_reply_header_of(const struct net_req *r, const char *name);
/* The whole reply. The bytes of body (may be NULL) are taken over, and it is empty afterwards.
 * A body that failed becomes a 429 with an error of OpenAI's form, and so does a reply for which
 * there is no memory. type: static. */
void net_reply(struct net_req *r, int status, const char *type, struct str *body);
/* The same from memory that outlives the server. */
void net_reply_static(struct net_req *r, int status, const char *type, const void *p, size_t n);
/* Keep room for n bytes, at most 4096, in what pull appends to: so many can be appended when memory
 * is short. Before the request can be woken. */
sl_status net_stream_room(struct net_req *r, size_t n, sl_err *err) BASE_MUST_USE;
/* A chunked reply whose bytes come from ops->pull. */
void net_reply_stream(struct net_req *r, int status, const char *type);

/* There is news for r: poll or pull runs at once. Cheap and without locks (the engine's thread
 * calls it); several before the net thread comes are one. Threads: any that holds a reference. */
void net_wake(struct net_req *r);
/* The same, but it may wait for more: it is passed on by the first net_server_flush after which
 * another step as long as the last would make it older than gather_ms; where few streams have news
 * also by the first after a step of more than half of that. */
void net_wake_later(struct net_req *r);
/* After each step, even one that did nothing while requests are pending. now: nothing waits, the
 * next step may be long. Threads: one. */
void net_server_flush(net_server *s, bool now);
void net_req_ref(struct net_req *r);
void net_req_unref(struct net_req *r); /* the last frees it, with its arena. NULL is legal */
/* The server is going down: poll and pull should return NET_ABORT. */
bool net_req_closing(const struct net_req *r);

#endif
