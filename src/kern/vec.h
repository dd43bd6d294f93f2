/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming and attention kernels over f32. Every variant works on logical vectors of 16 lanes with
 * the same order of operations (fused multiply-adds explicit, sums over lanes as the tree (i, i+8),
 * (i, i+4), (i, i+2), (i, i+1)), so all ISAs give the same bits and a row's result does not depend
 * on its neighbours.
 *
 * Pure: no memory, locks or failure. Pointers need no alignment; inputs and outputs are disjoint
 * unless it says "in place".
 */
#ifndef KERN_VEC_H
#define KERN_VEC_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/glu.h"

/* Positions of one span of attention: partial softmax results are kept per span and merged in
 * rising order. */
#define VEC_SPAN 128
/* Positions of one piece whose keys and values are widened to f32 at a time. */
#define VEC_PIECE 64

/* clang-format off */
/* X(op, return, (parameters))
 *
 * add_f32          x += y over n.
 * scale_f32        x *= a over n, in place.
 * rmsnorm_f32      y = x / sqrt(mean(x^2) + eps) * w over n; y may be x.
 * silu_mul_f32     h = g / (1 + exp(-g)) * u over n; h may be g or u.
 * silu_pairs_f32   h[16 i + j] = silu(y[32 i + j]) * y[32 i + 16 + j] for n values of h:
 *                  tiles of gate and up side by side.
 * glu_pairs_f32    the same with biases and the parameters of struct glu; bg, bu: biases of the
 *                  n gates and ups, or both NULL.
 * streams_f32      row k of x [n_row, ldx] = mix[k] r + sum_j mix[n_row + j n_row + k] x_j, j
 *                  rising, over n columns, in place; n_row <= 8.
 * dots_f32         y[i] = sum of x[s ldx + k] w[i ldw + s ld + k] over k < n of n_seg segments, i <
 *                  n_row.
 * wsum_f32         y = ((w[0] row[0] + w[1] row[1]) + ...) (+ add last, may be NULL) over n.
 * rope_half_f32    pairs (i, i + n/2) of x rotated by (cos, sin) = (cs[i], cs[n/2 + i]), i < n/2,
 *                  in place.
 * rope_pairs_f32   the same for pairs (2i, 2i + 1).
 * softmax_f32      w = exp(x - max) / sum over n, in place.
 * sigmoid_f32      x = 1 / (1 + exp(-x)) over n, in place.
 * gate_f32         x *= 1 / (1 + exp(-g)) over n, in place.
 * softplus_f32     x = log(1 + exp(x)) over n, in place.
 * cap_f32          x = cap tanh(x / cap) over n, in place; cap > 0.
 * decay_f32        x = exp(a log(1 + exp(x))) over n, in place.
 * decay_in_f32     x = exp(to / (1 + exp(a x))) over n, in place; to, a <= 0.
 * conv_silu_f32    y = silu(sum_i w[i * ldw + .] * row[i][.]) over n, i < n_row rising.
 * relu_sum_f32     y[i] = sum_r w[r] * max(0, s[r * ld + i]) for 16 * n_vec values, r < n_row
 *                  rising.
 * delta_f32        the gated delta rule of a head for n_tok tokens: see struct vec_delta.
 * delta_each_f32   the same with a decay for each row of the state.
 *
 * sum_f32          the sum of n values.
 *
 * gemm_f32         c[r][j] (+)= sum_k a[r * lda + k * lda_k] * b[k * ldb + j], r < n_row,
 *                  j < 16 * n_vec; k rising, one accumulator; starts at c when add, else at 0.
 * span_row_f32     s[lo..hi) of one query -> exp(s - max), in place; *m = max, *l = sum. Lanes by
 *                  position from s[0]; the 16-groups touched are readable, contents outside
 *                  [lo, hi) do not matter. lo < hi.
 * span_col_f32     s[p * ld + j]: scores of query j (16 * n_vec of them) at position p < n; query j
 *                  sees lo[j] <= p < hi[j]. In place: exp(s - max), 0 where not seen; m[j], l[j];
 *                  where nothing is seen l = 0, m = -inf.
 * fold_f32         (*m1, *l1, o1) and (m2, l2, o2) of later positions merged into the first.
 *                  l2 > 0; l1 = 0 means empty.
 *
 * Keys and values of one KV head, as the cache stores them, to f32 and back; t: enum vec_kv.
 * put_k            key x[d] to place lane (0..15) of a group of 16 positions.
 * get_k            a group: dst[i * ld + lane], i < d.
 * put_v            row x[d].
 * get_v            n rows, row_bytes apart: dst[p * ld + i], i < d rounded up to 16 (zeros
 *                  after d).
 */
