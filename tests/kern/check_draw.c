/* SPDX-License-Identifier: Apache-2.0 */
/* Words and masses of draws: every variant against base/rng.h and base/fp_math.h, bit for bit. */
#include <math.h>
#include <string.h>

#include "base/fp_math.h"
#include "base/size.h"
#include "check.h"

#define N_MAX 1000

/* Logarithms of weights from 0 down, over a width that is drawn; some are impossible. */
static float *weights(struct check *c, int n)
{
    static const float width[] = {0, 3, 12, 40, 900};
    float *z = check_alloc(c, (size_t)n * sizeof *z), w = width[check_rand(c, 5)];
    for (int i = 0; i < n; i++)
        z[i] = check_rand(c, 20) ? (check_randf(c) - 1) / 2 * w : -INFINITY;
    return z;
}

/* The words are those of the generator, and nobody is passed over who would beat best. */
static void check_run(struct check *c, int (*f)(const struct draw_run *, int), struct draw_run *r)
{
    uint32_t words[DRAW_TILE];
    struct draw_run ref = *r;
    ref.w = words;
    for (int id0 = 0; id0 < r->n; id0 += DRAW_TILE) {
        int at = f(r, id0), want = kern_draw_next_ref(&ref, id0);
        c->n_case++;
        if (at != want) check_fail(c, "n %d from %d: %d, not %d", r->n, id0, at, want);
        for (int i = 0; i < DRAW_TILE && at < r->n && at + i < r->n; i++)
            if (r->w[i] != words[i]) check_fail(c, "word of id %d", at + i);
        for (int id = id0; id < r->n; id++) {
            uint32_t w[4];
            rng_philox(r->key, r->counter, (uint64_t)id / 4, w);
            double v = ((double)w[id % 4] + 0.5) * 0x1p-32;
            double z = (double)r->z[id] - (double)r->best;
            if (id < at && -log1p(-v) <= exp(z))
                check_fail(c, "id %d wins and is passed over", id);
            if (id >= at && id - at < DRAW_TILE && r->w[id - at] != w[id % 4])
                check_fail(c, "word of id %d is not the generator's", id);
        }
        id0 = at;
    }
}

void check_draw_next(struct check *c, int (*f)(const struct draw_run *, int))
{
    for (int i = 0; i < 300; i++) {
        int n = 1 + (int)check_rand(c, N_MAX);
        struct draw_run r = {.z = weights(c, n),
                             .n = n,
                             .key = rng_next(&c->rng),
                             .counter = rng_next(&c->rng),
                             .best = check_randf(c) * 8,
                             .w = check_alloc(c, DRAW_TILE * sizeof *r.w)};
        check_run(c, f, &r);
        check_free_all();
    }
}

void check_draw_mass(struct check *c, struct draw_mass (*f)(const float *, int, float))
{
    for (int i = 0; i < 1000; i++) {
        int n = 1 + (int)check_rand(c, N_MAX), some = 0;
        const float *z = weights(c, n);
        float least = check_rand(c, 2) ? -INFINITY : z[check_rand(c, (uint32_t)n)];
        double sum = 0;
        for (int k = 0; k < n; k++) {
            if (z[k] == -INFINITY || z[k] < least) continue;
            sum += fp_exp((double)z[k]);
            some++;
        }
        struct draw_mass m = f(z, n, least);
        c->n_case++;
        if (m.n != some) check_fail(c, "n %d: %d of them, not %d", n, m.n, some);
        if (memcmp(&m.sum, &sum, sizeof sum) != 0)
            check_fail(c, "n %d: %.17g, not %.17g", n, m.sum, sum);
        check_free_all();
    }
}
