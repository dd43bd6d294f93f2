/* SPDX-License-Identifier: Apache-2.0 */
/* A front: the engine that api has, whose requests are computed behind a socket. Any thread puts
 * frames into a link and sends them; the engine thread reads. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "gate/front_internal.h"

/* ---- calls ---- */

static int slot_of(uint64_t id)
{
    return (int)(id >> GATE_SAMPLE_BITS) & (GATE_CALL_MAX - 1);
}

struct call *gate_call_find(struct front *f, uint64_t id)
{
    struct call *c = f->call[slot_of(id)];
    return c && c->id >> GATE_SAMPLE_BITS == id >> GATE_SAMPLE_BITS ? c : NULL;
}

static void free_call(struct call *c)
{
    for (int i = 0; i < c->n; i++)
        mem_free(c->sample[i].tok);
    str_fini(&c->body);
    mem_free(c);
}

void gate_call_unref(struct call *c)
{
    /* acq_rel: the last one sees what the other did */
    if (atomic_fetch_sub_explicit(&c->n_ref, 1, memory_order_acq_rel) == 1) free_call(c);
}

void gate_call_end(struct front *f, struct call *c)
{
    int slot = slot_of(c->id);
    net_lock_take(f->lock);
    f->call[slot] = NULL;
    if (c->link) {
        c->link->n_call--;
        c->link->n_tok -= c->n_tok;
    }
    net_lock_give(f->lock);
    ASSERT(ring_push(&f->free_slot, (uint64_t)slot));
    atomic_fetch_sub(&f->n_pending, 1);
    gate_call_unref(c);
}

void gate_sample_fail(struct front *f, struct call *c, int i, const sl_err *why)
{
    struct sample *s = &c->sample[i];
    bool cancelled = why->code == SL_CANCELLED;
    sl_event ev = {.id = c->id,
                   .index = i,
                   .token = -1,
                   .text = "",
                   .finish = cancelled ? SL_FINISH_CANCELLED : SL_FINISH_ERROR,
                   .status = cancelled ? SL_OK : why->code,
                   .error = cancelled ? NULL : why->text,
                   .prompt_pos = -1,
                   .stop = -1,
                   .n_prompt = s->n_prompt,
                   .n_token = s->n_token,
                   .n_replay = c->n_replay,
                   .done_ns = clock_now_ns() - c->t_submit_ns};
    s->over = true;
    bool last = --c->n_left == 0;
    if (c->on_event) c->on_event(c->user, &ev);
    if (last) gate_call_end(f, c);
}

void gate_call_fail(struct front *f, struct call *c, const sl_err *why)
{
    for (int i = 0, n = c->n_left; n; i++)
        if (!c->sample[i].over) {
            n--;
            gate_sample_fail(f, c, i, why);
        }
}

void gate_call_cancel(struct front *f, struct call *c)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    for (int i = 0; i < (c->resumed ? c->n : 1); i++)
        gate_frame_end(&s, gate_frame_begin(&s, GATE_CANCEL, c->id | (uint64_t)i));
    if (!gate_pipe_put(&c->link->pipe, &s, GATE_OUT_MAX)) c->link->gone = true;
    if (!gate_pipe_flush(&c->link->pipe)) c->link->gone = true;
    if (c->link->gone) os_event_set(&f->wake);
    str_fini(&s);
}

/* ---- sl_submit ---- */

static sl_status open_call(struct front *f, const sl_request *q, struct call **out, sl_err *err)
{
    int n = BASE_MAX(q->n, 1);
    uint64_t slot;
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out + (size_t)n * sizeof(struct sample), &p,
                           err));
    struct call *c = p;
    c->n = c->n_left = n;
    c->on_event = q->on_event;
    c->on_kv = q->on_kv;
    c->user = q->user;
    c->t_submit_ns = clock_now_ns();
    if (q->timeout_ms) c->deadline_ns = c->t_submit_ns + q->timeout_ms * 1000000;
    str_init(&c->body, MEM_REQUEST, 0);
    for (int i = 0; i < n; i++)
        c->sample[i].n_prompt = q->n_ids;
    if (!ring_pop(&f->free_slot, &slot)) {
        mem_free(c);
        return SL_FAIL(err, BUSY, "the queue is full: %d requests", GATE_CALL_MAX);
    }
    uint64_t serial = 1 + atomic_fetch_add_explicit(&f->serial, 1, memory_order_relaxed);
    c->id = (serial << GATE_CALL_BITS | slot) << GATE_SAMPLE_BITS;
    atomic_init(&c->n_ref, 2);
    *out = c;
    return SL_OK;
}

