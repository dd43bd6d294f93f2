/* SPDX-License-Identifier: Apache-2.0 */
/* Reference product kernels: generic C over the table of formats, with the same roundings in the
 * same order as all variants. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "kern/kern.h"

static void column(const struct mm_fmt_info *f, const struct mm_group *w, const struct mm_rec *e,
                   float acc[16])
{
    for (int r = 0; r < 16; r++) {
        int32_t sum[2] = {0, 0};
        for (int h = 0; h < 2 && f->off; h++)
            sum[h] = MM_START(e->i[f->half ? h + 1 : 0], f->off);
        for (int k = 0; k < 32; k++)
            sum[f->half ? k / 16 : 0] += (int32_t)w->code[k / 4][4 * r + k % 4] * e->q[k];
        float t = (float)sum[0] * w->sc[0][r];
        if (f->half) t = fmaf((float)sum[1], w->sc[1][r], t);
        acc[r] = fmaf(t, e->d, acc[r]);
        if (f->min) acc[r] = fmaf(-w->mn[0][r], f->half ? kern_mm_half_sum(e, 0) : e->s, acc[r]);
        if (f->min && f->half) acc[r] = fmaf(-w->mn[1][r], kern_mm_half_sum(e, 1), acc[r]);
    }
}

static void start(const struct mm_run *r, int t)
{
    for (int j = 0; j < r->n; j++)
        for (int i = 0; i < 16; i++)
            r->acc[16 * j + i] = r->add ? r->y[j * r->ldy + 16 * t + i] : 0.0f;
}

static void finish(const struct mm_run *r, int t)
{
    for (int j = 0; j < r->n; j++)
        memcpy(r->y + j * r->ldy + 16 * t, r->acc + 16 * j, 64);
}

/* Column j's record of group g has a second plane that counts. */
static int has_lo(const struct mm_run *r, int j, int g)
{
    if (!r->lo) return 0;
    if (r->n == 1) {
        for (int i = 0; i < r->n_lo; i++)
            if (r->lo_off[i] == g) return 1;
        return 0;
    }
    for (int l = r->lo_off[g]; l < r->lo_off[g + 1]; l++)
        if (r->lo_col[l] == j) return 1;
    return 0;
}

static void run_codes(int fmt, const struct mm_run *r)
{
    const struct mm_fmt_info *f = &kern_mm_fmts[fmt];
    int per = f->blk_k / 32;
    struct mm_group w;
    for (int t = 0; t < r->n_tile; t++) {
        float *hi = r->acc, *lo = hi + 16 * MM_N_COL;
        memset(hi, 0, sizeof(float) * 16 * (size_t)r->n);
        memset(lo, 0, sizeof(float) * 16 * (size_t)r->n);
        for (int g = 0; g < r->g1; g++) {
            kern_mm_group(
                fmt, r->w + (size_t)t * r->tile_bytes + (size_t)(g / per) * (size_t)f->blk_bytes,
                g % per, &w);
            for (int j = 0; j < r->n; j++) {
                column(f, &w, r->hi[j] + (size_t)g * r->step, hi + 16 * j);
                if (has_lo(r, j, g)) column(f, &w, r->lo[j] + g, lo + 16 * j);
            }
        }
        for (int j = 0; j < r->n; j++)
            for (int i = 0; i < 16; i++)
                r->y[j * r->ldy + 16 * t + i] =
                    (r->lo ? hi[16 * j + i] + lo[16 * j + i] : hi[16 * j + i]) * r->unit[j][t & 1];
    }
}

static void eight(const float *w, const float *x, float acc[16])
{
    for (int i = 0; i < 16; i++) {
        float t = w[16 + i] * x[1]; /* odd k before even: mm.h */
        t = fmaf(w[i], x[0], t);
        for (int k = 2; k < 8; k += 2) {
            t = fmaf(w[16 * (k + 1) + i], x[k + 1], t);
            t = fmaf(w[16 * k + i], x[k], t);
        }
        acc[i] += t;
    }
}

