/* SPDX-License-Identifier: Apache-2.0 */
/* What a device reaches: products that read much and compute little, and the other way round,
 * launches, hand-overs, copies. Measured with its own operators; a stand-in says it. */
#include "dev/figures.h"

#include <string.h>

#include "base/clock.h"
#include "dev/dev_internal.h"

#define ROWS 4096 /* of a matrix that is read: 8 MiB */
#define COLS 1024
#define SMALL 512 /* rows and columns of one that is multiplied with many tokens */
#define TOK 64
#define LAUNCHES 64
#define COPY_BYTES ((int64_t)16 << 20)
#define LEAST_NS 30000000 /* of a measurement, if it is not so long by itself */
#define MOST 64           /* repeats */

struct rig {
    dev *d;
    dev_mat *large, *small;
    dev_act *a_large, *a_small;
    float *x, *y;
    struct dev_op op[LAUNCHES + 8];
};

static sl_status load(struct rig *r, int rows, int cols, dev_mat **out, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_SCRATCH, (size_t)rows * (size_t)cols, 2, &p, err));
    uint16_t *w = p;
    for (int i = 0; i < rows * cols; i++)
        w[i] = (uint16_t)(0x3c00 + i % 251); /* small numbers */
    struct weight one = {.name = "probe",
                         .type = TENSOR_BF16,
                         .rows = rows,
                         .cols = cols,
                         .data = p,
                         .row_bytes = (uint64_t)cols * 2,
                         .tensor_scale = 1.0f};
    sl_status st = dev_mat_load(
        r->d, &(struct dev_weights){.first = &one, .n = 1, .use = DEV_USE_MATMUL}, out, err);
    mem_free(p);
    return st;
}

/* Products of n times w, after their input was prepared. */
static int products(struct rig *r, dev_mat *w, dev_act *act, int n)
{
    r->op[0] = (struct dev_op){.kind = DEV_OP_prep, .layer = -1, .d = r->d};
    r->op[0].u.prep = (struct dev_prep){.x = r->x, .n = w->cols, .act = act};
    for (int i = 1; i <= n; i++) {
        r->op[i] = (struct dev_op){.kind = DEV_OP_matmul, .layer = -1, .d = r->d};
        r->op[i].u.matmul = (struct dev_matmul){.act = act, .n_mat = 1, .w = {w}, .y = {r->y}};
    }
    return n + 1;
}

static int launches(struct rig *r, int n)
{
    for (int i = 0; i < n; i++) {
        r->op[i] = (struct dev_op){.kind = DEV_OP_add, .layer = -1, .d = r->d};
        r->op[i].u.add = (struct dev_add){.x = r->x, .y = r->x, .n = 1};
    }
    return n;
}

/* Seconds of the program of n operators on n_tok tokens: the least of several. */
static sl_status time_ops(struct rig *r, int n, int n_tok, double *s, sl_err *err)
{
    int32_t ids[TOK] = {0}, pos[TOK], tok0[2] = {0, n_tok}, n_prompt = n_tok;
    struct dev_step step = {.n_tok = n_tok,
                            .n_seq = 1,
                            .ids = ids,
                            .pos = pos,
                            .seq_tok0 = tok0,
                            .n_prompt = &n_prompt};
    dev_prog *p = NULL;
    for (int i = 0; i < TOK; i++)
        pos[i] = i;
    SL_TRY(dev_prog_open(r->d, r->op, n, &p, err));
    sl_status st = SL_OK;
    int64_t all = 0, least = 0;
    for (int i = 0; i < MOST && !st && (i < 3 || all < LEAST_NS); i++) {
        int64_t t0 = clock_now_ns();
        st = dev_prog_run(p, NULL, &step, err);
        if (!st) st = dev_sync(r->d, err);
        int64_t ns = clock_now_ns() - t0;
        if (i == 1 || (i > 1 && ns < least)) least = ns;
        all += ns;
    }
    dev_prog_close(p);
    *s = (double)BASE_MAX(least, 1) * 1e-9;
    return st;
}

static sl_status time_copies(struct rig *r, double *bus, sl_err *err)
{
    void *host = NULL, *there = NULL;
    SL_TRY(mem_alloc(MEM_SCRATCH, COPY_BYTES, &host, err));
    memset(host, 0, COPY_BYTES);
    sl_status st = dev_alloc(r->d, MEM_SCRATCH, COPY_BYTES, &there, err);
    int64_t least = 0;
    for (int i = 0; i < 4 && !st; i++) {
        int64_t t0 = clock_now_ns();
        st = dev_put(r->d, there, host, COPY_BYTES, err);
        if (!st) st = dev_sync(r->d, err);
        int64_t ns = clock_now_ns() - t0;
        if (i == 1 || (i > 1 && ns < least)) least = ns;
    }
    mem_free(host);
    *bus = (double)COPY_BYTES * 1e9 / (double)BASE_MAX(least, 1);
    return st;
}

static sl_status open_rig(struct rig *r, sl_err *err)
{
    struct dev_limits max = {.n_tok = TOK, .n_seq = 1, .n_ctx = TOK};
    void *p = NULL;
    SL_TRY(load(r, ROWS, COLS, &r->large, err));
    SL_TRY(load(r, SMALL, SMALL, &r->small, err));
    const dev_mat *one[1] = {r->large};
    SL_TRY(dev_act_open(r->d, &(struct dev_inputs){one, 1, COLS, TOK}, &r->a_large, err));
    one[0] = r->small;
    SL_TRY(dev_act_open(r->d, &(struct dev_inputs){one, 1, SMALL, TOK}, &r->a_small, err));
    SL_TRY(dev_alloc(r->d, MEM_ACTS, (int64_t)TOK * COLS * 4, &p, err));
    r->x = p;
    SL_TRY(dev_alloc(r->d, MEM_ACTS, (int64_t)TOK * ROWS * 4, &p, err));
    r->y = p;
    int n = products(r, r->large, r->a_large, 1);
    struct dev_op all[4] = {r->op[0], r->op[1]};
    n += products(r, r->small, r->a_small, 1);
    all[2] = r->op[0], all[3] = r->op[1];
    return dev_reserve(r->d, all, n, &max, err);
}

sl_status dev_figures_get(dev *d, struct dev_figures *out, sl_err *err)
{
    struct rig r = {.d = d};
    double one, many, read, read0, multiply;
    *out = (struct dev_figures){0};
    if (d->cls->figures) {
        d->cls->figures(d, out);
        return SL_OK;
    }
    SL_TRY(open_rig(&r, err));
    SL_TRY(time_ops(&r, launches(&r, 1), 1, &one, err));
    SL_TRY(time_ops(&r, launches(&r, LAUNCHES), 1, &many, err));
    SL_TRY(time_ops(&r, products(&r, r.large, r.a_large, 1), 1, &read0, err));
    SL_TRY(time_ops(&r, products(&r, r.large, r.a_large, 5), 1, &read, err));
    SL_TRY(time_ops(&r, products(&r, r.small, r.a_small, 4), TOK, &multiply, err));
    out->lat_s = BASE_MAX((many - one) / (LAUNCHES - 1), 0);
    out->hand_s = BASE_MAX(one - out->lat_s, 0) / 2; /* there and back */
    double net = BASE_MAX(read - read0 - 4 * out->lat_s, 1e-9);
    out->read = 4.0 * ROWS * COLS * 2 / net;
    net = BASE_MAX(multiply - one - 4 * out->lat_s, 1e-9);
    out->ops = 4 * 2.0 * SMALL * SMALL * TOK / net;
    return time_copies(&r, &out->bus, err);
}
