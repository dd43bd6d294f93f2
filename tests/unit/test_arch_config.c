/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters from config.json: both spellings, every architecture, and numbers that must be
 * refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arch/arch_internal.h"
#include "test.h"

struct read {
    struct arena arena;
    struct arch_cfg cfg;
    sl_status st;
    sl_err err;
};

/* Write config.json into a folder of its own and read the hyperparameters. */
static void read_config(const char *text, struct read *r)
{
    char dir[] = "/tmp/sluice-test-XXXXXX", file[64];
    io_model *io = NULL;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/config.json", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    memset(r, 0, sizeof *r);
    mem_arena_init(&r->arena, MEM_MISC, 0);
    r->st = io_open(dir, true, &io, &r->err);
    if (r->st == SL_OK) r->st = arch_cfg_read(io, &r->arena, &r->cfg, &r->err);
    io_close(io);
    unlink(file);
    rmdir(dir);
}

#define BASE                                                                                       \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":" \
    "4,"                                                                                           \
    "\"num_key_value_heads\":2,\"vocab_size\":300,\"max_position_embeddings\":4096,\"rms_norm_"    \
    "eps\":1e-5"
#define DEEPSEEK                                                                                   \
    BASE                                                                                           \
        ",\"kv_lora_rank\":32,\"q_lora_rank\":24,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,"  \
        "\"v_head_dim\":16,"                                                                       \
        "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,\"n_"       \
        "shared_experts\":1,"                                                                      \
        "\"n_group\":4,\"topk_group\":2,\"first_k_dense_replace\":1,\"routed_scaling_factor\":2.5"

TEST(arch_reads_both_spellings_of_rope)
{
    static const char *const text[] = {
        "{\"model_type\":\"llama\"," BASE
        ",\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
        "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":1024}}",
        "{\"model_type\":\"llama\"," BASE
        ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000.0,\"factor\":8,"
        "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":1024}}"};
    for (int i = 0; i < 2; i++) {
        struct read r;
        read_config(text[i], &r);
        assert_int_equal(r.st, SL_OK);
        assert_true(r.cfg.rope_theta == 500000.0 && r.cfg.rope_factor == 8 &&
                    r.cfg.rope_orig_ctx == 1024);
        assert_int_equal(r.cfg.rope_kind, ARCH_ROPE_LLAMA3);
        assert_int_equal(r.cfg.d_head, 16);
        mem_arena_fini(&r.arena);
    }
}

/* What transformers' classes take where a file says nothing. */
TEST(arch_knows_what_holds_where_a_configuration_does_not_say)
{
    static const struct {
        const char *type, *more;
        double eps, theta;
        int d_head;
    } t[] = {
        {"llama", "", 1e-6, 10000, 16},
        {"qwen3", "", 1e-6, 10000, 128},
        {"glm4_moe", "", 1e-5, 10000, 16},
        {"minimax_m2", ",\"num_local_experts\":8,\"num_experts_per_tok\":2", 1e-6, 5e6, 128},
        {"gpt_oss", ",\"num_local_experts\":8,\"num_experts_per_tok\":2", 1e-5, 150000, 64},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[512];
        struct read r;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                 "\"intermediate_size\":96,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                 "\"vocab_size\":300%s}",
                 t[i].type, t[i].more);
        read_config(text, &r);
        if (r.st) fail_msg("%s: %s", t[i].type, r.err.text);
        assert_true(r.cfg.norm_eps == (float)t[i].eps && r.cfg.rope_theta == t[i].theta);
        assert_int_equal(r.cfg.d_head, t[i].d_head);
        assert_true(fabs(r.cfg.attn_scale - 1 / sqrt(t[i].d_head)) < 1e-12);
        bool yarn = strcmp(t[i].type, "gpt_oss") == 0; /* the class's own */
        assert_int_equal(r.cfg.rope_kind, yarn ? ARCH_ROPE_YARN : ARCH_ROPE_PLAIN);
        assert_true(!yarn || (r.cfg.rope_factor == 32 && r.cfg.rope_orig_ctx == 4096 &&
                              r.cfg.yarn_real && r.cfg.yarn_beta_fast == 32));
        mem_arena_fini(&r.arena);
    }
}

