/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's end. A thread of its own accepts fronts and reads what they ask; the engine's thread
 * puts events into their connections and sends them after each step. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/gate.h"
#include "gate/pipe.h"
#include "net/crypt.h"
#include "net/local.h"
#include "os/os.h"
#include "par/par.h"

#define CONN_MAX 64
#define OUT_MAX ((size_t)8 << 20) /* a front that lets so much wait is dropped */
#define PAGES_MAX ((size_t)1 << 20) /* pages wait where so much waits already */
#define ARENA_MAX ((size_t)512 << 20)
#define STATE_NS ((int64_t)250 * 1000000)
#define ROUTED_NS ((int64_t)1000000000)
#define QUIET_NS ((int64_t)5 * 1000000000) /* of the engine's thread, at least */

struct conn;

/* A request of a front. */
struct ask {
    struct conn *c;
    uint64_t id;        /* the front's */
    uint64_t engine_id; /* gate thread */
    int n_left;         /* engine thread: samples that have not ended */
    /* under lock */
    int n_ref; /* the engine until the last event; the gate thread while it submits */
    struct ask *prev, *next;
};

struct conn {
    gate_host *h;
    /* under lock */
    struct gate_pipe pipe; /* its in: gate thread */
    struct ask *ask;
    int n_ref; /* of asks, and of the list of connections */
    bool gone; /* to be closed */
};

struct gate_host {
    /* fixed after open */
    struct gate_host_opts o;
    int listen_fd, epoll_fd, n_layer, n_expert;
    par_side *thread;
    struct str hello; /* the frame */
    /* gate thread */
    sl_grammar_cache *grammars;
    /* engine thread */
    bool idle;        /* nothing was pending */
    struct str event; /* a frame of one, or of a page */
    int64_t counted_ns;
    uint64_t *count; /* [n_layer, n_expert] */
    /* any thread */
    struct os_event wake;
    atomic_bool stopping, draining;
    _Atomic int64_t beat_ns;
    _Atomic int64_t told_ns; /* when fronts were told the state */
    /* under lock */
    net_lock *lock;
    struct conn *conn[CONN_MAX]; /* NULL = free */
    uint64_t *routed;            /* [n_layer, n_expert] */
    bool is_new;                 /* routed was not told yet */
};

/* ---- under lock ---- */

static void conn_unref(struct conn *c)
{
    if (--c->n_ref) return;
    gate_pipe_close(&c->pipe);
    mem_free(c);
}

static void ask_unref(struct ask *a)
{
    if (--a->n_ref) return;
    conn_unref(a->c);
    mem_free(a);
}

static void unlink_ask(struct ask *a)
{
    if (a->prev)
        a->prev->next = a->next;
    else
        a->c->ask = a->next;
    if (a->next) a->next->prev = a->prev;
}

static void put(struct conn *c, const struct str *s)
{
    if (gate_pipe_put(&c->pipe, s, OUT_MAX)) return;
    c->gone = true;
    os_event_set(&c->h->wake);
}

static void flush(struct conn *c)
{
    if (gate_pipe_flush(&c->pipe)) return;
    c->gone = true;
    os_event_set(&c->h->wake);
}

/* ---- the state: any thread ---- */

static bool is_ready(gate_host *h, const sl_stats *s, int64_t now)
{
    int64_t quiet = now - atomic_load_explicit(&h->beat_ns, memory_order_relaxed);
    return !atomic_load(&h->draining) && sl_ready(h->o.engine) &&
           quiet < BASE_MAX(QUIET_NS, 10 * s->max_step_ns);
}

static bool is_due(gate_host *h, int64_t now)
{
    return now - atomic_load_explicit(&h->told_ns, memory_order_relaxed) >= STATE_NS;
}

