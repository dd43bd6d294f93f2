/* SPDX-License-Identifier: Apache-2.0 */
/* What families want of a history: ids of calls, where models read them, and a member of its own
 * for reasoning. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"
#include "test.h"

#define CALL(id, name)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"{}\"}}"
#define SAID(calls) "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" calls "]}"
#define TOOL(id) "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"" id "\"}"

/* The ids of calls and results, in order, and "|" between messages of each_call. */
static void ids_of(const struct api_put *how, const char *messages, char *out, size_t n)
{
    struct arena a;
    struct str s;
    const struct json *list = NULL, *got = NULL;
    sl_err err;
    size_t used = 0;
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&a, "m", messages, strlen(messages), &list, &err));
    ASSERT_OK(api_messages_put(&a, &s, list, how, &err));
    ASSERT_OK(text_json_parse(&a, "out", str_c(&s), s.n, &got, &err));
    out[0] = 0;
    for (const struct json *m = got->child; m; m = m->next) {
        const struct json *calls = text_json_get(m, "tool_calls"),
                          *of = text_json_get(m, "tool_call_id");
        for (const struct json *c = calls ? calls->child : NULL; c; c = c->next)
            used += (size_t)snprintf(out + used, n - used, "%s ", text_json_get(c, "id")->s);
        if (of) used += (size_t)snprintf(out + used, n - used, "=%s ", of->s);
        if (how->each_call) used += (size_t)snprintf(out + used, n - used, "| ");
    }
    assert_true(used < n);
    str_fini(&s);
    mem_arena_fini(&a);
}

TEST(api_ids_of_kimi_are_numbered_over_the_conversation)
{
    static const struct {
        const char *family, *messages, *ids;
    } row[] = {
        {"kimi",
         "[" SAID(CALL("call_x", "f") "," CALL("call_y", "g")) "," TOOL("call_y") "," TOOL(
             "call_x") "," SAID(CALL("functions.f:2", "f")) "," TOOL("functions.f:2") "]",
         "functions.f:0 functions.g:1 =functions.g:1 =functions.f:0 functions.f:2 =functions.f:2 "},
        /* its own come back as they are, also those of a history that was cut */
        {"kimi", "[" SAID(CALL("functions.f:4", "f")) "," TOOL("functions.f:4") "]",
         "functions.f:4 =functions.f:4 "},
        {"kimi", "[" SAID(CALL("a", "f")) "," TOOL("other") "]", "functions.f:0 =other "},
        {"kimi",
         "[{\"role\":\"assistant\",\"content\":\"\",\"function_call\":{\"name\":\"f\","
         "\"arguments\":\"{}\"}},{\"role\":\"function\",\"name\":\"f\",\"content\":\"r\"}]",
         "functions.f:0 =functions.f:0 "},
        {"hermes", "[" SAID(CALL("a", "f")) "," TOOL("a") "]", "a =a "},
    };
    char got[400];
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct api_put how = {.family = api_family_named(row[i].family)};
        ids_of(&how, row[i].messages, got, sizeof got);
        assert_string_equal(got, row[i].ids);
    }
}

/* Where a template writes one call of a message, each of several has its own, and what it gave
 * follows it. */
TEST(api_several_calls_of_a_message_become_one_each)
{
#define TWO SAID(CALL("a", "f") "," CALL("b", "g"))
    static const struct {
        const char *messages, *ids;
    } row[] = {
        {"[" TWO "," TOOL("a") "," TOOL("b") "," SAID(CALL("c", "f")) "," TOOL("c") "]",
         "a | =a | b | =b | c | =c | "},
        {"[" TWO "," TOOL("b") "," TOOL("a") "]", "a | =a | b | =b | "},
        {"[" TWO "," TOOL("b") "," TOOL("b") "]", "a | b | =b | =b | "},
        {"[" TWO "," TOOL("other") "," TOOL("b") "," TWO "]", "a | b | =b | =other | a | b | "},
    };
    static const char said[] =
        "[{\"role\":\"assistant\",\"reasoning\":\"r\",\"content\":\"w\",\"tool_calls\":["
        "{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}]},"
        "{\"role\":\"tool\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":\"2\"}]";
    struct api_put how = {.each_call = true, .family = api_family_named("harmony")};
    struct arena a;
    struct str s;
    const struct json *list = NULL;
    sl_err err;
    char got[400];
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        ids_of(&how, row[i].messages, got, sizeof got);
        assert_string_equal(got, row[i].ids);
    }
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&a, "m", said, sizeof said - 1, &list, &err));
    ASSERT_OK(api_messages_put(&a, &s, list, &how, &err));
    assert_string_equal(
        str_c(&s),
        "[{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"r\\nw\","
        "\"reasoning_content\":\"r\",\"tool_calls\":[{\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"1\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\","
        "\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"2\"}]");
    str_fini(&s);
    mem_arena_fini(&a);
}

/* Templates of gpt-oss say no reasoning of answers that are over; some say such an answer as
 * reasoning, or only that, where the message has a member for it. */
TEST(api_harmony_history_has_reasoning_only_where_it_is_said)
{
#define USER "{\"role\":\"user\",\"content\":\"u\"}"
#define THOUGHT(content, more)                                                                     \
    "{\"role\":\"assistant\",\"reasoning_content\":\"r\",\"content\":" content more "}"
    static const struct {
        const char *messages, *mark, *thinking[2]; /* of the first two messages */
    } row[] = {
        {"[" THOUGHT("\"said\"", "") "," USER "]", NULL, {NULL, NULL}},
        {"[" THOUGHT("\"\"", "") "," USER "]", NULL, {"r", NULL}},
        {"[" USER "," THOUGHT("\"said\"", "") "]", NULL, {NULL, NULL}},
        {"[" USER "," THOUGHT("\"said\"", "") "]", "|", {NULL, "r"}}, /* which goes on */
        {"[" THOUGHT("\"said\"", ",\"tool_calls\":[" CALL("a", "f") "]") "," TOOL("a") "]",
         NULL,
         {"r\nsaid", NULL}},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        struct api_put how = {.family = api_family_named("harmony"), .mark = row[i].mark};
        struct arena a;
        struct str s;
        const struct json *list = NULL, *got = NULL;
        sl_err err;
        mem_arena_init(&a, MEM_MISC, 0);
        str_init(&s, MEM_MISC, 0);
        ASSERT_OK(text_json_parse(&a, "m", row[i].messages, strlen(row[i].messages), &list, &err));
        ASSERT_OK(api_messages_put(&a, &s, list, &how, &err));
        ASSERT_OK(text_json_parse(&a, "out", str_c(&s), s.n, &got, &err));
        const struct json *m = got->child;
        for (int k = 0; k < 2; k++, m = m->next) {
            const struct json *t = text_json_get(m, "thinking");
            assert_true(!t == !row[i].thinking[k]);
            if (t) assert_string_equal(t->s, row[i].thinking[k]);
        }
        str_fini(&s);
        mem_arena_fini(&a);
    }
}
