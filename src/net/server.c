/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon and its callbacks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net_internal.h"

#define FD_OTHERS 48 /* descriptors for everything but connections */

#define DISCARD_SMALL (1024 * 1024)     /* a refused body up to this is read, so that the reply */
#define DISCARD_LARGE (8 * 1024 * 1024) /* arrives; too large a one, or one too soon, this more */

/* ---- connections ---- */

static void conn_started(net_server *s, struct MHD_Connection *mhd, void **ctx)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct net_conn *c = NULL;
    pthread_mutex_lock(&s->lock);
    if (info && s->free_head >= 0) {
        c = &s->conn[s->free_head];
        s->free_head = c->next_free;
        c->fd = (int)info->connect_fd;
        c->gen++;
        s->n_used++;
        c->phase = NET_HEAD;
        c->since_ns = clock_now_ns();
        c->req = NULL;
        c->peer = NET_PEER_THERE;
        net_watch_add(s, c);
    }
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_add(&s->n_conn, 1);
    *ctx = c;
}

static void on_conn(void *cls, struct MHD_Connection *mhd, void **ctx,
                    enum MHD_ConnectionNotificationCode code)
{
    net_server *s = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        conn_started(s, mhd, ctx);
        return;
    }
    struct net_conn *c = *ctx;
    atomic_fetch_sub(&s->n_conn, 1);
    if (!c) return;
    pthread_mutex_lock(&s->lock);
    c->phase = NET_FREE;
    s->n_used--;
    c->next_free = s->free_head;
    s->free_head = (int)(c - s->conn);
    pthread_mutex_unlock(&s->lock);
}

static void set_phase(net_server *s, struct net_conn *c, enum net_phase phase, struct net_req *r)
{
    pthread_mutex_lock(&s->lock);
    c->phase = phase;
    c->since_ns = clock_now_ns();
    c->n_body = 0;
    c->req = r;
    if (r && c->peer != NET_PEER_THERE) atomic_store(&r->peer, c->peer);
    pthread_mutex_unlock(&s->lock);
}

/* ---- requests ---- */

static void refuse(struct net_req *r, int status, const char *code, const char *text)
{
    r->server->opts.hooks.refuse(r->server->opts.hooks.user, r, status, code, text);
}

static enum MHD_Result queue(struct net_req_own *o)
{
    struct MHD_Response *m = o->response ? o->response : o->r.server->short_of_memory;
    if (!o->response) o->r.n_sent = sizeof NET_SHORT_TEXT - 1;
    atomic_store(&o->moved_ns, clock_now_ns());
    atomic_store(&o->answered, true);
    enum MHD_Result rc = MHD_queue_response(o->mhd, (unsigned)o->r.status, m);
    if (o->response) MHD_destroy_response(o->response);
    o->response = NULL;
    return rc;
}

/* The head was refused: reply at once, or after a body that is small enough to be thrown away. */
static enum MHD_Result refused(struct net_req_own *o)
{
    const char *len = net_req_header(&o->r, "Content-Length");
    uint64_t n = len ? strtoull(len, NULL, 10) : 0;
    bool later = o->r.status == 413 || o->r.status == 429 || o->r.status == 503;
    uint64_t max = later ? o->r.body_max + DISCARD_LARGE : DISCARD_SMALL;
    if (o->r.status == 400 || n > max || net_req_header(&o->r, "Expect")) return queue(o);
    o->discard = true;
    o->n_discard = max;
    return MHD_YES;
}

/* Stands for a request for which there is no memory: its body is thrown away, so that the reply
 * arrives. */
static struct net_req_own no_request;

static enum MHD_Result on_head(net_server *s, struct MHD_Connection *mhd, const char *path,
                               const char *method, const char *version, void **cls)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct net_conn *c = info ? info->socket_context : NULL;
    struct net_req_own *o = NULL;
    if (!c || atomic_load(&s->closing)) return MHD_NO;
    if (net_req_open(s, mhd, method, path, &o, NULL)) {
        *cls = &no_request;
        set_phase(s, c, NET_BODY, NULL); /* for its deadline */
        return MHD_YES;
    }
    o->conn = c;
    *cls = o;
    o->http11 = strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
    atomic_fetch_add(&s->n_active, 1);
    set_phase(s, c, NET_BODY, &o->r);
    const char *bad = net_head_bad(&o->r, version);
    if (bad) {
        net_reply_header(&o->r, "Connection", "close");
        refuse(&o->r, 400, "bad_request", bad);
        return queue(o);
    }
    s->opts.hooks.begin(s->opts.hooks.user, &o->r);
    const char *len = net_req_header(&o->r, "Content-Length");
    if (!o->replied && len && (strlen(len) > 18 || strtoull(len, NULL, 10) > o->r.body_max))
        refuse(&o->r, 413, "body_too_large", "the body is too large");
    return o->replied ? refused(o) : MHD_YES;
}

