/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors a folder has whose configuration is known: the names and shapes that a loader asks
 * for. Heads and tables that MTP layers may have of their own are left out: those of the model. */
#include <stdio.h>
#include <string.h>

#include "arch/arch.h"
#include "io/mock.h"

#define NAME 256

/* The list that grows; layer and expert of what is added now. */
struct list {
    const io_model *m;
    const struct arch_cfg *c;
    struct arena *a;
    struct io_mock_tensor *t;
    int n, cap, layer, expert;
};

static sl_status add_name(struct list *l, const char *name, enum io_mock_kind kind, int64_t rows,
                          int64_t cols, sl_err *err)
{
    char *copy = NULL;
    void *p = NULL;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        SL_TRY(mem_arena_array(l->a, (size_t)l->cap, sizeof *l->t, &p, err));
        if (l->n) memcpy(p, l->t, (size_t)l->n * sizeof *l->t);
        l->t = p;
    }
    SL_TRY(mem_arena_str(l->a, name, strlen(name), &copy, err));
    l->t[l->n++] = (struct io_mock_tensor){
        .name = copy, .kind = kind, .n_dim = cols ? 2 : 1, .shape = {rows, cols ? cols : 1}};
    return SL_OK;
}

/* A tensor of the layer, or of the expert; cols 0: a vector. */
struct row {
    enum arch_role role;
    int64_t rows, cols;
    bool is_there;
};

static sl_status add(struct list *l, const struct row *r, const char *suffix,
                     enum io_mock_kind kind, sl_err *err)
{
    char name[NAME];
    if (!r->is_there) return SL_OK;
    struct arch_name id = {.global = -1, .role = r->role, .layer = l->layer, .expert = l->expert};
    snprintf(id.suffix, sizeof id.suffix, "%s", suffix);
    arch_name_put(&l->c->naming, &id, name, sizeof name);
    return add_name(l, name, kind, r->rows, r->cols, err);
}

/* A matrix, and its bias where it has one. */
static sl_status matrix(struct list *l, const struct row *r, enum io_mock_kind kind, sl_err *err)
{
    struct row bias = {r->role, r->rows, 0, r->is_there && arch_reads_bias(l->m, l->c, r->role)};
    SL_TRY(add(l, r, "weight", kind, err));
    return add(l, &bias, "bias", IO_MOCK_SMALL, err);
}

static sl_status matrices(struct list *l, const struct row *r, int n, sl_err *err)
{
    for (int i = 0; i < n; i++)
        SL_TRY(matrix(l, &r[i], IO_MOCK_MATRIX, err));
    return SL_OK;
}

/* Weights of norms; of what heads have nobody minds. */
static sl_status gains(struct list *l, const struct row *r, int n, sl_err *err)
{
    for (int i = 0; i < n; i++)
        SL_TRY(add(l, &r[i], "weight", IO_MOCK_GAIN, err));
    return SL_OK;
}

/* An indexer of blocks. */
static sl_status block_indexer(struct list *l, sl_err *err)
{
    const struct arch_cfg *c = l->c;
    const struct row mat[] = {{ROLE_INDEX_Q, (int64_t)c->n_index * c->d_index, c->d_model, true},
                              {ROLE_INDEX_K, c->d_index, c->d_model, true}},
                     norm[] = {{ROLE_INDEX_Q_NORM, c->d_index, 0, true},
                               {ROLE_INDEX_K_NORM, c->d_index, 0, true}};
    SL_TRY(matrices(l, mat, BASE_COUNT_OF(mat), err));
    return gains(l, norm, BASE_COUNT_OF(norm), err);
}

