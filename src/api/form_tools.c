/* SPDX-License-Identifier: Apache-2.0 */
/* tool_choice and strict tools as rules of a grammar, in the syntax of the model's family (the one
 * that parse.c reads). */
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/form.h"
#include "api/parse_internal.h"

/* ---- which tools ---- */

static const struct json *function_of(const struct json *tool)
{
    const struct json *f = text_json_get(tool, "function");
    return f ? f : tool;
}

static bool is_strict(const struct json *tool)
{
    const struct json *s = api_field(function_of(tool), "strict");
    return s && s->kind == JSON_BOOL_K && s->b;
}

/* {"type": "allowed_tools"}: its list and mode; chat has them one level deeper than responses. */
static const struct json *allowed_of(const struct json *choice)
{
    if (!choice || choice->kind != JSON_OBJECT_K ||
        !text_json_is(text_json_get(choice, "type"), "allowed_tools"))
        return NULL;
    const struct json *in = api_field(choice, "allowed_tools");
    return in ? in : choice;
}

static bool same_name(const struct json *tool, const struct json *other)
{
    const struct json *a = text_json_get(function_of(tool), "name"),
                      *b = text_json_get(function_of(other), "name");
    return a && b && a->kind == JSON_STR_K && b->kind == JSON_STR_K && a->n == b->n &&
           memcmp(a->s, b->s, a->n) == 0;
}

/* May this tool be called? */
static bool may_call(const struct json *choice, const struct json *tool)
{
    const struct json *allowed = allowed_of(choice);
    if (!choice || choice->kind != JSON_OBJECT_K) return true;
    if (!allowed) return same_name(choice, tool);
    const struct json *list = api_field(allowed, "tools");
    for (const struct json *t = list ? list->child : NULL; t; t = t->next)
        if (same_name(t, tool)) return true;
    return false;
}

enum api_calls api_calls_mode(const struct json *chat, bool form)
{
    const struct json *tools = api_field(chat, "tools"), *choice = api_field(chat, "tool_choice"),
                      *allowed = allowed_of(choice);
    if (!tools || !tools->n || text_json_is(choice, "none")) return API_CALLS_FREE;
    if (allowed)
        return text_json_is(text_json_get(allowed, "mode"), "required") ? API_CALLS_MUST
                                                                        : API_CALLS_MAY;
    if (text_json_is(choice, "required") || (choice && choice->kind == JSON_OBJECT_K))
        return API_CALLS_MUST;
    for (const struct json *t = tools->child; t; t = t->next)
        form |= is_strict(t);
    return form ? API_CALLS_MAY : API_CALLS_FREE;
}

/* ---- rules ---- */

/* Does a schema say what arguments look like? Else any value would do, and they are an object. */
static bool says_form(const struct json *p)
{
    static const char *const key[] = {"type",  "properties", "required", "additionalProperties",
                                      "anyOf", "oneOf",      "allOf",    "$ref",
                                      "enum",  "const"};
    for (int i = 0; i < BASE_COUNT_OF(key); i++)
        if (text_json_get(p, key[i])) return true;
    return false;
}

static void put_schema(struct str *out, const struct json *tool)
{
    const struct json *p = api_field(function_of(tool), "parameters");
    struct json_w w;
    str_puts(out, is_strict(tool) ? "%json " : "%json-loose ");
    text_jw_init(&w, out);
    if (!p) /* OpenAI: no parameters is an empty list of them */
        str_puts(out, "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}");
    else if (p->kind != JSON_OBJECT_K || says_form(p))
        text_jw_node(&w, p);
    else {
        text_jw_obj(&w);
        text_jw_key(&w, "type");
        text_jw_strz(&w, "object");
        for (const struct json *v = p->n ? p->child : NULL; v; v = v->next) {
            text_jw_key(&w, v->key);
            text_jw_node(&w, v);
        }
        text_jw_obj_end(&w);
    }
}

/* A name that stands between tags holds none. */
static sl_status check_name(const struct api_call_form *f, const struct json *name, int i,
                            sl_err *err)
{
    const char *bad = f->word ? "<>\" \t\n{" : "<\n";
    for (size_t k = 0; k < name->n && !f->key; k++)
        if (strchr(bad, name->s[k]))
            return SL_FAIL(err, REQUEST,
                           "tools[%d].function.name: must not hold %s in this model's form", i,
                           f->word ? "<, >, {, quotes or white space" : "< or line ends");
    return SL_OK;
}

static const char *or_none(const char *s)
{
    return s ? s : "";
}

/* A call up to its arguments, as a text. */
static void put_head(struct str *out, const struct api_call_form *f, const struct json *name)
{
    if (f->key) {
        str_puts(out, "{\"name\": \"");
        text_json_escape(out, name->s, name->n);
        str_printf(out, "\", \"%s\": ", f->key);
    } else {
        str_puts(out, or_none(f->head));
        str_put(out, name->s, name->n);
        str_puts(out, or_none(f->tail));
    }
}

