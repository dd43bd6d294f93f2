/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention (DeepSeek-V2 2.1): the cache holds one normed latent of kv_lora
 * values and one rotated key of d_rope values per token, which in some models is not rotated.
 *
 * Two forms of the same sum: absorbed (attention over latents; W_kb applied to the query and W_vb
 * to the result), and materialised (keys and values of the context are made from the latents). Per
 * query-key pair and head the absorbed form costs 2 * (2r + rope) operations, the other 2 * (nope +
 * rope + v) plus 2r * (nope + v) per key shared by the queries of the chunk. They differ in the
 * last bits, so the form of a token depends on its position in the prompt alone, never on the
 * chunking: prompt tokens from expand_from on are materialised, generated tokens never are.
 */
#include <limits.h>

#include "model/emit.h"

/* The norms of both latents have this epsilon whatever rms_norm_eps says, where a configuration has
 * no other one: the published code makes them without naming one, and this is its default. */
#define LATENT_EPS 1e-6f

static float latent_eps(const struct arch_cfg *c)
{
    return c->latent_eps > 0 ? c->latent_eps : LATENT_EPS;
}

/* Materialising pays when at least crit = r * (nope + v) / (2r - nope - v) queries share a key. A
 * prompt in one chunk breaks even when it is a little longer than where it begins to be
 * materialised; much earlier than crit would only keep short answers from being found again as
 * parts of the next prompt. */
int model_mla_expand_from(const struct arch_cfg *c)
{
    int64_t gain = 2ll * c->kv_lora - c->d_nope - c->d_v;
    if (gain <= 0) return INT_MAX;
    int64_t crit = (int64_t)c->kv_lora * (c->d_nope + c->d_v) / gain;
    int64_t at = (crit + 64) / 128 * 128;
    return at > INT_MAX ? INT_MAX : (int)at;
}

/* Products of the layer's input, with those of its indexer, where it has one. */
static void inputs(struct emit *e, const struct layer *l, struct dev_matmul p)
{
    const struct side *s = e->side;
    p.act = s->a_attn;
    const dev_mat *w[] = {l->index_k, l->index_entry.gate, e->entries ? NULL : l->index_w};
    float *y[] = {s->index_k, s->entry[3], s->index_w};
    for (int i = 0; i < BASE_COUNT_OF(w); i++) {
        if (!w[i]) continue;
        if (p.n_mat == DEV_MATMUL_MAX) {
            model_op(e, DEV_OP_matmul)->u.matmul = p;
            p = (struct dev_matmul){.act = p.act, .ranks = p.ranks, .room = p.room};
        }
        p.whole |= 1u << p.n_mat;
        p.w[p.n_mat] = w[i];
        p.y[p.n_mat++] = y[i];
    }
    model_op(e, DEV_OP_matmul)->u.matmul = p;
}

/* A prompt's tokens come to the same cost there whether they see a few positions, absorbed, or all,
 * materialised, of which most weigh nothing. */
int model_mla_mask_until(const struct arch_cfg *c)
{
    int64_t made = c->d_nope + c->d_rope + c->d_v, absorbed = 2ll * c->kv_lora + c->d_rope;
    int64_t at = c->index_top * absorbed / BASE_MAX(made, 1) / 128 * 128;
    return (int)BASE_MIN(at, INT_MAX);
}

