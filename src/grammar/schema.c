/* SPDX-License-Identifier: Apache-2.0 */
/* The keywords of JSON schema: which are known, which go together, references, and the forms that
 * combine schemas. What would change the meaning and is not supported is refused by its name and
 * place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

/* What a keyword is. */
enum {
    NOTE = 1,
    REF = 2,
    VALUE = 4,
    COMBINE = 8,
    TYPE = 16,
    BAD = 32,
    DEFS = 64,
    FALSE_ONLY = 128
};
static const struct {
    const char *key;
    int what;
} keyword[] = {
    {"$schema", NOTE},
    {"$id", NOTE},
    {"$comment", NOTE},
    {"$vocabulary", NOTE},
    {"title", NOTE},
    {"description", NOTE},
    {"default", NOTE},
    {"example", NOTE},
    {"examples", NOTE},
    {"deprecated", NOTE},
    {"readOnly", NOTE},
    {"writeOnly", NOTE},
    {"contentEncoding", NOTE},
    {"contentMediaType", NOTE},
    {"strict", NOTE},
    {"discriminator", NOTE}, /* OpenAPI's help for oneOf: says nothing of its own */
    {"$defs", DEFS},
    {"definitions", DEFS},
    {"$ref", REF},
    {"enum", VALUE},
    {"const", VALUE},
    {"anyOf", COMBINE},
    {"oneOf", COMBINE},
    {"allOf", COMBINE},
    {"type", TYPE},
    {"nullable", TYPE},
    {"properties", TYPE},
    {"required", TYPE},
    {"additionalProperties", TYPE},
    {"items", TYPE},
    {"prefixItems", TYPE},
    {"minItems", TYPE},
    {"maxItems", TYPE},
    {"pattern", TYPE},
    {"format", TYPE},
    {"minLength", TYPE},
    {"maxLength", TYPE},
    {"minimum", TYPE},
    {"maximum", TYPE},
    {"exclusiveMinimum", TYPE},
    {"exclusiveMaximum", TYPE},
    {"multipleOf", TYPE},
    {"uniqueItems", FALSE_ONLY},
    {"unevaluatedProperties", FALSE_ONLY},
    {"unevaluatedItems", FALSE_ONLY},
};

static const char *tail_of(const char *path)
{
    size_t n = strlen(path);
    return n > 130 ? path + n - 130 : path;
}

void grammar_schema_bad(struct schema *x, const struct place *at, const char *key, const char *msg)
{
    grammar_build_fail(x->b, SL_REQUEST, "schema: %s%s%.60s: %s", tail_of(at->path), key ? "/" : "",
                       key ? key : "", msg);
}

struct place grammar_schema_at(struct schema *x, const struct place *at, const struct json *v,
                               const char *key, size_t i)
{
    char num[24];
    snprintf(num, sizeof num, "%zu", i);
    if (!key) key = num;
    size_t n = strlen(at->path), m = strlen(key);
    char *p = n + m < 4096 ? grammar_build_alloc(x->b, n + m + 2, 1) : NULL;
    if (!p) return (struct place){v, at->path};
    snprintf(p, n + m + 2, "%s/%s", at->path, key);
    return (struct place){v, p};
}

const struct ir *grammar_schema_call(struct schema *x, const struct place *at)
{
    struct build *b = x->b;
    uint32_t h = (uint32_t)((uintptr_t)at->v / 16) * 0x9e3779b1u >> 20;
    for (uint32_t i = x->head[h]; i; i = x->work[i - 1].next)
        if (x->work[i - 1].at.v == at->v) return grammar_ir_call(b, x->work[i - 1].rule);
    int rule = x->n_work ? grammar_rule_new(b, at->path, strlen(at->path)) : x->rule;
    if (b->st) return grammar_ir_never(b);
    b->st = grammar_grow(&x->work, &x->cap_work, (uint64_t)x->n_work + 1, sizeof *x->work, b->err);
    if (b->st) return grammar_ir_never(b);
    x->work[x->n_work++] = (struct work){*at, rule, x->head[h]};
    x->head[h] = x->n_work;
    return grammar_ir_call(b, rule);
}

