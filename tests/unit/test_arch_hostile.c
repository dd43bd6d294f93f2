/* SPDX-License-Identifier: Apache-2.0 */
/* Every GGUF key that the models read, with every value type and with hostile values
 * (docs/reliability.md F7, F8): taken or refused by name, and what is taken lies in its range, so
 * that nothing downstream divides by zero or allocates by a number from the file. */
#include <math.h>

#include "io_make.h"
#include "arch/arch.h"
#include "test.h"

struct key {
    const char *name, *value; /* as words of io_make.h */
    char kind;                /* i integer, r real, b bool, s string */
};

static const struct key keys[] = {
    {"block_count", "u32=4 u32=3", 'i'},
    {"nextn_predict_layers", "u32=4 u32=1", 'i'},
    {"embedding_length", "u32=4 u32=64", 'i'},
    {"feed_forward_length", "u32=4 u32=96", 'i'},
    {"context_length", "u32=4 u32=512", 'i'},
    {"attention.head_count", "u32=4 u32=4", 'i'},
    {"attention.head_count_kv", "u32=4 u32=2", 'i'},
    {"attention.layer_norm_rms_epsilon", "u32=6 f32=1e-6", 'r'},
    {"attention.key_length", "u32=4 u32=16", 'i'},
    {"attention.value_length", "u32=4 u32=16", 'i'},
    {"attention.key_length_mla", "u32=4 u32=24", 'i'},
    {"attention.value_length_mla", "u32=4 u32=16", 'i'},
    {"attention.kv_lora_rank", "u32=4 u32=32", 'i'},
    {"attention.q_lora_rank", "u32=4 u32=24", 'i'},
    {"attention.sliding_window", "u32=4 u32=0", 'i'},
    {"rope.dimension_count", "u32=4 u32=8", 'i'},
    {"rope.freq_base", "u32=6 f32=10000", 'r'},
    {"rope.scaling.type", "u32=8 s=yarn", 's'},
    {"rope.scaling.factor", "u32=6 f32=4", 'r'},
    {"rope.scaling.original_context_length", "u32=4 u32=128", 'r'},
    {"rope.scaling.yarn_beta_fast", "u32=6 f32=32", 'r'},
    {"rope.scaling.yarn_beta_slow", "u32=6 f32=1", 'r'},
    {"rope.scaling.attn_factor", "u32=6 f32=1", 'r'},
    {"rope.scaling.yarn_log_multiplier", "u32=6 f32=0.1", 'r'},
    {"vocab_size", "u32=4 u32=300", 'i'},
    {"expert_count", "u32=4 u32=8", 'i'},
    {"expert_used_count", "u32=4 u32=2", 'i'},
    {"expert_feed_forward_length", "u32=4 u32=32", 'i'},
    {"expert_shared_count", "u32=4 u32=1", 'i'},
    {"leading_dense_block_count", "u32=4 u32=1", 'i'},
    {"expert_group_count", "u32=4 u32=4", 'i'},
    {"expert_group_used_count", "u32=4 u32=2", 'i'},
    {"expert_weights_scale", "u32=6 f32=2.5", 'r'},
    {"expert_weights_norm", "u32=7 u8=1", 'b'},
    {"expert_gating_func", "u32=4 u32=2", 'i'},
    {"full_attention_interval", "u32=4 u32=4", 'i'},
    {"ssm.conv_kernel", "u32=4 u32=4", 'i'},
    {"ssm.state_size", "u32=4 u32=16", 'i'},
    {"ssm.group_count", "u32=4 u32=2", 'i'},
    {"ssm.time_step_rank", "u32=4 u32=4", 'i'},
    {"ssm.inner_size", "u32=4 u32=64", 'i'},
    {"expert_shared_feed_forward_length", "u32=4 u32=32", 'i'},
};

static const char *const archs[] = {"llama",    "qwen2",     "qwen3",
                                    "qwen3moe", "qwen35moe", "deepseek2"};

/* Is it a key of that architecture? Those of others are refused where they say something. */
static bool belongs(const char *arch, const char *key)
{
    static const char *const mla[] = {"_mla",         "lora_rank",     "log_multiplier", "group",
                                      "shared_count", "leading_dense", "nextn"};
    bool dense =
        strcmp(arch, "llama") == 0 || strcmp(arch, "qwen2") == 0 || strcmp(arch, "qwen3") == 0;
    bool delta = strcmp(arch, "qwen35moe") == 0;
    if (strstr(key, "ssm.") || strstr(key, "_interval") || strstr(key, "expert_shared_feed"))
        return delta;
    if (strcmp(key, "nextn_predict_layers") == 0 && delta) return true;
    for (int i = 0; i < BASE_COUNT_OF(mla); i++)
        if (strstr(key, mla[i])) return strcmp(arch, "deepseek2") == 0;
    return !dense || !strstr(key, "expert");
}

