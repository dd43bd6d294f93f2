/* SPDX-License-Identifier: Apache-2.0 */
/* CPU ranks that share a model: what each of them reads and computes in a step, what they move, and
 * what they hold. docs/distribution.md says what is divided. One CPU is a rank alone. Ranks of a
 * stage are alike, and then the fullest stands for all, or have shares by weight, and each is
 * looked at. */
#include <math.h>
#include <string.h>

#include "arch/arch.h"
#include "plan/plan_internal.h"

#define LAYERS 1000 /* as the model's shape may have */

/* A stage: some of the layers, of which the last has the head. */
struct stage {
    int n_layer, n_dense, n_moe;
    bool first, last;
};

/* What a rank does in a step. */
struct work {
    double busy;      /* of all ranks, those that work at the same time */
    double attend;    /* of those, that have sequences; the others lend their experts */
    double tok, rows; /* of the rank; whose logits are wanted */
    double all;       /* tokens that come to the group's experts */
    double seq, ctx;  /* that decode; 0 in a prompt */
    double attn_flop; /* of a prompt's attention, all layers */
};

/* ---- stages ---- */

static double layer_bytes(const struct plan_case *c, bool is_moe)
{
    const struct plan_model *m = c->model;
    const struct plan_format *f = &c->fmt;
    double attn = (m->p_attn + m->p_repl) * f->attn;
    if (!is_moe) return (attn + m->p_dense * f->dense) / 8;
    return (attn + (m->p_shared + m->p_router) * f->dense + m->p_expert * m->experts * f->expert) /
           8;
}

static double mtp_bytes(const struct plan_case *c)
{
    const struct plan_model *m = c->model;
    double more = plan_mtp_attn(m) - m->p_attn + plan_mtp_repl(m) - m->p_repl;
    return m->mtp_layers * (layer_bytes(c, m->moe_layers > 0) + more * c->fmt.attn / 8);
}

/* As the engine cuts layers: about the same bytes, the head and MTP layers with the last. */
static void cut(const struct plan_case *c, int32_t *first)
{
    const struct plan_model *m = c->model;
    int64_t layer[LAYERS];
    double mtp = c->lay.mtp > 0 ? mtp_bytes(c) : 0;
    for (int i = 0; i < m->layers; i++)
        layer[i] = (int64_t)layer_bytes(c, i >= m->dense_layers);
    arch_cut_layers(layer, m->layers, (int64_t)(m->p_embed * c->fmt.head / 8 + mtp), c->lay.pp,
                    first);
}

static struct stage stage_of(const struct plan_case *c, const int32_t *first, int i)
{
    int lead = c->model->dense_layers, a = first[i], b = first[i + 1];
    int dense = (b < lead ? b : lead) - (a < lead ? a : lead);
    return (struct stage){b - a, dense, b - a - dense, i == 0, i == c->lay.pp - 1};
}

static int stages(const struct plan_case *c, struct stage *out)
{
    int n = c->lay.pp > 1 ? c->lay.pp : 1;
    int32_t first[PLAN_RANK_MAX + 1];
    if (n == 1) {
        const struct plan_model *m = c->model;
        out[0] = (struct stage){m->layers, m->dense_layers, m->moe_layers, true, true};
        return 1;
    }
    cut(c, first);
    for (int i = 0; i < n; i++)
        out[i] = stage_of(c, first, i);
    return n;
}

/* ---- shares ---- */

/* Are experts dealt to ranks, or groups of ranks that share each by rows? Of so many ranks. */
static bool spread(const struct plan_layout *l)
{
    return l->ep > 1 || l->dp > 1;
}

static double sharers(const struct plan_layout *l)
{
    return spread(l) ? fmax(1, l->tp) * fmax(1, l->dp) / fmax(1, l->ep) : 1;
}

/* How fast a rank is, over what the case says of one. */
struct pace {
    double bw, ops;
};

/* A rank's place in its stage: its part of what a group shares, and of experts; how fast it is
 * beside those that work at the same time, and beside those that attend, and what it has, over what
 * the case says of a rank. */
struct seat {
    double of_group, of_stage, mem;
    struct pace all, own;
    bool even;
};

/* How many of the ranks in use are on the host of rank i. */
static int neighbours(const struct plan_team *t, const struct plan_layout *l, int i)
{
    int same = 0;
    for (int k = 0; k < l->ranks; k++)
        same += t->rank[k].host == t->rank[i].host;
    return same;
}

