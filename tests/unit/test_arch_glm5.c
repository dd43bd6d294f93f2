/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-5.3-Flash: its configurations in folders and in GGUF, its names, what is refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arch_less.h"
#include "arch_read.h"
#include "io_make.h"

#define SIZES                                                                                      \
    "\"model_type\":\"glm5_next_text\",\"num_hidden_layers\":4,\"hidden_size\":64,"                \
    "\"intermediate_size\":96,\"num_attention_heads\":4,\"vocab_size\":300,\"kv_lora_rank\":32,"   \
    "\"q_lora_rank\":48,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":0,\"v_head_dim\":24,"         \
    "\"head_dim\":0,\"moe_intermediate_size\":32,\"n_routed_experts\":16,"                         \
    "\"num_experts_per_tok\":2,\"index_n_heads\":2,\"index_head_dim\":16,\"index_topk\":64"
#define CONFIG(more) "{" SIZES more "}"
#define LINEAR(more) ",\"linear_attn_config\":{\"num_heads\":3,\"head_dim\":16" more "}"

/* 'd' and 'a' of each layer, of those with an indexer 'i'; MTP layers too. */
static const char *mixers(const struct arch_cfg *c)
{
    static char text[16];
    for (int i = 0; i < c->n_layer + c->n_mtp && i < 15; i++)
        text[i] = c->layer[i].mixer == ARCH_DELTA       ? 'd'
                  : c->layer[i].mixer != ARCH_MLA       ? '?'
                  : c->layer[i].index == ARCH_INDEX_OWN ? 'i'
                                                        : 'a';
    text[c->n_layer + c->n_mtp] = 0;
    return text;
}

static void read_well(const char *text, struct read *r)
{
    read_config(text, r);
    if (r->st) fail_msg("%s: %s", text, r->err.text);
}

/* As it is published. */
TEST(arch_reads_glm5_next)
{
    struct read r;
    read_well("{\"model_type\":\"glm5_next\",\"tie_word_embeddings\":false,\"vision_config\":{"
              "\"depth\":24},\"text_config\":" CONFIG(
                  ",\"layer_types\":[\"linear_attention\",\"deepseek_sparse_attention\","
                  "\"linear_attention\",\"indexed_attention\"],\"mlp_layer_types\":[\"dense\","
                  "\"sparse\",\"sparse\",\"sparse\"],\"index_kpool\":4,"
                  "\"index_kpool_compress\":true,\"index_kpool_always_select_tail\":true,"
                  "\"mhc\":true,\"hc_mult\":4,\"hc_eps\":1e-5,\"hc_sinkhorn_iters\":7,"
                  "\"mla_use_nope\":true,"
                  "\"rms_norm_eps\":1e-4,\"moe_router_dtype\":\"float32\",\"swiglu_limit\":9.5,"
                  "\"indexer_types\":[\"shared\",\"full\",\"full\",\"full\"],"
                  "\"num_nextn_predict_layers\":1,\"qk_head_dim\":16,\"first_k_dense_replace\":1,"
                  "\"index_share_for_mtp_iteration\":true,\"indexer_rope_interleave\":true"
                      LINEAR(",\"short_conv_kernel_size\":3,\"gate_lower_bound\":-4.0,"
                             "\"kda_layers\":[0,2],\"full_attn_layers\":[1,3]")) "}",
              &r);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(mixers(c), "didii");
    assert_true(c->kda && !c->kda_whole && c->no_rope && c->delta_bound == -4.0f &&
                c->n_delta_k == 3 && c->n_delta_v == 3 && c->d_delta_k == 16 &&
                c->d_delta_v == 16 && c->n_conv == 3);
    assert_true(c->kv_lora == 32 && c->q_lora == 48 && c->d_nope == 16 && c->d_rope == 0 &&
                c->n_rot == 0 && c->d_v == 24 && c->d_head == 16 && c->attn_scale == 0.25);
    assert_true(c->latent_eps == 1e-4f && c->norm_eps == 1e-4f);
    assert_true(c->n_index == 2 && c->d_index == 16 && c->index_top == 64 && c->index_pool == 4);
    assert_true(c->n_stream == 4 && c->stream_mean && c->stream_rounds == 7 &&
                c->stream_eps == 1e-5f && c->unshared);
    assert_true(c->n_expert == 16 && c->n_shared == 1 && c->route_sigmoid && c->route_bias &&
                c->route_norm && c->route_scale == 2.5f && c->layer[0].ffn == ARCH_DENSE &&
                c->layer[1].ffn == ARCH_MOE && c->layer[4].ffn == ARCH_MOE);
    static const enum arch_role unit[] = {ROLE_GATE_EXPS, ROLE_GATE_SHEXP, ROLE_GATE};
    for (int i = 0; i < 3; i++) {
        struct glu g = arch_glu(c, 1, unit[i]);
        assert_true(g.limit == 9.5f && g.after == 0 && g.plus == 0);
    }
    assert_string_equal(arch_tool_family(c), "glm");
    mem_arena_fini(&r.arena);
}

