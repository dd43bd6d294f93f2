/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks share: how many columns of each output every rank computes, and the operators that put
 * them side by side. */
#include <string.h>

#include "model/emit.h"

_Static_assert(DEV_RANK_MAX == DIST_RANK_MAX, "a device's ranks are those of a layout");

static void run_on(void *d, void (*fn)(void *arg, int worker, int n_worker), void *arg)
{
    dev_host_run(d, fn, arg);
}

_Static_assert(DEV_STRIPS == DIST_STRIPS, "places in which parts of rows lie");

/* Whole rows, as many as each rank has. */
static void gather(struct model *m, enum dist_kind of, const struct dev_joined *j)
{
    struct dist_strip strip[DIST_STRIPS];
    for (int i = 0; i < j->n_strip; i++) {
        const struct dev_strip *s = &j->strip[i];
        strip[i] = (struct dist_strip){s->x, s->y, s->n, s->ld, s->group};
    }
    const struct dist_gather g = {.of = of,
                                  .x = j->x,
                                  .y = j->y,
                                  .n = j->n,
                                  .n_of = j->n_of,
                                  .run = run_on,
                                  .user = j->d,
                                  .strip = strip,
                                  .n_strip = j->n_strip};
    if (j->begin)
        dist_gather_begin(m->opts.dist, &g);
    else
        dist_gather(m->opts.dist, &g);
}

/* Columns: whole rows to all ranks of a kind, or each to one of them. */
static void cols(struct model *m, enum dist_kind of, const struct dev_joined *j)
{
    dist_cols(m->opts.dist, &(struct dist_cols){.of = of,
                                                .x = j->x,
                                                .y = j->y,
                                                .ldx = j->ldx,
                                                .ldy = j->ldy,
                                                .n_row = j->n_row,
                                                .n = j->n,
                                                .part = j->part,
                                                .n_of = j->each ? j->n_of : NULL,
                                                .home = j->home,
                                                .run = run_on,
                                                .user = j->d,
                                                .take = j->take,
                                                .arg = j->arg});
}

/* To and from experts, among all ranks of a stage. */
static void carry_apart(void *user, const struct dev_joined *j)
{
    struct model *m = user;
    if (!j->count) {
        gather(m, DIST_STAGE, j);
        return;
    }
    const struct dist_swap s = {.of = DIST_STAGE,
                                .x = j->x,
                                .y = j->y,
                                .n = j->n,
                                .count = j->count,
                                .run = run_on,
                                .user = j->d};
    if (j->begin)
        dist_swap_begin(m->opts.dist, &s);
    else
        dist_swap(m->opts.dist, &s);
}

/* What was begun of that is over. */
static void end_apart(void *user)
{
    const struct model *m = user;
    dist_end(m->opts.dist);
}

/* Columns of ranks that share experts: for all, or of some rows for each. */
static void carry_shared(void *user, const struct dev_joined *j)
{
    cols(user, DIST_ETP, j);
}

/* Columns or rows go to the ranks that share matrices; the join of an operator is carried out. */
static void carry(void *user, const struct dev_joined *j)
{
    struct model *m = user;
    if (j->n_of && !j->part) {
        gather(m, DIST_TP, j);
        return;
    }
    if (j->each) {
        cols(m, DIST_TP, j);
        return;
    }
    if (j->of) {
        dist_pick(m->opts.dist, &(struct dist_pick){j->x, j->y, j->n_row, j->n, j->of});
        return;
    }
    if (j->n_of) {
        dist_turn(m->opts.dist, &(struct dist_turn){.x = j->x,
                                                    .y = j->y,
                                                    .n = j->n,
                                                    .n_of = j->n_of,
                                                    .part = j->part,
                                                    .run = run_on,
                                                    .user = j->d});
        return;
    }
    cols(m, DIST_TP, j);
}

/* What is shared: a model, whose MTP layers choose among n_draft ids (0: all), with these options,
 * by ranks of which one has d. */
struct shares {
    const struct arch_cfg *c;
    const struct model_opts *o;
    const struct model_dims *d;
    int n_draft;
};

