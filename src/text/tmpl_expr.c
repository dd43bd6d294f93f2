/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, with Jinja's order of operators. What is not supported is refused with its line. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/tmpl_internal.h"

sl_status text_tp_fail(struct tp *p, int line, sl_status code, const char *fmt, ...)
{
    char msg[180];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return status_fail(p->err, code, __FILE__, __LINE__, "chat template line %d: %s", line, msg);
}

static const struct tok_t *peek(const struct tp *p)
{
    return &p->tok[p->at];
}

bool text_tp_is(const struct tp *p, const char *op)
{
    return peek(p)->kind == T_OP && strcmp(peek(p)->op, op) == 0;
}

bool text_tp_word(const struct tp *p, const char *name)
{
    const struct tok_t *t = peek(p);
    return t->kind == T_NAME && t->n == strlen(name) && memcmp(t->p, name, t->n) == 0;
}

bool text_tp_skip(struct tp *p, const char *op)
{
    if (!text_tp_is(p, op)) return false;
    p->at++;
    return true;
}

sl_status text_tp_expect(struct tp *p, const char *op)
{
    if (text_tp_skip(p, op)) return SL_OK;
    return text_tp_fail(p, peek(p)->line, SL_FORMAT, "expected '%s'", op);
}

sl_status text_tp_node(struct tp *p, enum tn_kind kind, int line, struct tn **out)
{
    void *mem = NULL;
    SL_TRY(mem_arena_alloc(&p->t->a, sizeof(struct tn), &mem, p->err));
    *out = mem;
    (*out)->kind = kind;
    (*out)->line = line;
    return SL_OK;
}

sl_status text_tp_deep(struct tp *p, struct tn *n)
{
    const struct tn *kid[] = {n->a, n->b, n->c, n->d};
    int depth = 0;
    for (int i = 0; i < 4; i++)
        if (kid[i]) depth = BASE_MAX(depth, kid[i]->depth);
    const struct tn *list[] = {n->kids, n->body, n->other};
    for (int i = 0; i < 3; i++)
        for (const struct tn *k = list[i]; k; k = k->next)
            depth = BASE_MAX(depth, k->depth);
    n->depth = depth + 1;
    if (n->depth <= TMPL_MAX_DEPTH) return SL_OK;
    return text_tp_fail(p, n->line, SL_LIMIT, "nested deeper than %d", TMPL_MAX_DEPTH);
}

sl_status text_tp_name(struct tp *p, const char *s, size_t n, const char **out)
{
    text_tmpl *t = p->t;
    for (int i = 0; i < t->n_name; i++)
        if (t->name[i].n == n && memcmp(t->name[i].text, s, n) == 0) {
            *out = t->name[i].text;
            return SL_OK;
        }
    if (t->n_name == 4096) return text_tp_fail(p, peek(p)->line, SL_LIMIT, "more than 4096 names");
    if (t->n_name == t->cap_name) {
        void *mem = NULL;
        int cap = t->cap_name ? t->cap_name * 2 : 64;
        SL_TRY(mem_realloc(MEM_MISC, t->name, (size_t)cap * sizeof *t->name, &mem, p->err));
        t->name = mem;
        t->cap_name = cap;
    }
    char *copy = NULL;
    SL_TRY(mem_arena_str(&t->a, s, n, &copy, p->err));
    t->name[t->n_name++] = (struct tname){copy, n, false, false};
    *out = copy;
    return SL_OK;
}

static sl_status enter(struct tp *p)
{
    if (++p->depth <= TMPL_MAX_DEPTH) return SL_OK;
    return text_tp_fail(p, peek(p)->line, SL_LIMIT, "nested deeper than %d", TMPL_MAX_DEPTH);
}

static void put_kid(struct tn *n, struct tn ***tail, struct tn *kid)
{
    **tail = kid;
    *tail = &kid->next;
    n->n_kid++;
}

static sl_status constant(struct tp *p, int line, struct tv v, struct tn **out)
{
    SL_TRY(text_tp_node(p, E_CONST, line, out));
    (*out)->val = v;
    (*out)->depth = 1;
    return SL_OK;
}

