/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json and GGUF that change numbers: obeyed, at their neutral value, or refused by
 * name; and the configurations of published models, none of whose keys may be refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io_make.h"
#include "arch/arch.h"
#include "test.h"

#define SMALL                                                                                      \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":" \
    "4,"                                                                                           \
    "\"num_key_value_heads\":2,\"vocab_size\":300,\"max_position_embeddings\":4096,\"head_dim\":"  \
    "16,\"rms_norm_eps\":1e-5"
#define LLAMA "\"model_type\":\"llama\"," SMALL
#define QWEN2 "\"model_type\":\"qwen2\"," SMALL
#define QWEN3 "\"model_type\":\"qwen3\"," SMALL
#define MOE                                                                                        \
    "\"model_type\":\"qwen3_moe\"," SMALL                                                          \
    ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
#define MLA                                                                                        \
    SMALL                                                                                          \
    ",\"kv_lora_rank\":32,\"q_lora_rank\":24,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,"      \
    "\"v_head_dim\":16,"                                                                           \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,\"n_"           \
    "shared_experts\":1,"                                                                          \
    "\"n_group\":4,\"topk_group\":2,\"first_k_dense_replace\":1,\"routed_scaling_factor\":2.5"
#define V2 "\"model_type\":\"deepseek_v2\"," MLA ",\"topk_method\":\"greedy\""
#define V3 "\"model_type\":\"deepseek_v3\"," MLA

struct answer {
    sl_status st;
    sl_err err;
    struct arch_cfg cfg; /* without its arrays */
    uint8_t window[8];
};

static void read_config(const char *text, struct answer *r)
{
    char dir[] = "/tmp/sluice-test-XXXXXX", file[64];
    struct arena a;
    io_model *io = NULL;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/config.json", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fprintf(f, "{%s}", text);
    fclose(f);
    memset(r, 0, sizeof *r);
    mem_arena_init(&a, MEM_MISC, 0);
    r->st = io_open(dir, true, &io, &r->err);
    if (r->st == SL_OK) r->st = arch_cfg_read(io, &a, &r->cfg, &r->err);
    for (int i = 0; r->st == SL_OK && i < BASE_MIN(r->cfg.n_layer, 8); i++)
        r->window[i] = r->cfg.layer[i].n_window > 0;
    io_close(io);
    mem_arena_fini(&a);
    unlink(file);
    rmdir(dir);
}

