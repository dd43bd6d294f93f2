/* SPDX-License-Identifier: Apache-2.0 */
/* Q4_0 Q4_1 Q5_0 Q5_1 Q8_0: blocks of 32 with an f16 scale d (and, in the _1 types, an f16 minimum
 * m). In the 4- and 5-bit types the low nibble of byte j is element j, the high nibble element j +
 * 16; the fifth bit of element j is bit j of the u32 qh. */
#include "tensor/tensor_internal.h"

void tensor_dequant_q4_0(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 18, dst += 32) {
        float d = tensor_get_f16(src);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)((src[2 + j] & 15) - 8);
            dst[j + 16] = d * (float)((src[2 + j] >> 4) - 8);
        }
    }
}

void tensor_dequant_q4_1(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 20, dst += 32) {
        float d = tensor_get_f16(src), m = tensor_get_f16(src + 2);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)(src[4 + j] & 15) + m;
            dst[j + 16] = d * (float)(src[4 + j] >> 4) + m;
        }
    }
}

void tensor_dequant_q5_0(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 22, dst += 32) {
        float d = tensor_get_f16(src);
        uint32_t qh = tensor_get_u32(src + 2);
        for (int j = 0; j < 16; j++) {
            int lo = (src[6 + j] & 15) | (int)(qh >> j & 1) << 4;
            int hi = (src[6 + j] >> 4) | (int)(qh >> (j + 16) & 1) << 4;
            dst[j] = d * (float)(lo - 16);
            dst[j + 16] = d * (float)(hi - 16);
        }
    }
}

void tensor_dequant_q5_1(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 24, dst += 32) {
        float d = tensor_get_f16(src), m = tensor_get_f16(src + 2);
        uint32_t qh = tensor_get_u32(src + 4);
        for (int j = 0; j < 16; j++) {
            int lo = (src[8 + j] & 15) | (int)(qh >> j & 1) << 4;
            int hi = (src[8 + j] >> 4) | (int)(qh >> (j + 16) & 1) << 4;
            dst[j] = d * (float)lo + m;
            dst[j + 16] = d * (float)hi + m;
        }
    }
}

void tensor_dequant_q8_0(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 34, dst += 32) {
        float d = tensor_get_f16(src);
        for (int j = 0; j < 32; j++)
            dst[j] = (float)(int8_t)src[2 + j] * d;
    }
}
