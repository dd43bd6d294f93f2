/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over rows of a q8 cache as they lie: scores by vpdpbusd with queries in lanes, weighted
 * sums by vdpbf16ps, for which the codes are exact and the rows' scales go into the weights. */
#include <immintrin.h>

#include "kern/kern.h"
#include "kern/x86/attn_fetch.h"

#define AI static inline __attribute__((always_inline))
#define TILE 12 /* rows whose sums stay in registers */
#define PART 6  /* groups of 32 that are made unsigned at a time */

AI __mmask16 first(int n)
{
    return n >= 16 ? (__mmask16)0xffff : n > 0 ? (__mmask16)((1u << n) - 1) : 0;
}

void kern_attn_q8_query_avx512bf16(const float *x, int d, int lane, int ld, int8_t *q, float *scale,
                                   int32_t *bias)
{
    for (int g = 0; 32 * g < d; g++) {
        __mmask16 ma = first(d - 32 * g), mb = first(d - 32 * g - 16);
        __m512 a = _mm512_maskz_loadu_ps(ma, x + 32 * g),
               b = _mm512_maskz_loadu_ps(mb, x + 32 * g + 16);
        float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
        float inv = amax > 0 ? 127.0f / amax : 0.0f;
        if (!(inv <= 3.0e38f)) inv = 0.0f;
        __m512 v = _mm512_set1_ps(inv);
        __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(a, v)),
                s = _mm512_cvtps_epi32(_mm512_mul_ps(b, v));
        int8_t code[32];
        _mm_storeu_si128((__m128i *)(void *)code, _mm512_cvtepi32_epi8(p));
        _mm_storeu_si128((__m128i *)(void *)(code + 16), _mm512_cvtepi32_epi8(s));
        scale[g * ld + lane] = amax / 127.0f;
        bias[g * ld + lane] = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(p, s));
        int n = (d - 32 * g + 3) / 4 < 8 ? (d - 32 * g + 3) / 4 : 8;
        for (int k = 0; k < n; k++)
            __builtin_memcpy(q + 4 * ((int64_t)(8 * g + k) * ld + lane), code + 4 * k, 4);
    }
}

/* acc += products of four unsigned codes of a row, spread, and the signed ones of 16 queries. (As
 * an intrinsic gcc 12 keeps the sums of a tile in memory.) */
AI void dot4(__m512i *acc, const uint8_t *u, __m512i q)
{
    int32_t v;
    __builtin_memcpy(&v, u, 4);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(_mm512_set1_epi32(v)), "v"(q));
}

struct rows {
    const uint8_t *at[TILE];
    int64_t scales; /* bytes of a row's */
};

/* Groups [g0, g1) of R rows and vector j of the queries. */
AI void dot_part(const struct attn_q8 *m, const struct rows *x, uint8_t u[][32 * PART], int p,
                 const int at[3], const int R)
{
    const int g0 = at[0], g1 = at[1], j = at[2], ld = 16 * m->n_vec;
    __m512 s[TILE];
    float *c = m->s + p * m->lds + 16 * j;
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        s[r] = g0 ? _mm512_loadu_ps(c + r * m->lds) : _mm512_setzero_ps();
    for (int g = g0; g < g1; g++) {
        const int8_t *q = m->q + 4 * ((int64_t)8 * g * ld + 16 * j);
        int n = m->d - 32 * g < 32 ? (m->d - 32 * g + 3) / 4 : 8;
        __m512i acc[TILE];
        __m512i bias = _mm512_loadu_si512((const void *)(m->q_bias + g * ld + 16 * j));
        __m512 qs = _mm512_loadu_ps(m->q_scale + g * ld + 16 * j);
#pragma GCC unroll 12
        for (int r = 0; r < R; r++)
            acc[r] = bias;
        for (int k = 0; k < n; k++) {
            __m512i v = _mm512_loadu_si512((const void *)(q + (int64_t)4 * k * ld));
#pragma GCC unroll 12
            for (int r = 0; r < R; r++)
                dot4(&acc[r], u[r] + 32 * (g - g0) + 4 * k, v);
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            __m512 f =
                _mm512_mul_ps(qs, _mm512_set1_ps(((const float *)(const void *)x->at[r])[g]));
            s[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r]), f, s[r]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        _mm512_storeu_ps(c + r * m->lds, s[r]);
}

#define DOT(R)                                                                                     \
    case R:                                                                                        \
        dot_part(m, &x, u, p, (const int[]){g, g + n_g, j}, R);                                    \
        break;

AI const uint8_t *row_at(const struct attn_q8 *m, int p)
{
    return m->blk[p / m->blk_rows] + p % m->blk_rows * m->row_bytes;
}

void kern_attn_dot_q8_avx512bf16(const struct attn_q8 *m)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    int n_group = (m->d + 31) / 32, n_tile = (m->n_pos + TILE - 1) / TILE;
    int64_t d16 = (m->d + 15) / 16 * 16;
    struct fetch f =
        fetch_over(m->next, m->n_next, (int64_t)n_tile * ((n_group + PART - 1) / PART));
    for (int p = 0, n; p < m->n_pos; p += n) {
        int left = m->n_pos - p, n_t = (left + TILE - 1) / TILE;
        struct rows x = {.scales = 4 * n_group};
        n = (left + n_t - 1) / n_t;
        for (int r = 0; r < n; r++)
            x.at[r] = row_at(m, p + r);
        for (int g = 0; g < n_group; g += PART) {
            _Alignas(64) uint8_t u[TILE][32 * PART];
            int n_g = n_group - g < PART ? n_group - g : PART;
            for (int r = 0; r < n; r++)
                for (int i = 0; i < PART / 2; i++) {
                    const uint8_t *from = x.at[r] + x.scales + 32 * g + 64 * i;
                    int64_t k = d16 - 32 * g - 64 * i;
                    __mmask64 some = k >= 64 ? ~0ull : k > 0 ? ~0ull >> (64 - k) : 0;
                    __m512i v = _mm512_maskz_loadu_epi8(some, from);
                    _mm512_store_si512((void *)(u[r] + 64 * i), _mm512_xor_si512(v, flip));
                    _mm_prefetch((const char *)from + 128, _MM_HINT_T0);
                }
            for (int j = 0; j < m->n_vec; j++)
                switch (n) {
                    DOT(1)
                    DOT(2) DOT(3) DOT(4) DOT(5) DOT(6) DOT(7) DOT(8) DOT(9) DOT(10) DOT(11) DOT(12)
                }
            fetch_some(&f);
        }
    }
}

