/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, inputs and sums of which each of several ranks has some columns, of few tokens and of so
 * many that each has a share of them: the bits of one rank, in all forms of activations. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { D = 352, F = 48, T_MAX = 70, R_MAX = 3 };

struct setup {
    int n_rank, n_tok;
    enum dev_acts acts;
    struct weight w, w2; /* of two forms, perhaps; only the first takes all tokens' rows */
    float *x, *r, *norm;
    int32_t part[R_MAX];
    pthread_barrier_t barrier;
    struct dev_joined post[R_MAX];
};
/* What comes of it: products of a norm's input, its rows, x and a sum, of the share; products of r
 * as it is. */
struct made {
    float y[T_MAX * F], rows[T_MAX * D], x[T_MAX * D], sum[T_MAX * D], prep[T_MAX * F];
};
struct rank {
    struct setup *a;
    int rank;
    struct made *out;
};

static void columns(const struct setup *a, int me, const struct dev_joined *j)
{
    const float *cols[R_MAX];
    int row0 = 0;
    for (int q = 0; j->each && q < me; q++)
        row0 += j->n_of[q];
    for (int i = 0; i < (j->each ? j->n_of[me] : j->n_row); i++) {
        for (int q = 0; q < a->n_rank; q++)
            cols[q] = a->post[q].x + (int64_t)(row0 + i) * j->part[q];
        j->take(j->arg, i, 0, cols);
    }
}

static void strips(const struct setup *a, const struct dev_joined *j)
{
    for (int k = 0; k < j->n_strip; k++) {
        const struct dev_strip *s = &j->strip[k];
        float *y = s->y;
        for (int q = 0; q < a->n_rank; q++)
            for (int i = 0; i < j->n_of[q]; i++, y += s->ld) {
                const float *x = (const float *)a->post[q].strip[k].x + i * s->ld;
                if (x != y) memcpy(y, x, sizeof *y * (size_t)s->n);
            }
    }
}

/* What dist does, of threads. */
static void join(void *user, const struct dev_joined *j)
{
    const struct rank *r = user;
    struct setup *a = r->a;
    a->post[r->rank] = *j;
    pthread_barrier_wait(&a->barrier);
    if (j->n_strip)
        strips(a, j);
    else
        columns(a, r->rank, j);
    pthread_barrier_wait(&a->barrier);
}

static float *rows_of(dev *d, int64_t n)
{
    void *p = NULL;
    MUST(dev_alloc(d, MEM_ACTS, n * (int64_t)sizeof(float), &p, &err_));
    return p;
}

static void *run_rank(void *arg)
{
    const struct rank *k = arg;
    struct setup *a = k->a;
    struct dev_opts o = {.n_thread = 1, .acts = a->acts};
    dev *d = NULL;
    dev_mat *w = NULL, *w2 = NULL;
    dev_act *act = NULL;
    int n = a->n_rank, T = a->n_tok, at = 0;
    struct dev_ranks of = {.join = join, .user = arg, .rank = k->rank, .n_rank = n};
    struct dev_ranks *ranks = n > 1 ? &of : NULL;
    MUST(dev_open("cpu", &o, &d, &err_));
    MUST(dev_mat_load(d, &(struct dev_weights){.first = &a->w, .n = 1}, &w, &err_));
    struct dev_weights exact = {.first = &a->w2, .n = 1, .use = DEV_USE_EXACT};
    MUST(dev_mat_load(d, &exact, &w2, &err_));
    const dev_mat *both[] = {w, w2};
    MUST(dev_act_open(d, &(struct dev_inputs){both, 2, D, T_MAX}, &act, &err_));
    struct dev_op op = {.kind = DEV_OP_matmul, .u.matmul = {.act = act, .n_mat = 1, .w = {w}}};
    struct dev_limits max = {.n_tok = T_MAX, .n_seq = 1, .n_ctx = T_MAX};
    MUST(dev_reserve(d, &op, 1, &max, &err_));
    float *x = rows_of(d, T * D), *cols = rows_of(d, T * D), *sum = rows_of(d, T * D);
    memcpy(x, a->x, sizeof *x * (size_t)(T * D));
    memcpy(sum, a->x, sizeof *x * (size_t)(T * D));
    for (int q = 0; q < k->rank; q++)
        at += a->part[q];
    for (int t = 0; t < T; t++)
        memcpy(cols + t * a->part[k->rank], a->r + t * D + at,
               sizeof *x * (size_t)a->part[k->rank]);
    const int32_t *part = ranks ? a->part : NULL;
    struct dev_step b = {.n_tok = T};
    dev_norm(d, &b,
             &(struct dev_norm){.x = x,
                                .r = cols,
                                .w = a->norm,
                                .eps = 1e-6f,
                                .n = D,
                                .y = k->out->rows,
                                .act = act,
                                .ranks = ranks,
                                .part = part,
                                .all = {NULL, w},
                                .whole = true});
    dev_matmul(d, &b, &(struct dev_matmul){.act = act, .n_mat = 1, .w = {w}, .y = {k->out->y}});
    dev_prep(d, &b,
             &(struct dev_prep){
                 .x = cols, .n = D, .act = act, .ranks = ranks, .part = part, .all = {w}});
    dev_matmul(d, &b, &(struct dev_matmul){.act = act, .n_mat = 1, .w = {w}, .y = {k->out->prep}});
    dev_add(d, &b, &(struct dev_add){.x = sum, .y = cols, .n = D, .ranks = ranks, .part = part});
    memcpy(k->out->x, x, sizeof *x * (size_t)(T * D));
    memcpy(k->out->sum, sum, sizeof *x * (size_t)(T * D));
    dev_close(d);
    return NULL;
}