static sl_status gqa(struct list *l, sl_err *err)
{
    const struct arch_cfg *c = l->c;
    int il = l->layer, d = arch_d_head(c, il);
    int64_t D = c->d_model, nq = (int64_t)c->n_head * d, nk = (int64_t)arch_n_head_kv(c, il) * d;
    const struct row mat[] = {{ROLE_Q, c->attn_gate ? 2 * nq : nq, D, true},
                              {ROLE_K, nk, D, true},
                              {ROLE_V, nk, D, !arch_k_is_v(c, il)},
                              {ROLE_O, D, nq, true}};
    const struct row norm[] = {{ROLE_Q_NORM, c->d_q_norm ? c->d_q_norm : d, 0, c->qk_norm},
                               {ROLE_K_NORM, c->d_k_norm ? c->d_k_norm : d, 0, c->qk_norm}};
    SL_TRY(matrices(l, mat, BASE_COUNT_OF(mat), err));
    for (int r = 0; r < N_ROLE; r++) {
        struct row one = {(enum arch_role)r, c->n_head, 0, arch_in(c->per_head, r)};
        SL_TRY(gains(l, &one, 1, err));
    }
    if (c->layer[l->layer].index == ARCH_INDEX_OWN) SL_TRY(block_indexer(l, err));
    return gains(l, norm, BASE_COUNT_OF(norm), err);
}

/* A lightning indexer. */
static sl_status indexer(struct list *l, sl_err *err)
{
    const struct arch_cfg *c = l->c;
    const struct row q = {ROLE_INDEX_Q, (int64_t)c->n_index * c->d_index, c->q_lora, true},
                     k = {ROLE_INDEX_K, c->d_index, c->d_model, true},
                     w = {ROLE_INDEX_W, c->n_index, c->d_model, true},
                     norm = {ROLE_INDEX_K_NORM, c->d_index, 0, true},
                     gate = {ROLE_INDEX_ENTRY_GATE, c->d_index, c->d_model, c->index_pool > 0},
                     ape = {ROLE_INDEX_ENTRY_APE, c->index_pool, c->d_index, c->index_pool > 0};
    SL_TRY(add(l, &gate, "weight", IO_MOCK_MATRIX, err));
    SL_TRY(add(l, &ape, "weight", IO_MOCK_EXACT, err));
    SL_TRY(add(l, &q, "weight", IO_MOCK_MATRIX, err));
    SL_TRY(add(l, &k, "weight", IO_MOCK_MATRIX, err));
    SL_TRY(add(l, &norm, "weight", IO_MOCK_GAIN, err));
    SL_TRY(add(l, &norm, "bias", IO_MOCK_SMALL, err));
    return add(l, &w, "weight", IO_MOCK_EXACT, err);
}

static sl_status mla(struct list *l, sl_err *err)
{
    const struct arch_cfg *c = l->c;
    int64_t D = c->d_model, nq = (int64_t)c->n_head * c->d_head, H = c->n_head;
    bool low = c->q_lora > 0;
    const struct row mat[] = {{ROLE_Q, nq, D, !low},
                              {ROLE_Q_A, c->q_lora, D, low},
                              {ROLE_Q_B, nq, c->q_lora, low},
                              {ROLE_KV_A, c->kv_lora + c->d_rope, D, true},
                              {ROLE_KV_B, H * (c->d_nope + c->d_v), c->kv_lora, true},
                              {ROLE_HEAD_GATE, H, D, c->head_gate},
                              {ROLE_O, D, H * c->d_v, true}};
    const struct row norm[] = {{ROLE_Q_A_NORM, c->q_lora, 0, low},
                               {ROLE_KV_A_NORM, c->kv_lora, 0, true}};
    SL_TRY(matrices(l, mat, BASE_COUNT_OF(mat), err));
    if (c->layer[l->layer].index == ARCH_INDEX_OWN) SL_TRY(indexer(l, err));
    return gains(l, norm, BASE_COUNT_OF(norm), err);
}

