/* SPDX-License-Identifier: Apache-2.0 */
/* Objects: members in the order of the schemas' properties, then the others that are required, then
 * others. All schemas that speak of a member join in the set that its value matches. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/schema_keys.h"

#define MAX_PATTERN 8  /* patternProperties of one object */
#define MAX_CLASS 64   /* kinds of other names */
#define MAX_GRAPH 8192 /* states of an object whose members are counted */

struct prop { /* a schema for a member */
    struct place at;
    uint32_t view;
    bool neg;
    struct prop *next;
};
struct name {
    const char *p;
    size_t n;
    bool must, lacks;
    struct prop *prop;
};
struct view {
    const struct fact *says;
    const struct json *props, *more; /* more: additionalProperties; NULL = none */
    struct place list;
};
struct pattern {
    const struct dfa *dfa;
    struct place at; /* of its schema */
    uint32_t view;
};
struct object {
    struct schema *x;
    struct facts *f;
    struct place at;
    struct view *view; /* in the order of the schema */
    uint32_t n_view;
    struct name *name;
    uint32_t n_name, cap_name, *slot, n_slot; /* slot: 1 + name */
    struct pattern pattern[MAX_PATTERN];
    uint32_t n_pattern;
    bool open;     /* other names may come */
    bool no_names; /* what names match is not held by an automaton */
};

/* ---- names ---- */

static uint32_t *slot_of(struct object *o, const char *p, size_t n)
{
    uint32_t h = (uint32_t)hash_bytes(p, n, 0) & (o->n_slot - 1);
    while (o->slot[h]) {
        const struct name *m = &o->name[o->slot[h] - 1];
        if (m->n == n && memcmp(m->p, p, n) == 0) break;
        h = (h + 1) & (o->n_slot - 1);
    }
    return &o->slot[h];
}

static struct name *name_at(struct object *o, const char *p, size_t n)
{
    uint32_t *s = slot_of(o, p, n);
    if (!*s && o->n_name < o->cap_name) {
        o->name[o->n_name] = (struct name){.p = p, .n = n};
        *s = ++o->n_name;
    }
    return *s ? &o->name[*s - 1] : NULL;
}

static void name_prop(struct object *o, struct name *m, struct place at, uint32_t view, bool neg)
{
    struct prop *p = m ? grammar_build_alloc(o->x->b, 1, sizeof *p) : NULL;
    if (!p) return;
    *p = (struct prop){at, view, neg, m->prop};
    m->prop = p;
}

static uint32_t length(const struct fact *l)
{
    uint32_t n = 0;
    for (; l; l = l->next)
        n++;
    return n;
}

/* The newest first becomes the oldest first. */
static const struct fact **in_order(struct object *o, const struct fact *l, uint32_t *n)
{
    *n = length(l);
    const struct fact **v = grammar_build_alloc(o->x->b, (size_t)*n + 1, sizeof *v);
    for (uint32_t i = *n; v && l; l = l->next)
        v[--i] = l;
    if (!v) *n = 0;
    return v;
}

static bool alloc_names(struct object *o, const struct fact **view, const struct fact *fixed)
{
    struct build *b = o->x->b;
    size_t n = length(o->f->has) + (size_t)length(o->f->lacks) + length(o->f->also) + 1;
    for (uint32_t i = 0; i < o->n_view; i++) {
        const struct json *p = text_json_get(view[i]->at.v, "properties");
        n += p ? p->n : 0;
    }
    n += fixed ? fixed->v->n : 0;
    o->n_slot = 16;
    while (o->n_slot < 2 * n)
        o->n_slot *= 2;
    o->cap_name = (uint32_t)n;
    o->name = grammar_build_alloc(b, n, sizeof *o->name);
    o->slot = grammar_build_alloc(b, o->n_slot, 4);
    o->view = grammar_build_alloc(b, (size_t)o->n_view + 1, sizeof *o->view);
    return o->name && o->slot && o->view;
}

