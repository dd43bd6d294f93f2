/* SPDX-License-Identifier: Apache-2.0 */
/* Products of code formats with SDOT by element: a 64-byte line is four registers of 4 rows x 4 k,
 * a lane of the activations multiplies each. A tile in two parts of 8 rows, so that the codes of 32
 * k are 16 registers. */
#include "kern/arm/codes_neon.h"

#define MM_ISA neon

struct wgroup {
    int8x16_t w[8][2]; /* line, rows 0-3 and 4-7 of the part */
    struct scales sc;
};

AI void load_group(struct wgroup *w, const uint8_t *blk, const uint8_t *codes, int g, int part,
                   enum mm_header header, enum mm_planes planes)
{
    load_scales(&w->sc, blk, g, part, header);
#pragma GCC unroll 8
    for (int l = 0; l < 8; l++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            w->w[l][i] = vreinterpretq_s8_u8(code(codes + 32 * part + 16 * i, l, planes));
}

AI int32x4_t four(int32x4_t s, const struct wgroup *w, int l, int i, int8x16_t x)
{
    s = vdotq_laneq_s32(s, w->w[l][i], x, 0);
    s = vdotq_laneq_s32(s, w->w[l + 1][i], x, 1);
    s = vdotq_laneq_s32(s, w->w[l + 2][i], x, 2);
    return vdotq_laneq_s32(s, w->w[l + 3][i], x, 3);
}

AI vacc column(const struct wgroup *w, const struct mm_rec *e, vacc acc, enum mm_header header,
               enum mm_planes planes, int half, int min, int off)
{
    int8x16_t x0 = vld1q_s8(e->q), x1 = vld1q_s8(e->q + 16);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        int32x4_t s = four(start(e, half ? 1 : 0, planes, off), w, 0, i, x0);
        int32x4_t u = four(half ? start(e, 2, planes, off) : s, w, 4, i, x1);
        acc.val[i] = finish(&w->sc, i, e, half ? s : u, u, acc.val[i], header, half, min);
    }
    return acc;
}

AI void columns(const struct wgroup *w, const struct mm_rec *const *x, size_t at, int n, float *acc,
                enum mm_header header, enum mm_planes planes, int half, int min, int off)
{
    for (int j = 0; j < n; j++)
        acc_store(acc + 16 * j,
                  column(w, x[j] + at, acc_load(acc + 16 * j), header, planes, half, min, off));
}

#include "kern/tmpl/mm_codes.inc"
