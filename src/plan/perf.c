/* SPDX-License-Identifier: Apache-2.0 */
/* The performance model: one decode step, one prefill batch. docs/planner.md has the equations in
 * the order of this file. Nothing here depends on the engine except through struct plan_consts. */
#include <math.h>

#include "plan/plan_internal.h"

/* Ascend: 0.8 of memory (BF16 dense decode), 0.654 of MLA compute (CloudMatrix paper). NVIDIA:
 * 0.85, FlashMLA 660 of 989 TFLOPS. A collective's base: fitted 30 us per all-reduce (A2), 10 us
 * (NVLink). */
static const struct plan_physics PHYSICS[PLAN_VENDOR_COUNT] = {
    [PLAN_ASCEND] = {0.80, 0.65, 0.60, 30e-6, 30e-6, 15e-6},
    [PLAN_NVIDIA] = {0.85, 0.67, 0.60, 10e-6, 15e-6, 30e-6},
    [PLAN_OTHER_GPU] = {0.70, 0.50, 0.50, 20e-6, 30e-6, 60e-6},
    [PLAN_APPLE] = {0.80, 0.40, 0.40, 20e-6, 50e-6, 60e-6},
    [PLAN_CPU] = {0.80, 0.50, 0.50, 20e-6, 50e-6, 60e-6},
};

const struct plan_physics *plan_physics_of(const struct plan_device *d)
{
    return &PHYSICS[d->vendor];
}

double plan_soft_max(double a, double b)
{
    return sqrt(a * a + b * b);
}

/* Peak for the format's arithmetic; a device without that unit computes in BF16. */
static double peak_of(const struct plan_case *c, enum plan_num num)
{
    double p = c->dev->peak[num];
    if (c->fmt.soft_scale && num >= PLAN_NUM_FP8) return c->dev->peak[PLAN_NUM_BF16];
    if (num == PLAN_NUM_FP4) p = fmin(p, 2 * c->dev->peak[PLAN_NUM_FP8]);
    return p > 0 ? p : c->dev->peak[PLAN_NUM_BF16];
}

/* Attention and dense layers of a 4-bit format keep 8-bit weights and multiply in 8 bits. */
static double peak_dense(const struct plan_case *c)
{
    bool down = c->fmt.act == PLAN_NUM_FP4 && c->fmt.attn > 5;
    return peak_of(c, down ? PLAN_NUM_FP8 : c->fmt.act);
}

/* Attention multiplies in BF16, but for V4, whose attention is made for 8 bits where the device has
 * them. */
static double peak_attn(const struct plan_case *c)
{
    bool eight = c->model->attn == PLAN_ATTN_V4 && c->fmt.act >= PLAN_NUM_FP8;
    return peak_of(c, eight ? PLAN_NUM_FP8 : PLAN_NUM_BF16);
}

/* Surplus of the fullest rank on experts and all-to-all; it makes whole prefill batches 1.18 times
 * longer, as published twice (6688/5655 and 59337/50302). */
#define SKEW 0.33

double plan_imbalance(const struct plan_case *c)
{
    const struct plan_layout *l = &c->lay;
    if (l->ep <= 1 || c->model->experts == 0) return 1.0;
    if (l->balanced) return 1.0;
    if (l->redundant <= 0) return 1 + SKEW;
    double share =
        (double)l->redundant / c->model->experts; /* copies lower the hot rank's surplus */
    return 1.0 + SKEW / (1.0 + 8.0 * share);
}

/* Published tables at 128 tokens per rank: CloudMatrix EP 8..256, DeepEP low latency on H800
 * EP 8..256. */
static double table_a2a(bool a3, double ep, bool combine)
{
    static const double h800[2][6] = {{77, 118, 155, 173, 192, 194},
                                      {114, 195, 273, 314, 369, 360}};
    double x = fmin(fmax(log2(ep), 3), 8) - 3;
    if (a3) return combine ? 118 + (149 - 118) * x / 5 : 116 + (152 - 116) * x / 5;
    int i = x >= 5 ? 4 : (int)x;
    const double *t = h800[combine];
    return t[i] + (t[i + 1] - t[i]) * (x - i);
}

