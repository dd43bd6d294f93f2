/* SPDX-License-Identifier: Apache-2.0 */
/* Status and error text: the one scheme by which a function says that it failed (docs/house.md,
 * Errors).
 *
 * Every function that can fail returns sl_status and takes an sl_err* last (NULL allowed). The list
 * of codes is in include/sluice.h. ASSERT is for broken invariants of the program only; nothing
 * that a file, a request or a machine can do may reach it.
 */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "sluice.h"

#if defined(__GNUC__)
#define BASE_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define BASE_MUST_USE __attribute__((warn_unused_result))
#define BASE_NORETURN __attribute__((noreturn))
/* Reads what others may be writing, and uses nothing of it. */
#define BASE_UNWATCHED __attribute__((no_sanitize("thread")))
#define BASE_LIKELY(x) __builtin_expect(!!(x), 1)
#define BASE_UNLIKELY(x) __builtin_expect(!!(x), 0)
#endif

/* Fill *err (may be NULL) and return code. The text is one line without a full stop; control bytes
 * in it are replaced by '?', and one that does not fit ends in "...". */
sl_status status_fail(sl_err *err, sl_status code, const char *file, int line, const char *fmt, ...)
    BASE_PRINTF(5, 6);

/* Put "what: " before the text of an error on its way up. No effect when err is NULL. */
void status_prefix(sl_err *err, const char *fmt, ...) BASE_PRINTF(2, 3);

/* "ok", "malformed model file", ...; never NULL. */
const char *status_text(sl_status code);

/* The HTTP status of a code (200, 400, ...). */
int status_http(sl_status code);

/* What ASSERT calls: says where on stderr, and aborts. */
BASE_NORETURN void status_assert_failed(const char *expr, const char *file, int line);

#define SL_FAIL(err, code, ...) status_fail((err), SL_##code, __FILE__, __LINE__, __VA_ARGS__)
#define SL_TRY(expr)                                                                               \
    do {                                                                                           \
        sl_status try_status_ = (expr);                                                            \
        if (BASE_UNLIKELY(try_status_ != SL_OK)) return try_status_;                               \
    } while (0)
/* The same inside a function with one `out:` label and a local `sl_status st`. */
#define SL_TRY_OUT(expr)                                                                           \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (BASE_UNLIKELY(st != SL_OK)) goto out;                                                  \
    } while (0)

#define ASSERT(x) (BASE_LIKELY(x) ? (void)0 : status_assert_failed(#x, __FILE__, __LINE__))
#ifdef SL_DEBUG
#define DEBUG_ASSERT(x) ASSERT(x)
#else
#define DEBUG_ASSERT(x) ((void)0)
#endif

#define BASE_COUNT_OF(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define BASE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define BASE_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
