/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that lie on the CPU beside a device are streamed through that device in steps of many
 * tokens: into a ring of buffers, slab by slab, of which it computes with one while the next ones
 * come. It gives each expert's output by itself and adds a token's up in the order of its list, in
 * the CPU's bits: so no answer depends on which steps are streamed. */
#include <string.h>

#include "base/rng.h"
#include "model/emit.h"

#define SLAB_BYTES ((int64_t)256 << 20) /* of a buffer, at most, where that makes few slabs */
#define SLABS_LEAST 4                   /* of a layer */
#define SLABS_MOST 16

int model_stream_slots(int n_expert, int64_t bytes)
{
    int least = (n_expert + SLABS_MOST - 1) / SLABS_MOST;
    int most = (n_expert + SLABS_LEAST - 1) / SLABS_LEAST;
    int64_t fit = SLAB_BYTES / BASE_MAX(bytes, 1);
    return (int)BASE_MAX(BASE_MIN(fit, most), least);
}

int64_t model_stream_bytes(const struct arch_cfg *c, int64_t expert_bytes, int n_tok)
{
    int64_t row = 12 * (int64_t)c->d_ff_expert + 8 * (int64_t)c->d_model;
    return MODEL_STREAM_BUFS * model_stream_slots(c->n_expert, expert_bytes) * expert_bytes +
           (int64_t)n_tok * c->n_expert_used * row;
}

bool model_may_stream(const struct model_place *p, const struct arch_cfg *c, int il)
{
    int attn = model_place_at(p, il, MODEL_ATTN);
    return model_may_be_hot(p, c, il) && p->d[attn] == p->d[p->on[MODEL_ATTN]];
}

bool model_stream_of(const struct model *m, int il)
{
    return m->stream.slab && il < m->cfg.n_layer + m->n_mtp && m->stream.slab[il];
}

/* May those of layer il be, which this rank has? */
static bool may(const struct model *m, int il)
{
    return model_has_layer(&m->cfg, &m->dims, il) && model_may_stream(&m->place, &m->cfg, il);
}

/* The next layer after il whose experts are streamed, in the same pass; -1: none. */
static int next_of(const struct model *m, int il)
{
    for (int i = il + 1; i < m->cfg.n_layer; i++)
        if (model_stream_of(m, i)) return i;
    return -1;
}

/* ---- opening ---- */

static bool has_some(const struct model *m)
{
    for (int il = 0; il < m->cfg.n_layer; il++)
        if (may(m, il)) return true;
    return false;
}

static sl_status check(const struct model *m, sl_err *err)
{
    if (m->dims.n_rank > 1 || model_is_own(m))
        return SL_FAIL(err, UNSUPPORTED,
                       "stream-from: not where ranks share layers (tp, dp, ep of the layout)");
    if (has_some(m) || m->dims.n_stage > 1) return SL_OK; /* other stages have some */
    return SL_FAIL(err, REQUEST,
                   "stream-from: the experts of no layer lie on the CPU beside a device (device "
                   "and place say where)");
}

/* Rooms for matrices like the stack's, in every buffer: those that are there already, or new ones.
 */
static sl_status room_of(struct model *m, const dev_mat *of, sl_err *err)
{
    struct stream *s = &m->stream;
    struct dev_image like;
    dev_mat_view(of, 0, &like);
    for (int i = 0; i < s->n_room; i++)
        if (dev_image_is_like(&s->room[i].like, &like)) return SL_OK;
    if (s->n_room == MODEL_STREAM_ROOMS)
        return SL_FAIL(err, UNSUPPORTED, "stream-from: experts of more than %d kinds",
                       MODEL_STREAM_ROOMS);
    struct stream_room *r = &s->room[s->n_room++];
    r->like = like;
    for (int i = 0; i < MODEL_STREAM_BUFS; i++) {
        SL_TRY(dev_mat_room(m->d, &like, s->n_slot, DEV_USE_EXPERTS, &r->mat[i], err));
        s->room_bytes += dev_mat_bytes(r->mat[i]);
    }
    return SL_OK;
}

static dev_mat *room(const struct model *m, const dev_mat *of, int buf)
{
    struct dev_image like;
    dev_mat_view(of, 0, &like);
    for (int i = 0; i < m->stream.n_room; i++)
        if (dev_image_is_like(&m->stream.room[i].like, &like)) return m->stream.room[i].mat[buf];
    ASSERT(!"a room of every kind");
    return NULL;
}

/* Which experts each slab of the layer brings; rest_of: -1 those that are on the device anyway. */
static void fill_slabs(const struct model *m, struct dev_slots *slab, const int32_t *rest_of)
{
    const struct stream *s = &m->stream;
    for (int i = 0; i < s->n_slab; i++) {
        int32_t *expert = (int32_t *)slab[i].expert;
        for (int k = 0; k < s->n_slot; k++) {
            int e = i * s->n_slot + k;
            expert[k] = e >= m->cfg.n_expert ? -1 : rest_of ? rest_of[e] : e;
        }
        dev_slots_init(&slab[i], m->cfg.n_expert);
    }
}