static int64_t columns(const struct shares *s, const struct model_dims *d, enum model_cut cut)
{
    const struct arch_cfg *c = s->c;
    static const enum arch_role role[] = {[MODEL_CUT_MODEL] = ROLE_O,
                                          [MODEL_CUT_FF] = ROLE_GATE,
                                          [MODEL_CUT_SHARED] = ROLE_GATE_SHEXP,
                                          [MODEL_CUT_EXPERT] = ROLE_GATE_EXPS,
                                          [MODEL_CUT_VOCAB] = ROLE_MTP_HEAD};
    if (cut == MODEL_CUT_HEADS) return (int64_t)d->n_head * (c->kv_lora ? c->d_v : c->d_head);
    if (cut == MODEL_CUT_DRAFT) return model_slice_of_first(d, s->n_draft).n_row;
    return model_slice_of(c, d, role[cut], 0).n_row;
}

/* Does the model have anything that is divided so? */
static bool has_cut(const struct shares *s, enum model_cut cut)
{
    const struct arch_cfg *c = s->c;
    bool dense = false;
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        dense |= c->layer[i].ffn == ARCH_DENSE;
    switch (cut) {
    case MODEL_CUT_FF:
        return dense;
    case MODEL_CUT_SHARED:
        return c->n_expert && c->n_shared;
    case MODEL_CUT_EXPERT:
        return c->n_expert > 0 && !s->o->spread;
    case MODEL_CUT_DRAFT:
        return s->n_draft > 0;
    default:
        return true;
    }
}

static sl_status too_many(const struct shares *s, enum model_cut cut, sl_err *err)
{
    static const char *const of[] = {[MODEL_CUT_HEADS] = "heads",
                                     [MODEL_CUT_MODEL] = "columns of the model",
                                     [MODEL_CUT_FF] = "feed-forward width",
                                     [MODEL_CUT_SHARED] = "shared experts' width",
                                     [MODEL_CUT_EXPERT] = "experts' width",
                                     [MODEL_CUT_VOCAB] = "vocabulary",
                                     [MODEL_CUT_DRAFT] = "vocabulary for drafts"};
    int n_rank = s->d->n_rank, n = n_rank;
    for (bool fits = false; n > 1 && !fits; n -= !fits) {
        fits = true;
        for (int r = 0; r < n && fits; r++) {
            struct model_dims d = model_dims_of(s->c, &(struct dist_among){r, n, NULL});
            fits = columns(s, &d, cut) > 0;
        }
    }
    return SL_FAIL(err, REQUEST, "layout: %d ranks: the model's %s can be shared by %d at most",
                   n_rank, of[cut], n);
}

/* Values that are rounded together must be on one rank. */
static sl_status check_combine(const struct shares *s, sl_err *err)
{
    bool whole = s->d->n_dp > 1; /* experts give whole rows */
    for (int r = 0; r < s->d->n_rank && s->o->combine == DEV_COMBINE_Q8 && !whole; r++) {
        struct model_dims d = model_dims_beside(s->c, s->d, r);
        if (s->c->n_expert && model_slice_of(s->c, &d, ROLE_DOWN, 0).row0 % 32)
            return SL_FAIL(err, UNSUPPORTED,
                           "layout: combine q8: %d columns of the model are not shared by %d ranks "
                           "in groups of 32: bf16 or f32",
                           s->c->d_model, s->d->n_rank);
    }
    return SL_OK;
}

/* Into k what each rank computes. */
static sl_status share(const struct shares *s, struct model_ranks *k, sl_err *err)
{
    const struct arch_cfg *c = s->c;
    if (c->unshared)
        return SL_FAIL(err, UNSUPPORTED, "layout: %s has %s, which ranks that share heads lack",
                       c->arch, c->unshared);
    SL_TRY(check_combine(s, err));
    for (int cut = 0; cut < MODEL_N_CUT; cut++)
        for (int r = 0; r < s->d->n_rank; r++) {
            struct model_dims d = model_dims_beside(c, s->d, r);
            int64_t part = columns(s, &d, (enum model_cut)cut);
            if (part == 0 && has_cut(s, (enum model_cut)cut))
                return too_many(s, (enum model_cut)cut, err);
            k->part[cut][r] = (int32_t)part;
        }
    return SL_OK;
}

