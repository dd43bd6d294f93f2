/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of attention by a state, and of gates: as those of dev/dev.h. */
#ifndef DEV_DELTA_H
#define DEV_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/delta_state.h"

typedef struct dev_kv dev_kv;

/* Rows of the heads of tokens: those of token t begin at p + t * ld, a key head's at key more, that
 * of its value head i at i * val more. */
struct dev_heads {
    const float *p;
    int64_t ld, key, val;
};
/* Attention by a state (gated DeltaNet, arXiv 2412.06464): q, k [T, n_k, d_k], v, z [T, n_v, d_v],
 * a, b [T, n_v]; a key head has n_v / n_k value heads. Of q, k and v each channel is convolved with
 * the n_conv tokens up to its own, and SiLU taken of it; q and k are divided by their norms, q by
 * sqrt(d_k) too. Then, of a value head, whose state s is [d_k, d_v]: s = e^g s with g = decay *
 * softplus(a + dt); s += k (sigmoid(b) (v - s^T k))^T; y = rmsnorm(s^T q) * norm * silu(z). With
 * each (Kimi Delta Attention, arXiv 2510.26692) a is [T, n_v, d_k] and dt [n_v, d_k]: each row of s
 * has a g of its own. With a bound, g = bound * sigmoid(-decay * (a + dt)). The state lies in block
 * seat of a group of states, with the inputs of the n_conv - 1 tokens before it, and those of
 * drafts after it (dev_step.n_draft), of which the next step takes as many as its position says; a
 * sequence whose first token is at position 0 begins with zeros. */
struct dev_delta {
    dev_kv *kv;
    int group, layer;
    int n_k, n_v, d_k, d_v, n_conv;
    bool tiled; /* value head i of key head j is number i * n_k + j, else j * (n_v / n_k) + i: in
                   conv, decay, dt and y */
    bool each, sigmoid; /* sigmoid: y is multiplied by sigmoid(z) in place of silu(z) */
    struct dev_heads q, k, v, z, a, b;
    const float *conv;              /* [n_conv, 2 n_k d_k + n_v d_v]: q, k, v */
    const float *decay, *dt, *norm; /* [n_v]; [n_v], or [n_v, d_k]; [d_v] */
    float eps;                      /* of the norm */
    float bound;                    /* what g is above, below 0; 0 = none */
    float *y;                       /* [T, n_v, d_v] */
};
#define DEV_DELTA_WIDTH 256 /* of a head, at most */
#define DEV_DELTA_CONV 8    /* n_conv, at most */
#define DEV_STATE_BACK TENSOR_STATE_BACK
/* f32 values of such a state. */
static inline int64_t dev_delta_state(int n_k, int n_v, int d_k, int d_v, int n_conv, bool each)
{
    return tensor_delta_state(n_k, n_v, d_k, d_v, n_conv, each);
}
/* The same of n values of a dev_scan. */
static inline int64_t dev_scan_state(int n)
{
    return (1ll + DEV_STATE_BACK) * n + 1;
}
/* x *= sigmoid(g) over n_head heads of n values each: x [T, n_head, n], g at t * ldg + h * ldg_h;
 * with one, g has one value for all of a head's. */
struct dev_gate {
    float *x;
    const float *g;
    int n, n_head;
    int64_t ldg, ldg_h;
    bool one;
};

#endif
