/* SPDX-License-Identifier: Apache-2.0 */
/* What a draw among all tokens does for each of them (engine/race.c, engine/sample.c): random words
 * and sums of weights. Pure: no memory, locks or failure. All variants give the same bits. */
#ifndef KERN_DRAW_H
#define KERN_DRAW_H

#include <stdint.h>
#include <string.h>

#define DRAW_TILE 64 /* ids whose words are made together */
/* ln of less than 2^-33, which is the least v of a race: an id that leads with score s is not
 * beaten by one with z < s + DRAW_LEAST. */
#define DRAW_LEAST (-22.9f)

struct draw_run {
    const float *z; /* [n] logarithms of weights, (logit - largest) / temperature; no NaN */
    int n;
    uint64_t key, counter; /* of rng_philox: id i has word i % 4 of block i / 4 */
    float best;            /* the score that leads */
    uint32_t *w;           /* [DRAW_TILE] words of a tile's ids, out */
};

struct draw_mass {
    double sum; /* of e^z */
    int n;      /* how many were added */
};

/* No less than 2^32 e^(z - best) / 2: with x = k + f, 2^x <= 2^k (1 + f), which is what the bits of
 * a float say that hold x in steps of 2^-23. */
static inline float draw_bound(float z, float best)
{
    float x = (z - best) * 0x1.715476p0f + 0.001f, y; /* log2 e */
    x = x > -40.0f ? x : -40.0f;
    x = x < 1.0f ? x : 1.0f;
    int32_t b = (int32_t)(x * 0x1p23f) + (158 << 23); /* times 2^31 */
    memcpy(&y, &b, sizeof y);
    return y;
}

/* Whether an id with this word may beat the score that leads. */
static inline int draw_may_win(float z, uint32_t word, float best)
{
    return (float)(int32_t)(word >> 1) <= draw_bound(z, best);
}

#endif
