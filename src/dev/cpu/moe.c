/* SPDX-License-Identifier: Apache-2.0 */
/* Routed experts: tokens are grouped by expert with index lists (no copies), the tiles of all
 * experts in use are one row of work, and each token's K results are added in the order of its
 * list. */
#include "dev/cpu/moe.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/product.h"
#include "dev/cpu/ranks.h"
#include "dev/cpu/work.h"

/* Those of them that the stacks hold, from here on: place 0 is the stacks' first. */
int dev_cpu_moe_n_here(const struct dev_moe *p)
{
    return p->slots && p->slots->n_here ? p->slots->n_here : dev_terms_n_place(p);
}

static int first_here(const struct dev_moe *p)
{
    return p->slots && p->slots->n_here ? p->slots->begin : 0;
}

static int64_t expert_at(const struct dev_moe *p, int64_t place)
{
    return p->slots ? p->slots->expert[first_here(p) + place] : place;
}

/* What the router chose, and how many terms of a generated token come late. */
struct listed {
    const int32_t *id;
    const float *weight;
    int k, n_late;
};

static struct listed listed_of(const struct dev_moe *p)
{
    return (struct listed){p->id, p->weight, p->k, p->n_late};
}

/* Does token t's k-th term come late? */
static bool is_late(const struct cpu *c, const struct listed *p, int t, int k)
{
    if (!p->n_late || !c->generated[t]) return false;
    const float *w = p->weight + (int64_t)t * p->k;
    const int32_t *id = p->id + (int64_t)t * p->k;
    int n_first = 0;
    for (int i = 0; i < p->k; i++)
        n_first += w[i] > w[k] || (w[i] == w[k] && id[i] < id[k]);
    return n_first >= p->k - p->n_late;
}

/* Where term number i of all tokens is computed; -1: not by this operator. */
static int place_of_term(const struct cpu *c, const struct dev_moe *p, int i)
{
    struct listed l = listed_of(p);
    int t = i / p->k;
    return is_late(c, &l, t, i % p->k) == p->late ? dev_terms_place(p, p->id[i], t) : -1;
}

/* Terms of a step whose experts have a slot here, and of others. */
static void count_hits(const struct dev_moe *p, int n_tok)
{
    uint64_t seen[CPU_EXPERT_MAX / 64] = {0};
    struct dev_hits *h = p->hits;
    for (int i = 0; i < n_tok * p->k; i++) {
        int e = p->id[i];
        if (dev_terms_place(p, e, 0) >= 0) {
            h->n_here++;
            continue;
        }
        uint64_t bit = (uint64_t)1 << e % 64;
        h->n_there++;
        h->n_used_there += (seen[e / 64] & bit) == 0;
        seen[e / 64] |= bit;
    }
}

struct dev_terms dev_cpu_terms(const struct cpu *c)
{
    return (struct dev_terms){c->moe.slot_row, c->moe.slot_of, c->moe.expert_slot0};
}

/* Rows 0 .. T*K-1 sorted by place, within one by token; -1 for terms that are not computed
 * here. */
void dev_cpu_moe_group(struct cpu *c, const struct dev_moe *p, int n_tok)
{
    struct dev_terms l = dev_cpu_terms(c);
    for (int i = 0; i < n_tok * p->k; i++)
        l.slot_of[i] = place_of_term(c, p, i);
    dev_terms_sort(&l, n_tok * p->k, p->k, dev_terms_n_place(p));
}

/* What all experts have given, for the columns that are added up here. */
static const float *results(const struct cpu_moe *m)
{
    return m->p->rows ? m->p->rows : m->c->moe.y;
}

static int64_t n_sum(const struct cpu_moe *m)
{
    return m->p->rows ? m->p->part[m->p->ranks->rank] : m->D;
}

