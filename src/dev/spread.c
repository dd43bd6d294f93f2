/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are spread over ranks which have tokens of their own. First all ranks learn which
 * experts the tokens of all of them have chosen, so that each knows what goes from where to where,
 * and nobody says how much. Then rows go to the experts, and what these give comes back: a row for
 * each token and expert, which the token's rank adds up in the order of its list. */
#include "dev/spread.h"

#include <string.h>

#include "dev/cpu/moe.h"
#include "par/par.h"

/* All rows to all ranks. */
static void gather(const struct dev_spreading *a, const float *x, float *y, int n)
{
    struct dev_joined j = {.d = a->d,
                           .x = x,
                           .y = y,
                           .n = n,
                           .n_row = a->n_all,
                           .n_of = a->s->n_tok_of,
                           .begin = a->parts};
    a->s->ranks->join(a->s->ranks->user, &j);
}

/* Each row of x to one. */
static void swap(const struct dev_spreading *a, const float *x, float *y, int n)
{
    struct dev_joined j = {
        .d = a->d, .x = x, .y = y, .n = n, .count = a->s->count, .begin = a->parts};
    a->s->ranks->join(a->s->ranks->user, &j);
}

/* Of joins that were begun the first is over. */
static void end(const struct dev_spreading *a)
{
    if (a->parts) a->s->ranks->end(a->s->ranks->user);
}

static void count_tokens(struct dev_spreading *a)
{
    for (int r = 0; r < a->n_rank; r++) {
        if (r < a->me) a->tok0 += a->s->n_tok_of[r];
        a->n_all += a->s->n_tok_of[r];
    }
    ASSERT(a->n_all <= a->s->n_all);
}

/* ---- there ---- */

/* Rows and what was chosen for them, side by side, to all. */
static void gather_rows(const struct dev_spreading *a)
{
    const struct dev_spread *s = a->s;
    size_t row = sizeof(float) * (size_t)a->D, ids = sizeof(int32_t) * (size_t)a->K;
    for (int64_t t = 0; t < a->n_tok; t++) {
        memcpy(s->send + t * a->ld, a->x + t * a->D, row);
        memcpy(s->send + t * a->ld + a->D, a->id + t * a->K, ids);
    }
    gather(a, s->send, s->in, a->ld);
}

static void take_ids(const struct dev_spreading *a)
{
    const struct dev_spread *s = a->s;
    for (int64_t t = 0; t < a->n_all; t++)
        memcpy(s->id + t * a->K, s->in + t * a->ld + a->D, sizeof(int32_t) * (size_t)a->K);
}

/* What came of ranks that have failed is anything: then only nothing may break. */
static void check_ids(const struct dev_spreading *a)
{
    for (int64_t i = 0; i < (int64_t)a->n_all * a->K; i++)
        if (a->s->id[i] < 0 || a->s->id[i] >= a->p->n_expert) a->s->id[i] = 0;
}

/* The ranks that compute the slot: a group, of one where experts are whole. */
static int group_of(const struct dev_spreading *a, int slot)
{
    const int32_t *slot0 = a->l.slot0, *rank0 = a->p->slots->rank0;
    int g = 0;
    while (slot >= slot0[rank0[g + 1]])
        g++;
    return g;
}

/* The rank that gives what comes of it. */
static int rank_of(const struct dev_spreading *a, int slot)
{
    const int32_t *slot0 = a->l.slot0, *rank0 = a->p->slots->rank0;
    int g = group_of(a, slot), begin = slot0[rank0[g]], n = slot0[rank0[g + 1]] - begin;
    return g * a->n_etp + (a->n_etp > 1 ? dev_terms_sharer(a->p, n, slot - begin) : 0);
}

/* Ranks that have an expert of token t of all, or rows of one, as bits. */
static uint64_t ranks_of(const struct dev_spreading *a, int t)
{
    uint64_t ranks = 0, group = a->n_etp < 64 ? ((uint64_t)1 << a->n_etp) - 1 : ~(uint64_t)0;
    for (int k = 0; k < a->K; k++)
        ranks |= group << group_of(a, a->l.slot_of[t * a->K + k]) * a->n_etp;
    return ranks;
}

/* How many rows go from where to where, and the place of those that come. */
static void count_rows(struct dev_spreading *a)
{
    const struct dev_spread *s = a->s;
    int R = a->n_rank;
    memset(s->count, 0, sizeof *s->count * (size_t)(R * R));
    for (int r = 0, t = 0; r < R; r++)
        for (int end = t + s->n_tok_of[r]; t < end; t++) {
            uint64_t to = ranks_of(a, t);
            for (int q = 0; q < R; q++)
                s->count[r * R + q] += (int32_t)(to >> q & 1);
            if (to >> a->me & 1) s->list[t] = a->n_row++;
        }
}

