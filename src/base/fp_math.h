/* SPDX-License-Identifier: Apache-2.0 */
/* Logarithm and exponential with a fixed order of operations: the same bits on every machine and
 * with every C library (whose own functions differ in the last bit). Draws are made of them, so
 * that a seed means the same everywhere. */
#ifndef BASE_FP_MATH_H
#define BASE_FP_MATH_H

#include <stdint.h>
#include <string.h>

#define FP_LN2_HI 0x1.62e42fee00000p-1 /* 33 bits: its product with an exponent is exact */
#define FP_LN2_LO 0x1.a39ef35793c76p-33

/* ln x for normal x > 0, within 1.5 units of the last place, also near 1.
 * x = 2^k m with m from sqrt(1/2) to sqrt(2); ln m = 2 atanh(s), s = (m - 1) / (m + 1), by its
 * series up to s^21. */
static inline double fp_log(double x)
{
    uint64_t b;
    memcpy(&b, &x, 8);
    int64_t k = (int64_t)(b >> 52) - 1023;
    b = (b & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &b, 8);
    if (m > 0x1.6a09e667f3bcdp+0) { /* sqrt(2) */
        m *= 0.5;
        k++;
    }
    double f = m - 1.0, s = f / (m + 1.0), z = s * s, p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    double t = 2.0 * s * z * p; /* ln m = 2 s + t */
    return (double)k * FP_LN2_HI + (2.0 * s + (t + (double)k * FP_LN2_LO));
}

/* e^x for x <= 0, within 1.5 units of the last place; 0 below -708. x = k ln 2 + r, the series of
 * e^r up to r^13. */
static inline double fp_exp(double x)
{
    if (!(x >= -708.0)) return 0.0;
    int64_t k = (int64_t)(x * 0x1.71547652b82fep+0 - 0.5); /* to nearest: x is not positive */
    double r = (x - (double)k * FP_LN2_HI) - (double)k * FP_LN2_LO, p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = r + r * r * p;
    uint64_t b = (uint64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &b, 8);
    return scale + scale * p;
}

#endif
