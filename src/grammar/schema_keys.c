/* SPDX-License-Identifier: Apache-2.0 */
/* The keywords of all drafts from 4 to 2020-12: what each says of a value, and what it says when it
 * must not hold. What is not in the table is an annotation and read over, as validators do. */
#include "grammar/schema_keys.h"

#include <string.h>

typedef bool (*key_fn)(struct schema *x, struct facts *f, const struct fact *l, bool neg);

static bool is_number(const struct json *v)
{
    return v->kind == JSON_INT_K || v->kind == JSON_REAL_K;
}

static bool need(struct schema *x, const struct fact *l, bool ok, const char *msg)
{
    if (!ok) grammar_schema_wrong(x, &l->at, l->v->key, msg);
    return ok;
}

static bool never_not(struct schema *x, const struct fact *l)
{
    grammar_schema_cannot(x, &l->at, l->v->key, "is not supported inside of not");
    return true;
}

/* ---- types and values ---- */

static unsigned type_bits(const char *z)
{
    static const struct {
        const char *z;
        unsigned t;
    } row[] = {{"null", T_NULL},  {"boolean", T_BOOL}, {"integer", T_INT}, {"number", T_NUM},
               {"string", T_STR}, {"array", T_ARR},    {"object", T_OBJ},  {"any", T_ALL}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (strcmp(row[i].z, z) == 0) return row[i].t;
    return 0;
}

static bool key_type(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    const struct json *v = l->v, *nul = text_json_get(l->at.v, "nullable");
    unsigned t = 0;
    if (!need(x, l, v->kind == JSON_STR_K || (v->kind == JSON_ARRAY_K && v->n),
              "must be a type's name or a list of them"))
        return false;
    for (size_t i = 0; i < (v->kind == JSON_ARRAY_K ? v->n : 1); i++) {
        const struct json *e = v->kind == JSON_ARRAY_K ? v->item[i] : v;
        if (!need(x, l, e->kind == JSON_STR_K, "must hold names of types")) return false;
        unsigned bits = type_bits(e->s);
        if (!need(x, l, bits != 0, "not a type of JSON")) return false;
        t |= bits;
    }
    if (nul && nul->kind == JSON_BOOL_K && nul->b) t |= T_NULL;
    f->types &= neg ? ~t : t;
    f->typed = true;
    return true;
}

static bool key_enum(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!need(x, l, l->v->kind == JSON_ARRAY_K && l->v->n,
              "must be a list with at least one value"))
        return false;
    struct fact e = *l;
    e.neg = true; /* a list */
    grammar_schema_say(x, neg ? &f->except : &f->value, &e);
    return true;
}

static bool key_const(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    struct fact e = *l;
    e.neg = false;
    grammar_schema_say(x, neg ? &f->except : &f->value, &e);
    return true;
}

bool grammar_value_in(const struct fact *list, const struct json *v)
{
    for (const struct json *e = list->neg ? list->v->child : list->v; e;
         e = list->neg ? e->next : NULL)
        if (grammar_json_same(e, v)) return true;
    return false;
}

/* ---- numbers ---- */

static void bound(struct limits *m, const struct json *v, bool open, bool upper)
{
    const struct json **old = upper ? &m->hi : &m->lo;
    bool *old_open = upper ? &m->hi_open : &m->lo_open;
    if (*old && (upper ? (*old)->f < v->f : (*old)->f > v->f)) return;
    *old_open = *old && (*old)->f == v->f ? *old_open || open : open;
    *old = v;
}

/* minimum, maximum, and those without the bound itself, which draft 4 says with a bool. */
static bool key_bound(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    const char *key = l->v->key;
    bool open = key[0] == 'e',
         upper = strcmp(open ? key + 9 : key, open ? "Maximum" : "maximum") == 0;
    if (open && l->v->kind == JSON_BOOL_K) return !neg; /* read with the bound */
    if (!need(x, l, is_number(l->v), "must be a number")) return false;
    const struct json *old =
        text_json_get(l->at.v, upper ? "exclusiveMaximum" : "exclusiveMinimum");
    if (!open && old && old->kind == JSON_BOOL_K) open = old->b;
    if (neg) f->types &= T_NUM;
    bound(&f->limits, l->v, neg ? !open : open, neg ? !upper : upper);
    return true;
}

static bool key_multiple(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!need(x, l, is_number(l->v) && l->v->f > 0, "must be a number over 0 of at most 15 digits"))
        return false;
    if (neg) return never_not(x, l);
    grammar_schema_say(x, &f->multiple, l);
    return true;
}

/* ---- counts ---- */

