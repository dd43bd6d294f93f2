/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of code points as edges over the bytes of UTF-8: ranges are cut where the number of
 * bytes changes and where a leading byte does not go with all continuation bytes; equal tails are
 * shared. Surrogates have no bytes and drop out. */
#include <string.h>

#include "grammar/dfa.h"
#include "grammar/nfa_internal.h"
#include "text/utf8.h"

#define N_MEMO 64
struct memo { /* edge (lo, hi) -> to that some state already is */
    uint8_t lo, hi;
    uint32_t to, state;
};
struct maker {
    struct nfa *a;
    uint32_t start, next;
    struct memo memo[N_MEMO];
    int n_memo;
    uint32_t escape, u00, u00x[2]; /* states inside escapes; 0 = none yet */
};

/* A state whose only edge is lo..hi -> to. */
static uint32_t step(struct maker *m, uint8_t lo, uint8_t hi, uint32_t to)
{
    for (int i = 0; i < m->n_memo; i++)
        if (m->memo[i].lo == lo && m->memo[i].hi == hi && m->memo[i].to == to)
            return m->memo[i].state;
    uint32_t s = grammar_nfa_state(m->a);
    grammar_nfa_edge(m->a, s, EDGE_BYTE, lo | (uint32_t)hi << 8, to);
    if (m->n_memo < N_MEMO) m->memo[m->n_memo++] = (struct memo){lo, hi, to, s};
    return s;
}

/* Code points lo..hi whose n bytes differ so that every byte's range is free of the others. */
static void put_bytes(struct maker *m, const char *lo, const char *hi, int n)
{
    uint32_t to = m->next;
    for (int i = n - 1; i > 0; i--)
        to = step(m, (uint8_t)lo[i], (uint8_t)hi[i], to);
    grammar_nfa_edge(m->a, m->start, EDGE_BYTE, (uint8_t)lo[0] | (uint32_t)(uint8_t)hi[0] << 8, to);
}

/* lo..hi of one encoded length, without surrogates. */
static void put_same_length(struct maker *m, uint32_t lo, uint32_t hi)
{
    while (lo <= hi) {
        char p[TEXT_UTF8_MAX], q[TEXT_UTF8_MAX];
        int n = text_utf8_encode(lo, p);
        uint32_t end = hi;
        /* the largest end so that lo..end is a product of byte ranges: the lowest k bytes run from
         * 80 to bf, the one above is free */
        for (int k = n - 1; k > 0; k--) {
            uint32_t mask = (1u << 6 * k) - 1;
            if ((lo & mask) != 0) {
                if ((lo | mask) < end) end = lo | mask;
            } else if ((lo | mask) <= hi && (hi & mask) != mask) {
                uint32_t e = (hi & ~mask) - 1;
                if (e >= lo && e < end) end = e;
            }
        }
        text_utf8_encode(end, q);
        put_bytes(m, p, q, n);
        lo = end + 1;
    }
}

static void put_range(struct maker *m, uint32_t lo, uint32_t hi)
{
    static const uint32_t cut[][2] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}};
    for (int i = 0; i < BASE_COUNT_OF(cut); i++) {
        uint32_t a = BASE_MAX(lo, cut[i][0]), z = BASE_MIN(hi, cut[i][1]);
        if (a <= z) put_same_length(m, a, z);
    }
}

/* The state after a backslash, that after "\\u00", and those after the digit that follows. */
static uint32_t escape_state(struct maker *m, int digit)
{
    struct nfa *a = m->a;
    if (!m->escape) {
        m->escape = grammar_nfa_state(a);
        grammar_nfa_edge(a, m->start, EDGE_BYTE, (uint8_t)'\\' * 0x101u, m->escape);
    }
    if (digit < 0) return m->escape;
    if (!m->u00) {
        m->u00 = grammar_nfa_state(a);
        grammar_nfa_edge(a, m->escape, EDGE_BYTE, 'u' * 0x101u,
                         grammar_nfa_lit(a, "00", 2, m->u00));
    }
    if (!m->u00x[digit]) {
        m->u00x[digit] = grammar_nfa_state(a);
        grammar_nfa_edge(a, m->u00, EDGE_BYTE, (uint32_t)('0' + digit) * 0x101u, m->u00x[digit]);
    }
    return m->u00x[digit];
}

