/* SPDX-License-Identifier: Apache-2.0 */
/* Integer codes: scale search shared by all of them, the legacy GGUF blocks, and the folders' int8,
 * int4 and awq. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "quant/round_internal.h"

/* ---- symmetric: x ~ d * q, q in [lo, hi] ---- */

static inline float square(float v)
{
    return v * v;
}

/* Up to 256 weights at a time in float, the sums of these in double. */
double quant_sym_error(const float *x, const float *w, int64_t n, float d, float lo, float hi)
{
    float id = d != 0.0f ? 1.0f / d : 0.0f, part;
    double e = 0;
    for (int64_t left = n; left > 0; left -= 256, x += 256) {
        int64_t k = left < 256 ? left : 256;
        if (w)
            QUANT_SUM(part, k, j, w[j] * square(x[j] - d * quant_near(x[j] * id, lo, hi)));
        else
            QUANT_SUM(part, k, j, square(x[j] - d * quant_near(x[j] * id, lo, hi)));
        e += (double)part;
        if (w) w += 256;
    }
    return e;
}

/* The scale that fits best to the codes that scale d gives; 0 when there is none. */
static float refit(const float *x, const float *w, int64_t n, float d, float lo, float hi)
{
    float id = d != 0.0f ? 1.0f / d : 0.0f, a, b;
    double xq = 0, qq = 0;
    for (int64_t left = n; left > 0; left -= 256, x += 256) {
        int64_t k = left < 256 ? left : 256;
        if (w) {
            QUANT_SUM(a, k, j, w[j] * x[j] * quant_near(x[j] * id, lo, hi));
            QUANT_SUM(b, k, j, w[j] * square(quant_near(x[j] * id, lo, hi)));
            w += 256;
        } else {
            QUANT_SUM(a, k, j, x[j] * quant_near(x[j] * id, lo, hi));
            QUANT_SUM(b, k, j, square(quant_near(x[j] * id, lo, hi)));
        }
        xq += (double)a;
        qq += (double)b;
    }
    return qq > 0 ? (float)(xq / qq) : 0.0f;
}

float quant_sym_scale(const float *x, const float *w, int64_t n, const struct quant_sym *s)
{
    float amax = 0.0f, top = 0.0f;
    for (int64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            top = x[i];
        }
    if (amax == 0.0f) return 0.0f;
    float base = s->negative ? top / s->lo : amax / s->reach;
    float best = s->store(base);
    if (!s->search) return best;
    double e_best = quant_sym_error(x, w, n, best, s->lo, s->hi);
    for (int i = 0; i < s->n_try; i++) {
        float f = s->f_lo + (s->f_hi - s->f_lo) * (float)i / (float)(s->n_try - 1);
        float d = s->store(refit(x, w, n, base * f, s->lo, s->hi));
        if (d == 0.0f || (!s->negative && d < 0.0f)) continue;
        double e = quant_sym_error(x, w, n, d, s->lo, s->hi);
        if (e < e_best) {
            e_best = e;
            best = d;
        }
    }
    return best;
}

float quant_store_f16(float v)
{
    return fp_f16_to_f32(fp_f32_to_f16(v));
}

static float store_bf16(float v)
{
    return fp_bf16_to_f32(fp_f32_to_bf16(v));
}

/* ---- the folders' types ---- */

static void per_channel(int bits, const float *x, const float *w, int64_t n, bool search,
                        struct quant_codes *out)
{
    float hi = bits == 8 ? 127.0f : 7.0f, lo = bits == 8 ? -127.0f : -8.0f;
    struct quant_sym s = {.lo = lo,
                          .hi = hi,
                          .reach = bits == 8 ? 127.0f : 7.5f,
                          .search = search,
                          .f_lo = bits == 8 ? 0.8f : 0.3f,
                          .f_hi = 1.05f,
                          .n_try = bits == 8 ? 6 : 31,
                          .store = store_bf16};
    float d = quant_sym_scale(x, w, n, &s);
    if (d == 0.0f) d = 1.0f; /* a row of zeros, or below the smallest scale */
    float id = 1.0f / d;
    for (int64_t j = 0; j < n; j++) {
        float q = quant_near(x[j] * id, lo, hi);
        out->q[j] = (int8_t)q;
        out->deq[j] = q * d;
    }
    out->scale[0] = d;
}

/* One group with a zero point: x ~ d * (q - z), all integers in [0, 15]. */
struct zp {
    float d, z;
};

static double zp_error(const float *x, const float *w, int n, struct zp p)
{
    float e, id = p.d != 0.0f ? 1.0f / p.d : 0.0f;
    if (w)
        QUANT_SUM(e, n, j,
                  w[j] * square(x[j] - p.d * (quant_near(x[j] * id + p.z, 0.0f, 15.0f) - p.z)));
    else
        QUANT_SUM(e, n, j, square(x[j] - p.d * (quant_near(x[j] * id + p.z, 0.0f, 15.0f) - p.z)));
    return (double)e;
}

