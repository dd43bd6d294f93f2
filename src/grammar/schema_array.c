/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: items by their place, how many there are, how many of them match what contains says, and
 * none twice where they are few values. */
#include <string.h>

#include "grammar/schema_internal.h"

#define MAX_GRAPH 4096 /* states of an array whose items are counted or told apart */

struct array {
    struct schema *x;
    struct facts *f;
    struct place at;
    uint32_t n_prefix, min, max; /* max: also where nothing may follow the prefix */
};

struct item_schemas { /* of one schema */
    const struct json *pre, *rest;
    const char *pre_key, *rest_key;
};

static struct item_schemas schemas_of(const struct json *v)
{
    struct item_schemas s = {text_json_get(v, "prefixItems"), text_json_get(v, "items"),
                             "prefixItems", "items"};
    if (s.rest && s.rest->kind == JSON_ARRAY_K)
        s = (struct item_schemas){s.rest, text_json_get(v, "additionalItems"), "items",
                                  "additionalItems"};
    const struct json *u = text_json_get(v, "unevaluatedItems");
    if (!s.rest && u && u->kind == JSON_BOOL_K && u->b) s.rest = u;
    return s;
}

/* What the item in place i matches; with: also this schema. */
static struct all item_set(const struct array *a, uint32_t i, const struct fact *with, bool neg)
{
    struct schema *x = a->x;
    uint32_t n = 0, cap = 2;
    bool any = false;
    for (const struct fact *l = a->f->array; l; l = l->next)
        cap++;
    struct one *one = grammar_build_alloc(x->b, cap, sizeof *one);
    if (!one) return (struct all){NULL, 0, true};
    for (const struct fact *l = a->f->array; l; l = l->next) {
        struct item_schemas s = schemas_of(l->at.v);
        if (s.pre && i < s.pre->n) {
            struct place list = grammar_schema_at(x, &l->at, s.pre, s.pre_key, 0);
            one[n++] = (struct one){grammar_schema_at(x, &list, s.pre->item[i], NULL, i), IS};
        } else if (s.rest) {
            one[n++] = (struct one){grammar_schema_at(x, &l->at, s.rest, s.rest_key, 0), IS};
        } else {
            continue;
        }
        any = true;
    }
    if (!any && a->f->rest_items) one[n++] = (struct one){a->f->rest_items->at, IS};
    if (with) one[n++] = (struct one){with->at, with->neg != neg ? NOT : IS};
    return grammar_schema_all(x, one, n);
}

static const struct ir *item(const struct array *a, uint32_t i)
{
    struct all all = item_set(a, i, NULL, false);
    return grammar_schema_call(a->x, &all);
}

static void read_array(struct array *a)
{
    bool ends = false, goes_on = false;
    for (const struct fact *l = a->f->array; l; l = l->next) {
        struct item_schemas s = schemas_of(l->at.v);
        if (s.pre) a->n_prefix = BASE_MAX(a->n_prefix, (uint32_t)s.pre->n);
        ends |= s.pre && !s.rest;
        goes_on |= s.rest != NULL;
    }
    a->min = a->f->min_item;
    a->max = a->f->max_item;
    for (uint32_t i = 0; i <= a->n_prefix && i < a->max; i++)
        if (item_set(a, i, NULL, false).never) a->max = i; /* the first that cannot be */
    /* after a prefix nothing follows by itself, as in tuples */
    if (ends && !goes_on && !a->f->rest_items && a->min <= a->n_prefix && !a->f->contains)
        a->max = BASE_MIN(a->max, a->n_prefix);
    if (a->n_prefix > a->max) a->n_prefix = a->max;
}

static const struct ir *more(struct build *b, const struct ir *e)
{
    return grammar_ir_seqv(b, grammar_json_comma(b), e, NULL, NULL);
}

