/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on 16 bits: every variant against sums in double, sums cut into calls, conversions
 * against base/fp.h bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/fp.h"
#include "check.h"

#define U 5.9604644775390625e-8

static uint16_t *random_bf16(struct check *c, int64_t n)
{
    uint16_t *p = check_alloc(c, (size_t)n * 2);
    for (int64_t i = 0; i < n; i++)
        p[i] = fp_f32_to_bf16(check_randf(c));
    return p;
}

static int64_t some(struct check *c, int lo, int hi)
{
    return lo + (int)check_rand(c, (uint32_t)(hi - lo + 1));
}

typedef void (*run_fn)(const struct attn_mm *m);

/* One product against double, then the same in two calls, which must give the same bits. */
static void compare(struct check *c, run_fn run, struct attn_mm m, int mix)
{
    int64_t n_c = (m.n_row - 1) * m.ldc + 16 * m.n_vec;
    float *was = check_alloc(c, (size_t)n_c * 4), *two = check_alloc(c, (size_t)n_c * 4);
    for (int64_t i = 0; i < n_c; i++)
        two[i] = was[i] = m.c[i] = check_randf(c);
    run(&m);
    c->n_case++;
    for (int r = 0; r < m.n_row; r++)
        for (int j = 0; j < 16 * m.n_vec; j++) {
            double s = m.add ? was[r * m.ldc + j] : 0, sum = fabs(s);
            for (int k = m.k0; k < (mix ? m.n_k : 2 * m.n_k); k++) {
                const uint16_t *b =
                    mix ? m.blk[k / m.blk_rows] + k % m.blk_rows * m.ldb + j
                        : m.b + k / 2 * m.ldb + j / 16 * m.ldb_v + 2 * (j % 16) + k % 2;
                double x = (double)fp_bf16_to_f32(m.a[r * m.lda + k / 2 * m.lda_k + k % 2]) *
                           (double)fp_bf16_to_f32(*b);
                s += x;
                sum += fabs(x);
            }
            double got = m.c[r * m.ldc + j];
            if (!(fabs(got - s) <= (2 * m.n_k + 2) * U * sum + 1e-37))
                check_fail(c, "rows %d vectors %d k %d: [%d][%d] is %.9g, not %.9g", m.n_row,
                           m.n_vec, m.n_k, r, j, got, s);
        }
    for (int r = 0; r + 1 < m.n_row; r++)
        for (int64_t j = 16 * m.n_vec; j < m.ldc; j++)
            if (fp_to_bits(m.c[r * m.ldc + j]) != fp_to_bits(was[r * m.ldc + j]))
                check_fail(c, "wrote past the vectors of row %d", r);
    int cut = mix ? m.k0 + (m.n_k - m.k0) / 4 * 2 : m.n_k / 2,
        row = m.n_row / 3; /* elsewhere in k, and in rows */
    struct attn_mm t = m;
    for (int part = 0; part < 4; part++) {
        int r0 = part / 2 ? row : 0, k0 = part % 2 ? cut : 0, first = mix ? 0 : k0;
        t.n_row = part / 2 ? m.n_row - row : row;
        t.n_k = !(part % 2) ? cut : mix ? m.n_k : m.n_k - cut;
        if (mix) t.k0 = part % 2 ? cut : m.k0;
        t.add = part % 2 ? 1 : m.add;
        t.a = m.a + r0 * m.lda + first * m.lda_k;
        t.b = m.b + first * m.ldb;
        t.c = two + r0 * m.ldc;
        if (t.n_row) run(&t);
    }
    if (memcmp(two, m.c, (size_t)n_c * 4) != 0)
        check_fail(c, "rows %d vectors %d k %d: other bits in parts", m.n_row, m.n_vec, m.n_k);
}

void check_attn_dot_bf16(struct check *c, run_fn variant)
{
    for (int i = 0; i < 60; i++) {
        int n_row = (int)some(c, 1, i % 4 ? 17 : 50), n_vec = (int)some(c, 1, 7);
        int n_k = (int)some(c, 1, i % 3 ? 20 : 288), rows_in_lines = i % 2;
        struct attn_mm m = {.n_row = n_row, .n_vec = n_vec, .n_k = n_k, .add = i / 2 % 2};
        m.lda = rows_in_lines ? 2 * n_k + some(c, 0, 3) : 2;
        m.lda_k = rows_in_lines ? 2 : 2 * n_row;
        m.ldb_v = i % 5 ? 32 : 32 * n_k + 32 * some(c, 0, 2);
        m.ldb = i % 5 ? 32 * n_vec : 32;
        m.a = random_bf16(c, (n_row - 1) * m.lda + (n_k - 1) * m.lda_k + 2);
        m.b = random_bf16(c, (n_k - 1) * m.ldb + (n_vec - 1) * m.ldb_v + 32);
        m.ldc = 16 * n_vec + some(c, 0, 3);
        m.c = check_alloc(c, (size_t)((n_row - 1) * m.ldc + 16 * n_vec) * 4);
        struct attn_region next[2] = {{check_alloc(c, 1000), 1000}, {check_alloc(c, 64), 64}};
        m.next = next;
        m.n_next = i % 3;
        compare(c, variant, m, 0);
        check_free_all();
    }
}

