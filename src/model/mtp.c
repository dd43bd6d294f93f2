/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction (DeepSeek-V3 2.2): h' = eh_proj([enorm(emb(t_{i+1})), hnorm(h_i)]), one
 * transformer layer, shared_head.norm, head. h_i is the main model's hidden state after its final
 * norm; this layer's own normed output feeds the next draft. */
#include "model/emit.h"

int model_n_mtp(const model *m)
{
    return m->n_mtp;
}

int model_n_pass(const model *m)
{
    return 1 + 2 * m->n_mtp;
}

int model_entries_pass(const model *m, int j)
{
    return 1 + m->n_mtp + j;
}

int model_n_logit(const model *m, int pass)
{
    return pass >= 1 && m->n_draft_vocab ? m->n_draft_vocab : m->cfg.n_vocab;
}

void model_mtp_emit(struct emit *e, int i)
{
    const struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    const struct mtp *t = &m->mtp[i];
    const struct side *s = e->side;
    int D = c->d_model;
    model_embed_emit(e, t->embed);
    float *x = model_begin_row(e, s);
    EMIT(e, norm, .x = x, .w = t->enorm, .eps = c->norm_eps, .n = D, .y = s->eh_in,
         .ldy = 2 * D);
    /* of the pass before; only read, and written again at the end */
    EMIT(e, norm, .x = s->hidden, .w = t->hnorm, .eps = c->norm_eps, .n = D, .gather = true,
         .y = s->eh_in + D, .ldy = 2 * D);
    EMIT(e, prep, .x = s->eh_in, .n = 2 * D, .act = s->a_eh);
    EMIT(e, matmul, .act = s->a_eh, .n_mat = 1, .w = {t->eh},
         .y = {model_cols_of(e, x, s->r_cols)});
    model_join_emit(
        e, &(struct model_joining){.cut = MODEL_CUT_MODEL, .x = s->r_cols, .y = x, .own = true});
    model_layer_emit(e, &t->layer, c->n_layer + i, true);
    if (e->entries) return;
    model_head_emit(e, t->head_norm, t->head, m->n_draft_vocab ? MODEL_CUT_DRAFT : MODEL_CUT_VOCAB);
}
