/* SPDX-License-Identifier: Apache-2.0 */
/* A residual stream that is several: a walk through blocks against one in double, and its bits in
 * other company, on other numbers of workers. */
#include "check.h"

#define T_MAX 9
#define N_MAX 5
#define D_MAX 700
#define BLOCKS 3

struct streams_case {
    int T, N, D, rounds;
    float eps, norm_eps;
    bool mean; /* is the head? */
    bool more; /* what the first block has left goes to all streams that are there */
    float *r[BLOCKS];
    float *fn[BLOCKS], *packed[BLOCKS], *base[BLOCKS], *scale[BLOCKS];
};

static void make(struct streams_case *c)
{
    *c = (struct streams_case){.T = rand_int(1, T_MAX),
                               .N = rand_int(0, 2) ? 4 : rand_int(2, N_MAX),
                               .D = rand_int(1, D_MAX),
                               .rounds = rand_int(1, 20),
                               .eps = rand_int(0, 1) ? 1e-6f : 1e-2f,
                               .norm_eps = 1e-6f,
                               .mean = rand_int(0, 3) == 0,
                               .more = rand_int(0, 1)};
    for (int i = 0; i < BLOCKS; i++) {
        int q = dev_streams_rows(c->N, i == BLOCKS - 1);
        c->r[i] = rand_array((int64_t)c->T * c->D);
        c->fn[i] = rand_array((int64_t)q * c->N * c->D);
        for (int k = 0; k < q * c->N * c->D; k++)
            c->fn[i][k] *= 2.0f / sqrtf((float)(c->N * c->D));
        c->packed[i] = rand_array((int64_t)q * c->N * c->D);
        dev_streams_pack(c->fn[i], q, c->N, c->D, c->packed[i]);
        c->base[i] = rand_array(q);
        c->scale[i] = rand_array(3);
    }
}

/* The operator before block i; i BLOCKS - 1: the head. Of tokens [t0, t0 + n). */
static struct dev_streams before(const struct streams_case *c, int i, int t0, float *mem)
{
    bool head = i == BLOCKS - 1, mean = head && c->mean;
    int64_t N = c->N, D = c->D;
    float *x = mem, *mix = x + T_MAX * N * D, *y = mix + T_MAX * (N + N * N),
          *part = y + T_MAX * D;
    return (struct dev_streams){.x = x,
                                .n_stream = c->N,
                                .n = c->D,
                                .r = c->r[i] + t0 * D,
                                .begin = i == 0,
                                .more = i == 0 && c->more,
                                .head = head,
                                .mix = mix,
                                .fn = mean ? NULL : c->packed[i],
                                .base = c->base[i],
                                .scale = c->scale[i],
                                .eps = c->eps,
                                .norm_eps = c->norm_eps,
                                .rounds = c->rounds,
                                .y = y,
                                .part = part};
}

static float *memory(const struct streams_case *c)
{
    int64_t N = c->N, D = c->D;
    return rand_array(T_MAX * (N * D + N + N * N + D + dev_streams_parts(c->N, c->D)));
}

/* One token of the same in double. */
struct exact {
    double x[N_MAX][D_MAX], post[N_MAX], m[N_MAX][N_MAX], y[D_MAX];
};

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

static void balance(const struct streams_case *c, struct exact *e)
{
    int N = c->N;
    double eps = (double)c->eps;
    for (int i = 0; i < 2 * c->rounds; i++) { /* rows in even ones but the first, then columns */
        for (int k = 0; k < N && i; k++) {
            double sum = eps;
            for (int j = 0; j < N; j++)
                sum += i % 2 ? e->m[j][k] : e->m[k][j];
            for (int j = 0; j < N; j++)
                *(i % 2 ? &e->m[j][k] : &e->m[k][j]) /= sum;
        }
    }
}

static void mix(const struct streams_case *c, struct exact *e, int i, int t)
{
    for (int d = 0; d < c->D; d++) {
        double was[N_MAX], r = (double)c->r[i][t * c->D + d];
        for (int k = 0; k < c->N; k++)
            was[k] = e->x[k][d];
        for (int k = 0; k < c->N; k++) {
            e->x[k][d] = i ? e->post[k] * r : c->more ? was[k] + r : r;
            for (int j = 0; j < c->N && i; j++)
                e->x[k][d] += e->m[j][k] * was[j];
        }
    }
}

