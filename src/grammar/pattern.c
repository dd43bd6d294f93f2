/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions as ECMAScript, Python and PCRE agree on them. What is not regular (back
 * references) or where they differ is refused by name. Look-around is held at the two ends, where
 * it is an intersection of languages. Groups nest by recursion, at
 * most GRAMMAR_MAX_DEPTH deep. */
#include <string.h>

#include "grammar/dfa.h"
#include "text/utf8.h"

enum around { BEFORE = 1, AFTER = 2 }; /* anything may stand there unless ^ or $ does */
#define CLASS_MAX 4096                 /* ranges of one class */

struct parser {
    struct build *b;
    const char *p;
    size_t n, i;
    int depth;
    int look; /* inside so many look-arounds */
    bool json;
    const char *what;
};
struct ranges {
    struct ir_range *v;
    size_t n;
};

static void bad(struct parser *q, size_t at, const char *msg)
{
    grammar_build_fail(q->b, SL_REQUEST, "%s: byte %zu: %s", q->what, at, msg);
}

static bool more(const struct parser *q)
{
    return q->i < q->n && !q->b->st;
}

static bool at(const struct parser *q, char c)
{
    return more(q) && q->p[q->i] == c;
}

static uint32_t next_cp(struct parser *q)
{
    uint32_t cp = 0;
    q->i += (size_t)text_utf8_decode(q->p + q->i, q->n - q->i, &cp);
    return cp;
}

static void add_range(struct parser *q, struct ranges *r, uint32_t lo, uint32_t hi)
{
    if (r->n == CLASS_MAX)
        grammar_build_fail(q->b, SL_LIMIT, "%s: more than %d ranges in a class", q->what,
                           CLASS_MAX);
    if (!q->b->st) r->v[r->n++] = (struct ir_range){lo, hi};
}

/* \d \w \s and their opposites; the opposites are those of ECMAScript, \S also without what only
 * Python calls white. */
