/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kern/vec.h"

#define ACCS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* Twelve independent chains of fused multiply-adds: 16 products each. */
double kern_peak_f32_avx512(int n)
{
    __m512 w = _mm512_set1_ps(0.5f), x = _mm512_set1_ps(1.0f);
#define X(i) __m512 a##i = _mm512_setzero_ps();
    ACCS(X)
#undef X
    for (int k = 0; k < n; k++) {
#define X(i) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(a##i) : "v"(w), "v"(x));
        ACCS(X)
#undef X
    }
    volatile float sink = 0;
#define X(i) sink += _mm512_cvtss_f32(a##i);
    ACCS(X)
#undef X
    return 2.0 * 16 * 12 * n;
}
