/* SPDX-License-Identifier: Apache-2.0 */
/* The table of run formats, layouts, and the reference decoding of a group. */
#include "kern/mm_fmt.h"

#include <string.h>

#include "base/fp.h"

const struct mm_fmt_info kern_mm_fmts[MM_N_FMT] = {
#define X(name, type, k, bytes, hdr, grp, header, planes, half, min, off)                          \
    {#name, TENSOR_##type, k, bytes, hdr, grp, H_##header, P_##planes, half, min, off},
    MM_CODE_FMTS(X)
#undef X
#define X(name, type, k, bytes) {#name, TENSOR_##type, k, bytes, 0, 0, H_FLOAT, P_B8, 0, 0, 0},
        MM_FLOAT_FMTS(X)
#undef X
};

const uint8_t kern_mm_nl[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                129, 141, 153, 166, 181, 197, 217, 241};
const uint8_t kern_mm_e2m1[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

sl_status kern_mm_fmt(const struct weight *w, int *fmt, sl_err *err)
{
    const char *text = tensor_dtype(w->type)->text;
    if (w->scheme == TENSOR_SCHEME_GROUP) {
        *fmt = kern_mm_group_fmt(w);
        return SL_OK;
    }
    for (int f = 0; f < MM_N_FMT; f++) {
        if (kern_mm_fmts[f].type != w->type || !tensor_dtype_is_weight(w->type)) continue;
        if (w->scheme == TENSOR_SCHEME_F8_BLOCK) {
            int whole = w->block_cols % 128 == 0 || w->block_cols >= w->cols;
            if (f != MM_f8 || !whole)
                return SL_FAIL(err, UNSUPPORTED,
                               "tensor %s: %s with scales of %dx%d blocks is not supported",
                               w->name, text, w->block_rows, w->block_cols);
        }
        *fmt = f;
        return SL_OK;
    }
    return SL_FAIL(err, UNSUPPORTED, "tensor %s: no matrix product with type %s", w->name, text);
}

const char *kern_mm_fmt_name(int fmt)
{
    return fmt >= 0 && fmt < MM_N_FMT ? kern_mm_fmts[fmt].name : "?";
}

int kern_mm_fmt_find(const char *name)
{
    for (int i = 0; i < MM_N_FMT; i++)
        if (strcmp(kern_mm_fmts[i].name, name) == 0) return i;
    return -1;
}

int kern_mm_takes(int fmt, enum mm_act act)
{
    return fmt < MM_N_CODE || act == MM_ACT_F32 || act == MM_ACT_BF16;
}

void kern_mm_layout(int fmt, int64_t n_row, int64_t n_col, int is_pair, struct mm_mat *m,
                    size_t *n_bytes)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[fmt];
    size_t n_blk = (size_t)((n_col + f->blk_k - 1) / f->blk_k);
    memset(m, 0, sizeof(*m));
    m->fmt = fmt;
    m->n_row = (int)n_row;
    m->n_col = (int)n_col;
    m->is_pair = is_pair;
    m->n_tile = (int)((n_row + 15) / 16) * (is_pair ? 2 : 1);
    m->tile_bytes = (n_blk * (size_t)f->blk_bytes + 63) / 64 * 64;
    m->scale = m->scale2 = 1.0f;
    *n_bytes = m->tile_bytes * (size_t)m->n_tile;
}

static float f16_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return fp_f16_to_f32(h);
}

static void get_scales(const struct mm_fmt_info *f, const uint8_t *blk, int g, int r,
                       struct mm_group *o)
{
    for (int h = 0; h < 2; h++) {
        float sc = 0, mn = 0;
        int sub = 2 * g + h;
        switch (f->header) {
        case H_D:
            sc = f16_at(blk + 32 * g + 2 * r);
            break;
        case H_DM:
            sc = f16_at(blk + 2 * r);
            mn = -f16_at(blk + 32 + 2 * r);
            break;
        case H_E8: {
            uint32_t e = blk[16 * g + r];
            sc = fp_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
            break;
        }
        case H_E4:
            sc = fp_from_bits((uint32_t)blk[16 * sub + r] << 20) * 0x1p119f;
            break;
        case H_K4:
            sc = f16_at(blk + 2 * r) * (float)blk[64 + 32 * g + r];
            mn = f16_at(blk + 32 + 2 * r) * (float)blk[80 + 32 * g + r];
            break;
        case H_K6:
            sc = f16_at(blk + 2 * r) * (float)(int8_t)blk[64 + 16 * sub + r];
            break;
        case H_K3:
            sc = f16_at(blk + 2 * r) * (float)(int8_t)blk[32 + 16 * sub + r];
            break;
        case H_K2:
            sc = f16_at(blk + 2 * r) * (float)(blk[64 + 16 * sub + r] & 15);
            mn = f16_at(blk + 32 + 2 * r) * (float)(blk[64 + 16 * sub + r] >> 4);
            break;
        case H_XS:
            sc = f16_at(blk + 2 * r) * (float)(int8_t)blk[32 + 16 * g + r];
            break;
        case H_F:
            memcpy(&sc, blk + 4 * r, 4);
            break;
        case H_Z:
            sc = f16_at(blk + 2 * r);
            mn = sc * (float)(int8_t)blk[32 + r];
            break;
        case H_ZG:
            sc = f16_at(blk + 32 * g + 2 * r);
            mn = sc * (float)(int8_t)blk[128 + 16 * g + r];
            break;
        case H_FLOAT:
            break;
        }
        o->sc[h][r] = sc;
        o->mn[h][r] = mn;
    }
}

