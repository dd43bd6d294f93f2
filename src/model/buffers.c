/* SPDX-License-Identifier: Apache-2.0 */
/* What steps use, reserved once: on every device the prepared inputs and buffers of the parts that
 * lie there. */
#include <string.h>

#include "model/model_internal.h"

/* ---- prepared inputs: one per kind, told of every matrix of all layers that takes it ---- */

#define MATS_EACH (16 + MODEL_STREAM_ROOMS) /* of a layer, at most */
struct mats {
    const struct model *m;
    const struct side *side;
    const dev_mat **p;
    int n;
};

/* One of that part of layer il, if it is on the side. */
static void add(struct mats *s, int il, enum model_part part, const dev_mat *w)
{
    if (w && model_side_in(s->m, il, part) == s->side) s->p[s->n++] = w;
}

enum input {
    IN_ATTN,
    IN_Q_A,
    IN_O,
    IN_O_WIN,
    IN_MIX,
    IN_A,
    IN_Z,
    IN_FFN,
    IN_ROUTER,
    IN_BESIDE,
    IN_H
};

/* Which input a layer's output matrix takes. */
static enum input o_input(const struct arch_cfg *c, int il)
{
    if (c->layer[il].mixer == ARCH_DELTA) return IN_MIX;
    return arch_is_win(c, il) ? IN_O_WIN : IN_O;
}

static void add_layer(struct mats *s, int il, const struct layer *l, enum input in)
{
    bool beside = s->m->cfg.sandwich;
    enum model_part gated = l->is_moe && !beside ? MODEL_SHARED : MODEL_DENSE;
    switch (in) {
    case IN_ATTN:
        add(s, il, MODEL_ATTN, l->q);
        add(s, il, MODEL_ATTN, l->k);
        add(s, il, MODEL_ATTN, l->v);
        add(s, il, MODEL_ATTN, l->q_a);
        add(s, il, MODEL_ATTN, l->kv_a);
        add(s, il, MODEL_ATTN, l->head_gate);
        add(s, il, MODEL_ATTN, l->index_k);
        add(s, il, MODEL_ATTN, l->index_w);
        add(s, il, MODEL_ATTN, l->q_b ? NULL : l->index_q);
        add(s, il, MODEL_ATTN, l->entry.kv);
        add(s, il, MODEL_ATTN, l->entry.gate);
        add(s, il, MODEL_ATTN, l->index_entry.kv);
        add(s, il, MODEL_ATTN, l->index_entry.gate);
        for (int i = 0; i < BASE_COUNT_OF(l->in); i++)
            add(s, il, MODEL_ATTN, l->in[i]);
        break;
    case IN_Q_A:
        add(s, il, MODEL_ATTN, l->q_b);
        add(s, il, MODEL_ATTN, l->q_b ? l->index_q : NULL);
        break;
    case IN_O:
    case IN_O_WIN:
    case IN_MIX:
        if (in == o_input(&s->m->cfg, il)) add(s, il, MODEL_ATTN, l->o);
        break;
    case IN_A:
        add(s, il, MODEL_ATTN, l->a_of);
        break;
    case IN_Z:
        add(s, il, MODEL_ATTN, l->z_of);
        break;
    case IN_ROUTER:
        if (s->m->cfg.sandwich) add(s, il, MODEL_ROUTER, l->router);
        break;
    case IN_BESIDE:
        if (s->m->cfg.sandwich) add(s, il, MODEL_EXPERTS, l->gate_up_exps);
        break;
    case IN_FFN:
        add(s, il, gated, l->gate_up);
        if (s->m->cfg.sandwich) break; /* the others have norms of their own */
        add(s, il, MODEL_SHARED, l->shared_gate);
        add(s, il, MODEL_ROUTER, l->router);
        add(s, il, MODEL_EXPERTS, l->gate_up_exps);
        if (model_hot_of(s->m, il)) add(s, il, MODEL_ATTN, s->m->hot[il].gate_up);
        if (model_stream_of(s->m, il))
            for (int i = 0; i < s->m->stream.n_room; i++)
                if (s->m->stream.room[i].like.cols == s->m->cfg.d_model)
                    add(s, il, MODEL_ATTN, s->m->stream.room[i].mat[0]);
        break;
    case IN_H:
        add(s, il, gated, l->down);
        break;
    }
}

