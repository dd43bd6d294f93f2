/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: bounds become digits. An integer has at most 18 digits; a number has at most 15 before
 * the point, and so few after it that different texts near a bound are different doubles. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

#define INT_LIMIT 999999999999999999 /* 18 digits */
#define WHOLE_LIMIT 999999999999999u /* 15 digits */
#define MAX_FRACTION 24

static const struct ir *digits(struct build *b, int lo, int hi)
{
    struct ir_range r = {(uint32_t)('0' + lo), (uint32_t)('0' + hi)};
    return lo > hi ? grammar_ir_never(b) : grammar_ir_class(b, &r, 1, false, false);
}

static const struct ir *any_digits(struct build *b, uint32_t min, uint32_t max)
{
    return grammar_ir_rep(b, digits(b, 0, 9), min, max);
}

/* ---- whole numbers ---- */

/* Texts of n digits between lo and hi (tight where the digits so far are the bound's). */
static const struct ir *same_length(struct build *b, const char *lo, const char *hi, int n)
{
    struct ir_list l = {0};
    if (n == 0) return grammar_ir_empty(b);
    int from = lo ? *lo - '0' : 0, to = hi ? *hi - '0' : 9;
    if (!lo && !hi) return any_digits(b, (uint32_t)n, (uint32_t)n);
    if (lo && hi && from == to)
        return grammar_ir_seqv(b, digits(b, from, from), same_length(b, lo + 1, hi + 1, n - 1),
                               NULL, NULL);
    if (lo)
        grammar_ir_list_add(b, &l,
                            grammar_ir_seqv(b, digits(b, from, from),
                                            same_length(b, lo + 1, NULL, n - 1), NULL, NULL));
    if (hi)
        grammar_ir_list_add(
            b, &l,
            grammar_ir_seqv(b, digits(b, to, to), same_length(b, NULL, hi + 1, n - 1), NULL, NULL));
    from += lo != NULL;
    to -= hi != NULL;
    if (from <= to)
        grammar_ir_list_add(b, &l,
                            grammar_ir_seqv(b, digits(b, from, to),
                                            any_digits(b, (uint32_t)n - 1, (uint32_t)n - 1), NULL,
                                            NULL));
    return grammar_ir_alt(b, l.v, l.n);
}

/* Whole numbers lo..hi, no sign, no leading zero. */
static const struct ir *whole(struct build *b, uint64_t lo, uint64_t hi)
{
    struct ir_list l = {0};
    uint64_t first = 0, last = 9;
    for (int n = 1; n <= 19 && lo <= hi && first <= hi; n++) {
        uint64_t a = lo > first ? lo : first, z = hi < last ? hi : last;
        char from[24], to[24];
        if (a <= z) {
            snprintf(from, sizeof from, "%llu", (unsigned long long)a);
            snprintf(to, sizeof to, "%llu", (unsigned long long)z);
            grammar_ir_list_add(b, &l, same_length(b, from, to, n));
        }
        first = last + 1;
        last = n == 18 ? UINT64_MAX : last * 10 + 9;
    }
    return grammar_ir_alt(b, l.v, l.n);
}

static const struct ir *integers(struct build *b, int64_t lo, int64_t hi)
{
    struct ir_list l = {0};
    if (hi >= 0) grammar_ir_list_add(b, &l, whole(b, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi));
    if (lo < 0)
        grammar_ir_list_add(b, &l,
                            grammar_ir_seqv(b, grammar_ir_litz(b, "-"),
                                            whole(b, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo),
                                            NULL, NULL));
    return grammar_ir_alt(b, l.v, l.n);
}

/* ---- decimals ---- */

struct bound { /* of a magnitude */
    bool there, open;
    uint64_t whole;
    char frac[MAX_FRACTION + 1]; /* digits without trailing zeros */
    int n_frac;
};
struct between {
    struct build *b;
    const struct bound *lo, *hi;
    int max; /* digits after the point */
};

static int digit_at(const struct bound *x, int i)
{
    return i < x->n_frac ? x->frac[i] - '0' : 0;
}

/* May a number end after i digits? */
static bool may_end(const struct between *w, int i, bool low, bool high)
{
    if (low && (i < w->lo->n_frac || w->lo->open)) return false;
    return !(high && i >= w->hi->n_frac && w->hi->open);
}

