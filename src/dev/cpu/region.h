/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of fused regions share: which operators of a program are run together (match.c),
 * and how (region.c). Room-internal. */
#ifndef DEV_CPU_REGION_H
#define DEV_CPU_REGION_H

#include "dev/cpu/cpu.h"

/* The operators of a layer with keys and values per head. */
struct cpu_layer_ops {
    const struct dev_norm *attn_norm, *q_norm, *k_norm; /* q_norm, k_norm: or NULL */
    const struct dev_matmul *qkv, *out;
    const struct dev_rope *rope; /* of the queries; that of the keys is alike */
    const struct dev_attn *attn;
    const struct dev_norm *ffn_norm; /* this and the next one: NULL = the region ends before */
    const struct dev_ffn *ffn;
    int n_op;
    int n_head_kv, d_head;
};

/* Does such a layer begin at op[at]? It is one whatever the step's tokens: every buffer is what the
 * operator before it wrote, without gaps, and shapes fit together. False: *l is undefined. */
bool dev_cpu_match_layer(const struct dev_op *op, int n_op, int at, struct cpu_layer_ops *l);
/* Can next, which begins where l ends, be in one region with it? */
bool dev_cpu_match_next(const struct cpu_layer_ops *l, const struct cpu_layer_ops *next);

#endif
