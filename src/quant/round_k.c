/* SPDX-License-Identifier: Apache-2.0 */
/* The K types: small integer scales of sub-blocks under f16 scales of 256 weights. First the best
 * scale of each sub-block by itself, then the super-block's scale, then each sub-block's integers
 * again among their neighbours. */
#include <math.h>
#include <string.h>

#include "base/fp.h"
#include "quant/round_internal.h"

static void put_f16(uint8_t *p, float v)
{
    uint16_t h = fp_f32_to_f16(v);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* Error of one sub-block with x ~ d * q - m. */
static float error_min(const float *x, const float *w, float d, float m, float top)
{
    float r[32], e, id = d != 0.0f ? 1.0f / d : 0.0f;
    for (int j = 0; j < 32; j++)
        r[j] = x[j] - (d * quant_near((x[j] + m) * id, 0.0f, top) - m);
    if (w)
        QUANT_SUM(e, 32, j, w[j] * r[j] * r[j]);
    else
        QUANT_SUM(e, 32, j, r[j] * r[j]);
    return e;
}

struct kblock {
    float d, dmin;
    int sc[8], m[8];
};

/* Integers of the sub-blocks for given fits; wide: also their neighbours. */
static double choose(const float *x, const float *w, float top, bool wide,
                     const struct quant_affine *fit, struct kblock *b)
{
    float d_max = 0.0f, m_max = 0.0f;
    double sum = 0;
    for (int g = 0; g < 8; g++) {
        d_max = fmaxf(d_max, fit[g].d);
        m_max = fmaxf(m_max, -fit[g].m);
    }
    b->d = quant_store_f16(d_max / 63.0f);
    b->dmin = quant_store_f16(m_max / 63.0f);
    for (int g = 0; g < 8; g++) {
        const float *wg = w ? w + 32 * g : NULL;
        int sc = b->d > 0.0f ? (int)quant_near(fit[g].d / b->d, 0, 63) : 0;
        int m = b->dmin > 0.0f ? (int)quant_near(-fit[g].m / b->dmin, 0, 63) : 0;
        float best = INFINITY;
        for (int i = -wide; i <= wide; i++)
            for (int k = -wide; k <= wide; k++) {
                int s = sc + i, n = m + k;
                if (s < 0 || s > 63 || n < 0 || n > 63) continue;
                float e = error_min(x + 32 * g, wg, b->d * (float)s, b->dmin * (float)n, top);
                if (!(e < best)) continue;
                best = e;
                b->sc[g] = s;
                b->m[g] = n;
            }
        sum += (double)best;
    }
    return sum;
}

static void put_scales(const struct kblock *b, uint8_t *s)
{
    memset(s, 0, 12);
    for (int g = 0; g < 4; g++) {
        s[g] = (uint8_t)(b->sc[g] | (b->sc[g + 4] >> 4) << 6);
        s[g + 4] = (uint8_t)(b->m[g] | (b->m[g + 4] >> 4) << 6);
        s[g + 8] = (uint8_t)((b->sc[g + 4] & 15) | (b->m[g + 4] & 15) << 4);
    }
}

/* Q4_K and Q5_K: top = 15 or 31. */
static void round_k(int top, const float *x, const float *w, bool search, uint8_t *dst)
{
    struct quant_affine fit[8];
    struct kblock b, c;
    for (int g = 0; g < 8; g++)
        fit[g] = quant_affine_fit(x + 32 * g, w ? w + 32 * g : NULL, 32, (float)top, true, false);
    double e = choose(x, w, (float)top, false, fit, &b);
    if (search) {
        for (int g = 0; g < 8; g++)
            fit[g] =
                quant_affine_fit(x + 32 * g, w ? w + 32 * g : NULL, 32, (float)top, true, true);
        if (choose(x, w, (float)top, true, fit, &c) < e) b = c;
    }
    put_f16(dst, b.d);
    put_f16(dst + 2, b.dmin);
    put_scales(&b, dst + 4);
    uint8_t *qh = dst + 16, *qs = dst + (top == 31 ? 48 : 16);
    memset(qh, 0, top == 31 ? 160 : 128);
    for (int g = 0; g < 8; g++) {
        float d = b.d * (float)b.sc[g], m = b.dmin * (float)b.m[g],
              id = d != 0.0f ? 1.0f / d : 0.0f;
        for (int l = 0; l < 32; l++) {
            int q = (int)quant_near((x[32 * g + l] + m) * id, 0.0f, (float)top);
            qs[32 * (g / 2) + l] |= (uint8_t)((q & 15) << 4 * (g % 2));
            if (top == 31) qh[l] |= (uint8_t)((q >> 4) << g);
        }
    }
}

void quant_round_q4_k(const float *x, const float *w, bool search, uint8_t *dst)
{
    round_k(15, x, w, search, dst);
}

void quant_round_q5_k(const float *x, const float *w, bool search, uint8_t *dst)
{
    round_k(31, x, w, search, dst);
}

static float identity(float v)
{
    return v;
}

/* The integer scale of 16 weights under d: the nearest, and its neighbours when wide. */
static int choose_q6(const float *x, const float *w, float fit, float d, bool wide)
{
    int s0 = d != 0.0f ? (int)quant_near(fit / d, -128, 127) : 0, best_s = s0;
    if (!wide) return s0;
    double best = INFINITY;
    for (int s = s0 - 2; s <= s0 + 2; s++) {
        if (s < -128 || s > 127) continue;
        double e = quant_sym_error(x, w, 16, d * (float)s, -32, 31);
        if (e < best) {
            best = e;
            best_s = s;
        }
    }
    return best_s;
}

/* d and the 16 scales; returns the error. */
static double scales_q6(const float *x, const float *w, bool search, float *d, int *sc)
{
    struct quant_sym s = {.lo = -32,
                          .hi = 31,
                          .negative = true,
                          .search = search,
                          .f_lo = 0.85f,
                          .f_hi = 1.1f,
                          .n_try = 11,
                          .store = identity};
    float fit[16], top = 0.0f;
    double e = 0;
    for (int g = 0; g < 16; g++) {
        fit[g] = quant_sym_scale(x + 16 * g, w ? w + 16 * g : NULL, 16, &s);
        if (fabsf(fit[g]) > fabsf(top)) top = fit[g];
    }
    *d = quant_store_f16(top / -128.0f);
    for (int g = 0; g < 16; g++) {
        const float *wg = w ? w + 16 * g : NULL;
        sc[g] = choose_q6(x + 16 * g, wg, fit[g], *d, search);
        e += quant_sym_error(x + 16 * g, wg, 16, *d * (float)sc[g], -32, 31);
    }
    return e;
}

void quant_round_q6_k(const float *x, const float *w, bool search, uint8_t *dst)
{
    float d, d2;
    int sc[16], sc2[16];
    double e = scales_q6(x, w, false, &d, sc);
    if (search && scales_q6(x, w, true, &d2, sc2) < e) {
        d = d2;
        memcpy(sc, sc2, sizeof sc);
    }
    memset(dst, 0, 192);
    put_f16(dst + 208, d);
    for (int g = 0; g < 16; g++)
        dst[192 + g] = (uint8_t)(int8_t)sc[g];
    for (int i = 0; i < 256; i++) {
        float dl = d * (float)sc[i / 16], id = dl != 0.0f ? 1.0f / dl : 0.0f;
        int q = (int)quant_near(x[i] * id, -32, 31) + 32;
        int half = i / 128, quarter = i / 32 % 4, l = i % 32;
        dst[64 * half + 32 * (quarter % 2) + l] |= (uint8_t)((q & 15) << 4 * (quarter / 2));
        dst[128 + 32 * half + l] |= (uint8_t)((q >> 4) << 2 * quarter);
    }
}
