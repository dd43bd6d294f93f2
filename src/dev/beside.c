/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of several devices that are one. */
#include "dev/beside.h"

#include "dev/dev_internal.h"

void dev_kv_beside(dev_kv *const *kv, int n, const struct dev_kv_layers *where)
{
    for (int i = 0; i + 1 < n; i++)
        kv[i]->beside = kv[i + 1];
    if (n > 1) kv[0]->where = where;
}

dev_kv *dev_kv_on(dev_kv *kv, const dev *d)
{
    while (kv && kv->d != d)
        kv = kv->beside;
    return kv;
}

dev_kv *dev_kv_of_layer(dev_kv *kv, struct dev_kv_at *at)
{
    if (!kv->where) return kv;
    struct dev_kv_layer l = kv->where->of[at->group][at->layer];
    for (int i = 0; i < l.cache; i++)
        kv = kv->beside;
    at->layer = l.layer;
    return kv;
}
