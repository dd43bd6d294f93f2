/* SPDX-License-Identifier: Apache-2.0 */
/* The vector operations that tmpl/vec.inc is written in, with AVX-512. */
#ifndef KERN_SIMD_AVX512_H
#define KERN_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
#define V_ROWS 6
#define V_ROWS_2 8
#define V_ROWS_1 12

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline __mmask16 v_mask(int n)
{
    return (__mmask16)((1u << n) - 1);
}
static inline vf v_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}
static inline void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
static inline void v_store_n(float *p, vf a, int n)
{
    _mm512_mask_storeu_ps(p, v_mask(n), a);
}
static inline vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, 8);
}
static inline vf v_pow2(vf n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}
static inline vf v_sel_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline vf v_iota(int base)
{
    __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cvtepi32_ps(_mm512_add_epi32(i, _mm512_set1_epi32(base)));
}
static inline vf v_from_i32(const int32_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(p));
}
static inline vf v_from_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
static inline void v_from_bf16_pairs(const uint16_t *p, vf *first, vf *second)
{
    __m512i w = _mm512_loadu_si512((const void *)p);
    *first = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
    *second = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_srli_epi32(w, 16), 16));
}
static inline int v_put_16(uint16_t *p, vf a, int bf16)
{
    if (_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q)) return 0;
    __m512i b = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    b = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m256i h = bf16 ? _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)) : _mm512_cvtps_ph(a, 0);
    _mm256_storeu_si256((__m256i *)(void *)p, h);
    return 1;
}
static inline vf v_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf v_from_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline float v_hsum(vf a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float v_hmax(vf a)
{
    __m256 b = _mm256_max_ps(_mm512_extractf32x8_ps(a, 1), _mm512_castps512_ps256(a));
    __m128 c = _mm_max_ps(_mm256_extractf128_ps(b, 1), _mm256_castps256_ps128(b));
    c = _mm_max_ps(_mm_movehl_ps(c, c), c);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(c), c));
}
static inline void v_load2(const float *p, vf *even, vf *odd)
{
    __m512 a = v_load(p), b = v_load(p + 16);
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
static inline void v_store2(float *p, vf even, vf odd)
{
    const __m512i lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v_store(p, _mm512_permutex2var_ps(even, lo, odd));
    v_store(p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(lo, _mm512_set1_epi32(8)), odd));
}

#endif
