/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on bf16 by vdpbf16ps. Tiles of R rows by NV vectors keep their sums in registers; a row
 * operand is one broadcast pair, a column operand one vector of 16 pairs. */
#include <immintrin.h>
#include <math.h>

#include "kern/kern.h"
#include "kern/x86/attn_fetch.h"
#include "kern/x86/simd_avx512.h"

#define AI static inline __attribute__((always_inline))

/* The pair of row r: at[r / 4] is row r / 4 * 4, so that few registers hold 16 addresses. */
struct rows {
    const char *at[4];
    int64_t ld, ld3; /* bytes of one row, and of three */
};

AI struct rows rows_from(const uint16_t *a, int64_t lda)
{
    struct rows x = {.ld = 2 * lda, .ld3 = 6 * lda};
    for (int i = 0; i < 4; i++)
        x.at[i] = (const char *)(a + 4 * i * lda);
    return x;
}

AI void rows_next(struct rows *x, const int R, int64_t lda_k)
{
#pragma GCC unroll 4
    for (int i = 0; 4 * i < R; i++)
        x->at[i] += 2 * lda_k;
}

AI __m512bh spread(const struct rows *x, const int r)
{
    const char *p = x->at[r / 4] + (r % 4 == 3 ? x->ld3 : r % 4 * x->ld);
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

#define ROUND 8 /* pairs of k between two looks at what to fetch */

/* Rows that lie in lines of their own reach their next lines all at once: ask for them, and for the
 * column operand, a round before. */
AI void touch(const struct rows *x, const int R, const uint16_t *b, int64_t ldb)
{
    for (int k = 0; k < ROUND; k++)
        _mm_prefetch((const char *)(b + (ROUND + k) * ldb), _MM_HINT_T0);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        _mm_prefetch(x->at[r / 4] + (r % 4 == 3 ? x->ld3 : r % 4 * x->ld) + 64, _MM_HINT_T0);
}

/* Rows row .. row + R, vectors j0 .. j0 + NV. */
AI void dot_tile(const struct attn_mm *m, int row, int j0, const int R, const int NV,
                 struct fetch *f)
{
    __m512 acc[16][4];
    const uint16_t *b = m->b + j0 * m->ldb_v;
    const int64_t ldb = m->ldb, ldv = m->ldb_v, lda_k = m->lda_k;
    struct rows a = rows_from(m->a + row * m->lda, m->lda);
    float *c = m->c + row * m->ldc + 16 * j0;
    load_sums(m, c, R, NV, acc);
    for (int left = m->n_k; left > 0; left -= ROUND) {
        for (int k = left < ROUND ? left : ROUND; k > 0; k--, b += ldb) {
            __m512bh x[4];
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++)
                x[j] = (__m512bh)_mm512_loadu_si512((const void *)(b + j * ldv));
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                __m512bh w = spread(&a, r);
#pragma GCC unroll 4
                for (int j = 0; j < NV; j++)
                    acc[r][j] = _mm512_dpbf16_ps(acc[r][j], w, x[j]);
            }
            rows_next(&a, R, lda_k);
        }
        if (lda_k == 2) touch(&a, R, b, ldb);
        fetch_some(f);
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
    int n_tile = (m->n_row * m->n_vec + 23) / 24;
    struct fetch f =
        fetch_over(m->next, m->n_next, (int64_t)((m->n_k + ROUND - 1) / ROUND) * n_tile);
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
                    DOT(1, 2)
                    DOT(2, 2) DOT(3, 2) DOT(4, 2) DOT(5, 2) DOT(6, 2) DOT(7, 2) DOT(8, 2) DOT(9, 2)
                        DOT(10, 2) DOT(11, 2) DOT(12, 2)
                }
            else
                switch (n) {
                    DOT(1, 1)
                    DOT(2, 1) DOT(3, 1) DOT(4, 1) DOT(5, 1) DOT(6, 1) DOT(7, 1) DOT(8, 1) DOT(9, 1)
                        DOT(10, 1) DOT(11, 1) DOT(12, 1) DOT(13, 1) DOT(14, 1) DOT(15, 1) DOT(16, 1)
                }
        }
    }
}

/* Two rows of 32 values as two vectors of 16 pairs: values 0 .. 15, and 16 .. 31. */
AI void zip(__m512i p, __m512i q, __m512bh *lo, __m512bh *hi)
{
    static const uint16_t index[2][32] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
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

AI void mix_pair(__m512 acc[16][4], const struct rows *a, __m512i p, __m512i q, const int R,
                 const int NV)
{
    __m512bh x[2];
    zip(p, q, &x[0], &x[1]);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        __m512bh w = spread(a, r);
#pragma GCC unroll 2
        for (int j = 0; j < NV; j++)
            acc[r][j] = _mm512_dpbf16_ps(acc[r][j], w, x[j]);
    }
}

