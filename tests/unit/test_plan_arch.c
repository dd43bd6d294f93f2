/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's figures of families that room arch reads: tiny checkpoints against their tensors,
 * published models against what is known of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch.h"
#include "os/os.h"
#include "plan/plan.h"
#include "tensor/delta_state.h"
#include "test.h"

static void near(const char *what, double got, double want, double rel)
{
    if (!(fabs(got - want) <= rel * fabs(want))) fail_msg("%s: %.9g is not %.9g", what, got, want);
}

/* Numbers of the matrices of the file: of all layers but MTP's, and those read for a token. True:
 * it has an MTP layer. */
static bool count(const io_model *io, const struct arch_cfg *c, double *total, double *active,
                  double *left)
{
    bool mtp = false;
    *total = *active = *left = 0;
    for (int i = 0; i < io_n_tensor(io); i++) {
        const struct tensor *t = io_tensor(io, i);
        double n = (double)io_tensor_params(io, i);
        struct arch_name id;
        arch_name_parse(&c->naming, t->name, &id);
        if (arch_is_mtp_left(c, t->name, &id)) { /* no layer that anything reads */
            *left += arch_is_beside_text(io, &id) ? 0 : n;
            continue;
        }
        mtp |= id.layer >= c->n_layer;
        if (id.layer >= c->n_layer || strcmp(id.suffix, "bias") == 0 || t->n_dim < 2 ||
            id.role == ROLE_DELTA_DECAY || id.role == ROLE_EXPERT_OF ||
            id.role == ROLE_ENTRY_APE || id.role == ROLE_INDEX_ENTRY_APE ||
            arch_is_beside_text(io, &id))
            continue;
        *total += n;
        bool expert = id.role == ROLE_GATE_EXPS || id.role == ROLE_UP_EXPS ||
                      id.role == ROLE_DOWN_EXPS || id.role == ROLE_GATE_UP_EXPS;
        bool lookup = id.global == GLOBAL_EMBED && !c->tied_head;
        *active += lookup ? 0 : expert ? n * c->n_expert_used / c->n_expert : n;
    }
    return mtp;
}

static void one(const char *name)
{
    char path[1024];
    struct arena a;
    struct arch_cfg c;
    struct plan_model m = {0}, by_text = {0};
    char *text = NULL, why[200];
    uint64_t n = 0;
    double total, active, left;
    io_model *io = NULL;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    snprintf(path, sizeof path, "%s/%s", TEST_TINY, name);
    ASSERT_OK(io_open(path, false, &io, &err));
    ASSERT_OK(arch_cfg_read(io, &a, &c, &err));
    plan_model_from_arch(&m, &c);
    assert_true(plan_model_finish(&m, why, sizeof why));
    bool mtp = count(io, &c, &total, &active, &left);
    /* the norms that the planner counts */
    double vectors = m.layers * 2.0 * c.d_model + (m.layers - m.n_lin) * (c.kv_lora + c.q_lora);
    if (fabs(m.total - vectors - total) > 0.5 || fabs(m.active - vectors - active) > 0.5)
        fail_msg("%s: %.0f and %.0f parameters, %.0f and %.0f in the file", name,
                 m.total - vectors, m.active - vectors, total, active);
    int64_t all, one;
    arch_count_params(io, &c, &all, &one); /* what inspect prints */
    near(name, m.total + (mtp ? m.p_mtp : 0), (double)all - left, 0.03);
    near(name, m.active, (double)one, 0.03);
    if (io_model_kind(io) == IO_HF) {
        snprintf(path, sizeof path, "%s/%s/config.json", TEST_TINY, name);
        ASSERT_OK(os_read_file(path, 1 << 20, &text, &n, &err));
        struct plan_bytes b = {"config.json", text, n};
        ASSERT_OK(plan_model_from_config(&by_text, &a, name, b, &err));
        near(name, by_text.total, m.total, 0);
        near(name, by_text.kv_token, m.kv_token, 0);
        mem_free(text);
    }
    io_close(io);
    mem_arena_fini(&a);
}

