/* SPDX-License-Identifier: Apache-2.0 */
/* check_vec [--seed N] [--repeat N]: every variant of kern/vec.h against the reference (the same
 * bits) and the reference against double. Operands end at an unmapped page and start out as NaN. A
 * row of VEC_LIST without a check_<op> here does not compile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cpu.h"
#include "base/fp.h"
#include "base/rng.h"
#include "kern/vec.h"

#define U 5.9604644775390625e-8

static uint64_t rng;
static int n_fail, n_checked;
static const char *now_op, *now_isa;
static struct {
    void *p;
    size_t n;
} maps[4096];
static int n_map;

/* n bytes that end at an unmapped page, filled with NaN. */
static void *guarded(size_t n)
{
    size_t page = 4096, total = (n + page - 1) / page * page;
    uint8_t *p =
        mmap(NULL, total + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || n_map == 4096 || mprotect(p + total, page, PROT_NONE) != 0) exit(1);
    maps[n_map].p = p;
    maps[n_map++].n = total + page;
    memset(p, 0xff, total);
    return p + total - n;
}

static void release(void)
{
    while (n_map) {
        n_map--;
        munmap(maps[n_map].p, maps[n_map].n);
    }
}

static int rand_int(int lo, int hi)
{
    return lo + (int)(rng_next(&rng) % (uint64_t)(hi - lo + 1));
}

static int rand_size(void)
{
    static const int n[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 200, 576};
    return n[rand_int(0, 16)];
}

static float rand_f(void)
{
    return (float)((double)(rng_next(&rng) >> 40) * 0x1p-23 - 1.0);
}

static float *rand_v(int64_t n, float scale)
{
    float *p = guarded(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        p[i] = rand_f() * scale;
    return p;
}

static float *copy_v(const float *x, int64_t n)
{
    float *p = guarded(sizeof(float) * (size_t)n);
    memcpy(p, x, sizeof(float) * (size_t)n);
    return p;
}

static void fail(const char *what, double got, double want)
{
    if (n_fail++ < 20)
        printf("FAIL %s %s: %s: got %.9g want %.9g\n", now_op, now_isa, what, got, want);
}

static void same(const void *a, const void *b, size_t n)
{
    n_checked++;
    if (memcmp(a, b, n)) {
        const float *x = a, *y = b;
        size_t i = 0;
        while (n >= 4 && i + 1 < n / 4 && fp_to_bits(x[i]) == fp_to_bits(y[i]))
            i++;
        fail("not the bits of the reference", n >= 4 ? (double)x[i] : 0, n >= 4 ? (double)y[i] : 0);
    }
}

static void near(float got, double want, double tol)
{
    if (!(fabs(got - want) <= tol)) fail("beyond the tolerance", got, want);
}

static void check_add_f32(void (*f)(float *, const float *, int64_t))
{
    int n = rand_size();
    float *x = rand_v(n, 1), *y = rand_v(n, 1), *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, y, n);
    kern_add_f32_ref(b, y, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++)
        near(a[i], x[i] + y[i], 0);
}

static void check_scale_f32(void (*f)(float *, float, int64_t))
{
    int n = rand_size();
    float *x = rand_v(n, 1), *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, 1.7f, n);
    kern_scale_f32_ref(b, 1.7f, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++)
        near(a[i], x[i] * 1.7f, 0);
}

static void check_rmsnorm_f32(void (*f)(float *, const float *, const float *, int, float))
{
    int n = rand_size();
    float *x = rand_v(n, 3), *w = rand_v(n, 1), *a = rand_v(n, 1), *b = copy_v(x, n);
    f(a, x, w, n, 1e-6f);
    kern_rmsnorm_f32_ref(b, b, w, n, 1e-6f); /* in place */
    same(a, b, 4 * (size_t)n);
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)x[i] * x[i];
    for (int i = 0; i < n; i++) {
        double want = x[i] / sqrt(s / n + (double)1e-6f) * w[i];
        near(a[i], want, (n / 2.0 + 6) * U * fabs(want));
    }
}

static double silu(double g)
{
    return g / (1 + exp(-g));
}

