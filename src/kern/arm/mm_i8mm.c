/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with SMMLA: two lines of 4 rows zipped are two registers of 2 rows x 8
 * k, which multiply 8 k of two columns at once. A single column is its own neighbour. */
#include "kern/arm/codes_neon.h"

#define MM_ISA i8mm

struct wgroup {
    int8x16_t w[4][4]; /* pair of lines, pair of rows of the part */
    struct scales sc;
};

AI int8x16_t zip(uint8x16_t a, uint8x16_t b, int second)
{
    uint32x4_t x = vreinterpretq_u32_u8(a), y = vreinterpretq_u32_u8(b);
    return vreinterpretq_s8_u32(second ? vzip2q_u32(x, y) : vzip1q_u32(x, y));
}

AI void load_group(struct wgroup *w, const uint8_t *blk, const uint8_t *codes, int g, int part,
                   enum mm_header header, enum mm_planes planes)
{
    load_scales(&w->sc, blk, g, part, header);
#pragma GCC unroll 4
    for (int l = 0; l < 8; l += 2)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const uint8_t *c = codes + 32 * part + 16 * i;
            uint8x16_t a = code(c, l, planes), b = code(c, l + 1, planes);
            w->w[l / 2][2 * i] = zip(a, b, 0);
            w->w[l / 2][2 * i + 1] = zip(a, b, 1);
        }
}

/* Sums of two columns: rows 0, 1 of the first, rows 0, 1 of the second, and so on: part them. */
AI int32x4_t column_of(int32x4_t a, int32x4_t b, int second)
{
    return second ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b);
}

/* 16 k of 2 rows and 2 columns. */
AI int32x4_t sixteen(const struct wgroup *w, int l, int r, int8x16_t x, int8x16_t y)
{
    return vmmlaq_s32(vmmlaq_s32(vdupq_n_s32(0), w->w[l][r], x), w->w[l + 1][r], y);
}

/* 8 k of two columns. */
AI int8x16_t both(const struct mm_rec *e, const struct mm_rec *f, int k)
{
    return vcombine_s8(vld1_s8(e->q + k), vld1_s8(f->q + k));
}

/* Columns e and f; f may be e. */
AI void two(const struct wgroup *w, const struct mm_rec *e, const struct mm_rec *f, vacc acc[2],
            enum mm_header header, enum mm_planes planes, int half, int min, int off)
{
    int8x16_t x0 = both(e, f, 0), x1 = both(e, f, 8), x2 = both(e, f, 16), x3 = both(e, f, 24);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        int32x4_t s0 = sixteen(w, 0, 2 * i, x0, x1), s1 = sixteen(w, 0, 2 * i + 1, x0, x1);
        int32x4_t u0 = sixteen(w, 2, 2 * i, x2, x3), u1 = sixteen(w, 2, 2 * i + 1, x2, x3);
        if (!half) s0 = vaddq_s32(s0, u0), s1 = vaddq_s32(s1, u1);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const struct mm_rec *r = j ? f : e;
            int32x4_t s = vaddq_s32(column_of(s0, s1, j), start(r, half ? 1 : 0, planes, off));
            int32x4_t u = vaddq_s32(column_of(u0, u1, j), start(r, 2, planes, off));
            acc[j].val[i] = finish(&w->sc, i, r, s, u, acc[j].val[i], header, half, min);
        }
    }
}

AI vacc column(const struct wgroup *w, const struct mm_rec *e, vacc acc, enum mm_header header,
               enum mm_planes planes, int half, int min, int off)
{
    vacc a[2] = {acc, acc};
    two(w, e, e, a, header, planes, half, min, off);
    return a[0];
}

AI void columns(const struct wgroup *w, const struct mm_rec *const *x, size_t at, int n, float *acc,
                enum mm_header header, enum mm_planes planes, int half, int min, int off)
{
    int j = 0;
    for (; j + 1 < n; j += 2) {
        vacc a[2] = {acc_load(acc + 16 * j), acc_load(acc + 16 * j + 16)};
        two(w, x[j] + at, x[j + 1] + at, a, header, planes, half, min, off);
        acc_store(acc + 16 * j, a[0]);
        acc_store(acc + 16 * j + 16, a[1]);
    }
    if (j < n)
        acc_store(acc + 16 * j,
                  column(w, x[j] + at, acc_load(acc + 16 * j), header, planes, half, min, off));
}

#include "kern/tmpl/mm_codes.inc"
