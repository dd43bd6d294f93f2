/* SPDX-License-Identifier: Apache-2.0 */
/* 16 lanes as four registers. */
#ifndef KERN_SIMD_NEON_H
#define KERN_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef struct {
    float32x4_t q[4];
} vf;
#define V_ROWS 1 /* 32 registers: 1 x 4, 3 x 2 or 6 x 1 accumulators of four registers */
#define V_ROWS_2 3
#define V_ROWS_1 6
#define V_QUADS(expr)                                                                              \
    do {                                                                                           \
        for (int i = 0; i < 4; i++)                                                                \
            r.q[i] = (expr);                                                                       \
        return r;                                                                                  \
    } while (0)

static inline vf v_load(const float *p)
{
    vf r;
    V_QUADS(vld1q_f32(p + 4 * i));
}
static inline void v_store(float *p, vf a)
{
    for (int i = 0; i < 4; i++)
        vst1q_f32(p + 4 * i, a.q[i]);
}
static inline vf v_load_n(const float *p, int n)
{
    float t[16] = {0};
    for (int i = 0; i < n; i++)
        t[i] = p[i];
    return v_load(t);
}
static inline void v_store_n(float *p, vf a, int n)
{
    float t[16];
    v_store(t, a);
    for (int i = 0; i < n; i++)
        p[i] = t[i];
}
static inline vf v_set1(float x)
{
    vf r;
    V_QUADS(vdupq_n_f32(x));
}
static inline vf v_add(vf a, vf b)
{
    vf r;
    V_QUADS(vaddq_f32(a.q[i], b.q[i]));
}
static inline vf v_sub(vf a, vf b)
{
    vf r;
    V_QUADS(vsubq_f32(a.q[i], b.q[i]));
}
static inline vf v_mul(vf a, vf b)
{
    vf r;
    V_QUADS(vmulq_f32(a.q[i], b.q[i]));
}
static inline vf v_div(vf a, vf b)
{
    vf r;
    V_QUADS(vdivq_f32(a.q[i], b.q[i]));
}
static inline vf v_fma(vf a, vf b, vf c)
{
    vf r;
    V_QUADS(vfmaq_f32(c.q[i], a.q[i], b.q[i]));
}
static inline vf v_max(vf a, vf b)
{
    vf r;
    V_QUADS(vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]));
}
static inline vf v_min(vf a, vf b)
{
    vf r;
    V_QUADS(vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]));
}
static inline vf v_round(vf a)
{
    vf r;
    V_QUADS(vrndnq_f32(a.q[i]));
}
static inline vf v_pow2(vf n)
{
    vf r;
    V_QUADS(vreinterpretq_f32_s32(
        vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.q[i]), vdupq_n_s32(127)), 23)));
}
static inline vf v_sel_lt(vf a, vf b, vf x, vf y)
{
    vf r;
    V_QUADS(vbslq_f32(vcltq_f32(a.q[i], b.q[i]), x.q[i], y.q[i]));
}
static inline vf v_iota(int base)
{
    static const float lane[4] = {0, 1, 2, 3};
    vf r;
    V_QUADS(vaddq_f32(vld1q_f32(lane), vdupq_n_f32((float)(base + 4 * i))));
}
static inline vf v_from_i32(const int32_t *p)
{
    vf r;
    V_QUADS(vcvtq_f32_s32(vld1q_s32(p + 4 * i)));
}
static inline vf v_from_bf16(const uint16_t *p)
{
    vf r;
    V_QUADS(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
static inline void v_from_bf16_pairs(const uint16_t *p, vf *first, vf *second)
{
    for (int i = 0; i < 4; i++) {
        uint32x4_t w = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));
        first->q[i] = vreinterpretq_f32_u32(vshlq_n_u32(w, 16));
        second->q[i] = vreinterpretq_f32_u32(vbicq_u32(w, vdupq_n_u32(0xffff)));
    }
}
static inline int v_put_16(uint16_t *p, vf a, int bf16)
{
    (void)p, (void)a, (void)bf16;
    return 0;
}
static inline vf v_from_f16(const uint16_t *p)
{
    vf r;
    V_QUADS(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
static inline vf v_from_i8(const int8_t *p)
{
    int8x16_t b = vld1q_s8(p);
    int16x8_t w[2] = {vmovl_s8(vget_low_s8(b)), vmovl_s8(vget_high_s8(b))};
    vf r;
    V_QUADS(vcvtq_f32_s32(i & 1 ? vmovl_s16(vget_high_s16(w[i / 2]))
                                : vmovl_s16(vget_low_s16(w[i / 2]))));
}
static inline float v_hsum(vf a)
{
    float32x4_t s = vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
    float32x2_t h = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
static inline float v_hmax(vf a)
{
    float t[16];
    v_store(t, a);
    for (int h = 8; h; h /= 2)
        for (int i = 0; i < h; i++)
            t[i] = t[i + h] > t[i] ? t[i + h] : t[i];
    return t[0];
}
static inline void v_load2(const float *p, vf *even, vf *odd)
{
    for (int i = 0; i < 4; i++) {
        float32x4x2_t t = vld2q_f32(p + 8 * i);
        even->q[i] = t.val[0];
        odd->q[i] = t.val[1];
    }
}
static inline void v_store2(float *p, vf even, vf odd)
{
    for (int i = 0; i < 4; i++) {
        float32x4x2_t t = {{even.q[i], odd.q[i]}};
        vst2q_f32(p + 8 * i, t);
    }
}

#endif
