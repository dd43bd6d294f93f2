/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kern/draw.h: a tile's 16 blocks of words as four groups of four, a block a lane of
 * 64 bits, of which the upper half may hold anything: products and shifts see the lower one. */
#include <immintrin.h>
#include <math.h>

#include "base/fp_math.h"
#include "base/size.h"
#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))
#define GROUPS 4

struct blocks {
    __m256i c[4]; /* words 0 to 3 of four blocks */
};

AI void round_of(struct blocks *b, __m256i k0, __m256i k1)
{
    __m256i p0 = _mm256_mul_epu32(b->c[0], _mm256_set1_epi32((int)0xD2511F53u));
    __m256i p1 = _mm256_mul_epu32(b->c[2], _mm256_set1_epi32((int)0xCD9E8D57u));
    b->c[0] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(b->c[1], k0));
    b->c[2] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(b->c[3], k1));
    b->c[1] = p1;
    b->c[3] = p0;
}

/* Four blocks side by side: 16 words. */
AI void put(uint32_t *w, const struct blocks *b)
{
    __m256i a = _mm256_blend_epi32(b->c[0], _mm256_slli_epi64(b->c[1], 32), 0xaa);
    __m256i c = _mm256_blend_epi32(b->c[2], _mm256_slli_epi64(b->c[3], 32), 0xaa);
    __m256i even = _mm256_unpacklo_epi64(a, c), odd = _mm256_unpackhi_epi64(a, c);
    _mm256_storeu_si256((__m256i *)(void *)w, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(w + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}

/* base/rng.h's words. */
static void words(const struct draw_run *r, int id0)
{
    struct blocks b[GROUPS];
    uint32_t k0 = (uint32_t)r->key, k1 = (uint32_t)(r->key >> 32);
    for (int g = 0; g < GROUPS; g++) {
        b[g].c[0] = _mm256_add_epi64(_mm256_set1_epi64x(id0 / 4 + 4 * g),
                                     _mm256_setr_epi64x(0, 1, 2, 3));
        b[g].c[1] = _mm256_setzero_si256();
        b[g].c[2] = _mm256_set1_epi32((int)(uint32_t)r->counter);
        b[g].c[3] = _mm256_set1_epi32((int)(uint32_t)(r->counter >> 32));
    }
    for (int i = 0; i < 10; i++) {
        __m256i v0 = _mm256_set1_epi32((int)k0), v1 = _mm256_set1_epi32((int)k1);
        for (int g = 0; g < GROUPS; g++)
            round_of(&b[g], v0, v1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int g = 0; g < GROUPS; g++)
        put(r->w + 16 * g, &b[g]);
}

/* As draw_bound and draw_may_win. */
AI __m256 may_win(__m256 z, __m256i word, __m256 best)
{
    __m256 x = _mm256_mul_ps(_mm256_sub_ps(z, best), _mm256_set1_ps(0x1.715476p0f));
    x = _mm256_add_ps(x, _mm256_set1_ps(0.001f));
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-40.0f)), _mm256_set1_ps(1.0f));
    __m256i b = _mm256_cvttps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(0x1p23f)));
    __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(b, _mm256_set1_epi32(158 << 23)));
    return _mm256_cmp_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(word, 1)), y, _CMP_LE_OQ);
}

static int any_may_win(const struct draw_run *r, const float *z, int id0)
{
    __m256 any = _mm256_setzero_ps(), best = _mm256_set1_ps(r->best);
    __m256 least = _mm256_set1_ps(r->best + DRAW_LEAST);
    for (int i = 0; i < DRAW_TILE; i += 8)
        any = _mm256_or_ps(any, _mm256_cmp_ps(_mm256_loadu_ps(z + i), least, _CMP_GE_OQ));
    if (!_mm256_movemask_ps(any)) return 0;
    words(r, id0);
    any = _mm256_setzero_ps();
    for (int i = 0; i < DRAW_TILE; i += 8) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)(r->w + i));
        any = _mm256_or_ps(any, may_win(_mm256_loadu_ps(z + i), w, best));
    }
    return _mm256_movemask_ps(any);
}