static sl_status kda(struct list *l, sl_err *err)
{
    const struct arch_cfg *c = l->c;
    int64_t D = c->d_model, n = c->n_delta_v, dk = c->d_delta_k, dv = c->d_delta_v,
            k = c->n_delta_k * dk, v = n * dv;
    bool low = !c->kda_whole;
    const struct row mat[] = {{ROLE_Q, k, D, true},
                              {ROLE_K, k, D, true},
                              {ROLE_V, v, D, true},
                              {ROLE_O, D, v, true},
                              {ROLE_DELTA_B, n, D, true},
                              {ROLE_KDA_F_A, low ? dk : n * dk, D, true},
                              {ROLE_KDA_F_B, n * dk, dk, low},
                              {ROLE_KDA_G_A, low ? dv : v, D, true},
                              {ROLE_KDA_G_B, v, dv, low}};
    const struct row conv[] = {{ROLE_KDA_CONV_Q, k, c->n_conv, true},
                               {ROLE_KDA_CONV_K, k, c->n_conv, true},
                               {ROLE_KDA_CONV_V, v, c->n_conv, true}};
    const struct row norm = {ROLE_DELTA_NORM, dv, 0, true},
                     vec[] = {{ROLE_DELTA_DT, n * dk, 0, true}, {ROLE_DELTA_DECAY, n, 0, true}};
    SL_TRY(matrices(l, mat, BASE_COUNT_OF(mat), err));
    for (int i = 0; i < BASE_COUNT_OF(conv); i++)
        SL_TRY(add(l, &conv[i], "weight", IO_MOCK_EXACT, err));
    for (int i = 0; i < 2; i++)
        SL_TRY(add(l, &vec[i], "weight", IO_MOCK_SMALL, err));
    return gains(l, &norm, 1, err);
}

static sl_status delta(struct list *l, sl_err *err)
{
    const struct arch_cfg *c = l->c;
    int64_t D = c->d_model, nv = c->n_delta_v, v = nv * c->d_delta_v,
            qkv = arch_delta_channels(c);
    bool packed = arch_packs_delta(c);
    if (c->kda) return kda(l, err);
    const struct row mat[] = {{ROLE_DELTA_QKVZ, qkv + v, D, packed},
                              {ROLE_DELTA_BA, 2 * nv, D, packed},
                              {ROLE_DELTA_QKV, qkv, D, !packed},
                              {ROLE_DELTA_Z, v, D, !packed},
                              {ROLE_DELTA_B, nv, D, !packed},
                              {ROLE_DELTA_A, nv, D, !packed},
                              {ROLE_DELTA_O, D, v, true}};
    const struct row conv = {ROLE_DELTA_CONV, qkv, c->n_conv, true},
                     norm = {ROLE_DELTA_NORM, c->d_delta_v, 0, true},
                     vec[] = {{ROLE_DELTA_DT, nv, 0, true}, {ROLE_DELTA_DECAY, nv, 0, true}};
    SL_TRY(matrices(l, mat, BASE_COUNT_OF(mat), err));
    SL_TRY(add(l, &conv, "weight", IO_MOCK_EXACT, err));
    for (int i = 0; i < 2; i++)
        SL_TRY(add(l, &vec[i], "weight", IO_MOCK_SMALL, err));
    return gains(l, &norm, 1, err);
}

/* Keys that are values too; entries of some width, in overlapping windows twice that. */
static sl_status entries(struct list *l, const enum arch_role role[4], int64_t width, bool two,
                         sl_err *err)
{
    int64_t D = l->c->d_model, n = two ? 2 * width : width, ratio = l->c->layer[l->layer].ratio;
    const struct row mat[] = {{role[0], n, D, true}, {role[1], n, D, true}},
                     norm = {role[3], width, 0, true}, ape = {role[2], ratio, n, true};
    SL_TRY(matrices(l, mat, 2, err));
    SL_TRY(add(l, &ape, "weight", IO_MOCK_EXACT, err));
    return gains(l, &norm, 1, err);
}