static void take_patterns(struct object *o, uint32_t view, const struct json *list,
                          const struct place *at)
{
    struct schema *x = o->x;
    struct place in = grammar_schema_at(x, at, list, "patternProperties", 0);
    for (const struct json *m = list->n ? list->child : NULL; m && !x->b->st; m = m->next) {
        struct json *p = grammar_build_alloc(x->b, 1, sizeof *p);
        if (!p) return;
        *p = (struct json){.kind = JSON_STR_K, .s = m->key, .n = m->n_key};
        const struct dfa *d = grammar_schema_pattern(x, &in, p);
        if (!d || o->n_pattern == MAX_PATTERN)
            grammar_schema_cannot(x, &in, m->key, "this pattern is not supported here");
        else
            o->pattern[o->n_pattern++] =
                (struct pattern){d, grammar_schema_at(x, &in, m, m->key, 0), view};
    }
}

/* An enum that all names are of. */
static const struct fact *fixed_names(struct object *o)
{
    for (const struct fact *e = o->f->names; e; e = e->next) {
        const struct json *v =
            e->at.v->kind == JSON_OBJECT_K ? text_json_get(e->at.v, "enum") : NULL;
        if (!v || v->kind != JSON_ARRAY_K) continue;
        struct fact *f = grammar_build_alloc(o->x->b, 1, sizeof *f);
        if (f) *f = (struct fact){.at = e->at, .v = v};
        return f;
    }
    return NULL;
}

/* v where it is true. */
static const struct json *always(const struct json *v)
{
    return v && v->kind == JSON_BOOL_K && v->b ? v : NULL;
}

static void take_view(struct object *o, uint32_t i, const struct fact *says, bool *closed)
{
    struct schema *x = o->x;
    const struct json *s = says->at.v, *props = text_json_get(s, "properties"),
                      *pat = text_json_get(s, "patternProperties");
    struct view *v = &o->view[i];
    *v = (struct view){says, props, text_json_get(s, "additionalProperties"), says->at};
    if (!v->more) v->more = always(text_json_get(s, "unevaluatedProperties"));
    if (props) v->list = grammar_schema_at(x, &says->at, props, "properties", 0);
    for (const struct json *m = props && props->n ? props->child : NULL; m && !x->b->st;
         m = m->next)
        name_prop(o, name_at(o, m->key, m->n_key), grammar_schema_at(x, &v->list, m, m->key, 0), i,
                  false);
    if (pat) take_patterns(o, i, pat, &says->at);
    *closed |= props != NULL;
    o->open |= v->more && !(v->more->kind == JSON_BOOL_K && !v->more->b);
}

static bool gather(struct object *o)
{
    struct schema *x = o->x;
    uint32_t n_has = 0;
    const struct fact **view = in_order(o, o->f->object, &o->n_view),
                      **has = in_order(o, o->f->has, &n_has), *fixed = fixed_names(o);
    bool closed = false;
    if (!view || !has || !alloc_names(o, view, fixed)) return false;
    for (uint32_t i = 0; i < o->n_view && !x->b->st; i++)
        take_view(o, i, view[i], &closed);
    for (uint32_t i = 0; i < n_has; i++)
        name_at(o, has[i]->v->s, has[i]->v->n)->must = true;
    for (const struct fact *e = o->f->lacks; e; e = e->next)
        name_at(o, e->v->s, e->v->n)->lacks = true;
    for (const struct fact *e = o->f->also; e; e = e->next)
        name_prop(o, name_at(o, e->v->s, e->v->n), e->at, UINT32_MAX, true);
    for (const struct json *m = fixed && fixed->v->n ? fixed->v->child : NULL; m; m = m->next)
        if (m->kind == JSON_STR_K) (void)name_at(o, m->s, m->n);
    o->open |= !closed || o->f->rest;
    for (uint32_t i = 0; i < o->n_view; i++) /* one that wants none closes it for all */
        if (o->view[i].more && o->view[i].more->kind == JSON_BOOL_K && !o->view[i].more->b)
            o->open = false;
    if (fixed) o->open = false;
    return !x->b->st;
}

/* ---- values of members ---- */

/* The set that a member's value matches; m NULL: a name that is listed nowhere, matched by those
 * patterns whose bit is set. */
