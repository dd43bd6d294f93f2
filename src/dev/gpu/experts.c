/* SPDX-License-Identifier: Apache-2.0 */
/* The router and routed experts: every token and expert of its list is a row with a matrix of its
 * own. */
#include "dev/gpu/ops.h"

/* What a router has on the host is brought here when its program is opened. */
sl_status dev_gpu_bring(dev *d, const struct dev_op *op, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    const struct dev_route *r = &op->u.route;
    void *p = NULL;
    if (op->kind != DEV_OP_route || !r->bias) return SL_OK;
    for (const struct gpu_brought *b = c->brought; b; b = b->next)
        if (b->host == r->bias) return SL_OK;
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct gpu_brought), &p, err));
    struct gpu_brought *b = p;
    int64_t n = (int64_t)sizeof(float) * r->n_expert;
    SL_TRY(dev_gpu_carve(c, n, &b->at, NULL, err));
    SL_TRY(dev_gpu_put(c, b->at, r->bias, n, err));
    b->host = r->bias;
    b->next = c->brought;
    c->brought = b;
    return SL_OK;
}

static uint64_t brought(const struct gpu *c, const void *host)
{
    const struct gpu_brought *b = c->brought;
    while (host && b && b->host != host)
        b = b->next;
    ASSERT(!host || b); /* an operator of no program */
    return host ? b->at : 0;
}

void dev_gpu_route(dev *d, const struct dev_step *b, const struct dev_route *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct {
        uint64_t logit, bias, id, weight, count;
        uint32_t n_expert, k, sigmoid, n_group, k_group, group_max, norm;
        float scale;
    } k = {at(p->logit),
           brought(c, p->bias),
           at(p->id),
           at(p->weight),
           at(p->count),
           (uint32_t)p->n_expert,
           (uint32_t)p->k,
           (uint32_t)p->sigmoid,
           (uint32_t)p->n_group,
           (uint32_t)p->k_group,
           (uint32_t)p->group_max,
           (uint32_t)p->norm,
           p->scale};
    LAUNCH(c, GPU_route, GRID(dev_n_row(b, p->n_tok), 1, 1), k);
}

void dev_gpu_moe(dev *d, const struct dev_step *b, const struct dev_moe *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_mat *down = (const struct gpu_mat *)p->down;
    int F = down->head.cols, D = down->head.rows, n_tok = dev_n_row(b, p->n_tok), n = n_tok * p->k;
    struct gpu_rows h = {.x = c->moe.h, .from = c->moe.glu, .n = F, .n_row = n, .ldx = F};
    struct gpu_product up = {.act = (const struct gpu_act *)p->act,
                             .n_row = n,
                             .y = c->moe.glu,
                             .bias = at(p->gate_up_bias),
                             .ldy = 2 * (int64_t)F,
                             .ids = at(p->id),
                             .per = p->k};
    struct gpu_product q = {.act = &c->moe.act,
                            .n_row = n,
                            .y = c->moe.y,
                            .bias = at(p->down_bias),
                            .ldy = D,
                            .ids = at(p->id),
                            .per = 1};
    if (n == 0) return;
    dev_gpu_product(c, p->gate_up, &up);
    dev_gpu_gate(c, &p->glu, p->gate_up_bias != NULL, &h);
    enum mm_act form = down->half[0].form;
    h.from = 0;
    dev_gpu_prep_form(c, q.act, form, &h, form == MM_ACT_INT8 && F % 32 == 0);
    dev_gpu_product(c, p->down, &q);
    struct {
        uint64_t x, weight, add, y;
        uint32_t n, k;
    } k = {c->moe.y, at(p->weight), at(p->add), at(p->y), (uint32_t)D, (uint32_t)p->k};
    LAUNCH(c, GPU_wsum, GRID(groups(D, 64), n_tok, 1), k);
}

/* Forms of experts' hidden values, as bits. */
sl_status dev_gpu_moe_reserve(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int64_t n = (int64_t)p->max.n_tok * p->k, F = p->d_ff_expert, D = p->d_model;
    if (p->n_expert) SL_TRY(dev_gpu_kernel(c, GPU_route, err));
    if (n == 0 || F == 0) return SL_OK;
    SL_TRY(dev_gpu_kernel(c, GPU_wsum, err));
    SL_TRY(dev_gpu_carve(c, 8 * n * F, &c->moe.glu, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * F, &c->moe.h, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * D, &c->moe.y, NULL, err));
    return dev_gpu_act_room(c, c->expert_forms, (int)F, (int)n, &c->moe.act, err);
}
