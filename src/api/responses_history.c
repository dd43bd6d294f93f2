/* SPDX-License-Identifier: Apache-2.0 */
/* Items of a responses request as messages of a chat request. Calls that follow each other are one
 * message. Items that say nothing to a model without OpenAI's servers are accepted and left out. */
#include <stdio.h>
#include <string.h>

#include "api/responses.h"

/* What becomes of an item. */
enum role { MESSAGE, AGENT, CALL, OUTPUT, TOOLS_FOUND, LEFT_OUT };

static const struct kind {
    const char *type;
    enum role role;
    const char *name;  /* of a call: the function, where the item does not say */
    const char *value; /* the member that holds the arguments, or the output */
    bool text;         /* arguments are a text of their own, for the one argument input */
} kinds[] = {
    {"message", MESSAGE, NULL, NULL, false},
    {"agent_message", AGENT, NULL, NULL, false},
    {"function_call", CALL, NULL, "arguments", false},
    {"custom_tool_call", CALL, NULL, "input", true},
    {"local_shell_call", CALL, "local_shell", "action", false},
    {"shell_call", CALL, "shell", "action", false},
    {"apply_patch_call", CALL, "apply_patch", "operation", false},
    {"tool_search_call", CALL, "tool_search", "arguments", false},
    {"function_call_output", OUTPUT, NULL, "output", false},
    {"custom_tool_call_output", OUTPUT, NULL, "output", false},
    {"local_shell_call_output", OUTPUT, NULL, "output", false},
    {"shell_call_output", OUTPUT, NULL, "output", false},
    {"apply_patch_call_output", OUTPUT, NULL, "output", false},
    {"tool_search_output", TOOLS_FOUND, NULL, "tools", false},
    {"additional_tools", LEFT_OUT, NULL, NULL, false}, /* but for its tools */
    {"reasoning", LEFT_OUT, NULL, NULL, false},        /* is not told twice */
    {"web_search_call", LEFT_OUT, NULL, NULL, false},
    {"file_search_call", LEFT_OUT, NULL, NULL, false},
    {"code_interpreter_call", LEFT_OUT, NULL, NULL, false},
    {"image_generation_call", LEFT_OUT, NULL, NULL, false},
    {"computer_call", LEFT_OUT, NULL, NULL, false},
    {"computer_call_output", LEFT_OUT, NULL, NULL, false},
    {"mcp_list_tools", LEFT_OUT, NULL, NULL, false},
    {"mcp_call", LEFT_OUT, NULL, NULL, false},
    {"mcp_approval_request", LEFT_OUT, NULL, NULL, false},
    {"mcp_approval_response", LEFT_OUT, NULL, NULL, false},
    {"compaction", LEFT_OUT, NULL, NULL, false},
    {"compaction_summary", LEFT_OUT, NULL, NULL, false},
    {"compaction_trigger", LEFT_OUT, NULL, NULL, false},
    {"context_compaction", LEFT_OUT, NULL, NULL, false},
    {"configuration_update", LEFT_OUT, NULL, NULL, false},
    {"ghost_snapshot", LEFT_OUT, NULL, NULL, false},
    {"program", LEFT_OUT, NULL, NULL, false},
    {"program_output", LEFT_OUT, NULL, NULL, false},
};

/* NULL: not known. */
static const struct kind *kind_of(const struct json *it)
{
    const struct json *type = api_field(it, "type");
    if (!type) return &kinds[0];
    for (int i = 0; i < BASE_COUNT_OF(kinds); i++)
        if (text_json_is(type, kinds[i].type)) return &kinds[i];
    return NULL;
}

bool api_resp_is_item(const char *type, size_t n)
{
    for (int i = 0; i < BASE_COUNT_OF(kinds); i++)
        if (strlen(kinds[i].type) == n && memcmp(kinds[i].type, type, n) == 0) return true;
    return false;
}

static void comma(struct str *s)
{
    if (s->n) str_putc(s, ',');
}

/* ---- calls ---- */

