/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/* Matrix products with packed weights: the layout, the activations and the product of one worker.
 *
 *     y[j][r] = sum_k w[r][k] * x[tok(j)][k]    r: rows of the matrix, j: 0 .. n_tok-1,
 *                                               tok(j) = idx ? idx[j] : j
 *
 * Weights are packed once, at load, into tiles of 16 rows ("R16K4"): a 64-byte line holds
 * the 16 rows of a tile for 4 consecutive k (8 k for 4-bit codes), K ascending, scales before the
 * lines that they scale, one tile after another: a worker that owns a range of tiles reads one
 * strictly sequential stream, at batch 1 and in prefill alike. The packed form of a storage type is
 * its run format (mm_fmt); kern/mm_fmt_list.h lists them with their exact block layouts.
 *
 * Activations are prepared once per layer input by kern_mm_prep in some of these forms:
 *     F32     the reference mode: weights dequantised to f32, f32 fma
 *     BF16    activations rounded to bf16, exact products, f32 fma
 *     INT8    groups of 32 k: x = unit * d * q, q int8 in -127..127; unit: of the token, 2^0 to
 *             2^(7/8), what makes the sum of the squares of its steps smallest (1 where a token may
 *             come in parts); d the least power of two no less than amax / (127 * unit): a product
 *             by d is exact, so a CPU may make it where it costs least
 *     INT8X   as INT8, but outliers have a second plane: x = unit * d * (q + q2 / 128). Those are,
 *             of each 256 groups of a token, the largest ones, a quarter at most, whose amax
 *             squared is more than thrice the mean of theirs and the smaller ones. Outliers are
 *             what costs accuracy: on SmolLM2 this loses a quarter of what INT8 loses, for a
 *             seventh more arithmetic; where no group stands out it costs nothing
 *     INT15   the second plane in every group
 * Determinism: every output is one f32 accumulator over groups in rising k with a fixed order of
 * roundings, whatever n_tok, the tile range, the other tokens of the list or the variant in use:
 * results are bitwise equal across batch sizes, chunks, threads and ISAs. Per group of 32 k, with
 * exact integer sums i0, i1 (halves of 16; one sum i0 where the format has one scale per 32):
 *     t = f32(i0) * sc0;  t = fma(f32(i1), sc1, t);  acc = fma(t, d, acc);  acc = fma(-mn, s, acc)
 * s = d * f32(sum of q), of a half where minima are those of halves. Forms with a second plane have
 * a second accumulator for it, added to the first at the end. Last comes the product by f32(unit *
 * the tensor's scale). Float forms, per 8 k:
 *     t = w[1] * x[1];  t = fma(w[i], x[i], t), i = 0, 3, 2, 5, 4, 7, 6;  acc = acc + t
 * (the order in which the bf16 instruction of x86 takes pairs)
 *
 * All functions here are pure, never allocate, lock or fail. Shapes are checked when a matrix is
 * packed.
 */
// clang-format on
#ifndef KERN_MM_H
#define KERN_MM_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

enum mm_act { MM_ACT_F32, MM_ACT_BF16, MM_ACT_INT8, MM_ACT_INT8X, MM_ACT_INT15, MM_N_ACT };

/* Can a run format be multiplied with activations of that form? Integer codes: all. Float weights
 * (F32, F16, BF16, F8): F32 and BF16. */
int kern_mm_takes(int fmt, enum mm_act act);

/* A packed matrix, or a pair of matrices of the same shape whose tiles alternate (gate tile 0, up
 * tile 0, gate tile 1, ...). Logical rows of a pair: the caller sees tile t of the stream; even
 * tiles are the first matrix's. */
struct mm_mat {
    int fmt;          /* row of mm_fmt_list.h */
    int n_row, n_col; /* logical; of each of the two in a pair */
    int n_tile;       /* ceil(n_row / 16), twice that in a pair */
    int is_pair;
    size_t tile_bytes; /* multiple of 64 */
    uint8_t *data;     /* [n_tile][tile_bytes], 64-byte aligned */
    float scale;       /* multiplies every output (weight.tensor_scale of the first matrix);
                          kern_mm_layout sets 1 */
    float scale2;      /* the same for the second matrix of a pair */
};

/* 32 activations in integers, with the sums that the formats need. 64 bytes. */
struct mm_rec {
    int8_t q[32];
    float d;         /* value = unit * d * q */
    int32_t i[3];    /* -8 * sum of q: of all 32; of q[0..15]; of q[16..31] */
    float s;         /* d * sum of q */
    int16_t p[2][2]; /* -8 * sum of the q[k] with k % 4 < 2, and of the others: of q[0..15]; of
                        q[16..31] */
    float e;         /* d = 2^e; NaN with it; 0 where d is 0 */
};

/* Prepared activations of up to n_tok_max tokens of n_col values, carved from one block by
 * kern_mm_act_init. The insides are kern's own. */
struct mm_act_buf {
    unsigned forms;           /* bit (1 << enum mm_act) per form present */
    int n_tok_max, n_col, ld; /* ld: n_col rounded up to 256, padding zeroed by prep */
    int is_parts;             /* set after init: tokens may come in parts, which see no more than
                                 themselves: the unit of INT8 is 1 (kern_mm_prep_part) */
    uint8_t *base;            /* owned by the caller */
    float *f32;               /* [n_tok, ld] */
    uint16_t *bf16;           /* [n_tok, ld], rounded to bf16 */
    struct mm_rec *i8;        /* [n_tok, ld / 32], rows an odd number of records apart; after a
                                 row's records one whose d is the unit */
    struct mm_rec *i8x;       /* [n_tok, plane, ld / 32], likewise */
    struct mm_rec *i15;       /* [n_tok, plane, ld / 32], likewise */
    int32_t *lo_list; /* i8x: [n_tok, ld / 32 + 1], the number of groups with a second plane, then
                         those, rising */
};

