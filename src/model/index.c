/* SPDX-License-Identifier: Apache-2.0 */
/* Lightning indexers: their keys, which lie in the cache, and what they choose: positions for
 * attention over latents, blocks for each head of keys elsewhere. */
#include "model/emit.h"

/* Of the layer norm of keys beside latents, in the published code too. */
#define INDEX_EPS 1e-6f

bool model_index_is_sparse(const struct model *m, int il)
{
    const struct arch_cfg *c = &m->cfg;
    int every = BASE_MAX(c->index_pool, 1);
    return c->layer[il].index && m->opts.n_ctx / every > c->index_top / every;
}

int model_index_cols(const struct arch_cfg *c, const struct model_dims *d)
{
    if (c->index_blk) return d->n_head_kv * (c->index_top / c->index_blk);
    return c->index_top / BASE_MAX(c->index_pool, 1);
}

/* The first values of a key, or of every head of queries. */
static void rotate(struct emit *e, float *x, int n_head)
{
    int d = e->m->cfg.d_index;
    if (e->m->cfg.no_rope) return;
    model_rope_emit(e, x, n_head, (int64_t)n_head * d, d);
    e->op[e->n - 1].u.rope.style = e->m->cfg.index_rope == ARCH_ROPE_PAIRS;
}

void model_index_key(struct emit *e, const struct layer *l)
{
    const struct arch_cfg *c = &e->m->cfg;
    float *k = e->side->index_k;
    EMIT(e, norm, .x = k, .w = l->index_norm, .b = l->index_bias,
         .eps = c->index_blk ? c->norm_eps : INDEX_EPS, .n = c->d_index, .y = k);
    rotate(e, k, 1);
}

void model_index_pool(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    struct model_kv_place raw = model_kv_raw_here(e->m, e->layer),
                          at = model_kv_entries_here(e->m, e->layer);
    EMIT(e, compress, .raw_group = raw.group, .raw_layer = raw.layer, .group = at.group,
         .layer = at.layer, .index = true, .d = c->d_index, .every = c->index_pool,
         .c = s->index_k, .z = s->entry[3], .ape = l->index_entry.ape);
}

/* The layer's own: heads of its own rank, where every key head chooses. */
static void choose(struct emit *e, const struct layer *l, struct model_kv_place at)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int blk = c->index_blk, n_head = blk ? e->m->dims.n_head_kv : c->n_index;
    if (c->index_pool) at = model_kv_entries_here(e->m, e->layer);
    if (l->index_q_norm)
        EMIT(e, norm, .x = s->index_q, .w = l->index_q_norm, .eps = c->norm_eps, .n = c->d_index,
             .n_head = n_head, .y = s->index_q);
    rotate(e, s->index_q, n_head);
    EMIT(e, index, .group = at.group, .layer = at.layer, .n_head = n_head, .d = c->d_index,
         .top = c->index_top / BASE_MAX(BASE_MAX(blk, c->index_pool), 1), .blk = blk,
         .n_local = c->index_local, .every = c->index_pool, .q = s->index_q,
         .w = blk ? NULL : s->index_w, .pick = s->pick);
    e->picked[0] = s;
    e->n_picked = 1;
}

/* What the layer's indexer chooses, or that of the last one that did, which comes to the layer's
 * side unless it is there. */
void model_index_pick(struct emit *e, const struct layer *l, struct model_kv_place at)
{
    const struct side *s = e->side;
    int i = 0;
    if (l->index_q) choose(e, l, at);
    while (i < e->n_picked && e->picked[i] != s)
        i++;
    if (i < e->n_picked) return;
    model_move_emit(e, (struct at){e->picked[0], e->picked[0]->pick}, (struct at){s, s->pick},
                    model_index_cols(&e->m->cfg, &e->m->dims), false);
    e->picked[e->n_picked++] = s;
}

sl_status model_index_check(const struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    const struct model_dims *d = &m->dims;
    int own = -1;
    for (int il = d->layer0; il < d->layer0 + d->n_layer; il++) {
        if (c->layer[il].index == ARCH_INDEX_OWN) own = il;
        bool shared = c->layer[il].index == ARCH_INDEX_SHARED && model_index_is_sparse(m, il);
        if (!shared || own >= 0) continue;
        return SL_FAIL(err, UNSUPPORTED,
                       "layer %d sees what the indexer of one before it chooses: a stage can not "
                       "begin with it",
                       il);
    }
    return SL_OK;
}