struct link *gate_link_choose(struct front *f, const struct gate_print *print,
                              const struct gate_prefix *prefix)
{
    struct link *best = NULL;
    int64_t least = 0;
    for (int i = 0; i < f->n_link; i++) {
        struct link *l = &f->link[i];
        int64_t load = BASE_MAX(l->state.stats.n_running + l->state.stats.n_waiting, l->n_call);
        if (f->like) load = l->n_tok - (prefix ? gate_prefix_hit(f, l, prefix) : 0);
        if (!l->greeted || l->gone || !l->state.ready || (best && load >= least)) continue;
        if (print && gate_print_differs(print, l->print)) continue;
        best = l;
        least = load;
    }
    return best;
}

static sl_status send_call(struct front *f, struct call *c, const struct str *s,
                           const struct gate_prefix *prefix, sl_err *err)
{
    sl_status st = SL_OK;
    net_lock_take(f->lock);
    c->link = gate_link_choose(f, NULL, prefix);
    if (!c->link)
        st = SL_FAIL(err, DEVICE, "no engine is attached now");
    else if (!gate_pipe_put(&c->link->pipe, s, GATE_OUT_MAX))
        st = SL_FAIL(err, BUSY, "the engine does not take requests now");
    else {
        c->link->n_call++;
        c->n_tok = prefix->n_ids - gate_prefix_hit(f, c->link, prefix);
        c->link->n_tok += c->n_tok;
        gate_prefix_sent(f, c->link, prefix);
        c->print = c->link->print;
        f->call[slot_of(c->id)] = c;
        atomic_fetch_add(&f->n_pending, 1);
        if (!gate_pipe_flush(&c->link->pipe)) c->link->gone = true;
        if (c->link->gone || c->link->pipe.out.at < c->link->pipe.out.n) os_event_set(&f->wake);
    }
    net_lock_give(f->lock);
    return st;
}

static sl_status submit(void *user, const sl_request *q, uint64_t *id, sl_err *err)
{
    struct front *f = user;
    struct call *c = NULL;
    struct str s;
    struct gate_prefix prefix;
    SL_TRY(open_call(f, q, &c, err));
    gate_prefix_of(f, q, &prefix);
    str_init(&s, MEM_REQUEST, GATE_HEAD + (size_t)GATE_BODY_MAX);
    struct gate_tail tail = {.n = q->n, .timeout_ms = q->timeout_ms, .kv_from = q->kv_from};
    size_t at = gate_frame_begin(&s, q->on_kv ? GATE_PREFILL : GATE_SUBMIT, c->id);
    gate_put_request(&s, q);
    if (f->replay) str_put(&c->body, s.p + GATE_HEAD, s.n - GATE_HEAD);
    gate_put_tail(&s, &tail);
    gate_frame_end(&s, at);
    if (id) *id = c->id;
    sl_status st = str_status(&s, err);
    if (!st) st = str_status(&c->body, err);
    if (!st) st = send_call(f, c, &s, &prefix, err);
    str_fini(&s);
    if (st) {
        ASSERT(ring_push(&f->free_slot, (uint64_t)slot_of(c->id)));
        free_call(c);
        return st;
    }
    while (!q->on_kv && !os_word_sleep(&c->answer, 1, 1000)) {
    }
    st = q->on_kv ? SL_OK
                  : c->st; /* of pages an event says it: the one that asks waits for nothing */
    if (st && err) *err = c->err;
    gate_call_unref(c);
    return st;
}

static void cancel(void *user, uint64_t id)
{
    struct front *f = user;
    net_lock_take(f->lock);
    struct call *c = gate_call_find(f, id);
    if (c) c->cancelled = true;
    if (c && c->link)
        gate_call_cancel(f, c);
    else if (c)
        os_event_set(&f->wake);
    net_lock_give(f->lock);
}

/* ---- the engine thread ---- */

static int pending(void *user)
{
    struct front *f = user;
    return atomic_load(&f->n_pending);
}

