/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and operators of the device `check`: taken now, run later. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/size.h"
#include "dev/check/check.h"

#define SPIN_NS 30000   /* then sleep */
#define HANG_NS 5000000 /* how often a thread that hangs looks whether it is to end */

/* ---- a step's arrays, copied ---- */

struct copy {
    uint8_t *mem; /* NULL: sizes are added up */
    size_t at;
};

static const void *copy_array(struct copy *c, const void *src, size_t n)
{
    if (!src) return NULL;
    uint8_t *dst = c->mem + c->at;
    if (c->mem) memcpy(dst, src, n);
    c->at += size_round(n, 64);
    return c->mem ? dst : src;
}

static struct dev_step copy_step(struct copy *c, const struct dev_step *s)
{
    struct dev_step o = *s;
    size_t T = (size_t)s->n_tok, S = (size_t)s->n_seq, i4 = sizeof(int32_t);
    o.ids = copy_array(c, s->ids, T * i4);
    o.pos = copy_array(c, s->pos, T * i4);
    o.seq_tok0 = copy_array(c, s->seq_tok0, (S + 1) * i4);
    for (int g = 0; g < DEV_KV_GROUPS; g++)
        o.blk[g] = copy_array(c, s->blk[g], S * (size_t)s->ld_blk * i4);
    o.seat = copy_array(c, s->seat, S * i4);
    o.n_prompt = copy_array(c, s->n_prompt, S * i4);
    o.n_draft = copy_array(c, s->n_draft, S * i4);
    o.keep = copy_array(c, s->keep, S * sizeof *s->keep);
    o.copy = copy_array(c, s->copy, 3 * (size_t)s->n_copy * i4);
    o.row_tok = copy_array(c, s->row_tok, (size_t)s->n_row * i4);
    o.row_want = copy_array(c, s->row_want, (size_t)s->n_row);
    o.hidden_row = copy_array(c, s->hidden_row, T * i4);
    return o;
}

static sl_status room_for_step(struct check *c, size_t n, sl_err *err)
{
    struct check_step *t = &c->step;
    void *p = NULL;
    if (n <= t->n_mem) return SL_OK;
    SL_TRY(mem_alloc(MEM_SCRATCH, n, &p, err));
    mem_free(t->mem);
    t->mem = p;
    t->n_mem = n;
    return SL_OK;
}

static sl_status take_step(struct check *c, const struct dev_step *s, sl_err *err)
{
    struct copy size = {NULL, 0};
    (void)copy_step(&size, s);
    SL_TRY(room_for_step(c, size.at, err));
    struct copy to = {c->step.mem, 0};
    c->step.s = copy_step(&to, s);
    return SL_OK;
}

static struct check_call *slot(struct check *c, uint64_t i)
{
    return &c->call[i % CHECK_CALLS];
}

static void run_to(struct check *c, uint64_t goal);

/* The next call; publish tells the thread. */
static struct check_call *next_call(struct check *c, enum dev_op_kind op)
{
    if (c->n_queued - c->n_run == CHECK_CALLS) run_to(c, c->n_queued);
    struct check_call *q = slot(c, c->n_queued);
    q->op = op;
    q->at_ns = dev_check_now(c);
    return q;
}

static void publish(struct check *c)
{
    c->n_queued++;
    if (c->thread) os_word_set(&c->queued, (unsigned)c->n_queued);
}

void dev_check_step_begin(dev *d, dev_kv *kv, const struct dev_step *s)
{
    struct check *c = dev_check_of(d);
    dev_check_drain(c);
    c->why.code = SL_OK;
    if (c->is_dead) (void)dev_check_dead(c, &c->why);
    atomic_store_explicit(&c->failed, c->is_dead, memory_order_relaxed); /* nothing runs */
    c->step.kv = kv ? ((struct check_kv *)kv)->in : NULL;
    c->step.s = (struct dev_step){0};
    c->step.is_refused = c->is_dead || take_step(c, s, &c->why) != SL_OK;
    if (c->step.is_refused) {
        atomic_store_explicit(&c->failed, true, memory_order_relaxed);
        return;
    }
    (void)next_call(c, DEV_N_OP);
    publish(c);
}

/* ---- operators ---- */

/* What the parameters of op refer to becomes the CPU device's. */
static void translate(const struct check *c, enum dev_op_kind op, void *params)
{
    for (const struct dev_ref *r = dev_op_refs(op); r->kind; r++) {
        void **p = (void **)(void *)((char *)params + r->at);
        if (!*p) continue;
        switch (r->kind) {
        case DEV_REF_END:
            break;
        case DEV_REF_MAT:
            *p = ((struct check_mat *)*p)->in;
            break;
        case DEV_REF_ACT:
            *p = ((struct check_act *)*p)->in;
            break;
        case DEV_REF_KV:
            *p = ((struct check_kv *)*p)->in;
            break;
        case DEV_REF_BUF:
            *p = dev_check_mem(c, *p, 1);
            break;
        }
    }
}

