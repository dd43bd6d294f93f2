/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that norm what their sub-layers give before it is added, and end with a factor (Gemma 4):
 *
 *   x += norm(attention(norm(x))),  x = (x + norm(ffn(x))) * scale
 *
 * where ffn(x) is a dense block of norm(x), or that of a norm and experts of another one, each
 * normed again, beside each other: their router takes a norm of its own. Nothing is left in r. */
#include <math.h>

#include "model/emit.h"
#include "model/load.h"

/* ---- what it has ---- */

/* The router's input is norm(x) * scale / sqrt(D): one vector of weights. */
static sl_status load_router_norm(struct model *m, int il, struct layer *l, sl_err *err)
{
    int64_t D = m->cfg.d_model;
    char name[LOAD_NAME];
    void *p = NULL;
    arch_tensor_name(&m->cfg.naming, ROLE_ROUTER_SCALE, il, "weight", name, sizeof name);
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)D, sizeof(float), &p, err));
    float *w = p;
    sl_status st = model_load_read(m->io, name, D, w, err);
    for (int64_t i = 0; i < D && !st; i++)
        w[i] = (float)((double)w[i] / sqrt((double)D));
    if (!st) st = model_load_put(m, ROLE_ROUTER_SCALE, w, D, &l->router_norm, err);
    mem_free(p);
    return st;
}

/* A factor of what each expert gives; GGUF files whose experts have scales of their own have it
 * among these. */
static sl_status load_expert_scale(struct model *m, int il, struct layer *l, sl_err *err)
{
    char name[LOAD_NAME], down[LOAD_NAME];
    void *p = NULL;
    arch_tensor_name(&m->cfg.naming, ROLE_EXPERT_SCALE, il, "weight", name, sizeof name);
    arch_tensor_name(&m->cfg.naming, ROLE_DOWN_EXPS, il, "weight", down, sizeof down);
    const struct tensor *t = m->kind == IO_GGUF ? io_find(m->io, down) : NULL;
    if (t && t->type == TENSOR_NVFP4) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, (size_t)m->cfg.n_expert, sizeof(float), &p, err));
    SL_TRY(model_load_read(m->io, name, m->cfg.n_expert, p, err));
    l->expert_scale = p;
    return SL_OK;
}

static sl_status load_scale(struct model *m, int il, struct layer *l, sl_err *err)
{
    char name[LOAD_NAME];
    arch_tensor_name(&m->cfg.naming, ROLE_LAYER_SCALE, il, "weight", name, sizeof name);
    l->scale = 1;
    if (m->kind == IO_GGUF && !io_find(m->io, name)) return SL_OK; /* as llama.cpp reads it */
    SL_TRY(model_load_read(m->io, name, 1, &l->scale, err));
    return l->scale != 0 ? SL_OK : SL_FAIL(err, FORMAT, "%s is 0", name);
}

sl_status model_load_sandwich(struct model *m, int il, struct layer *l, sl_err *err)
{
    int64_t D = m->cfg.d_model;
    if (!m->cfg.sandwich) return SL_OK;
    SL_TRY(model_load_role_vector(m, il, ROLE_ATTN_POST_NORM, D, &l->attn_post, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_FFN_POST_NORM, D, &l->ffn_post, err));
    SL_TRY(load_scale(m, il, l, err));
    if (!l->is_moe) return SL_OK;
    SL_TRY(model_load_role_vector(m, il, ROLE_FFN_POST_NORM_1, D, &l->dense_post, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_FFN_PRE_NORM_2, D, &l->exps_norm, err));
    SL_TRY(model_load_role_vector(m, il, ROLE_FFN_POST_NORM_2, D, &l->exps_post, err));
    SL_TRY(load_router_norm(m, il, l, err));
    return load_expert_scale(m, il, l, err);
}

sl_status model_sandwich_check(const struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    if (!c->sandwich) return SL_OK;
    if (m->opts.n_late)
        return SL_FAIL(err, UNSUPPORTED, "defer: %d: %s norms what experts of a layer give",
                       m->opts.n_late, c->arch);
    if (model_is_own(m) || m->opts.spread)
        return SL_FAIL(err, UNSUPPORTED, "layout: dp, ep: not of %s, whose sub-layers are normed",
                       c->arch);
    for (int il = 0; il < c->n_layer; il++)
        if (model_ffn_apart(m, il))
            return SL_FAIL(err, UNSUPPORTED,
                           "place: layer %d: %s has its feed-forward blocks where its attention is",
                           il, c->arch);
    return SL_OK;
}

/* ---- what it does ---- */

void model_post_norm(struct emit *e, float *x, const float *w)
{
    EMIT(e, norm, .x = x, .w = w, .eps = e->m->cfg.norm_eps, .n = e->m->cfg.d_model, .y = x);
}

/* The stream, normed, as the input of some matrices. */
static void input(struct emit *e, const float *w, dev_act *act)
{
    EMIT(e, norm, .x = e->side->x, .w = w, .eps = e->m->cfg.norm_eps, .n = e->m->cfg.d_model,
         .act = act);
}

static void route(struct emit *e, const struct layer *l)
{
    const struct arch_cfg *c = &e->m->cfg;
    const struct side *s = e->side;
    input(e, l->router_norm, s->a_router);
    EMIT(e, matmul, .act = s->a_router, .n_mat = 1, .w = {l->router}, .y = {s->logit_r});
    EMIT(e, route, .logit = s->logit_r, .n_expert = c->n_expert, .k = c->n_expert_used,
         .n_group = 1, .k_group = 1, .group_max = 1, .norm = c->route_norm, .scale = 1.0f,
         .gain = l->expert_scale, .id = s->id_r, .weight = s->weight_r,
         .count = s->n_routed + (size_t)e->layer * (size_t)c->n_expert);
}

/* The dense block in r and experts in shared; then their sum, normed, in r. */
static void beside(struct emit *e, const struct layer *l)
{
    const struct arch_cfg *c = &e->m->cfg;
    const struct side *s = e->side;
    route(e, l);
    input(e, l->exps_norm, s->a_beside);
    model_gated_emit(e, l, s->r, MODEL_TAP_DOWN);
    struct dev_moe p = model_moe_of(e, s, l, (struct chosen){s->id_r, s->weight_r});
    p.act = s->a_beside;
    p.y = s->shared;
    p.tap = e->tap;
    p.tap.what = MODEL_TAP_DOWN_EXPS;
    p.tap.layer = e->layer;
    model_op(e, DEV_OP_moe)->u.moe = p;
    model_post_norm(e, s->r, l->dense_post);
    model_post_norm(e, s->shared, l->exps_post);
    EMIT(e, norm, .x = s->r, .r = s->shared, .w = l->ffn_post, .eps = c->norm_eps, .n = c->d_model,
         .y = s->r);
}

void model_sandwich_emit(struct emit *e, const struct layer *l)
{
    const struct arch_cfg *c = &e->m->cfg;
    const struct side *s = e->side;
    float *row = model_tap_row(e);
    int D = c->d_model;
    model_post_norm(e, s->r, l->attn_post);
    EMIT(e, norm, .x = s->x, .r = s->r, .w = l->ffn_norm, .eps = c->norm_eps, .n = D, .y = row,
         .act = s->a_ffn);
    model_tap_emit(e, MODEL_TAP_FFN, row, D, D);
    if (l->is_moe) {
        beside(e, l);
    } else {
        model_gated_emit(e, l, s->r, MODEL_TAP_DOWN);
        model_post_norm(e, s->r, l->ffn_post);
    }
    EMIT(e, add, .x = s->x, .y = s->r, .n = D, .scale = l->scale);
}
