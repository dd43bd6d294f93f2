/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions become an automaton with empty steps, and that a deterministic one by the usual
 * construction of sets; products and complements are made from those. All work is bounded: by
 * states, by edges and by steps. */
#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/utf8.h"

#define TOP 0x10ffff
#define MAX_EDGE (1 << 18)
#define MAX_NFA 60000

/* ---- a deterministic automaton while it is made ---- */

struct maker {
    struct build *b;
    uint32_t *first, n, cap_first; /* first[i]: of the states that are complete */
    struct dfa_edge *edge;
    uint32_t n_edge, cap_edge;
    uint8_t *end;
    uint32_t cap_end;
    bool over;
};

static void edge_put(struct maker *m, uint32_t lo, uint32_t hi, uint32_t to)
{
    struct build *b = m->b;
    struct dfa_edge *last = m->n_edge > m->first[m->n] ? &m->edge[m->n_edge - 1] : NULL;
    if (last && last->to == to && last->hi + 1 == lo) {
        last->hi = hi;
        return;
    }
    m->over |= m->n_edge >= MAX_EDGE || --b->left < 0;
    if (m->over || b->st) return;
    b->st = grammar_grow(&m->edge, &m->cap_edge, (uint64_t)m->n_edge + 1, sizeof *m->edge, b->err);
    if (!b->st) m->edge[m->n_edge++] = (struct dfa_edge){lo, hi, to};
}

/* The edges of the next state follow. */
static bool state_begin(struct maker *m, bool end)
{
    struct build *b = m->b;
    if (!b->st) b->st = grammar_grow(&m->first, &m->cap_first, (uint64_t)m->n + 2, 4, b->err);
    if (!b->st) b->st = grammar_grow(&m->end, &m->cap_end, (uint64_t)m->n + 1, 1, b->err);
    if (b->st) return false;
    m->first[m->n] = m->n_edge;
    m->end[m->n] = end;
    return true;
}

static void state_end(struct maker *m)
{
    m->n++;
}

/* good[s]: an end can be reached. */
static void mark_good(const struct maker *m, uint8_t *good)
{
    bool more = true;
    for (uint32_t s = 0; s < m->n; s++)
        good[s] = m->end[s];
    while (more) { /* states were numbered from the start on: few rounds from the last one down */
        more = false;
        for (uint32_t s = m->n; s-- > 0;)
            for (uint32_t e = m->first[s]; e < m->first[s + 1] && !good[s]; e++)
                if (good[m->edge[e].to]) good[s] = more = true;
    }
}

/* Into the arena, without the states that lead to no end. */
static const struct dfa *finish(struct maker *m)
{
    struct build *b = m->b;
    struct dfa *d = NULL;
    if (m->n && !m->over && !b->st) {
        m->first[m->n] = m->n_edge;
        uint8_t *good = grammar_build_alloc(b, m->n, 1);
        uint32_t *number = grammar_build_alloc(b, m->n, 4),
                 *first = grammar_build_alloc(b, (size_t)m->n + 1, 4), n = 0, k = 0;
        struct dfa_edge *edge = grammar_build_alloc(b, (size_t)m->n_edge + 1, sizeof *edge);
        uint8_t *end = grammar_build_alloc(b, (size_t)m->n + 1, 1);
        d = end ? grammar_build_alloc(b, 1, sizeof *d) : NULL;
        if (d) {
            mark_good(m, good);
            for (uint32_t s = 0; s < m->n; s++)
                number[s] = n, n += good[s];
            if (!good[0]) n = 0;
            for (uint32_t s = 0; n && s < m->n; s++) {
                if (!good[s]) continue;
                first[number[s]] = k;
                end[number[s]] = m->end[s];
                for (uint32_t e = m->first[s]; e < m->first[s + 1]; e++)
                    if (good[m->edge[e].to])
                        edge[k++] =
                            (struct dfa_edge){m->edge[e].lo, m->edge[e].hi, number[m->edge[e].to]};
            }
            first[n] = k;
            *d = (struct dfa){n, k, first, edge, end};
        }
    }
    mem_free(m->first);
    mem_free(m->edge);
    mem_free(m->end);
    return d;
}