/* All keys of an architecture, key number `which` (-1 = none) with another value; NULL leaves it
 * out. */
static sl_status read_cfg(const char *arch, int which, const char *value, struct arch_cfg *cfg,
                          sl_err *err)
{
    char word[128];
    struct arena a;
    io_model *m = NULL;
    uint8_t *copy = NULL;
    uint64_t n_kv = 1;
    snprintf(word, sizeof word, "s=general.architecture u32=8 s=%s", arch);
    struct make *kv = make_file(word);
    for (int i = 0; i < BASE_COUNT_OF(keys); i++) {
        const char *v = i == which ? value : keys[i].value;
        if (!v || (i != which && !belongs(arch, keys[i].name))) continue;
        snprintf(word, sizeof word, "s=%s.%s %s", arch, keys[i].name, v);
        make_key(kv, &n_kv, word);
    }
    struct make *f = make_gguf(kv, n_kv);
    mem_arena_init(&a, MEM_MISC, 0);
    memset(err, 0, sizeof *err);
    sl_status st = make_open(f->p, f->n, &m, &copy, err);
    if (st == SL_OK) {
        st = arch_cfg_read(m, &a, cfg, err);
        cfg->layer = NULL;
    }
    io_close(m);
    mem_arena_fini(&a);
    free(copy);
    free(f);
    return st;
}

/* What was taken can be computed with. */
static const char *cfg_fault(const struct arch_cfg *c)
{
    if (c->n_layer < 1 || c->n_layer > 1024 || c->n_mtp < 0 || c->n_mtp > 16) return "layers";
    if (c->d_model < 8 || c->n_head < 1 || c->n_head_kv < 1 || c->n_head % c->n_head_kv ||
        c->d_head < 1)
        return "heads";
    if (!(c->norm_eps >= 0 && c->norm_eps <= 1) || !(c->rope_theta >= 1) ||
        !isfinite(c->rope_theta))
        return "reals";
    if (!isfinite(c->attn_scale) || c->attn_scale <= 0 || !isfinite(c->yarn_mscale))
        return "scales";
    if (c->n_rot < 2 || c->n_rot % 2 || c->n_ctx_train < 1 || c->n_vocab != 300)
        return "rope or context";
    if (c->n_expert && (c->n_expert_used < 1 || c->n_expert_used > c->n_expert || c->n_group < 1 ||
                        c->n_group_used < 1 || c->n_expert % c->n_group))
        return "experts";
    if (!isfinite(c->route_scale)) return "route scale";
    if (c->n_delta_k && (c->n_delta_v % c->n_delta_k || c->d_delta_k < 4 || c->d_delta_k > 256 ||
                         c->d_delta_v < 4 || c->d_delta_v > 256 || c->n_conv < 2 || c->n_conv > 8))
        return "delta layers";
    return NULL;
}

TEST(arch_gguf_keys_of_every_type_are_taken_or_refused_by_name)
{
    static const struct {
        const char *value;
        const char *fits; /* kinds that may take it */
    } type[] = {
        {"u32=0 u8=2", "ir"},
        {"u32=1 u8=2", "ir"},
        {"u32=2 u16=2", "ir"},
        {"u32=3 u16=2", "ir"},
        {"u32=4 u32=2", "ir"},
        {"u32=5 u32=2", "ir"},
        {"u32=6 f32=2", "r"},
        {"u32=7 u8=1", "b"},
        {"u32=8 s=yarn", "s"},
        {"u32=10 u64=2", "ir"},
        {"u32=11 u64=2", "ir"},
        {"u32=12 f64=2", "r"},
        {"u32=9 u32=4 u64=1 u32=2", ""},
        {"u32=9 u32=8 u64=1 s=x", ""},
        {"u32=9 u32=6 u64=0", ""},
    };
    int n_taken = 0;
    for (int a = 0; a < BASE_COUNT_OF(archs); a++)
        for (int k = 0; k < BASE_COUNT_OF(keys); k++)
            for (int t = 0; t < BASE_COUNT_OF(type); t++) {
                struct arch_cfg cfg;
                sl_err err;
                sl_status st = read_cfg(archs[a], k, type[t].value, &cfg, &err);
                bool per_layer =
                    strstr(keys[k].name, "head_count") && strncmp(type[t].value, "u32=9", 5) == 0;
                n_taken += st == SL_OK;
                if (st == SL_OK && cfg_fault(&cfg))
                    fail_msg("%s.%s %s: %s", archs[a], keys[k].name, type[t].value,
                             cfg_fault(&cfg));
                if (st != SL_OK && st != SL_FORMAT && st != SL_UNSUPPORTED)
                    fail_msg("%s: %d %s", keys[k].name, st, err.text);
                if (st != SL_OK && !err.text[0])
                    fail_msg("%s.%s %s: no text", archs[a], keys[k].name, type[t].value);
                /* a wrong type that is read is refused by the key's name; one that is not read at
                 * all is not looked at */
                bool wrong = !strchr(type[t].fits, keys[k].kind) || !*type[t].fits;
                if (wrong && !per_layer && st != SL_OK && !strstr(err.text, keys[k].name))
                    fail_msg("%s.%s %s: \"%s\" does not name it", archs[a], keys[k].name,
                             type[t].value, err.text);
            }
    assert_true(n_taken > 500);
}