/* One string, or several in a row that become one. */
static sl_status string(struct tp *p, struct tn **out)
{
    size_t n = 0, from = p->at;
    void *mem = NULL;
    for (; peek(p)->kind == T_STR; p->at++)
        n += peek(p)->n;
    SL_TRY(mem_arena_alloc(&p->t->a, n + 1, &mem, p->err));
    char *w = mem;
    for (size_t i = from; i < p->at; i++) {
        if (p->tok[i].n) memcpy(w, p->tok[i].p, p->tok[i].n);
        w += p->tok[i].n;
    }
    char *text = mem;
    SL_TRY(mem_arena_alloc(&p->t->a, sizeof(struct ts), &mem, p->err));
    struct ts *s = mem;
    *s = (struct ts){.p = text, .n = n};
    return constant(p, p->tok[from].line, (struct tv){.kind = TV_STR, .s = s}, out);
}

static sl_status list(struct tp *p, enum tn_kind kind, const char *close, struct tn **out)
{
    int line = peek(p)->line;
    struct tn *n = NULL, *kid = NULL;
    SL_TRY(text_tp_node(p, kind, line, &n));
    struct tn **tail = &n->kids;
    p->at++;
    while (!text_tp_is(p, close)) {
        if (n->kids) {
            SL_TRY(text_tp_expect(p, ","));
            if (text_tp_is(p, close)) break;
        }
        SL_TRY(text_tp_expr(p, true, &kid));
        put_kid(n, &tail, kid);
        if (kind != E_DICT) continue;
        SL_TRY(text_tp_expect(p, ":"));
        SL_TRY(text_tp_expr(p, true, &kid));
        put_kid(n, &tail, kid);
    }
    p->at++;
    *out = n;
    return text_tp_deep(p, n);
}

static void mark_read(text_tmpl *t, const char *name)
{
    for (int i = 0; i < t->n_name; i++)
        if (t->name[i].text == name) t->name[i].read = true;
}

static sl_status primary(struct tp *p, struct tn **out)
{
    static const struct {
        const char *name;
        struct tv v;
    } lit[] = {{"true", {.kind = TV_BOOL, .b = true}},
               {"True", {.kind = TV_BOOL, .b = true}},
               {"false", {.kind = TV_BOOL}},
               {"False", {.kind = TV_BOOL}},
               {"none", {.kind = TV_NONE}},
               {"None", {.kind = TV_NONE}}};
    const struct tok_t *t = peek(p);
    switch (t->kind) {
    case T_NAME:
        for (int i = 0; i < BASE_COUNT_OF(lit); i++)
            if (text_tp_word(p, lit[i].name)) {
                p->at++;
                return constant(p, t->line, lit[i].v, out);
            }
        p->at++;
        SL_TRY(text_tp_node(p, E_NAME, t->line, out));
        (*out)->depth = 1;
        SL_TRY(text_tp_name(p, t->p, t->n, &(*out)->name));
        mark_read(p->t, (*out)->name);
        return SL_OK;
    case T_STR:
        return string(p, out);
    case T_INT:
        p->at++;
        return constant(p, t->line, text_tv_int(t->i), out);
    case T_REAL:
        p->at++;
        return constant(p, t->line, (struct tv){.kind = TV_REAL, .f = t->f}, out);
    default:
        break;
    }
    if (text_tp_is(p, "[")) return list(p, E_LIST, "]", out);
    if (text_tp_is(p, "{")) return list(p, E_DICT, "}", out);
    if (!text_tp_skip(p, "(")) return text_tp_fail(p, t->line, SL_FORMAT, "expected an expression");
    if (text_tp_is(p, ")")) { /* () */
        SL_TRY(text_tp_node(p, E_TUPLE, t->line, out));
        p->at++;
        return text_tp_deep(p, *out);
    }
    SL_TRY(text_tp_tuple(p, true, out));
    return text_tp_expect(p, ")");
}

/* Arguments of n, from after "(" to after ")". */
static sl_status arguments(struct tp *p, struct tn *n)
{
    struct tn **tail = &n->kids, *kid = NULL;
    bool named = false;
    while (!text_tp_is(p, ")")) {
        if (n->kids) {
            SL_TRY(text_tp_expect(p, ","));
            if (text_tp_is(p, ")")) break;
        }
        if (text_tp_is(p, "*") || text_tp_is(p, "**"))
            return text_tp_fail(p, peek(p)->line, SL_UNSUPPORTED,
                                "* and ** arguments are not supported");
        const struct tok_t *t = peek(p);
        const char *name = NULL;
        if (t->kind == T_NAME && p->tok[p->at + 1].kind == T_OP &&
            strcmp(p->tok[p->at + 1].op, "=") == 0) {
            SL_TRY(text_tp_name(p, t->p, t->n, &name));
            p->at += 2;
            named = true;
        } else if (named) {
            return text_tp_fail(p, t->line, SL_FORMAT,
                                "an argument without a name after one with a name");
        }
        SL_TRY(text_tp_expr(p, true, &kid));
        struct tn *wrap = NULL; /* carries the argument's name */
        SL_TRY(text_tp_node(p, S_PARAM, kid->line, &wrap));
        wrap->a = kid;
        wrap->name = name;
        SL_TRY(text_tp_deep(p, wrap));
        kid = wrap;
        put_kid(n, &tail, kid);
    }
    p->at++;
    return SL_OK;
}