bool grammar_schema_count(struct schema *x, const struct place *at, const char *key, uint32_t def,
                          uint32_t *out)
{
    const struct json *v = text_json_get(at->v, key);
    *out = def;
    if (!v) return true;
    bool whole = v->kind == JSON_INT_K || (v->kind == JSON_REAL_K && v->f >= 0 && v->f < 1e9 &&
                                           v->f == (double)(int64_t)v->f);
    if (!whole || v->f < 0) {
        grammar_schema_bad(x, at, key, "must be a whole number, 0 or more");
        return false;
    }
    if (v->f > GRAMMAR_MAX_REPEAT) {
        char msg[64];
        snprintf(msg, sizeof msg, "over the limit of %d", GRAMMAR_MAX_REPEAT);
        grammar_build_fail(x->b, SL_LIMIT, "schema: %s/%s: %s", tail_of(at->path), key, msg);
        return false;
    }
    *out = (uint32_t)v->f;
    return true;
}

/* ---- which keywords are there ---- */

static bool known(struct schema *x, const struct place *at, const struct json *m, int *what)
{
    for (int i = 0; i < BASE_COUNT_OF(keyword); i++) {
        if (strcmp(keyword[i].key, m->key) != 0) continue;
        *what |= keyword[i].what;
        if (keyword[i].what == FALSE_ONLY && (m->kind != JSON_BOOL_K || m->b)) break;
        return true;
    }
    if (strncmp(m->key, "x-", 2) == 0) return true;
    grammar_schema_bad(x, at, m->key, "this keyword is not supported");
    return false;
}

/* ---- $ref ---- */

/* One step of a JSON pointer from p to the next slash: unescaped into out. */
static size_t pointer_step(const char *p, char *out, size_t cap)
{
    size_t n = 0, i = 0;
    while (p[i] && p[i] != '/') {
        char c = p[i++];
        unsigned v = 0;
        if (c == '~' && (p[i] == '0' || p[i] == '1'))
            c = p[i++] == '0' ? '~' : '/';
        else if (c == '%' && sscanf(p + i, "%2x", &v) == 1 && p[i + 1]) {
            c = (char)v;
            i += 2;
        }
        if (n + 1 < cap) out[n++] = c;
    }
    out[n] = 0;
    return i;
}

static const struct ir *ref(struct schema *x, const struct place *at)
{
    const struct json *r = text_json_get(at->v, "$ref"), *v = x->root;
    char key[512], *path;
    if (r->kind != JSON_STR_K || r->s[0] != '#' || (r->s[1] && r->s[1] != '/')) {
        grammar_schema_bad(x, at, "$ref",
                           "only references inside the schema (#/...) are supported");
        return grammar_ir_never(x->b);
    }
    for (const char *p = r->s + 1; *p == '/' && v;) {
        p++;
        p += pointer_step(p, key, sizeof key);
        if (v->kind == JSON_ARRAY_K) {
            char *end;
            unsigned long i = strtoul(key, &end, 10);
            v = key[0] && !*end && i < v->n ? v->item[i] : NULL;
        } else {
            v = text_json_get(v, key);
        }
    }
    if (!v || (v->kind != JSON_OBJECT_K && v->kind != JSON_BOOL_K)) {
        grammar_schema_bad(x, at, "$ref", "refers to no schema");
        return grammar_ir_never(x->b);
    }
    path = grammar_build_alloc(x->b, r->n + 1, 1);
    if (!path) return grammar_ir_never(x->b);
    memcpy(path, r->s, r->n);
    return grammar_schema_call(x, &(struct place){v, path});
}

/* ---- enum, const ---- */

static bool type_fits(const struct json *v, const char *type)
{
    static const char *const name[] = {"null",   "boolean", "integer", "number",
                                       "string", "array",   "object"};
    bool whole = v->kind == JSON_INT_K || (v->kind == JSON_REAL_K && v->f == (double)(int64_t)v->f);
    return strcmp(type, name[v->kind]) == 0 || (v->kind == JSON_INT_K && !strcmp(type, "number")) ||
           (v->kind == JSON_REAL_K && whole && !strcmp(type, "integer"));
}

static bool allowed(const struct place *at, const struct json *v)
{
    const struct json *t = text_json_get(at->v, "type");
    if (!t) return true;
    if (t->kind == JSON_STR_K) return type_fits(v, t->s);
    for (size_t i = 0; t->kind == JSON_ARRAY_K && i < t->n; i++)
        if (t->item[i]->kind == JSON_STR_K && type_fits(v, t->item[i]->s)) return true;
    return false;
}

static const struct ir *constant(struct schema *x, const struct json *v)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    text_jw_node(&w, v);
    if (s.failed) grammar_build_fail(x->b, s.failed, "out of memory");
    const struct ir *e = grammar_ir_lit(x->b, str_c(&s), s.n);
    str_fini(&s);
    return e;
}

