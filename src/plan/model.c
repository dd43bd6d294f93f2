/* SPDX-License-Identifier: Apache-2.0 */
/* Model arithmetic: parameters by class, distinct experts, KV bytes. It knows shapes, not files. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>

#include "arch/arch.h"
#include "plan/plan_internal.h"

double plan_index_layers(const struct plan_model *m)
{
    return m->n_index ? m->n_index : m->layers;
}

/* Parameters of one indexer that every rank repeats. */
static double index_params(const struct plan_model *m)
{
    double D = m->hidden, d = m->index_dim;
    if (m->index_topk <= 0) return 0;
    if (m->attn == PLAN_ATTN_GQA) return D * d;
    return m->q_lora * m->index_heads * d + (m->index_pool ? 2 : 1) * D * d + D * m->index_heads;
}

static double lin_key(const struct plan_model *m)
{
    return m->lin_key ? m->lin_key : m->lin_d;
}

/* Parameters of one layer with a state. */
static double lin_params(const struct plan_model *m)
{
    double D = m->hidden, dk = lin_key(m), keys = 2.0 * m->lin_k * dk;
    double values = (double)m->lin_v * m->lin_d, conv = (keys + values) * m->lin_conv;
    if (!m->lin_each) return D * (keys + 3 * values + 2.0 * m->lin_v) + conv;
    double low = (D + m->lin_v * dk) * dk + (D + values) * m->lin_d; /* of decays, of gates */
    if (m->lin_whole) low = D * (m->lin_v * dk + values);
    return D * (keys + 2 * values + m->lin_v) + low + conv;
}

/* Layers with a state. */
static double lin_layers(const struct plan_model *m)
{
    return m->n_lin || m->attn != PLAN_ATTN_HYB ? m->n_lin : floor(m->layers * 0.75);
}

/* MLA in the layers that have no state. */
static void mla_params(const struct plan_model *m, double *split, double *repl)
{
    double D = m->hidden, H = m->heads, qd = m->nope + m->rope, lin = lin_layers(m) / m->layers;
    double each = D * (m->kv_lora + m->rope) + m->kv_lora + (m->head_gate ? D * H : 0);
    *split = (double)m->kv_lora * H * (m->nope + m->v_dim) + H * m->v_dim * D;
    if (m->q_lora > 0) {
        each += D * m->q_lora + m->q_lora;
        *split += m->q_lora * H * qd;
    } else {
        *split += D * H * qd;
    }
    each += index_params(m) * fmin(1, plan_index_layers(m) / (m->layers - lin_layers(m)));
    *repl += each * (1 - lin);
    if (lin > 0) *split = *split * (1 - lin) + lin_params(m) * lin;
}

/* What entries and index keys are made of: c and z of the width of a head, in layers compressed 4
 * times twice. Mean over layers. */
static double entry_params(const struct plan_model *m)
{
    double D = m->hidden, d = m->head_dim;
    double index = m->index_dim * 4 * D + m->index_heads * (D + (double)m->q_lora * m->index_dim);
    return (m->n_c4 * (4 * D * d + index) + m->n_c128 * 2 * D * d) / m->layers;
}

/* q_lora, shared KV, grouped low-rank output, and those. */
static void v4_params(const struct plan_model *m, double *split, double *repl)
{
    double D = m->hidden, d = m->head_dim, wide = (double)m->heads * d;
    double low = m->o_lora ? m->o_lora : 1024, groups = m->o_groups ? m->o_groups : 8;
    *repl += D * m->q_lora + m->q_lora + D * d + entry_params(m);
    *split = m->q_lora * wide + wide * low + groups * low * D;
}

/* Of a layer the two matrices by which its blocks read and write streams, and its part of that of
 * their head. */
static double stream_params(const struct plan_model *m)
{
    double n = m->n_stream, head = m->stream_mean ? 0 : n * n * m->hidden;
    return 2 * (2 + n) * n * n * m->hidden + head / m->layers;
}

/* Attention parameters of one layer: split by TP, and repeated on each rank. */
static void attn_params(const struct plan_model *m, double *split, double *repl)
{
    double D = m->hidden, H = m->heads;
    *repl = 2 * D + stream_params(m);
    if (m->attn == PLAN_ATTN_MLA) {
        mla_params(m, split, repl);
        return;
    }
    if (m->attn == PLAN_ATTN_V4) {
        v4_params(m, split, repl);
        return;
    }
    double full = D * H * m->head_dim * 2 + (m->k_is_v ? 1 : 2) * D * m->kv_heads * m->head_dim;
    if (m->attn == PLAN_ATTN_GQA) {
        double share = plan_index_layers(m) / m->layers, win = (double)m->n_window / m->layers;
        *split = full;
        if (m->win_head_dim > 0)
            *split = (1 - win) * full + win * 2 * D * m->win_head_dim * (H + m->win_kv_heads);
        if (m->index_topk > 0) *split += share * D * m->index_heads * m->index_dim;
        *repl += share * index_params(m);
        return;
    }
    double share = m->n_lin ? (double)m->n_lin / m->layers : 0.75;
    *split = (1 - share) * (full + D * H * m->head_dim) + share * lin_params(m);
}

