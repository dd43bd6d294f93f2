/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that follow from the configuration. */
#include "model/model_internal.h"

static sl_status open_slots(struct model *m, const int32_t *from, struct dev_slots *s, sl_err *err)
{
    const struct model_dims *d = &m->dims;
    int E = m->cfg.n_expert, n = m->opts.n_slot, n_group = model_stage_n(d) / model_n_etp(d);
    void *p = NULL;
    size_t n_word = 2 * (size_t)n + (size_t)E + 1;
    SL_TRY(mem_arena_array(&m->arena, n_word + DIST_RANK_MAX + 1, sizeof(int32_t), &p, err));
    int32_t *expert = p, *rank0 = expert + n_word;
    for (int i = 0; i < n; i++) {
        if (from[i] < 0 || from[i] >= E)
            return SL_FAIL(err, REQUEST, "expert slot %d: expert %d of %d", i, from[i], E);
        expert[i] = from[i];
    }
    *s = (struct dev_slots){.n = n, .expert = expert, .list = expert + n, .first = expert + 2 * n};
    dev_slots_init(s, E);
    if (!m->opts.spread) return SL_OK;
    if (d->weight[0] ? n < n_group : n % n_group > 0)
        return SL_FAIL(err, REQUEST, "%d expert slots on %d ranks", n, n_group);
    for (int e = 0; e < E; e++)
        if (s->first[e] == s->first[e + 1])
            return SL_FAIL(err, REQUEST, "expert %d of %d has no slot", e, E);
    model_slots_dealt(d, n, rank0);
    s->rank0 = rank0;
    s->begin = rank0[model_group(d)];
    s->n_here = rank0[model_group(d) + 1] - s->begin;
    return SL_OK;
}

sl_status model_slots_open(struct model *m, sl_err *err)
{
    const struct model_opts *o = &m->opts;
    int n_layer = m->cfg.n_layer + m->n_mtp;
    void *p = NULL;
    if (!o->n_slot || !m->cfg.n_expert) return SL_OK;
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_layer, sizeof *m->slots, &p, err));
    m->slots = p;
    for (int i = 0; i < n_layer; i++)
        SL_TRY(open_slots(m, o->slot_expert + (int64_t)i * o->slot_ld, &m->slots[i], err));
    m->dims.n_slot = m->slots[0].n_here;
    return SL_OK;
}

const int32_t *model_slots_here(const struct model *m, int il, int *n)
{
    const struct dev_slots *s = m->slots ? &m->slots[il] : NULL;
    if (!s) return NULL;
    *n = s->n_here ? s->n_here : s->n;
    return s->expert + s->begin;
}

/* Is there an indexer of pools in that layer? */
static bool has_pools(const struct arch_cfg *c, int il)
{
    return c->index_pool && c->layer[il].index == ARCH_INDEX_OWN;
}

int model_kv_group(const struct arch_cfg *c, int il)
{
    const struct arch_layer *l = &c->layer[il];
    if (l->mixer == ARCH_SCAN || l->mixer == ARCH_DELTA) return DEV_KV_STATE;
    return l->n_window && !c->paged ? DEV_KV_WINDOW : DEV_KV_PAGED;
}

int model_kv_window(const struct arch_cfg *c, int il)
{
    const struct arch_layer *l = &c->layer[il];
    int open = l->index == ARCH_INDEX_OWN ? 2 * l->ratio : l->ratio;
    if (has_pools(c, il)) return 1; /* an open pool is in the block of the next position */
    return l->mixer == ARCH_CKV ? BASE_MAX(l->n_window, open) : l->n_window;
}

/* Where a layer's rows of positions are, or its entries, or what these are made of where that is
 * not with the rows: the part is that of a group whose layers are not alike (dev_kv_part), else 0.
 * Parts of MTP layers come after the others', whose places are the same then where MTP layers are
 * not kept. False: it has none. */
struct slot {
    int group, part;
};
static bool slot_of(const struct arch_cfg *c, int il, enum model_kv_what what, struct slot *out)
{
    const struct arch_layer *l = &c->layer[il];
    bool ckv = l->mixer == ARCH_CKV, own = l->index == ARCH_INDEX_OWN;
    *out = (struct slot){model_kv_group(c, il), 0};
    if (has_pools(c, il)) {
        bool raw = what == MODEL_KV_RAW, apart = raw && !c->paged, mtp = il >= c->n_layer;
        int n_part = apart ? 1 : c->paged ? 3 : 2, i = apart ? 0 : (int)what;
        *out = (struct slot){apart ? DEV_KV_WINDOW : DEV_KV_PAGED, i + (mtp ? n_part : 0)};
        return true;
    }
    if (what == MODEL_KV_RAW) return false;
    if (what == MODEL_KV_ENTRIES) {
        *out = (struct slot){DEV_KV_PAGED, !own};
        return ckv && l->ratio > 0;
    }
    int kind = il >= c->n_layer ? 3 : !l->ratio ? 0 : own ? 1 : 2; /* MTP layers are the last */
    if (ckv) out->part = (c->paged ? 2 : 0) + kind;
    return true;
}