static void weigh(const struct streams_case *c, struct exact *e, int i, double *pre)
{
    int N = c->N, q = dev_streams_rows(N, i == BLOCKS - 1);
    double m[(2 + N_MAX) * N_MAX] = {0}, squares = 0;
    for (int k = 0; k < N * c->D; k++) {
        double x = e->x[k / c->D][k % c->D];
        squares += x * x;
        for (int row = 0; row < q; row++)
            m[row] += x * (double)c->fn[i][row * N * c->D + k];
    }
    for (int row = 0; row < q; row++) {
        int s = row < N ? 0 : row < 2 * N ? 1 : 2;
        m[row] /= sqrt(squares / (N * c->D) + (double)c->norm_eps);
        m[row] = m[row] * (double)c->scale[i][s] + (double)c->base[i][row];
    }
    for (int k = 0; k < N; k++)
        pre[k] = sigmoid(m[k]) + (double)c->eps;
    for (int k = 0; k < N && q > N; k++) {
        double sum = 0;
        e->post[k] = 2 * sigmoid(m[N + k]);
        for (int j = 0; j < N; j++)
            sum += exp(m[2 * N + k * N + j]);
        for (int j = 0; j < N; j++)
            e->m[k][j] = exp(m[2 * N + k * N + j]) / sum + (double)c->eps;
    }
    if (q > N) balance(c, e);
}

static void exact_block(const struct streams_case *c, struct exact *e, int i, int t)
{
    double pre[N_MAX];
    mix(c, e, i, t);
    for (int k = 0; k < c->N; k++)
        pre[k] = 1.0 / c->N;
    if (i < BLOCKS - 1 || !c->mean) weigh(c, e, i, pre);
    for (int d = 0; d < c->D; d++) {
        e->y[d] = 0;
        for (int k = 0; k < c->N; k++)
            e->y[d] += pre[k] * e->x[k][d];
    }
}

static void check_block(const struct streams_case *c, const struct exact *e,
                        const struct dev_streams *p, int t)
{
    static double x[N_MAX * D_MAX], tol[N_MAX * D_MAX];
    double most = 0;
    for (int k = 0; k < c->N * c->D; k++) {
        x[k] = e->x[k / c->D][k % c->D];
        most = fmax(most, fabs(x[k]));
    }
    for (int k = 0; k < c->N * c->D; k++)
        tol[k] = 2000 * U * most;
    compare("streams", p->x + t * c->N * c->D, x, tol, c->N * c->D);
    compare("input of streams", p->y + t * c->D, e->y, tol, c->D);
    if (p->head) return;
    for (int k = 0; k < c->N * (1 + c->N); k++) {
        x[k] = k < c->N ? e->post[k] : e->m[k / c->N - 1][k % c->N];
        tol[k] = 500 * U * fmax(1, fabs(x[k]));
    }
    compare("numbers of streams", p->mix + t * c->N * (1 + c->N), x, tol, c->N * (1 + c->N));
}

/* All tokens through all blocks; then each alone, in which it has the same bits. */
static void check_case(dev *d, dev *other, const struct streams_case *c)
{
    static struct exact e[T_MAX];
    int64_t n_x = (int64_t)c->N * c->D;
    float *all = memory(c), *one = memory(c), *first = rand_array(T_MAX * n_x);
    memset(e, 0, sizeof e);
    memcpy(all, first, sizeof *all * (size_t)(c->T * n_x));
    for (int64_t i = 0; i < c->T * n_x; i++)
        e[i / n_x].x[i % n_x / c->D][i % c->D] = (double)first[i];
    int32_t tok0[2] = {0, c->T}, pos[T_MAX] = {0};
    struct dev_step b = {.n_tok = c->T, .n_seq = 1, .seq_tok0 = tok0, .pos = pos};
    for (int i = 0; i < BLOCKS; i++) {
        struct dev_streams p = before(c, i, 0, all);
        dev_step_begin(d, NULL, &b);
        dev_streams(d, &b, &p);
        for (int t = 0; t < c->T; t++) {
            exact_block(c, &e[t], i, t);
            check_block(c, &e[t], &p, t);
        }
    }
    for (int t = 0; t < c->T; t++) {
        struct dev_streams p = {0};
        struct dev_step s = {.n_tok = 1, .n_seq = 1, .seq_tok0 = tok0};
        memcpy(one, first + t * n_x, sizeof *one * (size_t)n_x);
        for (int i = 0; i < BLOCKS; i++) {
            p = before(c, i, t, one);
            if (i == 1) { /* what goes out is mixed by an operator of its own */
                float *y = p.y;
                p.y = NULL;
                dev_streams(other, &s, &p);
                p.y = y;
                p.r = NULL;
            }
            dev_streams(other, &s, &p);
        }
        struct dev_streams q = before(c, BLOCKS - 1, 0, all);
        same_bits("streams alone", p.y, q.y + (int64_t)t * c->D, c->D);
        same_bits("streams alone", p.x, q.x + (int64_t)t * c->N * c->D, (int64_t)c->N * c->D);
    }
}

void check_streams(void)
{
    dev *d = NULL, *other = NULL;
    const struct dev_op most = {.kind = DEV_OP_streams};
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 2}, &d, &err_));
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = 3}, &other, &err_));
    reserve(d, T_MAX, &most, 1);
    reserve(other, T_MAX, &most, 1);
    for (int trial = 0; trial < 30; trial++) {
        struct streams_case c;
        make(&c);
        check_case(d, other, &c);
    }
    dev_close(other);
    dev_close(d);
}
