/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. One C frame for each level of the tree; the tree's depth and the frames are capped.
 */
#include <math.h>
#include <string.h>

#include "text/tmpl_internal.h"
#include "text/utf8.h"

static const struct tn *arg_of(const struct tn *k)
{
    return k->kind == S_PARAM ? k->a : k;
}

static sl_status look_up(struct tx *x, const char *name, struct tv *out)
{
    for (const struct tscope *s = x->scope; s; s = s->up) {
        SL_TRY(text_tx_cost(x, 1));
        for (int i = s->n - 1; i >= 0; i--)
            if (s->v[i].name == name) {
                *out = s->v[i].v;
                return SL_OK;
            }
    }
    int fn = text_fn_find(name, strlen(name));
    *out = fn >= 0 ? (struct tv){.kind = TV_FUNC, .fn = fn} : text_tv_undef(name);
    return SL_OK;
}

static sl_status loop_attr(const struct tloop *l, const char *name, struct tv *out)
{
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        struct tv v;
    } attr[] = {{"index", text_tv_int(i + 1)},        {"index0", text_tv_int(i)},
                {"revindex", text_tv_int(n - i)},     {"revindex0", text_tv_int(n - i - 1)},
                {"first", text_tv_bool(i == 0)},      {"last", text_tv_bool(i + 1 == n)},
                {"length", text_tv_int(n)},           {"depth", text_tv_int(l->depth)},
                {"depth0", text_tv_int(l->depth - 1)}};
    if (strcmp(name, "previtem") == 0) {
        *out = i > 0 ? l->items->v[i - 1] : text_tv_undef("there is no previous item");
        return SL_OK;
    }
    if (strcmp(name, "nextitem") == 0) {
        *out = i + 1 < n ? l->items->v[i + 1] : text_tv_undef("there is no next item");
        return SL_OK;
    }
    *out = text_tv_undef(name);
    for (int k = 0; k < BASE_COUNT_OF(attr); k++)
        if (strcmp(name, attr[k].name) == 0) *out = attr[k].v;
    return SL_OK;
}

sl_status text_tx_attr(struct tx *x, struct tv o, const char *name, struct tv *out)
{
    void *mem = NULL;
    SL_TRY(text_tx_cost(x, 1));
    if (o.kind == TV_UNDEF) return text_tx_fail(x, SL_REQUEST, "'%.60s' is undefined", o.what);
    if (o.kind == TV_LOOP && !text_method_of(o, name)) return loop_attr(o.loop, name, out);
    if (o.kind == TV_NS || o.kind == TV_DICT) {
        if (o.kind == TV_DICT && text_method_of(o, name)) goto method;
        struct tv *v = text_td_getz(o.d, name);
        SL_TRY(text_tx_cost(x, o.d->n / 8));
        *out = v ? *v : text_tv_undef(name);
        return SL_OK;
    }
    if (o.kind == TV_MACRO && strcmp(name, "name") == 0)
        return text_ts_new(x, o.macro->def->name, strlen(o.macro->def->name), false, out);
    if (text_method_missing(o, name))
        return text_tx_fail(x, SL_UNSUPPORTED, ".%.40s of %s is not supported", name,
                            text_tv_kind(o));
    if (!text_method_of(o, name)) {
        *out = text_tv_undef(name);
        return SL_OK;
    }
method:
    SL_TRY(text_tx_mem(x, 1, sizeof(struct tmethod), &mem));
    struct tmethod *m = mem;
    m->self = o;
    m->name = name;
    *out = (struct tv){.kind = TV_METHOD, .me = m};
    return SL_OK;
}

/* Byte offset of code point i (i <= their number). */
static size_t offset_of(const struct ts *s, int64_t i)
{
    size_t at = 0;
    while (i > 0 && at < s->n) {
        at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80)
            at++;
        i--;
    }
    return at;
}

