/* SPDX-License-Identifier: Apache-2.0 */
/* Constrained decoding: JSON schema, regular expression or GBNF -> which tokens may come next.
 *
 * Three objects. A grammar is what a text compiles to: immutable, knows no vocabulary, any thread.
 * A vocab is the bytes of every token as a trie: immutable, one per model. A run joins the two and
 * holds the caches and the states of all sequences that follow this grammar; it belongs to one
 * thread.
 *
 * A grammar is a set of rules over bytes; each rule is a small automaton whose edges are byte
 * ranges and calls of other rules. A state of a sequence is a set of (automaton state, stack), kept
 * as a number of an interned node, so equal situations share their transitions and their mask.
 * docs/grammar.md says what the three languages accept. The room is pure: no clock, no threads. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

#define GRAMMAR_MAX_TEXT (1 << 20)    /* bytes of a schema, pattern or grammar */
#define GRAMMAR_MAX_DEPTH 128         /* groups and schemas inside each other */
#define GRAMMAR_MAX_STATE (1 << 18)   /* of the compiled automaton */
#define GRAMMAR_MAX_EDGE (1 << 19)    /* of the compiled automaton */
#define GRAMMAR_MAX_REPEAT 100000     /* in {n,m}, minLength, maxItems, ... */
#define GRAMMAR_RUN_BYTES (16u << 20) /* what a run may hold: states, transitions and masks */

typedef struct grammar grammar;
typedef struct grammar_vocab grammar_vocab;
typedef struct grammar_run grammar_run;

enum grammar_kind {
    GRAMMAR_JSON_SCHEMA, /* text: a schema; the answer is one JSON value that it accepts */
    GRAMMAR_JSON_OBJECT, /* text unused; the answer is any JSON object */
    GRAMMAR_REGEX,       /* text: a pattern; the whole answer matches it */
    GRAMMAR_GBNF,        /* text: llama.cpp's grammar language; the start is the rule root */
    /* A schema that is held as far as it can be: keywords that no mask can hold are left out and
     * named by grammar_relaxed; in the worst case the answer is any value of the schema's type, any
     * object where it names none. Refused is only what is no JSON schema. */
    GRAMMAR_JSON_SCHEMA_LOOSE
};

/* Errors: REQUEST (names the keyword and its JSON pointer, or the byte; also: the grammar matches
 * nothing), LIMIT (text, depth, size: names the limit), NOMEM. Memory: *out is closed with
 * grammar_close; at most 64 MiB while it works. No recursion deeper than GRAMMAR_MAX_DEPTH groups.
 * Threads: any. Cost: linear in text and automaton; at most about 100 ms, for loose schemas, which
 * may be tried three times, 250 ms. */
sl_status grammar_open(enum grammar_kind kind, const char *text, size_t n, grammar **out,
                       sl_err *err) BASE_MUST_USE;
void grammar_close(grammar *g); /* NULL is legal */
/* What loose schemas do not hold: "#/properties/a/uniqueItems, #/not"; "" = everything is held.
 * Lives as long as g. */
const char *grammar_relaxed(const grammar *g);
size_t grammar_bytes(const grammar *g);

/* What a token is to a grammar. */
enum grammar_token {
    GRAMMAR_TOKEN_TEXT,   /* its bytes */
    GRAMMAR_TOKEN_END,    /* ends the answer; allowed where the answer may end */
    GRAMMAR_TOKEN_CONTROL /* only where a grammar names it: <[id]> in GBNF */
};
struct grammar_token_bytes {
    const char *p; /* borrowed during grammar_vocab_open */
    int n;         /* 0 = never allowed */
    enum grammar_token kind;
};
/* Errors: NOMEM, LIMIT. Memory: about 12 bytes for each byte of all tokens. */
sl_status grammar_vocab_open(const struct grammar_token_bytes *token, int n_vocab,
                             grammar_vocab **out, sl_err *err) BASE_MUST_USE;
void grammar_vocab_close(grammar_vocab *v);

/* g and v are borrowed until close. v may be NULL: then only grammar_push_bytes works. Errors:
 * NOMEM. */
sl_status grammar_run_open(const grammar *g, const grammar_vocab *v, grammar_run **out,
                           sl_err *err) BASE_MUST_USE;
void grammar_run_close(grammar_run *r);
size_t grammar_run_bytes(const grammar_run *r);

/* The state of one sequence: a small number >= 0, valid until grammar_state_close. It begins where
 * the answer begins. copy gives a second, independent one (samples, drafts that may be taken back).
 * Errors: NOMEM. */
sl_status grammar_state_open(grammar_run *r, int *out, sl_err *err) BASE_MUST_USE;
sl_status grammar_state_copy(grammar_run *r, int state, int *out, sl_err *err) BASE_MUST_USE;
void grammar_state_close(grammar_run *r, int state); /* < 0 is legal */

enum grammar_where {
    GRAMMAR_RUNNING,  /* more must come */
    GRAMMAR_CAN_STOP, /* the answer may end here or go on */
    GRAMMAR_DONE,     /* the answer is complete: only an end token is allowed */
    GRAMMAR_DEAD      /* what was pushed is not a beginning of any answer; the state did not move */
};

/* bits[(n_vocab + 31) / 32]: bit id % 32 of word id / 32 is 1 when the token may come next; every
 * word is written. At least one bit is 1.
 * Errors: REQUEST (the grammar wants a byte or a token that the vocabulary does not have), LIMIT
 * (this grammar is too ambiguous here: over the budget of steps or memory; the state stays), NOMEM.
 * Cost at V = 129 280: a state seen before 2 us, a new one 20 to 150 us, the first inside a text of
 * free characters up to 1 ms. */
sl_status grammar_mask(grammar_run *r, int state, uint32_t *bits, sl_err *err) BASE_MUST_USE;

/* Take one token. An end token gives DONE where the answer may end, else DEAD.
 * Errors: LIMIT, NOMEM as above. */
sl_status grammar_push(grammar_run *r, int state, int32_t token, enum grammar_where *where,
                       sl_err *err) BASE_MUST_USE;
/* The same for bytes. */
sl_status grammar_push_bytes(grammar_run *r, int state, const char *p, size_t n,
                             enum grammar_where *where, sl_err *err) BASE_MUST_USE;
/* The bytes that must come next, up to max: *n, 0 where there is a choice. Errors: LIMIT, NOMEM as
 * above. */
sl_status grammar_forced_bytes(grammar_run *r, int state, char *out, size_t max, size_t *n,
                               sl_err *err) BASE_MUST_USE;
/* Where a state is now; DEAD is never the answer. */
sl_status grammar_state_where(grammar_run *r, int state, enum grammar_where *where,
                              sl_err *err) BASE_MUST_USE;

#endif
