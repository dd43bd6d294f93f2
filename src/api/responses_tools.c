/* SPDX-License-Identifier: Apache-2.0 */
/* Tools of a responses request as functions of a chat request. The functions of a namespace are
 * called NAMESPACE__NAME; a free-form tool (custom) is a function of one text, input. What only
 * OpenAI's servers run, and kinds that are not known, are left out. */
#include <stdio.h>
#include <string.h>

#include "api/responses.h"

#define TOOLS_MAX 256
#define SEARCH "tool_search"
#define FREE_FORM                                                                                  \
    "{\"type\":\"object\",\"properties\":{\"" API_UNWRAP_KEY "\":{\"type\":\"string\"}},"          \
    "\"required\":[\"" API_UNWRAP_KEY "\"],\"additionalProperties\":false}"

struct list {
    struct net_req *r;
    struct api_resp *p;
    struct json_w *w;
};

sl_status api_resp_flat(struct arena *ar, const char *ns, const char *name, const char **out,
                        sl_err *err)
{
    size_t n = ns ? strlen(ns) : 0;
    char *s = NULL;
    *out = name;
    if (!n || strcmp(ns, "functions") == 0) return SL_OK;
    bool joined = n > 2 && strcmp(ns + n - 2, "__") == 0;
    SL_TRY(mem_arena_str(ar, ns, n + 2 + strlen(name), &s, err));
    snprintf(s, n + 3 + strlen(name), "%s%s%s", ns, joined ? "" : "__", name);
    *out = s;
    return SL_OK;
}

const struct api_resp_tool *api_resp_tool_of(const struct api_resp *p, const char *name, size_t n)
{
    const struct api_resp_tool *found = NULL;
    for (int i = 0; i < p->n_tool; i++) {
        const struct api_resp_tool *t = &p->tool[i];
        if (strlen(t->flat) == n && memcmp(t->flat, name, n) == 0) return t;
        if (strlen(t->name) != n || memcmp(t->name, name, n) != 0) continue;
        if (found) return NULL; /* of two namespaces */
        found = t;              /* the model left the namespace out */
    }
    return found;
}

static bool is_custom(const struct json *t)
{
    return text_json_is(text_json_get(t, "type"), "custom");
}

static bool is_callable(const struct json *t)
{
    return is_custom(t) || text_json_is(text_json_get(t, "type"), "function");
}

/* A search for tools that the client runs, with the arguments it wants. */
static bool is_search(const struct json *t)
{
    return text_json_is(text_json_get(t, "type"), SEARCH) && api_field(t, "parameters") &&
           text_json_is(text_json_get(t, "execution"), "client");
}

/* ---- one tool ---- */

/* What the model is told of a free-form tool: with the form that its input must have. */
static void put_custom_text(struct json_w *w, const struct json *t)
{
    const struct json *f = api_field(t, "format"), *def = api_field(f, "definition");
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    str_puts(&s, api_field_str(t, "description", ""));
    if (def && def->kind == JSON_STR_K) {
        str_printf(&s, "%sThe input must match this %s:\n", s.n ? "\n\n" : "",
                   strcmp(api_field_str(f, "syntax", ""), "regex") == 0 ? "regular expression"
                                                                        : "Lark grammar");
        str_put(&s, def->s, def->n);
    }
    text_jw_key(w, "description");
    api_put_text(w, &s);
    str_fini(&s);
}

static void put_tool(struct json_w *w, const struct json *t, const char *flat)
{
    static const char *const pass[] = {"description", "parameters", "strict"};
    text_jw_obj(w);
    api_function_begin(w);
    text_jw_strz(w, flat);
    if (is_custom(t)) {
        put_custom_text(w, t);
        text_jw_key(w, "parameters");
        text_jw_raw(w, FREE_FORM, sizeof FREE_FORM - 1);
    } else {
        api_fields_put(w, t, pass, BASE_COUNT_OF(pass));
    }
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

/* The form of a free-form tool's input. */
static sl_status check_format(const struct json *f, const char *path, sl_err *err)
{
    const struct json *type = api_field(f, "type"), *syntax = api_field(f, "syntax"),
                      *def = api_field(f, "definition");
    if (!f || text_json_is(type, "text")) return SL_OK;
    if (!text_json_is(type, "grammar"))
        return SL_FAIL(err, REQUEST, "%s.format.type: must be text or grammar", path);
    if (!text_json_is(syntax, "lark") && !text_json_is(syntax, "regex"))
        return SL_FAIL(err, REQUEST, "%s.format.syntax: must be lark or regex", path);
    if (!def || def->kind != JSON_STR_K)
        return SL_FAIL(err, REQUEST, "%s.format.definition: must be a string", path);
    return SL_OK;
}

static sl_status check_tool(const struct json *t, const char *path, sl_err *err)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } row[] = {{"name", JSON_STR_K},
               {"description", JSON_STR_K},
               {"parameters", JSON_OBJECT_K},
               {"strict", JSON_BOOL_K},
               {"format", JSON_OBJECT_K}};
    const struct json *name = api_field(t, "name");
    for (int k = 0; k < BASE_COUNT_OF(row); k++)
        SL_TRY(api_field_kind(t, path, row[k].name, row[k].kind, err));
    if (is_search(t)) return SL_OK;
    if (is_custom(t)) SL_TRY(check_format(api_field(t, "format"), path, err));
    if (!name || !name->n || memchr(name->s, 0, name->n))
        return SL_FAIL(err, REQUEST, "%s.name: must be 1 to 128 bytes", path);
    return SL_OK;
}

