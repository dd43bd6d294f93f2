/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are run together, for steps of a few tokens: one region for all of them, in which
 * workers wait for each other five times a layer (where a product needs all of what was computed
 * before) and for nothing else. What is small and every worker needs, norms and prepared inputs,
 * every worker computes for itself: the same function of the same numbers, so the same bits, and
 * nearer to it than what another one wrote. Which worker multiplies what is settled when the stack
 * is opened.
 *
 *     x += r, norm, prepare | q, k, v | for each KV head: norms, rotation, storing, attention |
 *     prepare | output -> r | x += r, norm, prepare | gate, up, silu | prepare | down -> r
 */
#include "base/clock.h"
#include "dev/cpu/attn.h"

#define ASK_LINES 24                    /* about what a core can have under way */
#define FETCH_BYTES ((size_t)128 << 10) /* of keys and values, by a worker: stay in its cache */
#define TOK_MAX                                                                                    \
    4 /* with more, a worker that computes what another one does costs more than a wait */

enum set { SET_QKV, SET_OUT, SET_GATE_UP, SET_DOWN, N_SET };

/* A set of products that stays. */
struct fixed {
    struct cpu_work w;
    int *begin;               /* [n_worker] of each worker's range */
    struct cpu_stream *start; /* [n_worker] */
};

struct stack_layer {
    struct dev_stack_layer p;
    struct dev_matmul qkv, out, down; /* act is not used */
    struct fixed set[N_SET];
    int parts; /* the hidden values are prepared as they come */
};

/* What is a worker's own. The inputs are never in use at the same time: one memory. */
struct stack_own {
    float *x; /* [TOK_MAX, D] */
    struct mm_act_buf attn, out, ffn, down;
};

struct cpu_stack {
    struct dev_stack head;
    struct dev_stack_shape p; /* its layers: */
    struct stack_layer *layer;
    int d_model, group;
    float *q, *k, *v, *y, *h; /* [TOK_MAX, ...] */
    struct mm_act_buf hidden; /* of layers with parts */
    struct stack_own *own;    /* [n_worker] */
};

/* ---- open ---- */

static const struct mm_mat *mat(const dev_mat *m)
{
    return &dev_cpu_mat_of(m)->m;
}

static unsigned forms_of(const dev_mat *m)
{
    return 1u << dev_cpu_mat_of(m)->form | 1u << dev_cpu_mat_of(m)->form2;
}

/* Everything that dev_layers relies on. */
static int fits(const struct cpu *c, const struct dev_stack_shape *s)
{
    int nq = s->n_head * s->d_head, nk = s->n_head_kv * s->d_head;
    if (s->n_layer < 1 || s->n_head > c->plan.n_head || s->n_head % s->n_head_kv ||
        s->d_head > c->plan.d_k || s->d_head > c->plan.d_v || s->n_rot > c->n_rot_max)
        return 0;
    int D = mat(s->layer[0].q)->n_col;
    int n_ff = mat(s->layer[0].gate_up)->n_row;
    for (int i = 0; i < s->n_layer; i++) {
        const struct dev_stack_layer *l = &s->layer[i];
        if (mat(l->q)->n_col != D || mat(l->k)->n_col != D || mat(l->v)->n_col != D ||
            mat(l->q)->n_row != nq || mat(l->k)->n_row != nk || mat(l->v)->n_row != nk ||
            mat(l->o)->n_row != D || mat(l->o)->n_col != nq || mat(l->gate_up)->n_col != D ||
            mat(l->gate_up)->n_row != n_ff || mat(l->down)->n_col != n_ff ||
            mat(l->down)->n_row != D)
            return 0;
    }
    return 1;
}

