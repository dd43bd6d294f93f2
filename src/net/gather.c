/* SPDX-License-Identifier: Apache-2.0 */
/* When the wakes of net_wake and net_wake_later are passed on, and on which thread: the watcher's,
 * or, where no CPU is free for it, that of net_server_flush. A watcher that wakes up costs the
 * thread that wakes it more than a write does, and then takes a CPU in the middle of a step. */
#include "base/clock.h"
#include "net/net_internal.h"

#define MS 1000000
/* Wakes that may wait (net_wake_later) are passed on together: those within GATHER_MS, because
 * steps may be shorter; within half a millisecond more for each stream beyond four, because writes
 * cost 10 us each and take the CPUs on which the next step runs. */
#define GATHER_MS 1
#define GATHER_FREE 4
#define GATHER_MS_MAX 16

void net_gather_init(struct net_gather *g)
{
    g->ms = GATHER_MS;
}

/* here: on the thread of net_server_flush. Resume, or go on with, everything that is listed; what
 * that thread must not do stays there. Returns how many; *rest: some stay. */
static int pass_wakes(net_server *s, bool here, bool *rest)
{
    int n = 0;
    struct net_req *next, *r = atomic_exchange_explicit(&s->wake_list, NULL,
                                                        memory_order_acquire); /* with net_wake */
    for (; r; r = next) {
        struct net_req_own *o = net_own(r);
        next = o->wake_next;
        /* it sleeps: nobody else can resume or end it */
        if (here && (!o->direct || r->apart)) {
            net_wake_put(s, r);
            *rest = true;
            continue;
        }
        if (o->direct) {
            net_push(o);
        } else {
            atomic_fetch_sub(&s->n_sleeping, 1);
            MHD_resume_connection(o->mhd);
        }
        net_req_unref(r);
        n++;
    }
    return n;
}

static void passed(struct net_gather *g, int64_t now, int n)
{
    if (!n) return;
    g->passed = now;
    g->ms = BASE_MIN(GATHER_MS + BASE_MAX(n - GATHER_FREE, 0) / 2, GATHER_MS_MAX);
}

/* Where wakes come too fast the watcher leaves the bell rung, so that nobody rings (a system call
 * of the engine's thread in every step), and looks at the list by itself, until it finds it empty.
 * Slower ones are waited for: to look in vain is a switch of threads more for each step. */
void net_gather(net_server *s)
{
    struct net_gather *g = &s->gather;
    int64_t now = clock_now_ns(), since = now - g->passed;
    int n = 0;
    if (!atomic_exchange(&s->urgent, false) && since < g->ms * (int64_t)MS) {
        g->looking = atomic_load(&s->rung);
        return;
    }
    if (g->looking) n = pass_wakes(s, false, NULL);
    g->looking = n > 0 && since < (g->ms + 2) * (int64_t)MS;
    if (!g->looking) {
        atomic_store(&s->rung, false); /* before the list is taken: who pushes later rings again */
        n += pass_wakes(s, false, NULL);
    }
    passed(g, now, n);
}

int net_gather_wait(const net_server *s)
{
    const struct net_gather *g = &s->gather;
    int64_t left = g->passed + g->ms * (int64_t)MS - clock_now_ns();
    if (!g->looking) return -1;
    return left > 0 ? (int)((left + MS - 1) / MS) : 0;
}

bool net_gather_here(net_server *s)
{
    struct net_gather *g = &s->gather;
    bool rest = false;
    /* a watcher that was told, or looks by itself, does it all */
    if (!s->opts.push_here || s->tls_cert || atomic_load(&s->rung) || atomic_load(&s->urgent) ||
        pthread_mutex_trylock(&s->push_lock) != 0)
        return false;
    int64_t now = clock_now_ns(), next = now + (now - g->flushed); /* if steps are alike */
    bool late = next - g->passed >= g->ms * (int64_t)MS;
    g->flushed = now;
    if (late) {
        passed(g, now, pass_wakes(s, true, &rest));
        atomic_fetch_add_explicit(&s->push_ns, clock_now_ns() - now, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->push_lock);
    /* Few streams that are not late wait for the next flush. Many of short steps are the watcher's,
     * because it writes for all of them while a team goes on. */
    return late ? !rest : g->ms == GATHER_MS;
}
