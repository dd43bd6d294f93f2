/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, inputs and sums of rows whose columns lie on several ranks: each rank takes the columns of
 * the others as it goes through the rows, of a shared step those of its share alone. */
#include "dev/cpu/shares.h"

#include "dev/cpu/cpu.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/ranks.h"

#include <string.h>

/* What is done with a row; cols: what each rank has of what comes in, or NULL. */
struct job {
    struct cpu *c;
    const void *p; /* parameters of the operator, or more */
    void (*row)(const struct job *j, int row, int worker, const float *const *cols);
    const struct dev_ranks *ranks;
    const int32_t *part;
    const float *x; /* this rank's columns, where part is not NULL */
    int n;          /* of all ranks */
    struct dev_share share;
};

static void take(void *arg, int row, int worker, const float *const *cols)
{
    const struct job *j = arg;
    j->row(j, j->share.begin + row, worker, cols);
}

static void plain(struct cpu *c, void *arg, int row, int worker)
{
    const struct job *j = arg;
    (void)c;
    j->row(j, j->share.begin + row, worker, NULL);
}

/* ns: about, of a row that nothing comes to. */
static void run(struct job *j, int n_row, double ns)
{
    j->share = dev_share_of(j->ranks, j->ranks->rank, n_row);
    if (!j->part) {
        dev_cpu_for_rows(j->c, j->share.n, ns, plain, j);
        return;
    }
    dev_cpu_cols_join(
        j->c, j->ranks, n_row,
        &(struct dev_joined){.x = j->x, .n = j->n, .part = j->part, .take = take, .arg = j});
}

/* ---- norm ---- */

static void norm_row(const struct job *j, int row, int worker, const float *const *cols)
{
    const struct dev_norm *p = j->p;
    struct cpu *c = j->c;
    int64_t ldx = p->ldx ? p->ldx : p->n, ldy = p->ldy ? p->ldy : p->n;
    float *x = p->x + row * ldx, *to = x;
    for (int r = 0; cols && r < p->ranks->n_rank; to += p->part[r++])
        c->k.add_f32(to, cols[r], p->part[r]);
    if (!cols && p->r) c->k.add_f32(x, p->r + row * ldx, p->n);
    float *y = p->y ? p->y + row * ldy : c->scratch[worker].row;
    c->k.rmsnorm_f32(y, x, p->w, p->n, p->eps);
    if (p->act) kern_mm_prep(&((struct cpu_act *)p->act)->b, row, y);
}

void dev_cpu_norm_share(struct cpu *c, const struct dev_norm *p, int n_tok)
{
    struct job j = {c, p, norm_row, p->ranks, p->r ? p->part : NULL, p->r, p->n, {0, 0}};
    run(&j, n_tok, p->n * (p->act ? 0.4 : 0.1));
    struct cpu_whole w = {.act = p->act, .all = p->all};
    if (p->whole) w.rows[w.n_rows++] = (struct cpu_whole_rows){p->y, p->n};
    dev_cpu_whole_join(c, p->ranks, n_tok, &w);
}

/* ---- inputs ---- */

struct prep {
    struct mm_act_buf *act;
    const int32_t *part;
    int n_rank;
};

static void prep_row(const struct job *j, int row, int worker, const float *const *cols)
{
    const struct prep *p = j->p;
    float *x = j->c->scratch[worker].row;
    for (int r = 0; r < p->n_rank; x += p->part[r++])
        memcpy(x, cols[r], sizeof *x * (size_t)p->part[r]);
    kern_mm_prep(p->act, row, j->c->scratch[worker].row);
}

void dev_cpu_prep_cols(struct cpu *c, const struct cpu_prep_cols *p, int n_row)
{
    const struct prep of = {p->act, p->part, p->ranks->n_rank};
    struct job j = {c, &of, prep_row, p->ranks, p->part, p->x, p->act->n_col, {0, 0}};
    run(&j, n_row, 0);
}

void dev_cpu_prep_share(struct cpu *c, const struct dev_prep *p, int n_row)
{
    struct mm_act_buf *act = &((struct cpu_act *)p->act)->b;
    dev_cpu_prep_cols(c, &(struct cpu_prep_cols){p->ranks, p->part, p->x, act}, n_row);
    dev_cpu_whole_join(c, p->ranks, n_row, &(struct cpu_whole){.act = p->act, .all = p->all});
}

/* ---- sums ---- */

static void add_row(const struct job *j, int row, int worker, const float *const *cols)
{
    const struct dev_add *p = j->p;
    float *x = p->x + (int64_t)row * p->n;
    (void)worker;
    for (int r = 0; cols && r < p->ranks->n_rank; x += p->part[r++])
        j->c->k.add_f32(x, cols[r], p->part[r]);
    if (!cols) j->c->k.add_f32(x, p->y + (int64_t)row * p->n, p->n);
}

void dev_cpu_add_share(struct cpu *c, const struct dev_add *p, int n_row)
{
    struct job j = {c, p, add_row, p->ranks, p->part, p->y, p->n, {0, 0}};
    run(&j, n_row, p->n * 0.1);
}