/* Columns [at, at + n) of token t's terms, in their form, each to its row. */
static void give_terms(const struct cpu_moe *m, int64_t t, int64_t at, int n)
{
    const struct dev_moe *p = m->p;
    int64_t n_out = n_sum(m);
    for (int64_t i = t * p->k; i < (t + 1) * p->k; i++) {
        int32_t slot = m->c->moe.slot_of[i];
        if (slot >= 0)
            dev_cpu_combine_round(p->combine, m->c->moe.y + slot * n_out + at, n,
                                  p->terms + i * n_out + at);
    }
}

/* Columns [at, at + n) of a row of results; room is for CPU_SUM_COLS values. */
static const float *result_at(const struct cpu_moe *m, int row, int64_t at, int n, float *room)
{
    enum dev_combine form = m->p->combine;
    int D = m->D;
    if (m->back) {
        const float *words = m->back + (int64_t)row * dev_combine_words(form, D);
        if (form == DEV_COMBINE_F32) return words + at;
        dev_cpu_combine_unpack(form, words, D, (int)at, n, room);
        return room;
    }
    const float *y = results(m) + row * n_sum(m) + at;
    if (form == DEV_COMBINE_F32) return y;
    dev_cpu_combine_round(form, y, n, room);
    return room;
}

/* Where n columns of a token's sum go, and what is added before its rows and after them. */
struct rows_sum {
    float *y;
    const float *before, *add; /* or NULL */
    int n_row;                 /* of the worker's scratch */
};

static void put_sum(struct cpu *c, int worker, const struct rows_sum *t, int n)
{
    struct cpu_scratch *s = &c->scratch[worker];
    if (!t->before) {
        c->k.wsum_f32(t->y, s->rowp, s->row, t->n_row, t->add, n);
        return;
    }
    /* y may be what is added */
    c->k.wsum_f32(s->tile, s->rowp, s->row, t->n_row, t->before, n);
    if (t->add) c->k.add_f32(s->tile, t->add, n);
    memcpy(t->y, s->tile, sizeof(float) * (size_t)n);
}

/* Columns [at, at + n) of token t's results, in the order of its list. */
static void sum_results(const struct cpu_moe *m, int worker, int64_t t, int64_t at, int n)
{
    const struct dev_moe *p = m->p;
    struct cpu_scratch *s = &m->c->scratch[worker];
    int64_t n_out = n_sum(m), to = t * n_out + at;
    const float *weight = p->weight + t * p->k, *add = p->add ? p->add + to : NULL;
    const int32_t *row_of = m->back ? m->back_of : m->c->moe.slot_of;
    bool more = p->before && m->c->generated[t];
    int n_row = 0;
    if (p->late && !m->c->generated[t]) return;
    for (int k = 0; k < p->k; k++) {
        int32_t row = row_of[t * p->k + k];
        if (row < 0) continue;
        s->row[n_row] = weight[k];
        s->rowp[n_row] = result_at(m, row, at, n, s->tile + (int64_t)(1 + n_row) * CPU_SUM_COLS);
        n_row++;
    }
    put_sum(m->c, worker, &(struct rows_sum){p->y + to, more ? p->before + to : NULL, add, n_row},
            n);
}

void dev_cpu_moe_sum(void *arg, int worker, int n_w)
{
    const struct cpu_moe *m = arg;
    int64_t n_out = n_sum(m), n_part = (n_out + CPU_SUM_COLS - 1) / CPU_SUM_COLS, b, e;
    par_split(m->n_tok * n_part, worker, n_w, &b, &e);
    for (; b < e; b++) {
        int64_t at = b % n_part * CPU_SUM_COLS;
        int n = (int)BASE_MIN(n_out - at, CPU_SUM_COLS);
        if (m->p->terms)
            give_terms(m, b / n_part, at, n);
        else
            sum_results(m, worker, b / n_part, at, n);
    }
}

/* Rows of place e of the stacks, counted from the first here. */
struct rows {
    int begin, n;
};

static struct rows rows_of(const struct cpu_moe *m, int64_t e)
{
    const int32_t *slot0 = m->c->moe.expert_slot0 + first_here(m->p);
    return (struct rows){slot0[e] - slot0[0], slot0[e + 1] - slot0[e]};
}

