/* SPDX-License-Identifier: Apache-2.0 */
/* Packing: the stored blocks of 16 rows into the run format's blocks. Lossless. */
#include <string.h>

#include "base/fp.h"
#include "kern/mm_fmt.h"

/* ---- stored block -> codes, in order of k ---- */

static void nibbles_32(const uint8_t *q, uint8_t *c)
{
    for (int j = 0; j < 16; j++) {
        c[j] = q[j] & 15;
        c[j + 16] = q[j] >> 4;
    }
}

static void fifth_bits_32(const uint8_t *qh, uint8_t *c)
{
    uint32_t h =
        (uint32_t)qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
    for (int j = 0; j < 32; j++)
        c[j] |= (uint8_t)((h >> j & 1) << 4);
}

static void codes_k4(const uint8_t *q, uint8_t *c)
{
    for (int p = 0; p < 4; p++, q += 32, c += 64)
        for (int l = 0; l < 32; l++) {
            c[l] = q[l] & 15;
            c[l + 32] = q[l] >> 4;
        }
}

static void codes_k6(const uint8_t *b, uint8_t *c)
{
    for (int h = 0; h < 2; h++, c += 128)
        for (int l = 0; l < 32; l++) {
            const uint8_t *ql = b + 64 * h + l;
            unsigned qh = b[128 + 32 * h + l];
            c[l] = (uint8_t)((ql[0] & 15) | (qh & 3) << 4);
            c[l + 32] = (uint8_t)((ql[32] & 15) | (qh >> 2 & 3) << 4);
            c[l + 64] = (uint8_t)(ql[0] >> 4 | (qh >> 4 & 3) << 4);
            c[l + 96] = (uint8_t)(ql[32] >> 4 | (qh >> 6 & 3) << 4);
        }
}

static void codes_k2(const uint8_t *qs, const uint8_t *hmask, uint8_t *c)
{
    for (int h = 0; h < 2; h++)
        for (int s = 0; s < 4; s++, c += 32)
            for (int l = 0; l < 32; l++) {
                unsigned v = qs[32 * h + l] >> (2 * s) & 3u;
                if (hmask) v |= (hmask[l] >> (4 * h + s) & 1u) << 2;
                c[l] = (uint8_t)v;
            }
}

static void stored_codes(enum tensor_dtype type, const uint8_t *b, uint8_t *c)
{
    switch (type) {
    case TENSOR_Q4_0:
    case TENSOR_IQ4_NL:
        nibbles_32(b + 2, c);
        break;
    case TENSOR_Q4_1:
        nibbles_32(b + 4, c);
        break;
    case TENSOR_Q5_0:
        nibbles_32(b + 6, c);
        fifth_bits_32(b + 2, c);
        break;
    case TENSOR_Q5_1:
        nibbles_32(b + 8, c);
        fifth_bits_32(b + 4, c);
        break;
    case TENSOR_Q8_0:
        for (int j = 0; j < 32; j++)
            c[j] = b[2 + j] ^ 0x80;
        break;
    case TENSOR_Q2_K:
        codes_k2(b + 16, NULL, c);
        break;
    case TENSOR_Q3_K:
        codes_k2(b + 32, b, c);
        break;
    case TENSOR_Q4_K:
        codes_k4(b + 16, c);
        break;
    case TENSOR_Q5_K:
        codes_k4(b + 48, c);
        for (int g = 0; g < 8; g++)
            for (int l = 0; l < 32; l++)
                c[32 * g + l] |= (uint8_t)((b[16 + l] >> g & 1) << 4);
        break;
    case TENSOR_Q6_K:
        codes_k6(b, c);
        break;
    case TENSOR_IQ4_XS:
        for (int g = 0; g < 8; g++)
            nibbles_32(b + 8 + 16 * g, c + 32 * g);
        break;
    case TENSOR_MXFP4:
        nibbles_32(b + 1, c);
        break;
    case TENSOR_NVFP4:
        for (int s = 0; s < 4; s++)
            for (int j = 0; j < 8; j++) {
                c[16 * s + j] = b[4 + 8 * s + j] & 15;
                c[16 * s + j + 8] = b[4 + 8 * s + j] >> 4;
            }
        break;
    default:
        break;
    }
}