static sl_status add_tool(struct list *l, const struct json *t, const char *ns, const char *path,
                          sl_err *err)
{
    struct api_resp *p = l->p;
    const char *flat = NULL;
    char *where = NULL;
    SL_TRY(check_tool(t, path, err));
    const char *name = is_search(t) ? SEARCH : api_field_str(t, "name", "");
    SL_TRY(api_resp_flat(&l->r->arena, ns, name, &flat, err));
    if (strlen(flat) > 128)
        return SL_FAIL(err, REQUEST, "%s.name: must be 1 to 128 bytes, with its namespace", path);
    for (int i = 0; i < p->n_tool; i++) /* told again by a later item */
        if (strcmp(p->tool[i].flat, flat) == 0) return SL_OK;
    if (p->n_tool == TOOLS_MAX) return SL_FAIL(err, REQUEST, "tools: more than %d", TOOLS_MAX);
    SL_TRY(mem_arena_str(&l->r->arena, path, strlen(path), &where, err));
    p->tool[p->n_tool++] = (struct api_resp_tool){
        .flat = flat,
        .name = name,
        .ns = ns && flat != name ? ns : NULL,
        .path = where,
        .item = is_search(t)   ? API_ITEM_SEARCH
                : is_custom(t) ? API_ITEM_CUSTOM
                               : API_ITEM_CALL,
    };
    put_tool(l->w, t, flat);
    return SL_OK;
}

/* ---- lists of them ---- */

/* A namespace's own are the tools inside of it; depth: of namespaces. */
static sl_status add_list(struct list *l, const struct json *tools, const char *ns,
                          const char *path, sl_err *err)
{
    char at[80];
    int i = 0;
    for (const struct json *t = tools->child; t; t = t->next, i++) {
        const struct json *type = api_field(t, "type"), *in = api_field(t, "tools");
        snprintf(at, sizeof at, "%.50s[%d]", path, i);
        if (t->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "%s: must be an object", at);
        if (!type || type->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "%s.type: must be a string", at);
        if (is_callable(t) || (!ns && is_search(t))) SL_TRY(add_tool(l, t, ns, at, err));
        if (ns || !text_json_is(type, "namespace")) continue;
        SL_TRY(api_field_kind(t, at, "name", JSON_STR_K, err));
        SL_TRY(api_field_kind(t, at, "tools", JSON_ARRAY_K, err));
        const char *name = api_field_str(t, "name", "");
        if (!*name) return SL_FAIL(err, REQUEST, "%s.name: missing", at);
        snprintf(at, sizeof at, "%.40s[%d].tools", path, i);
        if (in) SL_TRY(add_list(l, in, name, at, err));
    }
    return SL_OK;
}

/* Items that bring tools: what a search for tools found, and additional ones. */
static sl_status add_items(struct list *l, const struct json *input, sl_err *err)
{
    char at[48];
    int i = 0;
    for (const struct json *it = input && input->kind == JSON_ARRAY_K ? input->child : NULL; it;
         it = it->next, i++) {
        const struct json *type = text_json_get(it, "type");
        if (!text_json_is(type, "additional_tools") && !text_json_is(type, "tool_search_output"))
            continue;
        snprintf(at, sizeof at, "input[%d]", i);
        SL_TRY(api_field_kind(it, at, "tools", JSON_ARRAY_K, err));
        snprintf(at, sizeof at, "input[%d].tools", i);
        if (api_field(it, "tools")) SL_TRY(add_list(l, api_field(it, "tools"), NULL, at, err));
    }
    return SL_OK;
}

sl_status api_resp_put_tools(struct net_req *r, struct api_resp *p, struct json_w *w, sl_err *err)
{
    const struct json *tools = api_field(p->body, "tools");
    struct list l = {.r = r, .p = p, .w = w};
    void *mem = NULL;
    SL_TRY(mem_arena_array(&r->arena, TOOLS_MAX, sizeof *p->tool, &mem, err));
    p->tool = mem;
    p->n_tool = 0;
    text_jw_key(w, "tools");
    text_jw_arr(w);
    if (tools) SL_TRY(add_list(&l, tools, NULL, "tools", err));
    SL_TRY(add_items(&l, p->in, err));
    text_jw_arr_end(w);
    return SL_OK;
}

/* ---- tool_choice ---- */

