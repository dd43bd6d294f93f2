/* SPDX-License-Identifier: Apache-2.0 */
/* A model from a configuration, read by room arch where it knows the family, and its correction by
 * the tensors of a real checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/row.h"
#include "plan/plan_internal.h"
#include "text/json.h"

#define MOST 1000000000 /* of any count */

/* The first of the "|"-separated keys that the object has, the names that makers give to one
 * thing. */
static sl_status int_of(const struct json *o, const char *names, int def, int *out, sl_err *err)
{
    return arch_hf_int(o, names, ARCH_RANGE(def, 0, MOST), out, err);
}

/* Llama 4 has experts on every n-th layer only, and one shared expert that no key tells. */
static sl_status llama4_of(const struct json *o, struct plan_model *m, sl_err *err)
{
    int every = 1, inter = 0;
    const char *type;
    SL_TRY(text_json_str(o, "model_type", "", &type, err));
    if (strcmp(type, "llama4_text") != 0) return SL_OK;
    SL_TRY(int_of(o, "interleave_moe_layer_step", 1, &every, err));
    SL_TRY(int_of(o, "intermediate_size_mlp", 0, &inter, err));
    m->shared = 1;
    m->dense_layers = m->layers - m->layers / (every > 0 ? every : 1);
    m->dense_inter = inter;
    return SL_OK;
}

static sl_status moe_of(const struct json *o, struct plan_model *m, sl_err *err)
{
    int shared_inter = 0;
    SL_TRY(int_of(o, "n_routed_experts|num_experts|num_local_experts|moe_num_experts", 0,
                  &m->experts, err));
    SL_TRY(int_of(o, "num_experts_per_tok|experts_per_token|moe_topk|moe_k", 0, &m->topk, err));
    if (m->experts == 0) m->topk = 0;
    SL_TRY(int_of(o, "moe_intermediate_size|expert_ffn_hidden_size|intermediate_size", 0,
                  &m->moe_inter, err));
    SL_TRY(int_of(o, "n_shared_experts|num_shared_experts|moe_num_shared_experts", 0, &m->shared,
                  err));
    SL_TRY(int_of(o, "shared_expert_intermediate_size|shared_intermediate_size", 0, &shared_inter,
                  err));
    if (shared_inter > 0) m->shared_inter = shared_inter, m->shared = m->shared > 0 ? m->shared : 1;
    SL_TRY(int_of(o, "first_k_dense_replace|num_dense_layers|moe_layer_start_index", 0,
                  &m->dense_layers, err));
    SL_TRY(int_of(o, "intermediate_size|ffn_hidden_size", 0, &m->dense_inter, err));
    if (m->experts > 0) return llama4_of(o, m, err);
    for (const struct json *k = o->child; k; k = k->next) {
        bool number = k->kind == JSON_INT_K && k->f > 1;
        if (number && strstr(k->key, "expert"))
            return SL_FAIL(err, FORMAT,
                           "field %.60s: a key of experts, but none tells how many there are",
                           k->key);
    }
    m->dense_layers = m->layers, m->moe_inter = 0, m->shared = 0;
    return SL_OK;
}

/* Layers that see a window of the context only (gpt-oss, Gemma 3): as the list of layers says. */
static sl_status window_of(const struct json *o, struct plan_model *m, sl_err *err)
{
    const struct json *list = text_json_get(o, "layer_types");
    SL_TRY(int_of(o, "sliding_window", 0, &m->window, err));
    for (const struct json *k = list && list->kind == JSON_ARRAY_K ? list->child : NULL; k;
         k = k->next)
        m->n_window += text_json_is(k, "sliding_attention");
    if (m->window == 0) m->n_window = 0;
    return SL_OK;
}

/* DeepSeek V4: how far each layer compresses its context. */
static void compress_of(const struct json *o, struct plan_model *m)
{
    const struct json *list = text_json_get(o, "compress_ratios");
    if (!list || list->kind != JSON_ARRAY_K) return;
    m->attn = PLAN_ATTN_V4;
    for (const struct json *k = list->child; k; k = k->next) {
        m->n_c4 += k->kind == JSON_INT_K && k->f == 4;
        m->n_c128 += k->kind == JSON_INT_K && k->f == 128;
    }
}