static struct all value_set(struct object *o, const struct name *m, unsigned mask)
{
    struct schema *x = o->x;
    uint32_t n = 0, cap = 2 * o->n_view + o->n_pattern + 2;
    for (const struct prop *p = m ? m->prop : NULL; p; p = p->next)
        cap++;
    struct one *one = grammar_build_alloc(x->b, cap, sizeof *one);
    bool any = false;
    if (!one) return (struct all){NULL, 0, true};
    for (uint32_t i = 0; i < o->n_view; i++) {
        bool hit = false;
        for (const struct prop *p = m ? m->prop : NULL; p; p = p->next)
            hit |= p->view == i;
        for (uint32_t k = 0; k < o->n_pattern; k++) {
            if (o->pattern[k].view != i || !(mask >> k & 1)) continue;
            one[n++] = (struct one){o->pattern[k].at, IS};
            hit = true;
        }
        any |= hit || o->view[i].more;
        if (!hit && o->view[i].more)
            one[n++] = (struct one){grammar_schema_at(x, &o->view[i].says->at, o->view[i].more,
                                                      "additionalProperties", 0),
                                    IS};
    }
    for (const struct prop *p = m ? m->prop : NULL; p; p = p->next)
        one[n++] = (struct one){p->at, p->neg ? NOT : IS};
    if (!any && o->f->rest) one[n++] = (struct one){o->f->rest->at, IS};
    return grammar_schema_all(x, one, n);
}

static struct all named_set(struct object *o, const struct name *m)
{
    struct schema *x = o->x;
    unsigned mask = 0;
    struct json text = {.kind = JSON_STR_K, .s = m->p, .n = m->n};
    for (uint32_t k = 0; k < o->n_pattern; k++)
        mask |= (unsigned)grammar_dfa_takes(o->pattern[k].dfa, m->p, m->n) << k;
    struct all all = value_set(o, m, mask);
    for (const struct fact *e = o->f->names; e && !all.never && !x->b->st; e = e->next) {
        enum holds h = grammar_schema_holds(x, &e->at, &text);
        if (h == UNSURE) grammar_schema_cannot(x, &e->at, NULL, "is not supported here");
        all.never |= h == NO;
    }
    all.never |= m->lacks;
    return all;
}

/* Is a required member impossible? */
bool grammar_schema_object_void(struct schema *x, struct facts *f)
{
    struct object o = {.x = x, .f = f};
    if (f->min_prop > f->max_prop) return true;
    if (!f->has || !gather(&o)) return false;
    for (uint32_t i = 0; i < o.n_name && !x->b->st; i++) {
        if (!o.name[i].must) continue;
        struct all all = named_set(&o, &o.name[i]);
        if (all.never || grammar_schema_void(x, &all)) return true;
    }
    return false;
}

/* ---- other names ---- */

struct others {
    struct ir_list member;
    bool some;
};

static const struct ir *rule_of(struct object *o, const struct ir *e)
{
    int rule = grammar_rule_new(o->x->b, o->at.path, strlen(o->at.path));
    grammar_rule_set(o->x->b, rule, e);
    return grammar_ir_call(o->x->b, rule);
}

static void add_class(struct object *o, struct others *t, const struct ir *key, unsigned mask)
{
    struct schema *x = o->x;
    if (!mask && !o->open) return;
    struct all all = value_set(o, NULL, mask);
    if (all.never) return;
    if (t->member.n == MAX_CLASS)
        grammar_build_fail(x->b, SL_LIMIT, "schema: %.100s: too many kinds of names", o->at.path);
    grammar_ir_list_add(x->b, &t->member,
                        grammar_json_member(x->b, key, grammar_schema_call(x, &all)));
}

static const struct dfa *listed(struct object *o)
{
    struct build *b = o->x->b;
    struct ir_list l = {0};
    for (uint32_t i = 0; i < o->n_name; i++)
        grammar_ir_list_add(b, &l, grammar_ir_lit(b, o->name[i].p, o->name[i].n));
    return grammar_dfa_of(b, grammar_ir_alt(b, l.v, l.n));
}

/* All names that are not listed and match what names must. */
static const struct dfa *other_names(struct object *o)
{
    struct schema *x = o->x;
    const struct dfa *d = grammar_dfa_not(x->b, listed(o));
    for (const struct fact *e = o->f->names; e && d; e = e->next) {
        struct one *one = grammar_build_alloc(x->b, 1, sizeof *one);
        if (!one) return NULL;
        one[0] = (struct one){e->at, IS};
        struct all all = grammar_schema_all(x, one, 1);
        if (all.n == 0 && !all.never) continue;
        const struct dfa *s = grammar_schema_strings(x, &all);
        if (!s) grammar_schema_cannot(x, &e->at, NULL, "is not supported here");
        if (s) d = grammar_dfa_and(x->b, d, s);
    }
    return d;
}

