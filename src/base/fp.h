/* SPDX-License-Identifier: Apache-2.0 */
/* Small floats as bits: f16, bf16, fp8 (E4M3FN, UE4M3), E8M0, e2m1. The only conversions outside
 * kern. Formats: docs/formats.md. Rounding is to nearest even everywhere. */
#ifndef BASE_FP_H
#define BASE_FP_H

#include <stdint.h>
#include <string.h>

/* The float of these bits, and the bits of a float. */
static inline float fp_from_bits(uint32_t b)
{
    float f;
    memcpy(&f, &b, 4);
    return f;
}

static inline uint32_t fp_to_bits(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    return b;
}

/* Exact. */
static inline float fp_bf16_to_f32(uint16_t h)
{
    return fp_from_bits((uint32_t)h << 16);
}

/* To the nearest, ties to even; NaN stays NaN. */
static inline uint16_t fp_f32_to_bf16(float f)
{
    uint32_t b = fp_to_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((b >> 16) | 0x40); /* quiet NaN */
    return (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}

/* Exact, subnormals and NaN included. */
static inline float fp_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, em = h & 0x7fffu;
    if (em >= 0x7c00u) return fp_from_bits(sign | 0x7f800000u | ((em & 0x3ffu) << 13));
    if (em >= 0x0400u) return fp_from_bits(sign | ((em << 13) + 0x38000000u));
    float f = (float)em * 0x1p-24f; /* subnormal: exact */
    return fp_from_bits(fp_to_bits(f) | sign);
}

/* To the nearest, ties to even; NaN stays NaN, what is too large becomes infinite. */
static inline uint16_t fp_f32_to_f16(float f)
{
    uint32_t b = fp_to_bits(f), sign = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* >= 65536 */
    if (a < 0x38800000u) {                                   /* below 2^-14: subnormal */
        float r = fp_from_bits(a) + 0.5f; /* ulp of 0.5 is 2^-24: rounds to nearest even there */
        return (uint16_t)(sign | (fp_to_bits(r) - 0x3f000000u));
    }
    uint32_t r = a + 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | ((r - 0x38000000u) >> 13));
}

/* E4M3FN: bias 7, max 448, NaN = S.1111.111, no infinity. */
static inline float fp_e4m3_to_f32(uint8_t x)
{
    uint32_t sign = (uint32_t)(x & 0x80u) << 24, em = x & 0x7fu;
    if (em == 0x7fu) return fp_from_bits(sign | 0x7fc00000u);
    float f = em >= 8 ? fp_from_bits((em << 20) + 0x3c000000u) : (float)em * 0x1p-9f;
    return fp_from_bits(fp_to_bits(f) | sign);
}

/* GGUF's UE4M3 scale: unsigned, codes 0 and 0x7f are 0. The top bit is not looked at, except that
 * 0xff is then 480 (as gguf-py has it). */
static inline float fp_ue4m3_to_f32(uint8_t x)
{
    if (x == 0x7f) return 0.0f;
    return x == 0xff ? 480.0f : fp_e4m3_to_f32(x & 0x7f);
}

/* 2^(e-127); 0xff is NaN. */
static inline float fp_e8m0_to_f32(uint8_t e)
{
    if (e == 0xff) return fp_from_bits(0x7fc00000u);
    return e == 0 ? 0x1p-127f : fp_from_bits((uint32_t)e << 23);
}

/* Nearest E4M3FN, saturating at 448; NaN stays NaN. */
uint8_t fp_f32_to_e4m3(float f);

#endif
