/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of folders: one matrix of codes, zero points and scales, written in every order that
 * files have (as their formats describe it, word by word), reads as the same numbers. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "base/rng.h"
#include "tensor/tensor.h"
#include "test.h"

enum { ROWS = 16, COLS = 48, SIZE = 16, GROUPS = COLS / SIZE };

struct matrix {
    int bits;
    uint8_t code[ROWS][COLS];
    int zero[ROWS][GROUPS];
    float scale[ROWS][GROUPS];
    /* as stored */
    uint8_t data[ROWS * COLS], zeros[4 * ROWS * GROUPS];
    struct weight w;
};

static void fill(struct matrix *m, int bits, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->bits = bits;
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++)
            m->code[r][c] = (uint8_t)(rng_next(&seed) >> 20 & ((1u << bits) - 1));
        for (int g = 0; g < GROUPS; g++) {
            m->zero[r][g] = (int)(rng_next(&seed) >> 20 & ((1u << bits) - 1));
            m->scale[r][g] = ldexpf(1.0f + (float)(rng_next(&seed) >> 60) / 16.0f,
                                    (int)(rng_next(&seed) >> 61) - 6);
        }
    }
    m->w = (struct weight){.name = "w",
                           .scheme = TENSOR_SCHEME_GROUP,
                           .rows = ROWS,
                           .cols = COLS,
                           .data = m->data,
                           .tensor_scale = 1.0f,
                           .group = {.size = SIZE,
                                     .n_group = GROUPS,
                                     .n_row = ROWS,
                                     .zero = m->zeros,
                                     .scale = {(const uint8_t *)m->scale, TENSOR_F32, GROUPS, 1}}};
}

/* Bits [i * bits, (i + 1) * bits) of little-endian word k of p. */
static void put(uint8_t *p, int64_t k, int i, int bits, unsigned v)
{
    uint32_t word;
    memcpy(&word, p + 4 * k, 4);
    word |= (uint32_t)v << (i * bits);
    memcpy(p + 4 * k, &word, 4);
}

/* AWQ: nibble i of a word is row order[i] of its eight. The nibble of row r. */
static int awq_slot(int r)
{
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    int i = 0;
    while (order[i] != r % 8)
        i++;
    return i;
}

static void store_codes(struct matrix *m, enum weight_codes how)
{
    struct weight *w = &m->w;
    w->group.codes = how;
    w->row_bytes = (uint64_t)COLS * (unsigned)(how == WEIGHT_I4 ? 8 : m->bits) / 8;
    memset(m->data, 0, sizeof m->data);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            unsigned v = m->code[r][c];
            switch (how) {
            case WEIGHT_I8: /* two's complement of code - 128 */
                m->data[r * COLS + c] = (uint8_t)(int8_t)((int)v - 128);
                break;
            case WEIGHT_U8:
            case WEIGHT_E4M3:
                m->data[r * COLS + c] = (uint8_t)v;
                break;
            case WEIGHT_NIB:
            case WEIGHT_E2M1:
                put(m->data, (r * COLS + c) / 8, c % 8, 4, v);
                break;
            case WEIGHT_ROWS2:
                m->data[r / 2 * COLS + c] |= (uint8_t)(((v + 8) & 15) << 4 * (r % 2));
                break;
            case WEIGHT_I4:
                m->data[r * COLS + c] = (uint8_t)(int8_t)((int)v - 8);
                break;
            case WEIGHT_AWQ:
                put(m->data, c * (ROWS / 8) + r / 8, awq_slot(r), 4, v);
                break;
            case WEIGHT_GPTQ4:
                put(m->data, c / 8 * ROWS + r, c % 8, 4, v);
                break;
            case WEIGHT_GPTQ8:
                put(m->data, c / 4 * ROWS + r, c % 4, 8, v);
                break;
            }
        }
}

