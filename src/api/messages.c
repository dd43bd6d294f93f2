/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI messages as chat templates expect them: contents as one text, developer as system, the
 * arguments of tool calls as objects. Then the prompt. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"

#define KWARG_MAX 16

/* Of a part of a message. */
static const struct json *part_text(const struct json *p)
{
    const struct json *text = text_json_get(p, "text");
    return text ? text : text_json_get(p, "refusal");
}

sl_status api_content_check(const struct json *c, const char *field, sl_err *err)
{
    if (!c || c->kind == JSON_NULL_K || c->kind == JSON_STR_K) return SL_OK;
    if (c->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "%s: must be a string or a list of parts", field);
    for (const struct json *p = c->child; p; p = p->next) {
        const struct json *type = text_json_get(p, "type"), *text = part_text(p);
        bool is_text = !type || text_json_is(type, "text") || text_json_is(type, "input_text") ||
                       text_json_is(type, "output_text") || text_json_is(type, "refusal");
        if (!is_text || (!text && !type))
            return SL_FAIL(err, REQUEST, "%s: a part of type %.40s: only text", field,
                           type && type->kind == JSON_STR_K ? type->s : "none");
        if (!text || text->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "%s: a part whose text is not a string", field);
    }
    return SL_OK;
}

/* Parts become one text. */
static sl_status put_content(struct json_w *w, const struct json *c, int at, sl_err *err)
{
    struct str s;
    char field[48];
    snprintf(field, sizeof field, "messages[%d].content", at);
    SL_TRY(api_content_check(c, field, err));
    if (!c || c->kind == JSON_NULL_K) {
        text_jw_null(w);
        return SL_OK;
    }
    if (c->kind == JSON_STR_K) {
        text_jw_str(w, c->s, c->n);
        return SL_OK;
    }
    str_init(&s, MEM_REQUEST, 0);
    for (const struct json *p = c->child; p; p = p->next)
        str_put(&s, part_text(p)->s, part_text(p)->n);
    api_put_text(w, &s);
    str_fini(&s);
    return SL_OK;
}

/* Templates print arguments as JSON by themselves: a text that is an object is given as one. */
static void put_arguments(struct arena *a, struct json_w *w, const struct json *v, bool as_text)
{
    const struct json *o = NULL;
    if (v && v->kind == JSON_STR_K && !as_text &&
        text_json_parse(a, "arguments", v->s, v->n, &o, NULL) == SL_OK && o->kind == JSON_OBJECT_K)
        text_jw_node(w, o);
    else if (v)
        text_jw_node(w, v);
    else
        text_jw_strz(w, "{}");
}

static sl_status put_calls(struct arena *a, struct json_w *w, const struct json *calls, int at,
                           bool as_text, sl_err *err)
{
    if (calls->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "messages[%d].tool_calls: must be a list", at);
    text_jw_arr(w);
    for (const struct json *c = calls->child; c; c = c->next) {
        const struct json *f = text_json_get(c, "function"), *name = text_json_get(f, "name"),
                          *id = text_json_get(c, "id");
        if (!name || name->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "messages[%d].tool_calls: a call without function.name",
                           at);
        text_jw_obj(w);
        if (id && id->kind == JSON_STR_K) {
            text_jw_key(w, "id");
            text_jw_str(w, id->s, id->n);
        }
        text_jw_key(w, "type");
        text_jw_strz(w, "function");
        text_jw_key(w, "function");
        text_jw_obj(w);
        text_jw_key(w, "name");
        text_jw_str(w, name->s, name->n);
        text_jw_key(w, "arguments");
        put_arguments(a, w, text_json_get(f, "arguments"), as_text);
        text_jw_obj_end(w);
        text_jw_obj_end(w);
    }
    text_jw_arr_end(w);
    return SL_OK;
}

const char *api_role(const struct json *m)
{
    static const char *const role[] = {"system", "user", "assistant", "tool", "function"};
    const struct json *v = text_json_get(m, "role");
    if (text_json_is(v, "developer")) return "system";
    for (int i = 0; i < BASE_COUNT_OF(role); i++)
        if (text_json_is(v, role[i])) return i == 4 ? "tool" : role[i];
    return NULL;
}

