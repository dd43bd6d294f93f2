/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by a state: gated DeltaNet (Qwen3-Next), Kimi Delta Attention. A token's queries, keys,
 * values and gates lie in one row, in the order of the file's matrices: all queries, all keys and
 * so on, or all of a key head together. */
#include "model/emit.h"

int64_t model_delta_cols(const struct arch_cfg *c)
{
    return arch_delta_channels(c) +
           (int64_t)c->n_delta_v * (c->d_delta_v + 1 + arch_delta_decays(c));
}

/* Rows that begin at value at of the token's. */
static struct dev_heads heads(const struct emit *e, int64_t at, int64_t key, int64_t val)
{
    return (struct dev_heads){e->side->mix + at, model_delta_cols(&e->m->cfg), key, val};
}

/* In matrices of their own: each is by heads, values in their own order. */
static void place_apart(const struct emit *e, struct dev_delta *p)
{
    int64_t n = p->n_k, dk = p->d_k, dv = p->d_v, each = p->n_v / p->n_k, V = p->n_v * dv;
    int64_t na = arch_delta_decays(&e->m->cfg);
    int64_t key = p->tiled ? 1 : each, val = p->tiled ? n : 1, at = 2 * n * dk;
    p->q = heads(e, 0, dk, 0);
    p->k = heads(e, n * dk, dk, 0);
    p->v = heads(e, at, key * dv, val * dv);
    p->z = heads(e, at + V, key * dv, val * dv);
    p->b = heads(e, at + 2 * V, key, val);
    p->a = heads(e, at + 2 * V + p->n_v, key * na, val * na);
}

/* b and a of a key head together. */
static void place_ba(const struct emit *e, struct dev_delta *p)
{
    int64_t each = p->n_v / p->n_k, at = model_delta_cols(&e->m->cfg) - 2 * p->n_v;
    p->b = heads(e, at, 2 * each, 1);
    p->a = heads(e, at + each, 2 * each, 1);
}

/* So its queries, keys, values and gates. */
static void place_qkvz(const struct emit *e, struct dev_delta *p)
{
    int64_t dk = p->d_k, dv = p->d_v, V = p->n_v / p->n_k * dv, key = 2 * dk + 2 * V;
    p->q = heads(e, 0, key, 0);
    p->k = heads(e, dk, key, 0);
    p->v = heads(e, 2 * dk, key, dv);
    p->z = heads(e, 2 * dk + V, key, dv);
}

/* All matrices that there are, side by side. */
static void inputs(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    struct dev_matmul p = {.act = s->a_attn};
    int64_t ld = model_delta_cols(&e->m->cfg), at = 0;
    for (int i = 0; i < BASE_COUNT_OF(l->in); i++) {
        if (!l->in[i]) continue;
        p.w[p.n_mat] = l->in[i];
        p.y[p.n_mat] = s->mix + at;
        p.ldy[p.n_mat++] = ld;
        at += dev_mat_rows(l->in[i]);
    }
    ASSERT(at == ld);
    model_op(e, DEV_OP_matmul)->u.matmul = p;
}

/* Where the row has those values, to be written: heads are for those who read them. */
static float *at_of(const struct emit *e, const struct dev_heads *h)
{
    return e->side->mix + (h->p - e->side->mix);
}

/* A product of n of the values in low, from value at on: all of y. */
static void through(struct emit *e, int at, int n, dev_act *act, const dev_mat *w, float *y)
{
    const struct arch_cfg *c = &e->m->cfg;
    EMIT(e, prep, .x = e->side->low + at, .n = n, .ldx = c->d_delta_k + c->d_delta_v, .act = act);
    EMIT(e, matmul, .act = act, .n_mat = 1, .w = {w}, .y = {y}, .ldy = {model_delta_cols(c)});
}

/* Each from a matrix of its own; a and z, where they are not whole, by way of a few values. */
static void kda_inputs(struct emit *e, const struct layer *l, const struct dev_delta *p)
{
    const struct side *s = e->side;
    int64_t ld = model_delta_cols(&e->m->cfg), low = p->d_k + p->d_v;
    EMIT(e, matmul, .act = s->a_attn, .n_mat = 4, .w = {l->in[0], l->in[1], l->in[2], l->in[3]},
         .y = {at_of(e, &p->q), at_of(e, &p->k), at_of(e, &p->v), at_of(e, &p->b)},
         .ldy = {ld, ld, ld, ld});
    if (!l->a_of) {
        EMIT(e, matmul, .act = s->a_attn, .n_mat = 2, .w = {l->in[4], l->in[5]},
             .y = {at_of(e, &p->a), at_of(e, &p->z)}, .ldy = {ld, ld});
        return;
    }
    EMIT(e, matmul, .act = s->a_attn, .n_mat = 2, .w = {l->in[4], l->in[5]},
         .y = {s->low, s->low + p->d_k}, .ldy = {low, low});
    through(e, 0, p->d_k, s->a_a, l->a_of, at_of(e, &p->a));
    through(e, p->d_k, p->d_v, s->a_z, l->z_of, at_of(e, &p->z));
}

void model_delta_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    struct model_kv_place at = model_kv_here(e->m, e->layer);
    struct dev_delta p = {.group = at.group,
                          .layer = at.layer,
                          .n_k = c->n_delta_k,
                          .n_v = c->n_delta_v,
                          .d_k = c->d_delta_k,
                          .d_v = c->d_delta_v,
                          .n_conv = c->n_conv,
                          .tiled = c->delta_tiled,
                          .each = c->kda,
                          .sigmoid = c->kda,
                          .conv = l->conv,
                          .decay = l->decay,
                          .dt = l->dt,
                          .norm = l->out_norm,
                          .eps = c->norm_eps,
                          .bound = c->delta_bound,
                          .y = s->y};
    place_apart(e, &p);
    if (c->kda) {
        kda_inputs(e, l, &p);
    } else {
        inputs(e, l);
        if (dev_mat_rows(l->in[0]) > arch_delta_channels(c)) place_qkvz(e, &p);
        if (!l->in[3]) place_ba(e, &p);
    }
    model_op(e, DEV_OP_delta)->u.delta = p;
}