static void check_silu_mul_f32(void (*f)(float *, const float *, const float *, int))
{
    int n = rand_size();
    float *g = rand_v(n, rand_int(0, 3) ? 6.0f : 120.0f), *u = rand_v(n, 1), *a = rand_v(n, 1),
          *b = copy_v(g, n);
    f(a, g, u, n);
    kern_silu_mul_f32_ref(b, b, u, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++)
        near(a[i], silu(g[i]) * u[i], 12 * U * fabs(silu(g[i]) * u[i]) + 1e-35);
}

static void check_gate_f32(void (*f)(float *, const float *, int))
{
    int n = rand_size();
    float *g = rand_v(n, rand_int(0, 3) ? 6.0f : 120.0f), *x = rand_v(n, 2), *a = copy_v(x, n),
          *b = copy_v(x, n);
    f(a, g, n);
    kern_gate_f32_ref(b, g, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double want = x[i] / (1 + exp(-(double)g[i]));
        near(a[i], want, 12 * U * fabs(want) + 1e-35);
    }
}

/* As exp's own error, and that of its argument times the argument. */
static void check_decay_f32(void (*f)(float *, float, int))
{
    static const float special[] = {0, -0.0f, 87, -87, 1e30f, -1e30f, 1e-30f, -1e-30f, 16, -16};
    int n = rand_size();
    float *x = rand_v(n, rand_int(0, 3) ? 6.0f : 120.0f), size = exp2f((float)rand_int(-12, 6));
    float decay = -fabsf(rand_f()) * size;
    if (rand_int(0, 1)) x[0] = special[rand_int(0, 9)];
    float *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, decay, n);
    kern_decay_f32_ref(b, decay, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double g = (double)decay * (x[i] > 50 ? (double)x[i] : log1p(exp((double)x[i])));
        near(a[i], exp(g), (4 - 10 * g) * U * exp(g) + 2e-38);
    }
}

static void check_decay_in_f32(void (*f)(float *, float, float, int))
{
    static const float special[] = {0, -0.0f, 87, -87, 1e30f, -1e30f, 1e-30f, -1e-30f, 16, -16};
    int n = rand_size();
    float *x = rand_v(n, rand_int(0, 3) ? 6.0f : 120.0f), size = exp2f((float)rand_int(-12, 6));
    float decay = -fabsf(rand_f()) * size, to = -fabsf(rand_f()) * 8;
    if (rand_int(0, 1)) x[0] = special[rand_int(0, 9)];
    float *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, decay, to, n);
    kern_decay_in_f32_ref(b, decay, to, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double y = -(double)decay * (double)x[i], s = 1 / (1 + exp(-y)), g = (double)to * s;
        near(a[i], exp(g), (4 - (12 + fmin(fabs(y), 90)) * g) * U * exp(g) + 2e-38);
    }
}

static void check_conv_silu_f32(void (*f)(float *, const float *const *, const float *, int64_t,
                                          int, int))
{
    int n = rand_size(), n_row = rand_int(1, 8), ld = n + rand_int(0, 9);
    const float *row[8];
    float *w = rand_v((int64_t)n_row * ld, 1), *a = rand_v(n, 1), *b = rand_v(n, 1);
    for (int k = 0; k < n_row; k++)
        row[k] = rand_v(n, 2);
    f(a, row, w, ld, n_row, n);
    kern_conv_silu_f32_ref(b, row, w, ld, n_row, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < n_row; k++) {
            sum += (double)w[k * ld + i] * row[k][i];
            size += fabs((double)w[k * ld + i] * row[k][i]);
        }
        near(a[i], silu(sum), (n_row + 14) * U * size + 1e-35);
    }
}

static void check_relu_sum_f32(void (*f)(float *, const float *, int64_t, const float *, int, int))
{
    int n_vec = rand_int(1, 5), n = 16 * n_vec, n_row = rand_int(1, 66), ld = n + rand_int(0, 9);
    float *s = rand_v((int64_t)n_row * ld, 3), *w = rand_v(n_row, 1), *a = rand_v(n, 1),
          *b = rand_v(n, 1);
    for (int r = 0; r < n_row; r++)
        s[r * ld + rand_int(0, n - 1)] = rand_int(0, 1) ? 0.0f : -0.0f;
    f(a, s, ld, w, n_row, n_vec);
    kern_relu_sum_f32_ref(b, s, ld, w, n_row, n_vec);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int r = 0; r < n_row; r++) {
            double x = (double)w[r] * fmax(s[r * ld + i], 0);
            sum += x;
            size += fabs(x);
        }
        near(a[i], sum, (n_row + 2) * U * size);
        if (size == 0 && signbit(a[i])) fail("a zero below zero", (double)a[i], 0);
    }
}

