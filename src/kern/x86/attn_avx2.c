/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on 16-bit integers (kern/attn.h). A step of a tile is vpmaddwd and vpaddd: 16 products
 * in 0.62 cycles of a Zen 3, where a fused multiply-add has 8 in a half. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))

/* acc += the products of a's pairs and b's. In assembly because the compiler otherwise computes all
 * products of a step first and spills. */
AI void pairs_add(__m256i *acc, __m256i a, __m256i b)
{
    __m256i t;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(*acc), "=&x"(t) : "x"(b), "x"(a));
}

AI __m256i spread(const int16_t *pair)
{
    float f;
    memcpy(&f, pair, sizeof f);
    return _mm256_castps_si256(_mm256_set1_ps(f));
}

AI __m256i load16(const int16_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* ---- scores ---- */

AI void dot_tile(const struct attn_i16 *m, int p0, int j, const int R)
{
    __m256i acc[6][2];
    const int16_t *x = m->x + p0 * m->ldx, *q = m->q + 32 * j;
    int64_t ldx = m->ldx, ldq = 2 * m->ld;
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (int k = 0; k < m->n_pair; k++, x += 2, q += ldq) {
        __m256i b0 = load16(q), b1 = load16(q + 16);
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            __m256i a = spread(x + r * ldx);
            pairs_add(&acc[r][0], a, b0);
            pairs_add(&acc[r][1], a, b1);
        }
    }
    __m256 s0 = _mm256_loadu_ps(m->q_scale + 16 * j), s1 = _mm256_loadu_ps(m->q_scale + 16 * j + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
        float *s = m->s + (p0 + r) * m->ld + 16 * j;
        __m256 row = _mm256_set1_ps(m->x_scale[(p0 + r) * m->ld_scale]);
        __m256 c0 = m->add ? _mm256_loadu_ps(s) : _mm256_setzero_ps();
        __m256 c1 = m->add ? _mm256_loadu_ps(s + 8) : _mm256_setzero_ps();
        c0 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][0]), _mm256_mul_ps(s0, row), c0);
        c1 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][1]), _mm256_mul_ps(s1, row), c1);
        _mm256_storeu_ps(s, c0);
        _mm256_storeu_ps(s + 8, c1);
    }
}

/* Rows of the next tile, all about as high as the highest. */
AI int tile_rows(int left)
{
    int n_tile = (left + 5) / 6;
    return (left + n_tile - 1) / n_tile;
}

#define CASE(R, tile, ...)                                                                         \
    case R:                                                                                        \
        tile(__VA_ARGS__, R);                                                                      \
        break;
#define CASES(tile, ...)                                                                           \
    CASE(1, tile, __VA_ARGS__)                                                                     \
    CASE(2, tile, __VA_ARGS__)                                                                     \
    CASE(3, tile, __VA_ARGS__)                                                                     \
    CASE(4, tile, __VA_ARGS__) CASE(5, tile, __VA_ARGS__) CASE(6, tile, __VA_ARGS__)

void kern_attn_dot_i16_avx2(const struct attn_i16 *m)
{
    for (int j = 0; j < m->ld / 16; j++)
        for (int p = 0, n; p < m->n_pos; p += n) {
            n = tile_rows(m->n_pos - p);
            switch (n) {
                CASES(dot_tile, m, p, j)
            }
        }
}

/* ---- weighted sums ---- */

/* Columns [j, j + 16) of R lanes from l0 on. Unpacked, the columns of a register are 0-3 and 8-11,
 * 4-7 and 12-15. */
