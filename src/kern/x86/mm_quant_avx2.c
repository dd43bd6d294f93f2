/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to integers. */
#include <immintrin.h>
#include <string.h>

#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))
#define FLT_LARGEST 3.402823466e38f

AI __m256 magnitude(const float *p)
{
    return _mm256_and_ps(_mm256_loadu_ps(p), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

AI float largest(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    return _mm_cvtss_f32(m);
}

void kern_mm_amax_avx2(const float *x, int n_group, float *amax)
{
    for (int g = 0; g < n_group; g++, x += 32) {
        __m256 m = _mm256_setzero_ps(); /* max_ps gives its second operand where the first is NaN */
        for (int i = 0; i < 32; i += 8)
            m = _mm256_max_ps(magnitude(x + i), m);
        amax[g] = largest(m);
    }
}

/* 32 int32 in -128..127, d = 2^e2 and what follows from them into a record. */
AI void put(struct mm_rec *r, float d, float e2, __m256i a, __m256i b, __m256i c, __m256i e)
{
    __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, e));
    q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i p = _mm256_maddubs_epi16(_mm256_set1_epi8(8), q); /* a lane of 16 bytes is a half */
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0x4e));
    p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0xb1));
    p = _mm256_sub_epi16(_mm256_setzero_si256(), p);
    __m256i i = _mm256_madd_epi16(p, _mm256_set1_epi16(1));
    int32_t i1 = _mm256_extract_epi32(i, 0), i2 = _mm256_extract_epi32(i, 4), i0 = i1 + i2;
    int32_t p1 = _mm256_extract_epi32(p, 0), p2 = _mm256_extract_epi32(p, 4);
    _mm256_storeu_si256((__m256i *)(void *)r->q, q);
    r->d = d;
    r->i[0] = i0;
    r->i[1] = i1;
    r->i[2] = i2;
    r->s = d * (float)(i0 / -8);
    memcpy(r->p[0], &p1, sizeof p1);
    memcpy(r->p[1], &p2, sizeof p2);
    r->e = e2;
}

AI __m256i upper(__m256i v)
{
    return _mm256_srai_epi32(_mm256_add_epi32(v, _mm256_set1_epi32(64)), 7);
}

AI __m256i lower(__m256i v, __m256i q)
{
    return _mm256_sub_epi32(v, _mm256_slli_epi32(q, 7));
}

void kern_mm_quant_avx2(const float *x, int n_group, struct mm_rec *hi, struct mm_rec *lo,
                        const float *amax, float unit_inv)
{
    for (int g = 0; g < n_group; g++, x += 32) {
        struct mm_rec *h = &hi[g];
        int two = lo && !__builtin_signbit(amax[g]);
        __m256 m0 = magnitude(x), m1 = magnitude(x + 8), m2 = magnitude(x + 16),
               m3 = magnitude(x + 24);
        __m256 big = _mm256_set1_ps(FLT_LARGEST);
        __m256 ok = _mm256_and_ps(
            _mm256_and_ps(_mm256_cmp_ps(m0, big, _CMP_LE_OQ), _mm256_cmp_ps(m1, big, _CMP_LE_OQ)),
            _mm256_and_ps(_mm256_cmp_ps(m2, big, _CMP_LE_OQ), _mm256_cmp_ps(m3, big, _CMP_LE_OQ)));
        float big_m = __builtin_fabsf(amax[g]) * unit_inv, d = kern_mm_step(big_m, two);
        float inv = unit_inv / d, e = kern_mm_exponent(d);
        if (!(big_m >= MM_AMAX_MIN)) inv = d = e = 0.0f;
        int bad = _mm256_movemask_ps(ok) != 0xff;
        if (bad) inv = 0.0f;
        __m256 f = _mm256_set1_ps(inv);
        __m256i v0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), f));
        __m256i v1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), f));
        __m256i v2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), f));
        __m256i v3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), f));
        if (bad) { /* 0 * NaN and 0 * inf are no numbers */
            v0 = v1 = v2 = v3 = _mm256_setzero_si256();
            d = e = __builtin_nanf("");
        }
        if (!two) {
            put(h, d, e, v0, v1, v2, v3);
            continue;
        }
        __m256i q0 = upper(v0), q1 = upper(v1), q2 = upper(v2), q3 = upper(v3);
        put(h, d * 128.0f, d == 0.0f ? 0.0f : e + 7.0f, q0, q1, q2, q3);
        put(&lo[g], bad ? 0.0f : d, bad ? 0.0f : e, lower(v0, q0), lower(v1, q1), lower(v2, q2),
            lower(v3, q3));
    }
}
