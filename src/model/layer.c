/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer layer and the head: what layers of all kinds have in common, and which emitter
 * makes which kind. */
#include "model/emit.h"

typedef void emit_fn(struct emit *e, const struct layer *l);

static emit_fn *const mixer[] = {[ARCH_GQA] = model_gqa_emit, [ARCH_MLA] = model_mla_emit};
static emit_fn *const ffn[] = {[ARCH_DENSE] = model_dense_emit, [ARCH_MOE] = model_moe_emit};

struct dev_op *model_op(struct emit *e, enum dev_op_kind kind)
{
    ASSERT(e->n < e->n_max);
    struct dev_op *op = &e->op[e->n++];
    *op = (struct dev_op){.kind = kind, .layer = e->layer};
    return op;
}

void model_rope_emit(struct emit *e, float *x, int n_head, int64_t ldx, int64_t ldx_h)
{
    const struct arch_cfg *c = &e->m->cfg;
    EMIT(e, rope, .x = x, .n_head = n_head, .ldx = ldx, .ldx_h = ldx_h, .n_rot = c->n_rot,
         .style = c->rope_style == ARCH_ROPE_PAIRS, .freq = e->m->rope_freq,
         .mscale = (float)c->yarn_mscale);
}

void model_layer_emit(struct emit *e, const struct layer *l, int il, bool first)
{
    const struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    int D = c->d_model, n_o = dev_mat_cols(l->o);
    float *row = model_tap_row(e);
    e->layer = il;
    EMIT(e, norm, .x = m->x, .r = first ? NULL : m->r, .w = l->attn_norm, .eps = c->norm_eps,
         .n = D, .y = row, .act = m->a_attn);
    model_tap_emit(e, MODEL_TAP_ATTN, row, D, D);
    mixer[c->layer[il].mixer](e, l);
    model_tap_emit(e, MODEL_TAP_O, m->y, n_o, n_o);
    EMIT(e, prep, .x = m->y, .n = n_o, .act = m->a_o);
    EMIT(e, matmul, .act = m->a_o, .n_mat = 1, .w = {l->o}, .bias = {l->o_bias}, .y = {m->r});
    EMIT(e, norm, .x = m->x, .r = m->r, .w = l->ffn_norm, .eps = c->norm_eps, .n = D, .y = row,
         .act = m->a_ffn);
    model_tap_emit(e, MODEL_TAP_FFN, row, D, D);
    ffn[c->layer[il].ffn](e, l);
    e->layer = -1;
}

void model_head_emit(struct emit *e, const float *norm, const dev_mat *head)
{
    const struct model *m = e->m;
    int D = m->cfg.d_model;
    EMIT(e, norm, .x = m->x, .r = m->r, .w = norm, .eps = m->cfg.norm_eps, .n = D, .y = m->hidden);
    e->layer = e->tap.fn ? m->cfg.n_layer : -1;
    model_tap_emit(e, MODEL_TAP_HEAD, m->hidden, D, D);
    e->layer = -1;
    EMIT(e, rows, .x = m->hidden, .n = D, .act = m->a_head);
    EMIT(e, matmul, .act = m->a_head, .n_row = DEV_ROWS_WANTED, .n_mat = 1, .w = {head},
         .y = {m->logits});
}
