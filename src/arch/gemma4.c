/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4, the part of it that writes text: GQA with norms of heads, of values too; layers with a
 * window and layers without one, which have wider heads, fewer keys, these as values, and a rope
 * that turns a part of the pairs; norms before and after every sub-layer, a factor at a layer's
 * end; gated units of gelu, dense or with experts beside them; capped logits. Models with
 * embeddings for each layer (E2B, E4B) are refused. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch_internal.h"

#define WINDOW_EVERY 6 /* where files say nothing: all layers but every sixth have the window */
#define PART 0.25      /* of a head's pairs that are rotated without a window, where unsaid */
#define SLIDES "sliding_attention"
#define SEES_ALL "full_attention"
#define MAX_LAYER 1024

/* What no file says. */
static void set_fixed(struct arch_cfg *c)
{
    c->qk_norm = c->v_norm = c->sandwich = c->glu_all = true;
    c->d_q_norm = c->d_k_norm = 0; /* a head, of each layer */
    c->glu = GLU_GELU_TANH;
    c->attn_scale = 1.0;
    c->embed_scale = (float)sqrt((double)c->d_model);
    c->group_max = c->route_norm = true;
    c->unshared = "norms of what its sub-layers give";
    for (int i = 0; i < c->n_layer; i++)
        c->layer[i].ffn = c->n_expert ? ARCH_MOE : ARCH_DENSE;
}

/* Layers of both kinds, where they are alike, need no numbers of their own. */
static sl_status check(const struct arch_cfg *c, sl_err *err)
{
    if (c->d_head_win % 2 || c->d_head % 2)
        return SL_FAIL(err, FORMAT, "heads of %d and %d, which are rotated by halves", c->d_head,
                       c->d_head_win);
    return SL_OK;
}

/* Pairs that are rotated: of all none is said. */
static void set_turn(struct arch_cfg *c, int n)
{
    c->n_turn = n < c->d_head / 2 ? n : 0;
}

/* ---- config.json ---- */

static sl_status refuse(const struct json *o, const char *key, int def, const char *what,
                        sl_err *err)
{
    int n = 0;
    SL_TRY(arch_hf_int(o, key, ARCH_RANGE(def, 0, 1 << 24), &n, err));
    if (!n) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED, "%s is %d%s: %s are not supported", key, n,
                   text_json_get(o, key) ? "" : ", where it is not said", what);
}

/* Heads of layers without a window: keys of their own, or what transformers 5.24 writes instead,
 * an object of what differs from the whole for each such layer. */
static sl_status hf_layer_cfg(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *all = text_json_get(o, "per_layer_config");
    int n = 0, n_full = 0;
    if (!all || all->kind == JSON_NULL_K) return SL_OK;
    if (all->kind != JSON_OBJECT_K) return SL_FAIL(err, FORMAT, "per_layer_config is no object");
    for (const struct json *l = all->child; l; l = l->next, n++) {
        int il = atoi(l->key), d = c->d_head_win, kv = c->n_head_kv_win;
        if (il < 0 || il >= c->n_layer || c->layer[il].n_window || l->kind != JSON_OBJECT_K)
            return SL_FAIL(err, UNSUPPORTED, "per_layer_config: %.40s is no layer without a window",
                           l->key);
        for (const struct json *k = l->child; k; k = k->next)
            if (strcmp(k->key, "head_dim") != 0 && strcmp(k->key, "num_key_value_heads") != 0)
                return SL_FAIL(err, UNSUPPORTED, "per_layer_config: layer %d: %.60s is not known",
                               il, k->key);
        SL_TRY(arch_hf_int(l, "head_dim", ARCH_RANGE(d, 1, 65536), &d, err));
        SL_TRY(arch_hf_int(l, "num_key_value_heads", ARCH_RANGE(kv, 1, 4096), &kv, err));
        if (n && (d != c->d_head || kv != c->n_head_kv))
            return SL_FAIL(err, UNSUPPORTED, "per_layer_config: layer %d differs from those before",
                           il);
        c->d_head = d;
        c->n_head_kv = kv;
    }
    for (int i = 0; i < c->n_layer; i++)
        n_full += !c->layer[i].n_window;
    if (n && n < n_full)
        return SL_FAIL(err, UNSUPPORTED, "per_layer_config has %d of %d layers without a window", n,
                       n_full);
    if (!n) c->d_head = c->d_head_win, c->n_head_kv = c->n_head_kv_win;
    return SL_OK;
}