static const char *const refused[][3] = {
    /* configuration, key, value as the message shows it */
    {LLAMA ",\"partial_rotary_factor\":0.5", "partial_rotary_factor", "0.5"},
    {LLAMA ",\"embedding_multiplier\":12", "embedding_multiplier", "12"},
    {LLAMA ",\"logits_scaling\":8.0", "logits_scaling", "8"},
    {LLAMA ",\"logit_scale\":0.0625", "logit_scale", "0.0625"},
    {LLAMA ",\"residual_multiplier\":0.22", "residual_multiplier", "0.22"},
    {LLAMA ",\"attention_multiplier\":0.0078125", "attention_multiplier", "0.0078125"},
    {LLAMA ",\"scale_depth\":1.4", "scale_depth", "1.4"},
    {LLAMA ",\"attn_logit_softcapping\":50.0", "attn_logit_softcapping", "50"},
    {LLAMA ",\"final_logit_softcapping\":30", "final_logit_softcapping", "30"},
    {LLAMA ",\"use_bidirectional_attention\":true", "use_bidirectional_attention", "true"},
    {LLAMA ",\"use_logn_attn\":true", "use_logn_attn", "true"},
    {LLAMA ",\"layernorm_1p\":true", "layernorm_1p", "true"},
    {LLAMA ",\"layernorm_mlp_beta\":3.5", "layernorm_mlp_beta", "3.5"},
    {LLAMA ",\"use_gated_mlp\":false", "use_gated_mlp", "false"},
    {LLAMA ",\"max_position_interpolation\":2", "max_position_interpolation", "2"},
    {LLAMA ",\"position_encoding_type\":\"learned\"", "position_encoding_type", "learned"},
    {LLAMA ",\"query_pre_attn_scalar\":256", "query_pre_attn_scalar", "256"},
    {LLAMA ",\"clip_qkv\":8", "clip_qkv", "8"},
    {LLAMA ",\"no_rope_layers\":[1,0]", "no_rope_layers", "[...]"},
    {LLAMA ",\"use_rope\":false", "use_rope", "false"},
    {LLAMA ",\"is_causal\":false", "is_causal", "false"},
    {LLAMA ",\"alibi\":true", "alibi", "true"},
    {LLAMA ",\"use_qk_norm\":true", "use_qk_norm", "true"},
    {LLAMA ",\"parallel_attn\":true", "parallel_attn", "true"},
    {LLAMA ",\"norm_type\":\"layernorm\"", "norm_type", "layernorm"},
    {LLAMA ",\"hidden_activation\":\"gelu_pytorch_tanh\"", "hidden_activation",
     "gelu_pytorch_tanh"},
    {LLAMA ",\"attention_chunk_size\":8192", "attention_chunk_size", "8192"},
    {LLAMA ",\"sliding_window\":16", "sliding_window", "16"},
    {LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "layer_types[1]",
     "no sliding window"},
    {LLAMA ",\"layer_types\":[\"full_attention\",\"linear_attention\"]", "layer_types[1]",
     "linear_attention"},
    {LLAMA ",\"layer_types\":[\"full_attention\"]", "layer_types", "1 entries"},
    {LLAMA ",\"num_local_experts\":8", "num_local_experts", "8"},
    {MOE ",\"num_local_experts\":6", "num_local_experts", "num_experts"},
    {LLAMA ",\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"yarn\","
           "\"factor\":4,\"original_max_position_embeddings\":32}",
     "original_max_position_embeddings is 64", "32 in rope_scaling"},
    {LLAMA ",\"q_lora_rank\":16", "q_lora_rank", "16"},
    {LLAMA ",\"v_head_dim\":32", "v_head_dim", "32"},
    {LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"factor\":4}", "factor", "4"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4,\"attention_factor\":1.2}",
     "attention_factor", "1.2"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"short_factor\":[1]}",
     "short_factor", "[...]"},
    {LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"attn_factor\":0.8}",
     "attn_factor", "0.8"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},\"rope_parameters\":{\"rope_"
           "type\":\"default\",\"rope_theta\":1e4}",
     "differ", "type"},
    {LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}", "rope_type", "dynamic"},
    {"\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_"
     "heads\":4,\"vocab_size\":300,\"layer_norm_eps\":1e-5",
     "layer_norm_eps", "rms_norm_eps"},
    {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":8,\"layer_types\":[\"full_"
           "attention\",\"chunked_attention\"]",
     "layer_types[1]", "chunked"},
    {LLAMA ",\"layer_norm_eps\":1e-6", "layer_norm_eps", "1e-06"},
    {LLAMA ",\"num_key_value_heads_per_layer\":[2,1]", "num_key_value_heads_per_layer", "[...]"},
    {LLAMA ",\"loop_num\":2", "loop_num", "2"},
    {LLAMA ",\"total_ut_steps\":4", "total_ut_steps", "4"},
    {LLAMA ",\"value_residual\":true", "value_residual", "true"},
    {LLAMA ",\"value_head_dim\":32", "value_head_dim", "32"},
    {LLAMA ",\"n_layers\":3", "n_layers", "3"},
    {LLAMA ",\"ffn_hidden_size\":128", "ffn_hidden_size", "128"},
    {LLAMA ",\"mixer\":\"mamba\"", "mixer", "mamba"},
    {LLAMA ",\"anything_new\":1", "anything_new", "is 1: this key is not known"},
    {LLAMA ",\"dual_chunk_attention_config\":{\"chunk_size\":64}",
     "dual_chunk_attention_config", "{...}"},
    {V3 ",\"dual_chunk_attention_config\":{\"chunk_size\":64}",
     "dual_chunk_attention_config", "{...}"},
    {QWEN2 ",\"dual_chunk_attention_config\":{\"chunk_size\":64,\"local_size\":64}",
     "local_size", "64"},
    {QWEN2 ",\"use_mrope\":true", "use_mrope", "true"},
    {QWEN3 ",\"attention_sink_bias\":true", "attention_sink_bias", "true"},
    {QWEN3 ",\"attn_output_gate\":true", "attn_output_gate", "true"},
    {MOE ",\"n_shared_experts\":1", "n_shared_experts", "1"},
    {MOE ",\"shared_expert_intermediate_size\":64", "shared_expert_intermediate_size", "64"},
    {MOE ",\"n_group\":4", "n_group", "4"},
    {MOE ",\"scoring_func\":\"sigmoid\"", "scoring_func", "sigmoid"},
    {MOE ",\"routed_scaling_factor\":2.5", "routed_scaling_factor", "2.5"},
    {MOE ",\"first_k_dense_replace\":1", "first_k_dense_replace", "1"},
    {MOE ",\"layer_types\":[\"full_attention\",\"full_attention\"],\"use_sliding_window\":true,"
         "\"sliding_window\":8",
     "layer_types[0]", "all layers"},
    {V2 ",\"scoring_func\":\"sigmoid\"", "scoring_func", "sigmoid"},
    {V2 ",\"attention_bias\":true", "attention_bias", "MLA"},
    {V3 ",\"sliding_window\":64", "sliding_window", "64"},
    {V3 ",\"topk_method\":\"greedy\"", "topk_method", "greedy"},
    {V3 ",\"index_topk\":2048", "index_topk", "2048"},
    {V3 ",\"mlp_only_layers\":[1]", "mlp_only_layers", "[...]"},
    {V3 ",\"moe_router_scaling\":3", "moe_router_scaling", "3"},
};

