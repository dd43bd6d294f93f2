/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of a program that are run together (match.c finds them), for steps of a few tokens: one
 * region for all of them, in which workers wait for each other where a product needs all of what
 * was computed before, and for nothing else. What is small and every worker needs, norms and
 * prepared inputs, every worker computes for itself: the same function of the same numbers, so the
 * same bits, and nearer to it than what another one wrote. Of several wide rows each makes its
 * share and waits for the others', which takes less. Which worker multiplies what is settled when
 * the program is opened; the router and what its experts' products are, one worker works out while
 * the others multiply with the shared experts. A bar is where workers wait:
 *
 *     x += r, norm, prepare | q, k, v | for each KV head: norms, rotation, storing, attention |
 *     prepare | output -> r | x += r, norm, prepare | gate, up, silu | prepare | down -> r
 *
 * of MLA    q_a, kv_a | norm, prepare, q_b; latents: norm, rotation, storing | queries to latents,
 *           rotation | attention | results from latents | prepare ...
 * of experts    router | routing, shared gate, up | gate, up of experts | shared down, down of
 *           experts | sums -> r
 */
#include "dev/cpu/region.h"

#include "dev/cpu/fuse.h"
#include "dev/cpu/mem.h"
#include "dev/figures.h"

#include "base/clock.h"

#define ASK_LINES 24 /* about what a core can have under way */
/* Tokens of a step. Every worker normalises and prepares all rows for itself, which with more
 * values than these costs more than to share the rows and wait for each other. */
#define TOK_MIN 4
#define TOK_MAX 8
#define TOK_VALUES 32768
#define SHARE_VALUES 512  /* of rows that a worker is spared: more than a wait costs */

/* ---- open ---- */

static const struct mm_mat *mat(const dev_mat *m)
{
    return &dev_cpu_mat_of(m)->m;
}

static unsigned forms_of(const dev_mat *m)
{
    return 1u << dev_cpu_mat_of(m)->form | 1u << dev_cpu_mat_of(m)->form2;
}

int dev_figures_fused(int d_model)
{
    return BASE_MAX(TOK_MIN, BASE_MIN(TOK_MAX, TOK_VALUES / BASE_MAX(1, d_model)));
}

/* What the workspace has room for. */
static bool fits(const struct cpu *c, const struct cpu_layer_ops *l)
{
    if (l->rope->n_rot > c->n_rot_max) return false;
    return l->mla || (l->attn->n_head <= c->most.n_head && l->d_head <= c->most.d_k &&
                      l->d_head <= c->most.d_v);
}

/* The matrices of f->w were added: which worker begins where. */
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

static sl_status begin_set(struct cpu *c, struct fixed *f, int n_seg, int n_col, sl_err *err)
{
    f->n_col = n_col;
    f->w.n_seg_max = n_seg;
    return dev_cpu_scratch(c, (size_t)n_seg, sizeof *f->w.seg, &f->w.seg, err);
}

static sl_status open_set(struct cpu *c, struct fixed *f, const struct dev_matmul *p, int n_tok,
                          sl_err *err)
{
    if (!p) return SL_OK;
    SL_TRY(begin_set(c, f, p->n_mat, mat(p->w[0])->n_col, err));
    for (int i = 0; i < p->n_mat; i++) {
        dev_cpu_work_add(&f->w, dev_cpu_mat_of(p->w[i]), 0, n_tok, 16)->user = i;
        f->form |= forms_of(p->w[i]);
    }
    return settle(c, f, err);
}

static sl_status open_heads(struct cpu *c, struct fixed *f, const dev_mat *w, int n_head, int n_tok,
                            sl_err *err)
{
    SL_TRY(begin_set(c, f, n_head, mat(w)->n_col, err));
    for (int h = 0; h < n_head; h++)
        dev_cpu_work_add(&f->w, dev_cpu_mat_of(w), h, n_tok, 16)->user = h;
    f->form = 1u << dev_cpu_mat_of(w)->form;
    return settle(c, f, err);
}

