/* SPDX-License-Identifier: Apache-2.0 */
/* A front's links: connecting, and what comes from hosts. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/front_internal.h"
#include "net/local.h"

#define FORGOTTEN ((int64_t)1 << 40) /* tokens; more than a cache holds */
#define RETRY_NS ((int64_t)100 * 1000000)
#define SECOND ((int64_t)1000000000)
#define SILENT_NS (10 * SECOND) /* a host says how it is four times a second */

/* Said once, until it is another thing. */
static void say(struct link *l, const char *text)
{
    if (strcmp(l->why, text) == 0) return;
    snprintf(l->why, sizeof l->why, "%s", text);
    if (*text) log_msg(LOG_WARN, "%s: %s", l->path, text);
}

/* ---- the end of a link ---- */

static void answer(struct call *c, sl_status st, const sl_err *why)
{
    c->st = st;
    if (st) c->err = *why;
    c->answered = true;
    os_word_set(&c->answer, 1);
}

/* Refused before it began: there are no events. */
static void refuse(struct front *f, struct call *c, const sl_err *why)
{
    if (c->on_kv) { /* the answer is not waited for */
        c->answered = true;
        gate_call_fail(f, c, why);
        return;
    }
    atomic_fetch_add_explicit(&c->n_ref, 1, memory_order_relaxed);
    gate_call_end(f, c);
    answer(c, why->code, why);
    gate_call_unref(c);
}

static void drop(struct front *f, struct link *l, const sl_err *why)
{
    net_lock_take(f->lock);
    gate_pipe_close(&l->pipe);
    l->greeted = l->gone = false;
    net_lock_give(f->lock);
    l->retry_ns = clock_now_ns() + RETRY_NS;
    for (int i = 0; i < GATE_CALL_MAX && l->n_call; i++) {
        struct call *c = f->call[i];
        if (!c || c->link != l) continue;
        if (!c->answered)
            refuse(f, c, why);
        else if (!gate_replay_wait(f, c))
            gate_call_fail(f, c, why);
    }
}

/* ---- what comes ---- */

/* Can the host compute prompts for an engine, whose cache takes what it stores? */
static sl_status check_like(const struct front *f, const struct gate_hello *h, sl_err *err)
{
    sl_engine_info i;
    struct gate_print own = h->print;
    if (!f->like) return SL_OK;
    sl_engine_info_get(f->like, &i);
    if (i.kv_hash == h->info.kv_hash) return SL_OK;
    if (!h->info.kv_hash)
        return SL_FAIL(err, UNSUPPORTED,
                       "it keeps its cache, which is a card's, or has states");
    snprintf(own.program, sizeof own.program, "%s", sl_version());
    snprintf(own.isa, sizeof own.isa, "%s", i.isa);
    snprintf(own.acts, sizeof own.acts, "%s", i.acts);
    snprintf(own.kv, sizeof own.kv, "%s", i.kv);
    own.model = i.model_hash;
    const char *what = gate_print_differs(&own, &h->print);
    return SL_FAIL(err, REQUEST, "its %s is another one: it can compute no prompts for this engine",
                   what ? what : "--defer");
}

static sl_status on_hello(struct front *f, struct link *l, struct gate_frame *fr, sl_err *err)
{
    struct gate_hello h, *kept = f->hello;
    struct rd again = fr->body;
    if (l->greeted) return SL_FAIL(err, FORMAT, "it greets twice");
    SL_TRY(gate_read_hello(&fr->body, &h, err));
    if (h.print.vocab != f->mi.vocab_hash)
        return SL_FAIL(err, REQUEST,
                       "its model is \"%.60s\", whose vocabulary is not that of \"%.60s\": -m must "
                       "name the engine's model",
                       h.model, f->mi.name);
    sl_status st = check_like(f, &h, err);
    if (st && f->refusal && !*f->refusal) {
        snprintf(f->refusal, sizeof err->text, "%.60s: %.170s", l->path, err->text);
        snprintf(l->why, sizeof l->why, "%s", err->text); /* whoever asked says it */
    }
    SL_TRY(st);
    if (!kept || gate_print_differs(&kept->print, &h.print)) {
        void *p = NULL;
        SL_TRY(mem_arena_alloc(&f->arena, sizeof *kept, &p, err));
        kept = p;
        SL_TRY(gate_read_hello(&again, kept, err));
    }
    if (l->print) atomic_fetch_add(&f->n_restart, 1);
    net_lock_take(f->lock);
    f->hello = kept;
    l->print = &kept->print;
    l->greeted = true;
    l->n_sent += FORGOTTEN; /* its cache is empty */
    l->state = (struct gate_state){0};
    net_lock_give(f->lock);
    say(l, "");
    return SL_OK;
}