TEST(arch_keys_of_configurations_that_change_numbers_are_refused_by_name)
{
    for (int i = 0; i < BASE_COUNT_OF(refused); i++) {
        struct answer r;
        read_config(refused[i][0], &r);
        if (r.st == SL_OK || !strstr(r.err.text, refused[i][1]) ||
            !strstr(r.err.text, refused[i][2]))
            fail_msg("case %d, %s: status %d, text '%s'", i, refused[i][1], r.st, r.err.text);
    }
}

TEST(arch_keys_that_change_nothing_are_taken)
{
    static const char *const t[] = {
        LLAMA ",\"partial_rotary_factor\":1.0,\"logit_scale\":1,\"use_rope\":true,\"alibi\":false,"
              "\"is_causal\":true,"
              "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":0,\"clip_qkv\":null,"
              "\"num_local_experts\":0,\"no_rope_layers\":[],"
              "\"layer_types\":[\"full_attention\",\"full_attention\"],\"pretraining_tp\":1,"
              "\"attention_dropout\":0.1,\"initializer_range\":0.02,"
              "\"chunk_size_feed_forward\":0,\"pruned_heads\":{},\"is_encoder_decoder\":false,"
              "\"add_cross_attention\":false,\"repetition_penalty\":1.1,"
              "\"temperature\":0.6,\"layer_norm_eps\":1e-5,\"norm_topk_prob\":true,\"sliding_"
              "window\":4096",
        LLAMA ",\"rope_theta\":10000.0,\"rope_scaling\":null,\"rope_parameters\":{\"rope_type\":"
              "\"default\",\"rope_theta\":10000.0,\"partial_rotary_factor\":1.0}",
        LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},\"rope_parameters\":{\"rope_"
              "type\":\"linear\",\"factor\":2,\"rope_theta\":10000}",
        LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"finetuned\":true,\"original_max_"
              "position_embeddings\":1024,\"extrapolation_factor\":1,"
              "\"attn_factor\":1,\"truncate\":true}",
        QWEN2 ",\"use_sliding_window\":false,\"sliding_window\":131072,\"max_window_layers\":28,"
              "\"use_mrope\":false,\"attention_bias\":true,\"qkv_bias\":true",
        QWEN3 ",\"use_sliding_window\":false,\"sliding_window\":null,\"max_window_layers\":40,"
              "\"use_qk_norm\":true",
        MOE ",\"output_router_logits\":false,\"router_aux_loss_coef\":0.001,\"decoder_sparse_"
            "step\":1,\"mlp_only_layers\":[],\"scoring_func\":\"softmax\","
            "\"n_shared_experts\":null,\"max_window_layers\":48,\"experts_implementation\":"
            "\"grouped_mm\"",
        V2 ",\"aux_loss_alpha\":0.001,\"seq_aux\":true,\"ep_size\":1,\"scoring_func\":\"softmax\","
           "\"norm_topk_prob\":false,\"moe_layer_freq\":1,"
           "\"attention_bias\":false,\"pretraining_tp\":1",
        V3 ",\"aux_loss_alpha\":0.001,\"seq_aux\":true,\"ep_size\":1,\"scoring_func\":\"sigmoid\","
           "\"topk_method\":\"noaux_tc\",\"moe_layer_freq\":1,"
           "\"qk_head_dim\":24,\"rope_interleave\":true,\"num_nextn_predict_layers\":1,\"router_"
           "dtype\":\"float32\"",
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct answer r;
        read_config(t[i], &r);
        if (r.st != SL_OK) fail_msg("case %d: %s", i, r.err.text);
    }
}

