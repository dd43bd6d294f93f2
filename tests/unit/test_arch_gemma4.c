/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4: configurations in two spellings, what they leave unsaid, names, what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch_read.h"

#define SIZES                                                                                      \
    "\"num_hidden_layers\":6,\"hidden_size\":64,\"vocab_size\":300,\"num_attention_heads\":4,"     \
    "\"num_key_value_heads\":2,\"head_dim\":32,\"intermediate_size\":96,\"sliding_window\":8,"     \
    "\"hidden_size_per_layer_input\":0,\"attention_k_eq_v\":true,"                                 \
    "\"final_logit_softcapping\":30.0"
#define TEXT(more) "{\"model_type\":\"gemma4_text\"," SIZES more "}"
#define WIDE ",\"global_head_dim\":64,\"num_global_key_value_heads\":1"
#define EACH ",\"per_layer_config\":{\"5\":{\"head_dim\":64,\"num_key_value_heads\":1}}"
#define ROPE                                                                                       \
    ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","                    \
    "\"rope_theta\":500000,\"partial_rotary_factor\":0.5},\"sliding_attention\":{"                 \
    "\"rope_type\":\"default\",\"rope_theta\":20000}}"
#define MOE                                                                                        \
    ",\"enable_moe_block\":true,\"num_experts\":8,\"top_k_experts\":2,"                            \
    "\"moe_intermediate_size\":16"

static void read_well(const char *text, struct read *r)
{
    read_config(text, r);
    if (r->st) fail_msg("%s: %s", text, r->err.text);
}

