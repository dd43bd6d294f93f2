/* SPDX-License-Identifier: Apache-2.0 */
/* What the quantisers share: rounding, scale searches, and one function per block type. */
#ifndef QUANT_ROUND_INTERNAL_H
#define QUANT_ROUND_INTERNAL_H

#include "quant/round.h"

/* v to the nearest integer (ties to even) in [lo, hi], both within 2^21; NaN gives lo or hi. */
static inline float quant_near(float v, float lo, float hi)
{
    v = v > lo ? v : lo;
    v = v < hi ? v : hi;
    return (v + 12582912.0f) - 12582912.0f;
}

/* out = the sum over i in [0, n) of expr, in eight lanes (which compilers turn into vectors) and
 * then their sum. */
#define QUANT_SUM(out, n, i, expr)                                                                 \
    do {                                                                                           \
        float lane_[8] = {0};                                                                      \
        int64_t whole_ = (n) & ~(int64_t)7;                                                        \
        for (int64_t base_ = 0; base_ < whole_; base_ += 8)                                        \
            for (int k_ = 0; k_ < 8; k_++) {                                                       \
                int64_t i = base_ + k_;                                                            \
                lane_[k_] += (expr);                                                               \
            }                                                                                      \
        for (int64_t i = whole_; i < (n); i++)                                                     \
            lane_[0] += (expr);                                                                    \
        (out) = ((lane_[0] + lane_[4]) + (lane_[1] + lane_[5])) +                                  \
                ((lane_[2] + lane_[6]) + (lane_[3] + lane_[7]));                                   \
    } while (0)

float quant_store_f16(float v); /* as f16 holds it */

/* How a symmetric scale is sought. */
struct quant_sym {
    float lo, hi;
    float reach;   /* plain scale = largest magnitude / reach */
    bool negative; /* the scale may be negative; plain: the largest magnitude becomes code lo */
    bool search;
    float f_lo, f_hi; /* factors on the plain scale that are tried */
    int n_try;
    float (*store)(float);
};
float quant_sym_scale(const float *x, const float *w, int64_t n, const struct quant_sym *s);
double quant_sym_error(const float *x, const float *w, int64_t n, float d, float lo, float hi);

struct quant_affine {
    float d, m; /* x ~ d * q + m */
};
struct quant_affine quant_affine_fit(const float *x, const float *w, int n, float top, bool m_neg,
                                     bool search);

/* One block each. */
typedef void quant_block_fn(const float *x, const float *w, bool search, uint8_t *dst);
quant_block_fn quant_round_q8_0, quant_round_q4_0, quant_round_q4_1, quant_round_q5_0,
    quant_round_q5_1, quant_round_q4_k, quant_round_q5_k, quant_round_q6_k, quant_round_mxfp4,
    quant_round_nvfp4;

#endif