sl_status text_tx_item(struct tx *x, struct tv o, struct tv key, struct tv *out)
{
    struct tv *hit = NULL;
    SL_TRY(text_tx_cost(x, 1));
    if (o.kind == TV_UNDEF) return text_tx_fail(x, SL_REQUEST, "'%.60s' is undefined", o.what);
    int64_t i = key.kind == TV_INT ? key.i : key.kind == TV_BOOL ? key.b : 0;
    bool index = key.kind == TV_INT || key.kind == TV_BOOL;
    *out = text_tv_undef(key.kind == TV_STR ? key.s->p : "an item");
    switch (o.kind) {
    case TV_DICT:
        if (key.kind == TV_LIST || key.kind == TV_DICT) return SL_OK;
        SL_TRY(text_td_get(x, o.d, key, &hit));
        if (hit)
            *out = *hit;
        else if (key.kind == TV_STR && !key.s->user && text_method_of(o, key.s->p))
            return text_tx_attr(x, o, key.s->p, out);
        return SL_OK;
    case TV_LIST:
        if (!index || o.l->gen || o.l->form == TL_VIEW) return SL_OK;
        if (i < 0) i += (int64_t)o.l->n;
        if (i >= 0 && i < (int64_t)o.l->n) *out = o.l->v[i];
        return SL_OK;
    case TV_STR: {
        if (!index) return SL_OK;
        SL_TRY(text_tx_cost(x, o.s->n / 16));
        int64_t n = (int64_t)text_utf8_count(o.s->p, o.s->n);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return SL_OK;
        size_t at = offset_of(o.s, i);
        struct ts rest = {.p = o.s->p + at, .n = o.s->n - at};
        return text_ts_sub(x, o.s, at, offset_of(&rest, 1), out);
    }
    case TV_NS:
        if (key.kind == TV_STR) SL_TRY(text_td_get(x, o.d, key, &hit));
        if (hit) *out = *hit;
        return SL_OK;
    default:
        return SL_OK;
    }
}

static sl_status bound(struct tx *x, const struct tn *n, bool *given, int64_t *v)
{
    struct tv t;
    *given = false;
    if (!n) return SL_OK;
    SL_TRY(text_tx_eval(x, n, &t));
    if (t.kind == TV_NONE) return SL_OK;
    if (t.kind != TV_INT && t.kind != TV_BOOL)
        return text_tx_fail(x, SL_REQUEST, "%s in a slice", text_tv_kind(t));
    *given = true;
    *v = t.kind == TV_INT ? t.i : t.b;
    return SL_OK;
}

/* Python's slice indices: *from, *to and *step over n items. */
static sl_status slice_range(struct tx *x, const struct tn *n, int64_t len, int64_t *from,
                             int64_t *to, int64_t *step)
{
    bool has_from, has_to, has_step;
    *step = 1;
    SL_TRY(bound(x, n->b, &has_from, from));
    SL_TRY(bound(x, n->c, &has_to, to));
    SL_TRY(bound(x, n->d, &has_step, step));
    if (*step == 0) return text_tx_fail(x, SL_REQUEST, "a slice with step 0");
    int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? len : len - 1;
    if (!has_from)
        *from = *step > 0 ? low : high;
    else
        *from = BASE_MIN(BASE_MAX(*from < 0 ? *from + len : *from, low), high);
    if (!has_to)
        *to = *step > 0 ? high : low;
    else
        *to = BASE_MIN(BASE_MAX(*to < 0 ? *to + len : *to, low), high);
    if (*step > len + 1) *step = len + 1; /* the same result, and no overflow */
    if (*step < -(len + 1)) *step = -(len + 1);
    return SL_OK;
}

static sl_status slice(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tv o;
    int64_t from = 0, to = 0, step;
    SL_TRY(text_tx_eval(x, n->a, &o));
    if (o.kind == TV_UNDEF) return text_tx_fail(x, SL_REQUEST, "'%.60s' is undefined", o.what);
    if (o.kind == TV_STR) {
        SL_TRY(text_tx_cost(x, o.s->n / 8));
        SL_TRY(slice_range(x, n, (int64_t)text_utf8_count(o.s->p, o.s->n), &from, &to, &step));
        if (step == 1) {
            size_t a = offset_of(o.s, from), b = from < to ? offset_of(o.s, to) : a;
            return text_ts_sub(x, o.s, a, b - a, out);
        }
        struct tl *chars = NULL;
        struct tb b = {0};
        SL_TRY(text_tv_list(x, o, &chars));
        for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
            SL_TRY(text_tb_ts(x, &b, chars->v[i].s, 0, chars->v[i].s->n));
        return text_tb_done(x, &b, out);
    }
    if (o.kind != TV_LIST || o.l->gen || o.l->form == TL_VIEW) {
        *out = text_tv_undef("a slice");
        return SL_OK;
    }
    SL_TRY(slice_range(x, n, (int64_t)o.l->n, &from, &to, &step));
    SL_TRY(text_tl_new(x, 0, out));
    out->l->tuple = o.l->tuple;
    out->l->form = o.l->form;
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        SL_TRY(text_tl_put(x, out->l, o.l->v[i]));
    return SL_OK;
}

