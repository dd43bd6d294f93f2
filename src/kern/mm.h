/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products with packed weights: the layout, the activations and the product of one worker.
 *
 *     y[j][r] = sum_k w[r][k] * x[tok(j)][k]        r: rows of the matrix, j: 0 .. n_tok-1, tok(j) = idx ? idx[j] : j
 *
 * Weights are packed once, at load, into tiles of 16 rows ("R16K4", PERF.md): a 64-byte line holds the 16 rows of a tile for 4
 * consecutive k (8 k for 4-bit codes), K ascending, scales before the lines that they scale, one tile after another: a worker that owns a range
 * of tiles reads one strictly sequential stream, at batch 1 and in prefill alike. The packed form of a storage type is its run format (mm_fmt);
 * kern/mm_fmt_list.h lists them with their exact block layouts.
 *
 * Activations are prepared once per layer input by kern_mm_prep (one record per token) in one of these forms:
 *     F32     the reference mode: weights dequantised to f32, f32 fma
 *     BF16    bf16 activations, exact products, f32 sums
 *     INT8    groups of 32 k: int8 + f32 scale
 *     INT15   two int8 planes of the same groups (x = scale * (128 * hi + lo)): integer products, 15 bits
 * Determinism: every output is one f32 accumulator over groups in rising k, whatever n_tok, the tile range or the variant in use; so results are
 * bitwise equal across batch sizes, chunks and threads. They may differ between ISAs in the last bits.
 *
 * All functions here are pure, never allocate, lock or fail. Shapes are checked when a matrix is packed.
 */
#ifndef KERN_MM_H
#define KERN_MM_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/tensor.h"

enum mm_act { MM_ACT_F32, MM_ACT_BF16, MM_ACT_INT8, MM_ACT_INT15, MM_N_ACT };

/* Can a run format be multiplied with activations of that form? Integer codes: all four. Float weights (F32, F16, BF16, F8): F32 and BF16. */
int kern_mm_takes(int fmt, enum mm_act act);

/* A packed matrix, or a pair of matrices of the same shape whose tiles alternate (gate tile 0, up tile 0, gate tile 1, ...).
 * Logical rows of a pair: the caller sees tile t of the stream; even tiles are the first matrix's. */
struct mm_mat {
    int fmt;             /* row of mm_fmt_list.h */
    int n_row, n_col;    /* logical; of each of the two in a pair */
    int n_tile;          /* ceil(n_row / 16), twice that in a pair */
    int is_pair;
    size_t tile_bytes;   /* multiple of 64 */
    uint8_t *data;       /* [n_tile][tile_bytes], 64-byte aligned */
    float scale;         /* multiplies every output (weight.tensor_scale) */
};

/* Prepared activations of n_tok tokens of n_col values. Buffers are carved from one block by kern_mm_act_init. */
struct mm_act_buf {
    unsigned forms;           /* bit (1 << enum mm_act) per form present; INT15 includes INT8 only if its bit is set too */
    int n_tok_max, n_col, ld; /* ld: n_col rounded up to the widest format's block, padding zeroed by prep */
    uint8_t *base;            /* owned by the caller */
    float *f32;               /* [n_tok, ld]              F32 */
    uint16_t *bf16;           /* [n_tok, ld]              BF16 */
    struct mm_act_int {
        int8_t *q;            /* [n_tok, plane, ld] */
        float *d;             /* [n_tok, ld/32]           scale of a group */
        float *s;             /* [n_tok, ld/16]           d * integer sum of each half group, for zero points and minima */
        int32_t *isum;        /* [n_tok, plane, ld/16]    integer sums of each half group and plane */
    } i8, i15;                /* INT8: one plane; INT15: plane 0 hi, plane 1 lo */
};

/* ---- formats and packing (load time) ---- */

/* The run format for a stored matrix. UNSUPPORTED with the type's name where there is none. */
sl_status kern_mm_fmt(const struct weight *w, int *fmt, sl_err *err) BASE_MUST_USE;
const char *kern_mm_fmt_name(int fmt);
/* Fill everything of *m but data; n_bytes is what data needs. pair: another matrix of the same shape and format follows tile by tile. */
void kern_mm_layout(int fmt, int64_t n_row, int64_t n_col, int is_pair, struct mm_mat *m,
                    size_t *n_bytes);
/* Write tile t (0 .. ceil(n_row/16)-1 of that matrix) of w into its place in m->data; which: 0, or 1 for the second matrix of a pair. Rows beyond
 * n_row are zeros. Lossless: kern_mm_unpack gives back exactly weight_dequant's numbers. Callers split tiles over workers. */
void kern_mm_pack_tile(const struct mm_mat *m, const struct weight *w, int which, int t);
/* Dequantise stream tile t: dst [16][n_col] f32, row-major with leading dimension ld (reference; embeddings; the transposed uses). */
void kern_mm_unpack_tile(const struct mm_mat *m, int t, float *dst, int64_t ld);
/* One logical row (of the first matrix): dst [n_col]. For embedding look-ups. */
void kern_mm_unpack_row(const struct mm_mat *m, int64_t row, float *dst);

/* ---- activations ---- */
size_t kern_mm_act_bytes(unsigned forms, int n_col, int n_tok_max);
void kern_mm_act_init(struct mm_act_buf *b, unsigned forms, int n_col, int n_tok_max, void *base);
/* Prepare token t from x[n_col] f32. Different tokens may be prepared by different workers. */
void kern_mm_prep(struct mm_act_buf *b, int t, const float *x);

/* ---- the product ---- */
/* Bytes of scratch that one worker needs for kern_mm on matrices up to n_col columns (64-byte aligned memory, contents undefined). */
size_t kern_mm_scratch_bytes(int n_col);
/* Stream tiles [tile0, tile0 + n_tile) times the listed tokens: y[j * ldy + 16 * (t - tile0) + i], j < n_tok, i < 16, all rows of a tile
 * written (padding rows give 0). y f32, 64-byte aligned rows not required. idx NULL = 0 .. n_tok-1.
 */
void kern_mm(const struct mm_mat *m, int tile0, int n_tile, const struct mm_act_buf *x,
             enum mm_act form, const int32_t *idx, int n_tok, float *y, int64_t ldy, void *scratch);

#endif
