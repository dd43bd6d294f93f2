/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3, by the xxHash library. */
#include "base/hash.h"

#define XXH_INLINE_ALL /* no library to link: cross builds have none */
#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

void hash_wide(const void *p, size_t n, uint64_t out[2])
{
    XXH128_hash_t h = XXH3_128bits(p, n);
    out[0] = h.low64;
    out[1] = h.high64;
}
