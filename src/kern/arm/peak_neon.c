/* SPDX-License-Identifier: Apache-2.0 */
/* The integer peak of NEON's dot product, for the probe. */
#include <arm_neon.h>

#include "kern/peak.h"
#include "kern/vec.h"

/* Twelve chains of sdot: 16 products each. */
double kern_peak_i8_neon(int n)
{
    int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(1);
#define STEP(a) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(a) : "w"(w), "w"(x))
    PEAK_LOOP(n, int32x4_t, 12, STEP);
#undef STEP
    return 2.0 * 16 * 12 * n;
}

/* Twelve chains of fmla: 4 products each. */
double kern_peak_f32_neon(int n)
{
    float32x4_t w = vdupq_n_f32(0.5f), x = vdupq_n_f32(1.0f);
#define STEP(a) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(a) : "w"(w), "w"(x))
    PEAK_LOOP(n, float32x4_t, 12, STEP);
#undef STEP
    return 2.0 * 4 * 12 * n;
}
