/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over rows of one head that are keys and values at once, of a window, and over entries
 * that stand for windows of tokens (DeepSeek-V4). The last n_rot values of a row are rotated by its
 * position, and so the same ones of what attention gives, which are rotated back by the query's.
 *
 * Rows of positions, and what entries are made of, are in the cache as long as a window sees them;
 * entries stay. So all that a token sees follows from the tokens before it, however these were
 * divided among steps. */
#include "model/emit.h"

/* The frequencies of a layer, and what cosines and sines are multiplied by. */
static void rotate(struct emit *e, float *x, int n_head, int d, bool back)
{
    const struct arch_cfg *c = &e->m->cfg;
    bool entries = c->layer[e->layer].ratio > 0;
    EMIT(e, rope, .x = x + d - c->n_rot, .n_head = n_head, .ldx = (int64_t)n_head * d, .ldx_h = d,
         .n_rot = c->n_rot, .style = 1, .freq = entries ? e->m->entry_freq : e->m->rope_freq,
         .mscale = entries ? (float)c->yarn_mscale : 1.0f, .back = back);
}

/* Products of the layer's input by those of n matrices that are there, by as many at a time as one
 * operator has. */
static void products(struct emit *e, int n, const dev_mat *const *w, float *const *y)
{
    struct dev_matmul *p = NULL;
    for (int i = 0; i < n; i++) {
        if (!w[i]) continue;
        if (!p || p->n_mat == DEV_MATMUL_MAX) {
            p = &model_op(e, DEV_OP_matmul)->u.matmul;
            *p = (struct dev_matmul){.act = e->side->a_attn};
        }
        p->w[p->n_mat] = w[i];
        p->y[p->n_mat++] = y[i];
    }
}

static void inputs(struct emit *e, const struct layer *l, bool chooses)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    float *row = model_tap_row(e);
    const dev_mat *w[] = {l->kv_a,
                          e->entries ? NULL : l->q_a,
                          l->entry.kv,
                          l->entry.gate,
                          l->index_entry.kv,
                          l->index_entry.gate,
                          chooses ? l->index_w : NULL};
    float *y[] = {s->k, s->qa, s->entry[0], s->entry[1], s->entry[2], s->entry[3], s->index_w};
    products(e, BASE_COUNT_OF(w), w, y);
    if (e->entries) return;
    EMIT(e, norm, .x = s->qa, .w = l->q_a_norm, .eps = c->norm_eps, .n = c->q_lora,
         .act = s->a_q_a, .y = row);
    model_tap_emit(e, MODEL_TAP_Q_B, row, c->q_lora, c->q_lora);
    EMIT(e, matmul, .act = s->a_q_a, .n_mat = chooses ? 2 : 1,
         .w = {l->q_b, chooses ? l->index_q : NULL}, .y = {s->q, chooses ? s->index_q : NULL});
    EMIT(e, norm, .x = s->q, .w = l->head_one, .eps = c->norm_eps, .n = c->d_head,
         .n_head = c->n_head, .y = s->q);
    rotate(e, s->q, c->n_head, c->d_head, false);
}

/* The entries that the step's tokens end: of attention, and of its indexer. */
static void compress(struct emit *e, const struct layer *l, const struct model_kv_place at[2])
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    bool overlap = c->layer[e->layer].index == ARCH_INDEX_OWN;
    for (int i = 0; i < 1 + overlap; i++) {
        const struct entries *x = i ? &l->index_entry : &l->entry;
        EMIT(e, compress, .raw_group = at[0].group, .raw_layer = at[0].layer,
             .raw_at = i ? dev_compress_raw(c->d_head, overlap) : 0, .group = at[1].group,
             .layer = at[1].layer, .index = i, .overlap = overlap,
             .d = i ? c->d_index : c->d_head, .every = c->layer[e->layer].ratio,
             .c = s->entry[2 * i], .z = s->entry[2 * i + 1], .ape = x->ape, .norm = x->norm,
             .eps = c->norm_eps, .n_rot = c->n_rot, .freq = e->m->entry_freq,
             .mscale = (float)c->yarn_mscale);
    }
}

/* Heads in groups, each of which makes o_lora values: y has those of all. */
static void join_groups(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int64_t nq = (int64_t)c->n_head * c->d_head, no = (int64_t)c->o_groups * c->o_lora;
    EMIT(e, matmul_heads, .w = l->o_a, .n_head = c->o_groups, .x = s->heads, .ldx = nq,
         .ldx_h = nq / c->o_groups, .y = s->y, .ldy = no, .ldy_h = c->o_lora);
}

void model_ckv_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int ratio = c->layer[e->layer].ratio, d = c->d_head;
    bool own = c->layer[e->layer].index == ARCH_INDEX_OWN;
    bool chooses = own && !e->entries && e->m->opts.n_ctx / ratio > c->index_top;
    struct model_kv_place at[2] = {model_kv_here(e->m, e->layer),
                                   model_kv_entries_here(e->m, e->layer)};
    inputs(e, l, chooses);
    EMIT(e, norm, .x = s->k, .w = l->kv_a_norm, .eps = c->norm_eps, .n = d, .y = s->k);
    rotate(e, s->k, 1, d, false);
    EMIT(e, kv_put, .group = at[0].group, .layer = at[0].layer, .k = s->k, .ldk = d);
    if (ratio) compress(e, l, at);
    if (e->entries) return;
    if (chooses) {
        rotate(e, s->index_q, c->n_index, c->d_index, false);
        EMIT(e, index, .group = at[1].group, .layer = at[1].layer, .n_head = c->n_index,
             .d = c->d_index, .top = c->index_top, .every = ratio, .q = s->index_q,
             .w = s->index_w, .pick = s->pick);
    }
    EMIT(e, attn_ckv, .group = at[0].group, .layer = at[0].layer, .n_head = c->n_head, .d = d,
         .scale = (float)c->attn_scale, .q = s->q, .y = s->heads,
         .sink = l->per_head.of[PER_HEAD_SINKS], .n_window = l->n_window, .more = at[1].group,
         .more_layer = at[1].layer, .every = ratio, .pick = chooses ? s->pick : NULL,
         .n_pick = chooses ? c->index_top : 0);
    rotate(e, s->heads, c->n_head, d, true);
    join_groups(e, l);
}