static void compare_rank(const struct rank *k, const struct made *want)
{
    const struct setup *a = k->a;
    struct dev_ranks ranks = {.n_rank = a->n_rank};
    struct dev_share s = dev_share_of(&ranks, k->rank, a->n_tok);
    int from = s.begin * D, n = s.n * D;
    same_bits("products of a shared norm", k->out->y, want->y, a->n_tok * F);
    same_bits("rows of a shared norm", k->out->rows, want->rows, a->n_tok * D);
    same_bits("products of shared rows", k->out->prep, want->prep, a->n_tok * F);
    same_bits("x of the share", k->out->x + from, want->x + from, n);
    same_bits("a sum of the share", k->out->sum + from, want->sum + from, n);
    if (dev_is_shared(&ranks, a->n_tok) != (a->n_tok > 48)) FAIL("%d tokens", a->n_tok);
}

void check_shares(void)
{
    static const enum tensor_dtype type[] = {TENSOR_Q4_0, TENSOR_Q8_0, TENSOR_BF16, TENSOR_F32};
    for (int trial = 0; trial < 32; trial++) {
        struct setup one = {.n_rank = 1}, a = {.n_rank = 2 + trial % 2};
        struct rank rank[R_MAX], alone = {&one, 0, get_mem(sizeof(struct made))};
        pthread_t thread[R_MAX];
        a.n_tok = trial / 2 % 2 ? rand_int(49, T_MAX) : rand_int(1, 31);
        a.acts = (enum dev_acts)(trial / 4 % 4);
        a.w = rand_weight(type[trial / 8 % 4], F, D);
        a.w2 = rand_weight(TENSOR_Q4_0, F, D);
        a.x = rand_array(a.n_tok * D);
        a.r = rand_array(a.n_tok * D);
        a.norm = rand_array(D);
        one = a;
        one.n_rank = 1;
        one.part[0] = D;
        (void)run_rank(&alone);
        for (int r = 0, left = D; r < a.n_rank; left -= a.part[r++])
            a.part[r] = r == a.n_rank - 1 ? left : rand_int(0, left);
        if (pthread_barrier_init(&a.barrier, NULL, (unsigned)a.n_rank)) FAIL("no barrier");
        for (int r = 0; r < a.n_rank; r++) {
            rank[r] = (struct rank){&a, r, get_mem(sizeof(struct made))};
            if (pthread_create(&thread[r], NULL, run_rank, &rank[r])) FAIL("no thread");
        }
        for (int r = 0; r < a.n_rank; r++)
            (void)pthread_join(thread[r], NULL);
        (void)pthread_barrier_destroy(&a.barrier);
        for (int r = 0; r < a.n_rank; r++)
            compare_rank(&rank[r], alone.out);
        g.n_checked++;
        free_all();
    }
}