static struct zp zp_of(float lo, float hi)
{
    struct zp p = {.d = quant_store_f16((hi - lo) / 15.0f)};
    if (p.d == 0.0f) p.d = 0x1p-24f; /* below f16's smallest */
    p.z = quant_near(-lo / p.d, 0.0f, 15.0f);
    return p;
}

static struct zp zp_refit(const float *x, const float *w, int n, struct zp p)
{
    float a, b, id = 1.0f / p.d;
    if (w) {
        QUANT_SUM(a, n, j, w[j] * x[j] * (quant_near(x[j] * id + p.z, 0.0f, 15.0f) - p.z));
        QUANT_SUM(b, n, j, w[j] * square(quant_near(x[j] * id + p.z, 0.0f, 15.0f) - p.z));
    } else {
        QUANT_SUM(a, n, j, x[j] * (quant_near(x[j] * id + p.z, 0.0f, 15.0f) - p.z));
        QUANT_SUM(b, n, j, square(quant_near(x[j] * id + p.z, 0.0f, 15.0f) - p.z));
    }
    float d = b > 0.0f ? quant_store_f16(a / b) : 0.0f;
    if (d > 0.0f) p.d = d;
    return p;
}

static struct zp zp_search(const float *x, const float *w, int n, bool search)
{
    float lo = 0.0f, hi = 0.0f;
    for (int j = 0; j < n; j++) {
        lo = x[j] < lo ? x[j] : lo;
        hi = x[j] > hi ? x[j] : hi;
    }
    if (hi == lo) return (struct zp){1.0f, 0.0f};
    struct zp best = zp_of(lo, hi);
    if (!search) return best;
    double e_best = zp_error(x, w, n, best);
    for (int i = 0; i <= 6; i++) /* clipping: a smaller range, finer steps */
        for (int side = 0; side < 3; side++) {
            float f = 1.0f - 0.07f * (float)i;
            struct zp p = zp_of(side == 2 ? lo : lo * f, side == 1 ? hi : hi * f);
            p = zp_refit(x, w, n, p);
            double e = zp_error(x, w, n, p);
            if (e < e_best) {
                e_best = e;
                best = p;
            }
        }
    return best;
}

static void awq_row(const float *x, const float *w, int64_t n, int group, bool search,
                    struct quant_codes *out)
{
    for (int64_t g = 0; g < n / group; g++, x += group) {
        struct zp p = zp_search(x, w ? w + g * group : NULL, group, search);
        float id = 1.0f / p.d;
        for (int j = 0; j < group; j++) {
            float q = quant_near(x[j] * id + p.z, 0.0f, 15.0f);
            out->q[g * group + j] = (int8_t)q;
            out->deq[g * group + j] = p.d * (q - p.z);
        }
        out->scale[g] = p.d;
        out->z[g] = (uint8_t)p.z;
    }
}

void quant_round_int(enum quant_type t, const struct quant_values *r, int group, bool search,
                     struct quant_codes *out)
{
    if (t == QUANT_AWQ)
        awq_row(r->x, r->weight, r->n, group, search, out);
    else
        per_channel(t == QUANT_INT8 ? 8 : 4, r->x, r->weight, r->n, search, out);
}

/* ---- GGUF's blocks of 32 ---- */

