/* SPDX-License-Identifier: Apache-2.0 */
/* One request: its reply, its sleep and its wakes. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "net/net_internal.h"

#define ARENA_BYTES ((size_t)192 << 20) /* parsed JSON and what is made of it */
#define OUT_BYTES ((size_t)4 << 20)     /* what one pull may append */

/* The client's own id when it cannot do harm in a log or a header. */
static bool take_id(char *out, const char *given)
{
    size_t n = given ? strlen(given) : 0;
    if (n < 1 || n >= NET_ID_BYTES) return false;
    if (strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != n)
        return false;
    memcpy(out, given, n + 1);
    return true;
}

static void make_id(char *out)
{
    static _Atomic uint64_t count; /* relaxed: only has to differ */
    struct {
        uint64_t n;
        int64_t t;
    } seed = {atomic_fetch_add_explicit(&count, 1, memory_order_relaxed), clock_now_ns()};
    snprintf(out, NET_ID_BYTES, "req_%016llx",
             (unsigned long long)hash_bytes(&seed, sizeof seed, (uint64_t)getpid()));
}

/* The absolute form, which a proxy gets, names the server too, and Host means nothing then. */
static sl_status split_target(struct net_req *r, sl_err *err)
{
    size_t scheme = net_target_scheme(r->path);
    const char *h = r->path + scheme;
    size_t n = strcspn(h, "/");
    char *host = NULL;
    r->host = net_req_header(r, "Host");
    if (!scheme) return SL_OK;
    SL_TRY(mem_arena_str(&r->arena, h, n, &host, err));
    r->host = host;
    r->path = h[n] ? h + n : "/";
    return SL_OK;
}

sl_status net_req_open(net_server *s, struct MHD_Connection *mhd, const char *method,
                       const char *path, struct net_req_own **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out, &p, err));
    struct net_req_own *o = p;
    struct net_req *r = &o->r;
    r->own = o;
    r->server = s;
    r->method = method;
    r->path = path;
    r->key = -1;
    r->t0_ns = clock_now_ns();
    o->mhd = mhd;
    atomic_store(&o->n_ref, 1);
    atomic_store(&o->moved_ns, r->t0_ns);
    mem_arena_init(&r->arena, MEM_REQUEST, ARENA_BYTES);
    str_init(&r->body, MEM_REQUEST, 0);
    str_init(&o->out, MEM_REQUEST, OUT_BYTES);
    if (!take_id(r->id, net_req_header(r, "x-request-id"))) make_id(r->id);
    sl_status st = split_target(r, err);
    if (st)
        net_req_unref(r);
    else
        *out = o;
    return st;
}

void net_req_ref(struct net_req *r)
{
    atomic_fetch_add_explicit(&net_own(r)->n_ref, 1, memory_order_relaxed);
}

void net_req_unref(struct net_req *r)
{
    if (!r) return;
    struct net_req_own *o = net_own(r);
    if (atomic_fetch_sub_explicit(&o->n_ref, 1, memory_order_acq_rel) != 1) return;
    if (r->ops) r->ops->release(r);
    str_fini(&r->body);
    str_fini(&o->out);
    mem_arena_fini(&r->arena);
    mem_free(o);
}

void net_req_close(struct net_req_own *o)
{
    net_server *s = o->r.server;
    if (o->response) MHD_destroy_response(o->response);
    o->response = NULL;
    if (o->r.ops) o->r.ops->closed(&o->r);
    s->opts.hooks.done(s->opts.hooks.user, &o->r);
    atomic_fetch_sub(&s->n_active, 1);
    net_req_unref(&o->r);
}

bool net_req_closing(const struct net_req *r)
{
    return atomic_load(&r->server->closing) != 0;
}

/* ---- head ---- */

const char *net_req_header(const struct net_req *r, const char *name)
{
    return MHD_lookup_connection_value(net_own(r)->mhd, MHD_HEADER_KIND, name);
}

const char *net_req_arg(const struct net_req *r, const char *name)
{
    return MHD_lookup_connection_value(net_own(r)->mhd, MHD_GET_ARGUMENT_KIND, name);
}

