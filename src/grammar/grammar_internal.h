/* SPDX-License-Identifier: Apache-2.0 */
/* What the front ends build (expressions and rules), what it becomes (an automaton), and how a run
 * keeps states. */
#ifndef GRAMMAR_GRAMMAR_INTERNAL_H
#define GRAMMAR_GRAMMAR_INTERNAL_H

#include "grammar/grammar.h"
#include "base/str.h"
#include "text/json.h"

/* ---- expressions (ir.c). They live in the builder's arena; a failure is kept in the builder, so
 * that the functions can always give an expression. ---- */
#define GRAMMAR_INF UINT32_MAX

enum ir_kind {
    IR_EMPTY,  /* the empty text */
    IR_NEVER,  /* nothing */
    IR_LIT,    /* p[0..n) */
    IR_CLASS,  /* one code point of range[0..n) */
    IR_SEQ,    /* kid[0..n) one after another */
    IR_ALT,    /* one of kid[0..n) */
    IR_REP,    /* kid[0] from min to max times; max GRAMMAR_INF = no end */
    IR_CALL,   /* rule */
    IR_DIGITS, /* an automaton over digits */
    IR_AUTO,   /* dfa: an automaton over code points (dfa.h) */
    IR_GRAPH,  /* arc[0..n) between min states: from state 0 to those in which it may end */
    IR_CHAIN /* kid[0..n) in order, each may be left out unless must[i]; sep between those that are
                there; then tail (NULL = none)  where something came before, else tail0 */
};
struct ir_range {
    uint32_t lo, hi; /* code points, inclusive */
};
struct dfa;
struct ir_arc {
    uint32_t from, to; /* states; to = the number of states: the end of the graph */
    const struct ir *e;
};
#define GRAMMAR_NO_DIGIT UINT32_MAX
struct ir_digit {
    uint32_t to[11]; /* by digit, and by a point: row, or NO_DIGIT */
    bool end;
};
struct ir {
    enum ir_kind kind;
    bool plain; /* in a repeat: every plain character (see vocab.c) is one round */
    bool json;  /* CLASS, AUTO: quotes, backslashes and control characters are written as JSON
                   escapes */
    uint32_t n, min, max;
    int rule;
    union {
        const char *p;
        const struct ir_range *range;
        const struct ir **kid;
        const struct ir_digit *row; /* [n] */
        const struct dfa *dfa;
        const struct ir_arc *arc; /* [n] */
    };
    const uint32_t *start; /* [min] rows of DIGITS */
    const bool *must;
    const struct ir *sep, *tail, *tail0;
};

struct rule {
    const struct ir *body;
    const char *name; /* for messages */
};

/* Schemas that are held as far as they can be. One that cannot be compiled is tried again at a
 * higher level, so this outlives a builder. */
#define LOOSE_MAX 1024 /* more of them are any object */
enum loose_level {
    LOOSE_ALL,   /* what can be held */
    LOOSE_SMALL, /* the same without large counts */
    LOOSE_ANY,   /* any value of the type */
    LOOSE_STRICT /* not loose: held exactly, or refused */
};
struct loose {
    uint8_t level[LOOSE_MAX]; /* by number, in the order of the text */
    int rule[LOOSE_MAX];
    int n;
    int failed;      /* which of them the failure is in; -1 = not known */
    struct str note; /* what is not held */
};

struct build {
    struct arena a;
    struct rule *rule; /* mem_free; [0] is where the answer begins */
    int n_rule, cap_rule;
    sl_status st;
    sl_err *err;
    int64_t left; /* steps that automata and comparisons of values may still take */
    bool wrong;   /* the failure: the text is no schema at all */
    struct loose *loose;
    int shared[16]; /* rules of common parts, by enum shared_rule of schema_internal.h; 0 = none yet
                     */
};

void grammar_build_init(struct build *b, struct loose *loose, sl_err *err);
void grammar_build_fini(struct build *b);
/* Keep the first failure: SL_REQUEST or SL_LIMIT. */
void grammar_build_fail(struct build *b, sl_status code, const char *fmt, ...) BASE_PRINTF(3, 4);
void *grammar_build_alloc(struct build *b, size_t n, size_t size); /* NULL after a failure */

const struct ir *grammar_ir_empty(struct build *b);
const struct ir *grammar_ir_never(struct build *b);
const struct ir *grammar_ir_lit(struct build *b, const char *p, size_t n); /* copied */
const struct ir *grammar_ir_litz(struct build *b, const char *z);
/* p[0..n) as the inside of a JSON string. */
const struct ir *grammar_ir_lit_json(struct build *b, const char *p, size_t n);
/* Copied, sorted, merged; negated on request. */
const struct ir *grammar_ir_class(struct build *b, const struct ir_range *r, size_t n, bool negate,
                                  bool json);
