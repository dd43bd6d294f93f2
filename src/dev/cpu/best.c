/* SPDX-License-Identifier: Apache-2.0 */
/* The largest value of rows. Workers look through parts, in any order: of equal values the lowest
 * index counts, so the answer is one whoever looks where. After a product each worker looks at what
 * it has just made. */
#include "base/argmax.h"
#include "base/clock.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/fuse.h"
#include "dev/cpu/mat.h"
#include "dev/cpu/mem.h"
#include "dev/cpu/product.h"
#include "dev/cpu/work.h"

#include <limits.h>

#define PART 8192 /* values that one worker looks through sooner than others wake up */

static struct cpu_best better(struct cpu_best a, struct cpu_best b)
{
    if (a.id == DEV_BEST_NAN || b.id == DEV_BEST_NONE) return a;
    if (b.id == DEV_BEST_NAN || a.id == DEV_BEST_NONE) return b;
    return b.v > a.v || (b.v == a.v && b.id < a.id) ? b : a;
}

/* Of n values, the first of which has index from. */
static struct cpu_best look(const float *x, int from, int n)
{
    int at = argmax_f32(x, n);
    if (at < 0) return (struct cpu_best){0, DEV_BEST_NAN};
    if (x[at] == -INFINITY) return (struct cpu_best){0, DEV_BEST_NONE};
    return (struct cpu_best){x[at], from + at};
}

static struct cpu_best *own_of(const struct cpu *c, int worker)
{
    return c->best + (size_t)worker * (size_t)c->n_tok_max;
}

static void begin(const struct cpu *c, int worker, int n_row)
{
    for (int i = 0; i < n_row; i++)
        own_of(c, worker)[i] = (struct cpu_best){0, DEV_BEST_NONE};
}

/* On one thread: what n_w workers found. */
static void finish(const struct cpu *c, const struct dev_step *b, int n_row, int n_w, int32_t *id)
{
    for (int i = 0; i < n_row; i++) {
        struct cpu_best all = {0, DEV_BEST_NONE};
        for (int w = 0; w < n_w; w++)
            all = better(all, own_of(c, w)[i]);
        id[i] = dev_row_wants(b, i, DEV_WANT_BEST) ? all.id : DEV_BEST_NAN;
    }
}

/* ---- the operator ---- */
struct best_job {
    struct cpu *c;
    const struct dev_step *b;
    const struct dev_best *p;
    int n_row, n_w; /* n_w: set by worker 0 */
};

static void best_run(void *arg, int worker, int n_w)
{
    struct best_job *j = arg;
    const struct dev_best *p = j->p;
    int64_t n_part = (p->n + PART - 1) / PART, at, end;
    struct cpu_best *own = own_of(j->c, worker);
    if (worker == 0) j->n_w = n_w;
    begin(j->c, worker, j->n_row);
    par_split(j->n_row * n_part, worker, n_w, &at, &end);
    for (; at < end; at++) {
        int row = (int)(at / n_part), from = (int)(at % n_part) * PART;
        if (!dev_row_wants(j->b, row, DEV_WANT_BEST)) continue;
        const float *x = p->x + (int64_t)row * p->n + from;
        own[row] = better(own[row], look(x, from, BASE_MIN(PART, p->n - from)));
    }
}

void dev_cpu_best(dev *d, const struct dev_step *b, const struct dev_best *p)
{
    struct cpu *c = dev_cpu_of(d);
    struct best_job j = {.c = c, .b = b, .p = p, .n_row = dev_n_row(b, DEV_ROWS_WANTED)};
    ASSERT(j.n_row <= c->n_tok_max);
    if (j.n_row == 0) return;
    if ((int64_t)j.n_row * p->n <= PART)
        best_run(&j, 0, 1);
    else
        par_run(c->team, best_run, &j);
    finish(c, b, j.n_row, j.n_w, p->id);
}

/* ---- a product and the largest values of its rows ---- */
struct product_best {
    struct cpu_fused head;
    const struct dev_matmul *product;
    const struct dev_best *best;
};
struct product_job {
    struct cpu *c;
    const struct dev_step *b;
    const struct product_best *f;
    int n_row, n_w; /* n_w: set by worker 0 */
};

static void product_run(void *arg, int worker, int n_w)
{
    struct product_job *j = arg;
    struct cpu *c = j->c;
    const struct dev_matmul *p = j->f->product;
    const struct cpu_mat *w = dev_cpu_mat_of(p->w[0]);
    const struct cpu_cols in = {&((const struct cpu_act *)p->act)->b, w->form, NULL, j->n_row};
    struct cpu_best *own = own_of(c, worker);
    struct cpu_piece at = {0};
    int64_t ldy = w->m.n_row;
    if (worker == 0) j->n_w = n_w;
    begin(c, worker, j->n_row);
    while (dev_cpu_work_take(c, &c->work[0], worker, &at)) {
        int from = 16 * at.tile0, n = BASE_MIN(16 * at.n_tile, w->m.n_row - from);
        dev_cpu_product(c, worker, &at, &in, p->y[0], ldy);
        for (int i = 0; i < j->n_row; i++)
            if (dev_row_wants(j->b, i, DEV_WANT_BEST))
                own[i] = better(own[i], look(p->y[0] + i * ldy + from, from, n));
    }
}

static bool run_product(struct cpu *c, dev_kv *kv, const struct dev_step *b, struct cpu_fused *f)
{
    const struct product_best *s = (const struct product_best *)f;
    struct product_job j = {.c = c, .b = b, .f = s, .n_row = dev_n_row(b, DEV_ROWS_WANTED)};
    struct dev_op_time *time = &c->head.op[DEV_OP_matmul];
    struct dev_cost cost = c->head.cost;
    int64_t t0 = c->head.timing ? clock_now_ns() : 0;
    (void)kv;
    if (!(b->want & DEV_WANT_BEST)) return false;
    if (j.n_row == 0) return true;
    dev_cpu_work_clear(&c->work[0]);
    dev_cpu_work_add(&c->work[0], dev_cpu_mat_of(s->product->w[0]), 0, j.n_row, 16);
    dev_cpu_work_split(c, &c->work[0]);
    par_run(c->team, product_run, &j);
    finish(c, b, j.n_row, j.n_w, s->best->id);
    if (!c->head.timing) return true;
    time->n_call++;
    time->ns += clock_now_ns() - t0;
    dev_cost_add(&time->cost, &c->head.cost, &cost);
    return true;
}

sl_status dev_cpu_fuse_best(struct cpu *c, const struct dev_op *op, int n_op, int at,
                            struct cpu_fused **out, sl_err *err)
{
    void *mem = NULL;
    *out = NULL;
    if (at + 1 >= n_op || op[at].kind != DEV_OP_matmul || op[at + 1].kind != DEV_OP_best)
        return SL_OK;
    const struct dev_matmul *p = &op[at].u.matmul;
    const struct dev_best *best = &op[at + 1].u.best;
    int n = dev_cpu_mat_of(p->w[0])->m.n_row;
    if (p->n_row != DEV_ROWS_WANTED || p->rows || p->n_mat != 1 || best->x != p->y[0] ||
        best->n != n || (p->ldy[0] && p->ldy[0] != n))
        return SL_OK;
    SL_TRY(dev_cpu_mem(c, MEM_MISC, sizeof(struct product_best), &mem, err));
    struct product_best *f = mem;
    *f = (struct product_best){{{2, INT_MAX}, run_product}, p, best};
    *out = &f->head;
    return SL_OK;
}