/* The definition, in double, of tokens that the kernel is given at once or in parts. */
static void delta_by_hand(double *s, const struct vec_delta *t, int d_k, int d_v, double *o)
{
    for (int c = 0; c < d_v; c++) {
        double r = 0;
        o[c] = 0;
        for (int i = 0; i < d_k; i++)
            r += (s[i * d_v + c] *= (double)(t->decays ? t->decays[i] : t->decay)) *
                 (double)t->k[i];
        for (int i = 0; i < d_k; i++) {
            s[i * d_v + c] += (double)t->k[i] * (double)t->beta * ((double)t->v[c] - r);
            o[c] += s[i * d_v + c] * (double)t->q[i];
        }
    }
}

static float *rand_decays(int n)
{
    float *x = rand_v(n, 1);
    for (int i = 0; i < n; i++)
        x[i] = 1 - fabsf(x[i]) * 0.3f;
    return x;
}

typedef void delta_rule(float *, int, int, const struct vec_delta *, int);

static void check_rule(delta_rule *f, delta_rule *ref, bool each)
{
    int d_k = 2 * rand_int(1, 40), d_v = rand_int(1, 70), n = rand_int(1, VEC_DELTA_TOK);
    int ld = (d_v + 15) / 16 * 16, cut = rand_int(0, n);
    double s[80 * 70], o[70], size = 1 / sqrt(d_k);
    float *a = rand_v((int64_t)d_k * ld, 1), *b;
    struct vec_delta t[VEC_DELTA_TOK], t_ref[VEC_DELTA_TOK];
    for (int i = 0; i < d_k; i++)
        for (int c = 0; c < ld; c++) {
            float *x = &a[c / 16 * 16 * d_k + 16 * i + c % 16];
            if (c < d_v)
                s[i * d_v + c] = (double)*x;
            else
                *x = 0;
        }
    b = copy_v(a, (int64_t)d_k * ld);
    for (int j = 0; j < n; j++) {
        t[j] = t_ref[j] = (struct vec_delta){.k = rand_v(d_k, (float)size * 1.7f),
                                             .q = rand_v(d_k, (float)size),
                                             .v = rand_v(d_v, 2),
                                             .decays = each ? rand_decays(d_k) : NULL,
                                             .decay = 1 - fabsf(rand_f()) * 0.3f,
                                             .beta = fabsf(rand_f())};
        t[j].o = rand_v(d_v, 1);
        t_ref[j].o = rand_int(0, 1) ? rand_v(d_v, 1) : copy_v(t[j].v, d_v);
        if (rand_int(0, 1)) t[j].v = t[j].o = copy_v(t[j].v, d_v); /* o may be v */
    }
    ref(b, d_k, d_v, t_ref, n);
    for (int j = 0; j < n; j++) {
        delta_by_hand(s, &t_ref[j], d_k, d_v, o);
        for (int c = 0; c < d_v; c++)
            near(t_ref[j].o[c], o[c], 60.0 * (j + 2) * d_k * U);
    }
    if (cut) f(a, d_k, d_v, t, cut);
    if (cut < n) f(a, d_k, d_v, t + cut, n - cut);
    same(a, b, 4 * (size_t)d_k * (size_t)ld);
    for (int j = 0; j < n; j++)
        same(t[j].o, t_ref[j].o, 4 * (size_t)d_v);
}

static void check_delta_f32(delta_rule *f)
{
    check_rule(f, kern_delta_f32_ref, false);
}

static void check_delta_each_f32(delta_rule *f)
{
    check_rule(f, kern_delta_each_f32_ref, true);
}

