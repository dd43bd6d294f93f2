/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers (Philox4x32-10; Salmon et al., SC 2011): the number for a counter
 * depends on key and counter only. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* Philox 4x32 with 10 rounds: four random words of a 64-bit key and a 128-bit counter. */
static inline void rng_philox(uint64_t key, uint64_t ctr_hi, uint64_t ctr_lo, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)ctr_lo, c1 = (uint32_t)(ctr_lo >> 32);
    uint32_t c2 = (uint32_t)ctr_hi, c3 = (uint32_t)(ctr_hi >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1) with 53 bits, for draw number ctr of a stream. */
static inline double rng_uniform(uint64_t key, uint64_t stream, uint64_t ctr)
{
    uint32_t r[4];
    rng_philox(key, stream, ctr, r);
    return (double)(((uint64_t)r[0] << 21) ^ (uint64_t)(r[1] >> 11)) * 0x1p-53;
}

/* A small sequential generator (splitmix64) for tests and initial values. */
static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

#endif