/* From item i on, where something came before when i > 0. Recursion: over the prefix. */
static const struct ir *from(const struct array *a, uint32_t i)
{
    struct build *b = a->x->b;
    const struct ir *e;
    if (i < a->n_prefix) {
        e = grammar_ir_seqv(b, i ? grammar_json_comma(b) : grammar_ir_empty(b), item(a, i),
                            from(a, i + 1), NULL);
        return i >= a->min ? grammar_ir_opt(b, e) : e;
    }
    uint32_t min = a->min > i ? a->min - i : 0, max = a->max == GRAMMAR_INF ? a->max : a->max - i;
    if (max == 0) return grammar_ir_empty(b);
    const struct ir *one = item(a, i);
    if (i) return grammar_ir_count(b, more(b, one), min, max, 64);
    e = grammar_ir_seqv(b, one,
                        grammar_ir_count(b, more(b, one), min ? min - 1 : 0,
                                         max == GRAMMAR_INF ? max : max - 1, 64),
                        NULL, NULL);
    return min ? e : grammar_ir_opt(b, e);
}

/* ---- contains ---- */

struct graph {
    struct build *b;
    struct ir_list e;
    struct ir_arc *arc;
    uint32_t n, cap, n_state;
};

static void arc(struct graph *g, uint32_t from, uint32_t to, const struct ir *e)
{
    if (g->n == g->cap) {
        uint32_t cap = g->cap ? 2 * g->cap : 64;
        struct ir_arc *p = grammar_build_alloc(g->b, cap, sizeof *p);
        if (!p) return;
        if (g->n) memcpy(p, g->arc, g->n * sizeof *p);
        g->arc = p;
        g->cap = cap;
    }
    g->arc[g->n++] = (struct ir_arc){from, to, e};
}

/* States: (place, as far as places differ; items so far that match). */
static const struct ir *containing(const struct array *a)
{
    struct build *b = a->x->b;
    const struct fact *c = a->f->contains;
    struct graph g = {.b = b};
    uint32_t most = c->max == GRAMMAR_INF ? c->min : c->max;
    uint64_t places = BASE_MAX(a->n_prefix, a->max == GRAMMAR_INF ? a->min : a->max);
    places = BASE_MAX(places, 1);
    if (c->min > c->max) return grammar_ir_never(b);
    if ((places + 1) * ((uint64_t)most + 1) > MAX_GRAPH || c->next) {
        grammar_schema_cannot(a->x, &c->at, NULL,
                              c->next ? "a second contains is not supported" : "too large");
        return from(a, 0);
    }
    g.n_state = ((uint32_t)places + 1) * (most + 1);
    for (uint32_t i = 0; i <= places && !b->st; i++) {
        struct all yes = item_set(a, i, c, false), no = item_set(a, i, c, true);
        bool last = i == places;
        for (uint32_t k = 0; k <= most; k++) {
            uint32_t at = i * (most + 1) + k, next = last ? i : i + 1;
            if (i >= a->min && k >= c->min) arc(&g, at, g.n_state, grammar_ir_empty(b));
            if (a->max != GRAMMAR_INF && i >= a->max) continue;
            /* without an upper bound an item that matches need not be counted */
            if (c->max == GRAMMAR_INF) no = item_set(a, i, NULL, false);
            const struct ir *y = grammar_schema_call(a->x, &yes),
                            *n = grammar_schema_call(a->x, &no);
            if (k < most || c->max == GRAMMAR_INF)
                arc(&g, at, next * (most + 1) + BASE_MIN(k + 1, most), i ? more(b, y) : y);
            arc(&g, at, next * (most + 1) + k, i ? more(b, n) : n);
        }
    }
    return grammar_ir_graph(b, g.arc, g.n, g.n_state);
}

/* ---- uniqueItems ---- */

/* The values that items can have, all of them; false: too many, or not only such. */
static bool few_values(const struct array *a, const struct json **v, uint32_t *n, uint32_t cap)
{
    static const struct json constant[] = {
        {.kind = JSON_NULL_K}, {.kind = JSON_BOOL_K, .b = false}, {.kind = JSON_BOOL_K, .b = true}};
    struct opened o = {0};
    struct all all = item_set(a, 0, NULL, false);
    bool ok = a->n_prefix == 0 && all.n && !all.never;
    if (ok) grammar_schema_open(a->x, &all, &o);
    for (uint32_t i = 0; i < o.n && ok; i++) {
        const struct facts *f = &o.v[i];
        const struct json *from =
            f->value ? f->value->neg ? f->value->v->child : f->value->v : NULL;
        ok = !f->call && (from || !(f->types & ~(unsigned)(T_NULL | T_BOOL)));
        for (int k = 0; ok && !from && k < 3; k++) /* null and bools are few by themselves */
            if (grammar_json_types(&constant[k]) & f->types && *n < cap) v[(*n)++] = &constant[k];
        for (; ok && from; from = f->value->neg ? from->next : NULL) {
            bool twice = false;
            for (uint32_t k = 0; k < *n; k++)
                twice |= grammar_json_same(v[k], from);
            if (twice || grammar_schema_holds_all(a->x, &all, from) != YES) continue;
            ok = *n < cap;
            if (ok) v[(*n)++] = from;
        }
    }
    mem_free(o.v);
    return ok && o.n;
}