/* ---- numbers of keys ---- */

struct keys { /* keys of words, each of any length, numbered as they come */
    struct build *b;
    uint32_t *pool, n_pool, cap_pool;
    uint32_t *at, n, cap_at; /* at[i] .. at[i + 1] */
    uint32_t *slot, n_slot;
};

static void slots_grow(struct keys *k)
{
    void *p = NULL;
    uint32_t n = k->n_slot ? 4 * k->n_slot : 256;
    if (k->b->st || 2 * k->n < k->n_slot) return;
    k->b->st = mem_alloc_array(MEM_REQUEST, n, 4, &p, k->b->err);
    if (k->b->st) return;
    uint32_t *s = p;
    for (uint32_t i = 0; i < k->n; i++) {
        size_t len = (size_t)(k->at[i + 1] - k->at[i]) * 4;
        uint32_t h = (uint32_t)hash_bytes(&k->pool[k->at[i]], len, 0) & (n - 1);
        while (s[h])
            h = (h + 1) & (n - 1);
        s[h] = i + 1;
    }
    mem_free(k->slot);
    k->slot = s;
    k->n_slot = n;
}

static uint32_t key_number(struct keys *k, const uint32_t *v, uint32_t n)
{
    struct build *b = k->b;
    slots_grow(k);
    if (!b->st) b->st = grammar_grow(&k->at, &k->cap_at, (uint64_t)k->n + 2, 4, b->err);
    if (b->st) return 0;
    k->at[k->n] = k->n_pool;
    uint32_t h = (uint32_t)hash_bytes(v, (size_t)n * 4, 0) & (k->n_slot - 1);
    for (; k->slot[h]; h = (h + 1) & (k->n_slot - 1)) {
        uint32_t i = k->slot[h] - 1;
        if (k->at[i + 1] - k->at[i] == n && (!n || !memcmp(&k->pool[k->at[i]], v, (size_t)n * 4)))
            return i;
    }
    b->st = grammar_grow(&k->pool, &k->cap_pool, (uint64_t)k->n_pool + n, 4, b->err);
    if (b->st) return 0;
    if (n) memcpy(&k->pool[k->n_pool], v, (size_t)n * 4);
    k->n_pool += n;
    k->at[k->n + 1] = k->n_pool;
    k->slot[h] = k->n + 1;
    return k->n++;
}

static void keys_free(struct keys *k)
{
    mem_free(k->pool);
    mem_free(k->at);
    mem_free(k->slot);
}

/* ---- expressions to an automaton with empty steps ---- */

struct step { /* lo > hi: takes nothing */
    uint32_t lo, hi, to, next;
};
struct steps {
    struct build *b;
    uint32_t *head, n, cap; /* head: 1 + step */
    struct step *step;
    uint32_t n_step, cap_step;
    bool over;
};

static uint32_t new_state(struct steps *a)
{
    struct build *b = a->b;
    a->over |= a->n >= MAX_NFA;
    if (a->over || b->st) return 0;
    b->st = grammar_grow(&a->head, &a->cap, (uint64_t)a->n + 1, 4, b->err);
    if (b->st) return 0;
    a->head[a->n] = 0;
    return a->n++;
}

static void put_step(struct steps *a, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    struct build *b = a->b;
    a->over |= a->n_step >= MAX_EDGE || --b->left < 0;
    if (a->over || b->st) return;
    b->st = grammar_grow(&a->step, &a->cap_step, (uint64_t)a->n_step + 1, sizeof *a->step, b->err);
    if (b->st) return;
    a->step[a->n_step] = (struct step){lo, hi, to, a->head[from]};
    a->head[from] = ++a->n_step;
}

static uint32_t steps_of(struct steps *a, const struct ir *e, uint32_t next);