void check_attn_mix_bf16(struct check *c, run_fn variant)
{
    for (int i = 0; i < 60; i++) {
        int n_row = (int)some(c, 1, i % 4 ? 17 : 50), n_vec = (int)some(c, 1, 7);
        int n_pos = (int)some(c, 1, i % 3 ? 20 : 128), rows_in_lines = i % 2;
        int n_pair = (n_pos + 1) / 2;
        struct attn_mm m = {.n_row = n_row, .n_vec = n_vec, .n_k = n_pos, .add = i / 2 % 2};
        m.lda = rows_in_lines ? 2 * n_pair + some(c, 0, 3) : 2;
        m.lda_k = rows_in_lines ? 2 : 2 * n_row;
        m.ldb = 16 * n_vec + some(c, 0, 3);
        m.a = random_bf16(c, (n_row - 1) * m.lda + (n_pair - 1) * m.lda_k + 2);
        const uint16_t *blk[64];
        m.blk = blk;
        m.blk_rows = 2 * (int)some(c, 1, 20);
        m.k0 = i % 3 ? 0 : 2 * (int)some(c, 0, (n_pos - 1) / 2);
        for (int p = 0; p < n_pos; p += m.blk_rows) {
            int n = n_pos - p < m.blk_rows ? n_pos - p : m.blk_rows;
            blk[p / m.blk_rows] = random_bf16(c, (n - 1) * m.ldb + 16 * n_vec);
        }
        m.ldc = 16 * n_vec + some(c, 0, 3);
        m.c = check_alloc(c, (size_t)((n_row - 1) * m.ldc + 16 * n_vec) * 4);
        compare(c, variant, m, 1);
        check_free_all();
    }
}

typedef void (*convert_fn)(const float *x, int64_t ldx, int n_row, int n, uint16_t *y, int64_t ldy);

static void check_convert(struct check *c, convert_fn variant, int pairs)
{
    for (int i = 0; i < 60; i++) {
        int n_row = (int)some(c, 1, 9), n = (int)some(c, 1, 70),
            n_out = pairs ? (n_row + 1) / 2 : n_row;
        int64_t ldx = n + some(c, 0, 3), wide = pairs ? 2 * n : n, ldy = wide + some(c, 0, 3);
        float *x = check_alloc(c, (size_t)((n_row - 1) * ldx + n) * 4);
        size_t n_y = (size_t)((n_out - 1) * ldy + wide);
        uint16_t *y = check_alloc(c, n_y * 2);
        for (int64_t k = 0; k < (n_row - 1) * ldx + n; k++)
            x[k] = check_rand(c, 50)  ? check_randf(c) * 0x1p10f
                   : check_rand(c, 2) ? INFINITY
                                      : 0.0f;
        variant(x, ldx, n_row, n, y, ldy);
        c->n_case++;
        for (int r = 0; r < n_out; r++)
            for (int k = 0; k < ldy; k++) {
                if (r + 1 == n_out && k >= wide) break;
                int row = pairs ? 2 * r + k % 2 : r;
                uint16_t want = k >= wide      ? 0xffff
                                : row >= n_row ? 0
                                               : fp_f32_to_bf16(x[row * ldx + (pairs ? k / 2 : k)]);
                if (y[r * ldy + k] != want)
                    check_fail(c, "[%d][%d] is %04x, not %04x", r, k, y[r * ldy + k], want);
            }
        check_free_all();
    }
}

void check_attn_rows_bf16(struct check *c, convert_fn variant)
{
    check_convert(c, variant, 0);
}

void check_attn_pairs_bf16(struct check *c, convert_fn variant)
{
    check_convert(c, variant, 1);
}

/* n bytes of codes after scales; the reference is what is compared with. */
static uint8_t *random_q8(struct check *c, size_t n_scale, size_t n)
{
    uint8_t *p = check_alloc(c, 4 * n_scale + n);
    for (size_t i = 0; i < n_scale; i++) {
        float s = check_rand(c, 20) ? check_randf(c) : i % 2 ? NAN : 0.0f;
        memcpy(p + 4 * i, &s, 4);
    }
    for (size_t i = 0; i < n; i++)
        p[4 * n_scale + i] = (uint8_t)check_rand(c, 256);
    return p;
}

