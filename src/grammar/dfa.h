/* SPDX-License-Identifier: Apache-2.0 */
/* Deterministic automata over code points: what a string must match when it must match several
 * things at once, or must not match one. Small ones only: where a result would have more than
 * DFA_MAX_STATE states, the functions give NULL and the caller says what it cannot hold. */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include "grammar/grammar_internal.h"

#define DFA_MAX_STATE 20000

struct dfa_edge {
    uint32_t lo, hi, to; /* code points, inclusive; of one state: rising, apart */
};
struct dfa {               /* state 0 is the start; every state leads to an end */
    uint32_t n, n_edge;    /* n = 0: nothing is accepted */
    const uint32_t *first; /* [n + 1] */
    const struct dfa_edge *edge;
    const uint8_t *end; /* [n] */
};

/* All results lie in the builder's arena. NULL: too large, or the builder failed. */
/* An expression without calls, made with json = false where it holds literals. */
const struct dfa *grammar_dfa_of(struct build *b, const struct ir *e);
const struct dfa *grammar_dfa_not(struct build *b, const struct dfa *d);
const struct dfa *grammar_dfa_and(struct build *b, const struct dfa *x, const struct dfa *y);
const struct dfa *grammar_dfa_or(struct build *b, const struct dfa *x, const struct dfa *y);
/* Texts of min to max characters. */
const struct dfa *grammar_dfa_length(struct build *b, uint32_t min, uint32_t max);
/* The characters of the longest text; GRAMMAR_INF = there is no end. */
uint32_t grammar_dfa_longest(struct build *b, const struct dfa *d);
bool grammar_dfa_takes(const struct dfa *d, const char *p, size_t n);

#endif
