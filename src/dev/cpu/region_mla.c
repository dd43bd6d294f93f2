/* SPDX-License-Identifier: Apache-2.0 */
/* A latent cache, in a fused region: absorbed attention of all tokens of the step. Which worker
 * multiplies which heads is settled; each prepares their inputs for itself. */
#include "dev/cpu/region.h"

/* Norm, rotation and storing of my tokens' latents. */
static void put_latents(const struct mine *m)
{
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    const struct cpu_layer_ops *p = &m->l->p;
    const struct dev_norm *n = p->kv_norm;
    for (int t = m->worker; t < j->b->n_tok; t += m->n_w) {
        float *k = n->x + t * n->ldx;
        c->k.rmsnorm_f32(k, k, n->w, n->n, n->eps);
        dev_cpu_rotate(&c->k, p->rope->style, k + n->n, j->cs + (int64_t)t * c->n_rot_max,
                       p->rope->n_rot);
        struct cpu_place at = dev_cpu_place(c, j->kv, p->mla->layer, j->b, t);
        c->k.put_v(j->kv->t, at.page + (size_t)at.in * j->kv->row_bytes, k, j->kv->s.d_k);
    }
}

static void query_latents(struct mine *m)
{
    struct cpu *c = m->j->c;
    const struct cpu_layer_ops *p = &m->l->p;
    const struct dev_norm *n = p->q_a_norm;
    float *y = c->scratch[m->worker].row;
    dev_cpu_region_input(m, &m->l->set[SET_Q_B]);
    for (int t = m->row0; t < m->j->b->n_tok; t += m->row_step) {
        dev_cpu_region_ask(m);
        c->k.rmsnorm_f32(y, n->x + (int64_t)t * n->n, n->w, n->n, n->eps);
        kern_mm_prep(&m->in, t, y);
    }
    dev_cpu_region_input_made(m);
    dev_cpu_region_take(m, &m->l->set[SET_Q_B], p->q_b);
    par_barrier(c->team);
    dev_cpu_region_book(m, DEV_OP_matmul, &m->l->set[SET_Q_B]);
}

/* My share of the rotated parts of the queries. */
static void rotate_queries(const struct mine *m)
{
    const struct region_job *j = m->j;
    const struct dev_rope *p = m->l->p.rope;
    int64_t b, e;
    par_split((int64_t)j->b->n_tok * p->n_head, m->worker, m->n_w, &b, &e);
    for (; b < e; b++) {
        int64_t t = b / p->n_head, h = b % p->n_head;
        dev_cpu_rotate(&j->c->k, p->style, p->x + t * p->ldx + h * p->ldx_h,
                       j->cs + t * j->c->n_rot_max, p->n_rot);
    }
}

/* y[t, h, :] = W_h x[t, h, :] of what I take; x: rows of ld[0] values, heads ld_h[0] apart; y: of
 * ld[1] and ld_h[1]. */
static void take_heads(struct mine *m, struct fixed *f, const float *x, float *y,
                       const int64_t ld[2], const int64_t ld_h[2])
{
    struct cpu *c = m->j->c;
    struct cpu_piece at = {0};
    int n_tok = m->j->b->n_tok, is_there = -1;
    enum mm_act form = (enum mm_act)__builtin_ctz(f->form);
    kern_mm_act_init(&m->in, f->form, f->n_col, m->j->s->head.head.n_tok_max,
                     c->own.act[m->worker]); /* a head's input is its worker's */
    while (dev_cpu_work_take(c, &f->w, m->worker, &at)) {
        int h = at.seg->user;
        at.again = at.again && h == is_there;
        for (int t = 0; t < n_tok && h != is_there; t++)
            kern_mm_prep(&m->in, t, x + t * ld[0] + h * ld_h[0]);
        is_there = h;
        const struct cpu_cols in = {&m->in, form, NULL, n_tok};
        dev_cpu_product(c, m->worker, &at, &in, y + h * ld_h[1], ld[1]);
    }
}

static void attend(struct mine *m)
{
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    const struct dev_attn_mla *p = m->l->p.mla;
    struct fixed *set = m->l->set;
    int64_t H = p->n_head, qd = p->nope + p->rope, r = p->r, v = p->v;
    rotate_queries(m);
    take_heads(m, &set[SET_K_B], p->q, c->mla.lat, (const int64_t[]){H * qd, H * r},
               (const int64_t[]){qd, r});
    m->mla = j->mla;
    m->mla.p = p;
    m->spans.op = &m->mla;
    dev_cpu_mla_look_ahead(&m->mla, c->span.unit[0].span1);
    par_barrier(c->team);
    dev_cpu_spans_run(c, &m->spans, m->worker, m->n_w);
    par_barrier(c->team);
    take_heads(m, &set[SET_V_B], c->mla.olat, p->y, (const int64_t[]){H * r, H * v},
               (const int64_t[]){r, v});
    par_barrier(c->team);
    if (m->worker != 0 || !c->head.timing) return;
    dev_cpu_attn_count(c, j->kv, j->b, 0, &m->spans.products);
    dev_cpu_work_count(c, &set[SET_K_B].w);
    dev_cpu_region_book(m, DEV_OP_attn_mla, &set[SET_V_B]);
}

void dev_cpu_region_mla(struct mine *m)
{
    put_latents(m);
    if (m->l->p.q_b) query_latents(m);
    attend(m);
}

void dev_cpu_region_mla_begin(struct region_job *j)
{
    struct cpu *c = j->c;
    dev_cpu_mla_init(&j->mla, j->s->layer[0].p.mla, j->kv);
    j->mla.n_list = j->b->n_tok;
    for (int t = 0; t < j->b->n_tok; t++)
        c->mla.tok_list[t] = t;
    dev_cpu_mla_job(c, j->b, &j->mla, &j->spans);
    dev_cpu_spans_begin(c, &j->spans);
}
