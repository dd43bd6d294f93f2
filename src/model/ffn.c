/* SPDX-License-Identifier: Apache-2.0 */
/* Feed-forward blocks: dense, and routed experts with shared ones beside them. */
#include "model/emit.h"

static void gated(struct emit *e, const struct layer *l, float *y, enum model_tap_in in)
{
    const struct model *m = e->m;
    int n_ff = dev_mat_cols(l->down);
    EMIT(e, ffn, .act = m->a_ffn, .gate_up = l->gate_up, .down = l->down, .h_act = m->a_h,
         .h = m->h, .y = y, .keep_h = e->tap.fn != NULL);
    model_tap_emit(e, in, m->h, n_ff, n_ff);
}

void model_dense_emit(struct emit *e, const struct layer *l)
{
    gated(e, l, e->m->r, MODEL_TAP_DOWN);
}

void model_moe_emit(struct emit *e, const struct layer *l)
{
    struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    struct dev_tap tap = e->tap;
    tap.what = MODEL_TAP_DOWN_EXPS;
    tap.layer = e->layer;
    EMIT(e, matmul, .act = m->a_ffn, .n_mat = 1, .w = {l->router}, .bias = {l->router_add},
         .y = {m->logit_r});
    EMIT(e, route, .logit = m->logit_r, .bias = l->router_bias, .n_expert = c->n_expert,
         .k = c->n_expert_used, .sigmoid = c->route_sigmoid, .n_group = c->n_group,
         .k_group = c->n_group_used, .group_max = c->group_max, .norm = c->route_norm,
         .scale = c->route_scale, .id = m->id_r, .weight = m->weight_r,
         .count = m->n_routed + (size_t)e->layer * (size_t)c->n_expert);
    if (l->gate_up) gated(e, l, m->shared, MODEL_TAP_DOWN_SHEXP);
    EMIT(e, moe, .act = m->a_ffn, .k = c->n_expert_used, .n_expert = c->n_expert, .id = m->id_r,
         .weight = m->weight_r, .slots = m->slots.n ? &m->slots : NULL, .gate_up = l->gate_up_exps,
         .down = l->down_exps, .glu = {c->glu.limit, c->glu.alpha, c->glu.plus1},
         .gate_up_bias = l->gate_up_bias, .down_bias = l->down_bias,
         .add = l->gate_up ? m->shared : NULL, .y = m->r, .tap = tap);
}
