/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of schemas and their rules. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"
#include "text/keys.h"

#define COUNT_MAX INT32_MAX
#define COUNT_LOOSE 256 /* larger ones are no bounds at level LOOSE_SMALL */
#define SET_MAX 256     /* schemas that a value must match at once */
#define STEPS 400000

static const char *tail_of(const char *path)
{
    size_t n = strlen(path);
    return n > 130 ? path + n - 130 : path;
}

static void refuse(struct schema *x, const struct place *at, const char *key, const char *msg)
{
    grammar_build_fail(x->b, SL_REQUEST, "schema: %s%s%.60s: %s", tail_of(at->path), key ? "/" : "",
                       key ? key : "", msg);
}

void grammar_schema_wrong(struct schema *x, const struct place *at, const char *key,
                          const char *msg)
{
    if (!x->b->st) x->b->wrong = true;
    refuse(x, at, key, msg);
}

static void note(struct schema *x, const struct place *at, const char *key)
{
    struct str *s = &x->b->loose->note;
    char text[240];
    snprintf(text, sizeof text, "%s%s%.60s", tail_of(at->path), key ? "/" : "", key ? key : "");
    if (s->n > 2000 || (s->n && strstr(str_c(s), text))) return;
    str_printf(s, "%s%s", s->n ? ", " : "", text);
}

void grammar_schema_cannot(struct schema *x, const struct place *at, const char *key,
                           const char *msg)
{
    if (x->level == LOOSE_STRICT)
        refuse(x, at, key, msg);
    else
        note(x, at, key);
}

bool grammar_schema_forgive(struct schema *x, const struct place *at, const char *key)
{
    struct build *b = x->b;
    if (x->level == LOOSE_STRICT || b->wrong || (b->st != SL_REQUEST && b->st != SL_LIMIT))
        return false;
    b->st = SL_OK;
    note(x, at, key);
    return true;
}

struct place grammar_schema_at(struct schema *x, const struct place *at, const struct json *v,
                               const char *key, size_t i)
{
    size_t n = strlen(at->path) + (key ? strlen(key) : 0) + 24;
    char *p = grammar_build_alloc(x->b, n, 1);
    if (p && key) snprintf(p, n, "%s/%s", at->path, key);
    if (p && !key) snprintf(p, n, "%s/%zu", at->path, i);
    return (struct place){v, p ? p : "#"};
}

bool grammar_schema_count(struct schema *x, const struct place *at, const char *key, uint32_t def,
                          uint32_t *out)
{
    const struct json *v = text_json_get(at->v, key);
    *out = def;
    if (!v) return true;
    bool number = v->kind == JSON_INT_K || v->kind == JSON_REAL_K;
    if (!number || v->f < 0 || (v->f < 1e15 && v->f != (double)(int64_t)v->f)) {
        grammar_schema_wrong(x, at, key, "must be a whole number, 0 or more");
        return false;
    }
    if (x->level == LOOSE_SMALL && v->f > COUNT_LOOSE) {
        note(x, at, key);
        return true;
    }
    *out = v->f > COUNT_MAX ? COUNT_MAX : (uint32_t)v->f;
    if (v->f > COUNT_MAX && strncmp(key, "max", 3) == 0) *out = GRAMMAR_INF;
    if (v->f > COUNT_MAX && strncmp(key, "max", 3) != 0)
        grammar_schema_cannot(x, at, key, "over the limit of 2147483647");
    return true;
}

/* ---- sets ---- */

static int by_schema(const void *p, const void *q)
{
    const struct one *a = p, *b = q;
    if (a->at.v != b->at.v) return (uintptr_t)a->at.v < (uintptr_t)b->at.v ? -1 : 1;
    return (int)a->sense - (int)b->sense;
}

