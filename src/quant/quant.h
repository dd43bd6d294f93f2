/* SPDX-License-Identifier: Apache-2.0 */
/* Converting models: other weight types, and GGUF <-> Hugging Face folders.
 *
 * What this room does: decide the type of every tensor, rename and re-shape tensors between the two
 * kinds of files, round weights well (scales that minimise the squared error, weighted by what a
 * calibration text showed), and write the result tensor by tensor. What it refuses: a type that the
 * target can not hold, and an architecture whose names it does not know when the kind changes. */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "io/io.h"

/* X(NAME, "text", GGUF storage type or TENSOR_N_DTYPE, bits of where it can go: 1 = .gguf, 2 =
 * folder) */
#define QUANT_TYPE_LIST(X)                                                                         \
    X(F32, "f32", TENSOR_F32, 3)                                                                   \
    X(F16, "f16", TENSOR_F16, 3)                                                                   \
    X(BF16, "bf16", TENSOR_BF16, 3)                                                                \
    X(Q8_0, "q8_0", TENSOR_Q8_0, 1)                                                                \
    X(Q4_0, "q4_0", TENSOR_Q4_0, 1)                                                                \
    X(Q4_1, "q4_1", TENSOR_Q4_1, 1)                                                                \
    X(Q5_0, "q5_0", TENSOR_Q5_0, 1)                                                                \
    X(Q5_1, "q5_1", TENSOR_Q5_1, 1)                                                                \
    X(Q4_K, "q4_k", TENSOR_Q4_K, 1)                                                                \
    X(Q5_K, "q5_k", TENSOR_Q5_K, 1)                                                                \
    X(Q6_K, "q6_k", TENSOR_Q6_K, 1)                                                                \
    X(INT8, "int8", TENSOR_N_DTYPE, 2)                                                             \
    X(INT4, "int4", TENSOR_N_DTYPE, 2)                                                             \
    X(AWQ, "awq", TENSOR_N_DTYPE, 2)                                                               \
    X(FP8, "fp8", TENSOR_N_DTYPE, 2)                                                               \
    X(NVFP4, "nvfp4", TENSOR_NVFP4, 3)                                                             \
    X(MXFP4, "mxfp4", TENSOR_MXFP4, 3)

enum quant_type {
#define X(name, text, gguf, where) QUANT_##name,
    QUANT_TYPE_LIST(X)
#undef X
        QUANT_N_TYPE,
    QUANT_AS_IS =
        QUANT_N_TYPE /* the storage type of the source, or the nearest that the target has */
};
/* "q4_0", ...; "" for QUANT_AS_IS. */
const char *quant_type_text(enum quant_type t);
bool quant_type_from_text(const char *text, enum quant_type *out);
/* The types that a target of that kind takes, separated by blanks. */
void quant_types_of(enum io_kind kind, char *buf, size_t n);

/* What a tensor is for. X(NAME, "text") */
#define QUANT_CLASS_LIST(X)                                                                        \
    X(ATTN, "attention")                                                                           \
    X(FFN, "feed-forward")                                                                         \
    X(EXPERTS, "experts")                                                                          \
    X(EMBED, "embedding")                                                                          \
    X(HEAD, "head")                                                                                \
    X(OTHER, "kept")
enum quant_class {
#define X(name, text) QUANT_CLASS_##name,
    QUANT_CLASS_LIST(X)
#undef X
        QUANT_N_CLASS
};
const char *quant_class_text(enum quant_class c);

/* ---- calibration: statistics of the inputs of matrices ---- */

/* X(NAME): an input that one or several matrices of a layer share */
#define QUANT_INPUT_LIST(X)                                                                        \
    X(ATTN) X(Q_B) X(KV_B) X(O) X(FFN) X(DOWN) X(DOWN_SHEXP) X(DOWN_EXPS) X(HEAD)
enum quant_input {
#define X(name) QUANT_IN_##name,
    QUANT_INPUT_LIST(X)
#undef X
        QUANT_N_INPUT
};

/* Sums over the rows that were seen of one input: of squares and of magnitudes, per channel. */
struct quant_stat {
    int n_col;
    int64_t n_row;
    double *sq, *abs;
};
typedef struct quant_stats quant_stats;
/* For layers 0 .. n_layer-1 and experts 0 .. n_expert-1. Errors: NOMEM.
 * Memory: close with quant_stats_close. */
sl_status quant_stats_open(int n_layer, int n_expert, quant_stats **out, sl_err *err) BASE_MUST_USE;
void quant_stats_close(quant_stats *s); /* NULL is legal */
/* Rows of an input: x [n_row, n_col] with ldx elements from row to row. */
struct quant_seen {
    enum quant_input in;
    int layer, expert; /* expert: of QUANT_IN_DOWN_EXPS */
    const float *x;
    int n_row, n_col;
    int64_t ldx;
};
/* Add them. Layers beyond n_layer are ignored. Errors: NOMEM, INTERNAL (width changed). */
sl_status quant_stats_add(quant_stats *s, const struct quant_seen *rows, sl_err *err) BASE_MUST_USE;
/* NULL = nothing was seen. */
const struct quant_stat *quant_stats_get(const quant_stats *s, enum quant_input in, int layer,
                                         int expert);

