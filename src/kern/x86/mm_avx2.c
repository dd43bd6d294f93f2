/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with AVX2. Products of u8 codes and s8 activations are summed in s16 as
 * long as the largest code allows it: 8 lines up to 15, 4 up to 31, 2 up to 63.
 * Eight-bit codes are multiplied as their upper and their lower four bits. */
#include <immintrin.h>
#include <string.h>

#include "kern/x86/codes_ymm.h"

#define MM_ISA avx2
#define TWICE(planes) ((planes) == P_B8 || (planes) == P_NL)
/* Four lines of six bits less 32, eight of five less 16: 32 * 127 * 8 at most in a lane of s16,
 * whatever overflows on the way. (Sums of halves that fit anyway are better off without.) */
#define FOLDED(planes, half, off)                                                                  \
    ((planes) == P_SIX || ((planes) == P_E2M1 && !(half)) || ((planes) == P_NIB1 && (off)))

/* Both parts times four activations, in pairs in s16. In assembler, because gcc 12 spills the sums
 * of many columns otherwise. */
AI void pairs(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, const int8_t *q)
{
    __asm__("vpbroadcastd %4, %1\n\tvpmaddubsw %1, %2, %0\n\tvpmaddubsw %1, %3, %1"
            : "=&x"(*s0), "=&x"(*s1)
            : "x"(w0), "x"(w1), "m"(*(const int32_t *)(const void *)q));
}

AI void add_pairs(__m256i *s0, __m256i *s1, __m256i w0, __m256i w1, const int8_t *q)
{
    __m256i a, b;
    __asm__("vpbroadcastd %6, %1\n\tvpmaddubsw %1, %4, %0\n\tvpmaddubsw %1, %5, %1\n\t"
            "vpaddw %0, %2, %2\n\tvpaddw %1, %3, %3"
            : "=&x"(a), "=&x"(b), "+x"(*s0), "+x"(*s1)
            : "x"(w0), "x"(w1), "m"(*(const int32_t *)(const void *)q));
}

struct sum {
    __m256i s; /* of pairs, in s16 */
    __m256i t; /* what did not fit there, in s32 */
};

/* Zeros fold away. */
AI __m256i total(const struct sum *s, __m256i v)
{
    return _mm256_add_epi32(_mm256_madd_epi16(s->s, _mm256_set1_epi16(1)),
                            _mm256_add_epi32(s->t, v));
}

#include "kern/tmpl/mm_tiles.inc"

AI __m256i pair(const int16_t p[2])
{
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)p));
}

/* -off times the sums of the lines, from -8 times them: of a half, or of all. */
AI __m256i offset_pairs(const struct mm_rec *x, const int l0, const int n, const int off)
{
    __m256i v = n == 4 ? pair(x->p[l0 / 4]) : _mm256_add_epi16(pair(x->p[0]), pair(x->p[1]));
    return _mm256_slli_epi16(v, off == 32 ? 2 : 1);
}

/* n lines, summed in s16. */
AI void chain(const struct lines_from *f, const struct mm_rec *const *x, const int J, const int l0,
              const int n, enum mm_planes planes, const int off, enum bits bits,
              struct sum s[MM_J][2])
{
    const int folded = FOLDED(planes, n == 4, off);
    if (folded) {
#pragma GCC unroll 6
        for (int j = 0; j < J; j++)
            s[j][0].s = s[j][1].s = offset_pairs(x[j], l0, n, off);
    }
#pragma GCC unroll 8
    for (int l = l0; l < l0 + n; l++) {
        __m256i w0 = weight(f, l, 0, planes, bits), w1 = weight(f, l, 1, planes, bits);
#pragma GCC unroll 6
        for (int j = 0; j < J; j++)
            if (l == l0 && !folded)
                pairs(&s[j][0].s, &s[j][1].s, w0, w1, x[j]->q + 4 * l);
            else
                add_pairs(&s[j][0].s, &s[j][1].s, w0, w1, x[j]->q + 4 * l);
    }
}

AI void lines(const struct lines_from *f, const struct mm_rec *const *x, const int J, const int l0,
              const int n, enum mm_planes planes, const int off, struct sum s[MM_J][2])
{
    const int twice = TWICE(planes);
    const int most = planes == P_NIB1 && !off ? 4 : 8;
    const int step = n < most ? n : most;
    chain(f, x, J, l0, step, planes, off, twice ? UPPER : ALL, s);
    const __m256i m = _mm256_set1_epi16(twice ? 16 : 1);
#pragma GCC unroll 6
    for (int j = 0; j < J; j++)
#pragma GCC unroll 2
        for (int p = 0; p < 2; p++)
            s[j][p].t =
                step < n || twice ? _mm256_madd_epi16(s[j][p].s, m) : _mm256_setzero_si256();
    if (twice)
        chain(f, x, J, l0, step, planes, off, LOWER, s);
    else if (step < n)
        chain(f, x, J, l0 + step, step, planes, off, ALL, s);
}
