/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars of calls: which texts they take, so that what is forced is what the parser reads. */
#include <string.h>

#include "api/api_internal.h"
#include "api/form.h"
#include "grammar/grammar.h"
#include "test.h"

static sl_err err;

/* May an answer be s, and nothing more or less? */
static bool takes(const grammar *g, const char *s)
{
    grammar_run *r = NULL;
    enum grammar_where w;
    int state = -1;
    ASSERT_OK(grammar_run_open(g, NULL, &r, &err));
    ASSERT_OK(grammar_state_open(r, &state, &err));
    ASSERT_OK(grammar_push_bytes(r, state, s, strlen(s), &w, &err));
    if (w != GRAMMAR_DEAD) ASSERT_OK(grammar_state_where(r, state, &w, &err));
    grammar_run_close(r);
    return w == GRAMMAR_CAN_STOP || w == GRAMMAR_DONE;
}

static grammar *open_text(const struct str *s)
{
    grammar *g = NULL;
    sl_status st = grammar_open(GRAMMAR_GBNF, str_c(s), s->n, &g, &err);
    if (st) fail_msg("%s\n%s", err.text, str_c(s));
    return g;
}

/* Does s hold none of the tags, or only the first, at its end? */
static bool is_without(const char *s, const char *const *tag, int n, bool until)
{
    size_t len = strlen(s), first = strlen(tag[0]);
    const char *end = s + len;
    if (until && (len < first || strcmp(end -= first, tag[0]) != 0)) return false;
    for (int i = 0; i < n; i++) {
        const char *at = strstr(s, tag[i]);
        if (at && (!until || at != end)) return false;
    }
    return true;
}

TEST(api_form_texts_without_tags_are_all_those)
{
    static const struct {
        const char *tags, *tag[4];
        int n;
    } row[] = {{"<ab", {"<ab"}, 1},
               {"<ab\n<b", {"<ab", "<b"}, 2},
               {"<aba\n<abb\n<b", {"<aba", "<abb", "<b"}, 3},
               {"<b\n<aa\n<abb\n<aba", {"<b", "<aa", "<abb", "<aba"}, 4}};
    static const char letter[] = "<ab";
    for (int k = 0; k < 2 * BASE_COUNT_OF(row); k++) {
        bool until = k % 2;
        struct str s, gbnf;
        str_init(&s, MEM_MISC, 0);
        str_init(&gbnf, MEM_MISC, 0);
        str_puts(&s, "");
        str_puts(&gbnf, "root ::= x\n");
        api_form_literal(&s, row[k / 2].tag[0], strlen(row[k / 2].tag[0]));
        api_form_without(&gbnf, "x", row[k / 2].tags, until, str_c(&s));
        grammar *g = open_text(&gbnf);
        for (int n = 0, all = 1; n <= 7; n++, all *= 3)
            for (int v = 0; v < all; v++) {
                char text[8] = {0};
                for (int i = 0, rest = v; i < n; i++, rest /= 3)
                    text[i] = letter[rest % 3];
                if (takes(g, text) != is_without(text, row[k / 2].tag, row[k / 2].n, until))
                    fail_msg("%s: %d %s", row[k / 2].tags, until, text);
            }
        grammar_close(g);
        str_fini(&s);
        str_fini(&gbnf);
    }
}

#define ARG(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"
#define CALL(name, args) "<tool_call>\n<function=" name ">\n" args "</function>\n</tool_call>"

static const char chat_text[] =
    "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
    "\"object\",\"required\":[\"s\",\"n\"],\"additionalProperties\":false,\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"e\":{\"enum\":[\"a\",\"b\\n\"]},"
    "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}},"
    "\"k\":{\"type\":[\"string\",\"null\"],\"maxLength\":2}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}";

/* Of this tool_parser, with the root sl-calls or sl-text. */
static grammar *calls_of(const char *family, const char *root)
{
    static const sl_model_opts o = {.vocab_only = 1};
    struct api_parse_opts opts = {.tool_parser = family, .tools = true};
    struct api_parse *parse = NULL;
    struct arena arena;
    const struct json *chat = NULL;
    struct str s;
    api a = {.o.model = NULL};
    mem_arena_init(&arena, MEM_MISC, 0);
    ASSERT_OK(sl_model_open(TEST_DATA "/../../models/demo/demo.gguf", &o, &a.o.model, &err));
    ASSERT_OK(text_json_parse(&arena, "chat", chat_text, sizeof chat_text - 1, &chat, &err));
    ASSERT_OK(api_parse_open(&opts, &parse, &err));
    str_init(&s, MEM_MISC, 0);
    str_printf(&s, "root ::= %s\n", root);
    ASSERT_OK(api_calls_put(&a, parse, chat, &s, &err));
    grammar *g = open_text(&s);
    str_fini(&s);
    api_parse_close(parse);
    sl_model_close(a.o.model);
    mem_arena_fini(&arena);
    return g;
}

