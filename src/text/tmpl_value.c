/* SPDX-License-Identifier: Apache-2.0 */
/* Values: text with its origin, lists, dictionaries, equality and order as Python has them. All
 * memory comes from the arena and is paid for in steps, so that a template can neither fill the
 * memory nor copy for ever. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "text/tmpl_internal.h"
#include "text/utf8.h"

sl_status text_tx_fail(struct tx *x, sl_status code, const char *fmt, ...)
{
    char msg[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return status_fail(x->err, code, __FILE__, __LINE__, "chat template line %d: %s", x->line, msg);
}

sl_status text_tx_cost(struct tx *x, size_t n)
{
    if (n > (size_t)INT64_MAX / 2 || (x->steps -= (int64_t)n) < 0) {
        x->steps = 0;
        return text_tx_fail(x, SL_LIMIT, "the template takes too many steps");
    }
    return SL_OK;
}

sl_status text_tx_mem(struct tx *x, size_t n, size_t size, void **out)
{
    uint64_t total;
    if (!size_mul(n, size, &total)) return text_tx_fail(x, SL_LIMIT, "a value is too large");
    SL_TRY(text_tx_cost(x, total / 64 + 1));
    return mem_arena_alloc(x->a, total, out, x->err);
}

/* ---- text ---- */

static sl_status grow(struct tx *x, struct tb *b, size_t n)
{
    if (n <= b->cap - b->n) return SL_OK;
    size_t cap = BASE_MAX(b->cap * 2, b->n + n + 64);
    void *p = NULL, *m = NULL;
    SL_TRY(text_tx_mem(x, cap + 1, 1, &p));
    SL_TRY(text_tx_mem(x, cap + 1, 1, &m));
    if (b->n) {
        memcpy(p, b->p, b->n);
        memcpy(m, b->mask, b->n);
    }
    b->p = p;
    b->mask = m;
    b->cap = cap;
    return SL_OK;
}

sl_status text_tb_put(struct tx *x, struct tb *b, const char *p, size_t n, bool user)
{
    SL_TRY(text_tx_cost(x, n / 64));
    SL_TRY(grow(x, b, n));
    if (n == 0) return SL_OK;
    memcpy(b->p + b->n, p, n);
    memset(b->mask + b->n, user, n);
    b->n += n;
    return SL_OK;
}

sl_status text_tb_ts(struct tx *x, struct tb *b, const struct ts *s, size_t from, size_t n)
{
    size_t at = b->n;
    SL_TRY(text_tb_put(x, b, s->p + from, n, s->user));
    if (s->mask && n) memcpy(b->mask + at, s->mask + from, n);
    return SL_OK;
}

static sl_status new_ts(struct tx *x, struct ts s, struct tv *out)
{
    void *mem = NULL;
    SL_TRY(text_tx_mem(x, 1, sizeof s, &mem));
    struct ts *t = mem;
    *t = s;
    *out = (struct tv){.kind = TV_STR, .s = t};
    return SL_OK;
}

sl_status text_tb_done(struct tx *x, const struct tb *b, struct tv *out)
{
    bool same = true;
    for (size_t i = 1; i < b->n && same; i++)
        same = b->mask[i] == b->mask[0];
    SL_TRY(text_tx_cost(x, b->n / 64));
    return new_ts(x,
                  (struct ts){.p = b->n ? b->p : "",
                              .n = b->n,
                              .mask = same ? NULL : b->mask,
                              .user = b->n && b->mask[0]},
                  out);
}

sl_status text_ts_new(struct tx *x, const char *p, size_t n, bool user, struct tv *out)
{
    return new_ts(x, (struct ts){.p = p, .n = n, .user = user}, out);
}

sl_status text_ts_sub(struct tx *x, const struct ts *s, size_t from, size_t n, struct tv *out)
{
    return new_ts(x,
                  (struct ts){.p = s->p + from,
                              .n = n,
                              .mask = s->mask ? s->mask + from : NULL,
                              .user = s->user,
                              .markup = s->markup},
                  out);
}

sl_status text_ts_mark(struct tx *x, struct tv *v)
{
    struct ts s = *v->s;
    s.markup = true;
    return new_ts(x, s, v);
}

bool text_ts_user(const struct ts *s)
{
    return s->mask ? memchr(s->mask, 1, s->n) != NULL : s->user;
}

bool text_ts_is(const struct ts *s, const char *z)
{
    size_t n = strlen(z);
    return s->n == n && memcmp(s->p, z, n) == 0;
}

/* ---- lists and dictionaries ---- */

sl_status text_tl_new(struct tx *x, size_t cap, struct tv *out)
{
    void *mem = NULL, *v = NULL;
    SL_TRY(text_tx_mem(x, 1, sizeof(struct tl), &mem));
    struct tl *l = mem;
    if (cap) SL_TRY(text_tx_mem(x, cap, sizeof *l->v, &v));
    l->v = v;
    l->cap = cap;
    *out = (struct tv){.kind = TV_LIST, .l = l};
    return SL_OK;
}