/* A dense block's matrices or the shared experts'. */
static sl_status open_ffn(struct cpu *c, struct region_layer *l, int n_tok, sl_err *err)
{
    const struct dev_ffn *p = l->p.ffn;
    struct fixed *g = &l->set[SET_GATE_UP];
    if (!p) return SL_OK;
    l->parts = dev_cpu_takes_parts(dev_cpu_mat_of(p->down));
    l->down = (struct dev_matmul){.n_mat = 1, .w = {p->down}};
    SL_TRY(open_set(c, &l->set[SET_DOWN], &l->down, n_tok, err));
    SL_TRY(begin_set(c, g, 1, mat(p->gate_up)->n_col, err));
    dev_cpu_work_add(&g->w, dev_cpu_mat_of(p->gate_up), 0, n_tok, l->parts ? 32 : 16);
    g->form = forms_of(p->gate_up);
    return settle(c, g, err);
}

static sl_status open_layer(struct cpu *c, const struct region *s, struct region_layer *l,
                            sl_err *err)
{
    int n_tok = s->head.head.n_tok_max;
    struct fixed *set = l->set;
    const struct dev_attn_mla *p = l->p.mla;
    SL_TRY(open_set(c, &set[SET_IN], l->p.in, n_tok, err));
    SL_TRY(open_set(c, &set[SET_Q_B], l->p.q_b, n_tok, err));
    if (p) {
        SL_TRY(open_heads(c, &set[SET_K_B], p->w_kb, p->n_head, n_tok, err));
        SL_TRY(open_heads(c, &set[SET_V_B], p->w_vb, p->n_head, n_tok, err));
    }
    SL_TRY(open_set(c, &set[SET_OUT], l->p.out, n_tok, err));
    SL_TRY(open_set(c, &set[SET_ROUTER], l->p.router, n_tok, err));
    if (l->p.moe) {
        set[SET_ROUTER].form |= forms_of(l->p.moe->gate_up);
        if (l->p.ffn) set[SET_ROUTER].form |= forms_of(l->p.ffn->gate_up);
    }
    return open_ffn(c, l, n_tok, err);
}

/* While a worker waits in one set it fetches the next. Which experts come is not known so early. */
static void chain(struct region *s, struct region_layer *l)
{
    for (int k = 0; k < N_SET; k++) {
        if (!l->set[k].start || (l->p.moe && k == SET_DOWN)) continue;
        if (s->last) s->last->w.next = l->set[k].start;
        s->last = &l->set[k];
    }
    if (!l->p.moe) return;
    l->set[SET_DOWN].w.next = s->expert_down; /* after the shared experts, in the same step */
    s->last = NULL;
}

/* Memory for x and one input of each worker, and for hidden values that are prepared as they come:
 * all regions have the same, as large as the largest needs. */
static sl_status open_own(struct cpu *c, const struct region *s, sl_err *err)
{
    struct cpu_own *o = &c->own;
    int n = s->head.head.n_tok_max;
    size_t n_x = (size_t)n * (size_t)s->d_model, n_act = 0, n_hidden = 0;
    for (int i = 0; i < s->n_layer; i++)
        for (int k = 0; k < N_SET; k++) {
            const struct fixed *f = &s->layer[i].set[k];
            if (!f->start) continue;
            n_act = BASE_MAX(n_act, kern_mm_act_bytes(f->form, f->n_col, n));
            if (k == SET_DOWN)
                n_hidden = BASE_MAX(n_hidden, kern_mm_act_bytes(f->form, f->n_col, n));
        }
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
    s->kv_group = p->mla ? p->mla->group : p->attn->group;
    SL_TRY(dev_cpu_scratch(c, (size_t)c->n_worker, sizeof *s->expert_down, &s->expert_down, err));
    for (int i = 0; i < s->n_layer; i++) {
        SL_TRY(open_layer(c, s, &s->layer[i], err));
        chain(s, &s->layer[i]);
    }
    return open_own(c, s, err);
}

static bool run_region(struct cpu *c, dev_kv *kv, const struct dev_step *b, struct cpu_fused *f);

