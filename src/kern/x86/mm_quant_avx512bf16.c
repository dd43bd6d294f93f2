/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to integers: a group of 32 is two registers. (Not with avx512vnni: the SIMDe build
 * runs those files on any CPU.) */
#include <immintrin.h>

#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))
#define FLT_LARGEST 3.402823466e38f

AI __m512 magnitude(__m512 v)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)));
}

AI float largest(__m512 v)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v),
                             _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

void kern_mm_amax_avx512bf16(const float *x, int n_group, float *amax)
{
    for (int g = 0; g < n_group; g++, x += 32) { /* max gives its second operand for a NaN first */
        __m512 m = _mm512_max_ps(magnitude(_mm512_loadu_ps(x)), _mm512_setzero_ps());
        amax[g] = largest(_mm512_max_ps(magnitude(_mm512_loadu_ps(x + 16)), m));
    }
}

/* 32 int32 in -127..127, d = 2^e and what follows from them into a record. */
AI void put(struct mm_rec *r, float d, float e, __m512i a, __m512i b)
{
    __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(a)),
                                        _mm512_cvtepi32_epi8(b), 1);
    __m256i p = _mm256_maddubs_epi16(_mm256_set1_epi8(8), q); /* a lane of 16 bytes is a half */
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0x4e));
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0xb1));
    p = _mm256_sub_epi16(_mm256_setzero_si256(), p);
    __m256i s = _mm256_madd_epi16(p, _mm256_set1_epi16(1));
    __m256i s1 = _mm256_permute4x64_epi64(s, 0x00), s2 = _mm256_permute4x64_epi64(s, 0xff);
    __m256i i = _mm256_blend_epi32(_mm256_add_epi32(s1, s2), s1, 0x04); /* d i0 i1 i2 s p0 p1 e */
    i = _mm256_blend_epi32(i, s2, 0x08);
    __m256 n = _mm256_cvtepi32_ps(_mm256_sub_epi32(
        _mm256_setzero_si256(), _mm256_srai_epi32(i, 3))); /* exact, and 0 has no sign */
    __m256i v = _mm256_castps_si256(_mm256_mul_ps(n, _mm256_set1_ps(d)));
    v = _mm256_blend_epi32(v, i, 0x0e);
    v = _mm256_blend_epi32(v, _mm256_permute4x64_epi64(p, 0x00), 0x20);
    v = _mm256_blend_epi32(v, _mm256_permute4x64_epi64(p, 0xff), 0x40);
    v = _mm256_blend_epi32(v, _mm256_castps_si256(_mm256_set1_ps(d)), 0x01);
    v = _mm256_blend_epi32(v, _mm256_castps_si256(_mm256_set1_ps(e)), 0x80);
    _mm256_storeu_si256((__m256i *)(void *)r, q);
    _mm256_storeu_si256((__m256i *)(void *)&r->d, v);
}

#define STEPS 16 /* groups whose steps are made together */

/* Of groups with those largest values (signs: kern.h): step, its exponent, and what values are
 * multiplied with. two: of two planes where there is no sign. */
struct steps {
    float d[STEPS], e[STEPS], inv[STEPS];
};

AI void make_steps(const float *amax, int n, int two, float unit_inv, struct steps *s)
{
    __m512 a = _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), amax);
    __mmask16 one = two ? _mm512_movepi32_mask(_mm512_castps_si512(a)) : (__mmask16)0xffff;
    __m512 m = _mm512_mul_ps(magnitude(a), _mm512_set1_ps(unit_inv));
    __m512i u = _mm512_add_epi32(_mm512_castps_si512(m), _mm512_set1_epi32(MM_STEP_ROUND));
    u = _mm512_and_si512(u, _mm512_set1_epi32((int)0xff800000u));
    u = _mm512_sub_epi32(
        u, _mm512_mask_blend_epi32(one, _mm512_set1_epi32(13 << 23), _mm512_set1_epi32(6 << 23)));
    __mmask16 some = _mm512_cmp_ps_mask(m, _mm512_set1_ps(MM_AMAX_MIN), _CMP_GE_OQ);
    __m512i e = _mm512_sub_epi32(_mm512_srli_epi32(u, 23), _mm512_set1_epi32(127));
    __m512 d = _mm512_maskz_mov_ps(some, _mm512_castsi512_ps(u));
    _mm512_storeu_ps(s->d, d);
    _mm512_storeu_ps(s->e, _mm512_maskz_cvtepi32_ps(some, e));
    _mm512_storeu_ps(s->inv, _mm512_maskz_div_ps(some, _mm512_set1_ps(unit_inv), d));
}

AI void quant(const float *x, struct mm_rec *hi, struct mm_rec *lo, float d, float e, float inv)
{
    __m512 big = _mm512_set1_ps(FLT_LARGEST), f = _mm512_set1_ps(inv);
    __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
    int bad = (_mm512_cmp_ps_mask(magnitude(x0), big, _CMP_LE_OQ) &
               _mm512_cmp_ps_mask(magnitude(x1), big, _CMP_LE_OQ)) != 0xffff;
    __m512i v0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, f));
    __m512i v1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, f));
    if (__builtin_expect(bad, 0)) { /* 0 * NaN and 0 * inf are no numbers */
        v0 = v1 = _mm512_setzero_si512();
        d = e = __builtin_nanf("");
    }
    if (!lo) {
        put(hi, d, e, v0, v1);
        return;
    }
    __m512i half = _mm512_set1_epi32(64);
    __m512i q0 = _mm512_srai_epi32(_mm512_add_epi32(v0, half), 7);
    __m512i q1 = _mm512_srai_epi32(_mm512_add_epi32(v1, half), 7);
    put(hi, d * 128.0f, d == 0.0f ? 0.0f : e + 7.0f, q0, q1);
    put(lo, bad ? 0.0f : d, bad ? 0.0f : e, _mm512_sub_epi32(v0, _mm512_slli_epi32(q0, 7)),
        _mm512_sub_epi32(v1, _mm512_slli_epi32(q1, 7)));
}

void kern_mm_quant_avx512bf16(const float *x, int n_group, struct mm_rec *hi, struct mm_rec *lo,
                              const float *amax, float unit_inv)
{
    struct steps s;
    for (int g0 = 0; g0 < n_group; g0 += STEPS) {
        int n = n_group - g0 < STEPS ? n_group - g0 : STEPS;
        make_steps(amax + g0, n, lo != NULL, unit_inv, &s);
        for (int i = 0, g = g0; i < n; i++, g++, x += 32)
            if (lo && !__builtin_signbit(amax[g]))
                quant(x, hi + g, lo + g, s.d[i], s.e[i], s.inv[i]);
            else
                quant(x, hi + g, NULL, s.d[i], s.e[i], s.inv[i]);
    }
}
