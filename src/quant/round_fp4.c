/* SPDX-License-Identifier: Apache-2.0 */
/* e2m1 codes under small float scales: NVFP4 (e4m3 per 16, and one f32 of the tensor) and MXFP4 (a
 * power of two per 32). The scale is sought among its own codes: there are few that make sense.
 * Also the list of GGUF block types. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "quant/round_internal.h"

int quant_e2m1(float v)
{
    float a = fabsf(v);
    int c = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) +
            (a > 5.0f);
    return c | (v < 0.0f && c) << 3;
}

float quant_e2m1_value(int code)
{
    static const float value[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return code & 8 ? -value[code & 7] : value[code & 7];
}

/* The magnitude nearest to a, without a table. */
static inline float near_e2m1(float a)
{
    return 0.5f * (float)((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f)) +
           (float)((a > 2.5f) + (a >= 3.5f)) + 2.0f * (float)(a > 5.0f);
}

static float fp4_error(const float *x, const float *w, int n, float s)
{
    float r[32], e, is = s != 0.0f ? 1.0f / s : 0.0f;
    for (int j = 0; j < n; j++)
        r[j] = fabsf(x[j]) - s * near_e2m1(fabsf(x[j]) * is);
    if (w)
        QUANT_SUM(e, n, j, w[j] * r[j] * r[j]);
    else
        QUANT_SUM(e, n, j, r[j] * r[j]);
    return e;
}

static float largest(const float *x, int n)
{
    float amax = 0.0f;
    for (int j = 0; j < n; j++)
        amax = fmaxf(amax, fabsf(x[j]));
    return amax;
}

/* The e4m3 code of 16 weights whose scale is code * mul; 0 = all zero. */
static int nvfp4_scale(const float *x, const float *w, float mul, bool search)
{
    float amax = largest(x, 16);
    if (amax == 0.0f || !(mul > 0.0f)) return 0;
    int base = fp_f32_to_e4m3(amax / (6.0f * mul));
    base = base < 1 ? 1 : base > 0x7e ? 0x7e : base;
    int best = base;
    float e_best = fp4_error(x, w, 16, fp_e4m3_to_f32((uint8_t)base) * mul);
    for (int c = base - 4; search && c <= base + 6;
         c++) { /* from 0.7 times to past 1.5 times: the largest may become 6 or 4 */
        if (c < 1 || c > 0x7e) continue;
        float e = fp4_error(x, w, 16, fp_e4m3_to_f32((uint8_t)c) * mul);
        if (e < e_best) {
            e_best = e;
            best = c;
        }
    }
    return best;
}

/* The e8m0 code of 32 weights. Plain: the largest power of two that keeps the largest magnitude's
 * exponent at e2m1's. */
static int mxfp4_scale(const float *x, const float *w, bool search)
{
    float amax = largest(x, 32);
    if (amax == 0.0f) return 0;
    int e = 0;
    frexpf(amax, &e);
    int base = e - 1 - 2 + 127;
    base = base < 0 ? 0 : base > 254 ? 254 : base;
    int best = base;
    float e_best = fp4_error(x, w, 32, fp_e8m0_to_f32((uint8_t)base));
    for (int c = base - 1; search && c <= base + 1; c++) {
        if (c < 0 || c > 254) continue;
        float er = fp4_error(x, w, 32, fp_e8m0_to_f32((uint8_t)c));
        if (er < e_best) {
            e_best = er;
            best = c;
        }
    }
    return best;
}

void quant_round_fp4(enum quant_type t, const struct quant_values *r, float mul, bool search,
                     struct quant_codes *out)
{
    int group = t == QUANT_NVFP4 ? 16 : 32;
    const float *x = r->x;
    for (int64_t g = 0; g < r->n / group; g++, x += group) {
        const float *w = r->weight ? r->weight + g * group : NULL;
        int c = t == QUANT_NVFP4 ? nvfp4_scale(x, w, mul, search) : mxfp4_scale(x, w, search);
        float s = t == QUANT_NVFP4 ? fp_e4m3_to_f32((uint8_t)c) * mul : fp_e8m0_to_f32((uint8_t)c);
        float is = s != 0.0f ? 1.0f / s : 0.0f;
        for (int j = 0; j < group; j++) {
            int q = quant_e2m1(x[j] * is);
            out->q[g * group + j] = (int8_t)q;
            out->deq[g * group + j] = quant_e2m1_value(q) * s;
        }
        out->z[g] = (uint8_t)c;
        out->scale[g] = s;
    }
}

/* GGUF's MXFP4: its value table is doubled, its scale halved: the same numbers. */
void quant_round_mxfp4(const float *x, const float *w, bool search, uint8_t *dst)
{
    int c = mxfp4_scale(x, w, search);
    float s = fp_e8m0_to_f32((uint8_t)c), is = 1.0f / s;
    dst[0] = (uint8_t)c;
    for (int j = 0; j < 16; j++)
        dst[1 + j] = (uint8_t)(quant_e2m1(x[j] * is) | quant_e2m1(x[j + 16] * is) << 4);
}

/* GGUF's NVFP4 of 64 weights, the tensor's scale taken out before. */
void quant_round_nvfp4(const float *x, const float *w, bool search, uint8_t *dst)
{
    for (int b = 0; b < 4; b++, x += 16) {
        int c = nvfp4_scale(x, w ? w + 16 * b : NULL, 1.0f, search);
        float s = fp_e4m3_to_f32((uint8_t)c), is = s != 0.0f ? 1.0f / s : 0.0f;
        dst[b] = (uint8_t)c;
        for (int j = 0; j < 8; j++)
            dst[4 + 8 * b + j] = (uint8_t)(quant_e2m1(x[j] * is) | quant_e2m1(x[j + 8] * is) << 4);
    }
}

/* ---- GGUF types by name ---- */

static quant_block_fn *block_fn(enum tensor_dtype t)
{
    switch (t) {
    case TENSOR_Q8_0:
        return quant_round_q8_0;
    case TENSOR_Q4_0:
        return quant_round_q4_0;
    case TENSOR_Q4_1:
        return quant_round_q4_1;
    case TENSOR_Q5_0:
        return quant_round_q5_0;
    case TENSOR_Q5_1:
        return quant_round_q5_1;
    case TENSOR_Q4_K:
        return quant_round_q4_k;
    case TENSOR_Q5_K:
        return quant_round_q5_k;
    case TENSOR_Q6_K:
        return quant_round_q6_k;
    case TENSOR_MXFP4:
        return quant_round_mxfp4;
    case TENSOR_NVFP4:
        return quant_round_nvfp4;
    default:
        return NULL;
    }
}

bool quant_can_round(enum tensor_dtype t)
{
    return block_fn(t) || t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16;
}

void quant_round_gguf(enum tensor_dtype t, const struct quant_values *r, bool search, uint8_t *dst)
{
    quant_block_fn *fn = block_fn(t);
    const struct tensor_dtype_info *d = tensor_dtype(t);
    ASSERT(quant_can_round(t));
    if (!fn) {
        tensor_quant(t, r->x, r->n, dst);
        return;
    }
    for (int64_t i = 0; i < r->n; i += d->block, dst += d->bytes)
        fn(r->x + i, r->weight ? r->weight + i : NULL, search, dst);
}
