/* SPDX-License-Identifier: Apache-2.0 */
/* The writer, and the conversions between doubles and decimal text that do not look at the locale.
 */
#include "text/json.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

double text_real_parse(const char *z)
{
    const struct lconv *lc = localeconv();
    const char *dot = strchr(z, '.');
    if (!dot || strcmp(lc->decimal_point, ".") == 0) return strtod(z, NULL);
    /* A locale with another point: only the first 800 digits can matter for a double. */
    char buf[1024];
    int n = snprintf(buf, sizeof buf, "%.*s%s%.*s", (int)BASE_MIN(dot - z, 400), z,
                     lc->decimal_point, 400, dot + 1);
    const char *e = strpbrk(dot, "eE");
    if (e && n < (int)sizeof buf && e - dot > 400)
        snprintf(buf + n, sizeof buf - (size_t)n, "%s", e);
    return strtod(buf, NULL);
}

static void point(char *z)
{
    const char *p = localeconv()->decimal_point;
    char *hit = strcmp(p, ".") == 0 ? NULL : strstr(z, p);
    if (!hit) return;
    size_t n = strlen(p);
    *hit = '.';
    memmove(hit + 1, hit + n, strlen(hit + n) + 1);
}

void text_real_repr(double v, char out[32])
{
    char e[48];
    int prec = 1;
    for (; prec < 17; prec++) { /* the fewest digits that read back */
        snprintf(e, sizeof e, "%.*e", prec - 1, v);
        if (strtod(e, NULL) == v) break;
    }
    snprintf(e, sizeof e, "%.*e", prec - 1, v);
    point(e);
    int x = atoi(strchr(e, 'e') + 1);
    if (x >= -4 && x < 16) {
        int frac = prec - 1 - x;
        snprintf(out, 32, "%.*f", frac < 1 ? 1 : frac, v);
        point(out);
        return;
    }
    char *ex = strchr(e, 'e');
    snprintf(out, 32, "%.*se%c%02d", (int)(ex - e), e, x < 0 ? '-' : '+', abs(x));
}

static void before(struct json_w *w)
{
    if (w->depth > 0 && w->has_item[w->depth]) str_putc(w->out, ',');
    w->has_item[w->depth] = 1;
}

void text_jw_init(struct json_w *w, struct str *out)
{
    *w = (struct json_w){.out = out};
}

static void open_scope(struct json_w *w, char c)
{
    before(w);
    str_putc(w->out, c);
    ASSERT(w->depth < TEXT_JW_DEPTH);
    w->has_item[++w->depth] = 0;
}

static void close_scope(struct json_w *w, char c)
{
    ASSERT(w->depth > 0);
    w->depth--;
    str_putc(w->out, c);
}

void text_jw_obj(struct json_w *w)
{
    open_scope(w, '{');
}
void text_jw_obj_end(struct json_w *w)
{
    close_scope(w, '}');
}
void text_jw_arr(struct json_w *w)
{
    open_scope(w, '[');
}
void text_jw_arr_end(struct json_w *w)
{
    close_scope(w, ']');
}

void text_jw_raw(struct json_w *w, const char *p, size_t n)
{
    before(w);
    str_put(w->out, p, n);
}

void text_json_escape(struct str *out, const char *p, size_t n)
{
    static const char named[] = "btn\0fr"; /* 8, 9, 10, 12, 13 */
    size_t i = 0;
    while (i < n) {
        size_t j = i;
        while (j < n && (unsigned char)p[j] >= 0x20 && (unsigned char)p[j] < 0x80 && p[j] != '"' &&
               p[j] != '\\')
            j++;
        str_put(out, p + i, j - i);
        if (j == n) return;
        unsigned char c = (unsigned char)p[j];
        uint32_t cp;
        int k = 1, cut;
        if (c >= 0x80) {
            k = text_utf8_decode(p + j, n - j, &cp);
            if (k)
                str_put(out, p + j, (size_t)k);
            else {
                k = text_utf8_bad(p + j, n - j, &cut);
                str_puts(out, "\xef\xbf\xbd");
            }
        } else if (c == '"' || c == '\\') {
            str_put(out, (const char[]){'\\', (char)c}, 2);
        } else if (c >= 8 && c <= 13 && named[c - 8]) {
            str_put(out, (const char[]){'\\', named[c - 8]}, 2);
        } else {
            str_printf(out, "\\u%04x", c);
        }
        i = j + (size_t)k;
    }
}

