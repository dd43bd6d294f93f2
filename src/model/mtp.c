/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction (DeepSeek-V3 2.2): h' = eh_proj([enorm(emb(t_{i+1})), hnorm(h_i)]), one transformer layer, shared_head.norm, head. h_i is the main
 * model's hidden state after its final norm; this layer's own normed output feeds the next draft. */
#include "model/model_internal.h"

int model_n_mtp(const model *m)
{
    return m->n_mtp;
}

void model_mtp_pass(struct model *m, dev_kv *kv, const struct dev_step *b)
{
    const struct arch_cfg *c = &m->cfg;
    const struct mtp *t = &m->mtp[b->pass - 1];
    int D = c->d_model;
    float *hidden = m->hidden; /* of the pass before; only read, and written again at the end */
    if (b->hidden_row) {
        struct dev_rows of = {
            .x = m->hidden, .row = b->hidden_row, .n_row = b->n_tok, .n = D, .y = m->r};
        dev_rows(m->d, b, &of);
        hidden = m->r;
    }
    struct dev_embed e = {.w = t->embed, .y = m->x, .scale = 1.0f};
    dev_embed(m->d, b, &e);
    struct dev_norm en = {.x = m->x,
                          .w = t->enorm,
                          .eps = c->norm_eps,
                          .n = D,
                          .n_row = b->n_tok,
                          .y = m->eh_in,
                          .ldy = 2 * D};
    dev_norm(m->d, b, &en);
    struct dev_norm hn = {.x = hidden,
                          .w = t->hnorm,
                          .eps = c->norm_eps,
                          .n = D,
                          .n_row = b->n_tok,
                          .y = m->eh_in + D,
                          .ldy = 2 * D};
    dev_norm(m->d, b, &hn);
    struct dev_prep p = {.x = m->eh_in, .n = 2 * D, .n_row = b->n_tok, .act = m->a_eh};
    dev_prep(m->d, b, &p);
    struct dev_matmul eh = {
        .act = m->a_eh, .n_row = b->n_tok, .n_mat = 1, .w = {t->eh}, .y = {m->x}};
    dev_matmul(m->d, b, &eh);
    model_layer_step(m, kv, b, &t->layer, c->n_layer + b->pass - 1, true);
    model_head_step(m, b, t->head_norm, t->head);
}
