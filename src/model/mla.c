/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention (DeepSeek-V2 2.1): the cache holds one normed latent of kv_lora values and one rotated key of d_rope values per token.
 *
 * Two forms of the same sum: absorbed (attention over latents; W_kb applied to the query and W_vb to the result), and materialised (keys and values of
 * the context are made from the latents). Per query-key pair and head the absorbed form costs 2 * (2r + rope) operations, the other 2 * (nope + rope + v) plus
 * 2r * (nope + v) per key shared by the queries of the chunk. They differ in the last bits, so the form of a token depends on its position in the prompt alone,
 * never on the chunking: prompt tokens from expand_from on are materialised, generated tokens never are.
 */
#include <limits.h>

#include "model/model_internal.h"

/* The norms of both latents have this epsilon whatever rms_norm_eps says: the published code makes
 * them without naming one, and this is its default. */
#define LATENT_EPS 1e-6f

/* Materialising pays when at least crit = r * (nope + v) / (2r - nope - v) queries share a key. A prompt in one chunk breaks even when it is a little longer than where it
 * begins to be materialised; much earlier than crit would only keep short answers from being found again as parts of the next prompt. */
int model_mla_expand_from(const struct arch_cfg *c)
{
    int64_t gain = 2ll * c->kv_lora - c->d_nope - c->d_v;
    if (gain <= 0) return INT_MAX;
    int64_t crit = (int64_t)c->kv_lora * (c->d_nope + c->d_v) / gain;
    int64_t at = (crit + 64) / 128 * 128;
    return at > INT_MAX ? INT_MAX : (int)at;
}

static void queries(struct model *m, const struct dev_step *b, const struct layer *l)
{
    const struct arch_cfg *c = &m->cfg;
    if (!c->q_lora) {
        struct dev_matmul p = {.act = m->a_attn, .n_row = b->n_tok, .n_mat = 2, .w = {l->q, l->kv_a}, .y = {m->q, m->k}};
        dev_matmul(m->d, b, &p);
        return;
    }
    struct dev_matmul a = {.act = m->a_attn, .n_row = b->n_tok, .n_mat = 2, .w = {l->q_a, l->kv_a}, .y = {m->qa, m->k}};
    dev_matmul(m->d, b, &a);
    struct dev_norm n = {.x = m->qa,
                         .w = l->q_a_norm,
                         .eps = LATENT_EPS,
                         .n = c->q_lora,
                         .n_row = b->n_tok,
                         .act = m->a_q_a,
                         .y = m->tap_fn ? m->tap_y : NULL};
    dev_norm(m->d, b, &n);
    model_tap_put(m, MODEL_TAP_Q_B, m->tap_y, b->n_tok, c->q_lora, c->q_lora);
    struct dev_matmul q = {.act = m->a_q_a, .n_row = b->n_tok, .n_mat = 1, .w = {l->q_b}, .y = {m->q}};
    dev_matmul(m->d, b, &q);
}

static void rope(struct model *m, const struct dev_step *b, float *x, int n_head, int64_t ld,
                 int64_t ld_h)
{
    const struct arch_cfg *c = &m->cfg;
    struct dev_rope p = {.x = x, .n_head = n_head, .ldx = ld, .ldx_h = ld_h, .n_rot = c->n_rot,
                         .style = c->rope_style == ARCH_ROPE_PAIRS, .freq = m->rope_freq,
                         .mscale = (float)c->yarn_mscale};
    dev_rope(m->d, b, &p);
}

void model_mla_step(struct model *m, dev_kv *kv, const struct dev_step *b, const struct layer *l,
                    int il)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t row = c->kv_lora + c->d_rope;
    queries(m, b, l);
    struct dev_norm n = {.x = m->k,
                         .w = l->kv_a_norm,
                         .eps = LATENT_EPS,
                         .n = c->kv_lora,
                         .n_row = b->n_tok,
                         .ldx = row,
                         .ldy = row,
                         .y = m->k};
    dev_norm(m->d, b, &n);
    model_tap_put(m, MODEL_TAP_KV_B, m->k, b->n_tok, c->kv_lora, row);
    rope(m, b, m->k + c->kv_lora, 1, row, row);
    rope(m, b, m->q + c->d_nope, c->n_head, (int64_t)c->n_head * c->d_head, c->d_head);
    struct dev_kv_put put = {.kv = kv, .layer = il, .k = m->k, .ldk = row};
    dev_kv_put(m->d, b, &put);
    struct dev_attn_mla at = {.kv = kv, .layer = il, .n_head = c->n_head, .r = c->kv_lora, .nope = c->d_nope,
                              .rope = c->d_rope, .v = c->d_v, .scale = (float)c->attn_scale, .w_kb = l->k_b,
                              .w_vb = l->v_b, .q = m->q, .y = m->y,
                              .next = {l->o, l->is_moe ? l->router : NULL, l->gate_up, l->down}};
    dev_attn_mla(m->d, b, &at);
}
