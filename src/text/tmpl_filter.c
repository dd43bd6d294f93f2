/* SPDX-License-Identifier: Apache-2.0 */
/* Filters: `x | name(...)`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_internal.h"
#include "text/utf8.h"

typedef sl_status filter_fn(struct tx *x, const struct tcall *c, struct tv *out);

static bool flag(const struct tcall *c, int i, bool def)
{
    const struct tv *v = text_tc_arg(c, i);
    return v ? text_tv_true(*v) : def;
}

static sl_status as_str(struct tx *x, struct tv v, const struct ts **out)
{
    struct tv s;
    SL_TRY(text_tv_str(x, v, &s));
    *out = s.s;
    return SL_OK;
}

static sl_status arg_str(struct tx *x, const struct tcall *c, int i, const struct ts **out)
{
    const struct tv *v = text_tc_arg(c, i);
    *out = NULL;
    return v && v->kind != TV_NONE ? as_str(x, *v, out) : SL_OK;
}

static sl_status arg_int(struct tx *x, const struct tcall *c, int i, int64_t def, int64_t *out)
{
    const struct tv *v = text_tc_arg(c, i);
    *out = def;
    if (!v || v->kind == TV_NONE) return SL_OK;
    if (v->kind != TV_INT && v->kind != TV_BOOL)
        return text_tx_fail(x, SL_REQUEST, "a filter wants an integer, not %s", text_tv_kind(*v));
    *out = v->kind == TV_INT ? v->i : v->b;
    return SL_OK;
}

/* ---- attributes "a.b.0" ---- */

static sl_status attr_of(struct tx *x, struct tv v, struct tv path, struct tv *out)
{
    if (path.kind != TV_STR) return text_tx_item(x, v, path, out);
    const struct ts *s = path.s;
    *out = v;
    for (size_t i = 0; i <= s->n;) {
        size_t end = i;
        bool digits = true;
        int64_t num = 0;
        for (; end < s->n && s->p[end] != '.'; end++) {
            digits = digits && s->p[end] >= '0' && s->p[end] <= '9' && num < 1000000;
            num = digits ? num * 10 + (s->p[end] - '0') : 0;
        }
        struct tv key;
        if (digits && end > i) {
            key = text_tv_int(num);
        } else { /* a copy that ends in NUL: undefined values keep the name */
            void *mem = NULL;
            SL_TRY(text_tx_mem(x, end - i + 1, 1, &mem));
            memcpy(mem, s->p + i, end - i);
            SL_TRY(text_ts_new(x, mem, end - i, false, &key));
        }
        SL_TRY(text_tx_item(x, *out, key, out));
        i = end + 1;
    }
    return SL_OK;
}

/* What a filter with attribute= and case_sensitive= compares. */
static sl_status key_of(struct tx *x, struct tv v, const struct tv *attr, bool fold, struct tv *out)
{
    *out = v;
    if (attr && attr->kind != TV_NONE) SL_TRY(attr_of(x, v, *attr, out));
    if (fold && out->kind == TV_STR) return text_ts_case(x, out->s, CASE_LOWER, out);
    return SL_OK;
}

/* ---- text ---- */

static sl_status f_case(struct tx *x, const struct tcall *c, enum tcase how, struct tv *out)
{
    const struct ts *s;
    SL_TRY(as_str(x, c->in, &s));
    return text_ts_case(x, s, how, out);
}
static sl_status f_upper(struct tx *x, const struct tcall *c, struct tv *out)
{
    return f_case(x, c, CASE_UPPER, out);
}
static sl_status f_lower(struct tx *x, const struct tcall *c, struct tv *out)
{
    return f_case(x, c, CASE_LOWER, out);
}
static sl_status f_title(struct tx *x, const struct tcall *c, struct tv *out)
{
    return f_case(x, c, CASE_JINJA_TITLE, out);
}
static sl_status f_capitalize(struct tx *x, const struct tcall *c, struct tv *out)
{
    return f_case(x, c, CASE_CAPITAL, out);
}

static sl_status f_trim(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct ts *s, *chars;
    SL_TRY(as_str(x, c->in, &s));
    SL_TRY(arg_str(x, c, 0, &chars));
    return text_ts_strip(x, s, chars, 3, out);
}

