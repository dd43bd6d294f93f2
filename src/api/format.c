/* SPDX-License-Identifier: Apache-2.0 */
/* What the answer must look like: response_format, and the names other servers use, as the text of
 * a grammar. form.c joins it with reasoning and tool calls and compiles it. */
#include <string.h>

#include "api/form.h"

static sl_status schema_of(const char *name, const struct json *schema, struct api_form *f,
                           sl_err *err)
{
    struct json_w w;
    if (!schema || (schema->kind != JSON_OBJECT_K && schema->kind != JSON_BOOL_K))
        return SL_FAIL(err, REQUEST, "%s: must be a JSON schema", name);
    f->any = true;
    f->kind = SL_GRAMMAR_JSON_SCHEMA;
    text_jw_init(&w, &f->text);
    text_jw_node(&w, schema);
    return str_status(&f->text, err);
}

/* A schema may come as JSON inside a string. */
static sl_status json_of(struct net_req *r, const char *name, const struct json *v,
                         struct api_form *f, sl_err *err)
{
    const struct json *schema = v;
    if (v->kind == JSON_STR_K) {
        sl_status st = text_json_parse(&r->arena, name, v->s, v->n, &schema, err);
        if (st == SL_FORMAT && err) err->code = SL_REQUEST;
        if (st) return st == SL_FORMAT ? SL_REQUEST : st;
    }
    return schema_of(name, schema, f, err);
}

/* One of several texts, word for word, as a grammar. */
static sl_status choice_of(const struct json *v, struct api_form *f, sl_err *err)
{
    if (v->kind != JSON_ARRAY_K || v->n < 1 || v->n > 1024)
        return SL_FAIL(err, REQUEST,
                       "structured_outputs.choice: must be a list of 1 to 1024 texts");
    f->any = true;
    f->kind = SL_GRAMMAR_GBNF;
    str_puts(&f->text, "root ::= ");
    for (const struct json *e = v->child; e; e = e->next) {
        if (e->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "structured_outputs.choice: must hold texts only");
        if (e != v->child) str_puts(&f->text, " | ");
        api_form_literal(&f->text, e->s, e->n);
    }
    return str_status(&f->text, err);
}

static sl_status text_of(sl_grammar_kind kind, const char *name, const struct json *v,
                         struct api_form *f, sl_err *err)
{
    if (v->kind != JSON_STR_K) return SL_FAIL(err, REQUEST, "%s: must be a string", name);
    f->any = true;
    f->kind = kind;
    str_put(&f->text, v->s, v->n);
    return str_status(&f->text, err);
}

/* {"type": "json_schema", ...}: chat has the schema one level deeper than responses. */
static sl_status of_format(const char *name, const struct json *v, struct api_form *f, sl_err *err)
{
    const struct json *type = text_json_get(v, "type"), *js = api_field(v, "json_schema");
    if (text_json_is(type, "text")) return SL_OK;
    if (text_json_is(type, "json_object")) {
        f->any = true;
        f->kind = SL_GRAMMAR_JSON_OBJECT;
        return SL_OK;
    }
    if (!text_json_is(type, "json_schema"))
        return SL_FAIL(err, REQUEST, "%s.type: must be text, json_object or json_schema", name);
    return schema_of(name, api_field(js ? js : v, "schema"), f, err);
}

static sl_status of_structured(struct net_req *r, const struct json *s, struct api_form *f,
                               sl_err *err)
{
    const struct json *json = api_field(s, "json"), *regex = api_field(s, "regex"),
                      *grammar = api_field(s, "grammar"), *choice = api_field(s, "choice");
    if (s->kind != JSON_OBJECT_K || !!json + !!regex + !!grammar + !!choice != 1)
        return SL_FAIL(err, REQUEST,
                       "structured_outputs: must have exactly one of json, regex, grammar, choice");
    if (json) return json_of(r, "structured_outputs.json", json, f, err);
    if (choice) return choice_of(choice, f, err);
    return text_of(regex ? SL_GRAMMAR_REGEX : SL_GRAMMAR_GBNF,
                   regex ? "structured_outputs.regex" : "structured_outputs.grammar",
                   regex ? regex : grammar, f, err);
}

static const char *format_name(const struct json *body, int route)
{
    if (route == API_RESPONSES) return "text.format";
    return api_field(body, "response_format") ? "response_format" : "structured_outputs";
}

sl_status api_format_read(struct net_req *r, const struct json *body, int route, struct api_form *f,
                          sl_err *err)
{
    const struct json *text = route == API_RESPONSES ? api_field(body, "text") : NULL,
                      *v = text ? api_field(text, "format") : api_field(body, "response_format"),
                      *s = api_field(body, "structured_outputs"),
                      *json = api_field(body, "guided_json"),
                      *regex = api_field(body, "guided_regex"),
                      *grammar = api_field(body, "guided_grammar");
    f->name = format_name(body, route);
    if (route == API_RESPONSES) s = json = regex = grammar = NULL;
    bool plain = v && text_json_is(text_json_get(v, "type"), "text");
    int n = (v && !plain) + !!s + !!json + !!regex + !!grammar;
    if (n > 1)
        return SL_FAIL(err, REQUEST,
                       "response_format: and another structure: only one is possible");
    if (v && !plain) return of_format(f->name, v, f, err);
    if (s) return of_structured(r, s, f, err);
    if (json) return json_of(r, "guided_json", json, f, err);
    if (regex) return text_of(SL_GRAMMAR_REGEX, "guided_regex", regex, f, err);
    if (grammar) return text_of(SL_GRAMMAR_GBNF, "guided_grammar", grammar, f, err);
    return SL_OK;
}
