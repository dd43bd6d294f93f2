/* SPDX-License-Identifier: Apache-2.0 */
/* The bf16 peak of AVX-512 BF16, for the probe. */
#include <immintrin.h>

#include "kern/peak.h"
#include "kern/vec.h"

/* Twelve chains of vdpbf16ps: 32 products each. */
double kern_peak_bf16_avx512bf16(int n)
{
    __m512i w = _mm512_set1_epi16(0x3f00), x = _mm512_set1_epi16(0x3f80);
#define STEP(a) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(a) : "v"(w), "v"(x))
    PEAK_LOOP(n, __m512, 12, STEP);
#undef STEP
    return 2.0 * 32 * 12 * n;
}
