/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that will be read soon, asked for a few lines at a time between pieces of work: a core has
 * some dozens of lines under way at most, drops further prefetches, and waits for their lines where
 * they are used. Room-internal. */
#ifndef DEV_CPU_ASK_H
#define DEV_CPU_ASK_H

#include <stddef.h>

#include "kern/attn.h"

#define CPU_ASK_MAX 4
struct cpu_ask {
    struct attn_region r[CPU_ASK_MAX]; /* what is left of them, from r[at] on */
    int at, n, lines;                  /* lines: so many at a time */
};

static inline void dev_cpu_ask_add(struct cpu_ask *x, const uint8_t *at, size_t n_bytes)
{
    if (x->n < CPU_ASK_MAX) x->r[x->n++] = (struct attn_region){at, (int64_t)n_bytes};
}

/* All of it in so many times. */
static inline void dev_cpu_ask_in(struct cpu_ask *x, int n_time)
{
    int64_t n = 0;
    for (int i = 0; i < x->n; i++)
        n += (x->r[i].n_bytes + 63) / 64;
    x->lines = (int)((n + n_time - 1) / n_time);
}

static inline void dev_cpu_ask(struct cpu_ask *x)
{
    for (int i = x->lines; i > 0 && x->at < x->n;) {
        struct attn_region *r = &x->r[x->at];
        for (; i > 0 && r->n_bytes > 0; i--, r->at += 64, r->n_bytes -= 64)
            __builtin_prefetch(r->at, 0, 2);
        x->at += r->n_bytes <= 0;
    }
}

#endif
