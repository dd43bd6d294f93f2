/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as they lie in a file: type, shape, bytes; and the reference dequantisers. No arithmetic
 * on tensors here. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/dtype_list.h"

enum tensor_dtype {
#define X(name, text, id, block, bytes) TENSOR_##name,
    TENSOR_DTYPE_LIST(X)
#undef X
        TENSOR_N_DTYPE
};

struct tensor_dtype_info {
    const char *text;
    int gguf_id; /* -1 = not in GGUF */
    int block;   /* weights per block */
    int bytes;   /* per block */
};

/* Its row; static. */
const struct tensor_dtype_info *tensor_dtype(enum tensor_dtype t);
/* False when the id is not known; the text for such an id (removed, ik-only, ...) is for messages
 * and never NULL. */
bool tensor_dtype_from_gguf(uint32_t id, enum tensor_dtype *out);
const char *tensor_gguf_id_text(uint32_t id);
bool tensor_dtype_from_text(const char *text, size_t n, enum tensor_dtype *out);
/* True when the type has a dequantiser to f32 (all but the integer and bool types, and E8M0). */
bool tensor_dtype_is_weight(enum tensor_dtype t);

#define TENSOR_MAX_DIM 6

/* A named, checked view of bytes in a mapped file. Borrowed from the file that owns it. */
struct tensor {
    const char *name; /* NUL-terminated */
    enum tensor_dtype type;
    int n_dim;                     /* 0 .. 6; 0 is a scalar */
    int64_t shape[TENSOR_MAX_DIM]; /* row-major: shape[n_dim-1] is contiguous; 1 beyond n_dim */
    const void *data;
    uint64_t n_bytes;
    uint64_t offset; /* of data in its file */
    int file;        /* which file of the model */
    /* 0 where values lie side by side. Else it shows a part of another tensor: bytes from one row
     * to the next, and, where col_bytes is not 0, from one value of a row (of a vector) to the
     * next. n_bytes counts what is shown. */
    uint64_t row_bytes, col_bytes;
};

/* Values in all: the product of its shape. */
int64_t tensor_count(const struct tensor *t);
/* Every byte of it is 0, or it has none. */
bool tensor_is_zero(const struct tensor *t);
/* Value i of whole numbers, I32 or I64, that lie side by side. */
int64_t tensor_whole(const struct tensor *t, int64_t i);
/* Length of the contiguous dimension (1 for a scalar) and the number of rows of that length. */
int64_t tensor_cols(const struct tensor *t);
int64_t tensor_rows(const struct tensor *t);
/* Bytes of n contiguous weights; n must be a multiple of the block. False on overflow. */
bool tensor_bytes(enum tensor_dtype t, uint64_t n, uint64_t *out);

/* The reference dequantiser, bit-exact with docs/formats.md ("Blocks of GGUF types")
 * and gguf-py: n weights (a multiple of the block) from src to dst.
 * src needs no alignment. Only for types where tensor_dtype_is_weight. Pure. */
void tensor_dequant(enum tensor_dtype t, const void *src, int64_t n, float *dst);

/* The reference quantiser, round to nearest with the simplest good scale: for tests and for the KV
 * cache. F32, F16, BF16, F8_E4M3, Q8_0, Q4_0, Q4_1 only (tensor_can_quant). n a multiple of the
 * block. For finite input the block types give the bytes of gguf-py's quantisers (but for the sign
 * of a zero minimum). */
bool tensor_can_quant(enum tensor_dtype t);
void tensor_quant(enum tensor_dtype t, const float *src, int64_t n, void *dst);

/* ---- weights: a matrix with whatever scales belong to it ---- */

/* How a weight's value is decoded from its bytes. One row of the loader table per scheme
 * (io/weight.c). */
enum tensor_scheme {
    TENSOR_SCHEME_PLAIN,    /* the dtype's own blocks */
    TENSOR_SCHEME_F8_BLOCK, /* F8_E4M3 times scale[row / block_rows][col / block_cols] */
    TENSOR_SCHEME_GROUP /* (code - zero) * scale of the row's group of columns: struct weight_group
                         */
};

/* Where the code of row r, column c lies in the data of a GROUP weight. Codes are unsigned: signed
 * ones are read with their sign bit turned over (+8, +128), and so are zero points. */
