/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: plain, by head, and the feed-forward block in one region. */
#include "dev/cpu/product.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/ranks.h"
#include "dev/cpu/shares.h"
#include "dev/cpu/work.h"

struct matmul_job {
    struct cpu *c;
    const struct dev_matmul *p;
    int n_row;
};

/* Rows of W_i's output that are computed here. */
static struct dev_share share_of(const struct dev_matmul *p, int i, int n_row)
{
    return dev_cpu_share(p->whole >> i & 1 ? p->ranks : NULL, n_row);
}

/* Where row share.begin of W_i's output is computed. */
static float *out_of(const struct dev_matmul *p, int i, int n_row)
{
    struct dev_share s = share_of(p, i, n_row);
    int64_t ldy = p->ldy[i] ? p->ldy[i] : dev_cpu_mat_of(p->w[i])->m.n_row, at = 0;
    unsigned joined = p->whole & ~p->own;
    if (!p->room || s.n == n_row || !(joined >> i & 1)) return p->y[i] + s.begin * ldy;
    for (int k = 0; k < i; k++)
        at += joined >> k & 1 ? (int64_t)n_row * dev_cpu_mat_of(p->w[k])->m.n_row : 0;
    return p->room + at + s.begin * ldy;
}

void dev_cpu_matmul_take(struct cpu *c, int worker, struct cpu_work *set,
                         const struct mm_act_buf *x, const struct dev_matmul *p, int n_row)
{
    struct cpu_piece at = {0};
    while (dev_cpu_work_take(c, set, worker, &at)) {
        int i = at.seg->user;
        const struct cpu_mat *w = dev_cpu_mat_of(p->w[i]);
        int64_t ldy = p->ldy[i] ? p->ldy[i] : w->m.n_row;
        struct dev_share s = share_of(p, i, n_row);
        float *y = out_of(p, i, n_row);
        const struct cpu_cols in = {x, w->form, s.begin ? c->iota + s.begin : p->rows, s.n};
        dev_cpu_product(c, worker, &at, &in, y, ldy);
    }
}

static void matmul_run(void *arg, int worker, int n_w)
{
    (void)n_w;
    struct matmul_job *j = arg;
    dev_cpu_matmul_take(j->c, worker, &j->c->work[0], &((const struct cpu_act *)j->p->act)->b, j->p,
                        j->n_row);
}

void dev_cpu_matmul(dev *d, const struct dev_step *b, const struct dev_matmul *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct matmul_job j = {c, p, dev_n_row(b, p->n_row) * BASE_MAX(p->n_head, 1)};
    ASSERT(j.n_row <= c->n_tok_max * BASE_MAX(p->n_head, 1));
    if (j.n_row == 0) return;
    dev_cpu_work_clear(&c->work[0]);
    for (int i = 0; i < p->n_mat; i++) {
        int n = share_of(p, i, j.n_row).n;
        dev_cpu_work_add(&c->work[0], dev_cpu_mat_of(p->w[i]), 0, n, 16)->user = i;
    }
    dev_cpu_work_split(c, &c->work[0]);
    par_run(c->team, matmul_run, &j);
    for (int i = 0; i < p->n_mat; i++) {
        struct cpu_shared s = {out_of(p, i, j.n_row), p->y[i], dev_cpu_mat_of(p->w[i])->m.n_row};
        if ((p->whole & ~p->own) >> i & 1) dev_cpu_share_join(c, p->ranks, j.n_row, &s);
    }
}

/* ---- by head ---- */
struct heads_job {
    struct cpu *c;
    const struct dev_matmul_heads *p;
    const int32_t *rows;
    const struct cpu_mat *w;
    int n_tok;
    struct mm_act_buf x; /* [H * T] rows: head h of token t is row h * T + t, so a head's rows are a
                            range of iota */
};

static void heads_run(void *arg, int worker, int n_w)
{
    struct heads_job *j = arg;
    const struct dev_matmul_heads *p = j->p;
    int64_t b, e;
    par_split((int64_t)p->n_head * j->n_tok, worker, n_w, &b, &e);
    for (int64_t i = b; i < e; i++) {
        int64_t h = i / j->n_tok, t = i % j->n_tok;
        if (j->rows) t = j->rows[t];
        kern_mm_prep(&j->x, (int)i, p->x + t * p->ldx + h * p->ldx_h);
    }
    par_barrier(j->c->team);
    struct cpu_piece at = {0};
    while (dev_cpu_work_take(j->c, &j->c->work[0], worker, &at)) {
        int h = at.seg->user;
        const struct cpu_cols in = {&j->x, j->w->form, j->c->iota + h * j->n_tok, j->n_tok};
        dev_cpu_product(j->c, worker, &at, &in, p->y + h * p->ldy_h, p->ldy);
    }
}

void dev_cpu_heads(struct cpu *c, const struct dev_matmul_heads *p, const int32_t *rows)
{
    struct heads_job j = {
        .c = c, .p = p, .rows = rows, .w = dev_cpu_mat_of(p->w), .n_tok = p->n_tok};
    ASSERT((int64_t)j.n_tok * p->n_head <= c->heads.n_row && j.w->m.n_col <= c->heads.n_col);
    kern_mm_act_init(&j.x, 1u << j.w->form, j.w->m.n_col, j.n_tok * p->n_head, c->heads.mem);
    dev_cpu_work_clear(&c->work[0]);
    for (int h = 0; h < p->n_head; h++)
        dev_cpu_work_add(&c->work[0], j.w, h, j.n_tok, 16)->user = h;
    dev_cpu_work_split(c, &c->work[0]);
    par_run(c->team, heads_run, &j);
}