static bool key_count(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    static const struct {
        const char *key;
        unsigned type;
    } row[] = {{"Length", T_STR}, {"Items", T_ARR}, {"Properties", T_OBJ}};
    const char *key = l->v->key;
    bool upper = key[1] == 'a';
    uint32_t n, *min[] = {&f->min_len, &f->min_item, &f->min_prop},
                *max[] = {&f->max_len, &f->max_item, &f->max_prop};
    if (!grammar_schema_count(x, &l->at, key, upper ? GRAMMAR_INF : 0, &n)) return false;
    for (int i = 0; i < 3; i++) {
        if (strcmp(key + 3, row[i].key) != 0) continue;
        if (neg) f->types &= row[i].type;
        if (neg && (upper ? n == GRAMMAR_INF : n == 0)) return false;
        if (upper != neg)
            *max[i] = BASE_MIN(*max[i], neg ? n - 1 : n);
        else
            *min[i] = BASE_MAX(*min[i], neg ? n + 1 : n);
    }
    return true;
}

/* ---- strings ---- */

static bool key_pattern(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!need(x, l, l->v->kind == JSON_STR_K, "must be a string")) return false;
    if (neg) f->types &= T_STR;
    grammar_schema_say(x, &f->pattern, l);
    return true;
}

/* An annotation to most validators: so it cannot be refuted. */
static bool key_format(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!need(x, l, l->v->kind == JSON_STR_K, "must be a string")) return false;
    if (neg) return x->level == LOOSE_STRICT ? false : never_not(x, l);
    grammar_schema_say(x, &f->format, l);
    return true;
}

/* ---- objects ---- */

/* Once for all keywords of a schema. */
static void say_once(struct schema *x, const struct fact **list, const struct fact *l)
{
    for (const struct fact *o = *list; o; o = o->next)
        if (o->at.v == l->at.v) return;
    grammar_schema_say(x, list, &(struct fact){.at = l->at});
}

static bool key_properties(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!need(x, l, l->v->kind == JSON_OBJECT_K && l->v->n <= SCHEMA_MAX_PROPERTY,
              "must be an object of at most 8192 schemas"))
        return false;
    if (!neg) {
        say_once(x, &f->object, l);
        return true;
    }
    if (strcmp(l->v->key, "patternProperties") == 0) return never_not(x, l);
    f->types &= T_OBJ;
    return grammar_key_not_properties(x, f, l);
}

static bool key_additional(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (neg) return l->v->kind == JSON_BOOL_K && l->v->b ? false : never_not(x, l);
    say_once(x, &f->object, l);
    return true;
}

static bool key_required(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    const struct json *v = l->v;
    if (v->kind == JSON_BOOL_K) { /* draft 3, and a common slip: of no meaning here */
        grammar_schema_cannot(x, &l->at, "required", "must be a list of at most 8192 names");
        return true;
    }
    if (!need(x, l, v->kind == JSON_ARRAY_K && v->n <= SCHEMA_MAX_PROPERTY,
              "must be a list of at most 8192 names"))
        return false;
    for (size_t i = 0; i < v->n; i++)
        if (!need(x, l, v->item[i]->kind == JSON_STR_K, "must hold names")) return false;
    if (neg) {
        f->types &= T_OBJ;
        return grammar_key_not_required(x, f, l);
    }
    for (size_t i = 0; i < v->n; i++)
        grammar_schema_say(x, &f->has, &(struct fact){.at = l->at, .v = v->item[i]});
    return true;
}

static bool key_names(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (neg) return never_not(x, l);
    struct place sub = grammar_schema_at(x, &l->at, l->v, "propertyNames", 0);
    grammar_schema_say(x, &f->names, &(struct fact){.at = sub});
    return true;
}

/* unevaluatedProperties and unevaluatedItems: held where all that evaluates is in this schema, so
 * that nothing outside of it is taken for evaluated. */
static bool key_rest(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    static const char *const choice[] = {"anyOf",        "oneOf",   "not", "if", "dependentSchemas",
                                         "dependencies", "contains"};
    bool items = strcmp(l->v->key, "unevaluatedItems") == 0;
    if (l->v->kind == JSON_BOOL_K && l->v->b) { /* as additionalProperties or items: true */
        if (!neg) say_once(x, items ? &f->array : &f->object, l);
        return !neg;
    }
    const struct fact *first = f->done;
    while (first && first->next)
        first = first->next;
    bool fits = !neg && first && first->at.v == l->at.v && x->n_set == 1;
    for (int i = 0; i < BASE_COUNT_OF(choice) && fits; i++)
        fits = !text_json_get(l->at.v, choice[i]) || (!items && strcmp(choice[i], "contains") == 0);
    if (!fits) {
        grammar_schema_cannot(x, &l->at, l->v->key, "is not supported beside other schemas");
        return true;
    }
    struct place sub = grammar_schema_at(x, &l->at, l->v, l->v->key, 0);
    grammar_schema_say(x, items ? &f->rest_items : &f->rest, &(struct fact){.at = sub});
    return true;
}

