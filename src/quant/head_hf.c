/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a folder: the source's own with another quantization_config, or one made from
 * GGUF's metadata. */
#include <stdio.h>
#include <string.h>

#include "arch/row.h"
#include "quant/quant_internal.h"

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
        bool codes = it->type != QUANT_AS_IS && it->type != QUANT_F32 && it->type != QUANT_F16 &&
                     it->type != QUANT_BF16;
        if (codes || it->n_dim != 2 || it->cls == QUANT_CLASS_EMBED || n < 8 ||
            strcmp(it->name + n - 7, ".weight") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - 7), it->name);
        text_jw_strz(w, name);
    }
    if (tied) text_jw_strz(w, "lm_head");
    text_jw_arr_end(w);
}

static const char *ct_format(enum quant_type t)
{
    switch (t) {
    case QUANT_INT8:
        return "int-quantized";
    case QUANT_INT4:
        return "pack-quantized";
    case QUANT_FP8:
        return "float-quantized";
    case QUANT_NVFP4:
        return "nvfp4-pack-quantized";
    default:
        return "mxfp4-pack-quantized";
    }
}

static void put_scheme(struct json_w *w, enum quant_type t, bool act)
{
    bool floats = t == QUANT_FP8 || t == QUANT_NVFP4 || t == QUANT_MXFP4;
    text_jw_obj(w);
    text_jw_key_int(w, "num_bits", t == QUANT_INT8 || t == QUANT_FP8 ? 8 : 4);
    text_jw_key_strz(w, "type", floats ? "float" : "int");
    text_jw_key_strz(w, "strategy",
                     act                ? (t == QUANT_FP8 ? "group" : "token")
                     : t == QUANT_FP8   ? "block"
                     : t == QUANT_NVFP4 ? "tensor_group"
                     : t == QUANT_MXFP4 ? "group"
                                        : "channel");
    if (act && t == QUANT_FP8)
        text_jw_key_int(w, "group_size", 128);
    else if (t == QUANT_NVFP4)
        text_jw_key_int(w, "group_size", 16);
    else if (t == QUANT_MXFP4)
        text_jw_key_int(w, "group_size", 32);
    else
        text_jw_key_null(w, "group_size");
    if (t == QUANT_FP8 && !act) {
        text_jw_key(w, "block_structure");
        text_jw_arr(w);
        text_jw_int(w, 128);
        text_jw_int(w, 128);
        text_jw_arr_end(w);
    }
    text_jw_key_bool(w, "symmetric", true);
    text_jw_key_bool(w, "dynamic", act);
    text_jw_key_null(w, "actorder");
    if (t == QUANT_MXFP4) text_jw_key_strz(w, "scale_dtype", "torch.uint8");
    if (t == QUANT_NVFP4) text_jw_key_strz(w, "scale_dtype", "torch.float8_e4m3fn");
    text_jw_obj_end(w);
}

static const char *const class_target[QUANT_CLASS_OTHER] = {
    [QUANT_CLASS_ATTN] = "re:.*\\.self_attn\\.[a-z_]*proj[a-z_]*$",
    [QUANT_CLASS_FFN] = "re:.*\\.mlp\\.(shared_experts\\.)?(gate|up|down)_proj$",
    [QUANT_CLASS_EXPERTS] = "re:.*\\.mlp\\.experts\\.[0-9]+\\.(gate|up|down)_proj$",
    [QUANT_CLASS_EMBED] = "Embedding",
    [QUANT_CLASS_HEAD] = "re:.*(lm_head|shared_head\\.head)$",
};

/* In models with gated delta layers. */
static const char *const delta_target[QUANT_CLASS_OTHER] = {
    [QUANT_CLASS_ATTN] = "re:.*\\.(self|linear)_attn\\.[a-z_]*proj[a-z_]*$",
    [QUANT_CLASS_FFN] = "re:.*\\.mlp\\.(shared_expert\\.)?(gate|up|down)_proj$",
};

/* In those with Kimi Delta Attention; in those of them that call it so. */
static const char kda_ffn[] =
    "re:.*\\.(mlp|block_sparse_moe\\.shared_experts)\\.(gate|up|down)_proj$";
static const char ling_attn[] = "re:.*\\.attention\\.([a-z_]*proj[a-z_]*|dense)$";

static const char *target_of(const struct quant_plan *p, int c)
{
    bool kda = p->has_cfg && p->cfg.kda;
    bool delta = p->has_cfg && p->cfg.n_delta_k && !kda && delta_target[c];
    if (kda && p->cfg.kda_whole) return c == QUANT_CLASS_ATTN ? ling_attn : class_target[c];
    bool moe = kda && strstr(arch_role_name(&p->naming[IO_HF], ROLE_GATE_SHEXP), "block_sparse");
    if (moe && c == QUANT_CLASS_FFN) return kda_ffn;
    return delta ? delta_target[c] : class_target[c];
}

