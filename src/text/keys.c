/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of files against lists of those that are known. */
#include "text/keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Does name fit one of patterns? */
static bool fits_one(const char *p, size_t n_p, const char *name)
{
    const char *end = p + n_p, *star = NULL, *back = NULL;
    while (*name) {
        if (p < end && *p == '*') {
            star = ++p;
            back = name;
        } else if (p < end && *p == *name) {
            p++;
            name++;
        } else if (star) {
            p = star;
            name = ++back;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}

bool text_key_fits(const char *patterns, const char *name)
{
    for (const char *p = patterns ? patterns : ""; *p;) {
        size_t n = strcspn(p, "|");
        if (fits_one(p, n, name)) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

/* The number that all entries of a list are, or NAN. */
static double all_equal(const struct json *list)
{
    double f = NAN;
    for (const struct json *v = list->child; v; v = v->next) {
        bool number = v->kind == JSON_INT_K || v->kind == JSON_REAL_K;
        if (!number || (v != list->child && v->f != f)) return NAN;
        f = v->f;
    }
    return f;
}

struct text_key_value text_key_value(const struct json *v)
{
    struct text_key_value o = {.text = "null", .empty = true, .f = NAN};
    switch (v->kind) {
    case JSON_NULL_K:
        break;
    case JSON_BOOL_K:
        snprintf(o.text, sizeof o.text, "%s", v->b ? "true" : "false");
        o.empty = !v->b;
        break;
    case JSON_INT_K:
    case JSON_REAL_K:
        snprintf(o.text, sizeof o.text, "%.9g", v->f);
        o.empty = v->f == 0;
        o.f = v->f;
        break;
    case JSON_STR_K:
        snprintf(o.text, sizeof o.text, "%.60s", v->s);
        o.empty = v->n == 0;
        break;
    default:
        snprintf(o.text, sizeof o.text,
                 v->kind == JSON_ARRAY_K ? v->n ? "[...]" : "[]"
                 : v->n                  ? "{...}"
                                         : "{}");
        o.empty = v->n == 0;
        if (v->kind == JSON_ARRAY_K) o.f = all_equal(v);
    }
    return o;
}

bool text_key_neutral(const struct text_key_value *v, const char *neutral)
{
    if (strcmp(neutral, "*") == 0) return true;
    for (const char *p = neutral; *p;) {
        size_t n = strcspn(p, "|");
        if (n == 1 && *p == '-' && v->empty) return true;
        if (strlen(v->text) == n && strncasecmp(v->text, p, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

sl_status text_key_check(const struct text_keys *k, const char *what, const char *key,
                         const struct text_key_value *v, sl_err *err)
{
    const char *colon = what && *what ? ": " : "";
    if (!what) what = "";
    for (int i = 0; i < k->n; i++) {
        if (!text_key_fits(k->row[i].names, key)) continue;
        if (text_key_neutral(v, k->row[i].neutral)) return SL_OK;
        return SL_FAIL(err, UNSUPPORTED,
                       "%.60s%s%.60s is %s, which would change %s and is not supported", what,
                       colon, key, v->text, k->changes);
    }
    if (v->empty) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "%.60s%s%.60s is %s: this key is not known and could change %s: take it out if "
                   "it does not",
                   what, colon, key, v->text, k->changes);
}

sl_status text_keys_check(const struct text_keys *k, const char *what, const struct json *o,
                          sl_err *err)
{
    if (!o || o->kind != JSON_OBJECT_K) return SL_OK;
    for (const struct json *m = o->child; m; m = m->next) {
        struct text_key_value v = text_key_value(m);
        SL_TRY(text_key_check(k, what, m->key, &v, err));
    }
    return SL_OK;
}
