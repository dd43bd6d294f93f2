/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M3: configurations in both kinds of files, which layers choose blocks, names, what is
 * refused. */
#include "arch_less.h"

#define SIZES                                                                                      \
    "\"num_hidden_layers\":4,\"hidden_size\":64,\"num_attention_heads\":8,\"vocab_size\":300,"     \
    "\"num_key_value_heads\":4,\"head_dim\":128,\"rotary_dim\":64"
#define TEXT "{\"model_type\":\"minimax_m3_vl_text\"," SIZES
#define SPARSE                                                                                     \
    ",\"sparse_attention_config\":{\"sparse_num_index_heads\":4,\"sparse_index_dim\":128,"         \
    "\"sparse_block_size\":128,\"sparse_topk_blocks\":16,\"sparse_local_block\":1,"                \
    "\"sparse_attention_freq\":[0,1,1,1]"
#define NESTED                                                                                     \
    "{\"model_type\":\"minimax_m3_vl\",\"vision_config\":{},\"text_config\":{\"hidden_act\":"      \
    "\"swigluoai\",\"moe_layer_freq\":[0,0,1,1]," SIZES SPARSE "}"

/* Of each layer 'b' (blocks) or '-', and 'e' (experts) or 'd'. */
static const char *kinds(const struct arch_cfg *c)
{
    static char text[32];
    for (int i = 0; i < c->n_layer && i < 15; i++) {
        text[2 * i] = c->layer[i].index == ARCH_INDEX_OWN ? 'b' : '-';
        text[2 * i + 1] = c->layer[i].ffn == ARCH_MOE ? 'e' : 'd';
    }
    text[2 * c->n_layer] = 0;
    return text;
}

TEST(arch_reads_minimax_m3_as_its_class_has_it)
{
    struct read r;
    read_config(NESTED "}}", &r);
    if (r.st) fail_msg("%s", r.err.text);
    const struct arch_cfg *c = &r.cfg;
    assert_string_equal(c->arch, "minimax_m3");
    assert_string_equal(kinds(c), "-dbdbebe");
    assert_true(c->n_index == 4 && c->d_index == 128 && c->index_blk == 128);
    assert_true(c->index_top == 2048 && c->index_local == 1 && c->index_rope == ARCH_ROPE_HALF);
    assert_true(c->n_rot == 64 && c->rope_theta == 5e6 && c->norm_one && c->qk_norm);
    assert_true(c->d_q_norm == 128 && c->d_k_norm == 128 && !c->attn_bias);
    assert_true(c->n_expert == 128 && c->n_expert_used == 4 && c->d_ff_expert == 3072);
    assert_true(c->d_ff == 12288 && c->n_shared == 1 && arch_d_shared(c) == 3072);
    assert_true(c->route_scale == 2.0f && c->route_sigmoid && c->route_norm && c->route_bias);
    assert_true(c->glu_all && c->glu.limit == 7.0f && c->glu.alpha == 1.702f);
    assert_true(c->glu.plus == 1.0f && !c->shared_gate && !c->unshared);
    assert_string_equal(arch_tool_family(c), "minimax_m3");
    mem_arena_fini(&r.arena);
}