/* All of them: whoever adds an architecture has no list to lengthen here. */
TEST(plan_counts_what_tiny_checkpoints_hold)
{
    struct arena a;
    const struct json *all = NULL;
    char *text = NULL;
    uint64_t n = 0;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(os_read_file(TEST_TINY "/manifest.json", 1 << 20, &text, &n, &err));
    ASSERT_OK(text_json_parse(&a, "manifest.json", text, n, &all, &err));
    assert_true(all->kind == JSON_ARRAY_K && all->n > 26);
    for (const struct json *v = all->child; v; v = v->next) {
        const char *name = NULL;
        ASSERT_OK(text_json_str(v, "model", NULL, &name, &err));
        one(name);
    }
    mem_free(text);
    mem_arena_fini(&a);
}

/* What makers publish, whole but for lists of layers that all say the same and what is beside the
 * model of text. */
#define GLM(more)                                                                                  \
    "{\"architectures\":[\"Glm4MoeForCausalLM\"],\"attention_bias\":true,"                         \
    "\"eos_token_id\":[151329,151336,151338],\"head_dim\":128,\"hidden_act\":\"silu\","            \
    "\"partial_rotary_factor\":0.5,\"max_position_embeddings\":131072,"                            \
    "\"model_type\":\"glm4_moe\",\"norm_topk_prob\":true,\"num_attention_heads\":96,"              \
    "\"n_group\":1,\"topk_group\":1,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"             \
    "\"num_key_value_heads\":8,\"num_nextn_predict_layers\":1,\"rms_norm_eps\":1e-05,"             \
    "\"rope_scaling\":null,\"rope_theta\":1000000,\"tie_word_embeddings\":false,"                  \
    "\"use_cache\":true,\"vocab_size\":151552," more "}"
#define OSS(more)                                                                                  \
    "{\"architectures\":[\"GptOssForCausalLM\"],\"attention_bias\":true,"                          \
    "\"experts_per_token\":4,\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":2880,"        \
    "\"initial_context_length\":4096,\"intermediate_size\":2880,"                                  \
    "\"max_position_embeddings\":131072,\"model_type\":\"gpt_oss\",\"num_attention_heads\":64,"    \
    "\"num_experts_per_tok\":4,\"num_key_value_heads\":8,\"output_router_logits\":false,"          \
    "\"quantization_config\":{\"quant_method\":\"mxfp4\"},\"rms_norm_eps\":1e-05,"                 \
    "\"rope_scaling\":{\"beta_fast\":32.0,\"beta_slow\":1.0,\"factor\":32.0,"                      \
    "\"original_max_position_embeddings\":4096,\"rope_type\":\"yarn\",\"truncate\":false},"        \
    "\"rope_theta\":150000,\"router_aux_loss_coef\":0.9,\"sliding_window\":128,"                   \
    "\"swiglu_limit\":7.0,\"tie_word_embeddings\":false,\"vocab_size\":201088," more "}"
#define GLM5(more)                                                                                 \
    "{\"attention_bias\":false,\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":6144,"      \
    "\"index_head_dim\":128,\"index_n_heads\":32,\"index_topk\":2048,"                            \
    "\"indexer_rope_interleave\":true,\"intermediate_size\":12288,\"kv_lora_rank\":512,"          \
    "\"max_position_embeddings\":202752,\"model_type\":\"glm_moe_dsa\","                          \
    "\"moe_intermediate_size\":2048,\"n_group\":1,\"topk_group\":1,\"n_routed_experts\":256,"      \
    "\"n_shared_experts\":1,\"num_experts_per_tok\":8,\"first_k_dense_replace\":3,"               \
    "\"num_attention_heads\":64,\"num_hidden_layers\":78,\"num_key_value_heads\":64,"             \
    "\"num_nextn_predict_layers\":1,\"q_lora_rank\":2048,\"qk_nope_head_dim\":192,"               \
    "\"qk_rope_head_dim\":64,\"v_head_dim\":256,\"rms_norm_eps\":1e-05,\"rope_parameters\":"      \
    "{\"rope_theta\":1000000,\"rope_type\":\"default\"},\"routed_scaling_factor\":2.5,"           \
    "\"topk_method\":\"noaux_tc\"," more "\"vocab_size\":154880}"
