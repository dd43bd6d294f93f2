/* SPDX-License-Identifier: Apache-2.0 */
/* Objects, arrays, and the parts that all schemas share. White space between tokens of JSON: none,
 * one blank, or a new line and its indent. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

#define INDENT_MAX 48

static const struct ir *pattern(struct build *b, const char *p)
{
    return grammar_pattern(b, p, strlen(p), false, false, "number");
}

static const struct ir *ws(struct build *b)
{
    return grammar_shared(b, SHARED_WS);
}

/* name ":" value */
static const struct ir *member(struct build *b, const struct ir *name, const struct ir *value)
{
    return grammar_ir_seqv(b, name, grammar_ir_litz(b, ":"), ws(b), value);
}

static const struct ir *comma(struct build *b)
{
    return grammar_ir_seqv(b, grammar_ir_litz(b, ","), ws(b), NULL, NULL);
}

/* open, then the list or nothing, close. */
static const struct ir *bracketed(struct build *b, const char *open, const struct ir *inside,
                                  const char *close)
{
    const struct ir *head = grammar_ir_seqv(b, grammar_ir_litz(b, open), ws(b), NULL, NULL);
    return grammar_ir_seqv(b, head, inside, ws(b), grammar_ir_litz(b, close));
}

/* One or more of e with commas. */
static const struct ir *listed(struct build *b, const struct ir *e, uint32_t min, uint32_t max)
{
    const struct ir *more = grammar_ir_seqv(b, comma(b), e, NULL, NULL);
    return grammar_ir_seqv(
        b, e, grammar_ir_rep(b, more, min ? min - 1 : 0, max == GRAMMAR_INF ? max : max - 1), NULL,
        NULL);
}

static const struct ir *shared_body(struct build *b, enum shared_rule which)
{
    static const struct ir_range blank[] = {{'\t', '\t'}, {' ', ' '}}, wide[] = {{0x80, 0x10ffff}};
    const struct ir *k[8];
    switch (which) {
    case SHARED_WS:
        k[0] = grammar_ir_empty(b);
        k[1] = grammar_ir_litz(b, " ");
        k[2] = grammar_ir_seqv(
            b, grammar_ir_litz(b, "\n"),
            grammar_ir_rep(b, grammar_ir_class(b, blank, 2, false, false), 0, INDENT_MAX), NULL,
            NULL);
        return grammar_ir_alt(b, k, 3);
    case SHARED_STRING:
        k[0] = grammar_ir_litz(b, "\"");
        return grammar_ir_seqv(
            b, k[0], grammar_ir_rep(b, grammar_schema_char(b, false), 0, GRAMMAR_INF), k[0], NULL);
    case SHARED_ESCAPE:
        return pattern(
            b, "\\\\(?:[\"\\\\/bfnrt]|u(?:[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7]"
               "[0-9A-Fa-f]{2}|[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}))");
    case SHARED_WIDE:
        k[0] = grammar_ir_class(b, wide, 1, false, false);
        k[1] = grammar_shared(b, SHARED_ESCAPE);
        return grammar_ir_alt(b, k, 2);
    case SHARED_NUMBER:
        return pattern(b, "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?");
    case SHARED_INTEGER:
        return pattern(b, "0|-?[1-9][0-9]{0,17}");
    case SHARED_VALUE:
        k[0] = grammar_shared(b, SHARED_OBJECT);
        k[1] = grammar_shared(b, SHARED_ARRAY);
        k[2] = grammar_shared(b, SHARED_STRING);
        k[3] = grammar_shared(b, SHARED_NUMBER);
        k[4] = grammar_ir_litz(b, "true");
        k[5] = grammar_ir_litz(b, "false");
        k[6] = grammar_ir_litz(b, "null");
        return grammar_ir_alt(b, k, 7);
    case SHARED_OBJECT:
        k[0] = member(b, grammar_shared(b, SHARED_STRING), grammar_shared(b, SHARED_VALUE));
        k[1] = bracketed(b, "{", listed(b, k[0], 1, GRAMMAR_INF), "}");
        k[0] = grammar_ir_seqv(b, grammar_ir_litz(b, "{"), ws(b), grammar_ir_litz(b, "}"), NULL);
        return grammar_ir_alt(b, k, 2);
    case SHARED_ARRAY:
        k[1] = bracketed(b, "[", listed(b, grammar_shared(b, SHARED_VALUE), 1, GRAMMAR_INF), "]");
        k[0] = grammar_ir_seqv(b, grammar_ir_litz(b, "["), ws(b), grammar_ir_litz(b, "]"), NULL);
        return grammar_ir_alt(b, k, 2);
    case SHARED_N:
        break;
    }
    return grammar_ir_never(b);
}

