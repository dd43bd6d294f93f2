/* SPDX-License-Identifier: Apache-2.0 */
/* multipleOf: the texts of N / 10^point for the multiples N of a step, between two bounds. Few of
 * them are listed. Many are an automaton over their digits, whose states say what is to come: how
 * many digits, what they must leave divided by the step, and whether a bound still holds them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_internal.h"

#define FEW 1024
#define MAX_STATE 40000
#define MAX_DIGITS 18
#define NONE GRAMMAR_NO_DIGIT
#define POINT 10 /* the column after those of the digits */

struct state {
    uint64_t rest; /* of the digits to come, as a number, divided by the step */
    uint32_t n;    /* digits of the whole text where a bound holds, else 0 */
    uint8_t left;  /* digits to come */
    bool low, high, dot;
};
struct digits {
    struct build *b;
    uint64_t step, pow[MAX_DIGITS + 2];
    int point;
    char lo[MAX_DIGITS + 2], hi[MAX_DIGITS + 2]; /* of the texts of n digits */
    struct state *state;
    uint32_t n_state, cap_state;
    struct ir_digit *row;
    uint32_t cap_row;
    uint32_t *slot, n_slot; /* hash table of 1 + state */
};

static bool same(const struct state *a, const struct state *b)
{
    return a->rest == b->rest && a->n == b->n && a->left == b->left && a->low == b->low &&
           a->high == b->high && a->dot == b->dot;
}

static uint32_t place_of(const struct digits *d, const struct state *s)
{
    uint64_t h = (s->rest * 64 + s->left) * 64 + s->n * 8u + s->low * 4u + s->high * 2u + s->dot;
    uint32_t i = (uint32_t)(h * 0x9e3779b97f4a7c15u >> 40) & (d->n_slot - 1);
    while (d->slot[i] && !same(&d->state[d->slot[i] - 1], s))
        i = (i + 1) & (d->n_slot - 1);
    return i;
}

/* At most half full. */
static bool grow_table(struct digits *d)
{
    struct build *b = d->b;
    void *p = NULL;
    if (d->n_slot > 2 * d->n_state) return true;
    uint32_t n = d->n_slot ? 4 * d->n_slot : 256;
    b->st = mem_alloc_array(MEM_REQUEST, n, sizeof *d->slot, &p, b->err);
    if (b->st) return false;
    mem_free(d->slot);
    d->slot = p;
    d->n_slot = n;
    memset(p, 0, n * sizeof *d->slot);
    for (uint32_t i = 0; i < d->n_state; i++)
        d->slot[place_of(d, &d->state[i])] = i + 1;
    return true;
}

static bool all_are(const char *p, char c)
{
    return p[strspn(p, (char[]){c, 0})] == 0;
}

/* The number of a state; NONE where nothing can follow, or after a failure. */
static uint32_t number_of(struct digits *d, struct state s)
{
    struct build *b = d->b;
    if (b->st || s.rest >= d->pow[s.left]) return NONE; /* the least that fits has more digits */
    s.low = s.low && !all_are(d->lo + s.n - s.left, '0');
    s.high = s.high && !all_are(d->hi + s.n - s.left, '9');
    if (!s.low && !s.high) s.n = 0;
    if (!grow_table(d)) return NONE;
    uint32_t i = place_of(d, &s);
    if (d->slot[i]) return d->slot[i] - 1;
    if (d->n_state == MAX_STATE) {
        grammar_build_fail(b, SL_REQUEST, "schema: multipleOf: more than %d states", MAX_STATE);
        return NONE;
    }
    b->st = grammar_grow(&d->state, &d->cap_state, d->n_state + 1, sizeof *d->state, b->err);
    if (b->st) return NONE;
    d->state[d->n_state] = s;
    d->slot[i] = ++d->n_state;
    return d->n_state - 1;
}

static uint32_t step_by(struct digits *d, struct state s, int c)
{
    int lo = s.low ? d->lo[s.n - s.left] - '0' : 0, hi = s.high ? d->hi[s.n - s.left] - '0' : 9;
    if (s.left == 0 || c < lo || c > hi) return NONE;
    s.low = s.low && c == lo;
    s.high = s.high && c == hi;
    s.left--;
    uint64_t by = (uint64_t)c * (d->pow[s.left] % d->step) % d->step;
    s.rest = (s.rest + d->step - by) % d->step;
    return number_of(d, s);
}

