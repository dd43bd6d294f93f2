/* SPDX-License-Identifier: Apache-2.0 */
#include <immintrin.h>

#include "kern/vec.h"

#define ACCS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* Twelve independent chains of vdpbf16ps: 32 products each. */
double kern_peak_bf16_avx512bf16(int n)
{
    __m512i w = _mm512_set1_epi16(0x3f00), x = _mm512_set1_epi16(0x3f80);
#define X(i) __m512 a##i = _mm512_setzero_ps();
    ACCS(X)
#undef X
    for (int k = 0; k < n; k++) {
#define X(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(a##i) : "v"(w), "v"(x));
        ACCS(X)
#undef X
    }
    volatile float sink = 0;
#define X(i) sink += _mm512_cvtss_f32(a##i);
    ACCS(X)
#undef X
    return 2.0 * 32 * 12 * n;
}
