/* SPDX-License-Identifier: Apache-2.0 */
/* Feed-forward blocks: dense, and routed experts with shared ones beside them. */
#include "dev/halves.h"
#include "model/emit.h"

/* Attention's side, of the layer under way. */
static const struct side *home_of(const struct emit *e)
{
    return model_side_in(e->m, e->layer, MODEL_ATTN);
}

/* The side of a part of the layer under way. */
static const struct side *side_of(const struct emit *e, enum model_part part)
{
    return model_side_in(e->m, e->layer, part);
}

static unsigned bit_of(const struct emit *e, const struct side *s)
{
    return 1u << (s - e->m->side);
}

/* The block's input comes to that side. */
static void bring(struct emit *e, const struct side *to)
{
    const struct side *home = home_of(e);
    if (e->moved & bit_of(e, to)) return;
    model_move_emit(e, (struct at){home, home->rows}, (struct at){to, to->rows}, e->m->cfg.d_model,
                    false);
    e->moved |= bit_of(e, to);
}

/* Operators of that part come next; the block's input is prepared there. */
static const struct side *enter(struct emit *e, enum model_part part)
{
    const struct side *s = side_of(e, part);
    bring(e, s);
    e->side = s;
    if (s == home_of(e) || e->prepared & bit_of(e, s)) return s;
    if (s == e->late.side) model_late_emit(e); /* with the input that is still there */
    EMIT(e, prep, .x = s->rows, .n = e->m->cfg.d_model, .act = s->a_ffn);
    e->prepared |= bit_of(e, s);
    return s;
}

/* What the side has in r is the block's output. */
static void leave(struct emit *e, const struct side *s)
{
    const struct side *home = home_of(e);
    model_move_emit(e, (struct at){s, s->r}, (struct at){home, home->r}, e->m->cfg.d_model, false);
    e->side = home;
}

void model_gated_emit(struct emit *e, const struct layer *l, float *y, enum model_tap_in in)
{
    enum model_cut cut = l->is_moe ? MODEL_CUT_SHARED : MODEL_CUT_FF;
    const struct side *s = e->side;
    int n_ff = dev_mat_cols(l->down);
    EMIT(e, ffn, .act = s->a_ffn, .gate_up = l->gate_up, .down = l->down, .h_act = s->a_h,
         .h = s->h, .y = y, .keep_h = e->tap.fn != NULL, .ranks = model_ranks_of(e),
         .part = e->m->ranks.part[cut], .h_all = s->h_all);
    model_tap_emit(e, in, s->h, n_ff, n_ff);
}

/* What the shared experts say counts as much as their gate says. */
static void gate_shared(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    if (!l->shared_gate) return;
    EMIT(e, matmul, .act = s->a_ffn, .n_mat = 1, .w = {l->shared_gate}, .y = {s->share});
    EMIT(e, gate, .x = s->shared, .g = s->share, .n = e->m->cfg.d_model, .n_head = 1, .ldg = 1,
         .one = true);
}

void model_dense_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = enter(e, MODEL_DENSE);
    model_gated_emit(e, l, model_cols_of(e, s->r, s->r_cols), MODEL_TAP_DOWN);
    model_whole_emit(e, MODEL_CUT_MODEL, s->r_cols, s->r);
    leave(e, s);
}

/* Of layers one after another it lies in different places, where experts come late. */
static struct chosen chosen_on(const struct emit *e, const struct side *s)
{
    return e->odd ? (struct chosen){s->id_odd, s->weight_odd}
                  : (struct chosen){s->id_r, s->weight_r};
}

/* Which experts take each token. */
static const struct side *route(struct emit *e, const struct layer *l)
{
    const struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    const struct side *s = enter(e, MODEL_ROUTER);
    struct chosen to = chosen_on(e, s);
    EMIT(e, matmul, .act = s->a_ffn, .n_mat = 1, .w = {l->router}, .y = {s->logit_r},
         .ranks = model_shares_of(e), .whole = 1, .own = 1);
    EMIT(e, route, .logit = s->logit_r, .bias = l->router_bias, .n_expert = c->n_expert,
         .k = c->n_expert_used, .sigmoid = c->route_sigmoid,
         .root = c->route_root, .of_id = l->expert_of, .n_group = c->n_group,
         .k_group = c->n_group_used, .group_max = c->group_max, .norm = c->route_norm,
         .scale = c->route_scale, .id = to.id, .weight = to.weight,
         .count = s->n_routed + (size_t)e->layer * (size_t)c->n_expert, .ranks = model_shares_of(e),
         .act = s->a_ffn,
         .all = {model_is_own(m) ? NULL : model_if_here(e, MODEL_EXPERTS, l->gate_up_exps),
                 model_if_here(e, MODEL_SHARED, l->gate_up)});
    return s;
}