/* As Python takes it, and transformers: a switch that is null is off, and a number is none. */
TEST(arch_null_is_no_value_that_is_left_out)
{
    struct read r;
    read_config("{\"model_type\":\"deepseek_v3\"," DEEPSEEK
                ",\"rope_interleave\":null,\"norm_topk_prob\":null,\"rope_theta\":10000}",
                &r);
    if (r.st) fail_msg("%s", r.err.text);
    assert_true(r.cfg.rope_style == ARCH_ROPE_HALF && !r.cfg.route_norm);
    mem_arena_fini(&r.arena);
    read_config("{\"model_type\":\"glm4_moe\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                "\"num_attention_heads\":4,\"vocab_size\":300,\"partial_rotary_factor\":null}",
                &r);
    if (r.st) fail_msg("%s", r.err.text);
    assert_int_equal(r.cfg.n_rot, 16);
    mem_arena_fini(&r.arena);
    static const char *const bad[] = {"rope_theta", "rms_norm_eps"};
    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"
                 "\"num_attention_heads\":4,\"vocab_size\":300,\"%s\":null}",
                 bad[i]);
        read_config(text, &r);
        assert_true(r.st == SL_FORMAT && strstr(r.err.text, bad[i]));
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_reads_deepseek_v3)
{
    struct read r;
    read_config("{\"model_type\":\"deepseek_v3\"," DEEPSEEK
                ",\"num_nextn_predict_layers\":1,\"rope_theta\":10000,"
                "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0,\"mscale_all_"
                "dim\":1.0,\"beta_fast\":32,"
                "\"beta_slow\":1,\"original_max_position_embeddings\":4096}}",
                &r);
    assert_int_equal(r.st, SL_OK);
    double f = 0.1 * log(40.0) + 1;
    assert_true(fabs(r.cfg.attn_scale - f * f / sqrt(24.0)) < 1e-12);
    assert_true(r.cfg.yarn_mscale == 1.0);
    assert_int_equal(r.cfg.n_mtp, 1);
    assert_int_equal(r.cfg.layer[0].ffn, ARCH_DENSE);
    assert_int_equal(r.cfg.layer[1].ffn, ARCH_MOE);
    assert_int_equal(r.cfg.layer[2].ffn, ARCH_MOE);
    assert_true(r.cfg.route_sigmoid && r.cfg.route_norm && !r.cfg.group_max);
    assert_int_equal(r.cfg.layer[2].mixer, ARCH_MLA);
    mem_arena_fini(&r.arena);
}

