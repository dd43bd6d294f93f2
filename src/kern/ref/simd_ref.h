/* SPDX-License-Identifier: Apache-2.0 */
/* 16 lanes in plain C: the meaning of the shims of the other ISAs. */
#ifndef KERN_SIMD_REF_H
#define KERN_SIMD_REF_H

#include <math.h>

#include "base/fp.h"

typedef struct {
    float f[16];
} vf;
#define V_ROWS 2 /* rows of an mm tile at most, for 1, 2 and 4 vectors */
#define V_ROWS_2 2
#define V_ROWS_1 2
#define V_LANES(expr)                                                                              \
    do {                                                                                           \
        for (int i = 0; i < 16; i++)                                                               \
            r.f[i] = (expr);                                                                       \
        return r;                                                                                  \
    } while (0)

static inline vf v_load(const float *p)
{
    vf r;
    V_LANES(p[i]);
}
static inline vf v_load_n(const float *p, int n)
{
    vf r;
    V_LANES(i < n ? p[i] : 0.0f);
}
static inline void v_store(float *p, vf a)
{
    for (int i = 0; i < 16; i++)
        p[i] = a.f[i];
}
static inline void v_store_n(float *p, vf a, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = a.f[i];
}
static inline vf v_set1(float x)
{
    vf r;
    V_LANES(x);
}
static inline vf v_add(vf a, vf b)
{
    vf r;
    V_LANES(a.f[i] + b.f[i]);
}
static inline vf v_sub(vf a, vf b)
{
    vf r;
    V_LANES(a.f[i] - b.f[i]);
}
static inline vf v_mul(vf a, vf b)
{
    vf r;
    V_LANES(a.f[i] * b.f[i]);
}
static inline vf v_div(vf a, vf b)
{
    vf r;
    V_LANES(a.f[i] / b.f[i]);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    vf r;
    V_LANES(fmaf(a.f[i], b.f[i], c.f[i]));
}
/* The second operand when either is NaN. */
static inline vf v_max(vf a, vf b)
{
    vf r;
    V_LANES(a.f[i] > b.f[i] ? a.f[i] : b.f[i]);
}
static inline vf v_min(vf a, vf b)
{
    vf r;
    V_LANES(a.f[i] < b.f[i] ? a.f[i] : b.f[i]);
}
static inline vf v_round(vf a)
{
    vf r;
    V_LANES(rintf(a.f[i]));
}
/* 2^n for whole n in [-126, 127]. */
static inline vf v_pow2(vf n)
{
    vf r;
    V_LANES(
        fp_from_bits((uint32_t)((n.f[i] >= -126 && n.f[i] <= 127 ? (int)n.f[i] : 0) + 127) << 23));
}
/* a < b ? x : y; y when unordered. */
static inline vf v_sel_lt(vf a, vf b, vf x, vf y)
{
    vf r;
    V_LANES(a.f[i] < b.f[i] ? x.f[i] : y.f[i]);
}
/* Lane numbers plus base. */
static inline vf v_iota(int base)
{
    vf r;
    V_LANES((float)(base + i));
}
static inline vf v_from_i32(const int32_t *p)
{
    vf r;
    V_LANES((float)p[i]);
}
static inline vf v_from_bf16(const uint16_t *p)
{
    vf r;
    V_LANES(fp_bf16_to_f32(p[i]));
}
/* 16 pairs: the first of each, and the second. */
static inline void v_from_bf16_pairs(const uint16_t *p, vf *first, vf *second)
{
    for (int i = 0; i < 16; i++) {
        first->f[i] = fp_bf16_to_f32(p[2 * i]);
        second->f[i] = fp_bf16_to_f32(p[2 * i + 1]);
    }
}
/* a as bf16 or f16, to the nearest even one; 0: not done (a NaN, or no instructions for it). */
static inline int v_put_16(uint16_t *p, vf a, int bf16)
{
    (void)p, (void)a, (void)bf16;
    return 0;
}
static inline vf v_from_f16(const uint16_t *p)
{
    vf r;
    V_LANES(fp_f16_to_f32(p[i]));
}
static inline vf v_from_i8(const int8_t *p)
{
    vf r;
    V_LANES((float)p[i]);
}
static inline float v_hsum(vf a)
{
    for (int h = 8; h; h /= 2)
        for (int i = 0; i < h; i++)
            a.f[i] += a.f[i + h];
    return a.f[0];
}
static inline float v_hmax(vf a)
{
    for (int h = 8; h; h /= 2)
        for (int i = 0; i < h; i++)
            a.f[i] = a.f[i + h] > a.f[i] ? a.f[i + h] : a.f[i];
    return a.f[0];
}
/* Even lanes of the 32 floats at p, odd lanes, and back. */
static inline void v_load2(const float *p, vf *even, vf *odd)
{
    for (int i = 0; i < 16; i++) {
        even->f[i] = p[2 * i];
        odd->f[i] = p[2 * i + 1];
    }
}
static inline void v_store2(float *p, vf even, vf odd)
{
    for (int i = 0; i < 16; i++) {
        p[2 * i] = even.f[i];
        p[2 * i + 1] = odd.f[i];
    }
}

#endif
