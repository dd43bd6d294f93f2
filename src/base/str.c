/* SPDX-License-Identifier: Apache-2.0 */
/* Growing strings: an append that fails marks the string and leaves it as it was. */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void str_init(struct str *s, enum mem_tag tag, size_t limit)
{
    memset(s, 0, sizeof *s);
    s->tag = tag;
    s->limit = limit;
}

void str_fini(struct str *s)
{
    mem_free(s->p);
    s->p = NULL;
    s->n = s->cap = 0;
}

void str_clear(struct str *s)
{
    str_cut(s, 0);
}

void str_cut(struct str *s, size_t n)
{
    s->n = n;
    s->failed = SL_OK;
    if (s->p) s->p[n] = 0;
}

static bool room(struct str *s, size_t n)
{
    if (s->failed) return false;
    if (s->limit && (n > s->limit || s->n > s->limit - n)) {
        s->failed = SL_LIMIT;
        return false;
    }
    if (n + 1 <= s->cap - s->n) return true;
    size_t cap = s->cap ? s->cap * 2 : 128;
    while (cap < s->n + n + 1)
        cap *= 2;
    void *p = NULL;
    s->failed = mem_realloc(s->tag, s->p, cap, &p, NULL);
    if (s->failed) return false;
    s->p = p;
    s->cap = cap;
    return true;
}

void str_put(struct str *s, const char *p, size_t n)
{
    if (!room(s, n)) return;
    if (n) memcpy(s->p + s->n, p, n);
    s->n += n;
    s->p[s->n] = 0;
}

void str_puts(struct str *s, const char *z)
{
    str_put(s, z, strlen(z));
}

void str_putc(struct str *s, char c)
{
    str_put(s, &c, 1);
}

void str_int(struct str *s, int64_t v)
{
    char text[20];
    size_t at = sizeof text;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do
        text[--at] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0) text[--at] = '-';
    str_put(s, text + at, sizeof text - at);
}

void str_printf(struct str *s, const char *fmt, ...)
{
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && room(s, (size_t)n)) {
        vsnprintf(s->p + s->n, (size_t)n + 1, fmt, ap2);
        s->n += (size_t)n;
    }
    va_end(ap2);
}

sl_status str_status(const struct str *s, sl_err *err)
{
    if (s->failed == SL_LIMIT)
        return SL_FAIL(err, LIMIT, "text is longer than %zu bytes", s->limit);
    if (s->failed) return SL_FAIL(err, NOMEM, "out of memory: text of %zu bytes", s->n);
    return SL_OK;
}

const char *str_c(const struct str *s)
{
    return s->p ? s->p : "";
}

const char *str_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool str_ends(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

int str_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > 63 || m > 63) return 1000;
    int row[64];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diag = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int sub = diag + (a[i - 1] != b[j - 1]);
            diag = row[j];
            row[j] = BASE_MIN(sub, BASE_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[m];
}
