/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the text out of {"input": "..."} while it streams, however it was cut. */
#include "api/unwrap.h"

#include <string.h>

#include "text/json.h"

void api_unwrap_init(struct api_unwrap *u)
{
    u->state = API_UNWRAP_HEAD;
    str_init(&u->raw, MEM_REQUEST, 0);
}

void api_unwrap_fini(struct api_unwrap *u)
{
    str_fini(&u->raw);
}

static bool white(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Where the text begins after {"input": " ; 0 = more is needed, -1 = another form. */
static int head_of(const char *s, size_t n)
{
    static const char *const part[] = {"{", "\"" API_UNWRAP_KEY "\"", ":", "\""};
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        size_t k = strlen(part[i]);
        while (at < n && white(s[at]))
            at++;
        if (memcmp(s + at, part[i], n - at < k ? n - at : k) != 0) return -1;
        if (n - at < k) return 0;
        at += k;
    }
    return (int)at;
}

static int hex4(const char *s)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static void put_code(struct str *out, unsigned c)
{
    if (c >= 0xd800 && c < 0xe000) c = 0xfffd; /* half a pair */
    if (c < 0x80)
        str_putc(out, (char)c);
    else if (c < 0x800) {
        str_putc(out, (char)(0xc0 | c >> 6));
        str_putc(out, (char)(0x80 | (c & 0x3f)));
    } else {
        if (c < 0x10000)
            str_putc(out, (char)(0xe0 | c >> 12));
        else {
            str_putc(out, (char)(0xf0 | c >> 18));
            str_putc(out, (char)(0x80 | (c >> 12 & 0x3f)));
        }
        str_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
        str_putc(out, (char)(0x80 | (c & 0x3f)));
    }
}

/* \uXXXX, or two that are a pair. Bytes taken; 0 = more is needed. */
static size_t put_u(const char *s, size_t n, bool last, struct str *out)
{
    int c = n >= 6 ? hex4(s + 2) : 0;
    if (n < 6) return 0;
    if (c < 0) { /* no JSON: as it is */
        str_put(out, s, 2);
        return 2;
    }
    if (c >= 0xd800 && c < 0xdc00) {
        size_t k = n - 6 < 2 ? n - 6 : 2;
        bool may = memcmp(s + 6, "\\u", k) == 0;
        if (may && n < 12 && !last) return 0;
        int low = may && n >= 12 ? hex4(s + 8) : -1;
        if (low >= 0xdc00 && low < 0xe000) {
            put_code(out, 0x10000u + ((unsigned)(c - 0xd800) << 10) + (unsigned)(low - 0xdc00));
            return 12;
        }
    }
    put_code(out, (unsigned)c);
    return 6;
}

/* An escape. Bytes taken; 0 = more is needed. */
static size_t put_escape(const char *s, size_t n, bool last, struct str *out)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (n < 2) return 0;
    if (s[1] == 'u') return put_u(s, n, last, out);
    const char *at = strchr(from, s[1]);
    str_putc(out, at ? to[at - from] : s[1]);
    return 2;
}

/* The text up to its quote, as far as it is there. */
static void take(struct api_unwrap *u, bool last, struct str *out)
{
    const char *s = u->raw.p;
    size_t n = u->raw.n, at = 0;
    while (at < n && s[at] != '"') {
        size_t k = 0;
        if (s[at] == '\\')
            k = put_escape(s + at, n - at, last, out);
        else {
            while (at + k < n && s[at + k] != '"' && s[at + k] != '\\')
                k++;
            str_put(out, s + at, k);
        }
        if (!k) break;
        at += k;
    }
    if (at < n && s[at] == '"') u->state = API_UNWRAP_DONE;
    memmove(u->raw.p, s + at, n - at);
    str_cut(&u->raw, n - at);
}

void api_unwrap_feed(struct api_unwrap *u, const char *s, size_t n, struct str *out)
{
    if (u->state == API_UNWRAP_DONE || !n) return;
    str_put(&u->raw, s, n);
    if (u->raw.failed) {
        out->failed = u->raw.failed;
        return;
    }
    if (u->state == API_UNWRAP_HEAD) {
        int at = head_of(u->raw.p, u->raw.n);
        if (at < 0) u->state = API_UNWRAP_OTHER;
        if (at <= 0) return;
        memmove(u->raw.p, u->raw.p + at, u->raw.n - (size_t)at);
        str_cut(&u->raw, u->raw.n - (size_t)at);
        u->state = API_UNWRAP_TEXT;
    }
    if (u->state == API_UNWRAP_TEXT) take(u, false, out);
}

/* Arguments of another form. */
static void put_other(const struct str *raw, struct str *out)
{
    struct arena a;
    const struct json *v = NULL;
    mem_arena_init(&a, MEM_REQUEST, 0);
    sl_status st = text_json_probe(&a, str_c(raw), raw->n, &v, NULL);
    if (st) out->failed = st;
    if (v && v->kind == JSON_OBJECT_K && v->n == 1) v = v->child;
    if (v && v->kind == JSON_STR_K)
        str_put(out, v->s, v->n);
    else if (!v || v->kind != JSON_OBJECT_K || v->n) /* {}: no text */
        str_put(out, str_c(raw), raw->n);
    mem_arena_fini(&a);
}

void api_unwrap_end(struct api_unwrap *u, struct str *out)
{
    if (u->state == API_UNWRAP_TEXT && u->raw.n) take(u, true, out);
    if (u->state == API_UNWRAP_OTHER) put_other(&u->raw, out);
    str_clear(&u->raw);
    u->state = API_UNWRAP_HEAD;
}
