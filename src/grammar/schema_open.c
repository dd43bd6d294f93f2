/* SPDX-License-Identifier: Apache-2.0 */
/* A set of schemas becomes lists of facts, one for each choice: what anyOf, oneOf, not, if and the
 * dependent keywords leave open. Things to take are facts whose place is a schema: to be matched
 * (neg: not to be), or with v, one keyword of it; HAS and LACKS, which v names, are members. */
#include <string.h>

#include "grammar/schema_internal.h"
#include "grammar/schema_keys.h"

#define MAX_FACTS 512  /* lists of one set */
#define MAX_DEEP 4     /* questions inside questions */
#define MAX_ONE_OF 200 /* alternatives that are compared with each other */
#define MAX_PAIRS 64   /* of them that are not apart */

void grammar_schema_say(struct schema *x, const struct fact **list, const struct fact *f)
{
    struct fact *c = grammar_build_alloc(x->b, 1, sizeof *c);
    if (!c) return;
    *c = *f;
    c->next = *list;
    *list = c;
}

/* ---- choices ---- */

static void choose(struct schema *x, struct facts *f, const struct fact **alt, uint32_t n)
{
    struct branch *br = grammar_build_alloc(x->b, 1, sizeof *br);
    if (!br) return;
    *br = (struct branch){f->branch, alt, n};
    f->branch = br;
}

static const struct fact **alternatives(struct schema *x, size_t n)
{
    return grammar_build_alloc(x->b, n + 1, sizeof(struct fact *));
}

static void put_schema(struct schema *x, const struct fact **list, struct place at, bool neg)
{
    grammar_schema_say(x, list, &(struct fact){.at = at, .neg = neg});
}

static void put_member(struct schema *x, const struct fact **list, const struct place *at,
                       const struct json *name, bool lacks)
{
    grammar_schema_say(x, list, &(struct fact){.at = *at, .v = name, .neg = lacks, .max = MEMBER});
}

/* The name of a member of the schema's JSON as a value. */
static const struct json *name_of(struct schema *x, const struct json *m)
{
    struct json *v = grammar_build_alloc(x->b, 1, sizeof *v);
    if (v) *v = (struct json){.kind = JSON_STR_K, .s = m->key, .n = m->n_key};
    return v;
}

static bool list_of_schemas(struct schema *x, const struct place *at, const struct json *m)
{
    if (m->kind == JSON_ARRAY_K && m->n) return true;
    grammar_schema_wrong(x, at, m->key, "must be a list with at least one schema");
    return false;
}

/* May both be matched by one value? */
static bool apart(struct schema *x, struct place a, struct place b)
{
    struct one *two = grammar_build_alloc(x->b, 2, sizeof *two);
    if (!two) return false;
    two[0] = (struct one){a, IS};
    two[1] = (struct one){b, IS};
    struct all all = grammar_schema_all(x, two, 2);
    return grammar_schema_void(x, &all);
}

static void one_of(struct schema *x, struct facts *f, const struct place *at, const struct json *m)
{
    struct place list = grammar_schema_at(x, at, m, m->key, 0);
    const struct fact **alt = alternatives(x, m->n);
    uint32_t n_pair = 0;
    if (m->n > MAX_ONE_OF)
        grammar_schema_cannot(x, at, m->key, "more than 200 alternatives: use anyOf");
    for (size_t i = 0; alt && i < m->n && !x->b->st; i++)
        put_schema(x, &alt[i], grammar_schema_at(x, &list, m->item[i], NULL, i), false);
    for (size_t i = 0; alt && m->n <= MAX_ONE_OF && i < m->n; i++)
        for (size_t k = i + 1; k < m->n && !x->b->st; k++) {
            struct place a = {m->item[i], list.path}, b = {m->item[k], list.path};
            if (n_pair > MAX_PAIRS || apart(x, a, b)) continue;
            if (n_pair++ == MAX_PAIRS)
                grammar_schema_cannot(x, at, m->key,
                                      "too many alternatives that may accept the same value: use "
                                      "anyOf");
            put_schema(x, &alt[i], b, true);
            put_schema(x, &alt[k], a, true);
        }
    if (alt) choose(x, f, alt, (uint32_t)m->n);
}

/* ---- keywords that choose or go on with other schemas. false: nothing can match ---- */

bool grammar_key_ref(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    struct place to;
    if (grammar_schema_ref(x, &l->at, &to)) put_schema(x, &f->todo, to, neg);
    return true;
}

bool grammar_key_not(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    put_schema(x, &f->todo, grammar_schema_at(x, &l->at, l->v, "not", 0), !neg);
    return true;
}