/* Every argument has a parameter, and no needed one is missing. */
static sl_status check_args(struct tp *p, const struct tn *n, const char *what, const char *name,
                            const char *params, int n_min)
{
    int n_param = 0, given = 0;
    for (const char *q = params; *q; n_param++) {
        q += strcspn(q, " ");
        q += strspn(q, " ");
    }
    for (const struct tn *k = n->kids; k; k = k->next, given++) {
        if (!k->name) continue;
        size_t len = strlen(k->name);
        const char *q = params;
        while (*q && !(strncmp(q, k->name, len) == 0 && (q[len] == ' ' || q[len] == 0))) {
            q += strcspn(q, " ");
            q += strspn(q, " ");
        }
        if (!*q)
            return text_tp_fail(p, n->line, SL_UNSUPPORTED, "%s %s with the argument %s", what,
                                name, k->name);
    }
    if (given > n_param || given < n_min)
        return text_tp_fail(p, n->line, SL_UNSUPPORTED, "%s %s with %d arguments", what, name,
                            given);
    return SL_OK;
}

/* map, select and reject name another filter or test. */
static sl_status check_inner(struct tp *p, const struct tn *n, const char *name)
{
    const struct tn *k = n->kids;
    if (k && strstr(name, "attr")) k = k->next;
    if (!k || k->name) return SL_OK;
    k = k->a;
    if (k->kind != E_CONST || k->val.kind != TV_STR)
        return text_tp_fail(p, n->line, SL_UNSUPPORTED,
                            "filter %s with a name that is not written out", name);
    const struct ts *s = k->val.s;
    int found =
        strcmp(name, "map") == 0 ? text_filter_find(s->p, s->n) : text_test_find(s->p, s->n);
    return found >= 0
               ? SL_OK
               : text_tp_fail(p, n->line, SL_UNSUPPORTED, "filter %s with \"%.40s\"", name, s->p);
}

sl_status text_tp_filters(struct tp *p, struct tn *in, bool first, struct tn **out)
{
    while (first || text_tp_is(p, "|")) {
        if (!first) p->at++;
        first = false;
        const struct tok_t *t = peek(p);
        if (t->kind != T_NAME)
            return text_tp_fail(p, t->line, SL_FORMAT, "expected a filter's name");
        p->at++;
        int i = text_filter_find(t->p, t->n);
        if (i < 0)
            return text_tp_fail(p, t->line, SL_UNSUPPORTED, "filter %.*s is not supported",
                                (int)BASE_MIN(t->n, 40), t->p);
        struct tn *n = NULL;
        const char *name, *params;
        int n_min;
        SL_TRY(text_tp_node(p, E_FILTER, t->line, &n));
        n->a = in;
        n->op = i;
        if (text_tp_skip(p, "(")) SL_TRY(arguments(p, n));
        text_filter_info(i, &name, &params, &n_min);
        SL_TRY(check_args(p, n, "filter", name, params, n_min));
        if (strcmp(name, "map") == 0 || strncmp(name, "select", 6) == 0 ||
            strncmp(name, "reject", 6) == 0)
            SL_TRY(check_inner(p, n, name));
        SL_TRY(text_tp_deep(p, n));
        in = n;
    }
    *out = in;
    return SL_OK;
}

static sl_status postfix(struct tp *p, struct tn *in, struct tn **out);

