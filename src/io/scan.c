/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON scanner for files of a fixed form: a header of 100 MB costs no more memory than the names
 * that are kept of it. Strict: RFC 8259, UTF-8, no lone surrogates, no control characters in
 * strings. */
#include <string.h>

#include "io/io_internal.h"
#include "text/utf8.h"

#define MAX_DEPTH 64

struct io_scan io_scan_init(const char *path, const void *p, uint64_t n, uint64_t base,
                            struct arena *a)
{
    return (struct io_scan){.r = rd_init(p, n), .base = base, .path = path, .arena = a};
}

uint64_t io_scan_at(const struct io_scan *s)
{
    return s->base + s->r.pos;
}

/* The byte at the position, not consumed; -1 at the end. */
static int here(const struct io_scan *s)
{
    return s->r.pos < s->r.size ? s->r.base[s->r.pos] : -1;
}

int io_scan_peek(struct io_scan *s)
{
    int c;
    while ((c = here(s)) == ' ' || c == '\n' || c == '\r' || c == '\t')
        rd_u8(&s->r);
    return c;
}

static sl_status unexpected(const struct io_scan *s, const char *want, sl_err *err)
{
    int c = here(s);
    if (c < 0)
        return IO_FAIL_AT(err, s->path, io_scan_at(s), "the JSON ends where %s should be", want);
    if (c > 0x20 && c < 0x7f)
        return IO_FAIL_AT(err, s->path, io_scan_at(s), "'%c' where %s should be", c, want);
    return IO_FAIL_AT(err, s->path, io_scan_at(s), "byte 0x%02x where %s should be", (unsigned)c,
                      want);
}

sl_status io_scan_char(struct io_scan *s, char c, sl_err *err)
{
    char want[4] = {'\'', c, '\'', 0};
    if (io_scan_peek(s) != c) return unexpected(s, want, err);
    rd_u8(&s->r);
    return SL_OK;
}

/* ---- strings ---- */
static sl_status hex4(struct io_scan *s, uint32_t *out, sl_err *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        int c = here(s);
        int v = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (v < 0) return unexpected(s, "a hexadecimal digit", err);
        rd_u8(&s->r);
        *out = *out << 4 | (uint32_t)v;
    }
    return SL_OK;
}

