/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that share matrices, or experts, compute for each other: rows come to the host, go
 * from rank to rank there, and come back. A rank whose step has failed brings none: the others
 * learn of it when it says so. */
#include <string.h>

#include "dev/cpu/moe.h"
#include "dev/gpu/ops.h"
#include "dev/spread.h"

/* n words from the device, which is waited for. False: the step has failed. */
static bool fetch(struct gpu *c, void *to, uint64_t from, int64_t n)
{
    return !c->why.code && dev_gpu_get(c, to, from, 4 * n, NULL) == SL_OK;
}

/* n words to the device, for what comes after; from may change at once. */
static void give(struct gpu *c, uint64_t to, const void *from, int64_t n)
{
    if (c->why.code || n == 0) return;
    if (4 * n > c->bounce.n) {
        (void)dev_gpu_put(c, to, from, 4 * n, NULL); /* what fails stays in c->why */
        return;
    }
    int64_t at = dev_gpu_bounce(c, 4 * n);
    memcpy(c->bounce.host + at, from, 4 * (size_t)n);
    dev_gpu_copy(c, to, c->bounce.at + (uint64_t)at, 4 * n);
}

/* Where rows of n values, or n of them beside each other, may lie on the host. Others read those of
 * the last join until the next one is over, where that is not for home alone; those have a place of
 * their own. */
static float *next_room(const struct gpu *c, const struct dev_ranks *r, bool home, int64_t n)
{
    ASSERT(n <= r->n_room);
    return r->room + (home ? 2 : !c->at_room[r->is_etp]) * r->n_room;
}

/* All that is in the next room was brought. */
static void join(struct gpu *c, const struct dev_ranks *r, const struct dev_joined *j)
{
    r->join(r->user, j);
    if (!j->home) c->at_room[r->is_etp] = !c->at_room[r->is_etp];
}

/* Columns x [n_row, part[rank]] of every rank side by side in y [n_row, n]. */
struct cols {
    uint64_t x, y;
    int n_row, n;
    const int32_t *part;
    bool home;
};

static void join_cols(struct gpu *c, const struct dev_ranks *r, const struct cols *p)
{
    int64_t n_x = (int64_t)p->n_row * p->part[r->rank], n_y = (int64_t)p->n_row * p->n;
    float *room = next_room(c, r, p->home, n_x + n_y);
    struct dev_joined j = {.d = &c->head,
                           .x = room,
                           .y = room + n_x,
                           .n_row = p->n_row,
                           .n = p->n,
                           .part = p->part,
                           .home = p->home};
    if (p->n_row == 0 || !fetch(c, room, p->x, n_x)) return;
    join(c, r, &j);
    if (!p->home || r->rank == 0) give(c, p->y, j.y, n_y);
}

/* Whole rows of every rank after each other. */
static void join_rows(struct gpu *c, const struct dev_ranks *r, const struct dev_join *p)
{
    int n_row = 0;
    for (int i = 0; i < r->n_rank; i++)
        n_row += p->n_of[i];
    int64_t n_x = (int64_t)p->n_of[r->rank] * p->n, n_y = (int64_t)n_row * p->n;
    float *room = next_room(c, r, false, n_x + n_y);
    struct dev_joined j = {.d = &c->head,
                           .x = room,
                           .y = room + n_x,
                           .n_row = n_row,
                           .n = p->n,
                           .n_of = p->n_of};
    if (n_row == 0 || !fetch(c, room, at(p->x), n_x)) return;
    join(c, r, &j);
    give(c, at(p->y), j.y, n_y);
}

void dev_gpu_join(dev *d, const struct dev_step *b, const struct dev_join *p)
{
    const struct cols k = {at(p->x), at(p->y), dev_n_row(b, p->n_row), p->n, p->part, p->home};
    if (p->n_of)
        join_rows(dev_gpu_of(d), p->ranks, p);
    else
        join_cols(dev_gpu_of(d), p->ranks, &k);
}

void dev_gpu_pick(dev *d, const struct dev_step *b, const struct dev_pick *p)
{
    struct gpu *c = dev_gpu_of(d);
    const struct dev_ranks *r = p->ranks;
    int64_t n = (int64_t)b->n_tok * p->n;
    float *room = next_room(c, r, false, 2 * n);
    struct dev_joined j = {
        .d = d, .x = room, .y = room + n, .n_row = b->n_tok, .n = p->n, .of = p->of};
    for (int t = 0; t < b->n_tok; t++) {
        p->of[t] = 0;
        while (p->of[t] + 1 < r->n_rank && b->ids[t] >= p->row0[p->of[t] + 1])
            p->of[t]++;
    }
    if (n == 0 || !fetch(c, room, at(p->x), n)) return;
    join(c, r, &j);
    give(c, at(p->y), j.y, n);
}

