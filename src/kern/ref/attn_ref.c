/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on bf16 in plain C. */
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
