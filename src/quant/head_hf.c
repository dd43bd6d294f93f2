/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a folder: the source's own with another quantization_config, or one made from GGUF's metadata. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/quant_internal.h"

/* ---- small writers ---- */
static void put_int(struct json_w *w, const char *key, int64_t v)
{
    text_jw_key(w, key);
    text_jw_int(w, v);
}

static void put_str(struct json_w *w, const char *key, const char *v)
{
    text_jw_key(w, key);
    text_jw_strz(w, v);
}

static void put_bool(struct json_w *w, const char *key, bool v)
{
    text_jw_key(w, key);
    text_jw_bool(w, v);
}

/* The shortest decimal that is the same number, as f32 where it came from one. */
static void put_real(struct json_w *w, const char *key, double v)
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

static void put_null(struct json_w *w, const char *key)
{
    text_jw_key(w, key);
    text_jw_null(w);
}

/* ---- quantization_config ---- */

/* Matrices that are no codes, by module name ("lm_head", "model.layers.0.mlp.gate"). */
static void put_kept(const struct quant_plan *p, struct json_w *w, const char *key)
{
    char name[QUANT_MAX_NAME];
    bool tied = true;
    text_jw_key(w, key);
    text_jw_arr(w);
    for (int i = 0; i < p->n_item; i++) {
        const struct quant_item *it = &p->item[i];
        size_t n = strlen(it->name);
        if (it->cls == QUANT_CLASS_HEAD && it->id.global == GLOBAL_HEAD) tied = false;
        bool codes = it->type != QUANT_AS_IS && it->type != QUANT_F32 && it->type != QUANT_F16 && it->type != QUANT_BF16;
        if (codes || it->n_dim != 2 || it->cls == QUANT_CLASS_EMBED || n < 8 || strcmp(it->name + n - 7, ".weight") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - 7), it->name);
        text_jw_strz(w, name);
    }
    if (tied) text_jw_strz(w, "lm_head");
    text_jw_arr_end(w);
}

static const char *ct_format(enum quant_type t)
{
    switch (t) {
    case QUANT_INT8: return "int-quantized";
    case QUANT_INT4: return "pack-quantized";
    case QUANT_FP8: return "float-quantized";
    case QUANT_NVFP4: return "nvfp4-pack-quantized";
    default: return "mxfp4-pack-quantized";
    }
}

static void put_scheme(struct json_w *w, enum quant_type t, bool act)
{
    bool floats = t == QUANT_FP8 || t == QUANT_NVFP4 || t == QUANT_MXFP4;
    text_jw_obj(w);
    put_int(w, "num_bits", t == QUANT_INT8 || t == QUANT_FP8 ? 8 : 4);
    put_str(w, "type", floats ? "float" : "int");
    put_str(w, "strategy", act ? (t == QUANT_FP8 ? "group" : "token") : t == QUANT_FP8 ? "block" : t == QUANT_NVFP4 ? "tensor_group"
                           : t == QUANT_MXFP4 ? "group" : "channel");
    if (act && t == QUANT_FP8) put_int(w, "group_size", 128);
    else if (t == QUANT_NVFP4) put_int(w, "group_size", 16);
    else if (t == QUANT_MXFP4) put_int(w, "group_size", 32);
    else put_null(w, "group_size");
    if (t == QUANT_FP8 && !act) {
        text_jw_key(w, "block_structure");
        text_jw_arr(w);
        text_jw_int(w, 128);
        text_jw_int(w, 128);
        text_jw_arr_end(w);
    }
    put_bool(w, "symmetric", true);
    put_bool(w, "dynamic", act);
    put_null(w, "actorder");
    if (t == QUANT_MXFP4) put_str(w, "scale_dtype", "torch.uint8");
    if (t == QUANT_NVFP4) put_str(w, "scale_dtype", "torch.float8_e4m3fn");
    text_jw_obj_end(w);
}

static const char *const class_target[QUANT_CLASS_OTHER] = {
    [QUANT_CLASS_ATTN] = "re:.*\\.self_attn\\.[a-z_]*proj[a-z_]*$",
    [QUANT_CLASS_FFN] = "re:.*\\.mlp\\.(shared_experts\\.)?(gate|up|down)_proj$",
    [QUANT_CLASS_EXPERTS] = "re:.*\\.mlp\\.experts\\.[0-9]+\\.(gate|up|down)_proj$",
    [QUANT_CLASS_EMBED] = "Embedding",
    [QUANT_CLASS_HEAD] = "re:.*(lm_head|shared_head\\.head)$",
};