AI void mix_tile(const struct attn_mm *m, int row, int j0, const int R, const int NV,
                 struct fetch *f)
{
    __m512 acc[16][4];
    const int64_t ldb = m->ldb, lda_k = m->lda_k;
    struct rows a = rows_from(m->a + row * m->lda + m->k0 / 2 * lda_k, m->lda);
    float *c = m->c + row * m->ldc + 16 * j0;
    load_sums(m, c, R, NV, acc);
    for (int p = m->k0, n; p < m->n_k; p += n) {
        int in = p % m->blk_rows;
        const uint16_t *b = m->blk[p / m->blk_rows] + in * ldb + 16 * j0;
        n = m->n_k - p < m->blk_rows - in ? m->n_k - p : m->blk_rows - in;
        for (int left = n / 2; left > 0; left -= ROUND) {
            for (int k = left < ROUND ? left : ROUND; k > 0; k--, b += 2 * ldb) {
                mix_pair(acc, &a, row_of(b, NV), row_of(b + ldb, NV), R, NV);
                rows_next(&a, R, lda_k);
            }
            fetch_some(f);
        }
        if (n % 2) mix_pair(acc, &a, row_of(b, NV), _mm512_setzero_si512(), R, NV);
    }
    store_sums(m, c, R, NV, acc);
}

#define MIX(R, NV)                                                                                 \
    case R:                                                                                        \
        mix_tile(m, row, j, R, NV, &f);                                                            \
        break;

void kern_attn_mix_bf16_avx512bf16(const struct attn_mm *m)
{
    int n_tile = (m->n_row + 11) / 12 * ((m->n_vec + 1) / 2);
    struct fetch f =
        fetch_over(m->next, m->n_next, (int64_t)((m->n_k - m->k0) / (2 * ROUND) + 1) * n_tile);
    for (int j = 0, nv; j < m->n_vec; j += nv) {
        nv = m->n_vec - j >= 2 ? 2 : 1;
        for (int row = 0, n; row < m->n_row; row += n) {
            n = tile_rows(m->n_row, row, nv == 2 ? 12 : 16);
            if (nv == 2) switch (n) {
                    MIX(1, 2)
                    MIX(2, 2) MIX(3, 2) MIX(4, 2) MIX(5, 2) MIX(6, 2) MIX(7, 2) MIX(8, 2) MIX(9, 2)
                        MIX(10, 2) MIX(11, 2) MIX(12, 2)
                }
            else
                switch (n) {
                    MIX(1, 1)
                    MIX(2, 1) MIX(3, 1) MIX(4, 1) MIX(5, 1) MIX(6, 1) MIX(7, 1) MIX(8, 1) MIX(9, 1)
                        MIX(10, 1) MIX(11, 1) MIX(12, 1) MIX(13, 1) MIX(14, 1) MIX(15, 1) MIX(16, 1)
                }
        }
    }
}

AI __mmask16 first(int n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* attn.h: e^x of x <= 0. */
AI vf weight(vf x)
{
    const vf log2e = v_set1(ATTN_LOG2E);
    vf n = v_round(v_mul(x, log2e)), r = _mm512_fmsub_ps(x, log2e, n), p = v_set1(ATTN_P5);
    p = v_fma(p, r, v_set1(ATTN_P4));
    p = v_fma(p, r, v_set1(ATTN_P3));
    p = v_fma(p, r, v_set1(ATTN_P2));
    p = v_fma(p, r, v_set1(ATTN_P1));
    p = v_fma(p, r, v_set1(1.0f));
    __mmask16 some = _mm512_cmp_ps_mask(x, v_set1(-87.0f), _CMP_NLT_UQ); /* and NaN */
    return _mm512_maskz_scalef_ps(some, p, n);
}

/* Vectors [g0, g0 + n) of a row; what is not seen of the first and the last is masked. All stay in
 * registers where n is a constant. */
AI void soft_row(const float *s, uint16_t *w, const int n, __mmask16 head, __mmask16 tail, float *m,
                 float *l)
{
    vf x[8], mx = v_set1(-INFINITY), sum = v_set1(0);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        __mmask16 k = (__mmask16)((i ? 0xffff : head) & (i + 1 < n ? 0xffff : tail));
        x[i] = _mm512_mask_blend_ps(k, v_set1(-INFINITY), v_load(s + 16 * i));
        mx = v_max(x[i], mx);
    }
    *m = v_hmax(mx);
    mx = v_set1(*m);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        x[i] = weight(v_sub(x[i], mx));
        sum = v_add(sum, x[i]);
    }
    *l = v_hsum(sum);
