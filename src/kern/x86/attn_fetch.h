/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that will be needed soon, fetched evenly while attention computes: all at once they would
 * wait for slow memory. */
#ifndef KERN_X86_ATTN_FETCH_H
#define KERN_X86_ATTN_FETCH_H

#include <immintrin.h>

#include "kern/attn.h"

/* What is left to fetch: [at, end), then n_more regions; lines per round. */
struct fetch {
    const uint8_t *at, *end;
    const struct attn_region *more;
    int n_more, lines;
};

static inline __attribute__((always_inline)) struct fetch fetch_over(const struct attn_region *next,
                                                                     int n_next, int64_t rounds)
{
    struct fetch f = {.more = next, .n_more = n_next};
    int64_t n = 0;
    for (int i = 0; i < n_next; i++)
        n += (next[i].n_bytes + 63) / 64;
    if (n && rounds > 0) f.lines = (int)((n + rounds - 1) / rounds);
    return f;
}

static inline __attribute__((always_inline)) void fetch_some(struct fetch *f)
{
    for (int i = 0; i < f->lines; i++) {
        if (f->at >= f->end) {
            if (f->n_more-- <= 0) {
                f->lines = 0;
                return;
            }
            f->at = f->more->at;
            f->end = f->at + f->more++->n_bytes;
        }
        _mm_prefetch((const char *)f->at, _MM_HINT_T1);
        f->at += 64;
    }
}

#endif