TEST(arch_reads_blocks_in_both_spellings)
{
    static const struct {
        const char *text, *kinds;
        int n, d, blk, top, local;
    } t[] = {
        {"}", "-e-e-e-e", 0, 0, 0, 0, 0}, /* nothing is said: attention to all */
        {",\"mlp_layer_types\":[\"dense\",\"sparse\",\"dense\",\"sparse\"]}", "-d-e-d-e", 0, 0, 0,
         0, 0},
        {",\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"full_attention\","
         "\"minimax_m3_sparse\"]}",
         "-ebe-ebe", 4, 128, 128, 2048, 1},
        {",\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"minimax_m3_sparse\","
         "\"minimax_m3_sparse\"],\"index_head_dim\":64,\"index_block_size\":32,"
         "\"index_topk_blocks\":5,\"index_local_blocks\":0}",
         "-ebebebe", 4, 64, 32, 160, 0},
        {SPARSE "},\"index_topk_blocks\":5}", "-ebebebe", 4, 128, 128, 2048, 1},
        {SPARSE ",\"use_sparse_attention\":true,\"sparse_score_type\":\"max\","
                "\"sparse_disable_index_value\":[1,1,1,1]}}",
         "-ebebebe", 4, 128, 128, 2048, 1},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[2048];
        struct read r;
        snprintf(text, sizeof text, TEXT "%s", t[i].text);
        read_config(text, &r);
        if (r.st) fail_msg("case %d: %s", i, r.err.text);
        const struct arch_cfg *c = &r.cfg;
        assert_string_equal(kinds(c), t[i].kinds);
        assert_true(c->n_index == t[i].n && c->d_index == t[i].d && c->index_blk == t[i].blk);
        assert_true(c->index_top == t[i].top && c->index_local == t[i].local);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_refuses_what_minimax_m3_is_not)
{
    static const struct {
        const char *text, *say;
        sl_status st;
    } t[] = {
        {SPARSE ",\"sparse_init_block\":1}}", "sparse_init_block is 1", SL_UNSUPPORTED},
        {SPARSE ",\"use_sparse_attention\":false}}", "use_sparse_attention is false",
         SL_UNSUPPORTED},
        {SPARSE ",\"sparse_score_type\":\"sum\"}}", "sparse_score_type", SL_UNSUPPORTED},
        {",\"sparse_attention_config\":{\"sparse_attention_freq\":[0,1]}}", "list of 4 layers",
         SL_FORMAT},
        {",\"sparse_attention_config\":{\"sparse_attention_freq\":[0,1,2,1]}}",
         "sparse_attention_freq[2]", SL_FORMAT},
        {",\"sparse_attention_config\":7}", "not an object", SL_FORMAT},
        {SPARSE "},\"layer_types\":[\"full_attention\",\"full_attention\",\"minimax_m3_sparse\","
                "\"minimax_m3_sparse\"]}",
         "differ in layer 1", SL_UNSUPPORTED},
        {",\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"full_attention\","
         "\"minimax_m3_sparse\"],\"index_n_heads\":2}",
         "2 heads beside 4", SL_UNSUPPORTED},
        {",\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"full_attention\","
         "\"minimax_m3_sparse\"],\"index_block_size\":48}",
         "blocks of 48", SL_UNSUPPORTED},
        {",\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"full_attention\","
         "\"minimax_m3_sparse\"],\"index_head_dim\":48}",
         "indexer heads of 48", SL_UNSUPPORTED},
        {",\"layer_types\":[\"full_attention\",\"minimax_m3_sparse\",\"full_attention\","
         "\"minimax_m3_sparse\"],\"index_topk_blocks\":2,\"index_local_blocks\":3}",
         "2 blocks, 3 of which", SL_FORMAT},
        {",\"partial_rotary_factor\":0.25}", "partial_rotary_factor makes it 32", SL_UNSUPPORTED},
        {",\"use_qk_norm\":false}", "use_qk_norm false", SL_UNSUPPORTED},
        {",\"use_gemma_norm\":false}", "use_gemma_norm false", SL_UNSUPPORTED},
        {",\"scoring_func\":\"softmax\"}", "softmax", SL_UNSUPPORTED},
        {",\"n_shared_experts\":2}", "n_shared_experts is 2", SL_UNSUPPORTED},
        {",\"hidden_act\":\"gelu\"}", "gelu", SL_UNSUPPORTED},
        {",\"moe_layer_freq\":1}", "moe_layer_freq is not a list", SL_FORMAT},
        {",\"index_topk\":2048}", "index_topk", SL_UNSUPPORTED},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        char text[2048];
        struct read r;
        snprintf(text, sizeof text, TEXT "%s", t[i].text);
        read_config(text, &r);
        if (r.st != t[i].st || !strstr(r.err.text, t[i].say))
            fail_msg("case %d: status %d, text '%s'", i, r.st, r.err.text);
        mem_arena_fini(&r.arena);
    }
}

TEST(arch_names_minimax_m3s_tensors)
{
    static const struct {
        int role, expert;
        const char *suffix, *gguf, *hf;
    } t[] = {
        {ROLE_INDEX_Q, -1, "weight", "indexer.attn_q.weight", "self_attn.index_q_proj.weight"},
        {ROLE_INDEX_K, -1, "weight", "indexer.attn_k.weight", "self_attn.index_k_proj.weight"},
        {ROLE_INDEX_Q_NORM, -1, "weight", "indexer.q_norm.weight", "self_attn.index_q_norm.weight"},
        {ROLE_INDEX_K_NORM, -1, "weight", "indexer.k_norm.weight", "self_attn.index_k_norm.weight"},
        {ROLE_ROUTER, -1, "weight", "ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
        {ROLE_ROUTER_BIAS, -1, "bias", "exp_probs_b.bias",
         "block_sparse_moe.e_score_correction_bias"},
        {ROLE_UP_SHEXP, -1, "weight", "ffn_up_shexp.weight",
         "block_sparse_moe.shared_experts.up_proj.weight"},
        {ROLE_DOWN_EXPS, 5, "weight", NULL, "block_sparse_moe.experts.5.w2.weight"},
        {ROLE_GATE, -1, "weight", "ffn_gate.weight", "mlp.gate_proj.weight"},
    };
    struct read r;
    read_config(TEXT "}", &r);
    for (int i = 0; i < 2 * BASE_COUNT_OF(t); i++) {
        bool hf = i % 2;
        struct arch_naming by = arch_naming_in(&r.cfg, hf ? IO_HF : IO_GGUF);
        const char *want = hf ? t[i / 2].hf : t[i / 2].gguf;
        struct arch_name id;
        char name[128];
        if (!want) continue;
        snprintf(name, sizeof name, "%s%s", hf ? "model.layers.3." : "blk.3.", want);
        arch_name_parse(&by, name, &id);
        if (id.role != t[i / 2].role || id.layer != 3 || id.expert != t[i / 2].expert)
            fail_msg("%s: role %d, layer %d, expert %d", name, id.role, id.layer, id.expert);
        assert_string_equal(id.suffix, t[i / 2].suffix);
    }
    mem_arena_fini(&r.arena);
}

TEST(arch_reads_blocks_of_files)
{
    static const struct {
        const char *key, *lack, *kinds;
        int n;
    } t[] = {
        {NULL, NULL, "-dbebebe", 2},
        {NULL, "blk.2.indexer", "-dbe-ebe", 2}, /* by the tensors */
        {NULL, "indexer", "-d-e-e-e", 0},       /* files of other programs: attention to all */
        {"indexer", "indexer", "-d-e-e-e", 0},
    };
    struct read r;
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        read_file(less("minimax_m3.gguf", t[i].key, t[i].lack), &r);
        if (r.st) fail_msg("case %d: %s", i, r.err.text);
        const struct arch_cfg *c = &r.cfg;
        assert_string_equal(kinds(c), t[i].kinds);
        assert_true(c->n_index == t[i].n && c->index_top == (t[i].n ? 48 : 0));
        assert_true(c->n_rot == 16 && !c->norm_one && arch_d_shared(c) == 40 && c->d_ff == 72);
        assert_true(c->glu_all && c->glu.limit == 7.0f && c->route_scale == 2.0f);
        mem_arena_fini(&r.arena);
    }
    read_file(less("minimax_m3.gguf", "block_size", NULL), &r);
    assert_true(r.st != SL_OK && strstr(r.err.text, "attention.indexer.block_size"));
    mem_arena_fini(&r.arena);
    read_file(less("minimax_m3.gguf", NULL, "blk.1.indexer.q_norm"), &r);
    assert_int_equal(r.st, SL_OK); /* a loader names what is missing */
    mem_arena_fini(&r.arena);
    unlink(less("minimax_m3.gguf", NULL, NULL));
}