/* The input of experts, of the tokens of all ranks. */
static sl_status open_exps(struct model *m, struct side *s, sl_err *err)
{
    void *p = NULL;
    int n_layer = m->cfg.n_layer, n = 0;
    if (!model_is_own(m)) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(n_layer + m->n_mtp), sizeof(dev_mat *), &p, err));
    const dev_mat **w = p;
    for (int i = 0; i < n_layer + m->n_mtp; i++) {
        const struct layer *l = model_layer(m, i);
        if (l->gate_up_exps && model_side_in(m, i, MODEL_EXPERTS) == s) w[n++] = l->gate_up_exps;
    }
    const struct dev_inputs in = {w, n, m->cfg.d_model, m->dims.n_dp * m->opts.n_tok_max};
    sl_status st = n ? dev_act_open(s->d, &in, &s->a_exps, err) : SL_OK;
    mem_free(p);
    return st;
}

/* NULL where nothing on the side takes it. */
static sl_status open_input(struct model *m, const struct side *side, enum input in, int n_col,
                            dev_act **out, sl_err *err)
{
    void *p = NULL;
    int n_layer = m->cfg.n_layer;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, MATS_EACH * (size_t)(n_layer + m->n_mtp),
                           sizeof(dev_mat *), &p, err));
    struct mats s = {m, side, p, 0};
    for (int i = 0; i < n_layer; i++)
        add_layer(&s, i, &m->layer[i], in);
    for (int i = 0; i < m->n_mtp; i++)
        add_layer(&s, n_layer + i, &m->mtp[i].layer, in);
    sl_status st =
        s.n ? dev_act_open(side->d, &(struct dev_inputs){s.p, s.n, n_col, m->opts.n_tok_max}, out,
                           err)
            : SL_OK;
    mem_free(p);
    return st;
}

int model_wide_ff(const struct arch_cfg *c)
{
    return BASE_MAX(c->d_ff, (int)arch_d_shared(c));
}

/* What MTP layers take: pairs, of matrices eh; of several streams e, and h of each. */
static sl_status open_mtp(struct model *m, struct side *s, const dev_mat *const *eh,
                          const dev_mat *const *h, sl_err *err)
{
    int D = m->cfg.d_model, N = m->cfg.n_stream, T = m->opts.n_tok_max;
    if (!arch_mtp_streams(&m->cfg))
        return dev_act_open(s->d, &(struct dev_inputs){eh, m->n_mtp, 2 * D, T}, &s->a_eh, err);
    SL_TRY(dev_act_open(s->d, &(struct dev_inputs){eh, m->n_mtp, D, T}, &s->a_e, err));
    return dev_act_open(s->d, &(struct dev_inputs){h, m->n_mtp, D, N * T}, &s->a_streams, err);
}