TEST(arch_gguf_keys_with_hostile_values_never_give_a_broken_model)
{
    static const char *const value[] = {
        "u32=4 u32=0",
        "u32=5 u32=-1",
        "u32=4 u32=-1",
        "u32=10 u64=-1",
        "u32=11 u64=0x8000000000000000",
        "u32=4 u32=0x80000000",
        "u32=4 u32=65537",
        "u32=4 u32=1025",
        "u32=4 u32=7",
        "u32=6 f32=nan",
        "u32=6 f32=inf",
        "u32=6 f32=-inf",
        "u32=6 f32=0",
        "u32=6 f32=-1",
        "u32=6 f32=1e-45",
        "u32=6 f32=3e38",
        "u32=12 f64=1e308",
        "u32=8 s=",
        "u32=8 s=llama3",
        NULL,
    };
    int n_ok = 0, n_bad = 0;
    for (int a = 0; a < BASE_COUNT_OF(archs); a++)
        for (int k = 0; k < BASE_COUNT_OF(keys); k++)
            for (int v = 0; v < BASE_COUNT_OF(value); v++) {
                struct arch_cfg cfg;
                sl_err err;
                sl_status st = read_cfg(archs[a], k, value[v], &cfg, &err);
                const char *shown = value[v] ? value[v] : "left out";
                st == SL_OK ? n_ok++ : n_bad++;
                if (st == SL_OK && cfg_fault(&cfg))
                    fail_msg("%s.%s %s: %s", archs[a], keys[k].name, shown, cfg_fault(&cfg));
                if (st != SL_OK && (st == SL_NOMEM || st == SL_INTERNAL || !err.text[0]))
                    fail_msg("%s.%s %s: %d %s", archs[a], keys[k].name, shown, st, err.text);
            }
    assert_true(n_ok > 100 && n_bad > 1000);
}

/* One number per layer, as some converters write them. */
TEST(arch_gguf_numbers_of_layers_are_read_where_all_are_equal)
{
    static const struct {
        const char *key;
        int want;
    } t[] = {
        {"feed_forward_length", 96}, {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct arch_cfg cfg;
        sl_err err;
        char value[100];
        int k = 0;
        while (strcmp(keys[k].name, t[i].key) != 0)
            k++;
        snprintf(value, sizeof value, "u32=9 u32=5 u64=3 u32=%d u32=%d u32=%d", t[i].want,
                 t[i].want, t[i].want);
        ASSERT_OK(read_cfg("qwen3moe", k, value, &cfg, &err));
        assert_int_equal(i == 0 ? cfg.d_ff : i == 1 ? cfg.n_head : cfg.n_head_kv, t[i].want);
        snprintf(value, sizeof value, "u32=9 u32=5 u64=3 u32=%d u32=%d u32=%d", t[i].want,
                 t[i].want, 2 * t[i].want);
        ASSERT_STATUS(read_cfg("qwen3moe", k, value, &cfg, &err), SL_UNSUPPORTED);
        if (!strstr(err.text, t[i].key) || !strstr(err.text, "differs between layers"))
            fail_msg("%s", err.text);
        ASSERT_STATUS(read_cfg("qwen3moe", k, "u32=9 u32=5 u64=0", &cfg, &err), SL_FORMAT);
    }
}

TEST(arch_gguf_good_keys_are_read)
{
    struct arch_cfg cfg;
    sl_err err;
    for (int a = 0; a < BASE_COUNT_OF(archs); a++) {
        ASSERT_OK(read_cfg(archs[a], -1, NULL, &cfg, &err));
        int n_mtp = belongs(archs[a], "nextn_predict_layers");
        assert_true(cfg.n_layer == 3 - n_mtp && cfg.n_mtp + cfg.n_mtp_left == n_mtp &&
                    cfg.d_model == 64 && cfg.n_vocab == 300 && cfg.rope_theta == 10000);
    }
    assert_true(cfg.kv_lora == 32 && cfg.q_lora == 24 && cfg.d_nope == 16 && cfg.d_rope == 8 &&
                cfg.n_expert == 8 && cfg.route_sigmoid);
}