static sl_status ckv(struct list *l, sl_err *err)
{
    static const enum arch_role of_keys[] = {ROLE_ENTRY_KV, ROLE_ENTRY_GATE, ROLE_ENTRY_APE,
                                             ROLE_ENTRY_NORM},
                                of_index[] = {ROLE_INDEX_ENTRY_KV, ROLE_INDEX_ENTRY_GATE,
                                              ROLE_INDEX_ENTRY_APE, ROLE_INDEX_ENTRY_NORM};
    const struct arch_cfg *c = l->c;
    int64_t D = c->d_model, nq = (int64_t)c->n_head * c->d_head, no = c->o_groups * c->o_lora;
    bool fine = c->layer[l->layer].index == ARCH_INDEX_OWN;
    const struct row mat[] = {{ROLE_Q_A, c->q_lora, D, true},
                              {ROLE_Q_B, nq, c->q_lora, true},
                              {ROLE_KV_A, c->d_head, D, true},
                              {ROLE_O_A, no, nq / c->o_groups, true},
                              {ROLE_O, D, no, true},
                              {ROLE_INDEX_Q, (int64_t)c->n_index * c->d_index, c->q_lora, fine}},
                     norm[] = {{ROLE_Q_A_NORM, c->q_lora, 0, true},
                               {ROLE_KV_A_NORM, c->d_head, 0, true},
                               {ROLE_SINKS, c->n_head, 0, true}},
                     w = {ROLE_INDEX_W, c->n_index, D, fine};
    SL_TRY(matrices(l, mat, BASE_COUNT_OF(mat), err));
    SL_TRY(gains(l, norm, BASE_COUNT_OF(norm), err));
    SL_TRY(add(l, &w, "weight", IO_MOCK_EXACT, err));
    if (c->layer[l->layer].ratio) SL_TRY(entries(l, of_keys, c->d_head, fine, err));
    return fine ? entries(l, of_index, c->d_index, true, err) : SL_OK;
}

/* How a block reads and writes streams. */
static sl_status streams(struct list *l, sl_err *err)
{
    bool has = l->layer < l->c->n_layer || arch_mtp_streams(l->c);
    int64_t N = has ? l->c->n_stream : 0, n = (2 + N) * N;
    const struct row fn[] = {{ROLE_HC_ATTN_FN, n, N * l->c->d_model, N > 0},
                             {ROLE_HC_FFN_FN, n, N * l->c->d_model, N > 0}},
                     vec[] = {{ROLE_HC_ATTN_BASE, n, 0, N > 0},
                              {ROLE_HC_ATTN_SCALE, 3, 0, N > 0},
                              {ROLE_HC_FFN_BASE, n, 0, N > 0},
                              {ROLE_HC_FFN_SCALE, 3, 0, N > 0}};
    for (int i = 0; i < BASE_COUNT_OF(fn); i++)
        SL_TRY(add(l, &fn[i], "weight", IO_MOCK_EXACT, err));
    return gains(l, vec, BASE_COUNT_OF(vec), err);
}

static sl_status gated(struct list *l, const enum arch_role role[3], int64_t F, sl_err *err)
{
    int64_t D = l->c->d_model;
    const struct row mat[] = {{role[0], F, D, true}, {role[1], F, D, true}, {role[2], D, F, true}};
    return matrices(l, mat, BASE_COUNT_OF(mat), err);
}

static sl_status moe(struct list *l, sl_err *err)
{
    static const enum arch_role one[] = {ROLE_GATE_EXPS, ROLE_UP_EXPS, ROLE_DOWN_EXPS},
                                all[] = {ROLE_GATE_SHEXP, ROLE_UP_SHEXP, ROLE_DOWN_SHEXP};
    const struct arch_cfg *c = l->c;
    int64_t D = c->d_model, E = c->n_expert, F = c->d_ff_expert;
    const struct row router = {ROLE_ROUTER, E, D, true}, selects = {ROLE_ROUTER_BIAS, E, 0, true};
    SL_TRY(matrix(l, &router, IO_MOCK_EXACT, err));
    if (c->route_bias && !c->layer[l->layer].hash) SL_TRY(add(l, &selects, "", IO_MOCK_SMALL, err));
    for (l->expert = 0; l->expert < c->n_expert; l->expert++)
        SL_TRY(gated(l, one, F, err));
    l->expert = 0;
    SL_TRY(add(l, &(struct row){ROLE_SHEXP_GATE, 1, D, c->shared_gate}, "weight", IO_MOCK_EXACT,
               err));
    return c->n_shared ? gated(l, all, arch_d_shared(c), err) : SL_OK;
}

/* Norms of what sub-layers give; the factor at the end; of experts beside a dense block. */
static sl_status sandwich(struct list *l, sl_err *err)
{
    int64_t D = l->c->d_model;
    bool there = l->c->sandwich, moe = there && l->c->layer[l->layer].ffn == ARCH_MOE;
    const struct row all[] = {{ROLE_ATTN_POST_NORM, D, 0, there},
                              {ROLE_FFN_POST_NORM, D, 0, there},
                              {ROLE_LAYER_SCALE, 1, 0, there},
                              {ROLE_FFN_POST_NORM_1, D, 0, moe},
                              {ROLE_FFN_PRE_NORM_2, D, 0, moe},
                              {ROLE_FFN_POST_NORM_2, D, 0, moe},
                              {ROLE_ROUTER_SCALE, D, 0, moe},
                              {ROLE_EXPERT_SCALE, l->c->n_expert, 0, moe}};
    return gains(l, all, BASE_COUNT_OF(all), err);
}

