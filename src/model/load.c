/* SPDX-License-Identifier: Apache-2.0 */
/* Which matrices and vectors a model has: of its layers up to the feed-forward blocks, of MTP
 * layers, and outside of the layers. */
#include "model/load.h"

#include <stdio.h>
#include <string.h>

#include "base/fp.h"

/* Matrices of a layer, and where they go. */
struct mat_row {
    enum arch_role role;
    int64_t rows, cols;
    enum dev_use use;
    dev_mat **out;
};

static sl_status matrices(struct model *m, int il, const struct mat_row *r, int n, sl_err *err)
{
    for (int i = 0; i < n; i++) {
        struct want w = model_want(m, il, r[i].role, r[i].rows, r[i].cols, r[i].use);
        SL_TRY(model_load_matrix(m, &w, r[i].out, err));
    }
    return SL_OK;
}

/* ---- keys and values per head ---- */

/* What chooses blocks. */
static sl_status load_block_index(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    const struct mat_row mats[] = {
        {ROLE_INDEX_Q, (int64_t)c->n_index * c->d_index, c->d_model, DEV_USE_LATENT, &l->index_q},
        {ROLE_INDEX_K, c->d_index, c->d_model, DEV_USE_LATENT, &l->index_k}};
    if (c->layer[il].index != ARCH_INDEX_OWN) return SL_OK;
    SL_TRY(matrices(m, il, mats, BASE_COUNT_OF(mats), err));
    SL_TRY(model_load_role_vector(m, il, ROLE_INDEX_K_NORM, c->d_index, &l->index_norm, err));
    return model_load_role_vector(m, il, ROLE_INDEX_Q_NORM, c->d_index, &l->index_q_norm, err);
}

static sl_status load_gqa(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int d = arch_d_head(c, il);
    int64_t D = c->d_model, nq = (int64_t)c->n_head * d, nk = (int64_t)arch_n_head_kv(c, il) * d;
    const struct mat_row rows[] = {{ROLE_Q, c->attn_gate ? 2 * nq : nq, D, DEV_USE_MATMUL, &l->q},
                                   {ROLE_K, nk, D, DEV_USE_MATMUL, &l->k},
                                   {ROLE_O, D, nq, DEV_USE_PLAIN, &l->o}},
                         values[] = {{ROLE_V, nk, D, DEV_USE_MATMUL, &l->v}};
    SL_TRY(matrices(m, il, rows, 2, err));
    if (!arch_k_is_v(c, il)) SL_TRY(matrices(m, il, values, 1, err));
    SL_TRY(matrices(m, il, rows + 2, 1, err));
    if (c->v_norm) SL_TRY(model_load_ones(m, d, &l->head_one, err));
    for (int i = 0; i < N_PER_HEAD; i++) {
        enum arch_role r = (enum arch_role)(ROLE_PER_HEAD0 + i);
        float *v = NULL;
        if (arch_in(c->per_head, r)) SL_TRY(model_load_role_vector(m, il, r, c->n_head, &v, err));
        l->per_head.of[i] = v;
    }
    SL_TRY(load_block_index(m, il, l, err));
    if (!c->qk_norm) return SL_OK;
    int n_q = c->d_q_norm ? c->d_q_norm : d, n_k = c->d_k_norm ? c->d_k_norm : d;
    SL_TRY(model_load_role_vector(m, il, ROLE_Q_NORM, n_q, &l->q_norm, err));
    return model_load_role_vector(m, il, ROLE_K_NORM, n_k, &l->k_norm, err);
}

/* ---- latents ---- */

/* One part of kv_b's n_head heads as plain matrices of our own: transposed to [r, nope] per head,
 * or [v, r]. BF16 where the source is BF16 (exact), else f32 in the reference mode and for exact
 * sources, BF16 otherwise. */
