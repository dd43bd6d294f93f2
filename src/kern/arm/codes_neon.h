/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a group of 32 k of a part (8 rows) apart with NEON. Tables are signed here; other codes
 * are small enough to be signed as they are. */
#ifndef KERN_CODES_NEON_H
#define KERN_CODES_NEON_H

#include "kern/arm/acc_neon.h"
#include "kern/kern.h"

#define SIGNED(planes) ((planes) == P_B8 || (planes) == P_NL || (planes) == P_E2M1)

/* ---- scales of the 8 rows of a part ---- */
typedef vacc fvec;

AI fvec zeros(void)
{
    return acc_zero();
}

AI fvec floats(const uint8_t *p)
{
    return acc_load((const float *)(const void *)p);
}

AI fvec mul(fvec a, fvec b)
{
    return (fvec){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}

AI fvec half_floats(const uint8_t *p)
{
    return widen_f16(vreinterpretq_u16_u8(vld1q_u8(p)));
}

AI fvec from_u8(uint8x8_t b)
{
    uint16x8_t v = vmovl_u8(b);
    return (fvec){
        {vcvtq_f32_u32(vmovl_u16(vget_low_u16(v))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(v)))}};
}

AI fvec bytes_u(const uint8_t *p)
{
    return from_u8(vld1_u8(p));
}

AI fvec bytes_s(const uint8_t *p)
{
    int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return (fvec){
        {vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(v)))}};
}

AI fvec low_nibbles(const uint8_t *p)
{
    return from_u8(vand_u8(vld1_u8(p), vdup_n_u8(15)));
}

AI fvec high_nibbles(const uint8_t *p)
{
    return from_u8(vshr_n_u8(vld1_u8(p), 4));
}

/* Their bits are those of an f16 2^8 times smaller. */
AI fvec e4m3_halves(const uint8_t *p)
{
    fvec v = widen_f16(vshll_n_u8(vld1_u8(p), 7));
    return (fvec){{vmulq_n_f32(v.val[0], 128.0f), vmulq_n_f32(v.val[1], 128.0f)}};
}

/* Below 2 it is subnormal. */
AI float32x4_t four_e8(uint32x4_t e)
{
    uint32x4_t n = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t s = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), s, n));
}

AI fvec e8(const uint8_t *p)
{
    uint16x8_t e = vmovl_u8(vld1_u8(p));
    return (fvec){{four_e8(vmovl_u16(vget_low_u16(e))), four_e8(vmovl_u16(vget_high_u16(e)))}};
}

#include "kern/tmpl/scales.inc"

/* The bits of mask, from bit `from` of each byte moved to bit `to`. */
AI uint8x16_t field(uint8x16_t v, int from, int to, int mask)
{
    v = vshlq_u8(v, vdupq_n_s8((int8_t)(to - from)));
    return vandq_u8(v, vdupq_n_u8((uint8_t)mask));
}

/* Codes of line l, rows 4 * (2 * part + i) on: c points at those rows of the first line. */
AI uint8x16_t code(const uint8_t *c, int l, enum mm_planes planes)
{
    uint8x16_t nib = vdupq_n_u8(0), v;
    if (planes == P_B8) return veorq_u8(vld1q_u8(c + 64 * l), vdupq_n_u8(0x80));
    if (planes == P_SIX) {
        c += 192 * (l / 4);
        if (l % 4 < 3) return vandq_u8(vld1q_u8(c + 64 * (l % 4)), vdupq_n_u8(63));
        v = vorrq_u8(field(vld1q_u8(c), 6, 4, 0x30), field(vld1q_u8(c + 64), 6, 2, 0x0c));
        return vorrq_u8(v, vshrq_n_u8(vld1q_u8(c + 128), 6));
    }
    if (planes == P_TWO || planes == P_TWO1) {
        v = field(vld1q_u8(c + 64 * (l / 4)), 2 * (l % 4), 0, 3);
        return planes == P_TWO ? v : vorrq_u8(v, field(vld1q_u8(c + 128), l, 2, 4));
    }
    v = vld1q_u8(c + 64 * (l / 2));
    nib = l & 1 ? vshrq_n_u8(v, 4) : vandq_u8(v, vdupq_n_u8(15));
    if (planes == P_NIB1) return vorrq_u8(nib, field(vld1q_u8(c + 256), l, 4, 16));
    if (planes == P_NL) return vqtbl1q_u8(vsubq_u8(vld1q_u8(kern_mm_nl), vdupq_n_u8(128)), nib);
    if (planes == P_E2M1) return vqtbl1q_u8(vsubq_u8(vld1q_u8(kern_mm_e2m1), vdupq_n_u8(16)), nib);
    return nib;
}

/* Where the sums of a column start: of all of them, or of a half. */
AI int32x4_t start(const struct mm_rec *e, int i, enum mm_planes planes, int off)
{
    return vdupq_n_s32(off && !SIGNED(planes) ? MM_START(e->i[i], off) : 0);
}

/* acc plus the sums s of 4 rows (i: the first or the second four), with half s and u of the halves.
 */
AI float32x4_t finish(const struct scales *w, int i, const struct mm_rec *e, int32x4_t s,
                      int32x4_t u, float32x4_t acc, enum mm_header header, int half, int min)
{
    float32x4_t t = vmulq_f32(vcvtq_f32_s32(s), w->sc0.val[i]);
    if (half) t = vfmaq_f32(t, vcvtq_f32_s32(u), w->sc1.val[i]);
    acc = vfmaq_n_f32(acc, t, e->d);
    if (!min) return acc;
    if (header == H_DM) return vfmaq_n_f32(acc, w->mn0.val[i], e->s);
    acc = vfmsq_n_f32(acc, w->mn0.val[i], half ? kern_mm_half_sum(e, 0) : e->s);
    return half ? vfmsq_n_f32(acc, w->mn1.val[i], kern_mm_half_sum(e, 1)) : acc;
}

#endif