double plan_all_to_all(const struct plan_case *c, double n_tok, bool combine)
{
    const struct plan_layout *l = &c->lay;
    const struct plan_device *d = c->dev;
    const struct plan_physics *p = plan_physics_of(d);
    double width = c->model->hidden / 7168.0 * fmin(c->model->topk, l->ep) / 8.0;
    double per_node = (double)d->cards_per_node * d->dies;
    double base = p->alpha_a2a;
    bool domain = l->ep <= per_node && d->link >= 600e9; /* all of it on one switch */
    if (d->a3 || (d->vendor == PLAN_NVIDIA && !domain && d->net > 0)) {
        double t = table_a2a(d->a3, l->ep, combine) * 1e-6;
        double slope = fmax(t - base, 0) / 128 * width;
        if (!d->a3 && l->ep > per_node) slope *= 50e9 / d->net;
        return base + n_tok * slope;
    }
    double bw = l->ep > per_node && d->net > 0 ? d->net : d->link;
    if (bw <= 0) bw = 50e9;
    double bytes = n_tok * fmin(c->model->topk, l->ep) * c->model->hidden * (combine ? 2 : 1);
    return base + bytes / (0.6 * bw);
}

/* Without a fabric between the nodes (A2): all ranks gather every token and scatter the sums,
 * inside the node on all links, between nodes on one eighth each. In decode, where the ranks are
 * many for the experts that a token chooses, a token goes to each node once and there to its ranks
 * instead. */
static double a2_exchange(const struct plan_case *c, double tok_rank, double tok_all, bool prefill)
{
    const struct plan_device *d = c->dev;
    const struct plan_model *m = c->model;
    double nodes = fmax(1, (double)c->lay.ranks / (d->cards_per_node * d->dies));
    double link = fmax(d->link, 1e9), base = 4 * plan_physics_of(d)->alpha_tp;
    double net = d->net > 0 ? 0.125 * (nodes - 1) / nodes / d->net : 0;
    double gather = tok_all * (net + 0.875 / link);
    if (!prefill && c->lay.ep >= 4 * m->topk) {
        double far = d->net > 0 ? fmin(4, nodes) * (nodes - 1) / nodes / d->net : 0;
        double near = 0.875 * m->topk / c->lay.ep / link;
        gather = fmin(gather, tok_rank * far + tok_all * near);
    }
    return base + 3 * m->hidden * gather;
}

static double all_reduce(const struct plan_case *c, double n_tok)
{
    const struct plan_device *d = c->dev;
    const struct plan_physics *p = plan_physics_of(d);
    int n = c->lay.tp;
    if (n <= 1) return 0;
    bool far =
        !d->consumer && n > d->cards_per_node * d->dies; /* cards on one PCIe host are near */
    double bw = far ? d->net : d->link;
    double alpha = far ? p->alpha_tp + p->alpha_net * 2 : p->alpha_tp;
    if (d->consumer) alpha += 10e-6;
    return alpha + 2.0 * (n - 1) / n * n_tok * c->model->hidden * 2 / fmax(bw, 1e9);
}

