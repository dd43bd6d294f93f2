/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms that any thread may feed, and their text for Prometheus. */
#ifndef NET_METRIC_H
#define NET_METRIC_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/str.h"

#define NET_HIST_MAX 20

struct net_count {
    _Atomic uint64_t v; /* relaxed: a statistic */
};

struct net_hist {
    const double *bound; /* rising, n of them */
    int n;
    _Atomic uint64_t count[NET_HIST_MAX + 1]; /* relaxed */
    _Atomic uint64_t sum_micro;
};

/* Threads: any, of all of these. */
static inline void net_count_add(struct net_count *c, uint64_t n)
{
    atomic_fetch_add_explicit(&c->v, n, memory_order_relaxed);
}
static inline void net_count_sub(struct net_count *c, uint64_t n)
{
    atomic_fetch_sub_explicit(&c->v, n, memory_order_relaxed);
}
static inline uint64_t net_count_get(const struct net_count *c)
{
    return atomic_load_explicit(&c->v, memory_order_relaxed);
}
/* One observation of v, in the histogram's unit. */
void net_hist_add(struct net_hist *h, double v);
void net_hist_add_n(struct net_hist *h, double v, int n); /* n times */

/* "# HELP", "# TYPE". kind: "counter", "gauge", "histogram". */
void net_metric_head(struct str *out, const char *name, const char *kind, const char *help);
/* labels: "a=\"b\"" or "". */
void net_metric_value(struct str *out, const char *name, const char *labels, double v);
void net_metric_hist(struct str *out, const char *name, const char *labels,
                     const struct net_hist *h);

#endif