#define M3_LAYERS                                                                                  \
    "[0,0,0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"                                \
    "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"
static const struct {
    const char *name, *text;
    double total, active; /* billions, as published; 0 = only roughly known */
    double with_mtp;      /* billions that the published files hold */
    double kv;            /* bytes of BF16 that a further token of a long context takes */
    int n_mtp, n_window;
} real[] = {
    {"GLM-4.5",
     GLM("\"hidden_size\":5120,\"intermediate_size\":12288,\"moe_intermediate_size\":1536,"
         "\"n_routed_experts\":160,\"routed_scaling_factor\":2.5,\"first_k_dense_replace\":3,"
         "\"num_hidden_layers\":92,\"use_qk_norm\":true"),
     355, 32, 358, 376832, 1, 0},
    {"GLM-4.5-Air",
     GLM("\"hidden_size\":4096,\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"
         "\"n_routed_experts\":128,\"routed_scaling_factor\":1.0,\"first_k_dense_replace\":1,"
         "\"num_hidden_layers\":46,\"use_qk_norm\":false"),
     106, 12, 110, 188416, 1, 0},
    {"MiniMax-M2",
     "{\"architectures\":[\"MiniMaxM2ForCausalLM\"],\"attention_dropout\":0.0,"
     "\"attn_type_list\":[1,1],\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":3072,"
     "\"initializer_range\":0.02,\"intermediate_size\":1536,"
     "\"layernorm_full_attention_beta\":1.0,\"layernorm_linear_attention_beta\":1.0,"
     "\"layernorm_mlp_beta\":1.0,\"max_position_embeddings\":196608,"
     "\"mlp_intermediate_size\":8192,\"model_type\":\"minimax_m2\","
     "\"mtp_transformer_layers\":1,\"num_attention_heads\":48,\"num_experts_per_tok\":8,"
     "\"num_hidden_layers\":62,\"num_key_value_heads\":8,\"num_local_experts\":256,"
     "\"num_mtp_modules\":3,\"output_router_logits\":false,\"qk_norm_type\":\"per_layer\","
     "\"rms_norm_eps\":1e-06,\"rope_theta\":5000000,\"rotary_dim\":64,"
     "\"router_aux_loss_coef\":0.001,\"router_jitter_noise\":0.0,\"scoring_func\":\"sigmoid\","
     "\"shared_intermediate_size\":0,\"shared_moe_mode\":\"sigmoid\",\"sliding_window\":null,"
     "\"tie_word_embeddings\":false,\"use_cache\":true,\"use_mtp\":true,\"use_qk_norm\":true,"
     "\"use_routing_bias\":true,\"vocab_size\":200064}",
     229, 10, 0, 253952, 0, 0},
    {"MiniMax-M3", /* as transformers' defaults say; the numbers are counted, not looked up */
     "{\"model_type\":\"minimax_m3_vl\",\"text_config\":{\"head_dim\":128,"
     "\"hidden_act\":\"swigluoai\",\"hidden_size\":6144,\"intermediate_size\":3072,"
     "\"dense_intermediate_size\":12288,\"shared_intermediate_size\":3072,"
     "\"max_position_embeddings\":524288,\"moe_layer_freq\":" M3_LAYERS ","
     "\"num_attention_heads\":64,\"num_experts_per_tok\":4,\"num_hidden_layers\":60,"
     "\"num_key_value_heads\":4,\"num_local_experts\":128,\"rms_norm_eps\":1e-06,"
     "\"rope_theta\":5000000,\"rotary_dim\":64,\"routed_scaling_factor\":2.0,"
     "\"sparse_attention_config\":{\"sparse_num_index_heads\":4,\"sparse_index_dim\":128,"
     "\"sparse_block_size\":128,\"sparse_topk_blocks\":16,\"sparse_local_block\":1,"
     "\"sparse_attention_freq\":" M3_LAYERS "},\"swiglu_alpha\":1.702,\"swiglu_limit\":7.0,"
     "\"tie_word_embeddings\":false,\"vocab_size\":200064}}",
     426.17, 24.73, 0, 138240, 0, 0},
    {"Kimi-K2",
     "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"attention_bias\":false,"
     "\"aux_loss_alpha\":0.001,\"ep_size\":1,\"first_k_dense_replace\":1,"
     "\"hidden_act\":\"silu\",\"hidden_size\":7168,\"intermediate_size\":18432,"
     "\"kv_lora_rank\":512,\"max_position_embeddings\":131072,\"model_type\":\"kimi_k2\","
     "\"moe_intermediate_size\":2048,\"moe_layer_freq\":1,\"n_group\":1,"
     "\"n_routed_experts\":384,\"n_shared_experts\":1,\"norm_topk_prob\":true,"
     "\"num_attention_heads\":64,\"num_experts_per_tok\":8,\"num_hidden_layers\":61,"
     "\"num_key_value_heads\":64,\"num_nextn_predict_layers\":0,\"pretraining_tp\":1,"
     "\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"
     "\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"beta_fast\":1.0,\"beta_slow\":1.0,"
     "\"factor\":32.0,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
     "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":50000.0,"
     "\"routed_scaling_factor\":2.827,\"scoring_func\":\"sigmoid\",\"seq_aux\":true,"
     "\"tie_word_embeddings\":false,\"topk_group\":1,\"topk_method\":\"noaux_tc\","
     "\"use_cache\":true,\"v_head_dim\":128,\"vocab_size\":163840}",
     1026, 32, 0, 70272, 0, 0},
    {"Kimi-Linear-48B-A3B",
     "{\"first_k_dense_replace\":1,\"head_dim\":72,\"hidden_size\":2304,"
     "\"intermediate_size\":9216,\"kv_lora_rank\":512,\"linear_attn_config\":{"
     "\"full_attn_layers\":[4,8,12,16,20,24,27],\"head_dim\":128,"
     "\"kda_layers\":[1,2,3,5,6,7,9,10,11,13,14,15,17,18,19,21,22,23,25,26],\"num_heads\":32,"
     "\"short_conv_kernel_size\":4},\"mla_use_nope\":true,\"model_max_length\":1048576,"
     "\"model_type\":\"kimi_linear\",\"moe_intermediate_size\":1024,\"num_attention_heads\":32,"
     "\"num_experts\":256,\"num_experts_per_token\":8,\"num_hidden_layers\":27,"
     "\"num_shared_experts\":1,\"q_lora_rank\":null,\"qk_nope_head_dim\":128,"
     "\"qk_rope_head_dim\":64,\"routed_scaling_factor\":2.446,\"v_head_dim\":128,"
     "\"vocab_size\":163840}",
     49.1, 3.0, 0, 8064, 0, 0},
    {"Ling-3.0-flash",
     "{\"first_k_dense_replace\":2,\"head_dim\":128,\"hidden_size\":2560,"
     "\"intermediate_size\":6144,\"kda_lower_bound\":-5,\"kv_lora_rank\":512,"
     "\"layer_group_size\":6,\"max_position_embeddings\":262144,"
     "\"model_type\":\"bailing_hybrid\",\"moe_intermediate_size\":768,\"n_group\":8,"
     "\"num_attention_heads\":32,\"num_experts\":512,\"num_experts_per_tok\":8,"
     "\"num_hidden_layers\":42,\"num_nextn_predict_layers\":1,\"num_shared_experts\":1,"
     "\"q_lora_rank\":null,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"
     "\"rope_theta\":6000000,\"routed_scaling_factor\":2.5,\"topk_group\":4,"
     "\"v_head_dim\":128,\"vocab_size\":157184}",
     124, 5.1, 127, 8064, 1, 0},
    {"GLM-5.3-Flash", /* as transformers' defaults say, but for the pool; counted, not looked up */
     "{\"model_type\":\"glm5_next_text\",\"hidden_size\":4096,\"intermediate_size\":12288,"
     "\"moe_intermediate_size\":2048,\"num_hidden_layers\":45,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":64,\"q_lora_rank\":1536,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":256,\"qk_rope_head_dim\":0,\"v_head_dim\":256,"
     "\"n_routed_experts\":288,\"n_shared_experts\":1,\"num_experts_per_tok\":8,"
     "\"index_n_heads\":32,\"index_head_dim\":128,\"index_topk\":2048,\"index_kpool\":4,"
     "\"rms_norm_eps\":1e-05,\"num_nextn_predict_layers\":1,\"vocab_size\":154880}",
     313.33, 16.74, 0, 12672, 1, 0},
    {"GLM-4.7-Flash",
     "{\"architectures\":[\"Glm4MoeLiteForCausalLM\"],\"attention_bias\":false,"
     "\"attention_dropout\":0.0,\"eos_token_id\":[154820,154827,154829],"
     "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"intermediate_size\":10240,"
     "\"max_position_embeddings\":202752,\"model_type\":\"glm4_moe_lite\","
     "\"moe_intermediate_size\":1536,\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,"
     "\"num_attention_heads\":20,\"n_group\":1,\"topk_group\":1,\"n_routed_experts\":64,"
     "\"n_shared_experts\":1,\"routed_scaling_factor\":1.8,\"num_experts_per_tok\":4,"
     "\"first_k_dense_replace\":1,\"num_hidden_layers\":47,\"num_key_value_heads\":20,"
     "\"num_nextn_predict_layers\":1,\"partial_rotary_factor\":1.0,\"rms_norm_eps\":1e-05,"
     "\"rope_scaling\":null,\"rope_theta\":1000000,\"tie_word_embeddings\":false,"
     "\"q_lora_rank\":768,\"kv_lora_rank\":512,\"qk_nope_head_dim\":192,"
     "\"qk_rope_head_dim\":64,\"v_head_dim\":256,\"vocab_size\":154880}",
     30, 0, 31.2, 54144, 1, 0},
    {"DeepSeek-V3.2",
     "{\"attention_bias\":false,\"ep_size\":1,\"first_k_dense_replace\":3,"
     "\"hidden_act\":\"silu\",\"hidden_size\":7168,\"index_head_dim\":128,\"index_n_heads\":64,"
     "\"index_topk\":2048,\"intermediate_size\":18432,\"kv_lora_rank\":512,"
     "\"max_position_embeddings\":163840,\"model_type\":\"deepseek_v32\","
     "\"moe_intermediate_size\":2048,\"moe_layer_freq\":1,\"n_group\":8,"
     "\"n_routed_experts\":256,\"n_shared_experts\":1,\"norm_topk_prob\":true,"
     "\"num_attention_heads\":128,\"num_experts_per_tok\":8,\"num_hidden_layers\":61,"
     "\"num_key_value_heads\":128,\"num_nextn_predict_layers\":1,\"q_lora_rank\":1536,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"rms_norm_eps\":1e-06,"
     "\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":1.0,"
     "\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},"
     "\"rope_theta\":10000,\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\","
     "\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"v_head_dim\":128,\"vocab_size\":129280}",
     671.9, 37, 685.4, 85888, 1, 0},
    {"GLM-5", GLM5(""), 744, 40, 753.9, 109824, 1, 0},
    {"GLM-5.2", GLM5("\"index_topk_freq\":4,\"index_skip_topk_offset\":3,"), 743.4, 40, 753.3,
     109824, 1, 0},
    {"gpt-oss-20b", OSS("\"num_hidden_layers\":24,\"num_local_experts\":32"), 20.91, 3.61, 0, 24576,
     0, 12},
    {"gpt-oss-120b", OSS("\"num_hidden_layers\":36,\"num_local_experts\":128"), 116.83, 5.13, 0,
     36864, 0, 18},
};

