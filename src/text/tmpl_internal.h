/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the chat-template interpreter: tokens, syntax tree, values, and the state of one
 * rendering.
 *
 *   tmpl_lex.c     source -> tokens (white-space control as Jinja does it)
 *   tmpl_parse.c   tokens -> statements; tmpl_expr.c: -> expressions. Everything that is not
 * supported is refused here. tmpl_value.c   strings with their origin, lists, dictionaries;
 * equality, order tmpl_print.c   str(), repr() and tojson tmpl_eval.c    expressions;  tmpl_call.c:
 * functions, macros, arguments;  tmpl_method.c: methods of strings and dictionaries tmpl_filter.c
 * filters;  tmpl_test.c: tests tmpl.c         statements, open, render
 *
 * Recursion follows the syntax tree (whose depth is capped when it is built) and macro calls
 * (capped when they are made), never the data: what walks data (printing, comparing) carries its
 * own depth cap. */
#ifndef TEXT_TMPL_INTERNAL_H
#define TEXT_TMPL_INTERNAL_H

#include "text/tmpl.h"

#define TMPL_MAX_SOURCE (1 << 20) /* bytes of a template */
#define TMPL_MAX_DEPTH 160        /* of the syntax tree */
#define TMPL_MAX_CALL 48          /* macros inside each other */
#define TMPL_MAX_STACK 600        /* of the interpreter's own recursion, all together */
#define TMPL_MAX_DATA 132         /* of values when printed or compared */
#define TMPL_MAX_RANGE 100000     /* as Jinja's sandbox */

/* ---- values ---- */
enum tv_kind {
    TV_UNDEF,
    TV_NONE,
    TV_BOOL,
    TV_INT,
    TV_REAL,
    TV_STR,
    TV_LIST, /* also tuples and what Python's generators are */
    TV_DICT,
    TV_NS, /* namespace() */
    TV_MACRO,
    TV_LOOP,
    TV_FUNC,  /* a global function */
    TV_METHOD /* a method bound to its object */
};

/* Text and who wrote it: mask[i] != 0 where the byte came from a variable; mask NULL: all of it as
 * user says. */
struct ts {
    const char *p;
    const uint8_t *mask;
    size_t n;
    bool user;
    bool markup; /* went through `safe`: what '+' adds to it is escaped for HTML */
};

struct tv {
    enum tv_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const struct ts *s;
        struct tl *l;
        struct td *d; /* DICT, NS */
        const struct tmacro *macro;
        struct tloop *loop;
        int fn;
        const struct tmethod *me;
        const char *what; /* UNDEF: the missing name */
    };
};

struct tl {
    struct tv *v;
    size_t n, cap;
    bool tuple, gen; /* gen: always true, has no length, and is empty once it was used */
    bool torn;       /* gen: a loop over it was left */
    /* No list: what range(), or items(), keys() and values() of a dictionary give. Not printed. */
    enum { TL_PLAIN, TL_RANGE, TL_VIEW } form;
};
struct td_item {
    struct tv key, val;
};
struct td {
    struct td_item *v;
    size_t n, cap;
};

/* ---- syntax tree ---- */
enum tn_kind {
    E_CONST,
    E_NAME,
    E_LIST,
    E_TUPLE,
    E_DICT,   /* kids: key, value, key, value */
    E_ATTR,   /* a . name */
    E_ITEM,   /* a [ b ] */
    E_SLICE,  /* a [ b : c : d ] */
    E_CALL,   /* a ( kids ) */
    E_FILTER, /* a | table[op] ( kids ); a NULL: the block's text */
    E_TEST,   /* a is table[op] ( kids ) */
    E_BIN,
    E_NEG,
    E_POS,
    E_NOT,
    E_AND,
    E_OR,
    E_COMPARE, /* a, then kids with op */
    E_COND,    /* b if a else c */
    E_CONCAT,
    S_DATA,
    S_OUT,
    S_IF, /* kids: branches (a = condition, NULL for else; b = body) */
    S_BRANCH,
    S_FOR,      /* a target, b list, c filter, body, other */
    S_SET,      /* a target, b value */
    S_SETBLOCK, /* a target, b filters, body */
    S_MACRO,    /* name; kids: parameters (name, a = default); body */
    S_PARAM,
    S_FILTER, /* b filters, body */
    S_SCOPE,  /* body */
    S_BREAK,
    S_CONTINUE
};