static sl_status on_answer(struct front *f, struct gate_frame *fr, sl_err *err)
{
    sl_err why = {0};
    struct call *c = gate_call_find(f, fr->id);
    if (fr->type == GATE_FAIL)
        SL_TRY(gate_read_fail(&fr->body, &why, err));
    else if (rd_left(&fr->body))
        return SL_FAIL(err, FORMAT, "it accepts with a body");
    if (!why.code) {
        if (c && !c->answered) answer(c, SL_OK, NULL); /* else events came before it */
        return SL_OK;
    }
    int i = (int)(fr->id & ((1 << GATE_SAMPLE_BITS) - 1));
    if (c && c->n_replay && i < c->n && !c->sample[i].over)
        gate_sample_fail(f, c, i, &why);
    else if (c && !c->answered)
        refuse(f, c, &why);
    else
        return SL_FAIL(err, FORMAT, "it refuses what it has begun");
    return SL_OK;
}

static sl_status on_event(struct front *f, struct gate_frame *fr, sl_err *err)
{
    sl_event ev;
    bool again = false;
    struct call *c = gate_call_find(f, fr->id);
    SL_TRY(gate_read_event(&fr->body, &f->scratch, &ev, err));
    if (!c || ev.index < 0 || ev.index >= c->n || c->sample[ev.index].over)
        return SL_FAIL(err, FORMAT, "it tells of what nobody asked");
    if (ev.token < -1 || ev.token >= f->mi.n_vocab)
        return SL_FAIL(err, FORMAT, "token %d is not in the vocabulary", ev.token);
    struct sample *s = &c->sample[ev.index];
    ev.id = c->id;
    if (f->replay) SL_TRY(gate_replay_note(c, &ev, &again, err));
    if (again) return SL_OK;
    s->n_prompt = ev.n_prompt;
    s->n_token = ev.n_token;
    s->over = ev.finish != SL_FINISH_NONE;
    c->n_left -= s->over;
    bool last = c->n_left == 0;
    if (!c->answered) answer(c, SL_OK, NULL);
    if (c->on_event) c->on_event(c->user, &ev);
    if (last) gate_call_end(f, c);
    return SL_OK;
}

/* Who takes pages may have no room for a moment. */
static sl_status on_page(struct front *f, struct gate_frame *fr, sl_err *err)
{
    sl_kv_page page;
    struct os_word never = {0};
    struct call *c = gate_call_find(f, fr->id);
    SL_TRY(gate_read_page(&fr->body, &page, err));
    if (!c || !c->on_kv) return SL_FAIL(err, FORMAT, "it gives pages that nobody asked for");
    while (!c->on_kv(c->user, &page))
        (void)os_word_sleep(&never, 1, 1);
    return SL_OK;
}

static sl_status on_state(struct front *f, struct link *l, struct gate_frame *fr, sl_err *err)
{
    struct gate_state s;
    SL_TRY(gate_read_state(&fr->body, &s, err));
    net_lock_take(f->lock);
    l->state = s;
    net_lock_give(f->lock);
    return SL_OK;
}

static sl_status on_routed(struct front *f, struct link *l, struct gate_frame *fr, sl_err *err)
{
    net_lock_take(f->lock);
    sl_status st = gate_read_routed(&fr->body, l->routed, f->mi.n_layer, f->mi.n_expert, err);
    net_lock_give(f->lock);
    return st;
}