/* The experts' side gets the input, and what a router on another side chose. */
static void give_experts(struct emit *e, const struct side *router)
{
    const struct side *s = side_of(e, MODEL_EXPERTS);
    struct chosen from = chosen_on(e, router), to = chosen_on(e, s);
    int K = e->m->cfg.n_expert_used;
    bring(e, s);
    model_move_emit(e, (struct at){router, from.id}, (struct at){s, to.id}, K, false);
    model_move_emit(e, (struct at){router, from.weight}, (struct at){s, to.weight}, K, false);
}

/* Of ranks that share matrices and have tokens of their own: rows of experts' outputs that each has
 * made become those of all; and columns of shared experts' outputs rows, which these are added to.
 */
static bool is_both(const struct emit *e)
{
    return model_is_own(e->m) && e->m->ranks.join.n_rank > 1;
}

/* Are shared experts' outputs added after the others, at home? Ranks that share these do alike,
 * where parts of some are placed on what is home to others. */
static bool adds_after(const struct emit *e)
{
    if (e->m->ranks.join.n_rank > 1 && !model_is_own(e->m)) return e->m->opts.is_placed;
    return side_of(e, MODEL_SHARED) != side_of(e, MODEL_EXPERTS);
}

/* Are columns of shared experts' outputs made rows before they are added? */
static bool adds_rows(const struct emit *e)
{
    return is_both(e) || (e->m->ranks.join.n_rank > 1 && adds_after(e));
}

struct dev_moe model_moe_of(const struct emit *e, const struct side *s, const struct layer *l,
                            struct chosen chosen)
{
    const struct model *m = e->m;
    const struct arch_cfg *c = &m->cfg;
    enum model_cut cut = m->opts.spread ? MODEL_CUT_MODEL : MODEL_CUT_EXPERT;
    bool own = model_is_own(m);
    return (struct dev_moe){.act = s->a_ffn,
                            .k = c->n_expert_used,
                            .n_expert = c->n_expert,
                            .id = chosen.id,
                            .weight = chosen.weight,
                            .slots = m->slots ? &m->slots[e->layer] : NULL,
                            .gate_up = l->gate_up_exps,
                            .down = l->down_exps,
                            .ranks = own ? NULL : model_ranks_of(e),
                            .part = own ? NULL : m->ranks.part[cut],
                            .h_all = m->opts.spread ? NULL : s->h_exps,
                            .rows = s->exp_rows,
                            .n_of = e->m->ranks.n_of,
                            .spread = own ? model_spread_of(m) : NULL,
                            .etp = m->ranks.share.n_rank > 1 ? &m->ranks.etp : NULL,
                            .combine = m->opts.combine};
}

/* Are experts of all ranks' tokens computed in parts, so that rows travel meanwhile? */
static bool in_parts(const struct emit *e)
{
    const struct side *s = side_of(e, MODEL_EXPERTS);
    return model_is_own(e->m) && !e->tap.fn && s == home_of(e) && dev_has_halves(s->d);
}

/* What goes to the experts is on its way, while shared ones are computed. */
static void send_rows(struct emit *e, const struct layer *l)
{
    const struct side *s = side_of(e, MODEL_EXPERTS);
    struct dev_moe p = model_moe_of(e, s, l, chosen_on(e, s));
    for (p.phase = DEV_MOE_ASK; p.phase <= DEV_MOE_GIVE; p.phase++)
        model_op(e, DEV_OP_moe)->u.moe = p;
}

/* On a side that has the input; hot ones were begun. */
static void run_experts(struct emit *e, const struct side *s, struct dev_moe p)
{
    bool is_rest = model_hot_rest(e, &p);
    if (in_parts(e)) p.phase = DEV_MOE_TERMS;
    model_op(e, DEV_OP_moe)->u.moe = p;
    if (p.phase) {
        p.phase = DEV_MOE_SUM;
        model_op(e, DEV_OP_moe)->u.moe = p;
    }
    if (!is_rest) return;
    model_hot_bring(e);
    (void)model_hot_sum(e, s, &p);
}