const struct ir *grammar_shared(struct build *b, enum shared_rule which)
{
    static const char *const name[SHARED_N] = {"white space", "string", "escape",
                                               "character",   "number", "integer",
                                               "value",       "object", "array"};
    if (!b->shared[which]) {
        int rule = grammar_rule_new(b, name[which], strlen(name[which]));
        if (rule < 0) return grammar_ir_never(b);
        b->shared[which] = rule; /* before the body, which may refer to it */
        grammar_rule_set(b, rule, shared_body(b, which));
    }
    return grammar_ir_call(b, b->shared[which]);
}

void grammar_object(struct build *b)
{
    grammar_rule_set(b, 0, grammar_shared(b, SHARED_OBJECT));
}

/* ---- objects ---- */

struct object {
    const struct json **name; /* of all members, in order */
    const struct ir **part;
    bool *must;
    size_t n;
    const struct ir *other; /* value of further members; NULL = none may follow */
};

static int by_text(const void *a, const void *b)
{
    const struct json *const *x = a, *const *y = b;
    int c = memcmp((*x)->s, (*y)->s, BASE_MIN((*x)->n, (*y)->n));
    return c ? c : (*x)->n < (*y)->n ? -1 : (*x)->n > (*y)->n;
}

/* The sorted names of "required"; *n = 0 when there are none. */
static const struct json **required(struct schema *x, const struct place *at, size_t *n)
{
    const struct json *r = text_json_get(at->v, "required");
    *n = 0;
    if (!r) return NULL;
    if (r->kind != JSON_ARRAY_K || r->n > SCHEMA_MAX_PROPERTY) {
        grammar_schema_bad(x, at, "required", "must be a list of at most 8192 names");
        return NULL;
    }
    const struct json **v = grammar_build_alloc(x->b, r->n + 1, sizeof *v);
    if (!v) return NULL;
    for (size_t i = 0; i < r->n; i++) {
        if (r->item[i]->kind != JSON_STR_K) {
            grammar_schema_bad(x, at, "required", "must hold names");
            return NULL;
        }
        v[i] = r->item[i];
    }
    qsort((void *)v, r->n, sizeof *v, by_text);
    for (size_t i = 0; i < r->n; i++)
        if (*n == 0 || by_text(&v[*n - 1], &v[i]) != 0) v[(*n)++] = v[i];
    return v;
}

static bool listed_in(const struct json **v, size_t n, const struct json *m, bool *used)
{
    struct json key = {.s = m->key, .n = m->n_key};
    const struct json *p = &key;
    const struct json **hit =
        n ? bsearch((const void *)&p, (const void *)v, n, sizeof *v, by_text) : NULL;
    if (hit) used[hit - v] = true;
    return hit != NULL;
}

static const struct ir *quoted_name(struct build *b, const char *p, size_t n)
{
    return grammar_ir_seqv(b, grammar_ir_litz(b, "\""), grammar_ir_lit_json(b, p, n),
                           grammar_ir_litz(b, "\""), NULL);
}

