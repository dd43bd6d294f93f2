/* SPDX-License-Identifier: Apache-2.0 */
/* The time of the device `sim`. A launch takes lat + the slower of its bytes / bw and its
 * operations / ops; rows between device and host take lat + their bytes / bus. From the host to a
 * device that has nothing to do, and from the device to a host that waits, hand passes. What is
 * sent takes the way to the device beside what that computes.
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

int64_t dev_check_now_ns(const dev *d)
{
    return dev_check_now(dev_check_of(d));
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

/* Bytes that a send brings. */
static double sent_bytes(const struct check_call *q)
{
    const struct dev_slots *s = q->u.send.slots;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->expert[i] >= 0;
    return (double)n / s->n * (double)(q->room[0]->head.bytes + q->room[1]->head.bytes);
}

/* ---- what comes from the host ---- */

/* When the way is free, and the rooms are. */
static int64_t send_from(const struct check_clock *k, const struct check_call *q)
{
    int64_t from = BASE_MAX(k->bus_ns, q->at_ns);
    for (int i = 0; i < 2; i++)
        from = BASE_MAX(from, q->room[i]->free_ns);
    return from;
}

/* The host reads what it sends, and writes it to where the way begins; it is ahead of that by
 * DEV_SEND_AHEAD at most. What a real one takes for it passes by itself. */
void dev_check_clock_give(struct check *c, struct check_call *q)
{
    struct check_clock *k = &c->clock;
    if (!k->is_on || k->is_real) return;
    double bytes = sent_bytes(q), ahead = BASE_MIN(bytes, (double)DEV_SEND_AHEAD);
    int64_t from = send_from(k, q);
    k->host_ns += ns_of(2 * bytes, k->host_bw);
    k->host_ns = BASE_MAX(k->host_ns, from + ns_of(bytes - ahead, k->bus));
    q->host_ns = k->host_ns;
}

/* What comes does so beside what the device computes. */
static void send_ran(struct check *c, struct check_call *q)
{
    struct check_clock *k = &c->clock;
    int64_t from = send_from(k, q), need = k->lat + ns_of(sent_bytes(q), k->bus);
    q->end_ns = BASE_MAX(from + need, q->host_ns) + k->slow_ns;
    q->room[0]->ready_ns = q->room[1]->ready_ns = k->bus_ns = q->end_ns;
    k->slow_ns = 0;
    if (!c->head.timing) return;
    add(&c->head.op[q->op], q->end_ns - from);
    c->head.op[q->op].cost.bytes += sent_bytes(q);
}

void dev_check_clock_ran(struct check *c, struct check_call *q, const struct dev_cost *cost)
{
    static const struct dev_cost none;
    struct check_clock *k = &c->clock;
    int64_t from = BASE_MAX(k->dev_ns, q->at_ns + k->hand);
    if (!k->is_on) return;
    if (q->op == DEV_OP_send) {
        send_ran(c, q);
        return;
    }
    for (int i = 0; i < 2 && q->room[i]; i++)
        from = BASE_MAX(from, q->room[i]->ready_ns);
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
    for (int i = 0; i < 2 && q->room[i]; i++)
        q->room[i]->free_ns = q->end_ns;
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

void dev_check_figures(const dev *d, struct dev_figures *out)
{
    const struct check_clock *k = &dev_check_of(d)->clock;
    *out = (struct dev_figures){.read = k->bw,
                                .ops = k->ops,
                                .lat_s = (double)k->lat * 1e-9,
                                .hand_s = (double)k->hand * 1e-9,
                                .bus = k->bus,
                                .host_read = k->host_bw,
                                .host_ops = k->host_ops,
                                .is_told = true};
}