static const struct ir *values(struct schema *x, const struct place *at)
{
    static const char *const with[] = {
        "properties",       "required",         "items",     "prefixItems", "pattern",
        "format",           "minLength",        "maxLength", "minimum",     "maximum",
        "exclusiveMinimum", "exclusiveMaximum", "minItems",  "maxItems",    "multipleOf"};
    const struct json *e = text_json_get(at->v, "enum"), *c = text_json_get(at->v, "const");
    struct ir_list l = {0};
    for (int i = 0; i < BASE_COUNT_OF(with); i++)
        if (text_json_get(at->v, with[i]))
            grammar_schema_bad(x, at, with[i], "is not supported together with enum or const");
    if (e && c) grammar_schema_bad(x, at, "enum", "is not supported together with const");
    if (e && (e->kind != JSON_ARRAY_K || e->n == 0))
        grammar_schema_bad(x, at, "enum", "must be a list with at least one value");
    if (x->b->st) return grammar_ir_never(x->b);
    for (size_t i = 0; e && i < e->n; i++)
        if (allowed(at, e->item[i])) grammar_ir_list_add(x->b, &l, constant(x, e->item[i]));
    if (c && allowed(at, c)) grammar_ir_list_add(x->b, &l, constant(x, c));
    return grammar_ir_alt(x->b, l.v, l.n);
}

/* ---- anyOf, oneOf, allOf ---- */

/* The one type of a schema that says it, else NULL. */
static const char *type_of(const struct json *v)
{
    const struct json *t = text_json_get(v, "type"), *c = text_json_get(v, "const");
    static const char *const name[] = {"null",   "boolean", "number", "number",
                                       "string", "array",   "object"};
    if (t && t->kind == JSON_STR_K) return strcmp(t->s, "integer") == 0 ? "number" : t->s;
    return c ? name[c->kind] : NULL;
}

static bool same_value(const struct json *a, const struct json *b)
{
    return a->kind == JSON_STR_K && b->kind == JSON_STR_K
               ? a->n == b->n && !memcmp(a->s, b->s, a->n)
               : true; /* may be */
}

/* No value of a is one of b: only what is easily seen. */
static bool values_apart(const struct json *a, const struct json *b)
{
    const struct json *ca = text_json_get(a, "const"), *cb = text_json_get(b, "const"),
                      *ea = text_json_get(a, "enum"), *eb = text_json_get(b, "enum");
    size_t na = ca ? 1 : ea && ea->kind == JSON_ARRAY_K ? ea->n : 0;
    size_t nb = cb ? 1 : eb && eb->kind == JSON_ARRAY_K ? eb->n : 0;
    if (!na || !nb || na * nb > 10000) return false;
    for (size_t i = 0; i < na; i++)
        for (size_t k = 0; k < nb; k++)
            if (same_value(ca ? ca : ea->item[i], cb ? cb : eb->item[k])) return false;
    return true;
}

static bool requires(const struct json *v, const char *key)
{
    const struct json *r = text_json_get(v, "required");
    for (size_t i = 0; r && r->kind == JSON_ARRAY_K && i < r->n; i++)
        if (text_json_is(r->item[i], key)) return true;
    return false;
}

/* Can no value be accepted by both? Different types, different constants, or objects that differ
 * in a required constant. */
static bool apart(const struct json *a, const struct json *b)
{
    const char *ta = type_of(a), *tb = type_of(b);
    if (ta && tb && strcmp(ta, tb) != 0) return true;
    if (values_apart(a, b)) return true;
    const struct json *pa = text_json_get(a, "properties"), *pb = text_json_get(b, "properties");
    if (!pa || !pb || pa->kind != JSON_OBJECT_K || pa->n > 64) return false;
    for (const struct json *m = pa->child; m; m = m->next) {
        const struct json *o = text_json_get(pb, m->key);
        if (o && requires(a, m->key) && requires(b, m->key) && values_apart(m, o)) return true;
    }
    return false;
}

/* A $ref followed once, for looking only. */
static const struct json *behind_ref(const struct schema *x, const struct json *v)
{
    const struct json *r = text_json_get(v, "$ref");
    const struct json *d = NULL;
    if (!r || r->kind != JSON_STR_K) return v;
    if (strncmp(r->s, "#/$defs/", 8) == 0)
        d = text_json_get(text_json_get(x->root, "$defs"), r->s + 8);
    if (strncmp(r->s, "#/definitions/", 14) == 0)
        d = text_json_get(text_json_get(x->root, "definitions"), r->s + 14);
    return d ? d : v;
}