static sl_status new_slabs(struct model *m, const int32_t *rest_of, struct dev_slots **out,
                           sl_err *err)
{
    const struct stream *s = &m->stream;
    size_t n = (size_t)s->n_slot, E = (size_t)m->cfg.n_expert;
    void *p = NULL;
    SL_TRY(mem_arena_array(&m->arena, (size_t)s->n_slab, sizeof **out, &p, err));
    *out = p;
    for (int i = 0; i < s->n_slab; i++) {
        SL_TRY(mem_arena_array(&m->arena, 2 * n + E + 1, sizeof(int32_t), &p, err));
        int32_t *v = p;
        (*out)[i] = (struct dev_slots){
            .n = s->n_slot, .expert = v, .list = v + n, .first = v + 2 * n};
    }
    fill_slabs(m, *out, rest_of);
    return SL_OK;
}

static int64_t layer_bytes(const struct layer *l)
{
    return dev_mat_bytes(l->gate_up_exps) + dev_mat_bytes(l->down_exps);
}

static sl_status open_layer(struct model *m, int il, struct dev_slots **all, sl_err *err)
{
    struct stream *s = &m->stream;
    const struct layer *l = model_layer(m, il);
    const struct hot *h = model_hot_of(m, il);
    SL_TRY(room_of(m, l->gate_up_exps, err));
    SL_TRY(room_of(m, l->down_exps, err));
    if (h || !*all) SL_TRY(new_slabs(m, h ? h->rest_of : NULL, h ? &s->slab[il] : all, err));
    if (!h) s->slab[il] = *all;
    s->n_layer++;
    s->bytes[il] = layer_bytes(l) - (h ? h->n * h->bytes : 0);
    return SL_OK;
}

sl_status model_stream_open(struct model *m, sl_err *err)
{
    struct stream *s = &m->stream;
    int n_layer = m->cfg.n_layer + m->n_mtp;
    struct dev_slots *all = NULL;
    int64_t most = 0;
    void *p = NULL;
    if (!m->opts.stream_from) return SL_OK;
    SL_TRY(check(m, err));
    s->from = BASE_MAX(m->opts.stream_from, 0);
    s->pass = -1;
    if (!has_some(m)) return SL_OK;
    for (int il = 0; il < n_layer; il++)
        if (may(m, il))
            most = BASE_MAX(most, layer_bytes(model_layer(m, il)) / m->cfg.n_expert);
    s->n_slot = model_stream_slots(m->cfg.n_expert, most);
    s->n_slab = (m->cfg.n_expert + s->n_slot - 1) / s->n_slot;
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_layer, sizeof *s->slab, &p, err));
    s->slab = p;
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_layer, sizeof *s->bytes, &p, err));
    s->bytes = p;
    for (int il = 0; il < n_layer; il++)
        if (may(m, il)) SL_TRY(open_layer(m, il, &all, err));
    if (!m->hot) return SL_OK;
    size_t n = (size_t)m->place.n_dev * (size_t)n_layer * (size_t)m->cfg.n_expert;
    SL_TRY(mem_arena_array(&m->arena, 2 * n, sizeof *s->routed, &p, err));
    s->routed = p;
    s->now = s->routed + n;
    return SL_OK;
}

sl_status model_stream_hot(struct model *m, int il, sl_err *err)
{
    if (!model_stream_of(m, il)) return SL_OK;
    struct dev_slots *slab = m->stream.slab[il];
    const struct hot *h = model_hot_of(m, il);
    fill_slabs(m, slab, h->rest_of);
    m->stream.bytes[il] = layer_bytes(model_layer(m, il)) - h->n * h->bytes;
    for (int i = 0; i < m->stream.n_slab; i++)
        SL_TRY(dev_slots_put(m->d, &slab[i], m->cfg.n_expert, err));
    return SL_OK;
}

/* ---- operators ---- */

/* Of one layer a slab comes into the next buffer. */
static void send(struct emit *e, int il, int i)
{
    const struct model *m = e->m;
    const struct stream *s = &m->stream;
    const struct layer *l = model_layer(m, il);
    int buf = e->n_sent++ % MODEL_STREAM_BUFS, layer = e->layer;
    e->side = model_side(m, MODEL_ATTN);
    e->layer = il;
    EMIT(e, send, .from_gate_up = l->gate_up_exps, .from_down = l->down_exps,
         .gate_up = room(m, l->gate_up_exps, buf), .down = room(m, l->down_exps, buf),
         .slots = &s->slab[il][i]);
    e->layer = layer;
}

void model_stream_begin(struct emit *e)
{
    if (e->n_sent == e->n_streamed) send(e, e->layer, 0);
}