static sl_status hf_heads(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    int kv = 0;
    SL_TRY(arch_hf_int(o, "head_dim", ARCH_RANGE(256, 1, 65536), &c->d_head_win, err));
    SL_TRY(arch_hf_int(o, "num_key_value_heads", ARCH_RANGE(4, 1, 4096), &c->n_head_kv_win, err));
    SL_TRY(arch_hf_bool(o, "attention_k_eq_v", false, &c->k_is_v, err));
    SL_TRY(arch_hf_int(o, "global_head_dim", ARCH_RANGE(512, 1, 65536), &c->d_head, err));
    SL_TRY(arch_hf_int(o, "num_global_key_value_heads", ARCH_RANGE(c->n_head_kv_win, 1, 4096), &kv,
                       err));
    c->n_head_kv = c->k_is_v ? kv : c->n_head_kv_win;
    return hf_layer_cfg(o, c, err);
}

static sl_status hf_layers(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    SL_TRY(arch_hf_int(o, "sliding_window", ARCH_RANGE(512, 1, 1 << 28), &c->n_window, err));
    for (int i = 0; i < c->n_layer; i++) /* where layer_types says nothing */
        c->layer[i].n_window = (i + 1) % WINDOW_EVERY ? c->n_window : 0;
    SL_TRY(arch_hf_layer_types(o, true, c, err));
    c->layer[c->n_layer - 1].n_window = 0; /* as the class in transformers has it */
    return SL_OK;
}

/* Of one kind of layers; part: of a head's pairs. */
static sl_status hf_rope_of(const struct json *all, bool wide, struct arch_cfg *c, double *part,
                            sl_err *err)
{
    const char *kind = wide ? SEES_ALL : SLIDES, *type = NULL;
    const struct json *s = text_json_get(all, kind);
    double theta = wide ? 1e6 : 1e4, *out = wide ? &c->rope_theta : &c->theta_win;
    *part = wide ? PART : 1;
    *out = theta;
    if (!s || s->kind == JSON_NULL_K) return SL_OK;
    if (s->kind != JSON_OBJECT_K)
        return SL_FAIL(err, FORMAT, "rope_parameters.%s is not an object", kind);
    SL_TRY(text_json_str(s, "rope_type", "default", &type, err));
    SL_TRY(arch_hf_real(s, "rope_theta", ARCH_RANGE(theta, 1.0, 1e12), out, err));
    SL_TRY(arch_hf_real(s, "partial_rotary_factor", ARCH_RANGE(1, 1e-6, 1), part, err));
    bool whole = strcmp(type, "default") == 0;
    if (!whole && !(wide && strcmp(type, "proportional") == 0))
        return SL_FAIL(err, UNSUPPORTED, "rope_parameters.%s: rope_type '%.40s' is not supported",
                       kind, type);
    if (whole && *part != 1)
        return SL_FAIL(err, UNSUPPORTED,
                       "rope_parameters.%s: partial_rotary_factor %g of rope_type 'default'", kind,
                       *part);
    return arch_keys_rope(s, kind, type, c, err);
}

static sl_status hf_rope(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const struct json *all = text_json_get(o, "rope_parameters");
    double part = 1, whole = 1;
    if (text_json_get(o, "partial_rotary_factor"))
        return SL_FAIL(err, UNSUPPORTED, "partial_rotary_factor outside of rope_parameters");
    if (all && all->kind == JSON_NULL_K) all = NULL;
    if (all && (all->kind != JSON_OBJECT_K || !text_json_get(all, SEES_ALL)))
        return SL_FAIL(err, UNSUPPORTED, "rope_parameters has no " SEES_ALL);
    SL_TRY(hf_rope_of(all, true, c, &part, err));
    SL_TRY(hf_rope_of(all, false, c, &whole, err));
    c->n_rot = c->d_head;
    set_turn(c, (int)floor(part * c->d_head / 2));
    if (!c->n_turn && part * c->d_head < 2)
        return SL_FAIL(err, UNSUPPORTED, "partial_rotary_factor %g of a head of %d", part,
                       c->d_head);
    return SL_OK;
}

static sl_status hf_experts(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    bool moe = false;
    SL_TRY(arch_hf_bool(o, "enable_moe_block", false, &moe, err));
    if (!moe) return SL_OK;
    SL_TRY(arch_hf_int(o, "num_experts", ARCH_RANGE(-1, 1, 4096), &c->n_expert, err));
    SL_TRY(arch_hf_int(o, "top_k_experts", ARCH_RANGE(-1, 1, 64), &c->n_expert_used, err));
    return arch_hf_int(o, "moe_intermediate_size", ARCH_RANGE(-1, 1, 1 << 22), &c->d_ff_expert,
                       err);
}

