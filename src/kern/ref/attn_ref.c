/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on bf16 and on 16-bit integers in plain C. */
#include <math.h>

#include "base/fp.h"
#include "kern/kern.h"

void kern_attn_dot_bf16_ref(const struct attn_mm *m)
{
    for (int r = 0; r < m->n_row; r++)
        for (int j = 0; j < 16 * m->n_vec; j++) {
            float *c = m->c + r * m->ldc + j, s = m->add ? *c : 0;
            const uint16_t *a = m->a + r * m->lda, *b = m->b + j / 16 * m->ldb_v + 2 * (j % 16);
            for (int k = 0; k < m->n_k; k++, a += m->lda_k, b += m->ldb) {
                s = fmaf(fp_bf16_to_f32(a[1]), fp_bf16_to_f32(b[1]), s);
                s = fmaf(fp_bf16_to_f32(a[0]), fp_bf16_to_f32(b[0]), s);
            }
            *c = s;
        }
}

void kern_attn_mix_bf16_ref(const struct attn_mm *m)
{
    for (int r = 0; r < m->n_row; r++)
        for (int j = 0; j < 16 * m->n_vec; j++) {
            float *c = m->c + r * m->ldc + j, s = m->add ? *c : 0;
            for (int p = m->k0; p < m->n_k; p += 2) {
                const uint16_t *a = m->a + r * m->lda + p / 2 * m->lda_k;
                const uint16_t *b = m->blk[p / m->blk_rows] + p % m->blk_rows * m->ldb + j;
                if (p + 1 < m->n_k) s = fmaf(fp_bf16_to_f32(a[1]), fp_bf16_to_f32(b[m->ldb]), s);
                s = fmaf(fp_bf16_to_f32(a[0]), fp_bf16_to_f32(b[0]), s);
            }
            *c = s;
        }
}

static float weight(float x)
{
    float n = nearbyintf(x * ATTN_LOG2E), r = fmaf(x, ATTN_LOG2E, -n), p = ATTN_P5;
    if (x < -87.0f) return 0.0f;
    p = fmaf(p, r, ATTN_P4);
    p = fmaf(p, r, ATTN_P3);
    p = fmaf(p, r, ATTN_P2);
    p = fmaf(p, r, ATTN_P1);
    return isnan(x) ? x : ldexpf(fmaf(p, r, 1.0f), (int)n);
}

void kern_attn_soft_bf16_ref(const struct attn_soft *a)
{
    int g0 = a->lo / 16 * 16, g1 = (a->hi + 15) / 16 * 16;
    for (int r = 0; r < a->n_row; r++) {
        const float *s = a->s + r * a->lds;
        float m = -INFINITY, sum[16] = {0};
        for (int p = a->lo; p < a->hi; p++)
            m = s[p] > m ? s[p] : m;
        for (int p = g0; p < g1; p++) {
            float w = p < a->lo || p >= a->hi ? 0.0f : weight(s[p] - m);
            sum[p % 16] += w;
            a->w[r * a->ldw + p] = fp_f32_to_bf16(w);
        }
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; i++)
                sum[i] += sum[i + half];
        a->m[r] = m;
        a->l[r] = sum[0];
    }
}

void kern_attn_rows_bf16_ref(const float *x, int64_t ldx, int n_row, int n, uint16_t *y,
                             int64_t ldy)
{
    for (int r = 0; r < n_row; r++)
        for (int i = 0; i < n; i++)
            y[r * ldy + i] = fp_f32_to_bf16(x[r * ldx + i]);
}

void kern_attn_pairs_bf16_ref(const float *x, int64_t ldx, int n_row, int n, uint16_t *y,
                              int64_t ldy)
{
    for (int r = 0; r < n_row; r += 2)
        for (int i = 0; i < n; i++) {
            y[r / 2 * ldy + 2 * i] = fp_f32_to_bf16(x[r * ldx + i]);
            y[r / 2 * ldy + 2 * i + 1] = r + 1 < n_row ? fp_f32_to_bf16(x[(r + 1) * ldx + i]) : 0;
        }
}

void kern_attn_f16_rows_ref(const uint8_t *row, int64_t row_bytes, int n_row, int d, uint16_t *y,
                            int64_t ldy)
{
    for (int r = 0; r < n_row; r++, row += row_bytes, y += ldy) {
        const uint16_t *x = (const uint16_t *)(const void *)row;
        for (int i = 0; i < (d + 15) / 16 * 16; i++)
            y[i] = fp_f32_to_bf16(fp_f16_to_f32(x[i]));
    }
}

