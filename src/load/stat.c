/* SPDX-License-Identifier: Apache-2.0 */
/* Means and percentiles of measured times. */
#include <math.h>
#include <stdlib.h>

#include "load/load.h"

const double load_pct[LOAD_N_PCT] = {1, 5, 10, 25, 50, 75, 90, 95, 99};

static int rising(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void load_dist_of(float *v, int64_t n, struct load_dist *out)
{
    *out = (struct load_dist){.n = n};
    if (n < 1) return;
    qsort(v, (size_t)n, sizeof *v, rising);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)v[i];
    out->mean = sum / (double)n;
    out->min = (double)v[0];
    out->max = (double)v[n - 1];
    for (int k = 0; k < LOAD_N_PCT; k++) {
        int64_t i = (int64_t)ceil(load_pct[k] / 100 * (double)n) - 1;
        out->pct[k] = (double)v[i > 0 ? i : 0];
    }
}

double load_dist_at(const struct load_dist *d, double pct)
{
    for (int k = 0; k < LOAD_N_PCT; k++)
        if (load_pct[k] == pct) return d->pct[k];
    return d->mean;
}