/* Communication of all layers for tok_rank tokens on a rank, tok_all in the expert group. */
static double comm_time(const struct plan_case *c, double tok_rank, double tok_all, bool prefill)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    double t = 0;
    if (l->tp > 1) t += all_reduce(c, tok_rank) * (l->ep > 1 ? m->layers : 2.0 * m->layers);
    if (l->ep > 1 && m->experts > 0 && !c->lay.cpu_experts) {
        const struct plan_device *d = c->dev;
        bool gather = d->vendor == PLAN_ASCEND && !d->a3;
        double one;
        if (gather) {
            one = a2_exchange(c, tok_rank, tok_all, prefill);
        } else if (prefill) { /* throughput kernels: link bound, tokens go once to each node */
            double bw =
                l->ep > d->cards_per_node * d->dies ? fmax(d->net, 1e9) : fmax(d->link, 1e9);
            double nodes = fmax(1, l->ep / ((double)d->cards_per_node * d->dies));
            bool fabric = d->a3 || nodes <= 1; /* a copy per chosen expert, or one per other node */
            double hops = fabric ? fmin(m->topk, l->ep) * (l->ep - 1.0) / l->ep
                                 : fmin(4, nodes) * (nodes - 1) / nodes;
            if (fabric) bw *= 0.6; /* published: 102 of 196 GB/s dispatch, 121 to 152 combine */
            one = tok_rank * m->hidden * 3.0 * hops / bw;
        } else {
            one = plan_all_to_all(c, tok_rank, false) + plan_all_to_all(c, tok_rank, true);
        }
        t += one * m->moe_layers * plan_imbalance(c);
    }
    if (l->pp > 1) {
        double bw = c->dev->net > 0 ? c->dev->net : c->dev->link;
        t += (l->pp - 1) *
             (plan_physics_of(c->dev)->alpha_net + tok_rank * m->hidden * 2 / fmax(bw, 1e9));
    }
    return t;
}

/* ---- decode attention ---------------------------------------------------------------------------
 */

/* Share of the dense kernel's speed that attention over gathered rows reaches: FlashMLA's README,
 * 410 (sparse) of 660 TFLOPS (dense) on an H800. */
#define SPARSE_SHARE (410.0 / 660.0)

/* Share of the 8-bit peak that scoring the index reaches where the 2048 best are chosen. Beside the
 * product of all heads with every cached key there are a ReLU, a sum over the heads and the choice
 * of the k best on the vector unit, which takes longest (Ascend's guide to V3.2) and costs by k. */
#define INDEX_SHARE 0.2

static double index_share(const struct plan_model *m)
{
    if (m->attn == PLAN_ATTN_GQA) return 0.6; /* the largest of a block, few of which are chosen */
    return fmin(0.6, INDEX_SHARE * 2048 / m->index_topk);
}

/* Positions of a context of ctx whose keys are looked at where each of q queries chooses, summed
 * over the layers (GQA). */
static double keys_chosen(const struct plan_model *m, double ctx, double q)
{
    double n = plan_index_layers(m);
    if (m->index_topk <= 0) return plan_keys_seen(m, ctx);
    return n * fmin(ctx, q * m->index_topk) + (m->layers - n) * ctx;
}

/* KV bytes that attention reads in one decode step for one sequence that verifies q tokens, all
 * layers, without the index: every query gathers a top k of its own. */
static double kv_read(const struct plan_model *m, double ctx, double bits, int tp, double q)
{
    double b = bits / 8, L = m->layers;
    if (m->attn == PLAN_ATTN_MLA && m->index_topk > 0)
        return (L - m->n_lin) * fmin(ctx, q * m->index_topk) * (m->kv_lora + m->rope) * b;
    if (m->attn == PLAN_ATTN_V4) {
        double win = fmin(ctx, m->window);
        return b * m->head_dim *
               (win * L + m->n_c4 * fmin(ctx / 4, q * m->index_topk) + m->n_c128 * ctx / 128);
    }
    if (m->attn == PLAN_ATTN_GQA && m->index_topk > 0) {
        double split = fmax(1, fmin(tp, m->kv_heads));
        return 2.0 * m->kv_heads * m->head_dim * b / split * keys_chosen(m, ctx, q);
    }
    return plan_kv_bytes(m, ctx, bits, tp);
}

/* Keys of the index that one query is scored with, summed over the layers that have one. */
static double index_keys(const struct plan_model *m, double ctx)
{
    if (m->attn == PLAN_ATTN_V4) return m->n_c4 * ctx / 4;
    return m->index_topk > 0 ? plan_index_layers(m) * ctx / fmax(1, m->index_pool) : 0;
}

