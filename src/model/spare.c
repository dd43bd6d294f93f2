/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are read while steps go on: into room beside the stacks, which changes places with a
 * slot between two steps. Of a packed file there is no room: its matrices are used where they lie.
 */
#include <string.h>

#include "base/hash.h"
#include "model/load.h"

#define STRETCH ((int64_t)1 << 20) /* bytes that are read between two pauses */

/* Has this rank experts of that layer? */
static bool has_experts(const struct model *m, int il)
{
    return model_has_layer(&m->cfg, &m->dims, il) && model_layer(m, il)->gate_up_exps;
}

/* ---- room ---- */

static sl_status kind_of(struct model *m, const struct layer *l, int *kind, sl_err *err)
{
    struct model_spares *s = &m->spares;
    struct model_spare_bytes b;
    dev_one_bytes(l->gate_up_exps, b.n[0]);
    dev_one_bytes(l->down_exps, b.n[1]);
    for (*kind = 0; *kind < s->n_kind; ++*kind)
        if (memcmp(&s->bytes[*kind], &b, sizeof b) == 0) return SL_OK;
    if (s->n_kind == MODEL_SPARE_KINDS)
        return SL_FAIL(err, UNSUPPORTED, "%s: experts of more than %d sizes", io_path(m->io),
                       MODEL_SPARE_KINDS);
    s->bytes[s->n_kind++] = b;
    return SL_OK;
}

/* The device of a layer's experts, which replaces them. */
static sl_status device_of(const struct model *m, int il, dev **out, sl_err *err)
{
    struct dev_info info;
    *out = model_side_in(m, il, MODEL_EXPERTS)->d;
    if (dev_is_host(*out)) return SL_OK;
    dev_info_get(*out, &info);
    return SL_FAIL(err, UNSUPPORTED,
                   "spare: %d: experts on %s do not change ranks: --place experts=cpu",
                   m->opts.n_spare, info.name);
}

static sl_status open_one(struct model *m, dev *d, const int64_t bytes[2], struct dev_one *one,
                          sl_err *err)
{
    for (int half = 0; half < 2 && bytes[half] && !m->opts.pack; half++) {
        void *p = NULL;
        SL_TRY(dev_alloc(d, MEM_WEIGHTS, bytes[half], &p, err));
        one->data[half] = p;
    }
    return SL_OK;
}

sl_status model_spares_open(struct model *m, const io_model *io, sl_err *err)
{
    struct model_spares *s = &m->spares;
    int n = m->opts.n_spare, n_layer = m->cfg.n_layer + m->n_mtp;
    void *p = NULL;
    dev *d = m->d;
    if (!n || !m->slots) return SL_OK;
    m->io = io; /* it stays */
    SL_TRY(mem_arena_array(&m->arena, (size_t)n_layer, sizeof *s->kind, &p, err));
    s->kind = p;
    for (int il = 0; il < n_layer; il++) {
        if (!has_experts(m, il)) continue;
        SL_TRY(device_of(m, il, &d, err));
        SL_TRY(kind_of(m, model_layer(m, il), &s->kind[il], err));
        SL_TRY(dev_one_open(model_layer(m, il)->gate_up_exps, err));
        SL_TRY(dev_one_open(model_layer(m, il)->down_exps, err));
    }
    SL_TRY(mem_arena_array(&m->arena, (size_t)(n * s->n_kind) + 1, sizeof *s->one, &p, err));
    s->one = p;
    for (int i = 0; i < n * s->n_kind; i++)
        for (int k = 0; k < 2; k++)
            SL_TRY(open_one(m, d, s->bytes[i / n].n[k], &s->one[i].of[k], err));
    return SL_OK;
}

static struct model_spare_one *room_of(const struct model *m, int il, int spare)
{
    return &m->spares.one[m->spares.kind[il] * m->opts.n_spare + spare];
}

/* ---- reading ---- */

/* The rows of an expert that this rank has. */
static struct weight ours(const struct model *m, enum arch_role role, const struct weight *w)
{
    struct model_slice s = model_slice_of(&m->cfg, &m->dims, role, w->rows);
    return weight_slice(w, s.row0, s.n_row);
}

