/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of the keys that a file may have: which are obeyed or harmless, and at which values the
 * others change nothing. A reader has one list for each kind of object that it reads. */
#ifndef TEXT_KEYS_H
#define TEXT_KEYS_H

#include "text/json.h"

/* names: "|"-separated, * stands for any bytes. neutral: "*" = read, or harmless, whatever it says;
 * else the values that change nothing, "|"-separated: texts in letters of any case, numbers as
 * "%.9g" writes them, and "-" for null, false, 0, [], {} and the empty string. */
struct text_key {
    const char *names, *neutral;
};
/* The first row whose names fit a key decides. A key that no row names is not known: its value must
 * be empty ("-"), for a list of what could matter is never whole. */
struct text_keys {
    const struct text_key *row;
    int n;
    const char *changes; /* what such keys could change: "the text", for messages */
};

/* A value as messages and lists spell it. */
struct text_key_value {
    char text[64];
    bool empty; /* null, false, 0, nothing in it */
    double f;   /* of a number, and of a list of equal ones; else NAN */
};

/* Do patterns, as names above, have one that fits name? NULL has none. */
bool text_key_fits(const char *patterns, const char *name);
struct text_key_value text_key_value(const struct json *v);
bool text_key_neutral(const struct text_key_value *v, const char *neutral);

/* A key and its value. what: the object, in front of messages; NULL or "" = nothing. Errors:
 * UNSUPPORTED names key and value. */
sl_status text_key_check(const struct text_keys *k, const char *what, const char *key,
                         const struct text_key_value *v, sl_err *err) BASE_MUST_USE;
/* Every key of an object; NULL, and what is no object, has none. Errors: as text_key_check. */
sl_status text_keys_check(const struct text_keys *k, const char *what, const struct json *o,
                          sl_err *err) BASE_MUST_USE;

#endif