void dev_spread_give(struct dev_spreading *a)
{
    const struct dev_spread *s = a->s;
    int64_t at = 0;
    if (!s->swap) return;
    count_rows(a);
    for (int q = 0; q < a->n_rank; q++)
        for (int64_t t = 0; t < a->n_tok; t++)
            if (ranks_of(a, a->tok0 + (int)t) >> q & 1)
                memcpy(s->send + at++ * a->D, a->x + t * a->D, sizeof(float) * (size_t)a->D);
    swap(a, s->send, s->in, a->D);
}

/* The slots of this rank's group name rows that came. */
static void name_rows(struct dev_spreading *a)
{
    const int32_t *slot0 = a->l.slot0, *rank0 = a->p->slots->rank0;
    int g = a->me / a->n_etp;
    for (int i = slot0[rank0[g]]; i < slot0[rank0[g + 1]]; i++)
        a->l.slot_row[i] = a->s->list[a->l.slot_row[i]];
}

void dev_spread_given(struct dev_spreading *a)
{
    if (!a->s->swap) return;
    if (a->parts) count_rows(a);
    end(a);
    name_rows(a);
}

void dev_spread_rows(struct dev_spreading *a)
{
    dev_spread_give(a);
    dev_spread_given(a);
}

/* ---- and back ---- */

static void pack_rows(void *arg, int worker, int n_w)
{
    const struct dev_spreading *a = arg;
    int64_t b, e;
    par_split(a->n_send, worker, n_w, &b, &e);
    for (; b < e; b++) {
        int row = a->s->list[b];
        if (a->row_of) row = a->row_of[row];
        dev_cpu_combine_pack(a->p->combine, a->y + (int64_t)row * a->D, a->D,
                             a->s->give + b * a->n_word);
    }
}

void dev_spread_back(struct dev_spreading *a)
{
    const struct dev_spread *s = a->s;
    int first = a->l.slot0[a->p->slots->begin] + a->y_begin, R = a->n_rank;
    int64_t i = 0;
    memset(s->count, 0, sizeof *s->count * (size_t)(R * R));
    for (int q = 0; q < R; q++)
        for (int64_t end = i + (int64_t)s->n_tok_of[q] * a->K; i < end; i++) {
            int slot = a->l.slot_of[i], r = rank_of(a, slot);
            s->count[r * R + q]++;
            if (r == a->me) s->list[a->n_send++] = slot - first;
        }
    dev_host_run(a->d, pack_rows, a);
    swap(a, s->give, s->back, a->n_word);
    int32_t at[64] = {0};
    for (int r = 0, n = 0; r < R; r++) {
        at[r] = n;
        n += s->count[r * R + a->me];
    }
    for (int64_t t = 0; t < (int64_t)a->n_tok * a->K; t++)
        s->list[t] = at[rank_of(a, a->l.slot_of[(int64_t)a->tok0 * a->K + t])]++;
}

void dev_spread_came(struct dev_spreading *a)
{
    end(a);
}

/* The tokens that are this rank's, of those of its step. */
static void take_own(struct dev_spreading *a, const struct dev_moe *p)
{
    int64_t t = a->s->tok0;
    a->own = *p;
    a->own.id += t * a->K;
    a->own.weight += t * a->K;
    if (p->add) a->own.add += t * a->D;
    a->x = a->s->x + t * a->D;
    a->id = a->own.id;
    a->p = &a->own;
}

void dev_spread_begin(struct dev_spreading *a, const struct dev_moe *p, int n_tok)
{
    const struct dev_spread *s = p->spread;
    struct dev_terms l = a->l;
    *a = (struct dev_spreading){.d = a->d, .s = s, .l = l, .K = p->k, .D = dev_terms_cols(p)};
    a->n_tok = s->n_tok_of[s->ranks->rank];
    a->me = s->ranks->rank;
    a->n_rank = s->ranks->n_rank;
    a->n_etp = dev_terms_n_etp(p);
    a->n_word = dev_combine_words(p->combine, a->D);
    a->parts = p->phase != DEV_MOE_WHOLE;
    a->ld = s->swap ? a->D : a->D + a->K;
    ASSERT(s->tok0 + a->n_tok <= n_tok);
    ASSERT(a->n_rank <= 64 && !p->n_late && !p->late && !p->before);
    take_own(a, p);
    count_tokens(a);
    if (!s->swap) a->n_row = a->n_all;
}

void dev_spread_ask(struct dev_spreading *a)
{
    if (a->s->swap)
        gather(a, (const float *)(const void *)a->id, (float *)(void *)a->s->id, a->K);
    else
        gather_rows(a);
}

void dev_spread_heard(struct dev_spreading *a)
{
    end(a);
    if (!a->s->swap) take_ids(a);
    check_ids(a);
}

void dev_spread_there(struct dev_spreading *a)
{
    dev_spread_ask(a);
    dev_spread_heard(a);
}