/* Does it say nothing but "$ref"? */
static bool only_ref(const struct schema *x, const struct json *v)
{
    static const char *const note[] = {"title",    "description", "default",
                                       "examples", "$comment",    "deprecated",
                                       "$defs",    "definitions", "$schema"};
    if (v->kind != JSON_OBJECT_K || !text_json_get(v, "$ref")) return false;
    for (const struct json *m = v->child; m && !x->old_ref; m = m->next) {
        bool is = strcmp(m->key, "$ref") == 0;
        for (int i = 0; i < BASE_COUNT_OF(note) && !is; i++)
            is = strcmp(m->key, note[i]) == 0;
        if (!is) return false;
    }
    return true;
}

struct all grammar_schema_all(struct schema *x, struct one *one, uint32_t n)
{
    struct all a = {one, 0, false};
    if (n > SET_MAX) {
        grammar_build_fail(x->b, SL_LIMIT, "schema: %s: more than %d schemas at once",
                           tail_of(one[0].at.path), SET_MAX);
        return (struct all){NULL, 0, true};
    }
    for (uint32_t i = 0; i < n && !a.never; i++) {
        struct one o = one[i];
        int hop = 0;
        for (; only_ref(x, o.at.v) && hop < 64; hop++)
            if (!grammar_schema_ref(x, &o.at, &o.at)) break;
        if (x->b->st) return (struct all){NULL, 0, true};
        if (hop == 64) a.never = true; /* it refers to itself */
        if (o.at.v->kind == JSON_BOOL_K) {
            a.never |= o.at.v->b == (o.sense == NOT);
            continue;
        }
        if (o.at.v->kind != JSON_OBJECT_K) {
            grammar_schema_wrong(x, &o.at, NULL, "a schema must be an object, true or false");
            return (struct all){NULL, 0, true};
        }
        if (o.at.v->n == 0 && o.sense == NOT) a.never = true;
        if (o.at.v->n) one[a.n++] = o;
    }
    if (a.n > 1) qsort(one, a.n, sizeof *one, by_schema);
    uint32_t k = 0;
    for (uint32_t i = 0; i < a.n; i++) {
        if (k && one[k - 1].at.v == one[i].at.v) {
            a.never |= one[k - 1].sense != one[i].sense;
            if (one[k - 1].sense == one[i].sense) continue;
        }
        one[k++] = one[i];
    }
    a.n = k;
    return a;
}