/* ---- converting ---- */
struct quant_opts {
    enum quant_type type[QUANT_N_CLASS]; /* QUANT_AS_IS: see docs; OTHER is not looked at */
    const char *keep;         /* NULL, or a regular expression: names that keep their type */
    const quant_stats *stats; /* NULL = no calibration */
    bool awq;                 /* search and fold per-channel scales; needs stats */
    bool plain;               /* round to nearest, no search */
    bool force;               /* replace what is at dst */
    int64_t shard;  /* of a folder: tensors beyond so many bytes go to a next file; 0 = one file */
    int group;      /* of awq: 0 = the largest of 128, 64, 32 that divides every width */
    int n_thread;   /* 0 = physical cores */
    int64_t memory; /* refuse when a tensor needs more bytes of buffers; 0 = no limit */
    int (*progress)(void *user, const char *what, int64_t done,
                    int64_t total); /* bytes of the source; 1 = stop */
    void *user;
};

/* A line of the table: tensors of one class that went from one type to another. */
struct quant_row {
    enum quant_class cls;
    const char *from; /* static */
    const char *to;   /* static */
    int64_t n_tensor, n_weight, bytes_from, bytes_to;
    double err2, ref2; /* sums of squares of the error and of the weights */
};
#define QUANT_MAX_ROW 64
#define QUANT_MAX_NOTE 24
#define QUANT_NOTE 240
struct quant_report {
    struct quant_row row[QUANT_MAX_ROW];
    int n_row;
    int n_folded;   /* AWQ: inputs whose scales were folded */
    int n_fallback; /* matrices whose width the wanted type can not hold */
    int group;      /* of awq */
    int64_t bytes_from, bytes_to;
    char note[QUANT_MAX_NOTE][QUANT_NOTE]; /* what of tokenizer, templates and sampling the target
                                              can not hold: a line each */
    int n_note, n_more; /* n_more: how many the last note stands for, where there were too many */
    int n_probe, n_probe_diff; /* texts that both tokenizers were given; of them with other ids */
    char probe[QUANT_NOTE];    /* the first of those, as a JSON string */
};

/* Convert src into dst: a path that ends in .gguf, or a folder. Errors: REQUEST (the pair of type
 * and target is impossible: says what is possible; dst exists), UNSUPPORTED (architecture or tensor
 * can not be converted), IO (a full disk, no rights: nothing is left behind), FORMAT, NOMEM,
 * CANCELLED.
 * Memory: source pages and one tensor of the target at a time. */
sl_status quant_convert(const io_model *src, const char *dst, const struct quant_opts *o,
                        struct quant_report *rep, sl_err *err) BASE_MUST_USE;
/* The checks of quant_convert that need nothing but options and kinds. Errors: REQUEST. */
sl_status quant_check(enum io_kind to, const struct quant_opts *o, sl_err *err) BASE_MUST_USE;

/* Those that need no source besides: may dst be written, is o->keep an expression? For callers with
 * long work before. */
sl_status quant_check_target(const char *dst, const struct quant_opts *o,
                             sl_err *err) BASE_MUST_USE;

/* ---- comparing ---- */
struct quant_diff {
    const char *name; /* in a */
    int64_t n_weight;
    double max_abs; /* largest |a - b| */
    double rms_rel; /* sqrt(sum (a-b)^2 / sum a^2) */
};
struct quant_verify {
    int n_same, n_only_a, n_only_b;
    double max_abs, rms_rel; /* worst of all */
    /* called for every tensor of both, in a's order; only_b: name is of b */
    void (*on_diff)(void *user, const struct quant_diff *d);
    void (*on_only)(void *user, bool in_b, const char *name);
    int (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
    int n_thread;
};
/* Compare the dequantised values of two models; names are mapped where the kinds differ. Errors:
 * FORMAT (shapes differ: names both), as quant_convert. */
sl_status quant_compare(const io_model *a, const io_model *b, struct quant_verify *v,
                        sl_err *err) BASE_MUST_USE;

/* The tokenizers, end tokens and chat templates of two models, called by name in the notes of rep
 * (which is added to): QUANT_PROBES texts are given to both. Where neither has a tokenizer that can
 * be read there is nothing to compare. Errors: NOMEM. */
#define QUANT_PROBES 1000
sl_status quant_compare_text(const io_model *a, const io_model *b, const char *const name[2],
                             struct quant_report *rep, sl_err *err) BASE_MUST_USE;

#endif
