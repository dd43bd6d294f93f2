/* SPDX-License-Identifier: Apache-2.0 */
/* A text becomes rules (pattern.c, gbnf.c, schema.c), and the rules an automaton (nfa.c). */
#include "grammar/grammar_internal.h"

#include <string.h>

#include "text/utf8.h"

static void front(struct build *b, enum grammar_kind kind, const char *text, size_t n)
{
    grammar_rule_new(b, kind == GRAMMAR_GBNF ? "root" : "#", kind == GRAMMAR_GBNF ? 4 : 1);
    if (kind == GRAMMAR_JSON_OBJECT) {
        grammar_object(b);
        return;
    }
    if (n > GRAMMAR_MAX_TEXT) {
        grammar_build_fail(b, SL_LIMIT, "grammar: %zu bytes: over the limit of %d", n,
                           GRAMMAR_MAX_TEXT);
        return;
    }
    size_t bad = text_utf8_check(text, n);
    if (bad < n)
        grammar_build_fail(b, SL_REQUEST, "byte %zu: not UTF-8", bad);
    else if (kind == GRAMMAR_JSON_SCHEMA)
        grammar_schema(b, text, n, 0);
    else if (kind == GRAMMAR_REGEX)
        grammar_regex(b, text, n);
    else
        grammar_gbnf(b, text, n);
}

sl_status grammar_open(enum grammar_kind kind, const char *text, size_t n, grammar **out,
                       sl_err *err)
{
    struct build b;
    void *p = NULL;
    sl_err local; /* front ends need the text of the first failure in any case */
    if (!err) err = &local;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof(grammar), &p, err));
    grammar *g = p;
    g->bytes = sizeof *g;
    grammar_build_init(&b, err);
    front(&b, kind, text ? text : "", text ? n : 0);
    sl_status st = b.st;
    if (!st) st = grammar_nfa(&b, g, err);
    grammar_build_fini(&b);
    if (st) {
        grammar_close(g);
        return st;
    }
    *out = g;
    return SL_OK;
}

void grammar_close(grammar *g)
{
    if (!g) return;
    mem_free(g->first);
    mem_free(g->edge);
    mem_free(g->plain);
    mem_free(g->start);
    mem_free(g->rank);
    mem_free(g->nullable);
    mem_free(g);
}

size_t grammar_bytes(const grammar *g)
{
    return g->bytes;
}