/* Attention products of one query token against ctx cached tokens, all layers, absorbed form,
 * without the index. */
double plan_attn_flop(const struct plan_model *m, double ctx)
{
    double L = m->layers, H = m->heads;
    if (m->attn == PLAN_ATTN_MLA) {
        double n = m->index_topk > 0 ? fmin(ctx, m->index_topk) : ctx;
        return (L - m->n_lin) * 2 * H * (2.0 * m->kv_lora + m->rope) * n;
    }
    if (m->attn == PLAN_ATTN_V4) {
        double n = fmin(ctx, m->window) * L + m->n_c4 * fmin(ctx / 4, m->index_topk) +
                   m->n_c128 * ctx / 128;
        return 4 * H * m->head_dim * n;
    }
    double keys = m->attn == PLAN_ATTN_HYB ? ceil(L / 4) * ctx : keys_chosen(m, ctx, 1);
    return 4 * H * m->head_dim * keys;
}

/* Products of one query token with the index, all layers. */
static double index_flop(const struct plan_model *m, double ctx)
{
    return 2.0 * m->index_heads * m->index_dim * index_keys(m, ctx);
}

/* Seconds of attention of seq sequences on a rank, q queries each. The index is repeated on every
 * rank of a TP group: its score is a sum over heads, which no engine splits; where every head
 * chooses for itself (GQA) its keys are. */
static double attn_time(const struct plan_case *c, double seq, double q, double ctx)
{
    const struct plan_model *m = c->model;
    const double *peak = c->dev->peak;
    double bw = c->dev->bw * c->k.v[PLAN_ETA_KV], tok = seq * q;
    double share = plan_physics_of(c->dev)->eta_mla;
    if (m->attn == PLAN_ATTN_MLA && m->index_topk > 0) share *= SPARSE_SHARE;
    double reads = seq * kv_read(m, ctx, c->kv_bits, c->lay.tp, q) / bw;
    double t = fmax(reads, tok * plan_attn_flop(m, ctx) / c->lay.tp / (peak_attn(c) * share));
    if (m->index_topk <= 0) return t;
    double eight = fmax(peak[PLAN_NUM_BF16], fmax(peak[PLAN_NUM_INT8], peak[PLAN_NUM_FP8]));
    double keys = seq * index_keys(m, ctx) * m->index_dim * c->kv_bits / 8 / bw;
    double split = m->attn == PLAN_ATTN_GQA ? fmin(c->lay.tp, m->kv_heads) : 1;
    return t + fmax(keys, tok * index_flop(m, ctx) / split / (eight * index_share(m)));
}

/* Operators that one layer launches, beside those of a DeepSeek layer with 16-bit activations
 * (1.0). */
double plan_layer_ops(const struct plan_case *c)
{
    const struct plan_model *m = c->model;
    double attn = m->attn == PLAN_ATTN_GQA ? 6 : m->attn == PLAN_ATTN_V4 ? 20 : 12;
    if (m->attn != PLAN_ATTN_V4 && m->index_topk > 0) attn += 6;
    double ffn = m->experts > 0 ? (14.0 * m->moe_layers + 4.0 * m->dense_layers) / m->layers : 4;
    double quant = c->fmt.act == PLAN_NUM_BF16 ? 0 : 6;
    return (attn + ffn + quant) / 26;
}

struct shard {
    double attn, dense, moe_all,
        head; /* parameters read on one rank; moe_all per distinct expert */
};

static void shard_of(const struct plan_case *c, struct shard *s)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    double tp = l->tp, ep = fmax(l->ep, 1);
    s->attn = m->layers * (m->p_attn / tp + m->p_repl);
    s->dense = m->dense_layers * m->p_dense / tp +
               m->moe_layers * ((l->shared_ranks ? 0 : m->p_shared / tp) + m->p_router);
    s->moe_all = m->moe_layers * m->p_expert / (l->ep > 1 ? ep : tp);
    double heads = fmax(tp, fmin(l->ranks, 8));
    s->head = m->p_embed / heads;
}

