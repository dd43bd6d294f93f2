/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a tag for each argument (parse_xml.c reads them) as rules of a grammar: arguments in
 * the schema's order, those that are not required may be left out. A value that may be a string is
 * any text up to the closing tag, or one of an enum; any other is JSON of its schema. */
#include <stdio.h>
#include <string.h>

#include "api/form.h"
#include "api/parse_internal.h"

struct args {
    struct str *out;
    const struct json *root; /* the parameters */
    int tool;
    bool strict, typed; /* typed: the tag says whether a value is a text */
    sl_err *err;
};

/* ---- one argument's schema, apart from the others ---- */

static bool has_ref(const struct json *v)
{
    if (v->kind != JSON_OBJECT_K && v->kind != JSON_ARRAY_K) return false;
    for (const struct json *c = v->child; c; c = c->next)
        if ((v->kind == JSON_OBJECT_K && strcmp(c->key, "$ref") == 0) || has_ref(c)) return true;
    return false;
}

#define HOME "#/$defs/sl-root"

/* v with references from the root as they are where the root is a definition. */
static void put_moved(struct json_w *w, const struct json *v)
{
    if (v->kind != JSON_OBJECT_K && v->kind != JSON_ARRAY_K) {
        text_jw_node(w, v);
        return;
    }
    bool object = v->kind == JSON_OBJECT_K;
    if (object)
        text_jw_obj(w);
    else
        text_jw_arr(w);
    for (const struct json *c = v->child; c; c = c->next) {
        if (object) text_jw_key(w, c->key);
        if (object && strcmp(c->key, "$ref") == 0 && c->kind == JSON_STR_K && c->s[0] == '#') {
            struct str s;
            str_init(&s, MEM_REQUEST, 0);
            str_printf(&s, HOME "%s", c->s + 1);
            api_put_text(w, &s);
            str_fini(&s);
        } else
            put_moved(w, c);
    }
    if (object)
        text_jw_obj_end(w);
    else
        text_jw_arr_end(w);
}

static void put_json(const struct args *x, const struct json *prop)
{
    struct json_w w;
    struct str ref;
    str_puts(x->out, x->strict ? "%json " : "%json-loose ");
    text_jw_init(&w, x->out);
    if (!has_ref(prop)) {
        text_jw_node(&w, prop);
        return;
    }
    str_init(&ref, MEM_REQUEST, 0);
    str_puts(&ref, HOME "/properties/");
    for (const char *c = prop->key; *c; c++)
        str_printf(&ref, *c == '~' ? "~0" : *c == '/' ? "~1" : *c == '%' ? "%%25" : "%c", *c);
    text_jw_obj(&w);
    text_jw_key(&w, "$ref");
    api_put_text(&w, &ref);
    text_jw_key(&w, "$defs");
    text_jw_obj(&w);
    text_jw_key(&w, "sl-root");
    put_moved(&w, x->root);
    text_jw_obj_end(&w);
    text_jw_obj_end(&w);
    str_fini(&ref);
}

/* ---- rules ---- */

/* What is said of a text: by a property's schema itself, or by the one that its reference, its only
 * member of allOf, or its only member of anyOf beside null names. */
struct text {
    const struct json *schema; /* NULL: several say something */
    bool null;                 /* null is another member */
};

static bool is_sole(const struct json *s, const char *key)
{
    static const char *const notes[] = {"title",    "description", "default",    "examples",
                                        "readOnly", "writeOnly",   "deprecated", "$comment"};
    for (const struct json *c = s->child; c; c = c->next) {
        bool may = strcmp(c->key, key) == 0;
        for (int i = 0; i < BASE_COUNT_OF(notes); i++)
            may |= strcmp(c->key, notes[i]) == 0;
        if (!may) return false;
    }
    return true;
}

#define DEPTH_MAX 16

static struct text text_of(const struct json *s, const struct json *root, int depth)
{
    static const char *const list[] = {"anyOf", "oneOf", "allOf"};
    const struct text none = {0};
    const struct json *v;
    if (!s || s->kind != JSON_OBJECT_K || depth > DEPTH_MAX) return none;
    if ((v = text_json_get(s, "$ref")))
        return v->kind == JSON_STR_K && is_sole(s, "$ref")
                   ? text_of(api_parse_ref(root, v->s), root, depth + 1)
                   : none;
    for (int i = 0; i < BASE_COUNT_OF(list); i++) {
        const struct json *only = NULL;
        int n = 0;
        if (!(v = text_json_get(s, list[i]))) continue;
        if (v->kind != JSON_ARRAY_K || !is_sole(s, list[i])) return none;
        for (const struct json *c = v->child; c; c = c->next)
            if (i == 2 || api_parse_kinds(c, root) != API_PARSE_NULL) only = c, n++;
        if (n != 1) return none;
        struct text t = text_of(only, root, depth + 1);
        t.null |= v->n > 1;
        return t;
    }
    return (struct text){.schema = s};
}

