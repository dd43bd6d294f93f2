/* SPDX-License-Identifier: Apache-2.0 */
/* Row H11: comparing a key takes the same time wherever it differs (dudect: Welch's t of two
 * classes in one reused buffer). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/crypt.h"
#include "test.h"

#define N 100000
#define INNER 8

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* |t| of the times below their 90th percentile, for what fn says of the same bytes and of others.
 */
static double t_of(bool (*fn)(const void *, const void *, size_t), int differs_at)
{
    static double time_of[N], sorted[N];
    static unsigned char class_of[N];
    uint8_t key[NET_SHA256_BYTES], given[NET_SHA256_BYTES];
    double n[2] = {0}, sum[2] = {0}, sq[2] = {0};
    volatile bool seen;
    net_random(key, sizeof key);
    for (int i = 0; i < N; i++) {
        uint8_t r;
        net_random(&r, 1);
        class_of[i] = r & 1;
        memcpy(given, key, sizeof key);
        given[differs_at] ^= (uint8_t)(r & 1);
        double t0 = now();
        for (int k = 0; k < INNER; k++)
            seen = fn(key, given, sizeof key);
        time_of[i] = sorted[i] = now() - t0;
        (void)seen;
    }
    qsort(sorted, N, sizeof *sorted, by_value);
    for (int i = 0; i < N; i++) {
        if (time_of[i] > sorted[N * 9 / 10]) continue;
        int c = class_of[i];
        n[c]++;
        sum[c] += time_of[i];
        sq[c] += time_of[i] * time_of[i];
    }
    double m0 = sum[0] / n[0], m1 = sum[1] / n[1];
    double v0 = sq[0] / n[0] - m0 * m0, v1 = sq[1] / n[1] - m1 * m1;
    return fabs(m0 - m1) / sqrt(v0 / n[0] + v1 / n[1] + 1e-12);
}

static bool naive(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    for (size_t i = 0; i < n; i++)
        if (x[i] != y[i]) return false;
    return true;
}

TEST(net_keys_are_compared_in_constant_time)
{
    for (int at = 0; at < NET_SHA256_BYTES; at += NET_SHA256_BYTES - 1) {
        double t = 1e9;
        for (int i = 0; i < 5 && t >= 4.5; i++) /* the machine may be busy */
            t = t_of(net_equal, at);
        printf("differs at %d: |t| %.2f\n", at, t);
        assert_true(t < 4.5);
    }
    double t = t_of(naive, 0);
    printf("a plain loop: |t| %.0f\n", t);
    assert_true(t > 20); /* so that the measure is known to see one */
}
