/* SPDX-License-Identifier: Apache-2.0 */
/* Models with gated delta layers: configurations in both kinds of files, names, what is refused. */
#include <stdio.h>
#include <string.h>

#include "arch_read.h"
#include "io_make.h"

#define SIZES                                                                                      \
    "\"num_hidden_layers\":4,\"hidden_size\":64,\"num_attention_heads\":4,"                        \
    "\"num_key_value_heads\":2,\"vocab_size\":300,\"head_dim\":32,\"intermediate_size\":96,"       \
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_key_head_dim\":16,"          \
    "\"linear_value_head_dim\":24"
#define EXPERTS                                                                                    \
    ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"                   \
    "\"shared_expert_intermediate_size\":32"
#define NESTED                                                                                     \
    "{\"model_type\":\"qwen3_5_moe\",\"tie_word_embeddings\":true,\"vision_config\":{},"           \
    "\"text_config\":{\"model_type\":\"qwen3_5_moe_text\"," SIZES EXPERTS                          \
    ",\"mtp_num_hidden_layers\":1,\"num_nextn_predict_layers\":1,\"attn_output_gate\":true,"       \
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e7,\"mrope_section\":[2,1,1]," \
    "\"mrope_interleaved\":true,\"partial_rotary_factor\":0.5}"

/* 'd' and 'a' of each layer. */
static const char *mixers(const struct arch_cfg *c)
{
    static char text[16];
    for (int i = 0; i < c->n_layer && i < 15; i++)
        text[i] = c->layer[i].mixer == ARCH_DELTA ? 'd' : 'a';
    text[c->n_layer] = 0;
    return text;
}

TEST(arch_reads_qwen3_5_nested)
{
    struct read r;
    read_config(NESTED "}}", &r);
    if (r.st) fail_msg("%s", r.err.text);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(c->arch, "qwen3_5_moe");
    assert_string_equal(mixers(c), "ddda");
    assert_true(c->n_delta_k == 2 && c->n_delta_v == 6 && c->d_delta_k == 16 &&
                c->d_delta_v == 24 && c->n_conv == 4);
    assert_true(c->attn_gate && c->qk_norm && c->norm_one && !c->delta_tiled && c->tied_head);
    assert_true(c->n_mtp == 1 && c->n_mtp_left == 0 && c->n_rot == 16 && c->rope_theta == 1e7);
    assert_true(c->n_expert == 8 && c->n_shared == 1 && c->shared_gate && c->route_norm);
    assert_int_equal(arch_d_shared(c), 32);
    assert_string_equal(c->unshared, "gated delta layers");
    for (int i = 0; i < 5; i++)
        assert_int_equal(c->layer[i].ffn, ARCH_MOE);
    assert_int_equal(c->layer[4].mixer, ARCH_GQA);
    mem_arena_fini(&r.arena);
}

/* How many MTP layers there are, and how many of these are left: several, or one with a table of
 * tokens of its own. Their mixer is attention, whatever the interval says. */
TEST(arch_reads_the_mtp_layer_beside_delta_layers)
{
    static const struct {
        const char *more;
        int n, left;
    } t[] = {
        {"", 0, 0},
        {",\"mtp_num_hidden_layers\":0,\"num_nextn_predict_layers\":1", 0, 0},
        {",\"mtp_num_hidden_layers\":1", 1, 0},
        {",\"num_nextn_predict_layers\":1,\"full_attention_interval\":3", 1, 0},
        {",\"mtp_num_hidden_layers\":2", 0, 2},
        {",\"mtp_num_hidden_layers\":1,\"mtp_use_dedicated_embeddings\":true", 0, 1},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[2048];
        struct read r;
        snprintf(text, sizeof text, "{\"model_type\":\"qwen3_5\"," SIZES "%s}", t[i].more);
        read_config(text, &r);
        if (r.st) fail_msg("%s", r.err.text);
        if (r.cfg.n_mtp != t[i].n || r.cfg.n_mtp_left != t[i].left)
            fail_msg("%s: %d read, %d left", t[i].more, r.cfg.n_mtp, r.cfg.n_mtp_left);
        for (int k = 0; k < t[i].n; k++)
            assert_true(r.cfg.layer[4 + k].mixer == ARCH_GQA && r.cfg.layer[4 + k].ffn == 0);
        mem_arena_fini(&r.arena);
    }
}

