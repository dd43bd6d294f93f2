/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on bf16 by vdpbf16ps. Tiles of R rows by NV vectors keep their sums in registers; a row
 * operand is one broadcast pair, a column operand one vector of 16 pairs. */
#include <immintrin.h>

#include "kern/kern.h"

#define AI static inline __attribute__((always_inline))

AI __m512bh spread(const uint16_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, 4);
    return (__m512bh)_mm512_set1_epi32(v);
}

AI void load_sums(const struct attn_mm *m, float *c, const int R, const int NV, __m512 acc[16][4])
{
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            acc[r][j] = m->add ? _mm512_loadu_ps(c + r * m->ldc + 16 * j) : _mm512_setzero_ps();
}

AI void store_sums(const struct attn_mm *m, float *c, const int R, const int NV, __m512 acc[16][4])
{
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            _mm512_storeu_ps(c + r * m->ldc + 16 * j, acc[r][j]);
}

/* What is left to fetch: bytes [at, end) of both regions, step bytes of each per round. */
struct fetch {
    int64_t at, end, step;
};

/* Rows row .. row + R, vectors j0 .. j0 + NV. */
AI void dot_tile(const struct attn_mm *m, int row, int j0, const int R, const int NV,
                 struct fetch *f)
{
    __m512 acc[16][4];
    const uint16_t *a = m->a + row * m->lda, *b = m->b + j0 * m->ldb_v;
    const int64_t lda = m->lda, ldv = m->ldb_v;
    float *c = m->c + row * m->ldc + 16 * j0;
    load_sums(m, c, R, NV, acc);
    for (int k = 0; k < m->n_k; k++, a += m->lda_k, b += m->ldb) {
        __m512bh x[4];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++)
            x[j] = (__m512bh)_mm512_loadu_si512((const void *)(b + j * ldv));
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            __m512bh w = spread(a + r * lda);
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++)
                acc[r][j] = _mm512_dpbf16_ps(acc[r][j], w, x[j]);
        }
        for (int64_t to = f->at + f->step; f->at < to && f->at < f->end; f->at += 64) {
            _mm_prefetch((const char *)m->next[0] + f->at, _MM_HINT_T1);
            _mm_prefetch((const char *)m->next[1] + f->at, _MM_HINT_T1);
        }
    }
    store_sums(m, c, R, NV, acc);
}

#define DOT(R, NV)                                                                                 \
    case R:                                                                                        \
        dot_tile(m, row, j, R, NV, &f);                                                            \
        break;

/* Rows in tiles of about equal height, at most max. */
AI int tile_rows(int n_row, int row, int max)
{
    int left = n_row - row, n = (left + max - 1) / max;
    return (left + n - 1) / n;
}

void kern_attn_dot_bf16_avx512bf16(const struct attn_mm *m)
{
    struct fetch f = {0, m->n_next, 0};
    if (f.end && m->n_k) {
        int64_t rounds = (int64_t)m->n_k * ((m->n_row * m->n_vec + 23) / 24);
        f.step = ((f.end + 63) / 64 + rounds - 1) / rounds * 64;
    }
    for (int j = 0, nv; j < m->n_vec; j += nv) {
        int left = m->n_vec - j;
        nv = left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (int row = 0, n; row < m->n_row; row += n) {
            n = tile_rows(m->n_row, row, nv == 4 ? 6 : nv == 2 ? 12 : 16);
            if (nv == 4) switch (n) {
                    DOT(1, 4) DOT(2, 4) DOT(3, 4) DOT(4, 4) DOT(5, 4) DOT(6, 4)
                }
            else if (nv == 2)
                switch (n) {
                    DOT(1, 2) DOT(2, 2) DOT(3, 2) DOT(4, 2) DOT(5, 2) DOT(6, 2) DOT(7, 2) DOT(8, 2)
                        DOT(9, 2) DOT(10, 2) DOT(11, 2) DOT(12, 2)
                }
            else
                switch (n) {
                    DOT(1, 1) DOT(2, 1) DOT(3, 1) DOT(4, 1) DOT(5, 1) DOT(6, 1) DOT(7, 1) DOT(8, 1)
                        DOT(9, 1) DOT(10, 1) DOT(11, 1) DOT(12, 1) DOT(13, 1) DOT(14, 1) DOT(15, 1)
                            DOT(16, 1)
                }
        }
    }
}