sl_status text_tl_put(struct tx *x, struct tl *l, struct tv v)
{
    if (l->n == l->cap) {
        void *mem = NULL;
        size_t cap = l->cap ? l->cap * 2 : 8;
        SL_TRY(text_tx_mem(x, cap, sizeof *l->v, &mem));
        if (l->n) memcpy(mem, l->v, l->n * sizeof *l->v);
        l->v = mem;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return SL_OK;
}

sl_status text_td_new(struct tx *x, enum tv_kind kind, struct tv *out)
{
    void *mem = NULL;
    SL_TRY(text_tx_mem(x, 1, sizeof(struct td), &mem));
    *out = (struct tv){.kind = kind, .d = mem};
    return SL_OK;
}

sl_status text_td_get(struct tx *x, const struct td *d, struct tv key, struct tv **out)
{
    *out = NULL;
    SL_TRY(text_tx_cost(x, d->n / 8));
    for (size_t i = 0; i < d->n; i++) {
        bool same = false;
        if (d->v[i].key.kind == TV_STR && key.kind == TV_STR)
            same =
                d->v[i].key.s->n == key.s->n && memcmp(d->v[i].key.s->p, key.s->p, key.s->n) == 0;
        else if (d->v[i].key.kind != TV_STR && key.kind != TV_STR)
            SL_TRY(text_tv_equal(x, d->v[i].key, key, 0, &same));
        if (!same) continue;
        *out = &d->v[i].val;
        return SL_OK;
    }
    return SL_OK;
}

struct tv *text_td_getz(const struct td *d, const char *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->v[i].key.kind == TV_STR && text_ts_is(d->v[i].key.s, key)) return &d->v[i].val;
    return NULL;
}

sl_status text_td_put(struct tx *x, struct td *d, struct tv key, struct tv v)
{
    struct tv *have = NULL;
    if (key.kind == TV_LIST || key.kind == TV_DICT || key.kind == TV_NS || key.kind == TV_UNDEF)
        return text_tx_fail(x, SL_REQUEST, "%s can not be a key", text_tv_kind(key));
    SL_TRY(text_td_get(x, d, key, &have));
    if (have) {
        *have = v;
        return SL_OK;
    }
    if (d->n == d->cap) {
        void *mem = NULL;
        size_t cap = d->cap ? d->cap * 2 : 4;
        SL_TRY(text_tx_mem(x, cap, sizeof *d->v, &mem));
        if (d->n) memcpy(mem, d->v, d->n * sizeof *d->v);
        d->v = mem;
        d->cap = cap;
    }
    d->v[d->n++] = (struct td_item){key, v};
    return SL_OK;
}

sl_status text_td_putz(struct tx *x, struct td *d, const char *key, struct tv v)
{
    struct tv k;
    SL_TRY(text_ts_new(x, key, strlen(key), false, &k));
    return text_td_put(x, d, k, v);
}

/* ---- JSON to values: what a user sent. The tree's depth is capped by the reader. ---- */

static sl_status leaf(struct tx *x, const struct json *j, struct tv *out)
{
    switch (j->kind) {
    case JSON_NULL_K:
        *out = (struct tv){.kind = TV_NONE};
        return SL_OK;
    case JSON_BOOL_K:
        *out = text_tv_bool(j->b);
        return SL_OK;
    case JSON_INT_K:
        *out = text_tv_int(j->i);
        return SL_OK;
    case JSON_REAL_K:
        *out = (struct tv){.kind = TV_REAL, .f = j->f};
        return SL_OK;
    case JSON_STR_K:
        return text_ts_new(x, j->s, j->n, true, out);
    case JSON_ARRAY_K:
        return text_tl_new(x, j->n, out);
    case JSON_OBJECT_K:
        return text_td_new(x, TV_DICT, out);
    }
    return SL_OK;
}