/* The digits from place i on; low, high: the digits so far are those of the bound. */
static const struct ir *fraction(const struct between *w, int i, bool low, bool high)
{
    struct build *b = w->b;
    struct ir_list l = {0};
    if (!low && !high) return any_digits(b, i == 0, (uint32_t)(w->max - i));
    if (i > 0 && may_end(w, i, low, high)) grammar_ir_list_add(b, &l, grammar_ir_empty(b));
    int from = low ? digit_at(w->lo, i) : 0, to = high ? digit_at(w->hi, i) : 9;
    if (i < w->max && from == to && low && high) {
        grammar_ir_list_add(
            b, &l,
            grammar_ir_seqv(b, digits(b, from, from), fraction(w, i + 1, true, true), NULL, NULL));
    } else if (i < w->max) {
        if (low && from <= to)
            grammar_ir_list_add(b, &l,
                                grammar_ir_seqv(b, digits(b, from, from),
                                                fraction(w, i + 1, true, false), NULL, NULL));
        if (high && from <= to)
            grammar_ir_list_add(
                b, &l,
                grammar_ir_seqv(b, digits(b, to, to), fraction(w, i + 1, false, true), NULL, NULL));
        from += low;
        to -= high;
        if (from <= to)
            grammar_ir_list_add(b, &l,
                                grammar_ir_seqv(b, digits(b, from, to),
                                                fraction(w, i + 1, false, false), NULL, NULL));
    }
    return grammar_ir_alt(b, l.v, l.n);
}

/* A whole part and what may follow its point. */
static const struct ir *with_fraction(const struct between *w, const struct ir *head, bool low,
                                      bool high)
{
    struct build *b = w->b;
    const struct ir *tail =
        grammar_ir_seqv(b, grammar_ir_litz(b, "."), fraction(w, 0, low, high), NULL, NULL);
    return grammar_ir_seqv(b, head, may_end(w, 0, low, high) ? grammar_ir_opt(b, tail) : tail, NULL,
                           NULL);
}

static const struct ir *magnitudes(struct build *b, const struct bound *lo, const struct bound *hi)
{
    struct ir_list l = {0};
    uint64_t top = hi->there ? hi->whole : WHOLE_LIMIT, near = lo->whole;
    int n_whole = 1;
    for (uint64_t v = hi->there ? BASE_MAX(top, near) : near; v >= 10; v /= 10)
        n_whole++;
    int max = BASE_MAX(15 - n_whole, BASE_MAX(lo->n_frac, hi->n_frac));
    struct between w = {.b = b, .lo = lo, .hi = hi, .max = BASE_MAX(max, 1)};
    if (near > top) return grammar_ir_never(b);
    if (near == top && hi->there) return with_fraction(&w, whole(b, near, near), true, true);
    grammar_ir_list_add(b, &l, with_fraction(&w, whole(b, near, near), true, false));
    if (near + 1 + hi->there <= top + 1 && near + 1 <= top - hi->there)
        grammar_ir_list_add(b, &l,
                            with_fraction(&w, whole(b, near + 1, top - hi->there), false, false));
    if (hi->there) grammar_ir_list_add(b, &l, with_fraction(&w, whole(b, top, top), false, true));
    return grammar_ir_alt(b, l.v, l.n);
}

/* |v| as decimal digits; false when it has too many. */
static bool to_bound(double v, bool open, struct bound *out)
{
    char text[32], digit[32];
    int n = 0, point = 0, e = 0;
    memset(out, 0, sizeof *out);
    out->there = true;
    out->open = open;
    text_real_repr(fabs(v), text);
    char *exp = strchr(text, 'e'), *dot = strchr(text, '.');
    if (exp && sscanf(exp + 1, "%d", &e) != 1) return false;
    for (const char *p = text; *p && p != exp; p++)
        if (*p != '.') digit[n++] = *p;
    point = (int)(dot ? dot - text : exp ? exp - text : (long)strlen(text)) + e;
    if (point > 15 || point < -8) return false;
    for (int i = 0; i < point; i++)
        out->whole = out->whole * 10 + (uint64_t)(i < n ? digit[i] - '0' : 0);
    for (int i = point; i < n; i++) {
        if (out->n_frac == MAX_FRACTION) return false;
        out->frac[out->n_frac++] = i < 0 ? '0' : digit[i];
    }
    while (out->n_frac && out->frac[out->n_frac - 1] == '0')
        out->n_frac--;
    return true;
}

