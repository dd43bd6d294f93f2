/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of strings, dictionaries and lists. Those that would change data are refused when they
 * are called, as Jinja's sandbox does. */
#include <string.h>

#include "text/keys.h"
#include "text/tmpl_internal.h"
#include "text/uni.h"
#include "text/utf8.h"

enum method {
    M_STRIP,
    M_LSTRIP,
    M_RSTRIP,
    M_SPLIT,
    M_RSPLIT,
    M_SPLITLINES,
    M_STARTSWITH,
    M_ENDSWITH,
    M_REPLACE,
    M_UPPER,
    M_LOWER,
    M_TITLE,
    M_CAPITALIZE,
    M_FIND,
    M_RFIND,
    M_COUNT,
    M_JOIN,
    M_ISDIGIT,
    M_ISALPHA,
    M_ISALNUM,
    M_ISSPACE,
    M_ISUPPER,
    M_ISLOWER,
    M_REMOVEPREFIX,
    M_REMOVESUFFIX,
    M_PARTITION,
    M_FORMAT,
    M_GET,
    M_ITEMS,
    M_KEYS,
    M_VALUES,
    M_COPY,
    M_MUTATES,
    M_CYCLE,
};

/* on: s string, d dictionary, l list, t tuple or range, o loop */
static const struct {
    const char *name, *on, *params;
    int n_min;
    enum method m;
} methods[] = {
    {"strip", "s", "chars", 0, M_STRIP},
    {"lstrip", "s", "chars", 0, M_LSTRIP},
    {"rstrip", "s", "chars", 0, M_RSTRIP},
    {"split", "s", "sep maxsplit", 0, M_SPLIT},
    {"rsplit", "s", "sep maxsplit", 0, M_RSPLIT},
    {"splitlines", "s", "keepends", 0, M_SPLITLINES},
    {"startswith", "s", "prefix", 1, M_STARTSWITH},
    {"endswith", "s", "suffix", 1, M_ENDSWITH},
    {"replace", "s", "old new count", 2, M_REPLACE},
    {"upper", "s", "", 0, M_UPPER},
    {"lower", "s", "", 0, M_LOWER},
    {"title", "s", "", 0, M_TITLE},
    {"capitalize", "s", "", 0, M_CAPITALIZE},
    {"find", "s", "sub", 1, M_FIND},
    {"rfind", "s", "sub", 1, M_RFIND},
    {"count", "slt", "sub", 1, M_COUNT},
    {"join", "s", "iterable", 1, M_JOIN},
    {"isdigit", "s", "", 0, M_ISDIGIT},
    {"isalpha", "s", "", 0, M_ISALPHA},
    {"isalnum", "s", "", 0, M_ISALNUM},
    {"isspace", "s", "", 0, M_ISSPACE},
    {"isupper", "s", "", 0, M_ISUPPER},
    {"islower", "s", "", 0, M_ISLOWER},
    {"removeprefix", "s", "prefix", 1, M_REMOVEPREFIX},
    {"removesuffix", "s", "suffix", 1, M_REMOVESUFFIX},
    {"partition", "s", "sep", 1, M_PARTITION},
    {"format", "s", NULL, 0, M_FORMAT},
    {"get", "d", "key default", 1, M_GET},
    {"items", "d", "", 0, M_ITEMS},
    {"keys", "d", "", 0, M_KEYS},
    {"values", "d", "", 0, M_VALUES},
    {"copy", "dl", "", 0, M_COPY},
    {"append", "l", NULL, 0, M_MUTATES},
    {"extend", "l", NULL, 0, M_MUTATES},
    {"insert", "l", NULL, 0, M_MUTATES},
    {"remove", "l", NULL, 0, M_MUTATES},
    {"reverse", "l", NULL, 0, M_MUTATES},
    {"sort", "l", NULL, 0, M_MUTATES},
    {"pop", "ld", NULL, 0, M_MUTATES},
    {"clear", "ld", NULL, 0, M_MUTATES},
    {"update", "d", NULL, 0, M_MUTATES},
    {"setdefault", "d", NULL, 0, M_MUTATES},
    {"popitem", "d", NULL, 0, M_MUTATES},
    {"cycle", "o", NULL, 0, M_CYCLE},
    {"changed", "o", NULL, 0, M_CYCLE},
};

