/* SPDX-License-Identifier: Apache-2.0 */
/* Which matrices and vectors the feed-forward blocks have: dense ones, routed experts, shared
 * ones. */
#include <stdio.h>

#include "io/mock.h"
#include "model/load.h"

/* gate and up as one pair matrix, and down; roles of the dense or the shared form. */
static sl_status load_gated(struct model *m, int il, bool shared, int64_t F, struct layer *l,
                            sl_err *err)
{
    enum arch_role up = shared ? ROLE_UP_SHEXP : ROLE_UP;
    enum dev_use use =
        shared ? DEV_USE_PLAIN : DEV_USE_MATMUL; /* a shared expert is as precise as the others */
    int64_t D = m->cfg.d_model;
    struct want pair = model_want(m, il, shared ? ROLE_GATE_SHEXP : ROLE_GATE, F, D, use);
    struct want down = model_want(m, il, shared ? ROLE_DOWN_SHEXP : ROLE_DOWN, D, F, use);
    pair.pair = true;
    pair.second = up;
    if (m->opts.pack) {
        SL_TRY(model_load_map(m, &pair, &l->gate_up, err));
    } else {
        struct weight a, b;
        char name_up[LOAD_NAME];
        SL_TRY(model_load_weight(m, pair.name, &pair, &a, err));
        arch_tensor_name(&m->cfg.naming, up, il, "weight", name_up, sizeof name_up);
        SL_TRY(model_load_weight(m, name_up, &pair, &b, err));
        SL_TRY(model_load_part(m, &pair, &a, &b, &l->gate_up, err));
    }
    return model_load_matrix(m, &down, &l->down, err);
}

sl_status model_load_dense(struct model *m, int il, struct layer *l, sl_err *err)
{
    if (m->cfg.d_ff < 1)
        return SL_FAIL(err, FORMAT, "%s: the feed-forward width is missing", io_path(m->io));
    return load_gated(m, il, false, m->cfg.d_ff, l, err);
}

/* ---- experts ---- */

/* The stack of a role's matrices in a GGUF file; *fused: gates and ups of all experts are in one,
 * of each expert the gate's rows first. */
static sl_status expert_stack(const struct model *m, const struct want *s, struct weight *all,
                              bool *fused, sl_err *err)
{
    const struct arch_naming *by = &m->cfg.naming;
    char name[LOAD_NAME];
    struct want stack = *s;
    arch_tensor_name(by, ROLE_GATE_UP_EXPS, s->layer, "weight", name, sizeof name);
    *fused = s->role != ROLE_DOWN_EXPS && io_find(m->io, name);
    stack.rows *= (*fused ? 2 : 1) * (int64_t)m->cfg.n_expert;
    if (*fused)
        stack.role = ROLE_GATE_UP_EXPS;
    else
        arch_tensor_name(by, s->role, s->layer, "weight", name, sizeof name);
    return model_load_weight(m, name, &stack, all, err);
}

/* Matrices [e0, e0 + n) of a role: of a stack in GGUF, one tensor each in HF. */
static sl_status some_experts(const struct model *m, const struct want *s, int e0, int n,
                              struct weight *w, sl_err *err)
{
    char name[LOAD_NAME];
    struct weight all;
    bool fused = false;
    if (m->kind == IO_GGUF) SL_TRY(expert_stack(m, s, &all, &fused, err));
    for (int i = 0; i < n; i++) {
        int64_t e = e0 + i, at = fused ? 2 * e + (s->role == ROLE_UP_EXPS) : e;
        if (m->kind == IO_GGUF) {
            w[i] = weight_rows(&all, at * s->rows, s->rows);
            continue;
        }
        const struct arch_name id = {-1, (int)s->role, s->layer, (int)e, "weight"};
        arch_name_put(&m->cfg.naming, &id, name, sizeof name);
        SL_TRY(model_load_weight(m, name, s, &w[i], err));
    }
    return SL_OK;
}

static sl_status expert_weights(struct model *m, const struct want *like, enum arch_role role,
                                struct weight *w, sl_err *err)
{
    struct want s = *like;
    s.role = role;
    return some_experts(m, &s, 0, s.n, w, err);
}

sl_status model_load_expert(const struct model *m, int il, enum arch_role role, int expert,
                            struct weight *w, sl_err *err)
{
    int64_t D = m->cfg.d_model, F = m->cfg.d_ff_expert;
    bool down = role == ROLE_DOWN_EXPS;
    struct want s = model_want(m, il, role, down ? D : F, down ? F : D, DEV_USE_EXPERTS);
    return some_experts(m, &s, expert, 1, w, err);
}

/* gate and up, and down, of all experts of a layer. */
static sl_status load_experts(struct model *m, int il, struct layer *l, sl_err *err)
{
    int64_t D = m->cfg.d_model, F = m->cfg.d_ff_expert;
    struct want pair = model_want(m, il, ROLE_GATE_EXPS, F, D, DEV_USE_EXPERTS);
    struct want down = model_want(m, il, ROLE_DOWN_EXPS, D, F, DEV_USE_EXPERTS);
    void *p = NULL;
    sl_status st = SL_OK;
    pair.pair = true;
    pair.second = ROLE_UP_EXPS;
    pair.n = down.n = m->cfg.n_expert;
    if (m->opts.pack) {
        SL_TRY(model_load_map(m, &pair, &l->gate_up_exps, err));
        return model_load_map(m, &down, &l->down_exps, err);
    }
    SL_TRY(mem_alloc_array(MEM_SCRATCH, 2 * (size_t)pair.n, sizeof(struct weight), &p, err));
    struct weight *a = p, *b = a + pair.n;
    SL_TRY_OUT(expert_weights(m, &pair, ROLE_GATE_EXPS, a, err));
    SL_TRY_OUT(expert_weights(m, &pair, pair.second, b, err));
    SL_TRY_OUT(model_load_part(m, &pair, a, b, &l->gate_up_exps, err));
    SL_TRY_OUT(expert_weights(m, &down, ROLE_DOWN_EXPS, a, err));
    SL_TRY_OUT(model_load_part(m, &down, a, NULL, &l->down_exps, err));
out:
    mem_free(p);
    return st;
}