TEST(plan_counts_what_makers_publish)
{
    struct arena a;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    for (int i = 0; i < BASE_COUNT_OF(real); i++) {
        struct plan_model m;
        struct arch_cfg c;
        const struct json *o = NULL;
        struct plan_bytes b = {real[i].name, real[i].text, strlen(real[i].text)};
        ASSERT_OK(text_json_parse(&a, b.name, b.p, b.n, &o, &err));
        ASSERT_OK(arch_cfg_read_json(o, &a, &c, &err)); /* it is served, not only planned */
        ASSERT_OK(plan_model_from_config(&m, &a, b.name, b, &err));
        near(b.name, m.total, real[i].total * 1e9, 0.01);
        if (real[i].active > 0) near(b.name, m.active, real[i].active * 1e9, 0.07);
        if (real[i].with_mtp > 0) near(b.name, m.total + m.p_mtp, real[i].with_mtp * 1e9, 0.01);
        double kv = plan_kv_bytes(&m, 65537, 16, 1) - plan_kv_bytes(&m, 65536, 16, 1);
        near(b.name, kv, real[i].kv, 1e-9);
        assert_int_equal(m.mtp_layers, real[i].n_mtp);
        assert_int_equal(m.n_window, real[i].n_window);
    }
    mem_arena_fini(&a);
}

