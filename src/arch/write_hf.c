/* SPDX-License-Identifier: Apache-2.0 */
/* config.json from GGUF's metadata. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/row.h"

void arch_jw_real(struct json_w *w, const char *key, double v)
{
    char text[40];
    int digits = 6;
    for (; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (back == v || (float)back == (float)v) break;
    }
    snprintf(text, sizeof text, "%.*g", digits, v);
    text_jw_key(w, key);
    if (strpbrk(text, ".eni")) /* transformers takes no whole number where it wants a real */
        text_jw_real(w, v, digits);
    else {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, ".0");
        text_jw_raw(w, text, n + 2);
    }
}

static void put_rope(const struct arch_cfg *c, const io_model *src, struct json_w *w)
{
    char key[96];
    double log_mul = 0;
    arch_jw_real(w, "rope_theta", c->rope_theta);
    text_jw_key(w, "rope_scaling");
    if (c->rope_kind == ARCH_ROPE_PLAIN) {
        text_jw_null(w);
        return;
    }
    text_jw_obj(w);
    text_jw_key_strz(w, "rope_type", c->rope_kind == ARCH_ROPE_YARN ? "yarn" : "linear");
    if (c->rope_kind == ARCH_ROPE_YARN) text_jw_key_strz(w, "type", "yarn");
    arch_jw_real(w, "factor", c->rope_factor);
    if (c->rope_kind == ARCH_ROPE_YARN) {
        text_jw_key_int(w, "original_max_position_embeddings", (int64_t)c->rope_orig_ctx);
        arch_jw_real(w, "beta_fast", c->yarn_beta_fast);
        arch_jw_real(w, "beta_slow", c->yarn_beta_slow);
        if (c->yarn_real) text_jw_key_bool(w, "truncate", false);
        snprintf(key, sizeof key, "%.*s.rope.scaling.yarn_log_multiplier",
                 (int)strcspn(c->row->gguf, "|"), c->row->gguf);
        if (c->kv_lora && io_meta_f64(src, key, &log_mul, NULL) == SL_OK && log_mul > 0) {
            arch_jw_real(w, "mscale", (double)(float)(log_mul * 10));
            arch_jw_real(w, "mscale_all_dim", (double)(float)(log_mul * 10));
        }
        double usual = log_mul > 0 || c->entry_theta > 0 ? 1 : 0.1 * log(c->rope_factor) + 1;
        if (fabs(c->yarn_mscale / usual - 1) > 1e-9)
            arch_jw_real(w, "attention_factor", c->yarn_mscale);
    }
    text_jw_obj_end(w);
}

void arch_jw_moe_shared(const struct arch_cfg *c, const char *func, const char *method,
                        struct json_w *w)
{
    int dense = 0;
    while (dense < c->n_layer && c->layer[dense].ffn != ARCH_MOE)
        dense++;
    text_jw_key_int(w, "n_routed_experts", c->n_expert);
    text_jw_key_int(w, "num_experts_per_tok", c->n_expert_used);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    text_jw_key_bool(w, "norm_topk_prob", c->route_norm);
    text_jw_key_int(w, "n_shared_experts", c->n_shared);
    text_jw_key_int(w, "first_k_dense_replace", dense);
    text_jw_key_int(w, "moe_layer_freq", 1);
    text_jw_key_int(w, "n_group", c->n_group);
    text_jw_key_int(w, "topk_group", c->n_group_used);
    arch_jw_real(w, "routed_scaling_factor", (double)c->route_scale);
    text_jw_key_strz(w, "scoring_func", func);
    text_jw_key_strz(w, "topk_method", method);
}

static void put_ids(const io_model *src, struct json_w *w)
{
    static const char *const key[2][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                          {"tokenizer.ggml.eos_token_id", "eos_token_id"}};
    for (int i = 0; i < 2; i++) {
        uint64_t v = 0;
        if (io_meta_u64(src, key[i][0], &v, NULL) == SL_OK && v < INT32_MAX)
            text_jw_key_int(w, key[i][1], (int64_t)v);
    }
}

void arch_jw_layer_types(const struct arch_cfg *c, bool (*is)(const struct arch_layer *),
                         const char *yes, const char *no, struct json_w *w)
{
    text_jw_key(w, "layer_types");
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer; i++)
        text_jw_strz(w, is(&c->layer[i]) ? yes : no);
    text_jw_arr_end(w);
}