TEST(arch_reads_qwen3_moe_layers)
{
    static const char *const experts[] = {"num_experts", "num_local_experts"};
    for (int i = 0; i < 2; i++) {
        char text[1024];
        struct read r;
        snprintf(
            text, sizeof text,
            "{\"model_type\":\"qwen3_moe\",%s,\"head_dim\":32,\"%s\":8,\"num_experts_per_tok\":2,"
            "\"moe_intermediate_size\":32,\"norm_topk_prob\":true,\"mlp_only_layers\":[1]}",
            BASE, experts[i]);
        read_config(text, &r);
        assert_int_equal(r.st, SL_OK);
        assert_int_equal(r.cfg.d_head, 32);
        assert_int_equal(r.cfg.n_expert, 8);
        assert_int_equal(r.cfg.layer[0].ffn, ARCH_MOE);
        assert_int_equal(r.cfg.layer[1].ffn, ARCH_DENSE);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_reads_gpt_oss)
{
#define GPT_OSS                                                                                    \
    "{\"model_type\":\"gpt_oss\"," BASE                                                            \
    ",\"num_local_experts\":8,\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\","     \
    "\"factor\":32,\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_embeddings\":4096,"    \
    "\"truncate\":false}"
    static const char *const used[] = {"num_experts_per_tok", "experts_per_token"};
    char text[1024];
    struct read r;
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%s,\"%s\":4,\"swiglu_limit\":6.5%s}", GPT_OSS, used[i],
                 i ? ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]" : "");
        read_config(text, &r);
        if (r.st) fail_msg("%s", r.err.text);
        assert_int_equal(r.cfg.n_expert_used, 4);
        assert_int_equal(r.cfg.layer[0].n_window, i ? 0 : 128);
        assert_int_equal(r.cfg.layer[1].n_window, i ? 128 : 0);
        assert_int_equal(r.cfg.layer[1].ffn, ARCH_MOE);
        assert_true(r.cfg.per_head == ARCH_BIT(SINKS) && r.cfg.biased && r.cfg.attn_bias &&
                    r.cfg.o_bias &&
                    r.cfg.yarn_real && r.cfg.route_norm && !r.cfg.route_sigmoid);
        assert_true(r.cfg.glu.limit == 6.5f && r.cfg.glu.alpha == 1.702f && r.cfg.glu.plus == 1.0f);
        assert_true(fabs(r.cfg.yarn_mscale - (0.1 * log(32.0) + 1)) < 1e-12);
        mem_arena_fini(&r.arena);
    }
    snprintf(text, sizeof text, "%s,\"num_experts_per_tok\":4,\"attention_bias\":false}", GPT_OSS);
    read_config(text, &r);
    assert_int_equal(r.st, SL_UNSUPPORTED);
    assert_non_null(strstr(r.err.text, "config.json: attention_bias false"));
    mem_arena_fini(&r.arena);
}

/* The one tensor of a folder's layer that has no suffix. */
TEST(arch_names_sinks_in_both_kinds)
{
    static const char *const name[] = {"blk.3.attn_sinks.weight", "model.layers.3.self_attn.sinks"};
    for (int i = 0; i < 2; i++) {
        struct arch_naming by = {.kind = i ? IO_HF : IO_GGUF};
        struct arch_name id;
        char buf[128];
        arch_tensor_name(&by, ROLE_SINKS, 3, "weight", buf, sizeof buf);
        assert_string_equal(buf, name[i]);
        arch_name_parse(&by, buf, &id);
        assert_int_equal(id.role, ROLE_SINKS);
        assert_string_equal(id.suffix, "weight");
    }
}

#define MINIMAX                                                                                    \
    "{\"model_type\":\"minimax_m2\"," BASE ",\"head_dim\":32,\"num_local_experts\":8,"             \
    "\"num_experts_per_tok\":2"

