/* SPDX-License-Identifier: Apache-2.0 */
/* A responses request as a chat request: items become messages, flat tools nested ones, a previous
 * response its history. */
#include <stdio.h>
#include <string.h>

#include "api/responses.h"

static sl_status bad_item(int at, const char *what, sl_err *err)
{
    return SL_FAIL(err, REQUEST, "input[%d]: %s", at, what);
}

static void comma(struct str *s)
{
    if (s->n) str_putc(s, ',');
}

static void put_call(struct json_w *w, const struct json *it)
{
    const struct json *args = api_field(it, "arguments");
    text_jw_obj(w);
    text_jw_key(w, "id");
    text_jw_strz(w, api_field_str(it, "call_id", ""));
    text_jw_key(w, "type");
    text_jw_strz(w, "function");
    text_jw_key(w, "function");
    text_jw_obj(w);
    text_jw_key(w, "name");
    text_jw_strz(w, api_field_str(it, "name", ""));
    text_jw_key(w, "arguments");
    if (args)
        text_jw_node(w, args);
    else
        text_jw_strz(w, "{}");
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

static bool is_call(const struct json *it)
{
    return it && text_json_is(text_json_get(it, "type"), "function_call");
}

/* Calls that follow each other are one message. Returns the last one. */
static const struct json *put_calls(struct str *out, const struct json *it, int *at)
{
    struct json_w w;
    comma(out);
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "role");
    text_jw_strz(&w, "assistant");
    text_jw_key(&w, "content");
    text_jw_null(&w);
    text_jw_key(&w, "tool_calls");
    text_jw_arr(&w);
    put_call(&w, it);
    while (is_call(it->next)) {
        it = it->next;
        ++*at;
        put_call(&w, it);
    }
    text_jw_arr_end(&w);
    text_jw_obj_end(&w);
    return it;
}