bool text_method_known(const char *name, size_t n)
{
    for (int i = 0; i < BASE_COUNT_OF(methods); i++)
        if (strlen(methods[i].name) == n && memcmp(methods[i].name, name, n) == 0) return true;
    return false;
}

static char class_of(struct tv o)
{
    switch (o.kind) {
    case TV_STR:
        return 's';
    case TV_DICT:
        return 'd';
    case TV_LIST:
        if (o.l->gen || o.l->form == TL_VIEW) return 'v';
        return o.l->form == TL_RANGE ? 'r' : o.l->tuple ? 't' : 'l';
    case TV_LOOP:
        return 'o';
    default:
        return 0;
    }
}

static int find(struct tv o, const char *name)
{
    char on = class_of(o);
    if (on == 'r') on = 't';
    for (int i = 0; on && i < BASE_COUNT_OF(methods); i++)
        if (strchr(methods[i].on, on) && strcmp(methods[i].name, name) == 0) return i;
    return -1;
}

bool text_method_of(struct tv o, const char *name)
{
    return find(o, name) >= 0;
}

bool text_method_mutates(const struct tmethod *m)
{
    int i = find(m->self, m->name);
    return i >= 0 && methods[i].m == M_MUTATES;
}

bool text_method_missing(struct tv o, const char *name)
{
    static const char number[] = "real|imag|conjugate|as_integer_ratio|is_integer",
                      macro[] = "arguments|catch_kwargs|catch_varargs|caller|explicit_caller";
    static const struct {
        char on;
        const char *names;
    } row[] = {{'s', "casefold|center|encode|expandtabs|format_map|index|isascii|isdecimal|"
                     "isidentifier|isnumeric|isprintable|istitle|ljust|maketrans|rindex|rjust|"
                     "rpartition|swapcase|translate|zfill"},
               {'l', "index"},
               {'t', "index"},
               {'r', "index|start|stop|step"},
               {'v', "isdisjoint|mapping|send|throw|close|gi_code|gi_frame|gi_running"}};
    const char *names = o.kind == TV_MACRO                                           ? macro
                        : o.kind == TV_INT || o.kind == TV_BOOL || o.kind == TV_REAL ? number
                                                                                     : "";
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (row[i].on == class_of(o)) names = row[i].names;
    if ((o.kind == TV_INT || o.kind == TV_BOOL) && strstr(name, "bit_") == name) return true;
    return text_key_fits(names, name);
}

static sl_status need_str(struct tx *x, const struct tcall *c, int i, const struct ts **out)
{
    const struct tv *v = text_tc_arg(c, i);
    if (!v || v->kind != TV_STR)
        return text_tx_fail(x, SL_REQUEST, "a method of a string wants a string, not %s",
                            v ? text_tv_kind(*v) : "nothing");
    *out = v->s;
    return SL_OK;
}

/* An argument that may be missing or none. */
static sl_status maybe_str(struct tx *x, const struct tcall *c, int i, const struct ts **out)
{
    const struct tv *v = text_tc_arg(c, i);
    *out = NULL;
    return v && v->kind != TV_NONE ? need_str(x, c, i, out) : SL_OK;
}

static sl_status maybe_int(struct tx *x, const struct tcall *c, int i, int64_t def, int64_t *out)
{
    const struct tv *v = text_tc_arg(c, i);
    *out = def;
    if (!v) return SL_OK;
    if (v->kind != TV_INT && v->kind != TV_BOOL)
        return text_tx_fail(x, SL_REQUEST, "a method wants an integer, not %s", text_tv_kind(*v));
    *out = v->kind == TV_INT ? v->i : v->b;
    return SL_OK;
}

static sl_status put_sub(struct tx *x, struct tl *l, const struct ts *s, size_t from, size_t to)
{
    struct tv v;
    SL_TRY(text_ts_sub(x, s, from, to - from, &v));
    return text_tl_put(x, l, v);
}

