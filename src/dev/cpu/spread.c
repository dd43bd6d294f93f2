/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that are spread over ranks which have tokens of their own. First all ranks learn which
 * experts the tokens of all of them have chosen, so that each knows what goes from where to where,
 * and nobody says how much. Then rows go to the experts, and what these give comes back: a row for
 * each token and expert, which the token's rank adds up in the order of its list. */
#include <string.h>

#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/moe.h"
#include "dev/cpu/work.h"

struct spread {
    struct cpu *c;
    const struct dev_moe *p; /* own */
    const struct dev_spread *s;
    const float *x;   /* own tokens' rows */
    struct cpu_moe m; /* of the tokens of all ranks */
    int me, n_rank, D, K;
    struct dev_moe own;     /* of the tokens of this rank */
    int n_tok, tok0, n_all; /* this rank's; of all the first of them; how many there are */
    int ld;                 /* of rows that came: their values are the first D */
    int n_row;              /* that came */
    int n_word;             /* of a row on its way back */
    int n_send;
};

/* All rows to all ranks. */
static void gather(const struct spread *a, const float *x, float *y, int n)
{
    struct dev_joined j = {
        .d = &a->c->head, .x = x, .y = y, .n = n, .n_row = a->n_all, .n_of = a->s->n_tok_of};
    a->s->ranks->join(a->s->ranks->user, &j);
}

/* Each row of x to one. */
static void swap(const struct spread *a, const float *x, float *y, int n)
{
    struct dev_joined j = {.d = &a->c->head, .x = x, .y = y, .n = n, .count = a->s->count};
    a->s->ranks->join(a->s->ranks->user, &j);
}

static void count_tokens(struct spread *a)
{
    for (int r = 0; r < a->n_rank; r++) {
        if (r < a->me) a->tok0 += a->s->n_tok_of[r];
        a->n_all += a->s->n_tok_of[r];
    }
    ASSERT(a->n_all <= a->s->n_all);
}

/* ---- there ---- */

/* Rows and what was chosen for them, side by side, to all. */
static void gather_rows(struct spread *a)
{
    const struct dev_spread *s = a->s;
    size_t row = sizeof(float) * (size_t)a->D, ids = sizeof(int32_t) * (size_t)a->K;
    a->ld = a->D + a->K;
    a->n_row = a->n_all;
    for (int64_t t = 0; t < a->n_tok; t++) {
        memcpy(s->send + t * a->ld, a->x + t * a->D, row);
        memcpy(s->send + t * a->ld + a->D, a->p->id + t * a->K, ids);
    }
    gather(a, s->send, s->in, a->ld);
    for (int64_t t = 0; t < a->n_all; t++)
        memcpy(s->id + t * a->K, s->in + t * a->ld + a->D, ids);
}

/* What came of ranks that have failed is anything: then only nothing may break. */
static void check_ids(const struct spread *a)
{
    for (int64_t i = 0; i < (int64_t)a->n_all * a->K; i++)
        if (a->s->id[i] < 0 || a->s->id[i] >= a->p->n_expert) a->s->id[i] = 0;
}

/* The rank that computes the slot. */
static int rank_of(const struct spread *a, int slot)
{
    const int32_t *slot0 = a->c->moe.expert_slot0, *rank0 = a->p->slots->rank0;
    int r = 0;
    while (slot >= slot0[rank0[r + 1]])
        r++;
    return r;
}

/* Ranks that have an expert of token t of all, as bits. */
static uint64_t ranks_of(const struct spread *a, int t)
{
    uint64_t ranks = 0;
    for (int k = 0; k < a->K; k++)
        ranks |= (uint64_t)1 << rank_of(a, a->c->moe.slot_of[t * a->K + k]);
    return ranks;
}

/* Rows to the ranks that have experts for them, each once. Then slots name the rows that came. */
static void swap_rows(struct spread *a)
{
    const struct dev_spread *s = a->s;
    const int32_t *slot0 = a->c->moe.expert_slot0, *rank0 = a->p->slots->rank0;
    int R = a->n_rank;
    int64_t at = 0;
    memset(s->count, 0, sizeof *s->count * (size_t)(R * R));
    for (int r = 0, t = 0; r < R; r++)
        for (int end = t + s->n_tok_of[r]; t < end; t++) {
            uint64_t to = ranks_of(a, t);
            for (int q = 0; q < R; q++)
                s->count[r * R + q] += (int32_t)(to >> q & 1);
            if (to >> a->me & 1) s->list[t] = a->n_row++;
        }
    for (int q = 0; q < R; q++)
        for (int64_t t = 0; t < a->n_tok; t++)
            if (ranks_of(a, a->tok0 + (int)t) >> q & 1)
                memcpy(s->send + at++ * a->D, a->x + t * a->D, sizeof(float) * (size_t)a->D);
    swap(a, s->send, s->in, a->D);
    a->ld = a->D;
    for (int i = slot0[rank0[a->me]]; i < slot0[rank0[a->me + 1]]; i++)
        a->c->moe.slot_row[i] = s->list[a->c->moe.slot_row[i]];
}