static sl_status f_replace(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct ts *s, *old, *by;
    int64_t count;
    SL_TRY(as_str(x, c->in, &s));
    SL_TRY(arg_str(x, c, 0, &old));
    SL_TRY(arg_str(x, c, 1, &by));
    SL_TRY(arg_int(x, c, 2, -1, &count));
    if (!old || !by) return text_tx_fail(x, SL_REQUEST, "replace without its texts");
    return text_ts_replace(x, s, old, by, count, out);
}

static sl_status f_string(struct tx *x, const struct tcall *c, struct tv *out)
{
    return text_tv_str(x, c->in, out);
}

static sl_status f_safe(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tv s;
    SL_TRY(text_tv_str(x, c->in, &s));
    *out = s;
    return text_ts_mark(x, out);
}

static sl_status f_indent(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct tv *width = text_tc_arg(c, 0);
    const struct ts *s;
    struct ts pad = {0};
    struct tv lines;
    struct tb with_end = {0}, b = {0}, spaces = {0};
    bool first = flag(c, 1, false), blank = flag(c, 2, false);
    int64_t n = 4;
    SL_TRY(as_str(x, c->in, &s));
    if (s->markup)
        return text_tx_fail(x, SL_REQUEST, "indent of text from `safe` is not supported");
    if (width && width->kind == TV_STR) {
        pad = *width->s;
    } else {
        SL_TRY(arg_int(x, c, 0, 4, &n));
        if (n > 10000) return text_tx_fail(x, SL_LIMIT, "indent by %lld", (long long)n);
        for (int64_t i = 0; i < n; i++)
            SL_TRY(text_tb_put(x, &spaces, " ", 1, false));
        pad.p = spaces.p ? spaces.p : "";
        pad.n = spaces.n;
    }
    SL_TRY(text_tb_ts(x, &with_end, s, 0, s->n));
    SL_TRY(text_tb_put(x, &with_end, "\n", 1, false));
    struct tv whole;
    SL_TRY(text_tb_done(x, &with_end, &whole));
    SL_TRY(text_ts_lines(x, whole.s, false, &lines));
    for (size_t i = 0; i < lines.l->n; i++) {
        const struct ts *l = lines.l->v[i].s;
        if (i > 0) SL_TRY(text_tb_put(x, &b, "\n", 1, false));
        if (i == 0 ? first : blank || l->n > 0) SL_TRY(text_tb_ts(x, &b, &pad, 0, pad.n));
        SL_TRY(text_tb_ts(x, &b, l, 0, l->n));
    }
    return text_tb_done(x, &b, out);
}

static sl_status f_join(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct tv *attr = text_tc_arg(c, 1);
    const struct ts *sep = NULL;
    static const struct ts none = {.p = ""};
    struct tl *l = NULL;
    SL_TRY(arg_str(x, c, 0, &sep));
    SL_TRY(text_tv_list(x, c->in, &l));
    if (attr && attr->kind != TV_NONE) {
        struct tv mapped, v;
        SL_TRY(text_tl_new(x, l->n, &mapped));
        for (size_t i = 0; i < l->n; i++) {
            SL_TRY(attr_of(x, l->v[i], *attr, &v));
            SL_TRY(text_tl_put(x, mapped.l, v));
        }
        l = mapped.l;
    }
    return text_ts_join(x, sep ? sep : &none, l, false, out);
}

static sl_status f_tojson(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct tv *sep = text_tc_arg(c, 2);
    struct tjson_opts o = {.ascii = flag(c, 0, false), .sort = flag(c, 3, false)};
    int64_t indent;
    SL_TRY(arg_int(x, c, 1, -1, &indent));
    if (indent > 64) return text_tx_fail(x, SL_LIMIT, "tojson with indent %lld", (long long)indent);
    const struct tv *given = text_tc_arg(c, 1);
    o.indent = given && given->kind != TV_NONE ? (int)BASE_MAX(indent, 0) : -1;
    if (sep && sep->kind != TV_NONE) {
        if (sep->kind != TV_LIST || sep->l->n != 2 || sep->l->v[0].kind != TV_STR ||
            sep->l->v[1].kind != TV_STR)
            return text_tx_fail(x, SL_REQUEST, "tojson: separators are no pair of strings");
        o.item_sep = sep->l->v[0].s;
        o.key_sep = sep->l->v[1].s;
    }
    return text_tv_tojson(x, c->in, &o, out);
}