static bool same_set(const struct all *a, const struct all *b)
{
    if (a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (by_schema(&a->one[i], &b->one[i]) != 0) return false;
    return true;
}

const struct ir *grammar_schema_call(struct schema *x, const struct all *all)
{
    struct build *b = x->b;
    uint64_t h = all->n;
    if (all->never || b->st) return grammar_ir_never(b);
    if (all->n == 0) return grammar_shared(b, SHARED_VALUE);
    for (uint32_t i = 0; i < all->n; i++)
        h = (h ^ (uintptr_t)all->one[i].at.v ^ (uint64_t)all->one[i].sense) * 0x9e3779b97f4a7c15u;
    h = h >> 40 & 4095;
    for (uint32_t i = x->head[h]; i; i = x->work[i - 1].next)
        if (same_set(&x->work[i - 1].all, all)) return grammar_ir_call(b, x->work[i - 1].rule);
    b->st = grammar_grow(&x->work, &x->cap_work, (uint64_t)x->n_work + 1, sizeof *x->work, b->err);
    if (b->st) return grammar_ir_never(b);
    const char *path = all->one[0].at.path;
    int rule = x->n_work ? grammar_rule_new(b, path, strlen(path)) : x->rule;
    if (rule < 0) return grammar_ir_never(b);
    x->work[x->n_work] = (struct work){*all, rule, x->head[h]};
    x->head[h] = ++x->n_work;
    return grammar_ir_call(b, rule);
}

/* ---- from facts to text ---- */

/* The values that enum and const name, as far as all else allows them. */
static const struct ir *values(struct schema *x, const struct facts *f)
{
    struct ir_list l = {0};
    const struct json *v = f->value->v;
    bool list = f->value->neg; /* an enum */
    for (const struct json *e = list ? v->child : v; e && !x->b->st; e = list ? e->next : NULL) {
        if (!(grammar_json_types(e) & f->types)) continue;
        enum holds h = grammar_schema_facts_hold(x, f, e, true);
        if (h == UNSURE)
            grammar_schema_cannot(x, &f->value->at, list ? "enum" : "const",
                                  "is not supported together with the keywords beside it");
        if (h != NO) grammar_ir_list_add(x->b, &l, grammar_json_value(x->b, e));
    }
    return grammar_ir_alt(x->b, l.v, l.n);
}

static void typed(struct schema *x, const struct place *at, struct facts *f, struct ir_list *l)
{
    struct build *b = x->b;
    unsigned t = f->types & f->implied;
    bool yes = true, no = true;
    f->types = t;
    for (const struct fact *e = f->except; e;
         e = e->next) /* true, false, null that are not wanted */
        for (const struct json *v = e->neg ? e->v->child : e->v; v; v = e->neg ? v->next : NULL) {
            if (v->kind == JSON_NULL_K) t &= ~(unsigned)T_NULL;
            if (v->kind == JSON_BOOL_K) *(v->b ? &yes : &no) = false;
            if ((v->kind == JSON_ARRAY_K && t & T_ARR) || (v->kind == JSON_OBJECT_K && t & T_OBJ))
                grammar_schema_cannot(x, &e->at, NULL, "not: a list or an object as a value");
        }
    if (t & T_OBJ) grammar_ir_list_add(b, l, grammar_schema_object(x, at, f));
    if (t & T_ARR) grammar_ir_list_add(b, l, grammar_schema_array(x, at, f));
    if (t & T_STR) grammar_ir_list_add(b, l, grammar_schema_string(x, at, f));
    if (t & T_NUM) grammar_ir_list_add(b, l, grammar_schema_number(x, at, f));
    if (t & T_BOOL && yes) grammar_ir_list_add(b, l, grammar_ir_litz(b, "true"));
    if (t & T_BOOL && no) grammar_ir_list_add(b, l, grammar_ir_litz(b, "false"));
    if (t & T_NULL) grammar_ir_list_add(b, l, grammar_ir_litz(b, "null"));
}

static const struct ir *any_of_type(struct build *b, const struct json *v, enum shared_rule def);

static const struct ir *body(struct schema *x, const struct all *all)
{
    struct ir_list l = {0};
    struct opened o = {0};
    grammar_schema_open(x, all, &o);
    if (x->b->st && grammar_schema_forgive(x, &all->one[0].at, NULL)) { /* too many choices */
        mem_free(o.v);
        return any_of_type(x->b, all->one[0].at.v, SHARED_VALUE);
    }
    for (uint32_t i = 0; i < o.n && !x->b->st; i++) {
        struct facts *f = &o.v[i];
        if (f->call)
            grammar_ir_list_add(x->b, &l, grammar_schema_call(x, f->call));
        else if (f->value)
            grammar_ir_list_add(x->b, &l, values(x, f));
        else if (!f->any)
            grammar_ir_list_add(x->b, &l, grammar_shared(x->b, SHARED_VALUE));
        else
            typed(x, &all->one[0].at, f, &l);
    }
    mem_free(o.v);
    return grammar_ir_alt(x->b, l.v, l.n);
}

/* Any value of the types that the schema names; def where it names none. */
static const struct ir *any_of_type(struct build *b, const struct json *v, enum shared_rule def)
{
    static const struct {
        const char *type;
        enum shared_rule rule;
    } row[] = {{"object", SHARED_OBJECT},
               {"array", SHARED_ARRAY},
               {"string", SHARED_STRING},
               {"number", SHARED_NUMBER},
               {"integer", SHARED_INTEGER}};
    const struct json *t = text_json_get(v, "type");
    struct ir_list l = {0};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        bool has = t && text_json_is(t, row[i].type);
        for (size_t k = 0; t && t->kind == JSON_ARRAY_K && k < t->n; k++)
            has |= text_json_is(t->item[k], row[i].type);
        if (has) grammar_ir_list_add(b, &l, grammar_shared(b, row[i].rule));
    }
    if (!l.n) return grammar_shared(b, t ? SHARED_VALUE : def);
    return grammar_ir_alt(b, l.v, l.n);
}

