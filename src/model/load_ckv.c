/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices and vectors of attention over rows that are keys and values at once, and of entries. */
#include "model/load.h"

/* What makes entries of d values, or with an indexer both halves of them. */
struct entry_roles {
    enum arch_role kv, gate, ape, norm;
};

static sl_status load_entries(struct model *m, int il, const struct entry_roles *r, int d,
                              struct entries *x, sl_err *err)
{
    const struct arch_layer *al = &m->cfg.layer[il];
    int64_t wide = al->index == ARCH_INDEX_OWN ? 2 * d : d, D = m->cfg.d_model;
    struct want kv = model_want(m, il, r->kv, wide, D, DEV_USE_LATENT);
    struct want gate = model_want(m, il, r->gate, wide, D, DEV_USE_LATENT);
    SL_TRY(model_load_matrix(m, &kv, &x->kv, err));
    SL_TRY(model_load_matrix(m, &gate, &x->gate, err));
    SL_TRY(model_load_role_rows(m, il, &(struct load_rows){r->ape, al->ratio, wide}, &x->ape, err));
    return model_load_role_vector(m, il, r->norm, d, &x->norm, err);
}

/* The first product of the output: a stack of matrices, one for each group of heads. */
static sl_status load_groups(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t cols = (int64_t)c->n_head * c->d_head / c->o_groups, rows = c->o_lora;
    struct want w = model_want(m, il, ROLE_O_A, rows, cols, DEV_USE_EXACT), all = w;
    struct weight a;
    void *p = NULL;
    w.n = c->o_groups;
    all.rows = rows * c->o_groups;
    if (m->opts.pack) return model_load_map(m, &w, &l->o_a, err);
    SL_TRY(model_load_weight(m, all.name, &all, &a, err));
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)w.n, sizeof(struct weight), &p, err));
    struct weight *of = p;
    for (int i = 0; i < w.n; i++)
        of[i] = weight_rows(&a, rows * i, rows);
    sl_status st = model_load_pack(m, &w, of, NULL, &l->o_a, err);
    mem_free(p);
    return st;
}

static sl_status load_ckv_index(struct model *m, int il, struct layer *l, sl_err *err)
{
    static const struct entry_roles roles = {ROLE_INDEX_ENTRY_KV, ROLE_INDEX_ENTRY_GATE,
                                             ROLE_INDEX_ENTRY_APE, ROLE_INDEX_ENTRY_NORM};
    const struct arch_cfg *c = &m->cfg;
    struct want q = model_want(m, il, ROLE_INDEX_Q, (int64_t)c->n_index * c->d_index, c->q_lora,
                               DEV_USE_LATENT);
    struct want w = model_want(m, il, ROLE_INDEX_W, c->n_index, c->d_model, DEV_USE_EXACT);
    SL_TRY(model_load_matrix(m, &q, &l->index_q, err));
    SL_TRY(model_load_matrix(m, &w, &l->index_w, err));
    return load_entries(m, il, &roles, c->d_index, &l->index_entry, err);
}

sl_status model_load_ckv(struct model *m, int il, struct layer *l, sl_err *err)
{
    static const struct entry_roles roles = {ROLE_ENTRY_KV, ROLE_ENTRY_GATE, ROLE_ENTRY_APE,
                                             ROLE_ENTRY_NORM};
    const struct arch_cfg *c = &m->cfg;
    int64_t D = c->d_model, nq = (int64_t)c->n_head * c->d_head;
    struct want mats[] = {
        model_want(m, il, ROLE_Q_A, c->q_lora, D, DEV_USE_LATENT),
        model_want(m, il, ROLE_Q_B, nq, c->q_lora, DEV_USE_MATMUL),
        model_want(m, il, ROLE_KV_A, c->d_head, D, DEV_USE_LATENT),
        model_want(m, il, ROLE_O, D, (int64_t)c->o_groups * c->o_lora, DEV_USE_PLAIN)};
    dev_mat **out[] = {&l->q_a, &l->q_b, &l->kv_a, &l->o};
    float *sinks = NULL;
    for (int i = 0; i < BASE_COUNT_OF(mats); i++)
        SL_TRY(model_load_matrix(m, &mats[i], out[i], err));
    SL_TRY(load_groups(m, il, l, err));
    SL_TRY(model_load_ones(m, c->d_head, &l->head_one, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_Q_A_NORM, c->q_lora, &l->q_a_norm, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_KV_A_NORM, c->d_head, &l->kv_a_norm, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_SINKS, c->n_head, &sinks, err));
    l->per_head.of[PER_HEAD_SINKS] = sinks;
    if (!c->layer[il].ratio) return SL_OK;
    SL_TRY(load_entries(m, il, &roles, c->d_head, &l->entry, err));
    return c->layer[il].index == ARCH_INDEX_OWN ? load_ckv_index(m, il, l, err) : SL_OK;
}
