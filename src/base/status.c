/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of the codes and the filling of sl_err. Nothing here allocates. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clean(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = '?';
}

/* n: bytes that the text wanted. One that was cut ends in "...", after a whole code point. */
static void end(sl_err *err, int n)
{
    size_t at = sizeof err->text - sizeof "...";
    if (n < (int)sizeof err->text) return;
    while (at && ((unsigned char)err->text[at] & 0xc0) == 0x80)
        at--;
    memcpy(err->text + at, "...", sizeof "...");
}

sl_status status_fail(sl_err *err, sl_status code, const char *file, int line, const char *fmt, ...)
{
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    end(err, vsnprintf(err->text, sizeof err->text, fmt, ap));
    va_end(ap);
    clean(err->text);
    err->code = code;
    err->file = file;
    err->line = line;
    return code;
}

void status_prefix(sl_err *err, const char *fmt, ...)
{
    if (!err) return;
    char old[sizeof err->text];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof err->text) n = (int)sizeof err->text - 1;
    end(err, n + snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old));
    clean(err->text);
}

const char *status_text(sl_status code)
{
    switch (code) {
#define X(name, http, text)                                                                        \
    case SL_##name:                                                                                \
        return text;
        SL_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

int status_http(sl_status code)
{
    switch (code) {
#define X(name, http, text)                                                                        \
    case SL_##name:                                                                                \
        return http;
        SL_STATUS_LIST(X)
#undef X
    }
    return 500;
}

void status_assert_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "sluice: internal error: %s:%d: %s\n", file, line, expr);
    abort();
}
