/* SPDX-License-Identifier: Apache-2.0 */
/* How large a state of gated delta layers is: what holds it and what plans for it count alike. */
#ifndef TENSOR_DELTA_STATE_H
#define TENSOR_DELTA_STATE_H

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_STATE_BACK 7 /* drafts of a sequence in a step, at most */

/* f32 values of a state of a layer: of all heads; of inputs before it; of drafts, each with a and
 * b; and at which position each value head's state is, each key head's inputs are (i32). */
static inline int64_t tensor_delta_state(int n_k, int n_v, int d_k, int d_v, int n_conv, bool each)
{
    int64_t ld = (d_v + 15) / 16 * 16, channels = 2ll * n_k * d_k + (int64_t)n_v * d_v;
    int64_t ab = n_v * (1ll + (each ? d_k : 1));
    return (int64_t)n_v * d_k * ld + (n_conv - 1) * channels + TENSOR_STATE_BACK * (channels + ab) +
           n_v + n_k;
}

#endif