static void same_bf16(struct check *c, const uint16_t *a, const uint16_t *b, size_t n)
{
    c->n_case++;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && !((a[i] & 0x7fff) > 0x7f80 && (b[i] & 0x7fff) > 0x7f80))
            check_fail(c, "[%zu] is %04x, not %04x", i, a[i], b[i]);
}

void check_attn_soft_bf16(struct check *c, void (*variant)(const struct attn_soft *a))
{
    for (int i = 0; i < 200; i++) {
        int n_row = (int)some(c, 1, 5), lo = i % 3 ? 0 : (int)some(c, 0, 127);
        int hi = i % 4 ? (int)some(c, lo + 1, 128) : 128;
        size_t g0 = (size_t)lo / 16 * 16, g1 = (size_t)(hi + 15) / 16 * 16, n = (size_t)n_row * 128;
        float *s = check_alloc(c, 4 * n), *t = check_alloc(c, 4 * n), m[2][5], l[2][5];
        uint16_t *w = check_alloc(c, 2 * n), *v = check_alloc(c, 2 * n);
        for (size_t k = 0; k < n; k++) /* what is not seen may be anything */
            s[k] = check_rand(c, 50) ? 20 * check_randf(c) : -INFINITY;
        for (size_t r = 0; r < (size_t)n_row; r++)
            for (size_t p = 0; p < 128; p++)
                if ((int)p < lo || (int)p >= hi)
                    s[128 * r + p] = check_rand(c, 2) ? NAN : 1e30f;
                else if ((int)p == lo)
                    s[128 * r + p] = check_randf(c);
        memcpy(t, s, 4 * n);
        struct attn_soft a = {s, 128, w, 128, n_row, lo, hi, m[0], l[0]};
        variant(&a);
        a = (struct attn_soft){t, 128, v, 128, n_row, lo, hi, m[1], l[1]};
        kern_attn_soft_bf16_ref(&a);
        for (size_t r = 0; r < (size_t)n_row; r++)
            same_bf16(c, w + 128 * r + g0, v + 128 * r + g0, g1 - g0);
        if (memcmp(m[0], m[1], 4 * (size_t)n_row) || memcmp(l[0], l[1], 4 * (size_t)n_row))
            check_fail(c, "rows %d, %d .. %d: other largest or sum", n_row, lo, hi);
        check_free_all();
    }
}

static uint16_t *random_f16(struct check *c, size_t n)
{
    uint16_t *p = check_alloc(c, 2 * n);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint16_t)check_rand(c, 1 << 16);
    return p;
}

void check_attn_f16_rows(struct check *c,
                         void (*variant)(const uint8_t *row, int64_t row_bytes, int n_row, int d,
                                         uint16_t *y, int64_t ldy))
{
    for (int i = 0; i < 60; i++) {
        int d = (int)some(c, 1, i % 2 ? 70 : 600), n_row = (int)some(c, 1, 3);
        size_t d16 = (size_t)(d + 15) / 16 * 16, n = (size_t)n_row * d16;
        const uint8_t *row = (const uint8_t *)random_f16(c, n);
        uint16_t *y = check_alloc(c, 2 * n), *z = check_alloc(c, 2 * n);
        variant(row, 2 * (int64_t)d16, n_row, d, y, (int64_t)d16);
        kern_attn_f16_rows_ref(row, 2 * (int64_t)d16, n_row, d, z, (int64_t)d16);
        same_bf16(c, y, z, n);
        check_free_all();
    }
}

void check_attn_f16_keys(struct check *c, void (*variant)(const uint8_t *group, int d, uint16_t *y))
{
    for (int i = 0; i < 60; i++) {
        int d = (int)some(c, 1, 140);
        size_t n = (size_t)(d + d % 2) * 16;
        const uint8_t *group = (const uint8_t *)random_f16(c, (size_t)d * 16);
        uint16_t *y = check_alloc(c, 2 * n), *z = check_alloc(c, 2 * n);
        variant(group, d, y);
        kern_attn_f16_keys_ref(group, d, z);
        same_bf16(c, y, z, n);
        check_free_all();
    }
}

void check_attn_q8_rows(struct check *c,
                        void (*variant)(const uint8_t *row, int64_t row_bytes, int n_row, int d,
                                        uint16_t *y, int64_t ldy))
{
    for (int i = 0; i < 60; i++) {
        int d = (int)some(c, 1, i % 2 ? 70 : 600), d16 = (d + 15) / 16 * 16;
        size_t n_scale = (size_t)(d + 31) / 32, n = 2 * (size_t)d16;
        const uint8_t *row = random_q8(c, n_scale, (size_t)d16);
        uint16_t *y = check_alloc(c, n), *z = check_alloc(c, n);
        variant(row, 0, 1, d, y, d16);
        kern_attn_q8_rows_ref(row, 0, 1, d, z, d16);
        same_bf16(c, y, z, (size_t)d16);
        check_free_all();
    }
}

