/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a lightning indexer: as those of dev/dev.h. */
#ifndef DEV_INDEX_H
#define DEV_INDEX_H

#include <stdint.h>

typedef struct dev_kv dev_kv;

/* Which positions a token's attention over latents sees (DeepSeek-V3.2): of a token at position p
 * the `top` positions s <= p with the largest sum over h of w[t, h] * max(0, q[t, h] k[s]), among
 * equals the lower, rising, in pick[t]. Keys k are those that dev_kv_put stored beside the latents
 * (dev_kv_group.d_i), also of the step's own tokens. A token at a position below top sees all, and
 * its row of pick stays as it is. */
struct dev_index {
    const dev_kv *kv;
    int group, layer, n_head, d, top;
    const float *q; /* [T, n_head, d] */
    const float *w; /* [T, n_head] */
    int32_t *pick;  /* [T, top] */
};

#endif
