/* SPDX-License-Identifier: Apache-2.0 */
/* What the emitters share: they list a model's operators once, when it opens; a step runs the list.
 * The output of a sub-layer is left in r and added by the next norm. A layer's attention has the
 * residual stream on its side; what is computed elsewhere has its input moved there, and its output
 * back. The stream ends on the side that model_side says of attention. Of several ranks each has
 * the stream of its share of the tokens, where a step is shared (dev_is_shared). */
#ifndef MODEL_EMIT_H
#define MODEL_EMIT_H

#include "model/model_internal.h"

/* What the router chose, on a side. */
struct chosen {
    int32_t *id;
    float *weight;
};
/* Experts that come late. */
struct late {
    const struct side *side; /* where their sum is, or will be; NULL = there are none */
    const struct layer *l;   /* whose they are, where no operator has been listed yet; else NULL */
    int layer;
    struct chosen chosen;
};
/* The output of a sub-layer, which the next norm adds: all columns, or with part those of this
 * rank. */
struct left {
    const float *r; /* NULL: there is none */
    const int32_t *part;
};
/* A list under way. tap.fn not NULL: inputs of matrices are shown to it. */
struct emit {
    struct model *m;
    struct dev_op *op;
    int n, n_max;
    int layer; /* of the operators that come next; -1 = of none */
    struct dev_tap tap;
    const struct side *side; /* whose operators come next */
    /* sides, by bits, which the feed-forward block's input has come to, and where it is prepared */
    unsigned moved, prepared;
    struct late late; /* of the layer before */
    const struct side *picked[MODEL_DEV_MAX]; /* that have what an indexer chose last: its own is
                                                 the first */
    int n_picked;
    bool rows_left;   /* of several ranks: the last sub-layer's output is rows, not columns */
    /* of several streams: what is in r is not the output of a sub-layer but what all of them begin
     * with, or what all get */
    enum { NOT_BEGIN, BEGIN_ALL, BEGIN_MORE } begins;
    float *x; /* of several streams: in place of x of the side; else NULL */
    bool one; /* the pass under way has one stream, whatever others have */
    bool entries;     /* no more than what is stored in the cache */
    bool streams, is_last; /* experts are streamed; no layer follows the one under way */
    int n_sent, n_streamed; /* slabs: that were sent for, and computed with */
    int n_body;             /* operators of the main pass before its head */
    bool odd;         /* the layer under way has the other buffers of what the router chose */
};
void model_emit_begin(struct emit *e, struct model *m);