void check_attn_q8_keys(struct check *c, void (*variant)(const uint8_t *group, int d, uint16_t *y))
{
    for (int i = 0; i < 60; i++) {
        int d = (int)some(c, 1, 140);
        size_t n_scale = (size_t)(d + 31) / 32 * 16, n = (size_t)(d + d % 2) * 16;
        const uint8_t *group = random_q8(c, n_scale, (size_t)d * 16);
        uint16_t *y = check_alloc(c, 2 * n), *z = check_alloc(c, 2 * n);
        variant(group, d, y);
        kern_attn_q8_keys_ref(group, d, z);
        same_bf16(c, y, z, n);
        check_free_all();
    }
}

void check_attn_q8_query(struct check *c, void (*variant)(const float *x, int d, int lane, int ld,
                                                          int8_t *q, float *scale, int32_t *bias))
{
    for (int i = 0; i < 60; i++) {
        int d = (int)some(c, 1, i % 2 ? 70 : 600), ld = 16 * (int)some(c, 1, 4), d4 = (d + 3) / 4;
        int lane = (int)some(c, 0, ld - 1), n_g = (d + 31) / 32;
        float *x = check_alloc(c, 4 * (size_t)d);
        size_t n = 4 * (size_t)(d4 * ld), n_s = 4 * (size_t)(n_g * ld);
        int8_t *q = check_alloc(c, n), *q2 = check_alloc(c, n);
        float *s = check_alloc(c, n_s), *s2 = check_alloc(c, n_s);
        int32_t *b = check_alloc(c, n_s), *b2 = check_alloc(c, n_s);
        float gain = i % 5 ? 1.0f : i % 10 ? 1e-42f : 0.0f;
        for (int k = 0; k < d; k++)
            x[k] = check_randf(c) * gain;
        variant(x, d, lane, ld, q, s, b);
        kern_attn_q8_query_ref(x, d, lane, ld, q2, s2, b2);
        c->n_case++;
        if (memcmp(q, q2, n) || memcmp(s, s2, n_s) || memcmp(b, b2, n_s))
            check_fail(c, "d %d lane %d of %d: other bits", d, lane, ld);
        check_free_all();
    }
}

/* Rows of a q8 cache in blocks, to m->blk. */
static void random_rows(struct check *c, struct attn_q8 *m, const uint8_t **blk)
{
    size_t d16 = (size_t)(m->d + 15) / 16 * 16, n_scale = (size_t)(m->d + 31) / 32;
    m->row_bytes = (int64_t)(4 * n_scale + d16 + 15) / 16 * 16;
    m->blk_rows = (int)some(c, 1, 40);
    m->blk = blk;
    for (int p = 0; p < m->n_pos; p += m->blk_rows) {
        int n = m->n_pos - p < m->blk_rows ? m->n_pos - p : m->blk_rows;
        uint8_t *b = check_alloc(c, (size_t)(n - 1) * (size_t)m->row_bytes + 4 * n_scale + d16);
        blk[p / m->blk_rows] = b;
        for (int i = 0; i < n; i++, b += m->row_bytes) {
            for (size_t g = 0; g < n_scale; g++) {
                float s = check_randf(c);
                memcpy(b + 4 * g, &s, 4);
            }
            for (size_t k = 0; k < d16; k++)
                b[4 * n_scale + k] =
                    k < (size_t)m->d ? (uint8_t)(check_rand(c, 4) ? check_rand(c, 256) : 128) : 0;
        }
    }
}

void check_attn_dot_q8(struct check *c, void (*variant)(const struct attn_q8 *m))
{
    for (int i = 0; i < 60; i++) {
        const uint8_t *blk[128];
        struct attn_q8 m = {.d = (int)some(c, 1, i % 2 ? 70 : 600),
                            .n_pos = (int)some(c, 1, i % 4 ? 30 : 128),
                            .n_vec = (int)some(c, 1, 4)};
        int ld = 16 * m.n_vec, n_g = (m.d + 31) / 32;
        random_rows(c, &m, blk);
        int8_t *q = check_alloc(c, 4 * (size_t)((m.d + 3) / 4 * ld));
        float *scale = check_alloc(c, 4 * (size_t)(n_g * ld)), *x = check_alloc(c, 4 * (size_t)m.d);
        int32_t *bias = check_alloc(c, 4 * (size_t)(n_g * ld));
        for (int lane = 0; lane < ld; lane++) {
            for (int k = 0; k < m.d; k++)
                x[k] = check_rand(c, 3) ? check_randf(c) : 1.0f;
            kern_attn_q8_query_ref(x, m.d, lane, ld, q, scale, bias);
        }
        struct attn_region next[2] = {{check_alloc(c, 1000), 1000}, {check_alloc(c, 64), 64}};
        m.next = next;
        m.n_next = i % 3;
        m.q = q;
        m.q_scale = scale;
        m.q_bias = bias;
        m.lds = ld + some(c, 0, 3);
        size_t n = 4 * (size_t)((m.n_pos - 1) * m.lds + ld);
        float *got = check_alloc(c, n), *want = check_alloc(c, n);
        m.s = got;
        variant(&m);
        m.s = want;
        kern_attn_dot_q8_ref(&m);
        c->n_case++;
        if (memcmp(got, want, n) != 0)
            check_fail(c, "d %d rows %d vectors %d: other bits", m.d, m.n_pos, m.n_vec);
        check_free_all();
    }
}