/* Text of the user's that holds JSON, such as a call's arguments, to what it says; llama.cpp's
 * filter. */
static sl_status f_from_json(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct json *j = NULL;
    sl_err why = {0};
    if (c->in.kind != TV_STR)
        return text_tx_fail(x, SL_REQUEST, "from_json of %s", text_tv_kind(c->in));
    SL_TRY(text_tx_cost(x, c->in.s->n / 2 + 1)); /* the tree's memory */
    sl_status st = text_json_parse(x->a, "from_json", c->in.s->p, c->in.s->n, &j, &why);
    if (st == SL_NOMEM) return text_tx_fail(x, st, "from_json: out of memory");
    if (st) return text_tx_fail(x, SL_REQUEST, "%s", why.text);
    return text_tv_json(x, j, out);
}

/* ---- numbers ---- */

static bool number(struct tv v, double *f)
{
    if (v.kind != TV_INT && v.kind != TV_REAL && v.kind != TV_BOOL) return false;
    *f = v.kind == TV_REAL ? v.f : v.kind == TV_INT ? (double)v.i : v.b;
    return true;
}

static sl_status f_abs(struct tx *x, const struct tcall *c, struct tv *out)
{
    double f;
    if (!number(c->in, &f) || (c->in.kind == TV_INT && c->in.i == INT64_MIN))
        return text_tx_fail(x, SL_REQUEST, "abs of %s", text_tv_kind(c->in));
    *out = c->in.kind == TV_REAL ? (struct tv){.kind = TV_REAL, .f = fabs(f)}
                                 : text_tv_int(c->in.kind == TV_INT ? llabs(c->in.i) : c->in.b);
    return SL_OK;
}

static sl_status f_round(struct tx *x, const struct tcall *c, struct tv *out)
{
    double f;
    int64_t digits;
    char buf[400];
    SL_TRY(arg_int(x, c, 0, 0, &digits));
    if (!number(c->in, &f) || digits < 0 || digits > 15 || text_tc_arg(c, 1))
        return text_tx_fail(x, SL_REQUEST, "round of %s in this way", text_tv_kind(c->in));
    if (c->in.kind != TV_REAL) {
        *out = c->in;
        return SL_OK;
    }
    snprintf(buf, sizeof buf, "%.*f", (int)digits, f);
    *out = (struct tv){.kind = TV_REAL, .f = strtod(buf, NULL)};
    return SL_OK;
}

/* Decimal text as Python's int() and float() take it: stripped; false when it is none. */
static bool parse_number(const struct ts *s, bool real, double *f, int64_t *i)
{
    char buf[64];
    size_t a = 0, b = s->n, k = 0, digits = 0;
    while (a < b && strchr(" \t\n\r\f\v", s->p[a]))
        a++;
    while (b > a && strchr(" \t\n\r\f\v", s->p[b - 1]))
        b--;
    if (b - a == 0 || b - a >= sizeof buf) return false;
    for (size_t j = a; j < b; j++) {
        char ch = s->p[j];
        bool digit = ch >= '0' && ch <= '9';
        if (!digit && !(j == a && (ch == '-' || ch == '+')) &&
            !(real && (ch == '.' || ch == 'e' || ch == 'E' || ch == '-' || ch == '+')))
            return false;
        digits += digit;
        buf[k++] = ch;
    }
    buf[k] = 0;
    if (digits == 0) return false;
    char *end = NULL;
    if (real) {
        *f = strtod(buf, &end);
        return *end == 0 && isfinite(*f);
    }
    if (digits > 18) return false;
    *i = strtoll(buf, &end, 10);
    return *end == 0;
}

