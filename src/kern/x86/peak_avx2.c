/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kern/vec.h"

#define ACCS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* Eight chains of maddubs, maddwd, add: 32 products each. */
double kern_peak_i8_avx2(int n)
{
    __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(1), one = _mm256_set1_epi16(1);
#define X(i) __m256i a##i = _mm256_setzero_si256();
    ACCS(X)
#undef X
    for (int k = 0; k < n; k++) {
#define X(i)                                                                                       \
    {                                                                                              \
        __m256i t;                                                                                 \
        __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"       \
                         : "+x"(a##i), "=&x"(t)                                                    \
                         : "x"(w), "x"(x), "x"(one));                                              \
    }
        ACCS(X)
#undef X
    }
    volatile int sink = 0;
#define X(i) sink += _mm256_extract_epi32(a##i, 0);
    ACCS(X)
#undef X
    return 2.0 * 32 * 8 * n;
}

/* Eight chains of fused multiply-adds: 8 products each. */
double kern_peak_f32_avx2(int n)
{
    __m256 w = _mm256_set1_ps(0.5f), x = _mm256_set1_ps(1.0f);
#define X(i) __m256 a##i = _mm256_setzero_ps();
    ACCS(X)
#undef X
    for (int k = 0; k < n; k++) {
#define X(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(a##i) : "x"(w), "x"(x));
        ACCS(X)
#undef X
    }
    volatile float sink = 0;
#define X(i) sink += _mm256_cvtss_f32(a##i);
    ACCS(X)
#undef X
    return 2.0 * 8 * 8 * n;
}
