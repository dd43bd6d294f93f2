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

/* Products of the layer's input; values that are keys are taken before these are normed. */
static void inputs(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    float *q = e->m->cfg.attn_gate ? s->qg : s->q;
    if (e->entries)
        EMIT(e, matmul, .act = s->a_attn, .n_mat = l->v ? 2 : 1, .w = {l->k, l->v},
             .y = {s->k, l->v ? s->v : NULL});
    else
        EMIT(e, matmul, .act = s->a_attn, .n_mat = l->v ? 3 : 2, .w = {l->q, l->k, l->v},
             .y = {q, s->k, l->v ? s->v : NULL});
}

/* Heads of queries, keys and values are normed, as far as they are. */
static void norms(struct emit *e, const struct layer *l, int d, int n_kv)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int nq = e->m->dims.n_head * d, nk = n_kv * d;
    if (c->attn_gate && !e->entries)
        gated_norm(e, l);
    else if (l->q_norm && !e->entries)
        qk_norm(e, s->q, l->q_norm, nq, c->d_q_norm ? c->d_q_norm : d);
    if (c->v_norm && !l->v)
        EMIT(e, norm, .x = s->k, .w = l->head_one, .eps = c->norm_eps, .n = d, .n_head = n_kv,
             .y = s->v);
    if (l->q_norm) qk_norm(e, s->k, l->k_norm, nk, c->d_k_norm ? c->d_k_norm : d);
    if (c->v_norm && l->v) qk_norm(e, s->v, l->head_one, nk, d);
}

void model_gqa_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    const struct model_dims *d = &e->m->dims;
    int dh = arch_d_head(c, e->layer), n_head = d->n_head;
    int n_kv = arch_is_win(c, e->layer) ? c->n_head_kv_win : d->n_head_kv;
    int nq = n_head * dh, nk = n_kv * dh;
    bool sparse = model_index_is_sparse(e->m, e->layer);
    inputs(e, l);
    norms(e, l, dh, n_kv);
    if (!e->entries) model_rope_emit(e, s->q, n_head, nq, dh);
    model_rope_emit(e, s->k, n_kv, nk, dh);
    if (l->index_k) index_inputs(e, l, sparse && !e->entries);
    struct model_kv_place at = model_kv_here(e->m, e->layer);
    EMIT(e, kv_put, .group = at.group, .layer = at.layer, .k = s->k, .v = s->v,
         .i = l->index_k ? s->index_k : NULL, .ldk = nk, .ldv = nk, .ldi = c->d_index);
    if (e->entries) return;
    if (sparse) model_index_pick(e, l, at);
    EMIT(e, attn, .group = at.group, .layer = at.layer, .n_head = n_head, .d_k = dh, .d_v = dh,
         .scale = (float)c->attn_scale, .q = s->q, .y = model_cols_of(e, s->y, s->y_cols),
         .n_window = l->n_window, .per_head = l->per_head,
         .some = {l->index_k ? c->index_blk : 0, sparse ? c->index_top / c->index_blk : 0,
                  sparse ? s->pick : NULL});
    if (c->attn_gate) gate(e, s->y);
}
