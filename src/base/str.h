/* SPDX-License-Identifier: Apache-2.0 */
/* Growing byte strings. After a failed append the string is failed and stays as it was; check
 * str_status once at the end. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct str {
    char *p; /* NUL-terminated once anything was appended; NULL before */
    size_t n, cap;
    size_t limit; /* 0 = none; longer is SL_LIMIT */
    enum mem_tag tag;
    sl_status failed;
};

/* An empty text, without memory yet; limit: bytes at most, 0 = none. */
void str_init(struct str *s, enum mem_tag tag, size_t limit);
/* Gives its memory back; it is as after init. */
void str_fini(struct str *s);
void str_clear(struct str *s); /* keeps the memory */
void str_cut(struct str *s,
             size_t n); /* to its first n bytes, as if no append after them had been tried */
void str_put(struct str *s, const char *p, size_t n);
void str_puts(struct str *s, const char *z);
void str_putc(struct str *s, char c);
void str_int(struct str *s,
             int64_t v); /* decimal; what streams of tokens are made of, so without printf */
void str_printf(struct str *s, const char *fmt, ...) BASE_PRINTF(2, 3);
/* OK, or NOMEM or LIMIT if any append failed. */
sl_status str_status(const struct str *s, sl_err *err) BASE_MUST_USE;
/* "" when empty. Borrowed until the next append. */
const char *str_c(const struct str *s);
/* The part of a path after the last slash; the whole path if it has none. */
const char *str_base(const char *path);
bool str_ends(const char *s, const char *tail);
/* Damerau-free edit distance for "did you mean", lengths up to 63; longer gives a large number. */
int str_distance(const char *a, const char *b);

#endif