static void tell_state(gate_host *h, int64_t now)
{
    struct gate_state state;
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    sl_stats_get(h->o.engine, &state.stats);
    state.ready = is_ready(h, &state.stats, now);
    size_t at = gate_frame_begin(&s, GATE_STATS, 0);
    gate_put_state(&s, &state);
    gate_frame_end(&s, at);
    net_lock_take(h->lock);
    if (h->is_new) {
        at = gate_frame_begin(&s, GATE_ROUTED, 0);
        gate_put_routed(&s, h->routed, h->n_layer, h->n_expert);
        gate_frame_end(&s, at);
        h->is_new = false;
    }
    for (int i = 0; i < CONN_MAX; i++) {
        if (!h->conn[i]) continue;
        put(h->conn[i], &s);
        flush(h->conn[i]);
    }
    net_lock_give(h->lock);
    str_fini(&s);
    atomic_store_explicit(&h->told_ns, now, memory_order_relaxed);
}

/* ---- the engine's thread ---- */

static void on_event(void *user, const sl_event *ev)
{
    struct ask *a = user;
    gate_host *h = a->c->h;
    sl_err why = {.code = ev->status};
    size_t at;
    str_clear(&h->event);
    if (ev->finish == SL_FINISH_ERROR && ev->status == SL_DEVICE) { /* of the whole engine */
        snprintf(why.text, sizeof why.text, "%s", ev->error);
        at = gate_frame_begin(&h->event, GATE_FAIL, 0);
        gate_put_fail(&h->event, &why);
    } else {
        at = gate_frame_begin(&h->event, GATE_EVENTS, a->id);
        gate_put_event(&h->event, ev);
    }
    gate_frame_end(&h->event, at);
    net_lock_take(h->lock);
    put(a->c, &h->event);
    if (ev->finish != SL_FINISH_NONE && --a->n_left == 0) {
        unlink_ask(a);
        ask_unref(a);
    }
    net_lock_give(h->lock);
}

/* As of sl_request: 0: what was given before is not sent yet. */
static int on_kv(void *user, const sl_kv_page *page)
{
    struct ask *a = user;
    gate_host *h = a->c->h;
    struct gate_pipe *p = &a->c->pipe;
    net_lock_take(h->lock);
    flush(a->c);
    bool takes = p->out.n - p->out.at < PAGES_MAX;
    net_lock_give(h->lock);
    if (!takes) return 0;
    str_clear(&h->event);
    size_t at = gate_frame_begin(&h->event, GATE_PAGE, a->id);
    gate_put_page(&h->event, page);
    gate_frame_end(&h->event, at);
    net_lock_take(h->lock);
    if (h->event.n <= OUT_MAX - PAGES_MAX) put(a->c, &h->event); /* else it is missed */
    flush(a->c);
    net_lock_give(h->lock);
    return 1;
}

/* Copies how tokens were routed, which only this thread may read. */
static void count_routed(gate_host *h, int64_t now)
{
    if (!h->n_expert || now - h->counted_ns < ROUTED_NS) return;
    h->counted_ns = now;
    for (int l = 0; l < h->n_layer; l++)
        if (sl_routed(h->o.engine, l, h->count + (int64_t)l * h->n_expert, h->n_expert) < 0) return;
    size_t bytes = (size_t)h->n_layer * (size_t)h->n_expert * sizeof *h->count;
    net_lock_take(h->lock);
    if (memcmp(h->routed, h->count, bytes) != 0) {
        memcpy(h->routed, h->count, bytes);
        h->is_new = true;
    }
    net_lock_give(h->lock);
}

void gate_host_flush(gate_host *h)
{
    int64_t now = clock_now_ns();
    bool was_idle = h->idle;
    h->idle = sl_pending(h->o.engine) == 0;
    atomic_store_explicit(&h->beat_ns, now, memory_order_relaxed);
    count_routed(h, now);
    if ((h->idle && !was_idle) || is_due(h, now)) tell_state(h, now);
    net_lock_take(h->lock);
    for (int i = 0; i < CONN_MAX; i++)
        if (h->conn[i]) flush(h->conn[i]);
    net_lock_give(h->lock);
}

/* ---- the gate's thread ---- */

static void reply(struct conn *c, const struct str *s)
{
    net_lock_take(c->h->lock);
    put(c, s);
    flush(c);
    net_lock_give(c->h->lock);
}

