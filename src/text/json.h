/* SPDX-License-Identifier: Apache-2.0 */
/* JSON: a strict reader (RFC 8259) into a read-only tree with the keys in their order, and an
 * append-only writer.
 *
 * The reader is our own and not Jansson because three things were needed that it does not give:
 * every byte in the caller's arena (this room owns no allocator and keeps no global state),
 * integers past 64 bits as reals (real tokenizer_config.json files hold "model_max_length":
 * 1000000000000000019884624838656, which Jansson refuses), and speed: DeepSeek-V3's 7.8 MB
 * tokenizer.json takes 0.20 s in Jansson and about 0.04 s here. Jansson is the oracle that the
 * tests and the fuzz target compare it with.
 */
#ifndef TEXT_JSON_H
#define TEXT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/str.h"

#define TEXT_JSON_DEPTH 128 /* arrays and objects inside each other */

enum json_kind {
    JSON_NULL_K,
    JSON_BOOL_K,
    JSON_INT_K,
    JSON_REAL_K,
    JSON_STR_K,
    JSON_ARRAY_K,
    JSON_OBJECT_K
};

/* A node. Strings are NUL-terminated UTF-8 and may contain NUL inside (use n). Children: first,
 * then next. */
struct json {
    enum json_kind kind;
    bool b;         /* BOOL */
    uint32_t n_key; /* bytes of key */
    union {
        struct {
            int64_t i; /* INT */
            double f;  /* REAL, and INT as double; b: REAL for a whole number from 2^63 to
                          2^64 - 1, whose bits i has */
        };
        struct {
            const char *s; /* STR */
        };
        struct {
            const struct json *child;       /* ARRAY, OBJECT: first item */
            const struct json *const *item; /* ARRAY: by index */
        };
    };
    size_t n;        /* bytes of s; items of an array or object */
    const char *key; /* in an object: this member's name, NUL-terminated */
    const struct json *next;
};

/* Parse n bytes: one value, white space around it. what: named in errors ("config.json").
 * Strict: UTF-8 without surrogates, no duplicate keys, no trailing commas or comments, no NaN; a
 * byte order mark of UTF-8, which some editors put first, is read over. An integer that does not
 * fit 64 bits is a REAL. Errors: FORMAT ("config.json: line 3 column 7 (byte 40): ..."), NOMEM,
 * LIMIT (depth over TEXT_JSON_DEPTH). Memory: everything in the arena (about 56 bytes for each
 * value, and n for the strings); nothing is shared with the input. No recursion. Threads: any.
 * Cost: linear; about 200 MB/s. Tests: tests/unit/test_text_json.c, fuzz_json. */
sl_status text_json_parse(struct arena *a, const char *what, const char *p, size_t n,
                          const struct json **out, sl_err *err) BASE_MUST_USE;
/* The same of a file that Python may have written: NaN, Infinity and -Infinity are read too, each
 * as a string, which no reader of numbers takes. */
sl_status text_json_parse_python(struct arena *a, const char *what, const char *p, size_t n,
                                 const struct json **out, sl_err *err) BASE_MUST_USE;
/* The same of bytes that may be JSON or not: *out is NULL where they are not, and that is no error.
 * Errors: NOMEM. */
sl_status text_json_probe(struct arena *a, const char *p, size_t n, const struct json **out,
                          sl_err *err) BASE_MUST_USE;

/* Member of an object; NULL when o is NULL, not an object, or has none. O(members). */
const struct json *text_json_get(const struct json *o, const char *key);
/* True for a STR node with exactly these bytes; NULL is false. */
bool text_json_is(const struct json *v, const char *z);
/* Typed members with a default when missing or null; FORMAT (names key) when there with another
 * type. An integral REAL is an integer. */
sl_status text_json_int(const struct json *o, const char *key, int64_t def, int64_t *out,
                        sl_err *err) BASE_MUST_USE;
sl_status text_json_real(const struct json *o, const char *key, double def, double *out,
                         sl_err *err) BASE_MUST_USE;
sl_status text_json_bool(const struct json *o, const char *key, bool def, bool *out,
                         sl_err *err) BASE_MUST_USE;
sl_status text_json_str(const struct json *o, const char *key, const char *def, const char **out,
                        sl_err *err) BASE_MUST_USE;

/* "null", "a bool", ...: for messages. */
const char *text_json_kind_text(enum json_kind k);

/* ---- writer: appends to a str; puts commas by itself ---- */
#define TEXT_JW_DEPTH 255
struct json_w {
    struct str *out;
    int depth;
    uint8_t has_item[TEXT_JW_DEPTH + 1]; /* per depth */
};
/* To the end of out. */
void text_jw_init(struct json_w *w, struct str *out);
void text_jw_obj(struct json_w *w); /* { as a value */
void text_jw_obj_end(struct json_w *w);
void text_jw_arr(struct json_w *w);
void text_jw_arr_end(struct json_w *w);
void text_jw_key(struct json_w *w, const char *key);         /* then exactly one value */
void text_jw_str(struct json_w *w, const char *p, size_t n); /* invalid UTF-8 becomes U+FFFD */
void text_jw_strz(struct json_w *w, const char *z);
void text_jw_int(struct json_w *w, int64_t v);
void text_jw_real(struct json_w *w, double v,
                  int digits); /* %.*g; NaN and infinities become null */
void text_jw_bool(struct json_w *w, bool v);
void text_jw_null(struct json_w *w);
/* A member: key and value. */
void text_jw_key_strz(struct json_w *w, const char *key, const char *z);
void text_jw_key_int(struct json_w *w, const char *key, int64_t v);
void text_jw_key_real(struct json_w *w, const char *key, double v, int digits);
void text_jw_key_bool(struct json_w *w, const char *key, bool v);
void text_jw_key_null(struct json_w *w, const char *key);
void text_jw_raw(struct json_w *w, const char *p, size_t n); /* a value that is JSON already */
void text_jw_node(struct json_w *w, const struct json *node); /* no recursion */

/* The bytes of p[0..n) as the inside of a JSON string (no quotes) onto out: escapes for ", \, and
 * control bytes. */
void text_json_escape(struct str *out, const char *p, size_t n);
/* The shortest decimal that reads back as v, in Python's repr form ("1.0", "1e-07", "1e+16"); v
 * finite. At most 32 bytes with the NUL. */
void text_real_repr(double v, char out[32]);
/* Decimal text to double without regard to the locale. z is NUL-terminated and was checked to be a
 * JSON number. */
double text_real_parse(const char *z);

#endif