/* The matrices of f->w were added: who begins where. */
static sl_status settle(struct cpu *c, struct fixed *f, sl_err *err)
{
    SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *f->w.range, &f->w.range, err));
    SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *f->begin, &f->begin, err));
    SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *f->start, &f->start, err));
    dev_cpu_work_divide(c, &f->w);
    f->w.step_min = 1; /* a unit more or less at the end is what workers wait for */
    dev_cpu_work_starts(c, &f->w, f->start);
    for (int i = 0; i < c->n_worker; i++)
        f->begin[i] = atomic_load_explicit(&f->w.range[i].next, memory_order_relaxed);
    return SL_OK;
}

static sl_status open_set(struct cpu *c, struct fixed *f, const struct dev_matmul *p, int n_tok,
                          sl_err *err)
{
    f->w.n_seg_max = p->n_mat;
    SL_TRY(dev_cpu_scratch(c, (size_t)p->n_mat, sizeof *f->w.seg, &f->w.seg, err));
    for (int i = 0; i < p->n_mat; i++)
        dev_cpu_work_add(&f->w, mat(p->w[i]), NULL, n_tok, 16)->user = i;
    return settle(c, f, err);
}

static sl_status open_layer(struct cpu *c, struct cpu_stack *s, const struct dev_stack_layer *p,
                            struct stack_layer *l, sl_err *err)
{
    int n_tok = s->head.n_tok_max;
    struct fixed *g = &l->set[SET_GATE_UP];
    l->p = *p;
    l->parts = dev_cpu_takes_parts(dev_cpu_mat_of(p->down));
    l->qkv = (struct dev_matmul){.n_mat = 3,
                                 .w = {p->q, p->k, p->v},
                                 .bias = {p->q_bias, p->k_bias, p->v_bias},
                                 .y = {s->q, s->k, s->v}};
    l->out = (struct dev_matmul){.n_mat = 1, .w = {p->o}, .bias = {p->o_bias}};
    l->down = (struct dev_matmul){.n_mat = 1, .w = {p->down}};
    SL_TRY(open_set(c, &l->set[SET_QKV], &l->qkv, n_tok, err));
    SL_TRY(open_set(c, &l->set[SET_OUT], &l->out, n_tok, err));
    SL_TRY(open_set(c, &l->set[SET_DOWN], &l->down, n_tok, err));
    g->w.n_seg_max = 1;
    SL_TRY(dev_cpu_scratch(c, 1, sizeof *g->w.seg, &g->w.seg, err));
    dev_cpu_work_add(&g->w, mat(p->gate_up), &dev_cpu_mat_of(p->gate_up)->m2, n_tok,
                     l->parts ? 32 : 16);
    return settle(c, g, err);
}

/* The inputs of every kind in every form that a layer takes, each worker's in one memory. */
static sl_status open_own(struct cpu *c, struct cpu_stack *s, int n_ff, sl_err *err)
{
    unsigned f[N_SET] = {0};
    int n = s->head.n_tok_max,
        n_col[N_SET] = {s->d_model, s->p.n_head * s->p.d_head, s->d_model, n_ff};
    size_t bytes = 0;
    void *p = NULL;
    for (int i = 0; i < s->p.n_layer; i++) {
        const struct dev_stack_layer *l = &s->layer[i].p;
        f[SET_QKV] |= forms_of(l->q) | forms_of(l->k) | forms_of(l->v);
        f[SET_OUT] |= forms_of(l->o);
        f[SET_GATE_UP] |= forms_of(l->gate_up);
        f[SET_DOWN] |= forms_of(l->down);
    }
    for (int i = 0; i < N_SET; i++)
        bytes = BASE_MAX(bytes, kern_mm_act_bytes(f[i], n_col[i], n));
    SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *s->own, &s->own, err));
    for (int w = 0; w < c->n_worker; w++) {
        struct stack_own *o = &s->own[w];
        struct mm_act_buf *b[N_SET] = {&o->attn, &o->out, &o->ffn, &o->down};
        SL_TRY(dev_cpu_scratch(c, (size_t)n * (size_t)s->d_model, sizeof *o->x, &o->x, err));
        SL_TRY(dev_cpu_scratch(c, bytes, 1, &p, err));
        for (int i = 0; i < N_SET; i++)
            kern_mm_act_init(b[i], f[i], n_col[i], n, p);
    }
    return SL_OK;
}

