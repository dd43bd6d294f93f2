/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache of a model: of every layer on the device of its attention. */
#include "dev/beside.h"
#include "model/model_internal.h"

static int at_of(const struct model_place *p, int il)
{
    return p->in_layer ? p->in_layer[il * MODEL_N_PART + MODEL_ATTN] : p->on[MODEL_ATTN];
}

bool model_attn_apart(const struct model_place *p, const struct arch_cfg *c)
{
    for (int il = 0; il < c->n_layer + c->n_mtp; il++)
        if (at_of(p, il) != p->on[MODEL_ATTN]) return true;
    return false;
}

struct dev_kv_shape model_kv_shape_on(const struct model_place *p, const struct arch_cfg *c, int i,
                                      const struct dev_kv_shape *all)
{
    struct dev_kv_shape s = *all;
    bool home = i == p->on[MODEL_ATTN];
    for (int g = 0; g < s.n_group && !home; g++)
        s.group[g].n_layer = 0;
    for (int il = 0; il < c->n_layer + c->n_mtp; il++) {
        int *n = &s.group[model_kv_group(c, il)].n_layer, at = at_of(p, il);
        if (home)
            *n -= at != i; /* the others */
        else
            *n += at == i;
    }
    return s;
}

struct model_kv_place model_kv_here(const struct model *m, int il)
{
    const struct side *s = model_side_in(m, il, MODEL_ATTN);
    struct model_kv_place p = {model_kv_group(&m->cfg, il), 0};
    for (int i = m->dims.layer0; i < il; i++)
        p.layer += model_kv_group(&m->cfg, i) == p.group && model_side_in(m, i, MODEL_ATTN) == s;
    return p;
}

/* Which layer is where. cache: of each device, in the order in which they are opened. */
static sl_status open_layers(struct model *m, const int *cache, sl_err *err)
{
    int n = m->cfg.n_layer + m->cfg.n_mtp;
    for (int g = 0; g < DEV_KV_GROUPS; g++) {
        void *p = NULL;
        SL_TRY(mem_arena_array(&m->arena, (size_t)n, sizeof(struct dev_kv_layer), &p, err));
        struct dev_kv_layer *of = p;
        m->kv_layers.of[g] = of;
        for (int il = 0; il < n; il++)
            if (model_kv_group(&m->cfg, il) == g)
                *of++ = (struct dev_kv_layer){cache[at_of(&m->place, il)],
                                              model_kv_here(m, il).layer};
    }
    return SL_OK;
}

sl_status model_kv_open(model *m, const struct dev_kv_shape *all, dev_kv **out, sl_err *err)
{
    dev_kv *kv[MODEL_DEV_MAX];
    int cache[MODEL_DEV_MAX], n = 0, home = m->place.on[MODEL_ATTN];
    if (!model_attn_apart(&m->place, &m->cfg)) return dev_kv_open(m->d, all, out, err);
    for (int k = 0; k < m->place.n_dev; k++) {
        int i = k == 0 ? home : k <= home ? k - 1 : k; /* home first */
        struct dev_kv_shape s = model_kv_shape_on(&m->place, &m->cfg, i, all);
        int n_layer = 0;
        for (int g = 0; g < s.n_group; g++)
            n_layer += s.group[g].n_layer;
        if (!n_layer && i != home) continue;
        SL_TRY(dev_kv_open(m->place.d[i], &s, &kv[n], err));
        cache[i] = n++;
    }
    SL_TRY(open_layers(m, cache, err));
    dev_kv_beside(kv, n, &m->kv_layers);
    *out = kv[0];
    return SL_OK;
}