/* Distinct experts that the slowest rank of an EP group reads in one layer. Forced balance deals
 * the tokens out evenly; otherwise the fullest of R bins holds about mu + sqrt(2 mu ln R). */
static double experts_on_rank(const struct plan_case *c, double tok_all)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    double here = (m->experts + l->redundant) / (double)l->ep;
    double copies = 1 + (double)l->redundant / m->experts;
    if (l->balanced)
        return fmin(here, fmax(1, fmin(m->experts, tok_all * m->topk) * copies / l->ep));
    double mu = plan_experts_touched(m, tok_all) * copies / l->ep;
    return fmin(fmax(here, 1), fmax(1, mu + sqrt(2 * mu * log(l->ep))));
}

/* Reading a slice of an expert: small slices do not fill the memory system. */
static double slice_share(const struct plan_case *c)
{
    double bytes = c->model->p_expert * c->fmt.expert / 8 / fmax(1, c->lay.ep > 1 ? 1 : c->lay.tp);
    return bytes / (bytes + 1e6);
}

/* Rows that a grouped product computes for each expert at least: the tile of its matrix kernel.
 * A step of decode, and a prompt too while an expert gets 16 rows or fewer, runs on the smallest
 * tile, 16. FP8 with block scales has 64 at least on the large NVIDIA parts (the least of Hopper's
 * warp-group instructions; vLLM's default for block-quantised experts too). */
static double tile_rows(const struct plan_case *c, double rows_each, bool prompt)
{
    const struct plan_device *d = c->dev;
    bool large = d->vendor == PLAN_NVIDIA && d->peak[PLAN_NUM_FP8] > 0 && d->bw > 2e12;
    if (large && (c->fmt.act != PLAN_NUM_BF16 || rows_each > 16)) return 64;
    if (!prompt || rows_each <= 16) return 16;
    return d->vendor == PLAN_ASCEND ? 128
                                    : 64; /* L0C of 128 KiB holds 128 x 256 sums; Triton's 64 */
}

/* Rows of all experts of one layer for a prompt of tok tokens. */
static double prompt_rows(const struct plan_case *c, double tok)
{
    double rows = tok * c->model->topk, each = rows / fmax(c->model->experts, 1);
    return fmax(rows, plan_experts_read(c->model, tok) * tile_rows(c, each, true));
}

/* Rows of a tile of the host's matrix kernels: a prompt's products cost whole tiles for every
 * expert that is touched. Decode has a kernel of its own for one row. */
#define HOST_TILE 8

/* Experts on the host: tok tokens in chunks, every touched expert read once for each chunk. Reads
 * and products overlap as they do on a card. */
static void cpu_step(const struct plan_case *c, double tok, double chunks, bool prompt,
                     struct plan_time *t)
{
    const struct plan_model *m = c->model;
    const double *k = c->k.v;
    double bits = c->fmt.cpu > 0 ? c->fmt.cpu : c->fmt.expert;
    double touched = chunks * plan_experts_read(m, tok / chunks), rows = tok * m->topk;
    if (prompt) rows = fmax(rows, touched * HOST_TILE);
    double bytes = m->moe_layers * m->p_expert * touched * bits / 8;
    double flop = 2.0 * rows * m->p_expert * m->moe_layers;
    t->cpu = (1 - c->lay.hot) *
             plan_soft_max(bytes / (k[PLAN_CPU_GBPS] * 1e9), flop / (k[PLAN_CPU_TOPS] * 1e12));
}

double plan_experts_of(const struct plan_case *c, double tok)
{
    return plan_experts_read(c->model, c->apart > 0 ? tok * c->apart : tok);
}