void dev_gpu_block_shared(struct gpu *c, const struct gpu_block *b, const struct gpu_shared *s)
{
    struct gpu_block k = *b;
    int n = dev_mat_cols(b->down);
    k.h.n = dev_mat_rows(b->gate_up);
    k.h.ldx = k.h.n;
    k.up.ldy = 2 * (int64_t)k.h.n;
    dev_gpu_block_up(c, &k);
    const struct cols h = {k.h.x, s->h_all, k.h.n_row, n, s->part, false};
    join_cols(c, s->ranks, &h);
    k.h.x = s->h_all;
    k.h.n = n;
    k.h.ldx = n;
    dev_gpu_block_down(c, &k);
}

/* ---- experts that are whole, each on one of the ranks ---- */

sl_status dev_gpu_terms_reserve(struct gpu *c, const struct dev_moe *p, sl_err *err)
{
    struct gpu_terms *t = &c->moe.terms;
    size_t n = (size_t)dev_cpu_n_tok_experts(&c->most) * (size_t)c->most.k,
           n_place = (size_t)dev_terms_n_place(p) + 1;
    void *m = NULL;
    if (t->n_place >= n_place) return SL_OK;
    SL_TRY(mem_arena_array(&c->arena, 6 * n + n_place, sizeof(int32_t), &m, err));
    int32_t *at = m;
    t->l = (struct dev_terms){at, at + n, at + 6 * n};
    t->place = at + 2 * n;
    t->id = at + 3 * n;
    t->slot = at + 4 * n;
    t->row_of = at + 5 * n;
    t->n_place = n_place;
    return SL_OK;
}

/* Sort n terms of chosen experts. */
static void sort_terms(struct gpu_terms *t, const struct dev_moe *p, const int32_t *id, int n)
{
    for (int i = 0; i < n; i++) {
        int e = id[i] < 0 || id[i] >= p->n_expert ? 0 : id[i]; /* of a card that has failed */
        t->place[i] = t->l.slot_of[i] = dev_terms_place(p, e, i / p->k);
    }
    dev_terms_sort(&t->l, n, p->k, dev_terms_n_place(p));
}

/* A place's slot of the stacks here; -1 = it is another rank's. */
static int32_t slot_here(const struct dev_moe *p, int place)
{
    const struct dev_slots *s = p->slots;
    return place >= s->begin && place < s->begin + s->n_here ? place - s->begin : -1;
}

/* What experts here are to give for some rows of an input: of each K, in the slots that c's terms
 * say; row row_of[i] of all terms is that of slot number i of the n_slot here. */
struct here {
    const struct dev_moe *p;
    const dev_act *act;
    const struct dev_ranks *ranks; /* who joins next */
    const int32_t *row_of;
    int n_row, n_slot;
};

/* What they have given, on the host: row i is that of slot number begin + i, or row row_of[i]. */
struct gave {
    const float *y;
    const int32_t *row_of;
    int begin, n;
};

/* Rows of n values here, of all terms, come to the host as those of the slots: x [n_slot, n]. */
static bool fetch_slots(struct gpu *c, const struct here *h, uint64_t from, int n, float *x)
{
    int64_t all = (int64_t)h->n_row * h->p->k;
    float *y = x + (int64_t)h->n_slot * n;
    if (!fetch(c, y, from, all * n)) return false;
    for (int i = 0; i < h->n_slot; i++)
        memcpy(x + (int64_t)i * n, y + (int64_t)h->row_of[i] * n, sizeof *x * (size_t)n);
    return true;
}

/* Where several ranks share each expert by rows, all get the hidden values of all. */
static bool join_hidden(struct gpu *c, const struct here *h, const struct gpu_block *e)
{
    const struct dev_etp *s = h->p->etp;
    int own = s->h_part[s->ranks->rank], F = dev_mat_cols(h->p->down), n = h->n_row * h->p->k;
    int64_t wide = (int64_t)n * own + (int64_t)h->n_slot * own;
    float *x = next_room(c, s->ranks, false, wide + ((int64_t)h->n_slot + n) * F), *y = x + wide,
          *rows = y + (int64_t)h->n_slot * F;
    struct dev_joined j = {
        .d = &c->head, .x = x, .y = y, .n_row = h->n_slot, .n = F, .part = s->h_part};
    if (!fetch_slots(c, h, e->h.x, own, x)) return false;
    join(c, s->ranks, &j);
    for (int i = 0; i < h->n_slot; i++)
        memcpy(rows + (int64_t)h->row_of[i] * F, y + (int64_t)i * F, sizeof *y * (size_t)F);
    give(c, at(s->h_all), rows, (int64_t)n * F);
    return !c->why.code;
}