#define DSML(z) "<\xef\xbd\x9c" "DSML\xef\xbd\x9c" z
#define SHUT(z) "</\xef\xbd\x9c" "DSML\xef\xbd\x9c" z ">"
#define TYPED(k, is, v) DSML("parameter name=\"" k "\" string=\"" is "\">") v SHUT("parameter") "\n"
#define INVOKE(name, args) DSML("invoke name=\"" name "\">\n") args SHUT("invoke")
#define BLOCK(calls) DSML("function_calls>\n") calls "\n" SHUT("function_calls")

/* The tag of a value says what the schema lets it be. */
TEST(api_form_of_dsml_says_which_values_are_texts)
{
    static const struct {
        const char *text;
        bool ok;
    } row[] = {
        {BLOCK(INVOKE("f", TYPED("s", "true", "a\n<b>") TYPED("n", "false", "-7"))), true},
        {BLOCK(INVOKE("f", TYPED("s", "true", "") TYPED("n", "false", "7") TYPED("k", "true", "ab"))
                   "\n" INVOKE("g", "")),
         true},
        {BLOCK(INVOKE("f", TYPED("s", "true", "") TYPED("n", "false", "7")
                               TYPED("k", "false", "null"))),
         true},
        {BLOCK(INVOKE("f", TYPED("s", "true", "") TYPED("n", "false", "7")
                               TYPED("k", "true", "null"))),
         false}, /* too long */
        {BLOCK(INVOKE("f", TYPED("s", "false", "1") TYPED("n", "false", "7"))), false},
        {BLOCK(INVOKE("f", TYPED("s", "true", "") TYPED("n", "true", "7"))), false},
        {BLOCK(INVOKE("f", TYPED("s", "true", "") TYPED("n", "false", "x"))), false},
        {BLOCK(INVOKE("f", TYPED("s", "true", ""))), false}, /* n is required */
        {BLOCK(""), false},
        {INVOKE("g", ""), false},
    };
    grammar *g = calls_of("deepseek_v32", "sl-calls");
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (takes(g, row[i].text) != row[i].ok) fail_msg("case %d: %s", i, row[i].text);
    grammar_close(g);
    g = calls_of("deepseek_v4", "sl-calls"); /* the block has another name */
    assert_true(takes(g, DSML("tool_calls>\n") INVOKE("g", "") "\n" SHUT("tool_calls")));
    assert_false(takes(g, BLOCK(INVOKE("g", ""))));
    grammar_close(g);
}

TEST(api_form_of_qwen_is_calls_as_its_templates_write_them)
{
    static const struct {
        const char *text;
        bool ok;
    } row[] = {
        {CALL("f", ARG("s", "a\n<b> </parameter") ARG("n", "-7")), true},
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("e", "b\n") ARG("l", "[true, false]")), true},
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("k", "ab")) "\n" CALL("g", ""), true},
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("k", "null")), true},
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("k", "abc")), false},
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("e", "c")), false},
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("l", "[1]")), false},
        {CALL("f", ARG("s", "") ARG("n", "x")), false},
        {CALL("f", ARG("s", "")), false},                            /* n is required */
        {CALL("f", ARG("s", "") ARG("n", "7") ARG("z", "")), false}, /* no such argument */
        {CALL("f", "<parameter=s>\na\n" ARG("n", "1")), false},      /* they end s for the parser */
        {CALL("f", ARG("s", "\n</function>") ARG("n", "1")), false},
        {CALL("h", ""), false},
        {"<function=g>\n</function>", false},
        {"a" CALL("g", ""), false},
        {"", false},
    };
    static const struct {
        const char *text;
        bool ok;
    } words[] = {{"", true},
                 {"no call < <tool <functio", true},
                 {"Look.\n\n" CALL("g", ""), true},
                 {"a <function=g>\n</function>", false},
                 {"a <tool_call>", false},
                 {CALL("h", ""), false}};
    grammar *g = calls_of("qwen3_coder", "sl-calls");
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (takes(g, row[i].text) != row[i].ok) fail_msg("%d: %s", row[i].ok, row[i].text);
    grammar_close(g);
    g = calls_of("qwen3_coder", "sl-text");
    for (int i = 0; i < BASE_COUNT_OF(words); i++)
        if (takes(g, words[i].text) != words[i].ok) fail_msg("%d: %s", words[i].ok, words[i].text);
    grammar_close(g);
}
