/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of Hugging Face folders (codes with scales and zero points per group of columns) in the
 * run formats: which one, and how they get there. Lossless: every scale is kept exactly, or the
 * matrix runs decoded. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "kern/mm_fmt.h"

static int e2m1_fmt(const struct weight_group *g)
{
    if (g->scale2.p || g->col_group) return MM_f32;
    if (g->scale.type == TENSOR_F8_E4M3) return g->size == 16 ? MM_nvfp4 : MM_f32;
    return g->size == 32 && (g->scale.type == TENSOR_F8_E8M0 || g->scale.type == TENSOR_U8)
               ? MM_mxfp4
               : MM_f32;
}

int kern_mm_group_fmt(const struct weight *w)
{
    const struct weight_group *g = &w->group;
    bool whole = g->n_group == 1, four = weight_bits(w) == 4;
    int shift;
    if (g->codes == WEIGHT_E2M1) return e2m1_fmt(g);
    if (g->codes == WEIGHT_E4M3) return weight_is_mxfp8(w) ? MM_bf16 : MM_f32;
    if (g->col_group || (!whole && g->size % 32)) return MM_f32;
    if (g->zeros == WEIGHT_ZERO_MID) {
        if (whole || g->size % 256 == 0) return four ? MM_i4c : MM_i8c;
        if (g->size % 128 == 0) return four ? MM_i4g : MM_i8g;
        if (!weight_scale_shift(w, &shift)) return MM_f32;
        return four ? MM_q4_0 : MM_q8_0;
    }
    if (g->zeros == WEIGHT_ZERO_GPTQ8 || !weight_scale_shift(w, &shift)) return MM_f32;
    if (whole || g->size % 128 == 0) return four ? MM_i4z : MM_i8z;
    return four ? MM_i4zg : MM_f32;
}

int kern_mm_decoded(int is_exact)
{
    return is_exact ? MM_f32 : MM_bf16;
}

int kern_mm_is_decoded(int fmt, const struct weight *w)
{
    return fmt >= MM_N_CODE &&
           (w->scheme == TENSOR_SCHEME_GROUP || w->type != kern_mm_fmts[fmt].type);
}

float kern_mm_scale(int fmt, const struct weight *w)
{
    int shift = 0;
    if (kern_mm_is_decoded(fmt, w)) return 1.0f; /* with it */
    if (w->scheme != TENSOR_SCHEME_GROUP) return w->tensor_scale;
    enum mm_header h = kern_mm_fmts[fmt].header;
    if (h != H_D && h != H_Z && h != H_ZG) return w->tensor_scale;
    if (!weight_scale_shift(w, &shift)) return w->tensor_scale;
    return ldexpf(w->tensor_scale, -shift);
}

static void put_f16(uint8_t *p, float v)
{
    uint16_t h = fp_f32_to_f16(v);
    memcpy(p, &h, 2);
}

/* The scales of columns [k0, k0 + n) of one row into place r of a header; up: m's scale to the
 * weight's. */
static void put_scales(const struct mm_fmt_info *f, const struct weight *w, float up, int64_t row,
                       int r, int k0, int n, uint8_t *hdr)
{
    const struct weight_group *g = &w->group;
    int step = f->header == H_E4 ? 16 : f->header == H_F || f->header == H_Z ? f->blk_k : 32;
    for (int i = 0; i * step < n; i++) {
        int64_t at = (k0 + i * step) / g->size;
        const uint8_t *p = g->scale.p + (row + g->row0) * g->scale.ld_row + at * g->scale.ld_group;
        if (f->header == H_E4 || f->header == H_E8) {
            hdr[16 * i + r] = *p; /* both mean a half of it: the codes are twice e2m1 */
            continue;
        }
        float s = weight_scale_at(w, row, at);
        int z = weight_zero(w, row, at) - f->off;
        if (f->header == H_F)
            memcpy(hdr + 4 * r, &s, 4);
        else
            put_f16(hdr + (f->header == H_Z ? 0 : 32 * i) + 2 * r, s * up);
        if (f->header == H_Z) hdr[32 + r] = (uint8_t)z;
        if (f->header == H_ZG) hdr[128 + 16 * i + r] = (uint8_t)z;
    }
}

void kern_mm_pack_group(const struct mm_fmt_info *f, const struct weight *w, float scale, int t,
                        int k0, int n, uint8_t *dst)
{
    uint8_t codes[16][256];
    float up = w->tensor_scale == scale ? 1.0f : w->tensor_scale / scale;
    memset(dst, 0, (size_t)f->hdr_bytes);
    memset(codes, f->planes == P_E2M1 ? 0 : f->off,
           sizeof codes); /* what is beyond n_col is zero */
    for (int r = 0; r < 16 && 16 * (int64_t)t + r < w->rows; r++) {
        weight_codes(w, 16 * (int64_t)t + r, k0, n, codes[r]);
        put_scales(f, w, up, 16 * (int64_t)t + r, r, k0, n, dst);
    }
    kern_mm_pack_codes(f, (const uint8_t(*)[256])codes, dst);
}