static uint32_t literal(struct steps *a, const struct ir *e, uint32_t next)
{
    size_t i = e->n;
    while (i && !a->b->st && !a->over) { /* from back to front */
        uint32_t cp = 0, s = new_state(a);
        do
            i--;
        while (i && ((unsigned char)e->p[i] & 0xc0) == 0x80);
        text_utf8_decode(e->p + i, e->n - i, &cp);
        put_step(a, s, cp, cp, next);
        next = s;
    }
    return next;
}

static uint32_t repeat(struct steps *a, const struct ir *e, uint32_t next)
{
    uint32_t s = next;
    if (e->max == GRAMMAR_INF) {
        s = new_state(a);
        put_step(a, s, 1, 0, steps_of(a, e->kid[0], s));
        put_step(a, s, 1, 0, next);
    }
    for (uint32_t i = e->min; e->max != GRAMMAR_INF && i < e->max && !a->over && !a->b->st; i++) {
        uint32_t o = new_state(a);
        put_step(a, o, 1, 0, steps_of(a, e->kid[0], s));
        put_step(a, o, 1, 0, next);
        s = o;
    }
    for (uint32_t i = 0; i < e->min && !a->over && !a->b->st; i++)
        s = steps_of(a, e->kid[0], s);
    return s;
}

static uint32_t embed(struct steps *a, const struct dfa *d, uint32_t next)
{
    uint32_t base = a->n, s = 0;
    if (d->n == 0) return new_state(a);
    for (uint32_t i = 0; i < d->n; i++)
        s = new_state(a);
    if (a->over || a->b->st) return s;
    for (uint32_t i = 0; i < d->n; i++) {
        for (uint32_t e = d->first[i]; e < d->first[i + 1]; e++)
            put_step(a, base + i, d->edge[e].lo, d->edge[e].hi, base + d->edge[e].to);
        if (d->end[i]) put_step(a, base + i, 1, 0, next);
    }
    return base;
}

/* Recursion: as deep as expressions nest. */
static uint32_t steps_of(struct steps *a, const struct ir *e, uint32_t next)
{
    uint32_t s;
    if (a->over || a->b->st) return 0;
    switch (e->kind) {
    case IR_EMPTY:
        return next;
    case IR_NEVER:
        return new_state(a);
    case IR_LIT:
        return literal(a, e, next);
    case IR_CLASS:
        s = new_state(a);
        for (uint32_t i = 0; i < e->n; i++)
            put_step(a, s, e->range[i].lo, e->range[i].hi, next);
        return s;
    case IR_SEQ:
        for (uint32_t i = e->n; i-- > 0;)
            next = steps_of(a, e->kid[i], next);
        return next;
    case IR_ALT:
        s = new_state(a);
        for (uint32_t i = 0; i < e->n; i++)
            put_step(a, s, 1, 0, steps_of(a, e->kid[i], next));
        return s;
    case IR_REP:
        return repeat(a, e, next);
    case IR_AUTO:
        return embed(a, e->dfa, next);
    default: /* calls and what is built of them */
        a->over = true;
        return 0;
    }
}

/* ---- sets of states ---- */

struct sets {
    struct steps *a;
    struct keys k;
    uint32_t *stamp, mark, *todo, *set, n_set;
    struct step *out; /* of one set */
    uint32_t n_out, cap_out;
    uint32_t *cut, n_cut, cap_cut;
};

static void add(struct sets *v, uint32_t s)
{
    uint32_t n = 0;
    if (v->stamp[s] == v->mark) return;
    v->stamp[s] = v->mark;
    v->todo[n++] = s;
    while (n) {
        bool takes = (s = v->todo[--n]) == 0;
        for (uint32_t i = v->a->head[s]; i; i = v->a->step[i - 1].next) {
            const struct step *t = &v->a->step[i - 1];
            takes |= t->lo <= t->hi;
            v->a->b->left--;
            if (t->lo <= t->hi || v->stamp[t->to] == v->mark) continue;
            v->stamp[t->to] = v->mark;
            v->todo[n++] = t->to;
        }
        if (takes) v->set[v->n_set++] = s;
    }
}

