/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the Messages API as chat requests, and items and tools of responses as messages and
 * functions: word for word, and what is refused. */
#include <string.h>

#include "api/anthropic.h"
#include "api/responses.h"
#include "test.h"

struct rig {
    api a;
    struct net_req r;
    struct api_msg msg;
    struct api_resp resp;
    struct str out;
    sl_err err;
};

static const struct json *parse(struct rig *g, const char *text)
{
    const struct json *v = NULL;
    if (text_json_parse(&g->r.arena, "body", text, strlen(text), &v, &g->err))
        fail_msg("%s: %s", text, g->err.text);
    return v;
}

static struct rig *open_rig(void)
{
    struct rig *g = test_calloc(1, sizeof *g);
    mem_arena_init(&g->r.arena, MEM_MISC, 0);
    str_init(&g->out, MEM_MISC, 0);
    return g;
}

static void close_rig(struct rig *g)
{
    str_fini(&g->out);
    mem_arena_fini(&g->r.arena);
    test_free(g);
}

static const char *tmpl = "{% if enable_thinking %}<think>{% endif %}";

/* One member of the chat request that body becomes. */
static void check_chat(const char *body, const char *key, const char *want)
{
    struct rig *g = open_rig();
    struct json_w w;
    g->a.mi.chat_template = tmpl;
    g->msg.body = parse(g, body);
    if (api_msg_read(&g->a, &g->r, &g->msg, false, &g->err)) fail_msg("%s: %s", body, g->err.text);
    const struct json *v = text_json_get(g->msg.chat, key);
    text_jw_init(&w, &g->out);
    if (v)
        text_jw_node(&w, v);
    else
        str_puts(&g->out, "none");
    if (strcmp(str_c(&g->out), want) != 0) fail_msg("%s\n%s: %s", body, key, str_c(&g->out));
    close_rig(g);
}

static void check_messages(const char *messages, const char *want)
{
    struct str s;
    str_init(&s, MEM_MISC, 0);
    str_printf(&s, "{\"max_tokens\":5,%s}", messages);
    check_chat(str_c(&s), "messages", want);
    str_fini(&s);
}

#define USER "{\"role\":\"user\",\"content\":\"u\"}"

TEST(api_anthropic_messages_become_those_of_chat)
{
    check_messages("\"messages\":[" USER "," USER "]",
                   "[{\"role\":\"user\",\"content\":\"u\\nu\"}]");
    check_messages("\"system\":\"s\",\"messages\":[{\"role\":\"system\",\"content\":\"t\"}," USER
                   ",{\"role\":\"system\",\"content\":\"l\"}]",
                   "[{\"role\":\"system\",\"content\":\"s\\nt\"},{\"role\":\"user\",\"content\":"
                   "\"u\\n<system-reminder>\\nl\\n</system-reminder>\"}]");
    check_messages("\"messages\":[{\"role\":\"system\",\"content\":\"only\"}]",
                   "[{\"role\":\"system\",\"content\":\"only\"}]");
    check_messages("\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: 1\"},"
                   "{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],"
                   "\"messages\":[" USER "]",
                   "[{\"role\":\"system\",\"content\":\"a\\nb\"}," USER "]");
    check_messages("\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"\"}]",
                   "[" USER "]");
    check_messages("\"messages\":[{\"role\":\"user\",\"content\":[]}]",
                   "[{\"role\":\"user\",\"content\":\"\"}]");
}

TEST(api_anthropic_calls_and_results_keep_their_order)
{
    check_messages(
        "\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
        "\"thinking\":\"h\",\"signature\":\"s\"},{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
        "\"text\",\"text\":\"b\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":"
        "{\"x\":[1,{\"y\":null}]}},{\"type\":\"tool_use\",\"id\":\"2\",\"name\":\"g\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\"},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"2\",\"content\":\"no\",\"is_error\":true},"
        "{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"text\",\"text\":\"d\"}]}]",
        "[" USER ",{\"role\":\"assistant\",\"content\":\"ab\",\"reasoning_content\":\"h\","
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"x\":[1,{\"y\":null}]}}},{\"id\":\"2\",\"type\":\"function\","
        "\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"Error: no\"},"
        "{\"role\":\"user\",\"content\":\"c\\nd\"}]");
}

TEST(api_anthropic_last_turn_of_the_assistant_goes_on)
{
    static const char open[] =
        "{\"max_tokens\":5,\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":\"a\"}]}",
                      call[] = "{\"max_tokens\":5,\"messages\":[" USER
                               ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":"
                               "\"a\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\"}]}]}";
    check_chat(open, "continue_final_message", "true");
    check_chat(open, "add_generation_prompt", "false");
    check_chat(call, "continue_final_message", "none");
}