static sl_status open_inputs(struct model *m, struct side *s, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    int D = c->d_model, n_mat = 0;
    const dev_mat *heads[1 + MODEL_MTP_MAX], *ehs[MODEL_MTP_MAX], *hs[MODEL_MTP_MAX];
    int n_o = c->n_head * (c->kv_lora ? c->d_v : c->d_head);
    if (c->o_groups) n_o = c->o_groups * c->o_lora;
    SL_TRY(open_input(m, s, IN_ATTN, D, &s->a_attn, err));
    SL_TRY(open_input(m, s, IN_O, n_o, &s->a_o, err));
    SL_TRY(open_input(m, s, IN_O_WIN, c->n_head * c->d_head_win, &s->a_o_win, err));
    SL_TRY(open_input(m, s, IN_MIX, c->n_delta_v * c->d_delta_v, &s->a_mix, err));
    SL_TRY(open_input(m, s, IN_A, c->d_delta_k, &s->a_a, err));
    SL_TRY(open_input(m, s, IN_Z, c->d_delta_v, &s->a_z, err));
    SL_TRY(open_input(m, s, IN_FFN, D, &s->a_ffn, err));
    SL_TRY(open_input(m, s, IN_ROUTER, D, &s->a_router, err));
    SL_TRY(open_input(m, s, IN_BESIDE, D, &s->a_beside, err));
    SL_TRY(open_exps(m, s, err));
    SL_TRY(open_input(m, s, IN_H, model_wide_ff(c), &s->a_h, err));
    if (c->q_lora) SL_TRY(open_input(m, s, IN_Q_A, c->q_lora, &s->a_q_a, err));
    heads[n_mat++] = m->head;
    for (int i = 0; i < m->n_mtp; i++) {
        ehs[i] = arch_mtp_streams(c) ? m->mtp[i].e : m->mtp[i].eh;
        hs[i] = m->mtp[i].h;
        if (m->mtp[i].head != m->head) heads[n_mat++] = m->mtp[i].head;
    }
    if (m->n_mtp && s == model_side(m, MODEL_ATTN)) SL_TRY(open_mtp(m, s, ehs, hs, err));
    if (s != model_side(m, MODEL_HEAD) || !m->head) return SL_OK;
    return dev_act_open(
        s->d,
        &(struct dev_inputs){heads, n_mat, D, BASE_MAX(m->opts.n_logit_max, m->opts.n_tok_max)},
        &s->a_head, err);
}

/* ---- step buffers ---- */

/* Parts of the model, as bits. */
enum {
    B_EMBED = 1 << MODEL_EMBED,
    B_ATTN = 1 << MODEL_ATTN,
    B_DENSE = 1 << MODEL_DENSE,
    B_SHARED = 1 << MODEL_SHARED,
    B_ROUTER = 1 << MODEL_ROUTER,
    B_EXPERTS = 1 << MODEL_EXPERTS,
    B_HEAD = 1 << MODEL_HEAD,
    B_FFN = B_DENSE | B_SHARED | B_ROUTER | B_EXPERTS
};

/* A buffer of rows of that many values, which the parts use. */
struct buffer {
    void *out; /* a pointer's address */
    unsigned parts;
    int64_t rows, cols; /* cols 0: the model has no use for it */
};

static bool is_of_layers(enum model_part p)
{
    return 1u << p & (B_ATTN | B_FFN);
}

static bool has_part(const struct model *m, int il, enum model_part p)
{
    return model_has_layer(&m->cfg, &m->dims, il) && model_has_part(&m->cfg, il, p);
}

/* Are any of a layer's experts hot, with its attention on that side? NULL: on any. */
static bool any_hot(const struct model *m, const struct side *s)
{
    for (int il = 0; il < m->cfg.n_layer + m->n_mtp; il++)
        if (model_hot_of(m, il) && (!s || model_side_in(m, il, MODEL_ATTN) == s)) return true;
    return false;
}

static unsigned parts_on(const struct model *m, const struct side *s)
{
    unsigned parts = s == model_side(m, MODEL_ATTN) ? B_ATTN : 0; /* it ends a pass */
    int n_layer = m->cfg.n_layer + m->n_mtp;
    for (int p = 0; p < MODEL_N_PART; p++)
        if (!is_of_layers((enum model_part)p) && model_side(m, (enum model_part)p) == s)
            parts |= 1u << p;
        else
            for (int il = 0; il < n_layer; il++)
                if (has_part(m, il, (enum model_part)p) &&
                    model_side_in(m, il, (enum model_part)p) == s)
                    parts |= 1u << p;
    if (!m->embed) parts &= ~(unsigned)B_EMBED;
    if (!m->head) parts &= ~(unsigned)B_HEAD;
    return parts;
}