static const struct ir *choice(struct schema *x, const struct place *at, const char *key)
{
    const struct json *v = text_json_get(at->v, key);
    struct ir_list l = {0};
    if (v->kind != JSON_ARRAY_K || v->n == 0) {
        grammar_schema_bad(x, at, key, "must be a list with at least one schema");
        return grammar_ir_never(x->b);
    }
    bool one = strcmp(key, "oneOf") == 0;
    if (one && v->n > 200) grammar_schema_bad(x, at, key, "more than 200 alternatives: use anyOf");
    struct place list = grammar_schema_at(x, at, v, key, 0);
    for (size_t i = 0; i < v->n && !x->b->st; i++) {
        for (size_t k = 0; one && k < i; k++)
            if (!apart(behind_ref(x, v->item[k]), behind_ref(x, v->item[i])))
                grammar_schema_bad(x, at, key,
                                   "two alternatives may accept the same value: use anyOf");
        struct place sub = grammar_schema_at(x, &list, v->item[i], NULL, i);
        grammar_ir_list_add(x->b, &l, grammar_schema_call(x, &sub));
    }
    return grammar_ir_alt(x->b, l.v, l.n);
}

static const struct ir *combined(struct schema *x, const struct place *at, int what)
{
    const char *key = NULL;
    static const char *const keys[] = {"anyOf", "oneOf", "allOf"};
    for (int i = 0; i < 3; i++) {
        if (!text_json_get(at->v, keys[i])) continue;
        if (key) grammar_schema_bad(x, at, keys[i], "is not supported beside another combination");
        key = keys[i];
    }
    for (const struct json *m = at->v->child; m; m = m->next)
        for (int i = 0; what & (TYPE | VALUE | REF) && i < BASE_COUNT_OF(keyword); i++)
            if (keyword[i].what & (TYPE | VALUE | REF) && strcmp(keyword[i].key, m->key) == 0)
                grammar_schema_bad(x, at, m->key, "is not supported beside anyOf, oneOf or allOf");
    if (x->b->st) return grammar_ir_never(x->b);
    if (strcmp(key, "allOf") != 0) return choice(x, at, key);
    const struct json *v = text_json_get(at->v, key);
    if (v->kind != JSON_ARRAY_K || v->n != 1) {
        grammar_schema_bad(x, at, key, "is supported with one schema only");
        return grammar_ir_never(x->b);
    }
    return choice(x, at, key);
}

/* ---- types ---- */

static const struct ir *one_type(struct schema *x, const struct place *at, const char *t)
{
    const struct ir *yes_no[2] = {grammar_ir_litz(x->b, "true"), grammar_ir_litz(x->b, "false")};
    if (strcmp(t, "object") == 0) return grammar_schema_object(x, at);
    if (strcmp(t, "array") == 0) return grammar_schema_array(x, at);
    if (strcmp(t, "string") == 0) return grammar_schema_string(x, at);
    if (strcmp(t, "number") == 0) return grammar_schema_number(x, at, false);
    if (strcmp(t, "integer") == 0) return grammar_schema_number(x, at, true);
    if (strcmp(t, "boolean") == 0) return grammar_ir_alt(x->b, yes_no, 2);
    if (strcmp(t, "null") == 0) return grammar_ir_litz(x->b, "null");
    grammar_schema_bad(x, at, "type", "not a type of JSON");
    return grammar_ir_never(x->b);
}

