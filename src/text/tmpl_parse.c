/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, and the checks that need the whole template: every function that is called must
 * exist. */
#include <string.h>

#include "text/tmpl_internal.h"

static const struct tok_t *peek(const struct tp *p)
{
    return &p->tok[p->at];
}

static void mark_assigned(struct tp *p, const char *name)
{
    for (int i = 0; i < p->t->n_name; i++)
        if (p->t->name[i].text == name) p->t->name[i].assigned = true;
}

static sl_status block_end(struct tp *p)
{
    if (peek(p)->kind != T_BLOCK_END)
        return text_tp_fail(p, peek(p)->line, SL_FORMAT, "expected the end of the tag");
    p->at++;
    return SL_OK;
}

static sl_status statements(struct tp *p, const char *const *ends, struct tn **out, int *which);

/* A body up to one of ends, whose tag's name is taken; the tag's rest is not. */
static sl_status body(struct tp *p, const char *const *ends, struct tn **out, int *which)
{
    SL_TRY(block_end(p));
    return statements(p, ends, out, which);
}

/* A body up to {% end %}, all of it taken. */
static sl_status whole_body(struct tp *p, const char *end, struct tn **out)
{
    const char *ends[] = {end, NULL};
    int which;
    SL_TRY(body(p, ends, out, &which));
    return block_end(p);
}

static sl_status name(struct tp *p, const char **out)
{
    const struct tok_t *t = peek(p);
    if (t->kind != T_NAME) return text_tp_fail(p, t->line, SL_FORMAT, "expected a name");
    p->at++;
    SL_TRY(text_tp_name(p, t->p, t->n, out));
    mark_assigned(p, *out);
    return SL_OK;
}

/* a, or a, b, or (with ns) a.b */
static sl_status target(struct tp *p, bool ns, struct tn **out)
{
    struct tn *n = NULL, *all = NULL, **tail = NULL;
    bool paren = text_tp_skip(p, "(");
    for (;;) {
        int line = peek(p)->line;
        SL_TRY(text_tp_node(p, E_NAME, line, &n));
        n->depth = 1;
        SL_TRY(name(p, &n->name));
        if (ns && text_tp_skip(p, ".")) {
            struct tn *attr = NULL;
            SL_TRY(text_tp_node(p, E_ATTR, line, &attr));
            attr->a = n;
            SL_TRY(name(p, &attr->name));
            SL_TRY(text_tp_deep(p, attr));
            n = attr;
        }
        if (!all && !text_tp_is(p, ",")) {
            *out = n;
            break;
        }
        if (!all) {
            SL_TRY(text_tp_node(p, E_TUPLE, line, &all));
            tail = &all->kids;
            *out = all;
        }
        *tail = n;
        tail = &n->next;
        if (++all->n_kid > 16) return text_tp_fail(p, line, SL_LIMIT, "more than 16 names");
        if (!text_tp_skip(p, ",")) break;
    }
    return paren ? text_tp_expect(p, ")") : SL_OK;
}

static sl_status parse_if(struct tp *p, struct tn *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct tn **tail = &n->kids;
    int which = 0;
    while (which != 2) {
        struct tn *b = NULL;
        SL_TRY(text_tp_node(p, S_BRANCH, peek(p)->line, &b));
        bool is_else = n->kids && which == 1;
        if (!is_else) SL_TRY(text_tp_tuple(p, false, &b->a));
        SL_TRY(body(p, is_else ? ends + 2 : ends, &b->body, &which));
        if (is_else) which = 2;
        SL_TRY(text_tp_deep(p, b));
        *tail = b;
        tail = &b->next;
    }
    return block_end(p);
}

static sl_status parse_for(struct tp *p, struct tn *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    int which;
    SL_TRY(target(p, false, &n->a));
    if (!text_tp_word(p, "in")) return text_tp_fail(p, peek(p)->line, SL_FORMAT, "expected 'in'");
    p->at++;
    SL_TRY(text_tp_tuple(p, false, &n->b));
    if (text_tp_word(p, "if")) {
        p->at++;
        SL_TRY(text_tp_expr(p, true, &n->c));
    }
    if (text_tp_word(p, "recursive"))
        return text_tp_fail(p, n->line, SL_UNSUPPORTED, "a recursive for is not supported");
    p->loops++;
    SL_TRY(body(p, ends, &n->body, &which));
    p->loops--;
    if (which == 0) return whole_body(p, "endfor", &n->other);
    return block_end(p);
}