static int seats(const struct plan_case *c)
{
    return c->lay.n_weight > 0 ? c->lay.n_weight : 1;
}

/* What one of n ranks of a host has, of which so many work: what all of them have together is
 * divided by these, but none has more than alone. */
static double beside(double all, double alone, double n, double at_work)
{
    return alone > all ? fmin(alone, all * n / fmin(n, at_work)) : all;
}

static struct pace pace_of(const struct plan_case *c, const struct plan_rank *r, double work)
{
    return (struct pace){beside(r->bw, r->bw_alone, r->n_here, work) / c->dev->bw,
                         beside(r->ops, r->ops_alone, r->n_here, work) /
                             c->dev->peak[PLAN_NUM_INT8]};
}

static struct pace slower(struct pace a, struct pace b)
{
    return (struct pace){fmin(a.bw, b.bw), fmin(a.ops, b.ops)};
}

/* Of the ranks on seat `at` of each stage, or with even shares of all, the least. */
static void slowest(const struct plan_case *c, int at, const struct work *w, struct seat *s)
{
    const struct plan_layout *l = &c->lay;
    const struct plan_team *t = c->team;
    int from = l->n_weight ? at : 0, step = l->n_weight ? l->n_weight : 1;
    for (int i = from; i < l->ranks; i += step) {
        const struct plan_rank *r = &t->rank[i];
        int same = neighbours(t, l, i);
        double mem = l->n_weight ? r->mem / same / c->dev->mem : 1, busy = same * w->busy;
        struct pace all = pace_of(c, r, fmax(1, busy)),
                    own = pace_of(c, r, fmax(1, busy * w->attend));
        s->all = i == from ? all : slower(s->all, all);
        s->own = i == from ? own : slower(s->own, own);
        s->mem = i == from ? mem : fmin(s->mem, mem);
    }
}

static struct seat seat_of(const struct plan_case *c, int at, const struct work *w)
{
    const struct plan_layout *l = &c->lay;
    double tp = fmax(1, l->tp), all = 0, group = 0, n_exp = spread(l) ? tp * fmax(1, l->dp) : tp;
    struct seat s = {1 / tp, 1 / n_exp, 1, {1, 1}, {1, 1}, true};
    if (c->team && c->team->rank) slowest(c, at, w, &s);
    if (!l->n_weight) return s;
    for (int i = 0; i < l->n_weight; i++) {
        all += l->weight[i];
        if (i / l->tp == at / l->tp) group += l->weight[i];
    }
    s.even = false;
    s.of_group = l->weight[at] / group;
    s.of_stage = spread(l) ? l->weight[at] / all : s.of_group;
    return s;
}

/* Of n units the part that the fullest of tp ranks has; by weight to the nearest unit, one at
 * least. */
static double part_of(double n, double tp, const struct seat *s)
{
    if (tp <= 1 || n <= 0) return 1;
    return s->even ? ceil(n / tp) / n : fmax(1, round(n * s->of_group)) / n;
}

/* Parameters of one layer's attention on that rank: whole heads of keys with their query heads, of
 * more ranks than those one of them and some of its query heads; the output by columns. */
static double attn_share(const struct plan_model *m, double tp, const struct seat *s)
{
    double D = m->hidden, H = m->heads, C = m->kv_heads, v = m->v_dim > 0 ? m->v_dim : m->head_dim;
    double out = H * v * D, in = m->p_attn - out, of_out = part_of(D / 16, tp, s);
    if (tp <= 1 || in <= 0) return m->p_attn * s->of_group;
    if (m->attn != PLAN_ATTN_GQA) return in * part_of(H, tp, s) + out * of_out;
    double kv = 2 * C * m->head_dim * D, q = fmax(0, in - kv);
    double of_kv = tp <= C ? part_of(C, tp, s) : 1 / C, of_q = tp <= C ? of_kv : part_of(H, tp, s);
    return q * of_q + kv * of_kv + out * of_out;
}

/* Heads of keys and their caches over those of an even share; latents are on every rank. */
static double heads_more(const struct plan_case *c, const struct seat *s)
{
    return c->model->attn == PLAN_ATTN_GQA && !s->even ? s->of_group * fmax(1, c->lay.tp) : 1;
}

