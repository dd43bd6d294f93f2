/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that follow from the configuration. */
#include "model/model_internal.h"

struct dev_kv_shape model_kv_shape(const struct arch_cfg *c, enum dev_kv_type type, int n_blk,
                                   int blk_tok)
{
    struct dev_kv_shape s = {
        .type = type, .n_layer = c->n_layer + c->n_mtp, .n_blk = n_blk, .blk_tok = blk_tok};
    if (c->kv_lora) {
        s.n_head = 1;
        s.d_k = c->kv_lora + c->d_rope;
    } else {
        s.n_head = c->n_head_kv;
        s.d_k = s.d_v = c->d_head;
    }
    return s;
}