/* Attention of sequences that decode on a CPU rank, tok tokens of them. */
double plan_attn_host(const struct plan_case *c, double seq, double tok, double ctx)
{
    const struct plan_model *m = c->model;
    const double *k = c->k.v;
    double keys = index_keys(m, ctx) * m->index_dim * c->kv_bits / 8;
    double tp = fmax(1, c->lay.tp), bw = k[PLAN_CPU_GBPS] * 1e9 * k[PLAN_ETA_KV];
    return seq * (kv_read(m, ctx, c->kv_bits, (int)tp, 1) + keys) / bw +
           tok * (plan_attn_flop(m, ctx) / tp + index_flop(m, ctx)) / (k[PLAN_CPU_TOPS] * 1e12);
}

/* Share of peak that decode's products reach. A device with little arithmetic for its memory (H20:
 * 37 flop for each byte, the others 130 and more) fills its units easily: dense rows of 32 and 64
 * users on it leave 0.9. */
static double product_share(const struct plan_device *d)
{
    return d->peak[PLAN_NUM_BF16] < 60 * d->bw ? 0.9 : plan_physics_of(d)->mfu_dec;
}

static void device_weights(const struct plan_case *c, double tok_rank, double tok_all,
                           struct plan_time *t)
{
    const struct plan_model *m = c->model;
    const struct plan_physics *p = plan_physics_of(c->dev);
    const struct plan_layout *l = &c->lay;
    const double *k = c->k.v;
    struct shard s;
    shard_of(c, &s);
    double bw = c->dev->bw;
    t->weights = (s.attn * c->fmt.attn + s.dense * c->fmt.dense + s.head * c->fmt.head) / 8 /
                 (bw * p->eta_d);
    double flop = 2 * tok_rank * (s.attn + s.dense + s.head), moe = 0;
    if (m->experts > 0 && !l->cpu_experts) {
        double read = l->ep > 1 ? experts_on_rank(c, tok_all) * m->moe_layers * m->p_expert
                                : s.moe_all * plan_experts_of(c, tok_all);
        double eta = k[PLAN_ETA_W] * slice_share(c);
        bool unit = c->fmt.fp_weights && c->fmt.expert < 5 && c->dev->peak[PLAN_NUM_FP4] > 0;
        /* weights narrower than what is multiplied: the vector unit works beside the reads */
        double bits = c->fmt.act == PLAN_NUM_BF16 ? 8.6 : 5;
        if (c->fmt.expert <= bits && !unit) eta *= 0.6;
        t->experts = read * c->fmt.expert / 8 / (bw * eta);
        /* rows of the grouped product: matrix units work on whole tiles for every expert that is
         * touched */
        double group =
            l->ep > 1 ? experts_on_rank(c, tok_all) * l->ep : plan_experts_of(c, tok_all);
        double rows = tok_all * m->topk * plan_imbalance(c);
        rows = fmax(rows, group * tile_rows(c, rows / m->experts, false));
        moe = 2 * rows * s.moe_all;
    } else if (l->cpu_experts && l->hot > 0) {
        double bytes = m->moe_layers * m->p_expert * plan_experts_of(c, tok_all) * l->hot / l->tp;
        t->experts = bytes * c->fmt.attn / 8 / (bw * p->eta_d);
    }
    t->compute = (flop / peak_dense(c) + moe / peak_of(c, c->fmt.act)) / product_share(c->dev);
}