static sl_status attn_of(const struct json *o, struct plan_model *m, sl_err *err)
{
    SL_TRY(int_of(o, "num_attention_heads|n_head", 0, &m->heads, err));
    SL_TRY(int_of(o, "num_key_value_heads|num_attention_heads", 0, &m->kv_heads, err));
    SL_TRY(int_of(o, "head_dim|kv_channels", m->heads > 0 ? m->hidden / m->heads : 0, &m->head_dim,
                  err));
    SL_TRY(int_of(o, "q_lora_rank|q_lora", 0, &m->q_lora, err));
    SL_TRY(int_of(o, "kv_lora_rank|kv_lora", 0, &m->kv_lora, err));
    SL_TRY(int_of(o, "qk_nope_head_dim|nope", 0, &m->nope, err));
    SL_TRY(int_of(o, "qk_rope_head_dim|rope", 0, &m->rope, err));
    SL_TRY(int_of(o, "v_head_dim|v_dim", 0, &m->v_dim, err));
    SL_TRY(int_of(o, "index_n_heads|index_heads", 0, &m->index_heads, err));
    SL_TRY(int_of(o, "index_head_dim|index_dim", 0, &m->index_dim, err));
    SL_TRY(int_of(o, "index_topk|index_top_k", 0, &m->index_topk, err));
    SL_TRY(int_of(o, "linear_num_key_heads|lin_k", 0, &m->lin_k, err));
    SL_TRY(int_of(o, "linear_num_value_heads|lin_v", 0, &m->lin_v, err));
    SL_TRY(int_of(o, "linear_value_head_dim|lin_d", 0, &m->lin_d, err));
    SL_TRY(window_of(o, m, err));
    m->attn = m->kv_lora > 0 ? PLAN_ATTN_MLA : m->lin_v > 0 ? PLAN_ATTN_HYB : PLAN_ATTN_GQA;
    compress_of(o, m);
    return SL_OK;
}

static sl_status shape_of(const struct json *o, struct plan_model *m, sl_err *err)
{
    bool tie;
    SL_TRY(int_of(o, "num_hidden_layers|num_layers|n_layer", 0, &m->layers, err));
    SL_TRY(int_of(o, "hidden_size|n_embd", 0, &m->hidden, err));
    SL_TRY(int_of(o, "vocab_size|n_vocab", 0, &m->vocab, err));
    SL_TRY(int_of(o, "num_nextn_predict_layers|num_mtp_modules", 0, &m->mtp_layers, err));
    SL_TRY(int_of(o, "max_position_embeddings|n_positions", 0, &m->max_ctx, err));
    SL_TRY(text_json_bool(o, "tie_word_embeddings", false, &tie, err));
    m->tie_embed = tie;
    SL_TRY(attn_of(o, m, err));
    return moe_of(o, m, err);
}

/* A family that this engine does not serve, or a model of one with something that it does not do:
 * other engines may. */
static sl_status read_other(const struct json *o, struct plan_model *m, sl_err *err)
{
    const struct json *inner = text_json_get(o, "text_config");
    return shape_of(inner && inner->kind == JSON_OBJECT_K ? inner : o, m, err);
}

static sl_status read_config(const struct json *o, struct arena *a, struct plan_model *m,
                             sl_err *err)
{
    struct arch_cfg c;
    if (!text_json_get(o, "model_type")) return read_other(o, m, err);
    sl_status st = arch_cfg_read_json(o, a, &c, err);
    if (st == SL_UNSUPPORTED) return read_other(o, m, err);
    if (!st) plan_model_from_arch(m, &c);
    return st;
}

sl_status plan_model_from_config(struct plan_model *m, struct arena *a, const char *name,
                                 struct plan_bytes b, sl_err *err)
{
    const struct json *o;
    char why[160];
    *m = (struct plan_model){0};
    snprintf(m->name, sizeof m->name, "%s", name);
    SL_TRY(text_json_parse(a, b.name, b.p, b.n, &o, err));
    if (o->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "%s: not an object", b.name);
    sl_status st = read_config(o, a, m, err);
    if (st) status_prefix(err, "%s", b.name);
    SL_TRY(st);
    if (!plan_model_finish(m, why, sizeof why)) return SL_FAIL(err, FORMAT, "%s: %s", b.name, why);
    return SL_OK;
}

