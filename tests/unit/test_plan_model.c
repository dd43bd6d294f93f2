/* SPDX-License-Identifier: Apache-2.0 */
/* Model arithmetic against published sizes. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "plan/calib.h"
#include "plan/search.h"
#include "plan_load.h"

static const struct plan_model *model(const char *name)
{
    load();
    const struct plan_model *m = plan_find_model(&tables, name);
    assert_non_null(m);
    return m;
}

static void near(double got, double want, double rel)
{
    if (!(fabs(got - want) <= rel * fabs(want))) fail_msg("%.9g is not %.9g", got, want);
}

TEST(plan_experts_touched_by_1_to_128_tokens)
{
    static const double want[] = {8, 15.75, 30.5, 57.4, 102, 163, 222, 252};
    const struct plan_model *m = model("deepseek-r1");
    for (int i = 0; i < 8; i++)
        near(plan_experts_touched(m, 1 << i), want[i], 0.01);
    assert_true(plan_experts_touched(m, 1e9) <= 256);
    assert_true(plan_experts_touched(m, 0) == 0);
}

/* Uneven routing: one token still reads k, a large batch all, between them fewer; by 1000 steps. */
TEST(plan_experts_read_with_uneven_routing)
{
    static const char *name[] = {"deepseek-r1", "gpt-oss-120b", "Qwen3-30B-A3B"};
    load();
    for (int n = 0; n < 3; n++) {
        const struct plan_model *m = plan_find_model(&tables, name[n]);
        assert_non_null(m);
        assert_true(fabs(plan_experts_read(m, 1) / m->topk - 1) < 1e-6);
        assert_true(plan_experts_read(m, 1e6) > 0.999 * m->experts && plan_experts_read(m, 0) == 0);
        for (double t = 2; t < 5000; t *= 2) {
            double sum = 0, top = 3 / (1 - exp(-3)) * m->topk / m->experts;
            for (int i = 0; i < 1000; i++)
                sum += 1 - pow(1 - top * exp(-3 * (i + 0.5) / 1000), t);
            double got = plan_experts_read(m, t);
            assert_true(fabs(got / (sum * m->experts / 1000) - 1) < 0.002);
            assert_true(got <= plan_experts_touched(m, t) + 1e-9);
        }
    }
    struct plan_model few = {.experts = 4, .topk = 4}; /* all experts, always */
    assert_true(plan_experts_read(&few, 1) == 4 && plan_experts_read(&few, 9) == 4);
    few.topk = 3;
    assert_true(fabs(plan_experts_read(&few, 1) - 3) < 1e-3);
}

TEST(plan_weights_of_r1_by_format)
{
    const struct plan_model *m = model("deepseek-r1-0528-awq");
    struct plan_format f;
    assert_true(plan_format_find("awq", &f));
    near(plan_weight_bytes(m, &f, false), 348.6e9, 0.001);
    assert_true(plan_format_find("NVFP4", &f));
    near(plan_weight_bytes(m, &f, false), 377e9, 0.005);
    assert_true(plan_format_find("w4a8", &f));
    near(plan_weight_bytes(m, &f, false), 327e9 + 17.1e9, 0.002);
    assert_true(plan_format_find("fp8", &f));
    near(plan_weight_bytes(m, &f, true), 640.1 * 1073741824.0, 0.01);
    assert_false(plan_format_find("int3", &f));
}

TEST(plan_kv_of_mla_is_not_split_by_tp)
{
    const struct plan_model *m = model("deepseek-r1"), *q = model("qwen3-235b-a22b");
    near(plan_kv_bytes(m, 1000, 16, 1), 70272e3, 1e-9);
    near(plan_kv_bytes(m, 1000, 16, 8), 70272e3, 1e-9);
    near(plan_kv_bytes(q, 1000, 16, 1), 192512e3, 1e-9);
    near(plan_kv_bytes(q, 1000, 16, 8), 192512e3 / 4, 1e-9); /* four KV heads */
    near(plan_kv_bytes(model("deepseek-v3.2"), 1, 16, 8), 70272 + 128 * 2 * 61, 1e-9);
    /* 256 positions of windows: 2 B of 512, in f32 what entries are made of; blocks of 32 with 8
       entries and a group of 16 keys of 128, or one entry */
    const struct plan_model *f = model("deepseek-v4-flash");
    double blk = 21 * (8 * 1024 + 16 * 128 * 2) + 20 * 1024.0;
    double win = 43 * 1024 + 21 * 4 * 4 * (512 + 128.0) + 20 * 4 * 2 * 512;
    double want = 256 * win + blk * 1e6 / 32;
    near(plan_kv_bytes(f, 1e6, 16, 1), want, 1e-9);
}

TEST(plan_params_of_the_table_match_their_shapes)
{
    load();
    for (int i = 0; i < tables.n_model; i++) {
        const struct plan_model *m = &tables.model[i];
        double experts = (double)m->moe_layers * m->experts * m->p_expert;
        assert_true(m->total > experts && m->active > 0 && m->active <= m->total * 1.01);
        assert_true(m->p_attn > 0 && isfinite(m->p_mtp));
    }
    near(model("deepseek-r1")->p_mtp, 13.46e9, 0.01);
    near(model("kimi-k2")->total, 1026.41e9, 1e-6);
}