/* ---- what ranks wait for ---- */

static double wire(const struct plan_link *l, double times, double bytes)
{
    return times * l->lat + bytes / l->bw;
}

static const struct plan_link *link_of(const struct plan_case *c, int n)
{
    const struct plan_team *t = c->team;
    return n <= t->per_host && t->per_host % n == 0 ? &t->host : &t->all;
}

#define PREPARED 0.5    /* words of a value that travels prepared in 8 bits */
#define PREPARED_X 1.03 /* the same where some have a second plane */
#define SHARE_ROWS 16   /* a rank: of so many and more each rank has a share of the tokens */

/* Of a token words that go to all ranks, and columns that go to the one rank that has it; how often
 * ranks wait for each other. */
struct moved {
    double all, one, times;
};

/* Words of experts' hidden values; where these are whole, of what they give. */
static double of_experts(const struct plan_case *c, const struct stage *s)
{
    const struct plan_model *m = c->model;
    double n = c->lay.tp;
    double one = c->lay.dp > 1 ? 0 : spread(&c->lay) ? m->hidden / n : PREPARED * m->moe_inter;
    return s->n_moe * (m->topk * one + PREPARED * m->shared * m->shared_inter);
}

/* Of few tokens: everything to all. */
static struct moved moved_few(const struct plan_case *c, const struct stage *s)
{
    const struct plan_model *m = c->model;
    double v = m->v_dim > 0 ? m->v_dim : m->head_dim, D = m->hidden;
    bool shared = m->shared * m->shared_inter > 0;
    struct moved t = {.times = 4.0 * s->n_layer + (shared ? s->n_moe : 0) + s->first + s->last};
    t.all = s->n_layer * (m->heads * v + 2 * D) + (double)s->n_dense * m->dense_inter +
            of_experts(c, s) + (s->first ? D : 0);
    if (c->lay.dp > 1) t.times -= s->n_moe; /* experts' rows are exchanged */
    return t;
}

/* Of a step in which each rank has a share of the tokens: outputs go to theirs, and what products
 * take of them, prepared, to all. */
static struct moved moved_many(const struct plan_case *c, const struct stage *s)
{
    const struct plan_model *m = c->model;
    double v = m->v_dim > 0 ? m->v_dim : m->head_dim, D = m->hidden, L = s->n_layer;
    bool mla = m->attn == PLAN_ATTN_MLA, shared = m->shared * m->shared_inter > 0;
    bool own = c->lay.dp > 1;
    struct moved t = {.times = (mla ? 6 : 5) * L + 3.0 * s->n_dense + s->first + 2.0 * s->last};
    t.all = L * m->heads * v * (mla ? PREPARED_X : PREPARED) + of_experts(c, s);
    t.all += L * (mla ? m->kv_lora + m->rope : 0);
    t.all += L * PREPARED_X * (mla && m->q_lora > 0 ? m->q_lora : D);
    t.all += s->n_dense * PREPARED_X * (D + m->dense_inter);
    t.all += s->n_moe * ((own && !shared ? 0 : PREPARED * D) + 2.0 * m->topk);
    t.all += (s->first ? D : 0) + (s->last ? D : 0); /* the table's row, the last norm's */
    t.one = L * (m->heads * v + 2 * D) + (double)s->n_dense * m->dense_inter;
    t.times += s->n_moe * (2.0 + shared);
    if (!own) return t;
    t.one -= s->n_moe * (shared ? 0 : D); /* experts' sums are where they belong */
    t.times -= s->n_moe * (shared ? 1.0 : 2.0);
    return t;
}

/* Rows of ranks that share matrices, and rows of logits to the first. */
static double join_time(const struct plan_case *c, const struct stage *s, const struct work *w)
{
    double n = c->lay.tp;
    struct moved t = w->tok >= SHARE_ROWS * n ? moved_many(c, s) : moved_few(c, s);
    double words = w->tok * (t.all + t.one / n) + (s->last ? w->rows * c->model->vocab : 0);
    return wire(link_of(c, c->lay.tp), t.times, 4 * words * (1 - 1 / n));
}

/* Rows to experts of other ranks of the stage and back; of a group, each of its ranks an even
 * share. */
