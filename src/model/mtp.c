/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-token prediction (DeepSeek-V3 2.2): h' = eh_proj([enorm(emb(t_{i+1})), hnorm(h_i)]), one
 * transformer layer, shared_head.norm, head. h_i is the main model's hidden state after its final
 * norm; this layer's own normed output feeds the next draft.
 *
 * Of DeepSeek-V4 h_i is all streams, as its last layer leaves them, each of which is normed and
 * projected alone: x_k = e_proj enorm(emb(t_{i+1})) + h_proj hnorm(h_i,k). The layer has a head of
 * streams of its own, and its own streams feed the next draft. */
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

/* Of several streams: each of them becomes h hnorm(it), and with the layer's first input e
 * enorm(embedding) is added to all. Entries alone leave the streams of the pass before. */
static void streams_emit(struct emit *e, const struct mtp *t)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int D = c->d_model, N = c->n_stream;
    e->x = e->entries ? s->eh_in : NULL;
    EMIT(e, norm, .x = s->r, .w = t->enorm, .eps = c->norm_eps, .n = D, .act = s->a_e);
    EMIT(e, matmul, .act = s->a_e, .n_mat = 1, .w = {t->e}, .y = {s->r});
    EMIT(e, norm, .x = s->x, .w = t->hnorm, .eps = c->norm_eps, .n = D, .n_head = N, .gather = true,
         .act = s->a_streams);
    EMIT(e, matmul, .act = s->a_streams, .n_head = N, .n_mat = 1, .w = {t->h},
         .y = {e->entries ? s->eh_in : s->x});
    e->begins = BEGIN_MORE;
}

/* Of one. */
static void pair_emit(struct emit *e, const struct mtp *t)
{
    const struct side *s = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    int D = c->d_model;
    float *x = s->x;
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
}

void model_mtp_emit(struct emit *e, int i)
{
    const struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    const struct mtp *t = &m->mtp[i];
    model_embed_emit(e, t->embed);
    if (arch_mtp_streams(c))
        streams_emit(e, t);
    else
        pair_emit(e, t);
    model_layer_emit(e, &t->layer, c->n_layer + i, true);
    e->x = NULL;
    if (e->entries) return;
    model_head_emit(e, &(struct heads){&t->stream_head, t->head_norm, t->head,
                                       m->n_draft_vocab ? MODEL_CUT_DRAFT : MODEL_CUT_VOCAB});
}
