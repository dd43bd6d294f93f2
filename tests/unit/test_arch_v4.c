/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSeek-V4: configurations in both spellings of folders, names in three, what is refused. */
#include <stdio.h>
#include <string.h>

#include "arch_read.h"

#define SIZES                                                                                      \
    "\"model_type\":\"deepseek_v4\",\"num_hidden_layers\":4,\"hidden_size\":64,"                   \
    "\"vocab_size\":300,\"num_attention_heads\":4,\"num_key_value_heads\":1,\"head_dim\":32,"      \
    "\"q_lora_rank\":40,\"o_groups\":2,\"o_lora_rank\":24,\"moe_intermediate_size\":32,"           \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":16,"                      \
    "\"index_n_heads\":2,\"index_head_dim\":32,\"index_topk\":6,\"hc_mult\":2,"                    \
    "\"hc_sinkhorn_iters\":7,\"hc_eps\":0.001,\"routed_scaling_factor\":2.5,\"swiglu_limit\":7.0"
#define YARN                                                                                       \
    "\"factor\":4.0,\"original_max_position_embeddings\":64,\"beta_fast\":32,\"beta_slow\":1"
#define OLD(more)                                                                                  \
    "{" SIZES ",\"qk_rope_head_dim\":16,\"rope_theta\":10000,\"compress_rope_theta\":40000,"       \
    "\"rope_scaling\":{\"type\":\"yarn\"," YARN "}" more "}"
#define RATIOS ",\"compress_ratios\":[0,4,128,4,0],\"num_hash_layers\":2"
#define NEW(more)                                                                                  \
    "{" SIZES ",\"layer_types\":[\"sliding_attention\",\"compressed_sparse_attention\","           \
    "\"heavily_compressed_attention\",\"compressed_sparse_attention\"],"                           \
    "\"mlp_layer_types\":[\"hash_moe\",\"hash_moe\",\"moe\",\"moe\"],"                             \
    "\"rope_parameters\":{\"main\":{\"rope_type\":\"default\",\"rope_theta\":10000,"               \
    "\"partial_rotary_factor\":0.5},\"compress\":{\"rope_type\":\"yarn\",\"rope_theta\":40000,"    \
    "\"partial_rotary_factor\":0.5,\"attention_factor\":1.0," YARN "}}" more "}"

static void read_well(const char *text, struct read *r)
{
    read_config(text, r);
    if (r->st) fail_msg("%s: %s", text, r->err.text);
}

/* Both spellings say the same. */
TEST(arch_reads_deepseek_v4_in_two_spellings)
{
    static const char *const text[] = {
        OLD(RATIOS ",\"expert_dtype\":\"fp4\",\"scoring_func\":\"sqrtsoftplus\","
                   "\"num_nextn_predict_layers\":1"),
        NEW(",\"compress_rates\":{\"compressed_sparse_attention\":4}")};
    for (int i = 0; i < 2; i++) {
        struct read r;
        read_well(text[i], &r);
        const struct arch_cfg *c = &r.cfg;
        static const int ratio[] = {0, 4, 128, 4};
        for (int k = 0; k < 4; k++) {
            const struct arch_layer *l = &c->layer[k];
            assert_true(l->mixer == ARCH_CKV && l->ffn == ARCH_MOE && l->n_window == 16);
            assert_int_equal(l->ratio, ratio[k]);
            assert_int_equal(l->index == ARCH_INDEX_OWN, ratio[k] == 4);
            assert_int_equal(l->hash, k < 2);
        }
        assert_true(c->n_mtp == (i == 0) && c->n_mtp_left == 0);
        if (!i) { /* which has a window alone, and experts that its router chooses */
            const struct arch_layer *l = &c->layer[4];
            assert_true(l->mixer == ARCH_CKV && l->ffn == ARCH_MOE && l->n_window == 16 &&
                        !l->ratio && !l->hash && l->index == ARCH_INDEX_NONE);
        }
        assert_true(c->n_stream == 2 && c->stream_rounds == 7 && c->stream_eps == 0.001f);
        assert_true(c->n_rot == 16 && c->rope_theta == 10000 && c->entry_theta == 40000 &&
                    c->rope_kind == ARCH_ROPE_YARN && c->rope_factor == 4 && c->yarn_mscale == 1);
        assert_true(c->o_groups == 2 && c->o_lora == 24 && c->q_lora == 40 && c->kv_lora == 0);
        assert_true(c->n_index == 2 && c->d_index == 32 && c->index_top == 6);
        assert_true(c->route_root && c->route_norm && c->route_bias && !c->route_sigmoid &&
                    c->route_scale == 2.5f && c->glu.limit == 7.0f && c->glu_all);
        assert_true(c->n_expert == 8 && c->d_ff_expert == 32 && c->n_shared == 1);
        assert_string_equal(arch_tool_family(c), "dsml4");
        mem_arena_fini(&r.arena);
    }
}