/* Attention over chunks is ordinary attention in the first one. */
TEST(arch_dual_chunks_bound_the_context)
{
    static const struct {
        const char *text;
        int n_ctx;
    } t[] = {
        {QWEN2 ",\"dual_chunk_attention_config\":null", 4096},
        {QWEN2 ",\"dual_chunk_attention_config\":{\"chunk_size\":2048,\"local_size\":256}", 1792},
        {QWEN3 ",\"dual_chunk_attention_config\":{\"chunk_size\":2048,\"local_size\":256,"
               "\"original_max_position_embeddings\":1024}",
         1024},
        {MOE ",\"dual_chunk_attention_config\":{\"chunk_size\":262144,\"local_size\":8192}",
         4096},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct answer r;
        read_config(t[i].text, &r);
        if (r.st != SL_OK || r.cfg.n_ctx_train != t[i].n_ctx)
            fail_msg("case %d: %d %s, context %d", i, r.st, r.err.text, r.cfg.n_ctx_train);
    }
}

TEST(arch_layer_types_say_which_layers_have_the_window)
{
    static const struct {
        const char *text;
        int window, layer[2];
    } t[] = {
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":1",
         16,
         {0, 1}},
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":0,\"layer_"
               "types\":[\"sliding_attention\",\"full_attention\"]",
         16,
         {1, 0}},
        {QWEN3 ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":2,\"layer_"
               "types\":[\"full_attention\",\"sliding_attention\"]",
         16,
         {0, 1}},
        {QWEN3 ",\"use_sliding_window\":true,\"max_window_layers\":0", 4096, {1, 1}},
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":0",
         0,
         {0, 0}},
        {QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":16", 16, {0, 0}},
        {MOE ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":28",
         16,
         {1, 1}},
        {"\"model_type\":\"mistral\"," SMALL, 4096, {1, 1}},
        {"\"model_type\":\"mistral\"," SMALL ",\"sliding_window\":null", 0, {0, 0}},
        {"\"model_type\":\"mistral\"," SMALL ",\"sliding_window\":32", 32, {1, 1}},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct answer r;
        read_config(t[i].text, &r);
        if (r.st != SL_OK || r.cfg.n_window != t[i].window || r.window[0] != t[i].layer[0] ||
            r.window[1] != t[i].layer[1])
            fail_msg("case %d: %d %s, window %d in %d %d", i, r.st, r.err.text, r.cfg.n_window,
                     r.window[0], r.window[1]);
    }
}