static void check_silu_pairs_f32(void (*f)(float *, const float *, int))
{
    int n = rand_size(), t = (n + 15) / 16;
    float *y = rand_v(32 * t, 5), *a = rand_v(n, 1), *b = rand_v(n, 1);
    f(a, y, n);
    kern_silu_pairs_f32_ref(b, y, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double want = silu(y[i / 16 * 32 + i % 16]) * y[i / 16 * 32 + 16 + i % 16];
        near(a[i], want, 12 * U * fabs(want));
    }
}

static void check_glu_pairs_f32(void (*f)(float *, const float *, const float *, const float *, int,
                                          const struct glu *))
{
    int n = rand_size(), t = (n + 15) / 16, biased = rand_int(0, 1);
    struct glu p = {rand_int(0, 2) ? 1.5f : 0, rand_int(0, 1) ? 1.702f : 0,
                    (float)rand_int(0, 1), (float)rand_int(0, 1), 0};
    if (!rand_int(0, 2)) p = GLU_GELU_TANH;
    double limit = p.limit > 0 ? p.limit : INFINITY, alpha = p.alpha > 0 ? p.alpha : 1;
    float *y = rand_v(32 * t, 5), *a = rand_v(n, 1), *b = rand_v(n, 1);
    const float *bg = biased ? rand_v(n, 1) : NULL, *bu = biased ? rand_v(n, 1) : NULL;
    y[0] = NAN; /* of a gate, of an up: it stays */
    if (n > 1) y[17] = NAN;
    f(a, y, bg, bu, n, &p);
    kern_glu_pairs_f32_ref(b, y, bg, bu, n, &p);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        float g = y[i / 16 * 32 + i % 16], u = y[i / 16 * 32 + 16 + i % 16];
        if (biased) {
            g += bg[i];
            u += bu[i];
        }
        if (i < 2) {
            n_checked++;
            if (!isnan(a[i])) fail("a value that is not a number is lost", a[i], NAN);
            continue;
        }
        double x = p.after > 0 ? g : fmin(g, limit), v = fmax(fmin(u, limit), -limit) + p.plus;
        double z = alpha * (x + (double)p.cubic * x * x * x);
        double s = x / (1 + exp(-z)), want = (p.after > 0 ? fmin(s, limit) : s) * v;
        double steep = p.cubic > 0 ? 6 * fabs(z) : 0; /* e^z of a rounded z */
        near(a[i], want, (14 + steep) * U * fabs(want) + 1e-30);
    }
}

static void check_streams_f32(void (*f)(float *, int64_t, const float *, const float *, int, int))
{
    int n = rand_size(), N = rand_int(0, 1) ? 4 : rand_int(1, 8), ld = n + rand_int(0, 40);
    float *x = rand_v(N * ld, 1), *r = rand_v(n, 1), *mix = rand_v(N + N * N, 1),
          *a = copy_v(x, N * ld), *b = copy_v(x, N * ld);
    f(a, ld, r, mix, N, n);
    kern_streams_f32_ref(b, ld, r, mix, N, n);
    same(a, b, 4 * (size_t)(N * ld));
    for (int i = 0; i < N * ld; i++) {
        int k = i / ld, at = i % ld;
        double s = at < n ? (double)mix[k] * r[at] : x[i], m = fabs(s);
        for (int j = 0; j < N && at < n; j++) {
            s += (double)mix[N + j * N + k] * x[j * ld + at];
            m += fabs((double)mix[N + j * N + k] * x[j * ld + at]);
        }
        near(a[i], s, (N + 2) * U * m);
    }
}

static void check_dots_f32(void (*f)(float *, const float *, int64_t, const float *, int64_t,
                                     int64_t, int, int, int))
{
    int n = rand_size(), n_row = rand_int(1, 26), n_seg = rand_int(1, 4), ld = n + rand_int(0, 9),
        ldw = n_seg * ld + rand_int(0, 9), ldx = n + rand_int(0, 9);
    float *x = rand_v(n_seg * ldx, 1), *w = rand_v(n_row * ldw, 1), *a = rand_v(n_row, 1),
          *b = rand_v(n_row, 1);
    f(a, x, ldx, w, ldw, ld, n_row, n_seg, n);
    kern_dots_f32_ref(b, x, ldx, w, ldw, ld, n_row, n_seg, n);
    same(a, b, 4 * (size_t)n_row);
    for (int i = 0; i < n_row; i++) {
        double s = 0, m = 0;
        for (int k = 0; k < n_seg * ld; k++) {
            double v = k % ld < n ? (double)x[k / ld * ldx + k % ld] * w[i * ldw + k] : 0;
            s += v;
            m += fabs(v);
        }
        near(a[i], s, (n_seg * n + 2) * U * m);
    }
}

