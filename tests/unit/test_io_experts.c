/* SPDX-License-Identifier: Apache-2.0 */
/* gpt_oss folders: all experts of a layer in one tensor, gate and up in turn, become matrices and
 * biases of their own: MXFP4 blocks as published, and BF16, input by input. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fp.h"
#include "base/mem.h"
#include "io/io.h"
#include "os/os.h"
#include "test.h"

enum { E = 2, F = 3, D = 64 };
#define LAYER "model.layers.0.mlp.experts."

struct folder {
    char dir[64], head[4096];
    uint8_t data[32768];
    size_t n_head, n_data;
};

static void add(struct folder *f, const char *name, const char *type, const char *shape,
                const void *p, size_t n)
{
    f->n_head +=
        (size_t)snprintf(f->head + f->n_head, sizeof f->head - f->n_head,
                         "%s\"" LAYER "%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                         "\"data_offsets\":[%zu,%zu]}",
                         f->n_head ? "," : "{", name, type, shape, f->n_data, f->n_data + n);
    memcpy(f->data + f->n_data, p, n);
    f->n_data += n;
}

static void put(const struct folder *f, const char *name, const void *p, size_t n)
{
    sl_err err;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    ASSERT_OK(os_write_file(path, p, n, &err));
}

/* Write the folder and open it. */
static sl_status open_folder(struct folder *f, const char *config, io_model **m, sl_err *err)
{
    static uint8_t file[40000];
    uint64_t n = f->n_head + 1;
    strcpy(f->dir, "/tmp/sluice-test-experts-XXXXXX");
    if (!mkdtemp(f->dir)) abort();
    f->head[f->n_head] = '}';
    memcpy(file, &n, 8);
    memcpy(file + 8, f->head, n);
    memcpy(file + 8 + n, f->data, f->n_data);
    put(f, "model.safetensors", file, 8 + n + f->n_data);
    put(f, "config.json", config, strlen(config));
    return io_open(f->dir, false, m, err);
}

static void remove_folder(struct folder *f)
{
    static const char *const name[] = {"model.safetensors", "config.json"};
    char path[128];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", f->dir, name[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(f->dir), 0);
}

#define MXFP4 "{\"model_type\":\"gpt_oss\",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"
#define PLAIN "{\"model_type\":\"gpt_oss\"}"

/* Codes and scales of row `row` of expert e; down has D rows of one block. */
static uint8_t code_at(int e, int row, int col)
{
    return (uint8_t)((e * 5 + row * 3 + col * 7 + col / 16) & 15);
}
static uint8_t scale_at(int e, int row, int group)
{
    return (uint8_t)(120 + e + row % 5 + 2 * group);
}

static double value_at(int e, int row, int col)
{
    static const double v[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    uint8_t c = code_at(e, row, col);
    return ldexp(c & 8 ? -v[c & 7] : v[c & 7], scale_at(e, row, col / 32) - 127);
}

static void add_mxfp4(struct folder *f, const char *name, int rows, int cols)
{
    static uint8_t blocks[E * D * D / 2], scales[E * D];
    char text[64], what[48];
    int nb = 0, ns = 0;
    for (int e = 0; e < E; e++)
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < cols; c += 2)
                blocks[nb++] = (uint8_t)(code_at(e, r, c) | code_at(e, r, c + 1) << 4);
            for (int g = 0; g < cols / 32; g++)
                scales[ns++] = scale_at(e, r, g);
        }
    snprintf(what, sizeof what, "%s_blocks", name);
    snprintf(text, sizeof text, "%d,%d,%d,16", E, rows, cols / 32);
    add(f, what, "U8", text, blocks, (size_t)nb);
    snprintf(what, sizeof what, "%s_scales", name);
    snprintf(text, sizeof text, "%d,%d,%d", E, rows, cols / 32);
    add(f, what, "U8", text, scales, (size_t)ns);
}

static struct weight get(const io_model *m, int e, const char *part)
{
    sl_err err;
    char name[96];
    struct weight w;
    snprintf(name, sizeof name, LAYER "%d.%s", e, part);
    ASSERT_OK(io_weight(m, name, &w, &err));
    ASSERT_OK(weight_check(&w, &err));
    return w;
}