/* split() without a separator: at white space, nothing empty. */
static sl_status split_white(struct tx *x, const struct ts *s, int64_t max, struct tl *l)
{
    size_t i = 0;
    for (;;) {
        uint32_t cp;
        int k = 0;
        while (i < s->n && (k = text_utf8_decode(s->p + i, s->n - i, &cp)) > 0 &&
               text_uni_space(cp))
            i += (size_t)k;
        if (i >= s->n) return SL_OK;
        size_t from = i;
        if (max >= 0 && (int64_t)l->n == max) {
            struct tv rest;
            struct ts tail = *s;
            tail.p += from;
            tail.n -= from;
            if (tail.mask) tail.mask += from;
            SL_TRY(text_ts_strip(x, &tail, NULL, 2, &rest));
            return text_tl_put(x, l, rest);
        }
        while (i < s->n && (k = text_utf8_decode(s->p + i, s->n - i, &cp)) > 0 &&
               !text_uni_space(cp))
            i += (size_t)k;
        if (k == 0) i = s->n;
        SL_TRY(put_sub(x, l, s, from, i));
    }
}

static sl_status split(struct tx *x, const struct ts *s, const struct tcall *c, bool from_right,
                       struct tv *out)
{
    const struct ts *sep = NULL;
    int64_t max;
    SL_TRY(maybe_str(x, c, 0, &sep));
    SL_TRY(maybe_int(x, c, 1, -1, &max));
    SL_TRY(text_tl_new(x, 0, out));
    SL_TRY(text_tx_cost(x, s->n / 8));
    if (!sep) {
        if (from_right && max >= 0)
            return text_tx_fail(x, SL_REQUEST,
                                "rsplit without a separator and with a limit is not supported");
        return split_white(x, s, max, out->l);
    }
    if (sep->n == 0) return text_tx_fail(x, SL_REQUEST, "split with an empty separator");
    size_t from = 0;
    if (from_right &&
        max >= 0) { /* how many separators there are: those before the last max stay */
        int64_t n = 0, skip;
        const char *p = s->p, *hit;
        for (; (hit = memmem(p, (size_t)(s->p + s->n - p), sep->p, sep->n)); p = hit + sep->n)
            n++;
        skip = BASE_MAX(n - max, 0);
        const char *keep = s->p;
        for (; skip > 0; skip--)
            keep =
                (const char *)memmem(keep, (size_t)(s->p + s->n - keep), sep->p, sep->n) + sep->n;
        size_t begin = (size_t)(keep - s->p);
        const char *next = begin <= s->n ? memmem(keep, s->n - begin, sep->p, sep->n) : NULL;
        size_t end = next ? (size_t)(next - s->p) : s->n;
        SL_TRY(put_sub(x, out->l, s, 0, end));
        if (!next) return SL_OK;
        from = end + sep->n;
        max = -1;
    }
    for (int64_t n = 0;; n++) {
        const char *hit =
            max >= 0 && n == max ? NULL : memmem(s->p + from, s->n - from, sep->p, sep->n);
        size_t end = hit ? (size_t)(hit - s->p) : s->n;
        SL_TRY(put_sub(x, out->l, s, from, end));
        if (!hit) return SL_OK;
        from = end + sep->n;
    }
}

static bool has_affix(const struct ts *s, const struct ts *a, bool prefix)
{
    return a->n <= s->n && memcmp(prefix ? s->p : s->p + s->n - a->n, a->p, a->n) == 0;
}

static sl_status affix(struct tx *x, const struct ts *s, const struct tcall *c, bool prefix,
                       struct tv *out)
{
    const struct tv *v = text_tc_arg(c, 0);
    bool yes = false;
    if (v && v->kind == TV_LIST && v->l->tuple) {
        for (size_t i = 0; i < v->l->n && !yes; i++) {
            if (v->l->v[i].kind != TV_STR)
                return text_tx_fail(x, SL_REQUEST, "startswith of %s", text_tv_kind(v->l->v[i]));
            yes = has_affix(s, v->l->v[i].s, prefix);
        }
    } else {
        const struct ts *a = NULL;
        SL_TRY(need_str(x, c, 0, &a));
        yes = has_affix(s, a, prefix);
    }
    *out = text_tv_bool(yes);
    return SL_OK;
}