/* ---- stored block number i of a run block -> row r of its header ---- */

static void header_k4(const uint8_t *s, uint8_t *hdr, int r)
{
    for (int j = 0; j < 8; j++) {
        uint8_t sc, m;
        if (j < 4) {
            sc = s[j] & 63;
            m = s[j + 4] & 63;
        } else {
            sc = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
            m = (uint8_t)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
        }
        hdr[64 + 32 * j + r] = sc;
        hdr[80 + 32 * j + r] = m;
    }
}

static void stored_header(enum tensor_dtype type, const uint8_t *b, int i, int r, uint8_t *hdr)
{
    switch (type) {
    case TENSOR_Q4_0:
    case TENSOR_Q5_0:
    case TENSOR_Q8_0:
    case TENSOR_IQ4_NL:
        memcpy(hdr + 32 * i + 2 * r, b, 2);
        break;
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
        memcpy(hdr + 2 * r, b, 2);
        memcpy(hdr + 32 + 2 * r, b + 2, 2);
        break;
    case TENSOR_Q2_K:
        memcpy(hdr + 2 * r, b + 80, 2);
        memcpy(hdr + 32 + 2 * r, b + 82, 2);
        for (int g = 0; g < 16; g++)
            hdr[64 + 16 * g + r] = b[g];
        break;
    case TENSOR_Q3_K:
        memcpy(hdr + 2 * r, b + 108, 2);
        for (int g = 0; g < 16; g++) {
            const uint8_t *sc = b + 96;
            int low = g < 8 ? sc[g] & 15 : sc[g - 8] >> 4;
            int high = sc[8 + g % 4] >> (2 * (g / 4)) & 3;
            hdr[32 + 16 * g + r] = (uint8_t)((low | high << 4) - 32);
        }
        break;
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        memcpy(hdr + 2 * r, b, 2);
        memcpy(hdr + 32 + 2 * r, b + 2, 2);
        header_k4(b + 4, hdr, r);
        break;
    case TENSOR_Q6_K:
        memcpy(hdr + 2 * r, b + 208, 2);
        for (int g = 0; g < 16; g++)
            hdr[64 + 16 * g + r] = b[192 + g];
        break;
    case TENSOR_IQ4_XS:
        memcpy(hdr + 2 * r, b, 2);
        for (int g = 0; g < 8; g++) {
            int high = (b[2] | b[3] << 8) >> (2 * g) & 3;
            hdr[32 + 16 * g + r] =
                (uint8_t)(((b[4 + g / 2] >> (4 * (g % 2)) & 15) | high << 4) - 32);
        }
        break;
    case TENSOR_MXFP4:
        hdr[16 * i + r] = b[0];
        break;
    case TENSOR_NVFP4: /* stored so that plain bit placement decodes it: see fp_ue4m3_to_f32 */
        for (int s = 0; s < 4; s++)
            hdr[16 * s + r] = b[s] == 0x7f ? 0 : b[s] == 0xff ? 0x7f : b[s] & 0x7f;
        break;
    default:
        break;
    }
}

/* ---- codes of 16 rows x 32 k -> planes ---- */

static void plane_nib(const uint8_t (*l)[64], uint8_t *out)
{
    for (int p = 0; p < 4; p++, out += 64)
        for (int b = 0; b < 64; b++)
            out[b] = (uint8_t)((l[2 * p][b] & 15) | l[2 * p + 1][b] << 4);
}