static sl_status step(void *user, sl_err *err)
{
    (void)err;
    gate_links_step(user);
    gate_replay_step(user);
    return SL_OK;
}

static void wait_for(void *user, int timeout_ms)
{
    struct front *f = user;
    struct epoll_event ev[GATE_GROUP_MAX + 1];
    int n = epoll_wait(f->epoll_fd, ev, BASE_COUNT_OF(ev), gate_links_wait_ms(f, timeout_ms));
    for (int i = 0; i < n; i++)
        if (ev[i].data.ptr == &f->wake) os_event_wait(&f->wake, 0);
}

static void wake_up(void *user)
{
    struct front *f = user;
    os_event_set(&f->wake);
}

/* ---- what is known of the hosts: any thread ---- */

static int ready(void *user)
{
    struct front *f = user;
    net_lock_take(f->lock);
    int yes = gate_link_choose(f, NULL, NULL) != NULL;
    net_lock_give(f->lock);
    return yes;
}

static void info(void *user, sl_engine_info *out)
{
    struct front *f = user;
    net_lock_take(f->lock);
    *out = f->hello ? f->hello->info : (sl_engine_info){.isa = "", .acts = "", .kv = ""};
    net_lock_give(f->lock);
}

static void probe(void *user, sl_probe_result *out)
{
    struct front *f = user;
    net_lock_take(f->lock);
    *out = f->hello ? f->hello->probe : (sl_probe_result){0};
    net_lock_give(f->lock);
}

static int devices(void *user, sl_device_info *out, int n)
{
    struct front *f = user;
    net_lock_take(f->lock);
    const struct gate_hello *h = f->hello; /* greetings are kept */
    net_lock_give(f->lock);
    for (int i = 0; h && i < h->n_device && i < n; i++)
        out[i] = (sl_device_info){.name = h->device[i].name,
                                  .parts = h->device[i].parts,
                                  .weight_bytes = h->device[i].weight_bytes,
                                  .kv_bytes = h->device[i].kv_bytes};
    return h ? h->n_device : 0;
}

/* Counters of all hosts together; they are words, but for the two that come first. */
static void add_stats(sl_stats *sum, const sl_stats *s)
{
    sl_stats old = *sum;
    uint64_t a[sizeof *s / sizeof(uint64_t)], b[sizeof *s / sizeof(uint64_t)];
    memcpy(a, sum, sizeof a);
    memcpy(b, s, sizeof b);
    for (int i = 0; i < BASE_COUNT_OF(a); i++)
        a[i] += b[i];
    memcpy(sum, a, sizeof a);
    sum->n_running = old.n_running + s->n_running;
    sum->n_waiting = old.n_waiting + s->n_waiting;
    sum->kv_blk_tok = s->kv_blk_tok;
    sum->last_step_ns = BASE_MAX(old.last_step_ns, s->last_step_ns);
    sum->max_step_ns = BASE_MAX(old.max_step_ns, s->max_step_ns);
    sum->rank_load_ppm = BASE_MAX(old.rank_load_ppm, s->rank_load_ppm);
}

static void stats(void *user, sl_stats *out)
{
    struct front *f = user;
    memset(out, 0, sizeof *out);
    net_lock_take(f->lock);
    for (int i = 0; i < f->n_link; i++)
        if (f->link[i].greeted) add_stats(out, &f->link[i].state.stats);
    net_lock_give(f->lock);
    out->n_replay = atomic_load(&f->n_replay);
    out->n_restart = atomic_load(&f->n_restart);
}

static int routed(void *user, int layer, uint64_t *out, int n)
{
    struct front *f = user;
    if (layer < 0 || layer >= f->mi.n_layer) return 0;
    n = BASE_MIN(n, f->mi.n_expert);
    for (int e = 0; e < n; e++)
        out[e] = 0;
    net_lock_take(f->lock);
    for (int i = 0; i < f->n_link; i++)
        for (int e = 0; e < n && f->link[i].greeted; e++)
            out[e] += f->link[i].routed[(int64_t)layer * f->mi.n_expert + e];
    net_lock_give(f->lock);
    return f->mi.n_expert;
}