void kern_attn_f16_keys_ref(const uint8_t *group, int d, uint16_t *y)
{
    const uint16_t *x = (const uint16_t *)(const void *)group;
    for (int i = 0; i < d + d % 2; i++)
        for (int p = 0; p < 16; p++)
            y[i / 2 * 32 + 2 * p + i % 2] =
                i < d ? fp_f32_to_bf16(fp_f16_to_f32(x[16 * i + p])) : 0;
}

void kern_attn_q8_rows_ref(const uint8_t *row, int64_t row_bytes, int n_row, int d, uint16_t *y,
                           int64_t ldy)
{
    for (int r = 0; r < n_row; r++, row += row_bytes, y += ldy) {
        const float *scale = (const float *)(const void *)row;
        const int8_t *q = (const int8_t *)row + (d + 31) / 32 * 4;
        for (int i = 0; i < (d + 15) / 16 * 16; i++)
            y[i] = fp_f32_to_bf16(scale[i / 32] * (float)q[i]);
    }
}

void kern_attn_q8_keys_ref(const uint8_t *group, int d, uint16_t *y)
{
    const float *scale = (const float *)(const void *)group;
    const int8_t *q = (const int8_t *)group + (d + 31) / 32 * 64;
    for (int i = 0; i < d + d % 2; i++)
        for (int p = 0; p < 16; p++)
            y[i / 2 * 32 + 2 * p + i % 2] =
                i < d ? fp_f32_to_bf16(scale[i / 32 * 16 + p] * (float)q[16 * i + p]) : 0;
}

void kern_attn_q8_query_ref(const float *x, int d, int lane, int ld, int8_t *q, float *scale,
                            int32_t *bias)
{
    for (int g = 0; 32 * g < d; g++) {
        int n = d - 32 * g < 32 ? d - 32 * g : 32, sum = 0;
        float amax = 0;
        for (int i = 0; i < n; i++)
            amax = fmaxf(amax, fabsf(x[32 * g + i]));
        float inv = amax > 0 ? 127.0f / amax : 0.0f;
        if (!(inv <= 3.0e38f)) inv = 0.0f; /* subnormal: nothing left */
        for (int i = 0; i < (n + 3) / 4 * 4; i++) {
            int code = i < n ? (int)rintf(x[32 * g + i] * inv) : 0;
            q[4 * ((int64_t)(8 * g + i / 4) * ld + lane) + i % 4] = (int8_t)code;
            sum += code;
        }
        scale[g * ld + lane] = amax / 127.0f;
        bias[g * ld + lane] = -128 * sum;
    }
}

static const uint8_t *q8_row(const struct attn_q8 *m, int p)
{
    return m->blk[p / m->blk_rows] + p % m->blk_rows * m->row_bytes;
}

void kern_attn_dot_q8_ref(const struct attn_q8 *m)
{
    int ld = 16 * m->n_vec;
    for (int p = 0; p < m->n_pos; p++) {
        const float *scale = (const float *)(const void *)q8_row(m, p);
        const int8_t *k = (const int8_t *)(scale + (m->d + 31) / 32);
        for (int lane = 0; lane < ld; lane++) {
            float s = 0;
            for (int g = 0; 32 * g < m->d; g++) {
                int32_t sum = 0;
                for (int i = 32 * g; i < m->d && i < 32 * g + 32; i++)
                    sum += k[i] * m->q[4 * ((int64_t)(i / 4) * ld + lane) + i % 4];
                s = fmaf((float)sum, m->q_scale[g * ld + lane] * scale[g], s);
            }
            m->s[p * m->lds + lane] = s;
        }
    }
}

void kern_attn_mix_q8_ref(const struct attn_q8 *m)
{
    for (int r = 0; r < m->n_row; r++)
        for (int i = 0; i < 16 * m->n_vec; i++) {
            float c = 0;
            for (int p = 0; p < m->n_pos; p += 2)
                for (int odd = 1; odd >= 0; odd--) {
                    if (p + odd >= m->n_pos) continue;
                    const float *scale = (const float *)(const void *)q8_row(m, p + odd);
                    float w = m->s[(p + odd) * m->lds + r] * scale[i / 32];
                    int8_t code = ((const int8_t *)(scale + (m->d + 31) / 32))[i];
                    c = fmaf(fp_bf16_to_f32(fp_f32_to_bf16(w)), code, c);
                }
            m->c[r * m->ldc + i] = c;
        }
}

/* ---- 16-bit integers ---- */

static void put_codes(const float *x, int n, float inv, int16_t *y)
{
    for (int i = 0; i < (n + 15) / 16 * 16; i++)
        y[i] = (int16_t)(i < n && inv != 0.0f ? (int)nearbyintf(x[i] * inv) : 0);
}