static void check_wsum_f32(void (*f)(float *, const float *const *, const float *, int,
                                     const float *, int))
{
    int n = rand_size(), k = rand_int(1, 8);
    const float *row[8];
    for (int i = 0; i < k; i++)
        row[i] = rand_v(n, 1);
    float *w = rand_v(k, 1), *add = rand_int(0, 1) ? rand_v(n, 1) : NULL, *a = rand_v(n, 1),
          *b = rand_v(n, 1);
    f(a, row, w, k, add, n);
    kern_wsum_f32_ref(b, row, w, k, add, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double s = add ? add[i] : 0, m = fabs(s);
        for (int j = 0; j < k; j++) {
            s += (double)w[j] * row[j][i];
            m += fabs((double)w[j] * row[j][i]);
        }
        near(a[i], s, (k + 2) * U * m);
    }
}

static void check_rope(void (*f)(float *, const float *, int),
                       void (*ref)(float *, const float *, int), int pairs)
{
    int h = rand_size(), n = 2 * h;
    float *x = rand_v(n, 1), *cs = rand_v(n, 1), *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, cs, n);
    ref(b, cs, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < h; i++) {
        int p = pairs ? 2 * i : i, q = pairs ? 2 * i + 1 : h + i;
        double c = cs[i], s = cs[h + i], m = 3 * U * (fabs(x[p]) + fabs(x[q]));
        near(a[p], x[p] * c - x[q] * s, m);
        near(a[q], x[q] * c + x[p] * s, m);
    }
}
static void check_rope_half_f32(void (*f)(float *, const float *, int))
{
    check_rope(f, kern_rope_half_f32_ref, 0);
}
static void check_rope_pairs_f32(void (*f)(float *, const float *, int))
{
    check_rope(f, kern_rope_pairs_f32_ref, 1);
}

static void check_softmax_f32(void (*f)(float *, int))
{
    int n = rand_size();
    float *x = rand_v(n, rand_int(0, 1) ? 5.0f : 80.0f), *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, n);
    kern_softmax_f32_ref(b, n);
    same(a, b, 4 * (size_t)n);
    double m = -1e30, s = 0;
    for (int i = 0; i < n; i++)
        m = fmax(m, x[i]);
    for (int i = 0; i < n; i++)
        s += exp(x[i] - m);
    for (int i = 0; i < n; i++)
        near(a[i], exp(x[i] - m) / s, (n + 100) * U * exp(x[i] - m) / s + 2e-38);
}

static void check_sigmoid_f32(void (*f)(float *, int))
{
    int n = rand_size();
    float *x = rand_v(n, rand_int(0, 3) ? 8.0f : 200.0f), *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, n);
    kern_sigmoid_f32_ref(b, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++)
        near(a[i], 1 / (1 + exp(-(double)x[i])), 10 * U * a[i] + 1e-38);
}

static void check_softplus_f32(void (*f)(float *, int))
{
    int n = rand_size();
    float *x = rand_v(n, rand_int(0, 3) ? 8.0f : 60.0f), *a = copy_v(x, n), *b = copy_v(x, n);
    f(a, n);
    kern_softplus_f32_ref(b, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++)
        near(a[i], log1p(exp((double)x[i])), 10 * U * a[i] + 1e-37);
}