static sl_status put_message(struct arena *a, struct json_w *w, const struct json *m, int at,
                             bool as_text, sl_err *err)
{
    static const char *const pass[] = {"name", "tool_call_id", "reasoning_content"};
    const char *role = m->kind == JSON_OBJECT_K ? api_role(m) : NULL;
    const struct json *content = text_json_get(m, "content"), *calls = api_field(m, "tool_calls"),
                      *v;
    if (!role)
        return SL_FAIL(err, REQUEST,
                       "messages[%d].role: must be system, developer, user, assistant or tool", at);
    if (api_field(m, "audio") || api_field(m, "function_call"))
        return SL_FAIL(err, REQUEST, "messages[%d]: audio and function_call are not supported", at);
    bool none = !content || content->kind == JSON_NULL_K;
    if (none && strcmp(role, "assistant") != 0)
        return SL_FAIL(err, REQUEST, "messages[%d].content: missing", at);
    text_jw_obj(w);
    text_jw_key(w, "role");
    text_jw_strz(w, role);
    text_jw_key(w, "content");
    if (none && !calls)
        text_jw_strz(w, "");
    else
        SL_TRY(put_content(w, content, at, err));
    for (int i = 0; i < BASE_COUNT_OF(pass); i++) {
        if (!(v = api_field(m, pass[i]))) continue;
        if (v->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "messages[%d].%s: must be a string", at, pass[i]);
        text_jw_key(w, pass[i]);
        text_jw_str(w, v->s, v->n);
    }
    if (calls && (calls->n || calls->kind != JSON_ARRAY_K)) {
        text_jw_key(w, "tool_calls");
        SL_TRY(put_calls(a, w, calls, at, as_text, err));
    }
    text_jw_obj_end(w);
    return SL_OK;
}

sl_status api_messages_put(struct arena *a, struct str *out, const struct json *messages,
                           bool as_text, sl_err *err)
{
    struct json_w w;
    int at = 0;
    if (!messages) return SL_FAIL(err, REQUEST, "messages: missing");
    if (messages->kind != JSON_ARRAY_K || messages->n == 0)
        return SL_FAIL(err, REQUEST, "messages: must be a list of at least one message");
    text_jw_init(&w, out);
    text_jw_arr(&w);
    for (const struct json *m = messages->child; m; m = m->next)
        SL_TRY(put_message(a, &w, m, at++, as_text, err));
    text_jw_arr_end(&w);
    return str_status(out, err);
}

/* chat_template_kwargs, and what reasoning_effort means to the templates we know. */
static sl_status put_kwargs(struct str *out, const struct json *body, const char *effort,
                            sl_err *err)
{
    const struct json *kw = api_field(body, "chat_template_kwargs");
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_obj(&w);
    if (kw && (kw->kind != JSON_OBJECT_K || kw->n > KWARG_MAX))
        return SL_FAIL(err, REQUEST,
                       "chat_template_kwargs: must be an object of at most %d members", KWARG_MAX);
    if (effort) {
        bool think = strcmp(effort, "none") != 0;
        text_jw_key(&w, "reasoning_effort");
        text_jw_strz(&w, effort);
        if (!text_json_get(kw, "enable_thinking")) {
            text_jw_key(&w, "enable_thinking");
            text_jw_bool(&w, think);
        }
        if (!text_json_get(kw, "thinking")) {
            text_jw_key(&w, "thinking");
            text_jw_bool(&w, think);
        }
    }
    for (const struct json *v = kw ? kw->child : NULL; v; v = v->next) {
        bool reserved = strcmp(v->key, "messages") == 0 || strcmp(v->key, "tools") == 0 ||
                        strcmp(v->key, "add_generation_prompt") == 0 ||
                        (effort && strcmp(v->key, "reasoning_effort") == 0);
        if (v->kind == JSON_ARRAY_K || v->kind == JSON_OBJECT_K || reserved ||
            (v->kind == JSON_STR_K && v->n > 4096))
            return SL_FAIL(
                err, REQUEST,
                "chat_template_kwargs: %.40s: texts, numbers and booleans of other names", v->key);
        text_jw_key(&w, v->key);
        text_jw_node(&w, v);
    }
    text_jw_obj_end(&w);
    return str_status(out, err);
}

/* The members of tools[i].function beside its name. */
static sl_status check_function(const struct json *f, int i, sl_err *err)
{
    const struct json *text = api_field(f, "description"), *p = api_field(f, "parameters"),
                      *strict = api_field(f, "strict");
    if (text && text->kind != JSON_STR_K)
        return SL_FAIL(err, REQUEST, "tools[%d].function.description: must be a string", i);
    if (p && p->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "tools[%d].function.parameters: must be an object", i);
    if (strict && strict->kind != JSON_BOOL_K)
        return SL_FAIL(err, REQUEST, "tools[%d].function.strict: must be true or false", i);
    return SL_OK;
}

