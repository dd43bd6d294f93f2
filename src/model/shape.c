/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that follow from the configuration. */
#include <string.h>

#include "model/model_internal.h"

sl_status model_slots_open(struct model *m, sl_err *err)
{
    const struct model_opts *o = &m->opts;
    int E = m->cfg.n_expert;
    void *p = NULL;
    if (!o->n_slot || !E) return SL_OK;
    if (o->pack)
        return SL_FAIL(err, UNSUPPORTED,
                       "%s: expert slots: a packed file holds its experts in order",
                       io_pack_path(o->pack));
    for (int i = 0; i < o->n_slot; i++)
        if (o->slot_expert[i] < 0 || o->slot_expert[i] >= E)
            return SL_FAIL(err, REQUEST, "expert slot %d: expert %d of %d", i,
                           (int)o->slot_expert[i], E);
    size_t n = (size_t)o->n_slot;
    SL_TRY(mem_arena_array(&m->arena, 2 * n + (size_t)E + 1, sizeof(int32_t), &p, err));
    int32_t *expert = p;
    memcpy(expert, o->slot_expert, n * sizeof *expert);
    m->slots = (struct dev_slots){
        .n = o->n_slot, .expert = expert, .list = expert + n, .first = expert + 2 * n};
    dev_slots_init(&m->slots, E);
    return SL_OK;
}

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
