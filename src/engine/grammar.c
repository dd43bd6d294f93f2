/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of room grammar, and its seam to the sampler.
 *
 * A compiled grammar is immutable; its run (caches and the states of all sequences that follow it)
 * is made by the first mask and used under a lock, which is contended only where engines on two
 * threads share a grammar. The samples of one request share the masks that one of them computed. */
#include "engine/engine_internal.h"

#include <string.h>

#include "text/utf8.h"

struct sl_grammar {
    /* fixed after compile */
    grammar *g;
    const grammar_vocab *v; /* the model's */
    sl_grammar_kind kind;
    char *text; /* [n] */
    size_t n;
    /* any thread */
    atomic_int n_ref;
    atomic_flag busy; /* over run */
    atomic_size_t run_bytes;
    grammar_run *run;
};

struct engine_grammar_state {
    sl_grammar *g;
    int state; /* -1 = nothing asked yet */
};

/* The bytes of every token, once per model; two threads may both build it, one is kept. */
static sl_status vocab_of(sl_model *m, const grammar_vocab **out, sl_err *err)
{
    grammar_vocab *v = atomic_load_explicit(&m->gvocab, memory_order_acquire), *old = NULL;
    void *p = NULL;
    *out = v;
    if (v) return SL_OK;
    if (!m->tok) {
        if (err) *err = m->tok_err;
        return m->tok_err.code ? m->tok_err.code
                               : SL_FAIL(err, NOTFOUND, "%s: no tokenizer: no grammars", m->name);
    }
    int n = m->has_cfg ? m->cfg.n_vocab : tok_n_vocab(m->tok), n_tok = tok_n_vocab(m->tok);
    SL_TRY(mem_alloc_array(MEM_TOK, (size_t)n, sizeof(struct grammar_token_bytes), &p, err));
    struct grammar_token_bytes *t = p;
    for (int i = 0; i < n && i < n_tok; i++) {
        t[i].p = tok_bytes(m->tok, i, &t[i].n);
        t[i].kind = tok_is_eog(m->tok, i)       ? GRAMMAR_TOKEN_END
                    : tok_is_special(m->tok, i) ? GRAMMAR_TOKEN_CONTROL
                                                : GRAMMAR_TOKEN_TEXT;
    }
    sl_status st = grammar_vocab_open(t, n, &v, err);
    mem_free(p);
    if (st) return st;
    /* release: the trie is complete; pairs with the acquire above */
    if (!atomic_compare_exchange_strong_explicit(&m->gvocab, &old, v, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        grammar_vocab_close(v);
        v = old;
    }
    *out = v;
    return SL_OK;
}

sl_status sl_grammar_compile(const sl_model *m, sl_grammar_kind kind, const char *text, size_t n,
                             sl_grammar **out, sl_err *err)
{
    void *p = NULL;
    const grammar_vocab *v = NULL;
    grammar *g = NULL;
    *out = NULL;
    if (kind < SL_GRAMMAR_JSON_SCHEMA || kind > SL_GRAMMAR_JSON_SCHEMA_LOOSE)
        return SL_FAIL(err, REQUEST, "grammar: kind %d is not known", (int)kind);
    SL_TRY(vocab_of((sl_model *)m, &v, err)); /* the cache in it is atomic */
    static const enum grammar_kind kinds[] = {GRAMMAR_JSON_SCHEMA, GRAMMAR_JSON_OBJECT,
                                              GRAMMAR_REGEX, GRAMMAR_GBNF,
                                              GRAMMAR_JSON_SCHEMA_LOOSE};
    SL_TRY(grammar_open(kinds[kind], text, n, &g, err));
    sl_status st = mem_alloc_array(MEM_REQUEST, 1, sizeof **out + n + 1, &p, err);
    if (st) {
        grammar_close(g);
        return st;
    }
    sl_grammar *s = p;
    s->g = g;
    s->v = v;
    s->kind = kind;
    s->text = (char *)(s + 1);
    s->n = text ? n : 0;
    if (text) memcpy(s->text, text, n);
    atomic_init(&s->n_ref, 1);
    atomic_init(&s->run_bytes, 0);
    atomic_flag_clear(&s->busy);
    *out = s;
    return SL_OK;
}

sl_grammar *sl_grammar_ref(sl_grammar *g)
{
    if (g) atomic_fetch_add_explicit(&g->n_ref, 1, memory_order_relaxed);
    return g;
}

void sl_grammar_unref(sl_grammar *g)
{
    /* acq_rel: the last one sees what all others did */
    if (!g || atomic_fetch_sub_explicit(&g->n_ref, 1, memory_order_acq_rel) != 1) return;
    grammar_run_close(g->run);
    grammar_close(g->g);
    mem_free(g);
}

size_t sl_grammar_bytes(const sl_grammar *g)
{
    return sizeof *g + g->n + grammar_bytes(g->g) +
           atomic_load_explicit(&g->run_bytes, memory_order_relaxed);
}

const char *sl_grammar_relaxed(const sl_grammar *g)
{
    return grammar_relaxed(g->g);
}

const char *sl_grammar_source(const sl_grammar *g, sl_grammar_kind *kind, size_t *n)
{
    *kind = g->kind;
    *n = g->n;
    return g->text;
}

static void lock(sl_grammar *g)
{
    while (atomic_flag_test_and_set_explicit(&g->busy, memory_order_acquire)) {
    }
}

static void unlock(sl_grammar *g)
{
    atomic_flag_clear_explicit(&g->busy, memory_order_release);
}

sl_status engine_grammar_open(sl_grammar *g, struct engine_grammar_state **out, sl_err *err)
{
    void *p = NULL;
    *out = NULL;
    if (!g) return SL_OK;
    SL_TRY(mem_alloc_array(MEM_REQUEST, 1, sizeof **out, &p, err));
    *out = p;
    (*out)->g = sl_grammar_ref(g);
    (*out)->state = -1;
    return SL_OK;
}

void engine_grammar_close(struct engine_grammar_state *s)
{
    if (!s) return;
    if (s->state >= 0) {
        lock(s->g);
        grammar_state_close(s->g->run, s->state);
        unlock(s->g);
    }
    sl_grammar_unref(s->g);
    mem_free(s);
}

/* The run, and the sequence's state in it; under the lock. */
static sl_status begin(struct engine_grammar_state *s, sl_err *err)
{
    sl_grammar *g = s->g;
    if (!g->run) SL_TRY(grammar_run_open(g->g, g->v, &g->run, err));
    return s->state >= 0 ? SL_OK : grammar_state_open(g->run, &s->state, err);
}

sl_status engine_grammar_mask(struct engine_grammar_state *s, uint32_t *bits, sl_err *err)
{
    lock(s->g);
    sl_status st = begin(s, err);
    if (!st) st = grammar_mask(s->g->run, s->state, bits, err);
    if (s->g->run)
        atomic_store_explicit(&s->g->run_bytes, grammar_run_bytes(s->g->run), memory_order_relaxed);
    unlock(s->g);
    return st;
}

sl_status engine_grammar_push(struct engine_grammar_state *s, int32_t token, bool *done,
                              sl_err *err)
{
    enum grammar_where where = GRAMMAR_DEAD;
    *done = false;
    lock(s->g);
    sl_status st = begin(s, err);
    if (!st) st = grammar_push(s->g->run, s->state, token, &where, err);
    unlock(s->g);
    if (st) return st;
    if (where == GRAMMAR_DEAD)
        return SL_FAIL(err, INTERNAL, "token %d does not fit the grammar", (int)token);
    *done = where == GRAMMAR_DONE;
    return SL_OK;
}

/* ---- drafts: on a copy of the state ---- */

/* A copy of the state in s's run; -1 = there is no memory for one, or the like: then nothing is
 * known. The lock is held from here until the copy is dropped. */
static int take_copy(struct engine_grammar_state *s)
{
    int at = -1;
    lock(s->g);
    if (begin(s, NULL) || grammar_state_copy(s->g->run, s->state, &at, NULL)) return -1;
    return at;
}

static void drop_copy(struct engine_grammar_state *s, int at)
{
    if (at >= 0) grammar_state_close(s->g->run, at);
    unlock(s->g);
}

/* The only bit that is set; -1 = there are more. */
static int32_t only_bit(const uint32_t *bits, int n_vocab)
{
    int32_t id = -1;
    for (int i = 0; i * 32 < n_vocab; i++) {
        if (!bits[i]) continue;
        if (id >= 0 || (bits[i] & (bits[i] - 1))) return -1;
        id = i * 32 + __builtin_ctz(bits[i]);
    }
    return id;
}

int engine_grammar_forced(struct engine_grammar_state *s, uint32_t *bits, int n_vocab, int n_max,
                          int32_t *out)
{
    int n = 0;
    int at = take_copy(s);
    while (at >= 0 && n < n_max) {
        enum grammar_where where;
        if (grammar_mask(s->g->run, at, bits, NULL)) break;
        int32_t id = only_bit(bits, n_vocab);
        if (id < 0) break;
        out[n++] = id;
        if (grammar_push(s->g->run, at, id, &where, NULL) || where == GRAMMAR_DONE) break;
    }
    drop_copy(s, at);
    return n;
}

#define LITERAL 80 /* bytes; more than a step's drafts */

/* The bytes that must come after s and n tokens; how many whole characters. *cut: there may be
 * more. */
static size_t literal_of(struct engine_grammar_state *s, const int32_t *id, int n, char *text,
                         bool *cut)
{
    enum grammar_where where = GRAMMAR_RUNNING;
    size_t n_text = 0;
    int at = take_copy(s);
    bool ok = at >= 0;
    for (int i = 0; ok && i < n; i++)
        ok = !grammar_push(s->g->run, at, id[i], &where, NULL) && where == GRAMMAR_RUNNING;
    if (!ok || grammar_forced_bytes(s->g->run, at, text, LITERAL, &n_text, NULL)) n_text = 0;
    drop_copy(s, at);
    *cut = n_text == LITERAL;
    return text_utf8_check(text, n_text);
}

int engine_grammar_literal(struct engine_grammar_state *s, const tok *t, struct tok_ids *scratch,
                           int n, int n_max, int32_t *out)
{
    char text[LITERAL];
    bool cut;
    size_t n_text = n < n_max ? literal_of(s, out, n, text, &cut) : 0, at = 0;
    scratch->n = 0;
    if (n_text < 2 || tok_encode(t, text, n_text, 0, scratch, NULL)) return n;
    for (int i = 0; i < scratch->n - cut && n < n_max; i++) { /* the last may go on after a cut */
        int len = 0;
        const char *p = tok_bytes(t, scratch->id[i], &len);
        if (len < 1 || (size_t)len > n_text - at || memcmp(p, text + at, (size_t)len) != 0) break;
        at += (size_t)len;
        out[n++] = scratch->id[i];
    }
    return n;
}

int engine_grammar_fits(struct engine_grammar_state *s, const int32_t *id, int n)
{
    int fit = 0;
    int at = take_copy(s);
    while (at >= 0 && fit < n) {
        enum grammar_where where;
        if (grammar_push(s->g->run, at, id[fit], &where, NULL) || where == GRAMMAR_DEAD) break;
        fit++;
        if (where == GRAMMAR_DONE) break;
    }
    drop_copy(s, at);
    return fit;
}
