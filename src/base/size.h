/* SPDX-License-Identifier: Apache-2.0 */
/* Checked sizes: the only place where sizes that come from a file or a request are multiplied and
 * added. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True and *out set when the result fits; false and *out untouched otherwise. */
static inline bool size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* x rounded up to a multiple of the power of two a; false when that does not fit. */
static inline bool size_align(uint64_t x, uint64_t a, uint64_t *out)
{
    uint64_t r;
    if (!size_add(x, a - 1, &r)) return false;
    *out = r & ~(a - 1);
    return true;
}

/* For sizes of our own making that cannot overflow. */
static inline size_t size_round(size_t x, size_t a)
{
    return (x + a - 1) / a * a;
}

/* x / a, rounded up; x >= 0, a > 0, and x + a fits. */
static inline int size_div_up(int x, int a)
{
    return (x + a - 1) / a;
}

#endif