/* Names of the layer after the others in both kinds, and names that only look like it. */
TEST(arch_names_the_mtp_layer_of_folders_apart)
{
    static const struct {
        enum arch_role role;
        const char *gguf, *hf;
    } t[] = {
        {ROLE_MTP_EH, "blk.4.nextn.eh_proj.weight", "mtp.fc.weight"},
        {ROLE_MTP_ENORM, "blk.4.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
        {ROLE_MTP_HNORM, "blk.4.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
        {ROLE_MTP_HEAD_NORM, "blk.4.nextn.shared_head_norm.weight", "mtp.norm.weight"},
        {ROLE_Q, "blk.4.attn_q.weight", "mtp.layers.0.self_attn.q_proj.weight"},
        {ROLE_FFN_NORM, "blk.4.post_attention_norm.weight",
         "mtp.layers.0.post_attention_layernorm.weight"},
        {ROLE_SHEXP_GATE, "blk.4.ffn_gate_inp_shexp.weight",
         "mtp.layers.0.mlp.shared_expert_gate.weight"},
    };
    static const char *const none[] = {"mtp.layers.0.fc.weight",
                                       "mtp.input_layernorm.weight",
                                       "model.layers.4.norm.weight",
                                       "model.layers.0.fc.weight",
                                       "mtp.layers.0",
                                       "mtp.embed_tokens.weight",
                                       "model.layers.4.self_attn.q_proj.weight",
                                       "mtp.",
                                       "mtpx.fc.weight"};
    struct read r;
    struct arch_name id;
    char buf[128];
    read_config("{\"model_type\":\"qwen3_5_moe\"," SIZES EXPERTS "}", &r);
    if (r.st) fail_msg("%s", r.err.text);
    for (int i = 0; i < 2 * BASE_COUNT_OF(t); i++) {
        struct arch_naming by = arch_naming_in(&r.cfg, i % 2 ? IO_HF : IO_GGUF);
        arch_tensor_name(&by, t[i / 2].role, 4, "weight", buf, sizeof buf);
        assert_string_equal(buf, i % 2 ? t[i / 2].hf : t[i / 2].gguf);
        arch_name_parse(&by, buf, &id);
        assert_true(id.role == (int)t[i / 2].role && id.layer == 4 && id.expert == -1);
        assert_string_equal(id.suffix, "weight");
    }
    for (int i = 0; i < BASE_COUNT_OF(none); i++) {
        arch_name_parse(&r.cfg.naming, none[i], &id);
        if (id.role != -1) fail_msg("%s: role %d", none[i], id.role);
    }
    arch_name_parse(&r.cfg.naming, "mtp.layers.0.mlp.experts.7.up_proj.qweight", &id);
    assert_true(id.role == ROLE_UP_EXPS && id.layer == 4 && id.expert == 7);
    arch_name_put(&r.cfg.naming, &id, buf, sizeof buf);
    assert_string_equal(buf, "mtp.layers.0.mlp.experts.7.up_proj.qweight");
    mem_arena_fini(&r.arena);
}

TEST(arch_reads_which_layers_are_delta_layers)
{
    static const char *const t[][2] = {
        {"", "ddda"},
        {",\"full_attention_interval\":2", "dada"},
        {",\"full_attention_interval\":4,\"layer_types\":[\"full_attention\",\"linear_attention\","
         "\"linear_attention\",\"full_attention\"]",
         "adda"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[2048];
        struct read r;
        snprintf(text, sizeof text, "{\"model_type\":\"qwen3_5\"," SIZES "%s}", t[i][0]);
        read_config(text, &r);
        if (r.st) fail_msg("%s", r.err.text);
        assert_string_equal(mixers(&r.cfg), t[i][1]);
        assert_true(r.cfg.n_expert == 0 && r.cfg.n_shared == 0 && r.cfg.n_rot == 8);
        mem_arena_fini(&r.arena);
    }
}

/* A shared expert as wide as several others, and one that is not. */
TEST(arch_reads_the_width_of_a_gated_shared_expert)
{
    static const int t[][4] = {{32, 1, 0, 32}, {64, 2, 0, 64}, {40, 1, 40, 40}, {0, 0, 0, 0}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[2048];
        struct read r;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"qwen3_next\"," SIZES
                 ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                 "\"shared_expert_intermediate_size\":%d,\"mlp_only_layers\":[2]}",
                 t[i][0]);
        read_config(text, &r);
        if (r.st) fail_msg("%s", r.err.text);
        assert_true(r.cfg.n_shared == t[i][1] && r.cfg.d_ff_shared == t[i][2] &&
                    r.cfg.shared_gate == (t[i][0] > 0));
        assert_int_equal(arch_d_shared(&r.cfg), t[i][3]);
        assert_int_equal(r.cfg.layer[2].ffn, ARCH_DENSE);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_refuses_delta_layers_by_name)
{
    static const struct {
        const char *more, *text;
    } t[] = {
        {",\"linear_num_value_heads\":5", "5 value heads are not a multiple of 2 key heads"},
        {",\"linear_num_key_heads\":0", "linear_num_key_heads is 0"},
        {",\"linear_key_head_dim\":260", "heads of 260 keys and 24 values"},
        {",\"linear_value_head_dim\":18", "heads of 16 keys and 18 values"},
        {",\"linear_conv_kernel_dim\":1", "a convolution of 1"},
        {",\"linear_conv_kernel_dim\":9", "a convolution of 9"},
        {",\"attn_output_gate\":false", "attn_output_gate false"},
        {",\"attention_bias\":true", "attention_bias is not supported"},
        {",\"norm_topk_prob\":false", "norm_topk_prob false"},
        {",\"mlp_only_layers\":[1]", "mlp_only_layers"},
        {",\"full_attention_interval\":0", "full_attention_interval is 0"},
        {",\"layer_types\":[\"linear_attention\"]", "layer_types has 1 entries for 4 layers"},
        {",\"layer_types\":[\"linear_attention\",\"sliding_attention\",\"linear_attention\","
         "\"full_attention\"]",
         "layer_types[1] is sliding_attention"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[4096], key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(t[i].more + 2, "\"") + 3, t[i].more + 1);
        snprintf(text, sizeof text, "%s", NESTED "}}");
        char *old = strstr(text, key), *end = old ? old + strcspn(old, ",") + 1 : NULL;
        if (old) memmove(old, end, strlen(end) + 1);
        text[strlen(text) - 2] = 0;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s}}", t[i].more);
        refuse_config(text, t[i].text);
    }
}

TEST(arch_names_delta_layers_in_both_kinds)
{
    static const struct {
        enum arch_role role;
        const char *name[2];
    } t[] = {
        {ROLE_DELTA_QKV,
         {"blk.3.attn_qkv.weight", "model.layers.3.linear_attn.in_proj_qkv.weight"}},
        {ROLE_DELTA_Z, {"blk.3.attn_gate.weight", "model.layers.3.linear_attn.in_proj_z.weight"}},
        {ROLE_DELTA_BA, {"blk.3.ssm_ba.weight", "model.layers.3.linear_attn.in_proj_ba.weight"}},
        {ROLE_DELTA_B, {"blk.3.ssm_beta.weight", "model.layers.3.linear_attn.in_proj_b.weight"}},
        {ROLE_DELTA_A, {"blk.3.ssm_alpha.weight", "model.layers.3.linear_attn.in_proj_a.weight"}},
        {ROLE_DELTA_DT, {"blk.3.ssm_dt.bias", "model.layers.3.linear_attn.dt_bias"}},
        {ROLE_DELTA_DECAY, {"blk.3.ssm_a", "model.layers.3.linear_attn.A_log"}},
        {ROLE_DELTA_NORM, {"blk.3.ssm_norm.weight", "model.layers.3.linear_attn.norm.weight"}},
        {ROLE_SHEXP_GATE,
         {"blk.3.ffn_gate_inp_shexp.weight", "model.layers.3.mlp.shared_expert_gate.weight"}},
    };
    for (int i = 0; i < 2 * BASE_COUNT_OF(t); i++) {
        struct arch_naming by = {.kind = i % 2 ? IO_HF : IO_GGUF};
        struct arch_name id = check_name(&by, t[i / 2].role, t[i / 2].name[i % 2]);
        assert_string_equal(id.suffix, "weight");
    }
}

/* Every tensor that a mocked folder has is read, and no layer has another's. */
TEST(arch_mocks_delta_layers)
{
    static const char *const type[] = {"qwen3_next", "qwen3_5_moe"};
    for (int i = 0; i < 2; i++) {
        char text[2048];
        struct read r;
        sl_err err = {0};
        const char *unread = NULL;
        int64_t total = 0, active = 0;
        io_model *m = NULL;
        uint8_t *copy = NULL;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",\"mtp_num_hidden_layers\":1," SIZES EXPERTS "}", type[i]);
        read_config(text, &r);
        if (r.st) fail_msg("%s", r.err.text);
        struct make *f = make_file("json={\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
                                   "\"data_offsets\":[0,4]}} zero=4");
        ASSERT_OK(make_open(f->p, f->n, &m, &copy, &err));
        ASSERT_OK(arch_mock(m, &r.cfg, TENSOR_BF16, &r.arena, &err));
        ASSERT_OK(arch_unused(m, &r.cfg, &r.arena, &unread, &err));
        if (unread) fail_msg("%s", unread);
        const struct tensor *q = io_find(m, "model.layers.3.self_attn.q_proj.weight");
        assert_true(q && q->shape[0] == 2 * 4 * 32);
        assert_null(io_find(m, "model.layers.0.self_attn.q_proj.weight"));
        const struct tensor *p = io_find(m, i ? "model.layers.0.linear_attn.in_proj_qkv.weight"
                                              : "model.layers.0.linear_attn.in_proj_qkvz.weight");
        assert_true(p && p->shape[0] == 2 * 2 * 16 + (i ? 1 : 2) * 6 * 24);
        const struct tensor *fc = io_find(m, "mtp.fc.weight"),
                            *mtp_q = io_find(m, "mtp.layers.0.self_attn.q_proj.weight");
        assert_true(fc && fc->shape[1] == 128 && mtp_q && mtp_q->shape[0] == 2 * 4 * 32);
        assert_non_null(io_find(m, "mtp.layers.0.mlp.experts.7.down_proj.weight"));
        assert_null(io_find(m, "mtp.layers.0.linear_attn.out_proj.weight"));
        arch_count_params(m, &r.cfg, &total, &active);
        int64_t mtp = 2 * 64 * 64 + 5 * 64 + 2 * 32 + (8 + 4 + 2 + 2) * 32 * 64 + 64 + 8 * 64 +
                      9 * 3 * 32 * 64;
        assert_int_equal(total - active, 300 * 64 + 4 * 6 * 3 * 32 * 64 + mtp);
        io_close(m);
        free(copy);
        free(f);
        mem_arena_fini(&r.arena);
    }
}

