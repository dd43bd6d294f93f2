/* SPDX-License-Identifier: Apache-2.0 */
/* Ling-3.0: its configurations in folders and in GGUF, names that depend on the layer, limits of
 * units, what is refused. */
#include <stdio.h>
#include <string.h>

#include "arch_read.h"
#include "io_make.h"

#define SIZES                                                                                      \
    "\"model_type\":\"bailing_hybrid\",\"num_hidden_layers\":4,\"hidden_size\":64,"                \
    "\"intermediate_size\":96,\"num_attention_heads\":4,\"vocab_size\":300,\"kv_lora_rank\":32,"   \
    "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":24,\"head_dim\":16,"            \
    "\"moe_intermediate_size\":32,\"num_experts\":16,\"num_experts_per_tok\":2,\"n_group\":4,"     \
    "\"topk_group\":2"
#define CONFIG(more) "{" SIZES ",\"layer_group_size\":2" more "}"

/* 'd' and 'a' of each layer, MTP layers too. */
static const char *mixers(const struct arch_cfg *c)
{
    static char text[16];
    for (int i = 0; i < c->n_layer + c->n_mtp && i < 15; i++)
        text[i] = c->layer[i].mixer == ARCH_DELTA ? 'd' : c->layer[i].mixer == ARCH_MLA ? 'a' : '?';
    text[c->n_layer + c->n_mtp] = 0;
    return text;
}

static void read_well(const char *text, struct read *r)
{
    read_config(text, r);
    if (r->st) fail_msg("%s: %s", text, r->err.text);
}

TEST(arch_reads_ling)
{
    struct read r;
    read_well(CONFIG(",\"q_lora_rank\":null,\"num_nextn_predict_layers\":1,\"rotary_dim\":8,"
                     "\"rope_parameters\":{\"rope_theta\":6000000,\"rope_type\":\"default\","
                     "\"partial_rotary_factor\":0.5},\"partial_rotary_factor\":0.5,"
                     "\"kda_lower_bound\":-4,\"no_kda_lora\":true,\"first_k_dense_replace\":1,"
                     "\"moe_shared_expert_intermediate_size\":40,\"num_shared_experts\":2,"
                     "\"expert_swiglu_limit_list\":[0,null,4],"
                     "\"share_expert_swiglu_limit_list\":[0,5,0,7.5],"
                     "\"score_function\":\"sigmoid\""),
              &r);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(mixers(c), "dadaa");
    assert_true(c->kda && c->kda_whole && c->head_gate && !c->no_rope && c->delta_bound == -4.0f &&
                c->n_delta_k == 4 && c->n_delta_v == 4 && c->d_delta_k == 16 && c->n_conv == 4);
    assert_true(c->kv_lora == 32 && c->q_lora == 0 && c->d_nope == 16 && c->d_rope == 8 &&
                c->n_rot == 8 && c->d_v == 24 && c->d_head == 24 && c->rope_theta == 6e6 &&
                c->rope_style == ARCH_ROPE_PAIRS);
    assert_true(c->n_expert == 16 && c->n_group == 4 && c->n_group_used == 2 && c->n_mtp == 1 &&
                c->route_sigmoid && c->route_bias && c->route_norm && c->route_scale == 2.5f);
    assert_true(c->layer[0].ffn == ARCH_DENSE && c->layer[1].ffn == ARCH_MOE);
    assert_int_equal(arch_d_shared(c), 80);
    assert_string_equal(arch_tool_family(c), "glm");
    static const float limit[][2] = {{0, 0}, {0, 5}, {4, 0}, {0, 7.5f}, {0, 0}};
    for (int i = 0; i < 5; i++) {
        struct glu e = arch_glu(c, i, ROLE_GATE_EXPS), s = arch_glu(c, i, ROLE_GATE_SHEXP),
                   d = arch_glu(c, i, ROLE_GATE);
        assert_true(e.limit == limit[i][0] && e.after == (float)(e.limit > 0) && e.plus == 0);
        assert_true(s.limit == limit[i][1] && s.after == (float)(s.limit > 0) && s.alpha == 0);
        assert_true(glu_is_silu(&d));
    }
    mem_arena_fini(&r.arena);
}

