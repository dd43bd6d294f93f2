/* SPDX-License-Identifier: Apache-2.0 */
/* Products of float formats with 128-bit fma by element. */
#include "kern/arm/acc_neon.h"
#include "kern/kern.h"

#define MM_ISA neon

struct weight_eight {
    vacc w[8];
};

AI vacc eight(const struct weight_eight *w, const float *x, vacc acc)
{
    float32x4_t x0 = vld1q_f32(x), x1 = vld1q_f32(x + 4);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        float32x4_t t = vmulq_laneq_f32(w->w[1].val[i], x0, 1); /* odd k before even: mm.h */
        t = vfmaq_laneq_f32(t, w->w[0].val[i], x0, 0);
        t = vfmaq_laneq_f32(t, w->w[3].val[i], x0, 3);
        t = vfmaq_laneq_f32(t, w->w[2].val[i], x0, 2);
        t = vfmaq_laneq_f32(t, w->w[5].val[i], x1, 1);
        t = vfmaq_laneq_f32(t, w->w[4].val[i], x1, 0);
        t = vfmaq_laneq_f32(t, w->w[7].val[i], x1, 3);
        t = vfmaq_laneq_f32(t, w->w[6].val[i], x1, 2);
        acc.val[i] = vaddq_f32(acc.val[i], t);
    }
    return acc;
}

AI float32x4_t bf16_of_pair(uint32x4_t v, int odd)
{
    return vreinterpretq_f32_u32(odd ? vandq_u32(v, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(v, 16));
}

/* Row values of one k: rows 8 * part on. bf16 comes in pairs of k; e4m3 has the bits of an f16 2^8
 * times smaller. */
AI vacc load_k(int fmt, const uint8_t *blk, int k, int part)
{
    if (fmt == MM_f32) return acc_load((const float *)(const void *)(blk + 64 * k + 32 * part));
    if (fmt == MM_f16) return widen_f16(vreinterpretq_u16_u8(vld1q_u8(blk + 32 * k + 16 * part)));
    if (fmt == MM_bf16) {
        const uint8_t *p = blk + 64 * (k / 2) + 32 * part;
        return (vacc){{bf16_of_pair(vreinterpretq_u32_u8(vld1q_u8(p)), k & 1),
                       bf16_of_pair(vreinterpretq_u32_u8(vld1q_u8(p + 16)), k & 1)}};
    }
    vacc s = acc_load((const float *)(const void *)(blk + 32 * part));
    int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(blk + 64 + 16 * k + 8 * part)));
    vacc f = widen_f16(vandq_u16(vreinterpretq_u16_s16(vshlq_n_s16(v, 7)), vdupq_n_u16(0xbfff)));
    return (vacc){{vmulq_f32(f.val[0], vmulq_n_f32(s.val[0], 256.0f)),
                   vmulq_f32(f.val[1], vmulq_n_f32(s.val[1], 256.0f))}};
}

AI void load_eight(struct weight_eight *w, int fmt, const uint8_t *blk, int k, int part)
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        w->w[i] = load_k(fmt, blk, k + i, part);
}

#include "kern/tmpl/mm_floats.inc"
