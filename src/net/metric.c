/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and histograms, and their text for Prometheus. */
#include "net/metric.h"

void net_hist_add_n(struct net_hist *h, double v, int n)
{
    int i = 0;
    if (!(v >= 0)) v = 0;
    while (i < h->n && v > h->bound[i])
        i++;
    atomic_fetch_add_explicit(&h->count[i], (uint64_t)n, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_micro, (uint64_t)(v * 1e6 * n), memory_order_relaxed);
}

void net_hist_add(struct net_hist *h, double v)
{
    net_hist_add_n(h, v, 1);
}

void net_metric_head(struct str *out, const char *name, const char *kind, const char *help)
{
    str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void net_metric_value(struct str *out, const char *name, const char *labels, double v)
{
    str_printf(out, *labels ? "%s{%s} %.15g\n" : "%s%s %.15g\n", name, labels, v);
}

void net_metric_hist(struct str *out, const char *name, const char *labels,
                     const struct net_hist *h)
{
    uint64_t sum = 0;
    const char *comma = *labels ? "," : "";
    for (int i = 0; i <= h->n; i++) {
        sum += atomic_load_explicit(&h->count[i], memory_order_relaxed);
        if (i < h->n)
            str_printf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, labels, comma, h->bound[i],
                       (unsigned long long)sum);
        else
            str_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
                       (unsigned long long)sum);
    }
    double total = (double)atomic_load_explicit(&h->sum_micro, memory_order_relaxed) * 1e-6;
    str_printf(out, *labels ? "%s_sum{%s} %.9g\n" : "%s_sum%s %.9g\n", name, labels, total);
    str_printf(out, *labels ? "%s_count{%s} %llu\n" : "%s_count%s %llu\n", name, labels,
               (unsigned long long)sum);
}
