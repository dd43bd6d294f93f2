/* SPDX-License-Identifier: Apache-2.0 */
/* Products of float formats with 512-bit fma. */
#include "kern/kern.h"
#include "kern/x86/wide.h"

#define MM_ISA avx512
#define MM_PARTS 1
#define MM_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define AI static inline __attribute__((always_inline))

typedef __m512 vacc;
struct weight_eight {
    __m512 w0, w1, w2, w3, w4, w5, w6, w7;
};

AI vacc acc_zero(void)
{
    return _mm512_setzero_ps();
}
AI vacc acc_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
AI void acc_store(float *p, vacc v)
{
    _mm512_storeu_ps(p, v);
}

AI vacc eight(const struct weight_eight *w, const float *x, vacc acc)
{
    __m512 t = _mm512_mul_ps(w->w1, _mm512_set1_ps(x[1])); /* odd k before even: mm.h */
    t = _mm512_fmadd_ps(w->w0, _mm512_set1_ps(x[0]), t);
    t = _mm512_fmadd_ps(w->w3, _mm512_set1_ps(x[3]), t);
    t = _mm512_fmadd_ps(w->w2, _mm512_set1_ps(x[2]), t);
    t = _mm512_fmadd_ps(w->w5, _mm512_set1_ps(x[5]), t);
    t = _mm512_fmadd_ps(w->w4, _mm512_set1_ps(x[4]), t);
    t = _mm512_fmadd_ps(w->w7, _mm512_set1_ps(x[7]), t);
    t = _mm512_fmadd_ps(w->w6, _mm512_set1_ps(x[6]), t);
    return _mm512_add_ps(acc, t);
}

/* Row values of one k. bf16 comes in pairs of k: the even one shifted up, the odd one masked. */
AI __m512 load_k(int fmt, const uint8_t *blk, int k)
{
    if (fmt == MM_f32) return _mm512_loadu_ps((const float *)(const void *)(blk + 64 * k));
    if (fmt == MM_f16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(blk + 32 * k)));
    if (fmt == MM_bf16) {
        __m512i v = _mm512_loadu_si512((const void *)(blk + 64 * (k / 2)));
        return _mm512_castsi512_ps(k & 1 ? _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000u))
                                         : _mm512_slli_epi32(v, 16));
    }
    /* e4m3 has the bits of an f16 2^8 times smaller */
    __m512 s =
        _mm512_mul_ps(_mm512_loadu_ps((const float *)(const void *)blk), _mm512_set1_ps(256.0f));
    __m256i v =
        _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(blk + 64 + 16 * k)));
    v = _mm256_and_si256(_mm256_slli_epi16(v, 7), _mm256_set1_epi16((short)0xbfff));
    return _mm512_mul_ps(_mm512_cvtph_ps(v), s);
}

AI void load_eight(struct weight_eight *w, int fmt, const uint8_t *blk, int k, int part)
{
    (void)part;
    w->w0 = load_k(fmt, blk, k);
    w->w1 = load_k(fmt, blk, k + 1);
    w->w2 = load_k(fmt, blk, k + 2);
    w->w3 = load_k(fmt, blk, k + 3);
    w->w4 = load_k(fmt, blk, k + 4);
    w->w5 = load_k(fmt, blk, k + 5);
    w->w6 = load_k(fmt, blk, k + 6);
    w->w7 = load_k(fmt, blk, k + 7);
}

#include "kern/tmpl/mm_floats.inc"