const char *dev_check_lacks(const dev *d, const struct dev_op *op)
{
    const struct check *c = dev_check_of(d);
    struct dev_op o = *op;
    if (strcmp(dev_op_name(op->kind), c->lacks) == 0) return "its option says so";
    translate(c, op->kind, &o.u);
    return c->in->cls->lacks ? c->in->cls->lacks(c->in, &o) : NULL;
}

sl_status dev_check_queue_reserve(struct check *c, const struct dev_shapes *p, sl_err *err)
{
    size_t n_blk = (size_t)p->max.n_ctx / 16 + 1, n_seq = (size_t)p->max.n_seq;
    size_t of_seq = 4 * DEV_KV_GROUPS * (n_blk + 8) + sizeof(struct dev_keep), lines = 22 * 64;
    return room_for_step(c, 17 * (size_t)p->max.n_tok + n_seq * of_seq + lines, err);
}

/* The matrices that come from the host, or may have. */
static void note_rooms(struct check_call *q)
{
    bool is_send = q->op == DEV_OP_send;
    const dev_mat *up = is_send ? q->u.send.gate_up : q->u.moe.gate_up;
    const dev_mat *down = is_send ? q->u.send.down : q->u.moe.down;
    q->room[0] = q->room[1] = NULL;
    if (!is_send && q->op != DEV_OP_moe) return;
    q->room[0] = (struct check_mat *)up;
    q->room[1] = (struct check_mat *)down;
}

static const struct dev_ranks *ranks_of(const struct check_call *q)
{
    switch (q->op) {
    case DEV_OP_join:
        return q->u.join.ranks;
    case DEV_OP_pick:
        return q->u.pick.ranks;
    case DEV_OP_matmul:
        return q->u.matmul.ranks;
    case DEV_OP_route:
        return q->u.route.ranks;
    default: /* what others read of these is memory of the CPU device */
        return NULL;
    }
}

static void keep(struct check *c, const void *p)
{
    const uint8_t *at = p;
    for (struct check_buf *b = !c->clock.is_on && p ? c->buf : NULL; b; b = b->next)
        if (at >= b->base && at < b->base + b->n) b->is_kept = true;
}

/* Ranks that are threads read each other's rows where they lie, until the next join is over: that
 * may be when a step has begun here. */
static void keep_given(struct check *c, const struct check_call *q)
{
    if (!ranks_of(q)) return;
    for (const struct dev_ref *r = dev_op_refs(q->op); r->kind; r++)
        if (r->kind == DEV_REF_BUF)
            keep(c, *(uint8_t *const *)(const void *)((const char *)&q->u + r->at));
}

/* The same of rooms for experts that ranks share: those of others are read there, too. */
static void translate_etp(struct check *c, struct check_call *q)
{
    if (q->op != DEV_OP_moe || !q->u.moe.etp) return;
    q->etp = *q->u.moe.etp;
    keep(c, q->etp.y);
    q->etp.h_all = dev_check_mem(c, q->etp.h_all, 1);
    q->etp.y = dev_check_mem(c, q->etp.y, 1);
    q->u.moe.etp = &q->etp;
}

/* What of its own the operator points at is the CPU device's, too. */
static void translate_spread(const struct check *c, struct check_call *q)
{
    if (q->op != DEV_OP_moe || !q->u.moe.spread) return;
    q->spread = *q->u.moe.spread;
    q->spread.x = dev_check_mem(c, q->spread.x, 1);
    q->spread.act = ((struct check_act *)q->spread.act)->in;
    q->u.moe.spread = &q->spread;
}

static void queue(struct check *c, const struct dev_step *b, enum dev_op_kind op,
                  const void *params, size_t n)
{
    if (c->step.is_refused) return;
    ASSERT(b->n_tok == c->step.s.n_tok && b->n_seq == c->step.s.n_seq &&
           b->pass == c->step.s.pass); /* the step that began last */
    struct check_call *q = next_call(c, op);
    memcpy(&q->u, params, n);
    note_rooms(q);
    keep_given(c, q);
    translate(c, op, &q->u);
    translate_spread(c, q);
    translate_etp(c, q);
    if (op == DEV_OP_send) {
        /* so that it is known when the way is free */
        if (c->clock.is_on && !c->thread) run_to(c, c->n_queued);
        dev_check_clock_give(c, q);
    }
    publish(c);
}

