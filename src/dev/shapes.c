/* SPDX-License-Identifier: Apache-2.0 */
/* Workspace follows from operators: what of them a device must know before it reserves any. */
#include "dev/dev_internal.h"

static void at_least(int *most, int n)
{
    *most = BASE_MAX(*most, n);
}

static void add_mla(struct dev_shapes *s, const struct dev_attn_mla *p)
{
    at_least(&s->n_head, p->n_head);
    at_least(&s->mla_r, p->r);
    at_least(&s->mla_nope, p->nope);
    at_least(&s->mla_rope, p->rope);
    at_least(&s->mla_v, p->v);
    at_least(&s->n_layer, p->layer + 1);
    at_least(&s->head_cols, BASE_MAX(p->r, p->nope));
}

static void add_index(struct dev_shapes *s, const struct dev_index *p)
{
    at_least(&s->index_heads, p->n_head);
    at_least(&s->index_d, p->d);
    at_least(&s->index_top, p->top * BASE_MAX(BASE_MAX(p->blk, p->every), 1));
    at_least(&s->index_score, dev_index_scores(p, s->max.n_ctx));
    at_least(&s->index_list, p->blk ? p->n_head * p->top : 0);
}

static void add_moe(struct dev_shapes *s, const struct dev_moe *p)
{
    at_least(&s->n_expert, p->slots ? p->slots->n : p->n_expert);
    at_least(&s->k, p->k);
    if (!p->gate_up || !p->down) return; /* of a rank that has no row of them */
    at_least(&s->d_model, dev_mat_rows(p->down));
    /* of several ranks: its own hidden values, and those of all */
    at_least(&s->d_ff_expert, BASE_MAX(dev_mat_rows(p->gate_up), dev_mat_cols(p->down)));
}

static void add_delta(struct dev_shapes *s, const struct dev_delta *p)
{
    at_least(&s->delta_k, p->d_k);
    at_least(&s->delta_v, p->d_v * (p->n_v / p->n_k));
    int n_a = p->each ? p->d_k : 1;
    at_least(&s->delta_a, n_a);
    at_least(&s->delta_row, 2 * p->n_k * p->d_k + p->n_v * (p->d_v + n_a + 1) + p->n_k);
}

static void add(struct dev_shapes *s, const struct dev_op *op)
{
    switch (op->kind) {
    case DEV_OP_attn:
        at_least(&s->n_head, op->u.attn.n_head);
        at_least(&s->d_k, op->u.attn.d_k);
        at_least(&s->d_v, op->u.attn.d_v);
        break;
    case DEV_OP_attn_mla:
        add_mla(s, &op->u.attn_mla);
        break;
    case DEV_OP_compress:
        at_least(&s->entry_d, op->u.compress.d);
        at_least(&s->n_rot, op->u.compress.n_rot);
        break;
    case DEV_OP_attn_ckv:
        at_least(&s->n_head, op->u.attn_ckv.n_head);
        at_least(&s->ckv_d, op->u.attn_ckv.d);
        break;
    case DEV_OP_index:
        add_index(s, &op->u.index);
        break;
    case DEV_OP_delta:
        add_delta(s, &op->u.delta);
        break;
    case DEV_OP_matmul_heads:
        at_least(&s->n_head, op->u.matmul_heads.n_head);
        at_least(&s->head_cols, dev_mat_cols(op->u.matmul_heads.w));
        break;
    case DEV_OP_matmul:
        at_least(&s->mat_heads, op->u.matmul.n_head);
        break;
    case DEV_OP_rope:
        at_least(&s->n_rot, op->u.rope.n_rot);
        break;
    case DEV_OP_route:
        at_least(&s->n_expert, op->u.route.n_expert);
        at_least(&s->k, op->u.route.k);
        break;
    case DEV_OP_moe:
        add_moe(s, &op->u.moe);
        break;
    case DEV_OP_sum:
        at_least(&s->k, op->u.sum.k);
        at_least(&s->d_model, op->u.sum.n);
        break;
    case DEV_OP_move:
        at_least(&s->n_move, op->u.move.n);
        break;
    default: /* needs no more than its tokens */
        break;
    }
}

struct dev_shapes dev_shapes_of(const dev *d, const struct dev_op *op, int n_op,
                                const struct dev_limits *max)
{
    struct dev_shapes s = {.max = *max};
    s.max.n_pass = BASE_MAX(s.max.n_pass, 1);
    for (int i = 0; i < n_op; i++)
        if (!op[i].d || op[i].d == d) add(&s, &op[i]);
    return s;
}

sl_status dev_reserve(dev *d, const struct dev_op *op, int n_op, const struct dev_limits *max,
                      sl_err *err)
{
    struct dev_shapes s = dev_shapes_of(d, op, n_op, max);
    if (max->n_tok < 1 || max->n_seq < 1 || max->n_ctx < 1)
        return SL_FAIL(err, REQUEST, "workspace: %d tokens, %d sequences, %d positions", max->n_tok,
                       max->n_seq, max->n_ctx);
    return d->cls->reserve(d, &s, err);
}

int64_t dev_keep_bytes(const dev *d, const struct dev_attn_mla *p, int n_layer, int n_ctx)
{
    struct dev_shapes s = {.max = {.n_ctx = n_ctx}};
    add_mla(&s, p);
    s.n_layer = n_layer;
    return d->cls->keep_bytes(d, &s);
}