sl_status arch_jw_window(const struct arch_cfg *c, const io_model *src, bool use, bool by_layer,
                         struct json_w *w, sl_err *err)
{
    int n = 0;
    for (int i = 0; i < c->n_layer; i++)
        n += c->layer[i].n_window > 0;
    if (!n) {
        text_jw_key_null(w, "sliding_window");
        return SL_OK;
    }
    if (n < c->n_layer && !by_layer)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: a sliding window in %d of %d layers, which a folder of %s can not say",
                       io_path(src), n, c->n_layer, c->arch);
    text_jw_key_int(w, "sliding_window", c->n_window);
    if (use) text_jw_key_bool(w, "use_sliding_window", true);
    if (!by_layer) return SL_OK;
    text_jw_key_int(w, "max_window_layers", 0);
    arch_jw_layer_types(c, arch_has_window, "sliding_attention", "full_attention", w);
    return SL_OK;
}

sl_status arch_jw_heads(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err)
{
    if (c->n_rot != c->d_head)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: rope.dimension_count %d of a head of %d, which a folder of %s can not say",
            io_path(src), c->n_rot, c->d_head, c->arch);
    if (fabs(c->attn_scale * sqrt((double)c->d_head) - 1) > 1e-6)
        return SL_FAIL(err, UNSUPPORTED, "%s: attention.scale %g, which a folder of %s can not say",
                       io_path(src), c->attn_scale, c->arch);
    text_jw_key_int(w, "head_dim", c->d_head);
    return SL_OK;
}

void arch_jw_mla(const struct arch_cfg *c, struct json_w *w)
{
    text_jw_key_int(w, "kv_lora_rank", c->kv_lora);
    if (c->q_lora)
        text_jw_key_int(w, "q_lora_rank", c->q_lora);
    else
        text_jw_key_null(w, "q_lora_rank");
    text_jw_key_int(w, "qk_nope_head_dim", c->d_nope);
    text_jw_key_int(w, "qk_rope_head_dim", c->d_rope);
    text_jw_key_int(w, "v_head_dim", c->d_v);
    text_jw_key_int(w, "num_nextn_predict_layers", c->n_mtp);
}

static const char *first_name(const char *list, char *buf, size_t n)
{
    snprintf(buf, n, "%.*s", (int)strcspn(list, "|"), list);
    return buf;
}

sl_status arch_write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err)
{
    char buf[64];
    const char *type = first_name(c->row->hf_type, buf, sizeof buf), *class = c->row->hf_class;
    if (c->n_window && c->row->window_type) {
        type = c->row->window_type;
        class = c->row->window_class;
    }
    text_jw_key(w, "architectures");
    text_jw_arr(w);
    text_jw_strz(w, class);
    text_jw_arr_end(w);
    text_jw_key_strz(w, "model_type", type);
    text_jw_key_int(w, "vocab_size", c->n_vocab);
    text_jw_key_int(w, "hidden_size", c->d_model);
    text_jw_key_int(w, "intermediate_size", c->row->ff_of_experts ? c->d_ff_expert : c->d_ff);
    text_jw_key_int(w, "num_hidden_layers", c->n_layer);
    text_jw_key_int(w, "num_attention_heads", c->n_head);
    text_jw_key_int(w, "num_key_value_heads", c->d_head_win ? c->n_head_kv_win : c->n_head_kv);
    if (c->sandwich)
        text_jw_key_strz(w, "hidden_activation", "gelu_pytorch_tanh");
    else
        text_jw_key_strz(w, "hidden_act", "silu");
    text_jw_key_int(w, "max_position_embeddings", c->n_ctx_train);
    arch_jw_real(w, "rms_norm_eps", (double)c->norm_eps);
    text_jw_key_bool(w, "tie_word_embeddings", c->tied_head);
    text_jw_key_bool(w, "attention_bias", io_find(src, "blk.0.attn_q.bias") != NULL);
    text_jw_key_bool(w, "use_cache", true);
    if (c->rope_kind != ARCH_ROPE_YARN && c->yarn_mscale != 1)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: rope.scaling.attn_factor %g without YaRN, which a folder can not say",
                       io_path(src), c->yarn_mscale);
    SL_TRY(c->row->write_hf(c, src, w, err));
    if (!(c->theta_win > 0)) put_rope(c, src, w); /* else it said both */
    put_ids(src, w);
    return SL_OK;
}

void arch_jw_dense_lead(const struct arch_cfg *c, struct json_w *w)
{
    int lead = 0, n = 0;
    while (lead < c->n_layer && c->layer[lead].ffn == ARCH_DENSE)
        lead++;
    for (int i = 0; i < c->n_layer; i++)
        n += c->layer[i].ffn == ARCH_DENSE;
    text_jw_key_int(w, "first_k_dense_replace", lead);
    if (n > lead) arch_jw_mlp_types(c, w);
}

void arch_jw_mlp_types(const struct arch_cfg *c, struct json_w *w)
{
    text_jw_key(w, "mlp_layer_types");
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer; i++)
        text_jw_strz(w, c->layer[i].ffn == ARCH_MOE ? "sparse" : "dense");
    text_jw_arr_end(w);
}