#pragma GCC unroll 4
    for (int i = 0; i + 1 < n; i += 2)
        _mm512_storeu_si512((void *)(w + 16 * i), (__m512i)_mm512_cvtne2ps_pbh(x[i + 1], x[i]));
    if (n % 2)
        _mm256_storeu_si256((__m256i *)(void *)(w + 16 * n - 16),
                            (__m256i)_mm512_cvtneps_pbh(x[n - 1]));
}

void kern_attn_soft_bf16_avx512bf16(const struct attn_soft *a)
{
    int g0 = a->lo / 16, n = (a->hi + 15) / 16 - g0, end = a->hi % 16;
    __mmask16 head = (__mmask16)(0xffff << a->lo % 16);
    __mmask16 tail = (__mmask16)(end ? (1 << end) - 1 : 0xffff);
    const float *s = a->s + 16 * g0;
    uint16_t *w = a->w + 16 * g0;
    for (int r = 0; r < a->n_row; r++, s += a->lds, w += a->ldw)
        if (n == 8)
            soft_row(s, w, 8, head, tail, &a->m[r], &a->l[r]);
        else
            soft_row(s, w, n, head, tail, &a->m[r], &a->l[r]);
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

AI __m512 half_floats(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

void kern_attn_f16_rows_avx512bf16(const uint8_t *row, int64_t row_bytes, int n_row, int d,
                                   uint16_t *y, int64_t ldy)
{
    for (int r = 0; r < n_row; r++, row += row_bytes, y += ldy) {
        const uint16_t *x = (const uint16_t *)(const void *)row;
        int i = 0;
        for (; i + 16 < d; i += 32) {
            __m512bh v = _mm512_cvtne2ps_pbh(half_floats(x + i + 16), half_floats(x + i));
            _mm512_storeu_si512((void *)(y + i), (__m512i)v);
        }
        if (i < d) {
            __m256bh v = _mm512_cvtneps_pbh(half_floats(x + i));
            _mm256_storeu_si256((__m256i *)(void *)(y + i), (__m256i)v);
        }
    }
}

/* Two vectors of 16 values as 16 pairs. */
AI __m512i pair_up(__m512 first, __m512 second)
{
    static const uint16_t zipped[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i v = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512((const void *)zipped), v);
}

void kern_attn_f16_keys_avx512bf16(const uint8_t *group, int d, uint16_t *y)
{
    const uint16_t *x = (const uint16_t *)(const void *)group;
    for (int i = 0; i < d; i += 2) {
        __m512 second = i + 1 < d ? half_floats(x + 16 * i + 16) : _mm512_setzero_ps();
        _mm512_storeu_si512((void *)(y + 16 * i), pair_up(half_floats(x + 16 * i), second));
    }
}

/* Eight-bit codes times a scale, 16 values. */
AI __m512 decode(const int8_t *q, __m512 scale)
{
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)q);
    return _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b)));
}

void kern_attn_q8_rows_avx512bf16(const uint8_t *row, int64_t row_bytes, int n_row, int d,
                                  uint16_t *y, int64_t ldy)
{
    for (int r = 0; r < n_row; r++, row += row_bytes, y += ldy) {
        const float *scale = (const float *)(const void *)row;
        const int8_t *q = (const int8_t *)row + (d + 31) / 32 * 4;
        int i = 0;
        for (; i + 16 < d; i += 32) {
            __m512 s = _mm512_set1_ps(scale[i / 32]);
            __m512bh v = _mm512_cvtne2ps_pbh(decode(q + i + 16, s), decode(q + i, s));
            _mm512_storeu_si512((void *)(y + i), (__m512i)v);
        }
        if (i < d) {
            __m256bh v = _mm512_cvtneps_pbh(decode(q + i, _mm512_set1_ps(scale[i / 32])));
            _mm256_storeu_si256((__m256i *)(void *)(y + i), (__m256i)v);
        }
    }
}

void kern_attn_q8_keys_avx512bf16(const uint8_t *group, int d, uint16_t *y)
{
    const float *scale = (const float *)(const void *)group;
    const int8_t *q = (const int8_t *)group + (d + 31) / 32 * 64;
    for (int i = 0; i < d; i += 2) {
        __m512 s = _mm512_loadu_ps(scale + i / 32 * 16);
        __m512 second = i + 1 < d ? decode(q + 16 * i + 16, s) : _mm512_setzero_ps();
        _mm512_storeu_si512((void *)(y + 16 * i), pair_up(decode(q + 16 * i, s), second));
    }
}
