/* SPDX-License-Identifier: Apache-2.0 */
/* The gated unit that a pair of matrices is followed by. What reads a configuration fills it, what
 * computes obeys it; between them it is passed on as a whole. */
#ifndef TENSOR_GLU_H
#define TENSOR_GLU_H

#include <stdbool.h>

/* Of a gate and an up: g = min(gate, limit), u = clamp(up, -limit, limit),
 * h = g * sigmoid(alpha * (g + cubic * g^3)) * (u + plus); after: h = min(gate * sigmoid(alpha *
 * gate), limit) * (u + plus). All zero: silu(gate) * up. NaN stays. The first four words, in this
 * order, are in the kernels of devices too (dev/gpu/kernel/glu.inc), which know no cubic term. */
struct glu {
    float limit; /* 0 = none */
    float alpha; /* 0 = 1 */
    float plus;
    float after; /* 0 or 1 */
    float cubic; /* 0 = none; not with after */
};
/* gelu(gate) * up by way of tanh: (1 + tanh(z)) / 2 is sigmoid(2 z), and z is
 * sqrt(2 / pi) (g + 0.044715 g^3). */
#define GLU_GELU_TANH ((struct glu){.alpha = 1.5957691216057308f, .cubic = 0.044715f})
/* X(member, key of `inspect --program`, REAL or BOOL there, its value where the member is 0, what
 * it says where it is not) */
#define GLU_LIST(X)                                                                                \
    X(limit, "limit", REAL, 0, ", values to +-%g")                                                 \
    X(alpha, "alpha", REAL, 1, ", sigmoid of %g g")                                                \
    X(plus, "plus1", BOOL, 0, ", up + %g")                                                         \
    X(after, "limit_after", BOOL, 0, " after silu (%g)")                                          \
    X(cubic, "cubic", REAL, 0, ", with %g g^3 (gelu)")

static inline bool glu_same(const struct glu *a, const struct glu *b)
{
    bool same = true;
#define X(member, ...) same = same && a->member == b->member;
    GLU_LIST(X)
#undef X
    return same;
}
static inline bool glu_is_silu(const struct glu *g)
{
    static const struct glu silu;
    return glu_same(g, &silu);
}
/* Is a factor of up one of h? */
static inline bool glu_is_even(const struct glu *g)
{
    return g->limit == 0 && g->plus == 0;
}

#endif