static sl_status test(struct tp *p, struct tn *in, struct tn **out)
{
    int line = peek(p)->line;
    bool negated = false;
    p->at++; /* is */
    if (text_tp_word(p, "not")) {
        p->at++;
        negated = true;
    }
    const struct tok_t *t = peek(p);
    int i = t->kind == T_NAME ? text_test_find(t->p, t->n) : -1;
    if (t->kind != T_NAME) return text_tp_fail(p, line, SL_FORMAT, "expected a test's name");
    if (i < 0)
        return text_tp_fail(p, line, SL_UNSUPPORTED, "test %.*s is not supported",
                            (int)BASE_MIN(t->n, 40), t->p);
    p->at++;
    struct tn *n = NULL;
    SL_TRY(text_tp_node(p, E_TEST, line, &n));
    n->a = in;
    n->op = i;
    t = peek(p);
    if (text_tp_skip(p, "(")) {
        SL_TRY(arguments(p, n));
    } else if ((t->kind == T_NAME && !text_tp_word(p, "else") && !text_tp_word(p, "or") &&
                !text_tp_word(p, "and")) ||
               t->kind == T_STR || t->kind == T_INT || t->kind == T_REAL || text_tp_is(p, "[") ||
               text_tp_is(p, "{")) {
        struct tn *arg = NULL, **tail = &n->kids;
        if (text_tp_word(p, "is"))
            return text_tp_fail(p, line, SL_FORMAT, "tests can not follow each other");
        SL_TRY(primary(p, &arg));
        SL_TRY(postfix(p, arg, &arg));
        struct tn *wrap = NULL;
        SL_TRY(text_tp_node(p, S_PARAM, line, &wrap));
        wrap->a = arg;
        SL_TRY(text_tp_deep(p, wrap));
        put_kid(n, &tail, wrap);
    }
    const char *name, *params;
    int n_min;
    text_test_info(i, &name, &params, &n_min);
    SL_TRY(check_args(p, n, "test", name, params, n_min));
    SL_TRY(text_tp_deep(p, n));
    if (negated) {
        struct tn *no = NULL;
        SL_TRY(text_tp_node(p, E_NOT, line, &no));
        no->a = n;
        SL_TRY(text_tp_deep(p, no));
        n = no;
    }
    *out = n;
    return SL_OK;
}

static sl_status call(struct tp *p, struct tn *in, struct tn **out)
{
    struct tn *n = NULL;
    if (in->kind == E_ATTR && !text_method_known(in->name, strlen(in->name)))
        return text_tp_fail(p, in->line, SL_UNSUPPORTED, "method .%.40s() is not supported",
                            in->name);
    if (in->kind != E_ATTR && in->kind != E_NAME)
        return text_tp_fail(p, in->line, SL_UNSUPPORTED, "a call of something that has no name");
    SL_TRY(text_tp_node(p, E_CALL, in->line, &n));
    n->a = in;
    p->at++;
    SL_TRY(arguments(p, n));
    *out = n;
    return text_tp_deep(p, n);
}

/* [i], [a:b], [a:b:c]; at is on "[". */
static sl_status subscript(struct tp *p, struct tn *in, struct tn **out)
{
    struct tn *n = NULL, **part[3];
    SL_TRY(text_tp_node(p, E_ITEM, peek(p)->line, &n));
    n->a = in;
    p->at++;
    if (!text_tp_is(p, ":")) SL_TRY(text_tp_expr(p, true, &n->b));
    if (text_tp_is(p, ":")) {
        n->kind = E_SLICE;
        part[0] = &n->b;
        part[1] = &n->c;
        part[2] = &n->d;
        for (int i = 1; i < 3 && text_tp_skip(p, ":"); i++)
            if (!text_tp_is(p, ":") && !text_tp_is(p, "]")) SL_TRY(text_tp_expr(p, true, part[i]));
    }
    SL_TRY(text_tp_expect(p, "]"));
    *out = n;
    return text_tp_deep(p, n);
}

static sl_status attribute(struct tp *p, struct tn *in, struct tn **out)
{
    p->at++;
    const struct tok_t *t = peek(p);
    struct tn *n = NULL;
    if (t->kind != T_NAME && t->kind != T_INT)
        return text_tp_fail(p, t->line, SL_FORMAT, "expected a name after '.'");
    p->at++;
    SL_TRY(text_tp_node(p, t->kind == T_NAME ? E_ATTR : E_ITEM, t->line, &n));
    n->a = in;
    if (t->kind == T_INT)
        SL_TRY(constant(p, t->line, text_tv_int(t->i), &n->b));
    else
        SL_TRY(text_tp_name(p, t->p, t->n, &n->name));
    *out = n;
    if (n->name && n->name[0] == '_' && n->name[1] == '_')
        return text_tp_fail(p, t->line, SL_UNSUPPORTED, "attribute %.40s", n->name);
    return text_tp_deep(p, n);
}

