/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with VNNI and VBMI: a line of codes is one register, a table look-up one
 * vpermb. */
#include "kern/kern.h"
#include "kern/x86/wide.h"

#define MM_ISA avx512vnni
#define MM_PARTS 1
#define MM_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define AI static inline __attribute__((always_inline))

typedef __m512 vacc;

AI vacc acc_zero(void)
{
    return _mm512_setzero_ps();
}
AI vacc acc_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
AI void acc_store(float *p, vacc v)
{
    _mm512_storeu_ps(p, v);
}
AI vacc acc_add(vacc a, vacc b)
{
    return _mm512_add_ps(a, b);
}
AI vacc acc_times(vacc a, float f)
{
    return _mm512_mul_ps(a, _mm512_set1_ps(f));
}

/* Sum of four products of u8 w and the s8 at p, added to acc. gcc 12 spills accumulators of the
 * intrinsic in big loops. */
AI __m512i dp(__m512i acc, __m512i w, const int8_t *p)
{
#ifdef SL_SIMDE
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(v));
#else
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(acc)
            : "v"(w), "m"(*(const int32_t *)(const void *)p));
    return acc;
#endif
}

/* v * 2^*e. */
AI __m512 scale2(__m512 v, const float *e)
{
#ifdef SL_SIMDE
    return _mm512_scalef_ps(v, _mm512_set1_ps(*e));
#else
    __asm__("vscalefps %2%{1to16%}, %1, %0" : "=v"(v) : "v"(v), "m"(*e));
    return v;
#endif
}

/* One load: without the barrier gcc folds it into each use, and loads of 64 bytes are the scarce
 * thing. */
AI __m512i line(const uint8_t *p)
{
    __m512i v = _mm512_loadu_si512((const void *)p);
#ifndef SL_SIMDE
    __asm__("" : "+v"(v));
#endif
    return v;
}

/* ---- scales ---- */
typedef __m512 fvec;

AI fvec zeros(void)
{
    return _mm512_setzero_ps();
}

AI fvec floats(const uint8_t *p)
{
    return _mm512_loadu_ps((const float *)(const void *)p);
}

AI fvec mul(fvec a, fvec b)
{
    return _mm512_mul_ps(a, b);
}

AI fvec half_floats(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

AI __m512i bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

AI fvec bytes_u(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(bytes(p));
}

AI fvec bytes_s(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

AI fvec low_nibbles(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_and_si512(bytes(p), _mm512_set1_epi32(15)));
}

AI fvec high_nibbles(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes(p), 4));
}

/* Their bits are those of an f16 2^8 times smaller; f16 subnormals cost nothing, f32 ones do. */
AI fvec e4m3_halves(const uint8_t *p)
{
    __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_slli_epi16(v, 7)), _mm512_set1_ps(128.0f));
}

/* Below 2 it is subnormal. */
AI fvec e8(const uint8_t *p)
{
    __m512i v = bytes(p);
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(
        _mm512_slli_epi32(_mm512_sub_epi32(v, _mm512_set1_epi32(1)), 23),
        _mm512_cmplt_epu32_mask(v, _mm512_set1_epi32(2)), _mm512_set1_epi32(0x00200000), v));
}

#include "kern/tmpl/scales.inc"

/* ---- codes ---- */
struct wgroup {
    __m512i w0, w1, w2, w3, w4, w5, w6, w7;
    struct scales sc;
};

/* (v with its bits from `from` on moved to bit `to`) & mask, bytewise where mask keeps only what
 * belongs to the byte. */
AI __m512i field(__m512i v, int from, int to)
{
    return from > to ? _mm512_srli_epi16(v, (unsigned)(from - to))
                     : _mm512_slli_epi16(v, (unsigned)(to - from));
}

AI __m512i or_field(__m512i w, __m512i v, int from, int to, int mask)
{
    return _mm512_ternarylogic_epi32(w, field(v, from, to), _mm512_set1_epi8((char)mask), 0xf8);
}