/* Ranks have the states of their layers and of their sequences; those that share a layer, none. */
static sl_status check_mixers(const struct arch_cfg *c, sl_err *err)
{
    for (int i = 0; i < c->n_layer; i++)
        if (c->layer[i].mixer == ARCH_SCAN || c->layer[i].mixer == ARCH_DELTA)
            return SL_FAIL(err, UNSUPPORTED, "layout: layer %d has a state that is not shared", i);
    return SL_OK;
}

sl_status model_may_share(const struct arch_cfg *c, const struct model_opts *o, int n_rank,
                          sl_err *err)
{
    struct model_ranks k;
    struct model_dims d = model_dims_of(c, &(struct dist_among){.n = n_rank});
    SL_TRY(check_mixers(c, err));
    return share(&(struct shares){c, o, &d, o->n_draft_vocab}, &k, err);
}

/* Experts that ranks share by rows have an order of hidden values that each kind of device has. */
static sl_status check_mixed(const struct model *m, sl_err *err)
{
    if (!m->opts.is_mixed || m->opts.spread || m->dims.n_rank <= 1) return SL_OK;
    for (int il = 0; il < m->cfg.n_layer + m->cfg.n_mtp; il++)
        if (model_has_layer(&m->cfg, &m->dims, il) && m->cfg.layer[il].ffn == ARCH_MOE &&
            model_side_in(m, il, MODEL_EXPERTS) == model_side(m, MODEL_ATTN))
            return SL_FAIL(err, UNSUPPORTED,
                           "layout: experts whose rows ranks share are on cards or on CPUs, not on "
                           "both: --place experts=cpu, or ep=%d",
                           m->dims.n_rank);
    return SL_OK;
}

/* Ranks with tokens of their own have one way to the experts of all; and those that share each
 * expert, one room. */
static sl_status check_own(const struct model *m, sl_err *err)
{
    bool one = model_is_own(m) || (m->opts.spread && model_n_etp(&m->dims) > 1);
    for (int il = 0; il < m->cfg.n_layer + m->cfg.n_mtp && one; il++)
        if (model_has_layer(&m->cfg, &m->dims, il) && m->cfg.layer[il].ffn == ARCH_MOE &&
            model_side_in(m, il, MODEL_EXPERTS) != model_own_experts(m))
            return SL_FAIL(err, UNSUPPORTED,
                           "layout: experts of layer %d are placed on another device than those "
                           "before: with %s all are on one",
                           il, model_is_own(m) ? "dp" : "an ep of less than tp");
    return SL_OK;
}

/* Rows come to the device that begins a pass, and leave it. */
static sl_status check_devices(const struct model *m, sl_err *err)
{
    const struct model_dims *d = &m->dims;
    for (int il = d->layer0; il < d->layer0 + d->n_layer; il++)
        if (model_side_in(m, il, MODEL_ATTN) != model_side(m, MODEL_ATTN))
            return SL_FAIL(err, UNSUPPORTED,
                           "layout: attention of layer %d is placed on another device than its "
                           "stage's: --device names those",
                           il);
    return SL_OK;
}

/* Of the host, for one join of a device whose memory is not the host's. */
static int64_t room_values(const struct model *m)
{
    const struct model_ranks *k = &m->ranks;
    int64_t T = m->opts.n_tok_max, K = m->cfg.n_expert_used, D = m->cfg.d_model, n = 2 * T * D;
    for (int cut = 0; cut < MODEL_N_CUT; cut++) {
        int64_t rows = T, all = 0;
        if (cut == MODEL_CUT_EXPERT) rows = T * K;
        if (cut == MODEL_CUT_VOCAB || cut == MODEL_CUT_DRAFT) rows = m->opts.n_logit_max;
        for (int r = 0; r < m->dims.n_rank; r++)
            all += k->part[cut][r];
        n = BASE_MAX(n, rows * (k->part[cut][m->dims.rank] + all));
    }
    if (m->opts.spread) n = BASE_MAX(n, 2 * T * K * (D + k->part[MODEL_CUT_MODEL][m->dims.rank]));
    return model_is_own(m) ? BASE_MAX(n, m->dims.n_dp * T * K * D) : n;
}