sl_status text_tv_json(struct tx *x, const struct json *j, struct tv *out)
{
    struct {
        const struct json *next;
        struct tv box;
    } open[TEXT_JSON_DEPTH + 1];
    int d = 0;
    SL_TRY(leaf(x, j, out));
    if (j->kind == JSON_ARRAY_K || j->kind == JSON_OBJECT_K) {
        open[d].next = j->child;
        open[d++].box = *out;
    }
    while (d > 0) {
        const struct json *k = open[d - 1].next;
        struct tv v, key;
        if (!k) {
            d--;
            continue;
        }
        open[d - 1].next = k->next;
        SL_TRY(leaf(x, k, &v));
        if (open[d - 1].box.kind == TV_LIST) {
            SL_TRY(text_tl_put(x, open[d - 1].box.l, v));
        } else { /* keys are unique: no need to look */
            struct td *o = open[d - 1].box.d;
            size_t n = o->n;
            SL_TRY(text_ts_new(x, k->key, k->n_key, true, &key));
            o->n = 0; /* so that put does not search */
            if (n == o->cap) {
                o->n = n;
                SL_TRY(text_td_put(x, o, key, v));
            } else {
                o->v[n] = (struct td_item){key, v};
                o->n = n + 1;
            }
        }
        if (k->kind == JSON_ARRAY_K || k->kind == JSON_OBJECT_K) {
            if (d == TEXT_JSON_DEPTH)
                return text_tx_fail(x, SL_LIMIT, "data nested deeper than %d", TEXT_JSON_DEPTH);
            open[d].next = k->child;
            open[d++].box = v;
        }
    }
    return SL_OK;
}

/* ---- what Python thinks of values ---- */

const char *text_tv_kind(struct tv v)
{
    static const char *const text[] = {"an undefined value",
                                       "none",
                                       "a bool",
                                       "an integer",
                                       "a float",
                                       "a string",
                                       "a list",
                                       "a mapping",
                                       "a namespace",
                                       "a macro",
                                       "a loop",
                                       "a function",
                                       "a method"};
    static const char *const form[] = {"a list", "a range", "a view of a mapping"};
    return v.kind == TV_LIST ? form[v.l->form] : text[v.kind];
}

bool text_tv_true(struct tv v)
{
    switch (v.kind) {
    case TV_UNDEF:
    case TV_NONE:
        return false;
    case TV_BOOL:
        return v.b;
    case TV_INT:
        return v.i != 0;
    case TV_REAL:
        return v.f != 0;
    case TV_STR:
        return v.s->n > 0;
    case TV_LIST:
        return v.l->gen || v.l->n > 0;
    case TV_DICT:
        return v.d->n > 0;
    default:
        return true;
    }
}

static bool number(struct tv v, double *f, int64_t *i)
{
    if (v.kind != TV_BOOL && v.kind != TV_INT && v.kind != TV_REAL) return false;
    *i = v.kind == TV_BOOL ? v.b : v.kind == TV_INT ? v.i : 0;
    *f = v.kind == TV_REAL ? v.f : (double)*i;
    return true;
}

static int cmp_number(struct tv a, struct tv b, double fa, double fb, int64_t ia, int64_t ib)
{
    if (a.kind != TV_REAL && b.kind != TV_REAL) return (ia > ib) - (ia < ib);
    return (fa > fb) - (fa < fb);
}

