/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions: small trees in the builder's arena. A failure sticks to the builder and everything
 * after it is empty, so front ends need not look at each step. */
#include "grammar/dfa.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUILD_MAX_BYTES ((size_t)48 << 20)
#define BUILD_MAX_RULE 65536
#define BUILD_STEPS (3 * 1000 * 1000) /* about 50 ms */

static const struct ir empty = {.kind = IR_EMPTY}, never = {.kind = IR_NEVER};

void grammar_build_init(struct build *b, struct loose *loose, sl_err *err)
{
    memset(b, 0, sizeof *b);
    b->loose = loose;
    b->left = BUILD_STEPS;
    loose->n = 0;
    loose->failed = -1;
    str_clear(&loose->note);
    mem_arena_init(&b->a, MEM_REQUEST, BUILD_MAX_BYTES);
    b->err = err;
}

void grammar_build_fini(struct build *b)
{
    mem_arena_fini(&b->a);
    mem_free(b->rule);
}

void grammar_build_fail(struct build *b, sl_status code, const char *fmt, ...)
{
    char text[sizeof b->err->text];
    va_list ap;
    if (b->st) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    b->st = status_fail(b->err, code, __FILE__, __LINE__, "%s", text);
}

void *grammar_build_alloc(struct build *b, size_t n, size_t size)
{
    void *p = NULL;
    if (b->st) return NULL;
    sl_err err = {0};
    sl_status st = mem_arena_array(&b->a, n, size, &p, &err);
    if (!st) return p;
    if (b->a.total + n * size > BUILD_MAX_BYTES / 2)
        grammar_build_fail(b, SL_LIMIT, "grammar: too large: over %zu MiB", BUILD_MAX_BYTES >> 20);
    else
        grammar_build_fail(b, st, "%s", err.text);
    return NULL;
}

const struct ir *grammar_ir_empty(struct build *b)
{
    (void)b;
    return &empty;
}

const struct ir *grammar_ir_never(struct build *b)
{
    (void)b;
    return &never;
}

static struct ir *new_ir(struct build *b, enum ir_kind kind)
{
    struct ir *e = grammar_build_alloc(b, 1, sizeof *e);
    if (e) e->kind = kind;
    return e;
}

const struct ir *grammar_ir_lit(struct build *b, const char *p, size_t n)
{
    char *copy = NULL;
    if (n == 0) return &empty;
    struct ir *e = new_ir(b, IR_LIT);
    if (e) copy = grammar_build_alloc(b, n, 1);
    if (!copy) return &never;
    memcpy(copy, p, n);
    e->p = copy;
    e->n = (uint32_t)n;
    return e;
}

const struct ir *grammar_ir_litz(struct build *b, const char *z)
{
    return grammar_ir_lit(b, z, strlen(z));
}

const struct ir *grammar_ir_lit_json(struct build *b, const char *p, size_t n)
{
    struct str s;
    str_init(&s, MEM_REQUEST, 0);
    text_json_escape(&s, p, n);
    if (s.failed) grammar_build_fail(b, s.failed, "out of memory");
    const struct ir *e = grammar_ir_lit(b, str_c(&s), s.n);
    str_fini(&s);
    return e;
}

static int by_lo(const void *a, const void *b)
{
    const struct ir_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* r[0..n) sorted and merged in place; surrogates cut out later by the byte edges. */
static size_t merge(struct ir_range *r, size_t n)
{
    size_t m = 0;
    qsort(r, n, sizeof *r, by_lo);
    for (size_t i = 0; i < n; i++) {
        if (m && r[i].lo <= r[m - 1].hi + 1) {
            if (r[i].hi > r[m - 1].hi) r[m - 1].hi = r[i].hi;
        } else {
            r[m++] = r[i];
        }
    }
    return m;
}

static size_t negated(const struct ir_range *r, size_t n, struct ir_range *out)
{
    uint32_t at = 0;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (r[i].lo > at) out[m++] = (struct ir_range){at, r[i].lo - 1};
        at = r[i].hi + 1;
    }
    if (at <= 0x10ffff) out[m++] = (struct ir_range){at, 0x10ffff};
    return m;
}

/* Plain characters: U+0020 and up but for ", \ and U+007F. */
static bool covers_plain(const struct ir_range *r, size_t n)
{
    static const struct ir_range plain[] = {
        {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, 0xd7ff}, {0xe000, 0x10ffff}};
    size_t i = 0;
    for (int k = 0; k < BASE_COUNT_OF(plain); k++) {
        while (i < n && r[i].hi < plain[k].hi)
            i++;
        if (i == n || r[i].lo > plain[k].lo) return false;
    }
    return true;
}

