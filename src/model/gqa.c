/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with keys and values per head, shared by groups of query heads. */
#include "model/emit.h"

/* Each head for itself, or all heads at once. */
static void qk_norm(struct emit *e, float *x, const float *w, int n_head)
{
    const struct arch_cfg *c = &e->m->cfg;
    bool whole = c->qk_norm_whole;
    EMIT(e, norm, .x = x, .w = w, .eps = c->norm_eps, .n = whole ? n_head * c->d_head : c->d_head,
         .n_head = whole ? 1 : n_head, .y = x);
}

void model_gqa_emit(struct emit *e, const struct layer *l)
{
    const struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    int nq = c->n_head * c->d_head, nk = c->n_head_kv * c->d_head;
    EMIT(e, matmul, .act = m->a_attn, .n_mat = 3, .w = {l->q, l->k, l->v},
         .bias = {l->q_bias, l->k_bias, l->v_bias}, .y = {m->q, m->k, m->v});
    if (l->q_norm) {
        qk_norm(e, m->q, l->q_norm, c->n_head);
        qk_norm(e, m->k, l->k_norm, c->n_head_kv);
    }
    model_rope_emit(e, m->q, c->n_head, nq, c->d_head);
    model_rope_emit(e, m->k, c->n_head_kv, nk, c->d_head);
    struct model_kv_place at = model_kv_place(c, e->layer);
    EMIT(e, kv_put, .group = at.group, .layer = at.layer, .k = m->k, .v = m->v, .ldk = nk,
         .ldv = nk);
    EMIT(e, attn, .group = at.group, .layer = at.layer, .n_head = c->n_head,
         .scale = (float)c->attn_scale, .q = m->q, .y = m->y, .n_window = l->n_window,
         .sink = l->sink);
}
