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
    else if (kind == GRAMMAR_JSON_SCHEMA || kind == GRAMMAR_JSON_SCHEMA_LOOSE)
        grammar_schema(b, text, n, 0, kind == GRAMMAR_JSON_SCHEMA_LOOSE);
    else if (kind == GRAMMAR_REGEX)
        grammar_regex(b, text, n);
    else
        grammar_gbnf(b, text, n);
}

static void clear(grammar *g)
{
    void *const part[] = {g->first, g->edge, g->plain, g->start, g->rank, g->nullable, g->relaxed};
    for (int i = 0; i < BASE_COUNT_OF(part); i++)
        mem_free(part[i]);
    *g = (grammar){.bytes = sizeof *g};
}

static sl_status keep_note(grammar *g, struct str *note, sl_err *err)
{
    void *p = NULL;
    if (!note->n) return str_status(note, err);
    SL_TRY(mem_alloc(MEM_REQUEST, note->n + 1, &p, err));
    memcpy(p, str_c(note), note->n + 1);
    g->relaxed = p;
    g->bytes += note->n + 1;
    return SL_OK;
}

/* Failed with st: the loose schema that it is in, or all of them, one level up. false: none can. */
static bool looser(struct loose *l, sl_status st)
{
    bool any = false;
    if (st != SL_REQUEST && st != SL_LIMIT) return false;
    for (int i = 0; i < l->n; i++) {
        if ((l->failed >= 0 && l->failed != i) || l->level[i] >= LOOSE_ANY) continue;
        /* fewer counts are of no help to what is wrong and not large */
        l->level[i] = st == SL_LIMIT ? l->level[i] + 1 : LOOSE_ANY;
        any = true;
    }
    return any;
}

sl_status grammar_open(enum grammar_kind kind, const char *text, size_t n, grammar **out,
                       sl_err *err)
{
    struct loose *l = NULL;
    void *p = NULL;
    sl_status st;
    bool again;
    sl_err local; /* front ends need the text of the first failure in any case */
    if (!err) err = &local;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof *l, (void **)&l, err));
    str_init(&l->note, MEM_REQUEST, 0);
    st = mem_alloc_array(MEM_REQUEST, 1, sizeof(grammar), &p, err);
    grammar *g = p;
    do {
        struct build b;
        if (st) break;
        clear(g);
        grammar_build_init(&b, l, err);
        front(&b, kind, text ? text : "", text ? n : 0);
        st = b.st;
        if (!st) st = grammar_nfa(&b, g, err);
        if (!st) st = keep_note(g, &l->note, err);
        again = st && !b.wrong && looser(l, st);
        if (again) st = SL_OK;
        grammar_build_fini(&b);
    } while (again);
    str_fini(&l->note);
    mem_free(l);
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
    clear(g);
    mem_free(g);
}

const char *grammar_relaxed(const grammar *g)
{
    return g->relaxed ? g->relaxed : "";
}

size_t grammar_bytes(const grammar *g)
{
    return g->bytes;
}
