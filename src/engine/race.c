/* SPDX-License-Identifier: Apache-2.0 */
/* One draw as an exponential race: candidate x, of weight w = e^z, arrives after E / w, where E is
 * exponential, and the first wins: x with probability w / (sum of all w), without that sum. E comes
 * from (seed, sample, place in the answer, id) alone, so the winner hardly changes when the
 * distribution hardly does, and what other candidates there are does not move anybody's E: a draft
 * and its verification, which see nearly the same distribution with the same noise, nearly always
 * agree. In logarithms: the greatest z - ln E (Gumbel's way), the lower id of equals.
 *
 * Most candidates can not win and cost next to nothing. E = -ln(1 - v), v = (word + 1/2) / 2^32, is
 * never less than v: who leads with score s is only beaten where v < e^(z - s). That is tried with
 * a float's bits taken as an exponential that is a little too large, and where even the least v
 * would not do no word is made at all. Only skipping is approximate: every score that decides is
 * computed by base/fp_math.h. */
#include <string.h>

#include "base/fp_math.h"
#include "base/rng.h"
#include "engine/engine_internal.h"

#define TILE 64 /* ids whose words are made together */
#define LOG2E 0x1.715476p0f
#define LEAST_E (-22.9f) /* ln of less than the least v, 2^-33 */

struct race {
    double best; /* score */
    int32_t id;
};

static void enter(struct race *r, float z, uint32_t word, int32_t id)
{
    double u = (0x1p32 - 0.5 - (double)word) * 0x1p-32; /* 1 - v, exactly */
    double s = (double)z - fp_log(-fp_log(u));
    if (s > r->best || (s == r->best && id < r->id)) *r = (struct race){s, id};
}

static uint64_t counter(const struct engine_draw *d)
{
    return d->stream << 32 | d->index;
}

static uint32_t word_of(const struct engine_draw *d, int32_t id)
{
    uint32_t w[4];
    rng_philox(d->p->seed, counter(d), (uint64_t)id / 4, w);
    return w[id % 4];
}

/* No less than 2^32 e^(z - best) / 2: with x = k + f, 2^x <= 2^k (1 + f), which is what the bits of
 * a float say that hold x in steps of 2^-23. */
static float bound(float z, float best)
{
    float x = (z - best) * LOG2E + 0.001f, y;
    x = x > -40.0f ? x : -40.0f;
    x = x < 1.0f ? x : 1.0f;
    int32_t b = (int32_t)(x * 0x1p23f) + (158 << 23); /* times 2^31 */
    memcpy(&y, &b, sizeof y);
    return y;
}

/* Half of a word, as a float. */
static float half_of(uint32_t word)
{
    return (float)(int32_t)(word >> 1);
}

static void tile(struct race *r, const float *z, int n, int32_t id0, const struct engine_draw *d)
{
    uint32_t w[TILE];
    int any = 0;
    for (int i = 0; i < TILE / 4; i++)
        rng_philox(d->p->seed, counter(d), (uint64_t)id0 / 4 + (uint64_t)i, w + 4 * i);
    float best = (float)r->best;
    for (int i = 0; i < n; i++)
        any |= half_of(w[i]) <= bound(z[i], best);
    for (int i = 0; any && i < n; i++)
        if (half_of(w[i]) <= bound(z[i], (float)r->best)) enter(r, z[i], w[i], id0 + i);
}

int32_t engine_race_all(const float *z, int n, int32_t first, const struct engine_draw *d)
{
    struct race r = {-1e300, first};
    enter(&r, z[first], word_of(d, first), first);
    for (int id0 = 0; id0 < n; id0 += TILE) {
        int m = BASE_MIN(TILE, n - id0);
        float least = (float)r.best + LEAST_E, top = z[id0];
        for (int i = 1; i < m; i++)
            top = z[id0 + i] > top ? z[id0 + i] : top;
        if (top >= least) tile(&r, z + id0, m, id0, d);
    }
    return r.id;
}

int32_t engine_race(const struct engine_cand *c, int n, const struct engine_draw *d)
{
    struct race r = {-1e300, c[0].id};
    for (int i = 0; i < n; i++)
        if (c[i].v >= (float)r.best + LEAST_E) enter(&r, c[i].v, word_of(d, c[i].id), c[i].id);
    return r.id;
}
