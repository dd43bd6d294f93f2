/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to integers. */
#include <immintrin.h>

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

/* The tail of a record is {d, s0, s1, has_lo}; of an entry {d, i0, i1, f0, f1, col, 0, 0}. */
void kern_mm_fill_avx2(const struct mm_rec *r, int n, int off, int half, int col, struct mm_ent *e,
                       int stride)
{
    __m128i whole = half ? _mm_setzero_si128() : _mm_setr_epi32(0, -1, 0, -1);
    __m128i neg = _mm_set1_epi32(-off), last = _mm_setr_epi32(0, col, 0, 0);
    for (int g = 0; g < n; g++, r++, e += stride) {
        __m256i q = _mm256_loadu_si256((const __m256i *)(const void *)r->q);
        __m128i t = _mm_loadu_si128((const __m128i *)(const void *)&r->d);
        __m128i s = _mm_shuffle_epi32(t, 0x64); /* d s0 s1 s0, lane 0 of no use */
        s = _mm_add_epi32(s, _mm_and_si128(_mm_shuffle_epi32(t, 0xaa), whole));
        __m128 f = _mm_mul_ps(_mm_cvtepi32_ps(s), _mm_castsi128_ps(_mm_shuffle_epi32(t, 0)));
        __m128i i = _mm_blend_epi32(_mm_mullo_epi32(s, neg), t, 1);
        __m128i a = _mm_blend_epi32(i, _mm_castps_si128(f), 8);
        __m128i b = _mm_blend_epi32(last, _mm_shuffle_epi32(_mm_castps_si128(f), 2), 1);
        _mm256_storeu_si256((__m256i *)(void *)e->q, q);
        _mm256_storeu_si256((__m256i *)(void *)&e->d, _mm256_set_m128i(b, a));
    }
}

AI int32_t sum8(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* 32 int32 in -128..127 and their sums into a record. */
AI void put(struct mm_rec *r, __m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)r->q, q);
    r->isum[0] = sum8(_mm256_add_epi32(a, b));
    r->isum[1] = sum8(_mm256_add_epi32(c, d));
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
                        float *amax)
{
    for (int g = 0; g < n_group; g++, x += 32) {
        struct mm_rec *h = &hi[g];
        int two = lo && amax[g] >= 0.0f;
        __m256 m0 = magnitude(x), m1 = magnitude(x + 8), m2 = magnitude(x + 16),
               m3 = magnitude(x + 24);
        __m256 big = _mm256_set1_ps(FLT_LARGEST);
        __m256 ok = _mm256_and_ps(
            _mm256_and_ps(_mm256_cmp_ps(m0, big, _CMP_LE_OQ), _mm256_cmp_ps(m1, big, _CMP_LE_OQ)),
            _mm256_and_ps(_mm256_cmp_ps(m2, big, _CMP_LE_OQ), _mm256_cmp_ps(m3, big, _CMP_LE_OQ)));
        float m = largest(_mm256_max_ps(_mm256_max_ps(m0, m1), _mm256_max_ps(m2, m3)));
        float limit = two ? 16256.0f : 127.0f, inv = m > 0.0f ? limit / m : 0.0f, d = m / limit;
        if (!(inv <= FLT_LARGEST)) inv = 0.0f, d = 0.0f;
        int bad = _mm256_movemask_ps(ok) != 0xff;
        if (bad) inv = 0.0f;
        __m256 f = _mm256_set1_ps(inv);
        __m256i v0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), f));
        __m256i v1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), f));
        __m256i v2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), f));
        __m256i v3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), f));
        if (bad) { /* 0 * NaN and 0 * inf are no numbers */
            v0 = v1 = v2 = v3 = _mm256_setzero_si256();
            d = __builtin_nanf("");
        }
        h->has_lo = 0;
        h->d = d;
        if (!two) {
            put(h, v0, v1, v2, v3);
            continue;
        }
        __m256i q0 = upper(v0), q1 = upper(v1), q2 = upper(v2), q3 = upper(v3);
        put(h, q0, q1, q2, q3);
        put(&lo[g], lower(v0, q0), lower(v1, q1), lower(v2, q2), lower(v3, q3));
        lo[g].has_lo = 0;
        lo[g].d = bad ? 0.0f : d;
        h->d = bad ? d : d * 128.0f;
        h->has_lo = !bad;
    }
}
