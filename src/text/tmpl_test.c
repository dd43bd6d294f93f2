/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: `x is name`. */
#include <string.h>

#include "text/tmpl_internal.h"

enum test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_CALLABLE,
    IS_ODD,
    IS_EVEN,
    IS_DIVISIBLE,
    IS_EQ,
    IS_NE,
    IS_LT,
    IS_LE,
    IS_GT,
    IS_GE,
    IS_IN,
    IS_SAME,
    IS_LOWER,
    IS_UPPER,
};

static const struct {
    const char *name, *params;
    enum test t;
} tests[] = {
    {"defined", "", IS_DEFINED},
    {"undefined", "", IS_UNDEFINED},
    {"none", "", IS_NONE},
    {"boolean", "", IS_BOOLEAN},
    {"true", "", IS_TRUE},
    {"false", "", IS_FALSE},
    {"integer", "", IS_INTEGER},
    {"float", "", IS_FLOAT},
    {"number", "", IS_NUMBER},
    {"string", "", IS_STRING},
    {"mapping", "", IS_MAPPING},
    {"iterable", "", IS_ITERABLE},
    {"sequence", "", IS_SEQUENCE},
    {"callable", "", IS_CALLABLE},
    {"odd", "", IS_ODD},
    {"even", "", IS_EVEN},
    {"divisibleby", "num", IS_DIVISIBLE},
    {"eq", "b", IS_EQ},
    {"equalto", "b", IS_EQ},
    {"==", "b", IS_EQ},
    {"ne", "b", IS_NE},
    {"!=", "b", IS_NE},
    {"lt", "b", IS_LT},
    {"lessthan", "b", IS_LT},
    {"<", "b", IS_LT},
    {"le", "b", IS_LE},
    {"<=", "b", IS_LE},
    {"gt", "b", IS_GT},
    {"greaterthan", "b", IS_GT},
    {">", "b", IS_GT},
    {"ge", "b", IS_GE},
    {">=", "b", IS_GE},
    {"in", "seq", IS_IN},
    {"sameas", "other", IS_SAME},
    {"lower", "", IS_LOWER},
    {"upper", "", IS_UPPER},
};

int text_test_find(const char *name, size_t n)
{
    for (int i = 0; i < BASE_COUNT_OF(tests); i++)
        if (strlen(tests[i].name) == n && memcmp(tests[i].name, name, n) == 0) return i;
    return -1;
}

void text_test_info(int i, const char **name, const char **params, int *n_min)
{
    *name = tests[i].name;
    *params = tests[i].params;
    *n_min = tests[i].params[0] ? 1 : 0;
}

static sl_status with_integer(struct tx *x, enum test t, struct tv v, const struct tv *by,
                              bool *out)
{
    if (v.kind != TV_INT && v.kind != TV_BOOL)
        return text_tx_fail(x, SL_REQUEST, "this test wants an integer, not %s", text_tv_kind(v));
    int64_t i = v.kind == TV_INT ? v.i : v.b;
    if (t == IS_DIVISIBLE) {
        if (by->kind != TV_INT || by->i == 0)
            return text_tx_fail(x, SL_REQUEST, "divisibleby wants an integer that is not 0");
        *out = by->i == -1 || i % by->i == 0;
        return SL_OK;
    }
    *out = (i % 2 != 0) == (t == IS_ODD);
    return SL_OK;
}

static sl_status compare(struct tx *x, enum test t, struct tv v, struct tv by, bool *out)
{
    int c = 0;
    if (t == IS_SAME && v.kind != by.kind) {
        *out = false;
        return SL_OK;
    }
    if (t == IS_EQ || t == IS_NE || t == IS_SAME) {
        SL_TRY(text_tv_equal(x, v, by, 0, out));
        *out ^= t == IS_NE;
        return SL_OK;
    }
    if (t == IS_IN) return text_tv_in(x, v, by, out);
    SL_TRY(text_tv_less(x, v, by, 0, &c));
    *out = t == IS_LT ? c < 0 : t == IS_LE ? c <= 0 : t == IS_GT ? c > 0 : c >= 0;
    return SL_OK;
}

static sl_status case_is(struct tx *x, enum test t, struct tv v, bool *out)
{
    struct tv s, yes;
    SL_TRY(text_tv_str(x, v, &s));
    struct tmethod m = {s, t == IS_LOWER ? "islower" : "isupper"};
    struct tcall c = {.params = ""};
    SL_TRY(text_tx_method(x, &m, &c, &yes));
    *out = yes.b;
    return SL_OK;
}

sl_status text_test_run(struct tx *x, int i, const struct tcall *c, bool *out)
{
    const struct tv v = c->in, *by = tests[i].params[0] ? text_tc_arg(c, 0) : NULL;
    bool callable =
        v.kind == TV_MACRO || v.kind == TV_FUNC || v.kind == TV_METHOD || v.kind == TV_UNDEF;
    SL_TRY(text_tx_cost(x, 1));
    if (tests[i].params[0] && !by)
        return text_tx_fail(x, SL_REQUEST, "test %s without its argument", tests[i].name);
    switch (tests[i].t) {
    case IS_DEFINED:
    case IS_UNDEFINED:
        *out = (v.kind != TV_UNDEF && !(v.kind == TV_METHOD && text_method_mutates(v.me))) ==
               (tests[i].t == IS_DEFINED); /* what Jinja's sandbox takes away is not defined */
        return SL_OK;
    case IS_NONE:
        *out = v.kind == TV_NONE;
        return SL_OK;
    case IS_BOOLEAN:
        *out = v.kind == TV_BOOL;
        return SL_OK;
    case IS_TRUE:
    case IS_FALSE:
        *out = v.kind == TV_BOOL && v.b == (tests[i].t == IS_TRUE);
        return SL_OK;
    case IS_INTEGER:
        *out = v.kind == TV_INT;
        return SL_OK;
    case IS_FLOAT:
        *out = v.kind == TV_REAL;
        return SL_OK;
    case IS_NUMBER:
        *out = v.kind == TV_INT || v.kind == TV_REAL || v.kind == TV_BOOL;
        return SL_OK;
    case IS_STRING:
        *out = v.kind == TV_STR;
        return SL_OK;
    case IS_MAPPING:
        *out = v.kind == TV_DICT;
        return SL_OK;
    case IS_ITERABLE:
        *out = v.kind == TV_STR || v.kind == TV_LIST || v.kind == TV_DICT || v.kind == TV_UNDEF;
        return SL_OK;
    case IS_SEQUENCE:
        *out = v.kind == TV_STR || (v.kind == TV_LIST && !v.l->gen && v.l->form != TL_VIEW) ||
               v.kind == TV_DICT || v.kind == TV_UNDEF;
        return SL_OK;
    case IS_CALLABLE:
        *out = callable;
        return SL_OK;
    case IS_ODD:
    case IS_EVEN:
    case IS_DIVISIBLE:
        return with_integer(x, tests[i].t, v, by, out);
    case IS_LOWER:
    case IS_UPPER:
        return case_is(x, tests[i].t, v, out);
    default:
        return compare(x, tests[i].t, v, *by, out);
    }
}
