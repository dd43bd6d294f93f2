/* SPDX-License-Identifier: Apache-2.0 */
/* One draw as an exponential race: candidate x, of weight w = e^z, arrives after E / w, where E is
 * exponential, and the first wins: x with probability w / (sum of all w), without that sum. E comes
 * from (seed, sample, place in the answer, id) alone, so the winner hardly changes when the
 * distribution hardly does, and what other candidates there are does not move anybody's E: a draft
 * and its verification, which see nearly the same distribution with the same noise, nearly always
 * agree. In logarithms: the greatest z - ln E (Gumbel's way), the lower id of equals.
 *
 * Most candidates can not win and cost next to nothing. E = -ln(1 - v), v = (word + 1/2) / 2^32, is
 * never less than v: one that leads with score s is only beaten where v < e^(z - s). That is tried
 * with a float's bits taken as an exponential that is a little too large, and where even the least
 * v would not do no word is made at all. Only skipping is approximate: every score that decides is
 * computed by base/fp_math.h. */
#include "base/fp_math.h"
#include "base/rng.h"
#include "engine/engine_internal.h"
#include "kern/kern.h"

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

int32_t engine_race_all(const float *z, int n, int32_t first, const struct engine_draw *d)
{
    struct race r = {-1e300, first};
    const struct kern *k = kern_get();
    uint32_t w[DRAW_TILE];
    enter(&r, z[first], word_of(d, first), first);
    struct draw_run run = {z, n, d->p->seed, counter(d), (float)r.best, w};
    for (int id0 = 0; (id0 = k->draw_next(&run, id0)) < n; id0 += DRAW_TILE) {
        for (int i = 0; i < BASE_MIN(DRAW_TILE, n - id0); i++)
            if (draw_may_win(z[id0 + i], w[i], (float)r.best))
                enter(&r, z[id0 + i], w[i], id0 + i);
        run.best = (float)r.best;
    }
    return r.id;
}

int32_t engine_race(const struct engine_cand *c, int n, const struct engine_draw *d)
{
    struct race r = {-1e300, c[0].id};
    for (int i = 0; i < n; i++)
        if (c[i].v >= (float)r.best + DRAW_LEAST) enter(&r, c[i].v, word_of(d, c[i].id), c[i].id);
    return r.id;
}