static sl_status search(struct tx *x, const struct ts *s, const struct tcall *c, enum method m,
                        struct tv *out)
{
    const struct ts *sub = NULL;
    int64_t n = 0, last = -1, first = -1;
    SL_TRY(need_str(x, c, 0, &sub));
    SL_TRY(text_tx_cost(x, s->n / 8));
    if (sub->n == 0) {
        int64_t len = (int64_t)text_utf8_count(s->p, s->n);
        *out = text_tv_int(m == M_FIND ? 0 : m == M_RFIND ? len : len + 1);
        return SL_OK;
    }
    size_t step = m == M_COUNT ? sub->n : 1;
    for (size_t from = 0; from <= s->n;) {
        const char *hit = memmem(s->p + from, s->n - from, sub->p, sub->n);
        if (!hit) break;
        last = hit - s->p;
        if (first < 0) first = last;
        n++;
        if (m == M_FIND) break;
        SL_TRY(text_tx_cost(x, 1));
        from = (size_t)last + step;
    }
    int64_t at = m == M_FIND ? first : last;
    *out = text_tv_int(m == M_COUNT ? n : at < 0 ? -1 : (int64_t)text_utf8_count(s->p, (size_t)at));
    return SL_OK;
}

static sl_status classify(struct tx *x, const struct ts *s, enum method m, struct tv *out)
{
    bool all = s->n > 0, cased = false;
    SL_TRY(text_tx_cost(x, s->n / 4));
    for (size_t i = 0; i < s->n && all;) {
        uint32_t cp;
        int k = text_utf8_decode(s->p + i, s->n - i, &cp);
        if (k == 0) return text_tx_fail(x, SL_REQUEST, "text is not UTF-8");
        bool is_cased = text_uni_cased(cp), up = is_cased && text_uni_lower(cp) != cp,
             low = is_cased && !up;
        cased |= is_cased;
        if (m == M_ISDIGIT)
            all = text_uni_digit(cp);
        else if (m == M_ISALPHA)
            all = text_uni_alpha(cp);
        else if (m == M_ISALNUM)
            all = text_uni_alpha(cp) || text_uni_digit(cp);
        else if (m == M_ISSPACE)
            all = text_uni_space(cp);
        else
            all = m == M_ISUPPER ? !low : !up;
        i += (size_t)k;
    }
    *out = text_tv_bool(all && (cased || (m != M_ISUPPER && m != M_ISLOWER)));
    return SL_OK;
}

static sl_status partition(struct tx *x, const struct ts *s, const struct tcall *c, struct tv *out)
{
    const struct ts *sep = NULL;
    SL_TRY(need_str(x, c, 0, &sep));
    if (sep->n == 0) return text_tx_fail(x, SL_REQUEST, "partition with an empty separator");
    SL_TRY(text_tx_cost(x, s->n / 32));
    const char *hit = memmem(s->p, s->n, sep->p, sep->n);
    size_t a = hit ? (size_t)(hit - s->p) : s->n, b = hit ? a + sep->n : s->n;
    SL_TRY(text_tl_new(x, 3, out));
    out->l->tuple = true;
    SL_TRY(put_sub(x, out->l, s, 0, a));
    SL_TRY(put_sub(x, out->l, s, a, b));
    return put_sub(x, out->l, s, b, s->n);
}

