/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF, the grammar language of llama.cpp: name ::= alternatives, with literals, classes, groups,
 * repeats and comments; <[id]> is one token. A rule ends at the end of its line; inside groups and
 * after | lines go on. Groups nest by recursion, at most GRAMMAR_MAX_DEPTH deep.
 *
 * Beyond llama.cpp's: %json SCHEMA, %json-loose SCHEMA and %regex "PATTERN" are the two other
 * languages in the place of a literal, and a first line %root NAME makes another rule than root the
 * start. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/grammar_internal.h"
#include "text/utf8.h"

#define CLASS_MAX 4096

struct name {
    const char *p;
    size_t n, at; /* at: of the first use */
    bool defined;
};
struct part { /* a %json that is compiled when all rules are there */
    size_t at, n;
    int rule;
    bool loose;
};
struct parser {
    struct build *b;
    const char *p;
    size_t n, i;
    int depth;
    struct name *name; /* [cap] by rule number */
    uint32_t cap_name;
    uint32_t *slot; /* hash table: 1 + rule */
    uint32_t n_slot, n_probe;
    struct part *part;
    uint32_t n_part, cap_part;
};
#define PROBE_MAX (1 << 23) /* names that were chosen to collide end here */

static void bad(struct parser *q, size_t at, const char *msg)
{
    size_t line = 1, col = 1;
    for (size_t i = 0; i < at && i < q->n; i++) {
        col++;
        if (q->p[i] == '\n') {
            line++;
            col = 1;
        }
    }
    grammar_build_fail(q->b, SL_REQUEST, "grammar: line %zu column %zu: %s", line, col, msg);
}

static bool more(const struct parser *q)
{
    return q->i < q->n && !q->b->st;
}

static bool at(const struct parser *q, char c)
{
    return more(q) && q->p[q->i] == c;
}

/* Blanks and comments; line ends too when lines. */
static void space(struct parser *q, bool lines)
{
    while (more(q)) {
        char c = q->p[q->i];
        if (c == '#')
            while (more(q) && q->p[q->i] != '\n' && q->p[q->i] != '\r')
                q->i++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            q->i++;
        else
            return;
    }
}

static bool word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t word(struct parser *q)
{
    size_t from = q->i;
    while (more(q) && word_byte(q->p[q->i]))
        q->i++;
    if (q->i == from) bad(q, from, "a rule's name is missing");
    return q->i - from;
}

static void slots_grow(struct parser *q)
{
    uint32_t n = q->n_slot ? 2 * q->n_slot : 256;
    uint32_t *s = grammar_build_alloc(q->b, n, 4);
    if (!s) return;
    for (int r = 0; r < q->b->n_rule; r++) {
        if (!q->name[r].p) continue; /* of a part */
        uint32_t h = (uint32_t)hash_bytes(q->name[r].p, q->name[r].n, 0) & (n - 1);
        while (s[h])
            h = (h + 1) & (n - 1);
        s[h] = (uint32_t)r + 1;
    }
    q->slot = s;
    q->n_slot = n;
}

static int new_rule(struct parser *q, const struct name *m)
{
    struct build *b = q->b;
    int r = grammar_rule_new(b, m->p ? m->p : "%json", m->p ? m->n : 5);
    if (r < 0) return -1;
    b->st = grammar_grow(&q->name, &q->cap_name, (uint64_t)r + 1, sizeof *q->name, b->err);
    if (b->st) return -1;
    q->name[r] = *m;
    return r;
}

/* The number of the rule with this name, new or old. */
static int rule_of(struct parser *q, const char *p, size_t n)
{
    struct build *b = q->b;
    if (2 * (uint32_t)b->n_rule >= q->n_slot) slots_grow(q);
    if (b->st) return -1;
    uint32_t h = (uint32_t)hash_bytes(p, n, 0) & (q->n_slot - 1);
    for (; q->slot[h]; h = (h + 1) & (q->n_slot - 1)) {
        const struct name *m = &q->name[q->slot[h] - 1];
        if (++q->n_probe > PROBE_MAX) {
            grammar_build_fail(b, SL_LIMIT, "grammar: too many rules");
            return -1;
        }
        if (m->n == n && memcmp(m->p, p, n) == 0) return (int)q->slot[h] - 1;
    }
    int r = new_rule(q, &(struct name){.p = p, .n = n, .at = (size_t)(p - q->p)});
    if (r >= 0) q->slot[h] = (uint32_t)r + 1;
    return r;
}