enum tn_op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

struct tn {
    enum tn_kind kind;
    int line;
    int op;
    int depth;        /* of the tree below */
    const char *name; /* interned: equal names are one pointer */
    struct tv val;    /* CONST, DATA */
    struct tn *a, *b, *c, *d;
    struct tn *kids, *next; /* arguments with a name are keyword arguments */
    int n_kid;
    struct tn *body, *other;
};

struct tname {
    const char *text;
    size_t n;
    bool assigned; /* by set, for, macro or as a parameter */
    bool read;     /* as a variable */
};

struct text_tmpl {
    struct arena a;
    struct tn *body;
    struct tname *name;
    int n_name, cap_name;
};

/* ---- tokens ---- */
enum tt {
    T_END,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STR,
    T_INT,
    T_REAL,
    T_OP /* op[0..1] */
};
struct tok_t {
    enum tt kind;
    int line;
    char op[3];
    const char *p; /* DATA, NAME, STR (decoded) */
    size_t n;
    int64_t i;
    double f;
};
struct tokens {
    struct tok_t *v; /* mem_free */
    size_t n, cap;
};
/* Split src (valid UTF-8, "\n" only) into tokens that point into the arena. */
sl_status text_tmpl_lex(struct arena *a, const char *src, size_t n, struct tokens *out,
                        sl_err *err) BASE_MUST_USE;

/* ---- parsing ---- */
struct tp {
    text_tmpl *t;
    const struct tok_t *tok;
    size_t at;
    int depth;  /* of the parser's own recursion */
    int loops;  /* for statements around here */
    int macros; /* macro and call frames around here */
    sl_err *err;
};
sl_status text_tmpl_parse(text_tmpl *t, const struct tokens *toks, sl_err *err) BASE_MUST_USE;
sl_status text_tp_fail(struct tp *p, int line, sl_status code, const char *fmt, ...)
    BASE_PRINTF(4, 5);
sl_status text_tp_node(struct tp *p, enum tn_kind kind, int line, struct tn **out) BASE_MUST_USE;
sl_status text_tp_deep(struct tp *p, struct tn *n)
    BASE_MUST_USE; /* set n->depth from its children; refuse over the cap */
sl_status text_tp_name(struct tp *p, const char *s, size_t n, const char **out) BASE_MUST_USE;
bool text_tp_is(const struct tp *p, const char *op); /* the next token is this operator */
bool text_tp_word(const struct tp *p, const char *name);
bool text_tp_skip(struct tp *p, const char *op);
sl_status text_tp_expect(struct tp *p, const char *op) BASE_MUST_USE;
sl_status text_tp_expr(struct tp *p, bool cond, struct tn **out) BASE_MUST_USE;
sl_status text_tp_tuple(struct tp *p, bool cond, struct tn **out) BASE_MUST_USE;
sl_status text_tp_filters(struct tp *p, struct tn *in, bool first, struct tn **out) BASE_MUST_USE;

/* ---- rendering ---- */
struct tvar {
    const char *name;
    struct tv v;
};
struct tscope {
    struct tscope *up;
    struct tvar *v;
    int n, cap;
};
struct tloop {
    struct tl *items;
    size_t i;
    int depth;
    bool has_changed;
    struct tv changed;
};
struct tmacro {
    const struct tn *def;
    struct tscope *scope; /* where it was defined */
};
struct tmethod {
    struct tv self;
    const char *name;
};

/* Growing text with its origin. */
struct tb {
    char *p;
    uint8_t *mask;
    size_t n, cap;
};