/* Of the rows of which each has columns each gets some, whole. */
static bool share_rows(struct gpu *c, const struct here *h, struct gave *out)
{
    const struct dev_moe *p = h->p;
    const struct dev_etp *s = p->etp;
    int own = s->part[s->ranks->rank], D = dev_terms_cols(p), me = s->ranks->rank;
    int64_t wide = ((int64_t)h->n_row * p->k + h->n_slot) * own;
    for (int i = 0; i < s->ranks->n_rank; i++)
        s->n_of[i] = dev_terms_share(p, h->n_slot, i + 1) - dev_terms_share(p, h->n_slot, i);
    float *x = next_room(c, s->ranks, false, wide + (int64_t)s->n_of[me] * D), *y = x + wide;
    struct dev_joined j = {.d = &c->head,
                           .x = x,
                           .y = y,
                           .n_row = h->n_slot,
                           .n = D,
                           .part = s->part,
                           .n_of = s->n_of,
                           .each = true};
    if (!fetch_slots(c, h, c->moe.y, own, x)) return false;
    join(c, s->ranks, &j);
    *out = (struct gave){y, NULL, dev_terms_share(p, h->n_slot, me), s->n_of[me]};
    return true;
}

static bool run_shared(struct gpu *c, const struct here *h, const struct gpu_block *whole,
                       struct gave *out)
{
    struct gpu_block e = *whole;
    int own = h->p->etp->h_part[h->p->etp->ranks->rank];
    *out = (struct gave){NULL};
    if (h->n_slot == 0) return !c->why.code; /* the others have none either */
    e.h.n = own;
    e.h.ldx = own;
    e.up.ldy = 2 * (int64_t)own;
    dev_gpu_block_up(c, &e);
    if (!join_hidden(c, h, &e)) return false;
    e.h = whole->h;
    e.h.x = at(h->p->etp->h_all);
    dev_gpu_block_down(c, &e);
    return share_rows(c, h, out);
}

/* False: the step has failed. */
static bool run_here(struct gpu *c, const struct here *h, struct gave *out)
{
    const struct dev_moe *p = h->p;
    int F = dev_mat_cols(p->down), D = dev_mat_rows(p->down), n = h->n_row * p->k;
    const struct gpu_block e = {.gate_up = p->gate_up,
                                .down = p->down,
                                .up = {.act = (const struct gpu_act *)h->act,
                                       .n_row = n,
                                       .y = c->moe.glu,
                                       .ldy = 2 * (int64_t)F,
                                       .ids = c->moe.slots,
                                       .per = p->k},
                                .q = {.act = &c->moe.act,
                                      .n_row = n,
                                      .y = c->moe.y,
                                      .ldy = D,
                                      .ids = c->moe.slots,
                                      .per = 1},
                                .h = {.x = c->moe.h, .n = F, .n_row = n, .ldx = F}};
    *out = (struct gave){.row_of = h->row_of, .n = h->n_slot};
    if (n == 0) return !c->why.code;
    give(c, c->moe.slots, c->moe.terms.slot, n);
    if (p->etp) return run_shared(c, h, &e, out);
    dev_gpu_block(c, &e);
    float *y = next_room(c, h->ranks, false, (int64_t)n * D);
    out->y = y;
    return fetch(c, y, c->moe.y, (int64_t)n * D);
}

