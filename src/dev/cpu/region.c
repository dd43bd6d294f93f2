/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of a program that are run together (match.c finds them), for steps of a few tokens: one
 * region for all of them, in which workers wait for each other five times a layer (where a product
 * needs all of what was computed before) and for nothing else. What is small and every worker
 * needs, norms and prepared inputs, every worker computes for itself: the same function of the same
 * numbers, so the same bits, and nearer to it than what another one wrote. Which worker multiplies
 * what is settled when the program is opened.
 *
 *     x += r, norm, prepare | q, k, v | for each KV head: norms, rotation, storing, attention |
 *     prepare | output -> r | x += r, norm, prepare | gate, up, silu | prepare | down -> r
 */
#include "dev/cpu/region.h"

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

struct region_layer {
    struct cpu_layer_ops p;
    struct dev_matmul down; /* act and y are not used */
    struct fixed set[N_SET];
    int parts; /* the hidden values are prepared as they come */
};

struct region {
    struct dev_fused head;
    int n_layer;
    struct region_layer *layer;
    struct fixed *last;       /* the last set */
    int d_model, group, n_ff; /* n_ff: 0 without feed-forward blocks */
    unsigned form[N_SET];     /* of inputs */
    int n_col[N_SET];
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

/* What the workspace has room for. */
static bool fits(const struct cpu *c, const struct cpu_layer_ops *l)
{
    return l->attn->n_head <= c->plan.n_head && l->d_head <= c->plan.d_k &&
           l->d_head <= c->plan.d_v && l->rope->n_rot <= c->n_rot_max;
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

static sl_status open_layer(struct cpu *c, struct region *s, struct region_layer *l, sl_err *err)
{
    int n_tok = s->head.n_tok_max;
    struct fixed *g = &l->set[SET_GATE_UP];
    const struct dev_ffn *p = l->p.ffn;
    for (int i = 0; i < 3; i++)
        s->form[SET_QKV] |= forms_of(l->p.qkv->w[i]);
    s->form[SET_OUT] |= forms_of(l->p.out->w[0]);
    SL_TRY(open_set(c, &l->set[SET_QKV], l->p.qkv, n_tok, err));
    SL_TRY(open_set(c, &l->set[SET_OUT], l->p.out, n_tok, err));
    if (!p) return SL_OK;
    l->parts = dev_cpu_takes_parts(dev_cpu_mat_of(p->down));
    l->down = (struct dev_matmul){.n_mat = 1, .w = {p->down}, .bias = {p->down_bias}};
    s->form[SET_GATE_UP] |= forms_of(p->gate_up);
    s->form[SET_DOWN] |= forms_of(p->down);
    SL_TRY(open_set(c, &l->set[SET_DOWN], &l->down, n_tok, err));
    g->w.n_seg_max = 1;
    SL_TRY(dev_cpu_scratch(c, 1, sizeof *g->w.seg, &g->w.seg, err));
    dev_cpu_work_add(&g->w, mat(p->gate_up), &dev_cpu_mat_of(p->gate_up)->m2, n_tok,
                     l->parts ? 32 : 16);
    return settle(c, g, err);
}

/* Memory for x and one input of each worker, and for hidden values that are prepared as they come:
 * all regions have the same, as large as the largest needs. */
static sl_status open_own(struct cpu *c, const struct region *s, sl_err *err)
{
    struct cpu_own *o = &c->own;
    int n = s->head.n_tok_max;
    size_t n_x = (size_t)n * (size_t)s->d_model, n_act = 0;
    for (int i = 0; i < N_SET; i++)
        if (s->form[i]) n_act = BASE_MAX(n_act, kern_mm_act_bytes(s->form[i], s->n_col[i], n));
    size_t n_hidden = s->n_ff ? kern_mm_act_bytes(1u << MM_ACT_INT8, s->n_ff, n) : 0;
    if (!o->x) {
        SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *o->x, &o->x, err));
        SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *o->act, &o->act, err));
    }
    for (int w = 0; w < c->n_worker; w++) {
        if (n_x > o->n_x) SL_TRY(dev_cpu_scratch(c, n_x, sizeof(float), &o->x[w], err));
        if (n_act > o->n_act) SL_TRY(dev_cpu_scratch(c, n_act, 1, &o->act[w], err));
    }
    if (n_hidden > o->n_hidden) SL_TRY(dev_cpu_scratch(c, n_hidden, 1, &o->hidden, err));
    o->n_x = BASE_MAX(n_x, o->n_x);
    o->n_act = BASE_MAX(n_act, o->n_act);
    o->n_hidden = BASE_MAX(n_hidden, o->n_hidden);
    return SL_OK;
}