/* The tool that one (a tool_choice, or one of its allowed tools) names; NULL: it was left out. */
static sl_status named(struct net_req *r, const struct api_resp *p, const struct json *one,
                       const char *path, const struct api_resp_tool **out, sl_err *err)
{
    const struct json *f = api_field(one, "function"), *name = api_field(f ? f : one, "name");
    const char *flat = NULL;
    *out = NULL;
    if (!is_callable(one)) return SL_OK;
    SL_TRY(api_field_kind(f ? f : one, path, "name", JSON_STR_K, err));
    SL_TRY(api_field_kind(one, path, "namespace", JSON_STR_K, err));
    if (!name) return SL_FAIL(err, REQUEST, "%s.name: missing", path);
    SL_TRY(api_resp_flat(&r->arena, api_field_str(one, "namespace", NULL), name->s, &flat, err));
    *out = api_resp_tool_of(p, flat, strlen(flat));
    if (!*out) return SL_FAIL(err, REQUEST, "tool_choice: names no function of tools");
    return SL_OK;
}

static void put_name(struct json_w *w, const struct api_resp_tool *t)
{
    text_jw_obj(w);
    api_function_begin(w);
    text_jw_strz(w, t->flat);
    text_jw_obj_end(w);
    text_jw_obj_end(w);
}

static sl_status none_left(sl_err *err)
{
    return SL_FAIL(err, REQUEST,
                   "tool_choice: a call is required, and there is no tool that can "
                   "be called here");
}

/* {"type": "allowed_tools"}: those of its list that are left. */
static sl_status put_allowed(struct net_req *r, const struct api_resp *p, const struct json *c,
                             struct json_w *w, sl_err *err)
{
    const struct json *list = api_field(c, "tools"), *mode = api_field(c, "mode");
    const struct api_resp_tool *t = NULL;
    bool must = text_json_is(mode, "required");
    int n = 0, i = 0;
    char at[48];
    if (!must && !text_json_is(mode, "auto"))
        return SL_FAIL(err, REQUEST, "tool_choice.mode: must be auto or required");
    if (!list || list->kind != JSON_ARRAY_K || !list->n)
        return SL_FAIL(err, REQUEST, "tool_choice.tools: must be a list of at least one function");
    for (const struct json *one = list->child; one; one = one->next, i++) {
        snprintf(at, sizeof at, "tool_choice.tools[%d]", i);
        if (one->kind != JSON_OBJECT_K) return SL_FAIL(err, REQUEST, "%s: must be an object", at);
        SL_TRY(named(r, p, one, at, &t, err));
        n += t != NULL;
    }
    if (!n && must) return none_left(err);
    text_jw_key(w, "tool_choice");
    if (!n) {
        text_jw_strz(w, "none");
        return SL_OK;
    }
    text_jw_obj(w);
    text_jw_key(w, "type");
    text_jw_strz(w, "allowed_tools");
    text_jw_key(w, "mode");
    text_jw_node(w, mode);
    text_jw_key(w, "tools");
    text_jw_arr(w);
    for (const struct json *one = list->child; one; one = one->next) {
        SL_TRY(named(r, p, one, "tool_choice", &t, err));
        if (t) put_name(w, t);
    }
    text_jw_arr_end(w);
    text_jw_obj_end(w);
    return SL_OK;
}

/* Is one of these tools of a kind that a tool_choice can name by its type alone? */
static bool leaves_out(const struct json *tools)
{
    for (const struct json *t = tools ? tools->child : NULL; t; t = t->next)
        if (!is_callable(t) && !text_json_is(api_field(t, "type"), "namespace")) return true;
    return false;
}

sl_status api_resp_put_choice(struct net_req *r, const struct api_resp *p, struct json_w *w,
                              sl_err *err)
{
    const struct json *c = api_field(p->body, "tool_choice"), *type = api_field(c, "type");
    const struct api_resp_tool *t = NULL;
    if (!c) return SL_OK;
    if (text_json_is(type, "allowed_tools")) return put_allowed(r, p, c, w, err);
    if (text_json_is(c, "required") && !p->n_tool && api_field(p->body, "tools"))
        return none_left(err);
    if (c->kind != JSON_OBJECT_K) { /* as in chat */
        text_jw_key(w, "tool_choice");
        text_jw_node(w, c);
        return SL_OK;
    }
    SL_TRY(api_field_kind(c, "tool_choice", "type", JSON_STR_K, err));
    if (!type) return SL_FAIL(err, REQUEST, "tool_choice.type: missing");
    SL_TRY(named(r, p, c, "tool_choice", &t, err));
    if (!t && !leaves_out(api_field(p->body, "tools")))
        return SL_FAIL(err, REQUEST, "tool_choice.type: %.60s: tools has none of that kind",
                       type->s);
    text_jw_key(w, "tool_choice");
    if (t)
        put_name(w, t);
    else /* a tool that was left out can not be forced */
        text_jw_strz(w, "auto");
    return SL_OK;
}

void api_resp_blame(const struct api_resp *p, sl_err *err)
{
    static const char params[] = ".function";
    char at[sizeof err->text];
    int i = 0, n = 0;
    if (!err || sscanf(err->text, "tools[%d]%n", &i, &n) != 1 || !n || i < 0 || i >= p->n_tool)
        return;
    const char *rest = err->text + n;
    if (strncmp(rest, params, sizeof params - 1) == 0) rest += sizeof params - 1;
    snprintf(at, sizeof at, "%s%s", p->tool[i].path, rest);
    snprintf(err->text, sizeof err->text, "%s", at);
}