const struct ir *grammar_ir_class(struct build *b, const struct ir_range *r, size_t n, bool negate,
                                  bool json)
{
    struct ir *e = new_ir(b, IR_CLASS);
    struct ir_range *v = e ? grammar_build_alloc(b, n + 1, sizeof *v) : NULL;
    struct ir_range *w = v && negate ? grammar_build_alloc(b, n + 1, sizeof *w) : v;
    if (!w) return &never;
    if (n) memcpy(v, r, n * sizeof *v);
    n = merge(v, n);
    if (negate) n = negated(v, n, w);
    if (n == 0) return &never;
    e->range = w;
    e->n = (uint32_t)n;
    e->json = json;
    e->plain = covers_plain(w, n);
    return e;
}

static const struct ir *with_kids(struct build *b, enum ir_kind kind, const struct ir *const *kid,
                                  size_t n)
{
    struct ir *e = new_ir(b, kind);
    const struct ir **v = e ? grammar_build_alloc(b, n + 1, sizeof *v) : NULL;
    if (!v) return &never;
    if (n) memcpy(v, kid, n * sizeof *v);
    e->kid = v;
    e->n = (uint32_t)n;
    return e;
}

const struct ir *grammar_ir_seq(struct build *b, const struct ir *const *kid, size_t n)
{
    if (n == 0) return &empty;
    return n == 1 ? kid[0] : with_kids(b, IR_SEQ, kid, n);
}

const struct ir *grammar_ir_alt(struct build *b, const struct ir *const *kid, size_t n)
{
    if (n == 0) return &never;
    return n == 1 ? kid[0] : with_kids(b, IR_ALT, kid, n);
}

const struct ir *grammar_ir_rep(struct build *b, const struct ir *kid, uint32_t min, uint32_t max)
{
    if (max == 0 || kid->kind == IR_EMPTY) return &empty;
    if (min == 1 && max == 1) return kid;
    struct ir *e = (struct ir *)with_kids(b, IR_REP, &kid, 1);
    if (e->kind != IR_REP) return e;
    e->min = min;
    e->max = max;
    return e;
}

const struct ir *grammar_ir_opt(struct build *b, const struct ir *kid)
{
    return grammar_ir_rep(b, kid, 0, 1);
}

const struct ir *grammar_ir_digits(struct build *b, const struct ir_digit *row, uint32_t n,
                                   const uint32_t *start, uint32_t n_start)
{
    if (n_start == 0) return &never;
    struct ir *e = new_ir(b, IR_DIGITS);
    struct ir_digit *v = e ? grammar_build_alloc(b, n, sizeof *v) : NULL;
    uint32_t *s = v ? grammar_build_alloc(b, n_start, sizeof *s) : NULL;
    if (!s) return &never;
    memcpy(v, row, n * sizeof *v);
    memcpy(s, start, n_start * sizeof *s);
    e->row = v;
    e->n = n;
    e->start = s;
    e->min = n_start;
    return e;
}

const struct ir *grammar_ir_auto(struct build *b, const struct dfa *d, bool json)
{
    struct ir *e = d && d->n ? new_ir(b, IR_AUTO) : NULL;
    if (!e) return &never;
    e->dfa = d;
    e->json = json;
    return e;
}

const struct ir *grammar_ir_graph(struct build *b, const struct ir_arc *arc, uint32_t n,
                                  uint32_t n_state)
{
    struct ir *e = new_ir(b, IR_GRAPH);
    if (!e) return &never;
    e->arc = arc;
    e->n = n;
    e->min = n_state;
    return e;
}

static const struct ir *rule_of(struct build *b, const struct ir *e)
{
    int rule = grammar_rule_new(b, "repeat", 6);
    grammar_rule_set(b, rule, e);
    return grammar_ir_call(b, rule);
}

/* ---- large counts ---- */

struct count {
    struct build *b;
    const struct ir *kid, *unit[32],
        *less[32]; /* unit[i]: 2^i blocks; less[i]: at least one less */
    uint32_t block;
};

static const struct ir *unit(struct count *c, int i)
{
    struct build *b = c->b;
    if (!c->unit[i])
        c->unit[i] = i ? rule_of(b, grammar_ir_seqv(b, unit(c, i - 1), unit(c, i - 1), NULL, NULL))
                       : rule_of(b, grammar_ir_rep(b, c->kid, c->block, c->block));
    return c->unit[i];
}