static sl_status f_int(struct tx *x, const struct tcall *c, struct tv *out)
{
    double f = 0;
    int64_t i = 0;
    const struct tv *def = text_tc_arg(c, 0), *base = text_tc_arg(c, 1);
    if (base && !(base->kind == TV_INT && base->i == 10))
        return text_tx_fail(x, SL_REQUEST, "int with another base than 10");
    bool ok = number(c->in, &f);
    if (c->in.kind == TV_INT || c->in.kind == TV_BOOL)
        i = c->in.kind == TV_INT ? c->in.i : c->in.b;
    else if (c->in.kind == TV_STR && parse_number(c->in.s, false, &f, &i))
        ok = true;
    else if (ok || (c->in.kind == TV_STR && (ok = parse_number(c->in.s, true, &f, &i)))) {
        if (fabs(f) > 9e18) return text_tx_fail(x, SL_LIMIT, "int of a number over 64 bits");
        i = (int64_t)f;
    }
    *out = ok ? text_tv_int(i) : def ? *def : text_tv_int(0);
    return SL_OK;
}

static sl_status f_float(struct tx *x, const struct tcall *c, struct tv *out)
{
    double f = 0;
    int64_t i;
    const struct tv *def = text_tc_arg(c, 0);
    bool ok = number(c->in, &f) || (c->in.kind == TV_STR && parse_number(c->in.s, true, &f, &i));
    SL_TRY(text_tx_cost(x, 1));
    *out = ok || !def ? (struct tv){.kind = TV_REAL, .f = ok ? f : 0} : *def;
    return SL_OK;
}

/* ---- lists ---- */

static sl_status f_length(struct tx *x, const struct tcall *c, struct tv *out)
{
    switch (c->in.kind) {
    case TV_UNDEF:
        *out = text_tv_int(0);
        return SL_OK;
    case TV_STR:
        SL_TRY(text_tx_cost(x, c->in.s->n / 16));
        *out = text_tv_int((int64_t)text_utf8_count(c->in.s->p, c->in.s->n));
        return SL_OK;
    case TV_DICT:
        *out = text_tv_int((int64_t)c->in.d->n);
        return SL_OK;
    case TV_LIST:
        *out = text_tv_int((int64_t)c->in.l->n);
        if (!c->in.l->gen) return SL_OK;
        return text_tx_fail(x, SL_REQUEST, "a generator has no length: put `| list` before it");
    default:
        return text_tx_fail(x, SL_REQUEST, "%s has no length", text_tv_kind(c->in));
    }
}

static sl_status copy_list(struct tx *x, struct tv in, bool gen, bool reversed, struct tv *out)
{
    struct tl *l = NULL;
    SL_TRY(text_tv_list(x, in, &l));
    SL_TRY(text_tl_new(x, l->n, out));
    for (size_t i = 0; i < l->n; i++)
        SL_TRY(text_tl_put(x, out->l, l->v[reversed ? l->n - 1 - i : i]));
    out->l->gen = gen;
    return SL_OK;
}

static sl_status f_list(struct tx *x, const struct tcall *c, struct tv *out)
{
    return copy_list(x, c->in, false, false, out);
}

static sl_status f_reverse(struct tx *x, const struct tcall *c, struct tv *out)
{
    SL_TRY(copy_list(x, c->in, true, true, out));
    static const struct ts none = {.p = ""};
    return c->in.kind == TV_STR ? text_ts_join(x, &none, out->l, true, out) : SL_OK;
}

static sl_status f_first(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tl *l = NULL;
    bool gen = c->in.kind == TV_LIST && c->in.l->gen && !c->in.l->torn;
    if (gen)
        l = c->in.l;
    else
        SL_TRY(text_tv_list(x, c->in, &l));
    *out = l->n ? l->v[0] : text_tv_undef("the first item of nothing");
    if (gen && l->n) text_tl_drop(l, 1); /* the others are left */
    return SL_OK;
}

static sl_status f_last(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tl *l = NULL;
    if (c->in.kind == TV_LIST && c->in.l->gen)
        return text_tx_fail(x, SL_REQUEST, "a generator has no last item: put `| list` before it");
    SL_TRY(text_tv_list(x, c->in, &l));
    *out = l->n ? l->v[l->n - 1] : text_tv_undef("the last item of nothing");
    return SL_OK;
}

static sl_status f_default(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct tv *def = text_tc_arg(c, 0);
    *out = c->in;
    if (c->in.kind != TV_UNDEF && !(flag(c, 1, false) && !text_tv_true(c->in))) return SL_OK;
    if (!def) return text_ts_new(x, "", 0, false, out);
    *out = *def;
    return SL_OK;
}

