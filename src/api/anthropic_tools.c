/* SPDX-License-Identifier: Apache-2.0 */
/* Tools of the Messages API as functions. The tools that clients run and Anthropic trained its
 * models on (bash, text editor, memory) come without a schema: theirs stand here. What only
 * Anthropic's own servers can run is left out. */
#include <stdio.h>
#include <string.h>

#include "api/anthropic.h"

#define TOOLS_MAX 256

#define EDIT_PATH "\"path\":{\"type\":\"string\",\"description\":\"Absolute path\"},"
#define EDIT_REST                                                                                  \
    "\"old_str\":{\"type\":\"string\",\"description\":\"Text to replace, found exactly once\"},"   \
    "\"new_str\":{\"type\":\"string\",\"description\":\"Its replacement\"},"                       \
    "\"insert_line\":{\"type\":\"integer\",\"description\":\"Line after which to insert\"},"       \
    "\"insert_text\":{\"type\":\"string\",\"description\":\"Text to insert\"},"                    \
    "\"file_text\":{\"type\":\"string\",\"description\":\"Content of a new file\"},"               \
    "\"view_range\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},"                         \
    "\"description\":\"First and last line to show\"}"

static const struct known {
    const char *type; /* without the date at its end */
    const char *description, *schema;
} known[] = {
    {"bash_", "Run a command in a persistent bash session. restart: true begins a new session.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\"},"
     "\"restart\":{\"type\":\"boolean\"}}}"},
    {"text_editor_", "View, create and edit text files.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\","
     "\"enum\":[\"view\",\"create\",\"str_replace\",\"insert\",\"undo_edit\"]}," EDIT_PATH EDIT_REST
     "},\"required\":[\"command\",\"path\"]}"},
    {"memory_", "Store and read files of the memory folder, /memories.",
     "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\",\"enum\":"
     "[\"view\",\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"]}," EDIT_PATH
     "\"old_path\":{\"type\":\"string\"},\"new_path\":{\"type\":\"string\"}," EDIT_REST
     "},\"required\":[\"command\"]}"},
};

static const struct known *known_of(const char *type)
{
    for (int i = 0; i < BASE_COUNT_OF(known); i++)
        if (strncmp(type, known[i].type, strlen(known[i].type)) == 0) return &known[i];
    return NULL;
}

/* A tool that only Anthropic's servers run: a name and the day of its version, as all of these but
 * a few have it, also those of tomorrow. */
static bool is_served(const char *type)
{
    static const char *const row[] = {"mcp_toolset", "tool_search_tool_bm25",
                                      "tool_search_tool_regex"};
    size_t n = strlen(type);
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (strcmp(type, row[i]) == 0) return true;
    return n > 9 && type[n - 9] == '_' && strspn(type + n - 8, "0123456789") == 8;
}

/* What the model may be told of; its members are right. */
static bool is_function(const struct json *t)
{
    const char *type = api_field_str(t, "type", "custom");
    return strcmp(type, "custom") == 0 || known_of(type) || api_field(t, "input_schema");
}

static sl_status check_tool(struct api_msg *p, const struct json *t, int i, sl_err *err)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } row[] = {{"type", JSON_STR_K},        {"name", JSON_STR_K},
               {"description", JSON_STR_K}, {"input_schema", JSON_OBJECT_K},
               {"strict", JSON_BOOL_K},     {"defer_loading", JSON_BOOL_K}};
    const char *type = api_field_str(t, "type", "custom");
    const struct json *name = api_field(t, "name");
    char path[32];
    snprintf(path, sizeof path, "tools[%d]", i);
    if (t->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "%s: must be an object", path);
    for (int k = 0; k < BASE_COUNT_OF(row); k++)
        SL_TRY(api_field_kind(t, path, row[k].name, row[k].kind, err));
    SL_TRY(api_msg_mark(t, path, &p->marked, err));
    if (!is_function(t) && is_served(type)) return SL_OK;
    if (!is_function(t))
        return SL_FAIL(err, REQUEST, "%s.type: %.60s: no tool of that kind is known", path, type);
    if (!name) return SL_FAIL(err, REQUEST, "%s.name: missing", path);
    if (name->n < 1 || name->n > 128)
        return SL_FAIL(err, REQUEST, "%s.name: must be 1 to 128 bytes", path);
    if (strcmp(type, "custom") == 0 && !api_field(t, "input_schema"))
        return SL_FAIL(err, REQUEST, "%s.input_schema: missing", path);
    return SL_OK;
}