/* ---- the router ---- */

/* blk.N.exp_probs_b.bias; some files leave the end out. */
static void router_bias_name(const struct model *m, int il, char *name, int n)
{
    static const char *const tail[] = {"", ".weight"};
    arch_tensor_name(&m->cfg.naming, ROLE_ROUTER_BIAS, il, "", name, n);
    for (int i = 0; i < 2 && m->kind == IO_GGUF && !io_find(m->io, name); i++) {
        char other[LOAD_NAME];
        snprintf(other, sizeof other, "blk.%d.exp_probs_b%s", il, tail[i]);
        if (io_find(m->io, other)) snprintf(name, (size_t)n, "%s", other);
    }
}

/* One number a token: a row, in GGUF files a vector. */
static sl_status load_shared_gate(struct model *m, int il, struct layer *l, sl_err *err)
{
    int64_t D = m->cfg.d_model;
    struct want w = model_want(m, il, ROLE_SHEXP_GATE, 1, D, DEV_USE_EXACT);
    const struct tensor *t = io_find(m->io, w.name);
    void *p = NULL;
    if (m->opts.pack || !t || t->n_dim != 1) return model_load_matrix(m, &w, &l->shared_gate, err);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)D, sizeof(float), &p, err));
    sl_status st = model_load_read(m->io, w.name, D, p, err);
    struct weight row = {.name = w.name,
                         .type = TENSOR_F32,
                         .rows = 1,
                         .cols = D,
                         .data = p,
                         .row_bytes = (uint64_t)D * sizeof(float),
                         .tensor_scale = 1.0f};
    if (!st) st = model_load_part(m, &w, &row, NULL, &l->shared_gate, err);
    mem_free(p);
    return st;
}

/* Row t of the table that chooses experts by ids. One may be there twice, as in files from which
 * experts were taken: both terms count. */
static sl_status check_row(const struct arch_cfg *c, const char *name, const int32_t *id, int t,
                           sl_err *err)
{
    for (int k = 0; k < c->n_expert_used; k++)
        if (id[k] < 0 || id[k] >= c->n_expert)
            return SL_FAIL(err, FORMAT, "%s[%d][%d] is %d, which is none of %d experts", name, t, k,
                           id[k], c->n_expert);
    return SL_OK;
}

/* Which experts a token has by its id. A folder without weights has no such table: any will do. */
static sl_status load_expert_of(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t V = c->n_vocab, K = c->n_expert_used;
    char name[LOAD_NAME];
    void *p = NULL;
    arch_tensor_name(&c->naming, ROLE_EXPERT_OF, il, "weight", name, sizeof name);
    const struct tensor *t = io_find(m->io, name);
    bool mock = io_is_mock(m->io);
    if (!t && !mock) return io_missing(m->io, name, err);
    if (t && ((t->type != TENSOR_I64 && t->type != TENSOR_I32) || t->n_dim != 2 ||
              !t->data || t->shape[0] != V || t->shape[1] != K || t->row_bytes))
        return SL_FAIL(err, FORMAT, "%s: expected whole numbers [%lld, %lld]", name, (long long)V,
                       (long long)K);
    SL_TRY(mem_arena_array(&m->arena, (size_t)(V * K), sizeof(int32_t), &p, err));
    int32_t *id = p;
    for (int64_t i = 0; i < V * K; i++) {
        int64_t wide = t ? tensor_whole(t, i) : i % c->n_expert;
        id[i] = wide < 0 || wide > INT32_MAX ? -1 : (int32_t)wide;
    }
    for (int v = 0; v < V; v++)
        SL_TRY(check_row(c, name, id + v * K, v, err));
    l->expert_of = id;
    return SL_OK;
}

sl_status model_load_moe(struct model *m, int il, struct layer *l, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct want router = model_want(m, il, ROLE_ROUTER, c->n_expert, c->d_model, DEV_USE_EXACT);
    char name[LOAD_NAME];
    SL_TRY(model_load_matrix(m, &router, &l->router, err));
    router_bias_name(m, il, name, sizeof name);
    if (c->layer[il].hash) SL_TRY(load_expert_of(m, il, l, err));
    if (c->route_bias && !c->layer[il].hash) {
        void *host = NULL;
        SL_TRY(mem_arena_array(&m->arena, (size_t)c->n_expert, sizeof(float), &host, err));
        SL_TRY(model_load_read(m->io, name, c->n_expert, host, err));
        l->router_bias = host;
    }
    SL_TRY(load_experts(m, il, l, err));
    if (c->sandwich) return model_load_dense(m, il, l, err);
    if (!c->n_shared) return SL_OK;
    if (c->shared_gate) SL_TRY(load_shared_gate(m, il, l, err));
    return load_gated(m, il, true, arch_d_shared(c), l, err);
}