/* Without a bound; layers by a list; widths as transformers writes them again. */
TEST(arch_reads_ling_as_transformers_writes_it)
{
    struct read r;
    read_well("{" SIZES ",\"linear_head_dim\":24,\"linear_num_heads\":3,\"kda_safe_gate\":false,"
              "\"kda_lower_bound\":-5.0,\"linear_conv_kernel_dim\":3,\"layer_types\":["
              "\"full_attention\",\"linear_attention\",\"linear_attention\",\"full_attention\"],"
              "\"mlp_layer_types\":[\"dense\",\"sparse\",\"dense\",\"sparse\"],"
              "\"moe_renormalize\":false}",
              &r);
    assert_string_equal(mixers(&r.cfg), "adda");
    assert_true(r.cfg.d_delta_k == 24 && r.cfg.n_delta_k == 3 && r.cfg.n_conv == 3 &&
                r.cfg.delta_bound == 0 && !r.cfg.route_norm && r.cfg.n_mtp == 0 &&
                r.cfg.layer[2].ffn == ARCH_DENSE && r.cfg.n_ctx_train == 262144);
    mem_arena_fini(&r.arena);
}

TEST(arch_refuses_ling_by_name)
{
    static const struct {
        const char *config, *text;
    } t[] = {
        {CONFIG(",\"attention_bias\":true"), "attention_bias true"},
        {CONFIG(",\"no_kda_lora\":false"), "no_kda_lora false"},
        {CONFIG(",\"use_kda_lora\":true"), "use_kda_lora true"},
        {CONFIG(",\"use_mla_nope\":true"), "use_mla_nope true"},
        {CONFIG(",\"mtp_use_kda\":true"), "mtp_use_kda true"},
        {CONFIG(",\"rope_interleave\":false"), "rope_interleave false"},
        {CONFIG(",\"moe_router_enable_expert_bias\":false"), "moe_router_enable_expert_bias false"},
        {CONFIG(",\"gated_attention_proj_granularity_type\":\"element_wise\""),
         "gated_attention_proj_granularity_type 'element_wise'"},
        {CONFIG(",\"score_function\":\"softmax\""), "score_function 'softmax'"},
        {CONFIG(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0}"), "rope scaling"},
        {CONFIG(",\"kda_lower_bound\":0"), "kda_lower_bound is 0"},
        {CONFIG(",\"expert_swiglu_limit_list\":4"), "expert_swiglu_limit_list is not an array"},
        {CONFIG(",\"share_expert_swiglu_limit_list\":[0,-1]"),
         "share_expert_swiglu_limit_list[1] is not a number"},
        {CONFIG(",\"value_norm\":true"), "value_norm is true"},
        {CONFIG(",\"use_nGPT\":true"), "use_nGPT is true"},
        {CONFIG(",\"use_qkv_bias\":true"), "use_qkv_bias is true"},
        {CONFIG(",\"short_conv_kernel_size\":3,\"linear_conv_kernel_dim\":4"),
         "short_conv_kernel_size and linear_conv_kernel_dim differ"},
        {CONFIG(",\"layer_types\":[\"linear_attention\",\"chunked\",\"full_attention\","
                "\"linear_attention\"]"),
         "layer_types[1] is chunked"},
        {"{" SIZES ",\"layer_group_size\":3}", "4 layers are no multiple of layer_group_size 3"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        refuse_config(t[i].config, t[i].text);
}

/* Layer 2 has a state, layer 3 latents, layer 4 is the MTP layer. */
TEST(arch_names_ling_in_both_kinds)
{
    static const struct {
        enum arch_role role;
        int layer;
        const char *name[2];
    } t[] = {
        {ROLE_Q, 2, {"blk.2.attn_q.weight", "model.layers.2.attention.q_proj.weight"}},
        {ROLE_O, 2, {"blk.2.attn_output.weight", "model.layers.2.attention.o_proj.weight"}},
        {ROLE_O, 3, {"blk.3.attn_output.weight", "model.layers.3.attention.dense.weight"}},
        {ROLE_O, 4, {"blk.4.attn_output.weight", "model.layers.4.attention.dense.weight"}},
        {ROLE_KDA_F_A, 2, {"blk.2.ssm_f_a.weight", "model.layers.2.attention.f_proj.weight"}},
        {ROLE_KDA_G_A, 2, {"blk.2.ssm_g_a.weight", "model.layers.2.attention.g_proj.weight"}},
        {ROLE_HEAD_GATE, 3, {"blk.3.attn_gate.weight", "model.layers.3.attention.g_proj.weight"}},
        {ROLE_DELTA_DECAY, 2, {"blk.2.ssm_a", "model.layers.2.attention.A_log"}},
        {ROLE_DELTA_DT, 2, {"blk.2.ssm_dt.bias", "model.layers.2.attention.dt_bias"}},
        {ROLE_KV_A, 3,
         {"blk.3.attn_kv_a_mqa.weight", "model.layers.3.attention.kv_a_proj_with_mqa.weight"}},
        {ROLE_ROUTER, 3, {"blk.3.ffn_gate_inp.weight", "model.layers.3.mlp.gate.weight"}},
        {ROLE_ROUTER_BIAS, 3, {"blk.3.exp_probs_b.bias", "model.layers.3.mlp.gate.expert_bias"}},
        {ROLE_MTP_HEAD_NORM, 4,
         {"blk.4.layer_output_norm.weight", "model.layers.4.final_layernorm.weight"}},
    };
    struct read r;
    struct arch_name id;
    read_well(CONFIG(",\"num_nextn_predict_layers\":1"), &r);
    for (int i = 0; i < 2 * BASE_COUNT_OF(t); i++) {
        struct arch_naming by = arch_naming_in(&r.cfg, i % 2 ? IO_HF : IO_GGUF);
        char buf[128];
        arch_tensor_name(&by, t[i / 2].role, t[i / 2].layer, "weight", buf, sizeof buf);
        assert_string_equal(buf, t[i / 2].name[i % 2]);
        arch_name_parse(&by, buf, &id);
        if (id.role != (int)t[i / 2].role || id.layer != t[i / 2].layer)
            fail_msg("%s is read as role %d", buf, id.role);
    }
    struct arch_naming hf = arch_naming_in(&r.cfg, IO_HF);
    arch_name_parse(&hf, "model.word_embeddings.weight", &id);
    assert_int_equal(id.global, GLOBAL_EMBED);
    static const char *const not_there[] = {"model.layers.2.attention.dense.weight",
                                            "model.layers.3.attention.o_proj.weight",
                                            "model.layers.3.mlp.gate.e_score_correction_bias"};
    for (int i = 0; i < BASE_COUNT_OF(not_there); i++) {
        arch_name_parse(&hf, not_there[i], &id);
        assert_true(id.role < 0 || strcmp(id.suffix, "weight") != 0);
    }
    mem_arena_fini(&r.arena);
}

/* Every tensor that a mocked folder has is read, and no layer has another's. */
TEST(arch_mocks_ling)
{
    struct read r;
    sl_err err = {0};
    const char *unread = NULL;
    io_model *m = NULL;
    uint8_t *copy = NULL;
    read_well(CONFIG(",\"num_nextn_predict_layers\":1"), &r);
    struct make *f = make_file("json={\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                               "\"data_offsets\":[0,4]}} zero=4");
    ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
    ASSERT_OK(arch_mock(m, &r.cfg, TENSOR_BF16, &r.arena, &err));
    ASSERT_OK(arch_unused(m, &r.cfg, &r.arena, &unread, &err));
    if (unread) fail_msg("%s", unread);
    const struct tensor *f_proj = io_find(m, "model.layers.0.attention.f_proj.weight"),
                        *z = io_find(m, "model.layers.0.attention.g_proj.weight"),
                        *gate = io_find(m, "model.layers.4.attention.g_proj.weight");
    assert_true(f_proj && f_proj->shape[0] == 64 && z && z->shape[0] == 64 && gate &&
                gate->shape[0] == 4);
    assert_null(io_find(m, "model.layers.0.attention.f_b_proj.weight"));
    assert_non_null(io_find(m, "model.layers.4.final_layernorm.weight"));
    io_close(m);
    free(copy);
    free(f);
    mem_arena_fini(&r.arena);
}

/* ---- GGUF ---- */

static void read_gguf(const char *const *more, int n_more, struct read *r)
{
    static const char *const base[] = {"block_count u32=4 u32=5",
                                       "nextn_predict_layers u32=4 u32=1",
                                       "embedding_length u32=4 u32=64",
                                       "feed_forward_length u32=4 u32=96",
                                       "context_length u32=4 u32=512",
                                       "attention.head_count u32=4 u32=4",
                                       "attention.layer_norm_rms_epsilon u32=6 f32=1e-6",
                                       "attention.key_length u32=4 u32=40",
                                       "attention.key_length_mla u32=4 u32=24",
                                       "attention.value_length_mla u32=4 u32=24",
                                       "attention.kv_lora_rank u32=4 u32=32",
                                       "rope.dimension_count u32=4 u32=8",
                                       "ssm.conv_kernel u32=4 u32=4",
                                       "kda.head_dim u32=4 u32=16",
                                       "expert_count u32=4 u32=16",
                                       "expert_used_count u32=4 u32=2",
                                       "expert_feed_forward_length u32=4 u32=32",
                                       "expert_shared_count u32=4 u32=1",
                                       "expert_gating_func u32=4 u32=2",
                                       "leading_dense_block_count u32=4 u32=1"};
    char word[160];
    io_model *m = NULL;
    uint8_t *copy = NULL;
    uint64_t n_kv = 1;
    struct make *kv = make_file("s=general.architecture u32=8 s=bailingmoe3");
    for (int i = 0; i < BASE_COUNT_OF(base) + n_more; i++) {
        const char *k = i < BASE_COUNT_OF(base) ? base[i] : more[i - BASE_COUNT_OF(base)];
        snprintf(word, sizeof word, "s=bailingmoe3.%s", k);
        make_key(kv, &n_kv, word);
    }
    struct make *f = make_gguf(kv, n_kv);
    memset(r, 0, sizeof *r);
    mem_arena_init(&r->arena, MEM_MISC, 0);
    r->st = make_open(f->p, f->n, &m, &copy, &r->err);
    if (r->st == SL_OK) r->st = arch_cfg_read(m, &r->arena, &r->cfg, &r->err);
    io_close(m);
    free(copy);
    free(f);
}

#define KV "attention.head_count_kv u32=9 u32=4 u64=5 u32=0 u32=1 u32=0 u32=1 u32=1"
#define BOUND "kda.gate_lower_bound u32=6 f32=-5"

TEST(arch_gguf_reads_ling)
{
    static const char *const more[] = {
        KV, BOUND, "kda.safe_gate u32=7 u8=1", "expert_weights_scale u32=6 f32=2.5",
        "expert_shared_feed_forward_length u32=4 u32=48",
        "swiglu_clamp_exp u32=9 u32=6 u64=5 f32=0 f32=0 f32=4 f32=4 f32=0"};
    struct read r;
    read_gguf(more, BASE_COUNT_OF(more), &r);
    if (r.st) fail_msg("%s", r.err.text);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(mixers(c), "dadaa");
    assert_true(c->kda && c->kda_whole && c->head_gate && c->delta_bound == -5.0f &&
                c->d_delta_k == 16 && c->n_delta_k == 4 && c->n_mtp == 1 && c->n_layer == 4);
    assert_true(c->d_rope == 8 && c->d_v == 24 && c->route_norm && c->route_scale == 2.5f);
    assert_true(c->layer[2].limit == 4.0f && c->layer[1].limit == 0 && c->layer[3].limit == 4.0f &&
                c->layer[2].limit_shared == 0);
    assert_int_equal(arch_d_shared(c), 48);
    mem_arena_fini(&r.arena);
}

TEST(arch_gguf_refuses_ling_by_name)
{
    static const struct {
        const char *more[3], *text;
    } t[] = {
        {{KV, KV, KV}, "bailingmoe3.kda.gate_lower_bound"},
        {{KV, BOUND, "kda.safe_gate u32=7 u8=0"}, "kda.safe_gate is false"},
        {{KV, BOUND, "rope.scaling.factor u32=6 f32=4"}, "rope scaling"},
        {{KV, BOUND, "swiglu_clamp_shexp u32=9 u32=6 u64=2 f32=0 f32=-1"},
         "swiglu_clamp_shexp[1] is not a number"},
        {{"attention.head_count_kv u32=9 u32=4 u64=2 u32=0 u32=1", BOUND,
          "kda.safe_gate u32=7 u8=1"},
         "head_count_kv has 2 entries for 4 layers"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_gguf(t[i].more, i ? 3 : 1, &r);
        if (r.st == SL_OK || !strstr(r.err.text, t[i].text))
            fail_msg("%s: \"%s\"", t[i].text, r.err.text);
        mem_arena_fini(&r.arena);
    }
}