const struct ir *grammar_ir_seq(struct build *b, const struct ir *const *kid, size_t n);
const struct ir *grammar_ir_alt(struct build *b, const struct ir *const *kid, size_t n);
const struct ir *grammar_ir_rep(struct build *b, const struct ir *kid, uint32_t min, uint32_t max);
const struct ir *grammar_ir_call(struct build *b, int rule);
/* Copied. */
const struct ir *grammar_ir_digits(struct build *b, const struct ir_digit *row, uint32_t n,
                                   const uint32_t *start, uint32_t n_start);
/* d NULL or empty: never. */
const struct ir *grammar_ir_auto(struct build *b, const struct dfa *d, bool json);
/* arc is in the arena. */
const struct ir *grammar_ir_graph(struct build *b, const struct ir_arc *arc, uint32_t n,
                                  uint32_t n_state);
/* min to max times kid, in a number of states that grows with the logarithm of the counts: by rules
 * for block, 2 block, 4 block ... of it. block: how many are spelled out. */
const struct ir *grammar_ir_count(struct build *b, const struct ir *kid, uint32_t min, uint32_t max,
                                  uint32_t block);
/* SEQ of up to four; NULL ends. */
const struct ir *grammar_ir_seqv(struct build *b, const struct ir *k0, const struct ir *k1,
                                 const struct ir *k2, const struct ir *k3);
const struct ir *grammar_ir_opt(struct build *b, const struct ir *kid);
/* A new rule without a body (fill it by grammar_rule_set); -1 after a failure. name is copied. */
int grammar_rule_new(struct build *b, const char *name, size_t n);
void grammar_rule_set(struct build *b, int rule, const struct ir *body);

/* A list of expressions that grows in the arena. */
struct ir_list {
    const struct ir **v;
    size_t n, cap;
};
void grammar_ir_list_add(struct build *b, struct ir_list *l, const struct ir *e);

/* ---- front ends: set rule 0, or the one that is named ---- */
/* The value of n_digit hexadecimal digits at p[*i ..], *i after them; false, and *i at it, where
 * one is missing. */
bool grammar_hex(const char *p, size_t n, int n_digit, size_t *i, uint32_t *v);
void grammar_regex(struct build *b, const char *p, size_t n);
void grammar_gbnf(struct build *b, const char *p, size_t n);
void grammar_schema(struct build *b, const char *p, size_t n, int rule, bool loose);
void grammar_object(struct build *b);
/* A pattern as an expression. json: inside a JSON string. search: may match anywhere in the text
 * (else the whole). what: for messages. */
const struct ir *grammar_pattern(struct build *b, const char *p, size_t n, bool json, bool search,
                                 const char *what);

/* ---- the automaton (nfa.c) ---- */
enum { EDGE_BYTE, EDGE_EPS, EDGE_CALL };
struct edge {
    uint32_t to;
    uint32_t kind : 2;
    uint32_t arg : 30; /* BYTE: lo | hi << 8; CALL: the rule */
};
#define EDGE_LO(e) ((e)->arg & 0xff)
#define EDGE_HI(e) ((e)->arg >> 8 & 0xff)

struct grammar {
    /* fixed after open */
    uint32_t *first;   /* [n_state + 1]: edges of state s are first[s] .. first[s + 1] */
    struct edge *edge; /* [n_edge] */
    uint8_t
        *plain; /* [n_state]: that many plain characters are possible from here; 255 = any number */
    uint32_t *start;   /* [n_rule] */
    uint32_t *rank;    /* [n_rule]: a rule that can begin with another one has the lower rank */
    uint8_t *nullable; /* [n_rule] */
    uint32_t n_state, n_edge;
    int n_rule;
    size_t bytes;
    char *relaxed; /* NULL = nothing */
};
/* State 0 is the end of every rule. */
sl_status grammar_nfa(struct build *b, grammar *g, sl_err *err) BASE_MUST_USE;

