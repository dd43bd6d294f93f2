/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the server share. */
#ifndef NET_INTERNAL_H
#define NET_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <sys/socket.h>

#include "net/net.h"

enum net_phase { NET_FREE, NET_HEAD, NET_IDLE, NET_BODY, NET_BUSY };

/* A connection. Under server.lock, except where said. */
struct net_conn {
    int fd;
    uint32_t gen; /* so that a late event of the watcher is not taken for the next connection's */
    enum net_phase phase;
    int64_t since_ns;
    uint64_t n_body;
    int peer;            /* enum net_peer: also known before there is a request */
    struct net_req *req; /* the request in progress, or NULL */
    int next_free;
    /* net thread: of the request line */
    const char *target, *target_end; /* borrowed, for their addresses only */
    bool bad_target;
};

enum net_state {
    NET_AWAKE,     /* the net thread runs it or will */
    NET_SLEEPING,  /* suspended */
    NET_SIGNALLED, /* there is news */
};

#define NET_NO_KEY (-2)

enum { NET_WORKED = 1, NET_OVER = 2 };

struct net_header {
    const char *name;
    char *value;
};

/* The private half of a request. */
struct net_req_own {
    struct net_req r;
    _Atomic int n_ref;
    _Atomic int state;         /* enum net_state */
    struct net_req *wake_next; /* in server.wake_list */
    struct net_conn *conn;
    struct MHD_Connection *mhd;
    bool lacks_header;             /* of the reply: there was no memory for one */
    bool replied;                  /* the reply was set: */
    struct MHD_Response *response; /* NULL: there was no memory for it */
    /* net thread */
    bool streaming, read, handed, probe, ended;
    bool http11;
    /* net thread until the stream first sleeps, then under push_lock, see push.c */
    bool direct;        /* the holder of push_lock writes to the socket */
    bool blocked;       /* which takes no more now */
    bool broken;        /* no more bytes */
    bool working;       /* a worker has it or had it */
    uint64_t n_discard; /* of a refused body: bytes still read and thrown away */
    bool discard;
    _Atomic bool handled;  /* hooks.handle returned (release; pairs with the net thread) */
    _Atomic int end;       /* NET_WORKED, NET_OVER: whoever sets the second one closes */
    _Atomic bool answered; /* the reply was queued */
    _Atomic bool ping;     /* the stream was silent for NET_PING_MS */
    /* streams: appended by pull, not yet taken by the socket. Who writes */
    struct str out;
    size_t out_at;
    _Atomic int64_t moved_ns; /* when the socket last took something */
    struct net_header header[NET_REPLY_HEADERS];
    int n_header;
    struct net_req *work_next; /* in server.work_head */
};

/* Of the thread that calls net_server_flush. */
struct net_gather {
    int64_t flushed; /* when it was called last */
    int64_t oldest;  /* when it first saw what is listed now; 0: nothing was */
};

struct net_server {
    /* fixed after open */
    struct net_opts opts;
    struct MHD_Daemon *daemon;
    struct MHD_Response *short_of_memory; /* instead of a reply for which there is none */
    int listen_fd, port, epoll_fd, wake_fd, tick_fd;
    char *tls_cert, *tls_key;
    pthread_t watcher, worker[16];
    int n_worker;
    bool has_watcher;
    /* any thread */
    _Atomic int closing, n_active, n_sleeping, n_conn, n_work_begun;
    _Atomic uint64_t signals;            /* bit per number */
    _Atomic(struct net_req *) wake_list; /* pushed by net_wake, taken whole, see gather.c */
    _Atomic int n_listed;                /* in it, about */
    _Atomic bool rung;                   /* the watcher was told to take it */
    _Atomic int64_t push_ns;             /* net_server_push_s */
    /* its holder runs the streams that are direct and sleep (see push.c) */
    pthread_mutex_t push_lock;
    /* thread of net_server_flush */
    struct net_gather gather;
    /* under lock */
    pthread_mutex_t lock;
    struct net_conn *conn; /* [n_conn_max] */
    int n_conn_max, free_head, n_used; /* n_used: entries that are not NET_FREE */
    /* under work_lock */
    pthread_mutex_t work_lock;
    pthread_cond_t work_cond;
    struct net_req *work_head, *work_tail;
    int work_key[16]; /* of the requests that workers have in hand; NET_NO_KEY = none */
    bool work_stop;
};

static inline struct net_req_own *net_own(const struct net_req *r)
{
    return r->own;
}

/* server.c: the library with our limits and callbacks. flags: which thread runs it; the fuzz
 * target does so itself. */
#define NET_SPARE 16 /* entries of conn over the limit that the library keeps */
sl_status net_daemon_open(net_server *s, unsigned flags, sl_err *err) BASE_MUST_USE;

/* head.c */
bool net_target_ok(const char *target);
/* Bytes of http:// or https:// in front of a target of the absolute form, 0 of another. */
size_t net_target_scheme(const char *target);
/* Why the head must be refused with 400 and a closed connection, or NULL. */
const char *net_head_bad(const struct net_req *r, const char *version);

/* request.c */
sl_status net_req_open(net_server *s, struct MHD_Connection *mhd, const char *method,
                       const char *path, struct net_req_own **out, sl_err *err) BASE_MUST_USE;
/* The reply of s->short_of_memory. */
#define NET_SHORT_HTTP 429
#define NET_SHORT_RETRY "1"
#define NET_SHORT_TYPE "application/json"
#define NET_SHORT_TEXT                                                                             \
    "{\"error\":{\"message\":\"there is no memory for it now\",\"type\":\"rate_limit_error\","     \
    "\"param\":null,\"code\":\"rate_limit_exceeded\"}}"
/* Onto wake_list. */
void net_wake_put(net_server *s, struct net_req *r);
/* Have the watcher take it. */
void net_ring(net_server *s);
/* The connection is done with it, and so is the worker: tell the caller, free. */
void net_req_close(struct net_req_own *o);
/* Suspend until the next wake; false: it came already, go on at once. Net thread. */
bool net_req_sleep(struct net_req_own *o);
/* End that: once for each sleep, by whoever took the wake. Threads: any. */
void net_req_resume(struct net_req_own *o);
/* MHD's reader for streams. */
ssize_t net_req_read(void *cls, uint64_t pos, char *buf, size_t max);
/* The comment that a silent stream has to get now, if any, onto out. */
void net_req_filler(struct net_req_own *o);

/* push.c: a wake, or an event of its socket, of a stream whose connection is suspended. Under
 * push_lock. */
void net_push(struct net_req_own *o);

/* gather.c */
/* Pass on what is listed, if it was rung. Watcher, under push_lock. */
void net_gather(net_server *s);

/* watch.c */
sl_status net_watch_open(net_server *s, sl_err *err) BASE_MUST_USE;
void net_watch_close(net_server *s);
void net_watch_add(net_server *s, struct net_conn *c);
/* Say it (not) when the socket can be written again. */
void net_watch_writable(net_server *s, struct net_conn *c, bool on);

/* work.c */
sl_status net_work_open(net_server *s, sl_err *err) BASE_MUST_USE;
void net_work_close(net_server *s);
void net_work_put(net_server *s, struct net_req_own *o);

/* listen.c: a bound, listening, non-blocking socket. */
sl_status net_listen(const struct net_opts *o, int backlog, int *fd, int *bound,
                     sl_err *err) BASE_MUST_USE;

#endif
