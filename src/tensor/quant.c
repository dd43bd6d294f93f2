/* SPDX-License-Identifier: Apache-2.0 */
/* The reference quantisers: one scale per block from its largest magnitude (or range), then round
 * to nearest. The block types give the same bytes as the reference quantisers of the format for
 * finite input; a NaN becomes code 0 of its block's scale. */
#include "tensor/tensor.h"

#include <math.h>

#include "tensor/tensor_internal.h"

/* v as an integer in [lo, hi]; NaN gives lo. */
static int clamp_int(float v, int lo, int hi)
{
    if (!(v > (float)lo)) return lo;
    return v < (float)hi ? (int)v : hi;
}

/* 1 / d, and 0 for a scale of 0. */
static float inverse(float d)
{
    return d == 0.0f ? 0.0f : 1.0f / d;
}

static void quant_q8_0(const float *src, int64_t n, uint8_t *dst)
{
    for (; n > 0; n -= 32, src += 32, dst += 34) {
        float amax = 0.0f;
        for (int j = 0; j < 32; j++)
            amax = fmaxf(amax, fabsf(src[j]));
        float d = amax / 127.0f, id = inverse(d);
        tensor_put_u16(dst, fp_f32_to_f16(d));
        for (int j = 0; j < 32; j++)
            dst[2 + j] = (uint8_t)clamp_int(roundf(src[j] * id), -128, 127);
    }
}

static void quant_q4_0(const float *src, int64_t n, uint8_t *dst)
{
    for (; n > 0; n -= 32, src += 32, dst += 18) {
        float max = src[0]; /* of largest magnitude, with its sign: it becomes code 0 */
        for (int j = 0; j < 32; j++)
            if (fabsf(src[j]) > fabsf(max)) max = src[j];
        float d = max / -8.0f, id = inverse(d);
        tensor_put_u16(dst, fp_f32_to_f16(d));
        for (int j = 0; j < 16; j++) {
            int lo = clamp_int(src[j] * id + 8.5f, 0, 15);
            int hi = clamp_int(src[j + 16] * id + 8.5f, 0, 15);
            dst[2 + j] = (uint8_t)(lo | hi << 4);
        }
    }
}

static void quant_q4_1(const float *src, int64_t n, uint8_t *dst)
{
    for (; n > 0; n -= 32, src += 32, dst += 20) {
        float min = src[0], max = src[0];
        for (int j = 1; j < 32; j++) {
            if (src[j] < min) min = src[j];
            if (src[j] > max) max = src[j];
        }
        float d = (max - min) / 15.0f, id = inverse(d);
        tensor_put_u16(dst, fp_f32_to_f16(d));
        tensor_put_u16(dst + 2, fp_f32_to_f16(min));
        for (int j = 0; j < 16; j++) {
            int lo = clamp_int((src[j] - min) * id + 0.5f, 0, 15);
            int hi = clamp_int((src[j + 16] - min) * id + 0.5f, 0, 15);
            dst[4 + j] = (uint8_t)(lo | hi << 4);
        }
    }
}

bool tensor_can_quant(enum tensor_dtype t)
{
    switch (t) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16:
    case TENSOR_F8_E4M3:
    case TENSOR_Q8_0:
    case TENSOR_Q4_0:
    case TENSOR_Q4_1:
        return true;
    default:
        return false;
    }
}

void tensor_quant(enum tensor_dtype t, const float *src, int64_t n, void *dst)
{
    uint8_t *p = dst;
    ASSERT(tensor_can_quant(t));
    DEBUG_ASSERT(n >= 0 && n % tensor_dtype(t)->block == 0);
    switch (t) {
    case TENSOR_F32:
        memcpy(p, src, (size_t)n * 4);
        break;
    case TENSOR_F16:
        for (int64_t i = 0; i < n; i++)
            tensor_put_u16(p + 2 * i, fp_f32_to_f16(src[i]));
        break;
    case TENSOR_BF16:
        for (int64_t i = 0; i < n; i++)
            tensor_put_u16(p + 2 * i, fp_f32_to_bf16(src[i]));
        break;
    case TENSOR_F8_E4M3:
        for (int64_t i = 0; i < n; i++)
            p[i] = fp_f32_to_e4m3(src[i]);
        break;
    case TENSOR_Q8_0:
        quant_q8_0(src, n, p);
        break;
    case TENSOR_Q4_0:
        quant_q4_0(src, n, p);
        break;
    default:
        quant_q4_1(src, n, p);
        break;
    }
}