/* ---- the vocabulary (vocab.c) ---- */
#define GRAMMAR_MAX_TOKEN 1024 /* bytes of a token; longer ones are never allowed */
#define GRAMMAR_CONTROL 0xff   /* a control token is this byte and its id in three more */
struct grammar_vocab {
    int n_vocab, n_word;
    /* the trie in depth-first order; node 0 is the root */
    uint32_t n_node;
    uint8_t *byte, *plain_max;
    uint16_t *depth;
    uint32_t *size;  /* nodes of the subtree, itself included */
    int32_t *token;  /* -1 = none ends here */
    int32_t *same;   /* [n_vocab] next token with the same bytes, -1 = none */
    int32_t *end_id; /* END tokens */
    int n_end;
    const uint8_t **bytes; /* [n_vocab] */
    uint16_t *n_bytes;     /* 0 = not in the trie */
    uint8_t *kind;
    /* tokens of plain characters only */
    uint32_t *plain_bits;  /* [n_word] all of them */
    int32_t *plain_id;     /* by rising number of characters */
    uint32_t plain_n[256]; /* how many have at most so many characters */
    void *mem;             /* the tokens' bytes */
};

/* ---- a run (run.c, mask.c) ---- */
struct item {
    uint32_t s, p; /* automaton state; node that goes on when its rule ends, 0 = nothing does */
};
struct node {
    uint32_t item, n_item; /* sorted, unique; s is not 0 unless p is 0 */
    uint32_t hash;
    uint32_t row;    /* of transitions; 0 = not expanded */
    int32_t mask;    /* place in masks, -1 = none */
    int32_t summary; /* the same */
    uint8_t out;     /* expanded: the outermost rule may end here */
    uint8_t live;    /* expanded: some byte may follow */
    uint8_t plain;   /* expanded: plain characters that are possible */
};
struct found {      /* tokens that a walk allows */
    uint32_t *bits; /* [n_word], or NULL: */
    int32_t *id;
    uint32_t n_id;
    uint32_t *leave; /* trie nodes where the rule may end and more bytes may follow */
    uint32_t n_leave;
};
struct u32_list {
    uint32_t *v;
    uint32_t n, cap;
};
struct caller {
    uint32_t rule, ret, p, next;
};
struct target {
    uint32_t to, p;
    uint8_t lo, hi;
};
struct grammar_run {
    const grammar *g;
    const grammar_vocab *v;
    struct node *node; /* [0] is the dead one */
    uint32_t n_node, cap_node;
    struct item *item;
    uint32_t n_item, cap_item;
    uint32_t *slot; /* hash table of nodes; 0 = free */
    uint32_t n_slot;
    uint32_t *row; /* [n_row][256] */
    uint32_t n_row, cap_row;
    struct found *found;
    uint32_t n_found, cap_found;
    struct arena kept; /* what found points to */
    uint32_t *state;   /* node of each sequence, or FREE | next free */
    uint32_t n_state, cap_state, free_state;
    /* workspace of one call */
    int64_t budget;
    struct item *work; /* closure */
    uint32_t n_work, cap_work;
    uint32_t *seen; /* hash set over work */
    uint32_t n_seen;
    struct caller *caller;
    uint32_t n_caller, cap_caller;
    uint32_t *call_head; /* [n_rule] */
    uint32_t *heap;      /* ranks with callers */
    uint32_t n_heap;
    uint32_t *by_rank; /* [n_rule] rule of a rank */
    struct target *target;
    uint32_t n_target, cap_target;
    struct item *make; /* items of a node to be */
    uint32_t n_make, cap_make;
    struct u32_list leave;
    uint32_t *bits;
};

#define RUN_MAX_ITEM 8192            /* of one closure: more is too ambiguous */
#define RUN_BUDGET (6 * 1000 * 1000) /* steps of one mask or push */

sl_status grammar_run_expand(struct grammar_run *r, uint32_t node, sl_err *err) BASE_MUST_USE;
/* The node of work[0..n): sorted in place, ends of rules replaced by what follows them. */
sl_status grammar_run_intern(struct grammar_run *r, struct item *it, uint32_t n, uint32_t *out,
                             sl_err *err) BASE_MUST_USE;
/* Before each call: a fresh budget, and room for new nodes. */
sl_status grammar_run_begin(struct grammar_run *r, sl_err *err) BASE_MUST_USE;
sl_status grammar_run_spend(struct grammar_run *r, int64_t n, sl_err *err) BASE_MUST_USE;
/* Add to work once; the caller resets by grammar_run_work_begin. */
sl_status grammar_run_work_put(struct grammar_run *r, uint32_t s, uint32_t p,
                               sl_err *err) BASE_MUST_USE;
void grammar_run_work_begin(struct grammar_run *r);
void grammar_run_drop_found(struct grammar_run *r);
/* Grow an array of size-byte items to hold n; NOMEM. */
sl_status grammar_grow(void *pp, uint32_t *cap, uint64_t n, size_t size, sl_err *err) BASE_MUST_USE;

#endif