/* What "additionalProperties" says: NULL = no further members. */
static const struct ir *other_values(struct schema *x, const struct place *at, bool default_any)
{
    const struct json *v = text_json_get(at->v, "additionalProperties");
    const struct json *u = text_json_get(at->v, "unevaluatedProperties");
    if (!v) return default_any && !u ? grammar_shared(x->b, SHARED_VALUE) : NULL;
    if (v->kind == JSON_BOOL_K) return v->b ? grammar_shared(x->b, SHARED_VALUE) : NULL;
    struct place sub = grammar_schema_at(x, at, v, "additionalProperties", 0);
    return grammar_schema_call(x, &sub);
}

static bool gather(struct schema *x, const struct place *at, struct object *o)
{
    struct build *b = x->b;
    const struct json *props = text_json_get(at->v, "properties");
    size_t n_req = 0, n = props && props->kind == JSON_OBJECT_K ? props->n : 0;
    if (props && (props->kind != JSON_OBJECT_K || n > SCHEMA_MAX_PROPERTY)) {
        grammar_schema_bad(x, at, "properties", "must be an object of at most 8192 schemas");
        return false;
    }
    const struct json **req = required(x, at, &n_req);
    bool *used = grammar_build_alloc(b, n_req + 1, 1);
    o->name = grammar_build_alloc(b, n + n_req + 1, sizeof *o->name);
    o->part = grammar_build_alloc(b, n + n_req + 1, sizeof *o->part);
    o->must = grammar_build_alloc(b, n + n_req + 1, 1);
    o->other = other_values(x, at, !props);
    if (b->st) return false;
    struct place list = props ? grammar_schema_at(x, at, props, "properties", 0) : *at;
    for (const struct json *m = n ? props->child : NULL; m && !b->st; m = m->next) {
        struct place sub = grammar_schema_at(x, &list, m, m->key, 0);
        bool must = listed_in(req, n_req, m, used);
        if (!must && m->kind == JSON_BOOL_K && !m->b) continue; /* never there */
        o->name[o->n] = m;
        o->must[o->n] = must;
        o->part[o->n++] = member(b, quoted_name(b, m->key, m->n_key), grammar_schema_call(x, &sub));
    }
    for (size_t i = 0; i < n_req && !b->st; i++) {
        if (used[i]) continue;
        if (!o->other) {
            grammar_schema_bad(x, at, "required", "names a member that properties does not have");
            return false;
        }
        struct json *m = grammar_build_alloc(b, 1, sizeof *m);
        if (!m) return false;
        m->key = req[i]->s;
        m->n_key = (uint32_t)req[i]->n;
        o->name[o->n] = m;
        o->must[o->n] = true;
        o->part[o->n++] = member(b, quoted_name(b, m->key, m->n_key), o->other);
    }
    return !b->st;
}

const struct ir *grammar_schema_object(struct schema *x, const struct place *at)
{
    struct build *b = x->b;
    struct object o = {0};
    const struct ir *none =
        grammar_ir_seqv(b, grammar_ir_litz(b, "{"), ws(b), grammar_ir_litz(b, "}"), NULL);
    if (!gather(x, at, &o)) return grammar_ir_never(b);
    if (o.n == 0 && !o.other) return none;
    struct ir *chain = grammar_build_alloc(b, 1, sizeof *chain);
    if (!chain) return grammar_ir_never(b);
    const struct ir *close = grammar_ir_seqv(b, ws(b), grammar_ir_litz(b, "}"), NULL, NULL);
    *chain = (struct ir){.kind = IR_CHAIN,
                         .n = (uint32_t)o.n,
                         .kid = o.part,
                         .must = o.must,
                         .sep = comma(b),
                         .tail = close,
                         .tail0 = grammar_ir_litz(b, "}")};
    if (o.other) {
        const struct ir *name =
            o.n ? grammar_schema_other_key(b, o.name, o.n) : grammar_shared(b, SHARED_STRING);
        int rule = grammar_rule_new(b, at->path, strlen(at->path));
        grammar_rule_set(b, rule, member(b, name, o.other));
        const struct ir *one = grammar_ir_call(b, rule), *k[2];
        const struct ir *more = grammar_ir_seqv(b, comma(b), one, NULL, NULL);
        chain->tail =
            grammar_ir_seqv(b, grammar_ir_rep(b, more, 0, GRAMMAR_INF), close, NULL, NULL);
        k[0] = chain->tail0;
        k[1] = grammar_ir_seqv(b, listed(b, one, 1, GRAMMAR_INF), close, NULL, NULL);
        chain->tail0 = grammar_ir_alt(b, k, 2);
    }
    return grammar_ir_seqv(b, grammar_ir_litz(b, "{"), ws(b), chain, NULL);
}