void model_stream_emit(struct emit *e, const struct layer *l, struct chosen chosen)
{
    const struct model *m = e->m;
    const struct stream *s = &m->stream;
    const struct side *home = model_side(m, MODEL_ATTN);
    model_hot_emit(e, chosen);
    for (int i = 0; i < s->n_slab; i++) {
        int buf = e->n_streamed++ % MODEL_STREAM_BUFS;
        struct dev_moe p = model_moe_of(e, home, l, chosen);
        p.slots = &s->slab[e->layer][i];
        p.gate_up = room(m, l->gate_up_exps, buf);
        p.down = room(m, l->down_exps, buf);
        p.terms = home->terms;
        e->side = home;
        model_op(e, DEV_OP_moe)->u.moe = p;
        if (i + 1 < s->n_slab) send(e, e->layer, i + 1);
    }
}

void model_stream_end(struct emit *e)
{
    int next = e->layer < e->m->cfg.n_layer && !e->is_last ? next_of(e->m, e->layer) : -1;
    if (next >= 0) send(e, next, 0);
}

int model_stream_ops(const struct model *m)
{
    return 2 * m->stream.n_slab + 4;
}

/* ---- steps ---- */

bool model_stream_has(const struct model *m, const struct dev_step *s)
{
    return m->stream.from && s->n_tok >= m->stream.from;
}

void model_stream_set(model *m, int from)
{
    m->stream.from = from;
}

/* What routers have counted since open. */
static sl_status get_routed(struct model *m, uint64_t *out, sl_err *err)
{
    size_t n = (size_t)(m->cfg.n_layer + m->n_mtp) * (size_t)m->cfg.n_expert;
    for (int i = 0; i < m->place.n_dev; i++) {
        const struct side *s = &m->side[i];
        if (s->n_routed)
            SL_TRY(dev_get(s->d, out + (size_t)i * n, s->n_routed,
                           (int64_t)(n * sizeof *out), err));
    }
    return SL_OK;
}

/* Layers of a pass: from *il to before *end. */
static void layers_of(const struct model *m, int pass, int *il, int *end)
{
    *il = pass ? m->cfg.n_layer + pass - 1 : 0;
    *end = pass ? *il + 1 : m->cfg.n_layer;
}

/* All experts' terms of layer il since the counts before. */
static void count_layer(struct model *m, int il)
{
    const struct stream *t = &m->stream;
    struct hot *h = &m->hot[il];
    ptrdiff_t side = model_side_in(m, il, MODEL_ROUTER) - m->side;
    size_t E = (size_t)m->cfg.n_expert, L = (size_t)(m->cfg.n_layer + m->n_mtp);
    size_t at = ((size_t)side * L + (size_t)il) * E;
    for (size_t e = 0; e < E; e++) {
        uint64_t n = t->now[at + e] - t->routed[at + e];
        if (h->rest_of[e] >= 0) h->hits.n_here += n;
        else h->hits.n_there += n;
    }
    h->hits.n_used_there += (uint64_t)h->n; /* none of them is sent */
}

sl_status model_stream_count(struct model *m, sl_err *err)
{
    struct stream *t = &m->stream;
    int pass = t->pass, il, end;
    if (!t->routed || pass < 0) return SL_OK;
    t->pass = -1;
    SL_TRY(get_routed(m, t->now, err));
    layers_of(m, pass, &il, &end);
    for (; il < end; il++)
        if (model_stream_of(m, il) && model_hot_of(m, il)) count_layer(m, il);
    return SL_OK;
}

sl_status model_stream_prog(struct model *m, const struct dev_step *s, dev_prog **out, sl_err *err)
{
    struct stream *t = &m->stream;
    int pass = s->pass - m->opts.first_pass, il, end;
    *out = NULL;
    if (!t->slab || !model_stream_has(m, s) || pass > m->n_mtp) return SL_OK; /* no experts */
    if (t->routed) {
        SL_TRY(model_stream_count(m, err)); /* a step that nobody waited for */
        SL_TRY(get_routed(m, t->routed, err));
        t->pass = pass;
    }
    t->n_step++;
    t->n_tok += (uint64_t)s->n_tok;
    layers_of(m, pass, &il, &end);
    for (; il < end; il++)
        t->n_bytes += (uint64_t)t->bytes[il];
    *out = t->prog[pass];
    return SL_OK;
}

void model_stream_get(const model *m, struct model_streaming *out)
{
    const struct stream *s = &m->stream;
    *out = (struct model_streaming){.n_layer = s->n_layer,
                                    .from = s->from,
                                    .n_slot = s->n_slot,
                                    .room_bytes = s->room_bytes,
                                    .bus_gbps = s->bus_gbps,
                                    .cpu_gops = s->cpu_gops,
                                    .n_step = s->n_step,
                                    .n_tok = s->n_tok,
                                    .n_bytes = s->n_bytes};
    for (int il = 0; s->slab && il < m->cfg.n_layer; il++)
        out->pass_bytes += s->bytes[il];
}
