/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of Hugging Face folders: integer, e2m1 or e4m3 codes with a scale, and maybe a zero
 * point, for each group of columns of a row. Where the bits lie differs by format (enum
 * weight_codes, enum weight_zeros); the number is always
 * (code - zero) * scale [* scale2] [* tensor_scale],   or e2m1(code) * scale * tensor_scale (e4m3
 * too) rounded to f32 after each product, scale * scale2 first. */
#include <math.h>

#include "tensor/tensor_internal.h"

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

int weight_bits(const struct weight *w)
{
    switch (w->group.codes) {
    case WEIGHT_I8:
    case WEIGHT_U8:
    case WEIGHT_E4M3:
    case WEIGHT_GPTQ8:
        return 8;
    default:
        return 4;
    }
}

bool weight_is_mxfp8(const struct weight *w)
{
    const struct weight_group *g = &w->group;
    return w->scheme == TENSOR_SCHEME_GROUP && g->codes == WEIGHT_E4M3 && !g->scale2.p &&
           w->tensor_scale == 1.0f &&
           (g->scale.type == TENSOR_F8_E8M0 || g->scale.type == TENSOR_U8);
}

bool weight_by_row(const struct weight *w)
{
    if (w->scheme != TENSOR_SCHEME_GROUP) return w->col_bytes == 0;
    return w->group.codes <= WEIGHT_E2M1 || w->group.codes == WEIGHT_I4;
}

/* Row r's zero point in GPTQ's words of `per` rows. What was taken off before it was stored was
 * taken off the whole word, so a zero of 0 borrowed from the next one: added to the word, all come
 * back. */
static int gptq_zero(const struct weight_group *g, int64_t r, int64_t i, unsigned per,
                     uint32_t ones)
{
    unsigned bits = 32 / per, at = (unsigned)(r % per);
    uint32_t v = tensor_get_u32(g->zero + (i * (g->n_row / per) + r / per) * 4);
    return (int)((v + (uint32_t)g->zero_add * ones) >> at * bits & ((1u << bits) - 1));
}

/* Which nibble of AWQ's word has row r: the inverse of 0, 2, 4, 6, 1, 3, 5, 7. */
static unsigned awq_shift(int64_t r)
{
    return 4 * (unsigned)((r & 1) * 4 + (r & 7) / 2);
}

static void nibbles(const uint8_t *row, int64_t col0, int64_t n, uint8_t *code)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t c = col0 + i;
        code[i] = c & 1 ? row[c / 2] >> 4 : row[c / 2] & 15;
    }
}

/* Codes that lie across rows: column c of row r is at p + c * ld, bits shift .. */
static void strided(const uint8_t *p, int64_t ld, unsigned shift, int64_t n, uint8_t *code)
{
    p += shift / 8;
    shift %= 8;
    for (int64_t i = 0; i < n; i++, p += ld)
        code[i] = *p >> shift & 15;
}

static void gptq(const uint8_t *p, int64_t n_row, int bits, int64_t col0, int64_t n, uint8_t *code)
{
    int per = 32 / bits;
    unsigned mask = bits == 8 ? 255 : 15;
    for (int64_t i = 0; i < n; i++) {
        int64_t c = col0 + i;
        uint32_t v = tensor_get_u32(p + c / per * n_row * 4);
        code[i] = (uint8_t)(v >> ((unsigned)(c % per) * (unsigned)bits) & mask);
    }
}

void weight_codes(const struct weight *w, int64_t r, int64_t col0, int64_t n, uint8_t *code)
{
    const struct weight_group *g = &w->group;
    r += g->row0;
    const uint8_t *row = w->data + (uint64_t)r * w->row_bytes;
    switch (g->codes) {
    case WEIGHT_I8:
        for (int64_t i = 0; i < n; i++)
            code[i] = row[col0 + i] ^ 0x80;
        break;
    case WEIGHT_U8:
    case WEIGHT_E4M3:
        memcpy(code, row + col0, (size_t)n);
        break;
    case WEIGHT_NIB:
    case WEIGHT_E2M1:
        nibbles(row, col0, n, code);
        break;
    case WEIGHT_I4:
        for (int64_t i = 0; i < n; i++)
            code[i] = (row[col0 + i] ^ 8) & 15;
        break;
    case WEIGHT_ROWS2:
        strided(w->data + r / 2 * w->cols + col0, 1, 4 * (unsigned)(r & 1), n, code);
        for (int64_t i = 0; i < n; i++)
            code[i] ^= 8;
        break;
    case WEIGHT_AWQ:
        strided(w->data + (col0 * (g->n_row / 8) + r / 8) * 4, g->n_row / 2, awq_shift(r), n, code);
        break;
    case WEIGHT_GPTQ4:
    case WEIGHT_GPTQ8:
        gptq(w->data + r * 4, g->n_row, g->codes == WEIGHT_GPTQ8 ? 8 : 4, col0, n, code);
        break;
    }
}

