/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 of a byte range (xxHash 0.8). */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed); /* of 64 bits */
void hash_wide(const void *p, size_t n, uint64_t out[2]);    /* of 128: low, high; without a seed */

#endif