#define X(name, params)                                                                            \
    void dev_check_##name(dev *d, const struct dev_step *b, const struct params *p)                \
    {                                                                                              \
        queue(dev_check_of(d), b, DEV_OP_##name, p, sizeof *p);                                    \
    }
DEV_OP_LIST(X)
#undef X

/* ---- running ---- */

static void begin(struct check *c)
{
    if (dev_check_count(c, CHECK_RUN, "step", &c->why)) return;
    for (struct check_buf *b = c->buf; b && c->step.s.pass == 0 && !c->clock.is_on; b = b->next)
        if (!b->is_kept) memset(b->mem, 0xff, b->n); /* NaN */
    dev_step_begin(c->in, c->step.kv, &c->step.s);
}

static void run(struct check *c, const struct check_call *q)
{
    switch (q->op) {
#define X(name, params)                                                                            \
    case DEV_OP_##name:                                                                            \
        if (!dev_check_count(c, CHECK_RUN, #name, &c->why))                                        \
            dev_##name(c->in, &c->step.s, &q->u.name);                                             \
        break;
        DEV_OP_LIST(X)
#undef X
    case DEV_N_OP:
        begin(c);
        break;
    }
}

/* Operators are timed where they run. */
static void move_times(struct check *c)
{
    for (int i = 0; i < DEV_N_OP; i++) {
        struct dev_op_time *t = &c->head.op[i], *from = &c->in->op[i];
        static const struct dev_cost none;
        t->n_call += from->n_call;
        t->ns += from->ns;
        dev_cost_add(&t->cost, &from->cost, &none);
    }
    memset(c->in->op, 0, sizeof c->in->op);
}

/* The thread stays where it is until the device closes. */
static void hang(const struct check *c)
{
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed))
        nanosleep(&(struct timespec){.tv_nsec = HANG_NS}, NULL);
}

static void run_one(struct check *c, struct check_call *q)
{
    struct dev_cost before = c->in->cost, cost = {0};
    q->end_ns = c->clock.dev_ns;
    if (c->why.code) return;
    c->in->timing = c->head.timing || c->clock.is_on;
    run(c, q);
    dev_cost_add(&cost, &c->in->cost, &before);
    if (c->thread && atomic_load_explicit(&c->hangs, memory_order_relaxed)) {
        hang(c);
        return;
    }
    if (c->why.code)
        atomic_store_explicit(&c->failed, true, memory_order_release);
    else
        dev_check_clock_ran(c, q, &cost);
}

/* Until the thread has come so far; when a wait is cut, it is asked whether it hangs. */
static void wait_thread(struct check *c, uint64_t goal)
{
    int64_t t0 = clock_now_ns(), t;
    unsigned n = (unsigned)goal;
    int cut_ms = (int)BASE_MIN(c->clock.cut / 1000000 + 1, INT32_MAX);
    bool there = c->is_dead || os_word_spin(&c->run, n, SPIN_NS, t0, &t);
    while (!there && !os_word_sleep(&c->run, n, cut_ms)) {
        if (clock_now_ns() - t0 < c->clock.cut) continue; /* it was woken */
        t0 = clock_now_ns();
        if (!atomic_load_explicit(&c->hangs, memory_order_acquire)) continue; /* it is slow */
        (void)dev_check_dead(c, &c->why); /* which the thread does not look at any more */
        atomic_store_explicit(&c->failed, true, memory_order_relaxed);
        there = true;
    }
    c->n_run = BASE_MAX(c->n_run, goal);
}

/* Calls before number goal have run. */
static void run_to(struct check *c, uint64_t goal)
{
    if (c->thread) {
        wait_thread(c, goal);
        return;
    }
    for (; c->n_run < goal; c->n_run++)
        run_one(c, slot(c, c->n_run));
    if (c->head.timing && !c->clock.is_on) move_times(c);
}

/* What the thread does: what is queued, in order. */
static void thread_main(void *arg)
{
    struct check *c = arg;
    for (uint64_t i = 0;; i++) {
        int64_t t;
        if (!os_word_spin(&c->queued, (unsigned)i + 1, SPIN_NS, clock_now_ns(), &t))
            (void)os_word_sleep(&c->queued, (unsigned)i + 1, -1);
        if (atomic_load_explicit(&c->stop, memory_order_relaxed)) return;
        run_one(c, slot(c, i));
        os_word_set(&c->run, (unsigned)i + 1);
    }
}

void dev_check_drain(struct check *c)
{
    uint64_t n = c->n_queued;
    if (n == c->n_run) return;
    int64_t from_ns = dev_check_now(c);
    run_to(c, n);
    dev_check_clock_wait(c, slot(c, n - 1), from_ns);
}

uint64_t dev_check_mark(dev *d)
{
    return dev_check_of(d)->n_queued;
}

sl_status dev_check_wait_mark(dev *d, uint64_t mark, sl_err *err)
{
    struct check *c = dev_check_of(d);
    if (mark > c->n_run) {
        int64_t from_ns = dev_check_now(c);
        run_to(c, mark);
        dev_check_clock_wait(c, slot(c, mark - 1), from_ns);
    }
    return dev_check_failed(c, err);
}

sl_status dev_check_failed(struct check *c, sl_err *err)
{
    if (!atomic_load_explicit(&c->failed, memory_order_acquire)) return SL_OK;
    if (err) *err = c->why; /* which changes no more in this step */
    return c->why.code;
}

sl_status dev_check_queue_open(struct check *c, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, CHECK_CALLS, sizeof *c->call, &p, err));
    c->call = p;
    return c->clock.is_real ? par_side_open(thread_main, c, &c->thread, err) : SL_OK;
}

void dev_check_queue_free(struct check *c)
{
    if (c->thread) {
        dev_check_drain(c);
        atomic_store_explicit(&c->stop, true, memory_order_relaxed);
        publish(c);
        par_side_close(c->thread);
    }
    mem_free(c->call);
    mem_free(c->step.mem);
}
