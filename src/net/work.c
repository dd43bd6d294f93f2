/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: parse, render, tokenise and submit, so that net threads only move bytes. The
 * queue needs no bound of its own: a request is in it at most once, and there are at most
 * n_conn_max. */
#include "net/net_internal.h"

/* Take the next request from the queue: the first whose key no other worker has in hand, so that
 * nobody waits for all that another sent; else the first. Under work_lock. */
static struct net_req *next(net_server *s, int me)
{
    struct net_req *pick = s->work_head, *before = NULL, *prev = NULL;
    for (struct net_req *r = pick; r; prev = r, r = net_own(r)->work_next) {
        bool busy = false;
        for (int i = 0; i < BASE_COUNT_OF(s->work_key); i++)
            busy |= i != me && s->work_key[i] == r->key;
        if (busy) continue;
        pick = r;
        before = prev;
        break;
    }
    s->work_key[me] = pick && pick->key >= 0 ? pick->key : NET_NO_KEY;
    if (!pick) return NULL;
    struct net_req *after = net_own(pick)->work_next;
    if (before)
        net_own(before)->work_next = after;
    else
        s->work_head = after;
    if (s->work_tail == pick) s->work_tail = before;
    return pick;
}

static void *work(void *arg)
{
    net_server *s = arg;
    int me = atomic_fetch_add(&s->n_work_begun, 1);
    pthread_setname_np(pthread_self(), "net-work");
    for (;;) {
        pthread_mutex_lock(&s->work_lock);
        s->work_key[me] = NET_NO_KEY;
        while (!s->work_head && !s->work_stop)
            pthread_cond_wait(&s->work_cond, &s->work_lock);
        struct net_req *r = next(s, me);
        pthread_mutex_unlock(&s->work_lock);
        if (!r) return NULL;
        if (!net_req_closing(r) && atomic_load(&r->peer) != NET_PEER_GONE)
            s->opts.hooks.handle(s->opts.hooks.user, r);
        atomic_store_explicit(&net_own(r)->handled, true, memory_order_release);
        net_wake(r);
        if (atomic_fetch_or(&net_own(r)->end, NET_WORKED) & NET_OVER) net_req_close(net_own(r));
        net_req_unref(r);
    }
}

void net_work_put(net_server *s, struct net_req_own *o)
{
    net_req_ref(&o->r);
    o->work_next = NULL;
    pthread_mutex_lock(&s->work_lock);
    if (s->work_tail)
        net_own(s->work_tail)->work_next = &o->r;
    else
        s->work_head = &o->r;
    s->work_tail = &o->r;
    pthread_cond_signal(&s->work_cond);
    pthread_mutex_unlock(&s->work_lock);
}

sl_status net_work_open(net_server *s, sl_err *err)
{
    int n = s->opts.n_work ? s->opts.n_work : 2;
    for (int i = 0; i < BASE_COUNT_OF(s->work_key); i++)
        s->work_key[i] = NET_NO_KEY;
    for (s->n_worker = 0; s->n_worker < n && s->n_worker < BASE_COUNT_OF(s->worker); s->n_worker++)
        if (pthread_create(&s->worker[s->n_worker], NULL, work, s) != 0)
            return SL_FAIL(err, NOMEM, "can not start a thread");
    return SL_OK;
}

void net_work_close(net_server *s)
{
    pthread_mutex_lock(&s->work_lock);
    s->work_stop = true;
    pthread_cond_broadcast(&s->work_cond);
    pthread_mutex_unlock(&s->work_lock);
    for (int i = 0; i < s->n_worker; i++)
        pthread_join(s->worker[i], NULL);
    s->n_worker = 0;
}