/* docs/serving.md: 2.7 MB a layer, and what the engine's cache has for it. */
TEST(plan_states_are_as_large_as_the_caches)
{
    struct plan_model m = {.attn = PLAN_ATTN_MLA, .layers = 27, .n_lin = 20, .lin_k = 32};
    m.lin_v = 32, m.lin_d = m.lin_key = 128, m.lin_conv = 4, m.lin_each = true;
    near("states", plan_state_bytes(&m), 4.0 * 20 * tensor_delta_state(32, 32, 128, 128, 4, true),
         0);
    near("states", plan_state_bytes(&m), 54.1e6, 1e-3);
    m.n_lin = 0;
    near("none", plan_state_bytes(&m), 0, 0);
}

TEST(plan_reads_what_this_engine_refuses)
{
    static const char text[] =
        "{\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"hidden_size\":64,\"vocab_size\":320,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
        "\"intermediate_size\":128,\"attn_logit_softcapping\":50.0}";
    static const char bad[] =
        "{\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"hidden_size\":-64,"
        "\"vocab_size\":320,\"num_attention_heads\":4}";
    struct arena a;
    struct plan_model m;
    sl_err err;
    mem_arena_init(&a, MEM_MISC, 0);
    ASSERT_OK(plan_model_from_config(&m, &a, "x",
                                     (struct plan_bytes){"x.json", text, sizeof text - 1},
                                     &err));
    near("x", m.total, 2.0 * 320 * 64 + 2 * (64.0 * 16 * 12 + 3 * 64 * 128 + 2 * 64), 0);
    ASSERT_STATUS(plan_model_from_config(&m, &a, "x",
                                         (struct plan_bytes){"x.json", bad, sizeof bad - 1}, &err),
                  SL_FORMAT);
    assert_non_null(strstr(err.text, "x.json: hidden_size is -64"));
    ASSERT_STATUS(plan_model_from_config(&m, &a, "x", (struct plan_bytes){"x.json", "1", 1}, &err),
                  SL_FORMAT);
    assert_string_equal(err.text, "x.json: not an object");
    mem_arena_fini(&a);
}