TEST(arch_reads_how_much_of_a_head_is_rotated)
{
    static const struct {
        const char *text;
        int n_rot;
    } t[] = {
        {"{\"model_type\":\"glm4_moe\"," BASE ",\"head_dim\":32}", 16}, /* where nothing is said */
        {"{\"model_type\":\"glm4_moe\"," BASE ",\"head_dim\":32,\"partial_rotary_factor\":0.25}",
         8},
        {"{\"model_type\":\"glm4_moe\"," BASE
         ",\"head_dim\":32,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6,"
         "\"partial_rotary_factor\":0.75}}",
         24},
        {MINIMAX "}", 32},
        {MINIMAX ",\"rotary_dim\":16}", 16},
        {MINIMAX ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e6,"
                 "\"partial_rotary_factor\":0.5}}",
         16},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_config(t[i].text, &r);
        if (r.st) fail_msg("case %d: %s", i, r.err.text);
        assert_int_equal(r.cfg.n_rot, t[i].n_rot);
        assert_true(r.cfg.route_sigmoid && r.cfg.route_bias && r.cfg.route_norm);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_reads_dense_layers_of_glm_flash_in_both_spellings)
{
    static const char *const say[] = {"\"first_k_dense_replace\":1",
                                      "\"mlp_layer_types\":[\"dense\",\"sparse\"]"};
    for (int i = 0; i < 2; i++) {
        char text[1024];
        struct read r;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"glm4_moe_lite\",%s,\"kv_lora_rank\":32,\"q_lora_rank\":24,"
                 "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":24,%s}",
                 BASE, say[i]);
        read_config(text, &r);
        if (r.st) fail_msg("%s", r.err.text);
        assert_int_equal(r.cfg.layer[0].ffn, ARCH_DENSE);
        assert_int_equal(r.cfg.layer[1].ffn, ARCH_MOE);
        assert_int_equal(r.cfg.n_group, 1);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_uses_the_sliding_window_of_qwen2_from_its_layer)
{
    struct read r;
    read_config("{\"model_type\":\"qwen2\"," BASE
                ",\"use_sliding_window\":true,\"sliding_window\":16,\"max_window_layers\":1}",
                &r);
    assert_int_equal(r.st, SL_OK);
    assert_int_equal(r.cfg.n_window, 16);
    assert_int_equal(r.cfg.layer[0].n_window, 0);
    assert_int_equal(r.cfg.layer[1].n_window, 16);
    assert_true(r.cfg.attn_bias);
    mem_arena_fini(&r.arena);
    read_config("{\"model_type\":\"qwen2\"," BASE
                ",\"use_sliding_window\":false,\"sliding_window\":16}",
                &r);
    assert_int_equal(r.cfg.n_window, 0);
    mem_arena_fini(&r.arena);
}

TEST(arch_refuses_bad_numbers_by_name)
{
    static const struct {
        const char *text, *say;
        sl_status st;
    } t[] = {
        {"{\"model_type\":\"gpt_neox\"," BASE "}", "gpt_neox", SL_UNSUPPORTED},
        {"{" BASE "}", "model_type", SL_FORMAT},
        {"{\"model_type\":\"llama\",\"hidden_size\":64}", "num_hidden_layers", SL_FORMAT},
        {"{\"model_type\":\"llama\"," BASE ",\"head_dim\":0}", "head_dim", SL_FORMAT},
        {"{\"model_type\":\"llama\"," BASE ",\"head_dim\":12}", "head size 12", SL_UNSUPPORTED},
        {"{\"model_type\":\"llama\"," BASE ",\"hidden_act\":\"gelu\"}", "gelu", SL_UNSUPPORTED},
        {"{\"model_type\":\"llama\"," BASE ",\"mlp_bias\":true}", "mlp_bias", SL_UNSUPPORTED},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_theta\":0}", "rope_theta", SL_FORMAT},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_theta\":\"x\"}", "rope_theta", SL_FORMAT},
        {"{\"model_type\":\"llama\"," BASE
         ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}",
         "longrope", SL_UNSUPPORTED},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"type\":\"linear\"}}", "factor",
         SL_FORMAT},
        {"{\"model_type\":\"llama\"," BASE
         ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":1}}",
         "llama3", SL_FORMAT},
        {"{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"n_group\":3}", "twice", SL_FORMAT},
        {"{\"model_type\":\"deepseek_v2\"," DEEPSEEK ",\"topk_method\":\"noaux\"}", "noaux",
         SL_UNSUPPORTED},
        {"{\"model_type\":\"deepseek_v3\"," DEEPSEEK ",\"scoring_func\":\"softmax\"}", "softmax",
         SL_UNSUPPORTED},
        {MINIMAX ",\"qk_norm_type\":\"per_head\"}", "per_head", SL_UNSUPPORTED},
        {MINIMAX ",\"use_qk_norm\":false}", "use_qk_norm", SL_UNSUPPORTED},
        {MINIMAX ",\"scoring_func\":\"softmax\"}", "softmax", SL_UNSUPPORTED},
        {MINIMAX ",\"attn_type_list\":[1,0]}", "attn_type_list[1]", SL_UNSUPPORTED},
        {MINIMAX ",\"rotary_dim\":64}", "rotated dimensions 64", SL_FORMAT},
        {"{\"model_type\":\"glm4_moe\"," BASE ",\"partial_rotary_factor\":2}",
         "partial_rotary_factor", SL_FORMAT},
        {"{\"model_type\":\"glm4_moe_lite\"," DEEPSEEK ",\"mlp_layer_types\":[\"dense\",\"x\"]}",
         "mlp_layer_types[1]", SL_UNSUPPORTED},
        {"{\"model_type\":\"llama\"," BASE ",\"partial_rotary_factor\":0.5}",
         "partial_rotary_factor", SL_UNSUPPORTED},
        {"{\"model_type\":\"qwen3_moe\"," BASE
         ",\"num_experts\":4,\"num_experts_per_tok\":5,\"moe_intermediate_size\":8}",
         "5 of 4", SL_FORMAT},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_"
         "heads\":4,"
         "\"num_key_value_heads\":3,\"vocab_size\":300}",
         "3 key heads", SL_FORMAT},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":4294967295,\"hidden_size\":64}",
         "num_hidden_layers", SL_FORMAT},
        {"{\"model_type\":\"llama\",\"num_hidden_layers\":-1,\"hidden_size\":64}",
         "num_hidden_layers", SL_FORMAT},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_config(t[i].text, &r);
        if (r.st != t[i].st || !strstr(r.err.text, t[i].say))
            fail_msg("case %d: status %d, text '%s', expected %d with '%s'", i, r.st, r.err.text,
                     t[i].st, t[i].say);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_names_what_it_knows_where_it_refuses)
{
    struct read r;
    read_config("{\"model_type\":\"gpt_neox\"," BASE "}", &r);
    assert_int_equal(r.st, SL_UNSUPPORTED);
    size_t n = strlen(r.err.text);
    bool cut = n > 3 && strcmp(r.err.text + n - 3, "...") == 0;
    assert_true(cut || r.err.text[n - 1] == ')');
    assert_non_null(strstr(r.err.text, "(known: llama qwen2 qwen3 ")); /* by their places */
    for (int i = 0; arch_row(i); i++) {
        char word[64];
        snprintf(word, sizeof word, " %s%s", arch_row(i)->name, arch_row(i + 1) ? " " : ")");
        assert_true(cut || strstr(r.err.text, word));
    }
    mem_arena_fini(&r.arena);
}

