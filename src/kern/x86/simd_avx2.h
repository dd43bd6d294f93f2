/* SPDX-License-Identifier: Apache-2.0 */
/* 16 lanes as two registers: lanes 0-7 and 8-15. */
#ifndef KERN_SIMD_AVX2_H
#define KERN_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 a, b;
} vf;
#define V_ROWS 1 /* 16 registers: 1 x 4, 3 x 2 or 6 x 1 accumulators of two registers */
#define V_ROWS_2 3
#define V_ROWS_1 6

static inline vf v_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
/* Parts of vectors by way of memory: a masked store is some twenty operations on a Zen 3, and qemu
 * 7.2 touches what the mask of a load or store leaves out. n > 0. */
static inline vf v_load_n(const float *p, int n)
{
    float part[16] = {0};
    if (n >= 16) return v_load(p);
    memcpy(part, p, sizeof *p * (size_t)n);
    return v_load(part);
}
static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline void v_store_n(float *p, vf x, int n)
{
    if (n >= 16) {
        v_store(p, x);
        return;
    }
    float part[16];
    v_store(part, x);
    memcpy(p, part, sizeof *p * (size_t)n);
}
static inline vf v_set1(float x)
{
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline vf v_add(vf x, vf y)
{
    return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
static inline vf v_sub(vf x, vf y)
{
    return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
static inline vf v_mul(vf x, vf y)
{
    return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
static inline vf v_div(vf x, vf y)
{
    return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
static inline vf v_fma(vf x, vf y, vf z)
{
    return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline vf v_max(vf x, vf y)
{
    return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
static inline vf v_min(vf x, vf y)
{
    return (vf){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
static inline vf v_round(vf x)
{
    return (vf){_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)};
}
static inline __m256 v_pow2_8(__m256 n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}
static inline vf v_pow2(vf n)
{
    return (vf){v_pow2_8(n.a), v_pow2_8(n.b)};
}
static inline vf v_sel_lt(vf p, vf q, vf x, vf y)
{
    return (vf){_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(p.a, q.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(p.b, q.b, _CMP_LT_OQ))};
}
static inline vf v_iota(int base)
{
    __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (vf){_mm256_cvtepi32_ps(_mm256_add_epi32(i, _mm256_set1_epi32(base))),
                _mm256_cvtepi32_ps(_mm256_add_epi32(i, _mm256_set1_epi32(base + 8)))};
}
static inline vf v_from_i32(const int32_t *p)
{
    return (vf){_mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)p)),
                _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(p + 8)))};
}
static inline __m256 v_bf16_8(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
static inline vf v_from_bf16(const uint16_t *p)
{
    return (vf){v_bf16_8(p), v_bf16_8(p + 8)};
}
static inline __m256 v_high_8(__m256i w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(w, 16), 16));
}
static inline void v_from_bf16_pairs(const uint16_t *p, vf *first, vf *second)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)p);
    __m256i b = _mm256_loadu_si256((const __m256i *)(p + 16));
    *first = (vf){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
    *second = (vf){v_high_8(a), v_high_8(b)};
}
static inline __m256i v_round_16(__m256 a)
{
    __m256i b = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    b = _mm256_add_epi32(b, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_srli_epi32(b, 16);
}
static inline int v_put_16(uint16_t *p, vf x, int bf16)
{
    __m256 bad =
        _mm256_or_ps(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q));
    if (_mm256_movemask_ps(bad)) return 0;
    __m256i h = _mm256_packus_epi32(v_round_16(x.a), v_round_16(x.b));
    h = _mm256_permute4x64_epi64(h, 0xd8);
    if (!bf16)
        h = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph(x.a, 0)),
                                    _mm256_cvtps_ph(x.b, 0), 1);
    _mm256_storeu_si256((__m256i *)(void *)p, h);
    return 1;
}
static inline vf v_from_f16(const uint16_t *p)
{
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static inline vf v_from_i8(const int8_t *p)
{
    __m128i w = _mm_loadu_si128((const __m128i *)p);
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(w)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(w, 8)))};
}
static inline float v_hsum(vf x)
{
    __m256 b = _mm256_add_ps(x.a, x.b);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
static inline float v_hmax(vf x)
{
    __m256 b = _mm256_max_ps(x.b, x.a);
    __m128 c = _mm_max_ps(_mm256_extractf128_ps(b, 1), _mm256_castps256_ps128(b));
    c = _mm_max_ps(_mm_movehl_ps(c, c), c);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(c), c));
}
static inline void v_load2(const float *p, vf *even, vf *odd)
{
    __m256 r[4], e[2], o[2];
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_loadu_ps(p + 8 * i);
    for (int i = 0; i < 2; i++) {
        __m256 lo = _mm256_permute2f128_ps(r[2 * i], r[2 * i + 1], 0x20);
        __m256 hi = _mm256_permute2f128_ps(r[2 * i], r[2 * i + 1], 0x31);
        e[i] = _mm256_shuffle_ps(lo, hi, 0x88);
        o[i] = _mm256_shuffle_ps(lo, hi, 0xdd);
    }
    *even = (vf){e[0], e[1]};
    *odd = (vf){o[0], o[1]};
}
static inline void v_store2_8(float *p, __m256 e, __m256 o)
{
    __m256 lo = _mm256_unpacklo_ps(e, o), hi = _mm256_unpackhi_ps(e, o);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(lo, hi, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(lo, hi, 0x31));
}
static inline void v_store2(float *p, vf even, vf odd)
{
    v_store2_8(p, even.a, odd.a);
    v_store2_8(p + 16, even.b, odd.b);
}

#endif
