/* SPDX-License-Identifier: Apache-2.0 */
/* Types whose 4-bit codes go through a table: IQ4_NL, IQ4_XS (a fixed non-linear table), MXFP4,
 * NVFP4 (e2m1, doubled so that it is integer). */
#include "tensor/tensor_internal.h"

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1x2[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 18 bytes: f16 d, qs[16]; nibbles as in Q4_0. */
void tensor_dequant_iq4_nl(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 18, dst += 32) {
        float d = tensor_get_f16(src);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)iq4[src[2 + j] & 15];
            dst[j + 16] = d * (float)iq4[src[2 + j] >> 4];
        }
    }
}

/* 136 bytes: f16 d, u16 scales_h, scales_l[4], qs[128]; 6-bit scale less 32 per 32 weights. */
void tensor_dequant_iq4_xs(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 256, src += 136) {
        float d = tensor_get_f16(src);
        unsigned high = tensor_get_u16(src + 2);
        for (int g = 0; g < 8; g++, dst += 32) {
            int sc = (src[4 + g / 2] >> (4 * (g % 2)) & 15) | (int)(high >> (2 * g) & 3) << 4;
            float dl = d * (float)(sc - 32);
            const uint8_t *q = src + 8 + 16 * g;
            for (int j = 0; j < 16; j++) {
                dst[j] = dl * (float)iq4[q[j] & 15];
                dst[j + 16] = dl * (float)iq4[q[j] >> 4];
            }
        }
    }
}

/* 17 bytes: u8 e, qs[16]; value = doubled e2m1 * 2^(e - 128), for every e up to 255. */
void tensor_dequant_mxfp4(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 32, src += 17, dst += 32) {
        uint32_t e = src[0];
        float d = fp_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        for (int j = 0; j < 16; j++) {
            dst[j] = d * (float)e2m1x2[src[1 + j] & 15];
            dst[j + 16] = d * (float)e2m1x2[src[1 + j] >> 4];
        }
    }
}

/* 36 bytes: d[4] in UE4M3 (one per 16 weights), qs[32]: 8 bytes per 16 weights, low nibbles first.
 */
void tensor_dequant_nvfp4(const uint8_t *src, int64_t n, float *dst)
{
    for (; n > 0; n -= 64, src += 36)
        for (int s = 0; s < 4; s++, dst += 16) {
            float d = 0.5f * fp_ue4m3_to_f32(src[s]);
            const uint8_t *q = src + 4 + 8 * s;
            for (int j = 0; j < 8; j++) {
                dst[j] = d * (float)e2m1x2[q[j] & 15];
                dst[j + 8] = d * (float)e2m1x2[q[j] >> 4];
            }
        }
}
