/* SPDX-License-Identifier: Apache-2.0 */
/* OpenAI messages as chat templates expect them: contents as one text, developer as system, the
 * arguments of tool calls as objects; older forms as newer ones; calls and their results as plain
 * text where a template knows none. */
#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/family.h"

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

/* A list of messages on its way into a template's. */
struct putter {
    struct arena *a;
    struct json_w w;
    const struct json *list;
    const struct api_put *how;
    bool told;               /* how->tell is out */
    int last_fc;             /* the last message with a function_call */
    bool own_ids;            /* calls get ids that the family's models know */
    int n_call;              /* calls that are out */
    const struct json *call; /* the one that a message is put for; NULL: all that it has */
    sl_err *err;
};

static bool is_none(const struct json *c)
{
    return !c || c->kind == JSON_NULL_K;
}

void api_content_text(struct str *out, const struct json *c)
{
    if (is_none(c)) return;
    if (c->kind == JSON_STR_K) str_put(out, c->s, c->n);
    for (const struct json *p = c->kind == JSON_ARRAY_K ? c->child : NULL; p; p = p->next)
        str_put(out, part_text(p)->s, part_text(p)->n);
}

static sl_status check_content(const struct json *m, int at, sl_err *err)
{
    char field[48];
    snprintf(field, sizeof field, "messages[%d].content", at);
    return api_content_check(text_json_get(m, "content"), field, err);
}

/* Templates print arguments as JSON by themselves: a text that is an object is given as one. */
static sl_status put_arguments(struct putter *p, const struct json *v)
{
    const struct json *o = NULL;
    if (v && v->kind == JSON_STR_K && !p->how->args_text)
        SL_TRY(text_json_probe(p->a, v->s, v->n, &o, p->err));
    if (o && o->kind == JSON_OBJECT_K)
        text_jw_node(&p->w, o);
    else if (v)
        text_jw_node(&p->w, v);
    else
        text_jw_strz(&p->w, "{}");
    return SL_OK;
}

/* The rest of an open call: its function f, and the end of both. */
static sl_status put_function(struct putter *p, const struct json *f, const struct json *name)
{
    struct json_w *w = &p->w;
    api_function_begin(w);
    text_jw_str(w, name->s, name->n);
    text_jw_key(w, "arguments");
    SL_TRY(put_arguments(p, text_json_get(f, "arguments")));
    text_jw_obj_end(w);
    text_jw_obj_end(w);
    return SL_OK;
}

/* ---- ids of calls ---- */

#define ID_BYTES 192 /* of an id that holds a function's name */

static const struct json *calls_in(const struct json *m)
{
    const struct json *calls = m->kind == JSON_OBJECT_K ? api_field(m, "tool_calls") : NULL;
    return calls && calls->kind == JSON_ARRAY_K && calls->n ? calls->child : NULL;
}

/* Where the family's models read the ids of calls, numbered over the whole conversation: theirs
 * come back as they were given; where one is another's, all are made anew. */
static bool needs_ids(const struct json *list, const struct api_family *family)
{
    if (!family || !family->is_id) return false;
    for (const struct json *m = list->child; m; m = m->next) {
        if (m->kind == JSON_OBJECT_K && !calls_in(m) && api_field(m, "function_call")) return true;
        for (const struct json *c = calls_in(m); c; c = c->next) {
            const struct json *id = text_json_get(c, "id");
            if (!id || id->kind != JSON_STR_K || !family->is_id(id->s)) return true;
        }
    }
    return false;
}

static void put_id(struct putter *p, const char *key, const struct json *name, int n)
{
    char id[ID_BYTES];
    p->how->family->put_id(id, sizeof id, name, n);
    text_jw_key(&p->w, key);
    text_jw_strz(&p->w, id);
}

/* The id, made anew, of the call before message m that has this one; false: there is none. id NULL:
 * of the last function_call. */