static sl_status split_kv_b(struct model *m, const struct weight *kv_b, bool keys, void **owned,
                            struct weight *out, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t r = c->kv_lora, nope = c->d_nope, v = c->d_v, stride = nope + v;
    int64_t H = kv_b->rows / stride, rows = keys ? r : v, cols = keys ? nope : r;
    struct dev_info info;
    dev_info_get(m->d, &info);
    bool half =
        kv_b->type == TENSOR_BF16 || (info.acts != DEV_ACTS_F32 && kv_b->type != TENSOR_F32);
    if (half && kv_b->type != TENSOR_BF16) m->rounded = true;
    size_t item = half ? 2 : 4;
    void *line_p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)r, sizeof(float), &line_p, err));
    sl_status st = mem_alloc_array(MEM_SCRATCH, (size_t)(H * rows * cols), item, owned, err);
    float *line = line_p;
    for (int64_t h = 0; h < H && !st; h++) {
        for (int64_t i = 0; i < (keys ? nope : v); i++) {
            weight_dequant(kv_b, h * stride + (keys ? i : nope + i), 0, r, line);
            for (int64_t j = 0; j < r; j++) {
                size_t at = (size_t)(h * rows * cols + (keys ? j * cols + i : i * cols + j));
                if (half)
                    ((uint16_t *)*owned)[at] = fp_f32_to_bf16(line[j]);
                else
                    ((float *)*owned)[at] = line[j];
            }
        }
    }
    mem_free(line_p);
    *out = (struct weight){.name = kv_b->name,
                           .type = half ? TENSOR_BF16 : TENSOR_F32,
                           .rows = H * rows,
                           .cols = cols,
                           .data = *owned,
                           .row_bytes = (uint64_t)cols * item,
                           .tensor_scale = 1.0f};
    return st;
}

/* A stack from one weight, which is all of it, or (ours) our matrices of it. */
static sl_status load_stack(struct model *m, const struct want *s, const struct weight *a,
                            bool ours, dev_mat **out, sl_err *err)
{
    void *p = NULL;
    int n = (int)(a->rows / s->rows);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)n, sizeof(struct weight), &p, err));
    struct weight *w = p;
    for (int i = 0; i < n; i++)
        w[i] = weight_rows(a, s->rows * i, s->rows);
    struct want mine = *s;
    mine.n = n;
    sl_status st = (ours ? model_load_pack(m, &mine, w, NULL, out, err)
                         : model_load_part(m, s, w, NULL, out, err));
    mem_free(p);
    return st;
}

/* kv_b in the split spelling of GGUF: a tensor of keys, one of values. */
static sl_status load_k_v_b(struct model *m, int il, const struct want s[2], struct layer *l,
                            sl_err *err)
{
    char name[LOAD_NAME];
    struct weight kb, vb;
    int64_t H = s[0].n, r = s[0].rows, nope = s[0].cols;
    struct want all[2] = {s[0], s[1]}; /* as one matrix */
    for (int i = 0; i < 2; i++)
        all[i].rows *= H;
    arch_tensor_name(&m->cfg.naming, ROLE_K_B, il, "weight", name, sizeof name);
    SL_TRY(io_weight(m->io, name, &kb, err));
    if (kb.rows == nope && kb.cols == H * r &&
        nope != H * r) /* ik's [H * r, nope] seen as 2-D the other way round */
        return SL_FAIL(err, UNSUPPORTED, "%s: attn_k_b as [%lld, %lld] is not supported", kb.name,
                       (long long)kb.rows, (long long)kb.cols);
    SL_TRY(model_load_weight(m, name, &all[0], &kb, err));
    arch_tensor_name(&m->cfg.naming, ROLE_V_B, il, "weight", name, sizeof name);
    SL_TRY(model_load_weight(m, name, &all[1], &vb, err));
    SL_TRY(load_stack(m, &s[0], &kb, false, &l->k_b, err));
    return load_stack(m, &s[1], &vb, false, &l->v_b, err);
}

static sl_status load_kv_b(struct model *m, int il, struct layer *l, sl_err *err)
{
    static const struct arch_naming gguf = {.kind = IO_GGUF};
    const struct arch_cfg *c = &m->cfg;
    int64_t H = c->n_head, r = c->kv_lora, nope = c->d_nope, v = c->d_v;
    struct want s[2] = {{.role = ROLE_K_B, .n = (int)H, .rows = r, .cols = nope},
                        {.role = ROLE_V_B, .n = (int)H, .rows = v, .cols = r}};
    char name[LOAD_NAME];
    for (int i = 0; i < 2; i++) { /* whatever the source's spelling */
        s[i].use = DEV_USE_EXACT;
        arch_tensor_name(&gguf, s[i].role, il, "weight", s[i].name, sizeof s[i].name);
    }
    if (m->opts.pack) {
        SL_TRY(model_load_map(m, &s[0], &l->k_b, err));
        return model_load_map(m, &s[1], &l->v_b, err);
    }
    arch_tensor_name(&c->naming, ROLE_K_B, il, "weight", name, sizeof name);
    if (m->kind == IO_GGUF && io_find(m->io, name)) return load_k_v_b(m, il, s, l, err);
    struct weight both, kb, vb;
    struct want kv = model_want(m, il, ROLE_KV_B, H * (nope + v), r, DEV_USE_EXACT);
    SL_TRY(model_load_weight(m, kv.name, &kv, &both, err));
    struct model_slice ours = model_slice_of(c, &m->dims, ROLE_KV_B, both.rows);
    if (!ours.n_row) return SL_OK;
    both = weight_slice(&both, ours.row0, ours.n_row);
    void *own_k = NULL, *own_v = NULL;
    sl_status st = SL_OK;
    SL_TRY_OUT(split_kv_b(m, &both, true, &own_k, &kb, err));
    SL_TRY_OUT(split_kv_b(m, &both, false, &own_v, &vb, err));
    SL_TRY_OUT(load_stack(m, &s[0], &kb, true, &l->k_b, err));
    SL_TRY_OUT(load_stack(m, &s[1], &vb, true, &l->v_b, err));
out:
    mem_free(own_k);
    mem_free(own_v);
    return st;
}