static sl_status parse_set(struct tp *p, struct tn *n)
{
    SL_TRY(target(p, true, &n->a));
    if (text_tp_skip(p, "=")) {
        SL_TRY(text_tp_tuple(p, true, &n->b));
        return block_end(p);
    }
    n->kind = S_SETBLOCK;
    SL_TRY(text_tp_filters(p, NULL, false, &n->b));
    return whole_body(p, "endset", &n->body);
}

static sl_status parse_macro(struct tp *p, struct tn *n)
{
    struct tn **tail = &n->kids;
    bool had_default = false;
    SL_TRY(name(p, &n->name));
    SL_TRY(text_tp_expect(p, "("));
    while (!text_tp_is(p, ")")) {
        struct tn *k = NULL;
        if (n->kids) SL_TRY(text_tp_expect(p, ","));
        SL_TRY(text_tp_node(p, S_PARAM, peek(p)->line, &k));
        SL_TRY(name(p, &k->name));
        if (text_tp_skip(p, "=")) {
            SL_TRY(text_tp_expr(p, true, &k->a));
            had_default = true;
        } else if (had_default) {
            return text_tp_fail(p, k->line, SL_FORMAT,
                                "a parameter without a default after one with it");
        }
        SL_TRY(text_tp_deep(p, k));
        *tail = k;
        tail = &k->next;
        n->n_kid++;
    }
    p->at++;
    int loops = p->loops;
    p->loops = 0;
    p->macros++;
    SL_TRY(whole_body(p, "endmacro", &n->body));
    p->macros--;
    p->loops = loops;
    return SL_OK;
}

static sl_status statement(struct tp *p, struct tn **out)
{
    static const struct {
        const char *word;
        enum tn_kind kind;
    } known[] = {{"if", S_IF},
                 {"for", S_FOR},
                 {"set", S_SET},
                 {"macro", S_MACRO},
                 {"filter", S_FILTER},
                 {"break", S_BREAK},
                 {"continue", S_CONTINUE},
                 {"generation", S_SCOPE}};
    const struct tok_t *t = peek(p);
    int i = 0;
    if (t->kind != T_NAME) return text_tp_fail(p, t->line, SL_FORMAT, "expected a statement");
    while (i < BASE_COUNT_OF(known) && !text_tp_word(p, known[i].word))
        i++;
    if (i == BASE_COUNT_OF(known)) {
        bool end = t->n > 3 && memcmp(t->p, "end", 3) == 0;
        return text_tp_fail(p, t->line, end ? SL_FORMAT : SL_UNSUPPORTED,
                            end ? "{%% %.*s %%} without its beginning"
                                : "statement %.*s is not supported",
                            (int)BASE_MIN(t->n, 40), t->p);
    }
    p->at++;
    struct tn *n = NULL;
    SL_TRY(text_tp_node(p, known[i].kind, t->line, &n));
    if (++p->depth > TMPL_MAX_DEPTH / 2)
        return text_tp_fail(p, t->line, SL_LIMIT, "nested too deep");
    switch (n->kind) {
    case S_IF:
        SL_TRY(parse_if(p, n));
        break;
    case S_FOR:
        SL_TRY(parse_for(p, n));
        break;
    case S_SET:
        SL_TRY(parse_set(p, n));
        break;
    case S_MACRO:
        SL_TRY(parse_macro(p, n));
        break;
    case S_FILTER:
        SL_TRY(text_tp_filters(p, NULL, true, &n->b));
        SL_TRY(whole_body(p, "endfilter", &n->body));
        break;
    case S_SCOPE:
        SL_TRY(whole_body(p, "endgeneration", &n->body));
        break;
    default:
        if (p->loops == 0)
            return text_tp_fail(p, t->line, SL_FORMAT, "%s outside of a loop", known[i].word);
        SL_TRY(block_end(p));
        break;
    }
    p->depth--;
    *out = n;
    return text_tp_deep(p, n);
}

