/* SPDX-License-Identifier: Apache-2.0 */
/* What the answer must look like: response_format, and the names other servers use, as the text of
 * a grammar. form.c joins it with reasoning and tool calls and compiles it. */
#include <stdio.h>
#include <string.h>

#include "api/form.h"

static sl_status schema_of(const char *name, const struct json *schema, bool strict,
                           struct api_form *f, sl_err *err)
{
    struct json_w w;
    if (!schema || (schema->kind != JSON_OBJECT_K && schema->kind != JSON_BOOL_K))
        return SL_FAIL(err, REQUEST, "%s: must be a JSON schema", name);
    f->any = true;
    f->kind = strict ? SL_GRAMMAR_JSON_SCHEMA : SL_GRAMMAR_JSON_SCHEMA_LOOSE;
    text_jw_init(&w, &f->text);
    text_jw_node(&w, schema);
    return str_status(&f->text, err);
}

/* A schema may come as JSON inside a string; held exactly or refused. */
static sl_status json_of(struct net_req *r, const char *name, const struct json *v,
                         struct api_form *f, sl_err *err)
{
    const struct json *schema = v;
    if (v->kind == JSON_STR_K) {
        sl_status st = text_json_parse(&r->arena, name, v->s, v->n, &schema, err);
        if (st == SL_FORMAT && err) err->code = SL_REQUEST;
        if (st) return st == SL_FORMAT ? SL_REQUEST : st;
    }
    return schema_of(name, schema, true, f, err);
}

/* One of several texts, word for word, as a grammar. */
static sl_status choice_of(struct net_req *r, const char *name, const struct json *v,
                           struct api_form *f, sl_err *err)
{
    (void)r;
    if (v->kind != JSON_ARRAY_K || v->n < 1 || v->n > 1024)
        return SL_FAIL(err, REQUEST, "%s: must be a list of 1 to 1024 texts", name);
    f->any = true;
    f->kind = SL_GRAMMAR_GBNF;
    str_puts(&f->text, "root ::= ");
    for (const struct json *e = v->child; e; e = e->next) {
        if (e->kind != JSON_STR_K) return SL_FAIL(err, REQUEST, "%s: must hold texts only", name);
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

static sl_status regex_of(struct net_req *r, const char *name, const struct json *v,
                          struct api_form *f, sl_err *err)
{
    (void)r;
    return text_of(SL_GRAMMAR_REGEX, name, v, f, err);
}

static sl_status gbnf_of(struct net_req *r, const char *name, const struct json *v,
                         struct api_form *f, sl_err *err)
{
    (void)r;
    return text_of(SL_GRAMMAR_GBNF, name, v, f, err);
}

/* {"type": "json_schema", ...}: chat has the schema one level deeper than responses. With strict
 * the schema is held exactly or refused; without, as far as it can be. */
static sl_status of_format(const char *name, const struct json *v, struct api_form *f, sl_err *err)
{
    const struct json *type = text_json_get(v, "type"), *js = api_field(v, "json_schema");
    bool text = text_json_is(type, "text"), object = text_json_is(type, "json_object");
    if (js && (text || object))
        return SL_FAIL(err, REQUEST, "%s.json_schema: only with type json_schema", name);
    if (text) return api_members_check(v, name, "type", err);
    if (object) SL_TRY(api_members_check(v, name, "type|schema", err));
    if (object && api_field(v, "schema")) /* as llama.cpp takes it */
        return schema_of(name, api_field(v, "schema"), false, f, err);
    if (object) {
        f->any = true;
        f->kind = SL_GRAMMAR_JSON_OBJECT;
        return SL_OK;
    }
    if (!text_json_is(type, "json_schema"))
        return SL_FAIL(err, REQUEST, "%s.type: must be text, json_object or json_schema", name);
    const struct json *in = js ? js : v;
    char path[64];
    snprintf(path, sizeof path, "%s%s", name, js ? ".json_schema" : "");
    SL_TRY(api_members_check(v, name, "type|json_schema|schema|name|description|strict", err));
    SL_TRY(api_members_check(in, path, "type|schema|name|description|strict", err));
    SL_TRY(api_field_kind(in, path, "name", JSON_STR_K, err));
    SL_TRY(api_field_kind(in, path, "description", JSON_STR_K, err));
    SL_TRY(api_field_kind(in, path, "strict", JSON_BOOL_K, err));
    return schema_of(name, api_field(in, "schema"), api_field_bool(in, "strict", false), f, err);
}

static sl_status of_structured(struct net_req *r, const char *name, const struct json *s,
                               struct api_form *f, sl_err *err)
{
    const struct json *json = api_field(s, "json"), *regex = api_field(s, "regex"),
                      *grammar = api_field(s, "grammar"), *choice = api_field(s, "choice");
    if (s->kind != JSON_OBJECT_K || !!json + !!regex + !!grammar + !!choice != 1)
        return SL_FAIL(err, REQUEST, "%s: must have exactly one of json, regex, grammar, choice",
                       name);
    SL_TRY(api_members_check(s, name, "json|regex|grammar|choice", err));
    if (json) return json_of(r, "structured_outputs.json", json, f, err);
    if (choice) return choice_of(r, "structured_outputs.choice", choice, f, err);
    if (regex) return regex_of(r, "structured_outputs.regex", regex, f, err);
    return gbnf_of(r, "structured_outputs.grammar", grammar, f, err);
}

/* Fields of other servers. An empty text is none, as there. */
static const struct {
    const char *name;
    sl_status (*read)(struct net_req *r, const char *name, const struct json *v, struct api_form *f,
                      sl_err *err);
} other[] = {
    {"structured_outputs", of_structured},
    {"guided_json", json_of},
    {"guided_regex", regex_of},
    {"guided_grammar", gbnf_of},
    {"guided_choice", choice_of},
    {"json_schema", json_of},
    {"grammar", gbnf_of},
    {"regex", regex_of},
    {"ebnf", gbnf_of},
};

sl_status api_format_read(struct net_req *r, const struct json *body, int route, struct api_form *f,
                          sl_err *err)
{
    bool resp = route == API_RESPONSES;
    const struct json *text = resp ? api_field(body, "text") : NULL, *found = NULL,
                      *v = text ? api_field(text, "format") : api_field(body, "response_format");
    bool plain = v && text_json_is(text_json_get(v, "type"), "text");
    int n = v && !plain, at = 0;
    for (int i = 0; !resp && i < BASE_COUNT_OF(other); i++) {
        const struct json *o = api_field(body, other[i].name);
        if (!o || (o->kind == JSON_STR_K && !o->n)) continue;
        found = o;
        at = i;
        n++;
    }
    f->name = resp ? "text.format" : found ? other[at].name : "response_format";
    if (n > 1)
        return SL_FAIL(err, REQUEST, "%s: and another structure: only one is possible", f->name);
    if (plain) SL_TRY(of_format(resp ? "text.format" : "response_format", v, f, err));
    if (found) return other[at].read(r, f->name, found, f, err);
    return v && !plain ? of_format(f->name, v, f, err) : SL_OK;
}
