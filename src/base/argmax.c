/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of many values. */
#include "base/argmax.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Four at a time, by hand: gcc makes one at a time of the plain loop, which took longer than a
 * layer of a small model. */
typedef float floats __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16))); /* all bits or none */
#define LANES 4
#define RUN 16 /* values of a round */

static floats load(const float *v)
{
    floats x;
    memcpy(&x, v, sizeof x);
    return x;
}

static bool any_of(masks m)
{
    uint64_t half[2];
    memcpy(half, &m, sizeof half);
    return half[0] | half[1];
}

/* The first of v that is x, which is there. */
static int first_of(const float *v, int n, float x)
{
    floats all = {x, x, x, x};
    int i = 0;
    for (; i + RUN <= n; i += RUN) {
        masks same = load(v + i) == all;
        for (int k = LANES; k < RUN; k += LANES)
            same |= load(v + i + k) == all;
        if (any_of(same)) break;
    }
    while (i < n - 1 && v[i] != x)
        i++;
    return i;
}

int argmax_f32(const float *v, int n)
{
    floats top[RUN / LANES];
    masks bad = {0};
    float best = -INFINITY;
    bool any = false;
    int i = 0;
    for (int k = 0; k < RUN / LANES; k++)
        top[k] = (floats){-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (; i + RUN <= n; i += RUN)
        for (int k = 0; k < RUN / LANES; k++) {
            floats x = load(v + i + k * LANES);
            masks more = x > top[k];
            top[k] = (floats)((more & (masks)x) | (~more & (masks)top[k]));
            bad |= x != x;
        }
    for (; i < n; i++) {
        best = v[i] > best ? v[i] : best;
        any |= v[i] != v[i];
    }
    for (int k = 0; k < RUN; k++)
        best = top[k / LANES][k % LANES] > best ? top[k / LANES][k % LANES] : best;
    return any || any_of(bad) ? -1 : first_of(v, n, best);
}
