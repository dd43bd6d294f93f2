/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer layer and the head: what layers of all kinds have in common, and which emitter
 * makes which kind. */
#include "model/emit.h"

typedef void emit_fn(struct emit *e, const struct layer *l);

static emit_fn *const mixer[] = {
    [ARCH_GQA] = model_gqa_emit, [ARCH_MLA] = model_mla_emit, [ARCH_SCAN] = model_scan_emit,
    [ARCH_DELTA] = model_delta_emit, [ARCH_CKV] = model_ckv_emit};
static emit_fn *const ffn[] = {[ARCH_DENSE] = model_dense_emit, [ARCH_MOE] = model_moe_emit};

void model_emit_begin(struct emit *e, struct model *m)
{
    e->m = m;
    e->n = 0;
    e->layer = -1;
    e->side = model_side(m, MODEL_ATTN);
    e->late = (struct late){0};
    e->begins = NOT_BEGIN;
    e->one = false;
    e->x = NULL;
    e->n_sent = e->n_streamed = 0;
}

struct dev_op *model_op(struct emit *e, enum dev_op_kind kind)
{
    ASSERT(e->n < e->n_max);
    struct dev_op *op = &e->op[e->n++];
    *op = (struct dev_op){.kind = kind, .layer = e->layer, .d = e->side->d};
    return op;
}

void model_move_emit(struct emit *e, struct at from, struct at to, int n, bool wanted)
{
    const struct side *before = e->side;
    int n_row = wanted ? DEV_ROWS_WANTED : 0;
    if (from.side == to.side) return;
    bool direct = dev_is_host(from.side->d) || dev_is_host(to.side->d);
    if (!direct) {
        e->side = from.side;
        EMIT(e, move, .at = from.p, .host = e->m->stage, .out = true, .n = n, .n_row = n_row,
             .gather = wanted);
        from.p = e->m->stage;
    }
    bool out = direct && dev_is_host(to.side->d);
    e->side = out ? from.side : to.side;
    EMIT(e, move, .at = out ? from.p : to.p, .host = out ? to.p : from.p, .out = out, .n = n,
         .n_row = n_row, .gather = wanted && direct);
    e->side = before;
}

const dev_mat *model_if_here(const struct emit *e, enum model_part part, const dev_mat *w)
{
    return model_side_in(e->m, e->layer, part) == e->side ? w : NULL;
}

void model_embed_emit(struct emit *e, const dev_mat *w)
{
    const struct side *to = e->side, *s = model_side(e->m, MODEL_EMBED);
    e->side = s;
    float *x = model_begin_row(e, s);
    float scale = e->m->cfg.embed_scale > 0 ? e->m->cfg.embed_scale : 1.0f;
    EMIT(e, embed, .w = w, .y = model_cols_of(e, x, s->x_rows), .scale = scale,
         .row0 = e->m->ranks.row0[e->m->dims.rank]);
    model_pick_emit(e, s->x_rows, x);
    e->side = to;
    model_move_emit(e, (struct at){s, x}, (struct at){to, model_begin_row(e, to)},
                    e->m->cfg.d_model, false);
    e->begins = model_has_streams(e) ? BEGIN_ALL : NOT_BEGIN;
}

void model_rope_emit(struct emit *e, float *x, int n_head, int64_t ldx, int64_t ldx_h)
{
    const struct arch_cfg *c = &e->m->cfg;
    bool win = arch_is_win(c, e->layer);
    EMIT(e, rope, .x = x, .n_head = n_head, .ldx = ldx, .ldx_h = ldx_h,
         .n_rot = win ? c->d_head_win : c->n_rot, .style = c->rope_style == ARCH_ROPE_PAIRS,
         .freq = win ? e->m->win_freq : e->m->rope_freq,
         .mscale = win ? 1.0f : (float)c->yarn_mscale);
}

/* The residual stream comes to a side; what is left in r too, where something is. */
static void stream_to(struct emit *e, const struct side *to, bool with_r)
{
    const struct side *from = e->side;
    const struct arch_cfg *c = &e->m->cfg;
    bool several = model_has_streams(e);
    int D = c->d_model, n_x = several ? (int)model_x_cols(c) : D;
    int n_mix = several ? (int)model_stream_mix_cols(c) : 0;
    if (e->begins != BEGIN_ALL)
        model_move_emit(e, (struct at){from, from->x}, (struct at){to, to->x}, n_x, false);
    if (with_r || e->begins)
        model_move_emit(e, (struct at){from, from->r}, (struct at){to, to->r}, D, false);
    if (with_r && n_mix)
        model_move_emit(e, (struct at){from, from->stream_mix}, (struct at){to, to->stream_mix},
                        n_mix, false);
    e->side = to;
}