#define VEC_LIST(X)                                                                                \
    X(add_f32, void, (float *x, const float *y, int64_t n))                                        \
    X(scale_f32, void, (float *x, float a, int64_t n))                                             \
    X(rmsnorm_f32, void, (float *y, const float *x, const float *w, int n, float eps))             \
    X(silu_mul_f32, void, (float *h, const float *g, const float *u, int n))                       \
    X(silu_pairs_f32, void, (float *h, const float *y, int n))                                     \
    X(glu_pairs_f32, void,                                                                         \
      (float *h, const float *y, const float *bg, const float *bu, int n,                          \
       const struct glu *p))                                                                       \
    X(streams_f32, void,                                                                           \
      (float *x, int64_t ldx, const float *r, const float *mix, int n_row, int n))                 \
    X(dots_f32, void,                                                                              \
      (float *y, const float *x, int64_t ldx, const float *w, int64_t ldw, int64_t ld, int n_row,  \
       int n_seg, int n))                                                                          \
    X(wsum_f32, void,                                                                              \
      (float *y, const float *const *row, const float *w, int n_row, const float *add, int n))     \
    X(rope_half_f32, void, (float *x, const float *cs, int n))                                     \
    X(rope_pairs_f32, void, (float *x, const float *cs, int n))                                    \
    X(softmax_f32, void, (float *x, int n))                                                        \
    X(sigmoid_f32, void, (float *x, int n))                                                        \
    X(gate_f32, void, (float *x, const float *g, int n))                                           \
    X(softplus_f32, void, (float *x, int n))                                                       \
    X(cap_f32, void, (float *x, float cap, int n))                                                 \
    X(decay_f32, void, (float *x, float a, int n))                                                 \
    X(decay_in_f32, void, (float *x, float a, float to, int n))                                    \
    X(conv_silu_f32, void,                                                                         \
      (float *y, const float *const *row, const float *w, int64_t ldw, int n_row, int n))          \
    X(relu_sum_f32, void,                                                                          \
      (float *y, const float *s, int64_t ld, const float *w, int n_row, int n_vec))                \
    X(delta_f32, void,                                                                             \
      (float *s, int d_k, int d_v, const struct vec_delta *t, int n_tok))                          \
    X(delta_each_f32, void,                                                                        \
      (float *s, int d_k, int d_v, const struct vec_delta *t, int n_tok))                          \
    X(sum_f32, float, (const float *x, int64_t n))                                                 \
    X(gemm_f32, void,                                                                              \
      (const float *a, int64_t lda, int64_t lda_k, const float *b, int64_t ldb, float *c,          \
       int64_t ldc, int n_row, int n_vec, int n_k, int add))                                       \
    X(span_row_f32, void, (float *s, int lo, int hi, float *m, float *l))                          \
    X(span_col_f32, void,                                                                          \
      (float *s, int64_t ld, int n, int n_vec, const int32_t *lo, const int32_t *hi, float *m,     \
       float *l))                                                                                  \
    X(fold_f32, void,                                                                              \
      (float *m1, float *l1, float *o1, float m2, float l2, const float *o2, int n))               \
    X(put_k, void, (int t, uint8_t *group, int lane, const float *x, int d))                       \
    X(get_k, void, (int t, const uint8_t *group, int d, float *dst, int64_t ld))                   \
    X(put_v, void, (int t, uint8_t *row, const float *x, int d))                                   \
    X(get_v, void,                                                                                 \
      (int t, const uint8_t *row, int64_t row_bytes, int n, int d, float *dst, int64_t ld))
