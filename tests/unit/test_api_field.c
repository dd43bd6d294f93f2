/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fields and the table of routes say what docs/api.md says, and every field is checked
 * as its row says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_internal.h"
#include "test.h"

static void read_doc(struct str *out)
{
    char buf[4096];
    size_t n;
    FILE *f = fopen(TEST_DATA "/../../docs/api.md", "rb");
    assert_non_null(f);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0)
        str_put(out, buf, n);
    fclose(f);
}

/* The document has this table, line by line, after its head. */
static void compare(void (*print)(struct str *out), const char *head)
{
    struct str doc, table;
    str_init(&doc, MEM_MISC, 0);
    str_init(&table, MEM_MISC, 0);
    read_doc(&doc);
    print(&table);
    const char *at = strstr(str_c(&doc), head);
    assert_non_null(at);
    const char *want = str_c(&table);
    while (*want) { /* line by line, for the message */
        size_t n = strcspn(want, "\n") + 1;
        if (strncmp(at, want, n) != 0) fail_msg("docs/api.md: the row must be: %.*s", (int)n, want);
        at += n;
        want += n;
    }
    if (*at == '|') fail_msg("docs/api.md: a row without a field: %.60s", at);
    str_fini(&doc);
    str_fini(&table);
}

TEST(api_fields_are_those_of_the_document)
{
    compare(api_fields_print, "| field | chat |");
    compare(api_fields_print_messages, "| field | | type |");
    compare(api_fields_print_tokens, "| field | tokenize |");
}

TEST(api_routes_are_in_the_document)
{
    struct str doc;
    int n = 0;
    const struct api_route *t = api_route_table(&n);
    str_init(&doc, MEM_MISC, 0);
    read_doc(&doc);
    for (int i = 0; i < n; i++) {
        char path[80];
        const char *star = strchr(t[i].path, '*');
        if (t[i].flags & API_UI && strcmp(t[i].path, "/") != 0) continue; /* files of the page */
        int len = snprintf(path, sizeof path, "%.*s%s%s", star ? (int)(star - t[i].path) : 80,
                           t[i].path, star ? "ID" : "", star ? star + 1 : "");
        assert_in_range(len, 1, (int)sizeof path - 2);
        if (star) strcat(path, "`");
        if (!strstr(str_c(&doc), path)) fail_msg("docs/api.md does not name %s", path);
    }
    str_fini(&doc);
}