static double exchange_time(const struct plan_case *c, const struct stage *s, const struct work *w)
{
    const struct plan_model *m = c->model;
    double n = fmax(1, c->lay.tp) * c->lay.dp, D = m->hidden, K = m->topk, others = w->all - w->tok;
    double back = w->tok / c->lay.tp * K * (1 - 1 / n) * D * c->lay.combine_bits / 8;
    double hit = 1 - pow(1 - 1 / fmax(1, c->lay.ep), K);
    double there = others * 4 * (c->lay.swap ? K + D * hit : K + D);
    return s->n_moe * wire(link_of(c, (int)n), c->lay.swap ? 3 : 2, there + back);
}

/* Hidden values of a group's experts to all of its ranks, and of their outputs some whole rows to
 * each. */
static double share_time(const struct plan_case *c, const struct stage *s, const struct work *w)
{
    const struct plan_model *m = c->model;
    double n = sharers(&c->lay), rows = w->all * m->topk / fmax(1, c->lay.ep);
    double bytes = 4 * rows * (PREPARED * m->moe_inter + m->hidden / n) * (1 - 1 / n);
    return n > 1 ? s->n_moe * wire(link_of(c, (int)n), 2, bytes) : 0;
}

static double comm_time(const struct plan_case *c, const struct stage *s, const struct work *w)
{
    if (!c->team) return 0;
    double t = c->lay.tp > 1 ? join_time(c, s, w) : 0;
    return t + share_time(c, s, w) + (c->lay.dp > 1 ? exchange_time(c, s, w) : 0);
}

/* ---- a stage's step ---- */

/* The largest of n numbers that are spread as normal ones, over their deviation. */
static double largest(double n)
{
    return n > 1 ? 0.564 * pow(log2(n), 0.84) : 0;
}

/* Distinct experts of a layer on the group of n that has most of its part of them, `of`: routing
 * spreads them as balls over bins, less the more of them are chosen at all. */
static double fullest(const struct plan_model *m, double tok, double n, double of)
{
    double all = plan_experts_read(m, tok), mu = all * of;
    double most = mu + largest(n) * sqrt(mu * fmax(0, 1 - all / m->experts));
    return fmin(most, m->experts * of);
}

/* What is told of the parameters that a token takes, over what the classes add up to. */
static double counted(const struct plan_model *m)
{
    double sum = m->layers * (m->p_attn + m->p_repl) + m->dense_layers * m->p_dense +
                 m->moe_layers * (m->topk * m->p_expert + m->p_shared + m->p_router);
    return (m->active - m->p_embed) / sum;
}

/* A rank that shares no matrix runs whole layers of few tokens as one; otherwise every operator
 * begins and ends for itself. */
static double starts(const struct plan_case *c, const struct stage *s, const struct work *w)
{
    const struct plan_model *m = c->model;
    if (!c->team || (c->lay.tp <= 1 && c->lay.dp <= 1 && w->tok <= c->team->fused)) return 0;
    double attn = m->attn == PLAN_ATTN_MLA ? 10 : 7;
    return (s->n_layer * attn + s->n_dense * 3.0 + s->n_moe * (m->shared > 0 ? 8.0 : 6.0)) *
           c->team->op;
}