/* Against double: c(n) u sum|w x|, the weights' rounding to bf16 done the same way here. */
void check_attn_mix_q8(struct check *c, void (*variant)(const struct attn_q8 *m))
{
    for (int i = 0; i < 60; i++) {
        const uint8_t *blk[128];
        struct attn_q8 m = {.d = (int)some(c, 16, i % 2 ? 70 : 600),
                            .n_pos = (int)some(c, 1, i % 4 ? 30 : 128),
                            .n_row = (int)some(c, 1, 40)};
        m.n_vec = (int)some(c, 1, m.d / 16);
        random_rows(c, &m, blk);
        m.lds = m.n_row + some(c, 0, 3);
        m.ldc = 16 * m.n_vec + some(c, 0, 3);
        m.s = check_alloc(c, 4 * (size_t)((m.n_pos - 1) * m.lds + m.n_row));
        m.c = check_alloc(c, 4 * (size_t)((m.n_row - 1) * m.ldc + 16 * m.n_vec));
        for (int64_t k = 0; k < (m.n_pos - 1) * m.lds + m.n_row; k++)
            m.s[k] = fabsf(check_randf(c));
        variant(&m);
        c->n_case++;
        for (int r = 0; r < m.n_row; r++)
            for (int k = 0; k < 16 * m.n_vec; k++) {
                double want = 0, sum = 0;
                for (int p = 0; p < m.n_pos; p++) {
                    const uint8_t *row = blk[p / m.blk_rows] + p % m.blk_rows * m.row_bytes;
                    float scale;
                    memcpy(&scale, row + k / 32 * 4, 4);
                    float w = fp_bf16_to_f32(fp_f32_to_bf16(m.s[p * m.lds + r] * scale));
                    double x = (double)w * (int8_t)row[(m.d + 31) / 32 * 4 + k];
                    want += x;
                    sum += fabs(x);
                }
                double got = m.c[r * m.ldc + k];
                if (!(fabs(got - want) <= (2 * m.n_pos + 2) * U * sum + 1e-37))
                    check_fail(c, "d %d rows %d: [%d][%d] is %.9g, not %.9g", m.d, m.n_pos, r, k,
                               got, want);
            }
        check_free_all();
    }
}

/* ---- 16-bit integers: bit for bit as the reference, which is held against what it promises ----
 */

static int same_f32(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fp_to_bits(a[i]) != fp_to_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) return 0;
    return 1;
}

/* n values, of which a few are as odd as how says: 1 not finite, 2 zero, 3 subnormal, 4 huge. */
static void odd_values(struct check *c, float *x, int n, int how)
{
    for (int i = 0; i < n; i++)
        x[i] = how == 2 ? 0 : check_randf(c) * (how == 3 ? 0x1p-130f : how == 4 ? 0x1p120f : 1.0f);
    if (how == 1) x[check_rand(c, (uint32_t)n)] = check_rand(c, 2) ? NAN : -INFINITY;
}

/* Codes of one row: near its values, none too large, together at most sum. */
static void hold_codes(struct check *c, const float *x, int n, const int16_t *y, float scale,
                       float most, double sum)
{
    double total = 0;
    float amax = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            if (isfinite(scale)) check_fail(c, "a scale of %g where %g is", scale, x[i]);
            return;
        }
        amax = fmaxf(amax, fabsf(x[i]));
    }
    for (int i = 0; i < (n + 15) / 16 * 16; i++) {
        double off = fabs(i < n ? (double)x[i] - (double)scale * y[i] : y[i]);
        total += abs(y[i]);
        if (off > 0.5001 * (double)scale + 1e-7 * (double)amax + 1.3e-38)
            check_fail(c, "[%d] is %d times %g, not %g", i, y[i], scale, i < n ? x[i] : 0.0f);
        if (fabsf((float)y[i]) > most) check_fail(c, "[%d] is %d", i, y[i]);
    }
    if (total > sum) check_fail(c, "%d codes are %g together", n, total);
    if (amax > 1e-30f && total == 0) check_fail(c, "no codes");
}