sl_status dev_cpu_stack_open(dev *d, const struct dev_stack_shape *p, dev_stack **out, sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_stack *s = NULL;
    if (!fits(c, p)) return SL_OK;
    SL_TRY(dev_cpu_mem(c, MEM_MISC, sizeof *s, (void **)&s, err));
    size_t n = (size_t)BASE_MIN(TOK_MAX, c->n_tok_max), n_layer = (size_t)p->n_layer;
    size_t nq = (size_t)(p->n_head * p->d_head), nk = (size_t)(p->n_head_kv * p->d_head);
    size_t n_ff = (size_t)mat(p->layer[0].down)->n_col;
    s->head.n_tok_max = (int)n;
    s->p = *p;
    s->p.layer = NULL;
    s->d_model = mat(p->layer[0].q)->n_col;
    s->group = p->n_head / p->n_head_kv;
    SL_TRY(dev_cpu_scratch(c, n * nq, sizeof *s->q, &s->q, err));
    SL_TRY(dev_cpu_scratch(c, n * nk, sizeof *s->k, &s->k, err));
    SL_TRY(dev_cpu_scratch(c, n * nk, sizeof *s->v, &s->v, err));
    SL_TRY(dev_cpu_scratch(c, n * nq, sizeof *s->y, &s->y, err));
    SL_TRY(dev_cpu_scratch(c, n * n_ff, sizeof *s->h, &s->h, err));
    void *hidden = NULL;
    unsigned form = 1u << MM_ACT_INT8;
    SL_TRY(dev_cpu_scratch(c, kern_mm_act_bytes(form, (int)n_ff, (int)n), 1, &hidden, err));
    kern_mm_act_init(&s->hidden, form, (int)n_ff, (int)n, hidden);
    s->hidden.is_parts = 1;
    SL_TRY(dev_cpu_scratch(c, n_layer, sizeof *s->layer, &s->layer, err));
    struct fixed *last = NULL;
    for (int i = 0; i < p->n_layer; i++) {
        struct stack_layer *l = &s->layer[i];
        SL_TRY(open_layer(c, s, &p->layer[i], l, err));
        for (int k = 0; k < N_SET; k++) { /* while a worker waits in one set it fetches the next */
            if (last) last->w.next = l->set[k].start;
            last = &l->set[k];
        }
    }
    SL_TRY(open_own(c, s, (int)n_ff, err));
    *out = &s->head;
    return SL_OK;
}

/* ---- run ---- */

struct stack_job {
    struct cpu *c;
    const struct dev_step *b;
    const struct dev_layers *p;
    struct cpu_stack *s;
    const struct cpu_kv *kv;
    const float *cs;
    struct dev_attn attn;
    struct attn a;
    struct cpu_span_job spans;
    int whole; /* a unit of attention is one worker's, with all tokens of its sequence: nobody else
                  needs what it makes ready */
};

/* One worker's view. */
struct mine {
    struct cpu_span_job spans; /* first: begin_unit comes from there */
    struct dev_attn attn;
    struct attn a;
    struct stack_job *j;
    const struct stack_layer *l;
    struct stack_own *own;
    float *x;
    int worker, n_w;
    void (*begin)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                  float *mem);
    struct dev_op_time at; /* worker 0, when operators are timed: until where they were */
};

/* What worker 0 did since the last time was that operator's. */
static void book(struct mine *m, enum dev_op op, const struct fixed *f)
{
    struct dev *d = &m->j->c->head;
    if (m->worker != 0 || !d->timing) return;
    if (f) dev_cpu_work_count(m->j->c, &f->w);
    struct dev_op_time now = {0, clock_now_ns(), d->cost}, *from = &m->at;
    struct dev_op_time *to = &d->op[op], *all = &d->op[DEV_OP_layers];
    to->n_call++;
    to->ns += now.ns - from->ns;
    dev_cost_add(&to->cost, &now.cost, &from->cost);
    all->ns -= now.ns - from->ns; /* dev_layers will add all of it */
    dev_cost_add(&all->cost, &from->cost, &now.cost);
    m->at = now;
}