TEST(plan_names_are_found_as_people_write_them)
{
    load();
    static const char *const dev[][2] = {
        {"ascend-910b1", "Ascend 910B1"},
        {"910B4", "Ascend 910B4 64GB"},
        {"H20 96GB (2 nodes)", "H20 96GB"},
        {"8x L20 + Xeon Gold 6454S", "L20"},
        {"CloudMatrix384 (Ascend 910C)", "Ascend 910C package"},
        {"A800 40GB (6 nodes)", "A800 SXM 40GB"},
        {"RTX4090 + EPYC 9355", "RTX 4090"},
        {"1x Ascend A3 die 64GB + Kunpeng 40 cores", "Ascend 910C per die"},
    };
    for (int i = 0; i < BASE_COUNT_OF(dev); i++) {
        const struct plan_device *d = plan_find_device(&tables, dev[i][0]);
        if (!d || strncmp(d->name, dev[i][1], strlen(dev[i][1])) != 0)
            fail_msg("%s gave %s", dev[i][0], d ? d->name : "none");
    }
    assert_null(plan_find_device(&tables, "abacus"));
    assert_null(plan_find_model(&tables, "deepseek-r9"));
    char near_names[200];
    plan_nearest(&tables, 0, "deepseek-r9", near_names, sizeof near_names);
    assert_non_null(strstr(near_names, "DeepSeek-R1"));
}

TEST(plan_memory_of_r1_awq_on_tp8)
{
    struct plan_case c = {
        .model = model("deepseek-r1"), .dev = plan_find_device(&tables, "910b1"), .kv_bits = 16};
    struct plan_memory m;
    assert_true(plan_format_find("awq", &c.fmt));
    c.lay = (struct plan_layout){
        .cards = 8, .ranks = 8, .tp = 8, .pp = 1, .dp = 1, .ep = 1, .chunk = 8192};
    plan_memory(&c, 8, 8192, &m);
    near(m.weights, 43.6e9, 0.02); /* the replicated q_a and kv_a are over 1/8 of all */
    near(m.kv, 8 * 8192 * 70272.0, 1e-9);
    assert_true(m.fits && m.free_seq > 8);
    assert_true(plan_format_find("int8", &c.fmt));
    plan_memory(&c, 8, 8192, &m);
    assert_false(m.fits);
}

TEST(plan_claims_that_no_memory_holds)
{
    char why[200];
    assert_non_null(plan_claim(model("deepseek-r1"), 0, 289e9, why, sizeof why));
    assert_non_null(strstr(why, "289"));
    assert_non_null(plan_claim(model("deepseek-r1"), 16, 16 * 64e9, why, sizeof why));
    assert_null(plan_claim(model("deepseek-r1"), 4, 512e9, why, sizeof why));
}

TEST(plan_model_from_a_config)
{
    static const char text[] = "{\"num_hidden_layers\":61,\"hidden_size\":7168,\"num_attention_"
                               "heads\":128,\"num_key_value_heads\":128,"
                               "\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,"
                               "\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
                               "\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"n_shared_"
                               "experts\":1,\"moe_intermediate_size\":2048,"
                               "\"intermediate_size\":18432,\"first_k_dense_replace\":3,\"vocab_"
                               "size\":129280,\"num_nextn_predict_layers\":1}";
    struct plan_model m;
    sl_err err;
    load();
    ASSERT_OK(plan_model_from_config(
        &m, &arena, "x", (struct plan_bytes){"config.json", text, sizeof text - 1}, &err));
    near(m.total, 671.03e9, 1e-4);
    near(m.active, 36.62e9, 0.002);
    near(m.kv_token, 70272, 1e-9);
    static const char bad[] = "{\"num_hidden_layers\":61,\"hidden_size\":-1}";
    ASSERT_STATUS(plan_model_from_config(&m, &arena, "x",
                                         (struct plan_bytes){"config.json", bad, sizeof bad - 1},
                                         &err),
                  SL_FORMAT);
    assert_non_null(strstr(err.text, "hidden_size"));
}