int weight_zero(const struct weight *w, int64_t r, int64_t i)
{
    const struct weight_group *g = &w->group;
    const uint8_t *z = g->zero;
    int mid = weight_bits(w) == 8 ? 128 : 8;
    r += g->row0;
    switch (g->zeros) {
    case WEIGHT_ZERO_MID:
        break;
    case WEIGHT_ZERO_ONE:
        return (int8_t)z[0] + mid;
    case WEIGHT_ZERO_I8:
        return (int8_t)z[r * g->n_group + i] + mid;
    case WEIGHT_ZERO_NIB_ROWS:
        z += (r / 8 * g->n_group + i) * 4 + r % 8 / 2;
        return (r & 1 ? *z >> 4 : *z & 15);
    case WEIGHT_ZERO_U8_ROWS:
        return z[(r / 4 * g->n_group + i) * 4 + r % 4];
    case WEIGHT_ZERO_AWQ:
        return (int)(tensor_get_u32(z + (i * (g->n_row / 8) + r / 8) * 4) >> awq_shift(r) & 15);
    case WEIGHT_ZERO_GPTQ4:
        return gptq_zero(g, r, i, 8, 0x11111111u);
    case WEIGHT_ZERO_GPTQ8:
        return gptq_zero(g, r, i, 4, 0x01010101u);
    }
    return mid;
}

static float get_scale(const struct weight_scale *s, int64_t r, int64_t g)
{
    if (!s->p) return 1.0f;
    int64_t i = r * s->ld_row + g * s->ld_group;
    switch (s->type) {
    case TENSOR_F32:
        return fp_from_bits(tensor_get_u32(s->p + 4 * i));
    case TENSOR_F16:
        return tensor_get_f16(s->p + 2 * i);
    case TENSOR_BF16:
        return fp_bf16_to_f32(tensor_get_u16(s->p + 2 * i));
    case TENSOR_F8_E4M3:
        return fp_e4m3_to_f32(s->p[i]);
    case TENSOR_I64:
        return fp_from_bits(tensor_get_u32(s->p + 8 * i));
    default: /* F8_E8M0, also spelled U8 */
        return fp_e8m0_to_f32(s->p[i]);
    }
}

float weight_scale_at(const struct weight *w, int64_t r, int64_t i)
{
    const struct weight_group *g = &w->group;
    float s = get_scale(&g->scale, r + g->row0, i);
    return g->scale2.p ? s * get_scale(&g->scale2, r + g->row0, i) : s;
}

static int64_t group_of(const struct weight_group *g, int64_t c)
{
    return g->col_group ? (int64_t)tensor_get_u32(g->col_group + 4 * c) : c / g->size;
}

void tensor_dequant_group(const struct weight *w, int64_t r, int64_t col0, int64_t n, float *dst)
{
    const struct weight_group *g = &w->group;
    uint8_t code[256];
    DEBUG_ASSERT(r >= 0 && r < w->rows && col0 >= 0 && n >= 0 && col0 + n <= w->cols);
    int64_t have = -1;
    float s = 0;
    int z = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % 256 == 0) weight_codes(w, r, col0 + i, BASE_MIN(n - i, (int64_t)256), code);
        int64_t at = group_of(g, col0 + i);
        if (at != have) {
            have = at;
            s = weight_scale_at(w, r, at);
            z = weight_zero(w, r, at);
        }
        unsigned c = code[i % 256];
        float v = g->codes == WEIGHT_E2M1   ? e2m1[c] * s
                  : g->codes == WEIGHT_E4M3 ? fp_e4m3_to_f32((uint8_t)c) * s
                                            : (float)((int)c - z) * s;
        dst[i] = w->tensor_scale == 1.0f ? v : v * w->tensor_scale;
    }
}

/* ---- what the numbers of a file allow ---- */

/* Exponents of the lowest and the highest set bit; false for zero. */
static bool bit_range(float f, int *lo, int *hi)
{
    uint32_t b = fp_to_bits(f) & 0x7fffffffu;
    if (b == 0) return false;
    uint32_t m = b & 0x7fffffu;
    int e = (int)(b >> 23);
    if (e == 0)
        e = 1;
    else
        m |= 0x800000u;
    *lo = e - 150 + __builtin_ctz(m);
    *hi = e - 150 + 31 - __builtin_clz(m);
    return true;
}