struct counting {
    const char *name;
    int n;
};

static enum MHD_Result count(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct counting *c = cls;
    (void)kind;
    (void)value;
    if (strcasecmp(key, c->name) == 0) c->n++;
    return MHD_YES;
}

int net_req_n_header(const struct net_req *r, const char *name)
{
    struct counting c = {.name = name};
    MHD_get_connection_values(net_own(r)->mhd, MHD_HEADER_KIND, count, &c);
    return c.n;
}

/* ---- reply ---- */

void net_reply_header(struct net_req *r, const char *name, const char *value)
{
    struct net_req_own *o = net_own(r);
    char *copy = NULL;
    int i = 0;
    while (i < o->n_header && strcasecmp(o->header[i].name, name) != 0)
        i++;
    if (i >= NET_REPLY_HEADERS) return;
    o->lacks_header |= mem_arena_str(&r->arena, value, strlen(value), &copy, NULL) != SL_OK;
    if (!copy) return;
    o->header[i] = (struct net_header){name, copy};
    o->n_header = BASE_MAX(o->n_header, i + 1);
}

const char *net_reply_header_of(const struct net_req *r, const char *name)
{
    const struct net_req_own *o = net_own(r);
    for (int i = 0; i < o->n_header; i++)
        if (strcasecmp(o->header[i].name, name) == 0) return o->header[i].value;
    return NULL;
}

static bool put_headers(const struct net_req_own *o, struct MHD_Response *m, const char *type)
{
    bool ok = !o->lacks_header && MHD_add_response_header(m, "x-request-id", o->r.id) == MHD_YES;
    if (type) ok = ok && MHD_add_response_header(m, "Content-Type", type) == MHD_YES;
    if (o->http11) ok = ok && MHD_add_response_header(m, "Keep-Alive", NET_KEEP_ALIVE) == MHD_YES;
    for (int i = 0; i < o->n_header; i++)
        ok = ok && MHD_add_response_header(m, o->header[i].name, o->header[i].value) == MHD_YES;
    return ok;
}

/* m: taken over; NULL = there was no memory for it. */
static void finish(struct net_req *r, int status, const char *type, struct MHD_Response *m)
{
    struct net_req_own *o = net_own(r);
    if (o->response) MHD_destroy_response(o->response); /* a later reply wins until it is queued */
    o->response = m;
    o->replied = true;
    r->status = status;
    if (m && put_headers(o, m, type)) return;
    if (m) MHD_destroy_response(m); /* frees the body too */
    o->response = NULL;
    o->streaming = false;
    r->status = NET_SHORT_HTTP;
}

void net_reply(struct net_req *r, int status, const char *type, struct str *body)
{
    struct MHD_Response *m;
    if (body && body->n && !body->failed) {
        m = MHD_create_response_from_buffer_with_free_callback(body->n, body->p, mem_free);
        r->n_sent = body->n;
        if (m)
            str_init(body, body->tag, body->limit);
        else
            str_fini(body);
    } else if (body && body->failed) {
        str_fini(body);
        net_reply_header(r, "Retry-After", NET_SHORT_RETRY);
        net_reply_static(r, NET_SHORT_HTTP, NET_SHORT_TYPE, NET_SHORT_TEXT,
                         sizeof NET_SHORT_TEXT - 1);
        return;
    } else {
        if (body) str_fini(body);
        m = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    }
    finish(r, status, type, m);
}

void net_reply_static(struct net_req *r, int status, const char *type, const void *p, size_t n)
{
    r->n_sent = n;
    finish(r, status, type,
           MHD_create_response_from_buffer(n, (void *)(uintptr_t)p, MHD_RESPMEM_PERSISTENT));
}

sl_status net_stream_room(struct net_req *r, size_t n, sl_err *err)
{
    static const char zero[4096];
    struct str *out = &net_own(r)->out;
    str_put(out, zero, BASE_MIN(n, sizeof zero));
    sl_status st = str_status(out, err);
    str_clear(out);
    return st;
}

void net_reply_stream(struct net_req *r, int status, const char *type)
{
    struct net_req_own *o = net_own(r);
    o->streaming = true;
    finish(r, status, type,
           MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 8192, net_req_read, o, NULL));
}

