/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic peaks of AVX2, for the probe. */
#include <immintrin.h>

#include "kern/peak.h"
#include "kern/vec.h"

/* Eight chains of maddubs, maddwd, add: 32 products each. */
double kern_peak_i8_avx2(int n)
{
    __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(1), one = _mm256_set1_epi16(1), t;
#define STEP(a)                                                                                    \
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"           \
                     : "+x"(a), "=&x"(t)                                                           \
                     : "x"(w), "x"(x), "x"(one))
    PEAK_LOOP(n, __m256i, 8, STEP);
#undef STEP
    return 2.0 * 32 * 8 * n;
}

/* Eight chains of fused multiply-adds: 8 products each. */
double kern_peak_f32_avx2(int n)
{
    __m256 w = _mm256_set1_ps(0.5f), x = _mm256_set1_ps(1.0f);
#define STEP(a) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(a) : "x"(w), "x"(x))
    PEAK_LOOP(n, __m256, 8, STEP);
#undef STEP
    return 2.0 * 8 * 8 * n;
}

/* Eight chains of maddwd, add: 16 products each. */
double kern_peak_i16_avx2(int n)
{
    __m256i w = _mm256_set1_epi16(3), x = _mm256_set1_epi16(1), t;
#define STEP(a)                                                                                    \
    __asm__ volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"                                    \
                     : "+x"(a), "=&x"(t)                                                           \
                     : "x"(w), "x"(x))
    PEAK_LOOP(n, __m256i, 8, STEP);
#undef STEP
    return 2.0 * 16 * 8 * n;
}
