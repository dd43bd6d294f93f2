/* SPDX-License-Identifier: Apache-2.0 */
/* The reader: one pass, an explicit stack, nodes in slabs, all strings of a document in one buffer
 * (together with their NULs they cannot be longer than the input, since each brought two quotes).
 */
#include "text/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "text/utf8.h"

#define SLAB 256 /* nodes taken from the arena at a time */

struct frame {
    struct json *node; /* the open array or object */
    struct json *last; /* its newest child */
};

struct reader {
    struct arena *a;
    const char *what, *base, *p, *end;
    char *str; /* next free byte of the string buffer */
    struct json *slab;
    int n_slab;
    int depth;
    bool python; /* NaN and Infinity are read over */
    struct frame stack[TEXT_JSON_DEPTH];
    sl_err *err;
};

static sl_status fail_at(struct reader *r, const char *at, sl_status code, const char *msg)
{
    int64_t line = 1, col = 1;
    for (const char *q = r->base; q < at; q++) {
        col++;
        if (*q == '\n') {
            line++;
            col = 1;
        }
    }
    return status_fail(r->err, code, __FILE__, __LINE__,
                       "%s: line %lld column %lld (byte %lld): %s", r->what, (long long)line,
                       (long long)col, (long long)(at - r->base), msg);
}

static sl_status bad(struct reader *r, const char *at, const char *msg)
{
    return fail_at(r, at, SL_FORMAT, at == r->end ? "unexpected end" : msg);
}

static sl_status new_node(struct reader *r, struct json **out)
{
    if (r->n_slab == 0) {
        void *p = NULL;
        SL_TRY(mem_arena_array(r->a, SLAB, sizeof *r->slab, &p, r->err));
        r->slab = p;
        r->n_slab = SLAB;
    }
    *out = r->slab++;
    r->n_slab--;
    return SL_OK;
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
        r->p++;
}

static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i];
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

/* r->p is after the backslash. */
static sl_status read_escape(struct reader *r, char **w)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->p == r->end) return bad(r, r->p, "");
    const char *at = r->p - 1, *hit = *r->p ? strchr(from, *r->p) : NULL;
    if (hit) {
        *(*w)++ = to[hit - from];
        r->p++;
        return SL_OK;
    }
    if (*r->p != 'u') return bad(r, at, "unknown escape");
    int hi = hex4(r->p + 1, r->end);
    if (hi < 0) return bad(r, at, "\\u needs four hexadecimal digits");
    r->p += 5;
    uint32_t cp = (uint32_t)hi;
    if (hi >= 0xd800 && hi < 0xdc00) {
        int lo =
            r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u' ? hex4(r->p + 2, r->end) : -1;
        if (lo < 0xdc00 || lo > 0xdfff) return bad(r, at, "a high surrogate without its low one");
        cp = 0x10000 + (((uint32_t)hi & 0x3ff) << 10) + ((uint32_t)lo & 0x3ff);
        r->p += 6;
    } else if (hi >= 0xdc00 && hi < 0xe000) {
        return bad(r, at, "a low surrogate without its high one");
    }
    *w += text_utf8_encode(cp, *w);
    return SL_OK;
}

/* r->p is on the opening quote. */
static sl_status read_string(struct reader *r, const char **out, size_t *n)
{
    char *w = r->str, *start = w;
    r->p++;
    for (;;) {
        const char *q = r->p;
        while (q < r->end && (unsigned char)*q >= 0x20 && (unsigned char)*q < 0x80 && *q != '"' &&
               *q != '\\')
            q++;
        if (q > r->p) memcpy(w, r->p, (size_t)(q - r->p));
        w += q - r->p;
        r->p = q;
        if (q == r->end) return bad(r, q, "");
        if (*q == '"') break;
        if ((unsigned char)*q < 0x20) return bad(r, q, "a control byte in a string");
        if (*q == '\\') {
            r->p++;
            SL_TRY(read_escape(r, &w));
            continue;
        }
        uint32_t cp;
        int k = text_utf8_decode(q, (size_t)(r->end - q), &cp);
        if (k == 0) return fail_at(r, q, SL_FORMAT, "not UTF-8");
        for (int i = 0; i < k; i++)
            *w++ = *r->p++;
    }
    r->p++;
    *w++ = 0;
    r->str = w;
    *out = start;
    *n = (size_t)(w - 1 - start);
    return SL_OK;
}