static int by_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t set_number(struct sets *v)
{
    if (v->n_set > 1) qsort(v->set, v->n_set, 4, by_u32);
    return key_number(&v->k, v->set, v->n_set);
}

/* The steps out of set i, and where their ranges begin and end. */
static void gather(struct sets *v, uint32_t i)
{
    struct build *b = v->a->b;
    v->n_out = v->n_cut = 0;
    for (uint32_t k = v->k.at[i]; k < v->k.at[i + 1]; k++)
        for (uint32_t j = v->a->head[v->k.pool[k]]; j && !b->st; j = v->a->step[j - 1].next) {
            const struct step *t = &v->a->step[j - 1];
            if (t->lo > t->hi) continue;
            b->st =
                grammar_grow(&v->out, &v->cap_out, (uint64_t)v->n_out + 1, sizeof *v->out, b->err);
            if (!b->st)
                b->st = grammar_grow(&v->cut, &v->cap_cut, (uint64_t)v->n_cut + 2, 4, b->err);
            if (b->st) return;
            v->out[v->n_out++] = *t;
            v->cut[v->n_cut++] = t->lo;
            v->cut[v->n_cut++] = t->hi + 1;
        }
    if (v->n_cut) qsort(v->cut, v->n_cut, 4, by_u32);
}

static void determine(struct sets *v, struct maker *m)
{
    for (uint32_t i = 0; i < v->k.n && !m->over && !m->b->st; i++) {
        bool end = v->k.at[i + 1] > v->k.at[i] && v->k.pool[v->k.at[i]] == 0;
        gather(v, i);
        if (!state_begin(m, end)) return;
        for (uint32_t c = 0; c + 1 < v->n_cut && !m->over && !m->b->st; c++) {
            uint32_t lo = v->cut[c], hi = v->cut[c + 1] - 1;
            if (v->cut[c] == v->cut[c + 1]) continue;
            v->mark++;
            v->n_set = 0;
            for (uint32_t k = 0; k < v->n_out; k++)
                if (v->out[k].lo <= lo && v->out[k].hi >= lo) add(v, v->out[k].to);
            v->a->b->left -= v->n_out;
            if (v->n_set) edge_put(m, lo, hi, set_number(v));
            m->over |= v->a->b->left < 0 || v->k.n > DFA_MAX_STATE;
        }
        state_end(m);
    }
}

const struct dfa *grammar_dfa_of(struct build *b, const struct ir *e)
{
    struct steps a = {.b = b};
    struct maker m = {.b = b};
    struct sets v = {.a = &a, .k = {.b = b}};
    if (b->left < 0) return NULL;
    new_state(&a); /* 0: the end */
    uint32_t start = steps_of(&a, e, 0);
    v.stamp = grammar_build_alloc(b, a.n, 4);
    v.todo = grammar_build_alloc(b, a.n, 4);
    v.set = grammar_build_alloc(b, a.n, 4);
    m.over = a.over;
    if (v.set && !m.over) {
        v.mark = 1;
        add(&v, start);
        set_number(&v);
        determine(&v, &m);
    }
    keys_free(&v.k);
    mem_free(v.out);
    mem_free(v.cut);
    mem_free(a.head);
    mem_free(a.step);
    return finish(&m);
}

/* ---- complement, product ---- */

const struct dfa *grammar_dfa_not(struct build *b, const struct dfa *d)
{
    struct maker m = {.b = b};
    for (uint32_t s = 0; d && s < d->n; s++) {
        uint32_t at = 0;
        if (!state_begin(&m, !d->end[s])) break;
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            if (d->edge[e].lo > at) edge_put(&m, at, d->edge[e].lo - 1, d->n);
            edge_put(&m, d->edge[e].lo, d->edge[e].hi, d->edge[e].to);
            at = d->edge[e].hi + 1;
        }
        if (at <= TOP) edge_put(&m, at, TOP, d->n);
        state_end(&m);
    }
    m.over |= !d;
    if (!m.over && state_begin(&m, true)) { /* anything after what d does not take */
        edge_put(&m, 0, TOP, d->n);
        state_end(&m);
    }
    return finish(&m);
}

