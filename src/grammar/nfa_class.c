/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of code points as edges over the bytes of UTF-8: ranges are cut where the number of
 * bytes changes and where a leading byte does not go with all continuation bytes; equal tails are
 * shared. Surrogates have no bytes and drop out. */
#include <string.h>

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

/* Is c a character that JSON writes as an escape? Puts it. */
static bool put_escape(struct maker *m, uint32_t c)
{
    struct str s;
    char ch = (char)c;
    if (c >= 0x20 && c != '"' && c != '\\') return false;
    str_init(&s, MEM_REQUEST, 0);
    text_json_escape(&s, &ch, 1);
    uint32_t to = grammar_nfa_lit(m->a, str_c(&s) + 1, s.n ? s.n - 1 : 0, m->next);
    grammar_nfa_edge(m->a, m->start, EDGE_BYTE, (uint8_t)'\\' * 0x101u, to);
    str_fini(&s);
    return true;
}

uint32_t grammar_nfa_class(struct nfa *a, const struct ir *e, uint32_t next)
{
    struct maker m = {.a = a, .next = next, .start = grammar_nfa_state(a)};
    for (uint32_t i = 0; i < e->n && !a->b->st; i++) {
        uint32_t lo = e->range[i].lo, hi = e->range[i].hi;
        if (!e->json) {
            put_range(&m, lo, hi);
            continue;
        }
        uint32_t from = lo;
        for (uint32_t c = lo; c <= hi && c <= '\\'; c++) {
            if (!put_escape(&m, c)) continue;
            if (c > from) put_range(&m, from, c - 1);
            from = c + 1;
        }
        if (from <= hi) put_range(&m, from, hi);
    }
    return m.start;
}