/* Does any layer's feed-forward block lie elsewhere than attention? */
static bool any_apart(const struct model *m)
{
    for (int il = 0; il < m->cfg.n_layer + m->n_mtp; il++)
        if (model_ffn_apart(m, il)) return true;
    return false;
}

/* Are any layer's shared experts elsewhere than the others? Then attention's side adds them. */
static bool any_added(const struct model *m)
{
    for (int il = 0; il < m->cfg.n_layer + m->n_mtp; il++)
        if (model_has_part(&m->cfg, il, MODEL_SHARED) &&
            (m->opts.is_placed ||
             model_side_in(m, il, MODEL_SHARED) != model_side_in(m, il, MODEL_EXPERTS)))
            return true;
    return false;
}

/* Of several ranks, this one's columns. */
static int64_t cols(const struct model *m, enum model_cut cut)
{
    return m->ranks.join.n_rank > 1 ? m->ranks.part[cut][m->dims.rank] : 0;
}

/* Those of n buffers that the side's parts use; host: in memory of the host. */
static sl_status open_all(struct model *m, const struct side *s, const struct buffer *all, int n,
                          bool host, sl_err *err)
{
    unsigned parts = parts_on(m, s);
    for (const struct buffer *b = all; b < all + n; b++) {
        void *p = NULL;
        if (!(b->parts & parts) || b->cols == 0 || b->rows == 0) continue;
        if (host && !dev_is_host(s->d))
            SL_TRY(mem_arena_array(&m->arena, (size_t)(b->rows * b->cols), 4, &p, err));
        else
            SL_TRY(dev_alloc(s->d, MEM_ACTS, b->rows * b->cols * 4, &p, err));
        memcpy(b->out, &p, sizeof p);
    }
    return SL_OK;
}

/* Outputs of a layer's mixer. */
static int64_t wide_y(const struct arch_cfg *c)
{
    int64_t y = c->kv_lora ? (int64_t)c->n_head * c->d_v : arch_wide_q(c);
    if (c->o_groups) y = (int64_t)c->o_groups * c->o_lora;
    return BASE_MAX(y, (int64_t)c->n_delta_v * c->d_delta_v);
}

/* Keys of a layer, or its latents. */
static int64_t wide_k(const struct arch_cfg *c, const struct model_dims *d)
{
    int64_t n = c->kv_lora ? c->kv_lora + c->d_rope : (int64_t)d->n_head_kv * c->d_head;
    return BASE_MAX(n, (int64_t)c->n_head_kv_win * c->d_head_win);
}