/* ---- arrays ---- */

struct array {
    const struct ir *item; /* behind the prefix; NULL = none */
    const struct ir *prefix[SCHEMA_MAX_PREFIX];
    uint32_t n_prefix, min, max;
};

static bool array_parts(struct schema *x, const struct place *at, struct array *a)
{
    const struct json *items = text_json_get(at->v, "items"),
                      *pre = text_json_get(at->v, "prefixItems");
    if (!grammar_schema_count(x, at, "minItems", 0, &a->min) ||
        !grammar_schema_count(x, at, "maxItems", GRAMMAR_INF, &a->max))
        return false;
    if (pre && (pre->kind != JSON_ARRAY_K || pre->n > SCHEMA_MAX_PREFIX)) {
        grammar_schema_bad(x, at, "prefixItems", "must be a list of at most 100 schemas");
        return false;
    }
    struct place list = pre ? grammar_schema_at(x, at, pre, "prefixItems", 0) : *at;
    for (size_t i = 0; pre && i < pre->n && i < a->max; i++) {
        struct place sub = grammar_schema_at(x, &list, pre->item[i], NULL, i);
        a->prefix[a->n_prefix++] = grammar_schema_call(x, &sub);
    }
    if (items && items->kind == JSON_ARRAY_K) {
        grammar_schema_bad(x, at, "items", "a list of schemas is called prefixItems");
        return false;
    }
    if (items) {
        struct place sub = grammar_schema_at(x, at, items, "items", 0);
        bool no = items->kind == JSON_BOOL_K && !items->b;
        a->item = no ? NULL : grammar_schema_call(x, &sub);
    } else if (!pre || a->min > a->n_prefix) {
        a->item = grammar_shared(x->b, SHARED_VALUE);
    }
    return true;
}

/* From item i on, where something came before when i > 0. Recursion: over prefixItems. */
static const struct ir *array_from(struct build *b, const struct array *a, uint32_t i)
{
    const struct ir *e;
    if (i < a->n_prefix) {
        e = grammar_ir_seqv(b, i ? comma(b) : grammar_ir_empty(b), a->prefix[i],
                            array_from(b, a, i + 1), NULL);
        return i >= a->min ? grammar_ir_opt(b, e) : e;
    }
    uint32_t min = a->min > i ? a->min - i : 0, max = a->max == GRAMMAR_INF ? a->max : a->max - i;
    if (!a->item || max == 0) return min ? grammar_ir_never(b) : grammar_ir_empty(b);
    if (i) return grammar_ir_rep(b, grammar_ir_seqv(b, comma(b), a->item, NULL, NULL), min, max);
    e = listed(b, a->item, BASE_MAX(min, 1u), max);
    return min ? e : grammar_ir_opt(b, e);
}

const struct ir *grammar_schema_array(struct schema *x, const struct place *at)
{
    struct build *b = x->b;
    struct array a = {.item = NULL};
    if (!array_parts(x, at, &a)) return grammar_ir_never(b);
    if (a.min > a.max) return grammar_ir_never(b);
    return bracketed(b, "[", array_from(b, &a, 0), "]");
}