static void store_zeros(struct matrix *m, enum weight_zeros how, int add)
{
    unsigned mask = (1u << m->bits) - 1;
    m->w.group.zeros = how;
    m->w.group.zero_add = add;
    memset(m->zeros, 0, sizeof m->zeros);
    for (int r = 0; r < ROWS; r++)
        for (int g = 0; g < GROUPS; g++) {
            unsigned v = (unsigned)m->zero[r][g] & mask;
            switch (how) {
            case WEIGHT_ZERO_MID:
                m->zero[r][g] = 1 << (m->bits - 1);
                break;
            case WEIGHT_ZERO_ONE:
                if (r || g) v = (unsigned)m->zero[0][0] & mask;
                m->zero[r][g] = (int)v;
                m->zeros[0] = (uint8_t)(int8_t)((int)v - (1 << (m->bits - 1)));
                break;
            case WEIGHT_ZERO_I8:
                m->zeros[r * GROUPS + g] = (uint8_t)(int8_t)((int)v - (1 << (m->bits - 1)));
                break;
            case WEIGHT_ZERO_NIB_ROWS:
                put(m->zeros, r / 8 * GROUPS + g, r % 8, 4, v);
                break;
            case WEIGHT_ZERO_U8_ROWS:
                put(m->zeros, r / 4 * GROUPS + g, r % 4, 8, v);
                break;
            case WEIGHT_ZERO_AWQ:
                put(m->zeros, g * (ROWS / 8) + r / 8, awq_slot(r), 4, v);
                break;
            case WEIGHT_ZERO_GPTQ4:
                put(m->zeros, g * (ROWS / 8) + r / 8, r % 8, 4, v);
                break;
            case WEIGHT_ZERO_GPTQ8:
                put(m->zeros, g * (ROWS / 4) + r / 4, r % 4, 8, v);
                break;
            }
        }
    /* GPTQ takes the 1 off whole words: a zero point of 0 borrows from the next */
    for (size_t i = 0; add && i < sizeof m->zeros; i += 4) {
        uint32_t word;
        memcpy(&word, m->zeros + i, 4);
        word -= (uint32_t)add * (m->bits == 4 ? 0x11111111u : 0x01010101u);
        memcpy(m->zeros + i, &word, 4);
    }
}

static void compare(const struct matrix *m, const char *what, int i)
{
    static const int from[] = {0, 1, 7, 15, 17, 32}, count[] = {COLS, 1, 20, 16, 31, 16};
    for (int k = 0; k < BASE_COUNT_OF(from); k++)
        for (int r = 0; r < ROWS; r++) {
            uint8_t code[COLS];
            float v[COLS];
            weight_codes(&m->w, r, from[k], count[k], code);
            weight_dequant(&m->w, r, from[k], count[k], v);
            for (int j = 0; j < count[k]; j++) {
                int c = from[k] + j, g = c / SIZE;
                float want = (float)(m->code[r][c] - m->zero[r][g]) * m->scale[r][g];
                if (code[j] != m->code[r][c] || v[j] != want)
                    fail_msg("%s %d: row %d column %d: code %d, %g (want %d, %g)", what, i, r, c,
                             code[j], (double)v[j], m->code[r][c], (double)want);
            }
        }
    for (int r = 0; r < ROWS; r++)
        for (int g = 0; g < GROUPS; g++)
            assert_int_equal(weight_zero(&m->w, r, g), m->zero[r][g]);
}

TEST(tensor_group_reads_codes_in_every_order)
{
    static const struct {
        enum weight_codes how;
        int bits;
        bool by_row;
    } t[] = {{WEIGHT_I8, 8, true},     {WEIGHT_U8, 8, true},    {WEIGHT_NIB, 4, true},
             {WEIGHT_ROWS2, 4, false}, {WEIGHT_I4, 4, true},    {WEIGHT_AWQ, 4, false},
             {WEIGHT_GPTQ4, 4, false}, {WEIGHT_GPTQ8, 8, false}};
    struct matrix m;
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        fill(&m, t[i].bits, (uint64_t)i + 1);
        store_codes(&m, t[i].how);
        store_zeros(&m, WEIGHT_ZERO_MID, 0);
        assert_int_equal(weight_bits(&m.w), t[i].bits);
        assert_int_equal(weight_by_row(&m.w), t[i].by_row);
        compare(&m, "codes", i);
    }
}