/* Another rate of either kind; where nothing is said as in the class. */
TEST(arch_reads_what_deepseek_v4_leaves_unsaid)
{
    struct read r;
    read_well(NEW(",\"compress_rates\":{\"compressed_sparse_attention\":8,"
                  "\"heavily_compressed_attention\":4}"),
              &r);
    assert_true(r.cfg.layer[1].ratio == 8 && r.cfg.layer[1].index == ARCH_INDEX_OWN &&
                r.cfg.layer[2].ratio == 4 && r.cfg.layer[2].index == ARCH_INDEX_NONE);
    mem_arena_fini(&r.arena);
    read_well(OLD(""), &r);
    assert_true(r.cfg.layer[0].ratio == 128 && r.cfg.layer[1].ratio == 128 &&
                r.cfg.layer[2].ratio == 128 && r.cfg.layer[3].ratio == 4 && r.cfg.layer[2].hash &&
                !r.cfg.layer[3].hash);
    mem_arena_fini(&r.arena);
    read_well(OLD(",\"compress_ratios\":[0,0,0,128]"), &r); /* no layer has an indexer */
    assert_true(r.cfg.n_index == 0 && r.cfg.d_index == 0);
    mem_arena_fini(&r.arena);
}

TEST(arch_refuses_deepseek_v4_by_name)
{
    static const struct {
        const char *config, *text;
    } t[] = {
        {OLD(",\"compress_ratios\":[0,4,64,4]"), "compress_ratios[2] is none of 0, 4 and 128"},
        {OLD(",\"compress_ratios\":[0,4]"), "compress_ratios is not a list of 4 layers"},
        {OLD(",\"compress_ratios\":7"), "compress_ratios is not a list"},
        {OLD(",\"compress_rates\":{\"other\":4}"), "compress_rates: other"},
        {OLD(",\"compress_rates\":4"), "compress_rates is not an object"},
        {NEW(",\"compress_ratios\":[0,4,128,0]"), "compress_ratios[3] is 0"},
        {NEW(",\"num_hash_layers\":1"), "mlp_layer_types[1]"},
        {OLD(",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"x\",\"y\"]"),
         "layer_types[1] is full_attention"},
        {OLD(",\"mlp_layer_types\":[\"moe\",\"moe\",\"dense\",\"moe\"]"),
         "mlp_layer_types[2] is neither"},
        {OLD(",\"scoring_func\":\"sigmoid\""), "scoring_func 'sigmoid'"},
        {OLD(",\"norm_topk_prob\":false"), "norm_topk_prob false"},
        {OLD(",\"n_shared_experts\":2"), "n_shared_experts is 2"},
        {OLD(",\"attention_bias\":true"), "attention_bias"},
        {OLD(",\"n_group\":2"), "n_group is 2"},
        {OLD(",\"hc_mix\":2"), "hc_mix is 2"},
    };
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct read r;
        read_config(t[i].config, &r);
        if (!r.st || !strstr(r.err.text, t[i].text))
            fail_msg("%s: wanted %s", r.st ? r.err.text : "read", t[i].text);
        mem_arena_fini(&r.arena);
    }
}

/* MTP layers that have entries are no part of the model, nor what they have. */
TEST(arch_leaves_mtp_layers_of_deepseek_v4_with_entries)
{
    struct read r;
    struct arch_name id;
    read_well(OLD(",\"compress_ratios\":[0,4,128,4,128],\"num_nextn_predict_layers\":1"), &r);
    assert_true(r.cfg.n_mtp == 0 && r.cfg.n_mtp_left == 1);
    arch_name_parse(&r.cfg.naming, "mtp.0.attn.wq_a.weight", &id);
    assert_true(arch_is_mtp_left(&r.cfg, "mtp.0.attn.wq_a.weight", &id));
    arch_name_parse(&r.cfg.naming, "layers.3.attn.wq_a.weight", &id);
    assert_false(arch_is_mtp_left(&r.cfg, "layers.3.attn.wq_a.weight", &id));
    mem_arena_fini(&r.arena);
    read_well(OLD(RATIOS ",\"num_nextn_predict_layers\":1"), &r);
    arch_name_parse(&r.cfg.naming, "mtp.0.attn.wq_a.weight", &id);
    assert_true(id.layer == 4 && !arch_is_mtp_left(&r.cfg, "mtp.0.attn.wq_a.weight", &id));
    arch_name_parse(&r.cfg.naming, "mtp.1.main_proj.weight", &id); /* of other drafters */
    assert_true(arch_is_mtp_left(&r.cfg, "mtp.1.main_proj.weight", &id));
    mem_arena_fini(&r.arena);
}

