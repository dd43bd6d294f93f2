/* SPDX-License-Identifier: Apache-2.0 */
/* The gated unit that a pair of matrices is followed by. What reads a configuration fills it, what
 * computes obeys it; between them it is passed on as a whole. */
#ifndef TENSOR_GLU_H
#define TENSOR_GLU_H

#include <stdbool.h>

/* Of a gate and an up: g = min(gate, limit), u = clamp(up, -limit, limit),
 * h = g * sigmoid(alpha * g) * (u + plus). All zero: silu(gate) * up. NaN stays. Three words, in
 * this order, in the kernels of devices too (dev/gpu/kernel/glu.inc). */
struct glu {
    float limit; /* 0 = none */
    float alpha; /* 0 = 1 */
    float plus;
};
static inline bool glu_is_silu(const struct glu *g)
{
    return !(g->limit > 0) && !(g->alpha > 0) && g->plus == 0;
}
static inline bool glu_same(const struct glu *a, const struct glu *b)
{
    return a->limit == b->limit && a->alpha == b->alpha && a->plus == b->plus;
}

#endif