struct dev_op *model_op(struct emit *e, enum dev_op_kind kind);
#define EMIT(e, name, ...)                                                                         \
    ((void)(model_op(e, DEV_OP_##name)->u.name = (struct dev_##name){__VA_ARGS__}))

/* Rows on a side. */
struct at {
    const struct side *side;
    void *p;
};
/* Rows of n values from one side to another; wanted: those of them that are, packed. Nothing where
 * it is the same side. */
void model_move_emit(struct emit *e, struct at from, struct at to, int n, bool wanted);
/* The weights w of a part, if that is on the side whose operators come next; else NULL. */
const dev_mat *model_if_here(const struct emit *e, enum model_part part, const dev_mat *w);

/* Where there are several ranks: cols, in which this one leaves its columns; else y. */
float *model_cols_of(const struct emit *e, float *y, float *cols);
/* Then the columns x of all ranks are put side by side, in y: of the wanted rows, for the home rank
 * alone; else of all, or with own of a shared step this rank's share. */
struct model_joining {
    enum model_cut cut;
    const float *x;
    float *y;
    bool home, own;
};
void model_join_emit(struct emit *e, const struct model_joining *j);
/* The ranks that share a block, NULL where there is one. */
const struct dev_ranks *model_ranks_of(const struct emit *e);
/* Where ranks or their parts are on devices, these have no shares of the tokens, and no operator
 * takes columns: they are made rows, y, after each; else nothing is listed. */
bool model_is_plain(const struct emit *e);
void model_whole_emit(struct emit *e, enum model_cut cut, const float *x, float *y);
/* The ranks that may share tokens: NULL where they do not. */
const struct dev_ranks *model_shares_of(const struct emit *e);
/* What the last sub-layer has left on the side whose operators come next. */
struct left model_left(const struct emit *e);
/* The tokens' rows, of the rank that has each in its x. */
void model_pick_emit(struct emit *e, const float *x, float *y);

/* Show x [T, n] where there is a tap. */
void model_tap_emit(struct emit *e, enum model_tap_in in, const float *x, int n, int64_t ldx);
/* Where a norm leaves rows that a tap is shown; NULL = there is none. */
float *model_tap_row(const struct emit *e);

/* streams.c: has the pass under way several? Where the side has what the residual stream begins
 * with, an embedding. */
bool model_has_streams(const struct emit *e);
float *model_begin_row(const struct emit *e, const struct side *s);
/* The rows that the next block norms: x; of several streams its input, that is read by *in, when
 * what was left has gone into them. */
float *model_streams_emit(struct emit *e, const struct stream_in *in, struct left *left);
/* What was left goes into them. */
void model_streams_end(struct emit *e, const struct left *left);

/* Mixers: from the input a_attn to y. */
void model_gqa_emit(struct emit *e, const struct layer *l);
void model_mla_emit(struct emit *e, const struct layer *l);
void model_scan_emit(struct emit *e, const struct layer *l);
void model_delta_emit(struct emit *e, const struct layer *l);
void model_ckv_emit(struct emit *e, const struct layer *l);
/* index.c: do tokens of a layer see some positions only, in sequences as long as they can be? Keys,
 * and queries, of its indexer are normed and rotated; what tokens see is in pick of the side. */
bool model_index_is_sparse(const struct model *m, int il);
void model_index_key(struct emit *e, const struct layer *l);
/* Of pools: what keys and gates make is stored. */
void model_index_pool(struct emit *e, const struct layer *l);
void model_index_pick(struct emit *e, const struct layer *l, struct model_kv_place at);
/* List those that come late, as far as they are not. */
void model_late_emit(struct emit *e);
/* Their sum comes to that side; NULL: there is none. */
const float *model_late_take(struct emit *e, const struct side *to);
/* Hot experts of the layer under way (hot.c): on attention's side, which has the input and what was
 * chosen, the operator that computes their terms. Where there are any, p becomes that of the others
 * (true); their terms come to the experts' side; and the sum of both stands for p's. */
void model_hot_emit(struct emit *e, struct chosen chosen);
bool model_hot_rest(const struct emit *e, struct dev_moe *p);
void model_hot_bring(struct emit *e);
/* Experts of the layer under way that are streamed: the first slab is sent for, unless it was; what
 * they give to home's terms, hot ones too; the next layer's first slab is sent for. */
void model_stream_begin(struct emit *e);
void model_stream_emit(struct emit *e, const struct layer *l, struct chosen chosen);
void model_stream_end(struct emit *e);
int model_stream_ops(const struct model *m); /* of a layer, at most, beside the others */
struct dev_op *model_hot_sum(struct emit *e, const struct side *s, const struct dev_moe *p);
/* The operator of the experts of layer l on a side, whose input is there. */
struct dev_moe model_moe_of(const struct emit *e, const struct side *s, const struct layer *l,
                            struct chosen chosen);
/* Feed-forward blocks: from a_ffn, and rows where some of the block is elsewhere, to r. */
void model_dense_emit(struct emit *e, const struct layer *l);
/* Of these one gated block, dense or shared, from a_ffn of the side to y. */
void model_gated_emit(struct emit *e, const struct layer *l, float *y, enum model_tap_in in);
void model_moe_emit(struct emit *e, const struct layer *l);
/* sandwich.c: what is in r is normed. The feed-forward blocks of such a layer, from x to x, when
 * what attention gave is in r; then nothing is left there. */
void model_post_norm(struct emit *e, float *x, const float *w);
void model_sandwich_emit(struct emit *e, const struct layer *l);
/* Rotation of n_head heads. */
void model_rope_emit(struct emit *e, float *x, int n_head, int64_t ldx, int64_t ldx_h);

/* The tokens' rows of the table w, in x of the side whose operators come next. */
void model_embed_emit(struct emit *e, const dev_mat *w);
/* Layer number il (MTP layers follow the others); first: nothing is left in r. */
void model_layer_emit(struct emit *e, const struct layer *l, int il, bool first);
/* Final norm (+ pending r), hidden states, and logits of the rows that are wanted, of the head's
 * ids: those of cut. */
struct heads {
    const struct stream_in *streams;
    const float *norm;
    const dev_mat *mat;
    enum model_cut cut;
};
void model_head_emit(struct emit *e, const struct heads *h);
/* The embedding, or what the stage before gives, and n layers. */
void model_begin_emit(struct emit *e, int n);
/* A pass that ends in the last layer, where its keys and values are stored: op[n_body] is the first
 * of that layer as a whole, and of the head. */
void model_few_emit(struct emit *e);
/* An MTP pass; i from 0. */
void model_mtp_emit(struct emit *e, int i);
/* All of a pass; and operators of one at most. */
void model_pass_emit(struct emit *e, int pass);
int model_op_max(const struct model *m);

#endif