/* The same for an architecture whose experts have names of their own: each of their three. */
static bool put_own_experts(const struct quant_plan *p, struct json_w *w)
{
    static const enum arch_role role[] = {ROLE_GATE_EXPS, ROLE_UP_EXPS, ROLE_DOWN_EXPS};
    const struct arch_naming usual = {.kind = IO_HF}, *own = &p->naming[IO_HF];
    if (strcmp(arch_role_name(own, role[0]), arch_role_name(&usual, role[0])) == 0) return false;
    for (int i = 0; i < BASE_COUNT_OF(role); i++) {
        const char *name = arch_role_name(own, role[i]), *hole = strstr(name, "%d");
        char text[160];
        if (!hole) continue;
        snprintf(text, sizeof text, "re:.*[.]%.*s[0-9]+%s$", (int)(hole - name), name, hole + 2);
        text_jw_strz(w, text);
    }
    return true;
}

static void put_ct(const struct quant_plan *p, struct json_w *w)
{
    bool used[QUANT_N_TYPE] = {0}, by_class[QUANT_N_TYPE][QUANT_N_CLASS] = {{0}};
    int n_used = 0, n_group = 0;
    enum quant_type last = QUANT_INT8;
    for (int i = 0; i < p->n_item; i++) {
        const struct quant_item *it = &p->item[i];
        if (it->type != QUANT_INT8 && it->type != QUANT_INT4 && it->type != QUANT_FP8 &&
            it->type != QUANT_NVFP4 && it->type != QUANT_MXFP4)
            continue;
        n_used += !used[it->type];
        used[it->type] = by_class[it->type][it->cls] = true;
        last = it->type;
    }
    text_jw_key_strz(w, "quant_method", "compressed-tensors");
    text_jw_key_strz(w, "format", n_used > 1 ? "mixed-precision" : ct_format(last));
    text_jw_key_strz(w, "quantization_status", "compressed");
    text_jw_key_null(w, "kv_cache_scheme");
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
            if (by_class[t][c] && !(c == QUANT_CLASS_EXPERTS && put_own_experts(p, w)))
                text_jw_strz(w, target_of(p, c));
        if (n_used == 1) text_jw_strz(w, "Linear");
        text_jw_arr_end(w);
        text_jw_key(w, "weights");
        put_scheme(w, (enum quant_type)t, false);
        text_jw_key(w, "input_activations");
        if (t == QUANT_INT8 || t == QUANT_FP8)
            put_scheme(w, (enum quant_type)t, true);
        else
            text_jw_null(w);
        text_jw_key_null(w, "output_activations");
        text_jw_key_strz(w, "format", ct_format((enum quant_type)t));
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
        text_jw_key_strz(w, "quant_method", "awq");
        text_jw_key_int(w, "bits", 4);
        text_jw_key_int(w, "group_size", p->group);
        text_jw_key_bool(w, "zero_point", true);
        text_jw_key_strz(w, "version", "gemm");
        put_kept(p, w, "modules_to_not_convert");
    } else {
        text_jw_key_strz(w, "quant_method", "fp8");
        text_jw_key_strz(w, "fmt", "e4m3");
        text_jw_key_strz(w, "activation_scheme", "dynamic");
        text_jw_key(w, "weight_block_size");
        text_jw_arr(w);
        text_jw_int(w, 128);
        text_jw_int(w, 128);
        text_jw_arr_end(w);
        put_kept(p, w, "modules_to_not_convert");
    }
    text_jw_obj_end(w);
}

/* The type of what is not quantised. */
static const char *plain_type(const struct quant_plan *p)
{
    int64_t n[3] = {0};
    for (int i = 0; i < p->n_item; i++) {
        const struct quant_item *it = &p->item[i];
        if (it->n_dim < 2 || it->type == QUANT_INT8 ||
            (it->type > QUANT_BF16 && it->type != QUANT_AS_IS))
            continue;
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

/* The members of o, and within it of the text model's part, but for how they were quantised. */
static void put_members(struct json_w *w, const struct json *o, const struct json *text,
                        bool biased)
{
    for (const struct json *m = o->child; m; m = m->next) {
        if (strcmp(m->key, "quantization_config") == 0 || strcmp(m->key, "compression_config") == 0)
            continue;
        if (o == text && biased && strcmp(m->key, "attention_bias") == 0) continue;
        text_jw_key(w, m->key);
        if (m == text) {
            text_jw_obj(w);
            put_members(w, m, text, biased);
            text_jw_obj_end(w);
        } else {
            text_jw_node(w, m);
        }
    }
    if (o == text && biased) text_jw_key_bool(w, "attention_bias", true);
}

sl_status quant_head_hf(const struct quant_plan *p, struct str *out, sl_err *err)
{
    struct json_w w;
    bool biased = has_new_bias(p);
    text_jw_init(&w, out);
    text_jw_obj(&w);
    if (io_model_kind(p->src) == IO_GGUF) {
        SL_TRY(arch_write_hf(&p->cfg, p->src, &w, err));
        text_jw_key_strz(&w, "torch_dtype", plain_type(p));
    } else {
        put_members(&w, io_config(p->src), io_text_config(io_config(p->src)), biased);
    }
    put_quantization(p, &w);
    text_jw_obj_end(&w);
    str_putc(out, '\n');
    return str_status(out, err);
}