TEST(tensor_group_reads_zero_points_in_every_order)
{
    static const struct {
        enum weight_zeros how;
        int bits, add;
    } t[] = {{WEIGHT_ZERO_MID, 4, 0},   {WEIGHT_ZERO_MID, 8, 0},      {WEIGHT_ZERO_I8, 8, 0},
             {WEIGHT_ZERO_AWQ, 4, 0},   {WEIGHT_ZERO_NIB_ROWS, 4, 0}, {WEIGHT_ZERO_U8_ROWS, 8, 0},
             {WEIGHT_ZERO_GPTQ4, 4, 0}, {WEIGHT_ZERO_GPTQ4, 4, 1},    {WEIGHT_ZERO_GPTQ8, 8, 0},
             {WEIGHT_ZERO_GPTQ8, 8, 1}, {WEIGHT_ZERO_I8, 4, 0},       {WEIGHT_ZERO_ONE, 4, 0},
             {WEIGHT_ZERO_ONE, 8, 0}};
    struct matrix m;
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        fill(&m, t[i].bits, (uint64_t)i + 100);
        store_codes(&m, t[i].bits == 4 ? WEIGHT_NIB : WEIGHT_U8);
        store_zeros(&m, t[i].how, t[i].add);
        compare(&m, "zeros", i);
    }
}

/* e2m1 codes are numbers of their own: sign, two bits of exponent, one of fraction. */
TEST(tensor_group_reads_e2m1)
{
    static const float value[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    struct matrix m;
    float v[COLS];
    fill(&m, 4, 5);
    store_codes(&m, WEIGHT_E2M1);
    m.w.tensor_scale = 0.25f;
    for (int r = 0; r < ROWS; r++) {
        weight_dequant(&m.w, r, 0, COLS, v);
        for (int c = 0; c < COLS; c++) {
            int code = m.code[r][c];
            float want = value[code & 7] * m.scale[r][c / SIZE] * 0.25f;
            assert_true(v[c] == (code & 8 ? -want : want) && !signbit(v[c]) == !(code & 8));
        }
    }
}

/* e4m3 codes too: sign, four bits of exponent, three of fraction. */
TEST(tensor_group_reads_e4m3)
{
    struct matrix m;
    float v[COLS];
    uint8_t e8m0[ROWS * GROUPS];
    fill(&m, 8, 6);
    store_codes(&m, WEIGHT_E4M3);
    assert_true(weight_bits(&m.w) == 8 && weight_by_row(&m.w) && !weight_is_mxfp8(&m.w));
    for (int k = 0; k < ROWS * GROUPS; k++)
        e8m0[k] = (uint8_t)(120 + k % 9);
    m.w.group.scale = (struct weight_scale){e8m0, TENSOR_U8, GROUPS, 1};
    assert_true(weight_is_mxfp8(&m.w));
    for (int r = 0; r < ROWS; r++) {
        weight_dequant(&m.w, r, 0, COLS, v);
        for (int c = 0; c < COLS; c++) {
            int code = m.code[r][c], e = code >> 3 & 15, f = code & 7;
            int shift = (r * GROUPS + c / SIZE) % 9 - 7;
            float x = e ? ldexpf(8 + (float)f, e - 10 + shift) : ldexpf((float)f, -9 + shift);
            if ((code & 127) == 127)
                assert_true(isnan(v[c]));
            else
                assert_true(v[c] == (code & 128 ? -x : x));
            if (!isnan(v[c])) assert_true(fp_bf16_to_f32(fp_f32_to_bf16(v[c])) == v[c]);
        }
    }
}

TEST(tensor_group_reads_scales_of_every_type)
{
    static const enum tensor_dtype type[] = {TENSOR_F32,     TENSOR_F16,     TENSOR_BF16,
                                             TENSOR_F8_E4M3, TENSOR_F8_E8M0, TENSOR_I64};
    enum { N = ROWS * GROUPS };
    struct matrix m;
    uint8_t raw[8 * N + 1], *p = raw + 1; /* alignment is not needed */
    fill(&m, 4, 9);
    store_codes(&m, WEIGHT_NIB);
    store_zeros(&m, WEIGHT_ZERO_MID, 0);
    for (int i = 0; i < BASE_COUNT_OF(type); i++) {
        for (int k = 0; k < N; k++) {
            int r = k / GROUPS, g = k % GROUPS, e = k % 5 - 2;
            float f = ldexpf(1.0f, e);
            uint32_t bits = fp_to_bits(f);
            uint64_t wide = bits;
            uint16_t half = (uint16_t)((15 + e) << 10), brain = (uint16_t)(bits >> 16);
            m.scale[r][g] = f;
            if (type[i] == TENSOR_F32) memcpy(p + 4 * k, &bits, 4);
            if (type[i] == TENSOR_F16) memcpy(p + 2 * k, &half, 2);
            if (type[i] == TENSOR_BF16) memcpy(p + 2 * k, &brain, 2);
            if (type[i] == TENSOR_F8_E4M3) p[k] = (uint8_t)((7 + e) << 3);
            if (type[i] == TENSOR_F8_E8M0) p[k] = (uint8_t)(127 + e);
            if (type[i] == TENSOR_I64) memcpy(p + 8 * k, &wide, 8);
        }
        m.w.group.scale = (struct weight_scale){p, type[i], GROUPS, 1};
        compare(&m, "scales", i);
        /* the same scales again as a second factor: squares */
        m.w.group.scale2 = m.w.group.scale;
        for (int k = 0; k < N; k++) {
            float s = m.scale[k / GROUPS][k % GROUPS];
            assert_true(weight_scale_at(&m.w, k / GROUPS, k % GROUPS) == s * s);
        }
        m.w.group.scale2 = (struct weight_scale){0};
    }
    /* one scale a row; scales that lie group by group */
    for (int k = 0; k < N; k++) {
        float f = (float)(k + 1);
        memcpy(p + 4 * k, &f, 4);
    }
    m.w.group.scale = (struct weight_scale){p, TENSOR_F32, 1, 0};
    assert_true(weight_scale_at(&m.w, 3, 2) == 4);
    m.w.group.scale = (struct weight_scale){p, TENSOR_F32, 1, ROWS};
    assert_true(weight_scale_at(&m.w, 3, 2) == 36);
}

TEST(tensor_group_columns_choose_their_group)
{
    struct matrix m;
    int32_t at[COLS];
    float v[COLS];
    fill(&m, 4, 11);
    store_codes(&m, WEIGHT_GPTQ4);
    store_zeros(&m, WEIGHT_ZERO_GPTQ4, 1);
    for (int c = 0; c < COLS; c++)
        at[c] = c * 7 % GROUPS;
    m.w.group.col_group = (const uint8_t *)at;
    for (int r = 0; r < ROWS; r++) {
        weight_dequant(&m.w, r, 0, COLS, v);
        for (int c = 0; c < COLS; c++)
            assert_true(v[c] == (float)(m.code[r][c] - m.zero[r][at[c]]) * m.scale[r][at[c]]);
    }
}

TEST(tensor_group_views_of_rows_are_the_same_rows)
{
    static const struct {
        enum weight_codes codes;
        enum weight_zeros zeros;
        int bits;
    } t[] = {{WEIGHT_NIB, WEIGHT_ZERO_NIB_ROWS, 4}, {WEIGHT_AWQ, WEIGHT_ZERO_AWQ, 4},
             {WEIGHT_GPTQ8, WEIGHT_ZERO_GPTQ8, 8},  {WEIGHT_I8, WEIGHT_ZERO_I8, 8},
             {WEIGHT_ROWS2, WEIGHT_ZERO_MID, 4},    {WEIGHT_U8, WEIGHT_ZERO_U8_ROWS, 8}};
    struct matrix m;
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        fill(&m, t[i].bits, (uint64_t)i + 200);
        store_codes(&m, t[i].codes);
        store_zeros(&m, t[i].zeros, 0);
        for (int row0 = 0; row0 < ROWS; row0 += 3) {
            struct weight part = weight_rows(&m.w, row0, BASE_MIN(5, ROWS - row0));
            for (int64_t r = 0; r < part.rows; r++) {
                float a[COLS], b[COLS];
                weight_dequant(&m.w, row0 + r, 0, COLS, a);
                weight_dequant(&part, r, 0, COLS, b);
                assert_memory_equal(a, b, sizeof a);
            }
        }
    }
}