AI void load_nibbles(struct wgroup *w, const uint8_t *c)
{
    __m512i m = _mm512_set1_epi8(15), v0 = line(c), v1 = line(c + 64), v2 = line(c + 128),
            v3 = line(c + 192);
    w->w0 = _mm512_and_si512(v0, m);
    w->w1 = _mm512_and_si512(_mm512_srli_epi16(v0, 4), m);
    w->w2 = _mm512_and_si512(v1, m);
    w->w3 = _mm512_and_si512(_mm512_srli_epi16(v1, 4), m);
    w->w4 = _mm512_and_si512(v2, m);
    w->w5 = _mm512_and_si512(_mm512_srli_epi16(v2, 4), m);
    w->w6 = _mm512_and_si512(v3, m);
    w->w7 = _mm512_and_si512(_mm512_srli_epi16(v3, 4), m);
}

/* vpermb looks at the low 6 bits of an index: the table four times needs no mask. */
AI void load_table(struct wgroup *w, const uint8_t *c, const uint8_t table[16])
{
    __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    __m512i v0 = line(c), v1 = line(c + 64), v2 = line(c + 128), v3 = line(c + 192);
    w->w0 = _mm512_permutexvar_epi8(v0, t);
    w->w1 = _mm512_permutexvar_epi8(_mm512_srli_epi16(v0, 4), t);
    w->w2 = _mm512_permutexvar_epi8(v1, t);
    w->w3 = _mm512_permutexvar_epi8(_mm512_srli_epi16(v1, 4), t);
    w->w4 = _mm512_permutexvar_epi8(v2, t);
    w->w5 = _mm512_permutexvar_epi8(_mm512_srli_epi16(v2, 4), t);
    w->w6 = _mm512_permutexvar_epi8(v3, t);
    w->w7 = _mm512_permutexvar_epi8(_mm512_srli_epi16(v3, 4), t);
}

AI void load_two(struct wgroup *w, const uint8_t *c)
{
    __m512i m = _mm512_set1_epi8(3), v = line(c), u = line(c + 64);
    w->w0 = _mm512_and_si512(v, m);
    w->w1 = _mm512_and_si512(_mm512_srli_epi16(v, 2), m);
    w->w2 = _mm512_and_si512(_mm512_srli_epi16(v, 4), m);
    w->w3 = _mm512_and_si512(_mm512_srli_epi16(v, 6), m);
    w->w4 = _mm512_and_si512(u, m);
    w->w5 = _mm512_and_si512(_mm512_srli_epi16(u, 2), m);
    w->w6 = _mm512_and_si512(_mm512_srli_epi16(u, 4), m);
    w->w7 = _mm512_and_si512(_mm512_srli_epi16(u, 6), m);
}

AI void or_one(struct wgroup *w, const uint8_t *c, int to)
{
    __m512i v = line(c);
    w->w0 = or_field(w->w0, v, 0, to, 1 << to);
    w->w1 = or_field(w->w1, v, 1, to, 1 << to);
    w->w2 = or_field(w->w2, v, 2, to, 1 << to);
    w->w3 = or_field(w->w3, v, 3, to, 1 << to);
    w->w4 = or_field(w->w4, v, 4, to, 1 << to);
    w->w5 = or_field(w->w5, v, 5, to, 1 << to);
    w->w6 = or_field(w->w6, v, 6, to, 1 << to);
    w->w7 = or_field(w->w7, v, 7, to, 1 << to);
}

/* The fourth line is what three lines have in their upper two bits. 0xe4: a where the mask is 1, b
 * where 0. */
AI void load_six(const uint8_t *p, __m512i *w0, __m512i *w1, __m512i *w2, __m512i *w3)
{
    __m512i m = _mm512_set1_epi8(63), a = line(p), b = line(p + 64), c = line(p + 128);
    __m512i v = _mm512_ternarylogic_epi32(_mm512_srli_epi16(a, 2), _mm512_srli_epi16(b, 4),
                                          _mm512_set1_epi8(0x30), 0xe4);
    v = _mm512_ternarylogic_epi32(v, _mm512_srli_epi16(c, 6), _mm512_set1_epi8(0x3c), 0xe4);
    *w0 = _mm512_and_si512(a, m);
    *w1 = _mm512_and_si512(b, m);
    *w2 = _mm512_and_si512(c, m);
    *w3 = _mm512_and_si512(v, m);
}

