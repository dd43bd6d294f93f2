/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-64, by the xxHash library. */
#include "base/hash.h"

#define XXH_INLINE_ALL /* no library to link: cross builds have none */
#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}