void model_layer_emit(struct emit *e, const struct layer *l, int il, bool first)
{
    const struct arch_cfg *c = &e->m->cfg;
    stream_to(e, model_side_in(e->m, il, MODEL_ATTN), !first);
    const struct side *s = e->side;
    int D = c->d_model, n_o = dev_mat_cols(l->o);
    float *row = model_tap_row(e);
    e->layer = il;
    const struct dev_ranks *ranks = model_shares_of(e);
    struct left left = first || c->sandwich ? (struct left){0} : model_left(e);
    bool by_latents = l->q_a != NULL; /* for the rank's share of the tokens alone */
    dev_act *a_o = c->layer[il].mixer == ARCH_DELTA ? s->a_mix
                   : arch_is_win(c, il)             ? s->a_o_win
                                                    : s->a_o;
    float *x = model_streams_emit(e, &l->streams[0], &left);
    EMIT(e, norm, .x = x, .r = left.r, .w = l->attn_norm, .eps = c->norm_eps, .n = D, .y = row,
         .act = s->a_attn, .ranks = ranks, .part = left.part,
         .all = {by_latents ? NULL : l->q, l->k, l->v, by_latents ? NULL : l->index_q,
                 by_latents ? NULL : l->index_k});
    model_tap_emit(e, MODEL_TAP_ATTN, row, D, D);
    mixer[c->layer[il].mixer](e, l);
    if (e->entries) {
        e->layer = -1;
        return;
    }
    model_tap_emit(e, MODEL_TAP_O, s->y, n_o, n_o);
    model_whole_emit(e, MODEL_CUT_HEADS, s->y_cols, s->y);
    EMIT(e, prep, .x = ranks ? s->y_cols : s->y, .n = n_o, .act = a_o, .ranks = ranks,
         .part = e->m->ranks.part[MODEL_CUT_HEADS], .all = {l->o});
    EMIT(e, matmul, .act = a_o, .n_mat = 1, .w = {l->o},
         .y = {model_cols_of(e, s->r, s->r_cols)});
    model_whole_emit(e, MODEL_CUT_MODEL, s->r_cols, s->r);
    if (c->sandwich) {
        model_sandwich_emit(e, l);
        e->layer = -1;
        return;
    }
    if (s == e->late.side) model_late_emit(e); /* with the input that is still there */
    if (model_ffn_apart(e->m, il) || (model_is_own(e->m) && l->is_moe)) row = s->rows;
    e->rows_left = false;
    left = model_left(e);
    x = model_streams_emit(e, &l->streams[1], &left);
    EMIT(e, norm, .x = x, .r = left.r, .w = l->ffn_norm, .eps = c->norm_eps, .n = D, .y = row,
         .act = s->a_ffn, .ranks = ranks, .part = left.part,
         /* the router brings it to experts */
         .all = {l->is_moe ? NULL : model_if_here(e, MODEL_DENSE, l->gate_up)});
    model_tap_emit(e, MODEL_TAP_FFN, row, D, D);
    e->moved = e->prepared = 0;
    ffn[c->layer[il].ffn](e, l);
    e->side = s;
    e->layer = -1;
}

void model_head_emit(struct emit *e, const struct heads *of)
{
    const struct model *m = e->m;
    stream_to(e, model_side(m, MODEL_ATTN), true);
    const struct side *s = e->side, *h = model_side(m, MODEL_HEAD);
    int D = m->cfg.d_model;
    struct left left = m->cfg.sandwich ? (struct left){0} : model_left(e);
    float *x = model_streams_emit(e, of->streams, &left);
    EMIT(e, norm, .x = x, .r = left.r, .w = of->norm, .eps = m->cfg.norm_eps, .n = D,
         .y = s->hidden, .ranks = model_shares_of(e), .part = left.part, .whole = true);
    e->layer = e->tap.fn ? m->cfg.n_layer : -1;
    model_tap_emit(e, MODEL_TAP_HEAD, s->hidden, D, D);
    e->layer = -1;
    if (h == s) {
        EMIT(e, rows, .x = s->hidden, .n = D, .act = s->a_head);
    } else {
        model_move_emit(e, (struct at){s, s->hidden}, (struct at){h, h->hidden}, D, true);
        e->side = h;
        EMIT(e, prep, .x = h->hidden, .n = D, .n_row = DEV_ROWS_WANTED, .act = h->a_head);
    }
    EMIT(e, matmul, .act = h->a_head, .n_row = DEV_ROWS_WANTED, .n_mat = 1, .w = {of->mat},
         .y = {model_cols_of(e, h->logits, h->logit_cols)});
    model_join_emit(e, &(struct model_joining){.cut = of->cut, .x = h->logit_cols,
                                               .y = h->logits, .home = true});
    if (m->cfg.logit_cap > 0)
        EMIT(e, cap, .x = h->logits, .n = m->cfg.n_vocab, .n_row = DEV_ROWS_WANTED,
             .cap = m->cfg.logit_cap);
    if (e->m->dims.rank == 0) /* home has the logits */
        EMIT(e, best, .x = h->logits, .id = h->best,
             .n = of->cut == MODEL_CUT_DRAFT ? m->n_draft_vocab : m->cfg.n_vocab);
    e->side = s;
}
