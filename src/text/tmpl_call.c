/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments, macros, the global functions, loop.cycle and loop.changed. */
#include <string.h>
#include <time.h>

#include "text/tmpl_internal.h"

enum { FN_RANGE, FN_NAMESPACE, FN_DICT, FN_RAISE, FN_STRFTIME, FN_COUNT };
static const struct {
    const char *name, *params;
} functions[] = {{"range", "start stop step"},
                 {"namespace", NULL},
                 {"dict", NULL},
                 {"raise_exception", "message"},
                 {"strftime_now", "format"}};

int text_fn_find(const char *name, size_t n)
{
    for (int i = 0; i < FN_COUNT; i++)
        if (strlen(functions[i].name) == n && memcmp(functions[i].name, name, n) == 0) return i;
    return -1;
}

const char *text_fn_name(int fn)
{
    return functions[fn].name;
}

int text_fn_count(void)
{
    return FN_COUNT;
}

sl_status text_tx_args(struct tx *x, const struct tn *n, struct tcall *c)
{
    void *mem = NULL;
    if (n->n_kid == 0) return SL_OK;
    SL_TRY(text_tx_mem(x, (size_t)n->n_kid, sizeof *c->arg, &mem));
    c->arg = mem;
    SL_TRY(text_tx_mem(x, (size_t)n->n_kid, sizeof *c->kw, &mem));
    c->kw = mem;
    for (const struct tn *k = n->kids; k; k = k->next) {
        struct tv v;
        SL_TRY(text_tx_eval(x, k->a, &v));
        if (!k->name) {
            c->arg[c->n_arg++] = v;
            continue;
        }
        for (int i = 0; i < c->n_kw; i++)
            if (c->kw[i].name == k->name)
                return text_tx_fail(x, SL_REQUEST, "argument %s is given twice", k->name);
        c->kw[c->n_kw++] = (struct tkw){k->name, v};
    }
    return SL_OK;
}

const struct tv *text_tc_arg(const struct tcall *c, int i)
{
    if (i < c->n_arg) return &c->arg[i];
    const char *p = c->params;
    for (int k = 0; k < i && *p; k++) {
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    size_t n = strcspn(p, " ");
    for (int k = 0; k < c->n_kw && n; k++)
        if (strlen(c->kw[k].name) == n && memcmp(c->kw[k].name, p, n) == 0) return &c->kw[k].v;
    return NULL;
}

static sl_status call_range(struct tx *x, const struct tcall *c, struct tv *out)
{
    int64_t v[3] = {0, 0, 1};
    if (c->n_arg < 1 || c->n_arg > 3 || c->n_kw)
        return text_tx_fail(x, SL_REQUEST, "range takes one to three numbers");
    for (int i = 0; i < c->n_arg; i++) {
        if (c->arg[i].kind != TV_INT && c->arg[i].kind != TV_BOOL)
            return text_tx_fail(x, SL_REQUEST, "range of %s", text_tv_kind(c->arg[i]));
        v[c->n_arg == 1 ? 1 : i] = c->arg[i].kind == TV_INT ? c->arg[i].i : c->arg[i].b;
    }
    if (v[2] == 0) return text_tx_fail(x, SL_REQUEST, "range with step 0");
    SL_TRY(text_tl_new(x, 0, out));
    out->l->form = TL_RANGE;
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        if (out->l->n == TMPL_MAX_RANGE)
            return text_tx_fail(x, SL_LIMIT, "range of more than %d", TMPL_MAX_RANGE);
        SL_TRY(text_tx_cost(x, 1));
        SL_TRY(text_tl_put(x, out->l, text_tv_int(i)));
        if (__builtin_add_overflow(i, v[2], &i)) break;
    }
    return SL_OK;
}

/* dict(mapping, a=1) and namespace(mapping, a=1) */
static sl_status call_dict(struct tx *x, const struct tcall *c, enum tv_kind kind, struct tv *out)
{
    SL_TRY(text_td_new(x, kind, out));
    if (c->n_arg > 1) return text_tx_fail(x, SL_REQUEST, "more than one argument without a name");
    if (c->n_arg == 1) {
        const struct tv in = c->arg[0];
        struct tl *l = NULL;
        if (in.kind == TV_DICT) {
            for (size_t i = 0; i < in.d->n; i++)
                SL_TRY(text_td_put(x, out->d, in.d->v[i].key, in.d->v[i].val));
        } else {
            SL_TRY(text_tv_list(x, in, &l));
            for (size_t i = 0; i < l->n; i++) {
                if (l->v[i].kind != TV_LIST || l->v[i].l->n != 2)
                    return text_tx_fail(x, SL_REQUEST, "dict of something that is no pair");
                SL_TRY(text_td_put(x, out->d, l->v[i].l->v[0], l->v[i].l->v[1]));
            }
        }
    }
    for (int i = 0; i < c->n_kw; i++)
        SL_TRY(text_td_putz(x, out->d, c->kw[i].name, c->kw[i].v));
    return SL_OK;
}

static sl_status call_raise(struct tx *x, const struct tcall *c)
{
    struct tv s;
    if (c->n_arg + c->n_kw != 1)
        return text_tx_fail(x, SL_REQUEST, "raise_exception takes one text");
    SL_TRY(text_tv_str(x, c->n_arg ? c->arg[0] : c->kw[0].v, &s));
    return text_tx_fail(x, SL_REQUEST, "%.*s", (int)BASE_MIN(s.s->n, 180), s.s->p);
}