sl_status dev_cpu_fuse_layers(struct cpu *c, const struct dev_op *op, int n_op, int at,
                              struct cpu_fused **out, sl_err *err)
{
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
    int n_tok = BASE_MIN(dev_figures_fused(one.attn_norm->n), c->n_tok_max);
    s->head = (struct cpu_fused){{end - at, n_tok}, run_region};
    for (s->n_layer = 0; s->n_layer < n; at += s->layer[s->n_layer++].p.n_op)
        (void)dev_cpu_match_layer(op, n_op, at, &s->layer[s->n_layer].p);
    SL_TRY(open_region(c, s, err));
    *out = &s->head;
    return SL_OK;
}

/* ---- run: what the parts of a layer have in common ---- */

void dev_cpu_region_book(struct mine *m, enum dev_op_kind op, const struct fixed *f)
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

/* My part of the set's ranges. */
static void deal(const struct mine *m, struct fixed *f)
{
    for (int i = m->worker; f->start && i < m->j->c->n_worker; i += m->n_w)
        par_range_set(&f->w.range[i], f->begin[i], f->w.range[i].end);
}

/* All sets that come before the next layer's second one: nobody has taken from them in this step,
 * nor will anybody before a wait. */
static void deal_layer(const struct mine *m, struct region_layer *l)
{
    for (int k = SET_IN + 1; k < N_SET; k++)
        deal(m, &l->set[k]);
    if (l + 1 < m->j->s->layer + m->j->s->n_layer) deal(m, &l[1].set[SET_IN]);
}

void dev_cpu_region_ask(const struct mine *m)
{
    if (m->worker >= CPU_AHEAD_MAX) return;
    struct cpu_ahead *a = &m->j->c->ahead[m->worker];
    for (int i = 0; i < ASK_LINES && a->p < a->end; i++, a->p += 64)
        __builtin_prefetch(a->p, 0, 2);
}

void dev_cpu_region_input(struct mine *m, const struct fixed *f)
{
    kern_mm_act_init(&m->in, f->form, f->n_col, m->j->s->head.head.n_tok_max,
                     m->j->c->own.act[m->j->shared ? 0 : m->worker]);
}

void dev_cpu_region_input_made(const struct mine *m)
{
    if (m->j->shared) par_barrier(m->j->c->team);
}

void dev_cpu_region_norm(struct mine *m, const struct dev_norm *p, const struct fixed *f)
{
    struct cpu *c = m->j->c;
    float *y = c->scratch[m->worker].row;
    dev_cpu_region_input(m, f);
    for (int t = m->row0; t < m->j->b->n_tok; t += m->row_step) {
        float *x = m->x + (int64_t)t * p->n;
        dev_cpu_region_ask(m);
        if (p->r) c->k.add_f32(x, p->r + (int64_t)t * p->n, p->n);
        c->k.rmsnorm_f32(y, x, p->w, p->n, p->eps);
        dev_cpu_region_ask(m);
        kern_mm_prep(&m->in, t, y);
    }
    dev_cpu_region_input_made(m);
}

void dev_cpu_region_prepare(struct mine *m, const struct fixed *f, const float *x)
{
    dev_cpu_region_input(m, f);
    for (int t = m->row0; t < m->j->b->n_tok; t += m->row_step) {
        dev_cpu_region_ask(m);
        kern_mm_prep(&m->in, t, x + (int64_t)t * f->n_col);
    }
    dev_cpu_region_input_made(m);
}

void dev_cpu_region_take(struct mine *m, struct fixed *f, const struct dev_matmul *p)
{
    dev_cpu_matmul_take(m->j->c, m->worker, &f->w, &m->in, p, m->j->b->n_tok);
}

/* ---- run ---- */

static void output(struct mine *m)
{
    struct region_layer *l = m->l;
    struct fixed *f = &l->set[SET_OUT];
    dev_cpu_region_prepare(m, f, l->p.mla ? l->p.mla->y : l->p.attn->y);
    dev_cpu_region_take(m, f, l->p.out);
    if (l->p.ffn_norm) par_barrier(m->j->c->team);
    dev_cpu_region_book(m, DEV_OP_matmul, f);
}

