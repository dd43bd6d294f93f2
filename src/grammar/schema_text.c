/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: lengths, patterns, formats. Formats are patterns that accept a subset of what the format
 * allows, so that every validator agrees. */
#include <string.h>

#include "grammar/schema_internal.h"
#include "text/utf8.h"

#define D2 "[0-9]{2}"
#define DATE                                                                                       \
    "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-"                                   \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"      \
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|"                                                                \
    "(?:" D2 "(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"                                 \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
#define SHORT "[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

/* clang-format off */
/* The first is the one without bounds on the length; shorter ones follow for those. */
static const struct {
    const char *name, *pattern;
} format[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:[0-9]{1,4}W|(?:[0-9]{1,4}Y(?:[0-9]{1,2}M(?:[0-9]{1,2}D)?)?|[0-9]{1,2}"
                 "M(?:[0-9]{1,2}D)?|[0-9]{1,4}D)"
                 "(?:T(?:[0-9]{1,2}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,2}M(?:[0-9]{1,2}S)?|"
                 "[0-9]{1,2}S))?|"
                 "T(?:[0-9]{1,2}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,2}M(?:[0-9]{1,2}S)?|"
                 "[0-9]{1,2}S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30}){0,3}@"
     LABEL "(?:\\." LABEL "){1,4}"},
    {"email", "[A-Za-z0-9_+-]{1,20}(?:\\.[A-Za-z0-9_+-]{1,20})?@" SHORT "(?:\\." SHORT "){1,2}"},
    {"hostname", LABEL "(?:\\." LABEL "){0,5}"},
    {"hostname", SHORT "(?:\\." SHORT "){0,2}"},
    {"ipv4", "(?:" BYTE "\\.){3}" BYTE},
    {"ipv6", "(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|::(?:[0-9a-f]{1,4}:){0,5}[0-9a-f]{1,4}|"
             "[0-9a-f]{1,4}::(?:[0-9a-f]{1,4}:){0,4}[0-9a-f]{1,4}|::"},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" LABEL "(?:\\." LABEL "){0,5}(?::[1-9][0-9]{0,3})?"
            "(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[A-Za-z0-9._~!$&'()*+,"
            ";=:@/?-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" LABEL "(?:\\." LABEL "){0,5}(?::[1-9][0-9]{0,3})?"
            "(?:/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,400})?(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,200}"
            ")?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,100})?"},
    {"uri", "[a-z]{1,8}://" SHORT "(?:\\." SHORT "){0,2}(?:/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,100}"
                                                 ")?(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,60})?"},
    {"uri", "https?://" SHORT "(?:\\." SHORT ")?(?:/[A-Za-z0-9._~-]{0,20})?"},
};
/* clang-format on */

const struct ir *grammar_schema_char(struct build *b, bool counted)
{
    static const struct ir_range ascii[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7f}},
                                 all[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    const struct ir *kid[2] = {grammar_ir_class(b, counted ? ascii : all, 3, false, false),
                               grammar_shared(b, counted ? SHARED_WIDE : SHARED_ESCAPE)};
    struct ir *e = (struct ir *)grammar_ir_alt(b, kid, 2);
    if (e->kind == IR_ALT) e->plain = true;
    return e;
}

static const char *format_pattern(const struct json *f)
{
    for (int i = 0; i < BASE_COUNT_OF(format); i++)
        if (strcmp(format[i].name, f->s) == 0) return format[i].pattern;
    return NULL;
}

/* ---- automata ---- */

struct cached {
    struct cached *next;
    const char *p;
    size_t n;
    const struct dfa *dfa; /* NULL = not held */
};

const struct dfa *grammar_schema_pattern(struct schema *x, const struct place *at,
                                         const struct json *p)
{
    struct build *b = x->b;
    struct cached *c = x->cached;
    for (; c; c = c->next)
        if (c->n == p->n && c->n && memcmp(c->p, p->s, p->n) == 0) return c->dfa;
    struct place here = grammar_schema_at(x, at, p, p->key ? p->key : NULL, 0);
    const struct ir *e = grammar_pattern(b, p->s, p->n, false, true, here.path);
    const struct dfa *d = b->st ? NULL : grammar_dfa_of(b, e);
    if (b->st) (void)grammar_schema_forgive(x, at, "pattern");
    c = grammar_build_alloc(b, 1, sizeof *c);
    if (!c) return NULL;
    *c = (struct cached){x->cached, p->s, p->n, d};
    x->cached = c;
    return d;
}