/* Members of null go, and schemas of null allow anything: programs write "required": null for what
 * they do not have, and no keyword but const means anything by it. names: v's members are names. v
 * is this builder's own copy. */
static void drop_nulls(const struct json *v, bool names)
{
    static const char values[] = "const|enum|default|example|examples",
                      maps[] = "properties|patternProperties|$defs|definitions|dependentSchemas";
    struct json *last = NULL, *o = (struct json *)v;
    bool keys = v->kind == JSON_OBJECT_K && !names;
    if (v->kind != JSON_OBJECT_K && v->kind != JSON_ARRAY_K) return;
    for (const struct json *next, *m = v->child; m; m = next) {
        struct json *own = (struct json *)m;
        next = m->next;
        if (keys && m->kind == JSON_NULL_K && strcmp(m->key, "const") != 0) {
            *(last ? &last->next : &o->child) = next;
            o->n--;
            continue;
        }
        if (names && m->kind == JSON_NULL_K) own->kind = JSON_BOOL_K, own->b = true;
        last = own;
        if (!keys || !text_key_fits(values, m->key))
            drop_nulls(m, keys && text_key_fits(maps, m->key));
    }
}

static bool read_root(struct schema *x, const char *p, size_t n)
{
    struct build *b = x->b;
    sl_err err = {0};
    sl_status st = text_json_parse(&b->a, "schema", p, n, &x->root, &err);
    if (st) {
        grammar_build_fail(b, st == SL_FORMAT ? SL_REQUEST : st, "%s", err.text);
        b->wrong = st == SL_FORMAT;
        return false;
    }
    if (x->level != LOOSE_STRICT) drop_nulls(x->root, false);
    const struct json *draft = text_json_get(x->root, "$schema");
    x->old_ref = draft && draft->kind == JSON_STR_K && strstr(draft->s, "/draft-0");
    return true;
}

void grammar_schema(struct build *b, const char *p, size_t n, int rule, bool loose)
{
    struct schema *x = grammar_build_alloc(b, 1, sizeof *x);
    if (!x) return;
    x->b = b;
    x->rule = rule;
    x->number = -1;
    x->left = STEPS;
    x->level = loose ? LOOSE_ANY : LOOSE_STRICT;
    if (loose && b->loose->n < LOOSE_MAX) {
        x->number = b->loose->n++;
        b->loose->rule[x->number] = rule;
        x->level = b->loose->level[x->number];
    }
    if (!read_root(x, p, n)) return;
    if (x->level == LOOSE_ANY) {
        note(x, &(struct place){x->root, "#"}, NULL);
        grammar_rule_set(b, rule, any_of_type(b, x->root, SHARED_OBJECT));
        return;
    }
    grammar_schema_index(x);
    struct one *root = grammar_build_alloc(b, 1, sizeof *root);
    if (root) {
        *root = (struct one){{x->root, "#"}, IS};
        struct all all = grammar_schema_all(x, root, 1);
        const struct ir *call = grammar_schema_call(x, &all);
        if (!x->n_work) grammar_rule_set(b, rule, call);
    }
    while (x->n_done < x->n_work && !b->st) {
        struct work w = x->work[x->n_done++];
        grammar_rule_set(b, w.rule, body(x, &w.all));
    }
    if (b->st) b->loose->failed = x->number;
    mem_free(x->work);
    mem_free(x->res);
}