static void seat_time(const struct plan_case *c, const struct stage *s, const struct work *w,
                      const struct seat *of, struct plan_time *t)
{
    const struct plan_model *m = c->model;
    const double *k = c->k.v;
    double bw = k[PLAN_CPU_GBPS] * 1e9, ops = k[PLAN_CPU_TOPS] * 1e12, own = ops * of->own.ops;
    double tp = fmax(1, c->lay.tp), part = (double)s->n_layer / m->layers;
    double repl = s->n_layer * m->p_repl + s->n_moe * m->p_router;
    double dense = s->n_layer * attn_share(m, tp, of) +
                   s->n_dense * m->p_dense * part_of(m->dense_inter / 16.0, tp, of) +
                   s->n_moe * m->p_shared * part_of(m->shared_inter * m->shared / 16.0, tp, of);
    double head = s->last ? m->p_embed * of->of_group : 0, reads = 0, skew = 1;
    if (s->n_moe > 0) {
        double touched = plan_experts_of(c, w->all);
        double width = part_of(m->moe_inter / 16.0, tp, of);
        double n = sharers(&c->lay);
        reads = touched * width;
        if (spread(&c->lay)) {
            reads = fullest(m, w->all, c->lay.ep, fmin(1, of->of_stage * n)) / n;
            skew = reads / of->of_stage / touched;
        }
    }
    double expert = s->n_moe * m->p_expert;
    *t = (struct plan_time){0};
    t->weights = ((dense + repl) * c->fmt.attn + head * c->fmt.head) / 8 / (bw * of->own.bw);
    t->experts = expert * reads * c->fmt.expert / 8 / (bw * of->all.bw);
    double of_repl = w->tok >= SHARE_ROWS * tp ? 1 / tp : 1;
    double flop = w->tok * (dense + repl * of_repl) * counted(m) + w->rows * head;
    double of_all = w->all * m->topk * expert * of->of_stage * skew * counted(m);
    t->compute = 2 * (flop / own + of_all / (ops * of->all.ops));
    if (w->attn_flop > 0)
        t->attn = w->attn_flop * part * of->of_group / (own * k[PLAN_ETA_A]);
    else
        t->attn = plan_attn_host(c, w->seq, w->tok, w->ctx) * part * heads_more(c, of) /
                  fmin(of->own.bw, of->own.ops);
    t->comm = comm_time(c, s, w);
    t->fixed = s->n_layer * plan_layer_ops(c) * k[PLAN_T_LAYER] * 1e-6 + starts(c, s, w);
    t->total = t->weights + t->experts + t->compute + t->attn + t->comm + t->fixed;
}

/* The rank that takes longest decides. */
static void stage_time(const struct plan_case *c, const struct stage *s, const struct work *w,
                       struct plan_time *t)
{
    struct plan_time one = {0};
    for (int i = 0; i < seats(c); i++) {
        struct seat of = seat_of(c, i, w);
        seat_time(c, s, w, &of, &one);
        if (i == 0 || one.total > t->total) *t = one;
    }
}

static void add_time(struct plan_time *sum, const struct plan_time *t)
{
    sum->weights += t->weights, sum->experts += t->experts, sum->compute += t->compute;
    sum->attn += t->attn, sum->comm += t->comm, sum->fixed += t->fixed, sum->total += t->total;
}

/* Home tells a step and hears that it is over; rows go from stage to stage. */
static double between(const struct plan_case *c, double tok)
{
    const struct plan_team *team = c->team;
    if (!team || c->lay.ranks < 2) return 0;
    double hops = c->lay.pp - 1;
    return team->step + wire(&team->hop, hops, hops * tok * 4 * c->model->hidden);
}

static double all_tokens(const struct plan_case *c, double tok)
{
    return c->lay.dp > 1 ? fmax(tok, 1) : tok;
}

/* Running requests are in so many parts, each in another stage. */
#define LANES 16
static double lanes(const struct plan_case *c, double batch)
{
    const struct plan_layout *l = &c->lay;
    if (l->mtp > 0 && l->tp * l->dp > 1) return 1;
    return fmax(1, fmin(fmin(l->pp, LANES), batch));
}

void plan_team_step(const struct plan_case *c, double batch, double ctx, struct plan_time *t)
{
    struct stage s[PLAN_RANK_MAX];
    struct plan_time one = {0};
    int n = stages(c, s);
    double q = 1 + c->lay.mtp, dp = fmax(1, c->lay.dp), n_lane = lanes(c, batch);
    double in_lane = n_lane > 1 ? ceil(batch / n_lane) : batch, slowest = 0;
    double seq = dp > 1 ? ceil(in_lane / dp) : in_lane;
    struct work w = {.busy = n_lane / n, .tok = seq * q, .rows = seq * q, .seq = seq, .ctx = ctx};
    w.attend = fmin(1, in_lane / dp);
    w.all = all_tokens(c, in_lane * q);
    *t = (struct plan_time){0};
    for (int i = 0; i < n; i++) {
        stage_time(c, &s[i], &w, &one);
        slowest = fmax(slowest, one.total);
        add_time(t, &one);
    }
    double more = between(c, w.tok);
    t->comm += more;
    t->total += more;
    double full = n_lane * slowest - t->total; /* a lane waits for the slowest stage */
    if (full > 0) t->fixed += full, t->total += full;
}

/* A step in halves (docs/distribution.md) reads its weights twice, but for the head. Of three
 * exchanges of one half two are behind what the other computes, and no half is sooner than its own
 * are. It is proposed where exchanges take this part of a step and it takes less. */