static void check_cap_f32(void (*f)(float *, float, int))
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0.62499f, -0.62501f, 1e-30f};
    int n = rand_size();
    float cap = rand_int(0, 1) ? 30.0f : 0.7f;
    float *x = rand_v(n, rand_int(0, 3) ? 1.5f * cap : 100.0f), *a = copy_v(x, n), *b;
    for (int i = 0; i < n && i < 8; i++)
        a[i] = x[i] = i < 5 ? odd[i] : odd[i] * cap;
    b = copy_v(x, n);
    f(a, cap, n);
    kern_cap_f32_ref(b, cap, n);
    same(a, b, 4 * (size_t)n);
    for (int i = 0; i < n; i++) {
        double want = (double)cap * tanh((double)x[i] / (double)cap);
        if (isnan(x[i])) {
            n_checked++;
            if (!isnan(a[i])) fail("a value that is not a number is lost", a[i], NAN);
            continue;
        }
        near(a[i], want, 8 * U * fabs(want) + 1e-38);
    }
}

static void check_sum_f32(float (*f)(const float *, int64_t))
{
    int n = rand_size();
    float *x = rand_v(n, 1), a = f(x, n), b = kern_sum_f32_ref(x, n);
    same(&a, &b, 4);
    double s = 0, m = 0;
    for (int i = 0; i < n; i++) {
        s += x[i];
        m += fabs(x[i]);
    }
    near(a, s, n * U * m);
}

static void check_gemm_f32(void (*f)(const float *, int64_t, int64_t, const float *, int64_t,
                                     float *, int64_t, int, int, int, int))
{
    int n_row = rand_int(1, 26), n_vec = rand_int(1, 9),
        n_k = rand_int(0, 3) ? rand_int(1, 70) : rand_int(0, 1), add = rand_int(0, 1);
    int64_t lda = rand_int(0, 1) ? n_k + rand_int(0, 3) : 1, lda_k = lda == 1 ? n_row : 1,
            ldb = 16 * n_vec + rand_int(0, 5), ldc = 16 * n_vec + rand_int(0, 3);
    if (lda < 1) lda = 1;
    float *a = rand_v((n_row - 1) * lda + (n_k ? n_k - 1 : 0) * lda_k + 1, 1),
          *b = rand_v(n_k ? (n_k - 1) * ldb + 16 * n_vec : 1, 1);
    int64_t nc = (n_row - 1) * ldc + 16 * n_vec;
    float *c0 = rand_v(nc, 1), *c1 = copy_v(c0, nc), *c2 = copy_v(c0, nc);
    f(a, lda, lda_k, b, ldb, c1, ldc, n_row, n_vec, n_k, add);
    kern_gemm_f32_ref(a, lda, lda_k, b, ldb, c2, ldc, n_row, n_vec, n_k, add);
    same(c1, c2, 4 * (size_t)nc);
    for (int r = 0; r < n_row; r++)
        for (int j = 0; j < 16 * n_vec; j++) {
            double s = add ? c0[r * ldc + j] : 0, m = fabs(s);
            for (int k = 0; k < n_k; k++) {
                s += (double)a[r * lda + k * lda_k] * b[k * ldb + j];
                m += fabs((double)a[r * lda + k * lda_k] * b[k * ldb + j]);
            }
            near(c1[r * ldc + j], s, (n_k + 1) * U * m);
        }
}

static void check_span_row_f32(void (*f)(float *, int, int, float *, float *))
{
    int hi = rand_int(1, VEC_SPAN), lo = rand_int(0, 1) ? 0 : rand_int(0, hi - 1),
        n = (hi + 15) / 16 * 16;
    float *s = rand_v(n, 10), m[2], l[2];
    for (int i = 0; i < n; i++)
        if (i < lo || i >= hi) s[i] = NAN;
    float *a = copy_v(s, n), *b = copy_v(s, n);
    f(a, lo, hi, &m[0], &l[0]);
    kern_span_row_f32_ref(b, lo, hi, &m[1], &l[1]);
    same(a + lo, b + lo, 4 * (size_t)(hi - lo));
    same(m, m + 1, 4);
    same(l, l + 1, 4);
    double max = -1e30, sum = 0;
    for (int i = lo; i < hi; i++)
        max = fmax(max, s[i]);
    near(m[0], max, 0);
    for (int i = lo; i < hi; i++) {
        sum += exp(s[i] - max);
        near(a[i], exp(s[i] - max), 60 * U * exp(s[i] - max));
    }
    near(l[0], sum, 200 * U * sum);
}