void check_attn_rows_i16(struct check *c, void (*variant)(const float *, int64_t, int, int,
                                                          int16_t *, int64_t, float *, int64_t))
{
    for (int i = 0; i < 100; i++) {
        int n_row = (int)some(c, 1, 5), n = (int)some(c, 1, i % 3 ? 70 : 576), n16 = (n + 15) / 16;
        int64_t ldx = n + some(c, 0, 3), ldy = 16 * n16 + some(c, 0, 3), lds = some(c, 1, 2);
        size_t n_y = (size_t)((n_row - 1) * ldy + 16 * n16);
        float *x = check_alloc(c, (size_t)((n_row - 1) * ldx + n) * 4), scale[2][10];
        int16_t *y = check_alloc(c, 2 * n_y), *want = check_alloc(c, 2 * n_y);
        memset(scale, 0, sizeof scale);
        memset(y, 7, 2 * n_y);
        memset(want, 7, 2 * n_y);
        for (int r = 0; r < n_row; r++)
            odd_values(c, x + r * ldx, n, i % 2 ? 0 : (int)some(c, 0, 4));
        variant(x, ldx, n_row, n, y, ldy, scale[0], lds);
        kern_attn_rows_i16_ref(x, ldx, n_row, n, want, ldy, scale[1], lds);
        c->n_case++;
        if (!same_f32(scale[0], scale[1], 10)) check_fail(c, "other scales");
        if (memcmp(y, want, 2 * n_y) != 0) check_fail(c, "rows %d n %d: other codes", n_row, n);
        for (int r = 0; r < n_row; r++)
            hold_codes(c, x + r * ldx, n, y + r * ldy, scale[0][r * lds], ATTN_I16_ROW, 1e30);
        check_free_all();
    }
}

void check_attn_f16_i16(struct check *c, void (*variant)(const uint8_t *, int64_t, int, int,
                                                         int16_t *, int64_t, float *, int64_t))
{
    for (int i = 0; i < 100; i++) {
        int n_row = (int)some(c, 1, 9), n = 16 * (int)some(c, 1, i % 3 ? 5 : 36);
        int64_t bytes = 2 * n + 2 * some(c, 0, 3), ldy = n + some(c, 0, 3);
        size_t n_y = (size_t)((n_row - 1) * ldy + n);
        uint8_t *row = check_alloc(c, (size_t)((n_row - 1) * bytes + 2 * n));
        float *x = check_alloc(c, (size_t)(n_row * n) * 4), scale[2][9];
        int16_t *y = check_alloc(c, 2 * n_y), *want = check_alloc(c, 2 * n_y);
        memset(y, 7, 2 * n_y);
        memset(want, 7, 2 * n_y);
        for (int r = 0; r < n_row; r++) {
            odd_values(c, x + r * n, n, i % 2 ? 0 : (int)some(c, 0, 3));
            for (int k = 0; k < n; k++) {
                uint16_t h = fp_f32_to_f16(x[r * n + k] * (i % 5 == 1 ? 0x1p-18f : 1.0f));
                memcpy(row + r * bytes + 2 * k, &h, 2);
                x[r * n + k] = fp_f16_to_f32(h);
            }
        }
        variant(row, bytes, n_row, n, y, ldy, scale[0], 1);
        kern_attn_rows_i16_ref(x, n, n_row, n, want, ldy, scale[1], 1);
        c->n_case++;
        if (!same_f32(scale[0], scale[1], (size_t)n_row)) check_fail(c, "other scales");
        if (memcmp(y, want, 2 * n_y) != 0) check_fail(c, "rows %d n %d: other codes", n_row, n);
        check_free_all();
    }
}

void check_attn_query_i16(struct check *c, void (*variant)(const float *, int, int16_t *, float *))
{
    for (int i = 0; i < 100; i++) {
        int n = (int)some(c, 1, i % 3 ? 70 : i % 2 ? 4096 : 576);
        size_t n16 = (size_t)(n + 15) / 16 * 16;
        float *x = check_alloc(c, (size_t)n * 4), scale[2];
        int16_t *y = check_alloc(c, 2 * n16), *want = check_alloc(c, 2 * n16);
        odd_values(c, x, n, i % 2 ? 0 : (int)some(c, 0, 4));
        if (i % 7 == 1) x[0] *= 1000;
        variant(x, n, y, &scale[0]);
        kern_attn_query_i16_ref(x, n, want, &scale[1]);
        c->n_case++;
        if (!same_f32(scale, scale + 1, 1))
            check_fail(c, "n %d: %g, not %g", n, scale[0], scale[1]);
        if (memcmp(y, want, 2 * n16) != 0) check_fail(c, "n %d: other codes", n);
        hold_codes(c, x, n, y, scale[0], ATTN_I16_MAX, ATTN_I16_SUM);
        check_free_all();
    }
}