/* "{} {0} {name} {{ }}"; conversions and format specifications are errors. */
static sl_status format(struct tx *x, const struct ts *s, const struct tcall *c, struct tv *out)
{
    struct tb b = {0};
    int next = 0;
    for (size_t i = 0; i < s->n; i++) {
        char ch = s->p[i];
        SL_TRY(text_tx_cost(x, 1));
        if ((ch == '{' || ch == '}') && i + 1 < s->n && s->p[i + 1] == ch) {
            SL_TRY(text_tb_ts(x, &b, s, i++, 1));
            continue;
        }
        if (ch != '{') {
            if (ch == '}') return text_tx_fail(x, SL_REQUEST, "format: a '}' alone");
            SL_TRY(text_tb_ts(x, &b, s, i, 1));
            continue;
        }
        const char *end = memchr(s->p + i, '}', s->n - i);
        if (!end) return text_tx_fail(x, SL_REQUEST, "format: a '{' alone");
        const char *name = s->p + i + 1;
        size_t n = (size_t)(end - name);
        const struct tv *v = NULL;
        if (n == 0 && next < c->n_arg)
            v = &c->arg[next++];
        else if (n == 1 && name[0] >= '0' && name[0] <= '9' && name[0] - '0' < c->n_arg)
            v = &c->arg[name[0] - '0'];
        for (int k = 0; k < c->n_kw && !v; k++)
            if (strlen(c->kw[k].name) == n && memcmp(c->kw[k].name, name, n) == 0) v = &c->kw[k].v;
        if (!v)
            return text_tx_fail(x, SL_REQUEST, "format: no argument for {%.*s}",
                                (int)BASE_MIN(n, 40), name);
        SL_TRY(text_tv_put(x, &b, *v, false));
        i = (size_t)(end - s->p);
    }
    return text_tb_done(x, &b, out);
}

static sl_status on_string(struct tx *x, const struct ts *s, enum method m, const struct tcall *c,
                           struct tv *out)
{
    const struct ts *a = NULL, *b = NULL;
    const struct tv *v;
    struct tl *l = NULL;
    int64_t count;
    if (s->markup && (m == M_REPLACE || m == M_JOIN || m == M_FORMAT))
        return text_tx_fail(
            x, SL_REQUEST,
            "this method on text from `safe` (it would escape HTML) is not supported");
    switch (m) {
    case M_STRIP:
    case M_LSTRIP:
    case M_RSTRIP:
        SL_TRY(maybe_str(x, c, 0, &a));
        return text_ts_strip(x, s, a, m == M_STRIP ? 3 : m == M_LSTRIP ? 1 : 2, out);
    case M_SPLIT:
    case M_RSPLIT:
        return split(x, s, c, m == M_RSPLIT, out);
    case M_SPLITLINES:
        v = text_tc_arg(c, 0);
        return text_ts_lines(x, s, v && text_tv_true(*v), out);
    case M_STARTSWITH:
    case M_ENDSWITH:
        return affix(x, s, c, m == M_STARTSWITH, out);
    case M_REPLACE:
        SL_TRY(need_str(x, c, 0, &a));
        SL_TRY(need_str(x, c, 1, &b));
        SL_TRY(maybe_int(x, c, 2, -1, &count));
        return text_ts_replace(x, s, a, b, count, out);
    case M_UPPER:
    case M_LOWER:
    case M_TITLE:
    case M_CAPITALIZE:
        return text_ts_case(x, s,
                            m == M_UPPER   ? CASE_UPPER
                            : m == M_LOWER ? CASE_LOWER
                            : m == M_TITLE ? CASE_TITLE
                                           : CASE_CAPITAL,
                            out);
    case M_FIND:
    case M_RFIND:
    case M_COUNT:
        return search(x, s, c, m, out);
    case M_JOIN:
        SL_TRY(text_tv_list(x, *text_tc_arg(c, 0), &l));
        return text_ts_join(x, s, l, true, out);
    case M_REMOVEPREFIX:
    case M_REMOVESUFFIX:
        SL_TRY(need_str(x, c, 0, &a));
        if (!has_affix(s, a, m == M_REMOVEPREFIX)) return text_ts_sub(x, s, 0, s->n, out);
        return text_ts_sub(x, s, m == M_REMOVEPREFIX ? a->n : 0, s->n - a->n, out);
    case M_PARTITION:
        return partition(x, s, c, out);
    case M_FORMAT:
        return format(x, s, c, out);
    default:
        return classify(x, s, m, out);
    }
}