static int cmp_text(const struct ts *a, const struct ts *b)
{
    int c = memcmp(a->p, b->p, BASE_MIN(a->n, b->n)); /* UTF-8 sorts as its code points do */
    return c ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

sl_status text_tv_equal(struct tx *x, struct tv a, struct tv b, int depth, bool *out)
{
    double fa, fb;
    int64_t ia, ib;
    SL_TRY(text_tx_cost(x, 1));
    *out = false;
    if (depth > TMPL_MAX_DATA) return text_tx_fail(x, SL_LIMIT, "values nested too deep");
    if (number(a, &fa, &ia) && number(b, &fb, &ib)) {
        *out = cmp_number(a, b, fa, fb, ia, ib) == 0 && (fa == fb);
        return SL_OK;
    }
    if (a.kind != b.kind) return SL_OK;
    switch (a.kind) {
    case TV_UNDEF:
    case TV_NONE:
        *out = true;
        return SL_OK;
    case TV_STR:
        SL_TRY(text_tx_cost(x, a.s->n / 64));
        *out = a.s->n == b.s->n && memcmp(a.s->p, b.s->p, a.s->n) == 0;
        return SL_OK;
    case TV_LIST:
        if (a.l->gen || b.l->gen) {
            *out = a.l == b.l;
            return SL_OK;
        }
        if (a.l->form == TL_VIEW && b.l->form == TL_VIEW && a.l != b.l)
            return text_tx_fail(x, SL_REQUEST,
                                "views of mappings are not compared: put `| list` after them");
        if (a.l->n != b.l->n || a.l->tuple != b.l->tuple || a.l->form != b.l->form) return SL_OK;
        for (size_t i = 0; i < a.l->n; i++) {
            SL_TRY(text_tv_equal(x, a.l->v[i], b.l->v[i], depth + 1, out));
            if (!*out) return SL_OK;
        }
        *out = true;
        return SL_OK;
    case TV_DICT:
        if (a.d->n != b.d->n) return SL_OK;
        for (size_t i = 0; i < a.d->n; i++) {
            struct tv *o = NULL;
            SL_TRY(text_td_get(x, b.d, a.d->v[i].key, &o));
            *out = false;
            if (o) SL_TRY(text_tv_equal(x, a.d->v[i].val, *o, depth + 1, out));
            if (!*out) return SL_OK;
        }
        *out = true;
        return SL_OK;
    case TV_FUNC:
        *out = a.fn == b.fn;
        return SL_OK;
    default:
        *out = (const void *)a.d == (const void *)b.d;
        return SL_OK;
    }
}

sl_status text_tv_less(struct tx *x, struct tv a, struct tv b, int depth, int *out)
{
    double fa, fb;
    int64_t ia, ib;
    SL_TRY(text_tx_cost(x, 1));
    if (depth > TMPL_MAX_DATA) return text_tx_fail(x, SL_LIMIT, "values nested too deep");
    if (number(a, &fa, &ia) && number(b, &fb, &ib)) {
        *out = cmp_number(a, b, fa, fb, ia, ib);
        return SL_OK;
    }
    if (a.kind == TV_STR && b.kind == TV_STR) {
        SL_TRY(text_tx_cost(x, BASE_MIN(a.s->n, b.s->n) / 64));
        *out = cmp_text(a.s, b.s);
        return SL_OK;
    }
    if (a.kind != TV_LIST || b.kind != TV_LIST || a.l->tuple != b.l->tuple || a.l->form ||
        b.l->form || a.l->gen || b.l->gen)
        return text_tx_fail(x, SL_REQUEST, "%s and %s have no order", text_tv_kind(a),
                            text_tv_kind(b));
    for (size_t i = 0; i < a.l->n && i < b.l->n; i++) {
        bool same;
        SL_TRY(text_tv_equal(x, a.l->v[i], b.l->v[i], depth + 1, &same));
        if (!same) return text_tv_less(x, a.l->v[i], b.l->v[i], depth + 1, out);
    }
    *out = (a.l->n > b.l->n) - (a.l->n < b.l->n);
    return SL_OK;
}

void text_tl_drop(struct tl *l, size_t n)
{
    l->v += n;
    l->n -= n;
    l->cap = l->n;
}

static sl_status torn(struct tx *x)
{
    return text_tx_fail(x, SL_REQUEST,
                        "a generator is used again after a loop over it was left: "
                        "put `| list` after it");
}

sl_status text_tv_in(struct tx *x, struct tv item, struct tv box, bool *out)
{
    struct tv *hit = NULL;
    *out = false;
    switch (box.kind) {
    case TV_UNDEF:
        return SL_OK;
    case TV_STR:
        if (item.kind != TV_STR)
            return text_tx_fail(x, SL_REQUEST, "'in' wants a string before it, not %s",
                                text_tv_kind(item));
        SL_TRY(text_tx_cost(x, box.s->n / 32));
        *out = item.s->n == 0 || memmem(box.s->p, box.s->n, item.s->p, item.s->n) != NULL;
        return SL_OK;
    case TV_LIST: {
        size_t i = 0;
        if (box.l->torn) return torn(x);
        for (; i < box.l->n && !*out; i++)
            SL_TRY(text_tv_equal(x, item, box.l->v[i], 0, out));
        if (box.l->gen) text_tl_drop(box.l, i);
        return SL_OK;
    }
    case TV_DICT:
        SL_TRY(text_td_get(x, box.d, item, &hit));
        *out = hit != NULL;
        return SL_OK;
    default:
        return text_tx_fail(x, SL_REQUEST, "'in' has no meaning for %s", text_tv_kind(box));
    }
}

sl_status text_tv_list(struct tx *x, struct tv v, struct tl **out)
{
    struct tv l, item;
    if (v.kind == TV_LIST) {
        *out = v.l;
        if (!v.l->gen) return SL_OK;
        if (v.l->torn) return torn(x);
        SL_TRY(text_tl_new(x, 0, &l));
        *l.l = (struct tl){.v = v.l->v, .n = v.l->n, .cap = v.l->n};
        *out = l.l;
        text_tl_drop(v.l, v.l->n);
        return SL_OK;
    }
    SL_TRY(text_tl_new(x, v.kind == TV_DICT ? v.d->n : 0, &l));
    *out = l.l;
    switch (v.kind) {
    case TV_UNDEF:
        return SL_OK;
    case TV_DICT:
        for (size_t i = 0; i < v.d->n; i++)
            SL_TRY(text_tl_put(x, l.l, v.d->v[i].key));
        return SL_OK;
    case TV_STR:
        for (size_t i = 0; i < v.s->n;) {
            uint32_t cp;
            int k = text_utf8_decode(v.s->p + i, v.s->n - i, &cp);
            if (k == 0) k = 1;
            SL_TRY(text_ts_sub(x, v.s, i, (size_t)k, &item));
            SL_TRY(text_tl_put(x, l.l, item));
            i += (size_t)k;
        }
        return SL_OK;
    default:
        return text_tx_fail(x, SL_REQUEST, "%s can not be iterated", text_tv_kind(v));
    }
}
