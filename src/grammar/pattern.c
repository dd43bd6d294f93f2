/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions as ECMAScript, Python and PCRE agree on them. What is not regular (back
 * references, look-around) or where they differ is refused by name. Groups nest by recursion, at
 * most GRAMMAR_MAX_DEPTH deep. */
#include <string.h>

#include "grammar/grammar_internal.h"
#include "text/utf8.h"

#define CLASS_MAX 4096 /* ranges of one class */

struct parser {
    struct build *b;
    const char *p;
    size_t n, i;
    int depth;
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

/* Behind a backslash: one character. */
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

static const struct ir *alternatives(struct parser *q, bool top, bool search);

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
                c == '=' || c == '!' || c == '<' ? "look-around is not supported"
                                                 : "this kind of group is not supported");
            return grammar_ir_never(q->b);
        }
    }
    if (++q->depth > GRAMMAR_MAX_DEPTH)
        grammar_build_fail(q->b, SL_LIMIT, "%s: byte %zu: groups nest deeper than %d", q->what,
                           start, GRAMMAR_MAX_DEPTH);
    const struct ir *e = alternatives(q, false, false);
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

/* One alternative. top: ^ and $ may stand at its ends, and where they do not and search is set,
 * anything may. */
static const struct ir *sequence(struct parser *q, bool top, bool search)
{
    struct ir_list l = {0};
    bool begin = false, end = false;
    while (top && at(q, '^')) {
        begin = true;
        q->i++;
    }
    const struct ir *any =
        search
            ? grammar_ir_rep(q->b, grammar_ir_class(q->b, NULL, 0, true, q->json), 0, GRAMMAR_INF)
            : NULL;
    if (any && !begin) grammar_ir_list_add(q->b, &l, any);
    while (more(q) && !at(q, '|') && !at(q, ')')) {
        if (top && at(q, '$')) {
            size_t k = q->i;
            while (k < q->n && q->p[k] == '$')
                k++;
            if (k == q->n || q->p[k] == '|') {
                q->i = k;
                end = true;
                break;
            }
        }
        const struct ir *e = atom(q);
        grammar_ir_list_add(q->b, &l, repeated(q, e));
    }
    if (any && !end) grammar_ir_list_add(q->b, &l, any);
    return grammar_ir_seq(q->b, l.v, l.n);
}

static const struct ir *alternatives(struct parser *q, bool top, bool search)
{
    struct ir_list l = {0};
    grammar_ir_list_add(q->b, &l, sequence(q, top, search));
    while (at(q, '|')) {
        q->i++;
        grammar_ir_list_add(q->b, &l, sequence(q, top, search));
    }
    return grammar_ir_alt(q->b, l.v, l.n);
}

const struct ir *grammar_pattern(struct build *b, const char *p, size_t n, bool json, bool search,
                                 const char *what)
{
    struct parser q = {.b = b, .p = p, .n = n, .json = json, .what = what};
    const struct ir *e = alternatives(&q, true, search);
    if (!b->st && q.i < n) bad(&q, q.i, "a ) without its group");
    return e;
}

void grammar_regex(struct build *b, const char *p, size_t n)
{
    grammar_rule_set(b, 0, grammar_pattern(b, p, n, false, false, "regex"));
}
