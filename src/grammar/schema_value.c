/* SPDX-License-Identifier: Apache-2.0 */
/* Does a value match a schema? Asked for the values of enum and const and for names of members,
 * when a grammar is made. UNSURE where a keyword is not known here; formats are annotations. */
#include <math.h>
#include <string.h>

#include "grammar/schema_keys.h"
#include "text/utf8.h"

#define DEEP 40

static bool is_number(const struct json *v)
{
    return v->kind == JSON_INT_K || v->kind == JSON_REAL_K;
}

/* Recursion: as deep as JSON nests, which its reader limits. */
bool grammar_json_same(const struct json *a, const struct json *b)
{
    if (is_number(a) && is_number(b))
        return a->kind == JSON_INT_K && b->kind == JSON_INT_K ? a->i == b->i : a->f == b->f;
    if (a->kind != b->kind) return false;
    if (a->kind == JSON_BOOL_K) return a->b == b->b;
    if (a->kind == JSON_STR_K) return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
    if (a->kind == JSON_NULL_K) return true;
    if (a->n != b->n) return false;
    for (size_t i = 0; a->kind == JSON_ARRAY_K && i < a->n; i++)
        if (!grammar_json_same(a->item[i], b->item[i])) return false;
    for (const struct json *m = a->kind == JSON_OBJECT_K && a->n ? a->child : NULL; m;
         m = m->next) {
        const struct json *o = text_json_get(b, m->key);
        if (!o || !grammar_json_same(m, o)) return false;
    }
    return true;
}

unsigned grammar_json_types(const struct json *v)
{
    static const unsigned t[] = {T_NULL, T_BOOL, T_INT, T_FRAC, T_STR, T_ARR, T_OBJ};
    if (v->kind == JSON_REAL_K && v->f == floor(v->f)) return T_INT;
    return t[v->kind];
}

static size_t characters(const struct json *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        n += ((unsigned char)v->s[i] & 0xc0) != 0x80;
    return n;
}

static enum holds worse(enum holds a, enum holds b)
{
    return a == NO || b == NO ? NO : a == UNSURE || b == UNSURE ? UNSURE : YES;
}

/* The facts of f, all but those about members and items, for a value. member: it is in the first
 * list of values. */
static enum holds plain_facts(struct schema *x, const struct facts *f, const struct json *v,
                              bool member)
{
    enum holds h = YES;
    if (!(f->types & grammar_json_types(v))) return NO;
    for (const struct fact *e = f->value; e; e = e->next) {
        if (member && e == f->value) continue;
        x->b->left -= e->neg ? (int64_t)e->v->n : 1;
        if (x->b->left < 0) return UNSURE;
        if (!grammar_value_in(e, v)) return NO;
    }
    for (const struct fact *e = f->except; e; e = e->next)
        if (grammar_value_in(e, v)) return NO;
    if (is_number(v)) {
        const struct limits *m = &f->limits;
        if (m->lo && (v->f < m->lo->f || (m->lo_open && v->f == m->lo->f))) return NO;
        if (m->hi && (v->f > m->hi->f || (m->hi_open && v->f == m->hi->f))) return NO;
        for (const struct fact *e = f->multiple; e; e = e->next)
            if (v->f / e->v->f != floor(v->f / e->v->f)) return NO;
    }
    if (v->kind == JSON_STR_K) {
        size_t n = characters(v);
        if (n < f->min_len || n > f->max_len) return NO;
        for (const struct fact *e = f->pattern; e; e = e->next) {
            const struct dfa *d = grammar_schema_pattern(x, &e->at, e->v);
            if (!d)
                h = UNSURE;
            else if (grammar_dfa_takes(d, v->s, v->n) == e->neg)
                return NO;
        }
    }
    if (v->kind == JSON_ARRAY_K && (v->n < f->min_item || v->n > f->max_item)) return NO;
    if (v->kind == JSON_OBJECT_K && (v->n < f->min_prop || v->n > f->max_prop)) return NO;
    return h;
}

static enum holds sub(struct schema *x, const struct json *s, const char *path,
                      const struct json *v)
{
    return grammar_schema_holds(x, &(struct place){s, path}, v);
}

