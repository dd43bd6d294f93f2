/* SPDX-License-Identifier: Apache-2.0 */
/* Models with a lightning indexer: configurations in both kinds of files, which layers have one of
 * their own, names, what is refused. */
#include "arch_less.h"

#define SIZES                                                                                      \
    "\"num_hidden_layers\":6,\"hidden_size\":64,\"intermediate_size\":96,"                         \
    "\"num_attention_heads\":4,\"vocab_size\":300,\"kv_lora_rank\":32,\"qk_nope_head_dim\":16,"    \
    "\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"n_routed_experts\":16,\"num_experts_per_tok\":2,"  \
    "\"moe_intermediate_size\":32,\"num_nextn_predict_layers\":1,"
#define V32 "{\"model_type\":\"deepseek_v32\"," SIZES
#define GLM "{\"model_type\":\"glm_moe_dsa\"," SIZES
#define LATENT "\"q_lora_rank\":24"

/* 'f' and 's' of each layer, '-' of those that see all; MTP layers too. */
static const char *kinds(const struct arch_cfg *c)
{
    static char text[16];
    int n = c->n_layer + c->n_mtp;
    for (int i = 0; i < n && i < 15; i++)
        text[i] = "-fs"[c->layer[i].index];
    text[n] = 0;
    return text;
}

TEST(arch_reads_an_indexer_as_the_classes_have_it)
{
    struct read r;
    read_config(V32 LATENT "}", &r);
    if (r.st) fail_msg("%s", r.err.text);
    const struct arch_cfg *c = &r.cfg;
    assert_true(c->n_index == 64 && c->d_index == 128 && c->index_top == 2048);
    assert_true(c->index_rope == ARCH_ROPE_HALF && c->rope_style == ARCH_ROPE_PAIRS);
    assert_true(c->n_group == 8 && c->n_group_used == 4 && c->route_scale == 2.5f);
    assert_string_equal(kinds(c), "fffffff");
    mem_arena_fini(&r.arena);
    read_config(GLM LATENT ",\"index_topk\":7,\"rope_interleave\":false}", &r);
    if (r.st) fail_msg("%s", r.err.text);
    assert_true(c->n_index == 32 && c->d_index == 128 && c->index_top == 7);
    assert_true(c->index_rope == ARCH_ROPE_PAIRS && c->rope_style == ARCH_ROPE_PAIRS);
    assert_true(c->n_group == 1 && c->norm_eps == 1e-5f && c->n_dense_lead == 3);
    assert_string_equal(kinds(c), "fffffff");
    mem_arena_fini(&r.arena);
}