bool grammar_key_all_of(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!list_of_schemas(x, &l->at, l->v)) return false;
    struct place list = grammar_schema_at(x, &l->at, l->v, l->v->key, 0);
    const struct fact **alt = alternatives(x, l->v->n);
    for (size_t i = l->v->n; alt && i-- > 0 && !x->b->st;) {
        struct place sub = grammar_schema_at(x, &list, l->v->item[i], NULL, i);
        put_schema(x, neg ? &alt[i] : &f->todo, sub, neg);
    }
    if (neg && alt) choose(x, f, alt, (uint32_t)l->v->n);
    return true;
}

bool grammar_key_any_of(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!list_of_schemas(x, &l->at, l->v)) return false;
    struct place list = grammar_schema_at(x, &l->at, l->v, l->v->key, 0);
    const struct fact **alt = alternatives(x, l->v->n);
    for (size_t i = 0; alt && i < l->v->n && !x->b->st; i++) {
        struct place sub = grammar_schema_at(x, &list, l->v->item[i], NULL, i);
        put_schema(x, neg ? &f->todo : &alt[i], sub, neg);
    }
    if (!neg && alt) choose(x, f, alt, (uint32_t)l->v->n);
    return true;
}

bool grammar_key_one_of(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (!list_of_schemas(x, &l->at, l->v)) return false;
    if (neg) /* none of them, or two: only the former */
        grammar_schema_cannot(x, &l->at, l->v->key, "is not supported inside of not");
    else
        one_of(x, f, &l->at, l->v);
    return true;
}

bool grammar_key_if(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    const struct json *then = text_json_get(l->at.v, "then"),
                      *other = text_json_get(l->at.v, "else");
    const struct fact **alt = alternatives(x, 2);
    if (!then && !other) return !neg;
    if (!alt) return false;
    struct place cond = grammar_schema_at(x, &l->at, l->v, "if", 0);
    put_schema(x, &alt[0], cond, false);
    put_schema(x, &alt[1], cond, true);
    if (then) put_schema(x, &alt[0], grammar_schema_at(x, &l->at, then, "then", 0), neg);
    if (other) put_schema(x, &alt[1], grammar_schema_at(x, &l->at, other, "else", 0), neg);
    if (neg && !then) alt[0] = alt[1];
    choose(x, f, alt, neg && !(then && other) ? 1 : 2);
    return true;
}

/* dependentRequired, dependentSchemas, and dependencies, which holds both. */
bool grammar_key_dependent(struct schema *x, struct facts *f, const struct fact *l, bool neg)
{
    if (l->v->kind != JSON_OBJECT_K) {
        grammar_schema_wrong(x, &l->at, l->v->key, "must be an object");
        return false;
    }
    if (neg) grammar_schema_cannot(x, &l->at, l->v->key, "is not supported inside of not");
    struct place list = grammar_schema_at(x, &l->at, l->v, l->v->key, 0);
    for (const struct json *m = l->v->n && !neg ? l->v->child : NULL; m && !x->b->st; m = m->next) {
        const struct fact **alt = alternatives(x, 2);
        const struct json *name = name_of(x, m);
        if (!alt || !name) return false;
        if (m->kind == JSON_ARRAY_K && !m->n) continue;
        put_member(x, &alt[0], &list, name, true);
        put_member(x, &alt[1], &list, name, false);
        for (size_t i = 0; m->kind == JSON_ARRAY_K && i < m->n; i++)
            if (m->item[i]->kind == JSON_STR_K)
                put_member(x, &alt[1], &list, m->item[i], false);
            else
                grammar_schema_wrong(x, &list, m->key, "must hold names");
        if (m->kind != JSON_ARRAY_K)
            put_schema(x, &alt[1], grammar_schema_at(x, &list, m, m->key, 0), false);
        choose(x, f, alt, 2);
    }
    return true;
}

/* not: properties: some member is there and does not match. */
bool grammar_key_not_properties(struct schema *x, struct facts *f, const struct fact *l)
{
    const struct json *v = l->v;
    const struct fact **alt = alternatives(x, v->n);
    uint32_t n = 0;
    struct place list = grammar_schema_at(x, &l->at, v, "properties", 0);
    for (const struct json *m = v->n ? v->child : NULL; m && alt && !x->b->st; m = m->next) {
        const struct json *name = name_of(x, m);
        put_member(x, &alt[n], &list, name, false);
        grammar_schema_say(x, &alt[n++],
                           &(struct fact){.at = grammar_schema_at(x, &list, m, m->key, 0),
                                          .v = name,
                                          .neg = true,
                                          .max = VALUE_OF});
    }
    if (alt) choose(x, f, alt, n);
    return n > 0;
}