bool weight_scale_shift(const struct weight *w, int *shift)
{
    const struct weight_group *g = &w->group;
    int lo = 1000, hi = -1000;
    *shift = 0;
    if (g->scale.type == TENSOR_F16 && !g->scale2.p) return true;
    int64_t first = g->of_rows ? g->of_row0 - g->row0 : 0, n = g->of_rows ? g->of_rows : w->rows;
    for (int64_t r = first; r < first + n; r++)
        for (int64_t i = 0; i < g->n_group; i++) {
            int l, h;
            if (!bit_range(weight_scale_at(w, r, i), &l, &h)) continue;
            if (h - l > 10) return false;
            lo = BASE_MIN(lo, l);
            hi = BASE_MAX(hi, h);
        }
    if (hi < lo) return true; /* all are zero */
    *shift = 15 - hi < 0 ? 15 - hi : lo < -24 ? -24 - lo : 0;
    return lo + *shift >= -24 && hi + *shift <= 15 && *shift > -64 && *shift < 64;
}

static sl_status check_codes(const struct weight *w, sl_err *err)
{
    const struct weight_group *g = &w->group;
    for (int64_t r = 0; r < w->rows; r++) {
        const uint8_t *row = w->data + (uint64_t)(r + g->row0) * w->row_bytes;
        unsigned bad = 0;
        for (int64_t c = 0; c < w->cols; c++)
            bad |= (row[c] + 8u) & 0xf0u;
        if (bad)
            return SL_FAIL(err, FORMAT, "tensor %.120s: row %lld has a number outside -8 .. 7",
                           w->name, (long long)r);
    }
    return SL_OK;
}

static sl_status check_scale(const struct weight *w, float s, int64_t r, int64_t i, sl_err *err)
{
    if (isfinite(s)) return SL_OK;
    return SL_FAIL(err, FORMAT, "tensor %.120s: the scale of row %lld, group %lld is not finite",
                   w->name, (long long)r, (long long)i);
}

/* Could one of n scales of this type be refused? Looks at their bits alone, without order, since a
 * model has billions. */
static bool suspicious(const struct weight_scale *s, int64_t n)
{
    unsigned bad = 0;
    switch (s->type) {
    case TENSOR_F16:
        for (int64_t i = 0; i < n; i++)
            bad |= (tensor_get_u16(s->p + 2 * i) & 0x7c00u) == 0x7c00u;
        break;
    case TENSOR_BF16:
        for (int64_t i = 0; i < n; i++)
            bad |= (tensor_get_u16(s->p + 2 * i) & 0x7f80u) == 0x7f80u;
        break;
    case TENSOR_F32:
        for (int64_t i = 0; i < n; i++)
            bad |= (tensor_get_u32(s->p + 4 * i) & 0x7f800000u) == 0x7f800000u;
        break;
    case TENSOR_F8_E4M3:
        for (int64_t i = 0; i < n; i++)
            bad |= s->p[i] >= 0x7f;
        break;
    case TENSOR_I64:
        return true;
    default:
        for (int64_t i = 0; i < n; i++)
            bad |= s->p[i] == 0xff;
        break;
    }
    return bad;
}

sl_status weight_check(const struct weight *w, sl_err *err)
{
    const struct weight_group *g = &w->group;
    if (!isfinite(w->tensor_scale))
        return SL_FAIL(err, FORMAT, "tensor %.120s: its scale is not finite", w->name);
    for (int i = 0; w->part_scale && i < w->n_part; i++) {
        float s = fp_from_bits(tensor_get_u32(w->part_scale + 4 * i));
        if (!isfinite(s))
            return SL_FAIL(err, FORMAT, "tensor %.120s: the scale of expert %d is not finite",
                           w->name, i);
    }
    if (w->scheme == TENSOR_SCHEME_F8_BLOCK) {
        int64_t ld = (w->cols + w->block_cols - 1) / w->block_cols;
        int64_t n = (w->block_row0 + w->rows + w->block_rows - 1) / w->block_rows;
        for (int64_t i = 0; i < n * ld; i++)
            SL_TRY(check_scale(w, w->scale[i], i / ld * w->block_rows, i % ld, err));
        return SL_OK;
    }
    if (w->scheme != TENSOR_SCHEME_GROUP) return SL_OK;
    bool e4m3 = g->scale.type == TENSOR_F8_E4M3;
    int64_t n_scale = g->scale.ld_row == 0 && g->n_group == 1 ? 1 : g->n_row * g->n_group;
    if (g->scale.ld_row > g->n_group && g->scale.ld_group == 1) /* rows between those of another */
        n_scale = (g->n_row - 1) * g->scale.ld_row + g->n_group;
    int64_t n_row = g->scale2.p || suspicious(&g->scale, n_scale) ? w->rows : 0;
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t i = 0; i < g->n_group; i++) {
            float s = weight_scale_at(w, r, i);
            SL_TRY(check_scale(w, s, r, i, err));
            if (e4m3 && signbit(s))
                return SL_FAIL(err, FORMAT,
                               "tensor %.120s: the scale of row %lld, group %lld is negative",
                               w->name, (long long)r, (long long)i);
        }
    return g->codes == WEIGHT_I4 ? check_codes(w, err) : SL_OK;
}