/* ---- operators ---- */

static bool as_number(struct tv v, double *f, int64_t *i, bool *real)
{
    if (v.kind != TV_BOOL && v.kind != TV_INT && v.kind != TV_REAL) return false;
    if (v.kind == TV_REAL) *real = true;
    *i = v.kind == TV_BOOL ? v.b : v.kind == TV_INT ? v.i : 0;
    *f = v.kind == TV_REAL ? v.f : (double)*i;
    return true;
}

static sl_status real(struct tx *x, double f, struct tv *out)
{
    if (!isfinite(f)) return text_tx_fail(x, SL_REQUEST, "a number out of range");
    *out = (struct tv){.kind = TV_REAL, .f = f};
    return SL_OK;
}

static sl_status int_power(struct tx *x, int64_t a, int64_t b, struct tv *out)
{
    int64_t r = 1;
    if (b < 0) return real(x, pow((double)a, (double)b), out);
    if (a == 0 || a == 1 || a == -1) {
        *out = text_tv_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
        return SL_OK;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(r, a, &r))
            return text_tx_fail(x, SL_LIMIT, "an integer over 64 bits");
    *out = text_tv_int(r);
    return SL_OK;
}

static sl_status arithmetic(struct tx *x, int op, struct tv a, struct tv b, struct tv *out)
{
    double fa, fb;
    int64_t ia, ib, r = 0;
    bool is_real = false, over = false;
    if (!as_number(a, &fa, &ia, &is_real) || !as_number(b, &fb, &ib, &is_real))
        return text_tx_fail(x, SL_REQUEST, "this operator has no meaning for %s and %s",
                            text_tv_kind(a), text_tv_kind(b));
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && fb == 0)
        return text_tx_fail(x, SL_REQUEST, "division by zero");
    if (op == OP_DIV) return real(x, fa / fb, out);
    if (is_real) {
        double q = floor(fa / fb);
        return real(x,
                    op == OP_ADD        ? fa + fb
                    : op == OP_SUB      ? fa - fb
                    : op == OP_MUL      ? fa * fb
                    : op == OP_FLOORDIV ? q
                    : op == OP_MOD      ? fa - q * fb
                                        : pow(fa, fb),
                    out);
    }
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(ia, ib, &r);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(ia, ib, &r);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(ia, ib, &r);
        break;
    case OP_POW:
        return int_power(x, ia, ib, out);
    default:
        if (ib == -1) { /* INT64_MIN / -1 does not fit */
            over = op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, ia, &r);
            break;
        }
        r = op == OP_MOD ? ia % ib : ia / ib;
        if (ia % ib != 0 && (ia % ib < 0) != (ib < 0))
            r += op == OP_MOD ? ib : -1; /* Python rounds down */
    }
    if (over) return text_tx_fail(x, SL_LIMIT, "an integer over 64 bits");
    *out = text_tv_int(r);
    return SL_OK;
}

static sl_status repeat(struct tx *x, struct tv a, int64_t times, struct tv *out)
{
    if (times < 0) times = 0;
    if (a.kind == TV_STR) {
        struct tb b = {0};
        if (a.s->n == 0) times = 0;
        for (int64_t i = 0; i < times; i++) {
            SL_TRY(text_tx_cost(x, 1));
            SL_TRY(text_tb_ts(x, &b, a.s, 0, a.s->n));
        }
        return text_tb_done(x, &b, out);
    }
    SL_TRY(text_tl_new(x, 0, out));
    out->l->tuple = a.l->tuple;
    for (int64_t i = 0; i < times && a.l->n; i++)
        for (size_t k = 0; k < a.l->n; k++) {
            SL_TRY(text_tx_cost(x, 1));
            SL_TRY(text_tl_put(x, out->l, a.l->v[k]));
        }
    return SL_OK;
}