static sl_status open_side(struct model *m, struct side *s, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    const struct model_dims *d = &m->dims;
    int64_t T = m->opts.n_tok_max, D = c->d_model, nl = m->opts.n_logit_max;
    int64_t nq = c->d_head_win ? arch_wide_q(c) : (int64_t)d->n_head * c->d_head, nk = wide_k(c, d);
    int64_t K = c->n_expert ? c->n_expert_used : 0;
    unsigned home_attn = s == model_side(m, MODEL_ATTN) ? B_ATTN : 0; /* streamed ones come there */
    unsigned sum = any_added(m) ? B_ATTN : 0, hot = any_hot(m, s) ? B_ATTN : 0;
    unsigned flow = m->stream.slab ? home_attn : 0, terms = hot | flow;
    bool many = m->ranks.join.n_rank > 1, spread = m->opts.spread;
    int64_t own = model_is_own(m) ? model_own_tok_max(m) : 0; /* tokens of one rank */
    int64_t n_etp = BASE_MAX(m->ranks.share.n_rank, 1), /* rows of experts that ranks share: */
            etp = n_etp > 1 ? (own ? d->n_dp : 1) * T * K : 0, h = spread ? etp : many ? T * K : 0;
    bool ckv = c->o_groups > 0;
    int64_t pair = !arch_mtp_streams(c) ? 2 * D : model_x_cols(c) > nq ? model_x_cols(c) : 0;
    int64_t latents = c->kv_lora ? c->kv_lora + c->d_rope + c->d_index + c->n_index : 0;
    const struct buffer all[] = {
        {&s->x, B_EMBED | B_ATTN, T, model_x_cols(c)},
        {&s->r, B_ATTN | B_DENSE | B_EXPERTS | (c->n_stream ? B_EMBED : 0), T, D},
        {&s->stream_y, B_ATTN, T, c->n_stream ? D : 0},
        {&s->stream_mix, B_ATTN, T, model_stream_mix_cols(c)},
        {&s->stream_part, B_ATTN, T, c->n_stream ? dev_streams_parts(c->n_stream, c->d_model) : 0},
        {&s->q, B_ATTN, T, nq},
        {&s->k, B_ATTN, T, nk},
        {&s->v, B_ATTN, T, c->kv_lora || ckv ? 0 : nk},
        {&s->y, B_ATTN, T, many && !m->opts.plain ? 0 : wide_y(c)},
        {&s->qg, B_ATTN, T, c->attn_gate ? 2 * nq : 0},
        {&s->mix, B_ATTN, T, model_delta_cols(c)},
        {&s->low, B_ATTN, T, c->kda && !c->kda_whole ? c->d_delta_k + c->d_delta_v : 0},
        {&s->head_gate, B_ATTN, T, c->head_gate ? d->n_head : 0},
        {&s->share, B_SHARED, T, c->shared_gate},
        {&s->qa, B_ATTN, T, c->q_lora},
        {&s->index_q, B_ATTN, T, (int64_t)c->n_index * c->d_index},
        {&s->index_k, B_ATTN, T, c->d_index},
        {&s->index_w, B_ATTN, T, c->n_index},
        {&s->heads, B_ATTN, T, ckv ? nq : 0},
        {&s->entry[0], B_ATTN, T, ckv ? 2 * c->d_head : 0},
        {&s->entry[1], B_ATTN, T, ckv ? 2 * c->d_head : 0},
        {&s->entry[2], B_ATTN, T, ckv ? 2 * c->d_index : 0},
        {&s->entry[3], B_ATTN, T, ckv ? 2 * c->d_index : c->index_pool ? c->d_index : 0},
        {&s->pick, B_ATTN, T, m->opts.n_ctx > c->index_top ? model_index_cols(c, d) : 0},
        {&s->h, B_DENSE | B_SHARED, T, model_wide_ff(c)},
        {&s->rows, B_ATTN | B_FFN, T, any_apart(m) || model_is_own(m) ? D : 0},
        {&s->hidden, B_ATTN | B_HEAD, BASE_MAX(T, nl), D},
        {&s->logits, B_HEAD, nl, c->n_vocab},
        {&s->best, B_HEAD, nl, 1},
        {&s->eh_in, B_ATTN, T, m->n_mtp ? pair : 0},
        {&s->logit_r, B_ROUTER, T, c->n_expert},
        {&s->weight_r, B_ROUTER | B_EXPERTS | flow, T, K},
        {&s->id_r, B_ROUTER | B_EXPERTS | terms, T, K},
        {&s->weight_odd, B_ROUTER | B_EXPERTS | flow, T, m->opts.n_late ? K : 0},
        {&s->id_odd, B_ROUTER | B_EXPERTS | terms, T, m->opts.n_late ? K : 0},
        {&s->terms, (any_hot(m, NULL) ? B_EXPERTS : 0) | terms, T * K, D},
        {&s->given, B_EXPERTS, T * K, any_hot(m, NULL) && dev_is_host(s->d) ? D : 0},
        {&s->late, B_EXPERTS | flow | (d->n_stage > 1 ? home_attn : 0), T, m->opts.n_late ? D : 0},
        {&s->shared, B_SHARED | sum | flow | (c->sandwich ? B_EXPERTS : 0), T,
         K && (c->n_shared || c->sandwich) ? D : 0},
        {&s->y_cols, B_ATTN, T, cols(m, MODEL_CUT_HEADS)},
        {&s->r_cols, B_ATTN | B_DENSE | B_SHARED | B_EXPERTS, T, cols(m, MODEL_CUT_MODEL)},
        {&s->logit_cols, B_HEAD, nl, BASE_MAX(cols(m, MODEL_CUT_VOCAB), cols(m, MODEL_CUT_DRAFT))},
        {&s->x_rows, B_EMBED, T, many ? D : 0},
        {&s->whole, B_ATTN, T, many ? latents : 0},
        {&s->h_all, B_DENSE | B_SHARED, T, many ? model_wide_ff(c) : 0},
        {&s->h_exps, B_EXPERTS, h, K ? c->d_ff_expert : 0},
        {&s->etp_rows, B_EXPERTS, etp ? etp / n_etp + 1 : 0, D},
        {&s->exp_rows, B_EXPERTS, T * K, spread && !own ? cols(m, MODEL_CUT_MODEL) : 0},
        {&s->own_rows, B_EXPERTS, own, d->n_rank > 1 ? D : 0},
    };
    SL_TRY(open_all(m, s, all, BASE_COUNT_OF(all), false, err));
    if (!pair) s->eh_in = s->q;
    return SL_OK;
}