/* not: required: one of the names is missing. */
bool grammar_key_not_required(struct schema *x, struct facts *f, const struct fact *l)
{
    const struct fact **alt = alternatives(x, l->v->n);
    for (size_t i = 0; alt && i < l->v->n; i++)
        put_member(x, &alt[i], &l->at, l->v->item[i], true);
    if (alt) choose(x, f, alt, (uint32_t)l->v->n);
    return l->v->n > 0;
}

/* ---- one thing after the other ---- */

static bool was_done(const struct facts *f, const struct fact *l)
{
    for (const struct fact *d = f->done; d; d = d->next)
        if (d->at.v == l->at.v && d->v == l->v && d->neg == l->neg && d->max == l->max) return true;
    return false;
}

/* Not to match a schema: one of its keywords does not hold. */
static bool refute(struct schema *x, struct facts *f, const struct fact *l)
{
    const struct json *v = l->at.v;
    const struct fact **alt = alternatives(x, v->n);
    uint32_t n = 0;
    for (const struct json *m = v->n ? v->child : NULL; m && alt; m = m->next) {
        bool ref = x->old_ref && text_json_get(v, "$ref");
        if (!grammar_key_says(m) || (ref && strcmp(m->key, "$ref") != 0)) continue;
        grammar_schema_say(x, &alt[n++], &(struct fact){.at = l->at, .v = m, .neg = true});
    }
    if (n == 1)
        grammar_schema_say(x, &f->todo, alt[0]);
    else if (n)
        choose(x, f, alt, n);
    return n > 0;
}

static bool take(struct schema *x, struct facts *f, const struct fact *l)
{
    const struct json *v = l->at.v;
    if (l->max == MEMBER) {
        f->any = true;
        grammar_schema_say(x, l->neg ? &f->lacks : &f->has, l);
        return true;
    }
    if (l->max == VALUE_OF) {
        grammar_schema_say(x, &f->also, l);
        return true;
    }
    if (v->kind == JSON_BOOL_K && !l->v) return v->b != l->neg;
    if (v->kind != JSON_OBJECT_K) {
        grammar_schema_wrong(x, &l->at, NULL, "a schema must be an object, true or false");
        return false;
    }
    if (l->v) return grammar_key_take(x, f, l);
    if (l->neg) return refute(x, f, l);
    bool ref = x->old_ref && text_json_get(v, "$ref");
    for (const struct json *m = v->n ? v->child : NULL; m && !x->b->st; m = m->next) {
        if (ref && strcmp(m->key, "$ref") != 0) continue;
        if (!grammar_key_take(x, f, &(struct fact){.at = l->at, .v = m})) return false;
    }
    return true;
}

/* The constants leave something? */
static bool values_left(struct schema *x, const struct facts *f)
{
    if (!f->value) return true;
    const struct json *v = f->value->v;
    for (const struct json *e = f->value->neg ? v->child : v; e;
         e = f->value->neg ? e->next : NULL) {
        bool ok = (grammar_json_types(e) & f->types) != 0;
        if (x->b->left < 0) return true; /* not looked at */
        for (const struct fact *o = f->value->next; o && ok; o = o->next)
            ok = grammar_value_in(o, e), x->b->left -= o->neg ? (int64_t)o->v->n : 1;
        for (const struct fact *o = f->except; o && ok; o = o->next)
            ok = !grammar_value_in(o, e), x->b->left -= o->neg ? (int64_t)o->v->n : 1;
        if (ok) return true;
    }
    return false;
}

static bool consistent(struct schema *x, struct facts *f)
{
    for (const struct fact *h = f->has; h; h = h->next)
        for (const struct fact *k = f->lacks; k; k = k->next)
            if (k->v->n == h->v->n && !memcmp(k->v->s, h->v->s, h->v->n))
                f->types &= ~(unsigned)T_OBJ;
    return f->types != 0 && values_left(x, f);
}

/* The alternatives of a set that says nothing else are rules of their own. */
static bool as_calls(struct schema *x, const struct branch *br, struct opened *out)
{
    struct build *b = x->b;
    for (uint32_t i = 0; i < br->n; i++)
        for (const struct fact *l = br->alt[i]; l; l = l->next)
            if (l->v) return false;
    for (uint32_t i = 0; i < br->n && !b->st; i++) {
        uint32_t n = 0;
        for (const struct fact *l = br->alt[i]; l; l = l->next)
            n++;
        struct one *one = grammar_build_alloc(b, (size_t)n + 1, sizeof *one);
        struct all *all = one ? grammar_build_alloc(b, 1, sizeof *all) : NULL;
        if (!all) return true;
        n = 0;
        for (const struct fact *l = br->alt[i]; l; l = l->next)
            one[n++] = (struct one){l->at, l->neg ? NOT : IS};
        *all = grammar_schema_all(x, one, n);
        if (all->never) continue;
        b->st = grammar_grow(&out->v, &out->cap, (uint64_t)out->n + 1, sizeof *out->v, b->err);
        if (!b->st) out->v[out->n++] = (struct facts){.types = T_ALL, .call = all, .any = true};
    }
    return true;
}