static uint32_t hex(struct parser *q, int n)
{
    uint32_t v = 0;
    size_t from = q->i;
    if (!grammar_hex(q->p, q->n, n, &q->i, &v)) {
        bad(q, q->i, "a hexadecimal digit is missing");
        return 0;
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) bad(q, from, "no code point");
    return v;
}

/* One character of a literal or class. */
static uint32_t character(struct parser *q)
{
    uint32_t cp = 0;
    if (!at(q, '\\')) {
        q->i += (size_t)text_utf8_decode(q->p + q->i, q->n - q->i, &cp);
        return cp;
    }
    size_t from = q->i++;
    char c = more(q) ? q->p[q->i++] : 0;
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'x':
        return hex(q, 2);
    case 'u':
        return hex(q, 4);
    case 'U':
        return hex(q, 8);
    default:
        if (!c || !strchr("\\\"[]-^", c)) bad(q, from, "unknown escape");
        return (unsigned char)c;
    }
}

/* "text", onto s. */
static void quoted(struct parser *q, struct str *s)
{
    size_t start = q->i++;
    while (more(q) && !at(q, '"')) {
        char u[TEXT_UTF8_MAX];
        uint32_t cp = character(q);
        str_put(s, u, (size_t)text_utf8_encode(cp, u));
    }
    if (!q->b->st && q->i >= q->n) bad(q, start, "a literal without its closing quote");
    q->i++;
    if (s->failed) grammar_build_fail(q->b, s->failed, "out of memory");
}

static const struct ir *literal(struct parser *q)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    quoted(q, &s);
    const struct ir *e = grammar_ir_lit(q->b, str_c(&s), s.n);
    str_fini(&s);
    return e;
}

/* Where the JSON value that begins at i ends; only brackets and quotes are looked at. */
static size_t value_end(const struct parser *q)
{
    size_t i = q->i, depth = 0;
    bool text = false;
    for (; i < q->n; i++) {
        char c = q->p[i];
        if (text && c == '\\')
            i++;
        else if (c == '"')
            text = !text;
        else if (text)
            continue;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth -= depth > 0;
        else if (depth || word_byte(c))
            continue;
        else
            return i;
        if (!depth && !text && c != '\\') return i + 1;
    }
    return q->n;
}

/* %json SCHEMA, %json-loose SCHEMA, %regex "PATTERN" */
static const struct ir *other_language(struct parser *q)
{
    struct build *b = q->b;
    size_t start = q->i++, n = word(q);
    const struct ir *e = grammar_ir_never(b);
    struct str s;
    space(q, false);
    bool loose = n == 10 && memcmp(q->p + start + 1, "json-loose", 10) == 0;
    if (loose || (n == 4 && memcmp(q->p + start + 1, "json", 4) == 0)) {
        size_t from = q->i, end = value_end(q);
        int r = new_rule(q, &(struct name){.defined = true, .at = start});
        if (r < 0) return e;
        b->st =
            grammar_grow(&q->part, &q->cap_part, (uint64_t)q->n_part + 1, sizeof *q->part, b->err);
        if (b->st) return e;
        q->part[q->n_part++] = (struct part){from, end - from, r, loose};
        q->i = end;
        return grammar_ir_call(b, r);
    }
    if (n != 5 || memcmp(q->p + start + 1, "regex", 5) != 0 || !at(q, '"')) {
        bad(q, start, "not %json SCHEMA or %regex \"PATTERN\"");
        return e;
    }
    str_init(&s, MEM_REQUEST, 0);
    quoted(q, &s);
    if (!b->st) e = grammar_pattern(b, str_c(&s), s.n, false, false, "regex");
    str_fini(&s);
    return e;
}

static const struct ir *class_of(struct parser *q)
{
    size_t start = q->i++, n = 0;
    struct ir_range *r = grammar_build_alloc(q->b, CLASS_MAX, sizeof *r);
    bool negate = at(q, '^');
    q->i += negate;
    while (more(q) && !at(q, ']')) {
        size_t from = q->i;
        uint32_t lo = character(q), hi = lo;
        if (at(q, '-') && q->i + 1 < q->n && q->p[q->i + 1] != ']') {
            q->i++;
            hi = character(q);
            if (hi < lo) bad(q, from, "a range whose end is before its beginning");
        }
        if (n == CLASS_MAX)
            grammar_build_fail(q->b, SL_LIMIT, "grammar: more than %d ranges in a class",
                               CLASS_MAX);
        if (!q->b->st) r[n++] = (struct ir_range){lo, hi};
    }
    if (!q->b->st && q->i >= q->n) bad(q, start, "a class without its ]");
    q->i++;
    return grammar_ir_class(q->b, r, n, negate, false);
}

