/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: tensors by what they are, the plan of the target, sources of
 * rows. */
#ifndef QUANT_INTERNAL_H
#define QUANT_INTERNAL_H

#include "arch/arch.h"
#include "base/str.h"
#include "io/write.h"
#include "par/par.h"
#include "quant/quant.h"
#include "quant/round.h"
#include "text/regex.h"

#define QUANT_MAX_NAME 256

/* ---- name.c: what a tensor is, by its name ---- */
/* The name of that tensor in files named by that naming; "" where they have none. */
void quant_name_in(const struct arch_naming *by, const struct arch_name *id, char *buf, int n);
enum quant_class quant_class_of(const struct arch_name *id, const char *name, int n_dim);
/* The statistics that belong to the columns of a matrix: false = none do. */
bool quant_input_of(const struct arch_cfg *c, const struct arch_name *id, enum quant_input *in);
/* Names of weights, not of their scales: the i-th tensor of m as a weight's name in buf (false: it
 * is a scale or the like). */
bool quant_weight_name(const io_model *m, int i, char *buf, int n);

/* ---- folded scales (awq.c) ---- */
/* Per-channel scales of one input: its matrices' columns are multiplied, what makes the input is
 * divided. */
struct quant_fold {
    float *s; /* [n] */
    int n;
};
struct quant_folds;
/* NULL = not folded. */
const struct quant_fold *quant_fold_get(const struct quant_folds *f, enum quant_input in, int layer,
                                        int expert);

/* ---- plan.c ---- */
enum quant_source {
    QUANT_RAW,   /* bytes of a tensor as they are, or its whole numbers in 4 bytes or in 8 */
    QUANT_ROWS,  /* rows of one weight, or of n_src weights one after another */
    QUANT_K_B,   /* GGUF's attn_k_b out of kv_b */
    QUANT_V_B,   /* GGUF's attn_v_b out of kv_b */
    QUANT_KV_B,  /* kv_b out of both */
    QUANT_FREQS, /* GGUF's rope_freqs out of the configuration */
    QUANT_FUSED, /* rows of n_part items one after another (fuse.c) */
    QUANT_BIAS   /* the bias that a matrix has among its scales (io_weight_bias) */
};

/* How rows and columns move in gated delta layers (delta.c). */
enum quant_move {
    QUANT_STAY,
    QUANT_HEADS,    /* rows after the first `lead` are value heads of d_move: in another order */
    QUANT_COLS,     /* columns are: in another order */
    QUANT_TAKE_QKV, /* rows of q, k and v out of those that go by key head */
    QUANT_TAKE_Z,   /* rows of z out of the same */
    QUANT_JOIN      /* both back into one matrix */
};

struct quant_item {
    char name[QUANT_MAX_NAME]; /* in the target, with ".weight" */
    char src[QUANT_MAX_NAME];  /* in the source: the weight, or the first of a stack */
    struct arch_name id;       /* of the target's tensor */
    enum quant_class cls;
    enum quant_source from;
    enum quant_type type;    /* QUANT_AS_IS: stored plainly as store */
    enum tensor_dtype store; /* of the target, where type is a GGUF type or AS_IS */
    const char *from_text;   /* type in the source */
    int n_dim;
    int64_t shape[TENSOR_MAX_DIM];
    int64_t rows, cols;
    int64_t bytes_from;
    int n_src;   /* QUANT_ROWS: weights one after another (experts of a stack) */
    int sub;     /* QUANT_ROWS: this matrix of a stack; -1 = all */
    int n_sub;   /* how many the stack has */
    const struct quant_item *part; /* QUANT_FUSED: [n_part] */
    int n_part;
    int perm;    /* heads whose rows change order for RoPE: +n to GGUF, -n from GGUF, 0 = none */
    int v_heads; /* query heads per value head, for folding */
    enum quant_move move;
    int64_t lead;
    int d_move;
    int decay;  /* 1: becomes -exp(x), -1: log(-x) */
    float add;  /* to every value */
    bool less;  /* the target keeps it less 1 */
    bool fallback;
    bool shape_sidecar; /* INT4: weight_shape was declared already */
};

struct quant_plan {
    const io_model *src;
    const struct quant_opts *o;
    enum io_kind to;
    struct arena arena;
    struct arch_cfg cfg;
    bool has_cfg;
    struct arch_naming naming[2]; /* by enum io_kind: of the source, and of the target */
    const struct arch_cfg *into;  /* NULL, or the target's: one that is there already, of the same
                                     architecture, may name things otherwise */
    struct quant_item *item;
    int n_item, cap_item;
    int64_t done_bytes;        /* of the source */
    struct quant_folds *folds; /* NULL = none */
    struct quant_report *rep;
    text_regex *keep;
    text_match *match;
    int group; /* of awq */
    bool left_mtp; /* MTP layers were left out */
    bool ct;   /* a folder in compressed-tensors' schemes */
};
sl_status quant_plan_make(struct quant_plan *p, sl_err *err) BASE_MUST_USE;
/* Types of the items: which the target takes, what a width can not hold. */
sl_status quant_plan_types(struct quant_plan *p, sl_err *err) BASE_MUST_USE;
/* fuse.c: experts of folders that have all of a layer's in one tensor; rows of such an item. */
sl_status quant_plan_fuse(struct quant_plan *p, sl_err *err) BASE_MUST_USE;
struct quant_rows;
sl_status quant_fused_open(struct quant_rows *r, sl_err *err) BASE_MUST_USE;
void quant_fused_close(struct quant_rows *r);
/* How a tensor that is kept is stored in a target of that kind. */
enum tensor_dtype quant_store_of(enum io_kind to, enum io_kind from, const struct weight *w,
                                 bool vector);

