/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts: tokens are grouped by expert with index lists (no copies), the tiles of all
 * experts in use are one row of work, and each token's K results are added in the order of its
 * list. */
#include "dev/cpu/cpu.h"

struct moe_job {
    struct cpu *c;
    const struct dev_moe *p;
    const struct cpu_mat *gate_up, *down;
    int n_tok, n_slot;
    int parts; /* the hidden values are prepared as they come */
};

static int n_place(const struct dev_moe *p)
{
    return p->slots ? p->slots->n : p->n_expert;
}

static int64_t expert_at(const struct dev_moe *p, int64_t place)
{
    return p->slots ? p->slots->expert[place] : place;
}

/* Where in the stacks expert e is computed for token t; -1 = it is not here. */
static int place_of(const struct dev_moe *p, int e, int t)
{
    if (!p->slots) return e;
    int first = p->slots->first[e], n = p->slots->first[e + 1] - first;
    return n ? p->slots->list[first + t % n] : -1;
}

/* Rows 0 .. T*K-1 sorted by place, within one by token; -1 for experts that are not here. The
 * number of rows. */
static int group_by_expert(struct cpu *c, const struct dev_moe *p, int n_tok)
{
    int n = n_tok * p->k, last = n_place(p);
    int32_t *first = c->expert_slot0;
    memset(first, 0, sizeof *first * (size_t)(last + 1));
    for (int i = 0; i < n; i++) {
        int at = place_of(p, p->id[i], i / p->k);
        if (at >= 0) first[at + 1]++;
    }
    for (int e = 0; e < last; e++)
        first[e + 1] += first[e];
    for (int i = 0; i < n; i++) {
        int at = place_of(p, p->id[i], i / p->k);
        c->slot_of[i] = -1;
        if (at < 0) continue;
        int32_t slot = first[at]++;
        c->slot_row[slot] = i / p->k;
        c->slot_of[i] = slot;
    }
    for (int e = last; e > 0; e--)
        first[e] = first[e - 1]; /* first[e] had moved to its end */
    first[0] = 0;
    return first[last];
}

/* Token t's results in the order of its list. */
static void sum_results(struct moe_job *j, int worker, int64_t t)
{
    const struct dev_moe *p = j->p;
    struct cpu_scratch *s = &j->c->scratch[worker];
    int64_t n_out = j->down->m.n_row;
    const float *weight = p->weight + t * p->k;
    int n = 0;
    for (int k = 0; k < p->k; k++) {
        int32_t slot = j->c->slot_of[t * p->k + k];
        if (slot < 0) continue;
        s->row[n] = weight[k];
        s->rowp[n++] = j->c->moe_y + slot * n_out;
    }
    j->c->k.wsum_f32(p->y + t * n_out, s->rowp, s->row, n, p->add ? p->add + t * n_out : NULL,
                     (int)n_out);
}

