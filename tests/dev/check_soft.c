/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels' arithmetic, compiled as C: on integers (gpu/kernel/soft.inc) against the C library's
 * fmaf and the compiler's doubles, and what they restate (gpu/kernel/arith.inc) against the CPU's
 * kernels: 0 bits may differ. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "kern/vec.h"

#include "dev/gpu/kernel/c.inc"
#define finite is_finite /* not the C library's */
#include "dev/gpu/kernel/arith.inc"
#include "dev/gpu/kernel/soft.inc"

static uint64_t state = 31;
static int n_bad;

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Exponents from all there are or near each other's; long and short fractions; now and then 0, inf
 * and NaN. */
static float draw(uint near)
{
    uint64_t r = rng_next(&state);
    uint u = (uint)r, way = (uint)(r >> 32), e = u >> 23 & 255u;
    if (way & 1u) e = near + (u >> 23 & 63u) - 32u;
    if (way & 2u) u &= 0xffc00fffu;
    if (way & 4u) u &= ~0xfffu;
    if ((way >> 3 & 63u) == 0) e = 0;
    if ((way >> 9 & 255u) == 0) e = 255;
    if ((way >> 17 & 63u) == 0) u &= 0xff800000u;
    return uintBitsToFloat((u & 0x807fffffu) | (e & 255u) << 23);
}

static void fail(const char *what, uint64_t got, uint64_t want)
{
    if (n_bad++ < 10)
        printf("%s: %016llx, not %016llx\n", what, (unsigned long long)got,
               (unsigned long long)want);
}

static void check_fma(void)
{
    float a = draw(127), b = draw(127);
    uint e = (floatBitsToUint(a) >> 23 & 255u) + (floatBitsToUint(b) >> 23 & 255u) - 127u;
    float c = draw(e), got = soft_fma(a, b, c), want = fmaf(a, b, c);
    if (got != got && want != want) return;
    if (floatBitsToUint(got) != floatBitsToUint(want))
        fail("fma", floatBitsToUint(got), floatBitsToUint(want));
}

/* Sums that are the middle of two floats, or all but. */
static void check_middle(void)
{
    uint64_t r = rng_next(&state);
    float a = (float)(r & 0xffffu) * 0x1p-20f, b = (float)(r >> 16 & 0xffffu) * 0x1p-10f;
    float c = (float)(1 + (r >> 32 & 0xffu)) * ((r >> 40 & 1u) ? 0x1p-3f : -0x1p20f);
    float got = soft_fma(a, b, c), want = fmaf(a, b, c);
    if (floatBitsToUint(got) != floatBitsToUint(want))
        fail("fma in the middle", floatBitsToUint(got), floatBitsToUint(want));
}

/* As prep.inc uses them: sums of squares, of which some are taken away again. */
static void check_doubles(void)
{
    uint n = (uint)(rng_next(&state) & 511u);
    double s = 0;
    uint64_t t = 0;
    for (uint i = 0; i < 8; i++) {
        float a = draw(127);
        if (!(fabsf(a) <= 3.4e38f)) a = 0.0f;
        double q = (double)a * (double)a;
        uint64_t u = soft_square(a);
        if (u != bits_of(q)) fail("square", u, bits_of(q));
        if (soft_more(soft_times(u, n), soft_times(t, 3u)) != (q * (double)n > 3.0 * s))
            fail("more", u, t);
        bool less = (rng_next(&state) & 3u) == 0;
        s = less ? s - q : s + q;
        t = less ? soft_sub(t, u) : soft_add(t, u);
        if (t != bits_of(s)) fail("sum", t, bits_of(s));
        if (soft_times(t, n) != bits_of(s * (double)n) && n && s != 0)
            fail("times", soft_times(t, n), bits_of(s * (double)n));
    }
}

/* Decays and gates: numbers of every size, more of them where neither is 0 or 1. */
static void check_restated(void)
{
    enum { N = 64 };
    float x[N], y[N], decay[N], in[N], a = -fabsf(draw(124)), lo = -5.0f;
    for (int i = 0; i < N; i++) {
        x[i] = draw(127);
        if (i % 4) x[i] = (float)(int64_t)(rng_next(&state) >> 40) * 0x1p-20f - 8.0f;
        if (x[i] != x[i]) x[i] = 1.0f;
        y[i] = decay[i] = in[i] = x[i];
    }
    if (!(a > -1e3f)) a = -1.0f;
    kern_sigmoid_f32_ref(y, N);
    kern_decay_f32_ref(decay, a, N);
    kern_decay_in_f32_ref(in, a, lo, N);
    for (int i = 0; i < N; i++) {
        float by = sigmoid(x[i]), to = exp0(mul(a, softplus(x[i])));
        if (floatBitsToUint(by) != floatBitsToUint(y[i]))
            fail("sigmoid", floatBitsToUint(by), floatBitsToUint(y[i]));
        if (floatBitsToUint(to) != floatBitsToUint(decay[i]))
            fail("decay", floatBitsToUint(to), floatBitsToUint(decay[i]));
        to = exp0(mul(lo, sigmoid(mul(-a, x[i]))));
        if (floatBitsToUint(to) != floatBitsToUint(in[i]))
            fail("decay in", floatBitsToUint(to), floatBitsToUint(in[i]));
    }
}

int main(void)
{
    for (int i = 0; i < 30000; i++)
        check_restated();
    for (int i = 0; i < 1000000; i++) {
        check_fma();
        check_middle();
    }
    for (int i = 0; i < 100000; i++)
        check_doubles();
    uint64_t inf = soft_square(INFINITY);
    if (inf != SOFT_INF || soft_add(1ul << 60, inf) != SOFT_INF || soft_times(inf, 3) != SOFT_INF)
        fail("inf", inf, SOFT_INF);
    printf("%d differ\n", n_bad);
    return n_bad != 0;
}
