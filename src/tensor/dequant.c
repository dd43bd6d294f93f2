/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_dequant: the plain floats, and the table of block types. */
#include "tensor/tensor.h"

#include "tensor/tensor_internal.h"

static void dequant_f32(const uint8_t *src, int64_t n, float *dst)
{
    memcpy(dst, src, (size_t)n * 4);
}

static void dequant_f64(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, src + 8 * i, 8);
        dst[i] = (float)v;
    }
}

static void dequant_f16(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = tensor_get_f16(src + 2 * i);
}

static void dequant_bf16(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = fp_bf16_to_f32(tensor_get_u16(src + 2 * i));
}

static void dequant_f8_e4m3(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = fp_e4m3_to_f32(src[i]);
}

static void dequant_f8_e5m2(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = fp_f16_to_f32((uint16_t)(src[i] << 8));
}

static tensor_dequant_fn *const fn[TENSOR_N_DTYPE] = {
    [TENSOR_F32] = dequant_f32,
    [TENSOR_F64] = dequant_f64,
    [TENSOR_F16] = dequant_f16,
    [TENSOR_BF16] = dequant_bf16,
    [TENSOR_F8_E4M3] = dequant_f8_e4m3,
    [TENSOR_F8_E5M2] = dequant_f8_e5m2,
    [TENSOR_Q4_0] = tensor_dequant_q4_0,
    [TENSOR_Q4_1] = tensor_dequant_q4_1,
    [TENSOR_Q5_0] = tensor_dequant_q5_0,
    [TENSOR_Q5_1] = tensor_dequant_q5_1,
    [TENSOR_Q8_0] = tensor_dequant_q8_0,
    [TENSOR_Q2_K] = tensor_dequant_q2_k,
    [TENSOR_Q3_K] = tensor_dequant_q3_k,
    [TENSOR_Q4_K] = tensor_dequant_q4_k,
    [TENSOR_Q5_K] = tensor_dequant_q5_k,
    [TENSOR_Q6_K] = tensor_dequant_q6_k,
    [TENSOR_IQ4_NL] = tensor_dequant_iq4_nl,
    [TENSOR_IQ4_XS] = tensor_dequant_iq4_xs,
    [TENSOR_MXFP4] = tensor_dequant_mxfp4,
    [TENSOR_NVFP4] = tensor_dequant_nvfp4,
};

bool tensor_dtype_is_weight(enum tensor_dtype t)
{
    return (unsigned)t < TENSOR_N_DTYPE && fn[t] != NULL;
}

void tensor_dequant(enum tensor_dtype t, const void *src, int64_t n, float *dst)
{
    ASSERT(tensor_dtype_is_weight(t));
    DEBUG_ASSERT(n >= 0 && n % tensor_dtype(t)->block == 0);
    fn[t](src, n, dst);
}