int kern_draw_next_avx2(const struct draw_run *r, int id0)
{
    float part[DRAW_TILE];
    for (; id0 < r->n; id0 += DRAW_TILE) {
        const float *z = r->z + id0;
        if (r->n - id0 < DRAW_TILE) { /* fill up with what never wins */
            memcpy(part, z, sizeof *z * (size_t)(r->n - id0));
            for (int i = r->n - id0; i < DRAW_TILE; i++)
                part[i] = -INFINITY;
            z = part;
        }
        if (any_may_win(r, z, id0)) return id0;
    }
    return r->n;
}

/* base/fp_math.h's fp_exp, the same operations; what is below -708 is to be left out. */
AI __m256d exp_of(__m256d x)
{
    static const double inverse[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800,
                                     1.0 / 3628800,    1.0 / 362880,    1.0 / 40320,
                                     1.0 / 5040,       1.0 / 720,       1.0 / 120,
                                     1.0 / 24,         1.0 / 6,         0.5};
    __m256d t = _mm256_mul_pd(x, _mm256_set1_pd(0x1.71547652b82fep+0));
    __m128i k = _mm256_cvttpd_epi32(_mm256_sub_pd(t, _mm256_set1_pd(0.5)));
    __m256d kd = _mm256_cvtepi32_pd(k), p = _mm256_set1_pd(inverse[0]);
    __m256d r = _mm256_sub_pd(x, _mm256_mul_pd(kd, _mm256_set1_pd(FP_LN2_HI)));
    r = _mm256_sub_pd(r, _mm256_mul_pd(kd, _mm256_set1_pd(FP_LN2_LO)));
    for (int i = 1; i < 12; i++)
        p = _mm256_add_pd(_mm256_mul_pd(p, r), _mm256_set1_pd(inverse[i]));
    p = _mm256_add_pd(r, _mm256_mul_pd(_mm256_mul_pd(r, r), p));
    __m256i b = _mm256_add_epi64(_mm256_cvtepi32_epi64(k), _mm256_set1_epi64x(1023));
    __m256d scale = _mm256_castsi256_pd(_mm256_slli_epi64(b, 52));
    return _mm256_add_pd(scale, _mm256_mul_pd(scale, p));
}

/* Add four, one after the other: what is left out adds 0. */
AI void add(struct draw_mass *m, __m128 z, __m128 least)
{
    __m128 in = _mm_and_ps(_mm_cmpge_ps(z, least), _mm_cmpgt_ps(z, _mm_set1_ps(-INFINITY)));
    m->n += __builtin_popcount((unsigned)_mm_movemask_ps(in));
    in = _mm_and_ps(in, _mm_cmpge_ps(z, _mm_set1_ps(-708.0f)));
    if (!_mm_movemask_ps(in)) return;
    __m256d x = _mm256_cvtps_pd(_mm_max_ps(z, _mm_set1_ps(-708.0f)));
    __m256d keep = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_castps_si128(in)));
    __m256d e = _mm256_and_pd(keep, exp_of(x));
    __m128d low = _mm256_castpd256_pd128(e), high = _mm256_extractf128_pd(e, 1);
    m->sum += _mm_cvtsd_f64(low);
    m->sum += _mm_cvtsd_f64(_mm_unpackhi_pd(low, low));
    m->sum += _mm_cvtsd_f64(high);
    m->sum += _mm_cvtsd_f64(_mm_unpackhi_pd(high, high));
}

struct draw_mass kern_draw_mass_avx2(const float *z, int n, float least)
{
    struct draw_mass m = {0, 0};
    __m128 floor = _mm_set1_ps(least);
    int i = 0;
    for (; i + 4 <= n; i += 4)
        add(&m, _mm_loadu_ps(z + i), floor);
    if (i < n) {
        float part[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        memcpy(part, z + i, sizeof *z * (size_t)(n - i));
        add(&m, _mm_loadu_ps(part), floor);
    }
    return m;
}
