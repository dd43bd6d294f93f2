/* SPDX-License-Identifier: Apache-2.0 */
/* Feed-forward blocks in a fused region: dense ones, and routed experts with shared ones beside
 * them. */
#include "dev/cpu/region.h"

/* Hidden values of a dense block or of the shared experts, where they are prepared as they come. */
static struct mm_act_buf hidden_of(const struct mine *m)
{
    struct mm_act_buf h;
    const struct fixed *down = &m->l->set[SET_DOWN];
    kern_mm_act_init(&h, 1u << dev_cpu_mat_of(m->l->p.ffn->down)->form, down->n_col,
                     m->j->s->head.head.n_tok_max, m->j->c->own.hidden);
    h.is_parts = 1;
    return h;
}

/* My share of silu(gate) * up; the input is in m->in. */
static void take_gate_up(struct mine *m)
{
    struct region_layer *l = m->l;
    struct cpu *c = m->j->c;
    const struct dev_ffn *p = l->p.ffn;
    struct mm_act_buf hidden = hidden_of(m);
    struct cpu_piece at = {0};
    struct cpu_hidden out = {.h = p->h, .ldh = l->set[SET_DOWN].n_col};
    out.act = l->parts ? &hidden : NULL;
    const struct cpu_cols in = {.x = &m->in, .n_tok = m->j->b->n_tok};
    while (dev_cpu_work_take(c, &l->set[SET_GATE_UP].w, m->worker, &at))
        dev_cpu_product_pairs(c, m->worker, &at, &in, dev_cpu_mat_of(p->gate_up), &out);
}

/* My share of down; after it m->in is another. */
static void take_down(struct mine *m)
{
    struct region_layer *l = m->l;
    struct fixed *f = &l->set[SET_DOWN];
    struct dev_matmul down = l->down;
    down.y[0] = l->p.ffn->y;
    if (l->parts)
        m->in = hidden_of(m);
    else
        dev_cpu_region_prepare(m, f, l->p.ffn->h);
    dev_cpu_region_take(m, f, &down);
}

static void count(const struct mine *m, const struct fixed *f)
{
    struct cpu *c = m->j->c;
    if (m->worker == 0 && c->head.timing) dev_cpu_work_count(c, &f->w);
}

void dev_cpu_region_ffn(struct mine *m)
{
    struct fixed *set = m->l->set;
    dev_cpu_region_norm(m, m->l->p.ffn_norm, &set[SET_GATE_UP]);
    take_gate_up(m);
    par_barrier(m->j->c->team);
    take_down(m);
    count(m, &set[SET_GATE_UP]);
    count(m, &set[SET_DOWN]);
}

/* One worker: which experts, and which worker multiplies what of them. */
static void choose(struct mine *m)
{
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    struct region_layer *l = m->l, *end = j->s->layer + j->s->n_layer;
    const struct dev_route *p = l->p.route;
    int n_tok = j->b->n_tok;
    for (int t = 0; t < n_tok; t++)
        dev_cpu_route_row(c, p, NULL, t);
    dev_cpu_route_count(p, n_tok);
    dev_cpu_moe_begin(&j->moe, c, l->p.moe, n_tok);
    dev_cpu_work_divide(c, &c->work[0]);
    dev_cpu_work_divide(c, &c->work[1]);
    c->work[0].step_min = c->work[1].step_min = 1;
    dev_cpu_work_starts(c, &c->work[1], j->s->expert_down);
    c->work[0].next = l->p.ffn ? l->set[SET_DOWN].start : j->s->expert_down;
    c->work[1].next = l + 1 < end ? l[1].set[SET_IN].start : j->after;
    dev_cpu_region_book(m, DEV_OP_route, NULL);
}

static void count_experts(struct mine *m)
{
    struct cpu *c = m->j->c;
    if (m->worker != 0 || !c->head.timing) return;
    dev_cpu_work_count(c, &c->work[0]);
    dev_cpu_work_count(c, &c->work[1]);
}

/* The router, the experts' gate and up and the shared ones' have one input, which stays until all
 * of them have read it. */
void dev_cpu_region_moe(struct mine *m)
{
    struct region_job *j = m->j;
    struct cpu *c = j->c;
    struct region_layer *l = m->l;
    struct fixed *set = l->set;
    dev_cpu_region_norm(m, l->p.ffn_norm, &set[SET_ROUTER]);
    dev_cpu_region_take(m, &set[SET_ROUTER], l->p.router);
    par_barrier(c->team);
    dev_cpu_region_book(m, DEV_OP_matmul, &set[SET_ROUTER]);
    if (m->worker == 0) choose(m);
    if (l->p.ffn) take_gate_up(m);
    par_barrier(c->team);
    if (l->p.ffn) dev_cpu_region_book(m, DEV_OP_ffn, &set[SET_GATE_UP]);
    dev_cpu_moe_up(&j->moe, m->worker, &m->in);
    par_barrier(c->team);
    if (!j->moe.parts) {
        dev_cpu_moe_prep(&j->moe, m->worker, m->n_w);
        par_barrier(c->team);
    }
    if (l->p.ffn) take_down(m);
    dev_cpu_moe_down(&j->moe, m->worker);
    par_barrier(c->team);
    dev_cpu_moe_sum(&j->moe, m->worker, m->n_w);
    count_experts(m);
    if (l->p.ffn) count(m, &set[SET_DOWN]);
}
