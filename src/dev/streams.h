/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a residual stream that is several (hyper-connections, arXiv 2512.24880): as those
 * of dev/dev.h. */
#ifndef DEV_STREAMS_H
#define DEV_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#define DEV_STREAMS_MAX 8   /* streams */
#define DEV_STREAMS_COLS 64 /* of all streams, whose sums are one part of a token's */

/* Between two blocks, of every token: its N streams X [N, n] take the output r of the block before,
 * and give the input y of the next one.
 *
 * First X_k = post_k r + sum_j M_jk X_j, j rising, with post [N] and M [N, N] of mix, where the
 * operator before this one left them; with begin X_k = r, with begin and more X_k += r; without r X
 * stays as it is.
 *
 * Then, with y: m = (fn X) / sqrt(mean of all X^2 + norm_eps), of X as one row of N n values;
 * pre = sigmoid(scale[0] m[0 .. N) + base) + eps and y = sum_k pre_k X_k, k rising. For the next
 * operator post = 2 sigmoid(scale[1] m[N .. 2N) + base), and of m[2N ..] as an N x N matrix, times
 * scale[2], plus base, first M = softmax of each row + eps; then each column is divided by its sum
 * + eps, and rounds - 1 times each row is, and each column.
 *
 * head: there is no next block: fn, base and scale have the first N rows, N and 1 values, mix stays
 * as it is. Without fn y is the mean of X. */
struct dev_streams {
    float *x; /* [T, N, n] */
    int n_stream, n;
    const float *r; /* [T, n] or NULL */
    bool begin, more, head;
    float *mix;                     /* [T, N + N N] */
    const float *fn, *base, *scale; /* [(2 + N) N, N n] packed, [(2 + N) N], [3] */
    float eps, norm_eps;
    int rounds;
    float *y;    /* [T, n], or NULL: nothing but X is wanted */
    float *part; /* [T, dev_streams_parts]: room for sums */
};
static inline int dev_streams_rows(int n_stream, bool head)
{
    return head ? n_stream : (2 + n_stream) * n_stream;
}
/* fn as it is read: of every DEV_STREAMS_COLS columns of all streams what all rows have, one row
 * after the other, for the rows of a plain [n_row, n_stream n] lie so far apart that caches have no
 * place for all. */
static inline void dev_streams_pack(const float *fn, int n_row, int n_stream, int n, float *out)
{
    for (int c0 = 0; c0 < n; c0 += DEV_STREAMS_COLS)
        for (int64_t row = 0; row < (int64_t)n_row * n_stream; row++)
            for (int c = c0; c < n && c < c0 + DEV_STREAMS_COLS; c++)
                *out++ = fn[row * n + c];
}
/* Of a token, sums over parts of its columns. */
static inline int64_t dev_streams_parts(int n_stream, int n)
{
    return (n + DEV_STREAMS_COLS - 1) / DEV_STREAMS_COLS *
           (dev_streams_rows(n_stream, false) + 1ll);
}

#endif