static sl_status data(struct tp *p, struct tn *n)
{
    void *mem = NULL;
    SL_TRY(mem_arena_alloc(&p->t->a, sizeof(struct ts), &mem, p->err));
    struct ts *s = mem;
    *s = (struct ts){.p = peek(p)->p, .n = peek(p)->n};
    n->val = (struct tv){.kind = TV_STR, .s = s};
    n->depth = 1;
    p->at++;
    return SL_OK;
}

static sl_status output(struct tp *p, struct tn *n)
{
    p->at++;
    SL_TRY(text_tp_tuple(p, true, &n->a));
    if (peek(p)->kind != T_VAR_END)
        return text_tp_fail(p, peek(p)->line, SL_FORMAT, "expected '}}'");
    p->at++;
    return text_tp_deep(p, n);
}

/* Statements up to one of ends (a NULL-terminated list; NULL itself: the end of the template). */
static sl_status statements(struct tp *p, const char *const *ends, struct tn **out, int *which)
{
    struct tn **tail = out;
    *out = NULL;
    for (;;) {
        const struct tok_t *t = peek(p);
        struct tn *n = NULL;
        if (t->kind == T_END) {
            if (!ends) return SL_OK;
            return text_tp_fail(p, t->line, SL_FORMAT, "the template ends without {%% %s %%}",
                                ends[0]);
        }
        if (t->kind == T_DATA) {
            SL_TRY(text_tp_node(p, S_DATA, t->line, &n));
            SL_TRY(data(p, n));
        } else if (t->kind == T_VAR_BEGIN) {
            SL_TRY(text_tp_node(p, S_OUT, t->line, &n));
            SL_TRY(output(p, n));
        } else {
            p->at++; /* {% */
            for (int i = 0; ends && ends[i]; i++)
                if (text_tp_word(p, ends[i])) {
                    p->at++;
                    *which = i;
                    return SL_OK;
                }
            SL_TRY(statement(p, &n));
        }
        *tail = n;
        tail = &n->next;
    }
}

/* ---- the whole template ---- */

static bool assigned(const text_tmpl *t, const char *nm)
{
    for (int i = 0; i < t->n_name; i++)
        if (t->name[i].text == nm) return t->name[i].assigned;
    return false;
}

/* Names that Jinja itself gives a meaning, and this interpreter none. */
static bool is_jinjas(const char *name, bool in_macro)
{
    static const char *const all[] = {"varargs", "caller", "self", "cycler", "joiner", "lipsum"};
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        if (strcmp(name, all[i]) == 0) return true;
    return in_macro && strcmp(name, "kwargs") == 0;
}

static sl_status check(struct tp *p, const struct tn *n, bool in_macro)
{
    for (; n; n = n->next) {
        const struct tn *kid[] = {n->a, n->b, n->c, n->d, n->kids, n->body, n->other};
        if (n->kind == E_CALL && n->a->kind == E_NAME && !assigned(p->t, n->a->name) &&
            text_fn_find(n->a->name, strlen(n->a->name)) < 0)
            return text_tp_fail(p, n->line, SL_UNSUPPORTED, "function %.40s is not known",
                                n->a->name);
        if (n->kind == E_NAME && is_jinjas(n->name, in_macro) && !assigned(p->t, n->name))
            return text_tp_fail(p, n->line, SL_UNSUPPORTED, "%s is not supported", n->name);
        for (int i = 0; i < BASE_COUNT_OF(kid); i++)
            if (kid[i]) SL_TRY(check(p, kid[i], in_macro || n->kind == S_MACRO));
    }
    return SL_OK;
}

sl_status text_tmpl_parse(text_tmpl *t, const struct tokens *toks, sl_err *err)
{
    struct tp p = {.t = t, .tok = toks->v, .err = err};
    SL_TRY(statements(&p, NULL, &t->body, NULL));
    return check(&p, t->body, false);
}
