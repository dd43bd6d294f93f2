/* SPDX-License-Identifier: Apache-2.0 */
/* A residual stream that is several. First units of a token and some columns of all its streams:
 * they are mixed in place, and what of the sums over all columns these have goes to the unit's own
 * place. Then those are added, in rising order of columns, and give the numbers by which the
 * streams become the next input: by every worker that makes columns of it, for they are a few
 * hundred operations. Columns are cut by the shape alone, so a token has the same bits in any
 * company. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/rows.h"

#include <math.h>
#include <string.h>

#define ROWS_MAX ((2 + DEV_STREAMS_MAX) * DEV_STREAMS_MAX)
#define TOKENS 64    /* that are mixed together: their streams are 4 MiB of wide models */
#define PIECE 512    /* columns of y that are worth a worker of their own, at least */
#define NS_MIX 0.08  /* of a value of the streams, about; and of one by a row of fn */
#define NS_DOT 0.02

struct streams_job {
    const struct dev_streams *p;
    int n_tok, n_part; /* units of a token's columns */
    int n_row;         /* of fn */
    int n_piece;       /* of a token's y */
};

static int64_t part_floats(const struct dev_streams *p)
{
    return dev_streams_parts(p->n_stream, p->n);
}

/* Columns of all streams of a token: some tokens one after another, so that the same columns of fn
 * are at hand, and then others of these tokens, whose streams still are. */
static void mix_unit(struct cpu *c, void *arg, int at, int worker)
{
    const struct streams_job *j = arg;
    const struct dev_streams *p = j->p;
    int some = at / (TOKENS * j->n_part), in = at % (TOKENS * j->n_part),
        n_tok = BASE_MIN(TOKENS, j->n_tok - some * TOKENS);
    int N = p->n_stream, part = in / n_tok, t = some * TOKENS + in % n_tok,
        c0 = part * DEV_STREAMS_COLS, n = BASE_MIN(DEV_STREAMS_COLS, p->n - c0);
    float *x = p->x + (int64_t)t * N * p->n + c0;
    const float *r = p->r ? p->r + (int64_t)t * p->n + c0 : NULL;
    (void)worker;
    for (int k = 0; k < N && p->begin; k++)
        if (p->more)
            c->k.add_f32(x + (int64_t)k * p->n, r, n);
        else
            memcpy(x + (int64_t)k * p->n, r, (size_t)n * sizeof *x);
    if (r && !p->begin) c->k.streams_f32(x, p->n, r, p->mix + (int64_t)t * N * (1 + N), N, n);
    if (!p->y || !p->fn) return;
    float *sum = p->part + t * part_floats(p) + (int64_t)part * (j->n_row + 1);
    c->k.dots_f32(sum, x, p->n, p->fn + (int64_t)c0 * N * j->n_row, N * n, n, j->n_row, N, n);
    c->k.dots_f32(sum + j->n_row, x, p->n, x, 0, p->n, 1, N, n);
}

/* m, of all columns. */
static void add_parts(const struct streams_job *j, int t, float *m)
{
    const struct dev_streams *p = j->p;
    const float *part = p->part + t * part_floats(p);
    int n = j->n_row + 1;
    memcpy(m, part, (size_t)n * sizeof *m);
    for (int i = 1; i < j->n_part; i++)
        for (int k = 0; k < n; k++)
            m[k] += part[i * n + k];
    float f = 1.0f / sqrtf(m[j->n_row] / ((float)p->n_stream * (float)p->n) + p->norm_eps);
    for (int k = 0; k < j->n_row; k++)
        m[k] *= f;
}

static void divide(float *v, int step, int n, float eps)
{
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += v[i * step];
    for (int i = 0; i < n; i++)
        v[i * step] /= sum + eps;
}

/* Rows and columns of M in turn, columns first and last. */
static void balance(const struct dev_streams *p, float *m)
{
    int N = p->n_stream;
    for (int i = 0; i < p->rounds; i++) {
        for (int k = 0; k < N && i; k++)
            divide(m + k * N, 1, N, p->eps);
        for (int k = 0; k < N; k++)
            divide(m + k, N, N, p->eps);
    }
}

/* m becomes pre, post and M. */
static void weigh(const struct cpu *c, const struct dev_streams *p, float *m)
{
    int N = p->n_stream, n_gate = p->head ? N : 2 * N;
    for (int i = 0; i < dev_streams_rows(N, p->head); i++)
        m[i] = m[i] * p->scale[i < N ? 0 : i < 2 * N ? 1 : 2] + p->base[i];
    c->k.sigmoid_f32(m, n_gate);
    for (int i = 0; i < N; i++)
        m[i] += p->eps;
    if (p->head) return;
    for (int i = N; i < 2 * N; i++)
        m[i] *= 2;
    for (int k = 0; k < N; k++)
        c->k.softmax_f32(m + 2 * N + k * N, N);
    for (int i = 2 * N; i < (2 + N) * N; i++)
        m[i] += p->eps;
    balance(p, m + 2 * N);
}

static void give_unit(struct cpu *c, void *arg, int at, int worker)
{
    const struct streams_job *j = arg;
    const struct dev_streams *p = j->p;
    int N = p->n_stream, t = at / j->n_piece, piece = at % j->n_piece;
    int64_t c0 = (int64_t)p->n * piece / j->n_piece, c1 = (int64_t)p->n * (piece + 1) / j->n_piece;
    float m[ROWS_MAX + 1];
    const float *row[DEV_STREAMS_MAX];
    (void)worker;
    if (p->fn) {
        add_parts(j, t, m);
        weigh(c, p, m);
    }
    for (int k = 0; k < N; k++) {
        row[k] = p->x + ((int64_t)t * N + k) * p->n + c0;
        if (!p->fn) m[k] = 1.0f / (float)N;
    }
    c->k.wsum_f32(p->y + (int64_t)t * p->n + c0, row, m, N, NULL, (int)(c1 - c0));
    if (piece == 0 && !p->head)
        memcpy(p->mix + (int64_t)t * N * (1 + N), m + N, (size_t)(N * (1 + N)) * sizeof *m);
}

void dev_cpu_streams(dev *d, const struct dev_step *b, const struct dev_streams *p)
{
    struct cpu *c = dev_cpu_of(d);
    int N = p->n_stream, cols = BASE_MIN(p->n, DEV_STREAMS_COLS);
    struct streams_job j = {.p = p,
                            .n_tok = b->n_tok,
                            .n_part = (p->n + DEV_STREAMS_COLS - 1) / DEV_STREAMS_COLS,
                            .n_row = p->fn ? dev_streams_rows(N, p->head) : 0,
                            .n_piece = 1};
    if (!b->n_tok) return;
    if (d->timing) d->cost.bytes += p->y ? 4.0 * j.n_row * N * p->n : 0;
    if (p->r || (p->y && p->fn))
        dev_cpu_for_rows(c, j.n_part * j.n_tok, N * cols * (NS_MIX + NS_DOT * j.n_row), mix_unit,
                         &j);
    if (!p->y) return;
    if (j.n_tok < c->n_worker)
        j.n_piece = BASE_MAX(1, BASE_MIN(c->n_worker / j.n_tok, p->n / PIECE));
    dev_cpu_for_rows(c, j.n_tok * j.n_piece, 1000.0 + N * NS_MIX * p->n / j.n_piece, give_unit, &j);
}