TEST(api_anthropic_switches_become_those_of_the_template)
{
#define BODY(x) "{\"max_tokens\":5,\"messages\":[" USER "]" x "}"
    check_chat(BODY(""), "chat_template_kwargs", "{\"enable_thinking\":false,\"thinking\":false}");
    check_chat(BODY(",\"thinking\":{\"type\":\"adaptive\"},\"chat_template_kwargs\":{\"a\":1,"
                    "\"thinking\":false}"),
               "chat_template_kwargs", "{\"enable_thinking\":true,\"a\":1,\"thinking\":false}");
    static const char *const with[] = {"{%- if not thinking -%}", "{{ 1 if thinking is defined }}"},
                             *const without[] = {"{{ m['thinking'] }}",
                                                 "<thinking> {{ x }} thinking",
                                                 "{% if rethinking %}thinking",
                                                 "{{ m.thinking }}",
                                                 "thinking",
                                                 ""};
    for (int i = 0; i < 2; i++) {
        tmpl = with[i];
        check_chat(BODY(""), "chat_template_kwargs",
                   "{\"enable_thinking\":false,\"thinking\":false}");
    }
    for (int i = 0; i < 6; i++) {
        tmpl = without[i];
        check_chat(BODY(",\"thinking\":{\"type\":\"adaptive\"}"), "chat_template_kwargs", "none");
    }
    tmpl = NULL;
    check_chat(BODY(""), "chat_template_kwargs", "none");
    check_chat(BODY(",\"stop_sequences\":[\"x\"]"), "stop", "[\"x\"]");
    check_chat(BODY(",\"stop_sequences\":[]"), "stop", "none");
    check_chat(BODY(",\"output_config\":{\"effort\":\"high\"}"), "reasoning_effort", "\"high\"");
    check_chat(BODY(",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}],"
                    "\"tool_choice\":{\"type\":\"auto\"}"),
               "tools", "none");
    check_chat(BODY(",\"tools\":[{\"name\":\"w\",\"input_schema\":{\"type\":\"object\"},"
                    "\"strict\":true}]"),
               "tools",
               "[{\"type\":\"function\",\"function\":{\"name\":\"w\",\"parameters\":{\"type\":"
               "\"object\"},\"strict\":true}}]");
    check_chat(BODY(",\"tools\":[{\"name\":\"w\",\"input_schema\":{}}],\"tool_choice\":{\"type\":"
                    "\"tool\",\"name\":\"w\",\"disable_parallel_tool_use\":true}"),
               "parallel_tool_calls", "false");
#undef BODY
}

/* Items as messages, or with an error the text of it. */
static void check_items(const char *items, const char *want)
{
    struct rig *g = open_rig();
    sl_status st = api_resp_put_items(&g->r, &g->out, parse(g, items), &g->err);
    const char *got = st ? g->err.text : str_c(&g->out);
    if (strcmp(got, want) != 0) fail_msg("%s\n%s", items, got);
    close_rig(g);
}

#define CALL(name, args)                                                                           \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":"             \
    "\"function\","                                                                                \
    "\"function\":{\"name\":\"" name "\",\"arguments\":\"" args "\"}}]}"

TEST(api_responses_items_become_messages)
{
    check_items("[{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"p\",\"input\":"
                "\"a\\n\\\"b\\\"\"}]",
                CALL("p", "{\\\"input\\\":\\\"a\\\\n\\\\\\\"b\\\\\\\"\\\"}"));
    check_items("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"namespace\":"
                "\"n\",\"arguments\":\"{}\"}]",
                CALL("n__f", "{}"));
    check_items("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"namespace\":"
                "\"functions\",\"arguments\":\"{}\"}]",
                CALL("f", "{}"));
    check_items("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"namespace\":"
                "\"mcp__n__\"}]",
                CALL("mcp__n__f", "{}"));
    check_items("[{\"type\":\"local_shell_call\",\"call_id\":\"c\",\"action\":{\"a\":1}}]",
                CALL("local_shell", "{\\\"a\\\":1}"));
    check_items("[{\"type\":\"shell_call_output\",\"call_id\":\"c\",\"output\":[{\"stdout\":"
                "\"x\"}]},{\"type\":\"apply_patch_call_output\",\"call_id\":\"d\"}]",
                "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"[{\\\"stdout\\\":\\\"x"
                "\\\"}]\"},{\"role\":\"tool\",\"tool_call_id\":\"d\",\"content\":\"\"}");
    check_items("[{\"type\":\"web_search_call\"},{\"type\":\"reasoning\"}]", "");
    check_items("[{\"type\":\"hat\"}]", "input[0]: type hat: no item of that type");
    check_items("[{\"type\":5}]", "input[0]: type of another kind than a string: no item of that "
                                  "type");
    check_items("[" USER ",{\"type\":\"function_call_output\",\"call_id\":\"c\"}]",
                "input[1]: a function_call_output without output");
}

static void check_tools(const char *body, const char *want, const char *name, const char *flat)
{
    struct rig *g = open_rig();
    struct json_w w;
    g->resp.body = parse(g, body);
    text_jw_init(&w, &g->out);
    text_jw_obj(&w);
    assert_int_equal(api_resp_put_tools(&g->r, &g->resp, &w, &g->err), SL_OK);
    text_jw_obj_end(&w);
    if (strcmp(str_c(&g->out), want) != 0) fail_msg("%s\n%s", body, str_c(&g->out));
    const struct api_resp_tool *t = api_resp_tool_of(&g->resp, name, strlen(name));
    if (flat)
        assert_string_equal(t->flat, flat);
    else
        assert_null(t);
    close_rig(g);
}

TEST(api_responses_tools_are_found_by_their_names)
{
#define SPACE(ns)                                                                                  \
    "{\"type\":\"namespace\",\"name\":\"" ns "\",\"tools\":[{\"type\":\"function\",\"name\":"      \
    "\"f\"}]}"
#define FUNC(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
    check_tools("{\"tools\":[" SPACE("n") ",{\"type\":\"mcp\"}]}", "{\"tools\":[" FUNC("n__f") "]}",
                "f", "n__f");
    check_tools("{\"tools\":[" SPACE("n") "," SPACE("m") "]}",
                "{\"tools\":[" FUNC("n__f") "," FUNC("m__f") "]}", "f", NULL);
    check_tools("{\"tools\":[" SPACE("n") "," SPACE("m") "]}",
                "{\"tools\":[" FUNC("n__f") "," FUNC("m__f") "]}", "m__f", "m__f");
    check_tools("{\"tools\":[" SPACE("n") "," SPACE("functions") "," SPACE("n") "]}",
                "{\"tools\":[" FUNC("n__f") "," FUNC("f") "]}", "f", "f");
#undef SPACE
#undef FUNC
}