enum weight_codes {
    WEIGHT_I8,    /* i8 [rows, row_bytes], 8 bits */
    WEIGHT_U8,    /* u8 [rows, row_bytes], 8 bits */
    WEIGHT_E4M3,  /* the same, the code is an e4m3 number and has no zero point */
    WEIGHT_NIB,   /* 4 bits [rows, row_bytes], even columns in the low nibbles */
    WEIGHT_E2M1,  /* as NIB, the code is an e2m1 number and has no zero point */
    WEIGHT_ROWS2, /* 4 bits, signed [rows / 2, cols], even rows in the low nibbles */
    WEIGHT_I4,    /* i8 [rows, row_bytes] that holds -8 .. 7, 4 bits */
    WEIGHT_AWQ, /* 4 bits, u32 [cols, rows / 8], row 8i + (0, 2, 4, 6, 1, 3, 5, 7)[j] in nibble j */
    WEIGHT_GPTQ4, /* 4 bits, u32 [cols / 8, rows], column 8i + j in nibble j */
    WEIGHT_GPTQ8  /* 8 bits, u32 [cols / 4, rows], column 4i + j in byte j */
};
/* Zero points of (row r, group g). */
enum weight_zeros {
    WEIGHT_ZERO_MID,      /* none stored: 8 or 128, half of the codes' range */
    WEIGHT_ZERO_ONE,      /* i8, one for all */
    WEIGHT_ZERO_I8,       /* i8 [rows, groups] */
    WEIGHT_ZERO_NIB_ROWS, /* u32 [rows / 8, groups], row 8i + j in nibble j */
    WEIGHT_ZERO_U8_ROWS,  /* u32 [rows / 4, groups], row 4i + j in byte j */
    WEIGHT_ZERO_AWQ,      /* u32 [groups, rows / 8], in AWQ's order */
    WEIGHT_ZERO_GPTQ4,    /* u32 [groups, rows / 8], row 8i + j in nibble j */
    WEIGHT_ZERO_GPTQ8     /* u32 [groups, rows / 4], row 4i + j in byte j */
};
/* The scale of (row r, group g): element r * ld_row + g * ld_group. F32, F16, BF16, F8_E4M3,
 * F8_E8M0, or I64: the bits of an f32. */
struct weight_scale {
    const uint8_t *p; /* any alignment; NULL = 1 */
    enum tensor_dtype type;
    int64_t ld_row, ld_group;
};
struct weight_group {
    enum weight_codes codes;
    enum weight_zeros zeros;
    int zero_add;    /* GPTQ: what is stored is each word of zero points less this in every place,
                        borrows and all */
    int size;        /* columns of a group */
    int64_t n_group; /* ceil(cols / size) */
    int64_t n_row, row0; /* rows of the stored matrix, and the first that this view has */
    int64_t of_row0,
        of_rows; /* weight_slice: the matrix that it is a part of; of_rows 0 = itself */
    const uint8_t *zero;
    const uint8_t
        *col_group; /* NULL, or i32 [cols]: the group of each column, in 0 .. n_group - 1 */
    struct weight_scale scale, scale2; /* multiplied, first with first */
};

/* A [rows, cols] matrix as stored. Borrowed from the model's files. */
struct weight {
    const char *name;
    enum tensor_scheme scheme;
    enum tensor_dtype type; /* GROUP: of the stored codes */
    int64_t rows, cols;
    const uint8_t *data; /* GROUP: of the whole stored matrix */
    uint64_t row_bytes;  /* where codes lie across rows: bytes of the whole by rows */
    uint64_t col_bytes;  /* PLAIN, types of one value a block: from one value of a row to the next,
                            where they do not lie side by side; else 0 */
    const float *scale;  /* F8_BLOCK: [ceil(rows/block_rows), ceil(cols/block_cols)] f32, any
                            alignment of 4 */
    int block_rows, block_cols;
    int block_row0;     /* F8_BLOCK: rows of the first block that are before this view's */
    float tensor_scale; /* multiplies everything; 1 for most, NVFP4's second scale */
    const uint8_t
        *part_scale; /* NULL, or n_part f32 (any alignment): rows fall into n_part equal parts with
                        a scale each, instead of tensor_scale (the experts of a stack) */
    int n_part;
    struct weight_group group; /* GROUP */
};

/* Bits of a GROUP weight's codes: 4 or 8. */
int weight_bits(const struct weight *w);
/* True where the bytes of a row lie in one piece, row after row. */
bool weight_by_row(const struct weight *w);
/* e4m3 times a power of two: every number is a bf16 too (if not below 2^-126). */
bool weight_is_mxfp8(const struct weight *w);
/* F32 without a scale, row after row, every number of which is a bf16 too. Reads all of it. */
bool weight_fits_bf16(const struct weight *w);
/* Bytes of its values or codes, and from the first of them to after the last. */
uint64_t weight_bytes(const struct weight *w);
uint64_t weight_span(const struct weight *w);
/* The codes of columns [col0, col0 + n) of row r of a GROUP weight, one a byte; its zero points and
 * scales. Pure. */
void weight_codes(const struct weight *w, int64_t r, int64_t col0, int64_t n, uint8_t *code);
int weight_zero(const struct weight *w, int64_t r, int64_t group);
float weight_scale_at(const struct weight *w, int64_t r, int64_t group);
/* A shift s for which every scale times 2^s is an f16 exactly; false where there is none. GROUP; of
 * a slice: the scales of the whole. */
bool weight_scale_shift(const struct weight *w, int *shift);
/* Rejects what a file may contain but no weight may: scales that are not finite (or, where e4m3,
 * negative), 4-bit codes out of range. Reads every scale. Errors: FORMAT with the tensor's name,
 * row and group. */
sl_status weight_check(const struct weight *w, sl_err *err) BASE_MUST_USE;

/* Dequantise columns [col0, col0 + n) of row r to dst. col0 and n multiples of the dtype's block.
 * Pure. */
void weight_dequant(const struct weight *w, int64_t r, int64_t col0, int64_t n, float *dst);

/* The same matrix from row0 on, n_rows rows (a head, an expert of a stack); rows of one part where
 * there are several. */
struct weight weight_rows(const struct weight *w, int64_t row0, int64_t n_rows);
/* Any rows of a matrix, as a part of it: what is decided by a matrix's numbers (the format that it
 * runs in) is decided for the part by those of the whole. */
struct weight weight_slice(const struct weight *w, int64_t row0, int64_t n_rows);

#endif