AI void load_group(struct wgroup *w, const uint8_t *blk, const uint8_t *c, int g, int part,
                   enum mm_header header, enum mm_planes planes)
{
    load_scales(&w->sc, blk, g, part, header);
    switch (planes) {
    case P_B8:
        w->w0 = line(c);
        w->w1 = line(c + 64);
        w->w2 = line(c + 128);
        w->w3 = line(c + 192);
        w->w4 = line(c + 256);
        w->w5 = line(c + 320);
        w->w6 = line(c + 384);
        w->w7 = line(c + 448);
        break;
    case P_NIB:
        load_nibbles(w, c);
        break;
    case P_NIB1:
        load_nibbles(w, c);
        or_one(w, c + 256, 4);
        break;
    case P_SIX:
        load_six(c, &w->w0, &w->w1, &w->w2, &w->w3);
        load_six(c + 192, &w->w4, &w->w5, &w->w6, &w->w7);
        break;
    case P_TWO:
        load_two(w, c);
        break;
    case P_TWO1:
        load_two(w, c);
        or_one(w, c + 128, 2);
        break;
    case P_NL:
        load_table(w, c, kern_mm_nl);
        break;
    case P_E2M1:
        load_table(w, c, kern_mm_e2m1);
        break;
    }
}

/* -off times a sum, from -8 times it. */
AI __m512i start(int32_t i, int off)
{
    __m512i v = _mm512_set1_epi32(i);
    switch (off) {
    case 0:
        return _mm512_setzero_si512();
    case 4:
        return _mm512_srai_epi32(v, 1);
    case 8:
        return v;
    case 16:
        return _mm512_slli_epi32(v, 1);
    case 32:
        return _mm512_slli_epi32(v, 2);
    default:
        return _mm512_slli_epi32(v, 4);
    }
}

/* A column's 32 activations and what goes with them: of a record, or of a short one. */
struct col {
    const int8_t *q;
    const float *e;
    const int32_t *i0, *i1;
    const float *s0, *s1;
};

/* h: room for the sums of halves, where there are minima of halves. */
AI struct col of_rec(const struct mm_rec *r, int half, int min, float h[2])
{
    if (!half || !min) return (struct col){r->q, &r->e, &r->i[half ? 1 : 0], &r->i[2], &r->s, NULL};
    h[0] = kern_mm_half_sum(r, 0);
    h[1] = kern_mm_half_sum(r, 1);
    return (struct col){r->q, &r->e, &r->i[1], &r->i[2], &h[0], &h[1]};
}

AI struct col of_short(const struct mm_short *r, int off)
{
    const float *a = (const float *)(const void *)&r->a, *b = (const float *)(const void *)&r->b;
    return (struct col){r->q, &r->e, &r->a, &r->b, off ? b : a, b};
}

/* acc plus a column's products, from their integer sums. The product by the activations' scale, a
 * power of two, goes to the adders, whose ports the integer products leave free: acc + t * 2^e is
 * fma(t, d, acc) exactly. */
AI vacc fold(const struct scales *w, __m512i s, __m512i u, struct col e, vacc acc,
             enum mm_header header, int half, int min)
{
    if (!half) s = _mm512_add_epi32(s, u);
    __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(s), w->sc0);
    if (half) t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(u), w->sc1, t);
    acc = _mm512_add_ps(scale2(t, e.e), acc);
    if (!min) return acc;
    if (header == H_DM) return _mm512_fmadd_ps(w->mn0, _mm512_set1_ps(*e.s0), acc);
    acc = _mm512_fnmadd_ps(w->mn0, _mm512_set1_ps(*e.s0), acc);
    return half ? _mm512_fnmadd_ps(w->mn1, _mm512_set1_ps(*e.s1), acc) : acc;
}

/* Two chains of products for one sum: a chain of eight is longer than what the scheduler can hide.
 */
AI vacc add_column(const struct wgroup *w, struct col e, vacc acc, enum mm_header header, int half,
                   int min, int off)
{
    __m512i s = start(*e.i0, off), u = half ? start(*e.i1, off) : _mm512_setzero_si512();
    s = dp(s, w->w0, e.q);
    u = dp(u, w->w4, e.q + 16);
    s = dp(s, w->w1, e.q + 4);
    u = dp(u, w->w5, e.q + 20);
    s = dp(s, w->w2, e.q + 8);
    u = dp(u, w->w6, e.q + 24);
    s = dp(s, w->w3, e.q + 12);
    u = dp(u, w->w7, e.q + 28);
    return fold(&w->sc, s, u, e, acc, header, half, min);
}