/* What became of a SUBMIT. */
static void answer(struct conn *c, uint64_t id, sl_status st, const sl_err *why)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    size_t at = gate_frame_begin(&s, st ? GATE_FAIL : GATE_ACCEPT, id);
    if (st) gate_put_fail(&s, why);
    gate_frame_end(&s, at);
    reply(c, &s);
    str_fini(&s);
}

static struct ask *find(struct conn *c, uint64_t id)
{
    struct ask *a = c->ask;
    while (a && a->id != id)
        a = a->next;
    return a;
}

static sl_status add(struct conn *c, uint64_t id, struct ask **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out, &p, err));
    struct ask *a = *out = p;
    a->c = c;
    a->id = id;
    a->n_ref = 2;
    net_lock_take(c->h->lock);
    a->next = c->ask;
    if (c->ask) c->ask->prev = a;
    c->ask = a;
    c->n_ref++;
    net_lock_give(c->h->lock);
    return SL_OK;
}

/* Errors: of sl_submit, which the front is told. */
static sl_status take(struct conn *c, uint64_t id, sl_request *q, const struct gate_grammar *g,
                      sl_err *err)
{
    gate_host *h = c->h;
    struct ask *a = NULL;
    sl_grammar *grammar = NULL;
    if (g->any) SL_TRY(sl_grammar_cache_get(h->grammars, g->kind, g->text, g->n, &grammar, err));
    sl_status st = add(c, id, &a, err);
    if (!st) {
        a->n_left = BASE_MAX(q->n, 1);
        q->grammar = grammar;
        q->on_event = on_event;
        q->user = a;
        st = sl_submit(h->o.engine, q, &a->engine_id, err);
        net_lock_take(h->lock);
        if (st) { /* there is no event */
            unlink_ask(a);
            ask_unref(a);
        }
        ask_unref(a);
        net_lock_give(h->lock);
    }
    sl_grammar_unref(grammar);
    return st;
}

/* Errors: FORMAT: then the connection ends. */
static sl_status on_submit(struct conn *c, struct gate_frame *f, sl_err *err)
{
    struct arena a;
    sl_request q;
    struct gate_grammar g;
    sl_err why = {0};
    bool resume = f->type == GATE_RESUME, prefill = f->type == GATE_PREFILL;
    net_lock_take(c->h->lock);
    bool twice = find(c, f->id) != NULL;
    net_lock_give(c->h->lock);
    if (twice) return SL_FAIL(err, FORMAT, "a front has two requests of one number");
    mem_arena_init(&a, MEM_REQUEST, ARENA_MAX);
    sl_status st = gate_read_request(&f->body, &a, &q, &g, &why);
    if (!st && !resume && (q.n_given || q.first))
        st = SL_FAIL(&why, FORMAT, "a front submits a request that goes on");
    if (!st && prefill) q.on_kv = on_kv;
    if (st == SL_FORMAT) {
        if (err) *err = why;
    } else {
        if (!st) st = take(c, f->id, &q, &g, &why);
        answer(c, f->id, st, &why);
        st = SL_OK;
    }
    mem_arena_fini(&a);
    return st;
}

static void on_cancel(struct conn *c, uint64_t id)
{
    net_lock_take(c->h->lock);
    struct ask *a = find(c, id);
    uint64_t engine_id = a ? a->engine_id : 0;
    net_lock_give(c->h->lock);
    if (a) sl_cancel(c->h->o.engine, engine_id);
}

static sl_status rebalance(gate_host *h)
{
    sl_err why = {0};
    if (sl_rebalance(h->o.engine, &why)) log_msg(LOG_WARN, "a front: %s", why.text);
    return SL_OK;
}