static void prep_row(struct cpu *c, void *arg, int i, int worker)
{
    const struct spread *a = arg;
    (void)c;
    (void)worker;
    kern_mm_prep(&((struct cpu_act *)a->s->act)->b, i, a->s->in + (int64_t)i * a->ld);
}

/* ---- and back ---- */

static void pack_rows(void *arg, int worker, int n_w)
{
    const struct spread *a = arg;
    int64_t b, e;
    par_split(a->n_send, worker, n_w, &b, &e);
    for (; b < e; b++)
        dev_cpu_combine_pack(a->p->combine, a->c->moe.y + (int64_t)a->s->list[b] * a->D, a->D,
                             a->s->give + b * a->n_word);
}

/* What experts have given goes to the ranks that have the tokens; list: where this rank's are. */
static void give_back(struct spread *a)
{
    const struct dev_spread *s = a->s;
    int first = a->c->moe.expert_slot0[a->p->slots->begin], R = a->n_rank;
    int64_t i = 0;
    memset(s->count, 0, sizeof *s->count * (size_t)(R * R));
    for (int q = 0; q < R; q++)
        for (int64_t end = i + (int64_t)s->n_tok_of[q] * a->K; i < end; i++) {
            int slot = a->c->moe.slot_of[i], r = rank_of(a, slot);
            s->count[r * R + q]++;
            if (r == a->me) s->list[a->n_send++] = slot - first;
        }
    par_run(a->c->team, pack_rows, a);
    swap(a, s->give, s->back, a->n_word);
    int32_t at[64] = {0};
    for (int r = 0, n = 0; r < R; r++) {
        at[r] = n;
        n += s->count[r * R + a->me];
    }
    for (int64_t t = 0; t < (int64_t)a->n_tok * a->K; t++)
        s->list[t] = at[rank_of(a, a->c->moe.slot_of[(int64_t)a->tok0 * a->K + t])]++;
}

/* The tokens that are this rank's, of those of its step. */
static void take_own(struct spread *a, const struct dev_moe *p)
{
    int64_t t = a->s->tok0;
    a->own = *p;
    a->own.id += t * a->K;
    a->own.weight += t * a->K;
    if (p->add) a->own.add += t * a->D;
    a->x = a->s->x + t * a->D;
    a->p = &a->own;
}

void dev_cpu_moe_spread(struct cpu *c, const struct dev_moe *p, int n_tok)
{
    const struct dev_spread *s = p->spread;
    struct dev_moe all = *p;
    struct spread a = {.c = c, .s = s, .n_tok = s->n_tok_of[s->ranks->rank], .K = p->k};
    a.me = s->ranks->rank;
    a.n_rank = s->ranks->n_rank;
    a.D = dev_cpu_mat_of(p->down)->m.n_row;
    ASSERT(s->tok0 + a.n_tok <= n_tok);
    take_own(&a, p);
    a.n_word = dev_combine_words(p->combine, a.D);
    ASSERT(a.n_rank <= 64 && !p->n_late && !p->late && !p->before);
    count_tokens(&a);
    if (s->swap)
        gather(&a, (const float *)(const void *)a.p->id, (float *)(void *)s->id, a.K);
    else
        gather_rows(&a);
    check_ids(&a);
    all.id = s->id;
    all.act = s->act;
    dev_cpu_moe_begin(&a.m, c, &all, a.n_all);
    dev_cpu_work_split(c, &c->work[0]);
    dev_cpu_work_split(c, &c->work[1]);
    if (s->swap) swap_rows(&a);
    dev_cpu_for_rows(c, a.n_row, a.D * 0.3, prep_row, &a);
    par_run(c->team, dev_cpu_moe_here, &a.m);
    if (p->tap.fn) dev_cpu_moe_tell(&a.m);
    give_back(&a);
    a.m.p = a.p;
    a.m.n_tok = a.n_tok;
    a.m.back = s->back;
    a.m.back_of = s->list;
    if (a.n_tok) par_run(c->team, dev_cpu_moe_sum, &a.m);
}