/* After a backslash: the character it stands for, as UTF-8. */
static sl_status escape(struct io_scan *s, char out[TEXT_UTF8_MAX], int *n, sl_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint64_t at = io_scan_at(s) - 1;
    int c = here(s);
    const char *p = c > 0 ? strchr(from, c) : NULL;
    *n = 1;
    if (p) {
        rd_u8(&s->r);
        out[0] = to[p - from];
        return SL_OK;
    }
    if (c != 'u') return unexpected(s, "an escape", err);
    uint32_t v = 0, low = 0;
    rd_u8(&s->r);
    SL_TRY(hex4(s, &v, err));
    if (v >= 0xd800 && v < 0xdc00 && here(s) == '\\') {
        rd_u8(&s->r);
        if (here(s) != 'u') return unexpected(s, "the second half of a surrogate pair", err);
        rd_u8(&s->r);
        SL_TRY(hex4(s, &low, err));
        if (low < 0xdc00 || low > 0xdfff)
            return IO_FAIL_AT(err, s->path, at, "half a surrogate pair");
        v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    if (v >= 0xd800 && v < 0xe000) return IO_FAIL_AT(err, s->path, at, "half a surrogate pair");
    *n = text_utf8_encode(v, out);
    return SL_OK;
}

/* Bytes up to the closing quote, which is left; an escape counts at least the two bytes that it has
 * at least. */
static uint64_t raw_length(const struct io_scan *s)
{
    uint64_t n = 0, left = s->r.size - s->r.pos;
    const uint8_t *p = s->r.base + s->r.pos;
    while (n < left && p[n] != '"')
        n += p[n] == '\\' ? 2 : 1;
    return n < left ? n : left;
}

sl_status io_scan_str(struct io_scan *s, char **out, uint64_t *out_n, sl_err *err)
{
    if (io_scan_peek(s) != '"') return unexpected(s, "a string", err);
    rd_u8(&s->r);
    uint64_t at = io_scan_at(s), raw = raw_length(s), n = 0;
    void *p = NULL;
    char *dst = NULL, piece[TEXT_UTF8_MAX];
    if (out) {
        SL_TRY(mem_arena_alloc(s->arena, raw + 1, &p, err));
        dst = p;
    }
    uint64_t bad = text_utf8_check((const char *)s->r.base + s->r.pos, raw);
    if (bad != raw) return IO_FAIL_AT(err, s->path, at + bad, "a string that is not UTF-8");
    for (;;) {
        int c = here(s), len = 1;
        if (c < 0) return unexpected(s, "the end of a string", err);
        if (c < 0x20) return unexpected(s, "a character of a string", err);
        rd_u8(&s->r);
        if (c == '"') break;
        piece[0] = (char)c;
        if (c == '\\') SL_TRY(escape(s, piece, &len, err));
        if (dst) memcpy(dst + n, piece, (size_t)len);
        n += (uint64_t)len;
    }
    if (out) {
        dst[n] = 0;
        *out = dst;
        *out_n = n;
    }
    return SL_OK;
}

/* ---- numbers and the rest ---- */
static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

sl_status io_scan_u64(struct io_scan *s, uint64_t *v, sl_err *err)
{
    if (!is_digit(io_scan_peek(s))) return unexpected(s, "a number of 0 or more", err);
    uint64_t at = io_scan_at(s);
    bool zero = here(s) == '0';
    *v = 0;
    for (int n = 0; is_digit(here(s)); n++) {
        if (zero && n == 1) return unexpected(s, "the end of a number", err);
        if (__builtin_mul_overflow(*v, 10u, v) ||
            __builtin_add_overflow(*v, (uint64_t)(here(s) - '0'), v))
            return IO_FAIL_AT(err, s->path, at, "a number over 2^64");
        rd_u8(&s->r);
    }
    int c = here(s);
    if (c == '.' || c == 'e' || c == 'E') return unexpected(s, "the end of an integer", err);
    return SL_OK;
}

static sl_status skip_number(struct io_scan *s, sl_err *err)
{
    if (here(s) == '-') rd_u8(&s->r);
    if (!is_digit(here(s))) return unexpected(s, "a digit", err);
    bool zero = here(s) == '0';
    for (int n = 0; is_digit(here(s)); n++) {
        if (zero && n == 1) return unexpected(s, "the end of a number", err);
        rd_u8(&s->r);
    }
    if (here(s) == '.') {
        rd_u8(&s->r);
        if (!is_digit(here(s))) return unexpected(s, "a digit", err);
        while (is_digit(here(s)))
            rd_u8(&s->r);
    }
    if (here(s) == 'e' || here(s) == 'E') {
        rd_u8(&s->r);
        if (here(s) == '+' || here(s) == '-') rd_u8(&s->r);
        if (!is_digit(here(s))) return unexpected(s, "a digit", err);
        while (is_digit(here(s)))
            rd_u8(&s->r);
    }
    return SL_OK;
}

static sl_status skip_word(struct io_scan *s, sl_err *err)
{
    static const char *const word[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(word[i]);
        if (s->r.size - s->r.pos < n || memcmp(s->r.base + s->r.pos, word[i], n) != 0) continue;
        rd_bytes(&s->r, n);
        return SL_OK;
    }
    return unexpected(s, "a value", err);
}

/* One value that is not an array or object. */
static sl_status skip_scalar(struct io_scan *s, sl_err *err)
{
    int c = io_scan_peek(s);
    if (c == '"') return io_scan_str(s, NULL, NULL, err);
    if (c == '-' || is_digit(c)) return skip_number(s, err);
    return skip_word(s, err);
}

sl_status io_scan_member(struct io_scan *s, bool first, bool *more, char **name, uint64_t *n,
                         sl_err *err)
{
    *more = io_scan_peek(s) != '}';
    if (!*more) return io_scan_char(s, '}', err);
    if (!first) SL_TRY(io_scan_char(s, ',', err));
    SL_TRY(io_scan_str(s, name, n, err));
    return io_scan_char(s, ':', err);
}

/* After a value inside the container that `close` ends: take ',' or the closing bracket. */
static sl_status next_or_close(struct io_scan *s, char close, bool *closed, sl_err *err)
{
    *closed = io_scan_peek(s) == close;
    return io_scan_char(s, *closed ? close : ',', err);
}

sl_status io_scan_skip(struct io_scan *s, sl_err *err)
{
    char close[MAX_DEPTH];
    int depth = 0;
    do { /* one value per round, then all brackets that end after it */
        int c = io_scan_peek(s);
        bool empty = false, closed = false;
        if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH)
                return IO_FAIL_AT(err, s->path, io_scan_at(s), "JSON deeper than %d", MAX_DEPTH);
            close[depth++] = c == '{' ? '}' : ']';
            rd_u8(&s->r);
            empty = io_scan_peek(s) == close[depth - 1];
            if (empty) SL_TRY(io_scan_char(s, close[--depth], err));
        } else {
            SL_TRY(skip_scalar(s, err));
        }
        bool opened = (c == '{' || c == '[') && !empty;
        while (!opened && depth > 0) {
            SL_TRY(next_or_close(s, close[depth - 1], &closed, err));
            if (!closed) break;
            depth--;
        }
        if (depth > 0 && close[depth - 1] == '}') { /* the next member's name */
            SL_TRY(io_scan_str(s, NULL, NULL, err));
            SL_TRY(io_scan_char(s, ':', err));
        }
    } while (depth > 0);
    return SL_OK;
}