void dev_cpu_matmul_heads(dev *d, const struct dev_step *b, const struct dev_matmul_heads *p)
{
    struct dev_matmul_heads q = *p;
    q.n_tok = dev_n_row(b, q.n_tok);
    dev_cpu_heads(dev_cpu_of(d), &q, NULL);
}

/* ---- feed-forward ---- */
struct ffn_job {
    struct cpu *c;
    const struct dev_ffn *p;
    const struct cpu_mat *gate_up, *down;
    struct mm_act_buf hx; /* of this width in a buffer for the widest of the model */
    int n_row, parts;     /* parts: the hidden values are prepared as they come */
    int prepared;         /* they were, before down */
};

static void ffn_up(void *arg, int worker, int n_w)
{
    (void)n_w;
    struct ffn_job *j = arg;
    const struct dev_ffn *p = j->p;
    struct cpu *c = j->c;
    const struct mm_act_buf *x = &((const struct cpu_act *)p->act)->b;
    int64_t n_ff = j->gate_up->m.n_row;
    struct cpu_piece at = {0};
    struct cpu_hidden out = {.h = p->h, .ldh = n_ff, .act = j->parts ? &j->hx : NULL};
    if (j->parts && p->ranks) out.group0 = dev_cpu_parts_begin(p->ranks, p->part);
    const struct cpu_cols in = {.x = x, .n_tok = j->n_row};
    while (dev_cpu_work_take(c, &c->work[0], worker, &at))
        dev_cpu_product_pairs(c, worker, &at, &in, j->gate_up, &out);
}

static void ffn_down(void *arg, int worker, int n_w)
{
    struct ffn_job *j = arg;
    const struct dev_ffn *p = j->p;
    struct cpu *c = j->c;
    int64_t b, e, n_h = j->down->m.n_col;
    struct cpu_piece at = {0};
    par_split(j->n_row, worker, n_w, &b, &e);
    if (j->prepared) {
        ;
    } else if (!j->parts) {
        const float *h = p->ranks ? p->h_all : p->h;
        for (int64_t t = b; t < e; t++)
            kern_mm_prep(&j->hx, (int)t, h + t * n_h);
        par_barrier(c->team);
    } else if (p->ranks) {
        for (int64_t t = b; t < e; t++)
            kern_mm_prep_end(&j->hx, (int)t);
        par_barrier(c->team);
    }
    const struct cpu_cols in = {&j->hx, j->down->form, NULL, j->n_row};
    while (dev_cpu_work_take(c, &c->work[1], worker, &at))
        dev_cpu_product(c, worker, &at, &in, p->y, j->down->m.n_row);
}

static void ffn_run(void *arg, int worker, int n_w)
{
    struct ffn_job *j = arg;
    ffn_up(arg, worker, n_w);
    par_barrier(j->c->team);
    ffn_down(arg, worker, n_w);
}

/* Each rank prepares the hidden values of its share of the rows. */
static void prep_hidden(struct ffn_job *j)
{
    const struct dev_ffn *p = j->p;
    kern_mm_blank(&j->hx, j->n_row);
    dev_cpu_prep_cols(j->c, &(struct cpu_prep_cols){p->ranks, p->part, p->h, &j->hx}, j->n_row);
    dev_cpu_whole_join(j->c, p->ranks, j->n_row,
                       &(struct cpu_whole){.buf = &j->hx, .forms = j->hx.forms});
    j->prepared = 1;
}

/* Between the two products the other ranks' hidden values come in. */
static void ffn_of_ranks(struct ffn_job *j)
{
    const struct dev_ffn *p = j->p;
    struct dev_joined h = {.d = &j->c->head, .x = p->h, .y = p->h_all, .n_row = j->n_row};
    h.n = j->down->m.n_col;
    h.part = p->part;
    par_run(j->c->team, ffn_up, j);
    if (j->parts)
        dev_cpu_parts_join(j->c, p->ranks, p->part, &j->hx, j->n_row);
    else if (dev_is_shared(p->ranks, j->n_row))
        prep_hidden(j);
    else
        p->ranks->join(p->ranks->user, &h);
    par_run(j->c->team, ffn_down, j);
}

void dev_cpu_ffn(dev *d, const struct dev_step *b, const struct dev_ffn *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct ffn_job j = {.c = c, .p = p, .n_row = dev_n_row(b, p->n_row)};
    const struct mm_act_buf *wide = &((const struct cpu_act *)p->h_act)->b;
    j.gate_up = dev_cpu_mat_of(p->gate_up);
    j.down = dev_cpu_mat_of(p->down);
    ASSERT(j.down->m.n_col <= wide->n_col);
    kern_mm_act_init(&j.hx, 1u << j.down->form, j.down->m.n_col, wide->n_tok_max, wide->base);
    j.hx.is_parts = dev_cpu_takes_parts(j.down);
    j.parts = !p->keep_h && j.hx.is_parts && (!p->ranks || dev_cpu_parts_shared(p->ranks, p->part));
    ASSERT(j.n_row <= c->n_tok_max);
    dev_cpu_work_clear(&c->work[0]);
    dev_cpu_work_add(&c->work[0], j.gate_up, 0, j.n_row, j.parts ? 32 : 16);
    dev_cpu_work_split(c, &c->work[0]);
    dev_cpu_work_clear(&c->work[1]);
    dev_cpu_work_add(&c->work[1], j.down, 0, j.n_row, 16);
    dev_cpu_work_split(c, &c->work[1]);
    if (!p->ranks)
        par_run(c->team, ffn_run, &j);
    else if (j.n_row)
        ffn_of_ranks(&j);
}
