/* SPDX-License-Identifier: Apache-2.0 */
/* Dequantisers against hashes of what gguf-py gives for the same pseudo-random blocks
 * (tests/e2e/io/dequant_oracle.py --golden). */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/tensor.h"
#include "test.h"

static const struct {
    enum tensor_dtype type;
    uint64_t hash;
} golden[] = {
    {TENSOR_F32, 0x519d2e3fd1bb18ecull},    {TENSOR_F16, 0x5326d73a5670cf68ull},
    {TENSOR_BF16, 0xcbf9857022417011ull},   {TENSOR_Q4_0, 0xeb22c6818454276eull},
    {TENSOR_Q4_1, 0xb841d0b5ed22c565ull},   {TENSOR_Q5_0, 0x181a16f0c60537b2ull},
    {TENSOR_Q5_1, 0xf4d706119371c79aull},   {TENSOR_Q8_0, 0x88b03484a5183a3aull},
    {TENSOR_Q2_K, 0x8a1fb9075629c32bull},   {TENSOR_Q3_K, 0xbce377719cd14792ull},
    {TENSOR_Q4_K, 0x2f8aac061865b347ull},   {TENSOR_Q5_K, 0x7a6aeff7eec4be01ull},
    {TENSOR_Q6_K, 0xaf54e5b98dac58f4ull},   {TENSOR_IQ4_NL, 0x19d510c83e2b6dbdull},
    {TENSOR_IQ4_XS, 0x992aff97f693632aull}, {TENSOR_MXFP4, 0xec6742665c98fd97ull},
    {TENSOR_NVFP4, 0x2f51dfa8f5cce9d2ull},
};

TEST(tensor_dequant_equals_gguf_py_bit_for_bit)
{
    enum { N = 4096 };
    sl_err err;
    void *raw = NULL, *out = NULL;
    ASSERT_OK(mem_alloc(MEM_MISC, N * 256 + 16, &raw, &err));
    ASSERT_OK(mem_alloc(MEM_MISC, (size_t)N * 256 * 4, &out, &err));
    for (int i = 0; i < BASE_COUNT_OF(golden); i++) {
        const struct tensor_dtype_info *d = tensor_dtype(golden[i].type);
        uint8_t *p = (uint8_t *)raw + 1; /* alignment is not needed */
        uint64_t seed = 7;
        for (int k = 0; k < (N * d->bytes + 7) / 8; k++) {
            uint64_t v = rng_next(&seed);
            memcpy(p + 8 * k, &v, 8);
        }
        float *f = out;
        tensor_dequant(golden[i].type, p, (int64_t)N * d->block, f);
        for (int k = 0; k < N * d->block; k++)
            if (isnan(f[k])) f[k] = fp_from_bits(0x7fc00000);
        if (hash_bytes(f, (size_t)N * (size_t)d->block * 4, 0) != golden[i].hash)
            fail_msg("%s differs", d->text);
    }
    mem_free(raw);
    mem_free(out);
}

TEST(tensor_dequant_reads_fp8_exactly)
{
    uint8_t code[256];
    float f[256];
    for (int i = 0; i < 256; i++)
        code[i] = (uint8_t)i;
    tensor_dequant(TENSOR_F8_E4M3, code, 256, f);
    assert_true(f[0x7e] == 448.0f && f[0xfe] == -448.0f && isnan(f[0x7f]) && isnan(f[0xff]));
    assert_true(f[1] == 0x1p-9f && f[0x38] == 1.0f && f[0x80] == 0.0f && signbit(f[0x80]));
    tensor_dequant(TENSOR_F8_E5M2, code, 256, f);
    assert_true(f[0x7b] == 57344.0f && isinf(f[0x7c]) && isnan(f[0x7d]) && f[1] == 0x1p-16f);
    double d[2] = {1.5, -1e300};
    tensor_dequant(TENSOR_F64, d, 2, f);
    assert_true(f[0] == 1.5f && isinf(f[1]));
}

TEST(tensor_dtype_table_agrees_with_itself)
{
    enum tensor_dtype t;
    for (int i = 0; i < TENSOR_N_DTYPE; i++) {
        const struct tensor_dtype_info *d = tensor_dtype((enum tensor_dtype)i);
        assert_true(tensor_dtype_from_text(d->text, strlen(d->text), &t) && (int)t == i);
        if (d->gguf_id < 0) continue;
        assert_true(tensor_dtype_from_gguf((uint32_t)d->gguf_id, &t) && (int)t == i);
        assert_string_equal(tensor_gguf_id_text((uint32_t)d->gguf_id), d->text);
    }
    assert_false(tensor_dtype_is_weight(TENSOR_I8) || tensor_dtype_is_weight(TENSOR_F8_E8M0));
    assert_false(tensor_dtype_from_gguf(4, &t));
    assert_string_equal(tensor_gguf_id_text(4), "Q4_2 (removed from GGUF)");
    assert_string_equal(tensor_gguf_id_text(139), "IQ4_K (ik_llama.cpp only)");
    assert_string_equal(tensor_gguf_id_text(0xffffffffu), "unknown");
    assert_false(tensor_dtype_from_text("F3", 2, &t));
}