/* Of groups with sequences of their own: what ranks give each other, and where rows of all come
 * together, in memory of the host. */
static sl_status open_own(struct model *m, struct side *s, sl_err *err)
{
    const struct model_dims *d = &m->dims;
    int64_t T = m->opts.n_tok_max, D = m->cfg.d_model, nl = m->opts.n_logit_max;
    int64_t K = m->cfg.n_expert_used, A = d->n_dp, R = A * d->n_rank, own = model_own_tok_max(m);
    int64_t W = dev_combine_words(m->opts.combine, (int)D), home = m->opts.rank ? 0 : A;
    int64_t KE = K * BASE_MAX(m->ranks.share.n_rank, 1); /* ranks that a token's row goes to */
    const struct buffer all[] = {
        {&s->send, B_EXPERTS, own, BASE_MAX(D + K, BASE_MIN(KE, R) * D)},
        {&s->give, B_EXPERTS, A * T * K, W},
        {&s->in, B_EXPERTS, A * T, D + K},
        {&s->back, B_EXPERTS, own * K, W},
        {&s->id_all, B_EXPERTS, A * T, K},
        {&s->list, B_EXPERTS, A * T, K},
        {&s->count, B_EXPERTS, R, R},
        {&s->all_logits, B_HEAD, home * nl, m->cfg.n_vocab},
        {&s->all_best, B_HEAD, home * nl, 1},
        {&s->all_hidden, B_HEAD, home * T, D},
        {&s->all_bad, B_HEAD, A, 2 * (int64_t)m->opts.n_seq_max},
    };
    return open_all(m, s, all, BASE_COUNT_OF(all), true, err);
}

/* Where results of a step go to be read, unless the host can read them where they are. */
static sl_status open_host_rows(struct model *m, sl_err *err)
{
    size_t D = (size_t)m->cfg.d_model;
    size_t n_logit = (size_t)m->opts.n_logit_max * (size_t)m->cfg.n_vocab;
    void *p = NULL;
    if (!dev_is_host(model_side(m, MODEL_HEAD)->d)) {
        SL_TRY(mem_arena_array(&m->arena, n_logit, sizeof(float), &p, err));
        m->host_logits = p;
        SL_TRY(mem_arena_array(&m->arena, (size_t)m->opts.n_logit_max, sizeof(int32_t), &p, err));
        m->host_best = p;
    }
    if (dev_is_host(m->d)) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, (size_t)m->opts.n_tok_max * D, sizeof(float), &p, err));
    m->host_hidden = p;
    SL_TRY(mem_arena_array(&m->arena, D, sizeof(float), &p, err));
    m->host_row = p;
    return SL_OK;
}

