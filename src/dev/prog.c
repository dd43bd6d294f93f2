/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: the operators of a pass, checked when they are opened, and run in their order, on one
 * device or on several. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dev/beside.h"
#include "dev/dev_internal.h"
#include "dev/halves.h"

struct dev_prog {
    dev *d[DEV_PROG_DEVS]; /* of all operators */
    int n_dev;
    dev_kv *kv; /* that operators are bound to */
    int n_op;
    struct dev_op *op;
    struct dev_fused **fused; /* [n_op] what begins there; NULL = nothing */
    bool *last_touch; /* [n_op] the last of its device's operators in a row that touches host memory
                       */
    void (*fn)(void *user, int layer); /* NULL, or what watches */
    void *user;
};

const char *dev_op_name(enum dev_op_kind kind)
{
    static const char *const names[] = {
#define X(name, params) #name,
        DEV_OP_LIST(X)
#undef X
    };
    return names[kind];
}

static int has_op(const struct dev_class *c, enum dev_op_kind kind)
{
    switch (kind) {
#define X(name, params)                                                                            \
    case DEV_OP_##name:                                                                            \
        return c->name != NULL;
        DEV_OP_LIST(X)
#undef X
    case DEV_N_OP:
        break;
    }
    return 0;
}

static sl_status check_op(const struct dev_op *op, sl_err *err)
{
    const dev *d = op->d;
    const struct dev_class *c = d->cls;
    char where[32] = "outside of the layers";
    if (op->layer >= 0) snprintf(where, sizeof where, "layer %d", op->layer);
    if (!has_op(c, op->kind))
        return SL_FAIL(err, UNSUPPORTED, "%s: device '%s' has no operator '%s'", where, c->name,
                       dev_op_name(op->kind));
    const char *what = c->lacks ? c->lacks(d, op) : NULL;
    if (op->kind == DEV_OP_moe && (op->u.moe.n_late || op->u.moe.before) && !c->takes_late)
        what = "experts that come late";
    if (op->kind == DEV_OP_moe && op->u.moe.phase && !c->half) what = "experts in parts";
    if (what)
        return SL_FAIL(err, UNSUPPORTED, "%s: device '%s' can not run operator '%s': %s", where,
                       c->name, dev_op_name(op->kind), what);
    return SL_OK;
}

static void add_dev(dev_prog *p, dev *d)
{
    for (int i = 0; i < p->n_dev; i++)
        if (p->d[i] == d) return;
    ASSERT(p->n_dev < DEV_PROG_DEVS);
    p->d[p->n_dev++] = d;
}

/* Where the operators of one device that begin at op[at] end. */
static int stretch_end(const dev_prog *p, int at)
{
    int end = at + 1;
    while (end < p->n_op && p->op[end].d == p->op[at].d)
        end++;
    return end;
}

static sl_status fuse(dev_prog *p, sl_err *err)
{
    for (int i = 0, end = 0; i < p->n_op;) {
        dev *d = p->op[i].d;
        if (i >= end) end = stretch_end(p, i);
        if (d->cls->fuse) SL_TRY(d->cls->fuse(d, p->op, end, i, &p->fused[i], err));
        i += p->fused[i] ? p->fused[i]->n_op : 1;
    }
    return SL_OK;
}

/* Devices that are the host's count what their operators cost. */
static void count_host(const dev_prog *p)
{
    for (int i = 0; i < p->n_dev; i++)
        if (p->d[i]->cls->is_host) p->d[i]->timing = 1;
}

static bool touches_host(enum dev_op_kind kind)
{
    return kind == DEV_OP_move || kind == DEV_OP_join || kind == DEV_OP_pick || kind == DEV_OP_tap;
}

static void find_touches(dev_prog *p)
{
    for (int i = 0; i < p->n_op;) {
        int end = stretch_end(p, i), last = end - 1;
        while (last >= i && !touches_host(p->op[last].kind))
            last--;
        if (last >= i) p->last_touch[last] = true;
        i = end;
    }
}