static sl_status pairs(struct tx *x, const struct td *d, struct tv *out)
{
    struct tmethod m = {{.kind = TV_DICT, .d = (struct td *)(uintptr_t)d}, "items"};
    struct tcall none = {.params = ""};
    return text_tx_method(x, &m, &none, out);
}

static sl_status f_items(struct tx *x, const struct tcall *c, struct tv *out)
{
    if (c->in.kind != TV_DICT && c->in.kind != TV_UNDEF)
        return text_tx_fail(x, SL_REQUEST, "items of %s", text_tv_kind(c->in));
    if (c->in.kind == TV_DICT)
        SL_TRY(pairs(x, c->in.d, out));
    else
        SL_TRY(text_tl_new(x, 0, out));
    out->l->gen = true;
    return SL_OK;
}

/* Merge sort of v[0..n) by key[0..n), stable. */
static sl_status sort(struct tx *x, struct tv *v, struct tv *key, size_t n, bool reverse)
{
    void *mem = NULL;
    SL_TRY(text_tx_mem(x, n * 2 + 1, sizeof *v, &mem));
    struct tv *v2 = mem, *k2 = v2 + n;
    for (size_t w = 1; w < n; w *= 2) {
        for (size_t at = 0; at < n; at += 2 * w) {
            size_t a = at, a_end = BASE_MIN(at + w, n), b = a_end, b_end = BASE_MIN(at + 2 * w, n);
            for (size_t o = at; o < b_end; o++) {
                int c = 0;
                if (a < a_end && b < b_end) SL_TRY(text_tv_less(x, key[b], key[a], 0, &c));
                bool take_b = a == a_end || (b < b_end && (reverse ? c > 0 : c < 0));
                size_t from = take_b ? b++ : a++;
                v2[o] = v[from];
                k2[o] = key[from];
            }
        }
        memcpy(v, v2, n * sizeof *v);
        memcpy(key, k2, n * sizeof *key);
    }
    return SL_OK;
}

static sl_status sorted(struct tx *x, struct tv list, const struct tv *attr, bool fold,
                        bool reverse, struct tv *out)
{
    void *mem = NULL;
    SL_TRY(copy_list(x, list, false, false, out));
    size_t n = out->l->n;
    SL_TRY(text_tx_mem(x, n + 1, sizeof(struct tv), &mem));
    struct tv *key = mem;
    for (size_t i = 0; i < n; i++)
        SL_TRY(key_of(x, out->l->v[i], attr, fold, &key[i]));
    return sort(x, out->l->v, key, n, reverse);
}

static sl_status f_sort(struct tx *x, const struct tcall *c, struct tv *out)
{
    return sorted(x, c->in, text_tc_arg(c, 2), !flag(c, 1, false), flag(c, 0, false), out);
}

static sl_status f_dictsort(struct tx *x, const struct tcall *c, struct tv *out)
{
    const struct tv *by = text_tc_arg(c, 1);
    struct tv index = text_tv_int(by && by->kind == TV_STR && text_ts_is(by->s, "value") ? 1 : 0),
              all;
    if (c->in.kind != TV_DICT)
        return text_tx_fail(x, SL_REQUEST, "dictsort of %s", text_tv_kind(c->in));
    SL_TRY(pairs(x, c->in.d, &all));
    return sorted(x, all, &index, !flag(c, 0, false), flag(c, 2, false), out);
}

static sl_status f_unique(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tl *l = NULL;
    struct tv keys, k;
    SL_TRY(text_tv_list(x, c->in, &l));
    SL_TRY(text_tl_new(x, 0, out));
    SL_TRY(text_tl_new(x, 0, &keys));
    for (size_t i = 0; i < l->n; i++) {
        bool seen;
        SL_TRY(key_of(x, l->v[i], text_tc_arg(c, 1), !flag(c, 0, false), &k));
        SL_TRY(text_tv_in(x, k, keys, &seen));
        if (seen) continue;
        SL_TRY(text_tl_put(x, keys.l, k));
        SL_TRY(text_tl_put(x, out->l, l->v[i]));
    }
    out->l->gen = true;
    return SL_OK;
}

