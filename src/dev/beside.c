/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of several devices that are one. */
#include "dev/beside.h"

#include "dev/dev_internal.h"

void dev_kv_beside(dev_kv *const *kv, int n)
{
    for (int i = 0; i + 1 < n; i++)
        kv[i]->beside = kv[i + 1];
}

dev_kv *dev_kv_on(dev_kv *kv, const dev *d)
{
    while (kv && kv->d != d)
        kv = kv->beside;
    return kv;
}