static sl_status read_hf(const struct json *o, struct arch_cfg *c, sl_err *err)
{
    const char *sees = NULL;
    bool bias = false;
    double cap = 0;
    SL_TRY(arch_hf_must_be(o, "hidden_activation", "gelu_pytorch_tanh", err));
    SL_TRY(arch_hf_bool(o, "attention_bias", false, &bias, err));
    if (bias) return SL_FAIL(err, UNSUPPORTED, "attention_bias is not supported");
    SL_TRY(text_json_str(o, "use_bidirectional_attention", "vision", &sees, err));
    if (strcmp(sees, "vision") != 0)
        return SL_FAIL(err, UNSUPPORTED,
                       "use_bidirectional_attention '%.40s' is not supported (vision)", sees);
    SL_TRY(refuse(o, "hidden_size_per_layer_input", 256, "embeddings for each layer", err));
    SL_TRY(refuse(o, "num_kv_shared_layers", 0, "layers with keys of another", err));
    SL_TRY(arch_hf_int(o, "intermediate_size", ARCH_RANGE(9216, 1, 1 << 22), &c->d_ff, err));
    SL_TRY(arch_hf_int(o, "max_position_embeddings", ARCH_RANGE(131072, 1, 1 << 28),
                       &c->n_ctx_train, err));
    SL_TRY(hf_layers(o, c, err));
    SL_TRY(hf_heads(o, c, err));
    SL_TRY(hf_rope(o, c, err));
    SL_TRY(hf_experts(o, c, err));
    SL_TRY(arch_hf_real(o, "final_logit_softcapping", ARCH_RANGE(0, 0, 1e6), &cap, err));
    c->logit_cap = (float)cap;
    set_fixed(c);
    return check(c, err);
}

/* ---- GGUF ---- */

/* Key heads, one number or one for each layer: those of either kind of layers are as many. */
static sl_status gguf_key_heads(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    struct io_array kv, win;
    int64_t n = 0, slides = 0;
    if (!arch_gguf_array(m, "attention.head_count_kv", &kv)) {
        SL_TRY(arch_gguf_int(m, "attention.head_count_kv", ARCH_RANGE(-1, 1, 4096), &c->n_head_kv,
                             err));
        c->n_head_kv_win = c->n_head_kv;
        return SL_OK;
    }
    if (!arch_gguf_array(m, "attention.sliding_window_pattern", &win) ||
        win.n < (uint64_t)c->n_layer || kv.n < (uint64_t)c->n_layer)
        return SL_FAIL(err, FORMAT,
                       "%s: attention.head_count_kv and sliding_window_pattern do not have each of "
                       "%d layers",
                       io_path(m), c->n_layer);
    for (int i = 0; i < c->n_layer; i++) {
        if (!io_array_i64(&kv, (uint64_t)i, &n) || n < 1 || n > 4096 ||
            !io_array_i64(&win, (uint64_t)i, &slides))
            return SL_FAIL(err, FORMAT, "%s: attention.head_count_kv[%d] is not in 1 .. 4096",
                           io_path(m), i);
        int *to = slides ? &c->n_head_kv_win : &c->n_head_kv;
        if (*to && *to != n)
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: attention.head_count_kv[%d] is %d, of layers of its kind before %d",
                           io_path(m), i, (int)n, *to);
        *to = (int)n;
    }
    if (!c->n_head_kv) c->n_head_kv = c->n_head_kv_win;
    if (!c->n_head_kv_win) c->n_head_kv_win = c->n_head_kv;
    return SL_OK;
}

/* rope_freqs.weight: 1 where a pair is rotated, a number without bounds where it is not. */
static sl_status gguf_turn(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    const struct tensor *t = io_find(m, "rope_freqs.weight");
    int n = 0, half = c->d_head / 2;
    if (!t)
        return SL_FAIL(err, FORMAT, "%s: rope_freqs.weight is missing", io_path(m));
    if (t->type != TENSOR_F32 || tensor_count(t) != half)
        return SL_FAIL(err, FORMAT, "%s: rope_freqs.weight: %d f32 values are expected",
                       io_path(m), half);
    if (!t->data) { /* a header alone */
        set_turn(c, (int)(PART * half));
        return SL_OK;
    }
    for (int i = 0; i < half; i++) {
        float f = 0;
        tensor_dequant(TENSOR_F32, (const char *)t->data + 4 * (size_t)i, 1, &f);
        if (f == 1 && n == i)
            n++;
        else if (!(f >= 1e20f))
            return SL_FAIL(err, UNSUPPORTED,
                           "%s: rope_freqs.weight[%d] is %g: pairs that are rotated as they are, "
                           "then those that are not are supported",
                           io_path(m), i, (double)f);
    }
    if (!n) return SL_FAIL(err, UNSUPPORTED, "%s: rope_freqs.weight: no pair is rotated",
                           io_path(m));
    set_turn(c, n);
    return SL_OK;
}

