/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 weights times bf16 activations by pairs of k: the product of a pair is exact, so the sums
 * are those of the fma kernels in the order that mm.h states. */
#include <immintrin.h>

#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))
#define FEW 8 /* columns whose sums stay in registers */

AI __m512bh pairs(const uint8_t *p)
{
    __m512i v = _mm512_loadu_si512((const void *)p);
    return (__m512bh)v;
}

AI __m512 dot(__m512 t, __m512bh w, const uint16_t *x)
{
    int32_t v;
    __builtin_memcpy(&v, x, 4);
    return _mm512_dpbf16_ps(t, w, (__m512bh)_mm512_set1_epi32(v));
}

AI __m512 column(__m512bh w0, __m512bh w1, __m512bh w2, __m512bh w3, const uint16_t *x, __m512 acc)
{
    __m512 t = dot(_mm512_setzero_ps(), w0, x);
    t = dot(t, w1, x + 2);
    t = dot(t, w2, x + 4);
    t = dot(t, w3, x + 6);
    return _mm512_add_ps(acc, t);
}

/* A tile times n columns, their sums in registers: a constant where this is used. */
AI void tile(const struct mm_run *r, const uint8_t *p, float *y, int n)
{
    int n_eight = 4 * (r->g1 - r->g0), pf = r->prefetch, far = n == 1 ? r->prefetch_far : 0;
    const uint16_t *x = r->xb;
    __m512 acc[FEW];
    for (int j = 0; j < n; j++)
        acc[j] = r->add ? _mm512_loadu_ps(y + j * r->ldy) : _mm512_setzero_ps();
    for (int k = 0; k < n_eight; k++, p += 256, x += 8 * n) {
        __m512bh w0 = pairs(p), w1 = pairs(p + 64), w2 = pairs(p + 128), w3 = pairs(p + 192);
        for (int i = 0; i < 4 && far; i++)
            _mm_prefetch((const char *)p + far + 64 * i, _MM_HINT_T1);
        for (int i = 0; i < 4 && pf; i++)
            _mm_prefetch((const char *)p + pf + 64 * i, _MM_HINT_T0);
        for (int j = 0; j < n; j++)
            acc[j] = column(w0, w1, w2, w3, x + 8 * j, acc[j]);
    }
    for (int j = 0; j < n; j++)
        _mm512_storeu_ps(y + j * r->ldy, acc[j]);
}

/* The same with sums in memory. */
static void tile_of_many(const struct mm_run *r, const uint8_t *p, float *y)
{
    int n = r->n, n_eight = 4 * (r->g1 - r->g0), pf = r->prefetch;
    const uint16_t *x = r->xb;
    float *acc = r->acc;
    for (int j = 0; j < n; j++) {
        __m512 a = r->add ? _mm512_loadu_ps(y + j * r->ldy) : _mm512_setzero_ps();
        _mm512_storeu_ps(acc + 16 * j, a);
    }
    for (int k = 0; k < n_eight; k++, p += 256) {
        __m512bh w0 = pairs(p), w1 = pairs(p + 64), w2 = pairs(p + 128), w3 = pairs(p + 192);
        for (int i = 0; i < 4 && pf; i++)
            _mm_prefetch((const char *)p + pf + 64 * i, _MM_HINT_T0);
        for (int j = 0; j < n; j++, x += 8)
            _mm512_storeu_ps(acc + 16 * j,
                             column(w0, w1, w2, w3, x, _mm512_loadu_ps(acc + 16 * j)));
    }
    for (int j = 0; j < n; j++)
        _mm512_storeu_ps(y + j * r->ldy, _mm512_loadu_ps(acc + 16 * j));
}

/* By integers: the instruction that rounds takes subnormal values for zeros. */
void kern_mm_bf16_row_avx512bf16(const float *x, int n, uint16_t *y)
{
    const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
    for (int i = 0; i < n; i += 16) {
        __mmask16 in = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m512i v = _mm512_maskz_loadu_epi32(in, x + i), hi = _mm512_srli_epi32(v, 16);
        __m512i up = _mm512_add_epi32(_mm512_and_si512(hi, one), half);
        __m512i r = _mm512_srli_epi32(_mm512_add_epi32(v, up), 16);
        __mmask16 nan = _mm512_cmpgt_epi32_mask(_mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff)),
                                                _mm512_set1_epi32(0x7f800000));
        r = _mm512_mask_or_epi32(r, nan, hi, _mm512_set1_epi32(0x40));
        _mm256_mask_storeu_epi16(y + i, in, _mm512_cvtepi32_epi16(r));
    }
}

void kern_mm_bf16x_avx512bf16(const struct mm_run *r)
{
    for (int t = 0; t < r->n_tile; t++) {
        const uint8_t *p = r->w + (size_t)t * r->tile_bytes;
        float *y = r->y + 16 * t;
        switch (r->n) {
        case 1: tile(r, p, y, 1); break;
        case 2: tile(r, p, y, 2); break;
        case 3: tile(r, p, y, 3); break;
        case 4: tile(r, p, y, 4); break;
        case 5: tile(r, p, y, 5); break;
        case 6: tile(r, p, y, 6); break;
        case 7: tile(r, p, y, 7); break;
        case 8: tile(r, p, y, 8); break;
        default: tile_of_many(r, p, y);
        }
    }
}