static sl_status read_number(struct reader *r, struct json *v)
{
    const char *at = r->p, *q = at;
    bool neg = q < r->end && *q == '-', real = false, big = false;
    uint64_t mag = 0;
    if (neg) q++;
    const char *digits = q;
    for (; q < r->end && *q >= '0' && *q <= '9'; q++)
        if (__builtin_mul_overflow(mag, 10u, &mag) ||
            __builtin_add_overflow(mag, (uint64_t)(*q - '0'), &mag))
            big = true;
    if (q == digits) return bad(r, q, "expected a value");
    if (*digits == '0' && q - digits > 1) return bad(r, digits, "a number with a leading zero");
    if (q < r->end && *q == '.') {
        const char *frac = ++q;
        while (q < r->end && *q >= '0' && *q <= '9')
            q++;
        if (q == frac) return bad(r, q, "expected a digit after the point");
        real = true;
    }
    if (q < r->end && (*q | 32) == 'e') {
        q++;
        if (q < r->end && (*q == '+' || *q == '-')) q++;
        const char *ex = q;
        while (q < r->end && *q >= '0' && *q <= '9')
            q++;
        if (q == ex) return bad(r, q, "expected a digit in the exponent");
        real = true;
    }
    r->p = q;
    if (!real && !big && mag <= (uint64_t)INT64_MAX + (neg ? 1u : 0u)) {
        v->kind = JSON_INT_K;
        v->i = (int64_t)(neg ? 0 - mag : mag);
        v->f = (double)v->i;
        return SL_OK;
    }
    char small[64], *buf = small;
    size_t n = (size_t)(q - at);
    if (n >= sizeof small)
        SL_TRY(mem_arena_str(r->a, at, n, &buf, r->err));
    else
        memcpy(small, at, n), small[n] = 0;
    v->kind = JSON_REAL_K;
    v->b = !real && !big && !neg;
    v->i = v->b ? (int64_t)mag : 0;
    v->f = text_real_parse(buf);
    if (!isfinite(v->f)) return bad(r, at, "a number out of range");
    return SL_OK;
}

static bool same_key(const struct json *x, const struct json *y)
{
    return x->n_key == y->n_key && memcmp(x->key, y->key, x->n_key) == 0;
}

static sl_status twice(struct reader *r, const struct json *m)
{
    char msg[120];
    snprintf(msg, sizeof msg, "object with the key \"%.60s\" twice", m->key);
    return fail_at(r, r->p - 1, SL_FORMAT, msg);
}

/* No two members of one name: by comparing where they are few, else by a hash table. */
static sl_status check_keys(struct reader *r, const struct json *o)
{
    if (o->n <= 12) {
        for (const struct json *x = o->child; x; x = x->next)
            for (const struct json *y = o->child; y != x; y = y->next)
                if (same_key(x, y)) return twice(r, x);
        return SL_OK;
    }
    size_t cap = 32;
    while (cap < o->n * 2)
        cap *= 2;
    void *p = NULL;
    SL_TRY(mem_alloc_array(r->a->tag, cap, sizeof(struct json *), &p, r->err));
    const struct json **slot = p, *dup = NULL;
    for (const struct json *x = o->child; x && !dup; x = x->next) {
        size_t i = hash_bytes(x->key, x->n_key, 0) & (cap - 1);
        for (; slot[i] && !dup; i = (i + 1) & (cap - 1))
            if (same_key(slot[i], x)) dup = x;
        slot[i] = x;
    }
    mem_free(p);
    return dup ? twice(r, dup) : SL_OK;
}

static sl_status close_top(struct reader *r)
{
    struct json *o = r->stack[--r->depth].node;
    if (o->kind == JSON_OBJECT_K) return check_keys(r, o);
    if (o->n == 0) return SL_OK;
    void *p = NULL;
    SL_TRY(mem_arena_array(r->a, o->n, sizeof(struct json *), &p, r->err));
    const struct json **item = p;
    size_t i = 0;
    for (const struct json *x = o->child; x; x = x->next)
        item[i++] = x;
    o->item = item;
    return SL_OK;
}