static bool add_named(struct parser *q, struct ranges *r, char c)
{
    static const struct ir_range digit[] = {{'0', '9'}},
                                 word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                 space[] = {{9, 13}, {' ', ' '}},
                                 white[] = {{9, 13},          {0x1c, 0x20},     {0x85, 0x85},
                                            {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                            {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                            {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    static const struct {
        char c;
        const struct ir_range *v;
        int n;
        bool negate;
    } set[] = {{'d', digit, 1, false}, {'D', digit, 1, true},  {'w', word, 4, false},
               {'W', word, 4, true},   {'s', space, 2, false}, {'S', white, 11, true}};
    for (int i = 0; i < BASE_COUNT_OF(set); i++) {
        uint32_t from = 0;
        if (set[i].c != c) continue;
        for (int k = 0; k < set[i].n; k++) {
            const struct ir_range *v = &set[i].v[k];
            if (!set[i].negate)
                add_range(q, r, v->lo, v->hi);
            else if (v->lo > from)
                add_range(q, r, from, v->lo - 1);
            from = v->hi + 1;
        }
        if (set[i].negate) add_range(q, r, from, 0x10ffff);
        return true;
    }
    return false;
}

/* n hexadecimal digits. */
static uint32_t hex(struct parser *q, int n)
{
    uint32_t v = 0;
    if (!grammar_hex(q->p, q->n, n, &q->i, &v)) {
        bad(q, q->i, "a hexadecimal digit is missing");
        return 0;
    }
    return v;
}

static uint32_t hex_braces(struct parser *q)
{
    uint32_t v = 0;
    size_t from = q->i++;
    while (more(q) && !at(q, '}') && v <= 0x10ffff)
        v = v << 4 | hex(q, 1);
    if (!at(q, '}') || v > 0x10ffff || q->i == from + 1) bad(q, from, "no code point");
    q->i++;
    return v;
}

static uint32_t unicode_escape(struct parser *q)
{
    size_t from = q->i;
    if (at(q, '{')) return hex_braces(q);
    uint32_t v = hex(q, 4);
    if (v >= 0xd800 && v < 0xdc00 && q->i + 6 <= q->n && q->p[q->i] == '\\' &&
        q->p[q->i + 1] == 'u') {
        q->i += 2;
        uint32_t lo = hex(q, 4);
        if (lo >= 0xdc00 && lo < 0xe000) return 0x10000 + ((v & 0x3ff) << 10) + (lo & 0x3ff);
    }
    if (v >= 0xd800 && v < 0xe000) bad(q, from, "a surrogate that is no pair");
    return v;
}

/* After a backslash: one character. */
static uint32_t escape(struct parser *q, bool in_class)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v";
    size_t start = q->i;
    if (!more(q)) {
        bad(q, q->n, "a backslash at the end");
        return 0;
    }
    char c = q->p[q->i];
    const char *hit = c ? strchr(from, c) : NULL;
    if (c == '0' && q->i + 1 < q->n && q->p[q->i + 1] >= '0' && q->p[q->i + 1] <= '9') hit = NULL;
    if (hit) {
        q->i++;
        return (uint32_t)(unsigned char)to[hit - from];
    }
    if (c == 'x' || c == 'u') {
        q->i++;
        if (c == 'u') return unicode_escape(q);
        return at(q, '{') ? hex_braces(q) : hex(q, 2);
    }
    if (in_class && c == 'b') {
        q->i++;
        return 8;
    }
    if (c >= '0' && c <= '9') {
        bad(q, start - 1, "back references are not supported");
        return 0;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        char msg[64] = "\\? is not supported";
        msg[1] = c;
        bad(q, start - 1, c == 'k' ? "back references are not supported" : msg);
        return 0;
    }
    return next_cp(q);
}

/* One end of a range; true when it was a named set, which has no ends. */
static bool class_item(struct parser *q, struct ranges *r, uint32_t *cp)
{
    if (!at(q, '\\')) {
        if (at(q, '[') && q->i + 1 < q->n && strchr(":.=", q->p[q->i + 1]))
            bad(q, q->i, "named classes are not supported");
        *cp = next_cp(q);
        return false;
    }
    q->i++;
    if (more(q) && add_named(q, r, q->p[q->i])) {
        q->i++;
        return true;
    }
    *cp = escape(q, true);
    return false;
}

static const struct ir *class_of(struct parser *q)
{
    size_t start = q->i++;
    struct ranges r = {grammar_build_alloc(q->b, CLASS_MAX, sizeof *r.v), 0};
    bool negate = at(q, '^');
    q->i += negate;
    if (at(q, ']')) bad(q, start, "an empty class");
    while (more(q) && !at(q, ']')) {
        uint32_t lo = 0, hi = 0;
        size_t from = q->i;
        if (class_item(q, &r, &lo)) {
            if (at(q, '-') && q->i + 1 < q->n && q->p[q->i + 1] != ']')
                bad(q, from, "a range can not begin with a set");
            continue;
        }
        hi = lo;
        if (at(q, '-') && q->i + 1 < q->n && q->p[q->i + 1] != ']') {
            q->i++;
            if (class_item(q, &r, &hi)) bad(q, from, "a range can not end with a set");
            if (hi < lo) bad(q, from, "a range whose end is before its beginning");
        }
        add_range(q, &r, lo, hi);
    }
    if (!q->b->st && q->i >= q->n) bad(q, start, "a class without its ]");
    q->i++;
    return grammar_ir_class(q->b, r.v, r.n, negate, q->json);
}

static const struct ir *alternatives(struct parser *q, bool top, int around);

static const struct ir *group(struct parser *q)
{
    size_t start = q->i++;
    if (at(q, '?')) {
        char c = q->i + 1 < q->n ? q->p[q->i + 1] : 0;
        size_t name = q->i + 2;
        if (c == 'P') {
            c = name < q->n ? q->p[name] : 0;
            name++;
        }
        bool named = c == '<' && name < q->n && q->p[name] != '=' && q->p[name] != '!';
        if (c == ':' && name == q->i + 2) {
            q->i += 2;
        } else if (named) {
            const char *end = memchr(q->p + name, '>', q->n - name);
            if (!end) {
                bad(q, start, "a group's name without its >");
                return grammar_ir_never(q->b);
            }
            q->i = (size_t)(end - q->p) + 1;
        } else {
            bad(q, start,
                c == '=' || c == '!' || c == '<'
                    ? "look-around is supported at the two ends only: (?=...) or (?!...) after ^, "
                      "(?<=...) or (?<!...) before $"
                    : "this kind of group is not supported");
            return grammar_ir_never(q->b);
        }
    }
    if (++q->depth > GRAMMAR_MAX_DEPTH)
        grammar_build_fail(q->b, SL_LIMIT, "%s: byte %zu: groups nest deeper than %d", q->what,
                           start, GRAMMAR_MAX_DEPTH);
    const struct ir *e = alternatives(q, false, 0);
    q->depth--;
    if (!at(q, ')')) bad(q, start, "a group without its )");
    q->i++;
    return e;
}

static uint32_t number(struct parser *q, bool *any)
{
    uint64_t v = 0;
    for (*any = false; more(q) && q->p[q->i] >= '0' && q->p[q->i] <= '9'; q->i++) {
        if (v <= GRAMMAR_MAX_REPEAT) v = v * 10 + (uint64_t)(q->p[q->i] - '0');
        *any = true;
    }
    if (v > GRAMMAR_MAX_REPEAT)
        grammar_build_fail(q->b, SL_LIMIT, "%s: byte %zu: more than %d repeats", q->what, q->i,
                           GRAMMAR_MAX_REPEAT);
    return (uint32_t)v;
}

static void braces(struct parser *q, uint32_t *min, uint32_t *max)
{
    size_t start = q->i++;
    bool any_min, any_max = true;
    *min = *max = number(q, &any_min);
    if (at(q, ',')) {
        q->i++;
        *max = number(q, &any_max);
        if (!any_max) *max = GRAMMAR_INF;
    }
    if (!any_min || !at(q, '}')) bad(q, start, "not a repeat count: a brace is written \\{");
    if (*max < *min) bad(q, start, "a repeat whose most is below its least");
    q->i++;
}

static const struct ir *repeated(struct parser *q, const struct ir *e)
{
    uint32_t min = 0, max = GRAMMAR_INF;
    if (!more(q)) return e;
    char c = q->p[q->i];
    if (c != '*' && c != '+' && c != '?' && c != '{') return e;
    if (c == '{') {
        braces(q, &min, &max);
    } else {
        min = c == '+';
        max = c == '?' ? 1 : GRAMMAR_INF;
        q->i++;
    }
    if (at(q, '?')) q->i++; /* lazy: the same language */
    if (at(q, '+')) bad(q, q->i, "possessive repeats are not supported");
    if (at(q, '*') || at(q, '?') || at(q, '{')) bad(q, q->i, "nothing to repeat");
    return grammar_ir_rep(q->b, e, min, max);
}

static const struct ir *any_char(struct parser *q)
{
    static const struct ir_range line[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
    return grammar_ir_class(q->b, line, 3, true, q->json);
}

static const struct ir *atom(struct parser *q)
{
    struct ranges r = {NULL, 0};
    char text[TEXT_UTF8_MAX];
    uint32_t cp;
    switch (q->p[q->i]) {
    case '(':
        return group(q);
    case '[':
        return class_of(q);
    case '.':
        q->i++;
        return any_char(q);
    case '*':
    case '+':
    case '?':
        bad(q, q->i, "nothing to repeat");
        return grammar_ir_never(q->b);
    case '{':
        bad(q, q->i, "nothing to repeat: a brace is written \\{");
        return grammar_ir_never(q->b);
    case '^':
    case '$':
        bad(q, q->i, "^ and $ are supported at the two ends only");
        return grammar_ir_never(q->b);
    case '\\':
        q->i++;
        r.v = grammar_build_alloc(q->b, 32, sizeof *r.v);
        if (more(q) && add_named(q, &r, q->p[q->i])) {
            q->i++;
            return grammar_ir_class(q->b, r.v, r.n, false, q->json);
        }
        cp = escape(q, false);
        break;
    default:
        cp = next_cp(q);
    }
    size_t n = (size_t)text_utf8_encode(cp, text);
    return q->json ? grammar_ir_lit_json(q->b, text, n) : grammar_ir_lit(q->b, text, n);
}

/* ---- look-around ---- */

struct looks { /* what a whole alternative must match, or not match, besides */
    const struct ir *e[8];
    bool neg[8];
    int n;
    bool at_end;
};

/* At (?= or (?! (end: at (?<= or (?<!)? */
static bool at_look(const struct parser *q, bool end)
{
    size_t k = q->i + 2 + end;
    return at(q, '(') && k < q->n && q->p[q->i + 1] == '?' && (!end || q->p[q->i + 2] == '<') &&
           (q->p[k] == '=' || q->p[k] == '!');
}

static void look(struct parser *q, struct looks *l, bool end)
{
    size_t start = q->i;
    if (l->n == BASE_COUNT_OF(l->e) || q->look == 4)
        grammar_build_fail(q->b, SL_LIMIT, "%s: byte %zu: too many look-arounds", q->what, start);
    if (q->b->st) return;
    l->neg[l->n] = q->p[q->i + 2 + end] == '!';
    l->at_end |= end;
    q->i += 3 + end;
    q->look++;
    l->e[l->n++] = alternatives(q, true, end ? BEFORE : AFTER);
    q->look--;
    if (!at(q, ')')) bad(q, start, "a group without its )");
    q->i++;
}

static const struct ir *with_looks(struct parser *q, const struct ir *e, const struct looks *l)
{
    const struct dfa *d = grammar_dfa_of(q->b, e);
    for (int i = 0; d && i < l->n; i++) {
        const struct dfa *x = grammar_dfa_of(q->b, l->e[i]);
        d = grammar_dfa_and(q->b, d, l->neg[i] && x ? grammar_dfa_not(q->b, x) : x);
    }
    if (!d) grammar_build_fail(q->b, SL_LIMIT, "%s: look-around: too many states", q->what);
    return grammar_ir_auto(q->b, d, false);
}

/* At $ at the end of an alternative? Goes after it. */
static bool at_end(struct parser *q)
{
    size_t k = q->i;
    while (k < q->n && q->p[k] == '$')
        k++;
    if (k == q->i || (k < q->n && q->p[k] != '|' && !(q->look && q->p[k] == ')'))) return false;
    q->i = k;
    return true;
}

/* One alternative. top: ^ and $ may stand at its ends, and where they do not, anything may that
 * around says. */
static const struct ir *sequence(struct parser *q, bool top, int around)
{
    struct ir_list l = {0};
    struct looks k = {.n = 0};
    bool begin = false, end = false;
    size_t start = q->i;
    while (top && at(q, '^')) {
        begin = true;
        q->i++;
    }
    while (top && at_look(q, false) && !q->b->st)
        look(q, &k, false);
    if (k.n && around & BEFORE && !begin)
        bad(q, start, "look-around at the beginning is supported after ^ only");
    const struct ir *any =
        around
            ? grammar_ir_rep(q->b, grammar_ir_class(q->b, NULL, 0, true, q->json), 0, GRAMMAR_INF)
            : NULL;
    if (around & BEFORE && !begin) grammar_ir_list_add(q->b, &l, any);
    while (more(q) && !at(q, '|') && !at(q, ')') && !end) {
        if (top && (end = at_end(q))) break;
        if (top && at_look(q, true)) {
            size_t from = q->i;
            while (at_look(q, true) && !q->b->st)
                look(q, &k, true);
            end = at_end(q);
            if (end || (!(around & AFTER) && (!more(q) || at(q, '|')))) continue;
            bad(q, from, "look-around at the end is supported before $ only");
        }
        const struct ir *e = more(q) ? atom(q) : grammar_ir_empty(q->b);
        grammar_ir_list_add(q->b, &l, repeated(q, e));
    }
    if (around & AFTER && !end) grammar_ir_list_add(q->b, &l, any);
    const struct ir *all = grammar_ir_seq(q->b, l.v, l.n);
    return k.n ? with_looks(q, all, &k) : all;
}

static const struct ir *alternatives(struct parser *q, bool top, int around)
{
    struct ir_list l = {0};
    grammar_ir_list_add(q->b, &l, sequence(q, top, around));
    while (at(q, '|')) {
        q->i++;
        grammar_ir_list_add(q->b, &l, sequence(q, top, around));
    }
    return grammar_ir_alt(q->b, l.v, l.n);
}

static bool has_look(const char *p, size_t n)
{
    for (size_t i = 0; i + 3 < n; i++)
        if (p[i] == '(' && p[i + 1] == '?' && strchr("=!", p[i + 2 + (p[i + 2] == '<')]))
            return true;
    return false;
}

const struct ir *grammar_pattern(struct build *b, const char *p, size_t n, bool json, bool search,
                                 const char *what)
{
    bool looks = has_look(p, n); /* automata are built of what is not escaped yet */
    struct parser q = {.b = b, .p = p, .n = n, .json = json && !looks, .what = what};
    const struct ir *e = alternatives(&q, true, search ? BEFORE | AFTER : 0);
    if (!b->st && q.i < n) bad(&q, q.i, "a ) without its group");
    if (!looks || !json || b->st) return e;
    const struct dfa *d = grammar_dfa_of(b, e);
    if (!d) grammar_build_fail(b, SL_LIMIT, "%s: look-around: too many states", what);
    return grammar_ir_auto(b, d, true);
}

void grammar_regex(struct build *b, const char *p, size_t n)
{
    grammar_rule_set(b, 0, grammar_pattern(b, p, n, false, false, "regex"));
}
