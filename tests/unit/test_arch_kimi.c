/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi-Linear: configurations in both spellings of folders and in GGUF, names, what is refused. */
#include <stdio.h>
#include <string.h>

#include "arch_read.h"
#include "io_make.h"
#include "tensor/delta_state.h"

#define SIZES                                                                                      \
    "\"model_type\":\"kimi_linear\",\"num_hidden_layers\":4,\"hidden_size\":64,"                   \
    "\"intermediate_size\":96,\"num_attention_heads\":4,\"vocab_size\":300,\"kv_lora_rank\":32,"   \
    "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":24,"                            \
    "\"moe_intermediate_size\":32"
#define EXPERTS ",\"num_experts\":8,\"num_experts_per_token\":2,\"num_shared_experts\":2"
#define LISTS "\"kda_layers\":[1,2,4],\"full_attn_layers\":[3]"
#define NESTED(more)                                                                               \
    "{" SIZES EXPERTS ",\"linear_attn_config\":{" LISTS                                            \
    ",\"num_heads\":4,\"head_dim\":16,\"short_conv_kernel_size\":3}" more "}"

/* 'd' and 'a' of each layer. */
static const char *mixers(const struct arch_cfg *c)
{
    static char text[16];
    for (int i = 0; i < c->n_layer && i < 15; i++)
        text[i] = c->layer[i].mixer == ARCH_DELTA ? 'd' : c->layer[i].mixer == ARCH_MLA ? 'a' : '?';
    text[c->n_layer] = 0;
    return text;
}

static void read_well(const char *text, struct read *r)
{
    read_config(text, r);
    if (r->st) fail_msg("%s: %s", text, r->err.text);
}

/* Both spellings say the same. */
TEST(arch_reads_kimi_linear_in_two_spellings)
{
    static const char *const text[] = {
        NESTED(",\"mla_use_nope\":true,\"model_max_length\":4096,\"head_dim\":18,"
               "\"moe_renormalize\":false,\"num_expert_group\":4,\"topk_group\":2,"
               "\"first_k_dense_replace\":1,\"moe_router_activation_func\":\"sigmoid\","
               "\"routed_scaling_factor\":1.5,\"q_lora_rank\":null,\"rope_scaling\":null"),
        "{" SIZES ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"n_shared_experts\":2,"
        "\"layer_types\":[\"linear_attention\",\"linear_attention\",\"full_attention\","
        "\"linear_attention\"],\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\"],"
        "\"linear_num_heads\":4,\"linear_head_dim\":16,\"linear_conv_kernel_dim\":3,"
        "\"max_position_embeddings\":4096,\"norm_topk_prob\":false,\"n_group\":4,\"topk_group\":2,"
        "\"routed_scaling_factor\":1.5,\"qk_head_dim\":24}"};
    for (int i = 0; i < 2; i++) {
        struct read r;
        read_well(text[i], &r);
        const struct arch_cfg *c = &r.cfg;
        assert_string_equal(c->arch, "kimi_linear");
        assert_string_equal(mixers(c), "ddad");
        assert_true(c->kda && c->no_rope && c->n_delta_k == 4 && c->n_delta_v == 4 &&
                    c->d_delta_k == 16 && c->d_delta_v == 16 && c->n_conv == 3);
        assert_true(c->kv_lora == 32 && c->q_lora == 0 && c->d_nope == 16 && c->d_rope == 8 &&
                    c->d_v == 24 && c->d_head == 24 && c->n_ctx_train == 4096);
        assert_true(c->n_expert == 8 && c->n_expert_used == 2 && c->n_shared == 2 &&
                    c->n_group == 4 && c->n_group_used == 2 && c->route_scale == 1.5f);
        assert_true(c->route_sigmoid && c->route_bias && !c->route_norm && !c->group_max);
        assert_true(c->norm_eps == 1e-5f && c->layer[0].ffn == ARCH_DENSE &&
                    c->layer[1].ffn == ARCH_MOE && c->layer[3].ffn == ARCH_MOE);
        assert_int_equal(arch_delta_decays(c), 16);
        assert_string_equal(arch_tool_family(c), "kimi");
        mem_arena_fini(&r.arena);
    }
}

