/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of which matrix a rank holds: the one table by which a model is loaded (weights.c).
 * Every matrix that is divided is divided by its output rows, so each output stays one dot product
 * over all columns, in the same order whatever the number of ranks. Slices begin at multiples of 16
 * rows, as tiles do. */
#include <string.h>

#include "model/model_internal.h"

#define TILE 16

enum cut { WHOLE, ROWS, HEADS, KV_HEADS }; /* roles that are not named are held whole */

static const enum cut cut_of[N_ROLE] = {
    [ROLE_Q] = HEADS,       [ROLE_K] = KV_HEADS,      [ROLE_V] = KV_HEADS,
    [ROLE_Q_B] = HEADS,     [ROLE_KV_B] = HEADS,      [ROLE_K_B] = HEADS,
    [ROLE_V_B] = HEADS,     [ROLE_O] = ROWS,          [ROLE_GATE] = ROWS,
    [ROLE_UP] = ROWS,       [ROLE_DOWN] = ROWS,       [ROLE_GATE_EXPS] = ROWS,
    [ROLE_UP_EXPS] = ROWS,  [ROLE_DOWN_EXPS] = ROWS,  [ROLE_GATE_SHEXP] = ROWS,
    [ROLE_UP_SHEXP] = ROWS, [ROLE_DOWN_SHEXP] = ROWS, [ROLE_MTP_EH] = ROWS,
    [ROLE_MTP_HEAD] = ROWS, [ROLE_MTP_EMBED] = ROWS,  [ROLE_GATE_UP_EXPS] = ROWS,
};

/* Key heads whose rows fill tiles, of width d. */
static int head_unit(int d)
{
    int unit = TILE;
    while (unit > 1 && d * (unit / 2) % TILE == 0)
        unit /= 2;
    return unit;
}

static int64_t rows_cut(const struct arch_cfg *c, enum arch_role role)
{
    switch (role) {
    case ROLE_GATE:
    case ROLE_UP:
        return c->d_ff;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS: /* of each half */
        return c->d_ff_expert;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
        return arch_d_shared(c);
    case ROLE_MTP_HEAD:
    case ROLE_MTP_EMBED:
        return c->n_vocab;
    default:
        return c->d_model;
    }
}

/* Rows of one head. */
static int64_t head_rows(const struct arch_cfg *c, enum arch_role role)
{
    return role == ROLE_KV_B                ? c->d_nope + c->d_v
           : role == ROLE_K_B               ? c->kv_lora
           : role == ROLE_V_B               ? c->d_v
           : role == ROLE_Q && c->attn_gate ? 2ll * c->d_head
                                            : c->d_head;
}

static struct model_dims dims_with(const struct arch_cfg *c, const struct dist_among *a)
{
    struct model_dims d = {.rank = a->rank, .n_rank = a->n, .n_stage = 1, .n_layer = c->n_layer};
    if (a->weight) memcpy(d.weight, a->weight, sizeof *d.weight * (size_t)a->n);
    return d;
}

/* Of more ranks than key heads: which head a rank has. By weight it is the one that the middle of
 * its share falls into, where that leaves none out. */
static int key_head_of(const struct dist_among *a, int rank, int n_kv)
{
    int64_t all = 0, before = 0;
    int kv = -1;
    if (!a->weight) return rank * n_kv / a->n;
    for (int r = 0; r < a->n; r++)
        all += a->weight[r];
    for (int r = 0; r <= rank; before += a->weight[r++]) {
        int at = (int)((2 * before + a->weight[r]) * n_kv / (2 * all));
        kv = BASE_MIN(kv + 1, BASE_MAX(BASE_MAX(at, kv), n_kv - a->n + r));
    }
    return kv;
}

/* More ranks than key heads: each has one of these, which others have too, and some of its query
 * heads. */
static struct model_dims dims_of_one_key_head(const struct arch_cfg *c, const struct dist_among *a)
{
    struct model_dims d = dims_with(c, a);
    int n_kv = c->n_head_kv, per = c->n_head / n_kv, kv = key_head_of(a, a->rank, n_kv);
    int first = a->rank, end = a->rank + 1;
    int64_t q0;
    while (first > 0 && key_head_of(a, first - 1, n_kv) == kv)
        first--;
    while (end < a->n && key_head_of(a, end, n_kv) == kv)
        end++;
    struct dist_among of = {a->rank - first, end - first, a->weight ? a->weight + first : NULL};
    d.n_head = (int)dist_share(per, 1, &of, &q0);
    d.head0 = kv * per + (int)q0;
    d.head_kv0 = kv;
    d.n_head_kv = d.n_head > 0;
    return d;
}

struct model_dims model_dims_of(const struct arch_cfg *c, const struct dist_among *a)
{
    /* query heads go where their key heads are */
    int n_kv = c->kv_lora ? c->n_head : c->n_head_kv, per = n_kv ? c->n_head / n_kv : 0,
        unit = head_unit(c->d_head);
    if (!c->kv_lora && n_kv && a->n > n_kv && unit == 1) return dims_of_one_key_head(c, a);
    struct model_dims d = dims_with(c, a);
    int64_t kv0;
    d.n_head_kv = (int)dist_share(n_kv, unit, a, &kv0);
    d.n_head = d.n_head_kv * per;
    d.head_kv0 = (int)kv0;
    d.head0 = d.head_kv0 * per;
    return d;
}

