/* SPDX-License-Identifier: Apache-2.0 */
/* The router and routed experts: every token and expert of its list is a row with a matrix of its
 * own. */
#include "dev/gpu/ops.h"

static const struct gpu_brought *find(const struct gpu *c, const void *host)
{
    const struct gpu_brought *b = c->brought;
    while (b && b->host != host)
        b = b->next;
    return b;
}

/* Room for n words that stand for something of the host's. */
static sl_status new_brought(struct gpu *c, const void *host, int n, uint64_t *at, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_arena_alloc(&c->arena, sizeof(struct gpu_brought), &p, err));
    struct gpu_brought *b = p;
    SL_TRY(dev_gpu_carve(c, 4 * (int64_t)n, &b->at, NULL, err));
    b->host = host;
    b->next = c->brought;
    c->brought = b;
    *at = b->at;
    return SL_OK;
}

static sl_status bring_route(struct gpu *c, const struct dev_route *r, sl_err *err)
{
    uint64_t at;
    if (!r->bias || find(c, r->bias)) return SL_OK;
    SL_TRY(new_brought(c, r->bias, r->n_expert, &at, err));
    return dev_gpu_put(c, at, r->bias, 4 * (int64_t)r->n_expert, err);
}

/* The slot of each expert, -1 = none. */
static sl_status put_slots(struct gpu *c, uint64_t at, const struct dev_slots *s, int n_expert,
                           sl_err *err)
{
    int32_t slot[GPU_EXPERT_MAX];
    for (int e = 0; e < n_expert; e++)
        slot[e] = s->first[e + 1] > s->first[e] ? s->list[s->first[e]] : -1;
    return dev_gpu_put(c, at, slot, 4 * (int64_t)n_expert, err);
}

/* Tokens and experts of each, at most. */
static int64_t n_term(const struct gpu *c)
{
    return (int64_t)BASE_MAX(c->most.max.n_tok, c->most.max.n_tok_all) * c->most.k;
}

static sl_status bring_moe(struct gpu *c, const struct dev_moe *p, sl_err *err)
{
    uint64_t at;
    if (p->combine) SL_TRY(dev_gpu_kernel(c, GPU_combine, err));
    if (!p->slots || find(c, p->slots)) return SL_OK;
    SL_TRY(dev_gpu_kernel(c, GPU_slots, err));
    if (!c->moe.slots)
        SL_TRY(dev_gpu_carve(c, 4 * n_term(c), &c->moe.slots, NULL, err));
    if (p->ranks || p->spread) return dev_gpu_terms_reserve(c, p, err);
    SL_TRY(new_brought(c, p->slots, p->n_expert, &at, err));
    return put_slots(c, at, p->slots, p->n_expert, err);
}

/* What a router has on the host, and slots, are brought here when the program is opened. */
sl_status dev_gpu_bring(dev *d, const struct dev_op *op, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    if (op->kind == DEV_OP_route) return bring_route(c, &op->u.route, err);
    if (op->kind == DEV_OP_sum) return dev_gpu_kernel(c, GPU_sum, err);
    if (op->kind == DEV_OP_send) return dev_gpu_send_reserve(c, err);
    if (op->kind == DEV_OP_delta) return dev_gpu_delta_kernels(c, err);
    if (op->kind == DEV_OP_gate) return dev_gpu_kernel(c, GPU_gate, err);
    return op->kind == DEV_OP_moe ? bring_moe(c, &op->u.moe, err) : SL_OK;
}

static uint64_t brought(const struct gpu *c, const void *host)
{
    const struct gpu_brought *b = host ? find(c, host) : NULL;
    ASSERT(!host || b); /* an operator of no program */
    return host ? b->at : 0;
}