/* n codes that are together at most sum; how: 1 all in one, or as large as they may be. */
static void some_codes(struct check *c, int16_t *y, int n, int most, int sum, int how)
{
    for (int i = 0; i < n; i++) {
        int top = how ? most : BASE_MIN(most, sum / n);
        int v = how ? BASE_MIN(top, sum) : (int)check_rand(c, (uint32_t)top + 1);
        if (how) sum -= v;
        y[i] = (int16_t)(how != 2 && check_rand(c, 2) ? -v : v);
    }
}

void check_attn_dot_i16(struct check *c, void (*variant)(const struct attn_i16 *))
{
    for (int i = 0; i < 60; i++) {
        int n_pos = (int)some(c, 1, i % 4 ? 14 : 50), n_pair = (int)some(c, 1, i % 3 ? 20 : 300);
        int64_t ld = 16 * some(c, 1, 4), ldx = 2 * n_pair + some(c, 0, 3), lds = some(c, 1, 2);
        int16_t *x = check_alloc(c, (size_t)(n_pos * ldx) * 2);
        int16_t *q = check_alloc(c, (size_t)(2 * n_pair * ld) * 2);
        size_t n_s = (size_t)(n_pos * ld);
        float *s = check_alloc(c, 4 * n_s), *want = check_alloc(c, 4 * n_s);
        float *xs = check_alloc(c, (size_t)(n_pos * lds) * 4), *qs = check_alloc(c, (size_t)ld * 4);
        for (int64_t k = 0; k < n_pos * lds; k++)
            xs[k] = check_rand(c, 30) ? check_randf(c) : NAN;
        for (int64_t k = 0; k < ld; k++)
            qs[k] = check_randf(c);
        for (size_t k = 0; k < n_s; k++)
            s[k] = want[k] = check_randf(c);
        for (int p = 0; p < n_pos; p++)
            some_codes(c, x + p * ldx, 2 * n_pair, 8191, 8191 * 2 * n_pair, i % 5 ? 0 : 2);
        int16_t lane[600];
        for (int64_t l = 0; l < ld; l++) {
            some_codes(c, lane, 2 * n_pair, 32767, ATTN_I16_SUM, i % 3);
            for (int k = 0; k < 2 * n_pair; k++)
                q[2 * (k / 2 * ld + l) + k % 2] = lane[k];
        }
        struct attn_i16 m = {.x = x,
                             .ldx = ldx,
                             .q = q,
                             .ld = ld,
                             .x_scale = xs,
                             .ld_scale = lds,
                             .q_scale = qs,
                             .n_pair = n_pair,
                             .n_pos = n_pos,
                             .add = i / 2 % 2,
                             .s = s};
        variant(&m);
        c->n_case++;
        for (int p = 0; p < n_pos; p++)
            for (int64_t l = 0; l < ld; l++) {
                int64_t sum = 0;
                for (int k = 0; k < 2 * n_pair; k++)
                    sum += (int64_t)x[p * ldx + k] * q[2 * (k / 2 * ld + l) + k % 2];
                float *w = &want[p * ld + l];
                *w = fmaf((float)sum, qs[l] * xs[p * lds], m.add ? *w : 0);
            }
        if (!same_f32(s, want, n_s)) check_fail(c, "positions %d pairs %d: other", n_pos, n_pair);
        check_free_all();
    }
}

/* A lane's codes and scale are those that it gets where no other lane sees more positions. */
static void
lanes_alone(struct check *c,
            void (*variant)(const struct attn_i16 *, const int32_t *, int16_t *, float *),
            const struct attn_i16 *m, const int32_t *hi, const int16_t *w, const float *scale)
{
    int l = (int)some(c, 0, (int)m->ld - 1), n = hi[l];
    if (n == 0) return;
    int32_t own[64] = {0};
    float alone[64];
    int16_t *got = check_alloc(c, (size_t)((n + 1) / 2 * 2 * m->ld) * 2);
    struct attn_i16 mine = *m;
    own[l] = n;
    mine.n_pos = n;
    variant(&mine, own, got, alone);
    if (!same_f32(alone + l, scale + l, 1)) check_fail(c, "lane %d: other scale alone", l);
    for (int p = 0; p < n; p++) {
        int64_t at = 2 * (p / 2 * m->ld + l) + p % 2;
        if (got[at] != w[at]) {
            check_fail(c, "lane %d: other code of position %d alone", l, p);
            return;
        }
    }
}