/* The types that the facts speak of, where none is said. */
static unsigned implied(const struct facts *f)
{
    unsigned t = 0;
    if (f->typed || f->value) return T_ALL;
    if (f->object || f->has || f->lacks || f->also || f->names || f->rest || f->min_prop ||
        f->max_prop != GRAMMAR_INF)
        t |= T_OBJ;
    if (f->array || f->contains || f->unique || f->rest_items || f->min_item ||
        f->max_item != GRAMMAR_INF)
        t |= T_ARR;
    if (f->pattern || f->format || f->min_len || f->max_len != GRAMMAR_INF) t |= T_STR;
    if (f->limits.lo || f->limits.hi || f->multiple) t |= T_NUM;
    return t ? t : T_ALL;
}

/* Recursion: over the choices that are open. */
static void run(struct schema *x, struct facts f, struct opened *out, int depth)
{
    struct build *b = x->b;
    while (f.todo && !b->st) {
        const struct fact *l = f.todo;
        f.todo = l->next;
        if (--x->left < 0 || depth > 200) {
            grammar_build_fail(b, SL_LIMIT, "schema: %.100s: too many combinations", l->at.path);
            return;
        }
        if (was_done(&f, l)) continue;
        grammar_schema_say(x, &f.done, l);
        if (!take(x, &f, l)) return;
    }
    if (b->st || !consistent(x, &f)) return;
    if (f.branch) {
        const struct branch *br = f.branch;
        f.branch = br->next;
        if (depth == 0 && !f.any && !f.branch && as_calls(x, br, out)) return;
        for (uint32_t i = 0; i < br->n && !b->st; i++) {
            struct facts g = f;
            for (const struct fact *l = br->alt[i]; l; l = l->next)
                grammar_schema_say(x, &g.todo, l);
            run(x, g, out, depth + 1);
        }
        return;
    }
    if (out->n == MAX_FACTS) {
        grammar_build_fail(b, SL_LIMIT, "schema: %.100s: more than %d combinations",
                           f.done ? f.done->at.path : "#", MAX_FACTS);
        return;
    }
    f.implied = implied(&f);
    b->st = grammar_grow(&out->v, &out->cap, (uint64_t)out->n + 1, sizeof *out->v, b->err);
    if (!b->st) out->v[out->n++] = f;
}

void grammar_schema_open(struct schema *x, const struct all *all, struct opened *out)
{
    struct facts f = {
        .types = T_ALL, .max_len = GRAMMAR_INF, .max_item = GRAMMAR_INF, .max_prop = GRAMMAR_INF};
    for (uint32_t i = all->n; i-- > 0;)
        put_schema(x, &f.todo, all->one[i].at, all->one[i].sense == NOT);
    uint32_t outer = x->n_set;
    x->n_set = all->n;
    if (!all->never) run(x, f, out, 0);
    x->n_set = outer;
}

bool grammar_schema_facts_void(struct schema *x, struct facts *f)
{
    if (f->call) return grammar_schema_void(x, f->call);
    if (f->value) return false; /* what is left was looked at */
    f->types &= f->implied;
    if (f->min_len > f->max_len) f->types &= ~(unsigned)T_STR;
    if (f->min_item > f->max_item) f->types &= ~(unsigned)T_ARR;
    if (f->limits.lo && f->limits.hi && f->limits.lo->f > f->limits.hi->f)
        f->types &= ~(unsigned)T_NUM;
    if (f->types == T_OBJ) return grammar_schema_object_void(x, f);
    return f->types == 0;
}

bool grammar_schema_void(struct schema *x, const struct all *all)
{
    struct opened o = {0};
    bool empty = true;
    if (all->never) return true;
    if (x->deep == MAX_DEEP || x->b->st) return false;
    x->deep++;
    enum loose_level level = x->level;
    size_t n_note = x->b->loose->note.n;
    x->level = LOOSE_ALL; /* what cannot be held may match */
    grammar_schema_open(x, all, &o);
    for (uint32_t i = 0; i < o.n && empty && !x->b->st; i++)
        empty = grammar_schema_facts_void(x, &o.v[i]);
    if (x->b->loose->note.n > n_note) str_cut(&x->b->loose->note, n_note);
    x->level = level;
    x->deep--;
    mem_free(o.v);
    if (x->b->st == SL_LIMIT) { /* not easily seen */
        x->b->st = SL_OK;
        return false;
    }
    return empty && !x->b->st;
}
