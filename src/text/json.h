/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: a read-only tree over Jansson's parser (duplicates refused, depth capped, strict UTF-8), key order kept; and an append-only writer. */
#ifndef TEXT_JSON_H
#define TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

enum json_kind { JSON_NULL_K, JSON_BOOL_K, JSON_INT_K, JSON_REAL_K, JSON_STR_K, JSON_ARRAY_K, JSON_OBJECT_K };

/* A node. Strings are NUL-terminated UTF-8 and may contain NUL inside (use n). Children: first, then next. */
struct json {
    enum json_kind kind;
    bool b;
    int64_t i;   /* INT */
    double f;    /* REAL, and INT as double */
    const char *s;
    size_t n;                 /* bytes of s; items of an array or object */
    const char *key;          /* in an object: this member's name */
    size_t n_key;
    const struct json *child; /* array, object: first item */
    const struct json *next;
    const struct json *const *item; /* array: by index */
};

/* Parse n bytes. what: named in errors ("config.json"). Errors: FORMAT (line, column, byte), NOMEM, LIMIT (depth over 128).
 * Memory: everything in the arena; nothing is shared with the input. */
sl_status text_json_parse(struct arena *a, const char *what, const char *p, size_t n,
                          const struct json **out, sl_err *err) BASE_MUST_USE;

/* Member of an object; NULL when o is NULL, not an object, or has none. O(members). */
const struct json *text_json_get(const struct json *o, const char *key);
/* Typed members with a default when missing or null; FORMAT (names key) when there with another type. */
sl_status text_json_int(const struct json *o, const char *key, int64_t def, int64_t *out, sl_err *err)
    BASE_MUST_USE;
sl_status text_json_real(const struct json *o, const char *key, double def, double *out, sl_err *err)
    BASE_MUST_USE;
sl_status text_json_bool(const struct json *o, const char *key, bool def, bool *out, sl_err *err)
    BASE_MUST_USE;
sl_status text_json_str(const struct json *o, const char *key, const char *def, const char **out,
                        sl_err *err) BASE_MUST_USE;

/* ---- writer: appends to a str; puts commas by itself ---- */
struct json_w {
    struct str *out;
    int depth;
    uint64_t has_item; /* bit per depth */
};
void text_jw_init(struct json_w *w, struct str *out);
void text_jw_obj(struct json_w *w);      /* { as a value */
void text_jw_obj_end(struct json_w *w);
void text_jw_arr(struct json_w *w);
void text_jw_arr_end(struct json_w *w);
void text_jw_key(struct json_w *w, const char *key); /* then exactly one value */
void text_jw_str(struct json_w *w, const char *p, size_t n); /* invalid UTF-8 becomes U+FFFD */
void text_jw_strz(struct json_w *w, const char *z);
void text_jw_int(struct json_w *w, int64_t v);
void text_jw_real(struct json_w *w, double v, int digits); /* %.*g; NaN and infinities become null */
void text_jw_bool(struct json_w *w, bool v);
void text_jw_null(struct json_w *w);
void text_jw_node(struct json_w *w, const struct json *node);

#endif