static void check_span_col_f32(void (*f)(float *, int64_t, int, int, const int32_t *,
                                         const int32_t *, float *, float *))
{
    int n_vec = rand_int(1, 4), n = rand_int(1, VEC_SPAN), q = 16 * n_vec;
    float *s = rand_v(n * q, 10), m[64], l[64], m2[64], l2[64];
    int32_t lo[64], hi[64];
    for (int j = 0; j < q; j++) {
        hi[j] = rand_int(0, n);
        lo[j] = rand_int(0, 2) ? 0 : rand_int(0, hi[j]);
        for (int p = 0; p < n; p++)
            if (p < lo[j] || p >= hi[j]) s[p * q + j] = rand_int(0, 1) ? NAN : INFINITY;
    }
    float *a = copy_v(s, n * q), *b = copy_v(s, n * q);
    f(a, q, n, n_vec, lo, hi, m, l);
    kern_span_col_f32_ref(b, q, n, n_vec, lo, hi, m2, l2);
    same(a, b, 4 * (size_t)(n * q));
    same(m, m2, 4 * (size_t)q);
    same(l, l2, 4 * (size_t)q);
    for (int j = 0; j < q; j++) {
        double max = -INFINITY, sum = 0;
        for (int p = lo[j]; p < hi[j]; p++)
            max = fmax(max, s[p * q + j]);
        for (int p = 0; p < n; p++) {
            double e = p >= lo[j] && p < hi[j] ? exp(s[p * q + j] - max) : 0;
            sum += e;
            near(a[p * q + j], e, 60 * U * e);
        }
        if (lo[j] < hi[j]) near(m[j], max, 0);
        near(l[j], sum, 400 * U * sum);
    }
}

static void check_fold_f32(void (*f)(float *, float *, float *, float, float, const float *, int))
{
    int n = rand_size();
    float m1 = 20 * rand_f(), m2 = 20 * rand_f(), l1 = rand_int(0, 3) ? 1 + fabsf(rand_f()) : 0,
          l2 = 1 + fabsf(rand_f());
    float *o1 = rand_v(n, 1), *o2 = rand_v(n, 1), *a = copy_v(o1, n), *b = copy_v(o1, n);
    float ma = m1, la = l1, mb = m1, lb = l1;
    f(&ma, &la, a, m2, l2, o2, n);
    kern_fold_f32_ref(&mb, &lb, b, m2, l2, o2, n);
    same(a, b, 4 * (size_t)n);
    same(&ma, &mb, 4);
    same(&la, &lb, 4);
    double m = l1 == 0 ? m2 : fmax(m1, m2), x = l1 == 0 ? 0 : exp(m1 - m), y = exp(m2 - m);
    near(la, l1 * x + l2 * y, 80 * U * (l1 * x + l2 * y));
    for (int i = 0; i < n; i++)
        near(a[i], o1[i] * x + o2[i] * y, 80 * U * (fabs(o1[i] * x) + fabs(o2[i] * y)));
}

/* What the cache keeps: relative 2^-8 (bf16), 2^-11 (f16) down to its subnormals, half a step of
 * the group (q8), all (f32). */
static double kept(int t, const float *x, int d, int i)
{
    double amax = 0;
    for (int k = i / 32 * 32; k < d && k < i / 32 * 32 + 32; k++)
        amax = fmax(amax, fabs(x[k]));
    return t == VEC_KV_F32    ? 0
           : t == VEC_KV_BF16 ? fabs(x[i]) / 256
           : t == VEC_KV_F16  ? fabs(x[i]) / 2048 + 1e-7
                              : amax / 127 * 0.501;
}