/* <[id]> */
static const struct ir *token(struct parser *q)
{
    size_t start = q->i++;
    uint32_t id = 0;
    char key[4];
    if (!at(q, '[')) {
        bad(q, start, "a token is written <[id]>");
        return grammar_ir_never(q->b);
    }
    q->i++;
    size_t from = q->i;
    for (; more(q) && q->p[q->i] >= '0' && q->p[q->i] <= '9' && id < 1u << 24; q->i++)
        id = id * 10 + (uint32_t)(q->p[q->i] - '0');
    if (q->i == from || id >= 1u << 24 || !at(q, ']') || q->i + 1 >= q->n || q->p[q->i + 1] != '>')
        bad(q, start, "a token is written <[id]>");
    q->i += 2;
    key[0] = (char)GRAMMAR_CONTROL;
    for (int k = 0; k < 3; k++)
        key[1 + k] = (char)(id >> (16 - 8 * k) & 0xff);
    return grammar_ir_lit(q->b, key, 4);
}

static uint32_t number(struct parser *q, bool *any)
{
    uint64_t v = 0;
    space(q, false);
    for (*any = false; more(q) && q->p[q->i] >= '0' && q->p[q->i] <= '9'; q->i++) {
        if (v <= GRAMMAR_MAX_REPEAT) v = v * 10 + (uint64_t)(q->p[q->i] - '0');
        *any = true;
    }
    space(q, false);
    if (v > GRAMMAR_MAX_REPEAT)
        grammar_build_fail(q->b, SL_LIMIT, "grammar: more than %d repeats", GRAMMAR_MAX_REPEAT);
    return (uint32_t)v;
}

static void braces(struct parser *q, uint32_t *min, uint32_t *max)
{
    size_t start = q->i++;
    bool any_min, any_max;
    *min = *max = number(q, &any_min);
    if (at(q, ',')) {
        q->i++;
        *max = number(q, &any_max);
        if (!any_max) *max = GRAMMAR_INF;
        any_min |= any_max; /* {,m} */
    }
    if (!any_min || !at(q, '}')) bad(q, start, "not a repeat count");
    if (*max < *min) bad(q, start, "a repeat whose most is below its least");
    q->i++;
}

static const struct ir *repeated(struct parser *q, const struct ir *e)
{
    while (more(q)) {
        uint32_t min = 0, max = GRAMMAR_INF;
        char c = q->p[q->i];
        if (c != '*' && c != '+' && c != '?' && c != '{') break;
        if (c == '{') {
            braces(q, &min, &max);
        } else {
            min = c == '+';
            max = c == '?' ? 1 : GRAMMAR_INF;
            q->i++;
        }
        if (++q->depth > GRAMMAR_MAX_DEPTH)
            grammar_build_fail(q->b, SL_LIMIT, "grammar: repeats of repeats: more than %d",
                               GRAMMAR_MAX_DEPTH);
        e = grammar_ir_rep(q->b, e, min, max);
    }
    return e;
}

static const struct ir *alternatives(struct parser *q, bool nested);

static const struct ir *atom(struct parser *q)
{
    static const struct ir_range all = {0, 0x10ffff};
    size_t start = q->i;
    switch (q->p[q->i]) {
    case '"':
        return literal(q);
    case '[':
        return class_of(q);
    case '<':
        return token(q);
    case '%':
        return other_language(q);
    case '.':
        q->i++;
        return grammar_ir_class(q->b, &all, 1, false, false);
    case '(':
        q->i++;
        if (++q->depth > GRAMMAR_MAX_DEPTH)
            grammar_build_fail(q->b, SL_LIMIT, "grammar: byte %zu: groups nest deeper than %d",
                               start, GRAMMAR_MAX_DEPTH);
        const struct ir *e = alternatives(q, true);
        q->depth--;
        if (!at(q, ')')) bad(q, start, "a group without its )");
        q->i++;
        return e;
    case '*':
    case '+':
    case '?':
    case '{':
        bad(q, start, "nothing to repeat");
        return grammar_ir_never(q->b);
    case '!':
        bad(q, start, "all tokens but one (!) are not supported");
        return grammar_ir_never(q->b);
    default:
        break;
    }
    if (!word_byte(q->p[q->i])) {
        bad(q, start, "not a literal, class, group or rule");
        return grammar_ir_never(q->b);
    }
    size_t n = word(q);
    return grammar_ir_call(q->b, rule_of(q, q->p + start, n));
}