/* Two rows of 32 values as two vectors of 16 pairs: values 0 .. 15, and 16 .. 31. */
AI void zip(__m512i p, __m512i q, __m512bh *lo, __m512bh *hi)
{
    static const uint16_t index[2][32] = {
        {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    *lo = (__m512bh)_mm512_permutex2var_epi16(p, _mm512_loadu_si512(index[0]), q);
    *hi = (__m512bh)_mm512_permutex2var_epi16(p, _mm512_loadu_si512(index[1]), q);
}

AI __m512i row_of(const uint16_t *p, const int NV)
{
    if (NV == 1)
        return _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_loadu_si512((const void *)p);
}

AI void mix_pair(__m512 acc[16][4], const uint16_t *a, int64_t lda, __m512i p, __m512i q,
                 const int R, const int NV)
{
    __m512bh x[2];
    zip(p, q, &x[0], &x[1]);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        __m512bh w = spread(a + r * lda);
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            acc[r][j] = _mm512_dpbf16_ps(acc[r][j], w, x[j]);
    }
}

AI void mix_tile(const struct attn_mm *m, int row, int j0, const int R, const int NV)
{
    __m512 acc[16][4];
    const uint16_t *a = m->a + row * m->lda;
    const int64_t lda = m->lda, ldb = m->ldb;
    float *c = m->c + row * m->ldc + 16 * j0;
    load_sums(m, c, R, NV, acc);
    a += m->k0 / 2 * m->lda_k;
    for (int p = m->k0, n; p < m->n_k; p += n) {
        int in = p % m->blk_rows;
        const uint16_t *b = m->blk[p / m->blk_rows] + in * ldb + 16 * j0;
        n = m->n_k - p < m->blk_rows - in ? m->n_k - p : m->blk_rows - in;
        for (int k = n / 2; k > 0; k--, a += m->lda_k, b += 2 * ldb)
            mix_pair(acc, a, lda, row_of(b, NV), row_of(b + ldb, NV), R, NV);
        if (n % 2) mix_pair(acc, a, lda, row_of(b, NV), _mm512_setzero_si512(), R, NV);
    }
    store_sums(m, c, R, NV, acc);
}

#define MIX(R, NV)                                                                                 \
    case R:                                                                                        \
        mix_tile(m, row, j, R, NV);                                                                \
        break;

void kern_attn_mix_bf16_avx512bf16(const struct attn_mm *m)
{
    for (int j = 0, nv; j < m->n_vec; j += nv) {
        nv = m->n_vec - j >= 2 ? 2 : 1;
        for (int row = 0, n; row < m->n_row; row += n) {
            n = tile_rows(m->n_row, row, nv == 2 ? 12 : 16);
            if (nv == 2) switch (n) {
                    MIX(1, 2) MIX(2, 2) MIX(3, 2) MIX(4, 2) MIX(5, 2) MIX(6, 2) MIX(7, 2) MIX(8, 2)
                        MIX(9, 2) MIX(10, 2) MIX(11, 2) MIX(12, 2)
                }
            else
                switch (n) {
                    MIX(1, 1) MIX(2, 1) MIX(3, 1) MIX(4, 1) MIX(5, 1) MIX(6, 1) MIX(7, 1) MIX(8, 1)
                        MIX(9, 1) MIX(10, 1) MIX(11, 1) MIX(12, 1) MIX(13, 1) MIX(14, 1) MIX(15, 1)
                            MIX(16, 1)
                }
        }
    }
}

AI __mmask16 first(int n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

void kern_attn_rows_bf16_avx512bf16(const float *x, int64_t ldx, int n_row, int n, uint16_t *y,
                                    int64_t ldy)
{
    for (int r = 0; r < n_row; r++, x += ldx, y += ldy)
        for (int i = 0; i < n; i += 16) {
            __mmask16 k = first(n - i);
            __m256bh v = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(k, x + i));
            _mm256_mask_storeu_epi16(y + i, k, (__m256i)v);
        }
}

void kern_attn_pairs_bf16_avx512bf16(const float *x, int64_t ldx, int n_row, int n, uint16_t *y,
                                     int64_t ldy)
{
    for (int r = 0; r < n_row; r += 2, x += 2 * ldx, y += ldy)
        for (int i = 0; i < n; i += 16) {
            __mmask16 k = first(n - i);
            __m512 p = _mm512_maskz_loadu_ps(k, x + i),
                   q = r + 1 < n_row ? _mm512_maskz_loadu_ps(k, x + ldx + i) : _mm512_setzero_ps();
            __m512i a = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(p));
            __m512i b = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(q));
            a = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
            _mm512_mask_storeu_epi32(y + 2 * i, k, a);
        }
}
