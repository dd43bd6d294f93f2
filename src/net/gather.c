/* SPDX-License-Identifier: Apache-2.0 */
/* When the wakes of net_wake_later are passed on, and on which thread: that of net_server_flush, or
 * the watcher's. A send costs 10 to 50 us, whatever it carries, and takes the CPUs on which the
 * next step runs: so a stream's events wait for those of the next steps while that makes none of
 * them older than opts.gather_ms. Few streams wait only where steps are shorter than half of that:
 * longer ones are seen one by one, and their sends cost little. */
#include "base/clock.h"
#include "net/net_internal.h"

#define MS 1000000
#define MANY 8 /* streams */
/* Of many streams, whose steps are so much shorter than what they wait, the watcher writes: it
 * takes as long as a step, and the rest of a team that waits for so long goes to sleep. */
#define SHORT 4

/* here: on the thread of net_server_flush. Resume, or go on with, everything that is listed; what
 * that thread must not do stays there, and then it returns false. */
static bool pass_wakes(net_server *s, bool here)
{
    bool all = true;
    atomic_store_explicit(&s->n_listed, 0, memory_order_relaxed);
    struct net_req *next, *r = atomic_exchange_explicit(&s->wake_list, NULL,
                                                        memory_order_acquire); /* with net_wake */
    for (; r; r = next) {
        struct net_req_own *o = net_own(r);
        next = o->wake_next;
        /* it sleeps: nobody else can resume or end it */
        if (here && (!o->direct || r->apart)) {
            net_wake_put(s, r);
            all = false;
            continue;
        }
        if (o->direct) {
            net_push(o);
        } else {
            net_req_resume(o);
        }
        net_req_unref(r);
    }
    return all;
}

void net_gather(net_server *s)
{
    /* before the list is taken: a later push rings again */
    if (atomic_exchange(&s->rung, false)) (void)pass_wakes(s, false);
}

/* false: the watcher has to. Where no CPU is free for it, to wake it costs more than to write, and
 * then it takes a CPU in the middle of a step. */
static bool pass_here(net_server *s)
{
    if (!s->opts.push_here || s->tls_cert || pthread_mutex_trylock(&s->push_lock) != 0)
        return false;
    int64_t t = clock_now_ns();
    bool all = pass_wakes(s, true);
    atomic_fetch_add_explicit(&s->push_ns, clock_now_ns() - t, memory_order_relaxed);
    pthread_mutex_unlock(&s->push_lock);
    return all;
}

void net_server_flush(net_server *s, bool now)
{
    struct net_gather *g = &s->gather;
    int64_t t = clock_now_ns(), step = t - g->flushed;
    bool many = atomic_load_explicit(&s->n_listed, memory_order_relaxed) >= MANY;
    int64_t most = s->opts.gather_ms * (int64_t)MS;
    g->flushed = t;
    if (!atomic_load_explicit(&s->wake_list, memory_order_relaxed)) {
        g->oldest = 0;
        return;
    }
    if (!g->oldest) g->oldest = t;
    /* if the next step is like this one */
    if (!now && t + step - g->oldest <= most && (many || step <= most / 2)) return;
    g->oldest = 0;
    if (atomic_load(&s->rung)) return; /* a watcher that was told does it all */
    if ((many && step < most / SHORT) || !pass_here(s)) net_ring(s);
}