#define CHUNK 64 /* positions whose weights are made for one group of 32 at a time */
#define ROWS 16  /* query rows of a tile */

/* 16 codes of rows a and b as pairs of bf16: small integers are exact in the upper half of f32. */
AI __m512bh pairs(const uint8_t *a, const uint8_t *b)
{
    __m512i x = (__m512i)_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)a)));
    __m512i y = (__m512i)_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)b)));
    return (__m512bh)_mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(x, 16), y);
}

/* Query rows [r0, r0 + R), positions p0 .. p0 + n_pos of at[], 16 columns at col. */
AI void mix_tile(const struct attn_q8 *m, const uint8_t *const *at, uint32_t (*w)[ROWS],
                 const int where[4], const int R)
{
    const int r0 = where[0], p0 = where[1], n_pair = where[2], col = where[3];
    __m512 acc[ROWS];
    float *c = m->c + r0 * m->ldc + col;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        acc[r] = p0 ? _mm512_loadu_ps(c + r * m->ldc) : _mm512_setzero_ps();
    for (int k = 0; k < n_pair; k++) {
        __m512bh x = pairs(at[2 * k] + col, at[2 * k + 1] + col);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
            acc[r] = _mm512_dpbf16_ps(acc[r], (__m512bh)_mm512_set1_epi32((int32_t)w[k][r]), x);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
        _mm512_storeu_ps(c + r * m->ldc, acc[r]);
}

#define MIX(R)                                                                                     \
    case R:                                                                                        \
        mix_tile(m, at, w, (const int[]){r0, p0, n_pair, col}, R);                                 \
        break;

void kern_attn_mix_q8_avx512bf16(const struct attn_q8 *m)
{
    static const uint16_t zipped[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i index = _mm512_loadu_si512((const void *)zipped);
    int64_t scales = (m->d + 31) / 32 * 4;
    int n_chunk = (m->n_pos + CHUNK - 1) / CHUNK, n_col = 16 * m->n_vec;
    struct fetch f = fetch_over(m->next, m->n_next,
                                (int64_t)n_chunk * ((m->n_row + ROWS - 1) / ROWS) * m->n_vec);
    for (int r0 = 0; r0 < m->n_row; r0 += ROWS) {
        int n_r = m->n_row - r0 < ROWS ? m->n_row - r0 : ROWS;
        for (int p0 = 0; p0 < m->n_pos; p0 += CHUNK) {
            const uint8_t *at[CHUNK + 1];
            uint32_t w[CHUNK / 2][ROWS];
            int n = m->n_pos - p0 < CHUNK ? m->n_pos - p0 : CHUNK, n_pair = (n + 1) / 2;
            for (int i = 0; i < n; i++)
                at[i] = row_at(m, p0 + i) + scales;
            at[n] = at[n - 1]; /* beside an odd last one: its weight is 0 */
            for (int g = 0; 32 * g < n_col; g++) {
                for (int k = 0; k < n_pair; k++) {
                    const float *s = m->s + (p0 + 2 * k) * m->lds + r0;
                    int odd = 2 * k + 1 == n;
                    float sa = ((const float *)(const void *)(at[2 * k] - scales))[g];
                    float sb = odd ? 0 : ((const float *)(const void *)(at[2 * k + 1] - scales))[g];
                    __m512 a = _mm512_maskz_loadu_ps(first(n_r), s);
                    __m512 b =
                        odd ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(first(n_r), s + m->lds);
                    a = _mm512_mul_ps(a, _mm512_set1_ps(sa));
                    b = _mm512_mul_ps(b, _mm512_set1_ps(sb));
                    __m512i v = (__m512i)_mm512_cvtne2ps_pbh(b, a);
                    _mm512_storeu_si512((void *)w[k], _mm512_permutexvar_epi16(index, v));
                }
                for (int col = 32 * g; col < 32 * g + 32 && col < n_col; col += 16) {
                    switch (n_r) {
                        MIX(1)
                        MIX(2)
                        MIX(3)
                        MIX(4)
                        MIX(5) MIX(6) MIX(7) MIX(8) MIX(9) MIX(10) MIX(11) MIX(12) MIX(13) MIX(14)
                            MIX(15) MIX(16)
                    }
                    fetch_some(&f);
                }
            }
        }
    }
}