/* What chooses positions: its layer norm has a bias. */
static sl_status load_index(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    const struct mat_row mats[] = {
        {ROLE_INDEX_Q, (int64_t)c->n_index * c->d_index, c->q_lora, DEV_USE_LATENT, &l->index_q},
        {ROLE_INDEX_K, c->d_index, c->d_model, DEV_USE_LATENT, &l->index_k},
        {ROLE_INDEX_W, c->n_index, c->d_model, DEV_USE_EXACT, &l->index_w}};
    const struct mat_row gate[] = {
        {ROLE_INDEX_ENTRY_GATE, c->d_index, c->d_model, DEV_USE_LATENT, &l->index_entry.gate}};
    const struct load_rows ape = {ROLE_INDEX_ENTRY_APE, c->index_pool, c->d_index};
    char name[LOAD_NAME];
    if (c->layer[il].index != ARCH_INDEX_OWN) return SL_OK;
    SL_TRY(matrices(m, il, mats, BASE_COUNT_OF(mats), err));
    if (c->index_pool) {
        SL_TRY(matrices(m, il, gate, 1, err));
        SL_TRY(model_load_role_rows(m, il, &ape, &l->index_entry.ape, err));
    }
    SL_TRY(model_load_role_vector(m, il, ROLE_INDEX_K_NORM, c->d_index, &l->index_norm, err));
    arch_tensor_name(&c->naming, ROLE_INDEX_K_NORM, il, "bias", name, sizeof name);
    return model_load_vector(m, name, ROLE_INDEX_K_NORM, c->d_index, &l->index_bias, err);
}

static sl_status load_mla(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t D = c->d_model, nq = (int64_t)c->n_head * c->d_head, nl = c->kv_lora + c->d_rope;
    /* a latent's error is in all heads */
    const struct mat_row low[] = {{ROLE_Q_A, c->q_lora, D, DEV_USE_LATENT, &l->q_a},
                                  {ROLE_Q_B, nq, c->q_lora, DEV_USE_LATENT, &l->q_b}},
                         plain[] = {{ROLE_Q, nq, D, DEV_USE_MATMUL, &l->q}},
                         kv[] = {{ROLE_KV_A, nl, D, DEV_USE_LATENT, &l->kv_a}},
                         o[] = {{ROLE_O, D, c->n_head * c->d_v, DEV_USE_MATMUL, &l->o}},
                         gate[] = {{ROLE_HEAD_GATE, c->n_head, D, DEV_USE_EXACT, &l->head_gate}};
    if (c->q_lora) {
        SL_TRY(matrices(m, il, low, 2, err));
        SL_TRY(model_load_role_vector(m, il, ROLE_Q_A_NORM, c->q_lora, &l->q_a_norm, err));
    } else {
        SL_TRY(matrices(m, il, plain, 1, err));
    }
    SL_TRY(matrices(m, il, kv, 1, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_KV_A_NORM, c->kv_lora, &l->kv_a_norm, err));
    SL_TRY(load_kv_b(m, il, l, err));
    SL_TRY(load_index(m, il, l, err));
    if (c->head_gate) SL_TRY(matrices(m, il, gate, 1, err));
    return matrices(m, il, o, 1, err);
}

/* ---- layers, and what is outside of them ---- */

static sl_status (*const load_mixer[])(struct model *m, int il, struct layer *l, sl_err *err) = {
    [ARCH_GQA] = load_gqa,
    [ARCH_MLA] = load_mla,
    [ARCH_SCAN] = load_gqa,
    [ARCH_DELTA] = model_load_delta,
    [ARCH_CKV] = model_load_ckv};

sl_status model_load_layer(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    l->is_moe = c->layer[il].ffn == ARCH_MOE;
    l->n_window = c->layer[il].n_window;
    SL_TRY(model_load_role_vector(m, il, ROLE_ATTN_NORM, c->d_model, &l->attn_norm, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_FFN_NORM, c->d_model, &l->ffn_norm, err));
    SL_TRY(model_load_streams(m, il, l, err));
    SL_TRY(model_load_sandwich(m, il, l, err));
    SL_TRY(load_mixer[c->layer[il].mixer](m, il, l, err));
    return (l->is_moe ? model_load_moe : model_load_dense)(m, il, l, err);
}