/* The list, in which every operator has its device. */
static sl_status take(dev_prog *g, dev *d, const struct dev_op *op, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)g->n_op, sizeof *g->op, &p, err));
    g->op = p;
    memcpy(g->op, op, sizeof *op * (size_t)g->n_op);
    for (int i = 0; i < g->n_op; i++) {
        if (!g->op[i].d) g->op[i].d = d;
        add_dev(g, g->op[i].d);
        SL_TRY(check_op(&g->op[i], err));
        const struct dev_class *c = g->op[i].d->cls;
        if (c->bring) SL_TRY(c->bring(g->op[i].d, &g->op[i], err));
    }
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)g->n_op, sizeof(struct dev_fused *), &p, err));
    g->fused = p;
    SL_TRY(mem_alloc_array(MEM_MISC, (size_t)g->n_op, sizeof *g->last_touch, &p, err));
    g->last_touch = p;
    find_touches(g);
    for (int i = 0; i < g->n_dev; i++)
        if (g->d[i]->cls->host_ran) count_host(g);
    return fuse(g, err);
}

sl_status dev_prog_open(dev *d, const struct dev_op *op, int n_op, dev_prog **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(dev_prog), &p, err));
    dev_prog *g = p;
    *g = (dev_prog){.n_op = n_op};
    sl_status st = take(g, d, op, err);
    if (st)
        dev_prog_close(g);
    else
        *out = g;
    return st;
}

void dev_prog_close(dev_prog *p)
{
    if (!p) return;
    mem_free(p->op); /* what is fused is the device's */
    mem_free(p->fused);
    mem_free(p->last_touch);
    mem_free(p);
}

static void bind(dev_prog *p, dev_kv *kv)
{
    for (int i = 0; i < p->n_op; i++)
        for (const struct dev_ref *r = dev_op_refs(p->op[i].kind); r->kind; r++)
            if (r->kind == DEV_REF_KV)
                *(dev_kv **)(void *)((char *)&p->op[i].u + r->at) = dev_kv_on(kv, p->op[i].d);
    p->kv = kv;
}

static void run_op(const struct dev_step *s, const struct dev_op *op)
{
    switch (op->kind) {
#define X(name, params)                                                                            \
    case DEV_OP_##name:                                                                            \
        dev_##name(op->d, s, &op->u.name);                                                         \
        break;
        DEV_OP_LIST(X)
#undef X
    case DEV_N_OP:
        break;
    }
}

/* The step begins everywhere; its blocks are copied wherever the cache is. */
static void begin(const dev_prog *p, dev_kv *kv, const struct dev_step *s)
{
    for (int i = 0; i < p->n_dev; i++) {
        dev_kv *here = dev_kv_on(kv, p->d[i]);
        struct dev_step t = *s;
        if (!here) t.n_copy = 0;
        dev_step_begin(p->d[i], here, here ? s : &t);
    }
}

/* Operators of one device in a row, as far as they are queued. */
struct stretch {
    dev *d;
    struct dev_cost cost; /* of d when they began */
    bool is_marked;
    uint64_t mark; /* after the last that touches host memory */
};

static struct stretch enter(dev *d)
{
    return (struct stretch){.d = d, .cost = d->cost};
}

/* Those that want to know learn what the host has computed. */
static void tell(const dev_prog *p, const struct stretch *t)
{
    struct dev_cost cost = {0};
    if (!t->d->cls->is_host) return;
    dev_cost_add(&cost, &t->d->cost, &t->cost);
    for (int i = 0; i < p->n_dev; i++)
        if (p->d[i]->cls->host_ran) p->d[i]->cls->host_ran(p->d[i], &cost);
}

/* What the operators of the next device need of these is there. */
static sl_status leave(const dev_prog *p, const struct stretch *t, const dev *next, sl_err *err)
{
    const struct dev_class *c = t->d->cls;
    tell(p, t);
    if (!c->wait_mark || !next->cls->is_host) return dev_sync(t->d, err);
    (void)c->mark(t->d); /* what came after it begins too */
    return t->is_marked ? c->wait_mark(t->d, t->mark, err) : SL_OK;
}

/* An operator that waits for none of another device's. */
static void run_beside(const dev_prog *p, const struct dev_step *s, const struct dev_op *op)
{
    struct stretch t = enter(op->d);
    run_op(s, op);
    tell(p, &t);
}

/* Of a step without tokens: nothing, unless other ranks wait for it. */
static bool has_work(const struct dev_step *s, const struct dev_op *op)
{
    return s->n_tok || (op->kind == DEV_OP_moe && op->u.moe.spread);
}

void dev_prog_watch(dev_prog *p, void (*fn)(void *user, int layer), void *user)
{
    for (int i = 0; i < p->n_dev; i++)
        if (!p->d[i]->cls->is_host) return;
    p->fn = fn;
    p->user = user;
}