TEST(api_fields_have_one_row_for_a_route)
{
    int n = 0;
    const struct api_field *t = api_field_table(&n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (t[i].routes & t[k].routes && strcmp(t[i].name, t[k].name) == 0)
                fail_msg("%s has two rows", t[i].name);
}

/* One field with one value: the verdict of the table. */
static bool takes_name(const char *name_of, int route, const char *value, struct str *unknown)
{
    struct arena a;
    struct str s;
    const struct json *body = NULL;
    sl_err err = {0};
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    str_printf(&s, "{\"%s\": %s}", name_of, value);
    sl_status st = text_json_parse(&a, "body", str_c(&s), s.n, &body, &err);
    if (st) fail_msg("%s: %s", str_c(&s), err.text);
    st = api_fields_check(body, route, unknown, &err);
    if (st) {
        char name[80];
        snprintf(name, sizeof name, "%s: ", name_of);
        assert_int_equal(st, SL_REQUEST);
        if (strncmp(err.text, name, strlen(name)) != 0)
            fail_msg("%s: the message does not begin with the field: %s", str_c(&s), err.text);
    }
    str_fini(&s);
    mem_arena_fini(&a);
    return st == SL_OK;
}

static bool takes(const struct api_field *f, int route, const char *value)
{
    return takes_name(f->name, route, value, NULL);
}

static bool takes_number(const struct api_field *f, int route, double v)
{
    char z[60];
    snprintf(z, sizeof z, "%.17g", v);
    return takes(f, route, z);
}

static void check_number_row(const struct api_field *f, int route)
{
    if (f->max < 1e15) {
        assert_true(takes_number(f, route, f->min));
        assert_true(takes_number(f, route, f->max));
        assert_false(takes_number(f, route, f->max + 1));
        assert_false(takes_number(f, route, f->min - 1));
    }
    if (f->max >= 1e15) assert_true(takes(f, route, "-9223372036854775807"));
    if (f->type == API_INT) assert_false(takes(f, route, "1.5"));
    assert_false(takes(f, route, "1e300"));
    assert_false(takes(f, route, "-1e300"));
    assert_false(takes(f, route, "true"));
    assert_false(takes(f, route, "\"1\""));
    assert_false(takes(f, route, "[]"));
}

TEST(api_fields_are_checked_as_their_rows_say)
{
    int n = 0;
    const struct api_field *t = api_field_table(&n);
    for (int i = 0; i < n; i++)
        for (int route = API_CHAT; route <= API_DETOKENIZE; route *= 2) {
            const struct api_field *f = &t[i];
            if (!(f->routes & route)) continue;
            assert_true(takes(f, route, "null"));
            if (f->what == API_SKIP) {
                assert_true(takes(f, route, "{\"any\": [1, \"thing\"]}"));
            } else if (f->what == API_DENY) {
                bool on = f->type == API_BOOL && f->min == 1; /* true is what means nothing */
                bool never = f->type == API_ANY && f->min == 1;
                assert_int_equal(takes(f, route, on ? "true" : "false"), !never);
                assert_int_equal(takes(f, route, "[]"), !never);
                assert_int_equal(takes(f, route, on ? "false" : "true"), false);
                assert_false(takes(f, route, "\"x\"") || takes(f, route, "{\"a\": 1}"));
                assert_false(takes(f, route, "5"));
            } else if (f->type == API_INT || f->type == API_REAL)
                check_number_row(f, route);
            else if (f->type == API_BOOL) {
                assert_true(takes(f, route, "true") && takes(f, route, "false"));
                assert_false(takes(f, route, "0") || takes(f, route, "\"true\""));
            } else if (f->type == API_STR) {
                assert_true(takes(f, route, "\"x\""));
                assert_false(takes(f, route, "1") || takes(f, route, "\"a\\u0000b\""));
            }
        }
}

/* Names of other servers that would change an answer, and one that nobody has. */
static const char *const foreign[] = {
    "stop_words",       "stop_sequence",    "stop_str",
    "stop_token",       "stop_tokens",      "stopping_strings",
    "eos_token_id",     "bad_words_ids",    "banned_tokens",
    "banned_strings",   "logits_bias",      "num_predict",
    "max_gen_len",      "num_beams",        "num_return_sequences",
    "guidance_scale",   "rep_pen",          "max_tokens_to_sample",
    "adaptive_target",  "think",            "reasoning_budget_tokens",
    "system_prompt",    "template",         "thinking_budget_tokens",
    "input_ids",        "input_embeds",     "prompt_embeds",
    "images",           "image_data",       "response_schema",
    "sampling_params",  "nvext",            "extra_body",
    "lora_request",     "adapter_id",       "models",
    "no_such_field",    "Temperature",      "temprature",
};

TEST(api_fields_that_no_row_names_are_refused_by_their_name)
{
    for (int route = API_CHAT; route <= API_DETOKENIZE; route *= 2)
        for (int i = 0; i < BASE_COUNT_OF(foreign); i++) {
            if (takes_name(foreign[i], route, "\"x\"", NULL))
                fail_msg("%s is passed over on route %d", foreign[i], route);
            assert_true(takes_name(foreign[i], route, "null", NULL));
        }
    assert_false(takes_name("system", API_CHAT, "\"x\"", NULL));
    assert_false(takes_name("suffix", API_CHAT, "\"x\"", NULL));
    assert_false(takes_name("with_pieces", API_TOKENIZE, "true", NULL));
}

TEST(api_fields_that_no_row_names_may_be_told_instead)
{
    struct str unknown;
    str_init(&unknown, MEM_MISC, 0);
    assert_true(takes_name("no_such", API_CHAT, "1", &unknown));
    assert_true(takes_name("n\u00f6_\\nsuch", API_CHAT, "1", &unknown));
    assert_true(takes_name("top_k", API_CHAT, "1", &unknown));
    assert_string_equal(str_c(&unknown), "no_such, n??_?such");
    assert_false(takes_name("top_k", API_CHAT, "\"x\"", &unknown));
    assert_false(takes_name("stop_words", API_CHAT, "\"x\"", &unknown));
    str_fini(&unknown);
}

TEST(api_fields_of_chat_stand_beside_messages_of_tokenize)
{
    static const struct {
        const char *body;
        bool taken;
    } t[] = {{"{\"messages\": [], \"tools\": []}", true},
             {"{\"prompt\": \"a\", \"tools\": []}", false},
             {"{\"prompt\": \"a\", \"messages\": []}", false},
             {"{\"messages\": [], \"no_such\": 1}", false}};
    struct arena a;
    mem_arena_init(&a, MEM_MISC, 0);
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        const struct json *body = NULL;
        sl_err err = {0};
        assert_int_equal(text_json_parse(&a, "body", t[i].body, strlen(t[i].body), &body, &err),
                         SL_OK);
        assert_int_equal(api_fields_check(body, API_TOKENIZE, NULL, &err) == SL_OK, t[i].taken);
    }
    mem_arena_fini(&a);
}