TEST(arch_rows_are_whole)
{
    int n = 0;
    for (int i = 0; arch_row(i); i++, n++) {
        const struct arch *r = arch_row(i);
        bool takes_gguf = !r->match_gguf || r->read_gguf;
        if (!r->name || !r->gguf || !r->hf_type || !r->hf_class || !r->read_hf ||
            (takes_gguf && !(r->read_gguf && r->write_hf)))
            fail_msg("row %d (%s): something is missing", i, r->name ? r->name : "no name");
        for (int k = 0; k < i; k++)
            assert_string_not_equal(arch_row(k)->name, r->name);
    }
    assert_true(n >= 10);
}

/* One that names no keys obeys those that all do. */
TEST(arch_row_without_keys_obeys_none_of_its_own)
{
    static const struct arch bare = {.name = "bare"};
    struct arch_cfg c = {.arch = "bare", .row = &bare, .d_head = 16};
    static const char *const text[] = {"{\"head_dim\":16,\"sliding_window\":null,\"x\":0}",
                                       "{\"sliding_window\":8}"};
    for (int i = 0; i < 2; i++) {
        struct arena a;
        const struct json *o = NULL;
        sl_err err = {0};
        mem_arena_init(&a, MEM_MISC, 0);
        ASSERT_OK(text_json_parse(&a, "t", text[i], strlen(text[i]), &o, &err));
        sl_status st = arch_keys_hf(o, &c, &err);
        assert_int_equal(st, i ? SL_UNSUPPORTED : SL_OK);
        assert_true(!i || strstr(err.text, "sliding_window is 8"));
        mem_arena_fini(&a);
    }
}

