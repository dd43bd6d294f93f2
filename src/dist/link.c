/* SPDX-License-Identifier: Apache-2.0 */
/* How fast joins are, measured when ranks have opened. */
#include "base/clock.h"
#include "base/mem.h"
#include "dist/dist_internal.h"

#define FEW 16   /* columns of a rank */
#define MANY 128 /* in rows of which there are as many */
#define TURNS 16 /* of few columns; the quickest counts */
#define PASSES 2 /* the same of many */

/* s of the quickest of n joins. */
static double quickest(dist *d, struct dist_cols *c, int n)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < n; i++) {
        int64_t t0 = clock_now_ns();
        dist_cols(d, c);
        least = BASE_MIN(least, clock_now_ns() - t0);
    }
    return (double)BASE_MAX(least, 1) * 1e-9;
}

sl_status dist_measure(dist *d, struct dist_link *out, sl_err *err)
{
    struct dist_circle *who = dist_circle_of(d, DIST_STAGE);
    struct dist_count was = d->count;
    int32_t part[DIST_RANK_MAX];
    size_t one = (size_t)MANY * MANY;
    void *p = d->room;
    *out = (struct dist_link){0};
    if (who->n < 2) return SL_OK;
    if (!p)
        SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)(who->n + 1) * one, sizeof(float), &p, err));
    d->room = p; /* others read there until the next join is over */
    struct dist_cols c = {.of = DIST_STAGE,
                          .x = p,
                          .y = (float *)p + one,
                          .n_row = 1,
                          .n = who->n * FEW,
                          .part = part};
    for (int r = 0; r < who->n; r++)
        part[r] = FEW;
    out->us = quickest(d, &c, TURNS) * 1e6;
    for (int r = 0; r < who->n; r++)
        part[r] = MANY;
    c.n_row = MANY;
    c.n = who->n * MANY;
    double bytes = (double)((size_t)(who->n - 1) * one * sizeof(float));
    out->gbps = bytes / quickest(d, &c, PASSES) * 1e-9;
    d->count = was;
    return SL_OK;
}
