/* SPDX-License-Identifier: Apache-2.0 */
#include <arm_neon.h>

#include "kern/vec.h"

#define ACCS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* Twelve chains of sdot: 16 products each. */
double kern_peak_i8_neon(int n)
{
    int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(1);
#define X(i) int32x4_t a##i = vdupq_n_s32(0);
    ACCS(X)
#undef X
    for (int k = 0; k < n; k++) {
#define X(i) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(a##i) : "w"(w), "w"(x));
        ACCS(X)
#undef X
    }
    volatile int sink = 0;
#define X(i) sink += vgetq_lane_s32(a##i, 0);
    ACCS(X)
#undef X
    return 2.0 * 16 * 12 * n;
}

/* Twelve chains of fmla: 4 products each. */
double kern_peak_f32_neon(int n)
{
    float32x4_t w = vdupq_n_f32(0.5f), x = vdupq_n_f32(1.0f);
#define X(i) float32x4_t a##i = vdupq_n_f32(0);
    ACCS(X)
#undef X
    for (int k = 0; k < n; k++) {
#define X(i) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(a##i) : "w"(w), "w"(x));
        ACCS(X)
#undef X
    }
    volatile float sink = 0;
#define X(i) sink += vgetq_lane_f32(a##i, 0);
    ACCS(X)
#undef X
    return 2.0 * 4 * 12 * n;
}
