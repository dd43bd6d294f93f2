/* SPDX-License-Identifier: Apache-2.0 */
/* The largest value of rows: the lowest of equals, a NaN, nothing but -infinity; after a product,
 * run together with it or apart, with 1 to 4 threads, for rows that want it beside others. */
#include "check.h"

enum { D = 32, T = 9, V_MAX = 20000 };

static int32_t plain(const float *x, int n)
{
    int at = DEV_BEST_NONE;
    for (int i = 0; i < n; i++) {
        if (isnan(x[i])) return DEV_BEST_NAN;
        if (x[i] > (at < 0 ? -INFINITY : x[at])) at = i;
    }
    return at;
}

/* What rows want, at random; all of it is in want. */
static struct dev_step wants(int n_row, uint8_t *row_want)
{
    struct dev_step b = {.n_tok = n_row, .n_row = n_row, .row_want = row_want};
    for (int i = 0; i < n_row; i++) {
        row_want[i] = (uint8_t)(rand_int(0, 2) ? DEV_WANT_BEST : DEV_WANT_LOGITS);
        b.want |= row_want[i];
    }
    return b;
}

static void compare_ids(const char *what, const struct dev_step *b, const float *x, int n,
                        const int32_t *id)
{
    for (int i = 0; i < b->n_row; i++) {
        int32_t want = b->row_want[i] & DEV_WANT_BEST ? plain(x + (int64_t)i * n, n) : DEV_BEST_NAN;
        g.n_checked++;
        if (id[i] != want && (b->want & DEV_WANT_BEST))
            FAIL("%s: row %d of %d values: %d, not %d", what, i, n, id[i], want);
    }
}

/* Few different values, so that there are equals; rows of which all or one is odd. */
static void fill(float *x, int n_row, int n)
{
    for (int i = 0; i < n_row * n; i++)
        x[i] = (float)rand_int(-4, 4);
    for (int i = 0; i < n_row; i++) {
        int kind = rand_int(0, 5);
        for (int k = 0; k < n && kind == 1; k++)
            x[i * n + k] = -INFINITY;
        if (kind == 2) x[i * n + rand_int(0, n - 1)] = NAN;
        if (kind == 3) x[i * n + rand_int(0, n - 1)] = INFINITY;
    }
}

static void check_alone(dev *d)
{
    float *x = get_mem(sizeof *x * T * V_MAX);
    int32_t *id = get_mem(sizeof *id * T);
    uint8_t row_want[T];
    for (int trial = 0; trial < 20; trial++) {
        int n = trial % 4 ? rand_int(1, 300) : rand_int(8000, V_MAX), n_row = rand_int(1, T);
        struct dev_step b = wants(n_row, row_want);
        fill(x, n_row, n);
        dev_best(d, &b, &(struct dev_best){.x = x, .n = n, .id = id});
        compare_ids("best", &b, x, n, id);
    }
}

/* A row whose logits are all NaN too. */
static void check_product(dev *d, int n)
{
    struct weight w = rand_weight(TENSOR_F32, n, D);
    float *x = rand_array(T * D), *y = get_mem(sizeof *y * (size_t)(T * n)), *bias = rand_array(n);
    int32_t *id = get_mem(sizeof *id * T), tok0[2] = {0, 0}, zero[T] = {0}, row_tok[T];
    uint8_t row_want[T];
    dev_mat *m = NULL;
    dev_act *a = NULL;
    dev_prog *p = NULL;
    x[D + 3] = NAN;
    MUST(dev_mat_load(d, &(struct dev_weights){.first = &w, .n = 1, .use = DEV_USE_MATMUL}, &m,
                      &err_));
    end_with(m, (struct dev_epilogue){.bias = bias, .n_bias = 1, .n_row = n});
    const dev_mat *in = m;
    MUST(dev_act_open(d, &(struct dev_inputs){&in, 1, D, T}, &a, &err_));
    struct dev_op op[] = {
        {.kind = DEV_OP_rows, .layer = -1, .u.rows = {.x = x, .n = D, .act = a}},
        {.kind = DEV_OP_matmul,
         .layer = -1,
         .u.matmul = {.act = a, .n_row = DEV_ROWS_WANTED, .n_mat = 1, .w = {m}, .y = {y}}},
        {.kind = DEV_OP_best, .layer = -1, .u.best = {.x = y, .n = n, .id = id}}};
    MUST(dev_prog_open(d, op, 3, &p, &err_));
    if (dev_prog_fused(p, T) != 2) FAIL("best: not run together with its product");
    for (int trial = 0; trial < 10; trial++) {
        int n_row = rand_int(1, T);
        struct dev_step b = wants(n_row, row_want);
        for (int i = 0; i < n_row; i++)
            row_tok[i] = i;
        tok0[1] = n_row;
        b.n_seq = 1;
        b.seq_tok0 = tok0;
        b.pos = b.ids = zero;
        b.row_tok = row_tok;
        MUST(dev_prog_run(p, NULL, &b, &err_));
        compare_ids("best of a product", &b, y, n, id);
        dev_best(d, &b, &op[2].u.best);
        compare_ids("best after a product", &b, y, n, id);
    }
    dev_prog_close(p);
}

void check_best(void)
{
    for (int n_thread = 1; n_thread <= 4; n_thread++) {
        dev *d = NULL;
        MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread}, &d, &err_));
        static const int n[] = {1, 15, 17, 1000, 9000};
        for (int i = 0; i < 5; i++) { /* matrices are loaded before the workspace is made */
            dev *own = NULL;
            MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread}, &own, &err_));
            struct weight w = rand_weight(TENSOR_F32, n[i], D);
            dev_mat *m = NULL;
            MUST(dev_mat_load(
                own, &(struct dev_weights){.first = &w, .n = 1, .use = DEV_USE_MATMUL}, &m, &err_));
            reserve(own, T, NULL, 0);
            check_product(own, n[i]);
            dev_close(own);
        }
        reserve(d, T, NULL, 0);
        check_alone(d);
        dev_close(d);
    }
}