/* A whole number that has to be that one. */
static sl_status gguf_must(const io_model *m, const char *key, int is, sl_err *err)
{
    int n = 0;
    SL_TRY(arch_gguf_int(m, key, ARCH_RANGE(is, 0, 1 << 24), &n, err));
    return n == is ? SL_OK
                   : SL_FAIL(err, UNSUPPORTED, "%s: gemma4.%s is %d, not %d", io_path(m), key, n,
                             is);
}

/* Has the first layer without a window a matrix of values? */
static bool gguf_has_v(const io_model *m, const struct arch_cfg *c)
{
    struct io_array win;
    char name[64];
    int64_t slides = 0;
    bool some = arch_gguf_array(m, "attention.sliding_window_pattern", &win);
    for (int i = 0; i < c->n_layer; i++) {
        if (some && io_array_i64(&win, (uint64_t)i, &slides) && slides) continue;
        if (!some && (i + 1) % WINDOW_EVERY) continue;
        arch_tensor_name(&c->naming, ROLE_V, i, "weight", name, sizeof name);
        return io_find(m, name) != NULL;
    }
    return true;
}

static sl_status read_gguf(const io_model *m, struct arch_cfg *c, sl_err *err)
{
    double cap = 0;
    SL_TRY(gguf_must(m, "embedding_length_per_layer_input", 0, err));
    SL_TRY(gguf_must(m, "attention.shared_kv_layers", 0, err));
    SL_TRY(arch_gguf_int(m, "attention.key_length_swa", ARCH_RANGE(c->d_head, 1, 65536),
                         &c->d_head_win, err));
    SL_TRY(gguf_must(m, "attention.value_length_swa", c->d_head_win, err));
    SL_TRY(gguf_must(m, "rope.dimension_count_swa", c->d_head_win, err));
    SL_TRY(gguf_must(m, "rope.dimension_count", c->d_head, err));
    SL_TRY(arch_gguf_real(m, "rope.freq_base_swa", ARCH_RANGE(10000.0, 1.0, 1e12), &c->theta_win,
                          err));
    SL_TRY(arch_gguf_real(m, "final_logit_softcapping", ARCH_RANGE(0, 0, 1e6), &cap, err));
    c->logit_cap = (float)cap;
    if (!c->n_window)
        return SL_FAIL(err, FORMAT, "%s: gemma4.attention.sliding_window is missing or 0",
                       io_path(m));
    SL_TRY(gguf_key_heads(m, c, err));
    SL_TRY(gguf_turn(m, c, err));
    SL_TRY(arch_gguf_moe(m, c, err));
    if (c->n_shared || c->n_dense_lead)
        return SL_FAIL(err, UNSUPPORTED, "%s: experts beside others than a dense block",
                       io_path(m));
    c->k_is_v = !gguf_has_v(m, c);
    set_fixed(c);
    return check(c, err);
}

/* ---- writing ---- */

static sl_status write_gguf(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err)
{
    (void)err;
    arch_put_int(k, "attention.key_length_swa", c->d_head_win);
    arch_put_int(k, "attention.value_length_swa", c->d_head_win);
    arch_put_int(k, "attention.shared_kv_layers", 0);
    arch_put_int(k, "embedding_length_per_layer_input", 0);
    arch_put_real(k, "rope.freq_base_swa", c->theta_win);
    arch_put_int(k, "rope.dimension_count_swa", c->d_head_win);
    if (c->logit_cap > 0) arch_put_real(k, "final_logit_softcapping", (double)c->logit_cap);
    if (!c->n_expert) return SL_OK;
    arch_put_int(k, "expert_count", c->n_expert);
    arch_put_int(k, "expert_used_count", c->n_expert_used);
    arch_put_int(k, "expert_feed_forward_length", c->d_ff_expert);
    return SL_OK;
}