/* All engines that are there and can. */
static sl_status rebalance(void *user, sl_err *err)
{
    struct front *f = user;
    struct str s;
    int n = 0, n_there = 0;
    str_init(&s, MEM_REQUEST, 0);
    gate_frame_end(&s, gate_frame_begin(&s, GATE_PLACE, 0));
    net_lock_take(f->lock);
    for (int i = 0; i < f->n_link; i++) {
        struct link *l = &f->link[i];
        if (!l->greeted || l->gone) continue;
        n_there++;
        if (!l->state.stats.n_spare || !gate_pipe_put(&l->pipe, &s, GATE_OUT_MAX)) continue;
        n++;
        if (!gate_pipe_flush(&l->pipe)) l->gone = true;
        os_event_set(&f->wake);
    }
    net_lock_give(f->lock);
    str_fini(&s);
    if (n) return SL_OK;
    return n_there ? SL_FAIL(err, REQUEST,
                             "no experts can move: that needs a layout with ep, and --spare")
                   : SL_FAIL(err, DEVICE, "no engine is attached now");
}

/* ---- opening and closing ---- */

static void front_close(void *user)
{
    struct front *f = user;
    sl_err why;
    (void)SL_FAIL(&why, CANCELLED, "the engine is being closed");
    for (int i = 0; i < GATE_CALL_MAX; i++)
        if (f->call[i]) gate_call_fail(f, f->call[i], &why);
    for (int i = 0; i < f->n_link; i++) {
        gate_pipe_close(&f->link[i].pipe);
        mem_free(f->link[i].routed);
    }
    if (f->epoll_fd >= 0) close(f->epoll_fd);
    os_event_close(&f->wake);
    ring_fini(&f->free_slot);
    net_lock_close(f->lock);
    gate_prefix_close(f);
    mem_arena_fini(&f->scratch);
    mem_arena_fini(&f->arena);
    mem_free(f);
}

static sl_status open_links(struct front *f, const struct gate_front_opts *o, sl_err *err)
{
    size_t n = (size_t)f->mi.n_layer * (size_t)f->mi.n_expert;
    void *p = NULL;
    for (int i = 0; i < o->n_path; i++) {
        char *path = NULL;
        struct link *l = &f->link[i];
        l->pipe.fd = -1;
        f->n_link = i + 1;
        SL_TRY(mem_arena_str(&f->arena, o->path[i], strlen(o->path[i]), &path, err));
        SL_TRY(mem_alloc_array(MEM_MISC, n + 1, sizeof *l->routed, &p, err));
        l->path = path;
        l->routed = p;
    }
    return SL_OK;
}

static sl_status open_all(struct front *f, const struct gate_front_opts *o, sl_err *err)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &f->wake};
    f->replay = o->replay;
    f->like = o->like;
    f->refusal = o->refusal;
    mem_arena_init(&f->arena, MEM_MISC, 0);
    mem_arena_init(&f->scratch, MEM_REQUEST, 0);
    sl_model_info_get(o->model, &f->mi);
    SL_TRY(open_links(f, o, err));
    SL_TRY(gate_prefix_open(f, err));
    SL_TRY(net_lock_open(&f->lock, err));
    SL_TRY(ring_init(&f->free_slot, GATE_CALL_MAX, err));
    for (int i = 0; i < GATE_CALL_MAX; i++)
        ASSERT(ring_push(&f->free_slot, (uint64_t)i));
    SL_TRY(os_event_open(&f->wake, err));
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (f->epoll_fd < 0 || epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->wake.fd, &ev) != 0)
        return SL_FAIL(err, IO, "epoll: no more descriptors");
    return SL_OK;
}

sl_status gate_front_open(const struct gate_front_opts *o, sl_engine **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(struct front), &p, err));
    struct front *f = p;
    f->epoll_fd = -1;
    const sl_remote r = {.user = f,
                         .submit = submit,
                         .cancel = cancel,
                         .pending = pending,
                         .step = step,
                         .wait = wait_for,
                         .wake = wake_up,
                         .ready = ready,
                         .info = info,
                         .stats = stats,
                         .devices = devices,
                         .routed = routed,
                         .probe = probe,
                         .rebalance = rebalance,
                         .close = front_close};
    sl_status st = open_all(f, o, err);
    if (!st) st = sl_engine_remote(o->model, &r, out, err);
    if (st) front_close(f);
    return st;
}