static bool fill_row(struct digits *d, uint32_t i)
{
    struct build *b = d->b;
    if (!b->st) b->st = grammar_grow(&d->row, &d->cap_row, i + 1, sizeof *d->row, b->err);
    if (b->st) return false;
    struct ir_digit r;
    struct state s = d->state[i];
    bool whole = s.left > d->point, edge = d->point && s.left == d->point && !s.dot;
    for (int c = 0; c < 10; c++)
        r.to[c] = whole || s.dot ? step_by(d, s, c) : NONE;
    s.dot = true;
    r.to[POINT] = edge ? number_of(d, s) : NONE;
    s.dot = d->state[i].dot;
    r.end = s.left <= d->point && s.rest == 0 && !s.low && !(s.dot && s.left == d->point);
    if (!b->st) d->row[i] = r;
    return !b->st;
}

/* Where texts of n digits, without leading zeros, begin. */
static uint32_t start_of(struct digits *d, uint64_t lo, uint64_t hi, int n)
{
    uint64_t least = n == d->point + 1 ? 0 : d->pow[n - 1];
    lo = BASE_MAX(lo, least);
    hi = BASE_MIN(hi, d->pow[n] - 1);
    if (lo > hi) return NONE;
    snprintf(d->lo, sizeof d->lo, "%0*llu", n, (unsigned long long)lo);
    snprintf(d->hi, sizeof d->hi, "%0*llu", n, (unsigned long long)hi);
    return number_of(d, (struct state){0, (uint32_t)n, (uint8_t)n, true, true, false});
}

/* Multiples lo..hi, 0 <= lo. */
static const struct ir *automaton(struct build *b, const struct multiple *m, uint64_t lo,
                                  uint64_t hi)
{
    struct digits d = {.b = b, .step = m->step, .point = m->point};
    uint32_t first[MAX_DIGITS], n_first = 0, done = 0;
    d.pow[0] = 1;
    for (int i = 1; i <= MAX_DIGITS + 1; i++)
        d.pow[i] = d.pow[i - 1] * 10;
    for (int n = m->point + 1; n <= MAX_DIGITS && !b->st; n++) {
        first[n_first] = start_of(&d, lo, hi, n);
        n_first += first[n_first] != NONE;
        while (done < d.n_state && fill_row(&d, done))
            done++;
    }
    const struct ir *e = grammar_ir_digits(b, d.row, done, first, n_first);
    mem_free(d.state);
    mem_free(d.row);
    mem_free(d.slot);
    return e;
}

/* N / 10^point as text. */
static void number_text(int64_t v, int point, char out[32])
{
    char digit[24];
    uint64_t a = v < 0 ? -(uint64_t)v : (uint64_t)v;
    int n = snprintf(digit, sizeof digit, "%0*llu", point + 1, (unsigned long long)a);
    int k = snprintf(out, 32, "%s%.*s", v < 0 ? "-" : "", n - point, digit), end = n;
    while (end > n - point && digit[end - 1] == '0')
        end--;
    if (end > n - point)
        snprintf(out + k, 32 - (size_t)k, ".%.*s", end - n + point, digit + n - point);
}

/* Validators divide in doubles: 0.07 / 0.01 is no whole number to them. */
static bool divides(const char *text, double step)
{
    double q = strtod(text, NULL) / step;
    return q == floor(q);
}

const struct ir *grammar_multiples(struct build *b, const struct multiple *m)
{
    int64_t step = (int64_t)m->step;
    int64_t first = m->lo / step + (m->lo % step > 0), last = m->hi / step - (m->hi % step < 0);
    struct ir_list l = {0};
    if (m->lo > m->hi || first > last) return grammar_ir_never(b);
    if (last - first < FEW) {
        for (int64_t k = first; k <= last; k++) {
            char text[32];
            number_text(k * step, m->point, text);
            if (divides(text, m->value)) grammar_ir_list_add(b, &l, grammar_ir_litz(b, text));
        }
        return grammar_ir_alt(b, l.v, l.n);
    }
    if (!m->exact) {
        grammar_build_fail(b, SL_REQUEST,
                           "schema: multipleOf %g: supported between bounds with at most %d "
                           "multiples: it is no exact binary fraction",
                           m->value, FEW);
        return grammar_ir_never(b);
    }
    if (last >= 0)
        grammar_ir_list_add(
            b, &l, automaton(b, m, (uint64_t)BASE_MAX(m->lo, (int64_t)0), (uint64_t)m->hi));
    if (first < 0)
        grammar_ir_list_add(
            b, &l,
            grammar_ir_seqv(b, grammar_ir_litz(b, "-"),
                            automaton(b, m, m->hi < 0 ? (uint64_t)-m->hi : 1, (uint64_t)-m->lo),
                            NULL, NULL));
    return grammar_ir_alt(b, l.v, l.n);
}