/* An enum of strings, and null where it may be, with the closing tag; false: there is none. */
static bool put_enum(const struct args *x, const struct text *t)
{
    const struct json *list = text_json_get(t->schema, "enum"),
                      *one = text_json_get(t->schema, "const");
    bool is_one = one && one->kind == JSON_STR_K, null = t->null;
    if (!is_one && (!list || list->kind != JSON_ARRAY_K || !list->n)) return false;
    for (const struct json *v = is_one ? NULL : list->child; v; v = v->next) {
        if (v->kind != JSON_STR_K && v->kind != JSON_NULL_K) return false;
        null |= v->kind == JSON_NULL_K;
    }
    str_puts(x->out, "(");
    if (is_one) api_form_literal(x->out, one->s, one->n);
    const char *between = is_one ? " | " : "";
    for (const struct json *v = is_one ? NULL : list->child; v; v = v->next) {
        if (v->kind != JSON_STR_K) continue;
        str_puts(x->out, between);
        api_form_literal(x->out, v->s, v->n);
        between = " | ";
    }
    if (null && !x->typed) str_printf(x->out, "%s\"null\"", between);
    str_puts(x->out, ") sl-value-end");
    return true;
}

/* What a strict schema says of a text and this form can not hold. */
static const char *says_more(const struct json *schema)
{
    static const char *const key[] = {"pattern", "format", "not", "if"};
    for (int i = 0; i < BASE_COUNT_OF(key); i++)
        if (text_json_get(schema, key[i])) return key[i];
    return NULL;
}

#define LENGTH_MAX 4096 /* characters that are counted; beyond that a length is not held */

/* A text of bounded length, or null where it may be: of the texts that may be, those without "<",
 * which could begin the closing tag. 1 = put, 0 = no bounds, -1 = bounds that are not held. */
static int put_bounded(const struct args *x, const struct json *schema, bool null)
{
    const struct json *lo = text_json_get(schema, "minLength"),
                      *hi = text_json_get(schema, "maxLength");
    int64_t min = lo && lo->kind == JSON_INT_K ? lo->i : 0,
            max = hi && hi->kind == JSON_INT_K ? hi->i : -1;
    if (min <= 0 && max < 0) return 0;
    if (min > LENGTH_MAX || max > LENGTH_MAX) return -1;
    str_printf(x->out, "%s[^<]{%d,", null ? "(\"null\" | " : "", (int)BASE_MAX(min, 0));
    if (max >= 0) str_printf(x->out, "%d", (int)max);
    str_printf(x->out, "}%s sl-value-end", null ? ")" : "");
    return 1;
}

#define TEXT_OR_NULL (API_PARSE_STR | API_PARSE_NULL)

/* What may be a text or null can be held: null and None are read as null, all else as a text. */
static sl_status put_value(const struct args *x, const struct json *prop)
{
    int bound = 0;
    unsigned kinds = api_parse_kinds(prop, x->root);
    bool null = kinds & API_PARSE_NULL, is_text = (kinds | API_PARSE_NULL) == TEXT_OR_NULL;
    struct text t = {0};
    const char *more = NULL;
    if (kinds && !(kinds & API_PARSE_STR)) {
        put_json(x, prop);
        str_puts(x->out, " sl-value-end");
        return SL_OK;
    }
    if (is_text) t = text_of(prop, x->root, 0);
    if (is_text && !t.schema) more = "a text of several forms";
    if (!is_text) more = "what may be a string or not";
    if (!t.schema) t.schema = prop;
    if (!(x->strict && is_text && more) && put_enum(x, &t)) return SL_OK;
    if (!more) {
        more = says_more(t.schema);
        bound = put_bounded(x, t.schema, (t.null || null) && !x->typed);
        if (bound == 1 && !(x->strict && more)) return SL_OK;
        if (bound < 0) more = "a length over 4096";
    }
    if (x->strict && more)
        return SL_FAIL(x->err, REQUEST,
                       "tools[%d].function.parameters.properties.%.40s: %s can not be enforced "
                       "strictly in this model's form of calls",
                       x->tool, prop->key, more);
    str_puts(x->out, "sl-value");
    return SL_OK;
}