/* What holds where nothing is said; bounds that are null. */
TEST(arch_reads_glm5_next_by_its_class)
{
    struct read r;
    read_well(CONFIG(""), &r);
    assert_string_equal(mixers(&r.cfg), "dddi");
    assert_true(r.cfg.delta_bound == -5.0f && r.cfg.index_pool == 16 && r.cfg.n_delta_k == 64 &&
                r.cfg.d_delta_k == 128 && r.cfg.n_conv == 4 && r.cfg.n_stream == 4 &&
                r.cfg.stream_rounds == 20 && r.cfg.norm_eps == 1e-5f && r.cfg.glu.limit == 10.0f &&
                r.cfg.layer[2].ffn == ARCH_DENSE && r.cfg.layer[3].ffn == ARCH_MOE &&
                r.cfg.n_ctx_train == 1048576 && r.cfg.n_mtp == 0);
    mem_arena_fini(&r.arena);
    static const struct {
        const char *config;
        float bound;
    } t[] = {{CONFIG(",\"linear_lower_bound\":null"), 0},
             {CONFIG(",\"linear_lower_bound\":-3.5"), -3.5f},
             {CONFIG(",\"linear_lower_bound\":-3.5" LINEAR("")), -3.5f},
             {CONFIG(",\"linear_lower_bound\":null" LINEAR("")), -5.0f},
             {CONFIG(",\"linear_lower_bound\":null" LINEAR(",\"safe_gate\":false")), 0},
             {CONFIG(LINEAR(",\"gate_lower_bound\":null,\"safe_gate\":false")), 0},
             {CONFIG(LINEAR(",\"gate_lower_bound\":-2")), -2.0f}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        read_well(t[i].config, &r);
        if (r.cfg.delta_bound != t[i].bound)
            fail_msg("%s: %g", t[i].config, (double)r.cfg.delta_bound);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_refuses_glm5_next_by_name)
{
    static const struct {
        const char *config, *text;
    } t[] = {
        {CONFIG(",\"attention_bias\":true"), "attention_bias true"},
        {CONFIG(",\"mla_use_nope\":false"), "mla_use_nope false"},
        {CONFIG(",\"mhc\":false"), "mhc false"},
        {CONFIG(",\"index_kpool_compress\":false"), "index_kpool_compress false"},
        {CONFIG(",\"index_kpool_always_select_tail\":false"),
         "index_kpool_always_select_tail false"},
        {CONFIG(",\"scoring_func\":\"softmax\""), "scoring_func 'softmax'"},
        {CONFIG(",\"index_kpool\":32"), "64 positions in pools of 32"},
        {CONFIG(",\"index_kpool\":3"), "64 positions in pools of 3"},
        {CONFIG(",\"index_kpool\":0"), "index_kpool is 0"},
        {CONFIG(",\"indexer_types\":[\"full\",\"full\",\"full\",\"shared\"]"), "layer 3 shares"},
        {CONFIG(",\"hc_mult\":9"), "hc_mult is 9"},
        {CONFIG(",\"linear_lower_bound\":0"), "linear_lower_bound is 0"},
        {CONFIG(LINEAR(",\"gate_lower_bound\":1")), "gate_lower_bound is 1"},
        {CONFIG(LINEAR(",\"num_v_heads\":6")), "num_v_heads is 6"},
        {CONFIG(LINEAR(",\"kda_layers\":[0,1,2]")), "kda_layers, but no layer_types"},
        {CONFIG(",\"linear_attn_config\":3"), "linear_attn_config is not an object"},
        {CONFIG(",\"layer_types\":[\"linear_attention\",\"chunked\",\"linear_attention\","
                "\"linear_attention\"]"),
         "layer_types[1] is chunked"},
        {CONFIG(",\"layer_types\":[\"linear_attention\"]"), "layer_types is not a list of 4"},
        {CONFIG(",\"value_norm\":true"), "value_norm is true"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        refuse_config(t[i].config, t[i].text);
}

/* Layer 2 has a state, layer 3 an indexer, layer 4 is the MTP layer. */
TEST(arch_names_glm5_next_in_both_kinds)
{
    static const struct {
        enum arch_role role;
        int layer;
        const char *name[2];
    } t[] = {
        {ROLE_Q, 2, {"blk.2.attn_q.weight", "model.layers.2.self_attn.q_proj.weight"}},
        {ROLE_O, 3, {"blk.3.attn_output.weight", "model.layers.3.self_attn.o_proj.weight"}},
        {ROLE_KDA_F_B, 2, {"blk.2.ssm_f_b.weight", "model.layers.2.self_attn.f_b_proj.weight"}},
        {ROLE_KDA_CONV_K, 2,
         {"blk.2.ssm_conv1d_k.weight", "model.layers.2.self_attn.k_conv1d.weight"}},
        {ROLE_DELTA_B, 2, {"blk.2.ssm_beta.weight", "model.layers.2.self_attn.b_proj.weight"}},
        {ROLE_DELTA_DECAY, 2, {"blk.2.ssm_a", "model.layers.2.self_attn.A_log"}},
        {ROLE_DELTA_DT, 2, {"blk.2.ssm_dt.bias", "model.layers.2.self_attn.dt_bias"}},
        {ROLE_DELTA_NORM, 2, {"blk.2.ssm_norm.weight", "model.layers.2.self_attn.o_norm.weight"}},
        {ROLE_INDEX_W, 3,
         {"blk.3.indexer.proj.weight", "model.layers.3.self_attn.indexer.weights_proj.weight"}},
        {ROLE_INDEX_ENTRY_GATE, 3,
         {"blk.3.indexer_compressor_gate.weight",
          "model.layers.3.self_attn.indexer.index_kpool_compress_gate"}},
        {ROLE_INDEX_ENTRY_APE, 4,
         {"blk.4.indexer_compressor_ape.weight",
          "model.layers.4.self_attn.indexer.index_kpool_compress_ape"}},
        {ROLE_HC_ATTN_FN, 2, {"blk.2.hc_attn_fn.weight", "model.layers.2.hc_attn_fn"}},
        {ROLE_HC_FFN_SCALE, 3, {"blk.3.hc_ffn_scale.weight", "model.layers.3.hc_ffn_scale"}},
        {ROLE_MTP_HEAD_NORM, 4,
         {"blk.4.nextn.shared_head_norm.weight", "model.layers.4.shared_head.norm.weight"}},
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
    mem_arena_fini(&r.arena);
}

/* Every tensor that a mocked folder has is read; the MTP layer has an indexer and one stream. */
TEST(arch_mocks_glm5_next)
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
    const struct tensor *ape =
                            io_find(m, "model.layers.4.self_attn.indexer.index_kpool_compress_ape"),
                        *fn = io_find(m, "model.layers.3.hc_attn_fn");
    assert_true(ape && ape->shape[0] == 16 && ape->shape[1] == 16 && fn && fn->shape[0] == 24 &&
                fn->shape[1] == 256);
    assert_null(io_find(m, "model.layers.4.hc_attn_fn"));
    assert_null(io_find(m, "model.layers.0.self_attn.indexer.wk.weight"));
    assert_null(io_find(m, "model.hc_head.hc_fn"));
    io_close(m);
    free(copy);
    free(f);
    mem_arena_fini(&r.arena);
}

/* ---- GGUF: the tiny file, as it is, and less a key or a tensor ---- */

TEST(arch_gguf_reads_glm5_next)
{
    struct read r;
    read_file(less("glm5_next.gguf", NULL, NULL), &r);
    if (r.st) fail_msg("%s", r.err.text);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(mixers(c), "didii");
    assert_true(c->kda && !c->kda_whole && c->no_rope && c->delta_bound == -5.0f &&
                c->d_rope == 0 && c->n_rot == 0 && c->n_delta_k == 4 && c->d_delta_k == 24 &&
                c->n_conv == 4);
    assert_true(c->index_pool == 4 && c->index_top == 24 && c->n_index == 4 && c->d_index == 24 &&
                c->n_stream == 4 && c->stream_mean && c->latent_eps == c->norm_eps &&
                c->glu.limit == 1.5f && c->glu_all && c->route_scale == 2.5f);
    mem_arena_fini(&r.arena);
    read_file(less("glm5_next.gguf", "gate_lower_bound", NULL), &r);
    assert_true(r.st == SL_OK && r.cfg.delta_bound == 0);
    mem_arena_fini(&r.arena);
    read_file(less("glm5_next.gguf", "indexer.types", NULL), &r); /* by the tensors */
    assert_true(r.st == SL_OK);
    assert_string_equal(mixers(&r.cfg), "didii");
    mem_arena_fini(&r.arena);
    unlink(less("glm5_next.gguf", NULL, NULL));
}

TEST(arch_gguf_refuses_glm5_next_by_name)
{
    static const struct {
        const char *key, *lack, *text;
    } t[] = {{"indexer.kpool", NULL, "glm5-next.attention.indexer.kpool"},
             {"hyper_connection.count", NULL, "glm5-next.hyper_connection.count"},
             {"kda.head_dim", NULL, "glm5-next.kda.head_dim"},
             {"indexer.types", "blk.3.indexer", "layer 3 shares"}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_file(less("glm5_next.gguf", t[i].key, t[i].lack), &r);
        if (r.st == SL_OK || !strstr(r.err.text, t[i].text))
            fail_msg("%s: \"%s\"", t[i].text, r.err.text);
        mem_arena_fini(&r.arena);
    }
    unlink(less("glm5_next.gguf", NULL, NULL));
}