static sl_status postfix(struct tp *p, struct tn *in, struct tn **out)
{
    for (;;) {
        if (text_tp_is(p, "."))
            SL_TRY(attribute(p, in, &in));
        else if (text_tp_is(p, "["))
            SL_TRY(subscript(p, in, &in));
        else if (text_tp_is(p, "("))
            SL_TRY(call(p, in, &in));
        else
            break;
    }
    *out = in;
    return SL_OK;
}

static sl_status unary(struct tp *p, bool filters, struct tn **out)
{
    int line = peek(p)->line;
    struct tn *n = NULL;
    SL_TRY(enter(p));
    if (text_tp_is(p, "-") || text_tp_is(p, "+")) {
        SL_TRY(text_tp_node(p, text_tp_is(p, "-") ? E_NEG : E_POS, line, &n));
        p->at++;
        SL_TRY(unary(p, false, &n->a));
        SL_TRY(text_tp_deep(p, n));
    } else {
        SL_TRY(primary(p, &n));
    }
    SL_TRY(postfix(p, n, &n));
    while (filters) {
        if (text_tp_is(p, "|"))
            SL_TRY(text_tp_filters(p, n, false, &n));
        else if (text_tp_word(p, "is"))
            SL_TRY(test(p, n, &n));
        else if (text_tp_is(p, "("))
            SL_TRY(call(p, n, &n));
        else
            break;
    }
    p->depth--;
    *out = n;
    return SL_OK;
}

/* ---- binary operators, by level: 0 + -, 1 ~, 2 * / // %, 3 ** ---- */
static const struct {
    const char *text;
    int level, op;
} binary_op[] = {{"+", 0, OP_ADD},       {"-", 0, OP_SUB}, {"*", 2, OP_MUL}, {"/", 2, OP_DIV},
                 {"//", 2, OP_FLOORDIV}, {"%", 2, OP_MOD}, {"**", 3, OP_POW}};

static sl_status join_binary(struct tp *p, int op, int line, struct tn *l, struct tn *r,
                             struct tn **out)
{
    struct tn *n = NULL;
    SL_TRY(text_tp_node(p, E_BIN, line, &n));
    n->op = op;
    n->a = l;
    n->b = r;
    if (op == OP_MOD && l->kind == E_CONST && l->val.kind == TV_STR)
        return text_tp_fail(p, line, SL_UNSUPPORTED, "'%%' on a string is not supported");
    *out = n;
    return text_tp_deep(p, n);
}

static sl_status binary(struct tp *p, int level, struct tn **out)
{
    struct tn *n = NULL, *r = NULL;
    if (level == 4) return unary(p, true, out);
    SL_TRY(binary(p, level + 1, &n));
    if (level == 1) { /* a ~ b ~ c is one node */
        if (!text_tp_is(p, "~")) {
            *out = n;
            return SL_OK;
        }
        struct tn *cat = NULL;
        SL_TRY(text_tp_node(p, E_CONCAT, peek(p)->line, &cat));
        struct tn **tail = &cat->kids;
        for (;;) {
            struct tn *wrap = NULL;
            SL_TRY(text_tp_node(p, S_PARAM, n->line, &wrap));
            wrap->a = n;
            SL_TRY(text_tp_deep(p, wrap));
            put_kid(cat, &tail, wrap);
            if (!text_tp_skip(p, "~")) break;
            SL_TRY(binary(p, 2, &n));
        }
        *out = cat;
        return text_tp_deep(p, cat);
    }
    for (;;) {
        int i = 0, line = peek(p)->line;
        while (i < BASE_COUNT_OF(binary_op) &&
               !(binary_op[i].level == level && text_tp_is(p, binary_op[i].text)))
            i++;
        if (i == BASE_COUNT_OF(binary_op)) break;
        p->at++;
        SL_TRY(binary(p, level + 1, &r));
        SL_TRY(join_binary(p, binary_op[i].op, line, n, r, &n));
    }
    *out = n;
    return SL_OK;
}