static sl_status check_tools(const struct json *tools, sl_err *err)
{
    int i = 0;
    if (tools->kind != JSON_ARRAY_K) return SL_FAIL(err, REQUEST, "tools: must be a list");
    if (tools->n > 256) return SL_FAIL(err, REQUEST, "tools: %zu: at most 256", tools->n);
    for (const struct json *t = tools->child; t; t = t->next, i++) {
        const struct json *f = text_json_get(t, "function"), *name = text_json_get(f, "name");
        if (!text_json_is(text_json_get(t, "type"), "function"))
            return SL_FAIL(err, REQUEST, "tools[%d].type: must be function", i);
        if (!name || name->kind != JSON_STR_K || name->n < 1 || name->n > 128)
            return SL_FAIL(err, REQUEST, "tools[%d].function.name: must be 1 to 128 bytes", i);
        SL_TRY(check_function(f, i, err));
    }
    return SL_OK;
}

/* one: a function as tool_choice or a list of allowed tools names it. */
static sl_status check_named(const struct json *tools, const struct json *one, sl_err *err)
{
    const struct json *f = text_json_get(one, "function"),
                      *name = text_json_get(f ? f : one, "name");
    for (const struct json *t = tools ? tools->child : NULL; t && name; t = t->next) {
        const struct json *tf = text_json_get(t, "function"),
                          *tn = text_json_get(tf ? tf : t, "name");
        if (name->kind == JSON_STR_K && text_json_is(tn, name->s)) return SL_OK;
    }
    return SL_FAIL(err, REQUEST, "tool_choice: names no function of tools");
}

/* {"type": "allowed_tools", "mode": ..., "tools": [...]}, in chat inside "allowed_tools". */
static sl_status check_allowed(const struct json *tools, const struct json *choice, sl_err *err)
{
    const struct json *in = api_field(choice, "allowed_tools"), *a = in ? in : choice,
                      *mode = text_json_get(a, "mode"), *list = api_field(a, "tools");
    if (!text_json_is(mode, "auto") && !text_json_is(mode, "required"))
        return SL_FAIL(err, REQUEST, "tool_choice.mode: must be auto or required");
    if (!list || list->kind != JSON_ARRAY_K || !list->n)
        return SL_FAIL(err, REQUEST, "tool_choice.tools: must be a list of at least one function");
    for (const struct json *t = list->child; t; t = t->next)
        SL_TRY(check_named(tools, t, err));
    return SL_OK;
}

sl_status api_tools_check(const struct json *body, sl_err *err)
{
    const struct json *tools = api_field(body, "tools"), *choice = api_field(body, "tool_choice");
    if (tools) SL_TRY(check_tools(tools, err));
    if (!choice) return SL_OK;
    if (choice->kind == JSON_OBJECT_K &&
        text_json_is(text_json_get(choice, "type"), "allowed_tools"))
        return check_allowed(tools, choice, err);
    if (choice->kind == JSON_OBJECT_K) return check_named(tools, choice, err);
    if (text_json_is(choice, "none") || text_json_is(choice, "auto")) return SL_OK;
    if (!text_json_is(choice, "required"))
        return SL_FAIL(err, REQUEST, "tool_choice: must be none, auto, required or a function");
    if (!tools || !tools->n) return SL_FAIL(err, REQUEST, "tool_choice: required: without tools");
    return SL_OK;
}

static void put_function(struct json_w *w, const struct json *f, bool complete)
{
    text_jw_obj(w);
    for (const struct json *v = f->child; v; v = v->next) {
        if (v->kind == JSON_NULL_K) continue; /* not given */
        text_jw_key(w, v->key);
        text_jw_node(w, v);
    }
    if (complete && !api_field(f, "description")) {
        text_jw_key(w, "description");
        text_jw_strz(w, "");
    }
    if (complete && !api_field(f, "parameters")) {
        text_jw_key(w, "parameters");
        text_jw_raw(w, "{\"type\":\"object\",\"properties\":{}}", 33);
    }
    text_jw_obj_end(w);
}

/* As they came; or with what a template may wish for and clients may leave out. */
static void put_tools(struct str *out, const struct json *tools, bool complete)
{
    struct json_w w;
    text_jw_init(&w, out);
    text_jw_arr(&w);
    for (const struct json *t = tools->child; t; t = t->next) {
        text_jw_obj(&w);
        for (const struct json *v = t->child; v; v = v->next) {
            text_jw_key(&w, v->key);
            if (strcmp(v->key, "function") == 0)
                put_function(&w, v, complete);
            else
                text_jw_node(&w, v);
        }
        text_jw_obj_end(&w);
    }
    text_jw_arr_end(&w);
}