static void check_kv(void (*put)(int, uint8_t *, const float *, int),
                     void (*get)(int, const uint8_t *, int64_t, int, int, float *, int64_t))
{
    int t = rand_int(0, 3), d = rand_int(1, 40) * (rand_int(0, 1) ? 8 : 1), n = rand_int(1, 5),
        dp = (d + 15) / 16 * 16;
    size_t bytes = vec_v_row_bytes(t, d);
    uint8_t *row = guarded(bytes * (size_t)n), *row2 = guarded(bytes * (size_t)n);
    float *x = rand_v(n * d, 4), *a = rand_v(n * dp, 1), *b = rand_v(n * dp, 1);
    for (int p = 0; p < n; p++) {
        put(t, row + (size_t)p * bytes, x + p * d, d);
        kern_put_v_ref(t, row2 + (size_t)p * bytes, x + p * d, d);
    }
    get(t, row, (int64_t)bytes, n, d, a, dp);
    kern_get_v_ref(t, row2, (int64_t)bytes, n, d, b, dp);
    same(a, b, 4 * (size_t)(n * dp));
    for (int i = 0; i < n * dp; i++)
        near(a[i], i % dp < d ? x[i / dp * d + i % dp] : 0,
             i % dp < d ? kept(t, x + i / dp * d, d, i % dp) : 0);
}
static void check_put_v(void (*f)(int, uint8_t *, const float *, int))
{
    check_kv(f, kern_get_v_ref);
}
static void check_get_v(void (*f)(int, const uint8_t *, int64_t, int, int, float *, int64_t))
{
    check_kv(kern_put_v_ref, f);
}

static void check_keys(void (*put)(int, uint8_t *, int, const float *, int),
                       void (*get)(int, const uint8_t *, int, float *, int64_t))
{
    int t = rand_int(0, 3), d = rand_int(1, 40) * (rand_int(0, 1) ? 8 : 1), n = rand_int(1, 16);
    size_t bytes = vec_k_group_bytes(t, d);
    uint8_t *group = guarded(bytes), *group2 = guarded(bytes);
    float *x = rand_v(n * d, 4), *a = rand_v(d * 16, 1), *b = rand_v(d * 16, 1);
    for (int p = 0; p < n; p++) {
        put(t, group, p, x + p * d, d);
        kern_put_k_ref(t, group2, p, x + p * d, d);
    }
    get(t, group, d, a, 16);
    kern_get_k_ref(t, group2, d, b, 16);
    for (int i = 0; i < d; i++)
        for (int p = 0; p < n; p++) { /* other lanes are NaN or garbage */
            same(&a[16 * i + p], &b[16 * i + p], 4);
            near(a[16 * i + p], x[p * d + i], kept(t, x + p * d, d, i));
        }
}
static void check_put_k(void (*f)(int, uint8_t *, int, const float *, int))
{
    check_keys(f, kern_get_k_ref);
}
static void check_get_k(void (*f)(int, const uint8_t *, int, float *, int64_t))
{
    check_keys(kern_put_k_ref, f);
}

/* NaN and infinity are not lost on the way through the cache, in any type. */
static void check_not_finite(const struct vec_kern *k)
{
    for (int t = 0; t < 4; t++) {
        float x[40] = {1, 2, 3}, y[48];
        uint8_t row[256];
        x[7] = rand_int(0, 1) ? NAN : INFINITY;
        k->put_v(t, row, x, 40);
        k->get_v(t, row, 256, 1, 40, y, 48);
        int bad = 0;
        for (int i = 0; i < 40; i++)
            bad += !isfinite(y[i]);
        if (!bad) fail("a value that is not finite became finite", y[7], x[7]);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    int repeat = 200, mask = (int)cpu_isa_mask();
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--repeat") == 0) repeat = atoi(argv[i + 1]);
    }
    rng = seed;
    for (int isa = 0; isa < CPU_N_ISA; isa++) {
        struct vec_kern k;
        if (!(mask >> isa & 1)) continue;
        now_op = "select";
        kern_vec_select(&k, (uint32_t)mask & ((2u << isa) - 1));
        now_isa = cpu_isa_name((enum cpu_isa)isa);
        if (strcmp(now_isa, k.isa) != 0) continue; /* this bundle brings no variant of its own */
        for (int r = 0; r < repeat; r++) {
#define X(op, ret, args)                                                                           \
    now_op = #op;                                                                                  \
    check_##op(k.op);                                                                              \
    release();
            VEC_LIST(X)
#undef X
            now_op = "kv";
            check_not_finite(&k);
        }
        printf("vec %s: seed %llu, %d rounds, %d checks, %d failed\n", now_isa,
               (unsigned long long)seed, repeat, n_checked, n_fail);
    }
    return n_fail != 0 || n_checked == 0;
}
