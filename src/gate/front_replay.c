/* SPDX-License-Identifier: Apache-2.0 */
/* What a host had that ended goes on in one that gives the same bits: the engine is given prompt
 * and answer so far, and tells the token after it. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/front_internal.h"

/* ---- what is told ---- */

static sl_status add_token(struct sample *s, int32_t token, sl_err *err)
{
    void *p = NULL;
    if (s->n_tok == s->cap) {
        int cap = BASE_MAX(2 * s->cap, 64);
        SL_TRY(mem_realloc(MEM_REQUEST, s->tok, (size_t)cap * sizeof *s->tok, &p, err));
        s->tok = p;
        s->cap = cap;
    }
    s->tok[s->n_tok++] = token;
    return SL_OK;
}

/* Its times are since the client's request, and those of its first token stay. */
static void set_times(const struct call *c, struct sample *s, sl_event *ev)
{
    int64_t late = c->t_resume_ns - c->t_submit_ns;
    if (s->ttft_ns) {
        ev->ttft_ns = s->ttft_ns;
        ev->queue_ns = s->queue_ns;
        ev->prefill_ns = s->prefill_ns;
        ev->n_cached = s->n_cached;
    } else {
        if (ev->ttft_ns) ev->ttft_ns += late;
        if (ev->queue_ns) ev->queue_ns += late;
    }
    if (ev->done_ns) ev->done_ns += late;
}

sl_status gate_replay_note(struct call *c, sl_event *ev, bool *again, sl_err *err)
{
    struct sample *s = &c->sample[ev->index];
    ev->n_replay = c->n_replay;
    if (c->n_replay) set_times(c, s, ev);
    if (ev->prompt_pos >= 0) {
        *again = ev->prompt_pos < s->n_echo;
        if (!*again) s->n_echo = ev->prompt_pos + 1;
        return SL_OK;
    }
    if (ev->token < 0) return SL_OK;
    if (!s->ttft_ns) {
        s->ttft_ns = ev->ttft_ns;
        s->queue_ns = ev->queue_ns;
        s->prefill_ns = ev->prefill_ns;
        s->n_cached = ev->n_cached;
    }
    return add_token(s, ev->token, err);
}

/* ---- waiting, and going on ---- */

bool gate_replay_wait(struct front *f, struct call *c)
{
    if (!f->replay || c->n_replay >= GATE_REPLAY_MAX) return false;
    net_lock_take(f->lock);
    c->home = c->link;
    c->link->n_call--;
    c->link = NULL;
    net_lock_give(f->lock);
    f->n_orphan++;
    return true;
}

static void put_samples(const struct call *c, struct str *out, int64_t now)
{
    for (int i = 0; i < c->n; i++) {
        const struct sample *s = &c->sample[i];
        struct gate_tail tail = {.n = 1, .first = i, .given = s->tok, .n_given = s->n_tok};
        if (s->over) continue;
        if (c->deadline_ns) tail.timeout_ms = (c->deadline_ns - now) / 1000000 + 1;
        size_t at = gate_frame_begin(out, GATE_RESUME, c->id | (uint64_t)i);
        str_put(out, c->body.p, c->body.n);
        gate_put_tail(out, &tail);
        gate_frame_end(out, at);
    }
}

/* False: there is no engine for it now. */
static bool resume(struct front *f, struct call *c, int64_t now)
{
    struct str s;
    net_lock_take(f->lock);
    struct link *l = gate_link_choose(f, c->print, NULL);
    if (l) {
        str_init(&s, MEM_REQUEST, 0);
        put_samples(c, &s, now);
        if (gate_pipe_put(&l->pipe, &s, GATE_OUT_MAX)) {
            c->link = l;
            c->resumed = true;
            l->n_call++;
            if (!gate_pipe_flush(&l->pipe)) l->gone = true;
        } else
            l = NULL;
        str_fini(&s);
    }
    net_lock_give(f->lock);
    if (!l) return false;
    c->t_resume_ns = now;
    c->n_replay++;
    atomic_fetch_add(&f->n_replay, 1);
    return true;
}

/* Errors: why it ends. *on: it goes on. */
static sl_status try_again(struct front *f, struct call *c, int64_t now, bool *on, sl_err *err)
{
    net_lock_take(f->lock);
    bool cancelled = c->cancelled;
    net_lock_give(f->lock);
    *on = false;
    if (cancelled) return SL_FAIL(err, CANCELLED, "cancelled");
    if (c->deadline_ns && now >= c->deadline_ns)
        return SL_FAIL(err, TIMEOUT, "the request's time is over");
    *on = resume(f, c, now);
    if (*on || !c->home->greeted) return SL_OK;
    const char *what = gate_print_differs(c->print, c->home->print);
    if (!what) return SL_OK;
    return SL_FAIL(err, DEVICE, "the engine came back with another %s: this answer cannot go on",
                   what);
}

void gate_replay_step(struct front *f)
{
    int64_t now = clock_now_ns();
    int n = 0;
    for (int i = 0; i < GATE_CALL_MAX && f->n_orphan; i++) {
        struct call *c = f->call[i];
        sl_err why;
        bool on;
        if (!c || c->link || !c->answered) continue;
        sl_status st = try_again(f, c, now, &on, &why);
        f->n_orphan -= st || on;
        n += on;
        if (st) gate_call_fail(f, c, &why);
    }
    if (n) log_msg(LOG_WARN, "an engine came back: %d request%s on", n, n == 1 ? " goes" : "s go");
}