/* What Python's json writes and reads though it is no JSON: as texts, so that nobody takes them for
 * numbers that he can compute with. */
static bool read_no_number(struct reader *r, struct json *v)
{
    static const char *const lit[] = {"NaN", "Infinity", "-Infinity"};
    for (int i = 0; r->python && i < BASE_COUNT_OF(lit); i++) {
        size_t n = strlen(lit[i]);
        if ((size_t)(r->end - r->p) < n || memcmp(r->p, lit[i], n) != 0) continue;
        v->kind = JSON_STR_K;
        v->s = lit[i];
        v->n = n;
        r->p += n;
        return true;
    }
    return false;
}

static sl_status read_literal(struct reader *r, struct json *v)
{
    static const struct {
        const char *text;
        size_t n;
        enum json_kind kind;
        bool b;
    } lit[] = {{"true", 4, JSON_BOOL_K, true},
               {"false", 5, JSON_BOOL_K, false},
               {"null", 4, JSON_NULL_K, false}};
    for (int i = 0; i < BASE_COUNT_OF(lit); i++)
        if ((size_t)(r->end - r->p) >= lit[i].n && memcmp(r->p, lit[i].text, lit[i].n) == 0) {
            v->kind = lit[i].kind;
            v->b = lit[i].b;
            r->p += lit[i].n;
            return SL_OK;
        }
    return bad(r, r->p, "expected a value");
}

/* One value; an array or object is only opened. */
static sl_status read_value(struct reader *r, struct json *v)
{
    switch (r->p < r->end ? *r->p : 0) {
    case '{':
    case '[':
        if (r->depth == TEXT_JSON_DEPTH)
            return fail_at(r, r->p, SL_LIMIT, "nested deeper than 128");
        v->kind = *r->p == '{' ? JSON_OBJECT_K : JSON_ARRAY_K;
        r->stack[r->depth++] = (struct frame){.node = v};
        r->p++;
        return SL_OK;
    case '"':
        v->kind = JSON_STR_K;
        return read_string(r, &v->s, &v->n);
    case 't':
    case 'f':
    case 'n':
        return read_literal(r, v);
    default:
        return read_no_number(r, v) ? SL_OK : read_number(r, v);
    }
}

/* The next item of the innermost open array or object: its key, then its value. */
static sl_status read_item(struct reader *r)
{
    struct frame *f = &r->stack[r->depth - 1];
    struct json *v = NULL;
    SL_TRY(new_node(r, &v));
    if (f->node->kind == JSON_OBJECT_K) {
        size_t n;
        if (r->p == r->end || *r->p != '"') return bad(r, r->p, "expected a key in quotes");
        const char *at = r->p;
        SL_TRY(read_string(r, &v->key, &n));
        if (n > UINT32_MAX) return bad(r, at, "a key over 4 GiB");
        v->n_key = (uint32_t)n;
        skip_space(r);
        if (r->p == r->end || *r->p != ':') return bad(r, r->p, "expected ':' after a key");
        r->p++;
        skip_space(r);
    }
    if (f->last)
        f->last->next = v;
    else
        f->node->child = v;
    f->last = v;
    f->node->n++;
    return read_value(r, v);
}

