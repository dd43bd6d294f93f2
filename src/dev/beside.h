/* SPDX-License-Identifier: Apache-2.0 */
/* One KV cache whose layers lie on several devices: every device has a cache of its own for its
 * layers, with the same blocks, and the first one stands for all of them. dev_kv_touch, _free and
 * _poison then mean a block on all devices; pages are not shown. Operators name a layer by its
 * place in the cache of their own device. */
#ifndef DEV_BESIDE_H
#define DEV_BESIDE_H

#include "dev/dev.h"

/* kv[0] stands for all n of them, each on another device. */
void dev_kv_beside(dev_kv *const *kv, int n);
/* What of kv (may be NULL) is on d; NULL: nothing is. */
dev_kv *dev_kv_on(dev_kv *kv, const dev *d);

#endif
