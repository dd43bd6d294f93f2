/* SPDX-License-Identifier: Apache-2.0 */
/* The f32 peak of AVX-512, for the probe. */
#include <immintrin.h>

#include "kern/peak.h"
#include "kern/vec.h"

/* Twelve chains of fused multiply-adds: 16 products each. */
double kern_peak_f32_avx512(int n)
{
    __m512 w = _mm512_set1_ps(0.5f), x = _mm512_set1_ps(1.0f);
#define STEP(a) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(a) : "v"(w), "v"(x))
    PEAK_LOOP(n, __m512, 12, STEP);
#undef STEP
    return 2.0 * 16 * 12 * n;
}