static struct dev_kv_part part_like(const struct arch_cfg *c, int il, enum model_kv_what what)
{
    const struct arch_layer *l = &c->layer[il];
    bool own = l->index == ARCH_INDEX_OWN;
    if (c->index_pool && what == MODEL_KV_RAW)
        return (struct dev_kv_part){.every = 1, .d_raw = dev_compress_raw(c->d_index, false),
                                    .bare = true};
    if (c->index_pool && what == MODEL_KV_ENTRIES)
        return (struct dev_kv_part){.every = c->index_pool, .d_i = c->d_index, .bare = true};
    if (c->index_pool) return (struct dev_kv_part){.every = 1};
    if (what == MODEL_KV_ENTRIES)
        return (struct dev_kv_part){.every = l->ratio, .d_i = own ? c->d_index : 0};
    int raw = l->ratio ? dev_compress_raw(c->d_head, own) : 0;
    raw += own ? dev_compress_raw(c->d_index, true) : 0;
    return (struct dev_kv_part){.every = 1, .d_raw = raw};
}

/* Are the layers of the groups that the layer is in not alike? */
static bool in_parts(const struct arch_cfg *c, int il)
{
    return c->layer[il].mixer == ARCH_CKV || has_pools(c, il);
}

void model_kv_count(struct dev_kv_shape *s, const struct arch_cfg *c, int il, int by)
{
    struct slot at;
    for (int w = 0; w < MODEL_N_KV; w++) {
        if (!slot_of(c, il, (enum model_kv_what)w, &at)) continue;
        s->group[at.group].n_layer += by;
        if (in_parts(c, il)) s->group[at.group].part[at.part].n_layer += by;
    }
}

/* A part without layers may be like any: pages are counted by its layers. */
static void open_parts(struct dev_kv_shape *s, const struct arch_cfg *c)
{
    struct slot at;
    for (int il = 0; il < c->n_layer + c->n_mtp; il++)
        for (int w = 0; w < MODEL_N_KV && in_parts(c, il); w++)
            if (slot_of(c, il, (enum model_kv_what)w, &at))
                s->group[at.group].part[at.part] = part_like(c, il, (enum model_kv_what)w);
    for (int g = 0; g < DEV_KV_GROUPS; g++) {
        int last = DEV_KV_PARTS - 1;
        while (last >= 0 && !s->group[g].part[last].every)
            last--;
        for (int i = 0; i < last; i++)
            if (!s->group[g].part[i].every) s->group[g].part[i].every = 1;
    }
}

struct dev_kv_shape model_kv_shape(const struct arch_cfg *c, const struct model_dims *d,
                                   enum dev_kv_type type, int n_blk, int blk_tok)
{
    struct dev_kv_shape s = {.type = type, .blk_tok = blk_tok, .n_group = 1};
    bool ckv = c->n_layer && c->layer[0].mixer == ARCH_CKV;
    for (int i = 0; i < DEV_KV_GROUPS; i++) {
        struct dev_kv_group *g = &s.group[i];
        *g = (struct dev_kv_group){.kind = (enum dev_kv_kind)i, .n_blk = n_blk, .n_head = 1};
        if (i == DEV_KV_STATE && c->n_delta_k) {
            g->d_k = (int)dev_delta_state(c->n_delta_k, c->n_delta_v, c->d_delta_k, c->d_delta_v,
                                          c->n_conv, c->kda);
        } else if (i == DEV_KV_STATE) {
            g->d_k = (int)dev_scan_state((d ? d->n_head : c->n_head) * c->d_head);
        } else if (c->kv_lora) {
            g->d_k = c->kv_lora + c->d_rope;
        } else if (ckv) {
            g->d_k = c->d_head;
        } else if (i == DEV_KV_WINDOW && c->d_head_win) {
            g->n_head = c->n_head_kv_win;
            g->d_k = g->d_v = c->d_head_win;
        } else {
            g->n_head = d ? d->n_head_kv : c->n_head_kv;
            g->d_k = g->d_v = c->d_head;
        }
        if (i == DEV_KV_PAGED && !ckv && !c->index_pool) g->d_i = c->d_index;
    }
    open_parts(&s, c);
    for (int i = 0; i < c->n_layer + c->n_mtp; i++) {
        s.n_group = BASE_MAX(s.n_group, model_kv_group(c, i) + 1);
        if (has_pools(c, i) && !c->paged) s.n_group = BASE_MAX(s.n_group, DEV_KV_WINDOW + 1);
        if (!d || model_has_layer(c, d, i)) model_kv_count(&s, c, i, 1);
    }
    return s;
}

struct model_kv_place model_kv_at(const struct arch_cfg *c, int il, enum model_kv_what what,
                                  model_kv_has *has, const void *arg)
{
    struct slot of, at;
    (void)slot_of(c, il, what, &of);
    struct model_kv_place p = {of.group, 0};
    for (int i = 0; i < c->n_layer + c->n_mtp; i++)
        for (int w = 0; w < MODEL_N_KV; w++) {
            if (!slot_of(c, i, (enum model_kv_what)w, &at) || at.group != of.group) continue;
            bool before = at.part < of.part || (at.part == of.part && i < il);
            p.layer += before && has(arg, i);
        }
    return p;
}

/* Layers of a configuration that a rank has. */
struct layers_of {
    const struct arch_cfg *c;
    const struct model_dims *d;
};

static bool is_there(const void *arg, int il)
{
    const struct layers_of *of = arg;
    return il >= of->d->layer0 && model_has_layer(of->c, of->d, il);
}

struct model_kv_place model_kv_place(const struct arch_cfg *c, const struct model_dims *d, int il)
{
    return model_kv_at(c, il, MODEL_KV_ROWS, is_there, &(struct layers_of){c, d});
}