static void queries(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    const struct dev_ranks *ranks = model_shares_of(e);
    float *row = model_tap_row(e);
    if (e->entries) {
        inputs(e, l,
               (struct dev_matmul){.n_mat = 1,
                                   .w = {l->kv_a},
                                   .y = {s->k},
                                   .ranks = ranks,
                                   .whole = 1,
                                   .room = s->whole});
        return;
    }
    if (!c->q_lora) {
        EMIT(e, matmul, .act = s->a_attn, .n_mat = 2, .w = {l->q, l->kv_a}, .y = {s->q, s->k},
             .ranks = ranks, .whole = 1u << 1, .room = s->whole);
        return;
    }
    inputs(e, l,
           (struct dev_matmul){.n_mat = 2,
                               .w = {l->q_a, l->kv_a},
                               .y = {s->qa, s->k},
                               .ranks = ranks,
                               .whole = 3,
                               .own = 1,
                               .room = s->whole});
    EMIT(e, norm, .x = s->qa, .w = l->q_a_norm, .eps = latent_eps(c), .n = c->q_lora,
         .act = s->a_q_a, .y = row, .ranks = ranks, .all = {l->q_b, l->index_q});
    model_tap_emit(e, MODEL_TAP_Q_B, row, c->q_lora, c->q_lora);
    EMIT(e, matmul, .act = s->a_q_a, .n_mat = l->index_q ? 2 : 1, .w = {l->q_b, l->index_q},
         .y = {s->q, l->index_q ? s->index_q : NULL});
}

/* What heads said is multiplied by. */
static void gate(struct emit *e, const struct layer *l, float *y)
{
    const struct side *s = e->side;
    int H = e->m->dims.n_head;
    EMIT(e, matmul, .act = s->a_attn, .n_mat = 1, .w = {l->head_gate}, .y = {s->head_gate});
    EMIT(e, gate, .x = y, .g = s->head_gate, .n = e->m->cfg.d_v, .n_head = H, .ldg = H, .ldg_h = 1,
         .one = true);
}

/* The key that all heads share, and their queries' part of it. */
static void rotate(struct emit *e, const struct side *s, int n_head)
{
    const struct arch_cfg *c = &e->m->cfg;
    int64_t row = c->kv_lora + c->d_rope, d = c->d_head;
    if (c->no_rope) return;
    model_rope_emit(e, s->k + c->kv_lora, 1, row, row);
    if (!e->entries) model_rope_emit(e, s->q + c->d_nope, n_head, n_head * d, d);
}

void model_mla_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int H = e->m->dims.n_head;
    int64_t row = c->kv_lora + c->d_rope;
    enum model_part gated = l->is_moe ? MODEL_SHARED : MODEL_DENSE;
    bool sparse = model_index_is_sparse(e->m, e->layer);
    queries(e, l);
    EMIT(e, norm, .x = s->k, .w = l->kv_a_norm, .eps = latent_eps(c), .n = c->kv_lora, .ldx = row,
         .ldy = row, .y = s->k);
    model_tap_emit(e, MODEL_TAP_KV_B, s->k, c->kv_lora, row);
    if (l->index_k) model_index_key(e, l);
    rotate(e, s, H);
    struct model_kv_place at = model_kv_here(e->m, e->layer);
    bool pools = l->index_entry.gate != NULL;
    EMIT(e, kv_put, .group = at.group, .layer = at.layer, .k = s->k, .ldk = row,
         .i = l->index_k && !pools ? s->index_k : NULL, .ldi = c->d_index);
    if (pools) model_index_pool(e, l);
    if (e->entries) return;
    if (sparse) model_index_pick(e, l, at);
    EMIT(e, attn_mla, .group = at.group, .layer = at.layer, .n_head = H, .r = c->kv_lora,
         .nope = c->d_nope, .rope = c->d_rope, .v = c->d_v, .scale = (float)c->attn_scale,
         .w_kb = l->k_b, .w_vb = l->v_b, .q = s->q, .y = model_cols_of(e, s->y, s->y_cols),
         .pick = sparse ? s->pick : NULL,
         .n_pick = sparse ? c->index_top / BASE_MAX(c->index_pool, 1) : 0,
         .n_mask = sparse ? model_mla_mask_until(c) : 0, .every = sparse ? c->index_pool : 0,
         .next = {l->o, l->is_moe ? model_if_here(e, MODEL_ROUTER, l->router) : NULL,
                  model_if_here(e, gated, l->gate_up), model_if_here(e, gated, l->down)});
    if (l->head_gate) gate(e, l, s->y);
}