/* One side of '+', its HTML escaped where the other side came from `safe`. */
static sl_status put_side(struct tx *x, struct tb *b, const struct ts *s, bool escape)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (!escape) return text_tb_ts(x, b, s, 0, s->n);
    SL_TRY(text_tx_cost(x, s->n / 8));
    for (size_t i = 0; i < s->n; i++) {
        const char *hit = s->p[i] ? strchr(from, s->p[i]) : NULL;
        if (!hit)
            SL_TRY(text_tb_ts(x, b, s, i, 1));
        else
            SL_TRY(text_tb_put(x, b, to[hit - from], strlen(to[hit - from]),
                               s->mask ? s->mask[i] : s->user));
    }
    return SL_OK;
}

/* A list or tuple. */
static bool is_plain(struct tv v)
{
    return v.kind == TV_LIST && !v.l->gen && v.l->form == TL_PLAIN;
}

static sl_status binary(struct tx *x, int op, struct tv a, struct tv b, struct tv *out)
{
    const struct tv *undef = a.kind == TV_UNDEF ? &a : b.kind == TV_UNDEF ? &b : NULL;
    if (undef) return text_tx_fail(x, SL_REQUEST, "'%.60s' is undefined", undef->what);
    if (op == OP_ADD && a.kind == TV_STR && b.kind == TV_STR) {
        struct tb t = {0};
        bool markup =
            a.s->markup || b.s->markup; /* then what is none is escaped, as MarkupSafe does */
        SL_TRY(put_side(x, &t, a.s, markup && !a.s->markup));
        SL_TRY(put_side(x, &t, b.s, markup && !b.s->markup));
        SL_TRY(text_tb_done(x, &t, out));
        return markup ? text_ts_mark(x, out) : SL_OK;
    }
    if (op == OP_ADD && a.kind == TV_LIST && b.kind == TV_LIST && a.l->tuple == b.l->tuple &&
        is_plain(a) && is_plain(b)) {
        SL_TRY(text_tl_new(x, a.l->n + b.l->n, out));
        out->l->tuple = a.l->tuple;
        for (size_t i = 0; i < a.l->n + b.l->n; i++)
            SL_TRY(text_tl_put(x, out->l, i < a.l->n ? a.l->v[i] : b.l->v[i - a.l->n]));
        return SL_OK;
    }
    if (op == OP_MUL && (a.kind == TV_STR || is_plain(a)) &&
        (b.kind == TV_INT || b.kind == TV_BOOL))
        return repeat(x, a, b.kind == TV_INT ? b.i : b.b, out);
    if (op == OP_MUL && (b.kind == TV_STR || is_plain(b)) &&
        (a.kind == TV_INT || a.kind == TV_BOOL))
        return repeat(x, b, a.kind == TV_INT ? a.i : a.b, out);
    return arithmetic(x, op, a, b, out);
}

static sl_status one_compare(struct tx *x, int op, struct tv a, struct tv b, bool *out)
{
    int c = 0;
    if (op == OP_EQ || op == OP_NE) {
        SL_TRY(text_tv_equal(x, a, b, 0, out));
        *out ^= op == OP_NE;
        return SL_OK;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        SL_TRY(text_tv_in(x, a, b, out));
        *out ^= op == OP_NOT_IN;
        return SL_OK;
    }
    SL_TRY(text_tv_less(x, a, b, 0, &c));
    *out = op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0;
    return SL_OK;
}

static sl_status compare(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tv a, b;
    bool yes = true;
    SL_TRY(text_tx_eval(x, n->a, &a));
    for (const struct tn *k = n->kids; k && yes; k = k->next) {
        SL_TRY(text_tx_eval(x, k->a, &b));
        SL_TRY(one_compare(x, k->op, a, b, &yes));
        a = b;
    }
    *out = text_tv_bool(yes);
    return SL_OK;
}

static sl_status logic(struct tx *x, const struct tn *n, struct tv *out)
{
    for (const struct tn *k = n->kids; k; k = k->next) {
        SL_TRY(text_tx_eval(x, k->a, out));
        if (text_tv_true(*out) == (n->kind == E_OR)) break;
    }
    return SL_OK;
}