struct model_dims model_dims_beside(const struct arch_cfg *c, const struct model_dims *d, int rank)
{
    struct dist_among a = model_among(d);
    a.rank = rank;
    return model_dims_of(c, &a);
}

void model_slots_dealt(const struct model_dims *d, int n, int32_t *slot0)
{
    struct dist_among a = model_group_among(d);
    for (a.rank = 0; a.rank < a.n; a.rank++) {
        int64_t at;
        (void)dist_share(n, 1, &a, &at);
        slot0[a.rank] = (int32_t)at;
    }
    slot0[a.n] = n;
}

int model_slots_of(const struct model_dims *d, int n)
{
    struct dist_among a = model_group_among(d);
    int64_t at;
    return (int)dist_share(n, 1, &a, &at);
}

struct model_slice model_slice_of_first(const struct model_dims *d, int64_t n)
{
    struct dist_among a = model_among(d);
    struct model_slice s;
    s.n_row = dist_share(n, TILE, &a, &s.row0);
    return s;
}

/* Rows of experts that are spread. */
static struct model_slice slice_of_spread(const struct arch_cfg *c, const struct model_dims *d,
                                          enum arch_role role, int64_t rows)
{
    struct dist_among a = model_place_among(d);
    struct model_slice s = {0, rows};
    if (a.n > 1) s.n_row = dist_share(rows_cut(c, role), TILE, &a, &s.row0);
    return s;
}

struct model_slice model_slice_of(const struct arch_cfg *c, const struct model_dims *d,
                                  enum arch_role role, int64_t rows)
{
    if (d->n_slot && model_part_of(role) == MODEL_EXPERTS)
        return slice_of_spread(c, d, role, rows);
    if (arch_in(c->per_head, role)) return (struct model_slice){d->head0, d->n_head};
    if (role == ROLE_INDEX_Q && c->index_blk) /* they choose for their key heads */
        return (struct model_slice){(int64_t)d->head_kv0 * c->d_index,
                                    (int64_t)d->n_head_kv * c->d_index};
    enum cut cut = cut_of[role]; /* heads of layers that are not alike are not shared */
    if (c->d_head_win && (cut == HEADS || cut == KV_HEADS)) cut = WHOLE;
    switch (cut) {
    case HEADS:
        return (struct model_slice){d->head0 * head_rows(c, role), d->n_head * head_rows(c, role)};
    case KV_HEADS:
        return (struct model_slice){(int64_t)d->head_kv0 * c->d_head,
                                    (int64_t)d->n_head_kv * c->d_head};
    case ROWS:
        return model_slice_of_first(d, rows_cut(c, role));
    default:
        return (struct model_slice){0, rows};
    }
}

/* What a tensor's name says. Packed files spell some names as GGUF does. */
static struct arch_name parse(const struct arch_cfg *c, const char *name)
{
    static const struct arch_naming gguf = {.kind = IO_GGUF};
    struct arch_name n;
    arch_name_parse(&c->naming, name, &n);
    if (n.role < 0 && n.global < 0) arch_name_parse(&gguf, name, &n);
    return n;
}

/* The role by whose slice its rows are held; N_ROLE: whole. */
static enum arch_role role_of(const struct arch_name *n)
{
    if (n->global == GLOBAL_EMBED) return ROLE_MTP_EMBED;
    if (n->global == GLOBAL_HEAD) return ROLE_MTP_HEAD;
    return n->role < 0 ? N_ROLE : (enum arch_role)n->role;
}

bool model_has_global(const struct arch_cfg *c, const struct model_dims *d, enum arch_global g)
{
    bool embeds = d->stage == 0 || (model_is_last(d) && (c->tied_head || c->n_mtp));
    return g == GLOBAL_EMBED ? embeds : model_is_last(d);
}

int64_t model_slice_bytes(const struct arch_cfg *c, const struct model_dims *d, const char *name,
                          int64_t n_bytes)
{
    struct arch_name said = parse(c, name);
    bool has = said.layer >= 0   ? model_has_layer(c, d, said.layer)
               : said.global < 0 ? true
                                 : model_has_global(c, d, (enum arch_global)said.global);
    if (!has) return 0;
    enum arch_role role = role_of(&said);
    struct model_dims all = model_dims_of(c, &(struct dist_among){.n = 1});
    if (role != N_ROLE && d->n_slot && model_part_of(role) == MODEL_EXPERTS)
        n_bytes = n_bytes * d->n_slot / c->n_expert;
    else if (role == N_ROLE || d->n_rank <= 1)
        return n_bytes;
    int64_t ours = model_slice_of(c, d, role, 1).n_row, of = model_slice_of(c, &all, role, 1).n_row;
    return of > 0 ? (int64_t)((double)n_bytes * (double)ours / (double)of) : n_bytes;
}