static enum MHD_Result on_body(struct net_req_own *o, const char *p, size_t *n)
{
    struct net_req *r = &o->r;
    pthread_mutex_lock(&r->server->lock);
    o->conn->n_body += *n;
    pthread_mutex_unlock(&r->server->lock);
    if (!o->discard && r->body.n + *n > r->body_max) /* a chunked one: the length was not known */
        refuse(r, 413, "body_too_large", "the body is too large");
    else if (!o->discard && r->server->opts.hooks.body)
        r->server->opts.hooks.body(r->server->opts.hooks.user, r, *n);
    if (!o->discard && o->replied) {
        str_fini(&r->body);
        o->discard = true;
        o->n_discard = r->body_max + DISCARD_LARGE;
    }
    if (o->discard) {
        if (*n > o->n_discard) return MHD_NO;
        o->n_discard -= *n;
    } else
        str_put(&r->body, p, *n);
    *n = 0;
    return MHD_YES;
}

/* Before a worker has it nothing but the peer can wake a request: a peer that sends no more while
 * its body is read. That is in r->peer, so the wake itself means nothing. False: the server closes.
 */
static bool sleep_first(struct net_req_own *o)
{
    while (!net_req_sleep(o)) {
        if (atomic_load(&o->r.server->closing)) return false;
        atomic_store(&o->state, NET_AWAKE);
    }
    return true;
}

/* The request is complete; also called after every resume until a reply is queued. */
static enum MHD_Result go_on(net_server *s, struct net_req_own *o)
{
    struct net_req *r = &o->r;
    if (!o->read && !o->replied) {
        /* A turn of the library's loop, so that it wants no more bytes. Suspended before that it
         * would read as soon as it is resumed, and close on a peer that has closed its side. And a
         * reply is not taken before where a head without a body expects a 100. */
        o->read = true;
        return MHD_YES;
    }
    if (!o->handed) {
        o->handed = true;
        set_phase(s, o->conn, NET_BUSY, r);
        if (o->replied) return queue(o);
        if (r->body.failed) refuse(r, 429, "rate_limit_exceeded", "there is no memory for it now");
        if (o->replied) return queue(o);
        str_put(&r->body, "", 0);
        if (r->here) {
            s->opts.hooks.handle(s->opts.hooks.user, r);
            atomic_store(&o->handled, true);
        } else {
            if (!sleep_first(o)) return MHD_NO;
            o->working = true;
            net_work_put(s, o);
            return MHD_YES;
        }
    }
    for (;;) {
        atomic_store(&o->state, NET_AWAKE);
        if (atomic_load_explicit(&o->handled, memory_order_acquire)) { /* pairs with net_work */
            if (o->replied) return queue(o);
            if (!r->ops || atomic_load(&s->closing) || atomic_load(&r->peer) != NET_PEER_THERE)
                return MHD_NO; /* a peer that sends no more and still has no reply has hung up */
            enum net_next next = r->ops->poll(r);
            if (o->replied) return queue(o);
            if (next != NET_WAIT) return MHD_NO;
        }
        if (net_req_sleep(o)) return MHD_YES;
        if (atomic_load(&s->closing) && atomic_load(&o->handled)) return MHD_NO;
    }
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **cls)
{
    net_server *s = user;
    struct net_req_own *o = *cls;
    if (!o) return on_head(s, mhd, url, method, version, cls);
    if (o == &no_request && !*n_upload)
        return MHD_queue_response(mhd, NET_SHORT_HTTP, s->short_of_memory);
    if (o == &no_request) {
        *n_upload = 0;
        return MHD_YES;
    }
    if (*n_upload) return on_body(o, upload, n_upload);
    return go_on(s, o);
}

static void on_done(void *user, struct MHD_Connection *mhd, void **cls,
                    enum MHD_RequestTerminationCode code)
{
    net_server *s = user;
    struct net_req_own *o = *cls;
    (void)mhd;
    (void)code;
    *cls = NULL;
    if (!o || o == &no_request) return;
    set_phase(s, o->conn, NET_IDLE, NULL);
    /* A peer that leaves while the worker is at its request: what the worker starts must end too,
     * so the worker closes. */
    if (o->working && !(atomic_fetch_or(&o->end, NET_OVER) & NET_WORKED)) return;
    net_req_close(o);
}

/* The request target as it came, before it is taken apart. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct net_conn *c = info ? info->socket_context : NULL;
    (void)cls;
    if (!c) return NULL;
    c->target = target;
    c->target_end = target + strlen(target);
    c->bad_target = !net_target_ok(target);
    return NULL; /* what on_request finds in *cls */
}

/* ---- opening and closing ---- */

static void quiet_log(void *cls, const char *fmt, va_list ap)
{
    (void)cls;
    (void)fmt;
    (void)ap;
}

/* No more connections than descriptors: without one the library would try to accept again and
 * again. At its own limit it waits. */
static int conn_max(int want)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur == RLIM_INFINITY) return want;
    rlim_t room = l.rlim_cur > 2 * FD_OTHERS ? l.rlim_cur - FD_OTHERS : FD_OTHERS;
    return room < (rlim_t)want ? (int)room : want;
}