/* Every scale times 2^shift must be an f16 exactly: 11 bits, exponents of f16. */
TEST(tensor_group_scale_shift_keeps_every_bit)
{
    static const struct {
        float a, b;
        bool can;
    } t[] = {{1, 2, true},
             {0, 0, true},
             {65504, 1, true},
             {1.0f / 16777216, 0.5f, true},
             {0x1p-40f, 0x1p-44f, true}, /* below f16, in reach of a shift */
             {0x1p30f, 0x1p28f, true},
             {0x1p20f, 0x1p-20f, false},  /* too far apart: 2^-24 .. 2^15 */
             {1.0f + 0x1p-11f, 1, false}, /* 12 bits */
             {1.0f + 0x1p-10f, 1, true}};
    struct matrix m;
    fill(&m, 4, 3);
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        int shift = 0;
        for (int k = 0; k < ROWS * GROUPS; k++)
            m.scale[k / GROUPS][k % GROUPS] = k % 2 ? t[i].a : t[i].b;
        if (weight_scale_shift(&m.w, &shift) != t[i].can) fail_msg("row %d", i);
        struct weight part = weight_slice(&m.w, 5, 1); /* one row, judged by all */
        part = weight_slice(&part, 0, 1);
        int same = 0;
        assert_int_equal(weight_scale_shift(&part, &same), t[i].can);
        assert_int_equal(same, shift);
        if (!t[i].can) continue;
        for (int k = 0; k < 2; k++) {
            float f = ldexpf(m.scale[0][k], shift);
            assert_true(fp_f16_to_f32(fp_f32_to_f16(f)) == f);
        }
    }
}