static void put_ct(const struct quant_plan *p, struct json_w *w)
{
    bool used[QUANT_N_TYPE] = {0}, by_class[QUANT_N_TYPE][QUANT_N_CLASS] = {{0}};
    int n_used = 0, n_group = 0;
    enum quant_type last = QUANT_INT8;
    for (int i = 0; i < p->n_item; i++) {
        const struct quant_item *it = &p->item[i];
        if (it->type != QUANT_INT8 && it->type != QUANT_INT4 && it->type != QUANT_FP8 && it->type != QUANT_NVFP4 &&
            it->type != QUANT_MXFP4)
            continue;
        n_used += !used[it->type];
        used[it->type] = by_class[it->type][it->cls] = true;
        last = it->type;
    }
    put_str(w, "quant_method", "compressed-tensors");
    put_str(w, "format", n_used > 1 ? "mixed-precision" : ct_format(last));
    put_str(w, "quantization_status", "compressed");
    put_null(w, "kv_cache_scheme");
    text_jw_key(w, "config_groups");
    text_jw_obj(w);
    for (int t = 0; t < QUANT_N_TYPE; t++) {
        char name[32];
        if (!used[t]) continue;
        snprintf(name, sizeof name, "group_%d", n_group++);
        text_jw_key(w, name);
        text_jw_obj(w);
        text_jw_key(w, "targets");
        text_jw_arr(w);
        for (int c = 0; n_used > 1 && c < QUANT_CLASS_OTHER; c++)
            if (by_class[t][c]) text_jw_strz(w, class_target[c]);
        if (n_used == 1) text_jw_strz(w, "Linear");
        text_jw_arr_end(w);
        text_jw_key(w, "weights");
        put_scheme(w, (enum quant_type)t, false);
        text_jw_key(w, "input_activations");
        if (t == QUANT_INT8 || t == QUANT_FP8) put_scheme(w, (enum quant_type)t, true);
        else text_jw_null(w);
        put_null(w, "output_activations");
        put_str(w, "format", ct_format((enum quant_type)t));
        text_jw_obj_end(w);
    }
    text_jw_obj_end(w);
    put_kept(p, w, "ignore");
}

static void put_quantization(const struct quant_plan *p, struct json_w *w)
{
    enum quant_type lone = QUANT_AS_IS;
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].type == QUANT_AWQ || p->item[i].type == QUANT_FP8) lone = p->item[i].type;
    if (!p->ct && lone == QUANT_AS_IS) return;
    text_jw_key(w, "quantization_config");
    text_jw_obj(w);
    if (p->ct) {
        put_ct(p, w);
    } else if (lone == QUANT_AWQ) {
        put_str(w, "quant_method", "awq");
        put_int(w, "bits", 4);
        put_int(w, "group_size", p->group);
        put_bool(w, "zero_point", true);
        put_str(w, "version", "gemm");
        put_kept(p, w, "modules_to_not_convert");
    } else {
        put_str(w, "quant_method", "fp8");
        put_str(w, "fmt", "e4m3");
        put_str(w, "activation_scheme", "dynamic");
        text_jw_key(w, "weight_block_size");
        text_jw_arr(w);
        text_jw_int(w, 128);
        text_jw_int(w, 128);
        text_jw_arr_end(w);
        put_kept(p, w, "modules_to_not_convert");
    }
    text_jw_obj_end(w);
}

/* ---- from GGUF ---- */

