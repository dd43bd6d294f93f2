/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of tiny models as JSON: every operand was made before, as wide as it is taken, and
 * matrices are as wide as their input. */
#include <stdio.h>
#include <string.h>

#include "io/io.h"
#include "model/model.h"
#include "test.h"
#include "text/json.h"

enum { NAMES = 40 };

/* What a pass has made so far. */
struct made {
    const char *name[NAMES];
    int64_t cols[NAMES];
    int n;
};

static sl_err err;

static int64_t number(const struct json *o, const char *key)
{
    int64_t v = -1;
    ASSERT_OK(text_json_int(o, key, -1, &v, &err));
    return v;
}

static const char *string(const struct json *o, const char *key)
{
    const char *s = NULL;
    ASSERT_OK(text_json_str(o, key, NULL, &s, &err));
    assert_non_null(s);
    return s;
}

static int64_t *made_at(struct made *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->name[i], name) == 0) return &m->cols[i];
    assert_true(m->n < NAMES);
    m->name[m->n] = name;
    m->cols[m->n] = 0;
    return &m->cols[m->n++];
}

static void take(struct made *m, const struct json *op)
{
    const struct json *in = text_json_get(op, "in");
    for (const struct json *o = in->child; o; o = o->next)
        if (*made_at(m, string(o, "name")) < number(o, "cols"))
            fail_msg("%s takes %lld of %s, which has %lld", string(op, "op"),
                     (long long)number(o, "cols"), string(o, "name"),
                     (long long)*made_at(m, string(o, "name")));
}

static void give(struct made *m, const struct json *op)
{
    const struct json *out = text_json_get(op, "out");
    for (const struct json *o = out->child; o; o = o->next) {
        int64_t *at = made_at(m, string(o, "name")), cols = number(o, "cols");
        assert_true(cols > 0);
        if (strcmp(string(o, "name"), "pair") == 0) cols += *at; /* its halves come one by one */
        if (cols > *at) *at = cols;
    }
}

static void check_matmul(const struct json *op)
{
    const struct json *in = text_json_get(op, "in"), *out = text_json_get(op, "out");
    const struct json *w = text_json_get(op, "weights");
    assert_int_equal(in->n, 1);
    assert_int_equal(out->n, w->n);
    for (const struct json *a = w->child, *b = out->child; a; a = a->next, b = b->next) {
        assert_int_equal(number(a, "cols"), number(in->child, "cols"));
        assert_int_equal(number(a, "rows"), number(b, "cols"));
        assert_int_equal(number(a, "n"), 1);
        assert_true(strlen(string(a, "type")) > 0);
    }
}

static void check_experts(const struct json *op, const struct arch_cfg *c)
{
    const struct json *w = text_json_get(op, "weights")->child;
    assert_string_equal(string(w, "as"), "gate_up");
    assert_int_equal(number(w, "n"), c->n_expert);
    assert_int_equal(number(w, "cols"), c->d_model);
    assert_string_equal(string(w->next, "as"), "down");
    assert_int_equal(number(w->next, "rows"), c->d_model);
    assert_int_equal(number(text_json_get(op, "params"), "used"), c->n_expert_used);
}

static void check_program(const struct json *all, const struct arch_cfg *c)
{
    struct made made = {0};
    int64_t pass = 0;
    int n_attn = 0, n_ffn = 0, n_wanted = 0;
    for (const struct json *op = all->child; op; op = op->next) {
        const char *kind = string(op, "op");
        if (number(op, "pass") != pass) { /* its hidden states go into the next */
            pass = number(op, "pass");
            made = (struct made){.name = {"hidden"}, .cols = {c->d_model}, .n = 1};
        }
        take(&made, op);
        give(&made, op);
        if (strcmp(kind, "matmul") == 0) check_matmul(op);
        if (strcmp(kind, "moe") == 0) check_experts(op, c);
        n_attn += strncmp(kind, "attn", 4) == 0;
        bool gives_r = (strcmp(kind, "ffn") == 0 || strcmp(kind, "moe") == 0) &&
                       text_json_is(text_json_get(text_json_get(op, "out")->child, "name"), "r");
        n_ffn += gives_r;
        n_wanted += strcmp(string(op, "rows"), "wanted") == 0;
    }
    assert_int_equal(n_attn, c->n_layer + pass);
    assert_int_equal(n_ffn, c->n_layer + pass);
    assert_int_equal(n_wanted, 3 * (1 + pass)); /* rows, logits, the largest of them */
}

TEST(model_programs_as_json_fit_together)
{
    static const char *const name[] = {"llama3.gguf",      "qwen3_moe.gguf", "deepseek_v2.gguf",
                                       "deepseek_v3.gguf", "glm4_moe.gguf",  "gpt_oss",
                                       "deepseek_v32",     "glm_moe_dsa.gguf", "minimax_m3.gguf"};
    for (int i = 0; i < BASE_COUNT_OF(name); i++) {
        char path[512];
        struct json_w w;
        struct str s;
        struct arena a;
        struct arch_cfg cfg;
        io_model *io = NULL;
        const struct json *all = NULL;
        snprintf(path, sizeof path, "%s/%s", TEST_TINY, name[i]);
        ASSERT_OK(io_open(path, false, &io, &err));
        mem_arena_init(&a, MEM_MISC, 0);
        ASSERT_OK(arch_cfg_read(io, &a, &cfg, &err));
        str_init(&s, MEM_MISC, 0);
        text_jw_init(&w, &s);
        ASSERT_OK(model_show(io, NULL, &w, &err));
        ASSERT_OK(text_json_parse(&a, name[i], s.p, s.n, &all, &err));
        check_program(all, &cfg);
        str_fini(&s);
        mem_arena_fini(&a);
        io_close(io);
    }
}