static void moe_run(void *arg, int worker, int n_w)
{
    struct moe_job *j = arg;
    const struct dev_moe *p = j->p;
    struct cpu *c = j->c;
    const struct mm_act_buf *x = &((const struct cpu_act *)p->act)->b;
    int64_t n_ff = j->gate_up->m.n_row, n_out = j->down->m.n_row, b, e;
    struct cpu_piece at = {0};
    struct vec_glu glu;
    struct cpu_hidden out = {.ldh = n_ff, .act = j->parts ? &c->moe_act : NULL};
    out.glu = dev_cpu_glu(&p->glu, p->gate_up_bias, &glu);
    while (dev_cpu_work_take(c, &c->work[0], worker, &at)) {
        int s0 = c->expert_slot0[at.seg->user], s1 = c->expert_slot0[at.seg->user + 1];
        out.h = c->moe_h + s0 * n_ff;
        out.row0 = s0;
        if (p->gate_up_bias) out.bias = p->gate_up_bias + 2 * expert_at(p, at.seg->user) * n_ff;
        dev_cpu_product_silu(c, worker, &at, x, j->gate_up, c->slot_row + s0, s1 - s0, &out);
    }
    par_barrier(c->team);
    if (!j->parts) {
        par_split(j->n_slot, worker, n_w, &b, &e);
        for (int64_t s = b; s < e; s++)
            kern_mm_prep(&c->moe_act, (int)s, c->moe_h + s * n_ff);
        par_barrier(c->team);
    }
    at = (struct cpu_piece){0};
    while (dev_cpu_work_take(c, &c->work[1], worker, &at)) {
        int s0 = c->expert_slot0[at.seg->user], s1 = c->expert_slot0[at.seg->user + 1];
        float *y = c->moe_y + s0 * n_out;
        dev_cpu_product(c, worker, &at, &c->moe_act, j->down->form, c->iota + s0, s1 - s0, y,
                        n_out);
        if (p->down_bias)
            dev_cpu_product_bias(c, &at, p->down_bias + expert_at(p, at.seg->user) * n_out, s1 - s0,
                                 y, n_out);
    }
    par_barrier(c->team);
    par_split(j->n_tok, worker, n_w, &b, &e);
    for (int64_t t = b; t < e; t++)
        sum_results(j, worker, t);
}

static void tell_tap(const struct moe_job *j)
{
    const struct dev_moe *p = j->p;
    int n_ff = j->gate_up->m.n_row;
    for (int e = 0; e < n_place(p); e++) {
        int s0 = j->c->expert_slot0[e], n = j->c->expert_slot0[e + 1] - s0;
        struct dev_tapped r = {.what = p->tap.what,
                               .layer = p->tap.layer,
                               .expert = (int)expert_at(p, e),
                               .x = j->c->moe_h + (int64_t)s0 * n_ff,
                               .n_row = n,
                               .n_col = n_ff,
                               .ldx = n_ff};
        if (n) p->tap.fn(p->tap.user, &r);
    }
}

void dev_cpu_moe(dev *d, const struct dev_step *b, const struct dev_moe *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct moe_job j = {.c = c, .p = p, .n_tok = dev_n_row(b, p->n_tok)};
    j.gate_up = dev_cpu_mat_of(p->gate_up);
    j.down = dev_cpu_mat_of(p->down);
    j.parts = !p->tap.fn && dev_cpu_takes_parts(j.down);
    ASSERT(j.n_tok <= c->plan.n_tok && p->k <= c->plan.k && n_place(p) <= c->plan.n_expert &&
           j.gate_up->m.n_row <= c->plan.d_ff_expert && j.down->m.n_row <= c->plan.d_model);
    if (j.n_tok == 0) return;
    j.n_slot = group_by_expert(c, p, j.n_tok);
    dev_cpu_work_clear(&c->work[0]);
    dev_cpu_work_clear(&c->work[1]);
    for (int e = 0; e < n_place(p); e++) {
        int n = c->expert_slot0[e + 1] - c->expert_slot0[e];
        if (n == 0) continue;
        struct mm_mat gate_up = dev_cpu_mat_at(j.gate_up, e), down = dev_cpu_mat_at(j.down, e);
        struct mm_mat up = dev_cpu_mat2_at(j.gate_up, e);
        dev_cpu_work_add(&c->work[0], &gate_up, &up, n, j.parts ? 32 : 16)->user = e;
        dev_cpu_work_add(&c->work[1], &down, NULL, n, 16)->user = e;
    }
    dev_cpu_work_split(c, &c->work[0]);
    dev_cpu_work_split(c, &c->work[1]);
    kern_mm_act_init(&c->moe_act, 1u << j.down->form, j.down->m.n_col, j.n_slot, c->moe_mem);
    c->moe_act.is_parts = dev_cpu_takes_parts(j.down);
    par_run(c->team, moe_run, &j);
    if (p->tap.fn) tell_tap(&j);
}
