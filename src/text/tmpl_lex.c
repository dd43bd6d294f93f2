/* SPDX-License-Identifier: Apache-2.0 */
/* Jinja's lexer with trim_blocks and lstrip_blocks on: a block or comment takes the newline after
 * it with it, and the blanks before it when it stands first on its line; '-' takes all white space
 * on its side, '+' none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_internal.h"
#include "text/uni.h"
#include "text/utf8.h"

struct lx {
    struct arena *a;
    const char *p;
    size_t n, at;
    int line;
    bool line_starting; /* what was taken last ended in a newline */
    struct tokens *out;
    sl_err *err;
};

static sl_status bad(struct lx *l, const char *what)
{
    return SL_FAIL(l->err, FORMAT, "chat template line %d: %s", l->line, what);
}

static sl_status put(struct lx *l, struct tok_t t)
{
    struct tokens *o = l->out;
    if (o->n == o->cap) {
        void *p = NULL;
        size_t cap = o->cap ? o->cap * 2 : 256;
        SL_TRY(mem_realloc(MEM_MISC, o->v, cap * sizeof *o->v, &p, l->err));
        o->v = p;
        o->cap = cap;
    }
    t.line = l->line;
    o->v[o->n++] = t;
    return SL_OK;
}

static size_t space_at(const char *p, size_t n)
{
    uint32_t cp;
    if (n == 0) return 0;
    int k = text_utf8_decode(p, n, &cp);
    return k && text_uni_space(cp) ? (size_t)k : 0;
}

static void take(struct lx *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->line += l->p[l->at + i] == '\n';
    l->at += n;
}

static void take_space(struct lx *l)
{
    size_t k;
    while ((k = space_at(l->p + l->at, l->n - l->at)) > 0)
        take(l, k);
}

/* Bytes of p[0..n) without the white space at its end. */
static size_t rstrip(const char *p, size_t n)
{
    while (n > 0) {
        size_t i = n - 1;
        while (i > 0 && ((unsigned char)p[i] & 0xc0) == 0x80)
            i--;
        if (space_at(p + i, n - i) != n - i) break;
        n = i;
    }
    return n;
}

/* Text before a tag: cut by the tag's sign, and by lstrip_blocks for blocks and comments. */
static sl_status put_data(struct lx *l, size_t begin, size_t end, char sign, bool block)
{
    size_t n = end - begin;
    const char *p = l->p + begin;
    if (sign == '-') {
        n = rstrip(p, n);
    } else if (sign != '+' && block) {
        size_t from = n;
        while (from > 0 && p[from - 1] != '\n')
            from--;
        if ((from > 0 || l->line_starting) && rstrip(p + from, n - from) == 0) n = from;
    }
    if (n > 0) SL_TRY(put(l, (struct tok_t){.kind = T_DATA, .p = p, .n = n}));
    l->at = begin;
    take(l, end - begin);
    return SL_OK;
}

/* After a tag: what its end sign and trim_blocks swallow. at is after the closing pair. */
static void after(struct lx *l, char sign, bool block)
{
    size_t from = l->at;
    if (sign == '-')
        take_space(l);
    else if (block && sign != '+' && l->at < l->n && l->p[l->at] == '\n')
        take(l, 1);
    l->line_starting = l->at > from && l->p[l->at - 1] == '\n';
}

static sl_status comment(struct lx *l)
{
    size_t i = l->at;
    while (i + 1 < l->n && !(l->p[i] == '#' && l->p[i + 1] == '}'))
        i++;
    if (i + 1 >= l->n) return bad(l, "a comment is not closed");
    char sign = i > l->at && (l->p[i - 1] == '-' || l->p[i - 1] == '+') ? l->p[i - 1] : 0;
    take(l, i + 2 - l->at);
    after(l, sign, true);
    return SL_OK;
}