static unsigned nib_at(const uint8_t *c, int l, int b)
{
    return l & 1 ? c[64 * (l / 2) + b] >> 4 : c[64 * (l / 2) + b] & 15u;
}

static unsigned two_at(const uint8_t *c, int l, int b)
{
    return c[64 * (l / 4) + b] >> (2 * (l % 4)) & 3u;
}

static unsigned six_at(const uint8_t *c, int l)
{
    if (l < 3) return c[64 * l] & 63u;
    return (unsigned)(c[0] >> 6 << 4 | c[64] >> 6 << 2 | c[128] >> 6);
}

static inline void get_codes(enum mm_planes planes, const uint8_t *c, const int r0, const int n_r,
                             uint8_t code[8][64])
{
    for (int l = 0; l < 8; l++)
        for (int b = 4 * r0; b < 4 * (r0 + n_r); b++) {
            unsigned v = 0;
            switch (planes) {
            case P_B8:
                v = c[64 * l + b];
                break;
            case P_NIB:
                v = nib_at(c, l, b);
                break;
            case P_NIB1:
                v = nib_at(c, l, b) | (c[256 + b] >> l & 1u) << 4;
                break;
            case P_SIX:
                v = six_at(c + 192 * (l / 4) + b, l % 4);
                break;
            case P_TWO:
                v = two_at(c, l, b);
                break;
            case P_TWO1:
                v = two_at(c, l, b) | (c[128 + b] >> l & 1u) << 2;
                break;
            case P_NL:
                v = kern_mm_nl[nib_at(c, l, b)];
                break;
            case P_E2M1:
                v = kern_mm_e2m1[nib_at(c, l, b)];
                break;
            }
            code[l][b] = (uint8_t)v;
        }
}

/* Rows [r0, r0 + n_r), the others of *out are left. */
static inline void get_group(int fmt, const uint8_t *blk, int g, const int r0, const int n_r,
                             struct mm_group *out)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[fmt];
    for (int r = r0; r < r0 + n_r; r++)
        get_scales(f, blk, g, r, out);
    get_codes(f->planes, blk + f->hdr_bytes + g * f->grp_bytes, r0, n_r, out->code);
}

void kern_mm_group(int fmt, const uint8_t *blk, int g, struct mm_group *out)
{
    get_group(fmt, blk, g, 0, 16, out);
}

static inline void float_group(int fmt, const uint8_t *blk, int k0, const int r0, const int n_r,
                               float *dst)
{
    for (int k = k0; k < k0 + 32; k++)
        for (int r = r0; r < r0 + n_r; r++) {
            uint16_t h;
            float v;
            if (fmt == MM_f32) {
                memcpy(&v, blk + 64 * k + 4 * r, 4);
            } else if (fmt == MM_f16) {
                v = f16_at(blk + 32 * k + 2 * r);
            } else if (fmt == MM_bf16) {
                memcpy(&h, blk + 64 * (k / 2) + 4 * r + 2 * (k % 2), 2);
                v = fp_bf16_to_f32(h);
            } else {
                memcpy(&v, blk + 4 * r, 4);
                v *= fp_e4m3_to_f32(blk[64 + 16 * k + r]);
            }
            *dst++ = v;
        }
}

/* 32 k of rows [r0, r0 + n_r): dst [32][n_r]. */
static inline void group_f32(int fmt, const uint8_t *tile, int g, const int r0, const int n_r,
                             float *dst)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[fmt];
    int per = f->blk_k / 32;
    const uint8_t *blk = tile + (size_t)(g / per) * (size_t)f->blk_bytes;
    if (fmt >= MM_N_CODE) {
        float_group(fmt, blk, g % per * 32, r0, n_r, dst);
        return;
    }
    struct mm_group o;
    get_group(fmt, blk, g % per, r0, n_r, &o);
    for (int k = 0; k < 32; k++)
        for (int r = r0; r < r0 + n_r; r++) {
            float v = o.sc[k / 16][r] * (float)((int)o.code[k / 4][4 * r + k % 4] - f->off);
            *dst++ = f->min ? v - o.mn[k / 16][r] : v;
        }
}

void kern_mm_group_f32(int fmt, const uint8_t *tile, int g, float *dst)
{
    group_f32(fmt, tile, g, 0, 16, dst);
}

void kern_mm_unpack_tile(const struct mm_mat *m, int t, float *dst, int64_t ld)
{
    const uint8_t *tile = m->data + (size_t)t * m->tile_bytes;
    float scale = m->is_pair && (t & 1) ? m->scale2 : m->scale, v[32 * 16];
    for (int k0 = 0; k0 < m->n_col; k0 += 32) {
        int n = BASE_MIN(32, m->n_col - k0);
        kern_mm_group_f32(m->fmt, tile, k0 / 32, v);
        for (int r = 0; r < 16; r++)
            for (int k = 0; k < n; k++)
                dst[r * ld + k0 + k] = scale == 1.0f ? v[16 * k + r] : v[16 * k + r] * scale;
    }
}

void kern_mm_unpack_row(const struct mm_mat *m, int64_t row, float *dst)
{
    int t = (int)(row / 16) * (m->is_pair ? 2 : 1), r = (int)(row % 16);
    const uint8_t *tile = m->data + (size_t)t * m->tile_bytes;
    float v[32];
    for (int k0 = 0; k0 < m->n_col; k0 += 32) {
        int n = BASE_MIN(32, m->n_col - k0);
        group_f32(m->fmt, tile, k0 / 32, r, 1, v);
        for (int k = 0; k < n; k++)
            dst[k0 + k] = m->scale == 1.0f ? v[k] : v[k] * m->scale;
    }
}