static enum holds member_holds(struct schema *x, const struct fact *o, const struct json *m)
{
    const struct json *p = text_json_get(text_json_get(o->at.v, "properties"), m->key),
                      *pat = text_json_get(o->at.v, "patternProperties"),
                      *add = text_json_get(o->at.v, "additionalProperties");
    enum holds h = YES;
    bool hit = p != NULL;
    if (p) h = worse(h, sub(x, p, o->at.path, m));
    for (const struct json *k = pat && pat->n ? pat->child : NULL; k && h != NO; k = k->next) {
        struct json name = {.kind = JSON_STR_K, .s = k->key, .n = k->n_key};
        const struct dfa *d = grammar_schema_pattern(x, &o->at, &name);
        if (!d) return UNSURE;
        if (!grammar_dfa_takes(d, m->key, m->n_key)) continue;
        hit = true;
        h = worse(h, sub(x, k, o->at.path, m));
    }
    return add && !hit ? worse(h, sub(x, add, o->at.path, m)) : h;
}

static enum holds object_facts(struct schema *x, const struct facts *f, const struct json *v)
{
    enum holds h = YES;
    for (const struct fact *e = f->has; e; e = e->next)
        if (!text_json_get(v, e->v->s)) return NO;
    for (const struct fact *e = f->lacks; e; e = e->next)
        if (text_json_get(v, e->v->s)) return NO;
    for (const struct fact *e = f->also; e; e = e->next) {
        const struct json *m = text_json_get(v, e->v->s);
        enum holds k = m ? sub(x, e->at.v, e->at.path, m) : NO;
        h = worse(h, k == UNSURE ? UNSURE : k == YES ? NO : YES);
    }
    for (const struct json *m = v->n ? v->child : NULL; m && h != NO; m = m->next) {
        struct json name = {.kind = JSON_STR_K, .s = m->key, .n = m->n_key};
        for (const struct fact *e = f->names; e; e = e->next)
            h = worse(h, sub(x, e->at.v, e->at.path, &name));
        for (const struct fact *o = f->object; o; o = o->next)
            h = worse(h, member_holds(x, o, m));
    }
    return f->rest ? worse(h, UNSURE) : h;
}

static enum holds array_facts(struct schema *x, const struct facts *f, const struct json *v)
{
    enum holds h = YES;
    for (const struct fact *a = f->array; a; a = a->next) {
        const struct json *items = text_json_get(a->at.v, "items"),
                          *pre = text_json_get(a->at.v, "prefixItems");
        if (items && items->kind == JSON_ARRAY_K) {
            pre = items;
            items = text_json_get(a->at.v, "additionalItems");
        }
        for (size_t i = 0; i < v->n && h != NO; i++) {
            const struct json *s = pre && i < pre->n ? pre->item[i] : items;
            if (s) h = worse(h, sub(x, s, a->at.path, v->item[i]));
        }
    }
    for (size_t i = 0; f->unique && i < v->n; i++)
        for (size_t k = 0; k < i; k++)
            if (grammar_json_same(v->item[i], v->item[k])) return NO;
    for (const struct fact *c = f->contains; c; c = c->next) {
        uint32_t n = 0;
        for (size_t i = 0; i < v->n; i++) {
            enum holds k = sub(x, c->at.v, c->at.path, v->item[i]);
            if (k == UNSURE) return UNSURE;
            n += (k == YES) != c->neg;
        }
        if (n < c->min || n > c->max) return NO;
    }
    return f->rest_items ? worse(h, UNSURE) : h;
}

enum holds grammar_schema_facts_hold(struct schema *x, const struct facts *f, const struct json *v,
                                     bool member)
{
    enum holds h = plain_facts(x, f, v, member);
    if (h != NO && v->kind == JSON_OBJECT_K) h = worse(h, object_facts(x, f, v));
    if (h != NO && v->kind == JSON_ARRAY_K) h = worse(h, array_facts(x, f, v));
    return h;
}

enum holds grammar_schema_holds_all(struct schema *x, const struct all *all, const struct json *v)
{
    struct opened o = {0};
    enum holds best = NO;
    if (all->never) return NO;
    if (x->deep >= DEEP) return UNSURE;
    x->deep++;
    grammar_schema_open(x, all, &o);
    for (uint32_t i = 0; i < o.n && best != YES && !x->b->st; i++) {
        const struct facts *f = &o.v[i];
        enum holds h = f->call ? grammar_schema_holds_all(x, f->call, v)
                               : grammar_schema_facts_hold(x, f, v, false);
        if (h == YES || best == NO) best = h;
    }
    mem_free(o.v);
    x->deep--;
    return best;
}

enum holds grammar_schema_holds(struct schema *x, const struct place *at, const struct json *v)
{
    struct one *one = grammar_build_alloc(x->b, 1, sizeof *one);
    if (!one) return UNSURE;
    one[0] = (struct one){*at, IS};
    struct all all = grammar_schema_all(x, one, 1);
    return grammar_schema_holds_all(x, &all, v);
}