TEST(io_experts_of_mxfp4_blocks_are_read_row_by_row)
{
    static struct folder f;
    sl_err err = {0};
    io_model *m = NULL;
    int64_t n = 0;
    float x[D];
    f = (struct folder){.n_head = 0};
    add_mxfp4(&f, "gate_up_proj", 2 * F, D);
    add_mxfp4(&f, "down_proj", D, 32);
    ASSERT_OK(open_folder(&f, MXFP4, &m, &err));
    for (int e = 0; e < E; e++)
        for (int p = 0; p < 2; p++) {
            struct weight w = get(m, e, p ? "up_proj.weight" : "gate_proj.weight");
            assert_int_equal(w.rows, F);
            assert_int_equal(w.cols, D);
            assert_int_equal(weight_bytes(&w), F * D / 2);
            for (int r = 0; r < F; r++) {
                weight_dequant(&w, r, 0, D, x);
                for (int c = 0; c < D; c++)
                    assert_true((double)x[c] == value_at(e, 2 * r + p, c));
            }
        }
    struct weight w = get(m, 1, "down_proj.weight");
    weight_dequant(&w, D - 1, 0, 32, x);
    for (int c = 0; c < 32; c++)
        assert_true((double)x[c] == value_at(1, D - 1, c));
    for (int i = 0; i < io_n_tensor(m); i++)
        n += io_tensor_params(m, i);
    assert_int_equal(n, E * (2 * F * D + D * 32));
    io_close(m);
    remove_folder(&f);
}

/* A value that bf16 holds, another one for every place. */
static uint16_t number(int e, int row, int col)
{
    return (uint16_t)(0x3f80 + e * 1000 + row * 70 + col);
}

TEST(io_experts_of_bf16_are_read_across_and_biases_in_turn)
{
    static struct folder f;
    static uint16_t gate_up[E][D][2 * F], bias[E][2 * F];
    sl_err err = {0};
    io_model *m = NULL;
    float x[D];
    f = (struct folder){.n_head = 0};
    for (int e = 0; e < E; e++)
        for (int r = 0; r < 2 * F; r++) {
            bias[e][r] = r % 2 ? number(e, r, 0) : 0;
            for (int c = 0; c < D; c++)
                gate_up[e][c][r] = number(e, r, c);
        }
    add(&f, "gate_up_proj", "BF16", "2,64,6", gate_up, sizeof gate_up);
    add(&f, "gate_up_proj_bias", "BF16", "2,6", bias, sizeof bias);
    ASSERT_OK(open_folder(&f, PLAIN, &m, &err));
    for (int e = 0; e < E; e++)
        for (int p = 0; p < 2; p++) {
            struct weight w = get(m, e, p ? "up_proj.weight" : "gate_proj.weight");
            for (int r = 0; r < F; r++) {
                weight_dequant(&w, r, 0, D, x);
                for (int c = 0; c < D; c++)
                    assert_true(x[c] == fp_bf16_to_f32(number(e, 2 * r + p, c)));
            }
            assert_true(!weight_by_row(&w));
            w = get(m, e, p ? "up_proj.bias" : "gate_proj.bias");
            weight_dequant(&w, 0, 0, F, x);
            for (int r = 0; r < F; r++)
                assert_true(x[r] == (p ? fp_bf16_to_f32(number(e, 2 * r + 1, 0)) : 0));
        }
    /* only what is shown counts */
    assert_true(tensor_is_zero(io_find(m, LAYER "1.gate_proj.bias")));
    assert_true(!tensor_is_zero(io_find(m, LAYER "1.up_proj.bias")));
    io_close(m);
    remove_folder(&f);
}

TEST(io_experts_of_mxfp4_without_scales_or_configuration_are_refused)
{
    static struct folder f;
    struct weight w;
    for (int i = 0; i < 2; i++) {
        uint8_t block[E * 2 * F * 16] = {0}, none = 0;
        sl_err err = {0};
        io_model *m = NULL;
        f = (struct folder){.n_head = 0};
        add(&f, "gate_up_proj_blocks", "U8", "2,6,1,16", block, sizeof block);
        add(&f, "gate_up_proj_scales", "U8", "1,1,1", &none, 1);
        ASSERT_OK(open_folder(&f, i ? PLAIN : MXFP4, &m, &err));
        assert_int_equal(io_weight(m, LAYER "1.up_proj.weight", &w, &err), SL_FORMAT);
        if (!strstr(err.text, i ? "no quantization_config" : "but its weight_scales is missing"))
            fail_msg("%s", err.text);
        io_close(m);
        remove_folder(&f);
    }
}