struct want model_want_global(const struct model *m, enum arch_global g, enum arch_role role,
                              enum dev_use use)
{
    struct want w = {
        .role = role, .n = 1, .rows = m->cfg.n_vocab, .cols = m->cfg.d_model, .use = use};
    snprintf(w.name, sizeof w.name, "%s", arch_global_name(&m->cfg.naming, g));
    return w;
}

static sl_status load_global(struct model *m, enum arch_global g, enum arch_role role,
                             enum dev_use use, dev_mat **out, sl_err *err)
{
    struct want w = model_want_global(m, g, role, use);
    return model_load_matrix(m, &w, out, err);
}

sl_status model_load_globals(struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    if (model_has_global(c, &m->dims, GLOBAL_EMBED))
        SL_TRY(load_global(m, GLOBAL_EMBED, ROLE_MTP_EMBED, DEV_USE_EMBED, &m->embed, err));
    if (!model_has_global(c, &m->dims, GLOBAL_HEAD)) return SL_OK;
    SL_TRY(model_load_vector(m, arch_global_name(&c->naming, GLOBAL_NORM), ROLE_MTP_HEAD_NORM,
                             c->d_model, &m->norm, err));
    SL_TRY(model_load_stream_head(m, -1, &m->stream_head, err));
    m->head = m->embed;
    if (!c->tied_head)
        return load_global(m, GLOBAL_HEAD, ROLE_MTP_HEAD, DEV_USE_MATMUL, &m->head, err);
    if (model_side(m, MODEL_HEAD) == model_side(m, MODEL_EMBED)) return SL_OK;
    SL_TRY(load_global(m, GLOBAL_EMBED, ROLE_MTP_HEAD, DEV_USE_EMBED, &m->head, err));
    m->weight_bytes -= m->head ? dev_mat_bytes(m->head) : 0; /* the model's, which are once */
    return SL_OK;
}

bool model_load_differs(const struct model *m, const char *name, const char *other)
{
    if (m->opts.pack) return io_pack_find(m->opts.pack, name) != NULL;
    const struct tensor *a = io_find(m->io, name), *b = io_find(m->io, other);
    if (!a) return io_has_weight(m->io, name);
    return !(b && a->type == b->type && a->n_bytes == b->n_bytes &&
             memcmp(a->data, b->data, a->n_bytes) == 0);
}

/* An MTP layer's own table of tokens, or the model's. */
static sl_status load_mtp_embed(struct model *m, int il, dev_mat **out, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct want w = model_want(m, il, ROLE_MTP_EMBED, c->n_vocab, c->d_model, DEV_USE_EMBED);
    *out = m->embed;
    if (!model_load_differs(m, w.name, arch_global_name(&c->naming, GLOBAL_EMBED))) return SL_OK;
    return model_load_matrix(m, &w, out, err);
}

sl_status model_load_mtp(struct model *m, int i, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct mtp *t = &m->mtp[i];
    int il = c->n_layer + i;
    int64_t D = c->d_model;
    const struct mat_row eh[] = {{ROLE_MTP_EH, D, 2 * D, DEV_USE_MATMUL, &t->eh}},
                         apart[] = {{ROLE_MTP_E, D, D, DEV_USE_MATMUL, &t->e},
                                    {ROLE_MTP_H, D, D, DEV_USE_MATMUL, &t->h}};
    char name[LOAD_NAME];
    SL_TRY(model_load_role_vector(m, il, ROLE_MTP_ENORM, D, &t->enorm, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_MTP_HNORM, D, &t->hnorm, err));
    SL_TRY(arch_mtp_streams(c) ? matrices(m, il, apart, 2, err) : matrices(m, il, eh, 1, err));
    SL_TRY(model_load_stream_head(m, il, &t->stream_head, err));
    arch_tensor_name(&c->naming, ROLE_MTP_HEAD_NORM, il, "weight", name, sizeof name);
    t->head_norm = m->norm; /* some GGUF files leave out what is the same */
    if (io_find(m->io, name) || (m->kind == IO_HF && c->naming.mtp_from))
        SL_TRY(model_load_vector(m, name, ROLE_MTP_HEAD_NORM, D, &t->head_norm, err));
    SL_TRY(load_mtp_embed(m, il, &t->embed, err));
    SL_TRY(model_load_mtp_head(m, i, err));
    return model_load_layer(m, il, &t->layer, err);
}
