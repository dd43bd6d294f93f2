/* SPDX-License-Identifier: Apache-2.0 */
/* The integer peak of AVX-512 VNNI, for the probe. */
#include <immintrin.h>

#include "kern/peak.h"
#include "kern/vec.h"

/* Twelve chains of vpdpbusd: 64 products each. */
double kern_peak_i8_avx512vnni(int n)
{
    __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(1);
#define STEP(a) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(a) : "v"(w), "v"(x))
    PEAK_LOOP(n, __m512i, 12, STEP);
#undef STEP
    return 2.0 * 64 * 12 * n;
}