void plan_step(const struct plan_case *c, double batch, double ctx, struct plan_time *t)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    const double *k = c->k.v;
    *t = (struct plan_time){0};
    double q = 1 + l->mtp;
    struct plan_case in_row = *c;
    if (m->counts) in_row.apart = plan_counts_apart(m->counts, 1 + l->mtp) / q;
    c = &in_row;
    if (c->k.mode == PLAN_MODE_CPU) {
        plan_team_step(c, batch, ctx, t);
        return;
    }
    double lanes = 1; /* micro-batches in flight */
    if (l->pp > 1 && !l->serial) lanes = fmax(1, fmin(batch / fmax(1, l->pp_batch), l->pp));
    double seq = fmax(1, batch / l->dp / lanes);
    double tok_rank = seq * q;
    double tok_all =
        l->ep > 1 ? fmax(batch / lanes, 1) * q : tok_rank; /* without EP a replica is alone */
    device_weights(c, tok_rank, tok_all, t);
    t->attn = attn_time(c, seq, q, ctx);
    t->comm = comm_time(c, tok_rank, tok_all, false);
    /* grouping by expert: nothing to do for one sequence, half of it for two */
    double multi = k[PLAN_T_MULTI] * m->moe_layers / m->layers * (1 - q / fmax(tok_all, q));
    t->fixed = m->layers * plan_layer_ops(c) * (k[PLAN_T_LAYER] + multi) * 1e-6;
    double soft = c->fmt.soft_scale ? k[PLAN_SOFT] : 1;
    double wide =
        m->hidden / 7168.0 * (m->attn == PLAN_ATTN_V4 ? 4 : 1); /* V4 carries 4 residual streams */
    if (c->dev->vendor == PLAN_NVIDIA) wide *= 3.35e12 / c->dev->bw; /* H100 is the reference */
    t->token = m->layers * tok_rank * k[PLAN_T_TL] * wide * soft * 1e-6;
    t->draft = l->mtp * m->layers * k[PLAN_T_DRAFT] * 1e-6;
    if (l->cpu_experts) cpu_step(c, tok_all, 1, false, t);
    double comp = plan_soft_max(t->weights + t->experts, t->compute) + t->attn + t->token;
    double comm = t->comm;
    if (l->micro_batch && l->ep > 1) {
        bool nv = c->dev->vendor == PLAN_NVIDIA;
        double both = nv ? fmax(comp, comm) + 0.1 * fmin(comp, comm) : comp + 0.7 * comm;
        comm = both - comp;
    }
    t->total = comp + comm + t->fixed + t->draft + t->cpu;
}

/* Pairs of (query, key) that prefill attends, per sequence and layer kind, in flop over all layers.
 */
double plan_prompt_flop(const struct plan_model *m, double n, double past)
{
    double L = m->layers, H = m->heads, pairs = n * (past + n / 2);
    if (m->attn == PLAN_ATTN_MLA) {
        double f = 2 * H * (m->nope + m->rope + m->v_dim);
        if (m->index_topk <= 0) return (L - m->n_lin) * f * pairs;
        double kept = fmin(pairs, n * m->index_topk);
        double keys = pairs / fmax(1, m->index_pool);
        return (L - m->n_lin) * f * kept +
               plan_index_layers(m) * 2.0 * m->index_heads * m->index_dim * keys;
    }
    if (m->attn == PLAN_ATTN_V4) {
        double mean = past + n / 2;
        return n * (4 * H * m->head_dim *
                        (fmin(mean, m->window) * L + m->n_c4 * fmin(mean / 4, m->index_topk) +
                         m->n_c128 * mean / 128) +
                    2.0 * m->index_heads * m->index_dim * m->n_c4 * mean / 4);
    }
    if (m->attn == PLAN_ATTN_HYB) return ceil(L / 4) * 4 * H * m->head_dim * pairs;
    double index = m->index_topk > 0 ? plan_index_layers(m) : 0;
    return 4 * H * m->head_dim * n * keys_chosen(m, past + n / 2, 1) +
           index * 2.0 * m->index_heads * m->index_dim * pairs;
}

/* All experts once over the bus; copying into pinned pages goes on beside the transfer. */
static double stream_time(const struct plan_case *c)
{
    const struct plan_model *m = c->model;
    double bits = c->fmt.cpu > 0 ? c->fmt.cpu : c->fmt.expert;
    double bytes =
        (double)m->moe_layers * m->experts * m->p_expert * bits / 8; /* resident ones too */
    double pcie = c->dev->consumer ? fmax(c->dev->link, 1e9) : 16e9 / c->dev->dies;
    double cap = c->host ? fmax(45e9, 0.1 * c->host->bw) : 45e9; /* staging through pinned pages */
    return plan_soft_max(bytes / (pcie * c->lay.ranks), bytes / cap) / c->k.v[PLAN_BUS];
}