/* My part of the next set's ranges, from which nobody has taken in this step. */
static void deal(const struct mine *m, struct fixed *f)
{
    for (int i = m->worker; i < m->j->c->n_worker; i += m->n_w)
        par_range_set(&f->w.range[i], f->begin[i], f->w.range[i].end);
}

/* Ask for the next lines of what this worker will multiply with: while it makes its inputs nothing
 * else reads. */
static void ask(const struct mine *m)
{
    if (m->worker >= CPU_AHEAD_MAX) return;
    struct cpu_ahead *a = &m->j->c->ahead[m->worker];
    for (int i = 0; i < ASK_LINES && a->p < a->end; i++, a->p += 64)
        __builtin_prefetch(a->p, 0, 2);
}

/* x (+= r), normed and prepared. */
static void norm(const struct mine *m, int add, const float *w, struct mm_act_buf *to)
{
    struct cpu *c = m->j->c;
    int D = m->j->s->d_model;
    float *y = c->scratch[m->worker].row;
    for (int t = 0; t < m->j->b->n_tok; t++) {
        float *x = m->x + (int64_t)t * D;
        ask(m);
        if (add) c->k.add_f32(x, m->j->p->r + (int64_t)t * D, D);
        c->k.rmsnorm_f32(y, x, w, D, m->j->s->p.eps);
        ask(m);
        kern_mm_prep(to, t, y);
    }
}

static void prepare(const struct mine *m, const float *x, struct mm_act_buf *to)
{
    for (int t = 0; t < m->j->b->n_tok; t++) {
        ask(m);
        kern_mm_prep(to, t, x + (int64_t)t * to->n_col);
    }
}

static void rotate_head(const struct mine *m, float *x, const float *w, int t)
{
    const struct stack_job *j = m->j;
    const struct dev_stack_shape *s = &j->s->p;
    if (w) j->c->k.rmsnorm_f32(x, x, w, s->d_head, s->eps);
    dev_cpu_rotate(j->c, s->rope_style, x, j->cs + (int64_t)t * j->c->n_rot_max, s->n_rot);
}

/* KV head h of token t: its queries and its key are ready after this, key and value stored. */
static void ready(const struct mine *m, int t, int h)
{
    const struct stack_job *j = m->j;
    const struct cpu_stack *s = j->s;
    int d = s->p.d_head;
    float *q = s->q + ((int64_t)t * s->p.n_head + (int64_t)h * s->group) * d;
    int64_t at = ((int64_t)t * s->p.n_head_kv + h) * d;
    for (int i = 0; i < s->group; i++)
        rotate_head(m, q + i * d, m->l->p.q_norm, t);
    rotate_head(m, s->k + at, m->l->p.k_norm, t);
    dev_cpu_put_head(j->c, j->kv, dev_cpu_place(j->c, j->kv, m->attn.layer, j->b, t), h, s->k + at,
                     s->v + at);
}

static void begin_unit(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                       float *mem)
{
    const struct mine *m = (const struct mine *)(const void *)j;
    for (int t = u->tok0; t < u->tok0 + u->n_tok; t++)
        ready(m, t, u->head0 / u->n_head);
    m->begin(c, j, u, mem);
}

static void attend(struct mine *m)
{
    struct stack_job *j = m->j;
    int n_head = j->s->p.n_head_kv;
    int64_t b, e;
    if (!j->whole) {
        par_split((int64_t)j->b->n_tok * n_head, m->worker, m->n_w, &b, &e);
        for (; b < e; b++)
            ready(m, (int)(b / n_head), (int)(b % n_head));
        par_barrier(j->c->team);
    }
    dev_cpu_spans_run(j->c, &m->spans, m->worker, m->n_w);
}

