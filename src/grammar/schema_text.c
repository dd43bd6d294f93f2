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
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

/* clang-format off */
static const struct {
    const char *name, *pattern;
} format[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:[0-9]{1,4}W|(?:[0-9]{1,4}Y(?:[0-9]{1,2}M(?:[0-9]{1,2}D)?)?|[0-9]{1,2}M(?:[0-9]{1,2}D)?|[0-9]{1,4}D)"
                 "(?:T(?:[0-9]{1,2}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,2}M(?:[0-9]{1,2}S)?|[0-9]{1,2}S))?|"
                 "T(?:[0-9]{1,2}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,2}M(?:[0-9]{1,2}S)?|[0-9]{1,2}S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30}){0,3}@" LABEL "(?:\\." LABEL "){1,4}"},
    {"hostname", LABEL "(?:\\." LABEL "){0,5}"},
    {"ipv4", "(?:" BYTE "\\.){3}" BYTE},
    {"ipv6", "(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|::(?:[0-9a-f]{1,4}:){0,5}[0-9a-f]{1,4}|"
             "[0-9a-f]{1,4}::(?:[0-9a-f]{1,4}:){0,4}[0-9a-f]{1,4}|::"},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" LABEL "(?:\\." LABEL "){0,5}(?::[1-9][0-9]{0,3})?"
            "(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?(?:#[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?"},
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

static const struct ir *quoted(struct build *b, const struct ir *e)
{
    const struct ir *q = grammar_ir_litz(b, "\"");
    return grammar_ir_seqv(b, q, e, q, NULL);
}

static const struct ir *formatted(struct schema *x, const struct place *at, const struct json *f)
{
    for (int i = 0; f->kind == JSON_STR_K && i < BASE_COUNT_OF(format); i++)
        if (strcmp(format[i].name, f->s) == 0)
            return quoted(x->b, grammar_pattern(x->b, format[i].pattern, strlen(format[i].pattern),
                                                true, false, f->s));
    grammar_schema_bad(x, at, "format", "this format is not supported");
    return grammar_ir_never(x->b);
}

static const struct ir *patterned(struct schema *x, const struct place *at, const struct json *p,
                                  uint32_t min, uint32_t max)
{
    struct build *b = x->b;
    struct place here = grammar_schema_at(x, at, p, "pattern", 0);
    if (p->kind != JSON_STR_K) {
        grammar_schema_bad(x, at, "pattern", "must be a string");
        return grammar_ir_never(b);
    }
    const struct ir *e = grammar_pattern(b, p->s, p->n, true, true, here.path);
    if (min == 0 && max == GRAMMAR_INF) return quoted(b, e);
    /* lengths: of one repeated class they are its counts */
    uint32_t lo = 1, hi = 1;
    const struct ir *one = e;
    if (e->kind == IR_REP) {
        one = e->kid[0];
        lo = e->min;
        hi = e->max;
    }
    if (one->kind != IR_CLASS) {
        grammar_schema_bad(x, at, "pattern",
                           "together with minLength or maxLength only one repeated class, as in "
                           "^[a-z]*$, is supported");
        return grammar_ir_never(b);
    }
    lo = BASE_MAX(lo, min);
    hi = BASE_MIN(hi, max);
    return lo > hi ? grammar_ir_never(b) : quoted(b, grammar_ir_rep(b, one, lo, hi));
}

const struct ir *grammar_schema_string(struct schema *x, const struct place *at)
{
    const struct json *f = text_json_get(at->v, "format"), *p = text_json_get(at->v, "pattern");
    uint32_t min, max;
    if (!grammar_schema_count(x, at, "minLength", 0, &min) ||
        !grammar_schema_count(x, at, "maxLength", GRAMMAR_INF, &max))
        return grammar_ir_never(x->b);
    bool length = min > 0 || max != GRAMMAR_INF;
    if (f && (p || length)) {
        grammar_schema_bad(x, at, "format",
                           "is not supported together with pattern, minLength or maxLength");
        return grammar_ir_never(x->b);
    }
    if (f) return formatted(x, at, f);
    if (p) return patterned(x, at, p, min, max);
    if (!length) return grammar_shared(x->b, SHARED_STRING);
    if (min > max) return grammar_ir_never(x->b);
    return quoted(x->b, grammar_ir_rep(x->b, grammar_schema_char(x->b, true), min, max));
}

/* ---- keys of additional properties ---- */

struct key_node {
    uint32_t child, sibling; /* 0 = none */
    uint32_t cp;
    bool ends;
    int rule;
};

/* Put the name into the trie; a name that needs an escape can not be spelled by other keys, which
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

/* Behind the characters that lead to node i: anything that is no name. */
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