static sl_status open_region(struct cpu *c, struct region *s, sl_err *err)
{
    const struct cpu_layer_ops *p = &s->layer[0].p;
    s->d_model = p->attn_norm->n;
    s->group = p->attn->n_head / p->n_head_kv;
    s->n_ff = p->ffn ? mat(p->ffn->down)->n_col : 0;
    s->n_col[SET_QKV] = s->n_col[SET_GATE_UP] = s->d_model;
    s->n_col[SET_OUT] = p->attn->n_head * p->d_head;
    s->n_col[SET_DOWN] = s->n_ff;
    for (int i = 0; i < s->n_layer; i++) {
        struct region_layer *l = &s->layer[i];
        SL_TRY(open_layer(c, s, l, err));
        for (int k = 0; k < N_SET; k++) { /* while a worker waits in one set it fetches the next */
            if (!l->set[k].start) continue;
            if (s->last) s->last->w.next = l->set[k].start;
            s->last = &l->set[k];
        }
    }
    return open_own(c, s, err);
}

sl_status dev_cpu_fuse(dev *d, const struct dev_op *op, int n_op, int at, struct dev_fused **out,
                       sl_err *err)
{
    struct cpu *c = dev_cpu_of(d);
    struct region *s = NULL;
    struct cpu_layer_ops one, next;
    int n = 1, end;
    *out = NULL;
    if (!dev_cpu_match_layer(op, n_op, at, &one) || !fits(c, &one)) return SL_OK;
    end = at + one.n_op;
    while (dev_cpu_match_layer(op, n_op, end, &next) && dev_cpu_match_next(&one, &next)) {
        end += next.n_op;
        n++;
    }
    SL_TRY(dev_cpu_mem(c, MEM_MISC, sizeof *s, (void **)&s, err));
    SL_TRY(dev_cpu_scratch(c, (size_t)n, sizeof *s->layer, &s->layer, err));
    s->head = (struct dev_fused){.n_op = end - at, .n_tok_max = BASE_MIN(TOK_MAX, c->n_tok_max)};
    for (s->n_layer = 0; s->n_layer < n; at += s->layer[s->n_layer++].p.n_op)
        (void)dev_cpu_match_layer(op, n_op, at, &s->layer[s->n_layer].p);
    SL_TRY(open_region(c, s, err));
    *out = &s->head;
    return SL_OK;
}

/* ---- run ---- */

struct region_job {
    struct cpu *c;
    const struct dev_step *b;
    struct region *s;
    const struct cpu_kv *kv;
    const float *cs;
    struct dev_attn attn; /* of the first layer */
    struct attn a;
    struct cpu_span_job spans;
    struct mm_act_buf hidden; /* of layers with parts */
    struct dev_op_time t0;    /* when operators are timed: where they were before the region */
    int whole; /* a unit of attention is one worker's, with all tokens of its sequence: nobody else
                  needs what it makes ready */
};

/* One worker's view. */
struct mine {
    struct cpu_span_job spans; /* first: begin_unit comes from there */
    struct dev_attn attn;      /* of this layer */
    struct attn a;
    struct region_job *j;
    struct region_layer *l;
    struct mm_act_buf in[N_SET]; /* never in use at the same time: one memory */
    float *x;                    /* [TOK_MAX, D] */
    int worker, n_w;
    void (*begin)(struct cpu *c, const struct cpu_span_job *j, const struct cpu_unit *u,
                  float *mem);
    struct dev_op_time at; /* worker 0, when operators are timed: until where they were */
};