/* ---- GGUF ---- */

static void read_gguf(const char *arch, const char *const *more, int n_more, struct read *r)
{
    static const char *const base[] = {
        "block_count u32=4 u32=4",           "embedding_length u32=4 u32=64",
        "feed_forward_length u32=4 u32=96",  "context_length u32=4 u32=512",
        "attention.head_count u32=4 u32=4",  "attention.layer_norm_rms_epsilon u32=6 f32=1e-6",
        "attention.key_length u32=4 u32=32", "attention.value_length u32=4 u32=32",
        "rope.dimension_count u32=4 u32=8",  "ssm.conv_kernel u32=4 u32=4",
        "ssm.state_size u32=4 u32=16",       "ssm.group_count u32=4 u32=2",
        "ssm.time_step_rank u32=4 u32=6"};
    char word[160];
    io_model *m = NULL;
    uint8_t *copy = NULL;
    uint64_t n_kv = 1;
    snprintf(word, sizeof word, "s=general.architecture u32=8 s=%s", arch);
    struct make *kv = make_file(word);
    for (int i = 0; i < BASE_COUNT_OF(base) + n_more; i++) {
        const char *k = i < BASE_COUNT_OF(base) ? base[i] : more[i - BASE_COUNT_OF(base)];
        snprintf(word, sizeof word, "s=%s.%s", arch, k);
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

TEST(arch_gguf_reads_delta_layers)
{
    static const struct {
        const char *arch, *more[2];
        const char *mixers;
        int n_mtp, left;
    } t[] = {
        {"qwen35",
         {"attention.head_count_kv u32=4 u32=2", "full_attention_interval u32=4 u32=2"},
         "dada",
         0,
         0},
        {"qwen3next",
         {"attention.head_count_kv u32=4 u32=2", "rope.freq_base u32=6 f32=1e7"},
         "ddda",
         0,
         0},
        {"qwen35",
         {"attention.head_count_kv u32=9 u32=4 u64=4 u32=0 u32=2 u32=2 u32=0",
          "rope.dimension_sections u32=9 u32=5 u64=4 u32=2 u32=1 u32=1 u32=0"},
         "daad",
         0,
         0},
        {"qwen35",
         {"attention.head_count_kv u32=4 u32=2", "nextn_predict_layers u32=4 u32=1"},
         "ddd",
         1,
         0},
        {"qwen35",
         {"attention.head_count_kv u32=9 u32=4 u64=4 u32=0 u32=2 u32=0 u32=2",
          "nextn_predict_layers u32=4 u32=1"},
         "dad",
         1,
         0},
        {"qwen35",
         {"attention.head_count_kv u32=9 u32=4 u64=3 u32=2 u32=0 u32=2",
          "nextn_predict_layers u32=4 u32=1"},
         "ada",
         1,
         0},
        {"qwen35",
         {"attention.head_count_kv u32=4 u32=2", "nextn_predict_layers u32=4 u32=2"},
         "dd",
         0,
         2},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        const char *more[] = {t[i].more[0], t[i].more[1], "ssm.inner_size u32=4 u32=144"};
        read_gguf(t[i].arch, more, 3, &r);
        if (r.st) fail_msg("case %d: %s", i, r.err.text);
        assert_string_equal(mixers(&r.cfg), t[i].mixers);
        assert_true(r.cfg.n_mtp == t[i].n_mtp && r.cfg.n_mtp_left == t[i].left);
        assert_true(r.cfg.n_head_kv == 2 && (!t[i].n_mtp || r.cfg.layer[3].mixer == ARCH_GQA));
        assert_true(r.cfg.d_delta_v == 24 && !r.cfg.norm_one && r.cfg.attn_gate);
        assert_int_equal(r.cfg.delta_tiled, strcmp(t[i].arch, "qwen35") == 0);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_gguf_refuses_delta_layers_by_name)
{
    static const char *const t[][2] = {
        {"ssm.inner_size u32=4 u32=100", "ssm.inner_size 100"},
        {"ssm.inner_size u32=4 u32=36", "heads of 16 keys and 6 values"},
        {"ssm.dt_b_c_rms u32=7 u8=1", "qwen35.ssm.inner_size"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_gguf("qwen35", &t[i][0], 1, &r);
        if (r.st == SL_OK || !strstr(r.err.text, t[i][1])) fail_msg("%s: %s", t[i][0], r.err.text);
        mem_arena_fini(&r.arena);
    }
    const char *const more[] = {"ssm.inner_size u32=4 u32=144", "ssm.v_head_reordered u32=7 u8=0"};
    struct read r;
    read_gguf("qwen35", more, 2, &r);
    assert_int_equal(r.st, SL_UNSUPPORTED);
    assert_non_null(strstr(r.err.text, "ssm.v_head_reordered"));
    mem_arena_fini(&r.arena);
}
