/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors with a number for each head that attention obeys. What names tensors lists them among
 * its roles, what computes attention obeys them; between them they are passed on as a whole. */
#ifndef TENSOR_PER_HEAD_H
#define TENSOR_PER_HEAD_H

/* X(ROLE, GGUF name within the block, HF name within the layer, word of `inspect --program`): names
 * as in arch/names.h. */
#define PER_HEAD_LIST(X)                                                                           \
    /* a score without a value, which a head's tokens see beside their keys */                     \
    X(SINKS, "attn_sinks", "self_attn.sinks.", "sinks")

enum per_head_kind {
#define X(role, gguf, hf, word) PER_HEAD_##role,
    PER_HEAD_LIST(X)
#undef X
        N_PER_HEAD
};
/* [H] each, or NULL: none. */
struct per_head {
    const float *of[N_PER_HEAD];
};

#endif
