/* SPDX-License-Identifier: Apache-2.0 */
/* The time of the device `sim`. A launch takes lat + the slower of its bytes / bw and its
 * operations / ops; rows between device and host take lat + their bytes / bus. From the host to a
 * device that has nothing to do, and from the device to a host that waits, hand passes.
 *
 * Virtual: whole nanoseconds are added up, nothing sleeps, and the same steps take the same time on
 * every machine. The host's own work is what the operators of the CPU cost by host-bw and host-ops.
 * Real: a launch that was quicker ends when it is due. */
#include <time.h>

#include "base/clock.h"
#include "dev/check/check.h"

#define SPIN_NS 100000 /* a sleep may end later than asked by less */

static int64_t ns_of(double amount, double per_second)
{
    return per_second > 0 ? (int64_t)(amount / per_second * 1e9 + 0.5) : 0;
}

static int64_t need_ns(const struct check *c, const struct check_call *q,
                       const struct dev_cost *cost)
{
    const struct check_clock *k = &c->clock;
    if (q->op == DEV_OP_move) {
        int64_t n_row = dev_n_row(&c->step.s, q->u.move.n_row);
        return k->lat + ns_of(4.0 * (double)n_row * q->u.move.n, k->bus);
    }
    return k->lat + BASE_MAX(ns_of(cost->bytes, k->bw), ns_of(cost->ops + cost->flops, k->ops));
}

int64_t dev_check_now(const struct check *c)
{
    return c->clock.is_real ? clock_now_ns() : c->clock.host_ns;
}

static void sleep_until(int64_t ns)
{
    int64_t left = ns - clock_now_ns() - SPIN_NS;
    struct timespec t = {left / 1000000000, left % 1000000000};
    if (left > 0) (void)nanosleep(&t, NULL);
    while (clock_now_ns() < ns)
        continue;
}

/* When what is due at ns ends, if it ends no earlier. */
static int64_t end_at(const struct check *c, int64_t ns)
{
    int64_t now = c->clock.is_real ? clock_now_ns() : ns;
    if (now > ns) return now;
    if (c->clock.is_real) sleep_until(ns);
    return ns;
}

static void add(struct dev_op_time *t, int64_t ns)
{
    t->n_call++;
    t->ns += ns;
}

void dev_check_clock_ran(struct check *c, struct check_call *q, const struct dev_cost *cost)
{
    static const struct dev_cost none;
    struct check_clock *k = &c->clock;
    int64_t from = BASE_MAX(k->dev_ns, q->at_ns + k->hand);
    if (!k->is_on) return;
    if (q->op == DEV_N_OP) { /* nothing is waited for between two steps */
        k->dev_ns = q->end_ns = BASE_MAX(k->dev_ns, q->at_ns);
        if (c->step.s.pass == 0) c->head.step.n_call++;
        return;
    }
    int64_t before = k->dev_ns;
    if (from > before) add(&c->head.idle, from - before);
    k->dev_ns = q->end_ns = end_at(c, from + need_ns(c, q, cost) + k->slow_ns);
    c->head.step.ns += q->end_ns - before;
    k->slow_ns = 0;
    if (!c->head.timing) return;
    add(&c->head.op[q->op], q->end_ns - from);
    dev_cost_add(&c->head.op[q->op].cost, cost, &none);
}

void dev_check_clock_wait(struct check *c, const struct check_call *q, int64_t from_ns)
{
    struct check_clock *k = &c->clock;
    if (!k->is_on || q->end_ns + k->hand <= from_ns) return;
    k->host_ns = end_at(c, q->end_ns + k->hand);
    add(&c->head.wait, k->host_ns - from_ns);
}

void dev_check_clock_cut(struct check *c)
{
    struct check_clock *k = &c->clock;
    if (k->is_real)
        sleep_until(clock_now_ns() + k->cut);
    else
        k->host_ns += k->cut;
}

void dev_check_clock_copy(struct check *c, int64_t n_bytes)
{
    struct check_clock *k = &c->clock;
    if (k->is_on) k->host_ns = end_at(c, dev_check_now(c) + ns_of((double)n_bytes, k->bus));
}

void dev_check_host_ran(dev *d, const struct dev_cost *cost)
{
    struct check_clock *k = &dev_check_of(d)->clock;
    if (k->is_on && !k->is_real)
        k->host_ns +=
            BASE_MAX(ns_of(cost->bytes, k->host_bw), ns_of(cost->ops + cost->flops, k->host_ops));
}