static bool put_new_id(struct putter *p, const struct json *m, const struct json *id)
{
    const struct json *name = NULL;
    int n = 0, at = 0;
    for (const struct json *x = p->list->child; x != m; x = x->next) {
        const struct json *fc = x->kind == JSON_OBJECT_K ? api_field(x, "function_call") : NULL;
        const struct json *c = calls_in(x);
        if (!c && fc) {
            if (!id) name = text_json_get(fc, "name"), at = n;
            n++;
        }
        for (; c; c = c->next, n++)
            if (id && id->kind == JSON_STR_K && text_json_is(text_json_get(c, "id"), id->s))
                name = text_json_get(text_json_get(c, "function"), "name"), at = n;
    }
    if (!name || name->kind != JSON_STR_K) return false;
    put_id(p, "tool_call_id", name, at);
    return true;
}

/* The call of an older assistant message, and the id by which its result finds it. */
static sl_status put_function_call(struct putter *p, const struct json *f, int at)
{
    struct json_w *w = &p->w;
    const struct json *name = text_json_get(f, "name");
    char id[24];
    if (!name || name->kind != JSON_STR_K)
        return SL_FAIL(p->err, REQUEST, "messages[%d].function_call: must have a name", at);
    snprintf(id, sizeof id, "call_%d", at);
    p->last_fc = at;
    text_jw_arr(w);
    text_jw_obj(w);
    if (p->own_ids)
        put_id(p, "id", name, p->n_call++);
    else {
        text_jw_key(w, "id");
        text_jw_strz(w, id);
    }
    SL_TRY(put_function(p, f, name));
    text_jw_arr_end(w);
    return SL_OK;
}