static sl_status on_dict(struct tx *x, const struct td *d, enum method m, const struct tcall *c,
                         struct tv *out)
{
    struct tv *hit = NULL, pair;
    const struct tv *v;
    if (m == M_GET) {
        v = text_tc_arg(c, 0);
        if (v->kind == TV_LIST || v->kind == TV_DICT)
            return text_tx_fail(x, SL_REQUEST, "get of %s", text_tv_kind(*v));
        SL_TRY(text_td_get(x, d, *v, &hit));
        v = text_tc_arg(c, 1);
        *out = hit ? *hit : v ? *v : (struct tv){.kind = TV_NONE};
        return SL_OK;
    }
    if (m == M_COPY) {
        SL_TRY(text_td_new(x, TV_DICT, out));
        for (size_t i = 0; i < d->n; i++)
            SL_TRY(text_td_put(x, out->d, d->v[i].key, d->v[i].val));
        return SL_OK;
    }
    SL_TRY(text_tl_new(x, d->n, out));
    out->l->form = TL_VIEW;
    for (size_t i = 0; i < d->n; i++) {
        if (m == M_ITEMS) {
            SL_TRY(text_tl_new(x, 2, &pair));
            pair.l->tuple = true;
            SL_TRY(text_tl_put(x, pair.l, d->v[i].key));
            SL_TRY(text_tl_put(x, pair.l, d->v[i].val));
        } else {
            pair = m == M_KEYS ? d->v[i].key : d->v[i].val;
        }
        SL_TRY(text_tl_put(x, out->l, pair));
    }
    return SL_OK;
}

static sl_status on_list(struct tx *x, const struct tl *l, enum method m, const struct tcall *c,
                         struct tv *out)
{
    int64_t n = 0;
    if (m == M_COPY) {
        SL_TRY(text_tl_new(x, l->n, out));
        for (size_t i = 0; i < l->n; i++)
            SL_TRY(text_tl_put(x, out->l, l->v[i]));
        return SL_OK;
    }
    for (size_t i = 0; i < l->n; i++) {
        bool same;
        SL_TRY(text_tv_equal(x, l->v[i], *text_tc_arg(c, 0), 0, &same));
        n += same;
    }
    *out = text_tv_int(n);
    return SL_OK;
}

sl_status text_tx_method(struct tx *x, const struct tmethod *me, const struct tcall *call,
                         struct tv *out)
{
    int i = find(me->self, me->name);
    struct tcall c = *call;
    SL_TRY(text_tx_cost(x, 1));
    if (i < 0)
        return text_tx_fail(x, SL_REQUEST, "%s has no method %s", text_tv_kind(me->self), me->name);
    if (methods[i].m == M_MUTATES)
        return text_tx_fail(x, SL_REQUEST, ".%s() would change data and is not allowed", me->name);
    if (methods[i].params) {
        int n_param = methods[i].params[0] ? 1 : 0;
        for (const char *p = methods[i].params; *p; p++)
            n_param += *p == ' ';
        c.params = methods[i].params;
        if (c.n_arg + c.n_kw > n_param)
            return text_tx_fail(x, SL_REQUEST, ".%s() with too many arguments", me->name);
        for (int k = 0; k < methods[i].n_min; k++)
            if (!text_tc_arg(&c, k))
                return text_tx_fail(x, SL_REQUEST, ".%s() with too few arguments", me->name);
        int found = c.n_arg;
        for (int k = c.n_arg; k < n_param; k++)
            found += text_tc_arg(&c, k) != NULL;
        if (found != c.n_arg + c.n_kw)
            return text_tx_fail(x, SL_REQUEST, ".%s() with an unknown argument", me->name);
    }
    if (me->self.kind == TV_STR) return on_string(x, me->self.s, methods[i].m, &c, out);
    if (me->self.kind == TV_DICT) return on_dict(x, me->self.d, methods[i].m, &c, out);
    return on_list(x, me->self.l, methods[i].m, &c, out);
}