void dev_cpu_moe_up(const struct cpu_moe *m, int worker, const struct mm_act_buf *x)
{
    const struct dev_moe *p = m->p;
    struct cpu *c = m->c;
    int64_t n_ff = m->gate_up->m.n_row;
    const int32_t *token = c->moe.slot_row + c->moe.expert_slot0[first_here(p)];
    struct cpu_piece at = {0};
    struct cpu_hidden out = {.ldh = n_ff, .act = m->parts ? &c->moe.act : NULL};
    if (out.act && m->h_all) out.group0 = dev_cpu_parts_begin(m->h_ranks, m->h_part);
    while (dev_cpu_work_take(c, &c->work[0], worker, &at)) {
        struct rows s = rows_of(m, at.seg->user);
        out.h = c->moe.h + s.begin * n_ff;
        out.row0 = s.begin;
        const struct cpu_cols in = {.x = x, .idx = token + s.begin, .n_tok = s.n};
        dev_cpu_product_pairs(c, worker, &at, &in, m->gate_up, &out);
    }
}

void dev_cpu_moe_prep(const struct cpu_moe *m, int worker, int n_w)
{
    const float *h = m->h_all ? m->h_all : m->c->moe.h;
    int64_t n_h = m->down->m.n_col, b, e;
    par_split(m->n_slot, worker, n_w, &b, &e);
    for (int64_t s = b; s < e; s++)
        if (m->parts)
            kern_mm_prep_end(&m->c->moe.act, (int)s);
        else
            kern_mm_prep(&m->c->moe.act, (int)s, h + s * n_h);
}

void dev_cpu_moe_down(const struct cpu_moe *m, int worker)
{
    struct cpu *c = m->c;
    int64_t n_out = m->down->m.n_row;
    struct cpu_piece at = {0};
    while (dev_cpu_work_take(c, &c->work[1], worker, &at)) {
        struct rows s = rows_of(m, at.seg->user);
        float *y = c->moe.y + s.begin * n_out;
        const struct cpu_cols in = {&c->moe.act, m->down->form, c->iota + s.begin, s.n};
        dev_cpu_product(c, worker, &at, &in, y, n_out);
    }
}

static void moe_up(void *arg, int worker, int n_w)
{
    const struct cpu_moe *m = arg;
    (void)n_w;
    dev_cpu_moe_up(m, worker, &((const struct cpu_act *)m->p->act)->b);
}

static void moe_down(void *arg, int worker, int n_w)
{
    const struct cpu_moe *m = arg;
    if (!m->parts || m->h_all) {
        dev_cpu_moe_prep(m, worker, n_w);
        par_barrier(m->c->team);
    }
    dev_cpu_moe_down(m, worker);
}

static void moe_rest(void *arg, int worker, int n_w)
{
    const struct cpu_moe *m = arg;
    moe_down(arg, worker, n_w);
    par_barrier(m->c->team);
    dev_cpu_moe_sum(arg, worker, n_w);
}

static void moe_run(void *arg, int worker, int n_w)
{
    const struct cpu_moe *m = arg;
    moe_up(arg, worker, n_w);
    par_barrier(m->c->team);
    moe_rest(arg, worker, n_w);
}

/* Between the two products the other ranks' hidden values come in. */
static void join_hidden(struct cpu_moe *m)
{
    struct dev_joined h = {.d = &m->c->head, .x = m->c->moe.h, .y = m->h_all, .part = m->h_part};
    h.n_row = m->n_slot;
    h.n = m->down->m.n_col;
    if (m->parts)
        dev_cpu_parts_join(m->c, m->h_ranks, m->h_part, &m->c->moe.act, m->n_slot);
    else if (h.n_row)
        m->h_ranks->join(m->h_ranks->user, &h);
}

static void moe_of_ranks(struct cpu_moe *m)
{
    par_run(m->c->team, moe_up, m);
    join_hidden(m);
    par_run(m->c->team, moe_rest, m);
}

