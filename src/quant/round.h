/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding rows of weights to codes: the quantisers. Each minimises sum weight[j] * (value - x)^2
 * over its scales when search is set, and is never worse than plain rounding by that measure;
 * without search it is the simplest good scale and round to nearest.
 *
 * Pure. */
#ifndef QUANT_ROUND_H
#define QUANT_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "quant/quant.h"
#include "tensor/tensor.h"

/* What is rounded together, and how much each value counts. */
struct quant_values {
    const float *x;      /* [n] finite */
    const float *weight; /* [n] >= 0, or NULL: all the same */
    int64_t n;
};

/* A row of a GGUF block type (and F32, F16, BF16): n a multiple of the block; dst as tensor_dequant
 * reads it. */
void quant_round_gguf(enum tensor_dtype t, const struct quant_values *r, bool search, uint8_t *dst);
/* Does quant_round_gguf know the type? */
bool quant_can_round(enum tensor_dtype t);

/* A row of a folder's scheme, as codes and scales of groups. */
struct quant_codes {
    int8_t *q;    /* [n] INT8, INT4: signed; AWQ: 0 .. 15; FP4: 0 .. 15 */
    float *scale; /* [n / group] value of the stored scale (INT8, INT4: bf16; AWQ: f16; FP4: e4m3 or
                     e8m0 times the tensor's) */
    uint8_t *z;   /* [n / group] AWQ: zero point; FP4: the scale's code */
    float *deq;   /* [n] the values that they stand for */
};
/* INT8, INT4 (one group), AWQ (groups of group). */
void quant_round_int(enum quant_type t, const struct quant_values *r, int group, bool search,
                     struct quant_codes *out);
/* NVFP4 (groups of 16, scale code * mul) and MXFP4 (groups of 32, mul not used). */
void quant_round_fp4(enum quant_type t, const struct quant_values *r, float mul, bool search,
                     struct quant_codes *out);

/* e2m1 code of v (saturating at 6) and the value of a code. Ties go up at 0.75, 1.75 and
 * 3.5, down elsewhere. */
int quant_e2m1(float v);
float quant_e2m1_value(int code);

#endif
