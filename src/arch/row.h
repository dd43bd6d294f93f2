/* SPDX-License-Identifier: Apache-2.0 */
/* What an architecture's file is made of: its row, and what readers and writers share. */
#ifndef ARCH_ROW_H
#define ARCH_ROW_H

#include "arch/arch.h"

/* Keys that several architectures obey (hf_keys, gguf_keys of struct arch). */
#define ARCH_HF_KEYS_MLA                                                                           \
    "rope_interleave|qk_rope_head_dim|qk_nope_head_dim|q_lora_rank|kv_lora_rank|v_head_dim"
#define ARCH_HF_KEYS_QK_NORM "*qk_norm*|*qk_layernorm*|*qk_layer_norm*|*qknorm*|query_norm|key_norm"
/* of DeepSeek's experts */
#define ARCH_HF_KEYS_MOE                                                                           \
    "routed_scaling_factor|num_experts|num_local_experts|n_routed_experts|num_experts_per_tok|"    \
    "moe_intermediate_size|norm_topk_prob|n_shared_experts|n_group|topk_group|topk_method|"        \
    "first_k_dense_replace"
#define ARCH_GGUF_KEYS_WINDOW "attention.sliding_window|attention.sliding_window_pattern"
#define ARCH_GGUF_KEYS_MOE                                                                         \
    "expert_count|expert_used_count|expert_feed_forward_length|expert_weights_norm|"               \
    "expert_gating_func|expert_weights_scale"
#define ARCH_GGUF_KEYS_MOE_SHARED                                                                  \
    ARCH_GGUF_KEYS_MOE "|expert_group_count|expert_group_used_count|expert_shared_count|"          \
                       "leading_dense_block_count"
#define ARCH_GGUF_KEYS_MTP "|nextn_predict_layers"
#define ARCH_GGUF_KEYS_MLA                                                                         \
    ARCH_GGUF_KEYS_MOE_SHARED ARCH_GGUF_KEYS_MTP                                                   \
        "|rope.scaling.yarn_log_multiplier|attention.key_length_mla|attention.value_length_mla|"   \
        "attention.q_lora_rank|attention.kv_lora_rank"
/* of a lightning indexer beside MLA */
#define ARCH_HF_KEYS_INDEX                                                                         \
    "index_n_heads|index_head_dim|index_topk|indexer_rope_interleave|mlp_layer_types|"             \
    "scoring_func|moe_layer_freq|" ARCH_HF_KEYS_MLA "|" ARCH_HF_KEYS_MOE
#define ARCH_GGUF_KEYS_INDEX                                                                       \
    ARCH_GGUF_KEYS_MLA "|attention.indexer.head_count|attention.indexer.key_length|"               \
                       "attention.indexer.top_k|attention.layer_norm_epsilon"
/* of gated delta layers, and of the experts beside them */
#define ARCH_HF_KEYS_DELTA                                                                         \
    "partial_rotary_factor|mrope_section|mrope_interleaved|full_attention_interval|"               \
    "attn_output_gate|mamba_ssm_dtype|linear_num_key_heads|linear_num_value_heads|"                \
    "linear_key_head_dim|linear_value_head_dim|linear_conv_kernel_dim"
#define ARCH_HF_KEYS_DELTA_MOE                                                                     \
    "num_experts|num_local_experts|num_experts_per_tok|moe_intermediate_size|norm_topk_prob|"      \
    "shared_expert_intermediate_size"
#define ARCH_GGUF_KEYS_DELTA                                                                       \
    "full_attention_interval|ssm.conv_kernel|ssm.state_size|ssm.group_count|ssm.time_step_rank|"   \
    "ssm.inner_size|ssm.v_head_reordered|rope.dimension_sections|rope.mrope_*|attention.scale"     \
    ARCH_GGUF_KEYS_MTP
#define ARCH_GGUF_KEYS_DELTA_MOE                                                                   \
    ARCH_GGUF_KEYS_MOE "|expert_shared_count|expert_shared_feed_forward_length"
/* Names that these have otherwise. */
#define ARCH_DELTA_ALIAS                                                                           \
    {ROLE_FFN_NORM, "post_attention_norm", NULL},                                                  \
        {ROLE_GATE_SHEXP, NULL, "mlp.shared_expert.gate_proj"},                                    \
        {ROLE_UP_SHEXP, NULL, "mlp.shared_expert.up_proj"},                                        \
        {ROLE_DOWN_SHEXP, NULL, "mlp.shared_expert.down_proj"}, {ROLE_MTP_EH, NULL, "fc"},         \
        {ROLE_MTP_ENORM, NULL, "pre_fc_norm_embedding"},                                           \
        {ROLE_MTP_HNORM, NULL, "pre_fc_norm_hidden"}, {ROLE_MTP_EMBED, NULL, ""},                  \
        {ROLE_MTP_HEAD, NULL, ""},                                                                 \
    {                                                                                              \
        ROLE_MTP_HEAD_NORM, NULL, "norm"                                                           \
    }

