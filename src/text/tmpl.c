/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and rendering: statements, scopes, and the split of the output by who wrote it. */
#include "text/tmpl.h"

#include <string.h>

#include "text/tmpl_internal.h"
#include "text/utf8.h"

/* ---- open ---- */

/* "\r\n" and "\r" become "\n"; one newline at the end goes. */
static size_t normal_lines(const char *src, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (src[i] != '\r')
            out[k++] = src[i];
        else if (i + 1 == n || src[i + 1] != '\n')
            out[k++] = '\n';
    }
    return k > 0 && out[k - 1] == '\n' ? k - 1 : k;
}

static sl_status compile(text_tmpl *t, const char *src, size_t n, struct tokens *toks, sl_err *err)
{
    void *mem = NULL;
    if (n > TMPL_MAX_SOURCE)
        return SL_FAIL(err, LIMIT, "chat template of %zu bytes is over %d", n, TMPL_MAX_SOURCE);
    size_t good = text_utf8_check(src, n);
    if (good < n) return SL_FAIL(err, FORMAT, "chat template is not UTF-8 at byte %zu", good);
    SL_TRY(mem_arena_alloc(&t->a, n + 1, &mem, err));
    size_t k = normal_lines(src, n, mem);
    SL_TRY(text_tmpl_lex(&t->a, mem, k, toks, err));
    return text_tmpl_parse(t, toks, err);
}

sl_status text_tmpl_open(const char *src, size_t n, text_tmpl **out, sl_err *err)
{
    void *mem = NULL;
    struct tokens toks = {0};
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof(text_tmpl), &mem, err));
    text_tmpl *t = mem;
    mem_arena_init(&t->a, MEM_MISC, 0);
    sl_status st = compile(t, src, n, &toks, err);
    mem_free(toks.v);
    if (st == SL_OK)
        *out = t;
    else
        text_tmpl_close(t);
    return st;
}

void text_tmpl_close(text_tmpl *t)
{
    if (!t) return;
    mem_free(t->name);
    mem_arena_fini(&t->a);
    mem_free(t);
}

bool text_tmpl_reads(const text_tmpl *t, const char *name)
{
    for (int i = 0; i < t->n_name; i++)
        if (t->name[i].read && strcmp(t->name[i].text, name) == 0) return true;
    return false;
}

/* ---- scopes ---- */

sl_status text_tx_scope(struct tx *x, struct tscope *up, struct tscope **out)
{
    void *mem = NULL;
    SL_TRY(text_tx_mem(x, 1, sizeof(struct tscope), &mem));
    *out = mem;
    (*out)->up = up;
    return SL_OK;
}

sl_status text_tx_set(struct tx *x, struct tscope *s, const char *name, struct tv v)
{
    for (int i = 0; i < s->n; i++)
        if (s->v[i].name == name) {
            s->v[i].v = v;
            return SL_OK;
        }
    if (s->n == s->cap) {
        void *mem = NULL;
        int cap = s->cap ? s->cap * 2 : 4;
        SL_TRY(text_tx_mem(x, (size_t)cap, sizeof *s->v, &mem));
        if (s->n) memcpy(mem, s->v, (size_t)s->n * sizeof *s->v);
        s->v = mem;
        s->cap = cap;
    }
    s->v[s->n++] = (struct tvar){name, v};
    return SL_OK;
}

sl_status text_tx_assign(struct tx *x, const struct tn *target, struct tv v)
{
    struct tv ns;
    struct tl *l = NULL;
    switch (target->kind) {
    case E_NAME:
        return text_tx_set(x, x->scope, target->name, v);
    case E_ATTR:
        SL_TRY(text_tx_eval(x, target->a, &ns));
        if (ns.kind != TV_NS)
            return text_tx_fail(x, SL_REQUEST, "set of an attribute of %s: only of a namespace",
                                text_tv_kind(ns));
        return text_td_putz(x, ns.d, target->name, v);
    default:
        SL_TRY(text_tv_list(x, v, &l));
        if (l->n != (size_t)target->n_kid)
            return text_tx_fail(x, SL_REQUEST, "%zu values for %d names", l->n, target->n_kid);
        size_t i = 0;
        for (const struct tn *k = target->kids; k; k = k->next)
            SL_TRY(text_tx_assign(x, k, l->v[i++]));
        return SL_OK;
    }
}

/* ---- statements ---- */

static sl_status check_size(struct tx *x)
{
    if ((int64_t)x->out->n > x->out_max)
        return text_tx_fail(x, SL_LIMIT, "the text is longer than %lld bytes",
                            (long long)x->out_max);
    return SL_OK;
}

static sl_status run_if(struct tx *x, const struct tn *n)
{
    for (const struct tn *b = n->kids; b; b = b->next) {
        struct tv v = text_tv_bool(true);
        if (b->a) SL_TRY(text_tx_eval(x, b->a, &v));
        if (text_tv_true(v)) return text_tx_run(x, b->body);
    }
    return SL_OK;
}

/* The items of a for, without those that its condition refuses. *gen: the generator that they came
 * from, or NULL. */