/* ---- source.c: f32 rows of an item ---- */
/* How its values are stored, for the table. Static. */
const char *quant_scheme_text(const struct weight *w);
/* io_weight, and weight_check of what it gives. */
sl_status quant_weight(const io_model *m, const char *name, struct weight *w,
                       sl_err *err) BASE_MUST_USE;
struct quant_rows {
    const struct quant_plan *p;
    const struct quant_item *it;
    struct weight *w; /* [n] */
    int n;
    float *dense; /* QUANT_K_B and the like: all rows */
    /* per part of it->rows / n_part rows */
    struct quant_rows *sub; /* QUANT_FUSED: [n_fused] of its parts */
    int n_fused;
    int n_part;
    const struct quant_fold **col; /* [n_part] columns are multiplied; NULL entries */
    const struct quant_fold **row; /* [n_part] rows are divided */
    float **weight;                /* [n_part] importance of columns; NULL entries */
};
sl_status quant_rows_open(const struct quant_plan *p, const struct quant_item *it,
                          struct quant_rows *out, sl_err *err) BASE_MUST_USE;
void quant_rows_close(struct quant_rows *r);
/* Source row of target row i of n: within each of perm heads, GGUF has the two halves
 * interleaved. */
int64_t quant_permuted(int64_t i, int64_t n, int perm);
/* Row i of the target's matrix, folded scales applied. Threads: any. */
void quant_rows_get(const struct quant_rows *r, int64_t i, float *x);
/* Importance of its columns, or NULL. */
const float *quant_rows_weight(const struct quant_rows *r, int64_t i);
/* Rows [a, b) are not needed any more. */
void quant_rows_drop(const struct quant_rows *r, int64_t a, int64_t b);

/* ---- delta.c: models with gated delta layers, from one kind of file to the other ---- */
/* Has it four dimensions of which at most two are more than 1: decays, or a convolution, as Kimi's
 * folders and llama.cpp's files have them? */
bool quant_delta_is_flat(const struct tensor *t);
/* UNSUPPORTED: projections in a form that the architecture's files of that kind do not have. */
sl_status quant_delta_check(const struct quant_plan *p, const char *name,
                            const struct arch_name *id, sl_err *err) BASE_MUST_USE;
/* Rows of DELTA_QKV, DELTA_Z or DELTA_QKVZ. */
int64_t quant_delta_rows(const struct arch_cfg *c, int role);
/* How an item that was described differs. FORMAT: its size. */
sl_status quant_delta_item(const struct quant_plan *p, struct quant_item *it,
                           sl_err *err) BASE_MUST_USE;
/* Row i of the target is which row of weight *w. */
int64_t quant_delta_row(const struct quant_rows *r, int64_t i, int *w);
/* A row of the source becomes one of the target. */
void quant_delta_values(const struct quant_rows *r, float *x);
/* FORMAT: a decay that has no logarithm. */
sl_status quant_delta_check_decay(const struct quant_rows *r, sl_err *err) BASE_MUST_USE;

/* ---- encode.c: an item into the file ---- */
/* Declare its tensors (the shapes of all are known before anything is computed). */
void quant_declare(const struct quant_plan *p, const struct quant_item *it, io_out *out);
/* Tensors of an item that stand in front of all others (weight_shape); and their bytes. */
void quant_declare_first(const struct quant_plan *p, struct quant_item *it, io_out *out);
sl_status quant_write_first(const struct quant_plan *p, const struct quant_item *it, io_out *out,
                            sl_err *err) BASE_MUST_USE;
struct quant_error {
    double err2, ref2;
    int64_t bytes;
};
sl_status quant_encode(const struct quant_plan *p, const struct quant_item *it, par_team *team,
                       io_out *out, struct quant_error *e, sl_err *err) BASE_MUST_USE;
/* Bytes that it takes in the target. */
uint64_t quant_item_bytes(const struct quant_plan *p, const struct quant_item *it);

/* ---- awq.c ---- */
sl_status quant_awq(struct quant_plan *p, par_team *team, sl_err *err) BASE_MUST_USE;

/* ---- head_gguf.c, head_hf.c, tok_gguf.c, tok_conv.c: what is in a model besides its
 * tensors ---- */
sl_status quant_head_gguf(const struct quant_plan *p, io_out *out, sl_err *err) BASE_MUST_USE;
/* config.json as text. */
sl_status quant_head_hf(const struct quant_plan *p, struct str *out, sl_err *err) BASE_MUST_USE;
sl_status quant_tok_to_gguf(const struct quant_plan *p, io_out *out, sl_err *err) BASE_MUST_USE;
sl_status quant_tok_to_hf(const struct quant_plan *p, const char *dir, sl_err *err) BASE_MUST_USE;
/* tok_gguf.c: sampling values of generation_config.json as general.sampling.* */
void quant_put_sampling(const struct quant_plan *p, io_out *out);
/* probe.c: one more line of what is not carried; beyond QUANT_MAX_NOTE the last one counts them. */
void quant_note(struct quant_report *rep, const char *fmt, ...) BASE_PRINTF(2, 3);
/* Lines "head a, b, c tail" of names, as many as it takes: the last name is NULL. */
struct quant_names {
    struct quant_report *rep;
    const char *head, *tail;
    char list[150];
};
void quant_note_name(struct quant_names *x, const char *name);

#endif