/* Before op[i]: is another layer over? */
static void tell_layer(const dev_prog *p, int i)
{
    int before = i ? p->op[i - 1].layer : -1;
    if (before >= 0 && before != p->op[i].layer) p->fn(p->user, before);
}

static bool run_fused(dev *d, dev_kv *kv, const struct dev_step *s, struct dev_fused *f)
{
    return d->cls->run_fused(d, dev_kv_on(kv, d), s, f);
}

sl_status dev_prog_run(dev_prog *p, dev_kv *kv, const struct dev_step *s, sl_err *err)
{
    if (kv != p->kv) bind(p, kv);
    begin(p, kv, s);
    struct stretch t = {0};
    for (int i = 0; i < p->n_op;) {
        const struct dev_op *op = &p->op[i];
        if (p->fn) tell_layer(p, i);
        struct dev_fused *f = p->fused[i];
        if (!has_work(s, op)) {
            i++;
            continue;
        }
        if (op->d != t.d && op->beside) {
            run_beside(p, s, op);
            i++;
            continue;
        }
        if (op->d != t.d) {
            if (t.d) SL_TRY(leave(p, &t, op->d, err));
            t = enter(op->d);
        }
        if (f && s->n_tok <= f->n_tok_max && run_fused(op->d, kv, s, f)) {
            i += f->n_op;
            continue;
        }
        run_op(s, op);
        if (p->last_touch[i++] && op->d->cls->mark) {
            t.mark = op->d->cls->mark(op->d);
            t.is_marked = true;
        }
    }
    if (t.d) tell(p, &t);
    if (p->fn && p->op[p->n_op - 1].layer >= 0) p->fn(p->user, p->op[p->n_op - 1].layer);
    return SL_OK;
}

/* ---- in parts ---- */

bool dev_has_halves(const dev *d)
{
    return d->cls->half != NULL;
}

void dev_halves_look(dev *d, void (*fn)(void *user), void *user)
{
    d->look = fn;
    d->look_user = user;
}

/* Does it leave something on its way? */
static bool sends(const struct dev_op *op)
{
    return op->kind == DEV_OP_moe && op->u.moe.phase && op->u.moe.phase != DEV_MOE_SUM;
}

/* Operators from op[at] on, until one has sent something; where the next begins. */
static int run_some(const dev_prog *p, dev_kv *kv, const struct dev_step *s, int at)
{
    for (bool sent = false; at < p->n_op && !sent;) {
        const struct dev_op *op = &p->op[at];
        struct dev_fused *f = p->fused[at];
        bool works = has_work(s, op);
        if (works && f && s->n_tok <= f->n_tok_max && run_fused(op->d, kv, s, f)) {
            at += f->n_op;
        } else {
            if (works) run_op(s, op);
            sent = sends(op);
            at++;
        }
        if (op->d->look) op->d->look(op->d->look_user);
    }
    return at;
}

void dev_halves_run(const struct dev_halves *h, dev_kv *kv, const struct dev_step *s)
{
    dev_prog *const all[] = {h->half[0], h->half[1], h->tail};
    dev *d = h->tail->d[0];
    int at[2] = {0}, n = h->half[0]->n_op;
    for (int i = 0; i < BASE_COUNT_OF(all); i++) {
        ASSERT(all[i]->n_dev == 1 && all[i]->d[0] == d);
        if (kv != all[i]->kv) bind(all[i], kv);
    }
    ASSERT(h->half[1]->n_op == n);
    begin(h->tail, kv, s);
    for (int i = 0; at[1] < n; i = 1 - i) {
        d->cls->half(d, h->s[i], i);
        at[i] = run_some(h->half[i], kv, h->s[i], at[i]);
    }
    d->cls->half(d, s, 0);
    h->merge(h->user);
    for (int i = 0; i < h->tail->n_op;)
        i = run_some(h->tail, kv, s, i);
}

void dev_prog_more(dev_prog *p, dev_kv *kv, const struct dev_step *s)
{
    dev *d = p->d[0];
    ASSERT(p->n_dev == 1);
    if (kv != p->kv) bind(p, kv);
    d->cls->half(d, s, 0);
    for (int at = 0; at < p->n_op;)
        at = run_some(p, kv, s, at);
}

int dev_prog_fused(const dev_prog *p, int n_tok)
{
    int n = 0;
    for (int i = 0; i < p->n_op; i++)
        if (p->fused[i] && n_tok <= p->fused[i]->n_tok_max) n += p->fused[i]->n_op;
    return n;
}