/* Split the names d by the patterns from k on. Recursion: over patterns. */
static void split(struct object *o, struct others *t, const struct dfa *d, uint32_t k,
                  unsigned mask)
{
    struct build *b = o->x->b;
    if (b->st || (d && d->n == 0)) return;
    if (!d) {
        grammar_build_fail(b, SL_LIMIT, "schema: %.100s: names: too many states", o->at.path);
        return;
    }
    if (k == o->n_pattern) {
        add_class(o, t, grammar_json_quoted(b, grammar_ir_auto(b, d, true)), mask);
        return;
    }
    const struct dfa *p = o->pattern[k].dfa;
    split(o, t, grammar_dfa_and(b, d, p), k + 1, mask | 1u << k);
    split(o, t, grammar_dfa_and(b, d, grammar_dfa_not(b, p)), k + 1, mask);
}

static void others(struct object *o, struct others *t)
{
    struct build *b = o->x->b;
    if (o->n_pattern || (o->f->names && o->open)) {
        split(o, t, other_names(o), 0, 0);
        return;
    }
    if (!o->open) return;
    struct json *m = grammar_build_alloc(b, (size_t)o->n_name + 1, sizeof *m);
    const struct json **v = grammar_build_alloc(b, (size_t)o->n_name + 1, sizeof *v);
    if (!m || !v) return;
    for (uint32_t i = 0; i < o->n_name; i++) {
        m[i] = (struct json){.key = o->name[i].p, .n_key = (uint32_t)o->name[i].n};
        v[i] = &m[i];
    }
    add_class(o, t,
              o->n_name ? grammar_schema_other_key(b, v, o->n_name)
                        : grammar_shared(b, SHARED_STRING),
              0);
}

/* ---- together ---- */

struct chain {
    const struct ir **part;
    bool *must;
    uint32_t n, n_must;
    const struct ir *other; /* NULL = none */
};

/* Members in their order without counts. */
static const struct ir *plain_chain(struct build *b, const struct chain *c)
{
    struct ir *e = grammar_build_alloc(b, 1, sizeof *e);
    if (!e) return grammar_ir_never(b);
    const struct ir *close =
        grammar_ir_seqv(b, grammar_json_ws(b), grammar_ir_litz(b, "}"), NULL, NULL);
    *e = (struct ir){.kind = IR_CHAIN,
                     .n = c->n,
                     .kid = c->part,
                     .must = c->must,
                     .sep = grammar_json_comma(b),
                     .tail = close,
                     .tail0 = grammar_ir_litz(b, "}")};
    if (c->other) {
        const struct ir *more = grammar_ir_rep(
            b, grammar_ir_seqv(b, grammar_json_comma(b), c->other, NULL, NULL), 0, GRAMMAR_INF);
        const struct ir *k[2] = {e->tail0, grammar_ir_seqv(b, c->other, more, close, NULL)};
        e->tail = grammar_ir_seqv(b, more, close, NULL, NULL);
        e->tail0 = grammar_ir_alt(b, k, 2);
    }
    return e;
}

struct counted {
    struct build *b;
    struct ir_arc *arc;
    uint32_t n, most; /* most: the last count that is told apart */
    uint32_t n_state;
};

static void arc(struct counted *g, uint32_t i, uint32_t c, uint32_t to, uint32_t to_c,
                const struct ir *e)
{
    if (g->arc)
        g->arc[g->n++] = (struct ir_arc){i * (g->most + 1) + c, to * (g->most + 1) + to_c, e};
}

/* The same with lo to hi members: a state for each place in the order and count so far. */
static const struct ir *counted_chain(struct build *b, const struct chain *c, uint32_t lo,
                                      uint32_t hi)
{
    struct counted g = {.b = b, .most = BASE_MAX(hi == GRAMMAR_INF ? lo : hi, 1u)};
    g.n_state = (c->n + 1) * (g.most + 1);
    g.arc = grammar_build_alloc(b, (size_t)g.n_state * 3 + 3, sizeof *g.arc);
    const struct ir *close =
        grammar_ir_seqv(b, grammar_json_ws(b), grammar_ir_litz(b, "}"), NULL, NULL);
    for (uint32_t i = 0; i <= c->n && g.arc; i++)
        for (uint32_t k = 0; k <= g.most; k++) {
            const struct ir *part = i < c->n ? c->part[i] : c->other;
            uint32_t next = BASE_MIN(k + 1, g.most), to = i < c->n ? i + 1 : i;
            if (part && k) part = grammar_ir_seqv(b, grammar_json_comma(b), part, NULL, NULL);
            if (part && (hi == GRAMMAR_INF || k < hi)) arc(&g, i, k, to, next, part);
            if (i < c->n && !c->must[i]) arc(&g, i, k, i + 1, k, grammar_ir_empty(b));
            if (i == c->n && k >= lo && g.arc)
                g.arc[g.n++] = (struct ir_arc){i * (g.most + 1) + k, g.n_state,
                                               k ? close : grammar_ir_litz(b, "}")};
        }
    return grammar_ir_graph(b, g.arc, g.n, g.n_state);
}

