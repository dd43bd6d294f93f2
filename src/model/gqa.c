/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with keys and values per head, shared by groups of query heads. */
#include "model/emit.h"

/* n values of a token, d at once: a head, or more of them. */
static void qk_norm(struct emit *e, float *x, const float *w, int n, int d)
{
    EMIT(e, norm, .x = x, .w = w, .eps = e->m->cfg.norm_eps, .n = d, .n_head = n / d, .y = x);
}

/* The queries of heads that have a gate after each leave it there. */
static void gated_norm(struct emit *e, const struct layer *l)
{
    int d = e->m->cfg.d_head;
    EMIT(e, norm, .x = e->side->qg, .w = l->q_norm, .eps = e->m->cfg.norm_eps, .n = d,
         .n_head = e->m->dims.n_head, .ldx = 2 * d, .ldy = d, .y = e->side->q);
}

static void gate(struct emit *e, float *y)
{
    int d = e->m->cfg.d_head, H = e->m->dims.n_head;
    EMIT(e, gate, .x = y, .g = e->side->qg + d, .n = d, .n_head = H, .ldg = 2ll * H * d,
         .ldg_h = 2ll * d);
}

/* Products of the layer's input for its indexer: the key, and the queries where any token sees some
 * blocks only. */
static void index_inputs(struct emit *e, const struct layer *l, bool queries)
{
    const struct side *s = e->side;
    EMIT(e, matmul, .act = s->a_attn, .n_mat = queries ? 2 : 1,
         .w = {l->index_k, queries ? l->index_q : NULL}, .y = {s->index_k, s->index_q});
    model_index_key(e, l);
}

void model_gqa_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    const struct model_dims *d = &e->m->dims;
    int nq = d->n_head * c->d_head, nk = d->n_head_kv * c->d_head;
    bool sparse = model_index_is_sparse(e->m, e->layer);
    if (e->entries)
        EMIT(e, matmul, .act = s->a_attn, .n_mat = 2, .w = {l->k, l->v}, .y = {s->k, s->v});
    else
        EMIT(e, matmul, .act = s->a_attn, .n_mat = 3, .w = {l->q, l->k, l->v},
             .y = {c->attn_gate ? s->qg : s->q, s->k, s->v});
    if (c->attn_gate && !e->entries)
        gated_norm(e, l);
    else if (l->q_norm && !e->entries)
        qk_norm(e, s->q, l->q_norm, nq, c->d_q_norm);
    if (l->q_norm) qk_norm(e, s->k, l->k_norm, nk, c->d_k_norm);
    if (!e->entries) model_rope_emit(e, s->q, d->n_head, nq, c->d_head);
    model_rope_emit(e, s->k, d->n_head_kv, nk, c->d_head);
    if (l->index_k) index_inputs(e, l, sparse && !e->entries);
    struct model_kv_place at = model_kv_here(e->m, e->layer);
    EMIT(e, kv_put, .group = at.group, .layer = at.layer, .k = s->k, .v = s->v,
         .i = l->index_k ? s->index_k : NULL, .ldk = nk, .ldv = nk, .ldi = c->d_index);
    if (e->entries) return;
    if (sparse) model_index_pick(e, l, at);
    EMIT(e, attn, .group = at.group, .layer = at.layer, .n_head = d->n_head, .d_k = c->d_head,
         .d_v = c->d_head, .scale = (float)c->attn_scale, .q = s->q,
         .y = model_cols_of(e, s->y, s->y_cols), .n_window = l->n_window, .per_head = l->per_head,
         .some = {l->index_k ? c->index_blk : 0, sparse ? c->index_top / c->index_blk : 0,
                  sparse ? s->pick : NULL});
    if (c->attn_gate) gate(e, s->y);
}