/* ---- arrays ---- */

static bool key_items(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    bool list = l->v->kind == JSON_ARRAY_K, prefix = l->v->key[0] == 'p';
    if (prefix && !need(x, l, list, "must be a list of at most 100 schemas")) return false;
    if (list && l->v->n > SCHEMA_MAX_PREFIX) {
        grammar_schema_cannot(x, &l->at, l->v->key, "must be a list of at most 100 schemas");
        return true;
    }
    if (!neg) {
        say_once(x, &f->array, l);
        return true;
    }
    if (list || text_json_get(l->at.v, "prefixItems") || l->v->key[0] == 'a')
        return never_not(x, l);
    f->types &= T_ARR; /* some item does not match */
    struct place sub = grammar_schema_at(x, &l->at, l->v, "items", 0);
    grammar_schema_say(x, &f->contains,
                       &(struct fact){.at = sub, .neg = true, .min = 1, .max = GRAMMAR_INF});
    return true;
}

static bool key_unique(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!need(x, l, l->v->kind == JSON_BOOL_K, "must be true or false")) return false;
    if (!l->v->b) return !neg;
    if (neg) return never_not(x, l);
    grammar_schema_say(x, &f->unique, l);
    return true;
}

static bool key_contains(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    struct fact c = {.at = grammar_schema_at(x, &l->at, l->v, "contains", 0)};
    if (!grammar_schema_count(x, &l->at, "minContains", 1, &c.min) ||
        !grammar_schema_count(x, &l->at, "maxContains", GRAMMAR_INF, &c.max))
        return false;
    if (neg) {
        if (c.min == 0 && c.max == GRAMMAR_INF) return false;
        if (c.min > 1 || c.max != GRAMMAR_INF) return never_not(x, l);
        f->types &= T_ARR;
        c.min = 0;
        c.max = 0;
    }
    if (c.min > 0 || c.max != GRAMMAR_INF) grammar_schema_say(x, &f->contains, &c);
    return true;
}

static bool key_dynamic(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    (void)f;
    (void)neg;
    grammar_schema_cannot(x, &l->at, l->v->key, "is not supported");
    return true;
}

/* ---- the table ---- */

static const struct {
    const char *key;
    key_fn fn;
    bool quiet; /* says nothing of the value by itself */
} keyword[] = {
    {"type", key_type, false},
    {"enum", key_enum, false},
    {"const", key_const, false},
    {"properties", key_properties, false},
    {"required", key_required, false},
    {"additionalProperties", key_additional, false},
    {"items", key_items, false},
    {"$ref", grammar_key_ref, true},
    {"anyOf", grammar_key_any_of, true},
    {"oneOf", grammar_key_one_of, true},
    {"allOf", grammar_key_all_of, true},
    {"not", grammar_key_not, true},
    {"if", grammar_key_if, true},
    {"pattern", key_pattern, false},
    {"format", key_format, false},
    {"minLength", key_count, false},
    {"maxLength", key_count, false},
    {"minimum", key_bound, false},
    {"maximum", key_bound, false},
    {"exclusiveMinimum", key_bound, false},
    {"exclusiveMaximum", key_bound, false},
    {"multipleOf", key_multiple, false},
    {"minItems", key_count, false},
    {"maxItems", key_count, false},
    {"prefixItems", key_items, false},
    {"additionalItems", key_items, false},
    {"contains", key_contains, false},
    {"uniqueItems", key_unique, false},
    {"minProperties", key_count, false},
    {"maxProperties", key_count, false},
    {"patternProperties", key_properties, false},
    {"propertyNames", key_names, false},
    {"dependentRequired", grammar_key_dependent, false},
    {"dependentSchemas", grammar_key_dependent, false},
    {"dependencies", grammar_key_dependent, false},
    {"unevaluatedProperties", key_rest, false},
    {"unevaluatedItems", key_rest, false},
    {"$dynamicRef", key_dynamic, false},
    {"$recursiveRef", key_dynamic, false},
};

static int row_of(const char *key)
{
    for (int i = 0; i < BASE_COUNT_OF(keyword); i++)
        if (strcmp(keyword[i].key, key) == 0) return i;
    return -1;
}

bool grammar_key_says(const struct json *m)
{
    return row_of(m->key) >= 0;
}

bool grammar_key_take(struct schema *x, struct facts *f, const struct fact *l)
{
    int i = row_of(l->v->key);
    if (i < 0) return true;
    f->any |= !keyword[i].quiet;
    return keyword[i].fn(x, f, l, l->neg);
}
