/* SPDX-License-Identifier: Apache-2.0 */
/* The dequantisers of tensor_dequant, one per type: n weights, a multiple of the block; src
 * needs no alignment. */
#ifndef TENSOR_INTERNAL_H
#define TENSOR_INTERNAL_H

#include <stdint.h>
#include <string.h>

#include "base/fp.h"
#include "tensor/tensor.h"

typedef void tensor_dequant_fn(const uint8_t *src, int64_t n, float *dst);

/* quant_legacy.c */
tensor_dequant_fn tensor_dequant_q4_0, tensor_dequant_q4_1, tensor_dequant_q5_0,
    tensor_dequant_q5_1, tensor_dequant_q8_0;
/* quant_k.c */
tensor_dequant_fn tensor_dequant_q2_k, tensor_dequant_q3_k, tensor_dequant_q4_k,
    tensor_dequant_q5_k, tensor_dequant_q6_k;
/* quant_table.c */
tensor_dequant_fn tensor_dequant_iq4_nl, tensor_dequant_iq4_xs, tensor_dequant_mxfp4,
    tensor_dequant_nvfp4;

/* group.c: weight_dequant of a GROUP weight */
void tensor_dequant_group(const struct weight *w, int64_t r, int64_t col0, int64_t n, float *dst);

static inline uint16_t tensor_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t tensor_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void tensor_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline float tensor_get_f16(const uint8_t *p)
{
    return fp_f16_to_f32(tensor_get_u16(p));
}

#endif