/* A model of several parts: the text model's numbers are nested, the outer object says what holds
 * for all of it. */
TEST(arch_reads_the_text_model_of_a_nested_configuration)
{
    struct read r;
    read_config("{\"model_type\":\"kimi_k25\",\"tie_word_embeddings\":true,\"hidden_size\":8,"
                "\"vision_config\":{\"hidden_size\":8},\"text_config\":{\"model_type\":"
                "\"kimi_k2\",\"tie_word_embeddings\":false," DEEPSEEK "}}",
                &r);
    assert_string_equal(r.err.text, "");
    assert_int_equal(r.st, SL_OK);
    assert_string_equal(r.cfg.arch, "deepseek_v3");
    assert_int_equal(r.cfg.d_model, 64);
    assert_true(r.cfg.tied_head);
    mem_arena_fini(&r.arena);
    read_config("{\"model_type\":\"kimi_k25\",\"text_config\":{\"model_type\":\"kimi_k2\",\"hidden_"
                "size\":64}}",
                &r);
    assert_int_equal(r.st, SL_FORMAT);
    assert_non_null(strstr(r.err.text, "config.json: text_config: num_hidden_layers"));
    mem_arena_fini(&r.arena);
}

TEST(arch_names_follow_the_architecture)
{
    static const struct arch_alias alias[] = {
        {ROLE_FFN_NORM, "post_attention_norm", NULL},
        {ROLE_ROUTER_BIAS, NULL, "block_sparse_moe"},
        {ROLE_ROUTER, NULL, "block_sparse_moe.gate"},
        {ROLE_UP_EXPS, NULL, "block_sparse_moe.experts.%d.w3"},
        {N_ROLE, NULL, NULL}};
    static const struct {
        enum io_kind kind;
        int role, expert;
        const char *suffix, *name;
    } row[] = {
        {IO_GGUF, ROLE_FFN_NORM, -1, "weight", "blk.7.post_attention_norm.weight"},
        {IO_GGUF, ROLE_ROUTER_BIAS, -1, "bias", "blk.7.exp_probs_b.bias"},
        {IO_GGUF, ROLE_ROUTER, -1, "weight", "blk.7.ffn_gate_inp.weight"},
        {IO_HF, ROLE_FFN_NORM, -1, "weight", "model.layers.7.post_attention_layernorm.weight"},
        {IO_HF, ROLE_ROUTER, -1, "weight", "model.layers.7.block_sparse_moe.gate.weight"},
        {IO_HF, ROLE_ROUTER_BIAS, -1, "bias",
         "model.layers.7.block_sparse_moe.e_score_correction_bias"},
        {IO_HF, ROLE_UP_EXPS, 12, "weight", "model.layers.7.block_sparse_moe.experts.12.w3.weight"},
        {IO_HF, ROLE_DOWN_EXPS, 12, "weight", "model.layers.7.mlp.experts.12.down_proj.weight"},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct arch_naming by = {.kind = row[i].kind, .alias = alias};
        struct arch_name id;
        char name[128];
        id = (struct arch_name){.global = -1, .role = row[i].role, .layer = 7};
        id.expert = row[i].expert;
        snprintf(id.suffix, sizeof id.suffix, "%s", row[i].suffix);
        arch_name_put(&by, &id, name, sizeof name);
        assert_string_equal(name, row[i].name);
        arch_name_parse(&by, name, &id);
        assert_int_equal(id.role, row[i].role);
        assert_int_equal(id.layer, 7);
        assert_int_equal(id.expert, row[i].expert);
        assert_string_equal(id.suffix, row[i].suffix);
    }
    struct arch_naming plain = {.kind = IO_GGUF, .alias = alias};
    struct arch_name id;
    arch_name_parse(&plain, "blk.7.ffn_norm.weight", &id); /* the usual name is not its own */
    assert_int_equal(id.role, -1);
}