TEST(tensor_bytes_refuses_overflow)
{
    uint64_t n = 0;
    assert_true(tensor_bytes(TENSOR_Q4_0, 64, &n));
    assert_int_equal(n, 36);
    assert_false(tensor_bytes(TENSOR_F32, 1ull << 62, &n));
    assert_false(tensor_bytes(TENSOR_F64, (1ull << 61) + 5, &n));
    assert_true(
        tensor_bytes(TENSOR_Q2_K, 1ull << 63, &n)); /* packed types are smaller than their count */
}

TEST(tensor_quant_keeps_within_half_a_step)
{
    float x[64], y[64];
    uint8_t q[64 * 4];
    uint64_t seed = 3;
    for (int i = 0; i < 64; i++)
        x[i] = (float)(int64_t)(rng_next(&seed) >> 40) * 0x1p-23f - 1.0f;
    static const struct {
        enum tensor_dtype type;
        float tol;
    } t[] = {{TENSOR_F32, 0},           {TENSOR_F16, 0x1p-11f},   {TENSOR_BF16, 0x1p-8f},
             {TENSOR_F8_E4M3, 0x1p-4f}, {TENSOR_Q8_0, 1 / 250.f}, {TENSOR_Q4_0, 1 / 7.9f},
             {TENSOR_Q4_1, 1 / 14.9f}};
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        assert_true(tensor_can_quant(t[i].type));
        tensor_quant(t[i].type, x, 64, q);
        tensor_dequant(t[i].type, q, 64, y);
        for (int k = 0; k < 64; k++)
            assert_true(fabsf(x[k] - y[k]) <= t[i].tol);
    }
    assert_false(tensor_can_quant(TENSOR_Q4_K) || tensor_can_quant(TENSOR_I8));
    for (int i = 0; i < 64; i++)
        x[i] = NAN; /* defined, whatever it is */
    for (int i = 0; i < BASE_COUNT_OF(t); i++)
        tensor_quant(t[i].type, x, 64, q);
}

TEST(weight_rows_starts_at_the_row)
{
    float data[8][2], row[2];
    for (int i = 0; i < 8; i++) data[i][0] = data[i][1] = (float)i;
    struct weight w = {.type = TENSOR_F32,
                       .rows = 8,
                       .cols = 2,
                       .data = (const uint8_t *)data,
                       .row_bytes = 8,
                       .tensor_scale = 1};
    struct weight h = weight_rows(&w, 4, 4);
    assert_int_equal(h.rows, 4);
    weight_dequant(&h, 1, 0, 2, row);
    assert_true(row[0] == 5.0f && row[1] == 5.0f);
}

TEST(weight_of_fp8_takes_the_scale_of_its_block)
{
    uint8_t code[5][7];
    float row[7];
    const float scale[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}; /* blocks of 2 x 3 over 5 x 7 */
    memset(code, 0x38, sizeof code);                             /* 1.0 */
    struct weight w = {.scheme = TENSOR_SCHEME_F8_BLOCK,
                       .type = TENSOR_F8_E4M3,
                       .rows = 5,
                       .cols = 7,
                       .data = code[0],
                       .row_bytes = 7,
                       .scale = scale[0],
                       .block_rows = 2,
                       .block_cols = 3,
                       .tensor_scale = 0.5f};
    weight_dequant(&w, 4, 0, 7, row);
    static const float want[7] = {3.5f, 3.5f, 3.5f, 4, 4, 4, 4.5f};
    for (int i = 0; i < 7; i++)
        assert_true(row[i] == want[i]);
    weight_dequant(&w, 3, 2, 3, row);
    assert_true(row[0] == 2 && row[1] == 2.5f && row[2] == 2.5f);
    struct weight v = weight_rows(&w, 2, 3);
    weight_dequant(&v, 0, 6, 1, row);
    assert_true(row[0] == 3.0f);
    for (int row0 = 0; row0 < 5; row0++) /* wherever a part begins in a block */
        for (int sub = 0; row0 + sub < 5; sub++) {
            struct weight part = weight_slice(&w, row0, 5 - row0), of = weight_rows(&part, sub, 1);
            float all[7];
            weight_dequant(&w, row0 + sub, 0, 7, all);
            weight_dequant(&of, 0, 0, 7, row);
            assert_memory_equal(row, all, sizeof all);
        }
}
