/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer layer and the head, as device operators. The output of a sub-layer is left in m->r and added by the next norm. */
#include "model/model_internal.h"

static void qk_norm(struct model *m, const struct dev_step *b, float *x, const float *w, int n_head)
{
    const struct arch_cfg *c = &m->cfg;
    int n = c->qk_norm_whole ? n_head * c->d_head : c->d_head;
    struct dev_norm p = {.x = x, .w = w, .eps = c->norm_eps, .n = n,
                         .n_row = b->n_tok * n_head * c->d_head / n, .y = x};
    dev_norm(m->d, b, &p);
}

static void rope(struct model *m, const struct dev_step *b, float *x, int n_head)
{
    const struct arch_cfg *c = &m->cfg;
    struct dev_rope p = {.x = x, .n_head = n_head, .ldx = (int64_t)n_head * c->d_head, .ldx_h = c->d_head,
                         .n_rot = c->n_rot, .style = c->rope_style == ARCH_ROPE_PAIRS, .freq = m->rope_freq,
                         .mscale = (float)c->yarn_mscale};
    dev_rope(m->d, b, &p);
}

static void gqa_step(struct model *m, dev_kv *kv, const struct dev_step *b, const struct layer *l,
                     int il)
{
    const struct arch_cfg *c = &m->cfg;
    int nk = c->n_head_kv * c->d_head;
    struct dev_matmul qkv = {.act = m->a_attn, .n_row = b->n_tok, .n_mat = 3, .w = {l->q, l->k, l->v},
                             .bias = {l->q_bias, l->k_bias, l->v_bias}, .y = {m->q, m->k, m->v}};
    dev_matmul(m->d, b, &qkv);
    if (l->q_norm) {
        qk_norm(m, b, m->q, l->q_norm, c->n_head);
        qk_norm(m, b, m->k, l->k_norm, c->n_head_kv);
    }
    rope(m, b, m->q, c->n_head);
    rope(m, b, m->k, c->n_head_kv);
    struct dev_kv_put put = {.kv = kv, .layer = il, .k = m->k, .v = m->v, .ldk = nk, .ldv = nk};
    dev_kv_put(m->d, b, &put);
    struct dev_attn at = {.kv = kv, .layer = il, .n_head = c->n_head, .scale = (float)c->attn_scale, .q = m->q,
                          .y = m->y, .n_window = l->n_window, .sink = l->sink};
    dev_attn(m->d, b, &at);
}

/* Which experts were chosen, for model_routed. */
static void count_routed(struct model *m, int il, int n_tok)
{
    uint64_t *n = m->n_routed + (size_t)il * (size_t)m->cfg.n_expert;
    for (int i = 0; i < n_tok * m->cfg.n_expert_used; i++) n[m->id_r[i]]++;
}

static void moe_step(struct model *m, const struct dev_step *b, const struct layer *l, int il)
{
    const struct arch_cfg *c = &m->cfg;
    struct dev_matmul gate = {.act = m->a_ffn, .n_row = b->n_tok, .n_mat = 1, .w = {l->router},
                              .bias = {l->router_add}, .y = {m->logit_r}};
    dev_matmul(m->d, b, &gate);
    struct dev_route rt = {.logit = m->logit_r, .bias = l->router_bias, .n_tok = b->n_tok, .n_expert = c->n_expert,
                           .k = c->n_expert_used, .sigmoid = c->route_sigmoid, .n_group = c->n_group,
                           .k_group = c->n_group_used, .group_max = c->group_max, .norm = c->route_norm,
                           .scale = c->route_scale, .id = m->id_r, .weight = m->weight_r};
    dev_route(m->d, b, &rt);
    count_routed(m, il, b->n_tok);
    if (l->gate_up) {
        struct dev_ffn sh = {.act = m->a_ffn, .n_row = b->n_tok, .gate_up = l->gate_up, .down = l->down,
                             .h_act = m->a_h, .h = m->h, .y = m->shared, .keep_h = m->tap_fn != NULL};
        dev_ffn(m->d, b, &sh);
        model_tap_put(m, MODEL_TAP_DOWN_SHEXP, m->h, b->n_tok, c->n_shared * c->d_ff_expert, (int64_t)c->n_shared * c->d_ff_expert);
    }
    struct dev_moe moe = {.act = m->a_ffn, .n_tok = b->n_tok, .k = c->n_expert_used, .n_expert = c->n_expert,
                          .id = m->id_r, .weight = m->weight_r,
                          .slots = m->slots.n ? &m->slots : NULL, .gate_up = l->gate_up_exps, .down = l->down_exps,
                          .glu = {c->glu.limit, c->glu.alpha, c->glu.plus1},
                          .gate_up_bias = l->gate_up_bias, .down_bias = l->down_bias,
                          .add = l->gate_up ? m->shared : NULL, .y = m->r,
                          .tap = m->tap_fn ? model_tap_expert : NULL, .tap_user = m};
    dev_moe(m->d, b, &moe);
}