/* The automaton of a pattern that the whole text matches. */
static const struct dfa *whole_dfa(struct schema *x, const char *p)
{
    struct build *b = x->b;
    struct cached *c = x->cached;
    while (c && c->p != p)
        c = c->next;
    if (c) return c->dfa;
    c = grammar_build_alloc(b, 1, sizeof *c);
    if (!c) return NULL;
    *c = (struct cached){x->cached, p, 0, NULL};
    c->dfa = grammar_dfa_of(b, grammar_pattern(b, p, strlen(p), false, false, "format"));
    x->cached = c;
    return c->dfa;
}

/* A format in texts of at most max characters: the first form of it that is no longer, else its
 * shortest form. */
static const struct dfa *format_dfa(struct schema *x, const char *name, uint32_t max)
{
    const struct dfa *d = NULL;
    for (int i = 0; i < BASE_COUNT_OF(format); i++) {
        if (strcmp(format[i].name, name) != 0) continue;
        d = whole_dfa(x, format[i].pattern);
        if (d && (max == GRAMMAR_INF || grammar_dfa_longest(x->b, d) <= max)) return d;
    }
    return d;
}

/* Strings that are not wanted as values. */
static const struct dfa *unwanted(struct build *b, const struct fact *except)
{
    struct ir_list l = {0};
    for (const struct fact *e = except; e; e = e->next)
        for (const struct json *v = e->neg ? e->v->child : e->v; v; v = e->neg ? v->next : NULL)
            if (v->kind == JSON_STR_K) grammar_ir_list_add(b, &l, grammar_ir_lit(b, v->s, v->n));
    return l.n ? grammar_dfa_of(b, grammar_ir_alt(b, l.v, l.n)) : NULL;
}

struct same_string {
    struct same_string *next;
    const char *key;
    size_t n;
    int rule;
};

struct meet {
    struct schema *x;
    const struct place *at;
    const struct dfa *d; /* NULL = all strings so far */
};

/* Join with e; where that is too large, e is not held. */
static void meet(struct meet *m, const struct place *at, const char *key, const struct dfa *e,
                 bool neg)
{
    struct build *b = m->x->b;
    if (e && neg) e = grammar_dfa_not(b, e);
    const struct dfa *d = e && m->d ? grammar_dfa_and(b, m->d, e) : e;
    if (d)
        m->d = d;
    else if (!b->st)
        grammar_schema_cannot(m->x, at, key,
                              "too many states together with the keywords beside it");
}

/* All that the facts say of a string but formats when without is set. */
static const struct dfa *joined(struct schema *x, const struct place *at, struct facts *f)
{
    struct build *b = x->b;
    struct meet m = {x, at, NULL};
    for (const struct fact *e = f->pattern; e; e = e->next)
        meet(&m, &e->at, "pattern", grammar_schema_pattern(x, &e->at, e->v), e->neg);
    for (const struct fact *e = f->format; e; e = e->next)
        if (format_pattern(e->v))
            meet(&m, &e->at, "format", format_dfa(x, e->v->s, f->max_len), false);
    const struct dfa *no = unwanted(b, f->except);
    if (no) meet(&m, at, "not", no, true);
    uint32_t max = f->max_len;
    if (m.d && max != GRAMMAR_INF && grammar_dfa_longest(b, m.d) <= max) max = GRAMMAR_INF;
    if (f->min_len || max != GRAMMAR_INF)
        meet(&m, at, f->max_len == GRAMMAR_INF ? "minLength" : "maxLength",
             grammar_dfa_length(b, f->min_len, max), false);
    return m.d ? m.d : grammar_dfa_length(b, 0, GRAMMAR_INF);
}

const struct dfa *grammar_schema_strings(struct schema *x, const struct all *all)
{
    struct build *b = x->b;
    struct opened o = {0};
    const struct dfa *sum = NULL;
    grammar_schema_open(x, all, &o);
    for (uint32_t i = 0; i < o.n && !b->st; i++) {
        struct facts *f = &o.v[i];
        const struct dfa *d = NULL;
        struct ir_list l = {0};
        if (f->call)
            d = grammar_schema_strings(x, f->call);
        else if (!f->value)
            d = f->types & T_STR ? joined(x, &all->one[0].at, f) : grammar_dfa_length(b, 1, 0);
        for (const struct json *v = f->value && f->value->neg ? f->value->v->child
                                    : f->value                ? f->value->v
                                                              : NULL;
             v; v = f->value->neg ? v->next : NULL)
            if (v->kind == JSON_STR_K && grammar_schema_holds_all(x, all, v) == YES)
                grammar_ir_list_add(b, &l, grammar_ir_lit(b, v->s, v->n));
        if (f->value) d = grammar_dfa_of(b, grammar_ir_alt(b, l.v, l.n));
        sum = sum && d ? grammar_dfa_or(b, sum, d) : d;
        if (!d) break;
    }
    bool none = !o.n;
    mem_free(o.v);
    return none ? grammar_dfa_length(b, 1, 0) : sum;
}