static int hex(const char *p, int n)
{
    int v = 0;
    for (int i = 0; i < n; i++) {
        int c = (unsigned char)p[i] | 32;
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return -1;
        v = v << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return v;
}

/* A backslash at q[0] (with what is after it, up to end): Python's escapes. Returns the bytes
 * taken, 0 when it is none that we know. */
static size_t escape(const char *q, const char *end, char *w, size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *hit = end - q > 1 && q[1] ? strchr(from, q[1]) : NULL;
    *n = 1;
    if (hit) {
        *w = to[hit - from];
        return 2;
    }
    int digits = end - q < 2 ? 0 : q[1] == 'x' ? 2 : q[1] == 'u' ? 4 : q[1] == 'U' ? 8 : 0;
    if (digits && end - q >= 2 + digits) {
        int cp = hex(q + 2, digits);
        if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return 0;
        *n = (size_t)text_utf8_encode((uint32_t)cp, w);
        return (size_t)digits + 2;
    }
    if (end - q > 1 &&
        ((q[1] >= '0' && q[1] <= '7') || q[1] == 'N' || q[1] == 'x' || q[1] == 'u' || q[1] == 'U'))
        return 0;
    *w = '\\'; /* an unknown escape stays as it is */
    return 1;
}

static sl_status string(struct lx *l)
{
    char quote = l->p[l->at];
    const char *p = l->p + l->at + 1, *end = l->p + l->n, *q = p;
    while (q < end && *q != quote)
        q += *q == '\\' ? 2 : 1;
    if (q >= end) return bad(l, "a string is not closed");
    void *mem = NULL;
    SL_TRY(mem_arena_alloc(l->a, (size_t)(q - p) + 1, &mem, l->err));
    char *w = mem, *w0 = mem;
    for (const char *s = p; s < q;) {
        if (*s == '\\') {
            size_t n, used = escape(s, q, w, &n);
            if (used == 0) return bad(l, "an escape in a string that is not supported");
            s += used;
            w += n;
        } else {
            *w++ = *s++;
        }
    }
    SL_TRY(put(l, (struct tok_t){.kind = T_STR, .p = w0, .n = (size_t)(w - w0)}));
    take(l, (size_t)(q - (l->p + l->at)) + 1);
    return SL_OK;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static sl_status number(struct lx *l)
{
    char buf[64];
    size_t i = l->at, k = 0;
    bool real = false;
    while (i < l->n && (digit(l->p[i]) || l->p[i] == '_'))
        i++;
    if (i + 1 < l->n && l->p[i] == '.' && digit(l->p[i + 1])) {
        real = true;
        for (i++; i < l->n && (digit(l->p[i]) || l->p[i] == '_'); i++)
            continue;
    }
    if (i + 1 < l->n && (l->p[i] | 32) == 'e') {
        size_t j = i + 1 + (l->p[i + 1] == '-' || l->p[i + 1] == '+');
        if (j < l->n && digit(l->p[j])) {
            real = true;
            for (i = j; i < l->n && digit(l->p[i]); i++)
                continue;
        }
    }
    if (i < l->n && ((l->p[i] | 32) >= 'a' && (l->p[i] | 32) <= 'z'))
        return bad(l, "a number that is not supported");
    for (size_t j = l->at; j < i; j++) {
        if (l->p[j] == '_') continue;
        if (k == sizeof buf - 1) return bad(l, "a number that is too long");
        buf[k++] = l->p[j];
    }
    buf[k] = 0;
    struct tok_t t = {.kind = real ? T_REAL : T_INT};
    if (real) t.f = text_real_parse(buf);
    for (size_t j = 0; !real && j < k; j++)
        if (__builtin_mul_overflow(t.i, 10, &t.i) ||
            __builtin_add_overflow(t.i, buf[j] - '0', &t.i))
            return bad(l, "a number over 64 bits");
    SL_TRY(put(l, t));
    l->at = i;
    return SL_OK;
}

static bool name_char(unsigned char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* One token inside a tag. */
static sl_status inside(struct lx *l)
{
    static const char *const ops[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                      "=",  "<",  ">",  ".",  ":",  "|",  ",", ";"};
    char c = l->p[l->at];
    if (c == '"' || c == '\'') return string(l);
    if (digit(c)) return number(l);
    if (name_char((unsigned char)c)) {
        size_t i = l->at;
        while (i < l->n && name_char((unsigned char)l->p[i]))
            i++;
        SL_TRY(put(l, (struct tok_t){.kind = T_NAME, .p = l->p + l->at, .n = i - l->at}));
        l->at = i;
        return SL_OK;
    }
    for (int i = 0; i < BASE_COUNT_OF(ops); i++) {
        size_t k = strlen(ops[i]);
        if (l->n - l->at < k || memcmp(l->p + l->at, ops[i], k) != 0) continue;
        struct tok_t t = {.kind = T_OP};
        memcpy(t.op, ops[i], k);
        SL_TRY(put(l, t));
        l->at += k;
        return SL_OK;
    }
    return bad(l, "a character that has no meaning here");
}

/* The inside of {{ }} or {% %}. at is after the opening pair and its sign. */
static sl_status tag(struct lx *l, bool block)
{
    char close = block ? '%' : '}';
    int depth = 0; /* of brackets: their end is none of the tag's */
    SL_TRY(put(l, (struct tok_t){.kind = block ? T_BLOCK_BEGIN : T_VAR_BEGIN}));
    for (;;) {
        take_space(l);
        size_t left = l->n - l->at;
        const char *q = l->p + l->at;
        if (left == 0) return bad(l, "a tag is not closed");
        if (depth == 0) {
            size_t sign =
                left > 2 && (q[0] == '-' || (block && q[0] == '+')) && q[1] == close && q[2] == '}'
                    ? 1
                    : 0;
            if (left >= 2 + sign && q[sign] == close && q[sign + 1] == '}') {
                SL_TRY(put(l, (struct tok_t){.kind = block ? T_BLOCK_END : T_VAR_END}));
                l->at += sign + 2;
                after(l, sign ? q[0] : 0, block);
                return SL_OK;
            }
        }
        depth += (q[0] == '(' || q[0] == '[' || q[0] == '{') -
                 (q[0] == ')' || q[0] == ']' || q[0] == '}');
        if (depth < 0) return bad(l, "a closing bracket without its opening one");
        if (depth > TMPL_MAX_DEPTH)
            return SL_FAIL(l->err, LIMIT, "chat template line %d: nested too deep", l->line);
        SL_TRY(inside(l));
    }
}

sl_status text_tmpl_lex(struct arena *a, const char *src, size_t n, struct tokens *out, sl_err *err)
{
    struct lx l = {
        .a = a, .p = src, .n = n, .line = 1, .line_starting = true, .out = out, .err = err};
    while (l.at < n) {
        size_t i = l.at;
        while (i + 1 < n &&
               !(src[i] == '{' && (src[i + 1] == '{' || src[i + 1] == '%' || src[i + 1] == '#')))
            i++;
        if (i + 1 >= n) {
            SL_TRY(put_data(&l, l.at, n, '+', false));
            break;
        }
        char kind = src[i + 1],
             sign = i + 2 < n && (src[i + 2] == '-' || src[i + 2] == '+') ? src[i + 2] : 0;
        SL_TRY(put_data(&l, l.at, i, sign, kind != '{'));
        l.at = i + 2 + (sign ? 1 : 0);
        if (kind == '#')
            SL_TRY(comment(&l));
        else
            SL_TRY(tag(&l, kind == '%'));
    }
    return put(&l, (struct tok_t){.kind = T_END});
}
