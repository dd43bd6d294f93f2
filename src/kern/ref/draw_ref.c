/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kern/draw.h, an id after the other. */
#include <math.h>

#include "base/fp_math.h"
#include "base/rng.h"
#include "base/size.h"
#include "kern/kern.h"

static int any_may_win(const struct draw_run *r, int id0, int n)
{
    int any = 0, near = 0;
    for (int i = 0; i < n; i++)
        near |= r->z[id0 + i] >= r->best + DRAW_LEAST;
    if (!near) return 0;
    for (int i = 0; i < DRAW_TILE / 4; i++)
        rng_philox(r->key, r->counter, (uint64_t)id0 / 4 + (uint64_t)i, r->w + 4 * i);
    for (int i = 0; i < n; i++)
        any |= draw_may_win(r->z[id0 + i], r->w[i], r->best);
    return any;
}

int kern_draw_next_ref(const struct draw_run *r, int id0)
{
    while (id0 < r->n && !any_may_win(r, id0, BASE_MIN(DRAW_TILE, r->n - id0)))
        id0 += DRAW_TILE;
    return BASE_MIN(id0, r->n);
}

struct draw_mass kern_draw_mass_ref(const float *z, int n, float least)
{
    struct draw_mass m = {0, 0};
    for (int i = 0; i < n; i++) {
        if (!(z[i] > -INFINITY && z[i] >= least)) continue;
        m.sum += fp_exp((double)z[i]);
        m.n++;
    }
    return m;
}
