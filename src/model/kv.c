/* SPDX-License-Identifier: Apache-2.0 */
/* The KV cache of a model: of every layer on the device of its attention. */
#include "dev/beside.h"
#include "model/model_internal.h"

/* Does any layer's attention lie on another device than on says? */
static bool is_apart(const struct model_place *p, const struct arch_cfg *c)
{
    for (int il = 0; il < c->n_layer + c->n_mtp; il++)
        if (model_place_at(p, il, MODEL_ATTN) != p->on[MODEL_ATTN]) return true;
    return false;
}

struct dev_kv_shape model_kv_shape_on(const struct model_place *p, const struct arch_cfg *c, int i,
                                      const struct dev_kv_shape *all)
{
    struct dev_kv_shape s = *all;
    bool home = i == p->on[MODEL_ATTN];
    for (int g = 0; g < s.n_group && !home; g++) {
        s.group[g].n_layer = 0;
        for (int k = 0; k < DEV_KV_PARTS; k++)
            s.group[g].part[k].n_layer = 0;
    }
    for (int il = 0; il < c->n_layer + c->n_mtp; il++) {
        bool here = model_place_at(p, il, MODEL_ATTN) == i;
        if (home && !here) model_kv_count(&s, c, il, -1); /* the others */
        if (!home && here) model_kv_count(&s, c, il, 1);
    }
    return s;
}

/* Layers of a model whose attention is on a side. */
struct layers_on {
    const struct model *m;
    const struct side *s;
};

static bool is_on(const void *arg, int il)
{
    const struct layers_on *of = arg;
    const struct model *m = of->m;
    return il >= m->dims.layer0 && model_has_layer(&m->cfg, &m->dims, il) &&
           model_side_in(m, il, MODEL_ATTN) == of->s;
}

static struct model_kv_place here(const struct model *m, int il, enum model_kv_what what)
{
    const struct layers_on of = {m, model_side_in(m, il, MODEL_ATTN)};
    return model_kv_at(&m->cfg, il, what, is_on, &of);
}

struct model_kv_place model_kv_here(const struct model *m, int il)
{
    return here(m, il, MODEL_KV_ROWS);
}

struct model_kv_place model_kv_entries_here(const struct model *m, int il)
{
    return here(m, il, MODEL_KV_ENTRIES);
}

struct model_kv_place model_kv_raw_here(const struct model *m, int il)
{
    return here(m, il, MODEL_KV_RAW);
}

sl_status model_kv_open(model *m, const struct dev_kv_shape *all, dev_kv **out, sl_err *err)
{
    dev_kv *kv[MODEL_DEV_MAX];
    int n = 0, home = m->place.on[MODEL_ATTN];
    if (!is_apart(&m->place, &m->cfg)) return dev_kv_open(m->d, all, out, err);
    for (int k = 0; k < m->place.n_dev; k++) {
        int i = k == 0 ? home : k <= home ? k - 1 : k; /* home first */
        struct dev_kv_shape s = model_kv_shape_on(&m->place, &m->cfg, i, all);
        int n_layer = 0;
        for (int g = 0; g < s.n_group; g++)
            n_layer += s.group[g].n_layer;
        if (!n_layer && i != home) continue;
        SL_TRY(dev_kv_open(m->place.d[i], &s, &kv[n++], err));
    }
    dev_kv_beside(kv, n);
    *out = kv[0];
    return SL_OK;
}