static const struct ir *sequence(struct parser *q, bool nested)
{
    struct ir_list l = {0};
    space(q, true); /* after ::=, ( and | the next line goes on */
    while (more(q) && !at(q, '|') && !at(q, ')') && !at(q, '\n') && !at(q, '\r')) {
        int depth = q->depth;
        const struct ir *e = atom(q);
        grammar_ir_list_add(q->b, &l, repeated(q, e));
        q->depth = depth;
        space(q, nested);
    }
    return grammar_ir_seq(q->b, l.v, l.n);
}

static const struct ir *alternatives(struct parser *q, bool nested)
{
    struct ir_list l = {0};
    grammar_ir_list_add(q->b, &l, sequence(q, nested));
    while (at(q, '|')) {
        q->i++;
        grammar_ir_list_add(q->b, &l, sequence(q, nested));
    }
    return grammar_ir_alt(q->b, l.v, l.n);
}

static void one_rule(struct parser *q)
{
    size_t start = q->i, n = word(q);
    int r = q->b->st ? -1 : rule_of(q, q->p + start, n);
    space(q, false);
    if (!q->b->st && (q->n - q->i < 3 || memcmp(q->p + q->i, "::=", 3) != 0))
        bad(q, q->i, "::= is missing after a rule's name");
    if (r >= 0 && q->name[r].defined) bad(q, start, "a rule with this name is there already");
    if (q->b->st) return;
    q->i += 3;
    q->name[r].defined = true;
    const struct ir *e = alternatives(q, false);
    if (more(q) && !at(q, '\n') && !at(q, '\r')) bad(q, q->i, "a ) without its group");
    grammar_rule_set(q->b, r, e);
}

/* %root NAME, at the beginning of the text. */
static struct name start_rule(struct parser *q)
{
    struct name m = {.p = "root", .n = 4};
    space(q, true);
    if (q->n - q->i < 6 || memcmp(q->p + q->i, "%root", 5) != 0 || word_byte(q->p[q->i + 5]))
        return m;
    q->i += 5;
    space(q, false);
    m.at = q->i;
    m.p = q->p + q->i;
    m.n = word(q);
    return m;
}

/* Schemas get their rules last, so that every named rule has its number by then. */
static void compile_parts(struct parser *q)
{
    for (uint32_t i = 0; i < q->n_part && !q->b->st; i++) {
        sl_err *err = q->b->err;
        char what[sizeof err->text];
        grammar_schema(q->b, q->p + q->part[i].at, q->part[i].n, q->part[i].rule, q->part[i].loose);
        if (!q->b->st || !err) continue;
        memcpy(what, err->text, sizeof what);
        sl_status st = q->b->st;
        q->b->st = SL_OK;
        bad(q, q->part[i].at, what);
        q->b->st = st;
        err->code = st;
    }
}

void grammar_gbnf(struct build *b, const char *p, size_t n)
{
    struct parser q = {.b = b, .p = p, .n = n};
    struct name start = start_rule(&q);
    if (!b->st) b->st = grammar_grow(&q.name, &q.cap_name, 1, sizeof *q.name, b->err);
    if (!b->st) q.name[0] = start;
    for (space(&q, true); more(&q); space(&q, true))
        one_rule(&q);
    if (!b->st && !q.name[0].defined)
        grammar_build_fail(b, SL_REQUEST, "grammar: there is no rule %.*s",
                           (int)BASE_MIN(start.n, (size_t)60), start.p);
    for (int r = 1; r < b->n_rule && !b->st; r++)
        if (!q.name[r].defined) {
            char msg[100];
            snprintf(msg, sizeof msg, "there is no rule %.60s", b->rule[r].name);
            bad(&q, q.name[r].at, msg);
        }
    compile_parts(&q);
    mem_free(q.part);
    mem_free(q.name);
}