AI vacc column(const struct wgroup *w, const struct mm_rec *e, vacc acc, enum mm_header header,
               enum mm_planes planes, int half, int min, int off)
{
    float h[2];
    (void)planes;
    return add_column(w, of_rec(e, half, min, h), acc, header, half, min, off);
}

#define MM_SHORT
AI vacc short_column(const struct wgroup *w, const struct mm_short *e, vacc acc,
                     enum mm_header header, int half, int min, int off)
{
    return add_column(w, of_short(e, off), acc, header, half, min, off);
}

/* Sum of four products of u8 w and s8 x. */
AI __m512i dp_reg(__m512i acc, __m512i w, __m512i x)
{
#ifdef SL_SIMDE
    return _mm512_dpbusd_epi32(acc, w, x);
#else
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
    return acc;
#endif
}

/* The four s8 at p in every lane: a load (gcc would make it of wider loads and moves). */
AI __m512i spread(const int8_t *p)
{
#ifdef SL_SIMDE
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
#else
    __m512i v;
    __asm__("vpbroadcastd %1, %0" : "=v"(v) : "m"(*(const int32_t *)(const void *)p));
    return v;
#endif
}

/* Columns from which two tiles are taken at once, and the formats for which it is faster
 * everywhere: of four bits and without a minimum (on Zen 4, Q4_K and Q6_K lose 2 to 5 % from 16
 * columns on). */
#define MM_TWO 8
#define MM_TWO_TAKES(planes, min)                                                                  \
    (((planes) == P_NIB || (planes) == P_NL || (planes) == P_E2M1) && !(min))

#define TWO_LINES(k, l)                                                                            \
    x = spread(e.q + 4 * (k));                                                                     \
    s = dp_reg(s, w->w##k, x);                                                                     \
    p = dp_reg(p, v->w##k, x);                                                                     \
    x = spread(e.q + 4 * (l));                                                                     \
    u = dp_reg(u, w->w##l, x);                                                                     \
    o = dp_reg(o, v->w##l, x);

AI void column_two(const struct wgroup *w, const struct wgroup *v, const struct mm_rec *r,
                   float *at, enum mm_header header, int half, int min, int off)
{
    float h[2];
    struct col e = of_rec(r, half, min, h);
    __m512i s = start(*e.i0, off), p = s, x;
    __m512i u = half ? start(*e.i1, off) : _mm512_setzero_si512(), o = u;
    TWO_LINES(0, 4)
    TWO_LINES(1, 5)
    TWO_LINES(2, 6)
    TWO_LINES(3, 7)
    acc_store(at, fold(&w->sc, s, u, e, acc_load(at), header, half, min));
    acc_store(at + 16, fold(&v->sc, p, o, e, acc_load(at + 16), header, half, min));
}

/* The records of many columns are as many streams, which no prefetcher follows: those of the next
 * group are fetched by hand (of a few, side by side, it is the next column that is). */
AI void columns(const struct wgroup *w, const struct mm_rec *const *x, size_t at, int n, float *acc,
                enum mm_header header, enum mm_planes planes, int half, int min, int off)
{
    int j = 0;
    for (; j + 1 < n; j += 2) {
        MM_PREFETCH(x[j] + at + 1);
        MM_PREFETCH(x[j + 1] + at + 1);
        vacc a = column(w, x[j] + at, acc_load(acc + 16 * j), header, planes, half, min, off);
        vacc b =
            column(w, x[j + 1] + at, acc_load(acc + 16 * j + 16), header, planes, half, min, off);
        acc_store(acc + 16 * j, a);
        acc_store(acc + 16 * j + 16, b);
    }
    if (j < n)
        acc_store(acc + 16 * j,
                  column(w, x[j] + at, acc_load(acc + 16 * j), header, planes, half, min, off));
}

#include "kern/tmpl/mm_codes.inc"
