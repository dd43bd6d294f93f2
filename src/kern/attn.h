/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on numbers of 16 bits: the products and the conversions around them. First on bf16,
 * pairs of which are summed in f32.
 *
 * Values are bf16 bits; a pair is two neighbours in memory. A result is one chain over its own
 * operands, pairs rising, so it depends neither on its neighbours nor on how a sum is cut into
 * calls (at whole pairs). Subnormal operands and results count as zero where the CPU has bf16
 * instructions. Pure; operands disjoint; no alignment needed. */
#ifndef KERN_ATTN_H
#define KERN_ATTN_H

#include <stdint.h>

/* Operands of attn_dot_bf16 and attn_mix_bf16. Strides are in elements.
 *
 * attn_dot_bf16   c[r][16 j + i] (+)= sum over k < n_k of the two products of the pairs
 *                 a[r lda + k lda_k] and b[k ldb + j ldb_v + 2 i]; j < n_vec, i < 16.
 * attn_mix_bf16   c[r][16 j + i] (+)= sum over k0 <= p < n_k of w(r, p) v(p, 16 j + i), where
 *                 w(r, p) = a[r lda + p / 2 lda_k + p % 2] and row p of v is row p % blk_rows of
 *                 blk[p / blk_rows], rows ldb apart; blk_rows and k0 are even. When n_k is odd the
 *                 weight after the last is read and counts nothing. b, ldb_v are not used.
 *
 * c starts at 0, or with add at what it holds. next: n_next regions that will be needed soon; they
 * are fetched into the second-level cache on the way. */
struct attn_region {
    const uint8_t *at;
    int64_t n_bytes;
};
struct attn_mm {
    const uint16_t *a, *b;
    int64_t lda, lda_k, ldb, ldb_v;
    float *c;
    int64_t ldc;
    int n_row, n_vec, n_k, k0, add;
    const uint16_t *const *blk;
    int blk_rows;
    const struct attn_region *next;
    int n_next;
};

/* Operands of attn_soft_bf16: n_row rows of scores of one span become weights. w[r ldw + p], lo <=
 * p < hi <= 128, is e^(s[r lds + p] - m[r]) rounded to bf16, m[r] the largest of these scores and
 * l[r] the sum of the weights before they are rounded (lanes by position, as span_row_f32 of vec.h
 * has them); around them w is written up to multiples of 16: 0 where p is not seen. lo < hi.
 *
 * e^x is 2^n 2^r with n = x log2(e) to the nearest integer and a polynomial of degree 5, within
 * 4e-6 of it, which is a five-hundredth of what rounding to bf16 loses; 0 below -87. */
#define ATTN_LOG2E 1.44269504088896341f
#define ATTN_P1 0.693147180559945f
#define ATTN_P2 0.240226506959101f
#define ATTN_P3 0.0555041086648216f
#define ATTN_P4 0.00961812910762848f
#define ATTN_P5 0.00133335581464284f
struct attn_soft {
    const float *s;
    int64_t lds;
    uint16_t *w;
    int64_t ldw;
    int n_row, lo, hi;
    float *m, *l;
};

/* Operands of attn_dot_q8 and attn_mix_q8. Row p of the cache (vec.h: (d + 31) / 32 scales, then d
 * codes and zeros up to a multiple of 16) is row p % blk_rows of blk[p / blk_rows], row_bytes
 * apart; p < n_pos.
 *
 * attn_dot_q8   s[p][lane] = the product of row p and query lane, lane < 16 n_vec. Queries are
 *               integers too (attn_q8_query, ld = 16 n_vec): sums of 32 products are exact, times
 *               q_scale * scale they are added up in f32, rising.
 * attn_mix_q8   c[r][i] = sum over p of w(r, p) times code i of row p; i < 16 n_vec, r < n_row;
 *               w(r, p) = s[p][r] times the scale of i in row p, rounded to bf16. Summed up as in
 *               attn_mix_bf16; beside an odd last row stands a weight of 0. */
struct attn_q8 {
    const uint8_t *const *blk;
    int blk_rows, n_pos, d, n_vec, n_row;
    int64_t row_bytes;
    const int8_t *q;
    const float *q_scale;
    const int32_t *q_bias;
    float *s;
    int64_t lds;
    float *c;
    int64_t ldc;
    const struct attn_region *next;
    int n_next;
};

/* Attention on 16-bit integers, where a CPU has no bf16 instructions but pairs of 16-bit products.
 *
 * Numbers of 16 bits with one f32 scale for a row of the cache, for a query, and for a lane's
 * weights of a span; sums of products are exact: rows have magnitudes up to ATTN_I16_ROW, queries
 * and weights up to ATTN_I16_MAX, and those of one query, or of one lane's weights, together at
 * most ATTN_I16_SUM, so that a sum fits 32 bits. Rounding is to nearest even. A value that is not
 * finite makes its scale NaN, so that it is not lost; subnormals count as zero.
 *
 * attn_rows_i16     n_row rows of n values, ldx apart: codes to y, with zeros up to a multiple of
 * 16, and scales ld_scale apart. attn_query_i16    the same for one query, with its sum bounded
 * too. attn_dot_i16      s[p ld + lane] (+)= x_scale q_scale sum over k < n_pair of the two
 * products of the pairs x[p ldx + 2 k] and q[2 (k ld + lane)]; p < n_pos, lane < ld. add: to what s
 *                   holds.
 * attn_weights_i16  weights of s times the rows' scales, of positions p < hi[lane] <= n_pos (the
 * others are 0, whatever they hold), as pairs of positions to w[2 (p / 2 ld + lane) + p % 2] with
 * w_scale[lane]; beside an odd last one stands 0. attn_mix_i16      c[lane ldc + i] = w_scale[lane]
 * sum over p < n_pos of w(lane, p) x[p ldx + i]; i < n rounded up to 16, lane < n_lane.
 *
 * x_scale of row p is at p ld_scale. ld is a multiple of 16; n_pos <= 128 and, for queries,
 * n <= 4096. */
#define ATTN_I16_ROW 8191.0f
#define ATTN_I16_MAX 32767.0f
#define ATTN_I16_SUM (1 << 18)
struct attn_i16 {
    const int16_t *x, *q, *w;
    int64_t ldx, ld, ldc;
    const float *x_scale, *q_scale, *w_scale;
    int64_t ld_scale;
    int n_pair, n_pos, n_lane, n, add;
    float *s, *c;
};

/* The scale of values whose largest or sum is some and whose codes are themselves times inv, which
 * goes to *use: 0 where there is nothing to code. */
static inline float attn_i16_scale(float some, float inv, float *use)
{
    *use = 0;
    if (!(some <= 3.0e38f)) return __builtin_nanf("");
    if (!(inv <= 3.0e38f)) return 0;
    *use = inv;
    return 1.0f / inv;
}

#endif