static void layer(struct mine *m, struct region_layer *l)
{
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    bool is_last = l == &j->s->layer[j->s->n_layer - 1];
    m->l = l;
    deal_layer(m, l);
    if (l->p.attn && !m->spans.window) dev_cpu_region_fetch(m);
    dev_cpu_region_norm(m, l->p.attn_norm, &l->set[SET_IN]);
    dev_cpu_region_take(m, &l->set[SET_IN], l->p.in);
    par_barrier(c->team);
    dev_cpu_region_book(m, DEV_OP_matmul, &l->set[SET_IN]);
    if (l->p.mla)
        dev_cpu_region_mla(m);
    else
        dev_cpu_region_gqa(m);
    if (m->worker == 0) dev_cpu_spans_again(c, &m->spans);
    output(m);
    if (!l->p.ffn_norm) return;
    if (l->p.moe)
        dev_cpu_region_moe(m);
    else
        dev_cpu_region_ffn(m);
    if (!is_last) par_barrier(c->team); /* after the last one the region ends */
    dev_cpu_region_book(m, l->p.moe ? DEV_OP_moe : DEV_OP_ffn, NULL);
}

/* The rows whose inputs I make. */
static void copy_rows(const struct mine *m, float *to, const float *from)
{
    int64_t n = m->j->s->d_model;
    for (int t = m->row0; t < m->j->b->n_tok; t += m->row_step)
        memcpy(to + t * n, from + t * n, sizeof(float) * (size_t)n);
}

static void region_run(void *arg, int worker, int n_w)
{
    struct region_job *j = arg;
    struct cpu *c = j->c;
    const struct region *s = j->s;
    struct mine m = {.spans = j->spans, .a = j->a, .j = j, .worker = worker, .n_w = n_w};
    m.row0 = j->shared ? worker : 0;
    m.row_step = j->shared ? n_w : 1;
    m.x = c->own.x[j->shared ? 0 : worker];
    m.at = j->t0;
    copy_rows(&m, m.x, s->layer[0].p.attn_norm->x);
    for (int i = 0; i < s->n_layer; i++)
        layer(&m, &s->layer[i]);
    /* all have passed a barrier after they read it */
    if (j->shared || worker == 0) copy_rows(&m, s->layer[0].p.attn_norm->x, m.x);
}

/* What operators read and compute is counted for the tokens of this step. */
static void count_tokens(struct region *s, int n_tok)
{
    for (int i = 0; i < s->n_layer; i++)
        for (int k = 0; k < N_SET; k++)
            for (int g = 0; g < s->layer[i].set[k].w.n_seg; g++)
                s->layer[i].set[k].w.seg[g].n_tok = n_tok;
}

/* What the caller does before the region. */
static void begin(struct region_job *j)
{
    struct cpu *c = j->c;
    struct region *s = j->s;
    struct fixed *first = &s->layer[0].set[SET_IN];
    struct mine one = {.j = j, .n_w = 1};
    if (c->head.timing) j->t0 = (struct dev_op_time){0, clock_now_ns(), c->head.cost};
    int n_tok = j->b->n_tok, spared = n_tok - (n_tok + c->n_worker - 1) / c->n_worker;
    j->shared = spared * s->d_model >= SHARE_VALUES;
    j->cs = dev_cpu_angles(c, j->b, s->layer[0].p.rope);
    if (s->layer[0].p.mla)
        dev_cpu_region_mla_begin(j);
    else
        dev_cpu_region_gqa_begin(j);
    deal(&one, first);
    const struct cpu_stream *next = first->w.next;
    dev_cpu_work_remember(c, &first->w); /* the region's only one */
    j->after = first->w.next;
    first->w.next = next;
    if (s->last) s->last->w.next = j->after;
    if (c->head.timing) count_tokens(s, j->b->n_tok);
}

/* Tokens with materialised keys and values have no place in a region. */
static bool is_absorbed(const struct region_job *j)
{
    for (int t = 0; t < j->b->n_tok && j->s->layer[0].p.mla; t++)
        if (j->c->expand[t]) return false;
    return true;
}

static bool run_region(struct cpu *c, dev_kv *kv, const struct dev_step *b, struct cpu_fused *f)
{
    struct region *s = (struct region *)f;
    struct region_job j = {.c = c, .b = b, .s = s};
    if (!is_absorbed(&j)) return false;
    if (b->n_tok == 0) return true;
    j.kv = dev_cpu_kv_of(kv, s->kv_group);
    begin(&j);
    par_run(c->team, region_run, &j);
    return true;
}