static void refused(const struct weight *w, const char *text)
{
    sl_err err = {0};
    sl_status st = weight_check(w, &err);
    if (st != SL_FORMAT || !strstr(err.text, text)) fail_msg("%d \"%s\"", st, err.text);
}

/* One scale for all rows is one number of the file, maybe its last: ASan watches. */
TEST(tensor_group_check_reads_one_scale_once)
{
    struct matrix m;
    uint8_t one[4];
    float f = 0.5f;
    fill(&m, 8, 21);
    store_codes(&m, WEIGHT_I8);
    memcpy(one, &f, 4);
    m.w.group.n_group = 1;
    m.w.group.size = COLS;
    m.w.group.scale = (struct weight_scale){one, TENSOR_F32, 0, 1};
    assert_int_equal(weight_check(&m.w, NULL), SL_OK);
    f = INFINITY;
    memcpy(one, &f, 4);
    assert_int_equal(weight_check(&m.w, NULL), SL_FORMAT);
}

TEST(tensor_group_check_names_what_no_weight_may_have)
{
    static const struct {
        enum tensor_dtype type;
        int bytes;
        uint32_t good, bad;
    } t[] = {{TENSOR_F32, 4, 0x3f800000, 0x7fc00000}, {TENSOR_F32, 4, 0x3f800000, 0xff800000},
             {TENSOR_F16, 2, 0x3c00, 0x7c01},         {TENSOR_BF16, 2, 0x3f80, 0x7f80},
             {TENSOR_F8_E4M3, 1, 0x38, 0x7f},         {TENSOR_F8_E4M3, 1, 0x38, 0xff},
             {TENSOR_F8_E8M0, 1, 0x7f, 0xff},         {TENSOR_I64, 8, 0x3f800000, 0x7f800000}};
    struct matrix m;
    sl_err err;
    uint8_t raw[8 * ROWS * GROUPS];
    fill(&m, 4, 4);
    store_codes(&m, WEIGHT_NIB);
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        uint64_t good = t[i].good, bad = t[i].bad;
        for (int k = 0; k < ROWS * GROUPS; k++)
            memcpy(raw + t[i].bytes * k, &good, (size_t)t[i].bytes);
        m.w.group.scale = (struct weight_scale){raw, t[i].type, GROUPS, 1};
        ASSERT_OK(weight_check(&m.w, &err));
        memcpy(raw + t[i].bytes * (5 * GROUPS + 1), &bad, (size_t)t[i].bytes);
        refused(&m.w, "tensor w: the scale of row 5, group 1 is not finite");
    }
    memset(raw, 0x38, sizeof raw);
    raw[2 * GROUPS] = 0xb8;
    m.w.group.scale = (struct weight_scale){raw, TENSOR_F8_E4M3, GROUPS, 1};
    refused(&m.w, "tensor w: the scale of row 2, group 0 is negative");
    raw[2 * GROUPS] = 0x38;
    m.w.tensor_scale = NAN;
    refused(&m.w, "tensor w: its scale is not finite");
    m.w.tensor_scale = 1;
    store_codes(&m, WEIGHT_I4);
    ASSERT_OK(weight_check(&m.w, &err));
    m.data[7 * COLS + 3] = 8;
    refused(&m.w, "tensor w: row 7 has a number outside -8 .. 7");
    /* finite scales whose product is not */
    const float huge = 3e38f;
    for (int k = 0; k < ROWS * GROUPS; k++)
        m.scale[k / GROUPS][k % GROUPS] = huge;
    m.w.group.scale = (struct weight_scale){(const uint8_t *)m.scale, TENSOR_F32, GROUPS, 1};
    m.w.group.scale2 = m.w.group.scale;
    refused(&m.w, "tensor w: the scale of row 0, group 0 is not finite");
}