/* ---- text ---- */

static const struct ir *characters(struct build *b, uint32_t min, uint32_t max)
{
    if (min > max) return grammar_ir_never(b);
    return grammar_json_quoted(b,
                               grammar_ir_count(b, grammar_schema_char(b, true), min, max, 1024));
}

/* One pattern and perhaps lengths; NULL: not that simple. */
static const struct ir *patterned(struct schema *x, const struct fact *p, const struct facts *f)
{
    struct build *b = x->b;
    struct place here = grammar_schema_at(x, &p->at, p->v, "pattern", 0);
    bool length = f->min_len > 0 || f->max_len != GRAMMAR_INF;
    const struct ir *e = grammar_pattern(b, p->v->s, p->v->n, true, true, here.path);
    if (b->st) return NULL;
    if (!length) return grammar_json_quoted(b, e);
    /* lengths: of one repeated class they are its counts */
    uint32_t lo = e->kind == IR_REP ? e->min : 1, hi = e->kind == IR_REP ? e->max : 1;
    const struct ir *one = e->kind == IR_REP ? e->kid[0] : e;
    if (one->kind != IR_CLASS) return NULL;
    lo = BASE_MAX(lo, f->min_len);
    hi = BASE_MIN(hi, f->max_len);
    if (lo > hi) return grammar_ir_never(b);
    return grammar_json_quoted(b, grammar_ir_count(b, one, lo, hi, 1024));
}

static bool has_text(const struct fact *except)
{
    for (const struct fact *e = except; e; e = e->next)
        for (const struct json *v = e->neg ? e->v->child : e->v; v; v = e->neg ? v->next : NULL)
            if (v->kind == JSON_STR_K) return true;
    return false;
}

static const struct ir *text(struct schema *x, const struct place *at, struct facts *f)
{
    struct build *b = x->b;
    const struct fact *p = f->pattern, *known = NULL;
    const struct ir *e = NULL;
    for (const struct fact *o = f->format; o; o = o->next)
        if (format_pattern(o->v)) known = o;
    bool length = f->min_len > 0 || f->max_len != GRAMMAR_INF, except = has_text(f->except);
    if (f->min_len > f->max_len || b->st) return grammar_ir_never(b);
    if (!p && !known && !except)
        return length ? characters(b, f->min_len, f->max_len) : grammar_shared(b, SHARED_STRING);
    if (!p && known && !length && !except && !f->format->next) {
        const char *z = format_pattern(known->v);
        return grammar_json_quoted(b, grammar_pattern(b, z, strlen(z), true, false, known->v->s));
    }
    if (p && !p->next && !p->neg && !known && !except) e = patterned(x, p, f);
    if (e) return e;
    if (b->st && !(p && grammar_schema_forgive(x, &p->at, "pattern"))) return grammar_ir_never(b);
    const struct dfa *d = joined(x, at, f);
    if (!d && !b->st) grammar_schema_cannot(x, at, NULL, "too many states");
    return d ? grammar_json_quoted(b, grammar_ir_auto(b, d, true))
             : grammar_shared(b, SHARED_STRING);
}

/* What a string must match as a text of its own, for those that are worth a rule; false: not so. */
static bool string_key(struct str *s, const struct facts *f)
{
    if (f->except || (!f->pattern && !f->format && f->max_len == GRAMMAR_INF && f->min_len < 64))
        return false;
    str_printf(s, "%u %u", f->min_len, f->max_len);
    for (const struct fact *e = f->format; e; e = e->next)
        str_printf(s, " f%s", e->v->s);
    for (const struct fact *e = f->pattern; e; e = e->next) {
        str_printf(s, " %c%zu ", e->neg ? 'n' : 'p', e->v->n);
        str_put(s, e->v->s, e->v->n);
    }
    return true;
}

