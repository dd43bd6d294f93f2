/* SPDX-License-Identifier: Apache-2.0 */
/* A model from a config.json, and its correction by the tensors of a real checkpoint. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_internal.h"
#include "text/json.h"

static sl_status int_of(const struct json *o, const char *a, const char *b, int def, int *out,
                        sl_err *err)
{
    int64_t v;
    const char *key = text_json_get(o, a) ? a : b;
    SL_TRY(text_json_int(o, key, def, &v, err));
    if (v < 0 || v > 1000000000)
        return SL_FAIL(err, FORMAT, "field %s: %lld is absurd", key, (long long)v);
    *out = (int)v;
    return SL_OK;
}

static sl_status moe_of(const struct json *o, struct plan_model *m, sl_err *err)
{
    int shared_inter = 0;
    SL_TRY(int_of(o, "n_routed_experts", "num_experts", 0, &m->experts, err));
    if (m->experts == 0) SL_TRY(int_of(o, "num_local_experts", "num_experts", 0, &m->experts, err));
    SL_TRY(int_of(o, "num_experts_per_tok", "experts_per_token", 0, &m->topk, err));
    if (m->experts == 0) m->topk = 0;
    SL_TRY(int_of(o, "moe_intermediate_size", "intermediate_size", 0, &m->moe_inter, err));
    SL_TRY(int_of(o, "n_shared_experts", "num_shared_experts", 0, &m->shared, err));
    SL_TRY(int_of(o, "shared_expert_intermediate_size", "shared_intermediate_size", 0,
                  &shared_inter, err));
    if (shared_inter > 0) m->shared_inter = shared_inter, m->shared = m->shared > 0 ? m->shared : 1;
    SL_TRY(int_of(o, "first_k_dense_replace", "num_dense_layers", 0, &m->dense_layers, err));
    SL_TRY(int_of(o, "intermediate_size", "ffn_hidden_size", 0, &m->dense_inter, err));
    if (m->experts == 0) m->dense_layers = m->layers, m->moe_inter = 0, m->shared = 0;
    return SL_OK;
}

sl_status plan_model_from_config(struct plan_model *m, struct arena *a, const char *name,
                                 struct plan_bytes b, sl_err *err)
{
    const struct json *o;
    char why[160];
    bool tie;
    *m = (struct plan_model){0};
    snprintf(m->name, sizeof m->name, "%s", name);
    SL_TRY(text_json_parse(a, b.name, b.p, b.n, &o, err));
    const struct json *inner = text_json_get(o, "text_config");
    if (inner && inner->kind == JSON_OBJECT_K) o = inner;
    SL_TRY(int_of(o, "num_hidden_layers", "n_layer", 0, &m->layers, err));
    SL_TRY(int_of(o, "hidden_size", "n_embd", 0, &m->hidden, err));
    SL_TRY(int_of(o, "num_attention_heads", "n_head", 0, &m->heads, err));
    SL_TRY(int_of(o, "num_key_value_heads", "num_attention_heads", 0, &m->kv_heads, err));
    SL_TRY(int_of(o, "head_dim", "kv_channels", m->heads > 0 ? m->hidden / m->heads : 0,
                  &m->head_dim, err));
    SL_TRY(int_of(o, "q_lora_rank", "q_lora", 0, &m->q_lora, err));
    SL_TRY(int_of(o, "kv_lora_rank", "kv_lora", 0, &m->kv_lora, err));
    SL_TRY(int_of(o, "qk_nope_head_dim", "nope", 0, &m->nope, err));
    SL_TRY(int_of(o, "qk_rope_head_dim", "rope", 0, &m->rope, err));
    SL_TRY(int_of(o, "v_head_dim", "v_dim", 0, &m->v_dim, err));
    SL_TRY(int_of(o, "vocab_size", "n_vocab", 0, &m->vocab, err));
    SL_TRY(int_of(o, "num_nextn_predict_layers", "num_mtp_modules", 0, &m->mtp_layers, err));
    SL_TRY(int_of(o, "max_position_embeddings", "n_positions", 0, &m->max_ctx, err));
    SL_TRY(int_of(o, "index_n_heads", "index_heads", 0, &m->index_heads, err));
    SL_TRY(int_of(o, "index_head_dim", "index_dim", 0, &m->index_dim, err));
    SL_TRY(int_of(o, "index_topk", "index_top_k", 0, &m->index_topk, err));
    SL_TRY(int_of(o, "linear_num_key_heads", "lin_k", 0, &m->lin_k, err));
    SL_TRY(int_of(o, "linear_num_value_heads", "lin_v", 0, &m->lin_v, err));
    SL_TRY(int_of(o, "linear_value_head_dim", "lin_d", 0, &m->lin_d, err));
    SL_TRY(text_json_bool(o, "tie_word_embeddings", false, &tie, err));
    m->tie_embed = tie;
    SL_TRY(moe_of(o, m, err));
    m->attn = m->kv_lora > 0 ? PLAN_ATTN_MLA : m->lin_v > 0 ? PLAN_ATTN_HYB : PLAN_ATTN_GQA;
    if (!plan_model_finish(m, why, sizeof why)) return SL_FAIL(err, FORMAT, "%s: %s", b.name, why);
    return SL_OK;
}

enum class_of { C_EXPERT, C_SHARED, C_ATTN, C_EMBED, C_HEAD, C_MTP, C_DENSE, C_N };

static enum class_of classify(const char *n, int layers)
{
    const char *l = strstr(n, "layers.");
    if (l && layers > 0 && atoi(l + 7) >= layers) return C_MTP;
    if (!strncmp(n, "blk.", 4) && layers > 0 && atoi(n + 4) >= layers) return C_MTP;
    if (strstr(n, "shared_expert") || strstr(n, "shexp")) return C_SHARED;
    if (strstr(n, ".experts.") || strstr(n, "_exps")) return C_EXPERT;
    if (strstr(n, "attn") || strstr(n, "self_attn") || strstr(n, "ssm") || strstr(n, "indexer"))
        return C_ATTN;
    if (strstr(n, "embed_tokens") || strstr(n, "token_embd")) return C_EMBED;
    if (strstr(n, "lm_head") || !strncmp(n, "output.", 7)) return C_HEAD;
    return C_DENSE;
}

/* Scales and zero points have bytes but are no parameters. */
static bool is_scale(const char *n)
{
    return strstr(n, "scale") || strstr(n, "qzeros") || strstr(n, "g_idx") ||
           strstr(n, "e_score_correction");
}

double plan_model_from_tensors(struct plan_model *m, struct plan_format *f,
                               const struct plan_tensor *t, size_t n)
{
    double par[C_N] = {0}, bytes[C_N] = {0}, all = 0;
    for (size_t i = 0; i < n; i++) {
        enum class_of c = classify(t[i].name, m->layers);
        bytes[c] += t[i].bytes;
        all += t[i].bytes;
        if (!is_scale(t[i].name)) par[c] += t[i].n_elem;
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