static void feed_forward(struct mine *m)
{
    struct stack_job *j = m->j;
    struct cpu *c = j->c;
    struct cpu_stack *s = j->s;
    struct stack_layer *l = &s->layer[m->attn.layer];
    const struct cpu_mat *gate_up = dev_cpu_mat_of(l->p.gate_up);
    int n_tok = j->b->n_tok;
    struct cpu_piece at = {0};
    struct cpu_hidden out = {
        .h = s->h, .ldh = gate_up->m.n_row, .act = l->parts ? &s->hidden : NULL};
    deal(m, &l->set[SET_DOWN]);
    norm(m, 1, l->p.ffn_norm, &m->own->ffn);
    while (dev_cpu_work_take(c, &l->set[SET_GATE_UP].w, m->worker, &at))
        dev_cpu_product_silu(c, m->worker, &at, &m->own->ffn, gate_up, NULL, n_tok, &out);
    par_barrier(c->team);
    if (m->attn.layer + 1 < s->p.n_layer) deal(m, &l[1].set[SET_QKV]);
    if (!l->parts) prepare(m, s->h, &m->own->down);
    struct dev_matmul down = l->down;
    down.y[0] = j->p->r;
    dev_cpu_matmul_take(c, m->worker, &l->set[SET_DOWN].w, l->parts ? &s->hidden : &m->own->down,
                        &down, n_tok);
}

static void read_lines(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        (void)*(const volatile uint8_t *)(p + i);
}

/* Keys and values of the units that this worker will begin with: they come from memory, for the
 * weights of a step push them out of every cache, and attention waits for one after another. Here
 * nothing waits for them. */
static void fetch(const struct mine *m)
{
    const struct stack_job *j = m->j;
    const struct cpu_kv *kv = j->kv;
    size_t left = FETCH_BYTES;
    for (int i = m->worker; i < j->spans.n_unit; i += m->n_w) {
        const struct cpu_unit *u = &j->c->unit[j->spans.n_unit - 1 - i];
        int h = u->head0 / u->n_head, p = u->span0 * VEC_SPAN,
            end = j->b->pos[u->tok0 + u->n_tok - 1] + 1;
        for (int n; p < end; p += n) {
            n = kv->s.blk_tok - p % kv->s.blk_tok;
            if (n > end - p) n = end - p;
            int in = p % kv->s.blk_tok;
            size_t k = (size_t)(n + 15) / 16 * kv->group_bytes, v = (size_t)n * kv->row_bytes;
            const uint8_t *page = dev_cpu_seq_page(&m->spans, u, p);
            if (k + v > left) return;
            left -= k + v;
            read_lines(page + dev_cpu_key_at(kv, h, in), k);
            read_lines(page + dev_cpu_value_at(kv, h, in), v);
        }
    }
}

static void layer(struct mine *m)
{
    struct stack_job *j = m->j;
    struct cpu *c = j->c;
    struct cpu_stack *s = j->s;
    int il = m->attn.layer, n_tok = j->b->n_tok;
    struct stack_layer *l = &s->layer[il];
    m->l = l;
    deal(m, &l->set[SET_OUT]);
    if (!m->spans.window) fetch(m);
    norm(m, il > 0, l->p.attn_norm, &m->own->attn);
    dev_cpu_matmul_take(c, m->worker, &l->set[SET_QKV].w, &m->own->attn, &l->qkv, n_tok);
    par_barrier(c->team);
    book(m, DEV_OP_matmul, &l->set[SET_QKV]);
    attend(m);
    par_barrier(c->team);
    if (m->worker == 0) dev_cpu_attn_count(c, j->kv, j->b, s->p.n_window, &m->spans.products);
    book(m, DEV_OP_attn, NULL);
    deal(m, &l->set[SET_GATE_UP]);
    if (m->worker == 0) dev_cpu_spans_again(c, &m->spans);
    prepare(m, s->y, &m->own->out);
    struct dev_matmul out = l->out;
    out.y[0] = j->p->r;
    dev_cpu_matmul_take(c, m->worker, &l->set[SET_OUT].w, &m->own->out, &out, n_tok);
    par_barrier(c->team);
    book(m, DEV_OP_matmul, &l->set[SET_OUT]);
    feed_forward(m);
    if (il + 1 < s->p.n_layer) par_barrier(c->team); /* behind the last one the region ends */
    if (m->worker == 0 && c->head.timing) dev_cpu_work_count(c, &l->set[SET_GATE_UP].w);
    book(m, DEV_OP_ffn, &l->set[SET_DOWN]);
}