/* What worker 0 did since the last time was that operator's. */
static void book(struct mine *m, enum dev_op_kind op, const struct fixed *f)
{
    struct dev *d = &m->j->c->head;
    if (m->worker != 0 || !d->timing) return;
    if (f) dev_cpu_work_count(m->j->c, &f->w);
    struct dev_op_time now = {0, clock_now_ns(), d->cost}, *from = &m->at;
    struct dev_op_time *to = &d->op[op];
    to->n_call++;
    to->ns += now.ns - from->ns;
    dev_cost_add(&to->cost, &now.cost, &from->cost);
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
static void norm(const struct mine *m, const struct dev_norm *p, struct mm_act_buf *to)
{
    struct cpu *c = m->j->c;
    float *y = c->scratch[m->worker].row;
    for (int t = 0; t < m->j->b->n_tok; t++) {
        float *x = m->x + (int64_t)t * p->n;
        ask(m);
        if (p->r) c->k.add_f32(x, p->r + (int64_t)t * p->n, p->n);
        c->k.rmsnorm_f32(y, x, p->w, p->n, p->eps);
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

static void rotate_head(const struct mine *m, float *x, const struct dev_norm *n, int t)
{
    const struct region_job *j = m->j;
    const struct dev_rope *p = m->l->p.rope;
    if (n) j->c->k.rmsnorm_f32(x, x, n->w, n->n, n->eps);
    dev_cpu_rotate(j->c, p->style, x, j->cs + (int64_t)t * j->c->n_rot_max, p->n_rot);
}

/* KV head h of token t: its queries and its key are ready after this, key and value stored. */
static void ready(const struct mine *m, int t, int h)
{
    const struct region_job *j = m->j;
    const struct cpu_layer_ops *p = &m->l->p;
    int d = p->d_head, group = j->s->group;
    float *q = p->qkv->y[0] + ((int64_t)t * p->attn->n_head + (int64_t)h * group) * d;
    int64_t at = ((int64_t)t * p->n_head_kv + h) * d;
    float *k = p->qkv->y[1] + at;
    for (int i = 0; i < group; i++)
        rotate_head(m, q + i * d, p->q_norm, t);
    rotate_head(m, k, p->k_norm, t);
    dev_cpu_put_head(j->c, j->kv, dev_cpu_place(j->c, j->kv, m->attn.layer, j->b, t), h, k,
                     p->qkv->y[2] + at);
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
    struct region_job *j = m->j;
    int n_head = m->l->p.n_head_kv;
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
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    struct region_layer *l = m->l;
    const struct dev_ffn *p = l->p.ffn;
    const struct cpu_mat *gate_up = dev_cpu_mat_of(p->gate_up);
    int n_tok = j->b->n_tok;
    struct cpu_piece at = {0};
    struct vec_glu glu;
    struct cpu_hidden out = {.h = p->h, .ldh = j->s->n_ff, .act = l->parts ? &j->hidden : NULL};
    out.glu = dev_cpu_glu(&p->glu, p->gate_up_bias, &glu);
    out.bias = p->gate_up_bias;
    deal(m, &l->set[SET_DOWN]);
    norm(m, l->p.ffn_norm, &m->in[SET_GATE_UP]);
    while (dev_cpu_work_take(c, &l->set[SET_GATE_UP].w, m->worker, &at))
        dev_cpu_product_silu(c, m->worker, &at, &m->in[SET_GATE_UP], gate_up, NULL, n_tok, &out);
    par_barrier(c->team);
    if (l + 1 < j->s->layer + j->s->n_layer) deal(m, &l[1].set[SET_QKV]);
    if (!l->parts) prepare(m, p->h, &m->in[SET_DOWN]);
    struct dev_matmul down = l->down;
    down.y[0] = p->y;
    dev_cpu_matmul_take(c, m->worker, &l->set[SET_DOWN].w, l->parts ? &j->hidden : &m->in[SET_DOWN],
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
    const struct region_job *j = m->j;
    const struct cpu_kv *kv = j->kv;
    size_t left = FETCH_BYTES;
    for (int i = m->worker; i < j->spans.n_unit; i += m->n_w) {
        const struct cpu_unit *u = &j->c->unit[j->spans.n_unit - 1 - i];
        int h = u->head0 / u->n_head, p = u->span0 * VEC_SPAN,
            end = j->b->pos[u->tok0 + u->n_tok - 1] + 1;
        for (int n; p < end; p += n) {
            n = kv->blk_tok - p % kv->blk_tok;
            if (n > end - p) n = end - p;
            int in = p % kv->blk_tok;
            size_t k = (size_t)(n + 15) / 16 * kv->group_bytes, v = (size_t)n * kv->row_bytes;
            const uint8_t *page = dev_cpu_seq_page(&m->spans, u, p);
            if (k + v > left) return;
            left -= k + v;
            read_lines(page + dev_cpu_key_at(kv, h, in), k);
            read_lines(page + dev_cpu_value_at(kv, h, in), v);
        }
    }
}

static void layer(struct mine *m, struct region_layer *l)
{
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    int n_tok = j->b->n_tok, is_last = l == &j->s->layer[j->s->n_layer - 1];
    m->l = l;
    m->attn = *l->p.attn;
    deal(m, &l->set[SET_OUT]);
    if (!m->spans.window) fetch(m);
    norm(m, l->p.attn_norm, &m->in[SET_QKV]);
    dev_cpu_matmul_take(c, m->worker, &l->set[SET_QKV].w, &m->in[SET_QKV], l->p.qkv, n_tok);
    par_barrier(c->team);
    book(m, DEV_OP_matmul, &l->set[SET_QKV]);
    attend(m);
    par_barrier(c->team);
    if (m->worker == 0) dev_cpu_attn_count(c, j->kv, j->b, m->attn.n_window, &m->spans.products);
    book(m, DEV_OP_attn, NULL);
    if (l->p.ffn) deal(m, &l->set[SET_GATE_UP]);
    if (m->worker == 0) dev_cpu_spans_again(c, &m->spans);
    prepare(m, m->attn.y, &m->in[SET_OUT]);
    dev_cpu_matmul_take(c, m->worker, &l->set[SET_OUT].w, &m->in[SET_OUT], l->p.out, n_tok);
    if (l->p.ffn) par_barrier(c->team);
    book(m, DEV_OP_matmul, &l->set[SET_OUT]);
    if (!l->p.ffn) return;
    feed_forward(m);
    if (!is_last) par_barrier(c->team); /* after the last one the region ends */
    if (m->worker == 0 && c->head.timing) dev_cpu_work_count(c, &l->set[SET_GATE_UP].w);
    book(m, DEV_OP_ffn, &l->set[SET_DOWN]);
}

static void region_run(void *arg, int worker, int n_w)
{
    struct region_job *j = arg;
    struct cpu *c = j->c;
    const struct region *s = j->s;
    struct mine m = {.spans = j->spans, .a = j->a, .j = j, .worker = worker, .n_w = n_w};
    float *x = s->layer[0].p.attn_norm->x;
    size_t n_x = sizeof(float) * (size_t)j->b->n_tok * (size_t)s->d_model;
    m.a.p = &m.attn;
    m.spans.op = &m.a;
    if (j->whole) {
        m.begin = m.spans.begin;
        m.spans.begin = begin_unit;
    }
    for (int i = 0; i < N_SET; i++)
        if (s->form[i])
            kern_mm_act_init(&m.in[i], s->form[i], s->n_col[i], s->head.n_tok_max,
                             c->own.act[worker]);
    m.x = memcpy(c->own.x[worker], x, n_x);
    m.at = j->t0;
    for (int i = 0; i < s->n_layer; i++)
        layer(&m, &s->layer[i]);
    if (worker == 0) memcpy(x, m.x, n_x); /* all have passed a barrier after they read it */
}

/* What the caller does before the region. */
static void begin(struct region_job *j)
{
    struct cpu *c = j->c;
    struct region *s = j->s;
    struct fixed *first = &s->layer[0].set[SET_QKV];
    struct mine one = {.j = j, .n_w = 1};
    if (c->head.timing) j->t0 = (struct dev_op_time){0, clock_now_ns(), c->head.cost};
    j->cs = dev_cpu_angles(c, j->b, s->layer[0].p.rope);
    j->attn = *s->layer[0].p.attn;
    dev_cpu_attn_job(c, j->b, &j->attn, &j->a, &j->spans);
    dev_cpu_spans_begin(c, &j->spans);
    if (s->n_ff) {
        kern_mm_act_init(&j->hidden, 1u << MM_ACT_INT8, s->n_ff, s->head.n_tok_max, c->own.hidden);
        j->hidden.is_parts = 1;
    }
    j->whole = !j->spans.window;
    for (int i = 0; i < j->spans.n_unit; i++) {
        const struct cpu_unit *u = &c->unit[i];
        if (u->n_tok < j->b->seq_tok0[u->seq + 1] - j->b->seq_tok0[u->seq]) j->whole = 0;
    }
    deal(&one, first);
    const struct cpu_stream *next = first->w.next;
    dev_cpu_work_remember(c, &first->w); /* the region's only one */
    s->last->w.next = first->w.next;
    first->w.next = next;
    for (int i = 0; c->head.timing && i < s->n_layer; i++)
        for (int k = 0; k < N_SET; k++)
            for (int g = 0; g < s->layer[i].set[k].w.n_seg; g++)
                s->layer[i].set[k].w.seg[g].n_tok = j->b->n_tok;
}

void dev_cpu_run_fused(dev *d, dev_kv *kv, const struct dev_step *b, struct dev_fused *f)
{
    struct region *s = (struct region *)f;
    int group = s->layer[0].p.attn->group;
    struct region_job j = {.c = dev_cpu_of(d), .b = b, .s = s, .kv = dev_cpu_kv_of(kv, group)};
    ASSERT(b->n_tok <= f->n_tok_max);
    if (b->n_tok == 0) return;
    begin(&j);
    par_run(j.c->team, region_run, &j);
}