static const struct {
    const char *arch, *class_name, *type;
} hf_names[] = {
    {"llama", "LlamaForCausalLM", "llama"},          {"qwen2", "Qwen2ForCausalLM", "qwen2"},
    {"qwen3", "Qwen3ForCausalLM", "qwen3"},          {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe"},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "deepseek_v2"}, {"deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3"},
};

static void put_rope(const struct quant_plan *p, struct json_w *w)
{
    const struct model_cfg *c = &p->cfg;
    char key[96];
    double log_mul = 0;
    put_real(w, "rope_theta", c->rope_theta);
    text_jw_key(w, "rope_scaling");
    if (c->rope_kind == MODEL_ROPE_PLAIN) {
        text_jw_null(w);
        return;
    }
    text_jw_obj(w);
    put_str(w, "rope_type", c->rope_kind == MODEL_ROPE_YARN ? "yarn" : "linear");
    if (c->rope_kind == MODEL_ROPE_YARN) put_str(w, "type", "yarn");
    put_real(w, "factor", c->rope_factor);
    if (c->rope_kind == MODEL_ROPE_YARN) {
        put_int(w, "original_max_position_embeddings", (int64_t)c->rope_orig_ctx);
        put_real(w, "beta_fast", c->yarn_beta_fast);
        put_real(w, "beta_slow", c->yarn_beta_slow);
        snprintf(key, sizeof key, "deepseek2.rope.scaling.yarn_log_multiplier");
        if (c->kv_lora && io_meta_f64(p->src, key, &log_mul, NULL) == SL_OK && log_mul > 0) {
            put_real(w, "mscale", (double)(float)(log_mul * 10));
            put_real(w, "mscale_all_dim", (double)(float)(log_mul * 10));
        }
        double usual = log_mul > 0 ? 1 : 0.1 * log(c->rope_factor) + 1;
        if (fabs(c->yarn_mscale / usual - 1) > 1e-9)
            put_real(w, "attention_factor", c->yarn_mscale);
    }
    text_jw_obj_end(w);
}

static void put_experts(const struct model_cfg *c, struct json_w *w)
{
    bool v3 = strcmp(c->arch, "deepseek_v3") == 0, qwen = strncmp(c->arch, "qwen", 4) == 0;
    put_int(w, qwen ? "num_experts" : "n_routed_experts", c->n_expert);
    put_int(w, "num_experts_per_tok", c->n_expert_used);
    put_int(w, "moe_intermediate_size", c->d_ff_expert);
    put_bool(w, "norm_topk_prob", c->route_norm);
    if (qwen) {
        put_int(w, "decoder_sparse_step", 1);
        text_jw_key(w, "mlp_only_layers");
        text_jw_arr(w);
        for (int i = 0; i < c->n_layer; i++)
            if (!c->moe_layer[i]) text_jw_int(w, i);
        text_jw_arr_end(w);
        return;
    }
    int dense = 0;
    while (dense < c->n_layer && !c->moe_layer[dense]) dense++;
    put_int(w, "n_shared_experts", c->n_shared);
    put_int(w, "first_k_dense_replace", dense);
    put_int(w, "moe_layer_freq", 1);
    put_int(w, "n_group", c->n_group);
    put_int(w, "topk_group", c->n_group_used);
    put_real(w, "routed_scaling_factor", (double)c->route_scale);
    put_str(w, "scoring_func", v3 ? "sigmoid" : "softmax");
    put_str(w, "topk_method", v3 ? "noaux_tc" : c->n_group > 1 ? "group_limited_greedy" : "greedy");
}

static void put_ids(const struct quant_plan *p, struct json_w *w)
{
    static const char *const key[2][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"}, {"tokenizer.ggml.eos_token_id", "eos_token_id"}};
    for (int i = 0; i < 2; i++) {
        uint64_t v = 0;
        if (io_meta_u64(p->src, key[i][0], &v, NULL) == SL_OK && v < INT32_MAX) put_int(w, key[i][1], (int64_t)v);
    }
}

static bool has_bias(const struct quant_plan *p)
{
    return io_find(p->src, "blk.0.attn_q.bias") != NULL;
}

/* Which layers have a window: layer_types for the architectures whose configuration has it, none
 * for the others. */
static sl_status put_window(const struct quant_plan *p, struct json_w *w, sl_err *err)
{
    const struct model_cfg *c = &p->cfg;
    bool by_layer = strcmp(c->arch, "qwen2") == 0 || strcmp(c->arch, "qwen3") == 0,
         qwen = strncmp(c->arch, "qwen", 4) == 0;
    int n = 0;
    for (int i = 0; i < c->n_layer; i++)
        n += c->n_window && c->window_layer[i];
    if (!n) {
        if (strcmp(c->arch, "llama") != 0) put_null(w, "sliding_window");
        return SL_OK;
    }
    if (n < c->n_layer && !by_layer)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: a sliding window in %d of %d layers, which a folder of %s can not say",
                       io_path(p->src), n, c->n_layer, c->arch);
    put_int(w, "sliding_window", c->n_window);
    if (qwen) put_bool(w, "use_sliding_window", true);
    if (!by_layer) return SL_OK;
    put_int(w, "max_window_layers", 0);
    text_jw_key(w, "layer_types");
    text_jw_arr(w);
    for (int i = 0; i < c->n_layer; i++)
        text_jw_strz(w, c->window_layer[i] ? "sliding_attention" : "full_attention");
    text_jw_arr_end(w);
    return SL_OK;
}

/* Keys of GGUF that a folder has no place for. */
static sl_status only_said(const struct quant_plan *p, sl_err *err)
{
    const struct model_cfg *c = &p->cfg;
    if (c->rope_kind != MODEL_ROPE_YARN && c->yarn_mscale != 1)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: rope.scaling.attn_factor %g without YaRN, which a folder can not say",
                       io_path(p->src), c->yarn_mscale);
    if (c->kv_lora) return SL_OK;
    if (c->n_rot != c->d_head)
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: rope.dimension_count %d of a head of %d, which a folder of %s can not say",
            io_path(p->src), c->n_rot, c->d_head, c->arch);
    if (fabs(c->attn_scale * sqrt((double)c->d_head) - 1) > 1e-6)
        return SL_FAIL(err, UNSUPPORTED, "%s: attention.scale %g, which a folder of %s can not say",
                       io_path(p->src), c->attn_scale, c->arch);
    if (strncmp(c->arch, "qwen", 4) == 0 && (c->route_sigmoid || c->route_scale != 1.0f))
        return SL_FAIL(
            err, UNSUPPORTED,
            "%s: expert_gating_func or expert_weights_scale, which a folder of %s can not say",
            io_path(p->src), c->arch);
    return SL_OK;
}

