/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and rank correlation over chosen rows. */
#include <math.h>
#include <stdlib.h>

#include "plan/calib.h"

#define MAX_PICK 1024

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ranks_of(const double *v, int n, double *r)
{
    for (int i = 0; i < n; i++) {
        double less = 0, same = 0;
        for (int j = 0; j < n; j++)
            less += v[j] < v[i], same += v[j] == v[i];
        r[i] = less + (same + 1) / 2;
    }
}

void plan_score(const struct plan_data *d, bool (*keep)(const struct plan_item *, const void *),
                const void *user, struct plan_score *out)
{
    double e[MAX_PICK], a[MAX_PICK], b[MAX_PICK], ra[MAX_PICK], rb[MAX_PICK], sum = 0;
    int n = 0;
    *out = (struct plan_score){.worst_item = -1};
    for (int i = 0; i < d->n && n < MAX_PICK; i++) {
        const struct plan_item *it = &d->item[i];
        if (it->skip || !keep(it, user)) continue;
        e[n] = 100 * fabs(it->got / it->row->value - 1);
        a[n] = it->got, b[n] = it->row->value;
        sum += e[n];
        if (e[n] >= out->worst) out->worst = e[n], out->worst_item = i;
        n++;
    }
    out->n = n;
    if (n == 0) return;
    out->mape = sum / n;
    ranks_of(a, n, ra), ranks_of(b, n, rb);
    double ma = (n + 1) / 2.0, sab = 0, saa = 0, sbb = 0;
    for (int i = 0; i < n; i++) {
        sab += (ra[i] - ma) * (rb[i] - ma), saa += (ra[i] - ma) * (ra[i] - ma);
        sbb += (rb[i] - ma) * (rb[i] - ma);
    }
    out->rank = saa > 0 && sbb > 0 ? sab / sqrt(saa * sbb) : 1;
    qsort(e, (size_t)n, sizeof *e, by_double);
    out->median = n % 2 ? e[n / 2] : 0.5 * (e[n / 2 - 1] + e[n / 2]);
}