#define MICRO_WIRE 0.1
bool plan_team_micro(const struct plan_case *c, double batch, double ctx)
{
    const struct plan_layout *l = &c->lay;
    struct stage s[PLAN_RANK_MAX];
    struct plan_time whole, layers, half;
    double seq = ceil(batch / fmax(1, l->dp)), q = 1 + l->mtp;
    if (!c->team || l->dp < 2 || l->tp > 1 || l->pp > 1 || seq < 2) return false;
    (void)stages(c, s);
    struct work w = {.busy = 1, .tok = seq * q, .rows = seq * q, .seq = seq, .ctx = ctx};
    w.all = all_tokens(c, batch * q);
    stage_time(c, s, &w, &whole);
    s->last = false;
    w.rows = 0;
    stage_time(c, s, &w, &layers);
    w.tok /= 2, w.seq /= 2, w.all /= 2;
    stage_time(c, s, &w, &half);
    double own = half.total - half.comm, head = whole.total - layers.total;
    double cut = head + fmax(own + half.comm, 2 * own + half.comm / 3);
    return whole.comm > MICRO_WIRE * whole.total && cut < whole.total;
}

/* A prompt goes through several stages in pieces, so that they work at the same time: as the
 * engine cuts it. */
static double pieces(const struct plan_case *c, double tok)
{
    const struct plan_model *m = c->model;
    double least = m->experts > 0 ? fmax(32, 8.0 * m->experts / m->topk) : 32;
    if (c->lay.pp < 2) return 1;
    return fmax(1, fmin(4.0 * (c->lay.pp - 1), floor(tok / least)));
}

void plan_team_prefill(const struct plan_case *c, double n_req, double n_tok, double attn_flop,
                       struct plan_time *t)
{
    struct stage s[PLAN_RANK_MAX];
    struct plan_time one = {0};
    int n = stages(c, s);
    double tok = n_req * n_tok, dp = fmax(1, fmin(c->lay.dp, n_req)), cuts = pieces(c, tok);
    struct work w = {.busy = fmin(1, cuts / n),
                     .tok = tok / dp / cuts,
                     .rows = fmax(1, n_req / dp / cuts),
                     .attn_flop = attn_flop / dp / cuts};
    w.all = all_tokens(c, tok / cuts);
    w.attend = dp / fmax(1, c->lay.dp);
    double slowest = 0;
    *t = (struct plan_time){0};
    for (int i = 0; i < n; i++) {
        stage_time(c, &s[i], &w, &one);
        double busy = plan_soft_max(one.weights + one.experts, one.compute) + one.attn + one.comm +
                      starts(c, &s[i], &w);
        slowest = fmax(slowest, busy);
        one.total = busy;
        add_time(t, &one);
    }
    double more = between(c, w.tok);
    t->comm += more;
    t->device = t->total + (cuts - 1) * slowest + more;
    t->total = t->device;
    t->fixed = 0;
}

/* ---- memory ---- */

static double stage_weights(const struct plan_case *c, const struct stage *s, const struct seat *of)
{
    const struct plan_model *m = c->model;
    const struct plan_format *f = &c->fmt;
    double g = of->of_group,
           ffn = s->n_dense * m->p_dense * g + s->n_moe * (m->p_shared * g + m->p_router);
    double expert = s->n_moe * m->p_expert * (m->experts + c->lay.redundant) * of->of_stage;
    double tables = (s->first ? m->p_embed : 0) + (s->last ? m->p_head : 0);
    if (s->last && !s->first && m->p_head <= 0) tables += m->p_embed; /* tied, on another rank */
    return (s->n_layer * (m->p_attn * g + m->p_repl) * f->attn + ffn * f->dense +
            expert * f->expert + tables * g * f->head) /
           8;
}

/* Rows of all tokens of a step on one rank, to its experts and back: nothing is ever left out. */
static double buffers(const struct plan_case *c, double batch)
{
    const struct plan_model *m = c->model;
    double tok = (c->lay.chunk > 0 ? c->lay.chunk : 512) + batch;
    return c->lay.dp > 1 ? tok * m->hidden * 4 * (m->topk + 2.0) : 0;
}

