/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that follow from the configuration. */
#include <string.h>

#include "model/model_internal.h"

sl_status model_slots_open(struct model *m, sl_err *err)
{
    const struct model_opts *o = &m->opts;
    int E = m->cfg.n_expert, n = o->pack ? E : o->n_slot;
    void *p = NULL;
    if (!o->n_slot || !E) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, 2 * (size_t)n + (size_t)E + 1, sizeof(int32_t), &p, err));
    int32_t *expert = p;
    memset(expert, 0xff, (size_t)n * sizeof *expert); /* -1: in none */
    for (int i = 0; i < o->n_slot; i++) {
        int e = o->slot_expert[i];
        if (e < 0 || e >= E)
            return SL_FAIL(err, REQUEST, "expert slot %d: expert %d of %d", i, e, E);
        expert[o->pack ? e : i] = e;
    }
    m->slots =
        (struct dev_slots){.n = n, .expert = expert, .list = expert + n, .first = expert + 2 * n};
    dev_slots_init(&m->slots, E);
    return SL_OK;
}

/* A layer's group: DEV_KV_GROUPS has a kind each. */
static int group_of(const struct arch_layer *l)
{
    if (l->mixer == ARCH_SCAN) return DEV_KV_STATE;
    return l->n_window ? DEV_KV_WINDOW : DEV_KV_PAGED;
}

struct dev_kv_shape model_kv_shape(const struct arch_cfg *c, const struct model_dims *d,
                                   enum dev_kv_type type, int n_blk, int blk_tok)
{
    struct dev_kv_shape s = {.type = type, .blk_tok = blk_tok, .n_group = 1};
    for (int i = 0; i < DEV_KV_GROUPS; i++) {
        struct dev_kv_group *g = &s.group[i];
        *g = (struct dev_kv_group){.kind = (enum dev_kv_kind)i, .n_blk = n_blk, .n_head = 1};
        if (i == DEV_KV_STATE) {
            g->d_k = (d ? d->n_head : c->n_head) * c->d_head;
        } else if (c->kv_lora) {
            g->d_k = c->kv_lora + c->d_rope;
        } else {
            g->n_head = d ? d->n_head_kv : c->n_head_kv;
            g->d_k = g->d_v = c->d_head;
        }
    }
    for (int i = 0; i < c->n_layer + c->n_mtp; i++) {
        int g = group_of(&c->layer[i]);
        s.n_group = BASE_MAX(s.n_group, g + 1);
        s.group[g].n_layer += !d || model_has_layer(c, d, i);
    }
    return s;
}

struct model_kv_place model_kv_place(const struct arch_cfg *c, const struct model_dims *d, int il)
{
    struct model_kv_place p = {group_of(&c->layer[il]), 0};
    for (int i = d->layer0; i < il; i++)
        p.layer += group_of(&c->layer[i]) == p.group;
    return p;
}