AI void mix_tile(const struct attn_i16 *m, int l0, int j, const int R)
{
    __m256i acc[6][2];
    const int16_t *x = m->x + j, *w = m->w + 2 * l0;
    int64_t ldx = m->ldx, ldw = 2 * m->ld;
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (int left = m->n_pos; left > 0; left -= 2, x += 2 * ldx, w += ldw) {
        __m256i p = load16(x), q = load16(left > 1 ? x + ldx : x); /* beside the last: weight 0 */
        __m256i b0 = _mm256_unpacklo_epi16(p, q), b1 = _mm256_unpackhi_epi16(p, q);
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) {
            __m256i a = spread(w + 2 * r);
            pairs_add(&acc[r][0], a, b0);
            pairs_add(&acc[r][1], a, b1);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
        float *c = m->c + (l0 + r) * m->ldc + j;
        __m256 scale = _mm256_set1_ps(m->w_scale[l0 + r]);
        __m256i lo = _mm256_permute2x128_si256(acc[r][0], acc[r][1], 0x20);
        __m256i hi = _mm256_permute2x128_si256(acc[r][0], acc[r][1], 0x31);
        _mm256_storeu_ps(c, _mm256_mul_ps(_mm256_cvtepi32_ps(lo), scale));
        _mm256_storeu_ps(c + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(hi), scale));
    }
}

void kern_attn_mix_i16_avx2(const struct attn_i16 *m)
{
    for (int j = 0; j < m->n; j += 16)
        for (int l = 0, n; l < m->n_lane; l += n) {
            n = tile_rows(m->n_lane - l);
            switch (n) {
                CASES(mix_tile, m, l, j)
            }
        }
}

/* ---- conversions ---- */

/* As v_load_n of simd_avx2.h, eight. */
AI __m256 load_n(const float *x, int n)
{
    float some[8] = {0};
    if (n >= 8) return _mm256_loadu_ps(x);
    memcpy(some, x, sizeof *x * (size_t)n);
    return _mm256_loadu_ps(some);
}

AI __m256 magnitude(__m256 x)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

AI int32_t max_of(__m256i x)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

/* Of f16 or f32. */
AI __m256 eight(const void *x, int at, const int f16)
{
    if (!f16) return _mm256_loadu_ps((const float *)x + at);
    const uint16_t *h = x;
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(h + at)));
}

/* The codes of n values, f16 ones in sixteens, and zeros up to a multiple of 16. */
AI void put_codes(const void *x, int n, float inv, int16_t *y, const int f16)
{
    __m256 v = _mm256_set1_ps(inv);
    if (inv == 0.0f) { /* 0 of what is not finite, too */
        memset(y, 0, sizeof *y * (size_t)((n + 15) / 16 * 16));
        return;
    }
    for (int i = 0; i < n; i += 16) {
        __m256 a, b = _mm256_setzero_ps();
        if (f16 || n - i >= 16) {
            a = eight(x, i, f16);
            b = eight(x, i + 8, f16);
        } else {
            a = load_n((const float *)x + i, n - i);
            if (n - i > 8) b = load_n((const float *)x + i + 8, n - i - 8);
        }
        __m256i c = _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(a, v)),
                                       _mm256_cvtps_epi32(_mm256_mul_ps(b, v)));
        _mm256_storeu_si256((__m256i *)(void *)(y + i), _mm256_permute4x64_epi64(c, 0xd8));
    }
}

/* The largest magnitude; by its bits, of which NaN has the largest. */
AI float largest(const float *x, int n)
{
    __m256i m0 = _mm256_setzero_si256(), m1 = m0;
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        m0 = _mm256_max_epi32(m0, _mm256_castps_si256(magnitude(_mm256_loadu_ps(x + i))));
        m1 = _mm256_max_epi32(m1, _mm256_castps_si256(magnitude(_mm256_loadu_ps(x + i + 8))));
    }
    for (; i < n; i += 8)
        m0 = _mm256_max_epi32(m0, _mm256_castps_si256(magnitude(load_n(x + i, n - i))));
    float m;
    int32_t bits = max_of(_mm256_max_epi32(m0, m1));
    memcpy(&m, &bits, sizeof m);
    return m;
}

/* As largest of f16. */
AI float largest_f16(const uint16_t *h, int n)
{
    const __m256i bits = _mm256_set1_epi16(0x7fff);
    __m256i m = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 16)
        m = _mm256_max_epu16(
            m, _mm256_and_si256(bits, _mm256_loadu_si256((const __m256i *)(const void *)(h + i))));
    __m128i x = _mm_max_epu16(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    x = _mm_minpos_epu16(_mm_xor_si128(x, _mm_set1_epi16(-1)));
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_xor_si128(x, _mm_set1_epi16(-1))));
}

/* Rows of f16 or f32; scales of four of them first: they wait for each other no longer than for
 * themselves. */