/* The same tensor in three spellings. */
TEST(arch_names_deepseek_v4_in_three_spellings)
{
    static const char *const t[][3] = {
        {"blk.2.attn_kv.weight", "layers.2.attn.wkv.weight",
         "model.layers.2.self_attn.kv_proj.weight"},
        {"blk.2.attn_kv_a_norm.weight", "layers.2.attn.kv_norm.weight",
         "model.layers.2.self_attn.kv_norm.weight"},
        {"blk.2.attn_q_a_norm.weight", "layers.2.attn.q_norm.weight",
         "model.layers.2.self_attn.q_a_norm.weight"},
        {"blk.2.attn_output_a.weight", "layers.2.attn.wo_a.weight",
         "model.layers.2.self_attn.o_a_proj.weight"},
        {"blk.2.attn_output_b.weight", "layers.2.attn.wo_b.weight",
         "model.layers.2.self_attn.o_b_proj.weight"},
        {"blk.2.attn_sinks.weight", "layers.2.attn.attn_sink", "model.layers.2.self_attn.sinks"},
        {"blk.2.hc_attn_fn.weight", "layers.2.hc_attn_fn", "model.layers.2.attn_hc.fn"},
        {"blk.2.hc_ffn_scale.weight", "layers.2.hc_ffn_scale", "model.layers.2.ffn_hc.scale"},
        {"blk.2.attn_compressor_ape.weight", "layers.2.attn.compressor.ape",
         "model.layers.2.self_attn.compressor.position_bias"},
        {"blk.2.indexer_compressor_norm.weight", "layers.2.attn.indexer.compressor.norm.weight",
         "model.layers.2.self_attn.compressor.indexer.kv_norm.weight"},
        {"blk.2.indexer.proj.weight", "layers.2.attn.indexer.weights_proj.weight",
         "model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight"},
        {"blk.2.ffn_gate_inp.weight", "layers.2.ffn.gate.weight", "model.layers.2.mlp.gate.weight"},
        {"blk.2.exp_probs_b.bias", "layers.2.ffn.gate.bias",
         "model.layers.2.mlp.gate.e_score_correction_bias"},
        {"blk.2.ffn_gate_tid2eid.weight", "layers.2.ffn.gate.tid2eid",
         "model.layers.2.mlp.gate.tid2eid"},
        {"blk.2.ffn_up_shexp.weight", "layers.2.ffn.shared_experts.w3.weight",
         "model.layers.2.mlp.shared_experts.up_proj.weight"},
        {"blk.4.attn_kv.weight", "mtp.0.attn.wkv.weight",
         "model.layers.4.self_attn.kv_proj.weight"},
        {"blk.4.nextn.e_proj.weight", "mtp.0.e_proj.weight", "model.layers.4.e_proj.weight"},
        {"blk.4.nextn.hnorm.weight", "mtp.0.hnorm.weight", "model.layers.4.hnorm.weight"},
        {"blk.4.nextn.shared_head_norm.weight", "mtp.0.norm.weight",
         "model.layers.4.shared_head.norm.weight"},
        {"blk.4.nextn.hc_head_fn.weight", "mtp.0.hc_head_fn", "model.layers.4.hc_head_fn"},
        {"token_embd.weight", "embed.weight", "model.embed_tokens.weight"},
        {"output_hc_base.weight", "hc_head_base", "model.hc_head.hc_base"},
    };
    struct read r;
    read_well(OLD(RATIOS ",\"num_nextn_predict_layers\":1"), &r);
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct arch_name first = {0};
        for (int k = 0; k < 3; k++) {
            struct arch_name id;
            char name[128] = "";
            r.cfg.renamed = k == 2;
            struct arch_naming by = arch_naming_in(&r.cfg, k ? IO_HF : IO_GGUF);
            arch_name_parse(&by, t[i][k], &id);
            if (k == 0) first = id;
            if (id.role < 0 && id.global < 0) fail_msg("%s is not known", t[i][k]);
            assert_true(id.role == first.role && id.global == first.global);
            assert_int_equal(id.layer, first.layer);
            if (id.global >= 0)
                snprintf(name, sizeof name, "%s",
                         arch_global_name(&by, (enum arch_global)id.global));
            else
                arch_name_put(&by, &id, name, sizeof name);
            assert_string_equal(name, t[i][k]);
        }
    }
    mem_arena_fini(&r.arena);
}