static sl_status extreme(struct tx *x, const struct tcall *c, int sign, struct tv *out)
{
    struct tl *l = NULL;
    struct tv best = {0}, k;
    SL_TRY(text_tv_list(x, c->in, &l));
    *out = text_tv_undef("the extreme item of nothing");
    for (size_t i = 0; i < l->n; i++) {
        int cmp = -1;
        SL_TRY(key_of(x, l->v[i], text_tc_arg(c, 1), !flag(c, 0, false), &k));
        if (i > 0)
            SL_TRY(text_tv_less(x, k, best, 0, &cmp));
        else
            cmp = sign;
        if (cmp != sign) continue;
        best = k;
        *out = l->v[i];
    }
    return SL_OK;
}
static sl_status f_min(struct tx *x, const struct tcall *c, struct tv *out)
{
    return extreme(x, c, -1, out);
}
static sl_status f_max(struct tx *x, const struct tcall *c, struct tv *out)
{
    return extreme(x, c, 1, out);
}

static sl_status f_sum(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tl *l = NULL;
    struct tv k;
    double f, total = 0;
    int64_t whole = 0;
    bool real = false;
    SL_TRY(text_tv_list(x, c->in, &l));
    for (size_t i = 0; i < l->n; i++) {
        SL_TRY(key_of(x, l->v[i], text_tc_arg(c, 0), false, &k));
        if (!number(k, &f)) return text_tx_fail(x, SL_REQUEST, "sum of %s", text_tv_kind(k));
        real |= k.kind == TV_REAL;
        total += f;
        if (k.kind != TV_REAL &&
            __builtin_add_overflow(whole, k.kind == TV_INT ? k.i : k.b, &whole))
            return text_tx_fail(x, SL_LIMIT, "sum over 64 bits");
    }
    *out = real ? (struct tv){.kind = TV_REAL, .f = total} : text_tv_int(whole);
    return SL_OK;
}

/* ---- map, select, reject and their attr forms ---- */

/* The call of the filter or test that argument i names, with what is after it as its arguments. */
static struct tcall inner(const struct tcall *c, int i)
{
    struct tcall in = {.arg = c->arg + i + 1, .n_arg = BASE_MAX(c->n_arg - i - 1, 0), .params = ""};
    return in;
}

/* Jinja's map and select take whatever is false for an empty list. */
static sl_status some_list(struct tx *x, struct tv v, struct tl **out)
{
    return text_tv_list(x, text_tv_true(v) ? v : text_tv_undef("nothing"), out);
}

static sl_status f_map(struct tx *x, const struct tcall *c, struct tv *out)
{
    struct tl *l = NULL;
    const struct tv *attr = NULL, *def = NULL;
    const char *name;
    int f = -1, n_min;
    for (int k = 0; k < c->n_kw; k++) {
        if (strcmp(c->kw[k].name, "attribute") == 0)
            attr = &c->kw[k].v;
        else
            def = &c->kw[k].v;
    }
    if (!attr && (c->n_arg < 1 || c->arg[0].kind != TV_STR ||
                  (f = text_filter_find(c->arg[0].s->p, c->arg[0].s->n)) < 0))
        return text_tx_fail(x, SL_REQUEST, "map without a filter or an attribute");
    SL_TRY(some_list(x, c->in, &l));
    SL_TRY(text_tl_new(x, l->n, out));
    for (size_t i = 0; i < l->n; i++) {
        struct tv v;
        if (attr) {
            SL_TRY(attr_of(x, l->v[i], *attr, &v));
            if (v.kind == TV_UNDEF && def) v = *def;
        } else {
            struct tcall in = inner(c, 0);
            in.in = l->v[i];
            text_filter_info(f, &name, &in.params, &n_min);
            if (in.n_arg < n_min)
                return text_tx_fail(x, SL_REQUEST, "map: %s with too few arguments", name);
            if (++x->depth > TMPL_MAX_STACK) return text_tx_fail(x, SL_LIMIT, "nested too deep");
            SL_TRY(text_filter_run(x, f, &in, &v));
            x->depth--;
        }
        SL_TRY(text_tl_put(x, out->l, v));
    }
    out->l->gen = true;
    return SL_OK;
}

