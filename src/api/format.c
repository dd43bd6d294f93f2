/* SPDX-License-Identifier: Apache-2.0 */
/* What the answer must look like: response_format, and the names other servers use. Compiled here,
 * on a worker thread. */
#include <string.h>

#include "api/api_internal.h"

static sl_status compile_node(api *a, const char *name, const struct json *schema, sl_grammar **out,
                              sl_err *err)
{
    struct str s;
    struct json_w w;
    if (!schema || (schema->kind != JSON_OBJECT_K && schema->kind != JSON_BOOL_K))
        return SL_FAIL(err, REQUEST, "%s: must be a JSON schema", name);
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_node(&w, schema);
    sl_status st = str_status(&s, err);
    if (!st) st = sl_grammar_compile(a->o.model, SL_GRAMMAR_JSON_SCHEMA, str_c(&s), s.n, out, err);
    str_fini(&s);
    return st;
}

/* A schema may come as JSON inside a string. */
static sl_status compile_json(api *a, struct net_req *r, const char *name, const struct json *v,
                              sl_grammar **out, sl_err *err)
{
    const struct json *schema = v;
    if (v->kind == JSON_STR_K) {
        sl_status st = text_json_parse(&r->arena, name, v->s, v->n, &schema, err);
        if (st == SL_FORMAT && err) err->code = SL_REQUEST;
        if (st) return st == SL_FORMAT ? SL_REQUEST : st;
    }
    return compile_node(a, name, schema, out, err);
}

/* One of several texts, word for word, as a grammar. */
static sl_status compile_choice(api *a, const struct json *v, sl_grammar **out, sl_err *err)
{
    struct str s;
    if (v->kind != JSON_ARRAY_K || v->n < 1 || v->n > 1024)
        return SL_FAIL(err, REQUEST,
                       "structured_outputs.choice: must be a list of 1 to 1024 texts");
    str_init(&s, MEM_REQUEST, 0);
    str_puts(&s, "root ::= ");
    for (const struct json *e = v->child; e; e = e->next) {
        if (e->kind != JSON_STR_K) {
            str_fini(&s);
            return SL_FAIL(err, REQUEST, "structured_outputs.choice: must hold texts only");
        }
        str_puts(&s, e == v->child ? "\"" : " | \"");
        text_json_escape(&s, e->s, e->n);
        str_putc(&s, '"');
    }
    sl_status st = str_status(&s, err);
    if (!st) st = sl_grammar_compile(a->o.model, SL_GRAMMAR_GBNF, str_c(&s), s.n, out, err);
    str_fini(&s);
    return st;
}

static sl_status compile_text(api *a, sl_grammar_kind kind, const char *name, const struct json *v,
                              sl_grammar **out, sl_err *err)
{
    if (v->kind != JSON_STR_K) return SL_FAIL(err, REQUEST, "%s: must be a string", name);
    return sl_grammar_compile(a->o.model, kind, v->s, v->n, out, err);
}

/* {"type": "json_schema", ...}: chat has the schema one level deeper than responses. */
static sl_status of_format(api *a, const char *name, const struct json *f, sl_grammar **out,
                           sl_err *err)
{
    const struct json *type = text_json_get(f, "type"), *js = api_field(f, "json_schema");
    if (text_json_is(type, "text")) return SL_OK;
    if (text_json_is(type, "json_object"))
        return sl_grammar_compile(a->o.model, SL_GRAMMAR_JSON_OBJECT, "", 0, out, err);
    if (!text_json_is(type, "json_schema"))
        return SL_FAIL(err, REQUEST, "%s.type: must be text, json_object or json_schema", name);
    return compile_node(a, name, api_field(js ? js : f, "schema"), out, err);
}

static sl_status of_structured(api *a, struct net_req *r, const struct json *s, sl_grammar **out,
                               sl_err *err)
{
    const struct json *json = api_field(s, "json"), *regex = api_field(s, "regex"),
                      *grammar = api_field(s, "grammar"), *choice = api_field(s, "choice");
    if (s->kind != JSON_OBJECT_K || !!json + !!regex + !!grammar + !!choice != 1)
        return SL_FAIL(err, REQUEST,
                       "structured_outputs: must have exactly one of json, regex, grammar, choice");
    if (json) return compile_json(a, r, "structured_outputs.json", json, out, err);
    if (choice) return compile_choice(a, choice, out, err);
    return compile_text(a, regex ? SL_GRAMMAR_REGEX : SL_GRAMMAR_GBNF,
                        regex ? "structured_outputs.regex" : "structured_outputs.grammar",
                        regex ? regex : grammar, out, err);
}

static sl_status parse(api *a, struct net_req *r, const struct json *body, int route,
                       sl_grammar **out, sl_err *err)
{
    const struct json *text = route == API_RESPONSES ? api_field(body, "text") : NULL,
                      *f = text ? api_field(text, "format") : api_field(body, "response_format"),
                      *s = api_field(body, "structured_outputs"),
                      *json = api_field(body, "guided_json"),
                      *regex = api_field(body, "guided_regex"),
                      *grammar = api_field(body, "guided_grammar");
    *out = NULL;
    if (route == API_RESPONSES) s = json = regex = grammar = NULL;
    bool plain = f && text_json_is(text_json_get(f, "type"), "text");
    int n = (f && !plain) + !!s + !!json + !!regex + !!grammar;
    if (n > 1)
        return SL_FAIL(err, REQUEST,
                       "response_format: and another structure: only one is possible");
    if (f)
        return of_format(a, route == API_RESPONSES ? "text.format" : "response_format", f, out,
                         err);
    if (s) return of_structured(a, r, s, out, err);
    if (json) return compile_json(a, r, "guided_json", json, out, err);
    if (regex) return compile_text(a, SL_GRAMMAR_REGEX, "guided_regex", regex, out, err);
    if (grammar) return compile_text(a, SL_GRAMMAR_GBNF, "guided_grammar", grammar, out, err);
    return SL_OK;
}

sl_status api_format_parse(api *a, struct net_req *r, const struct json *body, int route,
                           sl_grammar **out, sl_err *err)
{
    sl_status st = parse(a, r, body, route, out, err);
    if (st != SL_REQUEST && st != SL_LIMIT && st != SL_FORMAT) return st;
    if (err) err->code = SL_REQUEST;
    if (err && (strncmp(err->text, "schema", 6) == 0 || strncmp(err->text, "regex", 5) == 0 ||
                strncmp(err->text, "grammar", 7) == 0))
        status_prefix(err, "%s: ",
                      route == API_RESPONSES               ? "text.format"
                      : api_field(body, "response_format") ? "response_format"
                                                           : "structured_outputs");
    return SL_REQUEST;
}