/* ---- the keywords ---- */

/* The smallest integer at or above a bound (the largest at or below for upper), in our digits. */
static int64_t whole_bound(const struct json *v, bool open, bool upper)
{
    int64_t i = 0;
    if (v->kind == JSON_INT_K) {
        i = BASE_MAX(BASE_MIN(v->i, INT_LIMIT + 2), -INT_LIMIT - 2);
    } else {
        double f = upper ? floor(v->f) : ceil(v->f);
        open = open && f == v->f;
        i = f >= 1e18 ? INT_LIMIT + 2 : f <= -1e18 ? -INT_LIMIT - 2 : (int64_t)f;
    }
    return open ? upper ? i - 1 : i + 1 : i;
}

static const struct ir *decimals(struct schema *x, const struct place *at, const struct limits *l)
{
    struct build *b = x->b;
    struct ir_list alt = {0};
    struct bound lo = {0}, hi = {0};
    const struct bound zero = {.there = true};
    if ((l->lo && !to_bound(l->lo->f, l->lo_open, &lo)) ||
        (l->hi && !to_bound(l->hi->f, l->hi_open, &hi))) {
        grammar_schema_cannot(x, at, NULL, "a bound has more digits than are supported (15)");
        return b->st ? grammar_ir_never(b) : grammar_shared(b, SHARED_NUMBER);
    }
    bool lo_neg = !l->lo || l->lo->f < 0, hi_neg = l->hi && l->hi->f < 0;
    if (l->lo && l->hi &&
        (l->lo->f > l->hi->f || (l->lo->f == l->hi->f && (l->lo_open || l->hi_open))))
        return grammar_ir_never(b);
    if (!hi_neg) grammar_ir_list_add(b, &alt, magnitudes(b, lo_neg ? &zero : &lo, &hi));
    if (lo_neg) {
        struct bound from = zero;
        if (hi_neg)
            from = hi;
        else if (l->hi && l->hi->f == 0)
            from.open = l->hi_open;
        grammar_ir_list_add(
            b, &alt,
            grammar_ir_seqv(b, grammar_ir_litz(b, "-"), magnitudes(b, &from, &lo), NULL, NULL));
    }
    return grammar_ir_alt(b, alt.v, alt.n);
}

/* ---- multipleOf ---- */

/* v as step / 10^point, 0 < v; false when it has too many digits. */
static bool to_step(double v, struct multiple *m)
{
    struct bound d;
    if (!(v > 0) || v > 1e15 || !to_bound(v, false, &d) || d.n_frac > 9) return false;
    m->step = d.whole;
    m->point = d.n_frac;
    for (int i = 0; i < d.n_frac; i++)
        m->step = m->step * 10 + (uint64_t)(d.frac[i] - '0');
    m->value = v;
    m->exact = ldexp(v, 9) == floor(ldexp(v, 9));
    return m->step <= (uint64_t)INT_LIMIT;
}

/* The double that the text of the k-th multiple is. */
static double multiple_at(const struct multiple *m, double k)
{
    double ten = 1;
    for (int i = 0; i < m->point; i++)
        ten *= 10;
    return k * (double)m->step / ten; /* two whole numbers: rounded once, as the text is */
}

/* A step that is no whole number: at most 15 digits in all. */
static const struct ir *decimal_steps(struct build *b, const struct limits *l, struct multiple *m)
{
    double most = floor((double)WHOLE_LIMIT / (double)m->step), lo = -most, hi = most;
    if (l->lo) lo = fmax(lo, floor(l->lo->f / m->value) - 2);
    if (l->hi) hi = fmin(hi, ceil(l->hi->f / m->value) + 2);
    for (double v; l->lo && lo <= hi; lo++)
        if ((v = multiple_at(m, lo)) > l->lo->f || (v == l->lo->f && !l->lo_open)) break;
    for (double v; l->hi && lo <= hi; hi--)
        if ((v = multiple_at(m, hi)) < l->hi->f || (v == l->hi->f && !l->hi_open)) break;
    if (!(lo <= hi)) return grammar_ir_never(b);
    m->lo = (int64_t)lo * (int64_t)m->step;
    m->hi = (int64_t)hi * (int64_t)m->step;
    return grammar_multiples(b, m);
}