void plan_model_from_arch(struct plan_model *m, const struct arch_cfg *c)
{
    m->attn = c->kv_lora ? PLAN_ATTN_MLA : c->n_delta_k ? PLAN_ATTN_HYB : PLAN_ATTN_GQA;
    m->lin_k = c->n_delta_k, m->lin_v = c->n_delta_v, m->lin_d = c->d_delta_v;
    m->lin_key = c->d_delta_k, m->lin_conv = c->n_conv, m->n_lin = 0;
    m->lin_each = c->kda, m->lin_whole = c->kda_whole, m->head_gate = c->head_gate;
    m->shared_gate = c->shared_gate;
    m->shared_inter = c->n_shared ? (int)(arch_d_shared(c) / c->n_shared) : 0;
    m->layers = c->n_layer, m->mtp_layers = c->n_mtp;
    m->hidden = c->d_model, m->vocab = c->n_vocab, m->tie_embed = c->tied_head;
    m->max_ctx = c->n_ctx_train;
    m->heads = c->n_head, m->kv_heads = c->n_head_kv, m->head_dim = c->d_head;
    m->q_lora = c->q_lora, m->kv_lora = c->kv_lora;
    m->nope = c->d_nope, m->rope = c->d_rope, m->v_dim = c->d_v;
    m->index_heads = c->n_index, m->index_dim = c->d_index, m->index_topk = c->index_top;
    m->index_pool = c->index_pool;
    if (c->o_groups) m->attn = PLAN_ATTN_V4;
    m->n_stream = c->n_stream, m->stream_mean = c->stream_mean;
    m->o_groups = c->o_groups, m->o_lora = c->o_lora, m->n_c4 = m->n_c128 = 0;
    m->experts = c->n_expert, m->topk = c->n_expert_used, m->shared = c->n_shared;
    m->dense_inter = c->d_ff, m->moe_inter = c->d_ff_expert;
    m->qk_norm = c->qk_norm;
    m->win_kv_heads = c->n_head_kv_win, m->win_head_dim = c->d_head_win, m->k_is_v = c->k_is_v;
    if (c->sandwich && c->n_expert) m->shared = 1, m->shared_inter = c->d_ff; /* beside experts */
    m->unshared = c->unshared != NULL;
    m->window = c->n_window, m->n_window = m->dense_layers = m->n_index = 0;
    for (int i = 0; i < c->n_layer; i++) {
        m->n_window += c->layer[i].n_window > 0;
        m->n_lin += c->layer[i].mixer == ARCH_DELTA;
        m->n_index += c->layer[i].index == ARCH_INDEX_OWN;
        m->n_c4 += c->layer[i].ratio && c->layer[i].index == ARCH_INDEX_OWN;
        m->n_c128 += c->layer[i].ratio && c->layer[i].index != ARCH_INDEX_OWN;
        m->dense_layers += c->layer[i].ffn == ARCH_DENSE;
    }
}

enum class_of { C_EXPERT, C_SHARED, C_ATTN, C_EMBED, C_HEAD, C_MTP, C_DENSE, C_N };

static enum class_of classify(const char *n, int layers)
{
    const char *l = strstr(n, "layers.");
    if (!strncmp(n, "mtp.", 4)) return C_MTP;
    if (l && layers > 0 && atoi(l + 7) >= layers) return C_MTP;
    if (!strncmp(n, "blk.", 4) && layers > 0 && atoi(n + 4) >= layers) return C_MTP;
    if (strstr(n, "shared_expert") || strstr(n, "shexp")) return C_SHARED;
    if (strstr(n, ".experts.") || strstr(n, "_exps")) return C_EXPERT;
    if (strstr(n, "attn") || strstr(n, ".attention.") || strstr(n, "ssm") || strstr(n, "indexer"))
        return C_ATTN;
    if (strstr(n, "embed_tokens") || strstr(n, "word_embeddings") || strstr(n, "token_embd"))
        return C_EMBED;
    if (strstr(n, "lm_head") || !strncmp(n, "output.", 7)) return C_HEAD;
    return C_DENSE;
}

double plan_model_from_tensors(struct plan_model *m, struct plan_format *f,
                               const struct plan_tensor *t, size_t n)
{
    double par[C_N] = {0}, bytes[C_N] = {0}, all = 0;
    for (size_t i = 0; i < n; i++) {
        enum class_of c = classify(t[i].name, m->layers);
        bytes[c] += t[i].bytes;
        all += t[i].bytes;
        par[c] += t[i].n_elem;
    }
    double total = all > 0 ? par[C_EXPERT] + par[C_SHARED] + par[C_ATTN] + par[C_EMBED] +
                                 par[C_HEAD] + par[C_DENSE]
                           : 0;
    if (total <= 0) return all;
#define BITS(c, def) (par[c] > 0 ? 8 * bytes[c] / par[c] : (def))
    f->attn = BITS(C_ATTN, 16);
    f->expert = BITS(C_EXPERT, f->attn);
    double dense = par[C_DENSE] + par[C_SHARED];
    f->dense = dense > 0 ? 8 * (bytes[C_DENSE] + bytes[C_SHARED]) / dense : f->attn;
    f->head = BITS(C_EMBED, 16);
#undef BITS
    m->total = total;
    if (par[C_ATTN] > 0) m->p_attn = fmax(0, par[C_ATTN] / m->layers - m->p_repl);
    if (par[C_EMBED] > 0) m->p_embed = par[C_EMBED];
    m->p_head = par[C_HEAD];
    return all;
}