/* The states of sets of at most max of n values. */
static uint64_t n_sets(uint32_t n, uint32_t max)
{
    uint64_t sum = 0, c = 1;
    for (uint32_t k = 0; k <= BASE_MIN(n, max) && sum <= MAX_GRAPH; k++) {
        sum += c;
        c = c * (n - k) / (k + 1);
    }
    return sum;
}

struct sets {
    uint64_t *v;
    uint32_t n, *slot;
};

static uint32_t set_number(struct sets *s, uint64_t set)
{
    uint32_t h = (uint32_t)(set * 0x9e3779b97f4a7c15u >> 50) & (4 * MAX_GRAPH - 1);
    while (s->slot[h] && s->v[s->slot[h] - 1] != set)
        h = (h + 1) & (4 * MAX_GRAPH - 1);
    if (!s->slot[h]) {
        s->v[s->n] = set;
        s->slot[h] = ++s->n;
    }
    return s->slot[h] - 1;
}

/* Each value once: a state for each set of values so far. NULL: not held. */
static const struct ir *unique(const struct array *a)
{
    struct build *b = a->x->b;
    const struct json *v[64];
    uint32_t n = 0;
    if (!few_values(a, v, &n, 64) || n_sets(n, a->max) > MAX_GRAPH) return NULL;
    struct graph g = {.b = b};
    struct sets s = {grammar_build_alloc(b, MAX_GRAPH + 1, sizeof *s.v), 0,
                     grammar_build_alloc(b, (size_t)4 * MAX_GRAPH, 4)};
    const struct ir *text[64];
    if (!s.v || !s.slot) return NULL;
    for (uint32_t i = 0; i < n; i++)
        text[i] = grammar_json_value(b, v[i]);
    uint32_t max = BASE_MIN(a->max, n);
    g.n_state = (uint32_t)n_sets(n, a->max);
    set_number(&s, 0);
    for (uint32_t i = 0; i < s.n && !b->st; i++) {
        uint32_t k = (uint32_t)__builtin_popcountll(s.v[i]);
        if (k >= a->min) arc(&g, i, g.n_state, grammar_ir_empty(b));
        for (uint32_t j = 0; j < n && k < max; j++)
            if (!(s.v[i] >> j & 1))
                arc(&g, i, set_number(&s, s.v[i] | (uint64_t)1 << j),
                    k ? more(b, text[j]) : text[j]);
    }
    return grammar_ir_graph(b, g.arc, g.n, g.n_state);
}

const struct ir *grammar_schema_array(struct schema *x, const struct place *at, struct facts *f)
{
    struct build *b = x->b;
    struct array a = {.x = x, .f = f, .at = *at};
    const struct ir *inside = NULL;
    if (!f->array && !f->min_item && f->max_item == GRAMMAR_INF && !f->contains && !f->unique &&
        !f->rest_items)
        return grammar_shared(b, SHARED_ARRAY);
    read_array(&a);
    if (a.min > a.max || b->st) return grammar_ir_never(b);
    if (f->unique && a.max > 1 && !f->contains) inside = unique(&a);
    if (f->unique && a.max > 1 && !inside)
        grammar_schema_cannot(x, &f->unique->at, "uniqueItems",
                              "is supported for items of few values (enum)");
    if (!inside) inside = f->contains ? containing(&a) : from(&a, 0);
    return grammar_ir_seqv(
        b, grammar_ir_seqv(b, grammar_ir_litz(b, "["), grammar_json_ws(b), NULL, NULL), inside,
        grammar_json_ws(b), grammar_ir_litz(b, "]"));
}