static bool parts(struct object *o, struct chain *c, bool counted)
{
    struct build *b = o->x->b;
    c->part = grammar_build_alloc(b, (size_t)o->n_name + 1, sizeof *c->part);
    c->must = grammar_build_alloc(b, (size_t)o->n_name + 1, 1);
    if (!c->part || !c->must) return false;
    for (uint32_t i = 0; i < o->n_name && !b->st; i++) {
        const struct name *m = &o->name[i];
        struct all all = named_set(o, m);
        if (all.never && !m->must) continue;
        const struct ir *key = grammar_json_quoted(b, grammar_ir_lit_json(b, m->p, m->n));
        const struct ir *e = grammar_json_member(b, key, grammar_schema_call(o->x, &all));
        c->must[c->n] = m->must;
        c->n_must += m->must;
        c->part[c->n++] = counted ? rule_of(o, e) : e;
    }
    return !b->st;
}

/* Bounds on the number of members that are to be counted. */
static bool counts(struct object *o, const struct chain *c, uint32_t *lo, uint32_t *hi)
{
    struct schema *x = o->x;
    *lo = o->f->min_prop;
    *hi = o->f->max_prop;
    if (*lo <= c->n_must) *lo = 0;
    if (!c->other && *hi >= c->n) *hi = GRAMMAR_INF;
    if (*lo > c->n_must + 1 && c->other) /* the same name may come twice */
        grammar_schema_cannot(x, &o->at, "minProperties",
                              "more than one of names that are not listed is not supported");
    if (*lo == 0 && *hi == GRAMMAR_INF) return false;
    uint64_t most = *hi == GRAMMAR_INF ? *lo : *hi;
    if ((most + 1) * (c->n + 1) <= MAX_GRAPH) return true;
    grammar_schema_cannot(x, &o->at, *hi == GRAMMAR_INF ? "minProperties" : "maxProperties",
                          "too large for so many members");
    return false;
}

const struct ir *grammar_schema_object(struct schema *x, const struct place *at, struct facts *f)
{
    struct build *b = x->b;
    struct object o = {.x = x, .f = f, .at = *at};
    struct chain c = {.n = 0};
    struct others t = {.some = false};
    uint32_t lo, hi;
    if (f->object) o.at = f->object->at;
    if (!f->object && !f->has && !f->lacks && !f->also && !f->names && !f->min_prop &&
        f->max_prop == GRAMMAR_INF && !f->rest)
        return grammar_shared(b, SHARED_OBJECT);
    if (!gather(&o)) return grammar_ir_never(b);
    if (!parts(&o, &c, f->min_prop > 0 || f->max_prop != GRAMMAR_INF)) return grammar_ir_never(b);
    if (f->min_prop > c.n && !f->rest) { /* it must have more than are listed */
        bool none = false;
        for (uint32_t i = 0; i < o.n_view; i++)
            none |= o.view[i].more && o.view[i].more->kind == JSON_BOOL_K && !o.view[i].more->b;
        o.open |= !none && !fixed_names(&o);
    }
    others(&o, &t);
    if (t.member.n) c.other = rule_of(&o, grammar_ir_alt(b, t.member.v, t.member.n));
    const struct ir *open =
        grammar_ir_seqv(b, grammar_ir_litz(b, "{"), grammar_json_ws(b), NULL, NULL);
    const struct ir *chain =
        counts(&o, &c, &lo, &hi) ? counted_chain(b, &c, lo, hi) : plain_chain(b, &c);
    return grammar_ir_seqv(b, open, chain, NULL, NULL);
}
