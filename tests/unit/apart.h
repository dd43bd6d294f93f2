/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that computes prompts for another one, with a thread of its own, and between the two a
 * link that does what a test wants: loses, delays or damages what goes over. */
#ifndef APART_H
#define APART_H

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/engine_internal.h"
#include "par/par.h"

enum apart_fault {
    APART_NONE,
    APART_FLIP,   /* a byte of page number `at` */
    APART_MISS,   /* page number `at` is lost */
    APART_STOP,   /* all from page number `at` on are lost */
    APART_LATER,  /* every page is refused three times */
    APART_FAIL,   /* the other engine ends the request after page number `at` */
    APART_BUSY,   /* nothing is taken */
    APART_GONE,   /* nobody is there */
    APART_CANCEL, /* the one that asks cancels after page number `at` */
};

struct apart {
    /* fixed */
    sl_engine *by, *link; /* which computes; what the other engine sees of it */
    par_side *side;
    double mbps; /* 0, or 10^6 bytes a second that the link carries */
    /* any thread */
    atomic_bool over;
    atomic_int fault, at;
    _Atomic(sl_engine *) to; /* of APART_CANCEL */
    _Atomic uint64_t cancel; /* its request */
    _Atomic int n_page;      /* of all */
    /* the thread of by */
    int n_refused;
    int64_t free_ns; /* the link has carried all until then */
};

struct apart_call {
    struct apart *a;
    int (*on_kv)(void *user, const sl_kv_page *page);
    void (*on_event)(void *user, const sl_event *ev);
    void *user;
    int n_page;
    _Atomic uint64_t id; /* 0: not known yet */
    atomic_int n_ref;    /* of the thread that submitted it, until it knows the id, and of by's */
};

static inline void apart_unref(struct apart_call *c)
{
    if (atomic_fetch_sub(&c->n_ref, 1) == 1) free(c);
}

static inline int apart_page(void *user, const sl_kv_page *page)
{
    struct apart_call *c = user;
    struct apart *a = c->a;
    int fault = atomic_load(&a->fault), at = atomic_load(&a->at);
    if (fault == APART_LATER && a->n_refused++ % 4) return 0;
    if (a->mbps > 0) {
        int64_t now = clock_now_ns();
        if (now < a->free_ns) return 0;
        a->free_ns = now + (int64_t)((double)page->n_bytes * 1e3 / a->mbps);
    }
    atomic_fetch_add(&a->n_page, 1);
    int n = c->n_page++;
    if (fault == APART_CANCEL && n == at) sl_cancel(atomic_load(&a->to), atomic_load(&a->cancel));
    if (fault == APART_FAIL && n == at) {
        while (!atomic_load(&c->id))
            sched_yield();
        sl_cancel(a->by, atomic_load(&c->id));
    }
    if ((fault == APART_MISS && n == at) || (fault == APART_STOP && n >= at)) return 1;
    if (fault != APART_FLIP || n != at) return c->on_kv(c->user, page);
    char *bytes = malloc(page->n_bytes);
    sl_kv_page bad = *page;
    memcpy(bytes, page->bytes, page->n_bytes);
    bytes[page->n_bytes / 2] ^= 1;
    bad.bytes = bytes;
    int took = c->on_kv(c->user, &bad);
    if (!took) c->n_page--; /* it comes again */
    free(bytes);
    return took;
}

static inline void apart_event(void *user, const sl_event *ev)
{
    struct apart_call *c = user;
    c->on_event(c->user, ev);
    if (ev->finish != SL_FINISH_NONE) apart_unref(c);
}

static inline sl_status apart_submit(void *user, const sl_request *q, uint64_t *id, sl_err *err)
{
    struct apart *a = user;
    sl_request own = *q;
    if (atomic_load(&a->fault) == APART_BUSY) return SL_FAIL(err, BUSY, "busy");
    struct apart_call *c = calloc(1, sizeof *c);
    *c = (struct apart_call){
        .a = a, .on_kv = q->on_kv, .on_event = q->on_event, .user = q->user, .n_ref = 2};
    own.on_kv = apart_page;
    own.on_event = apart_event;
    own.user = c;
    sl_status st = sl_submit(a->by, &own, id, err);
    if (st) {
        free(c);
        return st;
    }
    atomic_store(&c->id, *id);
    apart_unref(c);
    return SL_OK;
}

static inline void apart_cancel(void *user, uint64_t id)
{
    sl_cancel(((struct apart *)user)->by, id);
}

static inline int apart_ready(void *user)
{
    return atomic_load(&((struct apart *)user)->fault) != APART_GONE;
}

static inline void apart_info(void *user, sl_engine_info *out)
{
    sl_engine_info_get(((struct apart *)user)->by, out);
}

static inline void apart_close(void *user)
{
    (void)user;
}

static inline void apart_loop(void *arg)
{
    struct apart *a = arg;
    sl_err why;
    while (!atomic_load(&a->over)) {
        sl_wait(a->by, 20);
        if (sl_step(a->by, &why)) return;
    }
}

/* a->by was opened. */
static inline sl_status apart_open(struct apart *a, sl_model *m, sl_err *err)
{
    const sl_remote r = {.user = a,
                         .submit = apart_submit,
                         .cancel = apart_cancel,
                         .ready = apart_ready,
                         .info = apart_info,
                         .close = apart_close};
    SL_TRY(sl_engine_remote(m, &r, &a->link, err));
    return par_side_open(apart_loop, a, &a->side, err);
}

/* After the engine that asked. */
static inline void apart_fini(struct apart *a)
{
    atomic_store(&a->over, true);
    sl_wake(a->by);
    par_side_close(a->side);
    sl_engine_close(a->link);
    sl_engine_close(a->by);
}

/* Blocks that somebody has although nobody is there. */
static inline int apart_lost(const sl_engine *e)
{
    int n = 0;
    for (int h = 0; h < e->n_home; h++)
        n += e->home[h].pool->n_blk - kv_pool_avail(e->home[h].pool);
    return n;
}

#endif