static void put_tool(struct json_w *w, const struct json *t)
{
    const struct known *k = known_of(api_field_str(t, "type", "custom"));
    const struct json *schema = api_field(t, "input_schema"), *text = api_field(t, "description"),
                      *strict = api_field(t, "strict");
    text_jw_obj(w);
    api_function_begin(w);
    text_jw_node(w, api_field(t, "name"));
    if (text || k) text_jw_key(w, "description");
    if (text)
        text_jw_node(w, text);
    else if (k)
        text_jw_strz(w, k->description);
    text_jw_key(w, "parameters");
    if (schema)
        text_jw_node(w, schema);
    else if (k)
        text_jw_raw(w, k->schema, strlen(k->schema));
    else
        text_jw_raw(w, "{}", 2);
    if (strict) {
        text_jw_key(w, "strict");
        text_jw_node(w, strict);
    }
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

/* "tools": those that are functions. Returns how many; at: which of the list each is. */
static int put_list(struct json_w *w, const struct json *tools, int *at)
{
    int n = 0, i = 0;
    for (const struct json *t = tools->child; t; t = t->next, i++) {
        if (!is_function(t)) continue;
        if (!n) {
            text_jw_key(w, "tools");
            text_jw_arr(w);
        }
        put_tool(w, t);
        at[n++] = i;
    }
    if (n) text_jw_arr_end(w);
    return n;
}

/* {"type": "tool"}: is it a function, one that was left out, or none at all? */
static sl_status find(const struct json *tools, const struct json *name, bool *is, sl_err *err)
{
    *is = false;
    if (!name) return SL_FAIL(err, REQUEST, "tool_choice.name: missing");
    for (const struct json *t = tools ? tools->child : NULL; t; t = t->next) {
        if (!text_json_is(api_field(t, "name"), name->s)) continue;
        *is = is_function(t);
        return SL_OK;
    }
    return SL_FAIL(err, REQUEST, "tool_choice.name: %.60s: no tool of that name", name->s);
}

static void put_named(struct json_w *w, const struct json *name)
{
    text_jw_obj(w);
    api_function_begin(w);
    text_jw_node(w, name);
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

static sl_status put_choice(struct json_w *w, const struct json *tools, const struct json *c, int n,
                            sl_err *err)
{
    const struct json *type = api_field(c, "type"), *name = api_field(c, "name");
    bool any = text_json_is(type, "any"), one = text_json_is(type, "tool"), is = false;
    SL_TRY(api_field_kind(c, "tool_choice", "name", JSON_STR_K, err));
    SL_TRY(api_field_kind(c, "tool_choice", "disable_parallel_tool_use", JSON_BOOL_K, err));
    if (!any && !one && !text_json_is(type, "auto") && !text_json_is(type, "none"))
        return SL_FAIL(err, REQUEST, "tool_choice.type: must be auto, any, tool or none");
    if (one) SL_TRY(find(tools, name, &is, err));
    if ((any || one) && !n)
        return SL_FAIL(err, REQUEST, "tool_choice.type: %s: there is no tool that can be called",
                       type->s);
    text_jw_key(w, "tool_choice");
    if (is)
        put_named(w, name);
    else /* a tool that was left out can not be forced */
        text_jw_strz(w, any ? "required" : one ? "auto" : type->s);
    if (api_field_bool(c, "disable_parallel_tool_use", false)) {
        text_jw_key(w, "parallel_tool_calls");
        text_jw_bool(w, false);
    }
    return SL_OK;
}

sl_status api_msg_put_tools(struct net_req *r, struct api_msg *p, struct json_w *w, sl_err *err)
{
    const struct json *tools = api_field(p->body, "tools"),
                      *choice = api_field(p->body, "tool_choice");
    void *at = NULL;
    int n = 0, i = 0;
    SL_TRY(api_field_kind(p->body, "", "tools", JSON_ARRAY_K, err));
    SL_TRY(api_field_kind(p->body, "", "tool_choice", JSON_OBJECT_K, err));
    if (tools) {
        if (tools->n > TOOLS_MAX)
            return SL_FAIL(err, REQUEST, "tools: %zu: at most %d", tools->n, TOOLS_MAX);
        for (const struct json *t = tools->child; t; t = t->next)
            SL_TRY(check_tool(p, t, i++, err));
        SL_TRY(mem_arena_array(&r->arena, tools->n + 1, sizeof(int), &at, err));
        n = put_list(w, tools, at);
        p->tool_at = at;
        p->n_tool = n;
    }
    return choice ? put_choice(w, tools, choice, n, err) : SL_OK;
}
