/* SPDX-License-Identifier: Apache-2.0 */
/* Where the last tokens of a text stood before: chains of equal pairs, newest first. */
#include <string.h>

#include "spec/spec.h"

#define STEPS 64 /* candidates that are looked at */

static uint32_t hash_of(const struct spec_index *x, int32_t a, int32_t b)
{
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(h >> 40) & x->mask;
}

sl_status spec_index_init(struct spec_index *x, int cap, sl_err *err)
{
    void *p = NULL;
    memset(x, 0, sizeof *x);
    uint32_t n = 64;
    while (n < (uint32_t)cap / 2 && n < 1u << 24)
        n *= 2;
    SL_TRY(mem_alloc_array(MEM_REQUEST, n, sizeof *x->head, &p, err));
    x->head = p;
    memset(x->head, 0xff, n * sizeof *x->head);
    x->mask = n - 1;
    x->cap = cap;
    SL_TRY(mem_alloc_array(MEM_REQUEST, (size_t)BASE_MAX(cap, 1), sizeof *x->prev, &p, err));
    x->prev = p;
    return SL_OK;
}

void spec_index_fini(struct spec_index *x)
{
    mem_free(x->head);
    mem_free(x->prev);
    memset(x, 0, sizeof *x);
}

void spec_index_add(struct spec_index *x, const int32_t *ids, int n)
{
    ASSERT(n <= x->cap);
    for (int i = BASE_MAX(x->n, 1); i < n; i++) {
        uint32_t h = hash_of(x, ids[i - 1], ids[i]);
        x->prev[i] = x->head[h];
        x->head[h] = i;
    }
    x->n = BASE_MAX(x->n, n);
}

int spec_index_find(const struct spec_index *x, const int32_t *ids, const int32_t *tail, int n_tail,
                    int *len)
{
    int best = -1;
    *len = 0;
    if (n_tail < SPEC_MATCH_LEAST || !x->head) return -1;
    int32_t p = x->head[hash_of(x, tail[n_tail - 2], tail[n_tail - 1])];
    for (int i = 0; i < STEPS && p >= 0 && *len < SPEC_MATCH_MOST; i++, p = x->prev[p]) {
        int n = 0, most = BASE_MIN(BASE_MIN(p + 1, n_tail), SPEC_MATCH_MOST);
        if (tail == ids && p == n_tail - 1) continue;
        while (n < most && ids[p - n] == tail[n_tail - 1 - n])
            n++;
        if (n < SPEC_MATCH_LEAST || n <= *len) continue;
        *len = n;
        best = p + 1;
    }
    return best;
}