struct tx {
    const text_tmpl *t;
    struct arena *a;
    sl_err *err;
    int64_t steps; /* left */
    int64_t out_max;
    int line;
    int calls; /* macros inside each other */
    int depth; /* of the interpreter's own recursion */
    struct tscope *scope, *root;
    struct tb *out;
    struct tv block; /* what a filter block filters */
    enum { FLOW_NONE, FLOW_BREAK, FLOW_CONTINUE } flow;
    int64_t now_s;
};

struct tkw {
    const char *name;
    struct tv v;
};
struct tcall {
    struct tv in; /* a filter's or test's input; a method's object */
    struct tv *arg;
    int n_arg;
    struct tkw *kw;
    int n_kw;
    const char *params; /* names of the parameters, separated by spaces */
};

sl_status text_tx_fail(struct tx *x, sl_status code, const char *fmt, ...) BASE_PRINTF(3, 4);
/* n units of work; LIMIT when the budget is used up. */
sl_status text_tx_cost(struct tx *x, size_t n) BASE_MUST_USE;
/* Arena memory, paid for. */
sl_status text_tx_mem(struct tx *x, size_t n, size_t size, void **out) BASE_MUST_USE;

/* strings */
sl_status text_tb_put(struct tx *x, struct tb *b, const char *p, size_t n, bool user) BASE_MUST_USE;
sl_status text_tb_ts(struct tx *x, struct tb *b, const struct ts *s, size_t from,
                     size_t n) BASE_MUST_USE;
sl_status text_tb_done(struct tx *x, const struct tb *b, struct tv *out) BASE_MUST_USE;
sl_status text_ts_new(struct tx *x, const char *p, size_t n, bool user,
                      struct tv *out) BASE_MUST_USE;
sl_status text_ts_sub(struct tx *x, const struct ts *s, size_t from, size_t n,
                      struct tv *out) BASE_MUST_USE;
sl_status text_ts_mark(struct tx *x, struct tv *v) BASE_MUST_USE; /* a copy that is markup */
bool text_ts_user(const struct ts *s);                            /* some of it is the user's */
bool text_ts_is(const struct ts *s, const char *z);

/* lists and dictionaries */
sl_status text_tl_new(struct tx *x, size_t cap, struct tv *out) BASE_MUST_USE;
sl_status text_tl_put(struct tx *x, struct tl *l, struct tv v) BASE_MUST_USE;
void text_tl_drop(struct tl *l, size_t n); /* the first n items */
sl_status text_td_new(struct tx *x, enum tv_kind kind, struct tv *out) BASE_MUST_USE;
sl_status text_td_put(struct tx *x, struct td *d, struct tv key, struct tv v) BASE_MUST_USE;
sl_status text_td_putz(struct tx *x, struct td *d, const char *key, struct tv v) BASE_MUST_USE;
/* NULL = none. */
sl_status text_td_get(struct tx *x, const struct td *d, struct tv key,
                      struct tv **out) BASE_MUST_USE;
struct tv *text_td_getz(const struct td *d, const char *key);

/* values */
bool text_tv_true(struct tv v);
sl_status text_tv_equal(struct tx *x, struct tv a, struct tv b, int depth, bool *out) BASE_MUST_USE;
sl_status text_tv_less(struct tx *x, struct tv a, struct tv b, int depth,
                       int *out) BASE_MUST_USE; /* -1 0 1 */
sl_status text_tv_in(struct tx *x, struct tv item, struct tv box, bool *out) BASE_MUST_USE;
sl_status text_tv_list(struct tx *x, struct tv v,
                       struct tl **out) BASE_MUST_USE; /* what `for` sees; uses a generator up */
const char *text_tv_kind(struct tv v);
sl_status text_tv_json(struct tx *x, const struct json *j,
                       struct tv *out) BASE_MUST_USE; /* user data */
sl_status text_tv_put(struct tx *x, struct tb *b, struct tv v,
                      bool repr) BASE_MUST_USE; /* str() or repr() */