void text_jw_str(struct json_w *w, const char *p, size_t n)
{
    before(w);
    str_putc(w->out, '"');
    text_json_escape(w->out, p, n);
    str_putc(w->out, '"');
}

void text_jw_strz(struct json_w *w, const char *z)
{
    text_jw_str(w, z, strlen(z));
}

static void put_key(struct json_w *w, const char *key, size_t n)
{
    text_jw_str(w, key, n);
    str_putc(w->out, ':');
    w->has_item[w->depth] = 0; /* the value puts no comma, and sets it again */
}

void text_jw_key(struct json_w *w, const char *key)
{
    put_key(w, key, strlen(key));
}

void text_jw_int(struct json_w *w, int64_t v)
{
    before(w);
    str_int(w->out, v);
}

void text_jw_real(struct json_w *w, double v, int digits)
{
    if (!isfinite(v)) {
        text_jw_null(w);
        return;
    }
    char buf[64];
    before(w);
    snprintf(buf, sizeof buf, "%.*g", BASE_MIN(BASE_MAX(digits, 1), 17), v);
    point(buf);
    str_puts(w->out, buf);
}

void text_jw_bool(struct json_w *w, bool v)
{
    before(w);
    str_puts(w->out, v ? "true" : "false");
}

void text_jw_null(struct json_w *w)
{
    before(w);
    str_puts(w->out, "null");
}

void text_jw_key_strz(struct json_w *w, const char *key, const char *z)
{
    text_jw_key(w, key);
    text_jw_strz(w, z);
}

void text_jw_key_int(struct json_w *w, const char *key, int64_t v)
{
    text_jw_key(w, key);
    text_jw_int(w, v);
}

void text_jw_key_real(struct json_w *w, const char *key, double v, int digits)
{
    text_jw_key(w, key);
    text_jw_real(w, v, digits);
}

void text_jw_key_bool(struct json_w *w, const char *key, bool v)
{
    text_jw_key(w, key);
    text_jw_bool(w, v);
}

void text_jw_key_null(struct json_w *w, const char *key)
{
    text_jw_key(w, key);
    text_jw_null(w);
}

static void put_leaf(struct json_w *w, const struct json *v)
{
    char buf[32];
    switch (v->kind) {
    case JSON_NULL_K:
        text_jw_null(w);
        break;
    case JSON_BOOL_K:
        text_jw_bool(w, v->b);
        break;
    case JSON_INT_K:
        text_jw_int(w, v->i);
        break;
    case JSON_REAL_K:
        before(w);
        text_real_repr(v->f, buf);
        str_puts(w->out, buf);
        break;
    case JSON_STR_K:
        text_jw_str(w, v->s, v->n);
        break;
    case JSON_ARRAY_K:
        text_jw_arr(w);
        break;
    case JSON_OBJECT_K:
        text_jw_obj(w);
        break;
    }
}

void text_jw_node(struct json_w *w, const struct json *node)
{
    const struct json *open[TEXT_JSON_DEPTH]; /* what is open, outermost first */
    int d = 0;
    const struct json *v = node;
    while (v) {
        bool tree = v->kind == JSON_ARRAY_K || v->kind == JSON_OBJECT_K;
        if (v->key && d > 0 && open[d - 1]->kind == JSON_OBJECT_K) put_key(w, v->key, v->n_key);
        put_leaf(w, v);
        if (tree && v->child) {
            open[d++] = v;
            v = v->child;
            continue;
        }
        if (tree) close_scope(w, v->kind == JSON_OBJECT_K ? '}' : ']');
        while (d > 0 && !v->next) {
            v = open[--d];
            close_scope(w, v->kind == JSON_OBJECT_K ? '}' : ']');
        }
        v = d > 0 ? v->next : NULL;
    }
}