/* ---- GGUF ---- */

static void read_gguf(const char *arch, const char *const *more, struct answer *r)
{
    static const char *const base[] = {
        "block_count u32=4 u32=2",          "embedding_length u32=4 u32=64",
        "feed_forward_length u32=4 u32=96", "context_length u32=4 u32=512",
        "attention.head_count u32=4 u32=4", "attention.layer_norm_rms_epsilon u32=6 f32=1e-6"};
    char word[160];
    struct make *kv;
    struct arena a;
    io_model *m = NULL;
    uint8_t *copy = NULL;
    uint64_t n_kv = 1;
    snprintf(word, sizeof word, "s=general.architecture u32=8 s=%s", arch);
    kv = make_file(word);
    for (int i = 0; i < BASE_COUNT_OF(base) + 4; i++) {
        const char *k = i < BASE_COUNT_OF(base) ? base[i] : more[i - BASE_COUNT_OF(base)];
        if (!k) break;
        snprintf(word, sizeof word, "s=%s.%s", arch, k);
        make_key(kv, &n_kv, word);
    }
    struct make *f = make_gguf(kv, n_kv);
    mem_arena_init(&a, MEM_MISC, 0);
    memset(r, 0, sizeof *r);
    r->st = make_open(f->p, f->n, &m, &copy, &r->err);
    if (r->st == SL_OK) r->st = arch_cfg_read(m, &a, &r->cfg, &r->err);
    for (int i = 0; r->st == SL_OK && i < BASE_MIN(r->cfg.n_layer, 8); i++)
        r->window[i] = r->cfg.layer[i].n_window > 0;
    io_close(m);
    mem_arena_fini(&a);
    free(copy);
    free(f);
}

TEST(arch_refuses_gpt_oss_without_experts)
{
    static const char *const none[4] = {NULL};
    struct answer r;
    read_gguf("gpt-oss", none, &r);
    assert_int_equal(r.st, SL_FORMAT);
    assert_non_null(strstr(r.err.text, "gpt-oss.expert_count is missing"));
    const char *const no_window[] = {"expert_count u32=4 u32=8", "expert_used_count u32=4 u32=2",
                                     NULL};
    read_gguf("gpt-oss", no_window, &r);
    assert_int_equal(r.st, SL_FORMAT);
    assert_non_null(strstr(r.err.text, "gpt-oss.attention.sliding_window is missing"));
}