/* Arguments as JSON text: a text as it is, {"input": text} of a free-form tool, or an object. */
static void put_arguments(struct json_w *w, const struct kind *k, const struct json *v)
{
    struct str s;
    struct json_w in;
    if (!v || (!k->text && v->kind == JSON_STR_K)) {
        if (v)
            text_jw_node(w, v);
        else
            text_jw_strz(w, "{}");
        return;
    }
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&in, &s);
    if (k->text) {
        text_jw_obj(&in);
        text_jw_key(&in, API_UNWRAP_KEY);
        text_jw_node(&in, v);
        text_jw_obj_end(&in);
    } else
        text_jw_node(&in, v);
    api_put_text(w, &s);
    str_fini(&s);
}

static sl_status put_call(struct net_req *r, struct json_w *w, const struct kind *k,
                          const struct json *it, int at, sl_err *err)
{
    static const char *const text[] = {"name", "namespace", "call_id", "id"};
    const struct json *v = api_field(it, k->value);
    const char *name = NULL;
    char path[32];
    snprintf(path, sizeof path, "input[%d]", at);
    for (int i = 0; i < BASE_COUNT_OF(text); i++)
        SL_TRY(api_field_kind(it, path, text[i], JSON_STR_K, err));
    if (k->text) SL_TRY(api_field_kind(it, path, k->value, JSON_STR_K, err));
    if (!k->name && !*api_field_str(it, "name", ""))
        return SL_FAIL(err, REQUEST, "%s: a call without name", path);
    if (v && v->kind != JSON_STR_K && v->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "%s.%s: must be a string or an object", path, k->value);
    SL_TRY(api_resp_flat(&r->arena, api_field_str(it, "namespace", NULL),
                         api_field_str(it, "name", k->name), &name, err));
    text_jw_obj(w);
    text_jw_key(w, "id");
    text_jw_strz(w, api_field_str(it, "call_id", api_field_str(it, "id", "")));
    api_function_begin(w);
    text_jw_strz(w, name);
    text_jw_key(w, "arguments");
    put_arguments(w, k, v);
    text_jw_obj_end(w);
    text_jw_obj_end(w);
    return SL_OK;
}

/* it and the calls after it as one message; *it: the last one. */
static sl_status put_calls(struct net_req *r, struct str *out, const struct json **it, int *at,
                           sl_err *err)
{
    struct json_w w;
    const struct kind *k = kind_of(*it);
    comma(out);
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "role");
    text_jw_strz(&w, "assistant");
    text_jw_key(&w, "content");
    text_jw_null(&w);
    text_jw_key(&w, "tool_calls");
    text_jw_arr(&w);
    for (;;) {
        SL_TRY(put_call(r, &w, k, *it, *at, err));
        k = (*it)->next ? kind_of((*it)->next) : NULL;
        if (!k || k->role != CALL) break;
        *it = (*it)->next;
        ++*at;
    }
    text_jw_arr_end(&w);
    text_jw_obj_end(&w);
    return SL_OK;
}

/* ---- messages and outputs ---- */

void api_resp_put_message(struct str *out, const char *role, const char *id,
                          const struct json *content)
{
    struct json_w w;
    comma(out);
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "role");
    text_jw_strz(&w, role);
    if (id) {
        text_jw_key(&w, "tool_call_id");
        text_jw_strz(&w, id);
    }
    text_jw_key(&w, "content");
    text_jw_node(&w, content);
    text_jw_obj_end(&w);
}

static sl_status put_message(struct str *out, const struct json *it, int at, sl_err *err)
{
    const struct json *content = api_field(it, "content");
    const char *role = api_field_str(it, "role", NULL);
    char field[48];
    if (!role || !content)
        return SL_FAIL(err, REQUEST, "input[%d]: a message needs role and content", at);
    if (!api_role(it))
        return SL_FAIL(err, REQUEST,
                       "input[%d].role: must be system, developer, user, assistant or tool", at);
    snprintf(field, sizeof field, "input[%d].content", at);
    SL_TRY(api_content_check(content, field, err));
    api_resp_put_message(out, role, NULL, content);
    return SL_OK;
}