/* Of several devices, is there a pair of which neither's memory is the host's? Or one whose rows go
 * to other ranks? */
static bool needs_stage(const struct model *m)
{
    int n = m->dims.n_stage > 1;
    for (int i = 0; i < m->place.n_dev; i++)
        n += !dev_is_host(m->place.d[i]);
    return n > 1;
}

static sl_status open_counts(const struct model *m, struct side *s, sl_err *err)
{
    dev *d = s->d;
    size_t n = (size_t)(m->cfg.n_layer + m->n_mtp) * (size_t)m->cfg.n_expert;
    void *zero = NULL, *p = NULL;
    if (n == 0 || !(parts_on(m, s) & B_ROUTER)) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, n, sizeof *s->n_routed, &zero, err));
    sl_status st = dev_alloc(d, MEM_ACTS, (int64_t)(n * sizeof *s->n_routed), &p, err);
    if (!st) st = dev_put(d, p, zero, (int64_t)(n * sizeof *s->n_routed), err);
    mem_free(zero);
    s->n_routed = p;
    return st;
}

static sl_status open_host(struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    size_t T = (size_t)BASE_MAX(m->opts.n_tok_max, m->opts.n_logit_max);
    void *p = NULL;
    size_t n_seq = (size_t)m->opts.n_seq_max * (size_t)BASE_MAX(m->dims.n_dp, 1);
    SL_TRY(mem_arena_array(&m->arena, 2 * n_seq, 1, &p, err));
    m->finite = p;
    m->n_bad = m->finite + n_seq;
    if (needs_stage(m)) {
        int most = BASE_MAX(c->n_expert_used, model_index_cols(c, &m->dims));
        size_t wide = (size_t)BASE_MAX(model_x_cols(c), most);
        SL_TRY(mem_arena_array(&m->arena, 2 * T * wide, sizeof(float), &p, err));
        m->stage = p;
        m->stage_late = m->stage + T * wide;
    }
    return open_host_rows(m, err);
}

/* How rows go to the experts of other ranks, and back. */
struct dev_spread model_buffers_spread(const struct model *m, const struct side *s)
{
    return (struct dev_spread){.ranks = &m->ranks.apart,
                               .n_tok_of = m->ranks.tok_of,
                               .x = s->rows,
                               .swap = m->opts.swap,
                               .act = s->a_exps,
                               .n_all = m->dims.n_dp * m->opts.n_tok_max,
                               .send = s->send,
                               .give = s->give,
                               .in = s->in,
                               .back = s->back,
                               .id = s->id_all,
                               .list = s->list,
                               .count = s->count};
}

sl_status model_buffers_side(struct model *m, struct side *s, sl_err *err)
{
    SL_TRY(open_inputs(m, s, err));
    SL_TRY(open_side(m, s, err));
    return model_is_own(m) ? open_own(m, s, err) : SL_OK;
}

sl_status model_buffers_open(struct model *m, sl_err *err)
{
    for (int i = 0; i < m->place.n_dev; i++) {
        SL_TRY(model_buffers_side(m, &m->side[i], err));
        SL_TRY(open_counts(m, &m->side[i], err));
    }
    if (model_is_own(m)) m->ranks.spread = model_buffers_spread(m, model_own_experts(m));
    m->ranks.etp.h_all = model_own_experts(m)->h_exps;
    m->ranks.etp.y = model_own_experts(m)->etp_rows;
    SL_TRY(model_pieces_open(m, err));
    return open_host(m, err);
}
