/* SPDX-License-Identifier: Apache-2.0 */
/* The K types: super-blocks of 256 with small integer scales of their sub-blocks under one or two
 * f16 scales. Layouts: docs/formats.md. */
#include "tensor/tensor_internal.h"

/* 84 bytes: scales[16] (low nibble scale, high nibble minimum, one per 16 weights), qs[64] of 2
 * bits, f16 d, f16 dmin. */
void tensor_dequant_q2_k(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 256, src += 84) {
        const uint8_t *scale = src, *qs = src + 16;
        float d = tensor_get_f16(src + 80), dmin = tensor_get_f16(src + 82);
        for (int g = 0; g < 16; g++, dst += 16) { /* half g/8, shift 2*(g/2 % 4), bytes 16*(g%2) */
            float dl = d * (float)(scale[g] & 15), ml = dmin * (float)(scale[g] >> 4);
            const uint8_t *q = qs + 32 * (g / 8) + 16 * (g % 2);
            int shift = 2 * (g / 2 % 4);
            for (int l = 0; l < 16; l++)
                dst[l] = dl * (float)(q[l] >> shift & 3) - ml;
        }
    }
}

/* 110 bytes: hmask[32], qs[64] of 2 bits, scales[12] (sixteen of 6 bits, less 32), f16 d. A clear
 * mask bit subtracts 4. */
void tensor_dequant_q3_k(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 256, src += 110) {
        const uint8_t *hmask = src, *qs = src + 32, *sc = src + 96;
        float d = tensor_get_f16(src + 108);
        for (int g = 0; g < 16; g++, dst += 16) {
            int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4;
            int high = sc[8 + g % 4] >> (2 * (g / 4)) & 3;
            float dl = d * (float)((low | high << 4) - 32);
            const uint8_t *q = qs + 32 * (g / 8) + 16 * (g % 2), *h = hmask + 16 * (g % 2);
            int shift = 2 * (g / 2 % 4), bit = g / 2;
            for (int l = 0; l < 16; l++)
                dst[l] = dl * (float)((q[l] >> shift & 3) - (h[l] >> bit & 1 ? 0 : 4));
        }
    }
}

/* The j-th of eight 6-bit scales and minima in the 12 bytes of Q4_K and Q5_K. */
static void scale_min(const uint8_t *s, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

/* 144 bytes: f16 d, f16 dmin, scales[12], qs[128]: each 32 bytes are 32 low nibbles, then the 32
 * high ones. */
void tensor_dequant_q4_k(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 256, src += 144) {
        float d = tensor_get_f16(src), dmin = tensor_get_f16(src + 2);
        for (int g = 0; g < 8; g++, dst += 32) {
            int sc, m;
            scale_min(src + 4, g, &sc, &m);
            float dl = d * (float)sc, ml = dmin * (float)m;
            const uint8_t *q = src + 16 + 32 * (g / 2);
            int shift = 4 * (g % 2);
            for (int l = 0; l < 32; l++)
                dst[l] = dl * (float)(q[l] >> shift & 15) - ml;
        }
    }
}

/* 176 bytes: as Q4_K with qh[32] before qs: bit g of qh[l] is the fifth bit of weight l of
 * sub-block g. */
void tensor_dequant_q5_k(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 256, src += 176) {
        float d = tensor_get_f16(src), dmin = tensor_get_f16(src + 2);
        const uint8_t *qh = src + 16;
        for (int g = 0; g < 8; g++, dst += 32) {
            int sc, m;
            scale_min(src + 4, g, &sc, &m);
            float dl = d * (float)sc, ml = dmin * (float)m;
            const uint8_t *q = src + 48 + 32 * (g / 2);
            int shift = 4 * (g % 2);
            for (int l = 0; l < 32; l++)
                dst[l] = dl * (float)((q[l] >> shift & 15) | (qh[l] >> g & 1) << 4) - ml;
        }
    }
}

/* 210 bytes: ql[128], qh[64], i8 scales[16], f16 d; 6 bits less 32, one scale per 16 weights. */
void tensor_dequant_q6_k(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 256, src += 210) {
        float d = tensor_get_f16(src + 208);
        for (int g = 0; g < 8; g++, dst += 32) { /* quarter g%4 of half g/4 */
            const uint8_t *ql = src + 64 * (g / 4) + 32 * (g % 2), *qh = src + 128 + 32 * (g / 4);
            const uint8_t *sc = src + 192 + 2 * g;
            int shift = 4 * (g % 4 / 2), shift_h = 2 * (g % 4);
            float dl[2] = {d * (float)(int8_t)sc[0], d * (float)(int8_t)sc[1]};
            for (int l = 0; l < 32; l++) {
                int q = (ql[l] >> shift & 15) | (qh[l] >> shift_h & 3) << 4;
                dst[l] = dl[l / 16] * (float)(q - 32);
            }
        }
    }
}
