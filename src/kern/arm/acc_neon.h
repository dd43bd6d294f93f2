/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of the 8 rows of a part: what the product kernels of codes and of floats share. */
#ifndef KERN_ACC_NEON_H
#define KERN_ACC_NEON_H

#include <arm_neon.h>

#define MM_PARTS 2
#define MM_PREFETCH(p) __builtin_prefetch(p)
#define AI static inline __attribute__((always_inline))

typedef float32x4x2_t vacc;

AI vacc acc_zero(void)
{
    return (vacc){{vdupq_n_f32(0), vdupq_n_f32(0)}};
}
AI vacc acc_load(const float *p)
{
    return (vacc){{vld1q_f32(p), vld1q_f32(p + 4)}};
}
AI void acc_store(float *p, vacc v)
{
    vst1q_f32(p, v.val[0]);
    vst1q_f32(p + 4, v.val[1]);
}
AI vacc acc_add(vacc a, vacc b)
{
    return (vacc){{vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])}};
}
AI vacc acc_times(vacc a, float f)
{
    return (vacc){{vmulq_n_f32(a.val[0], f), vmulq_n_f32(a.val[1], f)}};
}

AI vacc widen_f16(uint16x8_t v)
{
    return (vacc){{vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(v))),
                   vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(v)))}};
}

#endif
