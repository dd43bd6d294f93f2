/* SPDX-License-Identifier: Apache-2.0 */
/* The automaton while it is built. */
#ifndef GRAMMAR_NFA_INTERNAL_H
#define GRAMMAR_NFA_INTERNAL_H

#include "grammar/grammar_internal.h"

struct raw_edge {
    struct edge e;
    uint32_t next; /* of the same state; 0 = last */
};
struct nfa {
    struct build *b;
    uint32_t *head; /* [n_state] first edge, 0 = none */
    uint8_t *plain;
    uint32_t n_state, cap_state, cap_plain;
    struct raw_edge *edge; /* [0] unused */
    uint32_t n_edge, cap_edge;
    uint32_t *path; /* of literals in an alternative */
    uint32_t cap_path;
};

/* A new state; 0 after a failure, which is kept in the builder. */
uint32_t grammar_nfa_state(struct nfa *a);
void grammar_nfa_edge(struct nfa *a, uint32_t from, int kind, uint32_t arg, uint32_t to);
/* p[0..n), then next: the state where it begins. */
uint32_t grammar_nfa_lit(struct nfa *a, const char *p, size_t n, uint32_t next);
/* The byte edges of a class. */
uint32_t grammar_nfa_class(struct nfa *a, const struct ir *e, uint32_t next);
/* The states and byte edges of an automaton over code points. */
uint32_t grammar_nfa_auto(struct nfa *a, const struct ir *e, uint32_t next);

#endif