static sl_status open_short(net_server *s, sl_err *err)
{
    struct MHD_Response *m = s->short_of_memory = MHD_create_response_from_buffer(
        sizeof NET_SHORT_TEXT - 1, (void *)(uintptr_t)NET_SHORT_TEXT, MHD_RESPMEM_PERSISTENT);
    if (!m || MHD_add_response_header(m, "Content-Type", NET_SHORT_TYPE) != MHD_YES ||
        MHD_add_response_header(m, "Retry-After", NET_SHORT_RETRY) != MHD_YES)
        return SL_FAIL(err, NOMEM, "no memory for the HTTP server");
    return SL_OK;
}

sl_status net_daemon_open(net_server *s, unsigned flags, sl_err *err)
{
    static char tls[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"; /* RFC 8996 */
    struct MHD_OptionItem opt[4] = {{MHD_OPTION_END, 0, NULL}};
    flags |= MHD_ALLOW_SUSPEND_RESUME;
    if (s->tls_cert) {
        flags |= MHD_USE_TLS;
        opt[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, s->tls_cert};
        opt[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls_key};
        opt[2] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, tls};
        opt[3] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    }
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
        MHD_OPTION_EXTERNAL_LOGGER, quiet_log, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_done, s,
        MHD_OPTION_NOTIFY_CONNECTION, on_conn, s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)(s->opts.n_thread ? s->opts.n_thread : 2),
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(s->n_conn_max - NET_SPARE),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(8 * NET_IDLE_MS / 1000), /* watch.c ends sooner */
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)NET_HEAD_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, opt, MHD_OPTION_END);
    if (s->daemon) return SL_OK;
    if (s->tls_cert)
        return SL_FAIL(err, REQUEST,
                       "--tls-cert, --tls-key: no certificate and key that fit each other, as PEM");
    return SL_FAIL(err, IO, "can not start the HTTP server: %s", strerror(errno));
}

static sl_status copy_pem(const char *text, char **out, sl_err *err)
{
    void *p = NULL;
    if (!text) return SL_OK;
    SL_TRY(mem_alloc(MEM_MISC, strlen(text) + 1, &p, err));
    *out = memcpy(p, text, strlen(text) + 1);
    return SL_OK;
}

static sl_status open_all(net_server *s, sl_err *err)
{
    void *p = NULL;
    const struct net_opts *o = &s->opts;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)s->n_conn_max, sizeof *s->conn, &p, err));
    s->conn = p;
    for (int i = 0; i < s->n_conn_max; i++)
        s->conn[i].next_free = i + 1 < s->n_conn_max ? i + 1 : -1;
    SL_TRY(copy_pem(o->tls_cert, &s->tls_cert, err));
    SL_TRY(copy_pem(o->tls_key, &s->tls_key, err));
    SL_TRY(open_short(s, err));
    SL_TRY(net_listen(o, 4096, &s->listen_fd, &s->port, err));
    SL_TRY(net_watch_open(s, err));
    SL_TRY(net_work_open(s, err));
    return net_daemon_open(s, MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, err);
}

sl_status net_server_open(const struct net_opts *o, net_server **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    net_server *s = p;
    s->opts = *o;
    s->n_conn_max = conn_max(o->n_conn_max ? o->n_conn_max : 1024) + NET_SPARE;
    s->listen_fd = s->epoll_fd = s->wake_fd = s->tick_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->push_lock, NULL);
    pthread_mutex_init(&s->work_lock, NULL);
    pthread_cond_init(&s->work_cond, NULL);
    signal(SIGPIPE, SIG_IGN);
    sl_status st = open_all(s, err);
    if (st) {
        net_server_close(s);
        return st;
    }
    *out = s;
    return SL_OK;
}

int net_server_port(const net_server *s)
{
    return s->port;
}

int net_server_active(const net_server *s)
{
    return atomic_load(&s->n_active);
}

int net_server_conns(const net_server *s)
{
    return atomic_load(&s->n_conn);
}

double net_server_push_s(const net_server *s)
{
    return (double)atomic_load(&s->push_ns) * 1e-9;
}

void net_server_signal(net_server *s, int sig)
{
    uint64_t one = 1;
    atomic_fetch_or(&s->signals, (uint64_t)1 << sig);
    if (write(s->wake_fd, &one, sizeof one) < 0) return; /* full: it rings already */
}

void net_server_close(net_server *s)
{
    struct timespec ms = {.tv_nsec = 1000000};
    uint64_t one = 1;
    if (!s) return;
    atomic_store(&s->closing, 1);
    if (s->has_watcher && write(s->wake_fd, &one, sizeof one) < 0) { /* it rings already */
    }
    while (s->has_watcher && atomic_load(&s->n_sleeping) > 0)
        nanosleep(&ms, NULL);
    atomic_store(&s->closing, 2);
    if (s->daemon)
        MHD_stop_daemon(s->daemon); /* closes the listening socket too */
    else if (s->listen_fd >= 0)
        close(s->listen_fd);
    net_work_close(s);
    net_watch_close(s);
    if (s->short_of_memory) MHD_destroy_response(s->short_of_memory);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->push_lock);
    pthread_mutex_destroy(&s->work_lock);
    pthread_cond_destroy(&s->work_cond);
    mem_free(s->conn);
    mem_free(s->tls_cert);
    mem_free(s->tls_key);
    mem_free(s);
}