TEST(arch_gguf_keys_that_change_numbers_are_refused_by_name)
{
    static const struct {
        const char *arch, *key, *refused; /* NULL = taken */
    } t[] = {
        {"llama", "attention.causal u32=7 u8=0", "attention.causal is false"},
        {"llama", "attention.causal u32=7 u8=1", NULL},
        {"llama", "embedding_scale u32=6 f32=12", "embedding_scale is 12"},
        {"llama", "embedding_scale u32=6 f32=1", NULL},
        {"llama", "residual_scale u32=6 f32=0.5", "residual_scale is 0.5"},
        {"llama", "logit_scale u32=6 f32=0.5", "logit_scale is 0.5"},
        {"llama", "logit_scale u32=6 f32=0", NULL},
        {"llama", "attention.scale u32=6 f32=0.5", NULL},
        {"llama", "attn_logit_softcapping u32=6 f32=50", "attn_logit_softcapping is 50"},
        {"llama", "attention.clamp_kqv u32=6 f32=8", "attention.clamp_kqv is 8"},
        {"llama", "attention.max_alibi_bias u32=6 f32=8", "attention.max_alibi_bias is 8"},
        {"llama", "attention.value_length u32=4 u32=8", "attention.value_length is 8"},
        {"llama", "use_parallel_residual u32=7 u8=1", "use_parallel_residual is true"},
        {"llama", "rope.dimension_sections u32=9 u32=5 u64=2 u32=8 u32=8",
         "rope.dimension_sections"},
        {"llama", "rope.dimension_sections u32=9 u32=5 u64=2 u32=0 u32=0", NULL},
        {"llama", "rope.scaling.yarn_ext_factor u32=6 f32=0.5", "yarn_ext_factor is 0.5"},
        {"qwen3", "attention.shared_kv_layers u32=4 u32=1", "shared_kv_layers is 1"},
        {"qwen3", "expert_count u32=4 u32=8", "expert_count is 8"},
        {"qwen2", "attention.q_lora_rank u32=4 u32=8", "q_lora_rank is 8"},
        {"qwen2", "pooling_type u32=4 u32=3", NULL},
        {"llama", "attention.layer_norm_epsilon u32=6 f32=1e-6", NULL},
        {"llama", "attention.layer_norm_epsilon u32=6 f32=1e-5", "layer_norm_epsilon is 1e-05"},
        {"llama", "anything_new u32=4 u32=1", "anything_new is 1"},
        {"llama", "anything_new u32=4 u32=0", NULL},
        {"llama", "loop_count u32=4 u32=2", "loop_count is 2"},
        {"llama", "expert_used_count u32=4 u32=2", NULL},
        {"llama", "tensor_data_layout u32=8 s=Meta", NULL},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        const char *const more[] = {t[i].key, NULL};
        struct answer r;
        read_gguf(t[i].arch, more, &r);
        if (t[i].refused ? r.st == SL_OK || !strstr(r.err.text, t[i].refused) : r.st != SL_OK)
            fail_msg("case %d, %s: status %d, text '%s'", i, t[i].key, r.st, r.err.text);
    }
}

TEST(arch_gguf_rope_without_a_type_is_linear)
{
    static const struct {
        const char *key[4];
        int kind;
        double factor;
    } t[] = {
        {{"rope.scaling.factor u32=6 f32=4"}, ARCH_ROPE_LINEAR, 4},
        {{"rope.scale_linear u32=6 f32=8"}, ARCH_ROPE_LINEAR, 8},
        {{"rope.scale_linear u32=6 f32=8", "rope.scaling.factor u32=6 f32=2"},
         ARCH_ROPE_LINEAR,
         2},
        {{"rope.scaling.type u32=8 s=none", "rope.scaling.factor u32=6 f32=4"},
         ARCH_ROPE_PLAIN,
         1},
        {{"rope.scaling.factor u32=6 f32=0"}, ARCH_ROPE_PLAIN, 1},
        {{"rope.scaling.type u32=8 s=yarn", "rope.scaling.factor u32=6 f32=4"}, ARCH_ROPE_YARN, 4},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct answer r;
        read_gguf("llama", t[i].key, &r);
        if (r.st != SL_OK || (int)r.cfg.rope_kind != t[i].kind || r.cfg.rope_factor != t[i].factor)
            fail_msg("case %d: status %d, text '%s', kind %d, factor %g", i, r.st, r.err.text,
                     (int)r.cfg.rope_kind, r.cfg.rope_factor);
    }
}

TEST(arch_gguf_window_is_per_layer)
{
    static const struct {
        const char *pattern;
        int layer[2];
    } t[] = {{NULL, {1, 1}},
             {"attention.sliding_window_pattern u32=4 u32=2", {1, 0}},
             {"attention.sliding_window_pattern u32=9 u32=7 u64=2 u8=0 u8=1", {0, 1}},
             {"attention.sliding_window_pattern u32=9 u32=5 u64=2 u32=1 u32=0", {1, 0}}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        const char *const more[] = {"attention.sliding_window u32=4 u32=16", t[i].pattern, NULL};
        struct answer r;
        read_gguf("qwen3", more, &r);
        if (r.st != SL_OK || r.cfg.n_window != 16 || r.window[0] != t[i].layer[0] ||
            r.window[1] != t[i].layer[1])
            fail_msg("case %d: status %d, text '%s', window in %d %d", i, r.st, r.err.text,
                     r.window[0], r.window[1]);
    }
}