void model_layer_step(struct model *m, dev_kv *kv, const struct dev_step *b, const struct layer *l,
                      int il, bool first)
{
    const struct arch_cfg *c = &m->cfg;
    float *tap_y = m->tap_fn ? m->tap_y : NULL;
    m->tap_layer = il;
    struct dev_norm an = {.x = m->x, .r = first ? NULL : m->r, .w = l->attn_norm, .eps = c->norm_eps,
                          .n = c->d_model, .n_row = b->n_tok, .y = tap_y, .act = m->a_attn};
    dev_norm(m->d, b, &an);
    model_tap_put(m, MODEL_TAP_ATTN, tap_y, b->n_tok, c->d_model, c->d_model);
    if (c->kv_lora) model_mla_step(m, kv, b, l, il);
    else gqa_step(m, kv, b, l, il);
    int n_o = c->n_head * (c->kv_lora ? c->d_v : c->d_head);
    model_tap_put(m, MODEL_TAP_O, m->y, b->n_tok, n_o, n_o);
    struct dev_prep po = {.x = m->y, .n = n_o, .n_row = b->n_tok, .act = m->a_o};
    dev_prep(m->d, b, &po);
    struct dev_matmul o = {.act = m->a_o, .n_row = b->n_tok, .n_mat = 1, .w = {l->o}, .bias = {l->o_bias}, .y = {m->r}};
    dev_matmul(m->d, b, &o);
    struct dev_norm fn = {.x = m->x, .r = m->r, .w = l->ffn_norm, .eps = c->norm_eps, .n = c->d_model,
                          .n_row = b->n_tok, .y = tap_y, .act = m->a_ffn};
    dev_norm(m->d, b, &fn);
    model_tap_put(m, MODEL_TAP_FFN, tap_y, b->n_tok, c->d_model, c->d_model);
    if (l->is_moe) {
        moe_step(m, b, l, il);
        return;
    }
    struct dev_ffn ffn = {.act = m->a_ffn, .n_row = b->n_tok, .gate_up = l->gate_up, .down = l->down, .h_act = m->a_h,
                          .h = m->h, .y = m->r, .keep_h = m->tap_fn != NULL};
    dev_ffn(m->d, b, &ffn);
    model_tap_put(m, MODEL_TAP_DOWN, m->h, b->n_tok, c->d_ff, c->d_ff);
}

void model_head_step(struct model *m, const struct dev_step *b, const float *norm,
                     const dev_mat *head)
{
    const struct arch_cfg *c = &m->cfg;
    int n_row = b->want & DEV_WANT_LOGITS ? b->n_row : 0;
    bool all = n_row == b->n_tok;
    struct dev_norm fin = {.x = m->x, .r = m->r, .w = norm, .eps = c->norm_eps, .n = c->d_model, .n_row = b->n_tok,
                           .y = m->hidden, .act = all ? m->a_head : NULL};
    dev_norm(m->d, b, &fin);
    m->tap_layer = c->n_layer;
    model_tap_put(m, MODEL_TAP_HEAD, m->hidden, b->n_tok, c->d_model, c->d_model);
    if (n_row == 0) return;
    if (!all) {
        struct dev_rows sel = {
            .x = m->hidden, .row = b->row_tok, .n_row = n_row, .n = c->d_model, .y = m->sel};
        dev_rows(m->d, b, &sel);
        struct dev_prep p = {.x = m->sel, .n = c->d_model, .n_row = n_row, .act = m->a_head};
        dev_prep(m->d, b, &p);
    }
    struct dev_matmul hd = {
        .act = m->a_head, .n_row = n_row, .n_mat = 1, .w = {head}, .y = {m->logits}};
    dev_matmul(m->d, b, &hd);
}