/* ---- formats and packing (load time) ---- */

/* The run format for a stored matrix. UNSUPPORTED with the type's name where there is none. */
sl_status kern_mm_fmt(const struct weight *w, int *fmt, sl_err *err) BASE_MUST_USE;
/* mm_mat.scale of a matrix in that format: its tensor scale, times the power of two by which scales
 * were moved into the range of an f16. */
float kern_mm_scale(int fmt, const struct weight *w);
/* What fmt becomes where several matrices that differ share one format or the exact one is too
 * wide: GROUP, F8_BLOCK and plain float weights can be run decoded, as f32 (exactly) or bf16. */
int kern_mm_decoded(int is_exact);
/* Is w decoded, its scales with it, to be run in fmt? */
int kern_mm_is_decoded(int fmt, const struct weight *w);
const char *kern_mm_fmt_name(int fmt);
/* The run format of that name; -1 = none. */
int kern_mm_fmt_find(const char *name);
/* Names the layout of all run formats together; packed files carry it. Change it with every change
 * of a block's bytes in mm_fmt_list.h or mm_pack.c: files packed before are then refused. */
#define KERN_MM_LAYOUT "r16k4-1"
/* Fill everything of *m but data; n_bytes is what data needs. pair: another matrix of the same
 * shape and format follows tile by tile. */
void kern_mm_layout(int fmt, int64_t n_row, int64_t n_col, int is_pair, struct mm_mat *m,
                    size_t *n_bytes);
/* Write tile t (0 .. ceil(n_row/16)-1 of that matrix) of w into its place in m->data; which: 0, or
 * 1 for the second matrix of a pair. Rows beyond n_row are zeros. Lossless: kern_mm_unpack gives
 * back exactly weight_dequant's numbers. Callers split tiles over workers. */
void kern_mm_pack_tile(const struct mm_mat *m, const struct weight *w, int which, int t);
/* Dequantise stream tile t: dst [16][n_col] f32, row-major with leading dimension ld (reference;
 * embeddings; the transposed uses). */
void kern_mm_unpack_tile(const struct mm_mat *m, int t, float *dst, int64_t ld);
/* One logical row (of the first matrix): dst [n_col]. For embedding look-ups. */
void kern_mm_unpack_row(const struct mm_mat *m, int64_t row, float *dst);

/* ---- activations ---- */
size_t kern_mm_act_bytes(unsigned forms, int n_col, int n_tok_max);
void kern_mm_act_init(struct mm_act_buf *b, unsigned forms, int n_col, int n_tok_max, void *base);
/* Prepare token t from x[n_col] f32. Different tokens may be prepared by different workers. */
void kern_mm_prep(struct mm_act_buf *b, int t, const float *x);
/* The same for n_group groups of 32 from group g0 on, x their values, in a buffer with is_parts
 * that has INT8 or BF16 alone and whose n_col is a multiple of 32: the parts of a token, in any
 * order and by any workers, give the bits that kern_mm_prep gives in such a buffer. */
void kern_mm_prep_part(struct mm_act_buf *b, int t, int g0, int n_group, const float *x);
/* Where token 0's groups from g0 on lie in such a buffer, MM_PART_WORDS words of 4 bytes each; *ld:
 * words from one token to the next. Who copies groups there that others have prepared says of each
 * token when all are there: kern_mm_prep_end. */
#define MM_PART_WORDS 16
float *kern_mm_part(struct mm_act_buf *b, int g0, int64_t *ld);
void kern_mm_prep_end(struct mm_act_buf *b, int t);
/* Where token 0 of a form lies, in up to MM_STRIPS places: n words of 4 bytes, ld from one token to
 * the next. Returns how many. A token is prepared in that form where all its words are copied there
 * from a buffer of the same width in which it is. */
#define MM_STRIPS 2
struct mm_strip {
    float *p;
    int n;
    int64_t ld;
};
int kern_mm_strips(const struct mm_act_buf *b, enum mm_act form, struct mm_strip out[MM_STRIPS]);
/* Tokens 0 to n - 1 have no group with a second plane: what they hold may be read, whatever it is,
 * where they were never prepared. */
void kern_mm_blank(struct mm_act_buf *b, int n);

/* ---- the product ---- */
/* Bytes of scratch that one worker needs for kern_mm on matrices up to n_col columns (64-byte
 * aligned memory, contents undefined). */
size_t kern_mm_scratch_bytes(int n_col);
/* Stream tiles [tile0, tile0 + n_tile) times the listed tokens: y[j * ldy + 16 * (t - tile0) + i],
 * j < n_tok, i < 16, all rows of a tile written (padding rows give 0). y f32, 64-byte aligned rows
 * not required. idx NULL = 0 .. n_tok-1. then: what the caller reads next, weights or not, which
 * are asked for when the tiles' end is near; NULL: not known. again: not 0 where x and what idx
 * points to hold what they held at the last call with this scratch, so that what was made of the
 * same columns for the same format need not be made again. */
void kern_mm(const struct mm_mat *m, int tile0, int n_tile, const struct mm_act_buf *x,
             enum mm_act form, const int32_t *idx, int n_tok, float *y, int64_t ldy,
             const uint8_t *then, int again, void *scratch);

#endif
