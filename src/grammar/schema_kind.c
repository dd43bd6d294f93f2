/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of JSON that all schemas share. White space between tokens of JSON: none,
 * one blank, or a new line and its indent. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

#define INDENT_MAX 48

static const struct ir *pattern(struct build *b, const char *p)
{
    return grammar_pattern(b, p, strlen(p), false, false, "number");
}

const struct ir *grammar_json_ws(struct build *b)
{
    return grammar_shared(b, SHARED_WS);
}

/* name ":" value */
const struct ir *grammar_json_member(struct build *b, const struct ir *name, const struct ir *value)
{
    return grammar_ir_seqv(b, name, grammar_ir_litz(b, ":"), grammar_json_ws(b), value);
}

const struct ir *grammar_json_comma(struct build *b)
{
    return grammar_ir_seqv(b, grammar_ir_litz(b, ","), grammar_json_ws(b), NULL, NULL);
}

/* open, then the list or nothing, close. */
static const struct ir *bracketed(struct build *b, const char *open, const struct ir *inside,
                                  const char *close)
{
    const struct ir *head =
        grammar_ir_seqv(b, grammar_ir_litz(b, open), grammar_json_ws(b), NULL, NULL);
    return grammar_ir_seqv(b, head, inside, grammar_json_ws(b), grammar_ir_litz(b, close));
}

const struct ir *grammar_json_quoted(struct build *b, const struct ir *e)
{
    const struct ir *q = grammar_ir_litz(b, "\"");
    return grammar_ir_seqv(b, q, e, q, NULL);
}

const struct ir *grammar_json_value(struct build *b, const struct json *v)
{
    struct str s;
    struct json_w w;
    str_init(&s, MEM_REQUEST, 0);
    text_jw_init(&w, &s);
    if (v->kind == JSON_REAL_K && v->f > -1e15 && v->f < 1e15 && v->f == (double)(int64_t)v->f)
        text_jw_int(&w, (int64_t)v->f); /* 2.0 is written 2 */
    else
        text_jw_node(&w, v);
    if (s.failed) grammar_build_fail(b, s.failed, "out of memory");
    const struct ir *e = grammar_ir_lit(b, str_c(&s), s.n);
    str_fini(&s);
    return e;
}

/* One or more of e with commas. */
static const struct ir *listed(struct build *b, const struct ir *e, uint32_t min, uint32_t max)
{
    const struct ir *more = grammar_ir_seqv(b, grammar_json_comma(b), e, NULL, NULL);
    return grammar_ir_seqv(
        b, e, grammar_ir_rep(b, more, min ? min - 1 : 0, max == GRAMMAR_INF ? max : max - 1), NULL,
        NULL);
}

static const struct ir *shared_body(struct build *b, enum shared_rule which)
{
    static const struct ir_range blank[] = {{'\t', '\t'}, {' ', ' '}}, wide[] = {{0x80, 0x10ffff}};
    const struct ir *k[8];
    switch (which) {
    case SHARED_WS:
        k[0] = grammar_ir_empty(b);
        k[1] = grammar_ir_litz(b, " ");
        k[2] = grammar_ir_seqv(
            b, grammar_ir_litz(b, "\n"),
            grammar_ir_rep(b, grammar_ir_class(b, blank, 2, false, false), 0, INDENT_MAX), NULL,
            NULL);
        return grammar_ir_alt(b, k, 3);
    case SHARED_STRING:
        k[0] = grammar_ir_litz(b, "\"");
        return grammar_ir_seqv(
            b, k[0], grammar_ir_rep(b, grammar_schema_char(b, false), 0, GRAMMAR_INF), k[0], NULL);
    case SHARED_ESCAPE:
        return pattern(
            b, "\\\\(?:[\"\\\\/bfnrt]|u(?:[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7]"
               "[0-9A-Fa-f]{2}|[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}))");
    case SHARED_WIDE:
        k[0] = grammar_ir_class(b, wide, 1, false, false);
        k[1] = grammar_shared(b, SHARED_ESCAPE);
        return grammar_ir_alt(b, k, 2);
    case SHARED_NUMBER:
        return pattern(b, "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?");
    case SHARED_INTEGER:
        return pattern(b, "0|-?[1-9][0-9]{0,17}");
    case SHARED_VALUE:
        k[0] = grammar_shared(b, SHARED_OBJECT);
        k[1] = grammar_shared(b, SHARED_ARRAY);
        k[2] = grammar_shared(b, SHARED_STRING);
        k[3] = grammar_shared(b, SHARED_NUMBER);
        k[4] = grammar_ir_litz(b, "true");
        k[5] = grammar_ir_litz(b, "false");
        k[6] = grammar_ir_litz(b, "null");
        return grammar_ir_alt(b, k, 7);
    case SHARED_OBJECT:
        k[0] = grammar_json_member(b, grammar_shared(b, SHARED_STRING),
                                   grammar_shared(b, SHARED_VALUE));
        k[1] = bracketed(b, "{", listed(b, k[0], 1, GRAMMAR_INF), "}");
        k[0] = grammar_ir_seqv(b, grammar_ir_litz(b, "{"), grammar_json_ws(b),
                               grammar_ir_litz(b, "}"), NULL);
        return grammar_ir_alt(b, k, 2);
    case SHARED_ARRAY:
        k[1] = bracketed(b, "[", listed(b, grammar_shared(b, SHARED_VALUE), 1, GRAMMAR_INF), "]");
        k[0] = grammar_ir_seqv(b, grammar_ir_litz(b, "["), grammar_json_ws(b),
                               grammar_ir_litz(b, "]"), NULL);
        return grammar_ir_alt(b, k, 2);
    case SHARED_N:
        break;
    }
    return grammar_ir_never(b);
}

const struct ir *grammar_shared(struct build *b, enum shared_rule which)
{
    static const char *const name[SHARED_N] = {"white space", "string", "escape",
                                               "character",   "number", "integer",
                                               "value",       "object", "array"};
    if (!b->shared[which]) {
        int rule = grammar_rule_new(b, name[which], strlen(name[which]));
        if (rule < 0) return grammar_ir_never(b);
        b->shared[which] = rule; /* before the body, which may refer to it */
        grammar_rule_set(b, rule, shared_body(b, which));
    }
    return grammar_ir_call(b, b->shared[which]);
}

void grammar_object(struct build *b)
{
    grammar_rule_set(b, 0, grammar_shared(b, SHARED_OBJECT));
}