/* The same of ranks that share experts by rows. */
static int64_t share_values(const struct model *m)
{
    const struct model_ranks *k = &m->ranks;
    int64_t n = BASE_MAX(m->dims.n_dp, 1) * (int64_t)m->opts.n_tok_max * m->cfg.n_expert_used;
    int me = k->share.rank, F = m->cfg.d_ff_expert, D = m->cfg.d_model;
    return k->share.n_rank > 1 ? 2 * n * BASE_MAX(k->h_part[me] + F, k->y_part[me] + D) : 0;
}

/* Devices far from the host have room there. */
static sl_status open_room(struct model *m, sl_err *err)
{
    struct model_ranks *k = &m->ranks;
    void *p = NULL;
    int64_t n = room_values(m), n_share = share_values(m);
    k->join.plain = k->apart.plain = m->opts.plain;
    for (int i = 0; i < m->place.n_dev; i++) {
        if (dev_is_host(m->place.d[i]) || p) continue;
        SL_TRY(mem_arena_array(&m->arena, 2 * (size_t)n_share + 1, sizeof(float), &p, err));
        k->share.room = p;
        k->share.n_room = n_share;
        SL_TRY(mem_arena_array(&m->arena, 3 * (size_t)n, sizeof(float), &p, err));
        k->join.room = k->apart.room = p;
        k->join.n_room = k->apart.n_room = n;
    }
    return SL_OK;
}

/* Columns of n for ranks that share experts, into part; 0 of one: false. */
static bool deal_shared(const struct model_dims *d, int64_t n, int32_t *part)
{
    struct dist_among a = model_place_among(d);
    int64_t at;
    for (a.rank = 0; a.rank < a.n; a.rank++)
        if (!(part[a.rank] = (int32_t)dist_share(n, 16, &a, &at))) return false;
    return true;
}

/* Experts that are spread over groups of ranks, which share them by rows. */
static sl_status open_shared(struct model *m, sl_err *err)
{
    const struct model_dims *d = &m->dims;
    struct model_ranks *k = &m->ranks;
    int n = model_n_etp(d), F = m->cfg.d_ff_expert, D = m->cfg.d_model;
    if (!m->opts.spread || n < 2) return SL_OK;
    if (!deal_shared(d, F, k->h_part) || !deal_shared(d, D, k->y_part))
        return SL_FAIL(err, REQUEST,
                       "layout: %d ranks share each expert: the experts' width can be shared by %d "
                       "at most: a larger ep",
                       n, (BASE_MIN(F, D) + 15) / 16);
    k->share = (struct dev_ranks){.join = carry_shared,
                                  .user = m,
                                  .rank = model_stage_rank(d) % n,
                                  .n_rank = n,
                                  .plain = m->opts.plain,
                                  .is_etp = true};
    k->etp = (struct dev_etp){
        .ranks = &k->share, .h_part = k->h_part, .part = k->y_part, .n_of = k->share_of};
    return SL_OK;
}

sl_status model_ranks_open(struct model *m, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    struct model_ranks *k = &m->ranks;
    int n = m->dims.n_rank;
    void *p = NULL;
    if (n * m->dims.n_stage <= 1 && !model_is_own(m)) return SL_OK;
    SL_TRY(check_devices(m, err));
    SL_TRY(check_mixed(m, err));
    SL_TRY(check_own(m, err));
    if (n > 1) SL_TRY(check_mixers(c, err));
    if (model_is_own(m)) {
        k->apart = (struct dev_ranks){.join = carry_apart,
                                      .end = end_apart,
                                      .user = m,
                                      .rank = model_stage_rank(&m->dims),
                                      .n_rank = model_stage_n(&m->dims)};
        SL_TRY(model_own_open(m, err));
    }
    SL_TRY(open_shared(m, err));
    dist_set_waiting(m->opts.dist, dev_host_ahead, m->d);
    if (n <= 1) return open_room(m, err);
    k->join = (struct dev_ranks){.join = carry, .user = m, .rank = m->dims.rank, .n_rank = n};
    SL_TRY(share(&(struct shares){c, &m->opts, &m->dims, m->n_draft_vocab}, k, err));
    for (int r = 0; r < n; r++)
        k->row0[r + 1] = k->row0[r] + k->part[MODEL_CUT_VOCAB][r];
    SL_TRY(
        mem_arena_array(&m->arena, (size_t)BASE_MAX(m->opts.n_tok_max, 1), sizeof *k->of, &p, err));
    k->of = p;
    return open_room(m, err);
}