/* What every rank's experts have given goes to all, of each row the columns that are a rank's. */
void dev_gpu_moe_turned(struct gpu *c, const struct dev_moe *p, int n_tok)
{
    struct gpu_terms *t = &c->moe.terms;
    const struct dev_ranks *r = p->ranks;
    int n = n_tok * p->k, part = p->part[r->rank];
    int64_t D = dev_terms_cols(p);
    struct gave g;
    if (!fetch(c, t->id, at(p->id), n)) return;
    sort_terms(t, p, t->id, n);
    dev_terms_count(&t->l, p, r->n_rank, p->n_of);
    int first = t->l.slot0[p->slots->begin], end = t->l.slot0[p->slots->begin + p->slots->n_here];
    for (int i = 0; i < n; i++) {
        t->slot[i] = slot_here(p, t->place[i]);
        if (t->slot[i] >= 0) t->row_of[t->l.slot_of[i] - first] = i;
    }
    if (!run_here(c, &(struct here){p, p->act, r, t->row_of, n_tok, end - first}, &g)) return;
    int64_t n_y = p->etp ? 0 : n * D, n_x = g.n * D, n_part = (int64_t)n * part;
    float *x = next_room(c, r, false, n_y + n_x + 2 * n_part) + n_y, *rows = x + n_x,
          *terms = rows + n_part;
    for (int i = 0; i < g.n; i++)
        memcpy(x + i * D, g.y + (g.row_of ? g.row_of[i] : i) * D, sizeof *x * (size_t)D);
    struct dev_joined j = {.d = &c->head,
                           .x = x,
                           .y = rows,
                           .n_row = n,
                           .n = (int)D,
                           .part = p->part,
                           .n_of = p->n_of};
    join(c, r, &j);
    for (int i = 0; i < n; i++)
        memcpy(terms + (int64_t)i * part, rows + (int64_t)t->l.slot_of[i] * part,
               sizeof *x * (size_t)part);
    give(c, c->moe.y, terms, n_part);
    dev_gpu_combine(c, p, &(struct gpu_gave){c->moe.y, 0, n, part});
    dev_gpu_wsum(c, p, &(struct gpu_wsum){c->moe.y, n_tok, part});
}

/* ---- of ranks that have tokens of their own ---- */

/* The rows that came, as an input. */
static void take_rows(struct gpu *c, const struct dev_spreading *a)
{
    const struct gpu_act *act = (const struct gpu_act *)a->s->act;
    float *x = next_room(c, a->s->ranks, false, (int64_t)a->n_row * a->D);
    for (int64_t i = 0; i < a->n_row; i++)
        memcpy(x + i * a->D, a->s->in + i * a->ld, sizeof *x * (size_t)a->D);
    give(c, act->rows, x, (int64_t)a->n_row * a->D);
    if (a->n_row)
        dev_gpu_prep_all(c, a->s->act,
                         &(struct gpu_rows){
                             .x = act->rows, .n = a->D, .n_row = a->n_row, .ldx = a->D});
}

/* Which of the experts here each row takes, and which row of what they give is whose slot's. */
static void place_rows(struct gpu_terms *t, const struct dev_spreading *a)
{
    const struct dev_slots *s = a->p->slots;
    int first = t->l.slot0[s->begin], end = t->l.slot0[s->begin + s->n_here];
    for (int i = 0; i < a->n_row * a->K; i++)
        t->slot[i] = -1;
    for (int i = 0; i < a->n_all * a->K; i++) {
        int slot = t->l.slot_of[i];
        if (slot < first || slot >= end) continue;
        int at = t->l.slot_row[slot] * a->K + i % a->K;
        t->slot[at] = slot_here(a->p, t->place[i]);
        t->row_of[slot - first] = at;
    }
}

void dev_gpu_moe_spread(struct gpu *c, const struct dev_moe *p, int n_tok)
{
    struct gpu_terms *t = &c->moe.terms;
    struct dev_spreading a = {.d = &c->head, .l = t->l};
    int64_t D = dev_terms_cols(p);
    struct gave g;
    dev_spread_begin(&a, p, n_tok);
    int n = a.n_tok * a.K;
    float *room = next_room(c, p->spread->ranks, false, (int64_t)a.n_all * a.K * D);
    if (n && (!fetch(c, room, at(a.x), a.n_tok * D) || !fetch(c, t->id, at(a.id), n))) return;
    if (c->why.code) return;
    a.x = room;
    a.id = t->id;
    dev_spread_there(&a);
    sort_terms(t, p, p->spread->id, a.n_all * a.K);
    dev_spread_rows(&a);
    place_rows(t, &a);
    take_rows(c, &a);
    int first = t->l.slot0[p->slots->begin], end = t->l.slot0[p->slots->begin + p->slots->n_here];
    const struct here h = {p, p->spread->act, p->spread->ranks, t->row_of, a.n_row, end - first};
    if (!run_here(c, &h, &g)) return;
    a.y = g.y;
    a.row_of = g.row_of;
    a.y_begin = g.begin;
    dev_spread_back(&a);
    room = next_room(c, p->spread->ranks, false, n * D);
    for (int64_t i = 0; i < n; i++)
        dev_cpu_combine_unpack(p->combine,
                               p->spread->back + (int64_t)p->spread->list[i] * a.n_word, (int)D, 0,
                               (int)D, room + i * D);
    give(c, c->moe.y, room, n * D);
    dev_gpu_wsum(c, a.p, &(struct gpu_wsum){c->moe.y, a.n_tok, (int)D});
}
