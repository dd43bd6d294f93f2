/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that come late: of a generated token those of the smallest weights take the input of
 * their layer, but what they give is added to what the experts of the next layer with experts give.
 * So their device computes them while another one is at the attention between. Prompts have all
 * experts in time: no chunk changes an answer. */
#include "model/emit.h"

/* The next layer with experts after il; -1: none is. */
static int next_moe(const struct arch_cfg *c, int il)
{
    for (int i = il + 1; i < c->n_layer; i++)
        if (c->layer[i].ffn == ARCH_MOE) return i;
    return -1;
}

int model_n_late(const struct model *m, int il)
{
    return next_moe(&m->cfg, il) >= 0 ? m->opts.n_late : 0;
}

sl_status model_late_check(const struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int n = m->opts.n_late, first = next_moe(c, -1);
    if (!n) return SL_OK;
    if (first < 0) return SL_FAIL(err, REQUEST, "defer: %d: no layer of this model has experts", n);
    if (next_moe(c, first) < 0)
        return SL_FAIL(err, REQUEST, "defer: %d: no layer with experts follows another one", n);
    if (n < 0 || n > c->n_expert_used)
        return SL_FAIL(err, REQUEST, "defer: %d: of this model a token has %d experts", n,
                       c->n_expert_used);
    if (m->dims.n_rank > 1 || model_is_own(m))
        return SL_FAIL(err, UNSUPPORTED,
                       "defer: %d: not where ranks share layers (tp, dp, ep of the layout)", n);
    return SL_OK;
}

/* Between stages: what comes late of layers before il is added in one from there on. */
static bool crosses(const struct model *m, int il)
{
    int first = next_moe(&m->cfg, -1);
    return m->opts.n_late && first >= 0 && first < il && next_moe(&m->cfg, il - 1) >= 0;
}

struct side *model_late_in(const struct model *m)
{
    const struct model_dims *d = &m->dims;
    if (!crosses(m, d->layer0)) return NULL;
    int il = next_moe(&m->cfg, d->layer0 - 1);
    return il < d->layer0 + d->n_layer ? model_side_in(m, il, MODEL_EXPERTS)
                                       : model_side(m, MODEL_ATTN);
}

struct side *model_late_out(const struct model *m)
{
    const struct model_dims *d = &m->dims;
    if (!crosses(m, d->layer0 + d->n_layer)) return NULL;
    for (int il = d->layer0 + d->n_layer - 1; il >= d->layer0; il--)
        if (m->cfg.layer[il].ffn == ARCH_MOE) return model_side_in(m, il, MODEL_EXPERTS);
    return model_late_in(m);
}

float *model_late_rows(const struct model *m, const struct side *s)
{
    return dev_is_host(s->d) ? s->late : m->stage_late;
}

void model_late_emit(struct emit *e)
{
    struct late *t = &e->late;
    const struct side *before = e->side;
    int layer = e->layer;
    if (!t->l) return;
    e->side = t->side;
    e->layer = t->layer;
    struct dev_moe p = model_moe_of(e, t->side, t->l, t->chosen);
    p.n_late = model_n_late(e->m, t->layer);
    p.late = true;
    p.y = t->side->late;
    bool is_rest = model_hot_rest(e, &p);
    struct dev_op *op = model_op(e, DEV_OP_moe);
    op->beside = true;
    op->u.moe = p;
    if (is_rest) model_hot_sum(e, t->side, &p)->beside = true;
    e->side = before;
    e->layer = layer;
    t->l = NULL;
}

const float *model_late_take(struct emit *e, const struct side *to)
{
    const struct side *from = e->late.side;
    if (!from) return NULL;
    model_late_emit(e);
    model_move_emit(e, (struct at){from, from->late}, (struct at){to, to->late}, e->m->cfg.d_model,
                    false);
    e->late.side = NULL;
    return to->late;
}