/* What another agent said is told as the user's. */
static sl_status put_agent(struct str *out, const struct json *it, int at, sl_err *err)
{
    const struct json *content = api_field(it, "content");
    struct json text = {.kind = JSON_STR_K};
    struct str s;
    if (!content || content->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "input[%d].content: must be a list of parts", at);
    str_init(&s, MEM_REQUEST, 0);
    for (const struct json *p = content->child; p; p = p->next)
        str_puts(&s, api_field_str(p, "text", "")); /* encrypted parts have none */
    text.s = str_c(&s);
    text.n = s.n;
    if (s.n) api_resp_put_message(out, "user", NULL, &text);
    api_inherit(out, &s);
    str_fini(&s);
    return SL_OK;
}

/* A text, parts that are texts, or an object or list as JSON. */
static sl_status put_output(struct str *out, const struct kind *k, const struct json *it, int at,
                            sl_err *err)
{
    const struct json *o = api_field(it, k->value);
    const struct json *inner = o && o->kind == JSON_OBJECT_K ? api_field(o, "content") : NULL;
    bool shell = text_json_is(api_field(it, "type"), "shell_call_output");
    struct json text = {.kind = JSON_STR_K, .s = ""};
    struct str s;
    struct json_w w;
    char field[48];
    snprintf(field, sizeof field, "input[%d]", at);
    SL_TRY(api_field_kind(it, field, "call_id", JSON_STR_K, err));
    if (!o && strcmp(k->type, "apply_patch_call_output") != 0)
        return SL_FAIL(err, REQUEST, "%s: a %s without output", field, k->type);
    snprintf(field, sizeof field, "input[%d].output", at);
    if (inner) o = inner; /* {"content": ..., "success": ...} */
    if (!o) o = &text;
    str_init(&s, MEM_REQUEST, 0);
    if (shell && o->kind == JSON_ARRAY_K) { /* of objects with stdout, stderr and how it ended */
        text_jw_init(&w, &s);
        text_jw_node(&w, o);
        text.s = str_c(&s);
        text.n = s.n;
        o = &text;
    }
    sl_status st = api_content_check(o, field, err);
    if (!st)
        api_resp_put_message(out, "tool", api_field_str(it, "call_id", api_field_str(it, "id", "")),
                             o);
    api_inherit(out, &s);
    str_fini(&s);
    return st;
}

/* The names of tools that a search found; they are among the tools of this request. */
static sl_status put_found(struct str *out, const struct json *it, int at, sl_err *err)
{
    const struct json *tools = api_field(it, "tools");
    struct json text = {.kind = JSON_STR_K};
    struct str s;
    char path[32];
    snprintf(path, sizeof path, "input[%d]", at);
    SL_TRY(api_field_kind(it, path, "call_id", JSON_STR_K, err));
    str_init(&s, MEM_REQUEST, 0);
    str_puts(&s, "Tools that can be called now:");
    for (const struct json *t = tools && tools->kind == JSON_ARRAY_K ? tools->child : NULL; t;
         t = t->next) {
        str_putc(&s, ' ');
        str_puts(&s, api_field_str(t, "name", ""));
    }
    text.s = str_c(&s);
    text.n = s.n;
    api_resp_put_message(out, "tool", api_field_str(it, "call_id", ""), &text);
    api_inherit(out, &s);
    str_fini(&s);
    return SL_OK;
}

sl_status api_resp_put_items(struct net_req *r, struct str *out, const struct json *list,
                             sl_err *err)
{
    int at = 0;
    for (const struct json *it = list->child; it; it = it->next, at++) {
        const struct kind *k = it->kind == JSON_OBJECT_K ? kind_of(it) : NULL;
        if (it->kind != JSON_OBJECT_K)
            return SL_FAIL(err, REQUEST, "input[%d]: must be an object", at);
        if (!k)
            return SL_FAIL(err, REQUEST, "input[%d]: type %.40s: no item of that type", at,
                           api_field_str(it, "type", "of another kind than a string"));
        if (k->role == MESSAGE) SL_TRY(put_message(out, it, at, err));
        if (k->role == AGENT) SL_TRY(put_agent(out, it, at, err));
        if (k->role == CALL) SL_TRY(put_calls(r, out, &it, &at, err));
        if (k->role == OUTPUT) SL_TRY(put_output(out, k, it, at, err));
        if (k->role == TOOLS_FOUND) SL_TRY(put_found(out, it, at, err));
    }
    return SL_OK;
}
