/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of tokenizers: Oniguruma's syntax (what tokenizer.json files are written for)
 * over PCRE2 with its JIT.
 *
 * The pattern is rewritten before it is compiled, so that it means what it means there: \s is
 * White_Space (PCRE2's also takes U+180E), \w and \h are written out, ^ and $ are line anchors.
 * What would mean something else, or could run away (recursion, back references, verbs, class
 * intersection), is refused by name. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"

typedef struct text_regex text_regex;
typedef struct text_match text_match;

/* Errors: UNSUPPORTED (names the construct), FORMAT (PCRE2's message and the offset), NOMEM.
 * Memory: close with text_regex_close. Threads: a compiled pattern may be shared. */
sl_status text_regex_open(enum mem_tag tag, const char *pattern, size_t n, text_regex **out,
                          sl_err *err) BASE_MUST_USE;
void text_regex_close(text_regex *r);

/* The workspace of one caller at a time, for any pattern. Errors: NOMEM. */
sl_status text_match_open(enum mem_tag tag, text_match **out, sl_err *err) BASE_MUST_USE;
void text_match_close(text_match *m);

/* Where a match is looked for: in p[0..n), from byte from on. p is valid UTF-8, and from lies on a
 * code point. */
struct text_subject {
    const char *p;
    size_t n, from;
};
/* A match is the bytes [begin, end). */
struct text_hit {
    bool found;
    size_t begin, end;
};
/* The first match that begins at or after from. Errors: LIMIT (the pattern backtracks too much on
 * this text), NOMEM. Cost: about 170 MB/s on the patterns of Qwen and DeepSeek. */
sl_status text_regex_find(const text_regex *r, text_match *m, struct text_subject in,
                          struct text_hit *out, sl_err *err) BASE_MUST_USE;

#endif
