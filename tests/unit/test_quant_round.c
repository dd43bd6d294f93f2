/* SPDX-License-Identifier: Apache-2.0 */
/* The quantisers: what they write is what the dequantisers read, search never loses to plain
 * rounding, and values that a type holds exactly come back. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "base/rng.h"
#include "quant/round.h"
#include "test.h"

enum { N = 512 };

static const enum tensor_dtype gguf_types[] = {TENSOR_Q8_0,  TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0,
                                               TENSOR_Q5_1,  TENSOR_Q4_K, TENSOR_Q5_K, TENSOR_Q6_K,
                                               TENSOR_MXFP4, TENSOR_NVFP4};
static const enum quant_type hf_types[] = {QUANT_INT8, QUANT_INT4, QUANT_AWQ, QUANT_NVFP4,
                                           QUANT_MXFP4};

/* About normal, a few outliers; importance between 0.01 and 1. */
static void values(uint64_t seed, float scale, float *x, float *w)
{
    for (int i = 0; i < N; i++) {
        float v = 0.0f;
        for (int k = 0; k < 6; k++)
            v += (float)(rng_next(&seed) >> 40) * 0x1p-24f - 0.5f;
        x[i] = scale * v * (i % 97 == 5 ? 8.0f : 1.0f);
        w[i] = 0.01f + 0.99f * (float)(rng_next(&seed) >> 40) * 0x1p-24f;
    }
}

static double error(const float *x, const float *y, const float *w)
{
    double e = 0;
    for (int i = 0; i < N; i++)
        e += (double)(w ? w[i] : 1.0f) * ((double)x[i] - (double)y[i]) *
             ((double)x[i] - (double)y[i]);
    return e;
}

static double gguf_error(enum tensor_dtype t, const float *x, const float *w, bool search)
{
    uint8_t raw[4 * N];
    float y[N];
    quant_round_gguf(t, &(struct quant_values){x, w, N}, search, raw);
    tensor_dequant(t, raw, N, y);
    return error(x, y, w);
}

/* The values out of codes and scales, as the formats define them, against those that the quantiser
 * says. */
static double hf_error(enum quant_type t, const float *x, const float *w, float mul, bool search)
{
    int8_t q[N];
    float scale[N], deq[N];
    uint8_t z[N];
    int group = t == QUANT_NVFP4 ? 16 : t == QUANT_MXFP4 ? 32 : t == QUANT_AWQ ? 128 : N;
    struct quant_codes c = {q, scale, z, deq};
    const struct quant_values row = {x, w, N};
    if (t == QUANT_NVFP4 || t == QUANT_MXFP4)
        quant_round_fp4(t, &row, mul, search, &c);
    else
        quant_round_int(t, &row, 128, search, &c);
    for (int i = 0; i < N; i++) {
        float s = scale[i / group], v = (float)q[i] * s;
        if (t == QUANT_AWQ) {
            assert_in_range(q[i], 0, 15);
            assert_in_range(z[i / group], 0, 15);
            assert_true(s == fp_f16_to_f32(fp_f32_to_f16(s)));
            v = (float)(q[i] - z[i / group]) * s;
        } else if (t == QUANT_NVFP4) {
            v = quant_e2m1_value(q[i]) * (fp_e4m3_to_f32(z[i / group]) * mul);
        } else if (t == QUANT_MXFP4) {
            v = quant_e2m1_value(q[i]) * fp_e8m0_to_f32(z[i / group]);
        } else {
            assert_true(s == fp_bf16_to_f32(fp_f32_to_bf16(s)));
            assert_true(q[i] >= (t == QUANT_INT4 ? -8 : -127) &&
                        q[i] <= (t == QUANT_INT4 ? 7 : 127));
        }
        assert_true(v == deq[i]);
    }
    return error(x, deq, w);
}

TEST(quant_search_is_never_worse_than_plain_rounding)
{
    float x[N], w[N];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        values(seed, seed % 3 == 0 ? 1e-3f : seed % 3 == 1 ? 0.02f : 30.0f, x, w);
        for (int k = 0; k < 2; k++) {
            const float *u = k ? w : NULL;
            for (int i = 0; i < BASE_COUNT_OF(gguf_types); i++) {
                if (gguf_types[i] == TENSOR_NVFP4 && seed % 3 == 0)
                    continue; /* small values need the tensor's scale */
                assert_true(gguf_error(gguf_types[i], x, u, true) <=
                            gguf_error(gguf_types[i], x, u, false) * (1 + 1e-5));
            }
            for (int i = 0; i < BASE_COUNT_OF(hf_types); i++)
                assert_true(hf_error(hf_types[i], x, u, 1e-3f, true) <=
                            hf_error(hf_types[i], x, u, 1e-3f, false) * (1 + 1e-5));
        }
    }
}

