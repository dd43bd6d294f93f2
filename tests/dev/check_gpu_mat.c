/* SPDX-License-Identifier: Apache-2.0 */
/* Random images of the run formats, and matrices of them on both devices. */
#include "check_gpu.h"

#include <string.h>

#include "base/fp.h"

const struct format formats[GPU_N_FMT] = {
#define X(name, type, k, bytes, hdr, grp, header, planes, half, min, off)                          \
    {#name, #header, k, bytes, hdr},
    MM_CODE_FMTS(X)
#undef X
#define X(name, type, k, bytes) {#name, "", k, bytes, 0},
        MM_FLOAT_FMTS(X)
#undef X
};

static void put16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, 2);
}

static void put_f32(uint8_t *p, float v)
{
    memcpy(p, &v, 4);
}

/* A block of random codes with scales about 0.01. */
static void fill_block(const struct format *f, uint8_t *b)
{
    for (int i = 0; i < f->blk_bytes; i++)
        b[i] = (uint8_t)rand_int(0, 255);
    bool is_f8 = strcmp(f->name, "f8") == 0, is_16 = strcmp(f->name, "f16") == 0;
    if (strcmp(f->name, "f32") == 0)
        for (int i = 0; i < f->blk_bytes; i += 4)
            put_f32(b + i, rand_f());
    else if (is_16 || strcmp(f->name, "bf16") == 0)
        for (int i = 0; i < f->blk_bytes; i += 2)
            put16(b + i, is_16 ? fp_f32_to_f16(rand_f()) : fp_f32_to_bf16(rand_f()));
    for (int i = 64; is_f8 && i < f->blk_bytes; i++)
        if ((b[i] & 0x7f) == 0x7f) b[i] = 0x38;
    char h = f->header[0];
    bool all = strcmp(f->header, "D") == 0 || strcmp(f->header, "DM") == 0;
    int n_16 = all ? f->hdr_bytes : strcmp(f->header, "ZG") == 0 ? 128 : 64;
    if (strcmp(f->header, "K6") == 0 || strcmp(f->header, "K3") == 0 || h == 'X' ||
        strcmp(f->header, "Z") == 0)
        n_16 = 32;
    for (int r = 0; (is_f8 || h == 'F') && r < 16; r++)
        put_f32(b + 4 * r, 0.01f * rand_f());
    for (int i = 0; h == 'E' && i < f->hdr_bytes; i++)
        b[i] = (uint8_t)(f->header[1] == '8' ? rand_int(118, 124) : rand_int(0, 60));
    for (int i = 0; (h == 'D' || h == 'K' || h == 'X' || h == 'Z') && i < n_16; i += 2)
        put16(b + i, fp_f32_to_f16(0.01f * rand_f()));
}

static void *blocks[4096];
static int n_block;

void make_mat(const struct format *f, const struct dev_image *shape, enum dev_use use,
              dev_mat *out[2])
{
    struct mm_mat m;
    size_t bytes;
    float *scale = malloc(sizeof(float) * 2 * (size_t)shape->n);
    kern_mm_layout(kern_mm_fmt_find(f->name), shape->rows, shape->cols, shape->is_pair, &m, &bytes);
    uint8_t *p = aligned_alloc(64, bytes * (size_t)shape->n);
    memset(p, 0, bytes * (size_t)shape->n);
    for (size_t t = 0; t < (size_t)m.n_tile * (size_t)shape->n; t++)
        for (size_t at = 0; at + (size_t)f->blk_bytes <= m.tile_bytes; at += (size_t)f->blk_bytes)
            fill_block(f, p + t * m.tile_bytes + at);
    for (int i = 0; i < 2 * shape->n; i++)
        scale[i] = rand_int(0, 1) ? 1.0f : 0.75f;
    struct dev_image im = *shape;
    im.fmt[0] = f->name;
    im.unit_bytes[0] = m.tile_bytes * (shape->is_pair ? 2 : 1);
    im.data[0] = p;
    im.step[0] = bytes;
    im.scale = scale;
    for (int k = 0; k < 2; k++)
        MUST(dev_mat_map(g.d[k], f->name, &im, use, &out[k], &err_));
    blocks[n_block++] = p; /* the CPU has no copy of its own */
    blocks[n_block++] = scale;
}

void free_mats(void)
{
    while (n_block)
        free(blocks[--n_block]);
}