double plan_state_bytes(const struct plan_model *m)
{
    int conv = m->lin_conv ? m->lin_conv : 4;
    if (m->attn != PLAN_ATTN_HYB && !m->n_lin) return 0;
    return 4.0 * lin_layers(m) *
           (double)arch_delta_state(m->lin_k, m->lin_v, (int)lin_key(m), m->lin_d, conv,
                                    m->lin_each);
}

/* Of a hybrid it is one of the layers that are not linear. */
double plan_mtp_attn(const struct plan_model *m)
{
    double D = m->hidden, d = m->head_dim;
    return m->attn == PLAN_ATTN_HYB ? D * d * (3.0 * m->heads + 2.0 * m->kv_heads) : m->p_attn;
}

/* DeepSeek-V4's has a window alone. */
double plan_mtp_repl(const struct plan_model *m)
{
    return m->p_repl - (m->attn == PLAN_ATTN_V4 ? entry_params(m) : 0);
}

double plan_mtp_tables(const struct plan_model *m)
{
    bool shares = lin_layers(m) > 0 || m->attn == PLAN_ATTN_V4;
    return shares ? 0 : m->p_embed + m->p_head;
}

static bool bad_shape(const struct plan_model *m, const char **field)
{
    struct {
        const char *name;
        double v, lo, hi;
    } f[] = {
        {"layers", m->layers, 1, 1000},
        {"hidden", m->hidden, 16, 1e6},
        {"heads", m->heads, 1, 4096},
        {"vocab", m->vocab, 2, 1e8},
        {"experts", m->experts, 0, 65536},
        {"topk", m->topk, 0, m->experts},
        {"dense_layers", m->dense_layers, 0, m->layers},
        {"moe_inter", m->moe_inter, m->experts > 0 ? 1 : 0, 1e7},
        {"dense_inter", m->dense_inter, m->dense_layers > 0 ? 1 : 0, 1e7},
        {"kv_lora", m->kv_lora, m->attn == PLAN_ATTN_MLA ? 1 : 0, 1e6},
        {"topk", m->topk, m->experts > 0 ? 1 : 0, 65536},
        {"kv_heads", m->kv_heads, m->attn == PLAN_ATTN_MLA ? 0 : 1, 4096},
        {"head_dim", m->head_dim, m->attn == PLAN_ATTN_MLA ? 0 : 1, 65536},
        {"mtp_layers", m->mtp_layers, 0, 64},
        {"shared", m->shared, 0, 1024},
        {"n_window", m->n_window, 0, m->layers},
    };
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        if (!(f[i].v >= f[i].lo && f[i].v <= f[i].hi)) {
            *field = f[i].name;
            return true;
        }
    }
    return false;
}

bool plan_model_finish(struct plan_model *m, char *why, size_t why_size)
{
    const char *field = NULL;
    if (m->experts == 0) m->dense_layers = m->layers;
    if (bad_shape(m, &field)) {
        snprintf(why, why_size, "model %s: field %s is missing or absurd", m->name, field);
        return false;
    }
    double D = m->hidden;
    if (m->attn == PLAN_ATTN_HYB && m->lin_d == 0) {
        m->lin_k = 16, m->lin_v = m->hidden > 2048 ? 64 : 32, m->lin_d = 128;
    }
    if (m->shared_inter == 0) m->shared_inter = m->moe_inter;
    m->moe_layers = m->experts > 0 ? m->layers - m->dense_layers : 0;
    m->p_dense = 3 * D * m->dense_inter;
    m->p_expert = 3 * D * m->moe_inter;
    m->p_shared = 3 * D * m->shared_inter * m->shared + (m->shared_gate ? D : 0);
    m->p_router = D * m->experts;
    m->p_embed = (double)m->vocab * D;
    m->p_head = m->tie_embed ? 0 : m->p_embed;
    attn_params(m, &m->p_attn, &m->p_repl);
    double ffn = m->p_dense * m->dense_layers +
                 m->moe_layers * (m->p_expert * m->experts + m->p_shared + m->p_router);
    double rest = m->p_embed + m->p_head + ffn;
    double sum = rest + m->layers * (m->p_attn + m->p_repl);
    bool approx = m->attn == PLAN_ATTN_V4 || m->attn == PLAN_ATTN_HYB;
    if (approx && m->total > rest) m->p_attn = (m->total - rest) / m->layers - m->p_repl;
    if (m->total <= 0) m->total = sum;
    if (fabs(m->total - sum) > 0.35 * sum) {
        snprintf(why, why_size, "model %s: %.4g B parameters given, its shape makes %.4g B",
                 m->name, m->total / 1e9, sum / 1e9);
        return false;
    }
    double act = m->layers * (m->p_attn + m->p_repl) + m->p_dense * m->dense_layers +
                 m->moe_layers * (m->p_expert * m->topk + m->p_shared + m->p_router) + m->p_embed;
    if (m->active <= 0) m->active = act;
    m->p_mtp = 0;
    if (m->mtp_layers > 0) {
        double ff =
            m->experts > 0 ? m->p_expert * m->experts + m->p_shared + m->p_router : m->p_dense;
        m->p_mtp =
            m->mtp_layers * (plan_mtp_attn(m) + plan_mtp_repl(m) + ff + 2 * D * D) +
            plan_mtp_tables(m);
    }
    if (m->kv_token <= 0 && m->attn != PLAN_ATTN_V4) /* without a state that does not grow */
        m->kv_token = plan_kv_bytes(m, 2, 16, 1) - plan_kv_bytes(m, 1, 16, 1);
    return true;
}