sl_status dev_gpu_slots_put(dev *d, const struct dev_slots *s, int n_expert, sl_err *err)
{
    struct gpu *c = dev_gpu_of(d);
    return put_slots(c, brought(c, s), s, n_expert, err);
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

void dev_gpu_wsum(struct gpu *c, const struct dev_moe *p, const struct gpu_wsum *s)
{
    struct {
        uint64_t x, weight, add, y;
        uint32_t n, k;
    } k = {s->x, at(p->weight), at(p->add), at(p->y), (uint32_t)s->n, (uint32_t)p->k};
    LAUNCH(c, GPU_wsum, GRID(groups(s->n, 64), s->n_tok, 1), k);
}

void dev_gpu_combine(struct gpu *c, const struct dev_moe *p, const struct gpu_gave *g)
{
    int n_row = g->n_row, n = g->n;
    struct {
        uint64_t x, ids;
        uint32_t n, q8;
    } k = {g->x, g->ids, (uint32_t)n, p->combine == DEV_COMBINE_Q8};
    for (int i = 0; p->combine && i < n_row; i += c->grid_max) {
        k.x = g->x + 4 * (uint64_t)i * (uint64_t)n;
        k.ids = g->ids ? g->ids + 4 * (uint64_t)i : 0;
        LAUNCH(c, GPU_combine,
               GRID(groups((n + 31) / 32, 64), BASE_MIN(n_row - i, c->grid_max), 1), k);
    }
}

void dev_gpu_moe(dev *d, const struct dev_step *b, const struct dev_moe *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct gpu_mat *down = (const struct gpu_mat *)p->down;
    int F = down->head.cols, D = down->head.rows, n_tok = dev_n_row(b, p->n_tok), n = n_tok * p->k;
    struct gpu_block e = {.gate_up = p->gate_up,
                          .down = p->down,
                          .up = {.act = (const struct gpu_act *)p->act,
                                 .n_row = n,
                                 .y = c->moe.glu,
                                 .ldy = 2 * (int64_t)F,
                                 .ids = at(p->id),
                                 .per = p->k},
                          .q = {.act = &c->moe.act,
                                .n_row = n,
                                .y = c->moe.y,
                                .ldy = D,
                                .ids = at(p->id),
                                .per = 1},
                          .h = {.x = c->moe.h, .n = F, .n_row = n, .ldx = F}};
    if (p->spread) {
        dev_gpu_moe_spread(c, p, n_tok);
        return;
    }
    if (n == 0) return;
    if (p->rows) {
        dev_gpu_moe_turned(c, p, n_tok);
        return;
    }
    if (p->slots) {
        struct {
            uint64_t id, map, slot;
            uint32_t n, pad;
        } s = {at(p->id), brought(c, p->slots), c->moe.slots, (uint32_t)n, 0};
        LAUNCH(c, GPU_slots, GRID(groups(n, 64), 1, 1), s);
        e.up.ids = e.q.ids = c->moe.slots;
        e.q.y = at(p->terms);
    }
    if (p->ranks)
        dev_gpu_block_shared(c, &e, &(struct gpu_shared){p->ranks, p->part, at(p->h_all)});
    else
        dev_gpu_block(c, &e);
    dev_gpu_combine(c, p, &(struct gpu_gave){e.q.y, p->slots ? c->moe.slots : 0, n, D});
    if (!p->terms) dev_gpu_wsum(c, p, &(struct gpu_wsum){c->moe.y, n_tok, D});
}

void dev_gpu_sum(dev *d, const struct dev_step *b, const struct dev_sum *p)
{
    struct gpu *c = dev_gpu_of(d);
    struct {
        uint64_t x, id, weight, before, add, y, generated;
        uint32_t n, k, n_late, late;
    } k = {at(p->here),
           at(p->id),
           at(p->weight),
           at(p->before),
           at(p->add),
           at(p->y),
           step_of(c, b)->generated,
           (uint32_t)p->n,
           (uint32_t)p->k,
           (uint32_t)p->n_late,
           p->late};
    LAUNCH(c, GPU_sum, GRID(groups(p->n, 64), dev_n_row(b, p->n_tok), 1), k);
}

/* Forms of experts' hidden values, as bits. */
sl_status dev_gpu_moe_reserve(struct gpu *c, sl_err *err)
{
    const struct dev_shapes *p = &c->most;
    int64_t n = n_term(c), F = p->d_ff_expert, D = p->d_model;
    if (p->n_expert) SL_TRY(dev_gpu_kernel(c, GPU_route, err));
    if (n == 0 || F == 0) return SL_OK;
    SL_TRY(dev_gpu_kernel(c, GPU_wsum, err));
    SL_TRY(dev_gpu_carve(c, 8 * n * F, &c->moe.glu, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * F, &c->moe.h, NULL, err));
    SL_TRY(dev_gpu_carve(c, 4 * n * D, &c->moe.y, NULL, err));
    return dev_gpu_act_room(c, c->expert_forms, (int)F, (int)n, &c->moe.act, err);
}