/* As the makers say it, as transformers 5.24 writes it, and within a model that sees. */
TEST(arch_reads_gemma4_in_its_spellings)
{
    static const char *const text[] = {
        TEXT(WIDE ROPE), TEXT(EACH ROPE),
        "{\"model_type\":\"gemma4\",\"vision_config\":{},\"text_config\":" TEXT(WIDE ROPE) "}"};
    for (int i = 0; i < BASE_COUNT_OF(text); i++) {
        struct read r;
        read_well(text[i], &r);
        const struct arch_cfg *c = &r.cfg;
        for (int k = 0; k < 6; k++) {
            assert_int_equal(c->layer[k].n_window, k < 5 ? 8 : 0);
            assert_int_equal(arch_d_head(c, k), k < 5 ? 32 : 64);
            assert_int_equal(arch_n_head_kv(c, k), k < 5 ? 2 : 1);
            assert_int_equal(arch_k_is_v(c, k), k == 5);
            assert_int_equal(c->layer[k].ffn, ARCH_DENSE);
        }
        assert_true(c->rope_theta == 500000 && c->theta_win == 20000 && c->n_turn == 16);
        assert_true(c->embed_scale == 8 && c->logit_cap == 30 && c->attn_scale == 1);
        assert_true(c->qk_norm && c->v_norm && c->sandwich && c->tied_head && c->d_ff == 96);
        assert_true(c->glu.cubic == GLU_GELU_TANH.cubic && c->glu.alpha == GLU_GELU_TANH.alpha);
        assert_string_equal(arch_tool_family(c), "gemma4");
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_reads_what_gemma4_leaves_unsaid)
{
    struct read r;
    read_well(TEXT(MOE), &r);
    const struct arch_cfg *c = &r.cfg;
    assert_true(c->d_head == 512 && c->n_head_kv == 2 && c->d_head_win == 32);
    assert_true(c->rope_theta == 1e6 && c->theta_win == 1e4 && c->n_turn == 64);
    assert_true(c->n_expert == 8 && c->n_expert_used == 2 && c->d_ff_expert == 16);
    for (int k = 0; k < 6; k++)
        assert_true(c->layer[k].ffn == ARCH_MOE && (c->layer[k].n_window == 8) == (k < 5));
    mem_arena_fini(&r.arena);
    /* The last layer sees all, whatever is said of it. */
    read_well(TEXT(WIDE ",\"layer_types\":[\"full_attention\",\"sliding_attention\","
                        "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
                        "\"sliding_attention\"]"),
              &r);
    for (int k = 0; k < 6; k++)
        assert_int_equal(r.cfg.layer[k].n_window, k % 3 && k != 5 ? 8 : 0);
    mem_arena_fini(&r.arena);
    /* Of a model whose keys are no values the number of keys is one for all layers. */
    read_well("{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":2,\"hidden_size\":64,"
              "\"vocab_size\":300,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
              "\"hidden_size_per_layer_input\":0" WIDE "}",
              &r);
    assert_true(!arch_k_is_v(&r.cfg, 1) && r.cfg.n_head_kv == 2 && r.cfg.logit_cap == 0);
    mem_arena_fini(&r.arena);
}

TEST(arch_refuses_gemma4_by_name)
{
    static const struct {
        const char *config, *text;
    } t[] = {
        {"{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":6,\"hidden_size\":64,"
         "\"vocab_size\":300,\"num_attention_heads\":4}",
         "hidden_size_per_layer_input is 256, where it is not said"},
        {TEXT(",\"num_kv_shared_layers\":2"), "num_kv_shared_layers is 2"},
        {TEXT(",\"attention_bias\":true"), "attention_bias"},
        {TEXT(",\"use_bidirectional_attention\":\"all\""), "use_bidirectional_attention 'all'"},
        {TEXT(",\"hidden_activation\":\"silu\""), "hidden_activation"},
        {TEXT(",\"partial_rotary_factor\":0.5"), "partial_rotary_factor outside"},
        {TEXT(",\"rope_parameters\":{\"rope_type\":\"default\"}"), "has no full_attention"},
        {TEXT(",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\"}}"),
         "rope_parameters.full_attention: rope_type 'yarn'"},
        {TEXT(",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\"},"
              "\"sliding_attention\":{\"rope_type\":\"proportional\"}}"),
         "rope_parameters.sliding_attention: rope_type 'proportional'"},
        {TEXT(",\"per_layer_config\":{\"5\":{\"head_dim\":64,\"other\":1}}"),
         "layer 5: other is not known"},
        {TEXT(",\"per_layer_config\":{\"2\":{\"head_dim\":64}}"), "2 is no layer without"},
        {TEXT(",\"per_layer_config\":[]"), "per_layer_config is no object"},
        {TEXT(WIDE ",\"enable_moe_block\":true,\"num_experts\":0"), "num_experts"},
        {TEXT(",\"layer_types\":[\"full_attention\"]"), "layer_types"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        refuse_config(t[i].config, t[i].text);
}

/* The same tensor in both spellings. */
TEST(arch_names_gemma4_in_both_spellings)
{
    static const char *const t[][2] = {
        {"blk.2.post_attention_norm.weight", "model.layers.2.post_attention_layernorm.weight"},
        {"blk.2.ffn_norm.weight", "model.layers.2.pre_feedforward_layernorm.weight"},
        {"blk.2.post_ffw_norm.weight", "model.layers.2.post_feedforward_layernorm.weight"},
        {"blk.2.post_ffw_norm_1.weight", "model.layers.2.post_feedforward_layernorm_1.weight"},
        {"blk.2.pre_ffw_norm_2.weight", "model.layers.2.pre_feedforward_layernorm_2.weight"},
        {"blk.2.post_ffw_norm_2.weight", "model.layers.2.post_feedforward_layernorm_2.weight"},
        {"blk.2.layer_output_scale.weight", "model.layers.2.layer_scalar"},
        {"blk.2.ffn_gate_inp.weight", "model.layers.2.router.proj.weight"},
        {"blk.2.ffn_gate_inp.scale", "model.layers.2.router.scale"},
        {"blk.2.ffn_down_exps.scale", "model.layers.2.router.per_expert_scale"},
        {"blk.2.ffn_up.weight", "model.layers.2.mlp.up_proj.weight"},
        {"blk.2.attn_q_norm.weight", "model.layers.2.self_attn.q_norm.weight"},
    };
    struct read r;
    read_well(TEXT(WIDE MOE), &r);
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct arch_name id[2];
        for (int k = 0; k < 2; k++) {
            char name[128] = "";
            struct arch_naming by = arch_naming_in(&r.cfg, k ? IO_HF : IO_GGUF);
            arch_name_parse(&by, t[i][k], &id[k]);
            if (id[k].role < 0) fail_msg("%s is not known", t[i][k]);
            assert_int_equal(id[k].layer, 2);
            arch_name_put(&by, &id[k], name, sizeof name);
            assert_string_equal(name, t[i][k]);
        }
        if (id[0].role != id[1].role) fail_msg("%s is not %s", t[i][0], t[i][1]);
    }
    mem_arena_fini(&r.arena);
}