/* sl-call-I: one call of this tool, without what stands around calls. */
static sl_status put_call(const struct api_family *family, const struct api_call_form *f,
                          struct str *out, const struct json *tool, int i, sl_err *err)
{
    const struct json *name = text_json_get(function_of(tool), "name");
    struct str head;
    SL_TRY(check_name(f, name, i, err));
    if (f->rules && is_strict(tool))
        return SL_FAIL(err, REQUEST,
                       "tools[%d].function.strict: this model's arguments are no JSON: no schema "
                       "holds them",
                       i);
    str_init(&head, MEM_REQUEST, 0);
    put_head(&head, f, name);
    str_printf(out, "sl-call-%d ::= ", i);
    api_inherit(out, &head);
    api_form_literal(out, str_c(&head), head.n);
    str_fini(&head);
    str_printf(out, " %s", or_none(f->before));
    if (family->xml)
        str_printf(out, "sl-args-%d", i);
    else if (f->rules)
        str_puts(out, "sl-args");
    else
        put_schema(out, tool);
    str_printf(out, "%s%s\n", or_none(f->after), f->key ? " \"}\"" : "");
    if (!family->xml) return SL_OK;
    return api_form_xml_args(family, out, api_field(function_of(tool), "parameters"), i,
                             is_strict(tool), err);
}

static void put_tag(api *a, struct str *out, const char *name, const char *tag)
{
    str_printf(out, "%s ::= ", name);
    api_form_tag(a, out, tag);
    str_putc(out, '\n');
}

/* sl-calls of sl-one, and the tags; more: how many may follow the first. */
static void put_calls(api *a, struct str *out, const struct api_family *family,
                      const struct api_call_form *f, int more)
{
    static const char *const name[] = {"sl-begin", "sl-end", "sl-call-begin", "sl-call-end",
                                       "sl-sep"};
    for (int i = 0; i < f->n_tag; i++)
        put_tag(a, out, name[i], api_family_tag(family, f->tag + i));
    if (family->xml) api_form_xml_tags(a, out, family);
    if (f->rules) f->rules(a, out);
    str_printf(out, "sl-whole ::= %s\nsl-calls ::= %s", f->whole, or_none(f->open));
    if (f->list && more) str_puts(out, "sl-whole | \"[\" ");
    str_puts(out, "sl-whole");
    if (more) str_printf(out, " (%ssl-whole){0,%d}", or_none(f->between), more);
    if (f->list && more) str_puts(out, " \"]\"");
    str_printf(out, "%s\n", or_none(f->close));
}

/* An answer in words, or words and then calls, where the form allows that. */
static void put_text(struct str *out, const struct api_call_form *f)
{
    if (f->not_text) {
        api_form_without(out, "sl-words", f->not_text, false, "");
        str_puts(out, "sl-text ::= sl-words sl-calls?\n");
    } else
        str_printf(out, "sl-text ::= sl-calls | [ \\t\\r\\n]* ([^{%s \\t\\r\\n] .*)?\n",
                   or_none(f->not_first));
}

static sl_status form_of(const api *a, const struct api_family *family,
                         const struct api_call_form **out, sl_err *err)
{
    const char *t = a->mi.chat_template_tools;
    *out = family->fenced && t && strstr(t, "```json") ? family->fenced : family->form;
    /* messages are read even where calls are not */
    if (!*out || (family->messages && a->o.tool_parser && strcmp(a->o.tool_parser, "none") == 0))
        return SL_FAIL(
            err, REQUEST,
            "tool_choice: can not be enforced: this server runs with --tool-parser none");
    return SL_OK;
}

sl_status api_calls_put(api *a, const struct api_parse *parse, const struct json *chat,
                        struct str *out, sl_err *err)
{
    const struct json *tools = api_field(chat, "tools"), *choice = api_field(chat, "tool_choice");
    bool first = true;
    bool one = !api_field_bool(chat, "parallel_tool_calls", true);
    struct str names;
    const struct api_family *family = api_parse_family(parse);
    const struct api_call_form *f = NULL;
    int i = 0;
    SL_TRY(form_of(a, family, &f, err));
    str_init(&names, MEM_REQUEST, 0);
    sl_status st = SL_OK;
    for (const struct json *t = tools->child; t && !st; t = t->next, i++) {
        if (!may_call(choice, t)) continue;
        st = put_call(family, f, out, t, i, err);
        str_printf(&names, "%ssl-call-%d", first ? "" : " | ", i);
        first = false;
    }
    if (!st) {
        str_printf(out, "sl-one ::= %s\n", str_c(&names));
        if (f->whole) { /* else one call a turn, and rules of its own */
            put_calls(a, out, family, f, one ? 0 : API_CALL_MAX - 1);
            put_text(out, f);
        }
        st = str_status(&names, err);
    }
    str_fini(&names);
    return st;
}

sl_status api_calls_blame(api *a, const struct json *chat, sl_err *err)
{
    const struct json *tools = api_field(chat, "tools"), *choice = api_field(chat, "tool_choice");
    int i = 0;
    for (const struct json *t = tools->child; t; t = t->next, i++) {
        const struct json *p = api_field(function_of(t), "parameters");
        sl_grammar *g = NULL;
        struct str s;
        struct json_w w;
        if (!p || !may_call(choice, t)) continue;
        str_init(&s, MEM_REQUEST, 0);
        text_jw_init(&w, &s);
        text_jw_node(&w, p);
        sl_status st = str_status(&s, err);
        if (!st)
            st = sl_grammar_compile(
                a->o.model, is_strict(t) ? SL_GRAMMAR_JSON_SCHEMA : SL_GRAMMAR_JSON_SCHEMA_LOOSE,
                str_c(&s), s.n, &g, err);
        str_fini(&s);
        sl_grammar_unref(g);
        if (st) {
            status_prefix(err, "tools[%d].function.parameters", i);
            if (err) err->code = SL_REQUEST;
            return SL_REQUEST;
        }
    }
    return SL_OK;
}