/* Expert e of the stack that w names, from a packed file. */
static sl_status map_one(const struct model *m, const struct want *w, int e, struct dev_one *one,
                         sl_err *err)
{
    const struct io_pack_mat *p = io_pack_find(m->opts.pack, w->name);
    struct io_pack_rows rows;
    if (!p) return SL_FAIL(err, FORMAT, "matrix %.80s is missing", w->name);
    struct model_slice s = model_slice_of(&m->cfg, &m->dims, w->role, w->rows);
    SL_TRY(io_pack_rows(p, e, s.row0, s.n_row, &rows, err));
    for (int k = 0; k < 2; k++) {
        one->data[k] = (uint8_t *)(uintptr_t)rows.data[k]; /* only read */
        one->scale[k] = rows.scale[k];
    }
    return SL_OK;
}

/* Its pages are in memory afterwards. */
static void touch(const uint8_t *p, int64_t n)
{
    for (int64_t at = 0; at < n; at += 4096)
        (void)*(const volatile uint8_t *)(p + at);
}

static sl_status touch_one(const struct dev_one *one, const int64_t bytes[2],
                           const struct model_pace *pace, sl_err *err)
{
    for (int half = 0; half < 2; half++)
        for (int64_t at = 0; at < bytes[half]; at += STRETCH) {
            int64_t n = BASE_MIN(STRETCH, bytes[half] - at);
            touch(one->data[half] + at, n);
            if (!pace->after(pace->user, n)) return SL_FAIL(err, CANCELLED, "cancelled");
        }
    return SL_OK;
}

/* first, second: gates and ups, or downs and NULL. */
static sl_status pack_one(const dev_mat *stack, const struct weight *first,
                          const struct weight *second, struct dev_one *one,
                          const struct model_pace *pace, sl_err *err)
{
    int n_tile = (int)((first->rows + 15) / 16), t = 0;
    int64_t tile = 16 * (int64_t)first->row_bytes * (second ? 2 : 1);
    int step = (int)BASE_MAX(1, STRETCH / BASE_MAX(tile, 1));
    for (; t < n_tile; t += step) {
        int end = BASE_MIN(t + step, n_tile);
        dev_one_pack(stack, first, second, t, end, one);
        if (!pace->after(pace->user, tile * (end - t))) return SL_FAIL(err, CANCELLED, "cancelled");
    }
    return SL_OK;
}

static sl_status read_mapped(const struct model *m, const struct model_move *mv,
                             struct model_spare_one *to, const struct model_pace *pace, sl_err *err)
{
    const struct arch_cfg *c = &m->cfg;
    const struct model_spare_bytes *b = &m->spares.bytes[m->spares.kind[mv->layer]];
    struct want up = model_want(m, mv->layer, ROLE_GATE_EXPS, c->d_ff_expert, c->d_model,
                                DEV_USE_EXPERTS),
                down = model_want(m, mv->layer, ROLE_DOWN_EXPS, c->d_model, c->d_ff_expert,
                                  DEV_USE_EXPERTS);
    SL_TRY(map_one(m, &up, mv->expert, &to->of[0], err));
    SL_TRY(map_one(m, &down, mv->expert, &to->of[1], err));
    SL_TRY(touch_one(&to->of[0], b->n[0], pace, err));
    return touch_one(&to->of[1], b->n[1], pace, err);
}

sl_status model_move_read(const model *m, const struct model_move *mv, int spare,
                          const struct model_pace *pace, sl_err *err)
{
    const struct layer *l = model_layer(m, mv->layer);
    struct model_spare_one *to = room_of(m, mv->layer, spare);
    struct weight gate, up, down;
    if (m->opts.pack) return read_mapped(m, mv, to, pace, err);
    SL_TRY(model_load_expert(m, mv->layer, ROLE_GATE_EXPS, mv->expert, &gate, err));
    SL_TRY(model_load_expert(m, mv->layer, ROLE_UP_EXPS, mv->expert, &up, err));
    SL_TRY(model_load_expert(m, mv->layer, ROLE_DOWN_EXPS, mv->expert, &down, err));
    gate = ours(m, ROLE_GATE_EXPS, &gate);
    up = ours(m, ROLE_UP_EXPS, &up);
    down = ours(m, ROLE_DOWN_EXPS, &down);
    SL_TRY(pack_one(l->gate_up_exps, &gate, &up, &to->of[0], pace, err));
    return pack_one(l->down_exps, &down, NULL, &to->of[1], pace, err);
}

/* ---- from and into memory: the scales, then the data of gates and ups, and of downs ---- */

#define N_SPAN 5
struct spans {
    uint8_t *p[N_SPAN];
    int64_t n[N_SPAN];
};

