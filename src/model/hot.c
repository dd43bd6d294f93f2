/* SPDX-License-Identifier: Apache-2.0 */
/* Hot experts: of layers whose experts lie on the CPU beside a device, some lie there too, and are
 * computed there. Terms of both are added up on the CPU in the order of the router's list: so the
 * answers are those of one device, whatever is hot. */
#include <string.h>

#include "model/emit.h"

const struct hot *model_hot_of(const struct model *m, int il)
{
    bool is_there = m->hot && il < m->cfg.n_layer + m->n_mtp;
    return is_there && m->hot[il].n ? &m->hot[il] : NULL;
}

bool model_may_be_hot(const struct model_place *p, const struct arch_cfg *c, int il)
{
    int at = model_place_at(p, il, MODEL_EXPERTS), attn = model_place_at(p, il, MODEL_ATTN);
    return c->layer[il].ffn == ARCH_MOE && dev_is_host(p->d[at]) && !dev_is_host(p->d[attn]);
}

/* Where they lie. */
static struct side *side_of(const struct model *m, int il)
{
    return model_side_in(m, il, MODEL_ATTN);
}

/* ---- which they are ---- */

/* Slot s of the device is expert e's; the CPU leaves it to the device. */
static void set_slots(const struct model *m, struct hot *h, const int32_t *expert)
{
    int E = m->cfg.n_expert;
    for (int e = 0; e < E; e++)
        h->rest_of[e] = e;
    for (int i = 0; i < h->n; i++) {
        h->here_of[i] = expert[i];
        h->rest_of[expert[i]] = -1;
    }
    dev_slots_init(&h->here, E);
    dev_slots_init(&h->rest, E);
}

static sl_status fill(dev_mat *to, int slot, const dev_mat *from, int expert, sl_err *err)
{
    struct dev_image one;
    dev_mat_view(from, expert, &one);
    return dev_mat_fill(to, slot, &one, err);
}

static sl_status fill_slot(struct model *m, int il, int slot, int expert, sl_err *err)
{
    struct hot *h = &m->hot[il];
    const struct layer *l = model_layer(m, il);
    SL_TRY(fill(h->gate_up, slot, l->gate_up_exps, expert, err));
    return fill(h->down, slot, l->down_exps, expert, err);
}

/* An expert that stays hot keeps its slot: new ones take those of others. */
static void keep_places(const struct hot *h, const int32_t *want, int32_t *out)
{
    int n_free = 0;
    for (int i = 0; i < h->n; i++)
        out[i] = -1;
    for (int i = 0; i < h->n; i++)
        for (int k = 0; k < h->n; k++)
            if (h->here_of[k] == want[i]) out[k] = want[i];
    for (int i = 0; i < h->n; i++) {
        bool is_there = false;
        for (int k = 0; k < h->n; k++)
            is_there |= h->here_of[k] == want[i];
        if (is_there) continue;
        while (out[n_free] >= 0)
            n_free++;
        out[n_free] = want[i];
    }
}

sl_status model_hot_set(model *m, int il, const int32_t *expert, bool *changed, sl_err *err)
{
    struct hot *h = m->hot ? &m->hot[il] : NULL;
    *changed = false;
    if (!h || !h->n) return SL_OK;
    int32_t *now = h->next;
    keep_places(h, expert, now);
    for (int i = 0; i < h->n; i++) {
        if (now[i] == h->here_of[i]) continue;
        *changed = true;
        SL_TRY(fill_slot(m, il, i, now[i], err));
    }
    if (!*changed) return SL_OK;
    set_slots(m, h, now);
    SL_TRY(model_stream_hot(m, il, err));
    return dev_slots_put(side_of(m, il)->d, &h->here, m->cfg.n_expert, err);
}

const int32_t *model_hot_get(const model *m, int il, int *n)
{
    const struct hot *h = model_hot_of(m, il);
    *n = h ? h->n : 0;
    return h ? h->here_of : NULL;
}

/* ---- opening ---- */

static sl_status check(const struct model *m, const struct model_hot *o, sl_err *err)
{
    for (int il = 0; il < m->cfg.n_layer + m->n_mtp; il++) {
        if (!o->n[il]) continue;
        if (m->dims.n_rank > 1 || model_is_own(m))
            return SL_FAIL(err, UNSUPPORTED, "hot-experts: not where ranks share layers (tp, dp, "
                                             "ep of the layout)");
        if (!model_may_be_hot(&m->place, &m->cfg, il))
            return SL_FAIL(err, REQUEST, "hot-experts: layer %d: its experts do not lie on the "
                                         "CPU beside a device", il);
        if (o->n[il] < 0 || o->n[il] > m->cfg.n_expert)
            return SL_FAIL(err, REQUEST, "hot-experts: %d: this model has %d experts in a layer",
                           o->n[il], m->cfg.n_expert);
        for (int i = 0; i < o->n[il]; i++)
            ASSERT(o->expert[il * o->n_max + i] >= 0 &&
                   o->expert[il * o->n_max + i] < m->cfg.n_expert);
    }
    return SL_OK;
}

/* Room on a layer's side for n of its experts. */
struct room {
    struct model *m;
    struct side *s;
    int n;
};