static sl_status layer(struct list *l, sl_err *err)
{
    static const enum arch_role dense[] = {ROLE_GATE, ROLE_UP, ROLE_DOWN};
    const struct arch_cfg *c = l->c;
    int64_t D = c->d_model, N = arch_mtp_streams(c) ? c->n_stream : 0;
    bool is_mtp = l->layer >= c->n_layer;
    enum arch_mixer mixer = c->layer[l->layer].mixer;
    const struct row norm[] = {{ROLE_ATTN_NORM, D, 0, true},
                               {ROLE_FFN_NORM, D, 0, true},
                               {ROLE_MTP_ENORM, D, 0, is_mtp},
                               {ROLE_MTP_HNORM, D, 0, is_mtp},
                               {ROLE_MTP_HEAD_NORM, D, 0, is_mtp},
                               {ROLE_MTP_HC_BASE, N, 0, is_mtp},
                               {ROLE_MTP_HC_SCALE, 1, 0, is_mtp && N}};
    const struct row pair[] = {{ROLE_MTP_EH, D, 2 * D, is_mtp && !N},
                               {ROLE_MTP_E, D, D, is_mtp && N},
                               {ROLE_MTP_H, D, D, is_mtp && N}},
                     head = {ROLE_MTP_HC_FN, N, N * D, is_mtp && N};
    SL_TRY(gains(l, norm, BASE_COUNT_OF(norm), err));
    SL_TRY(matrices(l, pair, BASE_COUNT_OF(pair), err));
    SL_TRY(add(l, &head, "weight", IO_MOCK_EXACT, err));
    SL_TRY(streams(l, err));
    SL_TRY((mixer == ARCH_MLA     ? mla
            : mixer == ARCH_DELTA ? delta
            : mixer == ARCH_CKV   ? ckv
                                  : gqa)(l, err));
    SL_TRY(sandwich(l, err));
    if (c->layer[l->layer].ffn == ARCH_MOE) SL_TRY(moe(l, err));
    bool is_dense = c->layer[l->layer].ffn != ARCH_MOE || c->sandwich;
    return is_dense ? gated(l, dense, c->d_ff, err) : SL_OK;
}

sl_status arch_mock(io_model *m, const struct arch_cfg *c, enum tensor_dtype type, struct arena *a,
                    sl_err *err)
{
    struct list l = {.m = m, .c = c, .a = a};
    int64_t V = c->n_vocab, D = c->d_model;
    const char *head = arch_global_name(&c->naming, GLOBAL_HEAD);
    SL_TRY(add_name(&l, arch_global_name(&c->naming, GLOBAL_EMBED), IO_MOCK_MATRIX, V, D, err));
    SL_TRY(add_name(&l, arch_global_name(&c->naming, GLOBAL_NORM), IO_MOCK_GAIN, D, 0, err));
    if (!c->tied_head) SL_TRY(add_name(&l, head, IO_MOCK_MATRIX, V, D, err));
    if (c->n_stream && !c->stream_mean) {
        int64_t N = c->n_stream;
        SL_TRY(add_name(&l, arch_global_name(&c->naming, GLOBAL_HC_FN), IO_MOCK_EXACT, N, N * D,
                        err));
        SL_TRY(add_name(&l, arch_global_name(&c->naming, GLOBAL_HC_BASE), IO_MOCK_GAIN, N, 0, err));
        SL_TRY(
            add_name(&l, arch_global_name(&c->naming, GLOBAL_HC_SCALE), IO_MOCK_GAIN, 1, 0, err));
    }
    for (l.layer = 0; l.layer < c->n_layer + c->n_mtp; l.layer++)
        SL_TRY(layer(&l, err));
    return io_mock(m, type, l.t, l.n, err);
}