/* ---- sleep and wake ---- */

/* Counted after it: net_server_close must not find it suspended. */
void net_req_resume(struct net_req_own *o)
{
    net_server *s = o->r.server; /* o may be over at once */
    MHD_resume_connection(o->mhd);
    atomic_fetch_sub(&s->n_sleeping, 1);
}

bool net_req_sleep(struct net_req_own *o)
{
    net_server *s = o->r.server;
    int awake = NET_AWAKE;
    if (atomic_load(&o->state) != NET_AWAKE) return false;
    atomic_fetch_add(&s->n_sleeping, 1);
    if (atomic_load(&s->closing)) { /* pairs with the count that net_server_close waits for */
        atomic_fetch_sub(&s->n_sleeping, 1);
        return false;
    }
    MHD_suspend_connection(o->mhd);
    if (atomic_compare_exchange_strong(&o->state, &awake, NET_SLEEPING)) return true;
    net_req_resume(o); /* a wake came in between, and left that to us */
    return true;
}

void net_wake_put(net_server *s, struct net_req *r)
{
    struct net_req *head = atomic_load_explicit(&s->wake_list, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->n_listed, 1, memory_order_relaxed);
    do
        net_own(r)->wake_next = head;
    while (!atomic_compare_exchange_weak_explicit(&s->wake_list, &head, r, memory_order_release,
                                                  memory_order_relaxed)); /* with pass_wakes */
}

/* Put r on the list of requests that have news, unless it is there; false: it is awake. */
static bool list_push(struct net_req *r)
{
    struct net_req_own *o = net_own(r);
    net_server *s = r->server;
    int old = atomic_exchange(&o->state, NET_SIGNALLED);
    if (old != NET_SLEEPING) return old == NET_SIGNALLED;
    net_req_ref(r);
    net_wake_put(s, r);
    return true;
}

void net_ring(net_server *s)
{
    uint64_t one = 1;
    if (atomic_exchange(&s->rung, true)) return;         /* pairs with net_gather */
    if (write(s->wake_fd, &one, sizeof one) < 0) return; /* full: it rings already */
}

void net_wake(struct net_req *r)
{
    net_server *s = r->server; /* r may be gone once it is on the list */
    if (list_push(r)) net_ring(s);
}

void net_wake_later(struct net_req *r)
{
    (void)list_push(r);
}

void net_req_filler(struct net_req_own *o)
{
    if (!o->probe && atomic_load(&o->r.peer) == NET_PEER_HALF) {
        /* It sends no more. Does it still listen? If not, this comment brings a reset. */
        o->probe = true;
        str_puts(&o->out, ":\n\n");
    } else if (atomic_exchange(&o->ping, false))
        str_puts(&o->out, ":\n\n");
}

ssize_t net_req_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct net_req_own *o = cls;
    struct net_req *r = &o->r;
    (void)pos;
    for (;;) {
        if (o->broken) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (o->out_at < o->out.n) {
            size_t n = BASE_MIN(max, o->out.n - o->out_at);
            memcpy(buf, o->out.p + o->out_at, n);
            o->out_at += n;
            if (o->out_at == o->out.n) {
                str_clear(&o->out);
                o->out_at = 0;
            }
            r->n_sent += n;
            atomic_store_explicit(&o->moved_ns, clock_now_ns(), memory_order_relaxed);
            return (ssize_t)n;
        }
        if (o->ended) return MHD_CONTENT_READER_END_OF_STREAM;
        atomic_store(&o->state, NET_AWAKE);
        if (net_req_closing(r) || atomic_load(&r->peer) == NET_PEER_GONE)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        enum net_next next = r->ops->pull(r, &o->out);
        if (next == NET_ABORT || o->out.failed) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (next == NET_END) o->ended = true;
        if (o->out.n || o->ended) continue;
        net_req_filler(o);
        if (o->out.n) continue;
        o->direct =
            o->http11 && !r->server->tls_cert; /* before it sleeps: then it is the watcher's */
        if (net_req_sleep(o)) return 0;
    }
}