/* Of what ranks bring of a row that each has a share of: columns for every rank, as wide as the
 * widest, or inputs in all their forms, of whose groups of 32 a form has two records of 64 bytes at
 * most, and two numbers. */
static int64_t share_words(const struct model *m)
{
    const struct arch_cfg *c = &m->cfg;
    int64_t n = BASE_MAX(c->d_model, model_wide_ff(c)), most = 0;
    n = BASE_MAX(n, BASE_MAX((int64_t)c->n_head * (c->kv_lora ? c->d_v : c->d_head), c->q_lora));
    for (int cut = 0; cut < MODEL_N_CUT; cut++)
        for (int r = 0; r < m->dims.n_rank; r++)
            most = BASE_MAX(most, m->ranks.part[cut][r]);
    int64_t group = (n + 255) / 256 * 8;
    return BASE_MAX(most * m->dims.n_rank, 5 * (34 * group + 64) + 2 * c->n_expert_used);
}

int64_t model_join_bytes(const model *m)
{
    int64_t n = model_x_cols(&m->cfg); /* of a row that is picked, or given */
    if (model_is_own(m)) n = BASE_MAX(n + m->cfg.n_expert_used, m->cfg.n_vocab);
    for (int cut = 0; cut < MODEL_N_CUT; cut++)
        for (int r = 0; r < m->dims.n_rank; r++)
            n = BASE_MAX(n, m->ranks.part[cut][r]);
    for (int r = 0; r < m->ranks.share.n_rank; r++)
        n = BASE_MAX(n, m->ranks.h_part[r]);
    if (m->dims.n_rank > 1) { /* of what every rank has whole */
        n = BASE_MAX(n, BASE_MAX(m->cfg.n_expert, m->cfg.q_lora));
        n = BASE_MAX(n, m->cfg.kv_lora + m->cfg.d_rope);
        n = BASE_MAX(n, share_words(m));
    }
    return n * (int64_t)sizeof(float);
}

const struct dev_ranks *model_ranks_of(const struct emit *e)
{
    return e->m->ranks.join.n_rank > 1 ? &e->m->ranks.join : NULL;
}

bool model_is_plain(const struct emit *e)
{
    return e->m->ranks.join.n_rank > 1 && e->m->ranks.join.plain;
}

const struct dev_ranks *model_shares_of(const struct emit *e)
{
    return model_is_plain(e) ? NULL : model_ranks_of(e);
}

void model_whole_emit(struct emit *e, enum model_cut cut, const float *x, float *y)
{
    if (model_is_plain(e))
        model_join_emit(e, &(struct model_joining){.cut = cut, .x = x, .y = y});
}

struct left model_left(const struct emit *e)
{
    bool rows = e->m->ranks.join.n_rank <= 1 || e->rows_left || model_is_plain(e);
    if (rows) return (struct left){e->side->r, NULL};
    return (struct left){e->side->r_cols, e->m->ranks.part[MODEL_CUT_MODEL]};
}

float *model_cols_of(const struct emit *e, float *y, float *cols)
{
    return e->m->ranks.join.n_rank > 1 ? cols : y;
}

void model_join_emit(struct emit *e, const struct model_joining *j)
{
    const struct model_ranks *k = &e->m->ranks;
    if (e->m->ranks.join.n_rank <= 1) return;
    int n = 0;
    for (int r = 0; r < e->m->dims.n_rank; r++)
        n += k->part[j->cut][r];
    EMIT(e, join, .x = j->x, .y = j->y, .n = n, .n_row = j->home ? DEV_ROWS_WANTED : 0,
         .home = j->home, .own = j->own, .part = k->part[j->cut], .ranks = &k->join);
}

void model_pick_emit(struct emit *e, const float *x, float *y)
{
    const struct model_ranks *k = &e->m->ranks;
    if (e->m->ranks.join.n_rank <= 1) return;
    EMIT(e, pick, .x = x, .y = y, .n = e->m->cfg.d_model, .row0 = k->row0, .of = k->of,
         .ranks = &k->join);
}