/* The type that the keywords speak of when there is no "type". */
static const char *implied(const struct json *v)
{
    static const struct {
        const char *key, *type;
    } row[] = {{"properties", "object"},
               {"required", "object"},
               {"additionalProperties", "object"},
               {"items", "array"},
               {"prefixItems", "array"},
               {"minItems", "array"},
               {"maxItems", "array"},
               {"pattern", "string"},
               {"format", "string"},
               {"minLength", "string"},
               {"maxLength", "string"},
               {"minimum", "number"},
               {"maximum", "number"},
               {"exclusiveMinimum", "number"},
               {"exclusiveMaximum", "number"},
               {"multipleOf", "number"}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (text_json_get(v, row[i].key)) return row[i].type;
    return NULL;
}

static const struct ir *typed(struct schema *x, const struct place *at)
{
    const struct json *t = text_json_get(at->v, "type"), *nul = text_json_get(at->v, "nullable");
    struct ir_list l = {0};
    const char *guess = implied(at->v);
    if (!t && !guess) return grammar_shared(x->b, SHARED_VALUE);
    if (!t) {
        grammar_ir_list_add(x->b, &l, one_type(x, at, guess));
    } else if (t->kind == JSON_STR_K) {
        grammar_ir_list_add(x->b, &l, one_type(x, at, t->s));
    } else if (t->kind == JSON_ARRAY_K && t->n > 0 && t->n <= 7) {
        for (size_t i = 0; i < t->n; i++)
            if (t->item[i]->kind == JSON_STR_K)
                grammar_ir_list_add(x->b, &l, one_type(x, at, t->item[i]->s));
            else
                grammar_schema_bad(x, at, "type", "must hold names of types");
    } else {
        grammar_schema_bad(x, at, "type", "must be a type's name or a list of them");
    }
    if (nul && nul->kind == JSON_BOOL_K && nul->b)
        grammar_ir_list_add(x->b, &l, grammar_ir_litz(x->b, "null"));
    return grammar_ir_alt(x->b, l.v, l.n);
}

static const struct ir *body(struct schema *x, const struct place *at)
{
    int what = 0;
    if (at->v->kind == JSON_BOOL_K)
        return at->v->b ? grammar_shared(x->b, SHARED_VALUE) : grammar_ir_never(x->b);
    if (at->v->kind != JSON_OBJECT_K) {
        grammar_schema_bad(x, at, NULL, "a schema must be an object, true or false");
        return grammar_ir_never(x->b);
    }
    for (const struct json *m = at->v->child; m; m = m->next)
        if (!known(x, at, m, &what)) return grammar_ir_never(x->b);
    if (what & COMBINE) return combined(x, at, what);
    if (what & REF) {
        if (what & (TYPE | VALUE))
            grammar_schema_bad(x, at, "$ref", "is not supported beside keywords that constrain");
        return ref(x, at);
    }
    if (what & VALUE) return values(x, at);
    return typed(x, at);
}

/* Any value of the types that the schema names; any object where it names none. */
static const struct ir *any_of_type(struct build *b, const struct json *root)
{
    static const struct {
        const char *type;
        enum shared_rule rule;
    } row[] = {{"object", SHARED_OBJECT},
               {"array", SHARED_ARRAY},
               {"string", SHARED_STRING},
               {"number", SHARED_NUMBER},
               {"integer", SHARED_INTEGER}};
    const struct json *t = text_json_get(root, "type");
    struct ir_list l = {0};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        bool has = t && text_json_is(t, row[i].type);
        for (size_t k = 0; t && t->kind == JSON_ARRAY_K && k < t->n; k++)
            has |= text_json_is(t->item[k], row[i].type);
        if (has) grammar_ir_list_add(b, &l, grammar_shared(b, row[i].rule));
    }
    if (!l.n) return grammar_shared(b, t ? SHARED_VALUE : SHARED_OBJECT);
    return grammar_ir_alt(b, l.v, l.n);
}

void grammar_schema(struct build *b, const char *p, size_t n, int rule, bool loose)
{
    struct schema *x = grammar_build_alloc(b, 1, sizeof *x);
    sl_err err = {0};
    if (!x) return;
    x->b = b;
    x->rule = rule;
    sl_status st = text_json_parse(&b->a, "schema", p, n, &x->root, &err);
    if (st) {
        grammar_build_fail(b, st == SL_FORMAT ? SL_REQUEST : st, "%s", err.text);
        b->wrong = true;
        return;
    }
    x->number = -1;
    x->level = loose ? LOOSE_ANY : LOOSE_STRICT;
    if (loose && b->loose->n < LOOSE_MAX) {
        x->number = b->loose->n++;
        b->loose->rule[x->number] = rule;
        x->level = b->loose->level[x->number];
    }
    if (x->level == LOOSE_ANY) {
        str_puts(&b->loose->note, b->loose->note.n ? ", #" : "#");
        grammar_rule_set(b, rule, any_of_type(b, x->root));
        return;
    }
    (void)grammar_schema_call(x, &(struct place){x->root, "#"});
    while (x->n_done < x->n_work && !b->st) {
        struct work w = x->work[x->n_done++];
        grammar_rule_set(b, w.rule, body(x, &w.at));
    }
    if (b->st) b->loose->failed = x->number;
    mem_free(x->work);
}