static sl_status room(const struct room *r, const dev_mat *of, dev_mat **out, sl_err *err)
{
    struct model *m = r->m;
    struct dev_image like;
    dev_mat_view(of, 0, &like);
    SL_TRY(dev_mat_room(r->s->d, &like, r->n, DEV_USE_EXPERTS, out, err));
    r->s->weight_bytes += dev_mat_bytes(*out);
    m->weight_bytes += dev_mat_bytes(*out);
    m->hot_bytes += dev_mat_bytes(*out);
    return SL_OK;
}

static sl_status open_layer(struct model *m, int il, int n, const int32_t *expert, sl_err *err)
{
    struct hot *h = &m->hot[il];
    const struct layer *l = model_layer(m, il);
    int64_t E = m->cfg.n_expert;
    void *p = NULL;
    size_t n_int = 3 * (size_t)n + 2 * (size_t)E + 2 * ((size_t)E + 1);
    SL_TRY(mem_arena_array(&m->arena, n_int, sizeof(int32_t), &p, err));
    int32_t *v = p;
    h->n = n;
    h->here_of = v;
    h->next = v + n;
    h->rest_of = v + 3 * n;
    h->here = (struct dev_slots){.n = n, .expert = h->here_of, .list = v + 2 * n};
    h->rest = (struct dev_slots){.n = (int)E, .expert = h->rest_of, .list = v + 3 * n + E};
    h->here.first = v + 3 * n + 2 * E;
    h->rest.first = h->here.first + E + 1;
    struct room r = {m, side_of(m, il), n};
    SL_TRY(room(&r, l->gate_up_exps, &h->gate_up, err));
    SL_TRY(room(&r, l->down_exps, &h->down, err));
    h->bytes = (dev_mat_bytes(h->gate_up) + dev_mat_bytes(h->down)) / n;
    set_slots(m, h, expert);
    for (int i = 0; i < n; i++)
        SL_TRY(fill_slot(m, il, i, expert[i], err));
    return SL_OK;
}

sl_status model_hot_open(struct model *m, sl_err *err)
{
    const struct model_hot *o = m->opts.hot;
    int n_layer = m->cfg.n_layer + m->n_mtp;
    void *p = NULL;
    m->opts.hot = NULL; /* the caller's */
    if (!o) return SL_OK;
    SL_TRY(check(m, o, err));
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_layer, sizeof *m->hot, &p, err));
    m->hot = p;
    for (int il = 0; il < n_layer; il++)
        if (o->n[il])
            SL_TRY(open_layer(m, il, o->n[il], o->expert + (int64_t)il * o->n_max, err));
    return SL_OK;
}

int64_t model_hot_bytes(const model *m)
{
    return m->hot_bytes;
}

struct model_hits model_hot_hits(const model *m)
{
    struct model_hits out = {0};
    for (int il = 0; m->hot && il < m->cfg.n_layer + m->n_mtp; il++) {
        const struct dev_hits *h = &m->hot[il].hits;
        out.n_hit += h->n_there;
        out.n_miss += h->n_here;
        out.saved_bytes += h->n_used_there * (uint64_t)m->hot[il].bytes;
    }
    return out;
}

/* ---- operators ---- */

void model_hot_emit(struct emit *e, struct chosen chosen)
{
    const struct model *m = e->m;
    const struct hot *h = model_hot_of(m, e->layer);
    if (!h || e->tap.fn) return;
    const struct side *home = side_of(m, e->layer);
    struct dev_moe p = model_moe_of(e, home, model_layer(m, e->layer), chosen);
    p.slots = &h->here;
    p.gate_up = h->gate_up;
    p.down = h->down;
    p.terms = home->terms;
    e->side = home;
    model_op(e, DEV_OP_moe)->u.moe = p;
}

bool model_hot_rest(const struct emit *e, struct dev_moe *p)
{
    const struct hot *h = model_hot_of(e->m, e->layer);
    if (!h || e->tap.fn) return false;
    p->slots = &h->rest;
    p->terms = model_side_in(e->m, e->layer, MODEL_EXPERTS)->terms;
    if (!p->late) p->hits = &e->m->hot[e->layer].hits;
    return true;
}

void model_hot_bring(struct emit *e)
{
    const struct side *home = side_of(e->m, e->layer),
                      *s = model_side_in(e->m, e->layer, MODEL_EXPERTS);
    model_move_emit(e, (struct at){home, home->terms}, (struct at){s, s->given},
                    e->m->cfg.n_expert_used * e->m->cfg.d_model, false);
}

struct dev_op *model_hot_sum(struct emit *e, const struct side *s, const struct dev_moe *p)
{
    const struct hot *h = model_hot_of(e->m, e->layer);
    struct dev_op *op = model_op(e, DEV_OP_sum);
    op->u.sum = (struct dev_sum){.n = e->m->cfg.d_model,
                                 .k = p->k,
                                 .id = p->id,
                                 .weight = p->weight,
                                 .slots = &h->rest,
                                 .here = s->terms,
                                 .there = s->given,
                                 .add = p->add,
                                 .before = p->before,
                                 .y = p->y,
                                 .n_late = p->n_late,
                                 .late = p->late};
    return op;
}