void plan_prefill(const struct plan_case *c, double n_req, double n_tok, double past,
                  struct plan_time *t)
{
    const struct plan_model *m = c->model;
    const struct plan_layout *l = &c->lay;
    const double *k = c->k.v;
    *t = (struct plan_time){0};
    double tok = n_req * n_tok;
    double aflop = n_req * plan_prompt_flop(m, n_tok, past);
    t->fixed = k[PLAN_T0] + n_req / fmax(1, l->dp) * k[PLAN_T_REQ];
    if (c->k.mode == PLAN_MODE_CPU) {
        plan_team_prefill(c, n_req, n_tok, aflop, t);
        t->fixed = k[PLAN_T0] + n_req / fmax(1, l->dp) * k[PLAN_T_REQ];
        t->total = t->device + t->fixed;
        return;
    }
    double lanes = fmax(1, (double)l->tp * l->dp); /* ranks that share one layer */
    double chunks = l->pp > 1 ? fmax(1, ceil(tok / fmax(1, fmin(k[PLAN_CHUNK], 2048)))) : 1;
    double part = tok / chunks;
    double spread =
        l->dp > 1 ? fmin(l->dp, fmax(n_req, tok / 512)) : 1; /* long prompts are cut over DP */
    double busy = l->dp > 1 ? spread * l->tp : lanes;
    double tok_rank = part / spread;
    struct plan_time w = {0};
    device_weights(c, tok_rank, l->ep > 1 ? part : tok_rank, &w);
    t->weights = w.weights;
    t->experts = w.experts;
    double moe = l->cpu_experts ? 0 : prompt_rows(c, part) * m->moe_layers * m->p_expert;
    double rest = m->active - m->p_embed - (double)m->moe_layers * m->topk * m->p_expert;
    double skew = l->ep > 1 ? plan_imbalance(c) : 1, moe_ranks = l->ep > 1 ? l->ep : busy;
    t->compute =
        2 / k[PLAN_MFU] *
        (part * rest / (busy * peak_dense(c)) + moe * skew / (moe_ranks * peak_of(c, c->fmt.act)));
    t->attn = aflop / chunks / (busy * peak_of(c, PLAN_NUM_BF16) * k[PLAN_ETA_A]);
    t->comm = comm_time(c, tok_rank, part, true);
    double bus = 0;
    if (l->cpu_experts && l->stream_prefill && tok >= l->stream_from) {
        double on_card = 2 * tok * (double)m->moe_layers * m->topk * m->p_expert;
        t->compute += on_card / (busy * peak_of(c, c->fmt.act) * k[PLAN_MFU]);
        bus = stream_time(c); /* a layer arrives, then it computes: a sum in every published row */
    } else if (l->cpu_experts) {
        double chunk = fmax(1, l->chunk > 0 ? l->chunk : k[PLAN_CHUNK]);
        cpu_step(c, tok, fmax(1, ceil(tok / chunk)), true, t);
    }
    t->cpu += bus;
    double comp = plan_soft_max(t->weights + t->experts, t->compute) + t->attn;
    double comm = t->comm;
    if (l->micro_batch) comm = fmax(0, fmax(comp, comm) + 0.1 * fmin(comp, comm) - comp);
    double fill = (chunks + l->pp - 1) / fmax(1, l->pp); /* stages filled one after another */
    if (l->serial) fill = chunks;
    t->device = (comp + comm) * fill + t->cpu;
    t->total = plan_soft_max(t->device, k[PLAN_T0]) + t->fixed - k[PLAN_T0];
}