static void stack_run(void *arg, int worker, int n_w)
{
    struct stack_job *j = arg;
    struct cpu *c = j->c;
    struct mine m = {
        .spans = j->spans, .attn = j->attn, .a = j->a, .j = j, .worker = worker, .n_w = n_w};
    m.a.p = &m.attn;
    m.spans.op = &m.a;
    if (j->whole) {
        m.begin = m.spans.begin;
        m.spans.begin = begin_unit;
    }
    m.own = &j->s->own[worker];
    m.x = j->p->x;
    if (worker >
        0) { /* worker 0 writes what the caller sees; first when all have passed a barrier */
        m.x = m.own->x;
        memcpy(m.x, j->p->x, sizeof(float) * (size_t)j->b->n_tok * (size_t)j->s->d_model);
    }
    if (worker == 0 && c->head.timing) m.at = (struct dev_op_time){0, clock_now_ns(), c->head.cost};
    for (; m.attn.layer < j->s->p.n_layer; m.attn.layer++)
        layer(&m);
}

/* What the caller does before the region. */
static void begin(struct stack_job *j)
{
    struct cpu *c = j->c;
    struct cpu_stack *s = j->s;
    struct fixed *first = &s->layer[0].set[SET_QKV],
                 *last = &s->layer[s->p.n_layer - 1].set[SET_DOWN];
    struct dev_rope rope = {.freq = s->p.freq, .n_rot = s->p.n_rot, .mscale = s->p.mscale};
    struct mine one = {.j = j, .n_w = 1};
    j->cs = dev_cpu_angles(c, j->b, &rope);
    j->attn = (struct dev_attn){.kv = j->p->kv,
                                .n_head = s->p.n_head,
                                .scale = s->p.scale,
                                .q = s->q,
                                .y = s->y,
                                .n_window = s->p.n_window};
    dev_cpu_attn_job(c, j->b, &j->attn, &j->a, &j->spans);
    dev_cpu_spans_begin(c, &j->spans);
    j->whole = !j->spans.window;
    for (int i = 0; i < j->spans.n_unit; i++) {
        const struct cpu_unit *u = &c->unit[i];
        if (u->n_tok < j->b->seq_tok0[u->seq + 1] - j->b->seq_tok0[u->seq]) j->whole = 0;
    }
    deal(&one, first);
    const struct cpu_stream *next = first->w.next;
    dev_cpu_work_remember(c, &first->w); /* the step's only one of ours */
    last->w.next = first->w.next;
    first->w.next = next;
    for (int i = 0; c->head.timing && i < s->p.n_layer; i++)
        for (int k = 0; k < N_SET; k++)
            for (int g = 0; g < s->layer[i].set[k].w.n_seg; g++)
                s->layer[i].set[k].w.seg[g].n_tok = j->b->n_tok;
}

void dev_cpu_layers(dev *d, const struct dev_step *b, const struct dev_layers *p)
{
    struct stack_job j = {.c = dev_cpu_of(d),
                          .b = b,
                          .p = p,
                          .s = (struct cpu_stack *)p->stack,
                          .kv = (const struct cpu_kv *)p->kv};
    ASSERT(b->n_tok <= j.s->head.n_tok_max && j.kv->s.n_layer >= j.s->p.n_layer);
    if (b->n_tok == 0) return;
    begin(&j);
    par_run(j.c->team, stack_run, &j);
}