sl_status text_tv_str(struct tx *x, struct tv v, struct tv *out) BASE_MUST_USE;
struct tjson_opts {
    bool ascii, sort;
    int indent; /* -1 = none */
    const struct ts *item_sep, *key_sep;
};
sl_status text_tv_tojson(struct tx *x, struct tv v, const struct tjson_opts *o,
                         struct tv *out) BASE_MUST_USE;
static inline struct tv text_tv_undef(const char *what)
{
    return (struct tv){.kind = TV_UNDEF, .what = what};
}
static inline struct tv text_tv_bool(bool b)
{
    return (struct tv){.kind = TV_BOOL, .b = b};
}
static inline struct tv text_tv_int(int64_t i)
{
    return (struct tv){.kind = TV_INT, .i = i};
}

/* evaluation */
sl_status text_tx_eval(struct tx *x, const struct tn *n, struct tv *out) BASE_MUST_USE;
sl_status text_tx_attr(struct tx *x, struct tv o, const char *name,
                       struct tv *out) BASE_MUST_USE; /* o.name */
sl_status text_tx_item(struct tx *x, struct tv o, struct tv key,
                       struct tv *out) BASE_MUST_USE; /* o[key] */
sl_status text_tx_call(struct tx *x, const struct tn *n, struct tv *out) BASE_MUST_USE;
sl_status text_tx_args(struct tx *x, const struct tn *n, struct tcall *c) BASE_MUST_USE;
sl_status text_tx_run(struct tx *x, const struct tn *body) BASE_MUST_USE; /* statements */
sl_status text_tx_assign(struct tx *x, const struct tn *target, struct tv v) BASE_MUST_USE;
sl_status text_tx_scope(struct tx *x, struct tscope *up, struct tscope **out) BASE_MUST_USE;
sl_status text_tx_set(struct tx *x, struct tscope *s, const char *name, struct tv v) BASE_MUST_USE;
sl_status text_tx_method(struct tx *x, const struct tmethod *m, const struct tcall *c,
                         struct tv *out) BASE_MUST_USE;
/* Argument number i or by its name in c->params; NULL when not given. */
const struct tv *text_tc_arg(const struct tcall *c, int i);

/* Global functions; -1 = none. */
int text_fn_find(const char *name, size_t n);
const char *text_fn_name(int fn);
int text_fn_count(void);
/* Filters, tests and methods by name: index into their tables, -1 = none. params: the names of the
 * parameters; n_min: how many must be there. */
int text_filter_find(const char *name, size_t n);
int text_test_find(const char *name, size_t n);
bool text_method_known(const char *name, size_t n); /* of any kind of value */
bool text_method_of(struct tv o, const char *name);
/* Something of that name that Python's value has and this interpreter has not. */
bool text_method_missing(struct tv o, const char *name);
bool text_method_mutates(const struct tmethod *m);
/* upper, lower, title, capitalize: Python's methods; and Jinja's filter title. */
enum tcase { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_JINJA_TITLE };
sl_status text_ts_case(struct tx *x, const struct ts *s, enum tcase how,
                       struct tv *out) BASE_MUST_USE;
sl_status text_ts_strip(struct tx *x, const struct ts *s, const struct ts *chars, int sides,
                        struct tv *out) BASE_MUST_USE; /* 1 left, 2 right */
sl_status text_ts_replace(struct tx *x, const struct ts *s, const struct ts *old,
                          const struct ts *by, int64_t count, struct tv *out) BASE_MUST_USE;
sl_status text_ts_lines(struct tx *x, const struct ts *s, bool keep, struct tv *out) BASE_MUST_USE;
sl_status text_ts_join(struct tx *x, const struct ts *sep, const struct tl *l, bool only_str,
                       struct tv *out) BASE_MUST_USE;
void text_filter_info(int i, const char **name, const char **params, int *n_min);
void text_test_info(int i, const char **name, const char **params, int *n_min);
sl_status text_filter_run(struct tx *x, int i, const struct tcall *c, struct tv *out) BASE_MUST_USE;
sl_status text_test_run(struct tx *x, int i, const struct tcall *c, bool *out) BASE_MUST_USE;

#endif