static sl_status read_all(struct reader *r, struct json *root)
{
    skip_space(r);
    SL_TRY(read_value(r, root));
    while (r->depth > 0) {
        struct json *o = r->stack[r->depth - 1].node;
        char close = o->kind == JSON_OBJECT_K ? '}' : ']';
        skip_space(r);
        if (r->p < r->end && *r->p == close) {
            r->p++;
            SL_TRY(close_top(r));
            continue;
        }
        if (o->n > 0) {
            if (r->p == r->end || *r->p != ',')
                return bad(r, r->p, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
            r->p++;
            skip_space(r);
        }
        SL_TRY(read_item(r));
    }
    skip_space(r);
    return r->p == r->end ? SL_OK : bad(r, r->p, "something after the value");
}

static sl_status read_text(struct reader *r, size_t n, const struct json **out)
{
    void *buf = NULL;
    struct json *root = NULL;
    const char *p = r->base;
    r->p = p + text_utf8_bom(p, n);
    r->end = p + n;
    if (n >= 2 && (memcmp(p, "\xff\xfe", 2) == 0 || memcmp(p, "\xfe\xff", 2) == 0))
        return bad(r, p, "a byte order mark of UTF-16: save the text as UTF-8");
    SL_TRY(mem_arena_alloc(r->a, n + 1, &buf, r->err));
    r->str = buf;
    SL_TRY(new_node(r, &root));
    SL_TRY(read_all(r, root));
    *out = root;
    return SL_OK;
}

sl_status text_json_parse(struct arena *a, const char *what, const char *p, size_t n,
                          const struct json **out, sl_err *err)
{
    struct reader r = {.a = a, .what = what, .base = p, .err = err};
    return read_text(&r, n, out);
}

sl_status text_json_parse_python(struct arena *a, const char *what, const char *p, size_t n,
                                 const struct json **out, sl_err *err)
{
    struct reader r = {.a = a, .what = what, .base = p, .err = err, .python = true};
    return read_text(&r, n, out);
}

sl_status text_json_probe(struct arena *a, const char *p, size_t n, const struct json **out,
                          sl_err *err)
{
    *out = NULL;
    if (text_json_parse(a, "", p, n, out, NULL) == SL_NOMEM)
        return SL_FAIL(err, NOMEM, "out of memory: JSON of %zu bytes", n);
    return SL_OK;
}

/* ---- access ---- */

const struct json *text_json_get(const struct json *o, const char *key)
{
    if (!o || o->kind != JSON_OBJECT_K) return NULL;
    size_t n = strlen(key);
    for (const struct json *m = o->child; m; m = m->next)
        if (m->n_key == n && memcmp(m->key, key, n) == 0) return m;
    return NULL;
}

bool text_json_is(const struct json *v, const char *z)
{
    return v && v->kind == JSON_STR_K && v->n == strlen(z) && memcmp(v->s, z, v->n) == 0;
}

const char *text_json_kind_text(enum json_kind k)
{
    static const char *const text[] = {"null",     "a bool",   "an integer", "a real",
                                       "a string", "an array", "an object"};
    return (unsigned)k < (unsigned)BASE_COUNT_OF(text) ? text[k] : "?";
}

static const struct json *get_set(const struct json *o, const char *key)
{
    const struct json *v = text_json_get(o, key);
    return v && v->kind != JSON_NULL_K ? v : NULL;
}

static sl_status wrong(const struct json *v, const char *key, const char *want, sl_err *err)
{
    return SL_FAIL(err, FORMAT, "%s is %s, not %s", key, text_json_kind_text(v->kind), want);
}

sl_status text_json_int(const struct json *o, const char *key, int64_t def, int64_t *out,
                        sl_err *err)
{
    const struct json *v = get_set(o, key);
    if (!v)
        *out = def;
    else if (v->kind == JSON_INT_K)
        *out = v->i;
    else if (v->kind == JSON_REAL_K && v->f == floor(v->f) && fabs(v->f) < 9007199254740992.0)
        *out = (int64_t)v->f;
    else
        return wrong(v, key, "an integer", err);
    return SL_OK;
}

sl_status text_json_real(const struct json *o, const char *key, double def, double *out,
                         sl_err *err)
{
    const struct json *v = get_set(o, key);
    if (v && v->kind != JSON_INT_K && v->kind != JSON_REAL_K) return wrong(v, key, "a number", err);
    *out = v ? v->f : def;
    return SL_OK;
}

sl_status text_json_bool(const struct json *o, const char *key, bool def, bool *out, sl_err *err)
{
    const struct json *v = get_set(o, key);
    if (v && v->kind != JSON_BOOL_K) return wrong(v, key, "true or false", err);
    *out = v ? v->b : def;
    return SL_OK;
}

sl_status text_json_str(const struct json *o, const char *key, const char *def, const char **out,
                        sl_err *err)
{
    const struct json *v = get_set(o, key);
    if (v && v->kind != JSON_STR_K) return wrong(v, key, "a string", err);
    *out = v ? v->s : def;
    return SL_OK;
}
