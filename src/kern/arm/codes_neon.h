/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a group of 32 k of a part (8 rows) apart with NEON. Tables are signed here; other codes
 * are small enough to be signed as they are. */
#ifndef KERN_CODES_NEON_H
#define KERN_CODES_NEON_H

#include "kern/arm/acc_neon.h"
#include "kern/kern.h"

#define SIGNED(planes) ((planes) == P_B8 || (planes) == P_NL || (planes) == P_E2M1)

struct scales {
    vacc sc0, sc1, mn0, mn1;
};

AI vacc half_floats(const uint8_t *p)
{
    return widen_f16(vreinterpretq_u16_u8(vld1q_u8(p)));
}

AI vacc from_u16(uint16x8_t v)
{
    return (vacc){
        {vcvtq_f32_u32(vmovl_u16(vget_low_u16(v))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(v)))}};
}

AI vacc bytes_u(uint8x8_t v)
{
    return from_u16(vmovl_u8(v));
}

AI vacc bytes_s(const uint8_t *p)
{
    int16x8_t v = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return (vacc){
        {vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(v)))}};
}

AI vacc mul(vacc a, vacc b)
{
    return (vacc){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}

AI vacc e4m3_halves(const uint8_t *p)
{
    vacc v = widen_f16(vshll_n_u8(vld1_u8(p), 7)); /* the bits of an f16 2^8 times smaller */
    return (vacc){{vmulq_n_f32(v.val[0], 128.0f), vmulq_n_f32(v.val[1], 128.0f)}};
}

/* 2^(e - 128): e < 2 is subnormal. */
AI float32x4_t e8(uint32x4_t e)
{
    uint32x4_t n = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t s = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), s, n));
}

AI void load_scales(struct scales *w, const uint8_t *blk, int g, int part, enum mm_header header)
{
    const uint8_t *h = blk + 16 * part, *b = blk + 8 * part;
    vacc d, m;
    uint8x8_t v;
    w->sc0 = w->sc1 = w->mn0 = w->mn1 = acc_zero();
    switch (header) {
    case H_D:
        w->sc0 = half_floats(h + 32 * g);
        break;
    case H_DM:
        w->sc0 = half_floats(h);
        w->mn0 = half_floats(h + 32);
        break;
    case H_E8: {
        uint16x8_t e = vmovl_u8(vld1_u8(b + 16 * g));
        w->sc0 = (vacc){{e8(vmovl_u16(vget_low_u16(e))), e8(vmovl_u16(vget_high_u16(e)))}};
        break;
    }
    case H_E4:
        w->sc0 = e4m3_halves(b + 32 * g);
        w->sc1 = e4m3_halves(b + 32 * g + 16);
        break;
    case H_K4:
        w->sc0 = mul(half_floats(h), bytes_u(vld1_u8(b + 64 + 32 * g)));
        w->mn0 = mul(half_floats(h + 32), bytes_u(vld1_u8(b + 80 + 32 * g)));
        break;
    case H_K6:
    case H_K3:
        d = half_floats(h);
        b += (header == H_K6 ? 64 : 32) + 32 * g;
        w->sc0 = mul(d, bytes_s(b));
        w->sc1 = mul(d, bytes_s(b + 16));
        break;
    case H_K2:
        d = half_floats(h);
        m = half_floats(h + 32);
        v = vld1_u8(b + 64 + 32 * g);
        w->sc0 = mul(d, bytes_u(vand_u8(v, vdup_n_u8(15))));
        w->mn0 = mul(m, bytes_u(vshr_n_u8(v, 4)));
        v = vld1_u8(b + 80 + 32 * g);
        w->sc1 = mul(d, bytes_u(vand_u8(v, vdup_n_u8(15))));
        w->mn1 = mul(m, bytes_u(vshr_n_u8(v, 4)));
        break;
    case H_XS:
        w->sc0 = mul(half_floats(h), bytes_s(b + 32 + 16 * g));
        break;
    case H_F:
        w->sc0 = acc_load((const float *)(const void *)(blk + 32 * part));
        break;
    case H_Z:
        w->sc0 = half_floats(h);
        w->mn0 = mul(w->sc0, bytes_s(b + 32));
        break;
    case H_ZG:
        w->sc0 = half_floats(h + 32 * g);
        w->mn0 = mul(w->sc0, bytes_s(b + 128 + 16 * g));
        break;
    case H_FLOAT:
        break;
    }
}

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
    if (header == H_DM) return vfmaq_n_f32(acc, w->mn0.val[i], e->s[0]);
    acc = vfmsq_n_f32(acc, w->mn0.val[i], e->s[half ? 1 : 0]);
    return half ? vfmsq_n_f32(acc, w->mn1.val[i], e->s[2]) : acc;
}

#endif
