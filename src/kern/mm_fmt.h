/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kern: the run formats as data, one group of weights taken apart, and the arguments of
 * the product kernels. */
#ifndef KERN_MM_FMT_H
#define KERN_MM_FMT_H

#include <string.h>

#include "kern/mm.h"
#include "kern/mm_fmt_list.h"

enum mm_fmt {
#define X(name, ...) MM_##name,
    MM_CODE_FMTS(X) MM_FLOAT_FMTS(X)
#undef X
        MM_N_FMT
};
#define MM_N_CODE MM_f32 /* formats below are code formats */

enum mm_planes { P_B8, P_NIB, P_NIB1, P_SIX, P_TWO, P_TWO1, P_NL, P_E2M1 };
enum mm_header { H_D, H_DM, H_E8, H_E4, H_K4, H_K6, H_K3, H_K2, H_XS, H_F, H_Z, H_ZG, H_FLOAT };

struct mm_fmt_info {
    const char *name;
    enum tensor_dtype type;
    int blk_k, blk_bytes, hdr_bytes,
        grp_bytes; /* columns and bytes of a block; bytes of its header; of a group's codes */
    enum mm_header header;
    enum mm_planes planes;
    int half, min, off; /* see mm_fmt_list.h */
};
extern const struct mm_fmt_info kern_mm_fmts[MM_N_FMT];

/* mm_group.c: block of columns [k0, k0 + n) of tile t of a weight_group matrix; scale:
 * kern_mm_scale's. */
void kern_mm_pack_group(const struct mm_fmt_info *f, const struct weight *w, float scale, int t,
                        int k0, int n, uint8_t *dst);
/* The run format of a weight_group matrix. */
int kern_mm_group_fmt(const struct weight *w);
/* Codes of a block, one row of them per row of the tile, as the planes of its groups: everything of
 * the block at dst but its header. */
void kern_mm_pack_codes(const struct mm_fmt_info *f, const uint8_t codes[16][256], uint8_t *dst);

/* table[code] + off as u8: IQ4_NL (off 128), twice e2m1 (off 16). */
extern const uint8_t kern_mm_nl[16], kern_mm_e2m1[16];

/* One group of 32 k of a tile: codes after the table, still with the offset; scales in f32. */
struct mm_group {
    uint8_t code[8][64]; /* line, 4 * row + byte */
    float sc[2][16];     /* of the halves; equal where !half */
    float mn[2][16];
};
/* Group g (0 .. blk_k / 32 - 1) of a block. */
void kern_mm_group(int fmt, const uint8_t *blk, int g, struct mm_group *out);
/* The 32 k from column 32 * g of tile data as f32 [32][16] (no tensor scale). Any format. */
void kern_mm_group_f32(int fmt, const uint8_t *tile, int g, float *dst);

/* What one format needs of a record (mm.h), for few columns, whose records rest in the L1 beside
 * the stream of weights. a, b: the sums i and s that the format takes, in that order, as bits. */
struct mm_short {
    int8_t q[32];
    float e;
    int32_t a, b;
};

/* The product kernels' arguments: n_tile tiles times n columns, groups [g0, g1) of 32 k (code
 * formats: all of them, g0 = 0).
 * hi[j] + g * step: record of column j and group g; where short_rec is not NULL (2 to MM_FEW
 * columns, in variants that ask for it: struct kern) short_rec[g * n + j] instead. Second planes:
 * lo[j] + g, of columns lo_col[lo_off[g] ..  lo_off[g + 1] - 1] in group g; lo NULL: the form has
 * none. At one column lo_off holds the numbers of the n_lo groups that have one. x (float formats):
 * [(g1 - g0) * 4][n][8] f32. acc: scratch [4][MM_N_COL][16] f32, 64-byte aligned. */
struct mm_run {
    const uint8_t *w; /* block that holds group g0 (g0 is a multiple of 8) of the first tile */
    size_t tile_bytes;
    int n_tile, n, g0, g1;
    const struct mm_rec *const *hi, *const *lo;
    const struct mm_short *short_rec;
    const float (*unit)[2]; /* code formats: [n], what the outputs of a column are multiplied with
                               at the end, in tiles 0, 2, .. of the run and in 1, 3, .. */
    size_t step;
    const int32_t *lo_off;
    const uint8_t *lo_col;
    int n_lo;
    const float *x;
    const uint16_t *xb; /* mm_bf16x: the same in bf16 */
    float *y;           /* y[j * ldy + 16 * tile + i] */
    int64_t ldy;
    int add;                   /* float formats: 1: go on from the sums in y; 0: start at 0 */
    int prefetch;              /* bytes ahead; 0 = none */
    int prefetch_far;          /* the same into the second-level cache: one or a few columns */
    const uint8_t *end, *then; /* code formats: of the tiles; what is read after them, or NULL */
    int two;                   /* two_tiles of struct kern */
    float *acc;
    const struct mm_rec *lo_seq; /* records of second planes in the order of lo_col; may be NULL */
};

/* How far ahead of a block lies what is to be asked for pf bytes ahead of it: beyond the tiles' end
 * that is what is read after them. */
static inline ptrdiff_t kern_mm_ahead(const struct mm_run *r, const uint8_t *blk, int pf)
{
    if (pf < r->end - blk) return pf;
    return r->then ? pf + (r->then - r->end) : 0;
}

/* The step of a group whose largest magnitude is amax: the least power of two no less than
 * amax / 127, or amax / (127 * 128) for two planes. 127 is 0x3f7e0000 times a power of two as bits.
 * Groups below MM_AMAX_MIN count as zeros. */
#define MM_AMAX_MIN 0x1p-90f
#define MM_STEP_ROUND 0x1ffffu
static inline float kern_mm_step(float amax, int two)
{
    uint32_t u;
    float d;
    memcpy(&u, &amax, 4);
    u = ((u + MM_STEP_ROUND) & 0xff800000u) - (two ? 13u << 23 : 6u << 23);
    memcpy(&d, &u, 4);
    return d;
}

/* log2 of a step. */
static inline float kern_mm_exponent(float d)
{
    uint32_t u;
    memcpy(&u, &d, 4);
    return (float)((int32_t)(u >> 23) - 127);
}

/* d * sum of q of a half. */
static inline float kern_mm_half_sum(const struct mm_rec *e, int half)
{
    return e->d * (float)(e->i[1 + half] / -8);
}

/* Where the integer sums of a format with an offset start: off is a power of two. */
#define MM_START(i, off) ((off) >= 8 ? (i) * ((off) / 8) : (i) / (8 / (off)))

#define MM_FEW 8      /* columns whose sums stay in registers, at most; 4 without short records */
#define MM_N_COL 64   /* columns of one run, at most */
#define MM_PANEL 4096 /* groups times columns of a panel of floats, at most */
#define MM_MAX_ROWS 16

#endif