static struct spans spans_of(const struct model *m, int layer, struct dev_one one[2], float *scale)
{
    const struct model_spare_bytes *b = &m->spares.bytes[m->spares.kind[layer]];
    struct spans s = {{(uint8_t *)scale}, {4 * (int64_t)sizeof *scale}};
    for (int k = 0; k < 4; k++) {
        s.p[1 + k] = one[k / 2].data[k % 2];
        s.n[1 + k] = b->n[k / 2][k % 2];
        scale[k] = one[k / 2].scale[k % 2];
    }
    return s;
}

/* Bytes of the spans from or to p. */
static void carry_spans(const struct spans *s, struct model_stretch st, uint8_t *p, bool put)
{
    int64_t begin = 0;
    for (int k = 0; k < N_SPAN; begin += s->n[k++]) {
        int64_t b = BASE_MAX(st.at, begin), e = BASE_MIN(st.at + st.n, begin + s->n[k]);
        if (b >= e) continue;
        if (put)
            memcpy(s->p[k] + (b - begin), p + (b - st.at), (size_t)(e - b));
        else
            memcpy(p + (b - st.at), s->p[k] + (b - begin), (size_t)(e - b));
    }
}

int64_t model_move_bytes(const model *m, int layer)
{
    const struct model_spare_bytes *b = &m->spares.bytes[m->spares.kind[layer]];
    return 4 * (int64_t)sizeof(float) + b->n[0][0] + b->n[0][1] + b->n[1][0] + b->n[1][1];
}

void model_move_get(const model *m, int layer, int slot, struct model_stretch st, void *to)
{
    const struct layer *l = model_layer(m, layer);
    struct dev_one one[2];
    float scale[4];
    int i = slot - m->slots[layer].begin;
    dev_one_get(l->gate_up_exps, i, &one[0]);
    dev_one_get(l->down_exps, i, &one[1]);
    struct spans s = spans_of(m, layer, one, scale);
    carry_spans(&s, st, to, false);
}

void model_move_put(model *m, int layer, int spare, struct model_stretch st, const void *from)
{
    struct dev_one *one = room_of(m, layer, spare)->of;
    float scale[4];
    struct spans s = spans_of(m, layer, one, scale);
    carry_spans(&s, st, (uint8_t *)(uintptr_t)from, true); /* which is only read */
    for (int k = 0; k < 4; k++)
        one[k / 2].scale[k % 2] = scale[k];
}

static uint64_t sum_of(const struct dev_one *one, const struct model_spare_bytes *b)
{
    uint64_t sum = 0;
    for (int k = 0; k < 2; k++) {
        sum = hash_bytes(one[k].scale, sizeof one[k].scale, sum);
        for (int half = 0; half < 2 && b->n[k][half]; half++)
            sum = hash_bytes(one[k].data[half], (size_t)b->n[k][half], sum);
    }
    return sum;
}

uint64_t model_spare_sum(const model *m, int layer, int spare)
{
    return sum_of(room_of(m, layer, spare)->of, &m->spares.bytes[m->spares.kind[layer]]);
}

uint64_t model_slot_sum(const model *m, int layer, int slot)
{
    const struct layer *l = model_layer(m, layer);
    struct dev_one one[2];
    int i = slot - m->slots[layer].begin;
    dev_one_get(l->gate_up_exps, i, &one[0]);
    dev_one_get(l->down_exps, i, &one[1]);
    return sum_of(one, &m->spares.bytes[m->spares.kind[layer]]);
}

/* ---- changing places ---- */

void model_move_apply(model *m, const struct model_move *mv, int spare)
{
    struct dev_slots *s = &m->slots[mv->layer];
    if (mv->layer >= m->cfg.n_layer + m->n_mtp) return; /* another stage's */
    int i = mv->slot - s->begin;
    ((int32_t *)(uintptr_t)s->expert)[mv->slot] = mv->expert; /* ours: of the arena */
    dev_slots_init(s, m->cfg.n_expert);
    if (i < 0 || i >= s->n_here || !has_experts(m, mv->layer)) return;
    struct model_spare_one *room = room_of(m, mv->layer, spare);
    dev_one_swap(model_layer(m, mv->layer)->gate_up_exps, i, &room->of[0]);
    dev_one_swap(model_layer(m, mv->layer)->down_exps, i, &room->of[1]);
}