static sl_status call_strftime(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tm tm;
    char fmt[128], buf[512];
    time_t t = (time_t)x->now_s;
    if (c->n_arg != 1 || c->n_kw || c->arg[0].kind != TV_STR || c->arg[0].s->n >= sizeof fmt)
        return text_tx_fail(x, SL_REQUEST, "strftime_now takes one short text");
    memcpy(fmt, c->arg[0].s->p, c->arg[0].s->n);
    fmt[c->arg[0].s->n] = 0;
    if (!localtime_r(&t, &tm)) return text_tx_fail(x, SL_REQUEST, "strftime_now: no such time");
    size_t n = strftime(buf, sizeof buf, fmt, &tm);
    void *mem = NULL;
    SL_TRY(text_tx_mem(x, n + 1, 1, &mem));
    memcpy(mem, buf, n);
    return text_ts_new(x, mem, n, text_ts_user(c->arg[0].s), out);
}

static sl_status call_function(struct tx *x, int fn, const struct tcall *c, struct tv *out)
{
    switch (fn) {
    case FN_RANGE:
        return call_range(x, c, out);
    case FN_NAMESPACE:
        return call_dict(x, c, TV_NS, out);
    case FN_DICT:
        return call_dict(x, c, TV_DICT, out);
    case FN_RAISE:
        return call_raise(x, c);
    default:
        return call_strftime(x, c, out);
    }
}

/* The value of a macro's parameter i: by place, by name, its default, or undefined. */
static sl_status parameter(struct tx *x, const struct tn *p, int i, const struct tcall *c,
                           struct tv *out)
{
    if (i < c->n_arg) {
        *out = c->arg[i];
        return SL_OK;
    }
    for (int k = 0; k < c->n_kw; k++)
        if (c->kw[k].name == p->name) {
            *out = c->kw[k].v;
            return SL_OK;
        }
    if (p->a) return text_tx_eval(x, p->a, out);
    *out = text_tv_undef(p->name);
    return SL_OK;
}

static sl_status call_macro(struct tx *x, const struct tmacro *m, const struct tcall *c,
                            struct tv *out)
{
    struct tscope *inner = NULL, *saved = x->scope;
    struct tb text = {0}, *saved_out = x->out;
    int i = 0, used = 0;
    if (c->n_arg > m->def->n_kid)
        return text_tx_fail(x, SL_REQUEST, "macro %s takes %d arguments, not %d", m->def->name,
                            m->def->n_kid, c->n_arg);
    if (++x->calls > TMPL_MAX_CALL)
        return text_tx_fail(x, SL_LIMIT, "macros nested deeper than %d", TMPL_MAX_CALL);
    SL_TRY(text_tx_scope(x, m->scope, &inner));
    x->scope = inner;
    for (const struct tn *p = m->def->kids; p; p = p->next, i++) {
        struct tv v;
        for (int k = 0; k < c->n_kw; k++)
            used += c->kw[k].name == p->name && i >= c->n_arg;
        SL_TRY(parameter(x, p, i, c, &v));
        SL_TRY(text_tx_set(x, inner, p->name, v));
    }
    if (used < c->n_kw)
        return text_tx_fail(x, SL_REQUEST, "macro %s has no such parameter", m->def->name);
    x->out = &text;
    SL_TRY(text_tx_run(x, m->def->body));
    x->out = saved_out;
    x->scope = saved;
    x->calls--;
    return text_tb_done(x, &text, out);
}

static sl_status call_loop(struct tx *x, struct tloop *l, const char *name, const struct tcall *c,
                           struct tv *out)
{
    if (strcmp(name, "cycle") == 0) {
        if (c->n_arg == 0) return text_tx_fail(x, SL_REQUEST, "loop.cycle without arguments");
        *out = c->arg[l->i % (size_t)c->n_arg];
        return SL_OK;
    }
    struct tv all;
    bool same = false;
    SL_TRY(text_tl_new(x, (size_t)c->n_arg, &all));
    for (int i = 0; i < c->n_arg; i++)
        SL_TRY(text_tl_put(x, all.l, c->arg[i]));
    if (l->has_changed) SL_TRY(text_tv_equal(x, l->changed, all, 0, &same));
    l->has_changed = true;
    l->changed = all;
    *out = text_tv_bool(!same);
    return SL_OK;
}

sl_status text_tx_call(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tv f;
    struct tcall c = {.params = ""};
    SL_TRY(text_tx_eval(x, n->a, &f));
    SL_TRY(text_tx_args(x, n, &c));
    x->line = n->line;
    switch (f.kind) {
    case TV_FUNC:
        return call_function(x, f.fn, &c, out);
    case TV_MACRO:
        return call_macro(x, f.macro, &c, out);
    case TV_METHOD:
        if (f.me->self.kind == TV_LOOP) return call_loop(x, f.me->self.loop, f.me->name, &c, out);
        return text_tx_method(x, f.me, &c, out);
    case TV_UNDEF:
        return text_tx_fail(x, SL_REQUEST, "'%.60s' is undefined and can not be called", f.what);
    default:
        return text_tx_fail(x, SL_REQUEST, "%s can not be called", text_tv_kind(f));
    }
}