static sl_status from_gguf(const struct quant_plan *p, struct json_w *w, sl_err *err)
{
    const struct model_cfg *c = &p->cfg;
    const char *type = NULL, *class_name = NULL;
    for (int i = 0; i < BASE_COUNT_OF(hf_names); i++)
        if (strcmp(hf_names[i].arch, c->arch) == 0) {
            type = hf_names[i].type;
            class_name = hf_names[i].class_name;
        }
    if (!type) return SL_FAIL(err, UNSUPPORTED, "%s: architecture '%s' can not be written as a folder", io_path(p->src), c->arch);
    if (c->n_window && strcmp(c->arch, "llama") == 0) {
        type = "mistral";
        class_name = "MistralForCausalLM";
    }
    text_jw_key(w, "architectures");
    text_jw_arr(w);
    text_jw_strz(w, class_name);
    text_jw_arr_end(w);
    put_str(w, "model_type", type);
    put_int(w, "vocab_size", c->n_vocab);
    put_int(w, "hidden_size", c->d_model);
    put_int(w, "intermediate_size", c->d_ff);
    put_int(w, "num_hidden_layers", c->n_layer);
    put_int(w, "num_attention_heads", c->n_head);
    put_int(w, "num_key_value_heads", c->n_head_kv);
    put_str(w, "hidden_act", "silu");
    put_int(w, "max_position_embeddings", c->n_ctx_train);
    put_real(w, "rms_norm_eps", (double)c->norm_eps);
    put_bool(w, "tie_word_embeddings", c->tied_head);
    put_bool(w, "attention_bias", has_bias(p));
    put_bool(w, "use_cache", true);
    SL_TRY(only_said(p, err));
    SL_TRY(put_window(p, w, err));
    if (c->kv_lora) {
        put_int(w, "kv_lora_rank", c->kv_lora);
        if (c->q_lora) put_int(w, "q_lora_rank", c->q_lora);
        else put_null(w, "q_lora_rank");
        put_int(w, "qk_nope_head_dim", c->d_nope);
        put_int(w, "qk_rope_head_dim", c->d_rope);
        put_int(w, "v_head_dim", c->d_v);
        put_int(w, "num_nextn_predict_layers", c->n_mtp);
    } else {
        put_int(w, "head_dim", c->d_head);
    }
    if (c->n_expert) put_experts(c, w);
    put_rope(p, w);
    put_ids(p, w);
    return SL_OK;
}

/* The type of what is not quantised. */
static const char *plain_type(const struct quant_plan *p)
{
    int64_t n[3] = {0};
    for (int i = 0; i < p->n_item; i++) {
        const struct quant_item *it = &p->item[i];
        if (it->n_dim < 2 || it->type == QUANT_INT8 || (it->type > QUANT_BF16 && it->type != QUANT_AS_IS)) continue;
        n[it->store == TENSOR_BF16 ? 1 : it->store == TENSOR_F16 ? 2 : 0] += it->rows * it->cols;
    }
    return n[0] > n[1] && n[0] > n[2] ? "float32" : n[2] > n[1] ? "float16" : "bfloat16";
}

/* Were biases taken out of scales? Then the configuration must say that there are some. */
static bool has_new_bias(const struct quant_plan *p)
{
    for (int i = 0; i < p->n_item; i++)
        if (p->item[i].from == QUANT_BIAS) return true;
    return false;
}

sl_status quant_head_hf(const struct quant_plan *p, struct str *out, sl_err *err)
{
    struct json_w w;
    bool biased = has_new_bias(p);
    text_jw_init(&w, out);
    text_jw_obj(&w);
    if (io_model_kind(p->src) == IO_GGUF) {
        SL_TRY(from_gguf(p, &w, err));
        put_str(&w, "torch_dtype", plain_type(p));
    } else {
        for (const struct json *m = io_config(p->src)->child; m; m = m->next) {
            if (strcmp(m->key, "quantization_config") == 0 || strcmp(m->key, "compression_config") == 0) continue;
            if (biased && strcmp(m->key, "attention_bias") == 0) continue;
            text_jw_key(&w, m->key);
            text_jw_node(&w, m);
        }
        if (biased) put_bool(&w, "attention_bias", true);
    }
    put_quantization(p, &w);
    text_jw_obj_end(&w);
    str_putc(out, '\n');
    return str_status(out, err);
}