static sl_status on_frame(struct conn *c, struct gate_frame *f, sl_err *err)
{
    switch (f->type) {
    case GATE_SUBMIT:
    case GATE_RESUME:
    case GATE_PREFILL:
        return on_submit(c, f, err);
    case GATE_CANCEL:
        if (rd_left(&f->body)) return SL_FAIL(err, FORMAT, "a front cancels with a body");
        on_cancel(c, f->id);
        return SL_OK;
    case GATE_PLACE:
        if (rd_left(&f->body)) return SL_FAIL(err, FORMAT, "a front moves experts with a body");
        return rebalance(c->h);
    default:
        return SL_FAIL(err, FORMAT, "a front sent a frame of type %d", (int)f->type);
    }
}

/* The connection ends, and with it what it asked for. */
static void drop(gate_host *h, int i)
{
    struct conn *c = h->conn[i];
    net_lock_take(h->lock);
    if (c->pipe.fd >= 0) close(c->pipe.fd);
    c->pipe.fd = -1;
    for (struct ask *a = c->ask; a; a = a->next)
        sl_cancel(h->o.engine, a->engine_id);
    h->conn[i] = NULL;
    conn_unref(c);
    net_lock_give(h->lock);
}

static void drop_gone(gate_host *h)
{
    for (int i = 0; i < CONN_MAX; i++) {
        if (!h->conn[i]) continue;
        net_lock_take(h->lock);
        bool gone = h->conn[i]->gone;
        net_lock_give(h->lock);
        if (gone) drop(h, i);
    }
}

/* False: it ends. */
static bool read_all(struct conn *c, sl_err *err)
{
    struct gate_frame f;
    int more;
    do {
        more = gate_pipe_fill(&c->pipe);
        for (bool any = more >= 0; any;) {
            if (gate_pipe_next(&c->pipe, GATE_BODY_MAX, &f, &any, err)) return false;
            if (any && on_frame(c, &f, err)) return false;
        }
    } while (more > 0);
    return more == 0;
}

static void on_socket(gate_host *h, struct conn *c)
{
    sl_err err = {0};
    bool there = read_all(c, &err);
    if (err.code) log_msg(LOG_WARN, "a front is disconnected: %s", err.text);
    net_lock_take(h->lock);
    flush(c);
    if (!there) c->gone = true;
    net_lock_give(h->lock);
}

static void accept_all(gate_host *h)
{
    for (int fd; (fd = net_local_accept(h->listen_fd)) >= 0;) {
        void *p = NULL;
        int i = 0;
        while (i < CONN_MAX && h->conn[i])
            i++;
        if (i == CONN_MAX || mem_alloc_array(MEM_MISC, 1, sizeof(struct conn), &p, NULL)) {
            log_msg(LOG_WARN, "one front too many: %d are there", i);
            close(fd);
            continue;
        }
        struct conn *c = p;
        *c = (struct conn){.h = h, .pipe.fd = fd, .n_ref = 1};
        net_lock_take(h->lock);
        h->conn[i] = c;
        net_lock_give(h->lock);
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                 .data.ptr = c};
        if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) c->gone = true;
        reply(c, &h->hello);
        atomic_store(&h->told_ns, 0); /* the state follows */
    }
}

static void gate_main(void *arg)
{
    gate_host *h = arg;
    struct epoll_event ev[32];
    while (!atomic_load(&h->stopping)) {
        int n = epoll_wait(h->epoll_fd, ev, BASE_COUNT_OF(ev), (int)(STATE_NS / 1000000));
        for (int i = 0; i < n; i++) {
            if (ev[i].data.ptr == &h->wake)
                os_event_wait(&h->wake, 0);
            else if (ev[i].data.ptr == h)
                accept_all(h);
            else
                on_socket(h, ev[i].data.ptr);
        }
        drop_gone(h);
        int64_t now = clock_now_ns();
        if (is_due(h, now)) tell_state(h, now);
    }
}

/* ---- opening and closing ---- */

static void copy_text(char *out, size_t n, const char *s)
{
    snprintf(out, n, "%s", s);
}

