/* SPDX-License-Identifier: Apache-2.0 */
/* What the emitters share: they list a model's operators once, when it opens; a step runs the list.
 * The output of a sub-layer is left in m->r and added by the next norm. */
#ifndef MODEL_EMIT_H
#define MODEL_EMIT_H

#include "model/model_internal.h"

/* A list under way. tap.fn not NULL: inputs of matrices are shown to it. */
struct emit {
    struct model *m;
    struct dev_op *op;
    int n, n_max;
    int layer; /* of the operators that come next; -1 = of none */
    struct dev_tap tap;
};

struct dev_op *model_op(struct emit *e, enum dev_op_kind kind);
#define EMIT(e, name, ...)                                                                         \
    ((void)(model_op(e, DEV_OP_##name)->u.name = (struct dev_##name){__VA_ARGS__}))

/* Show x [T, n] where there is a tap. */
void model_tap_emit(struct emit *e, enum model_tap_in in, const float *x, int n, int64_t ldx);
/* Where a norm leaves rows that a tap is shown; NULL = there is none. */
float *model_tap_row(const struct emit *e);

/* Mixers: from the input a_attn to m->y, and how wide that is. */
void model_gqa_emit(struct emit *e, const struct layer *l);
void model_mla_emit(struct emit *e, const struct layer *l);
/* Feed-forward blocks: from a_ffn to m->r. */
void model_dense_emit(struct emit *e, const struct layer *l);
void model_moe_emit(struct emit *e, const struct layer *l);
/* Rotation of n_head heads. */
void model_rope_emit(struct emit *e, float *x, int n_head, int64_t ldx, int64_t ldx_h);

/* Layer number il (MTP layers follow the others); first: nothing is left in m->r. */
void model_layer_emit(struct emit *e, const struct layer *l, int il, bool first);
/* Final norm (+ pending r), hidden states, and logits of the rows that are wanted. */
void model_head_emit(struct emit *e, const float *norm, const dev_mat *head);
/* An MTP pass; i from 0. */
void model_mtp_emit(struct emit *e, int i);
/* All of a pass; and operators of one at most. */
void model_pass_emit(struct emit *e, int pass);
int model_op_max(const struct model *m);

#endif
