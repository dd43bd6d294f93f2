/* SPDX-License-Identifier: Apache-2.0 */
/* The 512-bit intrinsics, or with SL_SIMDE their logic in plain C (SIMDe), so that the AVX-512
 * files can be checked on any CPU. */
#ifndef KERN_X86_WIDE_H
#define KERN_X86_WIDE_H

#ifdef SL_SIMDE
#include <math.h>
#include <simde/x86/avx512.h>

/* What SIMDe 0.7 lacks. */
static inline simde__m512 wide_cvtph(__m256i v)
{
    float f[16];
    _mm256_storeu_ps(f, _mm256_cvtph_ps(_mm256_castsi256_si128(v)));
    _mm256_storeu_ps(f + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
    return simde_mm512_loadu_ps(f);
}
static inline simde__m512i wide_cvtepu8(__m128i v)
{
    uint8_t b[16];
    int32_t w[16];
    _mm_storeu_si128((__m128i *)(void *)b, v);
    for (int i = 0; i < 16; i++)
        w[i] = b[i];
    return simde_mm512_loadu_si512(w);
}
static inline simde__m512i wide_cvtepi8(__m128i v)
{
    int8_t b[16];
    int32_t w[16];
    _mm_storeu_si128((__m128i *)(void *)b, v);
    for (int i = 0; i < 16; i++)
        w[i] = b[i];
    return simde_mm512_loadu_si512(w);
}
static inline simde__m512 wide_cvtepi32(simde__m512i v)
{
    int32_t w[16];
    float f[16];
    simde_mm512_storeu_si512(w, v);
    for (int i = 0; i < 16; i++)
        f[i] = (float)w[i];
    return simde_mm512_loadu_ps(f);
}
static inline uint32_t wide_cmplt_epu32(simde__m512i a, simde__m512i b)
{
    uint32_t x[16], y[16], m = 0;
    simde_mm512_storeu_si512(x, a);
    simde_mm512_storeu_si512(y, b);
    for (int i = 0; i < 16; i++)
        m |= (uint32_t)(x[i] < y[i]) << i;
    return m;
}
static inline simde__m512i wide_mask_sllv(simde__m512i src, uint32_t m, simde__m512i a,
                                          simde__m512i n)
{
    uint32_t s[16], x[16], y[16];
    simde_mm512_storeu_si512(s, src);
    simde_mm512_storeu_si512(x, a);
    simde_mm512_storeu_si512(y, n);
    for (int i = 0; i < 16; i++)
        if (m >> i & 1) s[i] = y[i] < 32 ? x[i] << y[i] : 0;
    return simde_mm512_loadu_si512(s);
}
static inline simde__m512i wide_srai(simde__m512i v, int n)
{
    int32_t w[16];
    simde_mm512_storeu_si512(w, v);
    for (int i = 0; i < 16; i++)
        w[i] >>= n;
    return simde_mm512_loadu_si512(w);
}
static inline simde__m512 wide_scalef(simde__m512 a, simde__m512 b)
{
    float x[16], e[16];
    simde_mm512_storeu_ps(x, a);
    simde_mm512_storeu_ps(e, b);
    for (int i = 0; i < 16; i++)
        x[i] = e[i] != e[i] ? e[i] : ldexpf(x[i], (int)e[i]);
    return simde_mm512_loadu_ps(x);
}
#undef _mm512_scalef_ps
#define _mm512_scalef_ps(a, b) wide_scalef(a, b)
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(v, n) wide_srai(v, n)
#undef _mm512_cvtph_ps
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cmplt_epu32_mask
#undef _mm512_mask_sllv_epi32
#define _mm512_cvtph_ps(v) wide_cvtph(v)
#define _mm512_cvtepu8_epi32(v) wide_cvtepu8(v)
#define _mm512_cvtepi8_epi32(v) wide_cvtepi8(v)
#define _mm512_cvtepi32_ps(v) wide_cvtepi32(v)
#define _mm512_cmplt_epu32_mask(a, b) wide_cmplt_epu32(a, b)
#define _mm512_mask_sllv_epi32(s, m, a, n) wide_mask_sllv(s, m, a, n)
#else
#include <immintrin.h>
#endif

#endif