static sl_status choose(struct tx *x, const struct tcall *c, bool want, bool by_attr,
                        struct tv *out)
{
    struct tl *l = NULL;
    int at = by_attr ? 1 : 0, t = -1;
    if (c->n_arg > at &&
        (c->arg[at].kind != TV_STR || (t = text_test_find(c->arg[at].s->p, c->arg[at].s->n)) < 0))
        return text_tx_fail(x, SL_REQUEST, "select or reject with an unknown test");
    SL_TRY(some_list(x, c->in, &l));
    SL_TRY(text_tl_new(x, 0, out));
    for (size_t i = 0; i < l->n; i++) {
        struct tv v = l->v[i];
        bool yes;
        SL_TRY(text_tx_cost(x, 1));
        if (by_attr) SL_TRY(attr_of(x, v, c->arg[0], &v));
        yes = text_tv_true(v);
        if (t >= 0) {
            struct tcall in = inner(c, at);
            const char *name;
            int n_min;
            in.in = v;
            text_test_info(t, &name, &in.params, &n_min);
            SL_TRY(text_test_run(x, t, &in, &yes));
        }
        if (yes == want) SL_TRY(text_tl_put(x, out->l, l->v[i]));
    }
    out->l->gen = true;
    return SL_OK;
}
static sl_status f_select(struct tx *x, const struct tcall *c, struct tv *out)
{
    return choose(x, c, true, false, out);
}
static sl_status f_reject(struct tx *x, const struct tcall *c, struct tv *out)
{
    return choose(x, c, false, false, out);
}
static sl_status f_selectattr(struct tx *x, const struct tcall *c, struct tv *out)
{
    return choose(x, c, true, true, out);
}
static sl_status f_rejectattr(struct tx *x, const struct tcall *c, struct tv *out)
{
    return choose(x, c, false, true, out);
}

static const struct {
    const char *name, *params;
    int n_min;
    filter_fn *fn;
} filters[] = {
    {"abs", "", 0, f_abs},
    {"capitalize", "", 0, f_capitalize},
    {"count", "", 0, f_length},
    {"d", "default_value boolean", 0, f_default},
    {"default", "default_value boolean", 0, f_default},
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort},
    {"first", "", 0, f_first},
    {"float", "default", 0, f_float},
    {"from_json", "", 0, f_from_json},
    {"indent", "width first blank", 0, f_indent},
    {"int", "default base", 0, f_int},
    {"items", "", 0, f_items},
    {"join", "d attribute", 0, f_join},
    {"last", "", 0, f_last},
    {"length", "", 0, f_length},
    {"list", "", 0, f_list},
    {"lower", "", 0, f_lower},
    {"map", "attribute default b c", 1, f_map},
    {"max", "case_sensitive attribute", 0, f_max},
    {"min", "case_sensitive attribute", 0, f_min},
    {"reject", "test a b c", 0, f_reject},
    {"rejectattr", "attribute test a b", 1, f_rejectattr},
    {"replace", "old new count", 2, f_replace},
    {"reverse", "", 0, f_reverse},
    {"round", "precision method", 0, f_round},
    {"safe", "", 0, f_safe},
    {"select", "test a b c", 0, f_select},
    {"selectattr", "attribute test a b", 1, f_selectattr},
    {"sort", "reverse case_sensitive attribute", 0, f_sort},
    {"string", "", 0, f_string},
    {"sum", "attribute", 0, f_sum},
    {"title", "", 0, f_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, f_tojson},
    {"trim", "chars", 0, f_trim},
    {"unique", "case_sensitive attribute", 0, f_unique},
    {"upper", "", 0, f_upper},
};

int text_filter_find(const char *name, size_t n)
{
    for (int i = 0; i < BASE_COUNT_OF(filters); i++)
        if (strlen(filters[i].name) == n && memcmp(filters[i].name, name, n) == 0) return i;
    return -1;
}

void text_filter_info(int i, const char **name, const char **params, int *n_min)
{
    *name = filters[i].name;
    *params = filters[i].params;
    *n_min = filters[i].n_min;
}

sl_status text_filter_run(struct tx *x, int i, const struct tcall *c, struct tv *out)
{
    SL_TRY(text_tx_cost(x, 1));
    if ((filters[i].fn == f_selectattr || filters[i].fn == f_rejectattr) && c->n_arg < 1)
        return text_tx_fail(x, SL_REQUEST, "%s without an attribute", filters[i].name);
    return filters[i].fn(x, c, out);
}