static void moe_whole(void *arg, int worker, int n_w)
{
    const struct cpu_moe *m = arg;
    moe_up(arg, worker, n_w);
    par_barrier(m->c->team);
    moe_down(arg, worker, n_w);
}

/* Of the rows that this rank has columns of, and others the rest, each gets some. */
static void share_rows(struct cpu_moe *m)
{
    const struct dev_moe *p = m->p;
    const struct dev_etp *s = p->etp;
    struct dev_joined j = {.d = &m->c->head,
                           .x = m->c->moe.y,
                           .y = s->y,
                           .n_row = m->n_slot,
                           .n = m->D,
                           .part = s->part,
                           .n_of = s->n_of,
                           .each = true};
    for (int i = 0; i < s->ranks->n_rank; i++)
        s->n_of[i] = dev_terms_share(p, m->n_slot, i + 1) - dev_terms_share(p, m->n_slot, i);
    if (m->n_slot) s->ranks->join(s->ranks->user, &j);
    m->y = s->y;
    m->y_begin = dev_terms_share(p, m->n_slot, s->ranks->rank);
}

void dev_cpu_moe_here(struct cpu_moe *m)
{
    m->y = m->c->moe.y;
    m->y_begin = 0;
    if (!m->p->etp) {
        par_run(m->c->team, moe_whole, m);
        return;
    }
    par_run(m->c->team, moe_up, m);
    join_hidden(m);
    par_run(m->c->team, moe_down, m);
    share_rows(m);
}

/* Every rank gives the others their columns of what its experts have computed. */
static void moe_turned(struct cpu_moe *m)
{
    const struct dev_moe *p = m->p;
    const struct dev_terms l = dev_cpu_terms(m->c);
    struct dev_joined j = {.d = &m->c->head, .y = p->rows, .part = p->part, .n_of = p->n_of};
    j.n_row = m->n_tok * p->k;
    j.n = m->D;
    dev_terms_count(&l, p, p->ranks->n_rank, p->n_of);
    dev_cpu_moe_here(m);
    j.x = m->y;
    p->ranks->join(p->ranks->user, &j);
    par_run(m->c->team, dev_cpu_moe_sum, m);
}

void dev_cpu_moe_tell(const struct cpu_moe *j)
{
    const struct dev_moe *p = j->p;
    int n_ff = j->gate_up->m.n_row;
    for (int e = 0; e < dev_cpu_moe_n_here(p); e++) {
        struct rows s = rows_of(j, e);
        struct dev_tapped r = {.what = p->tap.what,
                               .layer = p->tap.layer,
                               .expert = (int)expert_at(p, e),
                               .x = j->c->moe.h + (int64_t)s.begin * n_ff,
                               .n_row = s.n,
                               .n_col = n_ff,
                               .ldx = n_ff};
        if (s.n) p->tap.fn(p->tap.user, &r);
    }
}

void dev_cpu_moe_begin(struct cpu_moe *m, struct cpu *c, const struct dev_moe *p, int n_tok)
{
    *m = (struct cpu_moe){.c = c, .p = p, .n_tok = n_tok};
    m->gate_up = dev_cpu_mat_of(p->gate_up);
    m->down = dev_cpu_mat_of(p->down);
    m->D = dev_terms_cols(p);
    if (p->h_all) {
        m->h_ranks = p->ranks;
        m->h_part = p->part;
        m->h_all = p->h_all;
    } else if (p->etp) {
        m->h_ranks = p->etp->ranks;
        m->h_part = p->etp->h_part;
        m->h_all = p->etp->h_all;
    }
    m->parts = !p->tap.fn && dev_cpu_takes_parts(m->down) &&
               (!m->h_all || dev_cpu_parts_shared(m->h_ranks, m->h_part));
    ASSERT(n_tok <= dev_cpu_n_tok_experts(&c->most) && p->k <= c->most.k &&
           dev_terms_n_place(p) <= c->most.n_expert && m->gate_up->m.n_row <= c->most.d_ff_expert &&
           m->down->m.n_row <= c->most.d_model);
    dev_cpu_moe_group(c, p, n_tok);
    if (p->hits) count_hits(p, n_tok);
    m->n_slot = c->moe.expert_slot0[first_here(p) + dev_cpu_moe_n_here(p)] -
                c->moe.expert_slot0[first_here(p)];
    dev_cpu_work_clear(&c->work[0]);
    dev_cpu_work_clear(&c->work[1]);
    for (int e = 0; e < dev_cpu_moe_n_here(p); e++) {
        int n = rows_of(m, e).n;
        if (n == 0) continue;
        dev_cpu_work_add(&c->work[0], m->gate_up, e, n, m->parts ? 32 : 16)->user = e;
        dev_cpu_work_add(&c->work[1], m->down, e, n, 16)->user = e;
    }
    kern_mm_act_init(&c->moe.act, 1u << m->down->form, m->down->m.n_col, m->n_slot, c->moe.mem);
    c->moe.act.is_parts = dev_cpu_takes_parts(m->down);
}