/* What the class takes where nothing is said. */
TEST(arch_reads_what_kimi_linear_leaves_unsaid)
{
    struct read r;
    read_well("{" SIZES "}", &r);
    assert_string_equal(mixers(&r.cfg), "dddd");
    assert_true(r.cfg.n_delta_k == 32 && r.cfg.d_delta_k == 128 && r.cfg.n_conv == 4 &&
                r.cfg.n_expert == 256 && r.cfg.n_expert_used == 8 && r.cfg.n_shared == 1 &&
                r.cfg.route_norm && r.cfg.route_scale == 2.446f && r.cfg.n_ctx_train == 1048576);
    assert_int_equal(arch_delta_state(32, 32, 128, 128, 4, true),
                     32 * 128 * 128 + 3 * 12288 + TENSOR_STATE_BACK * (12288 + 32 * 129) + 64);
    mem_arena_fini(&r.arena);
    read_well(NESTED(",\"num_nextn_predict_layers\":1"), &r);
    assert_true(r.cfg.n_mtp == 0 && r.cfg.n_mtp_left == 1);
    mem_arena_fini(&r.arena);
}

TEST(arch_refuses_kimi_linear_by_name)
{
    static const struct {
        const char *config, *text;
    } t[] = {
        {NESTED(",\"mla_use_nope\":false"), "mla_use_nope false"},
        {NESTED(",\"attention_bias\":true"), "attention_bias is not supported"},
        {NESTED(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0}"), "rope scaling, of layers"},
        {NESTED(",\"moe_router_activation_func\":\"softmax\""), "moe_router_activation_func"},
        {NESTED(",\"topk_method\":\"greedy\""), "topk_method 'greedy'"},
        {NESTED(",\"moe_layer_freq\":2"), "moe_layer_freq is 2"},
        {NESTED(",\"use_grouped_topk\":false,\"n_group\":2"), "use_grouped_topk false"},
        {NESTED(",\"num_local_experts\":9"), "num_experts and num_local_experts differ"},
        {NESTED(",\"n_shared_experts\":1"), "num_shared_experts and n_shared_experts differ"},
        {NESTED(",\"moe_renormalize\":true,\"norm_topk_prob\":false"),
         "moe_renormalize and norm_topk_prob differ"},
        {NESTED(",\"linear_num_heads\":5"), "linear_num_heads and num_heads"},
        {NESTED(",\"linear_head_dim\":\"x\""), "linear_head_dim is not an integer"},
        {NESTED(",\"layer_types\":[\"linear_attention\",\"full_attention\",\"full_attention\","
                "\"linear_attention\"]"),
         "layer_types[1] is full_attention, but not in linear_attn_config"},
        {NESTED(",\"layer_types\":[\"linear_attention\",\"chunked\",\"full_attention\","
                "\"linear_attention\"]"),
         "layer_types[1] is chunked"},
        {"{" SIZES ",\"linear_attn_config\":3}", "linear_attn_config is not an object"},
        {"{" SIZES ",\"linear_attn_config\":{\"gate_lower_bound\":-5.0}}",
         "linear_attn_config: gate_lower_bound is -5"},
        {"{" SIZES ",\"linear_attn_config\":{\"kda_layers\":[1,2,3,4]}}",
         "linear_attn_config: full_attn_layers is missing"},
        {"{" SIZES ",\"linear_attn_config\":{\"kda_layers\":[1,2],\"full_attn_layers\":[4]}}",
         "layer 3 is not listed"},
        {"{" SIZES ",\"linear_attn_config\":{\"kda_layers\":[1,2,3],\"full_attn_layers\":[3,4]}}",
         "layer 3 is listed twice"},
        {"{" SIZES ",\"linear_attn_config\":{\"kda_layers\":[0,1,2],\"full_attn_layers\":[3]}}",
         "kda_layers[0] is not a layer of 1 .. 4"},
        {"{" SIZES ",\"linear_attn_config\":{\"kda_layers\":[1,2,3],\"full_attn_layers\":[5]}}",
         "full_attn_layers[0] is not a layer of 1 .. 4"},
        {"{" SIZES ",\"linear_attn_config\":{\"kda_layers\":1,\"full_attn_layers\":[1]}}",
         "kda_layers is not an array"},
        {"{" SIZES ",\"linear_attn_config\":{\"num_heads\":-1}}",
         "linear_attn_config: num_heads is -1"},
        {"{" SIZES ",\"linear_head_dim\":260}", "heads of 260 keys and 260 values"},
        {"{" SIZES ",\"linear_conv_kernel_dim\":9}", "a convolution of 9"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        refuse_config(t[i].config, t[i].text);
}

TEST(arch_names_kimi_linear_in_both_kinds)
{
    static const struct {
        enum arch_role role;
        const char *name[2];
    } t[] = {
        {ROLE_Q, {"blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight"}},
        {ROLE_KDA_CONV_K,
         {"blk.3.ssm_conv1d_k.weight", "model.layers.3.self_attn.k_conv1d.weight"}},
        {ROLE_KDA_F_B, {"blk.3.ssm_f_b.weight", "model.layers.3.self_attn.f_b_proj.weight"}},
        {ROLE_KDA_G_A, {"blk.3.ssm_g_a.weight", "model.layers.3.self_attn.g_a_proj.weight"}},
        {ROLE_DELTA_B, {"blk.3.ssm_beta.weight", "model.layers.3.self_attn.b_proj.weight"}},
        {ROLE_DELTA_DT, {"blk.3.ssm_dt.bias", "model.layers.3.self_attn.dt_bias"}},
        {ROLE_DELTA_DECAY, {"blk.3.ssm_a", "model.layers.3.self_attn.A_log"}},
        {ROLE_DELTA_NORM, {"blk.3.ssm_norm.weight", "model.layers.3.self_attn.o_norm.weight"}},
        {ROLE_ROUTER_BIAS,
         {"blk.3.exp_probs_b.bias",
          "model.layers.3.block_sparse_moe.gate.e_score_correction_bias"}},
        {ROLE_UP_SHEXP,
         {"blk.3.ffn_up_shexp.weight",
          "model.layers.3.block_sparse_moe.shared_experts.up_proj.weight"}},
        {ROLE_GATE, {"blk.3.ffn_gate.weight", "model.layers.3.mlp.gate_proj.weight"}},
    };
    struct read r;
    read_well(NESTED(""), &r);
    for (int i = 0; i < 2 * BASE_COUNT_OF(t); i++) {
        struct arch_naming by = arch_naming_in(&r.cfg, i % 2 ? IO_HF : IO_GGUF);
        check_name(&by, t[i / 2].role, t[i / 2].name[i % 2]);
    }
    mem_arena_fini(&r.arena);
}

/* Every tensor that a mocked folder has is read, and no layer has another's. */
TEST(arch_mocks_kimi_linear)
{
    struct read r;
    sl_err err = {0};
    const char *unread = NULL;
    int64_t total = 0, active = 0;
    io_model *m = NULL;
    uint8_t *copy = NULL;
    read_well(NESTED(""), &r);
    struct make *f = make_file("json={\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                               "\"data_offsets\":[0,4]}} zero=4");
    ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
    ASSERT_OK(arch_mock(m, &r.cfg, TENSOR_BF16, &r.arena, &err));
    ASSERT_OK(arch_unused(m, &r.cfg, &r.arena, &unread, &err));
    if (unread) fail_msg("%s", unread);
    const struct tensor *q = io_find(m, "model.layers.0.self_attn.q_proj.weight"),
                        *mla = io_find(m, "model.layers.2.self_attn.q_proj.weight"),
                        *dt = io_find(m, "model.layers.0.self_attn.dt_bias");
    assert_true(q && q->shape[0] == 4 * 16 && mla && mla->shape[0] == 4 * 24 && dt &&
                dt->shape[0] == 4 * 16);
    assert_null(io_find(m, "model.layers.0.self_attn.kv_b_proj.weight"));
    assert_null(io_find(m, "model.layers.2.self_attn.A_log"));
    arch_count_params(m, &r.cfg, &total, &active);
    int64_t kda = 4 * 64 * 64 + 4 * 64 + 2 * (16 * 64 + 64 * 16) + 3 * 64 * 3 + 64 + 4 + 16;
    int64_t latents = 96 * 64 + 40 * 64 + 32 + 4 * 40 * 32 + 64 * 96;
    int64_t moe = 8 * 64 + 8 + (8 + 2) * 3 * 32 * 64;
    assert_int_equal(total, 2 * 300 * 64 + 64 + 4 * 2 * 64 + 3 * kda + latents + 3 * 96 * 64 +
                                3 * moe);
    io_close(m);
    free(copy);
    free(f);
    mem_arena_fini(&r.arena);
}

/* ---- GGUF ---- */

static void read_gguf(const char *const *more, int n_more, struct read *r)
{
    static const char *const base[] = {"block_count u32=4 u32=4",
                                       "embedding_length u32=4 u32=64",
                                       "feed_forward_length u32=4 u32=96",
                                       "context_length u32=4 u32=512",
                                       "attention.head_count u32=4 u32=4",
                                       "attention.layer_norm_rms_epsilon u32=6 f32=1e-5",
                                       "attention.key_length u32=4 u32=40",
                                       "attention.value_length u32=4 u32=32",
                                       "attention.key_length_mla u32=4 u32=24",
                                       "attention.value_length_mla u32=4 u32=24",
                                       "attention.kv_lora_rank u32=4 u32=32",
                                       "rope.dimension_count u32=4 u32=8",
                                       "ssm.conv_kernel u32=4 u32=4",
                                       "expert_count u32=4 u32=8",
                                       "expert_used_count u32=4 u32=2",
                                       "expert_feed_forward_length u32=4 u32=32",
                                       "expert_shared_count u32=4 u32=1",
                                       "leading_dense_block_count u32=4 u32=1"};
    char word[160];
    io_model *m = NULL;
    uint8_t *copy = NULL;
    uint64_t n_kv = 1;
    struct make *kv = make_file("s=general.architecture u32=8 s=kimi-linear");
    for (int i = 0; i < BASE_COUNT_OF(base) + n_more; i++) {
        const char *k = i < BASE_COUNT_OF(base) ? base[i] : more[i - BASE_COUNT_OF(base)];
        snprintf(word, sizeof word, "s=kimi-linear.%s", k);
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

#define KV "attention.head_count_kv u32=9 u32=4 u64=4 u32=0 u32=0 u32=1 u32=0"

/* Files of llama.cpp's converter say neither what scores are nor that weights are normalised. */
TEST(arch_gguf_reads_kimi_linear)
{
    static const char *const more[] = {KV, "kda.head_dim u32=4 u32=16",
                                       "expert_weights_scale u32=6 f32=2.5"};
    struct read r;
    read_gguf(more, 3, &r);
    if (r.st) fail_msg("%s", r.err.text);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(mixers(c), "ddad");
    assert_true(c->kda && c->no_rope && c->n_delta_k == 4 && c->n_delta_v == 4 &&
                c->d_delta_k == 16 && c->d_delta_v == 16 && c->n_conv == 4);
    assert_true(c->kv_lora == 32 && c->d_nope == 16 && c->d_rope == 8 && c->d_v == 24 &&
                c->n_head_kv == 4);
    assert_true(c->route_sigmoid && c->route_bias && c->route_norm && c->route_scale == 2.5f &&
                c->n_shared == 1 && c->n_group == 1 && !c->norm_one);
    assert_true(c->layer[0].ffn == ARCH_DENSE && c->layer[1].ffn == ARCH_MOE);
    mem_arena_fini(&r.arena);
}

TEST(arch_gguf_refuses_kimi_linear_by_name)
{
    static const struct {
        const char *more[3], *text;
    } t[] = {
        {{KV, "expert_shared_count u32=4 u32=1"}, "kimi-linear.kda.head_dim"},
        {{KV, "kda.head_dim u32=4 u32=16", "expert_gating_func u32=4 u32=1"},
         "expert_gating_func is not 2"},
        {{KV, "kda.head_dim u32=4 u32=18", "expert_gating_func u32=4 u32=2"},
         "heads of 18 keys and 18 values"},
        {{"attention.head_count_kv u32=9 u32=4 u64=2 u32=0 u32=1", "kda.head_dim u32=4 u32=16",
          "expert_gating_func u32=4 u32=2"},
         "head_count_kv has 2 entries for 4 layers"},
        {{KV, "kda.head_dim u32=4 u32=16", "kda.gate_lower_bound u32=6 f32=5"},
         "kda.gate_lower_bound"},
        {{KV, "kda.head_dim u32=4 u32=16", "rope.scaling.factor u32=6 f32=4"},
         "rope scaling, of layers"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_gguf(t[i].more, t[i].more[2] ? 3 : 1, &r);
        if (r.st == SL_OK || !strstr(r.err.text, t[i].text))
            fail_msg("%s: \"%s\"", t[i].text, r.err.text);
        mem_arena_fini(&r.arena);
    }
}