/* The same strings in many places are one rule. */
const struct ir *grammar_schema_string(struct schema *x, const struct place *at, struct facts *f)
{
    struct build *b = x->b;
    struct str s;
    struct same_string *r = NULL;
    str_init(&s, MEM_REQUEST, 0);
    bool shared = string_key(&s, f) && !s.failed;
    for (r = shared ? x->strings : NULL; r; r = r->next)
        if (r->n == s.n && memcmp(r->key, str_c(&s), s.n) == 0) break;
    if (shared && !r && (r = grammar_build_alloc(b, 1, sizeof *r))) {
        char *key = grammar_build_alloc(b, s.n + 1, 1);
        if (key) memcpy(key, str_c(&s), s.n);
        *r = (struct same_string){x->strings, key, s.n,
                                  grammar_rule_new(b, at->path, strlen(at->path))};
        if (key) x->strings = r;
        grammar_rule_set(b, r->rule, text(x, at, f));
    }
    str_fini(&s);
    return r ? grammar_ir_call(b, r->rule) : text(x, at, f);
}

/* ---- keys of additional properties ---- */

struct key_node {
    uint32_t child, sibling; /* 0 = none */
    uint32_t cp;
    bool ends;
    int rule;
};

/* Put the name into the trie; a name that needs an escape cannot be spelled by other keys, which
 * have none. */
static void add_name(struct build *b, struct key_node *t, uint32_t *n, const struct json *name)
{
    uint32_t at = 0;
    for (size_t i = 0; i < name->n_key && !b->st;) {
        uint32_t cp = 0, k;
        i += (size_t)text_utf8_decode(name->key + i, name->n_key - i, &cp);
        if (cp < 0x20 || cp == '"' || cp == '\\') return;
        for (k = t[at].child; k && t[k].cp != cp;)
            k = t[k].sibling;
        if (!k) {
            k = (*n)++;
            t[k] = (struct key_node){.cp = cp, .sibling = t[at].child};
            t[at].child = k;
        }
        at = k;
    }
    t[at].ends = true;
}

/* After the characters that lead to node i: anything that is no name. */
static const struct ir *other_tail(struct build *b, struct key_node *t, uint32_t i,
                                   const struct ir *rest)
{
    struct ir_list l = {0};
    uint32_t n = 4;
    for (uint32_t k = t[i].child; k; k = t[k].sibling)
        n++;
    struct ir_range *r = grammar_build_alloc(b, n, sizeof *r);
    if (!r) return grammar_ir_never(b);
    r[0] = (struct ir_range){0, 0x1f};
    r[1] = (struct ir_range){'"', '"'};
    r[2] = (struct ir_range){'\\', '\\'};
    n = 3;
    for (uint32_t k = t[i].child; k; k = t[k].sibling) {
        char u[TEXT_UTF8_MAX];
        r[n++] = (struct ir_range){t[k].cp, t[k].cp};
        if (!t[k].rule) t[k].rule = grammar_rule_new(b, "other key", 9);
        const struct ir *c = grammar_ir_lit(b, u, (size_t)text_utf8_encode(t[k].cp, u));
        grammar_ir_list_add(b, &l,
                            grammar_ir_seqv(b, c, grammar_ir_call(b, t[k].rule), NULL, NULL));
    }
    grammar_ir_list_add(
        b, &l, grammar_ir_seqv(b, grammar_ir_class(b, r, n, true, false), rest, NULL, NULL));
    if (!t[i].ends) grammar_ir_list_add(b, &l, grammar_ir_litz(b, "\""));
    return grammar_ir_alt(b, l.v, l.n);
}

const struct ir *grammar_schema_other_key(struct build *b, const struct json *const *name, size_t n)
{
    static const struct ir_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}};
    size_t total = 1;
    uint32_t n_node = 1;
    for (size_t i = 0; i < n; i++)
        total += name[i]->n_key;
    struct key_node *t = grammar_build_alloc(b, total, sizeof *t);
    if (!t) return grammar_ir_never(b);
    for (size_t i = 0; i < n; i++)
        add_name(b, t, &n_node, name[i]);
    int rest = grammar_rule_new(b, "other key", 9);
    grammar_rule_set(b, rest,
                     grammar_ir_seqv(b,
                                     grammar_ir_rep(b, grammar_ir_class(b, plain, 3, false, false),
                                                    0, GRAMMAR_INF),
                                     grammar_ir_litz(b, "\""), NULL, NULL));
    const struct ir *call = grammar_ir_call(b, rest), *first = other_tail(b, t, 0, call);
    for (uint32_t i = 1; i < n_node && !b->st; i++)
        grammar_rule_set(b, t[i].rule, other_tail(b, t, i, call));
    return grammar_ir_seqv(b, grammar_ir_litz(b, "\""), first, NULL, NULL);
}