void plan_team_memory(const struct plan_case *c, double batch, double ctx, struct plan_memory *out)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    struct stage s[PLAN_RANK_MAX];
    int n = stages(c, s);
    double least = -1;
    for (int i = 0; i < n * seats(c); i++) { /* the rank that has room for the fewest sequences */
        const struct stage *at = &s[i / seats(c)];
        struct seat of = seat_of(c, i % seats(c), &(struct work){.busy = 1, .attend = 1});
        struct plan_memory one = {.limit = out->limit * of.mem};
        one.weights = stage_weights(c, at, &of);
        if (l->mtp > 0 && at->last) one.mtp = mtp_bytes(c) * fmin(of.of_group, of.of_stage);
        one.acts = (double)arch_beside_bytes((int64_t)(one.weights + one.mtp));
        one.comm = buffers(c, batch);
        one.seq =
            plan_kv_bytes(m, ctx, c->kv_bits, l->tp) * at->n_layer / m->layers * heads_more(c, &of);
        double rest = one.limit - one.weights - one.mtp - one.acts - one.comm;
        double holds = rest > 0 && one.seq > 0 ? floor(rest / one.seq) : 0;
        if (least >= 0 && (holds > least || (holds == least && one.weights < out->weights)))
            continue;
        least = holds;
        *out = one;
    }
    out->free_seq = fmax(0, least) * fmax(1, l->dp);
}

/* ---- which layouts there are ---- */

/* Can n ranks share the matrices? As the engine cuts them: whole heads, the rest by 16. */
static bool shared_by(const struct plan_model *m, int n, bool experts_too)
{
    int least = m->hidden < m->vocab ? m->hidden : m->vocab, shared = m->shared * m->shared_inter;
    if (m->dense_layers > 0 && m->dense_inter < least) least = m->dense_inter;
    if (m->moe_layers > 0 && shared > 0 && shared < least) least = shared;
    if (m->moe_layers > 0 && experts_too && m->moe_inter < least) least = m->moe_inter;
    return n == 1 || (n <= m->heads && n <= least / 16 && !m->unshared);
}

bool plan_team_can(const struct plan_model *m, const struct plan_layout *l)
{
    bool ranks = l->tp * l->pp * l->dp > 1;
    bool even = l->n_weight == 0;
    if (l->ep > 1 && (m->experts < l->ep || (even && (m->experts + l->redundant) % l->ep)))
        return false;
    if (ranks && m->attn == PLAN_ATTN_V4) return false;
    bool states = m->attn == PLAN_ATTN_HYB || m->n_lin > 0;
    if (l->tp > 1 && states) return false; /* these are not shared */
    if (l->pp > m->layers) return false;
    int n = l->tp * l->dp, n_etp = l->ep > 0 ? n / l->ep : n;
    if (spread(l) && (m->experts < 1 || l->ep < 1 || n % l->ep)) return false;
    if (spread(l) && (m->moe_inter < 16 * n_etp || m->hidden < 16 * n_etp)) return false;
    return shared_by(m, l->tp, !spread(l));
}

/* ---- ranks that are not alike ---- */

#define NEAR 0.03 /* of a ratio that small numbers stand for */

/* Numbers of which the largest is k, for v [n] with the largest 1; how far the worst is off. */
static double rounded(const double *v, int n, int k, uint16_t *w)
{
    double worst = 0;
    for (int i = 0; i < n; i++) {
        w[i] = (uint16_t)fmax(1, round(v[i] * k));
        worst = BASE_MAX(worst, fabs(w[i] / (v[i] * k) - 1));
    }
    return worst;
}

bool plan_team_weigh(const struct plan_team *t, struct plan_layout *l)
{
    int n = l->tp * l->dp, k = 1;
    double v[PLAN_RANK_MAX], most = 0, least = 0;
    l->n_weight = 0;
    if (!t->rank || n < 2 || n > PLAN_RANK_MAX) return false;
    for (int i = 0; i < n; i++) {
        v[i] = t->rank[i].bw;
        for (int r = i; r < l->ranks; r += n)
            v[i] = fmin(v[i], t->rank[r].bw);
        most = fmax(most, v[i]);
        least = i ? fmin(least, v[i]) : v[i];
    }
    if (least > 0.9 * most) return false;
    for (int i = 0; i < n; i++)
        v[i] /= most;
    while (rounded(v, n, k, l->weight) > NEAR && k < 100)
        k++;
    l->n_weight = n;
    return true;
}