/* Digits of both: 10 and 2.5 have whole multiples in common, those of 10. */
static uint64_t whole_step(struct multiple m)
{
    uint64_t ten = 1, a, b;
    for (int i = 0; i < m.point; i++)
        ten *= 10;
    for (a = m.step, b = ten; b;) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return m.step / a; /* of multiples N / 10^point, those whose N is one of 10^point */
}

/* ---- formats and several steps ---- */

/* The bounds that a number's format means; others are annotations. */
static void format_bounds(const struct json *f, int64_t *lo, int64_t *hi)
{
    static const struct {
        const char *name;
        int64_t lo, hi;
    } row[] = {{"int8", INT8_MIN, INT8_MAX},    {"int16", INT16_MIN, INT16_MAX},
               {"int32", INT32_MIN, INT32_MAX}, {"uint8", 0, UINT8_MAX},
               {"uint16", 0, UINT16_MAX},       {"uint32", 0, UINT32_MAX},
               {"uint64", 0, INT_LIMIT},        {"uint", 0, INT_LIMIT}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        if (!text_json_is(f, row[i].name)) continue;
        *lo = BASE_MAX(*lo, row[i].lo);
        *hi = BASE_MIN(*hi, row[i].hi);
    }
}

/* The least whole number that all steps divide; 0: one is not whole, or it is too large. */
static uint64_t common_step(const struct facts *f)
{
    uint64_t step = 1;
    for (const struct fact *e = f->multiple; e; e = e->next) {
        if (e->v->f > 1e9 || e->v->f != floor(e->v->f)) return 0;
        uint64_t v = (uint64_t)e->v->f, a = step, b = v;
        while (b) {
            uint64_t r = a % b;
            a = b;
            b = r;
        }
        step = step / a * v;
        if (step > 1000000000) return 0;
    }
    return step;
}

/* The step of all multipleOf together. false: not held. */
static bool read_step(struct schema *x, const struct facts *f, struct multiple *m)
{
    uint64_t whole = common_step(f);
    *m = (struct multiple){.step = 1, .exact = true};
    if (whole) {
        m->step = whole;
        m->value = (double)whole;
        return true;
    }
    for (const struct fact *e = f->multiple; e; e = e->next) {
        struct multiple k = {.step = 1};
        bool ok = to_step(e->v->f, &k);
        for (const struct fact *o = f->multiple; o && ok; o = o->next)
            ok = e->v->f / o->v->f == floor(e->v->f / o->v->f);
        *m = k;
        if (ok) return true;
    }
    if (f->multiple)
        grammar_schema_cannot(x, &f->multiple->at, "multipleOf",
                              f->multiple->next ? "two steps of which none divides the other"
                                                : "must be a number over 0 of at most 15 digits");
    *m = (struct multiple){.step = 1, .exact = true};
    return false;
}

/* ---- one range ---- */

struct range {
    struct schema *x;
    struct facts *f;
    struct place at;
    struct multiple m;
    bool by;        /* m is to be kept to */
    int64_t lo, hi; /* of integers, by format */
};

static const struct ir *whole_numbers(const struct range *r, const struct limits *l)
{
    struct build *b = r->x->b;
    struct multiple m = r->m;
    int64_t lo = r->lo, hi = r->hi;
    if (l->lo) {
        int64_t v = whole_bound(l->lo, l->lo_open, false);
        if (v > INT_LIMIT) grammar_schema_cannot(r->x, &r->at, "minimum", "over 18 digits");
        if (v <= INT_LIMIT) lo = BASE_MAX(lo, v);
    }
    if (l->hi) {
        int64_t v = whole_bound(l->hi, l->hi_open, true);
        if (v < -INT_LIMIT) grammar_schema_cannot(r->x, &r->at, "maximum", "over 18 digits");
        if (v >= -INT_LIMIT) hi = BASE_MIN(hi, v);
    }
    if (lo > hi) return grammar_ir_never(b);
    if (r->by) {
        m.step = whole_step(m);
        m.point = 0;
        m.lo = lo;
        m.hi = hi;
        const struct ir *e = grammar_multiples(b, &m);
        if (!b->st || !grammar_schema_forgive(r->x, &r->at, "multipleOf")) return e;
    }
    if (lo == -INT_LIMIT && hi == INT_LIMIT) return grammar_shared(b, SHARED_INTEGER);
    return integers(b, lo, hi);
}