AI void rows(const uint8_t *x, int64_t row_bytes, int n_row, int n, int16_t *y, int64_t ldy,
             float *scale, int64_t ld_scale, const int f16)
{
    for (; n_row > 0; n_row -= 4, x += 4 * row_bytes, y += 4 * ldy, scale += 4 * ld_scale) {
        float inv[4];
        const void *row[4];
        int k = n_row < 4 ? n_row : 4;
        for (int r = 0; r < k; r++) {
            row[r] = x + r * row_bytes;
            float amax = f16 ? largest_f16(row[r], n) : largest(row[r], n);
            scale[r * ld_scale] = attn_i16_scale(amax, ATTN_I16_ROW / amax, &inv[r]);
        }
        for (int r = 0; r < k; r++)
            put_codes(row[r], n, inv[r], y + r * ldy, f16);
    }
}

void kern_attn_rows_i16_avx2(const float *x, int64_t ldx, int n_row, int n, int16_t *y, int64_t ldy,
                             float *scale, int64_t ld_scale)
{
    rows((const uint8_t *)x, 4 * ldx, n_row, n, y, ldy, scale, ld_scale, 0);
}

void kern_attn_f16_i16_avx2(const uint8_t *row, int64_t row_bytes, int n_row, int n, int16_t *y,
                            int64_t ldy, float *scale, int64_t ld_scale)
{
    rows(row, row_bytes, n_row, n, y, ldy, scale, ld_scale, 1);
}

void kern_attn_query_i16_avx2(const float *x, int n, int16_t *y, float *scale)
{
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < n; i += 8)
        sum = _mm256_add_ps(sum, magnitude(load_n(x + i, n - i)));
    float t[8], amax = largest(x, n), inv;
    _mm256_storeu_ps(t, sum);
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            t[i] += t[i + half];
    inv = fminf((float)(ATTN_I16_SUM - n) / t[0], ATTN_I16_MAX / amax);
    *scale = attn_i16_scale(amax, inv, &inv);
    put_codes(x, n, inv, y, 0);
}

/* Of eight lanes; what is not seen counts 0, whatever it is. */
AI __m256 weight(const struct attn_i16 *m, int p, int j, __m256i hi)
{
    __m256 v = _mm256_loadu_ps(m->s + p * m->ld + j);
    v = _mm256_mul_ps(v, _mm256_set1_ps(m->x_scale[p * m->ld_scale]));
    return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpgt_epi32(hi, _mm256_set1_epi32(p))));
}

void kern_attn_weights_i16_avx2(const struct attn_i16 *m, const int32_t *hi, int16_t *w,
                                float *w_scale)
{
    for (int j = 0; j < m->ld; j += 8) {
        __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(hi + j));
        __m256 sum = _mm256_setzero_ps(), max = sum;
        for (int p = 0; p < m->n_pos; p++) {
            __m256 v = weight(m, p, j, h);
            sum = _mm256_add_ps(sum, v);
            max = _mm256_max_ps(max, v);
        }
        float s[8], x[8];
        _mm256_storeu_ps(s, sum);
        _mm256_storeu_ps(x, max);
        for (int i = 0; i < 8; i++) {
            float inv = fminf((float)(ATTN_I16_SUM - hi[j + i]) / s[i], ATTN_I16_MAX / x[i]);
            w_scale[j + i] = attn_i16_scale(s[i], inv, &x[i]);
        }
        __m256 inv = _mm256_loadu_ps(x);
        __m256 none = _mm256_cmp_ps(inv, _mm256_setzero_ps(), _CMP_EQ_OQ);
        for (int p = 0; p < m->n_pos; p += 2) {
            __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(weight(m, p, j, h), inv));
            __m256i b = _mm256_setzero_si256();
            if (p + 1 < m->n_pos)
                b = _mm256_cvtps_epi32(_mm256_mul_ps(weight(m, p + 1, j, h), inv));
            a = _mm256_or_si256(a, _mm256_slli_epi32(b, 16));
            a = _mm256_andnot_si256(_mm256_castps_si256(none), a);
            _mm256_storeu_si256((__m256i *)(void *)(w + p * m->ld + 2 * j), a);
        }
    }
}
