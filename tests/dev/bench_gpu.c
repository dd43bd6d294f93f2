/* SPDX-License-Identifier: Apache-2.0 */
/* bench_gpu DEVICE [--mib N] [--ms N] [FORMAT...]: products of one token alone, by format and
 * shape, as shares of what the device reads: a line of JSON each, the first of the device. So many
 * matrices of a shape that they take N MiB, more than a card's cache, one after another. 77: there
 * is no such device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "dev/dev.h"
#include "kern/mm.h"

#define MAT_MAX 4096
#define BURST 64 /* products of a submit */

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        sl_err err_ = {0};                                                                         \
        if ((expr) != SL_OK) {                                                                     \
            fprintf(stderr, "bench_gpu: %s\n", err_.text);                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct task {
    const char *device, *format;
    int rows, cols, mib, ms;
};

static uint8_t *random_bytes(size_t n)
{
    uint64_t state = 1;
    uint8_t *p = aligned_alloc(64, (n + 63) / 64 * 64);
    for (size_t i = 0; p && i + 8 <= n; i += 8) {
        uint64_t r = rng_next(&state) & 0x3f3f3f3f3f3f3f3f; /* no half float is none */
        memcpy(p + i, &r, sizeof r);
    }
    return p;
}

/* Matrices of the same image. */
static int make_mats(dev *d, const struct task *t, dev_mat **out, size_t *each)
{
    static const float scale[2] = {1, 1};
    struct mm_mat m;
    kern_mm_layout(kern_mm_fmt_find(t->format), t->rows, t->cols, 0, &m, each);
    uint8_t *p = random_bytes(*each);
    struct dev_image im = {.n = 1, .rows = t->rows, .cols = t->cols, .scale = scale};
    im.fmt[0] = t->format;
    im.unit_bytes[0] = m.tile_bytes;
    im.data[0] = p;
    im.step[0] = *each;
    int n = (int)(((size_t)t->mib << 20) / *each) + 1;
    if (n > MAT_MAX) n = MAT_MAX;
    for (int i = 0; i < n; i++)
        MUST(dev_mat_map(d, t->format, &im, DEV_USE_MATMUL, &out[i], &err_));
    free(p); /* the device has copies */
    return n;
}

static void *room(dev *d, int64_t n)
{
    void *p = NULL;
    MUST(dev_alloc(d, MEM_ACTS, n, &p, &err_));
    return p;
}

/* Microseconds of a product. */
static double run(dev *d, const struct task *t, dev_mat **mat, int n_mat)
{
    const dev_mat *one = mat[0];
    dev_act *act;
    int32_t id = 0, pos = 0, tok0[2] = {0, 1}, table = 0;
    struct dev_step s = {.n_tok = 1, .n_seq = 1, .ids = &id, .pos = &pos, .seq_tok0 = tok0,
                         .blk = {&table}, .ld_blk = 1};
    struct dev_limits max = {.n_tok = 1, .n_seq = 1, .n_ctx = 16};
    float *zero = calloc((size_t)t->cols, 4), *x = room(d, 4 * t->cols), *y = room(d, 4 * t->rows);
    MUST(dev_act_open(d, &(struct dev_inputs){&one, 1, t->cols, 1}, &act, &err_));
    MUST(dev_reserve(d, NULL, 0, &max, &err_));
    MUST(dev_put(d, x, zero, 4 * t->cols, &err_));
    free(zero);
    dev_step_begin(d, NULL, &s);
    dev_prep(d, &s, &(struct dev_prep){.x = x, .n = t->cols, .act = act});
    int64_t t0 = 0, now = 0, n = -BURST;
    for (int at = 0; n < BURST || now - t0 < (int64_t)t->ms * 1000000; n += BURST) {
        for (int i = 0; i < BURST; i++, at = (at + 1) % n_mat)
            dev_matmul(d, &s, &(struct dev_matmul){.act = act, .n_mat = 1, .w = {mat[at]},
                                                   .y = {y}});
        MUST(dev_sync(d, &err_));
        now = clock_now_ns();
        if (n < 0) t0 = now; /* the first burst is for warmth */
    }
    return (double)(now - t0) / 1e3 / (double)n;
}

static void bench(const struct task *t)
{
    static dev_mat *mat[MAT_MAX];
    size_t each;
    dev *d;
    MUST(dev_open(t->device, NULL, &d, &err_));
    int n = make_mats(d, t, mat, &each);
    double us = run(d, t, mat, n);
    printf("{\"format\":\"%s\",\"rows\":%d,\"cols\":%d,\"mats\":%d,\"us\":%.3f,\"gbps\":%.4f}\n",
           t->format, t->rows, t->cols, n, us, (double)each / us / 1e3);
    fflush(stdout);
    dev_close(d);
}

static void bench_all(struct task t, const char *const *formats, int n)
{
    static const int shapes[][2] = {{4096, 14336}, {7168, 7168}};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < BASE_COUNT_OF(shapes); k++) {
            t.format = formats[i];
            t.rows = t.mib < 64 ? 64 : shapes[k][0]; /* small ones, for tests */
            t.cols = t.mib < 64 ? 256 : shapes[k][1];
            bench(&t);
        }
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"q4_0", "q4_k", "q8_0", "i8c", "nvfp4"};
    const char *formats[32];
    int n = 0;
    sl_err err = {0};
    dev *d;
    struct task t = {.device = argc > 1 ? argv[1] : "vulkan", .mib = 512, .ms = 500};
    for (int i = 2; i < argc && n < 32; i++)
        if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc)
            t.mib = atoi(argv[++i]);
        else if (strcmp(argv[i], "--ms") == 0 && i + 1 < argc)
            t.ms = atoi(argv[++i]);
        else
            formats[n++] = argv[i];
    if (dev_open(t.device, NULL, &d, &err)) {
        fprintf(stderr, "bench_gpu: not run: %s\n", err.text);
        return 77;
    }
    printf("{\"read_gbps\":%.4f}\n", dev_probe_read_gbps(d, t.ms));
    fflush(stdout);
    dev_close(d);
    for (int i = 0; i < n; i++)
        if (kern_mm_fmt_find(formats[i]) < 0) {
            fprintf(stderr, "bench_gpu: there is no format '%s'\n", formats[i]);
            return 2;
        }
    bench_all(t, n ? formats : usual, n ? n : BASE_COUNT_OF(usual));
    return 0;
}
