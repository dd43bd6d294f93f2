/* SPDX-License-Identifier: Apache-2.0 */
/* A mixer with a recurrent state and no keys, of the weights of attention: its queries, summed up
 * with a decay, are its output. It is there to test states; no architecture has it. */
#include "model/emit.h"

#define DECAY 0.75f

void model_scan_emit(struct emit *e, const struct layer *l)
{
    const struct side *s = e->side;
    const struct model *m = e->m;
    struct model_kv_place at = model_kv_here(e->m, e->layer);
    int n = m->dims.n_head * arch_d_head(&m->cfg, e->layer);
    EMIT(e, matmul, .act = s->a_attn, .n_mat = 1, .w = {l->q}, .y = {s->q});
    EMIT(e, scan, .group = at.group, .layer = at.layer, .n = n,
         .decay = DECAY, .x = s->q, .y = s->y);
}
