/* SPDX-License-Identifier: Apache-2.0 */
/* Experts of the host on their way here, beside what the device computes. Where the host sees the
 * device's memory it writes them there; else they go through pinned memory, a piece after the
 * other, of which the driver copies one while the host writes the next. */
#include <string.h>

#include "dev/gpu/ops.h"
#include "par/par.h"

#define FLOW_BYTES (DEV_SEND_AHEAD / GPU_FLOWS)
#define MANY_BYTES ((size_t)256 << 10) /* from here on all workers copy */

struct copying {
    uint8_t *to;
    const uint8_t *from;
    size_t n;
};

static void copy_run(void *arg, int worker, int n_worker)
{
    const struct copying *c = arg;
    int64_t b, e;
    par_split((int64_t)(c->n + 63) / 64, worker, n_worker, &b, &e);
    size_t from = 64 * (size_t)b, to = BASE_MIN(64 * (size_t)e, c->n);
    if (to > from) memcpy(c->to + from, c->from + from, to - from);
}

static void copy(struct gpu *c, void *to, const void *from, size_t n)
{
    struct copying j = {to, from, n};
    if (n < MANY_BYTES)
        memcpy(to, from, n);
    else
        dev_host_run(c->cpu, copy_run, &j);
}

/* What lies in a piece of pinned memory and was not sent yet: n bytes, for addresses from to on. */
struct sender {
    struct gpu *c;
    uint64_t after; /* the last submit that reads what is written */
    struct gpu_flow *flow;
    uint64_t to, n;
};

static void send_rest(struct sender *s)
{
    struct gpu *c = s->c;
    if (!s->n) return;
    dev_gpu_send_one(c, &(struct gpu_sending){s->to, s->flow->mem.at, s->n, s->after});
    s->flow->sent = c->n_send;
    s->n = 0;
    s->flow = NULL;
}

static void put_pinned(struct sender *s, uint64_t to, const uint8_t *from, uint64_t n)
{
    struct gpu *c = s->c;
    while (n && !c->why.code) {
        if (s->n && (to != s->to + s->n || s->n == FLOW_BYTES)) send_rest(s);
        if (!s->n) {
            s->flow = &c->flow[c->at_flow++ % GPU_FLOWS];
            s->to = to;
            dev_gpu_wait_send(c, s->flow->sent);
        }
        uint64_t part = BASE_MIN(n, (uint64_t)FLOW_BYTES - s->n);
        copy(c, s->flow->mem.host + s->n, from, part);
        s->n += part;
        to += part;
        from += part;
        n -= part;
    }
}

static void put(struct sender *s, uint64_t to, const void *from, uint64_t n)
{
    uint8_t *host = dev_gpu_seen(s->c, to, (int64_t)n);
    if (host)
        copy(s->c, host, from, n);
    else
        put_pinned(s, to, from, n);
}

/* One half of a matrix into slot i of a room. */
static void put_half(struct sender *s, const struct gpu_mat *m, int half, int i,
                     const struct dev_image *one)
{
    const struct gpu_half *h = &m->half[half];
    const uint8_t *from = one->data[half];
    uint64_t unit = (uint64_t)i * (uint64_t)m->n_tile, left = (uint64_t)m->n_tile;
    while (left) {
        uint8_t *host;
        uint64_t in = unit % (uint64_t)h->p.per, many = BASE_MIN(left, (uint64_t)h->p.per - in);
        put(s, dev_gpu_item(&h->p, (int64_t)unit, &host), from, many * h->unit_bytes);
        from += many * h->unit_bytes;
        unit += many;
        left -= many;
    }
}

/* What of the slots comes from a stack: a half at a time, so that it lies in a row. */
static void put_stack(struct sender *s, const struct gpu_mat *m, const dev_mat *from,
                      const struct dev_slots *slots)
{
    struct dev_image one;
    for (int half = 0; half < 2 && m->half[half].fmt >= 0; half++)
        for (int i = 0; i < slots->n; i++) {
            if (slots->expert[i] < 0) continue;
            dev_mat_view(from, slots->expert[i], &one);
            put_half(s, m, half, i, &one);
        }
    for (int i = 0; i < slots->n; i++) {
        if (slots->expert[i] < 0) continue;
        dev_mat_view(from, slots->expert[i], &one);
        put(s, m->scale + 8 * (uint64_t)i, one.scale, 8);
    }
    for (int i = 0; m->head.epilogue.bias && i < slots->n; i++) {
        if (slots->expert[i] < 0) continue;
        dev_mat_view(from, slots->expert[i], &one);
        put(s, at(dev_mat_bias(&m->head, i)), one.epilogue.bias, 4 * (uint64_t)one.epilogue.n_row);
    }
}

void dev_gpu_send(dev *d, const struct dev_step *b, const struct dev_send *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct gpu_mat *up = (struct gpu_mat *)p->gate_up, *down = (struct gpu_mat *)p->down;
    struct sender s = {.c = c};
    (void)b;
    dev_gpu_flush(c); /* it runs meanwhile */
    if (c->why.code) return;
    /* no later than what was submitted: a step that failed may have left the number of the next */
    s.after = BASE_MIN(BASE_MAX(up->used, down->used), c->n_submit);
    if (dev_gpu_seen(c, up->scale, 8) && dev_gpu_wait(c, s.after, NULL)) return;
    put_stack(&s, up, p->from_gate_up, p->slots);
    put_stack(&s, down, p->from_down, p->slots);
    if (!c->why.code) send_rest(&s);
}

sl_status dev_gpu_send_reserve(struct gpu *c, sl_err *err)
{
    for (int i = 0; i < GPU_FLOWS && (!c->lim.is_unified || c->is_staged); i++)
        SL_TRY(dev_gpu_pinned(c, FLOW_BYTES, &c->flow[i].mem, err));
    return SL_OK;
}