static void plane_two(const uint8_t (*l)[64], int s, uint8_t *out)
{
    for (int p = 0; p < 2; p++, out += 64)
        for (int b = 0; b < 64; b++)
            out[b] = (uint8_t)((l[4 * p][b] >> s & 3) | (l[4 * p + 1][b] >> s & 3) << 2 |
                               (l[4 * p + 2][b] >> s & 3) << 4 | (l[4 * p + 3][b] >> s & 3) << 6);
}

static void plane_one(const uint8_t (*l)[64], int s, uint8_t *out)
{
    for (int b = 0; b < 64; b++) {
        unsigned v = 0;
        for (int i = 0; i < 8; i++)
            v |= (l[i][b] >> s & 1u) << i;
        out[b] = (uint8_t)v;
    }
}

static void plane_six(const uint8_t (*l)[64], uint8_t *out)
{
    for (int b = 0; b < 64; b++) {
        out[b] = (uint8_t)(l[0][b] | l[3][b] >> 4 << 6);
        out[64 + b] = (uint8_t)(l[1][b] | (l[3][b] >> 2 & 3) << 6);
        out[128 + b] = (uint8_t)(l[2][b] | (l[3][b] & 3) << 6);
    }
}

static void pack_planes(enum mm_planes planes, const uint8_t (*l)[64], uint8_t *out)
{
    switch (planes) {
    case P_B8:
        memcpy(out, l, 512);
        break;
    case P_NIB:
    case P_NL:
    case P_E2M1:
        plane_nib(l, out);
        break;
    case P_NIB1:
        plane_nib(l, out);
        plane_one(l, 4, out + 256);
        break;
    case P_SIX:
        plane_six(l, out);
        plane_six(l + 4, out + 192);
        break;
    case P_TWO:
        plane_two(l, 0, out);
        break;
    case P_TWO1:
        plane_two(l, 0, out);
        plane_one(l, 2, out + 128);
        break;
    }
}

void kern_mm_pack_codes(const struct mm_fmt_info *f, const uint8_t codes[16][256], uint8_t *dst)
{
    uint8_t lines[8][64];
    for (int g = 0; g < f->blk_k / 32; g++) {
        for (int r = 0; r < 16; r++)
            for (int l = 0; l < 8; l++)
                memcpy(&lines[l][4 * r], &codes[r][32 * g + 4 * l], 4);
        pack_planes(f->planes, (const uint8_t(*)[64])lines, dst + f->hdr_bytes + g * f->grp_bytes);
    }
}

/* rows[r]: the stored row, NULL beyond n_row. n_stored: stored blocks that exist at column k0. */
static void pack_code_block(const struct mm_fmt_info *f, const uint8_t *const rows[16], size_t off,
                            int n_stored, uint8_t *dst)
{
    const struct tensor_dtype_info *d = tensor_dtype(f->type);
    uint8_t codes[16][256];
    memset(dst, 0, (size_t)f->hdr_bytes);
    if (n_stored * d->block < f->blk_k || !rows[15]) memset(codes, 0, sizeof(codes));
    for (int r = 0; r < 16 && rows[r]; r++)
        for (int i = 0; i < n_stored; i++) {
            const uint8_t *b = rows[r] + off + (size_t)i * (size_t)d->bytes;
            stored_codes(f->type, b, codes[r] + i * d->block);
            stored_header(f->type, b, i, r, dst);
        }
    kern_mm_pack_codes(f, (const uint8_t(*)[256])codes, dst);
}

static void pack_f8_block(const struct weight *w, const uint8_t *const rows[16], int64_t row0,
                          int k0, int n, uint8_t *dst)
{
    memset(dst, 0, 2112);
    for (int r = 0; r < 16 && rows[r]; r++) {
        float s = 1.0f;
        int nan = 0;
        if (w->scheme == TENSOR_SCHEME_F8_BLOCK) {
            int64_t ld = (w->cols + w->block_cols - 1) / w->block_cols;
            int64_t at = w->block_row0 + row0 + r;
            memcpy(&s, w->scale + at / w->block_rows * ld + k0 / w->block_cols, 4);
        }
        for (int k = 0; k < n; k++) {
            uint8_t c = rows[r][k0 + k];
            nan |= (c & 0x7f) == 0x7f;
            dst[64 + 16 * k + r] = c;
        }
        if (nan) s = fp_from_bits(0x7fc00000u);
        memcpy(dst + 4 * r, &s, 4);
    }
}