static sl_status on_frame(struct front *f, struct link *l, struct gate_frame *fr, sl_err *err)
{
    sl_err why = {0};
    if (fr->type == GATE_HELLO) return on_hello(f, l, fr, err);
    if (!l->greeted) return SL_FAIL(err, FORMAT, "it does not greet");
    switch (fr->type) {
    case GATE_FAIL:
        if (fr->id) return on_answer(f, fr, err);
        SL_TRY(gate_read_fail(&fr->body, &why, err));
        return SL_FAIL(err, DEVICE, "the engine failed: %s", why.text);
    case GATE_ACCEPT:
        return on_answer(f, fr, err);
    case GATE_EVENTS:
        return on_event(f, fr, err);
    case GATE_PAGE:
        return on_page(f, fr, err);
    case GATE_STATS:
        return on_state(f, l, fr, err);
    case GATE_ROUTED:
        return on_routed(f, l, fr, err);
    default:
        return SL_FAIL(err, FORMAT, "a host sent a frame of type %d", (int)fr->type);
    }
}

/* Errors: why the link ends. */
static sl_status read_all(struct front *f, struct link *l, sl_err *err)
{
    struct gate_frame fr;
    int more;
    do {
        more = gate_pipe_fill(&l->pipe);
        for (bool any = true; any;) {
            uint32_t most = f->like ? GATE_BODY_MAX : GATE_EVENT_MAX;
            SL_TRY(gate_pipe_next(&l->pipe, most, &fr, &any, err));
            if (!any) break;
            l->heard_ns = clock_now_ns();
            SL_TRY(on_frame(f, l, &fr, err));
        }
    } while (more > 0);
    return more == 0 ? SL_OK : SL_FAIL(err, DEVICE, "the engine is gone");
}

/* ---- the links ---- */

static void try_connect(struct front *f, struct link *l, int64_t now)
{
    sl_err err;
    int fd = -1;
    l->retry_ns = now + RETRY_NS;
    sl_status st = net_local_connect(l->path, &fd, &err);
    if (st) {
        if (st != SL_NOTFOUND) say(l, err.text);
        return;
    }
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = l};
    net_lock_take(f->lock);
    l->pipe.fd = fd;
    if (epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) l->gone = true;
    net_lock_give(f->lock);
    l->heard_ns = now;
}

static bool send_all(struct front *f, struct link *l)
{
    net_lock_take(f->lock);
    bool there = !l->gone && gate_pipe_flush(&l->pipe);
    net_lock_give(f->lock);
    return there;
}

static void step_link(struct front *f, struct link *l)
{
    sl_err err = {0};
    int64_t now = clock_now_ns();
    if (l->pipe.fd < 0) {
        if (now < l->retry_ns) return;
        try_connect(f, l, now);
        if (l->pipe.fd < 0) return;
    }
    sl_status st = read_all(f, l, &err);
    if (!st && !send_all(f, l)) st = SL_FAIL(&err, DEVICE, "the engine is gone");
    if (!st && now - l->heard_ns > SILENT_NS)
        st = SL_FAIL(&err, DEVICE, "the engine gave no sign for %d s", (int)(SILENT_NS / SECOND));
    if (!st) return;
    say(l, err.text);
    err.code = SL_DEVICE;
    drop(f, l, &err);
}

void gate_links_step(struct front *f)
{
    for (int i = 0; i < f->n_link; i++)
        step_link(f, &f->link[i]);
}

int gate_links_wait_ms(struct front *f, int timeout_ms)
{
    int64_t now = clock_now_ns(), least = timeout_ms;
    if (timeout_ms < 0) least = INT32_MAX;
    for (int i = 0; i < f->n_link; i++)
        if (f->link[i].pipe.fd < 0)
            least = BASE_MIN(least, BASE_MAX((f->link[i].retry_ns - now) / 1000000 + 1, 0));
    return (int)least;
}