static const struct ir *less(struct count *c, int i)
{
    struct build *b = c->b;
    if (!c->less[i] && i == 0) c->less[0] = rule_of(b, grammar_ir_rep(b, c->kid, 0, c->block - 1));
    if (!c->less[i]) {
        const struct ir *k[2] = {less(c, i - 1),
                                 grammar_ir_seqv(b, unit(c, i - 1), less(c, i - 1), NULL, NULL)};
        c->less[i] = rule_of(b, grammar_ir_alt(b, k, 2));
    }
    return c->less[i];
}

static int blocks_of(const struct count *c, uint32_t n)
{
    return 31 - __builtin_clz(n / c->block);
}

static const struct ir *up_to(struct count *c, uint32_t n)
{
    if (n < c->block) return grammar_ir_rep(c->b, c->kid, 0, n);
    int i = blocks_of(c, n);
    const struct ir *k[2] = {
        less(c, i), grammar_ir_seqv(c->b, unit(c, i), up_to(c, n - (c->block << i)), NULL, NULL)};
    return grammar_ir_alt(c->b, k, 2);
}

static const struct ir *exactly(struct count *c, uint32_t n)
{
    struct ir_list l = {0};
    while (n >= c->block) {
        int i = blocks_of(c, n);
        grammar_ir_list_add(c->b, &l, unit(c, i));
        n -= c->block << i;
    }
    grammar_ir_list_add(c->b, &l, grammar_ir_rep(c->b, c->kid, n, n));
    return grammar_ir_seq(c->b, l.v, l.n);
}

const struct ir *grammar_ir_count(struct build *b, const struct ir *kid, uint32_t min, uint32_t max,
                                  uint32_t block)
{
    struct count c = {.b = b, .kid = kid, .block = block};
    if ((max == GRAMMAR_INF ? min : max) <= 4 * block) return grammar_ir_rep(b, kid, min, max);
    const struct ir *first = exactly(&c, min);
    return grammar_ir_seqv(
        b, first, max == GRAMMAR_INF ? grammar_ir_rep(b, kid, 0, max) : up_to(&c, max - min), NULL,
        NULL);
}

const struct ir *grammar_ir_call(struct build *b, int rule)
{
    struct ir *e = new_ir(b, IR_CALL);
    if (!e || rule < 0) return &never;
    e->rule = rule;
    return e;
}

const struct ir *grammar_ir_seqv(struct build *b, const struct ir *k0, const struct ir *k1,
                                 const struct ir *k2, const struct ir *k3)
{
    const struct ir *v[4] = {k0, k1, k2, k3};
    size_t n = 0;
    while (n < 4 && v[n])
        n++;
    return grammar_ir_seq(b, v, n);
}

void grammar_ir_list_add(struct build *b, struct ir_list *l, const struct ir *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        const struct ir **v = grammar_build_alloc(b, cap, sizeof *v);
        if (!v) return;
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = e;
}

int grammar_rule_new(struct build *b, const char *name, size_t n)
{
    char *z = NULL;
    if (b->st) return -1;
    if (b->n_rule == BUILD_MAX_RULE) {
        grammar_build_fail(b, SL_LIMIT, "grammar: more than %d rules", BUILD_MAX_RULE);
        return -1;
    }
    if (b->n_rule == b->cap_rule) {
        int cap = b->cap_rule ? 2 * b->cap_rule : 64;
        void *p = NULL;
        b->st = mem_realloc(MEM_REQUEST, b->rule, (size_t)cap * sizeof *b->rule, &p, b->err);
        if (b->st) return -1;
        b->rule = p;
        b->cap_rule = cap;
    }
    if (n > 120) n = 120;
    z = grammar_build_alloc(b, n + 1, 1);
    if (!z) return -1;
    memcpy(z, name, n);
    b->rule[b->n_rule] = (struct rule){.body = &never, .name = z};
    return b->n_rule++;
}

void grammar_rule_set(struct build *b, int rule, const struct ir *body)
{
    if (!b->st && rule >= 0) b->rule[rule].body = body;
}

bool grammar_hex(const char *p, size_t n, int n_digit, size_t *i, uint32_t *v)
{
    *v = 0;
    for (int k = 0; k < n_digit; k++, ++*i) {
        int c = *i < n ? p[*i] : 0, low = c | 32;
        int d = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (d < 0) return false;
        *v = *v << 4 | (uint32_t)d;
    }
    return true;
}