TEST(quant_search_gains_on_four_bit_types)
{
    float x[N], w[N];
    values(3, 0.02f, x, w);
    assert_true(gguf_error(TENSOR_Q4_0, x, w, true) < 0.97 * gguf_error(TENSOR_Q4_0, x, w, false));
    assert_true(gguf_error(TENSOR_Q4_K, x, w, true) < 0.9 * gguf_error(TENSOR_Q4_K, x, w, false));
    assert_true(gguf_error(TENSOR_Q6_K, x, w, true) < 0.97 * gguf_error(TENSOR_Q6_K, x, w, false));
    for (int i = 1; i < BASE_COUNT_OF(hf_types); i++) /* int8 has little to gain */
        assert_true(hf_error(hf_types[i], x, w, 1e-4f, true) <
                    0.97 * hf_error(hf_types[i], x, w, 1e-4f, false));
}

TEST(quant_holds_what_a_type_can_say)
{
    float x[N], y[N];
    uint8_t raw[4 * N];
    for (int i = 0; i < N; i++)
        x[i] = 0.25f * (float)(i % 16 - 8);
    static const enum tensor_dtype sixteen[] = {TENSOR_Q4_0, TENSOR_Q4_1, TENSOR_Q5_0};
    for (int i = 0; i < BASE_COUNT_OF(sixteen); i++) {
        quant_round_gguf(sixteen[i], &(struct quant_values){x, NULL, N}, true, raw);
        tensor_dequant(sixteen[i], raw, N, y);
        assert_true(error(x, y, NULL) < 1e-9);
    }
    for (int i = 0; i < N; i++)
        x[i] = 3.0f * quant_e2m1_value(i % 16);
    quant_round_gguf(TENSOR_NVFP4, &(struct quant_values){x, NULL, N}, true, raw);
    tensor_dequant(TENSOR_NVFP4, raw, N, y);
    assert_true(error(x, y, NULL) == 0);
    for (int i = 0; i < N; i++)
        x[i] = 0.125f * quant_e2m1_value(i % 16);
    quant_round_gguf(TENSOR_MXFP4, &(struct quant_values){x, NULL, N}, true, raw);
    tensor_dequant(TENSOR_MXFP4, raw, N, y);
    assert_true(error(x, y, NULL) == 0);
}

TEST(quant_takes_zeros_and_extremes)
{
    float x[N] = {0}, y[N];
    uint8_t raw[4 * N];
    for (int k = 0; k < 3; k++) {
        if (k == 1) x[17] = 1e-30f;
        if (k == 2) x[17] = -60000.0f;
        for (int i = 0; i < BASE_COUNT_OF(gguf_types); i++) {
            quant_round_gguf(gguf_types[i], &(struct quant_values){x, NULL, N}, true, raw);
            tensor_dequant(gguf_types[i], raw, N, y);
            for (int j = 0; j < N; j++)
                assert_true(isfinite(y[j]) && (x[j] != 0 || fabsf(y[j]) <= 600.0f));
            if (k == 0)
                for (int j = 0; j < N; j++)
                    assert_true(y[j] == 0);
        }
        for (int i = 0; i < BASE_COUNT_OF(hf_types); i++)
            assert_true(isfinite(hf_error(hf_types[i], x, NULL, 60000.0f / 2688.0f, true)));
    }
}

TEST(quant_e2m1_ties_go_where_the_format_says)
{
    static const struct {
        float v;
        int code;
    } row[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},   {2.5f, 4}, {3.5f, 6},
               {5.0f, 6},  {5.01f, 7}, {99.0f, 7}, {-0.75f, 10}, {-0.1f, 0}};
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        assert_int_equal(quant_e2m1(row[i].v), row[i].code);
}

TEST(quant_types_have_names_both_ways)
{
    enum quant_type t;
    for (int i = 0; i < QUANT_N_TYPE; i++) {
        assert_true(quant_type_from_text(quant_type_text((enum quant_type)i), &t));
        assert_int_equal(t, i);
    }
    assert_false(quant_type_from_text("q4", &t));
}