/* Is c a character that JSON writes as an escape? Puts it. */
static bool put_escape(struct maker *m, uint32_t c)
{
    static const char plain[] = "\"\\\b\f\n\r\t", name[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    const char *hit = c ? strchr(plain, (int)c) : NULL;
    if (c >= 0x20 && !hit) return false;
    uint32_t s = escape_state(m, hit ? -1 : (int)(c >> 4));
    uint8_t byte = (uint8_t)(hit ? name[hit - plain] : hex[c & 15]);
    grammar_nfa_edge(m->a, s, EDGE_BYTE, byte * 0x101u, m->next);
    return true;
}

static void put_code_points(struct maker *m, uint32_t lo, uint32_t hi, bool json)
{
    uint32_t from = lo;
    for (uint32_t c = lo; json && c <= hi && c <= '\\'; c++) {
        if (!put_escape(m, c)) continue;
        if (c > from) put_range(m, from, c - 1);
        from = c + 1;
    }
    if (from <= hi) put_range(m, from, hi);
}

uint32_t grammar_nfa_class(struct nfa *a, const struct ir *e, uint32_t next)
{
    struct maker m = {.a = a, .next = next, .start = grammar_nfa_state(a)};
    for (uint32_t i = 0; i < e->n && !a->b->st; i++)
        put_code_points(&m, e->range[i].lo, e->range[i].hi, e->json);
    return m.start;
}

/* ---- automata over code points ---- */

/* The fewest plain characters that are possible from each state: 255 where no end of them comes. */
static void count_plain(const struct dfa *d, uint8_t *plain)
{
    static const struct ir_range all[] = {
        {0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x7e}, {0x80, 0xd7ff}, {0xe000, 0x10ffff}};
    bool more = true;
    memset(plain, 255, d->n);
    for (int round = 0; more && round < 255; round++) {
        more = false;
        for (uint32_t s = 0; s < d->n; s++) {
            uint32_t least = 254, k = 0, at = all[0].lo;
            for (uint32_t i = d->first[s]; i < d->first[s + 1] && k < 5; i++) {
                const struct dfa_edge *x = &d->edge[i];
                if (x->hi < at) continue;
                if (x->lo > at) break;
                least = BASE_MIN(least, plain[x->to]);
                at = x->hi + 1;
                while (k < 5 && at > all[k].hi)
                    k++;
                if (k < 5) at = BASE_MAX(at, all[k].lo);
            }
            uint8_t now = (uint8_t)(k < 5 ? 0 : least + 1);
            if (now >= plain[s]) continue;
            plain[s] = now;
            more = true;
        }
    }
}

uint32_t grammar_nfa_auto(struct nfa *a, const struct ir *e, uint32_t next)
{
    const struct dfa *d = e->dfa;
    uint8_t *plain = grammar_build_alloc(a->b, d->n, 1);
    uint32_t base = grammar_nfa_state(a);
    for (uint32_t s = 1; s < d->n; s++)
        (void)grammar_nfa_state(a);
    if (!plain || a->b->st) return base;
    count_plain(d, plain);
    for (uint32_t s = 0; s < d->n && !a->b->st; s++) {
        struct maker m = {.a = a, .start = base + s, .next = UINT32_MAX};
        a->plain[base + s] = plain[s];
        for (uint32_t i = d->first[s]; i < d->first[s + 1] && !a->b->st; i++) {
            const struct dfa_edge *x = &d->edge[i];
            if (m.next != base + x->to) m = (struct maker){.a = a, .start = base + s};
            m.next = base + x->to;
            put_code_points(&m, x->lo, x->hi, e->json);
        }
        if (d->end[s]) grammar_nfa_edge(a, base + s, EDGE_EPS, 0, next);
    }
    return base;
}