void check_attn_weights_i16(struct check *c, void (*variant)(const struct attn_i16 *,
                                                             const int32_t *, int16_t *, float *))
{
    for (int i = 0; i < 60; i++) {
        int n_pos = (int)some(c, 1, i % 3 ? 20 : 128), ld = 16 * (int)some(c, 1, 4);
        int lds = (int)some(c, 1, 2);
        size_t n_s = (size_t)(n_pos * ld), n_w = (size_t)((n_pos + 1) / 2 * 2 * ld);
        float *s = check_alloc(c, 4 * n_s), *xs = check_alloc(c, (size_t)(n_pos * lds) * 4);
        float scale[2][64] = {0};
        int16_t *w = check_alloc(c, 2 * n_w), *want = check_alloc(c, 2 * n_w);
        int32_t hi[64];
        for (int l = 0; l < ld; l++)
            hi[l] = (int32_t)some(c, 0, n_pos);
        for (int p = 0; p < n_pos; p++) {
            xs[p * lds] = fabsf(check_randf(c)) * (i % 4 ? 1 : 0x1p-140f);
            if (i % 5 == 0 && !check_rand(c, 9)) xs[p * lds] = NAN;
            for (int l = 0; l < ld; l++) {
                s[p * ld + l] = check_rand(c, 4) ? fabsf(check_randf(c)) : 0;
                if (p >= hi[l] && i % 2) s[p * ld + l] = NAN;
            }
        }
        struct attn_i16 m = {.s = s, .ld = ld, .x_scale = xs, .ld_scale = lds, .n_pos = n_pos};
        variant(&m, hi, w, scale[0]);
        kern_attn_weights_i16_ref(&m, hi, want, scale[1]);
        c->n_case++;
        if (!same_f32(scale[0], scale[1], 64)) check_fail(c, "other scales");
        if (memcmp(w, want, 2 * n_w) != 0) check_fail(c, "positions %d: other codes", n_pos);
        for (int l = 0; l < ld; l++) {
            float x[128];
            int16_t y[128] = {0};
            for (int p = 0; p < n_pos; p++) {
                x[p] = p < hi[l] ? s[p * ld + l] * xs[p * lds] : 0;
                y[p] = w[2 * (p / 2 * ld + l) + p % 2];
            }
            hold_codes(c, x, n_pos, y, scale[0][l], ATTN_I16_MAX, ATTN_I16_SUM);
        }
        lanes_alone(c, variant, &m, hi, w, scale[0]);
        check_free_all();
    }
}

void check_attn_mix_i16(struct check *c, void (*variant)(const struct attn_i16 *))
{
    for (int i = 0; i < 60; i++) {
        int n_pos = (int)some(c, 1, i % 3 ? 20 : 128), n = (int)some(c, 1, i % 4 ? 70 : 512);
        int64_t n16 = (n + 15) / 16 * 16, ld = 16 * some(c, 1, 4);
        int64_t ldx = n16 + some(c, 0, 3), ldc = n16 + some(c, 0, 3);
        int n_lane = (int)some(c, 1, (int)ld);
        int16_t *x = check_alloc(c, (size_t)((n_pos - 1) * ldx + n16) * 2), lane[128];
        int16_t *w = check_alloc(c, (size_t)((n_pos + 1) / 2 * 2 * ld) * 2);
        size_t n_c = (size_t)((n_lane - 1) * ldc + n16);
        float *got = check_alloc(c, 4 * n_c), *want = check_alloc(c, 4 * n_c), scale[64];
        memset(w, 0, (size_t)((n_pos + 1) / 2 * 2 * ld) * 2);
        memset(x, 0, (size_t)((n_pos - 1) * ldx + n16) * 2);
        for (int p = 0; p < n_pos; p++)
            some_codes(c, x + p * ldx, (int)n16, 8191, 8191 * (int)n16, i % 5 ? 0 : 2);
        for (int64_t l = 0; l < ld; l++) {
            scale[l] = check_rand(c, 20) ? check_randf(c) : NAN;
            some_codes(c, lane, n_pos, 32767, ATTN_I16_SUM, i % 3);
            for (int p = 0; p < n_pos; p++)
                w[2 * (p / 2 * ld + l) + p % 2] = (int16_t)abs(lane[p]);
        }
        for (size_t k = 0; k < n_c; k++)
            got[k] = want[k] = check_randf(c);
        struct attn_i16 m = {.x = x,
                             .ldx = ldx,
                             .w = w,
                             .w_scale = scale,
                             .ld = ld,
                             .n_pos = n_pos,
                             .n_lane = n_lane,
                             .n = n,
                             .c = got,
                             .ldc = ldc};
        variant(&m);
        c->n_case++;
        for (int l = 0; l < n_lane; l++)
            for (int k = 0; k < n16; k++) {
                int64_t sum = 0;
                for (int p = 0; p < n_pos; p++)
                    sum += (int64_t)w[2 * (p / 2 * ld + l) + p % 2] * x[p * ldx + k];
                want[l * ldc + k] = (float)sum * scale[l];
            }
        if (!same_f32(got, want, n_c)) check_fail(c, "positions %d n %d: other", n_pos, n);
        check_free_all();
    }
}