/* Groups of experts of a published model, by the numbers of its experts and layers: of GGUF files
 * that do not say them. n_expert 0 ends a list. */
struct arch_groups {
    int n_expert, n_layer, n, used;
};

/* One row: arch_<name> in <name>.c. Every file of the folder that is none of the room's own is one,
 * and its row is known. A reader fills what is special to the architecture after the common
 * fields were read, and says of every layer what it is; it may refuse. */
struct arch {
    const char *name; /* ours */
    /* Where it stands among the rows: in messages, and of two that match a GGUF file the later one
     * is it. 0: after those that say it, by name. */
    int place;
    const char *gguf;     /* general.architecture, "|"-separated; the first is written */
    const char *hf_type;  /* model_type of config.json, "|"-separated; the first is written */
    const char *hf_class; /* its class in transformers ("Qwen3ForCausalLM") */
    /* What folders of it are called where layers have a window; NULL = the same. */
    const char *window_type, *window_class;
    const char *tool_family; /* see arch_tool_family; NULL = its models differ */
    const char *act; /* what hidden_act may be beside silu, of units with limits; NULL = nothing */
    /* Keys that it obeys beyond those that all do, "|"-separated, * stands for any bytes: of
     * config.json, and of GGUF without the architecture before them; NULL = none. keys.c says what
     * becomes of others. */
    const char *hf_keys, *gguf_keys;
    /* What holds where a config.json does not say, as in the class: rms_norm_eps, rope_theta,
     * head_dim, tie_word_embeddings; 0 = 1e-6, 10000, D / H, false. */
    struct {
        double eps, theta;
        int d_head;
        bool tied;
    } unsaid;
    const struct arch_alias *alias; /* names that differ from the usual ones; NULL = none */
    /* The whole list where a folder has the name of its first role in some layer; NULL = none. */
    const struct arch_alias *renamed;
    const struct arch_alias *in_delta; /* see arch_naming; NULL = none */
    const char *embed, *selects;       /* the same */
    bool permutes_qk;               /* see arch_permutes_qk */
    bool ff_of_experts;             /* intermediate_size of folders is the width of an expert */
    bool norm_one;                  /* see arch_is_less */
    enum arch_rope_style index_rope; /* of an indexer; GGUF files can not say it */
    bool ffn_scale_unused;          /* by llama.cpp: see arch_scale_used */
    bool delta_packed, delta_tiled; /* see arch_packs_delta, arch_tiles_delta */
    bool decay_plain;               /* see arch_decay_plain */
    bool mtp_apart; /* see mtp_from of arch_naming: folders have one such layer at most */
    bool bare;    /* see struct arch_naming */
    bool mtp_uncounted; /* GGUF files may count MTP layers that they do not have */
    bool kv_by_layer; /* its reader reads attention.head_count_kv of GGUF files */
    bool no_keys; /* layers without keys: attention.head_count_kv may have zeros */
    bool unrotated; /* head_dim of folders says nothing, and rope.dimension_count may be 0 */
    int window_every; /* the window is in all but every n-th layer of a GGUF file without a pattern;
                         0 = in all */
    bool yarn_real;   /* what GGUF files, which can not say it, mean by YaRN */
    const struct arch_groups *groups;      /* NULL = none */
    bool (*match_gguf)(const io_model *m); /* NULL = by name only; several rows may share a name */
    /* Required, but for GGUF where match_gguf lets no file come here. */
    sl_status (*read_gguf)(const io_model *m, struct arch_cfg *c, sl_err *err);
    sl_status (*read_hf)(const struct json *config, struct arch_cfg *c, sl_err *err);
    /* Keys between those of attention and those of rope; NULL = none. UNSUPPORTED: what GGUF can
     * not say. */
    sl_status (*write_gguf)(const struct arch_cfg *c, const struct arch_keys *k, sl_err *err);
    /* Members that only some have: windows, heads, experts. Required as read_gguf is. */
    sl_status (*write_hf)(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                          sl_err *err);
};
/* The row that has i others before it; NULL = there are not so many. */
const struct arch *arch_row(int i);