/* Those of e that are no whole numbers. */
static const struct ir *with_point(const struct range *r, const struct ir *e)
{
    static const char part[] = "-?(?:[0-9]{1,9}\\.[0-9]{0,5}|[0-9]{10,13}\\.[0-9]?)[1-9]";
    struct build *b = r->x->b;
    const struct dfa *d = grammar_dfa_and(
        b, grammar_dfa_of(b, e),
        grammar_dfa_of(b, grammar_pattern(b, part, sizeof part - 1, false, false, "number")));
    if (!d && !b->st) grammar_schema_cannot(r->x, &r->at, NULL, "numbers that are not whole");
    return d ? grammar_ir_auto(b, d, false) : e;
}

static const struct ir *real_numbers(const struct range *r, const struct limits *l, unsigned types)
{
    static const char any[] = "-?(?:0|[1-9][0-9]{0,8})\\.[0-9]{1,6}";
    struct build *b = r->x->b;
    const struct ir *e;
    struct multiple m = r->m;
    if (r->by && m.point) {
        e = decimal_steps(b, l, &m);
        if (b->st && grammar_schema_forgive(r->x, &r->at, "multipleOf")) e = NULL;
        if (e && types == T_NUM) return e;
        if (e) grammar_schema_cannot(r->x, &r->at, "multipleOf", "of numbers that are not whole");
    }
    if (l->lo || l->hi)
        e = decimals(r->x, &r->at, l);
    else if (types == T_NUM)
        return grammar_shared(b, SHARED_NUMBER);
    else
        e = grammar_pattern(b, any, sizeof any - 1, false, false, "number");
    return types == T_NUM ? e : with_point(r, e);
}

static const struct ir *one_range(const struct range *r, const struct limits *l, unsigned types)
{
    if (types == T_INT || (r->by && !r->m.point))
        return types & T_INT ? whole_numbers(r, l) : grammar_ir_never(r->x->b);
    return real_numbers(r, l, types);
}

/* ---- together ---- */

static int by_value(const void *a, const void *b)
{
    double x = (*(const struct json *const *)a)->f, y = (*(const struct json *const *)b)->f;
    return x < y ? -1 : x > y;
}

/* Numbers that are not wanted, rising. */
static const struct json **unwanted(struct build *b, const struct fact *except, uint32_t *n)
{
    uint32_t cap = 1;
    for (const struct fact *e = except; e; e = e->next)
        cap += e->neg ? (uint32_t)e->v->n : 1;
    const struct json **v = grammar_build_alloc(b, cap, sizeof *v);
    *n = 0;
    for (const struct fact *e = v ? except : NULL; e; e = e->next)
        for (const struct json *m = e->neg ? e->v->child : e->v; m; m = e->neg ? m->next : NULL)
            if (m->kind == JSON_INT_K || m->kind == JSON_REAL_K) v[(*n)++] = m;
    if (*n > 1) qsort((void *)v, *n, sizeof *v, by_value);
    return v;
}

const struct ir *grammar_schema_number(struct schema *x, const struct place *at, struct facts *f)
{
    struct range r = {x, f, *at, {.step = 1, .exact = true}, false, -INT_LIMIT, INT_LIMIT};
    struct ir_list alt = {0};
    struct limits l = f->limits;
    uint32_t n = 0;
    unsigned types = f->types & T_NUM;
    r.by = f->multiple && read_step(x, f, &r.m);
    for (const struct fact *e = f->format; e && types == T_INT; e = e->next)
        format_bounds(e->v, &r.lo, &r.hi);
    const struct json **no = unwanted(x->b, f->except, &n);
    for (uint32_t i = 0; i <= n && no && !x->b->st; i++) { /* the ranges between them */
        if (i < n && l.lo && no[i]->f < l.lo->f) continue;
        struct limits part = l;
        if (i < n && (!l.hi || no[i]->f <= l.hi->f)) {
            part.hi = no[i];
            part.hi_open = true;
        } else if (i < n) {
            continue;
        }
        if (!part.lo || !part.hi || part.lo->f < part.hi->f ||
            (part.lo->f == part.hi->f && !part.lo_open && !part.hi_open))
            grammar_ir_list_add(x->b, &alt, one_range(&r, &part, types));
        if (i == n) break;
        l.lo = no[i];
        l.lo_open = true;
    }
    return grammar_ir_alt(x->b, alt.v, alt.n);
}