/* The value with the end of its tag, which says what it is. */
static sl_status put_typed(const struct args *x, const struct json *prop)
{
    unsigned kinds = api_parse_kinds(prop, x->root);
    bool json = kinds && !(kinds & API_PARSE_STR);
    str_puts(x->out, json ? "sl-key-end-json " : "(sl-key-end ");
    SL_TRY(put_value(x, prop));
    if (json) return SL_OK;
    if (kinds == TEXT_OR_NULL)
        str_puts(x->out, " | sl-key-end-json \"null\" sl-value-end");
    else if (kinds != API_PARSE_STR) {
        str_puts(x->out, " | sl-key-end-json ");
        put_json(x, prop);
        str_puts(x->out, " sl-value-end");
    }
    str_putc(x->out, ')');
    return SL_OK;
}

static bool is_required(const struct json *root, const char *key)
{
    const struct json *list = text_json_get(root, "required");
    for (const struct json *v = list && list->kind == JSON_ARRAY_K ? list->child : NULL; v;
         v = v->next)
        if (text_json_is(v, key)) return true;
    return false;
}

static sl_status put_arg(const struct args *x, const struct json *prop, int at)
{
    size_t n = strlen(prop->key);
    if (strpbrk(prop->key, "<>\"\n"))
        return SL_FAIL(
            x->err, REQUEST,
            "tools[%d].function.parameters.properties: %.40s: a name must not hold <, >, "
            "quotes or line ends in this model's form",
            x->tool, prop->key);
    str_printf(x->out, "sl-arg-%d-%d ::= sl-key ", x->tool, at);
    api_form_literal(x->out, prop->key, n);
    str_puts(x->out, x->typed ? " " : " sl-key-end ");
    SL_TRY((x->typed ? put_typed : put_value)(x, prop));
    str_puts(x->out, " \"\\n\"?\n");
    return SL_OK;
}

sl_status api_form_xml_args(const struct api_family *family, struct str *out,
                            const struct json *root, int tool, bool strict, sl_err *err)
{
    const struct args x = {out, root, tool, strict, family->xml == API_XML_TYPED, err};
    const struct json *props = root ? text_json_get(root, "properties") : NULL, *extra = NULL;
    int n = 0;
    if (props && props->kind != JSON_OBJECT_K) props = NULL;
    if (root) extra = text_json_get(root, "additionalProperties");
    bool closed = !root || (extra && extra->kind == JSON_BOOL_K && !extra->b);
    if (strict && root && !props && !closed)
        return SL_FAIL(err, REQUEST,
                       "tools[%d].function.parameters: strict: must have properties in this "
                       "model's form of calls",
                       tool);
    for (const struct json *p = props ? props->child : NULL; p; p = p->next)
        SL_TRY(put_arg(&x, p, n++));
    str_printf(out, "sl-args-%d ::= \"\"", tool);
    n = 0;
    for (const struct json *p = props ? props->child : NULL; p; p = p->next, n++)
        str_printf(out, " sl-arg-%d-%d%s", tool, n, is_required(root, p->key) ? "" : "?");
    if (!props && !closed)
        str_printf(out, " (sl-key [^<>\"\\n]+ (sl-key-end sl-value%s) \"\\n\"?)*",
                   x.typed ? " | sl-key-end-json %json-loose {} sl-value-end" : "");
    str_putc(out, '\n');
    return SL_OK;
}

void api_form_xml_tags(api *a, struct str *out, const struct api_family *family)
{
    bool lines = family->xml == API_XML_LINES;
    struct str end, none;
    str_init(&end, MEM_REQUEST, 0);
    str_init(&none, MEM_REQUEST, 0);
    api_form_tag(a, &end, api_family_tag(family, T_VALUE_END));
    str_puts(&none, api_family_tag(family, T_VALUE_END));
    if (lines) /* they end a value, too */
        str_printf(&none, "\n%s\n%s", api_family_tag(family, T_KEY),
                   api_family_tag(family, T_CALL_END));
    api_form_without(out, "sl-value", str_c(&none), true, str_c(&end));
    str_printf(out, "sl-value-end ::= %s%s\nsl-key ::= ", lines ? "\"\\n\" " : "", str_c(&end));
    api_form_tag(a, out, api_family_tag(family, T_KEY));
    str_puts(out, "\nsl-key-end ::= ");
    if (family->xml == API_XML_PAIRS) {
        api_form_tag(a, out, api_family_tag(family, T_KEY_END));
        str_puts(out, " \"\\n\"? ");
        api_form_tag(a, out, api_family_tag(family, T_VALUE));
    } else if (family->xml == API_XML_TYPED)
        str_puts(out, "\"\\\" string=\\\"true\\\">\"\n"
                      "sl-key-end-json ::= \"\\\" string=\\\"false\\\">\"");
    else
        str_puts(out, lines ? "\">\\n\"" : "\"\\\">\"");
    str_putc(out, '\n');
    api_inherit(out, &end);
    api_inherit(out, &none);
    str_fini(&end);
    str_fini(&none);
}