/* What makers write into their files, shortened to what the planner reads. */
static const struct {
    const char *name, *text;
    double total, active; /* billions, published or counted from the files */
    double kv64k;         /* bytes of 64K tokens in BF16 */
} CONFIGS[] = {
    {"GLM-4.5-Air",
     "{\"num_hidden_layers\":46,\"hidden_size\":4096,\"num_attention_heads\":96,"
     "\"num_key_value_heads\":8,\"head_dim\":128,\"n_routed_experts\":128,"
     "\"num_experts_per_tok\":8,\"n_shared_experts\":1,\"moe_intermediate_size\":1408,"
     "\"intermediate_size\":10944,\"first_k_dense_replace\":1,\"vocab_size\":151552}",
     106.85, 12.8, 188416 * 65536.0},
    {"MiniMax-M2",
     "{\"num_hidden_layers\":62,\"hidden_size\":3072,\"num_attention_heads\":48,"
     "\"num_key_value_heads\":8,\"head_dim\":128,\"num_local_experts\":256,"
     "\"num_experts_per_tok\":8,\"intermediate_size\":1536,\"shared_intermediate_size\":0,"
     "\"vocab_size\":200064}",
     228.7, 10.42, 253952 * 65536.0},
    {"gpt-oss-120b",
     "{\"num_hidden_layers\":4,\"hidden_size\":2880,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8,\"head_dim\":64,\"num_local_experts\":128,"
     "\"experts_per_token\":4,\"intermediate_size\":2880,\"sliding_window\":128,"
     "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
     "\"full_attention\"],\"vocab_size\":201088}",
     14.0, 1.08, 2048 * (2 * 65536.0 + 2 * 128)},
    {"Qwen3-Next",
     "{\"num_hidden_layers\":48,\"hidden_size\":2048,\"num_attention_heads\":16,"
     "\"num_key_value_heads\":2,\"head_dim\":256,\"num_experts\":512,"
     "\"num_experts_per_tok\":10,\"moe_intermediate_size\":512,"
     "\"shared_expert_intermediate_size\":512,\"linear_num_key_heads\":16,"
     "\"linear_num_value_heads\":32,\"linear_value_head_dim\":128,\"vocab_size\":151936}",
     79.7, 3.56, 24576 * 65536.0 + 36 * 32 * 128 * 128 * 4.0},
    {"Kimi-K2.5",
     "{\"text_config\":{\"num_hidden_layers\":61,\"hidden_size\":7168,"
     "\"num_attention_heads\":64,\"q_lora_rank\":1536,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
     "\"n_routed_experts\":384,\"num_experts_per_tok\":8,\"n_shared_experts\":1,"
     "\"moe_intermediate_size\":2048,\"intermediate_size\":18432,"
     "\"first_k_dense_replace\":1,\"vocab_size\":163840}}",
     1026.4, 31.69, 70272 * 65536.0},
    {"Llama-4-Maverick",
     "{\"text_config\":{\"model_type\":\"llama4_text\",\"num_hidden_layers\":48,"
     "\"hidden_size\":5120,\"num_attention_heads\":40,\"num_key_value_heads\":8,"
     "\"head_dim\":128,\"num_local_experts\":128,\"num_experts_per_tok\":1,"
     "\"intermediate_size\":8192,\"intermediate_size_mlp\":16384,"
     "\"interleave_moe_layer_step\":2,\"vocab_size\":202048}}",
     400.7, 16.15, 196608 * 65536.0},
    {"ERNIE-4.5",
     "{\"num_hidden_layers\":54,\"hidden_size\":8192,\"num_attention_heads\":64,"
     "\"num_key_value_heads\":8,\"head_dim\":128,\"moe_num_experts\":64,\"moe_k\":8,"
     "\"moe_intermediate_size\":3584,\"moe_layer_start_index\":3,\"intermediate_size\":28672,"
     "\"vocab_size\":103424}",
     299.5, 47.08, 221184 * 65536.0},
};

TEST(plan_configs_of_todays_experts)
{
    struct plan_model m;
    sl_err err;
    load();
    for (int i = 0; i < BASE_COUNT_OF(CONFIGS); i++) {
        const char *text = CONFIGS[i].text;
        struct plan_bytes b = {CONFIGS[i].name, text, strlen(text)};
        ASSERT_OK(plan_model_from_config(&m, &arena, CONFIGS[i].name, b, &err));
        near(m.total, CONFIGS[i].total * 1e9, 0.01);
        near(m.active, CONFIGS[i].active * 1e9, 0.01);
        near(plan_kv_bytes(&m, 65536, 16, 1), CONFIGS[i].kv64k, 1e-6);
    }
    static const char text[] = "{\"num_hidden_layers\":4,\"hidden_size\":512,\"vocab_size\":999,"
                               "\"num_attention_heads\":8,\"intermediate_size\":2048,"
                               "\"my_expert_count\":64}";
    struct plan_bytes b = {"odd.json", text, sizeof text - 1};
    ASSERT_STATUS(plan_model_from_config(&m, &arena, "odd", b, &err), SL_FORMAT);
    assert_non_null(strstr(err.text, "odd.json"));
    assert_non_null(strstr(err.text, "my_expert_count"));
}

TEST(plan_model_from_tensors_takes_the_real_bits)
{
    struct plan_model m = *model("qwen3-30b-a3b");
    struct plan_format f;
    double e = 768.0 * 2048 * 128, a = 4096.0 * 2048;
    struct plan_tensor t[] = {{"blk.0.ffn_up_exps.weight", e, e * 4.5 / 8},
                              {"blk.0.attn_q.weight", a, a * 8.5 / 8},
                              {"token_embd.weight", 1e8, 2e8},
                              {"output.weight", 1e8, 2e8}};
    assert_true(plan_format_find("q8", &f));
    near(plan_model_from_tensors(&m, &f, t, 4), e * 4.5 / 8 + a * 8.5 / 8 + 4e8, 1e-9);
    near(f.expert, 4.5, 1e-9);
    near(f.attn, 8.5, 1e-9);
    near(f.head, 16, 1e-9);
}