TEST(arch_reads_which_layers_have_an_indexer)
{
    static const struct {
        const char *text, *kinds;
    } t[] = {
        {"\"indexer_types\":[\"full\",\"shared\",\"full\",\"full\",\"shared\",\"shared\"]",
         "fsffssf"},
        {"\"index_topk_pattern\":\"FFSSFS\",\"index_topk_freq\":1", "ffssfsf"},
        {"\"index_topk_pattern\":[\"full\",\"full\",\"shared\",\"shared\",\"full\",\"full\"]",
         "ffssfff"},
        {"\"index_topk_freq\":2", "ffsfsff"}, /* the offset is 2 where it is not said */
        {"\"index_topk_freq\":4,\"index_skip_topk_offset\":3", "fffsssf"},
        {"\"index_topk_freq\":3,\"index_skip_topk_offset\":1", "fssfssf"},
        {"\"indexer_types\":null,\"index_topk_freq\":0,"
         "\"index_share_for_mtp_iteration\":true",
         "fffffff"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[1024];
        struct read r;
        snprintf(text, sizeof text, GLM LATENT ",%s}", t[i].text);
        read_config(text, &r);
        if (r.st) fail_msg("case %d: %s", i, r.err.text);
        assert_string_equal(kinds(&r.cfg), t[i].kinds);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_reads_the_rope_of_an_indexer_where_it_is_said)
{
    struct read r;
    read_config(V32 LATENT ",\"indexer_rope_interleave\":true}", &r);
    assert_true(r.st == SL_OK && r.cfg.index_rope == ARCH_ROPE_PAIRS);
    mem_arena_fini(&r.arena);
    read_config(GLM LATENT ",\"indexer_rope_interleave\":false,\"layer_types\":["
                           "\"indexed_attention\",\"indexed_attention\",\"indexed_attention\","
                           "\"indexed_attention\",\"indexed_attention\",\"indexed_attention\"]}",
                &r);
    if (r.st) fail_msg("%s", r.err.text);
    assert_int_equal(r.cfg.index_rope, ARCH_ROPE_HALF);
    mem_arena_fini(&r.arena);
}

TEST(arch_refuses_indexers_by_name)
{
    static const struct {
        const char *text, *say;
        sl_status st;
    } t[] = {
        {V32 "\"q_lora_rank\":null}", "q_lora_rank 0", SL_UNSUPPORTED},
        {V32 LATENT ",\"index_topk\":0}", "index_topk is 0", SL_FORMAT},
        {V32 LATENT ",\"index_n_heads\":\"x\"}", "index_n_heads", SL_FORMAT},
        {V32 LATENT ",\"index_head_dim\":12}", "indexer heads of 12", SL_UNSUPPORTED},
        {V32 LATENT ",\"index_topk_freq\":2}", "index_topk_freq is 2", SL_UNSUPPORTED},
        {V32 LATENT ",\"scoring_func\":\"softmax\"}", "softmax", SL_UNSUPPORTED},
        {GLM LATENT ",\"topk_method\":\"greedy\"}", "greedy", SL_UNSUPPORTED},
        {GLM LATENT ",\"indexer_types\":[\"full\"]}", "indexer_types", SL_FORMAT},
        {GLM LATENT ",\"indexer_types\":[\"full\",\"full\",\"none\",\"full\",\"full\",\"full\"]}",
         "indexer_types[2]", SL_UNSUPPORTED},
        {GLM LATENT ",\"index_topk_pattern\":\"FFSS\"}", "4 letters", SL_FORMAT},
        {GLM LATENT ",\"index_topk_pattern\":\"FFSSFX\"}", "index_topk_pattern[5]", SL_UNSUPPORTED},
        {GLM LATENT ",\"index_topk_pattern\":\"SFSSFF\"}", "layer 0 shares", SL_FORMAT},
        {GLM LATENT ",\"index_topk_freq\":3,\"index_skip_topk_offset\":0}", "layer 0 shares",
         SL_FORMAT},
        {"{\"model_type\":\"deepseek_v3\"," SIZES LATENT ",\"index_topk\":2048}", "index_topk",
         SL_UNSUPPORTED},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_config(t[i].text, &r);
        if (r.st != t[i].st || !strstr(r.err.text, t[i].say))
            fail_msg("case %d: status %d, text '%s'", i, r.st, r.err.text);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_names_indexers_in_both_kinds_of_files)
{
    static const struct {
        int role;
        const char *suffix, *gguf, *hf;
    } t[] = {
        {ROLE_INDEX_Q, "weight", "blk.3.indexer.attn_q_b.weight",
         "model.layers.3.self_attn.indexer.wq_b.weight"},
        {ROLE_INDEX_K, "weight", "blk.3.indexer.attn_k.weight",
         "model.layers.3.self_attn.indexer.wk.weight"},
        {ROLE_INDEX_K_NORM, "weight", "blk.3.indexer.k_norm.weight",
         "model.layers.3.self_attn.indexer.k_norm.weight"},
        {ROLE_INDEX_K_NORM, "bias", "blk.3.indexer.k_norm.bias",
         "model.layers.3.self_attn.indexer.k_norm.bias"},
        {ROLE_INDEX_W, "weight", "blk.3.indexer.proj.weight",
         "model.layers.3.self_attn.indexer.weights_proj.weight"},
    };
    for (int i = 0; i < 2 * BASE_COUNT_OF(t); i++) {
        struct arch_naming by = {.kind = i % 2 ? IO_HF : IO_GGUF};
        const char *want = i % 2 ? t[i / 2].hf : t[i / 2].gguf;
        struct arch_name id;
        char buf[128];
        arch_tensor_name(&by, (enum arch_role)t[i / 2].role, 3, t[i / 2].suffix, buf, sizeof buf);
        assert_string_equal(buf, want);
        arch_name_parse(&by, want, &id);
        assert_true(id.role == t[i / 2].role && id.layer == 3);
        assert_string_equal(id.suffix, t[i / 2].suffix);
    }
}

/* ---- GGUF: the tiny ones, less a tensor or a key ---- */

TEST(arch_reads_indexers_of_files)
{
    static const struct {
        const char *file, *key, *lack, *kinds;
    } t[] = {
        {"deepseek_v32.gguf", NULL, NULL, "ffff"},
        {"deepseek_v32.gguf", NULL, "blk.3.indexer", "fff-"}, /* its MTP layer sees all */
        {"glm_moe_dsa.gguf", NULL, NULL, "fsfss"},
        {"glm_moe_dsa.gguf", "indexer.types", NULL, "fsfss"}, /* by the tensors */
    };
    static const char *const folder[][2] = {{"deepseek_v32", "ffff"}, {"glm_moe_dsa", "fsfss"}};
    struct read r;
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        read_file(less(t[i].file, t[i].key, t[i].lack), &r);
        if (r.st) fail_msg("case %d: %s", i, r.err.text);
        assert_string_equal(kinds(&r.cfg), t[i].kinds);
        bool glm = t[i].file[0] == 'g';
        assert_true(r.cfg.n_index == (glm ? 6 : 4) && r.cfg.d_index == (glm ? 24 : 32));
        assert_true(r.cfg.index_top == (glm ? 24 : 12));
        assert_int_equal(r.cfg.index_rope, glm ? ARCH_ROPE_PAIRS : ARCH_ROPE_HALF);
        mem_arena_fini(&r.arena);
    }
    for (int i = 0; i < BASE_COUNT_OF(folder); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", TEST_TINY, folder[i][0]);
        read_file(path, &r);
        if (r.st) fail_msg("%s: %s", folder[i][0], r.err.text);
        assert_string_equal(kinds(&r.cfg), folder[i][1]);
        mem_arena_fini(&r.arena);
    }
    unlink(less("glm_moe_dsa.gguf", NULL, NULL));
}

TEST(arch_refuses_files_without_their_indexers)
{
    static const struct {
        const char *file, *key, *lack, *say;
        sl_status st;
    } t[] = {
        {"deepseek_v32.gguf", NULL, "indexer", "no layer has an indexer", SL_UNSUPPORTED},
        {"glm_moe_dsa.gguf", NULL, "indexer", "blk.0.indexer.proj.weight", SL_UNSUPPORTED},
        {"glm_moe_dsa.gguf", "indexer.types", "blk.0.indexer", "layer 0 shares", SL_FORMAT},
        {"deepseek_v32.gguf", "indexer.top_k", NULL, "deepseek32.attention.indexer.top_k",
         SL_NOTFOUND},
        {"glm_moe_dsa.gguf", "gating_func", NULL, "expert_gating_func", SL_UNSUPPORTED},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_file(less(t[i].file, t[i].key, t[i].lack), &r);
        if (r.st != t[i].st || !strstr(r.err.text, t[i].say))
            fail_msg("case %d: status %d, text '%s'", i, r.st, r.err.text);
        mem_arena_fini(&r.arena);
    }
    unlink(less("glm_moe_dsa.gguf", NULL, NULL));
}

/* Layers that share have no place for an indexer's tensors. */
TEST(arch_unused_names_indexers_of_layers_that_share)
{
    char path[256];
    struct read r;
    struct arena a;
    const char *text = NULL;
    io_model *m = NULL;
    sl_err err;
    snprintf(path, sizeof path, "%s/glm_moe_dsa.gguf", TEST_TINY);
    read_file(path, &r);
    ASSERT_OK(io_open(path, false, &m, &err));
    mem_arena_init(&a, MEM_MISC, 0);
    r.cfg.layer[2].index = ARCH_INDEX_SHARED;
    ASSERT_STATUS(arch_unused(m, &r.cfg, &a, &text, &err), SL_UNSUPPORTED);
    assert_non_null(strstr(err.text, "blk.2.indexer."));
    assert_non_null(strstr(err.text, "for 5 tensors"));
    io_close(m);
    mem_arena_fini(&a);
    mem_arena_fini(&r.arena);
}
