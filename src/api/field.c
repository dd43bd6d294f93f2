/* SPDX-License-Identifier: Apache-2.0 */
/* The table of request fields, and the checks that read a body by it. */
#include "api/field.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define C API_CHAT
#define T API_TEXT
#define R API_RESPONSES
#define E API_EMBED
#define I API_TOKENIZE
#define X API_DETOKENIZE
#define ROW(routes, name, type, min, max, what, note)                                              \
    {routes, #name, API_##type, min, max, API_##what, note, NULL},
/* the note of a row, and the code that may come after it */
#define NOTE(note, ...) note
#define CODE(note, code, ...) code
#define M(name, type, min, max, what, ...)                                                         \
    {API_MESSAGES, #name, API_##type, min, max, API_##what, NOTE(__VA_ARGS__, ""),                 \
     CODE(__VA_ARGS__, NULL, NULL)},
/* clang-format off */
static const struct api_field table[] = {
    API_FIELD_LIST(ROW)
    API_FIELD_MESSAGES(M)
    API_FIELD_TOKENS(ROW)
};
/* clang-format on */
#undef M
#undef NOTE
#undef CODE
#undef ROW
#undef C
#undef T
#undef R
#undef E
#undef I
#undef X

const struct api_field *api_field_table(int *n)
{
    *n = BASE_COUNT_OF(table);
    return table;
}

static const struct api_field *find(const char *name, int route)
{
    for (int i = 0; i < BASE_COUNT_OF(table); i++)
        if (table[i].routes & route && strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

const struct api_field *api_field_refused(const char *text, int route)
{
    for (int i = 0; i < BASE_COUNT_OF(table); i++) {
        size_t n = strlen(table[i].name);
        if (table[i].code && table[i].routes & route && strncmp(text, table[i].name, n) == 0 &&
            text[n] == ':')
            return &table[i];
    }
    return NULL;
}

/* Does a value of a field that is refused mean nothing? */
static bool is_neutral(const struct api_field *f, const struct json *v)
{
    if (f->type == API_ANY && f->min == 1) return v->kind == JSON_NULL_K;
    switch (v->kind) {
    case JSON_NULL_K:
        return true;
    case JSON_BOOL_K:
        return v->b == (f->type == API_BOOL && f->min == 1);
    case JSON_STR_K:
    case JSON_ARRAY_K:
        return v->n == 0;
    case JSON_OBJECT_K: /* {} turns web_search_options on */
        return f->type == API_OBJ && v->n == 0;
    case JSON_INT_K:
    case JSON_REAL_K:
        return (f->type == API_INT || f->type == API_REAL) && v->f >= f->min && v->f <= f->max;
    }
    return false;
}

static sl_status check_number(const struct api_field *f, const struct json *v, sl_err *err)
{
    bool whole = v->kind == JSON_INT_K ||
                 (v->kind == JSON_REAL_K &&
                  (v->b || (v->f > -9e15 && v->f < 9e15 && v->f == (double)(int64_t)v->f)));
    if (v->kind != JSON_INT_K && v->kind != JSON_REAL_K)
        return SL_FAIL(err, REQUEST, "%s: %s: must be a number", f->name,
                       text_json_kind_text(v->kind));
    if (f->type == API_INT && !whole)
        return SL_FAIL(err, REQUEST, "%s: %.17g: must be an integer", f->name, v->f);
    if (!(v->f >= f->min && v->f <= f->max)) /* also NaN */
        return SL_FAIL(err, REQUEST, "%s: %.17g: must be from %.17g to %.17g", f->name, v->f,
                       f->min, f->max);
    return SL_OK;
}

static sl_status check(const struct api_field *f, const struct json *v, sl_err *err)
{
    if (v->kind == JSON_NULL_K || f->what == API_SKIP) return SL_OK;
    if (f->what == API_DENY) {
        if (is_neutral(f, v)) return SL_OK;
        return SL_FAIL(err, REQUEST, "%s: not supported: %s", f->name, f->note);
    }
    switch (f->type) {
    case API_BOOL:
        if (v->kind == JSON_BOOL_K) return SL_OK;
        return SL_FAIL(err, REQUEST, "%s: %s: must be true or false", f->name,
                       text_json_kind_text(v->kind));
    case API_INT:
    case API_REAL:
        return check_number(f, v, err);
    case API_STR:
        if (v->kind != JSON_STR_K)
            return SL_FAIL(err, REQUEST, "%s: %s: must be a string", f->name,
                           text_json_kind_text(v->kind));
        if ((double)v->n > f->max || memchr(v->s, 0, v->n))
            return SL_FAIL(err, REQUEST, "%s: must be at most %.0f bytes without NUL", f->name,
                           f->max);
        return SL_OK;
    case API_OBJ:
        if (v->kind == JSON_OBJECT_K) return SL_OK;
        return SL_FAIL(err, REQUEST, "%s: %s: must be an object", f->name,
                       text_json_kind_text(v->kind));
    case API_ANY:
        break;
    }
    return SL_OK;
}

bool api_field_empty(const struct json *v)
{
    switch (v->kind) {
    case JSON_NULL_K:
        return true;
    case JSON_BOOL_K:
        return !v->b;
    case JSON_STR_K:
    case JSON_ARRAY_K:
    case JSON_OBJECT_K:
        return v->n == 0;
    default:
        return false;
    }
}

bool api_name_in(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = names; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && memcmp(p, name, n) == 0) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

void api_field_name(struct str *out, const char *name)
{
    for (int i = 0; i < 60 && name[i]; i++) {
        bool plain = isalnum((unsigned char)name[i]) || strchr("_.-", name[i]);
        str_putc(out, plain ? name[i] : '?');
    }
}

/* A member that is not known: of the object at path, which may be empty. */
static sl_status no_such(const char *path, const char *name, sl_err *err)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    api_field_name(&s, name);
    sl_status st = str_status(&s, err);
    if (!st)
        st = SL_FAIL(err, REQUEST, "%s%s%s: there is no such field here", path, *path ? "." : "",
                     str_c(&s));
    str_fini(&s);
    return st;
}

sl_status api_members_check(const struct json *o, const char *path, const char *names, sl_err *err)
{
    if (!o || o->kind != JSON_OBJECT_K) return SL_OK;
    for (const struct json *v = o->child; v; v = v->next)
        if (!api_field_empty(v) && !api_name_in(names, v->key)) return no_such(path, v->key, err);
    return SL_OK;
}

sl_status api_fields_check(const struct json *body, int route, struct str *unknown, sl_err *err)
{
    if (body->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "the body is %s: must be a JSON object",
                       text_json_kind_text(body->kind));
    if (route & API_TOKENIZE && api_field(body, "messages")) route |= API_CHAT;
    for (const struct json *v = body->child; v; v = v->next) {
        const struct api_field *f = find(v->key, route);
        if (f) {
            SL_TRY(check(f, v, err));
            continue;
        }
        if (v->kind == JSON_NULL_K) continue;
        if (!unknown) return no_such("", v->key, err);
        if (unknown->n) str_puts(unknown, ", ");
        api_field_name(unknown, v->key);
    }
    return SL_OK;
}

const struct json *api_field(const struct json *body, const char *name)
{
    const struct json *v = text_json_get(body, name);
    return v && v->kind != JSON_NULL_K ? v : NULL;
}

void api_fields_put(struct json_w *w, const struct json *body, const char *const *name, int n)
{
    for (int i = 0; i < n; i++) {
        const struct json *v = api_field(body, name[i]);
        if (!v) continue;
        text_jw_key(w, name[i]);
        text_jw_node(w, v);
    }
}

static const char *what_of(enum json_kind kind)
{
    switch (kind) {
    case JSON_BOOL_K:
        return "true or false";
    case JSON_INT_K:
    case JSON_REAL_K:
        return "a number";
    case JSON_STR_K:
        return "a string";
    case JSON_ARRAY_K:
        return "a list";
    case JSON_OBJECT_K:
    case JSON_NULL_K:
        break;
    }
    return "an object";
}

sl_status api_field_kind(const struct json *o, const char *path, const char *name,
                         enum json_kind kind, sl_err *err)
{
    const struct json *v = api_field(o, name);
    if (!v || v->kind == kind) return SL_OK;
    return SL_FAIL(err, REQUEST, "%s%s%s: must be %s", path, *path ? "." : "", name, what_of(kind));
}

int64_t api_field_int(const struct json *body, const char *name, int64_t def)
{
    const struct json *v = api_field(body, name);
    if (!v) return def;
    return v->kind == JSON_INT_K || v->b ? v->i : (int64_t)v->f;
}

double api_field_real(const struct json *body, const char *name, double def)
{
    const struct json *v = api_field(body, name);
    return v ? v->f : def;
}

bool api_field_bool(const struct json *body, const char *name, bool def)
{
    const struct json *v = api_field(body, name);
    return v && v->kind == JSON_BOOL_K ? v->b : def;
}

const char *api_field_str(const struct json *body, const char *name, const char *def)
{
    const struct json *v = api_field(body, name);
    return v && v->kind == JSON_STR_K ? v->s : def;
}

static const char *type_text(const struct api_field *f, char *buf, size_t n)
{
    switch (f->type) {
    case API_BOOL:
        return "boolean";
    case API_INT:
        snprintf(buf, n, "integer");
        break;
    case API_REAL:
        snprintf(buf, n, "number");
        break;
    case API_STR:
        return "string";
    case API_OBJ:
        return "object";
    case API_ANY:
        return "";
    }
    if (f->max < 1e15 && f->what != API_DENY) {
        size_t k = strlen(buf);
        snprintf(buf + k, n - k, " %.10g to %.10g", f->min, f->max);
    }
    return buf;
}

static const char *const what_text[] = {"honoured", "ignored", "refused"};

/* The rows of the routes first .. last, each of which has a column. */
static void print_rows(struct str *out, int first, int last)
{
    char buf[80];
    for (int i = 0; i < BASE_COUNT_OF(table); i++) {
        const struct api_field *f = &table[i];
        if (f->routes < first || f->routes >= 2 * last) continue;
        str_printf(out, "| `%s` |", f->name);
        for (int r = first; r <= last; r *= 2)
            str_printf(out, " %s |", f->routes & r ? what_text[f->what] : "");
        str_printf(out, " %s | %s |\n", type_text(f, buf, sizeof buf), f->note);
    }
}

void api_fields_print(struct str *out)
{
    str_puts(out, "| field | chat | completions | responses | embeddings | type | |\n"
                  "|---|---|---|---|---|---|---|\n");
    print_rows(out, API_CHAT, API_EMBED);
}

void api_fields_print_tokens(struct str *out)
{
    str_puts(out, "| field | tokenize | detokenize | type | |\n|---|---|---|---|---|\n");
    print_rows(out, API_TOKENIZE, API_DETOKENIZE);
}

void api_fields_print_messages(struct str *out)
{
    str_puts(out, "| field | | type | |\n|---|---|---|---|\n");
    print_rows(out, API_MESSAGES, API_MESSAGES);
}