void dev_cpu_moe(dev *d, const struct dev_step *b, const struct dev_moe *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct cpu_moe m;
    int n_tok = dev_n_row(b, p->n_tok);
    if (p->spread) {
        dev_cpu_moe_spread(c, p, n_tok);
        return;
    }
    if (n_tok == 0) return;
    dev_cpu_moe_begin(&m, c, p, n_tok);
    dev_cpu_work_split(c, &c->work[0]);
    dev_cpu_work_split(c, &c->work[1]);
    if (p->rows)
        moe_turned(&m);
    else if (p->ranks)
        moe_of_ranks(&m);
    else
        par_run(c->team, moe_run, &m);
    if (p->tap.fn) dev_cpu_moe_tell(&m);
}

/* ---- the sum of terms that were computed one by one ---- */

struct cpu_sum {
    struct cpu *c;
    const struct dev_sum *p;
    struct listed l;
    int n_tok;
};

/* Columns [at, at + n) of token t. */
static void sum_terms(const struct cpu_sum *m, int worker, int64_t t, int64_t at, int n)
{
    const struct dev_sum *p = m->p;
    struct cpu_scratch *s = &m->c->scratch[worker];
    int64_t to = t * p->n + at;
    const float *add = p->add ? p->add + to : NULL;
    bool more = p->before && m->c->generated[t];
    int n_row = 0;
    if (p->late && !m->c->generated[t]) return;
    for (int k = 0; k < p->k; k++) {
        int64_t i = t * p->k + k;
        int e = p->id[i];
        if (is_late(m->c, &m->l, (int)t, k) != p->late) continue;
        bool is_here = !p->slots || p->slots->first[e + 1] > p->slots->first[e];
        s->row[n_row] = p->weight[i];
        s->rowp[n_row++] = (is_here ? p->here : p->there) + i * p->n + at;
    }
    put_sum(m->c, worker, &(struct rows_sum){p->y + to, more ? p->before + to : NULL, add, n_row},
            n);
}

static void sum_run(void *arg, int worker, int n_w)
{
    const struct cpu_sum *m = arg;
    int64_t n_part = (m->p->n + CPU_SUM_COLS - 1) / CPU_SUM_COLS, b, e;
    par_split(m->n_tok * n_part, worker, n_w, &b, &e);
    for (; b < e; b++) {
        int64_t at = b % n_part * CPU_SUM_COLS;
        sum_terms(m, worker, b / n_part, at, (int)BASE_MIN(m->p->n - at, CPU_SUM_COLS));
    }
}

void dev_cpu_sum(dev *d, const struct dev_step *b, const struct dev_sum *p)
{
    struct cpu_sum m = {.c = dev_cpu_of(d), .p = p, .l = {p->id, p->weight, p->k, p->n_late}};
    m.n_tok = dev_n_row(b, p->n_tok);
    ASSERT(p->k <= m.c->most.k);
    if (m.n_tok) par_run(m.c->team, sum_run, &m);
}