static sl_status for_items(struct tx *x, const struct tn *n, struct tl **out, struct tl **gen)
{
    struct tv v;
    struct tl *all = NULL;
    SL_TRY(text_tx_eval(x, n->b, &v));
    x->line = n->line;
    SL_TRY(text_tv_list(x, v, &all));
    *out = all;
    *gen = v.kind == TV_LIST && v.l->gen ? v.l : NULL;
    if (!n->c) return SL_OK;
    struct tv kept;
    struct tscope *saved = x->scope;
    SL_TRY(text_tl_new(x, 0, &kept));
    for (size_t i = 0; i < all->n; i++) {
        SL_TRY(text_tx_scope(x, saved, &x->scope));
        SL_TRY(text_tx_assign(x, n->a, all->v[i]));
        SL_TRY(text_tx_eval(x, n->c, &v));
        if (text_tv_true(v)) SL_TRY(text_tl_put(x, kept.l, all->v[i]));
    }
    x->scope = saved;
    *out = kept.l;
    return SL_OK;
}

static const char *loop_name(const text_tmpl *t)
{
    for (int i = 0; i < t->n_name; i++)
        if (strcmp(t->name[i].text, "loop") == 0) return t->name[i].text;
    return NULL;
}

static sl_status run_for(struct tx *x, const struct tn *n)
{
    struct tl *items = NULL, *gen = NULL;
    struct tscope *saved = x->scope;
    void *mem = NULL;
    const char *name = loop_name(x->t);
    SL_TRY(for_items(x, n, &items, &gen));
    SL_TRY(text_tx_mem(x, 1, sizeof(struct tloop), &mem));
    struct tloop *loop = mem;
    loop->items = items;
    loop->depth = 1;
    size_t count = items->n; /* the list may grow under us */
    for (; loop->i < count && x->flow != FLOW_BREAK; loop->i++) {
        x->flow = FLOW_NONE;
        SL_TRY(text_tx_scope(x, saved, &x->scope));
        if (name)
            SL_TRY(text_tx_set(x, x->scope, name, (struct tv){.kind = TV_LOOP, .loop = loop}));
        SL_TRY(text_tx_assign(x, n->a, items->v[loop->i]));
        SL_TRY(text_tx_run(x, n->body));
    }
    if (gen && x->flow == FLOW_BREAK) gen->torn = true;
    x->flow = FLOW_NONE;
    x->scope = saved;
    return count == 0 && n->other ? text_tx_run(x, n->other) : SL_OK;
}

/* A body's text, through filters where there are some. */
static sl_status captured(struct tx *x, const struct tn *n, bool scope, struct tv *out)
{
    struct tb text = {0}, *saved = x->out;
    struct tv block = x->block;
    struct tscope *outer = x->scope;
    x->out = &text;
    if (scope) SL_TRY(text_tx_scope(x, outer, &x->scope));
    SL_TRY(text_tx_run(x, n->body));
    x->scope = outer;
    x->out = saved;
    SL_TRY(text_tb_done(x, &text, out));
    if (!n->b) return SL_OK;
    x->block = *out;
    SL_TRY(text_tx_eval(x, n->b, out));
    x->block = block;
    return SL_OK;
}

static sl_status define_macro(struct tx *x, const struct tn *n)
{
    void *mem = NULL;
    SL_TRY(text_tx_mem(x, 1, sizeof(struct tmacro), &mem));
    struct tmacro *m = mem;
    m->def = n;
    m->scope = x->scope;
    return text_tx_set(x, x->scope, n->name, (struct tv){.kind = TV_MACRO, .macro = m});
}

static sl_status run_one(struct tx *x, const struct tn *n)
{
    struct tv v;
    struct tscope *saved = x->scope;
    switch (n->kind) {
    case S_DATA:
        return text_tb_ts(x, x->out, n->val.s, 0, n->val.s->n);
    case S_OUT:
        SL_TRY(text_tx_eval(x, n->a, &v));
        x->line = n->line;
        return text_tv_put(x, x->out, v, false);
    case S_IF:
        return run_if(x, n);
    case S_FOR:
        return run_for(x, n);
    case S_SET:
        SL_TRY(text_tx_eval(x, n->b, &v));
        x->line = n->line;
        return text_tx_assign(x, n->a, v);
    case S_SETBLOCK:
        SL_TRY(captured(x, n, true, &v));
        return text_tx_assign(x, n->a, v);
    case S_FILTER:
        SL_TRY(captured(x, n, true, &v));
        return text_tv_put(x, x->out, v, false);
    case S_MACRO:
        return define_macro(x, n);
    case S_SCOPE:
        SL_TRY(text_tx_scope(x, saved, &x->scope));
        SL_TRY(text_tx_run(x, n->body));
        x->scope = saved;
        return SL_OK;
    case S_BREAK:
        x->flow = FLOW_BREAK;
        return SL_OK;
    case S_CONTINUE:
        x->flow = FLOW_CONTINUE;
        return SL_OK;
    default:
        return text_tx_fail(x, SL_INTERNAL, "no statement");
    }
}