static sl_status put_calls(struct putter *p, const struct json *calls, int at)
{
    struct json_w *w = &p->w;
    sl_err *err = p->err;
    text_jw_arr(w);
    for (const struct json *c = calls->child; c; c = c->next) {
        if (p->call && c != p->call) continue;
        const struct json *f = text_json_get(c, "function"), *name = text_json_get(f, "name"),
                          *id = text_json_get(c, "id");
        if (!name || name->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "messages[%d].tool_calls: a call without function.name",
                           at);
        text_jw_obj(w);
        if (p->own_ids)
            put_id(p, "id", name, p->n_call++);
        else if (id && id->kind == JSON_STR_K) {
            text_jw_key(w, "id");
            text_jw_str(w, id->s, id->n);
        }
        SL_TRY(put_function(p, f, name));
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

/* The calls of a message: tool_calls, or the older function_call as NULL and *fc. */
static sl_status calls_of(const struct json *m, int at, const struct json **calls,
                          const struct json **fc, sl_err *err)
{
    *calls = api_field(m, "tool_calls");
    *fc = api_field(m, "function_call");
    if (*calls && (*calls)->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "messages[%d].tool_calls: must be a list", at);
    if (*fc && (*fc)->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "messages[%d].function_call: must be an object", at);
    if (*calls && (*calls)->n) *fc = NULL;
    if (*calls && !(*calls)->n) *calls = NULL;
    return SL_OK;
}

bool api_has_calls(const struct json *m)
{
    const struct json *calls = api_field(m, "tool_calls");
    return (calls && calls->n) || api_field(m, "function_call");
}

static bool puts_reason(const struct api_put *how)
{
    return how->family && how->family->put_reason;
}

/* A message that is put for a call that is not its first: words and reasoning are out. */
static bool is_later(const struct putter *p, const struct json *m)
{
    return p->call && p->call != calls_in(m);
}

/* What stands before and after a message's own text. */
static void put_content(struct putter *p, const struct json *m, const char *role, int at)
{
    const struct api_put *how = p->how;
    const struct json *content = text_json_get(m, "content");
    const char *want = how->tell_user ? "user" : "system";
    bool tell = how->tell && !p->told && strcmp(role, want) == 0;
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    if (tell && how->tell_user) str_printf(&s, "%s\n\n", how->tell);
    bool later = is_later(p, m);
    if (!later && !(puts_reason(how) && api_has_calls(m))) api_content_text(&s, content);
    if (!later && is_none(content)) str_puts(&s, api_field_str(m, "refusal", ""));
    if (tell && !how->tell_user) str_printf(&s, "%s%s", s.n ? "\n\n" : "", how->tell);
    p->told |= tell;
    if (how->calls_plain) api_plain_calls(&s, how->family, m);
    if (how->mark && (size_t)at + 1 == p->list->n) str_puts(&s, how->mark);
    text_jw_key(&p->w, "content");
    api_put_text(&p->w, &s);
    str_fini(&s);
}

/* Where a family has a member of its own for reasoning, it is for that before calls, or of the
 * message that the answer goes on with. Templates leave out that of answers that are over; some
 * that are about leave out such an answer in its place, or say it as reasoning. */
static bool tells_reason(const struct putter *p, const struct json *m, int at)
{
    const struct json *content = text_json_get(m, "content");
    bool none = is_none(content) || (content->kind == JSON_STR_K && !content->n);
    return none || api_has_calls(m) || (p->how->mark && (size_t)at + 1 == p->list->n);
}

static sl_status put_fields(struct putter *p, const struct json *m, const char *role, int at)
{
    static const char *const pass[] = {"name", "tool_call_id"};
    const struct json *reason = api_field(m, "reasoning_content"), *v;
    char id[24];
    for (int i = 0; i < BASE_COUNT_OF(pass); i++) {
        if (!(v = api_field(m, pass[i]))) continue;
        if (v->kind != JSON_STR_K)
            return SL_FAIL(p->err, REQUEST, "messages[%d].%s: must be a string", at, pass[i]);
        if (i == 1 && p->own_ids && put_new_id(p, m, v)) continue;
        text_jw_key(&p->w, pass[i]);
        text_jw_str(&p->w, v->s, v->n);
    }
    if (strcmp(role, "tool") == 0 && !api_field(m, "tool_call_id") && p->last_fc >= 0 &&
        !(p->own_ids && put_new_id(p, m, NULL))) {
        snprintf(id, sizeof id, "call_%d", p->last_fc);
        text_jw_key(&p->w, "tool_call_id");
        text_jw_strz(&p->w, id);
    }
    if (is_later(p, m)) return SL_OK;
    if (!reason) reason = api_field(m, "reasoning");
    if (reason && reason->kind != JSON_STR_K)
        return SL_FAIL(p->err, REQUEST, "messages[%d].reasoning_content: must be a string", at);
    if (puts_reason(p->how) && tells_reason(p, m, at)) p->how->family->put_reason(&p->w, m, reason);
    if (!reason) return SL_OK;
    text_jw_key(&p->w, "reasoning_content");
    text_jw_str(&p->w, reason->s, reason->n);
    return SL_OK;
}

static sl_status put_message(struct putter *p, const struct json *m, int at)
{
    const char *role = m->kind == JSON_OBJECT_K ? api_role(m) : NULL;
    const struct json *calls = NULL, *fc = NULL;
    sl_err *err = p->err;
    if (!role)
        return SL_FAIL(
            err, REQUEST,
            "messages[%d].role: must be system, developer, user, assistant, tool or function", at);
    if (api_field(m, "audio"))
        return SL_FAIL(err, REQUEST, "messages[%d].audio: not supported: text only", at);
    SL_TRY(calls_of(m, at, &calls, &fc, err));
    SL_TRY(check_content(m, at, err));
    text_jw_obj(&p->w);
    text_jw_key(&p->w, "role");
    text_jw_strz(&p->w, role);
    if ((calls || fc) && is_none(text_json_get(m, "content")) && !p->how->no_null &&
        !p->how->calls_plain) {
        text_jw_key(&p->w, "content");
        text_jw_null(&p->w);
    } else
        put_content(p, m, role, at);
    SL_TRY(put_fields(p, m, role, at));
    if ((calls || fc) && !p->how->calls_plain) {
        text_jw_key(&p->w, "tool_calls");
        if (calls)
            SL_TRY(put_calls(p, calls, at));
        else
            SL_TRY(put_function_call(p, fc, at));
    }
    text_jw_obj_end(&p->w);
    return SL_OK;
}

/* Results that follow each other become one message of the user. Returns the last one. */
static const struct json *put_results(struct putter *p, const struct json *m, int *at)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    for (;; m = m->next, ++*at) {
        const char *next = m->next && m->next->kind == JSON_OBJECT_K ? api_role(m->next) : NULL;
        if (check_content(m, *at, p->err)) break;
        if (s.n) str_puts(&s, "\n\n");
        api_plain_result(&s, p->list, m);
        api_content_text(&s, text_json_get(m, "content"));
        if (next && strcmp(next, "tool") == 0) continue;
        text_jw_obj(&p->w);
        text_jw_key(&p->w, "role");
        text_jw_strz(&p->w, "user");
        text_jw_key(&p->w, "content");
        api_put_text(&p->w, &s);
        text_jw_obj_end(&p->w);
        str_fini(&s);
        return m;
    }
    str_fini(&s);
    return NULL;
}

/* The call that result r, one of k before it, is of; NULL: none of them. */
static const struct json *call_of(const struct json *calls, const struct json *r, int k)
{
    const struct json *id = text_json_get(r, "tool_call_id");
    for (const struct json *c = calls; c; c = c->next, k--) {
        const struct json *own = text_json_get(c, "id");
        bool both = id && own && id->kind == JSON_STR_K && own->kind == JSON_STR_K;
        if (both ? text_json_is(own, id->s) : k == 0) return c;
    }
    return NULL;
}

static bool is_result(const struct json *m)
{
    const char *role = m && m->kind == JSON_OBJECT_K ? api_role(m) : NULL;
    return role && strcmp(role, "tool") == 0;
}

/* A message for each call, followed by the call's results among those that follow m; then the
 * results of none. *m becomes the last of them, *at its number. */
static sl_status put_each_call(struct putter *p, const struct json **m, int *at)
{
    const struct json *said = *m, *calls = calls_in(said);
    int first = *at;
    for (const struct json *c = calls;; c = c->next) { /* the last one: none */
        int k = 0;
        p->call = c;
        if (c) SL_TRY(put_message(p, said, first));
        p->call = NULL;
        for (const struct json *r = said->next; is_result(r); r = r->next, k++) {
            if (call_of(calls, r, k) == c) SL_TRY(put_message(p, r, first + 1 + k));
            *m = r;
            *at = first + 1 + k;
        }
        if (!c) return SL_OK;
    }
}

static bool has_several(const struct json *m)
{
    const char *role = m->kind == JSON_OBJECT_K ? api_role(m) : NULL;
    const struct json *calls = calls_in(m);
    return role && strcmp(role, "assistant") == 0 && calls && calls->next;
}

bool api_has_several_calls(const struct json *messages)
{
    for (const struct json *m = messages && messages->kind == JSON_ARRAY_K ? messages->child : NULL;
         m; m = m->next)
        if (has_several(m)) return true;
    return false;
}

static void put_told(struct putter *p)
{
    text_jw_obj(&p->w);
    text_jw_key(&p->w, "role");
    text_jw_strz(&p->w, "system");
    text_jw_key(&p->w, "content");
    text_jw_strz(&p->w, p->how->tell);
    text_jw_obj_end(&p->w);
    p->told = true;
}

static bool has_role(const struct json *messages, const char *role)
{
    for (const struct json *m = messages->child; m; m = m->next) {
        const char *is = m->kind == JSON_OBJECT_K ? api_role(m) : NULL;
        if (is && strcmp(is, role) == 0) return true;
    }
    return false;
}

sl_status api_messages_put(struct arena *a, struct str *out, const struct json *messages,
                           const struct api_put *how, sl_err *err)
{
    struct putter p = {.a = a, .list = messages, .how = how, .last_fc = -1, .err = err};
    int at = 0;
    if (!messages) return SL_FAIL(err, REQUEST, "messages: missing");
    if (messages->kind != JSON_ARRAY_K || messages->n == 0)
        return SL_FAIL(err, REQUEST, "messages: must be a list of at least one message");
    p.own_ids = needs_ids(messages, how->family);
    text_jw_init(&p.w, out);
    text_jw_arr(&p.w);
    if (how->tell && !how->tell_user && !has_role(messages, "system")) put_told(&p);
    for (const struct json *m = messages->child; m; m = m->next, at++) {
        if (how->each_call && !how->calls_plain && !how->results_plain && has_several(m))
            SL_TRY(put_each_call(&p, &m, &at));
        else if (!(how->results_plain && is_result(m)))
            SL_TRY(put_message(&p, m, at));
        else if (!(m = put_results(&p, m, &at)))
            return err ? err->code : SL_REQUEST;
    }
    text_jw_arr_end(&p.w);
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