/* clang-format on */

/* Storage of keys and values. Q8: groups of 32 dimensions (the last may be shorter), int8 times one
 * f32 scale = max|x| / 127, scales first. */
enum vec_kv { VEC_KV_BF16, VEC_KV_F16, VEC_KV_Q8, VEC_KV_F32 };

/* Bytes of a group of 16 keys (a multiple of 64), and of one value row (a multiple of 16), of d
 * dimensions. Keys lie transposed: for dimension i the 16 positions side by side; BF16: for each
 * pair of dimensions 16 positions of two (an odd last one beside zeros); Q8: [d/32][16] scales,
 * then the bytes. */
static inline size_t vec_kv_item_bytes(int t)
{
    return t == VEC_KV_F32 ? 4 : t == VEC_KV_Q8 ? 1 : 2;
}
static inline size_t vec_k_group_bytes(int t, int d)
{
    size_t n = (size_t)(t == VEC_KV_BF16 ? d + d % 2 : d) * 16 * vec_kv_item_bytes(t);
    if (t == VEC_KV_Q8) n += (size_t)(d + 31) / 32 * 64;
    return (n + 63) / 64 * 64;
}
static inline size_t vec_v_row_bytes(int t, int d)
{
    size_t n = ((size_t)d + 15) / 16 * 16 * vec_kv_item_bytes(t);
    if (t == VEC_KV_Q8) n += (size_t)(d + 31) / 32 * 4;
    return (n + 15) / 16 * 16;
}

/* A token of the gated delta rule (Yang et al., arXiv 2412.06464): s = decay * s, then d = beta *
 * (v - s^T k), s += k d^T, o = s^T q. k, q [d_k], v, o [d_v]; o may be v; d_k is even. With decays
 * [d_k] (delta_each_f32) row i of s is multiplied by decays[i] in place of decay. The state s [d_k,
 * d_v] lies in blocks of 16 columns one after another, [d_k, 16] each; columns from d_v on are
 * zeros. */
struct vec_delta {
    const float *k, *q, *v, *decays;
    float *o;
    float decay, beta;
};
#define VEC_DELTA_TOK 16 /* tokens at once, at most */

struct vec_kern {
#define X(op, ret, args) ret(*op) args;
    VEC_LIST(X)
#undef X
    /* n rounds of independent multiply-adds in registers; return the operations done (2 per
     * product). */
    double (*peak_i8)(int n);
    double (*peak_f32)(int n);
    double (*peak_bf16)(int n); /* NULL where attention is not on bf16 */
    double (*peak_i16)(int n);  /* NULL but with AVX2 */
    const char *isa;
};

double kern_peak_i8_ref(int n);
double kern_peak_i8_avx2(int n);
double kern_peak_i8_avxvnni(int n);
double kern_peak_i8_vnni256(int n);
double kern_peak_i8_avx512vnni(int n);
double kern_peak_i8_neon(int n);
double kern_peak_f32_ref(int n);
double kern_peak_f32_avx2(int n);
double kern_peak_i16_avx2(int n);
double kern_peak_f32_avx512(int n);
double kern_peak_f32_neon(int n);
double kern_peak_bf16_avx512bf16(int n);

/* Zeros for n bytes at p, both multiples of 64; n may be 0. True: written past the caches, so that
 * none has any of them afterwards; false where the CPU has no such stores. */
bool kern_zero_uncached(void *p, size_t n);

/* The best variants for a mask of cpu_isa bits. */
void kern_vec_select(struct vec_kern *k, uint32_t isa_mask);

/* Prototypes of one ISA's variants. */
#define X(op, ret, args) ret kern_##op##_ref args;
VEC_LIST(X)
#undef X
#if defined(__x86_64__)
#define X(op, ret, args) ret kern_##op##_avx2 args;
VEC_LIST(X)
#undef X
#define X(op, ret, args) ret kern_##op##_avx512 args;
VEC_LIST(X)
#undef X
#elif defined(__aarch64__)
#define X(op, ret, args) ret kern_##op##_neon args;
VEC_LIST(X)
#undef X
#endif

#endif