static sl_status render(api *a, struct net_req *r, const struct json *body,
                        const struct json *tools, bool as_text, char **text, int32_t **ids, int *n,
                        sl_err *err)
{
    struct str msg, tl, kw;
    const struct json *reason = api_field(body, "reasoning");
    const char *effort = api_field_str(body, "reasoning_effort",
                                       reason ? api_field_str(reason, "effort", NULL) : NULL);
    str_init(&msg, MEM_REQUEST, 0);
    str_init(&tl, MEM_REQUEST, 0);
    str_init(&kw, MEM_REQUEST, 0);
    sl_status st = api_messages_put(&r->arena, &msg, api_field(body, "messages"), as_text, err);
    if (!st) st = put_kwargs(&kw, body, effort, err);
    if (!st && tools && tools->n) {
        put_tools(&tl, tools, as_text);
        st = str_status(&tl, err);
    }
    sl_chat chat = {.messages = str_c(&msg),
                    .tools = tl.n ? str_c(&tl) : NULL,
                    .kwargs = str_c(&kw),
                    .no_generation_prompt = !api_field_bool(body, "add_generation_prompt", true),
                    .max_ids = a->ei.n_ctx};
    if (!st) st = sl_chat_render(a->o.model, &chat, text, ids, n, err);
    str_fini(&msg);
    str_fini(&tl);
    str_fini(&kw);
    return st;
}

static sl_status render_either(api *a, struct net_req *r, const struct json *body, char **text,
                               int32_t **ids, int *n, sl_err *err)
{
    const struct json *tools = api_field(body, "tools");
    sl_err first = {0};
    SL_TRY(api_tools_check(body, err));
    if (text_json_is(api_field(body, "tool_choice"), "none")) tools = NULL;
    sl_status st = render(a, r, body, tools, false, text, ids, n, &first);
    if (st != SL_REQUEST && st != SL_FORMAT && st != SL_UNSUPPORTED) {
        if (st && err) *err = first;
        return st;
    }
    /* A template may join arguments to a text, or want members that were left out. */
    sl_status again = render(a, r, body, tools, true, text, ids, n, err);
    if (again == SL_OK || again == SL_NOMEM) return again;
    if (err) *err = first;
    return st;
}

sl_status api_chat_text(api *a, struct net_req *r, const struct json *body, char **out, sl_err *err)
{
    return render_either(a, r, body, out, NULL, NULL, err);
}

static size_t text_bytes(const struct json *content)
{
    size_t n = 0;
    if (!content || content->kind == JSON_STR_K) return content ? content->n : 0;
    for (const struct json *p = content->kind == JSON_ARRAY_K ? content->child : NULL; p;
         p = p->next) {
        const struct json *text = text_json_get(p, "text");
        if (text && text->kind == JSON_STR_K) n += text->n;
    }
    return n;
}

sl_status api_messages_fit(const api *a, const struct json *list, sl_err *err)
{
    size_t n = 0, max = (size_t)a->ei.text_bytes_max;
    if (!list || !max) return SL_OK;
    if (list->kind == JSON_STR_K) n = list->n;
    for (const struct json *m = list->kind == JSON_ARRAY_K ? list->child : NULL; m; m = m->next)
        n += text_bytes(text_json_get(m, "content"));
    if (n <= max) return SL_OK;
    return SL_FAIL(err, LIMIT,
                   "prompt of %zu bytes: this model's maximum context length is %d tokens", n,
                   a->ei.n_ctx);
}

sl_status api_chat_prompt(api *a, struct net_req *r, const struct json *body,
                          struct api_prompt *out, sl_err *err)
{
    const struct json *given = api_field(body, "prompt_token_ids");
    int32_t *ids = NULL;
    void *copy = NULL;
    int n = 0;
    if (given) {
        SL_TRY(api_ids_parse(a, &r->arena, "prompt_token_ids", given, out, err));
        if (!out->n_ids) return SL_FAIL(err, REQUEST, "prompt_token_ids: empty");
        return SL_OK;
    }
    SL_TRY(api_messages_fit(a, api_field(body, "messages"), err));
    SL_TRY(render_either(a, r, body, NULL, &ids, &n, err));
    sl_status st = mem_arena_array(&r->arena, (size_t)n + 1, sizeof *ids, &copy, err);
    if (!st && n) memcpy(copy, ids, (size_t)n * sizeof *ids);
    sl_free(ids);
    *out = (struct api_prompt){.ids = copy, .n_ids = n};
    return st;
}

bool api_prompt_ends(const api *a, const struct api_prompt *p, const char *tag)
{
    size_t n_tag = strlen(tag);
    char *text = NULL;
    size_t n = 0;
    int k = BASE_MIN(p->n_ids, 16);
    if (k < 1 || sl_detokenize(a->o.model, p->ids + p->n_ids - k, k, SL_DETOK_SPECIAL | SL_DETOK_PART, &text, &n, NULL) != SL_OK)
        return false;
    while (n && strchr(" \t\r\n", text[n - 1]))
        n--;
    bool ends = n >= n_tag && memcmp(text + n - n_tag, tag, n_tag) == 0;
    sl_free(text);
    return ends;
}