static int compare_op(struct tp *p)
{
    static const struct {
        const char *text;
        int op;
    } ops[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
               {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    for (int i = 0; i < BASE_COUNT_OF(ops); i++)
        if (text_tp_skip(p, ops[i].text)) return ops[i].op;
    if (text_tp_word(p, "in")) {
        p->at++;
        return OP_IN;
    }
    const struct tok_t *t = peek(p);
    if (text_tp_word(p, "not") && t[1].kind == T_NAME && t[1].n == 2 &&
        memcmp(t[1].p, "in", 2) == 0) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return -1;
}

static sl_status compare(struct tp *p, struct tn **out)
{
    struct tn *n = NULL, *cmp = NULL, **tail = NULL;
    int line = peek(p)->line, op;
    SL_TRY(binary(p, 0, &n));
    while ((op = compare_op(p)) >= 0) {
        struct tn *wrap = NULL;
        if (!cmp) {
            SL_TRY(text_tp_node(p, E_COMPARE, line, &cmp));
            cmp->a = n;
            tail = &cmp->kids;
        }
        SL_TRY(text_tp_node(p, S_PARAM, line, &wrap));
        SL_TRY(binary(p, 0, &wrap->a));
        wrap->op = op;
        SL_TRY(text_tp_deep(p, wrap));
        put_kid(cmp, &tail, wrap);
    }
    *out = cmp ? cmp : n;
    return cmp ? text_tp_deep(p, cmp) : SL_OK;
}

static sl_status not_expr(struct tp *p, struct tn **out)
{
    int line = peek(p)->line;
    if (!text_tp_word(p, "not")) return compare(p, out);
    p->at++;
    SL_TRY(enter(p));
    SL_TRY(text_tp_node(p, E_NOT, line, out));
    SL_TRY(not_expr(p, &(*out)->a));
    p->depth--;
    return text_tp_deep(p, *out);
}

/* and, or: one node with all operands. */
static sl_status logic(struct tp *p, bool is_or, struct tn **out)
{
    struct tn *n = NULL, *all = NULL, **tail = NULL;
    const char *word = is_or ? "or" : "and";
    int line = peek(p)->line;
    for (;;) {
        SL_TRY(is_or ? logic(p, false, &n) : not_expr(p, &n));
        if (!all && !text_tp_word(p, word)) {
            *out = n;
            return SL_OK;
        }
        if (!all) {
            SL_TRY(text_tp_node(p, is_or ? E_OR : E_AND, line, &all));
            tail = &all->kids;
        }
        struct tn *wrap = NULL;
        SL_TRY(text_tp_node(p, S_PARAM, line, &wrap));
        wrap->a = n;
        SL_TRY(text_tp_deep(p, wrap));
        put_kid(all, &tail, wrap);
        if (!text_tp_word(p, word)) break;
        p->at++;
    }
    *out = all;
    return text_tp_deep(p, all);
}

sl_status text_tp_expr(struct tp *p, bool cond, struct tn **out)
{
    struct tn *n = NULL;
    SL_TRY(enter(p));
    SL_TRY(logic(p, true, &n));
    while (cond && text_tp_word(p, "if")) {
        struct tn *c = NULL;
        SL_TRY(text_tp_node(p, E_COND, peek(p)->line, &c));
        p->at++;
        c->b = n;
        SL_TRY(logic(p, true, &c->a));
        if (text_tp_word(p, "else")) {
            p->at++;
            SL_TRY(text_tp_expr(p, true, &c->c));
        }
        SL_TRY(text_tp_deep(p, c));
        n = c;
    }
    p->depth--;
    *out = n;
    return SL_OK;
}

sl_status text_tp_tuple(struct tp *p, bool cond, struct tn **out)
{
    struct tn *n = NULL, *all = NULL, **tail = NULL;
    SL_TRY(text_tp_expr(p, cond, &n));
    if (!text_tp_is(p, ",")) {
        *out = n;
        return SL_OK;
    }
    SL_TRY(text_tp_node(p, E_TUPLE, n->line, &all));
    tail = &all->kids;
    for (;;) {
        struct tn *wrap = NULL;
        SL_TRY(text_tp_node(p, S_PARAM, n->line, &wrap));
        wrap->a = n;
        SL_TRY(text_tp_deep(p, wrap));
        put_kid(all, &tail, wrap);
        if (!text_tp_skip(p, ",")) break;
        enum tt k = peek(p)->kind;
        if (k == T_VAR_END || k == T_BLOCK_END || text_tp_is(p, ")")) break;
        SL_TRY(text_tp_expr(p, cond, &n));
    }
    *out = all;
    return text_tp_deep(p, all);
}