static sl_status concat(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tb b = {0};
    struct tv v;
    for (const struct tn *k = n->kids; k; k = k->next) {
        SL_TRY(text_tx_eval(x, k->a, &v));
        SL_TRY(text_tv_put(x, &b, v, false));
    }
    return text_tb_done(x, &b, out);
}

static sl_status build(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tv v, key = {0};
    if (n->kind == E_DICT)
        SL_TRY(text_td_new(x, TV_DICT, out));
    else
        SL_TRY(text_tl_new(x, (size_t)n->n_kid, out));
    if (n->kind == E_TUPLE) out->l->tuple = true;
    int i = 0;
    for (const struct tn *k = n->kids; k; k = k->next, i++) {
        SL_TRY(text_tx_eval(x, arg_of(k), &v));
        if (n->kind != E_DICT)
            SL_TRY(text_tl_put(x, out->l, v));
        else if (i % 2 == 0)
            key = v;
        else
            SL_TRY(text_td_put(x, out->d, key, v));
    }
    return SL_OK;
}

static sl_status filter_or_test(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tcall c = {0};
    const char *name;
    int n_min;
    if (n->a)
        SL_TRY(text_tx_eval(x, n->a, &c.in));
    else
        c.in = x->block;
    SL_TRY(text_tx_args(x, n, &c));
    x->line = n->line;
    if (n->kind == E_FILTER) {
        text_filter_info(n->op, &name, &c.params, &n_min);
        return text_filter_run(x, n->op, &c, out);
    }
    bool yes = false;
    text_test_info(n->op, &name, &c.params, &n_min);
    SL_TRY(text_test_run(x, n->op, &c, &yes));
    *out = text_tv_bool(yes);
    return SL_OK;
}

static sl_status sign(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tv v;
    SL_TRY(text_tx_eval(x, n->a, &v));
    return arithmetic(x, n->kind == E_NEG ? OP_SUB : OP_ADD, text_tv_int(0), v, out);
}

static sl_status eval(struct tx *x, const struct tn *n, struct tv *out)
{
    struct tv a, b;
    switch (n->kind) {
    case E_CONST:
        *out = n->val;
        return SL_OK;
    case E_NAME:
        return look_up(x, n->name, out);
    case E_LIST:
    case E_TUPLE:
    case E_DICT:
        return build(x, n, out);
    case E_ATTR:
        SL_TRY(text_tx_eval(x, n->a, &a));
        x->line = n->line;
        return text_tx_attr(x, a, n->name, out);
    case E_ITEM:
        SL_TRY(text_tx_eval(x, n->a, &a));
        SL_TRY(text_tx_eval(x, n->b, &b));
        x->line = n->line;
        return text_tx_item(x, a, b, out);
    case E_SLICE:
        return slice(x, n, out);
    case E_CALL:
        return text_tx_call(x, n, out);
    case E_FILTER:
    case E_TEST:
        return filter_or_test(x, n, out);
    case E_BIN:
        SL_TRY(text_tx_eval(x, n->a, &a));
        SL_TRY(text_tx_eval(x, n->b, &b));
        x->line = n->line;
        return binary(x, n->op, a, b, out);
    case E_NEG:
    case E_POS:
        return sign(x, n, out);
    case E_NOT:
        SL_TRY(text_tx_eval(x, n->a, &a));
        *out = text_tv_bool(!text_tv_true(a));
        return SL_OK;
    case E_AND:
    case E_OR:
        return logic(x, n, out);
    case E_COMPARE:
        return compare(x, n, out);
    case E_COND:
        SL_TRY(text_tx_eval(x, n->a, &a));
        if (text_tv_true(a)) return text_tx_eval(x, n->b, out);
        if (n->c) return text_tx_eval(x, n->c, out);
        *out = text_tv_undef("the value of an if without else");
        return SL_OK;
    case E_CONCAT:
        return concat(x, n, out);
    default:
        return text_tx_fail(x, SL_INTERNAL, "no expression");
    }
}

sl_status text_tx_eval(struct tx *x, const struct tn *n, struct tv *out)
{
    SL_TRY(text_tx_cost(x, 1));
    if (++x->depth > TMPL_MAX_STACK) return text_tx_fail(x, SL_LIMIT, "nested too deep");
    x->line = n->line;
    sl_status st = eval(x, n, out);
    x->depth--;
    return st;
}