const struct dfa *grammar_dfa_and(struct build *b, const struct dfa *x, const struct dfa *y)
{
    struct maker m = {.b = b};
    struct keys k = {.b = b};
    m.over = !x || !y || b->left < 0;
    if (!m.over) key_number(&k, (uint32_t[2]){0, 0}, 2);
    if (!m.over && (!x->n || !y->n)) {
        if (state_begin(&m, false)) state_end(&m);
        k.n = 0;
    }
    for (uint32_t i = 0; i < k.n && !m.over && !b->st; i++) {
        uint32_t s = k.pool[k.at[i]], t = k.pool[k.at[i] + 1];
        uint32_t e = x->first[s], f = y->first[t];
        if (!state_begin(&m, x->end[s] && y->end[t])) break;
        while (e < x->first[s + 1] && f < y->first[t + 1] && !b->st) {
            const struct dfa_edge *p = &x->edge[e], *q = &y->edge[f];
            uint32_t lo = BASE_MAX(p->lo, q->lo), hi = BASE_MIN(p->hi, q->hi);
            if (lo <= hi) edge_put(&m, lo, hi, key_number(&k, (uint32_t[2]){p->to, q->to}, 2));
            bool next_e = p->hi <= q->hi, next_f = q->hi <= p->hi;
            e += next_e;
            f += next_f;
        }
        state_end(&m);
        m.over |= k.n > DFA_MAX_STATE;
    }
    keys_free(&k);
    return finish(&m);
}

const struct dfa *grammar_dfa_or(struct build *b, const struct dfa *x, const struct dfa *y)
{
    return grammar_dfa_not(b, grammar_dfa_and(b, grammar_dfa_not(b, x), grammar_dfa_not(b, y)));
}

const struct dfa *grammar_dfa_length(struct build *b, uint32_t min, uint32_t max)
{
    struct maker m = {.b = b};
    uint32_t n = max == GRAMMAR_INF ? min : max;
    m.over = n >= DFA_MAX_STATE;
    for (uint32_t i = 0; i <= n && !m.over && state_begin(&m, i >= min && min <= max); i++) {
        if (i < n || max == GRAMMAR_INF) edge_put(&m, 0, TOP, BASE_MIN(i + 1, n));
        state_end(&m);
    }
    return finish(&m);
}

uint32_t grammar_dfa_longest(struct build *b, const struct dfa *d)
{
    uint32_t *n_in = grammar_build_alloc(b, (size_t)d->n + 1, 4), *far = NULL, *todo = NULL;
    uint32_t n = 0, done = 0, best = 0;
    if (n_in) far = grammar_build_alloc(b, (size_t)d->n + 1, 4);
    if (far) todo = grammar_build_alloc(b, (size_t)d->n + 1, 4);
    if (!todo) return GRAMMAR_INF;
    for (uint32_t e = 0; e < d->n_edge; e++)
        n_in[d->edge[e].to]++;
    if (d->n && !n_in[0]) todo[n++] = 0; /* all others can be reached from it */
    while (done < n) {
        uint32_t s = todo[done++];
        best = BASE_MAX(best, far[s]);
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            uint32_t to = d->edge[e].to;
            far[to] = BASE_MAX(far[to], far[s] + 1);
            if (--n_in[to] == 0) todo[n++] = to;
        }
    }
    return done == d->n ? best : GRAMMAR_INF;
}

bool grammar_dfa_takes(const struct dfa *d, const char *p, size_t n)
{
    uint32_t s = 0;
    for (size_t i = 0; d->n && i < n;) {
        uint32_t cp = 0, e = d->first[s];
        int k = text_utf8_decode(p + i, n - i, &cp);
        if (!k) return false;
        i += (size_t)k;
        while (e < d->first[s + 1] && d->edge[e].hi < cp)
            e++;
        if (e == d->first[s + 1] || d->edge[e].lo > cp) return false;
        s = d->edge[e].to;
    }
    return d->n && d->end[s];
}