/* What a number may be: lo .. hi. def: what it is where the file has none; less than lo: it must
 * have one. Errors of what reads one: FORMAT names the key, and what was there. */
struct arch_range {
    double def, lo, hi;
};
#define ARCH_RANGE(def, lo, hi) ((struct arch_range){def, lo, hi})

/* ---- reading GGUF (config_gguf.c). Errors of all of it: FORMAT names the file, the key and what
 * it is, UNSUPPORTED a value that is not computed ---- */
/* "<arch>.key" as a whole number in that range. */
sl_status arch_gguf_int(const io_model *m, const char *key, struct arch_range in, int *out,
                        sl_err *err) BASE_MUST_USE;
sl_status arch_gguf_real(const io_model *m, const char *key, struct arch_range in, double *out,
                         sl_err *err) BASE_MUST_USE;
sl_status arch_gguf_flag(const io_model *m, const char *key, bool def, bool *out,
                         sl_err *err) BASE_MUST_USE;
/* Sizes of MLA. */
sl_status arch_gguf_latents(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Experts, and which layers have them. */
sl_status arch_gguf_moe(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* expert_weights_scale (1 where it is missing or 0), expert_weights_norm and expert_gating_func,
 * with what holds where a file does not say. */
sl_status arch_gguf_router(const io_model *m, bool norm, bool sigmoid, struct arch_cfg *c,
                           sl_err *err) BASE_MUST_USE;
/* "<arch>.key" where it is an array: false = it is not. */
bool arch_gguf_array(const io_model *m, const char *key, struct io_array *out);
/* Gated delta layers, and the gate of attention in the others. */
sl_status arch_gguf_delta(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Kimi Delta Attention, in layers without keys, and the experts beside it. */
sl_status arch_gguf_kda(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* The same with their experts, and the shared one. */
sl_status arch_gguf_delta_moe(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* A lightning indexer in every layer. UNSUPPORTED: none has its tensors. */
sl_status arch_gguf_index(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* attention.indexer.types, or else the tensors: which layers have an indexer of their own. */
sl_status arch_gguf_index_layers(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Several streams (hyper-connections): how many, and how they are mixed. */
sl_status arch_gguf_streams(const io_model *m, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* swiglu_clamp_exp and swiglu_clamp_shexp, of all units: one limit, def where there is none.
 * UNSUPPORTED: more than one. */
sl_status arch_gguf_limit(const io_model *m, double def, struct arch_cfg *c,
                          sl_err *err) BASE_MUST_USE;
/* Has the file that tensor of the first layer? Where no key says it, the tensors do. */
bool arch_gguf_has(const io_model *m, const struct arch_cfg *c, enum arch_role role);

/* ---- reading config.json (config_hf.c). Errors of all of it: FORMAT names the key and what it is,
 * UNSUPPORTED a value that is not computed; the caller says which file ---- */
/* The first of the "|"-separated names that is present and not null. */
sl_status arch_hf_int(const struct json *o, const char *names, struct arch_range in, int *out,
                      sl_err *err) BASE_MUST_USE;
sl_status arch_hf_real(const struct json *o, const char *names, struct arch_range in, double *out,
                       sl_err *err) BASE_MUST_USE;
/* The same of a number that has several names: FORMAT where they differ. */
sl_status arch_hf_alias(const struct json *o, const char *names, struct arch_range in, int *out,
                        sl_err *err) BASE_MUST_USE;
/* def where the key is absent; null is false, as in Python. */
sl_status arch_hf_bool(const struct json *o, const char *key, bool def, bool *out,
                       sl_err *err) BASE_MUST_USE;
/* rope_scaling / rope_parameters / rope_theta. n_rot: dimensions that are rotated, which YaRN and
 * the others work on. */
sl_status arch_hf_rope(const struct json *o, int n_rot, struct arch_cfg *c,
                       sl_err *err) BASE_MUST_USE;
/* The same of that object s, called name. */
sl_status arch_hf_rope_of(const struct json *o, const struct json *s, const char *name, int n_rot,
                          struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Dimensions of a head that are rotated: partial_rotary_factor, there or in rope_parameters (def
 * where neither has it), of the head. */
sl_status arch_hf_n_rot(const struct json *o, double def, const struct arch_cfg *c, int *n_rot,
                        sl_err *err) BASE_MUST_USE;
/* attention_bias for q, k and v, and o's where o is set. */
sl_status arch_hf_attn_bias(const struct json *o, bool o_bias, struct arch_cfg *c,
                            sl_err *err) BASE_MUST_USE;
/* What Qwen3 and Qwen3-MoE share; by_layer as in arch_hf_window. */
sl_status arch_hf_qwen3(const struct json *o, bool by_layer, struct arch_cfg *c,
                        sl_err *err) BASE_MUST_USE;
sl_status arch_hf_mla(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Of that the sizes alone. */
sl_status arch_hf_latents(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Experts as DeepSeek-V3 has them: sigmoid, a bias that chooses, groups, shared experts, dense
 * layers in front. def: what holds where a configuration does not say; n_expert -1: it must. */
struct arch_moe_v3 {
    int n_expert, n_used, n_dense_lead, d_ff_expert, n_group, n_group_used;
    double scale;
};
sl_status arch_hf_moe_v3(const struct json *o, const struct arch_moe_v3 *def, struct arch_cfg *c,
                         sl_err *err) BASE_MUST_USE;
/* mlp_layer_types, where it is there: which layers have experts. */
sl_status arch_hf_mlp_types(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* A lightning indexer in every layer, before arch_hf_mla; n_head: of it, where a configuration does
 * not say. */
sl_status arch_hf_index(const struct json *o, int n_head, struct arch_cfg *c,
                        sl_err *err) BASE_MUST_USE;
/* indexer_types, index_topk_pattern, or index_topk_freq and index_skip_topk_offset: which layers
 * have an indexer of their own. */
sl_status arch_hf_index_layers(const struct json *o, struct arch_cfg *c,
                               sl_err *err) BASE_MUST_USE;
/* Several streams (hyper-connections): how many, and how they are mixed. */
sl_status arch_hf_streams(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* decoder_sparse_step and mlp_only_layers: which layers have experts. */
sl_status arch_hf_sparse_layers(const struct json *o, struct arch_cfg *c,
                                sl_err *err) BASE_MUST_USE;
/* Gated delta layers, the gate of attention in the others, and their rope. */
sl_status arch_hf_delta(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* Their experts, and the shared one. def: what holds where a configuration does not say. */
struct arch_delta_moe {
    int n_expert, n_used;
};
sl_status arch_hf_delta_moe(const struct json *o, const struct arch_delta_moe *def,
                            struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* dual_chunk_attention_config (Qwen2.5-1M): within the first chunk that is ordinary attention, so
 * the context ends there (n_ctx_train). After arch_hf_rope. */
sl_status arch_hf_dual_chunk(const struct json *o, struct arch_cfg *c, sl_err *err) BASE_MUST_USE;
/* The object of that name in o, if there is one, has keys of names (a|b|...) alone, and others at
 * values that change nothing (keys.c). FORMAT, UNSUPPORTED: names the key. */
sl_status arch_keys_nested(const struct json *o, const char *name, const char *names,
                           sl_err *err) BASE_MUST_USE;
/* A word that has to be this one, where it is there. UNSUPPORTED names key and word. */
sl_status arch_hf_must_be(const struct json *o, const char *key, const char *word,
                          sl_err *err) BASE_MUST_USE;
/* use_sliding_window: the window as arch_hf_window reads it, or none. */
sl_status arch_hf_switched_window(const struct json *o, bool by_layer, struct arch_cfg *c,
                                  sl_err *err) BASE_MUST_USE;
/* sliding_window (def where the key is absent; null is none) of all layers, or, by_layer, of those
 * that layer_types names, else of those from max_window_layers on. */
sl_status arch_hf_window(const struct json *o, int def, bool by_layer, struct arch_cfg *c,
                         sl_err *err) BASE_MUST_USE;
/* layer_types, of which each must be full_attention or other: the first, or NULL where there are
 * none. UNSUPPORTED names one that is neither. */
sl_status arch_hf_types(const struct json *o, const char *other, const struct arch_cfg *c,
                        const struct json **first, sl_err *err) BASE_MUST_USE;
/* layer_types of a configuration whose windows are known: by_layer: obeyed; else it must say the
 * same. */
sl_status arch_hf_layer_types(const struct json *o, bool by_layer, struct arch_cfg *c,
                              sl_err *err) BASE_MUST_USE;

/* ---- writing GGUF (write_gguf.c) ---- */
struct arch_keys {
    io_out *out;
    const char *arch; /* before every key */
    const char *path; /* of the folder, for messages */
    int n_mtp;        /* MTP layers that are written */
};
void arch_put_int(const struct arch_keys *k, const char *key, int64_t v);
void arch_put_real(const struct arch_keys *k, const char *key, double v);
void arch_put_ints(const struct arch_keys *k, const char *key, const int32_t *v, int n);
void arch_put_reals(const struct arch_keys *k, const char *key, const float *v, int n);
void arch_put_flag(const struct arch_keys *k, const char *key, bool v);
/* Experts: how many, used, how wide, expert_weights_norm. Errors of a row's write_gguf: none. */
sl_status arch_put_moe(const struct arch_cfg *c, const struct arch_keys *k,
                       sl_err *err) BASE_MUST_USE;
/* The same and what DeepSeek's router needs besides: dense layers in front, shared experts, scale,
 * gating, groups. Errors: none. */
sl_status arch_put_moe_shared(const struct arch_cfg *c, const struct arch_keys *k,
                              sl_err *err) BASE_MUST_USE;
/* Keys of gated delta layers and of their experts. UNSUPPORTED: an order of layers that GGUF can
 * not say. */
sl_status arch_put_delta(const struct arch_cfg *c, const struct arch_keys *k,
                         sl_err *err) BASE_MUST_USE;
/* Keys of Kimi Delta Attention and of the experts beside it. UNSUPPORTED: other heads of it than of
 * attention. */
sl_status arch_put_kda(const struct arch_cfg *c, const struct arch_keys *k,
                       sl_err *err) BASE_MUST_USE;
/* Keys of several streams; the limit of all units, for every layer. */
void arch_put_streams(const struct arch_cfg *c, const struct arch_keys *k);
void arch_put_limit(const struct arch_cfg *c, const struct arch_keys *k);
/* Keys of a lightning indexer, and of the experts beside it. UNSUPPORTED: a rope of it that GGUF
 * can not say. */
sl_status arch_put_index(const struct arch_cfg *c, const struct arch_keys *k,
                         sl_err *err) BASE_MUST_USE;
/* Which layers have an indexer of their own. */
void arch_put_index_layers(const struct arch_cfg *c, const struct arch_keys *k);

/* ---- writing config.json (write_hf.c) ---- */
/* layer_types: of each layer, is it so, or not? */
void arch_jw_layer_types(const struct arch_cfg *c, bool (*is)(const struct arch_layer *),
                         const char *yes, const char *no, struct json_w *w);
static inline bool arch_is_delta(const struct arch_layer *l)
{
    return l->mixer == ARCH_DELTA;
}
static inline bool arch_has_window(const struct arch_layer *l)
{
    return l->n_window > 0;
}
static inline bool arch_has_index(const struct arch_layer *l)
{
    return l->index != ARCH_INDEX_NONE;
}
/* The shortest decimal that is the same number, as f32 where it came from one. */
void arch_jw_real(struct json_w *w, const char *key, double v);
/* head_dim; UNSUPPORTED where the file rotates a part of a head or scales by another factor than
 * the head's, which a folder of these architectures can not say. */
sl_status arch_jw_heads(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err) BASE_MUST_USE;
void arch_jw_mla(const struct arch_cfg *c, struct json_w *w);
/* sliding_window, use_sliding_window where use is set, and, by_layer, layer_types. Without a window
 * null. */
sl_status arch_jw_window(const struct arch_cfg *c, const io_model *src, bool use, bool by_layer,
                         struct json_w *w, sl_err *err) BASE_MUST_USE;
/* n_routed_experts and all that DeepSeek's router has. func, method: scoring_func, topk_method. */
void arch_jw_moe_shared(const struct arch_cfg *c, const char *func, const char *method,
                        struct json_w *w);
/* decoder_sparse_step and mlp_only_layers. */
void arch_jw_sparse_layers(const struct arch_cfg *c, struct json_w *w);
/* first_k_dense_replace, and mlp_layer_types where other layers are dense too. */
void arch_jw_dense_lead(const struct arch_cfg *c, struct json_w *w);
/* mlp_layer_types: a word for every layer. */
void arch_jw_mlp_types(const struct arch_cfg *c, struct json_w *w);
/* Members of gated delta layers and of their experts; UNSUPPORTED as arch_jw_heads, but for what a
 * head rotates. */
sl_status arch_jw_delta(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err) BASE_MUST_USE;
void arch_jw_streams(const struct arch_cfg *c, struct json_w *w);
/* Members of MLA, of its lightning indexer and of the experts; UNSUPPORTED as arch_jw_window. */
sl_status arch_jw_index(const struct arch_cfg *c, const io_model *src, struct json_w *w,
                        sl_err *err) BASE_MUST_USE;

#endif