static void put_rope(const struct arch_cfg *c, struct json_w *w)
{
    int n = c->n_turn ? c->n_turn : c->d_head / 2;
    text_jw_key(w, "rope_parameters");
    text_jw_obj(w);
    text_jw_key(w, SLIDES);
    text_jw_obj(w);
    text_jw_key_strz(w, "rope_type", "default");
    arch_jw_real(w, "rope_theta", c->theta_win);
    text_jw_obj_end(w);
    text_jw_key(w, SEES_ALL);
    text_jw_obj(w);
    text_jw_key_strz(w, "rope_type", "proportional");
    arch_jw_real(w, "partial_rotary_factor", 2.0 * n / c->d_head);
    arch_jw_real(w, "rope_theta", c->rope_theta);
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

static sl_status write_hf(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err)
{
    if (c->n_head_kv != c->n_head_kv_win && !c->k_is_v)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: %d and %d key heads with values of their own, which a folder of gemma4 "
                       "can not say",
                       io_path(src), c->n_head_kv, c->n_head_kv_win);
    text_jw_key_int(w, "sliding_window", c->n_window);
    arch_jw_layer_types(c, arch_has_window, SLIDES, SEES_ALL, w);
    text_jw_key_int(w, "head_dim", c->d_head_win);
    text_jw_key_int(w, "global_head_dim", c->d_head);
    text_jw_key_bool(w, "attention_k_eq_v", c->k_is_v);
    if (c->k_is_v) text_jw_key_int(w, "num_global_key_value_heads", c->n_head_kv);
    put_rope(c, w);
    text_jw_key_int(w, "hidden_size_per_layer_input", 0);
    text_jw_key_int(w, "num_kv_shared_layers", 0);
    if (c->logit_cap > 0) arch_jw_real(w, "final_logit_softcapping", (double)c->logit_cap);
    text_jw_key_bool(w, "enable_moe_block", c->n_expert > 0);
    if (!c->n_expert) return SL_OK;
    text_jw_key_int(w, "num_experts", c->n_expert);
    text_jw_key_int(w, "top_k_experts", c->n_expert_used);
    text_jw_key_int(w, "moe_intermediate_size", c->d_ff_expert);
    return SL_OK;
}

static const struct arch_alias alias[] = {
    {ROLE_FFN_NORM, NULL, "pre_feedforward_layernorm"},
    {ROLE_ATTN_POST_NORM, "post_attention_norm", "post_attention_layernorm"},
    {ROLE_FFN_POST_NORM, "post_ffw_norm", "post_feedforward_layernorm"},
    {ROLE_FFN_POST_NORM_1, "post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {ROLE_FFN_PRE_NORM_2, "pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {ROLE_FFN_POST_NORM_2, "post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {ROLE_ROUTER, NULL, "router.proj"},
    {ROLE_ROUTER_SCALE, "ffn_gate_inp.scale.", "router.scale."},
    {ROLE_EXPERT_SCALE, "ffn_down_exps.scale.", "router.per_expert_scale."},
    {ROLE_GATE_EXPS, NULL, "experts.%d.gate_proj"},
    {ROLE_UP_EXPS, NULL, "experts.%d.up_proj"},
    {ROLE_DOWN_EXPS, NULL, "experts.%d.down_proj"},
    {ROLE_LAYER_SCALE, "layer_output_scale", "layer_scalar."},
    {N_ROLE, NULL, NULL}};

const struct arch arch_gemma4 = {
    .name = "gemma4",
    .gguf = "gemma4",
    .hf_type = "gemma4_text|gemma4",
    .hf_class = "Gemma4ForCausalLM",
    .tool_family = "gemma4",
    .hf_keys = "hidden_activation|use_bidirectional_attention|sliding_window|global_head_dim|"
               "num_global_key_value_heads|per_layer_config|attention_k_eq_v|"
               "partial_rotary_factor|hidden_size_per_layer_input|vocab_size_per_layer_input|"
               "num_kv_shared_layers|use_double_wide_mlp|final_logit_softcapping|"
               "enable_moe_block|num_experts|top_k_experts|moe_intermediate_size",
    .gguf_keys = ARCH_GGUF_KEYS_WINDOW
    "|attention.key_length_swa|attention.value_length_swa|attention.shared_kv_layers|"
    "embedding_length_per_layer_input|rope.freq_base_swa|rope.dimension_count_swa|"
    "final_logit_softcapping|expert_count|expert_used_count|expert_feed_forward_length",
    .alias = alias,
    .window_every = WINDOW_EVERY,
    .kv_by_layer = true,
    .unsaid = {.theta = 1e6, .d_head = 256, .tied = true},
    .read_gguf = read_gguf,
    .read_hf = read_hf,
    .write_gguf = write_gguf,
    .write_hf = write_hf,
};