/* The largest magnitude, NaN where there is one. */
static float largest(const float *x, int n)
{
    float m = 0;
    for (int i = 0; i < n; i++)
        m = isnan(x[i]) || fabsf(x[i]) > m ? fabsf(x[i]) : m;
    return m;
}

void kern_attn_rows_i16_ref(const float *x, int64_t ldx, int n_row, int n, int16_t *y, int64_t ldy,
                            float *scale, int64_t ld_scale)
{
    for (int r = 0; r < n_row; r++, x += ldx, y += ldy, scale += ld_scale) {
        float amax = largest(x, n), inv;
        *scale = attn_i16_scale(amax, ATTN_I16_ROW / amax, &inv);
        put_codes(x, n, inv, y);
    }
}

void kern_attn_f16_i16_ref(const uint8_t *row, int64_t row_bytes, int n_row, int n, int16_t *y,
                           int64_t ldy, float *scale, int64_t ld_scale)
{
    for (int r = 0; r < n_row; r++, row += row_bytes, y += ldy, scale += ld_scale) {
        const uint16_t *h = (const uint16_t *)(const void *)row;
        float amax = 0, inv;
        for (int i = 0; i < n; i++) {
            float a = fabsf(fp_f16_to_f32(h[i]));
            amax = isnan(a) || a > amax ? a : amax;
        }
        *scale = attn_i16_scale(amax, ATTN_I16_ROW / amax, &inv);
        for (int i = 0; i < n; i += 16) {
            float x[16];
            for (int k = 0; k < 16; k++)
                x[k] = fp_f16_to_f32(h[i + k]);
            put_codes(x, 16, inv, y + i);
        }
    }
}

void kern_attn_query_i16_ref(const float *x, int n, int16_t *y, float *scale)
{
    float sum[8] = {0}, amax = largest(x, n), inv;
    for (int i = 0; i < n; i++)
        sum[i % 8] += fabsf(x[i]);
    for (int half = 4; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sum[i] += sum[i + half];
    inv = fminf((float)(ATTN_I16_SUM - n) / sum[0], ATTN_I16_MAX / amax);
    *scale = attn_i16_scale(amax, inv, &inv);
    put_codes(x, n, inv, y);
}

void kern_attn_dot_i16_ref(const struct attn_i16 *m)
{
    for (int p = 0; p < m->n_pos; p++)
        for (int lane = 0; lane < m->ld; lane++) {
            const int16_t *x = m->x + p * m->ldx, *q = m->q + 2 * lane;
            float *s = m->s + p * m->ld + lane;
            int32_t sum = 0;
            for (int k = 0; k < m->n_pair; k++, x += 2, q += 2 * m->ld)
                sum += x[0] * q[0] + x[1] * q[1];
            *s = fmaf((float)sum, m->q_scale[lane] * m->x_scale[p * m->ld_scale], m->add ? *s : 0);
        }
}

void kern_attn_weights_i16_ref(const struct attn_i16 *m, const int32_t *hi, int16_t *w,
                               float *w_scale)
{
    for (int lane = 0; lane < m->ld; lane++) {
        float sum = 0, max = 0, inv;
        for (int p = 0; p < hi[lane]; p++) {
            float v = m->s[p * m->ld + lane] * m->x_scale[p * m->ld_scale];
            sum += v;
            max = v > max ? v : max;
        }
        inv = fminf((float)(ATTN_I16_SUM - hi[lane]) / sum, ATTN_I16_MAX / max);
        w_scale[lane] = attn_i16_scale(sum, inv, &inv);
        for (int p = 0; p < (m->n_pos + 1) / 2 * 2; p++) {
            float v = p < hi[lane] ? m->s[p * m->ld + lane] * m->x_scale[p * m->ld_scale] : 0;
            w[2 * (p / 2 * m->ld + lane) + p % 2] =
                (int16_t)(inv != 0.0f ? (int)nearbyintf(v * inv) : 0);
        }
    }
}

void kern_attn_mix_i16_ref(const struct attn_i16 *m)
{
    for (int lane = 0; lane < m->n_lane; lane++)
        for (int i = 0; i < (m->n + 15) / 16 * 16; i++) {
            int32_t sum = 0;
            for (int p = 0; p < m->n_pos; p++)
                sum += m->w[2 * (p / 2 * m->ld + lane) + p % 2] * m->x[p * m->ldx + i];
            m->c[lane * m->ldc + i] = (float)sum * m->w_scale[lane];
        }
}