static sl_status make_hello(gate_host *h, sl_err *err)
{
    struct gate_hello g = {.probe = h->o.probe};
    sl_model_info mi;
    sl_device_info d[GATE_DEVICE_MAX];
    sl_model_info_get(h->o.model, &mi);
    sl_engine_info_get(h->o.engine, &g.info);
    h->n_layer = mi.n_layer;
    h->n_expert = mi.n_expert;
    copy_text(g.model, sizeof g.model, mi.name);
    copy_text(g.print.program, sizeof g.print.program, sl_version());
    copy_text(g.print.isa, sizeof g.print.isa, g.info.isa);
    copy_text(g.print.acts, sizeof g.print.acts, g.info.acts);
    copy_text(g.print.kv, sizeof g.print.kv, g.info.kv);
    g.print.model = g.info.model_hash;
    g.print.vocab = mi.vocab_hash;
    g.print.n_ctx = g.info.n_ctx;
    g.n_device = BASE_MIN(sl_engine_devices(h->o.engine, d, GATE_DEVICE_MAX), GATE_DEVICE_MAX);
    for (int i = 0; i < g.n_device; i++) {
        copy_text(g.device[i].name, sizeof g.device[i].name, d[i].name);
        copy_text(g.device[i].parts, sizeof g.device[i].parts, d[i].parts);
        g.device[i].weight_bytes = d[i].weight_bytes;
        g.device[i].kv_bytes = d[i].kv_bytes;
    }
    size_t at = gate_frame_begin(&h->hello, GATE_HELLO, 0);
    gate_put_hello(&h->hello, &g);
    gate_frame_end(&h->hello, at);
    return str_status(&h->hello, err);
}

static sl_status open_counts(gate_host *h, sl_err *err)
{
    size_t n = (size_t)h->n_layer * (size_t)h->n_expert;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 2 * n + 1, sizeof *h->count, &p, err));
    h->count = p;
    h->routed = h->count + n;
    return SL_OK;
}

static sl_status watch(gate_host *h, int fd, void *what, sl_err *err)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0
               ? SL_OK
               : SL_FAIL(err, IO, "epoll: no more descriptors");
}

static sl_status open_all(gate_host *h, sl_err *err)
{
    str_init(&h->hello, MEM_MISC, 0);
    str_init(&h->event, MEM_REQUEST, 0);
    SL_TRY(make_hello(h, err));
    SL_TRY(open_counts(h, err));
    SL_TRY(sl_grammar_cache_open(h->o.model, &h->grammars, err));
    SL_TRY(net_lock_open(&h->lock, err));
    SL_TRY(os_event_open(&h->wake, err));
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    SL_TRY(watch(h, h->wake.fd, &h->wake, err));
    SL_TRY(net_local_listen(h->o.path, &h->listen_fd, err));
    SL_TRY(watch(h, h->listen_fd, h, err));
    atomic_store(&h->beat_ns, clock_now_ns());
    return par_side_open(gate_main, h, &h->thread, err);
}

sl_status gate_host_open(const struct gate_host_opts *o, gate_host **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof **out, &p, err));
    gate_host *h = p;
    h->o = *o;
    h->listen_fd = h->epoll_fd = -1;
    sl_status st = open_all(h, err);
    if (st) {
        gate_host_stop(h);
        gate_host_close(h);
        return st;
    }
    *out = h;
    return SL_OK;
}

void gate_host_drain(gate_host *h)
{
    atomic_store(&h->draining, true);
    os_event_set(&h->wake);
}

void gate_host_stop(gate_host *h)
{
    if (!h) return;
    atomic_store(&h->stopping, true);
    if (h->wake.open) os_event_set(&h->wake);
    par_side_close(h->thread);
    h->thread = NULL;
    for (int i = 0; i < CONN_MAX; i++)
        if (h->conn[i]) drop(h, i);
    if (h->listen_fd >= 0) {
        (void)unlink(h->o.path);
        close(h->listen_fd);
    }
    h->listen_fd = -1;
}

void gate_host_close(gate_host *h)
{
    if (!h) return;
    if (h->epoll_fd >= 0) close(h->epoll_fd);
    os_event_close(&h->wake);
    sl_grammar_cache_close(h->grammars);
    net_lock_close(h->lock);
    str_fini(&h->hello);
    str_fini(&h->event);
    mem_free(h->count);
    mem_free(h);
}