static void put_f16(uint8_t *p, float v)
{
    uint16_t h = fp_f32_to_f16(v);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* Nibbles: low of elements 0 .. 15, high of 16 .. 31; the fifth bits of all as 32 bits in qh (NULL
 * for 4-bit types). */
static void put_nibbles(const int *q, uint8_t *qh, uint8_t *qs)
{
    uint32_t high = 0;
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
    for (int j = 0; j < 32; j++)
        high |= (uint32_t)(q[j] >> 4 & 1) << j;
    for (int i = 0; qh && i < 4; i++)
        qh[i] = (uint8_t)(high >> 8 * i);
}

void quant_round_q8_0(const float *x, const float *w, bool search, uint8_t *dst)
{
    struct quant_sym s = {.lo = -127,
                          .hi = 127,
                          .reach = 127,
                          .search = search && w,
                          .f_lo = 0.95f,
                          .f_hi = 1.03f,
                          .n_try = 5,
                          .store = quant_store_f16};
    float d = quant_sym_scale(x, w, 32, &s), id = d != 0.0f ? 1.0f / d : 0.0f;
    put_f16(dst, d);
    for (int j = 0; j < 32; j++)
        dst[2 + j] = (uint8_t)(int8_t)quant_near(x[j] * id, -127.0f, 127.0f);
}

/* Q4_0 and Q5_0: half = 8 or 16. */
static void round_sym(int half, const float *x, const float *w, bool search, uint8_t *dst)
{
    struct quant_sym s = {.lo = -(float)half,
                          .hi = (float)(half - 1),
                          .negative = true,
                          .search = search,
                          .f_lo = 0.7f,
                          .f_hi = 1.15f,
                          .n_try = 19,
                          .store = quant_store_f16};
    float d = quant_sym_scale(x, w, 32, &s), id = d != 0.0f ? 1.0f / d : 0.0f;
    int q[32];
    put_f16(dst, d);
    for (int j = 0; j < 32; j++)
        q[j] = (int)quant_near(x[j] * id, s.lo, s.hi) + half;
    put_nibbles(q, half == 16 ? dst + 2 : NULL, dst + (half == 16 ? 6 : 2));
}

void quant_round_q4_0(const float *x, const float *w, bool search, uint8_t *dst)
{
    round_sym(8, x, w, search, dst);
}

void quant_round_q5_0(const float *x, const float *w, bool search, uint8_t *dst)
{
    round_sym(16, x, w, search, dst);
}

/* ---- with a minimum: x ~ d * q + m, q in [0, top] ---- */

static double affine_error(const float *x, const float *w, int n, float top, struct quant_affine a)
{
    float id = a.d != 0.0f ? 1.0f / a.d : 0.0f, e;
    if (w)
        QUANT_SUM(e, n, j,
                  w[j] * square(x[j] - (a.d * quant_near((x[j] - a.m) * id, 0.0f, top) + a.m)));
    else
        QUANT_SUM(e, n, j, square(x[j] - (a.d * quant_near((x[j] - a.m) * id, 0.0f, top) + a.m)));
    return (double)e;
}

/* The best d and m for the codes that a gives. m_neg: m is held at or below zero. */
static struct quant_affine affine_refit(const float *x, const float *w, int n, float top,
                                        bool m_neg, struct quant_affine a)
{
    double sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
    float id = a.d != 0.0f ? 1.0f / a.d : 0.0f;
    for (int j = 0; j < n; j++) {
        double q = (double)quant_near((x[j] - a.m) * id, 0.0f, top), wj = w ? (double)w[j] : 1.0;
        sw += wj;
        sq += wj * q;
        sqq += wj * q * q;
        sx += wj * (double)x[j];
        sxq += wj * (double)x[j] * q;
    }
    double det = sw * sqq - sq * sq;
    if (det <= 0) return a;
    double d = (sw * sxq - sq * sx) / det, m = (sqq * sx - sq * sxq) / det;
    if (m_neg && m > 0) {
        m = 0;
        d = sqq > 0 ? sxq / sqq : 0;
    }
    if (!(d > 0)) return a;
    return (struct quant_affine){(float)d, (float)m};
}

struct quant_affine quant_affine_fit(const float *x, const float *w, int n, float top, bool m_neg,
                                     bool search)
{
    float lo = x[0], hi = x[0];
    for (int j = 1; j < n; j++) {
        lo = x[j] < lo ? x[j] : lo;
        hi = x[j] > hi ? x[j] : hi;
    }
    if (m_neg && lo > 0.0f) lo = 0.0f;
    if (hi <= lo) return (struct quant_affine){0.0f, lo};
    struct quant_affine best = {(hi - lo) / top, lo};
    if (!search) return best;
    double e_best = affine_error(x, w, n, top, best);
    for (int i = 0; i < 18; i++) {
        float f = 0.68f + 0.03f * (float)i, mid = 0.5f * (hi + lo), half = 0.5f * (hi - lo) * f;
        struct quant_affine a = {2.0f * half / top, mid - half};
        if (m_neg && a.m > 0.0f) a.m = 0.0f;
        for (int k = 0; k < 2; k++) {
            a = affine_refit(x, w, n, top, m_neg, a);
            double e = affine_error(x, w, n, top, a);
            if (e < e_best) {
                e_best = e;
                best = a;
            }
        }
    }
    return best;
}

static void round_affine(int top, const float *x, const float *w, bool search, uint8_t *dst)
{
    struct quant_affine plain = quant_affine_fit(x, w, 32, (float)top, false, false), a = plain;
    a = (struct quant_affine){quant_store_f16(a.d), quant_store_f16(a.m)};
    if (search) {
        struct quant_affine b = quant_affine_fit(x, w, 32, (float)top, false, true);
        b = (struct quant_affine){quant_store_f16(b.d), quant_store_f16(b.m)};
        if (affine_error(x, w, 32, (float)top, b) < affine_error(x, w, 32, (float)top, a)) a = b;
    }
    float id = a.d != 0.0f ? 1.0f / a.d : 0.0f;
    int q[32];
    put_f16(dst, a.d);
    put_f16(dst + 2, a.m);
    for (int j = 0; j < 32; j++)
        q[j] = (int)quant_near((x[j] - a.m) * id, 0.0f, (float)top);
    put_nibbles(q, top == 31 ? dst + 4 : NULL, dst + (top == 31 ? 8 : 4));
}

void quant_round_q4_1(const float *x, const float *w, bool search, uint8_t *dst)
{
    round_affine(15, x, w, search, dst);
}

void quant_round_q5_1(const float *x, const float *w, bool search, uint8_t *dst)
{
    round_affine(31, x, w, search, dst);
}