double plan_experts_touched(const struct plan_model *m, double n_tok)
{
    if (m->experts <= 0 || n_tok <= 0) return 0;
    double miss = 1.0 - (double)m->topk / m->experts;
    if (miss <= 0) return m->experts;
    return m->experts * (1.0 - pow(miss, n_tok));
}

/* Routing of real text is not even: p(x) = k/N s exp(-s x)/(1 - exp(-s)) for the expert at rank
 * x N, s = 3 (a workload constant, not fitted here). Few experts of which many are used cannot be
 * that uneven, p <= 1: s <= N/k - 1. The integral over x by 8 Gauss points. */
double plan_experts_read(const struct plan_model *m, double n_tok)
{
    static const double at[4] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                                 0.9602898564975363};
    static const double weight[4] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                     0.1012285362903763};
    if (m->experts <= 0 || n_tok <= 0) return 0;
    double share = (double)m->topk / m->experts, s = fmin(3.0, 1 / share - 1), sum = 0;
    if (m->counts) return plan_counts_read(m->counts, n_tok);
    if (m->spread > 0) return plan_experts_touched(m, pow(n_tok, m->spread));
    if (s < 0.01) return plan_experts_touched(m, n_tok);
    double top = share * s / (1 - exp(-s));
    for (int i = 0; i < 8; i++) {
        double x = 0.5 + 0.5 * (i & 1 ? at[i / 2] : -at[i / 2]);
        sum += 0.5 * weight[i / 2] * (1 - pow(1 - fmin(1, top * exp(-s * x)), n_tok));
    }
    return m->experts * sum;
}

double plan_keys_seen(const struct plan_model *m, double ctx)
{
    return (m->layers - m->n_window) * ctx + m->n_window * fmin(ctx, m->window);
}

/* Of a layer's heads, which a step reads and writes. */
static double head_states(const struct plan_model *m, int tp)
{
    return m->lin_v * lin_key(m) * m->lin_d * 4 / fmax(1, fmin(tp, m->lin_v));
}

double plan_kv_bytes(const struct plan_model *m, double ctx, double bits, int tp)
{
    double b = bits / 8, L = m->layers;
    if (m->attn == PLAN_ATTN_MLA) {
        double index = m->index_topk > 0 ? m->index_dim : 0, lin = lin_layers(m);
        if (m->index_pool > 1) index /= 2; /* a page of 32 tokens has room for 16 */
        return (L - lin) * ctx * (m->kv_lora + m->rope + index) * b + lin * head_states(m, 1);
    }
    if (m->attn == PLAN_ATTN_V4) {
        /* pages of 32 tokens: the window's and four more, with what entries are made of in f32; 8
           entries and as many index keys beside as many empty ones, or one entry */
        double win = fmin(ctx, m->window + 128), d = m->head_dim, keys = m->index_dim;
        double raw = m->n_c4 * 4 * (d + keys) + m->n_c128 * 2 * d;
        return win * (L * d * b + 4 * raw) + m->n_c4 * ctx / 4 * b * (d + 2 * keys) +
               m->n_c128 * ctx / 32 * b * d;
    }
    double split = fmax(1, fmin(tp, m->kv_heads)), pair = 2.0 * m->kv_heads * m->head_dim * b;
    double full = pair * ctx / split, index = m->index_topk > 0 ? m->index_dim * b : 0;
    if (m->attn == PLAN_ATTN_GQA && m->win_head_dim > 0) {
        double win = 2.0 * m->win_kv_heads * m->win_head_dim * b;
        double some = m->n_window * win / fmax(1, fmin(tp, m->win_kv_heads));
        return (L - m->n_window) * full + some * fmin(ctx, m->window);
    }
    if (m->attn == PLAN_ATTN_GQA) return pair / split * plan_keys_seen(m, ctx) + L * ctx * index;
    return (L - lin_layers(m)) * full + lin_layers(m) * head_states(m, tp);
}