static void run_floats(int fmt, const struct mm_run *r)
{
    float w[32 * 16];
    for (int t = 0; t < r->n_tile; t++) {
        start(r, t);
        for (int g = 0; g < r->g1 - r->g0; g++) {
            kern_mm_group_f32(fmt, r->w + (size_t)t * r->tile_bytes, g, w);
            for (int j = 0; j < r->n; j++)
                for (int c = 0; c < 4; c++)
                    eight(w + 128 * c, r->x + ((size_t)(4 * g + c) * (size_t)r->n + (size_t)j) * 8,
                          r->acc + 16 * j);
        }
        finish(r, t);
    }
}

#define X(name, ...)                                                                               \
    void kern_mm_##name##_ref(const struct mm_run *r)                                              \
    {                                                                                              \
        run_codes(MM_##name, r);                                                                   \
    }
MM_CODE_FMTS(X)
#undef X
#define X(name, ...)                                                                               \
    void kern_mm_##name##_ref(const struct mm_run *r)                                              \
    {                                                                                              \
        run_floats(MM_##name, r);                                                                  \
    }
MM_FLOAT_FMTS(X)
#undef X

/* What follows from q and d. */
static void finish_rec(struct mm_rec *r, float d)
{
    r->d = d;
    r->e = d > 0.0f ? kern_mm_exponent(d) : 0.0f;
    for (int k = 0; k < 32; k++) {
        int16_t *p = &r->p[k / 16][k % 4 / 2];
        *p = (int16_t)(*p - 8 * r->q[k]);
    }
    r->i[1] = r->p[0][0] + r->p[0][1];
    r->i[2] = r->p[1][0] + r->p[1][1];
    r->i[0] = r->i[1] + r->i[2];
    r->s = r->d * (float)(r->i[0] / -8);
}

void kern_mm_bf16x_ref(const struct mm_run *r)
{
    float w[32 * 16], x[8];
    for (int t = 0; t < r->n_tile; t++) {
        start(r, t);
        for (int g = 0; g < r->g1 - r->g0; g++) {
            kern_mm_group_f32(MM_bf16, r->w + (size_t)t * r->tile_bytes, g, w);
            for (int i = 0; i < 4 * r->n; i++) { /* chunk i / n, column i % n */
                const uint16_t *src = r->xb + (size_t)(4 * g * r->n + i) * 8;
                for (int k = 0; k < 8; k++)
                    x[k] = fp_bf16_to_f32(src[k]);
                eight(w + 128 * (i / r->n), x, r->acc + 16 * (i % r->n));
            }
        }
        finish(r, t);
    }
}

void kern_mm_bf16_row_ref(const float *x, int n, uint16_t *y)
{
    for (int i = 0; i < n; i++)
        y[i] = fp_f32_to_bf16(x[i]);
}

void kern_mm_amax_ref(const float *x, int n_group, float *amax)
{
    for (int g = 0; g < n_group; g++, x += 32) {
        float m = 0.0f;
        for (int k = 0; k < 32; k++) {
            float a = fabsf(x[k]);
            m = a > m ? a : m;
        }
        amax[g] = m;
    }
}

void kern_mm_quant_ref(const float *x, int n_group, struct mm_rec *hi, struct mm_rec *lo,
                       const float *amax, float unit_inv)
{
    for (int g = 0; g < n_group; g++, x += 32) {
        struct mm_rec *h = &hi[g];
        int two = lo && !signbit(amax[g]), bad = 0;
        float m = fabsf(amax[g]);
        for (int k = 0; k < 32; k++)
            bad |= !(fabsf(x[k]) <= 3.402823466e38f);
        float d = kern_mm_step(m * unit_inv, two), inv = unit_inv / d;
        if (!(m * unit_inv >= MM_AMAX_MIN)) inv = d = 0.0f;
        memset(h, 0, sizeof(*h));
        if (two) memset(&lo[g], 0, sizeof(*lo));
        if (bad) {
            h->d = h->e = h->s = fp_from_bits(0x7fc00000u);
            continue;
        }
        for (int k = 0; k < 32; k++) {
            int v = (int)nearbyintf(x[k] * inv);
            int q = two ? (v + 64) >> 7 : v;
            h->q[k] = (int8_t)q;
            if (two) lo[g].q[k] = (int8_t)(v - 128 * q);
        }
        finish_rec(h, two ? d * 128.0f : d);
        if (two) finish_rec(&lo[g], d);
    }
}
