/* SPDX-License-Identifier: Apache-2.0 */
/* Products of float formats with 256-bit fma. */
#include <immintrin.h>

#include "kern/kern.h"

#define MM_ISA avx2
#define MM_PARTS 2
#define MM_BESIDE 4
#define F8_BIG MM_N_FMT /* f8 with scales of any size */
#define MM_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define AI static inline __attribute__((always_inline))

typedef __m256 vacc;

AI vacc acc_zero(void)
{
    return _mm256_setzero_ps();
}
AI vacc acc_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
AI void acc_store(float *p, vacc v)
{
    _mm256_storeu_ps(p, v);
}

/* Row values of one k: rows 8 * part on. bf16 comes in pairs of k: the even one shifted up, the odd
 * one masked. */
AI __m256 load_k(int fmt, const uint8_t *blk, int k, int part)
{
    if (fmt == MM_f32)
        return _mm256_loadu_ps((const float *)(const void *)(blk + 64 * k + 32 * part));
    if (fmt == MM_f16)
        return _mm256_cvtph_ps(
            _mm_loadu_si128((const __m128i *)(const void *)(blk + 32 * k + 16 * part)));
    if (fmt == MM_bf16) {
        __m256i v =
            _mm256_loadu_si256((const __m256i *)(const void *)(blk + 64 * (k / 2) + 32 * part));
        return _mm256_castsi256_ps(k & 1 ? _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u))
                                         : _mm256_slli_epi32(v, 16));
    }
    __m256 scale = _mm256_loadu_ps((const float *)(const void *)(blk + 32 * part));
    const void *at = blk + 64 + 16 * k + 8 * part;
    if (fmt == F8_BIG) { /* e4m3 has the bits of an f16 2^8 times smaller */
        __m128i v = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)at));
        v = _mm_and_si128(_mm_slli_epi16(v, 7), _mm_set1_epi16((short)0xbfff));
        return _mm256_mul_ps(_mm256_cvtph_ps(v), _mm256_mul_ps(scale, _mm256_set1_ps(0x1p8f)));
    }
    /* and of an f32 2^120 times smaller */
    __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));
    v = _mm256_and_si256(_mm256_slli_epi32(v, 20), _mm256_set1_epi32((int)0x87f00000u));
    return _mm256_mul_ps(_mm256_castsi256_ps(v), _mm256_mul_ps(scale, _mm256_set1_ps(0x1p120f)));
}

/* The format that load_k takes a block for: its scales times 2^120 may be beyond f32. */
AI int format_of(int fmt, const uint8_t *blk)
{
    if (fmt != MM_f8) return fmt;
    const float *scale = (const float *)(const void *)blk;
    __m256 sign = _mm256_set1_ps(-0.0f), most = _mm256_set1_ps(0x1p7f);
    __m256 a = _mm256_andnot_ps(sign, _mm256_loadu_ps(scale));
    __m256 b = _mm256_andnot_ps(sign, _mm256_loadu_ps(scale + 8));
    a = _mm256_or_ps(_mm256_cmp_ps(a, most, _CMP_GT_OQ), _mm256_cmp_ps(b, most, _CMP_GT_OQ));
    return _mm256_movemask_ps(a) ? F8_BIG : fmt;
}

/* The sums of columns grow in turn, odd k before even (mm.h), and both parts of a tile share a load
 * of each activation. */
AI void add_eight(vacc (*acc)[2], int fmt, const uint8_t *blk, int k, const float *x, int n)
{
    vacc t[MM_BESIDE][2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        int at = i ^ 1;
        __m256 w0 = load_k(fmt, blk, k + at, 0), w1 = load_k(fmt, blk, k + at, 1);
#pragma GCC unroll 4
        for (int j = 0; j < n; j++) {
            __m256 v = _mm256_set1_ps(x[8 * j + at]);
            t[j][0] = i ? _mm256_fmadd_ps(w0, v, t[j][0]) : _mm256_mul_ps(w0, v);
            t[j][1] = i ? _mm256_fmadd_ps(w1, v, t[j][1]) : _mm256_mul_ps(w1, v);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n; j++)
        for (int p = 0; p < 2; p++)
            acc[j][p] = _mm256_add_ps(acc[j][p], t[j][p]);
}

AI void widen_eight(float *wide, int fmt, const uint8_t *blk, int k)
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        for (int p = 0; p < 2; p++)
            acc_store(wide + 16 * i + 8 * p, load_k(fmt, blk, k + i, p));
}

AI void widen(float *wide, const uint8_t *blk, int k)
{
    int big = format_of(MM_f8, blk) == F8_BIG;
    for (int end = k + 32; k < end; k += 8, wide += 8 * 16)
        if (big)
            widen_eight(wide, F8_BIG, blk, k);
        else
            widen_eight(wide, MM_f8, blk, k);
}

#include "kern/tmpl/mm_floats.inc"