/* The experts of each token. Shared ones are added last, on this side or afterwards. */
static void experts(struct emit *e, const struct layer *l)
{
    const struct side *s = side_of(e, MODEL_EXPERTS);
    struct dev_moe p = model_moe_of(e, s, l, chosen_on(e, s));
    p.before = model_late_take(e, s);
    p.n_late = model_n_late(e->m, e->layer);
    if (l->gate_up && !adds_after(e)) p.add = s->shared;
    p.y = is_both(e) ? s->own_rows : model_cols_of(e, s->r, s->r_cols);
    p.tap = e->tap;
    p.tap.what = MODEL_TAP_DOWN_EXPS;
    p.tap.layer = e->layer;
    enter(e, MODEL_EXPERTS);
    run_experts(e, s, p);
    if (is_both(e)) {
        EMIT(e, join, .x = s->own_rows, .y = s->r, .n = e->m->cfg.d_model, .own = true,
             .n_of = e->m->ranks.tok_of + e->m->dims.dp * e->m->dims.n_rank,
             .ranks = &e->m->ranks.join);
        e->rows_left = true;
    } else {
        model_whole_emit(e, MODEL_CUT_MODEL, s->r_cols, s->r);
    }
    leave(e, s);
    if (!p.n_late) return;
    e->late = (struct late){s, l, e->layer, chosen_on(e, s)};
    e->odd = !e->odd;
    if (s == home_of(e)) model_late_emit(e); /* whose next norm prepares another input */
}

/* Hot ones, beside those on the CPU: what a router on another side chose comes to them. */
static void begin_hot(struct emit *e)
{
    const struct side *home = home_of(e), *router = side_of(e, MODEL_ROUTER);
    struct chosen from = chosen_on(e, router), to = chosen_on(e, home);
    if (!model_hot_of(e->m, e->layer)) return;
    model_move_emit(e, (struct at){router, from.id}, (struct at){home, to.id},
                    e->m->cfg.n_expert_used, false);
    model_hot_emit(e, to);
}

/* The terms on attention's side are a token's sum there, and that of those that come late. */
static void sum_terms(struct emit *e, const struct layer *l, struct chosen chosen)
{
    const struct side *home = home_of(e);
    struct dev_sum p = {.n = e->m->cfg.d_model,
                        .k = e->m->cfg.n_expert_used,
                        .id = chosen.id,
                        .weight = chosen.weight,
                        .here = home->terms,
                        .add = l->gate_up ? home->shared : NULL,
                        .before = model_late_take(e, home),
                        .y = home->r,
                        .n_late = model_n_late(e->m, e->layer)};
    e->side = home;
    model_op(e, DEV_OP_sum)->u.sum = p;
    if (!p.n_late) return;
    p.add = p.before = NULL;
    p.y = home->late;
    p.late = true;
    model_op(e, DEV_OP_sum)->u.sum = p;
    e->late = (struct late){.side = home, .layer = e->layer, .chosen = chosen};
}

/* The same with experts that come to attention's side for the step. */
static void streamed(struct emit *e, const struct layer *l)
{
    const struct side *home = home_of(e), *shared = side_of(e, MODEL_SHARED);
    int K = e->m->cfg.n_expert_used;
    model_stream_begin(e);
    const struct side *router = route(e, l);
    struct chosen from = chosen_on(e, router), to = chosen_on(e, home);
    model_move_emit(e, (struct at){router, from.id}, (struct at){home, to.id}, K, false);
    model_move_emit(e, (struct at){router, from.weight}, (struct at){home, to.weight}, K, false);
    if (l->gate_up) {
        enter(e, MODEL_SHARED);
        model_gated_emit(e, l, shared->shared, MODEL_TAP_DOWN_SHEXP);
        gate_shared(e, l);
        model_move_emit(e, (struct at){shared, shared->shared}, (struct at){home, home->shared},
                        e->m->cfg.d_model, false);
    }
    model_stream_emit(e, l, to);
    sum_terms(e, l, to);
    model_stream_end(e);
    e->side = home;
}

void model_moe_emit(struct emit *e, const struct layer *l)
{
    const struct side *home = home_of(e), *shared = side_of(e, MODEL_SHARED);
    if (e->streams && model_stream_of(e->m, e->layer)) {
        streamed(e, l);
        return;
    }
    give_experts(e, route(e, l)); /* first: they may run beside the shared ones */
    if (in_parts(e)) send_rows(e, l);
    if (l->gate_up) {
        bool whole = adds_rows(e);
        enter(e, MODEL_SHARED);
        model_gated_emit(e, l, whole ? shared->r_cols : shared->shared, MODEL_TAP_DOWN_SHEXP);
        gate_shared(e, l); /* of one rank alone */
        if (whole)
            model_join_emit(e, &(struct model_joining){.cut = MODEL_CUT_MODEL,
                                                       .x = shared->r_cols,
                                                       .y = shared->shared,
                                                       .own = true});
    }
    begin_hot(e);
    experts(e, l);
    if (!l->gate_up || !adds_after(e)) return;
    int D = e->m->cfg.d_model;
    model_move_emit(e, (struct at){shared, shared->shared}, (struct at){home, home->shared}, D,
                    false);
    EMIT(e, add, .x = home->r, .y = home->shared, .n = D);
}