static void put_message(struct str *out, const char *role, const char *id,
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

static sl_status put_items(struct str *out, const struct json *list, sl_err *err)
{
    int at = 0;
    char field[48];
    for (const struct json *it = list->child; it; it = it->next, at++) {
        const struct json *type = api_field(it, "type");
        const char *role = api_field_str(it, "role", NULL);
        if (it->kind != JSON_OBJECT_K) return bad_item(at, "must be an object", err);
        if (!type || text_json_is(type, "message")) {
            const struct json *content = api_field(it, "content");
            if (!role || !content) return bad_item(at, "a message needs role and content", err);
            if (!api_role(it))
                return SL_FAIL(err, REQUEST,
                               "input[%d].role: must be system, developer, user, assistant or tool",
                               at);
            snprintf(field, sizeof field, "input[%d].content", at);
            SL_TRY(api_content_check(content, field, err));
            put_message(out, role, NULL, content);
        } else if (is_call(it)) {
            if (!*api_field_str(it, "name", "")) return bad_item(at, "a call without name", err);
            it = put_calls(out, it, &at);
        } else if (text_json_is(type, "function_call_output")) {
            const struct json *o = api_field(it, "output");
            if (!o) return bad_item(at, "a function_call_output without output", err);
            snprintf(field, sizeof field, "input[%d].output", at);
            SL_TRY(api_content_check(o, field, err));
            put_message(out, "tool", api_field_str(it, "call_id", ""), o);
        } else if (!text_json_is(type, "reasoning")) /* which is not told twice */
            return bad_item(
                at, "must be a message, function_call, function_call_output or reasoning", err);
    }
    return SL_OK;
}

static sl_status put_input(struct str *out, const struct json *in, sl_err *err)
{
    if (!in) return SL_FAIL(err, REQUEST, "input: missing");
    if (in->kind == JSON_STR_K) {
        put_message(out, "user", NULL, in);
        return SL_OK;
    }
    if (in->kind != JSON_ARRAY_K || !in->n)
        return SL_FAIL(err, REQUEST, "input: must be a text or a list of at least one item");
    return put_items(out, in, err);
}

static sl_status put_tools(struct json_w *w, const struct json *tools, sl_err *err)
{
    static const char *const pass[] = {"name", "description", "parameters", "strict"};
    int i = 0;
    text_jw_key(w, "tools");
    text_jw_arr(w);
    for (const struct json *t = tools->child; t; t = t->next, i++) {
        if (!text_json_is(text_json_get(t, "type"), "function"))
            return SL_FAIL(err, REQUEST, "tools[%d].type: must be function", i);
        text_jw_obj(w);
        text_jw_key(w, "type");
        text_jw_strz(w, "function");
        text_jw_key(w, "function");
        text_jw_obj(w);
        for (int k = 0; k < BASE_COUNT_OF(pass); k++) {
            const struct json *v = api_field(t, pass[k]);
            if (!v) continue;
            text_jw_key(w, pass[k]);
            text_jw_node(w, v);
        }
        text_jw_obj_end(w);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    return SL_OK;
}

/* The chat request, as text. */
static sl_status put_chat(struct str *out, const struct api_resp *p, sl_err *err)
{
    static const char *const pass[] = {"tool_choice", "parallel_tool_calls", "reasoning",
                                       "chat_template_kwargs"};
    const struct json *tools = api_field(p->body, "tools"),
                      *ins = api_field(p->body, "instructions"),
                      *reason = api_field(p->body, "reasoning"),
                      *effort = reason ? api_field(reason, "effort") : NULL;
    struct json_w w;
    struct str all;
    if (effort && effort->kind != JSON_STR_K)
        return SL_FAIL(err, REQUEST, "reasoning.effort: must be a string");
    SL_TRY(api_content_check(ins, "instructions", err));
    str_init(&all, MEM_REQUEST, 0);
    if (ins) put_message(&all, "system", NULL, ins);
    if (p->history.n) {
        comma(&all);
        str_put(&all, p->history.p, p->history.n);
    }
    text_jw_init(&w, out);
    text_jw_obj(&w);
    text_jw_key(&w, "messages");
    text_jw_arr(&w);
    if (all.n) text_jw_raw(&w, all.p, all.n);
    text_jw_arr_end(&w);
    sl_status st = str_status(&all, err);
    str_fini(&all);
    if (!st && tools && tools->n) st = put_tools(&w, tools, err);
    for (int i = 0; i < BASE_COUNT_OF(pass); i++) {
        const struct json *v = api_field(p->body, pass[i]);
        if (!v) continue;
        text_jw_key(&w, pass[i]);
        text_jw_node(&w, v);
    }
    text_jw_obj_end(&w);
    return st ? st : str_status(out, err);
}

sl_status api_resp_read(api *a, struct net_req *r, struct api_resp *p, sl_err *err)
{
    const char *prev = api_field_str(p->body, "previous_response_id", NULL);
    struct api_stored s;
    struct str chat;
    char key[64];
    SL_TRY(api_messages_fit(a, api_field(p->body, "input"), err));
    if (prev) {
        api_key_name(a, r->key, key);
        sl_status st = api_store_get(a, prev, key, &r->arena, &s, err);
        if (st == SL_NOTFOUND) {
            status_prefix(err, "previous_response_id");
            if (err) err->code = SL_REQUEST;
            return SL_REQUEST;
        }
        SL_TRY(st);
        str_put(&p->history, s.history, s.n_history);
        if (p->store) str_put(&p->input, s.items, s.n_items);
    }
    SL_TRY(put_input(&p->history, api_field(p->body, "input"), err));
    if (p->store) api_resp_put_input(&p->input, api_field(p->body, "input"));
    SL_TRY(str_status(&p->history, err));
    SL_TRY(str_status(&p->input, err));
    str_init(&chat, MEM_REQUEST, 0);
    sl_status st = put_chat(&chat, p, err);
    if (!st) st = text_json_parse(&r->arena, "input", str_c(&chat), chat.n, &p->chat, err);
    str_fini(&chat);
    if (st == SL_LIMIT || st == SL_FORMAT)
        return SL_FAIL(err, REQUEST, "input: values nested too deep");
    return st;
}