/* Rows of any scheme as f32 or bf16, rounded: for what no run format holds. */
static void pack_decoded_block(int fmt, const struct weight *w, int64_t row0, int k0, int n,
                               uint8_t *dst)
{
    float v[32];
    memset(dst, 0, (size_t)kern_mm_fmts[fmt].blk_bytes);
    for (int r = 0; r < 16 && row0 + r < w->rows; r++) {
        weight_dequant(w, row0 + r, k0, n, v);
        for (int k = 0; k < n; k++) {
            uint16_t h = fp_f32_to_bf16(v[k]);
            if (fmt == MM_f32)
                memcpy(dst + 64 * k + 4 * r, &v[k], 4);
            else
                memcpy(dst + 64 * (k / 2) + 4 * r + 2 * (k % 2), &h, 2);
        }
    }
}

/* step: bytes from one value of a row to the next. */
static void pack_float_block(int fmt, const uint8_t *const rows[16], size_t step, const int k01[2],
                             uint8_t *dst)
{
    int k0 = k01[0], n = k01[1] - k0;
    memset(dst, 0, (size_t)kern_mm_fmts[fmt].blk_bytes);
    for (int r = 0; r < 16 && rows[r]; r++)
        for (int k = 0; k < n; k++) {
            if (fmt == MM_f32)
                memcpy(dst + 64 * k + 4 * r, rows[r] + step * (size_t)(k0 + k), 4);
            else if (fmt == MM_f16)
                memcpy(dst + 32 * k + 2 * r, rows[r] + step * (size_t)(k0 + k), 2);
            else
                memcpy(dst + 64 * (k / 2) + 4 * r + 2 * (k % 2), rows[r] + step * (size_t)(k0 + k),
                       2);
        }
}

void kern_mm_pack_tile(const struct mm_mat *m, const struct weight *w, int which, int t)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[m->fmt];
    const struct tensor_dtype_info *d = tensor_dtype(f->type);
    uint8_t *dst = m->data + (size_t)(m->is_pair ? 2 * t + which : t) * m->tile_bytes;
    uint8_t *end = dst + m->tile_bytes;
    size_t step = w->col_bytes ? (size_t)w->col_bytes : (size_t)d->bytes;
    const uint8_t *rows[16];
    for (int r = 0; r < 16; r++) {
        int64_t row = 16 * (int64_t)t + r;
        rows[r] = row < m->n_row && w->scheme != TENSOR_SCHEME_GROUP
                      ? w->data + (uint64_t)row * w->row_bytes
                      : NULL;
    }
    for (int k0 = 0; k0 < m->n_col; k0 += f->blk_k, dst += f->blk_bytes) {
        int n = BASE_MIN(f->blk_k, m->n_col - k0);
        if (kern_mm_is_decoded(m->fmt, w))
            pack_decoded_block(m->fmt, w, 16 * (int64_t)t, k0, n, dst);
        else if (w->scheme == TENSOR_SCHEME_GROUP)
            kern_mm_pack_group(f, w, which ? m->scale2 : m->scale, t, k0, n, dst);
        else if (m->fmt == MM_f8)
            pack_f8_block(w, rows, 16 * (int64_t)t, k0, n, dst);
        else if (m->fmt >= MM_N_CODE)
            pack_float_block(m->fmt, rows, step, (const int[]){k0, k0 + n}, dst);
        else
            pack_code_block(f, rows, (size_t)(k0 / d->block) * (size_t)d->bytes, n / d->block, dst);
    }
    memset(dst, 0, (size_t)(end - dst));
}