sl_status text_tx_run(struct tx *x, const struct tn *body)
{
    if (++x->depth > TMPL_MAX_STACK) return text_tx_fail(x, SL_LIMIT, "nested too deep");
    for (const struct tn *n = body; n && x->flow == FLOW_NONE; n = n->next) {
        SL_TRY(text_tx_cost(x, 1));
        x->line = n->line;
        SL_TRY(run_one(x, n));
        SL_TRY(check_size(x));
    }
    x->depth--;
    return SL_OK;
}

/* ---- render ---- */

static sl_status define(struct tx *x, const char *name, struct tv v)
{
    for (int i = 0; i < x->t->n_name;
         i++) /* a name that the template does not use needs no variable */
        if (strcmp(x->t->name[i].text, name) == 0)
            return text_tx_set(x, x->root, x->t->name[i].text, v);
    return SL_OK;
}

static sl_status define_json(struct tx *x, const char *name, const struct json *j)
{
    struct tv v = {.kind = TV_NONE};
    if (j) SL_TRY(text_tv_json(x, j, &v));
    return define(x, name, v);
}

static sl_status define_token(struct tx *x, const char *name, const char *z)
{
    struct tv v;
    if (!z) return SL_OK;
    SL_TRY(text_ts_new(x, z, strlen(z), false, &v));
    return define(x, name, v);
}

static sl_status variables(struct tx *x, const struct text_tmpl_vars *vars)
{
    SL_TRY(text_tx_scope(x, NULL, &x->root));
    x->scope = x->root;
    SL_TRY(define_json(x, "messages", vars->messages));
    SL_TRY(define_json(x, "tools", vars->tools));
    SL_TRY(define_json(x, "documents", NULL));
    SL_TRY(define(x, "add_generation_prompt", text_tv_bool(vars->add_generation_prompt)));
    SL_TRY(define_token(x, "bos_token", vars->bos_token));
    SL_TRY(define_token(x, "eos_token", vars->eos_token));
    for (int i = 0; i < vars->n_token; i++)
        SL_TRY(define_token(x, vars->token[i].name, vars->token[i].text));
    for (const struct json *k = vars->kwargs ? vars->kwargs->child : NULL; k; k = k->next)
        SL_TRY(define_json(x, k->key, k));
    /* The template's own names go into a scope of their own, above the request's. */
    return text_tx_scope(x, x->root, &x->scope);
}

static sl_status put_spans(struct tx *x, const struct tb *b, size_t base,
                           struct text_tmpl_spans *spans)
{
    int n = 0;
    void *mem = NULL;
    for (size_t i = 0; i < b->n; i++)
        n += i == 0 || b->mask[i] != b->mask[i - 1];
    SL_TRY(mem_arena_array(x->a, (size_t)n, sizeof *spans->v, &mem, x->err));
    struct text_tmpl_span *s = mem;
    n = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (i == 0 || b->mask[i] != b->mask[i - 1])
            s[n++] = (struct text_tmpl_span){base + i, base + i, b->mask[i]};
        s[n - 1].end = base + i + 1;
    }
    *spans = (struct text_tmpl_spans){s, n};
    return SL_OK;
}

/* Values that a request brings, as JSON nodes and bytes: its budget grows with them. */
static int64_t weight(const struct json *j)
{
    const struct json *open[TEXT_JSON_DEPTH + 1];
    int64_t n = 0;
    int d = 0;
    if (!j) return 0;
    const struct json *v = j;
    for (;;) {
        bool tree = v->kind == JSON_ARRAY_K || v->kind == JSON_OBJECT_K;
        n += 4 + (v->kind == JSON_STR_K ? (int64_t)v->n / 4 : 0);
        if (tree && v->child && d < TEXT_JSON_DEPTH) {
            open[d++] = v;
            v = v->child;
            continue;
        }
        while (d > 0 && !v->next)
            v = open[--d];
        if (d == 0) return n;
        v = v->next;
    }
}

sl_status text_tmpl_render(const text_tmpl *t, const struct text_tmpl_vars *vars, struct arena *a,
                           struct str *out, struct text_tmpl_spans *spans, sl_err *err)
{
    struct tb text = {0};
    int64_t w = weight(vars->messages) + weight(vars->tools) + weight(vars->kwargs);
    struct tx x = {.t = t, .a = a, .err = err, .out = &text, .now_s = vars->now_s};
    if (vars->messages && vars->messages->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "messages is no array");
    if (vars->tools && vars->tools->kind != JSON_ARRAY_K)
        return SL_FAIL(err, REQUEST, "tools is no array");
    if (vars->kwargs && vars->kwargs->kind != JSON_OBJECT_K)
        return SL_FAIL(err, REQUEST, "the template's variables are no object");
    x.steps = TEXT_TMPL_STEPS + w * 64;
    x.out_max = TEXT_TMPL_OUT + w * 16;
    SL_TRY(variables(&x, vars));
    SL_TRY(text_tx_run(&x, t->body));
    if (spans) SL_TRY(put_spans(&x, &text, out->n, spans));
    str_put(out, text.p ? text.p : "", text.n);
    return str_status(out, err);
}
