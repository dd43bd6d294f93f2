/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of calls in a history, for the family whose models read them. */
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

/* The ids of calls and results, in order. */
static void ids_of(const char *family, const char *messages, char *out, size_t n)
{
    struct api_put how = {.family = api_family_named(family)};
    struct arena a;
    struct str s;
    const struct json *list = NULL, *got = NULL;
    sl_err err;
    size_t used = 0;
    mem_arena_init(&a, MEM_MISC, 0);
    str_init(&s, MEM_MISC, 0);
    ASSERT_OK(text_json_parse(&a, "m", messages, strlen(messages), &list, &err));
    ASSERT_OK(api_messages_put(&a, &s, list, &how, &err));
    ASSERT_OK(text_json_parse(&a, "out", str_c(&s), s.n, &got, &err));
    out[0] = 0;
    for (const struct json *m = got->child; m; m = m->next) {
        const struct json *calls = text_json_get(m, "tool_calls"),
                          *of = text_json_get(m, "tool_call_id");
        for (const struct json *c = calls ? calls->child : NULL; c; c = c->next)
            used += (size_t)snprintf(out + used, n - used, "%s ", text_json_get(c, "id")->s);
        if (of) used += (size_t)snprintf(out + used, n - used, "=%s ", of->s);
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
        ids_of(row[i].family, row[i].messages, got, sizeof got);
        assert_string_equal(got, row[i].ids);
    }
}