/* Whatever the architecture: rows as long as the hidden vector are gate's, then up's. */
TEST(io_experts_of_one_tensor_are_taken_apart_where_rows_fit_the_hidden_size)
{
    static const struct {
        const char *config, *shape;
        bool apart;
    } row[] = {
        {"{\"model_type\":\"any\",\"hidden_size\":64}", "2,6,64", true},
        {"{\"model_type\":\"any\",\"hidden_size\":64}", "2,64,6", false},
        {"{\"model_type\":\"any\",\"hidden_size\":8,\"text_config\":{\"hidden_size\":64}}",
         "2,6,64", true},
        {"{\"model_type\":\"any\"}", "2,6,64", false},
    };
    static struct folder f;
    static uint16_t gate_up[E][2 * F][D];
    for (int e = 0; e < E; e++)
        for (int r = 0; r < 2 * F; r++)
            gate_up[e][r][0] = number(e, r, 0);
    for (int i = 0; i < BASE_COUNT_OF(row); i++) {
        sl_err err = {0};
        io_model *m = NULL;
        float x[D];
        f = (struct folder){.n_head = 0};
        add(&f, "gate_up_proj", "BF16", row[i].shape, gate_up, sizeof gate_up);
        ASSERT_OK(open_folder(&f, row[i].config, &m, &err));
        assert_int_equal(io_find(m, LAYER "gate_up_proj") == NULL, row[i].apart);
        if (row[i].apart) {
            struct weight w = get(m, 1, "up_proj.weight");
            weight_dequant(&w, 2, 0, D, x);
            assert_true(x[0] == fp_bf16_to_f32(number(1, F + 2, 0)));
        }
        io_close(m);
        remove_folder(&f);
    }
}

#define FP8                                                                                        \
    "{\"quantization_config\":{\"quant_method\":\"fp8\",\"scale_fmt\":\"ue8m0\","                  \
    "\"weight_block_size\":[128,128]},\"expert_dtype\":\"fp4\"}"

/* DeepSeek-V4's: two codes in a byte of I8, the first in the low half, and X.scale beside X.weight.
 */
TEST(io_experts_of_deepseek_v4_are_pairs_of_codes)
{
    uint8_t codes[2 * 32], scales[2 * 2];
    float row[64];
    sl_err err;
    io_model *m = NULL;
    struct weight w;
    for (int type = 0; type < 2; type++) {
        struct folder f = {0};
        for (int r = 0; r < 2; r++) {
            for (int c = 0; c < 32; c++)
                codes[r * 32 + c] = (uint8_t)(code_at(1, r, 2 * c) | code_at(1, r, 2 * c + 1) << 4);
            for (int k = 0; k < 2; k++)
                scales[r * 2 + k] = scale_at(1, r, k);
        }
        add(&f, "w1.weight", "I8", "2,32", codes, sizeof codes);
        add(&f, "w1.scale", type ? "U8" : "F8_E8M0", "2,2", scales, sizeof scales);
        ASSERT_OK(open_folder(&f, FP8, &m, &err));
        ASSERT_OK(io_weight(m, LAYER "w1.weight", &w, &err));
        assert_true(w.rows == 2 && w.cols == 64 && w.scheme == TENSOR_SCHEME_GROUP);
        for (int r = 0; r < 2; r++) {
            weight_dequant(&w, r, 0, 64, row);
            for (int c = 0; c < 64; c++)
                assert_true((double)row[c] == value_at(1, r, c));
        }
        io_close(m);
        remove_folder(&f);
    }
}

TEST(io_experts_of_deepseek_v4_with_wrong_scales_are_refused)
{
    static const struct {
        const char *type, *shape, *text;
        size_t n;
    } t[] = {{"F8_E8M0", "2,1", "w1.weight_scale_inv", 2},
             {"F8_E8M0", "4", "w1.weight_scale_inv", 4},
             {"F32", "2,2", "is F32", 16},
             {NULL, NULL, "I8 is no type of weights", 0}};
    static const uint8_t bytes[64];
    for (int i = 0; i < BASE_COUNT_OF(t); i++) {
        struct folder f = {0};
        sl_err err;
        io_model *m = NULL;
        struct weight w;
        add(&f, "w1.weight", "I8", "2,32", bytes, 64);
        if (t[i].type) add(&f, "w1.scale", t[i].type, t[i].shape, bytes, t[i].n);
        ASSERT_OK(open_folder(&f, FP8, &m, &err));
        assert_true(io_weight(m, LAYER "w1.weight", &w, &err) != SL_OK);
        if (!strstr(err.text, t[i].text)) fail_msg("%s (want %s)", err.text, t[i].text);
        io_close(m);
        remove_folder(&f);
    }
}
